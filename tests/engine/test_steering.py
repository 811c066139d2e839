"""Runs are steered from any process: cancelled, started elsewhere, waited for, and followed while they go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from scheduler_async import (
    After,
    At,
    EventKind,
    Every,
    InvalidJobError,
    JobAlreadyRunningError,
    JobNotFoundError,
    Manual,
    Outcome,
    PayloadError,
    PostgresStore,
    Retry,
    Run,
    RunEndedError,
    RunNotFoundError,
    RunRow,
    RunTimeoutError,
    Schedule,
    Scheduler,
    SchedulerStoppingError,
    SkipReason,
    Status,
    StoreError,
)
from scheduler_async.engine import run_waits
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of
from tests.postgres_server import url_of_schema

pytestmark = pytest.mark.once  # the version of Python does not matter


async def row_of(scheduler: Scheduler, run: int) -> RunRow:
    row = await scheduler.get_run(run)
    assert row is not None
    return row


async def last_row(scheduler: Scheduler, id: str = "a") -> RunRow:
    return (await scheduler.run_log(id, limit=1))[0]


# ---------------------------------------------------------------- cancelling, in the process of the run


async def test_a_running_handler_is_cancelled_at_once(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    run = await scheduler.trigger_job("a")

    await scheduler.cancel_run(run, reason="enough")
    row = await scheduler.wait_for_run(run)

    assert worker.cancelled == 1
    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")


async def test_a_cancelled_run_is_no_failure_and_is_not_run_again(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A stop cancels too, and then the occurrence is run again: that is for runs nobody wanted to end."""
    worker.blocks = True
    await scheduler.add_job(Every("1m"), handler="work", id="a", on_interrupt="rerun", retry=Retry.in_window(2))
    await clock.advance("1m")

    await scheduler.cancel_run(worker.runs[0].id)
    await clock.advance("30s")
    job = await job_of(scheduler)
    worker.blocks = False
    await clock.advance("30s")

    assert (job.consecutive_errors, job.retry_count, job.last_error) == (0, 0, None)
    assert worker.fired() == [1, 2]
    assert [(row.outcome, row.trigger, row.reason) for row in await scheduler.run_log("a")] == [
        (Outcome.SUCCESS, "schedule", None),
        (Outcome.CANCELLED, "schedule", None),
    ]


async def test_a_queued_run_is_taken_back(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(store, max_concurrent=1)
    worker.blocks = True
    async with scheduler:
        for name in "ab":
            await scheduler.add_job(Manual(), handler="work", id=name)
        await scheduler.trigger_job("a")
        queued = await scheduler.trigger_job("b")

        await clock.advance("1m")
        await scheduler.cancel_run(queued, reason="not now")
        row = await scheduler.wait_for_run(queued)
        stats = await scheduler.run_stats("b")
        worker.go.set()

    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "not now")
    assert (row.started_at, row.finished_at, row.duration_ms, row.delay_ms) == (None, NOON + MINUTE, None, None)
    assert (stats.total, stats.mean_ms, stats.last_run_at) == (1, None, None)
    assert worker.ids == ["a"]


