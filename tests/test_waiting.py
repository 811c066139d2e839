"""Runs that are claimed and have not begun."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from scheduler_async import waiting
from scheduler_async.clock import SystemClock
from scheduler_async.instants import SECOND, Micros
from scheduler_async.waiting import Waiting
from tests.cast import PATIENCE


def run_due_at(moment: Micros) -> Any:
    return SimpleNamespace(claimed=SimpleNamespace(claimed_at=moment))


async def test_a_crowd_leaves_the_event_loop_to_others() -> None:
    """All of them could start in one go, and nobody else would have a turn."""
    clock, began, all_began = SystemClock(), list[Any](), asyncio.Event()
    runs = [run_due_at(clock.micros() + SECOND // 50)] * (2 * waiting.SLICE)
    seen_between = set()

    def start(due: list[Any]) -> None:
        began.extend(due)
        if len(began) == len(runs):
            all_began.set()

    async def look_on() -> None:
        while True:
            seen_between.add(len(began))
            await asyncio.sleep(0)

    line = Waiting(clock, start, put_back=began.append)
    for run in runs:
        line.add(run)
    looking_on = asyncio.create_task(look_on())
    async with asyncio.timeout(PATIENCE):
        await all_began.wait()
    looking_on.cancel()

    assert waiting.SLICE in seen_between
