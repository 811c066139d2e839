"""Explain whether a job would run now, why not, and when it will. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta, tzinfo
from itertools import islice

from msgspec.structs import replace

from scheduler_async.errors import quoted
from scheduler_async.jobs.answers import Explanation, Upcoming
from scheduler_async.jobs.enums import ENDED, Phase, SkipReason, Status
from scheduler_async.jobs.job import Job
from scheduler_async.rules import instances
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.edits import end_pause
from scheduler_async.rules.missed import count_between, next_regular
from scheduler_async.rules.next_run import failing_schedule, retry_policy
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.terms import Room, Rules, Transition
from scheduler_async.schedules.after import After
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import SECOND, Micros, describe_instant, from_micros

# The longest useful preview of a job that runs every second.
MAX_UPCOMING = 1_000


# ---------------------------------------------------------------- whether a job would run


def decide(job: Job, now: Micros, room: Room, rules: Rules) -> tuple[SkipReason | None, Micros | None]:
    """Return the reason why the job does not run *now* (None if it would), and the time when that changes, if known."""
    state = job.state
    if not has_room(job) or state.activity is not Status.IDLE:
        return SkipReason.ALREADY_RUNNING, None
    if state.phase is Phase.DISABLED:
        return (SkipReason.ENDED if state.disabled_reason == ENDED else SkipReason.DISABLED), None
    if state.phase is Phase.PAUSED:
        return SkipReason.PAUSED, state.paused_until
    if state.next_run_at is None and not job.schedule.follows_runs:
        return SkipReason.MANUAL_ONLY, None
    later = state.next_run_at if state.next_run_at is not None and state.next_run_at > now else None
    if not job.schedule.is_known:
        return SkipReason.UNKNOWN_SCHEDULE, later
    if not room.has_scheduler:
        return SkipReason.NO_SCHEDULER, later
    if not room.has_handler and (later is not None or state.next_run_at is None):
        return SkipReason.NO_HANDLER, later
    if state.next_run_at is None:
        return SkipReason.NOT_DUE, None
    if not room.clock_is_believed:
        return SkipReason.NOT_DUE, None
    if state.next_run_at > now:
        return why_not_due(job, rules), state.next_run_at
    if _claimed(job, now, rules).attempt is None:
        return SkipReason.MISFIRE, None
    if room.stopping:
        return SkipReason.STOPPING, None
    if not room.has_handler:
        return SkipReason.NO_HANDLER, None
    if room.free_in_group is not None and room.free_in_group <= 0:
        return SkipReason.GROUP_FULL, None
    if room.rate_until is not None:
        return SkipReason.RATE_LIMITED, room.rate_until
    if room.free_slots is not None and room.free_slots + room.free_in_queue <= 0:
        return (SkipReason.QUEUE_FULL if room.has_queue else SkipReason.AT_CAPACITY), None
    return None, None


def why_not_due(job: Job, rules: Rules) -> SkipReason:
    """Return why the time of an active *job* has not come: it may wait longer than its schedule says."""
    state = job.state
    policy = retry_policy(job, rules)
    is_last_retry = policy.regular_times_go_on and state.retry_of is not None
    if policy.is_exhausted(state.retry_count) and state.consecutive_errors and not is_last_retry:
        return SkipReason.RETRIES_EXHAUSTED
    waits_longer = state.retry_of is not None or state.regular_at is not None
    return SkipReason.BACKOFF if waits_longer else SkipReason.NOT_DUE


def explain(job: Job, now: Micros, room: Room, rules: Rules, zone: tzinfo = UTC) -> Explanation:
    """Explain the result of `decide` in a sentence, with times in *zone*."""
    try:
        reason, until = decide(job, now, room, rules)
    except Exception as error:  # the schedule is not ours
        return not_computed(job, error)
    state = job.state
    when = _when(until, now, zone)
    failures = f"{state.consecutive_errors} failure{'s' if state.consecutive_errors != 1 else ''} in a row"
    problem = f" ({state.last_error})" if state.last_error else ""
    sentences = {
        None: "is due and starts with the next pass.",
        SkipReason.NOT_DUE: _not_due(job, room, when, zone)
        if room.clock_is_believed
        else "waits because the wall clock jumped by more than a year. Nothing starts until the clock returns or 24 "
        "hours have passed. If the clock is right, restart the scheduler.",
        SkipReason.DISABLED: f"is disabled: {str(state.disabled_reason).rstrip('.')}.",
        SkipReason.ENDED: "has ended: its schedule has no further occurrences."
        if job.max_runs is None or state.occurrences_run < job.max_runs
        else f"has ended: it has run as often as its max_runs allows ({job.max_runs}).",
        SkipReason.PAUSED: _paused(job, zone),
        SkipReason.MANUAL_ONLY: "runs only when it is triggered.",
        SkipReason.ALREADY_RUNNING: _running(job),
        SkipReason.BACKOFF: f"waits after {failures}{problem}; the next attempt is {when}.",
        SkipReason.RETRIES_EXHAUSTED: f"has used up its retries after {failures}{problem}; it runs again {when}.",
        SkipReason.MISFIRE: f'missed its time. Its misfire policy is "{job.misfire}": it runs at the next occurrence.',
        SkipReason.UNKNOWN_SCHEDULE: f"runs {job.schedule.describe(zone)}. A process that knows it runs the job"
        + (" now." if until is None else f" next {when}."),
        SkipReason.NO_SCHEDULER: "is due, but no scheduler is running."
        if until is None and state.next_run_at is not None
        else f"does not run: no scheduler is running. Its schedule: {job.schedule.describe(zone)}."
        if until is None
        else f"does not run: no scheduler is running. Its schedule: {job.schedule.describe(zone)}, next {when}.",
        SkipReason.STOPPING: "is due, but the scheduler is stopping and starts no new runs.",
        SkipReason.NO_HANDLER: f"is due, but no running scheduler has its handler {quoted(job.handler)}."
        if until is None and state.next_run_at is not None
        else f"does not run: no running scheduler has its handler {quoted(job.handler)}. Its schedule: "
        f"{job.schedule.describe(zone)}" + ("." if until is None else f", next {when}."),
        SkipReason.RATE_LIMITED: f"is due, but its group {quoted(job.group or '')} has reached its rate; the next run "
        f"may start {when}.",
        SkipReason.GROUP_FULL: f"is due, but its group {quoted(job.group or '')} is full; it starts when a slot frees.",
        SkipReason.AT_CAPACITY: "is due, but the concurrency limit is reached; it starts when a slot frees.",
        SkipReason.QUEUE_FULL: "is due, but all slots are taken and the queue is full; it starts when there is room.",
    }
    remedies = {
        SkipReason.NO_SCHEDULER: "Start a scheduler on this store.",
        SkipReason.UNKNOWN_SCHEDULE: "Import the class of the schedule in this process.",
        SkipReason.DISABLED: "resume_job() enables it.",
        SkipReason.PAUSED: "resume_job() resumes it.",
        SkipReason.MANUAL_ONLY: "trigger_job() runs it.",
    }
    return Explanation(
        reason=reason,
        until=None if until is None else from_micros(until),
        sentence=f"Job {_named(job)} {sentences[reason]}",
        remedy=None if reason is None or job.unreadable else remedies.get(reason),
    )


def not_computed(job: Job, error: Exception, at: Micros | None = None) -> Explanation:
    """Explain that the schedule of a job raises an *error*, so that nothing more can be said about a time."""
    return Explanation(
        reason=SkipReason.DISABLED,
        until=None,
        sentence=f"Job {_named(job)} cannot run: {failing_schedule(error)}.",
        remedy="update_job() gives it another schedule.",
        at=None if at is None else from_micros(at),
    )


def _named(job: Job) -> str:
    return quoted(job.id) if job.namespace == "default" else quoted(job.key)


def _not_due(job: Job, room: Room, when: str, zone: tzinfo) -> str:
    schedule = job.schedule
    if not isinstance(schedule, After):
        return f"is not due: it runs {schedule.describe(zone)}, next {when}."
    if job.state.next_run_at is not None:
        return f"is not due: it runs {schedule.describe(zone)}, next {when}. A run that it waited for has ended."
    missing = "" if room.has_predecessor else f", and there is no job {quoted(schedule.job)} yet"
    return f"is not due: it runs {schedule.describe(zone)}, and waits for that{missing}."


def _claimed(job: Job, now: Micros, rules: Rules) -> Transition:
    return instances.claim(job, now, rules) if job.description.has_instances else claim(job, now, rules)


def _running(job: Job) -> str:
    most, running = job.max_instances, job.state.running
    if most == 1:
        return f"is already {job.status}; a job has one run at a time."
    if running < most:
        return "is already running; its next run depends on the end of this one."
    return f"is already running {running} times, and has max_instances={most}."


def _paused(job: Job, zone: tzinfo) -> str:
    until = "" if job.paused_until is None else f" until {describe_instant(job.paused_until, zone)}"
    why = "" if job.paused_reason is None else f": {job.paused_reason.rstrip('.')}"
    return f"is paused{until}{why}."


def _when(until: Micros | None, now: Micros, zone: tzinfo) -> str:
    if until is None:
        return "at an unknown time"
    wait = timedelta(seconds=(until - now) // SECOND)
    moment = describe_instant(from_micros(until), zone)
    return f"at {moment}, in {describe_duration(wait) if wait else 'less than a second'}"


def after_pause(job: Job) -> Job:
    """Return a paused job as it will be when its pause ends by itself. It has no next run if that is not known."""
    state = job.state
    if state.phase is not Phase.PAUSED:
        return job
    return job.with_state(replace(state, next_run_at=None)) if state.paused_until is None else end_pause(job).job


def upcoming(job: Job, now: Micros, until: Micros, room: Room, rules: Rules) -> Iterator[Upcoming]:
    """Return the runs of a job from *now* until *until*, in order, as far as they are known."""
    if job.state.phase is Phase.PAUSED and job.state.activity is Status.IDLE:
        now = max(now, job.state.paused_until or now)
        job = after_pause(job)
    state = job.state
    if state.phase is not Phase.ACTIVE or now > until:
        return iter(())
    runs = _upcoming(job, now, until, room, rules)
    if job.max_runs is None:
        return runs
    retries = int(state.retry_of is not None)
    return islice(runs, max(job.max_runs - state.occurrences_run, 0) + retries)


def _upcoming(job: Job, now: Micros, until: Micros, room: Room, rules: Rules) -> Iterator[Upcoming]:
    state = job.state
    policy = retry_policy(job, rules)
    left = policy.retries_left(state.consecutive_errors, state.retry_count)
    warnings = []
    if state.retry_of is not None:
        warnings.append("a retry, before the next regular time")
    elif state.regular_at is not None and state.owed_until is None:
        warnings.append("postponed after failures")
    if policy.disable_after is not None and state.consecutive_errors + 1 == policy.disable_after:
        warnings.append("disabled if it fails once more")
    if not job.schedule.is_known:
        warnings.append(job.schedule.describe())
    elif not room.has_handler:
        warnings.append(no_handler_here(job))
    if state.next_run_at is None or (state.next_run_at <= now and state.activity is not Status.IDLE):  # running
        following = next_regular(job, now)
    elif state.next_run_at <= now:
        taken = _claimed(job, now, rules)
        missed = sum(skip.missed for skip in taken.skips)
        if missed:
            warnings.append(f"{missed} missed, skipped")
        if taken.state.owed_until is not None and taken.state.regular_at is not None:
            more = 1 + count_between(job, taken.state.regular_at, taken.state.owed_until)
            warnings.append(f"{more} more missed, which run after it")
        if taken.attempt is not None:
            yield Upcoming(job=job, at=from_micros(now), retries_left=left, warnings=tuple(warnings))
        following = taken.state.next_run_at or next_regular(job, now)
    elif state.next_run_at <= until:
        warnings += _notes(job, state.next_run_at) if state.retry_of is None else ()
        yield Upcoming(job=job, at=from_micros(state.next_run_at), retries_left=left, warnings=tuple(warnings))
        following = next_regular(job, state.next_run_at)
    else:
        return
    for number, at in enumerate(_regular_from(job, following), 2):  # the first run is listed above
        if at > until:
            break
        is_cut = number == MAX_UPCOMING
        cut = (f"and so on: the preview lists at most {MAX_UPCOMING:,} runs of a job",) if is_cut else ()
        yield Upcoming(job=job, at=from_micros(at), retries_left=left, warnings=(*_notes(job, at), *cut))
        if is_cut:
            break


def no_handler_here(job: Job) -> str:
    """Return the warning in a preview that this process does not have the handler of *job*."""
    return f"no handler {quoted(job.handler)} is registered here"


def _notes(job: Job, at: Micros) -> tuple[str, ...]:
    """Return what the schedule says about its occurrence *at*, such as where a calendar moved it from."""
    schedule = job.schedule
    regular = at if schedule.jitter is None else schedule.latest_micros(at, job.anchor)
    note = None if regular is None else schedule.note_about(regular, job.anchor)
    return () if note is None else (note,)


def _regular_from(job: Job, at: Micros | None) -> Iterator[Micros]:
    if job.schedule.counts_from_end:
        return  # the run after next depends on the duration of the next run
    while at is not None:
        yield at
        at = next_regular(job, at)
