"""The run log: rows by job, by namespace and by time, and what one run left."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.codec import Row
from scheduler_async.stores.conditions import (
    COUNT_FEW_JOBS,
    IS_UNUSUAL,
    JOBS_OF_NAMESPACE,
    Conditions,
    conditions_of_runs,
    require_of_runs,
)
from scheduler_async.stores.messages import (
    FEW_JOBS,
    LOOK_BACK,
    MOST_ATTEMPTS,
    MOST_SKIPS,
    USUAL_OUTCOMES,
    RunDetails,
    RunFilter,
)
from scheduler_async.stores.row_range import CHANGES, RUNS
from scheduler_async.stores.run_codec import details_of_run, read_run
from scheduler_async.stores.sqlite.base import LAST_RUN, WorkBase
from scheduler_async.stores.sqlite.history import chained
from scheduler_async.stores.sqlite.jobs import NAME_EXISTS, PARAMETER
from scheduler_async.timekeeping.instants import Micros

SELECT_RUNS: Final = """
    SELECT r.id, j.id, j.namespace, r.scheduled_for, r.started_at, r.finished_at, r.attempt, r.trigger, r.outcome,
           r.reason, r.missed, r.error, r.message, r.exit_code, r.node, r.claimed_at, r.result, r.progress,
           r.progress_message, r.after_run
"""
FROM_RUNS: Final = f"{SELECT_RUNS} FROM run r JOIN job j USING (uid)"
# From the newest runs to their jobs.
NEWEST_RUNS: Final = f"{SELECT_RUNS} FROM run r CROSS JOIN job j USING (uid)"
# The same for outcomes that have an index.
NEWEST_UNUSUAL: Final = f"{SELECT_RUNS} FROM run r INDEXED BY run_unusual CROSS JOIN job j USING (uid)"
# From the jobs of a namespace to their newest runs, so that runs of other namespaces are not read.
FROM_NAMESPACE: Final = f"""
    {SELECT_RUNS}
      FROM job j
CROSS JOIN run r ON r.id IN (SELECT r.id
                               FROM run r INDEXED BY run_of_job
                              {{newest}}
                           ORDER BY r.id DESC
                              LIMIT {{limit}})
     WHERE j.uid IN ({JOBS_OF_NAMESPACE})
"""
SELECT_DETAILS: Final = """
    SELECT t.text, r.payload, j.payload, r.uid, r.claimed_at
      FROM run r
 LEFT JOIN job j ON j.uid = r.uid
 LEFT JOIN traceback t ON t.run = r.id
     WHERE r.id = ?
"""
# At most so many edits since the claim are looked at: those of the payload come first.
EDITS_SINCE: Final = f"""
    {chained("SELECT last_change FROM job WHERE uid = :uid", "decision", f":since - {CHANGES.disorder}")}
    SELECT c.before
      FROM chain CROSS JOIN change c USING (number)
     WHERE c.at >= :since AND c.action <> 'remove' AND c.before LIKE '%"payload"%'
  ORDER BY c.number
     LIMIT 100
"""
ATTEMPTS: Final = f"""
    SELECT id FROM (SELECT id, scheduled_for
                      FROM run INDEXED BY run_once
                     WHERE uid = :uid AND scheduled_for >= :start AND scheduled_for < :end
                       AND attempt > 0 AND trigger <> 'manual'
                  ORDER BY scheduled_for
                     LIMIT {MOST_ATTEMPTS})
 UNION ALL
    SELECT id FROM (SELECT id
                      FROM run INDEXED BY run_beside
                     WHERE uid = :uid AND scheduled_for >= :start AND scheduled_for < :end
                       AND (attempt = 0 OR trigger = 'manual')
                  ORDER BY scheduled_for
                     LIMIT {MOST_ATTEMPTS})
"""
LAST_SKIP: Final = f"""
    SELECT id, claimed_at
      FROM (SELECT id, claimed_at, finished_at, scheduled_for
              FROM run INDEXED BY run_skipped
             WHERE uid = :uid AND scheduled_for < :end AND attempt = 0
          ORDER BY scheduled_for DESC
             LIMIT {MOST_SKIPS})
     WHERE finished_at >= :start
  ORDER BY scheduled_for DESC
     LIMIT 1
"""
# A claim writes the row of its run before those of the occurrences that it skips.
RUN_BEFORE: Final = """
    SELECT scheduled_for, claimed_at
      FROM run INDEXED BY run_of_job
     WHERE uid = ? AND id < ? AND attempt > 0
  ORDER BY id DESC
     LIMIT 1
