"""Work that is done whole, whatever becomes of who asked for it; and long work that lets others have a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

# Of what takes some microseconds each: nobody notices that many at once.
BREATH = 1_000


async def carried_through(work: Awaitable[T]) -> T:
    """What *work* returns. Who is cancelled while waiting for it, once or often, goes when it is done."""
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
        # The task that raised it has taken it out of the event loop, which was entered again since: once is enough.
        if doing.done() and doing.exception() is error:
            raise asyncio.CancelledError from error
        raise


class in_breaths(AsyncIterator[Sequence[T]]):  # noqa: N801 - it is called like a function
    """*items*, some at a time; between them, the event loop turns to others.

    It would be a generator, but the event loop keeps a list of those, which takes longer than all else it does for one.
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
