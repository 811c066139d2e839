"""Functions behind names: which can be handlers, and how they are replaced and removed while the scheduler runs."""

from __future__ import annotations

import pickle
import types
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import pytest

from scheduler_async import (
    At,
    Every,
    HandlerNotFoundError,
    InvalidJobError,
    Manual,
    Outcome,
    PayloadError,
    Run,
    Scheduler,
    SchedulerError,
    SkipReason,
    Status,
)
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, NewScheduler, Worker, job_of

# ---------------------------------------------------------------- work that a call does not do


def yields(run: Run) -> Iterator[int]:
    yield 1


async def yields_async(run: Run) -> AsyncIterator[int]:
    yield 1


class Yields:
    def __call__(self, run: Run) -> Iterator[int]:
        yield 1

    def method(self) -> Iterator[int]:
        yield 1

    async def async_method(self) -> AsyncIterator[int]:
        yield 1

    @staticmethod
    def static() -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(yields, id="a generator"),
        pytest.param(yields_async, id="an async generator"),
        pytest.param(Yields(), id="an object"),
        pytest.param(Yields().method, id="a method"),
        pytest.param(Yields().async_method, id="an async method"),
        pytest.param(Yields.static, id="a static method"),
        pytest.param(partial(yields), id="a partial"),
        pytest.param(partial(Yields()), id="a partial of an object"),
        pytest.param(partial(Yields().async_method), id="a partial of a method"),
    ],
)
def test_a_generator_is_refused_when_it_is_registered(function: Callable[..., Any]) -> None:
    """To call it does nothing, and would look like a success."""
    scheduler = Scheduler(":memory:")
    for register in (scheduler.handler("h"), scheduler.job(Every("1h"), id="h"), scheduler.on_job_due):
        with pytest.raises(InvalidJobError, match="must not contain yield") as caught:
            register(function)
        assert caught.value.field == "handler"

    with pytest.raises(HandlerNotFoundError):
        scheduler.remove_handler("h")


async def work() -> None: ...


class Awaitable:
    def __await__(self) -> Iterator[None]:
        yield


async def returns_a_coroutine() -> Coroutine[Any, Any, None]:
    return work()


async def returns_an_awaitable() -> Awaitable:
    return Awaitable()


async def returns_a_generator() -> Iterator[int]:
    return yields(None)  # type: ignore[arg-type]


async def returns_an_async_generator() -> AsyncIterator[int]:
    return yields_async(None)  # type: ignore[arg-type]


@wraps(yields)
def decorated(*args: Any) -> Iterator[int]:
    return yields(*args)


