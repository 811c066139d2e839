"""Retries and back-off: an hourly job that fails at first, under five policies. Hours of virtual time pass at once.

python examples/retries.py

It prints:

    Postpone the next run, by two hours after the second failure:
        13:00 fails
        14:00 fails
        16:00 works
    Try again after five minutes, twice:
        13:00 fails
        13:05 fails
        13:10 works
        14:00 works
        15:00 works
        16:00 works
    Try again after 2, 4, 8 minutes, but fail at most three times in three hours:
        13:00 fails
        13:02 fails
        13:06 fails
        16:00 works
    Wait for the next hour:
        13:00 fails
        14:00 fails
        15:00 works
        16:00 works
    Give up after two failures:
        13:00 fails
        14:00 fails
        disabled
    Resume the job:
        18:00 works
"""

from __future__ import annotations

import asyncio
import logging

from scheduler_async import Every, Retry, Run, Scheduler
from scheduler_async.testing import VirtualClock

logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story


def build(clock: VirtualClock, retry: Retry, failures: int) -> Scheduler:
    """Create a scheduler with an hourly job whose first *failures* runs fail."""
    scheduler = Scheduler(":memory:", clock=clock)
    left = failures

    @scheduler.job(Every("1h"), id="sync", retry=retry)
    async def sync(run: Run) -> None:
        nonlocal left
        left -= 1
        print(f"    {run.fired_at:%H:%M} {'fails' if left >= 0 else 'works'}")
        if left >= 0:
            raise ConnectionError("no route to host")

    return scheduler


async def show(title: str, retry: Retry, failures: int = 2) -> None:
    """Run the job from noon to half past four."""
    print(title)
    clock = VirtualClock("2026-01-05T12:00:00Z")
    async with build(clock, retry, failures) as scheduler:
        await clock.advance("270m")
        job = await scheduler.get_job("sync")
        if job is not None and not job.enabled:
            print(f"    {job.status}")
            print("Resume the job:")
            await clock.advance("1h")
            await scheduler.resume_job("sync")
            await clock.advance("1h")


async def main() -> None:
    await show("Postpone the next run, by two hours after the second failure:", Retry.backoff(["5m", "2h"]))
    await show("Try again after five minutes, twice:", Retry.in_window(max_retries=2, delay="5m"))
    title = "Try again after 2, 4, 8 minutes, but fail at most three times in three hours:"
    await show(title, Retry.budget(max_retries=3, period="3h"), failures=3)
    await show("Wait for the next hour:", Retry.none())
    await show("Give up after two failures:", Retry.none(disable_after=2))


if __name__ == "__main__":
    asyncio.run(main())
