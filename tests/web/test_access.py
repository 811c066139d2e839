"""Who may do what: access rules, roles, and one table that decides about every route."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest

from scheduler_async import InvalidJobError, Scheduler
from scheduler_async.web import Access, everyone, token
from scheduler_async.web.access import NEEDED, Asking, Role
from scheduler_async.web.application import ROUTES, PageApplication
from scheduler_async.web.routing import Route
from tests.web.visitors import page_of, visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

EACH = list(ROUTES)
ROUTE_IDS = [f"{route.method} {route.path or 'overview'}" for route in EACH]


def address_of(route: Route, *, job: str = "default/report", run: str = "1") -> str:
    """An address that the route answers."""
    path = route.path.replace("{namespace}/{id}", job).replace("{run}", run)
    return "/" + re.sub(r"\{\w+\}", "x", path)


def body_of(route: Route) -> dict[str, Any]:
    """A body that the route can read."""
    if not route.takes:
        return {}
    text = '{"schedule": "manual", "handler": "talk"}' if route.method == "PUT" else "{}"
    text = text if "json" in route.takes[0] else ""
    return {"content": text, "headers": {"Content-Type": route.takes[0]}}


async def ask(app: Any, route: Route, who: str | None) -> httpx.Response:
    async with visitor(app, who) as client:
        return await client.request(route.method, address_of(route), **body_of(route))


# ---------------------------------------------------------------- the rule


def test_a_page_without_access_says_what_to_write() -> None:
    with pytest.raises(InvalidJobError, match=r'page\(access=everyone\("look"\)\)') as error:
        Scheduler(":memory:").page()

    assert error.value.field == "access"


@pytest.mark.parametrize("rule", ["secret", Access("anna", "look"), Access], ids=["text", "an access", "the class"])
def test_what_is_no_function_is_no_rule(rule: Any) -> None:
    with pytest.raises(InvalidJobError, match="access must be a function"):
        Scheduler(":memory:").page(access=rule)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        pytest.param({"who": "", "role": "look"}, "who", id="no name"),
        pytest.param({"who": "anna\n", "role": "look"}, "who", id="a name with a newline"),
        pytest.param({"who": "anna", "role": "admin"}, "role", id="an unknown role"),
        pytest.param({"who": "anna", "role": "look", "namespaces": "acme"}, "namespaces", id="text for a list"),
        pytest.param({"who": "anna", "role": "look", "payloads": "yes"}, "payloads", id="text for a truth value"),
    ],
)
def test_an_access_checks_its_arguments(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        Access(**arguments)

    assert error.value.field == field


@pytest.mark.parametrize("secret", ["", " ", None, 7], ids=repr)
def test_an_empty_token_opens_nothing(secret: Any) -> None:
    """As from a variable of the environment that is not set."""
    with pytest.raises(InvalidJobError, match="hard to guess"):
        token(secret)


async def test_a_rule_may_be_async_and_sees_the_request(shown: Scheduler) -> None:
    seen: list[Asking] = []

    async def rule(request: Asking) -> Access | None:
        seen.append(request)
        return Access(request.cookies["who"], "look")

    async with visitor(shown.page(access=rule), None) as client:
        client.cookies["who"] = "anna"
        answer = await client.get("/api/v1/jobs", headers={"X-Forwarded-User": "anna"})

    assert answer.status_code == 200
    (request,) = seen
    assert (request.path, request.method) == ("/api/v1/jobs", "GET")
    assert request.headers["x-forwarded-user"] == request.headers["X-Forwarded-User"] == "anna"
    assert request.client is not None
    assert request.client.host == "127.0.0.1"


@pytest.mark.parametrize("answer", [True, "anna", 7], ids=repr)
async def test_a_rule_that_answers_something_else_lets_nobody_in(shown: Scheduler, answer: Any) -> None:
    async with visitor(shown.page(access=lambda _: answer), None) as client:
        found = await client.get("/api/v1/jobs")

    assert found.status_code == 500
    assert found.json()["type"] == "InternalError"


async def test_a_rule_that_raises_lets_nobody_in_and_shows_no_traceback(shown: Scheduler) -> None:
    def rule(_request: Asking) -> Access:
        raise RuntimeError("the directory of users is at ldap://secret")

    async with visitor(shown.page(access=rule), None) as client:
        for address in ("/", "/api/v1/jobs"):
            found = await client.get(address)
            assert found.status_code == 500
            assert "ldap" not in found.text
            assert "Traceback" not in found.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Authorization": "Bearer correct-horse"}, 200, id="the token"),
        pytest.param({"Authorization": "bearer correct-horse"}, 200, id="the scheme in lower case"),
        pytest.param({"Authorization": "Bearer wrong-horse"}, 401, id="another token"),
        pytest.param({"Authorization": "Basic correct-horse"}, 401, id="another scheme"),
        pytest.param({"Authorization": "Bearer "}, 401, id="an empty token"),
        pytest.param({"Authorization": b"Bearer \xff\xfe"}, 401, id="bytes"),
        pytest.param({}, 401, id="none"),
    ],
)
async def test_a_token_lets_in_programs_that_send_it(shown: Scheduler, headers: Any, status: int) -> None:
    async with visitor(shown.page(access=token("correct-horse")), None, site=False) as client:
        found = await client.get("/api/v1/jobs", headers=headers)

    assert found.status_code == status
    assert ("www-authenticate" in found.headers) == (status == 401)


async def test_everyone_gets_the_role_that_is_named(shown: Scheduler) -> None:
    async with visitor(shown.page(access=everyone("look")), None) as client:
        read, paused = await asyncio.gather(
            client.get("/api/v1/jobs"), client.post("/api/v1/jobs/default/report/pause")
        )

    assert (read.status_code, paused.status_code) == (200, 403)


# ---------------------------------------------------------------- roles × routes


def test_every_action_needs_a_role() -> None:
    assert all(NEEDED[route.action] in Role for route in ROUTES)
    assert all(route.action is not None for route in ROUTES if route.method != "GET"), (
        "a change that a role to look allows"
    )


@pytest.mark.parametrize("route", EACH, ids=ROUTE_IDS)
async def test_without_access_nothing_is_shown_or_done(route: Route, page: PageApplication) -> None:
    answer = await ask(page, route, None)

    assert (answer.status_code != 401) == route.is_open


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("route", EACH, ids=ROUTE_IDS)
async def test_a_role_may_do_what_the_table_says(route: Route, role: Role, page: PageApplication) -> None:
    answer = await ask(page, route, f"anna {role} payloads")

    assert (answer.status_code == 403) == (not role.includes(NEEDED[route.action]))
    assert answer.status_code != 500, answer.text


@pytest.mark.parametrize("action", ["pause", "resume", "disable", "run", "remove"])
@pytest.mark.parametrize("role", list(Role))
async def test_many_jobs_need_the_role_of_one(action: str, role: Role, page: PageApplication) -> None:
    async with visitor(page, f"anna {role}") as client:
        body = {"action": action, "ids": ["default/report"]}
        answer = await client.post("/api/v1/jobs/bulk", json=body)

    assert (answer.status_code == 200) == role.includes(Role.MANAGE if action == "remove" else Role.OPERATE)


async def test_an_operator_does_not_choose_the_payload_of_a_run(page: PageApplication) -> None:
    """The payload of a command is the command."""
    async with visitor(page, "olga operate") as olga, visitor(page, "mia manage") as mia:
        body = {"payload": {"to": "elsewhere"}}
        refused = await olga.post("/api/v1/jobs/default/report/run", json=body)
        run = await mia.post("/api/v1/jobs/default/report/run", json=body)

    assert (refused.status_code, run.status_code) == (403, 202)


async def test_unknown_addresses_are_a_secret_of_visitors(page: PageApplication) -> None:
    async with visitor(page, None) as stranger, visitor(page) as anna:
        assert (await stranger.get("/api/v1/nothing")).status_code == 401
        assert (await anna.get("/api/v1/nothing")).status_code == 404
        assert (await anna.request("TRACE", "/api/v1/jobs")).status_code == 405
        wrong_method = await anna.delete("/api/v1/jobs")

    assert wrong_method.status_code == 405
    assert wrong_method.headers["allow"] == "GET, POST"


async def test_head_is_answered_as_get(anna: httpx.AsyncClient) -> None:
    assert (await anna.head("/api/v1/jobs")).status_code == 200
    assert (await anna.head("/")).status_code == 200


def test_a_rule_by_header_is_what_the_tests_use(shown: Scheduler) -> None:
    assert page_of(shown) is not page_of(shown)
