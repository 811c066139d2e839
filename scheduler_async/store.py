"""What the scheduler asks of a store, and the records that pass between them.

A store keeps jobs, runs and nodes, and makes each change whole: all of it, or none. It decides nothing: where a
decision is needed inside a change, it calls the pure functions of `lifecycle` or the function it was handed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, Self

from scheduler_async.clock import Clock
from scheduler_async.errors import StoreError
from scheduler_async.groups import Rooms
from scheduler_async.instants import Micros
from scheduler_async.lifecycle import Rules
from scheduler_async.models import Attempt, Ending, Job, JobState, Outcome, Priority, RunRow, Skip, Status, Trigger
from scheduler_async.rows import ACTIVITY, DISABLED_REASON, NEXT_RUN_AT, PAYLOAD, TAKEN, UID, KeptJob, Row

MOST_UNHANDLED = 1000
"""A claim names no more jobs than this that wait for a handler."""

MIGRATED = "Store %s migrated from schema version %d to %d"
"""The sentence in the log when an older store is opened."""


class NodeLost(Exception):  # noqa: N818 - it is a message to the engine, never to a user
    """This node was declared dead by others; it must stop what it runs and join again."""


class UnstorableError(StoreError):
    """The store works, but cannot keep a value that it was given: to try again is of no use."""


class Edit(NamedTuple):
    """What becomes of one job within a change. A tuple: adding many jobs makes many of them."""

    job: Job
    skips: tuple[Skip, ...] = ()
    kind: str | None = None
    """What to tell observers: "added", "updated", …; None if nothing changed."""

    @property
    def disabled_reason(self) -> str | None:
        """Why the job is disabled, if it is."""
        return self.job.state.disabled_reason


Decide = Callable[[Job | None], Edit | None]
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


@dataclass(slots=True, eq=False)
class ClaimedRun(KeptJob):
    """A run that is ours: the job is marked, the row is written, and the handler may start. Its job is as of then."""

    id: int
    uid: int
    """The number of its job."""
    payload_json: str
    scheduled_for: Micros
    number: int
    """The how many-th attempt at this occurrence it is."""
    trigger: Trigger
    claimed_at: Micros
    taken: Row
    """What the claim has changed in the state of the job, as it was before."""

    @classmethod
    def of(cls, id: int, job: Job, attempt: Attempt, payload_json: str, before: JobState) -> Self:
        """A run of *job*, which looked like *before* when it was claimed."""
        taken: Row = tuple(before)[TAKEN]
        return cls(None, None, job, id, job.uid, payload_json, *attempt, taken)

    @classmethod
    def in_time(cls, id: int, description: Row, before: Row, after: Row) -> Self:
        """A regular run that was claimed no later than it is due; *before* and *after* are columns of the state."""
        uid, payload, at = description[UID], description[PAYLOAD], before[NEXT_RUN_AT]
        return cls(description, after, None, id, uid, payload, at, 1, Trigger.SCHEDULE, at, before[TAKEN])

    @property
    def attempt(self) -> Attempt:
        """Which occurrence, which try, and why."""
        return Attempt(self.scheduled_for, self.number, self.trigger, self.claimed_at)

    @property
    def before(self) -> JobState:
        """What the job looked like before the claim, should it be undone."""
        return JobState._make((Status.IDLE, *self.taken, *self.job.state[TAKEN.stop :]))

    @property
    def is_queued(self) -> bool:
        """Whether it waits for a slot."""
        return bool(self.state[ACTIVITY] == Status.QUEUED)

    @property
    def named(self) -> dict[str, object]:
        """What every log line about it carries."""
        return {"job": self.key, "run": self.id, "attempt": self.number}


@dataclass(slots=True, eq=False)
class Aftermath(KeptJob):
    """What a run has left behind: what the job looks like after it, what comes next, what was left out meanwhile."""

    next_run_at: Micros | None
    kind: str | None = None
    """What to tell observers, besides that the run has ended."""
    skips: tuple[Skip, ...] = ()
    is_plain: bool = False
    """It succeeded in time and told nothing: its job goes on, or has had its last run, and nothing else is to note."""

    @property
    def disabled_reason(self) -> str | None:
        """Why the job is disabled, if it is."""
        reason: str | None = self.state[DISABLED_REASON]
        return reason

    @classmethod
    def of(cls, edit: Edit) -> Self:
        """What an *edit* of the job says."""
        return cls(None, None, edit.job, edit.job.state.next_run_at, edit.kind, edit.skips)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one claim brought."""

    runs: Sequence[ClaimedRun] = ()
    """In the order in which they should start."""
    edits: Sequence[Edit] = ()
    """Jobs of which occurrences were left out, or which were disabled."""
    unhandled: Sequence[Job] = ()
    """A job that is due for each handler that is not here; they wait."""
    is_full: bool = False
    """Whether more may be due: the limit was reached, or what was due had run before."""
    next_due: Micros | None = None
    """When the next job comes due. What could not be claimed does not count."""
    next_count: int = 0
    """How many come due at that moment, as far as the terms said to count."""


class EndedRun(NamedTuple):
    """A run of ours that has ended, to be recorded."""

    run: ClaimedRun
    ending: Ending
    started_at: Micros
    finished_at: Micros


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


class JobRecord(NamedTuple):
    """A job as stores keep it: what a copy carries.

    The columns of a description are those of `records.spec_values`, under the same names.
    """

    uid: int
    """Its number in the store it comes from; zero in one that it is new to."""
    revision: int
    namespace: str
    id: str
    handler: str
    schedule: str
    retry: str | None
    payload: str
    metadata: str
    user_id: str | None
    name: str | None
    priority: str
    group: str | None
    misfire: str
    timeout: Micros | None
    on_interrupt: str
    anchor: Micros
    created_at: Micros
    updated_at: Micros
    state: JobState


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
    job: JobRecord
    """As it is to be written, with the number it has in the target, or zero if it is new there; or as it is kept."""
    why: str | None = None


