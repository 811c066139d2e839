"""A fenced view of the scheduler: the jobs of one tenant, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from scheduler_async.jobs.enums import OnConflict
from scheduler_async.jobs.job import Job
from scheduler_async.options import JobFilters, JobOptions
from scheduler_async.running.signature import Handler
from scheduler_async.schedules.base import Schedule

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler


class Namespace:
    """The jobs of one namespace, as `Scheduler.namespace` returns it. Two namespaces may use the same ids.

    >>> import asyncio
    >>> from scheduler_async import Every, Scheduler
    >>> async def main() -> None:
    ...     scheduler = Scheduler(":memory:")
    ...     tenant = scheduler.namespace("acme")
    ...     await tenant.schedule(Every("1h"), handler="sync", id="sync", payload={"region": "eu"})
    ...     print([job.id for job in await tenant.list()])
    ...     await scheduler.stop()
    >>> asyncio.run(main())
    ['sync']
    """

    __slots__ = ("_name", "_scheduler")

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name

    @property
    def name(self) -> str:
        """The name of the namespace. It is read-only: a view never leaves its namespace."""
        return self._name

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    async def schedule(
        self, schedule: Schedule, *, handler: str | Handler, id: str | None = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Add a job, or change the one with this id. The options are those of `Scheduler.add_job`.

        A cancelled job is enabled again. A job whose schedule does not change keeps its cadence.
        """
        if "namespace" in options or "on_conflict" in options:
            raise TypeError(
                "Namespace.schedule() takes no namespace and no on_conflict: it adds jobs to its own namespace, and "
                "replaces those that exist. Leave both out."
            )
        return await self._scheduler.add_job(
            schedule, handler=handler, id=id, namespace=self.name, on_conflict=OnConflict.REPLACE, **options
        )

    async def cancel(self, id: str) -> Job:
        """Disable a job. It stays listed, and `schedule` enables it again."""
        return await self._scheduler.disable_job(id, namespace=self.name, reason="it was cancelled")

    async def get(self, id: str) -> Job | None:
        """Return the job with this id, or None."""
        return await self._scheduler.get_job(id, namespace=self.name)

    async def list(self, **filters: Unpack[JobFilters]) -> list[Job]:
        """Return the jobs that meet all conditions, by their next run. The filters are those of `list_jobs`."""
        if "namespace" in filters:
            raise TypeError("Namespace.list() takes no namespace: it lists the jobs of its own. Leave it out.")
        return await self._scheduler.list_jobs(namespace=self.name, **filters)
