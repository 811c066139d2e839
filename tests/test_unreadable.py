"""Rows that cannot be read: left alone, named once, shown where they would be listed; and all others go on."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import pytest

from scheduler_async import (
    Every,
    Job,
    Manual,
    Outcome,
    Scheduler,
    SchedulerError,
    SQLiteStore,
    Status,
    StoreError,
    Trigger,
)
from scheduler_async.instants import HOUR
from scheduler_async.lifecycle import Rules
from scheduler_async.testing import VirtualClock
from scheduler_async.unreadable import MOST_NAMED, Unreadable, UnreadableRows
from tests.cast import NewScheduler, Worker, job_of
from tests.test_stores import NOON as MOMENT
from tests.test_stores import add, claim, identity

# ---------------------------------------------------------------- named once


def test_a_row_is_named_once_with_its_table_its_number_its_column_and_why(caplog: pytest.LogCaptureFixture) -> None:
    rows = UnreadableRows()
    for _ in range(3):
        rows.add("state", 7, Unreadable("attempts", "-5 is not a number from 0 up"))
        rows.tell()

    (record,) = caplog.records
    assert record.getMessage() == (
        'Cannot read row 7 of table "state": column "attempts": -5 is not a number from 0 up. The row is left as it is'
    )
    assert record.levelname == "WARNING"


def test_a_store_that_is_damaged_throughout_takes_no_memory_without_end(caplog: pytest.LogCaptureFixture) -> None:
    rows = UnreadableRows()
    for number in range(2 * MOST_NAMED):
        rows.add("run", number, Unreadable("trigger", "no"))
    rows.tell()

    assert len(caplog.records) == MOST_NAMED + 2
    assert caplog.records[-1].getMessage() == "More than 1000 rows of the store cannot be read; no more are named"
    assert len(rows._known) == MOST_NAMED + 1


# ---------------------------------------------------------------- on every store


async def sql(store: str, statement: str) -> list[Any]:
    """What *statement* answers, asked by somebody else."""
    if not store.startswith("postgresql"):
        with closing(sqlite3.connect(store, isolation_level=None)) as db:
            return db.execute(statement).fetchall()
    url, _, query = store.partition("?")
    options = dict(parse_qsl(query))
    schema = options.pop("schema")
    connection = await asyncpg.connect(f"{url}?host={options['host']}" if "host" in options else url)
    try:
        await connection.execute(f"SET search_path = {schema}")
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.fixture
async def made(shared: str, new_scheduler: NewScheduler) -> str:
    """A store with the jobs a, b and c, which are due, and a run of d, which is manual."""
    scheduler = new_scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="d")
    await scheduler.wait_for_run(await scheduler.trigger_job("d"))
    for name, priority in (("a", "standard"), ("b", "high"), ("c", "low")):
        schedule = Every("1m", immediately=True)
        await scheduler.add_job(schedule, handler="work", id=name, priority=priority, payload={"for": name})
    await scheduler.stop()
    return shared


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "Cannot read row" in record.getMessage()]


RUN_COLUMNS = [
    pytest.param("trigger", "'whim'", id="unknown trigger"),
    pytest.param("outcome", "'fine'", id="unknown outcome"),
    pytest.param("reason", "'because'", id="unknown reason"),
    pytest.param("started_at", "4611686018427387904", id="beyond the calendar"),
    pytest.param("scheduled_for", "-4611686018427387904", id="before the calendar"),
]


@pytest.mark.parametrize(("column", "value"), RUN_COLUMNS)
async def test_a_run_that_cannot_be_read_is_shown_as_far_as_it_can_be(
    made: str, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture, column: str, value: str
) -> None:
    await sql(made, f"UPDATE run SET {column} = {value}")
    before = await sql(made, "SELECT * FROM run")
    worker.runs.clear()
    scheduler = new_scheduler(made)

    await scheduler.start()
    await worker.clock.advance("1s")
    rows = await scheduler.run_log("d")
    await scheduler.run_stats("d")
    await scheduler.stop()

    assert sorted(worker.ids) == ["a", "b", "c"]
    (row,) = rows
    assert row.error is not None
    assert row.error.startswith(f"This row cannot be read from the store: {column}: ")
    assert row.trigger is (Trigger.SCHEDULE if column == "trigger" else Trigger.MANUAL)
    assert row.outcome is (None if column == "outcome" else Outcome.SUCCESS)
    (warning,) = warnings(caplog)
    assert f'of table "run": column "{column}": ' in warning
    assert await sql(made, f"SELECT * FROM run WHERE id = {row.id}") == before


STATE_COLUMNS = [
    pytest.param("attempts = -1", "attempts", id="negative count"),
    pytest.param("last_success_at = 4611686018427387904", "last_success_at", id="beyond the calendar"),
    pytest.param("next_run_at = -4611686018427387904", "next_run_at", id="before the calendar"),
    pytest.param("consecutive_errors = 9223372036854775807", "consecutive_errors", id="one more would be too many"),
]


@pytest.mark.parametrize(("change", "column"), STATE_COLUMNS)
@pytest.mark.parametrize(
    "options", [{}, {"max_concurrent": 1}, {"group_limits": 1}], ids=["free", "one slot", "groups"]
)
async def test_a_job_whose_state_cannot_be_read_waits_and_nobody_waits_for_it(
    made: str,
    new_scheduler: NewScheduler,
    worker: Worker,
    caplog: pytest.LogCaptureFixture,
    change: str,
    column: str,
    options: dict[str, Any],
) -> None:
    """It is due, goes before the others, and stays due: the loop must neither stand still nor spin."""
    await sql(made, f"UPDATE state SET {change} WHERE id = 'b'")
    before = await sql(made, "SELECT * FROM state WHERE id = 'b'")
    worker.runs.clear()
    scheduler = new_scheduler(made, **options)

    await scheduler.start()
    await worker.clock.advance("30s")
    ticks = scheduler.state().tick_count
    shown = await job_of(scheduler, "b")
    listed = {job.id: job.status for job in await scheduler.list_jobs()}
    explained = str(await scheduler.explain("b"))
    upcoming = {one.job.id for one in await scheduler.preview()}
    healthy = (await scheduler.health(timeout=None)).ok
    await scheduler.stop()

    assert sorted(worker.ids) == ["a", "c"]
    assert ticks < 30
    assert healthy
    assert shown.status is Status.DISABLED
    assert str(shown.disabled_reason).startswith(f"its state cannot be read from the store: {column}: ")
    assert listed == {"a": Status.IDLE, "b": Status.DISABLED, "c": Status.IDLE, "d": Status.IDLE}
    assert "cannot be read" in explained
    assert upcoming == {"a", "c"}
    (warning,) = warnings(caplog)
    assert f'of table "state": column "{column}": ' in warning
    assert await sql(made, "SELECT * FROM state WHERE id = 'b'") == before


async def test_a_job_that_stays_due_makes_no_pass_follow_another_while_the_clock_is_behind(tmp_path: Path) -> None:
    """What was looked at in vain does not count as more that may be due."""
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.open()
    node = await store.join(identity("first"), MOMENT)
    await add(store, "b")
    await sql(store.path, "UPDATE state SET attempts = -1")
    await claim(store, node, MOMENT + HOUR, limit=1)

    claims = [await claim(store, node, MOMENT, limit=1) for _ in range(3)]
    await store.close()

    assert [one.is_full for one in claims][1:] == [False, False]


@pytest.mark.parametrize("change", ["activity = 'asleep'", "activity = 'running', attempts = -1"])
async def test_a_claim_that_cannot_be_read_keeps_no_other_from_being_recovered(
    made: str, new_scheduler: NewScheduler, worker: Worker, change: str
) -> None:
    """It is taken for one whose owner is gone, and left alone all the same."""
    await sql(made, f"UPDATE state SET {change} WHERE id = 'b'")
    before = await sql(made, "SELECT * FROM state WHERE id = 'b'")
    scheduler = new_scheduler(made)
    await scheduler.start()
    store, node = scheduler._store, scheduler._engine.node
    assert node is not None

    ownerless = [found for found in await store.beat(node) if found.is_missing]
    recovered = await store.recover(ownerless, worker.clock.micros(), Rules())

    assert len(ownerless) == 1
    assert recovered == []
    assert await sql(made, "SELECT * FROM state WHERE id = 'b'") == before


async def test_nothing_is_decided_about_a_job_whose_state_cannot_be_read(
    made: str, new_scheduler: NewScheduler
) -> None:
    """But it can be removed, and added anew."""
    await sql(made, "UPDATE state SET attempts = -1 WHERE id = 'b'")
    strict = new_scheduler(made, require_user=True)  # which disables jobs that have no user
    await strict.start()
    await strict.stop()
    scheduler = new_scheduler(made)

    for call in (scheduler.resume_job, scheduler.trigger_job):
        with pytest.raises(StoreError, match="Job default/b cannot be read from the store: attempts: -1 is not"):
            await call("b")
    with pytest.raises(StoreError, match="Repair its row, or remove the job"):
        await scheduler.update_job("b", schedule=Every("5m"))
    assert await sql(made, "SELECT phase, attempts FROM state WHERE id = 'b'") == [("active", -1)]
    await scheduler.remove_job("b")
    await scheduler.add_job(Manual(), handler="work", id="b")

    assert (await job_of(scheduler, "b")).status is Status.IDLE


@pytest.mark.parametrize(
    "damage", ["UPDATE state SET attempts = -1 WHERE id = 'b'", "DELETE FROM state WHERE id = 'b'"]
)
async def test_a_declared_job_whose_state_cannot_be_read_does_not_keep_the_others_from_starting(
    made: str, clock: VirtualClock, worker: Worker, damage: str
) -> None:
    await sql(made, damage)
    scheduler = Scheduler(made, clock=clock)
    scheduler.handler("work")(worker)
    scheduler.job(Every("5m"), id="b")(worker)
    worker.runs.clear()

    async with scheduler:
        await clock.advance("1s")
        shown = await job_of(scheduler, "b")

    assert sorted(worker.ids) == ["a", "c"]
    assert str(shown.disabled_reason).startswith("its state cannot be read from the store: ")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("UPDATE state SET uid = 999 WHERE id = 'b'", id="a state without its job"),
        pytest.param("DELETE FROM state WHERE id = 'b'", id="a job without its state"),
        pytest.param("UPDATE job SET handler = 'gone' WHERE id = 'b'", id="a handler that is not here"),
        pytest.param("UPDATE job SET payload = repeat('[', 100000) WHERE id = 'b'", id="a payload nested too deeply"),
        pytest.param("UPDATE job SET anchor = 9223372036854775807 WHERE id = 'b'", id="an anchor beyond the calendar"),
        pytest.param("UPDATE job SET metadata = '[\"team\"]' WHERE id = 'b'", id="metadata of another shape"),
    ],
)
async def test_whatever_is_wrong_with_a_job_the_others_go_on(
    made: str, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    if not made.startswith("postgresql"):
        damage = damage.replace("repeat('[', 100000)", f"'{'[' * 100_000}'")
    await sql(made, damage)
    worker.runs.clear()
    scheduler = new_scheduler(made)

    await scheduler.start()
    await worker.clock.advance("3m")
    await scheduler.list_jobs(metadata={"team": "blue"})
    listed: dict[str, Job] = {job.id: job for job in await scheduler.list_jobs()}
    with suppress(SchedulerError):  # if only its description is damaged, it can be run by hand
        await scheduler.trigger_job("b")
    await scheduler.stop()

    assert [worker.ids.count(name) for name in ("a", "c")] == [4, 4]
    assert sorted(listed) == ["a", "b", "c", "d"]
    assert len(warnings(caplog)) <= 2  # a state without its job makes a job without its state


async def test_a_damaged_row_of_a_handler_keeps_no_job_waiting(
    made: str, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    await sql(made, "UPDATE handler SET name = 'wrok'")
    worker.runs.clear()
    scheduler = new_scheduler(made)

    await scheduler.start()
    await worker.clock.advance("1s")

    assert worker.ids == ["b", "a", "c"]
    (warning,) = warnings(caplog)
    assert 'of table "handler": column "name": it is "wrok" where jobs say "work"' in warning


@pytest.mark.parametrize(
    ("change", "column"),
    [
        pytest.param("pid = 1099511627776", "pid", id="a number that no process has"),
        pytest.param("since = -4611686018427387904", "since", id="before the calendar"),
    ],
)
async def test_a_node_that_cannot_be_read_is_shown_as_far_as_it_can_be(
    made: str, new_scheduler: NewScheduler, worker: Worker, change: str, column: str
) -> None:
    other = new_scheduler(made)
    await other.start()
    await sql(made, f"UPDATE node SET {change}")
    scheduler = new_scheduler(made)

    await scheduler.start()
    nodes = await scheduler.nodes()

    assert len(nodes) == 2
    problems = [node.unreadable for node in nodes if not node.is_self]
    assert [None if problem is None else problem.partition(":")[0] for problem in problems] == [column]


async def test_numbers_that_are_taken_already_keep_nothing_from_being_added_or_run(
    made: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    """Rows whose own numbers are damaged may have those that come next, or the highest there are."""
    await sql(made, "UPDATE run SET id = id + 1")
    await sql(made, "UPDATE state SET uid = uid + 1 WHERE id = 'c'")
    await sql(made, "INSERT INTO output (run, text) VALUES (3, 'of nothing'), (9223372036854775807, 'of nothing')")
    worker.runs.clear()
    scheduler = new_scheduler(made)

    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="e")
    await worker.clock.advance("61s")
    await scheduler.stop()

    assert [worker.ids.count(name) for name in ("a", "b", "e")] == [2, 2, 1]


# ---------------------------------------------------------------- what only SQLite can hold


@pytest.mark.parametrize("column", ["name", "handler", "payload", "id", "namespace", "user_id"])
async def test_a_job_that_is_not_utf8_stops_no_other(
    path: Path, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    scheduler = new_scheduler(str(path))
    for name in ("a", "b"):
        await scheduler.add_job(Every("1m"), handler="work", id=name)
    await scheduler.stop()
    await sql(str(path), f"UPDATE job SET {column} = CAST(x'62ff' AS TEXT) WHERE id = 'b'")
    scheduler = new_scheduler(str(path))

    await scheduler.start()
    await worker.clock.advance("2m")
    listed = await scheduler.list_jobs()
    await scheduler.stop()

    assert worker.ids == ["a", "a"]
    (bad,) = [job for job in listed if job.id != "a"]
    assert bad.status is Status.DISABLED
    assert f"{column}: it is not valid UTF-8" in str(bad.disabled_reason)
    assert bad.id == ("b\\xff" if column == "id" else "b")
    (warning,) = warnings(caplog)
    assert f'of table "job": column "{column}": it is not valid UTF-8' in warning


async def test_texts_of_runs_and_states_that_are_not_utf8_stop_nothing(
    path: Path, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scheduler_async")
    scheduler = new_scheduler(str(path))
    for name in ("a", "b"):
        await scheduler.add_job(Every("1m"), handler="work", id=name)
    run = await scheduler.trigger_job("a")
    await scheduler.wait_for_run(run)
    await scheduler.stop()
    await sql(str(path), "UPDATE run SET message = CAST(x'ff' AS TEXT)")
    await sql(str(path), "UPDATE state SET last_error = CAST(x'ff' AS TEXT) WHERE id = 'b'")
    await sql(str(path), f"INSERT INTO output (run, text) VALUES ({run}, CAST(x'6fff' AS TEXT))")
    worker.runs.clear()
    scheduler = new_scheduler(str(path))

    await scheduler.start()
    await worker.clock.advance("2m")
    rows = await scheduler.run_log()
    output = await scheduler.run_output(run)
    await scheduler.stop()

    assert worker.ids == ["a", "a"]
    assert rows[-1].error == "This row cannot be read from the store: message: it is not valid UTF-8"
    assert output == "o\\xff"
    assert len(warnings(caplog)) == 2
