"""What is particular to SQLite: its settings and its plans, files that cannot be used, other processes, broken rows."""

# ruff: noqa: A001 - id is the public name of an id, and a test has nobody to keep waiting

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    Cron,
    InvalidJobError,
    Job,
    JobExistsError,
    JobSpec,
    Outcome,
    Scheduler,
    SQLiteStore,
    Status,
    StoreError,
)
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.run import Ending
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.messages import Decision, JobFilter, NodeRow
from scheduler_async.stores.sqlite import base as sqlite_base
from scheduler_async.stores.sqlite import claims as sqlite_claims
from scheduler_async.stores.sqlite import connection as sqlite_connection
from scheduler_async.stores.sqlite import copying as sqlite_copying
from scheduler_async.stores.sqlite import schema as sqlite_schema
from scheduler_async.stores.sqlite import store as sqlite
from scheduler_async.stores.sqlite.connection import Connection
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND
from tests.stores.test_conformance import (
    EVERY_MINUTE,
    HOURLY,
    NOON,
    RULES,
    add,
    adding,
    change_state,
    claim,
    claim_only,
    claimed_ids,
    disable,
    edit,
    editing,
    ended,
    finish,
    identity,
    ids,
    job_of,
    node_row,
    runs,
)

STOCKHOLM = Cron("0 9 * * *", tz="Europe/Stockholm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    opened = SQLiteStore(path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def node(store: SQLiteStore) -> int:
    return await store.join(identity("first"), NOON)


@contextlib.asynccontextmanager
async def opened(path: Path | str, **options: Any) -> AsyncIterator[SQLiteStore]:
    """Another connection to the store, as another process has it."""
    store = SQLiteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as any other program opens it."""
    db = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        yield db
    finally:
        db.close()


def sql(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with plain(path) as db:
        return db.execute(statement, values).fetchall()


def writer_of(store: SQLiteStore) -> Connection:
    assert store._writer is not None
    return store._writer


def reader_of(store: SQLiteStore) -> Connection:
    assert store._reader is not None
    return store._reader


async def ask(connection: Connection, statement: str) -> Any:
    ((answer,),) = await connection.call(lambda db: db.execute(statement).fetchall())
    return answer


async def is_in_transaction(connection: Connection) -> bool:
    return await connection.call(lambda db: db.in_transaction)


async def trace(connection: Connection, callback: Callable[[str], object] | None) -> None:
    await connection.call(lambda db: db.set_trace_callback(callback))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(("synchronous", "level"), [("NORMAL", 1), ("FULL", 2), ("EXTRA", 3), ("full", 2)])
async def test_the_settings_that_durability_rests_on_are_in_force(path: Path, synchronous: str, level: int) -> None:
    """A pragma that SQLite does not take is silently ignored: only asking tells."""
    async with opened(path, synchronous=synchronous) as store:
        writer = writer_of(store)

        assert await ask(writer, "PRAGMA journal_mode") == "wal"
        assert await ask(writer, "PRAGMA synchronous") == level
        assert await ask(writer, "PRAGMA foreign_keys") == 1
        assert await ask(writer, "PRAGMA busy_timeout") == 5000
        assert await ask(reader_of(store), "PRAGMA query_only") == 1


async def test_normal_is_what_one_gets_without_asking(store: SQLiteStore) -> None:
    """It survives a killed process, and does not flush the disk for every commit."""
    assert await ask(writer_of(store), "PRAGMA synchronous") == 1


def test_less_than_normal_is_refused(path: Path) -> None:
    """`OFF` can damage the file in a power cut, and a typing error must not mean anything."""
    for synchronous in ("OFF", "fast", ""):
        with pytest.raises(StoreError, match=r'"NORMAL", "FULL" or "EXTRA"'):
            SQLiteStore(path, synchronous=synchronous)
    assert not path.exists()


async def test_the_file_says_whose_it_is_and_which_schema_it_has(store: SQLiteStore, path: Path) -> None:
    """So that it is never taken for another program's, nor read by a version that cannot."""
    assert sql(path, "PRAGMA application_id") == [(sqlite_schema.APPLICATION_ID,)]
    assert sql(path, "PRAGMA user_version") == [(len(sqlite_schema.MIGRATIONS),)]
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


async def test_closing_leaves_one_file(store: SQLiteStore, path: Path) -> None:
    """Whoever copies the file then has everything."""
    await add(store, "a")

    await store.close()

    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert sql(path, "SELECT id FROM job") == [("a",)]


def test_a_store_shows_where_it_is(path: Path) -> None:
    """It is named in the logs, and only a file is shared."""
    assert repr(SQLiteStore(path)) == f"SQLiteStore({str(path)!r})"
    assert SQLiteStore(path).is_shared


def test_memory_is_not_a_file() -> None:
    """SQLite itself would take the name for a database of its own, which each connection has for itself."""
    with pytest.raises(StoreError, match=r"Use MemoryStore\(\)"):
        SQLiteStore(":memory:")


async def test_an_old_sqlite_is_refused_with_its_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict tables came with 3.37; a syntax error would tell nobody what to do."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    with pytest.raises(StoreError, match=r"needs SQLite 3\.37\.0 or newer"):
        await SQLiteStore(path).open()
    assert not path.exists()


# ---------------------------------------------------------------- files that cannot be used


async def make_store(path: Path, jobs: int = 3) -> None:
    async with opened(path) as store:
        await store.change([adding(f"job {number}", HOURLY, payload="x" * 500) for number in range(jobs)], NOON)


async def newer(path: Path) -> None:
    await make_store(path)
    sql(path, "PRAGMA user_version = 99")


async def foreign(path: Path) -> None:
    sql(path, "CREATE TABLE invoices (number INTEGER)")


async def foreign_without_tables(path: Path) -> None:
    sql(path, "PRAGMA application_id = 4711")


async def foreign_with_a_version(path: Path) -> None:
    sql(path, "PRAGMA user_version = 1")


async def no_database(path: Path) -> None:
    path.write_bytes(b"Dear diary,\n" * 1000)


async def a_few_bytes(path: Path) -> None:
    path.write_bytes(b"hi")


async def damaged_schema(path: Path) -> None:
    await make_store(path)
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xa5" * 3996
    path.write_bytes(data)


async def cut_off(path: Path) -> None:
    await make_store(path, jobs=100)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def damaged(table: str) -> Callable[[Path], Any]:
    async def damage(path: Path) -> None:
        await make_store(path, jobs=100)
        ((page,),) = sql(path, f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")
        data = bytearray(path.read_bytes())
        data[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
        path.write_bytes(data)

    return damage


async def a_directory(path: Path) -> None:
    path.mkdir()


UNUSABLE = [
    pytest.param(newer, "schema version 99; .* upgrade scheduler_async", id="newer"),
    pytest.param(foreign, r"belongs to another program\. It has the tables invoices, .* another file", id="foreign"),
    pytest.param(foreign_without_tables, "belongs to another program", id="foreign, without tables"),
    pytest.param(foreign_with_a_version, "belongs to another program", id="foreign, with a version"),
    pytest.param(no_database, "is not a SQLite database.* not changed", id="not a database"),
    pytest.param(a_few_bytes, "is not a SQLite database", id="a few bytes"),
    pytest.param(damaged_schema, r"is damaged.*\.recover", id="damaged schema"),
    pytest.param(cut_off, "is damaged", id="cut off"),
    pytest.param(damaged("job"), "is damaged", id="damaged jobs"),
    pytest.param(damaged("state"), "is damaged", id="damaged state"),
    pytest.param(damaged("run"), "is damaged", id="damaged runs"),
    pytest.param(damaged("state_due"), "is damaged", id="damaged index"),
    pytest.param(a_directory, "it is a directory", id="a directory"),
]


def contents(directory: Path) -> dict[str, bytes | None]:
    return {file.name: file.read_bytes() if file.is_file() else None for file in directory.iterdir()}


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """No task and no thread more than before."""
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=5)
        assert not thread.is_alive()
    assert asyncio.all_tasks() <= tasks


async def assert_refused(path: Path, sentence: str) -> None:
    """The scheduler does not start, says why, and leaves nothing running."""
    scheduler = Scheduler(path)
    with nothing_left_behind():
        try:
            with pytest.raises(StoreError, match=sentence) as caught:
                await scheduler.start()
            assert scheduler.status == "stopped"
        finally:
            await scheduler.stop()
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize(("make", "sentence"), UNUSABLE)
async def test_a_file_that_cannot_be_used_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], Any], sentence: str
) -> None:
    """It is never treated as empty, and not a byte of it changes: it may be somebody's only copy."""
    await make(path)
    before = contents(path.parent)

    await assert_refused(path, sentence)

    assert contents(path.parent) == before


