"""Requests between processes: start a run, or cancel one; and what runs report while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, cancelled_on_request
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.codec import has_unreadable_state, refuse_stand_ins, refuse_unreadable_state
from scheduler_async.stores.decisions import claimed_by_hand, is_running, never_begun
from scheduler_async.stores.messages import AlreadyRequested, Cancellation, ClaimTerms, NodeLost, Report
from scheduler_async.stores.postgres.base import FREE, INSERT_REQUEST, NOTE_UNUSUAL, SELECT_STATE, WIDTH, free_values
from scheduler_async.stores.postgres.bulk_writes import write_rows
from scheduler_async.stores.postgres.claims import HAVE_OWNERS, NEW_RUN
from scheduler_async.stores.postgres.endings import (
    FORGET_REQUESTS,
    INSERT_TEXTS,
    WRITE_PROGRESS,
    EndingWork,
)
from scheduler_async.stores.postgres.history import FORGET_OUTDATED
from scheduler_async.stores.postgres.rates import GROUP_LOCK
from scheduler_async.stores.postgres.texts import kept, maybe_kept, original
from scheduler_async.stores.run_codec import tally_of_cancelled, tally_of_progress
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

WAITING_RUNS: Final = "SELECT run FROM request WHERE kind = 'start' AND uid = $1 ORDER BY run"
# Whether another run of a job may start, as `has_room` decides. The policy may be damaged.
HAS_ROOM: Final = """
    CASE WHEN s.running = 0 THEN s.activity = 'idle'
         ELSE s.running < (SELECT coalesce(substring(j.policy FROM '"max_instances":([0-9]{1,18})')::bigint, 1)
                             FROM job j
                            WHERE j.uid = s.uid) END
"""
INSERT_WAITING: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, payload, origin)
    VALUES ($1, $2, $3, 1, 'manual', $3, $4, $1)
"""
REQUESTED: Final = """
    FROM request q
    JOIN state s ON s.uid = q.uid
    JOIN handler h ON h.number = s.handler
    JOIN run r ON r.id = q.run AND r.outcome IS NULL
   WHERE q.kind = 'start' AND ($1::text[] IS NULL OR h.name = ANY($1))
"""
# A locked row belongs to another node that takes the request, or to an edit that ends soon.
LOCK_REQUESTED: Final = f"""
    {SELECT_STATE}, q.run, r.payload, r.scheduled_for, r.attempt, r.origin
    {REQUESTED} AND {HAS_ROOM} AND q.run > $3
ORDER BY q.run
   LIMIT $2
     FOR UPDATE OF q, s SKIP LOCKED
"""
ARE_ANY_REQUESTED: Final = "SELECT EXISTS (SELECT FROM request WHERE kind = 'start')"
ARE_REQUESTED: Final = f"SELECT EXISTS (SELECT {REQUESTED})"
TAKE: Final = """
    WITH runs AS (UPDATE run SET claimed_at = $5, started_at = $6, node = $2, payload = $8 WHERE id = $4),
         requests AS (DELETE FROM request WHERE run = $4),
         states AS (UPDATE state
                       SET activity = $7, last_run_at = $5, run = $4, node = $1, touched = false
                     WHERE uid = $3)
    SELECT nextval('activity')
"""
# The same for a job that may have several runs. Its state is written separately.
TAKE_RUN: Final = """
    WITH requests AS (DELETE FROM request WHERE run = $4)
    UPDATE run SET claimed_at = $2, started_at = $3, node = $1, payload = $5 WHERE id = $4
"""
FIND_RUN: Final = "SELECT uid FROM run WHERE id = $1"
LOCK_OWNER: Final = "SELECT run FROM state WHERE uid = $1 FOR UPDATE"
CANCEL_WAITING: Final = f"""
    WITH requests AS (DELETE FROM request WHERE run = $1),
         runs AS (UPDATE run SET outcome = 'cancelled', finished_at = $2, error = $3, reason = $4
                   WHERE id = $1
               RETURNING id, outcome, uid),
         noted AS ({NOTE_UNUSUAL})
    SELECT j.namespace FROM runs JOIN job j USING (uid)
"""
SELECT_CANCELS: Final = """
    SELECT q.run, q.reason
      FROM request q JOIN state s ON s.uid = q.uid AND s.run = q.run
     WHERE q.kind = 'cancel' AND s.node = $1
 UNION ALL
    SELECT q.run, q.reason FROM request q JOIN instance i ON i.run = q.run WHERE q.kind = 'cancel' AND i.node = $1
"""
NAMESPACES_OF: Final = "SELECT DISTINCT j.namespace FROM run r JOIN job j USING (uid) WHERE r.id = ANY($1::bigint[])"
# A run that is being recorded is left alone: its ending has the last word, and must not wait.
LOCK_REPORTED: Final = """
    SELECT id FROM run WHERE id = ANY($1::bigint[]) AND outcome IS NULL ORDER BY id FOR UPDATE SKIP LOCKED
"""


