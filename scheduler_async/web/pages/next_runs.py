"""When jobs run next. Schedules are asked by the scheduler alone, which gives a slow one a thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.job import Job
from scheduler_async.web.visit import Visit


async def next_runs(visit: Visit, jobs: Sequence[Job]) -> list[datetime | None]:
    """Return when each of *jobs* runs next. A paused one runs after its pause, if that has an end."""
    asked = [job for job in jobs if _must_ask(job)]
    coming = iter(await visit.scheduler.coming_runs(asked, n=1))
    return [next(iter(next(coming)), None) if _must_ask(job) else job.next_run_at for job in jobs]


def _must_ask(job: Job) -> bool:
    """Return whether the schedule has to tell, since nothing on record does."""
    return job.status is Status.PAUSED or job.is_running
