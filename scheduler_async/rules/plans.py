"""The plan of a job that may have several runs at once: its next regular occurrence, and the retries it owes. Pure.

Such a job is planned anew at each claim and at each ending, so its next run is known while others go on. A state keeps
the plan in the same fields as that of any other job. Only further retries need a field of their own.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from msgspec.structs import replace

from scheduler_async.jobs.enums import Overlap, Phase, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.missed import next_regular, runs_each
from scheduler_async.rules.next_run import counted_since, has_run_enough, with_next_run
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

CANCEL, DISABLED, IDLE, RUNNING = Overlap.CANCEL, Phase.DISABLED, Status.IDLE, Status.RUNNING

# More retries than this wait only if runs fail much faster than they can be repeated. The oldest are dropped.
MOST_RETRIES = 10_000


class PendingRetry(NamedTuple):
    """A retry that is not claimed yet."""

    at: Micros
    """When it is due."""
    of: Micros
    """The occurrence to retry."""
    attempts: int
    """How many attempts at it were made."""


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
    waits: bool = False
    """Whether the regular occurrence waits for a run to end, although more runs may go on."""

    @property
    def due(self) -> Micros | None:
        """When the regular occurrence may run, if it may run before a run has ended."""
        if self.waits:
            return None
        return self.regular if self.regular is None or self.not_before is None else max(self.regular, self.not_before)

    def with_retry(self, at: Micros, of: Micros, attempts: int) -> Plan:
        """Return the plan with another retry."""
        return self._replace(retries=(*self.retries, PendingRetry(at, of, attempts))[-MOST_RETRIES:])


def is_exclusive(job: Job) -> bool:
    """Return whether the ending of a regular run decides when the next one is, so that there is one at a time."""
    return job.schedule.counts_from_end or job.schedule.runs_once


def has_room(job: Job) -> bool:
    """Return whether another run of *job* may start."""
    policy = job.description.policy
    if job.description.has_instances or job.state.running:
        return job.state.running < policy.max_instances
    return job.state.activity is IDLE


def plan_of(state: JobState) -> Plan:
    """Return the plan that *state* contains."""
    not_before, further = _read(state.retries)
    if state.retry_of is not None and state.next_run_at is not None:
        first = PendingRetry(state.next_run_at, state.retry_of, state.attempts)
        return Plan(state.regular_at, not_before, (first, *further), state.owed_until)
    if state.regular_at is not None:
        return Plan(state.regular_at, state.next_run_at, further, state.owed_until)
    return Plan(state.next_run_at, not_before, further, state.owed_until)


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
    cancels_next = job.description.policy.overlap is CANCEL and state.running >= job.description.policy.max_instances
    if first is not None and not cancels_next and (due is None or retries_first or first.at <= due):
        not_before = plan.not_before if regular is not None else None
        state = replace(
            state,
            next_run_at=first.at,
            retry_of=first.of,
            attempts=first.attempts,
            regular_at=regular,
            owed_until=owed_until,
            retries=_written(not_before, retries[1:]),
        )
    else:
        state = replace(
            state,
            next_run_at=due,
            retry_of=None,
            attempts=0,
            regular_at=None if due == regular else regular,
            owed_until=owed_until,
            retries=_written(None, retries),
        )
    return fitted(job, state)


def fitted(job: Job, state: JobState) -> JobState:
    """Return *state* as RUNNING if no further run may be claimed before one has ended, otherwise as IDLE.

    With `overlap="cancel"`, a claim notices the next occurrence although as many runs go on as may.
    """
    policy = job.description.policy
    is_full = state.running >= policy.max_instances and policy.overlap is not CANCEL
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
    if state.owed_until is not None:  # the run catches up, and the next occurrence waits for its end
        plan = Plan(state.regular_at, owed_until=state.owed_until, waits=runs_each(job))
        return planned(job, first, plan, now)
    try:
        plan = Plan(next_regular(job, counted_since(state, state.last_run_at)))
    except Exception:  # the schedule is not ours; the ending of the run notices it
        return fitted(job, first)
    return planned(job, first, plan, now)


def _read(text: str | None) -> tuple[Micros | None, tuple[PendingRetry, ...]]:
    """Return when the regular occurrence may run, if it is postponed, and the further retries."""
    items = [] if text is None else json.loads(text)
    not_before, found = None, []
    for item in items if isinstance(items, list) else ():  # a damaged one is left out
        match item:
            case [int(at), None] if _is_moment(at):
                not_before = at
            case [int(at), int(of), int(attempts)] if _is_moment(at) and _is_moment(of) and attempts >= 0:
                found.append(PendingRetry(at, of, attempts))
    return not_before, tuple(found)


def _is_moment(value: int) -> bool:
    return FIRST <= value <= LAST


def _written(not_before: Micros | None, retries: list[PendingRetry]) -> str | None:
    items = [*([] if not_before is None else [[not_before, None]]), *map(list, retries)]
    return json.dumps(items, separators=(",", ":")) if items else None
