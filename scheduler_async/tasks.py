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


async def in_breaths(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """*items*, some at a time; between them, the event loop turns to others."""
    for first in range(0, len(items), BREATH):
        if first:
            await asyncio.sleep(0)
        yield items[first : first + BREATH]
