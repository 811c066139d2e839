"""What a failure costs, under each policy."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import IntervalParseError, InvalidJobError, Retry
from scheduler_async.jobs.retries import Consequence, RetryKind
from scheduler_async.timekeeping.instants import DAY, MINUTE, SECOND

NOW = 1_000 * DAY


def fail(policy: Retry, **facts: Any) -> Consequence:
    """The consequence of a failure now, the first one unless *facts* say otherwise."""
    known = {"failed_at": NOW, "consecutive_errors": 1, "retry_count": 0, "period_start": None}
    return policy.after_failure(**{**known, **facts})


@pytest.mark.parametrize(
    ("errors", "delay"),
    [(1, 30), (2, 60), (3, 300), (4, 900)],
)
def test_backoff_waits_longer_with_each_failure(errors: int, delay: int) -> None:
    assert fail(Retry.backoff(), consecutive_errors=errors) == Consequence(not_before=NOW + delay * SECOND)


@pytest.mark.parametrize("errors", [5, 6, 100])
def test_backoff_gives_up_after_five(errors: int) -> None:
    assert fail(Retry.backoff(), consecutive_errors=errors).disable


@pytest.mark.parametrize(("errors", "delay"), [(1, 30), (5, 3600), (6, 3600), (1000, 3600)])
def test_backoff_that_never_gives_up_stays_at_its_longest_delay(errors: int, delay: int) -> None:
    consequence = fail(Retry.backoff(disable_after=None), consecutive_errors=errors)

    assert consequence == Consequence(not_before=NOW + delay * SECOND)


def test_backoff_can_be_tuned() -> None:
    policy = Retry.backoff(["1s", timedelta(seconds=2)], disable_after=3)

    assert fail(policy).not_before == NOW + SECOND
    assert fail(policy, consecutive_errors=2).not_before == NOW + 2 * SECOND
    assert fail(policy, consecutive_errors=3).disable


def test_in_window_tries_again_at_the_next_pass_and_then_waits() -> None:
    policy = Retry.in_window(2)

    assert fail(policy) == Consequence(retry_at=NOW + 1, retry_count=1)
    assert fail(policy, retry_count=1) == Consequence(retry_at=NOW + 1, retry_count=2)
    assert fail(policy, retry_count=2) == Consequence(retry_count=2)
    assert not fail(policy, retry_count=2, consecutive_errors=100).disable


def test_in_window_can_wait_between_tries_and_can_give_up() -> None:
    policy = Retry.in_window(2, delay="10s", disable_after=3)

    assert fail(policy).retry_at == NOW + 10 * SECOND
    assert fail(policy, consecutive_errors=3).disable


def test_a_budget_doubles_the_wait_and_then_holds_until_its_period_ends() -> None:
    policy = Retry.budget()
    begun = NOW - 30 * MINUTE

    assert fail(policy) == Consequence(retry_at=NOW + 2 * MINUTE, retry_count=1, period_start=NOW)
    assert fail(policy, retry_count=3, period_start=begun) == Consequence(
        retry_at=NOW + 16 * MINUTE, retry_count=4, period_start=begun
    )
    assert fail(policy, retry_count=4, period_start=begun) == Consequence(
        retry_at=begun + DAY, retry_count=5, period_start=begun, held=True
    )


def test_a_budget_is_renewed_when_its_period_has_passed() -> None:
    policy = Retry.budget()

    assert fail(policy, retry_count=4, period_start=NOW - DAY) == Consequence(
        retry_at=NOW + 2 * MINUTE, retry_count=1, period_start=NOW
    )
    assert fail(policy, retry_count=4, period_start=NOW - DAY + 1).held


def test_a_budget_never_waits_past_its_period() -> None:
    assert fail(Retry.budget(100, "1h"), retry_count=50, period_start=NOW - MINUTE).retry_at == NOW + 59 * MINUTE
    assert fail(Retry.budget(5, "3m")).retry_at == NOW + 2 * MINUTE
    assert fail(Retry.budget(5, "1m")).retry_at == NOW + MINUTE
    assert fail(Retry.budget(0)).held


def test_none_goes_on() -> None:
    assert fail(Retry.none(), consecutive_errors=100) == Consequence()
    assert fail(Retry.none(disable_after=2), consecutive_errors=2).disable
    assert not fail(Retry.none(disable_after=2), consecutive_errors=1).disable


@pytest.mark.parametrize("policy", [Retry.backoff(), Retry.in_window(), Retry.budget(), Retry.none()], ids=str)
def test_an_interruption_is_tried_again_at_once_but_not_for_ever(policy: Retry) -> None:
    """A job that takes its process down each time must end, whatever its policy."""
    first = fail(policy, at_once=True, interruptions=1)
    last = fail(policy, at_once=True, interruptions=5, consecutive_errors=5, retry_count=4, period_start=NOW)

    assert first.retry_at == NOW
    assert not first.disable
    assert last.disable
    assert not fail(policy, at_once=True, interruptions=4, consecutive_errors=4).disable


@pytest.mark.parametrize("policy", [Retry.in_window(), Retry.budget(), Retry.none()], ids=str)
def test_an_interruption_after_failures_is_the_first_of_its_kind(policy: Retry) -> None:
    """A job that fails for ever and may do so is not given up because a machine was restarted once."""
    assert not fail(policy, at_once=True, interruptions=1, consecutive_errors=100).disable


def test_interruptions_count_only_for_what_is_run_again() -> None:
    """A run that is not wanted again cannot take one process down after the other."""
    assert not fail(Retry.none(), at_once=False, interruptions=9, consecutive_errors=9).disable


def test_an_interruption_spends_a_retry() -> None:
    assert fail(Retry.in_window(2), at_once=True).retry_count == 1
    assert fail(Retry.in_window(2), at_once=True, retry_count=2).retry_at is None
    assert fail(Retry.budget(), at_once=True).retry_count == 1
    assert fail(Retry.budget(2), at_once=True, retry_count=1, period_start=NOW).held


@pytest.mark.parametrize(
    ("policy", "errors", "retries", "left", "exhausted"),
    [
        (Retry.backoff(), 2, 0, 3, False),
        (Retry.backoff(), 7, 0, 0, False),
        (Retry.backoff(disable_after=None), 2, 0, None, False),
        (Retry.in_window(2), 1, 1, 1, False),
        (Retry.in_window(2), 3, 2, 0, True),
        (Retry.budget(5), 1, 5, 0, True),
        (Retry.budget(5), 1, 4, 1, False),
        (Retry.none(), 9, 0, None, False),
    ],
)
def test_how_much_is_left(policy: Retry, errors: int, retries: int, left: int | None, exhausted: bool) -> None:
    assert policy.retries_left(errors, retries) == left
    assert policy.is_exhausted(retries) is exhausted


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            Retry.backoff(),
            (
                "waits 30 seconds, 1 minute, 5 minutes, 15 minutes, 1 hour after failures in a row; "
                "disabled after 5 failures in a row"
            ),
        ),
        (Retry.in_window(1), "1 retry before the next regular time"),
        (Retry.budget(), "5 failures in 1 day"),
        (Retry.none(disable_after=1), "no retries; disabled after 1 failure in a row"),
    ],
)
def test_a_policy_describes_itself(policy: Retry, words: str) -> None:
    assert policy.describe() == words


POLICIES = st.one_of(
    st.builds(
        Retry.backoff,
        st.lists(
            st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
            min_size=1,
            max_size=4,
        ),
        disable_after=st.none() | st.integers(1, 9),
    ),
    st.builds(
        Retry.in_window,
        st.integers(0, 9),
        delay=st.none() | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
        disable_after=st.none() | st.integers(1, 9),
    ),
    st.builds(
        Retry.budget,
        st.integers(0, 99),
        st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
        disable_after=st.none() | st.integers(1, 9),
    ),
    st.builds(Retry.none, disable_after=st.none() | st.integers(1, 9)),
)


@given(POLICIES)
def test_every_policy_survives_json(policy: Retry) -> None:
    assert Retry.from_json(json.dumps(policy.to_json())) == policy
    assert Retry.from_json(policy.to_json()) == policy


@given(POLICIES, st.integers(1, 200), st.integers(0, 200), st.none() | st.integers(NOW - 3 * DAY, NOW), st.booleans())
def test_no_consequence_lies_in_the_past(
    policy: Retry, errors: int, retries: int, period_start: int | None, at_once: bool
) -> None:
    """A job that is disabled has no next time, and a next time is never before the failure."""
    consequence = fail(
        policy, consecutive_errors=errors, retry_count=retries, period_start=period_start, at_once=at_once
    )

    moments = [at for at in (consequence.retry_at, consequence.not_before) if at is not None]
    assert all(at >= NOW for at in moments)
    assert len(moments) <= 1
    assert not (consequence.disable and moments)
    assert policy.kind is RetryKind.BUDGET or not consequence.held


@pytest.mark.parametrize(
    ("form", "words"),
    [
        pytest.param("{", "not the JSON form", id="broken JSON"),
        pytest.param("null", "not the JSON form", id="null"),
        pytest.param({"version": 2, "kind": "none"}, "Upgrade scheduler_async", id="a newer version"),
        pytest.param({"version": 1, "kind": "sometimes"}, "not the JSON form", id="an unknown kind"),
        pytest.param({"version": 1, "kind": "none", "disable_after": 0}, "whole number from 1", id="a bad number"),
        pytest.param({"version": 1, "kind": "budget"}, "needs max_retries, period", id="a budget of nothing"),
        pytest.param({"version": 1, "kind": "in_window"}, "needs max_retries", id="no number of retries"),
        pytest.param({"version": 1, "kind": "backoff"}, "needs delays", id="a backoff without delays"),
        pytest.param({"version": 1, "kind": "budget", "period": "5x"}, "not the JSON form", id="a bad period"),
    ],
)
def test_a_bad_json_form_is_refused(form: Any, words: str) -> None:
    with pytest.raises(InvalidJobError, match=words):
        Retry.from_json(form)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        pytest.param(lambda: Retry.backoff([]), InvalidJobError, "at least one duration", id="no delays"),
        pytest.param(lambda: Retry.backoff("30s"), InvalidJobError, "list of durations", id="one text"),
        pytest.param(lambda: Retry.backoff(5), InvalidJobError, "list of durations", id="a number"),  # type: ignore[arg-type]
        pytest.param(lambda: Retry.backoff(["soon"]), IntervalParseError, "Missing number", id="a bad delay"),
        pytest.param(lambda: Retry.backoff(disable_after=0), InvalidJobError, "from 1 up, not 0", id="disable at once"),
        pytest.param(lambda: Retry.in_window(-1), InvalidJobError, "from 0 up, not -1", id="negative retries"),
        pytest.param(lambda: Retry.in_window(True), InvalidJobError, "max_retries", id="a flag"),
        pytest.param(lambda: Retry.in_window("2"), InvalidJobError, "max_retries", id="a text"),  # type: ignore[arg-type]
        pytest.param(lambda: Retry.budget(5, "0d"), IntervalParseError, "Zero", id="no period"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_in_window_retries_twice_unless_told_otherwise() -> None:
    assert Retry.in_window() == Retry.in_window(2)


def test_no_fewer_than_no_retries_are_left() -> None:
    assert Retry.budget(0).retries_left(1, 1) == 0
    assert Retry.in_window(2).retries_left(9, 5) == 0


def test_a_number_that_is_a_text_is_quoted_in_the_refusal() -> None:
    with pytest.raises(InvalidJobError, match='from 0 up, not "2"'):
        Retry.in_window("2")  # type: ignore[arg-type]


def test_giving_up_keeps_the_counts_of_the_policy() -> None:
    consequence = fail(Retry.budget(disable_after=2), consecutive_errors=2, retry_count=1, period_start=NOW - 1)

    assert consequence == Consequence(disable=True, retry_count=1, period_start=NOW - 1)


def test_what_a_policy_does_not_have_is_not_in_its_json_form() -> None:
    assert Retry.in_window(2).to_json() == {"version": 1, "kind": "in_window", "max_retries": 2}
