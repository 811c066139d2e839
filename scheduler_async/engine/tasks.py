"""The tasks of one session: started, kept alive, and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from logging import ERROR
from typing import Any

from scheduler_async.logs import say


class Tasks:
    """Which tasks belong to the session, and are all of them running?"""

    def __init__(self, kept: set[asyncio.Task[None]]) -> None:
        """*kept* holds every task until it is done. It outlives the session, like the task that ends it."""
        self._kept = kept
        self._services: list[asyncio.Task[None]] = []
        self.halt = asyncio.Event()
        """Set when the session ends."""
        self.loop: asyncio.Task[None] | None = None
        self.writer: asyncio.Task[None] | None = None

    @property
    def are_alive(self) -> bool:
        """Return whether the loop and all services are running."""
        return not any(task is None or task.done() for task in (self.loop, *self._services))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task, and hold it until it is done."""
        task = asyncio.create_task(work, name=f"scheduler_async {name}")
        task.add_done_callback(_report_crash)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    def serve(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that runs until the session ends."""
        task = self.spawn(work, name)
        self._services.append(task)
        return task

    async def end_services(self) -> None:
        """Cancel the services, and wait for them."""
        self.halt.set()
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)


def _report_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        say(ERROR, "%s ended: %s: %s", task.get_name(), type(error).__name__, error)
