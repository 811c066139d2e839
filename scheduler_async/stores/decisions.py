"""What both stores decide about the jobs in their hands, by the rules: claims, endings, recoveries. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler_async.jobs.enums import Outcome, Phase, Status, Trigger
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun, Ending, Skip
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.rules.claiming import claim, claim_manually, ran_before, unclaim
from scheduler_async.rules.edits import disable
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.next_run import disabled
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.messages import NodeRow
from scheduler_async.stores.unreadable import is_count, shown_moment
from scheduler_async.timekeeping.instants import Micros


def can_be_claimed(job: Job, handlers: Collection[str] | None) -> bool:
    """Whether anything can be decided about a job that stood in line for one of *handlers*; None is any.

    Not if its state cannot be read; and it waits if its handler is another than its state says, and not here.
    """
    is_here = handlers is None or job.handler in handlers or not job.enabled
    return is_here and not has_unreadable_state(job)


def claimed(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> Transition:
    """What a claim does with a job; one that cannot be read, or whose schedule fails, is disabled.

    One that is claimed ahead of its time is claimed as of its time.
    """
    if job.state.phase is Phase.DISABLED:
        return Transition(job, kind=EventKind.DISABLED)
    due = job.state.next_run_at
    moment = now if due is None or due < now else due
    try:
        taken = claim(job, moment, rules, activity)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, now)
    return taken if taken.job.enabled else replace(taken, kind=EventKind.DISABLED)


def claimed_by_hand(job: Job, run_id: int, payload_json: str | None, now: Micros, *, queued: bool) -> ClaimedRun:
    """Return the run of an idle job that somebody asked for; without *payload_json*, with the payload of the job."""
    taken = claim_manually(job, now)
    assert taken.attempt is not None
    return ClaimedRun.of(
        id=run_id,
        job=job.with_state(replace(taken.state, activity=Status.QUEUED if queued else Status.RUNNING)),
        attempt=taken.attempt,
        payload_json=job.description.payload_json if payload_json is None else payload_json,
        before=job.state,
    )


def earliest_of(jobs: Iterable[Job], at: Micros | None, count: int) -> tuple[Micros | None, int]:
    """When the first of *jobs* is due, or so many at a moment, these among them or not; and how many are due then."""
    moments = [job.state.next_run_at for job in jobs if job.state.next_run_at is not None]
    first = min(moments) if moments else None
    if first is None or (at is not None and at < first):
        return at, count
    return first, max(moments.count(first), count if at == first else 0)


def _failing(job: Job, error: Exception, now: Micros) -> Transition:
    state = disabled(replace(job.state, activity=Status.IDLE), f"its schedule fails: {error}", now)
    return Transition(job.with_state(state), kind=EventKind.DISABLED)


def after(job: Job, ended: EndedRun, rules: Rules) -> Transition:
    """Return what a run leaves of its *job*; a schedule that no longer computes disables it."""
    return _after(job, ended.run, ended.ending, ended.started_at, ended.finished_at, rules)


def _after(
    job: Job, run: Attempt, ending: Ending, started_at: Micros | None, finished_at: Micros, rules: Rules
) -> Transition:
    try:
        left = after_run(job, run, ending, finished_at, rules, started_at)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, finished_at)
    return replace(left, kind=EventKind.DISABLED) if job.enabled and not left.job.enabled else left


def reviewed(job: Job, decide: Callable[[Job], Job | None]) -> Job | None:
    """What *decide* makes of a job; None also if its schedule fails, which is noticed when it comes due."""
    try:
        return decide(job)
    except Exception:  # whatever it is, it must not stop the others
        return None


def after_repeat(run: ClaimedRun, latest: Micros | None, now: Micros) -> Job:
    """The job of a run whose row was there already. *latest* is the last occurrence up to *now* that has a row.

    The occurrence ran before the clock went back, so that the job goes on with the next; or without *latest*, the row
    is that of another run, and the job stays as it was.
    """
    if latest is None:
        return run.job.with_state(run.before)
    try:
        return run.job.with_state(ran_before(run.job, run.before, latest, now))
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(run.job.with_state(run.before), error, now).job


NEVER_BEGAN = "The store failed when it was claimed; it never began."
"""What the row of a run says whose claim was written, but whose answer was lost."""


def process_gone(node: NodeRow) -> str:
    """Return what the row of a run says whose *node* died."""
    return f"The process that ran it is gone ({node.identity.name})."


def interrupted(
    job: Job, run_id: int | None, row: Sequence[Any], problem: str, now: Micros, rules: Rules
) -> tuple[Transition, EndedRun]:
    """Return what becomes of a claimed *job* whose run cannot go on, and how that run ended.

    *row* is what the row of the run says: the occurrence, the attempt, the trigger, when it was claimed and started.
    All of it is None, and *run_id* too, if there is no such row. A job whose state cannot be read stays as it is.
    """
    *told, started_at = row
    tried = _attempt_of(job, *told)
    run = ClaimedRun.of(
        id=run_id or 0, job=job, attempt=tried, payload_json=job.description.payload_json, before=job.state
    )
    ending = Ending(outcome=Outcome.INTERRUPTED, error=problem)
    at = _noticed_at(now, tried.claimed_at)
    is_readable = not has_unreadable_state(job)
    edit = _after(job, run, ending, shown_moment(started_at), at, rules) if is_readable else Transition(job)
    return edit, EndedRun(run=run, ending=ending, started_at=started_at, finished_at=at)


def _attempt_of(
    job: Job,
    scheduled_for: Micros | None = None,
    number: int | None = None,
    trigger: str | None = None,
    claimed_at: Micros | None = None,
) -> Attempt:
    """What a claimed run was for, as its row says; where that is gone or unreadable, as the state of its *job* says."""
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
    """*job* as if *run* had not been claimed; what it leaves out all the same, and as of when."""
    try:
        freed, at = unclaim(job, run.job, run.before, run)
    except Exception:  # whatever it is, it must not stop the others: a claim finds out
        now = job.state
        state = replace(run.before, phase=now.phase, disabled_reason=now.disabled_reason, disabled_at=now.disabled_at)
        return job.with_state(state), (), job.updated
    return freed.job, freed.skips, at


def disabled_by(job: Job, reason: str, now: Micros) -> Transition:
    """*job*, disabled for *reason* as by hand: a run in progress goes on. A schedule that fails does not matter."""
    try:
        change = disable(job, reason, now)
    except Exception:  # whatever it is, it must not stop the others
        change = Transition(job.with_state(disabled(job.state, reason, now)))
    return replace(change, kind=EventKind.DISABLED)


def _noticed_at(now: Micros, claimed_at: Micros) -> Micros:
    """As of when a death counts that is noticed *now*: one that was claimed ahead of its time, as of its time."""
    return claimed_at if now < claimed_at <= now + EARLIEST_CLAIM else now
