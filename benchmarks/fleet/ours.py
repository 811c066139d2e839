"""A process that runs jobs of ours. It is `ready`, and tells what it has done each time it is asked with a line."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
import uvloop

from scheduler_async import PostgresStore, Run, Scheduler


async def work(url: str) -> None:
    statements = 0

    def count(_query: object) -> None:
        nonlocal statements
        statements += 1

    connect = asyncpg.connect

    async def connect_and_count(*args: object, **options: object) -> asyncpg.Connection:
        connection = await connect(*args, **options)
        connection.add_query_logger(count)
        return connection

    asyncpg.connect = connect_and_count
    begun: list[tuple[float, float]] = []
    scheduler = Scheduler(PostgresStore(url), keep_runs=None)

    @scheduler.handler("work")
    async def handle(run: Run) -> None:
        begun.append((run.scheduled_for.timestamp(), time.time()))

    async with scheduler:
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        print("ready", flush=True)
        cpu = time.process_time()
        while await lines.readline():
            told = {"begun": begun, "statements": statements, "cpu_s": time.process_time() - cpu}
            print(json.dumps(told), flush=True)
            begun, statements, cpu = [], 0, time.process_time()


if __name__ == "__main__":
    uvloop.run(work(*sys.argv[1:]))  # as the quickest of the others does
