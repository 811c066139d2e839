"""Mistakes that schedulers make, one after another: each test fails if this one makes it too."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    Cron,
    EventKind,
    Every,
    JobExistsError,
    JobSpec,
    Manual,
    Outcome,
    Result,
    Retry,
    Run,
    Scheduler,
    SkipReason,
    SQLiteStore,
    Status,
    Trigger,
)
from scheduler_async.engine.claimer import CHUNK
from scheduler_async.jobs.run import EndedRun
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.running.runner import Runner
from scheduler_async.stores.messages import Claims, ClaimTerms
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import Micros
from tests.cast import HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of


async def advance(clock: VirtualClock, duration: str | timedelta = timedelta(0)) -> None:
    """As `clock.advance`, but a scheduler that never comes to rest fails the test instead of hanging it."""
    async with asyncio.timeout(PATIENCE):
        await clock.advance(duration)


# ---------------------------------------------------------------- 1: clear the event before looking


class Meddling(SQLiteStore):
    """A store in which something happens while the loop looks at it: after the answer is made, before it arrives."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.meddle: Callable[[], Any] | None = None

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        claims = await super().claim_due(now, terms)
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return claims


async def test_trap_1_a_job_added_while_the_loop_looks_is_not_slept_over(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Clearing the event after looking would lose the wake-up, and the job would wait for the sleep to end."""
    meddling = Meddling(path)
    scheduler = new_scheduler(meddling)
    meddling.meddle = lambda: scheduler.add_job(At(NOON), handler="work", id="a")

    await scheduler.start()
    await advance(clock)

    assert worker.ids == ["a"]


async def test_trap_1_a_job_due_soon_that_is_added_while_the_loop_looks_is_in_time(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The answer that is under way knows nothing of it, and says to sleep for an hour."""
    meddling = Meddling(path)
    scheduler = new_scheduler(meddling)
    await scheduler.add_job(Every("1h"), handler="work", id="hourly")
    meddling.meddle = lambda: scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    await scheduler.start()
    await advance(clock, "1m")

    assert worker.fired() == [1]


async def test_trap_1_a_handler_registered_while_the_loop_looks_is_used(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """What was asked with the old list of handlers must be asked again."""
    meddling = Meddling(path)
    scheduler = new_scheduler(meddling)
    calls: list[str] = []
    await scheduler.add_job(At(NOON), handler="late", id="a")

    async def register() -> None:
        @scheduler.handler("late")
        async def late(run: Run) -> None:
            calls.append(run.job_id)

    meddling.meddle = register
    await scheduler.start()
    await advance(clock)

    assert calls == ["a"]


# ---------------------------------------------------------------- 2: cancelled while queued


async def test_trap_2_a_run_cancelled_while_it_waits_for_a_slot_is_free_again(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It never ran: the job is as due as before, without a row, and not "queued" for ever."""
    scheduler = new_scheduler(path, max_concurrent=1, queue_size=2)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abc"])
    await advance(clock)

    await scheduler.stop(cancel=True)

    jobs = {name: await job_of(scheduler, name) for name in "bc"}
    assert worker.ids == ["a"]
    assert [(job.status, job.next_run_at, job.last_run_at) for job in jobs.values()] == [(Status.IDLE, NOON, None)] * 2
    assert await scheduler.run_log("b") == []


async def test_trap_2_a_queued_run_whose_job_is_removed_does_not_take_its_slot_along(
    store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """When its turn would have come, the next one goes."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=1)
    worker.takes = "1m"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abc"])
    await advance(clock)

    await scheduler.remove_job("b")
    await advance(clock, "2m")

    assert worker.ids == ["a", "c"]
    assert worker.fired() == [0, 1]


@pytest.mark.parametrize("options", [{"max_concurrent": 1}, {"group_limits": 1}], ids=["slot", "group"])
async def test_trap_2_a_running_job_that_is_removed_gives_its_slot_back_at_once(
    options: dict[str, Any], store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A run that ends without a trace ends all the same, and somebody waits for its place."""
    scheduler = new_scheduler(store, **options)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name, group="g") for name in "ab"])
    await advance(clock)

    await scheduler.remove_job("a")
    await advance(clock)

    assert worker.ids == ["a", "b"]
    assert worker.cancelled == 1


# ---------------------------------------------------------------- 3: cancelled before the first step


@pytest.mark.parametrize("how", ["loop", "trigger"])
async def test_trap_3_a_task_cancelled_before_its_first_step_is_put_back(
    how: str,
    scheduler: Scheduler,
    worker: Worker,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of its body runs, not even a finally: somebody else must notice, and the occurrence runs after all."""
    start = Runner.start
    cancelled: list[ActiveRun] = []

    def start_and_cancel_the_first(self: Runner, active: ActiveRun, *args: Any, **options: Any) -> None:
        start(self, active, *args, **options)
        if not cancelled:
            cancelled.append(active)
            assert active.task is not None
            active.task.cancel()

    monkeypatch.setattr(Runner, "start", start_and_cancel_the_first)
    await scheduler.add_job(At(NOON) if how == "loop" else Manual(), handler="work", id="a")
    if how == "trigger":
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(scheduler.trigger_job("a"), return_exceptions=True)

    await advance(clock)

    assert len(cancelled) == 1
    assert (await job_of(scheduler)).status in (Status.IDLE, Status.DISABLED)
    assert scheduler.state().running == scheduler.state().queued == 0
    if how == "loop":
        assert worker.ids == ["a"]
        assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


# ---------------------------------------------------------------- 4: transactions are not shared


async def test_trap_4_one_tasks_rollback_does_not_take_anothers_work_along(scheduler: Scheduler) -> None:
    """On one connection, two tasks would share commit and rollback."""

    async def fail(number: int) -> None:
        with pytest.raises(JobExistsError):
            await scheduler.add_jobs(
                [
                    JobSpec(Manual(), handler="work", id=f"never-{number}"),
                    JobSpec(Manual(), handler="work", id="taken"),
                ]
            )

    async def succeed(number: int) -> None:
        await scheduler.add_job(Manual(), handler="work", id=f"good-{number}")

    await scheduler.add_job(Manual(), handler="work", id="taken")

    await asyncio.gather(*(task(number) for number in range(30) for task in (fail, succeed)))

    ids = {job.id for job in await scheduler.list_jobs()}
    assert ids == {"taken", *(f"good-{number}" for number in range(30))}


async def test_trap_4_edits_of_one_job_from_many_tasks_are_all_made(scheduler: Scheduler) -> None:
    """Each reads what the one before has written; none overwrites another's field."""
    await scheduler.add_job(Manual(), handler="work", id="a")

    await asyncio.gather(
        scheduler.update_job("a", name="A"),
        scheduler.update_job("a", group="g"),
        scheduler.update_job("a", priority="low"),
        scheduler.update_job("a", payload=[1]),
        scheduler.pause_job("a"),
    )

    job = await job_of(scheduler)
    assert (job.name, job.group, job.priority, job.payload, job.status) == ("A", "g", "low", [1], Status.PAUSED)


# ---------------------------------------------------------------- 5: order


async def test_trap_5_what_is_claimed_together_starts_in_order(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """UPDATE … RETURNING has none; the order of insertion is not it either."""
    names = [f"{number * 37 % 101:03}" for number in range(101)]
    priorities = {name: ("low", "high", "standard")[int(name) % 3] for name in names}

    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=n, priority=priorities[n]) for n in names])
    await advance(clock)

    rank = ["high", "standard", "low"].index
    assert worker.ids == sorted(names, key=lambda name: (rank(priorities[name]), name))


# ---------------------------------------------------------------- 6: tasks are kept


async def test_trap_6_a_run_is_not_collected_as_garbage(scheduler: Scheduler, clock: VirtualClock) -> None:
    """asyncio keeps weak references: a task that waits for what only it knows would vanish."""
    futures: list[weakref.ref[asyncio.Future[None]]] = []

    @scheduler.handler("wait")
    async def wait() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        futures.append(weakref.ref(future))
        await future

    await scheduler.add_job(At(NOON), handler="wait", id="a")
    await clock.advance(wait_for_runs=False)
    for _ in range(3):
        gc.collect()

    future = futures[0]()
    assert future is not None
    future.set_result(None)
    await advance(clock)
    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


# ---------------------------------------------------------------- 7: what cannot run does not keep us awake


async def overdue_without_handler(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("10s"), handler="elsewhere", id="b")


async def overdue_over_the_limit(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON), handler="work", id="a", timeout="30d")
    await advance(clock)
    await scheduler.add_job(Every("10s"), handler="work", id="b")


async def overdue_in_a_full_group(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON), handler="work", id="a", group="g", timeout="30d")
    await advance(clock)
    await scheduler.add_job(Every("10s"), handler="work", id="b", group="g")


