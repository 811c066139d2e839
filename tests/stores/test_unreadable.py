"""Rows that cannot be read: left alone, named once, shown where they would be listed; and all others go on."""

from __future__ import annotations

import logging
import pickle
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import pytest

from scheduler_async import (
    Every,
    Job,
    JobSpec,
    Manual,
    Outcome,
    Priority,
    Retry,
    Scheduler,
    SchedulerError,
    SQLiteStore,
    Status,
    StoreError,
    Trigger,
)
from scheduler_async.engine import claimer
from scheduler_async.jobs.enums import Misfire, OnInterrupt
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.next_run import disabled
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.liveness import new_identity, retire
from scheduler_async.stores.messages import Decision, NodeRow
from scheduler_async.stores.unreadable import MOST_NAMED, UnreadableRows
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import HOUR
from tests.cast import MINUTE, NOON, NewScheduler, Worker, job_of
from tests.stores.test_conformance import NOON as MOMENT
from tests.stores.test_conformance import add, claim, identity

pytestmark = pytest.mark.once  # the version of Python does not matter

# ---------------------------------------------------------------- named once


def test_a_row_is_named_once_with_its_table_its_number_its_column_and_why(caplog: pytest.LogCaptureFixture) -> None:
    rows = UnreadableRows()
    for _ in range(3):
        rows.add("state", 7, Unreadable("attempts", "-5 is not a number from 0 up"))
        rows.tell()

    (record,) = caplog.records
    assert record.getMessage() == (
        'Cannot read row 7 of table "state": column "attempts": -5 is not a number from 0 up. The row stays unchanged'
    )
    assert record.levelname == "WARNING"


def test_a_store_that_is_damaged_throughout_takes_no_memory_without_end(caplog: pytest.LogCaptureFixture) -> None:
    rows = UnreadableRows()
    for number in range(2 * MOST_NAMED):
        rows.add("run", number, Unreadable("trigger", "no"))
    rows.tell()

    assert len(caplog.records) == MOST_NAMED + 1
    assert caplog.records[-1].getMessage() == TOO_MANY
    assert len(rows._known) == MOST_NAMED


TOO_MANY = "More than 1000 rows of the store cannot be read; further rows are not logged"


@pytest.mark.parametrize(("count", "sentences"), [(MOST_NAMED, 0), (MOST_NAMED + 1, 1)])
def test_that_there_are_too_many_to_name_is_said_once(
    caplog: pytest.LogCaptureFixture, count: int, sentences: int
) -> None:
    """Rows that were named may be found again at any time, and so may those that were not."""
    rows = UnreadableRows()

    for _ in range(2):
        for number in range(count):
            rows.add("run", number, Unreadable("trigger", "no"))
            rows.tell()

    told = [record.getMessage() for record in caplog.records]
    assert (len(told) - told.count(TOO_MANY), told.count(TOO_MANY)) == (MOST_NAMED, sentences)


def test_a_warning_between_two_steps_of_another_thread_does_not_say_it_twice(caplog: pytest.LogCaptureFixture) -> None:
    """The threads of a store add rows while the event loop tells of others."""
    rows = UnreadableRows()

    class Interrupting(dict[Any, Any]):
        def setdefault(self, key: Any, default: Any = None) -> Any:
            found = super().setdefault(key, default)
            if len(self) > MOST_NAMED - 1:
                rows.tell()
            return found

    rows._known = Interrupting()
    for number in range(2 * MOST_NAMED):
        rows.add("run", number, Unreadable("trigger", "no"))
    rows.tell()

    assert [record.getMessage() for record in caplog.records].count(TOO_MANY) == 1


