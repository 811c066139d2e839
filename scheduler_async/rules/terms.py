"""What the rules are given, and what they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scheduler_async.jobs.job import JobState
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import Attempt, Skip
from scheduler_async.timekeeping.instants import MINUTE, Micros


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
