"""A disk that takes nothing more, in a real process. What becomes of a locked or read-only file is in other tests."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler_async import Outcome, Scheduler

STEP = timedelta(milliseconds=50)
# A whole program takes its time on a machine that is busy with other things.
PATIENCE = 60.0  # seconds

# A limit on the size of files, which ends as suddenly as it began.
PROGRAM = """
    import asyncio, json, resource, sys
    from datetime import timedelta
    from scheduler_async import EventKind, Every, Scheduler

    async def main():
        scheduler = Scheduler(sys.argv[1], min_interval=timedelta(milliseconds=1))
        ran = asyncio.Queue()

        @scheduler.handler("work")
        async def work(run):
            ran.put_nowait(run.scheduled_for)

        async def until(wanted):
            async for event in events:
                if event.kind is wanted:
                    return

        events = scheduler.events()
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with scheduler:
            await scheduler.add_job(Every(timedelta(milliseconds=50)), handler="work", id="a")
            await ran.get()

            resource.setrlimit(resource.RLIMIT_FSIZE, (1, most))
            await until(EventKind.STORE_FAILED)
            problem, jobs = scheduler.state().problem, len(await scheduler.list_jobs())
            try:
                await scheduler.add_job(Every("1h"), handler="work", id="b")
                refused = None
            except Exception as error:
                refused = f"{type(error).__name__}: {error}"
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            await until(EventKind.STORE_RECOVERED)

            while not ran.empty():
                ran.get_nowait()
            await ran.get()
            await scheduler.add_job(Every("1h"), handler="work", id="b")
            answer = {"problem": problem, "jobs": jobs, "refused": refused, "after": scheduler.state().problem}
        print(json.dumps(answer))

    asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits on the size of files")
async def test_a_disk_that_takes_nothing_more_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """The process goes on, says what is wrong, refuses what it cannot keep, and misses no occurrence."""
    path = tmp_path / "jobs.db"
    program = [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(PROGRAM), str(path)]
    done = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "jobs.db" in said["problem"]
    assert said["jobs"] == 1
    assert said["refused"].startswith("StoreError: The store")
    assert said["after"] is None
    scheduler = Scheduler(path)
    rows = await scheduler.run_log("a", limit=None)
    jobs = await scheduler.list_jobs()
    await scheduler.stop()
    assert sorted(job.id for job in jobs) == ["a", "b"]
    assert {row.outcome for row in rows} == {Outcome.SUCCESS, Outcome.SKIPPED}
    covered = sorted(row.scheduled_for + STEP * number for row in rows for number in range(max(row.missed, 1)))
    assert covered == [covered[0] + STEP * number for number in range(len(covered))]
