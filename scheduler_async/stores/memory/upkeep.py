"""Upkeep: purge old rows, end pauses, and disable jobs without a user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import nsmallest

from msgspec.structs import replace

from scheduler_async.jobs.backfill import BackfillState
from scheduler_async.jobs.history import THE_SCHEDULER
from scheduler_async.jobs.job import Job
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import disablings, removal, resumptions
from scheduler_async.stores.decisions import all_resumed, can_be_purged, disabled_by, each, is_readable, rows_of_removal
from scheduler_async.stores.memory.base import DISABLED
from scheduler_async.stores.memory.jobs import JobWork
from scheduler_async.stores.memory.records import JobRecord, StoredRun
from scheduler_async.stores.messages import PURGED
from scheduler_async.timekeeping.instants import Micros


class UpkeepWork(JobWork):
    """The transactions of upkeep. For their purpose, see `Store`."""

    def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        jobs = (record.job for record in self._all_named(None))
        found = [job for job in jobs if job.user_id is None and job.state.phase is not DISABLED]
        edits = each(found, lambda job: disabled_by(self.decisions, job, reason, now))
        for edit in edits:
            self._put(edit.job)
        self._write_skips([(edit.job, edit.skips, now) for edit in edits])
        self._write_changes(disablings((job, edit, now) for job, edit in zip(found, edits, strict=True)))
        return [edit.job for edit in edits]

    def resume_paused(self, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        found = (self._tables.jobs[uid].job for uid in self._paused.until(now))
        paused = nsmallest(limit, filter(is_readable, found), key=lambda job: job.state.paused_until or 0)
        resumed = all_resumed(self.decisions, paused, now)
        edits = [edit for _, edit in resumed]
        for edit in edits:
            self._put(edit.job)
        self._write_skips([(edit.job, edit.skips, now) for edit in edits])
        self._write_changes(resumptions(resumed))
        return edits, now if len(edits) == limit else self._paused.first_after(now)

    def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        jobs = self._tables.jobs
        return [uid for uid in uids if uid in jobs and len(jobs[uid].runs) > keep]

    def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        for uid in self.overgrown(uids, keep):
            record = self._tables.jobs[uid]
            rows = (self._tables.runs[number] for number in record.runs[: len(record.runs) - keep])
            # Runs from before the clock was set back are kept until their time has come again: they do not run twice.
            old = [run for run in rows if run.outcome is not None and run.scheduled_for <= now]
            self._note_forgotten(record, old)
            self._delete_runs(record, {run.id for run in old})

    def _note_forgotten(self, record: JobRecord, old: Collection[StoredRun]) -> None:
        """Note the time up to which rows are missing."""
        job = record.job
        moments = [run.scheduled_for for run in old if run.is_attempt]
        until = max((at for at in (job.state.forgotten_until, *moments) if at is not None), default=None)
        self._put(job.with_state(replace(job.state, forgotten_until=until)))

    def purge_removed(self, before: Micros, limit: int) -> int:
        tables = self._tables
        old = (
            record
            for records in tables.removed.values()
            for record in records
            if record.removed_at is not None and record.removed_at < before and not record.held
        )
        gone = nsmallest(limit, old, key=lambda record: record.removed_at or 0)
        for record in gone:
            self._delete(record)
        return len(gone)

    def _delete(self, record: JobRecord) -> None:
        """Delete a removed job with its runs, its changes and its backfills."""
        tables, job = self._tables, record.job
        for number in record.runs:
            del tables.runs[number]
        for number in record.changes:
            del tables.changes[number]
        for backfill in self._backfills_of(job):
            del tables.backfills[backfill.number]
        del tables.jobs[job.uid]
        name = job.namespace, job.id
        tables.removed[name] = [one for one in tables.removed[name] if one is not record]
        if not tables.removed[name]:
            del tables.removed[name]

    def purge_disabled(
        self,
        before: Micros,
        limit: int,
        now: Micros,
        *,
        ended: bool,
        spared: Collection[tuple[str, str]] = (),
    ) -> list[Job]:
        disabled, jobs = self._disabled[ended], self._tables.jobs
        looked_at: list[Job] = []
        gone: list[Job] = []
        while len(gone) < limit and (some := disabled.take(before - 1, limit - len(gone))):
            looked_at += [jobs[uid].job for uid in some]
            found = (jobs[uid].job for uid in some)
            gone += [job for job in found if can_be_purged(job, spared) and not self._is_busy(jobs[job.uid])]
        for job in looked_at:  # what remains does not hide other jobs, and is here the next time
            disabled.put(job.uid, job.state.disabled_at)
        skips = dict(each(gone, lambda job: (job.uid, rows_of_removal(self.decisions, job, now))))
        for job in gone:
            self._let_go(jobs[job.uid], skips[job.uid], now)
        self._write_changes(removal(job, now, THE_SCHEDULER, PURGED[ended]) for job in gone)
        return gone

    def _is_busy(self, record: JobRecord) -> bool:
        """Return whether a run or a backfill of a job goes on. Disabled jobs may have backfills."""
        return bool(record.held) or any(one.state is BackfillState.RUNNING for one in self._backfills_of(record.job))
