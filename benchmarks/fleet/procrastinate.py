"""procrastinate: its tables, its jobs, and a worker, which is `ready` and then tells when it began its first job."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from procrastinate import App, PsycopgConnector


async def prepare(url: str) -> None:
    async with App(connector=PsycopgConnector(conninfo=url)).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def add(url: str, count: int) -> None:
    async with app_of(url).open_async() as app:
        await app.tasks["work"].batch_defer_async(*({} for _ in range(count)))


async def run(url: str, concurrency: int) -> None:
    async with app_of(url, connections=concurrency + 2).open_async() as app:
        asyncio.get_running_loop().call_later(1.0, lambda: print("ready", flush=True))
        await app.run_worker_async(concurrency=concurrency)


def app_of(url: str, connections: int = 2) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=2, max_size=connections))
    is_first = True

    @app.task(name="work")  # type: ignore[untyped-decorator]  # it lives with the peers
    async def work() -> None:
        nonlocal is_first
        if is_first:
            print(time.time(), flush=True)
            is_first = False

    return app


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"prepare": prepare, "add": add, "run": run}


def main() -> None:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns of programs that are a single file
    command, url, *numbers = sys.argv[1:]
    asyncio.run(COMMANDS[command](url, *map(int, numbers)))


if __name__ == "__main__":
    main()
