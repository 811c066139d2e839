"""The next regular occurrence of a job. Pure."""

from __future__ import annotations

from typing import Protocol

from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.instants import Micros


class Forgetful(Protocol):
    """The part of a state that decides which occurrences have run."""

    @property
    def forgotten_until(self) -> Micros | None:
        """Occurrences up to this one may have run although their rows were purged."""


class Recurring(Protocol):
    """The parts of a job that decide when it runs."""

    @property
    def schedule(self) -> Schedule:
        """When the job runs."""

    @property
    def anchor(self) -> Micros:
        """The start of the schedule."""

    @property
    def key(self) -> str:
        """The unique name of the job."""

    @property
    def state(self) -> Forgetful:
        """The part of the job that runs change."""


def next_regular(job: Recurring, after: Micros) -> Micros | None:
    """Return the first regular occurrence after *after* that has not run."""
    forgotten = job.state.forgotten_until
    if forgotten is not None and forgotten > after:  # the clock was set back further than the run log reaches
        after = forgotten
    return following(job, after)


def following(job: Recurring, after: Micros) -> Micros | None:
    """Return the first regular occurrence after *after*."""
    schedule = job.schedule
    first = schedule.next_micros(after, job.anchor if job.anchor <= after else anchor_of(job, after))
    if schedule.jitter is None:
        return first
    waiting = waiting_for_jitter(job, after)
    return jittered(job, first) if waiting is None else waiting


def jittered(job: Recurring, at: Micros | None) -> Micros | None:
    """Return the occurrence *at* with its jitter."""
    if at is None or job.schedule.jitter is None:
        return at
    return job.schedule.jittered(at, job.key, anchor_of(job, at))


def waiting_for_jitter(job: Recurring, moment: Micros) -> Micros | None:
    """Return the occurrence that is due at *moment* except for its jitter, if there is one."""
    latest = job.schedule.latest_micros(moment, anchor_of(job, moment))
    if latest is None or latest <= job.anchor:  # it precedes this schedule of the job
        return None
    at = jittered(job, latest)
    return at if at is not None and at > moment else None


def anchor_of(job: Recurring, moment: Micros) -> Micros:
    """Return the start of the grid for times after *moment*, which may precede the job if the clock was set back."""
    return job.schedule.anchor_before(moment, job.anchor)
