"""Several runs of a job at once, and a backfill, in processes that are killed: nothing lost, and never too many."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from scheduler_async import BackfillState, Every, Outcome, RunRow, Scheduler
from tests.cast import PATIENCE, line_of, started

pytestmark = pytest.mark.timeout(180)

WORKS = """
    import asyncio, sys
    from scheduler_async import Scheduler

    async def main():
        scheduler = Scheduler(sys.argv[1])

        @scheduler.handler("work")
        async def work():
            print("working", flush=True)
            await asyncio.sleep(0.3)

        async with scheduler:
            await asyncio.Event().wait()

    asyncio.run(main())
"""
MOST = 3
BACKFILL = 24


def most_at_once(rows: Sequence[RunRow]) -> int:
    """Return how many of the runs went on at once, as far as the log tells."""
    spans = [(row.started_at, row.finished_at) for row in rows if row.started_at and row.finished_at]
    return max(sum(start <= at < end for start, end in spans) for at, _ in spans)


def made_good(rows: Sequence[RunRow]) -> bool:
    """Return whether each interrupted run was run again, successfully."""
    interrupted = {row.scheduled_for for row in rows if row.outcome is Outcome.INTERRUPTED}
    return interrupted <= {row.scheduled_for for row in rows if row.outcome is Outcome.SUCCESS}


async def test_killed_processes_lose_nothing_and_never_run_too_many(shared: str) -> None:
    scheduler = Scheduler(shared)
    now = datetime.now(UTC)
    await scheduler.add_job(Every("1h"), handler="work", id="past")
    await scheduler.add_job(Every("1s"), handler="work", id="a", max_instances=MOST)
    backfill = await scheduler.backfill_job(
        "past", now - timedelta(hours=BACKFILL), now + timedelta(minutes=1), max_concurrent=MOST
    )
    command = [sys.executable, "-c", textwrap.dedent(WORKS), shared]

    for _ in range(2):
        with ExitStack() as both:
            processes = [both.enter_context(started(command, stdin=subprocess.PIPE)) for _ in range(2)]
            for process in processes:
                assert line_of(process) == "working"
            for process in processes:
                process.kill()

    @scheduler.handler("work")
    async def work() -> None:
        await asyncio.sleep(0.01)

    async with scheduler:
        while (await scheduler.get_backfill(backfill.number)).state is BackfillState.RUNNING:
            await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE):
            while not made_good(await scheduler.run_log("a", limit=None)):
                await asyncio.sleep(0.05)
        job = await scheduler.get_job("a")
        await scheduler.pause_job("a")
        done = await scheduler.get_backfill(backfill.number)
        of_backfill = await scheduler.run_log("past", limit=None)
        rows = await scheduler.run_log("a", limit=None)

    assert job is not None
    assert job.enabled
    assert (done.done, done.failed) == (done.total, 0)
    succeeded = [row.scheduled_for for row in of_backfill if row.outcome is Outcome.SUCCESS]
    assert len(succeeded) == len(set(succeeded)) == done.total
    assert most_at_once([row for row in of_backfill if row.trigger == "backfill"]) <= MOST
    runs = [row for row in rows if row.attempt]
    assert most_at_once(runs) <= MOST
    assert Outcome.INTERRUPTED in {row.outcome for row in runs}, "the test needs some"
    attempts = [(row.scheduled_for, row.attempt) for row in runs]
    assert len(attempts) == len(set(attempts))
