"""The starts of groups that have a rate: count them, move them, and tell when the next one is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.rates import LONGEST, SLACK, Counted, Rate, Rates, Settlement, free_at
from scheduler_async.stores.memory.base import WorkBase
from scheduler_async.timekeeping.instants import Micros


class RateWork(WorkBase):
    """Steps of claims, and the transactions of starts. For their purpose, see `Store`."""

    def __init__(self) -> None:
        super().__init__()
        # How many starts cease to count at a time, by the key of their rate and by whether their handlers have begun.
        self._starts: dict[tuple[str, bool], Counter[Micros]] = {}

    def _live(self, key: tuple[str, bool], now: Micros) -> Iterator[Counted]:
        """Iterate over the starts that count now, in the order of their times."""
        for until, starts in sorted(self._starts.get(key, {}).items()):
            if now < until <= now + LONGEST and starts > 0:
                yield Counted(until, starts, is_settled=key[1])

    def _live_starts(self, now: Micros) -> Counter[str]:
        """Return how many starts count now, by the key of their rate."""
        live: Counter[str] = Counter()
        for key in self._starts:
            live[key[0]] += sum(counted.starts for counted in self._live(key, now))
        return +live

    def _count(self, starts: Iterable[tuple[tuple[str, bool], Micros, int]]) -> None:
        for key, until, count in starts:
            self._starts.setdefault(key, Counter())[until] += count

    def _count_starts(self, runs: Sequence[ClaimedRun], rates: Rates, now: Micros) -> Counter[tuple[str, Micros]]:
        """Count the starts of claimed *runs* whose groups have a rate. Forget those that no longer count."""
        if not rates:
            return Counter()
        counted = rates.starts((group_key(run.job.namespace, run.job.group), run.claimed_at) for run in runs)
        if counted:
            for key, starts in [*self._starts.items()]:
                self._starts[key] = Counter({at: count for at, count in starts.items() if now < at <= now + LONGEST})
                if not self._starts[key]:
                    del self._starts[key]
            self._count(((key, False), until, count) for (key, until), count in counted.items())
        return counted

    def _next_start(self, started: Mapping[str, int], rates: Rates, now: Micros) -> Micros | None:
        """Return when the first of the rates that are reached allows another start, or None if none is reached."""
        moments = []
        for key, rate in rates.exhausted(started).items():
            at = self._free_at(key, rate.excess(started[key]), now)
            moments.append(at if at <= rate.until(now) else self._follow_the_clock(key, rate, now))
        return min(moments, default=None)

    def _free_at(self, key: str, excess: int, now: Micros) -> Micros:
        return free_at(excess, self._live((key, True), now), [*self._live((key, False), now)], now)

    def _follow_the_clock(self, key: str, rate: Rate, now: Micros) -> Micros:
        """Count the starts of the future as of *now*: they began before the clock was set back."""
        until, moved = rate.until(now), 0
        for settled in (True, False):
            starts = self._starts.get((key, settled), Counter())
            for at in [at for at in starts if at > until + SLACK]:
                moved += starts.pop(at)
        self._count([((key, True), until, moved)])
        return until

    def rate_free_at(self, key: str, rate: Rate, now: Micros) -> Micros:
        return self._free_at(key, rate.excess(self._live_starts(now)[key]), now)

    def settle_starts(self, settled: Mapping[Settlement, int]) -> None:
        for one, count in settled.items():
            unsettled = self._starts.get((one.key, False))
            if unsettled is not None and one.counted in unsettled:
                unsettled[one.counted] -= count
        self._count(((one.key, True), one.until, count) for one, count in settled.items() if one.until is not None)
