"""Schedules of users that take their time: their code never runs within a transaction, and holds up nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import pytest

from scheduler_async import AnyOf, At, Every, Hours, JobSpec, Schedule, Scheduler
from scheduler_async.engine import deciding
from scheduler_async.schedules import base, patience
from scheduler_async.stores.liveness import retire
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of


@dataclass(frozen=True)
class Quarters(Schedule):
    """Every quarter of an hour. It can be told to block, and notes which threads ask."""

    kind = "test-slow-quarters"
    name: str = ""
    gate: ClassVar[threading.Event] = threading.Event()
    asked: ClassVar[threading.Event] = threading.Event()
    threads: ClassVar[set[str]] = set()

    def __post_init__(self) -> None:
        self.threads.add(threading.current_thread().name)

    def next_after(self, now: datetime) -> datetime:
        self.threads.add(threading.current_thread().name)
        if not self.gate.is_set():
            self.asked.set()
            self.gate.wait(PATIENCE)
        return now + 15 * MINUTE - (now - NOON) % (15 * MINUTE)


@dataclass(frozen=True)
class Steady(Schedule):
    """Every quarter of an hour. It takes a moment, and notes how many threads ask at once."""

    kind = "test-steady-quarters"
    takes: float = 0.0
    asking: ClassVar[set[int]] = set()
    most: ClassVar[int] = 0

    def next_after(self, now: datetime) -> datetime:
        self.asking.add(threading.get_ident())
        Steady.most = max(self.most, len(self.asking))
        threading.Event().wait(self.takes)
        self.asking.discard(threading.get_ident())
        return now + 15 * MINUTE - (now - NOON) % (15 * MINUTE)


@pytest.fixture(autouse=True)
def gate() -> Iterator[threading.Event]:
    Quarters.gate.set()
    Quarters.asked.clear()
    Quarters.threads.clear()
    yield Quarters.gate
    Quarters.gate.set()


@pytest.fixture
async def others(new_scheduler: NewScheduler, every_store: str) -> AsyncIterator[list[Scheduler]]:
    """Two schedulers on a store, as two processes have them; in memory the same one twice."""
    async with new_scheduler(every_store) as one, AsyncExitStack() as stack:
        is_alone = every_store == ":memory:"
        other = one if is_alone else await stack.enter_async_context(new_scheduler(every_store))
        for job_id in ("plain", "other"):
            await one.add_job(Every("1d"), handler="work", id=job_id)
        yield [one, other]


IN_THREAD = {"scheduler_async schedule"}


async def go_on(clock: VirtualClock, schedulers: list[Scheduler]) -> None:
    """See that all other jobs go on, in this process and in others, and can be edited."""
    async with asyncio.timeout(PATIENCE):
        for scheduler, job_id in zip(schedulers, ("plain", "other"), strict=True):
            await scheduler.add_job(At(clock.now()), handler="work", id=f"{job_id} now")
            row = await scheduler.run_job(job_id)
            assert row.outcome == "success"
            await scheduler.update_job(job_id, name="renamed")
            assert (await job_of(scheduler, job_id)).name == "renamed"


async def blocked(work: Coroutine[Any, Any, Any], clock: VirtualClock, schedulers: list[Scheduler]) -> Any:
    """Do *work* that asks the schedule, which blocks until all others have gone on."""
    Quarters.asked.clear()
    Quarters.gate.clear()
    doing = asyncio.create_task(work)
    asked = asyncio.to_thread(Quarters.asked.wait, PATIENCE)
    assert await asked, "the schedule was not asked"
    await go_on(clock, schedulers)
    assert not doing.done()
    Quarters.gate.set()
    return await doing


async def late(one: Scheduler, clock: VirtualClock) -> None:
    """A claim that is late asks what it has missed."""
    clock.set(NOON + 16 * MINUTE)
    await clock.advance()


async def in_time(one: Scheduler, clock: VirtualClock) -> None:
    """An ending asks when the next occurrence is."""
    await clock.advance("15m")


async def edited(one: Scheduler, clock: VirtualClock) -> None:
    await one.update_job("slow", schedule=Quarters("new"))


async def replaced(one: Scheduler, clock: VirtualClock) -> None:
    await one.add_job(Quarters("newer"), handler="work", id="slow", on_conflict="replace")


async def added(one: Scheduler, clock: VirtualClock) -> None:
    await one.add_job(Quarters(), handler="work", id="another")


async def backfilled(one: Scheduler, clock: VirtualClock) -> None:
    await one.backfill_job("slow", NOON - HOUR, NOON)


Step = Callable[[Scheduler, VirtualClock], Awaitable[None]]


@pytest.mark.parametrize("step", [late, in_time, edited, replaced, added, backfilled])
async def test_a_schedule_that_blocks_holds_up_only_its_own_job(
    step: Step, others: list[Scheduler], clock: VirtualClock, worker: Worker
) -> None:
    await others[0].add_job(Quarters(), handler="work", id="slow")

    await blocked(step(others[0], clock), clock, others)  # type: ignore[arg-type]
    await clock.advance("1h")

    assert worker.ids.count("slow") >= 4
    assert (await job_of(others[0], "slow")).enabled
    assert Quarters.threads - IN_THREAD <= {"MainThread"}  # which made the values


@pytest.mark.parametrize("step", ["pause", "resume", "remove", "disable"])
async def test_a_change_that_asks_a_schedule_holds_up_nothing_else(
    step: str, others: list[Scheduler], clock: VirtualClock
) -> None:
    one = others[0]
    await one.add_job(Quarters(), handler="gone", id="slow")
    if step == "resume":
        await one.pause_job("slow")
    await clock.advance("50m")

    await blocked(getattr(one, f"{step}_job")("slow"), clock, others)

    (row,) = await one.run_log("slow")
    assert row.missed == 3
    assert row.scheduled_for == NOON + 15 * MINUTE


async def test_the_end_of_a_pause_waits_for_the_schedule_alone(
    others: list[Scheduler], clock: VirtualClock, worker: Worker
) -> None:
    one = others[0]
    await one.add_job(Quarters(), handler="work", id="slow")
    await one.add_job(Every("1d"), handler="work", id="fast")
    for job_id in ("slow", "fast"):
        await one.pause_job(job_id, until="50m")

    await blocked(clock.advance("50m"), clock, others)
    await clock.advance("10m")

    (ran, skipped) = await one.run_log("slow")
    assert (ran.outcome, ran.scheduled_for) == ("success", NOON + HOUR)
    assert (skipped.reason, skipped.missed) == ("paused", 3)


async def test_a_clock_that_goes_back_moves_other_jobs_at_once(
    others: list[Scheduler], clock: VirtualClock, worker: Worker
) -> None:
    one = others[0]
    clock.set(NOON + 24 * HOUR)
    await clock.advance()
    await one.add_job(Quarters(), handler="work", id="slow")
    await one.add_job(Every("15m"), handler="work", id="fast")

    async def go_back() -> None:
        clock.set(NOON)
        await clock.advance()

    await blocked(go_back(), clock, others)
    worker.runs.clear()
    await clock.advance("15m")

    assert sorted(worker.ids) == ["fast", "slow"]


async def test_the_ending_of_a_run_whose_job_was_edited_is_recorded(
    others: list[Scheduler], clock: VirtualClock, worker: Worker
) -> None:
    one, other = others
    await one.add_job(Quarters(), handler="work", id="slow")
    worker.takes = "20m"
    await clock.advance("16m")
    worker.takes = None
    await other.update_job("slow", name="edited")
    await other.pause_job("slow")
    await blocked(clock.advance("20m"), clock, others)
    await clock.advance("30m")
    await one.resume_job("slow")

    rows = [(row.outcome, row.reason, row.missed) for row in await one.run_log("slow")]
    assert rows == [("skipped", "paused", 3), ("success", None, 0)]


async def test_the_runs_of_a_dead_process_are_recovered_when_the_schedule_answers(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    dying = new_scheduler(shared)
    await dying.start()
    for job_id in ("plain", "other"):
        await dying.add_job(Every("1d"), handler="work", id=job_id)
    for job_id, schedule in (("slow", Quarters()), ("fast", Every("15m"))):
        await dying.add_job(schedule, handler="work", id=job_id)
    worker.blocks = True
    await clock.advance("15m")
    worker.blocks = False
    identity = dying._engine.session.node.identity
    assert identity is not None
    retire(identity)  # to others, it looks like a process that has died

    one = new_scheduler(shared)
    Quarters.asked.clear()
    Quarters.gate.clear()
    await one.start()
    assert await asyncio.to_thread(Quarters.asked.wait, PATIENCE)
    await go_on(clock, [one, one])
    Quarters.gate.set()
    await clock.advance()

    for job_id in ("slow", "fast"):
        rows = await one.run_log(job_id)
        assert [row.outcome for row in rows] == ["success", "interrupted"], job_id
    assert Quarters.threads - IN_THREAD <= {"MainThread"}


@pytest.mark.parametrize("step", ["ending", "claim"])
async def test_a_schedule_that_never_answers_disables_its_job(
    step: str, others: list[Scheduler], clock: VirtualClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    one = others[0]
    await one.add_job(Quarters(), handler="work", id="slow")
    Quarters.gate.clear()
    if step == "claim":
        clock.set(NOON + 16 * MINUTE)
    await clock.advance("15m")
    job = await job_of(one, "slow")

    assert job.disabled_reason == (
        'its schedule fails: next_after() of the schedule "test-slow-quarters" has not answered within 0.01 seconds'
    )
    assert worker.ids.count("slow") == (1 if step == "ending" else 0)


async def test_an_edit_waits_for_the_schedule_of_its_own_job_alone(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock
) -> None:
    async with new_scheduler(every_store) as scheduler:
        for job_id, schedule in (("slow", Quarters()), ("quick", Steady())):
            await scheduler.add_job(schedule, handler="gone", id=job_id)
        await clock.advance("50m")
        Quarters.gate.clear()
        pausing = asyncio.create_task(scheduler.pause_job("slow"))
        assert await asyncio.to_thread(Quarters.asked.wait, PATIENCE)

        async with asyncio.timeout(PATIENCE / 2):
            await scheduler.pause_job("quick")
            await scheduler.remove_job("quick")

        assert not pausing.done()
        Quarters.gate.set()
        await pausing


async def test_a_schedule_may_answer_many_questions_in_more_than_the_time_for_one(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage, it is asked about each of many occurrences."""
    async with new_scheduler(store) as scheduler:
        await scheduler.add_job(Steady(takes=0.004), handler="work", id="slow", misfire="run_all", catch_up_limit=5)
        monkeypatch.setattr(patience, "PATIENCE", 0.1)
        clock.set(NOON + 100 * HOUR)
        await clock.advance("1m")
        job = await job_of(scheduler, "slow")

    assert job.disabled_reason is None
    assert worker.fired(HOUR)[0] == 100
    assert [run.scheduled_for for run in worker.runs] == [NOON + n * 15 * MINUTE for n in range(396, 401)]


