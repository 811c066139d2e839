"""Values that the scheduler returns: explanations, previews, summaries, nodes, and its state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a job is not running now, or what happened to it at another time. `str()` returns a sentence."""

    reason: SkipReason | None
    """The reason, or None if the job ran or would run."""
    until: datetime | None
    """When the reason ends, if known."""
    sentence: str
    """The reason as a sentence."""
    remedy: str | None = None
    """The call that makes the job run, if there is one."""
    at: datetime | None = None
    """The time that was asked about. None means now."""
    run: RunRow | None = None
    """The run of the occurrence at that time: its last attempt, or the run that it was merged into."""

    def __str__(self) -> str:
        return self.sentence if self.remedy is None else f"{self.sentence} {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class Upcoming:
    """An expected run, as `Scheduler.preview` returns it."""

    job: Job
    at: datetime
    retries_left: int | None
    """How many more failures the retry policy allows. None means any number."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PassSummary:
    """The counts of one pass. `str()` returns a sentence."""

    executed: int = 0
    succeeded: int = 0
    failed: int = 0
    retry_queued: int = 0
    """How many of the failed runs will be retried."""
    skipped: int = 0
    cancelled: int = 0
    """How many runs were cancelled because the scheduler stopped."""

    def __str__(self) -> str:
        parts = [
            (self.succeeded, "success"),
            (self.failed - self.retry_queued, "failed"),
            (self.retry_queued, "retry queued"),
            (self.skipped, "skipped"),
            (self.cancelled, "cancelled"),
        ]
        details = ", ".join(f"{number} {word}" for number, word in parts if number)
        tasks = "1 task" if self.executed == 1 else f"{self.executed} tasks"
        return f"{tasks} executed ({details})" if details else "Nothing was due"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A scheduler that shares the store and can run jobs."""

    id: str
    """Its name, as in the `node` column of the run log."""
    host: str
    pid: int
    since: datetime
    lease: timedelta
    """How long the other nodes wait for its next heartbeat. Zero means that they may take over its runs."""
    running: int
    """How many runs it has claimed, including queued ones."""
    clock_skew: timedelta
    """How far its clock is ahead of the store's clock. Investigate a difference of more than a second either way."""
    is_self: bool = False
    unreadable: str | None = None
    """The part of its row that cannot be read from the store, if any."""


@dataclass(frozen=True, kw_only=True)
class SchedulerState:
    """The current activity of a scheduler, as `Scheduler.state` returns it."""

    status: str
    """"stopped", "running" or "stopping"."""
    started_at: datetime | None
    """When the scheduler started. None while it is stopped."""
    tick_count: int
    """How many passes the loop has made since the start."""
    trigger_count: int
    """How many runs have been claimed since the start."""
    last_tick_at: datetime | None
    """When the loop last looked for due jobs."""
    next_wake_at: datetime | None
    """When the loop looks next, unless a change wakes it earlier."""
    running: int
    """How many runs are in progress in this process."""
    queued: int
    """How many claimed runs wait for a slot."""
    problem: str | None = None
    """The problem that stops the scheduler from working, if any: the store fails, or the clock jumped too far."""
