"""The life of a job: every rule about what runs, what does not, and what comes next. Pure.

Someone who asks "what happens when …?" reads one function here:

    add, edit, pause, resume, disable     what people do to a job
    sooner                                what the clock does to it when it goes back
    decide, explain, upcoming             whether it would run now, why not, and when it will
    claim, unclaim                        which occurrence a pass takes up, and which it leaves out; and the way back
    after_run                             what a run that ended leaves behind

Each takes a `Job` and the moment, and returns what the job looks like then: a `Change`, with the occurrences that will
never run, so that each of them leaves a row. Fetching and saving are left to others. Moments are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta, tzinfo
from typing import Any, NamedTuple

from scheduler_async.durations import describe_duration
from scheduler_async.errors import JobEndedError, quoted
from scheduler_async.instants import FIRST, LAST, MINUTE, SECOND, Micros, describe_instant, from_micros
from scheduler_async.models import (
    ENDED,
    SPEC_FIELDS,
    Attempt,
    Ending,
    Explanation,
    Job,
    JobSpec,
    JobState,
    Misfire,
    OnInterrupt,
    Outcome,
    Phase,
    Skip,
    SkipReason,
    Status,
    Trigger,
    Upcoming,
    state_of_parts,
)
from scheduler_async.occurrences import jittered, latest_regular, merged, merged_and_next, next_regular, passed_over
from scheduler_async.retries import Consequence, Retry
from scheduler_async.rows import is_sound_state, reason_of
from scheduler_async.schedules import At, Delay, Manual, Schedule

# A preview of a job that runs every second is long enough with these.
MAX_UPCOMING = 1_000

NO_RETRY = Retry.none()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a scheduler applies to all its jobs."""

    retry: Retry = Retry.backoff()  # noqa: RUF009 - a frozen value
    misfire_grace: Micros | None = MINUTE
    """How late is not too late; None never is."""
    retry_floor: Micros = 0
    """The shortest time from a failure to a retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the scheduler has to offer a job just now. A limit of None is no limit."""

    has_handler: bool = True
    stopping: bool = False
    free_slots: int | None = None
    free_in_group: int | None = None
    free_in_queue: int = 0
    has_queue: bool = False
    clock_is_believed: bool = True


class Change(NamedTuple):
    """What a job looks like afterwards, and what was left out on the way. A tuple: every run makes one."""

    state: JobState
    skips: tuple[Skip, ...] = ()


class Claim(NamedTuple):
    """What a pass does with a job that is due: run *attempt*, or only leave out what was missed."""

    state: JobState
    skips: tuple[Skip, ...] = ()
    attempt: Attempt | None = None


# ---------------------------------------------------------------- what people do to a job


def add(spec: JobSpec, *, id: str, handler: str, now: Micros) -> Job:
    """A new job. Its anchor is *now*."""
    kept, namespace = spec.as_kept(id, handler), spec.namespace
    at = spec.schedule.first_micros(now)
    job = Job.stored(
        kept, JobState(Status.IDLE, at), id, namespace, handler, uid=0, anchor=now, created=now, updated=now, revision=1
    )
    if spec.schedule.jitter is not None:
        job = job.with_state(JobState(Status.IDLE, jittered(job, at)))
    if not spec.enabled:
        return job.with_state(disabled(job.state, "it was added disabled", now))
    return job if at is not None else job.with_state(_going_on(job, job.state, None, now))


EDITABLE = tuple(name for name in SPEC_FIELDS if name not in ("id", "namespace", "on_conflict"))


def edited_spec(job: Job, changes: dict[str, Any]) -> JobSpec:
    """The description of *job* with *changes*; what is not mentioned stays as it is."""
    unknown = sorted(changes.keys() - set(EDITABLE))
    if unknown:
        raise TypeError(f"A job has no {_listed(unknown)} to change. It has {_listed(EDITABLE)}.")
    return job.spec.changed(**{"enabled": is_wanted(job), **changes})


def is_wanted(job: Job) -> bool:
    """Whether nobody disabled it.

    A job that has ended goes on as soon as it has something to do, and one that could not be read once it can be.
    """
    if job.enabled or job.disabled_reason == ENDED:
        return True
    problems = job.spec.unreadable
    return bool(problems) and job.disabled_reason == reason_of(problems)


