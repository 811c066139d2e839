"""The schema of a SQLite store, and the migrations that lead to it from every schema that was ever released.

Never change a migration that is on the main branch: stores with it exist. Add another one, and a store of the schema
before it to `tests/stores/schemas`.

Processes of older versions may still run while a file is migrated. They claim and edit nothing once they see the new
version, but they record the runs they have. If a migration changes the meaning of a column that they write, it renames
the column: their statements fail then, and their runs are recovered as interrupted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final, TypeAlias

from scheduler_async.errors import StoreError, StoreOutdatedError
from scheduler_async.stores.conditions import HAS_ENDED, IS_UNUSUAL
from scheduler_async.stores.messages import LONG_LIFE
from scheduler_async.timekeeping.instants import HOUR, LAST

APPLICATION_ID: Final = 0x5C4EDA51  # in the header of the file: it belongs to this package

# Higher numbers are absurd, and are never assigned.
MOST_NUMBERS: Final = 2**53


# Whether a state is neither that of a claimed job nor that of one that is due at a time.
RESTING: Final = "activity = 'idle' AND (phase <> 'active' OR next_run_at IS NULL)"


def last_given(table: str) -> str:
    """Return the expression for the highest number that *table* is known to have assigned.

    Damaged numbers do not count.
    """
    return (
        f"coalesce((SELECT max(seq) FROM sqlite_sequence"
        f" WHERE name = '{table}' AND typeof(seq) = 'integer' AND seq < {MOST_NUMBERS}), 0)"
    )


def _add_forgotten_until(db: sqlite3.Connection) -> None:
    """Add a column of version 1 that the first files of that version lack."""
    columns = {name for _, name, *_ in db.execute("PRAGMA table_info(state)")}
    if "forgotten_until" not in columns:
        db.execute("ALTER TABLE state ADD COLUMN forgotten_until INTEGER")


Step: TypeAlias = str | Callable[[sqlite3.Connection], None]
"""A step of a migration: a statement, or a function for what SQL cannot express."""

MIGRATIONS: Final[tuple[tuple[Step, ...], ...]] = (
    # 1: the first
    (
        """
        CREATE TABLE handler (
            number  INTEGER PRIMARY KEY,
            name    TEXT NOT NULL UNIQUE
        ) STRICT
        """,
        # The columns that only edits change, such as the payload. The columns that every run changes are kept apart.
        """
        CREATE TABLE job (
            uid           INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            handler       TEXT NOT NULL,
            schedule      TEXT NOT NULL,
            retry         TEXT,
            payload       TEXT NOT NULL,
            metadata      TEXT NOT NULL,
            user_id       TEXT,
            name          TEXT,
            priority      TEXT NOT NULL,
            job_group     TEXT,
            misfire       TEXT NOT NULL,
            timeout       INTEGER,
            on_interrupt  TEXT NOT NULL,
            anchor        INTEGER NOT NULL,
            created_at    INTEGER NOT NULL,
            updated_at    INTEGER NOT NULL,
            revision      INTEGER NOT NULL,
            UNIQUE (namespace, id)
        ) STRICT
        """,
        """
        CREATE TABLE state (
            uid                 INTEGER PRIMARY KEY REFERENCES job (uid) ON DELETE CASCADE,
            revision            INTEGER NOT NULL,
            handler             INTEGER NOT NULL REFERENCES handler (number),
            rank                INTEGER NOT NULL,
            id                  TEXT NOT NULL,
            job_group           TEXT,
            phase               TEXT NOT NULL,
            disabled_reason     TEXT,
            disabled_at         INTEGER,
            activity            TEXT NOT NULL,
            next_run_at         INTEGER,
            retry_of            INTEGER,
            attempts            INTEGER NOT NULL,
            regular_at          INTEGER,
            consecutive_errors  INTEGER NOT NULL,
            retry_count         INTEGER NOT NULL,
            period_start        INTEGER,
            last_run_at         INTEGER,
            last_success_at     INTEGER,
            last_error_at       INTEGER,
            last_error          TEXT,
            last_exit_code      INTEGER,
            last_message        TEXT,
            forgotten_until     INTEGER,
            run                 INTEGER,
            node                INTEGER
        ) STRICT
        """,
        # The jobs that may start, by handler and time.
        """
        CREATE INDEX state_due ON state (handler, next_run_at)
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
        """
        CREATE TABLE run (
            id             INTEGER PRIMARY KEY AUTOINCREMENT,
            uid            INTEGER NOT NULL REFERENCES job (uid) ON DELETE CASCADE,
            scheduled_for  INTEGER NOT NULL,
            attempt        INTEGER NOT NULL,
            trigger        TEXT NOT NULL,
            claimed_at     INTEGER NOT NULL,
            started_at     INTEGER,
            finished_at    INTEGER,
            outcome        TEXT,
            reason         TEXT,
            missed         INTEGER NOT NULL DEFAULT 0,
            error          TEXT,
            message        TEXT,
            exit_code      INTEGER,
            node           TEXT
        ) STRICT
        """,
        "CREATE INDEX run_of_job ON run (uid)",
        # At most one row for each attempt at an occurrence: a clock that was set back does not run it again.
        """
        CREATE UNIQUE INDEX run_once ON run (uid, scheduled_for, attempt)
        WHERE attempt > 0 AND trigger <> 'manual'
        """,
        """
        CREATE TABLE node (
            number         INTEGER PRIMARY KEY AUTOINCREMENT,
            name           TEXT NOT NULL,
            host           TEXT NOT NULL,
            pid            INTEGER NOT NULL,
            process_start  TEXT NOT NULL,
            beat           INTEGER NOT NULL,
            since          INTEGER NOT NULL
        ) STRICT
        """,
    ),
    # 2: the output of runs, apart from their rows, which are read more often
    (
        """
        CREATE TABLE output (
            run   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            text  TEXT NOT NULL
        ) STRICT
        """,
    ),
    # 3: deaths of the process are counted separately from failures of the job
    ("ALTER TABLE state ADD COLUMN interruptions INTEGER NOT NULL DEFAULT 0",),
    # 4: whether the state of a job was changed during its run; if not, the run knows the current state
    ("ALTER TABLE state ADD COLUMN touched INTEGER NOT NULL DEFAULT 1",),
    # 5: the time of a node's last heartbeat; and rows outside of `run_once`, which a copy searches
    (
        "ALTER TABLE node ADD COLUMN beat_at INTEGER NOT NULL DEFAULT 0",
        """
        CREATE INDEX run_beside ON run (uid, scheduled_for)
        WHERE attempt = 0 OR trigger = 'manual'
        """,
    ),
    # 6: a group belongs to its namespace; a handler without jobs is deleted, and its number never reused; a removed job
    # remains as long as its runs do
    (
        _add_forgotten_until,
        "ALTER TABLE state RENAME COLUMN job_group TO group_key",
        """
        UPDATE state
           SET group_key = (SELECT namespace || char(10) || group_key FROM job WHERE job.uid = state.uid)
         WHERE group_key IS NOT NULL
        """,
        """
        CREATE TABLE new_handler (
            number  INTEGER PRIMARY KEY AUTOINCREMENT,
            name    TEXT NOT NULL UNIQUE
        ) STRICT
        """,
        "INSERT INTO new_handler SELECT number, name FROM handler",
        "DROP TABLE handler",
        "ALTER TABLE new_handler RENAME TO handler",
        "CREATE INDEX state_of_handler ON state (handler)",
        "DELETE FROM handler WHERE number NOT IN (SELECT handler FROM state)",
        # A removed job remains as long as its runs do, and releases its name.
        """
        CREATE TABLE new_job (
            uid           INTEGER PRIMARY KEY,
            namespace     TEXT NOT NULL,
            id            TEXT NOT NULL,
            handler       TEXT NOT NULL,
            schedule      TEXT NOT NULL,
            retry         TEXT,
            payload       TEXT NOT NULL,
            metadata      TEXT NOT NULL,
            user_id       TEXT,
            name          TEXT,
            priority      TEXT NOT NULL,
            job_group     TEXT,
            misfire       TEXT NOT NULL,
            timeout       INTEGER,
            on_interrupt  TEXT NOT NULL,
            anchor        INTEGER NOT NULL,
            created_at    INTEGER NOT NULL,
            updated_at    INTEGER NOT NULL,
            revision      INTEGER NOT NULL,
            removed_at    INTEGER
        ) STRICT
        """,
        """
        INSERT INTO new_job
        SELECT uid, namespace, id, handler, schedule, retry, payload, metadata, user_id, name, priority, job_group,
               misfire, timeout, on_interrupt, anchor, created_at, updated_at, revision, NULL
          FROM job
        """,
        "INSERT INTO sqlite_sequence SELECT 'new_job', seq FROM sqlite_sequence WHERE name = 'job'",
        "DROP TABLE job",
        "ALTER TABLE new_job RENAME TO job",
        # No number is assigned twice, even if the job with the highest number is gone: the sequence then remembers it.
        # AUTOINCREMENT would write one more page, that of the sequence, for every added job.
        f"""
        CREATE TRIGGER job_number BEFORE DELETE ON job
        WHEN old.uid < {MOST_NUMBERS} AND old.uid > {last_given("job")}
        BEGIN
            DELETE FROM sqlite_sequence WHERE name = 'job';
            INSERT INTO sqlite_sequence (name, seq) VALUES ('job', old.uid);
        END
        """,
        "CREATE UNIQUE INDEX job_name ON job (namespace, id) WHERE removed_at IS NULL",
        "CREATE INDEX job_removed ON job (removed_at) WHERE removed_at IS NOT NULL",
        "CREATE INDEX job_removed_name ON job (namespace, id) WHERE removed_at IS NOT NULL",
    ),
    # 7: pauses with a reason and an end; changes, requests and the lives of nodes; results, tracebacks and progress
    (
        "ALTER TABLE job ADD COLUMN policy TEXT",
        "ALTER TABLE state ADD COLUMN counted_until INTEGER",
        "ALTER TABLE state ADD COLUMN paused_reason TEXT",
        "ALTER TABLE state ADD COLUMN paused_until INTEGER",
        "ALTER TABLE state ADD COLUMN cursor TEXT",
        "ALTER TABLE state ADD COLUMN cursor_edits INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE state ADD COLUMN running INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE state ADD COLUMN retries TEXT",
        "ALTER TABLE state ADD COLUMN owed_until INTEGER",
        "ALTER TABLE state ADD COLUMN occurrences_run INTEGER NOT NULL DEFAULT 0",
        """
        UPDATE state
           SET counted_until = coalesce(disabled_at, (SELECT updated_at FROM job WHERE job.uid = state.uid))
         WHERE phase <> 'active'
        """,
        "CREATE INDEX state_paused ON state (paused_until) WHERE phase = 'paused' AND paused_until IS NOT NULL",
        "DROP INDEX state_disabled",
        f"CREATE INDEX state_disabled ON state (({HAS_ENDED}), disabled_at) WHERE phase = 'disabled'",
        "CREATE INDEX run_skipped ON run (uid, scheduled_for) WHERE attempt = 0",
        # A successful run writes nothing here.
        f"CREATE INDEX run_unusual ON run (outcome, id) WHERE {IS_UNUSUAL.removeprefix('r.')}",
        "ALTER TABLE run ADD COLUMN payload TEXT",
        # The first attempt at a manual run that any node may make.
        "ALTER TABLE run ADD COLUMN origin INTEGER",
        "ALTER TABLE run ADD COLUMN result TEXT",
        "ALTER TABLE run ADD COLUMN progress REAL",
        "ALTER TABLE run ADD COLUMN progress_message TEXT",
        "ALTER TABLE run ADD COLUMN after_run INTEGER",
        # The jobs that run after others. A row is in step with the schedule of its job. The other job may not exist.
        """
        CREATE TABLE successor (
            uid        INTEGER PRIMARY KEY REFERENCES job (uid) ON DELETE CASCADE,
            namespace  TEXT NOT NULL,
            id         TEXT NOT NULL,
            run        INTEGER  -- the last run of the other job that made this one due
        ) STRICT
        """,
        "CREATE INDEX successor_of ON successor (namespace, id)",
        # The starts of groups that have a rate, by when they cease to count.
        """
        CREATE TABLE group_start (
            rate_key  TEXT NOT NULL,
            settled   INTEGER NOT NULL,  -- whether their handlers have begun
            until     INTEGER NOT NULL,
            starts    INTEGER NOT NULL,
            UNIQUE (rate_key, settled, until)
        ) STRICT
        """,
        "CREATE INDEX group_start_until ON group_start (until)",
        """
        CREATE TABLE traceback (
            run   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            text  TEXT NOT NULL
        ) STRICT
        """,
        # Requests to the node that runs a job, or could: start this run, or cancel it.
        """
        CREATE TABLE request (
            run     INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            uid     INTEGER NOT NULL,
            kind    TEXT NOT NULL,
            reason  TEXT,
            at      INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX request_start ON request (uid) WHERE kind = 'start'",
        "CREATE INDEX request_cancel ON request (uid) WHERE kind = 'cancel'",
        # The owners of runs whose jobs may have several at once. The state of any other job has the owner of its run.
        """
        CREATE TABLE instance (
            run       INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
            uid       INTEGER NOT NULL,
            node      INTEGER,
            backfill  INTEGER
        ) STRICT
        """,
        "CREATE INDEX instance_of_job ON instance (uid)",
        "CREATE INDEX instance_of_node ON instance (node)",
        "CREATE INDEX instance_of_backfill ON instance (backfill) WHERE backfill IS NOT NULL",
        """
        CREATE TABLE backfill (
            number          INTEGER PRIMARY KEY AUTOINCREMENT,
            uid             INTEGER NOT NULL REFERENCES job (uid) ON DELETE CASCADE,
            max_concurrent  INTEGER NOT NULL,
            payload         TEXT,
            total           INTEGER NOT NULL,
            done            INTEGER NOT NULL,
            failed          INTEGER NOT NULL,
            state           TEXT NOT NULL,
            at              INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX backfill_running ON backfill (number) WHERE state = 'running'",
        "CREATE INDEX backfill_of_job ON backfill (uid)",
        # The occurrences of a backfill that no node has taken.
        """
        CREATE TABLE backfill_due (
            backfill       INTEGER NOT NULL REFERENCES backfill (number) ON DELETE CASCADE,
            scheduled_for  INTEGER NOT NULL,
            PRIMARY KEY (backfill, scheduled_for)
        ) STRICT
        """,
        # The changes of a job form a chain: the job knows its last one, and each knows the previous one. Each
        # knows also the previous one that is neither a trigger nor a cancellation, of which there may be very many. An
        # index would write one more page for every added, edited and paused job.
        """
        CREATE TABLE change (
            number    INTEGER PRIMARY KEY,
            uid       INTEGER NOT NULL,
            previous  INTEGER,
            decision  INTEGER,
            at        INTEGER NOT NULL,
            action    TEXT NOT NULL,
            actor     TEXT,
            via       TEXT,
            reason    TEXT,
            before    TEXT,
            after     TEXT
        ) STRICT
        """,
        "ALTER TABLE job ADD COLUMN last_change INTEGER",
        "ALTER TABLE node ADD COLUMN handlers TEXT",
        # The life of each node, kept after its end.
        """
        CREATE TABLE node_span (
            number  INTEGER PRIMARY KEY,
            name    TEXT NOT NULL,
            host    TEXT NOT NULL,
            pid     INTEGER NOT NULL,
            since   INTEGER NOT NULL,
            until   INTEGER,
            how     TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX node_span_until ON node_span (until)",
        "CREATE INDEX node_span_since ON node_span (since)",
        # The few long lives. The others are found near their ends.
        f"CREATE INDEX node_span_long ON node_span (until) WHERE until - since >= {LONG_LIFE}",
        "INSERT INTO node_span SELECT number, name, host, pid, since, NULL, 'running' FROM node",
    ),
    # 8: what pages for operators ask. Nothing here changes with a successful run of a job with a schedule, but a row of
    # the tally with each batch of runs
    (
        # How many runs ended in each hour. It outlives the runs. The outcome "progress" counts reports of progress.
        """
        CREATE TABLE tally (
            hour       INTEGER NOT NULL,
            namespace  TEXT NOT NULL,
            outcome    TEXT NOT NULL,
            node       TEXT NOT NULL,
            n          INTEGER NOT NULL,
            PRIMARY KEY (hour, namespace, outcome, node)
        ) STRICT, WITHOUT ROWID
        """,
        f"""
        INSERT INTO tally
        SELECT r.finished_at - r.finished_at % {HOUR}, j.namespace, r.outcome, coalesce(r.node, ''),
               sum(CASE WHEN r.outcome = 'skipped' THEN max(r.missed, 1) ELSE 1 END)
          FROM run r CROSS JOIN job j USING (uid)
         WHERE r.outcome IS NOT NULL AND r.finished_at BETWEEN 0 AND {LAST}
      GROUP BY 1, 2, 3, 4
        """,
        # Jobs that are neither claimed nor due at a time: paused, disabled, or waiting for a trigger or another job.
        f"CREATE INDEX state_resting ON state (phase) WHERE {RESTING}",
        "CREATE INDEX state_failing ON state (last_error_at) WHERE consecutive_errors > 0",
        "CREATE INDEX job_titled ON job (namespace, id, name) WHERE removed_at IS NULL AND name IS NOT NULL",
    ),
)

TABLES: Final = (
    *("handler", "job", "run", "node", "state", "output", "traceback", "request", "change", "node_span"),
    *("instance", "backfill", "backfill_due", "successor", "group_start", "tally", "sqlite_sequence"),
)
# Each index, its table, and the condition of its rows.
INDEXES: Final = (
    ("sqlite_autoindex_handler_1", "handler", "true"),
    ("job_name", "job", "removed_at IS NULL"),
    ("job_removed", "job", "removed_at IS NOT NULL"),
    ("job_removed_name", "job", "removed_at IS NOT NULL"),
    ("state_due", "state", "phase = 'active' AND activity = 'idle' AND next_run_at IS NOT NULL"),
    ("state_claimed", "state", "activity <> 'idle'"),
    ("state_disabled", "state", "phase = 'disabled'"),
    ("state_resting", "state", RESTING),
    ("state_failing", "state", "consecutive_errors > 0"),
    ("job_titled", "job", "removed_at IS NULL AND name IS NOT NULL"),
    ("state_paused", "state", "phase = 'paused' AND paused_until IS NOT NULL"),
    ("state_of_handler", "state", "true"),
    ("run_of_job", "run", "true"),
    ("run_once", "run", "attempt > 0 AND trigger <> 'manual'"),
    ("run_beside", "run", "attempt = 0 OR trigger = 'manual'"),
    ("run_skipped", "run", "attempt = 0"),
    ("run_unusual", "run", IS_UNUSUAL.removeprefix("r.")),
    ("request_start", "request", "kind = 'start'"),
    ("request_cancel", "request", "kind = 'cancel'"),
    ("successor_of", "successor", "true"),
    ("sqlite_autoindex_group_start_1", "group_start", "true"),
    ("group_start_until", "group_start", "true"),
    ("instance_of_job", "instance", "true"),
    ("instance_of_node", "instance", "true"),
    ("instance_of_backfill", "instance", "backfill IS NOT NULL"),
    ("backfill_running", "backfill", "state = 'running'"),
    ("backfill_of_job", "backfill", "true"),
    ("sqlite_autoindex_backfill_due_1", "backfill_due", "true"),
    ("node_span_until", "node_span", "true"),
    ("node_span_since", "node_span", "true"),
    ("node_span_long", "node_span", f"until - since >= {LONG_LIFE}"),
)
LOOK_AT_ALL: Final = (
    *(f"SELECT * FROM {table} LIMIT 1" for table in TABLES),
    *(f"SELECT 1 FROM {table} INDEXED BY {index} WHERE {rows} LIMIT 1" for index, table, rows in INDEXES),
)


def newest() -> int:
    """Return the version of the schema that this code works with."""
    return len(MIGRATIONS)


def recognise(db: sqlite3.Connection) -> int:
    """Return the version of the schema. Raise `StoreError` if the file is foreign, damaged, or newer than this code."""
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    version = version_of(db)
    path = db.execute("PRAGMA database_list").fetchone()[2]
    if application_id != APPLICATION_ID:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 3")]
        if application_id or version or tables:
            what = f" It has the tables {', '.join(tables)}, …" if tables else ""
            raise StoreError(f"The file {path} belongs to another program.{what} Choose another file.")
    if version > newest():
        raise StoreOutdatedError(path, version, newest())
    if version == newest():  # an older file lacks some of them
        # Check the top of each table and index, which is fast for any size. Other damage is noticed when it is read.
        for statement in LOOK_AT_ALL:
            db.execute(statement).fetchall()
    return version


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of the schema, 0 if the file is empty."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(db: sqlite3.Connection) -> int:
    """Migrate the schema to the newest version within a transaction. Return the previous version."""
    version = version_of(db)  # another process may have been faster
    for steps in MIGRATIONS[version:]:
        for step in steps:
            if isinstance(step, str):
                db.execute(step)
            else:
                step(db)
    db.execute(f"PRAGMA user_version = {newest()}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return version


def require_current(db: sqlite3.Connection) -> None:
    """Raise `StoreOutdatedError` if a newer version has changed the schema."""
    version = version_of(db)
    if version > newest():
        raise StoreOutdatedError(db.execute("PRAGMA database_list").fetchone()[2], version, newest())
