"""The records: what a job is, what a run was, what is about to happen. Frozen, and without behaviour of their own.

A `Job` is a `JobSpec`, which only an edit changes, and a `JobState`, which every run changes. Inside, moments are
integer microseconds; a `Job` shows them as datetimes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TypeAlias, TypeVar, cast, final

from scheduler_async.durations import parse_interval
from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.instants import Micros, from_micros
from scheduler_async.output import Output
from scheduler_async.retries import Retry
from scheduler_async.schedules import Schedule
from scheduler_async.texts import storable
from scheduler_async.unreadable import Unreadable

Json: TypeAlias = Any
"""A value that JSON can hold."""

MAX_NAME_LENGTH = 200

# What is nested deeper could be stored, but not read by a handler whose own stack is deep.
MAX_DEPTH = 100
TOO_DEEP = (
    f"must be JSON nested at most {MAX_DEPTH} levels deep. Flatten it, or store it elsewhere and pass a reference to it"
)


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


class _SpecDraft:
    """A description while it is filled in; then it becomes a `JobSpec`, which nobody can change.

    A frozen dataclass takes three times as long to fill in, and twice the memory if it has no slots.
    """

    __slots__ = (
        *("schedule", "handler", "id", "namespace", "user_id", "name", "payload_json", "metadata_json", "priority"),
        *("group", "misfire", "retry", "timeout", "on_interrupt", "enabled", "on_conflict", "unreadable"),
        "__weakref__",
    )


@final
@dataclass(frozen=True, init=False)
class JobSpec(_SpecDraft):
    """A job as it is described: what `Scheduler.add_job` takes, as a value.

    It is checked when it is made; what is wrong raises an `InvalidJobError` that names the field.
    """

    __slots__ = ()

    schedule: Schedule
    handler: str | Callable[..., Any]
    id: str | None
    namespace: str
    user_id: str | None
    name: str | None
    payload_json: str
    metadata_json: str
    priority: Priority
    group: str | None
    misfire: Misfire
    retry: Retry | None
    timeout: timedelta | None
    on_interrupt: OnInterrupt
    enabled: bool
    on_conflict: OnConflict
    unreadable: tuple[Unreadable, ...] = field(repr=False)
    """The columns that could not be read from the store: other values stand in for them, and must never be stored."""

    def __new__(
        cls,
        schedule: Schedule,
        *,
        handler: str | Callable[..., Any],
        id: str | None = None,
        namespace: str = "default",
        user_id: str | None = None,
        name: str | None = None,
        payload: Json = None,
        metadata: Mapping[str, Json] | None = None,
        priority: Priority | str = Priority.STANDARD,
        group: str | None = None,
        misfire: Misfire | str = Misfire.RUN_ONCE,
        retry: Retry | None = None,
        timeout: str | timedelta | None = None,
        on_interrupt: OnInterrupt | str = OnInterrupt.RERUN,
        enabled: bool = True,
        on_conflict: OnConflict | str = OnConflict.RAISE,
    ) -> Self:
        """A description that was checked."""
        if not isinstance(schedule, Schedule):
            _refuse("schedule", f'is Every("5m"), Cron("0 9 * * *") or another schedule, not {quoted(schedule)}')
        if retry is not None and not isinstance(retry, Retry):
            _refuse("retry", f"is Retry.backoff(), Retry.in_window() or another policy, not {quoted(retry)}")
        if not isinstance(enabled, bool):
            _refuse("enabled", f"is True or False, not {quoted(enabled)}")
        if metadata is not None and not isinstance(metadata, Mapping):
            _refuse("metadata", f"is a dict of JSON values, not {quoted(metadata)}")
        return cls.stored(
            schedule,
            handler if callable(handler) else check_name(handler, "handler"),
            id if id is None else check_name(id, "id"),
            check_name(namespace, "namespace"),
            user_id if user_id is None else check_name(user_id, "user_id"),
            name if name is None else check_name(name, "name"),
            "null" if payload is None else to_json_text(payload, "payload"),
            to_json_text(dict(metadata), "metadata") if metadata else "{}",
            check_choice(Priority, priority, "priority"),
            group if group is None else check_name(group, "group"),
            check_choice(Misfire, misfire, "misfire"),
            retry,
            timeout if timeout is None else parse_interval(timeout),
            check_choice(OnInterrupt, on_interrupt, "on_interrupt"),
            enabled,
            check_choice(OnConflict, on_conflict, "on_conflict"),
        )

    @classmethod
    def stored(
        cls,
        schedule: Schedule,
        handler: str | Callable[..., Any],
        id: str | None,
        namespace: str,
        user_id: str | None,
        name: str | None,
        payload_json: str,
        metadata_json: str,
        priority: Priority,
        group: str | None,
        misfire: Misfire,
        retry: Retry | None,
        timeout: timedelta | None,
        on_interrupt: OnInterrupt,
        enabled: bool,
        on_conflict: OnConflict,
        unreadable: tuple[Unreadable, ...] = (),
    ) -> Self:
        """A spec that was checked before it was stored: all fields, as they are."""
        draft: Any = _SpecDraft()
        draft.schedule = schedule
        draft.handler = handler
        draft.id = id
        draft.namespace = namespace
        draft.user_id = user_id
        draft.name = name
        draft.payload_json = payload_json
        draft.metadata_json = metadata_json
        draft.priority = priority
        draft.group = group
        draft.misfire = misfire
        draft.retry = retry
        draft.timeout = timeout
        draft.on_interrupt = on_interrupt
        draft.enabled = enabled
        draft.on_conflict = on_conflict
        draft.unreadable = unreadable
        draft.__class__ = cls
        return cast(Self, draft)

    def __reduce__(self) -> tuple[Callable[..., JobSpec], tuple[Any, ...]]:
        return JobSpec.stored, tuple(getattr(self, part.name) for part in fields(self))

    def __init_subclass__(cls) -> None:
        raise TypeError("A JobSpec is a value, and has no subclasses. Write a function that returns one.")

    @property
    def payload(self) -> Json:
        """A fresh copy of the payload."""
        return json.loads(self.payload_json)

    @property
    def metadata(self) -> dict[str, Json]:
        """A fresh copy of the metadata."""
        metadata: dict[str, Json] = json.loads(self.metadata_json)
        return metadata

    def as_kept(self, id: str, handler: str) -> Self:
        """As a store keeps it: under the id it got, without what only adding asks for."""
        if self.id == id and self.handler == handler and self.enabled and self.on_conflict is OnConflict.RAISE:
            return self
        given: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        return self.stored(**{**given, "id": id, "handler": handler, "enabled": True, "on_conflict": OnConflict.RAISE})

    def changed(self, **changes: Any) -> Self:
        """A copy with *changes*, which are arguments of `JobSpec`, checked like new ones."""
        given = {name: getattr(self, name) for name in SPEC_FIELDS}
        changed = type(self)(**{**given, **changes})
        replaced = {*changes, "updated_at"}  # which every edit writes
        left = tuple(problem for problem in self.unreadable if field_of(problem.column) not in replaced)
        return changed._lacking(left) if left else changed

    def lacks(self, field: str) -> bool:
        """Whether the value of *field* only stands in for one that could not be read from the store."""
        return any(field_of(problem.column) == field for problem in self.unreadable)

    def _lacking(self, unreadable: tuple[Unreadable, ...]) -> Self:
        given: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        return self.stored(**{**given, "unreadable": unreadable})


SPEC_FIELDS = tuple(part.name.removesuffix("_json") for part in fields(JobSpec) if part.name != "unreadable")
"""What a job can be described by, and what an edit can change."""


def field_of(column: str) -> str:
    """Return the field whose new value replaces what is in *column*; a new schedule brings an anchor of its own."""
    return {"job_group": "group", "anchor": "schedule"}.get(column, column)


class JobState(NamedTuple):
    """What runs change about a job. Moments are microseconds.

    A tuple, since every run makes several: a quarter of the cost of a dataclass. First comes what a claim changes, then
    what a success does, then the rest, so that `lifecycle` can make the next one of a few parts.
    """

    activity: Status = Status.IDLE
    """IDLE, QUEUED or RUNNING, whatever the phase."""
    next_run_at: Micros | None = None
    """When a pass may start it. While it runs: None, unless it was triggered or has got another schedule since."""
    retry_of: Micros | None = None
    """The occurrence to attempt again at `next_run_at`; None when that is an occurrence of its own."""
    attempts: int = 0
    """How many attempts at `retry_of` have been made."""
    regular_at: Micros | None = None
    """The first regular occurrence that has left no row yet, while a retry or a delay stands before it."""
    retry_count: int = 0
    last_run_at: Micros | None = None
    period_start: Micros | None = None
    """When the failures that `retry_count` counts began."""
    consecutive_errors: int = 0
    interruptions: int = 0
    """How many of the last failures, without another one between, were deaths of the process."""
    last_success_at: Micros | None = None
    last_exit_code: int | None = None
    last_message: str | None = None
    phase: Phase = Phase.ACTIVE
    disabled_reason: str | None = None
    disabled_at: Micros | None = None
    last_error_at: Micros | None = None
    last_error: str | None = None
    forgotten_until: Micros | None = None
    """Occurrences up to this one may have run although there are no rows of them: those were removed with age."""


state_of_parts: Callable[[tuple[Any, ...]], JobState] = partial(tuple.__new__, JobState)
"""The state that all its parts make, in their order; nobody counts them."""


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class _JobDraft:
    """A job while it is filled in, like `_SpecDraft`."""

    __slots__ = (
        *("spec", "state", "id", "namespace", "handler", "uid", "anchor", "created", "updated", "revision"),
        *("unreadable_state", "__weakref__"),
    )


@final
@dataclass(frozen=True, init=False)
class Job(_JobDraft):
    """A job as it is now. It does not change; ask again for a newer one."""

    __slots__ = ()

    spec: JobSpec = field(repr=False)
    state: JobState = field(repr=False)
    id: str
    namespace: str
    handler: str
    uid: int = field(repr=False)
    """Its number in the store; a job that is removed and added again gets another."""
    anchor: Micros = field(repr=False)
    created: Micros = field(repr=False)
    updated: Micros = field(repr=False)
    revision: int = field(repr=False)
    """How often the description has changed; a run knows by it whether it is out of date."""
    unreadable_state: Unreadable | None = field(repr=False)
    """Why its state cannot be read from the store, if it cannot: then nothing can be decided about it."""

    def __new__(
        cls,
        *,
        spec: JobSpec,
        state: JobState,
        id: str,
        namespace: str,
        handler: str,
        anchor: Micros,
        created: Micros,
        updated: Micros,
        uid: int = 0,
        revision: int = 1,
        unreadable_state: Unreadable | None = None,
    ) -> Self:
        """A job of its parts."""
        return cls.stored(
            spec, state, id, namespace, handler, uid, anchor, created, updated, revision, unreadable_state
        )

    @classmethod
    def stored(
        cls,
        spec: JobSpec,
        state: JobState,
        id: str,
        namespace: str,
        handler: str,
        uid: int,
        anchor: Micros,
        created: Micros,
        updated: Micros,
        revision: int,
        unreadable_state: Unreadable | None = None,
    ) -> Self:
        """A job of all its parts, in their order: half of the time that it takes by their names."""
        draft: Any = _JobDraft()
        draft.spec = spec
        draft.state = state
        draft.id = id
        draft.namespace = namespace
        draft.handler = handler
        draft.uid = uid
        draft.anchor = anchor
        draft.created = created
        draft.updated = updated
        draft.revision = revision
        draft.unreadable_state = unreadable_state
        draft.__class__ = cls
        return cast(Self, draft)

    def __reduce__(self) -> tuple[Callable[..., Job], tuple[Any, ...]]:
        return Job.stored, tuple(getattr(self, part.name) for part in fields(self))

    def __init_subclass__(cls) -> None:
        raise TypeError("A Job is a value, and has no subclasses.")

    def with_state(self, state: JobState) -> Job:
        """The same job in another state. Every run asks for this several times, and `replace` is slow."""
        return Job.stored(
            self.spec,
            state,
            self.id,
            self.namespace,
            self.handler,
            self.uid,
            self.anchor,
            self.created,
            self.updated,
            self.revision,
        )

    def take_number(self, uid: int) -> None:
        """Let a new job have the number that a store gives it, before anybody else has seen it."""
        object.__setattr__(self, "uid", uid)

    @property
    def key(self) -> str:
        """Its name among all jobs of the store, as `key_of` makes it."""
        return key_of(self.namespace, self.id)

    @property
    def schedule(self) -> Schedule:
        """When it runs."""
        return self.spec.schedule

    @property
    def user_id(self) -> str | None:
        """Whose job it is."""
        return self.spec.user_id

    @property
    def name(self) -> str | None:
        """What people call it."""
        return self.spec.name

    @property
    def payload(self) -> Json:
        """What the handler is given."""
        return self.spec.payload

    @property
    def metadata(self) -> dict[str, Json]:
        """What the owner noted about it."""
        return self.spec.metadata

    @property
    def priority(self) -> Priority:
        """Who goes first when not all can go."""
        return self.spec.priority

    @property
    def group(self) -> str | None:
        """The jobs it shares a limit with."""
        return self.spec.group

    @property
    def misfire(self) -> Misfire:
        """What becomes of an occurrence that was missed."""
        return self.spec.misfire

    @property
    def retry(self) -> Retry | None:
        """Its own policy for failures; None is the scheduler's."""
        return self.spec.retry

    @property
    def timeout(self) -> timedelta | None:
        """How long a run may take."""
        return self.spec.timeout

    @property
    def on_interrupt(self) -> OnInterrupt:
        """What becomes of a run whose process died."""
        return self.spec.on_interrupt

    @property
    def enabled(self) -> bool:
        """Whether it takes part in scheduling."""
        return self.state.phase is not Phase.DISABLED

    @property
    def status(self) -> Status:
        """What it is doing: a run in progress shows, even when the job was paused meanwhile."""
        if self.state.activity is not Status.IDLE:
            return self.state.activity
        return Status.IDLE if self.state.phase is Phase.ACTIVE else Status(self.state.phase)

    @property
    def disabled_reason(self) -> str | None:
        """Why it is disabled; a job that cannot be read from the store is shown as disabled, and this says why."""
        return self.state.disabled_reason

    @property
    def unreadable(self) -> str | None:
        """What cannot be read of it from the store, if anything. It is shown as disabled, and does not run."""
        of_state = () if self.unreadable_state is None else (self.unreadable_state,)
        return "; ".join(map(str, (*self.spec.unreadable, *of_state))) or None

    @property
    def next_run_at(self) -> datetime | None:
        """When it runs next, as far as that is known."""
        return _moment(self.state.next_run_at) if self.enabled else None

    @property
    def last_run_at(self) -> datetime | None:
        """When its last run started."""
        return _moment(self.state.last_run_at)

    @property
    def last_success_at(self) -> datetime | None:
        """When a run last succeeded."""
        return _moment(self.state.last_success_at)

    @property
    def last_error_at(self) -> datetime | None:
        """When a run last failed."""
        return _moment(self.state.last_error_at)

    @property
    def last_error(self) -> str | None:
        """What the last failure said."""
        return self.state.last_error

    @property
    def last_exit_code(self) -> int | None:
        """The exit code of the last run, if it had one."""
        return self.state.last_exit_code

    @property
    def last_message(self) -> str | None:
        """What the last run said of itself."""
        return self.state.last_message

    @property
    def consecutive_errors(self) -> int:
        """How many runs in a row have failed."""
        return self.state.consecutive_errors

    @property
    def retry_count(self) -> int:
        """How many retries its policy has spent."""
        return self.state.retry_count

    @property
    def created_at(self) -> datetime:
        """When it was added."""
        return from_micros(self.created)

    @property
    def updated_at(self) -> datetime:
        """When it was last edited."""
        return from_micros(self.updated)


