"""The line of jobs that are due and wait for a slot: who goes first, without sorting them all for each one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from scheduler_async.rules.groups import Rooms
from scheduler_async.timekeeping.instants import Micros

Place = tuple[int, Micros, str, int]
"""Where a job stands, lower goes first: the rank of its priority, when it last ran (-1 is never: longest ago), its id,
and its number. A bare tuple, which the garbage collector lets be: many may stand in line."""


class Line:
    """Places by the keys of their groups. A group that is full does not hold up those behind it."""

    def __init__(self) -> None:
        self._groups: dict[str, list[Place]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def add(self, group: str, place: Place) -> None:
        """Let one more stand in line."""
        heappush(self._groups.setdefault(group, []), place)

    def extend(self, places: Iterable[tuple[str, Place]]) -> None:
        """Let many more stand in line."""
        groups = self._groups
        grown = set()
        for group, place in places:
            groups.setdefault(group, []).append(place)
            grown.add(group)
        for group in grown:
            heapify(groups[group])

    def take(self, count: int, rooms: Rooms) -> list[tuple[str, Place]]:
        """Take the first *count* of the line, no more of each group than *rooms* have, and take their rooms."""
        heads = [(places[0], group) for group, places in self._groups.items() if rooms.of(group) > 0]
        heapify(heads)
        taken: list[tuple[str, Place]] = []
        while heads and len(taken) < count:
            place, group = heads[0]
            if rooms.of(group) <= 0:  # others took what groups of this name share
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
