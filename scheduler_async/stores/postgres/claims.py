"""Claims: select due jobs in order, claim them, start or release them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.enums import Priority
from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.policies import USUAL
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.claiming import CLAIMED_FIELDS
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.rates import NO_RATES, Rates
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.claim_plan import ClaimPlan
from scheduler_async.stores.codec import refuse_stand_ins, refuse_unreadable_state
from scheduler_async.stores.columns import STATE_TYPES
from scheduler_async.stores.conditions import IS_UNUSUAL
from scheduler_async.stores.decisions import (
    after_repeat,
    are_due,
    can_be_claimed,
    claimed_by_hand,
    earliest_of,
    put_back_all,
)
from scheduler_async.stores.messages import MOST_UNHANDLED, OVERLAPPED, Claims, ClaimTerms, NodeLost
from scheduler_async.stores.postgres.base import (
    ADD_INSTANCES,
    DUE,
    FREE,
    FREE_INSTANCES,
    HAS_OWN_RUN,
    INSERT_REQUEST,
    LOCK_STATES,
    SELECT_STATE,
    WIDTH,
    free_values,
)
from scheduler_async.stores.postgres.bulk_writes import columns_of, rows_of, set_to, write_rows
from scheduler_async.stores.postgres.rates import GROUP_LOCK, RateWork
from scheduler_async.stores.postgres.successors import SuccessorWork
from scheduler_async.stores.postgres.texts import kept
from scheduler_async.stores.run_codec import tally_of_unskipped
from scheduler_async.timekeeping.instants import LAST, MINUTE, SECOND, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

RUNNING_BY_GROUP: Final = f"""
    SELECT group_key, count(*)
      FROM (SELECT s.group_key
              FROM state s
             WHERE s.activity <> 'idle' AND s.activity IN ('queued', 'running') AND s.group_key IS NOT NULL
               AND {HAS_OWN_RUN}
         UNION ALL
            SELECT s.group_key FROM instance i JOIN state s USING (uid) WHERE s.group_key IS NOT NULL) AS running
  GROUP BY group_key
