"""Jobs that may have several runs at once, in the whole scheduler."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_async import (
    Delay,
    Every,
    JobAlreadyRunningError,
    Manual,
    Outcome,
    Scheduler,
    SkipReason,
    Status,
    Trigger,
)
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, NewScheduler, Worker, job_of


async def test_as_many_runs_go_on_at_once_as_may(scheduler: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "10m"
    await scheduler.add_job(Every("1m"), handler="work", id="a", max_instances=3)

    await clock.advance("630s", wait_for_runs=False)

    assert worker.most_active == 3
    assert (await job_of(scheduler)).status is Status.RUNNING
    assert worker.fired() == [1, 2, 3]
    await clock.advance("2m", wait_for_runs=False)
    assert worker.fired() == [1, 2, 3, 12]
    skipped = await scheduler.run_log("a", outcome="skipped")
    assert [(row.reason, row.missed) for row in skipped] == [(SkipReason.ALREADY_RUNNING, 8)]


async def test_short_runs_are_no_different_from_those_of_other_jobs(
    scheduler: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a", max_instances=3)

    await clock.advance("5m")

    assert worker.fired() == [1, 2, 3, 4, 5]
    job = await job_of(scheduler)
    assert (job.status, job.next_run_at) == (Status.IDLE, NOON + 6 * MINUTE)
    assert {row.outcome for row in await scheduler.run_log("a")} == {Outcome.SUCCESS}


async def test_a_queued_occurrence_starts_as_soon_as_a_run_ends(
    scheduler: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.takes = "150s"
    await scheduler.add_job(Every("1m"), handler="work", id="a", max_instances=2, overlap="queue")

    await clock.advance("4m", wait_for_runs=False)

    assert worker.fired() == [1, 2, 3.5]
    assert [run.scheduled_for for run in worker.runs] == [NOON + minute * MINUTE for minute in (1, 2, 3)]


async def test_the_next_occurrence_cancels_the_oldest_run(
    scheduler: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.blocks = True
    await scheduler.add_job(Every("1m"), handler="work", id="a", overlap="cancel")

    await clock.advance("210s", wait_for_runs=False)

    assert worker.most_active == 1
    assert worker.cancelled == 2
    rows = list(reversed(await scheduler.run_log("a")))
    assert [(row.outcome, row.reason) for row in rows] == [
        (Outcome.CANCELLED, "overlapped"),
        (Outcome.CANCELLED, "overlapped"),
        (None, None),
    ]
    assert [row.scheduled_for for row in rows] == [NOON + minute * MINUTE for minute in (1, 2, 3)]
    job = await job_of(scheduler)
    assert (job.consecutive_errors, job.enabled) == (0, True)
    worker.go.set()


async def test_triggers_start_beside_each_other(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a", max_instances=3)

    ids = {await scheduler.trigger_job("a", payload=number) for number in range(3)}

    assert len(ids) == 3
    assert worker.most_active == 3
    with pytest.raises(JobAlreadyRunningError):
        await scheduler.trigger_job("a")
    worker.go.set()
    for run in ids:
        assert (await scheduler.wait_for_run(run)).outcome is Outcome.SUCCESS


async def test_one_of_several_runs_can_be_cancelled(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a", max_instances=3)
    ids = [await scheduler.trigger_job("a") for _ in range(3)]

    await scheduler.cancel_run(ids[1], reason="enough")
    row = await scheduler.wait_for_run(ids[1])

    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")
    assert worker.active == 2
    worker.go.set()


async def test_a_delay_still_counts_from_the_end(scheduler: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "30s"
    await scheduler.add_job(Delay("1m"), handler="work", id="a", max_instances=3)

    await clock.advance("4m")

    assert worker.fired() == [0, 1.5, 3]


async def test_all_instances_of_a_stopped_scheduler_are_run_again(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    worker.blocks = True
    first = new_scheduler(shared)
    await first.start()
    await first.add_job(Every("1m"), handler="work", id="a", max_instances=5)
    await clock.advance("5m", wait_for_runs=False)
    assert worker.active == 5
    await first.stop(cancel=True)

    worker.blocks = False
    second = new_scheduler(shared)
    await second.start()
    await clock.advance("10s")

    again = worker.runs[5:]
    assert [(run.scheduled_for, run.attempt) for run in again] == [(NOON + n * MINUTE, 2) for n in range(1, 6)]
    assert {run.trigger for run in again} == {Trigger.RETRY}
    assert (await job_of(second)).status is Status.IDLE


async def test_max_concurrent_counts_runs(new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "5m"
    scheduler = new_scheduler(":memory:", max_concurrent=2)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a", max_instances=5)

    await clock.advance("330s", wait_for_runs=False)

    assert worker.most_active == 2


async def test_explain_says_how_many_run(scheduler: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Every("1m"), handler="work", id="a", max_instances=2)
    await clock.advance("1m", wait_for_runs=False)
    assert (await scheduler.explain("a")).reason is SkipReason.NOT_DUE

    await clock.advance("1m", wait_for_runs=False)
    explained = await scheduler.explain("a")

    assert explained.reason is SkipReason.ALREADY_RUNNING
    assert "running 2 times, and has max_instances=2" in str(explained)
    worker.go.set()
    await asyncio.sleep(0)
