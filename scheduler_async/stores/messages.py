"""What passes between the engine and a store: changes, claims, endings, nodes, and what to list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from scheduler_async.errors import StoreError
from scheduler_async.jobs.enums import Outcome, Priority, Status
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import Rooms
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import Micros

MOST_UNHANDLED = 1000
"""A claim names no more jobs than this that wait for a handler."""


MIGRATED = "Store %s migrated from schema version %d to %d"
"""The sentence in the log when an older store is opened."""


class NodeLost(Exception):  # noqa: N818 - it is a message to the engine, never to a user
    """This node was declared dead by others; it must stop what it runs and join again."""


class UnstorableError(StoreError):
    """The store works, but cannot keep a value that it was given: to try again is of no use."""


Decide = Callable[[Job | None], Transition | None]
"""Given the job as it is, or None, say what becomes of it; None leaves it alone."""


class Change(Protocol):
    """A change to a job, decided when the store has it in hand."""

    @property
    def namespace(self) -> str:
        """Whose job it is about."""
        ...

    @property
    def id(self) -> str:
        """Which job of theirs."""
        ...

    @property
    def decide(self) -> Decide:
        """What becomes of it."""
        ...


class Decision(NamedTuple):
    """A change that a function decides."""

    namespace: str
    id: str
    decide: Decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one claim brought."""

    runs: Sequence[ClaimedRun] = ()
    """In the order in which they should start."""
    edits: Sequence[Transition] = ()
    """Jobs of which occurrences were left out, or which were disabled."""
    unhandled: Sequence[Job] = ()
    """A job that is due for each handler that is not here; they wait."""
    is_full: bool = False
    """Whether more may be due: the limit was reached, or what was due had run before."""
    next_due: Micros | None = None
    """When the next job comes due. What could not be claimed does not count."""
    next_count: int = 0
    """How many come due at that moment, as far as the terms said to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTerms:
    """Which due jobs a claim may take."""

    node: int
    limit: int
    slots: int | None
    """How many can start at once; the rest are queued. None is all."""
    handlers: Sequence[str] | None
    """The handlers there are; None is any."""
    ahead: Micros = 0
    """How long before it is due a job may be claimed. It is claimed as of the moment at which it is due."""
    count: int = 1
    """How many to count of those that come due next."""
    group_limit: int | None = None
    """How many of one group of a namespace may run at a time, where `group_limits` does not say."""
    group_limits: Mapping[str, int] = field(default_factory=dict)
    """The same by the names of groups; "*/name" is for a group across all namespaces."""
    rules: Rules

    @property
    def limits_groups(self) -> bool:
        """Whether any group has a limit."""
        return self.group_limit is not None or bool(self.group_limits)

    def rooms(self, running: Mapping[str, int]) -> Rooms:
        """Return the room that is left in the groups; *running* counts runs by the keys of their groups."""
        return Rooms(self.group_limit, self.group_limits, running)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """A process that shares the store."""

    name: str
    host: str
    """The machine and process table it lives in: only there does its process number mean anything."""
    pid: int
    process_start: str


REMOVED = "The job was removed."
"""What the row of a run says that was cancelled because of that."""


NEVER_BEAT = -1


UNKNOWN_NODE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node as the store has it."""

    id: int
    identity: NodeIdentity
    beat: int
    """Counts up as long as it lives; others watch it with their own clocks."""
    since: Micros
    age: float | None = field(default=None, compare=False)
    """Seconds since its last beat, by the clock of the store; None where that has none."""
    problem: str | None = field(default=None, compare=False)
    """What cannot be read of its row, if anything. Its process number is 0 then: only its beats tell of it."""

    @classmethod
    def missing(cls, id: int, name: str | None) -> Self:
        """A node that has claims but no row. Only its *name* may be known, from the rows of its runs."""
        identity = NodeIdentity(name=name or UNKNOWN_NODE, host="", pid=0, process_start="")
        return cls(id=id, identity=identity, beat=NEVER_BEAT, since=0)

    @property
    def is_missing(self) -> bool:
        """Whether the store has no row of it."""
        return self.beat == NEVER_BEAT and not self.identity.host


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node, and what the store knows about it without being asked by one."""

    node: NodeRow
    age: Micros
    """How long ago it beat, by the store's own clock."""
    running: int
    """How many runs it has claimed and not finished."""
    skew: Micros = 0
    """How far its clock was ahead of the store's when it last beat; zero where all share one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None is any."""

    status: Status | None = None
    namespace: str | None = None
    user_id: str | None = None
    handler: str | None = None
    group: str | None = None
    priority: Priority | None = None
    metadata: Mapping[str, object] | None = None
    due_before: Micros | None = None
    limit: int | None = None


def has_metadata(job: Job, wanted: Mapping[str, object]) -> bool:
    """Whether the metadata of *job* has all that is *wanted*, with these values."""
    metadata = job.metadata
    return all(key in metadata and _is_same_json(metadata[key], value) for key, value in wanted.items())


def _is_same_json(one: object, other: object) -> bool:
    """Whether two values are equal in JSON, where true is not 1; Python compares booleans as numbers."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_same_json(value, other[key]) for key, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(_is_same_json, one, other))
    return one == other


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which rows of the run log to read, newest first; None is any."""

    run: int | None = None
    namespace: str | None = None
    id: str | None = None
    outcome: Outcome | None = None
    since: Micros | None = None
    limit: int | None = None
