"""Work that finishes even if its caller is cancelled, and long work that lets other tasks have a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

# Items that take some microseconds each: so many at a time do not delay other tasks noticeably.
BREATH = 1_000


async def carried_through(work: Awaitable[T]) -> T:
    """Return what *work* returns. Shield it from cancellation, and re-raise that once it finishes."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        while not doing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()
        raise
    except KeyboardInterrupt as error:
        # The task that raised it has left the event loop with it, and the loop was entered again since: once is enough.
        if doing.done() and doing.exception() is error:
            raise asyncio.CancelledError from error
        raise


class in_breaths(AsyncIterator[Sequence[T]]):  # noqa: N801 - it is called like a function
    """Iterate over *items* in batches; between two batches, other tasks have a turn.

    It is not a generator: the event loop keeps a list of those, which costs more than everything else here.
    """

    def __init__(self, items: Sequence[T]) -> None:
        self._items, self._next = items, 0

    async def __anext__(self) -> Sequence[T]:
        first = self._next
        if first >= len(self._items):
            raise StopAsyncIteration
        if first:
            await asyncio.sleep(0)
        self._next = first + BREATH
        return self._items[first : self._next]
