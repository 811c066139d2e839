"""One pass without the loop: claim what is due, wait until it has run, and count how it went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import BackfillNotFoundError
from scheduler_async.jobs.answers import PassSummary
from scheduler_async.jobs.backfill import Backfill, BackfillState
from scheduler_async.jobs.enums import Outcome
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.stores.messages import Claims
from scheduler_async.timekeeping.instants import Micros

# How often to look at a backfill whose last runs go on in other processes.
LOOK_AGAIN = 0.2  # seconds


class SinglePass:
    """How does one pass go?"""

    def __init__(self, engine: Engine, moment: Micros) -> None:
        """*moment* decides which jobs are due."""
        self._engine, self._moment = engine, moment
        self._runner = engine.session.runner
        self._most = engine.setting.limits.max_concurrent or 1
        self._following: set[asyncio.Task[None]] = set()
        self._tally = Tally()
        self._runs_requested = True  # there may be runs that callers have asked for
        self._has_backfilled = False

    async def run(self) -> PassSummary:
        """Run what is due, `max_concurrent` jobs at a time or one after another, until nothing is left.

        Then run as many occurrences of backfills as may go on at once.
        """
        with self._engine.session.clock_watch.passing(self._moment):
            return await self._run()

    async def _run(self) -> PassSummary:
        session = self._engine.session
        session.agenda.pause_ends_at = 0  # another process may have paused a job since the last pass
        await session.claimer.end_pauses(self._moment)
        decided = 0
        while True:
            if not session.deciding.is_busy:
                decided = session.deciding.begun  # what follows takes them into account
            is_done = await self._fill_slots()
            if not is_done:
                continue
            if not self._following and not self._has_backfilled and not self._runner.stopping.is_set():
                self._has_backfilled = True
                await self._follow_backfills()
            if not self._following and decided == session.deciding.begun:
                return self._tally.summary()
            if not self._following:
                await session.deciding.finish()
                session.agenda.pause_ends_at = 0
                await session.claimer.end_pauses(self._moment)
                continue
            _, self._following = await asyncio.wait(self._following, return_when=asyncio.FIRST_COMPLETED)

    async def _fill_slots(self) -> bool:
        """Start what there is a free slot for. Return False if a claim left some out, so that there may be more."""
        room = self._most - len(self._following)
        if room <= 0 or self._runner.stopping.is_set():
            return True
        started, claims = await self._engine.session.membership.as_node(partial(self._claim, room))
        self._follow(started)
        self._tally.count_skipped(started, claims)
        if claims.is_full or len(started) >= room or not self._runs_requested:
            return not claims.is_full or len(started) >= room
        room -= len(started)
        requested = await self._engine.session.membership.as_node(partial(self._claim_requested, room))
        self._runs_requested = len(requested) >= room
        self._follow(requested)
        return True

    async def work_off(self, number: int, tell: Callable[[Backfill], object]) -> Backfill:
        """Run what is due for backfills until the one with this *number* has ended, and *tell* how far it is.

        Other schedulers on the store may take part.
        """
        setting = self._engine.setting
        while True:
            if len(self._following) < self._most and not self._runner.stopping.is_set():
                await self._follow_backfills()
            backfill = await self._engine.ask_unless_stopped(setting.store.get_backfill(number))
            if backfill is None:
                raise BackfillNotFoundError(number)
            tell(backfill)
            if backfill.state is not BackfillState.RUNNING or self._runner.stopping.is_set():
                return backfill
            if self._following:
                _, self._following = await asyncio.wait(self._following, return_when=asyncio.FIRST_COMPLETED)
            else:  # another process has the rest of it
                await setting.machine.wait(asyncio.Event(), LOOK_AGAIN)

    async def _follow_backfills(self) -> None:
        """Start runs of backfills in the free slots."""
        room = self._most - len(self._following)
        claim = partial(self._engine.session.claimer.claim_backfills, self._engine.setting.clock.micros(), room)
        self._follow(await self._engine.session.membership.as_node(claim))

    def _follow(self, started: Sequence[ActiveRun]) -> None:
        for active in started:
            name = f"pass {active.claimed.job.key}"
            self._following.add(asyncio.create_task(self._tally.follow(active), name=name))

    async def _claim_requested(self, limit: int) -> list[ActiveRun]:
        if self._runner.stopping.is_set() or self._engine.session.runner is not self._runner:
            return []
        return await self._engine.session.claimer.claim_requested(self._engine.setting.clock.micros(), limit)

    async def _claim(self, limit: int) -> tuple[list[ActiveRun], Claims]:
        """Claim what is due, but only in the session in which the pass began.

        `stop` may have ended that session while the pass waited, and another call may have begun a new one.
        """
        if self._runner.stopping.is_set() or self._engine.session.runner is not self._runner:
            return [], Claims()
        return await self._engine.session.claimer.claim(self._moment, limit)


class Tally(Struct):
    """The counts of a pass, as it goes."""

    executed: int = 0
    succeeded: int = 0
    failed: int = 0
    retry_queued: int = 0
    skipped: int = 0
    cancelled: int = 0

    async def follow(self, active: ActiveRun) -> None:
        """Wait until a run is recorded, and count it."""
        await active.over()
        if active.outcome is None:
            return
        self.executed += 1
        if active.outcome.is_failure:
            self.failed += 1
            self.retry_queued += _is_tried_again(active)
        elif active.outcome in (Outcome.SUCCESS, Outcome.NOOP):
            self.succeeded += 1
        elif active.outcome is Outcome.CANCELLED:
            self.cancelled += 1
        else:
            self.skipped += 1

    def count_skipped(self, started: list[ActiveRun], claims: Claims) -> None:
        """Count the jobs whose occurrences were skipped, and that did not start."""
        ran = {active.claimed.uid for active in started}
        self.skipped += sum(bool(edit.skips) for edit in claims.edits if edit.job.uid not in ran)

    def summary(self) -> PassSummary:
        """Return the counts so far."""
        return PassSummary(**asdict(self))


def _is_tried_again(active: ActiveRun) -> bool:
    after = active.after
    return after is not None and after.job.state.retry_of is not None and after.job.enabled
