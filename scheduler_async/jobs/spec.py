"""The specification of a job: the arguments of `Scheduler.add_job` as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

from msgspec.structs import asdict, replace

from scheduler_async.errors import quoted
from scheduler_async.jobs.description import DESCRIBED, Described, Description
from scheduler_async.jobs.enums import Misfire, OnConflict, OnInterrupt, Overlap, Priority, check_choice
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.names import check_name, refuse
from scheduler_async.jobs.policies import CATCH_UP_LIMIT, USUAL, policy_of
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.schedules import At, Cron, Delay, Every, Manual
from scheduler_async.schedules.base import Schedule, check_own
from scheduler_async.timekeeping.durations import parse_interval

SPEC_FIELDS = ("schedule", "handler", "id", "namespace", *DESCRIBED[1:], "enabled", "on_conflict")
"""The fields of a specification."""

_set = object.__setattr__


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class JobSpec(Described):
    """The specification of a job: the arguments of `Scheduler.add_job`, as a value for `Scheduler.add_jobs`.

    The arguments are checked immediately. An `InvalidJobError` names the argument that is wrong.

    >>> from scheduler_async import Every, JobSpec
    >>> spec = JobSpec(Every("5m"), handler="send-report", id="report", payload={"to": "ops"})
    >>> print(spec.id, "runs", spec.schedule.describe())
    report runs every 5 minutes
    """

    description: Description
    handler: str | Callable[..., Any]
    id: str | None
    namespace: str
    enabled: bool
    on_conflict: OnConflict

    def __init__(
        self,
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
        max_instances: int = 1,
        overlap: Overlap | str = Overlap.SKIP,
        misfire_grace: str | timedelta | None = None,
        catch_up_limit: int = CATCH_UP_LIMIT,
        catch_up_window: str | timedelta | None = None,
        max_runs: int | None = None,
        enabled: bool = True,
        on_conflict: OnConflict | str = OnConflict.RAISE,
    ) -> None:
        if not isinstance(schedule, Schedule):
            refuse("schedule", f'must be Every("5m"), Cron("0 9 * * *") or another schedule, not {quoted(schedule)}')
        if type(schedule) not in _CHECKED:  # of a class that the user wrote
            check_own(schedule)
        if retry is not None and not isinstance(retry, Retry):
            refuse("retry", f"must be Retry.backoff(), Retry.in_window() or another policy, not {quoted(retry)}")
        if not isinstance(enabled, bool):
            refuse("enabled", f"must be True or False, not {quoted(enabled)}")
        if metadata is not None and not isinstance(metadata, Mapping):
            refuse("metadata", f"must be a dict of JSON values, not {quoted(metadata)}")
        _set(self, "handler", handler if callable(handler) else check_name(handler, "handler"))
        _set(self, "id", None if id is None else check_name(id, "id"))
        _set(self, "namespace", check_name(namespace, "namespace"))
        _set(
            self,
            "description",
            Description(
                schedule=schedule,
                user_id=None if user_id is None else check_name(user_id, "user_id"),
                name=None if name is None else check_name(name, "name"),
                payload_json="null" if payload is None else to_json_text(payload, "payload"),
                metadata_json=to_json_text(dict(metadata), "metadata") if metadata else "{}",
                priority=check_choice(Priority, priority, "priority"),
                group=None if group is None else check_name(group, "group"),
                misfire=check_choice(Misfire, misfire, "misfire"),
                retry=retry,
                timeout=None if timeout is None else parse_interval(timeout),
                on_interrupt=check_choice(OnInterrupt, on_interrupt, "on_interrupt"),
                policy=policy_of(
                    max_instances=max_instances,
                    overlap=overlap,
                    misfire_grace=misfire_grace,
                    catch_up_limit=catch_up_limit,
                    catch_up_window=catch_up_window,
                    max_runs=max_runs,
                ),
            ),
        )
        _set(self, "enabled", enabled)
        _set(self, "on_conflict", check_choice(OnConflict, on_conflict, "on_conflict"))

    def lacking(self, unreadable: tuple[Unreadable, ...]) -> JobSpec:
        """Return this spec with *unreadable* columns, whose values are placeholders."""
        return self._with("description", replace(self.description, unreadable=unreadable))

    def in_namespace(self, namespace: str, user_id: str | None) -> JobSpec:
        """Return this spec as one of *namespace*, for the user *user_id* unless it names one."""
        spec = self if self.namespace == namespace else self._with("namespace", namespace)
        if user_id is None or self.description.user_id is not None:
            return spec
        return spec._with("description", replace(self.description, user_id=user_id))

    def with_schedule(self, schedule: Schedule) -> JobSpec:
        """Return this spec with another schedule."""
        return self._with("description", replace(self.description, schedule=schedule))

    def with_handler(self, handler: str) -> JobSpec:
        """Return this spec with another handler."""
        return self if self.handler == handler else self._with("handler", handler)

    def with_enabled(self, enabled: bool) -> JobSpec:
        """Return this spec with *enabled* set."""
        return self if self.enabled == enabled else self._with("enabled", enabled)

    def _with(self, field: str, value: object) -> JobSpec:
        spec = copy(self)
        _set(spec, field, value)
        return spec

    def __repr__(self) -> str:
        plain = {"id": None, "namespace": "default", "enabled": True, "on_conflict": OnConflict.RAISE, **_PLAIN}
        given = ((name, getattr(self, name)) for name in SPEC_FIELDS[1:])
        shown = (f"{name}={value!r}" for name, value in given if name not in plain or value != plain[name])
        return f"JobSpec({self.schedule!r}, {', '.join(shown)})"


# Schedules that need no check, since their constructors make one.
_CHECKED = {At, Cron, Delay, Every, Manual}

_PLAIN: dict[str, object] = {
    **dict(zip(Description.__struct_fields__[1:], Description.__struct_defaults__, strict=False)),
    "payload": None,
    "metadata": {},
    **asdict(USUAL),
}
