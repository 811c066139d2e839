"""Who has taken too long: one timer for all runs with the same limit, and nearly nothing for each of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from scheduler_async.timekeeping.clock import Clock, Timer

T = TypeVar("T")

# Timers are as exact as their clock: what is closer than this has come.
INSTANT = 1e-6  # seconds


class Deadlines(Generic[T]):
    """Calls *overdue* for whoever is not discarded within their limit.

    With one limit, who came first is over first: a dict keeps them in order, and a timer waits for the first alone.
    """

    def __init__(self, clock: Clock, overdue: Callable[[T], object]) -> None:
        self._clock, self._overdue = clock, overdue
        self._waiting: dict[timedelta, dict[T, float]] = {}  # and since when
        self._timers: dict[timedelta, Timer] = {}

    def add(self, limit: timedelta, who: T) -> None:
        """Let *who* have until *limit* from now."""
        waiting = self._waiting.get(limit)
        if waiting is None:
            waiting = self._waiting[limit] = {}
            self._wait(limit, limit.total_seconds())
        waiting[who] = self._clock.monotonic()

    def discard(self, limit: timedelta, who: T) -> None:
        """They are done. The timer stays: whoever comes next most likely needs one."""
        self._waiting.get(limit, {}).pop(who, None)

    def close(self) -> None:
        """Wait for nobody any more."""
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
        for who, since in waiting.items():
            left = since + longest - now
            if left >= INSTANT:
                self._wait(limit, left)
                break
            late.append(who)
        else:
            del self._timers[limit], self._waiting[limit]
        for who in late:
            waiting.pop(who, None)
            self._overdue(who)
