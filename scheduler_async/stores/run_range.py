"""Find the run ids of a stretch of time without an index on time. Pure: a store only looks up the times of some runs.

Run ids increase with time, except after the clock was set back. Each step looks at some runs between the bounds, and
moves the bounds towards the first and the last run of the stretch. The bounds may include other runs, so that a query
compares times, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler_async.timekeeping.instants import MINUTE, Micros

# So many runs are looked at in a step. If the clock was set back, more of them find more of the runs before that.
POINTS = 32

# A range of so many ids is read as it is.
NARROW = 64

# Runs that are claimed at the same time get their ids in any order, and runs may be claimed ahead of their time.
DISORDER: Micros = MINUTE


class RunRange:
    """The ids of the runs that were claimed from *since* to *until*. None is no bound."""

    def __init__(self, first: int, last: int, since: Micros | None, until: Micros | None) -> None:
        """Begin with all runs, from id *first* to id *last*."""
        self._since = None if since is None else since - DISORDER
        self._until = None if until is None else until + DISORDER
        self._start = (first, last if since is not None else first)
        self._end = (first if until is not None else last, last)

    @property
    def first(self) -> int:
        """The smallest id to read."""
        return self._start[0]

    @property
    def last(self) -> int:
        """The largest id to read."""
        return self._end[1]

    def points(self) -> list[int]:
        """Return the ids to look at next; none if the bounds are close enough."""
        return [*_points(self._start), *_points(self._end)]

    def learn(self, times: Mapping[int, Micros | None]) -> None:
        """Move the bounds. *times* has the time of the first run from each id on, or None if there is none."""
        since, until = self._since, self._until
        starts, ends = _points(self._start), _points(self._end)
        if since is not None and starts:
            late = [point for point in starts if (at := times[point]) is None or at >= since]
            self._start = _between(self._start, starts, late[0] if late else None)
        if until is not None and ends:
            early = [point for point in ends if (at := times[point]) is not None and at <= until]
            following = [point for point in ends if not early or point > early[-1]]
            self._end = _between(self._end, ends, following[0] if following else None)


def _points(bounds: tuple[int, int]) -> list[int]:
    """Return ids between *bounds*, evenly spaced."""
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