def edit(job: Job, spec: JobSpec, *, handler: str, now: Micros) -> tuple[Job, tuple[Skip, ...]]:
    """The job with a new description. Only a changed schedule changes when it runs, and it counts from *now*.

    A run in progress goes on, and what it leaves behind will not undo the edit.
    """
    kept = spec.as_kept(job.id, handler)
    edited = replace(job, spec=kept, handler=handler, updated=now, revision=job.revision + 1)
    state = job.state
    skips: tuple[Skip, ...] = ()
    is_rescheduled = spec.schedule != job.schedule or job.spec.lacks("schedule")
    if is_rescheduled:
        edited = replace(edited, anchor=now)
        skips = _owed(job, now, SkipReason.MISFIRE)
        if _owes_since_its_claim(job) and not _was_disabled_before(state):
            skips = merged(job, state.last_run_at or now, now, SkipReason.ALREADY_RUNNING)
        if state.disabled_reason == ENDED:
            state = state._replace(phase=Phase.ACTIVE, disabled_reason=None, disabled_at=None)
        state = state._replace(retry_of=None, attempts=0, regular_at=None, retry_count=0, period_start=None)
        is_idle = state.activity is Status.IDLE
        never_ran = state.last_run_at is None and is_idle
        first = spec.schedule.first_micros(now) if never_ran or isinstance(spec.schedule, At) else None
        following = jittered(edited, first if first is not None else spec.schedule.next_micros(now, now))
        if state.phase is not Phase.DISABLED:
            state = _going_on(edited, state, following, now)
        elif not is_idle:  # it may be resumed before its run has ended
            state = state._replace(next_run_at=following)
    edited = edited.with_state(state)
    if not spec.enabled and edited.enabled:
        change = disable(edited, "it was disabled by hand", now)
        edited = edited.with_state(change.state)
        skips = skips if is_rescheduled else change.skips
    elif spec.enabled and not edited.enabled and state.disabled_reason != ENDED:
        edited = edited.with_state(resume(edited, now).state)
    return edited, skips


def pause(job: Job, now: Micros) -> Change:
    """A job that does not start until it is resumed. What was owed already is left out, except a one-shot."""
    state = job.state
    if state.phase is not Phase.ACTIVE:
        return Change(state=state)
    if isinstance(job.schedule, At | Delay) or _comes_during_its_run(state):
        return Change(state=state._replace(phase=Phase.PAUSED))
    skips = _owed(job, now, SkipReason.PAUSED)
    state = _past_what_is_owed(job, now) if skips else state
    return Change(state=state if state.disabled_reason == ENDED else state._replace(phase=Phase.PAUSED), skips=skips)


def resume(job: Job, now: Micros) -> Change:
    """A job that starts afresh: no failures are held against it, and the time it was paused was not missed."""
    state = job.state
    if state.disabled_reason == ENDED:
        raise JobEndedError(job.id, job.namespace)
    fresh = state._replace(
        phase=Phase.ACTIVE,
        disabled_reason=None,
        disabled_at=None,
        consecutive_errors=0,
        interruptions=0,
        retry_count=0,
        period_start=None,
    )
    if _owes_since_its_claim(job):
        return Change(state=fresh)  # the run in progress decides when it ends
    if isinstance(job.schedule, At):
        # Still to be run, once: late, and as another attempt if there was one.
        at = jittered(job, job.schedule.first_micros(now))
        return Change(state=fresh._replace(next_run_at=state.next_run_at or at))
    if isinstance(job.schedule, Delay):
        planned = state.regular_at or state.next_run_at or now
        return Change(state=_going_on(job, fresh, max(planned, now), now))
    is_paused = state.phase is Phase.PAUSED
    was_not_missed = is_paused and ((state.next_run_at or 0) > now or _comes_during_its_run(state))
    if state.regular_at is None and (state.phase is Phase.ACTIVE or was_not_missed):
        return Change(state=fresh)
    following = next_regular(job, now)
    if following is None and state.retry_of is not None:  # its last occurrence, to be tried again
        return Change(state=fresh._replace(next_run_at=state.next_run_at or now))
    skips = passed_over(job, state.regular_at, now, SkipReason.BACKOFF) if state.phase is Phase.ACTIVE else ()
    return Change(state=_going_on(job, fresh, following, now), skips=skips)


def disable(job: Job, reason: str, now: Micros) -> Change:
    """A job that is taken out of scheduling for *reason*. What it owes leaves a row."""
    skips = _owed(job, now, SkipReason.DISABLED)
    if job.state.activity is Status.IDLE:
        return Change(state=disabled(job.state, reason, now), skips=skips)
    # What comes next is kept until the run in progress has ended: the job may be resumed before that.
    state = _past_what_is_owed(job, now) if skips else job.state
    if state.disabled_reason != ENDED:
        state = state._replace(phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now)
    return Change(state=state, skips=skips)


