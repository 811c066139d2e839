"""The enums of jobs and runs: outcomes, statuses, policies, and reasons."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from scheduler_async.errors import quoted
from scheduler_async.jobs.names import refuse


class Outcome(StrEnum):
    """The outcome of a run."""

    SUCCESS = "success"
    NOOP = "noop"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    is_failure: bool
    """Whether the outcome counts as a failure of the job."""

    is_success: bool
    """Whether the handler did its work, or had nothing to do."""

    def __init__(self, value: str) -> None:
        self.is_failure = value in ("error", "timeout", "interrupted")
        self.is_success = value in ("success", "noop")


class Status(StrEnum):
    """The state of a job: waiting, queued, running, paused or disabled."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DISABLED = "disabled"


class Priority(StrEnum):
    """Decides which jobs start first if not all can start at once."""

    HIGH = "high"
    STANDARD = "standard"
    LOW = "low"

    @property
    def rank(self) -> int:
        """The position in the order. Lower starts first."""
        return _RANKS[self]


_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


class Misfire(StrEnum):
    """The policy for missed occurrences: run the job once now, skip them, or run each of them."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    RUN_ALL = "run_all"


class Overlap(StrEnum):
    """The policy for an occurrence that comes due while as many runs of the job are in progress as may be.

    Skip it, let one wait for the end of a run, or cancel the oldest run.
    """

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL = "cancel"


class OnInterrupt(StrEnum):
    """The policy for a run whose process died: run the occurrence again, or skip it."""

    RERUN = "rerun"
    SKIP = "skip"


class OnConflict(StrEnum):
    """The behaviour of `add_job` if the id exists: raise an error, replace the job, or keep it."""

    RAISE = "raise"
    REPLACE = "replace"
    KEEP = "keep"


class Trigger(StrEnum):
    """The cause of a run: the schedule, a retry, a catch-up of missed occurrences, a manual trigger, or a backfill."""

    SCHEDULE = "schedule"
    RETRY = "retry"
    CATCH_UP = "catch_up"
    MANUAL = "manual"
    BACKFILL = "backfill"


class SkipReason(StrEnum):
    """The reason why a job is not running, or why an occurrence did not run."""

    NOT_DUE = "not_due"
    DISABLED = "disabled"
    PAUSED = "paused"
    MANUAL_ONLY = "manual_only"
    ALREADY_RUNNING = "already_running"
    BACKOFF = "backoff"
    RETRIES_EXHAUSTED = "retries_exhausted"
    MISFIRE = "misfire"
    AT_CAPACITY = "at_capacity"
    GROUP_FULL = "group_full"
    QUEUE_FULL = "queue_full"
    RATE_LIMITED = "rate_limited"
    NO_HANDLER = "no_handler"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    STOPPING = "stopping"
    NO_SCHEDULER = "no_scheduler"
    NOT_CREATED = "not_created"
    PURGED = "purged"
    UNKNOWN_SCHEDULE = "unknown_schedule"


class Phase(StrEnum):
    """Whether the schedule of a job is in effect. It does not say whether the job is running."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


ENDED = "ended"
"""The `disabled_reason` of a job whose schedule has no occurrences left."""


Choice = TypeVar("Choice", bound=Enum)


def check_choice(kind: type[Choice], value: object, what: str) -> Choice:
    """Return *value* as a member of *kind*. *what* names the field in the error."""
    if isinstance(value, kind):
        return value
    found = next((choice for choice in kind if choice.value == value), None)
    if found is None:
        refuse(what, f"must be one of {', '.join(str(choice.value) for choice in kind)}, not {quoted(value)}")
    return found
