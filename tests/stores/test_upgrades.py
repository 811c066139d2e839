"""Stores of older versions, opened by this one, and what becomes of processes of older versions that still run.

`stores` holds one small store for each schema that was ever on the main branch, written by the code of its time: seven
jobs in two namespaces, three runs that ended, and one whose process died. Whoever adds a migration adds a store of the
schema before it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import (
    At,
    EventKind,
    Every,
    Manual,
    Outcome,
    PostgresStore,
    Scheduler,
    SQLiteStore,
    Status,
    Store,
    StoreOutdatedError,
)
from scheduler_async.engine import membership
from scheduler_async.stores.copying import rule
from scheduler_async.stores.messages import JobFilter, RunFilter
from scheduler_async.stores.postgres import schema as postgres_schema
from scheduler_async.stores.sqlite import base as sqlite_base
from scheduler_async.stores.sqlite import connection as sqlite_connection
from scheduler_async.stores.sqlite import schema as sqlite_schema
from scheduler_async.stores.sqlite import store as sqlite_store
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import HOUR, to_micros
from tests.cast import MINUTE, NOON, PATIENCE, NewScheduler, Worker
from tests.postgres_server import url_of_schema, url_of_server
from tests.stores.test_conformance import RULES, add, claim, claimed_ids, edit, finish, identity, trigger

START = to_micros(NOON)

STORES = Path(__file__).with_name("schemas")
# By their names: some schemas were changed before anybody knew them, and kept their number.
LABELS = [
    pytest.param(file.stem, marks=[pytest.mark.once] if file.stem.startswith("postgres") else [])
    for file in sorted(STORES.glob("*.sql"))
]


async def build(label: str, directory: Path) -> Store:
    """The store of this *label*, as its version left it."""
    script = (STORES / f"{label}.sql").read_text(encoding="utf-8")
    if label.startswith("sqlite"):
        with closing(sqlite3.connect(directory / "jobs.db")) as db:
            db.executescript(script)
        return SQLiteStore(directory / "jobs.db")
    url = url_of_schema(str(directory))
    schema = url.rpartition("=")[2]
    admin = await asyncpg.connect(url_of_server())
    await admin.execute(f"CREATE SCHEMA {schema}; SET search_path TO {schema}; {script}")
    await admin.close()
    return PostgresStore(url)


@pytest.fixture(params=LABELS)
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of an older version."""
    store = await build(request.param, tmp_path)
    yield store
    await store.close()


def test_there_is_a_store_of_every_schema() -> None:
    """Whoever adds a migration adds a store of the schema before it."""
    versions = {file.stem.rstrip("abc") for file in STORES.glob("*.sql")}

    assert versions == {
        *(f"sqlite-{version}" for version in range(1, sqlite_schema.newest())),
        *(f"postgres-{version}" for version in range(1, postgres_schema.newest())),
    }


async def test_everything_in_an_older_store_survives(old: Store, caplog: pytest.LogCaptureFixture) -> None:
    """An upgrade must not cost a job, a run, an output or a claim, and the log says that it happened."""
    caplog.set_level(logging.INFO, "scheduler_async")
    await old.open()

    jobs = {job.key: job for job in await old.list_jobs(JobFilter())}
    rows = await old.list_runs(RunFilter())

    assert {key: (job.handler, job.group, job.status) for key, job in jobs.items()} == {
        "default/hourly": ("work", "mail", Status.IDLE),
        "/tenant%2Fone/hourly": ("work", "mail", Status.IDLE),
        "default/failing": ("fail", None, Status.IDLE),
        "default/paused": ("absent", None, Status.PAUSED),
        "default/disabled": ("by-hand", "50%", Status.DISABLED),
        "default/later": ("work", None, Status.IDLE),
        "default/running": ("hang", "mail", Status.RUNNING),
    }
    assert jobs["default/hourly"].payload == {"to": ["ops"]}
    assert jobs["default/failing"].last_error == "ValueError: no"
    assert jobs["default/disabled"].disabled_reason == "enough"
    assert [(row.namespace, row.job_id, row.outcome) for row in rows] == [
        ("default", "running", None),
        ("default", "hourly", Outcome.SUCCESS),
        ("default", "failing", Outcome.ERROR),
        ("tenant/one", "hourly", Outcome.SUCCESS),
    ]
    assert await old.output_of(3) in ("what it wrote", None), "the first version kept none"
    assert [status.node.identity.name for status in await old.nodes()] == ["elsewhere:4711:00c0ffee"]
    assert (await add(old, "new")).uid == 9, "the job with the number 8 was removed"
    (sentence,) = [record.getMessage() for record in caplog.records if "migrated" in record.getMessage()]
    assert "migrated from schema version" in sentence


