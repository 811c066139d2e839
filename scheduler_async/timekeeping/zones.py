"""Time zones as periods of constant offset. Pure, except that it reads the zone database.

`zoneinfo` answers "what is the offset at this moment?". Cron also needs to know how long it lasts, and which wall-clock
times occur twice or never. A `Zone` finds the changes of offset once, for a year or so at a time, and answers from
integers after that. All moments here are whole seconds since the epoch, and *wall* times are the same count on the
clock of the zone: `wall = moment + offset`.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from scheduler_async.errors import UnknownZoneError

DAY = 86_400

# Two changes of offset in the zone database are never closer than 95 hours: a look every second day misses none.
_STEP = 2 * DAY
_CHUNK_BITS = 25  # 2**25 s = 388 days: a lookup is a shift and a dict, and a chunk holds a handful of periods
# A change repeats at most about a day of wall time, so earlier changes do not matter to a chunk.
_LOOK_BACK = 3 * DAY

_EPOCH = datetime(1970, 1, 1)
# Two days within the range of datetime, so that no offset leads out of it.
FIRST = int((datetime.min - _EPOCH).total_seconds()) + 2 * DAY
LAST = int((datetime.max - _EPOCH).total_seconds()) - 2 * DAY


class Period(NamedTuple):
    """A stretch of time, from *start* up to but not including *end*, during which the offset stays the same."""

    start: int
    end: int
    offset: int
    repeated_until: int
    """Earlier wall times have already occurred in an earlier period."""


class Zone:
    """The offsets of one time zone, found when they are first needed."""

    def __init__(self, name: str, offset_at: Callable[[int], int]) -> None:
        self.name = name
        self._offset_at = offset_at
        self._chunks: dict[int, tuple[Period, ...]] = {}

    def period_at(self, moment: int) -> Period | None:
        """Return the period that *moment* lies in, or None beyond the years 1 to 9999."""
        if not FIRST <= moment < LAST:
            return None
        number = moment >> _CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = self._find_periods(number)
        for period in chunk:
            if moment < period.end:
                return period
        raise AssertionError("the periods of a chunk cover it")

    def _find_periods(self, number: int) -> tuple[Period, ...]:
        first = max(number << _CHUNK_BITS, FIRST)
        end = min((number + 1) << _CHUNK_BITS, LAST)
        look_from = max(first - _LOOK_BACK, FIRST)
        changes = [*self._changes(look_from, end), (end, 0)]

        periods = []
        start, offset = look_from, self._offset_at(look_from)
        shown_until = look_from + offset
        for change, offset_after in changes:
            if change > first:
                periods.append(Period(max(start, first), change, offset, shown_until))
            shown_until = max(shown_until, change + offset)
            start, offset = change, offset_after
        return tuple(periods)

    def _changes(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return each moment in (*start*, *end*) at which the offset changes, with the offset from then on."""
        changes = []
        known, offset = start, self._offset_at(start)
        while known < end:
            ahead = min(known + _STEP, end)
            offset_ahead = self._offset_at(ahead)
            if offset_ahead != offset:
                before, after = known, ahead
                while after - before > 1:
                    middle = (before + after) // 2
                    if self._offset_at(middle) == offset:
                        before = middle
                    else:
                        after = middle
                if after < end:
                    changes.append((after, offset_ahead))
                offset = offset_ahead
            known = ahead
        return changes


def find_zone(name: str | None) -> Zone:
    """Return the zone with this *name*, as `check_zone` returns it; None is the zone of the system."""
    if name is None:
        # A process may change its zone, by TZ and tzset() or in a test. Offsets found before that do not hold.
        return _system_zone(os.environ.get("TZ"), time.tzname)
    return _named_zone(name)


def check_zone(zone: object) -> str:
    """Return the name of *zone*: an IANA name, "UTC", or an offset such as "UTC+05:30".

    *zone* is such a name, a `ZoneInfo`, or a `tzinfo` that always has the same offset. "Z" and "utc" are "UTC".
    """
    if isinstance(zone, ZoneInfo):
        if zone.key is None:
            raise UnknownZoneError(zone, problem="A ZoneInfo must have a key: without one it cannot be stored.")
        name: object = zone.key
    else:
        name = _offset_name(_fixed_offset(zone)) if isinstance(zone, tzinfo) else zone
    if not isinstance(name, str) or len(name) > 64:
        raise UnknownZoneError(zone)
    return _named_zone(name).name


