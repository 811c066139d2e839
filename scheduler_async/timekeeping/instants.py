"""Moments: aware UTC datetimes outside, integer microseconds since the epoch inside. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.timekeeping.zones import as_tzinfo

Micros: TypeAlias = int
"""A moment as integer microseconds since the epoch, or a span in microseconds."""

SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

FIRST: Micros = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
"""The first moment that a datetime can hold."""

LAST: Micros = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
"""The last moment that a datetime can hold. Schedules end there."""


def to_micros(moment: datetime) -> Micros:
    """Return an aware *moment* as microseconds since the epoch."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: Micros) -> datetime:
    """Return the UTC datetime that lies *micros* microseconds after the epoch."""
    return EPOCH + micros * _MICROSECOND  # half the time of timedelta(microseconds=micros)


def span(duration: timedelta) -> Micros:
    """Return *duration* in microseconds, exactly."""
    return duration // _MICROSECOND


def iso_text(moment: datetime) -> str:
    """Return *moment*, which is in UTC, as it stands in JSON: "2026-06-15T09:00:00Z"."""
    return moment.isoformat().replace("+00:00", "Z")


def describe_instant(moment: datetime, zone: str | tzinfo = UTC) -> str:
    """Return *moment* for people, in *zone*: "2026-06-15 09:00 UTC", with seconds unless they are 0."""
    zone = as_tzinfo(zone)
    pattern = "%H:%M" if moment.second == moment.microsecond == 0 else "%H:%M:%S"
    try:
        there = moment.astimezone(zone)
    except OverflowError:  # in another zone, the first and last hours of the calendar lie outside of it
        there = moment.astimezone(UTC)
    return f"{there:%Y-%m-%d {pattern} %Z}"


def parse_instant(value: str | datetime, what: str = "instant") -> datetime:
    """Return *value*, ISO 8601 text or a datetime with a time zone, in UTC; *what* names it in errors."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        moment = _parse_iso(value, what)
    else:
        raise InvalidScheduleError(
            f'The {what} must be a datetime or an ISO 8601 string such as "2026-06-15T09:00:00Z", not {quoted(value)}.'
        )
    if moment.tzinfo is UTC:  # as most are
        return moment
    if moment.utcoffset() is None:
        raise InvalidScheduleError(
            f"The {what} {moment.isoformat()} has no time zone. Add one: "
            f'"{moment.isoformat()}Z" is UTC, "{moment.isoformat()}+02:00" is two hours ahead of it. '
            "A datetime needs a tzinfo."
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidScheduleError(f"The {what} {moment.isoformat()} must lie within the years 1 to 9999.") from None


# Checked first, since fromisoformat() also reads week dates, compact forms and non-ASCII separators.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)


def _parse_iso(text: str, what: str) -> datetime:
    trimmed = text.strip() if len(text) < 64 else text
    if _ISO.fullmatch(trimmed):
        try:
            return datetime.fromisoformat(trimmed.upper())
        except ValueError as error:
            raise InvalidScheduleError(f"The {what} {quoted(text)} does not exist: {error}.") from None
    raise InvalidScheduleError(
        f'Cannot read {quoted(text)} as the {what}. Write it as ISO 8601 with a zone, such as "2026-06-15T09:00:00Z".'
    )
