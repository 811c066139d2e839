"""The run log of every store: rows by job, by namespace and by time, and what one run left."""

# ruff: noqa: A001 - id is the public name of an id

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_async import Every, JobSpec, MemoryStore, Outcome, PostgresStore, Retry, SQLiteStore, Store, Trigger
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import ClaimedRun, EndedRun, Ending
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores import row_range
from scheduler_async.stores.conditions import IS_UNUSUAL
from scheduler_async.stores.copying import Copy
from scheduler_async.stores.memory import run_log as memory_log
from scheduler_async.stores.messages import ClaimTerms, Decision, RunDetails, RunFilter
from scheduler_async.stores.postgres import base as postgres_base
from scheduler_async.stores.postgres import run_log as postgres_log
from scheduler_async.stores.sqlite import base as sqlite_base
from scheduler_async.stores.sqlite import run_log as sqlite_log
from scheduler_async.timekeeping.instants import MINUTE, SECOND, Micros
from tests.stores.test_conformance import NOON, STORES, identity, store_at
from tests.stores.test_sqlite import assert_frugal

pytestmark = pytest.mark.once  # the version of Python does not matter

RULES = Rules()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = store_at(request.param, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def node(store: Store) -> int:
    return await store.join(identity("first"), NOON)


async def add(store: Store, id: str, namespace: str = "default", **fields: Any) -> None:
    spec = JobSpec(Every("1m", immediately=True), handler="h", id=id, namespace=namespace, **fields)
    job = edits.add(spec, id=id, handler="h", now=NOON)
    await store.change([Decision(namespace, id, lambda _: Transition(job, kind=EventKind.ADDED))], NOON)


async def run_due(store: Store, node: int, now: Micros, ending: Ending) -> list[int]:
    """Run what is due, and return the ids of the runs."""
    terms = ClaimTerms(node=node, limit=100, slots=None, handlers=None, rules=RULES)
    runs = (await store.claim_due(now, terms)).runs
    await store.finish([EndedRun(run, ending, now, now + 1) for run in runs], RULES)
    return [run.id for run in runs]


async def told(store: Store, **wanted: Any) -> list[int]:
    return [row.id for row in await store.list_runs(RunFilter(**wanted))]


SUCCESS = Ending(outcome=Outcome.SUCCESS)


@pytest.fixture
async def minutes(store: Store, node: int) -> list[list[int]]:
    """The runs of three jobs, in two namespaces, in each of five minutes."""
    for id, namespace in (("a", "default"), ("b", "default"), ("a", "tenant")):
        await add(store, id, namespace)
    failed = Ending(outcome=Outcome.ERROR, error="no")
    endings = [SUCCESS, failed, SUCCESS, failed, SUCCESS]
    return [await run_due(store, node, NOON + number * MINUTE, ending) for number, ending in enumerate(endings)]


async def test_rows_of_a_stretch_include_both_ends(store: Store, minutes: list[list[int]]) -> None:
    for named in ({}, {"namespace": "default"}, {"namespace": "default", "id": "a"}):
        everything = await told(store, **named)
        inside = await told(store, since=NOON + MINUTE, until=NOON + 3 * MINUTE, **named)

        assert inside == [run for run in everything if run in chain(*minutes[1:4])]
        assert await told(store, since=NOON + 4 * MINUTE, **named) == [run for run in everything if run in minutes[4]]
        assert await told(store, until=NOON, **named) == [run for run in everything if run in minutes[0]]
        assert await told(store, since=NOON + 5 * MINUTE, **named) == []
        assert await told(store, until=NOON - 1, **named) == []


async def test_many_rows_are_found_through_some(
    store: Store, minutes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ranges so narrow that they must be searched for."""
    monkeypatch.setattr(row_range, "NARROW", 1)
    for module in (memory_log, sqlite_log, postgres_log):
        monkeypatch.setattr(module, "RUNS", row_range.RUNS._replace(disorder=0))

    for first in range(5):
        for last in range(first, 5):
            found = await told(store, since=NOON + first * MINUTE, until=NOON + last * MINUTE)
            assert found == sorted(chain(*minutes[first : last + 1]), reverse=True)


CROWDED = [
    {"limit": 3},
    {"limit": 3, "outcome": Outcome.ERROR},
    {"limit": 9, "since": NOON + MINUTE, "until": NOON + 3 * MINUTE},
    {"limit": 2, "before": 6},
]


@pytest.mark.parametrize("wanted", CROWDED)
async def test_a_namespace_with_many_jobs_has_the_same_rows(
    store: Store, minutes: list[list[int]], monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    """They are found among the newest rows of all jobs."""
    expected = {name: await told(store, namespace=name, **wanted) for name in ("default", "tenant", "none")}
    for module in (memory_log, sqlite_log, postgres_log):
        monkeypatch.setattr(module, "FEW_JOBS", 0)

    assert {name: await told(store, namespace=name, **wanted) for name in expected} == expected


async def test_a_namespace_with_many_jobs_needs_no_sorting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read the newest rows of 5,000 jobs in order to return 50 took 70 ms."""
    monkeypatch.setattr(sqlite_log, "FEW_JOBS", 0)
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.open()
    await add(store, "a")

    text, values = await store._read(lambda db: store._work._query(db, RunFilter(namespace="default", limit=5)))
    plan = await store._read(lambda db: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)])
    await store.close()

    assert plan == ["SCAN r", "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"]


