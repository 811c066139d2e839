"""Live updates: an answer on a change, nothing after two seconds, one watcher, an end at once with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from starlette.types import Message

from scheduler_async import Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web import watching
from scheduler_async.web.access import Access
from scheduler_async.web.application import PageApplication
from scheduler_async.web.errors import TooManyWaitingError
from scheduler_async.web.watching import Feed
from tests.cast import PATIENCE
from tests.web.visitors import HOST, page_of, visitor

ANNA = Access("anna", "look")


class Asked:
    """A scheduler that counts how often it is asked for its mark."""

    def __init__(self) -> None:
        self.times = 0
        self.current = "1"
        self.problem: Exception | None = None
        self.heard = asyncio.Event()

    async def mark(self, *, namespaces: object = None) -> str:
        self.times += 1
        self.heard.set()
        if self.problem is not None:
            raise self.problem
        return self.current


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(watching, "LOOK", 0.001)
    return Asked()


@pytest.fixture
async def feed(asked: Asked) -> AsyncIterator[Feed]:
    feed = Feed(asked)  # type: ignore[arg-type]
    yield feed
    feed.close()


async def waiting(feed: Feed, number: int = 1, who: str = "") -> list[asyncio.Task[str | None]]:
    """Requests that wait for a change."""
    tasks = [asyncio.create_task(feed.change_after("1", ANNA, who or f"client {one}")) for one in range(number)]
    async with asyncio.timeout(PATIENCE):
        while feed.waits < number:
            await asyncio.sleep(0)
    return tasks


async def test_a_change_answers_all_that_wait_with_one_watcher(feed: Feed, asked: Asked) -> None:
    tasks = await waiting(feed, 20)
    asked.current = "2"

    assert await asyncio.gather(*tasks) == ["2"] * 20
    assert not feed.is_watching


async def test_a_mark_that_is_old_already_is_answered_at_once(feed: Feed, asked: Asked) -> None:
    asked.current = "2"

    assert await feed.change_after("1", ANNA, "a") == "2"
    assert not feed.is_watching


async def test_who_comes_later_does_not_hide_a_change_from_those_who_wait(
    feed: Feed, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK", 60.0)  # the watcher does not look in between
    (task,) = await waiting(feed)
    asked.current = "2"
    later = asyncio.create_task(feed.change_after("2", ANNA, "later"))

    assert await task == "2"
    feed.close()
    assert await later is None


async def test_nothing_is_asked_while_nobody_looks(feed: Feed, asked: Asked) -> None:
    (task,) = await waiting(feed)
    task.cancel()
    await asyncio.wait([task])
    times = asked.times
    for _ in range(20):
        await asyncio.sleep(0)

    assert not feed.is_watching
    assert asked.times == times


async def test_without_a_change_the_wait_ends(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONGEST_WAIT", 0.01)

    assert await feed.change_after("1", ANNA, "a") is None
    assert not feed.is_watching


async def test_the_end_of_the_server_ends_all_waits_and_those_to_come(feed: Feed) -> None:
    tasks = await waiting(feed, 3)

    feed.close()

    assert await asyncio.gather(*tasks) == [None] * 3
    assert await feed.change_after("1", ANNA, "a") is None


async def test_the_signal_of_uvicorn_is_noticed(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for requests to end before it tells applications that it ends."""
    (task,) = await waiting(feed)
    monkeypatch.setattr(watching, "is_server_ending", lambda: True)

    assert await task is None


async def test_a_store_that_fails_is_told_to_all_that_wait(feed: Feed, asked: Asked) -> None:
    from scheduler_async import StoreError

    tasks = await waiting(feed, 2)
    asked.problem = StoreError("The disk is full.")

    assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == ["The disk is full."] * 2


async def test_one_client_has_five_places(feed: Feed) -> None:
    tasks = await waiting(feed, 5, "anna@1")

    with pytest.raises(TooManyWaitingError):
        await feed.change_after("1", ANNA, "anna@1")
    more = await waiting_more(feed, "bob@1")

    feed.close()
    assert await asyncio.gather(*tasks, more) == [None] * 6
    assert feed.waits == 0


