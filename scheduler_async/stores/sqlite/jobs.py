"""Jobs: find, add, edit, remove, list and review them; and the output of runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final

from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.history import NO_ACTOR, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.rules.edits import check_revision
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import ChangeRecord, content_of_new_job, removal
from scheduler_async.stores.codec import (
    STATE_FIELDS,
    Row,
    description_values,
    edited_values,
    state_values,
)
from scheduler_async.stores.columns import DESCRIPTION_TYPES
from scheduler_async.stores.conditions import conditions_of_jobs
from scheduler_async.stores.decisions import each, reviewed_all, rows_of_removal
from scheduler_async.stores.edit_plan import EditPlan
from scheduler_async.stores.messages import REMOVED, Change, JobFilter, has_metadata
from scheduler_async.stores.run_codec import tally_of_cancelled
from scheduler_async.stores.sqlite.base import (
    EDITED,
    FREE_INSTANCES,
    SELECT_EDITED,
    UPDATE_ONLY_STATE,
    USUAL,
    last_number,
)
from scheduler_async.stores.sqlite.bulk_writes import inserting, updating
from scheduler_async.stores.sqlite.schema import MOST_NUMBERS
from scheduler_async.stores.sqlite.successors import UNLINK, SuccessorWork
from scheduler_async.stores.unreadable import shown_text
from scheduler_async.timekeeping.instants import Micros

LAST_JOB: Final = last_number("job", "job.uid", "state.uid")
NAME_EXISTS: Final = "SELECT 1 FROM job WHERE namespace = ? AND id = ? AND removed_at IS NULL"
# The parameter is an object with a list of ids for each namespace.
FIND_JOBS: Final = f"""
    {SELECT_EDITED}
      FROM json_each(?) n
CROSS JOIN json_each(n.value) i
CROSS JOIN job j ON j.namespace = n.key AND j.id = i.value AND j.removed_at IS NULL
 LEFT JOIN state s ON s.uid = j.uid
"""
# The jobs of a namespace, counted up to a limit. A removed job does not count.
COUNT_JOBS: Final = """
    SELECT count(*) FROM (SELECT 1 FROM job WHERE namespace = ? AND removed_at IS NULL LIMIT ?)
"""
# The columns of a description without its number, and those of a state with the columns that claims need.
EDITED_COLUMNS: Final = [name for name in DESCRIPTION_TYPES if name != "uid"]
NARROW_COLUMNS: Final = ("revision", "handler", "rank", "id", "group_key", *STATE_FIELDS)
INSERT_JOB: Final = inserting("job", *DESCRIPTION_TYPES)
INSERT_NEW_JOB: Final = inserting("job", *DESCRIPTION_TYPES, "last_change")
UPDATE_JOB: Final = updating("job", ["uid"], *EDITED_COLUMNS)
UPDATE_TIME: Final = "UPDATE job SET updated_at = ? WHERE uid = ?"
INSERT_STATE: Final = inserting("state", "uid", *NARROW_COLUMNS, usual=USUAL)
# The same for a job whose place among the others does not change. Some indexes stay as they are then.
UPDATE_REVISION: Final = updating("state", ["uid"], "revision", *STATE_FIELDS, always="touched = 1", usual=USUAL)
UPDATE_STATE: Final = updating("state", ["uid"], *NARROW_COLUMNS, always="touched = 1", usual=USUAL)
REVIEW: Final = f"""
    {EDITED}
     WHERE s.uid > ? AND s.next_run_at > ? AND s.phase <> 'disabled'
  ORDER BY s.uid
     LIMIT ?
"""
# A removed job remains for its runs and changes, which tell its payload, until `purge_removed` deletes all of it.
REMOVE: Final = "UPDATE job SET removed_at = ? WHERE uid = ?"
# The job is removed from within a run. Any other run in its state was cancelled.
DISABLE: Final = """
    UPDATE state
       SET phase = 'disabled', disabled_reason = :reason, disabled_at = :now, next_run_at = NULL, regular_at = NULL,
           owed_until = NULL, touched = 1,
           activity = CASE WHEN run = :own_run THEN activity ELSE 'idle' END,
           node = CASE WHEN run = :own_run THEN node END,
           run = CASE WHEN run = :own_run THEN run END
     WHERE uid = :uid
"""
# New jobs have the highest numbers.
RECORD_ADDITIONS: Final = f"""
    INSERT INTO change (number, uid, at, action, actor, via, after)
    SELECT ? + uid, uid, ?, 'add', ?, ?, {content_of_new_job("json_quote")}
      FROM job
     WHERE uid > ? AND uid < {MOST_NUMBERS}
"""
NOTE_DISABLED: Final = """
    UPDATE change SET after = substr(after, 1, length(after) - 1) || ',"enabled":false}' WHERE number = ?
"""
RUNS_OF_JOB: Final = """
    SELECT run FROM state WHERE uid = ? AND run IS NOT NULL UNION ALL SELECT run FROM instance WHERE uid = ?
