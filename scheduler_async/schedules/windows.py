"""Stretches of a day: what several of them share, cover and leave. Pure."""

from __future__ import annotations

from typing import TypeAlias

from scheduler_async.timekeeping.zones import DAY

Windows: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted stretches of a day in seconds. They include their start and not their end, and do not touch."""

ALL_DAY: Windows = ((0, DAY),)


def intersect(first: Windows, second: Windows) -> Windows:
    """Return what is in both."""
    if first == ALL_DAY:
        return second
    if second == ALL_DAY:
        return first
    met = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return tuple((a, b) for a, b in met if a < b)


def unite(first: Windows, second: Windows) -> Windows:
    """Return what is in one of them, or in both."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((*first, *second)):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def complement(windows: Windows) -> Windows:
    """Return the rest of the day."""
    edges = [0, *(edge for window in windows for edge in window), DAY]
    return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)
