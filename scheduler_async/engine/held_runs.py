"""Runs that are claimed and have not started: their time has not come, or other runs go first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain

from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import SECOND, Micros

# When many runs are due at once, so many start, then other tasks have a turn, then the next ones start.
SLICE = 128


class Waiting:
    """Starts runs when they are due, in the order in which they were claimed, and never early."""

    def __init__(
        self, clock: Clock, start: Callable[[list[ActiveRun]], object], put_back: Callable[[ActiveRun], object]
    ) -> None:
        """*start* is called with runs that are due, *put_back* with a run that is far from due after a clock change."""
        self._clock, self._start, self._put_back = clock, start, put_back
        self._early: dict[Micros, list[ActiveRun]] = {}
        self._due: deque[ActiveRun] = deque()
        self._after_start: Callable[[], object] = int

    def on_start(self, listener: Callable[[], object]) -> None:
        """Call *listener* after runs have started."""
        self._after_start = listener

    def __len__(self) -> int:
        return sum(map(len, self._early.values())) + len(self._due)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter([*chain(self._due, *self._early.values())])

    @property
    def first_at(self) -> Micros | None:
        """Return when the next run starts. None if there is none that is not due yet."""
        return min(self._early, default=None)

    @property
    def due(self) -> int:
        """Return how many due runs are yet to start: runs that are claimed now go after them."""
        return len(self._due)

    def add(self, active: ActiveRun) -> None:
        """Start a run when it is due, or after the runs that are already due."""
        moment = active.claimed.claimed_at
        if moment in self._early:
            self._early[moment].append(active)
        else:
            self._early[moment] = [active]
            self._wait_for(moment)

    def queue(self, active: ActiveRun) -> None:
        """Start a run that is due when other tasks have had a turn, after the runs that are due already."""
        if not self._due:
            self._clock.call_later(0.0, self._serve)
        self._due.append(active)

    def discard(self, runs: Collection[ActiveRun]) -> None:
        """Do not start these runs."""
        gone = set(runs)
        self._due = deque(active for active in self._due if active not in gone)
        for moment in {active.claimed.claimed_at for active in runs} & self._early.keys():
            self._early[moment] = [active for active in self._early[moment] if active not in gone]

    def catch_up(self) -> None:
        """After a jump of the clock, start what is due by now without waiting for timers."""
        now = self._clock.micros()
        for moment in sorted(moment for moment in self._early if moment <= now):
            self._wait_for(moment)

    def _wait_for(self, moment: Micros) -> None:
        if moment not in self._early:  # its runs have started
            return
        now = self._clock.micros()
        if now < moment <= now + EARLIEST_CLAIM:  # timers may fire a little early, too
            self._clock.call_later((moment - now) / SECOND, partial(self._wait_for, moment))
            return
        runs = self._early.pop(moment)
        if moment > now:
            for active in runs:
                self._put_back(active)
            return
        is_served = bool(self._due)
        self._due.extend(runs)
        if not is_served:
            self._serve()

    def _serve(self) -> None:
        if not self._due:  # they were discarded
            return
        self._start([self._due.popleft() for _ in range(min(SLICE, len(self._due)))])
        if self._due:
            self._clock.call_later(0.0, self._serve)
        self._after_start()
