"""Virtual time waits for what is real, and never for what only the clock or the test can release."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest

from scheduler_async import (
    At,
    Every,
    IntervalParseError,
    Manual,
    Run,
    RunsNotSettledError,
    Scheduler,
    SchedulerError,
)
from scheduler_async.command import Command, run_command
from scheduler_async.running.awaits import awaits_something_real
from scheduler_async.testing import VirtualClock
from tests.cast import NOON, PATIENCE, NewScheduler

MOMENT = 0.05  # seconds of real time

Wait = Callable[[], Awaitable[object]]


async def read_a_socket() -> None:
    """Read what a thread writes after a moment."""
    mine, theirs = socket.socketpair()
    writer = threading.Timer(MOMENT, theirs.sendall, [b"hello"])
    writer.start()
    reader, stream = await asyncio.open_connection(sock=mine)
    assert await reader.readexactly(5) == b"hello"
    stream.close()
    theirs.close()


async def read_a_plain_socket() -> None:
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    threading.Timer(MOMENT, theirs.sendall, [b"hello"]).start()
    assert await asyncio.get_running_loop().sock_recv(mine, 5) == b"hello"
    mine.close()
    theirs.close()


async def run_a_process() -> None:
    process = await asyncio.create_subprocess_exec("sleep", str(MOMENT))
    await process.wait()


async def sleep_in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(MOMENT))


async def sleep_in_a_group_of_anyio() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, MOMENT)


@asynccontextmanager
async def slept() -> AsyncIterator[None]:
    await asyncio.sleep(MOMENT)
    yield


async def sleep_in_a_context() -> None:
    async with slept():
        pass


REAL: dict[str, Wait] = {
    "asyncio.sleep": lambda: asyncio.sleep(MOMENT),
    "anyio.sleep": lambda: anyio.sleep(MOMENT),
    "asyncio.to_thread": lambda: asyncio.to_thread(time.sleep, MOMENT),
    "anyio.to_thread": lambda: anyio.to_thread.run_sync(time.sleep, MOMENT),
    "a stream": read_a_socket,
    "a socket": read_a_plain_socket,
    "a process": run_a_process,
    "gather": lambda: asyncio.gather(asyncio.sleep(MOMENT), asyncio.sleep(0)),
    "wait": lambda: asyncio.wait([asyncio.ensure_future(asyncio.sleep(MOMENT))]),
    "wait_for": lambda: asyncio.wait_for(asyncio.sleep(MOMENT), PATIENCE),
    "shield": lambda: asyncio.shield(asyncio.sleep(MOMENT)),
    "a task": lambda: asyncio.create_task(asyncio.sleep(MOMENT)),
    "a task group": sleep_in_a_task_group,
    "a task group of anyio": sleep_in_a_group_of_anyio,
    "a context": sleep_in_a_context,
}


@pytest.mark.parametrize("wait", REAL)
async def test_it_waits_for_something_real(new_scheduler: NewScheduler, clock: VirtualClock, wait: str) -> None:
    """The clock stands still meanwhile, and the next run finds the first one done."""
    scheduler = new_scheduler(":memory:")
    ended: list[Any] = []

    @scheduler.job(Every("1h"), id="real")
    async def real(run: Run) -> None:
        await REAL[wait]()
        ended.append((run.scheduled_for, clock.now()))

    await scheduler.start()
    await clock.advance("2h")

    moments = [NOON + timedelta(hours=1), NOON + timedelta(hours=2)]
    assert ended == [(moment, moment) for moment in moments]
    assert [row.outcome for row in await scheduler.run_log()] == ["success"] * 2


async def test_it_waits_for_a_plain_function(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    ended: list[str] = []

    @scheduler.job(Every("1h"), id="plain")
    def plain() -> None:
        time.sleep(0.3)  # longer than the moment that a thread has anyway
        ended.append("plain")

    await scheduler.start()
    await clock.advance("1h")

    assert ended == ["plain"]
    assert scheduler.state().running == 0


async def test_it_waits_for_a_command(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    scheduler.handler("command")(run_command)
    await scheduler.start()
    payload = Command("sleep 0.05; echo done").to_payload()
    await scheduler.add_job(At(NOON), handler="command", id="a", payload=payload)

    await clock.advance("1m")

    (row,) = await scheduler.run_log("a")
    assert (row.outcome, await scheduler.run_output(row.id)) == ("success", "done\n")


async def test_what_follows_a_real_wait_happens_in_virtual_time(
    new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(":memory:")
    ended: list[Any] = []

    @scheduler.job(At(NOON), id="both")
    async def both() -> None:
        for _ in range(3):
            await asyncio.sleep(MOMENT)
            await clock.sleep("10m")
        ended.append(clock.now())

    await scheduler.start()
    await clock.advance("1h")

    assert ended == [NOON + timedelta(minutes=30)]


# ---------------------------------------------------------------- not real


@asynccontextmanager
async def held(lock: asyncio.Lock) -> AsyncIterator[None]:
    async with lock:
        yield


class Parked:
    """What a handler may wait for, and a test may release."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.event, self.queue, self.lock = asyncio.Event(), asyncio.Queue[int](), asyncio.Lock()
        self.anyio_lock = anyio.Lock()

    async def take(self) -> None:
        async with held(self.lock):
            pass

    async def take_in_group(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.event.wait())

    async def take_in_group_of_anyio(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.event.wait)

    async def iterate(self) -> None:
        async def numbers() -> AsyncIterator[int]:
            yield await self.queue.get()

        async for _ in numbers():
            pass


