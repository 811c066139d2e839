"""One bad row harms no other: one column of one row of a store is corrupted, and all the rest must go on.

A case is known by its number: it chooses the table, the column, the row and the value. `ROW_FUZZ_CASES` is how many
are tried (`nox -s fuzz` tries thousands), `ROW_FUZZ_FIRST` the number of the first, which a failure names.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import pytest

from scheduler_async import (
    Action,
    After,
    Cron,
    Delay,
    Every,
    JobSpec,
    Manual,
    Result,
    Retry,
    Run,
    Scheduler,
    StoreError,
    acting_as,
)
from scheduler_async.calls import json_output
from scheduler_async.cli import change_views, run_views
from scheduler_async.jobs.json_forms import Form
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.messages import ClaimTerms, NodeIdentity
from scheduler_async.stores.run_codec import is_unreadable
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON
from tests.postgres_server import url_of_schema

FIRST_CASE = int(os.environ.get("ROW_FUZZ_FIRST", "0"))
CASES = os.environ.get("ROW_FUZZ_CASES")
CASES_OF_FILES, CASES_OF_DATABASES = (150, 75) if CASES is None else (int(CASES), int(CASES))

pytestmark = [pytest.mark.deep, pytest.mark.timeout(7200 if CASES else 600)]  # each case is a life of a scheduler


JOBS = 200
SUCCESSORS = 10
RUNS = 830

RATES = {"group0": "1000/s", "*/group1": "1000/s"}

NUMBERS = [0, 1, -1, 7, 999, 2**31, 2**40, 2**53, -(2**40), 2**62, -(2**62), 2**63 - 1, -(2**63)]
TEXTS = [
    "",
    "nonsense",
    "idle",
    "running",
    "active",
    "manual",
    "a\0b",
    "\x1b[31m",
    "\ud7ff\uffff",
    "{",
    "[]",
    "null",
    "x" * 5000,
]
DEEP = ["[" * 100_000 + "]" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000]
ODD = [
    '{"version": 1}',
    '{"version": 1, "kind": "lunar"}',
    '{"version": 1, "kind": "every", "every": -5}',
    "1e999",
    '"text"',
]
NOT_UTF8 = [b"\xff", b"ab\xc3", b"\xed\xa0\x80"]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What thousands of runs have to say would take most of the time."""
    caplog.set_level(logging.CRITICAL, "scheduler_async")


@dataclass(frozen=True)
class Case:
    """What is done to a store."""

    number: int
    table: str
    column: str
    row: object
    """What the row is known by: its number, or where it is stored."""
    value: object
    spared: frozenset[str]
    """The jobs that the row belongs to: it may be the end of them, but not of others."""

    def __str__(self) -> str:
        value = repr(self.value)
        shown = value if len(value) < 80 else f"{value[:80]}… ({len(value)} characters)"
        return (
            f"case {self.number}: {self.table}.{self.column} of row {self.row} = {shown}\n"
            f"Replay it with ROW_FUZZ_FIRST={self.number} ROW_FUZZ_CASES=1."
        )


def a_value(chance: random.Random) -> object:
    return chance.choice(
        [
            None,
            chance.choice(NUMBERS),
            chance.choice(NUMBERS),
            chance.randint(-(2**63), 2**63 - 1),
            chance.choice([0.5, -1e300]),
            chance.choice(TEXTS),
            chance.choice(TEXTS),
            chance.choice(DEEP),
            chance.choice(ODD),
            chance.choice(NOT_UTF8),
        ]
    )


# ---------------------------------------------------------------- the store before it is corrupted

SCHEDULES = (Every("10m"), Cron("*/20 * * * *"), Delay("15m"), Every("7m", jitter="30s"), Manual())