class Attempt(NamedTuple):
    """A run that is about to begin: which occurrence, which try, and why now. A tuple: every run makes one."""

    scheduled_for: Micros
    attempt: int
    trigger: Trigger
    claimed_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended, as the handler told it."""

    outcome: Outcome
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    disable: bool = False
    """The handler asked not to be called again."""
    output: str | None = None
    """The last of what it wrote."""

    def __post_init__(self) -> None:
        if self.error is not None:
            object.__setattr__(self, "error", storable(self.error))
        if self.message is not None:
            object.__setattr__(self, "message", storable(self.message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Occurrences that were deliberately not run, for one row of the run log."""

    reason: SkipReason
    scheduled_for: Micros
    """The first of them."""
    missed: int
    """How many they are."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One line of the run log: an attempt, or occurrences that were not run.

    A line that cannot be read from the store has what can be read of it, and its `error` says what cannot.
    """

    id: int
    job_id: str
    namespace: str
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: float | None
    delay_ms: float | None
    attempt: int
    trigger: Trigger
    outcome: Outcome | None
    """None while it runs."""
    reason: SkipReason | None = None
    missed: int = 0
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    node: str | None = None


class StopSignal(Protocol):
    """What a long run watches to learn that the scheduler is stopping; an `asyncio.Event` is one."""

    def is_set(self) -> bool:
        """Whether the scheduler is stopping."""

    def wait(self) -> Awaitable[object]:
        """Return when the scheduler is stopping."""


