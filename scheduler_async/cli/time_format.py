"""Moments and durations for people who read a terminal. Pure: they are told the time and the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from scheduler_async.timekeeping.durations import short_duration, short_span


class ReadersZone(tzinfo):
    """The zone of the system, whatever its name: it knows its daylight saving, as no fixed offset does."""

    def fromutc(self, moment: datetime) -> datetime:
        """The same moment on the reader's clock, which may show it for the second time."""
        try:
            there = moment.replace(tzinfo=UTC).astimezone()
        except (OverflowError, ValueError):  # at the end of the calendar
            return moment.replace(tzinfo=self)
        first = there.replace(tzinfo=None, fold=0).astimezone()
        return there.replace(tzinfo=self, fold=int(first.utcoffset() != there.utcoffset()))

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """How far the clock is ahead of UTC then."""
        return None if moment is None else _local(moment).utcoffset()

    def tzname(self, moment: datetime | None) -> str | None:
        """What the zone calls itself then."""
        return None if moment is None else _local(moment).tzname()

    def dst(self, _moment: datetime | None) -> timedelta | None:
        """Not known: the system tells offsets only."""
        return None


def _local(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=None).astimezone()
    except (OverflowError, ValueError):
        return moment.replace(tzinfo=UTC)


def relative(at: datetime, now: datetime) -> str:
    """How far away a moment is: "in 2h 5m", "3d ago", "now"."""
    seconds = round((at - now).total_seconds())
    if abs(seconds) < 1:
        return "now"
    words = short_span(abs(seconds))
    return f"in {words}" if seconds > 0 else f"{words} ago"


def absolute(at: datetime, now: datetime, zone: tzinfo) -> str:
    """A moment on the clock of *zone*, with as much of the date as is needed."""
    there, today = at.astimezone(zone), now.astimezone(zone)
    clock = f"{there:%H:%M:%S}" if there.second else f"{there:%H:%M}"
    if there.date() == today.date():
        day = ""
    elif abs(there - today) < timedelta(days=180):
        day = f"{there:%a} {there.day} {there:%b} "
    else:
        day = f"{there:%Y-%m-%d} "
    return f"{day}{clock} {there:%Z}"


def moment(at: datetime | None, now: datetime, zone: tzinfo) -> str:
    """A moment, relative and absolute; "-" if there is none."""
    return "-" if at is None else f"{relative(at, now)}, {absolute(at, now, zone)}"


def lasting(span: timedelta) -> str:
    """A span, which may go back: "12ms", "-1.5s", "0s"."""
    seconds = span.total_seconds()
    return "0s" if not seconds else f"{'-' if seconds < 0 else ''}{short_duration(abs(seconds))}"


def took(milliseconds: float | None) -> str:
    """How long a run took; "-" if it is not over."""
    return "-" if milliseconds is None else short_duration(milliseconds / 1000)