@pytest.mark.parametrize(("make", "sentence"), UNUSABLE)
async def test_a_store_that_did_not_open_is_closed(path: Path, make: Callable[[Path], Any], sentence: str) -> None:
    """No connection stays behind, and whoever uses it all the same is told."""
    await make(path)
    store = SQLiteStore(path)

    with nothing_left_behind():
        try:
            with pytest.raises(StoreError, match=sentence):
                await store.open()
            with pytest.raises(StoreError, match="closed"):
                await store.get("default", "a")
        finally:
            await store.close()


async def test_damage_to_any_table_or_index_is_noticed_at_the_start(tmp_path: Path) -> None:
    """Also to one that is read once in a month."""
    await make_store(tmp_path / "whole.db")
    parts = sql(tmp_path / "whole.db", "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0")
    whole = (tmp_path / "whole.db").read_bytes()

    for name, page in parts:
        path = tmp_path / f"{name}.db"
        path.write_bytes(whole[: (page - 1) * 4096] + b"\xa5" * 4096 + whole[page * 4096 :])
        await assert_refused(path, "is damaged")


async def test_an_index_that_is_missing_is_noticed_at_the_start(tmp_path: Path) -> None:
    """Somebody may have dropped it by hand, and what asks for it would fail when it is least expected."""
    await make_store(tmp_path / "whole.db")
    indexes = sql(tmp_path / "whole.db", "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")

    for (name,) in indexes:
        path = tmp_path / f"{name}.db"
        path.write_bytes((tmp_path / "whole.db").read_bytes())
        sql(path, f"DROP INDEX {name}")
        await assert_refused(path, f"no such index: {name}")


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """SQLite says only that it is "unable to open database file"."""
    path = tmp_path / "missing" / "jobs.db"

    await assert_refused(path, f"the directory {path.parent} does not exist")

    assert contents(tmp_path) == {}


async def zero_bytes(path: Path) -> None:
    path.touch()


async def no_tables(path: Path) -> None:
    sql(path, "VACUUM")


@pytest.mark.parametrize("make", [zero_bytes, no_tables])
async def test_an_empty_file_becomes_a_store(path: Path, make: Callable[[Path], Any]) -> None:
    """`touch jobs.db`, or a temporary file, is a file to write to; there is nothing in it to lose."""
    await make(path)

    async with opened(path) as store:
        await add(store, "a")

    assert sql(path, "SELECT id FROM job") == [("a",)]


