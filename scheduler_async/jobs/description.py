"""The fields that describe a job, whatever its state. Specs, jobs, edits and copies share them.

A new field has these places: `Description` and `Described` here, an argument of `JobSpec`, a column in
`stores/columns.py` with a migration in the `schema.py` of each store, and the public signatures (`JobOptions` in
`options.py` and `Scheduler.add_job`). Statements, codecs, edits, copies and JSON follow from these.
A field that few jobs need belongs in `policies` instead, where it needs no column.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from scheduler_async.jobs.enums import Misfire, OnInterrupt, Overlap, Priority
from scheduler_async.jobs.json_text import Json, from_json_text
from scheduler_async.jobs.policies import POLICY_FIELDS, USUAL, Policy
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
    policy: Policy = USUAL
    unreadable: tuple[Unreadable, ...] = ()
    """The columns that cannot be read from the store. Placeholders replace their values; a store never writes those."""

    @property
    def has_instances(self) -> bool:
        """Whether several runs of the job may be in progress at once, or take over from one another.

        A job that runs after another one has one run at a time: what ends during a run causes one more run.
        """
        policy = self.policy
        return policy is not USUAL and policy.has_instances and not self.schedule.follows_runs

    def lacks(self, field: str) -> bool:
        """Return whether *field* holds a placeholder because the store cannot read its value."""
        return any(field_of(problem.column) == field for problem in self.unreadable)


DESCRIBED = (
    *(name.removesuffix("_json") for name in Description.__struct_fields__ if name not in ("policy", "unreadable")),
    *POLICY_FIELDS,
)
"""The fields of a description, by their public names."""


def field_of(column: str) -> str:
    """Return the field that replaces *column* in an edit. A new schedule also sets a new anchor."""
    return {"job_group": "group", "anchor": "schedule", "policy": "max_instances"}.get(column, column)


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
        return from_json_text(self.description.payload_json)

    @property
    def metadata(self) -> dict[str, Json]:
        """Notes of the job's owner. Each access returns a new copy."""
        metadata: dict[str, Json] = from_json_text(self.description.metadata_json)
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

    @property
    def max_instances(self) -> int:
        """How many runs of the job may be in progress at once, in all processes together."""
        return self.description.policy.max_instances

    @property
    def overlap(self) -> Overlap:
        """The policy for an occurrence that comes due while as many runs are in progress as may be."""
        return self.description.policy.overlap

    @property
    def misfire_grace(self) -> timedelta | None:
        """The lateness that is not a misfire. None means the scheduler's."""
        return self.description.policy.misfire_grace

    @property
    def catch_up_limit(self) -> int:
        """How many missed occurrences run with `misfire="run_all"`."""
        return self.description.policy.catch_up_limit

    @property
    def catch_up_window(self) -> timedelta | None:
        """How old an occurrence may be to run with `misfire="run_all"`. None means any age."""
        return self.description.policy.catch_up_window

    @property
    def max_runs(self) -> int | None:
        """After how many regular occurrences the job ends. None means never."""
        return self.description.policy.max_runs
