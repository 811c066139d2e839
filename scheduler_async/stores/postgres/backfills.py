"""Backfills: add, read and cancel them, claim their runs, and count how these end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.backfills import claimed_for_backfill, endings
from scheduler_async.rules.groups import NO_GROUP, group_key
from scheduler_async.stores.backfill_codec import read_backfill
from scheduler_async.stores.codec import has_unreadable_state, refuse_stand_ins
from scheduler_async.stores.messages import ClaimTerms, NodeLost
from scheduler_async.stores.postgres.base import FREE_INSTANCES, IS_INSTANCE_OF_NODE, SELECT_STATE, WIDTH
from scheduler_async.stores.postgres.bulk_writes import columns_of
from scheduler_async.stores.postgres.claims import INSERT_RUNS, SOON, ClaimWork, inserted_values
from scheduler_async.stores.postgres.rates import GROUP_LOCK
from scheduler_async.stores.postgres.texts import kept, maybe_kept, original
from scheduler_async.stores.unreadable import is_count
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

HAVE_SUCCEEDED: Final = """
    SELECT DISTINCT scheduled_for
      FROM run
     WHERE uid = $1 AND scheduled_for = ANY($2::bigint[]) AND attempt > 0 AND trigger <> 'manual'
       AND outcome IN ('success', 'noop')
"""
INSERT_BACKFILL: Final = """
    INSERT INTO backfill (uid, max_concurrent, payload, total, done, failed, state, at)
    VALUES ($1, $2, $3, $4, 0, 0, $5, $6)
 RETURNING number
"""
ADD_DUE: Final = """
    INSERT INTO backfill_due (backfill, scheduled_for) SELECT * FROM unnest($1::bigint[], $2::bigint[])
        ON CONFLICT DO NOTHING
"""
SELECT_BACKFILL: Final = """
    SELECT b.number, b.total, b.done, b.failed, b.state, j.id, j.namespace
      FROM backfill b JOIN job j USING (uid)
     WHERE b.number = $1
"""
ARE_RUNNING: Final = "SELECT EXISTS (SELECT FROM backfill WHERE state = 'running')"
# A paused job holds its backfills. A locked backfill belongs to another node, which takes some of it.
LOCK_RUNNING: Final = f"""
    {SELECT_STATE}, b.number, b.max_concurrent, b.payload
      FROM backfill b JOIN state s USING (uid) JOIN handler h ON h.number = s.handler
     WHERE b.state = 'running' AND s.phase <> 'paused' AND ($1::text[] IS NULL OR h.name = ANY($1))
       AND EXISTS (SELECT FROM backfill_due d WHERE d.backfill = b.number)
  ORDER BY b.number
       FOR UPDATE OF b SKIP LOCKED
"""
COUNT_RUNNING: Final = "SELECT backfill, count(*) FROM instance WHERE backfill = ANY($1::bigint[]) GROUP BY backfill"
TAKE_DUE: Final = f"""
    WITH due AS (SELECT scheduled_for
                   FROM backfill_due
                  WHERE backfill = $2 AND scheduled_for BETWEEN {FIRST} AND {LAST}
               ORDER BY scheduled_for
                  LIMIT $3),
         taken AS (DELETE FROM backfill_due
                    WHERE backfill = $2 AND scheduled_for IN (SELECT scheduled_for FROM due)
                RETURNING scheduled_for)
    SELECT t.scheduled_for,
           1 + coalesce((SELECT max(r.attempt)
                           FROM run r
                          WHERE r.uid = $1 AND r.scheduled_for = t.scheduled_for AND r.attempt > 0
                            AND r.trigger <> 'manual'), 0)
      FROM taken t
  ORDER BY t.scheduled_for
"""
NEW_RUNS: Final = "SELECT nextval('run_id') FROM generate_series(1, $1::int)"
ADD_INSTANCES: Final = """
    INSERT INTO instance (run, uid, node, backfill) SELECT run, $1, $2, $3 FROM unnest($4::bigint[]) AS c (run)
"""
BACKFILLS_OF: Final = """
    SELECT run, backfill FROM instance WHERE run = ANY($1::bigint[]) AND backfill IS NOT NULL ORDER BY run FOR UPDATE
"""
COUNT_INTERRUPTED: Final = """
    SELECT count(*)
      FROM run
     WHERE uid = $1 AND scheduled_for = $2 AND attempt > 0 AND trigger <> 'manual' AND outcome = 'interrupted'
"""
# Every transaction locks backfills before the owners and the rows of their runs.
LOCK_BACKFILLS: Final = """
    SELECT number, state
      FROM backfill
     WHERE number IN (SELECT backfill FROM instance WHERE run = ANY($1::bigint[]))
  ORDER BY number
       FOR UPDATE
