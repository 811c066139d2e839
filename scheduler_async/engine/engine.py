"""The engine room: the loop, the runs it starts, the node it is, and the upkeep. What users call is in `scheduler`.

The loop is clear, look, wait. A pass claims what is due and starts it; runs end in their own time and are recorded in
groups; a watch shows other processes that this one lives. What happens to a job is decided in `lifecycle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from logging import ERROR, INFO, WARNING
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from scheduler_async.engine.health import Signs
from scheduler_async.engine.held_runs import Waiting
from scheduler_async.errors import (
    JobNotFoundError,
    SchedulerError,
    SchedulerShutdownError,
    SchedulerStoppingError,
    StoreError,
    StoreOutdatedError,
    quoted,
)
from scheduler_async.jobs.enums import ENDED, Outcome, SkipReason, Status, Trigger
from scheduler_async.jobs.events import MAX_UNREAD, Event, EventKind, Events
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Ending, RunRow
from scheduler_async.logs import is_heard, say
from scheduler_async.rules.claim_ahead import CROWD, EARLIEST_CLAIM, LONGEST_REACH, Expected, Foresight
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.rules.terms import Rules
from scheduler_async.running.handlers import Handlers
from scheduler_async.running.runner import ActiveRun, Runner
from scheduler_async.running.watchdog import Watchdog
from scheduler_async.shielding import carried_through
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.messages import (
    Aftermath,
    ClaimedRun,
    Claims,
    ClaimTerms,
    Edit,
    EndedRun,
    NodeIdentity,
    NodeLost,
    RunFilter,
    UnstorableError,
)
from scheduler_async.stores.nodes import BEAT, LEASE, MARGIN, Watch, new_identity, retire
from scheduler_async.stores.protocol import Store
from scheduler_async.stores.run_codec import row_of, row_of_skip
from scheduler_async.texts import message_of
from scheduler_async.timekeeping.clock import Clock, SystemClock
from scheduler_async.timekeeping.instants import SECOND, Micros, from_micros, span
from scheduler_async.timekeeping.wall_clock import GLANCE, JUMP, WallClock, describe_jump

# Without a limit of its own a pass claims this many at a time: the first start before the last are claimed.
CHUNK = 256

# Of a crowd, no more are claimed ahead: each takes memory, and time of the garbage collector, until it starts.
MOST_EARLY = 10_240

# However many runs end at once, no more are recorded together: to tell of them takes time on the event loop.
MOST_AT_ONCE = 500

# A gauge that says ten thousand says enough.
MOST_COUNTED = 10_000

# Of so many jobs that wait for a handler it is remembered that they were told of: far more than one claim names.
MOST_WARNED = 10_000

# Of so many jobs it is remembered how many rows they have got; beyond that, all of them are looked at.
MOST_GROWN = 100_000

# A wall clock that shows so little more than when it was last looked at shows nothing absurd.
MOMENT: Micros = SECOND // 1000

# While the loop runs, a retry waits at least this long: a job that fails at once must not keep others from running.
RETRY_FLOOR: Micros = SECOND

# How often another process's changes are looked for; a change must be noticed within two seconds.
POLL = 1.0  # seconds

# A store that fails is asked again after this long, and twice as long each time, up to the last.
FIRST_RETRY, LAST_RETRY = 0.5, 30.0  # seconds

# When the clock has gone back, this many jobs at a time are told.
REVIEW_SLICE = 500

# How often what is old is removed, of how many jobs at a time, and among how many they are looked for.
UPKEEP = 60.0  # seconds
LONGEST_UPKEEP_PAUSE = 86_400.0  # seconds; until then, no more runs than are kept need removing
UPKEEP_SLICE = 100
UPKEEP_LOOK = 2_000

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a scheduler allows itself."""

    max_concurrent: int | None = None
    queue_size: int | None = None
    group_limit: int | None = None
    group_limits: Mapping[str, int] = field(default_factory=dict)
    stuck_after: timedelta | None = None
    max_sleep: timedelta | None = None
    keep_runs: int | None = None
    keep_removed: timedelta | None = None
    purge_disabled_after: timedelta | None = None

    @property
    def limits_groups(self) -> bool:
        """Whether any group has a limit."""
        return self.group_limit is not None or bool(self.group_limits)


@dataclass(frozen=True, kw_only=True)
class _Checkup:
    """What the store has to say when it is asked how it is."""

    earliest_due: Micros | None = None
    problem: str | None = None


