"""Apply the rules to jobs within a transaction: claims, endings, recoveries. All stores share this module. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from scheduler_async.jobs.enums import Outcome, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun, Ending, Skip, cancelled_on_request
from scheduler_async.rules import instances
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.rules.claiming import claim, claim_manually, ran_before, unclaim
from scheduler_async.rules.edits import disable, end_pause, remove
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.missed import next_regular, passed_over
from scheduler_async.rules.next_run import disabled, failing_schedule, with_next_run
from scheduler_async.rules.plans import fitted, has_room
from scheduler_async.rules.successors import Name, after_ending, cycle_from, described_cycle, predecessor_of
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.schedules.unknown import UnreadSchedule
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.copy_records import LeftOut, Ruling, Verdict
from scheduler_async.stores.decided import CHANGE, END, INTERRUPT, RELEASE, REMOVE, RESUME, REVIEW, Decisions, Undecided
from scheduler_async.stores.messages import CancelRequest, Change, NodeRow
from scheduler_async.stores.unreadable import is_count, shown_moment
from scheduler_async.timekeeping.instants import Micros

T = TypeVar("T")
R = TypeVar("R")

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
DISABLED, CANCELLED, IS_DISABLED = Phase.DISABLED, Outcome.CANCELLED, EventKind.DISABLED


def can_be_claimed(job: Job, handlers: Collection[str] | None) -> bool:
    """Return whether a queued job can be claimed for one of *handlers* (None means any).

    It cannot if its state cannot be read. It waits if its handler differs from that in its state, and is not
    registered, or if this process does not know its schedule.
    """
    is_here = handlers is None or job.handler in handlers or not job.enabled
    is_known = job.schedule.is_known or not job.enabled or isinstance(job.schedule, UnreadSchedule)
    return is_here and not has_unreadable_state(job) and is_known


def claimed(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> Transition:
    """Claim a job by the rules. Disable a job that cannot be read, or whose schedule fails.

    A job that is claimed ahead of its time counts as claimed at its time.
    """
    if job.state.phase is DISABLED:
        return Transition(job, kind=EventKind.DISABLED)
    due = job.state.next_run_at
    moment = now if due is None or due < now else due
    try:
        several = job.description.has_instances
        taken = instances.claim(job, moment, rules) if several else claim(job, moment, rules, activity)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, now)
    return replace(taken, kind=EventKind.DISABLED) if taken.job.state.phase is DISABLED else taken


def claimed_by_hand(
    job: Job,
    run_id: int,
    payload_json: str | None,
    now: Micros,
    *,
    queued: bool,
    requested: tuple[Micros, int, int | None] | None = None,
) -> ClaimedRun:
    """Claim a manual run of an idle job. Without *payload_json*, it gets the payload of the job.

    If any node may make the run, *requested* is the time of the request, the attempt, and the first attempt's run.
    """
    several = job.description.has_instances
    taken = instances.claim_manually(job, now) if several else claim_manually(job, now)
    attempt, origin = taken.attempt, None
    assert attempt is not None
    if requested is not None:
        at, number, origin = requested
        requested_at = shown_moment(at)
        attempt = replace(
            attempt,
            scheduled_for=now if requested_at is None else requested_at,
            attempt=number if is_count(number) else 1,
        )
        origin = origin if origin is not None and is_count(origin) else run_id
    state = taken.state if several else replace(taken.state, activity=Status.QUEUED if queued else Status.RUNNING)
    return ClaimedRun.of(
        id=run_id,
        job=job.with_state(state),
        attempt=attempt,
        payload_json=job.description.payload_json if payload_json is None else payload_json,
        before=job.state,
        origin=origin,
        waits=several and queued,
    )


def is_running(job: Job, now: Micros) -> bool:
    """Return whether as many runs of *job* go on as may. One that was claimed ahead of its time has not begun."""
    state = job.state
    return not has_room(job) and (state.last_run_at is None or state.last_run_at <= now)


def earliest_of(jobs: Iterable[Job], at: Micros | None, count: int) -> tuple[Micros | None, int]:
    """Return the earliest due time of *jobs* and of *count* jobs due *at* a time, and how many are due then."""
    moments = [job.state.next_run_at for job in jobs if job.state.next_run_at is not None]
    first = min(moments) if moments else None
    if first is None or (at is not None and at < first):
        return at, count
    return first, max(moments.count(first), count if at == first else 0)


def are_due(jobs: Iterable[Job], now: Micros) -> bool:
    """Return whether one of *jobs* is due."""
    return any(job.state.next_run_at is not None and job.state.next_run_at <= now for job in jobs)


def _failing(job: Job, error: Exception, now: Micros, *, ended: bool = False) -> Transition:
    """Disable a job whose schedule fails. *ended* tells whether one of its runs has just ended."""
    running = max(job.state.running - ended, 0)
    state = disabled(replace(job.state, activity=Status.IDLE, running=running), failing_schedule(error), now)
    return Transition(job.with_state(state), kind=EventKind.DISABLED)


def after(job: Job, ended: EndedRun, rules: Rules) -> Transition:
    """Return the change of *job* after a run. A schedule that raises an error disables the job."""
    try:
        end = instances.after_run if job.state.running else after_run
        left = end(job, ended.run, ended.ending, ended.finished_at, rules, ended.started_at)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, ended.finished_at, ended=True)
    if not job.schedule.is_known:
        left = _left_to_others(job, left)
    is_disabled = left.job.state.phase is DISABLED and job.state.phase is not DISABLED
    return replace(left, kind=IS_DISABLED) if is_disabled else left


def left_by_run(decisions: Decisions, job: Job, ended: EndedRun, rules: Rules) -> Transition:
    """Return the change of a job after a run. Raise `Undecided` if its schedule may be slow."""
    if not job.schedule.may_be_slow:
        return after(job, ended, rules)
    is_as_claimed = job is ended.run.job  # a store tries this first, and then the job as it is now
    key = (END, ended.run.id, ended.ending.outcome, ended.ending.on_request, is_as_claimed)
    return decisions.about(job, key, ended.finished_at, partial(after, job, ended, rules))


def _left_to_others(job: Job, left: Transition) -> Transition:
    """Return *left* so that a process that knows the schedule finds the next run when it claims the job."""
    state, at = left.state, left.state.next_run_at
    if at is None or at == job.state.next_run_at:  # the schedule was not asked
        return left
    if state.retry_of is not None:
        return replace(left, job=left.job.with_state(replace(state, regular_at=None)))
    # A claim goes on from here, and does not run what is marked as past.
    return replace(left, job=left.job.with_state(replace(state, forgotten_until=at)))


def _reviewed(job: Job, decide: Callable[[Job], Job | None]) -> Job | None:
    """Return the result of *decide* for a job. Return None if its schedule fails, which a claim handles later."""
    try:
        return decide(job)
    except Exception:  # one job must not stop the others
        return None


def reviewed_all(
    decisions: Decisions, jobs: Iterable[Job], now: Micros, decide: Callable[[Job], Job | None]
) -> list[tuple[Job, Job]]:
    """Return those of *jobs* that *decide* changes, each as it was and as it is then.

    Only readable ones change, and those about which it is decided.
    """
    changed = []
    for before in filter(is_readable, jobs):
        make = partial(_reviewed, before, decide)
        try:
            is_slow = before.schedule.may_be_slow
            job = decisions.about(before, (REVIEW, before.uid), now, make) if is_slow else make()
        except Undecided:
            continue
        if job is not None:
            changed.append((before, job))
    return changed


def after_repeat(run: ClaimedRun, latest: Micros | None, now: Micros) -> Job:
    """Return the job after a claim whose row already existed. *latest* is its last occurrence up to *now* with a row.

    The occurrence ran before the clock was set back, and the job continues with the next one. Without *latest*, the row
    belongs to another run, and the job stays unchanged.
    """
    if latest is None:
        return run.job.with_state(run.before)
    if run.job.schedule.may_be_slow:  # the next claim goes on from there
        before = run.before
        at = before.next_run_at if before.regular_at is None else before.regular_at
        return run.job.with_state(replace(with_next_run(run.job, before, at, now), forgotten_until=latest))
    try:
        if run.is_instance:
            return run.job.with_state(instances.ran_before(run.job, run.before, run, latest, now))
        return run.job.with_state(ran_before(run.job, run.before, latest, now))
    except Exception as error:  # one job must not stop the others
        return _failing(run.job.with_state(run.before), error, now).job


class Woken(NamedTuple):
    """What endings have done to a job that runs after others."""

    change: Transition
    run: int
    """The last run whose ending counted."""
    at: Micros
    """When that was."""
    is_changed: bool
    """Whether its state has changed."""


def woken_by(ended: Iterable[EndedRun], successors: Mapping[Name, Sequence[Job]], rules: Rules) -> list[Woken]:
    """Return what the endings of runs do to the jobs that run after theirs. *successors* are given by predecessor."""
    woken: dict[int, Woken] = {}
    for item in sorted(ended, key=lambda item: (item.finished_at, item.run.id)):
        for job in successors.get(item.run.name, ()):
            before = woken.get(job.uid)
            current = job if before is None else before.change.job
            if not is_readable(current):
                continue
            change = after_ending(current, item.run.name, item.ending.outcome, item.finished_at, rules)
            if change is not None:
                skips = change.skips if before is None else before.change.skips + change.skips
                change = replace(change, skips=skips)
                is_changed = change.job.state != job.state
                woken[job.uid] = Woken(change, item.run.id, item.finished_at, is_changed)
    return [woken[uid] for uid in sorted(woken)]


def is_relinked(before: Job, job: Job) -> bool:
    """Return whether an edit has changed the schedule of a job that follows another, or followed one."""
    follows = before.description.schedule.follows_runs or job.description.schedule.follows_runs
    return follows and before.description.schedule != job.description.schedule


def linked_by_copy(added: Iterable[Job], updated: Iterable[Job], here: Mapping[Name, Job | LeftOut]) -> list[Job]:
    """Return the jobs that a copy has written and that follow others, or may have done so as they were *here*."""
    linked = [job for job in added if job.description.schedule.follows_runs]
    for job in updated:
        before = here.get((job.namespace, job.id))
        if not isinstance(before, Job) or is_relinked(before, job):
            linked.append(job)
    return linked


def without_cycles(
    rulings: Iterable[Ruling], links: Mapping[Name, Name | None], here: Mapping[Name, Job | LeftOut]
) -> list[Ruling]:
    """Return the *rulings* of a copy, without jobs that would wait for themselves in the target.

    *links* name the predecessors of the jobs in the target that the given ones may lead to.
    """
    known = dict(links)
    found = []
    for ruling in rulings:
        job, name = ruling.job, (ruling.job.namespace, ruling.job.id)
        if ruling.verdict.writes and job.description.schedule.follows_runs:
            before, known[name] = known.get(name), predecessor_of(job)
            cycle = cycle_from(known, name)
            if cycle:
                known[name] = before
                why = f"it would wait for itself in the target, in the cycle {described_cycle(cycle)}"
                there = here.get(name)
                verdict, left = (Verdict.KEPT, there) if isinstance(there, Job) else (Verdict.LEFT_OUT, job)
                found.append(Ruling(verdict, left, why))
                continue
        found.append(ruling)
    return found


def with_successors(left: Transition, run: int, woken: Iterable[Woken]) -> Transition:
    """Return the change of a job after its *run*, with those of the jobs that the run has *woken* last."""
    changes = tuple(one.change for one in woken if one.run == run and (one.is_changed or one.change.skips))
    return replace(left, successors=changes) if changes else left


NEVER_BEGAN = "The store failed during the claim; the handler never started."
"""The error of a run whose claim was written although the store's answer was lost."""