"""
COUNT_ENDED: Final = "UPDATE backfill SET done = done + $2, failed = failed + $3 WHERE number = $1"
END: Final = """
    UPDATE backfill b
       SET state = 'done'
     WHERE b.number = ANY($1::bigint[]) AND b.state = 'running'
       AND NOT EXISTS (SELECT FROM backfill_due d WHERE d.backfill = b.number)
       AND NOT EXISTS (SELECT FROM instance i WHERE i.backfill = b.number)
"""
CANCEL: Final = "UPDATE backfill SET state = 'cancelled' WHERE number = $1 AND state = 'running' RETURNING number"
CANCEL_RUNS: Final = """
    INSERT INTO request (run, uid, kind, reason, at)
    SELECT run, uid, 'cancel', $2, $3 FROM instance WHERE backfill = $1
        ON CONFLICT DO NOTHING
"""
LOCK_BACKFILLS_OF_NODE: Final = f"""
    SELECT number
      FROM backfill
     WHERE number IN (SELECT i.backfill FROM instance i WHERE {IS_INSTANCE_OF_NODE})
  ORDER BY number
       FOR UPDATE
"""
LOCK_HELD_BY_BACKFILLS: Final = f"""
    {SELECT_STATE}, i.run, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM instance i
      JOIN state s USING (uid)
      JOIN run r ON r.id = i.run AND r.uid = i.uid AND r.outcome IS NULL
     WHERE {IS_INSTANCE_OF_NODE} AND i.backfill IS NOT NULL
  ORDER BY i.run
       FOR UPDATE OF i
