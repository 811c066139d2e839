"""Runs: claimed, in the handler, ended, and as rows of the run log."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from scheduler_async.jobs.enums import Outcome, SkipReason, Status, Trigger
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.output import Output
from scheduler_async.texts import storable
from scheduler_async.timekeeping.instants import Micros, from_micros


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

    @classmethod
    def of(cls, id: int, job: Job, attempt: Attempt, payload_json: str, before: JobState) -> Self:
        """Return the run of *job* that makes this *attempt*."""
        return cls(
            attempt.scheduled_for, attempt.attempt, attempt.trigger, attempt.claimed_at, id, job, payload_json, before
        )

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
        return self.job.state.activity is Status.QUEUED

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

    def __post_init__(self) -> None:
        if self.error is not None:
            force_setattr(self, "error", storable(self.error))
        if self.message is not None:
            force_setattr(self, "message", storable(self.message))


class EndedRun(Struct, frozen=True, gc=False):
    """A run of this node that has ended and is not recorded yet."""

    run: ClaimedRun
    ending: Ending
    started_at: Micros
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
    reason: SkipReason | None = None
    missed: int = 0
    error: str | None = None
    message: str | None = None
    exit_code: int | None = None
    node: str | None = None


class StopSignal(Protocol):
    """A signal to long runs that the scheduler is stopping, such as an `asyncio.Event`."""

    def is_set(self) -> bool:
        """Return whether the scheduler is stopping."""

    def wait(self) -> Awaitable[object]:
        """Wait until the scheduler is stopping."""


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
    stopping: StopSignal = field(repr=False)
    """Set when the scheduler stops. A long run can watch it, and end early."""
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
    def begun(cls, claimed: ClaimedRun, now: Micros, stopping: StopSignal) -> Self:
        """Return a run that begins *now*. Attributes that most handlers never use are computed on first access."""
        run = cls.__new__(cls)
        known = {
            "id": claimed.id,
            "attempt": claimed.attempt,
            "trigger": claimed.trigger,
            "stopping": stopping,
            "_claimed": claimed,
            "_began": now,
        }
        object.__setattr__(run, "__dict__", known)  # twice as fast as one assignment after another
        return run

    def write(self, text: str | bytes) -> None:
        """Append *text* to the output of the run. `Scheduler.run_output` returns the last 64 KiB."""
        self._output.write(text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text)

    @property
    def written(self) -> str | None:
        """The stored part of the output, if there is any."""
        output: Output | None = self.__dict__.get("_output")
        return None if output is None else output.text()

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
        moment = self.scheduled_for.isoformat().replace("+00:00", "Z")
        return f"{self.job.key}@{moment}" + (f"#{self.id}" if self.trigger is Trigger.MANUAL else "")


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
    "payload": lambda known: json.loads(known["_claimed"].payload_json),
    "scheduled_for": lambda known: from_micros(known["_claimed"].scheduled_for),
    "fired_at": lambda known: from_micros(known["_began"]),
    "_output": lambda _: Output(),
}.items():
    setattr(Run, _name, _WorkedOut(_name, _find))  # set after @dataclass, which would take them for defaults
