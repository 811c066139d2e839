"""Times as an operator types them: "03:00", "yesterday 03:00", "2h", "2026-06-15 09:00". Pure.

Schedules have a grammar of their own, in `schedules.parsing`: they never depend on the current time.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from scheduler_async.errors import IntervalParseError, InvalidScheduleError, quoted
from scheduler_async.schedules.clock_shifts import LARGEST_SHIFT, Change, changes
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import EPOCH, describe_instant
from scheduler_async.timekeeping.zones import Zone

DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}

PAST_FORMS = (
    'Write 03:00 for the last time it was 03:00, "yesterday 03:00", 2h for two hours ago, or a date and time such as '
    "2026-06-15T03:00, with a Z at the end for UTC."
)
FUTURE_FORMS = (
    'Write 2h for two hours from now, 18:00 for the next time it is 18:00, "tomorrow 09:00", or a date and time such '
    "as 2026-06-15T18:00, with a Z at the end for UTC."
)

_DISTANCE = re.compile(r"(?P<ahead>in )?(?P<length>\d+ ?[a-z]+)(?P<ago> ago)?", re.ASCII)
_CLOCK = re.compile(
    r"(?:(?P<word>yesterday|today|tomorrow)|(?P<date>\d{4}-\d\d-\d\d))?"
    r"(?:(?:^|[ t])(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?"
    r" ?(?P<zone>z|utc|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_LONGEST = 64  # characters


class Moment(NamedTuple):
    """A time that was typed, and a note if the clock shows it twice or never."""

    at: datetime
    note: str | None = None


def parse_moment(text: str, now: datetime, zone: tzinfo, *, ahead: bool = False, what: str = "time") -> datetime:
    """Return the time that *text* stands for, as `read_moment` does, without its note."""
    return read_moment(text, now, zone, ahead=ahead, what=what).at


def read_moment(text: str, now: datetime, zone: tzinfo, *, ahead: bool = False, what: str = "time") -> Moment:
    """Return the time in UTC that *text* stands for; *what* names it in errors.

    "03:00" is the last time that clocks in *zone* showed it, and "2h" is two hours ago. With *ahead*, they are the next
    time and two hours from now, and a time that has passed is refused. A date and a time may have a zone of their own.
    A date without a time is the start of that day.

    Clock changes are treated as a cron schedule treats them: a time that does not exist is the first moment after the
    gap, and of a time that comes twice the first is taken. With *ahead*, it is the first that has not passed.
    """
    words = " ".join(text.lower().split()) if len(text) <= _LONGEST else ""
    try:
        found = _read(words, now, zone, ahead)
    except (ValueError, OverflowError) as error:  # no such day, hour or unit; beyond the calendar
        beyond = isinstance(error, OverflowError)
        problem = "it must lie within the years 1 to 9999" if beyond else str(error).rstrip(".")
        raise _refusal(text, what, ahead, f": {problem[:1].lower()}{problem[1:]}") from None
    if found is None:
        raise _refusal(text, what, ahead)
    if ahead and found.at <= now:
        passed = f"The {what} {quoted(text)} must lie in the future; {describe_instant(found.at, zone)} has passed."
        raise InvalidScheduleError(f"{passed} {FUTURE_FORMS}")
    return found


def _refusal(text: str, what: str, ahead: bool, problem: str = "") -> InvalidScheduleError:
    return InvalidScheduleError(
        f"Cannot read {quoted(text)} as the {what}{problem}. {FUTURE_FORMS if ahead else PAST_FORMS}"
    )


def _read(words: str, now: datetime, zone: tzinfo, ahead: bool) -> Moment | None:
    if words == "now":
        return Moment(now)
    distance = _DISTANCE.fullmatch(words)
    if distance is not None:
        return _at_distance(distance, now, ahead)
    clock = _CLOCK.fullmatch(words)
    return None if clock is None or not words else _on_clock(clock, now, zone, ahead)


def _at_distance(found: re.Match[str], now: datetime, ahead: bool) -> Moment | None:
    if found["ahead"] and found["ago"]:
        return None
    try:
        length = parse_interval(found["length"].replace(" ", ""))
    except IntervalParseError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
    is_ahead = bool(found["ahead"]) or (ahead and not found["ago"])
    return Moment(now + length if is_ahead else now - length)


def _on_clock(found: re.Match[str], now: datetime, zone: tzinfo, ahead: bool) -> Moment:
    clock = _Clock(zone if found["zone"] is None else _zone_of(found["zone"]))
    today = now.astimezone(clock.zone).date()
    at = _time_of(found)
    if found["date"] is not None or found["word"] is not None:
        day = today + timedelta(days=DAYS[found["word"]]) if found["word"] else date.fromisoformat(found["date"])
        readings = clock.readings(day, at)
        return next((one for one in readings if ahead and one.at > now), readings[0])
    # A clock change may move a time across midnight, and zones have left out whole days.
    days = [today + timedelta(days=number) for number in (range(-1, 4) if ahead else range(1, -4, -1))]
    if ahead:
        return next(one for day in days for one in clock.readings(day, at) if one.at > now)
    return next(first for first, *_ in (clock.readings(day, at) for day in days) if first.at <= now)


def _time_of(found: re.Match[str]) -> time:
    if found["hour"] is None:
        return time()
    fraction = (found["fraction"] or "").ljust(6, "0")
    return time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0), int(fraction))


def _zone_of(text: str) -> tzinfo:
    if text in ("z", "utc"):
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-offset if text[0] == "-" else offset)


class _Clock:
    """The clocks of a zone: which moments are meant by a time that they show."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._offsets = Zone("", self._offset_at)

    def _offset_at(self, second: int) -> int:
        offset = _moment(second).astimezone(self.zone).utcoffset()
        assert offset is not None
        return int(offset.total_seconds())

    def readings(self, day: date, at: time) -> list[Moment]:
        """Return the moments at which the clocks show a time: one, or two if they go back that day."""
        shown = datetime.combine(day, at)
        wall = (shown.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
        rest = timedelta(microseconds=at.microsecond)
        change = self._change_at(wall)
        if change is None:
            return [Moment(_moment(wall - self._offset_on(wall)) + rest)]
        named = f"{shown:%H:%M} on {shown:%Y-%m-%d} {f'in {self.zone}' if isinstance(self.zone, ZoneInfo) else 'here'}"
        if change.shift > 0:
            after = _moment(change.at)
            return [Moment(after, f"{named} does not exist: {change.words}. Using {self._show(after)} instead.")]
        first, second = (_moment(wall - offset) + rest for offset in (change.before, change.after))
        twice = f"{named} comes twice: {change.words}."
        return [
            Moment(one, f"{twice} Using the {which}, {self._show(one)}; write {self._iso(other)} for the {that}.")
            for one, which, other, that in ((first, "first", second, "second"), (second, "second", first, "first"))
        ]

    def _change_at(self, wall: int) -> Change | None:
        """Return the clock change that leaves out or repeats *wall*."""
        for change in changes(self._offsets, wall - LARGEST_SHIFT, wall + LARGEST_SHIFT):
            if min(change.old_wall, change.new_wall) <= wall < max(change.old_wall, change.new_wall):
                return change
        return None

    def _offset_on(self, wall: int) -> int:
        """Return the offset at a time that is shown once. The first answer may belong to a change nearby."""
        near = self._offsets.period_at(wall)
        exact = None if near is None else self._offsets.period_at(wall - near.offset)
        if exact is None:
            raise OverflowError
        return exact.offset

    def _show(self, moment: datetime) -> str:
        return f"{moment.astimezone(self.zone):%H:%M %Z}"

    def _iso(self, moment: datetime) -> str:
        return moment.astimezone(self.zone).replace(microsecond=0).isoformat()


def _moment(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)
