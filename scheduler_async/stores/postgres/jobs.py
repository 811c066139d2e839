"""Jobs: find, add, edit, remove, list and review them; and the output of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.history import NO_ACTOR, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.rules.edits import check_revision
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import ChangeRecord, content_of_new_job, removal
from scheduler_async.stores.codec import (
    description_values,
    edited_values,
)
from scheduler_async.stores.columns import DESCRIPTION_TYPES, STATE_TYPES
from scheduler_async.stores.conditions import conditions_of_jobs
from scheduler_async.stores.decisions import each, reviewed_all, rows_of_removal
from scheduler_async.stores.edit_plan import EditPlan
from scheduler_async.stores.messages import REMOVED, Change, JobFilter, has_metadata
from scheduler_async.stores.postgres.base import (
    FREE_INSTANCES,
    NAMED,
    NOTE_UNUSUAL,
    SELECT_STATE,
    SLICE,
    SPEC,
    STATE_COLUMNS,
    UPDATE_ONLY_STATES,
    WIDTH,
    locking,
)
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, updating, write_rows
from scheduler_async.stores.postgres.successors import UNLINK, SuccessorWork
from scheduler_async.stores.postgres.texts import kept, kept_values, maybe_kept, original, stored_state
from scheduler_async.stores.run_codec import tally_of_cancelled
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

# A job without a state is included. It counts as unreadable.
SELECT_BOTH: Final = f"""
    SELECT j.uid, s.revision, s.updated_at, {STATE_COLUMNS}, {SPEC}
      FROM job j LEFT JOIN state s USING (uid)
"""
FIND_JOB: Final = f"{SELECT_BOTH} WHERE {NAMED}"
NAME_EXISTS: Final = f"SELECT EXISTS (SELECT FROM job j WHERE {NAMED})"
LOCK_JOBS: Final = locking(
    "(j.namespace, j.id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND j.removed_at IS NULL"
)
# One transaction with a quota at a time, for each namespace.
LOCK_NAMESPACE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || chr(10) || $1, 8))"
# The jobs of a namespace, counted up to a limit. A removed job does not count.
COUNT_JOBS: Final = """
    SELECT count(*) FROM (SELECT FROM job WHERE namespace = $1 AND removed_at IS NULL LIMIT $2) counted
"""
NEW_NUMBERS: Final = "SELECT array_agg(nextval('job_uid')) FROM generate_series(1, $1::int)"
# The same for a transaction that only inserts rows after that. There are no plans to choose from, and to plan each
# statement again would take a third of the time.
NEW_NUMBERS_ONLY: Final = """
    SELECT array_agg(nextval('job_uid')), set_config('plan_cache_mode', 'force_generic_plan', true)
      FROM generate_series(1, $1::int)
"""
# The columns of a description without its number, and those of a state with the columns that claims need.
EDITED_TYPES: Final = {name: type_ for name, type_ in DESCRIPTION_TYPES.items() if name != "uid"}
NARROW_TYPES: Final = {
    **dict.fromkeys(("revision", "updated_at", "handler", "rank"), "bigint"),
    **dict.fromkeys(("id", "group_key"), "text"),
    **STATE_TYPES,
}


def with_handlers(types: Mapping[str, str], statement: str) -> str:
    """Return a *statement* that writes states, with a table `used` of those of their handlers that still exist.

    The handlers are locked, so that other transactions do not delete them meanwhile.
    """
    numbers = f"${[*types].index('handler') + 1}::bigint[]"
    used = f"SELECT number FROM handler WHERE number = ANY({numbers}) FOR KEY SHARE"
    return f"WITH used AS MATERIALIZED ({used}) {statement}"


INSERT_JOBS: Final = inserting("job", DESCRIPTION_TYPES)
# The same for new jobs, with their changes: the time, the actor, the tool, and the jobs that are disabled.
_AT, _ACTOR, _VIA, _DISABLED = (f"${len(DESCRIPTION_TYPES) + number}" for number in range(1, 5))
INSERT_NEW_JOBS: Final = f"""
    WITH new AS ({INSERT_JOBS} RETURNING {", ".join(DESCRIPTION_TYPES)}),
         told AS (SELECT uid, {content_of_new_job("to_json")} AS content FROM new)
    INSERT INTO change (uid, at, action, actor, via, after)
    SELECT uid, {_AT}, 'add', {_ACTOR}, {_VIA},
           CASE WHEN uid = ANY({_DISABLED}::bigint[]) THEN left(content, -1) || ',"enabled":false}}' ELSE content END
      FROM told
  ORDER BY uid
"""
UPDATE_JOBS: Final = updating("job", "uid", EDITED_TYPES)
TOUCH_JOBS: Final = updating("job", "uid", {"updated_at": "bigint"})
# This condition does not become a join, so that rows are written in the given order.
IS_USED: Final = "(c.handler IN (SELECT number FROM used)) IS TRUE"
NEW_TYPES: Final = {"uid": "bigint", **NARROW_TYPES}
INSERT_STATES: Final = with_handlers(NEW_TYPES, inserting("state", NEW_TYPES, where=IS_USED))
UPDATE_STATES: Final = with_handlers(
    NARROW_TYPES, updating("state", "uid", NARROW_TYPES, always=", touched = true", where=IS_USED)
)
REVIEW: Final = f"""
    {SELECT_STATE}
      FROM state s
     WHERE s.uid > $1 AND s.next_run_at > $2 AND s.phase <> 'disabled'
  ORDER BY s.uid
     LIMIT $3
       FOR UPDATE
