"""Virtual time: exact, in order, and never in anyone's way."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_async import At, Cron, Every, InvalidScheduleError, Run, Scheduler, SchedulerShutdownError
from scheduler_async.testing import VirtualClock

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_it_begins_where_it_is_told_and_stands_still() -> None:
    assert VirtualClock("2026-01-05T12:00:00Z").now() == NOON
    assert VirtualClock(NOON).now() == NOON
    assert VirtualClock().now() == VirtualClock().now()


@pytest.mark.parametrize("wrong", ["2026-01-05", datetime(2026, 1, 5), 5, None])
def test_a_bad_beginning_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidScheduleError):
        VirtualClock(wrong)
    with pytest.raises(InvalidScheduleError):
        VirtualClock().set(wrong)


async def test_time_only_advances() -> None:
    clock = VirtualClock(NOON)

    with pytest.raises(InvalidScheduleError, match=r"clock\.set"):
        await clock.advance(timedelta(seconds=-1))
    await clock.advance("0s")
    await clock.advance()
    await clock.advance(timedelta(hours=1))
    await clock.advance("1h")

    assert clock.now() == NOON + timedelta(hours=2)


async def test_sleepers_wake_in_order_and_exactly_then() -> None:
    clock = VirtualClock(NOON)
    woken: list[tuple[str, datetime]] = []

    async def sleeper(name: str, duration: str) -> None:
        await clock.sleep(duration)
        woken.append((name, clock.now()))

    tasks = [asyncio.create_task(sleeper("late", "2h")), asyncio.create_task(sleeper("early", "30m"))]
    await clock.advance("1h")
    assert woken == [("early", NOON + timedelta(minutes=30))]
    await clock.advance("1h")

    assert woken[1:] == [("late", NOON + timedelta(hours=2))]
    await asyncio.gather(*tasks)


async def test_a_chain_of_sleeps_is_followed_within_one_advance() -> None:
    clock = VirtualClock(NOON)
    woken: list[datetime] = []

    async def chain() -> None:
        for _ in range(5):
            await clock.sleep("10m")
            woken.append(clock.now())

    task = asyncio.create_task(chain())
    await clock.advance("1h")

    assert woken == [NOON + timedelta(minutes=10 * k) for k in range(1, 6)]
    await task


async def test_a_jump_moves_the_wall_clock_and_nothing_else() -> None:
    clock = VirtualClock(NOON)
    told: list[datetime] = []
    unsubscribe = clock.on_jump(lambda: told.append(clock.now()))

    clock.set("2030-01-01T00:00:00Z")
    assert clock.monotonic() == 0
    unsubscribe()
    unsubscribe()
    clock.set(NOON)

    assert told == [datetime(2030, 1, 1, tzinfo=UTC)]


async def test_a_handler_that_waits_for_something_else_does_not_hold_it_up() -> None:
    clock = VirtualClock(NOON)
    release = asyncio.Event()
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(Every("1h"), id="stuck")
    async def stuck() -> None:
        await release.wait()

    async with scheduler:
        await clock.advance("90m")
        assert scheduler.state().running == 1
        release.set()


async def test_without_waiting_for_runs_a_function_in_a_thread_has_a_moment() -> None:
    clock = VirtualClock(NOON)
    release = threading.Event()
    calls: list[str] = []
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.handler("quick")
    def quick() -> None:
        calls.append("quick")

    @scheduler.handler("stuck")
    def stuck() -> None:
        release.wait()

    async with scheduler:
        await scheduler.add_job(At(NOON), handler="quick")
        await clock.advance(wait_for_runs=False)
        assert calls == ["quick"]
        assert scheduler.state().running == 0
        await scheduler.add_job(At(NOON), handler="stuck")
        await clock.advance("1h", wait_for_runs=False)
        assert scheduler.state().running == 1
        release.set()


async def test_stopping_lets_time_pass_for_handlers_that_sleep() -> None:
    """A test that ends while a handler sleeps on the clock would wait for ever otherwise."""
    clock = VirtualClock(NOON)
    ended: list[datetime] = []
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(Every("1h"), id="slow")
    async def slow() -> None:
        await clock.sleep("20s")
        ended.append(clock.now())

    async with scheduler:
        await clock.advance("1h")

    assert ended == [NOON + timedelta(hours=1, seconds=20)]
    assert clock.now() == ended[0]


async def test_stopping_does_not_wait_in_real_time_for_what_never_ends() -> None:
    clock = VirtualClock(NOON)
    release = asyncio.Event()
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(Every("1h"), id="stuck")
    async def stuck() -> None:
        await release.wait()

    await scheduler.start()
    await clock.advance("1h")

    with pytest.raises(SchedulerShutdownError, match="1 run is still in progress after 3600 s"):
        await scheduler.stop(timeout=3600)

    assert scheduler.status == "stopping"
    release.set()
    await scheduler.stop()


async def test_somebody_else_may_move_the_clock_while_stop_waits() -> None:
    clock = VirtualClock(NOON)
    scheduler = Scheduler(":memory:", clock=clock)
    stopping: list[asyncio.Task[None]] = []

    @scheduler.job(Every("1h"), id="slow")
    async def slow(run: Run) -> None:
        stopping.append(asyncio.create_task(scheduler.stop()))
        await clock.sleep("10s")

    await scheduler.start()
    await clock.advance("2h")
    await stopping[0]

    assert scheduler.status == "stopped"
    assert clock.now() == NOON + timedelta(hours=2)


async def test_a_month_of_cron_runs_at_the_right_wall_clock_times() -> None:
    clock = VirtualClock("2026-03-28T00:00:00Z")
    fired: list[str] = []
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(Cron("30 2 * * *", tz="Europe/Stockholm"), id="nightly")
    async def nightly(run: Run) -> None:
        fired.append(f"{clock.now():%d %H:%M}")

    async with scheduler:
        await clock.advance("3d")

    assert fired == ["28 01:30", "29 01:00", "30 00:30"]


async def test_it_works_on_a_loop_that_does_not_show_what_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop keeps that to itself."""
    clock = VirtualClock(NOON)
    calls: list[datetime] = []
    monkeypatch.setattr("scheduler_async.testing.getattr", lambda *_: None, raising=False)
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(Every("1h"), id="hourly")
    async def hourly() -> None:
        calls.append(clock.now())

    async with scheduler:
        await clock.advance("3h")

    assert calls == [NOON + timedelta(hours=k) for k in (1, 2, 3)]
