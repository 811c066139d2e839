"""The values that the engine and a store exchange: changes, claims, endings, nodes, and filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, Self

from msgspec import Struct
from msgspec import field as struct_field

from scheduler_async.errors import StoreError
from scheduler_async.jobs.enums import Outcome, Priority, Status, Trigger
from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.progress import ProgressReport
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import Rooms
from scheduler_async.rules.rates import NO_RATES, Rates
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import DAY, Micros

MOST_UNHANDLED = 1000
"""A claim reports at most this many jobs that wait for a handler."""


MOST_ATTEMPTS = 100
"""`Store.runs_about` returns at most this many attempts of each kind. More do not matter."""


MOST_SKIPS = 100
"""`Store.runs_about` searches at most this many rows of skipped occurrences. The right one is the
last, unless the clock was set back."""


MIGRATED = "Store %s migrated from schema version %d to %d"
"""The log message after the migration of an older store."""


class NodeLost(Exception):  # noqa: N818 - a message to the engine, which users never see
    """Other nodes have declared this node dead. It must stop its runs and join again."""


class UnstorableError(StoreError):
    """The store works, but cannot keep this value. Trying again does not help."""


Decide = Callable[[Job | None], Transition | None]
"""Decides about the current job, or None if there is none.

It returns the change, or None to leave the job unchanged.
"""


class Change(Protocol):
    """A change to a job. The store calls `decide` within the transaction."""

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        ...

    @property
    def id(self) -> str:
        """The id of the job."""
        ...

    @property
    def decide(self) -> Decide:
        """The function that decides."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether it sets a schedule that may be slow. See `stores/decided.py`."""
        ...

    @property
    def adds(self) -> bool:
        """Whether the job is expected to be new. A store may look for it in another order then."""
        ...


class Decision(NamedTuple):
    """A change that a function decides."""

    namespace: str
    id: str
    decide: Decide
    adds: bool = True
    is_slow: bool = False


class Claims(Struct, frozen=True, kw_only=True):
    """The result of a claim."""

    runs: Sequence[ClaimedRun] = ()
    """The claimed runs, in the order in which they should start."""
    edits: Sequence[Transition] = ()
    """The jobs that skipped occurrences, or were disabled."""
    unhandled: Sequence[Job] = ()
    """One due job for each handler that is not registered here. These jobs wait."""
    is_full: bool = False
    """Whether more jobs may be due: the limit was reached, or due occurrences had already run."""
    next_due: Micros | None = None
    """When the next job is due, not counting jobs that could not be claimed."""
    next_count: int = 0
    """How many jobs are due at that time, counted up to the limit in the terms."""
    overlaps: bool = False
    """Whether runs must be cancelled, perhaps of this node, to make room for occurrences that are due."""


class ClaimTerms(Struct, frozen=True, kw_only=True):
    """The conditions under which a claim may take due jobs."""

    node: int
    limit: int
    slots: int | None
    """How many runs can start immediately. The rest are queued. None means all."""
    handlers: Sequence[str] | None
    """The registered handlers. None means any."""
    ahead: Micros = 0
    """How long before its due time a job may be claimed. The claim then counts from the due time."""
    count: int = 1
    """The limit for counting the jobs that are due next."""
    group_limit: int | None = None
    """The concurrency limit of a group within a namespace, unless `group_limits` has one."""
    group_limits: Mapping[str, int] = struct_field(default_factory=dict)
    """The concurrency limits by group name. The key "*/name" limits a group across all namespaces."""
    group_rates: Rates = NO_RATES
    """How many runs of a group may start in a period."""
    rules: Rules

    @property
    def limits_groups(self) -> bool:
        """Whether any group has a limit or a rate."""
        return self.limits_running or bool(self.group_rates)

    @property
    def limits_running(self) -> bool:
        """Whether any group has a limit on how many of its jobs run at once."""
        return self.group_limit is not None or bool(self.group_limits)

    def rooms(self, running: Mapping[str, int], started: Mapping[str, int]) -> Rooms:
        """Return the free slots of the groups. *running* counts runs by group key, *started* by the key of a rate."""
        return Rooms(self.group_limit, self.group_limits, running, self.group_rates.counts, started)


