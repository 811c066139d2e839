"""What users call. The `engine` does the running, and `rules` decide."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, overload

from scheduler_async.engine.engine import Engine
from scheduler_async.engine.health import Health, judge
from scheduler_async.engine.setting import Limits
from scheduler_async.errors import (
    InvalidJobError,
    JobAlreadyRunningError,
    JobExistsError,
    JobNotFoundError,
    SchedulerError,
    SchedulerShutdownError,
    SchedulerStoppingError,
    StoreError,
    quoted,
)
from scheduler_async.jobs.answers import Explanation, Node, PassSummary, Upcoming
from scheduler_async.jobs.enums import ENDED, Misfire, OnConflict, OnInterrupt, Outcome, Priority, Status, check_choice
from scheduler_async.jobs.events import EventKind, EventStream
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.names import check_name, key_of
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.jobs.statistics import RunStats, stats_of
from scheduler_async.logs import say
from scheduler_async.namespace import Namespace
from scheduler_async.rules import edits, explaining, order, terms
from scheduler_async.rules.groups import NO_GROUP, Rooms, check_limited, group_key, is_ambiguous
from scheduler_async.rules.terms import Room, Rules
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.running.runner import Runner
from scheduler_async.running.signature import Handler, name_of_function
from scheduler_async.schedules.base import Schedule
from scheduler_async.shielding import in_breaths
from scheduler_async.signals import told_of_signals
from scheduler_async.stores.addresses import A_STORE, is_url
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.messages import Change, Claims, Decision, Edit, JobFilter, RunFilter
from scheduler_async.stores.nodes import node_of
from scheduler_async.stores.protocol import Store
from scheduler_async.stores.sqlite.store import SQLiteStore
from scheduler_async.timekeeping.clock import Clock, SystemClock
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import LAST, Micros, from_micros, parse_instant, span, to_micros
from scheduler_async.timekeeping.zones import as_tzinfo

F = TypeVar("F", bound=Callable[..., Any])

# How long a run that is cancelled may take to tidy up when the program ends.
LAST_WORDS = 5.0  # seconds

# More than any store holds, and no more than it can count.
MANY = 2**62

# What a store can hold: run_log() shows a damaged row with such an id, too.
RUN_IDS = range(-(2**63), 2**63)

# A longer timeout is none: clocks cannot count so far.
FOREVER = timedelta(days=365 * 1000).total_seconds()

# Of characters: a reason is a sentence or a few, shown in tables and logs.
LONGEST_REASON = 1_000

# What decides whether a handler can be called.
CALL = {"handler", "payload"}


@dataclass(frozen=True, kw_only=True)
class SchedulerState:
    """What a scheduler is doing."""

    status: str
    started_at: datetime | None
    tick_count: int
    """Passes since it was started."""
    trigger_count: int
    """Runs since it was started."""
    last_tick_at: datetime | None
    next_wake_at: datetime | None
    running: int
    queued: int
    problem: str | None = None
    """What keeps it from working, if anything does: a store that fails, a clock that cannot be believed."""


class Scheduler:
    """Runs jobs when they are due, and can say why one did not run.

    *store* is the path of a SQLite file, ":memory:", or a store. Processes that open the same file share the
    schedule: each occurrence runs once among them.
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
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidJobError(f"retry is Retry.backoff() or another policy, not {quoted(retry)}.", "retry")
        if clock is not None and not isinstance(clock, Clock):
            raise InvalidJobError(f"clock is a VirtualClock() or another Clock, not {quoted(clock)}.", "clock")
        if not isinstance(require_user, bool):
            raise InvalidJobError(f"require_user is True or False, not {quoted(require_user)}.", "require_user")
        grace = timedelta(0) if misfire_grace in ("0s", timedelta(0)) else _duration(misfire_grace)
        group_limit, limit_by_group = _group_limits(group_limits)
        self._rules = Rules(retry=retry or Retry.backoff(), misfire_grace=None if grace is None else span(grace))
        self._limits = Limits(
            max_concurrent=_whole(max_concurrent, "max_concurrent"),
            queue_size=_whole(queue_size, "queue_size", smallest=0),
            group_limit=group_limit,
            group_limits=limit_by_group,
            stuck_after=_duration(stuck_after),
            max_sleep=_duration(max_sleep),
            keep_runs=_whole(keep_runs, "keep_runs", smallest=0),
            keep_removed=_duration(keep_removed),
            purge_disabled_after=_duration(purge_disabled_after),
        )
        self._min_interval = _duration(min_interval)
        self._require_user = require_user
        self._store = _store_of(store)
        # Who asks for the machine's time gets the store's, where many machines share one.
        shared = self._store.clock if clock is None or type(clock) is SystemClock else None
        self._clock = shared or clock or SystemClock()
        self._engine = Engine(self._store, self._clock, self._rules, self._limits, self._prepare)
        self._handlers = self._engine.handlers
        self._ask = self._engine.setting.ask
        self._declared: list[JobSpec] = []

    # ============================================================ handlers and declared jobs

    @overload
    def handler(self, name: str | None = None, *, replace: bool = False) -> Callable[[F], F]: ...

    @overload
    def handler(self, name: F, *, replace: bool = False) -> F: ...

    def handler(self, name: str | F | None = None, *, replace: bool = False) -> F | Callable[[F], F]:
        """Register a function under *name*, or under its own name: `@scheduler.handler("send-report")`.

        With *replace*, it takes the place of a function that has the name: runs in progress keep that one, and the
        next run gets the new one.
        """
        if name is not None and not isinstance(name, str):
            return self.handler(replace=replace)(name)

        def register(function: F) -> F:
            given = name_of_function(function) if name is None else name
            self._handlers.register(check_name(given, "handler"), function, replace=replace)
            self._engine.session.agenda.look_again()
            return function

        return register

    def remove_handler(self, name: str) -> None:
        """Forget the handler of this *name*. Runs in progress go on; then its jobs wait until there is one again."""
        self._handlers.remove(check_name(name, "handler"))

    def job(self, schedule: Schedule, *, id: str | None = None, **fields: Any) -> Callable[[F], F]:
        """Declare a job in code: `@scheduler.job(Every("5m"), id="cleanup")`. It takes what `add_job` takes.

        It is added when the scheduler starts. One that is there already keeps its cadence, and stays paused or
        disabled if it was.
        """

        def declare(function: F) -> F:
            if self.status != "stopped":
                raise SchedulerError(
                    "Jobs are declared before the scheduler starts. Now, add_job() adds one, with a handler by name."
                )
            job_id = name_of_function(function) if id is None else id
            spec = JobSpec(schedule, id=job_id, **{"handler": job_id, **fields})
            self._handlers.register(self._handlers.name_of(spec.handler), function)
            if any((other.namespace, other.id) == (spec.namespace, spec.id) for other in self._declared):
                raise JobExistsError(job_id, spec.namespace)
            declared = self._checked(spec)
            self._handlers.check_payload(str(declared.handler), declared.payload_json)
            self._declared.append(declared)
            self._engine.session.agenda.look_again()
            return function

        return declare

    def on_job_due(self, handler: F) -> F:
        """Call *handler* for every job whose name has no handler of its own."""
        self._handlers.register_fallback(handler)
        self._engine.session.agenda.look_again()
        return handler

    # ============================================================ start and stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _shielded():
            await self.stop()

    @property
    def status(self) -> str:
        """The scheduler is "stopped", "running" or "stopping"."""
        return self._engine.progress.status

    async def start(self) -> None:
        """Open the store, take up what was interrupted, add the declared jobs, and begin to run what is due."""
        await self._engine.start()

    async def _prepare(self, now: Micros) -> None:
        if self._require_user:
            await self._disable_without_user(now)
        if not self._declared:
            return
        declarations = [self._declaration(spec, now) for spec in self._declared]
        for edit in await self._ask(self._store.change(declarations, now)):
            self._engine.session.announcer.edited(edit, now)
            if edit is not None:
                await self._engine.session.claimer.begun_elsewhere(edit.job)

    async def stop(
        self, wait: bool = True, timeout: float | str | timedelta | None = 30.0, cancel: bool = False
    ) -> None:
        """Begin nothing new, let runs finish, and close the store.

        Runs get *timeout* seconds; then `SchedulerShutdownError` is raised and they go on, to be stopped again with a
        longer timeout or with *cancel*, which ends them. Without *wait* the runs finish in the background.
        """
        seconds = _seconds(timeout)
        if wait:
            self._refuse_inside_a_run("stop() would wait for the run that calls it. stop(wait=False) does not")
        await self._engine.stop(wait, seconds, cancel)

    async def run_until_signal(self, timeout: float | str | timedelta | None = 30.0) -> None:
        """Start, run until SIGINT or SIGTERM asks to end, and stop: a whole program in one call.

        The first signal lets runs finish, for *timeout* seconds; the second, or the end of that time, cancels them.
        They have five more to tidy up; if that is not enough, `SchedulerShutdownError` is raised.
        """
        seconds = _seconds(timeout)
        asked, hurried = asyncio.Event(), asyncio.Event()

        def ask() -> None:
            if asked.is_set():
                hurried.set()
            asked.set()

        with told_of_signals(ask):
            await self.start()
            try:
                await asked.wait()
                words = "Asked to end; runs have %s to finish. The next signal cancels them"
                say(INFO, words, _time_for(seconds), extra={"signal": True})
            finally:
                with _shielded():
                    await self._stop_or_hurry(seconds, hurried)

    async def _stop_or_hurry(self, seconds: float | None, hurried: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(self.stop(timeout=seconds))
        hurrying = asyncio.ensure_future(hurried.wait())
        await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if hurried.is_set():
            await self.stop(timeout=LAST_WORDS, cancel=True)
        await self._cancel_after(stopping)

    async def _cancel_after(self, stopping: Awaitable[None]) -> None:
        """The program ends: what has not finished in the time it had is cancelled, so that it is on record."""
        try:
            await stopping
        except SchedulerShutdownError:
            await self.stop(timeout=LAST_WORDS, cancel=True)

    def _refuse_inside_a_run(self, problem: str) -> None:
        task = asyncio.current_task()
        if any(active.task is task for active in self._engine.session.runner):
            raise SchedulerError(f"{problem}; or let something outside of the handlers call it.")

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
        """Add a job, and return it.

        *handler* is the name of a handler, here or in another process, or a registered function. Without *id* it gets
        one. If the id is taken, *on_conflict* says what happens: "raise", "replace" it, or "keep" it.
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
        (job,) = await self.add_jobs([spec])
        return job

    async def add_jobs(self, specs: Iterable[JobSpec]) -> list[Job]:
        """Add many jobs in one transaction: all, or none if one cannot be added."""
        if not isinstance(specs, Iterable):
            raise InvalidJobError(f"add_jobs takes a list of JobSpec(...) values, not {quoted(specs)}.", "specs")
        checked: list[JobSpec] = []
        for spec in specs:
            if not isinstance(spec, JobSpec):
                raise InvalidJobError(f"add_jobs takes JobSpec(...) values, not {quoted(spec)}.", "specs")
            checked.append(spec)
        now = await self._now()
        changes: list[Change] = []
        async for some in in_breaths(checked):
            changes += [self._addition(self._with_fitting_payload(self._checked(spec)), now) for spec in some]
        return await self._change(changes, now)

    async def update_job(self, id: str, *, namespace: str = "default", **changes: Any) -> Job:
        """Change what is given, and nothing else. A changed schedule counts from now; a run in progress goes on."""
        if changes.keys() & CALL:
            return await self._edit_job(id, namespace, lambda _: changes)
        _check_key(id, namespace)
        now = await self._now()

        def decide(job: Job | None) -> Edit:
            if job is None:
                raise JobNotFoundError(id, namespace)
            return _edited(job, self._checked(edits.edited_spec(job, changes)), now)

        (edited,) = await self._change([Decision(namespace, id, decide)], now)
        return edited

    async def _edit_job(self, id: str, namespace: str, changes_of: Callable[[Job], dict[str, Any]]) -> Job:
        """Change what *changes_of* makes of the job as it is, with nobody changing it in between.

        The description is made, and its payload checked, before the transaction: both may run code of the user's.
        """
        while True:
            job = await self.get_job(id, namespace=namespace)
            if job is None:
                raise JobNotFoundError(id, namespace)
            changes = changes_of(job)
            spec = self._checked(edits.edited_spec(job, changes))
            if changes.keys() & CALL:
                spec = self._with_fitting_payload(spec)
            now = await self._now()
            with suppress(_OutdatedError):
                (edited,) = await self._change([_Revision(namespace, id, job, spec, now)], now)
                return edited

    async def remove_job(self, id: str, *, namespace: str = "default") -> Job:
        """Remove a job, and return it as it was. Its rows stay in the run log for `keep_removed`.

        A run in progress is cancelled. A run that removes its own job goes on, and is recorded when it ends. If another
        process is about to start the job, the call waits for that, for half a second at most.
        """
        _check_key(id, namespace)
        await self._engine.ready()
        job, ran_here = await self._ask(self._remove_and_tell(namespace, id))
        if job is None:
            raise JobNotFoundError(id, namespace)
        if not ran_here:
            await self._engine.session.claimer.begun_elsewhere(job)
        return job

    async def _remove_and_tell(self, namespace: str, id: str) -> tuple[Job | None, bool]:
        caller = self._engine.session.runner.current()
        own_run = None if caller is None else caller.claimed.id
        job = await self._store.remove(namespace, id, self._clock.micros(), own_run)
        if job is None:
            return None, False
        runs = [active for active in self._engine.session.runner if active.claimed.uid == job.uid]
        for active in runs:
            if active is not caller:
                self._engine.session.runner.disown(active)
        self._engine.session.announcer.tell(EventKind.REMOVED, self._clock.micros(), job=job)
        return job, bool(runs)

    async def pause_job(self, id: str, *, namespace: str = "default") -> Job:
        """Let it not start until it is resumed. A run in progress goes on."""
        return await self._change_state(id, namespace, "paused", edits.pause)

    async def resume_job(self, id: str, *, namespace: str = "default") -> Job:
        """Let it go on, with a clean slate: no failures are held against it, and no missed runs."""
        return await self._change_state(id, namespace, "resumed", self._resume)

    def _resume(self, job: Job, now: Micros) -> terms.Change:
        self._check_user(job.user_id)
        return edits.resume(job, now)

    def _check_user(self, user_id: str | None) -> None:
        if self._require_user and user_id is None:
            raise InvalidJobError("A job needs a user_id here, since the scheduler has require_user=True.", "user_id")

    async def disable_job(self, id: str, *, namespace: str = "default", reason: str = "it was disabled by hand") -> Job:
        """Take it out of scheduling until it is resumed; *reason* tells why. A run in progress goes on."""
        _check_reason(reason)
        return await self._change_state(
            id,
            namespace,
            "disabled",
            lambda job, now: edits.disable(job, reason, now),
        )

    async def _change_state(
        self, id: str, namespace: str, kind: str, change: Callable[[Job, Micros], terms.Change]
    ) -> Job:
        _check_key(id, namespace)
        now = await self._now()

        def decide(job: Job | None) -> Edit:
            if job is None:
                raise JobNotFoundError(id, namespace)
            changed = change(job, now)
            if changed.state == job.state and not changed.skips:
                return Edit(job=job)
            return Edit(job=replace(job, state=changed.state, updated=now), skips=changed.skips, kind=kind)

        (job,) = await self._change([Decision(namespace, id, decide)], now)
        return job

    async def _now(self) -> Micros:
        if self._store.clock is self._clock:
            await self._engine.ready()  # only then is it known what it shows
        return self._clock.micros()

    async def _change(self, changes: Sequence[Change], now: Micros) -> list[Job]:
        await self._engine.ready()
        jobs = await self._ask(self._change_and_tell(changes, now))
        for job in jobs:
            if job.state.activity is not Status.IDLE:
                await self._engine.session.claimer.begun_elsewhere(job)
        return jobs

    async def _change_and_tell(self, changes: Sequence[Change], now: Micros) -> list[Job]:
        jobs: list[Job] = []
        edited = {(change.namespace, change.id) for change in changes if not _only_adds(change)}
        try:
            async with self._engine.undisturbed(edited) if edited else nullcontext():
                edits = await self._store.change(changes, now)
        except StoreError:
            self._engine.session.agenda.look_again()  # it may have happened all the same
            raise
        async for some in in_breaths(edits):
            for edit in some:
                assert edit is not None
                self._engine.session.announcer.edited(edit, now)
                jobs.append(edit.job)
        self._engine.session.agenda.learn_of(jobs)
        return jobs

    def _checked(self, spec: JobSpec) -> JobSpec:
        """*spec* as this scheduler takes it: with a known handler, a user if one is required, and no tiny interval."""
        self._check_user(spec.user_id)
        spec = replace_handler(spec, self._handlers.name_of(spec.handler))
        if self._min_interval is not None:
            raised = spec.schedule.raised_to(self._min_interval)
            if raised is not spec.schedule:
                say(
                    WARNING,
                    "The interval of %s is raised to min_interval: it runs %s",
                    spec.id or "a job",
                    raised.describe(),
                    extra=None if spec.id is None else {"job": key_of(spec.namespace, spec.id)},
                )
                spec = spec.changed(schedule=raised)
        return spec

    def _with_fitting_payload(self, spec: JobSpec) -> JobSpec:
        """*spec*, unless its payload is not what its handler takes. Who adds before the start learns of it by a run."""
        if self.status == "running":
            self._handlers.check_payload(str(spec.handler), spec.payload_json)
        return spec

    def _addition(self, spec: JobSpec, now: Micros) -> Change:
        return _Addition(spec.namespace, spec.id or uuid.uuid4().hex, spec, now)

    def _declaration(self, spec: JobSpec, now: Micros) -> Change:
        """Adding a job that is declared in code: what has not changed is left alone."""
        assert spec.id is not None
        addition = self._addition(spec, now)

        def decide(existing: Job | None) -> Edit | None:
            if existing is None:
                return addition.decide(None)
            if has_unreadable_state(existing):
                return None
            if existing.spec == spec.as_kept(existing.id, str(spec.handler)):
                return None
            return _edited(existing, spec.changed(enabled=edits.is_wanted(existing)), now)

        return Decision(spec.namespace, spec.id, decide)

    async def _disable_without_user(self, now: Micros) -> None:
        reason = "it has no user_id, and this scheduler requires one"
        for job in await self._ask(self._store.disable_without_user(reason, now)):
            say(WARNING, "Job %s is disabled: %s", job.key, reason, extra={"job": job.key})
            self._engine.session.announcer.tell(EventKind.DISABLED, now, job=job, reason=reason)

    # ============================================================ running by hand

    async def trigger_job(self, id: str, *, namespace: str = "default", payload: Json = None) -> int:
        """Run a job now, whatever its schedule, and return the id of the run as soon as it has begun.

        Its schedule and its failure count stay as they are. *payload* is for this run only.
        """
        _check_key(id, namespace)
        payload_json = None if payload is None else to_json_text(payload, "payload")
        await self._engine.ready_for_a_pass()
        if self._engine.session.runner.stopping.is_set():
            raise SchedulerStoppingError
        job = await self._engine.ask_unless_stopped(self._store.get(namespace, id))
        if job is None:
            raise JobNotFoundError(id, namespace)
        if self._handlers.find(job.handler) is None:
            raise SchedulerError(
                f"Job {quoted(id)} cannot run here: no handler {quoted(job.handler)} is registered in this process."
            )
        if payload_json is not None:
            self._handlers.check_payload(job.handler, payload_json)
        active = await self._engine.session.membership.as_node(
            lambda: self._engine.session.claimer.claim_one(namespace, id, payload_json)
        )
        if active is None:
            raise JobAlreadyRunningError(id, namespace)
        return active.claimed.id

    async def wait_for_run(self, run_id: int) -> None:
        """Wait until a run of this process is over and recorded; at once if it is not running here."""
        _check_run_id(run_id)
        for active in self._engine.session.runner:
            if active.claimed.id == run_id:
                if active is self._engine.session.runner.current():
                    raise SchedulerError(
                        f"Run {run_id} cannot wait for itself to end. Call wait_for_run() outside of its handler."
                    )
                await active.over()

    async def run_pending(self, now: datetime | None = None) -> PassSummary:
        """One pass without the loop: run what is due, in order, wait for it, and say how it went.

        One after another, or `max_concurrent` at a time.
        """
        if self._limits.max_concurrent is not None:
            self._refuse_inside_a_run("run_pending() would wait for a slot that the run which calls it may hold")
        given = None if now is None else to_micros(parse_instant(now, "now"))
        await self._engine.ready_for_a_pass()
        moment = self._clock.micros() if given is None else given
        runner = self._engine.session.runner
        tally = _Tally()
        running: set[asyncio.Task[None]] = set()
        while True:
            room = (self._limits.max_concurrent or 1) - len(running)
            if room > 0 and not runner.stopping.is_set():
                claim = partial(self._claim_for, runner, moment, room)
                started, claims = await self._engine.session.membership.as_node(claim)
                for active in started:
                    running.add(asyncio.create_task(tally.follow(active), name=f"pass {active.claimed.job.key}"))
                ran = {active.claimed.uid for active in started}
                tally.skipped += sum(bool(edit.skips) for edit in claims.edits if edit.job.uid not in ran)
                if claims.is_full and len(started) < room:
                    continue  # it left some out: there may be more behind them
            if not running:
                return tally.summary()
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    async def _claim_for(self, runner: Runner, moment: Micros, limit: int) -> tuple[list[ActiveRun], Claims]:
        """Claim what is due at *moment*, but only in the session that *runner* belongs to.

        `stop` may have ended that session while the pass waited, and another call may have begun a new one.
        """
        if runner.stopping.is_set() or self._engine.session.runner is not runner:
            return [], Claims()
        return await self._engine.session.claimer.claim(moment, limit)

    # ============================================================ reading

    async def get_job(self, id: str, *, namespace: str = "default") -> Job | None:
        """The job with this id, or None."""
        _check_key(id, namespace)
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
        """The jobs that have all that is asked for, by their next run; those without one come last."""
        texts = {"namespace": namespace, "user_id": user_id, "handler": handler, "group": group}
        for name, text in texts.items():
            if text is not None:
                _check_text(text, name)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidJobError(f"metadata is a dict of JSON values, not {quoted(metadata)}.", "metadata")
        wanted = JobFilter(
            status=None if status is None else check_choice(Status, status, "status"),
            namespace=namespace,
            user_id=user_id,
            handler=handler,
            group=group,
            priority=None if priority is None else check_choice(Priority, priority, "priority"),
            metadata=metadata,
            due_before=None if due_before is None else to_micros(parse_instant(due_before, "due_before")),
            limit=_whole(limit, "limit", smallest=0),
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
        """What ran and what did not, newest first: of one job, or of all."""
        _check_key("any" if id is None else id, "default" if namespace is None else namespace)
        wanted = RunFilter(
            namespace="default" if namespace is None and id is not None else namespace,
            id=id,
            outcome=None if outcome is None else check_choice(Outcome, outcome, "outcome"),
            limit=_whole(limit, "limit", smallest=0),
        )
        await self._engine.ready()
        return await self._ask(self._store.list_runs(wanted))

    async def get_run(self, run_id: int) -> RunRow | None:
        """One row of the run log, or None if there is none with this id."""
        _check_run_id(run_id)
        await self._engine.ready()
        rows = await self._ask(self._store.list_runs(RunFilter(run=run_id)))
        return rows[0] if rows else None

    async def run_output(self, run_id: int) -> str | None:
        """What a run wrote with `Run.write`, or its command to its standard output; None if that was nothing."""
        _check_run_id(run_id)
        await self._engine.ready()
        return await self._ask(self._store.output_of(run_id))

    async def run_stats(self, id: str, since: datetime | str | None = None, *, namespace: str = "default") -> RunStats:
        """How the runs of a job went, all that are kept or those *since* a moment."""
        _check_key(id, namespace)
        wanted = RunFilter(
            namespace=namespace, id=id, since=None if since is None else to_micros(parse_instant(since, "since"))
        )
        await self._engine.ready()
        if await self._ask(self._store.get(namespace, id)) is None:
            raise JobNotFoundError(id, namespace)
        return stats_of(await self._ask(self._store.list_runs(wanted)))

    async def preview(self, window: str | timedelta = "60m") -> list[Upcoming]:
        """What would run now or within *window*, in order. Nothing is touched."""
        now = await self._now()
        until = min(now + span(parse_interval(window)), LAST - 1)
        jobs = await self.list_jobs(due_before=from_micros(until + 1))
        for status in (Status.RUNNING, Status.QUEUED):  # they have no next run yet, and will
            jobs += [job for job in await self.list_jobs(status=status) if job.state.next_run_at is None]
        rows = [row for job in jobs for row in self._upcoming(job, now, until)]
        return sorted(rows, key=lambda row: (row.at, *order.order(row.job)))

    def _upcoming(self, job: Job, now: Micros, until: Micros) -> list[Upcoming]:
        room = Room(has_handler=self._has_handler(job))
        try:
            return list(explaining.upcoming(job, now, until, room, self._rules))
        except Exception as error:  # a schedule that no longer computes hides no others
            return [Upcoming(job=job, at=from_micros(now), retries_left=0, warnings=(f"its schedule fails: {error}",))]

    async def explain(self, id: str, *, namespace: str = "default", zone: str | tzinfo = UTC) -> Explanation:
        """Why a job is not running right now, or that it would; *zone* is that of the reader, or its name."""
        readers_zone = as_tzinfo(zone)
        job = await self.get_job(id, namespace=namespace)
        if job is None:
            raise JobNotFoundError(id, namespace)
        room = self._room_for(job, await self._rooms())
        return explaining.explain(job, self._clock.micros(), room, self._rules, readers_zone)

    def _has_handler(self, job: Job) -> bool:
        return self._handlers.find(job.handler) is not None

    async def _rooms(self) -> Rooms:
        limits = self._limits
        running = await self._ask(self._store.running_by_group()) if limits.limits_groups else {}
        return Rooms(limits.group_limit, limits.group_limits, running)

    def _room_for(self, job: Job, rooms: Rooms) -> Room:
        free_in_group = rooms.of(group_key(job.namespace, job.group) or NO_GROUP)
        queued = max(len(self._engine.session.runner) - (self._limits.max_concurrent or 0), 0)
        return Room(
            has_handler=self._has_handler(job),
            stopping=self._engine.progress.status == "stopping",
            free_slots=None
            if self._limits.max_concurrent is None
            else max(self._limits.max_concurrent - len(self._engine.session.runner), 0),
            free_in_group=None if free_in_group == float("inf") else int(free_in_group),
            has_queue=bool(self._limits.queue_size),
            free_in_queue=max((self._limits.queue_size or 0) - queued, 0),
            clock_is_believed=self._engine.session.clock_watch.is_believed,
        )

    def state(self) -> SchedulerState:
        """What the scheduler is doing."""
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
        """Whether the scheduler does its work, for a load balancer: cheap, however many jobs there are.

        The store has *timeout* seconds to answer. What is wrong is told by the answer, and never raised.
        """
        return judge(await self._engine.signs(_seconds(timeout)))

    async def nodes(self) -> list[Node]:
        """The schedulers that share the store, this one among them once it runs; who joined first comes first."""
        await self._engine.ready()
        found = await self._ask(self._store.nodes())
        return [node_of(status, self._engine.session.node.id) for status in found]

    def namespace(self, name: str) -> Namespace:
        """A view that can only see and touch the jobs of one namespace."""
        return Namespace(self, check_name(name, "namespace"))

    def events(self) -> EventStream:
        """What happens from now on: `async for event in scheduler.events()`. It ends when the scheduler has stopped.

        A reader that is slow loses its oldest events, and never slows the scheduler.
        """
        return self._engine.events.listen()

    # ============================================================ for web frameworks

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """For FastAPI, Starlette and Litestar: `FastAPI(lifespan=scheduler.lifespan)`.

        When the server ends, runs have 30 seconds to finish. Then they are cancelled, and have five to tidy up.
        """
        await self.start()
        try:
            yield
        finally:
            with _shielded():
                await self._cancel_after(self.stop())

    async def cleanup_ctx(self, app: object) -> AsyncIterator[None]:
        """For aiohttp: `app.cleanup_ctx.append(scheduler.cleanup_ctx)`. It ends as `lifespan` does."""
        async with self.lifespan(app):
            yield


class _Tally:
    """What a pass did, as it goes."""

    def __init__(self) -> None:
        self.executed = self.succeeded = self.failed = self.retry_queued = self.skipped = self.cancelled = 0

    async def follow(self, active: ActiveRun) -> None:
        """Wait until a run is recorded, and count it."""
        await active.over()
        if active.outcome is None:
            return
        self.executed += 1
        if active.outcome.is_failure:
            self.failed += 1
            self.retry_queued += (
                active.after is not None and active.after.job.state.retry_of is not None and active.after.job.enabled
            )
        elif active.outcome in (Outcome.SUCCESS, Outcome.NOOP):
            self.succeeded += 1
        elif active.outcome is Outcome.CANCELLED:
            self.cancelled += 1
        else:
            self.skipped += 1

    def summary(self) -> PassSummary:
        """The counts so far."""
        return PassSummary(
            executed=self.executed,
            succeeded=self.succeeded,
            failed=self.failed,
            retry_queued=self.retry_queued,
            skipped=self.skipped,
            cancelled=self.cancelled,
        )


class _Addition(NamedTuple):
    """Adding a job. One object and no function for each: many are added at once, and all of them are kept till then."""

    namespace: str
    id: str
    spec: JobSpec
    now: Micros

    def decide(self, existing: Job | None) -> Edit:
        """What becomes of the job with this id, whether there is one or not."""
        spec = self.spec
        if existing is None:
            return Edit(edits.add(spec, id=self.id, handler=str(spec.handler), now=self.now), (), "added")
        if spec.on_conflict is OnConflict.RAISE:
            raise JobExistsError(self.id, self.namespace)
        if spec.on_conflict is OnConflict.KEEP:
            return Edit(job=existing)
        return _edited(existing, spec, self.now)


def _only_adds(change: Change) -> bool:
    return isinstance(change, _Addition) and change.spec.on_conflict is not OnConflict.REPLACE


class _OutdatedError(SchedulerError):
    """Somebody has changed a job since it was read."""


class _Revision(NamedTuple):
    """A new description of a job, which goes for the job as it was read."""

    namespace: str
    id: str
    read: Job
    spec: JobSpec
    now: Micros

    def decide(self, job: Job | None) -> Edit:
        """What becomes of the job."""
        if job is None:
            raise JobNotFoundError(self.id, self.namespace)
        seen, is_now = ((one.uid, one.revision, edits.is_wanted(one)) for one in (self.read, job))
        if seen != is_now:
            raise _OutdatedError
        return _edited(job, self.spec, self.now)


def _edited(job: Job, spec: JobSpec, now: Micros) -> Edit:
    edited, skips = edits.edit(job, spec, handler=str(spec.handler), now=now)
    return Edit(job=edited, skips=skips, kind="disabled" if job.enabled and not edited.enabled else "updated")


def replace_handler(spec: JobSpec, handler: str) -> JobSpec:
    """*spec* with the name of its handler instead of the function."""
    return spec if spec.handler == handler else spec.changed(handler=handler)


def _store_of(store: str | Path | Store) -> Store:
    if isinstance(store, str | Path):
        text = str(store)
        if is_url(text):
            from scheduler_async.stores.postgres.store import PostgresStore  # noqa: PLC0415 - few need it

            return PostgresStore(text)
        if not text:
            raise SchedulerError(A_STORE)
        return SQLiteStore(text)
    if isinstance(store, type):
        raise SchedulerError(f"A store must be an object: pass {store.__name__}(...), not the class.")
    if not hasattr(store, "claim_due"):
        raise SchedulerError(f"A store is a path, or a store object, not {quoted(store)}.")
    return store


def _shielded() -> AbstractContextManager[object]:
    """Where we can wait: a scope of anyio that is cancelled would not let us wait for anything."""
    from anyio import CancelScope  # noqa: PLC0415 - a command that only looks at jobs needs none, and starts sooner

    return CancelScope(shield=True)


def _moment(micros: Micros | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _duration(value: str | timedelta | None) -> timedelta | None:
    return None if value is None else parse_interval(value)


def _time_for(seconds: float | None) -> str:
    return "as long as they need" if seconds is None else f"{seconds:g} s"


def _seconds(timeout: float | str | timedelta | None) -> float | None:
    if isinstance(timeout, str | timedelta):
        timeout = parse_interval(timeout).total_seconds()
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:
        raise InvalidJobError('timeout is a number of seconds from 0 up, a duration such as "30s", or None.', "timeout")
    return timeout if timeout < FOREVER else None


def _whole(number: int | None, name: str, smallest: int = 1, *, key: str = "") -> int | None:
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number < smallest:
        raise InvalidJobError(f"{name}{key} must be a whole number from {smallest} up, or None.", name)
    return min(number, MANY)


def _check_run_id(run_id: int) -> None:
    if type(run_id) is not int or run_id not in RUN_IDS:
        raise InvalidJobError(
            f"run_id must be the id of a row of run_log(), a whole number below {RUN_IDS.stop}, not {quoted(run_id)}.",
            "run_id",
        )


def _check_key(id: str, namespace: str) -> None:
    _check_text(id, "id")
    _check_text(namespace, "namespace")


def _check_text(value: object, what: str) -> None:
    """Refuse what no store can look for; *value* need not name anything that there is."""
    if not isinstance(value, str):
        raise InvalidJobError(f"The {what} is a text, not {quoted(value)}.", what)
    if "\0" in value or not (value.isascii() or _is_unicode(value)):
        raise InvalidJobError(f"The {what} must be Unicode text without NUL characters, not {quoted(value)}.", what)


def _check_reason(reason: str) -> None:
    _check_text(reason, "reason")
    if not reason.strip():
        raise InvalidJobError('The reason must say why, such as "the supplier is gone"; it is empty.', "reason")
    if len(reason) > LONGEST_REASON:
        raise InvalidJobError(
            f"The reason must have at most {LONGEST_REASON:,} characters, not {len(reason):,}. Shorten it.", "reason"
        )
    if reason == ENDED:  # the scheduler would take the job for one whose schedule has nothing left
        raise InvalidJobError(f"The reason {quoted(reason)} is reserved for the scheduler. Use other words.", "reason")


def _is_unicode(value: str) -> bool:
    """Whether *value* has no half characters (lone surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _group_limits(limits: int | Mapping[str, int] | None) -> tuple[int | None, dict[str, int]]:
    if isinstance(limits, Mapping):
        for key in limits:
            check_limited(key)
            if is_ambiguous(key):
                words = 'group_limits[%s] limits a group whose name contains "/": no limit is for one namespace alone'
                say(WARNING, words, quoted(key))
        checked = {key: _whole(limit, "group_limits", key=f"[{quoted(key)}]") for key, limit in limits.items()}
        return None, {key: limit for key, limit in checked.items() if limit is not None}
    if limits is not None and not isinstance(limits, int):
        raise InvalidJobError(
            'group_limits must be a whole number, which limits every group, or a dict such as {"mail": 2}, '
            f"not {quoted(limits)}.",
            "group_limits",
        )
    return _whole(limits, "group_limits"), {}
