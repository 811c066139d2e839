"""The statements of a copy, which transfer whole rows in slices."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from scheduler_async.jobs.job import Job
from scheduler_async.stores.change_codec import read_change_to_copy
from scheduler_async.stores.codec import description_values, edited_values
from scheduler_async.stores.columns import DESCRIPTION_TYPES, PLACE
from scheduler_async.stores.copy_records import (
    ChangeCopy,
    ChangeTold,
    LeftOut,
    RuleOfCopy,
    Ruling,
    RunKey,
    RunRecord,
    missing_changes,
)
from scheduler_async.stores.decisions import linked_by_copy, without_cycles
from scheduler_async.stores.run_codec import TEXTS_OF_RUNS, read_job_to_copy, read_run_record, tally_of_records
from scheduler_async.stores.sqlite.base import LAST_RUN, STATE_COLUMNS
from scheduler_async.stores.sqlite.bulk_writes import inserting
from scheduler_async.stores.sqlite.jobs import (
    INSERT_JOB,
    INSERT_STATE,
    LAST_JOB,
    UPDATE_JOB,
    UPDATE_STATE,
    narrow_values,
)
from scheduler_async.stores.sqlite.successors import SuccessorWork

SELECT_RECORD: Final = f"SELECT {', '.join(f'j.{name}' for name in DESCRIPTION_TYPES)}, {STATE_COLUMNS}"

READ_JOBS: Final = f"""
    {SELECT_RECORD}
      FROM job j LEFT JOIN state s ON s.uid = j.uid
     WHERE j.uid > ? AND j.removed_at IS NULL
  ORDER BY j.uid
     LIMIT ?
"""
FIND_RECORDS: Final = f"""
    {SELECT_RECORD}
      FROM json_each(?) n
      JOIN job j ON j.namespace = json_extract(n.value, '$[0]') AND j.id = json_extract(n.value, '$[1]')
       AND j.removed_at IS NULL
 LEFT JOIN state s ON s.uid = j.uid
"""
# In the order of `RunRecord`.
READ_RUNS: Final = """
    SELECT r.id, j.namespace, j.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at, r.finished_at,
           r.outcome, r.reason, r.missed, r.error, r.message, r.exit_code, r.node, r.payload, r.result, r.progress,
           r.progress_message, o.text, t.text
      FROM run r CROSS JOIN job j ON j.uid = r.uid
      LEFT JOIN output o ON o.run = r.id
      LEFT JOIN traceback t ON t.run = r.id
     WHERE r.id > ? AND r.outcome IS NOT NULL AND j.removed_at IS NULL
  ORDER BY r.id
     LIMIT ?
"""
COUNT: Final = """
    SELECT (SELECT count(*) FROM job WHERE removed_at IS NULL),
           (SELECT count(*) FROM run WHERE outcome IS NOT NULL)
           - (SELECT count(*)
                FROM job j INDEXED BY job_removed JOIN run r USING (uid)
               WHERE j.removed_at IS NOT NULL AND r.outcome IS NOT NULL)
"""
FIND_UIDS: Final = """
    SELECT j.namespace, j.id, j.uid
      FROM json_each(?) n
      JOIN job j ON j.namespace = json_extract(n.value, '$[0]') AND j.id = json_extract(n.value, '$[1]')
       AND j.removed_at IS NULL
"""
# An attempt at an occurrence has one row, whichever node made it.
FIND_ATTEMPT: Final = """
    SELECT id
      FROM run INDEXED BY run_once
     WHERE uid = ? AND scheduled_for = ? AND attempt = ? AND attempt > 0 AND trigger <> 'manual'
"""
FIND_OTHER: Final = """
    SELECT id
      FROM run INDEXED BY run_beside
     WHERE uid = ? AND scheduled_for = ? AND attempt = ? AND (attempt = 0 OR trigger = 'manual')
       AND trigger = ? AND claimed_at = ?
"""
INSERT_RUN: Final = inserting(
    "run",
    *("id", "uid", "scheduled_for", "attempt", "trigger", "claimed_at", "started_at", "finished_at"),
    *("outcome", "reason", "missed", "error", "message", "exit_code", "node"),
    *("payload", "result", "progress", "progress_message"),
)
# With the run that a trigger or a cancellation names. A change of a removed job is looked at, and left out.
READ_CHANGES: Final = """
    SELECT c.number, j.namespace, j.id, c.at, c.action, c.actor, c.via, c.reason, c.before, c.after,
           r.scheduled_for, r.attempt, r.trigger, r.claimed_at, j.removed_at
      FROM change c
      LEFT JOIN job j ON j.uid = c.uid
      LEFT JOIN run r ON c.after GLOB '{"run":[0-9]*}' AND r.id = CAST(substr(c.after, 8) AS INTEGER) AND r.uid = c.uid
     WHERE c.number > ?
  ORDER BY c.number
     LIMIT ?
