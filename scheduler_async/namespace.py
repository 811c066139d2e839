"""A fenced view of the scheduler: one tenant's jobs, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler_async.jobs.enums import OnConflict
from scheduler_async.jobs.job import Job
from scheduler_async.running.signature import Handler
from scheduler_async.schedules.base import Schedule

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler


class Namespace:
    """The jobs of one namespace. Two namespaces may use the same ids without knowing of each other."""

    __slots__ = ("_name", "_scheduler")

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name

    @property
    def name(self) -> str:
        """The name of the namespace. It cannot be changed: a view never leaves its namespace."""
        return self._name

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    async def schedule(
        self, schedule: Schedule, *, handler: str | Handler, id: str | None = None, **fields: Any
    ) -> Job:
        """Add a job, or change the one that has this id; it takes what `Scheduler.add_job` takes.

        A job that was cancelled is enabled again. One whose schedule does not change keeps its cadence.
        """
        if "namespace" in fields or "on_conflict" in fields:
            raise TypeError(
                "A namespace schedules its own jobs, and replaces them: leave namespace and on_conflict out."
            )
        return await self._scheduler.add_job(
            schedule, handler=handler, id=id, namespace=self.name, on_conflict=OnConflict.REPLACE, **fields
        )

    async def cancel(self, id: str) -> Job:
        """Disable a job. It stays listed, and `schedule` enables it again."""
        return await self._scheduler.disable_job(id, namespace=self.name, reason="it was cancelled")

    async def get(self, id: str) -> Job | None:
        """The job with this id, or None."""
        return await self._scheduler.get_job(id, namespace=self.name)

    async def list(self, **filters: Any) -> list[Job]:
        """Its jobs, by their next run; it takes what `Scheduler.list_jobs` takes."""
        if "namespace" in filters:
            raise TypeError("A namespace lists its own jobs: leave namespace out.")
        return await self._scheduler.list_jobs(namespace=self.name, **filters)
