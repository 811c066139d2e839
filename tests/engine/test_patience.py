"""Endings that wait for others, and those that are recorded at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_async import Outcome
from scheduler_async.engine.lookahead import Lookahead
from scheduler_async.engine.patience import Patience
from scheduler_async.jobs.run import Ending
from scheduler_async.running.active_run import ActiveRun, Stage
from scheduler_async.running.endings import SUCCESS
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import SECOND, Micros
from tests.engine.parts import NOON_MICROS, Parts, active_run

MILLISECOND = SECOND // 1000


class Case:
    """A run that has just ended at noon, with another one that begins two milliseconds later."""

    def __init__(self, parts: Parts, first_at: Micros | None = NOON_MICROS + 2 * MILLISECOND, **limits: Any) -> None:
        self.parts = parts
        parts.setting.events.observers.clear()
        waiting: Any = SimpleNamespace(first_at=first_at)
        self.lookahead = Lookahead(Parts(parts.clock, **limits).setting.limits, parts.agenda, waiting)
        self.lookahead.claim_ahead.learn(0.001, 1)
        self.patience = Patience(parts.setting, parts.agenda, waiting, self.lookahead)
        self.active: ActiveRun = active_run(stage=Stage.ENDED)
        self.active.ending, self.active.ended_at = SUCCESS, NOON_MICROS

    @property
    def may_wait(self) -> bool:
        return self.patience.may_wait(self.active)


@pytest.fixture
def parts(clock: VirtualClock) -> Parts:
    return Parts(clock)


async def test_an_ending_waits_for_a_run_that_begins_in_a_moment(parts: Parts) -> None:
    """One commit records both."""
    assert Case(parts).may_wait


@pytest.mark.parametrize("first_at", [None, NOON_MICROS + SECOND], ids=["nothing else", "a second later"])
async def test_an_ending_is_recorded_at_once_if_no_other_run_begins_soon(parts: Parts, first_at: Micros | None) -> None:
    case = Case(parts, first_at)

    assert not case.may_wait

    parts.agenda.is_about_to_claim = True
    assert case.may_wait


async def test_an_ending_that_a_caller_waits_for_is_recorded_at_once(parts: Parts) -> None:
    case, hastened = Case(parts), list[str]()
    waiter = case.active.over()
    waiter.send(None)

    assert not case.may_wait

    waiter.close()
    other = Case(parts).active
    other.on_wait = lambda: hastened.append("at once")
    late = other.over()
    late.send(None)
    late.close()
    assert hastened == ["at once"]


@pytest.mark.parametrize("limits", [{"max_concurrent": 4}, {"group_limit": 1}], ids=str)
async def test_where_slots_are_limited_no_ending_waits(parts: Parts, limits: dict[str, Any]) -> None:
    """Another job may wait for the slot."""
    assert not Case(parts, **limits).may_wait


async def test_a_failure_is_recorded_at_once(parts: Parts) -> None:
    case = Case(parts)
    case.active.ending = Ending(outcome=Outcome.ERROR, error="it broke")

    assert not case.may_wait


async def test_a_run_that_never_began_is_given_back_at_once(parts: Parts) -> None:
    case = Case(parts)
    case.active.ending = None

    assert not case.may_wait


async def test_no_ending_waits_while_jobs_or_requests_or_observers_do(parts: Parts) -> None:
    case = Case(parts)

    parts.agenda.is_hungry = True
    assert not case.may_wait
    parts.agenda.is_hungry, parts.agenda.requests_wait = False, True
    assert not case.may_wait
    parts.agenda.requests_wait = False
    parts.setting.events.observers.append(parts.listener)
    assert not case.may_wait


async def test_a_scheduler_that_stops_records_at_once(parts: Parts) -> None:
    case = Case(parts)
    parts.setting.progress.status = "stopping"

    assert not case.may_wait
