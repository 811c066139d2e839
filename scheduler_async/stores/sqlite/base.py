"""The base of all transactions: how they run, their caches, and rows that are converted to jobs.

A constant or a method is here if two modules need it. Otherwise it is in the module that needs it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from scheduler_async.errors import SchedulerError
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.groups import NO_GROUP, group_key
from scheduler_async.rules.order import order
from scheduler_async.schedules.patience import IN_TRANSACTION
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.change_codec import CHANGE_COLUMNS, ChangeRecord
from scheduler_async.stores.codec import (
    REMEMBERED_BYTES,
    STATE_FIELDS,
    Row,
    has_unreadable_state,
    problems_of,
    read_job,
    read_state,
    shown,
    state_values,
    unreadable_job,
    unreadable_state,
)
from scheduler_async.stores.columns import DESCRIPTION_TYPES
from scheduler_async.stores.conditions import IS_DECISION
from scheduler_async.stores.decided import Decisions, Undecided
from scheduler_async.stores.messages import CancelRequest
from scheduler_async.stores.ready_queue import ReadyQueue
from scheduler_async.stores.row_range import RowRange, TimedRows
from scheduler_async.stores.run_codec import Skipped, Tally, skip_values, tally_of_skips
from scheduler_async.stores.sqlite.bulk_writes import updating
from scheduler_async.stores.sqlite.connection import Outcome, Work, is_undecodable, outcome_of
from scheduler_async.stores.sqlite.schema import MOST_NUMBERS, last_given, require_current
from scheduler_async.stores.unreadable import UnreadableRows, is_moment, shown_text
from scheduler_async.timekeeping.instants import Micros

STATE_COLUMNS: Final = ", ".join(f"s.{name}" for name in STATE_FIELDS)
SELECT_STATE: Final = f"SELECT s.uid, s.revision, {STATE_COLUMNS}"
STATE_END: Final = 2 + len(STATE_FIELDS)
SELECT_SPEC: Final = f"SELECT {', '.join(f'j.{name}' for name in DESCRIPTION_TYPES)} FROM job j"
# With the time of the last edit, which changes without the description: another process may have paused the job. A job
# without a state is included. It counts as unreadable.
SELECT_EDITED: Final = f"SELECT j.uid, s.revision, {STATE_COLUMNS}, j.updated_at"
EDITED: Final = f"{SELECT_EDITED} FROM job j LEFT JOIN state s ON s.uid = j.uid"
FIND_JOB: Final = f"{EDITED} WHERE j.namespace = ? AND j.id = ? AND j.removed_at IS NULL"
SELECT_CLAIMED: Final = f"""
    {SELECT_STATE}, s.run
      FROM state s
     WHERE s.uid IN (SELECT value FROM json_each(?))
"""
# Whether a claimed job has one run at a time, so that its state has the owner. The others have rows of `instance`.
HAS_OWN_RUN: Final = (
    "(s.running = 0 OR NOT EXISTS (SELECT 1 FROM instance i WHERE i.uid = s.uid AND i.backfill IS NULL))"
)
SELECT_HELD: Final = f"""
    {SELECT_STATE}, s.run, r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM state s INDEXED BY state_claimed
 LEFT JOIN run r ON r.id = s.run AND r.uid = s.uid AND r.outcome IS NULL
     WHERE s.activity <> 'idle' AND (s.node = :node OR (:node = 0 AND s.node IS NULL AND {HAS_OWN_RUN}))
"""
# The same for jobs that may have several runs at once.
SELECT_HELD_INSTANCES: Final = f"""
    {SELECT_STATE}, i.run, r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM instance i INDEXED BY instance_of_node
CROSS JOIN state s ON s.uid = i.uid
 LEFT JOIN run r ON r.id = i.run AND r.uid = i.uid AND r.outcome IS NULL
     WHERE i.node IS nullif(:node, 0) AND i.backfill IS NULL
  ORDER BY i.run
