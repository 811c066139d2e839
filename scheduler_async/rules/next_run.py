"""The next run of a job, the occurrences that it owes, and disabling it: shared by the other rules. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.enums import ENDED, Phase, SkipReason, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.missed import merged, passed_over
from scheduler_async.rules.pending import without_retries
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.instants import Micros

NO_RETRY = Retry.none()

DISABLED = Phase.DISABLED  # many jobs may end at once, and this is faster


def owes_since_its_claim(job: Job) -> bool:
    """Return whether the ending of the run in progress must record the occurrences that pass during the run."""
    state = job.state
    return state.activity is not Status.IDLE and state.next_run_at is None and job.anchor <= (state.last_run_at or 0)


def comes_during_its_run(state: JobState) -> bool:
    """Return whether the next run was not due yet when the run in progress was claimed.

    If it passes meanwhile, the ending of the run records it.
    """
    if state.activity is Status.IDLE or state.last_run_at is None or state.next_run_at is None:
        return False
    return state.retry_of is None and state.regular_at is None and state.next_run_at > state.last_run_at


def disabled(state: JobState, reason: str, now: Micros) -> JobState:
    """Return *state* as disabled at *now*. *reason* is a sentence for users."""
    return replace(
        state,
        next_run_at=None,
        regular_at=None,
        phase=DISABLED,
        disabled_reason=reason,
        disabled_at=now,
        counted_until=state.counted_until if state.phase is DISABLED else now,
        owed_until=None,
        paused_reason=None,
        paused_until=None,
    )


def has_run_enough(job: Job, state: JobState) -> bool:
    """Return whether the job has run as often as it may."""
    most = job.description.policy.max_runs
    return most is not None and state.occurrences_run >= most


def failing_schedule(error: Exception) -> str:
    """Return why a job is disabled whose schedule raises an *error*."""
    return f"its schedule fails: {error}"


# ---------------------------------------------------------------- shared


def retry_policy(job: Job, rules: Rules) -> Retry:
    """Return the retry policy: the job's own, or the scheduler's, which does not apply to one-shots."""
    if job.retry is not None:
        return job.retry
    return NO_RETRY if job.schedule.runs_once else rules.retry


def with_cursor(state: JobState, cursor: str) -> JobState:
    """Return *state* with another cursor, given as JSON. "null" clears it."""
    return replace(state, cursor=None if cursor == "null" else cursor)


def with_next_run(job: Job, state: JobState, following: Micros | None, now: Micros) -> JobState:
    """Return *state* with its next regular run. A job whose schedule has no occurrence left has ended."""
    if following is None and job.schedule.runs_by_itself:
        return disabled(state, ENDED, now)
    fresh = replace(state, next_run_at=following, retry_of=None, attempts=0, regular_at=None, owed_until=None)
    if fresh.retries is None:
        return fresh
    return replace(fresh, retries=without_retries(fresh.retries) if fresh.running else None)


def with_owed(job: Job, state: JobState, at: Micros, owed_until: Micros, now: Micros) -> JobState:
    """Return *state* with the occurrence *at* as its next run, as the first of those that are owed."""
    return replace(with_next_run(job, state, at, now), owed_until=owed_until)


AWAY = {Phase.PAUSED: SkipReason.PAUSED, Phase.DISABLED: SkipReason.DISABLED}
"""Why a job does not run in a phase."""


def uncounted(job: Job, now: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the row of all occurrences up to *now* that have none, and do not run any more.

    *reason* is for occurrences that are due. Those of a stretch in which the job was paused or disabled, and those that
    passed during a run, have reasons of their own.
    """
    state = job.state
    if state.phase is not Phase.ACTIVE:
        if job.schedule.follows_runs:  # an ending before the pause, with a delay
            return passed_over(job, owed_ending(state), now, AWAY[state.phase])
        return merged(job, now if state.counted_until is None else state.counted_until, now, AWAY[state.phase])
    if owes_since_its_claim(job):
        if state.owed_until is not None:
            return passed_over(job, state.regular_at, now, reason)
        if state.regular_at is not None:
            return passed_over(job, state.regular_at, now, SkipReason.ALREADY_RUNNING)
        return merged(job, counted_since(state, state.last_run_at or now), now, SkipReason.ALREADY_RUNNING)
    if state.retry_of is not None and state.regular_at is None:
        return ()  # only a retry, whose occurrence already has rows
    since = state.regular_at if state.regular_at is not None else state.next_run_at
    is_overtaken = comes_during_its_run(state) and not job.schedule.follows_runs
    return passed_over(job, since, now, SkipReason.ALREADY_RUNNING if is_overtaken else reason)


def owed_ending(state: JobState) -> Micros | None:
    """Return when a job that follows another has to run because of an ending, if there was one since its last run."""
    return state.next_run_at if state.retry_of is None else state.regular_at


def counted_since(state: JobState, began: Micros) -> Micros:
    """Return from when on the occurrences during a run that *began* then have no row."""
    return began if state.counted_until is None else state.counted_until
