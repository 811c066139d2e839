"""Requests of other processes to cancel runs: heeded as soon as the run is known here, and when the store works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from scheduler_async import StoreError
from scheduler_async.engine.requests import Requests
from scheduler_async.testing import VirtualClock
from tests.engine.parts import Parts


class FakeRunner:
    """Knows the runs that the test names, and notes those that are cancelled."""

    def __init__(self) -> None:
        self.runs: set[int] = set()
        self.cancelled: list[tuple[int, str | None]] = []

    def find(self, run: int) -> int | None:
        return run if run in self.runs else None

    def cancel_on_request(self, active: int, reason: str | None) -> None:
        self.cancelled.append((active, reason))


@pytest.fixture
async def heeding(clock: VirtualClock) -> AsyncIterator[tuple[Parts, FakeRunner]]:
    parts, runner = Parts(clock), FakeRunner()
    parts.node.id = 1
    requests = Requests(parts.setting, parts.node, parts.agenda, cast(Any, runner))
    task = asyncio.create_task(requests.keep_heeding())
    yield parts, runner
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_asked_until_there_is_a_request(
    heeding: tuple[Parts, FakeRunner], clock: VirtualClock
) -> None:
    parts, runner = heeding
    runner.runs = {7}
    parts.store.answers["cancels"] = {7: "enough"}

    await clock.advance("1h")
    asked = parts.store.questions()
    parts.agenda.hear_of_requests()
    await clock.advance("1h")

    assert (asked, parts.store.questions()) == ([], ["cancels"])
    assert runner.cancelled == [(7, "enough")]


async def test_a_run_whose_claim_is_not_known_yet_is_looked_for_again(
    heeding: tuple[Parts, FakeRunner], clock: VirtualClock
) -> None:
    """The store may have claimed it a moment ago, and the answer is on its way."""
    parts, runner = heeding
    parts.store.answers["cancels"] = {7: None}
    parts.agenda.hear_of_requests()
    await clock.advance("1s")
    looks = len(parts.store.asked)
    runner.runs = {7}
    await clock.advance("2s")
    await clock.advance("1h")

    assert 2 <= looks <= 6  # after 50 ms, 100 ms, 200 ms …
    assert runner.cancelled == [(7, None)]
    assert len(parts.store.asked) == looks + 1


async def test_a_store_that_fails_for_a_while_is_asked_again(
    heeding: tuple[Parts, FakeRunner], clock: VirtualClock
) -> None:
    parts, runner = heeding
    runner.runs = {7}
    parts.store.answers["cancels"] = StoreError("no")
    parts.agenda.hear_of_requests()
    await clock.advance("3s")
    parts.store.answers["cancels"] = {7: "enough"}
    await clock.advance("2s")

    assert runner.cancelled == [(7, "enough")]
    assert len(parts.store.asked) <= 6


async def test_a_node_that_others_took_for_dead_has_nothing_to_cancel(
    heeding: tuple[Parts, FakeRunner], clock: VirtualClock
) -> None:
    """It cancels all its runs anyway."""
    parts, runner = heeding
    parts.node.id = None
    parts.agenda.hear_of_requests()

    await clock.advance("1h")

    assert (parts.store.asked, runner.cancelled) == ([], [])
