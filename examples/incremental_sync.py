"""Incremental sync: each run fetches what is new since the last successful run, also across failures and restarts.

`run.cursor` holds what the last successful run left. Half an hour of virtual time passes at once. Leave the clock out
to use real time.

python examples/incremental_sync.py

It prints:

    run 1: fetched 3 records since 0
    run 2: the server is down
    run 3: fetched 2 records since 3
    restart
    run 4: nothing new since 5
    outcomes: success, error, success, noop
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

from scheduler_async import Clock, Delay, Outcome, Result, Retry, Run, Scheduler
from scheduler_async.testing import VirtualClock

logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story


class Server:
    """Stands in for the system to synchronise with."""

    def __init__(self) -> None:
        self.records = ["a", "b", "c"]
        self.is_down = False

    async def records_after(self, cursor: int) -> list[str]:
        if self.is_down:
            raise ConnectionError("the server is down")
        return self.records[cursor:]


def build(store: Path, server: Server, clock: Clock | None = None) -> Scheduler:
    """Create the scheduler of this program."""
    scheduler = Scheduler(store, clock=clock)

    @scheduler.job(
        Delay("10m"),  # after the previous run has ended, however long that took
        id="sync",
        retry=Retry.in_window(max_retries=3, delay="1m"),
        timeout="5m",
    )
    async def sync(run: Run) -> Result:
        cursor = run.cursor or 0
        try:
            records = await server.records_after(cursor)
        except ConnectionError as error:
            print(f"run {run.id}: {error}")
            raise
        if not records:
            print(f"run {run.id}: nothing new since {cursor}")
            return Result(Outcome.NOOP)
        print(f"run {run.id}: fetched {len(records)} records since {cursor}")
        # The store keeps the cursor when it records the success. If the process dies before, the next run fetches the
        # same records again, so write them in a way that allows for that: by their ids, for instance.
        run.cursor = cursor + len(records)
        return Result(message=f"{len(records)} records")

    return scheduler


async def main() -> None:
    server, clock = Server(), VirtualClock()
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "jobs.db")
        async with build(store, server, clock):
            await clock.advance("5m")
            server.records += ["d", "e"]
            server.is_down = True
            await clock.advance("330s")
            server.is_down = False
            await clock.advance("5m")

        print("restart")
        async with build(store, server, clock) as scheduler:
            await clock.advance("10m")
            rows = await scheduler.run_log("sync")
            print(f"outcomes: {', '.join(str(row.outcome) for row in reversed(rows))}")


if __name__ == "__main__":
    asyncio.run(main())
