"""Virtual time for tests: the whole scheduler, including its loop, follows a clock that the test moves."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakSet

from scheduler_async.errors import InvalidJobError, InvalidScheduleError, RunsNotSettledError, quoted
from scheduler_async.running.awaits import awaits_something_real
from scheduler_async.timekeeping.clock import Clock, RunsInProgress, SystemClock, Timer
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import LAST, SECOND, Micros, parse_instant, span, to_micros

# How long a step waits for functions in threads, in real time. One that waits for the test must not block it.
THREAD_PATIENCE = 0.25

# How long `stop()` waits for a handler that does not wait for this clock, in real time.
REAL_PATIENCE = 1.0

# While a step waits for something real, it looks again after these intervals, and when a run has ended.
SHORTEST_LOOK, LONGEST_LOOK = 0.001, 0.02  # seconds

# On event loops that do not show their ready callbacks, everything has settled after this many quiet turns.
BLIND_TURNS = 50


class VirtualClock(Clock):
    """A clock for tests: pass it to a `Scheduler`, and move it with `advance`. Otherwise it stands still.

    >>> import asyncio
    >>> from scheduler_async import Every, Scheduler
    >>> from scheduler_async.testing import VirtualClock
    >>> async def test_it_runs_every_hour() -> None:
    ...     clock = VirtualClock("2026-01-05T12:00:00Z")
    ...     scheduler = Scheduler(":memory:", clock=clock)
    ...     @scheduler.job(Every("1h"))
    ...     async def sync() -> None:
    ...         print("synced at", clock.now())
    ...     async with scheduler:
    ...         await clock.advance("2h")
    >>> asyncio.run(test_it_runs_every_hour())
    synced at 2026-01-05 13:00:00+00:00
    synced at 2026-01-05 14:00:00+00:00

    Inside a handler, `await clock.sleep("30s")` takes virtual time. `advance` waits for a handler that awaits something
    real, such as a thread, a socket or `asyncio.sleep`.

    now="2026-01-05T12:00:00Z"
        What the clock shows first: an aware `datetime`, or ISO 8601 text with a time zone.
    """

    tells_of_jumps = True
    is_virtual = True

    def __init__(self, now: str | datetime = "2026-01-05T12:00:00Z") -> None:
        self._wall = to_micros(parse_instant(now))
        self._elapsed: Micros = 0
        self._timers: list[tuple[Micros, int, _VirtualTimer]] = []
        self._numbers = count()
        self._listeners: list[Callable[[], object]] = []
        self._busy = 0
        self._idle = asyncio.Event()
        self._in_threads = 0
        self._thread_ended = asyncio.Event()
        self._advancing = asyncio.Lock()
        self._machine = SystemClock()
        self._schedulers: WeakSet[RunsInProgress] = WeakSet()

    def micros(self) -> Micros:
        """Return the time of the wall clock, in microseconds since the epoch."""
        return self._wall

    def monotonic(self) -> float:
        """Return by how many seconds the clock has been advanced in total; jumps do not count."""
        return self._elapsed / SECOND

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* after the clock has been advanced by *delay* seconds."""
        timer = _VirtualTimer(callback)
        # Rounded, since a float is not exact: a timer that fires a microsecond early finds nothing due.
        at = self._elapsed + round(delay * SECOND)
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    async def advance(
        self,
        duration: str | timedelta = timedelta(0),
        *,
        real_timeout: str | timedelta | float = "10s",
        wait_for_runs: bool = True,
    ) -> None:
        """Advance by *duration*, through every wake-up on the way, and return when nothing more can happen.

        The default lets everything happen that is due now.

        While a handler awaits something real, the clock stands still and the step waits, for up to *real_timeout* of
        real time, in seconds or as a duration. After that, it raises `RunsNotSettledError`, which names the job. Real
        is all that happens outside of the tasks of this process: `asyncio.sleep`, a plain function in a thread, a
        socket, a subprocess, or a bare `Future`.

        A handler does not hold up the clock if it waits for the clock itself, for `run.stopping`, or for an event, a
        lock, a condition, a semaphore or a queue of asyncio: only another task can release it, such as the test. If it
        waits for tasks of its own, it waits for what those wait for. A timeout around such a wait is not real either.

        With *wait_for_runs* set to False, the clock waits for no handler, except for a moment for functions in
        threads.
        """
        distance, patience = _distance(duration), _seconds(real_timeout)
        if not isinstance(wait_for_runs, bool):
            raise InvalidJobError(f"wait_for_runs must be True or False, not {quoted(wait_for_runs)}.", "wait_for_runs")
        settle = partial(self._settle_runs, patience) if wait_for_runs else self._settle
        async with self._advancing:
            await self._move_through(self._elapsed + distance, lambda: False, settle)

    async def wait_for_end(self, work: asyncio.Future[None], timeout: float | None) -> None:
        """Wait until *work* is done, and advance the clock by up to *timeout* seconds for it.

        So `stop()` lets a handler end that sleeps on this clock, and a handler that never ends does not hang the test.
        """
        if self._advancing.locked():  # another task advances the clock
            timer = None if timeout is None else self.call_later(timeout, work.cancel)
            await asyncio.wait([work])
            if timer is not None:
                timer.cancel()
            return
        async with self._advancing:
            patience = REAL_PATIENCE if timeout is None else min(timeout, REAL_PATIENCE)
            await self._let_runs_go_on(self._machine.monotonic() + patience)
            end = None if timeout is None else self._elapsed + int(timeout * SECOND)
            await self._move_through(end, work.done, self._settle)
            if not work.done():
                # It waits for something else, such as real time.
                await asyncio.wait([work], timeout=None if timeout is None else patience)

    def set(self, now: str | datetime) -> None:
        """Make the wall clock jump to *now*, as after an NTP step or a suspend."""
        if not isinstance(now, str | datetime):
            raise InvalidScheduleError(f"now must be a datetime or an ISO 8601 string, not {quoted(now)}.")
        self._wall = to_micros(parse_instant(now))
        for listener in list(self._listeners):
            listener()

    def on_jump(self, listener: Callable[[], object], /) -> Callable[[], None]:
        """Call *listener* at each `set`. Return a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def follow(self, runs: RunsInProgress, /) -> None:
        """Learn of the runs of a scheduler that goes by this clock, so that `advance` can wait for them."""
        self._schedulers.add(runs)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Make `advance` wait until the scope ends."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    @contextmanager
    def working_in_thread(self) -> Iterator[None]:
        """Make `advance` wait until the scope ends, or for a moment of real time."""
        self._in_threads += 1
        try:
            yield
        finally:
            self._in_threads -= 1
            self._thread_ended.set()

    async def _move_through(
        self, end: Micros | None, is_enough: Callable[[], bool], settle: Callable[[], Awaitable[None]]
    ) -> None:
        """Advance to *end*, or to the last timer, through every timer on the way, until *is_enough* returns True.

        *settle* returns when nothing more can happen before time advances.
        """
        await settle()
        while not is_enough() and (at := self._next_timer()) is not None and (end is None or at <= end):
            self._move_to(max(at, self._elapsed))
            while (at := self._next_timer()) is not None and at <= self._elapsed:
                heapq.heappop(self._timers)[2].fire()
            await settle()
        if end is not None and not is_enough():
            self._move_to(end)

    def _move_to(self, elapsed: Micros) -> None:
        self._wall = min(self._wall + elapsed - self._elapsed, LAST)  # the last moment that a datetime can hold
        self._elapsed = elapsed

    def _next_timer(self) -> Micros | None:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def _settle_runs(self, patience: float) -> None:
        """Return when nothing more can happen before time advances, and no handler awaits something real.

        Raise `RunsNotSettledError` after *patience* seconds of real time.
        """
        stuck = await self._let_runs_go_on(self._machine.monotonic() + patience)
        if stuck:
            raise RunsNotSettledError(patience, tuple(stuck))

    async def _let_runs_go_on(self, deadline: float) -> list[str]:
        """Wait until no handler awaits something real. At *deadline*, return the jobs whose handlers still do."""
        look = SHORTEST_LOOK
        while True:
            await self._settle_tasks()
            waiting = self._waiting_for_something_real()
            left = deadline - self._machine.monotonic()
            if not waiting or left <= 0:
                return sorted(waiting)
            runs = [task for tasks in waiting.values() for task in tasks]
            await asyncio.wait(runs, timeout=min(look, left), return_when=asyncio.FIRST_COMPLETED)
            look = min(look * 2, LONGEST_LOOK)

    def _waiting_for_something_real(self) -> dict[str, list[asyncio.Task[Any]]]:
        """Return the jobs whose handlers await something real, with their tasks."""
        runs = (run for scheduler in self._schedulers for run in scheduler.in_progress())
        return {job: list(tasks) for job, tasks in runs if any(map(awaits_something_real, tasks))}

    async def _settle_tasks(self) -> None:
        """Return when no task can go on by itself, and the store is idle."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        enough = BLIND_TURNS if ready is None else 1
        quiet = 0  # consecutive turns of the event loop in which nothing happened
        while quiet < enough:
            await asyncio.sleep(0)
            if self._busy:
                self._idle.clear()
                await self._idle.wait()
                quiet = 0
            else:
                quiet = 0 if ready else quiet + 1

    async def _settle(self) -> None:
        """Return when nothing more can happen before time advances, whatever handlers wait for."""
        patient = True
        while True:
            await self._settle_tasks()
            if not (self._in_threads and patient):
                return
            self._thread_ended.clear()
            try:
                async with asyncio.timeout(THREAD_PATIENCE):
                    await self._thread_ended.wait()
            except TimeoutError:
                patient = False


def _distance(duration: str | timedelta) -> Micros:
    """Return how far to advance."""
    if isinstance(duration, timedelta):
        if duration < timedelta(0):
            raise InvalidScheduleError(
                "duration must not be negative. To make the wall clock jump back, call clock.set()."
            )
        return span(duration)
    if isinstance(duration, str) and duration.strip() in ("0", "0s"):
        return 0
    return span(parse_interval(duration))


def _seconds(real_timeout: str | timedelta | float) -> float:
    """Return how long to wait for something real."""
    if isinstance(real_timeout, str | timedelta):
        return parse_interval(real_timeout).total_seconds()
    if not isinstance(real_timeout, int | float) or isinstance(real_timeout, bool) or not real_timeout >= 0:
        raise InvalidJobError(
            f'real_timeout must be a duration such as "10s", or seconds from 0 up, not {quoted(real_timeout)}.',
            "real_timeout",
        )
    return real_timeout


class _VirtualTimer:
    """A callback that may be cancelled."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    @property
    def is_cancelled(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()