async def test_a_queued_regular_run_is_not_put_back(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Its occurrence would start as soon as a slot is free."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=1)
    worker.blocks = True
    async with scheduler:
        await scheduler.add_job(Every("1h"), handler="work", id="a")
        await scheduler.add_job(Every("1h"), handler="work", id="b")
        await clock.advance("1h")
        queued = await last_row(scheduler, "b")

        await scheduler.cancel_run(queued.id)
        row = await scheduler.wait_for_run(queued.id)
        worker.go.set()
        await clock.advance("1m")
        job = await job_of(scheduler, "b")

    assert row.outcome is Outcome.CANCELLED
    assert worker.ids == ["a"]
    assert job.next_run_at is not None
    assert job.next_run_at > clock.now()


async def test_a_handler_may_tidy_up_and_even_return(scheduler: Scheduler) -> None:
    """Whatever it answers, the caller has cancelled it."""

    @scheduler.handler("stubborn")
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done anyway"
        return "?"

    await scheduler.add_job(Manual(), handler="stubborn", id="a")
    run = await scheduler.trigger_job("a")
    await scheduler.cancel_run(run)

    assert (await scheduler.wait_for_run(run)).outcome is Outcome.CANCELLED


async def test_a_thread_is_told_by_its_signal(scheduler: Scheduler) -> None:
    """It cannot be cancelled; the run ends when the function returns."""
    begun, waited = threading.Event(), []

    @scheduler.handler("thread")
    def thread(run: Run) -> None:
        assert not run.stopping
        begun.set()
        waited.append(run.stopping.wait(PATIENCE))

    await scheduler.add_job(Manual(), handler="thread", id="a")
    run = await scheduler.trigger_job("a")
    await asyncio.to_thread(begun.wait, PATIENCE)
    await scheduler.cancel_run(run)

    assert (await scheduler.wait_for_run(run)).outcome is Outcome.CANCELLED
    assert waited == [True]


async def test_a_run_may_cancel_itself(scheduler: Scheduler) -> None:
    @scheduler.handler("tired")
    async def tired(run: Run) -> None:
        await scheduler.cancel_run(run.id, reason="tired")
        await asyncio.Event().wait()

    await scheduler.add_job(Manual(), handler="tired", id="a")
    row = await scheduler.wait_for_run(await scheduler.trigger_job("a"))

    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "tired")


async def test_what_cannot_be_cancelled(scheduler: Scheduler) -> None:
    await scheduler.add_job(Manual(), handler="work", id="a")
    run = await scheduler.trigger_job("a")
    await scheduler.wait_for_run(run)

    with pytest.raises(RunEndedError, match=f"Run {run} has already ended"):
        await scheduler.cancel_run(run)
    with pytest.raises(RunNotFoundError, match="Run 4711 not found"):
        await scheduler.cancel_run(4711)
    with pytest.raises(InvalidJobError, match="reason must be a string"):
        await scheduler.cancel_run(run, reason=7)  # type: ignore[arg-type]


async def test_a_one_shot_that_is_cancelled_has_had_its_turn(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance("1s")

    await scheduler.cancel_run(worker.runs[0].id)
    await clock.advance("1h")

    assert len(worker.runs) == 1
    assert (await job_of(scheduler)).disabled_reason == "ended"


async def test_observers_hear_of_a_cancelled_run(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.add_job(Manual(), handler="elsewhere", id="b")
    running, waiting = await scheduler.trigger_job("a"), await scheduler.trigger_job("b", anywhere=True)
    events = scheduler.events()

    await scheduler.cancel_run(running)
    await scheduler.wait_for_run(running)
    await scheduler.cancel_run(waiting)
    heard = [await anext(events) for _ in range(2)]

    assert [event.kind for event in heard] == [EventKind.RUN_FINISHED] * 2
    assert [event.run.id for event in heard if event.run is not None] == [running, waiting]


# ---------------------------------------------------------------- two schedulers on one store


async def test_a_run_of_another_scheduler_is_cancelled(shared: str) -> None:
    here, there = Scheduler(shared), Scheduler(shared)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @there.handler("work")
    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with there:
        await there.add_job(Manual(), handler="work", id="a")
        run = await there.trigger_job("a")
        await here.cancel_run(run, reason="from here")
        row = await here.wait_for_run(run, timeout=PATIENCE)
    await here.stop()

    assert cancelled.is_set()
    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "from here")


@pytest.mark.once
@pytest.mark.parametrize("is_claimed", [True, False], ids=["going on", "not yet claimed"])
async def test_the_end_of_a_run_elsewhere_is_heard_of_on_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_claimed: bool
) -> None:
    """Between two looks, which are far apart here. Only endings that a process waits for are told."""
    monkeypatch.setattr(run_waits, "SHORTEST_PAUSE", 3600.0)
    monkeypatch.setattr(run_waits, "LONGEST_PAUSE", 3600.0)
    url = url_of_schema(str(tmp_path))
    here, there = Scheduler(url), Scheduler(url)
    go_on = asyncio.Event()

    @there.handler("work")
    async def work() -> None:
        await go_on.wait()

    async with there:
        await there.add_job(Manual(), handler="work", id="a")
        run = await (there.trigger_job("a") if is_claimed else here.trigger_job("a", anywhere=True))
        waiting = asyncio.create_task(here.wait_for_run(run, timeout=PATIENCE))
        while not cast(PostgresStore, there._engine.setting.store)._awaited._elsewhere:
            await there.get_job("a")
        go_on.set()
        row = await waiting
    await here.stop()

    assert row.outcome is Outcome.SUCCESS


