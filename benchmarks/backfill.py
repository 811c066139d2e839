"""How fast does a backfill run, compared with as many jobs that are due at once?

    python -m benchmarks.backfill              # 10,000 occurrences, 50 at once
    python -m benchmarks.backfill --quick

Both take turns in one run. Each prints runs finished and recorded per second of wall time, and per second of CPU time,
which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler_async import At, BackfillState, Every, JobSpec, Scheduler

AT_ONCE = 50


class Stopwatch:
    """Wall time and CPU time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rates(self, count: int) -> tuple[float, float]:
        """Return *count* per second of wall time and of CPU time."""
        return count / (time.perf_counter() - self._wall), count / (time.process_time() - self._cpu)


async def burst(store: str, count: int) -> tuple[float, float]:
    """Run *count* jobs that are due at once."""
    scheduler, left, done = Scheduler(store, keep_runs=None), count, asyncio.Event()

    @scheduler.handler("work")
    async def work() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    due = datetime.now(UTC) - timedelta(seconds=1)
    await scheduler.add_jobs([JobSpec(At(due), handler="work", id=f"job{number}") for number in range(count)])
    watch = Stopwatch()
    await scheduler.start()
    await done.wait()
    await scheduler.stop()
    return watch.rates(count)


async def backfill(store: str, count: int) -> tuple[float, float]:
    """Run *count* occurrences of one job as a backfill."""
    scheduler = Scheduler(store, keep_runs=None)

    @scheduler.handler("work")
    async def work() -> None:
        pass

    end = datetime.now(UTC)
    await scheduler.add_job(Every("1m"), handler="work", id="job")
    made = await scheduler.backfill_job("job", end - timedelta(minutes=count), end, max_concurrent=AT_ONCE)
    watch = Stopwatch()
    await scheduler.start()
    while (found := await scheduler.get_backfill(made.number)).state is BackfillState.RUNNING:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    rates = watch.rates(found.done)
    await scheduler.stop()
    assert (found.done, found.failed) == (made.total, 0)
    return rates


def main() -> None:
    """Measure both by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 occurrences, once")
    quick = parser.parse_args().quick
    count, turns = (1_000, 1) if quick else (10_000, 5)
    found: dict[str, list[tuple[float, float]]] = {"burst": [], "backfill": []}
    for _ in range(turns):
        for name, measure in (("burst", burst), ("backfill", backfill)):
            with tempfile.TemporaryDirectory() as directory:
                found[name].append(asyncio.run(measure(str(Path(directory, "jobs.db")), count)))
    for name, rates in found.items():
        wall, cpu = (statistics.median(values) for values in zip(*rates, strict=True))
        print(f"{name:9} of {count:,}: {wall:,.0f} runs/s, {cpu:,.0f} runs per second of CPU time")


if __name__ == "__main__":
    main()