def as_tzinfo(zone: str | tzinfo) -> tzinfo:
    """Return *zone*, or the time zone of that name."""
    return zone if isinstance(zone, tzinfo) else _tzinfo_of(check_zone(zone))


@lru_cache(maxsize=1024)
def _named_zone(name: str) -> Zone:
    zone = _tzinfo_of(name)

    def offset_at(moment: int) -> int:
        there = zone.fromutc((_EPOCH + timedelta(seconds=moment)).replace(tzinfo=zone))
        offset = there.utcoffset()
        assert offset is not None
        return offset.days * DAY + offset.seconds

    return Zone(zone.key if isinstance(zone, ZoneInfo) else str(zone), offset_at)


def _tzinfo_of(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(offset[part] or 0) for part in ("hours", "minutes", "seconds"))
        ahead = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-ahead if offset["sign"] == "-" else ahead)
    if name.upper() in _UTC_NAMES and name != "GMT":  # which is also an IANA name, and is kept
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; a directory of zones
        raise UnknownZoneError(name, _suggestion(name)) from None


_UTC_NAMES = {"UTC", "GMT", "Z"}
_OFFSET = re.compile(
    r"(?:UTC)?(?P<sign>[+-])(?P<hours>[01]\d|2[0-3])(?::?(?P<minutes>[0-5]\d)(?::?(?P<seconds>[0-5]\d))?)?",
    re.ASCII | re.IGNORECASE,
)
# An offset as people write it, such as "UTC+2", "GMT +5:30" or "-3".
_LOOSE_OFFSET = re.compile(
    r"(?:UTC|GMT)? ?(?P<sign>[+-]) ?(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?", re.ASCII | re.IGNORECASE
)


def _suggestion(name: str) -> str | None:
    """Return the zone that *name* probably stands for."""
    offset = _LOOSE_OFFSET.fullmatch(name)
    if offset is not None:
        exact = f"{offset['sign']}{offset['hours']:0>2}:{offset['minutes'] or '00'}"
        return exact if _OFFSET.fullmatch(exact) else None
    known = {zone.lower(): zone for zone in available_timezones()}
    # "CEST" resembles "EST", which is another clock: an abbreviation has to be the same, but for its case.
    is_abbreviation = len(name) <= 4
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=1.0 if is_abbreviation else 0.6)
    return known[close[0]] if close else None


def _offset_name(offset: timedelta) -> str:
    return str(timezone(offset))  # "UTC+05:30"; "UTC" if it is none


def _fixed_offset(zone: tzinfo) -> timedelta:
    """Return the one offset that *zone* has; a zone that changes its offset must be a ZoneInfo."""
    # Naive moments: for others, pytz would answer with its first offset.
    moments = [datetime(year, month, 1) for year in range(1900, 2101) for month in (1, 7)]
    try:
        first, *others = {zone.utcoffset(moment) for moment in moments}
    except Exception as error:  # a tzinfo of the user's may raise anything
        raise UnknownZoneError(
            zone, problem=f"Cannot get the offset of the {_kind_of(zone)} ({type(error).__name__})."
        ) from error
    if others:
        raise UnknownZoneError(
            zone, problem=f"The {_kind_of(zone)} changes its offset and has no key, so it cannot be stored."
        )
    if not isinstance(first, timedelta):
        raise UnknownZoneError(zone, problem=f"The {_kind_of(zone)} has no offset.")
    if first % _SECOND or abs(first) >= timedelta(days=1):
        raise UnknownZoneError(zone, problem=f"A fixed offset must be whole seconds, less than a day; {first} is not.")
    return first


def _kind_of(zone: tzinfo) -> str:
    return f"time zone of type {type(zone).__name__}"


_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=16)
def _system_zone(_tz: str | None, names: tuple[str, str]) -> Zone:
    return Zone("/".join(dict.fromkeys(names)), lambda moment: time.localtime(moment).tm_gmtoff)
