"""`scheduler-async web` as a real process: its link, its socket, its end; and the page on real servers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from scheduler_async import Every, Manual, Scheduler
from scheduler_async.cli.ownership import own_name
from scheduler_async.web.access import Access, Asking
from scheduler_async.web.login_link import LoginLink
from tests.test_servers import PYTHON, UVICORN, Server, serving

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="servers are ended by signals here"),
    pytest.mark.timeout(90),
]

COMMAND = (*PYTHON, "-m", "scheduler_async", "web")
POSTED = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def jobs(shared: str) -> AsyncIterator[Scheduler]:
    """A store on which no scheduler runs, in a file or in PostgreSQL."""
    scheduler = Scheduler(shared)
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    yield scheduler
    await scheduler.stop()


@asynccontextmanager
async def logged_in(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has followed the link."""
    link = await server.says(r"(http://127\.0\.0\.1:\d+/login\?key=\S+)")
    async with httpx.AsyncClient(base_url=link.partition("/login")[0], headers=POSTED) as client:
        answer = await client.get(link)
        assert answer.status_code == 303
        yield client


async def test_the_link_works_once_and_leaves_a_cookie(jobs: Scheduler, shared: str, tmp_path: Path) -> None:
    with serving(tmp_path, *COMMAND, "--store", shared, "--port", "0") as server:
        link = await server.says(r"(http://127\.0\.0\.1:\d+/login\?key=\S+)")
        base = link.partition("/login")[0]
        async with httpx.AsyncClient(base_url=base) as stranger, httpx.AsyncClient(base_url=base) as browser:
            assert (await stranger.get("/")).status_code == 401
            assert (await stranger.get("/api/v1/jobs")).status_code == 401
            assert (await stranger.get("/login", params={"key": "guess"})).status_code == 401
            assert (await stranger.head(link)).status_code == 200, "a preview does not use it up"
            assert (await browser.get(link, headers={"Sec-Purpose": "prefetch;prerender"})).status_code == 503
            first = await browser.get(link)
            again, used = await browser.get(link), await stranger.get(link)
            assert (again.status_code, "set-cookie" in again.headers) == (303, False), "a restored tab goes on"
            assert (used.status_code, 'name="key"' in used.text) == (401, True), "a page that takes another key"
            cookie = first.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert httpx.URL(link).join(first.headers["location"]).path == "/"
            assert (await browser.get("/")).status_code == 200
            assert [job["id"] for job in (await browser.get("/api/v1/jobs")).json()["items"]] == ["a"]
            assert (await browser.get("/", headers={"Host": "evil.test"})).status_code == 421
            assert (await browser.get("/", headers={"Host": "localhost"})).status_code == 200
            assert (await stranger.get("/healthz")).json() == {"status": "ok"}
            assert (await stranger.get("/readyz")).status_code == 200
        assert await server.ends() == 0, server.said

    assert link.rpartition("key=")[2] not in "".join(server.said[2:]), "no log has the link"
    assert "Traceback" not in "".join(server.said)


async def test_it_acts_on_jobs_whose_schedulers_run_elsewhere_and_is_none_itself(
    jobs: Scheduler, shared: str, tmp_path: Path
) -> None:
    @jobs.handler("work")
    async def work() -> None: ...

    await jobs.start()
    with serving(tmp_path, *COMMAND, "--store", shared, "--port", "0") as server:
        async with logged_in(server) as browser:
            paused = await browser.post("/api/v1/jobs/default/a/pause", json={"reason": "x"})
            run = await browser.post("/api/v1/jobs/default/a/run")
            row = await jobs.wait_for_run(run.json()["id"], timeout=30)
            nodes = (await browser.get("/api/v1/nodes")).json()["items"]
        assert await server.ends() == 0, server.said

    assert (paused.status_code, run.status_code) == (200, 202)
    assert row.outcome == "success"
    assert [node["pid"] for node in nodes] == [os.getpid()]
    rows = await jobs.changes("a", limit=2)
    assert [(row.action, row.actor, row.via) for row in rows] == [
        ("trigger", own_name(), "page"),
        ("pause", own_name(), "page"),
    ]


