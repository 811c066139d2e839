"""Jobs and runs as a copy carries them from store to store, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from scheduler_async.jobs.job import Job
from scheduler_async.timekeeping.instants import Micros


class RunRecord(NamedTuple):
    """A row of the run log as stores keep it, with what the run wrote."""

    id: int
    """Its number in the store it comes from; another gives it one of its own."""
    namespace: str
    job_id: str
    scheduled_for: Micros
    attempt: int
    trigger: str
    claimed_at: Micros
    started_at: Micros | None
    finished_at: Micros | None
    outcome: str
    reason: str | None
    missed: int
    error: str | None
    message: str | None
    exit_code: int | None
    node: str | None
    output: str | None


class LeftOut(NamedTuple):
    """A job, or a run, that a copy leaves out since it cannot be read."""

    number: int
    """Its number in the store it comes from."""
    namespace: str
    job_id: str
    why: str


class Verdict(StrEnum):
    """What a copy does with a job."""

    ADDED = "added"
    UPDATED = "updated"
    SAME = "same"
    """It is there already, as it is here."""
    KEPT = "kept"
    """The one that is there stays as it is, although it differs."""
    LEFT_OUT = "left_out"

    @property
    def writes(self) -> bool:
        """Whether the target changes."""
        return self is Verdict.ADDED or self is Verdict.UPDATED


class Ruling(NamedTuple):
    """What becomes of one job in a copy, and why if it is not copied."""

    verdict: Verdict
    job: Job
    """As it is to be written, with the number it has in the target, or zero if it is new there; or as it is kept."""
    why: str | None = None


RuleOfCopy = Callable[[Job, Job | LeftOut | None], Ruling]
"""Given a job and the one of that name in the target, which may be unreadable, say what becomes of it."""
