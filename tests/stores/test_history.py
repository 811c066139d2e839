"""The past costs what is asked for: the plans of its queries, the search by time, and rows that cannot be read."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import Every, JobSpec, PostgresStore, SQLiteStore
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.history import NO_ACTOR, Action
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import plain_record, read_change
from scheduler_async.stores.conditions import IS_DECISION
from scheduler_async.stores.messages import ChangeFilter, Decision, NodeIdentity
from scheduler_async.stores.postgres import base as postgres_base
from scheduler_async.stores.postgres import history as postgres_history
from scheduler_async.stores.postgres import upkeep as postgres_upkeep
from scheduler_async.stores.row_range import CHANGES
from scheduler_async.stores.sqlite.schema import migrate
from scheduler_async.stores.sqlite.work import Work
from scheduler_async.timekeeping.instants import HOUR, to_micros
from tests import cast
from tests.postgres_server import url_of_schema, url_of_server

pytestmark = pytest.mark.once  # the version of Python does not matter

NOON = to_micros(cast.NOON)

# ---------------------------------------------------------------- SQLite


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        db.execute("PRAGMA foreign_keys = ON")
        yield db


@pytest.fixture
def work(db: sqlite3.Connection) -> Work:
    """Three jobs, of which one was removed."""
    work = Work()
    for name in "abc":
        add(work, db, name)
    work.write(db, work.remove, "default", "c", NOON)
    return work


def add(work: Work, db: sqlite3.Connection, name: str) -> None:
    work.write(db, work.change, [adding(name)], NOON)


def adding(name: str) -> Decision:
    job = edits.add(JobSpec(Every("5m"), handler="work"), id=name, handler="work", now=NOON)
    return Decision("default", name, lambda _: Transition(job, kind=EventKind.ADDED))


def trigger(work: Work, db: sqlite3.Connection) -> None:
    node = work.join(db, identity("me"), NOON, NOON)
    work.claim_one(db, "default", "a", None, NOON, node=node, queued=False, by=NO_ACTOR)


OPERATIONS: dict[str, Callable[[Work, sqlite3.Connection], object]] = {
    "changes of a job": lambda work, db: work.list_changes(db, ChangeFilter(namespace="default", id="a", limit=5)),
    "changes of a removed job": lambda work, db: work.list_changes(db, ChangeFilter(namespace="default", id="c")),
    "changes of a namespace": lambda work, db: work.list_changes(db, ChangeFilter(namespace="default", limit=5)),
    "changes since a time": lambda work, db: work.list_changes(db, ChangeFilter(since=NOON, limit=5)),
    "nodes since a time": lambda work, db: work.node_lives(db, NOON, 5, NOON),
    "nodes about a time": lambda work, db: work.lives_about(db, NOON, NOON + HOUR, NOON),
    "the old": lambda work, db: work.purge_history(db, NOON, 5),
    "the ends of pauses": lambda work, db: (work.first_pause_end(db), work.resume_paused(db, NOON, 5)),
    "the removed": lambda work, db: work.purge_removed(db, NOON + HOUR, 5),
    "the ended": lambda work, db: work.purge_disabled(db, NOON, 5, NOON, ended=True),
    "the disabled": lambda work, db: work.purge_disabled(db, NOON, 5, NOON, ended=False),
    "a trigger": trigger,
    "a new job": lambda work, db: add(work, db, "d"),
    "a node that joins": lambda work, db: work.join(db, identity("other"), NOON, NOON),
    "a node that leaves": lambda work, db: work.leave(db, 1, NOON),
}


def identity(name: str) -> NodeIdentity:
    return NodeIdentity(name=name, host="here", pid=7, process_start="1")


LARGE = ("c", "j", "s", "p", "change", "job", "state", "run", "node_span")


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_query_about_the_past_reads_a_whole_table(db: sqlite3.Connection, work: Work, name: str) -> None:
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    OPERATIONS[name](work, db)
    db.set_trace_callback(None)

    steps = [
        (statement, row[3])
        for statement in asked
        if not statement.startswith(("PRAGMA", "BEGIN", "COMMIT", "--"))
        for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]

    reads = [(statement, step.split()) for statement, step in steps if step.startswith(("SCAN", "SEARCH"))]
    assert reads
    # The first rows of a table in its own order are no more than that.
    bounded = re.compile(r"ORDER BY \w*\.?(number|uid)( DESC)? LIMIT|max\(|min\(")
    scans = [(statement, step) for statement, step in reads if step[0] == "SCAN" and step[1] in LARGE]
    assert [step for statement, step in scans if not bounded.search(statement)] == []


async def test_the_newest_changes_of_all_jobs_need_no_sorting(db: sqlite3.Connection, work: Work) -> None:
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    rows = work.list_changes(db, ChangeFilter(limit=2))
    db.set_trace_callback(None)

    plan = [row[3] for statement in asked for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]

    assert [(row.job_id, row.action) for row in rows] == [("c", "remove"), ("c", "add")]
    assert plan == ["SCAN c", "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"]


def trigger_often(work: Work, db: sqlite3.Connection, times: int) -> None:
    """Trigger the job "a" every hour."""
    for number in range(times):
        at = NOON + number * HOUR
        work.write(db, work._write_changes, [plain_record(1, at, Action.TRIGGER, NO_ACTOR)])


def steps(db: sqlite3.Connection, ask: Callable[[], object]) -> int:
    """Return how many tens of instructions a question takes."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    db.set_progress_handler(count, 10)
    ask()
    db.set_progress_handler(None, 10)
    return taken


