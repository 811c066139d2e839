"""What a page costs does not depend on the number of rows: by the steps of SQLite and the plans of PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import Outcome, PostgresStore, Trigger
from scheduler_async.stores.paging import jobs as paging_jobs
from scheduler_async.stores.paging import log as paging_log
from scheduler_async.stores.paging import numbers as paging_numbers
from scheduler_async.stores.paging import questions as paging_questions
from scheduler_async.stores.paging.questions import Question, Search
from scheduler_async.stores.postgres import pages as postgres_pages
from scheduler_async.stores.searches import ChangeSearch, JobSearch, RunSearch, TallySearch
from scheduler_async.stores.sqlite.pages import DIALECT, PageWork, answered
from scheduler_async.stores.sqlite.schema import migrate
from scheduler_async.stores.sqlite.work import Work
from scheduler_async.timekeeping.instants import DAY, HOUR, to_micros
from tests.cast import NOON
from tests.postgres_server import url_of_schema, url_of_server

NOW = to_micros(NOON)
LARGE, SMALL = frozenset({"default"}), frozenset({"tenant-7"})

SEARCHES: dict[str, Callable[[Any], Search[Any]]] = {
    "jobs by next run": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, limit=20), dialect),
    "jobs by next run, further on": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, after=(1, NOW + HOUR // 10, 50), limit=20), dialect
    ),
    "jobs without a next run": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, after=(2, 0, 50), limit=20), dialect
    ),
    "jobs by name": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, by_name=True, limit=20), dialect),
    "late jobs": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, status="late", limit=20), dialect),
    "disabled jobs": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, status="disabled", limit=20), dialect),
    "failing jobs": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, status="failing", limit=20), dialect),
    "jobs of a handler": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, handler="handler-3", limit=20), dialect
    ),
    "a text": lambda dialect: paging_jobs.find_jobs(JobSearch(now=NOW, text="job-1", limit=20), dialect),
    "a text that is nowhere": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, text="xyzzy", limit=20), dialect
    ),
    "jobs of a large tenant": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, namespaces=LARGE, limit=20), dialect
    ),
    "jobs with some names": lambda dialect: paging_jobs.find_jobs(
        JobSearch(now=NOW, by_name=True, ids=frozenset({"job-2", "job-7"}), namespaces=LARGE | SMALL, limit=20), dialect
    ),
    "runs": lambda dialect: paging_log.find_runs(RunSearch(limit=20), dialect),
    "failed runs": lambda dialect: paging_log.find_runs(RunSearch(outcome=Outcome.ERROR, limit=20), dialect),
    "runs that are nowhere": lambda dialect: paging_log.find_runs(RunSearch(trigger=Trigger.MANUAL, limit=20), dialect),
    "runs of an hour": lambda dialect: paging_log.find_runs(RunSearch(since=NOW - HOUR, until=NOW, limit=20), dialect),
    "runs of a tenant": lambda dialect: paging_log.find_runs(RunSearch(namespaces=LARGE, limit=20), dialect),
    "changes": lambda dialect: paging_log.find_changes(ChangeSearch(limit=20), dialect),
    "changes of a tenant": lambda dialect: paging_log.find_changes(ChangeSearch(namespaces=LARGE, limit=20), dialect),
    "recent runs": lambda dialect: paging_log.recent_runs([("default", "job-2"), ("default", "job-4")], 5, dialect),
    "counts": lambda dialect: paging_numbers.count_jobs(None, NOW, dialect),
    "counts of a tenant": lambda dialect: paging_numbers.count_jobs(LARGE, NOW, dialect),
    "tally": lambda dialect: paging_numbers.read_tally(
        TallySearch(since=NOW - HOUR, until=NOW, namespaces=SMALL, limit=20)
    ),
    "tally, further on": lambda dialect: paging_numbers.read_tally(
        TallySearch(since=0, until=NOW, after=(NOW - HOUR, "tenant-3", "success", "n"), limit=20)
    ),
    "mark": lambda dialect: paging_numbers.find_mark(None, NOW, dialect),
    "mark of a tenant": lambda dialect: paging_numbers.find_mark(LARGE, NOW, dialect),
    "sample": lambda dialect: paging_numbers.sample_jobs(None, NOW, 50, dialect),
}


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests are large."""
    for module in (paging_jobs, paging_log):
        monkeypatch.setattr(module, "FEW_JOBS", 50)
    monkeypatch.setattr(paging_jobs, "MOST_NAMES", 500)
    monkeypatch.setattr(paging_jobs, "MOST_NAMESPACES", 50)
    monkeypatch.setattr(paging_questions.chosen, "__defaults__", (500,))
    monkeypatch.setattr(paging_numbers, "MOST_COUNTED", 200)
    monkeypatch.setattr(paging_numbers, "MOST_WEIGHED", 200)
    monkeypatch.setattr(paging_numbers, "MOST_NEWEST", 50)


# ---------------------------------------------------------------- SQLite

