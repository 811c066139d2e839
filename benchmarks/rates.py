"""Is a rate of 1,000 starts per second held and reached by four processes that share one file or one server?

More jobs are due than the rate allows: half as many again, each of them once a second. Every handler notes the time at
which it was called, in a file of its process: the store is not its own witness. No rolling second may have more than
1,000 of these times. The rate that is reached is counted over whole periods, without the first and the last.

    python benchmarks/rates.py [--rate 1000/s] [--processes 4] [--seconds 10] [--store file|server] [--quick]

It takes about twenty seconds. Its exit code is 1 if the rate is exceeded, or reached by less than 98 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler_async import Every, JobSpec, Run, Scheduler
from scheduler_async.rules.rates import parse_rate
from scheduler_async.timekeeping.instants import SECOND, to_micros

ROOT = Path(__file__).resolve().parent.parent
TIME = struct.Struct("q")


async def work(store: str, rate: str, log: Path) -> None:
    """Run jobs in one of the processes, until it is told to stop."""
    scheduler = Scheduler(store, group_rates={"api": rate}, misfire_grace=None)
    with log.open("ab", buffering=0) as file:

        @scheduler.handler("note")
        async def note(run: Run) -> None:
            file.write(TIME.pack(to_micros(run.fired_at)))

        async with scheduler:
            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def add(store: str, jobs: int, due: datetime) -> None:
    async def fill() -> None:
        scheduler = Scheduler(store)
        anchors = [due + number * timedelta(seconds=1) / jobs for number in range(jobs)]
        specs = [
            JobSpec(Every("1s", anchor=anchor), handler="note", id=f"job{number}", group="api")
            for number, anchor in enumerate(anchors)
        ]
        await scheduler.add_jobs(specs)
        await scheduler.stop()

    asyncio.run(fill())


def measure(store: str, directory: Path, rate: str, processes: int, seconds: float) -> dict[str, float]:
    allowed = parse_rate(rate, "api")
    per_second = allowed.count * SECOND / allowed.period
    jobs = max(int(per_second * 1.5), 2)
    due = datetime.now(UTC) + timedelta(seconds=5)
    add(store, jobs, due)
    logs = [directory / f"{number}.log" for number in range(processes)]
    crew = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", store, "--rate", rate, "--log", str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for log in logs
    ]
    for process in crew:
        assert process.stdout is not None
        process.stdout.readline()
    time.sleep(max((due - datetime.now(UTC)).total_seconds(), 0) + seconds)
    for process in crew:
        process.communicate("\n")
    starts = sorted(time for log in logs for (time,) in TIME.iter_unpack(log.read_bytes()))
    return {"processes": processes, "jobs": jobs, **figures_of(starts, allowed.count, allowed.period)} | {
        f"by_{number}": log.stat().st_size / TIME.size for number, log in enumerate(logs)
    }


def figures_of(starts: list[int], count: int, period: int) -> dict[str, float]:
    """What was reached, of what the rate allows, and how many starts the fullest rolling window has."""
    fullest = max(bisect_left(starts, start + period) - place for place, start in enumerate(starts))
    # The first period is left out, in which jobs become due, and the last, in which the processes stop.
    first, periods = starts[0] + period, (starts[-1] - starts[0]) // period - 1
    within = bisect_left(starts, first + periods * period) - bisect_left(starts, first)
    return {
        "starts": len(starts),
        "seconds": (starts[-1] - starts[0]) / SECOND,
        "fullest_window": fullest,
        "allowed": count,
        "reached": within / (count * periods),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1000/s")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--store", choices=("file", "server"), default="file")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work, options.rate, options.log))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if options.store == "file":
            store = str(directory / "jobs.db")
        else:
            sys.path.insert(0, str(ROOT))
            from tests.postgres_server import url_of_schema  # noqa: PLC0415

            store = url_of_schema(str(directory))
        seconds = options.seconds or (3 if options.quick else 10)
        figures = measure(store, directory, options.rate, options.processes, seconds)
    print(json.dumps(figures, indent=2))
    is_held = figures["fullest_window"] <= figures["allowed"]
    is_reached = figures["reached"] >= 0.98
    print("held" if is_held else "EXCEEDED", "and reached" if is_reached else "and NOT REACHED")
    sys.exit(0 if is_held and is_reached else 1)


if __name__ == "__main__":
    main()