async def test_visitors_that_leave_make_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed used to keep their places until the end of the wait: a visitor with quick fingers got errors."""
    monkeypatch.setattr(watching, "LONGEST_WAIT", 3600.0)
    async with Scheduler(":memory:") as scheduler:
        page = page_of(scheduler)
        mark = await scheduler.mark()
        statuses = [await status_after_leaving(page, mark) for _ in range(watching.MOST_OF_A_CLIENT + 1)]

    assert statuses == [204] * (watching.MOST_OF_A_CLIENT + 1)
    assert not page.is_watched


async def status_after_leaving(page: PageApplication, mark: str) -> int:
    """Wait for a change, close the connection meanwhile, and return the status that the server would have sent."""
    sent: list[Message] = []
    asked: Message = {"type": "http.request", "body": b"", "more_body": False}
    received = [asked]

    async def receive() -> Message:
        if received:
            return received.pop()
        async with asyncio.timeout(PATIENCE):
            while not page.is_watched:
                await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/feed",
        "query_string": urlencode({"after": mark}).encode(),
        "headers": [(b"x-visitor", b"anna look"), (b"host", HOST.encode())],
        "client": ("10.0.0.1", 5000),
    }
    async with asyncio.timeout(PATIENCE):
        await page(scope, receive, send)
    return int(sent[0]["status"])


async def test_visitors_whom_the_server_cannot_tell_apart_are_not_taken_for_one(feed: Feed) -> None:
    """At a Unix socket, all visitors of a proxy come from nowhere."""
    tasks = [await waiting_more(feed, None) for _ in range(6)]

    feed.close()
    assert await asyncio.gather(*tasks) == [None] * 6


async def waiting_more(feed: Feed, who: str | None) -> asyncio.Task[str | None]:
    before = feed.waits
    task = asyncio.create_task(feed.change_after("1", ANNA, who))
    async with asyncio.timeout(PATIENCE):
        while feed.waits == before:
            await asyncio.sleep(0)
    return task


async def test_a_process_has_a_hundred_places(feed: Feed) -> None:
    tasks = await waiting(feed, 100)

    with pytest.raises(TooManyWaitingError):
        await feed.change_after("1", ANNA, "the next")

    feed.close()
    await asyncio.gather(*tasks)


# ---------------------------------------------------------------- over HTTP


async def test_a_pause_in_another_request_is_an_answer(shown: Scheduler, page: PageApplication) -> None:
    async with visitor(page) as anna:
        mark = (await anna.get("/feed")).json()["mark"]
        waits = asyncio.create_task(anna.get("/feed", params={"after": mark}))
        await anna.post("/api/v1/jobs/default/report/pause")
        answer = await waits

    assert answer.status_code == 200
    assert answer.json()["mark"] != mark


async def test_a_run_is_an_answer(shown: Scheduler, page: PageApplication, clock: VirtualClock) -> None:
    async with visitor(page) as anna:
        mark = (await anna.get("/feed")).json()["mark"]
        await clock.advance("1m")
        answer = await anna.get("/feed", params={"after": mark})

    assert answer.json()["mark"] != mark


async def test_too_many_waits_are_asked_to_come_later(
    shown: Scheduler, page: PageApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_OF_A_CLIENT", 0)
    async with visitor(page) as anna:
        mark = (await anna.get("/feed")).json()["mark"]
        answer = await anna.get("/feed", params={"after": mark})

    assert (answer.status_code, answer.json()["type"]) == (503, "TooManyWaitingError")
    assert int(answer.headers["retry-after"]) > 0


async def test_aiohttp_ends_waits_when_it_stops(shown: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LONGEST_WAIT", 60.0)
    page = page_of(shown)
    app = web.Application()
    page.add_to(app, "/scheduler")
    server = TestServer(app)
    await server.start_server()
    async with ClientSession(server.make_url("/scheduler/"), headers={"X-Visitor": "anna look"}) as session:
        async with session.get("feed") as answer:
            mark = (await answer.json())["mark"]
        waits = asyncio.create_task(_status(session, mark))
        while not page.is_watched:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(PATIENCE):
            await server.close()
            assert await waits in (204, None)


async def _status(session: ClientSession, mark: str) -> int | None:
    async with session.get("feed", params={"after": mark}) as answer:
        return answer.status