async def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upgrading the package must not cost a single job."""
    await make_store(path)
    monkeypatch.setattr(
        sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, ("ALTER TABLE job ADD COLUMN colour TEXT",))
    )

    async with opened(path) as store:
        assert sorted(await ids(store)) == ["job 0", "job 1", "job 2"]

    assert sql(path, "PRAGMA user_version") == [(len(sqlite_schema.MIGRATIONS),)]
    assert sql(path, "SELECT DISTINCT colour FROM job") == [(None,)]


async def test_handlers_that_no_job_uses_any_more_are_forgotten(path: Path) -> None:
    """Every claim walks through them: those of jobs that came and went would make it slower for all."""
    async with opened(path) as store:
        for number in range(5):
            await add(store, f"job {number}", handler=f"handler {number}")
        await add(store, "paused", handler="handler 0", state={"phase": Phase.PAUSED})
        await store.remove("default", "job 0", NOON)
        await store.remove("default", "job 1", NOON)
        await edit(store, "job 2", handler="edited")
        await change_state(store, "job 3", disable, NOON)
        await store.purge_disabled(NOON + DAY, 100, NOON + DAY, ended=False)
        await add(store, "again", handler="handler 1")

    names = sql(path, "SELECT name, number FROM handler ORDER BY number")
    assert names == [("handler 0", 1), ("handler 4", 5), ("edited", 6), ("handler 1", 7)], "no number is given twice"


async def test_no_number_of_a_job_is_given_twice(path: Path) -> None:
    """Also by a process that has not seen the jobs that had the highest numbers."""
    numbers = []
    for _ in range(3):
        async with opened(path) as store:
            numbers += [(await add(store, id)).uid for id in ("a", "b")]
            await store.remove("default", "b", NOON)
            await store.remove("default", "a", NOON)

    assert numbers == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("damage", [2**60, -1, "x", None], ids=str)
async def test_a_damaged_sequence_gives_no_number_twice(path: Path, damage: object) -> None:
    """A process that knows the job with that number would run another one with its payload."""
    async with opened(path) as store:
        first = await add(store, "a")
        await store.remove("default", "a", NOON)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'job'", (damage,))

    async with opened(path) as store:
        second = await add(store, "b")
        await store.remove("default", "b", NOON)
    async with opened(path) as store:
        third = await add(store, "c")

    assert first.uid == 1
    assert second.uid != third.uid


async def test_a_job_that_is_removed_and_one_that_comes_leave_no_handler_behind(path: Path) -> None:
    """All in one transaction, in whatever order."""
    async with opened(path) as store:
        await add(store, "a", handler="one")
        await add(store, "b", handler="two")
        changes = [editing("a", handler="two"), adding("c", handler="one"), editing("b", handler="three")]
        await store.change(changes, NOON)
        node = await store.join(identity("here"), NOON)
        assert claimed_ids(await claim(store, node, handlers=["one"])) == ["c"]
        assert claimed_ids(await claim(store, node, handlers=["two"])) == ["a"]
        assert claimed_ids(await claim(store, node, handlers=["three"])) == ["b"]

    assert sorted(sql(path, "SELECT name FROM handler")) == [("one",), ("three",), ("two",)]


async def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a schema would be refused by the old version and by the new."""
    await make_store(path)
    statements = ("ALTER TABLE job ADD COLUMN colour TEXT", "ALTER TABLE nowhere ADD COLUMN colour TEXT")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, statements))
    before = contents(path.parent)

    await assert_refused(path, "nowhere")

    assert contents(path.parent) == before


async def test_a_read_only_store_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that cannot record what it ran must not run anything."""
    await make_store(path)
    before = path.read_bytes()
    open_for_reading(monkeypatch)

    await assert_refused(path, r"is read-only for this user\. Make the file and its directory writable")

    assert path.read_bytes() == before


async def test_an_empty_file_that_is_read_only_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where already the schema cannot be written."""
    path.touch()
    open_for_reading(monkeypatch)

    await assert_refused(path, "is read-only for this user")

    assert contents(path.parent) == {path.name: b""}


def open_for_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite open files as it does where it may not write: permissions mean nothing to an administrator."""
    connect = sqlite3.connect

    def connect_for_reading(path: str, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(f"{Path(path).as_uri()}?mode=ro", uri=True, **options)
        return db

    monkeypatch.setattr(sqlite3, "connect", connect_for_reading)


def use_connections(monkeypatch: pytest.MonkeyPatch, kind: type[sqlite3.Connection]) -> None:
    """Let stores open connections of this kind."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, factory=kind, **options))


# ---------------------------------------------------------------- locked


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT", 0.01)


@pytest.mark.usefixtures("impatient")
async def test_a_store_that_another_program_writes_to_is_reported_as_locked(path: Path) -> None:
    """A forgotten transaction in a database shell: the message must say what to look for."""
    await make_store(path)
    with plain(path) as db:
        db.execute("BEGIN IMMEDIATE")

        await assert_refused(path, "is locked by another program: it was not released within 0.01 s")

    async with opened(path) as store:
        assert len(await ids(store)) == 3


@pytest.mark.usefixtures("impatient")
async def test_a_new_file_that_another_program_holds_is_reported_as_locked(path: Path) -> None:
    """Before it is a store, a lock keeps even readers out."""
    with plain(path) as db:
        db.execute("BEGIN EXCLUSIVE")

        await assert_refused(path, "is locked by another program")

    assert sql(path, "SELECT count(*) FROM sqlite_schema") == [(0,)]


@pytest.mark.usefixtures("impatient")
async def test_a_lock_stops_writing_for_as_long_as_it_lasts(path: Path) -> None:
    """Reading goes on, the write that failed changed nothing, and the next one works."""
    async with opened(path) as store:
        job = await add(store, "a")
        with plain(path) as db:
            db.execute("BEGIN IMMEDIATE")

            with pytest.raises(StoreError, match="is locked"):
                await add(store, "b")
            assert await store.list_jobs(JobFilter()) == [job]

        await add(store, "b")
        assert await ids(store) == ["a", "b"]


# ---------------------------------------------------------------- a full disk


