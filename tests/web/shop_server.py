"""Serves the page of a filled store from a thread, as a real server, for tests that ask as browsers do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from scheduler_async import Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web import everyone
from tests.cast import PATIENCE
from tests.web import demo

Fill = Callable[[Scheduler, VirtualClock], Awaitable[None]]


class Shop:
    """A page that is served, and the scheduler behind it."""

    def __init__(self, fill: Fill, role: str, options: dict[str, Any]) -> None:
        self._fill, self._role, self._options = fill, role, options
        self._is_ready, self._end = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self.clock = VirtualClock(demo.BEGIN)
        self.base = ""
        self._thread = threading.Thread(target=self._run, name="shop")

    def call(self, action: Callable[[Scheduler], Awaitable[Any]]) -> Any:
        """Do something with the scheduler, in its loop."""
        return asyncio.run_coroutine_threadsafe(_awaited(action, self.scheduler), self._loop).result(PATIENCE)

    def url(self, path: str = "") -> str:
        """The address of a page. "runs/failed" is the last run that has failed."""
        if path == "runs/failed":
            path = f"runs/{self.call(lambda scheduler: scheduler.run_log('prices', outcome='error', limit=1))[0].id}"
        return f"{self.base}/{path}"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._is_ready.set()
            raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.scheduler = Scheduler(":memory:", clock=self.clock)
        async with self.scheduler:
            await self._fill(self.scheduler, self.clock)
            page = self.scheduler.page(access=everyone(self._role, who="anna", payloads=True), **self._options)
            server = uvicorn.Server(uvicorn.Config(page, port=0, log_level="error", lifespan="off"))
            server.config.load()
            server.lifespan = server.config.lifespan_class(server.config)
            await server.startup()
            self.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            self._is_ready.set()
            serving = asyncio.create_task(server.main_loop())
            await self._end.wait()
            page.close()
            server.should_exit = True
            await serving
            await server.shutdown()


async def _awaited(action: Callable[[Scheduler], Awaitable[Any]], scheduler: Scheduler) -> Any:
    return await action(scheduler)


@contextmanager
def served_shop(fill: Fill = demo.fill, role: str = "manage", **options: Any) -> Iterator[Shop]:
    """Serve a store that *fill* has filled."""
    shop = Shop(fill, role, options)
    shop._thread.start()
    try:
        assert shop._is_ready.wait(60)
        assert shop._failure is None
        yield shop
    finally:
        if shop.base:
            shop._loop.call_soon_threadsafe(shop._end.set)
        shop._thread.join(30)
