"""The steps of a copy, which transfer jobs, runs and changes in slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from scheduler_async.jobs.enums import Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.stores.copy_records import (
    ChangeCopy,
    ChangeTold,
    LeftOut,
    RuleOfCopy,
    Ruling,
    RunKey,
    RunRecord,
    missing_changes,
)
from scheduler_async.stores.decisions import linked_by_copy, without_cycles
from scheduler_async.stores.memory.base import above
from scheduler_async.stores.memory.records import StoredChange, StoredRun
from scheduler_async.stores.memory.successors import SuccessorWork
from scheduler_async.stores.run_codec import tally_of_records


class CopyWork(SuccessorWork):
    """The transactions of copies. For their purpose, see `Store`."""

    def count(self) -> tuple[int, int]:
        tables = self._tables
        jobs = sum(map(len, tables.named.values()))
        return jobs, sum(self._is_copied(run) for run in tables.runs.values())

    def _is_copied(self, run: StoredRun) -> bool:
        return run.outcome is not None and self._tables.jobs[run.uid].removed_at is None

    def read_jobs(self, after: int, limit: int) -> list[Job | LeftOut]:
        records = (record for record in above(self._tables.jobs, after) if record.removed_at is None)
        return [record.job for record in islice(records, limit)]

    def read_runs(self, after: int, limit: int) -> list[RunRecord | LeftOut]:
        runs = (run for run in above(self._tables.runs, after) if self._is_copied(run))
        return [self._record_of(run) for run in islice(runs, limit)]

    def _record_of(self, run: StoredRun) -> RunRecord:
        job = self._tables.jobs[run.uid].job
        columns = {name: getattr(run, name) for name in RunRecord._fields if name not in ("namespace", "job_id")}
        return RunRecord(namespace=job.namespace, job_id=job.id, **columns)

    def write_jobs(self, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        here = {name: record.job for job in jobs if (record := self._find(*(name := (job.namespace, job.id))))}
        rulings = [rule(job, here.get((job.namespace, job.id))) for job in jobs]
        rulings = without_cycles(rulings, self._links_beyond(rulings), here)
        wanted = [ruling.job for ruling in rulings if ruling.verdict.writes]
        first = self._tables.last_job + 1
        added = [replace(job, uid=uid) for uid, job in enumerate((job for job in wanted if not job.uid), first)]
        updated = [job for job in wanted if job.uid]
        for job in added:
            self._add(job)
        for job in updated:
            self._put(job)
        linked = linked_by_copy(added, updated, here)
        self._link((here.get((job.namespace, job.id)), job) for job in linked)
        return rulings

    def write_runs(self, runs: Sequence[RunRecord]) -> int:
        tables, added = self._tables, 0
        for run in runs:
            record = self._find(run.namespace, run.job_id)
            if record is None or self._find_run(record.job.uid, run.key) is not None:
                continue
            columns = {**run._asdict(), "id": tables.last_run + 1, "trigger": Trigger(run.trigger)}
            del columns["namespace"], columns["job_id"]
            self._add_run(StoredRun(uid=record.job.uid, **columns))
            self._count_ended(tally_of_records([run]), run.node or "")
            added += 1
        return added

    def _find_run(self, uid: int, key: RunKey) -> int | None:
        """Return the number of a run of a job. An attempt at an occurrence has one row, whichever node made it."""
        record = self._tables.jobs[uid]
        if key.is_attempt:
            attempts = self._attempts_at(record, key.scheduled_for)
            return next((run.id for run in attempts if run.attempt == key.attempt), None)
        rows = (self._tables.runs[number] for number in record.runs)
        return next((run.id for run in rows if not run.is_attempt and _key_of(run) == key), None)

    def read_changes(self, after: int, limit: int) -> tuple[list[ChangeCopy], int | None]:
        numbers = [*islice(self._changes_above(after), limit)]
        found = (self._change_to_copy(number) for number in numbers)
        return [change for change in found if change is not None], numbers[-1] if numbers else None

    def _changes_above(self, after: int) -> Iterator[int]:
        changes = self._tables.changes
        first = max(after + 1, next(iter(changes), 1))
        return (number for number in range(first, self._tables.last_change + 1) if number in changes)

    def _change_to_copy(self, number: int) -> ChangeCopy | None:
        stored = self._tables.changes[number]
        record = self._tables.jobs[stored.uid]
        if record.removed_at is not None:
            return None
        return ChangeCopy(number, record.job.namespace, record.job.id, *stored[1:-1], stored.content)

    def write_changes(self, changes: Sequence[ChangeCopy]) -> int:
        found = ((self._find(change.namespace, change.job_id), change) for change in changes)
        ours = [(record.job.uid, change) for record, change in found if record is not None]
        wanted = [
            (uid, change.told(None if change.run is None else self._find_run(uid, change.run))) for uid, change in ours
        ]
        missing = missing_changes(wanted, {uid: self._latest_changes(uid) for uid, _ in ours})
        self._write_changes(StoredChange(uid, *told) for uid, told in missing)
        return len(missing)

    def _latest_changes(self, uid: int) -> list[ChangeTold]:
        """Return the last changes of a job, newest first, as far as they have the same time."""
        found: list[ChangeTold] = []
        for number in reversed(self._tables.jobs[uid].changes):
            stored = self._tables.changes[number]
            if found and stored.at != found[0][0]:
                break
            found.append((*stored[1:-1], stored.content))
        return found


def _key_of(run: StoredRun) -> RunKey:
    return RunKey(run.scheduled_for, run.attempt, run.trigger, run.claimed_at)
