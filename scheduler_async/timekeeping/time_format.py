"""Moments and durations for people, on a terminal or on a page. Pure: the caller passes the time and the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from scheduler_async.timekeeping.durations import short_duration, short_span

# The average of the calendar.
DAYS_OF_YEAR = 365.2425


class ReadersZone(tzinfo):
    """The zone of the system, with its daylight saving time, whatever its name."""

    def fromutc(self, moment: datetime) -> datetime:
        """Return the same moment on the reader's clock, which may show that time twice."""
        try:
            there = moment.replace(tzinfo=UTC).astimezone()
            first = there.replace(tzinfo=None, fold=0).astimezone()
        except (OverflowError, ValueError):  # at the end of the calendar
            return moment.replace(tzinfo=self)
        return there.replace(tzinfo=self, fold=int(first.utcoffset() != there.utcoffset()))

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return how far the clock is ahead of UTC at *moment*."""
        return None if moment is None else _local(moment).utcoffset()

    def tzname(self, moment: datetime | None) -> str | None:
        """Return the abbreviation of the zone at *moment*."""
        return None if moment is None else _local(moment).tzname()

    def dst(self, _moment: datetime | None) -> timedelta | None:
        """Return None: the system knows only the offset."""
        return None


def _local(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=None).astimezone()
    except (OverflowError, ValueError):
        return moment.replace(tzinfo=UTC)


def relative(at: datetime, now: datetime) -> str:
    """Return how far away a moment is: "in 2h 5m", "3d ago", "now"."""
    seconds = round((at - now).total_seconds())
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def span(seconds: int) -> str:
    """Return whole seconds in the two largest units: "3m 20s", "2h 5m", "18y 45d"."""
    days = seconds / 86_400
    years = int(days / DAYS_OF_YEAR)
    if not years:
        return short_span(seconds)
    rest = int(days - years * DAYS_OF_YEAR)
    return f"{years}y {rest}d" if rest else f"{years}y"


def absolute(at: datetime, now: datetime, zone: tzinfo, *, with_seconds: bool = False) -> str:
    """Return a moment on the clock of *zone*, with as much of the date as it needs."""
    there, today = at.astimezone(zone), now.astimezone(zone)
    clock = f"{there:%H:%M:%S}" if there.second or with_seconds else f"{there:%H:%M}"
    if there.date() == today.date():
        day = ""
    elif abs(there - today) < timedelta(days=180):
        day = f"{there:%a} {there.day} {there:%b} "
    else:
        day = f"{there:%Y-%m-%d} "
    return f"{day}{clock} {there:%Z}"


def moment(at: datetime | None, now: datetime, zone: tzinfo) -> str:
    """Return a moment, relative and absolute; "-" for None."""
    return "-" if at is None else f"{relative(at, now)}, {absolute(at, now, zone)}"


def lasting(duration: timedelta) -> str:
    """Return a duration, which may be negative: "12ms", "-1.5s", "0s"."""
    seconds = duration.total_seconds()
    return "0s" if not seconds else f"{'-' if seconds < 0 else ''}{_measured(abs(seconds))}"


def took(milliseconds: float | None) -> str:
    """Return the duration of a run; "-" while it is running."""
    return "-" if milliseconds is None else _measured(milliseconds / 1000)


def _measured(seconds: float) -> str:
    return short_duration(seconds) if seconds < 86_400 else span(round(seconds))
