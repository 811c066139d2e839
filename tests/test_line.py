"""Who goes first among the jobs that are due."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.line import NO_GROUP, Line, Place

UNLIMITED = float("inf")


def place(number: int, *, rank: int = 1, last_run_at: int = -1) -> Place:
    return rank, last_run_at, f"job-{number}", number


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(place(2, rank=0, last_run_at=9), place(1), id="a higher priority"),
        pytest.param(place(2), place(1, last_run_at=5), id="one that never ran"),
        pytest.param(place(2, last_run_at=5), place(1, last_run_at=6), id="one that ran longer ago"),
        pytest.param(place(1), place(2), id="otherwise by id"),
    ],
)
def test_who_goes_first(first: Place, second: Place) -> None:
    line = Line()
    line.extend([(NO_GROUP, second), (NO_GROUP, first)])

    assert line.take(2, lambda _: UNLIMITED) == [(NO_GROUP, first), (NO_GROUP, second)]


def test_a_full_group_does_not_hold_up_those_behind_it() -> None:
    line = Line()
    line.extend([("full", place(1)), ("full", place(2)), (NO_GROUP, place(3))])

    assert line.take(9, {"full": 1, NO_GROUP: UNLIMITED}.__getitem__) == [("full", place(1)), (NO_GROUP, place(3))]
    assert line.take(9, lambda _: UNLIMITED) == [("full", place(2))]
    assert len(line) == 0


def test_the_same_job_may_stand_in_line_twice() -> None:
    """In another group, for one, after an edit: which of the two holds is for the store to say."""
    line = Line()
    line.add("old", place(1))
    line.add("new", place(1))

    assert line.take(9, lambda _: UNLIMITED) == [("new", place(1)), ("old", place(1))]


groups = st.sampled_from([NO_GROUP, "a", "b", "c"])
places = st.builds(
    lambda number, rank, last: place(number, rank=rank, last_run_at=last),
    st.integers(0, 40),
    st.integers(0, 2),
    st.integers(-1, 3),
)


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(groups, places), max_size=8),
            st.integers(0, 6),
            st.fixed_dictionaries({group: st.integers(0, 3) for group in ("a", "b", "c")}),
        )
    )
)
def test_it_goes_as_if_all_were_sorted_each_time(
    steps: list[tuple[list[tuple[str, Place]], int, dict[str, int]]],
) -> None:
    line = Line()
    waiting: list[tuple[Place, str]] = []
    for arriving, count, rooms in steps:
        line.extend(arriving[1:])
        for group, arrival in arriving[:1]:
            line.add(group, arrival)
        waiting = sorted([*waiting, *((arrival, group) for group, arrival in arriving)])
        used: Counter[str] = Counter()
        expected: list[tuple[Place, str]] = []
        for one in list(waiting):
            group = one[1]
            if len(expected) < count and (group == NO_GROUP or used[group] < rooms[group]):
                used[group] += 1
                expected.append(one)
                waiting.remove(one)

        taken = line.take(count, lambda group, rooms=rooms: rooms.get(group, UNLIMITED))  # type: ignore[misc]

        assert taken == [(group, first) for first, group in expected]
        assert len(line) == len(waiting)