def process_gone(node: NodeRow) -> str:
    """Return the error of a run whose *node* died."""
    return f"The process of this run has died ({node.identity.name})."


def never_begun(run: ClaimedRun, request: CancelRequest) -> EndedRun:
    """Return the ending of a run that a caller has cancelled before its handler was called: it ended then."""
    at = shown_moment(request.at)
    ended_at = run.claimed_at if at is None else _noticed_at(at, run.claimed_at)
    return EndedRun(run, cancelled_on_request(request.reason), None, ended_at)


def cancelled_by_stop(ended: Iterable[EndedRun]) -> list[int]:
    """Return the runs that a stop has cancelled. A request to cancel them may have come too late to be noticed."""
    return [item.run.id for item in ended if item.ending.outcome is CANCELLED and not item.ending.on_request]


def with_cancel_requests(ended: Sequence[EndedRun], cancels: Mapping[int, CancelRequest]) -> Sequence[EndedRun]:
    """Return *ended* with the requests to cancel them. *cancels* are the requests by run."""
    if not cancels:
        return ended
    return [
        replace(item, ending=replace(item.ending, reason=cancels[item.run.id].reason, on_request=True))
        if item.run.id in cancels
        else item
        for item in ended
    ]


def interrupted(
    decisions: Decisions,
    job: Job,
    run_id: int | None,
    row: Sequence[Any],
    problem: str,
    now: Micros,
    rules: Rules,
    cancels: Mapping[int, CancelRequest] = MappingProxyType({}),
) -> tuple[Transition, EndedRun]:
    """Return the change of a claimed *job* whose run was interrupted, and the ending of that run, as `ended_by_death`.

    A job whose state cannot be read stays unchanged. Raise `Undecided` if its schedule may be slow.
    """
    ended = ended_by_death(job, run_id, row, problem, now, cancels)
    if has_unreadable_state(job):
        return Transition(job), ended
    started_at = None if ended.started_at is None else shown_moment(ended.started_at)
    make = partial(after, job, replace(ended, started_at=started_at), rules)
    key = (INTERRUPT, ended.run.id, ended.ending.on_request)
    left = decisions.about(job, key, ended.finished_at, make) if job.schedule.may_be_slow else make()
    return replace(left, ending=ended.ending) if ended.ending.on_request else left, ended


