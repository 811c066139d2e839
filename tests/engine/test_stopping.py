"""stop() at the worst moment: every call returns or raises, and no claim stays behind without an owner."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import (
    Every,
    Manual,
    Outcome,
    PassSummary,
    Scheduler,
    SchedulerShutdownError,
    SchedulerStoppingError,
    SQLiteStore,
    Status,
)
from scheduler_async.stores.decided import Decisions
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import Micros
from tests.cast import MINUTE, PATIENCE, NewScheduler, Worker, job_of
from tests.postgres_server import url_of_server

# Long enough for a stop() that nothing holds up; one that waits for the call in progress takes all of it.
HEAD_START = 0.05  # seconds

# More calls than any of the stories below makes to the store.
CALLS = 12


class InterruptedStore:
    """A store before or after whose *at*-th call `stop()` comes in, and gets as far as it can."""

    def __init__(self, path: Path, at: int, before: bool) -> None:
        self._inner, self._at, self._before = SQLiteStore(path), at, before
        self._calls = 0
        self.is_armed = False
        self.stop: Callable[[], Awaitable[None]]
        self.stopping: asyncio.Future[None] | None = None

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def clock(self) -> None:
        return None

    @property
    def decisions(self) -> Decisions:
        return self._inner.decisions

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        self._inner.on_change(listener)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self._inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._calls += self.is_armed
            is_due = self.is_armed and self._calls == self._at and self.stopping is None
            if is_due and self._before:
                await self._interject()
            answer = await method(*args, **options)
            if is_due and not self._before:
                await self._interject()
            return answer

        return call

    async def _interject(self) -> None:
        self.stopping = asyncio.ensure_future(self.stop())
        await asyncio.wait([self.stopping], timeout=HEAD_START)


async def _stopped_during(store: InterruptedStore, call: Awaitable[object]) -> object:
    """What *call* comes to when `stop()` interjects; both must come to an end."""
    store.is_armed = True
    calling = asyncio.ensure_future(call)
    await asyncio.wait([calling], timeout=PATIENCE)
    assert calling.done(), "the call hangs"
    store.is_armed = False
    if store.stopping is not None:
        with suppress(SchedulerShutdownError):  # it was in a hurry
            await asyncio.wait_for(store.stopping, PATIENCE)
    return calling.exception() or calling.result()


async def _nothing_is_left_behind(path: Path) -> None:
    """No job looks claimed, no row is open: another process need not even recover anything."""
    other = Scheduler(str(path))
    try:
        assert all(job.status is Status.IDLE for job in await other.list_jobs())
        assert all(row.outcome is not None for row in await other.run_log())
    finally:
        await other.stop()


@pytest.mark.parametrize("timeout", [30.0, 0.0], ids=["a stop that waits", "a stop in a hurry"])
@pytest.mark.parametrize("with_loop", [False, True], ids=["without the loop", "with the loop"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, CALLS + 1))
@pytest.mark.parametrize("what", ["run_pending", "trigger_job"])
async def test_a_call_that_meets_stop_comes_to_an_end(
    path: Path, worker: Worker, at: int, before: bool, what: str, with_loop: bool, timeout: float
) -> None:
    store = InterruptedStore(path, at, before)
    scheduler = Scheduler(store)  # type: ignore[arg-type]  # what it is asked for, the store inside answers
    scheduler.handler("work")(worker)
    store.stop = partial(scheduler.stop, timeout=timeout)
    await scheduler.add_job(Every("1h", immediately=not with_loop), handler="work", id="a")
    if with_loop:
        await scheduler.start()

    result = await _stopped_during(
        store, scheduler.run_pending() if what == "run_pending" else scheduler.trigger_job("a")
    )
    await asyncio.wait_for(scheduler.stop(), PATIENCE)

    assert isinstance(result, PassSummary | int | SchedulerStoppingError)
    await _nothing_is_left_behind(path)


async def test_a_stopping_scheduler_refuses_to_run_a_job(idle: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    worker.blocks = True
    await idle.add_job(Manual(), handler="work", id="a")
    await idle.add_job(Manual(), handler="work", id="b")
    await idle.trigger_job("a")
    stopping = asyncio.ensure_future(idle.stop())
    await asyncio.sleep(0)

    with pytest.raises(SchedulerStoppingError, match="starts no new runs"):
        await idle.trigger_job("b")

    assert (await idle.run_pending()).executed == 0
    worker.go.set()
    await asyncio.wait_for(stopping, PATIENCE)


async def test_a_stop_in_a_hurry_does_not_wait_for_a_claim_if_runs_go_on_anyway(
    path: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may take seconds to answer, and the answer changes nothing: the timeout is over, and something runs."""
    scheduler = Scheduler(path)
    scheduler.handler("work")(worker)
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.add_job(Manual(), handler="work", id="b")
    await scheduler.trigger_job("a")
    claim_one, claiming, answered = scheduler._store.claim_one, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        claiming.set()
        await answered.wait()
        return await claim_one(*args, **options)

    monkeypatch.setattr(scheduler._store, "claim_one", slowly)
    triggering = asyncio.ensure_future(scheduler.trigger_job("b"))
    await claiming.wait()

    stopping = asyncio.ensure_future(scheduler.stop(timeout=0.0))
    await asyncio.wait([stopping], timeout=PATIENCE)
    is_done = stopping.done()
    answered.set()
    worker.go.set()

    assert is_done
    assert isinstance(stopping.exception(), SchedulerShutdownError)
    with pytest.raises(SchedulerStoppingError):
        await asyncio.wait_for(triggering, PATIENCE)
    await asyncio.wait_for(scheduler.stop(), PATIENCE)