async def test_an_empty_log_has_no_rows_of_any_time(store: Store) -> None:
    assert await told(store, since=NOON, until=NOON + MINUTE) == []


async def test_pages_follow_each_other(store: Store, minutes: list[list[int]]) -> None:
    for named in ({}, {"namespace": "default"}, {"namespace": "default", "id": "a"}):
        everything = await told(store, **named)
        pages: list[int] = []
        while page := await told(store, before=pages[-1] if pages else None, limit=2, **named):
            pages += page

        assert pages == everything


async def test_outcomes_and_triggers_are_conditions(store: Store, node: int, minutes: list[list[int]]) -> None:
    by_hand = await store.claim_one("default", "a", None, NOON + 9 * MINUTE, node=node, queued=False)

    assert isinstance(by_hand, ClaimedRun)
    assert await told(store, trigger=Trigger.MANUAL) == [by_hand.id]
    failed = await told(store, namespace="tenant", outcome=Outcome.ERROR, trigger=Trigger.SCHEDULE)
    assert failed == [run for run in await told(store, namespace="tenant") if run in minutes[1] + minutes[3]]


async def test_a_namespace_has_its_own_rows_also_of_removed_jobs(store: Store, minutes: list[list[int]]) -> None:
    of_tenant = await told(store, namespace="tenant")
    await store.remove("tenant", "a", NOON + 9 * MINUTE)

    assert (await told(store, namespace="tenant"))[1:] == of_tenant, "after what it owed when it was removed"
    assert {row.namespace for row in await store.list_runs(RunFilter(namespace="tenant"))} == {"tenant"}
    assert len(of_tenant) == 5
    assert await told(store, namespace="nobody") == []


async def test_a_limit_counts_the_newest_rows_of_all_jobs(store: Store, minutes: list[list[int]]) -> None:
    everything = await told(store, namespace="default")

    for limit in (0, 1, 3, 100):
        assert await told(store, namespace="default", limit=limit) == everything[:limit]


# ---------------------------------------------------------------- what one run left


async def write(store: Store, statement: str, *values: object) -> None:
    """Write to the tables, as another part of the program would."""
    if isinstance(store, PostgresStore):
        numbered = statement
        for number in range(len(values)):
            numbered = numbered.replace("?", f"${number + 1}", 1)

        async def work(db: Any) -> None:
            await db.execute(numbered, *values)

        await store._transact(store._edits, work)
    else:
        assert isinstance(store, SQLiteStore)
        await store._write(lambda db: db.execute(statement, values).rowcount)


async def record_edit(store: Store, at: Micros, before: object) -> None:
    (row,) = await store.list_runs(RunFilter(limit=1))
    job = await store.get(row.namespace, row.job_id)
    assert job is not None
    values = job.uid, at, None if before is None else json.dumps(before)
    if isinstance(store, MemoryStore):
        store._work._write_changes([(job.uid, at, "edit", None, None, None, values[-1], None)])
    elif isinstance(store, PostgresStore):
        await write(store, "INSERT INTO change (uid, at, action, before) VALUES (?, ?, 'edit', ?)", *values)
    else:
        last = f"(SELECT last_change FROM job WHERE uid = {job.uid})"
        columns = "uid, at, action, before, previous, decision"
        await write(store, f"INSERT INTO change ({columns}) VALUES (?, ?, 'edit', ?, {last}, {last})", *values)
        await write(store, "UPDATE job SET last_change = (SELECT max(number) FROM change) WHERE uid = ?", job.uid)


