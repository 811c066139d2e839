"""Handlers and callers as they are: what they do wrong costs their own job at most, and they are told."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    Every,
    InvalidJobError,
    JobSpec,
    Manual,
    Outcome,
    Result,
    Retry,
    Run,
    Scheduler,
    SchedulerError,
    SchedulerShutdownError,
    SkipReason,
    SQLiteStore,
    Status,
    Trigger,
)
from scheduler_async.rules import terms
from scheduler_async.stores.messages import NodeRow
from scheduler_async.testing import VirtualClock
from tests.cast import DAY, HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of


@pytest.fixture
async def on_file(new_scheduler: NewScheduler, path: Path) -> Scheduler:
    """A running scheduler, whose store can be read after it has stopped."""
    scheduler = new_scheduler(path)
    await scheduler.start()
    return scheduler


# ---------------------------------------------------------------- what a handler answers


class UnspeakableError(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def raises_what_has_no_words() -> None:
    raise UnspeakableError


async def wants_to_exit() -> None:
    raise SystemExit(3)


def wants_to_exit_from_a_thread() -> None:
    raise SystemExit(3)


async def answers_cancelled() -> Outcome:
    return Outcome.CANCELLED


async def answers_interrupted() -> Outcome:
    return Outcome.INTERRUPTED


async def answers_a_list() -> Result:
    return Result("success", message=["a"])  # type: ignore[arg-type]


async def answers_a_huge_code() -> Result:
    return Result("success", exit_code=2**70)


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (raises_what_has_no_words, "UnspeakableError"),
        (wants_to_exit, "SystemExit: 3"),
        (wants_to_exit_from_a_thread, "SystemExit: 3"),
        (answers_cancelled, "success, noop, skipped, error, not cancelled"),
        (answers_interrupted, "success, noop, skipped, error, not interrupted"),
        (answers_a_list, "Result.message must be a string"),
        (answers_a_huge_code, "Result.exit_code must be a whole number"),
    ],
    ids=lambda value: getattr(value, "__name__", "it"),
)
async def test_a_handler_that_does_what_it_may_not_has_failed(
    handler: Callable[[], Any], problem: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Once, and by itself: the others go on, and the scheduler can be stopped."""
    scheduler.handler("bad")(handler)
    await scheduler.add_job(Every("1h"), handler="bad", id="a")
    await scheduler.add_job(Every("1h"), handler="work", id="b")

    await clock.advance("1h")

    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.ERROR
    assert problem in str(row.error)
    assert (await job_of(scheduler)).consecutive_errors == 1
    assert worker.ids == ["b"]
    await scheduler.stop()


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(scheduler: Scheduler, clock: VirtualClock) -> None:
    """A decorator around an async function often makes such a one."""
    ran = []

    async def work(run: Run) -> Outcome:
        ran.append(run.job_id)
        return Outcome.NOOP

    def wrapped(run: Run) -> Awaitable[Outcome]:
        return work(run)

    scheduler.handler("wrapped")(wrapped)
    await scheduler.add_job(At(NOON), handler="wrapped", id="a")
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert (ran, row.outcome) == (["a"], Outcome.NOOP)


async def test_what_has_a_default_is_not_given_the_run(scheduler: Scheduler, clock: VirtualClock) -> None:
    seen: list[object] = []

    @scheduler.handler("cleanup")
    async def cleanup(days: int = 30) -> None:
        seen.append(days)

    @scheduler.handler("optional")
    async def optional(run: Run | None = None) -> None:
        seen.append(type(run))

    await scheduler.add_jobs([JobSpec(At(NOON), handler=name, id=name) for name in ("cleanup", "optional")])
    await clock.advance()

    assert seen == [30, Run]


@pytest.mark.parametrize("wait", [timedelta(days=3_000_000), timedelta(days=3_652_059)], ids=str)
async def test_a_wait_beyond_the_calendar_ends_with_it(
    wait: timedelta, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.backoff([wait]))
    await scheduler.add_job(Every("1h"), handler="work", id="b", retry=Retry.budget(1, wait))

    await clock.advance("1h")

    for name in "ab":
        assert (await job_of(scheduler, name)).next_run_at is not None
        assert str(await scheduler.explain(name))


class Unrecordable(SQLiteStore):
    """A store that cannot record how the job "a" ended, in a way that nobody thought of."""

    async def finish(self, ended: Any, rules: Any) -> Any:
        if any(item.run.job.id == "a" and item.ending.outcome is Outcome.SUCCESS for item in ended):
            raise OverflowError("too large")
        return await super().finish(ended, rules)


