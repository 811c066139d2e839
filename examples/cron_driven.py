"""A process without a loop: the system's cron starts this program every minute, and it runs what is due.

    * * * * * cd /srv/jobs && JOBS=jobs.db python cron_driven.py

`scheduler-async cron --app cron_driven:scheduler` does the same. Such processes may overlap, and may share the store
with a scheduler that runs all the time.

python examples/cron_driven.py

It prints:

    rotating the logs
    2 executed, 1 succeeded, 1 failed
    0 executed, 0 succeeded, 0 failed
    next within the hour: rotate-logs, fetch
"""

from __future__ import annotations

import asyncio
import logging
import os

from scheduler_async import Every, Retry, Scheduler

logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story
scheduler = Scheduler(os.environ.get("JOBS", ":memory:"))


@scheduler.job(Every("30m", immediately=True), id="rotate-logs", priority="high")
def rotate_logs() -> None:
    print("rotating the logs")


@scheduler.job(Every("1h", immediately=True), id="fetch", retry=Retry.none())
def fetch() -> None:
    raise ConnectionError("no route to host")


async def one_pass() -> None:
    """Run what is due, one after another, and wait for it. The first pass adds the declared jobs."""
    summary = await scheduler.run_pending()
    print(f"{summary.executed} executed, {summary.succeeded} succeeded, {summary.failed} failed")


async def main() -> None:
    await one_pass()
    await one_pass()  # a minute later, as it were
    upcoming = await scheduler.preview("61m")
    print(f"next within the hour: {', '.join(dict.fromkeys(row.job.id for row in upcoming))}")
    await scheduler.stop()  # closes the store


if __name__ == "__main__":
    asyncio.run(main())
