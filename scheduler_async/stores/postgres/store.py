"""The store in a PostgreSQL database: its connections and its errors. `work` has the queries.

A node has three connections, each opened when it is first needed: one for its runs, one for reading and editing, and
one to hear of what others change, on which it also shows that it lives. One that breaks is opened anew by whoever
needs it next.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from logging import DEBUG, INFO, WARNING
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from scheduler_async.errors import StoreError, StoreOutdatedError, quoted
from scheduler_async.jobs.run import EndedRun
from scheduler_async.logs import say
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.shielding import carried_through
from scheduler_async.stores.addresses import A_URL, read_url
from scheduler_async.stores.messages import (
    MIGRATED,
    NodeRow,
    UnstorableError,
)
from scheduler_async.stores.postgres.base import NOTIFY, HandlersForgotten
from scheduler_async.stores.postgres.connection import LOST, Link
from scheduler_async.stores.postgres.schema import READ_VERSION, begin_if_current, migrate, newest, read_version
from scheduler_async.stores.postgres.work import Work
from scheduler_async.stores.protocol import documented
from scheduler_async.stores.unreadable import is_moment
from scheduler_async.timekeeping.clock import SharedClock
from scheduler_async.timekeeping.instants import LAST, SECOND, Micros

try:
    import asyncpg
except ImportError:  # it is an extra; who makes a store is told
    asyncpg = None

if TYPE_CHECKING:
    from asyncpg import Connection

OLDEST_SERVER = 13  # nobody looks after older ones any more

READ_ACTIVITY: Final = "SELECT last_value + is_called::int FROM activity"
READ_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# A moment at which a job would have been due before all others.
LONG_AGO: Micros = 0

# ---------------------------------------------------------------- the store

CONNECT_TIMEOUT = 5.0  # seconds
# A claim or an ending takes milliseconds, unless somebody else holds what it needs.
RUN_TIMEOUT = 10.0  # seconds
# To read a million jobs takes a while.
READ_TIMEOUT = 60.0  # seconds
# Who cannot show that it lives must know in time, before its lease has run out: this is for all of it, connecting too.
BEAT_TIMEOUT = 3.0  # seconds

# Two who change the same jobs may stop each other; one of them is told to try again.
MAX_ATTEMPTS = 5

# A transaction whose process has stopped must not keep others from what it holds for longer than this.
LONGEST_PAUSE = "10s"

# Of several looks at the clock of the database, the quickest is the most exact.
LOOKS = 3

# From here on it is worth a warning that the clocks differ.
LARGE_SKEW: Micros = 1 * SECOND

# Runs find their rows by the indexes made for them, however the tables have grown since they were last counted; and
# nobody has to think about it each time.
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

# The connections of a store, by their names in it.
RUNS, EDITS, WATCH = "_runs", "_edits", "_watch"


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
    """Jobs in a schema of a PostgreSQL database, shared by every process on any machine that opens it.

    The *schema* is "scheduler_async" unless it is given here or in the URL (`?schema=…`); if it is missing it is made.
    All who share it go by the clock of the database.
    """

    def __init__(self, url: str, *, schema: str | None = None) -> None:
        if asyncpg is None:
            raise StoreError('PostgreSQL needs a driver. Install it with: pip install "scheduler-async[postgres]"')
        address = read_url(url, schema)
        self.url, self.schema = address.shown, address.schema
        self._dsn = address.dsn
        self._clock = SharedClock()
        self._is_skewed = False
        self._runs, self._edits, self._watch = self._new_links()
        self._is_open = False
        self._token = ""
        self._listener: Callable[[Micros | None, int], object] | None = None
        self._version = 0
        self._activity: int | None = None
        self._work = Work(self._notification)

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change it."""
        return True

    @property
    def clock(self) -> SharedClock:
        """The clock of the database, as far as it is known here."""
        return self._clock

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Call *listener* when others have changed something: with when it may be due, and how many jobs are then."""
        self._listener = listener

    async def open(self) -> None:
        """Connect; make the tables, or bring older ones up to date."""
        await self.close()  # should that have failed before
        self._work = Work(self._notification)  # the database may be another one than last time
        self._token = secrets.token_hex(8)
        self._version, self._activity = 0, None
        self._runs, self._edits, self._watch = self._new_links()
        self._is_open = True
        try:
            await carried_through(self._open())
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        await self._ask(self._edits, self._recognise)
        version = await self._record(self._edits, self._migrate)
        if 0 < version < newest():
            say(INFO, MIGRATED, self.url, version, newest())
        await self._ask(self._edits, self._look_at_clock)

    async def close(self) -> None:
        """Close the connections."""
        self._is_open = False
        self._listener = None
        await carried_through(self._close())

    async def _close(self) -> None:
        for link in (self._runs, self._edits, self._watch):
            await link.close()

    def _new_links(self) -> tuple[Link, Link, Link]:
        return (
            Link(self._connect, RUN_TIMEOUT, RUN_PLANS),
            Link(self._connect, READ_TIMEOUT, {"plan_cache_mode": "force_custom_plan"}),
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
                    "tcp_user_timeout": LONGEST_PAUSE,  # who does not take an answer is not idle, and holds its locks
                    **settings,
                },
            )
        except Exception as error:
            if isinstance(error, (asyncpg.PostgresError, *LOST)) and not isinstance(error, ValueError):
                raise  # an answer, or none
            # The URL cannot be used, and what the driver says may quote any part of it.
            raise StoreError(
                f"The store {self.url} cannot be used: its URL has a host, a port or options that make no "
                f"sense. {A_URL}"
            ) from None

    # -------------------------------------------------------- asking

    async def _transact(
        self, link: Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do *work* in a transaction: all of it, or nothing."""
        return await self._call(link, link.transact, begin_if_current(), work, *args)

    async def _record(
        self, link: Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """As `_transact`, about runs that this process has: they end, although a newer version upgraded the store."""
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
            except (asyncpg.PostgresError, *LOST) as error:
                if isinstance(error, StoreError):
                    raise
                raise await self._reason(error, link) from error
            finally:
                self._work.unreadable_rows.tell()
        raise AssertionError

    async def _reason(self, error: Exception, link: Link) -> StoreError:
        """Why *error* happened: tables that are not what this version knows belong to a newer one."""
        if isinstance(error, asyncpg.PostgresError) and not isinstance(error, LOST):
            with suppress(asyncpg.PostgresError, *LOST):
                version = await link.ask(_fetch, READ_VERSION)
                if version is not None and version > newest():
                    return StoreOutdatedError(self.url, version, newest())
        return self._explained(error, link)

    def _explained(self, error: Exception, link: Link) -> StoreError:
        """What went wrong, and what would help."""
        sentences: dict[type[Exception], str] = {
            asyncpg.InvalidCatalogNameError: "cannot be opened: there is no such database. Create it with createdb, "
            "or choose another.",
            asyncpg.InvalidAuthorizationSpecificationError: "cannot be opened: the server refuses this user or "
            "password. Check both, and pg_hba.conf on the server.",
            asyncpg.InsufficientPrivilegeError: f"may not be used by this user: {error}. As the owner of the database, "
            "GRANT CREATE ON DATABASE lets it make a schema; to use one that others have made, it needs USAGE on the "
            "schema and all rights on its tables and sequences.",
            asyncpg.TooManyConnectionsError: "takes no more connections. Raise max_connections on the server, or let "
            "fewer processes share it.",
            asyncpg.CannotConnectNowError: "is starting up or shutting down.",
            asyncpg.InvalidSchemaNameError: f"has no schema {quoted(self.schema)} any more.",
            asyncpg.UndefinedTableError: f"is not what it was: {error}. Stop the scheduler and start it again.",
            asyncpg.DiskFullError: "cannot grow: the disk of the server is full. Nothing was changed.",
            asyncpg.ReadOnlySQLTransactionError: "is read-only: a standby, for one. Connect to the primary server.",
            asyncpg.DeadlockDetectedError: "was too busy: others changed the same jobs each time. Nothing was changed.",
            HandlersForgotten: "was too busy: others forgot and added the same handlers. Nothing was changed.",
            asyncpg.PostgresConnectionError: "is gone: the connection was lost.",
            asyncpg.OperatorInterventionError: "is gone: the server ended the connection.",
            asyncpg.InterfaceError: "is gone: the connection was lost.",
            asyncpg.InternalClientError: "is gone: the connection was lost.",
            TimeoutError: f"did not answer within {link.patience:g} s.",
            OSError: f"cannot be reached: {error}. Is the server running, and are host and port right?",
        }
        sentence = next((text for kind, text in sentences.items() if isinstance(error, kind)), f"failed: {error}.")
        is_refusal = isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError)
        return (UnstorableError if is_refusal else StoreError)(f"The store {self.url} {sentence}")

    # -------------------------------------------------------- opening

    async def _recognise(self, db: Connection) -> None:
        """`StoreError` if the server is too old, or the database does not suit."""
        major = db.get_server_version().major
        if major < OLDEST_SERVER:
            raise StoreError(
                f"The store {self.url} is a server of version {major}; PostgreSQL {OLDEST_SERVER} or newer is needed."
            )
        encoding = await db.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"The store {self.url} is encoded in {encoding}, and cannot hold every text. "
                "Create the database with ENCODING 'UTF8'."
            )

    async def _migrate(self, db: Connection) -> int:
        """Bring the schema up to date; return the version it had before."""
        version = await read_version(db, self.schema, self.url)
        if version < newest():
            version = await migrate(db, self.schema, self.url)
            await db.execute(NOTIFY, *self._notification(LONG_AGO, 1))  # everyone looks at the store at once
        return version

    # -------------------------------------------------------- hearing of others

    def _notification(self, moment: Micros | None, count: int) -> tuple[str, str]:
        return self.schema, self._token if moment is None else f"{self._token} {moment} {count}"

    async def _listen(self, db: Connection, is_first: bool) -> None:
        await db.add_listener(self.schema, self._hear)
        if not is_first:  # who knows what was said meanwhile
            self._version += 1
            self._tell(None, 0)

    def _hear(self, _db: Connection, _pid: int, _channel: str, words: str) -> None:
        sender, *due = words.split(" ")
        if sender == self._token:
            return
        self._version += 1
        if not due:
            return
        try:
            at, count = map(int, due)
        except ValueError:
            at, count = LAST + 1, 0
        if is_moment(at) and count >= 0:
            self._tell(at, count)
        else:  # not from one of us: something has changed, whatever it is
            say(DEBUG, "Cannot read the notification %s; looking at all that is due", quoted(words))
            self._tell(None, 0)

    def _tell(self, moment: Micros | None, count: int) -> None:
        if self._listener is not None:
            self._listener(moment, count)

    async def _look_at_clock(self, db: Connection) -> None:
        """Compare the clocks, and say so if they differ much."""
        looks = []
        for _ in range(LOOKS):
            before = self._clock.monotonic()
            time = await db.fetchval(READ_CLOCK)
            after = self._clock.monotonic()
            looks.append((after - before, (before + after) / 2, time))
        _, moment, time = min(looks)
        self._clock.put_right(time, moment)
        skew = self._clock.skew()
        was_skewed, self._is_skewed = self._is_skewed, abs(skew) > LARGE_SKEW
        if self._is_skewed and not was_skewed:
            direction = "behind" if skew > 0 else "ahead of"
            words = "The clock of this machine is %.1f s %s that of the database; jobs go by the latter"
            say(WARNING, words, abs(skew) / SECOND, direction)
        elif was_skewed and not self._is_skewed:
            say(INFO, "The clock of this machine agrees with that of the database again")

    # -------------------------------------------------------- operations: `protocol` says what each is for

    change = writing(Work.change, EDITS)
    review = writing(Work.review, EDITS)
    remove = writing(Work.remove, EDITS)
    get = reading(Work.get, EDITS)
    list_jobs = reading(Work.list_jobs, EDITS)
    list_runs = reading(Work.list_runs, EDITS)
    output_of = reading(Work.output_of, EDITS)
    running_by_group = reading(Work.running_by_group, EDITS)

    claim_due = writing(Work.claim_due, RUNS)
    count_due = reading(Work.count_due, EDITS)
    earliest_due = reading(Work.earliest_due, EDITS)
    claim_one = writing(Work.claim_one, RUNS)
    start = recording(Work.start, RUNS)
    release = recording(Work.release, RUNS)

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        """Record how runs ended and what comes next; None for those that are no longer ours."""
        # As a question, which is asked again if the connection is lost: what is on record changes nothing any more.
        left = await self._ask(self._runs, self._finish_at_once, ended, rules)
        return left if left is not None else await self._record(self._runs, self._work.finish, ended, rules)

    async def _finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None] | None:
        try:
            return await self._work.finish_at_once(db, ended, rules)
        except asyncpg.DivisionByZeroError:
            return None

    join = writing(Work.join, WATCH)

    async def beat(self, node: int) -> list[NodeRow]:
        """Show that *node* is alive, and return all nodes."""
        nodes = await self._record(self._watch, self._work.beat, node, -self._clock.skew())
        await self._ask(self._watch, self._look_at_clock)
        return nodes

    # With the beats: a node that waits for the answer has to beat in time.
    held = reading(Work.held, WATCH)
    leave = recording(Work.leave, WATCH)
    nodes = reading(Work.nodes, EDITS)
    recover = writing(Work.recover, RUNS)
    interrupt_unknown = recording(Work.interrupt_unknown, RUNS)

    disable_without_user = writing(Work.disable_without_user, EDITS)
    overgrown = reading(Work.overgrown, EDITS)
    purge_runs = writing(Work.purge_runs, EDITS)
    purge_removed = writing(Work.purge_removed, EDITS)
    purge_disabled = writing(Work.purge_disabled, EDITS)

    count = reading(Work.count, EDITS)
    read_jobs = reading(Work.read_jobs, EDITS)
    read_runs = reading(Work.read_runs, EDITS)
    write_jobs = writing(Work.write_jobs, EDITS)
    write_runs = writing(Work.write_runs, EDITS)

    async def version(self) -> int:
        """A number that changes when another process has changed the store."""
        # Where we listen: what was said before we ask is heard before we are answered.
        counted = await self._ask(self._watch, _fetch, READ_ACTIVITY)
        others, before = counted - self._work.counted, self._activity
        if before is not None and others != before:
            self._version += 1
            # What was counted may not have been committed yet: once more next time.
            self._activity = None
        elif before is None:
            self._version += 1
            self._activity = others
        return self._version

    async def check(self) -> None:
        """`StoreError` if the tables are gone, or if a newer version has changed them."""
        version = await self._ask(self._watch, _fetch, READ_VERSION)
        if version != newest():
            raise StoreOutdatedError(self.url, version, newest())


async def _fetch(db: Connection, question: str) -> Any:
    return await db.fetchval(question)
