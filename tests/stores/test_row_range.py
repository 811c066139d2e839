"""The numbers of the rows of a stretch of time: found with few looks, and none is missed."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.stores.row_range import CHANGES, NARROW, POINTS, RUNS, RowRange
from scheduler_async.timekeeping.instants import SECOND, Micros

Rows = dict[int, Micros]


def found(rows: Rows, since: Micros | None, until: Micros | None) -> tuple[RowRange, int]:
    """The range for *rows*, which are times by id, and how many rows were looked at."""
    ids = sorted(rows)
    range_ = RowRange(ids[0], ids[-1], since, until)
    looks = 0
    while points := range_.points():
        looks += len(points)
        places = {point: bisect_left(ids, point) for point in points}
        range_.learn({point: rows[ids[place]] if place < len(ids) else None for point, place in places.items()})
    return range_, looks


MOMENTS = st.none() | st.integers(0, 10_000)


@given(
    gaps=st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 100)), min_size=1, max_size=300),
    early=st.lists(st.integers(0, RUNS.disorder), min_size=300, max_size=300),
    since=MOMENTS,
    until=MOMENTS,
)
def test_no_row_of_the_stretch_is_left_out(
    gaps: list[tuple[int, int]], early: list[int], since: Micros | None, until: Micros | None
) -> None:
    """Whatever ids are missing, and however many runs have the same time or nearly so."""
    rows: Rows = {}
    id_ = at = 0
    for (step, wait), ahead in zip(gaps, early, strict=False):
        id_, at = id_ + step, at + wait
        rows[id_] = at - ahead // 2

    range_, _ = found(rows, since, until)

    for one, claimed_at in rows.items():
        if (since is None or claimed_at >= since) and (until is None or claimed_at <= until):
            assert range_.first <= one <= range_.last


def test_a_million_runs_take_few_looks() -> None:
    rows = {number: number * SECOND for number in range(1, 1_000_001)}
    since, until = 400_000 * SECOND, 400_100 * SECOND

    range_, looks = found(rows, since, until)

    assert looks <= 2 * POINTS * 5
    assert range_.first <= 400_000
    assert range_.last >= 400_100
    assert range_.last - range_.first < 100 + 4 * NARROW + 2 * RUNS.disorder // SECOND


def test_a_clock_that_was_set_back_hides_no_long_stretch() -> None:
    """The hour from one to two happened twice, with other runs in between."""
    rows = {number: number * SECOND for number in range(1, 7201)}
    rows |= {7200 + number: (3600 + number) * SECOND for number in range(1, 7201)}

    range_, _ = found(rows, 4000 * SECOND, 5000 * SECOND)

    assert range_.first <= 4000
    assert range_.last >= 7200 + 1400


def test_no_bound_is_no_look() -> None:
    range_, looks = found({1: 0, 1_000_000: 5}, None, None)

    assert (range_.first, range_.last, looks) == (1, 1_000_000, 0)


def test_a_time_that_cannot_be_read_hides_nothing() -> None:
    range_ = RowRange(1, 1000, 500 * CHANGES.disorder, 600 * CHANGES.disorder, CHANGES.disorder)

    range_.learn(dict.fromkeys(range_.points(), "nonsense"))

    assert (range_.first, range_.last) == (1, 1000)


def test_the_clocks_of_machines_may_differ() -> None:
    """By less than the disorder of their table."""
    at = {number: number * CHANGES.disorder for number in range(1, 1001)}
    range_ = RowRange(1, 1000, 500 * CHANGES.disorder, None, CHANGES.disorder)
    while points := range_.points():
        range_.learn({point: at[point] for point in points})

    assert 499 - NARROW <= range_.first <= 499
    assert range_.last == 1000
