"""The tasks of a session."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_async.engine.tasks import Tasks


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_task_is_held_until_it_is_done() -> None:
    """asyncio keeps weak references only."""
    kept: set[asyncio.Task[None]] = set()
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()

    task = Tasks(kept).spawn(work(), "work")
    held = set(kept)
    go.set()
    await task
    await asyncio.sleep(0)

    assert held == {task}
    assert kept == set()
    assert task.get_name() == "scheduler_async work"


async def test_a_session_is_alive_while_its_loop_and_all_services_go_on() -> None:
    tasks = Tasks(set())
    without_a_loop = tasks.are_alive
    tasks.loop = tasks.spawn(forever(), "loop")
    service = tasks.serve(forever(), "watch")
    with_all = tasks.are_alive

    service.cancel()
    await asyncio.wait([service])

    assert (without_a_loop, with_all, tasks.are_alive) == (False, True, False)
    tasks.loop.cancel()


async def test_the_end_of_a_session_ends_its_services_and_nothing_else() -> None:
    tasks = Tasks(set())
    service, other = tasks.serve(forever(), "watch"), tasks.spawn(forever(), "shutdown")

    await tasks.end_services()

    assert tasks.halt.is_set()
    assert (service.cancelled(), other.done()) == (True, False)
    other.cancel()


async def test_a_task_that_crashes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> None:
        raise ValueError("no")

    task = Tasks(set()).spawn(crash(), "watch")
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert "scheduler_async watch ended: ValueError: no" in caplog.text