def _owes_since_its_claim(job: Job) -> bool:
    """Whether it runs, and what passes meanwhile is written down when that ends: no edit has settled it before."""
    state = job.state
    return state.activity is not Status.IDLE and state.next_run_at is None and job.anchor <= (state.last_run_at or 0)


def _was_disabled_before(state: JobState) -> bool:
    """Whether the run in progress was asked for while the job was disabled."""
    return state.disabled_at is not None and state.disabled_at <= (state.last_run_at or 0)


def _comes_during_its_run(state: JobState) -> bool:
    """Whether it runs, and what comes next was not due before that: if it comes meanwhile, the end of the run tells."""
    if state.activity is Status.IDLE or state.last_run_at is None or state.next_run_at is None:
        return False
    return state.retry_of is None and state.regular_at is None and state.next_run_at > state.last_run_at


def _past_what_is_owed(job: Job, now: Micros) -> JobState:
    """The state of a job whose due occurrences have their row; a one-shot, a delay and a retry are owed still."""
    if isinstance(job.schedule, At | Delay):
        return job.state
    following = next_regular(job, now)
    if job.state.retry_of is not None:
        return job.state._replace(regular_at=following)
    return _going_on(job, job.state, following, now)


def disabled(state: JobState, reason: str, now: Micros) -> JobState:
    """*state*, given up *now* for *reason*, which is for a person to read."""
    activity, _, retry_of, attempts, _, *rest = state[:13]
    return _state((activity, None, retry_of, attempts, None, *rest, Phase.DISABLED, reason, now, *state[16:]))


def sooner(job: Job, now: Micros) -> Job | None:
    """What a job looks like when the clock has gone back to *now*; None if it is as it was.

    It must not wait until the clock is where it was. On a grid or by cron it goes on with the next time by the new
    clock, and what ran already is known by its row. A delay, and the wait after a failure, are as long as before. A
    run that was cancelled is repeated at once. A one-shot keeps its moment.
    """
    state = job.state
    if state.next_run_at is None or state.next_run_at <= now:
        return None
    moved = job
    anchor = job.schedule.anchor_before(now, job.anchor)
    if anchor != job.anchor:
        moved = replace(job, anchor=anchor, revision=job.revision + 1)
    at, regular = state.next_run_at, state.regular_at
    if state.retry_of is not None or regular is not None:
        if state.retry_of is not None and not state.consecutive_errors:
            at = now  # its run was cancelled, and is repeated at once
        elif state.last_error_at is not None and state.last_error_at > now:
            at = min(at, now + max(at - state.last_error_at, 0))
            state = state._replace(last_error_at=now)
        regular = _earlier(regular, next_regular(moved, now))
    else:
        at = min(at, next_regular(moved, now) or at)
    period_start = _earlier(state.period_start, now)
    moved = moved.with_state(state._replace(next_run_at=at, regular_at=regular, period_start=period_start))
    return None if moved == job else moved


def _earlier(moment: Micros | None, other: Micros | None) -> Micros | None:
    return moment if moment is None or other is None else min(moment, other)


# ---------------------------------------------------------------- whether it would run


def decide(job: Job, now: Micros, room: Room, rules: Rules) -> tuple[SkipReason | None, Micros | None]:
    """Why the job does not run *now*, or None if it would; and when that will change, if it is known."""
    state = job.state
    if state.activity is not Status.IDLE:
        return SkipReason.ALREADY_RUNNING, None
    if state.phase is Phase.DISABLED:
        return (SkipReason.ENDED if state.disabled_reason == ENDED else SkipReason.DISABLED), None
    if state.phase is Phase.PAUSED:
        return SkipReason.PAUSED, None
    if state.next_run_at is None:
        return SkipReason.MANUAL_ONLY, None
    if not room.clock_is_believed:
        return SkipReason.NOT_DUE, None
    if state.next_run_at > now:
        return _why_not_due(job, rules), state.next_run_at
    if claim(job, now, rules).attempt is None:
        return SkipReason.MISFIRE, None
    if room.stopping:
        return SkipReason.STOPPING, None
    if not room.has_handler:
        return SkipReason.NO_HANDLER, None
    if room.free_in_group is not None and room.free_in_group <= 0:
        return SkipReason.GROUP_FULL, None
    if room.free_slots is not None and room.free_slots + room.free_in_queue <= 0:
        return (SkipReason.QUEUE_FULL if room.has_queue else SkipReason.AT_CAPACITY), None
    return None, None


def order(job: Job) -> tuple[int, Micros, str]:
    """Who goes first: by priority, then longest since its last run (never run first), then by name."""
    last = job.state.last_run_at
    return job.priority.rank, -1 if last is None else last, job.id