class RequestWork(EndingWork):
    """The transactions of requests. For their purpose, see `Store`."""

    async def request_start(
        self, db: Connection, namespace: str, id: str, payload_json: str | None, now: Micros, by: Actor = NO_ACTOR
    ) -> int | Job | AlreadyRequested | None:
        job = await self._lock(db, namespace, id, now)
        if job is None or is_running(job := await self._recounted(db, job), now):
            return job
        waiting = [run for (run,) in await db.fetch(WAITING_RUNS, job.uid)]
        if waiting and job.state.running + len(waiting) >= job.max_instances:
            return AlreadyRequested(waiting[0])
        refuse_unreadable_state(job)
        refuse_stand_ins(job)
        run = int(await db.fetchval(NEW_RUN))
        await db.execute(INSERT_WAITING, run, job.uid, now, maybe_kept(payload_json))
        await db.execute(INSERT_REQUEST, run, job.uid, "start", None, now)
        await self._write_changes(db, [plain_record(job.uid, now, Action.TRIGGER, by, run=run)])
        await self._tell_of_request(db)
        return run

    async def are_requested(self, db: Connection) -> bool:
        """Return whether a caller has asked for a run that no node has taken up."""
        return bool(await db.fetchval(ARE_ANY_REQUESTED))

    async def claim_requested(self, db: Connection, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        name = await db.fetchval("SELECT name FROM node WHERE number = $1 FOR KEY SHARE", terms.node)
        if name is None:
            raise NodeLost
        if terms.group_rates:
            await db.execute(GROUP_LOCK)
        handlers = None if terms.handlers is None else list(terms.handlers)
        runs: list[ClaimedRun] = []
        last = 0
        while rows := await db.fetch(LOCK_REQUESTED, handlers, terms.limit - len(runs), last):
            last = rows[-1][WIDTH]  # unreadable jobs do not hide other ones
            jobs = await self._jobs(db, [row[:WIDTH] for row in rows], now)
            for row in rows:
                run_id, payload, *requested = row[WIDTH:]
                job = jobs.get(row[0])
                if job is None or has_unreadable_state(job) or job.description.unreadable:
                    continue
                if not has_room(job := await self._recounted(db, job)):  # another run has just taken the last one
                    continue
                queued = terms.slots is not None and len(runs) >= terms.slots
                payload_json = original(payload)
                run = claimed_by_hand(job, run_id, payload_json, now, queued=queued, requested=(*requested,))
                began = None if queued else now
                payload = kept(run.payload_json)
                if run.is_instance:
                    await db.execute(TAKE_RUN, name, now, began, run_id, payload)
                    await write_rows(db, FREE, [free_values(run.job)])
                    await self._add_instances(db, [run], terms.node)
                else:
                    activity = run.job.state.activity._value_
                    await db.execute(TAKE, terms.node, name, run.uid, run_id, now, began, activity, payload)
                    self.counted += 1
                runs.append(run)
                jobs[run.uid] = run.job
        await self._count_starts(db, runs, terms.group_rates, now)
        return runs, bool(await db.fetchval(ARE_REQUESTED, handlers))

    async def request_cancel(
        self, db: Connection, run: int, reason: str | None, now: Micros, by: Actor = NO_ACTOR
    ) -> Cancellation:
        await db.execute(FORGET_OUTDATED)
        uid = await db.fetchval(FIND_RUN, run)
        if uid is None:
            return Cancellation.UNKNOWN
        claimed = await db.fetchval(LOCK_OWNER, uid) == run or bool(await db.fetch(HAVE_OWNERS, [run]))
        # After the lock: the run may have ended meanwhile, and then its row may be gone.
        found = await db.fetchrow("SELECT outcome FROM run WHERE id = $1", run)
        if found is None:
            return Cancellation.UNKNOWN
        if found[0] is not None:
            return Cancellation.ENDED
        await self._write_changes(db, [plain_record(uid, now, Action.CANCEL, by, reason, run=run)])
        if claimed:
            await db.execute(INSERT_REQUEST, run, uid, "cancel", maybe_kept(reason), now)
            await self._tell_of_request(db)
            return Cancellation.REQUESTED
        ending = cancelled_on_request(reason)
        told = maybe_kept(ending.error), maybe_kept(ending.reason)
        namespace = original(await db.fetchval(CANCEL_WAITING, run, now, *told))
        await self._count_ended(db, tally_of_cancelled(namespace or "", 1, now))
        await self._tell_of_request(db)
        return Cancellation.DONE

    async def release(self, db: Connection, runs: Sequence[ClaimedRun]) -> None:
        cancels = await self._cancels_of(db, [run.id for run in runs])
        of_backfills = [run for run in runs if run.is_backfill]
        if of_backfills:
            never = [never_begun(run, cancels[run.id]) for run in of_backfills if run.id in cancels]
            await self._finish_for_backfills(db, never, Rules())
            await self._release_for_backfills(db, [run for run in of_backfills if run.id not in cancels])
            runs = [run for run in runs if not run.is_backfill]
            cancels = {run.id: cancels[run.id] for run in runs if run.id in cancels}
        if cancels:  # these are not run again
            gone = [never_begun(run, cancels[run.id]) for run in runs if run.id in cancels]
            left = await self._finish_touched(db, gone, Rules())
            ours = [(left[item.run.id], item) for item in gone if item.run.id in left]  # other jobs may be removed
            await self._write_skips(db, [(one.job, one.skips, item.finished_at) for one, item in ours])
            await db.execute(FORGET_REQUESTS, list(cancels))
            await self._wake_successors(db, [item for _, item in ours], Rules())
        await super().release(db, [run for run in runs if run.id not in cancels])

    async def cancels(self, db: Connection, node: int) -> dict[int, str | None]:
        return {run: original(reason) for run, reason in await db.fetch(SELECT_CANCELS, node)}

    async def report(self, db: Connection, reports: Sequence[Report]) -> None:
        going_on = {run for (run,) in await db.fetch(LOCK_REPORTED, [report.run for report in reports])}
        progress = [
            (report.progress.share, maybe_kept(report.progress.message), report.run)
            for report in reports
            if report.run in going_on and report.progress is not None
        ]
        await write_rows(db, WRITE_PROGRESS, progress)
        if progress:
            found = await db.fetch(NAMESPACES_OF, [run for *_, run in progress])
            await self._count_ended(db, tally_of_progress([str(original(name)) for (name,) in found]))
        outputs = [
            (report.run, kept(report.output))
            for report in reports
            if report.run in going_on and report.output is not None
        ]
        await write_rows(db, INSERT_TEXTS["output"], outputs)
