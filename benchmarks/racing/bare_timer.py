"""The limit of those that keep no record: a timer of the event loop for each job, and a task for each run."""

from __future__ import annotations

import asyncio
import time

from racing import arrivals
from racing.courses import MARGIN, Figures, spread_over_a_second, watch_lone_runs


async def lone(path: str, jobs: int, seconds: int) -> Figures:  # noqa: ARG001 (it has no file)
    loop = asyncio.get_running_loop()
    anchor = time.time() + MARGIN
    offsets = spread_over_a_second(jobs)
    running = set()

    def start(name: str, moment: float) -> None:
        running.add(task := asyncio.create_task(arrivals.work(name)))
        task.add_done_callback(running.discard)
        timers[name] = loop.call_later(moment + 1 - time.time(), start, name, moment + 1)

    async def close() -> None:
        for timer in timers.values():
            timer.cancel()
        await asyncio.gather(*running)

    timers = {
        name: loop.call_later(anchor + offset - time.time(), start, name, anchor + offset)
        for name, offset in offsets.items()
    }
    return await watch_lone_runs(anchor, seconds, offsets, close)
