"""Runs: claimed, in the handler, ended, and as rows of the run log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from scheduler_async.jobs.enums import Outcome, SkipReason, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.json_forms import Form, form_of
from scheduler_async.jobs.json_text import Json, from_json_text, to_small_json_text
from scheduler_async.jobs.output import Output
from scheduler_async.jobs.progress import ProgressReport, read_report
from scheduler_async.jobs.stop_signal import AnyEvent, RunSignal, StopSignal, signal_of
from scheduler_async.texts import storable
from scheduler_async.timekeeping.instants import Micros, from_micros, iso_text

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
QUEUED, BACKFILL = Status.QUEUED, Trigger.BACKFILL


class Attempt(Struct, frozen=True, gc=False):
    """An attempt at an occurrence: its number, its cause, and the time of its claim."""

    scheduled_for: Micros
    attempt: int
    """Attempt number, starting at 1."""
    trigger: Trigger
    claimed_at: Micros


class ClaimedRun(Attempt, frozen=True, gc=False, eq=False):
    """A run that this node has claimed and recorded. Its handler may start. Its job is as of the claim."""

    id: int
    job: Job
    payload_json: str
    before: JobState
    """The state of the job before the claim, to restore if the claim is undone."""
    origin: int | None = None
    """The first attempt at a manual run that any node may make, if this is one."""
    after: int | None = None
    """The run of another job that caused this one, if its job follows another."""
    waits: bool = False
    """Whether it waits for a slot, if the state of its job does not tell."""

    @classmethod
    def of(
        cls,
        id: int,
        job: Job,
        attempt: Attempt,
        payload_json: str,
        before: JobState,
        origin: int | None = None,
        *,
        waits: bool = False,
    ) -> Self:
        """Return the run of *job* that makes this *attempt*."""
        at, number, trigger, since = attempt.scheduled_for, attempt.attempt, attempt.trigger, attempt.claimed_at
        return cls(at, number, trigger, since, id, job, payload_json, before, origin, None, waits)

    @property
    def uid(self) -> int:
        """The number of its job."""
        return self.job.uid

    @property
    def name(self) -> tuple[str, str]:
        """The namespace and the id of its job."""
        return self.job.namespace, self.job.id

    @property
    def key(self) -> str:
        """The unique name of its job in the store."""
        return self.job.key

    @property
    def is_queued(self) -> bool:
        """Whether the run waits for a slot."""
        return self.waits or self.job.state.activity is QUEUED

    @property
    def waits_if_given_back(self) -> bool:
        """Whether any node may take it up if this one does not begin it."""
        return self.origin is not None

    @property
    def is_instance(self) -> bool:
        """Whether other runs of the job may go on beside it. The store keeps its owner in a row of its own."""
        return self.job.state.running > 0 or self.trigger is BACKFILL

    @property
    def is_backfill(self) -> bool:
        """Whether it runs for a backfill, beside the schedule of its job."""
        return self.trigger is BACKFILL

    @property
    def named(self) -> dict[str, object]:
        """The attributes of every log record about the run."""
        return {"job": self.key, "run": self.id, "attempt": self.attempt}


class Ending(Struct, frozen=True, gc=False, kw_only=True):
    """The end of a run, as its handler reported it."""

    outcome: Outcome
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    disable: bool = False
    """Whether the handler asked to disable the job."""
    output: str | None = None
    """The last 64 KiB of the run's output."""
    reason: str | None = None
    """Why the run was cancelled, if a caller gave a reason."""
    result: str | None = None
    """The JSON of the value that the handler returned."""
    traceback: str | None = None
    cursor: str | None = None
    """The JSON of the cursor that a successful run leaves: "null" clears it. None leaves the cursor as it is."""
    on_request: bool = False
    """Whether a caller has cancelled the run. Such a run is not run again."""
    progress: ProgressReport | None = None
    """What the handler reported last, if anything."""

    def __post_init__(self) -> None:
        for name in ("error", "message", "reason", "traceback"):
            text = getattr(self, name)
            if text is not None:
                force_setattr(self, name, storable(text))

    @property
    def tells_more(self) -> bool:
        """Whether there is more to write than the row of the run: texts, a progress report, a request to forget."""
        return self.output is not None or self.traceback is not None or self.progress is not None or self.on_request


