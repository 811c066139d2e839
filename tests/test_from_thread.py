"""Calls from other threads: the same methods, blocking, in the event loop of the scheduler."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from scheduler_async import (
    Job,
    JobNotFoundError,
    Manual,
    Namespace,
    QuotaError,
    Run,
    Scheduler,
    SchedulerError,
    current_run,
)
from scheduler_async.calls import from_thread
from scheduler_async.calls.from_thread import NamespaceFromThread
from tests.cast import PATIENCE, Worker
from tests.test_namespace import methods_of

# These belong to the event loop.
NOT_FOR_THREADS = {"start", "stop", "run_until_signal"}


@pytest.mark.parametrize("name", sorted(methods_of(Scheduler).keys() - NOT_FOR_THREADS))
def test_every_call_of_the_scheduler_is_offered_with_its_arguments(name: str) -> None:
    scheduler = Scheduler(":memory:")

    found = getattr(scheduler.from_thread, name, None)

    assert found is not None, f"FromThread lacks {name}"
    assert inspect.signature(found) == inspect.signature(getattr(scheduler, name))
    assert inspect.getdoc(found) == inspect.getdoc(getattr(Scheduler, name))


@pytest.mark.parametrize("name", sorted(methods_of(Namespace)))
def test_every_call_of_a_namespace_is_offered_too(name: str) -> None:
    scheduler = Scheduler(":memory:")

    found = getattr(scheduler.from_thread.namespace("mine"), name, None)

    assert found is not None, f"NamespaceFromThread lacks {name}"
    assert inspect.signature(found) == inspect.signature(getattr(scheduler.namespace("mine"), name))


async def in_thread(work: Callable[[], Any]) -> Any:
    """What *work* answers in a thread; what hangs there fails the test."""
    return await asyncio.wait_for(asyncio.to_thread(work), PATIENCE)


async def test_a_thread_adds_triggers_and_reads(scheduler: Scheduler, worker: Worker) -> None:
    calls = scheduler.from_thread

    def work() -> tuple[Job, int]:
        job = calls.add_job(Manual(), handler="work", id="a", payload=1)
        run = calls.trigger_job("a", payload=2)
        calls.wait_for_run(run)
        return job, len(calls.run_log("a"))

    job, rows = await in_thread(work)

    assert (job.id, job.payload, rows) == ("a", 1, 1)
    assert [run.payload for run in worker.runs] == [2]
    assert scheduler.from_thread is calls


async def test_errors_pass_through(scheduler: Scheduler) -> None:
    def unknown() -> None:
        scheduler.from_thread.pause_job("nothing")

    def misspelt() -> None:
        scheduler.from_thread.pause_job("nothing", nmae="x")  # type: ignore[call-arg]

    with pytest.raises(JobNotFoundError):
        await in_thread(unknown)
    with pytest.raises(TypeError, match="nmae"):
        await in_thread(misspelt)


async def test_a_namespace_is_fenced_and_limited_there_too(scheduler: Scheduler) -> None:
    def work() -> list[str]:
        view: NamespaceFromThread = scheduler.from_thread.namespace("mine", max_jobs=1)
        view.schedule(Manual(), handler="work", id="a")
        with pytest.raises(QuotaError):
            view.add_job(Manual(), handler="work", id="b")
        return [view.name, *(job.key for job in view.list_jobs())]

    assert await in_thread(work) == ["mine", "mine/a"]


async def test_a_plain_handler_changes_its_own_job(scheduler: Scheduler) -> None:
    """The call runs in the context of its thread, so that the run that asks is known, and goes on."""
    ended: list[int] = []

    @scheduler.handler("plain")
    def plain(run: Run) -> None:
        scheduler.from_thread.remove_job(run.job_id)
        ended.append(current_run().id)

    await scheduler.add_job(Manual(), handler="plain", id="a")
    run = await scheduler.trigger_job("a")
    await scheduler.wait_for_run(run)

    row = await scheduler.get_run(run)
    assert ended == [run]
    assert row is not None
    assert row.outcome == "success"


async def test_context_variables_of_the_thread_are_seen(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")
    seen: list[str] = []

    async def nodes() -> list[Any]:
        seen.append(name.get())
        name.set("changed in the task alone")
        return []

    monkeypatch.setattr(scheduler, "nodes", nodes)

    def work() -> str:
        name.set("ann")
        scheduler.from_thread.nodes()
        return name.get()

    assert await in_thread(work) == "ann"
    assert (seen, name.get()) == (["ann"], "nobody")


async def test_in_the_thread_of_the_event_loop_it_is_refused(scheduler: Scheduler) -> None:
    """It would wait for itself."""
    with pytest.raises(SchedulerError, match=r"await scheduler\.list_jobs\(\) instead"):
        scheduler.from_thread.list_jobs()


def test_without_an_event_loop_it_is_refused() -> None:
    scheduler = Scheduler(":memory:")
    with pytest.raises(SchedulerError, match=r"not running\. Start the scheduler"):
        scheduler.from_thread.list_jobs()

    async def use() -> None:
        async with scheduler:
            pass

    asyncio.run(use())
    with pytest.raises(SchedulerError, match=r"not running\. Start the scheduler"):
        scheduler.from_thread.list_jobs()


def test_an_event_loop_that_was_closed_a_moment_ago_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be closed between the look at it and the call."""
    scheduler = Scheduler(":memory:")
    asyncio.run(scheduler.stop())
    monkeypatch.setattr(scheduler._engine.event_loop, "is_running", lambda: True)

    with pytest.raises(SchedulerError, match=r"not running\. Start the scheduler"):
        scheduler.from_thread.list_jobs()


