"""What does a task wait for? `scheduler_async.testing` asks, to wait for what is real and not for what a test releases.

asyncio does not say. The answer comes from the innermost function that awaits, and from the future that it awaits.
"""

from __future__ import annotations

import asyncio
import gc
from asyncio import locks, queues, taskgroups, tasks
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

_LOCKS, _QUEUES, _TASKS, _GROUPS = (str(module.__file__) for module in (locks, queues, tasks, taskgroups))

# The locks of anyio are in one module with its threads, which are real.
_ANYIO = ("anyio", "_backends", "_asyncio.py")
_LOCKS_OF_ANYIO = ("Lock.", "Semaphore.", "CapacityLimiter.")


def awaits_something_real(work: asyncio.Future[Any]) -> bool:
    """Return whether *work*, or a task that it waits for, waits for something other than tasks of this process.

    Locks, events, conditions, semaphores and queues are released by other tasks, so they are not real. A task that
    waits for tasks waits for what those wait for. Every other future is real: a sleep, a thread, a socket, a process.
    """
    pending, seen = [work], set()
    while pending:
        future = pending.pop()
        if future in seen or future.done():
            continue
        seen.add(future)
        behind = _awaited_by(future) if isinstance(future, asyncio.Task) else _behind(future)
        if behind is None:
            return True
        pending += behind
    return False


def _awaited_by(task: asyncio.Task[Any]) -> Iterable[asyncio.Future[Any]]:
    """Return the futures that *task* waits for. There are none if it waits for a lock, or is about to go on."""
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return ()
    place = _innermost(task.get_coro())
    if place.file in (_LOCKS, _QUEUES):
        return ()
    if place.file == _TASKS and place.function == "_wait":  # of asyncio.wait()
        return tuple(place.variables["fs"])
    if place.file == _TASKS and place.function == "wait_for" and "fut" in place.variables:  # before Python 3.12
        return (place.variables["fut"],)
    if place.file == _GROUPS:
        return tuple(place.variables["self"]._tasks)
    if PurePath(place.file).parts[-3:] == _ANYIO:
        if place.function.startswith(_LOCKS_OF_ANYIO):
            return ()
        if place.function.startswith("TaskGroup."):
            return tuple(place.variables["self"]._tasks)
    return (waiter,)


def _behind(future: asyncio.Future[Any]) -> Iterable[asyncio.Future[Any]] | None:
    """Return the futures that complete *future*, which is no task; None if something real does."""
    children: Iterable[asyncio.Future[Any]] | None = getattr(future, "_children", None)  # of asyncio.gather()
    if children is not None:
        return children
    for callback, *_ in getattr(future, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            inner = dict(zip(callback.__code__.co_freevars, callback.__closure__, strict=True))["inner"]
            return (inner.cell_contents,)
    return None


class _Place(NamedTuple):
    """Where a task awaits: the file, the qualified name of the function, and its variables."""

    file: str = ""
    function: str = ""
    variables: Mapping[str, Any] = {}


def _innermost(work: object) -> _Place:
    """Return the place in the innermost of the coroutines and generators that await each other."""
    while (inner := _inner(work)) is not None:
        work = inner
    for prefix in ("cr", "gi", "ag"):
        frame = getattr(work, f"{prefix}_frame", None)
        if frame is not None:
            return _Place(frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_locals)
    return _Place()


def _inner(work: object) -> object | None:
    """Return the coroutine or generator that *work* awaits, or None."""
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        awaited = getattr(work, name, None)
        if awaited is not None:
            # What awaits an asynchronous generator holds it and does not show it.
            found = (one for one in (awaited, *gc.get_referents(awaited)) if _can_await(one))
            return next(found, None)
    return None


def _can_await(thing: object) -> bool:
    return any(hasattr(thing, name) for name in ("cr_await", "gi_yieldfrom", "ag_await"))
