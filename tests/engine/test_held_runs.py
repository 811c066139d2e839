"""Runs that are claimed and have not begun."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from scheduler_async.engine import held_runs as waiting
from scheduler_async.engine.held_runs import Waiting
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import SECOND, Micros
from tests.cast import PATIENCE


class Held:
    """A run that waits, as far as the line looks at it."""

    def __init__(self, moment: Micros) -> None:
        self.claimed = SimpleNamespace(claimed_at=moment)


def run_due_at(moment: Micros) -> Any:
    return Held(moment)


async def test_who_is_discarded_does_not_start() -> None:
    """Some of those whose moment is yet to come, and some of those who are due and have not had their turn."""
    clock, began, all_began = SystemClock(), list[Any](), asyncio.Event()
    later = clock.micros() + SECOND // 50
    crowd = [run_due_at(clock.micros() - 1) for _ in range(3)]
    early = [run_due_at(later) for _ in range(4)]

    def start(due: list[Any]) -> None:
        began.extend(due)
        if early[-1] in began:
            all_began.set()

    line = Waiting(clock, start, put_back=began.append)
    for run in (*crowd, *early):
        line.add(run)
    left = len(line)
    line.discard([early[0], early[2]])
    async with asyncio.timeout(PATIENCE):
        await all_began.wait()

    assert (left, len(line)) == (4, 0)
    assert began == [*crowd, early[1], early[3]]


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
