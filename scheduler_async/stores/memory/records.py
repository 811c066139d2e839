"""What the store keeps: a job with what belongs to it, runs, their owners, changes, backfills and nodes."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from msgspec import Struct, field

from scheduler_async.jobs.backfill import BackfillState
from scheduler_async.jobs.enums import Outcome, Trigger
from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.job import Job
from scheduler_async.stores.change_codec import text_of_new_job
from scheduler_async.stores.messages import NodeIdentity, NodeRow
from scheduler_async.timekeeping.instants import Micros


def numbers() -> array[int]:
    """Return an empty list of numbers, which the garbage collector need not visit."""
    return array("q")


class JobRecord(Struct, gc=False, eq=False):
    """A job, and the numbers of what belongs to it. A removed job remains for its runs and changes."""

    job: Job
    runs: array[int] = field(default_factory=numbers)
    """All rows of its run log, oldest first."""
    attempts: dict[Micros, int] = field(default_factory=dict)
    """The last attempt at each occurrence."""
    held: tuple[int, ...] = ()
    """The runs in progress, oldest first."""
    changes: array[int] = field(default_factory=numbers)
    cause: int | None = None
    """The last run of another job that made this one due."""
    removed_at: Micros | None = None


class StoredRun(Struct, gc=False, eq=False):
    """A row of the run log, with the long texts of the run."""

    id: int
    uid: int
    scheduled_for: Micros
    attempt: int
    trigger: Trigger | str
    claimed_at: Micros
    started_at: Micros | None = None
    finished_at: Micros | None = None
    outcome: Outcome | str | None = None
    reason: str | None = None
    missed: int = 0
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    node: str | None = None
    payload: str | None = None
    """The JSON of the payload that only this run got."""
    result: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    output: str | None = None
    traceback: str | None = None
    after: int | None = None
    """The run of another job that caused this one."""
    origin: int | None = None
    """The first attempt at a manual run that any node may make."""
    previous: int | None = None
    """The attempt at the same occurrence before this one."""

    @property
    def is_attempt(self) -> bool:
        """Whether it is an attempt at an occurrence, of which each has one row."""
        return self.attempt > 0 and self.trigger != Trigger.MANUAL


class Owner(Struct, gc=False, eq=False):
    """Which job and which node hold a run in progress."""

    uid: int
    node: int
    is_instance: bool = False
    """Whether the job may have several runs at once."""
    backfill: int | None = None


class StoredChange(NamedTuple):
    """A change of a job. A new job is written as JSON only when it is read."""

    uid: int
    at: Micros
    action: str
    actor: str | None
    via: str | None
    reason: str | None
    before: str | None
    after: str | Job | None

    @property
    def content(self) -> str | None:
        """The JSON of the fields that changed, as they are since."""
        return text_of_new_job(self.after) if isinstance(self.after, Job) else self.after


class StoredBackfill(Struct, eq=False):
    """A backfill, its occurrences that no node has taken, and its runs in progress."""

    number: int
    uid: int
    max_concurrent: int
    payload: str | None
    total: int
    state: BackfillState
    due: list[Micros]
    """A heap."""
    done: int = 0
    failed: int = 0
    held: set[int] = field(default_factory=set)


class StoredNode(Struct, eq=False):
    """A node, and when it last sent a heartbeat."""

    row: NodeRow
    handlers: frozenset[str] | None
    beat_at: Micros


class StoredLife(Struct, eq=False):
    """The life of a node, which remains when the node is gone."""

    identity: NodeIdentity
    since: Micros
    until: Micros | None = None
    how: NodeFate = NodeFate.RUNNING
