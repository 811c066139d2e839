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
from scheduler_async.stores.conditions import HAS_ENDED
from scheduler_async.stores.messages import LONG_LIFE
from scheduler_async.timekeeping.instants import HOUR, LAST

if TYPE_CHECKING:
    from asyncpg import Connection


# `HAS_ENDED` as a number, since the planner would turn "not equal" around.
ENDED_AS_NUMBER: Final = f"({HAS_ENDED})::int"

MIGRATIONS: Final = (
    # 1: the first
    (
        "CREATE TABLE version (number bigint NOT NULL)",
        "INSERT INTO version VALUES (0)",
        "CREATE SEQUENCE job_uid",
        "CREATE SEQUENCE run_id",
        # Counts claims and endings by any node.
        "CREATE SEQUENCE activity",
        """
        CREATE TABLE handler (
            number  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            name    text COLLATE "C" NOT NULL UNIQUE
        )
        """,
        # The columns that only edits change, such as the payload. The columns that every run changes are kept apart.
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
        # No foreign keys: checking them would cost more than all other work of a run, and every transaction about a job
        # locks its row here. A run updates its row in the indexes twice, and leaves as many dead rows behind.
        # Autovacuum removes them after some thousand, not after a fifth of a million jobs.
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
        # The jobs that may start, by handler, priority and time.
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
        # A run writes its row twice, when it is claimed and when it ends. Its page has room for the second version.
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
        # At most one row for each attempt at an occurrence: a clock that was set back does not run it again. Manual
        # runs and skipped occurrences may repeat. The index also finds the rows of a job, which saves another index.
        """
        CREATE UNIQUE INDEX run_once
        ON run (uid, scheduled_for, (CASE WHEN attempt > 0 AND trigger <> 'manual' THEN attempt END))
        """,
        # The output of runs, apart from their rows, which are read more often.
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
    # 2: a group belongs to its namespace; a handler without jobs is deleted; a removed job remains as long as its runs
    # do
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
        # A removed job remains as long as its runs do, and releases its name.
        "ALTER TABLE job ADD COLUMN removed_at bigint",
        "ALTER TABLE job DROP CONSTRAINT job_namespace_id_key",
        "CREATE UNIQUE INDEX job_name ON job (namespace, id) WHERE removed_at IS NULL",
        "CREATE INDEX job_removed ON job (removed_at) WHERE removed_at IS NOT NULL",
        "CREATE INDEX job_removed_name ON job (namespace, id) WHERE removed_at IS NOT NULL",
        "CREATE INDEX job_of_handler ON job (handler) WHERE removed_at IS NULL",
        "DELETE FROM handler WHERE NOT EXISTS (SELECT FROM job WHERE job.handler = handler.name)",
    ),
    # 3: pauses with a reason and an end; changes, requests and the lives of nodes; results, tracebacks and progress
    (
        "ALTER TABLE job ADD COLUMN policy text",
        "ALTER TABLE state ADD COLUMN counted_until bigint",
        "ALTER TABLE state ADD COLUMN paused_reason text",
        "ALTER TABLE state ADD COLUMN paused_until bigint",
        "ALTER TABLE state ADD COLUMN cursor text",
        "ALTER TABLE state ADD COLUMN cursor_edits bigint NOT NULL DEFAULT 0",
        "ALTER TABLE state ADD COLUMN running bigint NOT NULL DEFAULT 0",
        "ALTER TABLE state ADD COLUMN retries text",
        "ALTER TABLE state ADD COLUMN owed_until bigint",
        "ALTER TABLE state ADD COLUMN occurrences_run bigint NOT NULL DEFAULT 0",
        "UPDATE state SET counted_until = coalesce(disabled_at, updated_at) WHERE phase <> 'active'",
        "CREATE INDEX state_paused ON state (paused_until) WHERE phase = 'paused' AND paused_until IS NOT NULL",
        "DROP INDEX state_disabled",
        f"CREATE INDEX state_disabled ON state (({ENDED_AS_NUMBER}), disabled_at) WHERE phase = 'disabled'",
        "CREATE INDEX run_skipped ON run (uid, scheduled_for) WHERE attempt = 0",
        "ALTER TABLE run ADD COLUMN payload text",
        # The first attempt at a manual run that any node may make.
        "ALTER TABLE run ADD COLUMN origin bigint",
        "ALTER TABLE run ADD COLUMN result text",
        "ALTER TABLE run ADD COLUMN progress double precision",
        "ALTER TABLE run ADD COLUMN progress_message text",
        "ALTER TABLE run ADD COLUMN after_run bigint",
        # The jobs that run after others. A row is in step with the schedule of its job. The other job may not exist.
        """
        CREATE TABLE successor (
            uid        bigint PRIMARY KEY,
            namespace  text COLLATE "C" NOT NULL,
            id         text COLLATE "C" NOT NULL,
            run        bigint  -- the last run of the other job that made this one due
        )
        """,
        "CREATE INDEX successor_of ON successor (namespace, id)",
        # The starts of groups that have a rate, by when they cease to count.
        """
        CREATE TABLE group_start (
            rate_key  text COLLATE "C" NOT NULL,
            settled   boolean NOT NULL,  -- whether their handlers have begun
            until     bigint NOT NULL,
            starts    bigint NOT NULL,
            PRIMARY KEY (rate_key, settled, until)
        )
        """,
        "CREATE INDEX group_start_until ON group_start (until)",
        """
        CREATE TABLE traceback (
            run   bigint PRIMARY KEY,
            text  text NOT NULL
        )
        """,
        # Requests to the node that runs a job, or could: start this run, or cancel it.
        """
        CREATE TABLE request (
            run     bigint PRIMARY KEY,
            uid     bigint NOT NULL,
            kind    text NOT NULL,
            reason  text,
            at      bigint NOT NULL
        )
        """,
        "CREATE INDEX request_start ON request (uid) WHERE kind = 'start'",
        "CREATE INDEX request_cancel ON request (uid) WHERE kind = 'cancel'",
        # The owners of runs whose jobs may have several at once. The state of any other job has the owner of its run.
        """
        CREATE TABLE instance (
            run       bigint PRIMARY KEY,
            uid       bigint NOT NULL,
            node      bigint,
            backfill  bigint
        )
        """,
        "CREATE INDEX instance_of_job ON instance (uid)",
        "CREATE INDEX instance_of_node ON instance (node)",
        "CREATE INDEX instance_of_backfill ON instance (backfill) WHERE backfill IS NOT NULL",
        """
        CREATE TABLE backfill (
            number          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            uid             bigint NOT NULL,
            max_concurrent  bigint NOT NULL,
            payload         text,
            total           bigint NOT NULL,
            done            bigint NOT NULL,
            failed          bigint NOT NULL,
            state           text NOT NULL,
            at              bigint NOT NULL
        )
        """,
        "CREATE INDEX backfill_running ON backfill (number) WHERE state = 'running'",
        "CREATE INDEX backfill_of_job ON backfill (uid)",
        # The occurrences of a backfill that no node has taken.
        """
        CREATE TABLE backfill_due (
            backfill       bigint NOT NULL,
            scheduled_for  bigint NOT NULL,
            PRIMARY KEY (backfill, scheduled_for)
        )
        """,
        """
        CREATE TABLE change (
            number  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
            uid     bigint NOT NULL,
            at      bigint NOT NULL,
            action  text NOT NULL,
            actor   text,
            via     text,
            reason  text,
            before  text,
            after   text
        )
        """,
        "CREATE INDEX change_of_job ON change (uid, number)",
        # There may be very many triggers and cancellations.
        "CREATE INDEX change_decision ON change (uid, number) WHERE action NOT IN ('trigger', 'cancel')",
        "ALTER TABLE node ADD COLUMN handlers text",
        # The life of each node, kept after its end.
        """
        CREATE TABLE node_span (
            number  bigint PRIMARY KEY,
            name    text NOT NULL,
            host    text NOT NULL,
            pid     bigint NOT NULL,
            since   bigint NOT NULL,
            until   bigint,
            how     text NOT NULL
        )
        """,
        "CREATE INDEX node_span_until ON node_span (until)",
        "CREATE INDEX node_span_since ON node_span (since)",
        # The few long lives. The others are found near their ends. Absurd times must not overflow.
        f"CREATE INDEX node_span_long ON node_span (until) WHERE until - since::float8 >= {LONG_LIFE}",
        "INSERT INTO node_span SELECT number, name, host, pid, since, NULL, 'running' FROM node",
    ),
    # 4: what pages for operators ask. Nothing here changes with a successful run of a job with a schedule, but a row of
    # the tally with each batch of runs
    (
        # How many runs ended in each hour. It outlives the runs. The outcome "progress" counts reports of progress.
        """
        CREATE TABLE tally (
            hour       bigint NOT NULL,
            namespace  text COLLATE "C" NOT NULL,
            outcome    text COLLATE "C" NOT NULL,
            node       text COLLATE "C" NOT NULL,
            n          bigint NOT NULL,
            PRIMARY KEY (hour, namespace, outcome, node)
        ) WITH (fillfactor = 50)
        """,
        f"""
        INSERT INTO tally
        SELECT r.finished_at - r.finished_at % {HOUR}, j.namespace, r.outcome, coalesce(r.node, ''),
               sum(CASE WHEN r.outcome = 'skipped' THEN greatest(r.missed, 1) ELSE 1 END)
          FROM run r JOIN job j USING (uid)
         WHERE r.outcome IS NOT NULL AND r.finished_at BETWEEN 0 AND {LAST}
      GROUP BY 1, 2, 3, 4
        """,
        # The runs that were no success. An index on the outcome would move with every run: an update of an indexed
        # column does not stay on its page. A row may be missing for a run that an older version has recorded, and may
        # remain of one that is gone.
        """
        CREATE TABLE unusual (
            outcome  text COLLATE "C" NOT NULL,
            run      bigint NOT NULL,
            PRIMARY KEY (outcome, run)
        )
        """,
        "INSERT INTO unusual SELECT outcome, id FROM run WHERE outcome NOT IN ('noop', 'success')",
        # Jobs that are neither claimed nor due at a time: paused, disabled, or waiting for a trigger or another job.
        """
        CREATE INDEX state_resting ON state (phase, uid)
        WHERE activity = 'idle' AND (phase <> 'active' OR next_run_at IS NULL)
        """,
        "CREATE INDEX state_failing ON state (last_error_at) WHERE consecutive_errors > 0",
        "CREATE INDEX state_of_handler ON state (handler)",
        "CREATE INDEX job_titled ON job (namespace, id, name) WHERE removed_at IS NULL AND name IS NOT NULL",
        # Jobs that are due at the same time have an order.
        "DROP INDEX state_due",
        """
        CREATE INDEX state_due ON state (handler, rank, next_run_at, uid)
        WHERE phase = 'active' AND activity = 'idle' AND next_run_at IS NOT NULL
        """,
    ),
)

