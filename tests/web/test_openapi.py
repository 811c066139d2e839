"""The description of the API says what it answers: every answer fits it, and no request that it allows is a bug."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from scheduler_async import Cron, Every, Manual, Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web.application import API, PageApplication
from tests.cast import NOON
from tests.web.test_mounting import MOUNTS, served
from tests.web.visitors import by_header, page_of, visitor

Client = httpx.AsyncClient


async def description(client: Client) -> dict[str, Any]:
    answer = await client.get("/api/v1/openapi.json")
    assert answer.status_code == 200
    form: dict[str, Any] = answer.json()
    return form


async def test_the_description_names_every_route_with_its_role(anna: Client) -> None:
    form = await description(anna)

    described = {(method, path) for path, methods in form["paths"].items() for method in methods}
    assert form["openapi"].startswith("3.1")
    assert {(route.method.lower(), route.path.removeprefix("api/v1")) for route in API} <= described
    assert ("get", "/openapi.json") in described
    operations = [one for methods in form["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"].endswith(".") for one in operations)


@pytest.mark.parametrize(("mount", "prefix"), MOUNTS)
async def test_the_description_says_where_the_api_is(mount: Any, prefix: str, idle: Scheduler) -> None:
    async with served(mount, prefix, page_of(idle)) as ask:
        _, _, text = await ask("GET", f"{prefix}/api/v1/openapi.json")

    assert [server["url"] for server in json.loads(text)["servers"]] == [f"{prefix}/api/v1", "."]


ADDRESSES = {
    "Jobs": "jobs",
    "Job": "jobs/default/report",
    "Runs": "jobs/default/report/runs",
    "Run": "runs/1",
    "Upcoming": "jobs/default/report/upcoming",
    "Explanation": "jobs/default/report/explain?at=2026-01-05T12:01:00Z",
    "Nodes": "nodes",
    "Concerns": "attention",
    "Tally": "tally",
    "Changes": "changes",
    "Health": "health",
    "Problem": "jobs/default/nothing",
}


@pytest.mark.parametrize("who", ["anna manage payloads", "lea look tenants=default,acme"])
@pytest.mark.parametrize("name", ADDRESSES)
async def test_an_answer_fits_its_description(page: PageApplication, name: str, who: str) -> None:
    async with visitor(page, who) as client:
        form = await description(client)
        answer = (await client.get(f"/api/v1/{ADDRESSES[name]}")).json()

    schema = {"$ref": f"#/components/schemas/{name}", "components": form["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)
    if name in ("Job", "Jobs", "Runs", "Concerns", "Changes", "Tally"):
        example = answer["items"][0] if "items" in answer else answer
        described = form["components"]["schemas"][name]["properties"]
        one = described["items"]["items"] if "items" in described else form["components"]["schemas"][name]
        fields = form["components"]["schemas"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        assert example.keys() <= fields["properties"].keys(), "a field that is not described"


async def test_what_a_result_of_many_is(anna: Client) -> None:
    form = await description(anna)
    body = {"action": "run", "ids": ["default/report", "default/nothing"]}
    answer = (await anna.post("/api/v1/jobs/bulk", json=body)).json()

    schema = {"$ref": "#/components/schemas/Results", "components": form["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


# ---------------------------------------------------------------- requests at random


class Served:
    """The page in an event loop of its own, for a test that is not async."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.scheduler = Scheduler(":memory:", clock=VirtualClock(NOON))

        @self.scheduler.handler("work")
        async def work() -> None: ...

        self.page = self.scheduler.page(access=by_header)

    def __enter__(self) -> Served:
        async def prepare() -> None:
            await self.scheduler.start()
            await self.scheduler.add_job(Every("1m"), handler="work", id="a")
            await self.scheduler.add_job(Cron("0 9 * * *", tz="Europe/Paris"), handler="work", id="b", namespace="t")
            await self.scheduler.add_job(Manual(), handler="work", id="c")
            await self.scheduler.trigger_job("c", anywhere=True)

        self.loop.run_until_complete(prepare())
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.scheduler.stop(cancel=True))
        self.loop.close()

    def description(self) -> dict[str, Any]:
        async def read() -> dict[str, Any]:
            async with visitor(self.page) as client:
                return await description(client)

        return self.loop.run_until_complete(read())

    def ask(self, parts: dict[str, Any]) -> httpx.Response:
        """Send a request that schemathesis has made."""

        async def send() -> httpx.Response:
            async with visitor(self.page) as client:
                given = {name: parts[name] for name in ("headers", "params", "json") if parts.get(name) is not None}
                return await client.request(parts["method"], parts["url"], content=parts.get("data"), **given)

        return self.loop.run_until_complete(send())


CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_no_request_that_the_description_allows_is_a_bug() -> None:
    """Schemathesis makes valid and invalid requests for every operation: none is a 500, and every answer fits."""
    asked = 0

    def check(case: Any) -> None:
        nonlocal asked
        parts = case.as_transport_kwargs(base_url="http://page.test/api/v1")
        answer = site.ask(parts)
        case.validate_response(schemathesis.Response.from_any(answer), checks=CHECKS)
        asked += 1

    with Served() as site:
        schema = schemathesis.openapi.from_dict(site.description())
        bounded = settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        for result in schema.get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            valid = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
            invalid = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
            bounded(given(valid | invalid)(check))()

    assert asked > len(API)
