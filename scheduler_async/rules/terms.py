"""The arguments and the results of the rules."""

from __future__ import annotations

from msgspec import Struct

from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.timekeeping.instants import MINUTE, Micros


class Rules(Struct, frozen=True, gc=False, kw_only=True):
    """The settings that a scheduler applies to all its jobs."""

    retry: Retry = Retry.backoff()
    misfire_grace: Micros | None = MINUTE
    """The lateness that does not count as a misfire. None means any."""
    retry_floor: Micros = 0
    """The shortest time from a failure to a retry."""


class Room(Struct, frozen=True, gc=False, kw_only=True):
    """The capacity that the scheduler has for a job. None means no limit."""

    has_scheduler: bool = True
    """Whether a scheduler is alive on the store."""
    has_handler: bool = True
    stopping: bool = False
    free_slots: int | None = None
    free_in_group: int | None = None
    free_in_queue: int = 0
    has_queue: bool = False
    clock_is_believed: bool = True


class Transition(Struct, frozen=True, gc=False):
    """The change of a job: its new version, the skipped occurrences, and the claimed run."""

    job: Job
    skips: tuple[Skip, ...] = ()
    kind: EventKind | None = None
    """The event for observers, besides those about runs. None if there is none."""
    attempt: Attempt | None = None
    """The attempt that a claim starts, or the one that an interrupted manual run is followed by."""
    ending: Ending | None = None
    """How the run of a dead node ended, if not as interrupted: a caller had cancelled it."""

    @property
    def state(self) -> JobState:
        """The new state of the job."""
        return self.job.state
