"""What SQLite is asked, and the transactions it is asked in: plain functions of a connection, run on its thread.

SQL at the top, transactions below. The file, its connections and its errors are in `sqlite`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from scheduler_async.errors import SchedulerError, quoted
from scheduler_async.jobs.enums import ENDED, Outcome, Phase, SkipReason, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import Ending, RunRow, Skip
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.claiming import claim_manually
from scheduler_async.rules.groups import NO_GROUP, Rooms, group_key
from scheduler_async.rules.order import order
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.codec import (
    HANDLER,
    METADATA,
    PAYLOAD,
    PHASE,
    REMEMBERED_BYTES,
    UID,
    Row,
    has_unreadable_state,
    job_of,
    problems_of,
    read_job,
    refuse_resuming_unreadable,
    refuse_stand_ins,
    refuse_unreadable_state,
    shown,
    spec_values,
    state_of,
    state_problem,
    state_values,
    unreadable_job,
    unreadable_state,
)
from scheduler_async.stores.decisions import (
    after,
    aftermath,
    attempt_of,
    can_be_claimed,
    claimed,
    disabled_by,
    earliest_of,
    gone_on,
    noticed_at,
    put_back,
    reviewed,
)
from scheduler_async.stores.messages import (
    MOST_UNHANDLED,
    REMOVED,
    Aftermath,
    Change,
    ClaimedRun,
    Claims,
    ClaimTerms,
    Edit,
    EndedRun,
    JobFilter,
    NodeIdentity,
    NodeLost,
    NodeRow,
    NodeStatus,
    RunFilter,
    has_metadata,
)
from scheduler_async.stores.node_codec import read_node
from scheduler_async.stores.ready_queue import Line
from scheduler_async.stores.run_codec import read_run
from scheduler_async.stores.short_ways import claim_in_time
from scheduler_async.stores.sqlite.bulk_writes import inserting, updating
from scheduler_async.stores.sqlite.schema import MOST_NUMBERS, require_current
from scheduler_async.stores.unreadable import UnreadableRows, is_moment, is_name, shown_moment, shown_text
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

STATE_COLUMNS: Final = ", ".join(f"s.{name}" for name in JobState._fields)

SELECT_STATE: Final = f"SELECT s.uid, s.revision, {STATE_COLUMNS}"
STATE_END: Final = 2 + len(JobState._fields)
SELECT_SPEC: Final = """
    SELECT j.uid, j.revision, j.namespace, j.id, j.handler, j.schedule, j.retry, j.payload, j.metadata, j.user_id,
           j.name, j.priority, j.job_group, j.misfire, j.timeout, j.on_interrupt, j.anchor, j.created_at, j.updated_at
      FROM job j
"""

# With when it was last edited, which changes without the description: another process may have paused it. A job whose
# state is missing is found, too: it cannot be read, and is shown.
SELECT_EDITED: Final = f"SELECT j.uid, s.revision, {STATE_COLUMNS}, j.updated_at"
EDITED: Final = f"{SELECT_EDITED} FROM job j LEFT JOIN state s ON s.uid = j.uid"


def last_number(table: str, *keys: str) -> str:
    """The highest number that *table* ever gave, or that is in use all the same: none is given twice.

    Those that are absurdly high are left out, or nothing would be left to give.
    """
    in_use = (
        f"coalesce((SELECT max({key.partition('.')[2]}) FROM {key.partition('.')[0]}"
        f" WHERE {key.partition('.')[2]} < {MOST_NUMBERS}), 0)"
        for key in keys
    )
    given = (
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}' AND typeof(seq) = 'integer' AND seq < {MOST_NUMBERS}"
    )
    return f"max(coalesce(({given}), 0), {', '.join(in_use)})"


LAST_JOB: Final = last_number("job", "job.uid", "state.uid")
LAST_RUN: Final = last_number("run", "run.id")
LAST_NODE: Final = last_number("node", "node.number")

FIND_JOB: Final = f"{EDITED} WHERE j.namespace = ? AND j.id = ? AND j.removed_at IS NULL"
NAME_EXISTS: Final = "SELECT 1 FROM job WHERE namespace = ? AND id = ? AND removed_at IS NULL"

# Of an object with a list of ids for each namespace.
FIND_JOBS: Final = f"""
    {SELECT_EDITED}
      FROM json_each(?) n
CROSS JOIN json_each(n.value) i
CROSS JOIN job j ON j.namespace = n.key AND j.id = i.value AND j.removed_at IS NULL
 LEFT JOIN state s ON s.uid = j.uid
"""
# The columns that `spec_values` fills, and those beside the state that `_narrow` does.
SPEC_COLUMNS: Final = (
    *("revision", "namespace", "id", "handler", "schedule", "retry", "payload", "metadata", "user_id", "name"),
    *("priority", "job_group", "misfire", "timeout", "on_interrupt", "anchor", "created_at", "updated_at"),
)
NARROW_COLUMNS: Final = ("revision", "handler", "rank", "id", "group_key", *JobState._fields)

INSERT_JOB: Final = inserting("job", "uid", *SPEC_COLUMNS)
UPDATE_JOB: Final = updating("job", ["uid"], *SPEC_COLUMNS)
INSERT_STATE: Final = inserting("state", "uid", *NARROW_COLUMNS)
UPDATE_STATE: Final = updating("state", ["uid"], *NARROW_COLUMNS, always="touched = 1")
UPDATE_ONLY_STATE: Final = updating("state", ["uid"], *JobState._fields, always="touched = 1")

# Most jobs that are added are in no group, and wait for their first run: then all else is the same for all of them.
NEW_STATE: Final = JobState()
REST_OF_NEW_STATE: Final = NEW_STATE[2:]
NEW: Final = dict(zip(JobState._fields, state_values(NEW_STATE), strict=True))
ALWAYS: Final = {name: repr(value) for name, value in NEW.items() if value is not None}
INSERT_WAITING: Final = inserting("state", "uid", "revision", "handler", "rank", "id", "next_run_at", always=ALWAYS)

DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"
# Whatever a damaged row holds, places can be compared.
PLACE: Final = """
    coalesce(s.group_key, ''), CAST(coalesce(s.rank, 0) AS INTEGER), CAST(coalesce(s.last_run_at, -1) AS INTEGER),
    CAST(coalesce(s.id, '') AS TEXT), s.uid