@pytest.mark.once
async def test_the_page_of_a_program_knows_its_store_and_does_not_start_it(tmp_path: Path) -> None:
    (tmp_path / "myapp.py").write_text(textwrap.dedent(APP))
    scheduler = Scheduler(tmp_path / "jobs.db")
    await scheduler.add_job(Manual(), handler="work", id="own")
    await scheduler.stop()

    with serving(tmp_path, *COMMAND, "--app", "myapp:scheduler", "--port", "0") as server:
        async with logged_in(server) as browser:
            jobs = (await browser.get("/api/v1/jobs")).json()["items"]
            nodes = (await browser.get("/api/v1/nodes")).json()["items"]
            ready = await browser.get("/readyz")
        assert await server.ends() == 0, server.said

    assert [job["id"] for job in jobs] == ["own"], "a start would have added the declared job"
    assert nodes == []
    assert ready.status_code == 200


@pytest.mark.once
async def test_a_read_only_page_changes_nothing(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "jobs.db")
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.stop()

    with serving(tmp_path, *COMMAND, "--store", "jobs.db", "--port", "0", "--read-only") as server:
        async with logged_in(server) as browser:
            assert (await browser.get("/api/v1/jobs")).status_code == 200
            assert (await browser.post("/api/v1/jobs/default/a/pause")).status_code == 403
        await server.ends()


@pytest.mark.once
async def test_a_socket_is_open_to_its_owner_alone(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "jobs.db")
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.stop()
    uds = tmp_path / "page.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(uds))  # a killed server has left it

    command = (*COMMAND, "--store", "jobs.db", "--uds", "page.sock", "--allow-host", "jobs.example.com")
    with serving(tmp_path, *command) as server:
        await server.says("Press Ctrl-C")
        assert stat.S_IMODE(uds.stat().st_mode) == 0o600
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(uds)), base_url="http://localhost", headers=POSTED
        ) as client:
            assert (await client.post("/api/v1/jobs/default/a/pause")).status_code == 200
            hosts = {name: (await client.get("/", headers={"Host": name})).status_code for name in HOSTS}
            assert hosts == {"jobs.example.com": 200, "localhost:80": 200, "evil.test": 421}
        with serving(tmp_path, *command) as second:
            assert await second.says("Another server listens at page.sock")
        assert await server.ends() == 0
    assert not uds.exists()


HOSTS = ("jobs.example.com", "localhost:80", "evil.test")


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("--store", "nothing.db"), "Store nothing.db does not exist", id="no store"),
        pytest.param(("--port", "70000"), "70000", id="no port"),
        pytest.param(("--uds", "jobs.db"), "jobs.db exists and is not a socket", id="a file for a socket"),
        pytest.param(("--uds", "nowhere/page.sock"), "Cannot listen at nowhere/page.sock", id="no directory"),
        pytest.param(("--app", "nothing:scheduler"), "Cannot load nothing:scheduler", id="no program"),
        pytest.param(("--store", "text.db"), "text.db", id="no database"),
    ],
)
async def test_what_cannot_be_served_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    scheduler = Scheduler(tmp_path / "jobs.db")
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.stop()
    (tmp_path / "text.db").write_text("only some text " * 100)

    store = () if "--store" in arguments or "--app" in arguments else ("--store", "jobs.db")
    done = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, *store, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert done.returncode in (1, 2), done.stdout
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_link_is_of_one_page_alone() -> None:
    one, other = LoginLink(Access("anna", "look")), LoginLink(Access("anna", "look"))
    session = one.redeem(one.link.partition("key=")[2])
    assert session is not None

    def asking(link: LoginLink) -> Asking:
        return Asking({}, "/", "GET", None, {link.cookie: session})

    assert one.redeem(one.link.partition("key=")[2]) is None
    assert one(asking(one)) == Access("anna", "look")
    assert other(asking(other)) is None
    assert one.cookie != other.cookie


# ---------------------------------------------------------------- the page in applications on real servers

