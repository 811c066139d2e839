"""How long does it take until a cancellation from another process takes effect?

    python -m benchmarks.steering                        # on a SQLite file
    python -m benchmarks.steering postgresql://…         # on PostgreSQL

A second process runs a job. This one starts it there, cancels it, and measures until the handler has been cancelled,
by the clock that both processes share. It prints the median and the 95th percentile of so many cancellations, and the
time from a request to the start of the handler.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scheduler_async import Manual, Scheduler

WORKER = """
import asyncio, sys, time
from scheduler_async import Scheduler

async def main():
    scheduler = Scheduler(sys.argv[1])

    @scheduler.handler("work")
    async def work():
        print(time.monotonic(), flush=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print(time.monotonic(), flush=True)
            raise

    async with scheduler:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


async def measure(store: str, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds until a requested run began, and until a cancelled handler was cancelled."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, store, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    scheduler = Scheduler(store)
    starts, cancels = [], []
    try:
        await scheduler.add_job(Manual(), handler="work", id="steered", on_conflict="replace")
        await process.stdout.readline()
        for _ in range(count):
            begun = time.monotonic()
            run = await scheduler.trigger_job("steered", anywhere=True)
            starts.append(float(await process.stdout.readline()) - begun)
            await asyncio.sleep(random.random())  # at any point between two looks of the other process
            begun = time.monotonic()
            await scheduler.cancel_run(run)
            cancels.append(float(await process.stdout.readline()) - begun)
            await scheduler.wait_for_run(run)
    finally:
        await scheduler.stop()
        await process.communicate(b"\n")
    return starts, cancels


def show(what: str, seconds: list[float]) -> None:
    p95 = statistics.quantiles(seconds, n=20)[-1]
    print(f"{what:<28}median {statistics.median(seconds) * 1000:8.1f} ms   p95 {p95 * 1000:8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("store", nargs="?", help="a URL or a path; a new SQLite file by default")
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        starts, cancels = asyncio.run(measure(options.store or str(Path(directory) / "jobs.db"), options.count))
    show("request to start", starts)
    show("cancellation", cancels)


if __name__ == "__main__":
    main()