def _why_not_due(job: Job, rules: Rules) -> SkipReason:
    state = job.state
    policy = _policy(job, rules)
    is_last_retry = policy.regular_times_go_on and state.retry_of is not None
    if policy.is_exhausted(state.retry_count) and state.consecutive_errors and not is_last_retry:
        return SkipReason.RETRIES_EXHAUSTED
    waits_longer = state.retry_of is not None or state.regular_at is not None
    return SkipReason.BACKOFF if waits_longer else SkipReason.NOT_DUE


def explain(job: Job, now: Micros, room: Room, rules: Rules, zone: tzinfo = UTC) -> Explanation:
    """`decide` for people, whose clocks are those of *zone*."""
    reason, until = decide(job, now, room, rules)
    state = job.state
    when = _when(until, now, zone)
    failures = f"{state.consecutive_errors} failure{'s' if state.consecutive_errors != 1 else ''} in a row"
    problem = f" ({state.last_error})" if state.last_error else ""
    sentences = {
        None: "is due and starts with the next pass.",
        SkipReason.NOT_DUE: f"is not due: it runs {job.schedule.describe(zone)}, next {when}."
        if room.clock_is_believed
        else "waits, since the wall clock jumped by more than a year: nothing starts before it has gone back, or for a "
        "day. If the clock is right, a restart lets it count at once.",
        SkipReason.DISABLED: f"is disabled: {str(state.disabled_reason).rstrip('.')}.",
        SkipReason.ENDED: "has ended: nothing is left of its schedule.",
        SkipReason.PAUSED: "is paused.",
        SkipReason.MANUAL_ONLY: "runs only when it is triggered.",
        SkipReason.ALREADY_RUNNING: f"is {state.activity} already, and a job runs once at a time.",
        SkipReason.BACKOFF: f"waits after {failures}{problem}, and is tried again {when}.",
        SkipReason.RETRIES_EXHAUSTED: f"has used up its retries after {failures}{problem}, and runs again {when}.",
        SkipReason.MISFIRE: "missed its time, and its misfire policy is to skip: it goes on with the next occurrence.",
        SkipReason.STOPPING: "is due, but the scheduler is stopping, and takes up nothing new.",
        SkipReason.NO_HANDLER: f"is due, but no handler {quoted(job.handler)} is registered here.",
        SkipReason.GROUP_FULL: f"is due, but its group {quoted(job.group or '')} has no free slot.",
        SkipReason.AT_CAPACITY: "is due, but as many jobs run as may: it goes when a slot frees.",
        SkipReason.QUEUE_FULL: "is due, but all slots are taken and the queue is full: it goes when there is room.",
    }
    remedies = {
        SkipReason.DISABLED: "resume_job() enables it.",
        SkipReason.PAUSED: "resume_job() lets it go on.",
        SkipReason.MANUAL_ONLY: "trigger_job() does.",
    }
    name = quoted(job.id) if job.namespace == "default" else quoted(job.key)
    return Explanation(
        reason=reason,
        until=None if until is None else from_micros(until),
        sentence=f"Job {name} {sentences[reason]}",
        remedy=None if reason is None else remedies.get(reason),
    )


