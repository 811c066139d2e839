"""How many rows fit on a page, which stays below 60 kB whatever names and texts it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from markupsafe import escape

from scheduler_async.jobs.pages import Page

T = TypeVar("T")

# The frame of a page, with its filters, takes the rest of 60 kB.
ROOM = 53_000  # bytes


def weight_of(*texts: str | None) -> int:
    """Return how many bytes *texts* take on a page."""
    return sum(len(escape(text).encode("utf-8", "replace")) for text in texts if text)


def fitting(weights: Iterable[int], room: int = ROOM) -> int:
    """Return how many rows of these *weights* fit into the *room*."""
    count = 0
    for weight in weights:
        room -= weight
        if room < 0:
            break
        count += 1
    return count


async def page_that_fits(
    ask: Callable[[int], Awaitable[Page[T]]], limit: int, weight: Callable[[T], int], room: int = ROOM
) -> Page[T]:
    """Return the page that *ask* returns for a *limit*, or a smaller one if its rows do not fit into the *room*."""
    page = await ask(limit)
    count = fitting(map(weight, page.items), room)
    return page if count >= len(page.items) else await ask(max(count, 1))
