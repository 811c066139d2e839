"""Apply the rules to jobs within a transaction: claims, endings, recoveries. All stores share this module. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from scheduler_async.jobs.enums import Outcome, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun, Ending, Skip, cancelled_on_request
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.rules.claiming import claim, claim_manually, ran_before, unclaim
from scheduler_async.rules.edits import disable, remove, resume
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.missed import next_regular, passed_over
from scheduler_async.rules.next_run import disabled
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.messages import NodeRow
from scheduler_async.stores.unreadable import is_count, shown_moment
from scheduler_async.timekeeping.instants import Micros

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
DISABLED, CANCELLED = Phase.DISABLED, Outcome.CANCELLED


def can_be_claimed(job: Job, handlers: Collection[str] | None) -> bool:
    """Return whether a queued job can be claimed for one of *handlers* (None means any).

    It cannot if its state cannot be read. It waits if its handler differs from that in its state, and is not
    registered.
    """
    is_here = handlers is None or job.handler in handlers or not job.enabled
    return is_here and not has_unreadable_state(job)


def claimed(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> Transition:
    """Claim a job by the rules. Disable a job that cannot be read, or whose schedule fails.

    A job that is claimed ahead of its time counts as claimed at its time.
    """
    if job.state.phase is DISABLED:
        return Transition(job, kind=EventKind.DISABLED)
    due = job.state.next_run_at
    moment = now if due is None or due < now else due
    try:
        taken = claim(job, moment, rules, activity)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, now)
    return replace(taken, kind=EventKind.DISABLED) if taken.job.state.phase is DISABLED else taken


def claimed_by_hand(
    job: Job, run_id: int, payload_json: str | None, now: Micros, *, queued: bool, requested_at: Micros | None = None
) -> ClaimedRun:
    """Claim a manual run of an idle job. Without *payload_json*, it gets the payload of the job.

    *requested_at* is the time of the request, if another process has asked for the run.
    """
    taken = claim_manually(job, now)
    assert taken.attempt is not None
    scheduled_for = now if requested_at is None else shown_moment(requested_at)
    return ClaimedRun.of(
        id=run_id,
        job=job.with_state(replace(taken.state, activity=Status.QUEUED if queued else Status.RUNNING)),
        attempt=replace(taken.attempt, scheduled_for=now if scheduled_for is None else scheduled_for),
        payload_json=job.description.payload_json if payload_json is None else payload_json,
        before=job.state,
    )


def is_running(job: Job, now: Micros) -> bool:
    """Return whether a run of *job* is in progress. One that was claimed ahead of its time has not begun."""
    state = job.state
    return state.activity is not Status.IDLE and (state.last_run_at is None or state.last_run_at <= now)


def earliest_of(jobs: Iterable[Job], at: Micros | None, count: int) -> tuple[Micros | None, int]:
    """Return the earliest due time of *jobs* and of *count* jobs due *at* a time, and how many are due then."""
    moments = [job.state.next_run_at for job in jobs if job.state.next_run_at is not None]
    first = min(moments) if moments else None
    if first is None or (at is not None and at < first):
        return at, count
    return first, max(moments.count(first), count if at == first else 0)


def _failing(job: Job, error: Exception, now: Micros) -> Transition:
    state = disabled(replace(job.state, activity=Status.IDLE), f"its schedule fails: {error}", now)
    return Transition(job.with_state(state), kind=EventKind.DISABLED)


def after(job: Job, ended: EndedRun, rules: Rules) -> Transition:
    """Return the change of *job* after a run. A schedule that raises an error disables the job."""
    try:
        left = after_run(job, ended.run, ended.ending, ended.finished_at, rules, ended.started_at)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, ended.finished_at)
    is_disabled = left.job.state.phase is DISABLED and job.state.phase is not DISABLED
    return replace(left, kind=EventKind.DISABLED) if is_disabled else left


def reviewed(job: Job, decide: Callable[[Job], Job | None]) -> Job | None:
    """Return the result of *decide* for a job. Return None if its schedule fails, which a claim handles later."""
    try:
        return decide(job)
    except Exception:  # one job must not stop the others
        return None


def after_repeat(run: ClaimedRun, latest: Micros | None, now: Micros) -> Job:
    """Return the job after a claim whose row already existed. *latest* is its last occurrence up to *now* with a row.

    The occurrence ran before the clock was set back, and the job continues with the next one. Without *latest*, the row
    belongs to another run, and the job stays unchanged.
    """
    if latest is None:
        return run.job.with_state(run.before)
    try:
        return run.job.with_state(ran_before(run.job, run.before, latest, now))
    except Exception as error:  # one job must not stop the others
        return _failing(run.job.with_state(run.before), error, now).job


NEVER_BEGAN = "The store failed during the claim; the handler never started."
"""The error of a run whose claim was written although the store's answer was lost."""


def process_gone(node: NodeRow) -> str:
    """Return the error of a run whose *node* died."""
    return f"The process of this run has died ({node.identity.name})."


def never_begun(run: ClaimedRun, reason: str | None) -> EndedRun:
    """Return the ending of a run that a caller has cancelled before its handler was called."""
    return EndedRun(run, cancelled_on_request(reason), None, run.claimed_at)


def cancelled_by_stop(ended: Iterable[EndedRun]) -> list[int]:
    """Return the runs that a stop has cancelled. A request to cancel them may have come too late to be noticed."""
    return [item.run.id for item in ended if item.ending.outcome is CANCELLED and not item.ending.on_request]


