"""The regular occurrences of a job: the next, the latest, and how many lie between two times. Pure.

An occurrence takes place at its jittered time, which always comes before the next occurrence. So the occurrences
between two times are those of the schedule without jitter, except the last one before each time: its jitter may not
have passed.
"""

from __future__ import annotations

from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Skip
from scheduler_async.timekeeping.instants import Micros

# A larger count is no more useful, and counting must stay cheap.
MAX_MISSED = 1_000_000


def next_regular(job: Job, after: Micros) -> Micros | None:
    """Return the first regular occurrence after *after* that has not run."""
    forgotten = job.state.forgotten_until
    if forgotten is not None and forgotten > after:  # the clock was set back further than the run log reaches
        after = forgotten
    return _following(job, after)


def latest_regular(job: Job, now: Micros) -> Micros | None:
    """Return the last regular occurrence up to *now*."""
    latest = job.schedule.latest_micros(now, _anchor(job, now))
    at = jittered(job, latest)
    if latest is None or at is None or at <= now:
        return at
    return jittered(job, job.schedule.latest_micros(latest - 1, _anchor(job, latest - 1)))


def jittered(job: Job, at: Micros | None) -> Micros | None:
    """Return the occurrence *at* with its jitter."""
    return at if at is None or job.schedule.jitter is None else job.schedule.jittered(at, job.key)


def merged(job: Job, after: Micros, until: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the regular occurrences after *after* and up to *until*, as a row."""
    first = _following(job, after) if after < until else None
    if first is None or first > until:
        return ()
    missed = _count(job, after, until)  # zero for a delay, which counts from the end of a run
    if not missed:
        return ()
    return (Skip(reason=reason, scheduled_for=first, missed=missed),)


def merged_and_next(
    job: Job, after: Micros, until: Micros, reason: SkipReason
) -> tuple[tuple[Skip, ...], Micros | None]:
    """Return the result of `merged`, and the first regular occurrence after *until*. This is faster than two calls."""
    first = _following(job, after)
    none_between = after <= until and (first is None or first > until)
    forgotten = job.state.forgotten_until
    if none_between and (forgotten is None or forgotten <= until) and not job.schedule.counts_from_end:
        return (), first
    return merged(job, after, until, reason), next_regular(job, until)


def passed_over(job: Job, since: Micros | None, until: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the regular occurrences from *since* to *until*, which a retry or a delay replaced, as a row."""
    if since is None or since > until:
        return ()
    return (Skip(reason=reason, scheduled_for=since, missed=1 + _count(job, since, until)),)


def _following(job: Job, after: Micros) -> Micros | None:
    """Return the first regular occurrence after *after*."""
    schedule = job.schedule
    first = schedule.next_micros(after, schedule.anchor_before(after, job.anchor))
    if schedule.jitter is None:
        return first
    waiting = _waiting_for_jitter(job, after)
    return jittered(job, first) if waiting is None else waiting


def _waiting_for_jitter(job: Job, moment: Micros) -> Micros | None:
    """Return the occurrence that is due at *moment* except for its jitter, if there is one."""
    latest = job.schedule.latest_micros(moment, _anchor(job, moment))
    if latest is None or latest <= job.anchor:  # it precedes this schedule of the job
        return None
    at = jittered(job, latest)
    return at if at is not None and at > moment else None


def _count(job: Job, after: Micros, until: Micros) -> int:
    """Return how many regular occurrences are after *after* and up to *until*."""
    count = job.schedule.count_micros(after, until, _anchor(job, after), MAX_MISSED)
    if job.schedule.jitter is None or until <= after:
        return count
    return count + (_waiting_for_jitter(job, after) is not None) - (_waiting_for_jitter(job, until) is not None)


def _anchor(job: Job, moment: Micros) -> Micros:
    """Return the start of the grid for times after *moment*, which may precede the job if the clock was set back."""
    return job.schedule.anchor_before(moment, job.anchor)
