"""Who goes first among the jobs that are due."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.rules.groups import EVERYWHERE, NO_GROUP, Rooms, group_key
from scheduler_async.stores.ready_queue import Place, ReadyQueue


def rooms(**limits: int) -> Rooms:
    """Groups in which nothing runs."""
    return Rooms(None, limits, {})


def key(namespace: str, group: str) -> str:
    return str(group_key(namespace, group))


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
    queue = ReadyQueue()
    queue.extend([(NO_GROUP, second), (NO_GROUP, first)])

    assert queue.take(2, rooms()) == [(NO_GROUP, first), (NO_GROUP, second)]


def test_a_full_group_does_not_hold_up_those_behind_it() -> None:
    queue = ReadyQueue()
    full = key("default", "full")
    queue.extend([(full, place(1)), (full, place(2)), (NO_GROUP, place(3))])

    assert queue.take(9, rooms(full=1)) == [(full, place(1)), (NO_GROUP, place(3))]
    assert queue.take(9, rooms()) == [(full, place(2))]
    assert len(queue) == 0


def test_the_same_job_may_be_queued_twice() -> None:
    """In another group, for one, after an edit: which of the two holds is for the store to say."""
    queue = ReadyQueue()
    queue.add(key("default", "old"), place(1))
    queue.add(key("default", "new"), place(1))

    assert queue.take(9, rooms()) == [(key("default", "new"), place(1)), (key("default", "old"), place(1))]


def test_what_is_given_back_can_be_taken_again() -> None:
    """Who stood in queue and is not due any more leaves its room to others, also to those of other namespaces."""
    left = Rooms(None, {"g": 1, "*/g": 1}, {})

    found = []
    for count in (1, -1):
        left.take(key("a", "g"), count)
        found.append((left.of(key("a", "g")), left.of(key("b", "g"))))

    assert found == [(0, 0), (1, 1)]


NAMES = ["a", "b", "*/a"]
groups = st.one_of(st.just(NO_GROUP), st.builds(key, st.sampled_from(["one", "two", "*"]), st.sampled_from(NAMES)))
places = st.builds(
    lambda number, rank, last: place(number, rank=rank, last_run_at=last),
    st.integers(0, 40),
    st.integers(0, 2),
    st.integers(-1, 3),
)


@given(
    limit=st.none() | st.integers(0, 3),
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(groups, places), max_size=8),
            st.integers(0, 6),
            st.dictionaries(st.sampled_from(["a", "b", "*/a", "*/b", "*/*/a"]), st.integers(0, 3)),
            st.dictionaries(groups.filter(bool), st.integers(0, 2), max_size=3),
        )
    ),
)
def test_it_goes_as_if_all_were_sorted_each_time(
    limit: int | None, steps: list[tuple[list[tuple[str, Place]], int, dict[str, int], dict[str, int]]]
) -> None:
    queue = ReadyQueue()
    waiting: list[tuple[Place, str]] = []
    for arriving, count, limits, running in steps:
        queue.extend(arriving[1:])
        for group, arrival in arriving[:1]:
            queue.add(group, arrival)
        waiting = sorted([*waiting, *((arrival, group) for group, arrival in arriving)])
        used = Counter(running)
        expected: list[tuple[Place, str]] = []
        for one in list(waiting):
            if len(expected) < count and has_room(one[1], limit, limits, used):
                used[one[1]] += 1
                expected.append(one)
                waiting.remove(one)

        taken = queue.take(count, Rooms(limit, limits, running))

        assert taken == [(group, first) for first, group in expected]
        assert len(queue) == len(waiting)


def has_room(group: str, limit: int | None, limits: dict[str, int], used: Counter[str]) -> bool:
    """What a limit means, said the long way."""
    if group == NO_GROUP:
        return True
    name = group.partition("\n")[2]
    own = limit if name.startswith(EVERYWHERE) else limits.get(name, limit)
    shared = limits.get(f"*/{name}")
    everywhere = sum(count for other, count in used.items() if other.partition("\n")[2] == name)
    return (own is None or used[group] < own) and (shared is None or everywhere < shared)