@pytest.mark.parametrize(
    ("changes", "payload"),
    [
        pytest.param([], "now", id="never edited"),
        pytest.param([(-1, {"payload": "earlier"})], "now", id="edited before"),
        pytest.param([(1, {"payload": {"to": "then"}})], {"to": "then"}, id="edited since"),
        pytest.param([(0, {"payload": "then"})], "then", id="edited during the run, at the same moment"),
        pytest.param(
            [(1, {"name": "x"}), (2, None), (3, {"payload": None}), (4, {"payload": 2})], None, id="the first"
        ),
        pytest.param([(1, {"name": '"payload"'}), (2, [1])], "now", id="edits of something else"),
    ],
)
async def test_the_payload_of_a_run_is_that_of_its_time(
    store: Store, node: int, changes: Sequence[tuple[Micros, object]], payload: object
) -> None:
    await add(store, "a", payload="now")
    (run,) = await run_due(store, node, NOON, SUCCESS)
    for wait, before in changes:
        await record_edit(store, NOON + wait, before)

    assert await store.details_of(run) == RunDetails(None, payload)


async def test_a_run_that_was_given_a_payload_keeps_it(store: Store, node: int) -> None:
    await add(store, "a", payload="of the job")
    run = await store.claim_one("default", "a", '{"to":"\\u0000 \uffff"}', NOON, node=node, queued=True)
    await record_edit(store, NOON + 1, {"payload": "of the job"})

    assert isinstance(run, ClaimedRun)
    assert (await store.details_of(run.id)).payload == {"to": "\0 \uffff"}


async def test_a_run_has_its_traceback(store: Store, node: int) -> None:
    await add(store, "a")
    (run,) = await run_due(store, node, NOON, replace(SUCCESS, outcome=Outcome.ERROR, traceback="Traceback: \0"))

    assert await store.details_of(run) == RunDetails("Traceback: \0", None)
    assert await store.details_of(run + 1) == RunDetails()


async def test_damaged_details_are_left_out(store: Store, node: int) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("it has no rows that could be damaged")
    await add(store, "a", payload="now")
    (run,) = await run_due(store, node, NOON, SUCCESS)
    await write(store, "UPDATE run SET payload = ? WHERE id = ?", "{", run)

    assert await store.details_of(run) == RunDetails()


# ---------------------------------------------------------------- no query reads a whole table

