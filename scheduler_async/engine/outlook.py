"""The outlook of jobs: whether one would start now, and what runs soon. `rules.explaining` decides; nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

from scheduler_async.engine.engine import Engine
from scheduler_async.jobs.answers import Explanation, Upcoming
from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.job import Job
from scheduler_async.rules import explaining, order
from scheduler_async.rules.groups import NO_GROUP, Rooms, group_key
from scheduler_async.rules.terms import Room
from scheduler_async.stores.messages import JobFilter
from scheduler_async.timekeeping.instants import LAST, Micros, from_micros


class Outlook:
    """Would a job start now, and what runs soon?"""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ask = engine.setting.ask
        self._store, self._clock = engine.setting.store, engine.setting.clock
        self._limits, self._rules = engine.setting.limits, engine.setting.rules

    async def explain(self, job: Job, zone: tzinfo) -> Explanation:
        """Return why *job* is not running now; moments are shown on the clocks of *zone*."""
        room = await self._room_for(job)
        return explaining.explain(job, self._clock.micros(), room, self._rules, zone)

    async def preview(self, window: Micros) -> list[Upcoming]:
        """Return the runs that would start now or within *window*, in their order."""
        await self._engine.ready()
        now = self._clock.micros()
        until = min(now + window, LAST - 1)
        jobs = [*await self._due_by(until), *await self._in_progress()]
        return _in_order(row for job in jobs for row in self._upcoming(job, now, until))

    async def _due_by(self, until: Micros) -> list[Job]:
        return await self._ask(self._store.list_jobs(JobFilter(due_before=until + 1)))

    async def _in_progress(self) -> list[Job]:
        """Return the jobs that have no next run yet, since one is in progress."""
        found: list[Job] = []
        for status in (Status.RUNNING, Status.QUEUED):
            found += await self._ask(self._store.list_jobs(JobFilter(status=status)))
        return [job for job in found if job.state.next_run_at is None]

    def _upcoming(self, job: Job, now: Micros, until: Micros) -> list[Upcoming]:
        room = Room(has_handler=self._has_handler(job))
        try:
            return list(explaining.upcoming(job, now, until, room, self._rules))
        except Exception as error:  # a schedule that no longer computes must not hide other jobs
            return [Upcoming(job=job, at=from_micros(now), retries_left=0, warnings=(f"its schedule fails: {error}",))]

    async def _room_for(self, job: Job) -> Room:
        limits, session = self._limits, self._engine.session
        groups = Rooms(limits.group_limit, limits.group_limits, await self._running_by_group())
        free_in_group = groups.of(group_key(job.namespace, job.group) or NO_GROUP)
        most, active = limits.max_concurrent, len(session.runner)
        queued = max(active - (most or 0), 0)
        return Room(
            has_handler=self._has_handler(job),
            stopping=self._engine.progress.status == "stopping",
            free_slots=None if most is None else max(most - active, 0),
            free_in_group=None if free_in_group == float("inf") else int(free_in_group),
            has_queue=bool(limits.queue_size),
            free_in_queue=max((limits.queue_size or 0) - queued, 0),
            clock_is_believed=session.clock_watch.is_believed,
        )

    async def _running_by_group(self) -> dict[str, int]:
        return await self._ask(self._store.running_by_group()) if self._limits.limits_groups else {}

    def _has_handler(self, job: Job) -> bool:
        return self._engine.handlers.find(job.handler) is not None


def _in_order(rows: Iterable[Upcoming]) -> list[Upcoming]:
    return sorted(rows, key=lambda row: (row.at, *order.order(row.job)))