async def overdue_while_running(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("10s"), handler="work", id="a", timeout="30d")


async def overdue_while_triggered(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("10s"), handler="work", id="a", timeout="30d")
    await scheduler.trigger_job("a")


async def overdue_while_paused(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("10s"), handler="work", id="a")
    await scheduler.pause_job("a")


@pytest.mark.parametrize(
    ("arrange", "options"),
    [
        pytest.param(overdue_without_handler, {}, id="no handler"),
        pytest.param(overdue_over_the_limit, {"max_concurrent": 1}, id="no slot"),
        pytest.param(overdue_in_a_full_group, {"group_limits": 1}, id="group full"),
        pytest.param(overdue_while_running, {}, id="running"),
        pytest.param(overdue_while_triggered, {}, id="triggered"),
        pytest.param(overdue_while_paused, {}, id="paused"),
    ],
)
async def test_trap_7_an_overdue_job_that_cannot_run_does_not_keep_the_loop_awake(
    arrange: Callable[[Scheduler, VirtualClock], Any],
    options: dict[str, Any],
    store: str,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """With a sleep of zero it would burn a processor until something changes."""
    scheduler = new_scheduler(store, **options)
    worker.blocks = True
    await scheduler.start()
    await arrange(scheduler, clock)
    await advance(clock, "1m")
    before = scheduler.state()

    await advance(clock, "1h")

    state = scheduler.state()
    assert state.tick_count - before.tick_count <= 3


# ---------------------------------------------------------------- 8: a cancel during the final write


class SlowFinish(SQLiteStore):
    """A store that takes its time to record how runs ended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        self.asked.set()
        await self.go.wait()
        return await super().finish(ended, rules)


async def test_trap_8_a_cancel_during_the_final_write_changes_nothing(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The handler is done: neither is the write stopped, nor does a success become a cancellation."""
    slow = SlowFinish(path)
    scheduler = new_scheduler(slow)
    worker.answer = Result(message="done")
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await slow.asked.wait()

    stopping = asyncio.create_task(scheduler.stop(cancel=True))
    await asyncio.wait([stopping], timeout=0.05)  # it comes to where it waits for the write
    early = stopping.done()
    slow.go.set()
    await stopping

    (row,) = await scheduler.run_log("a")
    assert not early
    assert (row.outcome, row.message) == (Outcome.SUCCESS, "done")


async def test_trap_8_a_timeout_during_the_final_write_changes_nothing(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The time limit is for the handler, and ends with it."""
    slow = SlowFinish(path)
    scheduler = new_scheduler(slow)
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a", timeout="5s")
    await slow.asked.wait()

    waiting = asyncio.create_task(clock.advance("10s"))
    for _ in range(20):
        await asyncio.sleep(0)
    slow.go.set()
    await waiting

    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


# ---------------------------------------------------------------- 9: a due slot survives


async def restart(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.stop()


async def upsert(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1h"), handler="work", id="a", on_conflict="replace", payload={"n": 2})


async def edit_something_else(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.update_job("a", name="A", priority="high", retry=Retry.none())


async def edit_nothing(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.update_job("a", schedule=Every("1h"))


async def look(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.preview("1d")
    await scheduler.explain("a")


async def jump_back_and_forth(scheduler: Scheduler, clock: VirtualClock) -> None:
    now = clock.now()
    clock.set(now - timedelta(days=1))
    await scheduler.run_pending()
    clock.set(now)


@pytest.mark.parametrize("recompute", [restart, upsert, edit_something_else, edit_nothing, look, jump_back_and_forth])
async def test_trap_9_a_due_slot_survives_any_recompute(
    recompute: Callable[[Scheduler, VirtualClock], Any],
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """What is due and has not run must not be moved to its next time on the way."""
    scheduler = new_scheduler(path)
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await advance(clock, "61m")

    await recompute(scheduler, clock)
    due = (await job_of(scheduler)).next_run_at
    await scheduler.start()
    await advance(clock)

    assert due == NOON + HOUR
    assert [(run.scheduled_for, run.trigger) for run in worker.runs] == [(NOON + HOUR, Trigger.SCHEDULE)]


async def test_trap_9_a_declared_job_that_is_due_at_start_runs(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """Declaring it again is no reason to count anew."""
    calls: list[Run] = []

    async def work(run: Run) -> None:
        calls.append(run)

    for _ in range(2):
        scheduler = new_scheduler(path)
        scheduler.job(Every("1h"), id="a")(work)
        await scheduler.start()
        await advance(clock, "1s")
        await scheduler.stop()
        await advance(clock, "1h")

    assert [run.scheduled_for for run in calls] == [NOON + HOUR]


# ---------------------------------------------------------------- 10: one moment per pass


class TickingClock(VirtualClock):
    """A clock as clocks are: each time it is read, it is a little later."""

    def micros(self) -> Micros:
        self._wall += 1
        return super().micros()


async def test_trap_10_a_pass_decides_by_one_moment(path: Path) -> None:
    """With two readings a job could be due by one and not by the other, or be claimed at two times."""
    clock = TickingClock(NOON)
    scheduler = Scheduler(path, clock=clock)
    runs: list[Run] = []

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        runs.append(run)

    await scheduler.add_jobs([JobSpec(Every("1m"), handler="work", id=f"{n}") for n in range(20)])
    await clock.advance("1m")
    now = clock.now()
    summary = await scheduler.run_pending(now=now)
    await scheduler.stop()

    assert summary.executed == 20
    assert {run.job.last_run_at for run in runs} == {now}


async def test_trap_10_what_comes_due_during_a_pass_waits_for_the_next(
    store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A pass asks what was due when it began; otherwise it might never end."""
    scheduler = new_scheduler(store)
    worker.takes = "10m"
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="b")

    passing = asyncio.create_task(scheduler.run_pending())
    await advance(clock, "10m")

    assert (await passing).executed == 1
    assert worker.ids == ["a"]


# ---------------------------------------------------------------- 11: one warning per revision


async def test_trap_11_a_warning_is_given_once_per_revision(
    scheduler: Scheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One every pass is a flood; none after an edit would hide that the edit did not help."""

    def warnings() -> int:
        return sum("no handler" in r.getMessage() and r.levelno == logging.WARNING for r in caplog.records)

    await scheduler.add_job(At(NOON), handler="elsewhere", id="a")
    for _ in range(20):
        await advance(clock, "1m")
        await scheduler.run_pending()
        await scheduler.add_job(At(NOON), handler="work", id=f"{clock.micros()}")
    first = warnings()
    await scheduler.update_job("a", handler="also-elsewhere")
    for _ in range(20):
        await advance(clock, "1m")
        await scheduler.run_pending()

    assert (first, warnings()) == (1, 2)


async def test_trap_11_a_failing_store_is_not_reported_at_every_turn(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The waits double: an hour without a store is a page of log, not a disk full of it."""

    class Broken(SQLiteStore):
        async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
            raise OSError("no store")

    scheduler = new_scheduler(Broken(path))
    await scheduler.start()

    await advance(clock, "1h")

    assert 10 <= sum("A pass failed" in record.getMessage() for record in caplog.records) <= 130


# ---------------------------------------------------------------- 12: late results


async def test_trap_12_a_job_that_is_added_again_does_not_inherit_a_late_result(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    """A thread cannot be cancelled: it ends after its job was removed and another came in its place."""
    release = threading.Event()

    @scheduler.handler("thread")
    def in_thread(run: Run) -> Result:
        release.wait(PATIENCE)
        return Result("error", message="of the old one")

    await scheduler.add_job(Every("1m"), handler="thread", id="a")
    await scheduler.trigger_job("a")
    await scheduler.remove_job("a")
    await scheduler.add_job(Every("1h"), handler="thread", id="a")

    release.set()
    await advance(clock, "1m")

    job = await job_of(scheduler)
    assert (job.status, job.consecutive_errors, job.last_message, job.last_error) == (Status.IDLE, 0, None, None)
    assert (job.last_run_at, job.next_run_at) == (None, NOON + HOUR)
    assert await scheduler.run_log("a") == []
    assert [(row.outcome, row.message) for row in await scheduler.run_log()] == [(Outcome.CANCELLED, None)]


async def test_trap_12_a_run_that_swallows_its_cancellation_writes_nothing(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    """Nor does it disturb a run of the job that took its place."""
    go = asyncio.Event()

    @scheduler.handler("stubborn")
    async def stubborn(run: Run) -> Result:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return Result(message=f"run {run.id}")

    await scheduler.add_job(Manual(), handler="stubborn", id="a")
    await scheduler.trigger_job("a")
    await scheduler.remove_job("a")
    await scheduler.add_job(Manual(), handler="stubborn", id="a")
    second = await scheduler.trigger_job("a")

    go.set()
    await advance(clock)

    assert [(row.id, row.message) for row in await scheduler.run_log("a")] == [(second, f"run {second}")]
    assert [row.message for row in await scheduler.run_log(outcome="cancelled")] == [None]


# ---------------------------------------------------------------- 13: one bad row


BAD_COLUMNS = [
    pytest.param("schedule", "{", id="a schedule that is no JSON"),
    pytest.param("schedule", '{"version": 1, "kind": "every"}', id="a schedule without its interval"),
    pytest.param("schedule", '{"version": 99, "kind": "every"}', id="a schedule of the future"),
    pytest.param(
        "schedule",
        '{"version": 1, "kind": "cron", "expression": "* * * * *", "tz": "Mars/Olympus"}',
        id="a zone that is gone",
    ),
    pytest.param("retry", '{"version": 1, "kind": "hope"}', id="an unknown policy"),
    pytest.param("payload", "{", id="a payload that is no JSON"),
    pytest.param("metadata", "[", id="metadata that is no JSON"),
    pytest.param("priority", "urgent", id="an unknown priority"),
    pytest.param("misfire", "always", id="an unknown misfire policy"),
    pytest.param("on_interrupt", "shrug", id="an unknown interrupt policy"),
]


@pytest.mark.parametrize(("column", "value"), BAD_COLUMNS)
@pytest.mark.parametrize("max_concurrent", [None, 1])
async def test_trap_13_one_bad_row_neither_stops_the_pass_nor_hides_the_others(
    max_concurrent: int | None,
    column: str,
    value: str,
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """It comes first in the order, even alone in its batch, and every other job still runs; nothing spins."""
    scheduler = new_scheduler(path, max_concurrent=max_concurrent)
    await scheduler.add_jobs([JobSpec(Every("1m"), handler="work", id=name) for name in "abc"])
    await scheduler.stop()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE job SET {column} = ? WHERE id = 'a'", (value,))
        db.commit()

    await scheduler.start()
    await advance(clock, "1m")
    await advance(clock, "1m")

    others = Counter(name for name in worker.ids if name != "a")
    assert others == {"b": 2, "c": 2}
    assert {job.id for job in await scheduler.list_jobs()} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("column", "value"), [bad for bad in BAD_COLUMNS if bad.values[0] in ("schedule", "retry", "payload")]
)
async def test_trap_13_a_bad_row_is_disabled_with_the_reason(
    column: str, value: str, path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A person finds out what is wrong with it, and others are not kept waiting."""
    scheduler = new_scheduler(path)
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.stop()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE job SET {column} = ?", (value,))
        db.commit()

    await scheduler.start()
    await advance(clock, "1m")

    job = await job_of(scheduler)
    assert job.status is Status.DISABLED
    assert job.disabled_reason
    assert worker.runs == []


@pytest.mark.parametrize("in_front", [1, 3, CHUNK + 1])
@pytest.mark.parametrize("max_concurrent", [None, 1, 2])
async def test_trap_13_what_is_left_out_does_not_hide_what_is_behind_it(
    in_front: int,
    max_concurrent: int | None,
    store: str,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """A batch of missed jobs that are only skipped is not the end of what is due."""
    scheduler = new_scheduler(store, max_concurrent=max_concurrent)
    await scheduler.add_jobs(
        [
            *(
                JobSpec(Every("1h"), handler="work", id=f"a{n:04}", misfire="skip", priority="high")
                for n in range(in_front)
            ),
            JobSpec(Every("1h"), handler="work", id="z"),
        ]
    )
    await advance(clock, "90m")

    await scheduler.start()
    await advance(clock)

    assert worker.ids == ["z"]
    assert len(await scheduler.run_log(outcome="skipped", limit=None)) == in_front


# ---------------------------------------------------------------- 14: jitter


async def test_trap_14_jitter_does_not_accumulate(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """It is added to the nominal time, never to the time that was jittered before."""
    await scheduler.add_job(Every("10m", jitter="1m"), handler="work", id="a")

    await advance(clock, "1001m")

    slots = [divmod(run.fired_at - NOON, 10 * MINUTE) for run in worker.runs]
    assert [slot for slot, _ in slots] == list(range(1, 101))
    assert all(late <= MINUTE for _, late in slots)
    assert len({late for _, late in slots}) > 50


async def test_trap_14_jitter_is_stable(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The same occurrence of the same job has the same delay after an edit, a restart or a look; another's differs."""
    scheduler = new_scheduler(path)
    schedule = Cron("*/10 * * * *", tz="UTC", jitter="1m")
    before = await scheduler.add_job(schedule, handler="work", id="a")
    other = await scheduler.add_job(schedule, handler="work", id="b")

    await scheduler.add_job(schedule, handler="work", id="a", on_conflict="replace", payload=1)
    await scheduler.pause_job("a")
    await scheduler.resume_job("a")
    await scheduler.stop()
    await scheduler.start()
    kept = await job_of(scheduler)
    await scheduler.remove_job("a")
    again = await scheduler.add_job(schedule, handler="work", id="a")

    assert before.next_run_at == kept.next_run_at == again.next_run_at
    assert before.next_run_at != other.next_run_at
    assert await scheduler.preview("1d") == await scheduler.preview("1d")


# ---------------------------------------------------------------- 15: catching up within limits


@pytest.mark.deep
async def test_trap_15_ten_thousand_overdue_jobs_respect_every_limit(
    new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """After a long sleep all are due at once: slots, queue and groups hold, and each runs exactly once."""
    scheduler = new_scheduler(":memory:", max_concurrent=400, queue_size=100, group_limits={"g0": 3, "g1": 5})
    active: Counter[str | None] = Counter()
    most: Counter[str | None] = Counter()
    ran: Counter[str] = Counter()
    most_claimed = 0

    @scheduler.handler("count")
    async def count(run: Run) -> None:
        nonlocal most_claimed
        group = run.job.group
        active[group] += 1
        active["all"] += 1
        for name in (group, "all"):
            most[name] = max(most[name], active[name])
        state = scheduler.state()
        most_claimed = max(most_claimed, state.running + state.queued)
        await clock.sleep("1s")
        active[group] -= 1
        active["all"] -= 1
        ran[run.job_id] += 1

    groups = ["g0", "g1", *[None] * 198]
    specs = [
        JobSpec(Every("1h"), handler="count", id=f"{n:05}", group=group, priority="high" if group else "low")
        for n, group in enumerate(groups * 50)
    ]
    await scheduler.add_jobs(specs)
    clock.set(NOON + timedelta(days=30, minutes=1))

    await scheduler.start()
    async with asyncio.timeout(150):
        await clock.advance("1m")

    assert len(ran) == 10_000
    assert set(ran.values()) == {1}
    assert (most["all"], most["g0"], most["g1"]) == (400, 3, 5)
    assert most_claimed == 500


# ---------------------------------------------------------------- 16: a cancelled question


@pytest.mark.parametrize("turns", range(8))
async def test_trap_16_what_a_cancelled_call_did_is_known(
    turns: int, store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A request that was given up may have added a job all the same: it runs in time, and observers hear of it."""
    scheduler = new_scheduler(store)
    await scheduler.start()
    await advance(clock)
    stream = scheduler.events()
    told: list[EventKind] = []

    async def listen() -> None:
        async for event in stream:
            told.append(event.kind)  # noqa: PERF401 - as they come

    listening = asyncio.create_task(listen())
    adding = asyncio.create_task(scheduler.add_job(At(NOON + timedelta(seconds=10)), handler="work", id="cancelled"))
    for _ in range(turns):
        await asyncio.sleep(0)
    adding.cancel()
    await asyncio.wait([adding])
    exists = await scheduler.get_job("cancelled") is not None
    await advance(clock, "10s")

    assert worker.ids == ["cancelled"] * exists
    assert told.count(EventKind.ADDED) == int(exists)
    listening.cancel()


@pytest.mark.parametrize("turns", range(8))
async def test_trap_16_a_cancelled_removal_ends_the_run_in_progress(
    turns: int, store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Nobody else would end it: the job is gone."""
    scheduler = new_scheduler(store)
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.start()
    await advance(clock)
    assert worker.active == 1

    removing = asyncio.create_task(scheduler.remove_job("a"))
    for _ in range(turns):
        await asyncio.sleep(0)
    removing.cancel()
    await asyncio.wait([removing])
    gone = await scheduler.get_job("a") is None
    await advance(clock)

    assert worker.cancelled == int(gone)
    worker.go.set()


@pytest.mark.parametrize("turns", range(8))
async def test_trap_16_a_cancelled_call_leaves_no_transaction_open(
    turns: int, store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whenever it is cancelled, what it asked for has happened or not, and everybody else goes on."""
    scheduler = new_scheduler(store)
    await scheduler.start()
    await advance(clock)

    adding = asyncio.create_task(scheduler.add_job(At(NOON), handler="work", id="cancelled"))
    for _ in range(turns):
        await asyncio.sleep(0)
    adding.cancel()
    (result,) = await asyncio.gather(adding, return_exceptions=True)
    async with asyncio.timeout(PATIENCE):
        await scheduler.add_job(At(NOON), handler="work", id="after")
    await advance(clock)

    assert "after" in worker.ids
    exists = await scheduler.get_job("cancelled") is not None
    assert exists or isinstance(result, asyncio.CancelledError)
    assert worker.ids.count("cancelled") == int(exists)


async def test_trap_16_a_stop_that_is_cancelled_can_be_made_again(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A timeout around stop() must not leave a scheduler that can neither run nor stop."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await advance(clock)
    stopping = asyncio.create_task(scheduler.stop(timeout=None))
    await advance(clock)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)

    worker.go.set()
    async with asyncio.timeout(PATIENCE):
        await scheduler.stop()

    assert scheduler.status == "stopped"


async def test_trap_16_a_stop_that_is_cancelled_does_not_cancel_the_pass_it_waits_for(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What the pass has claimed would be nobody's, and the next stop would find a loop that was shot."""
    meddling, gate = Meddling(path), asyncio.Event()
    scheduler = new_scheduler(meddling)
    await scheduler.add_job(At(NOON), handler="work", id="a")
    claimed = asyncio.Event()

    async def hold() -> None:
        claimed.set()
        await gate.wait()

    meddling.meddle = hold
    await scheduler.start()
    await claimed.wait()
    stopping = asyncio.create_task(scheduler.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    stopping.cancel()
    for _ in range(10):
        await asyncio.sleep(0)

    gate.set()
    await asyncio.wait([stopping])
    again = asyncio.create_task(scheduler.stop())
    await asyncio.wait([again], timeout=PATIENCE)

    assert again.done()
    assert not again.cancelled()
    assert scheduler.status == "stopped"
    later = new_scheduler(path)
    await later.start()
    await advance(clock)
    assert worker.ids == ["a"]


async def test_trap_16_a_cancelled_pass_leaves_nothing_half_claimed(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What it had begun is finished and recorded; the rest stays due."""
    scheduler = new_scheduler(path)
    worker.takes = "1s"
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(5)])
    passing = asyncio.create_task(scheduler.run_pending())
    await advance(clock, "2s")

    passing.cancel()
    await asyncio.gather(passing, return_exceptions=True)
    await advance(clock, "10s")

    statuses = Counter(job.status for job in await scheduler.list_jobs())
    assert len(worker.runs) == 3
    assert statuses == {Status.DISABLED: 3, Status.IDLE: 2}
    assert {(await scheduler.explain(f"{n}")).reason for n in range(5)} == {SkipReason.ENDED, SkipReason.NO_SCHEDULER}
