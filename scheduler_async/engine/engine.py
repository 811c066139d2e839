"""Start and stop: the engine opens the store, sets a session going, and closes both. What users call is in `scheduler`.

While the store is open, the parts of the `session` do the work. The loop claims what is due and starts it; runs end in
their own time and are recorded in groups; the membership shows other processes that this one lives. What happens to a
job is decided in `rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
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
    """Is the scheduler running? It runs what is due in a store, with the handlers it is given."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rules: Rules,
        limits: Limits,
        prepare: Callable[[Micros], Awaitable[None]],
    ) -> None:
        """*prepare* does what comes before anything is run."""
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
        self._abandoned: Session | None = None  # its event loop ended before the scheduler was stopped
        self._tasks: set[asyncio.Task[None]] = set()
        self.locks = Locks(self._outbox)
        self.session = self._new_session()

    def _new_session(self) -> Session:
        return Session(self.setting, self.locks, self._tasks)

    def _enter_event_loop(self) -> None:
        """A scheduler may be stopped in one event loop and used in the next, as tests and scripts do."""
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
        """Open the store, take up what was interrupted, and begin the loop."""
        self._enter_event_loop()
        progress = self.progress
        async with self.locks.opening:
            if progress.status != "stopped":
                raise SchedulerError(f"The scheduler is {progress.status} already. Start it once, or stop it first.")
            was_open = self.session.is_open
            if was_open and self.session.runner.stopping.is_set():  # what it ran without the loop has not ended
                raise SchedulerStoppingError
            try:
                session = await self._open()
                now = self._clock.micros()
                await self._compare_clock(session)  # before what dead nodes left behind is recorded
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
                    await carried_through(self._close())  # in a cancelled scope of anyio, nothing is waited for
                raise
        say(INFO, "Scheduler started on %s", self._store)
        session.announcer.tell(EventKind.STARTED, now)

    async def stop(self, wait: bool, timeout: float | None, cancel: bool) -> None:
        """Stop claiming, tell the runs, wait for them or cancel them, record how they ended, and sign off."""
        self._enter_event_loop()
        async with self.locks.opening:
            await self._let_go_of_the_abandoned()
            session = self.session  # another stop() may be done first, and the store be opened again
            if not session.is_open:
                return
            if self.progress.status != "stopped":
                self.progress.status = "stopping"
            session.runner.stopping.set()
            session.agenda.changed.set()
            if session.tasks.loop is not None:
                await asyncio.wait([session.tasks.loop])  # who cancels us does not cancel the pass in progress
        # Not under the lock: another stop() may be in more of a hurry.
        for active in session.runner:
            if cancel or not active.has_begun:
                session.runner.cancel(active)
        if session.tasks.writer is not None and session.tasks.writer.done():
            self._start_writer(session)  # somebody cancelled all tasks there were
        if wait:
            await self._wait_for_runs(session, timeout)
            await self._shut(session)
        else:
            session.tasks.spawn(self._shut_when_done(session), "shutdown")

    async def _shut_when_done(self, session: Session) -> None:
        await self._until_idle(session)
        await self._shut(session)

    async def _shut(self, session: Session) -> None:
        """Close *session*, unless that is closed already: what was opened since then stays open."""
        async with self.locks.opening:
            if not session.is_open:
                return
            now = self._clock.micros()
            was_started = self.progress.status != "stopped"
            try:
                await carried_through(self._close())
            finally:  # whatever the store says about it
                self.progress.status = "stopped"
                self.progress.started_at = self.progress.next_wake_at = None
                if was_started:
                    say(INFO, "Scheduler stopped")
                    session.announcer.tell(EventKind.STOPPED, now)
                self._outbox.send(self.events.close)  # after the last event

    async def _wait_for_runs(self, session: Session, timeout: float | None) -> None:
        """Return when every ending is committed; `SchedulerShutdownError` if that takes longer."""
        runner = session.runner
        if len(runner) or self.locks.claiming.locked():
            waiting = asyncio.ensure_future(self._until_idle(session))
            try:
                await self._clock.wait_for_end(waiting, timeout)
            finally:
                waiting.cancel()
            if not len(runner):  # a claim under way may bring one more run, of which nobody would be told
                async with self.locks.claiming:
                    pass
        if len(runner):
            raise SchedulerShutdownError(timeout, len(runner))

    async def _until_idle(self, session: Session) -> None:
        while len(session.runner) or (session.is_open and self.locks.claiming.locked()):
            async with self.locks.claiming:  # a claim under way is about to bring more
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
                await self.setting.ask(self._store.close())  # it may have opened, and only the answer be lost
                raise
            self.session.is_open = True
        return self.session

    async def _let_go_of_the_abandoned(self) -> None:
        if self._abandoned is not None:
            await self.setting.ask(self._store.close())
            abandoned, self._abandoned = self._abandoned, None
            abandoned.node.retire()

    async def _join(self, session: Session) -> None:
        """Become a node of the store, and take up what dead nodes left behind."""
        if session.node.has_joined:
            return
        await self._prepare(self._clock.micros())
        self._store.on_change(session.agenda.hear_of_change)
        # Before anything is read: what changes from now on is news.
        version = await self.setting.ask(self._store.version())
        await session.membership.join()
        self._start_writer(session)
        tasks = session.tasks
        if self._store.is_shared:
            tasks.serve(session.membership.keep_watch(version, tasks.halt), "watch")
        tasks.serve(session.checkup.count_due(tasks.halt), "count")

    def _start_writer(self, session: Session) -> None:
        session.tasks.writer = session.tasks.serve(session.recorder.write_endings(), "writer")

    async def _close(self) -> None:
        """Let go of everything. The heartbeat stops last."""
        session = self.session
        if session.launcher.watchdog is not None:
            session.launcher.watchdog.stop()
        await session.tasks.end_services()
        session.runner.close()
        await session.checkup.finish()
        async with self.locks.claiming, self.locks.rejoining:  # a claim under way must not outlive its node
            if session.node.id is not None:
                await self._sign_off(session)
            if session.is_open:
                session.is_open = False
                session.node.close()
                self.session = self._new_session()
                await self.setting.ask(self._store.close())

    async def _sign_off(self, session: Session) -> None:
        """Leave the store tidy, and let others know that this node is gone."""
        clock_watch = session.clock_watch
        try:
            await session.claimer.settle(self._clock.micros())
            with suppress(StoreOutdatedError):
                if clock_watch.went_back and session.tasks.loop is not None:  # which noticed it when it had to end
                    await clock_watch.go_back(self._clock.micros())
                await session.janitor.purge(threshold=0)
            await session.membership.leave()
        except Exception:
            say(ERROR, "Cannot sign off from the store; others will notice when the lease runs out", exc_info=True)
        session.node.retire()

    # ============================================================ what callers need

    async def ready(self) -> None:
        """Open the store when it is first needed: every call but `start` works without the loop."""
        self._enter_event_loop()
        if not self.session.is_open:
            async with self.locks.opening:
                await self._open()

    async def ready_to_run(self) -> None:
        """As `ready`, and as a node: whatever is claimed must have an owner."""
        self._enter_event_loop()
        if not self.session.is_open or not self.session.node.has_joined:
            async with self.locks.opening:
                session = await self._open()
                await self._compare_clock(session)
                await self._join(session)

    async def ready_for_a_pass(self) -> None:
        """As `ready_to_run`, and notice a clock that went back, as the loop does: by what was recorded last."""
        await self.ready_to_run()
        session = self.session
        if self.progress.status == "stopped":
            if not session.clock_watch.went_back:
                await self._compare_clock(session)
            if session.clock_watch.went_back:
                await session.clock_watch.go_back(self._clock.micros())

    async def _compare_clock(self, session: Session) -> None:
        """Notice a clock that went back while nobody looked: what was recorded last is yet to come."""
        rows = await self.ask_unless_stopped(self._store.list_runs(RunFilter(limit=1)))
        if session.clock_watch.is_behind(rows):
            session.clock_watch.went_back = True

    async def ask_unless_stopped(self, question: Awaitable[T]) -> T:
        """Ask the store; `SchedulerStoppingError` if it was closed meanwhile."""
        try:
            return await self.setting.ask(question)
        except StoreError as error:
            if self.session.is_open:
                raise
            raise SchedulerStoppingError from error

    @asynccontextmanager
    async def undisturbed(self, names: Collection[tuple[str, str]]) -> AsyncIterator[None]:
        """Claim nothing for a while, and take back what was claimed of these jobs ahead of its time.

        Whatever is decided about them meanwhile is about jobs that are idle, or whose handlers run.
        """
        async with self.locks.claiming:
            await self.session.claimer.put_back(names)  # of the session that is open by now
            yield

    async def signs(self, timeout: float | None) -> Signs:
        """Return what shows whether it works. The store has *timeout* seconds to answer."""
        self._enter_event_loop()
        answer = await self.session.checkup.ask_store(timeout) if self.session.is_open else NOT_OPEN
        session = self.session  # another one, should the store have been closed meanwhile
        return session.checkup.signs(answer, is_alive=session.tasks.are_alive)


# Two schedulers with one store object would take each other's connections.
_users: WeakValueDictionary[int, Engine] = WeakValueDictionary()