async def test_a_full_disk_loses_nothing_and_works_again_once_there_is_room(store: SQLiteStore, node: int) -> None:
    """The change that did not fit was not made at all; everything else goes on."""
    job = await add(store, "a")
    writer = writer_of(store)
    pages = await ask(writer, "PRAGMA page_count")
    assert await ask(writer, "PRAGMA max_page_count = 1") == pages

    with pytest.raises(StoreError, match=r"the disk is full\. Nothing was changed\. Free some space"):
        await store.change([adding(f"{number}", payload="x" * 4000) for number in range(50)], NOON)

    assert not await is_in_transaction(writer)
    assert await store.list_jobs(JobFilter()) == [job]
    await ask(writer, "PRAGMA max_page_count = 1000000")
    await store.change([adding(f"{number}", payload="x" * 4000) for number in range(50)], NOON)
    assert len((await claim(store, node)).runs) == 51


async def test_a_run_that_ends_on_a_full_disk_can_be_recorded_later(store: SQLiteStore, node: int) -> None:
    """The engine keeps the ending until the store takes it; the run must still be ours then."""
    await add(store, "a")
    run = await claim_only(store, node)
    ending = Ending(outcome=Outcome.SUCCESS, message="x" * 1_000_000)
    writer = writer_of(store)
    await ask(writer, "PRAGMA max_page_count = 1")

    with pytest.raises(StoreError, match="the disk is full"):
        await finish(store, run, ending)

    assert await store.held(node) == {run.id}
    await ask(writer, "PRAGMA max_page_count = 1000000")
    assert await finish(store, run, ending) is not None
    assert [row.outcome for row in await runs(store)] == [Outcome.SUCCESS]


async def test_a_disk_without_room_for_a_new_store_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the half-made file is no obstacle once there is room."""

    class Cramped(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.execute("PRAGMA max_page_count = 3")

    with monkeypatch.context() as patched:
        use_connections(patched, Cramped)
        await assert_refused(path, "the disk is full")

    async with opened(path) as store:
        await add(store, "a")


# ---------------------------------------------------------------- deleted or replaced


async def test_a_file_that_was_deleted_is_noticed(store: SQLiteStore, path: Path) -> None:
    """SQLite would go on writing into nowhere."""
    path.unlink()

    with pytest.raises(StoreError, match=r"was deleted or replaced while it was open.*Stop the scheduler"):
        await store.check()


async def test_a_file_that_was_replaced_is_noticed(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    """A backup that is restored under a running scheduler, say, even if it is the very same."""
    await add(store, "a")
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    await store.check()

    copy.replace(path)

    with pytest.raises(StoreError, match="was deleted or replaced"):
        await store.check()


async def test_opening_again_after_a_replacement_reads_the_new_file(path: Path) -> None:
    """That is what the message advises; nothing of the old file may be remembered."""
    store = SQLiteStore(path)
    await store.open()
    node = await store.join(identity("first"), NOON)
    await add(store, "old", handler="old")
    await claim(store, node, handlers=["old"])
    await store.close()
    path.unlink()
    async with opened(path) as another:
        await add(another, "new", handler="new")

    await store.open()
    node = await store.join(identity("second"), NOON)

    try:
        assert await ids(store) == ["new"]
        assert (await job_of(store, "new")).handler == "new"
        assert claimed_ids(await claim(store, node, handlers=["old"])) == []
        assert claimed_ids(await claim(store, node, handlers=["new"])) == ["new"]
    finally:
        await store.close()


# ---------------------------------------------------------------- other processes


async def test_a_file_that_another_process_prepares_meanwhile_is_recognised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes start on a new file: what the first makes between two looks of the second is a store."""
    started: list[bool] = []
    connect = sqlite3.connect

    def overtake() -> None:
        started.append(True)
        other = connect(path, isolation_level=None, timeout=0)
        with contextlib.suppress(sqlite3.OperationalError):  # locked out is as good
            sqlite._prepare(other, "NORMAL")
        other.close()

    class Overtaken(sqlite3.Connection):
        def execute(self, statement: Any, *values: Any) -> Any:
            if statement == "PRAGMA user_version" and not started:
                overtake()
            return super().execute(statement, *values)

    use_connections(monkeypatch, Overtaken)

    async with opened(path) as store:
        await add(store, "a")

    assert started
    assert sql(path, "SELECT id FROM job") == [("a",)]


@pytest.mark.parametrize("again", range(8))
async def test_many_connections_open_a_new_file_at_once(path: Path, again: int) -> None:
    """They all succeed, and find one schema; several times, since it is a matter of moments."""
    stores = [SQLiteStore(path) for _ in range(4)]

    try:
        await asyncio.gather(*(store.open() for store in stores))

        await add(stores[0], "a")
        assert [await ids(store) for store in stores] == [["a"]] * 4
    finally:
        for store in stores:
            await store.close()


