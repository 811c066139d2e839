"""The machine's clock: the one place that asks the time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
import time_machine

from scheduler_async import Every, Scheduler, SystemClock
from scheduler_async.timekeeping.clock import SharedClock
from scheduler_async.timekeeping.instants import SECOND, to_micros


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


# ---------------------------------------------------------------- the clock of a store

NOON = to_micros(datetime(2026, 1, 5, 12, tzinfo=UTC))


class Ticking(SharedClock):
    """A shared clock on a machine whose clocks the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.elapsed = 1000.0
        monkeypatch.setattr("time.monotonic_ns", lambda: int(self.elapsed * 1e9))
        monkeypatch.setattr("time.monotonic", lambda: self.elapsed)
        self.wall = NOON
        monkeypatch.setattr("time.time_ns", lambda: self.wall * 1000)

    def shows(self) -> float:
        return (self.micros() - NOON) / SECOND


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    return Ticking(monkeypatch)


def test_a_shared_clock_shows_the_time_of_the_machine_before_it_is_read(shared: Ticking) -> None:
    assert shared.shows() == 0


def test_a_shared_clock_goes_on_from_what_was_read_whatever_the_machine_shows(shared: Ticking) -> None:
    """A wall clock that jumps here must not start what is not due for the others."""
    shared.put_right(NOON + 90 * SECOND, shared.monotonic())
    shared.elapsed += 5
    shared.wall += 3600 * SECOND

    assert shared.shows() == 95
    assert shared.skew() == (95 - 3600) * SECOND


def test_a_shared_clock_is_put_right_little_by_little_and_never_goes_back(shared: Ticking) -> None:
    """What was recorded a moment ago must not lie in the future."""
    shared.put_right(NOON, shared.monotonic())
    shared.put_right(NOON - SECOND // 2, shared.monotonic())

    shown = []
    for _ in range(7):
        shown.append(round(shared.shows(), 3))
        shared.elapsed += 1

    assert shown == [0, 0.9, 1.8, 2.7, 3.6, 4.5, 5.5]


def test_a_shared_clock_that_is_read_while_it_is_put_right_does_not_jump(shared: Ticking) -> None:
    shared.put_right(NOON, shared.monotonic())
    shared.put_right(NOON + SECOND // 2, shared.monotonic())
    shared.elapsed += 2
    before = shared.shows()

    shared.put_right(NOON + 2 * SECOND + SECOND // 2, shared.monotonic())

    assert before == shared.shows() == 2.2
    shared.elapsed += 3
    assert shared.shows() == 5.5


@pytest.mark.parametrize("by", [-3600, -1, 1, 3600])
def test_a_shared_clock_that_is_wrong_by_more_than_a_second_jumps(shared: Ticking, by: int) -> None:
    """The machine slept, or the store's clock was set: that is a jump, and is treated as one."""
    shared.put_right(NOON, shared.monotonic())

    shared.put_right(NOON + by * SECOND, shared.monotonic())

    assert shared.shows() == by