class Claimed(Protocol):
    """A run that is about to begin, as stores hand it over."""

    id: int
    payload_json: str
    scheduled_for: Micros
    number: int
    trigger: Trigger

    @property
    def job(self) -> Job:
        """Its job."""

    @property
    def name(self) -> tuple[str, str]:
        """The namespace and the id of its job."""


@dataclass(frozen=True, init=False)
class Run:
    """One run, as the handler gets it."""

    id: int
    job: Job = field(repr=False)
    payload: Json = field(repr=False)
    scheduled_for: datetime
    fired_at: datetime
    attempt: int
    trigger: Trigger
    stopping: StopSignal = field(repr=False)
    """Set when the scheduler stops: a long run can watch it, and end early."""
    _output: Output = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        id: int,
        job: Job,
        payload: Json,
        scheduled_for: datetime,
        fired_at: datetime,
        attempt: int,
        trigger: Trigger,
        stopping: StopSignal,
    ) -> None:
        self.__dict__.update(
            id=id,
            job=job,
            payload=payload,
            scheduled_for=scheduled_for,
            fired_at=fired_at,
            attempt=attempt,
            trigger=trigger,
            stopping=stopping,
        )

    @classmethod
    def begun(cls, claimed: Claimed, now: Micros, stopping: StopSignal) -> Self:
        """A run that begins *now*. What most handlers never ask for is worked out for those that do."""
        run = cls.__new__(cls)
        known = {
            "id": claimed.id,
            "attempt": claimed.number,
            "trigger": claimed.trigger,
            "stopping": stopping,
            "_claimed": claimed,
            "_began": now,
        }
        object.__setattr__(run, "__dict__", known)  # half of the time that it takes one by one
        return run

    def write(self, text: str | bytes) -> None:
        """Keep *text* with the run, for `Scheduler.run_output`: the last 64 KiB of all that is written."""
        self._output.write(text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text)

    @property
    def written(self) -> str | None:
        """What is kept of what was written, if anything was."""
        output: Output | None = self.__dict__.get("_output")
        return None if output is None else output.text()

    @property
    def job_id(self) -> str:
        """The id of its job."""
        claimed: Claimed | None = self.__dict__.get("_claimed")
        return self.job.id if claimed is None else claimed.name[1]

    @property
    def namespace(self) -> str:
        """The namespace of its job."""
        claimed: Claimed | None = self.__dict__.get("_claimed")
        return self.job.namespace if claimed is None else claimed.name[0]

    @property
    def user_id(self) -> str | None:
        """Whose job it is."""
        return self.job.user_id

    @property
    def delay_ms(self) -> float:
        """How late it fired, in milliseconds."""
        return max((self.fired_at - self.scheduled_for) / timedelta(milliseconds=1), 0.0)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at one occurrence, and for nothing else."""
        moment = self.scheduled_for.isoformat().replace("+00:00", "Z")
        return f"{self.job.key}@{moment}" + (f"#{self.id}" if self.trigger is Trigger.MANUAL else "")


class _WorkedOut:
    """An attribute of a run that is found out when somebody first asks for it."""

    def __init__(self, name: str, find: Callable[[dict[str, Any]], Any]) -> None:
        self._name, self._find = name, find

    def __get__(self, run: Run | None, _: type) -> Any:
        if run is None:
            return self
        return run.__dict__.setdefault(self._name, self._find(run.__dict__))  # several threads may ask at once


for _name, _find in {
    "job": lambda known: known["_claimed"].job,
    "payload": lambda known: json.loads(known["_claimed"].payload_json),
    "scheduled_for": lambda known: from_micros(known["_claimed"].scheduled_for),
    "fired_at": lambda known: from_micros(known["_began"]),
    "_output": lambda _: Output(),
}.items():
    setattr(Run, _name, _WorkedOut(_name, _find))  # not before it is a dataclass, which would take them for defaults


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


ANSWERS = (Outcome.SUCCESS, Outcome.NOOP, Outcome.SKIPPED, Outcome.ERROR)
"""What a handler may say of its run."""

MAX_EXIT_CODE = 2**32


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a handler may return to say more than that it is done."""

    outcome: Outcome = Outcome.SUCCESS
    message: str | None = None
    exit_code: int | None = None

    def __init__(
        self, outcome: Outcome | str = Outcome.SUCCESS, *, message: str | None = None, exit_code: int | None = None
    ) -> None:
        told = check_choice(Outcome, outcome, "outcome")
        if told not in ANSWERS:
            _refuse_result(
                "outcome", f"is one of {', '.join(ANSWERS)}, not {told}: the others are for the scheduler to say"
            )
        if message is not None and not isinstance(message, str):
            _refuse_result("message", f"is a text, not {quoted(message)}")
        if exit_code is not None and (type(exit_code) is not int or abs(exit_code) > MAX_EXIT_CODE):
            _refuse_result("exit_code", f"is a whole number of at most {MAX_EXIT_CODE}, not {quoted(exit_code)}")
        object.__setattr__(self, "outcome", told)
        object.__setattr__(self, "message", message)
        object.__setattr__(self, "exit_code", exit_code)


