"""Upkeep: purge old rows, and disable jobs without a user."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from scheduler_async.jobs.history import THE_SCHEDULER
from scheduler_async.jobs.job import Job
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import disablings, removal, resumptions
from scheduler_async.stores.codec import has_unreadable_state, state_values
from scheduler_async.stores.conditions import HAS_ENDED
from scheduler_async.stores.decisions import all_resumed, can_be_purged, disabled_by, each, is_readable
from scheduler_async.stores.messages import PURGED
from scheduler_async.stores.sqlite.base import EDITED, SELECT_STATE, UPDATE_ONLY_STATE
from scheduler_async.stores.sqlite.history import chained
from scheduler_async.stores.sqlite.jobs import JobWork
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

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
WITH_PAUSE_END: Final = "FROM state s INDEXED BY state_paused WHERE s.phase = 'paused' AND s.paused_until IS NOT NULL"
PAUSED_UNTIL: Final = f"{SELECT_STATE} {WITH_PAUSE_END} AND s.paused_until <= ? ORDER BY s.paused_until"
FIRST_PAUSE_END: Final = f"SELECT min(s.paused_until) {WITH_PAUSE_END} AND s.paused_until <= {LAST}"
NEXT_PAUSE_END: Final = (
    f"SELECT min(s.paused_until) {WITH_PAUSE_END} AND s.paused_until > ? AND s.paused_until <= {LAST}"
)
# Jobs with a run in progress are left for the next time.
REMOVED_BEFORE: Final = """
    SELECT uid, last_change
      FROM job INDEXED BY job_removed
     WHERE removed_at < ? AND NOT EXISTS (SELECT 1 FROM state WHERE state.uid = job.uid)
  ORDER BY removed_at
     LIMIT ?
"""
PURGE_CHANGES_OF: Final = f"""
    {chained("SELECT value FROM json_each(?)")} DELETE FROM change WHERE number IN (SELECT number FROM chain)
"""
# Disabled jobs may have backfills.
LONG_DISABLED: Final = f"""
    {SELECT_STATE}
      FROM state s INDEXED BY state_disabled
     WHERE s.phase = 'disabled' AND ({HAS_ENDED}) = ? AND s.disabled_at < ? AND s.activity = 'idle' AND s.running = 0
       AND NOT EXISTS (SELECT 1 FROM instance i INDEXED BY instance_of_job WHERE i.uid = s.uid)
       AND NOT EXISTS (SELECT 1
                         FROM backfill b INDEXED BY backfill_of_job
                        WHERE b.uid = s.uid AND b.state = 'running')
  ORDER BY s.disabled_at
"""


class UpkeepWork(JobWork):
    """The transactions of upkeep. For their purpose, see `Store`."""

    def disable_without_user(self, db: sqlite3.Connection, reason: str, now: Micros) -> list[Job]:
        rows = db.execute(f"{EDITED} WHERE j.user_id IS NULL AND s.phase <> 'disabled'").fetchall()
        found = [job for job in self._jobs(db, rows, None).values() if not has_unreadable_state(job)]
        edits = each(found, lambda job: disabled_by(self.decisions, job, reason, now))
        UPDATE_ONLY_STATE.all(db, ((*state_values(edit.job.state), edit.job.uid) for edit in edits))
        self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
        self._write_changes(db, disablings((job, edit, now) for job, edit in zip(found, edits, strict=True)))
        return [edit.job for edit in edits]

    def first_pause_end(self, db: sqlite3.Connection) -> Micros | None:
        """Return when the first pause ends, or has ended."""
        first: Micros | None = db.execute(FIRST_PAUSE_END).fetchone()[0]
        return first

    def resume_paused(self, db: sqlite3.Connection, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        rows = db.execute(PAUSED_UNTIL, (now,))
        paused: list[Job] = []
        while len(paused) < limit and (some := rows.fetchmany(limit)):  # unreadable jobs do not hide other ones
            paused += [job for job in self._jobs(db, some).values() if is_readable(job)][: limit - len(paused)]
        rows.close()
        resumed = all_resumed(self.decisions, paused, now)
        edits = [edit for _, edit in resumed]
        UPDATE_ONLY_STATE.all(db, ((*state_values(edit.state), edit.job.uid) for edit in edits))
        self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
        self._write_changes(db, resumptions(resumed))
        for edit in edits:
            self._add_if_due(edit.job)
        (next_end,) = db.execute(NEXT_PAUSE_END, (now,)).fetchone()
        return edits, now if len(edits) == limit else next_end

    def overgrown(self, db: sqlite3.Connection, uids: Sequence[int], keep: int) -> list[int]:
        return [uid for (uid,) in db.execute(OVERGROWN, {"uids": json.dumps(uids), "keep": keep})]

    def purge_runs(self, db: sqlite3.Connection, uids: Sequence[int], keep: int, now: Micros) -> None:
        old = [{"uid": uid, "keep": keep, "now": now} for uid in self.overgrown(db, uids, keep)]
        db.executemany(NOTE_FORGOTTEN, old)
        db.executemany(PURGE_RUNS, old)

    def purge_removed(self, db: sqlite3.Connection, before: Micros, limit: int) -> int:
        found = db.execute(REMOVED_BEFORE, (before, limit)).fetchall()
        uids, changes = (json.dumps(values) for values in zip(*found, strict=True)) if found else ("[]", "[]")
        db.execute(PURGE_CHANGES_OF, (changes,))
        db.execute("DELETE FROM job WHERE uid IN (SELECT value FROM json_each(?))", (uids,))
        return len(found)

    def purge_disabled(
        self,
        db: sqlite3.Connection,
        before: Micros,
        limit: int,
        now: Micros,
        *,
        ended: bool,
        spared: Collection[tuple[str, str]] = (),
    ) -> list[Job]:
        rows = db.execute(LONG_DISABLED, (ended, before))
        jobs: list[Job] = []
        while len(jobs) < limit and (some := rows.fetchmany(limit)):  # rows that remain do not hide other jobs
            found = self._jobs(db, some).values()
            jobs += [job for job in found if can_be_purged(job, spared)][: limit - len(jobs)]
        rows.close()
        self._let_go(db, jobs, now, [removal(job, now, THE_SCHEDULER, PURGED[ended]) for job in jobs])
        self._delete_removed(db, jobs)
        return jobs
