"""A handler that blocks the event loop is named, while it does and afterwards."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from scheduler_async import At, Event, EventKind, Every, Manual, Outcome, Scheduler
from scheduler_async.jobs.events import EventStream
from scheduler_async.running import watchdog
from scheduler_async.running.watchdog import Watchdog
from scheduler_async.testing import VirtualClock
from tests.cast import NOON, PATIENCE, NewScheduler, Worker


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is long; what is noticed after a twentieth is noticed after one too."""
    monkeypatch.setattr(watchdog, "BLOCKED", 0.05)
    monkeypatch.setattr(watchdog, "PAUSE", 0.005)


class Complaints(logging.Handler):
    """What the scheduler says about blocking; whoever blocks waits for it, and so blocks exactly long enough."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = threading.Event()
        self.messages: list[str] = []
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "blocks the event loop" in record.getMessage():
            self.messages.append(record.getMessage())
            self.records.append(record)
            self.heard.set()


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    logger = logging.getLogger("scheduler_async")
    handler = Complaints()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def first_of(stream: EventStream, kind: EventKind) -> Event:
    async with asyncio.timeout(PATIENCE):
        async for event in stream:
            if event.kind is kind:
                return event
    raise AssertionError("the stream has ended")


async def test_a_handler_that_blocks_is_named(
    scheduler: Scheduler, clock: VirtualClock, complaints: Complaints
) -> None:
    """In a warning while it lasts, with the place, and in an event when it is over, with how long it took."""
    stream = scheduler.events()

    @scheduler.handler("blocks")
    async def blocks() -> None:
        assert complaints.heard.wait(PATIENCE)

    await scheduler.add_job(At(NOON), handler="blocks", id="greedy")
    await clock.advance()

    told = await first_of(stream, EventKind.LOOP_BLOCKED)
    (message,) = complaints.messages
    assert "Job default/greedy blocks the event loop" in message
    assert "threading.py" in message
    (row,) = await scheduler.run_log()
    assert (vars(complaints.records[0])["job"], vars(complaints.records[0])["run"]) == ("default/greedy", row.id)
    assert told.job is not None
    assert told.job.id == "greedy"
    assert "blocked the event loop for 0." in str(told.reason)


# Before Python 3.12, a task does not show its context.
FAMILY = "Job default/family" if sys.version_info >= (3, 12) else "Something"


async def test_a_task_that_a_handler_started_is_named_after_its_job(
    scheduler: Scheduler, clock: VirtualClock, complaints: Complaints
) -> None:
    async def child() -> None:
        assert complaints.heard.wait(PATIENCE)

    @scheduler.handler("parent")
    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    await scheduler.add_job(At(NOON), handler="parent", id="family")
    await clock.advance()

    assert f"{FAMILY} blocks" in complaints.messages[0]


async def test_what_is_no_handler_blocks_too(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, complaints: Complaints
) -> None:
    """Nobody is accused who did nothing."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="innocent")
    await clock.advance()

    assert complaints.heard.wait(PATIENCE)  # this test, on the event loop itself

    assert "Something blocks" in complaints.messages[0] or "test_watchdog" in complaints.messages[0]
    assert "innocent" not in complaints.messages[0]


async def test_a_function_in_a_thread_blocks_nothing(
    scheduler: Scheduler, clock: VirtualClock, complaints: Complaints
) -> None:
    loop, answered = asyncio.get_running_loop(), threading.Event()

    @scheduler.handler("plain")
    def plain() -> None:
        complaints.heard.wait(0.2)  # long enough to be noticed, if it were on the event loop
        loop.call_soon_threadsafe(answered.set)
        assert answered.wait(PATIENCE)

    await scheduler.add_job(Manual(), handler="plain", id="a")
    row = await scheduler.wait_for_run(await scheduler.trigger_job("a"))

    assert row.outcome is Outcome.SUCCESS
    # A busy machine may stop the event loop for a moment, and then "Something" blocks it.
    assert [message for message in complaints.messages if "default/a" in message] == []


def watchdogs() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "scheduler_async watchdog"}


async def test_it_rests_when_nothing_runs_and_goes_with_the_scheduler(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock
) -> None:
    """No thread before the first run, none after the last stop, and no questions while nothing runs."""
    before = watchdogs()
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    assert watchdogs() <= before

    await clock.advance("1h")
    (thread,) = watchdogs() - before
    guard = scheduler._engine.session.launcher.watchdog
    assert guard is not None
    while guard._needed.is_set():
        await asyncio.sleep(0)

    await scheduler.stop()
    await asyncio.to_thread(thread.join, PATIENCE)
    assert not thread.is_alive()


async def test_a_loop_that_is_gone_is_not_asked() -> None:
    guard = Watchdog(lambda: True, lambda: None, lambda *_: None)
    loop = asyncio.new_event_loop()
    loop.close()
    guard._loop = loop

    guard._look()

    guard.stop()


def test_it_does_not_outlive_its_event_loop() -> None:
    """A program may end its loop without a word, with a handler in the middle of its work, and go on."""

    async def leave() -> threading.Thread | None:
        guard = Watchdog(lambda: True, lambda: None, lambda *_: None)
        guard.attend()
        return guard._thread

    thread = asyncio.run(leave())

    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