def returns_a_coroutine_that_returns_another() -> Coroutine[Any, Any, Coroutine[Any, Any, None]]:
    return returns_a_coroutine()


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (returns_a_coroutine, "a value of type coroutine, whose work has not been done. Await it"),
        (returns_an_awaitable, "a value of type Awaitable, whose work has not been done. Await it"),
        (returns_a_generator, "a value of type generator, whose work has not been done. Iterate over it"),
        (returns_an_async_generator, "a value of type async_generator, whose work has not been done. Iterate over it"),
        (decorated, "a value of type generator, whose work has not been done. Iterate over it"),
        (returns_a_coroutine_that_returns_another, "a value of type coroutine, whose work has not been done"),
    ],
    ids=lambda value: getattr(value, "__name__", "it"),
)
async def test_a_handler_that_returns_work_which_nobody_did_has_failed(
    function: Callable[..., Any], sentence: str, scheduler: Scheduler, clock: VirtualClock
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no coroutine is said never to have been awaited
        scheduler.handler("h")(function)
        await scheduler.add_job(At(NOON), handler="h", id="a")
        await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.ERROR
    assert sentence in str(row.error)


async def test_a_coroutine_of_the_old_kind_is_a_handler(scheduler: Scheduler, clock: VirtualClock) -> None:
    """It is written as a generator, and can be awaited."""
    ran: list[str] = []

    @scheduler.handler("old")
    @types.coroutine
    def old() -> Iterator[None]:
        ran.append("old")
        yield

    await scheduler.add_job(At(NOON), handler="old", id="a")
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert (ran, row.outcome) == (["old"], Outcome.SUCCESS)


@pytest.mark.parametrize("annotation", ["two words", "(", "1/0", "[][0]"])
def test_an_annotation_that_is_no_type_is_refused(annotation: str) -> None:
    """An annotation in quotes can be any text; the errors of Python itself would not name the handler."""
    scheduler = Scheduler(":memory:")

    async def handle(report: object) -> None: ...

    handle.__annotations__["report"] = annotation

    with pytest.raises(
        InvalidJobError, match=r"Handler handle\(\) has a parameter .* annotated with .*, which is not a type"
    ):
        scheduler.handler(handle)


@pytest.mark.parametrize("name", ["run", "more"])
def test_an_annotation_that_is_no_type_is_no_harm_where_none_is_needed(name: str) -> None:
    """What is called run gets the run, and what has a default is left alone."""
    scheduler = Scheduler(":memory:")

    async def handle(run: object, more: object = None) -> None: ...

    handle.__annotations__[name] = "two words"

    assert scheduler.handler(handle) is handle


# ---------------------------------------------------------------- replacing


@dataclass
class Mail:
    to: str


async def test_a_handler_is_replaced_for_the_next_run(scheduler: Scheduler, clock: VirtualClock) -> None:
    """The run in progress keeps the one that it began with."""
    ran: list[str] = []

    @scheduler.handler("send")
    async def old() -> None:
        await clock.sleep("90s")
        ran.append("old")

    await scheduler.add_job(Every("1m"), handler="send", id="a")
    await clock.advance("1m")

    @scheduler.handler("send", replace=True)
    async def new() -> None:
        ran.append("new")

    assert (await scheduler.add_job(Manual(), handler=new)).handler == "send"
    assert (await scheduler.add_job(Manual(), handler=old)).handler == "old"
    await clock.advance("2m")

    assert ran == ["old", "new"]


async def test_payloads_are_checked_against_the_new_handler(scheduler: Scheduler) -> None:
    scheduler.handler("send")(work)

    @scheduler.handler("send", replace=True)
    async def send(mail: Mail) -> None: ...

    with pytest.raises(PayloadError):
        await scheduler.add_job(Manual(), handler="send", payload={"from": "ops"})
    await scheduler.add_job(Manual(), handler="send", payload={"to": "ops"})


async def test_a_handler_that_cannot_replace_another_leaves_it(scheduler: Scheduler, clock: VirtualClock) -> None:
    with pytest.raises(InvalidJobError, match="yield"):
        scheduler.handler("work", replace=True)(yields)

    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


def test_without_replace_a_name_has_one_handler() -> None:
    scheduler = Scheduler(":memory:")
    scheduler.handler(work)
    scheduler.handler(work, replace=True)
    scheduler.handler(replace=True)(work)

    with pytest.raises(InvalidJobError, match=r"replace=True"):
        scheduler.handler("work")(Worker(VirtualClock(NOON)))


async def test_a_queued_run_gets_the_handler_of_when_it_starts(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=2)
    ran: list[str] = []
    worker.takes = "10s"
    scheduler.handler("later")(work)
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON), handler="later", id="b")
    await clock.advance()
    assert (await job_of(scheduler, "b")).status is Status.QUEUED

    @scheduler.handler("later", replace=True)
    async def new() -> None:
        ran.append("new")

    await clock.advance("10s")

    assert ran == ["new"]


# ---------------------------------------------------------------- removing


async def test_jobs_of_a_removed_handler_wait_for_another(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    scheduler.remove_handler("work")
    await clock.advance("1m")

    assert len(worker.runs) == 1
    assert (await scheduler.explain("a")).reason is SkipReason.NO_HANDLER
    with pytest.raises(SchedulerError, match="no handler"):
        await scheduler.trigger_job("a")

    scheduler.handler("work")(worker)
    await clock.advance()
    assert worker.fired(MINUTE) == [1, 2]


async def test_a_run_in_progress_keeps_its_handler_when_that_is_removed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.takes = "10s"
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    scheduler.remove_handler("work")
    await clock.advance("10s")

    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS]


async def test_a_queued_run_is_put_back_when_its_handler_is_removed(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(shared, max_concurrent=1, queue_size=2)
    worker.takes = "10s"
    later = Worker(clock)
    scheduler.handler("later")(later)
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON), handler="later", id="b")
    await clock.advance()
    assert (await job_of(scheduler, "b")).status is Status.QUEUED

    scheduler.remove_handler("later")
    await clock.advance("10s")

    waiting = await job_of(scheduler, "b")
    assert (waiting.status, waiting.next_run_at, later.runs) == (Status.IDLE, NOON, [])
    scheduler.handler("later")(later)
    await clock.advance()
    assert later.ids == ["b"]


async def test_without_its_handler_a_job_is_for_the_one_that_serves_all(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    others = Worker(clock)
    scheduler.on_job_due(others)
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    scheduler.remove_handler("work")
    await clock.advance("1m")

    assert (worker.ids, others.ids) == ([], ["a"])


def test_a_handler_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(HandlerNotFoundError, match='Handler "nobody" not found') as caught:
        Scheduler(":memory:").remove_handler("nobody")

    assert isinstance(caught.value, LookupError)
    assert caught.value.handler == "nobody"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
