"""The run log: rows by job, by namespace and by time, and what one run left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import merge
from itertools import islice, takewhile

from scheduler_async.jobs.history import Action
from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.memory.base import WorkBase
from scheduler_async.stores.memory.records import JobRecord, StoredRun
from scheduler_async.stores.messages import (
    FEW_JOBS,
    LOOK_BACK,
    MOST_ATTEMPTS,
    MOST_SKIPS,
    USUAL_OUTCOMES,
    RunDetails,
    RunFilter,
)
from scheduler_async.stores.row_range import RUNS
from scheduler_async.stores.run_codec import details_of_run, run_row
from scheduler_async.timekeeping.instants import Micros


class RunLogWork(WorkBase):
    """The transactions that read the run log. For their purpose, see `Store`."""

    def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        runs = self._tables.runs
        found = (run for number in self._newest(wanted) if (run := runs.get(number)) is not None)
        since = None if wanted.since is None else wanted.since - RUNS.disorder
        recent = found if since is None else takewhile(lambda run: run.claimed_at >= since, found)
        return [self._row(run) for run in islice((run for run in recent if self._is_wanted(run, wanted)), wanted.limit)]

    def _newest(self, wanted: RunFilter) -> Iterable[int]:
        """Return the numbers of the rows that may be wanted, newest first."""
        tables = self._tables
        if wanted.run is not None:
            return (wanted.run,)
        before = tables.last_run + 1 if wanted.before is None else wanted.before
        if wanted.names_jobs:
            records = self._records_of(wanted)
            if len(records) <= FEW_JOBS:
                rows = (record.runs[: bisect_left(record.runs, before)] for record in records)
                return merge(*map(reversed, rows), reverse=True)
        first = next(iter(tables.runs), before)
        if wanted.selects_among_all and wanted.limit is not None and not wanted.is_bounded_by_time:
            first = first if _is_rare(wanted) else max(first, before - LOOK_BACK)
        return range(min(before - 1, tables.last_run), first - 1, -1)

    def _records_of(self, wanted: RunFilter) -> list[JobRecord]:
        """Return the jobs that a filter names. A removed job counts if no other has its name."""
        found = [*self._all_named(wanted.namespace, wanted.id)]
        if found and wanted.namespace is not None and wanted.id is not None:
            return found
        for (namespace, name), records in self._tables.removed.items():
            if wanted.namespace in (None, namespace) and wanted.id in (None, name):
                found += records
        return found

    def _is_wanted(self, run: StoredRun, wanted: RunFilter) -> bool:
        job = self._tables.jobs[run.uid].job
        return (
            wanted.namespace in (None, job.namespace)
            and wanted.id in (None, job.id)
            and wanted.outcome in (None, run.outcome)
            and wanted.trigger in (None, run.trigger)
            and (wanted.since is None or run.claimed_at >= wanted.since)
            and (wanted.until is None or run.claimed_at <= wanted.until)
            and (wanted.before is None or run.id < wanted.before)
        )

    def _row(self, run: StoredRun) -> RunRow:
        job = self._tables.jobs[run.uid].job
        return run_row(
            run.id,
            job.id,
            job.namespace,
            run.scheduled_for,
            run.started_at,
            run.finished_at,
            run.attempt,
            run.trigger,
            run.outcome,
            run.reason,
            run.missed,
            run.error,
            run.message,
            run.exit_code,
            run.node,
            run.claimed_at,
            run.result,
            run.progress,
            run.progress_message,
            run.after,
        )

    def details_of(self, run: int) -> RunDetails:
        tables = self._tables
        row = tables.runs.get(run)
        if row is None:
            return RunDetails()
        record = tables.jobs[row.uid]
        changes = (tables.changes[number] for number in record.changes)
        since = (change for change in changes if change.at >= row.claimed_at and change.before is not None)
        edits = (change.before for change in since if change.action != Action.REMOVE)
        return details_of_run(row.traceback, row.payload, edits, record.job.description.payload_json)

    def runs_about(self, uid: int, start: Micros, end: Micros) -> list[RunRow]:
        record = self._tables.jobs.get(uid)
        if record is None:
            return []
        stretches = [(start, end)]
        found: dict[int, StoredRun] = {}
        rows = [self._tables.runs[number] for number in record.runs]
        skips = sorted((run for run in rows if run.attempt == 0 and run.scheduled_for < end), key=_occurrence)
        about = (run for run in reversed(skips[-MOST_SKIPS:]) if run.finished_at is not None)
        skip = next((run for run in about if run.finished_at is not None and run.finished_at >= start), None)
        if skip is not None:
            found[skip.id] = skip
            # A claim writes the row of its run before those of the occurrences that it skips.
            before = next((run for run in reversed(rows) if run.id < skip.id and run.attempt > 0), None)
            if before is not None and before.claimed_at == skip.claimed_at:
                stretches.append((before.scheduled_for, before.scheduled_for + 1))
        for first, last in stretches:
            within = sorted((run for run in rows if first <= run.scheduled_for < last), key=_occurrence)
            for are_attempts in (True, False):
                some = (run for run in within if run.is_attempt is are_attempts)
                found |= {run.id: run for run in islice(some, MOST_ATTEMPTS)}
        return [self._row(found[number]) for number in sorted(found, reverse=True)]


def _occurrence(run: StoredRun) -> Micros:
    return run.scheduled_for


def _is_rare(wanted: RunFilter) -> bool:
    """Return whether rows with the wanted outcome may be few, so that all are looked at."""
    return wanted.outcome is not None and wanted.outcome not in USUAL_OUTCOMES