def test_problems_are_values() -> None:
    """They are part of a job, and jobs are compared, kept in sets and sent to other processes."""
    problem = Unreadable("payload", "no")

    assert problem == Unreadable("payload", "no") != Unreadable("metadata", "no")
    assert {problem, pickle.loads(pickle.dumps(problem))} == {problem}
    assert str(problem) == "payload: no"


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
    """It is left alone, although its owner is gone; other claims of that owner are not."""
    await sql(made, f"UPDATE state SET {change} WHERE id = 'b'")
    await sql(made, "UPDATE state SET activity = 'running' WHERE id = 'd'")
    before = await sql(made, "SELECT * FROM state WHERE id = 'b'")
    scheduler = new_scheduler(made)
    await scheduler.start()
    store, node = scheduler._store, scheduler._engine.session.node.id
    assert node is not None

    seen = await store.beat(node)
    recovered = await store.recover([NodeRow.missing(0, None)], worker.clock.micros(), Rules())

    assert (await job_of(scheduler, "d")).status is Status.IDLE
    assert [found.id for found in seen] == [node]
    assert recovered == []
    assert await sql(made, "SELECT * FROM state WHERE id = 'b'") == before


@pytest.fixture
async def dead_claim(made: str, new_scheduler: NewScheduler) -> str:
    """The same store, with a run of d that a process on this host had claimed when it died, and whose state is bad."""
    scheduler = new_scheduler(made)
    await scheduler._engine.ready()
    store, identity = scheduler._store, new_identity()
    node = await store.join(identity, scheduler._clock.micros())
    assert await store.claim_one("default", "d", None, scheduler._clock.micros(), node=node, queued=False)
    await scheduler.stop()
    retire(identity)
    await sql(made, "UPDATE state SET attempts = -1 WHERE id = 'd'")
    return made


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_claim_of_the_dead_that_cannot_be_read_keeps_nobody_busy(
    dead_claim: str, new_scheduler: NewScheduler, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be done about it, so that a process which has nothing to do does nothing."""
    scheduler = new_scheduler(dead_claim)
    for name in "abc":
        await scheduler.remove_job(name)
    await scheduler.start()
    beats = counting(scheduler._store, "beat")

    await worker.clock.advance("100s")

    assert 8 <= len(beats) <= 12  # one every ten seconds
    assert scheduler.state().tick_count < 10
    (warning,) = warnings(caplog)
    assert 'of table "state": column "attempts": -1' in warning
    assert await sql(dead_claim, "SELECT activity, attempts FROM state WHERE id = 'd'") == [("running", -1)]


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_claim_of_the_dead_is_recovered_once_its_row_is_repaired(
    dead_claim: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    """Nobody has to restart a scheduler for that."""
    scheduler = new_scheduler(dead_claim)
    await scheduler.start()
    await sql(dead_claim, "UPDATE state SET attempts = 0 WHERE id = 'd'")

    await worker.clock.advance("11s")

    again, row, *_ = await scheduler.run_log("d")
    assert (row.outcome, (await job_of(scheduler, "d")).status) == (Outcome.INTERRUPTED, Status.IDLE)
    assert (again.outcome, again.attempt) == (Outcome.SUCCESS, 2)


async def test_a_job_that_was_removed_is_forgotten_although_its_state_cannot_be_read(
    dead_claim: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    """Its own run had removed it. Nothing is to be decided about it any more, so that nobody needs its state."""
    await sql(dead_claim, f"UPDATE job SET removed_at = {worker.clock.micros()} WHERE id = 'd'")
    scheduler = new_scheduler(dead_claim, keep_removed="1h")

    await scheduler.start()
    outcomes = [row.outcome for row in await scheduler.run_log("d")]
    states = await sql(dead_claim, "SELECT attempts FROM state WHERE id = 'd'")
    await worker.clock.advance("3h")
    await scheduler.stop()

    assert outcomes == [Outcome.INTERRUPTED, Outcome.SUCCESS]
    assert states == []
    assert await sql(dead_claim, "SELECT uid FROM job WHERE id = 'd'") == []


def counting(store: Any, name: str) -> list[object]:
    """A list that gets longer with every call of this method of *store*."""
    calls: list[object] = []
    method = getattr(store, name)

    async def counted(*args: object) -> object:
        calls.append(args)
        return await method(*args)

    setattr(store, name, counted)
    return calls


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


# ---------------------------------------------------------------- repaired by an edit

REPAIRS = [
    pytest.param("payload", "'{'", {"payload": {"for": "b2"}}, id="payload"),
    pytest.param("payload", "'{'", {"payload": None}, id="no payload"),
    pytest.param("metadata", "'[]'", {"metadata": {"team": "red"}}, id="metadata"),
    pytest.param("metadata", "'[]'", {"metadata": {}}, id="no metadata"),
    pytest.param("timeout", "-5", {"timeout": timedelta(seconds=9)}, id="timeout"),
    pytest.param("timeout", "-5", {"timeout": None}, id="no timeout"),
    pytest.param("priority", "'urgent'", {"priority": Priority.STANDARD}, id="priority"),
    pytest.param("misfire", "'explode'", {"misfire": Misfire.RUN_ONCE}, id="misfire"),
    pytest.param("on_interrupt", "'panic'", {"on_interrupt": OnInterrupt.SKIP}, id="on_interrupt"),
    pytest.param("retry", "'{}'", {"retry": None}, id="retry"),
    pytest.param("job_group", "'a' || chr(7)", {"group": "g"}, id="group"),
    pytest.param("name", "'a' || chr(7)", {"name": None}, id="name"),
    pytest.param("user_id", "'a' || chr(7)", {"user_id": "u"}, id="user_id"),
    pytest.param("handler", "'a' || chr(7)", {"handler": "work"}, id="handler"),
    pytest.param("schedule", "'{'", {"schedule": Every("7m")}, id="schedule"),
    pytest.param("schedule", "'{'", {"schedule": Manual()}, id="no schedule"),
    pytest.param("anchor", "4611686018427387904", {"schedule": Every("1m", immediately=True)}, id="anchor"),
]
GIVEN: dict[str, Any] = {
    "schedule": Every("1m", immediately=True),
    "handler": "work",
    "priority": Priority.HIGH,
    "payload": {"for": "b"},
    "metadata": {"team": "blue"},
    "timeout": timedelta(seconds=90),
    "retry": Retry.in_window(1),
    "misfire": Misfire.SKIP,
    "on_interrupt": OnInterrupt.SKIP,
    "name": "Job B",
    "user_id": "ann",
    "group": "mail",
}


@pytest.fixture
async def full(made: str, new_scheduler: NewScheduler, worker: Worker) -> str:
    """The same store, with a job b that has everything, and is due in half a minute."""
    scheduler = new_scheduler(made)
    await scheduler.update_job("b", **GIVEN)
    await scheduler.run_pending()
    await worker.clock.advance("30s")
    await scheduler.stop()
    return made


async def damage(store: str, **columns: str) -> None:
    """Give columns of the job b other values."""
    values = columns if store.startswith("postgresql") else {k: v.replace("chr", "char") for k, v in columns.items()}
    await sql(
        store, f"UPDATE job SET {', '.join(f'{name} = {value}' for name, value in values.items())} WHERE id = 'b'"
    )


@pytest.mark.parametrize(("column", "value", "changes"), REPAIRS)
async def test_an_edit_that_replaces_what_cannot_be_read_keeps_all_the_rest(
    full: str, new_scheduler: NewScheduler, column: str, value: str, changes: dict[str, Any]
) -> None:
    before = await job_of(new_scheduler(full), "b")
    await damage(full, **{column: value})
    scheduler = new_scheduler(full)
    shown = await job_of(scheduler, "b")

    edited = await scheduler.update_job("b", **changes)

    assert shown.status is Status.DISABLED
    assert str(shown.unreadable).startswith(f"{column}: ")
    assert edited == await job_of(new_scheduler(full), "b")
    assert edited.unreadable is None
    assert {name: getattr(edited, name) for name in GIVEN} == GIVEN | changes
    assert edited.status is Status.IDLE, "nobody has disabled it"
    assert (edited.created_at, edited.last_run_at) == (before.created_at, before.last_run_at)
    if "schedule" in changes:  # it counts from now, also where it looks like what was shown
        now = edited.updated
        assert (edited.anchor, edited.state.next_run_at) == (now, changes["schedule"].next_micros(now, now))
    else:
        assert edited.state == before.state


@pytest.mark.parametrize(("column", "value", "changes"), REPAIRS)
async def test_an_edit_that_leaves_out_what_cannot_be_read_is_refused_and_told_what_to_replace(
    full: str, new_scheduler: NewScheduler, column: str, value: str, changes: dict[str, Any]
) -> None:
    """It would store what only stands in for that."""
    await damage(full, **{column: value})
    before = await sql(full, "SELECT * FROM job WHERE id = 'b'")
    other = {"name": "New"} if column != "name" else {"payload": 5}
    (field,) = changes
    scheduler = new_scheduler(full)

    with pytest.raises(StoreError, match=f"from the store: {column}: .*Set a new {field}, or remove the job"):
        await scheduler.update_job("b", **other)

    assert await sql(full, "SELECT * FROM job WHERE id = 'b'") == before


async def test_all_that_cannot_be_read_is_replaced_at_once(full: str, new_scheduler: NewScheduler) -> None:
    await damage(full, schedule="'{'", timeout="-1")
    scheduler = new_scheduler(full)

    with pytest.raises(StoreError, match=r"schedule: .*; timeout: .*Set a new schedule and a new timeout"):
        await scheduler.update_job("b", name="New")
    with pytest.raises(StoreError, match=r"Set a new timeout, or remove the job"):
        await scheduler.update_job("b", schedule=Every("5m"))
    edited = await scheduler.update_job("b", schedule=Every("5m"), timeout="5s")

    assert (edited.timeout, edited.payload, edited.status) == (timedelta(seconds=5), {"for": "b"}, Status.IDLE)


async def test_what_no_edit_can_replace_is_repaired_in_its_row(full: str, new_scheduler: NewScheduler) -> None:
    await damage(full, created_at="4611686018427387904")
    scheduler = new_scheduler(full)

    with pytest.raises(StoreError, match=r"created_at: .*Repair its row, or remove the job"):
        await scheduler.update_job("b", schedule=Every("5m"))

    replaced = await scheduler.add_job(Every("5m"), handler="work", id="b", on_conflict="replace")
    assert (replaced.unreadable, replaced.payload, replaced.timeout) == (None, None, None)


async def test_when_it_was_last_edited_is_replaced_by_every_edit(full: str, new_scheduler: NewScheduler) -> None:
    await damage(full, updated_at="4611686018427387904")
    scheduler = new_scheduler(full)

    edited = await scheduler.update_job("b", name="New")

    assert (edited.name, edited.status, edited.unreadable) == ("New", Status.IDLE, None)


async def test_a_repaired_job_runs_again_also_if_it_had_come_due_meanwhile(
    full: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    """Then the scheduler has disabled it. Whoever repairs it wants it to run."""
    await damage(full, payload="'{'")
    scheduler = new_scheduler(full)
    await scheduler.start()
    await worker.clock.advance("1m")
    given_up = await job_of(scheduler, "b")
    worker.runs.clear()

    await scheduler.update_job("b", payload="new")
    await worker.clock.advance("1m")

    assert given_up.disabled_reason is not None
    assert [run.payload for run in worker.runs if run.job_id == "b"] == ["new"]


async def test_a_job_that_somebody_disabled_stays_so_when_it_is_repaired(
    full: str, new_scheduler: NewScheduler
) -> None:
    await damage(full, payload="'{'")
    scheduler = new_scheduler(full)
    await scheduler.disable_job("b", reason="enough")

    await scheduler.update_job("b", payload="new")
    await scheduler.update_job("b", name="New")

    assert (await job_of(scheduler, "b")).disabled_reason == "enough"


async def test_a_pause_of_a_job_that_cannot_be_read_stores_nothing_that_stands_in(
    full: str, new_scheduler: NewScheduler
) -> None:
    """Neither in its description nor beside its state, where its handler, its priority and its group are kept too."""
    await damage(full, handler="'a' || chr(7)", priority="'urgent'", job_group="'a' || chr(7)")
    question = "SELECT handler, rank, group_key, next_run_at FROM state WHERE id = 'b'"
    before = await sql(full, question)
    scheduler = new_scheduler(full)

    paused = await scheduler.pause_job("b")

    assert await sql(full, question) == before
    assert await sql(full, "SELECT phase FROM state WHERE id = 'b'") == [("paused",)]
    assert paused == await job_of(scheduler, "b")
    assert await sql(full, "SELECT name FROM handler") == [("work",)]


async def test_a_job_cannot_be_resumed_while_nobody_knows_when_it_runs(full: str, new_scheduler: NewScheduler) -> None:
    """It would be active without a next run, and stay so when its zone comes back."""
    scheduler = new_scheduler(full)
    await scheduler.disable_job("b")
    await scheduler.stop()
    await damage(full, schedule="'{'")

    with pytest.raises(StoreError, match="Set a new schedule, or remove the job"):
        await scheduler.resume_job("b")

    assert await sql(full, "SELECT phase FROM state WHERE id = 'b'") == [("disabled",)]


@pytest.mark.parametrize("phase", ["active", "paused", "disabled"])
async def test_a_job_that_cannot_be_read_is_not_resumed_before_it_is_repaired(
    full: str, new_scheduler: NewScheduler, phase: str
) -> None:
    """It would be shown as disabled all the same, and whoever resumed it would not know why."""
    scheduler = new_scheduler(full)
    if phase != "active":
        await (scheduler.pause_job("b") if phase == "paused" else scheduler.disable_job("b"))
    await scheduler.stop()
    await damage(full, payload="'{'")

    with pytest.raises(StoreError, match=r"Job default/b cannot be read from .*payload.* Set a new payload, or"):
        await scheduler.resume_job("b")

    assert await sql(full, "SELECT phase FROM state WHERE id = 'b'") == [(phase,)]
    await scheduler.update_job("b", payload="new")
    assert (await scheduler.resume_job("b")).status is Status.IDLE


@pytest.mark.parametrize(
    "beginning", ["its state cannot be read from the store: ", "it cannot be read from the store: "]
)
async def test_a_reason_that_reads_like_damage_harms_no_job(
    made: str, new_scheduler: NewScheduler, beginning: str
) -> None:
    """Anybody may give a reason; what cannot be read is known by other means than its words."""
    scheduler = new_scheduler(made)
    await scheduler._engine.ready()
    store, now = scheduler._store, scheduler._clock.micros()

    def decide(job: Job | None) -> Transition:
        assert job is not None
        off = job.with_state(disabled(job.state, f"{beginning}attempts: no", now))
        return Transition(off, kind=EventKind.DISABLED)

    await store.change([Decision("default", "b", decide)], now)
    job = await scheduler.update_job("b", name="New")
    await scheduler.resume_job("b")

    assert (job.name, job.unreadable, job.enabled) == ("New", None, False)
    assert (await job_of(scheduler, "b")).status is Status.IDLE


@pytest.mark.parametrize("column", ["payload", "schedule"])
async def test_a_declared_job_is_repaired_by_its_declaration(
    full: str, clock: VirtualClock, worker: Worker, column: str
) -> None:
    """The code says all about it, also where that is what stands in for what cannot be read."""
    await damage(full, **{column: "'{'"})
    scheduler = Scheduler(full, clock=clock)
    scheduler.handler("work")(worker)
    scheduler.job(Manual(), id="b")(worker)

    async with scheduler:
        job = await job_of(scheduler, "b")

    assert (job.schedule, job.payload, job.unreadable) == (Manual(), None, None)


async def test_a_claim_that_is_undone_leaves_a_job_that_cannot_be_read_as_it_was(
    full: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    """It comes due again, and is disabled then; disabled long ago, it would be purged at once."""
    scheduler, other = new_scheduler(full), new_scheduler(full)
    await scheduler._engine.ready_to_run()
    await other._engine.ready()
    store, node = scheduler._store, scheduler._engine.session.node.id
    assert node is not None
    before = await sql(full, "SELECT phase, activity, next_run_at, disabled_at FROM state WHERE id = 'b'")
    due = worker.clock.micros() + HOUR
    (run,) = [run for run in (await claim(store, node, due, slots=0)).runs if run.job.id == "b"]
    await damage(full, schedule="'{'")

    await other._store.release([run])  # which has not read it before

    assert await sql(full, "SELECT phase, activity, next_run_at, disabled_at FROM state WHERE id = 'b'") == before


async def test_more_rows_than_are_named_are_told_of_once(
    shared: str, new_scheduler: NewScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is damaged throughout must not fill the log, and nobody should think that this is all."""
    scheduler = new_scheduler(shared)
    specs = [JobSpec(Manual(), handler="work", id=f"job{number}") for number in range(MOST_NAMED + 50)]
    await scheduler.add_jobs(specs)
    await sql(shared, "UPDATE state SET attempts = -1")

    for _ in range(3):
        assert len(await scheduler.list_jobs()) == len(specs)
        await scheduler.get_job("job7")

    told = [record.getMessage() for record in caplog.records]
    assert (len(warnings(caplog)), told.count(TOO_MANY)) == (MOST_NAMED, 1)


# ---------------------------------------------------------------- all others go on


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


async def test_a_request_for_a_job_that_cannot_be_read_does_not_hide_later_ones(
    made: str, new_scheduler: NewScheduler, worker: Worker
) -> None:
    caller = new_scheduler(made, knows_work=False)
    for name in ("b", "d"):
        await caller.trigger_job(name, anywhere=True)
    await sql(made, "UPDATE job SET schedule = '{' WHERE id = 'b'")
    worker.runs.clear()
    scheduler = new_scheduler(made, max_concurrent=1)

    await scheduler.start()
    await worker.clock.advance("1s")

    assert "d" in worker.ids
    assert "b" not in worker.ids


async def test_the_end_of_a_pause_of_a_job_that_cannot_be_read_does_not_hide_later_ones(
    made: str, new_scheduler: NewScheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "MOST_RESUMED", 1)
    scheduler = new_scheduler(made)
    await scheduler.start()
    await scheduler.pause_job("b", until=NOON + MINUTE)
    await scheduler.pause_job("a", until=NOON + 2 * MINUTE)
    await sql(made, "UPDATE job SET schedule = '{' WHERE id = 'b'")

    await clock.advance("3m")

    assert (await job_of(scheduler, "a")).status is not Status.PAUSED


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
    assert 'of table "handler": column "name": it is "wrok", but its jobs have the handler "work"' in warning


async def test_a_run_whose_owner_names_another_job_neither_holds_up_that_job_nor_is_cancelled_for_it(
    made: str, new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    long = new_scheduler(made)
    worker.takes = "1h"
    await long.add_job(Manual(), handler="work", id="long", max_instances=2)
    await long.add_job(Every("1h", anchor=clock.now(), start=clock.now()), handler="work", id="late", overlap="cancel")
    await long.start()
    run = await long.trigger_job("long")
    worker.takes = None
    await sql(made, "UPDATE instance SET uid = (SELECT uid FROM job WHERE id = 'late')")

    await clock.advance("1h", wait_for_runs=False)

    (late,) = await long.run_log("late")
    row = await long.wait_for_run(run)
    assert (late.outcome, row.outcome) == (Outcome.SUCCESS, Outcome.SUCCESS)


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