RuleOfCopy = Callable[[JobRecord, JobRecord | LeftOut | None], Ruling]
"""Given a job and the one of that name in the target, which may be unreadable, say what becomes of it."""


class Store(Protocol):
    """Where jobs, runs and nodes live. Every method is one transaction."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change it."""

    @property
    def clock(self) -> Clock | None:
        """The clock that all who share it go by; None if that is the machine's."""

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Call *listener* when others have changed something.

        With the moment at which it may be due and how many jobs are due then; or with None, if that may be any.

        It is for stores that hear of changes at once. Others are asked for their `version` now and then.
        """

    async def open(self) -> None:
        """Make it ready for use; `StoreError` if it cannot be."""

    async def close(self) -> None:
        """Let go of it."""

    async def change(self, changes: Sequence[Change], now: Micros) -> list[Edit | None]:
        """Carry out all *changes*, or none if one of them raises."""

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        """Let *decide* say what becomes of jobs that wait for a moment later than *now*; None leaves one as it is.

        Up to *limit* at a time, by number, beyond *after*; returns where to go on, or None at the end.
        """

    async def remove(self, namespace: str, id: str, now: Micros, own_run: int | None = None) -> Job | None:
        """Remove a job, and return it as it was. Its rows in the run log stay, until `purge_removed`.

        A run in progress is recorded as cancelled, unless it is *own_run*, the run that removes its own job: that one
        goes on, and is recorded when it ends.
        """

    async def get(self, namespace: str, id: str) -> Job | None:
        """The job with this name."""

    async def list_jobs(self, wanted: JobFilter) -> list[Job]:
        """Jobs by their next run, those without one last."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Rows of the run log, newest first."""

    async def output_of(self, run: int) -> str | None:
        """What a run wrote; None if that was nothing, or if there is no such run."""

    async def running_by_group(self) -> dict[str, int]:
        """How many jobs of each group are claimed, by any node; by the keys that `group_key` makes."""

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Mark what is due as ours, in order, and write the rows of its runs. `NodeLost` if we are not a node."""

    async def count_due(self, now: Micros, most: int) -> int:
        """How many jobs are due and claimed by nobody, whatever they wait for; counted up to *most*."""

    async def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        """Since when a job is due that *terms* let start, or None. It may overlook some behind a hundred that wait."""

    async def claim_one(
        self,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
    ) -> ClaimedRun | Job | None:
        """Mark one job as ours, whatever its schedule; the job if it is claimed already, None if there is none."""

    async def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        """Mark queued runs as running; return the ids of those that are still ours."""

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims whose handlers never started. An occurrence that will not run now leaves a row."""

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Aftermath | None]:
        """Record how runs ended and what comes next; None for those that are no longer ours."""

    async def join(self, identity: NodeIdentity, now: Micros) -> int:
        """Become a node; return its number."""

    async def beat(self, node: int) -> list[NodeRow]:
        """Show that *node* lives, and return all nodes, with those that have claims but no row.

        Owners without a row are left out if none of their claims can be read: there is nothing to recover. `NodeLost`
        if *node* has no row any more.
        """

    async def held(self, node: int) -> set[int]:
        """The ids of the runs that *node* has claimed and not finished."""

    async def leave(self, node: int) -> None:
        """Stop being a node."""

    async def nodes(self) -> list[NodeStatus]:
        """All nodes, also those that died without a word, by when they joined. Whoever asks need not be one."""

    async def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Edit, ClaimedRun]]:
        """Record the runs of nodes that died as interrupted, unless they beat meanwhile, and forget the nodes.

        A claim that cannot be read is left alone, unless its job was removed.
        """

    async def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        """Record claims of *node* that are not among *known* as interrupted: their answer was lost on the way."""

    async def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        """Disable every job that has no user, as by hand: runs in progress go on. Return the jobs."""

    async def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        """Which of these jobs have more than *keep* rows."""

    async def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        """Forget all but the newest *keep* rows of these jobs, and but those about a moment later than *now*."""

    async def purge_removed(self, before: Micros, limit: int) -> int:
        """Forget the runs of up to *limit* jobs that were removed before a moment; return how many jobs that were."""

    async def purge_disabled(self, before: Micros, limit: int) -> list[Job]:
        """Forget up to *limit* jobs that were disabled before a moment; return them."""

    async def count(self) -> tuple[int, int]:
        """How many jobs there are, and how many runs that have ended."""

    async def read_jobs(self, after: int, limit: int) -> list[JobRecord | LeftOut]:
        """Up to *limit* jobs as they are kept, by number, beyond the number *after*; or why one cannot be read."""

    async def read_runs(self, after: int, limit: int) -> list[RunRecord | LeftOut]:
        """Up to *limit* runs that have ended, by number, beyond the number *after*; or why one cannot be read."""

    async def write_jobs(self, jobs: Sequence[JobRecord], rule: RuleOfCopy) -> list[Ruling]:
        """Let *rule* say what becomes of each, given the one of that name that is here, and write what it wants."""

    async def write_runs(self, runs: Sequence[RunRecord]) -> int:
        """Add those of *runs* whose jobs are here and which are not; return how many that were.

        One is here if it has the same job, scheduled_for, attempt, trigger and claimed_at; or if it is another row of
        an attempt, not by hand, at the same occurrence: of that there is one. New ones are numbered in their order.
        """

    async def version(self) -> int:
        """A number that changes when another process has changed the store."""

    async def check(self) -> None:
        """`StoreError` if the store is not what it was: its file replaced, for one."""