FIND_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename"
READ_VERSION: Final = "SELECT number FROM version"
# One process at a time creates the tables. The others then find them.
MIGRATION_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
# Every transaction that changes jobs reads the version first. It ends before this lock is granted; later transactions
# wait.
LOCK_VERSION: Final = "LOCK TABLE version IN ACCESS EXCLUSIVE MODE"

# A statement of a migration may go through all runs of a large store. Other processes wait for it.
LONGEST_MIGRATION: Final = 86_400.0  # seconds


def newest() -> int:
    """Return the version of the schema that this code works with."""
    return len(MIGRATIONS)


def begin_if_current() -> str:
    """Return the start of a transaction. It fails with a division by zero if a newer version has changed the schema."""
    return f"BEGIN; SELECT 1 / (number <= {newest()})::int FROM version"


async def read_version(db: Connection, schema: str, url: str) -> int:
    """Return the version of the schema, 0 if it is empty.

    Raise `StoreError` if it is foreign, or newer than this code.
    """
    tables = [name for (name,) in await db.fetch(FIND_TABLES, schema)]
    if not tables:
        return 0
    if not {"job", "state", "version"} <= set(tables):
        raise StoreError(
            f"The schema {quoted(schema)} of {url} belongs to another program. It has the tables "
            f"{', '.join(tables[:3])}, … Choose another with ?schema= in the URL."
        )
    version = await db.fetchval(READ_VERSION, timeout=LONGEST_MIGRATION)
    if version is None or version < 1:
        raise StoreError(
            f"The store {url} has tables, but its version table does not contain the schema version. "
            "Restore it from a backup, or choose another schema with ?schema= in the URL."
        )
    if version > newest():
        raise StoreOutdatedError(url, version, newest())
    return int(version)


async def migrate(db: Connection, schema: str, url: str) -> int:
    """Migrate the schema to the newest version within a transaction. Return the previous version."""
    await db.execute(MIGRATION_LOCK, schema, timeout=LONGEST_MIGRATION)
    version = await read_version(db, schema, url)  # another process may have been faster
    if version:
        await db.execute(LOCK_VERSION, timeout=LONGEST_MIGRATION)
    elif await db.fetchval("SELECT to_regnamespace($1)", f'"{schema}"') is None:
        await db.execute(f'CREATE SCHEMA "{schema}"')
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            await db.execute(statement, timeout=LONGEST_MIGRATION)
    await db.execute("UPDATE version SET number = $1", newest())
    return version