def specs() -> list[JobSpec]:
    return [
        JobSpec(
            SCHEDULES[number % len(SCHEDULES)],
            handler=("work", "other")[number % 7 == 0],
            id=f"job{number}",
            payload={"number": number, "parts": [1, [2]]},
            metadata={"team": number % 3},
            group=f"group{number % 4}" if number % 5 == 0 else None,
            priority=("high", "standard", "low")[number % 3],
            retry=Retry.none() if number % 17 == 0 else Retry.in_window(1) if number % 11 == 0 else None,
            timeout="5m" if number % 13 == 0 else None,
            max_instances=3 if number % 9 == 3 else 1,
            overlap="cancel" if number % 31 == 0 else "skip",
        )
        for number in range(JOBS)
    ] + [
        JobSpec(After(f"job{number}", "any", delay="1h"), handler="work", id=f"job{JOBS + number}", group="group0")
        for number in range(SUCCESSORS)
    ]


async def fill(store: str) -> None:
    """200 jobs, 830 runs of all kinds, some with outputs, and a dead node that had claimed some jobs."""
    clock = VirtualClock(NOON)
    scheduler = Scheduler(store, clock=clock, keep_runs=None, misfire_grace="1h", group_rates=RATES)

    async def work(run: Run) -> object:
        number = int(run.job_id.removeprefix("job"))
        if number % 17 == 0:
            raise ValueError("it failed")
        if number % 10 == 0:
            run.write("what it wrote")
        return Result(message="done", exit_code=0) if number % 6 == 0 else None

    scheduler.handler("work")(work)
    scheduler.handler("other")(work)
    await scheduler.add_jobs(specs())
    await scheduler.pause_job("job8")
    await scheduler.disable_job("job9")
    with acting_as("anna", via="test"):
        await scheduler.update_job("job10", name="ten", payload={"number": 10})
    await scheduler.start()
    while len(await scheduler.run_log(limit=None)) < RUNS - 5:
        await clock.advance(MINUTE)
    await scheduler.stop()
    await scheduler._engine.ready()
    node = await scheduler._store.join(
        NodeIdentity(name="dead", host="elsewhere", pid=7, process_start="1"), clock.micros()
    )
    for number in range(5):
        claimed = await scheduler._store.claim_one(
            "default", f"job{20 + number}", None, clock.micros(), node=node, queued=number == 0
        )
        assert claimed is not None
    for number in (25, 30):
        await scheduler.backfill_job(f"job{number}", NOON - HOUR, NOON, max_concurrent=2, payload=number)
    handlers = ["work", "other"]
    terms = ClaimTerms(node=node, limit=3, slots=None, handlers=handlers, rules=Rules())
    runs, _ = await scheduler._store.claim_backfills(clock.micros(), terms)
    assert len(runs) == 3
    await scheduler.stop()


# Which job a row belongs to. That of a run which has ended must go on.
OWNER = {
    "job": "SELECT id FROM job WHERE {key}",
    "state": "SELECT job.id FROM state JOIN job USING (uid) WHERE {key}",
    "run": "SELECT job.id FROM run JOIN job USING (uid) WHERE {key} AND outcome IS NULL",
    "successor": "SELECT job.id FROM successor JOIN job USING (uid) WHERE {key}",
    "instance": "SELECT job.id FROM instance JOIN job USING (uid) WHERE {key}",
    "backfill": "SELECT job.id FROM backfill JOIN job USING (uid) WHERE {key}",
}

# ---------------------------------------------------------------- what must hold


class Witness:
    """Notes whose handlers were called."""

    def __init__(self) -> None:
        self.ran: set[str] = set()

    async def __call__(self, run: Run) -> None:
        self.ran.add(run.job_id)


NOW = NOON + 5 * HOUR  # all jobs are due then
NEVER_DUE = {f"job{number}" for number in range(JOBS) if SCHEDULES[number % len(SCHEDULES)] == Manual()}
HELD_BACK = {"job8", "job9", *(f"job{number}" for number in range(20, 25))}


