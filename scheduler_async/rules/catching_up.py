"""The missed occurrences that run with `misfire="run_all"`: the newest ones, oldest first. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from scheduler_async.jobs.enums import Misfire, SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.occurrences import following
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.missed import latest_regular, passed_over
from scheduler_async.timekeeping.instants import SECOND, Micros, span


def runs_each(job: Job) -> bool:
    """Return whether each missed occurrence of *job* runs. A one-shot has only one, and a delay has none."""
    return job.misfire is Misfire.RUN_ALL and not (job.schedule.runs_once or job.schedule.counts_from_end)


def first_to_catch_up(job: Job, at: Micros, now: Micros) -> tuple[Micros | None, tuple[Skip, ...]]:
    """Return the first occurrence from *at* to *now* that runs, and the row of those that do not.

    Those before it are too many, or too old. None means that all of them are too old.
    """
    policy = job.description.policy
    oldest = at if policy.catch_up_window is None else max(at, now - span(policy.catch_up_window))
    newest = _newest_by_asking if job.schedule.may_be_slow else _newest_by_going_back
    found = newest(job, oldest, now, policy.catch_up_limit)
    first = at if oldest == at and len(found) < policy.catch_up_limit else min(found, default=None)
    return first, passed_over(job, at, now if first is None else first - 1, SkipReason.MISFIRE)


def _newest_by_going_back(job: Job, oldest: Micros, now: Micros, most: int) -> Collection[Micros]:
    """Return the latest occurrences from *oldest* to *now*, at most so many."""
    newest: list[Micros] = []
    found = latest_regular(job, now)
    while found is not None and found >= oldest and len(newest) < most:
        newest.append(found)
        found = latest_regular(job, found - 1)
    return newest


def _newest_by_asking(job: Job, oldest: Micros, now: Micros, most: int) -> Collection[Micros]:
    """Do the same for a schedule that is slow to tell its latest occurrence: it answers some questions for each."""
    reach = SECOND
    while True:
        since = max(oldest - 1, now - reach)
        newest = deque(_occurrences(job, since, now), maxlen=most)
        if len(newest) == most or since < oldest:
            return newest
        reach *= 4


def _occurrences(job: Job, after: Micros, until: Micros) -> Iterator[Micros]:
    found = following(job, after)
    while found is not None and found <= until:
        yield found
        found = following(job, found)
