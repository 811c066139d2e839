"""How long does `explain(at=…)` take with 1,000,000 runs on record, of one job or of 1,000 jobs?

Jobs run every minute; every hundredth occurrence was skipped. Eight nodes were restarted every day for 90 days. The
questions are about random occurrences that ran, occurrences that were skipped, and moments without an occurrence.

    python benchmarks/hindsight.py [--runs 1000000] [--count 300] [--stores file,server]

The server is started from the binaries that the tests use. It takes a minute. The exit code is 1 if a median is
over 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import asyncpg

from scheduler_async import Every, JobSpec, Scheduler
from scheduler_async.testing import VirtualClock
from tests.postgres_server import Server

GOAL = 20.0  # milliseconds
MINUTE = timedelta(minutes=1)
SKIPPED = 100  # every so many occurrences, one was skipped
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
EDITS = 100  # in all

# Both stores understand these. Run ids increase with time, as they do when jobs run.
RUNS = f"""
    WITH RECURSIVE n (i) AS (SELECT CAST(1 AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < {{each}})
    INSERT INTO run (uid, scheduled_for, attempt, trigger, claimed_at, started_at, finished_at, outcome, reason, missed)
    SELECT uid, {{begin}} + i * 60000000,
           CASE WHEN i % {SKIPPED} = 0 THEN 0 ELSE 1 END, 'schedule',
           {{begin}} + i * 60000000, {{begin}} + i * 60000000 + 1000, {{begin}} + i * 60000000 + 50000,
           CASE WHEN i % {SKIPPED} = 0 THEN 'skipped' ELSE 'success' END,
           CASE WHEN i % {SKIPPED} = 0 THEN 'misfire' END,
           CASE WHEN i % {SKIPPED} = 0 THEN 1 ELSE 0 END
      FROM n CROSS JOIN job
  ORDER BY i, uid
"""
LIVES = """
    WITH RECURSIVE n (i) AS (SELECT CAST(1 AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < 720)
    INSERT INTO node_span (number, name, host, pid, since, until, how)
    SELECT i, 'node', 'host', i, {end} - (i / 8 + 1) * 86400000000, {end} - (i / 8) * 86400000000, 'left' FROM n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--stores", default="file,server")
    options = parser.parse_args()
    print(f"CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores", end=", ")
    print(f"{datetime.now(UTC):%Y-%m-%d}, {options.runs:,} runs on record")
    print(f"{'':<8} {'jobs':>6} {'question':<18} {'median':>10} {'p95':>10} {'longest':>10}")
    reached = True
    for store in options.stores.split(","):
        for jobs in (1, 1_000):
            with an_address(store) as address:
                found = asyncio.run(measure(address, jobs, options.runs // jobs, options.count))
            for question, took in found.items():
                middle, p95 = statistics.median(took), statistics.quantiles(took, n=20)[-1]
                reached &= middle < GOAL
                print(f"{store:<8} {jobs:>6,} {question:<18} {middle:7.2f} ms {p95:7.2f} ms {max(took):7.2f} ms")
    print(f"{'reached' if reached else 'missed'}: every median under {GOAL:g} ms")
    sys.exit(0 if reached else 1)


@contextmanager
def an_address(store: str) -> Iterator[str]:
    """A new file, or the URL of a new server."""
    if store == "file":
        with tempfile.TemporaryDirectory() as directory:
            yield str(Path(directory, "jobs.db"))
        return
    server = Server({"fsync": "on", "shared_buffers": "512MB"})
    try:
        yield server.url
    finally:
        server.end()


async def measure(address: str, jobs: int, each: int, count: int) -> dict[str, list[float]]:
    """Fill a store, and return the milliseconds that each kind of question takes."""
    clock, end = VirtualClock(BEGIN), BEGIN + each * MINUTE + MINUTE / 2
    scheduler = Scheduler(address, clock=clock)
    await scheduler.add_jobs([JobSpec(Every("1m"), handler="work", id=f"job-{number}") for number in range(jobs)])
    for number in range(EDITS):
        await scheduler.update_job(f"job-{number % jobs}", metadata={"edit": number})
    await scheduler.stop()
    await execute(address, RUNS.format(each=each, begin=micros(BEGIN)), LIVES.format(end=micros(end)))
    clock.set(end)
    random = Random(1)
    numbers = range(1, each)
    questions = {  # the answer that is right, and how long after the beginning the moments are
        "it ran": (None, [number * MINUTE for number in numbers if number % SKIPPED]),
        "it was skipped": ("misfire", [number * MINUTE for number in numbers if number % SKIPPED == 0]),
        "no occurrence": ("not_due", [number * MINUTE + MINUTE / 2 for number in numbers]),
    }
    found: dict[str, list[float]] = {}
    for question, (reason, moments) in questions.items():
        found[question] = []
        for _ in range(count):
            job, at = f"job-{random.randrange(jobs)}", BEGIN + random.choice(moments)
            begun = time.perf_counter()
            answer = await scheduler.explain(job, at=at)
            found[question].append((time.perf_counter() - begun) * 1000)
            assert answer.reason == reason, str(answer)
    await scheduler.stop()
    return found


async def execute(address: str, *statements: str) -> None:
    """Write what years of running would have left."""
    if "://" not in address:
        db = sqlite3.connect(address)
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()
        return
    server = await asyncpg.connect(address, server_settings={"search_path": "scheduler_async"})
    for statement in (*statements, "VACUUM (ANALYZE)"):  # as the server does by itself within a minute or two
        await server.execute(statement)
    await server.close()


def micros(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


if __name__ == "__main__":
    main()
