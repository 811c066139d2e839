"""The store in a SQLite file, or in memory: its connections and its errors. `work` has the queries.

aiosqlite carries each piece of work to the connection's own thread. A piece is a whole transaction, so that it costs
one hop however many jobs it touches, nobody shares a half-done transaction, and a cancelled caller leaves none open.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from errno import ENAMETOOLONG
from functools import partial
from logging import INFO
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

import aiosqlite

from scheduler_async.errors import StoreError, StoreOutdatedError, quoted
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun, RunRow
from scheduler_async.logs import say
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.shielding import carried_through
from scheduler_async.stores.copy_records import LeftOut, RuleOfCopy, Ruling, RunRecord
from scheduler_async.stores.messages import (
    MIGRATED,
    Change,
    Claims,
    ClaimTerms,
    JobFilter,
    NodeIdentity,
    NodeRow,
    NodeStatus,
    RunFilter,
    UnstorableError,
)
from scheduler_async.stores.sqlite.base import data_version, in_transaction
from scheduler_async.stores.sqlite.schema import migrate, newest, recognise, require_current
from scheduler_async.stores.sqlite.work import Work
from scheduler_async.stores.unreadable import decoded
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import Micros

OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables

# ---------------------------------------------------------------- the store

# Another program may hold the file for a moment; what holds it longer is reported, and tried again.
BUSY_TIMEOUT = 5.0  # seconds

# Processes that make a new file at the same moment get in each other's way at most this often.
MAX_WAL_ATTEMPTS = 20

# SQLite appends up to eight to it, for its other files, and takes no more than 512.
LONGEST_PATH = 504  # bytes

# Jobs hold commands, payloads and outputs, which are for their owner. SQLite gives its other files the same mode.
FILE_MODE = 0o600

P = ParamSpec("P")
T = TypeVar("T")


class SQLiteStore:
    """Jobs in a SQLite file, shared by every process on this machine that opens it; ":memory:" for one process.

    A new file has mode 0600: only its owner can read it. An existing file keeps its mode.
    With `synchronous="NORMAL"` nothing is lost when a process is killed, and a power cut may cost the last commits;
    "FULL" survives that too, and costs a disk flush per commit.
    """

    def __init__(self, path: str | Path, *, synchronous: str = "NORMAL") -> None:
        self.path = str(path)
        if synchronous.upper() not in ("NORMAL", "FULL", "EXTRA"):
            raise StoreError(f'synchronous is "NORMAL", "FULL" or "EXTRA", not {synchronous!r}.')
        self._synchronous = synchronous.upper()
        self._in_memory = self.path == ":memory:"
        self._writer: aiosqlite.Connection | None = None
        self._reader: aiosqlite.Connection | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None  # to which the connections answer
        self._inode: tuple[int, int] | None = None
        self._clock = SystemClock()  # the store's own: all who share the file share it
        self._work = Work()

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change it."""
        return not self._in_memory

    @property
    def clock(self) -> None:
        """All who share it are on one machine, and go by its clock."""
        return None

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """It does not hear of changes: they show in its `version`."""

    async def open(self) -> None:
        """Open the file, or make it; bring an older schema up to date."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise StoreError(f"SQLite {oldest} or newer is needed; this Python has {sqlite3.sqlite_version}.")
        await self.close()  # should that have failed before
        self._work = Work()  # the file may be another one than last time, and memory is empty again
        try:
            # aiosqlite forgets a connection that is made for somebody who has gone.
            await carried_through(self._open())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections."""
        await carried_through(self._close())

    async def _open(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        if not self._in_memory:
            _create_file(self.path)
        self._writer = await self._connect()
        version = await self._call(self._writer, _prepare, self._synchronous, not self._in_memory)
        if 0 < version < newest():
            say(INFO, MIGRATED, self.path, version, newest())
        if self._in_memory:
            self._reader = self._writer
        else:
            self._reader = await self._connect()
            await self._call(self._reader, _prepare_reader)
            self._inode = self._identify_file()

    async def _close(self) -> None:
        connections = {id(connection): connection for connection in (self._reader, self._writer) if connection}
        self._writer = self._reader = None
        is_abandoned = self._event_loop is not asyncio.get_running_loop()
        for connection in connections.values():
            await (_abandon(connection) if is_abandoned else connection.close())

    async def _connect(self) -> aiosqlite.Connection:
        # Python opens transactions by itself unless told not to; ours begin and end in plain sight.
        connection = aiosqlite.connect(
            self.path,
            timeout=BUSY_TIMEOUT,
            isolation_level=None,
            factory=_Connection,
            cached_statements=64,
            check_same_thread=False,  # should its thread die, another one closes it
        )
        # A program that ends without stop() must not wait for this thread for ever.
        thread = connection._thread
        thread.daemon = True
        thread.run = partial(_until_loop_is_closed, thread.run)  # type: ignore[method-assign]
        try:
            return await connection
        except sqlite3.Error as error:
            # It reports to this event loop before it ends, and must not find it closed.
            await _end_of_thread(connection)
            raise self._explained(error) from error

    async def _read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        return await self._call(self._reader, _in_snapshot, work, *args)

    async def _write(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        return await self._call(self._writer, self._work.write, work, *args)

    async def _record(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """As `_write`, about runs that this process has: they end, although a newer version has upgraded the store."""
        return await self._call(self._writer, self._work.record, work, *args)

    async def _call(self, connection: aiosqlite.Connection | None, work: Callable[..., T], *args: Any) -> T:
        """Do *work* on the connection's thread, in one hop."""
        if connection is None:
            raise StoreError(f"The store {self.path} is closed.")
        try:
            answer = await connection.execute_fetchall(cast(str, work), args)
        except asyncio.CancelledError:
            # The thread goes on with it, and must not find the event loop closed when it answers.
            await carried_through(connection.execute_fetchall(cast(str, _nothing), ()))
            raise
        except sqlite3.Error as error:
            raise await self._reason(connection, error) from error
        except ValueError as error:  # aiosqlite's word for a connection that has been closed meanwhile
            if "no active connection" in str(error) or "Connection closed" in str(error):
                raise StoreError(f"The store {self.path} is closed.") from error
            raise
        finally:
            self._work.unreadable_rows.tell()
        return cast(T, answer)

    def _identify_file(self) -> tuple[int, int]:
        status = Path(self.path).stat()
        return status.st_dev, status.st_ino

    async def _reason(self, connection: aiosqlite.Connection, error: sqlite3.Error) -> StoreError:
        """Why *error* happened: tables that are not what this version knows belong to a newer one."""
        if getattr(error, "sqlite_errorname", None) == "SQLITE_ERROR" or isinstance(error, sqlite3.IntegrityError):
            try:
                await connection.execute_fetchall(cast(str, require_current), ())
            except StoreOutdatedError as outdated:
                return outdated
        return self._explained(error)

    def _explained(self, error: sqlite3.Error) -> StoreError:
        """What went wrong, and what would help."""
        name = getattr(error, "sqlite_errorname", "") or ""
        path = Path(self.path)
        sentences = {
            "SQLITE_BUSY": f"is locked by another program for more than {BUSY_TIMEOUT:g} s. Nothing was changed.",
            "SQLITE_LOCKED": "is locked by another connection of this process.",
            "SQLITE_FULL": "cannot grow: the disk is full. Nothing was changed; it goes on once there is room.",
            "SQLITE_NOTADB": "is not a SQLite database. Choose another file: this one was left as it is.",
            "SQLITE_CORRUPT": "is damaged. Restore it from a backup, or rescue what is left with the sqlite3 .recover "
            "command; it was not changed.",
            "SQLITE_READONLY": "is read-only for this user. Make the file and its directory writable.",
            "SQLITE_PERM": "may not be used by this user. Check the permissions of the file and its directory.",
            "SQLITE_IOERR": "could not be read or written: the disk reported an error.",
        }
        sentence = next((text for prefix, text in sentences.items() if name.startswith(prefix)), None)
        if name.startswith("SQLITE_CANTOPEN"):
            if not path.parent.exists():
                sentence = f"cannot be made: the directory {path.parent} does not exist."
            elif path.is_dir():
                sentence = "cannot be opened: it is a directory."
            else:
                sentence = "cannot be opened. Check the permissions of the file and its directory."
        is_refusal = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError) or "binding parameter" in str(error)
        is_refusal &= name != "SQLITE_CONSTRAINT_TRIGGER"  # a trigger refuses rows, whatever their values
        kind = UnstorableError if is_refusal else StoreError
        return kind(f"The store {self.path} {sentence or f'failed: {error}.'}")

    # -------------------------------------------------------- jobs

    async def change(self, changes: Sequence[Change], now: Micros) -> list[Transition | None]:
        """Carry out all *changes*, or none if one of them raises."""
        return await self._write(self._work.change, changes, now)

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        """Let *decide* say what becomes of jobs that wait for a moment later than *now*; None leaves one as it is."""
        return await self._write(self._work.review, after, limit, now, decide)

    async def remove(self, namespace: str, id: str, now: Micros, own_run: int | None = None) -> Job | None:
        """Remove a job, and return it as it was; its runs are kept until `purge_removed`."""
        return await self._write(self._work.remove, namespace, id, now, own_run)

    async def get(self, namespace: str, id: str) -> Job | None:
        """The job with this name."""
        return await self._read(self._work.get, namespace, id)

    async def list_jobs(self, wanted: JobFilter) -> list[Job]:
        """Jobs by their next run, those without one last."""
        return await self._read(self._work.list_jobs, wanted)

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Rows of the run log, newest first."""
        return await self._read(self._work.list_runs, wanted)

    async def output_of(self, run: int) -> str | None:
        """What a run wrote; None if that was nothing, or if there is no such run."""
        return await self._read(self._work.output_of, run)

    async def running_by_group(self) -> dict[str, int]:
        """How many jobs of each group are claimed, by any node; by the keys that `group_key` makes."""
        return await self._read(self._work.running_by_group)

    # -------------------------------------------------------- runs

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Mark what is due as ours, in order, and write the rows of its runs."""
        return await self._write(self._work.claim_due, now, terms)

    async def count_due(self, now: Micros, most: int) -> int:
        """How many jobs are due and claimed by nobody, counted up to *most*."""
        return await self._read(self._work.count_due, now, most)

    async def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        """Since when a job is due that *terms* let start, or None."""
        return await self._read(self._work.earliest_due, now, terms)

    async def claim_one(
        self,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
    ) -> ClaimedRun | Job | None:
        """Mark one job as ours, whatever its schedule."""
        return await self._write(self._work.claim_one, namespace, id, payload_json, now, node, queued)

    async def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        """Mark queued runs as running; return the ids of those that are still ours."""
        return await self._record(self._work.start, runs, now)

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims whose handlers never started."""
        await self._record(self._work.release, runs)

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        """Record how runs ended and what comes next; None for those that are no longer ours."""
        return await self._record(self._work.finish, ended, rules)

    # -------------------------------------------------------- nodes

    async def join(self, identity: NodeIdentity, now: Micros) -> int:
        """Become a node; return its number."""
        return await self._write(self._work.join, identity, now, self._clock.micros())

    async def beat(self, node: int) -> list[NodeRow]:
        """Show that *node* lives, and return all nodes."""
        return await self._record(self._work.beat, node, self._clock.micros())

    async def held(self, node: int) -> set[int]:
        """The ids of the runs that *node* has claimed and not finished."""
        return await self._read(self._work.held, node)

    async def leave(self, node: int) -> None:
        """Stop being a node."""
        await self._record(self._work.leave, node)

    async def nodes(self) -> list[NodeStatus]:
        """All nodes, also those that died without a word, by when they joined."""
        # In a store of this process alone, nobody beats, and nobody waits for it.
        return await self._read(self._work.nodes, None if self._in_memory else self._clock.micros())

    async def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Transition, ClaimedRun]]:
        """Record the runs of nodes that died as interrupted, unless they beat meanwhile, and forget the nodes."""
        return await self._write(self._work.recover, dead, now, rules)

    async def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record claims of *node* that are not among *known* as interrupted: their answer was lost on the way."""
        return await self._record(self._work.interrupt_unknown, node, set(known), now, rules)

    # -------------------------------------------------------- upkeep

    async def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        """Disable every job that has no user; return them."""
        return await self._write(self._work.disable_without_user, reason, now)

    async def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        """Which of these jobs have more than *keep* rows."""
        return await self._read(self._work.overgrown, uids, keep)

    async def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        """Forget all but the newest *keep* rows of these jobs, and but those about a moment later than *now*."""
        await self._write(self._work.purge_runs, uids, keep, now)

    async def purge_removed(self, before: Micros, limit: int) -> int:
        """Forget the runs of up to *limit* jobs that were removed before a moment; return how many jobs that were."""
        return await self._write(self._work.purge_removed, before, limit)

    async def purge_disabled(self, before: Micros, limit: int) -> list[Job]:
        """Forget up to *limit* jobs that were disabled before a moment; return them."""
        return await self._write(self._work.purge_disabled, before, limit)

    # -------------------------------------------------------- copying

    async def count(self) -> tuple[int, int]:
        """How many jobs there are, and how many runs that have ended."""
        return await self._read(self._work.count)

    async def read_jobs(self, after: int, limit: int) -> list[Job | LeftOut]:
        """Up to *limit* jobs as they are kept, by number, beyond the number *after*; or why one cannot be read."""
        return await self._read(self._work.read_jobs, after, limit)

    async def read_runs(self, after: int, limit: int) -> list[RunRecord | LeftOut]:
        """Up to *limit* runs that have ended, by number, beyond the number *after*; or why one cannot be read."""
        return await self._read(self._work.read_runs, after, limit)

    async def write_jobs(self, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        """Let *rule* say what becomes of each, given the one of that name that is here, and write what it wants."""
        return await self._write(self._work.write_jobs, jobs, rule)

    async def write_runs(self, runs: Sequence[RunRecord]) -> int:
        """Add those of *runs* whose jobs are here and which are not; return how many that were."""
        return await self._write(self._work.write_runs, runs)

    # -------------------------------------------------------- how it is

    async def version(self) -> int:
        """A number that changes when another process has changed the store."""
        # On the connection that writes: it does not count its own commits.
        return await self._call(self._writer, data_version)

    async def check(self) -> None:
        """`StoreError` if the file was deleted, replaced, or upgraded: SQLite would go on writing all the same."""
        if self._inode is None:
            return
        try:
            same = self._identify_file() == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(
                f"The store {self.path} was deleted or replaced while it was open: what is written now goes nowhere. "
                "Stop the scheduler and start it again."
            )
        await self._read(require_current)


# ---------------------------------------------------------------- the connection's thread


def _until_loop_is_closed(run: Callable[[], None]) -> None:
    """Let the thread end without a word when the event loop that it answers to was closed: stop() was forgotten."""
    try:
        run()
    except RuntimeError as error:
        if str(error) != "Event loop is closed":
            raise


async def _abandon(connection: aiosqlite.Connection) -> None:
    """Close a connection whose event loop is gone. Its thread may be dead already: it could answer nobody."""
    connection.stop()
    await _end_of_thread(connection)
    if connection._connection is not None:
        connection._connection.close()
        connection._connection = None


async def _end_of_thread(connection: aiosqlite.Connection) -> None:
    while connection._thread.is_alive():
        await SystemClock().wait(asyncio.Event(), 0.001)


# ---------------------------------------------------------------- the file

# To close a file drops all locks that this process has on it: SQLite may open a new one only after it was closed.
_creating = Lock()


def _create_file(path: str) -> None:
    """Create the file before SQLite does, so that only its owner can read it. An existing file keeps its mode."""
    try:
        target = os.path.realpath(path)  # which SQLite would create if *path* is a link
        if len(os.fsencode(target)) > LONGEST_PATH:
            raise OSError(ENAMETOOLONG, "too long")
        with _creating:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == ENAMETOOLONG:
            raise StoreError(
                f"The path of a store must be text without NUL, of at most {LONGEST_PATH} bytes, not {quoted(path)}."
            ) from error
        # It is there already, or SQLite says what is wrong.


# ---------------------------------------------------------------- on the connection's thread


class _Connection(sqlite3.Connection):
    """A connection that also executes functions.

    aiosqlite hands what it is asked to execute to the connection on its thread, and fetches all rows there: that way
    a function reaches the thread through its public interface.
    """

    def execute(self, sql: Any, parameters: Any = (), /) -> Any:
        if isinstance(sql, str):
            return super().execute(sql, parameters)
        try:
            return _Answer(sql(self, *parameters))
        except sqlite3.OperationalError as error:
            if self.text_factory is not str or "decode to UTF-8" not in str(error):
                raise
        # Once more, and from now on, by a slower way that takes any text: which is not UTF-8, is found when it is read.
        self.text_factory = decoded
        return _Answer(sql(self, *parameters))


class _Answer:
    """Looks like a cursor to aiosqlite, and carries what a function returned."""

    def __init__(self, value: object) -> None:
        self._value = value

    def fetchall(self) -> object:
        return self._value

    def close(self) -> None:
        pass


def _nothing(_: sqlite3.Connection) -> None:
    """What is asked for only to see that all before it is done."""


def _in_snapshot(db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    # Several statements that see the same moment, whatever others write meanwhile.
    db.execute("BEGIN")
    try:
        return work(db, *args)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _prepare(db: sqlite3.Connection, synchronous: str, on_disk: bool) -> int:
    """Set up the connection, and bring the schema up to date; return the version it had before."""
    version = _in_snapshot(db, recognise)  # another process may be making it just now
    if on_disk:
        _use_wal(db)
    db.execute(f"PRAGMA synchronous = {synchronous}")
    if version < newest():
        db.execute("PRAGMA foreign_keys = OFF")  # a table that is made anew is gone for a moment
        version = in_transaction(db, migrate)
    db.execute("PRAGMA foreign_keys = ON")
    return version


def _use_wal(db: sqlite3.Connection) -> None:
    # For the change SQLite needs the file for itself, and refuses at once if another process is about to make it too.
    for _ in range(MAX_WAL_ATTEMPTS):
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            in_transaction(db, lambda _: None)  # this waits its turn, as long as BUSY_TIMEOUT says
        else:
            return
    db.execute("PRAGMA journal_mode = WAL")


def _prepare_reader(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA query_only = ON")