FILTERS = {
    "of a job": RunFilter(namespace="default", id="a", since=NOON, until=NOON, before=9, limit=5),
    "of a removed job": RunFilter(namespace="default", id="gone", limit=5),
    "of a namespace": RunFilter(namespace="default", outcome=Outcome.ERROR, trigger=Trigger.RETRY, limit=5),
    "of a time in a namespace": RunFilter(namespace="default", since=NOON, until=NOON, before=9, limit=5),
    "of a time": RunFilter(since=NOON, until=NOON, outcome=Outcome.ERROR, limit=5),
    "of a page": RunFilter(before=9, limit=5),
    "failures of all jobs": RunFilter(outcome=Outcome.ERROR, before=9, limit=5),
    "successes of all jobs": RunFilter(outcome=Outcome.SUCCESS, limit=5),
    "retries of all jobs": RunFilter(trigger=Trigger.RETRY, limit=5),
    "one run": RunFilter(run=1),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_a_file_reads_no_more_than_it_returns(tmp_path: Path, name: str) -> None:
    path = tmp_path / "jobs.db"
    store = SQLiteStore(path)
    await store.open()
    await add(store, "a")
    await run_due(store, await store.join(identity("first"), NOON), NOON, SUCCESS)

    def query(db: sqlite3.Connection) -> tuple[str, list[object]]:
        return store._work._query(db, FILTERS[name])

    text, values = await store._read(query)
    await store.close()

    assert_frugal(path, text, values)


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (sqlite_base.FIRST_AND_LAST.format(row_range.RUNS), ()),
        (sqlite_base.TIMES_FROM.format(row_range.RUNS), ("[1, 2]",)),
        (sqlite_log.SELECT_DETAILS, (1,)),
        (sqlite_log.EDITS_SINCE, {"uid": 1, "since": NOON}),
    ],
    ids=["all", "times", "details", "edits"],
)
async def test_a_file_looks_up_details_by_their_keys(tmp_path: Path, query: str, values: Any) -> None:
    path = tmp_path / "jobs.db"
    store = SQLiteStore(path)
    await store.open()
    await store.close()

    with closing(sqlite3.connect(path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    whole = [
        step
        for step in plan
        if step.startswith("SCAN") and step not in ("SCAN CONSTANT ROW", "SCAN p VIRTUAL TABLE INDEX 1:", "SCAN chain")
    ]
    assert whole == []


@pytest.mark.once
@pytest.mark.parametrize("name", [*FILTERS, "times", "details", "edits"])
async def test_a_server_reads_no_more_than_it_returns(tmp_path: Path, name: str) -> None:
    """Also if it takes the tables for large ones."""
    store = store_at("postgres", tmp_path)
    assert isinstance(store, PostgresStore)
    await store.open()

    async def plan(db: Any) -> str:
        await db.execute("SET LOCAL enable_seqscan = off")
        await db.execute(
            "INSERT INTO run (uid, scheduled_for, attempt, claimed_at, trigger, outcome)"
            " SELECT n % 100, n, 1, n, 'schedule', 'success' FROM generate_series(1, 20000) AS n"
        )
        await db.execute("ANALYZE run")
        others: dict[str, tuple[str, list[Any]]] = {
            "times": (postgres_base.TIMES_FROM.format(row_range.RUNS), [[1, 2]]),
            "details": (postgres_log.SELECT_DETAILS, [1]),
            "edits": (postgres_log.EDITS_SINCE, [1, NOON]),
        }
        query, values = others[name] if name in others else await store._work._query(db, FILTERS[name])
        return "\n".join(line for (line,) in await db.fetch(f"EXPLAIN {query}", *values))

    found = await store._transact(store._edits, plan)
    await store.close()

    lines = [line for line in found.splitlines() if "Scan" in line]
    assert lines
    assert not [line for line in lines if "Seq Scan" in line]
    if name.startswith("of a job") or "namespace" in name:
        assert not [line for line in lines if "run_pkey" in line], found  # the rows of all jobs, in order


FAILURE = Ending(outcome=Outcome.ERROR, error="no")
RARE = [RunFilter(outcome=Outcome.NOOP, limit=5), RunFilter(trigger=Trigger.RETRY, limit=5)]


@pytest.mark.parametrize("wanted", RARE, ids=["outcome", "trigger"])
async def test_what_is_rare_is_looked_for_among_the_newest_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch, wanted: RunFilter
) -> None:
    """A search for something that hardly ever happened must not read millions of rows."""
    node = await store.join(identity("first"), NOON)
    await add(store, "a", retry=Retry.in_window(1))
    await run_due(store, node, NOON, FAILURE)
    await run_due(store, node, NOON + SECOND, Ending(outcome=Outcome.NOOP))
    for minute in range(1, 6):
        await run_due(store, node, NOON + minute * MINUTE, SUCCESS)
    found = await store.list_runs(wanted)
    for module in (memory_log, sqlite_log, postgres_log):
        monkeypatch.setattr(module, "LOOK_BACK", 4)

    assert [row.attempt for row in found] == [2]
    assert await store.list_runs(wanted) == []
    assert await store.list_runs(replace(wanted, before=found[0].id + 2)) == found
    assert await store.list_runs(replace(wanted, since=NOON)) == found
    assert await store.list_runs(replace(wanted, limit=None)) == found


async def test_failures_are_found_however_long_ago_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, which has an index of them. No success is written to it."""
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.open()
    node = await store.join(identity("first"), NOON)
    await add(store, "a", retry=Retry.none())
    await run_due(store, node, NOON, FAILURE)
    for minute in range(1, 6):
        await run_due(store, node, NOON + minute * MINUTE, SUCCESS)
    monkeypatch.setattr(sqlite_log, "LOOK_BACK", 2)

    found = await store.list_runs(RunFilter(outcome=Outcome.ERROR, limit=5))
    counting = f"SELECT count(*) FROM run r INDEXED BY run_unusual WHERE {IS_UNUSUAL}"
    indexed = await store._read(lambda db: db.execute(counting).fetchone())
    await store.close()

    assert [row.outcome for row in found] == [Outcome.ERROR]
    assert indexed == (1,)


async def test_a_copy_keeps_the_cursor(store: Store, tmp_path: Path) -> None:
    await add(store, "a")
    job = await store.get("default", "a")
    assert job is not None
    state = replace(job.state, cursor='{"done":3}')
    decision = Decision("default", "a", lambda _: Transition(job.with_state(state), kind=EventKind.UPDATED))
    await store.change([decision], NOON)
    target = SQLiteStore(tmp_path / "copy.db")
    await target.open()

    async for _ in Copy(store, target).slices():
        pass
    copied = await target.get("default", "a")
    await target.close()

    assert copied is not None
    assert copied.cursor == {"done": 3}
