"""Jobs and runs as a copy transfers them between stores, and the result for each job."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from scheduler_async.jobs.job import Job
from scheduler_async.timekeeping.instants import Micros


class RunRecord(NamedTuple):
    """A row of the run log as stores keep it, with the output of the run."""

    id: int
    """Its number in the source. The target assigns a new number."""
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
    """A job or a run that a copy omits because it cannot be read."""

    number: int
    """Its number in the source."""
    namespace: str
    job_id: str
    why: str


class Verdict(StrEnum):
    """The result of a copy for one job."""

    ADDED = "added"
    UPDATED = "updated"
    SAME = "same"
    """The target already has an identical job."""
    KEPT = "kept"
    """The target keeps its own job, which differs."""
    LEFT_OUT = "left_out"

    @property
    def writes(self) -> bool:
        """Whether the copy writes to the target."""
        return self is Verdict.ADDED or self is Verdict.UPDATED


class Ruling(NamedTuple):
    """The result of a copy for one job, with the reason if it is not copied."""

    verdict: Verdict
    job: Job
    """The job to write, with its number in the target (zero if it is new there); or the job that the target keeps."""
    why: str | None = None


RuleOfCopy = Callable[[Job, Job | LeftOut | None], Ruling]
"""Decides about a job, given the job with the same name in the target, which may be unreadable."""
