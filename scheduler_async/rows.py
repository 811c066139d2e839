"""Jobs as rows: the columns that a description and a state are kept in, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from scheduler_async.instants import Micros, span
from scheduler_async.models import (
    Choice,
    Job,
    JobSpec,
    JobState,
    Misfire,
    OnConflict,
    OnInterrupt,
    Phase,
    Priority,
    Status,
)
from scheduler_async.retries import Retry
from scheduler_async.schedules import Manual, Schedule

Row = tuple[Any, ...]
"""The columns of a description or of a state: numbers, texts and None. A bare tuple, which takes little memory, and
which the garbage collector lets be."""


@lru_cache(maxsize=256)
def _text_of(policy: Retry) -> str:
    return json.dumps(policy.to_json(), separators=(",", ":"))


def spec_values(job: Job) -> Row:
    """The columns of a job's description."""
    spec = job.spec
    return (
        job.revision,
        job.namespace,
        job.id,
        job.handler,
        spec.schedule.json_text(),
        None if spec.retry is None else _text_of(spec.retry),
        spec.payload_json,
        spec.metadata_json,
        spec.user_id,
        spec.name,
        spec.priority._value_,
        spec.group,
        spec.misfire._value_,
        None if spec.timeout is None else span(spec.timeout),
        spec.on_interrupt._value_,
        job.anchor,
        job.created,
        job.updated,
    )


_schedule = lru_cache(maxsize=4096)(Schedule.from_json)
_retry = lru_cache(maxsize=256)(Retry.from_json)
_NEW = JobState()  # where nobody asks for the state


def read_job(row: Row) -> Job:
    """The job that a description makes, if it makes one here: else a `SchedulerError` or a `ValueError`."""
    payload, metadata = row[7:9]
    if payload != "null":  # what the handler would stumble over
        json.loads(payload)
    if metadata != "{}":
        json.loads(metadata)
    return job_of(row, _NEW)


def job_of(row: Row, state: JobState) -> Job:
    """The job that a description makes which was read before, in this *state*."""
    schedule, retry = row[5:7]
    return _described(row, _schedule(schedule), None if retry is None else _retry(retry), state)


def schedule_of(row: Row) -> tuple[Schedule, Micros]:
    """The schedule of a description which was read before, and the anchor it counts from."""
    return _schedule(row[5]), row[16]


def unreadable_job(row: Row, state: JobState) -> Job:
    """A job whose schedule or policy makes no sense here, with all that does."""
    user_id, name, group = row[9], row[10], row[12]
    sound = (*row[:7], "null", "{}", user_id, name, Priority.STANDARD.value, group, Misfire.RUN_ONCE.value, None)
    return _described((*sound, OnInterrupt.RERUN.value, *row[16:]), Manual(), None, state)


class _Members(dict[str, Choice]):
    """The members of an enum by their values: to ask the enum takes five times as long."""

    def __init__(self, kind: type[Choice]) -> None:
        super().__init__({member.value: member for member in kind})

    def __missing__(self, value: str) -> Choice:
        raise ValueError(f"{value!r} is none of {', '.join(self)}")


_PRIORITIES, _MISFIRES, _ON_INTERRUPT = _Members(Priority), _Members(Misfire), _Members(OnInterrupt)


def _described(row: Row, schedule: Schedule, retry: Retry | None, state: JobState) -> Job:
    (uid, revision, namespace, id_, handler, _, _, payload, metadata, user_id, name, priority, group, misfire, timeout,
     on_interrupt, anchor, created, updated) = row  # fmt: skip
    spec = JobSpec.stored(
        schedule,
        handler,
        id_,
        namespace,
        user_id,
        name,
        payload,
        metadata,
        _PRIORITIES[priority],
        group,
        _MISFIRES[misfire],
        retry,
        None if timeout is None else timedelta(microseconds=timeout),
        _ON_INTERRUPT[on_interrupt],
        enabled=True,  # whether it is, its state tells
        on_conflict=OnConflict.RAISE,
    )
    return Job.stored(spec, state, id_, namespace, handler, uid, anchor, created, updated, revision)


_PHASES, _STATUSES = _Members(Phase), _Members(Status)
_PHASE = JobState._fields.index("phase")
_make_state: Callable[[Row], JobState] = partial(tuple.__new__, JobState)


def state_of(columns: Row) -> JobState:
    """The state that its columns make."""
    phase = _PHASES[columns[_PHASE]]
    return _make_state((_STATUSES[columns[0]], *columns[1:_PHASE], phase, *columns[_PHASE + 1 :]))


def state_values(state: JobState) -> Row:
    """The columns of a state, as texts and numbers: drivers take long to find out that an enum is a text."""
    return state[0]._value_, *state[1:_PHASE], state.phase._value_, *state[_PHASE + 1 :]


@dataclass(slots=True, eq=False)
class KeptJob:
    """A job that stays what it is in the store, two rows, until somebody asks for it: of many, few are looked at."""

    _description: Row | None
    _state: Row | None
    _job: Job | None
    """Or the job itself, and then the rows may be missing."""

    @property
    def job(self) -> Job:
        """The job."""
        if self._job is None:
            assert self._description is not None
            assert self._state is not None
            self._job = job_of(self._description, state_of(self._state))
        return self._job

    @property
    def description(self) -> Row | None:
        """The columns of its description, if it came as rows."""
        return self._description

    @property
    def state(self) -> Row:
        """The columns of its state."""
        if self._state is None:
            self._state = state_values(self.job.state)
        return self._state

    @property
    def name(self) -> tuple[str, str]:
        """Its namespace and id."""
        row = self._description
        return (self.job.namespace, self.job.id) if row is None else (row[2], row[3])

    @property
    def key(self) -> str:
        """Its name among all jobs of the store."""
        return "/".join(self.name)

    @property
    def handler(self) -> str:
        """The name of its handler."""
        return self.job.handler if self._description is None else str(self._description[4])

    @property
    def group(self) -> str | None:
        """The jobs it shares a limit with."""
        return self.job.group if self._description is None else self._description[12]

    @property
    def timeout(self) -> timedelta | None:
        """How long a run may take, if it says so."""
        if self._description is None:
            return self.job.timeout
        timeout = self._description[14]
        return None if timeout is None else timedelta(microseconds=timeout)
