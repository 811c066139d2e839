"""The statements of a copy, which transfer whole rows in slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
    RunRecord,
    missing_changes,
)
from scheduler_async.stores.decisions import linked_by_copy, without_cycles
from scheduler_async.stores.postgres.base import NOTE_UNUSUAL, SPEC, STATE_COLUMNS
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, write_rows
from scheduler_async.stores.postgres.endings import INSERT_TEXTS
from scheduler_async.stores.postgres.jobs import (
    INSERT_JOBS,
    INSERT_STATES,
    LOCK_JOBS,
    NEW_NUMBERS,
    UPDATE_JOBS,
    UPDATE_STATES,
    narrow_values,
)
from scheduler_async.stores.postgres.successors import SuccessorWork
from scheduler_async.stores.postgres.texts import kept, maybe_kept, original, state_columns
from scheduler_async.stores.run_codec import read_job_to_copy, read_run_record, tally_of_records

if TYPE_CHECKING:
    from asyncpg import Connection

# Among so many of the last changes of a job, those of the same time are found.
MOST_AT_ONE_TIME: Final = 100

SELECT_RECORD: Final = f"SELECT {SPEC}, {STATE_COLUMNS}"

READ_JOBS: Final = f"""
    {SELECT_RECORD}
      FROM job j LEFT JOIN state s USING (uid)
     WHERE j.uid > $1 AND j.removed_at IS NULL
  ORDER BY j.uid
     LIMIT $2
"""
READ_RECORDS: Final = f"{SELECT_RECORD} FROM job j LEFT JOIN state s USING (uid) WHERE j.uid = ANY($1::bigint[])"
# In the order of `RunRecord`.
READ_RUNS: Final = """
    SELECT r.id, j.namespace, j.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at, r.finished_at,
           r.outcome, r.reason, r.missed, r.error, r.message, r.exit_code, r.node, r.payload, r.result, r.progress,
           r.progress_message, o.text, t.text
      FROM run r JOIN job j USING (uid)
      LEFT JOIN output o ON o.run = r.id
      LEFT JOIN traceback t ON t.run = r.id
     WHERE r.id > $1 AND r.outcome IS NOT NULL AND j.removed_at IS NULL
  ORDER BY r.id
     LIMIT $2
"""
COUNT: Final = """
    SELECT (SELECT count(*) FROM job WHERE removed_at IS NULL),
           (SELECT count(*) FROM run WHERE outcome IS NOT NULL)
           - (SELECT count(*)
                FROM job j JOIN run r USING (uid)
               WHERE j.removed_at IS NOT NULL AND r.outcome IS NOT NULL)
