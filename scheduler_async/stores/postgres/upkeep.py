"""Upkeep: purge old rows, and disable jobs without a user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from scheduler_async.jobs.history import THE_SCHEDULER
from scheduler_async.jobs.job import Job
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import disablings, removal, resumptions
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.conditions import IS_UNUSUAL
from scheduler_async.stores.decisions import all_resumed, can_be_purged, disabled_by, each, is_readable
from scheduler_async.stores.messages import PURGED
from scheduler_async.stores.postgres.base import LOCK_STATES, SELECT_STATE, UPDATE_ONLY_STATES
from scheduler_async.stores.postgres.bulk_writes import write_rows
from scheduler_async.stores.postgres.jobs import JobWork
from scheduler_async.stores.postgres.schema import ENDED_AS_NUMBER
from scheduler_async.stores.postgres.texts import stored_state
from scheduler_async.timekeeping.instants import FIRST, SECOND, Micros

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
UNUSUAL: Final = IS_UNUSUAL.removeprefix("r.")
# Runs from before the clock was set back are kept until their time has come again, so that they do not run twice.
# `forgotten_until` records up to which time rows are missing.
PURGE_RUNS: Final = f"""
    WITH old AS (DELETE FROM run r
                  USING (SELECT c.uid, (SELECT id FROM run WHERE uid = c.uid ORDER BY id DESC LIMIT 1 OFFSET $2) AS last
                           FROM unnest($1::bigint[]) AS c (uid)) AS c
                  WHERE r.uid = c.uid AND r.id <= c.last AND r.outcome IS NOT NULL AND r.scheduled_for <= $3
              RETURNING r.id, r.uid, r.scheduled_for, r.attempt, r.trigger, r.outcome),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM old)),
         tracebacks AS (DELETE FROM traceback WHERE run IN (SELECT id FROM old)),
         noted AS (DELETE FROM unusual WHERE (outcome, run) IN (SELECT outcome, id FROM old WHERE {UNUSUAL}))
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
REMOVE: Final = f"""
    WITH runs AS (DELETE FROM run WHERE uid = ANY($1::bigint[]) RETURNING id, outcome),
         noted AS (DELETE FROM unusual WHERE (outcome, run) IN (SELECT outcome, id FROM runs WHERE {UNUSUAL})),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM runs)),
         tracebacks AS (DELETE FROM traceback WHERE run IN (SELECT id FROM runs)),
         requests AS (DELETE FROM request WHERE run IN (SELECT id FROM runs)),
         dues AS (DELETE FROM backfill_due
                   WHERE backfill IN (SELECT number FROM backfill WHERE uid = ANY($1::bigint[]))),
         changes AS (DELETE FROM change WHERE uid = ANY($1::bigint[])),
         backfills AS (DELETE FROM backfill WHERE uid = ANY($1::bigint[]))
  DELETE FROM job WHERE uid = ANY($1::bigint[])
"""
# Disabled jobs may have backfills.
LOCK_LONG_DISABLED: Final = f"""
    {SELECT_STATE}
      FROM state s
     WHERE s.phase = 'disabled' AND ({ENDED_AS_NUMBER}) = $4 AND s.disabled_at < $1 AND s.activity = 'idle'
       AND s.running = 0 AND NOT EXISTS (SELECT FROM instance i WHERE i.uid = s.uid)
       AND NOT EXISTS (SELECT FROM backfill b WHERE b.uid = s.uid AND b.state = 'running')
       AND s.uid <> ALL($3::bigint[])
  ORDER BY s.disabled_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""
WITH_PAUSE_END: Final = "FROM state s WHERE s.phase = 'paused' AND s.paused_until IS NOT NULL"
LOCK_PAUSED: Final = f"""
    {SELECT_STATE} {WITH_PAUSE_END} AND s.paused_until <= $1 AND s.uid <> ALL($3::bigint[])
  ORDER BY s.paused_until
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""
FIRST_PAUSE_END: Final = f"SELECT min(s.paused_until) {WITH_PAUSE_END}"
NEXT_PAUSE_END: Final = f"SELECT min(s.paused_until) {WITH_PAUSE_END} AND s.paused_until > $1"
# Another transaction holds these, and may release them.
ARE_LOCKED: Final = f"SELECT EXISTS (SELECT {WITH_PAUSE_END} AND s.paused_until <= $1 AND s.uid <> ALL($2::bigint[]))"


class UpkeepWork(JobWork):
    """The transactions of upkeep. For their purpose, see `Store`."""

    async def disable_without_user(self, db: Connection, reason: str, now: Micros) -> list[Job]:
        rows = await db.fetch(LOCK_WITHOUT_USER)
        found = [job for job in (await self._jobs(db, rows, None)).values() if not has_unreadable_state(job)]
        edits = each(found, lambda job: disabled_by(self.decisions, job, reason, now))
        if edits:
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(edit.job.state), edit.job.uid) for edit in edits])
            await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
            await self._write_changes(db, disablings((job, edit, now) for job, edit in zip(found, edits, strict=True)))
            await self._tell(db, [])
        return [edit.job for edit in edits]

    async def first_pause_end(self, db: Connection) -> Micros | None:
        """Return when the first pause ends, or has ended."""
        first: Micros | None = await db.fetchval(FIRST_PAUSE_END)
        return first

    async def resume_paused(self, db: Connection, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        looked_at: list[int] = []
        paused: list[Job] = []
        while rows := await db.fetch(LOCK_PAUSED, now, limit - len(paused), looked_at):
            looked_at += [row[0] for row in rows]  # unreadable jobs do not hide other ones
            paused += [job for job in (await self._jobs(db, rows)).values() if is_readable(job)]
        resumed = all_resumed(self.decisions, paused, now)
        edits = [edit for _, edit in resumed]
        if edits:
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(edit.state), edit.job.uid) for edit in edits])
            await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
            await self._write_changes(db, resumptions(resumed))
            await self._tell(db, [edit.job for edit in edits])
        if len(edits) == limit:
            return edits, now
        if await db.fetchval(ARE_LOCKED, now, looked_at):
            return edits, now + SECOND
        return edits, await db.fetchval(NEXT_PAUSE_END, now)

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

    async def purge_disabled(
        self,
        db: Connection,
        before: Micros,
        limit: int,
        now: Micros,
        *,
        ended: bool,
        spared: Collection[tuple[str, str]] = (),
    ) -> list[Job]:
        jobs: list[Job] = []
        remaining: list[int] = []
        while rows := await db.fetch(LOCK_LONG_DISABLED, before, limit, remaining, int(ended)):
            found = (await self._jobs(db, rows)).values()
            jobs = [job for job in found if can_be_purged(job, spared)]
            if jobs:
                break
            remaining += [row[0] for row in rows]  # they do not hide other jobs
        if jobs:
            await self._let_go(db, jobs, now, [removal(job, now, THE_SCHEDULER, PURGED[ended]) for job in jobs])
            await self._delete_removed(db, jobs)
        return jobs
