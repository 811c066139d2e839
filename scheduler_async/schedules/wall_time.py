"""Days and wall-clock times of a zone, in microseconds, for calendars. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scheduler_async.schedules.cron_line import LONGEST_GAP
from scheduler_async.timekeeping.instants import SECOND, Micros
from scheduler_async.timekeeping.zones import DAY, FIRST, LAST, Period, Zone

DAY_MICROS: Micros = DAY * SECOND


class Piece(NamedTuple):
    """A stretch of instants, from *start* up to but not including *end*."""

    start: Micros
    end: Micros
    offset: Micros
    """The wall-clock time is the instant plus this."""
    skipped: bool = False
    """Whether it is only the first instant after wall-clock times that a clock change has skipped."""


class WallTime:
    """The clocks of one zone."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone

    def period(self, at: Micros) -> Period | None:
        """Return the period of constant offset that *at* lies in."""
        return self.zone.period_at(at // SECOND)

    def wall(self, at: Micros) -> Micros:
        """Return the wall-clock time at *at*. Beyond the calendar, it is that of UTC."""
        period = self.period(at)
        return at if period is None else at + period.offset * SECOND

    def day(self, at: Micros) -> int:
        """Return the day at *at*."""
        return self.wall(at) // DAY_MICROS

    def first_unrepeated(self, after: Micros) -> Micros:
        """Return the first wall-clock time whose first instant is later than *after*."""
        period = self.period(after)
        if period is None:
            return after + 1
        return max(after + period.offset * SECOND + 1, period.repeated_until * SECOND)

    def instant(self, wall: Micros) -> Micros | None:
        """Return the first instant with this wall-clock time. For a skipped time, it is the first after the gap.

        Return None if the gap is a correction of the calendar, or beyond the calendar.
        """
        second, rest = divmod(wall, SECOND)
        period = self.zone.period_at(second - DAY)
        while period is not None:
            at = second - period.offset
            if at < period.start:  # the clock has skipped it
                before = self.zone.period_at(period.start - 1)
                gap = period.offset - (before.offset if before else period.offset)
                return period.start * SECOND if gap <= LONGEST_GAP else None
            if at < period.end:
                return at * SECOND + rest
            period = self.zone.period_at(period.end)
        return None

    def after_gap(self, at: Micros) -> bool:
        """Return whether *at* is the first instant after a clock change that skipped some time."""
        period = self.period(at)
        if period is None or at != period.start * SECOND:
            return False
        before = self.zone.period_at(period.start - 1)
        return before is not None and before.offset < period.offset

    def changes_near(self, day: int) -> bool:
        """Return whether a clock change is so near to *day* that its times may not be in order."""
        start = day * DAY
        first, last = self.zone.period_at(start - 2 * DAY), self.zone.period_at(start + 3 * DAY)
        return first is None or last is None or first.offset != last.offset or first.end < last.start

    def pieces(self, day: int, start: int, end: int) -> Iterator[Piece]:
        """Yield the instants of the times of *day* from second *start* to *end*, and instants that make up for gaps."""
        first, last = day * DAY + start, day * DAY + end
        if first - DAY < FIRST or last + DAY >= LAST:
            return
        period = self.zone.period_at(first - DAY)
        while period is not None:
            begin, stop = max(period.start, first - period.offset), min(period.end, last - period.offset)
            if begin < stop:
                yield Piece(begin * SECOND, stop * SECOND, period.offset * SECOND)
            if period.end >= last + DAY:
                return
            following = self.zone.period_at(period.end)
            if following is not None and 0 < following.offset - period.offset <= LONGEST_GAP:
                gap_start, gap_end = period.end + period.offset, period.end + following.offset
                if gap_start < last and first < gap_end:
                    at = period.end * SECOND
                    yield Piece(at, at + 1, following.offset * SECOND, skipped=True)
            period = following

    def starts(self, day: int) -> Micros | None:
        """Return the first instant of *day*, or of the first later day that the clocks show."""
        for number in range(day, day + 3):
            found = [piece.start for piece in self.pieces(number, 0, DAY) if not piece.skipped]
            if found:
                return min(found)
        return None

    def ends(self, day: int) -> Micros | None:
        """Return the last instant of *day*, or of the last earlier day that the clocks show."""
        for number in range(day, day - 3, -1):
            found = [piece.end for piece in self.pieces(number, 0, DAY) if not piece.skipped]
            if found:
                return max(found) - 1
        return None