def with_cancel_requests(ended: Sequence[EndedRun], cancels: Mapping[int, str | None]) -> Sequence[EndedRun]:
    """Return *ended* with the requests to cancel them. *cancels* are the requested runs, with the reasons."""
    if not cancels:
        return ended
    return [
        replace(item, ending=replace(item.ending, reason=cancels[item.run.id], on_request=True))
        if item.run.id in cancels
        else item
        for item in ended
    ]


def interrupted(
    job: Job,
    run_id: int | None,
    row: Sequence[Any],
    problem: str,
    now: Micros,
    rules: Rules,
    cancels: Mapping[int, str | None] = MappingProxyType({}),
) -> tuple[Transition, EndedRun]:
    """Return the change of a claimed *job* whose run was interrupted, and the ending of that run.

    *cancels* are the runs that callers had cancelled, with their reasons: such a run counts as cancelled. *row*
    contains the occurrence, the attempt, the trigger, and the times of claim and start. All of them and *run_id* are
    None if there is no such row. A job whose state cannot be read stays unchanged.
    """
    *told, started_at = row
    tried = _attempt_of(job, *told)
    run = ClaimedRun.of(
        id=run_id or 0, job=job, attempt=tried, payload_json=job.description.payload_json, before=job.state
    )
    ending = Ending(outcome=Outcome.INTERRUPTED, error=problem)
    if run_id is not None and run_id in cancels:
        ending = replace(cancelled_on_request(cancels[run_id]), error=problem)
    at = _noticed_at(now, tried.claimed_at)
    ended = EndedRun(run=run, ending=ending, started_at=started_at, finished_at=at)
    if has_unreadable_state(job):
        return Transition(job), ended
    left = after(job, replace(ended, started_at=shown_moment(started_at)), rules)
    return replace(left, ending=ending) if ending.on_request else left, ended


def _attempt_of(
    job: Job,
    scheduled_for: Micros | None = None,
    number: int | None = None,
    trigger: str | None = None,
    claimed_at: Micros | None = None,
) -> Attempt:
    """Return the attempt of a claimed run from its row.

    If the row is missing or unreadable, use the state of its *job*.
    """
    at, since = shown_moment(scheduled_for), shown_moment(claimed_at)
    moment = since if since is not None else job.state.last_run_at or job.updated
    return Attempt(
        scheduled_for=moment if at is None else at,
        attempt=number if number is not None and is_count(number) else 1,
        trigger=_TRIGGERS.get(trigger, Trigger.SCHEDULE),
        claimed_at=moment,
    )


_TRIGGERS: dict[str | None, Trigger] = {trigger.value: trigger for trigger in Trigger}


def put_back(job: Job, run: ClaimedRun) -> tuple[Job, tuple[Skip, ...], Micros]:
    """Undo the claim of *run*. Return the job, the occurrences that it still skips, and the time of the change."""
    try:
        freed, at = unclaim(job, run.job, run.before, run)
    except Exception:  # one job must not stop the others; a claim notices the problem
        now = job.state
        state = replace(
            run.before,
            phase=now.phase,
            disabled_reason=now.disabled_reason,
            disabled_at=now.disabled_at,
            counted_until=now.counted_until,
            paused_reason=now.paused_reason,
            paused_until=now.paused_until,
            cursor=now.cursor,
            cursor_edits=now.cursor_edits,
        )
        return job.with_state(state), (), job.updated
    return freed.job, freed.skips, at


def is_readable(job: Job) -> bool:
    """Return whether all of *job* can be read, so that the rules can decide about it."""
    return not has_unreadable_state(job) and not job.description.unreadable


def can_be_purged(job: Job, spared: Collection[tuple[str, str]]) -> bool:
    """Return whether a disabled job may be removed: it can be read, and its name is not in *spared*."""
    return not has_unreadable_state(job) and (job.namespace, job.id) not in spared


def resumed_by_itself(job: Job, now: Micros) -> Transition:
    """Resume a job that was paused until a time, as of that time. It may be noticed only *now*.

    If a run ended in between, the next run is after its end. What passed since the end of the pause gets a row.
    """
    until = job.state.paused_until
    assert until is not None
    try:
        resumed = resume(job, until)
        following = resumed.state.next_run_at
        missed: tuple[Skip, ...] = ()
        if following is not None and not (job.schedule.runs_once or job.schedule.counts_from_end):
            last = min(following - 1, now)
            missed = passed_over(job, next_regular(job, until), last, SkipReason.ALREADY_RUNNING)
        return replace(resumed, skips=resumed.skips + missed, kind=EventKind.RESUMED)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, until)


def rows_of_removal(job: Job, now: Micros) -> tuple[Skip, ...]:
    """Return the last rows of a job that is removed *now*. A job that cannot be read has none."""
    if not is_readable(job):
        return ()
    try:
        return remove(job, now).skips
    except Exception:  # a schedule that fails has no occurrences that could be counted
        return ()


def disabled_by(job: Job, reason: str, now: Micros) -> Transition:
    """Disable *job* for *reason*. A run in progress continues. A schedule that fails does not matter."""
    try:
        change = disable(job, reason, now)
    except Exception:  # one job must not stop the others
        change = Transition(job.with_state(disabled(job.state, reason, now)))
    return replace(change, kind=EventKind.DISABLED)


def _noticed_at(now: Micros, claimed_at: Micros) -> Micros:
    """Return the time of a death that is noticed *now*. It is not before the claim, which may have been made ahead."""
    return claimed_at if now < claimed_at <= now + EARLIEST_CLAIM else now
