"""The run log: rows by job, by namespace and by time, and what one run left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.conditions import (
    COUNT_FEW_JOBS,
    IS_DECISION,
    JOBS_OF_NAMESPACE,
    Conditions,
    conditions_of_runs,
    require_of_runs,
)
from scheduler_async.stores.messages import FEW_JOBS, LOOK_BACK, MOST_ATTEMPTS, MOST_SKIPS, RunDetails, RunFilter
from scheduler_async.stores.postgres.base import WorkBase
from scheduler_async.stores.postgres.jobs import NAME_EXISTS, PARAMETER
from scheduler_async.stores.postgres.texts import kept, kept_values, original
from scheduler_async.stores.row_range import RUNS
from scheduler_async.stores.run_codec import details_of_run, read_run

if TYPE_CHECKING:
    from asyncpg import Connection
from scheduler_async.timekeeping.instants import Micros

SELECT_RUNS: Final = """
    SELECT r.id, j.id, j.namespace, r.scheduled_for, r.started_at, r.finished_at, r.attempt, r.trigger, r.outcome,
           r.reason, r.missed, r.error, r.message, r.exit_code, r.node, r.claimed_at, r.result, r.progress,
           r.progress_message, r.after_run
"""
FROM_RUNS: Final = f"{SELECT_RUNS} FROM run r JOIN job j USING (uid)"
# From the jobs of a namespace to their newest runs, so that runs of other namespaces are not read.
FROM_NAMESPACE: Final = f"""
    {SELECT_RUNS}
      FROM job j
CROSS JOIN LATERAL (SELECT *
                      FROM run r
                     {{newest}}
                  ORDER BY r.id + 0 DESC
                     LIMIT {{limit}}) AS r
     WHERE j.uid IN ({JOBS_OF_NAMESPACE})
"""
LAST_RUN: Final = "SELECT max(id) FROM run"
SELECT_DETAILS: Final = """
    SELECT t.text, r.payload, j.payload, r.uid, r.claimed_at
      FROM run r
 LEFT JOIN job j ON j.uid = r.uid
 LEFT JOIN traceback t ON t.run = r.id
     WHERE r.id = $1
"""
# At most so many edits since the claim are looked at: those of the payload come first.
EDITS_SINCE: Final = f"""
    SELECT c.before
      FROM change c
     WHERE c.uid = $1 AND {IS_DECISION} AND c.action <> 'remove' AND c.at >= $2 AND c.before LIKE '%"payload"%'
  ORDER BY number
     LIMIT 100
"""
RUNS_ABOUT: Final = f"""
    WITH attempt AS (SELECT id
                       FROM run
                      WHERE uid = $1 AND scheduled_for >= $2 AND scheduled_for < $3
                   ORDER BY scheduled_for
                      LIMIT {2 * MOST_ATTEMPTS}),
         skips AS (SELECT id, scheduled_for, claimed_at, finished_at
                     FROM run
                    WHERE uid = $1 AND scheduled_for < $3 AND attempt = 0
                 ORDER BY scheduled_for DESC
                    LIMIT {MOST_SKIPS}),
         skipped AS (SELECT id, scheduled_for, claimed_at
                       FROM skips
                      WHERE finished_at >= $2
                   ORDER BY scheduled_for DESC
                      LIMIT 1),
         before AS (SELECT scheduled_for
                      FROM run
                     WHERE uid = $1 AND scheduled_for <= (SELECT scheduled_for FROM skipped)
                       AND attempt > 0 AND trigger <> 'manual'
                  ORDER BY scheduled_for DESC
                     LIMIT 1),
         tried AS (SELECT id, claimed_at
                     FROM run
                    WHERE uid = $1 AND scheduled_for = (SELECT scheduled_for FROM before) AND attempt > 0),
         merged AS (SELECT id FROM tried WHERE EXISTS (SELECT FROM tried JOIN skipped USING (claimed_at)))
    {FROM_RUNS}
     WHERE r.id IN (SELECT id FROM attempt UNION SELECT id FROM skipped UNION SELECT id FROM merged)
  ORDER BY r.id DESC
"""


class RunLogWork(WorkBase):
    """The transactions that read the run log. For their purpose, see `Store`."""

    async def list_runs(self, db: Connection, wanted: RunFilter) -> list[RunRow]:
        query, values = await self._query(db, wanted)
        return [self._run(row) for row in await db.fetch(query, *values)]

    async def _query(self, db: Connection, wanted: RunFilter) -> tuple[str, list[object]]:
        """Return the query for the *wanted* rows, and its parameters."""
        is_crowded = wanted.is_of_namespace and await self._is_crowded(db, wanted)
        # The planner must find the rows of a job through its number. By their ids, it would read all runs.
        run_id = "r.id + 0" if wanted.names_jobs and not is_crowded else "r.id"
        if wanted.is_of_namespace and not is_crowded:
            where = Conditions(PARAMETER)
            where.require("r.uid = j.uid")
            require_of_runs(where, wanted, run_id)
            of_job = where.take(wanted.limit)
            names = [where.take(wanted.namespace) for _ in range(2)]
            query = FROM_NAMESPACE.format(*names, newest=where, limit=of_job)
        else:
            exists = False
            if wanted.namespace is not None and wanted.id is not None:
                exists = await db.fetchval(NAME_EXISTS, kept(wanted.namespace), kept(wanted.id))
            where = conditions_of_runs(wanted, PARAMETER, exists=exists, id=run_id)
            await self._bound_ids(db, where, wanted)
            query = f"{FROM_RUNS} {where}"
        return f"{query} ORDER BY {run_id} DESC LIMIT {where.take(wanted.limit)}", kept_values(where.values)

    async def _is_crowded(self, db: Connection, wanted: RunFilter) -> bool:
        """Return whether to look at the newest runs of all namespaces, rather than at those of each job."""
        if wanted.limit is None:
            return False
        name = kept(wanted.namespace or "")
        count: int = await db.fetchval(COUNT_FEW_JOBS.format("$1", "$2"), name, name)
        return count > FEW_JOBS

    async def _bound_ids(self, db: Connection, where: Conditions, wanted: RunFilter) -> None:
        """Require ids of about the wanted time, so that older runs are not read.

        There is no index on outcomes: every run would have to be written to it, because an update of an indexed column
        does not stay on its page.
        """
        if wanted.is_bounded_by_time:
            found = await self._range(db, RUNS, wanted.since, wanted.until)
            if found is not None:
                where.require("r.id BETWEEN {} AND {}", found.first, found.last)
        elif wanted.selects_among_all and wanted.limit is not None:
            last = wanted.before if wanted.before is not None else await db.fetchval(LAST_RUN) or 0
            where.require("r.id >= {}", last - LOOK_BACK)

    def _run(self, row: Sequence[Any]) -> RunRow:
        columns = [original(value) if isinstance(value, str) else value for value in row]
        run, problem = read_run(columns)
        if problem is not None:
            self.unreadable_rows.add("run", run.id, problem)
        return run

    async def details_of(self, db: Connection, run: int) -> RunDetails:
        row = await db.fetchrow(SELECT_DETAILS, run)
        if row is None:
            return RunDetails()
        traceback, own, current, uid, claimed_at = row
        edits = [] if own is not None else await db.fetch(EDITS_SINCE, uid, claimed_at)
        return details_of_run(
            original(traceback), original(own), (original(before) for (before,) in edits), original(current)
        )

    async def runs_about(self, db: Connection, uid: int, start: Micros, end: Micros) -> list[RunRow]:
        return [self._run(row) for row in await db.fetch(RUNS_ABOUT, uid, start, end)]