@pytest.mark.parametrize("wait", [True, False], ids=["that waits", "that does not wait"])
async def test_a_stop_that_is_overtaken_leaves_alone_what_comes_after_it(
    new_scheduler: NewScheduler, shared: str, worker: Worker, wait: bool
) -> None:
    """The hurried one closes the store, and a call that waited for that opens it again: there is nothing to stop."""
    scheduler = new_scheduler(shared)
    await scheduler.start()
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.trigger_job("a")
    patient = asyncio.ensure_future(scheduler.stop(wait=wait, timeout=None))
    await asyncio.sleep(0)
    hurried = asyncio.ensure_future(scheduler.stop(cancel=True))
    while scheduler._engine.session.is_open:
        await asyncio.sleep(0)

    run_id = await asyncio.wait_for(scheduler.trigger_job("a"), PATIENCE)
    await asyncio.wait_for(asyncio.gather(patient, hurried), PATIENCE)

    row = await scheduler.get_run(run_id)
    assert row is not None
    assert row.outcome is None
    assert (await job_of(scheduler)).status is Status.RUNNING
    worker.go.set()
    await asyncio.wait_for(scheduler.wait_for_run(run_id), PATIENCE)


# ---------------------------------------------------------------- claims without an owner


async def _claim_and_die(scheduler: Scheduler) -> None:
    """Claim the job "a" for a node that is gone before its run could end."""
    engine = scheduler._engine
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a")
    await engine.ready_to_run()
    node, claimer = engine.session.node, engine.session.claimer
    assert node.id is not None
    await scheduler._store.claim_due(engine.setting.clock.micros(), claimer.terms(node.id, 1))
    assert (await job_of(scheduler)).status is Status.RUNNING
    node.retire()
    node.id = None  # it ends without signing off
    await scheduler.stop()


def _execute(path: str, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


async def _execute_in(shared: str, *statements: str) -> None:
    if "://" not in shared:
        _execute(shared, *statements)
        return
    schema = shared.rpartition("=")[2]
    connection = await asyncpg.connect(url_of_server(), server_settings={"search_path": schema})
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("DELETE FROM node", id="its node has no row"),
        pytest.param("UPDATE state SET node = NULL", id="it names no node"),
        pytest.param("DELETE FROM run", id="its row is gone, and its node dead"),
        pytest.param("UPDATE state SET run = NULL", id="it names no run, and its node is dead"),
    ],
)
async def test_a_claim_without_a_living_owner_is_recovered(
    new_scheduler: NewScheduler,
    shared: str,
    worker: Worker,
    clock: VirtualClock,
    leases_in_virtual_time: None,
    damage: str,
) -> None:
    await _claim_and_die(new_scheduler(shared))
    await _execute_in(shared, damage)

    other = new_scheduler(shared)
    await other.start()
    await clock.advance(MINUTE)

    assert worker.ids == ["a"]
    assert (await job_of(other)).status is Status.IDLE
    assert next(row.outcome for row in await other.run_log()) is Outcome.SUCCESS


async def test_a_claim_that_names_nobody_is_recovered_by_the_first_pass(
    new_scheduler: NewScheduler, shared: str, worker: Worker
) -> None:
    """A process that makes one pass and ends, as cron starts them, cannot wait for a lease to run out."""
    await _claim_and_die(new_scheduler(shared))
    await _execute_in(shared, "DELETE FROM node", "UPDATE state SET run = NULL")

    summary = await new_scheduler(shared).run_pending()

    assert summary.executed == 1
    assert worker.ids == ["a"]


async def test_a_recovery_leaves_the_runs_of_other_jobs_alone(
    new_scheduler: NewScheduler, shared: str, worker: Worker
) -> None:
    """A damaged claim may name the run of another job, which ended long ago."""
    first = new_scheduler(shared)
    await first.add_job(Manual(), handler="work", id="good")
    good = await first.trigger_job("good")
    await first.wait_for_run(good)
    await _claim_and_die(first)
    await _execute_in(shared, f"UPDATE state SET run = {good} WHERE activity <> 'idle'")

    other = new_scheduler(shared)
    await other.run_pending()

    (row,) = await other.run_log("good")
    assert (row.id, row.outcome) == (good, Outcome.SUCCESS)
    assert worker.ids == ["good", "a"]


async def test_a_scheduler_that_is_stopping_cannot_be_started(
    idle: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Without the loop, too: the stop under way would close what was started."""
    worker.blocks = True
    await idle.add_job(Manual(), handler="work", id="a")
    await idle.trigger_job("a")
    stopping = asyncio.ensure_future(idle.stop())
    await asyncio.sleep(0)

    with pytest.raises(SchedulerStoppingError):
        await idle.start()

    worker.go.set()
    await asyncio.wait_for(stopping, PATIENCE)
    await idle.start()
    assert idle.status == "running"


async def test_a_claim_whose_owner_may_live_is_left_alone_for_the_length_of_a_lease(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """Its row is missing, and its process on another machine may go on until it notices that."""
    await _claim_and_die(new_scheduler(path))
    _execute(str(path), "DELETE FROM node", "UPDATE run SET node = 'elsewhere:1:abc'")

    other = new_scheduler(path)
    await other.start()
    await clock.advance("20s")
    assert (await job_of(other)).status is Status.RUNNING

    await clock.advance(MINUTE)
    assert (await job_of(other)).status is Status.IDLE
    assert worker.ids == ["a"]
