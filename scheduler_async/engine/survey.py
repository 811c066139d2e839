"""A survey of a store for operators: pages of jobs, runs and changes, counts, and what needs attention.

Every question is bounded, so that a large store answers about as fast as a small one. Nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial

from scheduler_async.engine.engine import Engine
from scheduler_async.engine.outlook import Outlook
from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.enums import Outcome, Status
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import Concern
from scheduler_async.jobs.run import RunRow
from scheduler_async.rules import concerns
from scheduler_async.rules.forecasts import Forecast, forecast
from scheduler_async.schedules.next_runs import Occurrence
from scheduler_async.shielding import side_by_side
from scheduler_async.stores.liveness import node_of, span_of
from scheduler_async.stores.searches import (
    FAILING,
    LATE,
    WINDOW,
    ChangeSearch,
    Found,
    JobCounts,
    JobSearch,
    RunSearch,
    Tallied,
    TallySearch,
)
from scheduler_async.timekeeping.instants import HOUR, Micros, from_micros, to_micros

# So many jobs are looked at for each kind of concern.
MOST_LOOKED_AT = 50
# So many of the longest runs are compared with the runs before.
MOST_STUCK = 20
# So many of the newest rows of skipped occurrences are looked at.
MOST_SKIPS = 100
# The usual duration of a job is that of so many of its last runs.
USUAL_RUNS = 60


class Survey:
    """What does the store hold, and what needs attention?"""

    def __init__(self, engine: Engine, outlook: Outlook) -> None:
        self._engine, self._outlook = engine, outlook
        self._store, self._clock = engine.setting.store, engine.setting.clock
        self._rules, self._ask = engine.setting.rules, engine.setting.ask

    @property
    def now(self) -> Micros:
        """The time by the clock of the scheduler."""
        return self._clock.micros()

    async def jobs(self, wanted: JobSearch) -> Found[Job]:
        """Return a page of jobs, as they are now."""
        await self._engine.ready()
        found = await self._ask(self._store.jobs_page(wanted))
        return replace(found, items=[job.as_of(wanted.now) for job in found.items])

    async def runs(self, wanted: RunSearch) -> Found[RunRow]:
        """Return a page of the run log."""
        await self._engine.ready()
        return await self._ask(self._store.runs_page(wanted))

    async def changes(self, wanted: ChangeSearch) -> Found[ChangeRow]:
        """Return a page of changes of jobs."""
        await self._engine.ready()
        return await self._ask(self._store.changes_page(wanted))

    async def counts(self, namespaces: frozenset[str] | None) -> JobCounts:
        """Return how many jobs there are, by what they do."""
        await self._engine.ready()
        return await self._ask(self._store.count_jobs(namespaces, self.now))

    async def recent_runs(self, names: Sequence[tuple[str, str]], n: int) -> list[tuple[RunRow, ...]]:
        """Return the last *n* rows of each job, oldest first."""
        await self._engine.ready()
        return [tuple(rows) for rows in await self._ask(self._store.recent_runs(names, n))]

    async def tally(self, wanted: TallySearch) -> Found[Tallied]:
        """Return a page of the numbers of runs that ended."""
        await self._engine.ready()
        return await self._ask(self._store.tally(wanted))

    async def mark(self, namespaces: frozenset[str] | None) -> str:
        """Return a text that changes when a run or a job changes."""
        await self._engine.ready()
        return await self._ask(self._store.mark(namespaces, self.now))

    async def job(self, namespace: str, id: str) -> Job | None:
        """Return the job with this name."""
        await self._engine.ready()
        return await self._ask(self._store.get(namespace, id))

    async def upcoming(self, job: Job, n: int, zone: tzinfo) -> list[Occurrence]:
        """Return the next *n* runs of *job*, with notes for a reader in *zone*."""
        return await self._outlook.occurrences(job, n, zone)

    async def coming_runs(self, jobs: Sequence[Job], until: Micros, n: int) -> list[tuple[datetime, ...]]:
        """Return when each of *jobs* runs next, up to *n* times until *until*."""
        return [tuple(run.at for run in of_job.runs) for of_job in await self._outlook.coming(jobs, until, n)]

    async def planned(self, until: Micros, namespaces: frozenset[str] | None, most: int) -> Forecast:
        """Return how many occurrences lie ahead in each hour until *until*, by looking at *most* jobs."""
        await self._engine.ready()
        now = self.now
        jobs, weight = await self._ask(self._store.sample_jobs(namespaces, now, most))
        return await self._outlook.in_thread(
            partial(forecast, jobs, weight, now, until), may_be_slow=any(job.schedule.may_be_slow for job in jobs)
        )

    # ------------------------------------------------------------ attention

    async def attention(self, namespaces: frozenset[str] | None, limit: int) -> list[Concern]:
        """Return what needs attention, the most urgent first."""
        await self._engine.ready()
        now = self.now
        async with side_by_side() as tasks:
            about_nodes = tasks.create_task(self._about_nodes(namespaces, from_micros(now)))
            about_jobs = tasks.create_task(self._about_jobs(namespaces, now))
        return [*about_nodes.result(), *about_jobs.result()][:limit]

    async def _about_jobs(self, namespaces: frozenset[str] | None, now: Micros) -> list[Concern]:
        async with side_by_side() as tasks:
            left_out = tasks.create_task(self._left_out(namespaces, now))
            asked = {
                status: tasks.create_task(
                    self.jobs(JobSearch(status=status, namespaces=namespaces, now=now, limit=MOST_LOOKED_AT))
                )
                for status in (Status.RUNNING.value, FAILING, LATE)
            }
        jobs = {status: task.result().items for status, task in asked.items()}
        found: dict[str, Concern] = {}
        for job in (job for of_status in jobs.values() for job in of_status):
            if job.unreadable is not None:
                found[job.key] = concerns.unreadable(job)
        for job in jobs[FAILING]:  # those that failures have disabled, too
            if job.unreadable is None and concerns.is_disabled_by_failures(job):
                found[job.key] = concerns.disabled(job)
        told = [*found.values()]
        told += await self._stuck(jobs[Status.RUNNING], from_micros(now))
        told += [concerns.failing(job, self._rules) for job in jobs[FAILING] if job.enabled and not job.unreadable]
        told += await self._about_late(jobs[LATE], now)
        told += left_out.result()
        return told

    async def _stuck(self, jobs: Sequence[Job], now: datetime) -> list[Concern]:
        """Return the concerns about runs of *jobs* that take much longer than usual."""
        began = [(job.state.last_run_at or 0, job.namespace, job.id) for job in jobs]
        latest = to_micros(now - concerns.STUCK_AT_LEAST)
        names = [(namespace, name) for at, namespace, name in sorted(began) if at <= latest][:MOST_STUCK]
        rows = await self.recent_runs(names, USUAL_RUNS)
        stuck = [concerns.stuck(run, before, now) for before in rows for run in before if run.outcome is None]
        return [one for one in stuck if one is not None]

    async def _about_late(self, jobs: Sequence[Job], now: Micros) -> list[Concern]:
        """Return the concerns about *jobs* that are due and not claimed."""
        overdue = [
            job
            for job in jobs
            if job.unreadable is None and (job.state.next_run_at or now) <= now - concerns.LATE_AFTER
        ]
        if not overdue:
            return []
        known = await self._handlers()
        told: dict[str, Concern] = {}
        for job in overdue:
            if known is not None and job.handler not in known:
                told.setdefault(job.handler, concerns.no_handler(job))
            else:
                told[f"/{job.key}"] = concerns.late(job, from_micros(now))
        return [*told.values()]

    async def _handlers(self) -> frozenset[str] | None:
        """Return the handlers that any scheduler has. None means any handler, or that no scheduler runs."""
        statuses = await self._outlook.schedulers()
        if not statuses or any(status.handlers is None for status in statuses):
            return None
        return frozenset(name for status in statuses for name in status.handlers or ())

    async def _left_out(self, namespaces: frozenset[str] | None, now: Micros) -> list[Concern]:
        """Return the concerns about jobs whose last occurrences were left out."""
        wanted = RunSearch(outcome=Outcome.SKIPPED, namespaces=namespaces, since=now - WINDOW, limit=MOST_SKIPS)
        skipped = (await self.runs(wanted)).items
        names = list(dict.fromkeys((row.namespace, row.job_id) for row in skipped))[:MOST_LOOKED_AT]
        rows = await self.recent_runs(names, concerns.MANY_LEFT_OUT)
        return [one for of_job in rows if (one := concerns.left_out(of_job)) is not None]

    async def _about_nodes(self, namespaces: frozenset[str] | None, now: datetime) -> list[Concern]:
        """Return the concerns about nodes. A tenant learns only whether a scheduler runs."""
        statuses = await self._outlook.schedulers()
        found = [] if statuses else [concerns.no_scheduler()]
        block = self._engine.session.launcher.last_block
        is_recent = block is not None and block[0] > to_micros(now) - HOUR
        if (
            block is not None
            and is_recent
            and (namespaces is None or (block[1] is not None and block[1].namespace in namespaces))
        ):
            found.append(concerns.loop_blocked(*block))
        if namespaces is not None:
            return found
        own = self._engine.session.node.id
        nodes: list[Node] = [node_of(status, own) for status in statuses]
        skewed = [concerns.clock_skew(node) for node in nodes]
        lives = await self._ask(self._store.node_lives(self.now - 24 * HOUR, MOST_LOOKED_AT))
        spans = [span_of(life, self.now) for life in lives]
        found += [concerns.node_lost(span) for span in spans if concerns.is_lost(span, now)]
        return found + [one for one in skewed if one is not None]