APP = """
    from fastapi import FastAPI
    from scheduler_async import Every, Scheduler
    from scheduler_async.web import everyone

    scheduler = Scheduler("jobs.db")

    @scheduler.job(Every("1h"), id="a")
    async def work() -> None: ...

    app = FastAPI(lifespan=scheduler.lifespan)
    app.mount("/scheduler", scheduler.page(access=everyone("operate")))
"""
AIOHTTP = """
    from aiohttp import web
    from scheduler_async import Every, Scheduler
    from scheduler_async.web import everyone

    scheduler = Scheduler("jobs.db")

    @scheduler.job(Every("1h"), id="a")
    async def work() -> None: ...

    app = web.Application()
    app.cleanup_ctx.append(scheduler.cleanup_ctx)
    scheduler.page(access=everyone("operate")).add_to(app, "/scheduler")
    web.run_app(app, host="127.0.0.1", port=0)
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        pytest.param((*UVICORN, "uvicorn_app:app"), -signal.SIGTERM, id="uvicorn"),
        pytest.param((*PYTHON, "aiohttp_app.py"), 0, id="aiohttp"),
    ],
)
async def test_a_server_that_ends_does_not_wait_for_those_who_wait_for_changes(
    tmp_path: Path, command: tuple[str, ...], exit_code: int
) -> None:
    """The wait is made a minute long, so that the test would not end in time by itself."""
    longer = "import scheduler_async.web.watching as w; w.LONGEST_WAIT = 600.0\n"
    (tmp_path / "uvicorn_app.py").write_text(longer + textwrap.dedent(APP))
    (tmp_path / "aiohttp_app.py").write_text(longer + textwrap.dedent(AIOHTTP))

    with serving(tmp_path, *command, PYTHONPATH=str(Path(__file__).parents[2])) as server:
        address = await server.says(r"unning on (http://127\.0\.0\.1:\d+)")
        async with aiohttp.ClientSession(f"{address}/scheduler/", headers=POSTED) as session:
            async with session.get("feed") as answer:
                mark = (await answer.json())["mark"]
            waits = [asyncio.create_task(_status(session, mark)) for _ in range(3)]
            async with session.post("api/v1/jobs/default/a/pause") as answer:
                assert answer.status == 200
            assert await asyncio.gather(*waits) == [200] * 3
            async with session.get("feed") as answer:
                mark = (await answer.json())["mark"]
            waits = [asyncio.create_task(_status(session, mark)) for _ in range(3)]
            async with session.get("api/v1/jobs") as answer:  # the waits before it have arrived
                assert answer.status == 200
            assert await server.ends() == exit_code, server.said
            assert set(await asyncio.gather(*waits)) <= {204, None}


async def _status(session: aiohttp.ClientSession, mark: str) -> int | None:
    try:
        async with session.get("feed", params={"after": mark}) as answer:
            return answer.status
    except aiohttp.ClientError:  # the server has ended before it came
        return None


async def test_what_a_browser_sends_arrives_through_aiohttp(tmp_path: Path) -> None:
    """Streams, large bodies, and a visitor who leaves early."""
    (tmp_path / "aiohttp_app.py").write_text(textwrap.dedent(AIOHTTP))

    with serving(tmp_path, *PYTHON, "aiohttp_app.py", PYTHONPATH=str(Path(__file__).parents[2])) as server:
        address = await server.says(r"unning on (http://127\.0\.0\.1:\d+)")
        async with aiohttp.ClientSession(f"{address}/scheduler/", headers=POSTED) as session:

            async def body(size: int) -> AsyncIterator[bytes]:
                yield b'{"reason": "'
                for _ in range(size // 1000):
                    yield b"x" * 1000
                yield b'"}'

            async def send(place: str, data: Any) -> int:
                async with session.post(place, data=data, headers={"Content-Type": "application/json"}) as answer:
                    return answer.status

            place = "api/v1/jobs/default/a/pause"
            assert await send(place, body(0)) == 422, "an empty reason"
            assert await send(place, body(60_000)) == 422, "a reason that is too long"
            assert await send(place, body(70_000)) == 413
            assert await send(place, b"{}") == 200
            async with session.head("api/v1/jobs") as answer:
                assert (answer.status, await answer.read()) == (200, b"")
            with pytest.raises(asyncio.TimeoutError):
                async with session.get("feed", params={"after": "x"}, timeout=aiohttp.ClientTimeout(total=1e-6)):
                    pass
            async with session.get("api/v1/jobs") as answer:
                assert answer.status == 200
        await server.ends()

    assert not re.search(r"Traceback|rror", "".join(server.said)), server.said
