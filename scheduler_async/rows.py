"""Jobs as rows: the columns that a description and a state are kept in, and back. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
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
    state_of_parts,
)
from scheduler_async.retries import Retry
from scheduler_async.schedules import Manual, Schedule

Row = tuple[Any, ...]
"""The columns of a description or of a state: numbers, texts and None. A bare tuple, which takes little memory, and
which the garbage collector lets be."""

# Where things are in a description: the number of the job, then what `spec_values` has.
UID, NAMESPACE, ID, HANDLER, SCHEDULE, PAYLOAD, GROUP, TIMEOUT, ANCHOR = 0, 2, 3, 4, 5, 7, 12, 14, 16

# And in a state.
ACTIVITY, NEXT_RUN_AT, PHASE, DISABLED_REASON = (
    JobState._fields.index(name) for name in ("activity", "next_run_at", "phase", "disabled_reason")
)
TAKEN = slice(NEXT_RUN_AT, JobState._fields.index("last_run_at") + 1)
"""What a claim changes, besides the activity."""


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
    return _schedule(row[SCHEDULE]), row[ANCHOR]


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


def state_of(columns: Row) -> JobState:
    """The state that its columns make."""
    phase = _PHASES[columns[PHASE]]
    return state_of_parts((_STATUSES[columns[ACTIVITY]], *columns[1:PHASE], phase, *columns[PHASE + 1 :]))


def state_values(state: JobState) -> Row:
    """The columns of a state, as texts and numbers: drivers take long to find out that an enum is a text."""
    return state.activity._value_, *state[1:PHASE], state.phase._value_, *state[PHASE + 1 :]


@dataclass(slots=True, eq=False)
class KeptJob:
    """A job that stays what it is in the store, two rows, until somebody asks for it: of many, few are looked at."""

    description: Row | None
    """The columns of its description, if it came as rows."""
    _state: Row | None
    _job: Job | None

    @property
    def job(self) -> Job:
        """The job."""
        if self._job is None:
            assert self.description is not None
            assert self._state is not None
            self._job = job_of(self.description, state_of(self._state))
        return self._job

    @property
    def state(self) -> Row:
        """The columns of its state."""
        if self._state is None:
            self._state = state_values(self.job.state)
        return self._state

    @property
    def name(self) -> tuple[str, str]:
        """Its namespace and id."""
        row = self.description
        return (self.job.namespace, self.job.id) if row is None else (row[NAMESPACE], row[ID])

    @property
    def key(self) -> str:
        """Its name among all jobs of the store."""
        row = self.description
        return self.job.key if row is None else f"{row[NAMESPACE]}/{row[ID]}"

    @property
    def handler(self) -> str:
        """The name of its handler."""
        return self.job.handler if self.description is None else str(self.description[HANDLER])

    @property
    def group(self) -> str | None:
        """The jobs it shares a limit with."""
        return self.job.group if self.description is None else self.description[GROUP]

    @property
    def timeout(self) -> timedelta | None:
        """How long a run may take, if it says so."""
        if self.description is None:
            return self.job.timeout
        timeout = self.description[TIMEOUT]
        return None if timeout is None else timedelta(microseconds=timeout)
