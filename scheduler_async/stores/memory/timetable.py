"""Numbers by time: the first ones are found at once, and each can be moved or taken out."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from scheduler_async.timekeeping.instants import Micros

# A heap keeps times that have no numbers any more until they come first, or until they are this many too many.
SLACK = 64


class Timetable:
    """Numbers, each at one time. To put, to move and to take out one of n costs O(log n)."""

    def __init__(self) -> None:
        self._times: dict[int, Micros] = {}
        self._numbers: dict[Micros, dict[int, None]] = {}
        self._heap: list[Micros] = []

    def __bool__(self) -> bool:
        return bool(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def put(self, number: int, at: Micros | None) -> None:
        """Put *number* at a time, wherever it was before. None takes it out."""
        before = self._times.get(number)
        if before == at:
            return
        if before is not None:
            self._remove(number, before)
        if at is None:
            return
        self._times[number] = at
        there = self._numbers.get(at)
        if there is None:
            self._numbers[at] = {number: None}
            heappush(self._heap, at)
        else:
            there[number] = None

    def _remove(self, number: int, at: Micros) -> None:
        del self._times[number]
        there = self._numbers[at]
        if len(there) > 1:
            del there[number]
            return
        del self._numbers[at]
        if len(self._heap) > 2 * len(self._numbers) + SLACK:
            self._heap = [*self._numbers]
            heapify(self._heap)

    @property
    def first(self) -> Micros | None:
        """The first time that has a number."""
        heap = self._heap
        while heap and heap[0] not in self._numbers:
            heappop(heap)
        return heap[0] if heap else None

    def first_after(self, time: Micros) -> Micros | None:
        """Return the first time after *time* that has a number."""
        first = self.first
        if first is None or first > time:
            return first
        return min((at for at in self._numbers if at > time), default=None)

    def numbers(self) -> list[int]:
        """Return all numbers."""
        return [*self._times]

    def at(self, time: Micros | None) -> list[int]:
        """Return the numbers at a *time*."""
        return [] if time is None else [*self._numbers.get(time, ())]

    def count_at(self, time: Micros | None) -> int:
        """Return how many numbers there are at a *time*."""
        return 0 if time is None else len(self._numbers.get(time, ()))

    def until(self, time: Micros) -> Iterator[int]:
        """Iterate over the numbers at times up to *time*, in any order. The heap leads to them alone."""
        heap, seen, places = self._heap, set[Micros](), [0]
        while places:
            place = places.pop()
            if place < len(heap) and (at := heap[place]) <= time:
                places += (2 * place + 1, 2 * place + 2)
                if at not in seen:
                    seen.add(at)
                    yield from self._numbers.get(at, ())

    def take(self, until: Micros, most: int | None = None) -> list[int]:
        """Take out and return the numbers at times up to *until*, the first ones first; at *most* so many."""
        taken: list[int] = []
        while (at := self.first) is not None and at <= until and (most is None or len(taken) < most):
            for number in islice([*self._numbers[at]], None if most is None else most - len(taken)):
                self._remove(number, at)
                taken.append(number)
        return taken
