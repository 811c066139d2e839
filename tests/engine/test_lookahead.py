"""How long before its time a job is claimed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.lookahead import Lookahead
from scheduler_async.engine.setting import Limits
from scheduler_async.rules.claim_ahead import CROWD, EARLIEST_CLAIM, LONGEST_REACH
from scheduler_async.stores.messages import Claims
from scheduler_async.timekeeping.instants import SECOND, Micros
from tests.engine.parts import NOON_MICROS

SLOW_CLAIM = 0.008  # seconds


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


class Held:
    """Runs that are held, as far as the lookahead sees them."""

    def __init__(self, count: int, first_at: Micros | None) -> None:
        self.count, self.first_at = count, first_at

    def __len__(self) -> int:
        return self.count


def new_lookahead(
    agenda: Agenda, *, took: float = SLOW_CLAIM, waiting: int = 0, first_at: Micros | None = None, **limits: Any
) -> Lookahead:
    held: Any = Held(waiting, first_at)
    lookahead = Lookahead(Limits(**limits), agenda, held)
    lookahead.claim_ahead.learn(took, 1)
    return lookahead


def expect(agenda: Agenda, at: Micros, count: int, *, counted: bool = True) -> None:
    agenda.end_claim(Claims(next_due=at, next_count=count), counted_all=counted)


def test_a_claim_begins_a_little_before_the_job_is_due(agenda: Agenda) -> None:
    expect(agenda, NOON_MICROS + SECOND, 1)
    lookahead = new_lookahead(agenda)

    assert SLOW_CLAIM * SECOND < lookahead.lead < SECOND // 20
    assert lookahead.lead < lookahead.reach(NOON_MICROS) <= LONGEST_REACH


@pytest.mark.parametrize(
    ("took", "limits"),
    [
        pytest.param(0.0, {}, id="claims take no time"),
        pytest.param(SLOW_CLAIM, {"max_concurrent": 4}, id="slots are few"),
        pytest.param(SLOW_CLAIM, {"group_limit": 1}, id="groups have limits"),
        pytest.param(SLOW_CLAIM, {"group_limits": {"mail": 1}}, id="a group has a limit"),
    ],
)
def test_nothing_is_claimed_ahead(agenda: Agenda, took: float, limits: dict[str, Any]) -> None:
    expect(agenda, NOON_MICROS + SECOND, 1)
    lookahead = new_lookahead(agenda, took=took, **limits)

    assert (lookahead.lead, lookahead.reach(NOON_MICROS)) == (0, 0)


def test_a_crowd_is_claimed_earlier_than_a_few(agenda: Agenda) -> None:
    lookahead = new_lookahead(agenda)
    expect(agenda, NOON_MICROS + SECOND, 1)
    few = lookahead.lead

    expect(agenda, NOON_MICROS + SECOND, 10 * CROWD)

    assert few < lookahead.lead <= EARLIEST_CLAIM


def test_a_crowd_is_counted_first(agenda: Agenda) -> None:
    """So many could be due that to claim them takes as long as is allowed at all."""
    lookahead = new_lookahead(agenda)
    expect(agenda, NOON_MICROS + SECOND, 1)
    usual = lookahead.count

    expect(agenda, NOON_MICROS + SECOND, CROWD, counted=False)

    assert lookahead.lead == EARLIEST_CLAIM
    assert lookahead.count > usual


def test_a_claim_reaches_no_less_far_than_the_one_before(agenda: Agenda) -> None:
    """Otherwise a run that is held would lose its place to one that is claimed later."""
    at = NOON_MICROS + SECOND // 10
    expect(agenda, at, 10 * CROWD)
    lookahead = new_lookahead(agenda)
    first = NOON_MICROS + lookahead.reach(NOON_MICROS)
    expect(agenda, at + SECOND, 1)
    later = NOON_MICROS + SECOND // 100

    assert first == at
    assert later + lookahead.reach(later) == first


SOON = NOON_MICROS + SECOND // 25


@pytest.mark.parametrize(
    ("next_at", "first_at", "is_time"),
    [
        pytest.param(None, None, False, id="nothing is known to be due"),
        pytest.param(NOON_MICROS + SECOND, None, False, id="the next job is far"),
        pytest.param(SOON, None, True, id="the loop would wake up for it alone"),
        pytest.param(SOON, NOON_MICROS + SECOND // 100, False, id="a run starts before that, and the loop is awake"),
        pytest.param(SOON, SOON - 1, True, id="a run starts too late for that"),
        pytest.param(NOON_MICROS + 1, NOON_MICROS, True, id="it is due at once"),
    ],
)
def test_the_next_job_is_claimed_while_the_loop_is_awake(
    agenda: Agenda, next_at: Micros | None, first_at: Micros | None, is_time: bool
) -> None:
    """To wake up takes longer than to claim a job."""
    agenda.end_claim(Claims(next_due=next_at, next_count=1), counted_all=False)
    lookahead = new_lookahead(agenda, first_at=first_at)

    assert lookahead.is_time_to_look(NOON_MICROS) == is_time


def test_neighbours_get_their_share(agenda: Agenda) -> None:
    """Who has just run a job would always be first to claim the next one, and far ahead."""
    expect(agenda, SOON, 1)
    agenda.has_neighbours = True
    lookahead = new_lookahead(agenda, took=0.001)

    assert not lookahead.is_time_to_look(NOON_MICROS)
    assert lookahead.reach(NOON_MICROS) < LONGEST_REACH