async def test_a_run_is_started_by_a_scheduler_that_has_the_handler(shared: str) -> None:
    here, there = Scheduler(shared), Scheduler(shared)
    payloads: list[Any] = []

    @there.handler("work")
    async def work(run: Run) -> None:
        payloads.append(run.payload)

    async with there:
        await here.add_job(Manual(), handler="work", id="a", payload={"n": 1})
        own = await here.run_job("a", timeout=PATIENCE)
        given = await here.run_job("a", payload={"n": 2}, timeout=PATIENCE)
    await here.stop()

    assert payloads == [{"n": 1}, {"n": 2}]
    assert [row.outcome for row in (own, given)] == [Outcome.SUCCESS] * 2
    assert own.node is not None


async def test_a_run_is_followed_while_it_goes_on(shared: str) -> None:
    here, there = Scheduler(shared), Scheduler(shared)
    go = asyncio.Event()

    @there.handler("work")
    async def work(run: Run) -> None:
        run.write("working\n")
        run.progress(1, 4, "one of four")
        await go.wait()
        run.write("done\n")
        run.progress(4, 4)

    async with there:
        await there.add_job(Manual(), handler="work", id="a")
        run = await there.trigger_job("a")
        async with asyncio.timeout(PATIENCE):
            while (row := await row_of(here, run)).progress is None or await here.run_output(run) is None:
                await asyncio.sleep(0.01)
        text = await here.run_output(run)
        go.set()
        last = await here.wait_for_run(run, timeout=PATIENCE)
        whole = await here.run_output(run)
    await here.stop()

    assert (row.progress, row.progress_message, text) == (0.25, "one of four", "working\n")
    assert (last.progress, last.progress_message, whole) == (1.0, None, "working\ndone\n")


# ---------------------------------------------------------------- starting anywhere


async def test_a_requested_run_starts_at_once_in_its_own_process(scheduler: Scheduler, worker: Worker) -> None:
    await scheduler.add_job(Manual(), handler="work", id="a")

    run = await scheduler.trigger_job("a", anywhere=True)
    row = await scheduler.wait_for_run(run)

    assert (row.id, row.outcome, row.trigger) == (run, Outcome.SUCCESS, "manual")
    assert [run.id for run in worker.runs] == [run]


async def test_a_request_waits_for_a_handler(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Manual(), handler="late", id="a")
    run = await scheduler.trigger_job("a", anywhere=True)
    await clock.advance("1m")
    before = await row_of(scheduler, run)
    ran = []

    @scheduler.handler("late")
    async def late() -> None:
        ran.append(1)

    after = await scheduler.wait_for_run(run)

    assert (before.outcome, before.started_at) == (None, None)
    assert (after.outcome, ran) == (Outcome.SUCCESS, [1])


async def test_a_request_survives_a_restart(new_scheduler: NewScheduler, path: str, worker: Worker) -> None:
    first = new_scheduler(path, knows_work=False)
    await first.add_job(Manual(), handler="work", id="a")
    run = await first.trigger_job("a", anywhere=True, payload=7)
    await first.stop()

    second = new_scheduler(path)
    async with second:
        row = await second.wait_for_run(run)

    assert row.outcome is Outcome.SUCCESS
    assert [run.payload for run in worker.runs] == [7]