async def test_many_schedules_are_asked_a_few_at_a_time(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process can have only so many threads. One that cannot be started is no answer, and is tried again."""
    start, refused = threading.Thread.start, list[str]()

    def refuse_some(self: threading.Thread) -> None:
        if self.name in IN_THREAD and len(refused) < 3:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(deciding, "THREAD_PAUSE", 0.001)
    async with new_scheduler(store) as scheduler:
        ids = [f"job {n}" for n in range(2 * deciding.MOST_THREADS)]
        await scheduler.add_jobs([JobSpec(Steady(takes=0.02), handler="work", id=job_id) for job_id in ids])
        monkeypatch.setattr(threading.Thread, "start", refuse_some)
        Steady.most = 0
        await clock.advance("16m")

    assert sorted(worker.ids) == sorted(ids)
    assert set(worker.fired()) == {15.0}
    assert len(refused) == 3
    assert 1 <= Steady.most <= deciding.MOST_THREADS


async def test_one_pass_waits_for_a_schedule(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Quarters(), handler="work", id="slow")
    await scheduler.add_job(AnyOf(Quarters(), Every("1d")), handler="work", id="one of two")
    await scheduler.add_job(Every("5m").on(Hours("00:00-24:00")), handler="work", id="plain")
    clock.set(NOON + 40 * MINUTE)

    summary = await scheduler.run_pending()

    assert (summary.executed, summary.succeeded) == (3, 3)
    for job_id in ("slow", "one of two"):
        rows = [(row.outcome, row.missed) for row in await scheduler.run_log(job_id)]
        assert sorted(rows) == [("skipped", 1), ("success", 0)]
    assert Quarters.threads - IN_THREAD <= {"MainThread"}


@pytest.mark.parametrize("options", [{"misfire": "run_all"}, {"max_instances": 2}, {"overlap": "queue"}, {}])
async def test_each_occurrence_is_accounted_for(
    options: dict[str, Any], new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(Quarters(), handler="work", id="slow", **options)
        worker.takes = "40m"
        await clock.advance("3h")
        worker.takes = None
        clock.set(NOON + 5 * HOUR)
        await clock.advance("2h")
        rows = await scheduler.run_log("slow", limit=100)

    assert sum(max(row.missed, 1) for row in rows if row.attempt <= 1) == 4 * 7
    assert Quarters.threads - IN_THREAD <= {"MainThread"}


async def test_a_schedule_is_never_made_within_a_transaction(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    """A store reads it as JSON, and calls its constructor."""
    async with new_scheduler(shared) as first:
        await first.add_job(Quarters(), handler="work", id="slow")
    base.stored_schedule.cache_clear()
    Quarters.threads.clear()
    async with new_scheduler(shared) as second:
        await second.add_job(Every("15m"), handler="work", id="plain")
        await clock.advance("30m")

    assert worker.ids.count("slow") == worker.ids.count("plain") == 2
    assert Quarters.threads == IN_THREAD


@dataclass(frozen=True)
class Changed(Schedule):
    """A schedule whose class no longer takes what an older version of it has stored."""

    kind = "test-changed"
    problem: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.problem == "hangs" and threading.current_thread().name in IN_THREAD:
            threading.Event().wait(PATIENCE)
        elif self.problem == "exits":
            raise SystemExit(3)
        elif self.problem:
            raise ZeroDivisionError(self.problem)

    def next_after(self, now: datetime) -> datetime:
        return now + 15 * MINUTE - (now - NOON) % (15 * MINUTE)


@pytest.mark.parametrize("problem", ["raises", "exits", "hangs"])
async def test_a_job_whose_schedule_cannot_be_made_again_is_disabled_and_can_be_mended(
    problem: str,
    new_scheduler: NewScheduler,
    shared: str,
    clock: VirtualClock,
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next try to make it would fail in the same way, so transactions must not ask for it again and again."""
    monkeypatch.setattr(patience, "PATIENCE", 0.01 if problem == "hangs" else PATIENCE)
    async with new_scheduler(shared) as first:
        for job_id in ("declared", "due", "edited", "removed"):
            await first.add_job(Changed(), handler="work", id=job_id)
    base.stored_schedule.cache_clear()
    monkeypatch.setattr(Changed, "problem", problem)
    second = new_scheduler(shared)
    second.job(Every("15m"), id="declared", handler="work")(worker)

    async with asyncio.timeout(PATIENCE), second:
        await second.remove_job("removed")
        await second.update_job("edited", schedule=Every("15m"))
        await clock.advance("1h")
        monkeypatch.setattr(Changed, "problem", "")
        base.stored_schedule.cache_clear()
        jobs = {job.id: job.disabled_reason or "" for job in await second.list_jobs()}

    assert jobs == {"declared": "", "due": jobs["due"], "edited": ""}
    assert jobs["due"].startswith("it cannot be read from the store: schedule: The constructor of the schedule")
    assert sorted(worker.ids) == ["declared"] * 4 + ["edited"] * 4