FILL = (
    "INSERT INTO handler (name) SELECT 'handler-' || i FROM n WHERE i < 5",
    """
    INSERT INTO job (uid, revision, namespace, id, handler, schedule, payload, metadata, name, priority, misfire,
                     on_interrupt, anchor, created_at, updated_at, last_change)
    SELECT i + 1, 1, CASE WHEN i % 2 THEN 'tenant-' || (i % 20) ELSE 'default' END, 'job-' || i, 'handler-' || (i % 5),
           '{}', '{}', '{}', CASE WHEN i % 10 = 0 THEN 'title' END, 'standard', 'run_once', 'rerun', 0, 0, 0, i + 1
      FROM n
    """,
    f"""
    INSERT INTO state (uid, revision, handler, rank, id, phase, activity, next_run_at, attempts, consecutive_errors,
                       retry_count, last_error_at)
    SELECT i + 1, 1, 1 + i % 5, 1, 'job-' || i, CASE WHEN i % 5 = 1 THEN 'disabled' ELSE 'active' END, 'idle',
           CASE WHEN i % 5 = 1 OR i % 7 = 0 THEN NULL ELSE {NOW} + (i % 100 - 30) * 60000000 END, 0, i % 4 = 0, 0, i
      FROM n
    """,
    f"""
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, finished_at, outcome, node)
    SELECT i + 1, 1 + i % 1000, {NOW} - i, 1, 'schedule', {NOW} - {DAY} + i * 1000, 0, {NOW},
           CASE WHEN i % 50 = 0 THEN 'error' ELSE 'success' END, 'n'
      FROM n
    """,
    "INSERT INTO change (number, uid, at, action) SELECT i + 1, i + 1, 0, 'add' FROM n",
    f"""
    INSERT INTO tally SELECT DISTINCT {NOW} - (i / 10) * {HOUR}, 'tenant-' || (i % 20), 'success', 'n', 1 FROM n
    """,
)


def filled(path: Path, count: int) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    migrate(db)
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1})"
    for statement in FILL:
        db.execute(f"{numbers} {statement}" if "INSERT" not in statement else _with(numbers, statement))
    return db


def _with(numbers: str, statement: str) -> str:
    """SQLite takes the table of numbers before the word INSERT."""
    return f"{numbers} {statement.strip()}"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    directory = tmp_path_factory.mktemp("plans")
    with (
        closing(filled(directory / "small.db", 2_000)) as small,
        closing(filled(directory / "large.db", 20_000)) as large,
    ):
        yield small, large


def steps_of(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """How many steps SQLite takes, in tens."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(step, 10)
    work(db)
    db.set_progress_handler(None, 0)
    return steps


@pytest.mark.parametrize("name", SEARCHES)
def test_sqlite_takes_the_same_steps_at_ten_times_the_rows(
    stores: tuple[sqlite3.Connection, sqlite3.Connection], name: str
) -> None:
    small, large = (steps_of(db, lambda db: answered(db, SEARCHES[name](DIALECT))) for db in stores)

    assert large <= small * 1.25 + 200, (small, large)


def test_the_rows_of_a_page_are_read_by_their_numbers(stores: tuple[sqlite3.Connection, sqlite3.Connection]) -> None:
    work: PageWork = Work()

    small, large = (steps_of(db, lambda db: work.runs_page(db, RunSearch(limit=20))) for db in stores)

    assert large <= small * 1.25 + 200


# ---------------------------------------------------------------- PostgreSQL

LARGE_TABLES = ("run", "job", "state", "change", "tally", "unusual")


@pytest.fixture
async def explaining(tmp_path: Path) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the settings of pages, to a store that has rows."""
    store = PostgresStore(url_of_schema(str(tmp_path)))
    await store.open()
    await store.close()
    db = await asyncpg.connect(url_of_server(), server_settings={"search_path": store.schema})
    await db.execute("INSERT INTO handler (name) VALUES ('handler-3')")
    for name, value in postgres_pages.PAGE_PLANS.items():
        if name != "default_transaction_read_only":
            await db.execute(f"SET {name} TO '{value}'")
    yield db
    await db.close()


@pytest.mark.once
@pytest.mark.parametrize("name", SEARCHES)
async def test_postgresql_reads_no_large_table_from_end_to_end(explaining: asyncpg.Connection, name: str) -> None:
    search = SEARCHES[name](postgres_pages.DIALECT)
    question: Question | None = next(search)
    while question is not None:
        text = postgres_pages.in_postgres(question.text)
        plan = [line for (line,) in await explaining.fetch(f"EXPLAIN {text}", *question.values)]
        for table in LARGE_TABLES:
            assert not any(f"Seq Scan on {table} " in f"{line} " for line in plan), "\n".join([text, *plan])
        rows = await explaining.fetch(text, *question.values)
        try:
            question = search.send(rows)
        except StopIteration:
            question = None


@pytest.mark.once
async def test_postgresql_looks_up_each_name_in_a_large_namespace(explaining: asyncpg.Connection) -> None:
    """Half of the jobs share a namespace. By its statistics, each of 1,000 namespaces has a few of them."""
    await explaining.execute(
        """
        INSERT INTO job (uid, namespace, id, handler, schedule, payload, metadata, priority, misfire, on_interrupt,
                         anchor, created_at, updated_at, revision)
        SELECT i, CASE WHEN i % 2 = 0 THEN 'default' ELSE 'tenant-' || i % 1000 END, 'job-' || i, 'x', '{}', '{}', '{}',
               'standard', 'run_once', 'rerun', 0, 0, 0, 1
          FROM generate_series(1, 10000) AS i
        """
    )
    await explaining.execute("VACUUM ANALYZE job")
    names = [["default", *(f"tenant-{number}" for number in range(1, 30, 2))], [f"job-{n}" for n in range(60)]]

    rows = await explaining.fetch(f"EXPLAIN {postgres_pages.in_postgres(paging_jobs.NAMED)}", *names)

    assert any("Index Cond" in line and "(id = " in line for (line,) in rows), rows


def test_recent_runs_of_many_jobs_take_few_questions() -> None:
    """Each question is a way to the server and back: a page of 50 jobs took 100 of them."""
    names = [("default", f"job-{number}") for number in range(50)]
    search = paging_log.recent_runs(names, 5, postgres_pages.DIALECT)

    questions = [next(search)]
    with suppress(StopIteration):
        while True:
            questions.append(search.send([]))

    assert len(questions) == 3  # the jobs by their names, the removed ones, and the runs of all of them
