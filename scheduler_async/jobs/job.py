"""A job as it is now: its description, and what runs have changed about it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, final

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from scheduler_async.jobs.description import Described, Description
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros, from_micros

Moment = Annotated[Micros, Meta(ge=FIRST, le=LAST)]
"""A moment that a datetime can hold."""

# Counts far beyond what a job can reach are damage; adding to them could pass what a store can hold.
MOST_COUNTED = 2**40

Count = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
"""How often something has happened."""


class JobState(Struct, frozen=True, gc=False, array_like=True):
    """What runs change about a job. Moments are microseconds.

    Its fields are the columns that a state is stored in, and their types are what those may hold.
    """

    activity: Status = Status.IDLE
    """IDLE, QUEUED or RUNNING, whatever the phase."""
    next_run_at: Moment | None = None
    """When a pass may start it. While it runs: None, unless it was triggered or has got another schedule since."""
    retry_of: Moment | None = None
    """The occurrence to attempt again at `next_run_at`; None when that is an occurrence of its own."""
    attempts: Count = 0
    """How many attempts at `retry_of` have been made."""
    regular_at: Moment | None = None
    """The first regular occurrence that has left no row yet, while a retry or a delay stands before it."""
    retry_count: Count = 0
    last_run_at: Moment | None = None
    period_start: Moment | None = None
    """When the failures that `retry_count` counts began."""
    consecutive_errors: Count = 0
    interruptions: Count = 0
    """How many of the last failures, without another one between, were deaths of the process."""
    last_success_at: Moment | None = None
    last_exit_code: int | None = None
    last_message: str | None = None
    phase: Phase = Phase.ACTIVE
    disabled_reason: str | None = None
    disabled_at: Moment | None = None
    last_error_at: Moment | None = None
    last_error: str | None = None
    forgotten_until: Moment | None = None
    """Occurrences up to this one may have run although there are no rows of them: those were removed with age."""


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


@final
class Job(Described, Struct, frozen=True, gc=False):
    """A job as it is now. It does not change; ask again for a newer one."""

    description: Description
    state: JobState
    id: str
    namespace: str
    handler: str
    anchor: Micros
    created: Micros
    updated: Micros
    uid: int = 0
    """Its number in the store; a job that is removed and added again gets another."""
    revision: int = 1
    """How often the description has changed; a run knows by it whether it is out of date."""
    unreadable_state: Unreadable | None = None
    """Why its state cannot be read from the store, if it cannot: then nothing can be decided about it."""

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, namespace={self.namespace!r}, handler={self.handler!r})"

    def with_state(self, state: JobState) -> Job:
        """Return the same job in another state."""
        return replace(self, state=state)

    def take_number(self, uid: int) -> None:
        """Let a new job have the number that a store gives it, before anybody else has seen it."""
        force_setattr(self, "uid", uid)

    @property
    def key(self) -> str:
        """Its name among all jobs of the store, as `key_of` makes it."""
        return key_of(self.namespace, self.id)

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
        return "; ".join(map(str, (*self.description.unreadable, *of_state))) or None

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
