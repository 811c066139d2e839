"""The plan of a job that may have several runs at once: its next regular occurrence, and the retries it owes. Pure.

Such a job is planned anew at each claim and at each ending, so its next run is known while others go on. A state keeps
the plan in the same fields as that of any other job. The rest, such as further retries, is in `pending`.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from scheduler_async.jobs.enums import Overlap, Phase, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import Attempt
from scheduler_async.rules.missed import latest_regular, next_regular, runs_each
from scheduler_async.rules.next_run import counted_since, has_run_enough, with_next_run
from scheduler_async.rules.pending import Pending, PendingRetry, pending_in
from scheduler_async.timekeeping.instants import Micros

CANCEL, DISABLED, IDLE, RUNNING = Overlap.CANCEL, Phase.DISABLED, Status.IDLE, Status.RUNNING

# More retries than this wait only if runs fail much faster than they can be repeated. The oldest are dropped.
MOST_RETRIES = 10_000


class Plan(NamedTuple):
    """What a job is to run, and when."""

    regular: Micros | None
    """The next regular occurrence. None if the ending of a run decides about it, or if there is none.

    After as many runs as the job may have, it is the first that gets no run, but a row.
    """
    not_before: Micros | None = None
    """When the regular occurrence may run, if failures postpone it."""
    retries: tuple[PendingRetry, ...] = ()
    owed_until: Micros | None = None
    """Regular occurrences up to this one are owed, however late."""
    catching_up: Micros | None = None
    """The missed occurrence that a run in progress makes up for. The next that is owed waits for the end of that run,
    although more runs may go on, unless it has a `not_before`."""

    @property
    def due(self) -> Micros | None:
        """When the regular occurrence may run, if it may run before a run has ended."""
        if self.catching_up is not None and self.owed_until is not None and self.not_before is None:
            return None
        return self.regular if self.regular is None or self.not_before is None else max(self.regular, self.not_before)

    def with_retry(self, at: Micros, of: Micros, attempts: int) -> Plan:
        """Return the plan with another retry."""
        return self._replace(retries=(*self.retries, PendingRetry(at, of, attempts))[-MOST_RETRIES:])


def is_exclusive(job: Job) -> bool:
    """Return whether the ending of a regular run decides when the next one is, so that there is one at a time."""
    return job.schedule.counts_from_end or job.schedule.runs_once or job.schedule.follows_runs


def most_runs(job: Job) -> int:
    """Return how many runs of *job* may go on at once. A job that runs after another has one at a time."""
    return job.description.policy.max_instances if job.description.has_instances else 1


def has_room(job: Job) -> bool:
    """Return whether another run of *job* may start."""
    if job.description.has_instances or job.state.running:
        return job.state.running < most_runs(job)
    return job.state.activity is IDLE


def plan_of(state: JobState) -> Plan:
    """Return the plan that *state* contains."""
    not_before, further, catching_up = pending_in(state.retries)
    if not state.running:
        catching_up = None
    if state.retry_of is not None and state.next_run_at is not None:
        first = PendingRetry(state.next_run_at, state.retry_of, state.attempts)
        return Plan(state.regular_at, not_before, (first, *further), state.owed_until, catching_up)
    if state.regular_at is not None:
        return Plan(state.regular_at, state.next_run_at, further, state.owed_until, catching_up)
    if state.owed_until is not None:
        not_before = state.next_run_at
    return Plan(state.next_run_at, not_before, further, state.owed_until, catching_up)


def without_catch_up(state: JobState, run: Attempt) -> JobState:
    """Return *state* after *run* has ended, or its claim was undone. The next missed occurrence may run now."""
    pending = pending_in(state.retries)
    if pending.catching_up != run.scheduled_for or run.trigger is Trigger.MANUAL:
        return state
    return replace(state, retries=pending._replace(catching_up=None).text)


def planned(job: Job, state: JobState, plan: Plan, now: Micros, *, retries_first: bool = False) -> JobState:
    """Return *state* with this *plan*. A job that has nothing left ends with its last run.

    With *retries_first*, regular occurrences wait until there is no retry.
    """
    is_last = has_run_enough(job, state)
    regular, due = plan.regular, None if is_last else plan.due
    retries = sorted(plan.retries)
    if (regular is None or is_last) and not retries and not state.running:
        return fitted(job, with_next_run(job, state, None, now))
    owed_until = None if regular is None else plan.owed_until
    first = retries[0] if retries else None
    cancels_next = job.overlap is CANCEL and state.running >= most_runs(job)
    if first is not None and not cancels_next and (due is None or retries_first or first.at <= due):
        not_before = plan.not_before if regular is not None else None
        state = replace(
            state,
            next_run_at=first.at,
            retry_of=first.of,
            attempts=first.attempts,
            regular_at=regular,
            owed_until=owed_until,
            retries=Pending(not_before, tuple(retries[1:]), plan.catching_up).text,
        )
    else:
        state = replace(
            state,
            next_run_at=due,
            retry_of=None,
            attempts=0,
            regular_at=None if due == regular else regular,
            owed_until=owed_until,
            retries=Pending(None, tuple(retries), plan.catching_up).text,
        )
    return fitted(job, state)


def fitted(job: Job, state: JobState) -> JobState:
    """Return *state* as RUNNING if no further run may be claimed before one has ended, otherwise as IDLE.

    With `overlap="cancel"`, a claim notices the next occurrence although as many runs go on as may.
    """
    cancels = job.description.has_instances and job.overlap is CANCEL
    is_full = state.running >= most_runs(job) and not cancels
    awaits_ending = state.next_run_at is None and job.schedule.runs_by_itself
    if state.phase is DISABLED and awaits_ending:  # it has no next run, but would have one if it was resumed
        awaits_ending = is_exclusive(job) or has_run_enough(job, state)
    activity = RUNNING if state.running and (is_full or awaits_ending) else IDLE
    return state if state.activity is activity else replace(state, activity=activity)


def converted(job: Job, state: JobState, now: Micros) -> JobState:
    """Return the *state* of a *job* whose policy was edited. A run in progress becomes the first of several.

    The store then keeps the owner of that run in a row of its own. The first occurrence since its claim is planned, so
    that it may start beside that run.
    """
    if not job.description.has_instances or state.activity is IDLE or state.running:
        return fitted(job, state) if state.running else state
    first = replace(state, running=1)
    is_planned = state.next_run_at is not None or is_exclusive(job) or not job.schedule.runs_by_itself
    if is_planned or state.phase is not Phase.ACTIVE or state.last_run_at is None:
        return fitted(job, first)
    if state.owed_until is not None and state.regular_at is not None:  # the run catches up
        catching_up = latest_regular(job, state.regular_at - 1) if runs_each(job) else None
        plan = Plan(state.regular_at, owed_until=state.owed_until, catching_up=catching_up)
        return planned(job, first, plan, now)
    try:
        plan = Plan(next_regular(job, counted_since(state, state.last_run_at)))
    except Exception:  # the schedule is not ours; the ending of the run notices it
        return fitted(job, first)
    return planned(job, first, plan, now)
