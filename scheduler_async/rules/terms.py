"""What the rules are given, and what they return."""

from __future__ import annotations

from msgspec import Struct

from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import Attempt, Skip
from scheduler_async.timekeeping.instants import MINUTE, Micros


class Rules(Struct, frozen=True, gc=False, kw_only=True):
    """What a scheduler applies to all its jobs."""

    retry: Retry = Retry.backoff()
    misfire_grace: Micros | None = MINUTE
    """How late is not too late; None never is."""
    retry_floor: Micros = 0
    """The shortest time from a failure to a retry."""


class Room(Struct, frozen=True, gc=False, kw_only=True):
    """What the scheduler has to offer a job just now. A limit of None is no limit."""

    has_handler: bool = True
    stopping: bool = False
    free_slots: int | None = None
    free_in_group: int | None = None
    free_in_queue: int = 0
    has_queue: bool = False
    clock_is_believed: bool = True


class Transition(Struct, frozen=True, gc=False):
    """What becomes of a job: what it looks like then, what was left out on the way, and which run was claimed."""

    job: Job
    skips: tuple[Skip, ...] = ()
    kind: EventKind | None = None
    """The event that observers get besides those of runs; None if nothing changed."""
    attempt: Attempt | None = None
    """The attempt that a claim takes up."""

    @property
    def state(self) -> JobState:
        """The state of the job afterwards."""
        return self.job.state
