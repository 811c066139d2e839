"""The page in the frameworks of its users: the same answers everywhere, and links that lead back to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import httpx
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from fastapi import FastAPI
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from scheduler_async import Scheduler
from scheduler_async.web.application import PageApplication
from tests.web.visitors import page_of, visitor

Answer: TypeAlias = "tuple[int, dict[str, str], str]"
Ask: TypeAlias = Callable[..., Any]


def in_fastapi(page: PageApplication, path: str) -> Any:
    app = FastAPI()
    app.mount(path, page)
    return app


def in_starlette(page: PageApplication, path: str) -> Any:
    return Starlette(routes=[Mount(path, page)])


def in_nested_starlette(page: PageApplication, path: str) -> Any:
    outer, slash, inner = path.rpartition("/")
    return Starlette(routes=[Mount(outer, routes=[Mount(slash + inner, page)])])


def in_litestar(page: PageApplication, path: str) -> Any:
    return Litestar([asgi(path, is_mount=True, copy_scope=True)(page)])


MOUNTS = [
    pytest.param(in_fastapi, "/scheduler", id="FastAPI"),
    pytest.param(in_starlette, "/scheduler", id="Starlette"),
    pytest.param(in_nested_starlette, "/tools/scheduler", id="Starlette, two levels"),
    pytest.param(in_litestar, "/scheduler", id="Litestar"),
    pytest.param(in_litestar, "/tools/scheduler", id="Litestar, two levels"),
    pytest.param(None, "/scheduler", id="aiohttp"),
    pytest.param(None, "/tools/scheduler", id="aiohttp, an application in another"),
]


@asynccontextmanager
async def served(mount: Any, path: str, page: PageApplication) -> AsyncIterator[Ask]:
    """Ask the page where it is mounted."""
    headers = {"X-Visitor": "anna manage payloads", "Sec-Fetch-Site": "same-origin"}
    if mount is not None:
        async with visitor(mount(page, path)) as client:

            async def ask(method: str, place: str, **options: Any) -> Answer:
                answer = await client.request(method, place, **options)
                return answer.status_code, dict(answer.headers), answer.text

            yield ask
        return
    app = inner = web.Application()
    outer, slash, name = path.rpartition("/")
    if outer:
        inner = web.Application()
        page.add_to(inner, slash + name)
        app.add_subapp(outer, inner)
    else:
        page.add_to(app, path)
    async with TestServer(app) as server, ClientSession(server.make_url("/"), headers=headers) as session:

        async def ask_aiohttp(method: str, place: str, **options: Any) -> Answer:
            options = {"data" if name == "content" else name: value for name, value in options.items()}
            from yarl import URL

            url = URL(str(server.make_url("")).rstrip("/") + place, encoded=True)
            async with session.request(method, url, allow_redirects=False, **options) as answer:
                return (
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    await answer.text(),
                )

        yield ask_aiohttp


@pytest.mark.parametrize(("mount", "prefix"), MOUNTS)
async def test_the_overview_is_at_the_mount(mount: Any, prefix: str, idle: Scheduler) -> None:
    async with served(mount, prefix, page_of(idle)) as ask:
        status, headers, text = await ask("GET", f"{prefix}/")

    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "No scheduler" in text


@pytest.mark.parametrize(("mount", "prefix"), MOUNTS)
async def test_a_browser_that_leaves_out_the_last_slash_is_sent_to_it(mount: Any, prefix: str, idle: Scheduler) -> None:
    """Otherwise relative links would lead past the page."""
    async with served(mount, prefix, page_of(idle)) as ask:
        status, headers, _ = await ask("GET", prefix)

    assert status == 307
    assert httpx.URL("http://page.test" + prefix).join(headers["location"]).path == f"{prefix}/"


@pytest.mark.parametrize(("mount", "prefix"), MOUNTS)
async def test_an_unknown_address_is_a_problem_without_a_traceback(mount: Any, prefix: str, idle: Scheduler) -> None:
    async with served(mount, prefix, page_of(idle)) as ask:
        status, headers, text = await ask("GET", f"{prefix}/api/v1/nothing")

    assert status == 404
    assert headers["content-type"].startswith("application/problem+json")
    assert "PageNotFoundError" in text
    assert "content-security-policy" in headers
