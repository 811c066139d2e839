"""The fields that describe a job, whatever its state. Specs, jobs, edits and copies share them.

A new field has these places: `Description` and `Described` here, an argument of `JobSpec`, a column in
`stores/columns.py` with a migration in the `schema.py` of each store, and the public signatures (`JobOptions` in
`options.py` and `Scheduler.add_job`). Statements, codecs, edits, copies and JSON follow from these.
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
    """The fields that describe a job. `JobSpec`, or the store that read them, has checked them."""

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
    """The columns that cannot be read from the store. Placeholders replace their values; a store never writes those."""

    def lacks(self, field: str) -> bool:
        """Return whether *field* holds a placeholder because the store cannot read its value."""
        return any(field_of(problem.column) == field for problem in self.unreadable)


DESCRIBED = tuple(name.removesuffix("_json") for name in Description.__struct_fields__ if name != "unreadable")
"""The fields of a description, by their public names."""


def field_of(column: str) -> str:
    """Return the field that replaces *column* in an edit. A new schedule also sets a new anchor."""
    return {"job_group": "group", "anchor": "schedule"}.get(column, column)


class Described:
    """The fields of a description, as read-only properties of specs and jobs."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def description(self) -> Description:
            """The fields that describe the job."""

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
        """The JSON value that the handler receives. Each access returns a new copy."""
        return json.loads(self.description.payload_json)

    @property
    def metadata(self) -> dict[str, Json]:
        """Notes of the job's owner. Each access returns a new copy."""
        metadata: dict[str, Json] = json.loads(self.description.metadata_json)
        return metadata

    @property
    def priority(self) -> Priority:
        """Decides which jobs start first when not all can start."""
        return self.description.priority

    @property
    def group(self) -> str | None:
        """The group whose concurrency limit the job shares."""
        return self.description.group

    @property
    def misfire(self) -> Misfire:
        """The policy for missed occurrences."""
        return self.description.misfire

    @property
    def retry(self) -> Retry | None:
        """The job's own retry policy. None means the scheduler's policy."""
        return self.description.retry

    @property
    def timeout(self) -> timedelta | None:
        """The longest time that a run may take. None means the scheduler's limit."""
        return self.description.timeout

    @property
    def on_interrupt(self) -> OnInterrupt:
        """The policy for a run whose process died."""
        return self.description.on_interrupt