def key_of(namespace: str, id: str) -> str:
    """Return the name of a job among all jobs: "namespace/id". No two jobs share one.

    Only a namespace that contains "/" is written differently, since "a/b/c" already names the job "b/c" of "a": the key
    begins with "/", and in the namespace "/" becomes "%2F" and "%" becomes "%25". The job "c" of "a/b" is "/a%2Fb/c".
    """
    if "/" not in namespace:
        return f"{namespace}/{id}"
    return f"/{namespace.replace('%', '%25').replace('/', '%2F')}/{id}"


def check_name(value: object, what: str) -> str:
    """*value*, if it can name something; *what* says what it would name."""
    if not isinstance(value, str):
        _refuse(what, f"is a text, not {quoted(value)}")
    if not value or value != value.strip():
        _refuse(what, f"is a text without blanks around it, not {quoted(value)}")
    if len(value) > MAX_NAME_LENGTH:
        _refuse(what, f"has at most {MAX_NAME_LENGTH} characters; {quoted(value)} has more")
    if not value.isprintable():
        _refuse(what, f"has printable characters only; {quoted(value)} has others")
    return value


def check_choice(kind: type[Choice], value: object, what: str) -> Choice:
    """*value* as a member of *kind*."""
    if isinstance(value, kind):
        return value
    found = next((choice for choice in kind if choice.value == value), None)
    if found is None:
        _refuse(what, f"is one of {', '.join(str(choice.value) for choice in kind)}, not {quoted(value)}")
    return found


