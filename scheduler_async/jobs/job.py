"""A job as it is now: its description, and what runs have changed about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self, cast, final

from scheduler_async.jobs.enums import Misfire, OnInterrupt, Phase, Priority, Status
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.instants import Micros, from_micros


class JobState(NamedTuple):
    """What runs change about a job. Moments are microseconds.

    A tuple, since every run makes several: a quarter of the cost of a dataclass. First comes what a claim changes, then
    what a success does, then the rest, so that the rules can make the next one of a few parts.
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
    """A job while it is filled in, like `SpecDraft`."""

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
