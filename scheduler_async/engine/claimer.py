"""Claims due jobs, or one job by hand; gives claims back; and settles claims whose answer was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager, suppress

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.launcher import Launcher
from scheduler_async.engine.lookahead import Lookahead
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.rated_starts import RatedStarts
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.shared_lock import SharedLock
from scheduler_async.errors import JobNotFoundError, SchedulerError, SchedulerStoppingError, quoted
from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.history import current_actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.running.active_run import ENDED, ActiveRun
from scheduler_async.shielding import carried_through
from scheduler_async.stores.decided import Undecided
from scheduler_async.stores.messages import Claims, ClaimTerms
from scheduler_async.timekeeping.instants import SECOND, Micros

# Without `max_concurrent`, a claim takes this many jobs: the first ones start before the last are claimed.
CHUNK = 256
# So many jobs whose pause ends by itself are resumed at once.
MOST_RESUMED = 256


class Claimer:
    """Which runs does this node take from the store?"""

    def __init__(
        self,
        setting: Setting,
        lock: SharedLock,
        node: OwnNode,
        agenda: Agenda,
        announcer: Announcer,
        clock_watch: ClockWatch,
        launcher: Launcher,
        ended: EndedRuns,
        rated: RatedStarts,
        deciding: Deciding,
    ) -> None:
        """*lock* is held during a claim, and by everything that must not happen during one."""
        self._setting, self._lock, self._node = setting, lock, node
        self._putting_back = asyncio.Lock()
        self._agenda, self._announcer, self._clock_watch = agenda, announcer, clock_watch
        self._launcher, self._runner, self._ended, self._rated = launcher, launcher.runner, ended, rated
        self._deciding = deciding
        self.lookahead = Lookahead(setting.limits, agenda, launcher.waiting)
        launcher.waiting.on_start(self._look_while_awake)
        self.claimed_at = float("-inf")
        """When a run was last claimed, on the monotonic clock."""

    # ============================================================ due jobs

    async def claim(self, now: Micros, limit: int, ahead: Micros = 0) -> tuple[list[ActiveRun], Claims]:
        """Claim up to *limit* jobs that are due now or within *ahead*, and start each run when it is due.

        A scheduler that is stopping claims nothing.
        """
        try:
            return await carried_through(self._claim(now, limit, ahead))
        except SchedulerStoppingError:
            return [], Claims()

    async def _claim(self, now: Micros, limit: int, ahead: Micros) -> tuple[list[ActiveRun], Claims]:
        agenda, clock = self._agenda, self._setting.clock
        async with self._claiming(now):
            agenda.begin_claim()
            counted_all = agenda.next.is_crowd
            begun = clock.monotonic()
            with clock.working():  # `claim` shields it already
                terms = self.terms(limit, ahead, self.lookahead.count)
                claims = await self._setting.store.claim_due(now, terms)
            elapsed = clock.monotonic()
            self.lookahead.claim_ahead.learn(elapsed - begun, len(claims.runs))
            self._node.check_trust()  # the process may have been suspended since
            if claims.runs:
                self.claimed_at = elapsed
            started = self._begin(claims.runs, now)
        agenda.end_claim(claims, counted_all=counted_all)
        self._deciding.begin()
        for edit in claims.edits:
            self._announcer.edited(edit, now)
        agenda.learn_of(edit.job for edit in claims.edits)
        for job in claims.unhandled:
            self._announcer.handler_missing(job)
        if claims.overlaps:
            agenda.cancels_requested.set()
        return started, claims

    def _begin(self, runs: Sequence[ClaimedRun], now: Micros) -> list[ActiveRun]:
        started = self._launcher.begin(runs, now)
        self._rated.expect(started)
        return started

    def _look_while_awake(self) -> None:
        """Claim the next jobs when runs have started, if the loop would wake up for them alone a moment later."""
        if self._agenda.is_hungry or self.lookahead.is_time_to_look(self._setting.clock.micros()):
            self._agenda.is_about_to_claim = True
            self._agenda.changed.set()

    async def end_pauses(self, now: Micros) -> None:
        """Resume jobs whose pause ends by itself, and may be due at once. A scheduler that is stopping resumes none."""
        agenda, setting = self._agenda, self._setting
        while agenda.pause_ends_at is not None and agenda.pause_ends_at <= now:
            known, agenda.pause_ends_at = agenda.pause_ends_at, None
            try:
                async with self._claiming(now):  # the store stays open
                    resumed, next_end = await setting.ask(setting.store.resume_paused(now, MOST_RESUMED))
            except SchedulerStoppingError:
                return
            except BaseException:
                agenda.pause_ends_at = known
                raise
            self._deciding.begin()
            for edit in resumed:
                self._announcer.edited(edit, now)
            agenda.learn_of(edit.job for edit in resumed)
            agenda.may_backfill = True
            agenda.learn_of_pause(next_end)

    def terms(self, limit: int, ahead: Micros = 0, count: int = 1) -> ClaimTerms:
        """Return what the store must know to claim for this node, or to tell what it could claim."""
        setting, limits = self._setting, self._setting.limits
        return ClaimTerms(
            node=self._node.id or 0,
            limit=limit,
            ahead=ahead,
            count=count,
            slots=self._free_slots(),
            handlers=setting.handlers.names,
            group_limit=limits.group_limit,
            group_limits=limits.group_limits,
            group_rates=limits.group_rates,
            rules=setting.rules,
        )

    def room(self) -> int:
        """Return how many more runs may be claimed: the free slots, and the room in the queue."""
        limits = self._setting.limits
        if limits.max_concurrent is None:
            return CHUNK if self._launcher.waiting.due < CHUNK else 0
        # A run that waits in the queue would count as started for its rate, and begin at another time.
        queue_size = 0 if limits.group_rates else limits.queue_size or 0
        return max(limits.max_concurrent + queue_size - len(self._runner), 0)

    def _free_slots(self) -> int | None:
        limit = self._setting.limits.max_concurrent
        return None if limit is None else max(limit - len(self._runner), 0)

    @asynccontextmanager
    async def _claiming(self, now: Micros, *, shares: bool = False) -> AsyncIterator[int]:
        """Make one claim at a time, or several that share the lock.

        If one fails, the next that is alone settles what the store may have claimed all the same.
        """
        async with self._lock.shared() if shares else self._lock:
            if not self._node.has_joined or self._runner.stopping.is_set():
                raise SchedulerStoppingError
            if not shares:
                await self.settle(now)
            node = self._node.required_id()
            try:
                yield node
            except BaseException:
                self._agenda.is_unsure = True  # the store may have made the claim, and only the answer was lost
                raise

    async def settle(self, now: Micros) -> None:
        """Interrupt the runs that this node has claimed without knowing. Call it under the lock."""
        if self._agenda.is_unsure and self._node.id is not None:
            setting, known = self._setting, {active.claimed.id for active in self._runner} | self._ended.refused
            lost = await setting.ask(setting.store.interrupt_unknown(self._node.id, known, now, setting.rules))
            self._agenda.is_unsure = bool(self._deciding.begin())  # some are settled later
            self._announcer.interrupted(lost, now)
            self._agenda.learn_of_changes(edit for edit, _ in lost)
            self._agenda.runs_requested = True  # one that was asked for is repeated

    async def settle_now(self) -> None:
        """Settle what this node may have claimed without knowing, if no loop runs: the next claim may be far away."""
        with suppress(SchedulerStoppingError):
            async with self._claiming(self._setting.clock.micros()):
                pass

    # ============================================================ runs by hand

    async def claim_requested(self, now: Micros, limit: int) -> list[ActiveRun]:
        """Start up to *limit* runs that callers of any process have asked for. A stopping scheduler starts none."""
        try:
            return await carried_through(self._claim_requested(now, limit))
        except SchedulerStoppingError:
            return []

    async def _claim_requested(self, now: Micros, limit: int) -> list[ActiveRun]:
        agenda, setting = self._agenda, self._setting
        agenda.runs_requested = False  # first: a request that comes meanwhile sets it again
        try:
            async with self._claiming(now):
                with setting.clock.working():
                    runs, agenda.requests_wait = await setting.store.claim_requested(now, self.terms(limit))
                self._node.check_trust()
                return self._begin(runs, now)
        except BaseException:
            agenda.runs_requested = True
            raise

    async def claim_backfills(self, now: Micros, limit: int) -> list[ActiveRun]:
        """Start up to *limit* runs of backfills. A stopping scheduler starts none."""
        try:
            return await carried_through(self._claim_backfills(now, limit))
        except SchedulerStoppingError:
            return []

    async def _claim_backfills(self, now: Micros, limit: int) -> list[ActiveRun]:
        agenda, setting = self._agenda, self._setting
        agenda.may_backfill = False  # first: what comes meanwhile sets it again
        try:
            async with self._claiming(now):
                with setting.clock.working():
                    answer = await setting.store.claim_backfills(now, self.terms(limit))
                    runs, agenda.backfills_wait_until = answer
                self._node.check_trust()
                agenda.may_backfill = agenda.may_backfill or len(runs) >= limit
                return self._begin(runs, now)
        except BaseException:
            agenda.may_backfill = True
            raise

    async def claim_one(self, namespace: str, id: str, payload_json: str | None) -> ActiveRun | None:
        """Run one job now, whatever its schedule, and return when it has begun; None if it is already running."""
        setting, now = self._setting, self._setting.clock.micros()
        # With a limit, each call must know how many slots the one before it has left.
        shares = setting.limits.max_concurrent is None and not self._agenda.is_unsure
        async with self._claiming(now, shares=shares) as node:
            await self.put_back({(namespace, id)})  # its regular run is claimed again later
            queued = self._free_slots() == 0
            rates = setting.limits.group_rates
            question = setting.store.claim_one(
                namespace, id, payload_json, now, node=node, queued=queued, by=current_actor(), rates=rates
            )
            # Together: if the caller is cancelled in between, the job would count as running without a handler.
            claimed, active = await carried_through(self._begin_one(question, now))
        if claimed is None:
            raise JobNotFoundError(id, namespace)
        if active is not None and not queued:
            await active.begun_or_over()
            if not active.has_begun and not self._runner.stopping.is_set():
                raise SchedulerError(f"Job {quoted(id)} cannot run here: its handler was removed meanwhile.")
            if not active.has_begun:
                raise SchedulerStoppingError
        return active

    async def _begin_one(
        self, question: Awaitable[ClaimedRun | Job | None], now: Micros
    ) -> tuple[ClaimedRun | Job | None, ActiveRun | None]:
        claimed = await self._setting.ask(question)
        return claimed, self._begin([claimed], now)[0] if isinstance(claimed, ClaimedRun) else None

    async def begun_elsewhere(self, job: Job) -> None:
        """If another process has claimed *job* ahead of its time, wait until that run begins."""
        state, clock = job.state, self._setting.clock
        if job.status is Status.RUNNING and state.last_run_at is not None:
            early = state.last_run_at - clock.micros()
            is_elsewhere = not any(active.claimed.uid == job.uid for active in self._runner)
            if is_elsewhere and 0 < early <= EARLIEST_CLAIM:
                await clock.wait(asyncio.Event(), early / SECOND)

    # ============================================================ giving back

    async def put_back(self, names: Collection[tuple[str, str]]) -> None:
        """Undo the claims of these jobs that were made ahead of time. Call it under the lock."""
        async with self._putting_back:  # when it returns, what other calls put back is on record too
            await self._put_back(names)

    async def _put_back(self, names: Collection[tuple[str, str]]) -> None:
        waiting = self._launcher.waiting
        runs = [active for active in waiting if active.is_held and active.claimed.name in names]
        if not runs:
            return
        waiting.discard(runs)
        for active in runs:
            active.step(ENDED)
        try:
            await self.release([active.claimed for active in runs])
        except BaseException as error:
            for active in runs:
                self._ended.add(active, None)  # the recorder tries again
            if isinstance(error, Undecided):
                return
            raise
        for active in runs:
            self._runner.forget(active)
        self._setting.progress.trigger_count -= len(runs)
        self._agenda.look_again()

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Give *runs* that have not begun back to the store: their jobs are due as before."""
        await self._setting.ask(self._setting.store.release(runs))
        # If such a claim would not be made now, the clock has gone back since.
        self._clock_watch.heed(max(run.claimed_at for run in runs) - EARLIEST_CLAIM)
