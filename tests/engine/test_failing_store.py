"""A store that fails at every call it gets, one after another: nothing is lost, nothing runs twice, the loop goes on.

A story is told once with a store that works, to see what happens and to count the calls. Then it is told again for
each call, which fails: before it reaches the store, so that nothing happened, or after it, so that it happened and only
the answer was lost. What new code asks of the store is covered by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    Job,
    JobAlreadyRunningError,
    JobExistsError,
    JobNotFoundError,
    Manual,
    MemoryStore,
    Outcome,
    Retry,
    Run,
    RunRow,
    Scheduler,
    SchedulerShutdownError,
    SQLiteStore,
    Status,
    Store,
    StoreError,
    Trigger,
)
from scheduler_async.engine import troubles
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import JobFilter, RunFilter
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import MINUTE, SECOND, Micros, to_micros

pytestmark = pytest.mark.deep

NOON = "2026-01-05T12:00:00Z"
STEP = timedelta(seconds=30)
TICK = timedelta(milliseconds=2)
PATIENCE = 10.0  # seconds of real time for retries, which take milliseconds unless the machine is busy


@dataclass(frozen=True)
class Failure:
    """Which calls fail, and whether what they asked for happens all the same."""

    first: int
    length: int = 1
    happens: bool = False

    def covers(self, call: int) -> bool:
        return self.first <= call < self.first + self.length


class FailingStore:
    """A store that counts what it is asked, and fails when it is told to."""

    def __init__(self, inner: Store, failure: Failure | None) -> None:
        self.inner = inner
        self.failure = failure
        self.calls: list[str] = []
        self.failed: list[str] = []

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
            fails = self.failure is not None and self.failure.covers(len(self.calls))
            self.calls.append(name)
            if not fails:
                return await method(*args, **options)
            assert self.failure is not None
            self.failed.append(name)
            # A store is open or it is not: one that says it could not be opened has let go of everything.
            if self.failure.happens and name != "open":
                await method(*args, **options)
            raise StoreError(f"The store fails at {name}.")

        return call


Ran: TypeAlias = tuple[str, Micros, int]
"""A run that is not manual: its job, its occurrence, its attempt."""


@dataclass
class World:
    """A scheduler on a store that fails, and what its handler saw."""

    store: FailingStore
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOON))
    calls: list[Run] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """User calls that raised StoreError."""
    logged: list[logging.LogRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(cast(Store, self.store), clock=self.clock)
        self.scheduler.handler("work")(self.work)

    async def work(self, run: Run) -> None:
        self.calls.append(run)
        if run.job_id == "failing" and run.attempt == 1:
            raise ValueError("no")
        if run.job_id == "slow":
            await self.clock.sleep("90s")

    async def ask(self, job_id: str | None, question: Callable[[], Awaitable[object]]) -> None:
        """Do what a user does, and again if the store fails. A call that failed has changed nothing."""
        for _ in range(10):
            before = None if job_id is None else await self.definition_of(job_id)
            failures = len(self.store.failed)
            try:
                await question()
            except StoreError:
                self.refused += self.store.failed[failures:]
                assert len(self.store.failed) > failures, "an error without a cause"
                if job_id is not None and self.store.failure is not None and not self.store.failure.happens:
                    assert await self.definition_of(job_id) == before
                continue
            except SchedulerShutdownError:
                # The clock's time is up at once, and the retry of what could not be recorded takes real time.
                assert self.store.failed, "a run does not end, and nothing had failed"
                await self.settle()
                continue
            except (JobExistsError, JobNotFoundError, JobAlreadyRunningError):
                assert self.refused, "refused without a failure"
                assert self.store.failure is not None
                assert self.store.failure.happens, "a call that failed has changed something"
            return
        pytest.fail("the store works again, and the scheduler does not")

    async def definition_of(self, job_id: str) -> tuple[object, ...] | None:
        """What only a user changes about a job."""
        try:
            job = await self.store.inner.get("default", job_id)
        except StoreError:  # it is closed
            return None
        return None if job is None else (job.description, job.handler, job.revision, job.state.phase, job.anchor)

    async def advance(self, duration: str) -> None:
        """Move the clock, and let retries, which take real time, succeed before the next minute comes."""
        end = self.clock.now() + parse_interval(duration)
        while self.clock.now() < end:
            await self.clock.advance(min(end - self.clock.now(), STEP))
            await self.settle()

    async def settle(self) -> None:
        """Return when no run that has ended waits to be recorded."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while (ended := self.scheduler._engine.session.ended_runs).unrecorded or ended.arrived.is_set():
            assert asyncio.get_running_loop().time() < deadline, "ended runs are never recorded"
            await self.tick()
        await self.clock.advance()

    async def tick(self) -> None:
        """Let a moment pass, whichever clock a retry waits for."""
        await asyncio.sleep(0.001)
        await self.clock.advance(TICK)

    async def jobs(self) -> dict[str, Job]:
        return {job.id: job for job in await self.store.inner.list_jobs(JobFilter())}

    async def rows(self) -> list[RunRow]:
        """The run log, oldest first."""
        return (await self.store.inner.list_runs(RunFilter()))[::-1]

    @property
    def ran(self) -> list[Ran]:
        return [
            (run.job_id, to_micros(run.scheduled_for), run.attempt)
            for run in self.calls
            if run.trigger is not Trigger.MANUAL
        ]


