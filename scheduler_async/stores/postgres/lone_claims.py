"""Claims of a few plain runs without a transaction of several statements: look first, then write what has not changed.

Most claims take one job. Two statements do for it what a transaction does with four: the first reads without locks,
the second locks the rows, compares their versions, and claims those that are as they were read. What another node has
claimed or changed in between is left out. A claim that is not plain, or of many jobs, is made in a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.policies import USUAL
from scheduler_async.schedules.patience import IN_TRANSACTION
from scheduler_async.stores.claim_plan import ClaimPlan
from scheduler_async.stores.decisions import can_be_claimed
from scheduler_async.stores.messages import Claims, ClaimTerms, NodeLost
from scheduler_async.stores.postgres.base import WIDTH
from scheduler_async.stores.postgres.bulk_writes import columns_of, rows_of
from scheduler_async.stores.postgres.claims import (
    CLAIM_TYPES,
    IN_ANY_GROUP,
    INSERT_CLAIMED_RUNS,
    SET_CLAIMED,
    SOON,
    ClaimWork,
    claim_columns,
    claim_due,
)
from scheduler_async.stores.postgres.schema import newest
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

# Nodes that look at the same time see the same jobs. Of more jobs than these, each locks some while the others skip
# them.
FEW = 8

# As `CLAIM_DUE`. The version of a row follows its columns. $8 is the version of the schema: it fails if that is newer.
LOOK: Final = claim_due(
    IN_ANY_GROUP,
    lock="",
    also=", s.xmin::text AS version",
    node="AND 1 / (SELECT number <= $8 FROM version)::int = 1",
)
SEEN_TYPES: Final = {**CLAIM_TYPES, "version": "text"}
# $1 is the node, and $2 the version of the schema. The rest are the claims, with the versions of the rows as they were
# read. Fails with a division by zero if the schema is newer, or if an occurrence has a run already.
CLAIM_SEEN: Final = f"""
    WITH me AS MATERIALIZED (SELECT name FROM node WHERE number = $1 FOR KEY SHARE),
         seen AS MATERIALIZED (SELECT * FROM {rows_of(SEEN_TYPES, first=3)}),
         c AS MATERIALIZED (
             SELECT seen.*
               FROM seen
         CROSS JOIN LATERAL (SELECT FROM state s
                              WHERE s.uid = seen.uid AND s.xmin::text = seen.version
                                FOR UPDATE SKIP LOCKED) AS s
              WHERE EXISTS (SELECT FROM me)),
         states AS ({SET_CLAIMED}),
         runs AS ({INSERT_CLAIMED_RUNS.format(node="(SELECT name FROM me)")})
    SELECT 1 / ((SELECT number <= $2 FROM version) AND (SELECT count(*) FROM runs) = (SELECT count(*) FROM c))::int,
           nextval('activity'), (SELECT name FROM me), ARRAY(SELECT run FROM c)
"""


class Look(NamedTuple):
    """The jobs that a node has seen, and what it would do with them."""

    plan: ClaimPlan
    versions: dict[int, str]
    next_due: Micros | None
    next_count: int


class LoneClaimWork(ClaimWork):
    """Two statements that claim a few jobs, each a transaction of its own."""

    _is_crowd = False  # whether the last claim was of many jobs: then the next one will be, too

    async def claim_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Claims:
        claims = await super().claim_due(db, now, terms)
        self._is_crowd = len(claims.runs) > FEW
        return claims

    async def look_for_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Look | None:
        """Return the plan of a claim, or None if a transaction has to make it."""
        if self._is_crowd or terms.limits_groups or self._left_alone:
            return None
        handlers = None if terms.handlers is None else list(terms.handlers)
        nothing: list[int] = []
        values = terms.node, handlers, now + terms.ahead, FEW + 1, FEW + 1, terms.count, nothing, newest()
        rows: Sequence[Any] = await db.fetch(LOOK, *values)
        node, next_due, next_count, unhandled, waiting, _, *_ = rows[0]
        if node is None:
            raise NodeLost
        self._is_crowd = waiting > FEW
        slots = FEW if terms.slots is None else terms.slots
        if unhandled or waiting > min(FEW, slots, terms.limit - 1):
            return None
        taken = [row for row in rows if row[7] is not None]
        inside = IN_TRANSACTION.set(True)  # a lock is held all the same
        try:
            jobs = await self._jobs(db, [row[7 : 7 + WIDTH] for row in taken], now)
        finally:
            IN_TRANSACTION.reset(inside)
        plan = ClaimPlan(now, terms, self.decisions)
        if not all(_is_plain(job) and can_be_claimed(job, terms.handlers) for job in jobs.values()):
            return None
        for job, run in zip(jobs.values(), sorted(row[6] for row in taken), strict=False):
            plan.claim(job, run)
        if len(plan.runs) != len(taken) or plan.edits or plan.instances:
            return None
        return Look(plan, {row[7]: row[7 + WIDTH] for row in taken}, next_due, next_count)

    async def claim_seen(self, db: Connection, look: Look, now: Micros, terms: ClaimTerms) -> Claims:
        """Claim what is as it was seen, and have the node look again a little later if something is not."""
        plan, next_due, next_count = look.plan, look.next_due, look.next_count
        rows = [(*claim_columns(run), look.versions[run.uid]) for run in plan.runs]
        _, _, node, claimed = await db.fetchrow(CLAIM_SEEN, terms.node, newest(), *columns_of(rows))
        self.counted += 1
        if node is None:
            raise NodeLost
        lost = {run.uid for run in plan.runs if run.id not in claimed}
        plan.drop(lost)
        soon = now + SOON
        if lost and (next_due is None or soon < next_due):
            next_due, next_count = soon, 1
        return Claims(runs=plan.runs, next_due=next_due, next_count=next_count)


def _is_plain(job: Job) -> bool:
    """Return whether the claim of a job concerns no other rows than its own."""
    schedule = job.description.schedule
    is_plain = job.description.policy is USUAL and not job.state.running
    return is_plain and not (schedule.follows_runs or schedule.may_be_slow)
