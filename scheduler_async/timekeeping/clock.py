"""Clocks. Only this module asks the machine for the time, and only this module waits for it.

The wall clock decides when a job is due. The monotonic clock, which never jumps, measures how long to sleep.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Protocol

from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import SECOND, Micros, from_micros


class Timer(Protocol):
    """A scheduled callback, as `Clock.call_later` returns it."""

    def cancel(self) -> None:
        """Cancel the callback."""


class RunsInProgress(Protocol):
    """The runs of a scheduler, for a clock that waits for them."""

    def in_progress(self) -> Iterable[tuple[str, Iterable[asyncio.Task[Any]]]]:
        """Return the job and the tasks of each run whose handler has been called and has not returned."""


_UNWATCHED = nullcontext()


class Clock(ABC):
    """The clock that a scheduler goes by: `SystemClock`, or `scheduler_async.testing.VirtualClock` in tests."""

    tells_of_jumps = False
    """Whether the clock calls the listeners of `on_jump`, so that the scheduler need not wake up to look for jumps."""

    is_virtual = False
    """Whether a test moves the clock. When a test ends, runs in progress are cancelled."""

    @abstractmethod
    def micros(self) -> Micros:
        """Return the time of the wall clock, in microseconds since the epoch."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds that never go back, from an unknown beginning."""

    @abstractmethod
    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* after *delay* seconds."""

    def now(self) -> datetime:
        """Return the time of the wall clock, as a UTC datetime."""
        return from_micros(self.micros())

    async def wait(self, event: asyncio.Event, timeout: float | None = None) -> bool:
        """Wait until *event* is set, or for *timeout* seconds; return whether it was set."""
        if event.is_set() or timeout is None:
            return await event.wait()
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        waiter = asyncio.ensure_future(event.wait())
        timer = self.call_later(max(timeout, 0.0), waiter.cancel)
        try:
            return await waiter
        except asyncio.CancelledError:
            if task is not None and task.cancelling() > cancelled_before:
                raise
            return False
        finally:
            timer.cancel()
            if (
                not waiter.done() and not waiter.get_loop().is_closed()
            ):  # a program may end without stopping the scheduler
                waiter.cancel()

    async def wait_for_end(self, work: asyncio.Future[None], timeout: float | None) -> None:
        """Wait until *work* is done, or for *timeout* seconds."""
        await asyncio.wait([work], timeout=timeout)

    async def sleep(self, duration: str | timedelta) -> None:
        """Wait for a *duration* by this clock, such as "30s"."""
        await self.wait(asyncio.Event(), parse_interval(duration).total_seconds())

    def on_jump(self, _listener: Callable[[], object], /) -> Callable[[], None]:
        """Call a listener when the wall clock jumps, if this clock knows. Return a function that ends it."""
        return lambda: None

    def follow(self, _runs: RunsInProgress, /) -> None:  # noqa: B027 - only a clock of tests needs to know
        """Learn of the runs of a scheduler that goes by this clock."""

    def working(self) -> AbstractContextManager[None]:
        """Return a scope for work that is under way off the event loop, such as a query to the store."""
        return _UNWATCHED

    def working_in_thread(self) -> AbstractContextManager[None]:
        """Return a scope for a function that runs in a thread, which may take any time."""
        return _UNWATCHED


class SystemClock(Clock):
    """The clock of the machine."""

    def micros(self) -> Micros:
        """Return the time of the wall clock, in microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds that never go back, from an unknown beginning."""
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* after *delay* seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)


# An error of less than a second is corrected gradually, so that the clock never goes back.
STEP: Micros = SECOND
SLEW = 0.1  # seconds per second


class SharedClock(SystemClock):
    """The clock of a store that machines share: its time when it was last read, plus the time that has passed since.

    Before the first reading, it is the clock of this machine. After that, a jump of the wall clock here has no effect.
    """

    def __init__(self) -> None:
        self._read_at: Micros | None = None  # by the monotonic clock
        self._offset: Micros = 0  # from the monotonic clock, when it was last read
        self._wrong: Micros = 0  # the error that is still to be corrected

    def micros(self) -> Micros:
        """Return the time of the store, in microseconds since the epoch."""
        if self._read_at is None:
            return super().micros()
        elapsed = time.monotonic_ns() // 1000
        return elapsed + self._offset + (self._put_right_by(elapsed) if self._wrong else 0)

    def _put_right_by(self, elapsed: Micros) -> Micros:
        """Return how much of the error has been corrected since the last reading."""
        assert self._read_at is not None
        most = int((elapsed - self._read_at) * SLEW)
        return max(-most, min(most, self._wrong))

    def put_right(self, moment: Micros, monotonic: float) -> None:
        """Take note that the store's clock showed *moment* when the monotonic clock showed *monotonic*."""
        elapsed = int(monotonic * SECOND)
        shown = moment if self._read_at is None else elapsed + self._offset + self._put_right_by(elapsed)
        self._wrong = moment - shown
        if abs(self._wrong) >= STEP:
            shown, self._wrong = moment, 0
        self._read_at, self._offset = elapsed, shown - elapsed

    def skew(self) -> Micros:
        """Return by how much it is ahead of the wall clock of this machine."""
        return self.micros() - super().micros()
