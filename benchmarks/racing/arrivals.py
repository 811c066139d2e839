"""The handler of every contestant: it writes down when it began, and for which job."""

from __future__ import annotations

import asyncio
import time

begun: list[tuple[float, str]] = []
"""Wall time and job, in the order of arrival."""

_expected = 0
_all_here = asyncio.Event()


async def work(id: str) -> None:
    note(id)


def note(id: str) -> None:
    begun.append((time.time(), id))
    if len(begun) == _expected:
        _all_here.set()


def expect(count: int) -> None:
    """Begin anew, for *count* runs."""
    global _expected  # noqa: PLW0603 (peers find their handler by the name of a function in a module)
    _expected = count
    begun.clear()
    _all_here.clear()


async def all_here() -> None:
    """Return when as many runs have begun as were expected."""
    await _all_here.wait()
