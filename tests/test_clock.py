"""The machine's clock: the one place that asks the time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
import time_machine

from scheduler_async import Every, Scheduler, SystemClock


def test_the_system_clock_is_where_the_time_comes_from() -> None:
    """Who travels in time takes the scheduler along."""
    with time_machine.travel(datetime(2026, 1, 5, 12, tzinfo=UTC), tick=False):
        assert SystemClock().now() == datetime(2026, 1, 5, 12, tzinfo=UTC)


async def test_a_whole_scheduler_travels() -> None:
    with time_machine.travel(datetime(2026, 1, 5, 12, tzinfo=UTC), tick=False):
        scheduler = Scheduler(":memory:")
        job = await scheduler.add_job(Every("1h"), handler="h")
        await scheduler.stop()

    assert job.created_at == datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert job.next_run_at == datetime(2026, 1, 5, 13, tzinfo=UTC)


async def test_waiting_ends_with_the_event_or_with_the_time() -> None:
    clock, event = SystemClock(), asyncio.Event()

    assert not await clock.wait(event, 0.0)
    asyncio.get_running_loop().call_soon(event.set)
    assert await clock.wait(event, 60.0)
    assert await clock.wait(event)


async def test_waiting_can_be_cancelled() -> None:
    """A cancelled caller must not be told that the time has passed."""
    task = asyncio.create_task(SystemClock().wait(asyncio.Event(), 60.0))
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_monotonic_time_goes_forward() -> None:
    clock = SystemClock()

    assert clock.monotonic() <= clock.monotonic()
