"""The queue of due jobs that wait for a slot. It returns the first jobs without sorting all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from scheduler_async.rules.groups import Rooms
from scheduler_async.timekeeping.instants import Micros

Place = tuple[int, Micros, str, int]
"""The position of a job; lower starts first: the rank of its priority, the time of its last run (-1 for never), its id,
and its number. The garbage collector does not track a plain tuple of such values, and the queue may be long."""


class ReadyQueue:
    """Places by group key. A full group does not block the jobs behind it."""

    def __init__(self) -> None:
        self._groups: dict[str, list[Place]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, group: str, place: Place) -> None:
        """Add one place."""
        heappush(self._groups.setdefault(group, []), place)

    def extend(self, places: Iterable[tuple[str, Place]]) -> None:
        """Add many places."""
        groups = self._groups
        grown = set()
        for group, place in places:
            groups.setdefault(group, []).append(place)
            grown.add(group)
        for group in grown:
            heapify(groups[group])

    def take(self, count: int, rooms: Rooms) -> list[tuple[str, Place]]:
        """Remove and return the first *count* places that *rooms* allow, and take their slots."""
        heads = [(places[0], group) for group, places in self._groups.items() if rooms.of(group) > 0]
        heapify(heads)
        taken: list[tuple[str, Place]] = []
        while heads and len(taken) < count:
            place, group = heads[0]
            if rooms.of(group) <= 0:  # other groups of this name took the shared slots
                heappop(heads)
                continue
            places = self._groups[group]
            heappop(places)
            taken.append((group, place))
            rooms.take(group)
            if places:
                heapreplace(heads, (places[0], group))
            else:
                heappop(heads)
                del self._groups[group]
        return taken
