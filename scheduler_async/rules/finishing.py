"""Change a job after its run has ended. Pure. `engine/recorder.py` commits and announces it.

How long a job waits after a failure, and when it is disabled, is in `jobs/retries.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.enums import ENDED, OnInterrupt, Outcome, Overlap, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import Consequence
from scheduler_async.jobs.run import Attempt, ClaimedRun, Ending, Skip
from scheduler_async.rules.edits import disable, resume
from scheduler_async.rules.missed import merged, merged_and_next, next_regular, passed_over, runs_each
from scheduler_async.rules.next_run import (
    counted_since,
    disabled,
    has_run_enough,
    retry_policy,
    uncounted,
    with_cursor,
    with_next_run,
)
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import FIRST, Micros

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
MANUAL, IDLE, PAUSED, DISABLED = Trigger.MANUAL, Status.IDLE, Phase.PAUSED, Phase.DISABLED
INTERRUPTED, CANCELLED, ALREADY_RUNNING = Outcome.INTERRUPTED, Outcome.CANCELLED, SkipReason.ALREADY_RUNNING
QUEUE = Overlap.QUEUE

RETURNED_FALSE = "its handler returned False"
"""Why a job is disabled whose handler returned False."""

# ---------------------------------------------------------------- after a run


def after_run(
    job: Job, run: Attempt, ending: Ending, now: Micros, rules: Rules, started_at: Micros | None = None
) -> Transition:
    """Return the job after *run* has ended, with its outcome, its counters and its next run.

    *job* is the current job. If it was paused or edited during the run, it stays so. *started_at* is the time when the
    handler was called.
    """
    if ending.disable:  # the run ends like any other, and then the job is disabled
        ended = after_run(job, run, replace(ending, disable=False), now, rules, started_at)
        given_up = disable(ended.job, RETURNED_FALSE, now)
        return Transition(given_up.job, ended.skips + given_up.skips)
    ended = _unless_it_was_the_last(job, _ended(job, run, ending, now, rules, started_at), now)
    # Which ends the pause.
    if job.state.phase is PAUSED and ended.state.phase is DISABLED and not job.schedule.follows_runs:
        return Transition(ended.job, uncounted(job, now, ALREADY_RUNNING), attempt=ended.attempt)
    return ended


def _ended(job: Job, run: Attempt, ending: Ending, now: Micros, rules: Rules, started_at: Micros | None) -> Transition:
    outcome = ending.outcome
    by_hand = run.trigger is MANUAL
    # Until its handler was called, the run counted from its claim.
    state = counted(job.state, ending, by_hand, now, job.state.last_run_at if started_at is None else started_at)
    if ending.cursor is not None and outcome.is_success and not has_set_cursor(job, run):
        state = with_cursor(state, ending.cursor)
    interrupted = outcome is INTERRUPTED
    reason = SkipReason.INTERRUPTED if interrupted else ALREADY_RUNNING
    # The run did not use the schedule, or an edit replaced it.
    if by_hand or (state.next_run_at is not None and job.schedule.runs_by_itself):
        left = _after_run_beside_schedule(job, state, run, now, reason)
        return replace(left, attempt=repeat_of(job, run, now, rules)) if by_hand and interrupted else left
    if state.phase is DISABLED:
        return Transition(job.with_state(state))
    if state.owed_until is not None:  # and more of them are owed
        left = _settled(job, state, run, ending, (), state.regular_at, now, rules)
        left_out = passed_over(job, state.regular_at, now, SkipReason.DISABLED)
        return _with_owed(left, state.owed_until, left_out, now if runs_each(job) else None)
    began = max(run.claimed_at, run.scheduled_for)
    skips, regular = merged_and_next(job, counted_since(job.state, began), now, reason)
    if skips and _waits(job) and state.phase is Phase.ACTIVE:
        first = skips[0].scheduled_for  # it has waited for this run to end
        return _with_owed(_settled(job, state, run, ending, (), first, now, rules), first, skips, now)
    if state.phase is PAUSED:
        skips = ()  # the end of the pause records them
    if regular is not None and regular == run.scheduled_for:  # the clock was set back during the run
        regular = next_regular(job, regular)
    came_meanwhile = state.next_run_at  # it runs after another job, of which a run has ended meanwhile
    if came_meanwhile is None:
        return _settled(job, state, run, ending, skips, regular, now, rules)
    left = _settled(job, state, run, ending, skips, came_meanwhile, now, rules)
    has_waited = came_meanwhile <= now and left.state.retry_of is None and left.state.next_run_at == came_meanwhile
    return _with_owed(left, came_meanwhile, left.skips, None) if has_waited else left


def _settled(
    job: Job,
    state: JobState,
    run: Attempt,
    ending: Ending,
    skips: tuple[Skip, ...],
    regular: Micros | None,
    now: Micros,
    rules: Rules,
) -> Transition:
    """Return the job with its next run: a retry, or *regular*, the next occurrence, perhaps put off."""
    outcome = ending.outcome
    interrupted = outcome is INTERRUPTED
    if outcome.is_success:
        return Transition(job.with_state(with_next_run(job, state, regular, now)), skips)
    follows = job.schedule.follows_runs and job.anchor <= run.claimed_at
    if not (job.schedule.runs_by_itself or follows):  # it may have become a manual job
        return Transition(job.with_state(with_next_run(job, state, regular, now)), skips)
    is_rerun = job.on_interrupt is OnInterrupt.RERUN
    if outcome is CANCELLED and is_rerun and not ending.on_request:
        return Transition(job.with_state(_retrying(state, run, now, regular)), skips)
    if not outcome.is_failure:
        return Transition(job.with_state(with_next_run(job, state, regular, now)), skips)

    at_once = interrupted and is_rerun
    policy = retry_policy(job, rules)
    consequence = policy.after_failure(
        failed_at=now,
        consecutive_errors=state.consecutive_errors,
        retry_count=state.retry_count,
        period_start=state.period_start,
        at_once=at_once,
        interruptions=state.interruptions,
    )
    comes_first = policy.regular_times_go_on and state.owed_until is None and not has_run_enough(job, state)
    if comes_first and regular is not None and now < regular <= (consequence.retry_at or FIRST):
        consequence = consequence._replace(retry_at=None)  # it replaces the retry, and runs at its time
    state = replace(state, retry_count=consequence.retry_count, period_start=consequence.period_start)
    # The scheduler's policy applies to recurring jobs. An interrupted run is repeated only if its job says so.
    may_retry = at_once or (not interrupted and (regular is not None or follows or job.retry is not None))
    retry_from = now + (0 if at_once else rules.retry_floor) if may_retry else None
    state = _after_failure(job, state, run, consequence, regular, retry_from, now)
    if follows and regular is not None and state.phase is DISABLED:  # what came meanwhile is not followed any more
        skips += passed_over(job, regular, max(regular, now), SkipReason.DISABLED)
    return Transition(job.with_state(state), skips)


def _with_owed(ended: Transition, owed_until: Micros, skips: tuple[Skip, ...], due_at: Micros | None) -> Transition:
    """Return *ended* with the occurrences that are still owed. If the job is given up, they are the *skips*.

    *due_at* is the time until which runs went on, unless there was a wait between them. The claim needs it.
    """
    state = ended.state
    if state.phase is DISABLED:
        return replace(ended, skips=skips)
    if due_at is not None and state.retry_of is None and state.regular_at is None:
        state = replace(state, next_run_at=due_at, regular_at=state.next_run_at)
    return replace(ended, job=ended.job.with_state(replace(state, owed_until=owed_until)))


def _unless_it_was_the_last(job: Job, ended: Transition, now: Micros) -> Transition:
    """Return *ended*. If as many occurrences of *job* have run as may, and none is retried, the job has ended."""
    state = ended.state
    if not has_run_enough(job, state) or state.phase is DISABLED or state.retry_of is not None:
        return ended
    due = state.regular_at if state.regular_at is not None else state.next_run_at
    skips = ended.skips + passed_over(job, due, now, SkipReason.ENDED)
    return replace(ended, job=job.with_state(disabled(state, ENDED, now)), skips=skips)


def repeat_of(job: Job, run: Attempt, now: Micros, rules: Rules) -> Attempt | None:
    """Return the next attempt at an interrupted manual run, as far as its job and the number of attempts allow one."""
    consequence = retry_policy(job, rules).after_failure(
        failed_at=now,
        consecutive_errors=run.attempt,
        retry_count=run.attempt - 1,
        period_start=run.scheduled_for,
        at_once=True,
        interruptions=run.attempt,
    )
    if job.on_interrupt is not OnInterrupt.RERUN or consequence.retry_at is None or consequence.held:
        return None
    return Attempt(run.scheduled_for, run.attempt + 1, MANUAL, now)


def has_set_cursor(job: Job, run: Attempt) -> bool:
    """Return whether a user has set the cursor of *job* since *run* was claimed. A run never undoes an edit."""
    return isinstance(run, ClaimedRun) and run.job.state.cursor_edits != job.state.cursor_edits


def counted(state: JobState, ending: Ending, by_hand: bool, now: Micros, last_run_at: Micros | None) -> JobState:
    """Return *state* with the outcome of a run and its effect on the counters. A manual run does not change them."""
    outcome = ending.outcome
    if state.counted_until is not None and state.phase is Phase.ACTIVE:  # it was paused or disabled during the run
        state = replace(state, counted_until=None)
    if outcome.is_failure:
        failed = replace(
            state,
            activity=IDLE,
            last_run_at=last_run_at,
            last_exit_code=ending.exit_code,
            last_message=ending.message,
            last_error_at=now,
            last_error=ending.error or outcome.value,
        )
        if by_hand:
            return failed
        interruptions = state.interruptions + 1 if outcome is INTERRUPTED else 0
        return replace(failed, consecutive_errors=state.consecutive_errors + 1, interruptions=interruptions)
    last_success_at = now if outcome.is_success else state.last_success_at
    forgives = not by_hand and (outcome.is_success or outcome is not CANCELLED)
    return replace(
        state,
        activity=IDLE,
        last_run_at=last_run_at,
        last_success_at=last_success_at,
        last_exit_code=ending.exit_code,
        last_message=ending.message,
        retry_count=0 if forgives else state.retry_count,
        period_start=None if forgives else state.period_start,
        consecutive_errors=0 if forgives else state.consecutive_errors,
        interruptions=0 if forgives else state.interruptions,
    )


def _after_failure(
    job: Job,
    state: JobState,
    run: Attempt,
    consequence: Consequence,
    regular: Micros | None,
    retry_from: Micros | None,
    now: Micros,
) -> JobState:
    """Return *state* after the failure of *run*. A retry is not before *retry_from*; None means no retry."""
    if consequence.disable:
        return failed_for_good(state, run, too_many_failures(state), now)
    retry_at, not_before = consequence.retry_at, consequence.not_before
    if not job.schedule.runs_by_itself:  # unless it is retried, it waits for the other job
        if retry_at is not None and retry_from is not None:
            return _retrying(state, run, max(retry_at, retry_from), regular)
        return with_next_run(job, state, regular if regular is None else max(regular, not_before or regular), now)
    if regular is None:
        # This was the last occurrence. Retry it while the policy allows; then the job ends.
        retry_at = retry_at if retry_at is not None else not_before
        if retry_at is None or consequence.held or retry_from is None:
            return failed_for_good(state, run, last_run_failed(state), now)
        return _retrying(state, run, max(retry_at, retry_from), None)
    if consequence.held and retry_from is None:
        not_before = retry_at
    if not_before is not None and not_before > regular:
        return replace(state, next_run_at=not_before, regular_at=regular)
    if retry_at is not None and retry_from is not None:
        return _retrying(state, run, max(retry_at, min(retry_from, regular)), regular)
    return with_next_run(job, state, regular, now)


def _retrying(state: JobState, run: Attempt, at: Micros, regular: Micros | None) -> JobState:
    return replace(state, next_run_at=at, retry_of=run.scheduled_for, attempts=run.attempt, regular_at=regular)


def too_many_failures(state: JobState) -> str:
    """Return why a job is disabled after the failures that *state* counts."""
    return f"{state.consecutive_errors} failures in a row, the last: {state.last_error}"


def last_run_failed(state: JobState) -> str:
    """Return why a job is disabled whose last occurrence has failed."""
    return f"its last run failed: {state.last_error}"


def _waits(job: Job) -> bool:
    """Return whether an occurrence that comes due during a run waits for its end."""
    has_grid = not (job.schedule.runs_once or job.schedule.counts_from_end)
    return has_grid and job.description.policy.overlap is QUEUE


def failed_for_good(state: JobState, run: Attempt, reason: str, now: Micros) -> JobState:
    """Return *state* as disabled. If the job is resumed, its next attempt gets a new number."""
    return replace(disabled(state, reason, now), retry_of=run.scheduled_for, attempts=run.attempt)


def _after_run_beside_schedule(job: Job, state: JobState, run: Attempt, now: Micros, reason: SkipReason) -> Transition:
    """Return the job after a run that leaves the next run unchanged: it was manual, or the schedule was edited.

    An occurrence that passed during the run is skipped. One that was due before the run is still due, and so is a
    one-shot.
    """
    by_hand = run.trigger is MANUAL
    if state.phase is DISABLED:
        return Transition(job.with_state(replace(state, next_run_at=None, regular_at=None)))
    is_active = state.phase is Phase.ACTIVE
    if state.next_run_at is None and job.schedule.runs_by_itself:
        # The job was disabled, and resumed during this run.
        counts = is_active and not job.schedule.runs_once
        skips = merged(job, counted_since(job.state, run.claimed_at), now, reason) if counts else ()
        resumed = resume(job.with_state(replace(state, phase=PAUSED)), now).state
        planned = replace(state, next_run_at=resumed.next_run_at, retry_of=resumed.retry_of, attempts=resumed.attempts)
        return Transition(job.with_state(planned), skips)
    if job.schedule.counts_from_end and not by_hand:
        return Transition(job.with_state(with_next_run(job, state, next_regular(job, now), now)))
    if not job.schedule.runs_by_itself:
        return Transition(job.with_state(state))  # a run of another job that has ended meanwhile is still followed
    at, since = state.next_run_at, run.claimed_at if by_hand else job.anchor
    if (
        (job.schedule.runs_once or job.schedule.counts_from_end)
        or state.retry_of is not None
        or state.owed_until is not None
        or at is None
        or not since < at <= now
    ):
        return Transition(job.with_state(state))
    skips = passed_over(job, state.regular_at, at - 1, SkipReason.BACKOFF)
    if is_active and _waits(job):
        return Transition(job.with_state(replace(state, next_run_at=now, regular_at=at, owed_until=at)), skips)
    skips += passed_over(job, at, now, reason)
    settled = job.with_state(with_next_run(job, state, next_regular(job, now), now))
    return Transition(settled, skips if is_active else ())