class NodeIdentity(Struct, frozen=True, kw_only=True):
    """A process that shares the store."""

    name: str
    host: str
    """The machine and the process table in which the process id is valid."""
    pid: int
    process_start: str


class AlreadyRequested(NamedTuple):
    """The answer of a store that was asked for a run while another one is waiting."""

    run: int


class Cancellation(Enum):
    """The answer of a store that was asked to cancel a run."""

    UNKNOWN = "unknown"
    """There is no such run."""
    ENDED = "ended"
    """The run had ended."""
    REQUESTED = "requested"
    """The node that has claimed the run will cancel it."""
    DONE = "done"
    """The run had not been taken up. It is recorded as cancelled."""


class CancelRequest(NamedTuple):
    """A request to cancel a run, as a store keeps it."""

    reason: str | None
    at: Micros


class Report(NamedTuple):
    """What a run of this node has reported since the last time."""

    run: int
    progress: ProgressReport | None
    """None if there is no new report."""
    output: str | None
    """The end of its output; None if it has written nothing new."""


OVERLAPPED = "overlapped"
"""The reason of a run that was cancelled because the next occurrence was due, with `overlap="cancel"`."""


REMOVED = "The job was removed."
"""The error of a run that was cancelled because its job was removed."""


PURGED = {True: "its schedule ended long ago", False: "it was disabled for long"}
"""Why an old job was removed, by whether its schedule had ended."""


NEVER_BEAT = -1


UNKNOWN_NODE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A row of the table of nodes."""

    id: int
    identity: NodeIdentity
    beat: int
    """A counter that increases as long as the node lives. Other nodes watch it with their own clocks."""
    since: Micros
    age: float | None = field(default=None, compare=False)
    """Seconds since the last heartbeat, by the clock of the store. None if the store has no clock."""
    problem: str | None = field(default=None, compare=False)
    """The part of the row that cannot be read, if any.

    The process id is 0 then, and only heartbeats show that it lives.
    """

    @classmethod
    def missing(cls, id: int, name: str | None) -> Self:
        """Return a node that has claims but no row. The rows of its runs may tell its *name*."""
        identity = NodeIdentity(name=name or UNKNOWN_NODE, host="", pid=0, process_start="")
        return cls(id=id, identity=identity, beat=NEVER_BEAT, since=0)

    @property
    def is_missing(self) -> bool:
        """Whether the store has no row of the node."""
        return self.beat == NEVER_BEAT and not self.identity.host


class NodeStatus(Struct, frozen=True, kw_only=True):
    """A node, with the facts that only the store knows."""

    node: NodeRow
    age: Micros
    """Time since the last heartbeat, by the clock of the store."""
    running: int
    """How many runs the node has claimed and not finished."""
    handlers: frozenset[str] | None = None
    """The handlers that the node has. None means any, or that they are not known."""
    skew: Micros = 0
    """How far its clock was ahead of the store's clock at the last heartbeat. Zero if all nodes share one clock."""


class JobFilter(Struct, frozen=True, kw_only=True):
    """A filter for jobs. None means any."""

    status: Status | None = None
    namespace: str | None = None
    user_id: str | None = None
    handler: str | None = None
    group: str | None = None
    priority: Priority | None = None
    metadata: Mapping[str, object] | None = None
    due_before: Micros | None = None
    ended: bool | None = None
    """Whether the schedule has nothing left."""
    limit: int | None = None

    @property
    def may_be_running(self) -> bool:
        """Whether a job with a run in progress can meet the conditions."""
        return self.due_before is None and self.status in (None, Status.QUEUED, Status.RUNNING)