class Engine:
    """Runs what is due in a store, with the handlers it is given."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Rules,
        limits: Limits,
        prepare: Callable[[Micros], Awaitable[None]],
    ) -> None:
        """*prepare* does what comes before anything is run."""
        self.store, self.clock, self.rules, self.limits = store, clock, rules, limits
        self._rules_of_loop = replace(rules, retry_floor=RETRY_FLOOR)
        self._prepare = prepare
        self.handlers = Handlers(clock)
        self.events = Events()
        self.status = "stopped"
        self.started_at: Micros | None = None
        self.last_tick_at: Micros | None = None
        self.next_wake_at: Micros | None = None
        self.tick_count = 0
        self.trigger_count = 0
        self._machine = SystemClock()  # leases are about processes: they run on real time, whatever the clock shows
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._was_abandoned = False  # an event loop ended before the scheduler was stopped
        self._make_locks()
        self._is_open = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget_everything()

    def _make_locks(self) -> None:
        """Make the locks of one event loop. A task that holds one may wait for those below it, never for one above.

        They outlive the closing of the store: a call that waits for one meanwhile finds the same one afterwards.
        """
        self._lock = asyncio.Lock()  # opening, starting and stopping
        self._claim_lock = asyncio.Lock()  # claiming, and whatever must not happen during a claim
        self._rejoining = asyncio.Lock()
        self._recording = asyncio.Lock()

    def _forget_everything(self) -> None:
        """What is known only while the store is open."""
        self.runner = Runner(
            self.clock,
            max_concurrent=self.limits.max_concurrent,
            observers=self.events.observers,
            find=self.handlers.find,
            begin=self._begin_queued,
            ended=self._run_ended,
            dropped=self._run_dropped,
        )
        self.due = 0
        """How many jobs wait, whoever may run them, when that was last counted: only while somebody observes."""
        self.node: int | None = None
        self._identity: NodeIdentity | None = None
        self._watch = Watch()
        self._trusted_until = 0.0
        self._loop_task: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None
        self._services: list[asyncio.Task[None]] = []
        self._halt = asyncio.Event()
        self._works_again = asyncio.Event()
        self._ended: list[ActiveRun] = []  # and not yet recorded
        self._have_endings = asyncio.Event()
        self._untidy = asyncio.Event()
        self._stale = True
        self._hungry = False
        self._unsure = False
        self._next = Expected()
        self._counted: Micros | None = None  # the next moment, if all that are due then were counted
        self.foresight = Foresight()
        self._claimed_until: Micros = 0
        self._learned = Expected()  # since the last claim began
        self._waiting = Waiting(self.clock, self._start_waiting, self.runner.cancel)
        self._wall = WallClock()
        self._read_at: Micros = 0
        self._last_jump = ""
        self._went_back = False
        self._judged_by: int | None = None  # the run whose times were last compared with the clock
        self._troubles: dict[str, str] = {}  # by who has it
        self._outdated: str | None = None  # why nothing may be changed any more: a newer version upgraded the store
        self._warned: Cache[tuple[int, int], None] = Cache(MOST_WARNED)
        self._grown: dict[int, int] = {}
        # By the monotonic clock: when the loop last looked, and until when it means to look again.
        self._looked_at: float | None = None
        self._claimed_at = float("-inf")
        self._looks_again_by = float("inf")
        self._checkup: asyncio.Task[_Checkup] | None = None

    # ============================================================ opening and closing

    def _enter_event_loop(self) -> None:
        """A scheduler may be stopped in one event loop and used in the next, as tests and scripts do."""
        running = asyncio.get_running_loop()
        if self._event_loop is running:
            return
        if self._is_open and self._event_loop is not None and not self._event_loop.is_closed():
            raise SchedulerError("The scheduler is in use in another event loop. Stop it there first.")
        self._event_loop = running
        self._make_locks()
        self._changed = asyncio.Event()
        self._was_abandoned |= self._is_open
        self._is_open, self.status = False, "stopped"
        self.handlers.forget_event_loop()

    async def start(self) -> None:
        """Open the store, take up what was interrupted, and begin the loop."""
        self._enter_event_loop()
        async with self._lock:
            if self.status != "stopped":
                raise SchedulerError(f"The scheduler is {self.status} already. Start it once, or stop it first.")
            if self._is_open and self.runner.stopping.is_set():  # what it ran without the loop has not ended
                raise SchedulerStoppingError
            was_open = self._is_open
            try:
                await self._open()
                now = self.clock.micros()
                self._went_back |= await self._is_ahead_of_the_clock()  # before what dead nodes left behind is recorded
                await self._join()
                self._watchdog = Watchdog(lambda: len(self.runner) > 0, self._running_now, self._tell_of_block)
                self._wall.look(self.clock.micros(), self.clock.monotonic())  # a jump from now on is noticed
                self.status = "running"
                self.started_at, self.tick_count, self.trigger_count = now, 0, 0
                self._services.append(self._spawn(self._keep_house(), "upkeep"))
                self._loop_task = self._spawn(self._run_loop(), "loop")
            except BaseException:
                self.status = "stopped"
                if not was_open:
                    await carried_through(self._close())  # in a cancelled scope of anyio, nothing is waited for
                raise
        say(INFO, "Scheduler started on %s", self.store)
        self.tell(EventKind.STARTED, now)

    async def stop(self, wait: bool, timeout: float | None, cancel: bool) -> None:
        """Stop claiming, tell the runs, wait for them or cancel them, record how they ended, and sign off."""
        self._enter_event_loop()
        async with self._lock:
            await self._let_go_of_the_abandoned()
            if not self._is_open:
                return
            runner = self.runner  # it is forgotten should another stop() be done first, and the store opened again
            if self.status != "stopped":
                self.status = "stopping"
            runner.stopping.set()
            self._changed.set()
            if self._loop_task is not None:
                await asyncio.wait([self._loop_task])  # who cancels us does not cancel the pass in progress
        # Not under the lock: another stop() may be in more of a hurry.
        for active in runner:
            if cancel or not active.has_begun:
                runner.cancel(active)
        if self._writer is not None and self._writer.done():
            self._start_writer()  # somebody cancelled all tasks there were
        if wait:
            await self._wait_for_runs(runner, timeout)
            await self._shut(runner)
        else:
            self._spawn(self._shut_when_done(runner), "shutdown")

    async def _shut_when_done(self, runner: Runner) -> None:
        await self._until_idle(runner)
        await self._shut(runner)

    async def _shut(self, runner: Runner) -> None:
        """Close what *runner* belongs to, unless that is closed already: what was opened since then stays open."""
        async with self._lock:
            if not self._is_open or self.runner is not runner:
                return
            now = self.clock.micros()
            was_started = self.status != "stopped"
            try:
                await carried_through(self._close())
            finally:  # whatever the store says about it
                self.status = "stopped"
                self.started_at = self.next_wake_at = None
                if was_started:
                    say(INFO, "Scheduler stopped")
                    self.tell(EventKind.STOPPED, now)
                self.events.close()

    async def _wait_for_runs(self, runner: Runner, timeout: float | None) -> None:
        """Return when every ending is committed; `SchedulerShutdownError` if that takes longer."""
        if len(runner) or self._claim_lock.locked():
            waiting = asyncio.ensure_future(self._until_idle(runner))
            try:
                await self.clock.wait_for_end(waiting, timeout)
            finally:
                waiting.cancel()
            async with self._claim_lock:  # a claim under way outlasts any timeout, and may bring one more run
                pass
        if len(runner):
            raise SchedulerShutdownError(timeout, len(runner))

    async def _until_idle(self, runner: Runner) -> None:
        while len(runner) or (self.runner is runner and self._claim_lock.locked()):
            async with self._claim_lock:  # a claim under way is about to bring more
                pass
            for active in runner:
                if not active.is_over:
                    await active.over()

    async def _open(self) -> None:
        if not self._is_open:
            await self._let_go_of_the_abandoned()
            other = _users.get(id(self.store))
            if other is not None and other is not self and other.store is self.store and other._is_open:
                raise SchedulerError(f"{self.store} is in use by another scheduler. Give each one a store of its own.")
            _users[id(self.store)] = self
            self._forget_everything()
            try:
                await self.ask(self.store.open())
            except (StoreError, asyncio.CancelledError):
                await self.ask(self.store.close())  # it may have opened, and only the answer be lost
                raise
            self._is_open = True

    async def _let_go_of_the_abandoned(self) -> None:
        if self._was_abandoned:
            await self.ask(self.store.close())
            self._was_abandoned = False
            if self._identity is not None:
                retire(self._identity)

    async def _join(self) -> None:
        """Become a node of the store, and take up what dead nodes left behind."""
        if self._has_joined:
            return
        await self._prepare(self.clock.micros())
        self.store.on_change(self._hear_of_change)
        version = await self.ask(self.store.version())  # before anything is read: what changes from now on is news
        await self._become_node()
        self._start_writer()
        if self.store.is_shared:
            self._services.append(self._spawn(self._keep_watch(version), "watch"))
        self._services.append(self._spawn(self._count_due(), "count"))

    @property
    def _has_joined(self) -> bool:
        """Whether this scheduler may claim: it is a node, or joins again after losing its lease."""
        return self._writer is not None

    async def _is_ahead_of_the_clock(self) -> bool:
        """Whether what was recorded last is yet to come: the clock went back while nobody looked. Once for each row."""
        rows = await self.ask_unless_stopped(self.store.list_runs(RunFilter(limit=1)))
        soon = from_micros(self.clock.micros() + JUMP)
        is_news = bool(rows) and rows[0].id != self._judged_by
        self._judged_by = rows[0].id if rows else None
        times = [moment for row in rows for moment in (row.started_at, row.finished_at) if moment is not None]
        return is_news and any(moment > soon for moment in times)

    def _start_writer(self) -> None:
        self._writer = self._spawn(self._write_endings(), "writer")
        self._services.append(self._writer)

    async def _become_node(self) -> None:
        begun = self._machine.monotonic()
        identity = new_identity()
        try:
            self.node = await self.ask(self.store.join(identity, self.clock.micros()))
        except BaseException:
            retire(identity)
            raise
        self._identity = identity
        # In a store of this process alone, nobody can take us for dead.
        self._trusted_until = begun + LEASE - MARGIN if self.store.is_shared else float("inf")
        try:
            await self._beat()
        except BaseException:
            self.node = None  # its row is taken for that of a dead node, as it is
            retire(identity)
            raise

    async def _close(self) -> None:
        """Let go of everything. The heartbeat stops last."""
        if self._watchdog is not None:
            self._watchdog.stop()
        self._halt.set()
        self._have_endings.set()
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        self.runner.close()
        if self._checkup is not None:
            await asyncio.wait([self._checkup])
        async with self._claim_lock, self._rejoining:  # a claim under way must not outlive its node
            if self.node is not None:
                await self._sign_off(self.node)
            if self._is_open:
                self._is_open = False
                self._forget_everything()
                await self.ask(self.store.close())

    async def _sign_off(self, node: int) -> None:
        try:
            await self._settle_claims(self.clock.micros())
            with suppress(StoreOutdatedError):
                if self._went_back and self._loop_task is not None:  # which has noticed it when it had to end
                    await self._go_back(self.clock.micros())
                await self._purge(threshold=0)
            await self.ask(self.store.leave(node))
        except Exception:
            say(ERROR, "Cannot sign off from the store; others will notice when the lease runs out", exc_info=True)
        if self._identity is not None:
            retire(self._identity)

    async def ready(self) -> None:
        """Every call but `start` works without the loop: the store opens when it is first needed."""
        self._enter_event_loop()
        if not self._is_open:
            async with self._lock:
                await self._open()

    async def ready_to_run(self) -> None:
        """As `ready`, and as a node: whatever is claimed must have an owner."""
        self._enter_event_loop()
        if not self._is_open or not self._has_joined:
            async with self._lock:
                await self._open()
                self._went_back |= await self._is_ahead_of_the_clock()
                await self._join()

    async def ready_for_a_pass(self) -> None:
        """As `ready_to_run`, and notice a clock that went back, as the loop does: by what was recorded last."""
        await self.ready_to_run()
        if self.status == "stopped" and (self._went_back or await self._is_ahead_of_the_clock()):
            await self._go_back(self.clock.micros())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"scheduler_async {name}")
        task.add_done_callback(_report_crash)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ask(self, question: Awaitable[T]) -> T:
        """Ask the store, and let the clock know that an answer is on its way.

        The question is carried through even if the asker is cancelled: what the store was told, happens.
        """
        with self.clock.working():
            return await carried_through(question)

    async def ask_unless_stopped(self, question: Awaitable[T]) -> T:
        """As `ask`; `SchedulerStoppingError` if the store was closed meanwhile."""
        try:
            return await self.ask(question)
        except StoreError as error:
            if self._is_open:
                raise
            raise SchedulerStoppingError from error

    # ============================================================ the loop

    async def _run_loop(self) -> None:
        """Clear, look, wait: a change that lands while we look sets the event again."""
        unsubscribe = self.clock.on_jump(self._changed.set)
        failures = 0
        try:
            while self.status == "running":
                self._changed.clear()
                try:
                    timeout = await self._pass()
                    failures = 0
                    self._trouble_is_over("loop")
                except NodeLost:
                    await self._rejoin()
                    timeout = 0.0
                except StoreOutdatedError as error:
                    self._note_outdated(error)
                    timeout = None
                except Exception as error:  # the loop outlives whatever a store may do
                    timeout = min(FIRST_RETRY * 2**failures, LAST_RETRY)
                    self._stale = True
                    self._report_trouble("loop", error)
                    say(ERROR, "A pass failed; trying again in %g s: %s", timeout, error, exc_info=failures == 0)
                    failures += 1
                self._looks_again_by = self.clock.monotonic() + (float("inf") if timeout is None else timeout)
                await self._sleep(timeout)
        finally:
            unsubscribe()

    async def _sleep(self, timeout: float | None) -> None:
        """Sleep until something changes, or for *timeout* seconds; that it is over counts as a change."""
        timer = None if timeout is None else self.clock.call_later(timeout, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _pass(self) -> float | None:
        """Start what is due; return how long to sleep."""
        now = self._look_at_clock()
        self.tick_count += 1
        self.last_tick_at = now
        if self._outdated is None:
            self._distrust_self()
        while self.status == "running" and self._should_look(now):
            self._stale = False
            if self._went_back:
                await self._go_back(now)
            await self.claim(now, self._claim_limit(), self._reach(now))
            now = self._look_at_clock()
        return self._sleep_from(now)

    def _look_at_clock(self) -> Micros:
        """The time of a look at what is due."""
        self._looked_at = self._looks_again_by = self.clock.monotonic()
        return self._read_clock()

    def _should_look(self, now: Micros) -> bool:
        due = self._stale or self._hungry or (self._next.at is not None and self._next.at <= now + self._lead)
        return due and self._claim_limit() > 0 and self.clock_is_believed and self._outdated is None

    def _claim_limit(self) -> int:
        """How many more runs may be claimed: free slots, and room in the queue."""
        if self.limits.max_concurrent is None:
            return CHUNK
        return max(self.limits.max_concurrent + (self.limits.queue_size or 0) - len(self.runner), 0)

    @property
    def _lead(self) -> Micros:
        """How long before the next job is due it is time to look. Where slots are few, they are for what is due."""
        limits = self.limits
        is_limited = limits.max_concurrent is not None or limits.limits_groups
        if is_limited or not self.foresight.lead:
            return 0
        if self._next.is_crowd and self._next.at != self._counted:
            return EARLIEST_CLAIM  # first of all, they are counted
        room = max(MOST_EARLY - len(self._waiting), 0)
        return self.foresight.lead_of_crowd(min(self._next.count, room))

    def _reach(self, now: Micros) -> Micros:
        """How far ahead to claim: no less far than before, so that who stands in line stays there.

        But no further than usual if others come before a crowd, or if enough of the crowd are claimed.
        """
        lead, next_at = self._lead, self._next.at
        if not lead:
            return 0
        until = now + self.foresight.reach
        if next_at is not None and until < next_at <= now + lead and next_at == self._counted:
            until = next_at
        others_come_first = next_at is not None and next_at < self._claimed_until
        no_more_of_a_crowd = others_come_first or len(self._waiting) >= MOST_EARLY
        if until < self._claimed_until <= now + (LONGEST_REACH if no_more_of_a_crowd else EARLIEST_CLAIM):
            until = self._claimed_until
        self._claimed_until = until
        return until - now

    async def claim(self, now: Micros, limit: int, ahead: Micros = 0) -> tuple[list[ActiveRun], Claims]:
        """Claim up to *limit* jobs that are due, or will be within *ahead*, and start their runs when they are.

        A scheduler that is stopping claims nothing.
        """
        try:
            return await carried_through(self._claim(now, limit, ahead))
        except SchedulerStoppingError:
            return [], Claims()

    async def _claim(self, now: Micros, limit: int, ahead: Micros) -> tuple[list[ActiveRun], Claims]:
        async with self._claiming(now) as node:
            self._learned = Expected()
            counts_all = self._next.is_crowd
            count = MOST_EARLY if counts_all else CROWD
            begun = self.clock.monotonic()
            with self.clock.working():  # it is carried through already
                claims = await self.store.claim_due(now, self._terms(node, limit, ahead, count))
            elapsed = self.clock.monotonic()
            self.foresight.learn(elapsed - begun, len(claims.runs))
            self._distrust_self()  # we may have been frozen since
            if claims.runs:
                self._claimed_at = elapsed
            started = self._begin(claims.runs, now)
        self._hungry = claims.is_full
        learned, self._learned = self._learned, Expected()
        self._next = learned.or_sooner(Expected(claims.next_due, claims.next_count))
        self._counted = claims.next_due if counts_all else None
        for edit in claims.edits:
            self.announce_edit(edit, now)
        self.learn_of(edit.job for edit in claims.edits)
        for job in claims.unhandled:
            self._warn_of_missing_handler(job)
        return started, claims

    def _terms(self, node: int, limit: int, ahead: Micros = 0, count: int = 1) -> ClaimTerms:
        return ClaimTerms(
            node=node,
            limit=limit,
            ahead=ahead,
            count=count,
            slots=self._free_slots(),
            handlers=self.handlers.names,
            group_limit=self.limits.group_limit,
            group_limits=self.limits.group_limits,
            rules=self.rules,
        )

    async def as_node(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work* that only a node can; should others have taken this one for dead, join again first."""
        try:
            return await work()
        except NodeLost:
            await self._rejoin()
        try:
            return await work()
        except NodeLost:
            raise SchedulerError("The scheduler cannot stay connected to its store.") from None

    async def claim_one(self, namespace: str, id: str, payload_json: str | None) -> ActiveRun | None:
        """Run one job now, whatever its schedule, and return when it has begun; None if it is running already."""
        now = self.clock.micros()
        async with self._claiming(now) as node:
            await self._put_back({(namespace, id)})  # it is claimed once more when its time comes
            queued = self._free_slots() == 0
            claimed = await self.ask(self.store.claim_one(namespace, id, payload_json, now, node=node, queued=queued))
            active = self._begin([claimed], now)[0] if isinstance(claimed, ClaimedRun) else None
        if claimed is None:
            raise JobNotFoundError(id, namespace)
        if active is not None and not queued:
            await active.begun_or_over()
            if not active.has_begun and not self.runner.stopping.is_set():
                raise SchedulerError(f"Job {quoted(id)} cannot run here: its handler was removed meanwhile.")
            if not active.has_begun:
                raise SchedulerStoppingError
        return active

    @asynccontextmanager
    async def _claiming(self, now: Micros) -> AsyncIterator[int]:
        """One claim at a time, and `stop` waits for it. Should it fail, what was claimed all the same is given back."""
        async with self._claim_lock:
            if not self._has_joined or self.runner.stopping.is_set():
                raise SchedulerStoppingError
            await self._settle_claims(now)
            if self.node is None:
                raise NodeLost
            try:
                yield self.node
            except BaseException:
                self._unsure = True  # it may have happened, and only the answer be lost
                raise

    async def _settle_claims(self, now: Micros) -> None:
        if self._unsure and self.node is not None:
            known = {active.claimed.id for active in self.runner}
            lost = await self.ask(self.store.interrupt_unknown(self.node, known, now, self.rules))
            self._unsure = False
            self._announce_interrupted(lost, now)

    def _free_slots(self) -> int | None:
        limit = self.limits.max_concurrent
        return None if limit is None else max(limit - len(self.runner), 0)

    def _begin(self, runs: Sequence[ClaimedRun], now: Micros) -> list[ActiveRun]:
        """Start *runs*, or let those that were claimed ahead, as of a moment later than *now*, start then."""
        if runs and self._watchdog is not None:
            self._watchdog.attend()
        started = []
        for claimed in runs:
            goes_after_others = self._waiting.has_due and claimed.trigger is not Trigger.MANUAL
            is_held = claimed.claimed_at > now or goes_after_others
            active = self.runner.admit(claimed, is_held=is_held)
            started.append(active)
            if is_held:
                self._waiting.add(active)
                continue
            self._start(active, queued=claimed.is_queued)
        self.trigger_count += len(started)
        return started

    def _start(self, active: ActiveRun, *, queued: bool = False) -> None:
        claimed = active.claimed
        begins = self.runner.start(active, claimed.timeout or self.limits.stuck_after, queued=queued)
        if begins and not queued and self.events.has_readers:
            self._tell_started(claimed, self.clock.micros())

    def _start_waiting(self, runs: Sequence[ActiveRun]) -> None:
        """Start runs that waited for their time."""
        start: Callable[[ActiveRun], None] = self._start
        if not self._is_trusted():  # we were frozen meanwhile, and others may have taken them over
            start = self.runner.disown
        elif self.runner.stopping.is_set():
            start = self.runner.cancel
        for active in runs:
            if active.waits:
                start(active)

    @asynccontextmanager
    async def undisturbed(self, names: Collection[tuple[str, str]]) -> AsyncIterator[None]:
        """Claim nothing for a while, and take back what was claimed of these jobs ahead of its time.

        Whatever is decided about them meanwhile is about jobs that are idle, or whose handlers run.
        """
        async with self._claim_lock:
            await self._put_back(names)
            yield

    async def _put_back(self, names: Collection[tuple[str, str]]) -> None:
        """Undo the claims of these jobs that wait for their time, as if they had not been made."""
        runs = [active for active in self._waiting if active.claimed.name in names]
        if not runs:
            return
        self._waiting.discard(runs)
        for active in runs:
            active.has_ended = True
        try:
            await self._release([active.claimed for active in runs])
        except BaseException:
            for active in runs:
                self._run_ended(active, None)  # the writer goes on trying
            raise
        for active in runs:
            self.runner.forget(active)
        self.trigger_count -= len(runs)
        self.look_again()

    async def _release(self, runs: Sequence[ClaimedRun]) -> None:
        await self.ask(self.store.release(runs))
        # A moment that was near when it was claimed, and is not any more: the clock has gone back since.
        self._heed(max(run.claimed_at for run in runs) - EARLIEST_CLAIM)

    async def begun_elsewhere(self, job: Job) -> None:
        """Wait for a run of *job* that another process has claimed ahead of its time, until that has come."""
        state = job.state
        if state.activity is Status.RUNNING and state.last_run_at is not None:
            early = state.last_run_at - self.clock.micros()
            is_elsewhere = not any(active.claimed.uid == job.uid for active in self.runner)
            if is_elsewhere and 0 < early <= EARLIEST_CLAIM:
                await self.clock.wait(asyncio.Event(), early / SECOND)

    def _sleep_from(self, now: Micros) -> float | None:
        """How long to sleep: until the next job is due, or a little less, at most `max_sleep`."""
        wake = self._next.at
        held_for = self._wall.held_for(self.clock.monotonic())
        if held_for is not None:
            wake = now + int(held_for * SECOND)
        elif self._should_look(now):
            wake = now
        elif wake is not None and wake <= now:
            # Due, and no room: it goes when a run ends, and looking before would find the same.
            self._hungry, wake = True, None
        longest = None if self.limits.max_sleep is None else now + span(self.limits.max_sleep)
        glance = None if held_for is None else now + int(GLANCE * SECOND)
        self.next_wake_at = _earliest(wake, longest, glance)
        if wake is not None:
            wake -= self._lead
        if self.clock.tells_of_jumps:
            longest = glance = None  # nobody needs to wake only to find out whether the clock jumped
        capped = _earliest(wake, longest, glance)
        return None if capped is None else max(capped - now, 0) / SECOND

    def _read_clock(self) -> Micros:
        """The wall clock; a jump since it was last read is noticed before anything is done by it."""
        now = self._read_at = self.clock.micros()
        jumped, believed = self._wall.look(now, self.clock.monotonic())
        if jumped:
            self._waiting.catch_up()
        if believed or (jumped and self.clock_is_believed):  # also back from an absurd time, in which jobs were added
            self._went_back |= min(jumped, believed) < 0
            self.look_again()
        if jumped:
            message = describe_jump(jumped, now)
            self._last_jump = message
            if self.clock_is_believed:
                say(WARNING, "All jobs are looked at again, since %s", message)
            else:
                message += ": that is absurd, and nothing is started until it has gone back, or for a day"
                say(WARNING, "Held, since %s. If the clock is right, a restart lets it count at once", message)
            self.tell(EventKind.CLOCK_JUMPED, now, reason=message)
        elif believed:
            say(WARNING, "The wall clock has stood for a day and is believed; all jobs are looked at again")
        return now

    @property
    def clock_is_believed(self) -> bool:
        """Whether jobs are started by what the wall clock shows."""
        return self._wall.held_for(self.clock.monotonic()) is None

    def _believed_now(self) -> Micros:
        """The time to record by: what the wall clock shows, or would show if it had not jumped absurdly."""
        return self._wall.believed(self._read_clock() if self.status == "running" else self.clock.micros())

    def _heed(self, moment: Micros) -> None:
        """Look again at what was decided by a *moment* that is yet to come: the clock has gone back since."""
        if moment > self._believed_now():
            self._went_back = True
            self.look_again()

    async def _go_back(self, now: Micros) -> None:
        """The clock has gone back: no job waits until it is where it was."""
        self._went_back = False  # first: a run that ends meanwhile may have gone by the time before
        after: int | None = 0
        try:
            while after is not None:
                after = await self.ask(self.store.review(after, REVIEW_SLICE, now, lambda job: sooner(job, now)))
        except BaseException:
            self._went_back = True
            raise

    def look_again(self) -> None:
        """Something has changed, and what was known of the store may be wrong."""
        self._stale = True
        self._changed.set()

    def learn_of(self, jobs: Iterable[Job]) -> None:
        """Jobs may be due earlier than what we sleep for."""
        self._learn_of_moments([at for job in jobs if (at := job.state.next_run_at) is not None])

    def _learn_of_moments(self, moments: Sequence[Micros]) -> None:
        """The earliest of them counts: of those after it nobody needs to know yet."""
        if moments:
            first = min(moments)
            self._learn_of_moment(first, moments.count(first))

    def _hear_of_change(self, at: Micros | None, count: int) -> None:
        """Others have changed what is due at a moment, or who knows what."""
        if at is None:
            self.look_again()
        else:
            self._learn_of_moment(at, count)

    def _learn_of_moment(self, at: Micros, count: int = 1) -> None:
        self._learned.hear_of(at, count)
        if self._next.hear_of(at, count):
            self._changed.set()

    def _warn_of_missing_handler(self, job: Job) -> None:
        if (job.uid, job.revision) not in self._warned:
            self._warned.put((job.uid, job.revision), None)
            say(
                WARNING,
                "Job %s is due, but no handler %s is registered here; it waits until there is one",
                job.key,
                quoted(job.handler),
                extra={"job": job.key},
            )

    # ============================================================ runs

    async def _begin_queued(self, active: ActiveRun) -> bool:
        """Mark a queued run as running; it may have been taken from us while it waited."""
        now = self.clock.micros()
        if active.claimed.id not in await self.ask(self.store.start([active.claimed], now)):
            active.disowned = True
            return False
        self._tell_started(active.claimed, now)
        return True

    def _run_ended(self, active: ActiveRun, ending: Ending | None) -> None:
        """Called when a handler has ended, or with None for a run that never began. The writer does the rest."""
        now = self.clock.micros()
        now = self._wall.believed(now) if self._read_at <= now < self._read_at + MOMENT else self._believed_now()
        # A pass may be asked about a moment that is yet to come: what it runs does not end before that.
        active.ending, active.ended_at = ending, max(now, active.claimed.claimed_at)
        self._ended.append(active)
        self._have_endings.set()

    def _run_dropped(self, active: ActiveRun) -> None:
        """Called when a run has ended that is not ours any more."""
        self._announce_dropped(active)
        self.look_again()

    async def _write_endings(self) -> None:
        """Group commit: take all endings there are, and record them at once."""
        failures = 0
        while True:
            self._have_endings.clear()
            if self._ended:
                try:
                    await self._record_some()
                    failures = 0
                    self._trouble_is_over("writer")
                except Exception as error:  # nothing is lost: they are kept until the store takes them
                    self._report_trouble("writer", error)
                    self._stale = True  # it may have taken them, and lost only the answer
                    delay = min(FIRST_RETRY * 2**failures, LAST_RETRY)
                    words = "Cannot record %d ended runs; trying again in %g s: %s"
                    say(ERROR, words, len(self._ended), delay, error, exc_info=failures == 0)
                    failures += 1
                    self._works_again.clear()
                    await self._machine.wait(self._works_again, delay)  # a store recovers in real time
                    continue
            if not self._ended:
                self._trouble_is_over("writer")  # others may have recorded what it could not
                await self._have_endings.wait()

    async def _record_some(self) -> None:
        """Record the endings that have waited longest. Those that could not be recorded wait on."""
        async with self._recording:
            # Who reads events has a turn while the store is asked, and a run leaves up to four of them.
            batch = self._ended[: MAX_UNREAD // 4 if self.events.has_readers else MOST_AT_ONCE]
            count = len(batch)
            try:
                await self._record_all(batch)
                batch = []
            finally:
                self._ended[:count] = batch

    async def _record_all(self, batch: list[ActiveRun]) -> None:
        """Record *batch*, at once if possible. One ending that cannot be recorded must not hold up the others."""
        if await self._refusal(batch) is None:
            return
        while batch:
            active = batch[0]
            refusal = await self._refusal([active])
            if refusal is not None:
                run, problem = active.claimed, message_of(refusal)
                words = "Run %d of %s ended, but how it ended cannot be recorded; it is recorded as an error"
                say(ERROR, words, run.id, run.key, extra=run.named, exc_info=refusal)
                active.ending = Ending(outcome=Outcome.ERROR, error=f"How it ended cannot be recorded: {problem}")
                if await self._refusal([active]) is not None:
                    words = "Run %d of %s cannot be recorded at all; it counts as interrupted when this scheduler stops"
                    say(ERROR, words, run.id, run.key, extra=run.named)
                    self.runner.forget(active)
            del batch[0]

    async def _refusal(self, batch: Sequence[ActiveRun]) -> Exception | None:
        """Record *batch*, or return why it cannot be. A store that fails may take it later, and raises."""
        try:
            await self._record(batch)
        except (UnstorableError, StoreOutdatedError) as error:
            return error
        except StoreError:
            raise
        except Exception as error:  # in a way that nobody thought of
            return error
        return None

    async def _record(self, batch: Sequence[ActiveRun]) -> None:
        unbegun: list[ClaimedRun] = []
        begun: list[ActiveRun] = []
        ended: list[EndedRun] = []
        for active in batch:
            run = active.claimed
            if active.disowned:
                self._announce_dropped(active)
                continue
            if active.ending is None and run.trigger is not Trigger.MANUAL:
                unbegun.append(run)
                continue
            told = active.ending or _NEVER_BEGUN  # nothing will bring again what somebody asked for
            begun.append(active)
            ended.append(EndedRun(run, told, min(active.started_at, active.ended_at), active.ended_at))
        if unbegun:
            await self._release(unbegun)
            self._stale = True
        rules = self.rules if self.status == "stopped" else self._rules_of_loop
        left = await self.ask(self.store.finish(ended, rules)) if ended else []
        is_followed = is_heard(INFO) or self.events.has_listeners or self.limits.limits_groups
        for active, item, one in zip(begun, ended, left, strict=True):
            active.outcome, active.after = item.ending.outcome, one
            if is_followed or one is None or not one.is_plain:
                self._announce_ending(item, one, active)
            if one is not None:
                self._count_rows(item.run.uid, 1 + len(one.skips))
        self._learn_of_moments([one.next_run_at for one in left if one is not None and one.next_run_at is not None])
        self._heed(max((item.finished_at for item in ended), default=0))
        for active in batch:
            self.runner.forget(active)
        if self._hungry or self._stale:
            self._changed.set()

    def _announce_ending(self, item: EndedRun, left: Aftermath | None, active: ActiveRun) -> None:
        run, ending = item.run, item.ending
        if left is None:
            self._stale = True
            words = "Run %d of %s is not ours any more; its result is dropped"
            say(WARNING, words, run.id, run.key, extra=run.named)
            return
        level = WARNING if ending.outcome.is_failure else INFO
        if is_heard(level):
            milliseconds = (item.finished_at - item.started_at) / 1000
            say(
                level,
                "Run %d of %s: %s in %.0f ms%s",
                run.id,
                run.key,
                ending.outcome,
                milliseconds,
                f": {ending.error}" if ending.error else "",
                extra={**run.named, "outcome": ending.outcome.value, "duration_ms": milliseconds},
                exc_info=None if active.traceback is None else active.error,
                traceback=active.traceback,
            )
        if self.events.has_listeners:
            self.tell(EventKind.RUN_FINISHED, item.finished_at, job=left.job, run=row_of(item, self._node_name))
        if left.kind or left.skips:
            self.announce_edit(left, item.finished_at)
        if self.limits.limits_groups and (run.group or left.group) is not None:
            self._stale = True  # another of its group may go now: of the one it ran in, or of the one it is in since

    def _count_rows(self, uid: int, count: int) -> None:
        """A job has so many rows more: when there are enough of them, the oldest are forgotten."""
        if self.limits.keep_runs is not None:
            grown = self._grown[uid] = self._grown.get(uid, 0) + count
            if grown > self.limits.keep_runs // 10 or len(self._grown) > MOST_GROWN:
                self._untidy.set()

    def _announce_dropped(self, active: ActiveRun) -> None:
        """Every run that began has its line, also one of which nobody wants to know how it ended."""
        if active.has_begun:
            run = active.claimed
            words = "Run %d of %s was cancelled: its job was removed, or others have taken it over"
            say(INFO, words, run.id, run.key, extra=run.named)

    @property
    def _node_name(self) -> str | None:
        return None if self._identity is None else self._identity.name

    async def _count_due(self) -> None:
        """Count what is due every second, while there is somebody who wants to know."""
        while True:
            if self.events.observers:
                with suppress(StoreError):  # whoever cannot do without the store tells of it
                    self.due = await self.ask(self.store.count_due(self.clock.micros(), MOST_COUNTED))
            if await self._machine.wait(self._halt, POLL):
                return

    # ============================================================ nodes

    async def _keep_watch(self, version: int) -> None:
        """Notice what other processes change, show that we live, and notice who does not."""
        last_beat = self._machine.monotonic()
        while not await self._machine.wait(self._halt, POLL):
            try:
                before, version = version, await self.ask(self.store.version())
                changed = version != before
                if changed:
                    self.look_again()
                    await self._disown_what_was_taken()
                is_time = self._machine.monotonic() - last_beat >= BEAT
                if changed or is_time or self._troubles or self._watch.someone_is_gone():
                    last_beat = self._machine.monotonic()
                    await self._check_store()
                    await self._beat()
                if self._trouble_is_over("watch"):
                    # Nobody has to wait for their next try.
                    self._changed.set()
                    self._works_again.set()
            except NodeLost:
                await self._rejoin()
            except StoreOutdatedError as error:
                self._note_outdated(error)
            except Exception as error:
                if "watch" not in self._troubles:
                    say(ERROR, "Cannot reach the store; trying again every %g s", POLL, exc_info=True)
                self._report_trouble("watch", error)
                if not self._is_trusted():
                    await self._rejoin()

    async def _disown_what_was_taken(self) -> None:
        """A job that was removed elsewhere, or taken over from us, must not go on here."""
        if self.node is None:
            raise NodeLost
        running = [active for active in self.runner if active.has_begun or active.waits]
        if running:
            held = await self.ask(self.store.held(self.node))
            for active in running:
                if active.claimed.id not in held and not active.has_ended:
                    self.runner.disown(active)

    async def _beat(self) -> None:
        if self.node is None:
            raise NodeLost
        begun = self._machine.monotonic()
        nodes = await self.ask(self.store.beat(self.node))
        self._trusted_until = max(self._trusted_until, begun + LEASE - MARGIN)
        dead = self._watch.find_dead(nodes, self.node, self._machine.monotonic())
        if dead and self._outdated is None:
            now = self._believed_now()
            self.look_again()  # also if the answer is lost
            self._announce_interrupted(await self.ask(self.store.recover(dead, now, self.rules)), now)
            self.look_again()

    def _announce_interrupted(self, interrupted: Sequence[tuple[Edit, ClaimedRun]], now: Micros) -> None:
        for edit, run in interrupted:
            extra = {**run.named, "outcome": Outcome.INTERRUPTED.value}
            say(WARNING, "Run %d of %s was interrupted", run.id, run.key, extra=extra)
            if self.events.has_listeners:
                ending = Ending(outcome=Outcome.INTERRUPTED, error=edit.job.last_error)
                item = EndedRun(run=run, ending=ending, started_at=run.claimed_at, finished_at=now)
                self.tell(EventKind.RUN_FINISHED, now, job=edit.job, run=row_of(item, None))
            self.announce_edit(edit, now)
        self.learn_of(edit.job for edit, _ in interrupted)

    def _is_trusted(self) -> bool:
        return self._machine.monotonic() <= self._trusted_until

    def _distrust_self(self) -> None:
        """A node that could not show that it lives must let go before others take over."""
        if not self._is_trusted():
            raise NodeLost

    async def _rejoin(self) -> None:
        """Others take us for dead, or soon will: end what we run without a trace, and begin anew."""
        runner, lost_node = self.runner, self.node
        async with self._rejoining:
            if self.runner is not runner or self.node != lost_node or (lost_node is None and self._outdated):
                return  # the store was closed meanwhile, or the loop and the watch have both noticed
            say(WARNING, "Node %s lost its lease; its runs are cancelled, and it joins again", self._node_name)
            ended = {active.claimed.id for active in self._ended}
            lost = [active for active in runner if active.claimed.id not in ended]
            for active in lost:
                runner.disown(active)
            tasks = [active.task for active in lost if active.task is not None]
            if tasks:
                await asyncio.wait(tasks, timeout=MARGIN)
            if self._identity is not None:
                retire(self._identity)
            self.node = None
            failures = 0
            while self.runner is runner and not runner.stopping.is_set() and self._outdated is None:
                try:
                    while self._ended:  # what nobody has taken over is still ours to tell of
                        await self._record_some()
                    await self._become_node()
                except StoreOutdatedError as error:
                    self._note_outdated(error)
                except Exception as error:
                    words = "Cannot join the store; trying again in %g s: %s"
                    say(ERROR, words, POLL, error, exc_info=failures == 0)
                    failures += 1
                    await self._machine.wait(runner.stopping, POLL)
                else:
                    say(INFO, "This is now node %s", self._node_name)
                    self.look_again()
                    self._works_again.set()
                    return

    # ============================================================ health

    async def signs(self, timeout: float | None) -> Signs:
        """What shows whether it works. The store has *timeout* seconds to answer."""
        self._enter_event_loop()
        checkup = await self._check_up(timeout) if self._is_open else _Checkup(problem="The store is not open.")
        now, elapsed = self.clock.micros(), self.clock.monotonic()
        due = checkup.earliest_due if checkup.problem is None else self._next.at
        grace = self.rules.misfire_grace
        return Signs(
            status=self.status,
            is_alive=not any(task is None or task.done() for task in (self._loop_task, *self._services)),
            problem=self.problem,
            store_problem=checkup.problem,
            last_pass_age=None if self._looked_at is None else elapsed - self._looked_at,
            overslept=elapsed - self._looks_again_by,
            running_for=0.0 if self.started_at is None else (now - self.started_at) / SECOND,
            overdue=0.0 if due is None else (now - due) / SECOND,
            has_room=self._claim_limit() > 0,
            unclaimed_for=elapsed - self._claimed_at,
            misfire_grace=None if grace is None else grace / SECOND,
        )

    async def _check_up(self, timeout: float | None) -> _Checkup:
        # However often one asks: a store that does not answer is not asked again before it has.
        if self._checkup is None or self._checkup.done():
            self._checkup = asyncio.create_task(self._question_store(), name="scheduler_async checkup")
        checkup = self._checkup  # it is forgotten should the store be closed meanwhile
        await asyncio.wait([checkup], timeout=timeout)
        if checkup.cancelled():
            return _Checkup(problem="The question to the store was cancelled.")
        if not checkup.done():
            return _Checkup(problem=f"The store did not answer within {timeout:g} s.")
        return checkup.result()

    async def _question_store(self) -> _Checkup:
        try:
            await self._check_store()
            if self._outdated is not None:
                return _Checkup()
            terms = self._terms(self.node or 0, 1)
            return _Checkup(earliest_due=await self.ask(self.store.earliest_due(self.clock.micros(), terms)))
        except Exception as error:  # whatever it is, it is what was asked for
            return _Checkup(problem=str(error) or type(error).__name__)

    # ============================================================ upkeep

    async def _keep_house(self) -> None:
        """Remove what is old: on its own cadence, a little at a time."""
        while True:
            if self.limits.purge_disabled_after is None:
                kept = self.limits.keep_removed
                pause = LONGEST_UPKEEP_PAUSE if kept is None else min(LONGEST_UPKEEP_PAUSE, kept.total_seconds())
                await self.clock.wait(self._untidy, pause)
            await self.clock.wait(self._halt, UPKEEP)
            try:
                await self._purge()
            except StoreOutdatedError as error:
                self._note_outdated(error)
            except Exception:
                say(ERROR, "Cannot remove old runs; trying again in %g s", UPKEEP, exc_info=True)

    async def _purge(self, threshold: int | None = None) -> None:
        """Forget old runs of jobs that have *threshold* new ones, a tenth of what is kept; and jobs long disabled."""
        self._untidy.clear()
        now = self._believed_now()
        if self.limits.keep_runs is not None:
            if threshold is None:
                threshold = 0 if len(self._grown) > MOST_GROWN else self.limits.keep_runs // 10
            grown = [uid for uid, count in self._grown.items() if count > threshold]
            for uids in _slices(grown, UPKEEP_LOOK):
                counted = {uid: self._grown[uid] for uid in uids}
                overgrown = await self.ask(self.store.overgrown(uids, self.limits.keep_runs))
                for some in _slices(overgrown, UPKEEP_SLICE):
                    await self.ask(self.store.purge_runs(some, self.limits.keep_runs, now))
                for uid in uids:
                    self._grown[uid] -= counted[uid]  # more may have come meanwhile
                    if not self._grown[uid]:
                        del self._grown[uid]
        if self.limits.keep_removed is not None:
            before = now - span(self.limits.keep_removed)
            while await self.ask(self.store.purge_removed(before, UPKEEP_SLICE)) == UPKEEP_SLICE:
                pass
        if self.limits.purge_disabled_after is not None:
            before = now - span(self.limits.purge_disabled_after)
            while gone := await self.ask(self.store.purge_disabled(before, UPKEEP_SLICE)):
                for job in gone:
                    self.tell(EventKind.REMOVED, self.clock.micros(), job=job, reason="it was disabled for long")

    # ============================================================ telling

    def _running_now(self) -> tuple[Job, int] | None:
        """The job and the run whose handler the event loop is busy with. Asked by the watchdog, on its thread."""
        assert self._event_loop is not None
        task = asyncio.current_task(self._event_loop)
        return None if task is None else self.runner.run_of(task)

    def _tell_of_block(self, job: Job | None, message: str) -> None:
        self.tell(EventKind.LOOP_BLOCKED, self.clock.micros(), job=job, reason=message)

    @property
    def problem(self) -> str | None:
        """What keeps it from working, if anything does."""
        if self._outdated is not None:
            return self._outdated
        if not self.clock_is_believed:
            return f"Nothing is started, since {self._last_jump}."
        return next(iter(self._troubles.values()), None)

    async def _check_store(self) -> None:
        """Notice if the store is not what it was. `StoreError` if it cannot be used at all."""
        try:
            await self.ask(self.store.check())
        except StoreOutdatedError as error:
            self._note_outdated(error)

    def _note_outdated(self, error: StoreOutdatedError) -> None:
        """Start nothing more, since a newer version has upgraded the store; what runs goes on, and is recorded."""
        if self._outdated is None:
            self._outdated = str(error)
            say(ERROR, "%s This process starts no more runs; those that it has go on", error)
            self.tell(EventKind.STORE_FAILED, self.clock.micros(), reason=self._outdated)

    def _report_trouble(self, who: str, error: Exception) -> None:
        """Tell that the store fails; once, however many notice it, until all of them are through."""
        is_news = not self._troubles
        self._troubles[who] = str(error) or type(error).__name__
        if is_news:
            self.tell(EventKind.STORE_FAILED, self.clock.micros(), reason=self._troubles[who])

    def _trouble_is_over(self, who: str) -> bool:
        """Note that the store works for *who*, and return whether it did not before."""
        was_in_trouble = self._troubles.pop(who, None) is not None
        if was_in_trouble and not self._troubles:
            say(INFO, "The store works again")
            self.tell(EventKind.STORE_RECOVERED, self.clock.micros())
        return was_in_trouble

    def tell(
        self,
        kind: EventKind,
        at: Micros,
        *,
        job: Job | None = None,
        run: RunRow | None = None,
        reason: SkipReason | str | None = None,
    ) -> None:
        """Tell observers, if there are any."""
        if self.events.has_listeners:
            self.events.tell(Event(kind=kind, at=from_micros(at), job=job, run=run, reason=reason))

    def _tell_started(self, claimed: ClaimedRun, now: Micros) -> None:
        if self.events.has_readers:
            item = EndedRun(run=claimed, ending=_GOING_ON, started_at=now, finished_at=now)
            row = replace(row_of(item, self._node_name), outcome=None, finished_at=None, duration_ms=None)
            self.tell(EventKind.RUN_STARTED, now, job=claimed.job, run=row)

    def announce_edit(self, edit: Edit | Aftermath | None, now: Micros) -> None:
        """Tell of an edit and of the occurrences it left out, now that it is committed."""
        if edit is None:
            return
        if edit.kind == "disabled" and edit.disabled_reason != ENDED:
            say(WARNING, "Job %s is disabled: %s", edit.job.key, edit.disabled_reason, extra={"job": edit.job.key})
        if self.events.has_listeners:
            for skip in edit.skips:
                row = row_of_skip(edit.job, skip, now)
                self.tell(EventKind.RUN_SKIPPED, now, job=edit.job, run=row, reason=skip.reason)
            if edit.kind is not None:
                reason = edit.disabled_reason if edit.kind == "disabled" else None
                self.tell(EventKind(edit.kind), now, job=edit.job, reason=reason)


# Two schedulers with one store object would take each other's connections.
_users: WeakValueDictionary[int, Engine] = WeakValueDictionary()


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _earliest(*moments: Micros | None) -> Micros | None:
    return min((moment for moment in moments if moment is not None), default=None)


_GOING_ON = Ending(outcome=Outcome.SUCCESS)  # stands in where a run has no ending yet
_NEVER_BEGUN = Ending(
    outcome=Outcome.CANCELLED, error="The scheduler was stopped, or the handler removed, before it could begin."
)


def _report_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        say(ERROR, "%s ended: %s: %s", task.get_name(), type(error).__name__, error)