"""
RANKS: Final = "unnest(ARRAY[{}]::bigint[])".format(", ".join(str(priority.rank) for priority in Priority))
# `DUE`, for a row with a known number. Written in the same way as `DUE`, it would let the planner choose the index of
# due jobs, which looks equally good for a table that was empty when it was analysed.
STILL_DUE: Final = "s.phase || '' = 'active' AND s.activity || '' = 'idle'"


def due_of(handlers: str, columns: str, condition: str, limit: str) -> str:
    """Return the first waiting jobs of each of these *handlers* and each priority, with one index lookup each."""
    return f"""
        {handlers}
        CROSS JOIN {RANKS} AS r (rank)
        CROSS JOIN LATERAL (SELECT {columns}
                              FROM state s
                             WHERE {DUE} AND s.handler = h.number AND s.rank = r.rank AND {condition}
                          ORDER BY s.next_run_at
                             LIMIT {limit}) AS d
    """


KNOWN: Final = "(SELECT number FROM handler WHERE $2::text[] IS NULL OR name = ANY($2)) AS h"
# At most this many handlers without a registration are considered: a tenant may use any number of names.
MOST_ABSENT: Final = 1_000
_ABSENT: Final = f"(SELECT number FROM handler WHERE name <> ALL($2) ORDER BY number LIMIT {MOST_ABSENT})"
MISSING: Final = f"{_ABSENT} AS h"
LOOKED_AT: Final = f"(SELECT number FROM {KNOWN} UNION ALL SELECT number FROM {_ABSENT} AS absent) AS h"
IN_LINE: Final = "s.uid, s.rank, s.last_run_at, s.id, s.group_key"


def newly_due(left_alone: str) -> str:
    """Return the condition for jobs that are due, except those whose numbers are *left_alone*."""
    return f"s.next_run_at <= $3 AND s.uid <> ALL({left_alone}::bigint[])"


def claim_due(
    candidates: str, lock: str = "FOR UPDATE SKIP LOCKED", also: str = "", node: str = "FOR KEY SHARE"
) -> str:
    """Return the statement of a claim, for these *candidates*.

    *lock* is how their rows are locked, and *node* a lock or a condition of the row of the node. *also* are further
    columns. Its result contains the name of the node, the next due time, jobs without a handler, and the claimed rows.

    Each row is locked separately, in the order of the queue. With a plain join, the planner would choose the order.

    $1 is the node, $2 the handlers, $3 the time, $4 the limit, $5 the number of candidates for each handler and
    priority, $6 the limit for counting the jobs that are due next. Without group limits, $7 are the jobs to leave
    alone.
    """
    missing = due_of(MISSING, "s.uid", "s.next_run_at <= $3", "1")
    to_come = due_of(LOOKED_AT, "s.next_run_at", f"s.next_run_at > $3 AND s.next_run_at <= {LAST}", "1")
    with_it = due_of(LOOKED_AT, "s.next_run_at", "s.next_run_at = (SELECT at FROM next)", "$6::bigint")
    return f"""
        WITH me AS MATERIALIZED (SELECT name FROM node WHERE number = $1 {node}),
             line AS MATERIALIZED ({candidates}),
             taken AS MATERIALIZED (
                 SELECT s.*, c.rank AS "1", c.last_run_at AS "2", c.id AS "3"
                   FROM (SELECT * FROM line WHERE fits ORDER BY rank, last_run_at NULLS FIRST, id) AS c
             CROSS JOIN LATERAL ({SELECT_STATE}{also}
                                   FROM state s
                                  WHERE s.uid = c.uid AND {STILL_DUE} AND s.next_run_at <= $3
                                        {lock}) AS s
                  WHERE EXISTS (SELECT FROM me)
                  LIMIT $4),
             next AS MATERIALIZED (SELECT min(d.next_run_at) AS at FROM {to_come})
      SELECT known.*, CASE WHEN t.uid IS NOT NULL THEN nextval('run_id') END, t.*
        FROM (SELECT (SELECT name FROM me) AS node,
                     (SELECT at FROM next) AS next_due,
                     (SELECT least(count(*), $6) FROM {with_it}) AS next_count,
                     ARRAY(SELECT d.uid FROM {missing} LIMIT {MOST_UNHANDLED}) AS unhandled,
                     (SELECT count(*) FROM line WHERE fits) AS waiting,
                     (SELECT count(*) FROM line) AS seen) AS known
   LEFT JOIN taken AS t ON true
    ORDER BY t."1", t."2" NULLS FIRST, t."3"
    """


IN_ANY_GROUP: Final = f"SELECT d.*, true AS fits FROM {due_of(KNOWN, IN_LINE, newly_due('$7'), '$5')}"
CLAIM_DUE: Final = claim_due(IN_ANY_GROUP)
# The name of a group, which follows the namespace in its key.
GROUP_NAME: Final = "substr({0}.group_key, strpos({0}.group_key, chr(10)) + 1)"
NOT_FULL: Final = "({0}.group_key IS NULL OR {0}.group_key <> ALL({1}::text[]) AND {name} <> ALL({2}::text[]))"


def not_full(row: str, keys: str, names: str) -> str:
    """Return the condition that a *row* is not in a group with one of these *keys* or *names*, which are full."""
    return NOT_FULL.format(row, keys, names, name=GROUP_NAME.format(row))


IN_ORDER: Final = "{0}.rank, {0}.last_run_at NULLS FIRST, {0}.id, {0}.uid"
# $7 are the keys of groups that have runs, $8 their free slots (null means any number). $9 are the names of groups with
# a limit, $10 their limits, and $11 the limit of all other groups. $12 and $13 are full groups, and $14 the jobs to
# leave alone.
FITTING: Final = f"""
    SELECT d.*, d.group_key IS NULL OR row_number() OVER (PARTITION BY d.group_key ORDER BY {IN_ORDER.format("d")})
                <= coalesce(CASE WHEN u.key IS NULL THEN coalesce(l.most, $11) ELSE u.room END,
                            9223372036854775807) AS fits
      FROM {due_of(KNOWN, IN_LINE, f"{newly_due('$14')} AND {not_full('s', '$12', '$13')}", "$5")}
 LEFT JOIN unnest($7::text[], $8::bigint[]) AS u (key, room) ON u.key = d.group_key
 LEFT JOIN unnest($9::text[], $10::bigint[]) AS l (name, most) ON l.name = {GROUP_NAME.format("d")}
