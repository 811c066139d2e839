"""The next run of a job, the occurrences that it owes, and disabling it: shared by the other rules. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.enums import ENDED, Phase, SkipReason, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.missed import passed_over
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.instants import Micros

NO_RETRY = Retry.none()


def owes_since_its_claim(job: Job) -> bool:
    """Return whether the ending of the run in progress must record the occurrences that pass during the run."""
    state = job.state
    return state.activity is not Status.IDLE and state.next_run_at is None and job.anchor <= (state.last_run_at or 0)


def was_disabled_before(state: JobState) -> bool:
    """Return whether the run in progress was triggered while the job was disabled."""
    return state.disabled_at is not None and state.disabled_at <= (state.last_run_at or 0)


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
        state, next_run_at=None, regular_at=None, phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now
    )


# ---------------------------------------------------------------- shared


def retry_policy(job: Job, rules: Rules) -> Retry:
    """Return the retry policy: the job's own, or the scheduler's, which does not apply to one-shots."""
    if job.retry is not None:
        return job.retry
    return NO_RETRY if job.schedule.runs_once else rules.retry


def with_next_run(job: Job, state: JobState, following: Micros | None, now: Micros) -> JobState:
    """Return *state* with its next regular run. A job whose schedule has no occurrence left has ended."""
    if following is None and job.schedule.runs_by_itself:
        return disabled(state, ENDED, now)
    return replace(state, next_run_at=following, retry_of=None, attempts=0, regular_at=None)


def owed(job: Job, now: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the due occurrences that did not run, as a row. Occurrences during a pause are not owed."""
    state = job.state
    since = state.regular_at if state.regular_at is not None else state.next_run_at
    if state.retry_of is not None and state.regular_at is None:
        return ()  # only a retry, whose occurrence already has rows
    if state.phase is not Phase.DISABLED and comes_during_its_run(state):
        reason = SkipReason.ALREADY_RUNNING
    elif state.phase is not Phase.ACTIVE:
        return ()
    return passed_over(job, since, now, reason)
