"""The order in which due jobs start when not all can start. Pure.

A lower number goes first. Stores order due jobs by the same key in SQL, next to their claims: `stores/*/claims.py`.
PostgreSQL sorts only the jobs that have been due longest, of each handler and priority. `stores/ready_queue.py` keeps
the jobs that wait on SQLite.
"""

from __future__ import annotations

from scheduler_async.jobs.job import Job
from scheduler_async.timekeeping.instants import Micros


def order(job: Job) -> tuple[int, Micros, str]:
    """Return the sort key of a job: by priority, then longest since its last run (never run first), then by id."""
    last = job.state.last_run_at
    return job.priority.rank, -1 if last is None else last, job.id
