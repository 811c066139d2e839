"""The base of all transactions: the tables, and the steps that several transactions share.

A method is here if two modules need it. Otherwise it is in the module that needs it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from scheduler_async.jobs.enums import ENDED, Phase, Status, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.stores.change_codec import ChangeRecord
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.memory.due import DueJobs
from scheduler_async.stores.memory.records import JobRecord, Owner, StoredBackfill, StoredChange, StoredRun
from scheduler_async.stores.memory.timetable import Timetable
from scheduler_async.stores.messages import CancelRequest
from scheduler_async.stores.run_codec import Skipped, Tally, skip_values, tally_of_skips
from scheduler_async.timekeeping.instants import Micros

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
ACTIVE, PAUSED, DISABLED, IDLE = Phase.ACTIVE, Phase.PAUSED, Phase.DISABLED, Status.IDLE

T = TypeVar("T")


class Tables:
    """What the store keeps, by number. Numbers increase, and none is assigned twice."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.named: dict[str, dict[str, JobRecord]] = {}
        """Jobs by namespace and id, without the removed ones."""
        self.removed: dict[tuple[str, str], list[JobRecord]] = {}
        """Removed jobs by namespace and id."""
        self.runs: dict[int, StoredRun] = {}
        self.owners: dict[int, Owner] = {}
        """The owners of the runs in progress."""
        self.starts: dict[int, int] = {}
        """The runs that callers have asked for and that no node has taken up, with the numbers of their jobs."""
        self.cancels: dict[int, CancelRequest] = {}
        """The runs in progress that callers have asked to cancel."""
        self.backfills: dict[int, StoredBackfill] = {}
        self.changes: dict[int, StoredChange] = {}
        self.tally: Counter[tuple[Micros, str, str, str]] = Counter()
        """How many runs ended, by hour, namespace, outcome and node."""
        self.last_job = self.last_run = self.last_change = 0


