"""Jobs: add, edit, review, remove, read; and the output of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import count, islice

from msgspec.structs import replace

from scheduler_async.jobs.backfill import BackfillState
from scheduler_async.jobs.enums import Outcome, Phase
from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.edits import check_revision
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import removal
from scheduler_async.stores.decisions import reviewed_all, rows_of_removal
from scheduler_async.stores.edit_plan import EditPlan
from scheduler_async.stores.memory.base import above
from scheduler_async.stores.memory.records import JobRecord, StoredBackfill, StoredChange
from scheduler_async.stores.memory.successors import SuccessorWork
from scheduler_async.stores.messages import REMOVED, Change, JobFilter, has_metadata
from scheduler_async.stores.run_codec import tally_of_cancelled
from scheduler_async.timekeeping.instants import Micros


class JobWork(SuccessorWork):
    """The transactions of jobs. For their purpose, see `Store`."""

    def change(
        self, changes: Sequence[Change], now: Micros, by: Actor = NO_ACTOR, *, quota: Quota | None = None
    ) -> list[Transition | None]:
        tables = self._tables
        names = {(change.namespace, change.id) for change in changes}
        jobs = {name: record.job for name in names if (record := self._find(*name)) is not None}
        plan = EditPlan(jobs, count(tables.last_job + 1), now, by, self.decisions)
        plan.decide_all(changes)
        if quota is not None:
            quota.check_jobs(len(tables.named.get(quota.namespace, ())), len(plan.added))
        linked = plan.linked
        self._check_links(linked)
        for before, job in plan.changed.values():
            self._update(before, job)
        for job in plan.added.values():
            self._add(job)
        self._link((plan.changed[job.uid][0] if job.uid in plan.changed else None, job) for job in linked)
        self._write_changes(plan.records)
        self._write_changes(
            StoredChange(job.uid, now, Action.ADD.value, by.name, by.via, None, None, job)
            for job in plan.added.values()
        )
        self._write_skips(plan.skipped)
        return plan.edits

    def _update(self, before: Job, job: Job) -> None:
        """Write a changed job."""
        if job.state.running and not before.state.running:  # it becomes one that may have several runs
            for run in self._tables.jobs[job.uid].held:
                self._tables.owners[run].is_instance = True
        self._put(job)

    def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        found = (record.job for record in above(self._tables.jobs, after) if _is_planned(record, now))
        jobs = list(islice(found, limit))
        for before, job in reviewed_all(self.decisions, jobs, now, decide):
            self._update(before, job)
        return jobs[-1].uid if len(jobs) == limit else None

    def remove(
        self,
        namespace: str,
        id: str,
        now: Micros,
        own_run: int | None = None,
        by: Actor = NO_ACTOR,
        revision: int | None = None,
    ) -> Job | None:
        record = self._find(namespace, id)
        if record is None:
            return None
        job = record.job
        check_revision(job, revision)
        self._let_go(record, rows_of_removal(self.decisions, job, now), now)
        self._write_changes([removal(job, now, by)])
        others = [run for run in record.held if run != own_run]
        for run in others:
            self._cancel_run(run, now)
        self._free(others)
        if record.held:
            gone = {"next_run_at": None, "regular_at": None, "owed_until": None}
            told = {"phase": Phase.DISABLED, "disabled_reason": REMOVED, "disabled_at": now}
            record.job = job.with_state(replace(job.state, **gone, **told))
        return job

    def _let_go(self, record: JobRecord, skips: Sequence[Skip], now: Micros) -> None:
        """Remove a job that may have runs in progress. Cancel its backfills and the runs that no node has taken up."""
        job = record.job
        self._remove(record, now)
        self._unlink(job)
        self._write_skips([(job, skips, now)])
        starts = self._tables.starts
        for run in [run for run, uid in starts.items() if uid == job.uid]:
            self._cancel_run(run, now)
            del starts[run]
        for backfill in self._backfills_of(job):
            backfill.due.clear()
            if backfill.state is BackfillState.RUNNING:
                backfill.state = BackfillState.CANCELLED

    def _backfills_of(self, job: Job) -> list[StoredBackfill]:
        return [one for one in self._tables.backfills.values() if one.uid == job.uid]

    def _cancel_run(self, number: int, now: Micros) -> None:
        run = self._tables.runs[number]
        run.outcome, run.finished_at, run.error = Outcome.CANCELLED, now, REMOVED
        self._count_ended(tally_of_cancelled(self._tables.jobs[run.uid].job.namespace, 1, now))

    def get(self, namespace: str, id: str) -> Job | None:
        record = self._find(namespace, id)
        return None if record is None else record.job

    def list_jobs(self, wanted: JobFilter) -> list[Job]:
        named = (record.job for record in self._all_named(wanted.namespace))
        found = (job for job in named if is_wanted(job, wanted))
        return sorted(found, key=_order) if wanted.limit is None else nsmallest(wanted.limit, found, key=_order)

    def output_of(self, run: int) -> str | None:
        found = self._tables.runs.get(run)
        return None if found is None else found.output


def is_wanted(job: Job, wanted: JobFilter) -> bool:
    """Return whether *job* meets the conditions of a filter, apart from its namespace."""
    described = job.description
    return (
        (wanted.status is None or job.status is wanted.status)
        and wanted.user_id in (None, described.user_id)
        and wanted.handler in (None, job.handler)
        and wanted.group in (None, described.group)
        and wanted.priority in (None, described.priority)
        and (wanted.due_before is None or _is_due(job, wanted.due_before))
        and wanted.ended in (None, job.ended)
        and (wanted.metadata is None or has_metadata(job, wanted.metadata))
    )


def _is_due(job: Job, before: Micros) -> bool:
    state = job.state
    return state.phase is Phase.ACTIVE and state.next_run_at is not None and state.next_run_at < before


def _is_planned(record: JobRecord, now: Micros) -> bool:
    """Return whether the next run of a job is after *now*."""
    state = record.job.state
    at = state.next_run_at
    return record.removed_at is None and at is not None and at > now and state.phase is not Phase.DISABLED


def _order(job: Job) -> tuple[bool, Micros, str, str]:
    at = job.state.next_run_at
    return at is None, at or 0, job.namespace, job.id
