"""Backfills: past occurrences of a job that run beside its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler_async import (
    At,
    Backfill,
    BackfillNotFoundError,
    BackfillState,
    Cron,
    Delay,
    Every,
    InvalidJobError,
    JobNotFoundError,
    Manual,
    Outcome,
    Run,
    Schedule,
    Scheduler,
    Status,
    Trigger,
)
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, SECOND, NewScheduler, Worker, job_of

HOURLY = Cron("0 * * * *", tz="UTC")


@pytest.fixture
async def running(new_scheduler: NewScheduler, every_store: str) -> Scheduler:
    """A running scheduler, on every store, with an hourly job."""
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(HOURLY, handler="work", id="a", payload="usual")
    return scheduler


def figures(backfill: Backfill) -> tuple[int, int, int, str]:
    return backfill.total, backfill.done, backfill.failed, backfill.state.value


async def test_each_occurrence_of_the_range_runs_oldest_first(
    running: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    before = await job_of(running)

    backfill = await running.backfill_job("a", NOON - 5 * HOUR, NOON - HOUR)
    await clock.advance("1s")

    assert figures(backfill) == (4, 0, 0, "running")
    assert figures(await running.get_backfill(backfill.number)) == (4, 4, 0, "done")
    assert [run.scheduled_for for run in worker.runs] == [NOON - hours * HOUR for hours in (5, 4, 3, 2)]
    assert {(run.trigger, run.attempt, run.payload) for run in worker.runs} == {(Trigger.BACKFILL, 1, "usual")}
    assert worker.most_active == 1
    assert await job_of(running) == before, "the schedule is not touched"
    rows = await running.run_log("a", trigger="backfill")
    assert [row.outcome for row in rows] == [Outcome.SUCCESS] * 4


async def test_max_concurrent_of_them_go_on_at_once(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "10s"

    backfill = await running.backfill_job("a", NOON - 10 * HOUR, NOON, max_concurrent=3)
    await clock.advance("1m", wait_for_runs=False)

    assert worker.most_active == 3
    assert figures(await running.get_backfill(backfill.number)) == (10, 10, 0, "done")


async def test_what_has_succeeded_is_left_out_unless_it_is_wanted_again(
    running: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.answer = ValueError("no")
    first = await running.backfill_job("a", NOON - 2 * HOUR, NOON)
    await clock.advance("1s")
    assert figures(await running.get_backfill(first.number)) == (2, 0, 2, "done")
    worker.answer = None
    second = await running.backfill_job("a", NOON - 4 * HOUR, NOON)
    await clock.advance("1s")
    assert figures(await running.get_backfill(second.number)) == (4, 4, 0, "done")
    assert [run.attempt for run in worker.runs] == [1, 1, 1, 1, 2, 2]

    third = await running.backfill_job("a", NOON - 4 * HOUR, NOON)
    fourth = await running.backfill_job("a", NOON - HOUR, NOON, again=True, payload="other")
    await clock.advance("1s")

    assert figures(third) == (0, 0, 0, "done")
    assert figures(await running.get_backfill(fourth.number)) == (1, 1, 0, "done")
    assert (worker.runs[-1].attempt, worker.runs[-1].payload) == (3, "other")
    (row,) = await running.run_log("a", limit=1)
    found = await running.get_run(row.id)
    assert found is not None
    assert found.payload == "other"


async def test_a_failure_does_not_count_for_the_job(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.answer = ValueError("no")

    await running.backfill_job("a", NOON - 24 * HOUR, NOON, max_concurrent=5)
    await clock.advance("1s")

    job = await job_of(running)
    assert (job.consecutive_errors, job.enabled, job.next_run_at) == (0, True, NOON + HOUR)


async def test_it_goes_on_beside_the_schedule(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "50m"

    await running.backfill_job("a", NOON - 3 * HOUR, NOON)
    await clock.advance("70m", wait_for_runs=False)

    assert [(run.scheduled_for, run.trigger) for run in worker.runs] == [
        (NOON - 3 * HOUR, Trigger.BACKFILL),
        (NOON - 2 * HOUR, Trigger.BACKFILL),
        (NOON + HOUR, Trigger.SCHEDULE),
    ]


async def test_it_goes_on_after_a_restart(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    worker.blocks = True
    first = new_scheduler(shared)
    await first.start()
    await first.add_job(HOURLY, handler="work", id="a")
    backfill = await first.backfill_job("a", NOON - 5 * HOUR, NOON, max_concurrent=2)
    await clock.advance("1s", wait_for_runs=False)
    assert worker.active == 2
    await first.stop(cancel=True)

    worker.blocks = False
    second = new_scheduler(shared)
    await second.start()
    await clock.advance("1s")

    assert figures(await second.get_backfill(backfill.number)) == (5, 5, 0, "done")
    succeeded = await second.run_log("a", outcome="success")
    assert sorted(row.scheduled_for for row in succeeded) == [NOON - hours * HOUR for hours in (5, 4, 3, 2, 1)]


async def test_a_cancelled_backfill_starts_nothing_more_and_cancels_what_runs(
    running: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.blocks = True
    backfill = await running.backfill_job("a", NOON - 5 * HOUR, NOON, max_concurrent=2)
    await clock.advance("1s", wait_for_runs=False)

    cancelled = await running.cancel_backfill(backfill.number)
    await clock.advance("5s")

    assert cancelled.state is BackfillState.CANCELLED
    assert len(worker.runs) == worker.cancelled == 2
    assert figures(await running.get_backfill(backfill.number)) == (5, 0, 2, "cancelled")
    assert (await running.cancel_backfill(backfill.number)).state is BackfillState.CANCELLED


async def test_a_paused_job_holds_its_backfill(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    await running.pause_job("a")
    backfill = await running.backfill_job("a", NOON - 2 * HOUR, NOON)
    await clock.advance("5s")
    assert worker.runs == []

    await running.resume_job("a")
    await clock.advance("5s")

    assert figures(await running.get_backfill(backfill.number)) == (2, 2, 0, "done")


async def test_removing_the_job_cancels_its_backfill(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.blocks = True
    backfill = await running.backfill_job("a", NOON - 5 * HOUR, NOON)
    await clock.advance("1s", wait_for_runs=False)

    await running.remove_job("a")
    await clock.advance("5s")

    assert (await running.get_backfill(backfill.number)).state is BackfillState.CANCELLED
    assert worker.cancelled == 1


async def test_occurrences_before_the_job_was_added_and_not_those_to_come(
    running: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    await running.add_job(Every("7m"), handler="work", id="grid")

    backfill = await running.backfill_job("grid", NOON - 15 * MINUTE, NOON + HOUR, max_concurrent=9)
    await clock.advance("1s")

    assert backfill.total == 3
    assert [run.scheduled_for for run in worker.runs] == [NOON - minutes * MINUTE for minutes in (14, 7, 0)]


async def test_a_group_limit_bounds_it(new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "10s"
    scheduler = new_scheduler(":memory:", group_limits={"g": 2})
    await scheduler.start()
    await scheduler.add_job(HOURLY, handler="work", id="a", group="g")

    backfill = await scheduler.backfill_job("a", NOON - 6 * HOUR, NOON, max_concurrent=5)
    await clock.advance("1m", wait_for_runs=False)

    assert worker.most_active == 2
    assert (await scheduler.get_backfill(backfill.number)).done == 6


async def test_a_single_pass_takes_part(new_scheduler: NewScheduler, every_store: str, worker: Worker) -> None:
    scheduler = new_scheduler(every_store, max_concurrent=4)
    await scheduler.add_job(HOURLY, handler="work", id="a")
    backfill = await scheduler.backfill_job("a", NOON - 6 * HOUR, NOON, max_concurrent=2)

    summary = await scheduler.run_pending()

    assert summary.executed == 2
    assert (await scheduler.get_backfill(backfill.number)).done == 2


async def test_a_cursor_stays_where_the_schedule_left_it(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")

    @scheduler.handler("count")
    async def count(run: Run) -> None:
        run.cursor = run.id

    await scheduler.start()
    await scheduler.add_job(HOURLY, handler="count", id="a")
    await scheduler.update_job("a", cursor="kept")
    await scheduler.backfill_job("a", NOON - 2 * HOUR, NOON)
    await clock.advance("1s")

    assert (await job_of(scheduler)).cursor == "kept"


@pytest.mark.parametrize("schedule", [Manual(), Delay("5m")], ids=str)
async def test_a_job_without_regular_occurrences_is_refused(idle: Scheduler, schedule: Schedule) -> None:
    await idle.add_job(schedule, handler="work", id="a")

    with pytest.raises(InvalidJobError, match="no regular occurrences"):
        await idle.backfill_job("a", NOON - HOUR, NOON)


async def test_too_many_occurrences_are_refused(idle: Scheduler) -> None:
    await idle.add_job(Every("1s"), handler="work", id="a")

    assert (await idle.backfill_job("a", NOON - 10_000 * SECOND, NOON)).total == 10_000
    with pytest.raises(InvalidJobError, match=r"more than 10,000 occurrences.*smaller range"):
        await idle.backfill_job("a", NOON - 10_001 * SECOND, NOON)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"start": NOON, "end": NOON}, id="nothing between"),
        pytest.param({"start": "yesterday"}, id="no instant"),
        pytest.param({"start": NOON.replace(tzinfo=None)}, id="naive"),
        pytest.param({"max_concurrent": 0}, id="none at a time"),
        pytest.param({"max_concurrent": None}, id="no limit"),
        pytest.param({"again": "yes"}, id="not a truth value"),
        pytest.param({"payload": {1, 2}}, id="no JSON"),
    ],
)
async def test_wrong_arguments_are_refused(idle: Scheduler, wrong: dict[str, Any]) -> None:
    await idle.add_job(HOURLY, handler="work", id="a")

    with pytest.raises(ValueError):
        await idle.backfill_job(**{"id": "a", "start": NOON - HOUR, "end": NOON, **wrong})


async def test_unknown_jobs_and_numbers_are_errors(idle: Scheduler) -> None:
    with pytest.raises(JobNotFoundError):
        await idle.backfill_job("a", NOON - HOUR, NOON)
    with pytest.raises(BackfillNotFoundError) as caught:
        await idle.get_backfill(7)
    assert caught.value.number == 7
    with pytest.raises(BackfillNotFoundError):
        await idle.cancel_backfill(7)
    with pytest.raises(InvalidJobError, match=r'number must be the number of a backfill, .*, not "1"'):
        await idle.cancel_backfill("1")  # type: ignore[arg-type]


async def test_a_namespace_sees_only_its_own(running: Scheduler, clock: VirtualClock) -> None:
    view = running.namespace("other")
    await view.add_job(HOURLY, handler="work", id="a")
    own = await view.backfill_job("a", NOON - HOUR, NOON)
    foreign = await running.backfill_job("a", NOON - HOUR, NOON)
    await clock.advance("1s")

    assert figures(await view.get_backfill(own.number)) == (1, 1, 0, "done")
    with pytest.raises(BackfillNotFoundError):
        await view.get_backfill(foreign.number)
    with pytest.raises(BackfillNotFoundError):
        await view.cancel_backfill(foreign.number)
    with pytest.raises(JobNotFoundError):
        await view.backfill_job("b", NOON - HOUR, NOON)


async def test_a_one_shot_can_be_run_again(idle: Scheduler, worker: Worker) -> None:
    await idle.add_job(At(NOON - HOUR), handler="work", id="a")
    await idle.run_pending()

    backfill = await idle.backfill_job("a", NOON - timedelta(hours=2), NOON, again=True)
    await idle.run_pending()

    assert (await idle.get_backfill(backfill.number)).done == 1
    assert [run.trigger for run in worker.runs] == [Trigger.CATCH_UP, Trigger.BACKFILL]
    assert (await job_of(idle)).status is Status.DISABLED
