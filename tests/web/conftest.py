"""A scheduler with the jobs and runs of two tenants, and the page that shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from scheduler_async import Every, Manual, Run, Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web.application import PageApplication
from tests.cast import NewScheduler
from tests.web.visitors import page_of, visitor

SECRET = "hunter2"


@pytest.fixture
async def shown(new_scheduler: NewScheduler, clock: VirtualClock) -> Scheduler:
    """A running scheduler with three jobs: one works, one fails, one belongs to another tenant."""
    scheduler = new_scheduler(":memory:")

    @scheduler.handler("talk")
    async def talk(run: Run) -> dict[str, str]:
        run.write(f"sent to {run.payload['to']} with password={SECRET}\n\x1b[31mred")
        return {"sent": run.payload["to"]}

    @scheduler.handler("fail")
    async def fail() -> None:
        raise ValueError("cannot reach postgres://ann:hunter2@db/x for customer 4711")

    await scheduler.start()
    await scheduler.add_job(
        Every("1m"), handler="talk", id="report", payload={"to": "ops", "password": SECRET}, metadata={"owner": "ann"}
    )
    await scheduler.add_job(Every("1m"), handler="fail", id="import", namespace="acme")
    await scheduler.add_job(Manual(), handler="talk", id="by-hand", namespace="acme", payload={"to": "acme"})
    await clock.advance("2m")
    return scheduler


@pytest.fixture
def page(shown: Scheduler) -> PageApplication:
    return page_of(shown)


@pytest.fixture
async def anna(page: PageApplication) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor who may do and see everything."""
    async with visitor(page) as client:
        yield client
