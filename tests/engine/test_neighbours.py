"""Not alone in its process: inside anyio's task groups and cancel scopes, and with other schedulers beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import anyio
import pytest

from scheduler_async import At, Every, JobSpec, Manual, Outcome, Run, Scheduler, SchedulerError, SQLiteStore
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, NewScheduler, Worker

# ---------------------------------------------------------------- task groups


async def test_it_works_inside_a_task_group(path: Path, worker: Worker, clock: VirtualClock) -> None:
    scheduler = Scheduler(path, clock=clock)
    scheduler.handler("work")(worker)
    done = anyio.Event()

    async def serve() -> None:
        async with scheduler:
            await scheduler.add_job(Every("1m"), handler="work", id="a")
            await done.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        while scheduler.status != "running" or await scheduler.get_job("a") is None:
            await anyio.sleep(0)
        await clock.advance("3m")
        done.set()

    assert scheduler.status == "stopped"
    assert worker.fired() == [1, 2, 3]


async def test_a_cancelled_scope_stops_it_and_leaves_no_run_without_an_outcome(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """A scope cancels again and again whatever is awaited in it: what must be written is written all the same."""
    worker.takes = "10s"
    scheduler = new_scheduler(path)

    async with anyio.create_task_group() as group, scheduler:
        await scheduler.add_job(Manual(), handler="work", id="a")
        await scheduler.trigger_job("a")
        group.cancel_scope.cancel()
        await anyio.sleep_forever()
    status = scheduler.status
    await scheduler.stop()

    (row,) = await scheduler.run_log("a")
    assert (status, row.outcome) == ("stopped", Outcome.SUCCESS)


def tasks_of_schedulers() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("scheduler_async")}


async def test_a_scope_that_is_cancelled_at_any_moment_of_the_start_leaves_nothing_behind(
    new_scheduler: NewScheduler, path: Path
) -> None:
    scheduler = new_scheduler(path)
    started, turns = False, 0
    while not started:
        async with anyio.create_task_group() as group:

            async def start(turns: int = turns) -> None:
                nonlocal started
                async with scheduler:
                    started = True

            group.start_soon(start)
            for _ in range(turns):
                await anyio.sleep(0.001 if turns > 20 else 0)
            group.cancel_scope.cancel()
        turns += 1

        assert scheduler.status == "stopped", turns
        assert tasks_of_schedulers() == set(), turns

    await scheduler.start()
    assert (await scheduler.health()).ok


async def test_a_failing_neighbour_takes_the_scheduler_down_in_good_order(
    new_scheduler: NewScheduler, path: Path, worker: Worker
) -> None:
    """One task of a group fails, the others are cancelled: the scheduler has stopped when the group ends."""
    scheduler = new_scheduler(path)

    async def serve() -> None:
        async with scheduler:
            await anyio.sleep_forever()

    async def fail() -> None:
        while scheduler.status != "running":
            await anyio.sleep(0)
        raise ConnectionError("no route to host")

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            group.start_soon(fail)

    with pytest.raises(ExceptionGroup) as caught:
        await both()

    assert caught.group_contains(ConnectionError)
    assert scheduler.status == "stopped"


async def test_a_handler_may_use_a_task_group_and_time_limits_of_anyio(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    seen = []

    @scheduler.handler("fan-out")
    async def fan_out(run: Run) -> None:
        async def part(number: int) -> None:
            await clock.sleep("1s")
            seen.append(number)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(part, number)

    await scheduler.add_job(At(NOON), handler="fan-out", id="a")
    await clock.advance("2s")

    (row,) = await scheduler.run_log("a")
    assert sorted(seen) == [0, 1, 2]
    assert (row.outcome, row.duration_ms) == (Outcome.SUCCESS, 1000)


async def test_a_scope_that_ends_does_not_end_the_runs_that_were_asked_for_in_it(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A request may be cancelled when its client goes away; the run that it asked for is the scheduler's."""
    worker.takes = "10s"
    await scheduler.add_job(Manual(), handler="work", id="a")

    with anyio.CancelScope() as scope:
        await scheduler.trigger_job("a")
        scope.cancel()
        await anyio.sleep_forever()
    await clock.advance("10s")

    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.SUCCESS


# ---------------------------------------------------------------- several schedulers


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_several_schedulers_in_one_process_share_a_file(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    schedulers = [new_scheduler(path) for _ in range(3)]
    for scheduler in schedulers:
        await scheduler.start()

    await schedulers[0].add_jobs(JobSpec(Every("1m"), handler="work", id=f"job-{number}") for number in range(10))
    await clock.advance("2s")  # by then, all have noticed what one of them added
    assert {scheduler.state().next_wake_at for scheduler in schedulers} == {NOON + MINUTE}
    await clock.advance("5m")

    counts = Counter((run.job_id, run.scheduled_for) for run in worker.runs)
    assert len(counts) == 50
    assert set(counts.values()) == {1}
    rows = await schedulers[1].run_log(limit=None)
    assert Counter((row.job_id, row.scheduled_for) for row in rows) == counts


async def test_several_schedulers_in_one_process_have_files_of_their_own(tmp_path: Path, clock: VirtualClock) -> None:
    """Handlers, jobs, limits and ends are each one's own."""
    calls: dict[str, list[str]] = {"one": [], "two": []}
    schedulers = {name: Scheduler(tmp_path / f"{name}.db", clock=clock) for name in calls}
    for name, scheduler in schedulers.items():

        async def work(run: Run, name: str = name) -> None:
            calls[name].append(run.job_id)

        scheduler.handler("work")(work)

    async with schedulers["one"] as one:
        async with schedulers["two"] as two:
            await one.add_job(Every("1m"), handler="work", id="same")
            await two.add_job(Every("2m"), handler="work", id="same")
            await two.add_job(Every("2m"), handler="work", id="other")
            await clock.advance("4m")
        await clock.advance("4m")

    assert calls["one"] == ["same"] * 8
    assert Counter(calls["two"]) == {"same": 2, "other": 2}


async def test_one_store_is_not_for_two_schedulers(path: Path) -> None:
    store = SQLiteStore(path)

    async with Scheduler(store):
        with pytest.raises(SchedulerError, match=r"in use by another scheduler\. Give each one a store of its own"):
            await Scheduler(store).start()