FEW = {
    "the newest": ChangeFilter(namespace="default", id="a", limit=5),
    "the newest of a namespace": ChangeFilter(namespace="default", limit=5),
    "those since a time": ChangeFilter(namespace="default", id="a", since=NOON + 995 * HOUR),
    "the decisions": ChangeFilter(namespace="default", id="a", decisions_only=True),
}


@pytest.mark.parametrize("name", FEW)
def test_a_chain_is_followed_no_further_than_needed(db: sqlite3.Connection, work: Work, name: str) -> None:
    """A job may have been triggered a hundred thousand times."""
    trigger_often(work, db, 1_000)

    taken = steps(db, lambda: work.list_changes(db, FEW[name]))

    assert taken < 200, "a thousand links take more than 1,000"


def test_the_payload_of_a_run_does_not_need_all_triggers(db: sqlite3.Connection, work: Work) -> None:
    trigger(work, db)
    trigger_often(work, db, 1_000)

    assert steps(db, lambda: work.details_of(db, 1)) < 100


def test_the_last_number_is_not_given_again(db: sqlite3.Connection, work: Work) -> None:
    """Otherwise, a job whose changes are gone would show those of another one."""
    work.purge_history(db, NOON + HOUR, 100)
    work._last_change = None

    add(work, db, "d")

    assert [row.job_id for row in work.list_changes(db, ChangeFilter(namespace="default", id="a"))] == []


def test_a_broken_chain_ends_and_harms_no_other_job(db: sqlite3.Connection, work: Work) -> None:
    """A chain that led back to itself would never end."""
    db.execute("UPDATE change SET previous = number WHERE uid = 3")
    db.execute("UPDATE job SET last_change = 99 WHERE id = 'b'")

    def told(name: str) -> list[str]:
        return [str(row.action) for row in work.list_changes(db, ChangeFilter(namespace="default", id=name))]

    assert (told("a"), told("b"), told("c")) == (["add"], [], ["remove"])


def test_an_absurd_number_does_not_break_the_order(db: sqlite3.Connection, work: Work) -> None:
    db.execute("UPDATE change SET number = ? WHERE number = 1", (2**63 - 1,))
    work._last_change = None

    work.write(db, work.remove, "default", "b", NOON)

    assert db.execute("SELECT max(number) FROM change WHERE action = 'remove'").fetchone() == (5,)


def test_removed_jobs_take_their_changes_along(db: sqlite3.Connection, work: Work) -> None:
    assert work.write(db, work.purge_removed, NOON + HOUR, 10) == 1

    assert db.execute("SELECT DISTINCT uid FROM change ORDER BY uid").fetchall() == [(1,), (2,)]


