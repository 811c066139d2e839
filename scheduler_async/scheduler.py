"""The public API. The `engine` does the work, `rules` decide, and `options` checks arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from scheduler_async import services
from scheduler_async.calls.from_thread import FromThread
from scheduler_async.calls.namespace import Namespace
from scheduler_async.calls.overview import Overviewing
from scheduler_async.calls.reading import Reading
from scheduler_async.calls.steering import Steering
from scheduler_async.engine.editor import Editor
from scheduler_async.engine.engine import Engine
from scheduler_async.errors import SchedulerError
from scheduler_async.jobs.enums import Misfire, OnConflict, OnInterrupt, Overlap, Priority
from scheduler_async.jobs.events import EventStream
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import check_name
from scheduler_async.jobs.policies import CATCH_UP_LIMIT
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.options import (
    JobChanges,
    JobOptions,
    check_count,
    check_key,
    check_limits,
    check_quota,
    check_reason,
    check_require_user,
    check_rules,
    check_specs,
    check_timeout,
    choose_clock,
    duration_or_none,
    end_of_pause,
    store_of,
)
from scheduler_async.running.signature import Handler, name_of_function
from scheduler_async.schedules.base import Schedule
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros
from scheduler_async.timekeeping.zones import check_zone

if TYPE_CHECKING:
    from scheduler_async.web.access import Rule
    from scheduler_async.web.application import PageApplication
    from scheduler_async.web.redaction import Redact

F = TypeVar("F", bound=Callable[..., Any])


class Scheduler(Reading, Overviewing, Steering):
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
        "queued", and no other process can run them. None: it claims no further jobs.
    group_limits=None
        How many runs of a group may be in progress at once, in all processes together: a number, which limits every
        group, or a dict such as {"mail": 2}. It counts within each namespace; the key "*/mail" counts across all of
        them.
    group_rates=None
        How many runs of a group may start in any second, minute, hour or day, in all processes together: a dict such
        as {"api": "100/m"}, with the units s, m, h and d, and keys as in *group_limits*. Over the rate, a job stays
        due and starts as soon as the rate allows it. Triggered runs count, but the rate does not delay them.
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
        How long `run_log` and `changes` keep the rows of a removed job. None keeps them forever.
    purge_disabled_after=None
        Removes jobs that have been disabled for this long, including jobs that have ended. Jobs that are declared in
        code stay. None: never.
    purge_ended_after="7d"
        Removes jobs whose schedule ended this long ago, such as an `At` that has run. Jobs that are declared in code
        stay. None: never.
    timezone=None
        The time zone of cron expressions without one, and of calendars for intervals and instants: a name such as
        "Europe/Stockholm", a `ZoneInfo`, or an offset. It is fixed when a job is added: stored jobs keep their zone.
        None is the zone of the system for cron expressions, and UTC for calendars.
    require_user=False
        Refuses jobs without a *user_id*, and disables stored ones at the start.
    clock=None
        The clock to use, such as a `scheduler_async.testing.VirtualClock` in tests. None is the system's clock;
        on PostgreSQL, it is the clock of the database server.
    """

    def __init__(
        self,
        store: str | Path | Store,
        *,
        max_concurrent: int | None = None,
        queue_size: int | None = None,
        group_limits: int | Mapping[str, int] | None = None,
        group_rates: Mapping[str, str] | None = None,
        misfire_grace: str | timedelta | None = "60s",
        stuck_after: str | timedelta | None = "2h",
        max_sleep: str | timedelta | None = "60s",
        min_interval: str | timedelta | None = "1s",
        retry: Retry | None = None,
        keep_runs: int | None = 1000,
        keep_removed: str | timedelta | None = "7d",
        purge_disabled_after: str | timedelta | None = None,
        purge_ended_after: str | timedelta | None = "7d",
        timezone: str | tzinfo | None = None,
        require_user: bool = False,
        clock: Clock | None = None,
    ) -> None:
        rules = check_rules(retry, misfire_grace)
        limits = check_limits(
            max_concurrent=max_concurrent,
            queue_size=queue_size,
            group_limits=group_limits,
            group_rates=group_rates,
            stuck_after=stuck_after,
            max_sleep=max_sleep,
            keep_runs=keep_runs,
            keep_removed=keep_removed,
            purge_disabled_after=purge_disabled_after,
            purge_ended_after=purge_ended_after,
        )
        shortest_interval, needs_user = duration_or_none(min_interval), check_require_user(require_user)
        zone = None if timezone is None else check_zone(timezone)
        self._store = store_of(store)
        self._clock = choose_clock(clock, self._store)
        self._engine = Engine(self._store, self._clock, rules, limits, self._prepare)
        self._editor = Editor(self._engine, min_interval=shortest_interval, require_user=needs_user, timezone=zone)
        Reading.__init__(self, self._engine)
        Overviewing.__init__(self, self._engine)
        Steering.__init__(self, self._engine)

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
        payload as an annotated type, or both. Other parameters are filled from the keys of the payload by name. It
        returns nothing, an outcome (see `Result`), or a JSON value, which the run log keeps as the result of the run.

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
        """Remove the handler *name*. Runs in progress continue. Its jobs wait until the name is registered again."""
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

        The scheduler adds the job when it starts. If the store already has it, each start makes its schedule, handler
        and options equal to the declaration, and so undoes edits made elsewhere. If the schedule is the same, the job
        keeps its cadence. It stays paused or disabled: *enabled* counts only when the job is first added.
        """
        if "on_conflict" in options:
            raise TypeError(
                "@scheduler.job() takes no on_conflict: each start makes the stored job equal to the declaration. "
                'Leave it out. To keep edits across restarts, call add_job() with on_conflict="keep".'
            )

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
            await services.stop_at_exit(self, is_test=self._clock.is_virtual)

    @property
    def status(self) -> str:
        """The state of the scheduler: "stopped", "running" or "stopping"."""
        return self._engine.progress.status

    def now(self) -> datetime:
        """Return the time by the clock of the scheduler, in UTC. On PostgreSQL, it is that of the database server."""
        return self._clock.now()

    async def start(self) -> None:
        """Open the store, recover interrupted runs, add the declared jobs, and begin to run what is due."""
        await self._engine.start()

    async def stop(
        self, wait: bool = True, timeout: float | str | timedelta | None = 30.0, cancel: bool = False
    ) -> None:
        """Start no new runs, let runs in progress finish, and close the store.

        Runs have *timeout* to finish, in seconds or as a duration; None is no limit. After that, `stop` raises
        `SchedulerShutdownError` and the runs continue: call `stop` again, with a longer timeout or with *cancel*, which
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
        max_instances: int = 1,
        overlap: Overlap | str = Overlap.SKIP,
        misfire_grace: str | timedelta | None = None,
        catch_up_limit: int = CATCH_UP_LIMIT,
        catch_up_window: str | timedelta | None = None,
        max_runs: int | None = None,
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
            When the job runs: `Every`, `Delay`, `Cron`, `At`, `After`, `Manual`, `AnyOf`, or a schedule of your own.
        handler
            The name of the handler to call, or a function. A function that is not registered is registered under its
            name. Another process may have the handler; until one does, the job waits.
        id=None
            The name of the job, unique in its namespace. None makes one up.
        namespace="default"
            Keeps the jobs of a tenant or a plugin apart: two namespaces may use the same ids.
        user_id=None
            The user to whom the job belongs. `list_jobs` can filter by it.
        name=None
            A title for people.
        payload=None
            A JSON value, a dataclass or a pydantic model for the handler.
        metadata=None
            A dict of JSON values for your own use. `list_jobs` can filter by them.
        priority="standard"
            "high", "standard" or "low": which jobs start first if not all can start at once.
        group=None
            A group of jobs that share a limit or a rate: see `group_limits` and `group_rates` of `Scheduler`.
        misfire="run_once"
            What happens to occurrences that are late by more than `misfire_grace`: "run_once" runs the job once now,
            "skip" waits for the next occurrence, "run_all" runs each of them, oldest first. The run log counts the
            occurrences that did not run.
        retry=None
            What happens after a failure: a `Retry` policy. None is the policy of the scheduler.
        timeout=None
            Cancels a run after this time, such as "10m", with the outcome "timeout". None is the scheduler's
            `stuck_after`.
        on_interrupt="rerun"
            What happens to a run whose process died, or whose scheduler stopped before it finished: "rerun" runs the
            occurrence again, "skip" does not.
        max_instances=1
            How many runs of the job may be in progress at once, in all processes together.
        overlap="skip"
            What happens to an occurrence that comes due while that many runs are in progress: "skip" skips it, "queue"
            lets one wait for the end of a run, "cancel" cancels the oldest run.
        misfire_grace=None
            How late a run of this job may start without being a misfire. None is the scheduler's `misfire_grace`.
        catch_up_limit=100
            With `misfire="run_all"`, how many missed occurrences run at most: the newest ones.
        catch_up_window=None
            With `misfire="run_all"`, how old a missed occurrence may be to run. None is any age.
        max_runs=None
            The job ends after this number of regular occurrences has run. None: never.
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
            max_instances=max_instances,
            overlap=overlap,
            misfire_grace=misfire_grace,
            catch_up_limit=catch_up_limit,
            catch_up_window=catch_up_window,
            max_runs=max_runs,
            enabled=enabled,
            on_conflict=on_conflict,
        )
        (job,) = await self._editor.add([spec])
        return job

    async def add_jobs(self, specs: Iterable[JobSpec]) -> list[Job]:
        """Add many jobs in one transaction: all of them, or none if one cannot be added."""
        return await self._editor.add(check_specs(specs))

    async def update_job(
        self, id: str, *, namespace: str = "default", revision: int | None = None, **changes: Unpack[JobChanges]
    ) -> Job:
        """Change only the fields that you pass, and return the changed job.

        The fields are the schedule, the handler, and the options of `add_job`:
        `await scheduler.update_job("daily", timeout="10m", payload={"to": "dev"})`. A changed schedule counts from
        now. A run in progress continues as it began. *cursor* sets the JSON value that the next run finds in
        `Run.cursor`; None clears it. The cursor of a run in progress does not replace it.

        With *revision*, the `Job.revision` that you have read, raise `JobChangedError` if the job was edited since.
        """
        check_key(id, namespace)
        return await self._editor.update(namespace, id, changes, revision=check_count(revision, "revision"))

    async def remove_job(self, id: str, *, namespace: str = "default", revision: int | None = None) -> Job:
        """Remove a job, and return it as it was. `run_log` and `changes` keep its rows for `keep_removed`.

        A run in progress is cancelled. A run that removes its own job continues, and is recorded when it ends. If
        another process is about to start the job, the call waits until it has started, for half a second at most.
        *revision* is that of `update_job`.
        """
        check_key(id, namespace)
        return await self._editor.remove(namespace, id, check_count(revision, "revision"))

    async def pause_job(
        self,
        id: str,
        *,
        namespace: str = "default",
        reason: str | None = None,
        until: str | datetime | timedelta | None = None,
    ) -> Job:
        """Keep a job from starting until it is resumed. A run in progress continues.

        *reason* is kept with it, for `explain` and for others. With *until*, an instant or a duration such as "2h", the
        job resumes by itself at that time, and an occurrence at that very time runs. Pausing a paused job again
        replaces its reason and its end. Raise `JobDisabledError` if the job is disabled: it does not start anyway.
        """
        check_key(id, namespace)
        if reason is not None:
            check_reason(reason)
        return await self._editor.pause(namespace, id, reason, lambda now: end_of_pause(until, now))

    async def resume_job(self, id: str, *, namespace: str = "default") -> Job:
        """Let a paused or disabled job start again, from now on.

        Its failure count is reset, and it does not catch up with occurrences during the pause. A job whose schedule
        raises an error becomes disabled, with the error as the reason. Raise `JobEndedError` if its schedule has no
        occurrences left, and `StoreError` if the job cannot be read from the store.
        """
        check_key(id, namespace)
        return await self._editor.resume(namespace, id)

    async def disable_job(self, id: str, *, namespace: str = "default", reason: str = "it was disabled by hand") -> Job:
        """Take a job out of scheduling until it is resumed. *reason* is kept with it. A run in progress continues."""
        check_reason(reason)
        check_key(id, namespace)
        return await self._editor.disable(namespace, id, reason)

    # ============================================================ views

    def namespace(
        self,
        name: str,
        *,
        user_id: str | None = None,
        handlers: Iterable[str] | None = None,
        max_jobs: int | None = None,
        max_payload: int | None = None,
    ) -> Namespace:
        """Return a view that can see and change only the jobs of one namespace, for a tenant or a plugin.

        The view has every job method of the scheduler, without the argument *namespace*. Its jobs can follow only jobs
        of the same namespace with `After`. The limits below apply to calls of the view. If a call would exceed one of
        them, it raises `QuotaError` and changes nothing:

        user_id=None
            The *user_id* of jobs that are added without one.
        handlers=None
            The names of the handlers that the tenant may use: in jobs that it adds or edits, and in jobs that it
            triggers or resumes. None is all of them.
        max_jobs=None
            How many jobs the namespace may have, in all processes together. Disabled and ended jobs count. None is no
            limit.
        max_payload=None
            The largest payload in bytes of JSON, in jobs that the tenant adds or edits, and in runs that it triggers.
            It also limits metadata, and a cursor that the tenant sets. None is no limit.
        """
        quota = check_quota(name, handlers=handlers, max_jobs=max_jobs, max_payload=max_payload)
        return Namespace(self, self._editor, quota, None if user_id is None else check_name(user_id, "user_id"))

    @cached_property
    def from_thread(self) -> FromThread:
        """The same calls for other threads, where they block: `scheduler.from_thread.trigger_job("report")`."""
        return FromThread(self, self._engine)

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
        """Run with an aiohttp application: `app.cleanup_ctx.append(scheduler.cleanup_ctx)`. See `lifespan`."""
        async with self.lifespan(app):
            yield

    def page(
        self,
        *,
        access: Rule | None = None,
        hosts: Collection[str] | None = None,
        redact: Redact | Iterable[str] | None = None,
    ) -> PageApplication:
        """Return the operator's page and the HTTP API of this scheduler, as an ASGI application.

        `app.mount("/scheduler", page)` mounts it in FastAPI and Starlette, `page.add_to(app, "/scheduler")` in aiohttp.
        It needs the extra `web`: pip install "scheduler-async[web]".

        access
            A function, plain or async, that takes a request and returns the name and the rights of the visitor:
            `Access("anna", "operate")` from `scheduler_async.web`, or None, which refuses the request. Ready-made are
            `token("…")` and `everyone("look")`. It is required.
        hosts=None
            The host names to which requests may go. Requests to other names are refused with 421. None allows all
            names.
        redact=None
            What to hide in payloads, outputs and errors, besides passwords, tokens and the like: names of further keys,
            or a function that takes such a value and returns what to show.
        """
        try:
            from scheduler_async.web.application import PageApplication  # noqa: PLC0415 - only the page needs it
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.startswith("scheduler_async"):
                raise
            raise ModuleNotFoundError(
                f"The page needs the package {missing.name}: pip install 'scheduler-async[web]'", name=missing.name
            ) from None
        return PageApplication(self, access=access, hosts=hosts, redact=redact)
