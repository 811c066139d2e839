"""The lock that claims take alone, and that edits share."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from scheduler_async.engine.shared_lock import SharedLock
from scheduler_async.outbox import Outbox


class Visitors:
    """Tasks that come to a lock in order, and stay until they are sent away."""

    def __init__(self) -> None:
        self.lock = SharedLock(Outbox())
        self.inside: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Let visitors come. One with a name in capitals wants to be alone."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._visit(name))
            await settle()

    async def go(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
        await settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self._tasks[name]
        await settle()

    async def _visit(self, name: str) -> None:
        async with self.lock if name.isupper() else self.lock.shared():
            self.inside.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.inside.remove(name)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def visitors() -> Visitors:
    return Visitors()


async def test_several_share_it_and_one_takes_it_alone(visitors: Visitors) -> None:
    await visitors.come("a", "b", "C", "D")
    assert visitors.inside == ["a", "b"]

    await visitors.go("a")
    assert visitors.inside == ["b"]
    await visitors.go("b")
    assert visitors.inside == ["C"]
    await visitors.go("C")
    assert visitors.inside == ["D"]
    await visitors.go("D")
    assert not visitors.lock.locked()


async def test_a_claim_does_not_wait_for_edits_that_come_after_it(visitors: Visitors) -> None:
    """Edits that never cease must not keep jobs from starting."""
    await visitors.come("a", "CLAIM", "b", "c", "SECOND", "d")
    assert visitors.inside == ["a"]

    await visitors.go("a")
    assert visitors.inside == ["CLAIM"]
    await visitors.go("CLAIM")
    assert visitors.inside == ["b", "c"]
    await visitors.go("b", "c")
    assert visitors.inside == ["SECOND"]
    await visitors.go("SECOND")
    assert visitors.inside == ["d"]


async def test_one_that_is_cancelled_while_it_waits_lets_others_in(visitors: Visitors) -> None:
    await visitors.come("a", "CLAIM", "b")

    await visitors.cancel("CLAIM")

    assert visitors.inside == ["a", "b"]


@pytest.mark.parametrize("name", ["b", "B"])
async def test_one_that_is_cancelled_as_it_enters_leaves_again(visitors: Visitors, name: str) -> None:
    await visitors.come("A", name)
    visitors._ends["A"].set()
    await visitors._tasks["A"]  # it has let the other one in, which does not know it yet

    await visitors.cancel(name)

    assert not visitors.lock.locked()
    await visitors.come("C")
    assert visitors.inside == ["C"]


async def test_one_that_raises_leaves(visitors: Visitors) -> None:
    with pytest.raises(ValueError, match="no"):
        async with visitors.lock.shared():
            raise ValueError("no")

    assert not visitors.lock.locked()


async def test_a_task_that_releases_it_finds_it_free(visitors: Visitors) -> None:
    """Two tasks that take it until it is free would otherwise pass it to each other forever."""

    async def take_until_it_is_free() -> None:
        while visitors.lock.locked():
            async with visitors.lock:
                pass

    await visitors.come("A")
    tasks = [asyncio.create_task(take_until_it_is_free()) for _ in range(2)]
    await settle()
    await visitors.go("A")

    await asyncio.wait_for(asyncio.gather(*tasks), 10)


async def test_tasks_that_share_it_enter_together(visitors: Visitors) -> None:
    """In one turn of the event loop, so that the store gets what they ask for at once."""
    entered: list[int] = []
    turn = 0

    async def enter() -> None:
        async with visitors.lock.shared():
            entered.append(turn)

    await visitors.come("A")
    tasks = [asyncio.create_task(enter()) for _ in range(5)]
    await settle()
    visitors._ends["A"].set()
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)

    assert len(set(entered)) == 1
