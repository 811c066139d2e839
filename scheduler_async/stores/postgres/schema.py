"""The schema of a PostgreSQL store, and the migrations that lead to it from every schema that was ever released.

Never change a migration that is on the main branch: stores with it exist. Add another one, and a store of the schema
before it to `tests/stores/schemas`.

Processes of older versions may still run while tables are migrated. They claim and edit nothing once they see the new
version, but they record the runs they have. If a migration changes the meaning of a column that they write, it renames
the column: their statements fail then, and their runs are recovered as interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler_async.errors import StoreError, StoreOutdatedError, quoted

if TYPE_CHECKING:
    from asyncpg import Connection


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
    # 2: a group belongs to its namespace; a handler that no job uses is forgotten; a job that was removed stays as long
    # as its runs do
    (
        # The first tables of version 1 differ from later ones.
        "ALTER TABLE state ADD COLUMN IF NOT EXISTS touched boolean NOT NULL DEFAULT true",
        """
        DO $$
        BEGIN
            IF to_regclass('run_of_job') IS NOT NULL THEN
                DROP INDEX run_of_job, run_once;
                CREATE UNIQUE INDEX run_once
                ON run (uid, scheduled_for, (CASE WHEN attempt > 0 AND trigger <> 'manual' THEN attempt END));
            END IF;
        END $$
        """,
        "ALTER TABLE state RENAME COLUMN job_group TO group_key",
        """
        UPDATE state SET group_key = job.namespace || chr(10) || group_key
          FROM job
         WHERE job.uid = state.uid AND group_key IS NOT NULL
        """,
        # A job that was removed stays as long as its runs do, and gives up its name.
        "ALTER TABLE job ADD COLUMN removed_at bigint",
        "ALTER TABLE job DROP CONSTRAINT job_namespace_id_key",
        "CREATE UNIQUE INDEX job_name ON job (namespace, id) WHERE removed_at IS NULL",
        "CREATE INDEX job_removed ON job (removed_at) WHERE removed_at IS NOT NULL",
        "CREATE INDEX job_removed_name ON job (namespace, id) WHERE removed_at IS NOT NULL",
        "CREATE INDEX job_of_handler ON job (handler) WHERE removed_at IS NULL",
        "DELETE FROM handler WHERE NOT EXISTS (SELECT FROM job WHERE job.handler = handler.name)",
    ),
)

FIND_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename"
READ_VERSION: Final = "SELECT number FROM version"
# One at a time makes the tables: the others find them made.
MIGRATION_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
# Every transaction that changes jobs reads the version first. It ends before this lock is granted; the next ones wait.
LOCK_VERSION: Final = "LOCK TABLE version IN ACCESS EXCLUSIVE MODE"


def newest() -> int:
    """Return the version of the schema that this code works with."""
    return len(MIGRATIONS)


def begin_if_current() -> str:
    """Return what begins a transaction, and fails with a division by zero if a newer version has changed the schema."""
    return f"BEGIN; SELECT 1 / (number <= {newest()})::int FROM version"


async def read_version(db: Connection, schema: str, url: str) -> int:
    """Return the version of the schema, 0 if it is empty; `StoreError` if it is not ours, or newer than we are."""
    tables = [name for (name,) in await db.fetch(FIND_TABLES, schema)]
    if not tables:
        return 0
    if not {"job", "state", "version"} <= set(tables):
        raise StoreError(
            f"The schema {quoted(schema)} of {url} belongs to another program. It has the tables "
            f"{', '.join(tables[:3])}, … Choose another with ?schema= in the URL."
        )
    version = await db.fetchval(READ_VERSION)
    if version is None or version < 1:
        raise StoreError(
            f"The store {url} has tables, but its table version does not say which schema version they have. "
            "Restore it from a backup, or choose another schema with ?schema= in the URL."
        )
    if version > newest():
        raise StoreOutdatedError(url, version, newest())
    return int(version)


async def migrate(db: Connection, schema: str, url: str) -> int:
    """Bring the schema up to date, within a transaction; return the version it had before."""
    await db.execute(MIGRATION_LOCK, schema)
    version = await read_version(db, schema, url)  # another process may have been faster
    if version:
        await db.execute(LOCK_VERSION)
    elif await db.fetchval("SELECT to_regnamespace($1)", f'"{schema}"') is None:
        await db.execute(f'CREATE SCHEMA "{schema}"')
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            await db.execute(statement)
    await db.execute("UPDATE version SET number = $1", newest())
    return version
