"""Jobs that run after others: which endings count, what an ending does to the job that waits for it, cycles. Pure.

A job with the schedule `After` is due from the ending that it waited for. Until it runs, further endings change
nothing; an ending during its run makes it due once more. `rules/finishing.py` treats such an ending as the next regular
occurrence. The store finds the successors of a run, and applies `after_ending` in the transaction that records how the
run ended (`stores/decisions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.jobs.enums import ENDED, Outcome, Phase
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.next_run import AWAY, retry_policy
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.schedules.after import After, RunEnds
from scheduler_async.timekeeping.instants import LAST, Micros, span

Name: TypeAlias = tuple[str, str]
"""The namespace and the id of a job."""


def predecessor_of(job: Job) -> Name | None:
    """Return the job after which *job* runs, or None if it does not wait for another."""
    schedule = job.schedule
    if not isinstance(schedule, After):
        return None
    return (job.namespace if schedule.namespace is None else schedule.namespace), schedule.job


def counts(schedule: After, outcome: Outcome) -> bool:
    """Return whether a run that ended with *outcome* is one that *schedule* waits for."""
    match schedule.outcome:
        case RunEnds.SUCCESS:
            return outcome.is_success
        case RunEnds.FAILURE:
            return outcome.is_failure
        case RunEnds.ANY:
            return True


def after_ending(job: Job, ended: Name, outcome: Outcome, at: Micros, rules: Rules) -> Transition | None:
    """Return the change of *job* after a run of the job *ended* has ended *at* a time, or None if it does not count.

    A job that already waits for its run stays unchanged. One that is paused or disabled skips the ending.
    """
    schedule, state = job.schedule, job.state
    if not isinstance(schedule, After) or predecessor_of(job) != ended or not counts(schedule, outcome):
        return None
    if state.phase is Phase.DISABLED and state.disabled_reason == ENDED:
        return None
    due = at if schedule.delay is None else min(at + span(schedule.delay), LAST)
    if state.phase is not Phase.ACTIVE:
        return Transition(job, (Skip(reason=AWAY[state.phase], scheduled_for=due, missed=1),))
    if state.retry_of is not None:  # what becomes of it depends on the policy, as for any regular occurrence
        waits = state.regular_at is not None
        return Transition(job if waits else job.with_state(replace(state, regular_at=due)))
    if state.next_run_at is not None:
        return Transition(job)
    return Transition(job.with_state(replace(state, next_run_at=max(due, _not_before(job, rules)))))


def _not_before(job: Job, rules: Rules) -> Micros:
    """Return the earliest time of the next run after failures. The policy may only postpone it."""
    state = job.state
    if not state.consecutive_errors or state.last_error_at is None:
        return 0
    consequence = retry_policy(job, rules).after_failure(
        failed_at=state.last_error_at,
        consecutive_errors=state.consecutive_errors,
        retry_count=state.retry_count,
        period_start=state.period_start,
    )
    return consequence.not_before or 0


def check_cycles(links: Mapping[Name, Name | None], changed: Iterable[Name]) -> None:
    """Raise `InvalidScheduleError` if one of the *changed* jobs would wait for itself, directly or through others.

    *links* name the predecessor of each job, if it has one.
    """
    sound: set[Name] = set()
    for name in changed:
        cycle = cycle_from(links, name, sound)
        if cycle:
            first, after = (quoted(shown) for shown in (*_shown(cycle), *_shown(cycle))[:2])
            raise InvalidScheduleError(
                f"Job {first} cannot run after {after}, since the jobs would wait for each other in a cycle: "
                f"{described_cycle(cycle)}. Give one of them another schedule."
            )


def cycle_from(links: Mapping[Name, Name | None], name: Name, sound: set[Name] | None = None) -> list[Name]:
    """Return the cycle of jobs to which *name* leads, each of which waits for the next; empty if there is none.

    *sound* are names that lead to none. If there is no cycle, those on the way are added to it.
    """
    path: dict[Name, None] = {}
    at: Name | None = name
    while at is not None and (sound is None or at not in sound):
        if at in path:
            return [*path][[*path].index(at) :]
        path[at] = None
        at = links.get(at)
    if sound is not None:
        sound |= path.keys()
    return []


# A sentence shows at most so many jobs of a cycle.
MOST_SHOWN = 20


def described_cycle(names: list[Name]) -> str:
    """Return a cycle in the order in which its jobs would run. Each of *names* waits for the next."""
    shown = _shown(names)
    order = [*shown[::-1][:MOST_SHOWN], *(["…"] if len(shown) > MOST_SHOWN else [])]
    return " → ".join([*order, order[0]])


def _shown(names: list[Name]) -> list[str]:
    are_together = len({namespace for namespace, _ in names}) == 1
    return [name[1] if are_together else key_of(*name) for name in names]
