"""Jumps of the wall clock: noticed when it is read, announced, and followed by the jobs."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_async import StoreError
from scheduler_async.engine.clock_watch import REVIEW_SLICE
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import MINUTE, SECOND, from_micros
from tests.cast import DAY, HOUR, NOON
from tests.engine.parts import NOON_MICROS, Parts

YEARS_LATER = NOON + 1000 * DAY


@pytest.fixture
def parts(clock: VirtualClock) -> Parts:
    parts = Parts(clock)
    parts.clock_watch.begin()
    parts.agenda.is_stale = False
    return parts


async def test_time_that_passes_is_not_a_jump(parts: Parts, clock: VirtualClock) -> None:
    await clock.advance("1d")

    now = parts.clock_watch.read()

    assert now == NOON_MICROS + 24 * 60 * MINUTE
    assert (parts.listener.kinds, parts.agenda.is_stale, parts.clock_watch.went_back) == ([], False, False)


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_after_a_jump_all_jobs_are_looked_at_again(parts: Parts, clock: VirtualClock, hours: int) -> None:
    jumps = []
    parts.clock_watch.on_jump(lambda: jumps.append(parts.agenda.is_stale))
    clock.set(NOON + hours * HOUR)

    parts.clock_watch.read()
    parts.clock_watch.read()

    assert jumps == [False], "once, and before anything else is done about it"
    assert parts.agenda.is_stale
    assert parts.listener.kinds == ["clock_jumped"]
    assert parts.clock_watch.went_back is (hours < 0)
    assert parts.clock_watch.is_believed


def test_after_an_absurd_jump_nothing_is_decided_by_the_clock(parts: Parts, clock: VirtualClock) -> None:
    """What is recorded meanwhile is recorded as of the time that the clock would show without the jump."""
    clock.set(YEARS_LATER)

    parts.clock_watch.read()

    assert not parts.clock_watch.is_believed
    assert not parts.agenda.is_stale
    assert parts.clock_watch.believed_now() == NOON_MICROS
    assert "nothing starts until the clock returns" in str(parts.listener.events[0].reason)


async def test_an_absurd_clock_is_believed_after_a_day(
    parts: Parts, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.set(YEARS_LATER)
    parts.clock_watch.read()
    held_for = parts.clock_watch.held_for
    await clock.advance("1d")

    parts.clock_watch.read()

    assert held_for == DAY.total_seconds()
    assert parts.clock_watch.is_believed
    assert parts.agenda.is_stale
    assert "is believed" in caplog.text


def test_a_decision_that_was_made_by_a_later_time_is_looked_at_again(parts: Parts) -> None:
    parts.clock_watch.heed(NOON_MICROS)
    went_back_by_now = parts.clock_watch.went_back

    parts.clock_watch.heed(NOON_MICROS + SECOND)

    assert (went_back_by_now, parts.clock_watch.went_back, parts.agenda.is_stale) == (False, True, True)


def row(id: int, at: int) -> Any:
    class Row:
        started_at, finished_at = from_micros(at), None

    found: Any = Row()
    found.id = id
    return found


def test_a_run_that_is_yet_to_come_shows_once_that_the_clock_went_back(parts: Parts) -> None:
    later, now = row(1, NOON_MICROS + MINUTE), row(2, NOON_MICROS)

    seen = [parts.clock_watch.is_behind(rows) for rows in ([], [later], [later], [now], [later])]

    assert seen == [False, True, False, False, True]


async def test_jobs_are_moved_some_at_a_time_when_the_clock_went_back(parts: Parts) -> None:
    parts.clock_watch.went_back = True
    answers = iter([40, 80, None])
    parts.store.answers["review"] = lambda *_: next(answers)

    await parts.clock_watch.go_back(NOON_MICROS)

    assert [args[:3] for _, args in parts.store.asked] == [(after, REVIEW_SLICE, NOON_MICROS) for after in (0, 40, 80)]
    assert not parts.clock_watch.went_back


async def test_jobs_are_still_to_be_moved_if_the_store_fails(parts: Parts) -> None:
    parts.clock_watch.went_back = True
    parts.store.answers["review"] = StoreError("It is gone.")

    with pytest.raises(StoreError):
        await parts.clock_watch.go_back(NOON_MICROS)

    assert parts.clock_watch.went_back