def ended_by_death(
    job: Job,
    run_id: int | None,
    row: Sequence[Any],
    problem: str,
    now: Micros,
    cancels: Mapping[int, CancelRequest] = MappingProxyType({}),
) -> EndedRun:
    """Return how a run of *job* has ended whose node has died.

    *cancels* are the requests of callers to cancel runs: such a run counts as cancelled. *row* contains the
    occurrence, the attempt, the trigger, and the times of claim and start. All of them and *run_id* are None if there
    is no such row.
    """
    *told, started_at = row
    tried = _attempt_of(job, *told)
    run = ClaimedRun.of(
        id=run_id or 0, job=job, attempt=tried, payload_json=job.description.payload_json, before=job.state
    )
    ending = Ending(outcome=Outcome.INTERRUPTED, error=problem)
    if run_id is not None and run_id in cancels:
        ending = replace(cancelled_on_request(cancels[run_id].reason), error=problem)
    return EndedRun(run=run, ending=ending, started_at=started_at, finished_at=_noticed_at(now, tried.claimed_at))


def repeated_as(ended: EndedRun, run: int) -> EndedRun:
    """Return the ending of an interrupted manual run that another *run* repeats."""
    error = f"{ended.ending.error} It is run again as run {run}."
    return replace(ended, ending=replace(ended.ending, error=error))


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
        undo = instances.unclaim if job.state.running else unclaim
        freed, at = undo(job, run.job, run.before, run)
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
            running=max(now.running - 1, 0),
        )
        return job.with_state(fitted(job, state) if now.running else state), (), job.updated
    return freed.job, freed.skips, at