"""
# A removed job remains for its runs and changes, which tell its payload, until `purge_removed` deletes all of it.
REMOVE_JOBS: Final = "UPDATE job SET removed_at = $2 WHERE uid = ANY($1::bigint[])"
# The job is removed from within a run, $4. Any other run in its state was cancelled.
DISABLE: Final = """
    UPDATE state
       SET phase = 'disabled', disabled_reason = $2, disabled_at = $3, next_run_at = NULL, regular_at = NULL,
           owed_until = NULL, touched = true,
           activity = CASE WHEN run = $4 THEN activity ELSE 'idle' END,
           node = CASE WHEN run = $4 THEN node END,
           run = CASE WHEN run = $4 THEN run END
     WHERE uid = $1
"""
RUNS_OF_JOB: Final = """
    SELECT run FROM state WHERE uid = $1 AND run IS NOT NULL UNION ALL SELECT run FROM instance WHERE uid = $1
"""
# The owner of a run in progress, when the job becomes one that may have several.
MOVE_OWNERS: Final = """
    WITH owners AS (SELECT uid, run, node FROM state WHERE uid = ANY($1::bigint[]) AND run IS NOT NULL),
         moved AS (INSERT INTO instance (run, uid, node) SELECT run, uid, node FROM owners ON CONFLICT DO NOTHING)
    UPDATE state SET run = NULL, node = NULL FROM owners WHERE state.uid = owners.uid
"""
# Two statements: the second one sees what a transaction has put back that the first one waited for.
CANCEL_BACKFILLS: Final = "UPDATE backfill SET state = 'cancelled' WHERE uid = ANY($1::bigint[]) AND state = 'running'"
FORGET_BACKFILLS: Final = """
    DELETE FROM backfill_due WHERE backfill IN (SELECT number FROM backfill WHERE uid = ANY($1::bigint[]))
"""
CANCEL_RUNS: Final = f"""
    WITH runs AS (UPDATE run
                     SET outcome = 'cancelled', finished_at = $2, error = $3
                   WHERE id = ANY($1::bigint[]) AND uid = $4 AND outcome IS NULL
               RETURNING id, outcome),
         noted AS ({NOTE_UNUSUAL})
    SELECT count(*) FROM runs
