"""Start and stop: the engine opens the store, starts a session, and ends both. `scheduler` is the API for users.

While the store is open, the parts of the `session` do the work. The loop claims due jobs and starts their runs; runs
end in their own time and are recorded in groups; the membership shows other processes that this one is alive. What
happens to a job is decided in `rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from logging import ERROR, INFO
from typing import TypeVar
from weakref import WeakValueDictionary

from scheduler_async.engine.checkup import NOT_OPEN
from scheduler_async.engine.health import Signs
from scheduler_async.engine.locks import Locks
from scheduler_async.engine.session import Session
from scheduler_async.engine.setting import Limits, Progress, Setting
from scheduler_async.errors import (
    SchedulerError,
    SchedulerShutdownError,
    SchedulerStoppingError,
    StoreError,
    StoreOutdatedError,
)
from scheduler_async.jobs.events import EventKind, Events
from scheduler_async.logs import say
from scheduler_async.outbox import Outbox
from scheduler_async.rules.terms import Rules
from scheduler_async.running.handlers import Handlers
from scheduler_async.shielding import carried_through
from scheduler_async.stores.messages import RunFilter
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock, SystemClock
from scheduler_async.timekeeping.instants import Micros

T = TypeVar("T")


class Engine:
    """Is the scheduler running? It runs the due jobs of a store with the handlers of this process."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Rules,
        limits: Limits,
        prepare: Callable[[Micros], Awaitable[None]],
    ) -> None:
        """*prepare* is called before the first run."""
        self.handlers = Handlers(clock)
        self.events = Events()
        self._outbox = Outbox()
        self.progress = Progress()
        self.setting = Setting(
            store=store,
            clock=clock,
            machine=SystemClock(),
            rules=rules,
            limits=limits,
            handlers=self.handlers,
            events=self.events,
            outbox=self._outbox,
            progress=self.progress,
        )
        self._store, self._clock, self._prepare = store, clock, prepare
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._abandoned: Session | None = None  # its event loop ended before stop() was called
        self._tasks: set[asyncio.Task[None]] = set()
        self.locks = Locks(self._outbox)
        self.session = self._new_session()

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which the scheduler was last used, or None. Other threads may ask, too."""
        return self._event_loop

    def _new_session(self) -> Session:
        return Session(self.setting, self.locks, self._tasks)

    def _enter_event_loop(self) -> None:
        """Adapt to the current event loop: tests and scripts stop a scheduler in one and use it in the next."""
        running = asyncio.get_running_loop()
        if self._event_loop is running:
            return
        if self.session.is_open and self._event_loop is not None and not self._event_loop.is_closed():
            raise SchedulerError("The scheduler is in use in another event loop. Stop it there first.")
        self._event_loop = running
        self.locks = Locks(self._outbox)
        self.progress.status = "stopped"
        if self.session.is_open:
            self._abandoned, self.session = self.session, self._new_session()
            self._abandoned.is_open = False
        self.handlers.forget_event_loop()

    # ============================================================ start and stop

    async def start(self) -> None:
        """Open the store, record what was interrupted, and start the loop."""
        self._enter_event_loop()
        progress = self.progress
        async with self.locks.opening:
            if progress.status != "stopped":
                raise SchedulerError(f"The scheduler is {progress.status} already. Start it once, or stop it first.")
            was_open = self.session.is_open
            if was_open and self.session.runner.stopping.is_set():  # runs without the loop have not ended yet
                raise SchedulerStoppingError
            try:
                session = await self._open()
                now = self._clock.micros()
                await self._compare_clock(session)  # before the runs of dead nodes are recorded
                await self._join(session)
                session.launcher.guard_event_loop()
                session.clock_watch.begin()
                progress.status = "running"
                progress.started_at, progress.tick_count, progress.trigger_count = now, 0, 0
                session.tasks.serve(session.janitor.keep_house(session.tasks.halt), "upkeep")
                session.tasks.loop = session.tasks.spawn(session.loop.run(), "loop")
            except BaseException:
                progress.status = "stopped"
                if not was_open:
                    await carried_through(self._close())  # in a cancelled scope of anyio, every await is cancelled
                raise
        say(INFO, "Scheduler started on %s", self._store)
        session.announcer.tell(EventKind.STARTED, now)

    async def stop(self, wait: bool, timeout: float | None, cancel: bool) -> None:
        """Stop claiming, notify the runs, wait for them or cancel them, record how they ended, and sign off."""
        self._enter_event_loop()
        async with self.locks.opening:
            await self._let_go_of_the_abandoned()
            session = self.session  # another stop() may finish first, and the store may be opened again
            if not session.is_open:
                return
            if self.progress.status != "stopped":
                self.progress.status = "stopping"
            session.runner.stopping.set()
            session.agenda.changed.set()
            if session.tasks.loop is not None:
                await asyncio.wait([session.tasks.loop])  # cancelling stop() does not cancel the pass in progress
        # Not under the lock: another stop() may have a shorter timeout.
        for active in session.runner:
            if cancel or not active.has_begun:
                session.runner.cancel(active)
        if session.tasks.writer is not None and session.tasks.writer.done():
            self._start_writer(session)  # the program has cancelled all tasks
        if wait:
            await self._wait_for_runs(session, timeout)
            await self._shut(session)
        else:
            session.tasks.spawn(self._shut_when_done(session), "shutdown")

    async def _shut_when_done(self, session: Session) -> None:
        await self._until_idle(session)
        await self._shut(session)

    async def _shut(self, session: Session) -> None:
        """Close *session* if it is open. A session that was opened since then stays open."""
        async with self.locks.opening:
            if not session.is_open:
                return
            now = self._clock.micros()
            was_started = self.progress.status != "stopped"
            try:
                await carried_through(self._close())
            finally:  # even if the store fails
                self.progress.status = "stopped"
                self.progress.started_at = self.progress.next_wake_at = None
                if was_started:
                    say(INFO, "Scheduler stopped")
                    session.announcer.tell(EventKind.STOPPED, now)
                self._outbox.send(self.events.close)  # after the last event

    async def _wait_for_runs(self, session: Session, timeout: float | None) -> None:
        """Return when every ending is committed; raise `SchedulerShutdownError` after *timeout* seconds."""
        runner = session.runner
        if len(runner) or self.locks.claiming.locked():
            waiting = asyncio.ensure_future(self._until_idle(session))
            try:
                await self._clock.wait_for_end(waiting, timeout)
            finally:
                waiting.cancel()
            if not len(runner):  # a claim in progress may bring one more run, which the error must count
                async with self.locks.claiming:
                    pass
        if len(runner):
            raise SchedulerShutdownError(timeout, len(runner))

    async def _until_idle(self, session: Session) -> None:
        while len(session.runner) or (session.is_open and self.locks.claiming.locked()):
            async with self.locks.claiming:  # a claim in progress may bring more runs
                pass
            for active in session.runner:
                await active.over()

    # ============================================================ opening and closing

    async def _open(self) -> Session:
        """Open the store for a new session, unless it is open."""
        if not self.session.is_open:
            await self._let_go_of_the_abandoned()
            other = _users.get(id(self._store))
            if other is not None and other is not self and other._store is self._store and other.session.is_open:
                raise SchedulerError(f"{self._store} is in use by another scheduler. Give each one a store of its own.")
            _users[id(self._store)] = self
            self.session = self._new_session()
            try:
                await self.setting.ask(self._store.open())
            except (StoreError, asyncio.CancelledError):
                await self.setting.ask(self._store.close())  # it may have opened, and only the answer was lost
                raise
            self.session.is_open = True
        return self.session

    async def _let_go_of_the_abandoned(self) -> None:
        if self._abandoned is not None:
            await self.setting.ask(self._store.close())
            abandoned, self._abandoned = self._abandoned, None
            abandoned.node.retire()

    async def _join(self, session: Session) -> None:
        """Become a node of the store, and recover the runs of dead nodes."""
        if session.node.has_joined:
            return
        await self._prepare(self._clock.micros())
        self._store.on_change(session.agenda.hear_of_change)
        # Before anything is read: every later change is noticed.
        version = await self.setting.ask(self._store.version())
        await session.membership.join()
        self._start_writer(session)
        tasks = session.tasks
        if self._store.is_shared:
            tasks.serve(session.membership.keep_watch(version, tasks.halt), "watch")
        tasks.serve(session.requests.keep_heeding(), "requests")
        tasks.serve(session.reporter.keep_reporting(), "reports")
        if self.setting.limits.group_rates:
            tasks.serve(session.rated_starts.keep_noting(), "starts")
        tasks.serve(session.checkup.count_due(tasks.halt), "count")

    def _start_writer(self, session: Session) -> None:
        session.tasks.writer = session.tasks.serve(session.recorder.write_endings(), "writer")

    async def _close(self) -> None:
        """Release everything. The heartbeat stops last."""
        session = self.session
        if session.launcher.watchdog is not None:
            session.launcher.watchdog.stop()
        await session.tasks.end_services()
        session.runner.close()
        await session.checkup.finish()
        async with self.locks.claiming, self.locks.rejoining:  # a claim in progress must not outlive its node
            if session.node.id is not None:
                await self._sign_off(session)
            if session.is_open:
                session.is_open = False
                session.node.close()
                self.session = self._new_session()
                await self.setting.ask(self._store.close())

    async def _sign_off(self, session: Session) -> None:
        """Leave the store tidy, and let the other nodes know that this one is gone."""
        clock_watch = session.clock_watch
        try:
            await session.claimer.settle(self._clock.micros())
            await session.rated_starts.settle()
            with suppress(StoreOutdatedError):
                if clock_watch.went_back and session.tasks.loop is not None:  # the loop had no time to follow
                    await clock_watch.go_back(self._clock.micros())
                await session.janitor.purge(threshold=0)
            await session.membership.leave()
        except Exception:
            say(ERROR, "Cannot sign off from the store; other nodes will notice when the lease expires", exc_info=True)
        session.node.retire()

    # ============================================================ for the scheduler

    async def ready(self) -> None:
        """Open the store at its first use: every call but `start` works without the loop."""
        self._enter_event_loop()
        if not self.session.is_open:
            async with self.locks.opening:
                await self._open()

    async def ready_to_run(self) -> None:
        """Like `ready`, and become a node: every claim needs an owner."""
        self._enter_event_loop()
        if not self.session.is_open or not self.session.node.has_joined:
            async with self.locks.opening:
                session = await self._open()
                await self._compare_clock(session)
                await self._join(session)

    async def ready_for_a_pass(self) -> None:
        """Like `ready_to_run`, and notice by the last run whether the clock went back, as the loop does."""
        await self.ready_to_run()
        session = self.session
        if self.progress.status == "stopped":
            if not session.clock_watch.went_back:
                await self._compare_clock(session)
            while session.clock_watch.went_back:
                await session.clock_watch.go_back(self._clock.micros())
                await session.deciding.finish()

    async def _compare_clock(self, session: Session) -> None:
        """Notice that the clock went back while the scheduler was stopped: the last run is yet to come."""
        rows = await self.ask_unless_stopped(self._store.list_runs(RunFilter(limit=1)))
        if session.clock_watch.is_behind(rows):
            session.clock_watch.went_back = True

    async def ask_unless_stopped(self, question: Awaitable[T]) -> T:
        """Ask the store; raise `SchedulerStoppingError` if it was closed meanwhile."""
        try:
            return await self.setting.ask(question)
        except StoreError as error:
            if self.session.is_open:
                raise
            raise SchedulerStoppingError from error

    async def undisturbed(self, names: Collection[tuple[str, str]], change: Callable[[], Awaitable[T]]) -> T:
        """Put back the runs of these jobs that were claimed ahead of time, and call *change* while nothing is claimed.

        Meanwhile, these jobs are idle or their handlers are running. Other changes may be made at the same time: the
        store lets those share a commit.
        """
        async with self.locks.claiming.shared():
            await self.session.claimer.put_back(names)  # in the session that is open by now
            return await change()

    async def signs(self, timeout: float | None) -> Signs:
        """Return the signs of its health. The store has *timeout* seconds to answer."""
        self._enter_event_loop()
        answer = await self.session.checkup.ask_store(timeout) if self.session.is_open else NOT_OPEN
        session = self.session  # a new one if the store was closed meanwhile
        return session.checkup.signs(answer, is_alive=session.tasks.are_alive)


# Two schedulers must not share one store object: each would close the connections of the other.
_users: WeakValueDictionary[int, Engine] = WeakValueDictionary()
