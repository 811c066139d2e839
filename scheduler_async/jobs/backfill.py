"""A backfill: past occurrences of a job that run once more, or for the first time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from scheduler_async.jobs.json_forms import Form, form_of


class BackfillState(StrEnum):
    """Whether a backfill continues, has ended, or was cancelled."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """A backfill, as it was when it was read. `Scheduler.get_backfill` reads it again."""

    number: int
    total: int
    """How many occurrences it runs. Those that were left out do not count."""
    done: int
    """How many of them have succeeded."""
    failed: int
    """How many of them have failed, were cancelled, or declined to work."""
    state: BackfillState
    job_id: str
    namespace: str

    @property
    def left(self) -> int:
        """How many of its occurrences have not ended."""
        return self.total - self.done - self.failed

    def __str__(self) -> str:
        return f"Backfill {self.number} of {self.job_id}: {self.done} of {self.total} done, {self.failed} failed"

    def to_json(self) -> Form:
        """Return the backfill as JSON knows it."""
        return form_of(self, (field.name for field in fields(self)))
