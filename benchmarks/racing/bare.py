"""The limits: the least that could be done for each question, by `loop.call_at` and by `sqlite3` without decisions.

Where rows are written, they are the rows that scheduler_async writes, in a file that it filled with far jobs.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiosqlite

from racing import arrivals
from racing.courses import MARGIN, WARM_UP, Figures, spread_over_a_second, watch_idling, watch_lone_runs, watch_seconds
from racing.watching import Heartbeat, peak_memory, spread_of

# Larger ones gain nothing.
BATCH = 1_000

INSERT_RUN = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, node)
    VALUES (?, ?, ?, 1, 'schedule', ?, ?, 'bare')
"""
CLAIM = """
    UPDATE state
       SET activity = 'running', next_run_at = {next_run_at}, retry_of = NULL, attempts = 1, regular_at = NULL,
           retry_count = 0, last_run_at = ?, run = ?, node = 1
     WHERE uid = ?
"""
FINISH_RUN = "UPDATE run SET started_at = ?, finished_at = ?, outcome = 'success' WHERE id = ?"
FINISH = """
    UPDATE state
       SET {end}, activity = 'idle', attempts = 0, last_run_at = ?, last_success_at = ?, run = NULL, node = NULL
     WHERE uid = ?
"""
ENDED = "phase = 'disabled', disabled_reason = 'ended', disabled_at = {now}, next_run_at = NULL"
GOES_ON = "phase = 'active', disabled_reason = NULL, disabled_at = NULL, next_run_at = {next_run_at}"


class File:
    """A store of scheduler_async, written to by hand. No NULL is bound: Python's driver is slow at that."""

    def __init__(self, path: str) -> None:
        self._db = connect(path)
        self._next_run = 1

    def claim(self, uids: Sequence[int], moment: int, next_run_at: int | None) -> list[tuple[int, int]]:
        """One transaction; returns each job with its run."""
        now = micros()
        runs = list(zip(uids, range(self._next_run, self._next_run + len(uids)), strict=True))
        self._next_run += len(uids)
        self._db.execute("BEGIN IMMEDIATE")
        claim = CLAIM.format(next_run_at=next_run_at or "NULL")
        self._db.executemany(claim, ((now, run, uid) for uid, run in runs))
        self._db.executemany(INSERT_RUN, ((run, uid, moment, now, now) for uid, run in runs))
        self._db.execute("COMMIT")
        return runs

    def finish(self, runs: Sequence[tuple[int, int]], next_run_at: int | None) -> None:
        """Record endings in one transaction. A job without a next run is disabled."""
        now = micros()
        end = ENDED.format(now=now) if next_run_at is None else GOES_ON.format(next_run_at=next_run_at)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(FINISH.format(end=end), ((now, now, uid) for uid, _ in runs))
        self._db.executemany(FINISH_RUN, ((now, now, run) for _, run in runs))
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


def connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA foreign_keys = ON")
    return db


def micros() -> int:
    return time.time_ns() // 1000


async def ticks(path: str, probes: int, gap: float) -> Figures:  # noqa: ARG001 (it has no file)
    loop = asyncio.get_running_loop()
    arrivals.expect(probes + WARM_UP)
    first, first_in_loop = time.time() + MARGIN, loop.time() + MARGIN
    due = {str(number): first + number * gap for number in range(probes + WARM_UP)}
    for job, moment in due.items():
        loop.call_at(first_in_loop + moment - first, arrivals.note, job)
    await arrivals.all_here()
    lateness = [moment - due[job] for moment, job in arrivals.begun][WARM_UP:]
    return {**spread_of(lateness), "lateness_ms": [round(late * 1000, 4) for late in lateness]}