async def test_a_requested_run_that_had_not_begun_at_a_stop_waits_for_the_next_scheduler(
    new_scheduler: NewScheduler, path: str, worker: Worker
) -> None:
    """It was taken up and queued. Its caller still waits."""
    first = new_scheduler(path, max_concurrent=1, queue_size=5)
    worker.blocks = True
    async with first:
        for name in "ab":
            await first.add_job(Manual(), handler="work", id=name, on_interrupt="skip")
        await first.trigger_job("a")
        run = await first.trigger_job("b", payload=7, anywhere=True)
        while (await row_of(first, run)).node is None:
            await asyncio.sleep(0)
        await first.stop(timeout=0, cancel=True)
    worker.blocks = False

    async with new_scheduler(path) as second:
        row = await second.wait_for_run(run)

    assert (row.id, row.outcome) == (run, Outcome.SUCCESS)
    assert [(run.job_id, run.payload) for run in worker.runs] == [("a", None), ("b", 7)]


async def test_a_single_pass_takes_up_requests(idle: Scheduler, worker: Worker) -> None:
    """A store that only the system's cron looks after has no loop."""
    for name in "abc":
        await idle.add_job(Manual(), handler="work", id=name)
        await idle.trigger_job(name, anywhere=True)

    summary = await idle.run_pending()

    assert worker.ids == ["a", "b", "c"]
    assert worker.most_active == 1
    assert str(summary) == "3 tasks executed (3 success)"


async def test_a_wait_leaves_no_task_behind() -> None:
    async def names() -> None:
        names_of_tasks.extend(task.get_name() for task in asyncio.all_tasks() - before)

    names_of_tasks: list[str] = []
    before = asyncio.all_tasks()

    await run_waits._first_of(names(), asyncio.Event().wait())

    assert asyncio.all_tasks() == before
    assert set(names_of_tasks) == {"scheduler_async wait for a run"}


