"""The missed occurrences that run with `misfire="run_all"`: the newest ones, oldest first. Pure."""

from __future__ import annotations

from scheduler_async.jobs.enums import Misfire, SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.missed import latest_regular, passed_over
from scheduler_async.timekeeping.instants import Micros, span


def runs_each(job: Job) -> bool:
    """Return whether each missed occurrence of *job* runs. A one-shot has only one, and a delay has none."""
    return job.misfire is Misfire.RUN_ALL and not (job.schedule.runs_once or job.schedule.counts_from_end)


def first_to_catch_up(job: Job, at: Micros, now: Micros) -> tuple[Micros | None, tuple[Skip, ...]]:
    """Return the first occurrence from *at* to *now* that runs, and the row of those that do not.

    Those before it are too many, or too old. None means that all of them are too old.
    """
    policy = job.description.policy
    oldest = at if policy.catch_up_window is None else max(at, now - span(policy.catch_up_window))
    first, moment = None, now
    for _ in range(policy.catch_up_limit):
        found = latest_regular(job, moment)
        if found is None or found < oldest:
            first = at if oldest == at else first
            break
        first, moment = found, found - 1
    return first, passed_over(job, at, now if first is None else first - 1, SkipReason.MISFIRE)
