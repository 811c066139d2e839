"""Work that finishes even if its caller is cancelled, questions side by side, and long work that yields to the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

# Each item takes some microseconds. A batch of this size delays other tasks only unnoticeably.
BREATH = 1_000


async def carried_through(work: Awaitable[T]) -> T:
    """Shield *work* from cancellation, and return its result. Re-raise a cancellation once it finishes."""
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
        # The task that raised it has already passed it to the event loop, which was entered again. Once is enough.
        if doing.done() and doing.exception() is error:
            raise asyncio.CancelledError from error
        raise


@asynccontextmanager
async def side_by_side() -> AsyncIterator[asyncio.TaskGroup]:
    """Do the work of several tasks at the same time, and wait for all. The first error cancels the others.

    Questions that reach a store together share the way to its thread.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class in_breaths(AsyncIterator[Sequence[T]]):  # noqa: N801 - used like a function
    """Iterate over *items* in batches. Between two batches, other tasks of the event loop run.

    This is not an async generator, because the event loop tracks generators, which costs more than all of this work.
    """

    def __init__(self, items: Sequence[T], size: int = BREATH) -> None:
        self._items, self._size, self._next = items, size, 0

    async def __anext__(self) -> Sequence[T]:
        first = self._next
        if first >= len(self._items):
            raise StopAsyncIteration
        if first:
            await asyncio.sleep(0)
        self._next = first + self._size
        return self._items[first : self._next]
