"""The store in a PostgreSQL database: its connections and its errors. `work` contains the queries.

A node has four connections, each opened on demand: one for its runs, one for reading and editing, one for pages, and
one that listens to changes by other processes and sends heartbeats. A broken connection is opened again at its next
use.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from logging import DEBUG, INFO, WARNING
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from scheduler_async.errors import StoreBusyError, StoreError, StoreOutdatedError, quoted
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.logs import say
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.shielding import carried_through
from scheduler_async.stores.addresses import A_URL, read_url
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import (
    MIGRATED,
    Claims,
    ClaimTerms,
    NodeRow,
    UnstorableError,
)
from scheduler_async.stores.postgres.awaited_endings import AWAIT, AwaitedEndings
from scheduler_async.stores.postgres.base import NOTIFY, REQUEST, HandlersForgotten
from scheduler_async.stores.postgres.connection import LOST, Link
from scheduler_async.stores.postgres.lone_claims import Look
from scheduler_async.stores.postgres.pages import LONGEST, PAGE_PLANS
from scheduler_async.stores.postgres.schema import READ_VERSION, begin_if_current, migrate, newest, read_version
from scheduler_async.stores.postgres.work import Work
from scheduler_async.stores.protocol import documented
from scheduler_async.stores.unreadable import is_moment
from scheduler_async.timekeeping.clock import SharedClock
from scheduler_async.timekeeping.instants import LAST, SECOND, Micros

try:
    import asyncpg
except ImportError:  # an extra; PostgresStore() raises an error that tells how to install it
    asyncpg = None

if TYPE_CHECKING:
    from asyncpg import Connection

OLDEST_SERVER = 13  # older versions are no longer supported

READ_ACTIVITY: Final = "SELECT last_value + is_called::int FROM activity"
READ_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# A time before that of any job.
LONG_AGO: Micros = 0

# ---------------------------------------------------------------- the store

CONNECT_TIMEOUT = 5.0  # seconds
# A claim or an ending takes milliseconds, unless another transaction holds its locks.
RUN_TIMEOUT = 10.0  # seconds
# Reading a million jobs takes a while.
READ_TIMEOUT = 60.0  # seconds
# A node that cannot send heartbeats must notice before its lease expires. This limits connecting and sending.
BEAT_TIMEOUT = 3.0  # seconds

# Two transactions that change the same jobs may deadlock. PostgreSQL aborts one of them, which then tries again.
MAX_ATTEMPTS = 5

# A transaction whose process has stopped must not hold its locks for longer than this.
LONGEST_PAUSE = "10s"

# Of several readings of the database clock, the fastest is the most accurate.
LOOKS = 3

# A larger difference between the clocks is worth a warning.
LARGE_SKEW: Micros = 1 * SECOND

# Runs use the indexes made for them, even if the statistics of the tables are outdated. A query is planned only once.
RUN_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

P = ParamSpec("P")
T = TypeVar("T")

Transaction: TypeAlias = Callable[Concatenate[Work, "Connection", P], Awaitable[T]]
Operation: TypeAlias = Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]

# The connections of a store, by attribute name.
RUNS, EDITS, PAGES, WATCH = "_runs", "_edits", "_pages", "_watch"


def reading(transaction: Transaction[P, T], link: str) -> Operation[P, T]:
    """Make an operation of the store from a *transaction* that changes nothing, on this connection."""

    async def operation(store: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._ask(getattr(store, link), partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


def writing(transaction: Transaction[P, T], link: str) -> Operation[P, T]:
    """Make an operation of the store from a *transaction*, on this connection."""

    async def operation(store: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._transact(getattr(store, link), partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


def recording(transaction: Transaction[P, T], link: str) -> Operation[P, T]:
    """Make an operation of the store from a *transaction* about runs of this process, on this connection."""

    async def operation(store: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._record(getattr(store, link), partial(transaction, store._work, **kwargs), *args)

    return documented(operation, transaction)


class PostgresStore:
    """Stores jobs in a schema of a PostgreSQL database. Every process on any machine can share it.

    The *schema* is "scheduler_async" unless it is given here or in the URL (`?schema=…`). The store creates a missing
    schema. All nodes use the clock of the database.
    """

    def __init__(self, url: str, *, schema: str | None = None) -> None:
        if asyncpg is None:
            raise StoreError('PostgreSQL needs a driver. Install it with: pip install "scheduler-async[postgres]"')
        address = read_url(url, schema)
        self.url, self.schema = address.shown, address.schema
        self._dsn = address.dsn
        self._clock = SharedClock()
        self._is_skewed = False
        self._runs, self._edits, self._pages, self._watch = self._new_links()
        self._is_open = False
        self._token = ""
        self._listener: Callable[[Micros | None, int], object] | None = None
        self._version = 0
        self._activity: int | None = None
        self._work = Work(self._notification)
        self._awaited = AwaitedEndings()

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change the store."""
        return True

    @property
    def clock(self) -> SharedClock:
        """The clock of the database, as this process estimates it."""
        return self._clock

    @property
    def decisions(self) -> Decisions:
        """Decisions that transactions need, and that are made outside of them."""
        return self._work.decisions

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Call *listener* when other processes have changed the store, with the due time and the number of jobs."""
        self._listener = listener

    async def ending_of(self, run: int) -> asyncio.Event:
        """Return an event that is set when another process has ended *run*. Let all of them know that one waits."""
        event, is_new = self._awaited.event_of(run)
        if is_new:
            await self._ask(self._watch, _fetch, READ_VERSION)  # it listens from now on
            await self._send(self._edits, [f"{AWAIT} {run}"])
        return event

    async def _send(self, link: Link, texts: Sequence[str]) -> None:
        for text in texts:
            await self._ask(link, _fetch, NOTIFY, self.schema, f"{self._token} {text}")

    async def open(self) -> None:
        """Connect. Create the tables, or migrate older ones."""
        await self.close()  # an earlier attempt may have failed
        self._work = Work(self._notification)  # the database may have been replaced
        self._token = secrets.token_hex(8)
        self._version, self._activity = 0, None
        self._runs, self._edits, self._pages, self._watch = self._new_links()
        self._is_open = True
        try:
            await carried_through(self._open())
        except GeneratorExit:  # the event loop was closed, and cannot close connections: the next attempt will
            raise
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        await self._ask(self._edits, self._recognise)
        version = await self._record(self._edits, self._migrate)
        if 0 < version < newest():
            say(INFO, MIGRATED, self.url, version, newest())
        await self._look_at_clock(self._edits)

    async def close(self) -> None:
        """Close the connections."""
        self._is_open = False
        self._listener = None
        await carried_through(self._close())

    async def _close(self) -> None:
        for link in (self._runs, self._edits, self._pages, self._watch):
            await link.close()

    def _new_links(self) -> tuple[Link, Link, Link, Link]:
        return (
            Link(self._connect, RUN_TIMEOUT, RUN_PLANS),
            Link(self._connect, READ_TIMEOUT, {"plan_cache_mode": "force_custom_plan"}),
            Link(self._connect, READ_TIMEOUT, PAGE_PLANS),
            Link(self._connect, BEAT_TIMEOUT, {}, prepare=self._listen, total=True),
        )

    async def _connect(self, settings: dict[str, str], timeout: float) -> Connection:
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=timeout,
                server_settings={
                    "application_name": "scheduler_async",
                    "search_path": f'"{self.schema}"',
                    "jit": "off",
                    "idle_in_transaction_session_timeout": LONGEST_PAUSE,
                    "tcp_user_timeout": LONGEST_PAUSE,  # a client that reads no answers keeps its locks
                    **settings,
                },
            )
        except Exception as error:
            if isinstance(error, (asyncpg.PostgresError, *LOST)) and not isinstance(error, ValueError):
                raise  # an answer of the server, or no answer
            # The URL is invalid, and the message of the driver may quote any part of it.
            raise StoreError(
                f"The store {self.url} cannot be used: its URL has an invalid host, port or option. {A_URL}"
            ) from None

    # -------------------------------------------------------- asking

    async def _transact(
        self, link: Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do *work* in a transaction. Roll back if it raises."""
        return await self._call(link, link.transact, begin_if_current(), work, *args)

    async def _record(
        self, link: Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do the same as `_transact` for runs of this process, which end even if a newer version migrates the store."""
        return await self._call(link, link.transact, "BEGIN", work, *args)

    async def _ask(
        self, link: Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do *work* that changes nothing."""
        return await self._call(link, link.ask, work, *args)

    async def _call(self, link: Link, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if not self._is_open:
                raise StoreError(f"The store {self.url} is closed.")
            try:
                return await call(*args)
            except (
                asyncpg.DeadlockDetectedError,
                asyncpg.SerializationError,
                asyncpg.UniqueViolationError,
                HandlersForgotten,
            ) as error:
                if attempt == MAX_ATTEMPTS:
                    raise self._explained(error, link) from error
            except asyncpg.QueryCanceledError as error:
                is_page = link is self._pages
                raise (StoreBusyError(self.url, LONGEST) if is_page else self._explained(error, link)) from error
            except (asyncpg.PostgresError, *LOST) as error:
                if isinstance(error, StoreError):
                    raise
                raise await self._reason(error, link) from error
            finally:
                self._work.unreadable_rows.tell()
        raise AssertionError

    async def _reason(self, error: Exception, link: Link) -> StoreError:
        """Return the cause of *error*. Tables with unknown columns belong to a newer version."""
        if isinstance(error, asyncpg.PostgresError) and not isinstance(error, LOST):
            with suppress(asyncpg.PostgresError, *LOST):
                version = await link.ask(_fetch, READ_VERSION)
                if version is not None and version > newest():
                    return StoreOutdatedError(self.url, version, newest())
        return self._explained(error, link)

    def _explained(self, error: Exception, link: Link) -> StoreError:
        """Return an error that tells the problem and the remedy."""
        sentences: dict[type[Exception], str] = {
            asyncpg.InvalidCatalogNameError: "cannot be opened: the database does not exist. Create it with createdb, "
            "or choose another one.",
            asyncpg.InvalidAuthorizationSpecificationError: "cannot be opened: the server refuses this user or "
            "password. Check both, and pg_hba.conf on the server.",
            asyncpg.InsufficientPrivilegeError: f"cannot be accessed by this user: {error}. To create a schema, run "
            "GRANT CREATE ON DATABASE as the owner of the database. To use an existing schema, the user needs USAGE "
            "on the schema and all rights on its tables and sequences.",
            asyncpg.TooManyConnectionsError: "has no free connection. Raise max_connections on the server, or let "
            "fewer processes share it.",
            asyncpg.CannotConnectNowError: "is starting up or shutting down.",
            asyncpg.InvalidSchemaNameError: f"no longer has the schema {quoted(self.schema)}.",
            asyncpg.UndefinedTableError: f"has changed: {error}. Stop the scheduler and start it again.",
            asyncpg.DiskFullError: "cannot be written: the disk of the server is full. Nothing was changed.",
            asyncpg.ReadOnlySQLTransactionError: "is read-only, as a standby is. Connect to the primary server.",
            asyncpg.DeadlockDetectedError: "is too busy: other nodes keep changing the same jobs. Nothing was changed.",
            HandlersForgotten: "is too busy: other nodes removed and added the same handlers. Nothing was changed.",
            asyncpg.PostgresConnectionError: "cannot be reached: the connection was lost.",
            asyncpg.QueryCanceledError: f"canceled a statement: {error}. Nothing was changed. Perhaps the role has a "
            "statement_timeout that is too short.",
            asyncpg.OperatorInterventionError: "cannot be reached: the server closed the connection.",
            asyncpg.InterfaceError: "cannot be reached: the connection was lost.",
            asyncpg.InternalClientError: "cannot be reached: the connection was lost.",
            TimeoutError: f"did not answer within {link.patience:g} s.",
            OSError: f"cannot be reached: {error}. Check that the server is running, and that host and port are right.",
        }
        sentence = next((text for kind, text in sentences.items() if isinstance(error, kind)), f"failed: {error}.")
        is_refusal = isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError)
        return (UnstorableError if is_refusal else StoreError)(f"The store {self.url} {sentence}")

    # -------------------------------------------------------- opening

    async def _recognise(self, db: Connection) -> None:
        """Raise `StoreError` if the server is too old, or the encoding of the database is not UTF-8."""
        major = db.get_server_version().major
        if major < OLDEST_SERVER:
            raise StoreError(
                f"The store {self.url} needs PostgreSQL {OLDEST_SERVER} or newer; the server has version {major}."
            )
        encoding = await db.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"The store {self.url} must have the encoding UTF8, not {encoding}. "
                "Create the database with ENCODING 'UTF8'."
            )

    async def _migrate(self, db: Connection) -> int:
        """Migrate the schema to the newest version. Return the previous version."""
        version = await read_version(db, self.schema, self.url)
        if version < newest():
            version = await migrate(db, self.schema, self.url)
            await db.execute(NOTIFY, *self._notification(LONG_AGO, 1))  # all processes look at the store at once
        return version

    # -------------------------------------------------------- notifications

    def _notification(self, moment: Micros | None, count: int) -> tuple[str, str]:
        return self.schema, self._token if moment is None else f"{self._token} {moment} {count}"

    async def _listen(self, db: Connection, is_first: bool) -> None:
        await db.add_listener(self.schema, self._hear)
        if not is_first:  # notifications may have been lost meanwhile
            self._version += 1
            self._tell(None, 0)

    def _hear(self, _db: Connection, _pid: int, _channel: str, words: str) -> None:
        sender, *due = words.split(" ")
        if sender == self._token or self._awaited.hear(due):
            return
        self._version += 1
        if not due:
            return
        if due == [REQUEST]:
            self._tell(None, 0)
            return
        try:
            at, count = map(int, due)
        except ValueError:
            at, count = LAST + 1, 0
        if is_moment(at) and count >= 0:
            self._tell(at, count)
        else:  # from another program: anything may have changed
            say(DEBUG, "Cannot read the notification %s; checking all due jobs", quoted(words))
            self._tell(None, 0)

    def _tell(self, moment: Micros | None, count: int) -> None:
        if self._listener is not None:
            self._listener(moment, count)

    async def _read_clock(self, db: Connection) -> tuple[Micros, float]:
        """Return the time of the server, and when that was on the monotonic clock. The fastest answer is the best."""
        looks = []
        for _ in range(LOOKS):
            before = self._clock.monotonic()
            time = await db.fetchval(READ_CLOCK)
            after = self._clock.monotonic()
            looks.append((after - before, (before + after) / 2, time))
        _, moment, time = min(looks)
        return time, moment

    async def _look_at_clock(self, link: Link) -> None:
        """Compare the clocks, and log a warning if they differ much, when the link is free: log handlers may wait."""
        time, moment = await self._ask(link, self._read_clock)
        self._clock.put_right(time, moment)
        skew = self._clock.skew()
        was_skewed, self._is_skewed = self._is_skewed, abs(skew) > LARGE_SKEW
        if self._is_skewed and not was_skewed:
            direction = "behind" if skew > 0 else "ahead of"
            words = (
                "The clock of this machine is %.1f s %s the clock of the database; jobs use the clock of the database"
            )
            say(WARNING, words, abs(skew) / SECOND, direction)
        elif was_skewed and not self._is_skewed:
            say(INFO, "The clock of this machine agrees with the clock of the database again")

    # -------------------------------------------------------- operations: for their purpose, see `Store`

    change = writing(Work.change, EDITS)
    review = writing(Work.review, EDITS)
    remove = writing(Work.remove, EDITS)
    get = reading(Work.get, EDITS)
    list_jobs = reading(Work.list_jobs, EDITS)
    list_runs = reading(Work.list_runs, EDITS)
    runs_about = reading(Work.runs_about, EDITS)
    list_changes = reading(Work.list_changes, EDITS)
    jobs_page = reading(Work.jobs_page, PAGES)
    runs_page = reading(Work.runs_page, PAGES)
    changes_page = reading(Work.changes_page, PAGES)
    recent_runs = reading(Work.recent_runs, PAGES)
    count_jobs = reading(Work.count_jobs, PAGES)
    sample_jobs = reading(Work.sample_jobs, PAGES)
    tally = reading(Work.tally, PAGES)
    mark = reading(Work.mark, PAGES)
    details_of = reading(Work.details_of, EDITS)
    output_of = reading(Work.output_of, EDITS)
    request_start = writing(Work.request_start, EDITS)
    request_cancel = writing(Work.request_cancel, EDITS)
    report = recording(Work.report, EDITS)
    running_by_group = reading(Work.running_by_group, EDITS)
    rate_free_at = reading(Work.rate_free_at, EDITS)
    settle_starts = recording(Work.settle_starts, EDITS)

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Claim due jobs for a node, within its limits and those of groups."""
        look = await self._ask(self._runs, self._work.look_for_due, now, terms)
        if look is not None and not look.plan.runs:
            return Claims(next_due=look.next_due, next_count=look.next_count)
        claims = (
            None if look is None else await self._call(self._runs, self._runs.tell, self._claim_seen, look, now, terms)
        )
        return claims if claims is not None else await self._transact(self._runs, self._work.claim_due, now, terms)

    async def _claim_seen(self, db: Connection, look: Look, now: Micros, terms: ClaimTerms) -> Claims | None:
        try:
            return await self._work.claim_seen(db, look, now, terms)
        except asyncpg.DivisionByZeroError:
            return None

    count_due = reading(Work.count_due, EDITS)
    earliest_due = reading(Work.earliest_due, EDITS)
    claim_one = writing(Work.claim_one, RUNS)

    async def claim_requested(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        """Claim runs that `request_start` has asked for. Return also whether more of them wait."""
        if not await self._ask(self._runs, self._work.are_requested):  # usually: one statement
            return [], False
        return await self._transact(self._runs, self._work.claim_requested, now, terms)

    add_backfill = writing(Work.add_backfill, EDITS)
    get_backfill = reading(Work.get_backfill, EDITS)
    cancel_backfill = writing(Work.cancel_backfill, EDITS)

    async def claim_backfills(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], Micros | None]:
        """Claim runs of backfills, oldest occurrences first, within their limits and those of groups."""
        if not await self._ask(self._runs, self._work.are_backfills):  # usually: one statement
            return [], None
        return await self._transact(self._runs, self._work.claim_backfills, now, terms)

    start = recording(Work.start, RUNS)
    release = recording(Work.release, RUNS)

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        """Record how runs ended and what comes next. Return None for each run that this node no longer owns."""
        # This is safe to repeat if the connection is lost, because recorded endings do not change again.
        left = await self._ask(self._runs, self._finish_at_once, ended, rules)
        if left is None:
            left = await self._record(self._runs, self._work.finish, ended, rules)
        with suppress(StoreError):  # all is recorded, and callers that wait for a run look at it now and then
            await self._send(self._runs, self._awaited.ended(item.run.id for item in ended))
        return left

    async def _finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None] | None:
        try:
            return await self._work.finish_at_once(db, ended, rules)
        except asyncpg.DivisionByZeroError:
            return None

    join = writing(Work.join, WATCH)

    async def beat(self, node: int) -> list[NodeRow]:
        """Record a heartbeat of *node*, and return all nodes."""
        nodes = await self._record(self._watch, self._work.beat, node, -self._clock.skew())
        await self._look_at_clock(self._watch)
        return nodes

    # On the connection of the heartbeats, because a node that waits for the answer must send them in time.
    note_handlers = recording(Work.note_handlers, WATCH)
    held = reading(Work.held, WATCH)
    cancels = reading(Work.cancels, WATCH)
    leave = recording(Work.leave, WATCH)
    nodes = reading(Work.nodes, EDITS)
    node_lives = reading(Work.node_lives, EDITS)
    lives_about = reading(Work.lives_about, EDITS)
    recover = writing(Work.recover, RUNS)
    interrupt_unknown = recording(Work.interrupt_unknown, RUNS)

    disable_without_user = writing(Work.disable_without_user, EDITS)

    async def resume_paused(self, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        """Resume jobs that were paused until a time that has come. Return also when the next pause ends."""
        first = await self._ask(self._runs, self._work.first_pause_end)  # usually: one statement
        if first is None or first > now:
            return [], first
        return await self._transact(self._runs, self._work.resume_paused, now, limit)

    overgrown = reading(Work.overgrown, EDITS)
    purge_runs = writing(Work.purge_runs, EDITS)
    purge_removed = writing(Work.purge_removed, EDITS)
    purge_disabled = writing(Work.purge_disabled, EDITS)
    purge_history = writing(Work.purge_history, EDITS)

    count = reading(Work.count, EDITS)
    read_jobs = reading(Work.read_jobs, EDITS)
    read_runs = reading(Work.read_runs, EDITS)
    write_jobs = writing(Work.write_jobs, EDITS)
    write_runs = writing(Work.write_runs, EDITS)
    read_changes = reading(Work.read_changes, EDITS)
    write_changes = writing(Work.write_changes, EDITS)

    async def version(self) -> int:
        """Return a number that changes when another process has changed the store."""
        # On the listening connection, so that earlier notifications arrive before the answer.
        counted = await self._ask(self._watch, _fetch, READ_ACTIVITY)
        others, before = counted - self._work.counted, self._activity
        if before is not None and others != before:
            self._version += 1
            # The counted activity may not be committed yet. Report it once more next time.
            self._activity = None
        elif before is None:
            self._version += 1
            self._activity = others
        return self._version

    async def check(self) -> None:
        """Raise `StoreError` if the tables are gone, or if a newer version has changed them."""
        version = await self._ask(self._watch, _fetch, READ_VERSION)
        if version != newest():
            raise StoreOutdatedError(self.url, version, newest())


async def _fetch(db: Connection, question: str, *args: Any) -> Any:
    return await db.fetchval(question, *args)
