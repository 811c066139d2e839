"""What `status` reads: schedulers, runs in progress, failures, overdue jobs, counts. `status_views` shows it.

It calls the public API only. Every answer is limited, so that a large store costs little more than a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from scheduler_async.cli.job_views import DONE
from scheduler_async.jobs.answers import Explanation, Node
from scheduler_async.jobs.enums import Outcome, Status
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.scheduler import Scheduler

# More than these are counted, but not listed.
MOST_RUNNING, MOST_FAILURES, MOST_OVERDUE = 10, 5, 5
# More jobs of one status are not counted.
MOST_COUNTED = 1_000
# A later start is a misfire: the default `misfire_grace` of a scheduler.
GRACE = timedelta(seconds=60)

# While the rows of a job are read, one of these is its run in progress. The others are about skipped occurrences.
_ROWS_OF_JOB = 5
# How many rows are added between two looks at most; and how many of these quick looks come before a thorough one.
_RECENT, _QUICK_LOOKS = 1_000, 60


@dataclass(frozen=True, kw_only=True)
class InProgress:
    """A job that is queued or running, and the row of its run."""

    job: Job
    run: RunRow | None
    """None if the run has ended since the job was read."""

    def elapsed(self, now: datetime) -> timedelta | None:
        """Return how long the run has been going on; None if it has not started."""
        if self.run is None or self.run.started_at is None:
            return None
        return max(now - self.run.started_at, timedelta(0))


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The state of a store at a time."""

    at: datetime
    nodes: Sequence[Node]
    running: Sequence[InProgress]
    failures: Sequence[RunRow]
    """The last failures, newest first."""
    overdue: Sequence[tuple[Job, Explanation]]
    """Jobs that should have started more than a minute ago, and why they have not."""
    has_more_overdue: bool
    counts: dict[str, int]
    """How many jobs have each status, up to `MOST_COUNTED`. "done" jobs are not among those that are "disabled"."""
    uncounted: Sequence[str]
    """The statuses that more jobs have than were counted."""
    following: Job | None
    """The job that runs next."""

    @property
    def alive(self) -> list[Node]:
        """The schedulers that send heartbeats."""
        return [node for node in self.nodes if node.lease]


class Observer:
    """Reads overviews of a store, one after another."""

    def __init__(self, scheduler: Scheduler, zone: tzinfo) -> None:
        self._scheduler, self._zone = scheduler, zone
        self._failures: list[RunRow] = []
        self._looks = 0

    async def read(self, now: datetime) -> Overview:
        """Return the state of the store *now*."""
        nodes = await self._scheduler.nodes()
        found = {status: await self._scheduler.list_jobs(status=status, limit=MOST_COUNTED + 1) for status in Status}
        jobs = {status: of_status[:MOST_COUNTED] for status, of_status in found.items()}
        overdue = await self._scheduler.list_jobs(status=Status.IDLE, due_before=now - GRACE, limit=MOST_OVERDUE + 1)
        in_progress = [*jobs[Status.RUNNING], *jobs[Status.QUEUED]][:MOST_RUNNING]
        counts = {status.value: len(of_status) for status, of_status in jobs.items()}
        done = sum(job.ended for job in jobs[Status.DISABLED])
        return Overview(
            at=now,
            nodes=nodes,
            running=[InProgress(job=job, run=await self._run_of(job)) for job in in_progress],
            failures=await self._last_failures(),
            overdue=[(job, await self._explain(job)) for job in overdue[:MOST_OVERDUE]],
            has_more_overdue=len(overdue) > MOST_OVERDUE,
            counts={**counts, "disabled": counts["disabled"] - done, DONE: done},
            uncounted=[status.value for status, of_status in found.items() if len(of_status) > MOST_COUNTED],
            following=next(
                (job for job in jobs[Status.IDLE] if job.next_run_at and job.next_run_at > now - GRACE), None
            ),
        )

    async def _run_of(self, job: Job) -> RunRow | None:
        rows = await self._scheduler.run_log(job.id, namespace=job.namespace, limit=_ROWS_OF_JOB)
        return next((row for row in rows if row.outcome is None), None)

    async def _explain(self, job: Job) -> Explanation:
        return await self._scheduler.explain(job.id, namespace=job.namespace, zone=self._zone)

    async def _last_failures(self) -> list[RunRow]:
        """Return the last failures. Where failures are rare, a thorough look reads the whole log, so most are quick."""
        if self._looks % _QUICK_LOOKS == 0:
            found = [
                row
                for outcome in Outcome
                if outcome.is_failure
                for row in await self._scheduler.run_log(outcome=outcome, limit=MOST_FAILURES)
            ]
        else:
            recent = await self._scheduler.run_log(limit=_RECENT)
            found = [*self._failures, *(row for row in recent if row.outcome is not None and row.outcome.is_failure)]
        self._looks += 1
        newest = sorted({row.id: row for row in found}.values(), key=lambda row: (ended_at(row), row.id), reverse=True)
        self._failures = newest[:MOST_FAILURES]
        return self._failures


def ended_at(row: RunRow) -> datetime:
    """Return when a run ended, or the nearest time that is known."""
    return row.finished_at or row.started_at or row.scheduled_for
