"""The only place that asks the machine for the time, and the only place that waits for it.

The wall clock decides *when* something is due. The monotonic clock only measures how long to sleep: it does not jump.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Protocol

from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import SECOND, Micros, from_micros


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None:
        """Let it not happen."""


class Clock(ABC):
    """What the scheduler knows of time. `VirtualClock` is one for tests."""

    tells_of_jumps = False
    """Whether `on_jump` listeners are told when the wall clock jumps, so that nobody needs to wake up to look."""

    @abstractmethod
    def micros(self) -> Micros:
        """The wall clock, in microseconds since the epoch."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that only ever go forward, from an unknown beginning."""

    @abstractmethod
    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* after *delay* seconds."""

    def now(self) -> datetime:
        """The wall clock, as a UTC datetime."""
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
            if not waiter.done() and not waiter.get_loop().is_closed():  # a program may forget to stop what it started
                waiter.cancel()

    async def wait_for_end(self, work: asyncio.Future[None], timeout: float | None) -> None:
        """Wait until *work* is done, or for *timeout* seconds."""
        await asyncio.wait([work], timeout=timeout)

    async def sleep(self, duration: str | timedelta) -> None:
        """Wait for a duration of this clock's time."""
        await self.wait(asyncio.Event(), parse_interval(duration).total_seconds())

    def on_jump(self, _listener: Callable[[], object], /) -> Callable[[], None]:
        """Call a listener when the wall clock jumps, if this clock knows; returns how to end it."""
        return lambda: None

    def working(self) -> AbstractContextManager[None]:
        """Tell the clock that work is under way off the event loop, such as a question to the store."""
        return nullcontext()

    def working_in_thread(self) -> AbstractContextManager[None]:
        """Tell the clock that a function runs in a thread, which may take any time."""
        return nullcontext()


class SystemClock(Clock):
    """The machine's time."""

    def micros(self) -> Micros:
        """The wall clock, in microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds that only ever go forward, from an unknown beginning."""
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* after *delay* seconds."""
        return asyncio.get_running_loop().call_later(delay, callback)


# A clock that was wrong by less than a second is put right little by little, so that it never goes back.
STEP: Micros = SECOND
SLEW = 0.1  # seconds per second


class SharedClock(SystemClock):
    """The time that all who share a store go by: its own, as it was read last, and what has passed here since then.

    Before it is first read, that is the time of this machine. A wall clock that jumps here does not matter after that.
    """

    def __init__(self) -> None:
        self._read_at: Micros | None = None  # by the monotonic clock
        self._offset: Micros = 0  # from the monotonic clock, when it was last read
        self._wrong: Micros = 0  # by so much, which is yet to be put right

    def micros(self) -> Micros:
        """The time of the store, in microseconds since the epoch."""
        if self._read_at is None:
            return super().micros()
        elapsed = time.monotonic_ns() // 1000
        return elapsed + self._offset + (self._put_right_by(elapsed) if self._wrong else 0)

    def _put_right_by(self, elapsed: Micros) -> Micros:
        """How much of what was wrong has been put right since it was read."""
        assert self._read_at is not None
        most = int((elapsed - self._read_at) * SLEW)
        return max(-most, min(most, self._wrong))

    def put_right(self, moment: Micros, monotonic: float) -> None:
        """The store's clock showed *moment* when the monotonic clock showed *monotonic*."""
        elapsed = int(monotonic * SECOND)
        shown = moment if self._read_at is None else elapsed + self._offset + self._put_right_by(elapsed)
        self._wrong = moment - shown
        if abs(self._wrong) >= STEP:
            shown, self._wrong = moment, 0
        self._read_at, self._offset = elapsed, shown - elapsed

    def skew(self) -> Micros:
        """By how much it is ahead of the wall clock of this machine."""
        return self.micros() - super().micros()
