"""Upkeep: purge old rows, and disable jobs without a user."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from scheduler_async.jobs.job import Job
from scheduler_async.stores.codec import has_unreadable_state, state_values
from scheduler_async.stores.decisions import disabled_by
from scheduler_async.stores.sqlite.base import EDITED, SELECT_STATE, UPDATE_ONLY_STATE, WorkBase
from scheduler_async.timekeeping.instants import FIRST, Micros

OVERGROWN: Final = """
    SELECT value FROM json_each(:uids) WHERE EXISTS (SELECT 1 FROM run WHERE uid = value LIMIT 1 OFFSET :keep)
"""
# Runs from before the clock was set back are kept until their time has come again, so that they do not run twice.
OLD_RUNS: Final = """
    uid = :uid AND outcome IS NOT NULL AND scheduled_for <= :now
    AND id <= (SELECT id FROM run WHERE uid = :uid ORDER BY id DESC LIMIT 1 OFFSET :keep)
"""
# The time up to which rows are missing.
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
# Jobs with a run in progress are left for the next time.
PURGE_REMOVED: Final = """
    DELETE FROM job
     WHERE uid IN (SELECT uid
                     FROM job INDEXED BY job_removed
                    WHERE removed_at < ? AND NOT EXISTS (SELECT 1 FROM state WHERE state.uid = job.uid)
                 ORDER BY removed_at
                    LIMIT ?)
"""


class UpkeepWork(WorkBase):
    """The transactions of upkeep. For their purpose, see `Store`."""

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

    def purge_removed(self, db: sqlite3.Connection, before: Micros, limit: int) -> int:
        return db.execute(PURGE_REMOVED, (before, limit)).rowcount

    def purge_disabled(self, db: sqlite3.Connection, before: Micros, limit: int) -> list[Job]:
        rows = db.execute(
            f"{SELECT_STATE} FROM state s WHERE s.phase = 'disabled' AND s.activity = 'idle' AND s.disabled_at < ?"
            " ORDER BY s.disabled_at",
            (before,),
        )
        jobs: list[Job] = []
        while len(jobs) < limit and (some := rows.fetchmany(limit)):  # unreadable rows do not hide other jobs
            found = self._jobs(db, some).values()
            jobs += [job for job in found if not has_unreadable_state(job)][: limit - len(jobs)]
        db.executemany("DELETE FROM job WHERE uid = ?", [(job.uid,) for job in jobs])
        self._forget_removed(db, jobs)
        return jobs
