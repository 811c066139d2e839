"""Time that moves when a test says so, for the whole scheduler, its loop included."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.timekeeping.clock import Clock, Timer
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import LAST, SECOND, Micros, parse_instant, span, to_micros

# How long a step waits, in real time, for functions in threads: one that waits for the test must not hold it up.
THREAD_PATIENCE = 0.25

# How long `stop()` waits, in real time, for a handler that does not wait for this clock.
REAL_PATIENCE = 1.0

# On event loops that do not show what is ready, this many quiet turns let everything that can happen do so.
BLIND_TURNS = 50


class VirtualClock(Clock):
    """A clock for tests: hand it to a `Scheduler`, and move it with `advance`.

    It stands still otherwise, so that a test sees exactly what the scheduler does at each moment. Inside a handler,
    `await clock.sleep("30s")` takes virtual time.
    """

    tells_of_jumps = True

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

    def micros(self) -> Micros:
        """The wall clock, in microseconds since the epoch."""
        return self._wall

    def monotonic(self) -> float:
        """The seconds this clock has been advanced in all; jumps do not count."""
        return self._elapsed / SECOND

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* when the clock has been advanced by *delay* seconds."""
        timer = _VirtualTimer(callback)
        # To the nearest, since a float is a little off: a timer that fires a microsecond early finds nothing due.
        at = self._elapsed + round(delay * SECOND)
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    async def advance(self, duration: str | timedelta = timedelta(0)) -> None:
        """Move on by *duration*, through every wake-up on the way, and return when nothing more can happen.

        A handler that waits for something else than this clock does not hold it up.
        """
        if isinstance(duration, timedelta):
            if duration < timedelta(0):
                raise InvalidScheduleError("Time only advances. clock.set() makes the wall clock jump back.")
            distance = span(duration)
        elif isinstance(duration, str) and duration.strip() in ("0", "0s"):
            distance = 0
        else:
            distance = span(parse_interval(duration))
        async with self._advancing:
            await self._move_through(self._elapsed + distance, lambda: False)

    async def wait_for_end(self, work: asyncio.Future[None], timeout: float | None) -> None:
        """Wait until *work* is done, and let time pass for it: up to *timeout* seconds of this clock.

        That way `stop()` lets a handler end that sleeps on this clock, and one that never ends does not hang the test.
        """
        if self._advancing.locked():  # somebody else moves the clock
            timer = None if timeout is None else self.call_later(timeout, work.cancel)
            await asyncio.wait([work])
            if timer is not None:
                timer.cancel()
            return
        async with self._advancing:
            end = None if timeout is None else self._elapsed + int(timeout * SECOND)
            await self._move_through(end, work.done)
            if not work.done():
                # It waits for something else: for real time, for one.
                await asyncio.wait([work], timeout=None if timeout is None else min(timeout, REAL_PATIENCE))

    def set(self, now: str | datetime) -> None:
        """Make the wall clock jump, as an NTP step or a suspended laptop does."""
        if not isinstance(now, str | datetime):
            raise InvalidScheduleError(f"A clock is set to a datetime or ISO 8601 text, not {quoted(now)}.")
        self._wall = to_micros(parse_instant(now))
        for listener in list(self._listeners):
            listener()

    def on_jump(self, listener: Callable[[], object], /) -> Callable[[], None]:
        """Call *listener* at each `set`."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold `advance` up until this is done."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    @contextmanager
    def working_in_thread(self) -> Iterator[None]:
        """Hold `advance` up for a moment of real time, or until this is done."""
        self._in_threads += 1
        try:
            yield
        finally:
            self._in_threads -= 1
            self._thread_ended.set()

    async def _move_through(self, end: Micros | None, is_enough: Callable[[], bool]) -> None:
        """Move on to *end*, or as far as there are timers, through all of them and no further than is enough."""
        await self._settle()
        while not is_enough() and (at := self._next_timer()) is not None and (end is None or at <= end):
            self._move_to(max(at, self._elapsed))
            while (at := self._next_timer()) is not None and at <= self._elapsed:
                heapq.heappop(self._timers)[2].fire()
            await self._settle()
        if end is not None and not is_enough():
            self._move_to(end)

    def _move_to(self, elapsed: Micros) -> None:
        self._wall = min(self._wall + elapsed - self._elapsed, LAST)  # which a wall clock can show
        self._elapsed = elapsed

    def _next_timer(self) -> Micros | None:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def _settle(self) -> None:
        """Return when nothing more can happen without time moving."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        enough = BLIND_TURNS if ready is None else 1
        patient = True
        while True:
            quiet = 0  # turns of the event loop, one after another, in which nothing happened
            while quiet < enough:
                await asyncio.sleep(0)
                if self._busy:
                    self._idle.clear()
                    await self._idle.wait()
                    quiet = 0
                else:
                    quiet = 0 if ready else quiet + 1
            if not (self._in_threads and patient):
                return
            self._thread_ended.clear()
            try:
                async with asyncio.timeout(THREAD_PATIENCE):
                    await self._thread_ended.wait()
            except TimeoutError:
                patient = False


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