async def test_it_works_without_the_loop_of_the_scheduler(idle: Scheduler) -> None:
    """As every call but start() does."""
    await idle.list_jobs()

    assert await in_thread(idle.from_thread.list_jobs) == []


def test_an_event_loop_that_ends_lets_the_thread_go() -> None:
    scheduler = Scheduler(":memory:")
    begun = threading.Event()
    caught: list[BaseException] = []
    threads: list[threading.Thread] = []

    async def forever() -> list[Any]:
        begun.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    def wait() -> None:
        try:
            scheduler.from_thread.nodes()
        except BaseException as error:
            caught.append(error)

    async def main() -> None:
        scheduler.nodes = forever  # type: ignore[method-assign]
        async with scheduler:
            threads.append(threading.Thread(target=wait))
            threads[0].start()
            await asyncio.to_thread(begun.wait, PATIENCE)

    asyncio.run(main())
    threads[0].join(PATIENCE)

    assert [type(error) for error in caught] == [SchedulerError]
    assert "ended during from_thread.forever()" in str(caught[0])


def test_an_event_loop_that_stands_still_lets_the_thread_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped and not closed, so that it cancels nothing."""
    monkeypatch.setattr(from_thread, "LOOK_EVERY", 0.01)
    scheduler = Scheduler(":memory:")
    loop = asyncio.new_event_loop()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            scheduler.from_thread.list_jobs()
        except SchedulerError as error:
            caught.append(error)

    async def stand_still() -> None:
        thread = threading.Thread(target=wait)
        loop.call_soon(loop.stop)
        thread.start()
        threads.append(thread)
        await loop.create_future()

    threads: list[threading.Thread] = []
    loop.run_until_complete(scheduler.list_jobs())
    task = loop.create_task(stand_still())
    loop.run_forever()
    threads[0].join(PATIENCE)
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.run_until_complete(scheduler.stop())
    loop.close()

    assert not threads[0].is_alive()
    assert all("not running" in str(error) or "ended during" in str(error) for error in caught)


async def test_an_interrupt_in_the_waiting_thread_cancels_the_call(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, which Python raises where the main thread waits."""
    begun, cancelled = threading.Event(), asyncio.Event()

    async def nodes() -> list[Any]:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt(pending: object, seconds: float) -> bool:
        begun.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "nodes", nodes)
    monkeypatch.setattr(from_thread._Pending, "_wait", interrupt)

    def work() -> str:
        try:
            scheduler.from_thread.nodes()
        except KeyboardInterrupt:
            return "interrupted"
        return "answered"

    assert await in_thread(work) == "interrupted"
    await asyncio.wait_for(cancelled.wait(), PATIENCE)
