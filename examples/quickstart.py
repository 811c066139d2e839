"""Ten seconds with the scheduler: an interval, a cron line, a failure that backs off, a one-shot, and a restart.

python examples/quickstart.py
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler_async import At, Cron, Every, Retry, Run, Scheduler

BEGUN = datetime.now(UTC)
logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story


def say(text: str) -> None:
    seconds = (datetime.now(UTC) - BEGUN).total_seconds()
    print(f"{seconds:5.1f} s  {text}", flush=True)


def build(path: Path) -> Scheduler:
    """Create a scheduler with its handlers. An occurrence is missed after one second here; the default is a minute."""
    scheduler = Scheduler(path, misfire_grace="1s")

    # Declared in code: the scheduler adds it when it starts, and keeps its cadence across restarts.
    @scheduler.job(Every("1s"), id="heartbeat")
    async def heartbeat(run: Run) -> None:
        missed = f" (a catch-up, {run.delay_ms / 1000:.0f} s late)" if run.trigger == "catch_up" else ""
        say(f"heartbeat: every second{missed}")

    @scheduler.handler("report")
    async def report(run: Run) -> None:
        say(f"report: by cron, for {run.payload['to']}")

    @scheduler.handler("flaky")
    async def flaky() -> None:
        say("flaky: fails, and waits longer after each failure")
        raise ConnectionError("no route to host")

    @scheduler.handler("greet")
    def greet() -> None:  # plain functions run in a thread
        say("greet: once")

    return scheduler


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "jobs.db")
        print("-- Four jobs in a SQLite file:")
        async with build(path) as scheduler:
            await scheduler.add_job(
                Cron("*/3 * * * * *", tz="Europe/Stockholm"), handler="report", id="report", payload={"to": "ops"}
            )
            await scheduler.add_job(Every("1s"), handler="flaky", id="flaky", retry=Retry.backoff(["2s", "30s"]))
            await scheduler.add_job(At(datetime.now(UTC) + timedelta(seconds=1.5)), handler="greet", id="greet")
            await asyncio.sleep(4.5)
            print("\n-- Why is a job not running right now?")
            for job_id in ("flaky", "greet", "heartbeat"):
                print(f"   {await scheduler.explain(job_id)}")

        print("\n-- The scheduler stops for three seconds, as in a deployment. Then each job catches up once:")
        await asyncio.sleep(3)
        async with build(path) as scheduler:
            await asyncio.sleep(1)
            print("\n-- The run log, newest first:")
            print(f"   {'job':<10} {'scheduled for':<13} {'trigger':<9} {'outcome':<8} note")
            for row in await scheduler.run_log(limit=15):
                note = row.error or (f"{row.missed} occurrences: {row.reason}" if row.missed else "")
                due = f"{row.scheduled_for.astimezone():%H:%M:%S.%f}"[:-5]
                print(f"   {row.job_id:<10} {due:<13} {row.trigger:<9} {row.outcome or 'running':<8} {note}".rstrip())


if __name__ == "__main__":
    asyncio.run(main())