"""
CLAIM_DUE_IN_GROUPS: Final = claim_due(FITTING)
# $15 are the names of groups with a limit across all namespaces, $16 their free slots.
CLAIM_DUE_IN_SHARED_GROUPS: Final = claim_due(
    f"""
    SELECT f.uid, f.rank, f.last_run_at, f.id, f.group_key,
           f.fits AND (e.name IS NULL
                       OR count(*) FILTER (WHERE f.fits) OVER (PARTITION BY e.name ORDER BY {IN_ORDER.format("f")})
                          <= e.room) AS fits
      FROM ({FITTING}) AS f
 LEFT JOIN unnest($15::text[], $16::bigint[]) AS e (name, room) ON e.name = {GROUP_NAME.format("f")}
    """
)
SELECT_STATES: Final = f"{SELECT_STATE} FROM state s WHERE s.uid = ANY($1::bigint[])"
COUNT_DUE: Final = (
    f"SELECT least(count(*), $2) FROM {due_of('handler AS h', 's.uid', 's.next_run_at <= $1', '$2::bigint')}"
)
# At most 100 jobs of each handler are considered: a whole full group may be due, and this query is frequent.
EARLIEST_DUE: Final = f"""
    SELECT min(d.next_run_at)
      FROM {due_of(KNOWN, "s.next_run_at, s.group_key", "s.next_run_at <= $1 AND s.uid <> ALL($5::bigint[])", "100")}
     WHERE {not_full("d", "$3", "$4")}
"""
CLAIM_TYPES: Final = {
    **dict.fromkeys(("uid", "run", "scheduled_for", "attempt"), "bigint"),
    "trigger": "text",
    **{name: STATE_TYPES[name] for name in CLAIMED_FIELDS},
}
CLAIMED: Final = (*CLAIMED_FIELDS, "run")
_claimed_state: Final = attrgetter("activity._value_", *CLAIMED_FIELDS[1:])
# `c` are the claims, as of the last run of each job, and $1 is the number of the node.
SET_CLAIMED: Final = f"""
    UPDATE state AS t SET {set_to(CLAIMED)}, node = $1, touched = false FROM c WHERE t.uid = c.uid
"""
INSERT_CLAIMED_RUNS: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, node)
    SELECT run, uid, scheduled_for, attempt, trigger, last_run_at,
           CASE WHEN activity = 'running' THEN last_run_at END, {node}
      FROM c
        ON CONFLICT DO NOTHING
 RETURNING id
"""
# $2 is the name of the node, and the rest are the claims. A counter announces claims and endings to other processes
# without a lock.
WRITE_CLAIMS: Final = f"""
    WITH c AS MATERIALIZED (SELECT * FROM {rows_of(CLAIM_TYPES, first=3)}),
         states AS ({SET_CLAIMED}),
         runs AS ({INSERT_CLAIMED_RUNS.format(node="$2")})
    SELECT nextval('activity'), array_agg(id) FROM runs
"""
RUN_TYPES: Final = {
    **dict.fromkeys(("id", "uid", "scheduled_for", "attempt"), "bigint"),
    "trigger": "text",
    "claimed_at": "bigint",
    "starts": "boolean",
}
# The rows of runs whose jobs may have several. $1 is the name of the node.
INSERT_RUNS: Final = f"""
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, node)
    SELECT id, uid, scheduled_for, attempt, trigger, claimed_at, CASE WHEN starts THEN claimed_at END, $1
      FROM {rows_of(RUN_TYPES, first=2)}
        ON CONFLICT DO NOTHING
 RETURNING id
"""
HAVE_OWNERS: Final = "SELECT run FROM instance WHERE run = ANY($1::bigint[])"
NEW_RUN: Final = "SELECT nextval('run_id')"
# Ask the owners of the oldest runs of these jobs to cancel them.
CANCEL_OLDEST: Final = """
    INSERT INTO request (run, uid, kind, reason, at)
    SELECT min(i.run), i.uid, 'cancel', $2, $3
      FROM instance i JOIN run r ON r.id = i.run AND r.uid = i.uid
     WHERE i.uid = ANY($1::bigint[]) AND i.backfill IS NULL
  GROUP BY i.uid
        ON CONFLICT DO NOTHING
"""
LATEST_RUN: Final = """
    SELECT max(scheduled_for)
      FROM run
     WHERE uid = $1 AND scheduled_for <= $2 AND attempt > 0 AND trigger <> 'manual'
"""
START: Final = """
    WITH states AS (UPDATE state SET activity = 'running' WHERE uid = ANY($1::bigint[])),
         runs AS (UPDATE run SET started_at = $3 WHERE id = ANY($2::bigint[]))
    SELECT nextval('activity')
"""
# The row of a manual run that waits for a node again.
WAIT_AGAIN: Final = """
    UPDATE run
       SET claimed_at = scheduled_for, started_at = NULL, node = NULL, origin = coalesce(origin, id)
     WHERE id = $1
"""
# The rows of the runs, and of the occurrences that the claims skipped.
DELETE_RUNS: Final = f"""
    WITH runs AS (DELETE FROM run r
                   USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS c (uid, id, claimed_at)
                   WHERE r.uid = c.uid
                     AND (r.id = c.id OR (r.id > c.id AND r.attempt = 0 AND r.claimed_at = c.claimed_at))
               RETURNING r.id, r.uid, r.attempt, r.outcome, r.finished_at, r.missed),
         noted AS (DELETE FROM unusual WHERE (outcome, run) IN (SELECT r.outcome, r.id FROM runs r WHERE {IS_UNUSUAL}))
    SELECT uid, finished_at, missed FROM runs WHERE attempt = 0
"""