async def check(store: str, case: Case) -> None:
    """All that can be asked, and a pass, hold for all jobs but those that the case spares."""
    clock = VirtualClock(NOW)
    limits = {"group0": 50} if case.number % 2 else None
    rates = RATES if case.number % 3 else None
    scheduler = Scheduler(
        store, clock=clock, keep_runs=4, purge_disabled_after="30d", group_limits=limits, group_rates=rates
    )
    witness = Witness()
    scheduler.handler("work")(witness)
    scheduler.handler("other")(witness)
    there = {f"job{number}" for number in range(JOBS)} - case.spared
    expected = there - NEVER_DUE - HELD_BACK
    try:
        await ask_all(scheduler, there, case)
        await scheduler.start()
        await clock.advance("1s")
        assert expected <= witness.ran, f"these did not run: {sorted(expected - witness.ran)[:5]}"
        await scheduler.add_job(Every("1m"), handler="work", id="new", on_conflict="keep")
        await scheduler.trigger_job("job1" if "job1" in there else "job2")
        await clock.advance("61s")
        assert "new" in witness.ran
        assert scheduler.state().tick_count < 500, "the loop spins"
        assert scheduler.state().problem is None, scheduler.state().problem
        health = await scheduler.health(timeout=None)
        assert health.ok, health
        await ask_all(scheduler, there, case)
    finally:
        await scheduler.stop()


async def ask_all(scheduler: Scheduler, there: set[str], case: Case) -> None:
    """Whatever can be asked is answered, and the answers can be shown."""
    listed = await scheduler.list_jobs()
    assert there <= {job.id for job in listed}
    for job in listed:
        if job.id not in there or not job.enabled:
            shown(json_output.listed_form(job))
    rows = await scheduler.run_log(limit=None)
    for row in [*rows[:5], *filter(is_unreadable, rows)]:
        shown(json_output.row_form(row))
        run_views.story_of(row)
    for node in await scheduler.nodes():
        shown(json_output.node_form(node))
    for change in await scheduler.changes(limit=None):
        if not isinstance(change.action, Action) or change.job_id in ("job8", "job9"):
            shown(change.to_json())
            change_views.story_of(change)
            change_views.author_of(change)
    assert len(await scheduler.changes(since=NOON, limit=None)) >= JOBS // 2
    assert await scheduler.changes(namespace="default", limit=3)
    for span in await scheduler.node_history():
        shown(span.to_json())
    await scheduler.node_history(NOON)
    for upcoming in await scheduler.preview("5m"):
        shown(json_output.upcoming_form(upcoming))
    assert await scheduler.list_jobs(metadata={"team": 1}, limit=3)
    for name in (*case.spared, "job1", "job5"):
        job_or_none = await scheduler.get_job(name)
        assert job_or_none is not None or name in case.spared
        if job_or_none is not None:
            shown(job_or_none.to_json())
            str(await scheduler.explain(name))
            for change in await scheduler.changes(name):
                shown(change.to_json())
            await scheduler.run_stats(name)
    newest = rows[0]
    assert await scheduler.get_run(newest.id) is not None
    await scheduler.run_output(newest.id)


def shown(form: Form) -> bytes:
    """As `--json` prints it."""
    return json.dumps(form, ensure_ascii=False).encode()


async def hold(case: Case, store: str) -> None:
    try:
        await check(store, case)
    except Exception as error:
        if case.table == "version" and isinstance(error, StoreError):
            return
        raise AssertionError(str(case)) from error


# ---------------------------------------------------------------- SQLite


async def test_one_bad_row_of_a_file_harms_no_other(tmp_path: Path) -> None:
    """In every second case the tables take values of any type, as damaged ones may hold."""
    filled, loose = tmp_path / "filled.db", tmp_path / "loose.db"
    await fill(str(filled))
    shutil.copy(filled, loose)
    with closing(sqlite3.connect(loose)) as db:
        db.execute("PRAGMA writable_schema = ON")
        loosened = "replace(replace(replace(sql, 'STRICT, ', ''), 'STRICT', ''), 'NOT NULL', '')"
        db.execute(f"UPDATE sqlite_schema SET sql = {loosened} WHERE type = 'table'")
        db.commit()
    for number in range(FIRST_CASE, FIRST_CASE + CASES_OF_FILES):
        path = tmp_path / "case.db"
        shutil.copy((filled, loose)[number % 4 > 1], path)
        await hold(corrupt_file(path, number), str(path))


