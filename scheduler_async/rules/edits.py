"""Changes by users: add, edit, pause, resume or disable a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler_async.errors import JobChangedError, JobEndedError
from scheduler_async.jobs.description import field_of
from scheduler_async.jobs.enums import ENDED, Phase, SkipReason, Status
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.json_text import to_small_json_text
from scheduler_async.jobs.run import Skip
from scheduler_async.jobs.spec import SPEC_FIELDS, JobSpec
from scheduler_async.jobs.unreadable import reason_of
from scheduler_async.rules.missed import jittered, next_regular, passed_over
from scheduler_async.rules.next_run import (
    disabled,
    failing_schedule,
    has_run_enough,
    owed_ending,
    owes_since_its_claim,
    uncounted,
    with_next_run,
    with_owed,
)
from scheduler_async.rules.pending import without_retries
from scheduler_async.rules.plans import converted
from scheduler_async.rules.terms import Transition
from scheduler_async.timekeeping.instants import Micros

# ---------------------------------------------------------------- edits


def check_revision(job: Job, revision: int | None) -> None:
    """Raise `JobChangedError` unless *job* has this *revision*. None is any."""
    if revision is not None and job.revision != revision:
        raise JobChangedError(job.id, job.namespace, job.revision)


def add(spec: JobSpec, *, id: str, handler: str, now: Micros) -> Job:
    """Return a new job. Its anchor is *now*."""
    at = spec.schedule.first_micros(now)
    state = JobState(Status.IDLE, at)
    job = Job(spec.description, state, id, spec.namespace, handler, anchor=now, created=now, updated=now)
    if spec.schedule.jitter is not None:
        job = job.with_state(JobState(Status.IDLE, jittered(job, at)))
    if not spec.enabled:
        return job.with_state(disabled(job.state, "it was added disabled", now))
    return job if at is not None else job.with_state(with_next_run(job, job.state, None, now))


EDITABLE = tuple(name for name in SPEC_FIELDS if name not in ("id", "namespace", "on_conflict"))
CURSOR = "cursor"
"""The field of a state that an edit can change, too."""


def edited_spec(job: Job, changes: Mapping[str, Any]) -> JobSpec:
    """Return the spec of *job* with *changes*, which are checked like new arguments. Other fields stay unchanged."""
    unknown = sorted(changes.keys() - {*EDITABLE, CURSOR})
    if unknown:
        raise TypeError(f"Cannot change {_listed(unknown)} of a job. Choose from {_listed((*EDITABLE, CURSOR))}.")
    kept = {name: getattr(job, name) for name in (*EDITABLE, "id", "namespace") if name != "enabled"}
    described = {name: value for name, value in changes.items() if name != CURSOR}
    edited = JobSpec(**{**kept, "enabled": is_wanted(job), **described})
    replaced = {*changes, "updated_at"}  # every edit writes it
    left = tuple(problem for problem in job.description.unreadable if field_of(problem.column) not in replaced)
    return edited.lacking(left) if left else edited


def edited_cursor(changes: Mapping[str, Any]) -> str | None:
    """Return the JSON of the cursor that *changes* set: "null" clears it. None leaves it as it is."""
    return to_small_json_text(changes[CURSOR], CURSOR) if CURSOR in changes else None


def is_wanted(job: Job) -> bool:
    """Return whether an edit leaves the job enabled.

    An edit revives a job whose schedule has ended, or that could not be read. Any other disabled
    job stays disabled.
    """
    if job.enabled or job.disabled_reason == ENDED:
        return True
    problems = job.description.unreadable
    return bool(problems) and job.disabled_reason == reason_of(problems)


def edit(job: Job, spec: JobSpec, *, handler: str, now: Micros) -> Transition:
    """Return the job with a new description. Only a changed schedule changes the next run, and it counts from *now*.

    A run in progress continues, and its ending does not undo the edit.
    """
    edited = replace(job, description=spec.description, handler=handler, updated=now, revision=job.revision + 1)
    state = job.state
    skips: tuple[Skip, ...] = ()
    is_rescheduled = spec.schedule != job.schedule or job.description.lacks("schedule")
    if is_rescheduled:
        edited = replace(edited, anchor=now)
        skips = _known(job, now, SkipReason.MISFIRE)
        if state.disabled_reason == ENDED:
            state = replace(state, phase=Phase.ACTIVE, disabled_reason=None, disabled_at=None)
        is_idle = state.activity is Status.IDLE
        state = replace(
            state,
            retry_of=None,
            attempts=0,
            regular_at=None,
            retries=without_retries(state.retries),
            owed_until=None,
            retry_count=0,
            period_start=None,
            occurrences_run=0,
            counted_until=None if is_idle and state.phase is Phase.ACTIVE else now,
        )
        never_ran = state.last_run_at is None and is_idle
        first = spec.schedule.first_micros(now) if never_ran or spec.schedule.runs_once else None
        following = jittered(edited, first if first is not None else spec.schedule.next_micros(now, now))
        if state.phase is not Phase.DISABLED:
            state = with_next_run(edited, state, following, now)
        elif not is_idle:  # it may be resumed before its run has ended
            state = replace(state, next_run_at=following)
    elif spec.description.policy.max_runs != job.max_runs:
        counted = state if job.max_runs is not None else replace(state, occurrences_run=0)
        state, skips = _recounted(edited.with_state(counted), now)
    edited = edited.with_state(converted(edited, state, now))
    if not spec.enabled and edited.enabled:
        change = disable(edited, "it was disabled by hand", now)
        edited, skips = change.job, skips + change.skips
    elif spec.enabled and not edited.enabled and state.disabled_reason != ENDED:
        change = resume_if_it_computes(edited, now)
        edited, skips = change.job, skips + change.skips
    return Transition(edited, skips)


def _recounted(job: Job, now: Micros) -> tuple[JobState, tuple[Skip, ...]]:
    """Return the state of a *job* with another `max_runs`, and its rows: it may have ended now, or no longer."""
    state = job.state
    is_over = has_run_enough(job, state)
    if state.activity is not Status.IDLE or state.retry_of is not None:
        return state, ()  # the ending of the run decides
    if is_over and state.phase is not Phase.DISABLED:
        return with_next_run(job, state, None, now), uncounted(job, now, SkipReason.ENDED)
    if state.disabled_reason == ENDED and not is_over:
        revived = replace(state, phase=Phase.ACTIVE, disabled_reason=None, disabled_at=None, counted_until=None)
        return with_next_run(job, revived, next_regular(job, now), now), uncounted(job, now, SkipReason.ENDED)
    return state, ()


def pause(job: Job, now: Micros, reason: str | None = None, until: Micros | None = None) -> Transition:
    """Pause a job until it is resumed, or *until* a time. Due occurrences are skipped, except that of a one-shot."""
    state = job.state
    skips: tuple[Skip, ...] = ()
    if state.phase is Phase.ACTIVE:
        state, skips = _settled(job, now, SkipReason.PAUSED)
        state = replace(state, phase=Phase.PAUSED, counted_until=now) if state.disabled_reason != ENDED else state
    if state.phase is Phase.PAUSED:
        state = replace(state, paused_reason=reason, paused_until=until)
    return Transition(job.with_state(state), skips)


def resume(job: Job, now: Micros, *, away_until: Micros | None = None) -> Transition:
    """Resume a job with its failure count cleared. Occurrences during the pause do not count as missed.

    *away_until* is the last moment of the pause; None means *now*.
    """
    state = job.state
    last = now if away_until is None else away_until
    if state.disabled_reason == ENDED:
        raise JobEndedError(job.id, job.namespace)
    fresh = replace(
        state,
        phase=Phase.ACTIVE,
        disabled_reason=None,
        disabled_at=None,
        consecutive_errors=0,
        interruptions=0,
        retry_count=0,
        period_start=None,
        counted_until=_counted_when_active(state, last),
        paused_reason=None,
        paused_until=None,
    )
    if job.schedule.runs_once and not owes_since_its_claim(job):
        # It still has to run once: late, and as a further attempt if there was one before.
        at = jittered(job, job.schedule.first_micros(now))
        return Transition(job.with_state(replace(fresh, next_run_at=state.next_run_at or at)))
    was_away = state.phase is not Phase.ACTIVE
    skips = uncounted(job, last, SkipReason.BACKOFF) if was_away else ()
    if owes_since_its_claim(job):
        if was_away:
            fresh = replace(fresh, regular_at=None, owed_until=None)  # which have their rows now
        return Transition(job.with_state(fresh), skips)  # the ending of the run in progress sets the next run
    if has_run_enough(job, state):
        if state.retry_of is None:
            return Transition(job.with_state(disabled(fresh, ENDED, now)), skips)
        regular = next_regular(job, last) if was_away else state.regular_at
        left = replace(fresh, next_run_at=state.next_run_at or now, regular_at=regular, owed_until=None)
        return Transition(job.with_state(left), skips)
    if state.owed_until is not None and state.regular_at is not None:
        return Transition(job.with_state(with_owed(job, fresh, state.regular_at, state.owed_until, now)), skips)
    if job.schedule.counts_from_end:
        planned = state.regular_at or state.next_run_at or now
        return Transition(job.with_state(with_next_run(job, fresh, max(planned, now), now)))
    is_paused = state.phase is Phase.PAUSED
    was_not_missed = is_paused and (state.next_run_at or 0) > last
    if state.regular_at is None and (not was_away or was_not_missed):
        return Transition(job.with_state(fresh), skips)
    if job.schedule.follows_runs:
        owed = owed_ending(state)
        is_owed = owed is not None and (not was_away or owed > last)
        return Transition(job.with_state(with_next_run(job, fresh, owed if is_owed else None, now)), skips)
    following = next_regular(job, last)
    if following is None and state.retry_of is not None:  # retry the last occurrence; all others have their rows
        return Transition(job.with_state(replace(fresh, next_run_at=state.next_run_at or now, regular_at=None)), skips)
    if not was_away:
        skips = passed_over(job, state.regular_at, now, SkipReason.BACKOFF)
    return Transition(job.with_state(with_next_run(job, fresh, following, now)), skips)


def end_pause(job: Job) -> Transition:
    """Resume a job at the end of its pause. An occurrence at that very time runs."""
    until = job.state.paused_until
    assert until is not None
    return resume_if_it_computes(job, until, away_until=until - 1)


def resume_if_it_computes(job: Job, now: Micros, *, away_until: Micros | None = None) -> Transition:
    """Resume a job as `resume` does. If its schedule fails, disable it with the reason: it could not run."""
    try:
        return replace(resume(job, now, away_until=away_until), kind=EventKind.RESUMED)
    except JobEndedError:
        raise
    except Exception as error:  # the schedule is not ours
        state = disabled(job.state, failing_schedule(error), now)
        return Transition(job.with_state(state), _known(job, now, SkipReason.BACKOFF), EventKind.DISABLED)


def _counted_when_active(state: JobState, now: Micros) -> Micros | None:
    """Return until when the occurrences of a job that becomes active *now* have their rows, if a run needs to know."""
    if state.activity is Status.IDLE:
        return None
    return state.counted_until if state.phase is Phase.ACTIVE else now


def disable(job: Job, reason: str, now: Micros) -> Transition:
    """Disable a job for *reason*. Due occurrences are skipped, except that of a one-shot. An ended job stays ended."""
    if job.ended:
        return Transition(job)
    until = now
    if job.schedule.follows_runs:  # an ending whose delay has not passed is skipped, too: it would be forgotten
        until = max(now, owed_ending(job.state) or now)
    state, skips = _settled(job, until, SkipReason.DISABLED) if job.enabled else (job.state, ())
    if state.activity is Status.IDLE:
        return Transition(job.with_state(disabled(state, reason, now)), skips)
    # Keep the next run until the run in progress has ended, because the job may be resumed before that.
    if state.disabled_reason != ENDED:
        gone = disabled(state, reason, now)
        state = replace(gone, next_run_at=state.next_run_at, regular_at=state.regular_at)
    return Transition(job.with_state(state), skips)


def remove(job: Job, now: Micros) -> Transition:
    """Return the last rows of a job that is removed."""
    return Transition(job, _known(job, now, SkipReason.MISFIRE))


def _settled(job: Job, now: Micros, reason: SkipReason) -> tuple[JobState, tuple[Skip, ...]]:
    """Return the state of a job after each occurrence up to *now* has got its row, and the rows.

    A one-shot, a delay and a retry remain owed. A schedule that fails leaves the next run as it is.
    """
    state = job.state
    if job.schedule.runs_once or job.schedule.counts_from_end:
        return state, ()
    skips = _known(job, now, reason)
    if state.next_run_at is None:  # the ending of the run in progress sets the next run
        return replace(state, regular_at=None, owed_until=None), skips
    if not skips:
        return state, skips
    try:
        following = next_regular(job, now)
    except Exception:  # a claim notices it, if the job is resumed
        return state, skips
    if state.retry_of is not None:
        return replace(state, regular_at=following, owed_until=None), skips
    return with_next_run(job, state, following, now), skips


def _known(job: Job, now: Micros, reason: SkipReason) -> tuple[Skip, ...]:
    """Return the result of `uncounted`. If the schedule fails, return the occurrence that was due, if there was one."""
    try:
        return uncounted(job, now, reason)
    except Exception:  # an edit must be possible all the same: it may mend the job
        state = job.state
        since = state.regular_at if state.regular_at is not None else state.next_run_at
        if state.phase is not Phase.ACTIVE or since is None or since > now:
            return ()
        return (Skip(reason=reason, scheduled_for=since, missed=1),)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
