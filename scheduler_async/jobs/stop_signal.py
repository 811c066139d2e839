"""The signal by which a run learns that it should end: the scheduler stops, or the run is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from threading import Event, Lock
from typing import Any, Protocol
from weakref import WeakSet


class AnyEvent(Protocol):
    """An `asyncio.Event`, or a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether it is set."""

    def wait(self) -> Any:
        """Wait until it is set."""


class StopSignal(Protocol):
    """Tells a long run that it should end. `if run.stopping:` asks whether it is set."""

    def is_set(self) -> bool:
        """Return whether the run should end."""

    def __bool__(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the run should end: `await` it in an async handler, call it in a thread."""


class RunSignal:
    """The signal of one run, for its coroutines and its threads."""

    __slots__ = ("__weakref__", "_in_loop", "_in_threads")

    def __init__(self) -> None:
        self._in_loop, self._in_threads = asyncio.Event(), Event()

    def is_set(self) -> bool:
        """Return whether the run should end."""
        return self._in_threads.is_set()

    def __bool__(self) -> bool:
        return self.is_set()

    def set(self) -> None:
        """Tell the run to end. Call it on the event loop."""
        self._in_threads.set()
        self._in_loop.set()

    def wait(self, timeout: float | None = None) -> Awaitable[bool] | bool:
        """Wait until the run should end, and return True.

        Where an event loop runs, the answer must be awaited. In a thread, the call blocks, for *timeout* seconds at
        most, and returns whether the signal is set.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._in_threads.wait(timeout)
        return self._in_loop.wait()


class Stopping(asyncio.Event):
    """Set when the scheduler stops. It passes that on to every run that has asked for its signal."""

    def __init__(self) -> None:
        super().__init__()
        self._signals: WeakSet[RunSignal] = WeakSet()
        self._lock = Lock()  # threads ask for their signals, too

    def signal(self) -> RunSignal:
        """Return a new signal for one run."""
        made = RunSignal()
        with self._lock:
            self._signals.add(made)
            if self.is_set():
                made.set()
        return made

    def set(self) -> None:
        """Tell all runs to end."""
        with self._lock:
            super().set()
            signals = list(self._signals)
        for signal in signals:
            signal.set()


class GivenSignal:
    """A signal that a test gives to a run."""

    def __init__(self, event: AnyEvent) -> None:
        self._event = event

    def is_set(self) -> bool:
        """Return whether the run should end."""
        return self._event.is_set()

    def __bool__(self) -> bool:
        return self.is_set()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the event."""
        return self._event.wait() if timeout is None else self._event.wait(timeout)  # type: ignore[call-arg]


def signal_of(stopping: AnyEvent | StopSignal) -> StopSignal:
    """Return the signal for one run."""
    if isinstance(stopping, Stopping):
        return stopping.signal()
    return stopping if isinstance(stopping, RunSignal | GivenSignal) else GivenSignal(stopping)
