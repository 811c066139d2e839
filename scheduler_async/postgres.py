"""The store in a PostgreSQL database: its schema, its connections, its errors. The queries are in `postgres_work`.

A node has three connections, each opened when it is first needed: one for its runs, one for reading and editing, and
one to hear of what others change, on which it also shows that it lives. One that breaks is opened anew by whoever
needs it next.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode

from scheduler_async.clock import SharedClock
from scheduler_async.errors import StoreError, quoted
from scheduler_async.instants import SECOND, Micros
from scheduler_async.lifecycle import Rules
from scheduler_async.logs import say
from scheduler_async.models import Job, RunRow
from scheduler_async.postgres_copying import CopyingWork
from scheduler_async.store import (
    Aftermath,
    Change,
    ClaimedRun,
    Claims,
    ClaimTerms,
    Edit,
    EndedRun,
    JobFilter,
    JobRecord,
    NodeIdentity,
    NodeRow,
    NodeStatus,
    Ruling,
    RunFilter,
    RunRecord,
)
from scheduler_async.tasks import carried_through

try:
    import asyncpg
except ImportError:  # it is an extra; who makes a store is told
    asyncpg = None

if TYPE_CHECKING:
    from asyncpg import Connection

# ---------------------------------------------------------------- the schema

OLDEST_SERVER = 13  # nobody looks after older ones any more

MIGRATIONS: Final = (
    # 1: the first
    (
        "CREATE TABLE version (number bigint NOT NULL)",
        "INSERT INTO version VALUES (0)",
        "CREATE SEQUENCE job_uid",
        "CREATE SEQUENCE run_id",
        # Counts claims and endings, whoever makes them.
        "CREATE SEQUENCE activity",
        """
        CREATE TABLE handler (
            number  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            name    text COLLATE "C" NOT NULL UNIQUE
        )
        """,
        # What only an edit changes, payload included: apart from what every run changes, which stays narrow.
        """
        CREATE TABLE job (
            uid           bigint PRIMARY KEY,
            namespace     text COLLATE "C" NOT NULL,
            id            text COLLATE "C" NOT NULL,
            handler       text COLLATE "C" NOT NULL,
            schedule      text NOT NULL,
            retry         text,
            payload       text NOT NULL,
            metadata      text NOT NULL,
            user_id       text COLLATE "C",
            name          text,
            priority      text NOT NULL,
            job_group     text COLLATE "C",
            misfire       text NOT NULL,
            timeout       bigint,
            on_interrupt  text NOT NULL,
            anchor        bigint NOT NULL,
            created_at    bigint NOT NULL,
            updated_at    bigint NOT NULL,
            revision      bigint NOT NULL,
            UNIQUE (namespace, id)
        )
        """,
        # No foreign keys: checking them would cost more than all else a run costs, and whoever writes about a job has
        # locked its row here. A run moves its row in the indexes twice, and leaves as many dead ones behind: they are
        # cleared away when there are some thousand, and not a fifth of a million jobs.
        """
        CREATE TABLE state (
            uid                 bigint PRIMARY KEY,
            revision            bigint NOT NULL,
            updated_at          bigint NOT NULL,
            handler             bigint NOT NULL,
            rank                bigint NOT NULL,
            next_run_at         bigint,
            last_run_at         bigint,
            run                 bigint,
            node                bigint,
            attempts            bigint NOT NULL,
            consecutive_errors  bigint NOT NULL,
            interruptions       bigint NOT NULL,
            retry_count         bigint NOT NULL,
            disabled_at         bigint,
            retry_of            bigint,
            regular_at          bigint,
            period_start        bigint,
            last_success_at     bigint,
            last_error_at       bigint,
            last_exit_code      bigint,
            forgotten_until     bigint,
            touched             boolean NOT NULL DEFAULT true,  -- while it ran; otherwise its run knows what it is
            id                  text COLLATE "C" NOT NULL,
            job_group           text COLLATE "C",
            phase               text COLLATE "C" NOT NULL,
            activity            text COLLATE "C" NOT NULL,
            disabled_reason     text,
            last_error          text,
            last_message        text
        ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000)
        """,
        # The heap of the scheduler: what may start, by handler, priority and time.
        """
        CREATE INDEX state_due ON state (handler, rank, next_run_at)
        WHERE phase = 'active' AND activity = 'idle' AND next_run_at IS NOT NULL
        """,
        """
        CREATE INDEX state_claimed ON state (node, job_group)
        WHERE activity <> 'idle'
        """,
        """
        CREATE INDEX state_disabled ON state (disabled_at)
        WHERE phase = 'disabled'
        """,
        # Each row is written twice: when it is claimed, and when it ends, for which its page has room.
        """
        CREATE TABLE run (
            id             bigint PRIMARY KEY DEFAULT nextval('run_id'),
            uid            bigint NOT NULL,
            scheduled_for  bigint NOT NULL,
            attempt        bigint NOT NULL,
            claimed_at     bigint NOT NULL,
            started_at     bigint,
            finished_at    bigint,
            missed         bigint NOT NULL DEFAULT 0,
            exit_code      bigint,
            trigger        text NOT NULL,
            outcome        text,
            reason         text,
            error          text,
            message        text,
            node           text
        ) WITH (fillfactor = 60)
        """,
        # One attempt at one occurrence, ever: what the clock says again is not run again. By hand, and not at all, may
        # be often. The rows of a job are found by it too: one index more would have to be kept for each run.
        """
        CREATE UNIQUE INDEX run_once
        ON run (uid, scheduled_for, (CASE WHEN attempt > 0 AND trigger <> 'manual' THEN attempt END))
        """,
        # What runs wrote, apart from their rows, which are read more often.
        """
        CREATE TABLE output (
            run   bigint PRIMARY KEY,
            text  text NOT NULL
        )
        """,
        """
        CREATE TABLE node (
            number         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            name           text NOT NULL,
            host           text NOT NULL,
            pid            bigint NOT NULL,
            process_start  text NOT NULL,
            beat           bigint NOT NULL,
            beat_at        timestamptz NOT NULL,
            skew           bigint,
            since          bigint NOT NULL
        )
        """,
    ),
)

FIND_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename"
READ_VERSION: Final = "SELECT number FROM version"
READ_ACTIVITY: Final = "SELECT last_value + is_called::int FROM activity"
READ_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# One at a time makes the tables: the others find them made.
MIGRATION_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"

DEFAULT_SCHEMA: Final = "scheduler_async"
A_URL: Final = 'A URL looks like "postgresql://user:password@host:5432/database".'

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


class PostgresStore:
    """Jobs in a schema of a PostgreSQL database, shared by every process on any machine that opens it.

    The *schema* is "scheduler_async" unless it is given here or in the URL (`?schema=…`); if it is missing it is made.
    All who share it go by the clock of the database.
    """

    def __init__(self, url: str, *, schema: str | None = None) -> None:
        if asyncpg is None:
            raise StoreError('PostgreSQL needs a driver. Install it with: pip install "scheduler-async[postgres]"')
        address = _address_of(url, schema)
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
        self._work = CopyingWork(self._notification)

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
        self._work = CopyingWork(self._notification)  # the database may be another one than last time
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
        await self._transact(self._edits, self._migrate)
        await self._ask(self._edits, self._look_at_clock)

    async def close(self) -> None:
        """Close the connections."""
        self._is_open = False
        self._listener = None
        await carried_through(self._close())

    async def _close(self) -> None:
        for link in (self._runs, self._edits, self._watch):
            await link.close()

    def _new_links(self) -> tuple[_Link, _Link, _Link]:
        return (
            _Link(self._connect, RUN_TIMEOUT, RUN_PLANS),
            _Link(self._connect, READ_TIMEOUT, {"plan_cache_mode": "force_custom_plan"}),
            _Link(self._connect, BEAT_TIMEOUT, {}, prepare=self._listen, total=True),
        )

    async def _connect(self, settings: dict[str, str], timeout: float) -> Connection:
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT,
                command_timeout=timeout,
                server_settings={
                    "application_name": "scheduler_async",
                    "search_path": self.schema,
                    "jit": "off",
                    "idle_in_transaction_session_timeout": LONGEST_PAUSE,
                    "tcp_user_timeout": LONGEST_PAUSE,  # who does not take an answer is not idle, and holds its locks
                    **settings,
                },
            )
        except (ValueError, asyncpg.ClientConfigurationError):
            # What they say may quote any part of the URL.
            raise StoreError(
                f"The store {self.url} cannot be used: its URL has options or a port that make no sense. {A_URL}"
            ) from None

    # -------------------------------------------------------- asking

    async def _transact(
        self, link: _Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do *work* in a transaction: all of it, or nothing."""
        return await self._call(link, link.transact, work, *args)

    async def _ask(
        self, link: _Link, work: Callable[Concatenate[Connection, P], Awaitable[T]], *args: P.args, **_: P.kwargs
    ) -> T:
        """Do *work* that changes nothing."""
        return await self._call(link, link.ask, work, *args)

    async def _call(self, link: _Link, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if not self._is_open:
                raise StoreError(f"The store {self.url} is closed.")
            try:
                return await call(*args)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError) as error:
                if attempt == MAX_ATTEMPTS:
                    raise self._explained(error, link) from error
            except (asyncpg.PostgresError, *_LOST) as error:
                if isinstance(error, StoreError):
                    raise
                raise self._explained(error, link) from error
        raise AssertionError

    def _explained(self, error: Exception, link: _Link) -> StoreError:
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
            asyncpg.PostgresConnectionError: "is gone: the connection was lost.",
            asyncpg.OperatorInterventionError: "is gone: the server ended the connection.",
            asyncpg.InterfaceError: "is gone: the connection was lost.",
            asyncpg.InternalClientError: "is gone: the connection was lost.",
            TimeoutError: f"did not answer within {link.patience:g} s.",
            OSError: f"cannot be reached: {error}. Is the server running, and are host and port right?",
        }
        sentence = next((text for kind, text in sentences.items() if isinstance(error, kind)), f"failed: {error}.")
        return StoreError(f"The store {self.url} {sentence}")

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

    async def _read_version(self, db: Connection) -> int:
        """The version of the schema, 0 if there is none yet; `StoreError` if it is not ours, or newer than we are."""
        tables = [name for (name,) in await db.fetch(FIND_TABLES, self.schema)]
        if not tables:
            return 0
        if not {"job", "state", "version"} <= set(tables):
            raise StoreError(
                f"The schema {quoted(self.schema)} of {self.url} belongs to another program. It has the tables "
                f"{', '.join(tables[:3])}, … Choose another with ?schema= in the URL."
            )
        version = await db.fetchval(READ_VERSION)
        if version > len(MIGRATIONS):
            raise StoreError(
                f"The store {self.url} has schema version {version}, and this scheduler_async knows up to "
                f"{len(MIGRATIONS)}. A newer version made it: upgrade scheduler_async."
            )
        return int(version)

    async def _migrate(self, db: Connection) -> None:
        if await self._read_version(db) == len(MIGRATIONS):
            return
        await db.execute(MIGRATION_LOCK, self.schema)
        version = await self._read_version(db)  # another process may have been faster
        if await db.fetchval("SELECT to_regnamespace($1)", self.schema) is None:
            await db.execute(f"CREATE SCHEMA {self.schema}")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await db.execute(statement)
        await db.execute("UPDATE version SET number = $1", len(MIGRATIONS))

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
        if sender != self._token:
            self._version += 1
            if due:
                self._tell(int(due[0]), int(due[1]))

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

    # -------------------------------------------------------- jobs

    async def change(self, changes: Sequence[Change], now: Micros) -> list[Edit | None]:
        """Carry out all *changes*, or none if one of them raises."""
        return await self._transact(self._edits, self._work.change, changes, now)

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        """Let *decide* say what becomes of jobs that wait for a moment later than *now*; None leaves one as it is."""
        return await self._transact(self._edits, self._work.review, after, limit, now, decide)

    async def remove(self, namespace: str, id: str) -> Job | None:
        """Forget a job and its runs; return it as it was."""
        return await self._transact(self._edits, self._work.remove, namespace, id)

    async def get(self, namespace: str, id: str) -> Job | None:
        """The job with this name."""
        return await self._ask(self._edits, self._work.get, namespace, id)

    async def list_jobs(self, wanted: JobFilter) -> list[Job]:
        """Jobs by their next run, those without one last."""
        return await self._ask(self._edits, self._work.list_jobs, wanted)

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Rows of the run log, newest first."""
        return await self._ask(self._edits, self._work.list_runs, wanted)

    async def output_of(self, run: int) -> str | None:
        """What a run wrote; None if that was nothing, or if there is no such run."""
        return await self._ask(self._edits, self._work.output_of, run)

    async def running_in_group(self, group: str) -> int:
        """How many jobs of *group* are claimed, by any node."""
        return (await self._ask(self._edits, self._work.running_by_group)).get(group, 0)

    # -------------------------------------------------------- runs

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Mark what is due as ours, in order, and write the rows of its runs."""
        return await self._transact(self._runs, self._work.claim_due, now, terms)

    async def count_due(self, now: Micros, most: int) -> int:
        """How many jobs are due and claimed by nobody, counted up to *most*."""
        return await self._ask(self._edits, self._work.count_due, now, most)

    async def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        """Since when a job is due that *terms* let start, or None."""
        return await self._ask(self._edits, self._work.earliest_due, now, terms)

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
        return await self._transact(self._runs, self._work.claim_one, namespace, id, payload_json, now, node, queued)

    async def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        """Mark queued runs as running; return the ids of those that are still ours."""
        return await self._transact(self._runs, self._work.start, runs, now)

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims whose handlers never started."""
        await self._transact(self._runs, self._work.release, runs)

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Aftermath | None]:
        """Record how runs ended and what comes next; None for those that are no longer ours."""
        # As a question, which is asked again if the connection is lost: what is on record changes nothing any more.
        left = await self._ask(self._runs, self._finish_at_once, ended, rules)
        return left if left is not None else await self._transact(self._runs, self._work.finish, ended, rules)

    async def _finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Aftermath | None] | None:
        try:
            return await self._work.finish_at_once(db, ended, rules)
        except asyncpg.DivisionByZeroError:
            return None

    # -------------------------------------------------------- nodes

    async def join(self, identity: NodeIdentity, now: Micros) -> int:
        """Become a node; return its number."""
        return await self._transact(self._watch, self._work.join, identity, now)

    async def beat(self, node: int) -> list[NodeRow]:
        """Show that *node* lives, and return all nodes."""
        nodes = await self._transact(self._watch, self._work.beat, node, -self._clock.skew())
        await self._ask(self._watch, self._look_at_clock)
        return nodes

    async def held(self, node: int) -> set[int]:
        """The ids of the runs that *node* has claimed and not finished."""
        # With the beats: who waits for the answer has to beat in time.
        return await self._ask(self._watch, self._work.held, node)

    async def leave(self, node: int) -> None:
        """Stop being a node."""
        await self._transact(self._watch, self._work.leave, node)

    async def nodes(self) -> list[NodeStatus]:
        """All nodes, also those that died without a word, by when they joined."""
        return await self._ask(self._edits, self._work.nodes)

    async def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Edit, ClaimedRun]]:
        """Record the runs of nodes that died as interrupted, unless they beat meanwhile, and forget the nodes."""
        return await self._transact(self._runs, self._work.recover, dead, now, rules)

    async def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        """Record claims of *node* that are not among *known* as interrupted: their answer was lost on the way."""
        return await self._transact(self._runs, self._work.interrupt_unknown, node, set(known), now, rules)

    # -------------------------------------------------------- upkeep

    async def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        """Disable every job that has no user; return them."""
        return await self._transact(self._edits, self._work.disable_without_user, reason, now)

    async def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        """Which of these jobs have more than *keep* rows."""
        return await self._ask(self._edits, self._work.overgrown, uids, keep)

    async def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        """Forget all but the newest *keep* rows of these jobs, and but those about a moment later than *now*."""
        await self._transact(self._edits, self._work.purge_runs, uids, keep, now)

    async def purge_disabled(self, before: Micros, limit: int) -> list[Job]:
        """Forget up to *limit* jobs that were disabled before a moment; return them."""
        return await self._transact(self._edits, self._work.purge_disabled, before, limit)

    # -------------------------------------------------------- copying

    async def count(self) -> tuple[int, int]:
        """How many jobs there are, and how many runs that have ended."""
        return await self._ask(self._edits, self._work.count)

    async def read_jobs(self, after: int, limit: int) -> list[JobRecord]:
        """Up to *limit* jobs as they are kept, by number, beyond the number *after*."""
        return await self._ask(self._edits, self._work.read_jobs, after, limit)

    async def read_runs(self, after: int, limit: int) -> list[RunRecord]:
        """Up to *limit* runs that have ended, by number, beyond the number *after*."""
        return await self._ask(self._edits, self._work.read_runs, after, limit)

    async def write_jobs(
        self, jobs: Sequence[JobRecord], rule: Callable[[JobRecord, JobRecord | None], Ruling]
    ) -> list[Ruling]:
        """Let *rule* say what becomes of each, given the one of that name that is here, and write what it wants."""
        return await self._transact(self._edits, self._work.write_jobs, jobs, rule)

    async def write_runs(self, runs: Sequence[RunRecord]) -> int:
        """Add those of *runs* whose jobs are here and which are not; return how many that were."""
        return await self._transact(self._edits, self._work.write_runs, runs)

    # -------------------------------------------------------- how it is

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
        if version != len(MIGRATIONS):
            raise StoreError(
                f"The store {self.url} has now schema version {version}, and this scheduler_async knows up to "
                f"{len(MIGRATIONS)}. Upgrade scheduler_async, and start it again."
            )


async def _fetch(db: Connection, question: str) -> Any:
    return await db.fetchval(question)


# ---------------------------------------------------------------- addresses


class _Address(NamedTuple):
    """Where a database is."""

    dsn: str
    schema: str
    shown: str
    """The URL for people: without the password, wherever that was."""


def _address_of(url: str, schema: str | None) -> _Address:
    """What a URL says. Whatever is wrong with it, no part of a password gets into a message."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    authority, _, database = place.partition("/")
    hosts = authority.rpartition("@")[2]
    user = unquote(authority.rpartition("@")[0].partition(":")[0])
    if scheme not in ("postgresql", "postgres"):
        raise StoreError(f"A store in PostgreSQL has a URL. {A_URL}")
    if "#" in url or "@" in database or ("@" in query and "@" not in authority) or not _HOSTS.fullmatch(hosts):
        raise StoreError(
            f"The URL of the store cannot be read. {A_URL} "
            "What is special in a password is written with a percent sign: %40 for @, %2F for /, %23 for #, %3F for ?."
        )
    options = parse_qsl(query, keep_blank_values=True)
    given = schema if schema is not None else dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(given):
        raise StoreError(
            f"A schema is named by up to 63 lower-case letters, digits and underscores, the first no digit, "
            f"not {quoted(given)}."
        )
    others = urlencode([(name, value) for name, value in options if name != "schema"])
    shown = f"postgresql://{user}{'@' if user else ''}{hosts}/{database}"
    return _Address(
        dsn=f"postgresql://{place}{'?' if others else ''}{others}",
        schema=given,
        shown=shown if given == DEFAULT_SCHEMA else f"{shown}?schema={given}",
    )


