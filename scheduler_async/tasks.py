"""Work that must be whole, whatever happens to the task that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def carried_through(work: Awaitable[T]) -> T:
    """What *work* returns. Who is cancelled while waiting for it goes only when it is done; its result is dropped."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        if not doing.done():
            await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()
        raise
