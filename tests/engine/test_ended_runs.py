"""Runs that have ended and wait for the recorder."""

from __future__ import annotations

import logging

import pytest

from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.running.active_run import Stage
from scheduler_async.running.endings import SUCCESS
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import MINUTE
from tests.cast import DAY, NOON
from tests.engine.parts import NOON_MICROS, Parts, active_run


def new_ended_runs(parts: Parts) -> EndedRuns:
    parts.clock_watch.begin()
    return EndedRuns(parts.clock, parts.clock_watch, parts.agenda, parts.announcer)


async def test_runs_wait_in_the_order_in_which_they_ended(clock: VirtualClock) -> None:
    ended, first, second = new_ended_runs(Parts(clock)), active_run(1), active_run(2)

    ended.add(second, SUCCESS)
    await clock.advance("1m")
    ended.add(first, None)

    assert ended.arrived.is_set()
    assert ended.unrecorded == [second, first]
    assert [(active.ending, active.ended_at) for active in (second, first)] == [
        (SUCCESS, NOON_MICROS),
        (None, NOON_MICROS + MINUTE),
    ]


async def test_endings_that_may_wait_are_recorded_together_after_a_moment(clock: VirtualClock) -> None:
    """And an ending that may not wait takes the others along."""
    ended, impatient = new_ended_runs(Parts(clock)), active_run(3)
    ended.wait_if(lambda active: active is not impatient)

    ended.add(active_run(1), SUCCESS)
    ended.add(active_run(2), SUCCESS)
    waited = not ended.arrived.is_set()
    await clock.advance("1s")
    came = ended.arrived.is_set()
    ended.arrived.clear()
    ended.add(active_run(4), SUCCESS)
    ended.add(impatient, SUCCESS)

    assert (waited, came, ended.arrived.is_set()) == (True, True, True)


async def test_a_caller_that_begins_to_wait_for_a_run_hastens_its_ending(clock: VirtualClock) -> None:
    ended, active = new_ended_runs(Parts(clock)), active_run(stage=Stage.ENDED)
    ended.wait_if(lambda _: True)
    ended.add(active, SUCCESS)

    waiter = active.over()
    waiter.send(None)
    waiter.close()

    assert ended.arrived.is_set()


def test_a_run_of_a_moment_that_is_yet_to_come_does_not_end_before_it(clock: VirtualClock) -> None:
    """`run_pending` may be asked about tomorrow."""
    ended, active = new_ended_runs(Parts(clock)), active_run(at=NOON_MICROS + MINUTE)

    ended.add(active, SUCCESS)

    assert active.ended_at == NOON_MICROS + MINUTE


def test_a_run_ends_at_the_time_that_is_believed(clock: VirtualClock) -> None:
    parts = Parts(clock)
    ended, active = new_ended_runs(parts), active_run()
    clock.set(NOON + 1000 * DAY)

    ended.add(active, SUCCESS)

    assert active.ended_at == NOON_MICROS
    assert parts.listener.kinds == ["clock_jumped"]


def test_a_run_that_is_dropped_frees_its_place_and_is_not_recorded(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scheduler_async")
    parts = Parts(clock)
    ended, active = new_ended_runs(parts), active_run(stage=Stage.OVER)
    active.began_at, parts.agenda.is_stale = NOON_MICROS, False

    ended.drop(active)

    assert (ended.unrecorded, parts.agenda.is_stale) == ([], True)
    assert "Run 1 of default/a was cancelled" in caplog.text
