"""Graceful shutdown of long work: a long run notices that the scheduler stops, saves its progress, and continues later.

python examples/graceful_shutdown.py

It prints:

    index starts at page 1
    index stops at page 4
    -- the scheduler has stopped, and starts again
    index-rest starts at page 4
    index-rest has done all 10 pages
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from scheduler_async import At, Every, Outcome, Result, Run, Scheduler

PAGES = 10


def build(store: Path, reached: asyncio.Event, done: asyncio.Event) -> Scheduler:
    """Create the scheduler of this program. *reached* is set in the middle of the work, and *done* at its end."""
    scheduler = Scheduler(store)

    async def work_on(page: int, run: Run) -> None:
        """Do a part of the work that takes seconds rather than minutes."""
        if page == 3 and not reached.is_set():
            reached.set()
            await run.stopping.wait()  # only here, so that this example stops at the same page each time

    @scheduler.handler("index")
    async def index(run: Run) -> Result:
        page = run.payload["page"]
        print(f"{run.job_id} starts at page {page}")
        while page <= PAGES:
            if run.stopping.is_set():
                # The program has received SIGTERM, or called stop(). Leave the rest to a job that is due at once: it
                # runs when the scheduler starts again, or on another node that shares the store.
                print(f"{run.job_id} stops at page {page}")
                rest = At(datetime.now(UTC))
                await scheduler.add_job(
                    rest, handler="index", id="index-rest", payload={"page": page}, on_conflict="replace"
                )
                return Result(Outcome.SKIPPED, message=f"stopped at page {page}")
            await work_on(page, run)
            page += 1
        print(f"{run.job_id} has done all {PAGES} pages")
        done.set()
        return Result(message=f"{PAGES} pages")

    return scheduler


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store, reached, done = Path(directory, "jobs.db"), asyncio.Event(), asyncio.Event()
        async with build(store, reached, done) as scheduler:
            schedule = Every("1d", immediately=True)
            await scheduler.add_job(schedule, handler="index", id="index", payload={"page": 1}, timeout="6h")
            await reached.wait()
        # Leaving the block calls stop(), as run_until_signal() and lifespan do at SIGTERM. Runs have 30 seconds to end.

        print("-- the scheduler has stopped, and starts again")
        async with build(store, reached, done):
            await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
