"""Rates of groups: what is read, what counts, and when the next start is allowed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import InvalidJobError
from scheduler_async.rules.groups import Rooms, group_key
from scheduler_async.rules.rates import (
    MOST_ROWS,
    SLACK,
    SOON,
    Counted,
    Rate,
    Rates,
    Settlement,
    free_at,
    parse_rate,
)
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros
from tests.rules.stories import NOON


def key(namespace: str, group: str = "api") -> str:
    return str(group_key(namespace, group))


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100/m", Rate(100, MINUTE)),
        ("1/s", Rate(1, SECOND)),
        ("5/h", Rate(5, HOUR)),
        ("1000/D", Rate(1000, DAY)),
        (" 10 / s ", Rate(10, SECOND)),
    ],
)
def test_a_rate_is_a_number_of_starts_and_a_unit(text: str, expected: Rate) -> None:
    assert parse_rate(text, "api") == expected


@pytest.mark.parametrize(
    "bad", ["100", "100/", "/m", "1.5/s", "-1/s", "100/min", "100/2m", "100 per minute", "", 100, None, "9" * 10 + "/s"]
)
def test_a_bad_rate_is_refused_by_a_sentence_that_shows_a_good_one(bad: object) -> None:
    with pytest.raises(InvalidJobError, match=r'group_rates\["api"\] must be .*"100/m".*s, m, h and d'):
        parse_rate(bad, "api")


def test_a_rate_of_zero_is_refused_and_says_what_to_do_instead() -> None:
    with pytest.raises(InvalidJobError, match=r"at least one start.*pause its jobs"):
        parse_rate("0/s", "api")


# ---------------------------------------------------------------- counting


def test_a_start_counts_for_its_namespace_and_across_all() -> None:
    rates = Rates({"api": Rate(2, SECOND), "*/api": Rate(3, MINUTE), "other": Rate(1, HOUR)})

    starts = rates.starts(
        [(key("a"), NOON), (key("a"), NOON), (key("b"), NOON), (key("a", "mail"), NOON), (None, NOON)]
    )

    assert starts == {
        (key("a"), NOON + SECOND + SLACK): 2,
        (key("b"), NOON + SECOND + SLACK): 1,
        ("*/api", NOON + MINUTE + SLACK): 3,
    }


def test_a_start_is_settled_when_its_handler_begins_or_never_will() -> None:
    rates = Rates({"api": Rate(2, SECOND)})
    counted = NOON + SECOND + SLACK

    assert rates.settlements(key("a"), NOON, NOON + 5) == [Settlement(key("a"), counted, NOON + SECOND + 5)]
    assert rates.settlements(key("a"), NOON, None) == [Settlement(key("a"), counted, None)]
    assert rates.settlements(key("a", "mail"), NOON, NOON + 5) == []


def test_starts_of_a_large_rate_that_are_close_together_share_a_row() -> None:
    """They count a little longer than they would, never shorter."""
    rate = Rate(1_000_000, DAY)

    ends = {rate.until(NOON + number * SECOND) for number in range(86_400)}

    assert len(ends) <= MOST_ROWS + 1
    assert all(0 <= rate.until(NOON + at) - (NOON + at + DAY) <= DAY // MOST_ROWS for at in range(0, DAY, HOUR - 7))


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        pytest.param([], 0, id="nothing started"),
        pytest.param([(10, 1)], 0, id="one is left"),
        pytest.param([(10, 2)], 10, id="both at once"),
        pytest.param([(10, 1), (20, 1)], 10, id="one after the other"),
        pytest.param([(10, 1), (20, 3)], 20, id="more than the rate, by hand"),
        pytest.param([(10, 1), (20, 1), (30, 5)], 30, id="even more"),
    ],
)
def test_the_next_start_is_allowed_when_enough_have_ceased_to_count(
    started: list[tuple[int, int]], expected: int
) -> None:
    rate = Rate(2, MINUTE)
    starts = [Counted(NOON + at, count) for at, count in started]

    assert free_at(rate.excess(sum(counted.starts for counted in starts)), starts, [], NOON) == NOON + expected


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        pytest.param(0, SECOND, id="claimed just now: one period later, as it will begin soon"),
        pytest.param(-2 * SECOND, SOON, id="it should have begun long ago: look again soon"),
        pytest.param(-SECOND - SLACK + 1, 1, id="it ceases to count in any case"),
    ],
)
def test_an_unsettled_start_is_expected_to_begin_soon(claimed: Micros, expected: Micros) -> None:
    unsettled = [Counted(NOON + claimed + SECOND + SLACK, 1, is_settled=False)]

    assert free_at(1, [Counted(NOON + MINUTE, 1)], unsettled, NOON) == NOON + expected


# ---------------------------------------------------------------- the room in a group


@pytest.mark.parametrize(
    ("limits", "running", "rates", "started", "room"),
    [
        pytest.param({}, {}, {"api": 3}, {}, 3, id="a rate"),
        pytest.param({}, {}, {"api": 3}, {key("a"): 2}, 1, id="less what has started"),
        pytest.param({}, {}, {"api": 3}, {key("b"): 2}, 3, id="not what has started in another namespace"),
        pytest.param({"api": 2}, {}, {"api": 3}, {}, 2, id="a limit that is stricter"),
        pytest.param({"api": 2}, {key("a"): 1}, {"api": 3}, {key("a"): 3}, 0, id="a rate that is reached"),
        pytest.param({"api": 2}, {key("a"): 2}, {"api": 3}, {}, 0, id="a limit that is reached"),
        pytest.param({}, {}, {"*/api": 3}, {"*/api": 1}, 2, id="a rate across all namespaces"),
        pytest.param({}, {}, {"*/api": 3, "api": 1}, {"*/api": 1}, 1, id="both rates"),
        pytest.param({"*/api": 1}, {key("b"): 1}, {"*/api": 3}, {}, 0, id="a limit across all namespaces"),
        pytest.param({}, {}, {"other": 3}, {}, float("inf"), id="a rate of another group"),
    ],
)
def test_the_room_in_a_group_with_a_rate(
    limits: dict[str, int], running: dict[str, int], rates: dict[str, int], started: dict[str, int], room: float
) -> None:
    assert Rooms(None, limits, running, rates, started).of(key("a")) == room


# ---------------------------------------------------------------- never too many, never too few


@given(
    count=st.integers(1, 4),
    waits=st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 6), st.integers(0, 300_000)), max_size=60),
)
def test_no_rolling_window_has_more_handlers_than_the_rate_although_they_begin_late(
    count: int, waits: list[tuple[Micros, int, Micros]]
) -> None:
    """Each step claims what the rate allows, of so many jobs that are due. The handlers begin some time later."""
    rate, now = Rate(count, SECOND), NOON
    rates = Rates({"api": rate})
    ledger: Counter[Micros] = Counter()
    begun: list[Micros] = []
    for wait, due, late in waits:
        now += wait
        live = sum(starts for until, starts in ledger.items() if until > now)
        room = Rooms(None, {}, {}, rates.counts, {key("a"): live}).of(key("a"))
        starts = int(min(room, due))
        assert starts == min(due, max(count - live, 0))  # as many as may
        ledger.update({until: starts for (_, until), starts in rates.starts([(key("a"), now)] * starts).items()})
        for number in range(starts):
            begins = now + late * (number + 1) // (starts + 1)
            begun.append(begins)
            for settled in rates.settlements(key("a"), now, begins):
                assert settled.until is not None
                ledger[settled.counted] -= 1
                ledger[settled.until] += 1

    for start in begun:
        assert sum(start <= other < start + SECOND for other in begun) <= count
