"""Old runs and jobs are removed: in time, and a little at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from scheduler_async import StoreError, StoreOutdatedError
from scheduler_async.engine.janitor import UPKEEP_LOOK, UPKEEP_SLICE, Janitor
from scheduler_async.options import duration_or_none
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import DAY, MINUTE, Micros, span
from tests.engine.parts import NOON_MICROS, Parts, new_job

KEEP = 100


def new_janitor(parts: Parts) -> Janitor:
    return Janitor(parts.setting, parts.announcer, parts.clock_watch, parts.troubles, parts.deciding)


async def test_only_jobs_with_enough_new_rows_are_looked_at(clock: VirtualClock) -> None:
    parts = Parts(clock, keep_runs=KEEP)
    janitor = new_janitor(parts)
    parts.store.answers["overgrown"] = lambda uids, keep: uids
    janitor.count_rows(1, KEEP // 10)
    janitor.count_rows(2, KEEP // 10 + 1)

    await janitor.purge()

    assert parts.store.asked[:2] == [("overgrown", ([2], KEEP)), ("purge_runs", ([2], KEEP, NOON_MICROS))]
    assert janitor.grown == {1: KEEP // 10}


async def test_at_the_end_every_job_with_new_rows_is_looked_at(clock: VirtualClock) -> None:
    parts = Parts(clock, keep_runs=KEEP)
    janitor = new_janitor(parts)
    parts.store.answers["overgrown"] = []
    janitor.count_rows(1, 1)

    await janitor.purge(threshold=0)

    assert parts.store.questions() == ["overgrown", "purge_history"]
    assert janitor.grown == {}


async def test_many_jobs_are_purged_some_at_a_time(clock: VirtualClock) -> None:
    """No transaction holds up the others for long."""
    parts = Parts(clock, keep_runs=KEEP)
    janitor = new_janitor(parts)
    parts.store.answers["overgrown"] = lambda uids, keep: uids
    for uid in range(UPKEEP_LOOK + 1):
        janitor.count_rows(uid, KEEP)

    await janitor.purge()

    looked_at = [len(args[0]) for name, args in parts.store.asked if name == "overgrown"]
    purged = [len(args[0]) for name, args in parts.store.asked if name == "purge_runs"]
    assert looked_at == [UPKEEP_LOOK, 1]
    assert sum(purged) == UPKEEP_LOOK + 1
    assert max(purged) == UPKEEP_SLICE


async def test_rows_that_come_during_a_purge_count_for_the_next(clock: VirtualClock) -> None:
    parts = Parts(clock, keep_runs=KEEP)
    janitor = new_janitor(parts)

    def overgrown(uids: list[int], keep: int) -> list[int]:
        janitor.count_rows(1, 3)
        return []

    parts.store.answers["overgrown"] = overgrown
    janitor.count_rows(1, KEEP)

    await janitor.purge()

    assert janitor.grown == {1: 3}


async def test_all_jobs_that_are_long_disabled_are_removed_and_announced(clock: VirtualClock) -> None:
    parts = Parts(clock, purge_disabled_after=timedelta(days=1))
    gone = [[new_job("a"), new_job("b")], [new_job("c")], [], []]
    moments: list[Micros] = []

    def purge_disabled(before: Micros, limit: int, now: Micros, **_: object) -> list[object]:
        moments.append(before)
        return [*gone.pop(0)]

    parts.store.answers["purge_disabled"] = purge_disabled

    await new_janitor(parts).purge()

    assert set(moments) == {NOON_MICROS - span(timedelta(days=1))}
    assert [(event.kind, event.job and event.job.id) for event in parts.listener.events] == [
        ("removed", "a"),
        ("removed", "b"),
        ("removed", "c"),
    ]


async def test_a_store_that_fails_is_asked_again(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(clock, purge_disabled_after=timedelta(days=1))
    parts.store.answers["purge_disabled"] = StoreError("It is gone.")
    upkeep = asyncio.create_task(new_janitor(parts).keep_house(asyncio.Event()))

    await clock.advance("1m")
    parts.store.answers["purge_disabled"] = StoreOutdatedError("jobs.db", 9, 8)
    await clock.advance("1m")
    parts.store.answers["purge_disabled"] = []
    await clock.advance("1m")
    upkeep.cancel()

    assert parts.store.questions() == ["purge_disabled"] * 4 + ["purge_history"]
    assert "Cannot remove old runs" in caplog.text
    assert parts.troubles.outdated is not None


@pytest.mark.parametrize(
    ("after", "ended_after", "asked"),
    [
        pytest.param("30d", None, [("30d", True), ("30d", False)], id="all disabled jobs, ended ones too"),
        pytest.param(None, "7d", [("7d", True)], id="only ended jobs"),
        pytest.param("30d", "7d", [("7d", True), ("30d", False)], id="ended jobs earlier"),
        pytest.param("1d", "7d", [("1d", True), ("1d", False)], id="an ended job is a disabled one"),
        pytest.param(None, None, [], id="none"),
    ],
)
async def test_ended_jobs_have_a_time_of_their_own(
    clock: VirtualClock, after: str | None, ended_after: str | None, asked: list[tuple[str, bool]]
) -> None:
    parts = Parts(clock, purge_disabled_after=duration_or_none(after), purge_ended_after=duration_or_none(ended_after))
    found: list[tuple[Micros, bool]] = []

    async def purge_disabled(before: Micros, limit: int, now: Micros, *, ended: bool, **_: object) -> list[object]:
        found.append((now - before, ended))
        return []

    parts.store.purge_disabled = purge_disabled  # type: ignore[attr-defined]

    await new_janitor(parts).purge()

    assert found == [(span(parse_interval(time)), ended) for time, ended in asked]


@pytest.mark.parametrize(
    ("limits", "looks"),
    [
        pytest.param({"purge_ended_after": "1d"}, [1, 62, 123], id="a part of the time for which ended jobs are kept"),
        pytest.param({"purge_ended_after": "9d", "keep_removed": "4h"}, [1, 12, 23], id="the shortest of them"),
        pytest.param({"purge_disabled_after": "9d"}, [1, 2, 3], id="each minute"),
        pytest.param({}, [1, 1442], id="once a day"),
    ],
)
async def test_old_jobs_are_looked_for_soon_after_the_start_and_often_enough(
    clock: VirtualClock, limits: dict[str, str], looks: list[int]
) -> None:
    """They go at their time or little later, also those of which the time came while no scheduler was running."""
    parts = Parts(clock, **{name: duration_or_none(time) for name, time in limits.items()})
    parts.store.answers["purge_removed"] = 0
    parts.store.answers["purge_disabled"] = []
    found: list[Micros] = []

    def purge_history(before: Micros, limit: int) -> int:
        found.append((clock.micros() - NOON_MICROS) // MINUTE)
        return 0

    parts.store.answers["purge_history"] = purge_history
    upkeep = asyncio.create_task(new_janitor(parts).keep_house(asyncio.Event()))

    await clock.advance(timedelta(minutes=looks[-1]))
    upkeep.cancel()

    assert found == looks


async def test_after_a_failure_it_is_tried_again_a_minute_later(clock: VirtualClock) -> None:
    """The log says so."""
    parts = Parts(clock, purge_ended_after=timedelta(days=7))
    parts.store.answers["purge_disabled"] = StoreError("It is gone.")
    upkeep = asyncio.create_task(new_janitor(parts).keep_house(asyncio.Event()))

    await clock.advance("3m")
    upkeep.cancel()

    assert parts.store.questions() == ["purge_disabled"] * 3


async def test_the_past_is_forgotten_after_ninety_days_in_slices(clock: VirtualClock) -> None:
    parts = Parts(clock)
    left = [UPKEEP_SLICE, UPKEEP_SLICE, 3]
    parts.store.answers["purge_history"] = lambda before, limit: left.pop(0)

    await new_janitor(parts).purge()

    assert parts.store.asked == [("purge_history", (NOON_MICROS - 90 * DAY, UPKEEP_SLICE))] * 3
