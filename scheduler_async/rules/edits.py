"""Changes by users: add, edit, pause, resume or disable a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler_async.errors import JobEndedError
from scheduler_async.jobs.description import field_of
from scheduler_async.jobs.enums import ENDED, Phase, SkipReason, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import Skip
from scheduler_async.jobs.spec import SPEC_FIELDS, JobSpec
from scheduler_async.jobs.unreadable import reason_of
from scheduler_async.rules.missed import jittered, merged, next_regular, passed_over
from scheduler_async.rules.next_run import (
    comes_during_its_run,
    disabled,
    owed,
    owes_since_its_claim,
    was_disabled_before,
    with_next_run,
)
from scheduler_async.rules.terms import Transition
from scheduler_async.timekeeping.instants import Micros

# ---------------------------------------------------------------- edits


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


def edited_spec(job: Job, changes: Mapping[str, Any]) -> JobSpec:
    """Return the spec of *job* with *changes*, which are checked like new arguments. Other fields stay unchanged."""
    unknown = sorted(changes.keys() - set(EDITABLE))
    if unknown:
        raise TypeError(f"Cannot change {_listed(unknown)} of a job. Choose from {_listed(EDITABLE)}.")
    kept = {name: getattr(job, name) for name in (*EDITABLE, "id", "namespace") if name != "enabled"}
    edited = JobSpec(**{**kept, "enabled": is_wanted(job), **changes})
    replaced = {*changes, "updated_at"}  # every edit writes it
    left = tuple(problem for problem in job.description.unreadable if field_of(problem.column) not in replaced)
    return edited.lacking(left) if left else edited


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
        skips = owed(job, now, SkipReason.MISFIRE)
        if owes_since_its_claim(job) and not was_disabled_before(state):
            skips = merged(job, state.last_run_at or now, now, SkipReason.ALREADY_RUNNING)
        if state.disabled_reason == ENDED:
            state = replace(state, phase=Phase.ACTIVE, disabled_reason=None, disabled_at=None)
        state = replace(state, retry_of=None, attempts=0, regular_at=None, retry_count=0, period_start=None)
        is_idle = state.activity is Status.IDLE
        never_ran = state.last_run_at is None and is_idle
        first = spec.schedule.first_micros(now) if never_ran or spec.schedule.runs_once else None
        following = jittered(edited, first if first is not None else spec.schedule.next_micros(now, now))
        if state.phase is not Phase.DISABLED:
            state = with_next_run(edited, state, following, now)
        elif not is_idle:  # it may be resumed before its run has ended
            state = replace(state, next_run_at=following)
    edited = edited.with_state(state)
    if not spec.enabled and edited.enabled:
        change = disable(edited, "it was disabled by hand", now)
        edited = change.job
        skips = skips if is_rescheduled else change.skips
    elif spec.enabled and not edited.enabled and state.disabled_reason != ENDED:
        edited = resume(edited, now).job
    return Transition(edited, skips)


def pause(job: Job, now: Micros) -> Transition:
    """Pause a job until it is resumed. Due occurrences are skipped, except that of a one-shot."""
    state = job.state
    if state.phase is not Phase.ACTIVE:
        return Transition(job)
    if job.schedule.runs_once or job.schedule.counts_from_end or comes_during_its_run(state):
        return Transition(job.with_state(replace(state, phase=Phase.PAUSED)))
    skips = owed(job, now, SkipReason.PAUSED)
    state = _past_what_is_owed(job, now) if skips else state
    has_ended = state.disabled_reason == ENDED
    return Transition(job.with_state(state if has_ended else replace(state, phase=Phase.PAUSED)), skips)


def resume(job: Job, now: Micros) -> Transition:
    """Resume a job with its failure count cleared. Occurrences during the pause do not count as missed."""
    state = job.state
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
    )
    if owes_since_its_claim(job):
        return Transition(job.with_state(fresh))  # the ending of the run in progress sets the next run
    if job.schedule.runs_once:
        # It still has to run once: late, and as a further attempt if there was one before.
        at = jittered(job, job.schedule.first_micros(now))
        return Transition(job.with_state(replace(fresh, next_run_at=state.next_run_at or at)))
    if job.schedule.counts_from_end:
        planned = state.regular_at or state.next_run_at or now
        return Transition(job.with_state(with_next_run(job, fresh, max(planned, now), now)))
    is_paused = state.phase is Phase.PAUSED
    was_not_missed = is_paused and ((state.next_run_at or 0) > now or comes_during_its_run(state))
    if state.regular_at is None and (state.phase is Phase.ACTIVE or was_not_missed):
        return Transition(job.with_state(fresh))
    following = next_regular(job, now)
    if following is None and state.retry_of is not None:  # retry the last occurrence
        return Transition(job.with_state(replace(fresh, next_run_at=state.next_run_at or now)))
    skips = passed_over(job, state.regular_at, now, SkipReason.BACKOFF) if state.phase is Phase.ACTIVE else ()
    return Transition(job.with_state(with_next_run(job, fresh, following, now)), skips)


def disable(job: Job, reason: str, now: Micros) -> Transition:
    """Disable a job for *reason*. The occurrences that it owes get a row."""
    skips = owed(job, now, SkipReason.DISABLED)
    if job.state.activity is Status.IDLE:
        return Transition(job.with_state(disabled(job.state, reason, now)), skips)
    # Keep the next run until the run in progress has ended, because the job may be resumed before that.
    state = _past_what_is_owed(job, now) if skips else job.state
    if state.disabled_reason != ENDED:
        state = replace(state, phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now)
    return Transition(job.with_state(state), skips)


def _past_what_is_owed(job: Job, now: Micros) -> JobState:
    """Return the state after the due occurrences have got a row. A one-shot, a delay and a retry remain owed."""
    if job.schedule.runs_once or job.schedule.counts_from_end:
        return job.state
    following = next_regular(job, now)
    if job.state.retry_of is not None:
        return replace(job.state, regular_at=following)
    return with_next_run(job, job.state, following, now)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
