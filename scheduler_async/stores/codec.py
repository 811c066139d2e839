"""Jobs as rows: the columns that a description and a state are kept in, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

from scheduler_async.errors import StoreError
from scheduler_async.escapes import escaped
from scheduler_async.jobs.enums import Choice, Misfire, OnConflict, OnInterrupt, Phase, Priority, Status
from scheduler_async.jobs.job import Job, JobState, state_of_parts
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.spec import SPEC_FIELDS, JobSpec, field_of
from scheduler_async.jobs.unreadable import Unreadable, reason_of
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.manual import Manual
from scheduler_async.stores.unreadable import (
    MOST_COUNTED,
    Check,
    all_problems,
    count,
    duration,
    first_problem,
    is_moment,
    is_text,
    moment,
    name,
    number,
    one_of,
    optional,
    problem_of,
    shown_text,
    text,
)
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros, span

Row = tuple[Any, ...]
"""The columns of a description or of a state: numbers, texts and None. A bare tuple, which takes little memory, and
which the garbage collector lets be."""

# Where things are in a description: the number of the job, then what `spec_values` has.
UID, NAMESPACE, ID, HANDLER, SCHEDULE, PAYLOAD, METADATA, GROUP, TIMEOUT, ANCHOR = 0, 2, 3, 4, 5, 7, 8, 12, 14, 16

# And in a state.
ACTIVITY, NEXT_RUN_AT, LAST_RUN_AT, EXIT_CODE, PHASE, DISABLED_REASON = map(
    JobState._fields.index,
    ("activity", "next_run_at", "last_run_at", "last_exit_code", "phase", "disabled_reason"),
)
TAKEN = slice(NEXT_RUN_AT, LAST_RUN_AT + 1)
"""What a claim changes, besides the activity."""


# The payloads and metadata that a store remembers take about as much memory as this at most, besides small ones.
REMEMBERED_BYTES = 64 * 2**20


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
    """The job that a description makes; `Unreadable` if it makes none here."""
    try:
        if _is_sound_description(row):
            return job_of(row, _NEW)
    except Exception:  # noqa: S110 - what is wrong, and where, is looked for column by column
        pass
    raise problems_of(row)[0]


def _is_sound_description(row: Row) -> bool:
    """Whether `DESCRIPTION` finds nothing wrong, as far as `job_of` does not notice: in half of the time."""
    (uid, revision, namespace, id_, handler, schedule, retry, payload, metadata, user_id, called, _, group, _, timeout,
     _, *moments) = row  # fmt: skip
    if type(uid) is not int or type(revision) is not int:
        return False
    for value in (namespace, id_, handler):
        if type(value) is not str or not value.isprintable():
            return False
    for value in (user_id, called, group):
        if value is not None and (type(value) is not str or not value.isprintable()):
            return False
    for at in moments:
        if type(at) is not int or not FIRST <= at <= LAST:
            return False
    for value in (schedule, payload, metadata, "{}" if retry is None else retry):
        if type(value) is not str or not (value.isascii() or is_text(value)):
            return False
    if payload != "null":  # what the handler would stumble over
        json.loads(payload)
    is_mapping = metadata == "{}" or isinstance(json.loads(metadata), dict)
    return is_mapping and (timeout is None or (type(timeout) is int and timeout > 0))


def job_of(row: Row, state: JobState) -> Job:
    """The job that a description makes which was read before, in this *state*."""
    schedule, retry = row[5:7]
    return _described(row, _schedule(schedule), None if retry is None else _retry(retry), state)


def schedule_of(row: Row) -> tuple[Schedule, Micros]:
    """The schedule of a description which was read before, and the anchor it counts from."""
    return _schedule(row[SCHEDULE]), row[ANCHOR]


UNREADABLE_STATE = "its state cannot be read from the store: "
"""How the reason begins for which a job is shown as disabled whose state cannot be read. It is never stored."""


def problems_of(row: Row) -> tuple[Unreadable, ...]:
    """Return what is wrong with a description that `read_job` has refused: one problem at least."""
    return all_problems(DESCRIPTION, row) or (Unreadable("schedule", "it makes no job"),)


def unreadable_job(row: Row, problems: tuple[Unreadable, ...], state: JobState) -> Job:
    """A job with these *problems* in its description: with all that can be read, and what stands in for the rest."""
    columns = dict(zip(DESCRIPTION, row, strict=True))
    moment_known = max((value for value in row[ANCHOR:] if is_moment(value)), default=0)
    for problem in problems:
        column = problem.column
        if column in _NAMES:
            columns[column] = escaped(shown_text(columns[column]))
        elif column != "uid":  # without which nothing could be done about the job
            columns[column] = _STAND_INS.get(column, moment_known)
    schedule, retry = columns["schedule"], columns["retry"]
    return _described(
        tuple(columns.values()),
        Manual() if schedule is None else _schedule(schedule),
        None if retry is None else _retry(retry),
        state,
        problems,
    )


_NAMES = ("namespace", "id", "handler", "user_id", "name", "job_group")
_STAND_INS: dict[str, Any] = {
    "revision": 0,
    **dict.fromkeys(("schedule", "retry", "timeout")),
    "payload": "null",
    "metadata": "{}",
    "priority": Priority.STANDARD.value,
    "misfire": Misfire.RUN_ONCE.value,
    "on_interrupt": OnInterrupt.RERUN.value,
}
"""What stands in for columns that cannot be read, besides names, which are shown as far as they can be, and moments."""


def shown(job: Job, now: Micros) -> Job:
    """*job* as users see it: disabled as of *now*, if its description cannot be read."""
    if not job.spec.unreadable or job.state.phase is Phase.DISABLED:
        return job
    reason = reason_of(job.spec.unreadable)
    state = job.state._replace(
        next_run_at=None, regular_at=None, phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now
    )
    return job.with_state(state)


def has_unreadable_state(job: Job) -> bool:
    """Whether *job* is only shown as disabled, since its state cannot be read: then nothing can be decided about it."""
    return job.unreadable_state is not None


def refuse_unreadable_state(job: Job) -> None:
    """`StoreError` if the state of *job* cannot be read: it must not be overwritten."""
    if job.unreadable_state is not None:
        raise _refusal(job, [job.unreadable_state], "Repair its row, or remove the job.")


def refuse_stand_ins(job: Job) -> None:
    """`StoreError` if *job*, as it is about to be stored, has values that only stand in for unreadable ones."""
    problems = job.spec.unreadable
    if problems:
        fields = list(dict.fromkeys(field_of(problem.column) for problem in problems))
        if set(fields) <= set(SPEC_FIELDS) - {"id", "namespace"}:
            advice = f"Give it {' and '.join(f'a new {name}' for name in fields)}, or remove it."
        else:
            advice = "Repair its row, or remove the job."
        raise _refusal(job, problems, advice)


def refuse_resuming_unreadable(before: Job, job: Job) -> None:
    """`StoreError` if *job*, which was *before* like that, is resumed although nobody knows when it runs next."""
    if job.spec.lacks("schedule") and job.state.phase is Phase.ACTIVE and before.state.phase is not Phase.ACTIVE:
        refuse_stand_ins(job)


def _refusal(job: Job, problems: Sequence[Unreadable], advice: str) -> StoreError:
    told = "; ".join(map(str, problems)).rstrip(".")
    return StoreError(f"Job {job.key} cannot be read from the store: {told}. {advice}")


class _Members(dict[str, Choice]):
    """The members of an enum by their values: to ask the enum takes five times as long."""

    def __init__(self, kind: type[Choice]) -> None:
        super().__init__({member.value: member for member in kind})

    def __missing__(self, value: str) -> Choice:
        raise ValueError(f"{value!r} is none of {', '.join(self)}")


_PRIORITIES, _MISFIRES, _ON_INTERRUPT = _Members(Priority), _Members(Misfire), _Members(OnInterrupt)


def _described(
    row: Row, schedule: Schedule, retry: Retry | None, state: JobState, unreadable: tuple[Unreadable, ...] = ()
) -> Job:
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
        unreadable=unreadable,
    )
    return Job.stored(spec, state, id_, namespace, handler, uid, anchor, created, updated, revision)


_PHASES, _STATUSES = _Members(Phase), _Members(Status)


def _json(value: Any) -> None:
    text(value)
    json.loads(value)


def _json_object(value: Any) -> None:
    text(value)
    if not isinstance(json.loads(value), dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - it is about the value of a column


def _json_schedule(value: Any) -> None:
    text(value)
    _schedule(value)


def _json_retry(value: Any) -> None:
    text(value)
    _retry(value)


DESCRIPTION: dict[str, Check] = {
    "uid": number,
    "revision": number,
    **dict.fromkeys(("namespace", "id", "handler"), name),
    "schedule": _json_schedule,
    "retry": optional(_json_retry),
    "payload": _json,
    "metadata": _json_object,
    **dict.fromkeys(("user_id", "name"), optional(name)),
    "priority": one_of(_PRIORITIES),
    "job_group": optional(name),
    "misfire": one_of(_MISFIRES),
    "timeout": optional(duration),
    "on_interrupt": one_of(_ON_INTERRUPT),
    **dict.fromkeys(("anchor", "created_at", "updated_at"), moment),
}
"""The columns of a description, and what each may hold."""

_MOMENT = optional(moment)
_COUNTS = ("attempts", "retry_count", "consecutive_errors", "interruptions")
_TEXTS = ("last_message", "disabled_reason", "last_error")
_ACTIVITIES = {word: status for word, status in _STATUSES.items() if word not in _PHASES}
STATE: dict[str, Check] = {
    **dict.fromkeys(JobState._fields, _MOMENT),
    **dict.fromkeys(_COUNTS, count),
    **dict.fromkeys(_TEXTS, optional(text)),
    "activity": one_of(_ACTIVITIES),
    "phase": one_of(_PHASES),
    "last_exit_code": optional(number),
}
"""The columns of a state, and what each may hold."""


def _picking(names: Iterable[str]) -> Callable[[Row], Row]:
    return itemgetter(*map(JobState._fields.index, names))


_moments_of = _picking(name for name, check in STATE.items() if check is _MOMENT)
_counts_of, _texts_of = _picking(_COUNTS), _picking(_TEXTS)


def is_sound_state(columns: Row) -> bool:
    """Whether `STATE` finds nothing wrong with *columns*: in a fifth of the time."""
    for at in _moments_of(columns):
        if at is not None and not (type(at) is int and FIRST <= at <= LAST):
            return False
    for counted in _counts_of(columns):
        if type(counted) is not int or not 0 <= counted <= MOST_COUNTED:
            return False
    for words in _texts_of(columns):
        if words is not None and not (type(words) is str and is_text(words)):
            return False
    exit_code = columns[EXIT_CODE]
    is_number = exit_code is None or type(exit_code) is int
    return is_number and columns[ACTIVITY] in _ACTIVITIES and columns[PHASE] in _PHASES


def state_of(columns: Row) -> JobState:
    """The state that its columns make, which were read before."""
    phase = _PHASES[columns[PHASE]]
    return state_of_parts((_STATUSES[columns[ACTIVITY]], *columns[1:PHASE], phase, *columns[PHASE + 1 :]))


def state_values(state: JobState) -> Row:
    """The columns of a state, as texts and numbers: drivers take long to find out that an enum is a text."""
    return state.activity._value_, *state[1:PHASE], state.phase._value_, *state[PHASE + 1 :]


def state_problem(columns: Row) -> Unreadable | None:
    """What keeps a state from being read, or None."""
    return None if is_sound_state(columns) else first_problem(STATE, columns)


def unreadable_state(columns: Row, problem: Unreadable) -> JobState:
    """A state that cannot be read, with all that can, as it is shown: disabled, and why."""
    fields = zip(STATE.items(), columns, strict=True)
    kept = {name: value for (name, check), value in fields if problem_of(name, check, value) is None}
    shown = {"activity": Status.IDLE, "phase": Phase.DISABLED, "disabled_reason": f"{UNREADABLE_STATE}{problem}"}
    return JobState(**{**kept, "next_run_at": None, **shown})


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
        return self.job.key if row is None else key_of(row[NAMESPACE], row[ID])

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
