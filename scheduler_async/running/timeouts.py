"""Deadlines: one timer for all runs with the same limit, and almost no cost per run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from scheduler_async.timekeeping.clock import Clock, Timer

T = TypeVar("T")

# Timers are as exact as their clock: a deadline that is closer than this has passed.
INSTANT = 1e-6  # seconds


class Deadlines(Generic[T]):
    """Calls *overdue* with each item that is not discarded within its limit.

    Of items with the same limit, the first to come is the first to expire: a dict keeps them in order, and one timer
    waits for the first.
    """

    def __init__(self, clock: Clock, overdue: Callable[[T], object]) -> None:
        self._clock, self._overdue = clock, overdue
        self._waiting: dict[timedelta, dict[T, float]] = {}  # and since when
        self._timers: dict[timedelta, Timer] = {}

    def add(self, limit: timedelta, item: T) -> None:
        """Give *item* until *limit* from now."""
        waiting = self._waiting.get(limit)
        if waiting is None:
            waiting = self._waiting[limit] = {}
            self._wait(limit, limit.total_seconds())
        waiting[item] = self._clock.monotonic()

    def discard(self, limit: timedelta, item: T) -> None:
        """Forget *item*, which is done. The timer stays: the next item most likely needs it."""
        self._waiting.get(limit, {}).pop(item, None)

    def close(self) -> None:
        """Forget all items, and cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()

    def _wait(self, limit: timedelta, delay: float) -> None:
        self._timers[limit] = self._clock.call_later(delay, lambda: self._look(limit))

    def _look(self, limit: timedelta) -> None:
        longest, now = limit.total_seconds(), self._clock.monotonic()
        waiting = self._waiting[limit]
        late = []
        for item, since in waiting.items():
            left = since + longest - now
            if left >= INSTANT:
                self._wait(limit, left)
                break
            late.append(item)
        else:
            del self._timers[limit], self._waiting[limit]
        for item in late:
            waiting.pop(item, None)
            self._overdue(item)
