"""pgqueuer: its tables, its jobs, and a worker, which is `ready` and then tells when it began its first job."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries


async def prepare(url: str) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()


async def add(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).enqueue(["work"] * count, [None] * count, [0] * count)
    await connection.close()


async def run(url: str, batch: int) -> None:
    manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(url))))
    is_first = True

    @manager.entrypoint("work")  # type: ignore[untyped-decorator]  # it lives with the peers
    async def handle(_job: Job) -> None:
        nonlocal is_first
        if is_first:
            print(time.time(), flush=True)
            is_first = False

    asyncio.get_running_loop().call_later(1.0, lambda: print("ready", flush=True))
    await manager.run(batch_size=batch, dequeue_timeout=timedelta(seconds=30))


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"prepare": prepare, "add": add, "run": run}


def main() -> None:
    command, url, *numbers = sys.argv[1:]
    uvloop.run(COMMANDS[command](url, *map(int, numbers)))


if __name__ == "__main__":
    main()