Story: TypeAlias = Callable[[World], Awaitable[None]]


async def a_day_in_the_loop(world: World) -> None:
    """Start, add, run, fail, edit, pause, resume, trigger and remove, with the loop."""
    scheduler = world.scheduler
    await world.ask(None, scheduler.start)
    await world.ask("steady", lambda: scheduler.add_job(Every("1m"), handler="work", id="steady"))
    await world.ask(
        "failing", lambda: scheduler.add_job(Every("2m"), handler="work", id="failing", retry=Retry.in_window(1))
    )
    await world.ask("slow", lambda: scheduler.add_job(Every("1m"), handler="work", id="slow"))
    await world.ask("delay", lambda: scheduler.add_job(Delay("1m"), handler="work", id="delay"))
    await world.ask("once", lambda: scheduler.add_job(At("2026-01-05T12:03:00Z"), handler="work", id="once"))
    await world.ask("edited", lambda: scheduler.add_job(Cron("*/2 * * * *", tz="UTC"), handler="work", id="edited"))
    await world.advance("181s")  # a second later, so that what failed on the minute is over
    await world.ask("edited", lambda: scheduler.update_job("edited", schedule=Every("90s")))
    await world.ask("steady", lambda: scheduler.trigger_job("steady"))
    await world.advance("1s")
    await world.ask("delay", lambda: scheduler.pause_job("delay"))
    await world.advance("2m")
    await world.ask("delay", lambda: scheduler.resume_job("delay"))
    await world.ask("failing", lambda: scheduler.remove_job("failing"))
    await world.advance("3m")


async def one_job_alone(world: World) -> None:
    """Nobody else's business wakes the loop for it."""
    await world.ask(None, world.scheduler.start)
    await world.ask("steady", lambda: world.scheduler.add_job(Every("1m"), handler="work", id="steady"))
    await world.advance("4m")


async def passes_by_hand(world: World) -> None:
    """Without the loop: the store opens with the first call, and each pass is awaited."""
    scheduler = world.scheduler
    await world.ask("steady", lambda: scheduler.add_job(Every("1m"), handler="work", id="steady"))
    await world.ask("manual", lambda: scheduler.add_job(Manual(), handler="work", id="manual"))
    for _ in range(3):
        await world.clock.advance("1m")
        await world.ask(None, lambda: while_time_passes(world, scheduler.run_pending()))
    await world.ask("manual", lambda: scheduler.trigger_job("manual"))
    await world.settle()
    await world.ask(None, lambda: scheduler.get_job("steady"))
    await world.ask(None, scheduler.list_jobs)
    await world.ask(None, scheduler.run_log)
    await world.ask(None, scheduler.preview)
    await world.ask(None, lambda: scheduler.explain("steady"))
    await world.ask(None, lambda: scheduler.run_stats("steady"))
    await world.ask(None, scheduler.start)
    await world.advance("1m")


async def while_time_passes(world: World, work: Coroutine[Any, Any, object]) -> None:
    """A pass waits for what it runs to be recorded, and a retry of that waits for the clock."""
    task = asyncio.create_task(work)
    async with asyncio.timeout(PATIENCE):
        while not task.done():
            await world.tick()
    await task


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "FIRST_RETRY", 0.001)
    monkeypatch.setattr(troubles, "LAST_RETRY", 0.004)


