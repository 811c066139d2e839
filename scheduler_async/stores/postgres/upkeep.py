"""Upkeep: purge old rows, and disable jobs without a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from scheduler_async.jobs.job import Job
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.decisions import disabled_by
from scheduler_async.stores.postgres.base import LOCK_STATES, SELECT_STATE, UPDATE_ONLY_STATES, WorkBase
from scheduler_async.stores.postgres.bulk_writes import write_rows
from scheduler_async.stores.postgres.texts import stored_state
from scheduler_async.timekeeping.instants import FIRST, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

LOCK_WITHOUT_USER: Final = f"""
    {SELECT_STATE}
      FROM job j JOIN state s USING (uid)
     WHERE j.user_id IS NULL AND s.phase <> 'disabled'
  ORDER BY s.uid
       FOR UPDATE OF s
"""
OVERGROWN: Final = """
    SELECT c.uid
      FROM unnest($1::bigint[]) AS c (uid)
     WHERE EXISTS (SELECT FROM run WHERE uid = c.uid OFFSET $2)
"""
# Runs from before the clock was set back are kept until their time has come again, so that they do not run twice.
# `forgotten_until` records up to which time rows are missing.
PURGE_RUNS: Final = f"""
    WITH old AS (DELETE FROM run r
                  USING (SELECT c.uid, (SELECT id FROM run WHERE uid = c.uid ORDER BY id DESC LIMIT 1 OFFSET $2) AS last
                           FROM unnest($1::bigint[]) AS c (uid)) AS c
                  WHERE r.uid = c.uid AND r.id <= c.last AND r.outcome IS NOT NULL AND r.scheduled_for <= $3
              RETURNING r.id, r.uid, r.scheduled_for, r.attempt, r.trigger),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM old))
    UPDATE state
       SET touched = true, forgotten_until = greatest(forgotten_until, gone.at)
      FROM (SELECT uid, max(scheduled_for) AS at
              FROM old
             WHERE attempt > 0 AND trigger <> 'manual' AND scheduled_for >= {FIRST}
          GROUP BY uid) AS gone
     WHERE state.uid = gone.uid
"""
# Jobs with a run in progress are left for the next time.
LOCK_REMOVED: Final = """
    SELECT uid
      FROM job
     WHERE removed_at < $1 AND NOT EXISTS (SELECT FROM state WHERE state.uid = job.uid)
  ORDER BY removed_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""
REMOVE: Final = """
    WITH runs AS (DELETE FROM run WHERE uid = ANY($1::bigint[]) RETURNING id),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM runs)),
         states AS (DELETE FROM state WHERE uid = ANY($1::bigint[]))
  DELETE FROM job WHERE uid = ANY($1::bigint[])
"""
LOCK_LONG_DISABLED: Final = f"""
    {SELECT_STATE}
      FROM state s
     WHERE s.phase = 'disabled' AND s.activity = 'idle' AND s.disabled_at < $1 AND s.uid <> ALL($3::bigint[])
  ORDER BY s.disabled_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""


class UpkeepWork(WorkBase):
    """The transactions of upkeep. For their purpose, see `Store`."""

    async def disable_without_user(self, db: Connection, reason: str, now: Micros) -> list[Job]:
        rows = await db.fetch(LOCK_WITHOUT_USER)
        found = [job for job in (await self._jobs(db, rows, None)).values() if not has_unreadable_state(job)]
        edits = [disabled_by(job, reason, now) for job in found]
        if edits:
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(edit.job.state), edit.job.uid) for edit in edits])
            await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
            await self._tell(db, [])
        return [edit.job for edit in edits]

    async def overgrown(self, db: Connection, uids: Sequence[int], keep: int) -> list[int]:
        return [row[0] for row in await db.fetch(OVERGROWN, list(uids), keep)]

    async def purge_runs(self, db: Connection, uids: Sequence[int], keep: int, now: Micros) -> None:
        await db.execute(LOCK_STATES, list(uids))
        await db.execute(PURGE_RUNS, list(uids), keep, now)

    async def purge_removed(self, db: Connection, before: Micros, limit: int) -> int:
        uids = [uid for (uid,) in await db.fetch(LOCK_REMOVED, before, limit)]
        if uids:
            await db.execute(REMOVE, uids)
        return len(uids)

    async def purge_disabled(self, db: Connection, before: Micros, limit: int) -> list[Job]:
        jobs: list[Job] = []
        unreadable: list[int] = []
        while rows := await db.fetch(LOCK_LONG_DISABLED, before, limit, unreadable):
            found = (await self._jobs(db, rows)).values()
            jobs = [job for job in found if not has_unreadable_state(job)]
            if jobs:
                break
            unreadable += [row[0] for row in rows]  # they do not hide other jobs
        if jobs:
            await db.execute(REMOVE, [job.uid for job in jobs])
            await self._forget_removed(db, jobs)
        return jobs