def _when(until: Micros | None, now: Micros, zone: tzinfo) -> str:
    if until is None:
        return "at an unknown time"
    wait = timedelta(seconds=(until - now) // SECOND)
    moment = describe_instant(from_micros(until), zone)
    return f"at {moment}, in {describe_duration(wait) if wait else 'less than a second'}"


def upcoming(job: Job, now: Micros, until: Micros, room: Room, rules: Rules) -> Iterator[Upcoming]:
    """The runs of a job from *now* until *until*, in order, as far as they are known today."""
    state = job.state
    if state.phase is not Phase.ACTIVE:
        return
    policy = _policy(job, rules)
    left = policy.retries_left(state.consecutive_errors, state.retry_count)
    warnings = []
    if state.retry_of is not None:
        warnings.append("a retry, before the next regular time")
    elif state.regular_at is not None:
        warnings.append("postponed after failures")
    if policy.disable_after is not None and state.consecutive_errors + 1 == policy.disable_after:
        warnings.append("disabled if it fails once more")
    if not room.has_handler:
        warnings.append(f"no handler {quoted(job.handler)} is registered here")
    if state.next_run_at is None or (state.next_run_at <= now and state.activity is not Status.IDLE):  # it runs now
        following = next_regular(job, now)
    elif state.next_run_at <= now:
        taken = claim(job, now, rules)
        missed = sum(skip.missed for skip in taken.skips)
        if missed:
            warnings.append(f"{missed} missed, not made up for")
        if taken.attempt is not None:
            yield Upcoming(job=job, at=from_micros(now), retries_left=left, warnings=tuple(warnings))
        following = taken.state.next_run_at or next_regular(job, now)
    elif state.next_run_at <= until:
        yield Upcoming(job=job, at=from_micros(state.next_run_at), retries_left=left, warnings=tuple(warnings))
        following = next_regular(job, state.next_run_at)
    else:
        return
    for number, at in enumerate(_regular_from(job, following), 1):
        if at > until:
            break
        is_cut = number == MAX_UPCOMING
        cut = (f"and so on: no more than {MAX_UPCOMING:,} of a job are listed",) if is_cut else ()
        yield Upcoming(job=job, at=from_micros(at), retries_left=left, warnings=cut)
        if is_cut:
            break


def _regular_from(job: Job, at: Micros | None) -> Iterator[Micros]:
    if isinstance(job.schedule, Delay):
        return  # the run after next depends on how long the next one takes
    while at is not None:
        yield at
        at = next_regular(job, at)


# ---------------------------------------------------------------- what a pass does


def claim(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> Claim:
    """What to do with a job that is due: which occurrence runs, and which are left out. Never a backlog.

    The oldest occurrence that is owed runs, and those after it merge into it. With `misfire="skip"` only an
    occurrence that is late by no more than the grace runs. *activity* is what the job does if it is taken.
    """
    state = job.state
    assert state.next_run_at is not None
    if state.retry_of is not None and not _is_overtaken(job, now, rules):
        attempt = Attempt(
            scheduled_for=state.retry_of, attempt=state.attempts + 1, trigger=Trigger.RETRY, claimed_at=now
        )
        skips = passed_over(job, state.regular_at, now, SkipReason.BACKOFF)
        return Claim(state=_taken(state, now, activity, state.retry_count), attempt=attempt, skips=skips)

    at, skips = state.next_run_at, ()
    if state.regular_at is not None:
        if state.retry_of is not None:
            at = state.regular_at
        else:
            skips = passed_over(job, state.regular_at, at - 1, SkipReason.BACKOFF)
    if state.forgotten_until is not None and at <= state.forgotten_until:  # it ran, before the clock went back
        return Claim(state=_going_on(job, state, next_regular(job, at), now), skips=skips)
    fresh = _taken(state, now, activity, retry_count=0)
    late = _is_late(at, now, rules)
    if late and job.misfire is Misfire.SKIP:
        return _skip_missed(job, fresh, at, now, rules, skips)
    attempt = Attempt(at, 1, Trigger.CATCH_UP if late else Trigger.SCHEDULE, now)
    return Claim(fresh, skips + merged(job, at, now, SkipReason.MISFIRE), attempt)


def claim_in_time(columns: tuple[Any, ...], now: Micros, activity: str) -> tuple[Any, ...] | None:
    """What `claim` makes of a job that is claimed before its moment has passed; None where it takes a closer look.

    It goes from the columns of a state to those of the next, without a look at the job: nothing is late, and nothing
    was missed. Where claims are made ahead of time, nearly all are like that. That its schedule no longer computes is
    then noticed when the run has ended. Columns that cannot be read take a closer look, too: a job that has never
    failed nor told anything has few that could be wrong.
    """
    (_, at, retry_of, attempts, regular_at, retry_count, last_run_at, period_start, errors, interruptions,
     last_success_at, exit_code, message, _, reason, disabled_at, last_error_at, error,
     forgotten_until) = columns  # fmt: skip
    if retry_of is not None or regular_at is not None or at < now:
        return None
    try:
        is_plain = (
            attempts == retry_count == errors == interruptions == 0
            and period_start is exit_code is message is reason is disabled_at is last_error_at is error is None
            and forgotten_until is None
            and (last_run_at is None or FIRST <= last_run_at <= at)
            and (last_success_at is None or FIRST <= last_success_at <= LAST)
        )
    except TypeError:
        return None
    if not is_plain and (not is_sound_state(columns) or (forgotten_until is not None and at <= forgotten_until)):
        return None
    return activity, None, None, 0, None, 0, at, *columns[7:]


def _is_overtaken(job: Job, now: Micros, rules: Rules) -> bool:
    """Whether the retry that it waits for has waited too long: its next regular time has come."""
    regular_at = job.state.regular_at
    return regular_at is not None and regular_at <= now and _policy(job, rules).regular_times_go_on


def _skip_missed(job: Job, state: JobState, at: Micros, now: Micros, rules: Rules, skips: tuple[Skip, ...]) -> Claim:
    """Leave out what is too late; the latest occurrence may be in time still."""
    waiting = state._replace(activity=Status.IDLE, last_run_at=job.state.last_run_at)
    latest = latest_regular(job, now)
    if latest is None or _is_late(latest, now, rules):
        skips = (*skips, *passed_over(job, at, now, SkipReason.MISFIRE))
        return Claim(state=_going_on(job, waiting, next_regular(job, now), now), skips=skips)
    skips = (*skips, *passed_over(job, at, latest - 1, SkipReason.MISFIRE))
    attempt = Attempt(scheduled_for=latest, attempt=1, trigger=Trigger.SCHEDULE, claimed_at=now)
    return Claim(state=state, attempt=attempt, skips=skips)


def claim_manually(job: Job, now: Micros) -> Claim:
    """A run that somebody asked for. The schedule and the failure count stay as they are."""
    attempt = Attempt(scheduled_for=now, attempt=1, trigger=Trigger.MANUAL, claimed_at=now)
    return Claim(state=job.state._replace(activity=Status.QUEUED, last_run_at=now), attempt=attempt)


def unclaim(job: Job, claimed: Job, before: JobState, run: Attempt) -> tuple[Change, Micros]:
    """What *job* looks like when the claim of *run* is undone: as if it had not been made. And as of when.

    *claimed* is the job as it was claimed, *before* its state until then. If it was edited, paused or disabled since,
    what was due by that time leaves a row, as it would have without the claim.
    """
    phase, reason, disabled_at = job.state.phase, job.state.disabled_reason, job.state.disabled_at
    freed = job.state._replace(activity=Status.IDLE, last_run_at=before.last_run_at)
    has_other_schedule = job.schedule != claimed.schedule and not job.spec.lacks("schedule")
    if freed.next_run_at is not None or has_other_schedule:  # an edit says what comes next, or it was triggered
        due_until = min(run.claimed_at, job.updated)
        is_owed = run.trigger is not Trigger.MANUAL
        skips = _owed(claimed.with_state(before), due_until, SkipReason.MISFIRE) if is_owed else ()
        if phase is Phase.DISABLED:
            freed = freed._replace(next_run_at=None, regular_at=None)
        return Change(state=freed, skips=skips), job.updated
    active = job.with_state(
        freed._replace(
            next_run_at=before.next_run_at,
            retry_of=before.retry_of,
            attempts=before.attempts,
            regular_at=before.regular_at,
            retry_count=before.retry_count,
            phase=Phase.ACTIVE,
            disabled_reason=None,
            disabled_at=None,
        )
    )
    if phase is Phase.PAUSED:
        return pause(active, job.updated), job.updated
    if phase is Phase.DISABLED:
        at = job.updated if disabled_at is None else disabled_at
        change = disable(active, str(reason), at)
        return change._replace(state=change.state._replace(disabled_reason=reason, disabled_at=disabled_at)), at
    return Change(state=active.state), job.updated


def ran_before(job: Job, before: JobState, latest: Micros, now: Micros) -> JobState:
    """What a job looks like whose occurrence has run already, since the clock went back: it goes on with the next one.

    *before* is the job before the claim, which comes to nothing; *latest* is the last occurrence up to *now* that ran.
    """
    return _going_on(job, before, next_regular(job, latest), now)


def _is_late(at: Micros, now: Micros, rules: Rules) -> bool:
    return rules.misfire_grace is not None and now - at > rules.misfire_grace


def _taken(state: JobState, now: Micros, activity: Status, retry_count: int) -> JobState:
    """Off its schedule: nothing comes next before its run has ended."""
    return _state((activity, None, None, 0, None, retry_count, now, *state[7:]))


# ---------------------------------------------------------------- what a run leaves behind


def after_run(
    job: Job, run: Attempt, ending: Ending, now: Micros, rules: Rules, started_at: Micros | None = None
) -> Change:
    """What the job looks like when *run* has ended: outcome, counters and next run, all at once.

    *job* is as it is now: paused or edited during the run, it stays so. *started_at* is when its handler was called.
    """
    if ending.disable:  # to give up is to end like others, and to be disabled
        ended = after_run(job, run, replace(ending, disable=False), now, rules, started_at)
        given_up = disable(job.with_state(ended.state), "its handler returned False", now)
        return Change(state=given_up.state, skips=ended.skips + given_up.skips)
    outcome = ending.outcome
    by_hand = run.trigger is Trigger.MANUAL
    # Until its handler was called, it counted from its claim.
    state = _counted(job.state, ending, by_hand, now, job.state.last_run_at if started_at is None else started_at)
    interrupted = outcome is Outcome.INTERRUPTED
    reason = SkipReason.INTERRUPTED if interrupted else SkipReason.ALREADY_RUNNING
    if by_hand or state.next_run_at is not None:  # it has kept its schedule, or got another
        return _after_run_beside_schedule(job, state, run, now, reason)
    skips, regular = merged_and_next(job, max(run.claimed_at, run.scheduled_for), now, reason)
    if state.phase is Phase.DISABLED:
        return Change(state=state, skips=skips if job.anchor <= run.claimed_at else ())
    if regular is not None and regular == run.scheduled_for:  # the clock went back meanwhile
        regular = next_regular(job, regular)
    rerun = job.spec.on_interrupt is OnInterrupt.RERUN
    is_manual = isinstance(job.schedule, Manual)  # made so while it ran
    if outcome is Outcome.CANCELLED and rerun and not is_manual:
        return Change(state=_retrying(state, run, now, regular), skips=skips)
    if not outcome.is_failure or is_manual:
        return Change(state=_going_on(job, state, regular, now), skips=skips)

    at_once = interrupted and rerun
    policy = _policy(job, rules)
    consequence = policy.after_failure(
        failed_at=now,
        consecutive_errors=state.consecutive_errors,
        retry_count=state.retry_count,
        period_start=state.period_start,
        at_once=at_once,
        interruptions=state.interruptions,
    )
    state = state._replace(retry_count=consequence.retry_count, period_start=consequence.period_start)
    # The scheduler's policy is for what comes again; a run that was interrupted is repeated only if its job says so.
    may_retry = at_once or (not interrupted and (regular is not None or job.spec.retry is not None))
    retry_from = now + (0 if at_once else rules.retry_floor) if may_retry else None
    return Change(state=_after_failure(job, state, run, consequence, regular, retry_from, now), skips=skips)


_ACTIVE = Phase.ACTIVE._value_  # to compare a text with the enum takes eight times as long


def success_in_time(
    columns: tuple[Any, ...],
    schedule: Schedule,
    anchor: Micros,
    since: Micros,
    started_at: Micros,
    now: Micros,
    told: tuple[int | None, str | None],
) -> tuple[Any, ...] | None:
    """What `after_run` makes of a regular run that succeeded before the next is due; None if it takes a closer look.

    It goes from the columns of a state that nobody has touched since its claim to those of the next, like
    `claim_in_time`. *since* is when it was due or claimed, *told* its exit code and its message.
    """
    if schedule.jitter is not None or not schedule.goes_by_moments or since > now:
        return None
    following = schedule.next_micros(since, schedule.anchor_before(since, anchor))
    rest, forgotten_until = columns[13:], columns[-1]
    if (following is not None and following <= now) or rest[0] != _ACTIVE:
        return None
    if forgotten_until is not None and forgotten_until > now:
        return None
    if following is None:
        rest = Phase.DISABLED._value_, ENDED, now, *rest[3:]
    return "idle", following, None, 0, None, 0, started_at, None, 0, 0, now, *told, *rest


def _counted(state: JobState, ending: Ending, by_hand: bool, now: Micros, last_run_at: Micros | None) -> JobState:
    """*state* with how a run ended, and what that does to the counters: a run by hand leaves them alone."""
    outcome, told = ending.outcome, (ending.exit_code, ending.message)
    if outcome.is_failure:
        failed = state._replace(
            activity=Status.IDLE,
            last_run_at=last_run_at,
            last_exit_code=ending.exit_code,
            last_message=ending.message,
            last_error_at=now,
            last_error=ending.error or outcome.value,
        )
        if by_hand:
            return failed
        interruptions = state.interruptions + 1 if outcome is Outcome.INTERRUPTED else 0
        return failed._replace(consecutive_errors=state.consecutive_errors + 1, interruptions=interruptions)
    is_good = outcome is Outcome.SUCCESS or outcome is Outcome.NOOP
    last_success_at = now if is_good else state.last_success_at
    if by_hand or outcome is Outcome.CANCELLED:
        return _state((Status.IDLE, *state[1:6], last_run_at, *state[7:10], last_success_at, *told, *state[13:]))
    return _state((Status.IDLE, *state[1:5], 0, last_run_at, None, 0, 0, last_success_at, *told, *state[13:]))


def _after_failure(
    job: Job,
    state: JobState,
    run: Attempt,
    consequence: Consequence,
    regular: Micros | None,
    retry_from: Micros | None,
    now: Micros,
) -> JobState:
    """*state* with what follows from the failure of *run*; a retry comes not before *retry_from*, or never if None."""
    if consequence.disable:
        reason = f"{state.consecutive_errors} failures in a row, the last: {state.last_error}"
        return _failed_for_good(state, run, reason, now)
    retry_at, not_before = consequence.retry_at, consequence.not_before
    if regular is None:
        # Nothing comes after this occurrence: it is tried again while its policy allows, and then it is over.
        retry_at = retry_at if retry_at is not None else not_before
        if retry_at is None or consequence.held or retry_from is None:
            return _failed_for_good(state, run, f"its last run failed: {state.last_error}", now)
        return _retrying(state, run, max(retry_at, retry_from), None)
    if consequence.held and retry_from is None:
        not_before = retry_at
    if not_before is not None and not_before > regular:
        return state._replace(next_run_at=not_before, regular_at=regular)
    if retry_at is not None and retry_from is not None:
        return _retrying(state, run, max(retry_at, min(retry_from, regular)), regular)
    return _going_on(job, state, regular, now)


def _retrying(state: JobState, run: Attempt, at: Micros, regular: Micros | None) -> JobState:
    return state._replace(next_run_at=at, retry_of=run.scheduled_for, attempts=run.attempt, regular_at=regular)


def _failed_for_good(state: JobState, run: Attempt, reason: str, now: Micros) -> JobState:
    """Disabled; should it be resumed, the next attempt is told from those before."""
    return disabled(state, reason, now)._replace(retry_of=run.scheduled_for, attempts=run.attempt)


def _after_run_beside_schedule(job: Job, state: JobState, run: Attempt, now: Micros, reason: SkipReason) -> Change:
    """What a run leaves behind that was asked for, or whose job got another schedule meanwhile: it has a next run.

    An occurrence that came during the run is left out. One that was due before the run is still due, and so is a
    one-shot.
    """
    by_hand = run.trigger is Trigger.MANUAL
    if state.phase is Phase.DISABLED:
        owes = _owes_since_its_claim(job) and not _was_disabled_before(job.state)
        skips = merged(job, run.claimed_at, now, reason) if owes else ()
        return Change(state=state._replace(next_run_at=None, regular_at=None), skips=skips)
    if state.next_run_at is None and not isinstance(job.schedule, Manual):
        # It was disabled, and resumed while this run was in progress.
        skips = () if isinstance(job.schedule, At) else merged(job, run.claimed_at, now, reason)
        resumed = resume(job.with_state(state._replace(phase=Phase.PAUSED)), now).state
        return Change(state=resumed._replace(phase=state.phase), skips=skips)
    if isinstance(job.schedule, Delay) and not by_hand:
        return Change(state=_going_on(job, state, next_regular(job, now), now))
    at, since = state.next_run_at, run.claimed_at if by_hand else job.anchor
    if isinstance(job.schedule, At | Delay) or state.retry_of is not None or at is None or not since < at <= now:
        return Change(state=state)
    skips = passed_over(job, state.regular_at, at - 1, SkipReason.BACKOFF) + passed_over(job, at, now, reason)
    return Change(state=_going_on(job, state, next_regular(job, now), now), skips=skips)


# ---------------------------------------------------------------- shared

# What nearly every run does is made of parts, which takes a fifth of the time that `_replace` does.
_state = state_of_parts


def _policy(job: Job, rules: Rules) -> Retry:
    """The policy for failures: the job's own, or the scheduler's, which leaves one-shots alone."""
    if job.spec.retry is not None:
        return job.spec.retry
    return NO_RETRY if isinstance(job.schedule, At) else rules.retry


def _going_on(job: Job, state: JobState, following: Micros | None, now: Micros) -> JobState:
    """*state* with its next regular run; a schedule with nothing left has ended, unless it never began."""
    if following is None and not isinstance(job.schedule, Manual):
        return disabled(state, ENDED, now)
    return _state((state.activity, following, None, 0, None, *state[5:]))


def _owed(job: Job, now: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """What is due and has not run, as a row. What came while a job was paused or disabled is not owed."""
    state = job.state
    since = state.regular_at if state.regular_at is not None else state.next_run_at
    if state.retry_of is not None and state.regular_at is None:
        return ()  # only a retry, whose occurrence has its rows
    if state.phase is not Phase.DISABLED and _comes_during_its_run(state):
        reason = SkipReason.ALREADY_RUNNING
    elif state.phase is not Phase.ACTIVE:
        return ()
    return passed_over(job, since, now, reason)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