"""
LAST_CHANGE_OF: Final = "SELECT last_change FROM job WHERE uid = ?"
SELECT_CHANGE: Final = "SELECT at, action, actor, via, reason, before, after, previous FROM change WHERE number = ?"


class CopyWork(SuccessorWork):
    """The transactions of copies. For their purpose, see `Store`."""

    def count(self, db: sqlite3.Connection) -> tuple[int, int]:
        jobs, runs = db.execute(COUNT).fetchone()
        return jobs, runs

    def read_jobs(self, db: sqlite3.Connection, after: int, limit: int) -> list[Job | LeftOut]:
        return [_record(row) for row in db.execute(READ_JOBS, (after, limit))]

    def read_runs(self, db: sqlite3.Connection, after: int, limit: int) -> list[RunRecord | LeftOut]:
        return [read_run_record(row) for row in db.execute(READ_RUNS, (after, limit))]

    def write_jobs(self, db: sqlite3.Connection, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        names = json.dumps([(job.namespace, job.id) for job in jobs])
        found = db.execute(FIND_RECORDS, (names,)).fetchall()
        here = {(row[PLACE["namespace"]], row[PLACE["id"]]): _record(row) for row in found}
        rulings = [rule(job, here.get((job.namespace, job.id))) for job in jobs]
        rulings = without_cycles(rulings, self._links_beyond(db, rulings), here)
        wanted = [ruling.job for ruling in rulings if ruling.verdict.writes]
        numbers: dict[str, int] = {}
        for job in wanted:
            self._number_of(db, job.handler, numbers)
        uid = self._last_number(db, LAST_JOB)
        self._last_job = None  # new jobs will change it
        added = [replace(job, uid=uid + place) for place, job in enumerate((job for job in wanted if not job.uid), 1)]
        updated = [job for job in wanted if job.uid]
        INSERT_JOB.all(db, map(description_values, added))
        INSERT_STATE.all(db, ((job.uid, *narrow_values(job, numbers[job.handler])) for job in added))
        UPDATE_JOB.all(db, map(edited_values, updated))
        UPDATE_STATE.all(db, ((*narrow_values(job, numbers[job.handler]), job.uid) for job in updated))
        self._link(db, linked_by_copy(added, updated, here))
        self._forget_unused(db, {job.handler for job in here.values() if isinstance(job, Job)})
        self._queue = None  # some of the jobs may be due already
        return rulings

    def write_runs(self, db: sqlite3.Connection, runs: Sequence[RunRecord]) -> int:
        names = json.dumps(sorted({(run.namespace, run.job_id) for run in runs}))
        uids = {(namespace, job_id): uid for namespace, job_id, uid in db.execute(FIND_UIDS, (names,))}
        number = self._last_number(db, LAST_RUN)
        rows: dict[tuple[object, ...], tuple[object, ...]] = {}
        added: list[RunRecord] = []
        texts: dict[str, list[tuple[int, str]]] = {table: [] for table in TEXTS_OF_RUNS}
        for run in runs:
            uid = uids.get((run.namespace, run.job_id))
            key = (uid, *(run.key[:2] if run.key.is_attempt else run.key))
            if uid is None or key in rows or _find(db, uid, run.key) is not None:
                continue
            number += 1
            rows[key] = (number, uid, *run[3:-2])
            added.append(run)
            for table, found in texts.items():
                if (text := getattr(run, table)) is not None:
                    found.append((number, text))
        INSERT_RUN.all(db, rows.values())
        for node in {run.node for run in added}:
            self._count_ended(db, tally_of_records(run for run in added if run.node == node), node or "")
        for table, found in texts.items():
            db.executemany(f"INSERT OR REPLACE INTO {table} (run, text) VALUES (?, ?)", found)
        return len(rows)

    def read_changes(self, db: sqlite3.Connection, after: int, limit: int) -> tuple[list[ChangeCopy], int | None]:
        rows = db.execute(READ_CHANGES, (after, limit)).fetchall()
        found = [read_change_to_copy(row[:-5], row[-5:-1]) for row in rows if row[-1] is None and row[1] is not None]
        return [change for change in found if isinstance(change, ChangeCopy)], rows[-1][0] if rows else None

    def write_changes(self, db: sqlite3.Connection, changes: Sequence[ChangeCopy]) -> int:
        names = json.dumps(sorted({(change.namespace, change.job_id) for change in changes}))
        uids = {(namespace, job_id): uid for namespace, job_id, uid in db.execute(FIND_UIDS, (names,))}
        ours = [(uid, change) for change in changes if (uid := uids.get((change.namespace, change.job_id))) is not None]
        wanted = [
            (uid, change.told(None if change.run is None else _find(db, uid, change.run))) for uid, change in ours
        ]
        missing = missing_changes(wanted, {uid: self._latest_changes(db, uid) for uid in uids.values()})
        for uid, told in missing:
            self._write_changes(db, [(uid, *told)])
            db.execute("UPDATE job SET last_change = ? WHERE uid = ?", (self._number_of_last_change(db), uid))
        return len(missing)

    def _latest_changes(self, db: sqlite3.Connection, uid: int) -> list[ChangeTold]:
        """Return the last changes of a job, newest first, as far as they have the same time."""
        found: list[ChangeTold] = []
        (number,) = db.execute(LAST_CHANGE_OF, (uid,)).fetchone()
        while number is not None and (row := db.execute(SELECT_CHANGE, (number,)).fetchone()) is not None:
            *told, previous = row
            if found and told[0] != found[0][0]:
                break
            found.append((told[0], told[1], told[2], told[3], told[4], told[5], told[6]))
            number = previous if previous is not None and previous < number else None
        return found


def _find(db: sqlite3.Connection, uid: int, run: RunKey) -> int | None:
    """Return the number of a run of a job."""
    query, key = (FIND_ATTEMPT, run[:2]) if run.is_attempt else (FIND_OTHER, run)
    found = db.execute(query, (uid, *key)).fetchone()
    return None if found is None else int(found[0])


def _record(row: tuple[object, ...]) -> Job | LeftOut:
    width = len(DESCRIPTION_TYPES)
    return read_job_to_copy(row[:width], row[width:])
