"""Tenants see their own jobs and runs, and learn nothing of others: on every route, in every list and figure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from scheduler_async import After, Every, Manual, Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web.application import ROUTES, PageApplication
from tests.cast import NOON
from tests.web.test_access import address_of, body_of
from tests.web.visitors import page_of, visitor


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if "{namespace}/{id}" in one.path], ids=lambda one: f"{one.method} {one.path}"
)
async def test_a_job_of_another_tenant_is_not_found(route: Any, page: PageApplication, shown: Scheduler) -> None:
    before = [job.to_json() for job in await shown.list_jobs()]

    async with visitor(page, "tina manage payloads tenants=default") as tina:
        theirs = await tina.request(route.method, address_of(route, job="acme/import"), **body_of(route))
        nobodys = await tina.request(route.method, address_of(route, job="acme/nothing"), **body_of(route))

    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.text.replace("import", "nothing") == nobodys.text, "the answer does not tell whether it exists"
    assert [job.to_json() for job in await shown.list_jobs()] == before


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if "{run}" in one.path], ids=lambda one: f"{one.method} {one.path}"
)
async def test_a_run_of_another_tenant_is_not_found(route: Any, page: PageApplication, shown: Scheduler) -> None:
    (row, *_) = await shown.run_log("import", namespace="acme")

    async with visitor(page, "tina manage payloads tenants=default") as tina:
        theirs = await tina.request(route.method, address_of(route, run=str(row.id)), **body_of(route))
        nobodys = await tina.request(route.method, address_of(route, run="99999"), **body_of(route))

    assert theirs.status_code == nobodys.status_code == 404
    assert "acme" not in theirs.text
    assert theirs.text.replace(f"Run {row.id}", "Run 99999") == nobodys.text


async def test_a_tenant_adds_jobs_to_its_own_namespaces_alone(page: PageApplication, shown: Scheduler) -> None:
    async with visitor(page, "tina manage tenants=acme") as tina:
        body = {"id": "new", "schedule": "manual", "handler": "talk"}
        elsewhere = await tina.post("/api/v1/jobs", json=body)
        own = await tina.post("/api/v1/jobs", json={**body, "namespace": "acme"})

    assert (elsewhere.status_code, own.status_code) == (403, 201)
    assert [job.namespace for job in await shown.list_jobs() if job.id == "new"] == ["acme"]


async def test_a_tenant_follows_only_jobs_that_it_sees(page: PageApplication, shown: Scheduler) -> None:
    """The runs would tell when the jobs of others run, and how they end."""
    theirs = {"kind": "after", "job": "report", "outcome": "any", "namespace": "default"}
    own = {**theirs, "job": "import", "namespace": "acme"}
    body = {"handler": "talk", "namespace": "acme"}
    place, added = "/api/v1/jobs/acme/by-hand", await shown.get_job("by-hand", namespace="acme")

    async with visitor(page, "tina manage tenants=acme") as tina:
        refused = [
            await tina.post("/api/v1/jobs", json={**body, "schedule": theirs}),
            await tina.put("/api/v1/jobs/acme/new", json={"handler": "talk", "schedule": theirs}),
            await tina.put(place, json={"handler": "talk", "schedule": theirs}),
            await tina.patch(place, json={"schedule": theirs}),
            await tina.patch(place, json={"schedule": {**theirs, "job": "nothing"}}),
        ]
        unchanged = await shown.get_job("by-hand", namespace="acme")
        accepted = [
            await tina.post("/api/v1/jobs", json={**body, "schedule": own}),
            await tina.patch(place, json={"schedule": own}),
        ]
        await shown.update_job("by-hand", namespace="acme", schedule=After("report", namespace="default"))
        kept = await tina.put(place, json=(await tina.get(place)).json())

    assert {(answer.status_code, answer.json()["field"]) for answer in refused} == {(403, "schedule")}
    assert len({answer.text for answer in refused}) == 1, "the answer does not tell whether the job exists"
    assert unchanged == added
    assert [answer.status_code for answer in accepted] == [201, 200]
    assert kept.status_code == 200, "what somebody else has set up may stay"


async def test_many_jobs_are_those_of_the_tenant(page: PageApplication, shown: Scheduler) -> None:
    async with visitor(page, "tina operate tenants=acme") as tina:
        by_filter = await tina.post("/api/v1/jobs/bulk", json={"action": "pause", "filter": {"handler": "talk"}})
        by_name = await tina.post("/api/v1/jobs/bulk", json={"action": "pause", "ids": ["default/report"]})

    assert [item["id"] for item in by_filter.json()["items"]] == ["by-hand"]
    assert [item["result"] for item in by_name.json()["items"]] == ["refused"]
    assert [job.id for job in await shown.list_jobs(status="paused")] == ["by-hand"]


async def test_the_feed_tells_a_tenant_of_its_own_changes_alone(page: PageApplication, shown: Scheduler) -> None:
    async with visitor(page, "tina look tenants=acme") as tina:
        before = (await tina.get("/feed")).json()["mark"]
        await shown.pause_job("report")
        after_others = (await tina.get("/feed")).json()["mark"]
        await shown.pause_job("by-hand", namespace="acme")
        after_own = (await tina.get("/feed")).json()["mark"]

    assert before == after_others != after_own


LISTS = [
    *("/", "/metrics", "/api/v1/jobs", "/api/v1/jobs?order=name", "/api/v1/runs", "/api/v1/attention", "/api/v1/tally"),
    *("/api/v1/changes", "/api/v1/health", "/api/v1/jobs?text=a", "/api/v1/jobs?status=failing", "/api/v1/nodes"),
    *("/api/v1/runs?outcome=error", "/api/v1/jobs?status=paused"),
]
NAMES = ["alpha", "beta", "gamma"]


@pytest.mark.once
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["work", "fail", "late"])), max_size=8),
    st.sets(st.sampled_from(NAMES)),
)
def test_what_others_have_changes_no_answer(jobs: list[tuple[str, str]], seen: set[str]) -> None:
    """The answers are those of a store with the tenant's own jobs alone, but for the numbers of rows."""

    async def answers(wanted: list[tuple[int, str, str]]) -> list[tuple[int, Any]]:
        clock = VirtualClock(NOON)
        scheduler = Scheduler(":memory:", clock=clock)

        @scheduler.handler("work")
        async def work() -> None: ...

        @scheduler.handler("fail")
        async def fail() -> None:
            raise ValueError("broken")

        async with scheduler:
            for number, namespace, handler in wanted:
                schedule = Manual() if number % 3 == 2 else Every("1m")
                await scheduler.add_job(schedule, handler=handler, id=f"{namespace}-job-{number}", namespace=namespace)
            await clock.advance("3m")
            async with visitor(page_of(scheduler), f"tina look payloads tenants={','.join(seen)}") as tina:
                return [
                    (found.status_code, _without_numbers(found.text))
                    for found in [await tina.get(one) for one in LISTS]
                ]

    numbered = [(number, namespace, handler) for number, (namespace, handler) in enumerate(jobs)]
    own = [one for one in numbered if one[1] in seen]

    with_others, alone = asyncio.run(answers(numbered)), asyncio.run(answers(own))

    for (status, found), (_, expected), address in zip(with_others, alone, LISTS, strict=True):
        assert status == 200
        assert found == expected or address == "/", address  # the page shows numbers of runs
        others = set(NAMES) - seen
        assert not any(other in json.dumps(found) for other in others), address


def _without_numbers(text: str) -> Any:
    """The answer without the numbers of runs and changes, which the whole store counts, and without this process."""
    if not text.startswith("{"):
        return [line for line in text.splitlines() if "run_timestamp" not in line]

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            left_out = ("number", "run_id", "node", "after", "next", "redacted")
            return {
                name: plain(inner)
                for name, inner in value.items()
                if name not in left_out
                and not (name == "id" and (isinstance(inner, int) or "pid" in value))
                and name != "pid"
            }
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    return plain(json.loads(text))
