"""The words that jobs and runs are described by."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeVar

from scheduler_async.errors import quoted
from scheduler_async.jobs.names import refuse


class Outcome(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    NOOP = "noop"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    is_failure: bool
    """Whether it counts against the job."""

    def __init__(self, value: str) -> None:
        self.is_failure = value in ("error", "timeout", "interrupted")


class Status(StrEnum):
    """What a job is doing."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DISABLED = "disabled"


class Priority(StrEnum):
    """Who goes first when not all can go."""

    HIGH = "high"
    STANDARD = "standard"
    LOW = "low"

    @property
    def rank(self) -> int:
        """Lower goes first."""
        return _RANKS[self]


_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


class Misfire(StrEnum):
    """What becomes of an occurrence that was missed."""

    RUN_ONCE = "run_once"
    SKIP = "skip"


class OnInterrupt(StrEnum):
    """What becomes of a run whose process died."""

    RERUN = "rerun"
    SKIP = "skip"


class OnConflict(StrEnum):
    """What adding a job does when its id is taken."""

    RAISE = "raise"
    REPLACE = "replace"
    KEEP = "keep"


class Trigger(StrEnum):
    """Why a run started."""

    SCHEDULE = "schedule"
    RETRY = "retry"
    CATCH_UP = "catch_up"
    MANUAL = "manual"


class SkipReason(StrEnum):
    """Why a job is not running, or why an occurrence did not run."""

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
    NO_HANDLER = "no_handler"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    STOPPING = "stopping"


class Phase(StrEnum):
    """Whether a job takes part in scheduling, whatever it is doing just now."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


ENDED = "ended"
"""The `disabled_reason` of a job whose schedule has nothing left."""


Choice = TypeVar("Choice", bound=Enum)


def check_choice(kind: type[Choice], value: object, what: str) -> Choice:
    """*value* as a member of *kind*."""
    if isinstance(value, kind):
        return value
    found = next((choice for choice in kind if choice.value == value), None)
    if found is None:
        refuse(what, f"is one of {', '.join(str(choice.value) for choice in kind)}, not {quoted(value)}")
    return found
