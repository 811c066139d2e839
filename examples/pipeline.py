"""A pipeline: extract, then transform, then load, each after the one before it succeeds; and an alarm if one fails.

python examples/pipeline.py

It prints:

    extract
    transform, after run 1
    load, after run 2
    extract
    transform
    alarm: ValueError: row 7 has no date
"""

from __future__ import annotations

import asyncio
import logging

from scheduler_async import After, Cron, Run, Scheduler

logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story

scheduler = Scheduler(":memory:")
done = asyncio.Event()


# The first job has times of its own. Each of the others becomes due in the transaction that records how the run before
# it ended, so that no crash comes between the two.
@scheduler.job(Cron("0 3 * * *", tz="Europe/Stockholm"))
async def extract() -> None:
    print("extract")


@scheduler.job(After("extract"))
async def transform(run: Run) -> None:
    if run.id > 3:
        print("transform")
        raise ValueError("row 7 has no date")
    print(f"transform, after run {run.after}")


@scheduler.job(After("transform"))
async def load(run: Run) -> None:
    print(f"load, after run {run.after}")
    done.set()


@scheduler.job(After("transform", outcome="failure"))
async def alarm(run: Run) -> None:
    assert run.after is not None
    failed = await scheduler.get_run(run.after)
    print(f"alarm: {failed.error if failed else 'its row is gone'}")
    done.set()


async def main() -> None:
    async with scheduler:
        for _ in range(2):
            done.clear()
            await scheduler.trigger_job("extract")  # instead of waiting for three o'clock
            await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
