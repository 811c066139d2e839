"""Calls one handler under its limits, and hands over how it ended. What an ending means is decided elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from logging import ERROR, WARNING
from sys import get_asyncgen_hooks
from typing import Any

from msgspec.structs import replace

from scheduler_async.errors import PayloadError
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.events import Observer
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, Ending, Run
from scheduler_async.logs import is_heard, say
from scheduler_async.rules.terms import Transition
from scheduler_async.running.endings import ending_of, ending_of_exception
from scheduler_async.running.handlers import _current_run
from scheduler_async.running.timeouts import Deadlines
from scheduler_async.texts import traceback_of
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import Micros

Call = Callable[[Run], Awaitable[object]]


@dataclass(eq=False, slots=True)
class ActiveRun:
    """A run of this process, from its claim until its ending is committed."""

    claimed: ClaimedRun
    started_at: Micros
    is_held: bool = False
    """It does not start at once: it was claimed ahead of its time, or others go first."""
    limit: timedelta | None = None
    """How long it may take."""
    run: Run | None = None
    """As its handler got it."""
    task: asyncio.Task[object] | None = None
    has_begun: bool = False
    """The handler has been called; a run that ends before was only queued."""
    has_ended: bool = False
    """Its handler has returned, or never will be called; its task is let go of. How it ended is yet to be committed."""
    ending: Ending | None = None
    """How it ended; None if it never began."""
    ended_at: Micros = 0
    is_over: bool = False
    """How it ended is committed, or dropped."""
    timed_out: bool = False
    cancelled: bool = False
    """The scheduler ended it."""
    disowned: bool = False
    """It is not ours any more: whatever comes of it is dropped."""
    observers: Sequence[Callable[[Ending | None, BaseException | None], None]] = ()
    """Who wants to know how it ended."""
    error: BaseException | None = None
    """What its handler raised."""
    traceback: str | None = None
    """Where it raised that, as it goes to the log."""
    outcome: Outcome | None = None
    after: Transition | None = None
    """How it ended and what the job looks like then, once that is committed."""
    _news: asyncio.Event | None = None  # most runs have nobody who waits for them

    @property
    def waits(self) -> bool:
        """Whether it is yet to start."""
        return self.is_held and self.task is None and not self.has_ended

    async def begun_or_over(self) -> None:
        """Wait until the handler has been called, or never will be."""
        while not (self.has_begun or self.is_over):
            await self._wait_for_news()

    async def over(self) -> None:
        """Wait until how it ended is committed, or dropped."""
        while not self.is_over:
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    def tell(self) -> None:
        """Let those who wait see what has become of it."""
        if self._news is not None:
            self._news.set()
            self._news = None


class Runner:
    """The runs of one scheduler. Each is a task with a name; none is forgotten."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_concurrent: int | None,
        observers: Sequence[Observer],
        find: Callable[[str], Call | None],
        begin: Callable[[ActiveRun], Awaitable[bool]],
        ended: Callable[[ActiveRun, Ending | None], None],
        dropped: Callable[[ActiveRun], None],
    ) -> None:
        """*find* returns the handler of a name; *begin* is asked before a queued run may start.

        *ended* gets the ending, or None if the run never began.

        *dropped* is told when a run that is not ours any more has ended, and its slot is free.
        """
        self._clock = clock
        self._slots = None if max_concurrent is None else asyncio.Semaphore(max_concurrent)
        self._observers = observers
        self._find, self._begin, self._ended, self._dropped = find, begin, ended, dropped
        self._active: dict[int, ActiveRun] = {}
        self._running = 0
        self._deadlines = Deadlines(clock, self._time_out)
        self.stopping = asyncio.Event()

    def __len__(self) -> int:
        return len(self._active)

    @property
    def queued(self) -> int:
        """How many runs wait for a slot."""
        return sum(not active.has_begun and not active.waits for active in self)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(list(self._active.values()))

    @property
    def running(self) -> int:
        """How many handlers are running. Other threads may ask, too."""
        return self._running

    def current(self) -> ActiveRun | None:
        """The run that calls this, from its handler or from below it; None if it is not one of these."""
        run = _current_run.get()
        active = None if run is None else self._active.get(run.id)
        return active if active is not None and active.run is run else None

    def run_of(self, task: asyncio.Task[Any]) -> tuple[Job, int] | None:
        """The job and the id of the run that *task* is part of: the run itself, or a task that its handler started."""
        for active in self:
            if active.task is task:
                return active.claimed.job, active.claimed.id
        run = task.get_context().get(_current_run) if hasattr(task, "get_context") else None  # since Python 3.12
        return None if run is None else (run.job, run.id)

    def admit(self, claimed: ClaimedRun, *, is_held: bool) -> ActiveRun:
        """Take in a claimed run, before it starts."""
        active = ActiveRun(claimed, claimed.claimed_at, is_held)
        self._active[claimed.id] = active
        return active

    def start(self, active: ActiveRun, limit: timedelta | None, *, queued: bool = False) -> bool:
        """Call the handler of a run as soon as there is a slot; it may take no longer than *limit*.

        A run whose handler has been removed since the claim does not begin; then, return False.
        """
        claimed, active.limit = active.claimed, limit
        call = self._find(claimed.job.handler)
        if call is None:
            self._end_unbegun(active)
            return False
        run = self._run if self._slots is None else self._run_in_slot
        active.task = task = asyncio.get_running_loop().create_task(
            run(active, call, queued), name=f"run {claimed.id} of {claimed.key}"
        )
        task.add_done_callback(partial(self._end, active))
        return True

    def cancel(self, active: ActiveRun) -> None:
        """End a run: a handler is cancelled, a run that is queued or waits for its time does not begin."""
        waited, active.cancelled = active.waits, True
        if active.task is not None:
            active.task.cancel()
        elif waited:
            self._end_unbegun(active)

    def disown(self, active: ActiveRun) -> None:
        """End a run that is not ours any more, and drop what comes of it."""
        active.disowned = True
        self.cancel(active)

    def forget(self, active: ActiveRun) -> None:
        """Its ending is settled."""
        if self._active.pop(active.claimed.id, None) is not None and active.has_begun:
            self._running -= 1
        active.is_over = True
        active.error = active.traceback = None  # whoever holds the run longer does not need their megabytes
        active.tell()

    async def _run_in_slot(self, active: ActiveRun, call: Call, queued: bool) -> object:
        assert self._slots is not None
        async with self._slots:
            return await self._run(active, call, queued)

    async def _run(self, active: ActiveRun, call: Call, queued: bool) -> object:
        if self.stopping.is_set():
            return None
        if queued:
            found = self._find(active.claimed.job.handler)  # it may have been replaced or removed meanwhile
            if found is None or not await self._begin(active):
                return None
            call = found
        active.started_at = self._clock.micros()
        run = active.run = Run.begun(active.claimed, active.started_at, self.stopping)
        _current_run.set(run)  # this task's own context
        if self._observers:
            active.observers = [observer.run_begins(run) for observer in self._observers]
        if active.limit is not None:
            self._deadlines.add(active.limit, active)
        active.has_begun = True
        active.tell()
        self._running += 1
        entered = get_asyncgen_hooks().firstiter  # an event loop sets a new one each time that it is entered
        try:
            return await call(run)
        except SystemExit as error:  # a handler that fails, not a reason to take the others down
            return ending_of_exception(error)
        except KeyboardInterrupt as error:
            # A task of the handler's that raises it takes it out of the event loop. When that is entered again, to stop
            # the scheduler, whoever awaits the task gets it too: to raise it a second time would prevent the stop.
            if get_asyncgen_hooks().firstiter is entered:
                raise
            return ending_of_exception(error)
        finally:
            if active.limit is not None:
                self._deadlines.discard(active.limit, active)

    def _time_out(self, active: ActiveRun) -> None:
        active.timed_out = True
        if active.task is not None:
            active.task.cancel()

    def close(self) -> None:
        """Nobody runs any more."""
        self._deadlines.close()

    def _end(self, active: ActiveRun, task: asyncio.Task[object]) -> None:
        """Called when the task is done, even if it was cancelled before its first step."""
        active.task, active.has_ended = None, True
        is_cancelled = task.cancelled()
        error = active.error = None if is_cancelled else task.exception()
        if not active.has_begun:
            if error is not None and not active.disowned:
                run = active.claimed
                words = "Run %d of %s could not begin (%s); it is put back"
                say(ERROR, words, run.id, run.key, error, extra=run.named)
            self._end_unbegun(active)
        elif active.disowned:
            self._tell_observers(active, None, error)
            self._drop(active)
        else:
            assert active.run is not None
            output, active.run = active.run.written, None
            is_plain = error is None and not is_cancelled and not active.timed_out
            ending = ending_of(task.result()) if is_plain else _ending_of_trouble(active, error)
            # A payload that does not fit has not reached any code of the handler's.
            if error is not None and is_heard(WARNING) and not issubclass(type(error), PayloadError):
                active.traceback = traceback_of(error)  # here and not by the log: no lock of ours is held
            if active.observers:
                self._tell_observers(active, ending, error)
            self._ended(active, ending if output is None else replace(ending, output=output))

    def _end_unbegun(self, active: ActiveRun) -> None:
        active.has_ended = True
        if active.disowned:
            self._drop(active)
        else:
            self._ended(active, None)

    def _drop(self, active: ActiveRun) -> None:
        self.forget(active)
        self._dropped(active)

    def _tell_observers(self, active: ActiveRun, ending: Ending | None, error: BaseException | None) -> None:
        for observer in active.observers:
            observer(ending, error)


def _ending_of_trouble(active: ActiveRun, error: BaseException | None) -> Ending:
    """How a run ended that took too long, was cancelled, or raised an *error*."""
    if active.timed_out:
        assert active.limit is not None
        words = f"It ran longer than {describe_duration(active.limit)}, and was cancelled."
        return Ending(outcome=Outcome.TIMEOUT, error=words)
    if error is None:
        if active.cancelled:
            return Ending(outcome=Outcome.CANCELLED, error="The scheduler was stopped.")
        return Ending(outcome=Outcome.ERROR, error="CancelledError: the handler was cancelled from within.")
    told = ending_of_exception(error)
    return replace(told, outcome=Outcome.CANCELLED) if active.cancelled else told  # it fell over while tidying up
