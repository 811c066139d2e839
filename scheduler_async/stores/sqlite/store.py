"""The store in a SQLite file: its connections and its errors. `work` contains the queries.

A connection has a thread, and a piece of work for it is a whole transaction. So it takes one hop for any number of
jobs, transactions never mix, and a cancelled caller leaves no transaction open.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from errno import ENAMETOOLONG
from functools import partial
from logging import INFO
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from scheduler_async.errors import StoreBusyError, StoreError, StoreOutdatedError, quoted
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.logs import say
from scheduler_async.rules.terms import Transition
from scheduler_async.shielding import carried_through
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import (
    MIGRATED,
    ClaimTerms,
    NodeIdentity,
    NodeLife,
    NodeRow,
    NodeStatus,
    UnstorableError,
)
from scheduler_async.stores.protocol import documented
from scheduler_async.stores.sqlite import connection as connections
from scheduler_async.stores.sqlite.base import data_version, in_transaction
from scheduler_async.stores.sqlite.connection import Connection, ConnectionClosedError, Together
from scheduler_async.stores.sqlite.pages import LONGEST, in_time
from scheduler_async.stores.sqlite.schema import migrate, newest, recognise, require_current
from scheduler_async.stores.sqlite.work import Work
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import Micros

OLDEST_SQLITE: Final = (3, 37, 0)  # for STRICT tables

# ---------------------------------------------------------------- the store

# Processes that create a new file at the same time conflict at most this often.
MAX_WAL_ATTEMPTS = 20

# While another process migrates a large store, the others wait so often for up to BUSY_TIMEOUT: for ten minutes.
MAX_MIGRATION_ATTEMPTS = 120

# Pages for operators look at rows all over the file. This is what SQLite may keep of it for them.
PAGES_CACHED = 16_384  # KiB

# SQLite appends up to eight bytes for its other files, and accepts at most 512.
LONGEST_PATH = 504  # bytes

# Jobs contain commands, payloads and outputs, which only their owner may read. SQLite's other files get the same mode.
FILE_MODE = 0o600

P = ParamSpec("P")
T = TypeVar("T")

Transaction: TypeAlias = Callable[Concatenate[Work, sqlite3.Connection, P], T]
Operation: TypeAlias = Callable[Concatenate["SQLiteStore", P], Coroutine[Any, Any, T]]


def reading(transaction: Transaction[P, T]) -> Operation[P, T]:
    """Make an operation of the store from a *transaction* that changes nothing."""

    async def operation(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._read(partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


def paging(transaction: Transaction[P, T]) -> Operation[P, T]:
    """Make an operation of the store from a *transaction* for a page, which is cut off if it takes too long."""

    async def operation(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._page(partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


def writing(transaction: Transaction[P, T]) -> Operation[P, T]:
    """Make an operation of the store from a *transaction*."""

    async def operation(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._write(partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


def recording(transaction: Transaction[P, T]) -> Operation[P, T]:
    """Make an operation of the store from a *transaction* about runs of this process."""

    async def operation(store: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._record(partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


class SQLiteStore:
    """Stores jobs in a SQLite file. Every process on this machine can share it.

    A new file has mode 0600: only its owner can read it. An existing file keeps its mode. With `synchronous="NORMAL"`,
    a killed process loses nothing, and a power cut may lose the last commits. "FULL" survives a power cut, and costs a
    disk flush for each commit.
    """

    def __init__(self, path: str | Path, *, synchronous: str = "NORMAL") -> None:
        self.path = str(path)
        if synchronous.upper() not in ("NORMAL", "FULL", "EXTRA"):
            raise StoreError(f'synchronous must be "NORMAL", "FULL" or "EXTRA", not {synchronous!r}.')
        if self.path == ":memory:":
            raise StoreError('":memory:" is not a file. Use MemoryStore() to keep jobs in memory.')
        self._synchronous = synchronous.upper()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._pager: Connection | None = None  # opened with the first page
        self._opening = asyncio.Lock()
        self._event_loop: asyncio.AbstractEventLoop | None = None  # the event loop of the connections
        self._inode: tuple[int, int] | None = None
        self._clock = SystemClock()  # all nodes share the clock of the machine
        self._work = Work()

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change the store."""
        return True

    @property
    def clock(self) -> None:
        """None: all nodes are on one machine, and use its clock."""
        return None

    @property
    def decisions(self) -> Decisions:
        """Decisions that transactions need, and that are made outside of them."""
        return self._work.decisions

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Ignore *listener*. Changes by other processes show in `version`."""

    async def ending_of(self, _run: int) -> None:
        """Return None: nothing tells of changes by other processes."""

    async def open(self) -> None:
        """Open or create the file, and migrate an older schema."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise StoreError(f"The store needs SQLite {oldest} or newer; this Python has {sqlite3.sqlite_version}.")
        await self.close()  # an earlier attempt may have failed
        self._work = Work()  # the file may have been replaced
        try:
            # A connection that opens must be closed, too.
            await carried_through(self._open())
        except GeneratorExit:  # the event loop was closed, and cannot close connections: the next attempt will
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections."""
        await carried_through(self._close())

    async def _open(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._opening = asyncio.Lock()
        _create_file(self.path)
        # Side by side: each waits for a thread of its own to start.
        opened = await asyncio.gather(self._open_writer(), self._open_reader(), return_exceptions=True)
        for problem in filter(None, opened):
            raise problem
        self._inode = self._identify_file()

    async def _open_writer(self) -> None:
        self._writer = await self._connect()
        version = await self._call(self._writer, _prepare, self._synchronous)
        if 0 < version < newest():
            say(INFO, MIGRATED, self.path, version, newest())

    async def _open_reader(self) -> None:
        self._reader = await self._connect()
        await self._call(self._reader, _prepare_reader)

    async def _open_pager(self) -> None:
        pager = await self._connect()
        try:
            await self._call(pager, _prepare_pager)
        except BaseException:
            await pager.close()
            raise
        if self._writer is None:  # the store was closed meanwhile
            await pager.close()
        else:
            self._pager = pager

    async def _close(self) -> None:
        connections = [connection for connection in (self._pager, self._reader, self._writer) if connection]
        self._writer = self._reader = self._pager = None
        is_abandoned = self._event_loop is not asyncio.get_running_loop()
        for connection in connections:
            if is_abandoned:
                connection.abandon()
            else:
                await connection.close()

    async def _connect(self) -> Connection:
        connection = Connection(self.path)
        try:
            await connection.open()
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return connection

    async def _read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """Do *work* that changes nothing."""
        return await self._call(self._reader, _in_snapshot, work, *args)

    async def _page(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """Do *work* for a page, on a connection of its own: nothing else waits for it."""
        if self._pager is None and self._writer is not None:
            async with self._opening:
                if self._pager is None and self._writer is not None:
                    await self._open_pager()
        return await self._call(self._pager, _in_snapshot, in_time, work, *args)

    async def _write(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """Do *work* in a transaction."""
        return await self._call(self._writer, self._work.write, work, *args, together=self._work.together)

    async def _record(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """Do *work* about runs of this process, which end even after a newer version migrated the store."""
        return await self._call(self._writer, self._work.record, work, *args, together=self._work.together)

    async def _call(
        self, connection: Connection | None, work: Callable[..., T], *args: Any, together: Together | None = None
    ) -> T:
        """Do *work* on the thread of the connection, in one hop."""
        try:
            if connection is None:
                raise ConnectionClosedError
            return await connection.call(work, *args, together=together)
        except ConnectionClosedError:  # perhaps meanwhile
            raise StoreError(f"The store {self.path} is closed.") from None
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", None) == "SQLITE_INTERRUPT":
                raise StoreBusyError(self.path, LONGEST) from None
            raise await self._reason(connection, error) from error
        finally:
            self._work.unreadable_rows.tell()

    def _identify_file(self) -> tuple[int, int]:
        status = Path(self.path).stat()
        return status.st_dev, status.st_ino

    async def _reason(self, connection: Connection | None, error: sqlite3.Error) -> StoreError:
        """Return the cause of *error*. Tables with unknown columns belong to a newer version."""
        if getattr(error, "sqlite_errorname", None) == "SQLITE_ERROR" or isinstance(error, sqlite3.IntegrityError):
            try:
                await self._call(connection, require_current)
            except StoreOutdatedError as outdated:
                return outdated
        return self._explained(error)

    def _explained(self, error: sqlite3.Error) -> StoreError:
        """Return an error that tells the problem and the remedy."""
        name = getattr(error, "sqlite_errorname", "") or ""
        path = Path(self.path)
        sentences = {
            "SQLITE_BUSY": f"is locked by another program: it was not released within {connections.BUSY_TIMEOUT:g} s. "
            "Nothing was changed.",
            "SQLITE_LOCKED": "is locked by another connection of this process.",
            "SQLITE_FULL": "cannot be written: the disk is full. Nothing was changed. Free some space.",
            "SQLITE_NOTADB": "is not a SQLite database. It was not changed. Choose another file.",
            "SQLITE_CORRUPT": "is damaged. Restore it from a backup, or rescue its data with the sqlite3 command "
            ".recover. It was not changed.",
            "SQLITE_READONLY": "is read-only for this user. Make the file and its directory writable.",
            "SQLITE_PERM": "cannot be accessed by this user. Check the permissions of the file and its directory.",
            "SQLITE_IOERR": "could not be read or written: the disk reported an error.",
        }
        sentence = next((text for prefix, text in sentences.items() if name.startswith(prefix)), None)
        if name.startswith("SQLITE_CANTOPEN"):
            if not path.parent.exists():
                sentence = f"cannot be created: the directory {path.parent} does not exist."
            elif path.is_dir():
                sentence = "cannot be opened: it is a directory."
            else:
                sentence = "cannot be opened. Check the permissions of the file and its directory."
        is_refusal = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError) or "binding parameter" in str(error)
        is_refusal &= name != "SQLITE_CONSTRAINT_TRIGGER"  # a trigger refuses rows for other reasons
        kind = UnstorableError if is_refusal else StoreError
        return kind(f"The store {self.path} {sentence or f'failed: {error}.'}")

    # -------------------------------------------------------- operations: for their purpose, see `Store`

    change = writing(Work.change)
    review = writing(Work.review)
    remove = writing(Work.remove)
    get = reading(Work.get)
    list_jobs = reading(Work.list_jobs)
    list_runs = reading(Work.list_runs)
    runs_about = reading(Work.runs_about)
    list_changes = reading(Work.list_changes)
    jobs_page = paging(Work.jobs_page)
    runs_page = paging(Work.runs_page)
    changes_page = paging(Work.changes_page)
    recent_runs = paging(Work.recent_runs)
    count_jobs = paging(Work.count_jobs)
    sample_jobs = paging(Work.sample_jobs)
    tally = paging(Work.tally)
    mark = paging(Work.mark)
    details_of = reading(Work.details_of)
    output_of = reading(Work.output_of)
    request_start = writing(Work.request_start)
    request_cancel = writing(Work.request_cancel)
    report = recording(Work.report)
    running_by_group = reading(Work.running_by_group)
    rate_free_at = reading(Work.rate_free_at)
    settle_starts = recording(Work.settle_starts)

    claim_due = writing(Work.claim_due)
    count_due = reading(Work.count_due)
    earliest_due = reading(Work.earliest_due)
    claim_one = writing(Work.claim_one)

    async def claim_requested(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        """Claim runs that `request_start` has asked for. Return also whether more of them wait."""
        if not await self._read(self._work.are_requested):  # usually: without the lock of a writer
            return [], False
        return await self._write(self._work.claim_requested, now, terms)

    add_backfill = writing(Work.add_backfill)
    get_backfill = reading(Work.get_backfill)
    cancel_backfill = writing(Work.cancel_backfill)

    async def claim_backfills(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], Micros | None]:
        """Claim runs of backfills, oldest occurrences first, within their limits and those of groups."""
        if not await self._read(self._work.are_backfills):  # usually: without the lock of a writer
            return [], None
        return await self._write(self._work.claim_backfills, now, terms)

    start = recording(Work.start)
    release = recording(Work.release)
    finish = recording(Work.finish)

    async def join(self, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None) -> int:
        """Register a node with the names of its *handlers*; None means any name. Return its number."""
        return await self._write(self._work.join, identity, now, self._clock.micros(), handlers)

    async def beat(self, node: int) -> list[NodeRow]:
        """Record a heartbeat of *node*, and return all nodes."""
        return await self._record(self._work.beat, node, self._clock.micros())

    note_handlers = recording(Work.note_handlers)
    held = reading(Work.held)
    cancels = reading(Work.cancels)
    leave = recording(Work.leave)

    async def nodes(self) -> list[NodeStatus]:
        """Return all nodes, including dead ones, ordered by when they joined."""
        return await self._read(self._work.nodes, self._clock.micros())

    async def node_lives(self, since: Micros | None = None, limit: int | None = None) -> list[NodeLife]:
        """Return the lives of nodes, newest first: all of them, or those that did not end before *since*."""
        return await self._read(self._work.node_lives, since, limit, self._clock.micros())

    async def lives_about(self, start: Micros, end: Micros) -> list[NodeLife]:
        """Return the lives of nodes about a time, newest first."""
        return await self._read(self._work.lives_about, start, end, self._clock.micros())

    recover = writing(Work.recover)
    interrupt_unknown = recording(Work.interrupt_unknown)

    disable_without_user = writing(Work.disable_without_user)

    async def resume_paused(self, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        """Resume jobs that were paused until a time that has come. Return also when the next pause ends."""
        first = await self._read(self._work.first_pause_end)  # usually: without the lock of a writer
        if first is None or first > now:
            return [], first
        return await self._write(self._work.resume_paused, now, limit)

    overgrown = reading(Work.overgrown)
    purge_runs = writing(Work.purge_runs)
    purge_removed = writing(Work.purge_removed)
    purge_disabled = writing(Work.purge_disabled)
    purge_history = writing(Work.purge_history)

    count = reading(Work.count)
    read_jobs = reading(Work.read_jobs)
    read_runs = reading(Work.read_runs)
    write_jobs = writing(Work.write_jobs)
    write_runs = writing(Work.write_runs)
    read_changes = reading(Work.read_changes)
    write_changes = writing(Work.write_changes)

    async def version(self) -> int:
        """Return a number that changes when another process has changed the store."""
        # On the writing connection, which does not count its own commits.
        return await self._call(self._writer, data_version)

    async def check(self) -> None:
        """Raise `StoreError` if the file was deleted, replaced or upgraded. SQLite itself would keep writing to it."""
        if self._inode is None:
            return
        try:
            same = self._identify_file() == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(
                f"The store {self.path} was deleted or replaced while it was open, so that changes are lost. "
                "Stop the scheduler and start it again."
            )
        await self._read(require_current)


# ---------------------------------------------------------------- the file

# Closing a file drops all locks of this process on it. SQLite may open a new file only after it was closed.
_creating = Lock()


def _create_file(path: str) -> None:
    """Create the file before SQLite does, so that only its owner can read it. An existing file keeps its mode."""
    try:
        target = os.path.realpath(path)  # SQLite would create it if *path* is a link
        if len(os.fsencode(target)) > LONGEST_PATH:
            raise OSError(ENAMETOOLONG, "too long")
        with _creating:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == ENAMETOOLONG:
            raise StoreError(
                f"The path of a store must have at most {LONGEST_PATH} bytes and no NUL, not {quoted(path)}."
            ) from error
        # The file exists, or SQLite reports the problem.


# ---------------------------------------------------------------- on the thread of the connection


def _in_snapshot(db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    # All statements see the same snapshot, even if other connections write meanwhile.
    db.execute("BEGIN")
    try:
        return work(db, *args)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _prepare(db: sqlite3.Connection, synchronous: str) -> int:
    """Set up the connection, and migrate the schema. Return its previous version."""
    version = _in_snapshot(db, recognise)  # another process may be creating it
    _use_wal(db)
    db.execute(f"PRAGMA synchronous = {synchronous}")
    if version < newest():
        db.execute("PRAGMA foreign_keys = OFF")  # while a table is replaced, references to it are missing
        version = _migrate(db) if version else in_transaction(db, migrate)
    db.execute("PRAGMA foreign_keys = ON")
    return version


def _migrate(db: sqlite3.Connection) -> int:
    """Migrate an older schema. Wait if another process is doing so."""
    for _ in range(MAX_MIGRATION_ATTEMPTS - 1):
        try:
            return in_transaction(db, migrate)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
    return in_transaction(db, migrate)


def _use_wal(db: sqlite3.Connection) -> None:
    # SQLite needs exclusive access for this change, and fails at once if another process makes it too.
    for _ in range(MAX_WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            in_transaction(db, lambda _: None)  # this waits for up to BUSY_TIMEOUT
        else:
            return
    db.execute("PRAGMA journal_mode = WAL")


def _prepare_pager(db: sqlite3.Connection) -> None:
    _prepare_reader(db)
    db.execute(f"PRAGMA cache_size = -{PAGES_CACHED}")


def _prepare_reader(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA query_only = ON")