def cancelled_on_request(reason: str | None) -> Ending:
    """Return how a run ended that a caller has cancelled."""
    return Ending(outcome=Outcome.CANCELLED, error="It was cancelled on request.", reason=reason, on_request=True)


class EndedRun(Struct, frozen=True, gc=False):
    """A run of this node that has ended and is not recorded yet."""

    run: ClaimedRun
    ending: Ending
    started_at: Micros | None
    """When its handler was called; None if it never was."""
    finished_at: Micros


class Skip(Struct, frozen=True, gc=False, kw_only=True):
    """Skipped occurrences, for one row of the run log."""

    reason: SkipReason
    scheduled_for: Micros
    """The first skipped occurrence."""
    missed: int
    """How many occurrences were skipped."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of the run log: an attempt, or skipped occurrences.

    If the store cannot read all of the row, its `error` names the part that is missing.
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
    """None while the run is in progress."""
    reason: SkipReason | str | None = None
    """Why occurrences were skipped, or the run was interrupted or cancelled. The reason of a cancellation is text."""
    missed: int = 0
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    node: str | None = None
    claimed_at: datetime | None = None
    """When a scheduler took the run, shortly before `started_at`."""
    result: Json = None
    """The JSON value that the handler returned."""
    progress: float | None = None
    """How much is done, from 0 to 1, as the handler last reported it."""
    progress_message: str | None = None
    traceback: str | None = None
    """The traceback of a failure. Only `get_run` reads it."""
    after: int | None = None
    """The run of another job that caused this one: the latest, if there were several."""
    payload: Json = None
    """The payload that this run got. Only `get_run` reads it."""

    def to_json(self) -> Form:
        """Return the row as JSON knows it."""
        return form_of(self, (field.name for field in fields(self)))


class Reporter(Protocol):
    """Stores what runs report while they go on. Any thread may call it."""

    def note(self, run: Run, *, output: bool) -> None:
        """Store the progress of *run* soon, or its *output*."""


@dataclass(frozen=True, init=False)
class Run:
    """A run, as its handler receives it."""

    id: int
    job: Job = field(repr=False)
    payload: Json = field(repr=False)
    scheduled_for: datetime
    fired_at: datetime
    attempt: int
    trigger: Trigger
    after: int | None = field(repr=False)
    """The run of another job that caused this one: the latest, if there were several. See `After`."""
    stopping: StopSignal = field(repr=False)
    """Set when the scheduler stops, or cancels the run. A long run can watch it, and end early."""
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
        stopping: AnyEvent | StopSignal,
        after: int | None = None,
    ) -> None:
        self.__dict__.update(
            id=id,
            job=job,
            payload=payload,
            scheduled_for=scheduled_for,
            fired_at=fired_at,
            attempt=attempt,
            trigger=trigger,
            after=after,
            stopping=signal_of(stopping),
        )

    @classmethod
    def begun(
        cls, claimed: ClaimedRun, now: Micros, stopping: AnyEvent | StopSignal, reporter: Reporter | None = None
    ) -> Self:
        """Return a run that begins *now*. Attributes that most handlers never use are computed on first access."""
        run = cls.__new__(cls)
        known = {
            "id": claimed.id,
            "attempt": claimed.attempt,
            "trigger": claimed.trigger,
            "_stopping": stopping,
            "_reporter": reporter,
            "_claimed": claimed,
            "_began": now,
        }
        object.__setattr__(run, "__dict__", known)  # twice as fast as one assignment after another
        return run

    def write(self, text: str | bytes) -> None:
        """Append *text* to the output of the run. `Scheduler.run_output` returns the last 64 KiB, also meanwhile."""
        self._output.write(text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text)
        self._report(output=True)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how much of the work is done, for `RunRow.progress` and `RunRow.progress_message`.

        *done* counts up to *total*. Without a total, a float from 0.0 to 1.0 is the share that is done, and a whole
        number a count whose total is unknown: `RunRow.progress` is None, and the *message* can tell. The scheduler
        stores the latest report once a second, so call it as often as you like, from any thread.
        """
        self.__dict__["_progress"] = read_report(done, total, message)
        self._report(output=False)

    def tell_to_stop(self) -> None:
        """Set `stopping`, since the run is cancelled."""
        signal = self.stopping
        if isinstance(signal, RunSignal):
            signal.set()

    def _report(self, *, output: bool) -> None:
        reporter: Reporter | None = self.__dict__.get("_reporter")
        if reporter is not None:
            reporter.note(self, output=output)

    @property
    def has_left_nothing(self) -> bool:
        """Whether the handler has neither written nor reported anything, nor assigned a cursor."""
        known = self.__dict__
        return not ("_output" in known or "_progress" in known or "_cursor" in known)

    @property
    def reported(self) -> ProgressReport | None:
        """The latest progress report, if there is any."""
        return self.__dict__.get("_progress")

    @property
    def written(self) -> str | None:
        """The stored part of the output, if there is any."""
        output: Output | None = self.__dict__.get("_output")
        return None if output is None else output.text()

    @property
    def cursor(self) -> Json:
        """The JSON value that the last successful run left, for incremental work; None if there is none.

        Assign a new value to it: `run.cursor = {"last_id": 17}`. If the run succeeds, the store keeps it in the
        transaction that records the success. If the run fails or is cancelled, the earlier value stays. Each access
        returns a new copy, so that a change inside of it has no effect.
        """
        text = self.__dict__.get("_cursor") or self.job.state.cursor
        return None if text is None else from_json_text(text)

    @cursor.setter
    def cursor(self, value: Json) -> None:
        self.__dict__["_cursor"] = to_small_json_text(value, "cursor")

    @property
    def new_cursor(self) -> str | None:
        """The JSON of the cursor that the handler has assigned, if it has."""
        text: str | None = self.__dict__.get("_cursor")
        return text

    def to_json(self) -> Form:
        """Return the run as JSON knows it."""
        return form_of(self, RUN_FIELDS)

    @property
    def job_id(self) -> str:
        """The id of the job."""
        claimed: ClaimedRun | None = self.__dict__.get("_claimed")
        return self.job.id if claimed is None else claimed.name[1]

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        claimed: ClaimedRun | None = self.__dict__.get("_claimed")
        return self.job.namespace if claimed is None else claimed.name[0]

    @property
    def user_id(self) -> str | None:
        """The user that the job belongs to."""
        return self.job.user_id

    @property
    def delay_ms(self) -> float:
        """How late the run started, in milliseconds."""
        return max((self.fired_at - self.scheduled_for) / timedelta(milliseconds=1), 0.0)

    @property
    def idempotency_key(self) -> str:
        """A key that every attempt at one occurrence shares, and no other run has."""
        key = f"{self.job.key}@{iso_text(self.scheduled_for)}"
        if self.trigger is not Trigger.MANUAL:
            return key
        claimed: ClaimedRun | None = self.__dict__.get("_claimed")
        origin = None if claimed is None else claimed.origin
        return f"{key}#{self.id if origin is None else origin}"