"""
# The owner of a run in progress, when the job becomes one that may have several.
MOVE_OWNER: Final = """
    INSERT OR IGNORE INTO instance (run, uid, node)
    SELECT s.run, s.uid, s.node FROM state s JOIN run r ON r.id = s.run WHERE s.uid = ?
"""
FORGET_OWNER: Final = "UPDATE state SET run = NULL, node = NULL WHERE uid = ?"
CANCEL_BACKFILLS: Final = "UPDATE backfill SET state = 'cancelled' WHERE uid = ? AND state = 'running'"
FORGET_BACKFILLS: Final = """
    DELETE FROM backfill_due WHERE backfill IN (SELECT number FROM backfill INDEXED BY backfill_of_job WHERE uid = ?)
"""
CANCEL_RUN: Final = (
    "UPDATE run SET outcome = 'cancelled', finished_at = ?, error = ? WHERE id = ? AND uid = ? AND outcome IS NULL"
)
# The runs that callers have asked for and that no node has taken up.
CANCEL_REQUESTED: Final = """
    UPDATE run
       SET outcome = 'cancelled', finished_at = ?, error = ?
     WHERE id IN (SELECT run FROM request INDEXED BY request_start WHERE kind = 'start' AND uid = ?) AND outcome IS NULL
"""
FORGET_REQUESTED: Final = "DELETE FROM request INDEXED BY request_start WHERE kind = 'start' AND uid = ?"
PARAMETER: Final = "?"

DISABLED = Phase.DISABLED  # many jobs may be added at once, and this is faster


class JobWork(SuccessorWork):
    """The transactions of jobs. For their purpose, see `Store`."""

    def change(
        self,
        db: sqlite3.Connection,
        changes: Sequence[Change],
        now: Micros,
        by: Actor = NO_ACTOR,
        *,
        quota: Quota | None = None,
    ) -> list[Transition | None]:
        jobs, uid = self._find(db, changes)
        plan = EditPlan(jobs, count(uid + 1), now, by, self.decisions)
        plan.decide_all(changes)
        if quota is not None and quota.max_jobs is not None and plan.added:
            (stored,) = db.execute(COUNT_JOBS, (quota.namespace, quota.max_jobs)).fetchone()
            quota.check_jobs(stored, len(plan.added))
        linked = plan.linked
        if linked:
            self._check_links(db, linked)
        numbers: dict[str, int] = {}
        self._update_all(db, plan.changed.values(), numbers)
        self._write_changes(db, plan.records)
        if plan.added:
            self._insert(db, list(plan.added.values()), numbers, now, by)
        if linked:
            self._link(db, linked)
        self._last_job = uid + len(plan.added)
        if self._queue is not None:  # many jobs may be added at once
            for job in plan.jobs:
                self._add_if_due(job)
        if plan.skipped:
            self._write_skips(db, plan.skipped)
        return plan.edits

    def _find(self, db: sqlite3.Connection, changes: Sequence[Change]) -> tuple[dict[tuple[str, str], Job], int]:
        """Return the jobs of *changes* that exist, and the highest number that a job ever had."""
        number = self._last_number(db, LAST_JOB) if self._last_job is None else self._last_job
        if len(changes) == 1:  # three times as fast
            name = changes[0].namespace, changes[0].id
            may_exist = not changes[0].adds or db.execute(NAME_EXISTS, name).fetchone()
            job = self._find_job(db, *name, None) if may_exist else None
            return {} if job is None else {name: job}, number
        ids: dict[str, list[str]] = {}
        for change in changes:
            ids.setdefault(change.namespace, []).append(change.id)
        rows = db.execute(FIND_JOBS, (json.dumps(ids),)).fetchall()
        jobs = self._jobs(db, rows, None).values()
        return {(job.namespace, job.id): job for job in jobs}, number

    def _insert(
        self, db: sqlite3.Connection, jobs: Sequence[Job], numbers: dict[str, int], now: Micros, by: Actor
    ) -> None:
        """Write new jobs with consecutive numbers, and their first changes."""
        for handler in {job.handler for job in jobs}:
            self._number_of(db, handler, numbers)
        for job in jobs:
            self._remember(job)
        last = jobs[0].uid - 1
        offset = self._number_of_last_change(db) - last  # from the number of a job to that of its first change
        INSERT_NEW_JOB.all(db, ((*description_values(job), offset + job.uid) for job in jobs))
        INSERT_STATE.all(db, ((job.uid, *narrow_values(job, numbers[job.handler])) for job in jobs))
        db.execute(RECORD_ADDITIONS, (offset, now, by.name, by.via, last))
        if disabled := [(offset + job.uid,) for job in jobs if job.state.phase is DISABLED]:
            db.executemany(NOTE_DISABLED, disabled)
        self._last_change = offset + jobs[-1].uid

    def review(
        self, db: sqlite3.Connection, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]
    ) -> int | None:
        rows = db.execute(REVIEW, (after, now, limit)).fetchall()
        changed = reviewed_all(self.decisions, self._jobs(db, rows, now).values(), now, decide)
        self._update_all(db, changed, {})
        for _, job in changed:
            self._add_if_due(job)
        return rows[-1][0] if len(rows) == limit else None

    def _update_all(self, db: sqlite3.Connection, changed: Iterable[tuple[Job, Job]], numbers: dict[str, int]) -> None:
        """Write changed jobs, each as it was and as it is. For *numbers*, see `_number_of`."""
        for before, job in changed:
            if job.state.running and not before.state.running:
                db.execute(MOVE_OWNER, (job.uid,))
                db.execute(FORGET_OWNER, (job.uid,))
            self._update_description(db, before, job)
            self._update_state(db, before, job, numbers)

    def _update_state(self, db: sqlite3.Connection, before: Job, job: Job, numbers: dict[str, int]) -> None:
        if job.description.unreadable:  # placeholders are not stored
            UPDATE_ONLY_STATE.one(db, *state_values(job.state), job.uid)
            return
        if job.handler == before.handler and job.priority is before.priority and job.group == before.group:
            UPDATE_REVISION.one(db, job.revision, *state_values(job.state), job.uid)
            return
        UPDATE_STATE.one(db, *narrow_values(job, self._number_of(db, job.handler, numbers)), job.uid)
        if before.handler != job.handler:
            self._forget_unused(db, {before.handler})
            numbers.pop(before.handler, None)

    def _update_description(self, db: sqlite3.Connection, before: Job, job: Job) -> None:
        if job.revision == before.revision:  # only its state changes; unreadable columns stay unchanged
            db.execute(UPDATE_TIME, (job.updated, job.uid))
            self._remembered.pop(job.uid)
        else:
            UPDATE_JOB.one(db, *edited_values(job))

    def remove(
        self,
        db: sqlite3.Connection,
        namespace: str,
        id: str,
        now: Micros,
        own_run: int | None = None,
        by: Actor = NO_ACTOR,
        revision: int | None = None,
    ) -> Job | None:
        job = self._find_job(db, namespace, id)
        if job is None:
            return None
        check_revision(job, revision)
        self._let_go(db, [job], now, [removal(job, now, by)])
        runs = {run for (run,) in db.execute(RUNS_OF_JOB, (job.uid, job.uid))}
        others = [run for run in runs if run != own_run]
        cancelled = sum(db.execute(CANCEL_RUN, (now, REMOVED, run, job.uid)).rowcount for run in others)
        self._count_ended(db, tally_of_cancelled(job.namespace, cancelled, now))
        db.execute(FREE_INSTANCES, (json.dumps(others),))
        if own_run in runs:
            db.execute(DISABLE, {"reason": REMOVED, "now": now, "own_run": own_run, "uid": job.uid})
        else:
            self._delete_removed(db, [job])
        return job

    def _let_go(
        self, db: sqlite3.Connection, jobs: Sequence[Job], now: Micros, records: Sequence[ChangeRecord]
    ) -> None:
        """Remove *jobs*, and write *records* of that. Cancel their backfills and the runs that no node has taken up."""
        uids = [(job.uid,) for job in jobs]
        db.executemany(REMOVE, [(now, job.uid) for job in jobs])
        db.executemany(UNLINK, uids)
        self._write_skips(db, each(jobs, lambda job: (job, rows_of_removal(self.decisions, job, now), now)))
        self._write_changes(db, records)
        for job in jobs:
            cancelled = db.execute(CANCEL_REQUESTED, (now, REMOVED, job.uid)).rowcount
            self._count_ended(db, tally_of_cancelled(job.namespace, cancelled, now))
        db.executemany(FORGET_REQUESTED, uids)
        db.executemany(CANCEL_BACKFILLS, uids)
        db.executemany(FORGET_BACKFILLS, uids)

    def get(self, db: sqlite3.Connection, namespace: str, id: str) -> Job | None:
        return self._find_job(db, namespace, id)

    def list_jobs(self, db: sqlite3.Connection, wanted: JobFilter) -> list[Job]:
        where = conditions_of_jobs(wanted, PARAMETER)
        rows = db.execute(
            f"{EDITED} {where} ORDER BY s.next_run_at IS NULL, s.next_run_at, j.namespace, j.id LIMIT {where.next()}",
            (*where.values, -1 if wanted.limit is None or wanted.metadata else wanted.limit),
        ).fetchall()
        jobs = list(self._jobs(db, rows).values())
        if wanted.metadata:
            jobs = [job for job in jobs if has_metadata(job, wanted.metadata)][: wanted.limit]
        return jobs

    def output_of(self, db: sqlite3.Connection, run: int) -> str | None:
        row = db.execute("SELECT text FROM output WHERE run = ?", (run,)).fetchone()
        return None if row is None else shown_text(row[0])


def narrow_values(job: Job, handler: int) -> Row:
    """Return the columns of `NARROW_COLUMNS`. *handler* is the number of the job's handler."""
    key = group_key(job.namespace, job.group)
    return (job.revision, handler, job.priority.rank, job.id, key, *state_values(job.state))