async def test_many_connections_upgrade_a_file_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is taken once, by whoever comes first."""
    await make_store(path)
    monkeypatch.setattr(
        sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, ("ALTER TABLE job ADD COLUMN colour TEXT",))
    )
    stores = [SQLiteStore(path) for _ in range(4)]

    try:
        await asyncio.gather(*(store.open() for store in stores))

        assert [len(await ids(store)) for store in stores] == [3, 3, 3, 3]
    finally:
        for store in stores:
            await store.close()
    assert sql(path, "PRAGMA user_version") == [(len(sqlite_schema.MIGRATIONS),)]


@pytest.mark.parametrize("statement", ["DELETE FROM job WHERE id = 'a'", "UPDATE job SET revision = 2, name = 'New'"])
async def test_what_another_process_does_in_the_middle_of_reading_does_not_show(
    store: SQLiteStore, path: Path, statement: str
) -> None:
    """Every method is one transaction: a job is read as it was before, or as it is after, and never raises."""
    before = [await add(store, "a"), await add(store, "b")]
    async with opened(path) as fresh:
        interfere = once_before("FROM job j\n", lambda: sql(path, statement))
        await trace(reader_of(fresh), interfere)

        assert await fresh.list_jobs(JobFilter()) == before

        await trace(reader_of(fresh), None)


async def test_a_job_that_is_removed_in_the_middle_of_reading_is_there_or_not(store: SQLiteStore, path: Path) -> None:
    """The same for a single job."""
    job = await add(store, "a")
    async with opened(path) as fresh:
        interfere = once_before("FROM job j\n", lambda: sql(path, "DELETE FROM job"))
        await trace(reader_of(fresh), interfere)

        assert await fresh.get("default", "a") in (job, None)

        await trace(reader_of(fresh), None)


def once_before(fragment: str, action: Callable[[], object]) -> Callable[[str], None]:
    """What to do, once, before a statement with this fragment that is not a join."""
    done: list[bool] = []

    def watch(statement: str) -> None:
        if fragment in statement and "JOIN" not in statement and not done:
            done.append(True)
            action()

    return watch


# ---------------------------------------------------------------- broken rows

BROKEN = [
    pytest.param("schedule", '{"version": 1, "kind"', id="schedule cut off"),
    pytest.param("schedule", "[]", id="schedule of another form"),
    pytest.param("schedule", '{"version": 99, "kind": "every"}', id="schedule of a newer version"),
    pytest.param("schedule", "Europe/Atlantis", id="zone gone"),
    pytest.param("retry", '{"version": 1', id="retry cut off"),
    pytest.param("priority", "urgent", id="unknown priority"),
    pytest.param("misfire", "explode", id="unknown misfire"),
    pytest.param("on_interrupt", "panic", id="unknown on_interrupt"),
    pytest.param("payload", '{"to": ', id="payload cut off"),
    pytest.param("metadata", '{"team": ', id="metadata cut off"),
]


def break_row(path: Path, column: str, value: str) -> None:
    """Break the row of the job "bad"."""
    if value == "Europe/Atlantis":
        ((schedule,),) = sql(path, "SELECT schedule FROM job WHERE id = 'bad'")
        value = schedule.replace("Europe/Stockholm", value)
        assert "Atlantis" in value
    sql(path, f"UPDATE job SET {column} = ? WHERE id = 'bad'", value)


async def make_broken(path: Path, column: str, value: str) -> None:
    """Three jobs that are due, the first of which cannot be read."""
    async with opened(path) as store:
        await add(store, "bad", STOCKHOLM, priority="high", metadata={"team": "blue"}, state={"next_run_at": NOON})
        await add(store, "good", metadata={"team": "blue"})
        await add(store, "fine", metadata={"team": "blue"})
    break_row(path, column, value)


@pytest.mark.parametrize(("column", "value"), BROKEN)
async def test_a_row_that_cannot_be_read_disables_its_job_and_no_other(path: Path, column: str, value: str) -> None:
    """It never stops the pass, it leaves a reason, and it is not looked at again and again."""
    await make_broken(path, column, value)
    async with opened(path) as store:
        node = await store.join(identity("first"), NOON)

        claims = await claim(store, node)

        assert claimed_ids(claims) == ["fine", "good"]
        assert [(told.job.id, told.kind) for told in claims.edits] == [("bad", "disabled")]
        bad = await job_of(store, "bad")
        assert bad.status is Status.DISABLED
        assert bad.disabled_reason is not None
        assert "cannot be read from the store" in bad.disabled_reason
        assert (bad.state.disabled_at, bad.state.next_run_at) == (NOON, None)
        assert not (await claim(store, node, NOON + DAY)).edits
    assert sql(path, "SELECT phase FROM state JOIN job USING (uid) WHERE job.id = 'bad'") == [("disabled",)]


@pytest.mark.parametrize(("column", "value"), BROKEN)
async def test_a_row_that_cannot_be_read_hides_no_other(path: Path, column: str, value: str) -> None:
    """A list shows it as disabled, with the reason, among all the others."""
    await make_broken(path, column, value)
    async with opened(path) as store:
        listed = {job.id: job for job in await store.list_jobs(JobFilter())}

        assert sorted(listed) == ["bad", "fine", "good"]
        assert [id for id, job in listed.items() if not job.enabled] == ["bad"]
        assert listed["bad"] == await store.get("default", "bad")
        assert {"fine", "good"} <= set(await ids(store, metadata={"team": "blue"}))
        removed = await store.remove("default", "bad", NOON)
        assert removed is not None


async def test_what_can_be_read_again_is_as_it_was(path: Path) -> None:
    """A zone may be missing for a moment, while the zone database is upgraded."""
    await make_broken(path, "schedule", "Europe/Atlantis")
    async with opened(path) as store:
        node = await store.join(identity("first"), NOON)
        broken = await job_of(store, "bad")
        sql(path, "UPDATE job SET schedule = replace(schedule, 'Europe/Atlantis', 'Europe/Stockholm')")

        assert (broken.status, (await job_of(store, "bad")).status) == (Status.DISABLED, Status.IDLE)
        await edit(store, "bad", name="New")
        assert "bad" in claimed_ids(await claim(store, node))


async def test_what_cannot_be_read_is_not_overwritten(path: Path) -> None:
    """A zone may come back with the next update of the zone database; a pause or a resume must not replace it."""
    await make_broken(path, "schedule", "Europe/Atlantis")
    before = sql(path, "SELECT schedule FROM job WHERE id = 'bad'")
    async with opened(path) as store:
        with contextlib.suppress(StoreError, InvalidJobError):
            await edit(store, "bad", name="New")
        for change in (edits.pause, edits.resume):
            with contextlib.suppress(StoreError, InvalidJobError):
                await change_state(store, "bad", change)

    assert sql(path, "SELECT schedule FROM job WHERE id = 'bad'") == before


async def test_a_run_whose_job_cannot_be_read_any_more_can_still_end(path: Path) -> None:
    """Otherwise it would run for ever, and take the others of its batch along."""
    async with opened(path) as store:
        node = await store.join(identity("first"), NOON)
        await add(store, "bad", STOCKHOLM, state={"next_run_at": NOON})
        await add(store, "good")
        taken = (await claim(store, node)).runs
        break_row(path, "schedule", "Europe/Atlantis")
        async with opened(path) as fresh:
            answers = await fresh.finish([ended(run) for run in taken], RULES)

    assert None not in answers
    assert sql(path, "SELECT outcome FROM run") == [("success",), ("success",)]


@pytest.mark.parametrize(("column", "value"), [("payload", '{"to":'), ("timeout", -1), ("schedule", "{")])
async def test_a_job_that_cannot_be_read_is_not_run_by_hand(path: Path, column: str, value: object) -> None:
    """Its handler would get a payload that nobody has given it, and its state would be overwritten."""
    async with opened(path) as store:
        node = await store.join(identity("first"), NOON)
        await add(store, "bad", HOURLY)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE job SET {column} = ?", (value,))
        before = db.execute("SELECT * FROM state").fetchall()

    async with opened(path) as store:
        with pytest.raises(StoreError, match=f"{column}.*Set a new {column}"):
            await store.claim_one("default", "bad", None, NOON, node=node, queued=False)

    assert sql(path, "SELECT * FROM state") == before


async def test_jobs_are_listed_while_one_that_cannot_be_read_is_repaired(path: Path) -> None:
    """The thread that reads must not rely on what the thread that writes has just forgotten."""
    async with opened(path) as store:
        await store.change([adding(f"job {number}", HOURLY) for number in range(300)], NOON)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE job SET priority = 'zz'")

    async with opened(path) as store:

        async def repair() -> None:
            for number in range(300):
                await edit(store, f"job {number}", priority="high")

        repairing = asyncio.create_task(repair())
        while not repairing.done():
            jobs = await store.list_jobs(JobFilter())
            assert len(jobs) == 300
        await repairing


@pytest.mark.parametrize("owner", [0, None, -3, 77])
async def test_a_claim_of_no_node_is_recovered_whatever_its_number(path: Path, owner: int | None) -> None:
    async with opened(path) as store:
        await add(store, "a", HOURLY, state={"next_run_at": NOON})
        node = await store.join(identity("first"), NOON)
        await claim_only(store, node)
        sql(path, f"UPDATE state SET node = {'NULL' if owner is None else owner}")

        lost = [row for row in await store.beat(node) if row.id != node]
        recovered = await store.recover(lost, NOON + MINUTE, RULES)

    assert [edit.job.id for edit, _ in recovered] == ["a"]


async def test_a_refusal_forgets_nothing(path: Path) -> None:
    """A program may add what is there already a hundred times a second."""
    async with opened(path) as store:
        await add(store, "a")
        with pytest.raises(JobExistsError):
            await add(store, "a")
        read: list[str] = []
        await store._call(store._reader, lambda db: db.set_trace_callback(read.append))
        await job_of(store, "a")

    assert not [statement for statement in read if "j.schedule" in statement]


async def test_a_run_whose_job_cannot_be_read_any_more_can_be_recovered(path: Path) -> None:
    """It is disabled as of now: a moment long ago would have it purged at once."""
    async with opened(path) as store:
        dead, alive = [await store.join(identity(name), NOON) for name in ("dead", "alive")]
        await add(store, "bad", STOCKHOLM, state={"next_run_at": NOON})
        await claim_only(store, dead)
        seen = await node_row(store, dead, seen_by=alive)
    break_row(path, "schedule", "Europe/Atlantis")
    async with opened(path) as store:
        ((told, _),) = await store.recover([seen], NOON + MINUTE, RULES)

        assert told.job.status is Status.DISABLED
        assert (await store.purge_disabled(NOON, 10, NOON, ended=False)) == []
        assert await ids(store) == ["bad"]
    assert sql(path, "SELECT outcome FROM run") == [("interrupted",)]


async def test_more_jobs_than_are_remembered_can_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptions are kept in a memory of limited size; what drops out of it while a list is read is read again."""
    monkeypatch.setattr(sqlite_base, "REMEMBERED", 4)
    async with opened(path) as store:
        node = await store.join(identity("first"), NOON)
        await store.change([adding(f"{number}", HOURLY) for number in range(8)], NOON)
        for number in range(4, 8):
            await job_of(store, f"{number}")

        assert await ids(store) == [f"{number}" for number in range(8)]
        for number in range(4, 8):
            await job_of(store, f"{number}")
        assert len((await claim(store, node, NOON + HOUR)).runs) == 8


