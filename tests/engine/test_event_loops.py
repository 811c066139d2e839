"""A scheduler that is left behind in an event loop that ends, and used again in the next one."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Every, PostgresStore, Scheduler, SQLiteStore
from tests.cast import PATIENCE


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What Python has to say of errors that reach no caller: in a thread, or in what is thrown away."""
    heard: list[object] = []

    def hear(told: Any) -> None:
        if not isinstance(told.exc_value, ResourceWarning):  # a socket that was left open is named as such, rightly
            heard.append(told.exc_value)

    monkeypatch.setattr(sys, "unraisablehook", hear)
    monkeypatch.setattr(threading, "excepthook", hear)
    return heard


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Keep the store waiting for some time, on its own thread."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(seconds, connection.rollback)
    timer.start()
    yield
    timer.join()
    connection.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop that keeps to itself which tasks it was closed with: what is pending then is the test's own doing."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    return loop


async def _is_usable(scheduler: Scheduler) -> bool:
    jobs = await asyncio.wait_for(scheduler.list_jobs(), PATIENCE)
    await asyncio.wait_for(scheduler.stop(), PATIENCE)
    return [job.id for job in jobs][:1] == ["a"]


@pytest.mark.parametrize("loop", ["asyncio.run", "a loop that is closed"])
def test_a_loop_that_ends_while_the_store_is_asked_leaves_a_usable_scheduler(
    path: Path, loop: str, complaints: list[object]
) -> None:
    scheduler = Scheduler(path)
    adding: list[asyncio.Task[object]] = []

    async def prepare() -> None:
        await scheduler.add_job(Every("1h"), handler="work", id="a")

    async def leave() -> None:
        adding.append(asyncio.ensure_future(scheduler.add_job(Every("1h"), handler="work", id="b")))
        await asyncio.sleep(0.05)  # until the store is at it

    asyncio.run(prepare())
    with locked(path, 0.3):
        if loop == "asyncio.run":
            asyncio.run(leave())
        else:
            closed = _new_loop()
            closed.run_until_complete(leave())
            closed.close()
    adding.clear()
    gc.collect()

    assert asyncio.run(_is_usable(scheduler))
    assert complaints == []


@pytest.mark.parametrize("kind", [SQLiteStore, PostgresStore])
def test_a_loop_that_is_closed_while_the_store_opens_leaves_a_usable_scheduler(
    kind: type[SQLiteStore | PostgresStore], path: Path, complaints: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, opening takes long enough for that."""
    store = SQLiteStore(path) if kind is SQLiteStore else PostgresStore("postgresql://127.0.0.1:9/nowhere")
    is_opening = asyncio.Event()

    async def hang(_store: object) -> None:
        is_opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(kind, "_open", hang)
    closed = _new_loop()
    opening = closed.create_task(store.open())
    closed.run_until_complete(is_opening.wait())
    closed.close()
    del closed, opening
    gc.collect()

    assert complaints == []
    monkeypatch.undo()
    if kind is SQLiteStore:
        scheduler = Scheduler(store)
        asyncio.run(scheduler.add_job(Every("1h"), handler="work", id="a"))
        assert asyncio.run(_is_usable(scheduler))


def test_a_loop_that_is_closed_without_stop_is_not_complained_about(shared: str, complaints: list[object]) -> None:
    """What was started there cannot be tidied up any more."""
    scheduler = Scheduler(shared)
    closed = _new_loop()
    closed.run_until_complete(scheduler.start())
    closed.run_until_complete(scheduler.add_job(Every("1h"), handler="work", id="a"))
    closed.close()

    assert asyncio.run(_is_usable(scheduler))
    del closed, scheduler  # they hold a connection that was being made, which a later test would be blamed for
    gc.collect()

    assert complaints == []
