"""Calls of user code that wait until the scheduler has released its locks: log handlers and observers.

User code may be slow, raise, or call the scheduler. Under a lock, it would delay or break the code that the lock
protects. Code that holds a `QuietLock` therefore puts such calls into the outbox. The outbox makes them as soon as the
lock is free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType


class Outbox:
    """The waiting calls, in order. The locks of one event loop share one outbox."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def send(self, call: Callable[[], object]) -> None:
        """Make *call* after the waiting calls, once the calling code has released its locks."""
        self._waiting.append(call)
        if _current_section() is None:
            self.deliver()

    def deliver(self) -> None:
        """Make all waiting calls."""
        while self._waiting:
            self._waiting.popleft()()


class QuietLock(asyncio.Lock):
    """A lock under which no user code is called."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox
        self._holder: _Section | None = None

    async def __aenter__(self) -> None:
        await self.acquire()
        self._holder = self._begin_section()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        section, self._holder = self._holder, None  # not by the context: a task that is destroyed has lost its own
        self.release()
        assert section is not None
        section.end_part()

    def _begin_section(self) -> _Section:
        """Begin a section of the calling code, or a part of the one that it is in."""
        section = _current_section()
        if section is None:
            section = _Section(self._outbox)
            _section.set(section)
        section.locks_held += 1
        return section


def call_without_locks(call: Callable[[], object]) -> None:
    """Make *call* immediately, or once the calling code has released its locks."""
    section = _current_section()
    if section is None:
        call()
    else:
        section.outbox.send(call)


class _Section:
    """A section of code that begins when it takes its first lock, and ends when it releases its last."""

    __slots__ = ("locks_held", "outbox")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.locks_held = 0

    def end_part(self) -> None:
        """Note that a lock was released. The last one ends the section."""
        self.locks_held -= 1
        if not self.locks_held:
            self.outbox.deliver()


# A task that a section starts inherits the section, because the section may wait for that task.
_section: ContextVar[_Section | None] = ContextVar("scheduler_async.section", default=None)


def _current_section() -> _Section | None:
    """Return the section that this code belongs to, unless the section has ended."""
    section = _section.get()
    return section if section is not None and section.locks_held else None
