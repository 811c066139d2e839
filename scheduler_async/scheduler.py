"""The public API. The `engine` does the work, `rules` decide, and `options` checks arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from scheduler_async import services
from scheduler_async.engine import manual_run
from scheduler_async.engine.editor import Editor
from scheduler_async.engine.engine import Engine
from scheduler_async.engine.health import Health, judge
from scheduler_async.engine.outlook import Outlook
from scheduler_async.engine.single_pass import SinglePass
from scheduler_async.errors import JobNotFoundError, SchedulerError
from scheduler_async.jobs.answers import Explanation, Node, PassSummary, SchedulerState, Upcoming
from scheduler_async.jobs.enums import Misfire, OnConflict, OnInterrupt, Outcome, Priority, Status, check_choice
from scheduler_async.jobs.events import EventStream
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.names import check_name
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.jobs.statistics import RunStats, stats_of
from scheduler_async.namespace import Namespace
from scheduler_async.options import (
    JobChanges,
    JobOptions,
    check_count,
    check_filter,
    check_key,
    check_limits,
    check_reason,
    check_require_user,
    check_rules,
    check_run_id,
    check_specs,
    check_timeout,
    choose_clock,
    duration_or_none,
    store_of,
)
from scheduler_async.running.signature import Handler, name_of_function
from scheduler_async.schedules.base import Schedule
from scheduler_async.stores.messages import RunFilter
from scheduler_async.stores.nodes import node_of
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import Micros, from_micros, parse_instant, span, to_micros
from scheduler_async.timekeeping.zones import as_tzinfo

F = TypeVar("F", bound=Callable[..., Any])


class Scheduler:
    """Runs jobs when they are due, keeps them in a store, and can always say why a job did not run.

    >>> import asyncio
    >>> from scheduler_async import Every, Scheduler
    >>> scheduler = Scheduler(":memory:")
    >>> @scheduler.job(Every("5m"), id="cleanup")
    ... async def cleanup() -> None:
    ...     print("cleaning up")
    >>> async def main() -> None:
    ...     async with scheduler:  # start() … stop()
    ...         run_id = await scheduler.trigger_job("cleanup")
    ...         await scheduler.wait_for_run(run_id)
    >>> asyncio.run(main())
    cleaning up

    A scheduler runs jobs between `start` and `stop`. All other calls also work before and after: the first of them
    opens the store, and `stop` closes it. Processes that open the same store share its jobs, and each occurrence runs
    in one of them.

    Arguments. A duration is a string such as "30s", "5m", "2h" or "7d", or a `timedelta`:

    store
        Where jobs and runs are kept: the path of a SQLite file, ":memory:", a URL such as
        "postgresql://user:password@host/database", or a store object such as `SQLiteStore("jobs.db")`.
    max_concurrent=None
        How many runs may be in progress in this process at once. None is no limit. Over the limit, a job stays due
        and starts when a slot frees.
    queue_size=None
        How many due jobs this process may claim beyond *max_concurrent*. They wait here for a slot, with the status
        "queued", and no other process can run them. None is none.
    group_limits=None
        How many jobs of a group may run at once, in all processes together: a number, which limits every group, or
        a dict such as {"mail": 2}. It counts within each namespace; the key "*/mail" counts across all of them.
    misfire_grace="60s"
        How late a run may start without being a misfire. The `misfire` option of the job decides what happens
        after that. None: no run is ever too late.
    stuck_after="2h"
        Cancels a run without a timeout of its own after this time, with the outcome "timeout". None: never.
    max_sleep="60s"
        The longest time between two looks at the clock. None: the scheduler sleeps until the next job is due.
    min_interval="1s"
        The shortest interval of `Every` and `Delay`. Shorter ones are raised to it, with a warning. None: no minimum.
    retry=None
        What happens after a failure, for jobs without a policy of their own. None is `Retry.backoff()`.
    keep_runs=1000
        How many rows of the run log to keep for each job. None keeps all of them.
    keep_removed="7d"
        How long the run log keeps the rows of a removed job. None keeps them forever.
    purge_disabled_after=None
        Removes jobs that have been disabled for this long, including jobs that have ended. None: never.
    require_user=False
        Refuses jobs without a *user_id*, and disables stored ones at the start.
    clock=None
        The clock to go by, such as a `scheduler_async.testing.VirtualClock` in tests. None is the system's clock;
        on PostgreSQL, it is the clock of the database server.
    """

    def __init__(
        self,
        store: str | Path | Store,
        *,
        max_concurrent: int | None = None,
        queue_size: int | None = None,
        group_limits: int | Mapping[str, int] | None = None,
        misfire_grace: str | timedelta | None = "60s",
        stuck_after: str | timedelta | None = "2h",
        max_sleep: str | timedelta | None = "60s",
        min_interval: str | timedelta | None = "1s",
        retry: Retry | None = None,
        keep_runs: int | None = 1000,
        keep_removed: str | timedelta | None = "7d",
        purge_disabled_after: str | timedelta | None = None,
        require_user: bool = False,
        clock: Clock | None = None,
    ) -> None:
        rules = check_rules(retry, misfire_grace)
        limits = check_limits(
            max_concurrent=max_concurrent,
            queue_size=queue_size,
            group_limits=group_limits,
            stuck_after=stuck_after,
            max_sleep=max_sleep,
            keep_runs=keep_runs,
            keep_removed=keep_removed,
            purge_disabled_after=purge_disabled_after,
        )
        shortest_interval, needs_user = duration_or_none(min_interval), check_require_user(require_user)
        self._store = store_of(store)
        self._clock = choose_clock(clock, self._store)
        self._engine = Engine(self._store, self._clock, rules, limits, self._prepare)
        self._editor = Editor(self._engine, min_interval=shortest_interval, require_user=needs_user)
        self._outlook = Outlook(self._engine)
        self._ask = self._engine.setting.ask

    async def _prepare(self, now: Micros) -> None:
        await self._editor.prepare(now)

    # ============================================================ handlers and declared jobs

    @overload
    def handler(self, name: str | None = None, *, replace: bool = False) -> Callable[[F], F]: ...

    @overload
    def handler(self, name: F, *, replace: bool = False) -> F: ...

    def handler(self, name: str | F | None = None, *, replace: bool = False) -> F | Callable[[F], F]:
        """Register a function as a handler under *name*, or under its own name.

        An async function runs on the event loop, a plain function in a thread. It takes nothing, or a `Run`, or the
        payload as an annotated type, or both. What it returns is the outcome: see `Result`.

        >>> from scheduler_async import Run, Scheduler
        >>> scheduler = Scheduler(":memory:")
        >>> @scheduler.handler("send-report")
        ... async def send_report(run: Run) -> None:
        ...     print("sending to", run.payload)

        With *replace*, the function takes the place of an earlier one of this name. Runs in progress keep the earlier
        one. Without it, a second function under the same name is refused.
        """
        if name is not None and not isinstance(name, str):
            return self.handler(replace=replace)(name)

        def register(function: F) -> F:
            given = name_of_function(function) if name is None else name
            self._engine.handlers.register(check_name(given, "handler"), function, replace=replace)
            self._engine.session.agenda.look_again()
            return function

        return register

    def remove_handler(self, name: str) -> None:
        """Forget the handler *name*. Runs in progress go on; its jobs wait until a handler has the name again."""
        self._engine.handlers.remove(check_name(name, "handler"))

    def job(
        self,
        schedule: Schedule,
        *,
        id: str | None = None,
        handler: str | None = None,
        namespace: str = "default",
        **options: Unpack[JobOptions],
    ) -> Callable[[F], F]:
        """Declare a job in code, and register the decorated function as its handler.

        >>> from scheduler_async import Cron, Scheduler
        >>> scheduler = Scheduler(":memory:")
        >>> @scheduler.job(Cron("0 3 * * *", tz="Europe/Stockholm"), id="backup", timeout="30m")
        ... async def backup() -> None:
        ...     print("backing up")

        *id* defaults to the name of the function, and *handler* to the id. The options are those of `add_job`.

        The scheduler adds the job when it starts. If the store already has it, the job keeps its cadence, and stays
        paused or disabled. If its description has changed in the code, the stored job changes with it.
        """

        def declare(function: F) -> F:
            if self.status != "stopped":
                raise SchedulerError(
                    "Declare jobs before the scheduler starts. To add a job now, call add_job() with the name of a "
                    "handler."
                )
            job_id = name_of_function(function) if id is None else id
            wanted = job_id if handler is None else handler
            spec = JobSpec(schedule, id=job_id, handler=wanted, namespace=namespace, **options)
            self._engine.handlers.register(self._engine.handlers.name_of(spec.handler), function)
            self._editor.declare(spec)
            self._engine.session.agenda.look_again()
            return function

        return declare

    def on_job_due(self, handler: F) -> F:
        """Call *handler* for every job whose handler name is not registered."""
        self._engine.handlers.register_fallback(handler)
        self._engine.session.agenda.look_again()
        return handler

    # ============================================================ start and stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with services.shielded():
            await self.stop()

    @property
    def status(self) -> str:
        """The state of the scheduler: "stopped", "running" or "stopping"."""
        return self._engine.progress.status

    async def start(self) -> None:
        """Open the store, recover interrupted runs, add the declared jobs, and begin to run what is due."""
        await self._engine.start()

    async def stop(
        self, wait: bool = True, timeout: float | str | timedelta | None = 30.0, cancel: bool = False
    ) -> None:
        """Start no new runs, let runs in progress finish, and close the store.

        Runs have *timeout* to finish, in seconds or as a duration; None is no limit. After that, `stop` raises
        `SchedulerShutdownError` and the runs go on: call `stop` again, with a longer timeout or with *cancel*, which
        cancels them. With *wait* set to False, `stop` returns at once, and the runs finish in the background.
        """
        seconds = check_timeout(timeout)
        if wait:
            self._refuse_in_handler("stop()", "it would wait for its own run. Use stop(wait=False)")
        await self._engine.stop(wait, seconds, cancel)

    async def run_until_signal(self, timeout: float | str | timedelta | None = 30.0) -> None:
        """Start, run until SIGINT or SIGTERM arrives, and stop: a whole program in one call.

        After the first signal, runs have *timeout* to finish. A second signal, or the end of that time, cancels
        them. They have five more seconds to tidy up; after that, `SchedulerShutdownError` is raised.
        """
        await services.run_until_signal(self, check_timeout(timeout))

    def _refuse_in_handler(self, call: str, problem: str) -> None:
        task = asyncio.current_task()
        if any(active.task is task for active in self._engine.session.runner):
            raise SchedulerError(f"{call} must not be called in a handler: {problem}.")

    # ============================================================ adding and editing

    async def add_job(
        self,
        schedule: Schedule,
        *,
        handler: str | Handler,
        id: str | None = None,
        namespace: str = "default",
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
        enabled: bool = True,
        on_conflict: OnConflict | str = OnConflict.RAISE,
    ) -> Job:
        """Add a job to the store, and return it.

        >>> import asyncio
        >>> from scheduler_async import Cron, Scheduler
        >>> async def main() -> None:
        ...     scheduler = Scheduler(":memory:")
        ...     schedule = Cron("0 9 * * 1-5", tz="Europe/Stockholm")
        ...     job = await scheduler.add_job(schedule, handler="send-report", id="daily", payload={"to": "ops"})
        ...     print(job.id, job.status, job.schedule.describe())
        ...     await scheduler.stop()
        >>> asyncio.run(main())
        daily idle at 09:00 on Monday to Friday (Europe/Stockholm)

        schedule
            When the job runs: `Every`, `Delay`, `Cron`, `At` or `Manual`.
        handler
            The name of the handler to call, or a function that is registered as one. Another process may have the
            handler; until one does, the job waits.
        id=None
            The name of the job, unique in its namespace. None makes one up.
        namespace="default"
            Keeps the jobs of a tenant or a plugin apart: two namespaces may use the same ids.
        user_id=None
            Whose job it is. `list_jobs` can ask for it.
        name=None
            A title for people.
        payload=None
            A JSON value, a dataclass or a pydantic model for the handler.
        metadata=None
            A dict of JSON values for your own use. `list_jobs` can ask for them.
        priority="standard"
            "high", "standard" or "low": which jobs start first if not all can start at once.
        group=None
            A group of jobs that share a limit: see `group_limits` of `Scheduler`.
        misfire="run_once"
            What happens to runs missed by more than `misfire_grace`: "run_once" runs the job once now, "skip" waits
            for the next occurrence. Either way, the run log counts the occurrences that did not run.
        retry=None
            What happens after a failure: a `Retry` policy. None is the policy of the scheduler.
        timeout=None
            Cancels a run after this time, such as "10m", with the outcome "timeout". None is the scheduler's
            `stuck_after`.
        on_interrupt="rerun"
            What happens to a run whose process died: "rerun" runs the occurrence again, "skip" does not.
        enabled=True
            False adds the job disabled; `resume_job` enables it.
        on_conflict="raise"
            What happens if the id is taken: "raise" raises `JobExistsError`, "replace" changes the existing job,
            "keep" leaves it as it is and returns it.

        Raise `InvalidJobError` or `InvalidScheduleError` if an argument is not valid; nothing is stored then.
        """
        spec = JobSpec(
            schedule,
            handler=handler,
            id=id,
            namespace=namespace,
            user_id=user_id,
            name=name,
            payload=payload,
            metadata=metadata,
            priority=priority,
            group=group,
            misfire=misfire,
            retry=retry,
            timeout=timeout,
            on_interrupt=on_interrupt,
            enabled=enabled,
            on_conflict=on_conflict,
        )
        (job,) = await self._editor.add([spec])
        return job

    async def add_jobs(self, specs: Iterable[JobSpec]) -> list[Job]:
        """Add many jobs in one transaction: all of them, or none if one cannot be added."""
        return await self._editor.add(check_specs(specs))

    async def update_job(self, id: str, *, namespace: str = "default", **changes: Unpack[JobChanges]) -> Job:
        """Change the fields that are given, and no others; return the changed job.

        The fields are the schedule, the handler, and the options of `add_job`:
        `await scheduler.update_job("daily", timeout="10m", payload={"to": "dev"})`. A changed schedule counts from
        now. A run in progress goes on as it began.
        """
        check_key(id, namespace)
        return await self._editor.update(namespace, id, changes)

    async def remove_job(self, id: str, *, namespace: str = "default") -> Job:
        """Remove a job, and return it as it was. The run log keeps its rows for `keep_removed`.

        A run in progress is cancelled. A run that removes its own job goes on, and is recorded when it ends. If another
        process is about to start the job, the call waits until it has started, for half a second at most.
        """
        check_key(id, namespace)
        return await self._editor.remove(namespace, id)

    async def pause_job(self, id: str, *, namespace: str = "default") -> Job:
        """Keep a job from starting until it is resumed. A run in progress goes on."""
        check_key(id, namespace)
        return await self._editor.pause(namespace, id)

    async def resume_job(self, id: str, *, namespace: str = "default") -> Job:
        """Let a paused or disabled job start again, from now on.

        Its failures no longer count, and occurrences since the pause were not missed. Raise `JobEndedError` if its
        schedule has no occurrences left, and `StoreError` if the job cannot be read from the store.
        """
        check_key(id, namespace)
        return await self._editor.resume(namespace, id)

    async def disable_job(self, id: str, *, namespace: str = "default", reason: str = "it was disabled by hand") -> Job:
        """Take a job out of scheduling until it is resumed. *reason* is kept with it. A run in progress goes on."""
        check_reason(reason)
        check_key(id, namespace)
        return await self._editor.disable(namespace, id, reason)

    # ============================================================ running by hand

    async def trigger_job(self, id: str, *, namespace: str = "default", payload: Json = None) -> int:
        """Run a job now, whatever its schedule, and return the id of the run as soon as it has begun.

        Its schedule and its failure count stay as they are. *payload* replaces that of the job for this run. Raise
        `JobAlreadyRunningError` if the job is running.
        """
        check_key(id, namespace)
        payload_json = None if payload is None else to_json_text(payload, "payload")
        return await manual_run.trigger(self._engine, namespace, id, payload_json)

    async def wait_for_run(self, run_id: int) -> None:
        """Wait until a run of this process has ended and is recorded. Return at once if it is not running here."""
        check_run_id(run_id)
        await manual_run.wait_for(self._engine, run_id)

    async def run_pending(self, now: datetime | None = None) -> PassSummary:
        """Make one pass without the loop: run what is due, wait for it, and return the counts.

        Jobs run in order, one after another or `max_concurrent` at a time. *now* decides what is due; it defaults to
        the clock's time.
        """
        if self._engine.setting.limits.max_concurrent is not None:
            self._refuse_in_handler("run_pending()", "its own run may hold the slot that it waits for")
        given = None if now is None else to_micros(parse_instant(now, "now"))
        await self._engine.ready_for_a_pass()
        return await SinglePass(self._engine, self._clock.micros() if given is None else given).run()

    # ============================================================ reading

    async def get_job(self, id: str, *, namespace: str = "default") -> Job | None:
        """Return the job with this id, or None."""
        check_key(id, namespace)
        await self._engine.ready()
        return await self._ask(self._store.get(namespace, id))

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
        limit: int | None = None,
    ) -> list[Job]:
        """Return the jobs that meet all conditions, by their next run; jobs without one come last.

        None is no condition. *status* is "idle", "queued", "running", "paused" or "disabled". *metadata* asks for jobs
        that have these values among others. *due_before* asks for a next run before this moment. *limit* is the
        largest number of jobs to return.
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
            limit=limit,
        )
        await self._engine.ready()
        return await self._ask(self._store.list_jobs(wanted))

    async def run_log(
        self,
        id: str | None = None,
        *,
        namespace: str | None = None,
        limit: int | None = 50,
        outcome: Outcome | str | None = None,
    ) -> list[RunRow]:
        """Return what ran and what was skipped, newest first, of one job or of all.

        *outcome* asks for rows with this outcome. *limit* is the largest number of rows; None returns all of them.
        """
        check_key("any" if id is None else id, "default" if namespace is None else namespace)
        wanted = RunFilter(
            namespace="default" if namespace is None and id is not None else namespace,
            id=id,
            outcome=None if outcome is None else check_choice(Outcome, outcome, "outcome"),
            limit=check_count(limit, "limit", smallest=0),
        )
        await self._engine.ready()
        return await self._ask(self._store.list_runs(wanted))

    async def get_run(self, run_id: int) -> RunRow | None:
        """Return the row of the run log with this id, or None."""
        check_run_id(run_id)
        await self._engine.ready()
        rows = await self._ask(self._store.list_runs(RunFilter(run=run_id)))
        return rows[0] if rows else None

    async def run_output(self, run_id: int) -> str | None:
        """Return what a run wrote with `Run.write`, or its command to standard output; None if it wrote nothing."""
        check_run_id(run_id)
        await self._engine.ready()
        return await self._ask(self._store.output_of(run_id))

    async def run_stats(self, id: str, since: datetime | str | None = None, *, namespace: str = "default") -> RunStats:
        """Return statistics of the runs of a job, over all rows that are kept or those *since* a moment."""
        check_key(id, namespace)
        wanted = RunFilter(
            namespace=namespace, id=id, since=None if since is None else to_micros(parse_instant(since, "since"))
        )
        await self._engine.ready()
        if await self._ask(self._store.get(namespace, id)) is None:
            raise JobNotFoundError(id, namespace)
        return stats_of(await self._ask(self._store.list_runs(wanted)))

    async def preview(self, window: str | timedelta = "60m") -> list[Upcoming]:
        """Return the runs that would start now or within *window*, in their order. Nothing changes."""
        return await self._outlook.preview(span(parse_interval(window)))

    async def explain(self, id: str, *, namespace: str = "default", zone: str | tzinfo = UTC) -> Explanation:
        """Return why a job is not running now, or that it would run; *zone* is the time zone of the reader.

        `str()` of the answer is a sentence for people, `reason` a `SkipReason` for programs.
        """
        readers_zone = as_tzinfo(zone)
        job = await self.get_job(id, namespace=namespace)
        if job is None:
            raise JobNotFoundError(id, namespace)
        return await self._outlook.explain(job, readers_zone)

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

    def namespace(self, name: str) -> Namespace:
        """Return a view that can see and change only the jobs of one namespace."""
        return Namespace(self, check_name(name, "namespace"))

    def events(self) -> EventStream:
        """Return a stream of events from now on: `async for event in scheduler.events()`.

        It ends when the scheduler has stopped. A slow reader loses its oldest events, and never slows the scheduler.
        """
        return self._engine.events.listen()

    # ============================================================ for web frameworks

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """Run with a FastAPI, Starlette or Litestar application: `FastAPI(lifespan=scheduler.lifespan)`.

        When the server ends, runs have 30 seconds to finish. After that they are cancelled, and have five more to
        tidy up.
        """
        async with services.serving(self):
            yield

    async def cleanup_ctx(self, app: object) -> AsyncIterator[None]:
        """Run with an aiohttp application: `app.cleanup_ctx.append(scheduler.cleanup_ctx)`. It ends as `lifespan`."""
        async with self.lifespan(app):
            yield


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