# How many jobs of each handler and priority are sorted to find the first. Of more jobs, those that have been due for
# longest are considered first.
LEAST_WINDOW = 1000

# Jobs whose rows are locked by another transaction are tried again after this time.
SOON: Micros = SECOND // 20

# Due jobs that cannot be claimed are tried again after this time. At most this many are remembered.
LOOK_ANEW: Micros = MINUTE
MOST_LEFT_ALONE = 10_000


class ClaimWork(SuccessorWork, RateWork):
    """The transactions of claims. For their purpose, see `Store`."""

    def __init__(self, notify: Callable[[Micros | None, int], tuple[str, str]]) -> None:
        super().__init__(notify)
        self._left_alone: set[int] = set()  # known jobs that are due and cannot be claimed
        self._left_alone_since: Micros = 0

    async def running_by_group(self, db: Connection) -> dict[str, int]:
        return dict(await db.fetch(RUNNING_BY_GROUP))

    async def claim_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Claims:
        until = now + terms.ahead
        if not 0 <= now - self._left_alone_since < LOOK_ANEW or len(self._left_alone) > MOST_LEFT_ALONE:
            self._left_alone, self._left_alone_since = set(), now
        self._left_alone -= {job.uid for job in self.decisions.take_claimable()}
        if terms.limits_groups:
            await db.execute(GROUP_LOCK)  # before counting: a statement sees the rows as of its start
        started = await self._live_starts(db, now) if terms.group_rates else Counter()
        rows = await self._take_due(db, until, terms, started)
        node, next_due, next_count, unhandled, waiting, seen = rows[0][:6]
        if node is None:
            raise NodeLost
        taken = [row for row in rows if row[7] is not None]
        run_ids = sorted(row[6] for row in taken)
        jobs = await self._jobs(db, [row[7 : 7 + WIDTH] for row in taken], now)
        claimable = [job for job in jobs.values() if can_be_claimed(job, terms.handlers)]
        left_alone = {row[7] for row in taken} - {job.uid for job in claimable}
        self._left_alone |= left_alone
        plan = ClaimPlan(now, terms, self.decisions)
        if any(job.description.policy is not USUAL for job in claimable):
            counted = {job.uid: job for job in claimable}
            await self._recount(db, counted)
            claimable = list(counted.values())
        for job in claimable:
            plan.claim(job, run_ids[len(plan.runs)])
        self._left_alone |= {job.uid for job in plan.undecided}
        idle = plan.passed_over
        repeated: list[Job] = []
        runs = plan.runs
        if runs and len(written := await self._write_claims(db, runs, terms.node, node)) != len(runs):
            repeated = await self._go_on_from_repeated(db, [run for run in runs if run.id not in written], until)
            plan.drop({job.uid for job in repeated})
            idle = [*idle, *repeated]
        await write_rows(db, FREE, [free_values(job) for job in idle])
        await self._write_skips(db, plan.skipped)
        await self._write_changes(db, plan.changes)
        for (key, _), count in (await self._count_starts(db, plan.runs, terms.group_rates, now)).items():
            started[key] += count
        if plan.overlapped:
            await db.execute(CANCEL_OLDEST, plan.overlapped, OVERLAPPED, now)
            await self._tell_of_request(db)
        is_full = len(taken) >= terms.limit or bool(repeated) or bool(taken and seen >= _window(terms))
        is_full = is_full or are_due(plan.still_due, until)
        others = [job for uid, job in jobs.items() if uid in left_alone and job.enabled]
        others += (await self._jobs(db, await db.fetch(SELECT_STATES, unhandled))).values() if unhandled else ()
        soon = now + SOON
        if not is_full and waiting > len(taken) and (next_due is None or soon < next_due):
            next_due, next_count = soon, 1  # another transaction holds them, and may release them
        next_due, next_count = earliest_of((*idle, *plan.still_due), next_due, next_count)
        allowed = await self._next_start(db, started, terms.group_rates, now) if started else None
        if allowed is not None and (next_due is None or allowed < next_due):
            next_due, next_count = allowed, 1
        return Claims(
            runs=await self._with_causes(db, plan.runs),
            edits=plan.edits,
            unhandled=others,
            is_full=is_full,
            next_due=next_due,
            next_count=next_count,
            overlaps=bool(plan.overlapped),
        )

    async def _take_due(
        self, db: Connection, now: Micros, terms: ClaimTerms, started: Mapping[str, int]
    ) -> Sequence[Any]:
        """Claim the first due jobs, up to the limit and the limits of their groups."""
        handlers = None if terms.handlers is None else list(terms.handlers)
        values = terms.node, handlers, now, terms.limit, _window(terms), terms.count
        left_alone = list(self._left_alone)
        if not terms.limits_groups:
            rows: Sequence[Any] = await db.fetch(CLAIM_DUE, *values, left_alone)
            return rows
        rooms = terms.rooms(await self.running_by_group(db) if terms.limits_running else {}, started)
        within = *columns_of(rooms.in_use.items(), 2), *columns_of(rooms.own.items(), 2), rooms.limit, *rooms.full
        if not rooms.shared:
            rows = await db.fetch(CLAIM_DUE_IN_GROUPS, *values, *within, left_alone)
        else:
            shared = columns_of(rooms.shared.items(), 2)
            rows = await db.fetch(CLAIM_DUE_IN_SHARED_GROUPS, *values, *within, left_alone, *shared)
        return rows

    async def _write_claims(self, db: Connection, runs: Sequence[ClaimedRun], node: int, name: str) -> set[int]:
        """Mark jobs as claimed, and write the rows of their runs. Return the ids of new rows."""
        several = [run for run in runs if run.is_instance]
        if several:
            return await self._write_claims_of_several(db, runs, several, node, name)
        _, written = await db.fetchrow(WRITE_CLAIMS, node, name, *columns_of([claim_columns(run) for run in runs]))
        self.counted += 1
        return set(written or ())

    async def _write_claims_of_several(
        self, db: Connection, runs: Sequence[ClaimedRun], several: Sequence[ClaimedRun], node: int, name: str
    ) -> set[int]:
        """Do the same if *several* of the runs belong to jobs that may have more than one."""
        others = [run for run in runs if not run.is_instance]
        written = await self._write_claims(db, others, node, name) if others else set()
        rows = columns_of([inserted_values(run) for run in several])
        new = {run for (run,) in await db.fetch(INSERT_RUNS, name, *rows)}
        await write_rows(db, FREE, [free_values(run.job) for run in several])
        await self._add_instances(db, [run for run in several if run.id in new], node)
        return written | new

    async def _add_instances(self, db: Connection, runs: Sequence[ClaimedRun], node: int) -> None:
        await db.execute(ADD_INSTANCES, node, [run.id for run in runs], [run.uid for run in runs])
        await db.execute("SELECT nextval('activity')")
        self.counted += 1

    async def _go_on_from_repeated(self, db: Connection, runs: Sequence[ClaimedRun], now: Micros) -> list[Job]:
        """Return the next state of jobs whose occurrences already ran before the clock was set back."""
        return [after_repeat(run, await db.fetchval(LATEST_RUN, run.uid, now), now) for run in runs]

    async def count_due(self, db: Connection, now: Micros, most: int) -> int:
        return int(await db.fetchval(COUNT_DUE, now, most))

    async def earliest_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Micros | None:
        started = await self._live_starts(db, now) if terms.group_rates else Counter()
        rooms = terms.rooms(await self.running_by_group(db) if terms.limits_running else {}, started)
        handlers = None if terms.handlers is None else list(terms.handlers)
        at = await db.fetchval(EARLIEST_DUE, now, handlers, *rooms.full, list(self._left_alone))
        return None if at is None else int(at)

    async def claim_one(
        self,
        db: Connection,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
        by: Actor = NO_ACTOR,
        rates: Rates = NO_RATES,
    ) -> ClaimedRun | Job | None:
        if rates:
            await db.execute(GROUP_LOCK)
        name = await db.fetchval("SELECT name FROM node WHERE number = $1 FOR KEY SHARE", node)
        if name is None:
            raise NodeLost
        job = await self._lock(db, namespace, id, now)
        if job is None or not has_room(job := await self._recounted(db, job)):
            return job
        refuse_unreadable_state(job)
        refuse_stand_ins(job)
        run = claimed_by_hand(job, await db.fetchval(NEW_RUN), payload_json, now, queued=queued)
        await self._write_claims(db, [run], node, name)
        await self._write_changes(db, [plain_record(job.uid, now, Action.TRIGGER, by, run=run.id)])
        await self._count_starts(db, [run], rates, now)
        await db.execute("UPDATE run SET payload = $2 WHERE id = $1", run.id, kept(run.payload_json))
        return run

    async def start(self, db: Connection, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        held = {row[WIDTH] for row in await db.fetch(LOCK_STATES, [run.uid for run in runs])}
        ours = {run.id: run.uid for run in runs if run.id in held}
        instances = {run for (run,) in await db.fetch(HAVE_OWNERS, [run.id for run in runs if run.id not in held])}
        if ours or instances:
            await db.execute(START, list(ours.values()), [*ours, *instances], now)
            self.counted += 1
        return ours.keys() | instances

    async def release(self, db: Connection, runs: Sequence[ClaimedRun]) -> None:
        # Read the current jobs, which may have been edited since the claim.
        jobs = await self._claimed_by(db, runs, None)
        ours = [run for run in runs if run.id in jobs]
        undone = put_back_all(self.decisions, jobs, ours)
        freed = list({job.uid: job for job, _, _ in undone}.values())
        if freed:
            await db.execute(FREE, *columns_of([free_values(job) for job in freed]))
            await db.execute(FREE_INSTANCES, [run.id for run in ours])
            await self._delete_removed(db, freed)
            gone = [(run.uid, run.id, run.claimed_at) for run in ours if not run.waits_if_given_back]
            rows = await db.fetch(DELETE_RUNS, *columns_of(gone, 3))
            namespaces = {run.uid: run.job.namespace for run in ours}
            unskipped = tally_of_unskipped([(namespaces[uid], at, missed) for uid, at, missed in rows])
            await self._count_ended(db, unskipped)
            await self._write_skips(db, undone)
            await self._tell(db, freed)
        waiting = [run for run in ours if run.waits_if_given_back]
        for run in waiting:
            await db.execute(WAIT_AGAIN, run.id)
            await db.execute(INSERT_REQUEST, run.id, run.uid, "start", None, run.scheduled_for)
        if waiting:
            await self._tell_of_request(db)


def inserted_values(run: ClaimedRun) -> tuple[Any, ...]:
    """Return the columns of `RUN_TYPES`."""
    trigger = run.trigger._value_
    return run.id, run.uid, run.scheduled_for, run.attempt, trigger, run.claimed_at, not run.is_queued


def _window(terms: ClaimTerms) -> int:
    return max(LEAST_WINDOW, 2 * terms.limit)


def claim_columns(run: ClaimedRun) -> tuple[Any, ...]:
    """Return the columns of `CLAIM_TYPES`."""
    attempt = run.scheduled_for, run.attempt, run.trigger._value_
    return (run.uid, run.id, *attempt, *_claimed_state(run.job.state))
