"""Processes that wait for runs of others, and what these are told. No connection is needed for that."""

from __future__ import annotations

import pytest

from scheduler_async.stores.postgres.awaited_endings import AWAIT, MOST_AWAITED, MOST_TOLD, AwaitedEndings


@pytest.fixture
def endings() -> AwaitedEndings:
    return AwaitedEndings()


def test_an_ending_is_told_once_to_those_who_asked(endings: AwaitedEndings) -> None:
    assert endings.hear([AWAIT, "7"])

    assert endings.ended([6, 8]) == []
    assert endings.ended([6, 7]) == ["ended 7"]
    assert endings.ended([7]) == []


def test_what_is_heard_wakes_all_who_wait_here(endings: AwaitedEndings) -> None:
    event, is_new = endings.event_of(7)
    same, is_new_again = endings.event_of(7)

    assert (is_new, is_new_again, same is event) == (True, False, True)
    assert endings.hear(["ended", "6", "7"])
    assert event.is_set()
    assert endings.event_of(7)[1], "the next wait begins anew"


def test_an_ending_of_this_process_wakes_its_own_waiters(endings: AwaitedEndings) -> None:
    event, _ = endings.event_of(7)

    assert endings.ended([7]) == []

    assert event.is_set()


def test_a_wait_that_was_given_up_leaves_nothing(endings: AwaitedEndings) -> None:
    endings.event_of(7)  # nobody keeps it

    assert endings.event_of(7)[1]
    assert not endings._here


def test_no_more_is_remembered_than_may_be(endings: AwaitedEndings) -> None:
    for run in range(MOST_AWAITED + 5):
        endings.hear([AWAIT, str(run)])

    texts = endings.ended(range(MOST_AWAITED + 5))

    told = [int(word) for text in texts for word in text.split()[1:]]
    assert told == list(range(5, MOST_AWAITED + 5))
    assert max(len(text.split()) for text in texts) == MOST_TOLD + 1


@pytest.mark.parametrize("words", [[], ["request"], ["1234", "1"], [AWAIT, "x"], ["ended", "1.5"]])
def test_other_notifications_are_left_to_others(endings: AwaitedEndings, words: list[str]) -> None:
    assert not endings.hear(words)