RUN_FIELDS = (
    *("id", "job_id", "namespace", "user_id", "payload", "scheduled_for", "fired_at", "delay_ms", "attempt"),
    *("trigger", "after", "idempotency_key", "cursor"),
)
"""The fields of a run in JSON."""


class _WorkedOut:
    """An attribute of a run that is computed on first access."""

    def __init__(self, name: str, find: Callable[[dict[str, Any]], Any]) -> None:
        self._name, self._find = name, find

    def __get__(self, run: Run | None, _: type) -> Any:
        if run is None:
            return self
        return run.__dict__.setdefault(self._name, self._find(run.__dict__))  # several threads may read it at once


for _name, _find in {
    "job": lambda known: known["_claimed"].job,
    "payload": lambda known: from_json_text(known["_claimed"].payload_json),
    "scheduled_for": lambda known: from_micros(known["_claimed"].scheduled_for),
    "fired_at": lambda known: from_micros(known["_began"]),
    "after": lambda known: known["_claimed"].after,
    "stopping": lambda known: signal_of(known["_stopping"]),
    "_output": lambda _: Output(),
}.items():
    setattr(Run, _name, _WorkedOut(_name, _find))  # set after @dataclass, which would take them for defaults


def _set_attribute(run: Run, name: str, value: object) -> None:
    """Set the cursor. Every other attribute of a run is read-only."""
    (object.__setattr__ if name == "cursor" else _refuse_attribute)(run, name, value)


_refuse_attribute = Run.__setattr__
Run.__setattr__ = _set_attribute  # type: ignore[method-assign, assignment]  # a frozen dataclass cannot define it
