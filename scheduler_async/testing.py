"""Virtual time for tests: the whole scheduler, including its loop, follows a clock that the test moves."""

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

# How long a step waits for functions in threads, in real time. One that waits for the test must not block it.
THREAD_PATIENCE = 0.25

# How long `stop()` waits for a handler that does not wait for this clock, in real time.
REAL_PATIENCE = 1.0

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

    Inside a handler, `await clock.sleep("30s")` takes virtual time.

    now="2026-01-05T12:00:00Z"
        What the clock shows first: an aware `datetime`, or ISO 8601 text with a time zone.
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

    async def advance(self, duration: str | timedelta = timedelta(0)) -> None:
        """Advance by *duration*, through every wake-up on the way, and return when nothing more can happen.

        A handler that waits for something other than this clock does not block it. The default lets everything happen
        that is due now.
        """
        if isinstance(duration, timedelta):
            if duration < timedelta(0):
                raise InvalidScheduleError(
                    "duration must not be negative. To make the wall clock jump back, call clock.set()."
                )
            distance = span(duration)
        elif isinstance(duration, str) and duration.strip() in ("0", "0s"):
            distance = 0
        else:
            distance = span(parse_interval(duration))
        async with self._advancing:
            await self._move_through(self._elapsed + distance, lambda: False)

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
            end = None if timeout is None else self._elapsed + int(timeout * SECOND)
            await self._move_through(end, work.done)
            if not work.done():
                # It waits for something else, such as real time.
                await asyncio.wait([work], timeout=None if timeout is None else min(timeout, REAL_PATIENCE))

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

    async def _move_through(self, end: Micros | None, is_enough: Callable[[], bool]) -> None:
        """Advance to *end*, or to the last timer, through every timer on the way, until *is_enough* returns True."""
        await self._settle()
        while not is_enough() and (at := self._next_timer()) is not None and (end is None or at <= end):
            self._move_to(max(at, self._elapsed))
            while (at := self._next_timer()) is not None and at <= self._elapsed:
                heapq.heappop(self._timers)[2].fire()
            await self._settle()
        if end is not None and not is_enough():
            self._move_to(end)

    def _move_to(self, elapsed: Micros) -> None:
        self._wall = min(self._wall + elapsed - self._elapsed, LAST)  # the last moment that a datetime can hold
        self._elapsed = elapsed

    def _next_timer(self) -> Micros | None:
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def _settle(self) -> None:
        """Return when nothing more can happen before time advances."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        enough = BLIND_TURNS if ready is None else 1
        patient = True
        while True:
            quiet = 0  # consecutive turns of the event loop in which nothing happened
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
