"""A run: about to begin, as its handler gets it, as it ended, and as a row of the run log."""

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
    """An attempt at an occurrence that is about to begin: which one, which try, and why now."""

    scheduled_for: Micros
    attempt: int
    """Attempt number, starting at 1."""
    trigger: Trigger
    claimed_at: Micros


class ClaimedRun(Attempt, frozen=True, gc=False, eq=False):
    """A run that is ours: the job is marked, the row is written, and the handler may start. Its job is as of then."""

    id: int
    job: Job
    payload_json: str
    before: JobState
    """What the job looked like before the claim, should it be undone."""

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
        """The name of its job among all jobs of the store."""
        return self.job.key

    @property
    def is_queued(self) -> bool:
        """Whether it waits for a slot."""
        return self.job.state.activity is Status.QUEUED

    @property
    def named(self) -> dict[str, object]:
        """What every log line about it carries."""
        return {"job": self.key, "run": self.id, "attempt": self.attempt}


class Ending(Struct, frozen=True, gc=False, kw_only=True):
    """How a run ended, as its handler reported it."""

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
            force_setattr(self, "error", storable(self.error))
        if self.message is not None:
            force_setattr(self, "message", storable(self.message))


class EndedRun(Struct, frozen=True, gc=False):
    """A run of ours that has ended, to be recorded."""

    run: ClaimedRun
    ending: Ending
    started_at: Micros
    finished_at: Micros


class Skip(Struct, frozen=True, gc=False, kw_only=True):
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
    def begun(cls, claimed: ClaimedRun, now: Micros, stopping: StopSignal) -> Self:
        """A run that begins *now*. What most handlers never ask for is worked out for those that do."""
        run = cls.__new__(cls)
        known = {
            "id": claimed.id,
            "attempt": claimed.attempt,
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
        claimed: ClaimedRun | None = self.__dict__.get("_claimed")
        return self.job.id if claimed is None else claimed.name[1]

    @property
    def namespace(self) -> str:
        """The namespace of its job."""
        claimed: ClaimedRun | None = self.__dict__.get("_claimed")
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
