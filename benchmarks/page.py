"""How long do the calls behind a page for operators take with 1,000,000 jobs and 10,000,000 runs on record?

The jobs have 20 handlers, and belong to 1,000 namespaces: half of them to the first.
Some are paused, disabled, failing, late or running. Runs of 30 days are on record; every hundredth failed, and every
two hundredth occurrence was skipped. The rows are written by SQL, not by the scheduler, which takes minutes.

    python benchmarks/page.py [--jobs 1000000] [--runs 10000000] [--count 40] [--stores file,server] [--quick]
                              [--keep DIRECTORY]

With --keep, the file is built once and used again. The exit code is 1 if a p95 is over 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from time import perf_counter, process_time

import asyncpg
from racing.watching import percentile

from scheduler_async import Page, Scheduler
from scheduler_async.testing import VirtualClock
from tests.postgres_server import Server

GOAL = 50.0  # milliseconds
NOW = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
MICROS = int(NOW.timestamp()) * 1_000_000
HOUR = 3_600_000_000
DAY = 24 * HOUR
HANDLERS, NAMESPACES = 20, 1_000

# Each statement goes to both databases. {n} is a table of the numbers from 0.
NAMESPACE = "CASE WHEN i % 2 = 0 THEN 'default' ELSE 'tenant-' || (i % {namespaces}) END"
STATEMENTS = {
    "handlers": "INSERT INTO handler (name) SELECT 'handler-' || i FROM {n}",
    "jobs": f"""
        INSERT INTO job (uid, revision, namespace, id, handler, schedule, payload, metadata, name, priority, job_group,
                         misfire, on_interrupt, anchor, created_at, updated_at)
        SELECT i + 1, 1, {NAMESPACE}, 'job-' || i, 'handler-' || (i % {HANDLERS}),
               '{{{{"version":1,"kind":"every","interval":"' || (1 + i % 24) || 'h"}}}}',
               '{{{{"number":1}}}}', '{{{{}}}}',
               CASE WHEN i % 100 = 0 THEN 'The title of job ' || i END, 'standard',
               CASE WHEN i % 50 = 0 THEN 'mail' END, 'run_once', 'rerun', {MICROS - 30 * DAY}, {MICROS - 30 * DAY},
               {MICROS - 30 * DAY}
          FROM {{n}}
    """,
    "states": f"""
        INSERT INTO state (uid, revision, {{updated}} handler, rank, id, phase, activity, next_run_at, attempts,
                           consecutive_errors, retry_count, interruptions, last_run_at, last_error_at, last_error,
                           disabled_at, disabled_reason, run)
        SELECT i + 1, 1, {{updated_value}} h.number, 1, 'job-' || i,
               CASE WHEN i % 200 = 7 THEN 'paused' WHEN i % 100 = 9 THEN 'disabled' ELSE 'active' END,
               CASE WHEN i % 5000 = 11 THEN 'running' ELSE 'idle' END,
               CASE WHEN i % 5000 = 11 OR i % 100 = 9 OR i % 1000 = 13 THEN NULL
                    WHEN i % 20000 = 17 THEN {MICROS - 120_000_000}
                    ELSE {MICROS} + (i * 7919 % 86400) * CAST(1000000 AS bigint) END,
               0, CASE WHEN i % 1000 IN (19, 109) THEN 3 ELSE 0 END, 0, 0, {MICROS} - i % 1000,
               CASE WHEN i % 1000 IN (19, 109) THEN {MICROS} - i END, CASE WHEN i % 1000 IN (19, 109) THEN 'no' END,
               CASE WHEN i % 100 = 9 THEN {MICROS} - i END,
               CASE WHEN i % 100 = 9 THEN CASE WHEN i % 1000 = 109 THEN '5 failures' ELSE 'ended' END END,
               CASE WHEN i % 5000 = 11 THEN {{runs}} + i + 1 END
          FROM {{n}} JOIN handler h ON h.name = 'handler-' || (i % {HANDLERS})
    """,
    "runs": """
        INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, finished_at, outcome, reason,
                         missed, error, node)
        SELECT i + 1, 1 + i * 7919 % {jobs}, {at}, CASE WHEN i % 200 = 3 THEN 0 ELSE 1 END, 'schedule',
               {at}, {at} + 1000, {at} + 50000 + i % 1000000,
               CASE WHEN i % 200 = 3 THEN 'skipped' WHEN i % 100 = 4 THEN 'error' ELSE 'success' END,
               CASE WHEN i % 200 = 3 THEN 'misfire' END, CASE WHEN i % 200 = 3 THEN 1 ELSE 0 END,
               CASE WHEN i % 100 = 4 THEN 'no answer' END, 'node-' || (i % 4)
          FROM {n}
    """,
    "runs in progress": f"""
        INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, node)
        SELECT run, uid, {MICROS - 1}, 1, 'schedule', {MICROS - 1}, {MICROS - 1}, 'node-1' FROM state
         WHERE run IS NOT NULL
    """,
    "changes": f"""
        INSERT INTO change (number, uid, {{previous}} at, action, after) {{overriding}}
        SELECT uid, uid, {{previous_value}} {MICROS - 30 * DAY} + uid, 'add', '{{{{}}}}' FROM job
    """,
    # Each hour of 30 days has rows of half of the namespaces.
    "tally": f"""
        INSERT INTO tally
        SELECT {MICROS - MICROS % HOUR} - (i / {NAMESPACES}) * CAST({HOUR} AS bigint), {NAMESPACE},
               CASE WHEN i % 10 = 0 THEN 'skipped' ELSE 'success' END, 'node-' || (i % {NAMESPACES}), 14
          FROM {{n}}
    """,
}
IN_SQLITE = {
    "updated": "",
    "updated_value": "",
    "previous": "previous, decision,",
    "previous_value": "NULL, NULL,",
    "overriding": "",
}
IN_POSTGRES = {
    "updated": "updated_at,",
    "updated_value": f"{MICROS - 30 * DAY},",
    "previous": "",
    "previous_value": "",
    "overriding": "OVERRIDING SYSTEM VALUE",
}


def statements(jobs: int, runs: int, words: dict[str, str], numbers: Callable[[int], str]) -> list[tuple[str, str]]:
    """What fills the tables of a store, each with a name."""
    counts = {"handlers": HANDLERS, "jobs": jobs, "states": jobs, "runs": runs, "tally": 30 * 24 * NAMESPACES}
    at = f"({MICROS - 30 * DAY} + i * CAST({30 * DAY // runs} AS bigint))"
    found = []
    for name, text in STATEMENTS.items():
        values = {"n": numbers(counts.get(name, 0)), "jobs": jobs, "runs": runs, "at": at, "namespaces": NAMESPACES}
        found.append((name, text.format(**values, **words)))
    return found


async def build_file(path: Path, jobs: int, runs: int) -> None:
    scheduler = Scheduler(path, clock=VirtualClock(NOW))
    await scheduler.counts()
    await scheduler.stop()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -500000")
    indexes = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL").fetchall()

    def numbers(count: int) -> str:
        return (
            f"(WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}) SELECT i FROM n)"
        )

    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    for name, text in statements(jobs, runs, IN_SQLITE, numbers):
        told(name, lambda text=text: db.execute(text))  # type: ignore[misc]
    db.execute("UPDATE job SET last_change = uid")
    told("indexes", lambda: [db.execute(sql) for _, sql in indexes])
    db.execute("INSERT OR REPLACE INTO sqlite_sequence (name, seq) SELECT 'run', max(id) FROM run")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def build_schema(url: str, jobs: int, runs: int) -> None:
    scheduler = Scheduler(url, clock=VirtualClock(NOW))
    await scheduler.counts()
    await scheduler.stop()
    db = await asyncpg.connect(url, command_timeout=3_600)
    await db.execute("SET search_path TO scheduler_async; SET synchronous_commit TO off; SET work_mem TO '256MB'")
    await db.execute("SET maintenance_work_mem TO '512MB'")
    found = await db.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'scheduler_async'"
        " AND indexname NOT LIKE '%_pkey' AND indexname NOT LIKE '%_key'"
    )
    for name, _ in found:
        await db.execute(f"DROP INDEX {name}")

    def numbers(count: int) -> str:
        return f"generate_series(CAST(0 AS bigint), {count - 1}) AS n (i)"

    for name, text in statements(jobs, runs, IN_POSTGRES, numbers):
        begun = perf_counter()
        await db.execute(text)
        print(f"  {name}: {perf_counter() - begun:.0f} s", file=sys.stderr)
    await db.execute("INSERT INTO unusual SELECT outcome, id FROM run WHERE outcome NOT IN ('noop', 'success')")
    for _, definition in found:
        await db.execute(definition)
    for sequence, table, column in (("run_id", "run", "id"), ("job_uid", "job", "uid")):
        await db.execute(f"SELECT setval('{sequence}', (SELECT max({column}) FROM {table}))")
    await db.execute("SELECT setval('change_number_seq', (SELECT max(number) FROM change))")
    await db.execute("VACUUM ANALYZE")
    await db.close()


def told(name: str, work: Callable[[], object]) -> None:
    begun = perf_counter()
    work()
    print(f"  {name}: {perf_counter() - begun:.0f} s", file=sys.stderr)


Call = Callable[[], Awaitable[object]]


def questions(scheduler: Scheduler, jobs: int, random: Random) -> dict[str, Call]:
    """The calls to measure. Each asks for something else each time, as far as there is a choice."""
    places: dict[str, str | None] = {}

    async def following(name: str, page: Page[object]) -> None:
        places[name] = page.next if random.random() < 0.9 else None

    async def walk(name: str, **conditions: object) -> None:
        after = places.get(name)
        await following(name, await scheduler.jobs_page(after=after, **conditions))  # type: ignore[arg-type]

    async def walk_runs(name: str, **conditions: object) -> None:
        after = places.get(name)
        await following(name, await scheduler.runs_page(after=after, **conditions))  # type: ignore[arg-type]

    def name() -> tuple[str, str]:
        number = random.randrange(jobs)
        return ("default" if number % 2 == 0 else f"tenant-{number % NAMESPACES}"), f"job-{number}"

    small = frozenset({"tenant-501"})
    large = frozenset({"default"})
    since = NOW - timedelta(days=3)
    return {
        "jobs by next run": lambda: walk("next"),
        "jobs by name": lambda: walk("name", order="name"),
        "jobs of a handler": lambda: walk("handler", handler="handler-7"),
        "jobs of a group": lambda: walk("group", group="mail"),
        "jobs running": lambda: walk("running", status="running"),
        "jobs paused": lambda: walk("paused", status="paused"),
        "jobs disabled": lambda: walk("disabled", status="disabled"),
        "jobs failing": lambda: walk("failing", status="failing"),
        "jobs late": lambda: walk("late", status="late"),
        "text, a beginning": lambda: scheduler.jobs_page(text=f"job-{random.randrange(jobs)}"[:-1]),
        "text, inside of names": lambda: scheduler.jobs_page(text=f"b-{random.randrange(jobs)}"),
        "text, in few titles": lambda: scheduler.jobs_page(text=f"of job {random.randrange(jobs)}"),
        "text, nowhere": lambda: walk("nowhere", text="xyzzy"),
        "jobs of a small tenant": lambda: walk("small", namespaces=small),
        "jobs of a large tenant": lambda: walk("large", namespaces=large),
        "text, a small tenant": lambda: scheduler.jobs_page(text="9", namespaces=small),
        "jobs of 50 names": lambda: _jobs_named(scheduler, [name() for _ in range(50)]),
        "runs, newest first": lambda: walk_runs("runs"),
        "runs that failed": lambda: walk_runs("errors", outcome="error"),
        "runs triggered by hand": lambda: walk_runs("manual", trigger="manual"),
        "runs of a day": lambda: walk_runs("day", since=since, until=since + timedelta(days=1)),
        "runs of a job": lambda: _runs_of(scheduler, name()),
        "runs of a small tenant": lambda: walk_runs("small runs", namespaces=small),
        "runs of a large tenant": lambda: walk_runs("large runs", namespaces=large),
        "changes": scheduler.changes_page,
        "changes of a small tenant": lambda: scheduler.changes_page(namespaces=small),
        "counts": scheduler.counts,
        "counts of a small tenant": lambda: scheduler.counts(namespaces=small),
        "counts of a large tenant": lambda: scheduler.counts(namespaces=large),
        "last 60 runs of 50 jobs": lambda: scheduler.recent_runs([name() for _ in range(50)]),
        "tally of a day": lambda: scheduler.tally(since=NOW - timedelta(days=1)),
        "tally of a day, by hour": lambda: scheduler.tally(since=NOW - timedelta(days=1), by=("hour", "outcome")),
        "tally of a day, a small tenant": lambda: scheduler.tally(since=NOW - timedelta(days=1), namespaces=small),
        "occurrences ahead": lambda: scheduler.planned(until=NOW + timedelta(days=1)),
        "attention": scheduler.attention,
        "attention, a small tenant": lambda: scheduler.attention(namespaces=small),
        "mark": scheduler.mark,
        "mark of a small tenant": lambda: scheduler.mark(namespaces=small),
    }


async def _runs_of(scheduler: Scheduler, name: tuple[str, str]) -> object:
    return await scheduler.runs_page(namespace=name[0], id=name[1])


async def _jobs_named(scheduler: Scheduler, names: list[tuple[str, str]]) -> object:
    namespaces, ids = zip(*names, strict=True)
    return await scheduler.jobs_page(order="name", namespaces={*namespaces}, ids={*ids}, limit=1_000)


async def measure(store: str, jobs: int, count: int) -> dict[str, tuple[float, float, float]]:
    """The median and the 95th percentile of each question in milliseconds, and the CPU time of this process."""
    scheduler = Scheduler(store, clock=VirtualClock(NOW))
    figures: dict[str, tuple[float, float, float]] = {}
    for name, call in questions(scheduler, jobs, Random(1)).items():
        took: list[float] = []
        await call()
        cpu = process_time()
        for _ in range(count):
            begun = perf_counter()
            await call()
            took.append((perf_counter() - begun) * 1000)
        figures[name] = percentile(took, 50), percentile(took, 95), (process_time() - cpu) * 1000 / count
    await scheduler.stop()
    return figures


def show(title: str, figures: dict[str, tuple[float, float, float]]) -> bool:
    print(f"\n{title}: ms, median / p95 (CPU here)")
    for name, (median, high, cpu) in figures.items():
        print(f"  {name:34} {median:8.1f} / {high:6.1f}  ({cpu:.1f}){'  SLOW' if high > GOAL else ''}")
    return all(high <= GOAL for _, high, _ in figures.values())


async def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--stores", default="file,server")
    parser.add_argument("--quick", action="store_true", help="20,000 jobs and 100,000 runs")
    parser.add_argument("--keep", type=Path, help="where to keep the file")
    options = parser.parse_args()
    jobs, runs = (20_000, 100_000) if options.quick else (options.jobs, options.runs)
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; {jobs:,} jobs, {runs:,} runs")
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        if "file" in options.stores:
            path = (options.keep or Path(temporary)) / f"page-{jobs}-{runs}.db"
            if not path.exists():
                await build_file(path, jobs, runs)
            print(f"{path.stat().st_size / 1e6:,.0f} MB", file=sys.stderr)
            good &= show("SQLite", await measure(str(path), jobs, options.count))
        if "server" in options.stores:
            server = Server({"shared_buffers": "1GB", "max_wal_size": "8GB", "fsync": "off"})
            try:
                await build_schema(server.url, jobs, runs)
                good &= show("PostgreSQL", await measure(server.url, jobs, options.count))
            finally:
                server.end()
    return good


if __name__ == "__main__":
    sys.exit(not asyncio.run(main()))