"""
# Who has come due since a moment, to stand in line.
SELECT_DUE_SINCE: Final = f"""
    SELECT {PLACE}
      FROM state s INDEXED BY state_due
     WHERE {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at > :since
       AND s.next_run_at <= :now
"""
# The same, for those who need not stand in line.
SELECT_FEW_DUE: Final = f"""
    {SELECT_STATE}, {PLACE}
      FROM state s INDEXED BY state_due
     WHERE {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at > :since
       AND s.next_run_at <= :now
     LIMIT :most
"""
# Those who were first in line, as they are now.
SELECT_FIRST: Final = f"""
    {SELECT_STATE}, {PLACE}
      FROM state s
     WHERE s.uid IN (SELECT value FROM json_each(:uids))
       AND {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at <= :now
"""
NEXT_DUE: Final = f"""
    SELECT min((SELECT s.next_run_at
                  FROM state s INDEXED BY state_due
                 WHERE {DUE} AND s.handler = h.number AND s.next_run_at > :now AND s.next_run_at <= {LAST}
              ORDER BY s.next_run_at
                 LIMIT 1)),
           count(*)
      FROM handler h
"""
COUNT_NEXT: Final = f"""
    SELECT count(*)
      FROM (SELECT 1
              FROM handler h CROSS JOIN state s INDEXED BY state_due ON s.handler = h.number
             WHERE {DUE} AND s.next_run_at = ?
             LIMIT ?)
"""
UNHANDLED: Final = f"""
    {SELECT_STATE}
      FROM handler h
      JOIN state s ON s.uid = (SELECT d.uid
                                 FROM state d INDEXED BY state_due
                                WHERE {DUE.replace("s.", "d.")} AND d.handler = h.number AND d.next_run_at <= :now
                             ORDER BY d.next_run_at
                                LIMIT 1)
     WHERE h.number NOT IN (SELECT value FROM json_each(:handlers))
     LIMIT {MOST_UNHANDLED}
"""
FORGET_HANDLER: Final = """
    DELETE FROM handler
     WHERE name = ? AND NOT EXISTS (SELECT 1 FROM state INDEXED BY state_of_handler WHERE handler = handler.number)
"""
COUNT_DUE: Final = f"""
    SELECT count(*)
      FROM (SELECT 1
              FROM handler h CROSS JOIN state s INDEXED BY state_due ON s.handler = h.number
             WHERE {DUE} AND s.next_run_at <= ?
             LIMIT ?)
"""
# Of each handler no more than some are looked at: all of a full group may be due, and this is asked often.
EARLIEST_DUE: Final = f"""
    SELECT min((SELECT w.next_run_at
                  FROM (SELECT s.next_run_at, s.group_key
                          FROM state s INDEXED BY state_due
                         WHERE {DUE} AND s.handler = h.number AND s.next_run_at <= :now
                           AND s.uid NOT IN (SELECT value FROM json_each(:left_alone))
                      ORDER BY s.next_run_at
                         LIMIT 100) w
                 WHERE w.group_key IS NULL
                    OR (w.group_key NOT IN (SELECT value FROM json_each(:full))
                        AND substr(w.group_key, instr(w.group_key, char(10)) + 1)
                            NOT IN (SELECT value FROM json_each(:full_everywhere)))
              ORDER BY w.next_run_at
                 LIMIT 1))
      FROM handler h
     WHERE :handlers IS NULL OR h.name IN (SELECT value FROM json_each(:handlers))
"""
# Which numbers of handlers jobs wait under, one look at the index for each; whose number that is; and the handler of
# the first of those jobs, which should be the same.
HANDLERS_IN_USE: Final = f"""
    WITH RECURSIVE used (number) AS (
        SELECT min(s.handler) FROM state s INDEXED BY state_due WHERE {DUE}
     UNION ALL
        SELECT (SELECT min(s.handler) FROM state s INDEXED BY state_due WHERE {DUE} AND s.handler > used.number)
          FROM used
         WHERE used.number IS NOT NULL)
    SELECT number,
           (SELECT name FROM handler WHERE handler.number = used.number),
           (SELECT j.handler
              FROM state s INDEXED BY state_due JOIN job j USING (uid)
             WHERE {DUE} AND s.handler = used.number
             LIMIT 1)
      FROM used
     WHERE typeof(number) = 'integer'
"""
HANDLERS_UNDER: Final = "SELECT DISTINCT j.handler FROM state s JOIN job j USING (uid) WHERE s.handler = ?"
MOVE_TO_HANDLER: Final = """
    UPDATE state
       SET handler = ?
     WHERE handler = ? AND uid IN (SELECT uid FROM job WHERE job.handler = ?)
"""
RUNNING_BY_NODE: Final = """
    SELECT node, count(*)
      FROM state INDEXED BY state_claimed
     WHERE activity <> 'idle'
  GROUP BY node
"""
RUNNING_BY_GROUP: Final = """
    SELECT group_key, count(*)
      FROM state INDEXED BY state_claimed
     WHERE activity <> 'idle' AND activity IN ('queued', 'running') AND group_key IS NOT NULL
  GROUP BY group_key
"""
# What is due is taken off its schedule; what somebody asked for is not.
CLAIM: Final = updating(
    "state",
    ["uid"],
    *("activity", "retry_count", "last_run_at", "run", "node"),
    always="next_run_at = NULL, retry_of = NULL, attempts = 0, regular_at = NULL, touched = 0",
)
CLAIM_ONE: Final = "UPDATE state SET activity = ?, last_run_at = ?, run = ?, node = ?, touched = 0 WHERE uid = ?"
INSERT_RUN: Final = inserting(
    "run",
    *("id", "uid", "scheduled_for", "attempt", "trigger", "claimed_at", "started_at", "node"),
    verb="INSERT OR IGNORE",
)
INSERT_SKIP: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, finished_at, outcome, reason, missed)
    VALUES (?, ?, ?, 0, 'schedule', ?, ?, 'skipped', ?, ?)
"""
SELECT_CLAIMED: Final = f"""
    {SELECT_STATE}, s.run
      FROM state s
     WHERE s.uid IN (SELECT value FROM json_each(?))
"""
SELECT_RELEASED: Final = f"""
    {SELECT_STATE}, j.updated_at, s.run
      FROM state s LEFT JOIN job j ON j.uid = s.uid
     WHERE s.uid IN (SELECT value FROM json_each(?))
"""
# The row of a run that never began, and those of the occurrences that its claim left out.
DELETE_RUNS: Final = "DELETE FROM run WHERE id = ? OR (uid = ? AND id > ? AND attempt = 0 AND claimed_at = ?)"
FINISH: Final = updating("state", ["uid"], *JobState._fields, "run", "node")
FREE: Final = ("run = NULL", "node = NULL")
FINISH_UNTOUCHED: Final = updating(
    "state", ["uid", "run"], *JobState._fields, where="touched = 0", always=", ".join(FREE)
)
# After a plain run, all that runs change is as in a new job, but for some moments.
RAN: Final = ("last_run_at", "last_success_at")
AS_NEW: Final = [
    f"{name} = {ALWAYS.get(name, 'NULL')}" for name in JobState._fields[:PHASE] if name not in (*RAN, "next_run_at")
]
FINISH_GOING_ON: Final = updating(
    "state", ["uid", "run"], *RAN, "next_run_at", where="touched = 0", always=", ".join([*AS_NEW, *FREE])
)
HAS_ENDED: Final = (f"phase = '{Phase.DISABLED}'", f"disabled_reason = '{ENDED}'", "next_run_at = NULL")
FINISH_LAST: Final = updating(
    "state", ["uid", "run"], *RAN, "disabled_at", where="touched = 0", always=", ".join([*AS_NEW, *HAS_ENDED, *FREE])
)
FINISH_RUN: Final = updating(
    "run", ["id"], "started_at", "finished_at", "outcome", "reason", "error", "message", "exit_code"
)
SELECT_HELD: Final = f"""
    {SELECT_STATE}, s.run, r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM state s INDEXED BY state_claimed
 LEFT JOIN run r ON r.id = s.run AND r.uid = s.uid AND r.outcome IS NULL
     WHERE s.activity <> 'idle' AND s.node IS nullif(?, 0)
"""
# Who has claims, one look at the index for each, and is not a node; 0 is a claim that names no node.
OWNERLESS: Final = """
    WITH RECURSIVE owner (number) AS (
        SELECT min(node) FROM state INDEXED BY state_claimed WHERE activity <> 'idle'
     UNION ALL
        SELECT (SELECT min(node) FROM state INDEXED BY state_claimed WHERE activity <> 'idle' AND node > owner.number)
          FROM owner
         WHERE owner.number IS NOT NULL)
    SELECT number,
           (SELECT r.node
              FROM state s INDEXED BY state_claimed JOIN run r ON r.id = s.run
             WHERE s.activity <> 'idle' AND s.node = owner.number
             LIMIT 1)
      FROM owner
     WHERE number NOT IN (SELECT number FROM node)
 UNION ALL
    SELECT 0, NULL
     WHERE EXISTS (SELECT 1 FROM state INDEXED BY state_claimed WHERE activity <> 'idle' AND node IS NULL)
"""
NODE_COLUMNS: Final = "number, name, host, pid, process_start, beat, since"
SELECT_RUNS: Final = """
    SELECT r.id, j.id, j.namespace, r.scheduled_for, r.started_at, r.finished_at, r.attempt, r.trigger, r.outcome,
           r.reason, r.missed, r.error, r.message, r.exit_code, r.node
      FROM run r JOIN job j USING (uid)
"""
# What ran before the clock went back is kept until its time has come once more: it must not be run again then.
OLD_RUNS: Final = """
    uid = :uid AND outcome IS NOT NULL AND scheduled_for <= :now
    AND id <= (SELECT id FROM run WHERE uid = :uid ORDER BY id DESC LIMIT 1 OFFSET :keep)
"""
OVERGROWN: Final = """
    SELECT value FROM json_each(:uids) WHERE EXISTS (SELECT 1 FROM run WHERE uid = value LIMIT 1 OFFSET :keep)
"""
# Those of which a run goes on are left for the next time.
PURGE_REMOVED: Final = """
    DELETE FROM job
     WHERE uid IN (SELECT uid
                     FROM job INDEXED BY job_removed
                    WHERE removed_at < ? AND NOT EXISTS (SELECT 1 FROM state WHERE state.uid = job.uid)
                 ORDER BY removed_at
                    LIMIT ?)
"""
# Only its runs keep a removed job: what it was for is nobody's business any more.
REMOVE: Final = "UPDATE job SET removed_at = ?, payload = 'null', metadata = '{}' WHERE uid = ?"
FORGET_UNRUN: Final = "DELETE FROM job WHERE uid = ? AND NOT EXISTS (SELECT 1 FROM run WHERE run.uid = job.uid)"
DELETE_STATE: Final = """
    DELETE FROM state
     WHERE uid = ? AND EXISTS (SELECT 1 FROM job WHERE job.uid = state.uid AND job.removed_at IS NOT NULL)
"""
IS_REMOVED: Final = "SELECT 1 FROM job WHERE uid = ? AND removed_at IS NOT NULL"
DISABLE: Final = """
    UPDATE state
       SET phase = 'disabled', disabled_reason = ?, disabled_at = ?, next_run_at = NULL, regular_at = NULL, touched = 1
     WHERE uid = ?
"""
CANCEL_RUN: Final = (
    "UPDATE run SET outcome = 'cancelled', finished_at = ?, error = ? WHERE id = ? AND uid = ? AND outcome IS NULL"
)
# Up to where rows are missing that would say what ran.
NOTE_FORGOTTEN: Final = f"""
    UPDATE state
       SET touched = 1,
           forgotten_until = (SELECT max(at)
                                FROM (SELECT state.forgotten_until AS at
                                      UNION ALL
                                      SELECT max(scheduled_for)
                                        FROM run
                                       WHERE {OLD_RUNS} AND attempt > 0 AND trigger <> 'manual'
                                         AND scheduled_for >= {FIRST}))
     WHERE uid = :uid
"""
PURGE_RUNS: Final = f"DELETE FROM run WHERE {OLD_RUNS}"
LATEST_RUN: Final = """
    SELECT max(scheduled_for)
      FROM run INDEXED BY run_once
     WHERE uid = ? AND scheduled_for <= ? AND attempt > 0 AND trigger <> 'manual'
"""
REVIEW: Final = f"""
    {EDITED}
     WHERE s.uid > ? AND s.next_run_at > ? AND s.phase <> 'disabled'
  ORDER BY s.uid
     LIMIT ?
"""

# Descriptions that are remembered, so that nobody need read them.
REMEMBERED = 16_384

# Before anything that could be due.
EARLIEST: Micros = -(2**63)

T = TypeVar("T")


def in_transaction(db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    """Do *work*, all of it or nothing."""
    # Immediately: a transaction that begins by reading cannot always go on to write.
    db.execute("BEGIN IMMEDIATE")
    try:
        result = work(db, *args)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled back by itself
            db.execute("ROLLBACK")
        raise
    return result


def data_version(db: sqlite3.Connection) -> int:
    """A number that changes when another connection has changed the file."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


class Work:
    """The transactions themselves, and what is remembered between them. `SQLiteStore` says what each is for."""

    def __init__(self) -> None:
        # By the number of their jobs.
        self._descriptions: Cache[int, Row] = Cache(REMEMBERED, REMEMBERED_BYTES)
        self._handlers: dict[str, int] = {}
        self._as_of = 0  # the version of the data when handlers and those in line were looked at
        self._is_current = False  # whether the schema was looked at since then, and no newer version has changed it
        self._last_job: int | None = None  # the highest number that a job ever got, if it was looked at since then
        # What is wrong with descriptions, by their numbers and revisions.
        self._unreadable: dict[tuple[int, int], tuple[Unreadable, ...]] = {}
        self._left_alone: set[int] = set()  # jobs that are due and cannot be claimed, as far as they were looked at
        self.unreadable_rows = UnreadableRows()
        self._line: Line | None = None
        self._line_terms: tuple[str, int] | None = None
        self._line_until: Micros = EARLIEST

    def write(self, db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
        """As `record`, unless a newer version has upgraded the store, which might not understand what is written."""
        return self._transact(db, True, work, args)

    def record(self, db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
        """As `in_transaction`, for work that changes what is remembered."""
        return self._transact(db, False, work, args)

    def _transact(
        self, db: sqlite3.Connection, needs_current: bool, work: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        try:
            result: T = in_transaction(db, self._in_view_of_others, needs_current, work, args)
        except BaseException as error:
            self._line = None  # whoever was taken out of it is still due
            if not isinstance(error, SchedulerError):  # a refusal comes before anything is written
                self._descriptions.clear()  # whoever was added is not there, and its number goes to another
                self._last_job = None
            raise
        return result

    def _in_view_of_others(
        self, db: sqlite3.Connection, needs_current: bool, work: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        """Do *work*, after a look at whether another process has changed the file."""
        version = data_version(db)
        if version != self._as_of:
            self._as_of = version
            self._handlers.clear()  # some may be forgotten, and their names given to others
            self._last_job = None
            self._is_current = False
        if needs_current and not self._is_current:
            require_current(db)
            self._is_current = True
        return work(db, *args)

    # -------------------------------------------------------- jobs

    def change(self, db: sqlite3.Connection, changes: Sequence[Change], now: Micros) -> list[Edit | None]:
        jobs, uid = self._find(db, changes)
        numbers: dict[str, int] = {}
        edits: list[Edit | None] = []
        added: dict[int, Job] = {}
        for change in changes:
            name = change.namespace, change.id
            edit = change.decide(jobs.get(name))
            if edit is not None and edit.kind is not None:
                job = edit.job
                if not job.uid:
                    uid += 1
                    job.take_number(uid)
                    added[uid] = job
                elif job.uid in added:
                    added[job.uid] = job
                else:
                    self._update(db, jobs[name], job, numbers)
                jobs[name] = job
                if self._line is not None:  # many may be added at once
                    self._stand_in_line(job)
            if edit is not None and edit.job.spec.unreadable:
                edit = edit._replace(job=shown(edit.job, 0))
            edits.append(edit)
        self._insert(db, list(added.values()), numbers)
        self._last_job = uid
        self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits if edit is not None and edit.skips])
        return edits

    def _insert(self, db: sqlite3.Connection, jobs: Sequence[Job], numbers: dict[str, int]) -> None:
        if len(jobs) == 1:  # a seventh of what adding one takes on this thread is saved
            (job,) = jobs
            number = self._number_of(db, job.handler, numbers)
            INSERT_JOB.one(db, *self._new_description(job))
            if _waits_for_first_run(job):
                INSERT_WAITING.one(db, *_waiting(job, number))
            else:
                INSERT_STATE.one(db, job.uid, *_narrow(job, number))
            return
        for handler in {job.handler for job in jobs}:
            self._number_of(db, handler, numbers)
        waiting: list[Job] = []
        others: list[Job] = []
        for job in jobs:
            (waiting if _waits_for_first_run(job) else others).append(job)
        INSERT_JOB.all(db, (self._new_description(job) for job in jobs))
        INSERT_WAITING.all(db, (_waiting(job, numbers[job.handler]) for job in waiting))
        INSERT_STATE.all(db, ((job.uid, *_narrow(job, numbers[job.handler])) for job in others))

    def _new_description(self, job: Job) -> Row:
        row = (job.uid, *spec_values(job))
        self._descriptions.put(job.uid, row, len(row[PAYLOAD]) + len(row[METADATA]))
        return row

    def review(
        self, db: sqlite3.Connection, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]
    ) -> int | None:
        rows = db.execute(REVIEW, (after, now, limit)).fetchall()
        numbers: dict[str, int] = {}
        for before in self._jobs(db, rows, now).values():
            if has_unreadable_state(before) or before.spec.unreadable:
                continue
            job = reviewed(before, decide)
            if job is not None:
                self._update(db, before, job, numbers)
                self._stand_in_line(job)
        return rows[-1][0] if len(rows) == limit else None

    def _update(self, db: sqlite3.Connection, before: Job, job: Job, numbers: dict[str, int]) -> None:
        refuse_unreadable_state(before)
        self._update_spec(db, before, job)
        if job.spec.unreadable:  # what stands in for the rest is not stored
            refuse_resuming_unreadable(before, job)
            UPDATE_ONLY_STATE.one(db, *state_values(job.state), job.uid)
            return
        UPDATE_STATE.one(db, *_narrow(job, self._number_of(db, job.handler, numbers)), job.uid)
        if before.handler != job.handler:
            self._forget_unused(db, {before.handler})
            numbers.pop(before.handler, None)

    def _update_spec(self, db: sqlite3.Connection, before: Job, job: Job) -> None:
        if job.revision == before.revision:  # only its state changes: what cannot be read here stays as it is
            db.execute("UPDATE job SET updated_at = ? WHERE uid = ?", (job.updated, job.uid))
            self._descriptions.pop(job.uid)
            return
        refuse_stand_ins(job)
        UPDATE_JOB.one(db, *spec_values(job), job.uid)
        self._unreadable.pop((before.uid, before.revision), None)

    def _find(self, db: sqlite3.Connection, changes: Sequence[Change]) -> tuple[dict[tuple[str, str], Job], int]:
        """The jobs that *changes* are about, as far as they exist; and the highest number that a job ever got."""
        number = self._last_number(db, LAST_JOB) if self._last_job is None else self._last_job
        if len(changes) == 1:  # a third of the time
            name = changes[0].namespace, changes[0].id
            job = self.get(db, *name, None) if db.execute(NAME_EXISTS, name).fetchone() else None
            return {} if job is None else {name: job}, number
        ids: dict[str, list[str]] = {}
        for change in changes:
            ids.setdefault(change.namespace, []).append(change.id)
        rows = db.execute(FIND_JOBS, (json.dumps(ids),)).fetchall()
        jobs = self._jobs(db, rows, None).values()
        return {(job.namespace, job.id): job for job in jobs}, number

    def _number_of(self, db: sqlite3.Connection, handler: str, numbers: dict[str, int]) -> int:
        """The number of a handler; *numbers* are those of this transaction, which may yet be rolled back."""
        if handler not in numbers:
            self._numbers_of(db, [handler])
            number = self._handlers.get(handler)
            numbers[handler] = (
                db.execute("INSERT INTO handler (name) VALUES (?) RETURNING number", (handler,)).fetchone()[0]
                if number is None
                else number
            )
        return numbers[handler]

    def _forget_removed(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Forget what is known of *jobs* that were removed, and their handlers if no other job uses them."""
        self._forget_unused(db, {job.handler for job in jobs})
        for job in jobs:
            self._unreadable.pop((job.uid, job.revision), None)

    def _forget_unused(self, db: sqlite3.Connection, names: Iterable[str]) -> None:
        """Forget those of the handlers with these *names* that no job uses any more."""
        for name in names:
            if db.execute(FORGET_HANDLER, (name,)).rowcount:
                self._handlers.pop(name, None)

    def remove(self, db: sqlite3.Connection, namespace: str, id: str, now: Micros, own_run: int | None) -> Job | None:
        job = self.get(db, namespace, id)
        if job is None:
            return None
        db.execute(REMOVE, (now, job.uid))
        (run,) = db.execute("SELECT run FROM state WHERE uid = ?", (job.uid,)).fetchone() or (None,)
        if run is not None and run == own_run:
            db.execute(DISABLE, (REMOVED, now, job.uid))
            return job
        db.execute(CANCEL_RUN, (now, REMOVED, run, job.uid))
        self._bury(db, [job])
        return job

    def _bury(self, db: sqlite3.Connection, jobs: Iterable[Job]) -> bool:
        """Let those of *jobs* that were removed have no state any more, now that no run needs it.

        Return whether there were any.
        """
        gone = [job for job in jobs if db.execute(DELETE_STATE, (job.uid,)).rowcount]
        if gone:
            db.executemany(FORGET_UNRUN, [(job.uid,) for job in gone])
            self._forget_removed(db, gone)
        return bool(gone)

    def purge_removed(self, db: sqlite3.Connection, before: Micros, limit: int) -> int:
        return db.execute(PURGE_REMOVED, (before, limit)).rowcount

    def get(self, db: sqlite3.Connection, namespace: str, id: str, now: Micros | None = 0) -> Job | None:
        row = db.execute(FIND_JOB, (namespace, id)).fetchone()
        return None if row is None else self._jobs(db, [row], now).get(row[0])

    def list_jobs(self, db: sqlite3.Connection, wanted: JobFilter) -> list[Job]:
        conditions: list[str] = []
        values: list[object] = []

        def require(condition: str, *arguments: object) -> None:
            conditions.append(condition)
            values.extend(arguments)

        require("j.removed_at IS NULL")
        if wanted.status in (Status.QUEUED, Status.RUNNING):
            require("s.activity = ?", wanted.status)
        elif wanted.status is not None:
            phase = Phase.ACTIVE if wanted.status is Status.IDLE else Phase(wanted.status)
            require("s.activity = 'idle' AND s.phase = ?", phase)
        for column, value in (
            ("j.namespace", wanted.namespace),
            ("j.user_id", wanted.user_id),
            ("j.handler", wanted.handler),
            ("j.job_group", wanted.group),
            ("j.priority", wanted.priority),
        ):
            if value is not None:
                require(f"{column} = ?", value)
        if wanted.due_before is not None:
            require("s.phase = 'active' AND s.next_run_at < ?", wanted.due_before)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = db.execute(
            f"{EDITED} {where} ORDER BY s.next_run_at IS NULL, s.next_run_at, j.namespace, j.id LIMIT ?",
            (*values, -1 if wanted.limit is None or wanted.metadata else wanted.limit),
        ).fetchall()
        jobs = list(self._jobs(db, rows).values())
        if wanted.metadata:
            jobs = [job for job in jobs if has_metadata(job, wanted.metadata)][: wanted.limit]
        return jobs

    def list_runs(self, db: sqlite3.Connection, wanted: RunFilter) -> list[RunRow]:
        conditions: list[str] = []
        values: list[object] = []
        if wanted.run is not None:
            conditions.append("r.id = ?")
            values.append(wanted.run)
        if wanted.id is not None and wanted.namespace is not None:
            exists = db.execute(NAME_EXISTS, (wanted.namespace, wanted.id)).fetchone() is not None
            which, is_removed = ("=", "IS NULL") if exists else ("IN", "IS NOT NULL")
            named = f"SELECT uid FROM job WHERE namespace = ? AND id = ? AND removed_at {is_removed}"
            conditions.append(f"r.uid {which} ({named})")
            values += [wanted.namespace, wanted.id]
        elif wanted.id is not None:
            conditions.append("j.id = ?")
            values.append(wanted.id)
        elif wanted.namespace is not None:
            conditions.append("j.namespace = ?")
            values.append(wanted.namespace)
        if wanted.outcome is not None:
            conditions.append("r.outcome = ?")
            values.append(wanted.outcome)
        if wanted.since is not None:
            conditions.append("r.claimed_at >= ?")
            values.append(wanted.since)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = db.execute(
            f"{SELECT_RUNS} {where} ORDER BY r.id DESC LIMIT ?",
            (*values, -1 if wanted.limit is None else wanted.limit),
        )
        return [self._run(row) for row in rows]

    def output_of(self, db: sqlite3.Connection, run: int) -> str | None:
        row = db.execute("SELECT text FROM output WHERE run = ?", (run,)).fetchone()
        return None if row is None else shown_text(row[0])

    def count_due(self, db: sqlite3.Connection, now: Micros, most: int) -> int:
        ((count,),) = db.execute(COUNT_DUE, (now, most))
        return int(count)

    def running_by_group(self, db: sqlite3.Connection) -> dict[str, int]:
        return dict(db.execute(RUNNING_BY_GROUP).fetchall())

    # -------------------------------------------------------- runs

    def claim_due(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms) -> Claims:
        name = self._require_node(db, terms.node)
        numbers = self._numbers_of(db, terms.handlers)
        handlers = json.dumps(numbers)
        until = now + terms.ahead
        rows = self._select_due(db, until, terms, handlers)
        run_id = self._last_number(db, LAST_RUN)
        here = None if terms.handlers is None else frozenset(terms.handlers)
        unhandled: list[Job] = []
        runs: list[ClaimedRun] = []
        edits: list[Edit] = []
        skipped: list[tuple[Job, Sequence[Skip], Micros]] = []
        passed_over: list[Job] = []
        slots = float("inf") if terms.slots is None else terms.slots
        for row, description in zip(rows, self._descriptions_of(db, rows), strict=True):
            activity = Status.RUNNING if len(runs) < slots else Status.QUEUED
            before = row[2:]
            taken = claim_in_time(before, now, activity._value_)
            if taken is not None and description is not None and self._is_as_it_seems(description, here):
                run_id += 1
                runs.append(ClaimedRun.in_time(run_id, description, before, taken))
                continue
            job = self._job(row, description, now)
            if job is None or not can_be_claimed(job, here):
                self._left_alone.add(row[0])
                unhandled += [job] if job is not None and job.enabled else []
                continue
            edit, attempt = claimed(job, now, terms.rules, activity)
            if attempt is None:
                FINISH.one(db, *_free(edit.job))
                self._stand_in_line(edit.job)
                passed_over.append(edit.job)
            else:
                run_id += 1
                runs.append(ClaimedRun.of(run_id, edit.job, attempt, job.spec.payload_json, job.state))
            if edit.skips or edit.kind:
                edits.append(edit)
                skipped.append((edit.job, edit.skips, now if attempt is None else attempt.claimed_at))
        CLAIM.all(db, (_claim_update(run, terms.node) for run in runs))
        repeated: set[int] = set()
        if INSERT_RUN.all(db, (_insert_run(run, name) for run in runs)) != len(runs):
            repeated = self._undo_repeated(db, runs, until)
            runs = [run for run in runs if run.uid not in repeated]
            edits = [edit for edit in edits if edit.job.uid not in repeated]
            skipped = [item for item in skipped if item[0].uid not in repeated]
        self._write_skips(db, skipped)
        next_due, known = db.execute(NEXT_DUE, {"now": until}).fetchone()
        ((next_count,),) = db.execute(COUNT_NEXT, (next_due, terms.count))
        next_due, next_count = earliest_of(passed_over, next_due, next_count)
        if known != len(numbers):
            rows_of_others = db.execute(UNHANDLED, {"now": until, "handlers": handlers}).fetchall()
            unhandled += self._jobs(db, rows_of_others).values()
        return Claims(
            runs=runs,
            edits=edits,
            unhandled=unhandled,
            is_full=len(rows) >= terms.limit or bool(repeated),
            next_due=next_due,
            next_count=next_count,
        )

    def _is_as_it_seems(self, description: Row, here: frozenset[str] | None) -> bool:
        """Whether a job can be read, and its handler is the one that its state stands in line for."""
        is_readable = not self._unreadable or description[:2] not in self._unreadable
        return is_readable and (here is None or description[HANDLER] in here)

    def _select_due(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms, handlers: str) -> list[Row]:
        """The first in line, up to the limit, none beyond the limit of its group."""
        self._renew_line(handlers)
        few = self._select_few_due(db, now, terms, handlers)
        if few is not None:
            return few
        if now < self._line_until:  # too many come before those in line
            self._line = None
            self._renew_line(handlers)
        rooms = self._rooms(db, terms)
        line = self._line_of_due(db, now, handlers)
        chosen: dict[int, Row] = {}
        while taken := line.take(terms.limit - len(chosen), rooms):
            uids = json.dumps([place[-1] for _, place in taken])
            found = db.execute(SELECT_FIRST, {"uids": uids, "handlers": handlers, "now": now}).fetchall()
            rows = {row[0]: row for row in found}
            for group, place in taken:
                uid = place[-1]
                row = rows.get(uid)
                if row is None or uid in chosen:  # not due any more, or twice in line
                    rooms.take(group, -1)
                elif row[-4:] != place or row[-5] != group:  # it stands elsewhere now
                    rooms.take(group, -1)
                    line.add(row[-5], row[-4:])
                else:
                    chosen[uid] = row[:-5]
        return list(chosen.values())

    def earliest_due(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms) -> Micros | None:
        full, full_everywhere = map(json.dumps, self._rooms(db, terms).full)
        handlers = None if terms.handlers is None else json.dumps(terms.handlers)
        left_alone = json.dumps(list(self._left_alone))
        terms_ = {"now": now, "handlers": handlers, "full": full, "full_everywhere": full_everywhere}
        ((at,),) = db.execute(EARLIEST_DUE, {**terms_, "left_alone": left_alone})
        return None if at is None else int(at)

    def _rooms(self, db: sqlite3.Connection, terms: ClaimTerms) -> Rooms:
        return terms.rooms(self.running_by_group(db) if terms.limits_groups else {})

    def _select_few_due(
        self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms, handlers: str
    ) -> list[Row] | None:
        """All that is due, if nobody waits and all of it can be taken, as nearly always; otherwise None.

        Those who stand in line ahead of their time do not wait: others may be due before them.
        """
        come_first = now < self._line_until
        if (self._line and not come_first) or terms.limits_groups:
            return None
        since = EARLIEST if come_first else self._line_until
        due = {"handlers": handlers, "since": since, "now": now, "most": terms.limit + 1}
        rows = db.execute(SELECT_FEW_DUE, due).fetchall()
        if len(rows) > terms.limit:
            return None
        self._line_until = max(self._line_until, now)
        rows.sort(key=lambda row: row[-4:])
        return [row[:-5] for row in rows if row[0] not in self._left_alone]

    def _renew_line(self, handlers: str) -> None:
        """Make the line anew if it may not be what it was."""
        terms = handlers, self._as_of
        if self._line is None or self._line_terms != terms:
            self._line, self._line_terms, self._line_until = Line(), terms, EARLIEST
            self._left_alone = set()  # they are looked at again

    def _line_of_due(self, db: sqlite3.Connection, now: Micros, handlers: str) -> Line:
        """The line, with all that is due now."""
        assert self._line is not None
        newly_due = db.execute(SELECT_DUE_SINCE, {"handlers": handlers, "since": self._line_until, "now": now})
        self._line.extend((row[0], row[1:]) for row in newly_due)
        self._line_until = now
        return self._line

    def _stand_in_line(self, job: Job) -> None:
        """A job that is written and due already does not come due: it is told of."""
        state = job.state
        at = state.next_run_at
        if (
            self._line is not None
            and at is not None
            and at <= self._line_until
            and state.phase is Phase.ACTIVE
            and state.activity is Status.IDLE
        ):
            self._line.add(group_key(job.namespace, job.group) or NO_GROUP, (*order(job), job.uid))

    def _undo_repeated(self, db: sqlite3.Connection, runs: list[ClaimedRun], now: Micros) -> set[int]:
        """Undo claims of occurrences that ran before, as a clock that went back offers them; their jobs go on."""
        repeated = set()
        for run in runs:
            if not db.execute("SELECT 1 FROM run WHERE id = ? AND uid = ?", (run.id, run.uid)).fetchone():
                (latest,) = db.execute(LATEST_RUN, (run.uid, now)).fetchone()
                job = gone_on(run, latest, now)
                FINISH.one(db, *_free(job))
                self._stand_in_line(job)
                repeated.add(run.uid)
        return repeated

    def claim_one(
        self,
        db: sqlite3.Connection,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        node: int,
        queued: bool,
    ) -> ClaimedRun | Job | None:
        name = self._require_node(db, node)
        job = self.get(db, namespace, id, now)
        if job is None or job.state.activity is not Status.IDLE:
            return job
        refuse_unreadable_state(job)
        taken = claim_manually(job, now)
        assert taken.attempt is not None
        state = taken.state._replace(activity=Status.QUEUED if queued else Status.RUNNING)
        run = ClaimedRun.of(
            id=self._last_number(db, LAST_RUN) + 1,
            job=job.with_state(state),
            attempt=taken.attempt,
            payload_json=job.spec.payload_json if payload_json is None else payload_json,
            before=job.state,
        )
        INSERT_RUN.one(db, *_insert_run(run, name))
        db.execute(CLAIM_ONE, (state.activity, now, run.id, node, job.uid))
        return run

    def start(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        ours = set()
        for run in runs:
            marked = db.execute("UPDATE state SET activity = 'running' WHERE uid = ? AND run = ?", (run.uid, run.id))
            if marked.rowcount:
                db.execute("UPDATE run SET started_at = ? WHERE id = ?", (now, run.id))
                ours.add(run.id)
        return ours

    def release(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun]) -> None:
        # As they are now: they may have been edited since they were claimed.
        jobs = self._claimed_by(db, runs, None, SELECT_RELEASED)
        ours = [run for run in runs if run.id in jobs]
        undone = [put_back(jobs[run.id], run) for run in ours]
        freed = [job for job, _, _ in undone]
        FINISH.all(db, map(_free, freed))
        self._bury(db, freed)
        db.executemany(DELETE_RUNS, [(run.id, run.uid, run.id, run.claimed_at) for run in ours])
        self._write_skips(db, undone)
        for job in freed:
            self._stand_in_line(job)

    def _claimed_by(
        self, db: sqlite3.Connection, runs: Iterable[ClaimedRun], now: Micros | None, question: str = SELECT_CLAIMED
    ) -> dict[int, Job]:
        """The jobs of *runs* that are still claimed and whose states can be read, by the run that has claimed each."""
        uids = json.dumps([run.uid for run in runs])
        rows = db.execute(question, (uids,)).fetchall()
        jobs = self._jobs(db, [row[:-1] for row in rows], now)
        return {row[-1]: job for row in rows if (job := jobs.get(row[0])) and not has_unreadable_state(job)}

    def finish(self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Aftermath | None]:
        left = [aftermath(item, rules) for item in ended]
        going_on: list[Row] = []
        last: list[Row] = []
        others: list[Row] = []
        for one, item in zip(left, ended, strict=True):
            run, finished_at = item.run, item.finished_at
            if not one.is_plain:
                others.append((*one.state, run.uid, run.id))
            elif one.next_run_at is None:
                last.append((item.started_at, finished_at, finished_at, run.uid, run.id))
            else:
                going_on.append((item.started_at, finished_at, one.next_run_at, run.uid, run.id))
        found = FINISH_GOING_ON.all(db, going_on) + FINISH_LAST.all(db, last) + FINISH_UNTOUCHED.all(db, others)
        if found != len(ended):
            # Begin anew: nothing else has been written so far, and a savepoint would cost those that need none.
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            return self._finish_touched(db, ended, rules)
        self._write_endings(db, ended, left)
        return [*left]

    def _finish_touched(
        self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Aftermath | None]:
        """As `finish`, where some were edited, taken over or removed while they ran: each is looked at first."""
        now = max((item.finished_at for item in ended), default=0)
        jobs = self._claimed_by(db, (item.run for item in ended), now)
        ours = [item for item in ended if item.run.id in jobs]
        left = {
            run.id: Aftermath.of(after(jobs[run.id], run, ending, started_at, finished_at, rules))
            for run, ending, started_at, finished_at in ours
        }
        FINISH.all(db, (_free(one.job) for one in left.values()))
        self._bury(db, (one.job for one in left.values()))
        self._write_endings(db, ours, list(left.values()))
        return [left.get(item.run.id) for item in ended]

    def _write_endings(self, db: sqlite3.Connection, ended: Sequence[EndedRun], left: Sequence[Aftermath]) -> None:
        FINISH_RUN.all(db, (_finish_run(item) for item in ended))
        written = [(item.run.id, item.ending.output) for item in ended if item.ending.output is not None]
        if written:
            db.executemany("INSERT OR REPLACE INTO output (run, text) VALUES (?, ?)", written)
        for item, one in zip(ended, left, strict=True):
            if one.next_run_at is not None and one.next_run_at <= self._line_until:  # or nobody need ask for the job
                self._stand_in_line(one.job)
            if one.skips:
                self._write_skips(db, [(one.job, one.skips, item.finished_at)])

    def _last_number(self, db: sqlite3.Connection, question: str) -> int:
        return int(db.execute(f"SELECT {question}").fetchone()[0])

    def _write_skips(self, db: sqlite3.Connection, skipped: Iterable[tuple[Job, Sequence[Skip], Micros]]) -> None:
        """Write the rows of what was left out, of which job, and when."""
        rows = [
            (job.uid, skip.scheduled_for, at, at, skip.reason._value_, skip.missed)
            for job, skips, at in skipped
            for skip in skips
        ]
        if rows:
            first = self._last_number(db, LAST_RUN) + 1
            db.executemany(INSERT_SKIP, [(run_id, *row) for run_id, row in enumerate(rows, first)])

    def _numbers_of(self, db: sqlite3.Connection, names: Sequence[str] | None) -> list[int]:
        """The numbers of the handlers with these names."""
        if names is None:
            return [number for (number,) in db.execute("SELECT number FROM handler")]
        unknown = [name for name in names if name not in self._handlers]
        if unknown:
            found = db.execute(
                "SELECT name, number FROM handler WHERE name IN (SELECT value FROM json_each(?))",
                (json.dumps(unknown),),
            )
            self._handlers.update(found)
        return [self._handlers[name] for name in names if name in self._handlers]

    # -------------------------------------------------------- nodes

    def _require_node(self, db: sqlite3.Connection, node: int) -> str:
        row = db.execute("SELECT name FROM node WHERE number = ?", (node,)).fetchone()
        if row is None:
            raise NodeLost
        return str(row[0])

    def join(self, db: sqlite3.Connection, identity: NodeIdentity, now: Micros, beat_at: Micros) -> int:
        self._put_handlers_right(db)
        number = db.execute(
            f"INSERT INTO node (number, name, host, pid, process_start, beat, since, beat_at)"
            f" VALUES (1 + {LAST_NODE}, ?, ?, ?, ?, 0, ?, ?)",
            (identity.name, identity.host, identity.pid, identity.process_start, now, beat_at),
        ).lastrowid
        assert number is not None
        return number

    def _put_handlers_right(self, db: sqlite3.Connection) -> None:
        """Let no job wait under the number of another handler than its own, should a row of the handlers be damaged."""
        for number, name, wanted in db.execute(HANDLERS_IN_USE).fetchall():
            if wanted is None or wanted == name:
                continue
            problem = Unreadable("name", f"it is {quoted(name)} where jobs say {quoted(wanted)}")
            self.unreadable_rows.add("handler", number, problem)
            self._handlers.clear()
            numbers: dict[str, int] = {}
            for handler in [name for (name,) in db.execute(HANDLERS_UNDER, (number,)).fetchall() if is_name(name)]:
                db.execute(MOVE_TO_HANDLER, (self._number_of(db, handler, numbers), number, handler))

    def beat(self, db: sqlite3.Connection, node: int, beat_at: Micros) -> list[NodeRow]:
        beaten = db.execute("UPDATE node SET beat = beat + 1, beat_at = ? WHERE number = ?", (beat_at, node))
        if not beaten.rowcount:
            raise NodeLost
        nodes = [self._node(row) for row in db.execute(f"SELECT {NODE_COLUMNS} FROM node")]
        return nodes + [
            NodeRow.missing(*row) for row in db.execute(OWNERLESS).fetchall() if self._can_recover(db, row[0])
        ]

    def _can_recover(self, db: sqlite3.Connection, owner: int) -> bool:
        """Whether `recover` would find anything to do about the claims of *owner*, which is not a node any more."""
        rows = db.execute(SELECT_HELD, (owner,)).fetchall()
        jobs = self._jobs(db, [row[:-7] for row in rows]).values()
        return any(not has_unreadable_state(job) or db.execute(IS_REMOVED, (job.uid,)).fetchone() for job in jobs)

    def nodes(self, db: sqlite3.Connection, now: Micros | None) -> list[NodeStatus]:
        running = dict(db.execute(RUNNING_BY_NODE).fetchall())
        return [
            NodeStatus(
                node=self._node(row),
                age=0 if now is None or not is_moment(beat_at) else now - beat_at,
                running=running.get(row[0], 0),
            )
            for *row, beat_at in db.execute(f"SELECT {NODE_COLUMNS}, beat_at FROM node ORDER BY since, number")
        ]

    def held(self, db: sqlite3.Connection, node: int) -> set[int]:
        rows = db.execute(
            "SELECT run FROM state INDEXED BY state_claimed WHERE activity <> 'idle' AND node = ?", (node,)
        )
        return {run for (run,) in rows}

    def leave(self, db: sqlite3.Connection, node: int) -> None:
        db.execute("DELETE FROM node WHERE number = ?", (node,))

    def recover(
        self, db: sqlite3.Connection, dead: Sequence[NodeRow], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        recovered = []
        for node in dead:
            if self._forget_node(db, node):
                problem = f"The process that ran it is gone ({node.identity.name})."
                recovered += self._interrupt(db, node.id, set(), problem, now, rules)
        return recovered

    def _forget_node(self, db: sqlite3.Connection, node: NodeRow) -> bool:
        """Whether *node* is dead and ours to bury: otherwise it lives, or another process was faster."""
        if node.is_missing:
            return not db.execute("SELECT 1 FROM node WHERE number = ?", (node.id,)).fetchone()
        return db.execute("DELETE FROM node WHERE number = ? AND beat = ?", (node.id, node.beat)).rowcount > 0

    def interrupt_unknown(
        self, db: sqlite3.Connection, node: int, known: set[int], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        return self._interrupt(db, node, known, "The store failed when it was claimed; it never began.", now, rules)

    def _interrupt(
        self, db: sqlite3.Connection, node: int, known: set[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        """End all runs of *node* but the *known*, as interrupted."""
        interrupted = []
        ending = Ending(outcome=Outcome.INTERRUPTED, error=problem)
        rows = [row for row in db.execute(SELECT_HELD, (node,)).fetchall() if row[-7] not in known]
        jobs = self._jobs(db, [row[:-7] for row in rows], now)
        for row in rows:
            job = jobs.get(row[0])
            if job is None or (has_unreadable_state(job) and not self._bury(db, [job])):
                continue
            run_id, *told, started_at = row[-6:]
            tried = attempt_of(job, *told)
            run = ClaimedRun.of(
                id=run_id or 0, job=job, attempt=tried, payload_json=job.spec.payload_json, before=job.state
            )
            at = noticed_at(now, tried.claimed_at)
            edit = Edit(job)
            if not has_unreadable_state(job):
                edit = after(job, run, ending, shown_moment(started_at), at, rules)
                FINISH.one(db, *_free(edit.job))
                self._bury(db, [edit.job])
                self._stand_in_line(edit.job)
            ended = EndedRun(run=run, ending=ending, started_at=started_at, finished_at=at)
            FINISH_RUN.one(db, *_finish_run(ended))
            self._write_skips(db, [(edit.job, edit.skips, now)])
            interrupted.append((edit, run))
        return interrupted

    # -------------------------------------------------------- upkeep

    def disable_without_user(self, db: sqlite3.Connection, reason: str, now: Micros) -> list[Job]:
        rows = db.execute(f"{EDITED} WHERE j.user_id IS NULL AND s.phase <> 'disabled'").fetchall()
        found = [job for job in self._jobs(db, rows, None).values() if not has_unreadable_state(job)]
        edits = [disabled_by(job, reason, now) for job in found]
        UPDATE_ONLY_STATE.all(db, ((*state_values(edit.job.state), edit.job.uid) for edit in edits))
        self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
        return [edit.job for edit in edits]

    def overgrown(self, db: sqlite3.Connection, uids: Sequence[int], keep: int) -> list[int]:
        return [uid for (uid,) in db.execute(OVERGROWN, {"uids": json.dumps(uids), "keep": keep})]

    def purge_runs(self, db: sqlite3.Connection, uids: Sequence[int], keep: int, now: Micros) -> None:
        old = [{"uid": uid, "keep": keep, "now": now} for uid in self.overgrown(db, uids, keep)]
        db.executemany(NOTE_FORGOTTEN, old)
        db.executemany(PURGE_RUNS, old)

    def purge_disabled(self, db: sqlite3.Connection, before: Micros, limit: int) -> list[Job]:
        rows = db.execute(
            f"{SELECT_STATE} FROM state s WHERE s.phase = 'disabled' AND s.activity = 'idle' AND s.disabled_at < ?"
            " ORDER BY s.disabled_at",
            (before,),
        )
        jobs: list[Job] = []
        while len(jobs) < limit and (some := rows.fetchmany(limit)):  # what cannot be read hides no others
            found = self._jobs(db, some).values()
            jobs += [job for job in found if not has_unreadable_state(job)][: limit - len(jobs)]
        db.executemany("DELETE FROM job WHERE uid = ?", [(job.uid,) for job in jobs])
        self._forget_removed(db, jobs)
        return jobs

    # -------------------------------------------------------- rows and records

    def _jobs(self, db: sqlite3.Connection, rows: Sequence[Row], now: Micros | None = 0) -> dict[int, Job]:
        """The jobs of these rows of state, by their numbers; a state that has no job is left out.

        A job whose description cannot be read is shown as disabled as of *now*, or in its own state if that is None.
        """
        jobs = {}
        for row, description in zip(rows, self._descriptions_of(db, rows), strict=True):
            job = self._job(row, description, now)
            if job is not None:
                jobs[row[0]] = job
        return jobs

    def _job(self, row: Row, description: Row | None, now: Micros | None) -> Job | None:
        """One job. If it cannot be read (its zone is gone, its JSON broken) it is shown as `_jobs` says."""
        uid, columns = row[0], row[2:STATE_END]
        if description is None:
            self.unreadable_rows.add("state", uid, Unreadable("uid", "no job has this number"))
            return None
        problems = self._unreadable.get(description[:2]) if self._unreadable else None
        unsound = state_problem(columns)
        if unsound is not None:
            is_missing = not any(value is not None for value in row[1:STATE_END])
            unsound = Unreadable("uid", "no row has this number") if is_missing else unsound
            self.unreadable_rows.add("state", uid, unsound)
            state = unreadable_state(columns, unsound)
        else:
            state = state_of(columns)
        job = job_of(description, state) if problems is None else unreadable_job(description, problems, state)
        if unsound is not None:
            job = replace(job, unreadable_state=unsound)
        elif problems is not None and now is not None:
            job = shown(job, now)
        return _edited(job, row[STATE_END:])

    def _run(self, row: Row) -> RunRow:
        run, problem = read_run(row)
        if problem is not None:
            self.unreadable_rows.add("run", run.id, problem)
        return run

    def _node(self, row: Sequence[Any]) -> NodeRow:
        node, problem = read_node(row)
        if problem is not None:
            self.unreadable_rows.add("node", node.id, problem)
        return node

    def _descriptions_of(self, db: sqlite3.Connection, rows: Sequence[Row]) -> list[Row | None]:
        """The descriptions that belong to these rows of state, most of which are remembered; None if there is none."""
        remembered = self._descriptions
        known = [found if (found := remembered.get(row[0])) and found[1] == row[1] else None for row in rows]
        if None not in known:
            return known
        if len(self._unreadable) > REMEMBERED:
            self._unreadable.clear()  # those that matter now are found again
        missing = json.dumps([row[0] for row, found in zip(rows, known, strict=True) if found is None])
        query = f"{SELECT_SPEC} WHERE j.uid IN (SELECT value FROM json_each(?))"
        read = {description[0]: description for description in db.execute(query, (missing,))}
        for description in read.values():
            try:
                read_job(description)
            except Unreadable as problem:
                self._unreadable[description[:2]] = problems_of(description)
                self.unreadable_rows.add("job", description[0], problem)
            else:
                size = len(description[PAYLOAD]) + len(description[METADATA])
                self._descriptions.put(description[UID], description, size)
                self._unreadable.pop(description[:2], None)  # a zone may be missing for a while
        return [found or read.get(row[0]) for row, found in zip(rows, known, strict=True)]


def _edited(job: Job, edited_at: Sequence[Micros]) -> Job:
    """*job* with when it was last edited, where that was read."""
    is_news = edited_at and edited_at[0] != job.updated and is_moment(edited_at[0])
    return replace(job, updated=edited_at[0]) if is_news else job


def _waits_for_first_run(job: Job) -> bool:
    state = job.state
    waits = state.activity is Status.IDLE and state.next_run_at is not None
    return waits and job.spec.group is None and state[2:] == REST_OF_NEW_STATE


def _waiting(job: Job, handler: int) -> Row:
    """The columns of `INSERT_WAITING`."""
    return job.uid, job.revision, handler, job.priority.rank, job.id, job.state.next_run_at


def _narrow(job: Job, handler: int) -> Row:
    key = group_key(job.namespace, job.group)
    return (job.revision, handler, job.priority.rank, job.id, key, *state_values(job.state))


def _free(job: Job) -> Row:
    """The columns of `FINISH`: no run holds the job any more."""
    return (*state_values(job.state), None, None, job.uid)


def _insert_run(run: ClaimedRun, node: str) -> Row:
    return (
        run.id,
        run.uid,
        run.scheduled_for,
        run.number,
        run.trigger._value_,
        run.claimed_at,
        run.claimed_at if not run.is_queued else None,
        node,
    )


def _claim_update(run: ClaimedRun, node: int) -> Row:
    activity, _, _, _, _, retry_count, last_run_at, *_ = run.state
    return activity, retry_count, last_run_at, run.id, node, run.uid


def _finish_run(item: EndedRun) -> Row:
    ending = item.ending
    reason = SkipReason.INTERRUPTED if ending.outcome is Outcome.INTERRUPTED else None
    return (
        item.started_at,
        item.finished_at,
        ending.outcome._value_,
        reason,
        ending.error,
        ending.message,
        ending.exit_code,
        item.run.id,
    )