class Listener(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.INFO)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What the package says."""
    records: list[logging.LogRecord] = []
    listener = Listener(records)
    logger = logging.getLogger("scheduler_async")
    level, propagates = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield records
    logger.removeHandler(listener)
    logger.setLevel(level)
    logger.propagate = propagates


@dataclass
class Told:
    """What came of a story."""

    world: World
    jobs: dict[str, Job]
    rows: list[RunRow]
    ended_at: datetime


async def tell(
    story: Story,
    check: Callable[[Told], None],
    logged: list[logging.LogRecord],
    path: str | Path,
    failure: Failure | None = None,
) -> World:
    """Tell a story, check what came of it while the scheduler runs on, and stop."""
    logged.clear()
    inner = MemoryStore() if path == ":memory:" else SQLiteStore(path)
    world = World(FailingStore(inner, failure), logged=logged)
    try:
        await story(world)
        # Nobody says a word to the scheduler, and it goes on. What failed at the last minute gets its second.
        await world.advance("301s")
        told = Told(world, await world.jobs(), await world.rows(), world.clock.now())
        check(told)
        await check_that_the_loop_lives(world)
        await world.ask(None, lambda: world.scheduler.stop(timeout=PATIENCE, cancel=True))
        await check_that_it_can_start_again(world)
    finally:
        # Whatever was found above, it must not hold up the next story.
        world.store.failure = None
        with suppress(SchedulerShutdownError):
            await world.scheduler.stop(timeout=PATIENCE, cancel=True)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await inner.close()
    return world


async def check_that_the_loop_lives(world: World) -> None:
    await world.ask(
        "later", lambda: world.scheduler.add_job(At(world.clock.now()), handler="work", id="later", retry=Retry.none())
    )
    await world.advance("1s")
    assert any(run.job_id == "later" for run in world.calls), "a job that was added later does not run"


async def check_that_it_can_start_again(world: World) -> None:
    assert world.scheduler.status == "stopped"
    await world.ask(None, world.scheduler.start)
    assert world.scheduler.status == "running"
    await world.ask(None, lambda: world.scheduler.stop(timeout=PATIENCE, cancel=True))
    assert world.scheduler.status == "stopped"


def check_whatever_failed(told: Told) -> None:
    """What holds no matter which call failed, and how."""
    world = told.world
    repeated = [key for key, times in Counter(world.ran).items() if times > 1]
    assert not repeated, f"ran twice: {repeated}"
    kept = [(row.job_id, row.scheduled_for, row.attempt) for row in told.rows if row.trigger is not Trigger.MANUAL]
    repeated_rows = [key for key, times in Counter(kept).items() if times > 1 and key[2]]
    assert not repeated_rows, f"logged twice: {repeated_rows}"
    check_that_nothing_hangs(told)
    check_that_every_job_goes_on(told)
    check_that_every_minute_is_accounted_for(told)
    check_that_the_failure_shows(world)


def check_that_nothing_hangs(told: Told) -> None:
    """Only `slow` runs on; its row and its status say so, and its handler knows."""
    running = {job.id for job in told.jobs.values() if job.status in (Status.RUNNING, Status.QUEUED)}
    unfinished = {row.job_id for row in told.rows if row.outcome is None}
    assert running == unfinished
    assert running <= {"slow"}, f"still running, although their handlers have ended or were never called: {running}"


def check_that_every_job_goes_on(told: Told) -> None:
    """Jobs that come again have run within the last three minutes, by themselves."""
    for job_id in {"steady", "slow", "delay", "edited"} & told.jobs.keys():
        latest = max(
            (row.started_at for row in told.rows if row.job_id == job_id and row.started_at is not None), default=None
        )
        assert latest is not None, f"{job_id} never ran"
        assert (told.ended_at - latest).total_seconds() <= 180, f"{job_id} has not run since {latest}"


def check_that_every_minute_is_accounted_for(told: Told) -> None:
    """Each regular time of the jobs on a one-minute grid has run, or has a row that says why not."""
    for job_id in {"steady", "slow"} & told.jobs.keys():
        job = told.jobs[job_id]
        covered: list[Micros] = []
        for row in told.rows:
            first = to_micros(row.scheduled_for)
            if row.job_id != job_id or row.trigger is Trigger.MANUAL:
                continue
            if row.attempt == 1:
                covered.append(first)
            elif row.outcome is Outcome.SKIPPED:
                covered += [first + k * MINUTE for k in range(row.missed)]
        end = to_micros(told.ended_at) if job.next_run_at is None else to_micros(job.next_run_at) - 1
        if job.status is Status.RUNNING:  # what passes meanwhile is written down when it ends
            end = max(covered)
        expected = range(job.anchor + MINUTE, end + 1, MINUTE)
        assert sorted(covered) == list(expected), f"{job_id} lost or repeated an occurrence"


def check_that_the_failure_shows(world: World) -> None:
    """Each failure is raised to whoever asked, or logged: with a traceback, or when it goes on, in a line."""
    errors = [record for record in world.logged if record.levelno >= logging.ERROR]
    logged = [record for record in errors if record.exc_info or "The store fails at" in record.getMessage()]
    unseen = len(world.store.failed) - len(world.refused) - len(logged)
    assert unseen <= 0, f"{world.store.failed} failed, and nobody was told"
    crashed = [record.getMessage() for record in world.logged if " ended: " in record.getMessage()]
    assert not crashed, f"a task of the engine died: {crashed}"


def outline(told: Told) -> dict[str, object]:
    """What must come out the same whether a call failed or not, as long as nothing was half done.

    To the second: a claim that fails is made again a few milliseconds later, and a `Delay` counts from there.
    """

    def second(moment: datetime | None) -> int | None:
        return None if moment is None else to_micros(moment) // SECOND

    return {
        "ran": sorted(
            (run.job_id, second(run.scheduled_for), run.attempt, run.trigger, run.payload) for run in told.world.calls
        ),
        "rows": sorted(
            (row.job_id, second(row.scheduled_for), row.attempt, str(row.outcome), str(row.reason), row.missed)
            for row in told.rows
        ),
        "jobs": sorted(
            (job.id, job.status, second(job.next_run_at), job.consecutive_errors, job.disabled_reason)
            for job in told.jobs.values()
        ),
    }


STORIES = [
    pytest.param(a_day_in_the_loop, id="a day in the loop"),
    pytest.param(one_job_alone, id="one job alone"),
    pytest.param(passes_by_hand, id="passes by hand"),
]


async def rehearse(story: Story, logged: list[logging.LogRecord], path: str | Path) -> tuple[int, dict[str, object]]:
    """Tell the story with a store that works: how many calls it takes, and what comes of it."""
    outlines: list[dict[str, object]] = []

    def check(told: Told) -> None:
        check_whatever_failed(told)
        outlines.append(outline(told))

    world = await tell(story, check, logged, path)
    assert not world.store.failed
    assert not [record for record in logged if record.levelno >= logging.ERROR]
    return len(world.store.calls), outlines[0]


async def fail_everywhere(
    story: Story, logged: list[logging.LogRecord], tmp_path: Path, *, on_disk: bool, length: int = 1, happens: bool
) -> None:
    """Tell *story* once for each call, which fails, and gather what went wrong."""

    def path_of(name: object) -> str | Path:
        return tmp_path / f"{name}.db" if on_disk else ":memory:"

    calls, expected = await rehearse(story, logged, path_of("rehearsal"))
    problems: list[str] = []

    def check(told: Told) -> None:
        check_whatever_failed(told)
        if not happens:
            assert outline(told) == expected

    for first in range(calls):
        failure = Failure(first, length, happens)
        try:
            world = await tell(story, check, logged, path_of(first), failure)
            assert world.store.failed, "the call did not fail: the story is told differently each time"
        except Exception as error:  # all of them are wanted, not only the first
            problems.append(f"call {first}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_a_call_that_fails_changes_nothing_in_the_end(
    story: Story, on_disk: bool, logged: list[logging.LogRecord], tmp_path: Path
) -> None:
    """A store that fails once is asked again: the same runs at the same times, as if nothing had happened."""
    await fail_everywhere(story, logged, tmp_path, on_disk=on_disk, happens=False)


@pytest.mark.parametrize("story", STORIES)
async def test_a_store_that_fails_for_a_while_changes_nothing_in_the_end(
    story: Story, logged: list[logging.LogRecord], tmp_path: Path
) -> None:
    """The second failure finds the engine in the middle of getting over the first."""
    await fail_everywhere(story, logged, tmp_path, on_disk=False, length=3, happens=False)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_a_lost_answer_loses_no_run(
    story: Story, on_disk: bool, logged: list[logging.LogRecord], tmp_path: Path
) -> None:
    """What happened without our knowing is found out: a claim is taken up or put back, an ending is not repeated."""
    await fail_everywhere(story, logged, tmp_path, on_disk=on_disk, happens=True)


@pytest.mark.parametrize("happens", [False, True], ids=["before", "after"])
async def test_the_error_reaches_the_caller_and_says_what_failed(
    happens: bool, logged: list[logging.LogRecord]
) -> None:
    """A user call is not retried behind the user's back: whether to ask again is for the user to decide."""
    world = World(FailingStore(MemoryStore(), None), logged=logged)
    await world.scheduler.add_job(Manual(), handler="work", id="a")
    try:
        world.store.failure = Failure(0, 1_000_000, happens)
        questions: list[Callable[[], Awaitable[object]]] = [
            lambda: world.scheduler.add_job(Manual(), handler="work", id="b"),
            lambda: world.scheduler.update_job("a", payload=1),
            lambda: world.scheduler.pause_job("a"),
            lambda: world.scheduler.resume_job("a"),
            lambda: world.scheduler.disable_job("a"),
            lambda: world.scheduler.get_job("a"),
            world.scheduler.list_jobs,
            world.scheduler.run_log,
            lambda: world.scheduler.run_stats("a"),
            world.scheduler.preview,
            lambda: world.scheduler.explain("a"),
            world.scheduler.run_pending,
            lambda: world.scheduler.trigger_job("a"),
            lambda: world.scheduler.remove_job("a"),
            world.scheduler.start,
        ]
        for question in questions:
            with pytest.raises(StoreError, match="The store fails at"):
                await question()

        assert world.scheduler.status == "stopped"
    finally:
        world.store.failure = None
        await world.scheduler.stop()
        await world.store.inner.close()
