"""What every store does with jobs and runs, whatever its SQL. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_async.foresight import EARLIEST_CLAIM
from scheduler_async.instants import Micros, from_micros
from scheduler_async.lifecycle import Rules, after_run, claim, disabled, success_in_time
from scheduler_async.models import (
    Attempt,
    Ending,
    Job,
    JobState,
    Outcome,
    Phase,
    RunRow,
    Skip,
    SkipReason,
    Status,
    Trigger,
)
from scheduler_async.rows import NEXT_RUN_AT, schedule_of
from scheduler_async.store import Aftermath, ClaimedRun, Edit, EndedRun


def claimed(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> tuple[Edit, Attempt | None]:
    """What a claim does with a job; one that cannot be read, or whose schedule fails, is disabled.

    One that is claimed ahead of its time is claimed as of its time.
    """
    if job.state.phase is Phase.DISABLED:
        return Edit(job=job, kind="disabled"), None
    due = job.state.next_run_at
    moment = now if due is None or due < now else due
    try:
        state, skips, attempt = claim(job, moment, rules, activity)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, now), None
    return Edit(job.with_state(state), skips, _kind_of(state)), attempt


def earliest_of(jobs: Iterable[Job], at: Micros | None, count: int) -> tuple[Micros | None, int]:
    """When the first of *jobs* is due, or so many at a moment, these among them or not; and how many are due then."""
    moments = [job.state.next_run_at for job in jobs if job.state.next_run_at is not None]
    first = min(moments) if moments else None
    if first is None or (at is not None and at < first):
        return at, count
    return first, max(moments.count(first), count if at == first else 0)


def _failing(job: Job, error: Exception, now: Micros) -> Edit:
    state = job.state._replace(activity=Status.IDLE)
    return Edit(job=job.with_state(disabled(state, f"its schedule fails: {error}", now)), kind="disabled")


def after(
    job: Job, run: ClaimedRun, ending: Ending, started_at: Micros | None, finished_at: Micros, rules: Rules
) -> Edit:
    """What a run leaves behind; a schedule that no longer computes disables its job."""
    try:
        state, skips = after_run(job, run.attempt, ending, finished_at, rules, started_at)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, finished_at)
    was_enabled = job.state.phase is not Phase.DISABLED
    return Edit(job.with_state(state), skips, _kind_of(state) if was_enabled else None)


_NOTHING = None, None


def aftermath(item: EndedRun, rules: Rules) -> Aftermath:
    """`after`, for a job that nobody has touched since it was claimed: what nearly all leave is found without it."""
    run, ending, finished_at = item.run, item.ending, item.finished_at
    description = run.description
    is_plain = ending.outcome is Outcome.SUCCESS and not ending.disable and run.trigger is not Trigger.MANUAL
    if is_plain and description is not None:
        told = ending.exit_code, ending.message
        since = max(run.claimed_at, run.scheduled_for)
        try:
            schedule, anchor = schedule_of(description)
            state = success_in_time(run.state, schedule, anchor, since, item.started_at, finished_at, told)
        except Exception as error:  # whatever it is, it must not stop the others
            return Aftermath.of(_failing(run.job, error, finished_at))
        if state is not None:
            next_run_at = state[NEXT_RUN_AT]
            kind = "disabled" if next_run_at is None else None
            return Aftermath(description, state, None, next_run_at, kind, (), told == _NOTHING)
    return Aftermath.of(after(run.job, run, ending, item.started_at, finished_at, rules))


def put_back(job: Job, run: ClaimedRun) -> Job:
    """*job* as if *run* had not been claimed: as it was before that, unless an edit has said otherwise since."""
    before = run.before
    state = job.state._replace(activity=Status.IDLE, last_run_at=before.last_run_at)
    if state.next_run_at is None and state.phase is not Phase.DISABLED and job.schedule == run.job.schedule:
        state = state._replace(
            next_run_at=before.next_run_at,
            retry_of=before.retry_of,
            attempts=before.attempts,
            regular_at=before.regular_at,
            retry_count=before.retry_count,
        )
    return job.with_state(state)


def noticed_at(now: Micros, claimed_at: Micros) -> Micros:
    """As of when a death counts that is noticed *now*: one that was claimed ahead of its time, as of its time."""
    return claimed_at if now < claimed_at <= now + EARLIEST_CLAIM else now


def _kind_of(state: JobState) -> str | None:
    return "disabled" if state.phase is Phase.DISABLED else None


def run_row(
    run_id: int,
    job_id: str,
    namespace: str,
    scheduled_for: Micros,
    started_at: Micros | None,
    finished_at: Micros | None,
    attempt: int,
    trigger: str,
    outcome: str | None,
    reason: str | None,
    missed: int,
    error: str | None,
    message: str | None,
    exit_code: int | None,
    node: str | None,
) -> RunRow:
    """The row of the run log that its columns make."""
    return RunRow(
        id=run_id,
        job_id=job_id,
        namespace=namespace,
        scheduled_for=from_micros(scheduled_for),
        started_at=None if started_at is None else from_micros(started_at),
        finished_at=None if finished_at is None else from_micros(finished_at),
        duration_ms=None if started_at is None or finished_at is None else max(finished_at - started_at, 0) / 1000,
        delay_ms=None if started_at is None else max(started_at - scheduled_for, 0) / 1000,
        attempt=attempt,
        trigger=Trigger(trigger),
        outcome=None if outcome is None else Outcome(outcome),
        reason=None if reason is None else SkipReason(reason),
        missed=missed,
        error=error,
        message=message,
        exit_code=exit_code,
        node=node,
    )


def row_of(item: EndedRun, node: str | None) -> RunRow:
    """The row that a run which has ended leaves."""
    run, ending = item.run, item.ending
    return RunRow(
        id=run.id,
        job_id=run.name[1],
        namespace=run.name[0],
        scheduled_for=from_micros(run.scheduled_for),
        started_at=from_micros(item.started_at),
        finished_at=from_micros(item.finished_at),
        duration_ms=max(item.finished_at - item.started_at, 0) / 1000,
        delay_ms=max(item.started_at - run.scheduled_for, 0) / 1000,
        attempt=run.number,
        trigger=run.trigger,
        outcome=ending.outcome,
        reason=SkipReason.INTERRUPTED if ending.outcome is Outcome.INTERRUPTED else None,
        error=ending.error,
        message=ending.message,
        exit_code=ending.exit_code,
        node=node,
    )


def row_of_skip(job: Job, skip: Skip, now: Micros) -> RunRow:
    """The row that occurrences leave which did not run; its id is known to the store only."""
    return RunRow(
        id=0,
        job_id=job.id,
        namespace=job.namespace,
        scheduled_for=from_micros(skip.scheduled_for),
        started_at=None,
        finished_at=from_micros(now),
        duration_ms=None,
        delay_ms=None,
        attempt=0,
        trigger=Trigger.SCHEDULE,
        outcome=Outcome.SKIPPED,
        reason=skip.reason,
        missed=skip.missed,
    )