class WorkBase:
    """The tables, their indexes, and the steps that several transactions share."""

    def __init__(self) -> None:
        self._tables = Tables()
        self.decisions = Decisions()
        self._undecided: set[int] = set()  # due jobs that claims have left out
        jobs = self._tables.jobs
        self._due = DueJobs(lambda uid: jobs[uid].job)
        self._node_name = ""
        """The name of the node that uses this store, as in the rows of its runs."""
        self._paused = Timetable()
        """The jobs that resume by themselves, by when."""
        self._disabled = {True: Timetable(), False: Timetable()}
        """The disabled jobs by when they were, by whether their schedules have ended."""

    # -------------------------------------------------------- jobs

    def _find(self, namespace: str, id: str) -> JobRecord | None:
        """Return the job with this name, unless it was removed."""
        return self._tables.named.get(namespace, {}).get(id)

    def _all_named(self, namespace: str | None, id: str | None = None) -> Iterator[JobRecord]:
        """Iterate over the jobs of a namespace, or of all, that were not removed."""
        named = self._tables.named
        for jobs in named.values() if namespace is None else (named.get(namespace, {}),):
            yield from jobs.values() if id is None else filter(None, (jobs.get(id),))

    def _add(self, job: Job) -> None:
        """Store a new job, which has its number."""
        record = JobRecord(job)
        self._tables.jobs[job.uid] = record
        self._tables.named.setdefault(job.namespace, {})[job.id] = record
        self._tables.last_job = max(self._tables.last_job, job.uid)
        self._put(job)

    def _put(self, job: Job) -> None:
        """Store a job as it is now."""
        record = self._tables.jobs[job.uid]
        before, state = record.job.state.phase, job.state
        record.job = job
        if record.removed_at is not None:
            return
        phase = state.phase
        can_be_due = phase is ACTIVE and state.activity is IDLE
        self._due.put(job.uid, state.next_run_at if can_be_due else None)
        if phase is not ACTIVE or before is not ACTIVE:
            self._paused.put(job.uid, state.paused_until if phase is PAUSED else None)
            for ended, disabled in self._disabled.items():
                is_of_these = phase is DISABLED and (state.disabled_reason == ENDED) is ended
                disabled.put(job.uid, state.disabled_at if is_of_these else None)

    def _remove(self, record: JobRecord, at: int) -> None:
        """Let a job go that is removed *at* a time. It releases its name."""
        job, tables = record.job, self._tables
        record.removed_at = at
        of_namespace = tables.named[job.namespace]
        del of_namespace[job.id]
        if not of_namespace:
            del tables.named[job.namespace]
        tables.removed.setdefault((job.namespace, job.id), []).append(record)
        self._due.put(job.uid, None)
        for timetable in (self._paused, *self._disabled.values()):
            timetable.put(job.uid, None)

    def _recounted(self, job: Job) -> Job:
        """Return *job* with the number of its runs, if it may have several. Their owners decide."""
        held = map(self._tables.owners.__getitem__, self._tables.jobs[job.uid].held)
        count = sum([owner.is_instance and owner.backfill is None for owner in held])
        return job if count == job.state.running else job.with_state(replace(job.state, running=count))

    # -------------------------------------------------------- owners of runs

    def _hold(self, run: ClaimedRun, node: int, backfill: int | None = None) -> None:
        """Write the owner of a claimed run."""
        self._tables.owners[run.id] = Owner(run.uid, node, run.is_instance, backfill)
        self._tables.jobs[run.uid].held += (run.id,)

    def _free(self, runs: Iterable[int]) -> None:
        """Delete the owners of *runs*, and the requests to cancel them."""
        tables = self._tables
        for run in runs:
            owner = tables.owners.pop(run)
            record = tables.jobs[owner.uid]
            record.held = () if record.held == (run,) else tuple(one for one in record.held if one != run)
            tables.cancels.pop(run, None)
            if owner.backfill is not None:
                tables.backfills[owner.backfill].held.discard(run)

    def _cancels_of(self, runs: Iterable[int]) -> Mapping[int, CancelRequest]:
        """Return those of *runs* that callers have asked to cancel."""
        cancels = self._tables.cancels
        return {run: cancels[run] for run in runs if run in cancels} if cancels else {}

    # -------------------------------------------------------- rows

    def _add_run(self, run: StoredRun) -> None:
        """Add a row to the run log."""
        tables = self._tables
        tables.runs[run.id] = run
        tables.last_run = max(tables.last_run, run.id)
        record = tables.jobs[run.uid]
        record.runs.append(run.id)
        if run.is_attempt:
            run.previous = record.attempts.get(run.scheduled_for)
            record.attempts[run.scheduled_for] = run.id

    def _attempts_at(self, record: JobRecord, occurrence: int) -> Iterator[StoredRun]:
        """Iterate over the attempts at an occurrence, the last one first."""
        number = record.attempts.get(occurrence)
        while number is not None:
            run = self._tables.runs[number]
            yield run
            number = run.previous

    def _delete_runs(self, record: JobRecord, gone: Collection[int]) -> None:
        """Delete rows of the run log of a job."""
        if not gone:
            return
        tables = self._tables
        for number in gone:
            run = tables.runs[number]
            if run.is_attempt:
                self._unlink_attempt(record, run)
            del tables.runs[number]
        first = bisect_left(record.runs, min(gone))
        record.runs[first:] = array("q", (number for number in record.runs[first:] if number not in gone))

    def _unlink_attempt(self, record: JobRecord, gone: StoredRun) -> None:
        later = next((run for run in self._attempts_at(record, gone.scheduled_for) if run.previous == gone.id), None)
        if later is not None:
            later.previous = gone.previous
        elif gone.previous is not None:
            record.attempts[gone.scheduled_for] = gone.previous
        else:
            del record.attempts[gone.scheduled_for]

    def _count_ended(self, tally: Tally, node: str | None = None) -> None:
        """Add *tally* to the numbers of runs that ended on a *node*; None is this one."""
        name = self._node_name if node is None else node
        for (hour, namespace, outcome), number in tally.items():
            self._tables.tally[hour, namespace, outcome, name] += number

    def _write_skips(self, skipped: Sequence[Skipped]) -> None:
        """Write the rows of skipped occurrences."""
        self._count_ended(tally_of_skips(skipped))
        for uid, at, claimed_at, finished_at, reason, missed in skip_values(skipped):
            self._add_run(
                StoredRun(
                    self._tables.last_run + 1,
                    uid,
                    at,
                    0,
                    Trigger.SCHEDULE,
                    claimed_at,
                    finished_at=finished_at,
                    outcome="skipped",
                    reason=reason,
                    missed=missed,
                )
            )

    def _write_changes(self, records: Iterable[ChangeRecord | StoredChange]) -> None:
        """Write changes of jobs."""
        tables = self._tables
        for record in records:
            tables.last_change += 1
            tables.changes[tables.last_change] = StoredChange(*record)
            tables.jobs[record[0]].changes.append(tables.last_change)


def above(table: dict[int, T], number: int) -> Iterator[T]:
    """Iterate over the values of *table* with higher numbers, in their order."""
    if table:
        first = max(number + 1, next(iter(table)))
        yield from (table[place] for place in range(first, next(reversed(table)) + 1) if place in table)
