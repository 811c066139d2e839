"""Calls handlers under their limits, and reports how they ended. `rules` decide what an ending means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from logging import ERROR, WARNING
from sys import get_asyncgen_hooks
from typing import Any

from msgspec.structs import replace

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.events import Observer
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, Ending, Reporter, Run, cancelled_on_request
from scheduler_async.jobs.stop_signal import Stopping
from scheduler_async.logs import say
from scheduler_async.running.active_run import (
    CANCELLED,
    CLAIMED,
    DISOWNED,
    ENDED,
    HELD,
    REQUESTED,
    STARTING,
    TIMED_OUT,
    ActiveRun,
    Interference,
)
from scheduler_async.running.endings import SUCCESS, ending_of, ending_of_exception, traceback_for_record
from scheduler_async.running.handlers import _current_run
from scheduler_async.running.timeouts import Deadlines
from scheduler_async.stores.cache import Cache
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.durations import describe_duration

Call = Callable[[Run], Awaitable[object]]

# For so many jobs, remember that a result of theirs was left out.
MOST_WARNED = 10_000


class Runner:
    """The runs of one scheduler. Each is a task with a name, and none is lost."""

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
        reporter: Reporter | None = None,
    ) -> None:
        """*find* returns the handler of a name. *begin* returns whether a queued run may start.

        *ended* is called with the ending, or with None if the run never began.

        *dropped* is called instead when a run has ended that this node no longer owns.

        *reporter* stores what runs report while they go on.
        """
        self._clock = clock
        self._slots = None if max_concurrent is None else asyncio.Semaphore(max_concurrent)
        self._observers = observers
        self._find, self._begin, self._ended, self._dropped = find, begin, ended, dropped
        self._reporter = reporter
        self._active: dict[int, ActiveRun] = {}
        self._running = 0
        self._deadlines = Deadlines(clock, self._time_out)
        self._warned: Cache[int, None] = Cache(MOST_WARNED)
        self.stopping = Stopping()
        clock.follow(self)

    def __len__(self) -> int:
        return len(self._active)

    @property
    def queued(self) -> int:
        """Return how many runs wait for a slot."""
        return sum(not active.has_begun and not active.is_held for active in self)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(list(self._active.values()))

    @property
    def running(self) -> int:
        """Return how many handlers are running. Other threads may ask, too."""
        return self._running

    def find(self, run_id: int) -> ActiveRun | None:
        """Return the run with this id; None if it is not one of these."""
        return self._active.get(run_id)

    def current(self) -> ActiveRun | None:
        """Return the run whose handler, directly or indirectly, makes this call; None if it is not one of these."""
        run = _current_run.get()
        active = None if run is None else self._active.get(run.id)
        return active if active is not None and active.run is run else None

    def run_of(self, task: asyncio.Task[Any]) -> tuple[Job, int] | None:
        """Return the job and the id of the run that *task* is, or that has started *task*."""
        for active in self:
            if active.task is task:
                return active.claimed.job, active.claimed.id
        run = task.get_context().get(_current_run) if hasattr(task, "get_context") else None  # since Python 3.12
        return None if run is None else (run.job, run.id)

    def in_progress(self) -> list[tuple[str, list[asyncio.Task[Any]]]]:
        """Return the job and the tasks of each run whose handler has been called and has not returned.

        Since Python 3.12, the tasks that the handler has started are among them.
        """
        found = {id(active.run): (active.claimed.key, [active.task]) for active in self if active.task and active.run}
        for task in asyncio.all_tasks() if found else ():
            run = task.get_context().get(_current_run) if hasattr(task, "get_context") else None
            if id(run) in found:
                found[id(run)][1].append(task)
        return list(found.values())

    def admit(self, claimed: ClaimedRun, *, is_held: bool) -> ActiveRun:
        """Add a claimed run, before it starts."""
        active = ActiveRun(claimed, HELD if is_held else CLAIMED)
        self._active[claimed.id] = active
        return active

    def start(self, active: ActiveRun, limit: timedelta | None, *, queued: bool = False) -> bool:
        """Call the handler of a run as soon as a slot is free; cancel it after *limit*.

        Return False if the run does not begin, since its handler was removed after the claim.
        """
        claimed, active.limit = active.claimed, limit
        call = self._find(claimed.job.handler)
        if call is None:
            self._end_unbegun(active)
            return False
        active.step(STARTING)
        run = self._run if self._slots is None else self._run_in_slot
        active.task = task = asyncio.get_running_loop().create_task(
            run(active, call, queued), name=f"run {claimed.id} of {claimed.key}"
        )
        task.add_done_callback(partial(self._end, active))
        return True

    def cancel(self, active: ActiveRun) -> None:
        """Cancel the handler of a run; a run that has not begun does not begin."""
        self._interfere(active, CANCELLED)
        if active.is_held:
            self._end_unbegun(active)

    def cancel_on_request(self, active: ActiveRun, reason: str | None) -> None:
        """Cancel a run for a caller, and do not run it again. If its handler has returned, nothing changes."""
        if active.has_ended or (active.task is not None and active.task.done()):
            return
        if active.interference < REQUESTED:
            active.reason = reason
            self._interfere(active, REQUESTED)
            if active.is_held:
                self._end_unbegun(active)

    def disown(self, active: ActiveRun) -> None:
        """Cancel a run that this node no longer owns, and drop its result."""
        active.interfere(DISOWNED)
        self.cancel(active)

    def forget(self, active: ActiveRun) -> None:
        """Let go of a run whose ending is committed, or dropped."""
        if self._active.pop(active.claimed.id, None) is not None and active.began_at is not None:
            self._running -= 1
        active.settle()

    async def _run_in_slot(self, active: ActiveRun, call: Call, queued: bool) -> object:
        assert self._slots is not None
        async with self._slots:
            return await self._run(active, call, queued)

    async def _run(self, active: ActiveRun, call: Call, queued: bool) -> object:
        if self.stopping.is_set():
            return None
        if queued:
            found = self._find(active.claimed.job.handler)  # replaced or removed meanwhile?
            if found is None or not await self._begin(active):
                return None
            call = found
        now = self._clock.micros()
        run = Run.begun(active.claimed, now, self.stopping, self._reporter)
        _current_run.set(run)  # in the context of this task alone
        if self._observers:
            active.observers = [observer.run_begins(run) for observer in self._observers]
        if active.limit is not None:
            self._deadlines.add(active.limit, active)
        active.begin(run, now)
        self._running += 1
        entered = get_asyncgen_hooks().firstiter  # an event loop sets a new one whenever it is entered
        try:
            return await call(run)
        except SystemExit as error:  # a handler that fails must not take the others down
            active.error = error
            return ending_of_exception(error)
        except KeyboardInterrupt as error:
            # A task of the handler that raises it leaves the event loop with it. When the loop is entered again, to
            # stop the scheduler, awaiting the task raises it again. A second exit would prevent the stop.
            if get_asyncgen_hooks().firstiter is entered:
                raise
            active.error = error
            return ending_of_exception(error)
        finally:
            if active.limit is not None:
                self._deadlines.discard(active.limit, active)

    def _time_out(self, active: ActiveRun) -> None:
        self._interfere(active, TIMED_OUT)

    def _interfere(self, active: ActiveRun, reason: Interference) -> None:
        active.interfere(reason)
        if active.run is not None:
            active.run.tell_to_stop()  # a thread cannot be cancelled
        if active.task is not None:
            active.task.cancel()

    def close(self) -> None:
        """Cancel the timers. No handler is running any more."""
        self._deadlines.close()

    def _end(self, active: ActiveRun, task: asyncio.Task[object]) -> None:
        """Report how a run ended. Called when its task is done, even if that was cancelled before its first step."""
        active.task = None
        raised = None if task.cancelled() else task.exception()
        error = active.error = active.error if raised is None else raised
        if active.began_at is None:
            if error is not None:
                self._report_false_start(active, error)
            self._end_unbegun(active)
            return
        active.step(ENDED)
        if active.interference is DISOWNED:
            self._tell_observers(active, None)
            self._drop(active)
            return
        ending = self._ending_of(active, task)  # not under a lock: this calls user code
        if active.observers:
            self._tell_observers(active, ending)
        self._ended(active, ending)

    def _ending_of(self, active: ActiveRun, task: asyncio.Task[object]) -> Ending:
        """Return how a run ended, with what its handler left; let go of what the handler got."""
        run = active.run
        assert run is not None
        active.run = None
        if active.interference >= TIMED_OUT or task.cancelled() or task.exception() is not None:
            ending = _ending_of_trouble(active)
        else:
            answer = task.result()
            ending = SUCCESS if answer is None else ending_of(answer, partial(self._warn_of_result, active.claimed))
        if run.has_left_nothing:
            return ending
        output, progress, cursor = run.written, run.reported, run.new_cursor
        if cursor is not None and ending.outcome.is_success:
            ending = replace(ending, cursor=cursor)
        return ending if output is None and progress is None else replace(ending, output=output, progress=progress)

    def _warn_of_result(self, run: ClaimedRun, problem: str) -> None:
        """Warn that the result of a run is not kept, once for each job."""
        if run.uid not in self._warned:
            self._warned.put(run.uid, None)
            words = "Run %d of %s succeeded, but the value that its handler returned is not kept: %s"
            say(WARNING, words, run.id, run.key, problem, extra=run.named)

    def _end_unbegun(self, active: ActiveRun) -> None:
        active.step(ENDED)
        if active.is_disowned:
            self._drop(active)
        else:
            is_asked = active.interference is REQUESTED
            self._ended(active, cancelled_on_request(active.reason) if is_asked else None)

    def _report_false_start(self, active: ActiveRun, error: BaseException) -> None:
        if not active.is_disowned:
            run = active.claimed
            words = "Run %d of %s could not begin (%s); putting it back"
            say(ERROR, words, run.id, run.key, error, extra=run.named)

    def _drop(self, active: ActiveRun) -> None:
        self.forget(active)
        self._dropped(active)

    def _tell_observers(self, active: ActiveRun, ending: Ending | None) -> None:
        for observer in active.observers:
            observer(ending, active.error)


def _ending_of_trouble(active: ActiveRun) -> Ending:
    """Return how a run ended that took too long, was cancelled, or raised an exception."""
    if active.interference is TIMED_OUT:
        assert active.limit is not None
        words = f"It ran longer than {describe_duration(active.limit)}, and was cancelled."
        return Ending(outcome=Outcome.TIMEOUT, error=words, traceback=traceback_for_record(active.error))
    if active.interference is REQUESTED:
        ending = cancelled_on_request(active.reason)
        return ending if active.error is None else replace(ending, error=ending_of_exception(active.error).error)
    was_cancelled = active.interference is CANCELLED
    if active.error is not None:
        ending = ending_of_exception(active.error)
        return replace(ending, outcome=Outcome.CANCELLED) if was_cancelled else ending  # it failed while tidying up
    if was_cancelled:
        return Ending(outcome=Outcome.CANCELLED, error="The scheduler was stopped.")
    return Ending(outcome=Outcome.ERROR, error="CancelledError: the handler was cancelled from within.")