async def burst(path: str, count: int, comes_again: bool) -> Figures:
    file = File(path)
    last = 0.0
    following = micros() + 3_600_000_000 if comes_again else None

    def write() -> None:
        nonlocal last
        for first in range(1, count + 1, BATCH):
            runs = file.claim(range(first, min(first + BATCH, count + 1)), micros(), None)
            last = time.perf_counter()
            file.finish(runs, following)
        file.close()

    async with Heartbeat() as heart:
        begun = time.perf_counter()
        await asyncio.to_thread(write)
        durable = time.perf_counter() - begun
    return {
        "last_handler_s": last - begun,
        "durable_s": durable,
        "durable_per_s": count / durable,
        "stall_ms": heart.stalled,
        "worked_ms": heart.worked,
    }


async def sustained(path: str, jobs: int, seconds: int, spread: bool) -> Figures:  # noqa: ARG001 (one batch is the least)
    file = File(path)
    anchor = time.time() + MARGIN
    names = {uid: f"job-{uid}" for uid in range(1, jobs + 1)}
    arrivals.expect(jobs * seconds + 1)

    async def run() -> None:
        for second in range(seconds):
            await asyncio.sleep(anchor + second - time.time())
            moment = int((anchor + second) * 1e6)
            runs = await asyncio.to_thread(file.claim, list(names), moment, moment + 1_000_000)
            await asyncio.gather(*(arrivals.work(name) for name in names.values()))
            await asyncio.to_thread(file.finish, runs, moment + 1_000_000)

    running = asyncio.create_task(run(), name="bare")

    async def close() -> None:
        await running
        file.close()

    return await watch_seconds(anchor, seconds, dict.fromkeys(names.values(), 0.0), close)


async def lone(path: str, jobs: int, seconds: int) -> Figures:
    """On a thread of its own, one commit claims a run, and another records its end."""
    file = File(path)
    loop = asyncio.get_running_loop()
    anchor = time.time() + MARGIN
    offsets = spread_over_a_second(jobs)
    uids = {name: uid for uid, name in enumerate(offsets, 1)}
    running = set()

    async def run(name: str, moment: float) -> None:
        following = int((moment + 1) * 1e6)
        runs = await loop.run_in_executor(thread, file.claim, [uids[name]], int(moment * 1e6), following)
        await arrivals.work(name)
        await loop.run_in_executor(thread, file.finish, runs, following)

    def start(name: str, moment: float) -> None:
        running.add(task := asyncio.create_task(run(name, moment)))
        task.add_done_callback(running.discard)
        timers[name] = loop.call_later(moment + 1 - time.time(), start, name, moment + 1)

    async def close() -> None:
        for timer in timers.values():
            timer.cancel()
        await asyncio.gather(*running)
        file.close()

    with ThreadPoolExecutor(max_workers=1) as thread:
        timers = {
            name: loop.call_later(anchor + offset - time.time(), start, name, anchor + offset)
            for name, offset in offsets.items()
        }
        return await watch_lone_runs(anchor, seconds, offsets, close)


async def backlog(path: str, count: int) -> Figures:
    begun = time.process_time()
    figures = await burst(path, count, comes_again=False)
    return {**figures, "cpu_us": (time.process_time() - begun) / count * 1e6}


async def add(path: str, one_at_a_time: int, in_bulk: int) -> Figures:
    """The rows of both tables; as `one_table_…`, only those of the table of jobs; and both again, a thread away."""
    source = sqlite3.connect(path)
    schema = source.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
    ).fetchall()
    insert_job, jobs = rows_of(source, "job")
    insert_state, states = rows_of(source, "state")
    source.close()
    figures: Figures = {}
    for prefix, with_state in (("", True), ("one_table_", False)):
        db = with_schema(f"{path}.{prefix}copy", schema)
        begun = time.perf_counter()
        for job, state in zip(jobs[:one_at_a_time], states, strict=False):
            db.execute("BEGIN IMMEDIATE")
            db.execute(insert_job, job)
            if with_state:
                db.execute(insert_state, state)
            db.execute("COMMIT")
        figures[f"{prefix}one_at_a_time_per_s"] = one_at_a_time / (time.perf_counter() - begun)
        begun = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.executemany(insert_job, jobs[one_at_a_time:])
        if with_state:
            db.executemany(insert_state, states[one_at_a_time:])
        db.execute("COMMIT")
        figures[f"{prefix}in_bulk_per_s"] = in_bulk / (time.perf_counter() - begun)
        db.close()
    with_schema(f"{path}.away", schema).close()
    pairs = zip(jobs[:one_at_a_time], states, strict=False)
    seconds = await add_a_thread_away(
        f"{path}.away", [((insert_job, job), (insert_state, state)) for job, state in pairs]
    )
    figures["a_thread_away_per_s"] = one_at_a_time / seconds
    return figures


