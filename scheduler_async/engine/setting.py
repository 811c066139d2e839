"""What the parts of the engine share: the store, the clocks, the rules and the limits. It outlives the sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct, field

from scheduler_async.jobs.events import Events
from scheduler_async.outbox import Outbox
from scheduler_async.rules.rates import NO_RATES, Rates
from scheduler_async.rules.terms import Rules
from scheduler_async.running.handlers import Handlers
from scheduler_async.shielding import carried_through
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros

T = TypeVar("T")


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a scheduler."""

    max_concurrent: int | None = None
    queue_size: int | None = None
    group_limit: int | None = None
    group_limits: Mapping[str, int] = field(default_factory=dict)
    group_rates: Rates = NO_RATES
    stuck_after: timedelta | None = None
    max_sleep: timedelta | None = None
    keep_runs: int | None = None
    keep_removed: timedelta | None = None
    purge_disabled_after: timedelta | None = None
    purge_ended_after: timedelta | None = None

    @property
    def keep_ended(self) -> timedelta | None:
        """How long a job is kept after the end of its schedule. None means forever."""
        after = (self.purge_disabled_after, self.purge_ended_after)
        return min((limit for limit in after if limit is not None), default=None)

    @property
    def limits_groups(self) -> bool:
        """Return whether any group has a limit on how many of its jobs run at once."""
        return self.group_limit is not None or bool(self.group_limits)


class Progress(Struct):
    """The status and the counters that `Scheduler.state` shows. They outlive the sessions."""

    status: str = "stopped"
    started_at: Micros | None = None
    last_tick_at: Micros | None = None
    next_wake_at: Micros | None = None
    tick_count: int = 0
    trigger_count: int = 0


class Setting(Struct, frozen=True, kw_only=True):
    """What all parts of the engine use, and none of them replaces."""

    store: Store
    clock: Clock
    machine: Clock
    """Leases are about processes: they use real time, even if `clock` is virtual."""
    rules: Rules
    limits: Limits
    handlers: Handlers
    events: Events
    outbox: Outbox
    progress: Progress
    declared: set[tuple[str, str]] = field(default_factory=set)
    """The namespaces and ids of the jobs that are declared in code. Purged, they would come back and run again."""

    async def ask(self, question: Awaitable[T]) -> T:
        """Return the answer of the store; let a virtual clock wait for it.

        The work in the store goes on to its end even if the caller is cancelled.
        """
        with self.clock.working():
            return await carried_through(question)

    @contextmanager
    def expiry(self, seconds: float) -> Iterator[asyncio.Event]:
        """Yield an event that is set after *seconds* by `clock` or by `machine`: a virtual clock may stand still."""
        expired = asyncio.Event()
        timers = [clock.call_later(seconds, expired.set) for clock in (self.clock, self.machine)]
        try:
            yield expired
        finally:
            for timer in timers:
                timer.cancel()
