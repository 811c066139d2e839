"""The outlook of jobs: whether one would start now, what runs soon, and what became of one. Nothing changes.

`rules.explaining` decides about now and the future, `rules.past` about any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from scheduler_async.engine.engine import Engine
from scheduler_async.jobs.answers import Explanation, Upcoming
from scheduler_async.jobs.enums import Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.rules import explaining, order, past
from scheduler_async.rules.groups import NO_GROUP, Rooms, group_key
from scheduler_async.rules.next_run import failing_schedule
from scheduler_async.rules.successors import predecessor_of
from scheduler_async.rules.terms import Room
from scheduler_async.schedules.next_runs import Occurrence, following
from scheduler_async.stores.liveness import may_live, span_of
from scheduler_async.stores.messages import ChangeFilter, JobFilter, NodeStatus, RunFilter
from scheduler_async.timekeeping.instants import LAST, Micros, from_micros, to_micros

# An explanation of the past looks at so many changes of the job. Triggers and cancellations do not count.
MOST_CHANGES = 1_000

T = TypeVar("T")


class Coming(NamedTuple):
    """The coming runs of a job, as far as its schedule computes them."""

    runs: list[Upcoming]
    problem: str | None = None
    """Why its schedule fails, if it does."""


class Outlook:
    """Would a job start now, and what runs soon?"""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ask = engine.setting.ask
        self._store, self._clock = engine.setting.store, engine.setting.clock
        self._limits, self._rules = engine.setting.limits, engine.setting.rules

    async def explain(self, job: Job, zone: tzinfo) -> Explanation:
        """Return why *job* is not running now; moments are shown on the clocks of *zone*."""
        room, now = await self._room_for(job), self._clock.micros()
        if await self._is_requested(job):
            job = job.with_state(replace(job.state, next_run_at=now))
        return await self._about(job, partial(explaining.explain, job, now, room, self._rules, zone))

    async def explain_at(self, job: Job, at: Micros, zone: tzinfo) -> Explanation:
        """Return what became of *job* at *at*, or what will."""
        now = self._clock.micros()
        room = await self._room_for(job)
        name = ChangeFilter(namespace=job.namespace, id=job.id, decisions_only=True, limit=MOST_CHANGES)
        changes = await self._ask(self._store.list_changes(name))
        try:
            waits_for, start, end = await self._about(job, partial(self._asked_at, job, now, room, changes, at))
        except Exception as error:  # a schedule that no longer computes
            return explaining.not_computed(job, error, at)
        evidence = past.Evidence(
            job=job,
            changes=changes,
            rows=await self._ask(self._store.runs_about(job.uid, start, end)),
            nodes=[span_of(life, now) for life in await self._ask(self._store.lives_about(start, end))],
            waits_for=waits_for,
            rules=self._rules,
        )
        return await self._about(job, partial(past.explain_at, evidence, at, now, zone))

    def _asked_at(
        self, job: Job, now: Micros, room: Room, changes: Sequence[ChangeRow], at: Micros
    ) -> tuple[SkipReason | None, Micros, Micros]:
        """Return what *job* waits for now, and the stretch of time in which the rows about *at* lie."""
        waits_for, _ = explaining.decide(job, now, room, self._rules)
        return waits_for, *past.stretch_of(job, changes, at)

    async def _about(self, job: Job, make: Callable[[], T]) -> T:
        """Return what *make* returns, which asks the schedule of *job*: in a thread if that may be slow."""
        return await self.in_thread(make, may_be_slow=True) if job.schedule.may_be_slow else make()

    async def preview(self, window: Micros, namespace: str | None = None) -> list[Upcoming]:
        """Return the runs that would start now or within *window*, in their order; None is every namespace."""
        await self._engine.ready()
        now = self._clock.micros()
        until = min(now + window, LAST - 1)
        jobs = [*await self._due_by(until, namespace), *await self._in_progress(namespace)]
        paused = await self._ask(self._store.list_jobs(JobFilter(status=Status.PAUSED, namespace=namespace)))
        jobs += [job for job in paused if (job.state.paused_until or until + 1) <= until]
        found: list[Upcoming] = []
        for job, coming in zip(jobs, await self.coming(jobs, until, explaining.MAX_UPCOMING), strict=True):
            found += coming.runs
            if coming.problem is not None:
                found.append(Upcoming(job=job, at=from_micros(now), retries_left=0, warnings=(coming.problem,)))
        return _in_order(found)

    async def _due_by(self, until: Micros, namespace: str | None) -> list[Job]:
        return await self._ask(self._store.list_jobs(JobFilter(due_before=until + 1, namespace=namespace)))

    async def _in_progress(self, namespace: str | None) -> list[Job]:
        """Return the jobs that have no next run yet, since one is in progress."""
        found: list[Job] = []
        for status in (Status.RUNNING, Status.QUEUED):
            found += await self._ask(self._store.list_jobs(JobFilter(status=status, namespace=namespace)))
        return [job for job in found if job.state.next_run_at is None]

    # ------------------------------------------------------------ the coming runs, as far as they are known

    async def coming(self, jobs: Sequence[Job], until: Micros, most: int) -> list[Coming]:
        """Return up to *most* coming runs of each of *jobs* until *until*. A bad schedule harms its own job alone."""
        if not jobs:
            return []
        now = self._clock.micros()

        def of(some: Sequence[Job]) -> list[Coming]:
            return [self._known(job, now, until, most, Room(has_handler=self._has_handler(job))) for job in some]

        slow = [job for job in jobs if job.schedule.may_be_slow]
        quick = [job for job in jobs if not job.schedule.may_be_slow]
        of_quick, *of_slow = await asyncio.gather(
            self.in_thread(partial(of, quick)),
            *(self.in_thread(partial(of, [job]), may_be_slow=True) for job in slow),
        )
        known = {False: iter(of_quick), True: chain.from_iterable(of_slow)}
        return [next(known[job.schedule.may_be_slow]) for job in jobs]

    async def occurrences(self, job: Job, most: int, zone: tzinfo) -> list[Occurrence]:
        """Return up to *most* coming runs of *job*, with notes on clocks and calendars for a reader in *zone*."""
        make = partial(self._with_notes, job, self._clock.micros(), most, zone)
        return await self.in_thread(make, may_be_slow=job.schedule.may_be_slow)

    def _with_notes(self, job: Job, now: Micros, most: int, zone: tzinfo) -> list[Occurrence]:
        schedule, runs = job.schedule, self._known(job, now, LAST - 1, most, Room()).runs
        try:
            first = following(schedule, from_micros(now), most, zone, from_micros(job.anchor)) if runs else []
        except Exception:  # a schedule that computes fewer
            first = []
        notes = {one.at: one for one in first}
        zoned = first[0].there.tzinfo if first else UTC
        found = []
        for run in runs:
            at = to_micros(run.at)
            regular = at if schedule.jitter is None else schedule.latest_micros(at, job.anchor)
            known = None if regular is None else notes.get(from_micros(regular))
            said = [*run.warnings, *([known.note] if known is not None and known.note is not None else [])]
            note = "; ".join(dict.fromkeys(said)) or None
            found.append(Occurrence(at=run.at, there=run.at.astimezone(zoned), here=run.at.astimezone(zone), note=note))
        return found

    def _known(self, job: Job, now: Micros, until: Micros, most: int, room: Room) -> Coming:
        runs: list[Upcoming] = []
        try:
            # Those before an error stay in the list.
            runs.extend(islice(explaining.upcoming(job, now, until, room, self._rules), most))
        except Exception as error:  # a schedule that no longer computes must not hide other jobs
            return Coming(runs, failing_schedule(error))
        return Coming(runs)

    async def in_thread(self, make: Callable[[], T], *, may_be_slow: bool = False) -> T:
        """Return what *make* returns. It is called in a thread: thousands of occurrences would block the event loop.

        If it asks schedules that may be slow, it has limited time.
        """
        if may_be_slow:
            return await self._engine.session.deciding.made(make)
        return await self._ask(asyncio.to_thread(make))

    # ------------------------------------------------------------ what is known of the scheduler

    async def schedulers(self) -> list[NodeStatus]:
        """Return the schedulers on the store that are alive, this one included."""
        return [status for status in await self._ask(self._store.nodes()) if may_live(status)]

    async def _room_for(self, job: Job) -> Room:
        limits, session = self._limits, self._engine.session
        groups = Rooms(limits.group_limit, limits.group_limits, await self._running_by_group())
        free_in_group = groups.of(group_key(job.namespace, job.group) or NO_GROUP)
        most, active = limits.max_concurrent, len(session.runner)
        queued = max(active - (most or 0), 0)
        is_running, is_here = self._engine.progress.status != "stopped", self._has_handler(job)
        others = [] if is_running and is_here else await self._other_schedulers()
        return Room(
            has_scheduler=is_running or bool(others),
            has_handler=(is_running and is_here)
            or any(status.handlers is None or job.handler in status.handlers for status in others),
            stopping=self._engine.progress.status == "stopping",
            free_slots=None if most is None else max(most - active, 0),
            free_in_group=None if free_in_group == float("inf") else int(free_in_group),
            has_queue=bool(limits.queue_size),
            free_in_queue=max((limits.queue_size or 0) - queued, 0),
            clock_is_believed=session.clock_watch.is_believed,
            has_predecessor=await self._has_predecessor(job),
            rate_until=await self._rate_until(job),
        )

    async def _rate_until(self, job: Job) -> Micros | None:
        """Return when the rates of its group allow the next start; None if they allow one now."""
        now = self._clock.micros()
        moments = [now]
        for key, rate in self._limits.group_rates.of(group_key(job.namespace, job.group)):
            moments.append(await self._ask(self._store.rate_free_at(key, rate, now)))
        return max(moments) if max(moments) > now else None

    async def _is_requested(self, job: Job) -> bool:
        """Return whether a triggered run of a job that has no time of its own waits for a scheduler to take it up."""
        state = job.state
        if state.next_run_at is not None or state.phase is not Phase.ACTIVE or state.activity is not Status.IDLE:
            return False
        newest = RunFilter(namespace=job.namespace, id=job.id, trigger=Trigger.MANUAL, limit=1)
        return any(row.outcome is None and row.node is None for row in await self._ask(self._store.list_runs(newest)))

    async def _has_predecessor(self, job: Job) -> bool:
        name = predecessor_of(job)
        return name is None or await self._ask(self._store.get(*name)) is not None

    async def _running_by_group(self) -> dict[str, int]:
        return await self._ask(self._store.running_by_group()) if self._limits.limits_groups else {}

    async def _other_schedulers(self) -> list[NodeStatus]:
        """Return the other schedulers that are alive on the store."""
        own = self._engine.session.node.id
        return [status for status in await self._ask(self._store.nodes()) if status.node.id != own and may_live(status)]

    def _has_handler(self, job: Job) -> bool:
        return self._engine.handlers.find(job.handler) is not None


def _in_order(rows: Iterable[Upcoming]) -> list[Upcoming]:
    return sorted(rows, key=lambda row: (row.at, *order.order(row.job)))
