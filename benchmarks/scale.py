"""Does the scheduler care how many jobs there are? And how long does a year take on a virtual clock?

Adds many jobs in bulk, opens the store again with a few of them due, and measures what that costs: it should follow
the number of due jobs, not of stored ones. Then lets a year of hourly and daily jobs pass.

    python benchmarks/scale.py [--jobs 100000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

from scheduler_async import Cron, Every, JobSpec, Scheduler
from scheduler_async.testing import VirtualClock

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DUE = 10


async def add_in_bulk(path: Path, count: int) -> tuple[float, float]:
    """Jobs per second, described and checked, and then added and committed. Ten are due soon, the others much later."""
    scheduler = Scheduler(path, clock=VirtualClock(NOW))
    describing = adding = 0.0
    for first in range(0, count, 10_000):
        begun = perf_counter()
        specs = [
            JobSpec(
                Every("30d", anchor=NOW + timedelta(seconds=1) if number < DUE else NOW + timedelta(days=30)),
                handler="h",
                id=f"job-{number}",
                payload={"number": number, "to": ["ops", "dev"]},
            )
            for number in range(first, min(first + 10_000, count))
        ]
        described = perf_counter()
        await scheduler.add_jobs(specs)
        describing += described - begun
        adding += perf_counter() - described
    await scheduler.stop()
    return count / describing, count / adding


def copy_bare(path: Path) -> float:
    """Rows of jobs per second that SQLite itself takes up: the same rows in the same tables, without any decisions."""
    source, copy = sqlite3.connect(path), sqlite3.connect(path.with_suffix(".bare.db"), isolation_level=None)
    copy.execute("PRAGMA journal_mode = WAL")
    copy.execute("PRAGMA synchronous = NORMAL")
    schema = source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'")
    for (statement,) in schema:
        copy.execute(statement)
    copy.executemany("INSERT INTO handler VALUES (?, ?)", source.execute("SELECT * FROM handler"))
    jobs = source.execute("SELECT * FROM job").fetchall()
    states = source.execute("SELECT * FROM state").fetchall()
    begun = perf_counter()
    for first in range(0, len(jobs), 10_000):
        copy.execute("BEGIN IMMEDIATE")
        for table, rows in (("job", jobs), ("state", states)):
            gaps = ", ".join("?" for _ in rows[0])
            copy.executemany(f"INSERT INTO {table} VALUES ({gaps})", rows[first : first + 10_000])
        copy.execute("COMMIT")
    took = perf_counter() - begun
    source.close()
    copy.close()
    return len(jobs) / took


async def open_and_run(path: Path) -> dict[str, float]:
    """Open a store, start, and let the jobs that are due run."""
    clock = VirtualClock(NOW + timedelta(seconds=2))
    scheduler = Scheduler(path, clock=clock)
    ran = 0

    @scheduler.handler("h")
    async def handler() -> None:
        nonlocal ran
        ran += 1

    begun = perf_counter()
    async with scheduler:
        await clock.advance()
        took = perf_counter() - begun
    assert ran == DUE, ran
    return {"first_pass_ms": took * 1000, "peak_mb": peak_memory()}


def peak_memory() -> float:
    """Megabytes. Not from getrusage: there, a process begins with the memory of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def simulate_year(hourly: int, daily: int) -> tuple[int, float]:
    """How many runs a year has, and how many seconds it took."""
    clock = VirtualClock(NOW)
    ran = 0
    async with Scheduler(":memory:", clock=clock) as scheduler:

        @scheduler.handler("h")
        async def handler() -> None:
            nonlocal ran
            ran += 1

        specs = [JobSpec(Every("1h"), handler="h", id=f"hourly-{number}") for number in range(hourly)]
        specs += [
            JobSpec(
                Cron(f"{number % 60} {number % 24} * * *", tz="Europe/Stockholm"), handler="h", id=f"daily-{number}"
            )
            for number in range(daily)
        ]
        await scheduler.add_jobs(specs)
        begun = perf_counter()
        await clock.advance("365d")
        return ran, perf_counter() - begun


def in_fresh_process(path: Path) -> dict[str, float]:
    """`open_and_run` in a process of its own, so that memory is told apart."""
    done = subprocess.run([sys.executable, __file__, "--open", str(path)], capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        print(json.dumps(asyncio.run(open_and_run(options.open))))
        return

    print(f"CPython {platform.python_version()}, {platform.machine()}, {datetime.now(UTC):%Y-%m-%d}")
    figures: dict[str, object] = {}
    columns = ("stored jobs", "described per s", "added per s", "bare SQLite", "open, run 10 due", "peak memory")
    print("\n{:>12} {:>16} {:>12} {:>12} {:>17} {:>12}".format(*columns))
    with tempfile.TemporaryDirectory() as directory:
        for count in (1_000, 10_000, options.jobs):
            path = Path(directory, f"{count}.db")
            described, added = asyncio.run(add_in_bulk(path, count))
            bare = copy_bare(path)
            opened = min(
                (in_fresh_process(copied(path, number)) for number in range(3)), key=lambda f: f["first_pass_ms"]
            )
            first_pass, peak = opened["first_pass_ms"], opened["peak_mb"]
            speeds = f"{described:>16,.0f} {added:>12,.0f} {bare:>12,.0f}"
            print(f"{count:>12,} {speeds} {first_pass:>14.1f} ms {peak:>9.1f} MB")
            figures[str(count)] = {
                "described_per_s": described,
                "added_per_s": added,
                "bare_sqlite_per_s": bare,
                **opened,
            }
    runs, seconds = asyncio.run(simulate_year(20, 80))
    print(f"\nA year of 20 hourly and 80 daily jobs: {runs:,} runs in {seconds:.1f} s of real time.")
    runs_hourly, seconds_hourly = asyncio.run(simulate_year(1, 0))
    print(f"A year of one hourly job: {runs_hourly:,} runs in {seconds_hourly:.1f} s.")
    figures["year"] = {"runs": runs, "seconds": seconds, "hourly_seconds": seconds_hourly}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


def copied(path: Path, number: int) -> Path:
    """A copy of a store, since running it changes it."""
    copy = path.with_suffix(f".{number}.db")
    copy.write_bytes(path.read_bytes())
    return copy


if __name__ == "__main__":
    main()
