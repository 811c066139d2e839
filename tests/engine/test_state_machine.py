"""The whole engine, loop and store included, against a small model: whatever happens, the promises hold.

Hypothesis adds, edits, pauses, triggers and removes jobs, also in the last moments before they are due. It lets their
handlers fail, hang, give up and change their own jobs. It moves the clock, steps it and makes it jump. It stops the
scheduler in the middle of other calls, kills it in the middle of a sentence, and starts another on the same file. The
model knows only arithmetic: which points of its grid a job went past. Each must have run or have a row that says why
not, none twice; those that came while the job was paused share a row that says so. No job has more runs at once than it
may, or more in all than its `max_runs`. A stopped scheduler leaves no call without an answer, no open row and no claim.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    InvalidJobError,
    Job,
    JobAlreadyRunningError,
    JobDisabledError,
    Manual,
    MemoryStore,
    Outcome,
    PostgresStore,
    Retry,
    Run,
    RunEndedError,
    RunRow,
    Schedule,
    Scheduler,
    SchedulerError,
    SchedulerShutdownError,
    SkipReason,
    SQLiteStore,
    Status,
    Store,
    Trigger,
    testing,
)
from scheduler_async.engine import claimer, engine, lookahead
from scheduler_async.engine import held_runs as waiting
from scheduler_async.jobs.enums import Phase as EnginePhase
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules import claim_ahead, instances
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM, ClaimAhead
from scheduler_async.rules.plans import plan_of
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.liveness import retire
from scheduler_async.stores.messages import JobFilter, RunFilter
from scheduler_async.stores.postgres import store as postgres
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, Micros, from_micros, to_micros
from scheduler_async.timekeeping.wall_clock import JUMP
from tests.postgres_server import url_of_schema, url_of_server

pytestmark = pytest.mark.deep

T = TypeVar("T")
NOON = "2026-01-05T12:00:00Z"
# A step hangs after so many seconds of real time in which the store gives no answer and the clock stands still. How
# long it takes in all does not matter: three hours of runs can take a minute on a busy machine.
PATIENCE = 60.0
MILLISECOND = timedelta(milliseconds=1)
# More often than this, no call of a scheduler that is being stopped can open its store again.
MOST_STOPS = 20


# ---------------------------------------------------------------- a process that can be killed

Death: TypeAlias = Literal["asks no more", "is cut short", "hears no more"]


class MortalStore:
    """The store as a process sees it that may die: from then on it asks nothing, and hears no answer.

    Its last question is not asked, or is under way when it dies, or is carried out all the same.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.dying: Death | None = None
        self.has_asked = False
        self.died = asyncio.Event()
        self.asking = 0
        """How many questions are under way."""
        self.answers = 0
        self.interjection: Interjection | None = None

    @property
    def is_shared(self) -> bool:
        return self.inner.is_shared

    @property
    def decisions(self) -> Decisions:
        return self.inner.decisions

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        self.inner.on_change(listener)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self.inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            if self.dying is None:
                return await self._ask(method, *args, **options)
            is_last = self.dying != "asks no more" and not self.has_asked and not self.died.is_set()
            if self.dying != "hears no more":
                self.died.set()
            if is_last:
                self.has_asked = True
                try:
                    await method(*args, **options)
                finally:
                    self.died.set()
            return await asyncio.get_running_loop().create_future()

        return call

    async def _ask(self, method: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        interjection = self.interjection
        if interjection is not None and not interjection.is_due():
            interjection = None
        if interjection is not None and interjection.before:
            await interjection.act()
        self.asking += 1
        try:
            answer = await method(*args, **options)
        finally:
            self.asking -= 1
            self.answers += 1
        if interjection is not None and not interjection.before:
            await interjection.act()
        return answer


@dataclass
class Interjection:
    """What happens *before* or after the *at*-th question to the store from now on, while that is held up."""

    at: int
    before: bool
    act: Callable[[], Awaitable[None]]

    def is_due(self) -> bool:
        self.at -= 1
        return self.at == 0


# ---------------------------------------------------------------- the model

JobPhase: TypeAlias = Literal["active", "paused", "disabled"]


@dataclass(frozen=True)
class Grid:
    """The regular times of a schedule that has some: *origin* + k * *step*, later than *after*, up to *end*.

    Each is moved by the jitter that the schedule has for it.
    """

    origin: Micros
    step: Micros
    after: Micros
    end: Micros
    moved: Callable[[Micros], Micros]

    @classmethod
    def of(cls, schedule: Schedule, now: Micros, id: str) -> Grid | None:
        """None for schedules without a grid."""
        end = 2**62 if schedule.end is None else to_micros(schedule.end)

        def moved(at: Micros) -> Micros:
            return schedule.jittered(at, f"default/{id}")

        if isinstance(schedule, Every):
            return cls(now, schedule.interval // timedelta(microseconds=1), now, end, moved)
        if isinstance(schedule, Cron):
            return cls(0, CRON_STEPS[schedule.expression], now, end, moved)
        return None

    def points(self, after: Micros, until: Micros) -> Iterator[Micros]:
        """Those later than *after*, up to *until*."""
        first = self._bare(max(after, self.after))
        bare = range(first if first > self.after else first + self.step, min(until, self.end) + 1, self.step)
        return (at for at in map(self.moved, bare) if after < at <= until)

    def has(self, point: Micros) -> bool:
        return self.moved(self._bare(point)) == point

    def expand(self, row: RunRow) -> Iterator[Micros]:
        """The points a row of the log stands for. One that was put off may lie between them, and is not counted."""
        first = to_micros(row.scheduled_for)
        bare, count = self._bare(first), row.missed
        if not self.has(first):
            bare, count = bare if self.moved(bare) > first else bare + self.step, count - 1
        return (self.moved(bare + number * self.step) for number in range(count))

    def _bare(self, at: Micros) -> Micros:
        return at - (at - self.origin) % self.step


@dataclass
class Failures:
    """How many failures in a row there should be.

    The end of a pause clears them. If a run ended at about the same moment, either may have come first, so that there
    are several possible counts until `settle`.
    """

    counts: set[int] = field(default_factory=lambda: {0})
    uncleared: set[int] = field(default_factory=set)
    """What the counts are if the pause that ended by itself has not ended yet."""

    @property
    def are_possible(self) -> bool:
        return any(self.counts | self.uncleared)

    def become(self, count: int) -> None:
        self.counts, self.uncleared = {count}, set()

    def add_one(self) -> None:
        self.counts, self.uncleared = ({count + 1 for count in counts} for counts in (self.counts, self.uncleared))

    def forgive(self) -> None:
        self.counts, self.uncleared = ({0 for _ in counts} for counts in (self.counts, self.uncleared))

    def become_at_most(self, count: int) -> None:
        """Success and *count* failures came at one moment, in an order that nobody knows."""
        self.counts, self.uncleared = set(range(count + 1)), set(range(count + 1) if self.uncleared else ())

    def pause_ends(self) -> None:
        """A pause ended by itself, before or after the runs that are counted next."""
        self.counts, self.uncleared = set(), self.counts | self.uncleared

    def next_run(self, *, before_the_end: bool, after_the_end: bool) -> None:
        """A run is counted next, which may be known to be *before* or *after* the end of the pause."""
        if self.uncleared and not before_the_end:
            self.counts.add(0)
        if after_the_end:
            self.uncleared = set()

    def settle(self, count: int, *, is_disabled: bool) -> None:
        """All runs up to now are counted, and the store says that there are *count* failures."""
        if self.uncleared:
            # A run that disabled the job before has ended the pause, and the failures stay.
            self.counts |= {0} | (self.uncleared if is_disabled else set())
        assert count in self.counts, f"{count} failures in a row, and there should be {self.counts}"
        self.become(count)


@dataclass
class Tracked:
    """What the model knows of a job."""

    id: str
    schedule: Schedule
    grid: Grid | None
    phase: JobPhase
    failures: Failures = field(default_factory=Failures)
    went_past: set[Micros] = field(default_factory=set)
    """The points that came: each must run, or have a row."""
    covered: set[Micros] = field(default_factory=set)
    away: list[tuple[Micros, Micros]] = field(default_factory=list)
    """When it was paused or disabled: later than, up to."""
    rows: dict[int, RunRow] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    high: Micros = 0
    """The latest the clock has been."""
    lenient_until: Micros = 0
    """The clock went back from here: up to this moment points come again, and only runs must not be repeated."""
    until: Micros | None = None
    """When it resumes by itself, if it is paused until then."""
    resumed_at: Micros = 0
    """When it last resumed by itself."""
    is_unsure: bool = False
    """Somebody changed it, and nobody knows when, or whether that got through: it is as the store says."""
    occurrences_run: int = 0
    """How many regular occurrences have run under this schedule, and this `max_runs`."""
    has_died: bool = False
    """Whether the last failure was the death of a process."""
    failed_at: datetime | None = None
    """When a run failed last."""

    def new_schedule(self, schedule: Schedule, now: Micros) -> None:
        self.schedule, self.grid = schedule, Grid.of(schedule, now, self.id)
        self.went_past, self.covered = set(), set()
        self.away, self.occurrences_run = [], 0

    def change_phase(self, phase: JobPhase, now: Micros) -> None:
        """What it went past so far, it went past in its phase until now."""
        self.pass_time(self.high, now, now)
        self.phase, self.until = phase, None

    def pass_time(self, start: Micros, end: Micros, active_until: Micros) -> None:
        """The wall clock went from *start* to *end*; the job was given up on the way if *active_until* is earlier."""
        if self.phase == "paused" and self.until is not None and self.until <= end:
            until, self.until = self.until, None
            self.pass_time(start, until - 1, until - 1)
            self.phase, self.resumed_at = "active", until
            self.failures.pause_ends()
            start = max(start, until - 1)  # what comes at its end runs
            active_until = max(active_until, until)
        start = max(start, self.high)
        self.high = max(self.high, end)
        active_until = min(max(active_until, start), end)
        if self.grid is not None:
            self.went_past.update(self.grid.points(start, end))
        away_since = active_until if self.phase == "active" else start
        if away_since < end:
            self.away.append((away_since, end))

    def place(self, row: RunRow, is_late: bool) -> None:
        """Tell whether a run came before or after the end of a pause. One that *is_late* was noticed afterwards."""
        ended = None if row.finished_at is None else to_micros(row.finished_at)
        is_new = row.id not in self.rows  # and a paused job begins none, except by hand
        self.failures.next_run(
            before_the_end=ended is not None and ended < self.resumed_at,
            after_the_end=is_new or (ended is not None and ended > self.resumed_at and not is_late),
        )

    def fail(self, row: RunRow) -> None:
        """Count a failure. The death of a process with several runs is one."""
        assert row.finished_at is not None
        assert row.claimed_at is not None
        interrupted = row.outcome is Outcome.INTERRUPTED
        if counts(row):
            is_same_death = interrupted and self.has_died and self.failed_at and row.claimed_at < self.failed_at
            if not is_same_death:
                self.failures.add_one()
            self.has_died = interrupted
        self.failed_at = row.finished_at

    @property
    def running(self) -> list[RunRow]:
        return [self.rows[number] for number in self.unfinished]

    def was_away(self, point: Micros) -> bool:
        return any(after < point <= until for after, until in self.away)


def counts(row: RunRow) -> bool:
    """Whether it is a run by the schedule, whose failure is counted."""
    return row.attempt > 0 and row.trigger is not Trigger.MANUAL


CRON_STEPS = {"* * * * *": MINUTE, "*/5 * * * *": 5 * MINUTE, "0 * * * *": HOUR}

IDS = ["a", "b", "c"]
WHICH = st.integers(0, len(IDS) - 1)
MINUTES = st.integers(1, 60)
RETRIES = st.sampled_from(
    [None, None, Retry.backoff(), Retry.in_window(2), Retry.budget(3, "30m"), Retry.none(), Retry.backoff(["10m"])]
)
SCHEDULES = st.one_of(
    st.sampled_from(["1m", "7m", "90s"]).map(lambda text: ("every", text)),
    st.sampled_from(sorted(CRON_STEPS)).map(lambda text: ("cron", text)),
    st.sampled_from(["2m", "11m"]).map(lambda text: ("delay", text)),
    st.integers(-30, 90).map(lambda minutes: ("at", minutes)),
    st.sampled_from([("every at once", "5m"), ("every until", "3m"), ("manual", ""), ("patient", "4m")]),
    st.sampled_from(["10%", "50s", "1h"]).map(lambda jitter: ("jitter", jitter)),
)
ENDINGS = st.sampled_from(["succeed", "fail", "fail", "noop", "give up"])
WAITS = st.one_of(st.none(), st.none(), st.just("hang"), st.integers(1, 900))
DEEDS = st.sampled_from([None, None, None, None, "pause", "disable", "edit", "change"])
# What a handler does to its own job, how long it takes then, and how it ends.
Behaviour: TypeAlias = tuple[str | None, object, str]
WELL_BEHAVED: Behaviour = (None, None, "succeed")
BEHAVIOURS = st.tuples(DEEDS, WAITS, ENDINGS)
MISFIRES = st.sampled_from(["run_once", "skip", "run_all"])
GRACES = st.sampled_from([None, "0s", "10m"])
OVERLAPS = st.sampled_from(["skip", "queue", "cancel"])
INSTANCES = st.sampled_from([1, 2])
MAX_RUNS = st.sampled_from([None, None, 1, 5])
JOBS = st.fixed_dictionaries(
    {
        "schedule": SCHEDULES,
        "retry": RETRIES,
        "misfire": MISFIRES,
        "on_interrupt": st.sampled_from(["rerun", "skip"]),
        "enabled": st.sampled_from([True, True, True, True, False]),
        "misfire_grace": GRACES,
        "catch_up_limit": st.sampled_from([2, 10]),
        "overlap": OVERLAPS,
        "max_instances": INSTANCES,
        "max_runs": MAX_RUNS,
    }
)
CHANGES = st.one_of(
    st.fixed_dictionaries({"payload": st.integers(0, 9)}),
    st.fixed_dictionaries({"retry": RETRIES}),
    st.fixed_dictionaries({"misfire": MISFIRES, "misfire_grace": GRACES}),
    st.fixed_dictionaries({"timeout": st.sampled_from([None, "5m"])}),
    st.fixed_dictionaries({"enabled": st.booleans()}),
    st.fixed_dictionaries({"overlap": OVERLAPS}),
    st.fixed_dictionaries({"max_instances": INSTANCES}),
    st.fixed_dictionaries({"max_runs": MAX_RUNS}),
)
# Jobs are claimed up to 50 ms before they are due, crowds earlier than that.
LEADS = st.sampled_from([1, 5, 12, 20, 35, 49, 60]).map(lambda number: number * MILLISECOND)
STEPS = st.one_of(st.integers(1, 60), st.integers(-60, -1))
# A rule, and what else it takes besides the job: what is done in the last moments before that is due.
MEDDLING: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    SCHEDULES.map(lambda drawn: ("edit_the_schedule", {"drawn": drawn})),
    CHANGES.map(lambda changes: ("edit_something_else", {"changes": changes})),
    st.sampled_from([("pause", {}), ("trigger", {}), ("remove", {})]),
)
Call: TypeAlias = tuple[str, int]
CALLS = st.lists(
    st.tuples(
        st.sampled_from(
            2 * ["trigger_job", "run_pending"]
            + ["pause_job", "resume_job", "update_job", "reschedule", "remove_job", "add_job", "get_job"]
        ),
        WHICH,
    ),
    min_size=1,
    max_size=4,
)
Stop: TypeAlias = Literal["cancels", "waits", "does not wait", "is cancelled"]
STOPS = st.sampled_from(get_args(Stop))


def schedule_of(drawn: tuple[str, Any], now: Micros) -> Schedule:
    match drawn:
        case "every", str(interval):
            return Every(interval)
        case "every at once", str(interval):
            return Every(interval, immediately=True)
        case "every until", str(interval):
            return Every(interval, end=from_micros(now + 2 * HOUR))
        case "jitter", str(jitter):
            return Every("90s", jitter=jitter)
        case "cron", str(expression):
            return Cron(expression, tz="UTC")
        case "delay", str(interval):
            return Delay(interval)
        case "patient", str(interval):
            return Delay(interval, immediately=False)
        case "at", int(minutes):
            return At(from_micros(now + minutes * MINUTE))
        case _:
            return Manual()


def rule_for_a_job(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule of a machine whose scheduler runs, for *which* of its jobs; without any, nothing happens.

    How many jobs there are is no precondition. It depends on whether a call or a stop came first, which differs from
    time to time on a busy machine, and Hypothesis wants the same choices for the same story.
    """

    def decorate(act: Callable[..., None]) -> Callable[..., None]:
        @wraps(act)
        def act_on_a_job(machine: EngineMachine, *args: Any, **drawn: Any) -> None:
            if machine.jobs:
                act(machine, *args, **drawn)

        made = cast(Any, rule)(which=WHICH, **arguments)(act_on_a_job)
        guarded: Callable[..., None] = precondition(lambda machine: machine.is_running_here())(made)
        return guarded

    return decorate


NOT_KNOWN = (SkipReason.NOT_DUE, SkipReason.NOT_CREATED, SkipReason.PURGED)


class EngineMachine(RuleBasedStateMachine):
    """One store, one scheduler at a time on it, and a few jobs."""

    kind: ClassVar[Literal["memory", "file", "postgres"]]

    # ------------------------------------------------------------ the stage

    def __init__(self) -> None:
        super().__init__()
        if self.kind == "postgres":
            url_of_server()  # who is first starts it, and no step has the time for that
        self.loop = asyncio.new_event_loop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(repr(context)))
        self.directory = tempfile.TemporaryDirectory()
        self.memory = MemoryStore()
        self.listener = _Listener(self.complaints)
        logger = logging.getLogger("scheduler_async")
        self.log_level = logger.level
        logger.addHandler(self.listener)
        logger.setLevel(logging.ERROR)
        # Real time stands still: what a process does once a second would make each example different, and one that
        # takes long would outlive its lease.
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(engine, "SystemClock", VirtualClock)
        self.patches.setattr(testing, "REAL_PATIENCE", 0.01)  # handlers here wait for the clock, or for ever
        for name in ("CONNECT_TIMEOUT", "RUN_TIMEOUT", "READ_TIMEOUT", "BEAT_TIMEOUT"):
            self.patches.setattr(postgres, name, 10 * PATIENCE)
        self.jobs: dict[str, Tracked] = {}
        self.calls: dict[asyncio.Task[object], str] = {}
        """Calls that need not have come to their end: only `stop()` must let them."""
        self.behaviour: dict[str, Behaviour] = {}
        self.handling: dict[int, list[Run]] = {}
        self.hanging: set[asyncio.Event] = set()
        self.max_concurrent: int | None = None
        self.unnoticed: Micros = 0
        """How far the clock went back in steps that are too small to be a jump."""
        self.went_back_unseen = False
        """The clock went back, and no scheduler runs."""
        self.excused: set[tuple[str, Micros]] = set()
        """Jobs that wait for these moments since then: no row is younger than the new time, so nobody can know."""
        self.was_killed = False
        """And nobody has started since who could tidy up."""
        self.is_well = True

    @initialize(
        max_concurrent=st.sampled_from([None, None, 2]), first=JOBS, second=JOBS, how=st.tuples(BEHAVIOURS, BEHAVIOURS)
    )
    def begin(
        self,
        max_concurrent: int | None,
        first: dict[str, Any],
        second: dict[str, Any],
        how: tuple[Behaviour, Behaviour],
    ) -> None:
        self.max_concurrent = max_concurrent
        self.run(self.make_clock())
        self.run(self.start())
        for fields, behaviour in zip((first, second), how, strict=True):
            self.add(fields, behaviour)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        working = self.loop.create_task(work)
        hung: list[str] = []

        def look(seen: object) -> None:
            if self.progress() == seen:
                hung.extend(map(str, asyncio.all_tasks(self.loop)))
                working.cancel()
            timers.append(self.loop.call_later(PATIENCE, look, self.progress()))

        timers = [self.loop.call_later(PATIENCE, look, self.progress())]
        try:
            return self.loop.run_until_complete(working)
        except BaseException as error:
            self.is_well = False
            if hung:
                raise AssertionError("\n".join(["nothing happens any more:", *hung])) from error
            raise
        finally:
            timers[-1].cancel()

    def progress(self) -> tuple[float, int]:
        """What changes as long as something happens."""
        return (self.clock.monotonic(), self.store.answers) if hasattr(self, "store") else (0, 0)

    async def make_clock(self) -> None:
        self.clock = VirtualClock(NOON)

    def make_scheduler(self) -> None:
        self.store = MortalStore(self.new_store())
        self.scheduler = Scheduler(
            cast(Store, self.store), clock=self.clock, keep_runs=None, max_concurrent=self.max_concurrent
        )
        self.scheduler.handler("work")(self.work)

    async def start(self) -> None:
        self.make_scheduler()
        self.is_up = True
        await self.scheduler.start()
        self.was_killed = False
        await self.clock.advance()
        await self.let_the_claimed_begin()

    def new_store(self) -> Store:
        if self.kind == "postgres":
            return PostgresStore(url_of_schema(self.directory.name))
        return self.memory if self.kind == "memory" else SQLiteStore(Path(self.directory.name, "jobs.db"))

    async def work(self, run: Run) -> object:
        at_once = self.handling.setdefault(run.job.uid, [])
        at_once.append(run)
        if len(at_once) > max(one.job.max_instances for one in at_once):  # an edit may have made it fewer meanwhile
            self.complaints.append(f"at once: {at_once}")  # what a handler raises is a failure like any other
        deed, wait, ending = self.behaviour.get(run.job_id, WELL_BEHAVED)
        try:
            if deed is not None and run.job_id in self.jobs:
                await self.change_own_job(self.jobs[run.job_id], deed)
            if wait == "hang":
                released = asyncio.Event()
                self.hanging.add(released)
                await released.wait()
            elif isinstance(wait, int):
                await self.clock.sleep(timedelta(seconds=wait))
        finally:
            at_once.remove(run)
        match ending:
            case "fail":
                raise ValueError("no")
            case "noop":
                return Outcome.NOOP
            case "give up":
                return False
        return None

    async def change_own_job(self, model: Tracked, deed: str) -> None:
        """What a handler does to its own job. If it is cancelled meanwhile, the store knows how far that got."""
        was_unsure, model.is_unsure = model.is_unsure, True
        match deed:
            case "pause":
                with suppress(JobDisabledError):  # somebody was faster
                    await self.scheduler.pause_job(model.id)
                    model.change_phase("paused" if model.phase == "active" else model.phase, self.clock.micros())
            case "disable":
                await self.scheduler.disable_job(model.id)
                model.change_phase("disabled", self.clock.micros())
            case "change":
                await self.scheduler.update_job(model.id, payload=self.clock.micros())
            case _:
                await self.scheduler.update_job(model.id, schedule=Every("3m"))
                return  # from when on it counts, the store knows
        model.is_unsure = was_unsure

    def teardown(self) -> None:
        try:
            if self.is_well:
                self.run(self.end_well())
        finally:
            logger = logging.getLogger("scheduler_async")
            logger.removeHandler(self.listener)
            logger.setLevel(self.log_level)
            self.patches.undo()
            if hasattr(self, "clock"):
                self.run(self.kill())
            gc.collect()  # a task whose exception nobody saw says so when it goes
            self.loop.close()
            self.directory.cleanup()
        assert not self.complaints

    async def end_well(self) -> None:
        """Once all handlers are let go, nothing stays running; and the log has not changed behind our back."""
        if not self.is_up:
            await self.start_again()
        for job_id in self.jobs:
            self.behaviour[job_id] = WELL_BEHAVED
        before = self.clock.micros()
        self.let_go()
        await self.clock.advance("16m")  # the longest a handler takes, and a minute
        await self.let_the_claimed_begin()
        await self.sync(before)
        for model in self.jobs.values():
            assert not model.unfinished, f"{model.id} runs on: {model.running}"
            job = await self.scheduler.get_job(model.id)
            assert job is not None
            assert job.status not in (Status.RUNNING, Status.QUEUED)
            log = await self.scheduler.run_log(model.id, limit=None)
            assert {row.id: row for row in log} == model.rows, "the log was rewritten"
        await self.halt("waits")
        assert not self.calls
        await self.check_what_is_left()

    def let_go(self) -> None:
        for released in self.hanging:
            released.set()
        self.hanging.clear()

    async def kill(self) -> None:
        """End everything as SIGKILL does: no task takes another step that could be seen from outside."""
        self.store.dying = self.store.dying or "asks no more"
        self.store.died.set()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        for call in self.calls:
            if not call.cancelled():
                call.exception()  # nobody waits for it any more
        identity = self.scheduler._engine.session.node.identity
        if identity is not None:
            retire(identity)
        watchdog = self.scheduler._engine.session.launcher.watchdog
        if watchdog is not None:
            watchdog.stop()
        await self.store.inner.close()
        self.hanging.clear()
        self.handling.clear()
        self.calls.clear()
        self.is_up = False
        self.was_killed = True

    # ------------------------------------------------------------ what people do

    def is_running_here(self) -> bool:
        return getattr(self, "is_up", False)

    @property
    def has_room(self) -> bool:
        return len(self.jobs) < len(IDS)

    def pick(self, which: int) -> Tracked:
        return list(self.jobs.values())[which % len(self.jobs)]

    @precondition(is_running_here)
    @rule(fields=JOBS, behaviour=BEHAVIOURS)
    def add_a_job(self, fields: dict[str, Any], behaviour: Behaviour) -> None:
        if self.has_room:
            self.add(fields, behaviour)

    def add(self, fields: dict[str, Any], behaviour: Behaviour) -> None:
        fields = {**fields, "schedule": schedule_of(fields["schedule"], self.clock.micros())}
        model = self.new_model(fields["schedule"], "active" if fields["enabled"] else "disabled")
        self.behaviour[model.id] = behaviour
        self.do(self.scheduler.add_job(handler="work", id=model.id, **fields))

    def new_model(self, schedule: Schedule, phase: JobPhase = "active") -> Tracked:
        """The model of a job that is about to be added."""
        now, free = self.clock.micros(), next(free for free in IDS if free not in self.jobs)
        self.jobs[free] = model = Tracked(free, schedule, Grid.of(schedule, now, free), phase, high=now)
        return model

    @rule_for_a_job(drawn=SCHEDULES)
    def edit_the_schedule(self, which: int, drawn: tuple[str, Any]) -> None:
        model = self.pick(which)
        now = self.clock.micros()
        schedule = schedule_of(drawn, now)

        async def act() -> None:
            job = await self.job(model.id)
            if schedule == job.schedule:
                return
            if job.disabled_reason == "ended":
                model.phase = "active"  # first: its handler may be called, and pause it, before the answer is here
            await self.scheduler.update_job(model.id, schedule=schedule)
            # The old schedule is settled with: what it owed has rows now, which belong to it. A moment that has passed
            # may have been left out by now, and be one at which the old schedule had its row already.
            missed = to_micros(schedule.at) if isinstance(schedule, At) else None
            for row in await self.new_rows(model):
                if row.attempt == 0 and not (to_micros(row.scheduled_for) == missed and missed in model.covered):
                    self.take_row(model, row)
            self.check_grid(model, await self.job(model.id), floor=now + 1)
            model.new_schedule(schedule, now)

        self.do(act())

    @rule_for_a_job(changes=CHANGES)
    def edit_something_else(self, which: int, changes: dict[str, Any]) -> None:
        model = self.pick(which)

        async def act() -> None:
            before = await self.job(model.id)
            enabled = changes.get("enabled")
            if enabled is False:
                model.phase = "disabled"
            elif enabled and not before.enabled and before.disabled_reason != "ended":
                model.phase = "active"
                model.failures.become(0)
            if changes.get("max_runs", before.max_runs) != before.max_runs:
                if before.max_runs is None:
                    model.occurrences_run = 0
                model.is_unsure = True  # it may end now, or no longer have ended
            after = await self.scheduler.update_job(model.id, **changes)
            if changes.keys() & {"payload", "retry", "misfire", "timeout"}:
                assert after.next_run_at == before.next_run_at, "an edit that leaves the schedule alone moved it"

        self.do(act())

    @rule_for_a_job()
    def pause(self, which: int) -> None:
        model = self.pick(which)

        async def act() -> None:
            await self.pause_unless_disabled(model)
            model.until = None

        self.do(act())

    async def pause_unless_disabled(self, model: Tracked, until: Micros | None = None) -> None:
        try:
            await self.scheduler.pause_job(model.id, until=None if until is None else from_micros(until))
        except JobDisabledError:
            job = await self.scheduler.get_job(model.id)
            assert job is not None
            assert not job.enabled
        else:
            model.phase = "paused"

    @rule_for_a_job(minutes=MINUTES)
    def pause_for_a_while(self, which: int, minutes: int) -> None:
        model = self.pick(which)
        until = self.clock.micros() + minutes * MINUTE

        async def act() -> None:
            await self.pause_unless_disabled(model, until)
            model.until = until if model.phase == "paused" else None

        self.do(act())

    @rule_for_a_job()
    def cancel(self, which: int) -> None:
        """A run in progress ends as cancelled, and is not run again."""
        model = self.pick(which)

        async def act() -> None:
            for number in list(model.unfinished):
                with suppress(RunEndedError):
                    await self.scheduler.cancel_run(number, reason="enough")

        self.do(act())

    @rule_for_a_job()
    def resume(self, which: int) -> None:
        model = self.pick(which)

        async def act() -> None:
            if (await self.job(model.id)).disabled_reason == "ended":
                with pytest.raises(InvalidJobError):
                    await self.scheduler.resume_job(model.id)
            else:
                model.phase = "active"
                model.failures.become(0)
                await self.scheduler.resume_job(model.id)

        self.do(act())

    @rule_for_a_job()
    def remove_one_of_many(self, which: int) -> None:
        if not self.has_room:
            self.remove(which)

    def remove(self, which: int) -> None:
        job_id = self.pick(which).id
        del self.jobs[job_id]
        self.do(self.scheduler.remove_job(job_id))

    @rule_for_a_job()
    def trigger(self, which: int) -> None:
        job_id = self.pick(which).id

        async def act() -> None:
            before, is_full = await self.job(job_id), False
            if before.status in (Status.RUNNING, Status.QUEUED):
                is_full = len(self.jobs[job_id].unfinished) >= before.max_instances
            try:
                await self.scheduler.trigger_job(job_id)
            except JobAlreadyRunningError:
                assert is_full
            else:
                assert not is_full

        self.do(act())

    @rule(id=st.sampled_from(IDS), behaviour=BEHAVIOURS)
    def change_the_handler(self, id: str, behaviour: Behaviour) -> None:
        self.behaviour[id] = behaviour

    @precondition(is_running_here)
    @rule()
    def run_pending(self) -> None:
        """What is due has been claimed by the loop, unless there is no room for it."""

        async def act() -> None:
            self.launch(self.scheduler.run_pending(), "run_pending")

        self.do(act())

    @rule_for_a_job(place=st.integers(0, 1000))
    def ask_about_the_past(self, which: int, place: int) -> None:
        """Of every point that came, the scheduler knows whether it ran, and if not, why."""
        model = self.pick(which)
        points = sorted(point for point in model.went_past if point > model.lenient_until)
        if points and not model.is_unsure:
            point = points[place % len(points)]
            answer = self.run(self.scheduler.explain(model.id, at=from_micros(point)))
            assert answer.reason not in NOT_KNOWN, f"{from_micros(point)} of {model.id}: {answer}"

    def launch(self, call: Coroutine[Any, Any, object], name: str) -> None:
        """Make a *call* that need not come to its end before the scheduler is stopped."""
        self.calls[asyncio.create_task(call, name=name)] = name

    @rule_for_a_job(lead=LEADS, let_go=st.booleans(), meddling=MEDDLING)
    def meddle_at_the_last_moment(
        self, which: int, lead: timedelta, let_go: bool, meddling: tuple[str, dict[str, Any]]
    ) -> None:
        """Where it may be claimed, and has not begun."""
        self.approach(which, lead, let_go)
        name, arguments = meddling
        getattr(self, name)(which, **arguments)

    # ------------------------------------------------------------ what time does

    @rule(minutes=MINUTES, let_go=st.booleans())
    def advance(self, minutes: int, let_go: bool) -> None:
        self.move(timedelta(minutes=minutes), let_go)

    @rule(seconds=st.integers(0, 600), let_go=st.booleans())
    def advance_a_little(self, seconds: int, let_go: bool) -> None:
        self.move(timedelta(seconds=seconds), let_go)

    @rule_for_a_job(let_go=st.booleans())
    def advance_to_the_next_run(self, which: int, let_go: bool) -> None:
        self.approach(which, timedelta(0), let_go)

    @rule_for_a_job(lead=LEADS, let_go=st.booleans())
    def advance_to_shortly_before_the_next_run(self, which: int, lead: timedelta, let_go: bool) -> None:
        """Where it may be claimed, and has not begun: whatever comes then takes it back."""
        self.approach(which, lead, let_go)

    def approach(self, which: int, lead: timedelta, let_go: bool) -> None:
        """Go to the next run of a job, or to shortly before it."""
        job = self.run(self.job(self.pick(which).id))
        wait = timedelta(0) if job.next_run_at is None else job.next_run_at - self.clock.now() - lead
        self.move(min(max(wait, timedelta(0)), timedelta(hours=3)), let_go)

    def move(self, duration: timedelta, let_go: bool) -> None:
        async def act() -> None:
            if let_go:
                self.let_go()
            await self.clock.advance(duration)

        self.do(act())

    @rule(minutes=st.integers(-180, 240))
    def jump(self, minutes: int) -> None:
        self.shift(timedelta(minutes=minutes))

    @rule(seconds=STEPS)
    def step(self, seconds: int) -> None:
        self.shift(timedelta(seconds=seconds))

    @rule_for_a_job(lead=LEADS, let_go=st.booleans(), seconds=STEPS)
    def step_at_the_last_moment(self, which: int, lead: timedelta, let_go: bool, seconds: int) -> None:
        self.approach(which, lead, let_go)
        self.step(seconds)

    def shift(self, by: timedelta) -> None:
        """Let the wall clock go forward or back at once."""
        now = self.clock.micros()
        if by < timedelta(0):
            self.went_back_unseen |= not self.is_up
            self.unnoticed += JUMP if -by <= timedelta(microseconds=JUMP) else 0
            for model in self.jobs.values():
                ahead = now + EARLIEST_CLAIM  # what was claimed ahead has its row before its time
                model.lenient_until = max(model.lenient_until, model.high, ahead)
                # A scheduler that was killed may have seen the end of the pause, or not, and now that is to come.
                model.is_unsure |= model.phase == "paused" and model.until is not None and model.until <= now

        async def act() -> None:
            self.clock.set(self.clock.now() + by)

        self.do(act(), is_jump=True)

    # ------------------------------------------------------------ what happens to processes

    def can_be_left(self) -> bool:
        return self.is_running_here()

    def was_left(self) -> bool:
        return hasattr(self, "clock") and not self.is_up

    @precondition(can_be_left)
    @rule(dying=st.sampled_from(get_args(Death)), seconds=st.integers(0, 600), let_go=st.booleans())
    def crash(self, dying: Death, seconds: int, let_go: bool) -> None:
        """Killed at the next question to the store, which may or may not get through."""
        before = self.clock.micros()

        async def act() -> None:
            await self.let_the_claimed_begin()
            self.store.dying = dying
            if let_go:
                self.let_go()
            moving = asyncio.create_task(self.clock.advance(timedelta(seconds=seconds)))
            dead = asyncio.create_task(self.store.died.wait())
            await asyncio.wait({moving, dead}, return_when=asyncio.FIRST_COMPLETED)
            await self.kill()

        self.run(act())
        self.down_since = before

    @precondition(can_be_left)
    @rule(how=STOPS)
    def stop(self, how: Stop) -> None:
        self.down_since = self.clock.micros()

        async def act() -> None:
            await self.halt(how)
            await self.check_what_is_left()

        self.run(act())

    @precondition(lambda self: self.can_be_left() or self.was_left())
    @rule(calls=CALLS, at=st.integers(1, 14), before=st.booleans(), how=STOPS)
    def stop_in_the_middle(self, calls: list[Call], at: int, before: bool, how: Stop) -> None:
        """While others call it, with the loop or without, somebody stops it."""
        if self.is_up:
            self.down_since = self.clock.micros()
        else:
            self.make_scheduler()

        async def act() -> None:
            stopping: list[asyncio.Task[None]] = []

            async def interject() -> None:
                stopping.append(asyncio.create_task(self.halt(how)))
                await self.stand_still()

            self.store.interjection = Interjection(at, before, interject)
            for name, which in calls:
                self.call(name, which)
            await self.stand_still()
            self.store.interjection = None
            await (stopping[0] if stopping else self.halt(how))
            await self.check_what_is_left()

        self.run(act())

    def call(self, name: str, which: int) -> None:
        """Begin a call of which nobody knows whether it comes before the stop, or after it."""
        scheduler = self.scheduler
        if name == "run_pending":
            return self.launch(scheduler.run_pending(), name)
        if name == "add_job":
            if self.has_room:
                model = self.new_model(Every("2m"))
                model.is_unsure = True
                self.launch(scheduler.add_job(model.schedule, handler="work", id=model.id), name)
            return None
        if not self.jobs:
            return None
        model = self.pick(which)
        model.is_unsure |= name not in ("trigger_job", "get_job")
        match name:
            case "update_job":
                work: Coroutine[Any, Any, object] = scheduler.update_job(model.id, payload=which)
            case "reschedule":
                work = scheduler.update_job(model.id, schedule=Cron("*/5 * * * *", tz="UTC"))
            case _:
                work = getattr(scheduler, name)(model.id)
        return self.launch(work, name)

    async def halt(self, how: Stop) -> None:
        """Stop the scheduler; every call that was made before, or meanwhile, comes to an end with it."""
        match how:
            case "cancels":
                await self.scheduler.stop(cancel=True)
            case "waits":
                with suppress(SchedulerShutdownError):
                    await self.scheduler.stop()
            case "does not wait":
                await self.scheduler.stop(wait=False)
            case "is cancelled":
                stopping = asyncio.create_task(self.scheduler.stop())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                stopping.cancel()
                await asyncio.wait([stopping])
        for _ in range(MOST_STOPS):
            are_done = all(call.done() for call in self.calls)
            await self.scheduler.stop(cancel=True)
            if are_done:
                break
            await self.clock.advance("1s")  # one that came after all this has opened the store once more
        self.is_up = False
        self.hanging.clear()
        assert self.scheduler.status == "stopped"
        assert not any(self.handling.values()), f"runs go on: {self.handling}"
        for call, name in self.calls.items():
            assert call.done(), f"{name} hangs: {call}"
            error = call.exception()
            assert error is None or isinstance(error, SchedulerError), f"{name} raised {error!r}"
        self.calls.clear()

    async def check_what_is_left(self) -> None:
        """In the store of a scheduler that was stopped, no row is open, no job runs, and nobody is a node."""
        async with self.a_look_at_the_store() as store:
            jobs, rows = await store.list_jobs(JobFilter()), await store.list_runs(RunFilter())
            nodes = await store.nodes()
        if not self.was_killed:
            assert not [row for row in rows if row.outcome is None], "a row is open, and nobody runs"
            assert not [job for job in jobs if job.status in (Status.RUNNING, Status.QUEUED)], "a claim has no owner"
            assert not nodes
        names = {job.id for job in jobs}
        for model in [*self.jobs.values()]:
            if model.id not in names:
                assert model.is_unsure, f"{model.id} is lost"
                del self.jobs[model.id]
        assert names == self.jobs.keys()

    async def stand_still(self) -> None:
        """Return when nothing more can happen without time moving, or without what we hold up."""
        quiet = 0
        while quiet < 2:
            await asyncio.sleep(0.001)  # not at once: the clock waits until nobody is ready to go on
            is_busy = self.store.asking or self.loop._ready  # type: ignore[attr-defined]
            quiet = 0 if is_busy else quiet + 1

    @precondition(was_left)
    @rule()
    def restart(self) -> None:
        self.run(self.start_again())

    async def start_again(self) -> None:
        if self.went_back_unseen:
            await self.excuse_those_who_cannot_know()
        await self.start()
        await self.sync(self.down_since, is_late=True)

    async def excuse_those_who_cannot_know(self) -> None:
        """What was recorded last shows that the clock went back; if it was long before, nothing does."""
        self.went_back_unseen = False
        async with self.a_look_at_the_store() as store:
            newest = await store.list_runs(RunFilter(limit=1))
            moments = [moment for row in newest for moment in (row.started_at, row.finished_at) if moment is not None]
            if all(to_micros(moment) <= self.clock.micros() + JUMP for moment in moments):
                jobs = await store.list_jobs(JobFilter())
                self.excused = {(job.id, at) for job in jobs if (at := job.state.next_run_at) is not None}

    @asynccontextmanager
    async def a_look_at_the_store(self) -> AsyncIterator[Store]:
        """The store, as others see it."""
        store = self.new_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    # ------------------------------------------------------------ what must hold

    def do(self, act: Awaitable[object], *, is_jump: bool = False) -> None:
        """Do something, let everything happen that follows from it, and look at what came of it."""

        async def all_of_it() -> None:
            before = self.clock.micros()
            await act
            if self.is_up:
                await self.clock.advance()
                await self.sync(before, is_late=is_jump)

        self.run(all_of_it())

    async def let_the_claimed_begin(self) -> None:
        """Let nothing be claimed ahead of its time that has not begun."""
        while any(active.is_held for active in self.scheduler._engine.session.runner):
            await self.clock.advance(timedelta(milliseconds=1))

    async def job(self, id: str) -> Job:
        """A job; one that was claimed ahead of its time as it was before, since nobody is to notice."""
        job = await self.scheduler.get_job(id)
        assert job is not None, f"{id} is gone"
        for early in reversed(self.early_claims(job)):
            if early.is_instance:  # others may have ended since
                job = instances.unclaim(job, early.job, early.before, early)[0].job
            else:
                job = job.with_state(early.before)
        return job

    def early_claims(self, job: Job) -> list[ClaimedRun]:
        """The claims of a job that were made ahead of their time, and may yet be undone."""
        claims = [active.claimed for active in self.scheduler._engine.session.runner if active.is_held]
        return sorted((claimed for claimed in claims if claimed.uid == job.uid), key=lambda claimed: claimed.id)

    async def sync(self, before: Micros, *, is_late: bool = False) -> None:
        """Let the model catch up with the time since *before*, and hold the store against it.

        It *is_late* if no scheduler saw that time pass.
        """
        for model in self.jobs.values():
            try:
                await self.sync_with(model, before, is_late)
            except AssertionError as error:
                error.add_note(await self.story_of(model))
                raise

    async def story_of(self, model: Tracked) -> str:
        """What the model knows of a job, and what the scheduler says of it."""
        job = await self.scheduler.get_job(model.id)
        rows = await self.scheduler.run_log(model.id, limit=12)
        changes = await self.scheduler.changes(model.id, limit=12)
        known = replace(model, rows={}, went_past=set(), covered=set())
        return "\n".join(map(str, [self.clock.now(), known, job, *reversed(rows), *reversed(changes)]))

    async def sync_with(self, model: Tracked, before: Micros, is_late: bool) -> None:
        now = self.clock.micros()
        job = await self.job(model.id)
        rows = await self.new_rows(model)
        if model.is_unsure:
            self.relearn(model, job, rows, now)
            return
        active_until = now
        if model.phase == "active" and not job.enabled:
            # Only the end of a run, or of the schedule itself, gives up a job that nobody touched.
            ends = [to_micros(row.finished_at) for row in rows if row.finished_at is not None]
            active_until = max(ends, default=now)
        model.pass_time(before, now, active_until)
        is_given_up = model.phase != "disabled" and not job.enabled
        if is_given_up:
            model.phase = "disabled"
        self.take_rows(model, job, rows, is_late)
        if is_given_up:
            self.check_that_there_was_a_reason(model, job)
        model.failures.settle(job.consecutive_errors, is_disabled=not job.enabled)
        self.check_job(model, job, now)
        self.check_grid(model, job)

    def relearn(self, model: Tracked, job: Job, rows: list[RunRow], now: Micros) -> None:
        """Take the word of the store for what a job is; only that nothing is repeated is known for sure."""
        model.grid = None
        self.take_rows(model, job, rows, is_late=True)
        model.new_schedule(job.schedule, job.anchor)
        model.occurrences_run = job.state.occurrences_run
        model.phase, model.until = job.state.phase.value, job.state.paused_until
        model.failures.become(job.consecutive_errors)
        model.is_unsure = False
        model.high = max(model.high, now)
        model.lenient_until = max(model.lenient_until, model.high + EARLIEST_CLAIM)
        self.check_job(model, job, now)

    async def new_rows(self, model: Tracked) -> list[RunRow]:
        """Rows that are new or were unfinished, oldest first. Those of a claim ahead of its time may yet be undone."""
        known = min(model.unfinished | model.early, default=max(model.rows, default=0) + 1)
        limit = 32
        while True:
            rows = await self.scheduler.run_log(model.id, limit=limit)
            if len(rows) < limit or rows[-1].id < known:
                break
            limit *= 4
        waiting = [active.claimed for active in self.scheduler._engine.session.runner if active.is_held]
        early = {run.id: from_micros(run.claimed_at) for run in waiting if run.job.id == model.id}
        written = {row.id for row in rows if row.attempt == 0 and row.finished_at in early.values()}
        model.early = {row.id for row in rows if row.id in early} | written
        new = [row for row in reversed(rows) if row.id >= known and model.rows.get(row.id) != row]
        return [row for row in new if row.id not in model.early]

    def take_rows(self, model: Tracked, job: Job, rows: list[RunRow], is_late: bool) -> None:
        """Count rows in the order in which the runs have ended, as far as that is known."""
        has_instances = job.description.has_instances
        never = self.clock.now() + timedelta(days=1)
        by_end = sorted(rows, key=lambda row: row.finished_at or never) if has_instances else rows
        for _, at_once in groupby(by_end, key=lambda row: row.finished_at):
            ended = []
            for row in at_once:
                if counts(row):
                    model.place(row, is_late)
                    ended += [row.outcome] if row.outcome not in (None, Outcome.CANCELLED) else []
                self.take_row(model, row)
            failed = sum(outcome.is_failure for outcome in ended if outcome is not None)
            if has_instances and 0 < failed < len(ended):
                model.failures.become_at_most(failed)
        went_back = any(row.finished_at and to_micros(row.finished_at) <= model.lenient_until for row in rows)
        if has_instances and went_back:  # nobody knows the order of what has ended before and after that
            model.failures.become_at_most(max(model.failures.counts | model.failures.uncleared) + len(rows))

    def take_row(self, model: Tracked, row: RunRow) -> None:
        """Count a row that is new, or that has ended since it was last seen."""
        known = model.rows.get(row.id)
        attempts = {
            (other.scheduled_for, other.attempt)
            for other in model.rows.values()
            if counts(other) and other.id != row.id
        }
        model.rows[row.id] = row
        if counts(row):
            assert (row.scheduled_for, row.attempt) not in attempts, f"{row} is a repetition"
        if known is None:
            model.occurrences_run += row.attempt == 1 and counts(row)
            self.cover(model, row)
        else:
            assert known.outcome is None, f"{known} was changed afterwards"
        if row.outcome is None:
            model.unfinished.add(row.id)
            return
        model.unfinished.discard(row.id)
        assert row.finished_at is not None
        if row.outcome.is_failure:
            model.fail(row)
        elif counts(row) and row.outcome is not Outcome.CANCELLED:
            model.failures.forgive()
            model.has_died = False

    def cover(self, model: Tracked, row: RunRow) -> None:
        if model.grid is None or row.trigger in (Trigger.MANUAL, Trigger.RETRY):
            return
        if row.attempt == 0:
            assert row.outcome is Outcome.SKIPPED
            assert row.missed > 0
            assert row.reason is not None
            points = list(model.grid.expand(row))
        else:
            points = [to_micros(row.scheduled_for)]
            on_grid = model.grid.has(points[0])
            assert on_grid or model.failures.are_possible, f"{row} is between the regular times, and nothing had failed"
            if not on_grid:
                return  # put off after a failure: an occurrence of its own
        for point in points:
            if point <= model.lenient_until:
                continue  # the clock went back, and this point came again
            assert point not in model.covered, f"{row} stands for {from_micros(point)}, which has its row"
            assert not model.was_away(point) or row.reason in (SkipReason.PAUSED, SkipReason.DISABLED), (
                f"{row} stands for {from_micros(point)}, when the job was paused or disabled"
            )
        model.covered.update(points)

    def check_grid(self, model: Tracked, job: Job, floor: Micros | None = None) -> None:
        """Every point that came has its row, up to what is still owed or running, or lies in the current pause.

        Not counted are points before a moment from which the clock went back, since they come again, or do not.
        """
        lost = sorted(point for point in model.went_past - model.covered if point > model.lenient_until)
        if not lost:
            return
        if floor is None:
            floor = 2**62
            state = job.state
            if state.phase is not EnginePhase.ACTIVE:
                assert state.counted_until is not None
                floor = state.counted_until + 1
            elif state.regular_at is not None:
                floor = state.regular_at
            elif state.next_run_at is not None and state.retry_of is None:
                floor = state.next_run_at
            elif model.running:  # what passes meanwhile is written down when it ends
                floor = min(to_micros(row.started_at or row.scheduled_for) for row in model.running)
        assert lost[0] >= floor, (
            f"{model.id} ({model.phase}, {model.schedule}): {from_micros(lost[0])} left no row: {job.state}"
        )

    def check_job(self, model: Tracked, job: Job, now: Micros) -> None:
        assert (job.state.phase == "disabled") == (model.phase == "disabled"), f"{job.state}"
        assert (job.state.phase == "paused") == (model.phase == "paused"), f"{job.state}"
        if job.status in (Status.RUNNING, Status.QUEUED):
            assert len(model.unfinished) == (job.state.running or 1)
            assert job.uid in {active.claimed.uid for active in self.scheduler._engine.session.runner}, (
                f"{job} runs nowhere"
            )
        else:
            assert not model.unfinished, f"{model.running} is forgotten"
        if job.status is Status.DISABLED:
            assert job.next_run_at is None
            assert job.disabled_reason
        else:
            assert job.disabled_reason is None or job.state.phase == "disabled"
        if job.status is Status.IDLE and not isinstance(job.schedule, Manual):
            assert job.next_run_at is not None, f"nothing will ever wake {job}"
            assert job.state.next_run_at is not None
            if not self.early_claims(job):  # it waits for its timer, wherever the clock has stepped meanwhile
                self.check_that_it_does_not_wait_out_a_jump(model, job, now, job.state.next_run_at)
                assert job.state.next_run_at > now or self.max_concurrent, f"{job} is due, and does not run"
        if job.max_runs is not None:
            assert model.occurrences_run == job.state.occurrences_run
            assert model.occurrences_run <= job.max_runs or model.lenient_until > 0

    def check_that_it_does_not_wait_out_a_jump(self, model: Tracked, job: Job, now: Micros, next_run: Micros) -> None:
        """It waits for no longer than its schedule says, or its policy after a failure."""
        schedule, state = job.schedule, job.state
        if isinstance(schedule, Every | Delay):
            longest = schedule.interval // timedelta(microseconds=1)
        elif isinstance(schedule, Cron):
            longest = CRON_STEPS[schedule.expression]
        else:
            return  # a one-shot keeps its moment
        if state.retry_of is not None or state.regular_at is not None:
            longest = max(longest, HOUR)
        # What ran before the clock went back does not run again: the one after it comes.
        attempts = filter(counts, model.rows.values())
        have_run = {row.scheduled_for for row in attempts if from_micros(now) < row.scheduled_for}
        longest += longest * ((schedule.jitter is not None) + len(have_run)) + EARLIEST_CLAIM + self.unnoticed
        longest += max(job.anchor - now, 0)  # the clock shows a time at which the job did not exist
        wait, is_excused = next_run - now, (job.id, next_run) in self.excused
        assert wait <= longest or is_excused, f"{job.id} waits for {wait / SECOND:g} s: {state}"
        last_retry = max((retry.at for retry in plan_of(state).retries), default=now)
        assert last_retry - now <= longest or is_excused, f"a retry of {job.id} waits: {state}"

    def check_that_there_was_a_reason(self, model: Tracked, job: Job) -> None:
        reason = job.disabled_reason or ""
        comes_again = isinstance(job.schedule, Every | Cron | Delay) and job.schedule.end is None
        comes_again &= job.max_runs is None or model.occurrences_run < job.max_runs
        if reason == "ended" or reason.startswith("its last run failed"):
            assert not comes_again, reason
            assert not isinstance(job.schedule, Manual), reason
        else:
            assert reason == "its handler returned False" or "failures in a row" in reason, reason

    @invariant()
    def nobody_complains(self) -> None:
        assert not self.complaints


class _Listener(logging.Handler):
    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        self._complaints.append(self.format(record))  # and where it happened


class InMemory(EngineMachine):
    kind = "memory"


class OnDisk(EngineMachine):
    kind = "file"


class OnServer(EngineMachine):
    kind = "postgres"


class Ahead(EngineMachine):
    """On a virtual clock a claim takes no time; here it is thought to take some, and is made ahead of time.

    Two jobs are a crowd already, of which one is claimed at a time, and one starts at a time.
    """

    def __init__(self) -> None:
        super().__init__()

        def learn(learner: ClaimAhead, _took: float, _count: int) -> None:
            learner._took, learner._took_each = 0.01, 0.1

        self.patches.setattr(ClaimAhead, "learn", learn)
        self.patches.setattr(claim_ahead, "CROWD", 2)
        self.patches.setattr(claimer, "CHUNK", 1)
        for name, few in {"CROWD": 2, "MOST_EARLY": 2}.items():
            self.patches.setattr(lookahead, name, few)
        self.patches.setattr(waiting, "SLICE", 1)


class AheadOnDisk(Ahead, OnDisk):
    pass


class AheadOnServer(Ahead, OnServer):
    pass


def explore(machine: type[EngineMachine], examples: int, steps: int, *, shrink: bool = False) -> None:
    """Tell stories. One that fails is shown as it was found; with *shrink*, it is made smaller for five minutes."""
    gc.collect()
    gc.freeze()  # each story ends with a collection, which need not look at all that was there before
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                phases=[Phase.reuse, Phase.generate, *([Phase.shrink] if shrink else [])],
                deadline=None,
                report_multiple_bugs=False,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        gc.unfreeze()


MACHINES = pytest.mark.parametrize(
    "machine",
    [
        pytest.param(InMemory, id="in memory"),
        pytest.param(OnDisk, id="on disk"),
        pytest.param(AheadOnDisk, id="on disk, ahead of time"),
        pytest.param(OnServer, id="on a server"),
        pytest.param(AheadOnServer, id="on a server, ahead of time"),
    ],
)


@MACHINES
@pytest.mark.timeout(900)
def test_whatever_happens_the_engine_keeps_its_promises(machine: type[EngineMachine]) -> None:
    """What no one thought of in a test of its own."""
    explore(machine, examples=10 if issubclass(machine, OnServer) else 30, steps=40)


@MACHINES
@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_whatever_happens_for_long_the_engine_keeps_its_promises(machine: type[EngineMachine]) -> None:
    """The same, for a night."""
    explore(machine, examples=2000, steps=80, shrink=True)