async def test_a_second_request_is_refused(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.add_job(Manual(), handler="elsewhere", id="b")
    await scheduler.trigger_job("a")
    waiting = await scheduler.trigger_job("b", anywhere=True)

    with pytest.raises(JobAlreadyRunningError, match='Job "a" is already running') as caught:
        await scheduler.trigger_job("a", anywhere=True)
    assert caught.value.requested_run is None
    told = f'A run of job "b" is already requested (run {waiting}). cancel_run({waiting}) withdraws it.'
    with pytest.raises(JobAlreadyRunningError) as caught:
        await scheduler.trigger_job("b", anywhere=True)
    assert (str(caught.value), caught.value.requested_run) == (told, waiting)
    with pytest.raises(JobNotFoundError):
        await scheduler.trigger_job("c", anywhere=True)
    worker.go.set()


async def test_a_request_waits_until_the_run_of_its_job_has_ended(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="late", id="a")
    run = await scheduler.trigger_job("a", anywhere=True)
    await clock.advance("59s")
    worker.takes = "30s"
    scheduler._engine.session.agenda.runs_requested = False  # the regular run is faster
    scheduler._engine.handlers.register("late", worker)
    await clock.advance("1s")
    scheduler._engine.session.agenda.look_again()
    await clock.advance("10s")
    waiting = await row_of(scheduler, run)
    await clock.advance("60s")

    assert waiting.started_at is None
    assert [one.trigger for one in worker.runs][:2] == ["schedule", "manual"]
    assert (await row_of(scheduler, run)).outcome is Outcome.SUCCESS


async def test_requests_respect_the_slots(new_scheduler: NewScheduler, store: str, worker: Worker) -> None:
    scheduler = new_scheduler(store, max_concurrent=1)
    worker.blocks = True
    async with scheduler:
        runs = []
        for name in "abc":
            await scheduler.add_job(Manual(), handler="work", id=name)
            runs.append(await scheduler.trigger_job(name, anywhere=True))
        worker.go.set()
        rows = [await scheduler.wait_for_run(run) for run in runs]

    assert worker.most_active == 1
    assert [row.outcome for row in rows] == [Outcome.SUCCESS] * 3


async def test_a_waiting_run_of_a_removed_job_is_cancelled(scheduler: Scheduler) -> None:
    await scheduler.add_job(Manual(), handler="elsewhere", id="a")
    run = await scheduler.trigger_job("a", anywhere=True)

    await scheduler.remove_job("a")

    assert (await scheduler.wait_for_run(run)).outcome is Outcome.CANCELLED


async def test_the_payload_of_a_request_is_checked_where_the_handler_is(scheduler: Scheduler) -> None:
    @scheduler.handler("typed")
    async def typed(payload: dict[str, int]) -> None: ...

    await scheduler.add_job(Manual(), handler="typed", id="a", payload={"n": 1})

    with pytest.raises(PayloadError):
        await scheduler.trigger_job("a", anywhere=True, payload={"n": "one"})
    assert await scheduler.run_log("a") == []


# ---------------------------------------------------------------- waiting


async def test_a_row_is_returned_when_the_run_has_ended(scheduler: Scheduler) -> None:
    await scheduler.add_job(Manual(), handler="work", id="a")
    run = await scheduler.trigger_job("a")

    first, again = await scheduler.wait_for_run(run), await scheduler.wait_for_run(run)

    assert first == again
    assert first.outcome is Outcome.SUCCESS
    with pytest.raises(RunNotFoundError):
        await scheduler.wait_for_run(run + 99)


@pytest.mark.parametrize("is_here", [True, False])
async def test_the_timeout_of_a_wait_passes_by_the_clock(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, *, is_here: bool
) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work" if is_here else "elsewhere", id="a")
    run = await scheduler.trigger_job("a", anywhere=not is_here)

    waiting = asyncio.create_task(scheduler.wait_for_run(run, timeout="1m"))
    await clock.advance("59s")
    early = waiting.done()
    await clock.advance("1s")

    assert not early
    with pytest.raises(RunTimeoutError) as refused:
        await asyncio.wait_for(waiting, PATIENCE)
    assert refused.value.has_begun is is_here
    words = "ended within 60 s, and continues." if is_here else "begun within 60 s. It waits for a scheduler"
    assert str(refused.value).startswith(f"Run {run} has not {words}")
    with pytest.raises(TimeoutError):
        await scheduler.wait_for_run(run, timeout=0)
    worker.go.set()


async def test_the_timeout_of_a_wait_passes_even_if_a_virtual_clock_stands_still(
    scheduler: Scheduler, worker: Worker
) -> None:
    """The test that waits is often the one that would advance the clock. It must not hang."""
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(TimeoutError, match="continues"):
            await scheduler.run_job("a", timeout=0.01)
    worker.go.set()


@pytest.mark.parametrize(
    ("schedule", "before"),
    [
        pytest.param(Manual(), SkipReason.MANUAL_ONLY, id="manual"),
        pytest.param(After("b"), SkipReason.NO_HANDLER, id="after another job"),
    ],
)
async def test_a_run_that_no_scheduler_has_taken_up_is_explained(
    scheduler: Scheduler, schedule: Schedule, before: SkipReason
) -> None:
    """The caller who triggered it wants to know why nothing happens."""
    await scheduler.add_job(schedule, handler="elsewhere", id="a")
    untouched = await scheduler.explain("a")
    run = await scheduler.trigger_job("a", anywhere=True)

    waiting = await scheduler.explain("a")
    await scheduler.cancel_run(run)
    withdrawn = await scheduler.explain("a")

    assert untouched.reason is withdrawn.reason is before
    assert waiting.reason is SkipReason.NO_HANDLER
    assert waiting.sentence == 'Job "a" is due, but no running scheduler has its handler "elsewhere".'


async def test_a_run_that_waits_for_any_scheduler_is_explained(idle: Scheduler) -> None:
    await idle.add_job(Manual(), handler="work", id="a")
    await idle.trigger_job("a", anywhere=True)

    assert (await idle.explain("a")).sentence == 'Job "a" is due, but no scheduler is running.'


async def test_a_job_is_run_without_the_loop(idle: Scheduler) -> None:
    await idle.add_job(Manual(), handler="work", id="a")

    assert (await idle.run_job("a")).outcome is Outcome.SUCCESS
    with pytest.raises(JobNotFoundError):
        await idle.run_job("b")


async def test_a_wait_ends_when_the_scheduler_stops(scheduler: Scheduler) -> None:
    """For a run that nobody will take up here."""
    await scheduler.add_job(Manual(), handler="elsewhere", id="a")
    run = await scheduler.trigger_job("a", anywhere=True)
    waiting = asyncio.create_task(scheduler.wait_for_run(run))
    await asyncio.sleep(0)

    await scheduler.stop()

    with pytest.raises(SchedulerStoppingError):
        await asyncio.wait_for(waiting, PATIENCE)


async def test_a_wait_for_a_run_that_the_stop_lets_finish_returns_its_row(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    run = await scheduler.trigger_job("a")
    waiting = asyncio.create_task(scheduler.wait_for_run(run))
    await asyncio.sleep(0)

    await scheduler.stop(cancel=True)

    row = await asyncio.wait_for(waiting, PATIENCE)
    assert (row.id, row.outcome) == (run, Outcome.CANCELLED)


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 0.05), (0.1, 0.05), (4.0, 0.4), (3600.0, 1.0)])
def test_a_poll_slows_down(waited: float, pause: float) -> None:
    """A run of hours elsewhere must not be asked for twenty times a second."""
    assert run_waits.pause_after(waited) == pytest.approx(pause)


