"""Work that must be whole, whatever happens to the task that asked for it."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_async.shielding import BREATH, carried_through, in_breaths, side_by_side


class Work:
    """Something that ends when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ended = False

    async def do(self) -> str:
        await self.may_end.wait()
        self.ended = True
        return "done"


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_result_is_handed_on() -> None:
    work = Work()
    work.may_end.set()

    assert await carried_through(work.do()) == "done"


async def test_an_error_is_handed_on() -> None:
    async def fail() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError):
        await carried_through(fail())


async def test_others_get_a_turn_in_long_work() -> None:
    """All items come, in order, and the loop is free between them."""
    items = range(2 * BREATH + 1)
    done: list[int] = []
    seen: list[int] = []

    async def look() -> None:
        while len(done) < len(items):
            seen.append(len(done))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    async for some in in_breaths(items):
        done += some
    await looking

    assert done == list(items)
    assert seen == [BREATH, 2 * BREATH]


async def test_short_work_is_done_at_once() -> None:
    """Then there is no moment at which it could be cancelled."""
    working = asyncio.current_task()
    assert working is not None
    working.cancel()
    done = [item async for some in in_breaths(range(BREATH)) for item in some]

    assert done == list(range(BREATH))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    working.uncancel()


async def test_who_is_cancelled_leaves_when_the_work_is_done() -> None:
    """Half of it would be worse than either all or nothing."""
    work = Work()
    asking = asyncio.create_task(carried_through(work.do()))
    await turns()

    asking.cancel()
    await turns()
    assert not asking.done()
    work.may_end.set()
    await asyncio.wait([asking])

    assert asking.cancelled()
    assert work.ended


async def test_an_error_after_the_cancellation_is_dropped() -> None:
    """The asker is told one thing only: that it was cancelled. Nothing is reported as never retrieved."""
    may_end = asyncio.Event()

    async def fail() -> None:
        await may_end.wait()
        raise KeyError("a")

    asking = asyncio.create_task(carried_through(fail()))
    await turns()
    asking.cancel()
    await turns()
    may_end.set()
    await asyncio.wait([asking])

    assert asking.cancelled()


async def test_work_that_is_cancelled_itself_is_no_riddle_to_who_asked() -> None:
    """Somebody may cancel every task there is."""

    async def be_cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await carried_through(be_cancelled())


async def test_who_is_cancelled_at_the_last_moment_leaves_all_the_same() -> None:
    """The work is done, and its answer on its way."""
    work = Work()
    asking = asyncio.create_task(carried_through(work.do()))
    await turns()
    work.may_end.set()
    while not work.ended:
        await asyncio.sleep(0)

    asking.cancel()
    await asyncio.wait([asking])

    assert asking.cancelled()


async def test_work_that_is_cancelled_before_it_begins_is_no_riddle_either() -> None:
    known = asyncio.all_tasks()
    asking = asyncio.create_task(carried_through(Work().do()))
    await asyncio.sleep(0)
    (doing,) = asyncio.all_tasks() - known - {asking}

    doing.cancel()
    await turns()

    assert asking.cancelled()


async def test_what_is_no_exception_is_handed_on_too() -> None:
    """A handler of somebody's may raise what it likes, and must not be waited for for ever."""

    class Abort(BaseException):
        pass

    async def abort() -> None:
        raise Abort

    with pytest.raises(Abort):
        await carried_through(abort())


def test_the_end_of_the_program_is_not_held_up() -> None:
    """Ctrl-C while the work is done: whoever runs the event loop hears of it, and nothing is left behind."""

    async def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(carried_through(interrupt()))


def test_an_interrupt_is_raised_once() -> None:
    """By the work itself; whoever waits for it is cancelled, and the event loop can be used to tidy up."""
    loop = asyncio.new_event_loop()
    asking: list[asyncio.Task[None]] = []

    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def ask() -> None:
        asking.append(asyncio.create_task(carried_through(interrupt())))
        await turns()

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(ask())
    loop.run_until_complete(turns())
    loop.close()

    assert asking[0].cancelled()


async def test_work_side_by_side_raises_the_first_error_itself() -> None:
    """Callers catch errors of the store, not groups of errors. What else was going on ends before."""
    ended: list[str] = []

    async def fail() -> None:
        raise LookupError("no answer")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    async def both() -> None:
        async with side_by_side() as tasks:
            tasks.create_task(wait())
            await turns()
            tasks.create_task(fail())

    with pytest.raises(LookupError, match="no answer"):
        await both()

    assert ended == ["wait"]