"""
ADD_INSTANCES: Final = "INSERT INTO instance (run, uid, node) VALUES (?, ?, ?)"
ARE_INSTANCES: Final = "SELECT run FROM instance WHERE run IN (SELECT value FROM json_each(?)) AND backfill IS NULL"
# A run that was given back keeps its number, and another node may have claimed it since.
CLAIMED_AT: Final = "SELECT id, claimed_at FROM run WHERE id IN (SELECT value FROM json_each(?))"
# A damaged row may name another job, which must not wait for that run, nor cancel it.
COUNT_INSTANCES: Final = """
    SELECT i.uid, count(*)
      FROM instance i INDEXED BY instance_of_job
CROSS JOIN run r ON r.id = i.run AND r.uid = i.uid
     WHERE i.uid IN (SELECT value FROM json_each(?)) AND i.backfill IS NULL
  GROUP BY i.uid
"""
FREE_INSTANCES: Final = "DELETE FROM instance WHERE run IN (SELECT value FROM json_each(?))"
DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"


def last_number(table: str, *keys: str) -> str:
    """Return the expression for the highest number that *table* ever assigned or uses. No number is assigned twice.

    Absurdly high numbers do not count, because they would leave no number to assign.
    """
    in_use = (
        f"coalesce((SELECT max({key.partition('.')[2]}) FROM {key.partition('.')[0]}"
        f" WHERE {key.partition('.')[2]} < {MOST_NUMBERS}), 0)"
        for key in keys
    )
    return f"max({last_given(table)}, {', '.join(in_use)})"


LAST_RUN: Final = last_number("run", "run.id")
FORGET_HANDLER: Final = """
    DELETE FROM handler
     WHERE name = ? AND NOT EXISTS (SELECT 1 FROM state INDEXED BY state_of_handler WHERE handler = handler.number)
"""
# Most columns of most states have the same values as those of a new job.
USUAL: Final = dict(zip(STATE_FIELDS, state_values(JobState()), strict=True))
UPDATE_ONLY_STATE: Final = updating("state", ["uid"], *STATE_FIELDS, always="touched = 1", usual=USUAL)
# The state of a job, with the run and the node that hold it, if any.
WRITE_STATE: Final = updating("state", ["uid"], *STATE_FIELDS, "run", "node", always="touched = 0", usual=USUAL)
INSERT_SKIP: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, finished_at, outcome, reason, missed)
    VALUES (?, ?, ?, 0, 'schedule', ?, ?, 'skipped', ?, ?)
"""
COUNT: Final = """
    INSERT INTO tally (hour, namespace, outcome, node, n)
    VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (hour, namespace, outcome, node) DO UPDATE SET n = n + excluded.n
"""
DELETE_STATE: Final = """
    DELETE FROM state
     WHERE uid = ? AND EXISTS (SELECT 1 FROM job WHERE job.uid = state.uid AND job.removed_at IS NOT NULL)
"""
LAST_CHANGE: Final = f"coalesce((SELECT max(number) FROM change WHERE number < {MOST_NUMBERS}), 0)"
END_LIFE: Final = "UPDATE node_span SET until = ?, how = ? WHERE number = ? AND until IS NULL"
INSERT_CHANGE: Final = f"""
    INSERT INTO change (number, {", ".join(CHANGE_COLUMNS)}, previous, decision)
    VALUES (?, {", ".join("?" for _ in CHANGE_COLUMNS)},
            (SELECT last_change FROM job WHERE uid = ?),
            (SELECT CASE WHEN {IS_DECISION} THEN c.number ELSE c.decision END
               FROM job CROSS JOIN change c ON c.number = job.last_change
              WHERE job.uid = ?))
"""
SET_LAST_CHANGE: Final = "UPDATE job SET last_change = ? WHERE uid = ?"
# {0} are `TimedRows`.
FIRST_AND_LAST: Final = "SELECT (SELECT min({0.number}) FROM {0.table}), (SELECT max({0.number}) FROM {0.table})"
TIMES_FROM: Final = """
    SELECT p.value, (SELECT r.{0.at} FROM {0.table} r WHERE r.{0.number} >= p.value ORDER BY r.{0.number} LIMIT 1)
      FROM json_each(?) p
"""
INSERT_REQUEST: Final = "INSERT OR REPLACE INTO request (run, uid, kind, reason, at) VALUES (?, ?, ?, ?, ?)"
CANCELS_OF: Final = """
    SELECT run, reason, at FROM request WHERE run IN (SELECT value FROM json_each(?)) AND kind || '' = 'cancel'
"""

