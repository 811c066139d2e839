"""What comes next for a job, what it owes, and how it is given up: what the other rules share. Pure."""

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
    """Whether it runs, and what passes meanwhile is written down when that ends: no edit has settled it before."""
    state = job.state
    return state.activity is not Status.IDLE and state.next_run_at is None and job.anchor <= (state.last_run_at or 0)


def was_disabled_before(state: JobState) -> bool:
    """Whether the run in progress was asked for while the job was disabled."""
    return state.disabled_at is not None and state.disabled_at <= (state.last_run_at or 0)


def comes_during_its_run(state: JobState) -> bool:
    """Whether it runs, and what comes next was not due before that: if it comes meanwhile, the end of the run tells."""
    if state.activity is Status.IDLE or state.last_run_at is None or state.next_run_at is None:
        return False
    return state.retry_of is None and state.regular_at is None and state.next_run_at > state.last_run_at


def disabled(state: JobState, reason: str, now: Micros) -> JobState:
    """*state*, given up *now* for *reason*, which is for a person to read."""
    return replace(
        state, next_run_at=None, regular_at=None, phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now
    )


# ---------------------------------------------------------------- shared


def retry_policy(job: Job, rules: Rules) -> Retry:
    """The policy for failures: the job's own, or the scheduler's, which leaves one-shots alone."""
    if job.retry is not None:
        return job.retry
    return NO_RETRY if job.schedule.runs_once else rules.retry


def going_on(job: Job, state: JobState, following: Micros | None, now: Micros) -> JobState:
    """*state* with its next regular run; a schedule with nothing left has ended, unless it never began."""
    if following is None and job.schedule.runs_by_itself:
        return disabled(state, ENDED, now)
    return replace(state, next_run_at=following, retry_of=None, attempts=0, regular_at=None)


def owed(job: Job, now: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """What is due and has not run, as a row. What came while a job was paused or disabled is not owed."""
    state = job.state
    since = state.regular_at if state.regular_at is not None else state.next_run_at
    if state.retry_of is not None and state.regular_at is None:
        return ()  # only a retry, whose occurrence has its rows
    if state.phase is not Phase.DISABLED and comes_during_its_run(state):
        reason = SkipReason.ALREADY_RUNNING
    elif state.phase is not Phase.ACTIVE:
        return ()
    return passed_over(job, since, now, reason)
