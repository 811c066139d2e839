"""When a claimed run begins."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.launcher import Launcher
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import SECOND
from tests.engine.parts import NOON_MICROS, Parts, claimed_run

SOON = NOON_MICROS + SECOND // 4


class Launch:
    """A launcher whose handler notes which runs have begun."""

    def __init__(self, parts: Parts) -> None:
        parts.clock_watch.begin()
        parts.node.trusted_until = float("inf")
        self.began: list[int] = []
        self.ended = EndedRuns(parts.clock, parts.clock_watch, parts.agenda, parts.announcer)
        self.launcher = Launcher(parts.setting, parts.node, parts.announcer, parts.clock_watch, self.ended)
        parts.setting.handlers.register("work", self.work)

    async def work(self, run: Any) -> None:
        self.began.append(run.id)

    def unbegun(self) -> list[int]:
        return [active.claimed.id for active in self.ended.unrecorded if active.ending is None]


@pytest.fixture
def parts(clock: VirtualClock) -> Parts:
    return Parts(clock)


@pytest.fixture
def launch(parts: Parts) -> Launch:
    return Launch(parts)


async def test_a_run_that_is_due_begins_at_once(parts: Parts, launch: Launch, clock: VirtualClock) -> None:
    started = launch.launcher.begin([claimed_run(1), claimed_run(2)], NOON_MICROS)
    await clock.advance()

    assert [active.claimed.id for active in started] == [1, 2]
    assert launch.began == [1, 2]
    assert parts.setting.progress.trigger_count == 2


async def test_a_run_that_was_claimed_ahead_begins_when_it_is_due(launch: Launch, clock: VirtualClock) -> None:
    launch.launcher.begin([claimed_run(1, at=SOON)], NOON_MICROS)
    await clock.advance()
    began_early = list(launch.began)

    await clock.advance("1s")

    assert (began_early, launch.began) == ([], [1])


async def test_a_run_whose_handler_was_removed_does_not_begin(
    parts: Parts, launch: Launch, clock: VirtualClock
) -> None:
    launch.launcher.begin([claimed_run(1, at=SOON)], NOON_MICROS)
    parts.setting.handlers.remove("work")

    await clock.advance("1s")

    assert (launch.began, launch.unbegun()) == ([], [1])


async def test_a_run_that_was_claimed_ahead_does_not_begin_after_a_stop(launch: Launch, clock: VirtualClock) -> None:
    launch.launcher.begin([claimed_run(1, at=SOON)], NOON_MICROS)
    launch.launcher.runner.stopping.set()

    await clock.advance("1s")

    assert (launch.began, launch.unbegun()) == ([], [1])


async def test_a_run_of_a_node_that_lost_its_lease_is_dropped(
    parts: Parts, launch: Launch, clock: VirtualClock
) -> None:
    """Another node may have taken it over: it must neither begin nor be given back."""
    launch.launcher.begin([claimed_run(1, at=SOON)], NOON_MICROS)
    parts.node.trusted_until = clock.monotonic()

    await clock.advance("1s")

    assert (launch.began, launch.unbegun(), len(launch.launcher.runner)) == ([], [], 0)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_queued_run_begins_if_it_is_still_ours(
    parts: Parts, launch: Launch, clock: VirtualClock, is_ours: bool
) -> None:
    parts.store.answers["start"] = {1} if is_ours else set()

    launch.launcher.begin([claimed_run(1, is_queued=True)], NOON_MICROS)
    await clock.advance()

    assert launch.began == ([1] if is_ours else [])
    assert parts.store.questions() == ["start"]
    assert launch.unbegun() == []