"""


class BackfillWork(ClaimWork):
    """The transactions of backfills. For their purpose, see `Store`."""

    async def add_backfill(
        self,
        db: Connection,
        job: Job,
        occurrences: Sequence[Micros],
        payload_json: str | None,
        now: Micros,
        *,
        max_concurrent: int,
        again: bool,
    ) -> Backfill | None:
        current = await self._lock(db, job.namespace, job.id)
        if current is None or current.uid != job.uid:
            return None
        refuse_stand_ins(current)
        succeeded = set() if again else {at for (at,) in await db.fetch(HAVE_SUCCEEDED, job.uid, occurrences)}
        wanted = [at for at in occurrences if at not in succeeded]
        state = "running" if wanted else "done"
        values = job.uid, max_concurrent, maybe_kept(payload_json), len(wanted), state, now
        number = await db.fetchval(INSERT_BACKFILL, *values)
        await db.execute(ADD_DUE, [number] * len(wanted), wanted)
        await self._tell_of_request(db)
        return await self.get_backfill(db, number)

    async def get_backfill(self, db: Connection, number: int) -> Backfill | None:
        row = await db.fetchrow(SELECT_BACKFILL, number)
        if row is None:
            return None
        *told, job_id, namespace = row
        return read_backfill((*told, original(job_id), original(namespace)))

    async def cancel_backfill(self, db: Connection, number: int, reason: str, now: Micros) -> Backfill | None:
        if await db.fetchval(CANCEL, number) is not None:
            await db.execute("DELETE FROM backfill_due WHERE backfill = $1", number)
            await db.execute(CANCEL_RUNS, number, kept(reason), now)
            await self._tell_of_request(db)
        return await self.get_backfill(db, number)

    async def are_backfills(self, db: Connection) -> bool:
        """Return whether a backfill goes on."""
        return bool(await db.fetchval(ARE_RUNNING))

    async def claim_backfills(
        self, db: Connection, now: Micros, terms: ClaimTerms
    ) -> tuple[list[ClaimedRun], Micros | None]:
        name = await db.fetchval("SELECT name FROM node WHERE number = $1 FOR KEY SHARE", terms.node)
        if name is None:
            raise NodeLost
        if terms.limits_groups:
            await db.execute(GROUP_LOCK)
        handlers = None if terms.handlers is None else list(terms.handlers)
        rows = await db.fetch(LOCK_RUNNING, handlers)
        started = await self._live_starts(db, now) if terms.group_rates else Counter()
        rooms = terms.rooms(await self.running_by_group(db) if terms.limits_running else {}, started)
        is_held_up = are_repeated = False
        jobs = await self._jobs(db, [row[:WIDTH] for row in rows])
        running = dict(await db.fetch(COUNT_RUNNING, [row[WIDTH] for row in rows]))
        runs: list[ClaimedRun] = []
        for row in rows:
            job = jobs.get(row[0])
            number, most, payload = row[WIDTH:]
            is_sound = job is not None and not has_unreadable_state(job) and not job.description.unreadable
            if job is None or not is_sound or not is_count(most):
                continue
            key = group_key(job.namespace, job.group) or NO_GROUP
            room = int(min(terms.limit - len(runs), most - running.get(number, 0), rooms.of(key)))
            if room <= 0:
                is_held_up = is_held_up or rooms.of(key) <= 0
                continue
            wanted = await self._begin(db, job, (number, original(payload), room, len(runs)), now, terms)
            begun = await self._write_begun(db, wanted, number, name)
            are_repeated = are_repeated or len(begun) < len(wanted)
            rooms.take(key, len(begun))
            is_held_up = is_held_up or rooms.of(key) <= 0
            ids = [run.id for run in begun]
            if ids:
                await db.execute(ADD_INSTANCES, job.uid, terms.node, number, ids)
                if payload is not None:
                    await db.execute("UPDATE run SET payload = $2 WHERE id = ANY($1::bigint[])", ids, payload)
            runs += begun
        if runs:
            await db.execute("SELECT nextval('activity')")
            self.counted += 1
        for (key, _), count in (await self._count_starts(db, runs, terms.group_rates, now)).items():
            started[key] += count
        if are_repeated:
            return runs, now + SOON
        return runs, await self._next_start(db, started, terms.group_rates, now) if is_held_up and started else None

    async def _begin(
        self, db: Connection, job: Job, backfill: tuple[int, str | None, int, int], now: Micros, terms: ClaimTerms
    ) -> list[ClaimedRun]:
        """Take occurrences of a *backfill*: its number, its payload, how many, and how many runs precede them."""
        number, payload_json, room, before = backfill
        due: Sequence[Any] = await db.fetch(TAKE_DUE, job.uid, number, room)
        ids = sorted(run for (run,) in await db.fetch(NEW_RUNS, len(due)))
        slots = float("inf") if terms.slots is None else terms.slots
        return [
            claimed_for_backfill(job, ids[place], at, attempt, payload_json, now, queued=before + place >= slots)
            for place, (at, attempt) in enumerate(due)
        ]

    async def _write_begun(
        self, db: Connection, runs: Sequence[ClaimedRun], backfill: int, node: str
    ) -> list[ClaimedRun]:
        """Write the rows of *runs*, and return those that have one now.

        The others are due again. Another node has just claimed regular runs of their occurrences.
        """
        if not runs:
            return []
        rows = columns_of([inserted_values(run) for run in runs])
        written = {run for (run,) in await db.fetch(INSERT_RUNS, node, *rows)}
        repeated = [run.scheduled_for for run in runs if run.id not in written]
        await db.execute(ADD_DUE, [backfill] * len(repeated), repeated)
        return [run for run in runs if run.id in written]

    async def _end_for_backfills(self, db: Connection, ended: Sequence[EndedRun]) -> set[int]:
        """Count how runs of backfills ended. Return those of them that this node still owns."""
        if not ended:
            return set()
        ids = [item.run.id for item in ended]
        states = dict(await db.fetch(LOCK_BACKFILLS, ids))
        found = dict(await db.fetch(BACKFILLS_OF, ids))
        numbers = sorted(set(found.values()))
        running = {number for number, state in states.items() if state == "running"}
        interruptions = {item.run.id: await self._interruptions(db, item) for item in ended}
        told = endings(ended, found, running, interruptions)
        await db.execute(FREE_INSTANCES, list(found))
        await db.execute(ADD_DUE, [number for number, _ in told.again], [at for _, at in told.again])
        for number in numbers:
            await db.execute(COUNT_ENDED, number, told.done[number], told.failed[number])
        await db.execute(END, numbers)
        await self._delete_removed(
            db, [*{item.run.uid: item.run.job for item in ended if item.run.id in found}.values()]
        )
        return set(found)

    async def _interruptions(self, db: Connection, item: EndedRun) -> int:
        """Return how often processes have died with this occurrence, if this one has."""
        if item.ending.outcome is not Outcome.INTERRUPTED:
            return 0
        return int(await db.fetchval(COUNT_INTERRUPTED, item.run.uid, item.run.scheduled_for)) + 1

    async def _release_for_backfills(self, db: Connection, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims for backfills whose handlers never started."""
        ids = [run.id for run in runs]
        await db.execute(LOCK_BACKFILLS, ids)
        found = dict(await db.fetch(BACKFILLS_OF, ids))
        ours = [run for run in runs if run.id in found]
        await db.execute(ADD_DUE, [found[run.id] for run in ours], [run.scheduled_for for run in ours])
        await db.execute(FREE_INSTANCES, list(found))
        await db.execute("DELETE FROM run WHERE id = ANY($1::bigint[])", list(found))
        await self._delete_removed(db, [*{run.uid: run.job for run in ours}.values()])