async def test_an_ending_that_cannot_be_recorded_does_not_hold_up_the_others(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(Unrecordable(path))
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abc"])
    await clock.advance()

    outcomes = {row.job_id: row.outcome for row in await scheduler.run_log()}
    assert outcomes == {"a": Outcome.ERROR, "b": Outcome.SUCCESS, "c": Outcome.SUCCESS}
    assert "cannot be recorded: too large" in str((await job_of(scheduler)).last_error)


# ---------------------------------------------------------------- threads


class InThread:
    """A plain function that goes on until it is let go, and counts how many of it there are."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.active = self.most = 0

    def __call__(self) -> None:
        self.active += 1
        self.most = max(self.most, self.active)
        self.begun.set()
        self.go.wait(PATIENCE)
        self.active -= 1


async def test_a_function_in_a_thread_that_timed_out_is_not_started_again_before_it_ends(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    """A thread cannot be stopped, and a job runs once at a time."""
    work = InThread()
    scheduler.handler("plain")(work)
    await scheduler.add_job(
        Every("1m", immediately=True), handler="plain", id="a", timeout="1s", retry=Retry.in_window(1)
    )
    await clock.advance("3m", wait_for_runs=False)

    assert (await job_of(scheduler)).status is Status.RUNNING
    work.go.set()
    await clock.advance("1m")

    assert work.most == 1
    assert {row.outcome for row in await scheduler.run_log("a") if row.attempt} >= {Outcome.TIMEOUT}


async def test_stop_waits_for_a_thread_even_if_it_is_cancelled(scheduler: Scheduler, clock: VirtualClock) -> None:
    work = InThread()
    scheduler.handler("plain")(work)
    await scheduler.add_job(At(NOON), handler="plain", id="a")
    await clock.advance(wait_for_runs=False)

    with pytest.raises(SchedulerShutdownError):
        await scheduler.stop(timeout=0.01, cancel=True)
    assert work.active == 1
    work.go.set()
    await scheduler.stop(timeout=PATIENCE)

    assert work.active == 0


# ---------------------------------------------------------------- stopping


async def test_a_handler_cannot_wait_for_its_own_end(scheduler: Scheduler, clock: VirtualClock) -> None:
    """It would wait until it gives up, or for ever."""
    told: list[str] = []

    @scheduler.handler("stops")
    async def stops() -> None:
        with pytest.raises(SchedulerError) as caught:
            await scheduler.stop()
        told.append(str(caught.value))
        await scheduler.stop(wait=False)

    await scheduler.add_job(At(NOON), handler="stops", id="a")
    await clock.advance()

    assert "stop(wait=False)" in told[0]
    assert scheduler.status == "stopped"


async def test_a_handler_cannot_wait_for_the_slot_it_holds(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(store, max_concurrent=1)
    told: list[str] = []

    @scheduler.handler("runs")
    async def runs() -> None:
        with pytest.raises(SchedulerError) as caught:
            await scheduler.run_pending()
        told.append(str(caught.value))

    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="runs", id="a")
    await clock.advance()

    assert "run_pending() must not be called in a handler" in told[0]


async def test_a_task_that_outlives_its_handler_may_stop_the_scheduler(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    tasks: list[asyncio.Task[None]] = []

    @scheduler.handler("ends it all")
    async def ends_it_all() -> None:
        tasks.append(asyncio.create_task(scheduler.stop()))

    await scheduler.add_job(At(NOON), handler="ends it all", id="a")
    await clock.advance()
    await tasks[0]

    assert scheduler.status == "stopped"


@pytest.mark.parametrize("timeout", ["soon", -1, True, [], float("nan")], ids=repr)
async def test_a_bad_timeout_is_refused_before_anything_stops(timeout: Any, scheduler: Scheduler) -> None:
    with pytest.raises(SchedulerError):
        await scheduler.stop(timeout=timeout)

    assert scheduler.status == "running"


async def test_a_timeout_may_be_written_as_other_durations_are(scheduler: Scheduler) -> None:
    await scheduler.stop(timeout="5s")

    assert scheduler.status == "stopped"


async def test_who_cancels_every_task_can_still_stop(on_file: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """As frameworks do at their end: what ended is recorded all the same."""
    worker.blocks = True
    await on_file.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others)

    await on_file.stop(timeout=PATIENCE)

    assert worker.cancelled == 1
    assert on_file.status == "stopped"
    (row,) = await on_file.run_log("a")
    assert row.outcome is Outcome.ERROR


async def test_stop_lets_a_handler_end_that_waits_for_real_time(on_file: Scheduler, clock: VirtualClock) -> None:
    """The virtual clock has nothing to do for it, and does not take that for an end."""
    released = asyncio.Event()

    @on_file.handler("real")
    async def real() -> None:
        await released.wait()

    await on_file.add_job(At(NOON), handler="real", id="a")
    await clock.advance()
    stopping = asyncio.create_task(on_file.stop())
    asyncio.get_running_loop().call_later(0.05, released.set)
    await stopping

    (row,) = await on_file.run_log("a")
    assert row.outcome is Outcome.SUCCESS


async def test_stopping_without_waiting_does_not_move_the_clock(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    await scheduler.stop(wait=False)
    await clock.advance()

    assert (clock.now(), scheduler.status) == (NOON, "stopping")
    worker.go.set()
    await clock.advance()
    assert scheduler.status == "stopped"


def test_a_scheduler_works_in_one_event_loop_after_another(path: Path) -> None:
    """Tests, scripts and notebooks have one each."""
    scheduler = Scheduler(path)
    ran: list[int] = []

    @scheduler.handler("work")
    def work() -> None:
        ran.append(len(ran))

    async def once(number: int, stop: bool = True) -> None:
        await scheduler.start()
        await scheduler.add_job(Manual(), handler="work", id=f"{number}")
        await scheduler.wait_for_run(await scheduler.trigger_job(f"{number}"))
        if stop:
            await scheduler.stop()

    asyncio.run(once(1))
    asyncio.run(once(2, stop=False))
    asyncio.run(once(3, stop=False))
    asyncio.run(scheduler.stop())

    assert ran == [0, 1, 2]
    assert scheduler.status == "stopped"
    gc.collect()  # Python 3.13 warns of a file that nobody closed


async def test_a_scheduler_is_not_shared_by_event_loops(scheduler: Scheduler) -> None:
    def elsewhere() -> None:
        asyncio.run(scheduler.list_jobs())

    with pytest.raises(SchedulerError, match="another event loop"):
        await asyncio.to_thread(elsewhere)


async def test_events_end_when_a_scheduler_that_never_started_is_stopped(idle: Scheduler) -> None:
    stream = idle.events()
    await idle.add_job(Manual(), handler="work", id="a")

    await idle.stop()

    assert [event.kind.value async for event in stream] == ["added"]


# ---------------------------------------------------------------- running by hand


async def test_triggering_leaves_what_was_due_before_alone(
    idle: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It is an extra run, not a replacement."""
    await idle.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("90m")

    await idle.wait_for_run(await idle.trigger_job("a"))
    summary = await idle.run_pending()

    assert summary.executed == 1
    assert [run.trigger for run in worker.runs] == [Trigger.MANUAL, Trigger.CATCH_UP]
    assert worker.runs[1].scheduled_for == NOON + HOUR


async def test_a_triggered_job_is_not_previewed_as_about_to_run(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.blocks = True
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.trigger_job("a")
    clock.set(NOON + 90 * MINUTE)
    await clock.advance()

    assert [row.at for row in await scheduler.preview("1h")] == [NOON + 2 * HOUR]


async def test_a_retry_that_waits_is_explained_as_that(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The last retry is still to come: it is not used up."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window(1, delay="5m"))
    await clock.advance("1h")

    assert (await scheduler.explain("a")).reason is SkipReason.BACKOFF
    await clock.advance("5m")
    assert (await scheduler.explain("a")).reason is SkipReason.RETRIES_EXHAUSTED


async def test_a_run_that_was_triggered_and_never_began_leaves_its_row(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """Somebody asked for it: nothing else would bring it again, or tell."""
    scheduler = new_scheduler(path, max_concurrent=1)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(Manual(), handler="work", id=name) for name in "ab"])
    await scheduler.trigger_job("a")
    queued = await scheduler.trigger_job("b")

    await scheduler.stop(cancel=True)

    (row,) = await scheduler.run_log("b")
    assert (row.id, row.outcome) == (queued, Outcome.CANCELLED)
    assert "before it could begin" in str(row.error)
    assert worker.ids == ["a"]


class Forgetful(SQLiteStore):
    """A store in which another process takes this one for dead."""

    async def forget(self, node: int) -> None:
        (row,) = [row for row in await self.beat(node) if row.id == node]
        await self.recover([NodeRow(id=node, identity=row.identity, beat=row.beat, since=0)], 0, terms.Rules())


async def test_who_is_taken_for_dead_joins_again_to_run_by_hand(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    store = Forgetful(path)
    scheduler = new_scheduler(store)
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.run_pending()
    assert scheduler._engine.session.node.id is not None

    await store.forget(scheduler._engine.session.node.id)
    await scheduler.wait_for_run(await scheduler.trigger_job("a"))
    await store.forget(scheduler._engine.session.node.id)
    await clock.advance("1h")
    summary = await scheduler.run_pending()

    assert summary.executed == 1
    assert worker.ids == ["a", "a"]


async def test_a_pass_that_is_cancelled_has_begun_what_it_claimed(
    new_scheduler: NewScheduler,
    path: Path,
    worker: Worker,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is left behind that is marked and does not run."""
    scheduler = new_scheduler(path)
    claims, claim_due = asyncio.Event(), scheduler._store.claim_due

    async def noted(*terms: Any) -> Any:
        claims.set()
        return await claim_due(*terms)

    worker.blocks = True
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.run_pending()
    await clock.advance("1h")

    monkeypatch.setattr(scheduler._store, "claim_due", noted)
    passing = asyncio.create_task(scheduler.run_pending())
    await claims.wait()
    passing.cancel()
    await asyncio.wait([passing])

    assert passing.cancelled()
    assert worker.ids == ["a"]
    worker.go.set()
    await clock.advance()
    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


async def test_declared_jobs_run_in_a_pass_without_the_loop(clock: VirtualClock, store: str) -> None:
    """A process that the system's cron starts declares its jobs like any other."""
    scheduler = Scheduler(store, clock=clock)
    ran: list[str] = []

    @scheduler.job(Every("1h", immediately=True), id="a")
    async def work() -> None:
        ran.append("a")

    assert (await scheduler.run_pending()).executed == 1
    assert ran == ["a"]
    await scheduler.stop()


async def test_a_job_is_not_declared_while_the_scheduler_runs(scheduler: Scheduler) -> None:
    """It would be added at the next start, if ever."""
    with pytest.raises(SchedulerError, match="add_job"):

        @scheduler.job(Every("1h"))
        async def late() -> None: ...


async def test_a_user_is_required_in_passes_and_to_resume(path: Path, clock: VirtualClock, worker: Worker) -> None:
    lax = Scheduler(path, clock=clock)
    await lax.add_job(Every("1h", immediately=True), handler="work", id="a")
    await lax.stop()
    strict = Scheduler(path, clock=clock, require_user=True)
    strict.handler("work")(worker)

    assert (await strict.run_pending()).executed == 0
    with pytest.raises(InvalidJobError, match="user_id"):
        await strict.resume_job("a")

    assert (await job_of(strict)).status is Status.DISABLED
    await strict.stop()


async def test_old_runs_are_forgotten_by_passes_and_short_lives_too(
    path: Path, clock: VirtualClock, worker: Worker
) -> None:
    """A process that lives for one pass has no upkeep of its own: it tidies up as it leaves."""
    for _ in range(12):
        scheduler = Scheduler(path, clock=clock, keep_runs=5)
        scheduler.handler("work")(worker)
        await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", on_conflict="keep")
        await scheduler.run_pending()
        await scheduler.stop()
        await clock.advance("1h")

    reader = Scheduler(path, clock=clock)
    assert len(await reader.run_log(limit=None)) == 5
    assert len(worker.runs) == 12
    await reader.stop()


# ---------------------------------------------------------------- stores and clocks


async def test_a_store_serves_one_scheduler(path: Path, clock: VirtualClock) -> None:
    """The second would take the connections of the first."""
    store = SQLiteStore(path)
    first, second = Scheduler(store, clock=clock), Scheduler(store, clock=clock)
    await first.add_job(Manual(), handler="work", id="a")

    with pytest.raises(SchedulerError, match="in use by another scheduler"):
        await second.list_jobs()

    assert [job.id for job in await first.list_jobs()] == ["a"]
    await first.stop()


async def test_a_handler_may_sleep_while_it_tidies_up(on_file: Scheduler, clock: VirtualClock) -> None:
    """A cancellation that was caught is over."""
    tidied: list[str] = []

    @on_file.handler("tidy")
    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await clock.sleep("1s")
            tidied.append("yes")
            raise

    await on_file.add_job(At(NOON), handler="tidy", id="a")
    await clock.advance()
    await on_file.stop(cancel=True)

    assert tidied == ["yes"]
    (row,) = await on_file.run_log("a")
    assert row.outcome is Outcome.CANCELLED


async def test_a_handler_that_fails_while_it_is_cancelled_was_cancelled(
    on_file: Scheduler, clock: VirtualClock
) -> None:
    @on_file.handler("falls")
    async def falls() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("half closed")

    await on_file.add_job(At(NOON), handler="falls", id="a")
    await clock.advance()
    await on_file.stop(cancel=True)

    (row,) = await on_file.run_log("a")
    assert (row.outcome, row.error) == (Outcome.CANCELLED, "KeyError: 'half closed'")


# ---------------------------------------------------------------- bad input


BAD_TEXTS: list[Any] = [None, 7, b"a", ["a"], object(), "\ud800"]
CALLS: dict[str, Callable[[Scheduler, Any], Awaitable[object]]] = {
    "get_job": lambda scheduler, bad: scheduler.get_job(bad),
    "update_job": lambda scheduler, bad: scheduler.update_job(bad, name="A"),
    "pause_job": lambda scheduler, bad: scheduler.pause_job(bad),
    "resume_job": lambda scheduler, bad: scheduler.resume_job(bad),
    "disable_job": lambda scheduler, bad: scheduler.disable_job(bad),
    "remove_job": lambda scheduler, bad: scheduler.remove_job(bad),
    "trigger_job": lambda scheduler, bad: scheduler.trigger_job(bad),
    "explain": lambda scheduler, bad: scheduler.explain(bad),
    "run_stats": lambda scheduler, bad: scheduler.run_stats(bad),
    "namespace of get_job": lambda scheduler, bad: scheduler.get_job("a", namespace=bad),
    "reason of disable_job": lambda scheduler, bad: scheduler.disable_job("a", reason=bad),
}


@pytest.mark.parametrize("bad", BAD_TEXTS, ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_name_is_refused(call: str, bad: Any, idle: Scheduler) -> None:
    """By the error for that, and not by one from deep within."""
    with pytest.raises(InvalidJobError):
        await CALLS[call](idle, bad)


@pytest.mark.parametrize(
    "filters",
    [
        {"handler": print},
        {"namespace": 7},
        {"group": "\ud800"},
        {"user_id": b"a"},
        {"metadata": "x"},
    ],
    ids=ascii,
)
async def test_a_filter_that_makes_no_sense_is_refused(filters: dict[str, Any], idle: Scheduler) -> None:
    with pytest.raises(InvalidJobError):
        await idle.list_jobs(**filters)


async def test_a_limit_may_be_huge(idle: Scheduler, clock: VirtualClock) -> None:
    await idle.add_job(Every("1h"), handler="work", id="a")

    assert len(await idle.list_jobs(limit=2**70)) == 1
    assert await idle.run_log(limit=2**70) == []
    assert len(await idle.preview("3652059d")) <= 2_000


@pytest.mark.parametrize(
    "options",
    [{"clock": "noon"}, {"require_user": "no"}, {"misfire_grace": "-1s"}],
    ids=ascii,
)
def test_a_scheduler_cannot_be_made_of_nonsense(options: dict[str, Any]) -> None:
    with pytest.raises(SchedulerError):
        Scheduler(":memory:", **options)


@pytest.mark.parametrize("grace", ["0s", timedelta(0)], ids=repr)
async def test_there_need_be_no_grace(
    grace: Any, new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(store, misfire_grace=grace)
    await scheduler.add_job(Every("1h"), handler="work", id="a", misfire="skip")
    await clock.advance(HOUR + timedelta(seconds=1))

    await scheduler.run_pending()
    assert worker.runs == []
    await clock.advance(DAY - timedelta(seconds=1))
    await scheduler.run_pending()
    assert [run.delay_ms for run in worker.runs] == [0]


async def test_a_handler_needs_a_name(idle: Scheduler) -> None:
    with pytest.raises(InvalidJobError):
        idle.handler("")(lambda: None)
    with pytest.raises(InvalidJobError):
        await idle.add_jobs(None)  # type: ignore[arg-type]
