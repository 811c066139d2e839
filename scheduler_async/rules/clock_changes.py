"""Adjust jobs after the clock was set back. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.missed import next_regular
from scheduler_async.rules.plans import plan_of, planned
from scheduler_async.schedules.after import After
from scheduler_async.timekeeping.instants import Micros, span


def sooner(job: Job, now: Micros) -> Job | None:
    """Return the job after the clock was set back to *now*, or None if it does not change.

    The job must not wait until the clock reaches its old time again. An interval or cron job continues with the next
    occurrence on the new clock; its rows show which occurrences already ran. A delay, and the wait after a failure,
    keep their length. A cancelled run is repeated at once. A one-shot keeps its time.
    """
    state = job.state
    if state.next_run_at is None or state.next_run_at <= now:
        return None
    moved = job
    anchor = job.schedule.anchor_before(now, job.anchor)
    if anchor != job.anchor:
        moved = replace(job, anchor=anchor, revision=job.revision + 1)
    at, regular = state.next_run_at, state.regular_at
    if state.owed_until is not None and regular is not None and not state.consecutive_errors and state.retry_of is None:
        if regular <= now:
            return job.with_state(replace(state, next_run_at=now))
        at, regular = regular, None  # it has not come any more
        state = replace(state, regular_at=None, owed_until=None)
    if state.retry_of is not None or regular is not None:
        if state.retry_of is not None and not state.consecutive_errors:
            at = now  # its run was cancelled, and is repeated at once
        elif state.last_error_at is not None and state.last_error_at > now:
            at = min(at, now + max(at - state.last_error_at, 0))
            state = replace(state, last_error_at=now)
        regular = _earlier(regular, _soonest(moved, now))
    else:
        at = min(at, _soonest(moved, now) or at)
    period_start = _earlier(state.period_start, now)
    moved = moved.with_state(replace(state, next_run_at=at, regular_at=regular, period_start=period_start))
    if state.retries is not None:
        moved = _with_sooner_retries(moved, job.state, now)
    return None if moved == job else moved


def _with_sooner_retries(job: Job, before: JobState, now: Micros) -> Job:
    """Return *job* with the retries that it owes besides the first: each waits as long as before the clock was set."""
    plan, failed_at = plan_of(job.state), before.last_error_at or now

    def sooner(at: Micros) -> Micros:
        return min(at, now + max(at - failed_at, 0)) if before.consecutive_errors else min(at, now)

    first = int(before.retry_of is not None)
    further = (retry._replace(at=sooner(retry.at)) for retry in plan.retries[first:])
    not_before = None if plan.not_before is None else sooner(plan.not_before)
    plan = plan._replace(not_before=not_before, retries=(*plan.retries[:first], *further))
    goes_on = job.retry is None or job.retry.regular_times_go_on
    state = replace(job.state, last_error_at=_earlier(before.last_error_at, now))
    return job.with_state(planned(job, state, plan, now, retries_first=not goes_on))


def _soonest(job: Job, now: Micros) -> Micros | None:
    """Return the first occurrence after *now*. An ending of another job has come already, and its delay starts anew."""
    if isinstance(job.schedule, After):
        return now if job.schedule.delay is None else now + span(job.schedule.delay)
    return next_regular(job, now)


def _earlier(moment: Micros | None, other: Micros | None) -> Micros | None:
    return moment if moment is None or other is None else min(moment, other)
