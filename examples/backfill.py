"""A backfill: after a mistake in its handler, a job writes the reports of a week again, three at a time.

python examples/backfill.py

It prints:

    7 reports were written, 3 of them wrong
    7 reports were written again, at most 3 at once
    the next regular run has not changed
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from scheduler_async import Backfill, Cron, Run, Scheduler


class Reports:
    """Writes the report of each day."""

    def __init__(self) -> None:
        self.has_mistake = True
        self.written: dict[datetime, str] = {}
        self.at_once = self.most = 0

    async def write(self, run: Run) -> None:
        """Write the report of the day that ended at `run.scheduled_for`, whenever it runs."""
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.05)
        is_wrong = self.has_mistake and run.scheduled_for.day % 2 == 0
        self.written[run.scheduled_for] = "wrong" if is_wrong else "right"
        self.at_once -= 1


async def end_of(scheduler: Scheduler, backfill: Backfill) -> Backfill:
    """Wait until a backfill has ended. The runs may go on in other processes."""
    while backfill.state == "running":
        await asyncio.sleep(0.05)
        backfill = await scheduler.get_backfill(backfill.number)
    return backfill


async def main() -> None:
    reports = Reports()
    scheduler = Scheduler(":memory:")
    scheduler.handler("report")(reports.write)
    start = datetime(2026, 1, 5, tzinfo=UTC)
    end = start + timedelta(days=7)

    async with scheduler:
        job = await scheduler.add_job(Cron("0 0 * * *", tz="UTC"), handler="report", id="daily")
        done = await end_of(scheduler, await scheduler.backfill_job("daily", start, end))
        wrong = list(reports.written.values()).count("wrong")
        print(f"{done.done} reports were written, {wrong} of them wrong")

        reports.has_mistake, reports.most = False, 0
        # They have succeeded as far as the scheduler knows, so ask for them again.
        again = await scheduler.backfill_job("daily", start, end, again=True, max_concurrent=3)
        done = await end_of(scheduler, again)
        print(f"{done.done} reports were written again, at most {reports.most} at once")

        now = await scheduler.get_job("daily")
        same = now is not None and now.next_run_at == job.next_run_at
        print(f"the next regular run {'has not changed' if same else 'has changed'}")


if __name__ == "__main__":
    asyncio.run(main())