async def test_a_process_waits_while_another_one_migrates_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT", 0.01)
    store = await build("sqlite-7", tmp_path)
    do, tries = sqlite_base.in_transaction, iter(range(10))

    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")

        def in_transaction(*work: Any) -> Any:
            if next(tries) == 3:
                other.execute("COMMIT")
            return do(*work)

        monkeypatch.setattr(sqlite_store, "in_transaction", in_transaction)
        await store.open()

    assert await store.get("default", "hourly") is not None
    await store.close()


async def test_a_migration_of_a_large_schema_may_take_longer_than_any_other_statement() -> None:
    limits: list[float | None] = []

    class Database:
        async def fetch(self, *_: Any) -> list[tuple[str]]:
            return [("job",), ("state",), ("version",)]

        async def fetchval(self, *_: Any, timeout: float | None = None) -> int:
            limits.append(timeout)
            return 1

        async def execute(self, *_: Any, timeout: float | None = None) -> None:
            limits.append(timeout)

    database: Any = Database()
    await postgres_schema.migrate(database, "large", "postgresql://db/jobs")

    assert limits.pop() is None, "the version, which this transaction has locked"
    assert set(limits) == {postgres_schema.LONGEST_MIGRATION}


async def test_the_jobs_of_an_older_store_go_on(old: Store) -> None:
    """With the claim of a process that is gone, and with what is due."""
    await old.open()
    node = await old.join(identity("newer"), to_micros(NOON))
    (dead,) = [row for row in await old.beat(node) if row.id != node]
    at = to_micros(NOON) + 2 * HOUR

    recovered = await old.recover([dead], at, RULES)
    claims = await claim(old, node, at)

    assert [(edit.job.id, run.id) for edit, run in recovered] == [("running", 4)]
    assert claimed_ids(claims) == ["hourly", "failing", "hourly"]
    assert (await old.list_runs(RunFilter(run=4)))[0].outcome is Outcome.INTERRUPTED