def put_back_all(
    decisions: Decisions, jobs: Mapping[int, Job], runs: Sequence[ClaimedRun]
) -> list[tuple[Job, tuple[Skip, ...], Micros]]:
    """Undo the claims of *runs*, the latest first. *jobs* are their jobs, by run; several runs may have the same."""
    changed: dict[int, Job] = {}
    undone = []
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        job = changed.get(run.uid, jobs[run.id])
        make = partial(put_back, job, run)
        is_slow = job.schedule.may_be_slow
        back = decisions.about(job, (RELEASE, run.id), run.claimed_at, make) if is_slow else make()
        changed[run.uid] = back[0]
        undone.append(back)
    return undone


def after_all(
    decisions: Decisions, jobs: Mapping[int, Job], ended: Sequence[EndedRun], rules: Rules
) -> dict[int, tuple[Job, Transition]]:
    """Return what each ending leaves of its job, and the job before it, by run.

    *jobs* are the jobs before all endings, by run; several runs may have the same.
    """
    changed: dict[int, Job] = {}
    left = {}
    undecided: dict[int, Undecided] = {}
    for item in ended:
        if item.run.uid in undecided:
            continue
        before = changed.get(item.run.uid, jobs[item.run.id])
        try:
            one = left_by_run(decisions, before, item, rules)
        except Undecided as error:
            undecided[item.run.uid] = error
            continue
        changed[item.run.uid] = one.job
        left[item.run.id] = before, one
    for first in undecided.values():
        raise first
    return left


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
    resumed = end_pause(job)
    state = resumed.state
    following = state.next_run_at if state.regular_at is None else state.regular_at  # a retry may precede it
    if following is None or job.schedule.runs_once or job.schedule.counts_from_end:
        return resumed
    try:
        missed = passed_over(job, next_regular(job, until - 1), min(following - 1, now), SkipReason.ALREADY_RUNNING)
    except Exception as error:  # one job must not stop the others
        return _failing(job, error, until)
    return replace(resumed, skips=resumed.skips + missed)


