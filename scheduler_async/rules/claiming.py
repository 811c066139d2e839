"""Select the occurrence that a claim runs, and the occurrences that it skips. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.enums import Misfire, Overlap, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import Attempt, Skip
from scheduler_async.rules.edits import disable, pause
from scheduler_async.rules.missed import (
    first_to_catch_up,
    latest_regular,
    merged,
    next_regular,
    passed_over,
    runs_each,
)
from scheduler_async.rules.next_run import has_run_enough, retry_policy, uncounted, with_next_run
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import Micros, span

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
SCHEDULE, MISFIRE = Trigger.SCHEDULE, SkipReason.MISFIRE

CLAIMED_FIELDS = (
    *("activity", "next_run_at", "retry_of", "attempts", "regular_at", "retry_count", "last_run_at"),
    *("owed_until", "occurrences_run"),
)
"""The fields of a state that the claim of a run may change. A store need not write the others."""

# ---------------------------------------------------------------- claims


def claim(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> Transition:
    """Claim a job that is due: select the occurrence that runs, and skip the others.

    The oldest occurrence that is owed runs, and later ones merge into it. With `misfire="skip"`, only an occurrence
    within the grace period runs. With `misfire="run_all"`, later ones stay owed, within the grace period or not.
    *activity* is the new activity of the job if it runs.
    """
    state = job.state
    assert state.next_run_at is not None
    if state.retry_of is not None and not _is_overtaken(job, now, rules):
        attempt = Attempt(
            scheduled_for=state.retry_of, attempt=state.attempts + 1, trigger=Trigger.RETRY, claimed_at=now
        )
        taken = _taken(state, now, activity, state.retry_count)
        if state.owed_until is not None:  # they run after this one
            first, owed_until = state.regular_at, state.owed_until
            left_out: tuple[Skip, ...] = ()
            if first is not None and _has_missed_more(job, now):
                (first, left_out), owed_until = first_to_catch_up(job, first, now), now
            taken = replace(taken, regular_at=first, owed_until=None if first is None else owed_until)
            return Transition(job.with_state(taken), left_out, attempt=attempt)
        reason = SkipReason.ENDED if has_run_enough(job, state) else SkipReason.BACKOFF
        skips = passed_over(job, state.regular_at, now, reason)
        return Transition(job.with_state(taken), skips, attempt=attempt)

    at, skips = state.next_run_at, ()
    if state.regular_at is not None:
        if state.retry_of is not None or state.owed_until is not None:
            at = state.regular_at
        else:
            skips = passed_over(job, state.regular_at, at - 1, SkipReason.BACKOFF)
    if state.last_run_at is not None and at <= state.last_run_at and job.schedule.follows_runs:
        at = state.last_run_at + 1  # each time is used once; by a virtual clock, runs may be that close together
    if state.forgotten_until is not None and at <= state.forgotten_until and not job.schedule.follows_runs:
        # It ran before the clock was set back.
        return Transition(job.with_state(with_next_run(job, state, next_regular(job, at), now)), skips)
    fresh = _taken(state, now, activity, retry_count=0)
    if job.description.policy.max_runs is not None:
        fresh = replace(fresh, occurrences_run=state.occurrences_run + 1)
    if state.owed_until is not None and not _has_missed_more(job, now):
        # It may only have waited for a run to end, and not for longer than the grace period.
        may_be_on_time = at == state.owed_until and job.overlap is not Overlap.SKIP
        is_missed = not may_be_on_time or _is_late(job, at, now, rules)
        catches_up = is_missed and runs_each(job) and not job.schedule.follows_runs
        return _claim_owed(job, fresh, at, state.owed_until, now, skips, Trigger.CATCH_UP if catches_up else SCHEDULE)
    # What follows a run has waited for a run of its own, too, if that was going on.
    late = _is_late(job, state.next_run_at if job.schedule.follows_runs else at, now, rules)
    if late and job.misfire is Misfire.SKIP:
        return _skip_missed(job, fresh, at, now, rules, skips)
    if runs_each(job) and (late or _passed(job, at, now)):
        return _catch_up(job, fresh, at, now, skips)
    attempt = Attempt(at, 1, Trigger.CATCH_UP if late else SCHEDULE, now)
    return Transition(job.with_state(fresh), skips + merged(job, at, now, MISFIRE), attempt=attempt)


def _is_overtaken(job: Job, now: Micros, rules: Rules) -> bool:
    """Return whether the next regular occurrence has come before the retry, and replaces it."""
    regular_at = job.state.regular_at
    if job.state.owed_until is not None or has_run_enough(job, job.state):
        return False
    return regular_at is not None and regular_at <= now and retry_policy(job, rules).regular_times_go_on


def _skip_missed(
    job: Job, state: JobState, at: Micros, now: Micros, rules: Rules, skips: tuple[Skip, ...]
) -> Transition:
    """Skip the occurrences that are too late. The latest occurrence may still be in time."""
    waiting = _not_taken(job, state)
    latest = latest_regular(job, now)
    if latest is None or _is_late(job, latest, now, rules):
        skips = (*skips, *passed_over(job, at, now, MISFIRE))
        return Transition(job.with_state(with_next_run(job, waiting, next_regular(job, now), now)), skips)
    skips = (*skips, *passed_over(job, at, latest - 1, MISFIRE))
    attempt = Attempt(scheduled_for=latest, attempt=1, trigger=SCHEDULE, claimed_at=now)
    return Transition(job.with_state(state), skips, attempt=attempt)


def _catch_up(job: Job, state: JobState, at: Micros, now: Micros, skips: tuple[Skip, ...]) -> Transition:
    """Claim the first of the missed occurrences. Each of them runs, as far as the limits of the job allow it."""
    first, left_out = first_to_catch_up(job, at, now)
    if first is None:
        waiting = with_next_run(job, _not_taken(job, state), next_regular(job, now), now)
        return Transition(job.with_state(waiting), skips + left_out)
    return _claim_owed(job, state, first, now, now, skips + left_out, Trigger.CATCH_UP)


def _claim_owed(
    job: Job,
    state: JobState,
    at: Micros,
    owed_until: Micros,
    now: Micros,
    skips: tuple[Skip, ...],
    trigger: Trigger,
) -> Transition:
    """Claim the occurrence *at*, which is owed however late it is. What passed since the last one merges into it."""
    attempt = Attempt(at, 1, trigger, now)
    following = next_regular(job, at)
    if following is not None and following <= owed_until:
        return Transition(
            job.with_state(replace(state, regular_at=following, owed_until=owed_until)), skips, attempt=attempt
        )
    due_at = job.state.next_run_at
    if due_at is None or runs_each(job) or job.state.consecutive_errors:
        return Transition(job.with_state(state), skips + merged(job, at, now, MISFIRE), attempt=attempt)
    ran_until = min(max(at, due_at), now)  # it waited for a run that ended then
    overlapped = merged(job, at, ran_until, SkipReason.ALREADY_RUNNING)
    return Transition(job.with_state(state), skips + overlapped + merged(job, ran_until, now, MISFIRE), attempt=attempt)


def _has_missed_more(job: Job, now: Micros) -> bool:
    """Return whether *job* has missed occurrences since its next run, which it owes, became due."""
    state = job.state
    assert state.next_run_at is not None
    assert state.owed_until is not None
    return runs_each(job) and _passed(job, max(state.next_run_at, state.owed_until), now)


def _passed(job: Job, after: Micros, now: Micros) -> bool:
    """Return whether a regular occurrence after *after* has passed."""
    following = next_regular(job, after)
    return following is not None and following <= now


def claim_manually(job: Job, now: Micros) -> Transition:
    """Claim a manual run. The schedule and the failure count stay unchanged."""
    attempt = Attempt(scheduled_for=now, attempt=1, trigger=Trigger.MANUAL, claimed_at=now)
    return Transition(job.with_state(replace(job.state, activity=Status.QUEUED, last_run_at=now)), attempt=attempt)


def unclaim(job: Job, claimed: Job, before: JobState, run: Attempt) -> tuple[Transition, Micros]:
    """Undo the claim of *run*. Return the change of *job*, and the time at which it applies.

    *claimed* is the job as it was claimed, and *before* its state until then. If the job was edited, paused or disabled
    since, the occurrences that were due by that time get a row, as they would have without the claim.
    """
    phase = job.state.phase
    freed = replace(job.state, activity=Status.IDLE, last_run_at=before.last_run_at)
    has_other_schedule = job.schedule != claimed.schedule and not job.description.lacks("schedule")
    # An edit set the next run, or the run was manual. Endings of another job that came meanwhile are merged into it.
    is_set = freed.next_run_at is not None and (job.schedule.runs_by_itself or run.trigger is Trigger.MANUAL)
    if is_set or has_other_schedule:
        due_until = min(run.claimed_at, job.updated)
        is_owed = run.trigger is not Trigger.MANUAL
        skips = uncounted(claimed.with_state(before), due_until, MISFIRE) if is_owed else ()
        if phase is Phase.DISABLED:
            freed = replace(freed, next_run_at=None, regular_at=None)
        return Transition(job.with_state(freed), skips), job.updated
    active = job.with_state(
        replace(
            freed,
            next_run_at=before.next_run_at,
            retry_of=before.retry_of,
            attempts=before.attempts,
            regular_at=before.regular_at,
            owed_until=before.owed_until,
            occurrences_run=before.occurrences_run,
            retry_count=before.retry_count,
            phase=Phase.ACTIVE,
            disabled_reason=None,
            disabled_at=None,
            counted_until=None,
        )
    )
    if phase is Phase.ACTIVE:
        return Transition(active), job.updated
    at = job.updated if job.state.counted_until is None else job.state.counted_until
    due_until = min(run.claimed_at, at)  # later occurrences have got their rows
    change = pause(active, due_until) if phase is Phase.PAUSED else disable(active, "", due_until)
    away = replace(
        change.state,
        disabled_reason=freed.disabled_reason,
        disabled_at=freed.disabled_at,
        counted_until=at,
        paused_reason=freed.paused_reason,
        paused_until=freed.paused_until,
    )
    return Transition(job.with_state(away), change.skips), at


def ran_before(job: Job, before: JobState, latest: Micros, now: Micros) -> JobState:
    """Return the next state of a job whose occurrence already ran before the clock was set back.

    *before* is the state before the claim, which is discarded. *latest* is the last occurrence up to *now* that ran.
    An occurrence that follows the run of another job has not run, although its time was used.
    """
    if job.schedule.follows_runs:
        return replace(before, next_run_at=max(before.next_run_at or now, latest) + 1)
    return with_next_run(job, before, next_regular(job, latest), now)


def _is_late(job: Job, at: Micros, now: Micros, rules: Rules) -> bool:
    policy = job.description.policy
    grace = rules.misfire_grace if policy.misfire_grace is None else span(policy.misfire_grace)
    return grace is not None and now - at > grace


def _taken(state: JobState, now: Micros, activity: Status, retry_count: int) -> JobState:
    """Return *state* without a next run, which is set when the run ends."""
    return replace(
        state,
        activity=activity,
        next_run_at=None,
        retry_of=None,
        attempts=0,
        regular_at=None,
        owed_until=None,
        retry_count=retry_count,
        last_run_at=now,
    )


def _not_taken(job: Job, taken: JobState) -> JobState:
    """Return the state *taken* of a claim of *job* that runs nothing after all."""
    before = job.state
    return replace(taken, activity=Status.IDLE, last_run_at=before.last_run_at, occurrences_run=before.occurrences_run)
