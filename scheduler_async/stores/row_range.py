"""Find the numbers of the rows of a stretch of time without an index on time. Pure: a store looks up some times.

Numbers increase with time, except after the clock was set back. Each step looks at some rows between the bounds, and
moves the bounds towards the first and the last row of the stretch. The bounds may include other rows, so that a query
compares times, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scheduler_async.stores.unreadable import is_moment
from scheduler_async.timekeeping.instants import DAY, MINUTE, Micros

# So many rows are looked at in a step. If the clock was set back, more of them find more of the rows before that.
POINTS = 32

# A range of so many numbers is read as it is.
NARROW = 64


class TimedRows(NamedTuple):
    """A table whose rows have numbers that increase with time."""

    table: str
    number: str
    at: str
    disorder: Micros
    """How far the order of the times may differ from that of the numbers."""


# Runs that are claimed at the same time get their ids in any order, and runs may be claimed ahead of their time.
RUNS = TimedRows("run", "id", "claimed_at", MINUTE)

# The clocks of machines that share a store differ by less than this.
CHANGES = TimedRows("change", "number", "at", DAY)


class RowRange:
    """The numbers of the rows from the time *since* to *until*. None is no bound."""

    def __init__(
        self, first: int, last: int, since: Micros | None, until: Micros | None, disorder: Micros = RUNS.disorder
    ) -> None:
        """Begin with all rows, from number *first* to *last*."""
        self._since = None if since is None else since - disorder
        self._until = None if until is None else until + disorder
        self._start = (first, last if since is not None else first)
        self._end = (first if until is not None else last, last)

    @property
    def first(self) -> int:
        """The smallest number to read."""
        return self._start[0]

    @property
    def last(self) -> int:
        """The largest number to read."""
        return self._end[1]

    def points(self) -> list[int]:
        """Return the numbers to look at next; none if the bounds are close enough."""
        return [*_points(self._start), *_points(self._end)]

    def learn(self, times: Mapping[int, Any]) -> None:
        """Move the bounds. *times* has the time of the first row from each number on, or None if there is none.

        A time that cannot be read moves no bound too far: to read too many rows does no harm.
        """
        since, until = self._since, self._until
        starts, ends = _points(self._start), _points(self._end)
        if since is not None and starts:
            late = [point for point in starts if not is_moment(at := times[point]) or at >= since]
            self._start = _between(self._start, starts, late[0] if late else None)
        if until is not None and ends:
            early = [point for point in ends if (at := times[point]) is not None and (not is_moment(at) or at <= until)]
            following = [point for point in ends if not early or point > early[-1]]
            self._end = _between(self._end, ends, following[0] if following else None)


def _points(bounds: tuple[int, int]) -> list[int]:
    """Return numbers between *bounds*, evenly spaced."""
    low, high = bounds
    if high - low <= NARROW:
        return []
    return [low + (high - low) * number // (POINTS + 1) for number in range(1, POINTS + 1)]


def _between(bounds: tuple[int, int], points: Sequence[int], upper: int | None) -> tuple[int, int]:
    """Return the bounds between *upper*, one of *points*, and the point before it. None is the upper bound itself."""
    if upper is None:
        return points[-1], bounds[1]
    place = points.index(upper)
    return (points[place - 1] if place else bounds[0]), upper
