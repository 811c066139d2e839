"""Moments and durations as a terminal shows them."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from scheduler_async.timekeeping.time_format import absolute, lasting, relative, took
from tests.cast import DAY, HOUR, MINUTE, NOON, SECOND


@pytest.mark.parametrize(
    ("away", "words"),
    [
        pytest.param(timedelta(0), "now", id="now"),
        pytest.param(2 * HOUR + 5 * MINUTE, "in 2h 5m", id="hours"),
        pytest.param(-3 * DAY, "3d ago", id="days ago"),
        pytest.param(364 * DAY + 23 * HOUR, "in 364d 23h", id="less than a year"),
        pytest.param(366 * DAY, "in 1y", id="a year"),
        pytest.param(-366 * DAY, "1y ago", id="a year ago"),
        pytest.param(6618 * DAY, "in 18y 43d", id="years"),
    ],
)
def test_a_moment_is_shown_by_its_distance(away: timedelta, words: str) -> None:
    """A reader does not count thousands of days."""
    assert relative(NOON + away, NOON) == words


def test_long_durations_are_in_years_too() -> None:
    assert took((800 * DAY).total_seconds() * 1000) == "2y 69d"
    assert lasting(-800 * DAY) == "-2y 69d"
    assert (took(12), took(None), lasting(timedelta(0))) == ("12ms", "-", "0s")


def test_seconds_are_shown_if_there_are_any_or_if_they_are_wanted() -> None:
    assert absolute(NOON, NOON, UTC) == "12:00 UTC"
    assert absolute(NOON + SECOND, NOON, UTC) == "12:00:01 UTC"
    assert absolute(NOON, NOON, UTC, with_seconds=True) == "12:00:00 UTC"