PARKED: dict[str, Callable[[Parked, Run], Awaitable[object]]] = {
    "an event": lambda parked, _: parked.event.wait(),
    "an event of anyio": lambda *_: anyio.Event().wait(),
    "a lock": lambda parked, _: parked.lock.acquire(),
    "a lock of anyio": lambda parked, _: parked.anyio_lock.acquire(),
    "a lock in a context": lambda parked, _: parked.take(),
    "a queue": lambda parked, _: parked.queue.get(),
    "an asynchronous generator": lambda parked, _: parked.iterate(),
    "the clock": lambda parked, _: parked.clock.sleep("30d"),
    "the end": lambda _, run: run.stopping.wait(),
    "gather": lambda parked, _: asyncio.gather(parked.event.wait(), parked.clock.sleep("30d")),
    "wait": lambda parked, _: asyncio.wait([asyncio.ensure_future(parked.event.wait())]),
    "wait_for": lambda parked, _: asyncio.wait_for(parked.event.wait(), 3600),
    "shield": lambda parked, _: asyncio.shield(parked.event.wait()),
    "a task group": lambda parked, _: parked.take_in_group(),
    "a task group of anyio": lambda parked, _: parked.take_in_group_of_anyio(),
}


@pytest.mark.parametrize("wait", PARKED)
async def test_it_does_not_wait_for_what_a_test_releases(clock: VirtualClock, wait: str) -> None:
    """A test that holds up a handler, and then moves the clock, would wait for itself."""
    scheduler, parked = Scheduler(":memory:", clock=clock), Parked(clock)
    begun: list[Run] = []
    await parked.lock.acquire()

    async def hold() -> None:
        await parked.anyio_lock.acquire()
        await asyncio.get_running_loop().create_future()

    holder = asyncio.create_task(hold())

    @scheduler.job(At(NOON), id="parked")
    async def waits(run: Run) -> None:
        begun.append(run)
        await PARKED[wait](parked, run)

    async with asyncio.timeout(PATIENCE / 2):
        await scheduler.start()
        await clock.advance("1h")

    assert (len(begun), scheduler.state().running) == (1, 1)
    await scheduler.stop(cancel=True)
    holder.cancel()


