"""At home in web frameworks: the scheduler starts and stops with the application. `test_servers` has real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from fastapi import FastAPI
from litestar import Litestar
from starlette.applications import Starlette

from scheduler_async import Every, Manual, Outcome, Scheduler, SchedulerError, SchedulerShutdownError
from scheduler_async.testing import VirtualClock
from tests.cast import NewScheduler, Worker


@pytest.fixture
def service(new_scheduler: NewScheduler, path: Path) -> Scheduler:
    """The scheduler of an application, which is not started yet."""
    return new_scheduler(path)


@pytest.mark.parametrize("framework", [FastAPI, Starlette], ids=["FastAPI", "Starlette"])
async def test_the_scheduler_starts_and_stops_with_the_application(
    framework: type[Starlette], service: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await service.add_job(Every("1m"), handler="work", id="a")
    app = framework(lifespan=service.lifespan)

    async with app.router.lifespan_context(app):
        assert service.status == "running"
        await clock.advance("3m")

    assert service.status == "stopped"
    assert worker.fired() == [1, 2, 3]


async def test_litestar_takes_it_as_one_of_its_lifespans(service: Scheduler) -> None:
    app = Litestar(lifespan=[service.lifespan])

    async with app.lifespan():
        assert service.status == "running"

    assert service.status == "stopped"


async def test_aiohttp_takes_it_as_a_cleanup_context(service: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    await service.add_job(Every("1m"), handler="work", id="a")
    app = web.Application()
    app.cleanup_ctx.append(service.cleanup_ctx)
    runner = web.AppRunner(app)

    await runner.setup()
    await clock.advance("3m")
    status = service.status
    await runner.cleanup()

    assert (status, service.status) == ("running", "stopped")
    assert worker.fired() == [1, 2, 3]


async def test_it_composes_with_another_lifespan(service: Scheduler) -> None:
    """A handler may need what the application opens: that is opened first, and closed last."""
    order = []

    @asynccontextmanager
    async def database(_app: object) -> AsyncIterator[Mapping[str, object]]:
        order.append(f"opened while {service.status}")
        yield {"database": "open"}
        order.append(f"closed while {service.status}")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Mapping[str, object]]:
        async with database(app) as state, service.lifespan(app):
            yield state

    app = FastAPI(lifespan=lifespan)
    async with app.router.lifespan_context(app) as state:
        order.append(f"serving while {service.status}")

    assert order == ["opened while stopped", "serving while running", "closed while stopped"]
    assert state == {"database": "open"}


async def test_an_application_starts_again_with_the_same_scheduler(service: Scheduler) -> None:
    """Tests of a service start its application once for each of them."""
    app = FastAPI(lifespan=service.lifespan)

    for _ in range(2):
        async with app.router.lifespan_context(app):
            assert service.status == "running"

    assert service.status == "stopped"


async def test_an_application_that_fails_stops_its_scheduler(service: Scheduler) -> None:
    with pytest.raises(RuntimeError, match="no port"):
        async with service.lifespan(None):
            raise RuntimeError("no port")

    assert service.status == "stopped"


async def test_an_application_does_not_start_without_its_scheduler(service: Scheduler) -> None:
    await service.start()

    with pytest.raises(SchedulerError, match="is running already"):
        async with service.lifespan(None):
            raise AssertionError("it serves")


async def test_the_end_of_an_application_lets_runs_finish(service: Scheduler, worker: Worker) -> None:
    worker.takes = "20s"

    async with service.lifespan(None):
        await service.add_job(Manual(), handler="work", id="a")
        await service.trigger_job("a")

    assert [row.outcome for row in await service.run_log("a")] == [Outcome.SUCCESS]


async def test_the_end_of_an_application_cancels_what_takes_longer_and_keeps_that_on_record(
    service: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Nobody stops it a second time: a run that is left alone would have no outcome until the next start."""
    worker.takes = "1h"

    async with service.lifespan(None):
        await service.add_job(Manual(), handler="work", id="a")
        await service.trigger_job("a")

    (row,) = await service.run_log("a")
    assert service.status == "stopped"
    assert row.outcome is Outcome.CANCELLED
    assert row.duration_ms == 30_000


async def test_the_end_of_an_application_says_so_when_a_run_cannot_be_ended(
    service: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    @service.handler("deaf")
    async def deaf() -> None:
        for _ in range(2):
            with pytest.raises(asyncio.CancelledError):
                await clock.sleep("1h")

    await service.add_job(Manual(), handler="deaf", id="a")

    with pytest.raises(SchedulerShutdownError, match="1 run is still in progress after 5 s"):
        async with service.lifespan(None):
            await service.trigger_job("a")
