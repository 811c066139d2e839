"""Waits for changes: at most two seconds each, with one watcher for all, which runs only while something waits."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.web.access import Access
from scheduler_async.web.errors import TooManyWaitingError

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler

# A longer wait would hold up the end of a server that waits for its requests.
LONGEST_WAIT = 2.0  # seconds

# How often the watcher looks. It asks the store for a row or two.
LOOK = 0.25  # seconds

MOST_WAITING, MOST_OF_A_CLIENT = 100, 5

Sight: TypeAlias = "frozenset[str] | None"
"""The namespaces that a visitor sees."""

_clock = SystemClock()


def is_server_ending() -> bool:
    """Return whether uvicorn has received the signal to end. It waits for requests before it tells applications."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


class Feed:
    """What is waiting for a change in this process, and the task that looks for one while something is."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[Sight, set[asyncio.Future[str]]] = {}
        self._known: dict[Sight, str] = {}
        self._by_client: Counter[str | None] = Counter()
        self._watcher: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_watching(self) -> bool:
        """Whether the watcher runs."""
        return self._watcher is not None

    @property
    def waits(self) -> int:
        """How many requests wait."""
        return self._by_client.total()

    async def change_after(self, mark: str, access: Access, client: str | None) -> str | None:
        """Return the new mark of what *access* sees once it is not *mark*, or None after two seconds.

        None is a *client* that the server does not know, as at a Unix socket: it may be many visitors.
        """
        sight: Sight = None if access.namespaces is None else frozenset(access.namespaces)
        found = await self._scheduler.mark(namespaces=sight)
        if found != mark or self._is_closed:
            return found if found != mark else None
        if self._known.get(sight, found) != found:  # the watcher has not noticed yet
            self._tell(sight, found)
        with self._place(client):
            change: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(sight, set()).add(change)
            self._known[sight] = mark
            if self._watcher is None:
                self._watcher = asyncio.create_task(self._watch(), name="scheduler_async page watcher")
            try:
                async with asyncio.timeout(LONGEST_WAIT):
                    return await change or None
            except TimeoutError:
                return None
            finally:
                self._leave(sight, change)

    def close(self) -> None:
        """End all waits at once, and begin no new ones: the server stops."""
        self._is_closed = True
        for changes in self._waiting.values():
            for change in changes:
                if not change.done():
                    change.set_result("")

    @contextmanager
    def _place(self, client: str | None) -> Iterator[None]:
        """Keep a place among those that wait, or raise `TooManyWaitingError`."""
        is_greedy = client is not None and self._by_client[client] >= MOST_OF_A_CLIENT
        if is_greedy or self.waits >= MOST_WAITING:
            raise TooManyWaitingError(
                f"{self._by_client[client]} requests of this visitor are waiting for changes, {self.waits} in all.",
                "Close some of the windows that show the page.",
            )
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _leave(self, sight: Sight, change: asyncio.Future[str]) -> None:
        self._waiting[sight].discard(change)
        if not self._waiting[sight]:
            del self._waiting[sight], self._known[sight]
        if not self._waiting and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _watch(self) -> None:
        while True:
            await _clock.wait(asyncio.Event(), LOOK)
            if is_server_ending():
                self.close()
            for sight in tuple(self._waiting):
                await self._look(sight)

    async def _look(self, sight: Sight) -> None:
        try:
            found = await self._scheduler.mark(namespaces=sight)
        except Exception as error:  # each request reports it
            for change in self._waiting.get(sight, ()):
                if not change.done():
                    change.set_exception(error)
            return
        if found != self._known.get(sight, found):
            self._tell(sight, found)

    def _tell(self, sight: Sight, mark: str) -> None:
        """Answer the requests that wait with the new *mark*."""
        self._known[sight] = mark
        for change in self._waiting[sight]:
            if not change.done():
                change.set_result(mark)