def all_resumed(decisions: Decisions, paused: Iterable[Job], now: Micros) -> list[tuple[Job, Transition]]:
    """Resume jobs that were paused until a time, as far as that is decided."""
    resumed = []
    for job in paused:
        make = partial(resumed_by_itself, job, now)
        try:
            is_slow = job.schedule.may_be_slow
            edit = decisions.about(job, (RESUME, job.uid), now, make) if is_slow else make()
        except Undecided:
            continue
        resumed.append((job, edit))
    return resumed


def rows_of_removal(decisions: Decisions, job: Job, now: Micros) -> tuple[Skip, ...]:
    """Return the last rows of a job that is removed *now*. A job that cannot be read has none."""
    if not is_readable(job):
        return ()
    if not job.schedule.may_be_slow:
        return remove(job, now).skips
    return decisions.about(job, (REMOVE, job.uid), now, lambda: remove(job, now).skips)


def disabled_by(decisions: Decisions, job: Job, reason: str, now: Micros) -> Transition:
    """Disable *job* for *reason*. A run in progress continues. A schedule that fails does not matter."""
    make = partial(disable, job, reason, now)
    change = decisions.about(job, (CHANGE, job.uid, reason), now, make) if job.schedule.may_be_slow else make()
    return replace(change, kind=EventKind.DISABLED)


def change_decided(decisions: Decisions, change: Change, job: Job | None, now: Micros) -> Transition | None:
    """Return what *change* makes of a job. A new job whose schedule may be slow is made before the transaction."""
    if job is None or not (change.is_slow or job.schedule.may_be_slow):
        return change.decide(job)
    return decisions.about(job, (CHANGE, job.uid, id(change)), now, partial(change.decide, job))


def each(items: Iterable[T], decide: Callable[[T], R]) -> list[R]:
    """Return the decisions about all *items*. If one or more of them are undecided, raise one `Undecided` at the end.

    So one round in the engine is enough for all of them.
    """
    found = []
    undecided: Undecided | None = None
    for item in items:
        try:
            found.append(decide(item))
        except Undecided as error:
            undecided = error
    if undecided is not None:
        raise undecided
    return found


def _noticed_at(now: Micros, claimed_at: Micros) -> Micros:
    """Return the time of a death that is noticed *now*. It is not before the claim, which may have been made ahead."""
    return claimed_at if now < claimed_at <= now + EARLIEST_CLAIM else now
