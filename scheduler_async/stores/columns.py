"""The columns of jobs: how each field is stored, and the values that a column may hold. Pure.

A description is stored in the columns of `DESCRIPTION`, in that order. A state is stored in the fields of `JobState`,
in their order. Every store builds its statements, codecs and copies from these two lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from msgspec.structs import fields

from scheduler_async.errors import UnknownScheduleError
from scheduler_async.jobs.enums import Misfire, OnInterrupt, Phase, Priority, Status
from scheduler_async.jobs.job import Count, JobState, JsonText, Moment
from scheduler_async.jobs.json_text import from_json_text
from scheduler_async.jobs.policies import USUAL, Policy, read_policy
from scheduler_async.jobs.retries import Retry
from scheduler_async.schedules.base import Schedule, registrations, stored_schedule
from scheduler_async.schedules.manual import Manual
from scheduler_async.schedules.patience import TakesLong
from scheduler_async.schedules.unknown import UnknownSchedule, UnreadSchedule
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.unreadable import Reader, count, duration, moment, name, number, one_of, optional, text
from scheduler_async.timekeeping.instants import span

TEXT, BIGINT = "text", "bigint"


class Kind(NamedTuple):
    """The way to store values of one kind."""

    type: str
    """The type of the column in PostgreSQL."""
    read: Reader
    """Returns the value of a column, or raises a `ValueError`."""
    write: Callable[[Any], object] | None = None
    """Returns the stored form of a value that is not None. Without it, the value is stored as it is."""
    stand_in: object = None
    """The placeholder for a value that cannot be read. Names and times have none."""


class Column(NamedTuple):
    """A column of a description."""

    name: str
    kind: Kind
    path: str
    """The attribute path of its value in a `Job`."""


@lru_cache(maxsize=256)
def _retry_text(policy: Retry) -> str:
    return json.dumps(policy.to_json(), separators=(",", ":"))


_retry = lru_cache(maxsize=256)(Retry.from_json)
_failures: Cache[tuple[str, int], Exception] = Cache(4096)  # a transaction must not ask for the same reading for ever


def _read_schedule(value: Any) -> Schedule:
    error: Exception | None
    try:
        return stored_schedule(text(value))
    except TakesLong:
        error = _failures.get((value, registrations()))
        if error is None:
            return UnreadSchedule(value, "it was not read yet", _read_outside)
    except UnknownScheduleError as unknown:
        error = unknown
    if isinstance(error, UnknownScheduleError):  # of a class that another process has: the job waits for that process
        return UnknownSchedule.of(value, error)
    raise error.with_traceback(None)


def _read_outside(value: str) -> Schedule:
    """Read a schedule outside of transactions. They find it, or why it cannot be read, in a cache."""
    try:
        return stored_schedule(value)
    except Exception as error:
        _failures.put((value, registrations()), error)
        raise


def _read_retry(value: Any) -> Retry:
    return _retry(text(value))


def _read_policy(value: Any) -> Policy:
    return USUAL if value is None else read_policy(text(value))


def _read_json(value: Any) -> str:
    if text(value) != "null":
        from_json_text(value)  # the handler would fail on it
    return str(value)


def _read_object(value: Any) -> str:
    if text(value) != "{}" and not isinstance(from_json_text(value), dict):
        raise ValueError("it is not a JSON object")
    return str(value)


def _read_duration(value: Any) -> timedelta:
    return timedelta(microseconds=duration(value))


def choice(kind: type[StrEnum], stand_in: StrEnum) -> Kind:
    """Return the way to store members of an enum."""
    return Kind(TEXT, one_of({member.value: member for member in kind}), lambda member: member._value_, stand_in)


NAME = Kind(TEXT, name)
OPTIONAL_NAME = Kind(TEXT, optional(name))
NUMBER = Kind(BIGINT, number)
MOMENT = Kind(BIGINT, moment)

DESCRIPTION = (
    Column("uid", NUMBER, "uid"),
    Column("revision", NUMBER._replace(stand_in=0), "revision"),
    Column("namespace", NAME, "namespace"),
    Column("id", NAME, "id"),
    Column("handler", NAME, "handler"),
    Column("schedule", Kind(TEXT, _read_schedule, methodcaller("json_text"), Manual()), "description.schedule"),
    Column("retry", Kind(TEXT, optional(_read_retry), _retry_text), "description.retry"),
    Column("payload", Kind(TEXT, _read_json, stand_in="null"), "description.payload_json"),
    Column("metadata", Kind(TEXT, _read_object, stand_in="{}"), "description.metadata_json"),
    Column("user_id", OPTIONAL_NAME, "description.user_id"),
    Column("name", OPTIONAL_NAME, "description.name"),
    Column("priority", choice(Priority, Priority.STANDARD), "description.priority"),
    Column("job_group", OPTIONAL_NAME, "description.group"),
    Column("misfire", choice(Misfire, Misfire.RUN_ONCE), "description.misfire"),
    Column("timeout", Kind(BIGINT, optional(_read_duration), span), "description.timeout"),
    Column("on_interrupt", choice(OnInterrupt, OnInterrupt.RERUN), "description.on_interrupt"),
    Column("policy", Kind(TEXT, _read_policy, attrgetter("json_text"), USUAL), "description.policy"),
    Column("anchor", MOMENT, "anchor"),
    Column("created_at", MOMENT, "created"),
    Column("updated_at", MOMENT, "updated"),
)
"""The columns of a description."""

DESCRIPTION_TYPES = {column.name: column.kind.type for column in DESCRIPTION}
"""The columns of a description and their types in PostgreSQL."""

PLACE = {column.name: place for place, column in enumerate(DESCRIPTION)}
"""The index of each column in a description."""

ACTIVITIES = (Status.IDLE, Status.QUEUED, Status.RUNNING)

_STATE_KINDS = {
    Status: Kind(TEXT, one_of({status.value: status for status in ACTIVITIES})),
    Phase: Kind(TEXT, one_of({phase.value: phase for phase in Phase})),
    Count: Kind(BIGINT, count),
    Moment | None: Kind(BIGINT, optional(moment)),
    int | None: Kind(BIGINT, optional(number)),
    str | None: Kind(TEXT, optional(text)),
    JsonText | None: Kind(TEXT, optional(_read_json)),
}

STATE = {field.name: _STATE_KINDS[field.type] for field in fields(JobState)}
"""The columns of a state, and the way to store each."""

STATE_TYPES = {name: kind.type for name, kind in STATE.items()}
"""The columns of a state and their types in PostgreSQL."""

STATE_TEXTS = tuple(field.name for field in fields(JobState) if field.type in (str | None, JsonText | None))
"""The columns of a state that hold text from handlers and users."""
