"""A lock that one task holds alone, or that several share: edits of jobs share it, so that they can share a commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from scheduler_async.outbox import Outbox, QuietLock


class _Waiter(NamedTuple):
    turn: asyncio.Future[None]
    shares: bool


class SharedLock(QuietLock):
    """A lock that one task holds alone, or several share. All enter in the order in which they come, so none starves.

    Like asyncio's, it lets a task enter at once if nothing is in the way.
    """

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self._is_held_alone = False
        self._sharers = 0
        self._line: list[_Waiter] = []

    def locked(self) -> bool:
        """Return whether any task holds the lock."""
        return self._is_held_alone or self._sharers > 0

    async def acquire(self) -> Literal[True]:
        """Wait until no other task holds the lock, and take it."""
        await self._enter(shares=False)
        return True

    def release(self) -> None:
        """Release the lock, which this task holds alone."""
        self._is_held_alone = False
        self._wake_next()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other tasks that share it."""
        await self._enter(shares=True)
        section = self._begin_section()
        try:
            yield
        finally:
            self._leave()
            section.end_part()

    async def _enter(self, *, shares: bool) -> None:
        if self._line or not self._has_room(shares):
            waiter = _Waiter(asyncio.get_running_loop().create_future(), shares)
            self._line.append(waiter)
            try:
                await waiter.turn
            except asyncio.CancelledError:
                self._line.remove(waiter)
                self._wake_next()
                raise
            self._line.remove(waiter)
        if shares:
            self._sharers += 1
        else:
            self._is_held_alone = True

    def _has_room(self, shares: bool) -> bool:
        return not self._is_held_alone and (shares or not self._sharers)

    def _leave(self) -> None:
        self._sharers -= 1
        self._wake_next()

    def _wake_next(self) -> None:
        """Wake the first in line if it may enter, and those behind it that may enter with it.

        They take the lock when they run. Until then it is not locked, as with asyncio's, but no other may enter.
        """
        for place, (turn, shares) in enumerate(self._line):
            if not self._has_room(shares) or (place and not shares):
                return
            if not turn.done():
                turn.set_result(None)
            if not shares:
                return
