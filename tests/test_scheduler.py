"""What users call, row by row: start and stop, adding and editing, running by hand, reading, events, handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scheduler_async import (
    At,
    Cron,
    Delay,
    EventKind,
    Every,
    InvalidJobError,
    InvalidScheduleError,
    JobAlreadyRunningError,
    JobDisabledError,
    JobExistsError,
    JobNotFoundError,
    JobSpec,
    Manual,
    Outcome,
    PassSummary,
    Result,
    Retry,
    Run,
    RunRow,
    Schedule,
    Scheduler,
    SchedulerError,
    SchedulerShutdownError,
    SkipReason,
    SQLiteStore,
    Status,
    Trigger,
    UnknownZoneError,
    current_run,
)
from scheduler_async.engine.single_pass import Tally
from scheduler_async.jobs import events
from scheduler_async.jobs.events import EventStream
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import HOUR, MINUTE, NOON, PATIENCE, SECOND, NewScheduler, Worker, job_of


async def last_run(scheduler: Scheduler, id: str = "a") -> RunRow:
    return (await scheduler.run_log(id, limit=1))[0]


async def kinds_until_stopped(scheduler: Scheduler, stream: EventStream) -> list[EventKind]:
    await scheduler.stop()
    return [event.kind async for event in stream]


# ---------------------------------------------------------------- start and stop


async def test_start_and_stop_change_the_status(idle: Scheduler) -> None:
    """The status is what a health check shows."""
    statuses = [idle.status]

    await idle.start()
    statuses.append(idle.status)
    await idle.stop()
    statuses.append(idle.status)

    assert statuses == ["stopped", "running", "stopped"]


async def test_the_context_manager_starts_and_stops(idle: Scheduler) -> None:
    """`async with scheduler` is all that a program needs."""
    async with idle as entered:
        assert entered is idle
        assert idle.status == "running"

    assert idle.status == "stopped"


async def test_starting_twice_is_an_error(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Two loops would be one too many; the first goes on."""
    with pytest.raises(SchedulerError, match="running already"):
        await scheduler.start()

    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")
    assert (scheduler.status, worker.fired()) == ("running", [1])


async def test_stopping_what_is_stopped_does_nothing(idle: Scheduler) -> None:
    """Cleaning up twice is no mistake, nor is cleaning up what was never started."""
    await idle.stop()
    await idle.start()
    await idle.stop()

    await idle.stop()

    assert idle.status == "stopped"


