"""Work that must be whole, whatever happens to the task that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


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