# ---------------------------------------------------------------- progress


async def test_progress_is_stored_while_a_run_goes_on(scheduler: Scheduler, clock: VirtualClock) -> None:
    @scheduler.handler("slow")
    async def slow(run: Run) -> None:
        for number in range(1, 41):
            run.progress(number, 40, f"{number} of 40")
            await clock.sleep("2s")

    await scheduler.add_job(Manual(), handler="slow", id="a")
    run = await scheduler.trigger_job("a")
    await clock.advance("39s")
    row = await row_of(scheduler, run)
    await clock.advance("1m")

    assert (row.progress, row.progress_message) == (0.5, "20 of 40")
    assert (await row_of(scheduler, run)).progress == 1.0


async def test_many_reports_are_stored_together(scheduler: Scheduler, clock: VirtualClock) -> None:
    """A handler may report a million times; the store hears of it once."""
    reports = []
    ask = scheduler._store.report

    async def report(some: Any) -> None:
        reports.append(len(some))
        await ask(some)

    scheduler._store.report = report  # type: ignore[method-assign, assignment]

    @scheduler.handler("busy")
    async def busy(run: Run) -> None:
        for number in range(1000):
            run.progress(number, 1000)
            run.write(f"{number}\n")
        await clock.sleep("10s")

    for name in "abc":
        await scheduler.add_job(Manual(), handler="busy", id=name)
        await scheduler.trigger_job(name)
    await clock.advance("5s")
    rows = [await last_row(scheduler, name) for name in "abc"]

    assert [row.progress for row in rows] == [0.999] * 3
    assert sum(reports) <= 6
    assert len(reports) <= 2


