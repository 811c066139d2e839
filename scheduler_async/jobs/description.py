"""What describes a job, whatever it is doing: what a spec gives, a job has, an edit changes and a copy carries.

`stores/columns.py` says how each is stored. A new field is declared here, and there.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from scheduler_async.jobs.enums import Misfire, OnInterrupt, Priority
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.schedules.base import Schedule


class Description(Struct, frozen=True, gc=False, kw_only=True):
    """The fields that describe a job. They were checked, by `JobSpec` or when they were read from a store."""

    schedule: Schedule
    user_id: str | None = None
    name: str | None = None
    payload_json: str = "null"
    metadata_json: str = "{}"
    priority: Priority = Priority.STANDARD
    group: str | None = None
    misfire: Misfire = Misfire.RUN_ONCE
    retry: Retry | None = None
    timeout: timedelta | None = None
    on_interrupt: OnInterrupt = OnInterrupt.RERUN
    unreadable: tuple[Unreadable, ...] = ()
    """The columns that could not be read from the store: other values stand in for them, and must never be stored."""

    def lacks(self, field: str) -> bool:
        """Return whether the value of *field* only stands in for one that could not be read from the store."""
        return any(field_of(problem.column) == field for problem in self.unreadable)


DESCRIBED = tuple(name.removesuffix("_json") for name in Description.__struct_fields__ if name != "unreadable")
"""The fields of a description, by the names that users know."""


def field_of(column: str) -> str:
    """Return the field whose new value replaces what is in *column*; a new schedule brings an anchor of its own."""
    return {"job_group": "group", "anchor": "schedule"}.get(column, column)


class Described:
    """What specs and jobs have in common: the fields of their description."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def description(self) -> Description:
            """What describes the job."""

    @property
    def schedule(self) -> Schedule:
        """When the job runs."""
        return self.description.schedule

    @property
    def user_id(self) -> str | None:
        """The user that the job belongs to."""
        return self.description.user_id

    @property
    def name(self) -> str | None:
        """A name for people."""
        return self.description.name

    @property
    def payload(self) -> Json:
        """What the handler gets: a fresh copy, each time."""
        return json.loads(self.description.payload_json)

    @property
    def metadata(self) -> dict[str, Json]:
        """Notes of the owner: a fresh copy, each time."""
        metadata: dict[str, Json] = json.loads(self.description.metadata_json)
        return metadata

    @property
    def priority(self) -> Priority:
        """Which jobs start first when not all can start."""
        return self.description.priority

    @property
    def group(self) -> str | None:
        """The group that the job shares a limit with."""
        return self.description.group

    @property
    def misfire(self) -> Misfire:
        """What happens to an occurrence that was missed."""
        return self.description.misfire

    @property
    def retry(self) -> Retry | None:
        """The job's own retry policy; None is the scheduler's."""
        return self.description.retry

    @property
    def timeout(self) -> timedelta | None:
        """How long a run may take; None is the scheduler's limit."""
        return self.description.timeout

    @property
    def on_interrupt(self) -> OnInterrupt:
        """What happens to a run whose process died."""
        return self.description.on_interrupt