# The number of cached descriptions, which save parsing.
REMEMBERED = 16_384

# Earlier than any due time.
EARLIEST: Micros = -(2**63)

T = TypeVar("T")


# How a transaction begins, how it ends, and how it is undone. IMMEDIATE: one that begins by reading cannot always
# upgrade to writing.
WHOLE: Final = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
PART: Final = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))


def in_transaction(db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    """Do *work* in a transaction, or as a part of the one that is open. Undo all of it if it raises."""
    begin, end, undo = PART if db.in_transaction else WHOLE
    db.execute(begin)
    inside = IN_TRANSACTION.set(True)
    try:
        result = work(db, *args)
        db.execute(end)
    except BaseException:
        for statement in undo if db.in_transaction else ():  # a full disk rolls back on its own
            db.execute(statement)
        raise
    finally:
        IN_TRANSACTION.reset(inside)
    return result


def data_version(db: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has changed the file."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


class WorkBase:
    """Runs transactions, with the caches and the steps that several of them share."""

    def __init__(self) -> None:
        # Jobs by number, without their states.
        self._remembered: Cache[int, Job] = Cache(REMEMBERED, REMEMBERED_BYTES)
        self._handlers: dict[str, int] = {}
        self._as_of = 0  # the data version of the cached handlers and of the queue
        self._is_current = False  # whether the schema was checked since then, and is not newer
        self._last_job: int | None = None  # the highest number that a job ever had, if it was read since then
        self._last_change: int | None = None  # the same of changes
        self._node_name = ""  # of the node that uses this store, as in the rows of its runs
        self.unreadable_rows = UnreadableRows()
        self.decisions = Decisions()
        self._queue: ReadyQueue | None = None
        self._queue_until: Micros = EARLIEST
        self._is_part = False  # whether several transactions are carried out together

    def write(self, db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
        """Do the same as `record`, unless a newer version has migrated the store, which might misread the rows."""
        return self._transact(db, True, work, args)

    def record(self, db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
        """Do the same as `in_transaction`, for work that changes the caches."""
        return self._transact(db, False, work, args)

    def together(self, db: sqlite3.Connection, works: Sequence[Work]) -> Sequence[Outcome]:
        """Do *works*, each of which is a transaction, with one commit. One that fails does not affect the others."""
        if len(works) == 1:
            return [Outcome(works[0](db))]
        self._is_part = True
        try:
            return in_transaction(db, _each, works)
        except BaseException:
            self._forget()
            raise
        finally:
            self._is_part = False

    def _begin_again(self, db: sqlite3.Connection) -> None:
        """Undo what the current transaction has done so far, before it has used the caches."""
        begin, _, undo = PART if self._is_part else WHOLE
        for statement in (*undo, begin):
            db.execute(statement)

    def _forget(self) -> None:
        """Forget what a transaction has noted that was undone: jobs whose numbers will be reused, for example."""
        self._queue = None  # jobs that were taken out of it are still due
        self._remembered.clear()
        self._last_job = self._last_change = None

    def _transact(
        self, db: sqlite3.Connection, needs_current: bool, work: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        try:
            result: T = in_transaction(db, self._in_view_of_others, needs_current, work, args)
        except (SchedulerError, Undecided):  # a refusal precedes all writes
            self._queue = None
            raise
        except BaseException:
            self._forget()
            raise
        return result

    def _in_view_of_others(
        self, db: sqlite3.Connection, needs_current: bool, work: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        """Do *work* after a check whether another process has changed the file."""
        version = data_version(db)
        if version != self._as_of:
            self._as_of = version
            self._handlers.clear()  # other processes may have deleted or replaced some
            self._last_job = self._last_change = None
            self._is_current = False
        if needs_current and not self._is_current:
            require_current(db)
            self._is_current = True
        return work(db, *args)

    def _find_job(self, db: sqlite3.Connection, namespace: str, id: str, now: Micros | None = 0) -> Job | None:
        """Return the job with this name. For *now*, see `_jobs`."""
        row = db.execute(FIND_JOB, (namespace, id)).fetchone()
        return None if row is None else self._jobs(db, [row], now).get(row[0])

    def _claimed_by(
        self, db: sqlite3.Connection, runs: Iterable[ClaimedRun], now: Micros | None, question: str = SELECT_CLAIMED
    ) -> dict[int, Job]:
        """Return the jobs of *runs* that are still claimed and can be read, by run."""
        runs = list(runs)
        uids = json.dumps([run.uid for run in runs])
        rows = db.execute(question, (uids,)).fetchall()
        found = self._jobs(db, [row[:-1] for row in rows], now)
        jobs = {uid: job for uid, job in found.items() if not has_unreadable_state(job)}
        held = {row[-1]: jobs[row[0]] for row in rows if row[-1] is not None and row[0] in jobs}
        others = json.dumps([run.id for run in runs if run.id not in held])
        instances = {run for (run,) in db.execute(ARE_INSTANCES, (others,))}
        if instances:
            self._recount(db, jobs)
            held |= {run.id: jobs[run.uid] for run in runs if run.id in instances and run.uid in jobs}
        if given_back := [run for run in runs if run.id in held and run.waits_if_given_back]:
            claimed_at = dict(db.execute(CLAIMED_AT, (json.dumps([run.id for run in given_back]),)).fetchall())
            gone = {run.id for run in given_back if claimed_at.get(run.id) != run.claimed_at}
            held = {run: job for run, job in held.items() if run not in gone}
        return held

    def _recount(self, db: sqlite3.Connection, jobs: dict[int, Job]) -> None:
        """Count the runs of those *jobs*, by number, that may have several. The rows of the owners decide."""
        counts = dict(db.execute(COUNT_INSTANCES, (json.dumps([*jobs]),)).fetchall())
        for uid, job in jobs.items():
            count = counts.get(uid, 0)
            if job.state.running != count and not has_unreadable_state(job):
                jobs[uid] = job.with_state(replace(job.state, running=count))

    def _recounted(self, db: sqlite3.Connection, job: Job) -> Job:
        """Return *job* with the number of its runs, if it may have several."""
        jobs = {job.uid: job}
        if job.state.running or job.description.has_instances:
            self._recount(db, jobs)
        return jobs[job.uid]

    def _free(self, db: sqlite3.Connection, jobs: Iterable[Job], runs: Iterable[int]) -> None:
        """Write jobs after *runs* of them have ended. Several of these may be of the same job, whose last state counts.

        Delete the owners of the runs.
        """
        WRITE_STATE.all(db, map(free_values, {job.uid: job for job in jobs}.values()))
        db.execute(FREE_INSTANCES, (json.dumps([*runs]),))

    def _jobs(self, db: sqlite3.Connection, rows: Sequence[Row], now: Micros | None = 0) -> dict[int, Job]:
        """Return the jobs of these rows of state, by number. A state without a job is omitted.

        A job whose description cannot be read counts as disabled as of *now*, or keeps its own state if *now* is None.
        """
        jobs = {}
        for row, described in zip(rows, self._described(db, rows), strict=True):
            job = self._job(row, described, now)
            if job is not None:
                jobs[row[0]] = job
        return jobs

    def _job(self, row: Row, described: Job | None, now: Micros | None) -> Job | None:
        """Return one job. If it cannot be read, for example because its zone is gone, see `_jobs`."""
        uid, columns = row[0], row[2:STATE_END]
        if described is None:
            self.unreadable_rows.add("state", uid, Unreadable("uid", "no job has this uid"))
            return None
        try:
            job = described.with_state(read_state(columns))
        except Unreadable as problem:
            is_missing = not any(value is not None for value in row[1:STATE_END])
            unsound = Unreadable("uid", "no state has this uid") if is_missing else problem
            self.unreadable_rows.add("state", uid, unsound)
            job = replace(described, state=unreadable_state(columns, unsound), unreadable_state=unsound)
        else:
            if now is not None and described.description.unreadable:
                job = shown(job, now)
        return _edited(job, row[STATE_END]) if len(row) > STATE_END else job

    def _described(self, db: sqlite3.Connection, rows: Sequence[Row]) -> list[Job | None]:
        """Return the jobs of these rows of state, without their states. Most of them are cached.

        The result has None for a number without a job.
        """
        remembered = self._remembered
        known = [found if (found := remembered.get(row[0])) and found.revision == row[1] else None for row in rows]
        if None not in known:
            return known
        missing = json.dumps([row[0] for row, found in zip(rows, known, strict=True) if found is None])
        query = f"{SELECT_SPEC} WHERE j.uid IN (SELECT value FROM json_each(?))"
        read = {columns[0]: self._read_description(columns) for columns in db.execute(query, (missing,))}
        return [found or read.get(row[0]) for row, found in zip(rows, known, strict=True)]

    def _read_description(self, columns: Row) -> Job:
        try:
            job = read_job(columns)
        except Unreadable as problem:
            self.unreadable_rows.add("job", columns[0], problem)
            return unreadable_job(columns, problems_of(columns))
        self._remember(job)
        return job

    def _remember(self, job: Job) -> None:
        described = job.description
        if not described.schedule.is_known:  # its class may be imported at any time, or it was not read yet
            return
        self._remembered.put(job.uid, job, len(described.payload_json) + len(described.metadata_json))

    def _last_number(self, db: sqlite3.Connection, question: str) -> int:
        return int(db.execute(f"SELECT {question}").fetchone()[0])

    def _number_of(self, db: sqlite3.Connection, handler: str, numbers: dict[str, int]) -> int:
        """Return the number of a handler. *numbers* are those of this transaction, which may be rolled back."""
        if handler not in numbers:
            known = self._numbers_of(db, [handler])
            numbers[handler] = (
                known[0]
                if known
                else db.execute("INSERT INTO handler (name) VALUES (?) RETURNING number", (handler,)).fetchone()[0]
            )
        return numbers[handler]

    def _numbers_of(self, db: sqlite3.Connection, names: Sequence[str] | None) -> list[int]:
        """Return the numbers of the handlers with these names."""
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

    def _forget_removed(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Delete the handlers of removed *jobs* that no other job uses."""
        self._forget_unused(db, {job.handler for job in jobs})

    def _forget_unused(self, db: sqlite3.Connection, names: Iterable[str]) -> None:
        """Delete the handlers with these *names* that no job uses."""
        for name in names:
            if db.execute(FORGET_HANDLER, (name,)).rowcount:
                self._handlers.pop(name, None)

    def _delete_removed(self, db: sqlite3.Connection, jobs: Iterable[Job]) -> bool:
        """Delete the states of removed *jobs*, which no run needs any more.

        Return whether there were any.
        """
        gone = [job for job in jobs if db.execute(DELETE_STATE, (job.uid,)).rowcount]
        if gone:
            db.executemany("DELETE FROM instance WHERE uid = ?", [(job.uid,) for job in gone])
            self._forget_removed(db, gone)
        return bool(gone)

    def _cancels_of(self, db: sqlite3.Connection, runs: Sequence[int]) -> dict[int, CancelRequest]:
        """Return those of *runs* that callers have asked to cancel."""
        found = db.execute(CANCELS_OF, (json.dumps(runs),)) if runs else ()
        return {run: CancelRequest(None if reason is None else shown_text(reason), at) for run, reason, at in found}

    def _range(
        self, db: sqlite3.Connection, rows: TimedRows, since: Micros | None, until: Micros | None = None
    ) -> RowRange | None:
        """Return the numbers of *rows* of about a stretch of time. None if there are no rows."""
        first, last = db.execute(FIRST_AND_LAST.format(rows)).fetchone()
        if first is None:
            return None
        found = RowRange(first, last, since, until, rows.disorder)
        while points := found.points():
            found.learn(dict(db.execute(TIMES_FROM.format(rows), (json.dumps(points),)).fetchall()))
        return found

    def _write_skips(self, db: sqlite3.Connection, skipped: Sequence[Skipped]) -> None:
        """Write the rows of skipped occurrences."""
        rows = skip_values(skipped)
        if rows:
            first = self._last_number(db, LAST_RUN) + 1
            db.executemany(INSERT_SKIP, [(run_id, *row) for run_id, row in enumerate(rows, first)])
            self._count_ended(db, tally_of_skips(skipped))

    def _count_ended(self, db: sqlite3.Connection, tally: Tally, node: str | None = None) -> None:
        """Add *tally* to the numbers of runs that ended on a *node*; None is this one."""
        name = self._node_name if node is None else node
        db.executemany(COUNT, [(*key, name, number) for key, number in tally.items()])

    def _write_changes(self, db: sqlite3.Connection, records: Sequence[ChangeRecord]) -> None:
        """Write the rows of changes of jobs."""
        for record in records:  # rarely more than one
            db.execute(SET_LAST_CHANGE, (self._insert_change(db, record), record[0]))

    def _insert_change(self, db: sqlite3.Connection, record: ChangeRecord) -> int:
        """Write the row of a change, and return its number. The job must get this number as that of its last change."""
        uid = record[0]
        number = self._last_change = self._number_of_last_change(db) + 1
        db.execute(INSERT_CHANGE, (number, *record, uid, uid))
        return number

    def _number_of_last_change(self, db: sqlite3.Connection) -> int:
        return self._last_number(db, LAST_CHANGE) if self._last_change is None else self._last_change

    def _add_if_due(self, job: Job) -> None:
        """Add a job to the queue if it is due already. The query for newly due jobs would not find it."""
        state = job.state
        at = state.next_run_at
        if (
            self._queue is not None
            and at is not None
            and at <= self._queue_until
            and state.phase is Phase.ACTIVE
            and state.activity is Status.IDLE
        ):
            self._queue.add(group_key(job.namespace, job.group) or NO_GROUP, (*order(job), job.uid))


def _each(db: sqlite3.Connection, works: Sequence[Work]) -> list[Outcome]:
    """Do *works* in an open transaction. Raise an error that affects all of them."""
    outcomes = []
    for work in works:
        outcome = outcome_of(work, db)
        if outcome.error is not None and (not db.in_transaction or is_undecodable(outcome.error)):
            raise outcome.error
        outcomes.append(outcome)
    return outcomes


def _edited(job: Job, edited_at: Any) -> Job:
    """Return *job* with when it was last edited."""
    is_news = edited_at != job.updated and is_moment(edited_at)
    return replace(job, updated=edited_at) if is_news else job


def free_values(job: Job) -> Row:
    """Return the columns of `WRITE_STATE` for a job without a run."""
    return (*state_values(job.state), None, None, job.uid)
