"""The regular occurrences of a job: the latest, how many lie between two times, and which are caught up with. Pure.

`jobs.occurrences` finds the next. An occurrence takes place at its jittered time, which always comes before the next
occurrence. So the occurrences between two times are those of the schedule without jitter, except the last one before
each time: its jitter may not have passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from scheduler_async.jobs.enums import Misfire, SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.occurrences import anchor_of, following, jittered, next_regular, waiting_for_jitter
from scheduler_async.jobs.run import Skip
from scheduler_async.timekeeping.instants import SECOND, Micros, span

__all__ = [
    "count_between",
    "first_to_catch_up",
    "jittered",
    "latest_regular",
    "merged",
    "merged_and_next",
    "next_regular",
    "passed_over",
    "runs_each",
]

# A larger count is no more useful, and counting must stay cheap.
MAX_MISSED = 1_000_000


def latest_regular(job: Job, now: Micros) -> Micros | None:
    """Return the last regular occurrence up to *now*."""
    latest = job.schedule.latest_micros(now, anchor_of(job, now))
    at = jittered(job, latest)
    if latest is None or at is None or at <= now:
        return at
    return jittered(job, job.schedule.latest_micros(latest - 1, anchor_of(job, latest - 1)))


def merged(job: Job, after: Micros, until: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the regular occurrences after *after* and up to *until*, as a row."""
    first = following(job, after) if after < until else None
    if first is None or first > until:
        return ()
    missed = count_between(job, after, until)  # zero for a delay, which counts from the end of a run
    if not missed:
        return ()
    return (Skip(reason=reason, scheduled_for=first, missed=missed),)


def merged_and_next(
    job: Job, after: Micros, until: Micros, reason: SkipReason
) -> tuple[tuple[Skip, ...], Micros | None]:
    """Return the result of `merged`, and the first regular occurrence after *until*. This is faster than two calls."""
    first = following(job, after)
    none_between = after <= until and (first is None or first > until)
    forgotten = job.state.forgotten_until
    if none_between and (forgotten is None or forgotten <= until) and not job.schedule.counts_from_end:
        return (), first
    return merged(job, after, until, reason), next_regular(job, until)


def passed_over(job: Job, since: Micros | None, until: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the regular occurrences from *since* to *until*, which a retry or a delay replaced, as a row."""
    if since is None or since > until:
        return ()
    return (Skip(reason=reason, scheduled_for=since, missed=1 + count_between(job, since, until)),)


def count_between(job: Job, after: Micros, until: Micros) -> int:
    """Return how many regular occurrences are after *after* and up to *until*."""
    count = job.schedule.count_micros(after, until, anchor_of(job, after), MAX_MISSED)
    if job.schedule.jitter is None or until <= after:
        return count
    return count + (waiting_for_jitter(job, after) is not None) - (waiting_for_jitter(job, until) is not None)


def runs_each(job: Job) -> bool:
    """Return whether each missed occurrence of *job* runs. A one-shot has only one, and a delay has none."""
    return job.misfire is Misfire.RUN_ALL and not (job.schedule.runs_once or job.schedule.counts_from_end)


def first_to_catch_up(job: Job, at: Micros, now: Micros) -> tuple[Micros | None, tuple[Skip, ...]]:
    """Return the first occurrence from *at* to *now* that runs, and the row of those that do not.

    With `misfire="run_all"`, the newest ones run, oldest first. Those before are too many, or too old. None means that
    all of them are too old.
    """
    policy = job.description.policy
    oldest = at if policy.catch_up_window is None else max(at, now - span(policy.catch_up_window))
    # Counting is fast. Going through thousands of occurrences takes milliseconds, for each job of a claim.
    if not job.schedule.may_be_slow and count_between(job, oldest - 1, now) < policy.catch_up_limit:
        young = at if oldest == at else following(job, oldest - 1)
        first = None if young is None or young > now else young
    else:
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