async def test_another_process_does_not_give_a_number_twice(tmp_path: Path) -> None:
    """Each remembers the last number that it gave."""
    one, other = SQLiteStore(tmp_path / "jobs.db"), SQLiteStore(tmp_path / "jobs.db")
    await one.open()
    await other.open()
    for place, store in enumerate((one, other, one, other)):
        await store.change([adding(str(place))], NOON)

    rows = await one.list_changes(ChangeFilter())
    await one.close()
    await other.close()

    assert [row.number for row in rows] == [4, 3, 2, 1]


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Any]:
    """Somebody at a database with the tables of a store."""
    store = PostgresStore(url_of_schema(str(tmp_path)))
    await store.open()
    await store.close()
    connection = await asyncpg.connect(url_of_server(), server_settings={"search_path": store.schema})
    yield connection
    await connection.close()


QUERIES = {
    "changes of jobs": (
        f"{postgres_history.SELECT_CHANGES} WHERE c.uid = ANY($1::bigint[]) ORDER BY c.number DESC LIMIT $2",
        ("'{1}'", "5"),
    ),
    "decisions of a job": (
        f"{postgres_history.SELECT_CHANGES} WHERE c.uid = ANY($1) AND {IS_DECISION} ORDER BY c.number DESC LIMIT $2",
        ("'{1}'", "5"),
    ),
    "changes since a time": (
        f"{postgres_history.SELECT_CHANGES} WHERE c.number >= $1 ORDER BY c.number DESC LIMIT $2",
        ("1", "5"),
    ),
    "the time of a change": (postgres_base.TIMES_FROM.format(CHANGES), ("ARRAY[1, 2]",)),
    "jobs of a namespace": (postgres_history.JOBS_OF, ("'default'", "5")),
    "nodes that run": (postgres_history.RUNNING, ("5",)),
    "nodes since a time": (postgres_history.ENDED, ("5", "1")),
    "nodes about a time": (postgres_history.LIVES_ABOUT, ("1", "2")),
    "end of a pause": (postgres_upkeep.FIRST_PAUSE_END, ()),
    "old changes": (postgres_history.PURGE_CHANGES, ("1", "5")),
    "old nodes": (postgres_history.PURGE_LIVES, ("1", "5")),
    "the ended": (postgres_upkeep.LOCK_LONG_DISABLED, ("1", "5", "'{}'", "1")),
    "the disabled": (postgres_upkeep.LOCK_LONG_DISABLED, ("1", "5", "'{}'", "0")),
}


@pytest.mark.once
@pytest.mark.parametrize("name", QUERIES)
async def test_no_query_of_a_database_reads_a_whole_table(admin: Any, name: str) -> None:
    """Even if the statistics of the tables are outdated."""
    statement, values = QUERIES[name]
    for setting in ("enable_seqscan = off", "plan_cache_mode = force_custom_plan"):
        await admin.execute(f"SET {setting}")
    await admin.execute(f"PREPARE asking AS {statement}")

    given = f"({', '.join(values)})" if values else ""
    plan = "\n".join(line for (line,) in await admin.fetch(f"EXPLAIN EXECUTE asking {given}"))

    assert "Seq Scan" not in plan
    if name.startswith("the ") and "time" not in name:
        assert re.search(r"state_disabled.*\n +Index Cond: .*disabled_reason.*disabled_at < ", plan), plan


# ---------------------------------------------------------------- rows that cannot be read

SOUND = (7, "default", "a", NOON, "edit", "anna", "cli", None, '{"name": null}', '{"name": "x"}')


def test_a_sound_row_is_read() -> None:
    row, problem = read_change(SOUND)

    assert problem is None
    assert (row.action, row.actor, row.before, row.after) == (Action.EDIT, "anna", {"name": None}, {"name": "x"})


@pytest.mark.parametrize(
    ("place", "value", "column"),
    [
        pytest.param(3, 2**63 - 1, "at", id="a time that does not exist"),
        pytest.param(4, "mend", "action", id="an unknown action"),
        pytest.param(5, 17, "actor", id="an actor that is a number"),
        pytest.param(8, "[]", "before", id="a list"),
        pytest.param(9, "{", "after", id="half an object"),
        pytest.param(9, "[" * 100_000, "after", id="too deep"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_as_far_as_possible(place: int, value: object, column: str) -> None:
    row, problem = read_change([*SOUND[:place], value, *SOUND[place + 1 :]])

    assert problem is not None
    assert problem.column == column
    assert str(row.reason).startswith("This row cannot be read from the store: ")
    assert (row.number, row.job_id) == (7, "a")
    assert column == "before" or row.before == {"name": None}
    assert row.to_json()