def has_metadata(job: Job, wanted: Mapping[str, object]) -> bool:
    """Return whether the metadata of *job* contains all *wanted* keys with equal values."""
    metadata = job.metadata
    return all(key in metadata and _is_same_json(metadata[key], value) for key, value in wanted.items())


def _is_same_json(one: object, other: object) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, true does not equal 1."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_same_json(value, other[key]) for key, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(_is_same_json, one, other))
    return one == other


class RunFilter(Struct, frozen=True, kw_only=True):
    """A filter for rows of the run log, newest first. None means any."""

    run: int | None = None
    namespace: str | None = None
    id: str | None = None
    outcome: Outcome | None = None
    trigger: Trigger | None = None
    since: Micros | None = None
    """The time of the claim or of the skip, at the earliest."""
    until: Micros | None = None
    """The same, at the latest."""
    before: int | None = None
    """Only rows with a smaller id."""
    limit: int | None = None

    @property
    def names_jobs(self) -> bool:
        """Whether the rows are found through their jobs."""
        return self.namespace is not None or self.id is not None

    @property
    def is_of_namespace(self) -> bool:
        """Whether the rows of all jobs of a namespace are wanted."""
        return self.namespace is not None and self.id is None and self.run is None

    @property
    def is_bounded_by_time(self) -> bool:
        """Whether the rows of all jobs of the store, or of a namespace, are of a stretch of time."""
        return self.id is None and self.run is None and not (self.since is None and self.until is None)

    @property
    def selects_among_all(self) -> bool:
        """Whether some of the rows of all jobs are wanted, by outcome or by trigger."""
        return not self.names_jobs and self.run is None and not (self.outcome is None and self.trigger is None)


USUAL_OUTCOMES = frozenset({Outcome.SUCCESS, Outcome.NOOP})
"""Most runs end so. An index of the others costs them nothing."""


LOOK_BACK = 100_000
"""Without an index, only so many of the newest rows are looked at for those with an outcome or a trigger."""


class RunDetails(NamedTuple):
    """What a run got and left that its row of the run log does not contain."""

    traceback: str | None = None
    payload: Json = None


class ChangeFilter(Struct, frozen=True, kw_only=True):
    """A filter for changes of jobs, newest first. None means any."""

    namespace: str | None = None
    id: str | None = None
    since: Micros | None = None
    decisions_only: bool = False
    """Leave out triggers and cancellations."""
    limit: int | None = None


FEW_JOBS = 1000
"""The rows of a namespace with at most this many jobs are found job by job. Otherwise, the rows of all are looked at,
newest first."""


class NodeLife(Struct, frozen=True, kw_only=True):
    """A row of the lives of nodes."""

    identity: NodeIdentity
    since: Micros
    until: Micros | None
    how: NodeFate | str
    is_there: bool
    """Whether the store has a row of the node: the node lives, or no other node has noticed that it died."""
    age: Micros | None = None
    """Time since the last heartbeat, by the clock of the store, if there is a row."""
    recorded_at: Micros | None = None
    """When it last recorded a run, if it is not known to have ended, and one of the newest runs is its own."""


# Lives of at least this length are found through an index of their own.
LONG_LIFE: Micros = DAY

# Among so many of the newest runs, a store looks for the last that a node has recorded.
MOST_RECORDED = 1_000

# So many lives of nodes at the same time tell enough.
MOST_LIVES = 100


def last_alive(since: Micros, beat_at: object, recorded_at: object, now: Micros) -> Micros:
    """Return until when a lost node was known to live: its last heartbeat, or *now* if that is not known.

    A run that it *recorded_at* a later time proves that it lived then. Heartbeats use the clock of the machine, and
    everything else that of the scheduler, which may be virtual.
    """
    if not isinstance(beat_at, int) or not since <= beat_at <= now:
        return now
    return min(max(beat_at, recorded_at), now) if isinstance(recorded_at, int) else beat_at
