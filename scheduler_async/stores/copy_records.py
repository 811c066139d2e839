"""Jobs and runs as a copy transfers them between stores, and the result for each job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    payload: str | None = None
    """The JSON of the payload that only this run got."""
    result: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    output: str | None = None
    traceback: str | None = None

    @property
    def key(self) -> RunKey:
        """What identifies it in any store."""
        return RunKey(self.scheduled_for, self.attempt, self.trigger, self.claimed_at)


class RunKey(NamedTuple):
    """What identifies a run of a job in any store: numbers differ."""

    scheduled_for: Micros
    attempt: int
    trigger: str
    claimed_at: Micros

    @property
    def is_attempt(self) -> bool:
        """Whether it is an attempt at an occurrence. There is only one of each, whichever node made it."""
        return self.attempt > 0 and self.trigger != "manual"


class ChangeCopy(NamedTuple):
    """A change of a job as stores keep it."""

    number: int
    """Its number in the source. The target assigns a new number."""
    namespace: str
    job_id: str
    at: Micros
    action: str
    actor: str | None
    via: str | None
    reason: str | None
    before: str | None
    after: str | None
    run: RunKey | None = None
    """The run that was triggered or cancelled, if it is known."""

    def told(self, run: int | None) -> ChangeTold:
        """Return what the change tells. *run* is the number of its run in the target; None if that is not there."""
        after = self.after if self.run is None else None if run is None else after_of_run(run)
        return (self.at, self.action, self.actor, self.via, self.reason, self.before, after)


ChangeTold = tuple[Micros, str, str | None, str | None, str | None, str | None, str | None]
"""A change without its job: at, action, actor, via, reason, before and after."""


def after_of_run(run: int) -> str:
    """Return the JSON of the fields that a trigger or a cancellation tells."""
    return f'{{"run":{run}}}'


def missing_changes(
    wanted: Sequence[tuple[int, ChangeTold]], latest: Mapping[int, Sequence[ChangeTold]]
) -> list[tuple[int, ChangeTold]]:
    """Return those of the *wanted* changes that the target lacks, in their order. Each has the number of its job.

    *latest* are the last changes of the jobs in the target, newest first. A copy adds changes in order, so that one
    from before the last one of its job is there, or the target has a history of its own.
    """
    last_at = {job: changes[0][0] for job, changes in latest.items() if changes}
    there = {job: Counter(changes) for job, changes in latest.items()}
    missing = []
    for job, change in wanted:
        at, count = last_at.get(job), there.get(job)
        if at is None or change[0] > at:
            missing.append((job, change))
        elif change[0] == at and count is not None:
            if count[change]:
                count[change] -= 1
            else:
                missing.append((job, change))
    return missing


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