async def test_a_failing_store_does_not_fail_a_run_that_reports(
    scheduler: Scheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def report(_: Any) -> None:
        raise StoreError("no")

    scheduler._store.report = report  # type: ignore[method-assign, assignment]

    @scheduler.handler("busy")
    async def busy(run: Run) -> None:
        for number in range(5):
            run.progress(number, 5)
            await clock.sleep("5s")

    await scheduler.add_job(Manual(), handler="busy", id="a")
    run = await scheduler.trigger_job("a")
    await clock.advance("1m")

    assert (await row_of(scheduler, run)).outcome is Outcome.SUCCESS
    assert [record.message for record in caplog.records if "progress" in record.message] == [
        "Cannot store the progress of 1 runs: no"
    ]


async def test_a_thread_reports(scheduler: Scheduler) -> None:
    reported, go = threading.Event(), threading.Event()

    @scheduler.handler("thread")
    def thread(run: Run) -> None:
        run.progress(0.5, message="half")
        reported.set()
        go.wait(PATIENCE)

    await scheduler.add_job(Manual(), handler="thread", id="a")
    run = await scheduler.trigger_job("a")
    await asyncio.to_thread(reported.wait, PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while (await row_of(scheduler, run)).progress is None:
            await asyncio.sleep(0)
    row = await row_of(scheduler, run)
    go.set()
    await scheduler.wait_for_run(run)

    assert (row.outcome, row.progress, row.progress_message) == (None, 0.5, "half")


async def test_a_bad_report_is_an_error_of_the_handler(scheduler: Scheduler) -> None:
    @scheduler.handler("bad")
    async def bad(run: Run) -> None:
        run.progress("half")  # type: ignore[arg-type]

    await scheduler.add_job(Manual(), handler="bad", id="a")
    row = await scheduler.run_job("a")

    assert row.outcome is Outcome.ERROR
    assert row.error is not None
    assert "done must be a number" in row.error


# ---------------------------------------------------------------- the signal


async def test_the_signal_is_a_truth_value(scheduler: Scheduler) -> None:
    seen: list[bool] = []

    @scheduler.handler("watch")
    async def watch(run: Run) -> None:
        seen.append(bool(run.stopping))
        await run.stopping.wait()
        seen.append(bool(run.stopping))
        seen.append(run.stopping.is_set())

    await scheduler.add_job(Manual(), handler="watch", id="a")
    await scheduler.trigger_job("a")
    await scheduler.stop()

    assert seen == [False, True, True]


async def test_a_thread_waits_for_the_stop(scheduler: Scheduler) -> None:
    seen: list[object] = []
    begun = threading.Event()

    @scheduler.handler("watch")
    def watch(run: Run) -> None:
        seen.append(bool(run.stopping))
        begun.set()
        seen.append(run.stopping.wait())

    await scheduler.add_job(Manual(), handler="watch", id="a")
    await scheduler.trigger_job("a")
    await asyncio.to_thread(begun.wait, PATIENCE)
    await scheduler.stop()

    assert seen == [False, True]


async def test_a_trigger_that_is_cancelled_leaves_no_job_running_without_a_handler(
    idle: Scheduler, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is committed by then. Without the loop, nothing would have settled it before the next one."""
    await idle.add_job(Manual(), handler="work", id="a")
    claim_one = idle._store.claim_one

    async def cancelled_meanwhile(*args: Any, **options: Any) -> Any:
        claimed = await claim_one(*args, **options)
        triggering.cancel()
        return claimed

    monkeypatch.setattr(idle._store, "claim_one", cancelled_meanwhile)
    triggering = asyncio.create_task(idle.trigger_job("a"))
    await asyncio.wait([triggering])
    (row,) = await idle.run_log("a")
    ended = await asyncio.wait_for(idle.wait_for_run(row.id), PATIENCE)

    assert triggering.cancelled()
    assert (ended.outcome, worker.ids) == (Outcome.SUCCESS, ["a"])


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_claim_whose_answer_was_lost_is_settled_without_the_loop(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other claim may follow in this process, and the other processes take the run for one that goes on."""
    scheduler = new_scheduler(path)
    await scheduler.add_job(Manual(), handler="work", id="a")
    claim_one = scheduler._store.claim_one

    async def lost(*args: Any, **options: Any) -> Any:
        await claim_one(*args, **options)
        raise StoreError("The connection was lost.")

    monkeypatch.setattr(scheduler._store, "claim_one", lost)
    with pytest.raises(StoreError):
        await scheduler.trigger_job("a")
    (lost_run,) = await scheduler.run_log("a")
    await clock.advance("11s")
    (row,) = await scheduler.run_log("a")

    assert (lost_run.outcome, row.outcome) == (None, Outcome.INTERRUPTED)
    assert (await job_of(scheduler, "a")).status is Status.IDLE
