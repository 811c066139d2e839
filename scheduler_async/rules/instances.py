"""The claims and endings of a job that may have several runs at once. Pure.

These rules apply to jobs with `max_instances` above 1 or `overlap="cancel"`, and to jobs with runs that were claimed
when they had. The state counts the runs in progress. Each claim makes the plan of the job, in `plans`, so that the next
occurrence can be claimed while the run goes on. A delay and a one-shot have one regular run at a time all the same,
with manual runs beside it, and missed occurrences run one after another.
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_async.jobs.enums import OnInterrupt, Outcome, Overlap, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import RetryKind
from scheduler_async.jobs.run import Attempt, ClaimedRun, Ending, Skip
from scheduler_async.rules import claiming, finishing
from scheduler_async.rules.edits import disable
from scheduler_async.rules.missed import merged_and_next, next_regular, passed_over, runs_each
from scheduler_async.rules.next_run import counted_since, has_run_enough, retry_policy, uncounted, with_cursor
from scheduler_async.rules.pending import without_retries
from scheduler_async.rules.plans import Plan, fitted, is_exclusive, plan_of, planned, without_catch_up
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import Micros

SKIP, RUNNING, MANUAL = Overlap.SKIP, Status.RUNNING, Trigger.MANUAL

# ---------------------------------------------------------------- claims


def claim(job: Job, now: Micros, rules: Rules) -> Transition:
    """Claim a run of a job that is due, and plan the next one.

    If as many runs go on as may, the oldest must be cancelled: the result has `overlaps` and no attempt, and the
    occurrence waits for the end of a run.
    """
    state = job.state
    if state.running >= job.description.policy.max_instances:
        return Transition(job.with_state(replace(state, activity=RUNNING)), overlaps=True)
    if is_exclusive(job):
        taken = claiming.claim(job, now, rules, RUNNING)
        return _begun(taken, taken.state) if taken.attempt is not None else taken
    plan, goes_on = plan_of(state), retry_policy(job, rules).regular_times_go_on
    if state.retry_of is not None:
        first, *others = plan.retries
        attempt = Attempt(first.of, first.attempts + 1, Trigger.RETRY, now)
        skips: tuple[Skip, ...] = ()
        is_last = has_run_enough(job, state)
        if (is_last or not goes_on) and plan.owed_until is None:
            skips = passed_over(job, plan.regular, now, SkipReason.ENDED if is_last else SkipReason.BACKOFF)
            plan = plan._replace(regular=next_regular(job, now) if skips else plan.regular)
        if plan.owed_until is not None and runs_each(job):  # they run after this one
            plan = plan._replace(not_before=None, catching_up=plan.catching_up or attempt.scheduled_for)
        taken = Transition(job.with_state(replace(state, last_run_at=now)), skips, attempt=attempt)
        plan = plan._replace(retries=tuple(others))
    else:
        taken = claiming.claim(job, now, rules, RUNNING)
        if taken.attempt is None:
            plan = Plan(taken.state.next_run_at, retries=plan.retries, catching_up=plan.catching_up)
            return replace(taken, job=job.with_state(_planned_anew(job, taken.state, plan, now, goes_on)))
        catching_up = plan.catching_up
        if taken.attempt.trigger is Trigger.CATCH_UP and runs_each(job):
            if catching_up is not None:
                return _waiting(job, plan, taken, now, goes_on)
            catching_up = taken.attempt.scheduled_for
        regular, owed_until = taken.state.regular_at, taken.state.owed_until
        if owed_until is not None and has_run_enough(job, taken.state):  # the others do not run any more
            left_out = passed_over(job, regular, now, SkipReason.ENDED)
            taken, owed_until = replace(taken, skips=taken.skips + left_out), None
        regular = next_regular(job, now) if owed_until is None else regular
        plan = Plan(regular, None, plan.retries, owed_until, catching_up)
    begun = replace(taken.state, running=state.running + 1)
    return replace(taken, job=job.with_state(_planned_anew(job, begun, plan, now, goes_on)))


def _waiting(job: Job, plan: Plan, taken: Transition, now: Micros, goes_on: bool) -> Transition:
    """Return the job if the missed occurrence that was *taken* must wait for the end of the run that catches up."""
    assert taken.attempt is not None
    skips, plan = taken.skips, plan._replace(not_before=None)
    if plan.owed_until is None:
        plan = plan._replace(regular=taken.attempt.scheduled_for, owed_until=now)
    else:
        skips = ()  # they are counted when it runs
    return Transition(job.with_state(_planned_anew(job, job.state, plan, now, goes_on)), skips)


def claim_manually(job: Job, now: Micros) -> Transition:
    """Claim a manual run beside others. The schedule and the failure count stay unchanged."""
    taken = claiming.claim_manually(job, now)
    return _begun(taken, replace(taken.state, activity=job.state.activity))


def _begun(taken: Transition, state: JobState) -> Transition:
    begun = replace(state, running=taken.job.state.running + 1)
    return replace(taken, job=taken.job.with_state(fitted(taken.job, begun)))


def _planned_anew(job: Job, state: JobState, plan: Plan, now: Micros, goes_on: bool) -> JobState:
    return state if state.phase is Phase.DISABLED else planned(job, state, plan, now, retries_first=not goes_on)


def unclaim(job: Job, claimed: Job, before: JobState, run: Attempt) -> tuple[Transition, Micros]:
    """Undo the claim of *run*, like `claiming.unclaim`. Other runs of the job may go on."""
    state = job.state
    is_latest = state.last_run_at == run.claimed_at
    freed = replace(
        without_catch_up(state, run),
        running=max(state.running - 1, 0),
        last_run_at=before.last_run_at if is_latest else state.last_run_at,
    )
    if run.trigger is MANUAL:
        return Transition(job.with_state(fitted(job, freed))), job.updated
    if is_exclusive(job):
        undone, at = claiming.unclaim(job, claimed, before, run)
        left = replace(undone.state, running=freed.running, last_run_at=freed.last_run_at)
        return replace(undone, job=job.with_state(fitted(job, left))), at
    was_edited = job.anchor != claimed.anchor
    if was_edited or state.phase is not Phase.ACTIVE:
        is_owed = run.trigger is not Trigger.RETRY
        due_until = min(run.claimed_at, job.updated)
        skips = uncounted(claimed.with_state(before), due_until, SkipReason.MISFIRE) if is_owed else ()
        return Transition(job.with_state(fitted(job, freed)), skips), job.updated
    if run.trigger is not Trigger.RETRY and job.description.policy.max_runs is not None:
        freed = replace(freed, occurrences_run=max(freed.occurrences_run - 1, 0))
    plan, earlier = plan_of(freed), plan_of(before)
    moments = [at for at in (plan.regular, earlier.regular) if at is not None]
    plan = plan._replace(regular=min(moments, default=None))
    if run.trigger is Trigger.RETRY:
        plan = plan.with_retry(before.next_run_at or run.claimed_at, run.scheduled_for, run.attempt - 1)
    else:
        plan = plan._replace(not_before=earlier.not_before, owed_until=earlier.owed_until or plan.owed_until)
    goes_on = job.retry is None or job.retry.regular_times_go_on
    return Transition(job.with_state(_planned_anew(job, freed, plan, job.updated, goes_on))), job.updated


def ran_before(job: Job, before: JobState, run: Attempt, latest: Micros, now: Micros) -> JobState:
    """Return the next state of a job whose occurrence already ran, like `claiming.ran_before`."""
    if is_exclusive(job):
        return claiming.ran_before(job, before, latest, now)
    plan = plan_of(before)
    if run.trigger is Trigger.RETRY:
        return planned(job, before, plan._replace(retries=plan.retries[1:]), now)
    plan = Plan(next_regular(job, latest), retries=plan.retries, catching_up=plan.catching_up)
    return planned(job, before, plan, now)


# ---------------------------------------------------------------- after a run


def after_run(
    job: Job, run: Attempt, ending: Ending, now: Micros, rules: Rules, started_at: Micros | None = None
) -> Transition:
    """Return the job after one of its runs has ended, like `finishing.after_run`. The others go on."""
    if ending.disable:
        ended = after_run(job, run, replace(ending, disable=False), now, rules, started_at)
        given_up = disable(ended.job, finishing.RETURNED_FALSE, now)
        return Transition(given_up.job, ended.skips + given_up.skips)
    ended = _ended(job, run, ending, now, rules, started_at)
    if run.trigger is MANUAL and ending.outcome is Outcome.INTERRUPTED:
        ended = replace(ended, attempt=finishing.repeat_of(job, run, now, rules))
    if job.state.phase is Phase.PAUSED and ended.state.phase is Phase.DISABLED:  # which ends the pause
        return Transition(ended.job, uncounted(job, now, SkipReason.ALREADY_RUNNING), attempt=ended.attempt)
    return ended


def _ended(job: Job, run: Attempt, ending: Ending, now: Micros, rules: Rules, started_at: Micros | None) -> Transition:
    by_hand = run.trigger is MANUAL
    running = max(job.state.running - 1, 0)
    # The last run decides when the next regular run is, although it is manual or of an earlier schedule: the job may
    # have been resumed during it.
    is_beside = by_hand or _is_outdated(job, run)
    if is_exclusive(job) and (not is_beside or not running):
        left = finishing.after_run(job, run, ending, now, rules, started_at)
        return replace(left, job=job.with_state(fitted(job, replace(left.state, running=running))))
    state = without_catch_up(_counted(job, run, ending, now, started_at), run)
    state = replace(state, running=running, activity=job.state.activity)
    if state.phase is Phase.DISABLED:
        gone = replace(state, next_run_at=None, regular_at=None, retries=without_retries(state.retries))
        return Transition(job.with_state(fitted(job, gone)))
    if is_exclusive(job) or not job.schedule.runs_by_itself:
        return Transition(job.with_state(fitted(job, state)))
    plan, skips = _after_overlap(job, state, ending, run, now)
    if plan.regular is None and state.running:  # its schedule is over, and the other runs count none of these again
        state = replace(state, counted_until=now if state.phase is Phase.ACTIVE else state.counted_until)
    if by_hand or ending.outcome.is_success or _is_outdated(job, run):
        return Transition(job.with_state(planned(job, state, plan, now)), skips)
    failed = _after_failure(job, state, plan, run, ending, now, rules)
    if failed.state.phase is Phase.DISABLED:
        skips += passed_over(job, plan.regular, now, SkipReason.DISABLED)
    return Transition(failed, skips)


def _counted(job: Job, run: Attempt, ending: Ending, now: Micros, started_at: Micros | None) -> JobState:
    """Return the state with the outcome of a run. A process that died with several runs counts as one failure."""
    before = job.state
    last_run_at = max((at for at in (before.last_run_at, started_at) if at is not None), default=None)
    state = finishing.counted(before, ending, run.trigger is MANUAL, now, last_run_at)
    since = before.last_error_at
    is_same_death = before.interruptions > 0 and since is not None and run.claimed_at < since
    if ending.outcome is Outcome.INTERRUPTED and is_same_death:
        errors, deaths = before.consecutive_errors, before.interruptions
        state = replace(state, consecutive_errors=errors, interruptions=deaths)
    if ending.cursor is not None and ending.outcome.is_success and not finishing.has_set_cursor(job, run):
        state = with_cursor(state, ending.cursor)
    return state


def _after_overlap(
    job: Job, state: JobState, ending: Ending, run: Attempt, now: Micros
) -> tuple[Plan, tuple[Skip, ...]]:
    """Return the plan after occurrences have passed while as many runs went on as may, and their row.

    With `overlap="skip"`, all of them are merged into the row. Otherwise the first of them is due now.
    """
    plan, skips = plan_of(state), tuple[Skip, ...]()
    began = job.state.last_run_at or run.claimed_at
    interrupted = ending.outcome is Outcome.INTERRUPTED
    reason = SkipReason.INTERRUPTED if interrupted else SkipReason.ALREADY_RUNNING
    regular, is_last = plan.regular, has_run_enough(job, state)
    may_owe = job.overlap is not SKIP and state.phase is Phase.ACTIVE  # what passes during a pause does not run
    if is_last and regular is not None:
        if regular <= now and not state.running:  # all that passed during the last runs shares a row
            skips = passed_over(job, regular, now, SkipReason.ENDED)
            plan = plan._replace(regular=next_regular(job, now), owed_until=None)
    elif plan.owed_until is not None and runs_each(job):
        if plan.catching_up is None:
            plan = plan._replace(not_before=max(now, plan.not_before or now))
        return plan, ()
    elif regular is None:  # the claim did not plan it
        skips, regular = merged_and_next(job, counted_since(job.state, began), now, reason)
        if skips and may_owe and not is_last:
            first = skips[0].scheduled_for
            return plan._replace(regular=first, not_before=now, owed_until=first), ()
        plan = plan._replace(regular=regular)
    elif job.state.activity is not Status.IDLE and plan.owed_until is None and began < regular <= now:
        if may_owe:
            return plan._replace(not_before=now, owed_until=regular), ()
        skips = passed_over(job, regular, now, reason)
        plan = plan._replace(regular=next_regular(job, now), not_before=None)
    return plan, skips if state.phase is Phase.ACTIVE else ()  # otherwise, the end of the pause records them


def _is_outdated(job: Job, run: Attempt) -> bool:
    """Return whether the schedule was replaced since the claim of *run*. Its failure is not made good then."""
    return run.claimed_at < job.anchor or (isinstance(run, ClaimedRun) and run.job.anchor != job.anchor)


def _after_failure(
    job: Job, state: JobState, plan: Plan, run: Attempt, ending: Ending, now: Micros, rules: Rules
) -> Job:
    """Return the job after *run* has failed, or was cancelled: it is retried, or postpones the regular occurrence."""
    is_rerun = job.on_interrupt is OnInterrupt.RERUN
    interrupted = ending.outcome is Outcome.INTERRUPTED
    policy = retry_policy(job, rules)
    if not ending.outcome.is_failure:
        if ending.outcome is Outcome.CANCELLED and is_rerun and not ending.on_request:
            plan = plan.with_retry(now, run.scheduled_for, run.attempt)
        return job.with_state(planned(job, state, plan, now, retries_first=not policy.regular_times_go_on))
    at_once = interrupted and is_rerun
    # Each occurrence has its own retries in the window. A budget belongs to the job.
    is_in_window = policy.kind is RetryKind.IN_WINDOW
    consequence = policy.after_failure(
        failed_at=now,
        consecutive_errors=max(state.consecutive_errors, 1),
        retry_count=run.attempt - 1 if is_in_window else state.retry_count,
        period_start=state.period_start,
        at_once=at_once,
        interruptions=state.interruptions,
    )
    state = replace(state, retry_count=consequence.retry_count, period_start=consequence.period_start)
    if consequence.disable:
        return job.with_state(_given_up(job, state, run, finishing.too_many_failures(state), now))
    regular = None if has_run_enough(job, state) else plan.regular
    may_retry = at_once or (not interrupted and (regular is not None or job.retry is not None))
    retry_from = now + (0 if at_once else rules.retry_floor)
    retry_at, not_before = consequence.retry_at, consequence.not_before
    if regular is None and retry_at is None:
        retry_at = not_before
    if consequence.held and not may_retry:
        not_before = retry_at
    if retry_at is not None and may_retry and not (regular is None and consequence.held):
        earliest = retry_from if regular is None else min(retry_from, regular)
        plan = plan.with_retry(max(retry_at, earliest), run.scheduled_for, run.attempt)
    elif regular is not None and not_before is not None and not_before > regular:
        plan = plan._replace(not_before=max(not_before, plan.not_before or not_before))
    elif regular is None and not plan.retries and not state.running:
        return job.with_state(_given_up(job, state, run, finishing.last_run_failed(state), now))
    return job.with_state(planned(job, state, plan, now, retries_first=not policy.regular_times_go_on))


def _given_up(job: Job, state: JobState, run: Attempt, reason: str, now: Micros) -> JobState:
    return fitted(job, replace(finishing.failed_for_good(state, run, reason, now), retries=None))