async def test_runs_that_wait_for_each_other_are_not_waited_for(
    new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(":memory:")
    second: list[int] = []

    @scheduler.handler("first")
    async def first() -> None:
        second.append(await scheduler.trigger_job("second"))
        await scheduler.wait_for_run(second[0])

    @scheduler.handler("second")
    async def other() -> None:
        await clock.sleep("2h")

    await scheduler.start()
    await scheduler.add_job(Manual(), handler="second", id="second")
    await scheduler.add_job(At(NOON), handler="first", id="first")
    await clock.advance("1h")
    assert scheduler.state().running == 2
    await clock.advance("1h")

    assert scheduler.state().running == 0


@pytest.mark.skipif(not hasattr(asyncio.Task, "get_context"), reason="before Python 3.12, tasks do not show it")
async def test_what_a_handler_has_started_counts_as_its_own(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")

    @scheduler.job(At(NOON), id="producer")
    async def producer() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def produce() -> None:
            await asyncio.sleep(MOMENT)
            queue.put_nowait(1)

        task = asyncio.create_task(produce())
        await queue.get()
        await task

    await scheduler.start()
    await clock.advance("1m")

    assert scheduler.state().running == 0


# ---------------------------------------------------------------- running out of time


async def test_a_wait_that_is_too_long_names_the_job(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")

    @scheduler.job(Every("1h"), id="slow", namespace="acme")
    async def slow() -> None:
        await asyncio.sleep(3600)

    await scheduler.start()
    with pytest.raises(RunsNotSettledError, match='job "acme/slow" still waits') as caught:
        await clock.advance("3h", real_timeout=0.05)

    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, SchedulerError)
    assert (caught.value.jobs, caught.value.timeout) == (("acme/slow",), 0.05)
    assert clock.now() == NOON + timedelta(hours=1), "it stopped where the run began"
    await clock.advance("1h", wait_for_runs=False)
    assert (clock.now(), scheduler.state().running) == (NOON + timedelta(hours=2), 1)


async def test_a_thread_that_is_stuck_is_named_too(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    release = threading.Event()

    @scheduler.job(At(NOON), id="stuck")
    def stuck() -> None:
        release.wait(PATIENCE)

    await scheduler.start()
    with pytest.raises(RunsNotSettledError, match='"default/stuck"'):
        await clock.advance("1s", real_timeout=timedelta(milliseconds=50))
    release.set()
    await clock.advance()

    assert scheduler.state().running == 0


def test_an_error_about_many_jobs_names_some() -> None:
    error = RunsNotSettledError(1.0, tuple(f"default/{n}" for n in range(8)))

    assert 'runs of jobs "default/0", ' in str(error)
    assert '"default/4" and 3 more still wait for' in str(error)


@pytest.mark.parametrize("wrong", ["10", -1, float("nan"), None, True, [], "x"], ids=str)
async def test_a_timeout_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises((SchedulerError, IntervalParseError)):
        await VirtualClock().advance(real_timeout=wrong)


async def test_waiting_is_asked_for_by_true_or_false() -> None:
    with pytest.raises(SchedulerError, match="wait_for_runs must be True or False"):
        await VirtualClock().advance(wait_for_runs="no")  # type: ignore[arg-type]


# ---------------------------------------------------------------- leaving


LEAVING: dict[str, tuple[Wait, str]] = {
    "a real sleep": (lambda: asyncio.sleep(3600), "cancelled"),
    "a short sleep": (lambda: asyncio.sleep(MOMENT), "success"),
    "what nobody sets": (lambda: asyncio.Event().wait(), "cancelled"),
}


@pytest.mark.parametrize("wait", LEAVING)
async def test_leaving_cancels_what_goes_on(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, wait: str
) -> None:
    """After the usual timeout of virtual time, and without an error."""
    monkeypatch.setattr("scheduler_async.testing.REAL_PATIENCE", 0.3)
    waiting, outcome = LEAVING[wait]
    scheduler = Scheduler(tmp_path / "jobs.db", clock=clock)

    @scheduler.job(At(NOON), id="a")
    async def goes_on() -> None:
        await waiting()

    async with scheduler:
        await clock.advance("1m", wait_for_runs=False)

    (row,) = await scheduler.run_log("a")
    await scheduler.stop()
    assert row.outcome == outcome
    assert scheduler.status == "stopped"
    assert clock.now() - NOON <= timedelta(minutes=2)


async def test_leaving_cancels_a_sleep_in_virtual_time_that_is_too_long(clock: VirtualClock, tmp_path: Any) -> None:
    scheduler = Scheduler(tmp_path / "jobs.db", clock=clock)

    @scheduler.job(At(NOON), id="a")
    async def sleeps() -> None:
        await clock.sleep("1h")

    async with scheduler:
        await clock.advance("1m")

    (row,) = await scheduler.run_log("a")
    await scheduler.stop()
    assert row.outcome == "cancelled"
    assert row.finished_at == NOON + timedelta(minutes=1, seconds=30)


async def test_leaving_does_not_hide_the_error_of_the_test(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread cannot be cancelled, which is a warning; the test failed for another reason."""
    monkeypatch.setattr("scheduler_async.testing.REAL_PATIENCE", 0.01)
    caplog.set_level(logging.WARNING, "scheduler_async")
    release = threading.Event()
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.job(At(NOON), id="stuck")
    def stuck() -> None:
        release.wait(PATIENCE)

    with pytest.raises(RunsNotSettledError):
        async with scheduler:
            await clock.advance("1m", real_timeout=0.05)

    assert "They cannot be cancelled" in caplog.text
    release.set()
    await scheduler.stop()
    assert scheduler.status == "stopped"


async def test_a_task_that_is_about_to_go_on_waits_for_nothing() -> None:
    async def go_on() -> None:
        await asyncio.sleep(0)

    task = asyncio.create_task(go_on())
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)

    assert not awaits_something_real(task)
    assert not awaits_something_real(done)
    assert awaits_something_real(asyncio.get_running_loop().create_future())
    await task
