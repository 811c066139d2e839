"""A handler may change its own job: its run goes on, and ends on record."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Every, Manual, Outcome, Scheduler
from scheduler_async.testing import VirtualClock
from tests.cast import DAY, MINUTE, NewScheduler, Worker

Change = Callable[[Scheduler], Awaitable[Any]]

CHANGES: dict[str, Change] = {
    "remove": lambda scheduler: scheduler.remove_job("a"),
    "pause": lambda scheduler: scheduler.pause_job("a"),
    "disable": lambda scheduler: scheduler.disable_job("a"),
    "edit": lambda scheduler: scheduler.update_job("a", schedule=Every("1h")),
    "upsert": lambda scheduler: scheduler.add_job(Every("1h"), handler="selfish", id="a", on_conflict="replace"),
    "cancel": lambda scheduler: scheduler.namespace("default").cancel("a"),
}


def selfish(scheduler: Scheduler, change: Change, clock: VirtualClock) -> list[str]:
    """Register a handler that changes its own job, and then goes on for a second."""
    steps: list[str] = []

    @scheduler.handler("selfish")
    async def handler() -> None:
        steps.append("begun")
        await change(scheduler)
        steps.append("changed")
        await clock.sleep("1s")
        steps.append("done")

    return steps


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("by_hand", [False, True], ids=["on schedule", "by hand"])
async def test_a_handler_that_changes_its_own_job_goes_on_and_is_recorded(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, name: str, by_hand: bool
) -> None:
    scheduler = new_scheduler(every_store)
    steps = selfish(scheduler, CHANGES[name], clock)
    await scheduler.start()
    await scheduler.add_job(Manual() if by_hand else Every("1m"), handler="selfish", id="a")

    if by_hand:
        await scheduler.trigger_job("a")
    await clock.advance("70s")

    assert steps == ["begun", "changed", "done"]
    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.SUCCESS
    assert row.duration_ms == 1000


async def test_a_change_below_the_handler_counts_as_its_own(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock
) -> None:
    """In a task that the handler started, and waits for."""
    scheduler = new_scheduler(store)
    steps = selfish(scheduler, lambda it: asyncio.create_task(it.remove_job("a")), clock)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="selfish", id="a")

    await clock.advance("70s")

    assert steps == ["begun", "changed", "done"]
    assert [row.outcome for row in await scheduler.run_log()] == [Outcome.SUCCESS]


async def test_a_job_that_its_run_removed_is_gone_at_once(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    found: list[object] = []

    @scheduler.handler("selfish")
    async def handler() -> None:
        await scheduler.remove_job("a")
        found.append(await scheduler.get_job("a"))
        found.extend(await scheduler.list_jobs())
        await clock.sleep("1s")

    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="selfish", id="a")
    await clock.advance("10m")

    assert found == [None]
    assert await scheduler.list_jobs() == []
    assert len(await scheduler.run_log()) == 1
    (node,) = await scheduler.nodes()
    assert node.running == 0


async def test_a_run_that_removed_its_job_and_was_killed_is_on_record(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    scheduler = new_scheduler(shared)
    forever = asyncio.Event()

    @scheduler.handler("selfish")
    async def handler() -> None:
        await scheduler.remove_job("a")
        await forever.wait()

    await scheduler.add_job(Every("1m"), handler="selfish", id="a")
    await scheduler.trigger_job("a")
    await clock.advance("1s")
    node = scheduler._engine.session.node
    assert node.id is not None
    await scheduler._store.leave(node.id)  # as a kill leaves it: claimed by nobody who lives

    other = new_scheduler(shared)
    await other.start()
    await clock.advance("2m")

    assert [row.outcome for row in await other.run_log("a")] == [Outcome.INTERRUPTED]
    assert await other.list_jobs() == []
    forever.set()


async def test_a_job_that_others_remove_is_cancelled_and_that_is_on_record(
    new_scheduler: NewScheduler, every_store: str, worker: Worker, clock: VirtualClock
) -> None:
    worker.takes = "1h"
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance(MINUTE)

    await scheduler.remove_job("a")
    await clock.advance("1s")

    assert worker.cancelled == 1
    (row,) = await scheduler.run_log("a")
    assert (row.outcome, row.error) == (Outcome.CANCELLED, "The job was removed.")
    assert row.finished_at is not None


# ---------------------------------------------------------------- what is kept of removed jobs


async def test_the_runs_of_a_removed_job_can_be_read_and_are_not_inherited(
    new_scheduler: NewScheduler, every_store: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("2m")
    await scheduler.remove_job("a")
    assert len(await scheduler.run_log("a")) == 2

    again = await scheduler.add_job(Every("1m"), handler="work", id="a")

    assert again.last_run_at is None
    assert await scheduler.run_log("a") == []
    assert len(await scheduler.run_log()) == 2
    await clock.advance(MINUTE)
    assert len(await scheduler.run_log("a")) == 1
    await scheduler.remove_job("a")
    assert len(await scheduler.run_log("a")) == 3


async def test_a_removed_job_takes_its_payload_along_in_the_end(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock
) -> None:
    """It remains for its runs and changes, until `keep_removed` ends."""
    scheduler = new_scheduler(path, keep_removed="7d")
    for job_id in ("never", "once"):
        await scheduler.add_job(
            Manual(), handler="work", id=job_id, payload={"secret": job_id}, metadata={"secret": job_id}
        )
    await scheduler.wait_for_run(await scheduler.trigger_job("once"))

    for job_id in ("never", "once"):
        await scheduler.remove_job(job_id)

    await scheduler.start()
    await clock.advance("8d")

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT id, payload, metadata FROM job").fetchall() == []
        assert db.execute("SELECT before, after FROM change").fetchall() == []


@pytest.mark.parametrize(("keep", "after_a_week"), [("7d", 0), ("30d", 2), (None, 2)])
async def test_the_runs_of_a_removed_job_are_forgotten_in_the_end(
    new_scheduler: NewScheduler,
    every_store: str,
    worker: Worker,
    clock: VirtualClock,
    keep: str | None,
    after_a_week: int,
) -> None:
    scheduler = new_scheduler(every_store, keep_removed=keep)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("2m")
    await scheduler.remove_job("a")

    await clock.advance(6 * DAY)
    assert len(await scheduler.run_log("a")) == 2

    await clock.advance(2 * DAY)
    assert len(await scheduler.run_log("a")) == after_a_week