def keys_of(db: sqlite3.Connection, table: str) -> list[str]:
    """The conditions that select one row each. A table without row ids has a primary key."""
    ((without_rowid,),) = db.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,))
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]] if without_rowid else ["rowid"]
    values = ", ".join(f"quote({name})" for name in names)
    rows = db.execute(f"SELECT {values} FROM {table}").fetchall()
    return [" AND ".join(f"{table}.{name} = {value}" for name, value in zip(names, row, strict=True)) for row in rows]


def corrupt_file(path: Path, number: int) -> Case:
    chance = random.Random(number)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        named = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        tables = [name for (name,) in named if db.execute(f"SELECT 1 FROM {name}").fetchone()]
        columns = [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
        while True:
            table, column = chance.choice(columns)
            key = chance.choice(keys_of(db, table))
            value = a_value(chance)
            spared = {name for (name,) in db.execute(OWNER[table].format(key=key))} if table in OWNER else set()
            is_text = isinstance(value, bytes)
            setting = f"UPDATE {table} SET {column} = {'CAST(? AS TEXT)' if is_text else '?'} WHERE {key}"
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                (before,) = db.execute(f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {key}").fetchone()
                db.execute(setting, (value,))
                changed = db.execute(f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {column} IS NOT NULL AND {key}")
                if column in ("uid", "id", "run", "number") or (changed.fetchone() or (None,))[0] != before:
                    return Case(number, table, column, key, value, frozenset(spared))


# ---------------------------------------------------------------- PostgreSQL


async def test_one_bad_row_of_a_database_harms_no_other(tmp_path: Path) -> None:
    url = url_of_schema(str(tmp_path))
    await fill(url)
    schema = dict(parse_qsl(url.partition("?")[2]))["schema"]
    db = await asyncpg.connect(url.replace(f"&schema={schema}", "").replace(f"?schema={schema}", ""))
    try:
        await db.execute(f"SET search_path = {schema}")
        found = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename", schema)
        tables = [table for (table,) in found]
        for table in tables:
            await db.execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table}")
        for number in range(FIRST_CASE, FIRST_CASE + CASES_OF_DATABASES):
            await db.execute(f"TRUNCATE {', '.join(tables)}")
            for table in tables:
                await db.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table}")
            await hold(await corrupt_database(db, schema, number), url)
    finally:
        await db.close()


async def corrupt_database(db: Any, schema: str, number: int) -> Case:
    chance = random.Random(number)
    columns = await db.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 2", schema
    )
    while True:
        table, column = chance.choice(columns)
        rows = await db.fetch(f"SELECT ctid::text FROM {table} ORDER BY ctid")
        if not rows:
            continue
        row = chance.choice([place for (place,) in rows])
        value = chance.choice([a_value(chance), "infinity", "-infinity", "0001-01-01 BC"])
        if isinstance(value, bytes) or (isinstance(value, str) and "\0" in value):
            continue  # a database that takes texts as UTF-8 takes no others
        key = f"{table}.ctid = '{row}'"
        spared = {name for (name,) in await db.fetch(OWNER[table].format(key=key))} if table in OWNER else set()
        literal = "NULL" if value is None else "'{}'".format(str(value).replace("'", "''"))
        with suppress(asyncpg.PostgresError):
            is_other = f"{column}::text IS DISTINCT FROM {literal}::text"
            changed = await db.execute(f"UPDATE {table} SET {column} = {literal} WHERE {key} AND {is_other}")
            if changed == "UPDATE 1":
                return Case(number, table, column, key, value, frozenset(spared))