async def test_a_stopped_scheduler_starts_again(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """And goes on with what is in the store."""
    scheduler = new_scheduler(path)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")
    await scheduler.stop()

    await scheduler.start()
    await clock.advance("1m")

    assert worker.fired() == [1, 2]


async def test_no_run_begins_after_stop(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Not while it waits for others, and not afterwards."""
    scheduler = new_scheduler(path)
    worker.takes = "5m"
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="b")
    await clock.advance()

    stopping = asyncio.create_task(scheduler.stop(timeout=3600))
    await clock.advance("10m")
    await stopping
    await clock.advance("10m")

    assert worker.ids == ["a"]
    assert (await job_of(scheduler, "b")).next_run_at == NOON + MINUTE


async def test_stop_ends_the_pass_in_progress(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A pass with hundreds of jobs to go does not begin them all first; they stay due."""
    scheduler = new_scheduler(path)
    worker.takes = "1s"
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n:03}") for n in range(600)])
    passing = asyncio.create_task(scheduler.run_pending())
    await clock.advance("10s")

    stopping = asyncio.create_task(scheduler.stop(timeout=3600))
    await clock.advance("1h")
    await stopping
    async with asyncio.timeout(PATIENCE):
        summary = await passing

    assert summary.executed == len(worker.runs) == 11
    assert len(await scheduler.list_jobs(status="idle")) == 589


async def test_stop_waits_for_runs(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """What has begun is finished, and recorded, before stop returns."""
    finished: list[EventKind] = []
    worker.takes = "10s"
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    stream = scheduler.events()

    stopping = asyncio.create_task(scheduler.stop())
    await clock.advance("9s")
    while_waiting = scheduler.status, stopping.done()
    await clock.advance("1s")
    await stopping
    finished = [event.kind async for event in stream]

    assert while_waiting == ("stopping", False)
    assert finished[:1] == [EventKind.RUN_FINISHED]
    assert finished[-1] is EventKind.STOPPED
    assert worker.cancelled == 0


async def test_stop_gives_up_after_its_timeout(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A hanging run must not keep a process from ending; the error says how many there are."""
    worker.blocks = True
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "ab"])
    await clock.advance()

    stopping = asyncio.create_task(scheduler.stop(timeout=10))
    await clock.advance("9s")
    early = stopping.done()
    await clock.advance("1s")

    with pytest.raises(SchedulerShutdownError) as caught:
        await stopping
    assert not early
    assert (caught.value.timed_out, caught.value.running) == (True, 2)
    assert isinstance(caught.value, TimeoutError)
    assert scheduler.status == "stopping"


async def test_stop_can_be_tried_again(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """After the timeout the runs go on, and a second stop waits for them."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    with pytest.raises(SchedulerShutdownError):
        await asyncio.gather(scheduler.stop(timeout=1), clock.advance("1s"))
    stream = scheduler.events()

    worker.go.set()
    await scheduler.stop()

    assert scheduler.status == "stopped"
    assert [event.run.outcome async for event in stream if event.run is not None] == [Outcome.SUCCESS]


async def test_stop_with_cancel_ends_runs_and_logs_them(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Cancelled is no failure: nobody holds a shutdown against a job."""
    scheduler = new_scheduler(path)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("1h")

    await scheduler.stop(cancel=True)

    row, job = await last_run(scheduler), await job_of(scheduler)
    assert row.outcome is Outcome.CANCELLED
    assert (worker.cancelled, job.consecutive_errors, job.status) == (1, 0, Status.IDLE)


async def test_a_run_that_does_not_obey_the_cancel_still_times_out(scheduler: Scheduler, clock: VirtualClock) -> None:
    """A handler may swallow its cancellation; stop says so instead of waiting for ever."""
    release = asyncio.Event()

    @scheduler.handler("stubborn")
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await scheduler.add_job(At(NOON), handler="stubborn", id="a")
    await clock.advance()

    stopping = asyncio.create_task(scheduler.stop(timeout=5, cancel=True))
    await clock.advance("5s")

    with pytest.raises(SchedulerShutdownError) as caught:
        await stopping
    assert caught.value.running == 1
    release.set()


async def test_stop_without_waiting_lets_runs_finish_in_the_background(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It returns at once, and how the run ended is recorded all the same."""
    scheduler = new_scheduler(path)
    worker.takes = "10s"
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    await scheduler.stop(wait=False)
    at_once = scheduler.status
    await clock.advance("10s")

    assert (at_once, scheduler.status) == ("stopping", "stopped")
    assert (await last_run(scheduler)).outcome is Outcome.SUCCESS


async def test_a_stop_that_did_not_wait_can_be_hurried(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Who changes their mind, and cancels, is not made to wait for the run that hangs."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    await scheduler.stop(wait=False)
    await clock.advance()

    try:
        async with asyncio.timeout(PATIENCE):
            await scheduler.stop(cancel=True)
    finally:
        worker.go.set()

    assert (scheduler.status, worker.cancelled) == ("stopped", 1)


async def test_a_waiting_stop_can_be_hurried(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """The second interrupt of an impatient user ends what the first one waits for."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    patient = asyncio.create_task(scheduler.stop(timeout=3600))
    await clock.advance()

    try:
        async with asyncio.timeout(PATIENCE):
            await scheduler.stop(cancel=True)
    finally:
        worker.go.set()
    await patient

    assert (scheduler.status, worker.cancelled) == ("stopped", 1)


async def test_a_run_can_watch_for_the_stop(scheduler: Scheduler, clock: VirtualClock) -> None:
    """A long job ends early, and well, if it looks at run.stopping."""
    answers: list[bool] = []

    @scheduler.handler("watchful")
    async def watchful(run: Run) -> None:
        answers.append(run.stopping.is_set())
        await run.stopping.wait()
        answers.append(run.stopping.is_set())

    await scheduler.add_job(At(NOON), handler="watchful", id="a")
    await clock.advance()
    await scheduler.stop()

    assert answers == [False, True]


class SlowClaims(SQLiteStore):
    """A store whose claims are committed a while before the answer arrives."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.claimed, self.go = asyncio.Event(), asyncio.Event()

    async def claim_one(self, *args: Any, **options: Any) -> Any:
        claimed = await super().claim_one(*args, **options)
        self.claimed.set()
        await self.go.wait()
        return claimed

    async def claim_due(self, *args: Any, **options: Any) -> Any:
        claims = await super().claim_due(*args, **options)
        if claims.runs:
            self.claimed.set()
            await self.go.wait()
        return claims


@pytest.mark.parametrize("call", ["trigger_job", "run_pending"])
async def test_a_stop_that_meets_a_claim_loses_nothing(
    call: str, path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The claim is committed when stop comes: either the run is over when stop returns, or the job is free again."""
    slow = SlowClaims(path)
    scheduler = new_scheduler(slow)
    await scheduler.add_job(At(NOON), handler="work", id="a")
    calling: Awaitable[object] = scheduler.trigger_job("a") if call == "trigger_job" else scheduler.run_pending()
    called = asyncio.ensure_future(calling)
    await slow.claimed.wait()

    stopping = asyncio.create_task(scheduler.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    slow.go.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([called])
        await stopping

    later = new_scheduler(path)
    assert (await job_of(later)).status in (Status.IDLE, Status.DISABLED)
    await later.start()
    await clock.advance()
    assert len(worker.runs) == 1


# ---------------------------------------------------------------- state


async def test_the_state_of_a_stopped_scheduler(idle: Scheduler) -> None:
    """It can be asked for at any time, and without waiting."""
    state = idle.state()

    assert (state.status, state.started_at, state.next_wake_at) == ("stopped", None, None)
    assert (state.tick_count, state.trigger_count, state.last_tick_at) == (0, 0, None)
    assert (state.running, state.queued) == (0, 0)


async def test_the_state_of_a_running_scheduler(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """What it is doing, in numbers."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=5)
    worker.takes = "10s"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON + MINUTE), handler="work", id=name) for name in "abc"])
    await clock.advance("30s")
    waiting = scheduler.state()

    await clock.advance("30s")
    busy = scheduler.state()
    await clock.advance("1m")
    done = scheduler.state()

    assert (waiting.status, waiting.started_at) == ("running", NOON)
    assert waiting.next_wake_at == NOON + MINUTE
    assert (busy.running, busy.queued, busy.trigger_count) == (1, 2, 3)
    assert busy.last_tick_at == NOON + MINUTE
    assert busy.tick_count > waiting.tick_count
    assert (done.running, done.queued, done.trigger_count) == (0, 0, 3)


# ---------------------------------------------------------------- adding


async def test_a_job_as_it_is_added(idle: Scheduler) -> None:
    """Everything that is given can be read, and the rest has its default."""
    job = await idle.add_job(
        Every("5m"),
        handler="work",
        id="a",
        namespace="tenant",
        user_id="ann",
        name="Tidy up",
        payload={"deep": [1, None, "ö"]},
        metadata={"team": "ops"},
        priority="high",
        group="disk",
        misfire="skip",
        retry=Retry.in_window(3),
        timeout="10m",
        on_interrupt="skip",
    )

    assert await idle.get_job("a", namespace="tenant") == job
    assert (job.id, job.namespace, job.user_id, job.name) == ("a", "tenant", "ann", "Tidy up")
    assert (job.payload, job.metadata) == ({"deep": [1, None, "ö"]}, {"team": "ops"})
    assert (job.priority, job.group, job.misfire, job.on_interrupt) == ("high", "disk", "skip", "skip")
    assert (job.schedule, job.handler) == (Every("5m"), "work")
    assert (job.retry, job.timeout, job.enabled) == (Retry.in_window(3), 10 * MINUTE, True)
    assert (job.status, job.disabled_reason, job.next_run_at) == (Status.IDLE, None, NOON + 5 * MINUTE)
    assert (job.last_run_at, job.last_success_at, job.last_error_at, job.last_error) == (None, None, None, None)
    assert (job.last_exit_code, job.last_message, job.consecutive_errors, job.retry_count) == (None, None, 0, 0)
    assert (job.created_at, job.updated_at) == (NOON, NOON)


async def test_a_job_without_an_id_gets_one(idle: Scheduler) -> None:
    """Each another."""
    jobs = [await idle.add_job(Manual(), handler="work") for _ in range(3)]

    assert len({job.id for job in jobs}) == 3
    assert {job.id for job in await idle.list_jobs()} == {job.id for job in jobs}


async def test_a_job_is_a_value(idle: Scheduler) -> None:
    """Who holds one holds what was true then; changing it changes nothing."""
    job = await idle.add_job(Manual(), handler="work", id="a", payload={"n": 1})

    job.payload["n"] = 2
    with pytest.raises(AttributeError):
        job.id = "b"  # type: ignore[misc]

    assert (await job_of(idle)).payload == {"n": 1}


async def test_a_taken_id_raises(idle: Scheduler) -> None:
    """The default: nobody overwrites a job by accident."""
    before = await idle.add_job(Every("5m"), handler="work", id="a")

    with pytest.raises(JobExistsError, match="on_conflict") as caught:
        await idle.add_job(Every("9m"), handler="work", id="a")

    assert (caught.value.job_id, caught.value.namespace) == ("a", "default")
    assert await idle.get_job("a") == before


async def test_a_taken_id_is_replaced(idle: Scheduler, clock: VirtualClock) -> None:
    """An upsert: everything is as it is said now, and its age remains."""
    await idle.add_job(Every("5m"), handler="work", id="a", payload=1, group="x")
    await clock.advance("1m")

    job = await idle.add_job(Every("9m"), handler="other", id="a", on_conflict="replace")

    assert (job.schedule, job.handler, job.payload, job.group) == (Every("9m"), "other", None, None)
    assert (job.created_at, job.updated_at) == (NOON, NOON + MINUTE)
    assert job.next_run_at == NOON + 10 * MINUTE
    assert len(await idle.list_jobs()) == 1


async def test_a_taken_id_is_kept(idle: Scheduler) -> None:
    """Who only wants it to be there changes nothing."""
    before = await idle.add_job(Every("5m"), handler="work", id="a", payload=1)

    job = await idle.add_job(Every("9m"), handler="other", id="a", payload=2, on_conflict="keep")

    assert job == before == await idle.get_job("a")


@pytest.mark.parametrize("on_conflict", ["raise", "replace", "keep"])
async def test_a_free_id_is_added_whatever_would_happen_otherwise(on_conflict: str, idle: Scheduler) -> None:
    """on_conflict is about conflicts only; the same id in another namespace is none."""
    await idle.add_job(Manual(), handler="work", id="a", namespace="other")

    await idle.add_job(Manual(), handler="work", id="a", on_conflict=on_conflict)

    assert [job.key for job in await idle.list_jobs()] == ["default/a", "other/a"]


async def test_a_job_that_is_added_disabled_does_not_run(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Until it is resumed."""
    job = await scheduler.add_job(Every("1m"), handler="work", id="a", enabled=False)
    await clock.advance("5m")
    runs_before = len(worker.runs)

    await scheduler.resume_job("a")
    await clock.advance("1m")

    assert (job.status, job.enabled, job.next_run_at) == (Status.DISABLED, False, None)
    assert (runs_before, len(worker.runs)) == (0, 1)


async def test_a_handler_may_be_a_registered_function(scheduler: Scheduler, clock: VirtualClock) -> None:
    """No need to repeat its name."""
    calls: list[str] = []

    @scheduler.handler("named")
    async def function() -> None:
        calls.append("called")

    job = await scheduler.add_job(At(NOON), handler=function, id="a")
    await clock.advance()

    assert (job.handler, calls) == ("named", ["called"])


async def test_an_interval_below_the_smallest_is_raised_with_a_warning(
    new_scheduler: NewScheduler, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo of a second for an hour must not melt the machine."""
    scheduler = new_scheduler(store, min_interval="10s")

    every = await scheduler.add_job(Every("1s"), handler="work", id="a")
    delay = await scheduler.add_job(Delay("9s"), handler="work", id="b")
    fine = await scheduler.add_job(Every("10s"), handler="work", id="c")

    assert (every.schedule, delay.schedule, fine.schedule) == (Every("10s"), Delay("10s"), Every("10s"))
    assert len([record for record in caplog.records if "min_interval" in record.getMessage()]) == 2


async def test_many_jobs_are_added_at_once(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """In the order given, and running like others."""
    specs = [JobSpec(Every("1m"), handler="work", id=name, payload=name) for name in "cab"]

    jobs = await scheduler.add_jobs(specs)
    await clock.advance("1m")

    assert [job.id for job in jobs] == ["c", "a", "b"]
    assert worker.ids == ["a", "b", "c"]
    assert await scheduler.add_jobs([]) == []


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the last"])
async def test_of_many_jobs_all_are_added_or_none(first: bool, idle: Scheduler) -> None:
    """One that cannot be added leaves the others out too."""
    await idle.add_job(Manual(), handler="work", id="taken")
    specs = [JobSpec(Manual(), handler="work", id=f"{n}") for n in range(5)]
    specs.insert(0 if first else 5, JobSpec(Manual(), handler="work", id="taken"))

    with pytest.raises(JobExistsError):
        await idle.add_jobs(specs)

    assert [job.id for job in await idle.list_jobs()] == ["taken"]


async def test_the_same_id_twice_in_one_list_is_a_conflict(idle: Scheduler) -> None:
    """A list that contradicts itself is refused as a whole."""
    with pytest.raises(JobExistsError):
        await idle.add_jobs([JobSpec(Manual(), handler="work", id="a") for _ in range(2)])

    assert await idle.list_jobs() == []


async def test_add_jobs_takes_specs(idle: Scheduler) -> None:
    """What is something else is refused, with a word about what would be right."""
    with pytest.raises(InvalidJobError, match="JobSpec"):
        await idle.add_jobs(["a"])  # type: ignore[list-item]


# ---------------------------------------------------------------- editing


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedule", Every("9m")),
        ("handler", "other"),
        ("user_id", "bob"),
        ("name", "Other"),
        ("payload", [1]),
        ("metadata", {"a": 1}),
        ("priority", "low"),
        ("group", "g"),
        ("misfire", "skip"),
        ("retry", Retry.none()),
        ("timeout", "9m"),
        ("on_interrupt", "skip"),
        ("enabled", False),
    ],
)
async def test_every_field_can_be_changed_alone(
    field: str, value: object, idle: Scheduler, clock: VirtualClock
) -> None:
    """What is not mentioned stays as it is."""
    before = await idle.add_job(Every("5m"), handler="work", id="a", payload={"n": 1}, group="x", timeout="1m")
    await clock.advance("1m")

    changes: dict[str, Any] = {field: value}
    job = await idle.update_job("a", **changes)

    expected = 9 * MINUTE if field == "timeout" else value
    assert getattr(job, field) == expected
    others = {"schedule", "handler", "payload", "group", "timeout", "priority", "enabled"} - {field}
    assert {name: getattr(job, name) for name in others} == {name: getattr(before, name) for name in others}
    assert getattr(await job_of(idle), field) == expected
    assert job.updated_at == NOON + MINUTE


async def test_a_last_added_job_can_be_edited(idle: Scheduler) -> None:
    """And so can every one before it."""
    for name in "abc":
        await idle.add_job(Manual(), handler="work", id=name)

    for name in "cab":
        await idle.update_job(name, name=name.upper())

    assert [job.name for job in await idle.list_jobs()] == ["A", "B", "C"]


@pytest.mark.parametrize("field", ["id", "namespaces", "next_run_at", "on_conflict", "colour"])
async def test_an_unknown_field_is_a_type_error(field: str, idle: Scheduler) -> None:
    """As with any function that is called with an argument it does not have."""
    before = await idle.add_job(Manual(), handler="work", id="a")
    unknown: Any = {field: "x"}

    with pytest.raises(TypeError, match=field if field != "id" else "argument|no id"):
        await idle.update_job("a", **unknown)

    assert await idle.get_job("a") == before


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.update_job("x", name="X"),
        lambda s: s.remove_job("x"),
        lambda s: s.pause_job("x"),
        lambda s: s.resume_job("x"),
        lambda s: s.trigger_job("x"),
        lambda s: s.run_stats("x"),
        lambda s: s.explain("x"),
        lambda s: s.namespace("default").cancel("x"),
        lambda s: s.pause_job("here", namespace="elsewhere"),
    ],
    ids=["update", "remove", "pause", "resume", "trigger", "stats", "explain", "cancel", "another namespace"],
)
async def test_an_unknown_id_is_an_error(call: Callable[[Scheduler], Awaitable[object]], idle: Scheduler) -> None:
    """It is a LookupError too, and names what was looked for."""
    await idle.add_job(Manual(), handler="work", id="here")

    with pytest.raises(JobNotFoundError) as caught:
        await call(idle)

    assert isinstance(caught.value, LookupError)
    assert caught.value.job_id in ("x", "here")


async def test_reading_an_unknown_id_is_no_error(idle: Scheduler) -> None:
    """To ask whether there is one is a fair question."""
    assert await idle.get_job("x") is None
    assert await idle.run_log("x") == []


async def test_a_removed_job_is_gone_but_for_its_runs(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It runs no more, and is not listed."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    removed = await scheduler.remove_job("a")
    await clock.advance("5m")

    assert removed.id == "a"
    assert await scheduler.get_job("a") is None
    assert [row.outcome for row in await scheduler.run_log()] == [Outcome.SUCCESS]
    assert len(worker.runs) == 1


async def test_a_paused_job_waits_until_it_is_resumed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """And then keeps to its grid."""
    await scheduler.add_job(Every("10m"), handler="work", id="a")

    paused = await scheduler.pause_job("a")
    await clock.advance("35m")
    resumed = await scheduler.resume_job("a")
    await clock.advance("5m")

    assert (paused.status, resumed.status) == (Status.PAUSED, Status.IDLE)
    assert worker.fired() == [40]


async def test_a_one_shot_that_came_due_while_paused_runs_when_it_is_resumed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """There is no next time to wait for."""
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await scheduler.pause_job("a")
    await clock.advance("1h")

    await scheduler.resume_job("a")
    await clock.advance()

    assert worker.fired() == [60]


async def test_what_has_ended_cannot_be_resumed(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """There is nothing left to run; the message says what could be done instead."""
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    with pytest.raises(InvalidJobError, match="update_job"):
        await scheduler.resume_job("a")


# ---------------------------------------------------------------- triggering


async def test_a_trigger_runs_the_job_now(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """It returns the id of the run, which is in the log."""
    await scheduler.add_job(Manual(), handler="work", id="a", payload={"n": 1})

    run_id = await scheduler.trigger_job("a")
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    (run,) = worker.runs
    assert row.id == run.id == run_id
    assert (row.trigger, row.outcome) == (Trigger.MANUAL, Outcome.SUCCESS)
    assert run.payload == {"n": 1}


async def test_a_trigger_can_bring_its_own_payload(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """For that run only."""
    await scheduler.add_job(Manual(), handler="work", id="a", payload={"n": 1})

    await scheduler.trigger_job("a", payload={"n": 2})
    await clock.advance()

    assert [run.payload for run in worker.runs] == [{"n": 2}]
    assert (await job_of(scheduler)).payload == {"n": 1}


@pytest.mark.parametrize("answer", [None, ValueError("no")], ids=["it succeeds", "it fails"])
async def test_a_trigger_leaves_the_schedule_and_the_failure_count_alone(
    answer: object, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A person trying something out neither mends nor breaks what the scheduler knows."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("2h")
    worker.answer = answer

    await scheduler.trigger_job("a")
    await clock.advance("1m")

    job = await job_of(scheduler)
    assert job.consecutive_errors == 2
    assert job.next_run_at == NOON + 3 * HOUR
    assert job.last_run_at == NOON + 2 * HOUR


async def test_a_trigger_is_refused_while_the_job_runs(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """And leaves no trace."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    with pytest.raises(JobAlreadyRunningError) as caught:
        await scheduler.trigger_job("a")

    assert isinstance(caught.value, RuntimeError)
    assert len(await scheduler.run_log("a")) == 1


@pytest.mark.parametrize("state", ["paused", "disabled", "ended"])
async def test_a_trigger_works_whatever_the_schedule_says(
    state: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It is a person who asks; the job stays paused or disabled afterwards."""
    await scheduler.add_job(At(NOON) if state == "ended" else Every("1h"), handler="work", id="a")
    if state == "paused":
        await scheduler.pause_job("a")
    elif state == "disabled":
        await scheduler.update_job("a", enabled=False)
    await clock.advance()
    before, runs = await job_of(scheduler), len(worker.runs)

    await scheduler.trigger_job("a")
    await clock.advance()

    assert len(worker.runs) == runs + 1
    assert (await job_of(scheduler)).status is before.status


async def test_a_trigger_without_a_handler_here_says_so(idle: Scheduler) -> None:
    """Running now means running here."""
    await idle.add_job(Manual(), handler="elsewhere", id="a")

    with pytest.raises(SchedulerError, match="no handler"):
        await idle.trigger_job("a")

    assert (await job_of(idle)).status is Status.IDLE


async def test_the_regular_time_that_comes_during_a_triggered_run_is_left_out(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """One run at a time, and a row for what was left out; the grid goes on."""
    worker.takes = "5m"
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("8m")

    await scheduler.trigger_job("a")
    await clock.advance("12m")

    assert worker.fired() == [8, 20]
    (skipped,) = await scheduler.run_log("a", outcome="skipped")
    assert (skipped.reason, skipped.missed) == (SkipReason.ALREADY_RUNNING, 1)


async def test_a_triggered_run_waits_for_a_slot(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """A person is not above the limit; the run is queued, and goes when there is room."""
    scheduler = new_scheduler(store, max_concurrent=1)
    worker.takes = "1m"
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.add_job(Manual(), handler="work", id="b")

    await scheduler.trigger_job("a")
    async with asyncio.timeout(PATIENCE):
        await scheduler.trigger_job("b")
    status = (await job_of(scheduler, "b")).status
    await clock.advance("2m")

    assert status is Status.QUEUED
    assert worker.fired() == [0, 1]


# ---------------------------------------------------------------- listing


@pytest.fixture
async def many(idle: Scheduler, clock: VirtualClock) -> Scheduler:
    """Jobs of all sorts."""
    await idle.add_jobs(
        [
            JobSpec(Every("3m"), handler="work", id="c", user_id="ann", group="x", metadata={"team": "ops", "n": 1}),
            JobSpec(Every("1m"), handler="other", id="a", user_id="bob", priority="high", metadata={"team": "ops"}),
            JobSpec(Every("2m"), handler="work", id="b", namespace="tenant", priority="low", group="y"),
            JobSpec(Manual(), handler="work", id="m", user_id="ann"),
            JobSpec(Every("1m"), handler="work", id="p", metadata={"team": None}),
            JobSpec(Every("1m"), handler="work", id="d", enabled=False),
        ]
    )
    await idle.pause_job("p")
    return idle


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        pytest.param({"status": "idle"}, "abcm", id="idle"),
        pytest.param({"status": "paused"}, "p", id="paused"),
        pytest.param({"status": "disabled"}, "d", id="disabled"),
        pytest.param({"status": Status.RUNNING}, "", id="running"),
        pytest.param({"namespace": "tenant"}, "b", id="namespace"),
        pytest.param({"user_id": "ann"}, "cm", id="user"),
        pytest.param({"handler": "other"}, "a", id="handler"),
        pytest.param({"group": "x"}, "c", id="group"),
        pytest.param({"priority": "high"}, "a", id="priority"),
        pytest.param({"metadata": {"team": "ops"}}, "ac", id="metadata"),
        pytest.param({"metadata": {"team": "ops", "n": 1}}, "c", id="more metadata"),
        pytest.param({"metadata": {"team": None}}, "p", id="metadata that is null"),
        pytest.param({"due_before": NOON + 2 * MINUTE}, "a", id="due before, exclusive"),
        pytest.param({"due_before": NOON + 2 * MINUTE + SECOND}, "ab", id="due before"),
        pytest.param({"user_id": "ann", "group": "x"}, "c", id="two at once"),
        pytest.param({"limit": 2}, "ab", id="limit", marks=()),
        pytest.param({"limit": 1, "metadata": {"team": "ops"}}, "a", id="limit with metadata"),
        pytest.param({"limit": 0}, "", id="none"),
        pytest.param({"user_id": "nobody"}, "", id="nothing found"),
    ],
)
async def test_jobs_can_be_filtered(filters: dict[str, Any], ids: str, many: Scheduler) -> None:
    """By each field and by several."""
    if "limit" in filters and len(filters) == 1:
        filters = {**filters, "status": "idle"}

    jobs = await many.list_jobs(**filters)

    assert [job.id for job in jobs] == list(ids)


async def test_jobs_are_listed_by_their_next_run_and_those_without_one_last(many: Scheduler) -> None:
    """What comes next stands first."""
    jobs = await many.list_jobs()

    times = [job.next_run_at for job in jobs]
    known = [time for time in times if time is not None]
    assert known == sorted(known)
    assert times == known + [None] * 2
    assert {job.id for job in jobs[-2:]} == {"d", "m"}


@pytest.mark.parametrize(
    "filters",
    [
        {"status": "done"},
        {"priority": "urgent"},
        {"due_before": "tomorrow"},
        {"due_before": datetime(2026, 1, 5)},
        {"limit": -1},
    ],
    ids=str,
)
async def test_a_filter_that_makes_no_sense_is_refused(filters: dict[str, Any], idle: Scheduler) -> None:
    """A typo must not look like "there are none"."""
    with pytest.raises(SchedulerError):
        await idle.list_jobs(**filters)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="without an id"),
        pytest.param({"id": "a", "enabled": False}, id="disabled"),
        pytest.param({"id": "a", "on_conflict": "replace"}, id="replacing"),
    ],
)
async def test_the_job_that_adding_returns_is_the_one_that_is_read(idle: Scheduler, fields: dict[str, Any]) -> None:
    """A job is a value: the same one is equal, wherever it comes from."""
    added = await idle.add_job(Every("1h"), handler="work", **fields)

    assert await idle.get_job(added.id) == added
    assert await idle.list_jobs() == [added]


async def test_running_and_queued_jobs_are_listed_as_such(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """The status is what the job does at this moment, in the store that all share."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=1)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abc"])
    await clock.advance()

    listed = {status: [job.id for job in await scheduler.list_jobs(status=status)] for status in Status}

    assert (listed[Status.RUNNING], listed[Status.QUEUED], listed[Status.IDLE]) == (["a"], ["b"], ["c"])


async def test_a_run_that_was_queued_has_run_when_it_began(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """`last_run_at` is the start of the last run, not the moment at which it was put in the queue."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=1)
    worker.takes = "1m"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "ab"])

    await clock.advance("2m")

    assert (await job_of(scheduler, "b")).last_run_at == (await last_run(scheduler, "b")).started_at == NOON + MINUTE


# ---------------------------------------------------------------- the run log


async def test_the_run_log_is_newest_first_and_can_be_filtered(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Of one job or of all, of one outcome or of all, and no longer than asked for."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.add_job(Every("2m"), handler="work", id="b")
    await scheduler.add_job(Every("3m"), handler="work", id="c", namespace="tenant")
    await clock.advance("3m")
    worker.answer = ValueError("no")
    await clock.advance("1m")

    everything = await scheduler.run_log()
    assert [row.id for row in everything] == sorted((row.id for row in everything), reverse=True)
    assert {(row.namespace, row.job_id) for row in everything} == {("default", "a"), ("default", "b"), ("tenant", "c")}
    assert [row.scheduled_for for row in await scheduler.run_log("a")] == [NOON + n * MINUTE for n in (4, 3, 2, 1)]
    assert [row.job_id for row in await scheduler.run_log("c", namespace="tenant")] == ["c"]
    assert await scheduler.run_log("c") == []
    assert len(await scheduler.run_log("a", limit=2)) == 2
    assert {row.outcome for row in await scheduler.run_log(outcome="error")} == {Outcome.ERROR}
    assert len(await scheduler.run_log(outcome=Outcome.ERROR)) == 2
    with pytest.raises(SchedulerError):
        await scheduler.run_log(outcome="failed")


async def test_the_run_log_shows_fifty_unless_told(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Enough for a screen; None is all."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("60m")

    assert len(await scheduler.run_log("a")) == 50
    assert len(await scheduler.run_log("a", limit=None)) == 60


async def test_a_row_of_the_run_log(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """What was planned, what happened, how long it took and who did it."""
    worker.takes, worker.answer = "2s", Result("success", message="fine", exit_code=3)
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    clock.set(NOON + MINUTE + SECOND)
    await clock.advance("1s")
    during = await last_run(scheduler)

    await clock.advance("1s")
    row = await last_run(scheduler)

    assert (during.outcome, during.finished_at, during.duration_ms) == (None, None, None)
    assert (row.job_id, row.namespace, row.attempt, row.trigger) == ("a", "default", 1, Trigger.SCHEDULE)
    assert (row.scheduled_for, row.started_at) == (NOON + MINUTE, NOON + MINUTE + SECOND)
    assert (row.finished_at, row.duration_ms, row.delay_ms) == (NOON + MINUTE + 3 * SECOND, 2000, 1000)
    assert (row.outcome, row.reason, row.missed, row.error) == (Outcome.SUCCESS, None, 0, None)
    assert (row.message, row.exit_code) == ("fine", 3)
    assert row.node


async def test_the_log_keeps_the_newest_runs_of_each_job(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """A log that grows for ever fills every disk."""
    scheduler = new_scheduler(store, keep_runs=10)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.add_job(Every("100m"), handler="work", id="b")

    await clock.advance("205m")

    times = [row.scheduled_for for row in await scheduler.run_log("a", limit=None)]
    assert 10 <= len(times) <= 15
    assert times[0] == NOON + 205 * MINUTE
    assert len(await scheduler.run_log("b")) == 2


async def test_jobs_that_were_disabled_long_ago_are_removed_if_asked_for(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """One-shots would pile up otherwise; others stay."""
    scheduler = new_scheduler(store, purge_disabled_after="1h")
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="once")
    await scheduler.add_job(Every("10m"), handler="work", id="often")

    await clock.advance("50m")
    before = [job.id for job in await scheduler.list_jobs()]
    await clock.advance("15m")

    assert sorted(before) == ["often", "once"]
    assert [job.id for job in await scheduler.list_jobs()] == ["often"]


async def test_the_statistics_of_a_job(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Durations, delays and outcomes, in numbers."""
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.none())
    for seconds in (1, 2, 3, 4):
        worker.takes = timedelta(seconds=seconds)
        await clock.advance("1m")
    await clock.advance("10s")
    worker.takes, worker.answer = None, ValueError("no")
    await clock.advance("50s")
    worker.answer = Outcome.NOOP
    await clock.advance("59s")
    clock.set(NOON + 8 * MINUTE + 10 * SECOND)
    await clock.advance()

    stats = await scheduler.run_stats("a")

    assert stats.total == 6
    assert stats.counts == {"success": 4, "error": 1, "noop": 1, "skipped": 2}
    assert stats.success_rate == pytest.approx(5 / 6)
    assert stats.mean_ms == pytest.approx(10_000 / 6)
    assert (stats.p50_ms, stats.p95_ms) == (1000, 4000)
    assert (stats.delay_p50_ms, stats.delay_p95_ms) == (0, 130_000)
    assert stats.last_run_at == NOON + 8 * MINUTE + 10 * SECOND


async def test_statistics_can_begin_at_a_moment(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """How it went today, not ever."""
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.none())
    worker.answer = ValueError("no")
    await clock.advance("5m")
    worker.answer = None
    await clock.advance("5m")

    recent = await scheduler.run_stats("a", since=NOON + 6 * MINUTE)
    everything = await scheduler.run_stats("a")

    assert (recent.total, recent.counts, recent.success_rate) == (5, {"success": 5}, 1.0)
    assert (everything.total, everything.success_rate) == (10, 0.5)


async def test_the_statistics_of_a_job_that_never_ran(idle: Scheduler) -> None:
    """No numbers, rather than zeros that look like answers."""
    await idle.add_job(Manual(), handler="work", id="a")

    stats = await idle.run_stats("a")

    assert (stats.total, stats.counts, stats.success_rate, stats.last_run_at) == (0, {}, None, None)
    assert (stats.mean_ms, stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms) == (None,) * 5


# ---------------------------------------------------------------- one pass without the loop


async def test_a_pass_runs_what_is_due_in_order_and_awaits_it(
    idle: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """One after another: priority, longest since its last run, id."""
    await idle.add_jobs(
        [
            JobSpec(Every("1m"), handler="work", id="b"),
            JobSpec(Every("1m"), handler="work", id="a"),
            JobSpec(Every("1m"), handler="work", id="z", priority="high"),
            JobSpec(Every("1m"), handler="work", id="0", priority="low"),
            JobSpec(Every("2m"), handler="work", id="later"),
        ]
    )
    await clock.advance("1m")
    worker.takes = "1s"

    passing = asyncio.create_task(idle.run_pending())
    await clock.advance("10s")

    assert (await passing).executed == 4
    assert worker.ids == ["z", "a", "b", "0"]
    assert worker.fired(SECOND) == [60, 61, 62, 63]
    assert {row.outcome for row in await idle.run_log()} == {Outcome.SUCCESS}


async def test_a_pass_runs_as_many_at_once_as_may(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Who allows two at a time gets two at a time."""
    scheduler = new_scheduler(store, max_concurrent=2)
    worker.takes = "1s"
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(5)])

    passing = asyncio.create_task(scheduler.run_pending())
    await clock.advance("10s")

    assert (await passing).executed == 5
    assert worker.fired(SECOND) == [0, 0, 1, 1, 2]


async def test_a_pass_sums_up_what_it_did(idle: Scheduler, clock: VirtualClock) -> None:
    """Seed 002: so many executed, succeeded, failed, queued for a retry, skipped."""
    answers: dict[str, object] = {"ok": None, "noop": Outcome.NOOP, "skipped": Outcome.SKIPPED}

    @idle.handler("answer")
    async def answer(run: Run) -> object:
        if run.job_id in answers:
            return answers[run.job_id]
        raise ValueError("no")

    for name in ("ok", "noop", "skipped", "fails", "retries"):
        retry = Retry.in_window() if name == "retries" else Retry.none()
        await idle.add_job(At(NOON + MINUTE) if name == "ok" else Every("1m"), handler="answer", id=name, retry=retry)
    await idle.add_job(Every("90s"), handler="answer", id="missed", misfire="skip")
    await idle.add_job(Every("1h"), handler="answer", id="not due")
    await clock.advance("170s")

    summary = await idle.run_pending()

    assert summary == PassSummary(executed=5, succeeded=2, failed=2, retry_queued=1, skipped=2)
    assert str(summary) == "5 tasks executed (2 success, 1 failed, 1 retry queued, 2 skipped)"


async def test_a_pass_goes_on_behind_what_it_leaves_out(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A missed job that is skipped, first in the order, does not end the pass for those after it."""
    await idle.add_job(Every("1h"), handler="work", id="a", misfire="skip", priority="high")
    await idle.add_job(Every("1h"), handler="work", id="b")
    await clock.advance("90m")

    summary = await idle.run_pending()

    assert worker.ids == ["b"]
    assert (summary.executed, summary.skipped) == (1, 1)


async def test_the_summary_is_a_sentence(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """What a cron job mails to its owner."""
    nothing = await idle.run_pending()
    await idle.add_job(At(NOON), handler="work", id="a")
    one = await idle.run_pending()
    worker.answer = ValueError("no")
    await idle.add_job(At(NOON), handler="work", id="b", retry=Retry.in_window())
    await idle.add_job(At(NOON), handler="work", id="c")
    two = await idle.run_pending()

    assert str(nothing) == "Nothing was due"
    assert str(one) == "1 task executed (1 success)"
    assert str(two) == "2 tasks executed (1 failed, 1 retry queued)"


async def test_a_pass_can_be_asked_about_another_moment(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """What would be due then runs now."""
    await idle.add_job(At(NOON + HOUR), handler="work", id="a")
    await idle.add_job(At(NOON + 2 * HOUR), handler="work", id="b")

    now = await idle.run_pending()
    then = await idle.run_pending(now=NOON + HOUR)

    assert (now.executed, then.executed) == (0, 1)
    assert worker.ids == ["a"]
    with pytest.raises(InvalidScheduleError, match="time zone"):
        await idle.run_pending(now=datetime(2026, 1, 5))


async def test_a_pass_by_a_later_time_runs_each_job_once_although_the_loop_runs(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """By the clock, each run would be a reason to move its job back, and the job would be due in the pass again."""
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    ahead = await scheduler.run_pending(now=NOON + timedelta(days=10))
    await clock.advance("2h")

    assert (ahead.executed, [run.scheduled_for for run in worker.runs]) == (1, [NOON + HOUR, NOON + 2 * HOUR])


async def test_a_pass_does_not_run_a_job_twice(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A retry that is due at the next pass is not due in this one, nor is what came due while it ran."""
    worker.answer, worker.takes = ValueError("no"), "90s"
    await idle.add_job(Every("1m"), handler="work", id="a", retry=Retry.in_window())
    await idle.add_job(Delay("1s"), handler="work", id="b")
    await clock.advance("1m")

    passing = asyncio.create_task(idle.run_pending())
    await clock.advance("10m")

    assert (await passing).executed == 2
    assert sorted(worker.ids) == ["a", "b"]


async def test_a_pass_ends_with_its_own_session(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that is slow to notice stop() claims nothing after the store was opened again."""
    scheduler = new_scheduler(shared)
    follow, go = Tally.follow, asyncio.Event()

    async def follow_slowly(tally: Tally, active: ActiveRun) -> None:
        await follow(tally, active)
        await go.wait()

    monkeypatch.setattr(Tally, "follow", follow_slowly)
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "ab"])
    await scheduler.add_job(Manual(), handler="work", id="by hand")
    passing = asyncio.create_task(scheduler.run_pending())
    await clock.advance()
    await scheduler.stop()
    await scheduler.wait_for_run(await scheduler.trigger_job("by hand"))

    go.set()
    summary = await asyncio.wait_for(passing, PATIENCE)

    assert summary.executed == 1
    assert worker.ids == ["a", "by hand"]
    assert (await scheduler.run_pending()).executed == 1


async def test_a_pass_that_loses_its_node_does_not_go_on_in_another_session(
    new_scheduler: NewScheduler, shared: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins the store again and then claims, but not if stop() came first."""
    scheduler = new_scheduler(shared)

    async def lose_the_node(work: Callable[[], Awaitable[object]]) -> object:
        monkeypatch.setattr(membership, "as_node", as_node)
        await scheduler.stop()
        await scheduler.wait_for_run(await scheduler.trigger_job("by hand"))
        return await work()

    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(Manual(), handler="work", id="by hand")
    membership = scheduler._engine.session.membership
    as_node = membership.as_node
    monkeypatch.setattr(membership, "as_node", lose_the_node)

    summary = await asyncio.wait_for(scheduler.run_pending(), PATIENCE)

    assert summary.executed == 0
    assert worker.ids == ["by hand"]


# ---------------------------------------------------------------- preview


async def test_a_preview_shows_what_will_run_in_order(many: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Not what is paused, disabled or waits for a trigger."""
    rows = await many.preview("3m")

    planned = [(row.job.id, (row.at - NOON) / MINUTE) for row in rows]
    assert planned == [("a", 1), ("a", 2), ("b", 2), ("a", 3), ("c", 3)]


async def test_a_preview_looks_an_hour_ahead_unless_told(idle: Scheduler) -> None:
    """The edge of the window belongs to it."""
    await idle.add_job(At(NOON + HOUR), handler="work", id="a")
    await idle.add_job(At(NOON + HOUR + SECOND), handler="work", id="b")

    assert [row.job.id for row in await idle.preview()] == ["a"]
    assert [row.job.id for row in await idle.preview(timedelta(minutes=61))] == ["a", "b"]


async def test_a_preview_shows_what_is_due_as_running_now(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Overdue is now, once, with a warning about what is not made up for."""
    await idle.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("35m")

    first, second = await idle.preview("10m")

    assert (first.at, second.at) == (NOON + 35 * MINUTE, NOON + 40 * MINUTE)
    assert any("2 missed" in warning for warning in first.warnings)


async def test_a_preview_tells_of_retries_and_missing_handlers(
    idle: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What a person should know before it runs."""
    worker.answer = ValueError("no")
    await idle.add_job(Every("1h"), handler="work", id="retried", retry=Retry.in_window(2, delay="5m"))
    await idle.add_job(Every("1h"), handler="elsewhere", id="unhandled")
    await clock.advance("1h")
    await idle.run_pending()

    rows = {row.job.id: row for row in await idle.preview("30m")}

    assert rows["retried"].retries_left == 1
    assert any("retry" in warning for warning in rows["retried"].warnings)
    assert any("no handler" in warning for warning in rows["unhandled"].warnings)
    assert rows["unhandled"].retries_left == 5


async def test_a_preview_shows_the_next_runs_of_what_runs_now(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A job does not vanish from the plan because it is busy."""
    worker.blocks = True
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("10m")

    rows = await scheduler.preview("30m")

    assert [(row.at - NOON) / MINUTE for row in rows] == [20, 30, 40]


async def test_a_preview_touches_nothing(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Looking is not running."""
    await idle.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("35m")
    before = await job_of(idle)

    await idle.preview("1d")

    assert await idle.get_job("a") == before
    assert (worker.runs, await idle.run_log()) == ([], [])


# ---------------------------------------------------------------- explain


async def test_a_job_that_is_not_due_is_explained(scheduler: Scheduler) -> None:
    """When, and by which schedule."""
    await scheduler.add_job(Every("5m"), handler="work", id="a")

    why = await scheduler.explain("a")

    assert (why.reason, why.until) == (SkipReason.NOT_DUE, NOON + 5 * MINUTE)
    assert str(why) == 'Job "a" is not due: it runs every 5 minutes, next at 2026-01-05 12:05 UTC, in 5 minutes.'


@pytest.mark.parametrize("zone", ["Asia/Tokyo", ZoneInfo("Asia/Tokyo"), timezone(9 * HOUR, "JST")], ids=repr)
async def test_a_reader_may_name_a_zone(zone: Any, idle: Scheduler) -> None:
    await idle.add_job(At(NOON + HOUR), handler="work", id="a")

    assert "2026-01-05 22:00 JST" in str(await idle.explain("a", zone=zone))
    with pytest.raises(UnknownZoneError):
        await idle.explain("a", zone="Asia/Tokio")


@pytest.mark.parametrize(("at", "until"), [(NOON, None), (NOON + HOUR, NOON + HOUR)], ids=["due", "due later"])
async def test_that_no_scheduler_is_running_is_explained(idle: Scheduler, at: datetime, until: datetime | None) -> None:
    """Also for a job that is not due yet: it will not run either."""
    await idle.add_job(At(at), handler="work", id="a")

    why = await idle.explain("a")

    assert (why.reason, why.until) == (SkipReason.NO_SCHEDULER, until)
    assert "no scheduler is running" in str(why)


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_scheduler_knows_the_handlers_of_another(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    """Also one that it got after its start."""
    one, other = new_scheduler(shared), new_scheduler(shared, max_concurrent=1)
    await one.start()
    await one.add_job(At(NOON), handler="late", id="a")
    await other.start()
    await other.add_job(At(NOON), handler="work", id="long")
    assert (await one.explain("a")).reason is SkipReason.NO_HANDLER
    worker.blocks = True
    await other.add_job(At(NOON), handler="work", id="blocks")

    other.handler("late")(worker)
    await clock.advance("3s")

    assert (await one.explain("a")).reason is not SkipReason.NO_HANDLER
    worker.go.set()


async def test_another_scheduler_on_the_store_may_run_a_job(new_scheduler: NewScheduler, shared: str) -> None:
    """It is alive, and may have handlers that this one lacks."""
    running, asking = new_scheduler(shared), new_scheduler(shared, knows_work=False)
    await running.start()
    await running.add_job(At(NOON + HOUR), handler="work", id="a")

    assert (await asking.explain("a")).reason is SkipReason.NOT_DUE
    await running.add_job(At(NOON), handler="unknown", id="b")
    assert (await asking.explain("b")).reason is SkipReason.NO_HANDLER
    await running.add_job(At(NOON + HOUR), handler="unknown", id="c")
    not_due = await asking.explain("c")
    assert (not_due.reason, not_due.until) == (SkipReason.NO_HANDLER, NOON + HOUR)
    assert 'does not run: no running scheduler has its handler "unknown". Its schedule: once at' in str(not_due)
    then = await asking.explain("c", at=NOON + HOUR)
    assert then.reason is SkipReason.NO_HANDLER
    assert "should run at 2026-01-05 13:00 UTC, but would not now: no handler is registered" in str(then)
    await running.stop()
    assert (await asking.explain("a")).reason is SkipReason.NO_SCHEDULER


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        pytest.param({"enabled": False}, SkipReason.DISABLED, "added disabled", id="disabled"),
        pytest.param({"schedule": Manual()}, SkipReason.MANUAL_ONLY, "trigger", id="manual"),
        pytest.param({"handler": "elsewhere"}, SkipReason.NO_HANDLER, "elsewhere", id="no handler"),
    ],
)
async def test_a_job_that_cannot_run_is_explained(
    fields: dict[str, Any], reason: SkipReason, words: str, scheduler: Scheduler
) -> None:
    """Each with its reason, and a sentence that says what it is about."""
    given: dict[str, Any] = {"schedule": At(NOON), "handler": "work", "id": "a", **fields}
    await scheduler.add_job(given.pop("schedule"), **given)

    why = await scheduler.explain("a")

    assert (why.reason, why.until) == (reason, None)
    assert words in str(why)


async def test_paused_and_ended_jobs_are_explained(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Both will not change by themselves."""
    await scheduler.add_job(Every("1m"), handler="work", id="paused")
    await scheduler.pause_job("paused")
    await scheduler.add_job(At(NOON), handler="work", id="ended")
    await clock.advance()

    paused, ended = await scheduler.explain("paused"), await scheduler.explain("ended")

    assert (paused.reason, ended.reason) == (SkipReason.PAUSED, SkipReason.ENDED)
    assert "resume_job" in str(paused)
    assert "no further occurrences" in str(ended)


async def test_a_running_job_is_explained(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """It is at it already."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    assert (await scheduler.explain("a")).reason is SkipReason.ALREADY_RUNNING


async def test_a_job_that_backs_off_is_explained(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """After how many failures, which, and until when."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a")
    await clock.advance("15s")

    why = await scheduler.explain("a")

    assert (why.reason, why.until) == (SkipReason.BACKOFF, NOON + 40 * SECOND)
    assert "1 failure in a row (ValueError: no)" in str(why)


async def test_a_job_without_retries_left_is_explained(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Until the next regular time, or the end of the period."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window(1))
    await clock.advance("61m")

    why = await scheduler.explain("a")

    assert (why.reason, why.until) == (SkipReason.RETRIES_EXHAUSTED, NOON + 2 * HOUR)


@pytest.mark.parametrize(
    ("options", "group", "reason"),
    [
        pytest.param({"max_concurrent": 1}, None, SkipReason.AT_CAPACITY, id="at capacity"),
        pytest.param({"max_concurrent": 1, "queue_size": 1}, None, SkipReason.QUEUE_FULL, id="queue full"),
        pytest.param({"group_limits": {"x": 2}}, "x", SkipReason.GROUP_FULL, id="group full"),
    ],
)
async def test_a_job_without_room_is_explained(
    options: dict[str, Any],
    group: str | None,
    reason: SkipReason,
    new_scheduler: NewScheduler,
    store: str,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """Which limit it is that keeps it waiting."""
    scheduler = new_scheduler(store, **options)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name, group=group) for name in "abc"])
    await clock.advance()

    assert (await scheduler.explain("c")).reason is reason


@pytest.mark.parametrize(
    ("limits", "running", "reasons"),
    [
        pytest.param(1, ["a", "c"], [SkipReason.GROUP_FULL, SkipReason.GROUP_FULL], id="each in its namespace"),
        pytest.param({"x": 1, "*/x": 3}, ["a", "c"], [SkipReason.GROUP_FULL, SkipReason.GROUP_FULL], id="the narrower"),
        pytest.param({"*/x": 3}, ["a", "b", "c"], [SkipReason.ALREADY_RUNNING, SkipReason.GROUP_FULL], id="across all"),
        pytest.param({"y": 1}, ["a", "b", "c", "d"], [SkipReason.ALREADY_RUNNING] * 2, id="another group"),
    ],
)
async def test_groups_are_limited_within_their_namespaces_and_across_them(
    limits: int | dict[str, int],
    running: list[str],
    reasons: list[SkipReason],
    new_scheduler: NewScheduler,
    store: str,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """And `explain` goes by the same limits."""
    scheduler = new_scheduler(store, group_limits=limits)
    worker.blocks = True
    await scheduler.start()
    names = [("one", "a"), ("one", "b"), ("two", "c"), ("two", "d")]
    await scheduler.add_jobs(
        [JobSpec(At(NOON), handler="work", id=name, namespace=namespace, group="x") for namespace, name in names]
    )
    await clock.advance()

    assert sorted(worker.ids) == running
    assert [
        (await scheduler.explain(name, namespace=of)).reason for of, name in (("one", "b"), ("two", "d"))
    ] == reasons


@pytest.mark.parametrize(
    ("key", "started"),
    [
        pytest.param("*/a/mail", ["1", "3", "4"], id="across all namespaces"),
        pytest.param("a/mail", ["1", "2", "3", "4"], id="in each namespace"),
    ],
)
async def test_a_group_whose_name_contains_a_slash_can_be_limited(
    new_scheduler: NewScheduler,
    store: str,
    worker: Worker,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    key: str,
    started: list[str],
) -> None:
    """The key may have been meant for one namespace, which is pointed out."""
    scheduler = new_scheduler(store, group_limits={key: 1})
    assert ("not a group of one namespace" in caplog.text) is (key == "a/mail")
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs(
        [
            JobSpec(At(NOON), handler="work", id="1", group="a/mail"),
            JobSpec(At(NOON), handler="work", id="2", group="a/mail", namespace="b"),
            JobSpec(At(NOON), handler="work", id="3", group="mail", namespace="a"),
            JobSpec(At(NOON), handler="work", id="4", group="mail", namespace="a"),
        ]
    )
    await clock.advance()

    assert sorted(worker.ids) == started


async def test_a_job_is_explained_while_the_scheduler_stops(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It is due, and will not start any more."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="b")
    await clock.advance()
    stopping = asyncio.create_task(scheduler.stop(timeout=3600))
    await clock.advance("1m")

    why = await scheduler.explain("b")
    worker.go.set()
    await stopping

    assert why.reason is SkipReason.STOPPING


async def test_a_job_of_another_namespace_is_explained_by_its_full_name(idle: Scheduler) -> None:
    """Two tenants may use the same id."""
    await idle.add_job(Manual(), handler="work", id="a", namespace="tenant")

    assert 'Job "tenant/a"' in str(await idle.explain("a", namespace="tenant"))


# ---------------------------------------------------------------- namespaces


async def test_the_name_of_a_namespace_cannot_be_changed(idle: Scheduler) -> None:
    """Who is handed a view of one namespace must not reach another by it."""
    mine = idle.namespace("mine")

    with pytest.raises(AttributeError):
        mine.name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        mine.anything = "else"  # type: ignore[attr-defined]

    assert (mine.name, repr(mine)) == ("mine", "Namespace('mine')")


async def test_a_job_of_a_namespace_with_a_slash_has_its_key_everywhere(
    idle: Scheduler, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, in the key of its runs, and as the seed of its jitter."""
    caplog.set_level(logging.INFO, "scheduler_async")
    schedule = Every("1h", jitter="10%")
    await idle.add_job(schedule, handler="work", id="c", namespace="a/b")
    await idle.trigger_job("c", namespace="a/b")

    job = await idle.get_job("c", namespace="a/b")
    await idle.stop()

    assert job is not None
    assert job.key == worker.runs[0].job.key == "/a%2Fb/c"
    assert worker.runs[0].idempotency_key.startswith("/a%2Fb/c@")
    assert job.state.next_run_at == schedule.jittered(to_micros(NOON + HOUR), "/a%2Fb/c")
    assert {record.job for record in caplog.records if hasattr(record, "job")} == {"/a%2Fb/c"}


async def test_a_namespace_sees_only_its_own_jobs(idle: Scheduler) -> None:
    """Whatever the others have, and whatever it asks."""
    mine, other = idle.namespace("mine"), idle.namespace("other")
    await idle.add_job(Manual(), handler="work", id="a")
    await other.schedule(Manual(), handler="work", id="a")
    job = await mine.schedule(Manual(), handler="work", id="b")

    assert [found.key for found in await mine.list()] == ["mine/b"]
    assert [found.key for found in await mine.list(handler="work", limit=5)] == ["mine/b"]
    assert (await mine.get("a"), job.namespace) == (None, "mine")
    with pytest.raises(TypeError):
        await mine.list(namespace="other")  # type: ignore[call-arg]


async def test_a_namespace_cannot_touch_the_jobs_of_others(idle: Scheduler) -> None:
    """Nor add any there."""
    mine = idle.namespace("mine")
    theirs = await idle.add_job(Every("1m"), handler="work", id="a")

    with pytest.raises(JobNotFoundError):
        await mine.cancel("a")
    with pytest.raises(TypeError):
        await mine.schedule(Every("9m"), handler="work", id="a", namespace="default")  # type: ignore[call-arg]

    assert await idle.list_jobs() == [theirs]


async def test_a_namespace_schedules_by_upsert(idle: Scheduler, clock: VirtualClock) -> None:
    """An extension says at every start what it wants; the same wish keeps its cadence."""
    mine = idle.namespace("mine")
    await mine.schedule(Every("10m"), handler="work", id="a", payload=1)
    await clock.advance("7m")

    job = await mine.schedule(Every("10m"), handler="work", id="a", payload=2)

    assert (job.payload, job.next_run_at) == (2, NOON + 10 * MINUTE)
    assert len(await mine.list()) == 1


async def test_a_namespace_cancels_by_disabling(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """The job stays listed, runs no more, and is enabled when it is scheduled again."""
    mine = scheduler.namespace("mine")
    await mine.schedule(Every("1m"), handler="work", id="a")

    cancelled = await mine.cancel("a")
    await clock.advance("5m")
    runs = len(worker.runs)
    again = await mine.schedule(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    assert (cancelled.status, runs) == (Status.DISABLED, 0)
    assert (again.status, len(worker.runs)) == (Status.IDLE, 1)
    assert worker.runs[0].namespace == "mine"


@pytest.mark.parametrize("name", ["", " a", 5])
def test_a_namespace_has_a_name(name: Any) -> None:
    """One that can be typed again."""
    with pytest.raises(InvalidJobError):
        Scheduler(":memory:").namespace(name)


# ---------------------------------------------------------------- events


async def test_what_is_done_to_jobs_is_told(scheduler: Scheduler) -> None:
    """Added, updated, paused, resumed, disabled, removed, each with the job as it is then."""
    stream = scheduler.events()

    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.update_job("a", name="A")
    await scheduler.add_job(Every("1h"), handler="work", id="a", on_conflict="keep")
    await scheduler.pause_job("a")
    await scheduler.resume_job("a")
    await scheduler.namespace("default").cancel("a")
    await scheduler.remove_job("a")
    await scheduler.stop()

    told = [event async for event in stream]
    kinds = [event.kind.value for event in told]
    assert kinds == ["added", "updated", "paused", "resumed", "disabled", "removed", "stopped"]
    jobs = [event.job for event in told if event.job is not None]
    assert [job.status.value for job in jobs] == ["idle", "idle", "paused", "idle", "disabled", "disabled"]
    assert told[4].reason == "it was cancelled"
    assert {event.at for event in told} == {NOON}


async def test_an_edit_that_disables_a_job_is_told_as_that(scheduler: Scheduler) -> None:
    """Who waits for the end of a job need not compare what it was with what it is."""
    stream = scheduler.events()

    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.update_job("a", enabled=False)
    await scheduler.update_job("a", enabled=True)

    assert [kind.value for kind in await kinds_until_stopped(scheduler, stream)] == [
        *("added", "disabled", "updated", "stopped"),
    ]


async def test_what_changes_nothing_is_not_told(scheduler: Scheduler) -> None:
    """Pausing what is paused, resuming what goes on. Pausing what is disabled is refused."""
    stream = scheduler.events()

    job = await scheduler.add_job(Every("1h"), handler="work", id="a")
    assert await scheduler.resume_job("a") == job
    paused = await scheduler.pause_job("a")
    assert await scheduler.pause_job("a") == paused
    await scheduler.disable_job("a")
    with pytest.raises(JobDisabledError):
        await scheduler.pause_job("a")

    assert [kind.value for kind in await kinds_until_stopped(scheduler, stream)] == [
        *("added", "paused", "disabled", "stopped"),
    ]


async def test_runs_are_told(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A start with an open row, an end with a closed one, and what was skipped with its reason."""
    stream = scheduler.events()
    worker.takes = "90s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("150s")
    await scheduler.stop()

    told = [event async for event in stream]
    assert [event.kind.value for event in told] == ["added", "run_started", "run_finished", "run_skipped", "stopped"]
    started, finished, skipped = (event.run for event in told[1:4])
    assert started is not None
    assert finished is not None
    assert skipped is not None
    assert (started.outcome, started.finished_at, told[1].at) == (None, None, NOON + MINUTE)
    assert (finished.id, finished.outcome, told[2].at) == (started.id, Outcome.SUCCESS, NOON + 150 * SECOND)
    assert (skipped.missed, told[3].reason) == (1, SkipReason.ALREADY_RUNNING)


async def test_a_job_that_is_given_up_is_told(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """With the reason, after the run that was the last straw."""
    stream = scheduler.events()
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.none(disable_after=1))

    await clock.advance("1m")
    await scheduler.stop()

    told = [event async for event in stream]
    assert [event.kind.value for event in told][-3:] == ["run_finished", "disabled", "stopped"]
    assert "ValueError: no" in str(told[-2].reason)


async def test_started_stopped_and_jumps_are_told(idle: Scheduler, clock: VirtualClock) -> None:
    """The life of the scheduler itself."""
    stream = idle.events()

    await idle.start()
    await clock.advance()
    clock.set(NOON + HOUR)
    await clock.advance()

    assert [kind.value for kind in await kinds_until_stopped(idle, stream)] == ["started", "clock_jumped", "stopped"]


async def test_events_are_told_when_they_are_committed(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Who hears of an ending and asks the store finds it there."""
    heard: list[tuple[Status, Outcome | None]] = []
    stream = scheduler.events()

    async def listen() -> None:
        async for event in stream:
            if event.kind is EventKind.RUN_FINISHED:
                heard.append(((await job_of(scheduler)).status, (await last_run(scheduler)).outcome))
                return

    listener = asyncio.create_task(listen())
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")
    async with asyncio.timeout(PATIENCE):
        await listener

    assert heard == [(Status.IDLE, Outcome.SUCCESS)]


async def test_a_slow_reader_loses_its_oldest_events(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never slows the scheduler, nor another reader."""
    monkeypatch.setattr(events, "MAX_UNREAD", 3)
    slow, quick = scheduler.events(), scheduler.events()
    quick_ids = []

    for name in "abcde":
        await scheduler.add_job(Manual(), handler="work", id=name)
        event = await anext(quick)
        quick_ids += [event.job.id if event.job else None]

    await scheduler.stop()
    assert [event.job.id if event.job else None async for event in slow] == ["d", "e", None]
    assert quick_ids == [*"abcde"]
    assert (slow.lost, quick.lost) == (3, 0)


async def test_a_quick_reader_hears_of_every_run_of_a_crowd(scheduler: Scheduler, clock: VirtualClock) -> None:
    """However many end together, and although each of them has several things to tell."""
    count = 2_000
    begun, may_end = 0, asyncio.Event()

    @scheduler.handler("crowded")
    async def crowded(run: Run) -> None:
        nonlocal begun
        begun += 1
        await may_end.wait()

    at = clock.now() + timedelta(minutes=1)
    await scheduler.add_jobs([JobSpec(At(at), handler="crowded", id=f"{number}") for number in range(count)])
    stream = scheduler.events()
    heard: Counter[EventKind] = Counter()

    async def listen() -> None:
        async for event in stream:
            heard[event.kind] += 1

    listener = asyncio.create_task(listen())
    await clock.advance("1m")
    assert begun == count
    may_end.set()
    await scheduler.stop()
    async with asyncio.timeout(PATIENCE):
        await listener

    told = (EventKind.RUN_STARTED, EventKind.RUN_FINISHED, EventKind.DISABLED)
    assert ([heard[kind] for kind in told], stream.lost) == ([count] * 3, 0)


async def test_a_reader_that_leaves_is_told_nothing_more(scheduler: Scheduler) -> None:
    """And its stream ends after what is unread."""
    stream = scheduler.events()
    await scheduler.add_job(Manual(), handler="work", id="a")
    await stream.aclose()

    await scheduler.add_job(Manual(), handler="work", id="b")

    assert [event.job.id async for event in stream if event.job] == ["a"]


# ---------------------------------------------------------------- handlers for everything, and frameworks


async def test_one_handler_can_serve_every_job_without_one(
    idle: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Seed 000: on_job_due gets what nobody else handles, even if it was waiting."""
    due: list[str] = []
    await idle.start()
    await idle.add_job(At(NOON), handler="anything", id="a")
    await idle.add_job(At(NOON), handler="work", id="b")
    await clock.advance()

    @idle.on_job_due
    async def on_due(run: Run) -> None:
        due.append(run.job_id)

    await clock.advance()
    await idle.add_job(At(NOON), handler="else", id="c")
    await clock.advance()

    assert (due, worker.ids) == (["a", "c"], ["b"])


async def test_the_lifespan_of_a_web_application(idle: Scheduler) -> None:
    """FastAPI and Starlette enter it at startup and leave it at shutdown."""
    async with idle.lifespan(object()):
        assert idle.status == "running"

    assert idle.status == "stopped"


async def test_the_cleanup_context_of_a_web_application(idle: Scheduler) -> None:
    """aiohttp goes on with the generator at cleanup."""
    context = idle.cleanup_ctx(object())

    await anext(context)
    during = idle.status
    with pytest.raises(StopAsyncIteration):
        await anext(context)

    assert (during, idle.status) == ("running", "stopped")


# ---------------------------------------------------------------- without the loop, and from other processes


async def test_everything_but_the_loop_works_without_it(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """The store opens at first use; a command line needs no more."""
    await idle.add_job(Every("1m"), handler="work", id="a")
    await idle.update_job("a", name="A")
    await idle.pause_job("a")
    await idle.resume_job("a")
    run_id = await idle.trigger_job("a")
    await idle.wait_for_run(run_id)
    await clock.advance("1m")
    summary = await idle.run_pending()

    assert summary.executed == 1
    assert len(await idle.run_log("a")) == 2
    assert (await idle.run_stats("a")).total == 2
    assert len(await idle.preview()) == 60
    assert (await idle.explain("a")).reason is SkipReason.NO_SCHEDULER
    assert (await idle.remove_job("a")).id == "a"
    assert idle.status == "stopped"


async def test_nothing_runs_by_itself_without_the_loop(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Adding a job in a script does not make the script a scheduler."""
    await idle.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("1h")

    assert worker.runs == []


async def test_stop_closes_a_store_that_was_only_used(path: Path, new_scheduler: NewScheduler) -> None:
    """Nothing of it is left open, and the next call opens it again."""
    scheduler = new_scheduler(path)
    await scheduler.add_job(Manual(), handler="work", id="a")

    await scheduler.stop()

    assert files_beside(path) == ["jobs.db"]
    assert [job.id for job in await scheduler.list_jobs()] == ["a"]


def files_beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_change_by_another_process_is_noticed_within_two_seconds(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Added, edited or resumed elsewhere: the loop does not sleep over it."""
    running, other = new_scheduler(path), new_scheduler(path)
    await running.start()
    await running.add_job(Every("1d"), handler="work", id="edited")
    await running.add_job(Every("10m"), handler="work", id="paused")
    await clock.advance("5m")

    await other.add_job(At(NOON), handler="work", id="added")
    await other.update_job("edited", schedule=Every("1m"))
    await other.pause_job("paused")
    await clock.advance("2s")
    soon = list(worker.ids)
    await clock.advance("8m")

    assert soon == ["added"]
    assert worker.fired(SECOND)[1] == 360
    assert set(worker.ids) == {"added", "edited"}


async def test_jobs_can_be_added_from_many_tasks_at_once(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """None is lost, and none is run twice."""
    await asyncio.gather(*(scheduler.add_job(At(NOON), handler="work", id=f"{n}") for n in range(50)))
    await clock.advance()

    assert sorted(worker.ids, key=int) == [f"{n}" for n in range(50)]


# ---------------------------------------------------------------- handlers


class Methods:
    """Something with methods."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    async def with_run(self, run: Run) -> None:
        self.calls.append(run)

    async def without_run(self) -> None:
        self.calls.append(None)

    def plain(self, run: Run) -> None:
        self.calls.append(run)

    async def with_more(self, more: str, run: Run) -> None:
        self.calls.append(run)

    def plain_with_more(self, run: Run, more: str = "") -> None:
        self.calls.append(run)


class AsyncCallable(Methods):
    async def __call__(self, run: Run) -> None:
        self.calls.append(run)


class PlainCallable(Methods):
    def __call__(self) -> None:
        self.calls.append(None)


def as_function(methods: Methods) -> Callable[..., Any]:
    async def function(run: Run) -> None:
        methods.calls.append(run)

    return function


def as_function_without_run(methods: Methods) -> Callable[..., Any]:
    async def function() -> None:
        methods.calls.append(None)

    return function


def as_plain_function(methods: Methods) -> Callable[..., Any]:
    def function(run: Run) -> None:
        methods.calls.append(run)

    return function


def as_plain_function_without_run(methods: Methods) -> Callable[..., Any]:
    def function() -> None:
        methods.calls.append(None)

    return function


HANDLERS: list[Any] = [
    pytest.param(Methods, as_function, True, id="async"),
    pytest.param(Methods, as_function_without_run, False, id="async without run"),
    pytest.param(Methods, as_plain_function, True, id="plain"),
    pytest.param(Methods, as_plain_function_without_run, False, id="plain without run"),
    pytest.param(Methods, lambda m: m.with_run, True, id="method"),
    pytest.param(Methods, lambda m: m.without_run, False, id="method without run"),
    pytest.param(Methods, lambda m: m.plain, True, id="plain method"),
    pytest.param(Methods, lambda m: partial(m.with_more, "more"), True, id="partial"),
    pytest.param(Methods, lambda m: partial(m.plain_with_more, more="more"), True, id="plain partial"),
    pytest.param(Methods, lambda m: partial(partial(m.with_more, "more")), True, id="partial of a partial"),
    pytest.param(AsyncCallable, lambda m: m, True, id="object"),
    pytest.param(PlainCallable, lambda m: m, False, id="plain object"),
    pytest.param(AsyncCallable, partial, True, id="partial of an object"),
]


@pytest.mark.parametrize(("cast", "make", "takes_run"), HANDLERS)
async def test_handlers_of_every_kind_are_called(
    cast: type[Methods],
    make: Callable[[Methods], Callable[..., Any]],
    takes_run: bool,
    scheduler: Scheduler,
    clock: VirtualClock,
) -> None:
    """With the run if they take it, without it otherwise, in a thread if they are not async."""
    methods = cast()
    scheduler.handler("h")(make(methods))
    await scheduler.add_job(At(NOON), handler="h", id="a")

    await clock.advance()

    (call,) = methods.calls
    assert isinstance(call, Run) is takes_run
    assert (await last_run(scheduler)).outcome is Outcome.SUCCESS


async def test_a_method_is_recognised_when_it_is_named_again(scheduler: Scheduler, clock: VirtualClock) -> None:
    """`thing.method` is another object each time, and still the same handler."""
    methods = Methods()
    scheduler.handler("h")(methods.with_run)
    scheduler.handler("h")(methods.with_run)

    job = await scheduler.add_job(At(NOON), handler=methods.with_run, id="a")
    await clock.advance()

    assert (job.handler, len(methods.calls)) == ("h", 1)


@pytest.mark.parametrize("make", [lambda: Methods().with_run, AsyncCallable, lambda: partial(print)])
def test_a_name_has_one_handler(make: Callable[[], Callable[..., Any]]) -> None:
    """Whatever they are, two under one name is a mistake that is told."""
    scheduler = Scheduler(":memory:")
    scheduler.handler("h")(make())

    with pytest.raises(InvalidJobError, match="already") as caught:
        scheduler.handler("h")(make())

    assert caught.value.field == "handler"


async def test_a_handler_takes_its_functions_name_if_it_is_given_none(idle: Scheduler) -> None:
    """With or without parentheses; a partial is called as what it calls, and an object as its class."""

    @idle.handler
    async def first() -> None: ...

    @idle.handler()
    async def second() -> None: ...

    async def third(more: str) -> None: ...

    bound, thing = partial(third, "more"), AsyncCallable()
    idle.handler(bound)
    idle.handler(thing)

    jobs = [await idle.add_job(Manual(), handler=handler) for handler in (first, second, bound, thing)]

    assert [job.handler for job in jobs] == ["first", "second", "third", "AsyncCallable"]


async def needs_a_clock(run: Run, clock: VirtualClock) -> None: ...


async def needs_a_keyword(*, clock: VirtualClock) -> None: ...


@pytest.mark.parametrize("function", [needs_a_clock, needs_a_keyword, "text", None, 5])
def test_what_cannot_be_called_as_a_handler_is_refused(function: Any) -> None:
    """When it is registered, not when it is due."""
    with pytest.raises(InvalidJobError):
        Scheduler(":memory:").handler("h")(function)


async def test_a_plain_function_runs_in_a_thread(scheduler: Scheduler, clock: VirtualClock) -> None:
    """A function that blocks must not stop the event loop, nor the other jobs."""
    threads: list[threading.Thread] = []
    release = threading.Event()

    @scheduler.handler("plain")
    def plain() -> None:
        threads.append(threading.current_thread())
        release.wait(PATIENCE)

    @scheduler.handler("release")
    async def let_go() -> None:
        release.set()

    await scheduler.add_job(At(NOON), handler="plain", id="a")
    await scheduler.add_job(At(NOON), handler="release", id="b")

    await clock.advance()

    assert threads[0] is not threading.main_thread()
    assert {row.outcome for row in await scheduler.run_log()} == {Outcome.SUCCESS}


@pytest.mark.parametrize(
    ("answer", "outcome", "message", "exit_code", "error"),
    [
        pytest.param(None, "success", None, None, None, id="nothing"),
        pytest.param(True, "success", None, None, None, id="true"),
        pytest.param("whatever", "success", None, None, None, id="something"),
        pytest.param(0, "success", None, None, None, id="zero is not false"),
        pytest.param(Outcome.NOOP, "noop", None, None, None, id="noop"),
        pytest.param(Outcome.SKIPPED, "skipped", None, None, None, id="skipped"),
        pytest.param(Result(), "success", None, None, None, id="a result"),
        pytest.param(Result("noop", message="nothing new"), "noop", "nothing new", None, None, id="a message"),
        pytest.param(Result("error", message="bad", exit_code=3), "error", "bad", 3, "bad", id="an exit code"),
        pytest.param(Outcome.ERROR, "error", None, None, "error", id="an error"),
        pytest.param(ValueError("no"), "error", None, None, "ValueError: no", id="an exception"),
        pytest.param(ValueError(), "error", None, None, "ValueError", id="an exception without words"),
    ],
)
async def test_what_a_handler_answers_is_recorded(
    answer: object,
    outcome: str,
    message: str | None,
    exit_code: int | None,
    error: str | None,
    scheduler: Scheduler,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """With the run, and with the job."""
    worker.answer = answer
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("1m")

    row, job = await last_run(scheduler), await job_of(scheduler)
    assert (row.outcome, row.message, row.exit_code, row.error) == (outcome, message, exit_code, error)
    assert (job.last_message, job.last_exit_code, job.last_error) == (message, exit_code, error)
    assert job.last_run_at == NOON + MINUTE
    assert job.last_success_at == (NOON + MINUTE if outcome in ("success", "noop") else None)
    assert job.last_error_at == (NOON + MINUTE if error else None)
    assert (job.status, job.consecutive_errors) == (Status.IDLE, int(error is not None))


async def test_a_handler_that_answers_false_disables_its_job(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Seed 001: the extension is not loaded any more; the run itself went well."""
    worker.answer = False
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("5m")

    job = await job_of(scheduler)
    assert (job.status, job.disabled_reason) == (Status.DISABLED, "its handler returned False")
    assert ((await last_run(scheduler)).outcome, len(worker.runs)) == (Outcome.SUCCESS, 1)


async def test_the_current_run_is_known_below_the_handler(scheduler: Scheduler, clock: VirtualClock) -> None:
    """In what it calls, in its tasks and in its threads; and nowhere else."""
    found: dict[str, int] = {}

    def note(where: str) -> None:
        found[where] = current_run().id

    async def note_in_task() -> None:
        note("task")

    @scheduler.handler("look")
    async def look(run: Run) -> None:
        found["run"] = run.id
        assert current_run() is run
        note("call")
        await asyncio.create_task(note_in_task())
        await asyncio.to_thread(note, "thread")

    @scheduler.handler("plain")
    def plain(run: Run) -> None:
        assert current_run() is run

    await scheduler.add_job(Manual(), handler="look", id="a")
    await scheduler.add_job(Manual(), handler="plain", id="b")
    for name in "ab":
        await scheduler.wait_for_run(await scheduler.trigger_job(name))

    assert set(found) == {"run", "call", "task", "thread"}
    assert len(set(found.values())) == 1
    assert [row.error for row in await scheduler.run_log()] == [None, None]
    with pytest.raises(SchedulerError, match="No run is in progress"):
        current_run()


async def test_runs_at_the_same_time_each_know_their_own(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Concurrent runs do not see each other."""
    right: list[bool] = []

    @scheduler.handler("look")
    async def look(run: Run) -> None:
        await clock.sleep("1s")
        right.append(current_run() is run)

    await scheduler.add_jobs([JobSpec(At(NOON), handler="look", id=f"{n}") for n in range(5)])
    await clock.advance("2s")

    assert right == [True] * 5


async def test_what_a_run_knows(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Everything a handler may want to ask."""
    await scheduler.add_job(Every("1m"), handler="work", id="a", namespace="t", user_id="ann", payload={"n": 1})

    clock.set(NOON + MINUTE + 2 * SECOND)
    await clock.advance()

    (run,) = worker.runs
    assert (run.job_id, run.namespace, run.user_id, run.payload) == ("a", "t", "ann", {"n": 1})
    assert (run.scheduled_for, run.fired_at) == (NOON + MINUTE, NOON + MINUTE + 2 * SECOND)
    assert (run.delay_ms, run.attempt, run.trigger) == (2000, 1, Trigger.SCHEDULE)
    assert (run.job.id, run.job.status) == ("a", Status.RUNNING)
    assert run.id == (await scheduler.run_log("a", namespace="t"))[0].id
    assert run.idempotency_key == "t/a@2026-01-05T12:01:00Z"
    assert not run.stopping.is_set()


async def test_the_idempotency_key_is_the_same_for_every_attempt_and_for_nothing_else(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """With it a service downstream can tell a second try from a second order."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window(2))
    await scheduler.add_job(Every("1h"), handler="work", id="b", retry=Retry.none())
    await clock.advance("121m")
    for _ in range(2):
        await scheduler.trigger_job("a")
        await clock.advance()

    keys: dict[tuple[str, datetime, Trigger, int], set[str]] = {}
    for run in worker.runs:
        manual = run.id if run.trigger is Trigger.MANUAL else 0
        kind = Trigger.MANUAL if manual else Trigger.SCHEDULE
        keys.setdefault((run.job_id, run.scheduled_for, kind, manual), set()).add(run.idempotency_key)

    assert len(worker.runs) == 3 + 3 + 2 + 2
    assert [len(found) for found in keys.values()] == [1] * 6
    assert len(set.union(*keys.values())) == 6


async def test_a_handlers_changes_to_its_payload_stay_with_the_run(scheduler: Scheduler, clock: VirtualClock) -> None:
    """The next run gets what was stored."""
    seen: list[object] = []

    @scheduler.handler("greedy")
    async def greedy(run: Run) -> None:
        seen.append(run.payload.pop("n", None))

    await scheduler.add_job(Every("1m"), handler="greedy", id="a", payload={"n": 1})
    await clock.advance("2m")

    assert seen == [1, 1]


async def test_a_delay_counts_from_the_end_of_the_run(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The first at once, the next one interval after it has finished."""
    worker.takes = "30s"
    await scheduler.add_job(Delay("1m"), handler="work", id="a")

    await clock.advance("4m")

    assert worker.fired(SECOND) == [0, 90, 180]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(Every("10m"), [10, 20, 30], id="every"),
        pytest.param(Every("10m", immediately=True), [0, 10, 20, 30], id="immediately"),
        pytest.param(Every("10m", anchor=NOON + 5 * MINUTE), [5, 15, 25], id="anchor ahead"),
        pytest.param(Every("10m", anchor=NOON - 3 * MINUTE), [7, 17, 27], id="anchor behind"),
        pytest.param(Cron("*/15 * * * *", tz="UTC"), [15, 30], id="cron"),
        pytest.param(Cron("30 5 12 * * *", tz="UTC"), [5.5], id="cron with seconds"),
        pytest.param(At(NOON + MINUTE), [1], id="at"),
        pytest.param(Manual(), [], id="manual"),
        pytest.param(Every("10m", start=NOON + 15 * MINUTE, end=NOON + 25 * MINUTE), [20], id="bounds"),
    ],
)
async def test_schedules_run_when_they_say(
    schedule: Schedule, expected: list[float], scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """From the value to the call, in half an hour."""
    await scheduler.add_job(schedule, handler="work", id="a")

    await clock.advance("34m")

    assert worker.fired() == expected


# ---------------------------------------------------------------- jobs declared in code


def declare(scheduler: Scheduler, schedule: Schedule, calls: list[Run], **fields: Any) -> None:
    @scheduler.job(schedule, id="cleanup", **fields)
    async def cleanup(run: Run) -> None:
        calls.append(run)


async def test_a_declared_job_is_added_at_start(idle: Scheduler, clock: VirtualClock) -> None:
    """Under its id, or the name of its function; with what else it was given."""
    calls: list[Run] = []
    declare(idle, Every("5m"), calls, payload={"n": 1}, priority="high")

    @idle.job(Every("1h"))
    def named_by_itself() -> None: ...

    await idle.start()
    await clock.advance("5m")

    assert [job.id for job in await idle.list_jobs()] == ["cleanup", "named_by_itself"]
    assert [(run.job_id, run.payload, run.job.priority) for run in calls] == [("cleanup", {"n": 1}, "high")]


async def test_a_declared_job_keeps_its_cadence_across_restarts(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """A program that is restarted every half hour still runs its hourly job."""
    calls: list[Run] = []

    for _ in range(4):
        scheduler = new_scheduler(path)
        declare(scheduler, Every("1h"), calls)
        await scheduler.start()
        await clock.advance("30m")
        await scheduler.stop()

    assert [(run.fired_at - NOON) / HOUR for run in calls] == [1, 2]
    assert {run.job.created_at for run in calls} == {NOON}


async def test_a_declared_job_that_changed_in_code_is_changed(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """The code says how it is; a changed schedule counts from the start."""
    calls: list[Run] = []
    first = new_scheduler(path)
    declare(first, Every("1h"), calls)
    await first.start()
    await clock.advance("30m")
    await first.stop()

    second = new_scheduler(path)
    declare(second, Every("10m"), calls, payload={"n": 2})
    await second.start()
    await clock.advance("10m")

    assert [((run.fired_at - NOON) / MINUTE, run.payload) for run in calls] == [(40, {"n": 2})]


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_a_declared_job_stays_as_a_person_left_it(
    state: str, path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """A restart does not undo a pause, not even one that brings a new payload."""
    calls: list[Run] = []
    first = new_scheduler(path)
    declare(first, Every("1h"), calls)
    await first.start()
    await (first.pause_job("cleanup") if state == "paused" else first.update_job("cleanup", enabled=False))
    await first.stop()

    for payload in (None, {"n": 2}):
        second = new_scheduler(path)
        declare(second, Every("1h"), calls, payload=payload)
        await second.start()
        await clock.advance("2h")
        status = (await job_of(second, "cleanup")).status
        await second.stop()
        assert status == state

    assert calls == []


async def test_a_start_undoes_edits_of_a_declared_job(path: Path, new_scheduler: NewScheduler) -> None:
    """The code says how the job is, even if the declaration has not changed since the last start."""
    first = new_scheduler(path)
    declare(first, Every("1h"), [], payload={"cursor": 0})
    await first.start()
    await first.update_job("cleanup", schedule=Every("2h"), payload={"cursor": 5})
    await first.stop()

    second = new_scheduler(path)
    declare(second, Every("1h"), [], payload={"cursor": 0})
    await second.start()

    job = await job_of(second, "cleanup")
    assert (job.schedule, job.payload) == (Every("1h"), {"cursor": 0})


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "raise"])
async def test_a_declaration_takes_no_on_conflict(on_conflict: str, idle: Scheduler) -> None:
    """It would have no effect: each start makes the stored job equal to the declaration."""
    with pytest.raises(TypeError, match="add_job"):
        declare(idle, Every("1h"), [], on_conflict=on_conflict)

    assert await idle.list_jobs() == []


async def test_a_job_cannot_be_declared_twice(idle: Scheduler) -> None:
    """One of them would win, and nobody could say which."""
    declare(idle, Every("1h"), [])

    with pytest.raises(SchedulerError):
        declare(idle, Every("2h"), [])


@pytest.mark.parametrize("store", [5, None, "", "postgresql://ann:a/b@localhost/jobs"])
def test_a_store_that_is_none_is_refused(store: Any) -> None:
    """When it is given, with a word about what would be one."""
    with pytest.raises((SchedulerError, ImportError)):
        Scheduler(store)


async def test_what_is_noted_of_jobs_that_ran_once_is_forgotten(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of jobs may come and go while a scheduler runs."""
    monkeypatch.setattr("scheduler_async.engine.janitor.MOST_GROWN", 3)
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=str(number)) for number in range(5)])
    await clock.advance("1s")
    noted = len(scheduler._engine.session.janitor.grown)

    await clock.advance("2m")

    assert (noted, len(scheduler._engine.session.janitor.grown)) == (5, 0)