def with_schema(path: str, schema: Sequence[tuple[str]]) -> sqlite3.Connection:
    db = connect(path)
    for (statement,) in schema:
        db.execute(statement)
    db.execute("INSERT INTO handler VALUES (1, 'work')")
    return db


Statements = tuple[tuple[str, tuple[object, ...]], ...]


class Transactions(sqlite3.Connection):
    """Takes all statements of a transaction for one: aiosqlite carries them to its thread together."""

    def execute(self, sql: object, parameters: Any = (), /) -> sqlite3.Cursor:
        if isinstance(sql, str):
            return super().execute(sql, parameters)
        super().execute("BEGIN IMMEDIATE")
        for statement in parameters:
            super().execute(*statement)
        return super().execute("COMMIT")


async def add_a_thread_away(path: str, transactions: Sequence[Statements]) -> float:
    """Measure how long these take through aiosqlite: one way to its thread and back for each, and no decisions."""
    async with aiosqlite.connect(path, isolation_level=None, factory=Transactions) as db:
        await db.execute("PRAGMA synchronous = NORMAL")
        await db.execute("PRAGMA foreign_keys = ON")
        begun = time.perf_counter()
        for statements in transactions:
            await db.execute_fetchall(None, statements)
        return time.perf_counter() - begun


def rows_of(db: sqlite3.Connection, table: str) -> tuple[str, list[tuple[object, ...]]]:
    """All rows, which are alike, without what is empty in them, and the statement that writes them."""
    columns = [column for _, column, *_ in db.execute(f"PRAGMA table_info({table})")]
    sample = db.execute(f"SELECT * FROM {table}").fetchone()
    full = [column for column, value in zip(columns, sample, strict=True) if value is not None]
    rows = db.execute(f"SELECT {', '.join(full)} FROM {table} ORDER BY uid").fetchall()
    return f"INSERT INTO {table} ({', '.join(full)}) VALUES ({', '.join('?' for _ in full)})", rows


async def cold_start(path: str) -> Figures:
    """Open the file, and find the first that is due."""
    begun = time.perf_counter()
    db = connect(path)
    found = db.execute(
        "SELECT uid FROM state INDEXED BY state_due WHERE phase = 'active' AND activity = 'idle' "
        "AND next_run_at IS NOT NULL AND handler = 1 AND next_run_at <= ?",
        (micros(),),
    ).fetchone()
    took = time.perf_counter() - begun
    assert found, "nothing is due"
    db.close()
    return {"first_start_s": took, "peak_mb": peak_memory()}


async def idle(path: str, seconds: float) -> Figures:  # noqa: ARG001 (it has no file)
    async def close() -> None: ...

    return await watch_idling(seconds, close)


async def growth(path: str, passes: int, gap: float, runs: int) -> Figures:  # noqa: ARG001 (no time is waited for)
    """The rows of the last jobs: for one at a time, and for many at once."""
    file = File(path)
    found = sqlite3.connect(path)
    (last,) = found.execute("SELECT max(uid) FROM state").fetchone()
    found.close()
    uids = range(last - passes - runs + 1, last + 1)
    begun = time.process_time()
    for uid in uids[:passes]:
        file.finish(file.claim([uid], micros(), None), None)
    after_passes = time.process_time()
    file.finish(file.claim(uids[passes:], micros(), None), None)
    after_runs = time.process_time()
    file.close()
    return {
        "pass_us": (after_passes - begun) / passes * 1e6,
        "run_us": (after_runs - after_passes) / runs * 1e6,
    }