async def test_a_job_that_was_not_added_leaves_nothing_to_the_one_that_gets_its_number(path: Path) -> None:
    """Descriptions are remembered as they are written, and a write may be undone."""
    first = adding("a", HOURLY, payload="never added")
    async with opened(path) as store, opened(path) as other:
        with pytest.raises(StoreError):
            await store.change([first, Decision("default", "b", lambda _: first.decide(None))], NOON)
        await add(other, "c", payload="added")

        assert (await job_of(store, "c")).payload == "added"


# ---------------------------------------------------------------- the cost

QUERIES: dict[str, Any] = {
    "SELECT_DUE_SINCE": {"handlers": "[1, 2]", "since": 0, "now": NOON},
    "SELECT_FEW_DUE": {"handlers": "[1, 2]", "since": 0, "now": NOON, "most": 5},
    "SELECT_FIRST": {"handlers": "[1, 2]", "uids": "[1, 2]", "now": NOON},
    "NEXT_DUE": {"now": NOON},
    "NEXT_DUE_OF_MANY": {"now": NOON, "handlers": "[1]"},
    "COUNT_NEXT_OF_MANY": {"at": NOON, "most": 5, "handlers": "[1]"},
    "UNHANDLED_OF_MANY": {"now": NOON, "handlers": "[1]"},
    "UNHANDLED": {"now": NOON, "handlers": "[1]"},
    "RUNNING_BY_GROUP": (),
    "SELECT_HELD": {"node": 1},
    "SELECT_CLAIMED": ("[1, 2]",),
    "FIND_JOB": ("default", "a"),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_no_query_of_a_pass_reads_a_whole_table(store: SQLiteStore, path: Path, name: str) -> None:
    """A pass costs what is due, not what there is."""
    assert_frugal(path, (vars(sqlite_base) | vars(sqlite_claims))[name], QUERIES[name])


COPY_QUERIES: dict[str, Any] = {
    "READ_JOBS": (0, 500),
    "READ_RUNS": (0, 1_000),
    "FIND_RECORDS": ('[["default", "a"]]',),
    "FIND_UIDS": ('[["default", "a"]]',),
    "FIND_ATTEMPT": (1, NOON, 1),
    "FIND_OTHER": (1, NOON, 1, "manual", NOON),
}


@pytest.mark.parametrize("name", COPY_QUERIES)
async def test_no_query_of_a_slice_reads_a_whole_table(store: SQLiteStore, path: Path, name: str) -> None:
    """A copy costs what there is, and not its square."""
    assert_frugal(path, getattr(sqlite_copying, name), COPY_QUERIES[name])


def assert_frugal(path: Path, query: str, parameters: Any) -> None:
    with plain(path) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", parameters)]
    tables = ("s", "d", "r", "j", "state", "job", "run")
    reads = [step for step in plan if step.split()[0] in ("SCAN", "SEARCH") and step.split()[1] in tables]
    assert reads
    # The index of what is claimed has no other rows in it, so that reading all of it is no more than that.
    assert [step for step in reads if step.startswith("SCAN") and "state_claimed" not in step] == []


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every journey to the connection's thread, and how many pieces of work went together."""
    seen: list[int] = []
    send = Connection._send

    def counted(self: Connection) -> None:
        seen.append(len(self._waiting))
        send(self)

    monkeypatch.setattr(Connection, "_send", counted)
    return seen


async def test_a_batch_costs_one_hop_however_large_it_is(store: SQLiteStore, node: int, hops: list[int]) -> None:
    """A hop takes longer than thirty statements."""
    await store.change([adding(f"{number:03}", group="g") for number in range(200)], NOON)
    taken: Sequence[Any] = []

    async def claim_all() -> None:
        nonlocal taken
        taken = (await claim(store, node, limit=500, slots=100, group_limits={"g": 300})).runs

    dead = await store.join(identity("dead"), NOON)
    seen = NodeRow(id=dead, identity=identity("dead"), beat=0, since=NOON)
    for work in (
        claim_all,
        lambda: store.start(taken[100:], NOON),
        lambda: store.release(taken[150:]),
        lambda: store.finish([ended(run) for run in taken[:150]], RULES),
        lambda: claim(store, dead, NOON),
        lambda: store.recover([seen], NOON + SECOND, RULES),
        lambda: store.change([adding(f"new {number}") for number in range(50)], NOON),
        lambda: store.list_jobs(JobFilter()),
    ):
        hops.clear()
        await work()
        assert hops == [1]
    assert len(taken) == 200


async def steps_of_a_claim(store: SQLiteStore, node: int) -> int:
    """How many instructions SQLite carries out for a claim that finds nothing."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await writer_of(store).call(lambda db: db.set_progress_handler(count, 1))
    claims = await claim(store, node, handlers=["h"], group_limit=5)
    await writer_of(store).call(lambda db: db.set_progress_handler(count, 0))
    assert not claims.runs
    assert claims.next_due == NOON + HOUR
    return steps


async def test_a_look_at_nothing_due_costs_the_same_with_a_hundred_times_the_jobs(
    store: SQLiteStore, node: int
) -> None:
    """The index is the heap: a pass does not grow with the number of jobs."""
    await store.change([adding(f"{number}", HOURLY, group="g") for number in range(100)], NOON)
    few = await steps_of_a_claim(store, node)

    await store.change([adding(f"{number}", HOURLY, group="g") for number in range(100, 10_000)], NOON)
    many = await steps_of_a_claim(store, node)

    assert 0 < many <= 2 * few


# ---------------------------------------------------------------- together


async def test_writes_that_are_made_at_once_share_a_journey_and_a_commit(
    store: SQLiteStore, path: Path, hops: list[int]
) -> None:
    """To wake the thread and to commit take longer than everything else about a small change."""
    said: list[str] = []
    await trace(writer_of(store), said.append)
    hops.clear()

    await asyncio.gather(*(add(store, f"{number}") for number in range(20)))

    assert hops == [20]
    assert said.count("COMMIT") == 1
    assert len(sql(path, "SELECT id FROM job")) == 20


async def test_a_write_that_is_refused_leaves_the_others_as_they_are(store: SQLiteStore) -> None:
    """Each of them is a transaction, whatever it shares with others."""
    await add(store, "taken")
    both = [adding("new"), adding("taken")]

    *added, refused = await asyncio.gather(
        add(store, "a"), add(store, "b"), store.change(both, NOON), return_exceptions=True
    )

    assert [getattr(job, "id", job) for job in added] == ["a", "b"]
    assert isinstance(refused, JobExistsError)
    assert await ids(store) == ["a", "b", "taken"]


async def test_an_ending_of_an_edited_job_shares_a_commit_with_other_writes(store: SQLiteStore, node: int) -> None:
    """It begins again when it finds the edit, and must not undo what others have written."""
    job = await add(store, "a", handler="h")
    run = await claim_only(store, node)
    await change_state(store, job.id, edits.pause)

    _, left = await asyncio.gather(add(store, "b"), finish(store, run, Ending(outcome=Outcome.SUCCESS)))

    assert left is not None
    assert left.job.status == "paused"
    assert sorted(await ids(store)) == ["a", "b"]


async def test_when_the_disk_is_full_all_writes_that_share_a_commit_fail(store: SQLiteStore) -> None:
    writer = writer_of(store)
    await ask(writer, "PRAGMA max_page_count = 1")

    failures = await asyncio.gather(
        *(add(store, f"{number}", payload="x" * 100_000) for number in range(3)), return_exceptions=True
    )

    assert all("the disk is full" in str(failure) for failure in failures)
    assert not await is_in_transaction(writer)
    await ask(writer, "PRAGMA max_page_count = 1000000")
    await add(store, "next")
    assert await ids(store) == ["next"]


# ---------------------------------------------------------------- cancelling


async def test_a_write_whose_caller_is_cancelled_is_whole(store: SQLiteStore) -> None:
    """The caller goes when the thread is done with it, so that its event loop cannot end before; all is committed."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: Job | None) -> Transition | None:
        begun.set()
        assert go_on.wait(timeout=10)
        return None

    changes = [adding("a"), Decision(namespace="default", id="-", decide=wait), adding("b")]
    task = asyncio.create_task(store.change(changes, NOON))
    await asyncio.to_thread(begun.wait, 10)

    task.cancel()
    assert await ids(store) == []
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not await is_in_transaction(writer_of(store))
    assert await ids(store) == ["a", "b"]


@pytest.mark.parametrize("turns", range(4))
async def test_a_write_that_is_cancelled_at_any_moment_is_whole_or_was_not_begun(
    store: SQLiteStore, turns: int
) -> None:
    """Whenever the cancellation comes, half a change is never seen, and the next write works."""
    task = asyncio.create_task(store.change([adding(f"{number}") for number in range(20)], NOON))
    for _ in range(turns):
        await asyncio.sleep(0)

    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await add(store, "next")

    assert not await is_in_transaction(writer_of(store))
    assert len(await ids(store)) == (21 if turns else 1)


async def test_opening_can_be_cancelled(path: Path) -> None:
    """No thread stays behind, and the file can be opened again."""
    for turns in range(6):
        store = SQLiteStore(path)
        with nothing_left_behind():
            task = asyncio.create_task(store.open())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await store.close()
        gc.collect()  # Python 3.13 warns of a connection that nobody closed

    async with opened(path) as store:
        await add(store, "a")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "id",
    ["", " a", "a ", "a\nb", "a\x00b", "\ud800", "a" * 201, "\u200b", 7, b"a", ["a"]],
    ids=ascii,
)
async def test_a_bad_id_never_reaches_the_store(path: Path, id: Any) -> None:
    """It is refused when it is given, by name, and nothing changes."""
    async with opened(path):
        before = contents(path.parent)
        with pytest.raises(InvalidJobError, match="id must"):
            JobSpec(EVERY_MINUTE, handler="h", id=id)
        assert contents(path.parent) == before


