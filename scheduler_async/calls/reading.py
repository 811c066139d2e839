"""Calls that read: jobs, the run log, statistics, explanations, and the state of the scheduler. Nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec import structs

from scheduler_async.engine.engine import Engine
from scheduler_async.engine.health import Health, judge
from scheduler_async.engine.outlook import Outlook
from scheduler_async.errors import JobNotFoundError
from scheduler_async.jobs.answers import Explanation, Node, SchedulerState, Upcoming
from scheduler_async.jobs.enums import Outcome, Priority, Status, Trigger, check_choice
from scheduler_async.jobs.history import ChangeRow, NodeSpan
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import RunStats, stats_of
from scheduler_async.options import (
    check_count,
    check_filter,
    check_key,
    check_run_id,
    check_stretch,
    check_text,
    check_timeout,
)
from scheduler_async.stores.liveness import node_of, span_of
from scheduler_async.stores.messages import ChangeFilter, JobFilter, RunFilter
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import Micros, from_micros, parse_instant, span, to_micros
from scheduler_async.timekeeping.zones import as_tzinfo


class Reading:
    """The calls of a scheduler that read."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._store, self._ask = engine, engine.setting.store, engine.setting.ask
        self._outlook = Outlook(engine)

    async def get_job(self, id: str, *, namespace: str = "default") -> Job | None:
        """Return the job with this id, or None."""
        check_key(id, namespace)
        await self._engine.ready()
        job = await self._ask(self._store.get(namespace, id))
        return None if job is None else job.as_of(self._engine.setting.clock.micros())

    async def list_jobs(
        self,
        *,
        status: Status | str | None = None,
        namespace: str | None = None,
        user_id: str | None = None,
        handler: str | None = None,
        group: str | None = None,
        priority: Priority | str | None = None,
        metadata: Mapping[str, Json] | None = None,
        due_before: datetime | str | None = None,
        ended: bool | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Return the jobs that meet all conditions, by their next run; jobs without one come last.

        None is no condition. *status* is "idle", "queued", "running", "paused" or "disabled". *metadata* selects jobs
        whose metadata contain these keys and values. *due_before* selects jobs whose next run is before this moment,
        and leaves out jobs whose scheduled run is in progress, because their next run is known only when it ends.
        *ended=True* selects jobs whose schedule has no more occurrences, and *ended=False* all others. *limit* is the
        largest number of jobs to return. Jobs with the same next run are ordered by namespace and id.
        """
        wanted = check_filter(
            status=status,
            namespace=namespace,
            user_id=user_id,
            handler=handler,
            group=group,
            priority=priority,
            metadata=metadata,
            due_before=due_before,
            ended=ended,
            limit=limit,
        )
        await self._engine.ready()
        return await self._in_order(wanted)

    async def _in_order(self, wanted: JobFilter) -> list[Job]:
        """Return the *wanted* jobs by their next run. The store lists those with a run in progress last."""
        found = await self._ask(self._store.list_jobs(wanted))
        if wanted.limit is not None and len(found) == wanted.limit and wanted.may_be_running:
            in_progress = [
                job
                for status in ((Status.RUNNING, Status.QUEUED) if wanted.status is None else (wanted.status,))
                for job in await self._ask(self._store.list_jobs(structs.replace(wanted, status=status, limit=None)))
            ]
            if in_progress:  # the store may have counted some of them before jobs that run earlier
                more = structs.replace(wanted, limit=wanted.limit + len(in_progress))
                found = await self._ask(self._store.list_jobs(more))
            found = list({job.uid: job for job in (*found, *in_progress)}.values())
        now = self._engine.setting.clock.micros()
        jobs = [job.as_of(now) for job in found]
        if any(job.is_running for job in jobs):
            jobs.sort(key=_next_run_first)
        return jobs[: wanted.limit]

    async def run_log(
        self,
        id: str | None = None,
        *,
        namespace: str | None = None,
        limit: int | None = 50,
        outcome: Outcome | str | None = None,
        trigger: Trigger | str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        before: int | None = None,
    ) -> list[RunRow]:
        """Return what ran and what was skipped, newest first, of one job, of a namespace or of all jobs.

        None is no condition. *outcome* and *trigger* select rows with this outcome and this cause. *since* and
        *until* select a period, both ends included; the time of a row is its `claimed_at`. *limit* is the largest
        number of rows; None returns all of them. For the next page, pass the id of the last row as *before*.

        A search for an outcome or a trigger in all namespaces covers only the newest 100,000 rows, or the 100,000
        before *before*. It covers all rows if you pass *since*, *until* or *limit=None*. In a SQLite file, it finds
        failures and skips of any age.
        """
        check_key("any" if id is None else id, "default" if namespace is None else namespace)
        if before is not None:
            check_run_id(before, "before")
        first, last = check_stretch(since, until)
        wanted = RunFilter(
            namespace="default" if namespace is None and id is not None else namespace,
            id=id,
            outcome=None if outcome is None else check_choice(Outcome, outcome, "outcome"),
            trigger=None if trigger is None else check_choice(Trigger, trigger, "trigger"),
            since=first,
            until=last,
            before=before,
            limit=check_count(limit, "limit", smallest=0),
        )
        await self._engine.ready()
        return await self._ask(self._store.list_runs(wanted))

    async def get_run(self, run_id: int) -> RunRow | None:
        """Return the row of the run log with this id, with its traceback and its payload; None if there is none."""
        check_run_id(run_id)
        await self._engine.ready()
        rows = await self._ask(self._store.list_runs(RunFilter(run=run_id)))
        if not rows:
            return None
        details = await self._ask(self._store.details_of(run_id))
        return replace(rows[0], traceback=details.traceback, payload=details.payload)

    async def _namespace_of(self, run_id: int) -> str | None:
        """Return the namespace of a run, or None if there is no such run. It reads only the row of the run."""
        check_run_id(run_id)
        await self._engine.ready()
        rows = await self._ask(self._store.list_runs(RunFilter(run=run_id)))
        return rows[0].namespace if rows else None

    async def run_output(self, run_id: int) -> str | None:
        """Return what a run wrote with `Run.write`, or its command to standard output; None if it wrote nothing."""
        check_run_id(run_id)
        await self._engine.ready()
        return await self._ask(self._store.output_of(run_id))

    async def run_stats(self, id: str, since: datetime | str | None = None, *, namespace: str = "default") -> RunStats:
        """Return statistics of the runs of a job: of all rows in the run log, or of those *since* a moment."""
        check_key(id, namespace)
        wanted = RunFilter(
            namespace=namespace,
            id=id,
            since=None if since is None else to_micros(parse_instant(since, "value of since")),
        )
        await self._engine.ready()
        if await self._ask(self._store.get(namespace, id)) is None:
            raise JobNotFoundError(id, namespace)
        return stats_of(await self._ask(self._store.list_runs(wanted)))

    async def changes(
        self,
        id: str | None = None,
        *,
        namespace: str | None = None,
        since: datetime | str | None = None,
        limit: int | None = 50,
    ) -> list[ChangeRow]:
        """Return the changes of one job or of all jobs, newest first, each with its actor and its time.

        If a job was removed and added again under the same id, only the changes of the new job are returned. *since*
        selects changes from that moment on. *limit* is the largest number of rows; None returns all of them. Changes
        are kept for 90 days, and those of a removed job for `keep_removed`.
        """
        check_key("any" if id is None else id, "default" if namespace is None else namespace)
        wanted = ChangeFilter(
            namespace="default" if namespace is None and id is not None else namespace,
            id=id,
            since=None if since is None else to_micros(parse_instant(since, "value of since")),
            limit=check_count(limit, "limit", smallest=0),
        )
        await self._engine.ready()
        return await self._ask(self._store.list_changes(wanted))

    async def preview(self, window: str | timedelta = "60m", *, namespace: str | None = None) -> list[Upcoming]:
        """Return the runs that would start now or within *window*, in their order. Nothing changes.

        *namespace* selects the jobs of one namespace; None selects all jobs.
        """
        if namespace is not None:
            check_text(namespace, "namespace")
        return await self._outlook.preview(span(parse_interval(window)), namespace)

    async def explain(
        self,
        id: str,
        *,
        at: datetime | str | None = None,
        namespace: str = "default",
        zone: str | tzinfo = UTC,
    ) -> Explanation:
        """Return why a job is not running now, or that it would run; *zone* is the time zone of the reader.

        With *at*, an instant in the past or in the future, return what happened to the job then, or what will happen:
        it ran, it had no occurrence, it was paused, no scheduler was running, and so on. An instant with zero
        seconds means the whole minute.

        `str()` of the answer is a sentence for people, `reason` a `SkipReason` for programs, `run` the row of the run.
        """
        readers_zone = as_tzinfo(zone)
        moment = None if at is None else to_micros(parse_instant(at, "value of at"))
        job = await self.get_job(id, namespace=namespace)
        if job is None:
            raise JobNotFoundError(id, namespace)
        if moment is None:
            return await self._outlook.explain(job, readers_zone)
        return await self._outlook.explain_at(job, moment, readers_zone)

    def state(self) -> SchedulerState:
        """Return what the scheduler is doing now."""
        progress, session = self._engine.progress, self._engine.session
        return SchedulerState(
            status=progress.status,
            started_at=_moment(progress.started_at),
            tick_count=progress.tick_count,
            trigger_count=progress.trigger_count,
            last_tick_at=_moment(progress.last_tick_at),
            next_wake_at=_moment(progress.next_wake_at),
            running=session.runner.running,
            queued=session.runner.queued,
            problem=session.checkup.problem,
        )

    async def health(self, *, timeout: float | str | timedelta | None = 2.0) -> Health:
        """Return whether the scheduler works, for a load balancer. This is cheap, however many jobs there are.

        The store has *timeout* seconds to answer. A problem is part of the answer, and raises no error.
        """
        return judge(await self._engine.signs(check_timeout(timeout)))

    async def nodes(self) -> list[Node]:
        """Return the schedulers that share the store, oldest first; this one is among them while it runs."""
        await self._engine.ready()
        found = await self._ask(self._store.nodes())
        return [node_of(status, self._engine.session.node.id) for status in found]

    async def node_history(self, since: datetime | str | None = None, *, limit: int | None = 1000) -> list[NodeSpan]:
        """Return the schedulers that have shared the store, newest first, with the time of each and how it ended.

        *since* leaves out schedulers that ended before that moment. The history goes back 90 days. *limit* is the
        largest number of schedulers: it prefers those that are running, then those that ended last. None is no limit.
        """
        most = check_count(limit, "limit", smallest=0)
        earliest = None if since is None else to_micros(parse_instant(since, "value of since"))
        await self._engine.ready()
        now = self._engine.setting.clock.micros()
        return [span_of(life, now) for life in await self._ask(self._store.node_lives(earliest, most))]


def _next_run_first(job: Job) -> tuple[bool, datetime, str, str]:
    """Return what orders jobs: their next run, then their names, as in the store."""
    at = job.next_run_at
    return at is None, at or _ANY, job.namespace, job.id


_ANY = datetime.min.replace(tzinfo=UTC)


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