"""
PARAMETER: Final = "${}"


class JobWork(SuccessorWork):
    """The transactions of jobs. For their purpose, see `Store`."""

    async def change(
        self,
        db: Connection,
        changes: Sequence[Change],
        now: Micros,
        by: Actor = NO_ACTOR,
        *,
        quota: Quota | None = None,
    ) -> list[Transition | None]:
        if quota is not None and quota.max_jobs is not None:  # before any row is locked
            await db.execute(LOCK_NAMESPACE, kept(quota.namespace))
        names = list(dict.fromkeys((change.namespace, change.id) for change in changes))
        rows = await self._lock_states(db, LOCK_JOBS, *columns_of(names, 2))
        jobs = {(job.namespace, job.id): job for job in (await self._jobs(db, rows, None)).values()}
        new_numbers = NEW_NUMBERS if jobs or quota else NEW_NUMBERS_ONLY
        numbers = iter(await db.fetchval(new_numbers, len(names) - len(jobs)) if len(jobs) < len(names) else [])
        plan = EditPlan(jobs, numbers, now, by, self.decisions)
        plan.decide_all(changes)
        if quota is not None and quota.max_jobs is not None and plan.added:
            stored = await db.fetchval(COUNT_JOBS, kept(quota.namespace), quota.max_jobs)
            quota.check_jobs(stored, len(plan.added))
        linked = plan.linked
        if linked:
            await self._check_links(db, linked)
        await self._insert(db, list(plan.added.values()), now, by)
        await self._update(db, list(plan.changed.values()))
        if linked:
            await self._link(db, linked)
        await self._write_skips(db, plan.skipped)
        await self._write_changes(db, plan.records)
        if plan.jobs:
            await self._tell(db, plan.jobs)
        return plan.edits

    async def _insert(self, db: Connection, jobs: Sequence[Job], now: Micros, by: Actor) -> None:
        """Write new jobs, and their first changes."""
        numbers = await self._numbers_of(db, {job.handler for job in jobs})
        for some in _slices(jobs):
            disabled = [job.uid for job in some if job.state.phase is Phase.DISABLED]
            change = now, maybe_kept(by.name), maybe_kept(by.via), disabled
            await db.execute(INSERT_NEW_JOBS, *columns_of(map(description_values, some)), *change)
            await self._write_states(db, INSERT_STATES, [(job.uid, *narrow_values(job, numbers)) for job in some])

    async def review(
        self, db: Connection, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]
    ) -> int | None:
        rows = await db.fetch(REVIEW, after, now, limit)
        changed = reviewed_all(self.decisions, (await self._jobs(db, rows, now)).values(), now, decide)
        await self._update(db, changed)
        if changed:
            await self._tell(db, [job for _, job in changed])
        return rows[-1][0] if len(rows) == limit else None

    async def _update(self, db: Connection, changed: Sequence[tuple[Job, Job]]) -> None:
        """Write changed jobs, given their previous versions."""
        numbers = await self._numbers_of(db, {job.handler for _, job in changed if not job.description.unreadable})
        for some in _slices(changed):
            described = []
            touched = []
            for before, job in some:
                if job.revision == before.revision:  # only its state changes; unreadable columns stay unchanged
                    touched.append((job.updated, job.uid))
                else:
                    described.append(edited_values(job))
            await write_rows(db, UPDATE_JOBS, described)
            await write_rows(db, TOUCH_JOBS, touched)
            readable = [job for _, job in some if not job.description.unreadable]
            others = [job for _, job in some if job.description.unreadable]  # placeholders are not stored
            await self._write_states(db, UPDATE_STATES, [(*narrow_values(job, numbers), job.uid) for job in readable])
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(job.state), job.uid) for job in others])
        become_several = [job.uid for before, job in changed if job.state.running and not before.state.running]
        if become_several:
            await db.execute(MOVE_OWNERS, become_several)
        await self._forget_unused(db, {before.handler for before, job in changed if before.handler != job.handler})

    async def remove(
        self,
        db: Connection,
        namespace: str,
        id: str,
        now: Micros,
        own_run: int | None = None,
        by: Actor = NO_ACTOR,
        revision: int | None = None,
    ) -> Job | None:
        job = await self._lock(db, namespace, id)
        if job is None:
            return None
        check_revision(job, revision)
        await self._let_go(db, [job], now, [removal(job, now, by)])
        runs = {run for (run,) in await db.fetch(RUNS_OF_JOB, job.uid)}
        others = [run for run in runs if run != own_run]
        cancelled = await db.fetchval(CANCEL_RUNS, others, now, REMOVED, job.uid)
        await self._count_ended(db, tally_of_cancelled(job.namespace, cancelled, now))
        await db.execute(FREE_INSTANCES, others)
        if own_run in runs:
            await db.execute(DISABLE, job.uid, REMOVED, now, own_run)
        else:
            await self._delete_removed(db, [job])
        await self._tell(db, [])
        return job

    async def _let_go(self, db: Connection, jobs: Sequence[Job], now: Micros, records: Sequence[ChangeRecord]) -> None:
        """Remove *jobs*, and write *records* of that. Cancel their backfills and the runs that no node has taken up."""
        uids = [job.uid for job in jobs]
        await db.execute(REMOVE_JOBS, uids, now)
        await db.execute(UNLINK, uids)
        await self._write_skips(db, each(jobs, lambda job: (job, rows_of_removal(self.decisions, job, now), now)))
        await self._write_changes(db, records)
        await self._cancel_requested(db, jobs, now)
        await db.execute(CANCEL_BACKFILLS, uids)
        await db.execute(FORGET_BACKFILLS, uids)

    async def get(self, db: Connection, namespace: str, id: str) -> Job | None:
        row = await db.fetchrow(FIND_JOB, kept(namespace), kept(id))
        return None if row is None else self._described([row])[0]

    def _described(self, rows: Sequence[Sequence[Any]]) -> list[Job]:
        """Return the jobs of rows that contain a state and a description."""
        remembered = {row[0]: self._specs.get((row[0], row[1], row[2])) for row in rows}
        return list(self._read(rows, remembered, {row[0]: row[WIDTH:] for row in rows}, 0).values())

    async def list_jobs(self, db: Connection, wanted: JobFilter) -> list[Job]:
        where = conditions_of_jobs(wanted, PARAMETER)
        rows = await db.fetch(
            f"{SELECT_BOTH} {where} ORDER BY s.next_run_at NULLS LAST, j.namespace, j.id LIMIT {where.next()}",
            *kept_values(where.values),
            None if wanted.metadata else wanted.limit,
        )
        jobs = self._described(rows)
        if wanted.metadata:
            jobs = [job for job in jobs if has_metadata(job, wanted.metadata)][: wanted.limit]
        return jobs

    async def output_of(self, db: Connection, run: int) -> str | None:
        return original(await db.fetchval("SELECT text FROM output WHERE run = $1", run))


def _slices(rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (rows[first : first + SLICE] for first in range(0, len(rows), SLICE))


def narrow_values(job: Job, handlers: Mapping[str, int]) -> tuple[Any, ...]:
    """Return the columns of `NARROW_TYPES`. *handlers* are the numbers of handlers."""
    key = group_key(job.namespace, job.group)
    narrow = job.revision, job.updated, handlers[job.handler], job.priority.rank, job.id, key
    return (*narrow, *stored_state(job.state))
