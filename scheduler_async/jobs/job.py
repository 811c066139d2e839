"""A job and its current state."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, final

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from scheduler_async.jobs.description import DESCRIBED, Described, Description
from scheduler_async.jobs.enums import ENDED, Phase, Status
from scheduler_async.jobs.json_forms import Form, form_of
from scheduler_async.jobs.json_text import Json, from_json_text
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.occurrences import next_regular
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros, from_micros

Moment = Annotated[Micros, Meta(ge=FIRST, le=LAST)]
"""A time in microseconds that a datetime can represent."""

# A count beyond this limit is damage. Incrementing it could exceed the range of a store.
MOST_COUNTED = 2**40

Count = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
"""A number of times that something happened."""

JsonText = Annotated[str, Meta(title="JSON")]
"""A JSON value as text."""


class JobState(Struct, frozen=True, gc=False, array_like=True):
    """The part of a job that runs change. Times are microseconds.

    Its fields are the columns of a stored state, and their types limit the values of those columns.
    """

    activity: Status = Status.IDLE
    """IDLE, QUEUED or RUNNING, in any phase. A job that may have several runs is RUNNING if none may be claimed."""
    next_run_at: Moment | None = None
    """When a pass may start the job. None during a run, unless it was triggered or the schedule was edited since."""
    retry_of: Moment | None = None
    """The occurrence to retry at `next_run_at`. None if `next_run_at` is a new occurrence."""
    attempts: Count = 0
    """How many attempts at `retry_of` were made."""
    regular_at: Moment | None = None
    """The first regular occurrence without a row, while a retry or a backoff delay precedes it."""
    retry_count: Count = 0
    last_run_at: Moment | None = None
    period_start: Moment | None = None
    """When the first of the failures in `retry_count` happened."""
    consecutive_errors: Count = 0
    interruptions: Count = 0
    """How many of the latest consecutive failures were deaths of the process."""
    last_success_at: Moment | None = None
    last_exit_code: int | None = None
    last_message: str | None = None
    phase: Phase = Phase.ACTIVE
    disabled_reason: str | None = None
    disabled_at: Moment | None = None
    last_error_at: Moment | None = None
    last_error: str | None = None
    forgotten_until: Moment | None = None
    """Occurrences up to this one may have run although their rows were purged."""
    counted_until: Moment | None = None
    """Occurrences up to this time have their rows.

    Set while the job is paused or disabled, during a run in which it was, and while the last of several runs go on
    after the last occurrence of the schedule. Otherwise the next run tells.
    """
    paused_reason: str | None = None
    paused_until: Moment | None = None
    """When a paused job resumes by itself."""
    cursor: JsonText | None = None
    """What the last successful run left for the next one."""
    cursor_edits: Count = 0
    """How often users have set the cursor. A run compares it to detect that they did since its claim."""
    owed_until: Moment | None = None
    """Occurrences up to this one are owed, however late: they run one by one. `regular_at` is the next, if it is set.

    With `misfire="run_all"`, they were missed; with `overlap="queue"`, one waited for a run to end. If no retry and
    no delay after a failure precedes the next, `next_run_at` is the time at which that run ended.
    """
    occurrences_run: Count = 0
    """How many regular occurrences have run. Counted only for jobs with `max_runs`."""
    running: Count = 0
    """How many runs go on, if the job may have several. See `rules.instances`."""
    retries: JsonText | None = None
    """What a job that may have several runs owes besides its next run, such as retries. See `rules.pending`."""


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


@final
class Job(Described, Struct, frozen=True, gc=False):
    """A job, as it was when it was read. Read it again to see later changes."""

    description: Description
    state: JobState
    id: str
    namespace: str
    handler: str
    anchor: Micros
    created: Micros
    updated: Micros
    uid: int = 0
    """Its number in the store. A job that is removed and added again gets a new number."""
    revision: int = 1
    """How often the description has changed. A run compares it to detect that its job was edited."""
    read_at: Micros | None = None
    """When it was read, if a run was in progress then. Its next regular occurrence is after that."""
    unreadable_state: Unreadable | None = None
    """Why the store cannot read the state, if so. The scheduler decides nothing about such a job."""

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, namespace={self.namespace!r}, handler={self.handler!r})"

    def with_state(self, state: JobState) -> Job:
        """Return the same job in another state."""
        return replace(self, state=state)

    def as_of(self, now: Micros) -> Job:
        """Return the job as users see it *now*: during a run, occurrences pass."""
        return replace(self, read_at=now) if self.is_running else self

    def take_number(self, uid: int) -> None:
        """Set the number that the store assigns to a new job, before any other code sees the job."""
        force_setattr(self, "uid", uid)

    def to_json(self) -> Form:
        """Return the job as JSON knows it: all that was given to `add_job`, and what it does now."""
        return form_of(self, JOB_FIELDS)

    @property
    def key(self) -> str:
        """The unique name of the job in its store, as `key_of` builds it."""
        return key_of(self.namespace, self.id)

    @property
    def enabled(self) -> bool:
        """Whether the job is not disabled. A paused job counts as enabled."""
        return self.state.phase is not Phase.DISABLED

    @property
    def is_running(self) -> bool:
        """Whether a run of its schedule or a manual run is in progress, or queued."""
        return self.state.activity is not Status.IDLE or self.state.running > 0

    @property
    def status(self) -> Status:
        """The current status. A run in progress shows even if the job was paused during the run."""
        if self.state.activity is not Status.IDLE:
            return self.state.activity
        if self.state.running:
            return Status.RUNNING
        return Status.IDLE if self.state.phase is Phase.ACTIVE else Status(self.state.phase)

    @property
    def disabled_reason(self) -> str | None:
        """Why the job is disabled. A job that the store cannot read counts as disabled, with that reason."""
        return self.state.disabled_reason

    @property
    def ended(self) -> bool:
        """Whether its schedule has nothing left. Its status is "disabled" then.

        A job whose last run has failed for good has not ended. It is disabled, with that failure as the reason.
        """
        return self.state.phase is Phase.DISABLED and self.state.disabled_reason == ENDED

    @property
    def unreadable(self) -> str | None:
        """The parts of the job that the store cannot read, if any. Such a job counts as disabled and does not run."""
        of_state = () if self.unreadable_state is None else (self.unreadable_state,)
        return "; ".join(map(str, (*self.description.unreadable, *of_state))) or None

    @property
    def next_run_at(self) -> datetime | None:
        """When the job runs next, if known. During a run, it is the next regular occurrence."""
        at = self.state.next_run_at
        if at is None and self.state.activity is not Status.IDLE and self.state.phase is Phase.ACTIVE:
            at = self._next_regular()
        return _moment(at) if self.enabled else None

    def _next_regular(self) -> Micros | None:
        """Return the next regular occurrence; None if the end of the run in progress decides, or if there is none."""
        if self.schedule.counts_from_end or self.schedule.runs_once:
            return None
        if self.max_runs is not None and self.state.occurrences_run >= self.max_runs:
            return None
        try:
            return next_regular(self, max(self.state.last_run_at or 0, self.read_at or 0))
        except Exception:  # a schedule that no longer computes must not hide the job
            return None

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
        """The error of the last failure."""
        return self.state.last_error

    @property
    def last_exit_code(self) -> int | None:
        """The exit code of the last run, if it had one."""
        return self.state.last_exit_code

    @property
    def last_message(self) -> str | None:
        """The message of the last run."""
        return self.state.last_message

    @property
    def consecutive_errors(self) -> int:
        """How many runs in a row have failed."""
        return self.state.consecutive_errors

    @property
    def retry_count(self) -> int:
        """How many retries of its policy are used up."""
        return self.state.retry_count

    @property
    def paused_reason(self) -> str | None:
        """Why it was paused, if a reason was given."""
        return self.state.paused_reason

    @property
    def paused_until(self) -> datetime | None:
        """When it resumes by itself, if it is paused until a time."""
        return _moment(self.state.paused_until)

    @property
    def cursor(self) -> Json:
        """The JSON value that the last successful run left for the next one. Each access returns a new copy."""
        return None if self.state.cursor is None else from_json_text(self.state.cursor)

    @property
    def created_at(self) -> datetime:
        """When it was added."""
        return from_micros(self.created)

    @property
    def updated_at(self) -> datetime:
        """When it was last edited."""
        return from_micros(self.updated)


JOB_FIELDS = (
    *("id", "namespace", "handler", *DESCRIBED, "enabled", "status", "disabled_reason", "ended"),
    *("paused_reason", "paused_until", "next_run_at"),
    *("last_run_at", "last_success_at", "last_error_at", "last_error", "last_exit_code", "last_message"),
    *("consecutive_errors", "retry_count", "cursor", "created_at", "updated_at"),
)
"""The fields of a job in JSON."""
