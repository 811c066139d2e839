"""Groups: keys, limits, and the room that is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import InvalidJobError
from scheduler_async.rules.groups import NO_GROUP, Rooms, check_limited, group_key, is_ambiguous

UNLIMITED = float("inf")


def key(namespace: str, group: str = "mail") -> str:
    return str(group_key(namespace, group))


# ---------------------------------------------------------------- keys


def test_a_job_without_a_group_has_no_key() -> None:
    assert group_key("default", None) is None


NAMES = st.text("a*/", min_size=1, max_size=3)


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_two_groups_share_a_key_only_if_both_names_are_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Also if a namespace or a group contains a slash."""
    assert (group_key(*one) == group_key(*other)) == (one == other)


@pytest.mark.parametrize("limited", ["mail", "*/mail", "a/b", "*/a/b", "*mail"])
def test_the_name_of_a_group_can_be_limited_in_each_namespace_or_across_all(limited: str) -> None:
    check_limited(limited)


@pytest.mark.parametrize("limited", ["*", "*/", "*/*", "", " mail", "*/ mail", "a\nb", "m" * 201, 7, None])
def test_a_limit_needs_the_name_of_a_group(limited: object) -> None:
    with pytest.raises(InvalidJobError, match="group_limits") as caught:
        check_limited(limited)

    assert "*/mail" in str(caught.value)  # it says what to write instead


@pytest.mark.parametrize(("limited", "expected"), [("mail", False), ("*/mail", False), ("ext/mail", True)])
def test_a_key_that_looks_like_a_group_of_one_namespace_is_ambiguous(limited: str, expected: bool) -> None:
    assert is_ambiguous(limited) is expected


# ---------------------------------------------------------------- room


@pytest.mark.parametrize(
    ("limit", "limits", "running", "room"),
    [
        pytest.param(None, {}, {key("a"): 9}, UNLIMITED, id="no limit"),
        pytest.param(3, {}, {}, 3, id="the limit of every group"),
        pytest.param(3, {}, {key("a"): 2}, 1, id="less what runs"),
        pytest.param(3, {}, {key("b"): 2}, 3, id="not what runs in another namespace"),
        pytest.param(3, {"mail": 5}, {key("a"): 2}, 3, id="a limit of its own, which is higher"),
        pytest.param(3, {"mail": 1}, {}, 1, id="a limit of its own, which is lower"),
        pytest.param(3, {"other": 1}, {}, 3, id="a limit of another group"),
        pytest.param(None, {"*/mail": 3}, {key("a"): 1, key("b"): 1}, 1, id="a limit across all namespaces"),
        pytest.param(None, {"*/mail": 3, "mail": 2}, {key("a"): 1}, 1, id="both, of which the stricter counts here"),
        pytest.param(None, {"*/mail": 3, "mail": 2}, {key("b"): 2}, 1, id="both, of which the stricter counts there"),
        pytest.param(1, {}, {key("a"): 3}, -2, id="a limit that was lowered while runs go on"),
    ],
)
def test_the_room_in_a_group(limit: int | None, limits: dict[str, int], running: dict[str, int], room: float) -> None:
    assert Rooms(limit, limits, running).of(key("a")) == room


def test_a_job_without_a_group_always_has_room() -> None:
    rooms = Rooms(0, {"*/mail": 0}, {})

    rooms.take(NO_GROUP, 5)

    assert rooms.of(NO_GROUP) == UNLIMITED
    assert rooms.in_use == {}


def test_a_run_takes_room_in_its_namespace_and_across_all() -> None:
    rooms = Rooms(2, {"*/mail": 3}, {})

    rooms.take(key("a"))
    rooms.take(key("b"))

    assert (rooms.of(key("a")), rooms.of(key("c"))) == (1, 1)
    rooms.take(key("a"), -1)
    assert (rooms.of(key("a")), rooms.of(key("c"))) == (2, 2)


def test_the_groups_in_use_are_listed_with_their_room() -> None:
    rooms = Rooms(None, {"mail": 2}, {key("a"): 1, key("a", "other"): 4})

    assert rooms.in_use == {key("a"): 1, key("a", "other"): None}


def test_full_groups_are_listed_by_key_or_by_name() -> None:
    rooms = Rooms(1, {"closed": 0, "*/shared": 1}, {key("a"): 1, key("b", "shared"): 1})

    keys, names = rooms.full

    assert keys == [key("a"), key("b", "shared")]
    assert names == ["closed", "shared"]
