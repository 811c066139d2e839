"""A job as it is described: what `Scheduler.add_job` takes, as a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Self, cast, final

from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import Misfire, OnConflict, OnInterrupt, Priority, check_choice
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.names import check_name, refuse
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.durations import parse_interval


class SpecDraft:
    """A description while it is filled in; then it becomes a `JobSpec`, which nobody can change.

    A frozen dataclass takes three times as long to fill in, and twice the memory if it has no slots.
    """

    __slots__ = (
        *("schedule", "handler", "id", "namespace", "user_id", "name", "payload_json", "metadata_json", "priority"),
        *("group", "misfire", "retry", "timeout", "on_interrupt", "enabled", "on_conflict", "unreadable"),
        "__weakref__",
    )


@final
@dataclass(frozen=True, init=False)
class JobSpec(SpecDraft):
    """A job as it is described: what `Scheduler.add_job` takes, as a value.

    It is checked when it is made; what is wrong raises an `InvalidJobError` that names the field.
    """

    __slots__ = ()

    schedule: Schedule
    handler: str | Callable[..., Any]
    id: str | None
    namespace: str
    user_id: str | None
    name: str | None
    payload_json: str
    metadata_json: str
    priority: Priority
    group: str | None
    misfire: Misfire
    retry: Retry | None
    timeout: timedelta | None
    on_interrupt: OnInterrupt
    enabled: bool
    on_conflict: OnConflict
    unreadable: tuple[Unreadable, ...] = field(repr=False)
    """The columns that could not be read from the store: other values stand in for them, and must never be stored."""

    def __new__(
        cls,
        schedule: Schedule,
        *,
        handler: str | Callable[..., Any],
        id: str | None = None,
        namespace: str = "default",
        user_id: str | None = None,
        name: str | None = None,
        payload: Json = None,
        metadata: Mapping[str, Json] | None = None,
        priority: Priority | str = Priority.STANDARD,
        group: str | None = None,
        misfire: Misfire | str = Misfire.RUN_ONCE,
        retry: Retry | None = None,
        timeout: str | timedelta | None = None,
        on_interrupt: OnInterrupt | str = OnInterrupt.RERUN,
        enabled: bool = True,
        on_conflict: OnConflict | str = OnConflict.RAISE,
    ) -> Self:
        """A description that was checked."""
        if not isinstance(schedule, Schedule):
            refuse("schedule", f'is Every("5m"), Cron("0 9 * * *") or another schedule, not {quoted(schedule)}')
        if retry is not None and not isinstance(retry, Retry):
            refuse("retry", f"is Retry.backoff(), Retry.in_window() or another policy, not {quoted(retry)}")
        if not isinstance(enabled, bool):
            refuse("enabled", f"is True or False, not {quoted(enabled)}")
        if metadata is not None and not isinstance(metadata, Mapping):
            refuse("metadata", f"is a dict of JSON values, not {quoted(metadata)}")
        return cls.stored(
            schedule,
            handler if callable(handler) else check_name(handler, "handler"),
            id if id is None else check_name(id, "id"),
            check_name(namespace, "namespace"),
            user_id if user_id is None else check_name(user_id, "user_id"),
            name if name is None else check_name(name, "name"),
            "null" if payload is None else to_json_text(payload, "payload"),
            to_json_text(dict(metadata), "metadata") if metadata else "{}",
            check_choice(Priority, priority, "priority"),
            group if group is None else check_name(group, "group"),
            check_choice(Misfire, misfire, "misfire"),
            retry,
            timeout if timeout is None else parse_interval(timeout),
            check_choice(OnInterrupt, on_interrupt, "on_interrupt"),
            enabled,
            check_choice(OnConflict, on_conflict, "on_conflict"),
        )

    @classmethod
    def stored(
        cls,
        schedule: Schedule,
        handler: str | Callable[..., Any],
        id: str | None,
        namespace: str,
        user_id: str | None,
        name: str | None,
        payload_json: str,
        metadata_json: str,
        priority: Priority,
        group: str | None,
        misfire: Misfire,
        retry: Retry | None,
        timeout: timedelta | None,
        on_interrupt: OnInterrupt,
        enabled: bool,
        on_conflict: OnConflict,
        unreadable: tuple[Unreadable, ...] = (),
    ) -> Self:
        """A spec that was checked before it was stored: all fields, as they are."""
        draft: Any = SpecDraft()
        draft.schedule = schedule
        draft.handler = handler
        draft.id = id
        draft.namespace = namespace
        draft.user_id = user_id
        draft.name = name
        draft.payload_json = payload_json
        draft.metadata_json = metadata_json
        draft.priority = priority
        draft.group = group
        draft.misfire = misfire
        draft.retry = retry
        draft.timeout = timeout
        draft.on_interrupt = on_interrupt
        draft.enabled = enabled
        draft.on_conflict = on_conflict
        draft.unreadable = unreadable
        draft.__class__ = cls
        return cast(Self, draft)

    def __reduce__(self) -> tuple[Callable[..., JobSpec], tuple[Any, ...]]:
        return JobSpec.stored, tuple(getattr(self, part.name) for part in fields(self))

    def __init_subclass__(cls) -> None:
        raise TypeError("A JobSpec is a value, and has no subclasses. Write a function that returns one.")

    @property
    def payload(self) -> Json:
        """A fresh copy of the payload."""
        return json.loads(self.payload_json)

    @property
    def metadata(self) -> dict[str, Json]:
        """A fresh copy of the metadata."""
        metadata: dict[str, Json] = json.loads(self.metadata_json)
        return metadata

    def as_kept(self, id: str, handler: str) -> Self:
        """As a store keeps it: under the id it got, without what only adding asks for."""
        if self.id == id and self.handler == handler and self.enabled and self.on_conflict is OnConflict.RAISE:
            return self
        given: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        return self.stored(**{**given, "id": id, "handler": handler, "enabled": True, "on_conflict": OnConflict.RAISE})

    def changed(self, **changes: Any) -> Self:
        """A copy with *changes*, which are arguments of `JobSpec`, checked like new ones."""
        given = {name: getattr(self, name) for name in SPEC_FIELDS}
        changed = type(self)(**{**given, **changes})
        replaced = {*changes, "updated_at"}  # which every edit writes
        left = tuple(problem for problem in self.unreadable if field_of(problem.column) not in replaced)
        return changed._lacking(left) if left else changed

    def lacks(self, field: str) -> bool:
        """Whether the value of *field* only stands in for one that could not be read from the store."""
        return any(field_of(problem.column) == field for problem in self.unreadable)

    def _lacking(self, unreadable: tuple[Unreadable, ...]) -> Self:
        given: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        return self.stored(**{**given, "unreadable": unreadable})


SPEC_FIELDS = tuple(part.name.removesuffix("_json") for part in fields(JobSpec) if part.name != "unreadable")
"""What a job can be described by, and what an edit can change."""


def field_of(column: str) -> str:
    """Return the field whose new value replaces what is in *column*; a new schedule brings an anchor of its own."""
    return {"job_group": "group", "anchor": "schedule"}.get(column, column)