"""
LOCK_UIDS: Final = """
    SELECT j.namespace, j.id, s.uid
      FROM job j JOIN state s USING (uid)
     WHERE (j.namespace, j.id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND j.removed_at IS NULL
  ORDER BY s.uid
       FOR UPDATE OF s
"""
# An attempt at an occurrence has one row, whichever node made it.
FIND_RUNS: Final = """
    SELECT c.place, r.id
      FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
           WITH ORDINALITY AS c (uid, scheduled_for, attempt, trigger, claimed_at, place)
CROSS JOIN LATERAL (SELECT r.id
                      FROM run r
                     WHERE r.uid = c.uid AND r.scheduled_for = c.scheduled_for AND r.attempt = c.attempt
                       AND (r.trigger = c.trigger AND r.claimed_at = c.claimed_at
                            OR c.attempt > 0 AND c.trigger <> 'manual' AND r.trigger <> 'manual')
                     LIMIT 1) AS r
"""
# With the run that a trigger or a cancellation names. A change of a removed job is looked at, and left out.
READ_CHANGES: Final = r"""
    SELECT c.number, j.namespace, j.id, c.at, c.action, c.actor, c.via, c.reason, c.before, c.after,
           r.scheduled_for, r.attempt, r.trigger, r.claimed_at, j.removed_at
      FROM change c
      LEFT JOIN job j USING (uid)
      LEFT JOIN run r ON r.id = substring(c.after FROM '^\{"run":([0-9]{1,18})\}$')::bigint AND r.uid = c.uid
     WHERE c.number > $1
  ORDER BY c.number
     LIMIT $2
"""
# The last changes of each job, newest first.
LATEST_CHANGES: Final = f"""
    SELECT u.uid, c.at, c.action, c.actor, c.via, c.reason, c.before, c.after
      FROM unnest($1::bigint[]) AS u (uid)
CROSS JOIN LATERAL (SELECT * FROM change c WHERE c.uid = u.uid ORDER BY c.number DESC LIMIT {MOST_AT_ONE_TIME}) AS c
  ORDER BY c.number DESC
"""
NEW_RUNS: Final = "SELECT nextval('run_id') FROM generate_series(1, $1::int)"
_INSERT_RUNS: Final = inserting(
    "run",
    {
        **dict.fromkeys(("id", "uid", "scheduled_for", "attempt"), "bigint"),
        "trigger": "text",
        **dict.fromkeys(("claimed_at", "started_at", "finished_at"), "bigint"),
        **dict.fromkeys(("outcome", "reason"), "text"),
        "missed": "bigint",
        **dict.fromkeys(("error", "message"), "text"),
        "exit_code": "bigint",
        "node": "text",
        **dict.fromkeys(("payload", "result"), "text"),
        "progress": "double precision",
        "progress_message": "text",
    },
)

INSERT_RUNS: Final = f"WITH runs AS ({_INSERT_RUNS} RETURNING id, outcome) {NOTE_UNUSUAL}"


class CopyWork(SuccessorWork):
    """The transactions of copies. For their purpose, see `Store`."""

    async def count(self, db: Connection) -> tuple[int, int]:
        jobs, runs = await db.fetchrow(COUNT)
        return jobs, runs

    async def read_jobs(self, db: Connection, after: int, limit: int) -> list[Job | LeftOut]:
        return [_record(row) for row in await db.fetch(READ_JOBS, after, limit)]

    async def read_runs(self, db: Connection, after: int, limit: int) -> list[RunRecord | LeftOut]:
        return [_run_record(row) for row in await db.fetch(READ_RUNS, after, limit)]

    async def write_jobs(self, db: Connection, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        locked = await self._lock_states(db, LOCK_JOBS, *columns_of([(job.namespace, job.id) for job in jobs], 2))
        rows = await db.fetch(READ_RECORDS, [row[0] for row in locked])
        here = {(row[PLACE["namespace"]], row[PLACE["id"]]): _record(row) for row in rows}
        rulings = [rule(job, here.get((job.namespace, job.id))) for job in jobs]
        rulings = without_cycles(rulings, await self._links_beyond(db, rulings), here)
        wanted = [ruling.job for ruling in rulings if ruling.verdict.writes]
        handlers = await self._numbers_of(db, {job.handler for job in wanted})
        new = [job for job in wanted if not job.uid]
        uids = await db.fetchval(NEW_NUMBERS, len(new)) if new else []
        added = [replace(job, uid=uid) for job, uid in zip(new, uids, strict=True)]
        updated = [job for job in wanted if job.uid]
        await write_rows(db, INSERT_JOBS, [description_values(job) for job in added])
        await self._write_states(db, INSERT_STATES, [(job.uid, *narrow_values(job, handlers)) for job in added])
        await write_rows(db, UPDATE_JOBS, [edited_values(job) for job in updated])
        await self._write_states(db, UPDATE_STATES, [(*narrow_values(job, handlers), job.uid) for job in updated])
        await self._link(db, linked_by_copy(added, updated, here))
        await self._forget_unused(db, {job.handler for job in here.values() if isinstance(job, Job)})
        if wanted:
            await self._tell(db, wanted)
        return rulings

    async def write_runs(self, db: Connection, runs: Sequence[RunRecord]) -> int:
        names = sorted({(run.namespace, run.job_id) for run in runs})
        uids = {(row[0], row[1]): row[2] for row in await db.fetch(LOCK_UIDS, *columns_of(names, 2))}
        wanted: dict[tuple[object, ...], RunRecord] = {}
        for run in runs:
            uid = uids.get((run.namespace, run.job_id))
            key = (uid, *(run.key[:2] if run.key.is_attempt else run.key))
            if uid is not None:
                wanted.setdefault(key, run)
        there = dict(await db.fetch(FIND_RUNS, *columns_of([(key[0], *run.key) for key, run in wanted.items()], 5)))
        new = [(key[0], run) for place, (key, run) in enumerate(wanted.items(), 1) if place not in there]
        numbers = sorted(number for (number,) in await db.fetch(NEW_RUNS, len(new)))
        rows = [(number, uid, *_stored(run)[3:-2]) for number, (uid, run) in zip(numbers, new, strict=True)]
        await write_rows(db, INSERT_RUNS, rows)
        for node in sorted({run.node or "" for _, run in new}):
            await self._count_ended(db, tally_of_records(run for _, run in new if (run.node or "") == node), node)
        for table, statement in INSERT_TEXTS.items():
            texts = [(number, getattr(run, table)) for number, (_, run) in zip(numbers, new, strict=True)]
            await write_rows(db, statement, [(number, kept(text)) for number, text in texts if text is not None])
        return len(new)

    async def read_changes(self, db: Connection, after: int, limit: int) -> tuple[list[ChangeCopy], int | None]:
        # The JSON of the fields is stored as it is.
        rows = [(*map(_original, row[:8]), *row[8:]) for row in await db.fetch(READ_CHANGES, after, limit)]
        found = [read_change_to_copy(row[:-5], row[-5:-1]) for row in rows if row[-1] is None and row[1] is not None]
        return [change for change in found if isinstance(change, ChangeCopy)], rows[-1][0] if rows else None

    async def write_changes(self, db: Connection, changes: Sequence[ChangeCopy]) -> int:
        names = sorted({(change.namespace, change.job_id) for change in changes})
        uids = {(row[0], row[1]): row[2] for row in await db.fetch(LOCK_UIDS, *columns_of(names, 2))}
        ours = [(uid, change) for change in changes if (uid := uids.get((change.namespace, change.job_id))) is not None]
        keys = [(uid, *change.run) if change.run is not None else (None,) * 5 for uid, change in ours]
        runs = dict(await db.fetch(FIND_RUNS, *columns_of(keys, 5)))
        wanted = [(uid, change.told(runs.get(place))) for place, (uid, change) in enumerate(ours, 1)]
        latest: dict[int, list[ChangeTold]] = {}
        for uid, *told in await db.fetch(LATEST_CHANGES, list(uids.values())):
            at, action, actor, via, reason, before, after = told
            names_ = (original(actor), original(via), original(reason))
            latest.setdefault(uid, []).append((at, action, *names_, before, after))
        missing = missing_changes(wanted, latest)
        await self._write_changes(db, [(uid, *told) for uid, told in missing])
        return len(missing)


def _original(value: Any) -> Any:
    return original(value) if isinstance(value, str) else value


def _stored(run: RunRecord) -> RunRecord:
    """Return *run* with texts that PostgreSQL can store."""
    return RunRecord._make(maybe_kept(value) if isinstance(value, str) else value for value in run)


def _record(row: Sequence[Any]) -> Job | LeftOut:
    width = len(DESCRIPTION_TYPES)
    return read_job_to_copy(tuple(row[:width]), state_columns(row[width:]))


def _run_record(row: Sequence[Any]) -> RunRecord | LeftOut:
    found = read_run_record(tuple(row))
    if isinstance(found, LeftOut):
        return found
    return RunRecord._make(map(_original, found))