async def test_a_migration_is_said_once(old: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A store that is up to date, or new, was not migrated."""
    await old.open()
    await old.close()
    caplog.set_level(logging.INFO, "scheduler_async")
    caplog.clear()

    await old.open()

    assert not [record for record in caplog.records if "migrated" in record.getMessage()]


# ---------------------------------------------------------------- processes of an older version


class Newer:
    """A newer version that upgrades the store at *address*, or alters it in other ways, while this one uses it."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def do(self, *statements: str) -> None:
        if not self._address.startswith("postgres"):
            with closing(sqlite3.connect(self._address)) as db:
                for statement in statements:
                    db.execute(statement)
                db.commit()
            return
        schema = self._address.rpartition("=")[2]
        admin = await asyncpg.connect(url_of_server(), server_settings={"search_path": schema})
        async with admin.transaction():
            for statement in statements:
                await admin.execute(statement)
            # As `migrate` does, for those who listen.
            await admin.execute("SELECT pg_notify($1, $2)", schema, "newer 0 1")
        await admin.close()

    async def upgrade(self, *statements: str) -> None:
        """Upgrade the store to the version after this one."""
        is_sqlite = not self._address.startswith("postgres")
        version = f"PRAGMA user_version = {sqlite_schema.newest() + 1}"
        number = f"UPDATE version SET number = {postgres_schema.newest() + 1}"
        added = "ALTER TABLE job ADD COLUMN colour TEXT"
        await self.do(added, *statements, version if is_sqlite else number)

    async def downgrade(self) -> None:
        """Put the version back, for those who look at what is there."""
        is_sqlite = not self._address.startswith("postgres")
        version = f"PRAGMA user_version = {sqlite_schema.newest()}"
        await self.do(version if is_sqlite else f"UPDATE version SET number = {postgres_schema.newest()}")


@pytest.fixture
def newer(shared: str) -> Newer:
    return Newer(shared)


async def test_an_older_version_changes_nothing_in_an_upgraded_store(shared: str, newer: Newer) -> None:
    """But it records the runs that it has: what it writes about them means the same to the newer one."""
    store = PostgresStore(shared) if shared.startswith("postgres") else SQLiteStore(shared)
    await store.open()
    node = await store.join(identity("older"), START)
    for name in "abcd":
        await add(store, name, now=START)
    await trigger(store, node, "d", START)
    running, queued, put_back = (await claim(store, node, START, slots=1)).runs
    (row,) = await store.beat(node)
    await newer.upgrade()

    for refused in (
        add(store, "e", now=START),
        edit(store, "a", payload=1),
        store.remove("default", "a", START),
        store.purge_removed(START, 10),
        claim(store, node, START + HOUR),
        store.claim_one("default", "a", None, START, node=node, queued=False),
        store.join(identity("another"), START),
        store.recover([row], START, RULES),
        store.review(0, 10, START, lambda job: job),
        store.purge_runs([1], 0, START),
        store.purge_disabled(START + HOUR, 10, START + HOUR, ended=False),
        store.purge_history(START, 10),
        store.disable_without_user("no user", START),
        store.write_jobs([], rule),
        store.write_runs([]),
        store.check(),
    ):
        with pytest.raises(StoreOutdatedError, match="A newer version has upgraded the store: upgrade scheduler_async"):
            await refused
    started = await store.start([queued], START)
    await store.release([put_back])
    first, second = await finish(store, running), await finish(store, queued)
    await store.beat(node)
    ((edit_of_d, _),) = await store.interrupt_unknown(node, [], START, RULES)
    await store.leave(node)

    assert started == {queued.id}
    assert first is not None
    assert second is not None
    assert edit_of_d.job.id == "d"
    assert {row.job_id: row.outcome for row in await store.list_runs(RunFilter())} == {
        "a": Outcome.SUCCESS,
        "b": Outcome.SUCCESS,
        "d": Outcome.INTERRUPTED,
    }
    await store.close()


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_scheduler_of_an_older_version_lets_its_runs_end_and_starts_nothing_more(
    shared: str,
    newer: Newer,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Within two seconds it has noticed. It says so once, and in `health`; whoever changes a job is told."""
    scheduler = new_scheduler(shared)
    worker.takes = "5m"
    await scheduler.start()
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="running")
    await scheduler.add_job(Every("10s"), handler="work", id="next", enabled=False)
    await clock.advance("1m")
    await scheduler.resume_job("next")
    stream = scheduler.events()
    await newer.upgrade()

    await clock.advance("2s")
    health = await scheduler.health()
    await clock.advance("10m")

    assert (health.status, health.store_reachable) == ("failing", True)
    assert "A newer version has upgraded the store: upgrade scheduler_async" in str(health.problem)
    assert scheduler.state().problem == health.problem
    assert worker.ids == ["running"]
    assert [row.outcome for row in await scheduler.run_log("running")] == [Outcome.SUCCESS]
    with pytest.raises(StoreOutdatedError):
        await scheduler.add_job(Manual(), handler="work", id="more")
    with pytest.raises(StoreOutdatedError):
        await scheduler.trigger_job("next")
    with pytest.raises(StoreOutdatedError):
        await scheduler.run_pending()
    await scheduler.stop()
    kinds = [event.kind async for event in stream]
    assert kinds.count(EventKind.STORE_FAILED) == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].endswith("This process starts no more runs; those in progress continue")


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_what_an_older_version_cannot_record_is_recovered_as_interrupted(
    shared: str, newer: Newer, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A newer version renames what older ones must not write. They stop all the same, and their claims are free."""
    scheduler = new_scheduler(shared)
    worker.takes = "5s"
    await scheduler.start()
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await clock.advance("1m")
    await newer.upgrade("ALTER TABLE run RENAME COLUMN outcome TO ended_as")

    await clock.advance("10s")
    await scheduler.stop()

    await newer.do("ALTER TABLE run RENAME COLUMN ended_as TO outcome")
    await newer.downgrade()
    other = new_scheduler(shared)
    await other.start()
    rows = await other.run_log("a")
    assert rows[-1].outcome is Outcome.INTERRUPTED
    assert worker.cancelled == 0


@pytest.mark.once
async def test_on_postgresql_an_older_version_notices_at_once(tmp_path: Path) -> None:
    """By what the newer version says, not by looking now and then."""
    url = url_of_schema(str(tmp_path))
    async with Scheduler(url) as scheduler:
        upgraded = asyncio.get_running_loop().time()
        await Newer(url).upgrade()
        while scheduler.state().problem is None:
            await asyncio.sleep(0.001)

    assert asyncio.get_running_loop().time() - upgraded < membership.POLL


@pytest.mark.once
async def test_whoever_migrates_postgresql_tells_those_who_listen(tmp_path: Path) -> None:
    store = await build("postgres-1c", tmp_path)
    schema = url_of_schema(str(tmp_path)).rpartition("=")[2]
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(url_of_server())
    await listener.add_listener(schema, lambda *said: heard.put_nowait(said[-1]))

    await store.open()

    assert (await asyncio.wait_for(heard.get(), PATIENCE)).endswith(" 0 1"), "as if a job had been due long ago"
    await listener.close()
    await store.close()
