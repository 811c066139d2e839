"""Calls that wait until the locks of the code that made them are free."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from scheduler_async.outbox import Outbox, QuietLock, call_without_locks
from tests.cast import PATIENCE


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def lock(outbox: Outbox) -> QuietLock:
    return QuietLock(outbox)


@pytest.fixture
def calls() -> list[str]:
    return []


async def test_without_a_lock_a_call_is_made_at_once(outbox: Outbox, calls: list[str]) -> None:
    outbox.send(lambda: calls.append("sent"))
    call_without_locks(lambda: calls.append("asked for"))

    assert calls == ["sent", "asked for"]


async def test_calls_wait_for_the_end_of_the_outermost_lock_and_keep_their_order(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    inner = QuietLock(outbox)

    async with lock:
        outbox.send(lambda: calls.append(f"first, {lock.locked()=}"))
        async with inner:
            call_without_locks(lambda: calls.append(f"second, {inner.locked()=}"))
        made_under_lock = list(calls)

    assert made_under_lock == []
    assert calls == ["first, lock.locked()=False", "second, inner.locked()=False"]


async def test_a_failure_under_a_lock_does_not_lose_the_calls(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    async def fail() -> None:
        async with lock:
            outbox.send(lambda: calls.append("sent"))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await fail()

    assert calls == ["sent"]


async def test_a_call_that_raises_keeps_none_of_the_others_from_being_made(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        async with lock:
            outbox.send(fail)
            outbox.send(lambda: calls.append("next"))

    with pytest.raises(KeyboardInterrupt):
        await work()
    outbox.send(lambda: calls.append("last"))

    assert not lock.locked()
    assert calls == ["next", "last"]


async def test_a_task_that_its_parent_waits_for_under_a_lock_is_under_that_lock_too(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    """Questions to the store are such tasks."""

    async def work() -> None:
        outbox.send(lambda: calls.append("by the task"))

    async with lock:
        await asyncio.create_task(work())
        made_under_lock = list(calls)

    assert made_under_lock == []
    assert calls == ["by the task"]


async def test_a_task_that_was_started_under_a_lock_is_free_when_that_is_released(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    """Runs and the loop are such tasks."""

    async def work() -> None:
        outbox.send(lambda: calls.append("by the task"))

    async with lock:
        task = asyncio.create_task(work())
    await task

    assert calls == ["by the task"]


async def test_a_task_without_locks_does_not_wait_for_one_with_a_lock_and_does_not_overtake_it(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    """A task may hold a lock for long, and the others go on."""
    go, waits = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with lock:
            outbox.send(lambda: calls.append("under the lock"))
            waits.set()
            await go.wait()

    holding = asyncio.create_task(hold())
    async with asyncio.timeout(PATIENCE):
        await waits.wait()
        outbox.send(lambda: calls.append("by another task"))
        made_meanwhile = list(calls)
        go.set()
        await holding

    assert made_meanwhile == ["under the lock", "by another task"]
    assert calls == made_meanwhile


def test_a_task_that_is_destroyed_with_its_event_loop_gives_up_its_lock(
    outbox: Outbox, lock: QuietLock, calls: list[str]
) -> None:
    """It ends outside of its context, when the garbage collector finds it."""

    async def hold() -> None:
        async with lock:
            outbox.send(lambda: calls.append("sent"))
            await asyncio.sleep(0)

    holding = hold()
    holding.send(None)
    made_under_lock = list(calls)

    contextvars.Context().run(holding.close)

    assert made_under_lock == []
    assert (calls, lock.locked()) == (["sent"], False)
