"""A fenced view of the scheduler: the jobs and runs of one tenant, within its limits, and no others.

Every job method of `Scheduler` is here under the same name, with the same parameters but `namespace`; a test compares
them. A method either passes its own namespace on, or looks at the namespace of a run before it does anything with it.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Unpack

from scheduler_async.engine.editor import Editor
from scheduler_async.errors import BackfillNotFoundError, RunNotFoundError
from scheduler_async.jobs.answers import Explanation, Upcoming
from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.enums import Misfire, OnConflict, OnInterrupt, Outcome, Overlap, Priority, Status, Trigger
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.policies import CATCH_UP_LIMIT
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.jobs.statistics import RunStats
from scheduler_async.options import JobChanges, JobFilters, JobOptions, check_count, check_key, check_specs
from scheduler_async.rules.quotas import Quota
from scheduler_async.running.signature import Handler
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.next_runs import Occurrence

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler


class Namespace:
    """The jobs of one namespace, as `Scheduler.namespace` returns it. Two namespaces may use the same ids.

    >>> import asyncio
    >>> from scheduler_async import Every, Scheduler
    >>> async def main() -> None:
    ...     scheduler = Scheduler(":memory:")
    ...     tenant = scheduler.namespace("acme", handlers=["sync"], max_jobs=100)
    ...     await tenant.schedule(Every("1h"), handler="sync", id="sync", payload={"region": "eu"})
    ...     print([job.id for job in await tenant.list_jobs()])
    ...     await scheduler.stop()
    >>> asyncio.run(main())
    ['sync']

    It has the job methods of the scheduler, with the same arguments except *namespace*. It finds no job and no run of
    another namespace: they are unknown to it. `schedule`, `cancel`, `get` and `list` are short forms for extensions
    that state at each start which jobs they want.
    """

    __slots__ = ("_editor", "_quota", "_scheduler", "_user_id")

    def __init__(self, scheduler: Scheduler, editor: Editor, quota: Quota, user_id: str | None) -> None:
        self._scheduler, self._editor = scheduler, editor
        self._quota, self._user_id = quota, user_id

    @property
    def name(self) -> str:
        """The name of the namespace. It is read-only: a view never leaves its namespace."""
        return self._quota.namespace

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    # ============================================================ short forms

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
        return await self.add_job(schedule, handler=handler, id=id, on_conflict=OnConflict.REPLACE, **options)

    async def cancel(self, id: str) -> Job:
        """Disable a job. It stays listed, and `schedule` enables it again."""
        return await self.disable_job(id, reason="it was cancelled")

    async def get(self, id: str) -> Job | None:
        """Return the job with this id, or None."""
        return await self.get_job(id)

    async def list(self, **filters: Unpack[JobFilters]) -> list[Job]:
        """Return the jobs that meet all conditions, by their next run. The filters are those of `list_jobs`."""
        if "namespace" in filters:
            raise TypeError("Namespace.list() takes no namespace: it lists the jobs of its own. Leave it out.")
        return await self.list_jobs(**filters)

    # ============================================================ adding and editing

    async def add_job(
        self,
        schedule: Schedule,
        *,
        handler: str | Handler,
        id: str | None = None,
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
    ) -> Job:
        """Add a job to this namespace, and return it. `Scheduler.add_job` explains the arguments.

        *user_id* defaults to that of the view. Raise `QuotaError` if a limit of the view does not allow the job.
        """
        spec = JobSpec(
            schedule,
            handler=handler,
            id=id,
            namespace=self.name,
            user_id=self._user_id if user_id is None else user_id,
            name=name,
            payload=payload,
            metadata=metadata,
            priority=priority,
            group=group,
            misfire=misfire,
            retry=retry,
            timeout=timeout,
            on_interrupt=on_interrupt,
            max_instances=max_instances,
            overlap=overlap,
            misfire_grace=misfire_grace,
            catch_up_limit=catch_up_limit,
            catch_up_window=catch_up_window,
            max_runs=max_runs,
            enabled=enabled,
            on_conflict=on_conflict,
        )
        (job,) = await self._editor.add([spec], self._quota)
        return job

    async def add_jobs(self, specs: Iterable[JobSpec]) -> builtins.list[Job]:
        """Add many jobs in one transaction: all of them, or none if one cannot be added.

        Every job goes into this namespace, whatever its spec says. Raise `QuotaError` if they exceed a limit of the
        view.
        """
        own = [spec.in_namespace(self.name, self._user_id) for spec in check_specs(specs)]
        return await self._editor.add(own, self._quota)

    async def update_job(self, id: str, *, revision: int | None = None, **changes: Unpack[JobChanges]) -> Job:
        """Change only the fields that you pass, and return the changed job. See `Scheduler.update_job`.

        Raise `QuotaError` if the view does not allow the handler of the job, or its new schedule, payload, metadata or
        cursor.
        """
        if "namespace" in changes:
            raise TypeError("Namespace.update_job() takes no namespace: it changes jobs of its own. Leave it out.")
        check_key(id, self.name)
        return await self._editor.update(self.name, id, changes, self._quota, check_count(revision, "revision"))

    async def remove_job(self, id: str, *, revision: int | None = None) -> Job:
        """Remove a job, and return it as it was. See `Scheduler.remove_job`."""
        return await self._scheduler.remove_job(id, namespace=self.name, revision=revision)

    async def pause_job(
        self, id: str, *, reason: str | None = None, until: str | datetime | timedelta | None = None
    ) -> Job:
        """Keep a job from starting until it is resumed, or *until* a time. A run in progress continues.

        With *until*, the job resumes by itself: then raise `QuotaError` if the view does not allow its handler.
        """
        if until is not None:
            await self._check_handler(id)
        return await self._scheduler.pause_job(id, namespace=self.name, reason=reason, until=until)

    async def resume_job(self, id: str) -> Job:
        """Let a paused or disabled job start again, from now on. See `Scheduler.resume_job`.

        Raise `QuotaError` if the view does not allow the handler of the job.
        """
        await self._check_handler(id)
        return await self._scheduler.resume_job(id, namespace=self.name)

    async def disable_job(self, id: str, *, reason: str = "it was disabled by hand") -> Job:
        """Take a job out of scheduling until it is resumed. *reason* is kept with it. A run in progress continues."""
        return await self._scheduler.disable_job(id, namespace=self.name, reason=reason)

    # ============================================================ running

    async def trigger_job(self, id: str, *, payload: Json = None, anywhere: bool = False) -> int:
        """Run a job now, whatever its schedule, and return the id of the run. See `Scheduler.trigger_job`.

        Raise `QuotaError` if the view does not allow the handler of the job, or *payload*.
        """
        await self._check_run(id, payload)
        return await self._scheduler.trigger_job(id, namespace=self.name, payload=payload, anywhere=anywhere)

    async def run_job(self, id: str, *, payload: Json = None, timeout: float | str | timedelta | None = None) -> RunRow:
        """Run a job now, wait until it has ended, and return its row of the run log. See `Scheduler.run_job`.

        Raise `QuotaError` if the view does not allow the handler of the job, or *payload*.
        """
        await self._check_run(id, payload)
        return await self._scheduler.run_job(id, namespace=self.name, payload=payload, timeout=timeout)

    async def cancel_run(self, run_id: int, *, reason: str | None = None) -> None:
        """Cancel a run of any process on the store. See `Scheduler.cancel_run`."""
        await self._check_own(run_id)
        await self._scheduler.cancel_run(run_id, reason=reason)

    async def wait_for_run(self, run_id: int, timeout: float | str | timedelta | None = None) -> RunRow:
        """Wait until a run has ended and is recorded, and return its row. See `Scheduler.wait_for_run`."""
        await self._check_own(run_id)
        return await self._scheduler.wait_for_run(run_id, timeout)

    async def backfill_job(
        self,
        id: str,
        start: datetime | str,
        end: datetime | str,
        *,
        max_concurrent: int = 1,
        again: bool = False,
        payload: Json = None,
    ) -> Backfill:
        """Run the regular occurrences of a job from *start*, before *end*. See `Scheduler.backfill_job`.

        Raise `QuotaError` if the view does not allow the handler of the job, or *payload*.
        """
        await self._check_run(id, payload)
        return await self._scheduler.backfill_job(
            id, start, end, namespace=self.name, max_concurrent=max_concurrent, again=again, payload=payload
        )

    async def get_backfill(self, number: int) -> Backfill:
        """Return a backfill of this namespace as it is now. See `Scheduler.get_backfill`."""
        backfill = await self._scheduler.get_backfill(number)
        if backfill.namespace != self.name:
            raise BackfillNotFoundError(number)
        return backfill

    async def cancel_backfill(self, number: int) -> Backfill:
        """Cancel a backfill of this namespace, and return it. See `Scheduler.cancel_backfill`."""
        await self.get_backfill(number)
        return await self._scheduler.cancel_backfill(number)

    # ============================================================ reading

    async def get_job(self, id: str) -> Job | None:
        """Return the job with this id, or None."""
        return await self._scheduler.get_job(id, namespace=self.name)

    async def list_jobs(
        self,
        *,
        status: Status | str | None = None,
        user_id: str | None = None,
        handler: str | None = None,
        group: str | None = None,
        priority: Priority | str | None = None,
        metadata: Mapping[str, Json] | None = None,
        due_before: datetime | str | None = None,
        ended: bool | None = None,
        limit: int | None = None,
    ) -> builtins.list[Job]:
        """Return the jobs that meet all conditions, by their next run. `Scheduler.list_jobs` explains the arguments."""
        return await self._scheduler.list_jobs(
            status=status,
            namespace=self.name,
            user_id=user_id,
            handler=handler,
            group=group,
            priority=priority,
            metadata=metadata,
            due_before=due_before,
            ended=ended,
            limit=limit,
        )

    async def changes(
        self, id: str | None = None, *, since: datetime | str | None = None, limit: int | None = 50
    ) -> builtins.list[ChangeRow]:
        """Return the changes of jobs of this namespace, newest first. See `Scheduler.changes`."""
        return await self._scheduler.changes(id, namespace=self.name, since=since, limit=limit)

    async def run_log(
        self,
        id: str | None = None,
        *,
        limit: int | None = 50,
        outcome: Outcome | str | None = None,
        trigger: Trigger | str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        before: int | None = None,
    ) -> builtins.list[RunRow]:
        """Return what ran and what was skipped, newest first, of one job or of all. See `Scheduler.run_log`."""
        return await self._scheduler.run_log(
            id,
            namespace=self.name,
            outcome=outcome,
            trigger=trigger,
            since=since,
            until=until,
            before=before,
            limit=limit,
        )

    async def get_run(self, run_id: int) -> RunRow | None:
        """Return the row of the run log with this id, or None."""
        row = await self._scheduler.get_run(run_id)
        return row if row is not None and row.namespace == self.name else None

    async def run_output(self, run_id: int) -> str | None:
        """Return what a run wrote with `Run.write`, or its command to standard output; None if it wrote nothing."""
        return await self._scheduler.run_output(run_id) if await self._is_own(run_id) else None

    async def run_stats(self, id: str, since: datetime | str | None = None) -> RunStats:
        """Return statistics of the runs of a job, over all rows that are kept or those *since* a moment."""
        return await self._scheduler.run_stats(id, since, namespace=self.name)

    async def preview(self, window: str | timedelta = "60m") -> builtins.list[Upcoming]:
        """Return the runs of this namespace that would start now or within *window*, in their order."""
        return await self._scheduler.preview(window, namespace=self.name)

    async def explain(self, id: str, *, at: datetime | str | None = None, zone: str | tzinfo = UTC) -> Explanation:
        """Return why a job is not running now, or what happened to it *at* a time. See `Scheduler.explain`."""
        return await self._scheduler.explain(id, at=at, namespace=self.name, zone=zone)

    async def upcoming(self, id: str, *, n: int = 10, zone: str | tzinfo = UTC) -> builtins.list[Occurrence]:
        """Return the next *n* runs of a job, as far as they are known. See `Scheduler.upcoming`."""
        return await self._scheduler.upcoming(id, namespace=self.name, n=n, zone=zone)

    # ============================================================ the fence

    async def _is_own(self, run_id: int) -> bool:
        """Return whether a run is of this namespace. The namespace of a run never changes."""
        return await self._scheduler._namespace_of(run_id) == self.name

    async def _check_own(self, run_id: int) -> None:
        """Raise `RunNotFoundError` if a run is not of this namespace."""
        if not await self._is_own(run_id):
            raise RunNotFoundError(run_id)

    async def _check_run(self, id: str, payload: Json) -> None:
        """Raise `QuotaError` unless the tenant may run a job with *payload*. None is the payload of the job."""
        if payload is not None:
            self._quota.check_payload(to_json_text(payload, "payload"))
        await self._check_handler(id)

    async def _check_handler(self, id: str) -> None:
        """Raise `QuotaError` unless the tenant may use the handler of a job."""
        if self._quota.handlers is not None and (job := await self.get_job(id)) is not None:
            self._quota.check_handler(job.handler)
