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
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    doing = asyncio.ensure_future(_answering(work, answer))
    try:
        return await answer
    except asyncio.CancelledError:
        while not doing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([doing])
        raise


async def _answering(work: Awaitable[T], answer: asyncio.Future[T]) -> None:
    """Tell what comes of *work*: a turn of the event loop sooner than the end of a task would."""
    try:
        found = await work
    except Exception as error:
        if not answer.done():  # or whoever asked has gone
            answer.set_exception(error)
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        answer.cancel()
        raise
    else:
        if not answer.done():
            answer.set_result(found)


class in_breaths(AsyncIterator[Sequence[T]]):  # noqa: N801 - it is called like a function
    """*items*, some at a time; between them, the event loop turns to others."""

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
