"""What the scheduler answers when it is asked about jobs and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a job is not running right now. As a text, it is a sentence for a person."""

    reason: SkipReason | None
    """None when it would run."""
    until: datetime | None
    """When that will change, if it is known."""
    sentence: str
    """What the matter is."""
    remedy: str | None = None
    """What to call about it, if anything."""

    def __str__(self) -> str:
        return self.sentence if self.remedy is None else f"{self.sentence} {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class Upcoming:
    """One line of a preview."""

    job: Job
    at: datetime
    retries_left: int | None
    """How many more failures are borne; None is any number."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PassSummary:
    """What one pass did."""

    executed: int = 0
    succeeded: int = 0
    failed: int = 0
    retry_queued: int = 0
    """How many of the failed are tried again."""
    skipped: int = 0
    cancelled: int = 0
    """How many were ended because the pass was."""

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
    """A scheduler that shares the store: one that runs jobs, or could."""

    id: str
    """Its name, as run rows have it."""
    host: str
    pid: int
    since: datetime
    lease: timedelta
    """How long the others wait for its next sign of life; zero when they may take over its runs."""
    running: int
    """How many runs it has claimed, queued ones included."""
    clock_skew: timedelta
    """How far its clock is ahead of the store's. More than a second, either way, is something to look at."""
    is_self: bool = False
    unreadable: str | None = None
    """What cannot be read of its row in the store, if anything; its other fields are what can be read."""


@dataclass(frozen=True, kw_only=True)
class SchedulerState:
    """What a scheduler is doing, as `Scheduler.state` returns it."""

    status: str
    """"stopped", "running" or "stopping"."""
    started_at: datetime | None
    """When it was started; None while it is stopped."""
    tick_count: int
    """How many passes the loop has made since the start."""
    trigger_count: int
    """How many runs have been claimed since the start."""
    last_tick_at: datetime | None
    """When the loop last looked at what is due."""
    next_wake_at: datetime | None
    """When the loop looks again, unless something changes before that."""
    running: int
    """How many runs are in progress in this process."""
    queued: int
    """How many claimed runs wait for a slot."""
    problem: str | None = None
    """What keeps it from working, if anything does: the store fails, or the clock has jumped too far."""
