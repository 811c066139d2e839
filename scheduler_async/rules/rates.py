"""Rates of groups: at most so many starts in any period, in all processes together. Pure.

A start counts from the moment at which its handler began until one period later: the windows are half-open. Its claim
counts it in the same transaction, when the handler has not begun. Until it has, the start is unsettled: it counts for
longer by `SLACK`, so that no other start can take its place too early. `engine/rated_starts.py` settles it with the
time at which the handler began, usually within milliseconds. So a rate holds for the times at which handlers begin, and
not only for those of the claims.

A store keeps the starts of groups that have a rate, by the key of the rate and by when they cease to count
(`stores/*/rates.py`). `Rooms` says how many more a group allows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from msgspec import Struct

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.rules.groups import EVERYWHERE, name_in
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros

_PERIODS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_PATTERN = re.compile(r"(?P<count>\d{1,9})\s*/\s*(?P<unit>[smhd])", re.ASCII | re.IGNORECASE)

# Of a rate with many starts, those that are close together cease to count together, at the end of a grain. Otherwise,
# processes would claim these jobs one by one. With even more starts, the grain is larger, so that a store has at most
# MOST_ROWS rows for a rate.
MANY = 200
GRAIN: Micros = SECOND // 200
MOST_ROWS = 4096

# A stored count beyond this is damaged, and is ignored.
MOST_STARTS = 10**9

# How much longer an unsettled start counts. A claim takes less time, and so do the handlers that begin before this one.
SLACK: Micros = 10 * SECOND

# While an unsettled start may cease to count at any moment, a claim looks again after this time.
SOON: Micros = SECOND // 20

# No start counts for longer, unless the clock was set back by days.
LONGEST: Micros = 2 * DAY


class Rate(Struct, frozen=True, gc=False):
    """At most *count* starts in any *period*."""

    count: int
    period: Micros

    def until(self, at: Micros) -> Micros:
        """Return when a start *at* a time ceases to count."""
        end = at + self.period
        return end if self.count < MANY else -(-end // self._grain) * self._grain

    def excess(self, started: int) -> int:
        """Return how many of the starts that count must cease to before another is allowed."""
        return max(started - (self.count - 1), 0)

    @property
    def _grain(self) -> Micros:
        return GRAIN if self.count <= MOST_ROWS else max(self.period // MOST_ROWS, GRAIN)


def parse_rate(rate: object, key: str) -> Rate:
    """Return the rate that a string such as "100/m" describes. *key* is its key in `group_rates`."""
    found = _PATTERN.fullmatch(rate.strip()) if isinstance(rate, str) else None
    if found is None:
        problem = f'must be a number of starts and a unit, such as "100/m", not {quoted(rate)}'
    elif not int(found["count"]):
        problem = f"must allow at least one start, not {quoted(rate)}. To stop a group, pause its jobs"
    else:
        return Rate(int(found["count"]), _PERIODS[found["unit"].lower()])
    raise InvalidJobError(
        f"group_rates[{quoted(key)}] {problem}. The units are s, m, h and d: second, minute, hour and day.",
        "group_rates",
    )


class Settlement(NamedTuple):
    """When the handler of a start has begun that a claim has counted."""

    key: str
    counted: Micros
    """When the unsettled start would cease to count."""
    until: Micros | None
    """When it ceases to count; None if its handler will never begin, so that it does not count at all."""


class Counted(NamedTuple):
    """Starts that count for a rate."""

    until: Micros
    """When they cease to count."""
    starts: int
    is_settled: bool = True

    def expected(self, now: Micros) -> Micros:
        """Return when they are expected to cease to count, as soon as their handlers have begun."""
        return self.until if self.is_settled else min(max(self.until - SLACK, now + SOON), self.until)


class Rates:
    """The rates of a scheduler, by the name of the group; the key "*/name" is across all namespaces."""

    def __init__(self, rates: Mapping[str, Rate] | None = None) -> None:
        self._rates = dict(rates or {})
        self.counts = {key: rate.count for key, rate in self._rates.items()}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def of(self, group: str | None) -> list[tuple[str, Rate]]:
        """Return the rates of a group, given by its key, each with the key under which its starts are counted."""
        if group is None or not self._rates:
            return []
        name = name_in(group)
        own, shared = self._rates.get(name), self._rates.get(EVERYWHERE + name)
        found = [] if own is None else [(group, own)]
        return found if shared is None else [*found, (EVERYWHERE + name, shared)]

    def rate(self, key: str) -> Rate | None:
        """Return the rate whose starts are counted under *key*."""
        return self._rates.get(key if key.startswith(EVERYWHERE) else name_in(key))

    def starts(self, claimed: Iterable[tuple[str | None, Micros]]) -> Counter[tuple[str, Micros]]:
        """Return how many starts to count, by key and by when they cease to. *claimed* are groups and times."""
        return Counter((key, rate.until(at) + SLACK) for group, at in claimed for key, rate in self.of(group))

    def settlements(self, group: str | None, claimed_at: Micros, began_at: Micros | None) -> list[Settlement]:
        """Return how to settle a start that was claimed at one time and began at another, or never."""
        return [
            Settlement(key, rate.until(claimed_at) + SLACK, None if began_at is None else rate.until(began_at))
            for key, rate in self.of(group)
        ]

    def exhausted(self, started: Mapping[str, int]) -> dict[str, Rate]:
        """Return the rates that allow no start now, by key. *started* are the starts that count, by key."""
        rates = {key: rate for key in started if (rate := self.rate(key)) is not None}
        return {key: rate for key, rate in rates.items() if rate.excess(started[key]) > 0}


NO_RATES = Rates()


def free_at(excess: int, settled: Iterable[Counted], unsettled: Sequence[Counted], now: Micros) -> Micros:
    """Return the first time from *now* on at which a rate allows a start: when *excess* starts have ceased to count.

    *settled* are in the order of their times.
    """
    at = now
    by_time = sorted(unsettled, key=lambda counted: counted.expected(now))
    for counted in merge(settled, by_time, key=lambda counted: counted.expected(now)) if excess else ():
        at = counted.expected(now)
        excess -= counted.starts
        if excess <= 0:
            break
    return at