"""


class RunLogWork(WorkBase):
    """The transactions that read the run log. For their purpose, see `Store`."""

    def list_runs(self, db: sqlite3.Connection, wanted: RunFilter) -> list[RunRow]:
        return [self._run(row) for row in db.execute(*self._query(db, wanted))]

    def _query(self, db: sqlite3.Connection, wanted: RunFilter) -> tuple[str, list[object]]:
        """Return the query for the *wanted* rows, and its parameters."""
        limit = -1 if wanted.limit is None else wanted.limit
        if wanted.is_of_namespace and not self._is_crowded(db, wanted):
            where = Conditions(PARAMETER)
            where.require("r.uid = j.uid")
            require_of_runs(where, wanted)
            of_job = where.take(limit)
            names = [where.take(wanted.namespace) for _ in range(2)]
            query = FROM_NAMESPACE.format(*names, newest=where, limit=of_job)
        else:
            names_one = wanted.namespace is not None and wanted.id is not None
            exists = names_one and db.execute(NAME_EXISTS, (wanted.namespace, wanted.id)).fetchone() is not None
            where = conditions_of_runs(wanted, PARAMETER, exists=exists)
            self._bound_ids(db, where, wanted)
            source = NEWEST_RUNS if wanted.is_of_namespace else FROM_RUNS
            if _is_indexed(wanted):
                source = NEWEST_UNUSUAL
                where.require(IS_UNUSUAL)
            query = f"{source} {where}"
        return f"{query} ORDER BY r.id DESC LIMIT {where.take(limit)}", where.values

    def _is_crowded(self, db: sqlite3.Connection, wanted: RunFilter) -> bool:
        """Return whether to look at the newest runs of all namespaces, rather than at those of each job."""
        if wanted.limit is None:
            return False
        (count,) = db.execute(COUNT_FEW_JOBS.format("?", "?"), (wanted.namespace, wanted.namespace)).fetchone()
        return bool(count > FEW_JOBS)

    def _bound_ids(self, db: sqlite3.Connection, where: Conditions, wanted: RunFilter) -> None:
        """Require ids of about the wanted time, so that older runs are not read."""
        if wanted.is_bounded_by_time:
            found = self._range(db, RUNS, wanted.since, wanted.until)
            if found is not None:
                where.require("r.id BETWEEN {} AND {}", found.first, found.last)
        elif wanted.selects_among_all and wanted.limit is not None and not _is_indexed(wanted):
            last = self._last_number(db, LAST_RUN) if wanted.before is None else wanted.before
            where.require("r.id >= {}", last - LOOK_BACK)

    def _run(self, row: Row) -> RunRow:
        run, problem = read_run(row)
        if problem is not None:
            self.unreadable_rows.add("run", run.id, problem)
        return run

    def details_of(self, db: sqlite3.Connection, run: int) -> RunDetails:
        row = db.execute(SELECT_DETAILS, (run,)).fetchone()
        if row is None:
            return RunDetails()
        traceback, own, current, uid, claimed_at = row
        edits: Iterable[Any] = () if own is not None else db.execute(EDITS_SINCE, {"uid": uid, "since": claimed_at})
        return details_of_run(traceback, own, (before for (before,) in edits), current)

    def runs_about(self, db: sqlite3.Connection, uid: int, start: Micros, end: Micros) -> list[RunRow]:
        stretches = [(start, end)]
        ids: set[int] = set()
        skipped = db.execute(LAST_SKIP, {"uid": uid, "start": start, "end": end}).fetchone()
        if skipped is not None:
            number, claimed_at = skipped
            ids.add(number)
            run = db.execute(RUN_BEFORE, (uid, number)).fetchone()
            stretches += [(run[0], run[0] + 1)] if run is not None and run[1] == claimed_at else []
        for first, last in stretches:
            ids |= {run for (run,) in db.execute(ATTEMPTS, {"uid": uid, "start": first, "end": last})}
        marks = ", ".join("?" * len(ids))
        rows = db.execute(f"{FROM_RUNS} WHERE r.id IN ({marks}) ORDER BY r.id DESC", tuple(ids))
        return [self._run(row) for row in rows]


def _is_indexed(wanted: RunFilter) -> bool:
    """Return whether an index has the rows with the wanted outcome, of all jobs."""
    return wanted.selects_among_all and wanted.outcome is not None and wanted.outcome not in USUAL_OUTCOMES