def _plain(value: object) -> object:
    """A dataclass or a pydantic model as JSON holds it."""
    from scheduler_async.payloads import plain  # noqa: PLC0415 - few need it, and it takes time to load

    found = plain(value)
    if found is value:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    if _has_odd_keys(found):
        raise TypeError("a dict with keys that are no texts")
    return found


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain).encode


def to_json_text(value: Json, what: str) -> str:
    """*value* as JSON, if it comes back from it unchanged."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()  # a lone surrogate is no text
    except RecursionError:
        _refuse(what, TOO_DEEP)
    except (TypeError, ValueError) as error:
        _refuse(what, f"holds what JSON can hold: texts, finite numbers, True, False, None, lists and dicts ({error})")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(text):
        _refuse(what, TOO_DEEP)
    if _has_odd_keys(value):
        _refuse(what, "has texts as keys: JSON knows no others")
    return text


def is_too_deep(text: str) -> bool:
    """Whether JSON is nested more than `MAX_DEPTH` levels deep. It is not parsed: that would take a stack as deep."""
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        token = found[0]
        if token in ("[", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token in ("]", "}"):
            depth -= 1
    return False


_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"')


def _has_odd_keys(value: Json) -> bool:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return True
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    for inner in value:  # noqa: SIM110 - every payload passes here, and any() takes twice as long
        if isinstance(inner, (dict, list, tuple)) and _has_odd_keys(inner):
            return True
    return False


def _refuse(what: str, problem: str) -> NoReturn:
    raise InvalidJobError(f"The {what} of a job {problem}.", what)


def _refuse_result(what: str, problem: str) -> NoReturn:
    raise InvalidJobError(f"The {what} of a result {problem}.", what)