_HOST = r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:[0-9]*)?"
_HOSTS = re.compile(rf"{_HOST}(,{_HOST})*")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


# ---------------------------------------------------------------- connections


class _Link:
    """A connection that is made when it is needed, and made anew when it has broken; one at a time uses it."""

    def __init__(
        self,
        connect: Callable[[dict[str, str], float], Awaitable[Connection]],
        patience: float,
        settings: dict[str, str],
        *,
        prepare: Callable[[Connection, bool], Awaitable[None]] | None = None,
        total: bool = False,
    ) -> None:
        """*patience* is for one statement, or with *total* for all of it; *prepare* is told whether it is the first."""
        self.patience = patience
        self._connect, self._settings = connect, settings
        self._prepare = prepare
        self._total = patience if total else None
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._was_connected = False

    async def transact(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work*, all of it or nothing."""
        return await self._use(self._in_transaction, work, *args)

    async def ask(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* that changes nothing."""
        return await self._use(self._first, work, *args)

    async def _use(self, how: Callable[..., Awaitable[T]], work: Callable[..., Awaitable[T]], *args: Any) -> T:
        async with self._lock, asyncio.timeout(self._total):
            try:
                return await how(work, *args)
            except BaseException as error:
                await self._tidy_up(error)
                raise

    async def _in_transaction(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        connection = await self._first(_begin)
        answer = await work(connection, *args)
        await connection.execute("COMMIT")
        return answer

    async def _first(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* that changes nothing; on a new connection if the old one was lost while nobody used it."""
        was_connected = self._connection is not None
        try:
            return await work(await self._ready(), *args)
        except (TimeoutError, StoreError):
            raise
        except _LOST:
            if not was_connected:
                raise
            self._drop()
            return await work(await self._ready(), *args)

    async def _ready(self) -> Connection:
        if self._connection is not None and self._connection.is_closed():
            self._connection = None
        if self._connection is None:
            self._connection = await self._connect(self._settings, self.patience)
            self._event_loop = asyncio.get_running_loop()
            if self._prepare is not None:
                await self._prepare(self._connection, not self._was_connected)
            self._was_connected = True
        return self._connection

    async def _tidy_up(self, error: BaseException) -> None:
        """Leave no transaction open, whatever happened."""
        connection = self._connection
        if connection is None or connection.is_closed():
            self._connection = None
        elif isinstance(error, (asyncio.CancelledError, *_LOST)) and not isinstance(error, StoreError):
            self._drop()  # who knows what it would answer next
        elif connection.is_in_transaction():
            try:
                await connection.execute("ROLLBACK")
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RuntimeError):  # the event loop it belongs to may have ended
                connection.terminate()

    async def close(self) -> None:
        """Let go of the connection, as politely as that goes: what was asked is answered first."""
        if self._event_loop is not asyncio.get_running_loop():
            self._drop()
            return
        try:
            async with asyncio.timeout(BEAT_TIMEOUT), self._lock:
                if self._connection is not None:
                    await self._connection.close()
        except _LOST:
            pass  # it is closed all the same
        finally:
            self._drop()


async def _begin(db: Connection) -> Connection:
    await db.execute("BEGIN")
    return db


_LOST: tuple[type[Exception], ...] = (
    ()
    if asyncpg is None
    else (
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # its word for a connection that it has not yet noticed to be lost
        asyncpg.OperatorInterventionError,
        OSError,
    )
)