async def test_ids_and_payloads_of_all_kinds_round_trip_through_the_file(path: Path) -> None:
    """What one process writes, another reads: letter by letter."""
    names = ["'; DROP TABLE job; --", "Robert'); --", "日本語", "e\u0301", "é", "🐍", "a" * 200, "ß", "SS", "%_"]
    async with opened(path) as store:
        await store.change([adding(name, payload={name: [name]}, namespace=name) for name in names], NOON)

    async with opened(path) as store:
        assert sorted(await ids(store)) == sorted(names)
        for name in names:
            job = await job_of(store, name, name)
            assert (job.id, job.namespace, job.payload) == (name, name, {name: [name]})
    assert sql(path, "SELECT count(*) FROM job") == [(len(names),)]
    stored = [payload for (payload,) in sql(path, "SELECT payload FROM job")]
    assert sorted(next(iter(json.loads(payload))) for payload in stored) == sorted(names)


# ---------------------------------------------------------------- who may read it


def modes(path: Path) -> dict[str, int]:
    """The permissions of a store's files."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(f"{path.name}*")}


@pytest.fixture
def umask() -> Iterator[Callable[[int], object]]:
    before = os.umask(0)
    yield os.umask
    os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")
async def test_only_the_owner_can_read_a_new_store(path: Path, umask: Callable[[int], object]) -> None:
    """The file, its log and its shared memory: jobs hold commands and payloads."""
    umask(0)
    store = SQLiteStore(path)

    await store.open()
    found = modes(path)
    await store.close()

    assert found == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")
async def test_a_file_that_is_there_keeps_its_mode(path: Path) -> None:
    """Whoever shares a store with a group has said so."""
    path.touch()
    path.chmod(0o660)
    store = SQLiteStore(path)

    await store.open()
    found = modes(path)
    await store.close()

    assert set(found.values()) == {0o660}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")
async def test_what_a_link_points_to_is_made_for_its_owner_too(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    store = SQLiteStore(link)

    await store.open()
    await store.close()

    assert modes(path) == {"jobs.db": 0o600}


async def test_making_a_store_that_is_there_drops_no_locks(path: Path) -> None:
    """POSIX forgets the locks of a process on a file when it closes that file, however often it has it open."""
    first, second = SQLiteStore(path), SQLiteStore(path)
    await first.open()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    await second.open()
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    other = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True, text=True)

    holder.close()
    await first.close()
    await second.close()
    assert "database is locked" in other.stderr
