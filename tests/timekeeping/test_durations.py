"""Durations as people write them, and what they are told when they mistype."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import IntervalParseError, SchedulerError
from scheduler_async.timekeeping.durations import (
    describe_duration,
    format_interval,
    parse_interval,
    parse_stored_interval,
    short_duration,
    short_span,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("30s", timedelta(seconds=30), id="seconds"),
        pytest.param("5m", timedelta(minutes=5), id="minutes"),
        pytest.param("1h", timedelta(hours=1), id="an hour"),
        pytest.param("1d", timedelta(days=1), id="a day"),
        pytest.param(" 5M ", timedelta(minutes=5), id="case and outer blanks do not matter"),
        pytest.param("007s", timedelta(seconds=7), id="leading zeros"),
        pytest.param("1s", timedelta(seconds=1), id="the smallest one can write"),
        pytest.param(timedelta(milliseconds=1), timedelta(milliseconds=1), id="a timedelta"),
        pytest.param("3652059d", timedelta(days=3_652_059), id="the longest there is"),
    ],
)
def test_a_duration_is_read(text: str | timedelta, expected: timedelta) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param("5", 'Missing time unit. Expected format: "{number}{unit}"', id="no unit"),
        pytest.param("5.5m", "Decimal values are not supported", id="a decimal"),
        pytest.param(".5m", "Decimal values are not supported", id="a decimal without a whole part"),
        pytest.param("5,5m", "Decimal values are not supported", id="a decimal comma"),
        pytest.param("0m", "Zero interval is not allowed", id="zero"),
        pytest.param("000s", "Zero interval is not allowed", id="many zeros"),
        pytest.param("-5m", "Negative intervals are not allowed", id="negative"),
        pytest.param("+5m", "Leave out the sign", id="a plus sign"),
        pytest.param("5x", 'Invalid time unit "x". Valid units are: s, m, h, d', id="an unknown unit"),
        pytest.param("5us", 'Invalid time unit "us". Valid units are: s, m, h, d', id="a unit of the stores"),
        pytest.param("5 m", "Leave out the space", id="a blank inside"),
        pytest.param("1h 30m", 'Leave out the space: "1h30m"', id="a blank between two units"),
        pytest.param("1 h 30 m", 'Leave out the space: "1h30m"', id="blanks everywhere"),
        pytest.param("1h30", "Missing time unit", id="no second unit"),
        pytest.param("1h30min", 'Invalid time unit "min"', id="a longer name of the second unit"),
        pytest.param("1h1.5m", "Decimal values are not supported", id="a decimal after another unit"),
        pytest.param("5 minutes", 'Invalid time unit "minutes". Valid units are', id="a blank and a longer name"),
        pytest.param("5min", 'Invalid time unit "min"', id="a longer name"),
        pytest.param("", "It is empty", id="empty"),
        pytest.param("   ", "It is empty", id="blank"),
        pytest.param("m", "Missing number", id="only a unit"),
        pytest.param("٥m", "Missing number", id="digits of another script"),
        pytest.param("1000000000d", "the length of the calendar", id="too long to be"),
        pytest.param("9" * 10_000_000 + "s", "too long", id="ten megabytes"),
        pytest.param("1" * 31 + "s", "the length of the calendar", id="32 characters"),
        pytest.param("1" * 32 + "s", "too long", id="33 characters"),
        pytest.param(None, "Expected a string or a timedelta", id="None"),
        pytest.param(5, "Expected a string or a timedelta", id="a number"),
        pytest.param(timedelta(0), "Zero interval is not allowed", id="a timedelta of nothing"),
        pytest.param(timedelta(microseconds=-1), "Negative intervals are not allowed", id="a negative timedelta"),
    ],
)
def test_a_bad_duration_says_what_is_wrong(wrong: Any, words: str) -> None:
    with pytest.raises(IntervalParseError) as caught:
        parse_interval(wrong)

    assert words in str(caught.value)
    assert caught.value.interval == wrong
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400


@given(st.text() | st.from_regex(r"[+-]?[0-9.]{0,5}[a-z]{0,3}"))
def test_any_text_is_read_or_refused_with_our_error(text: str) -> None:
    """The text comes from users: nothing else may come out of it."""
    with suppress(SchedulerError):
        assert parse_interval(text) > timedelta(0)


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)))
def test_what_is_stored_comes_back_exactly(duration: timedelta) -> None:
    assert parse_stored_interval(format_interval(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "short", "words"),
    [
        (timedelta(seconds=1), "1s", "1 second"),
        (timedelta(seconds=90), "90s", "1 minute 30 seconds"),
        (timedelta(minutes=5), "5m", "5 minutes"),
        (timedelta(hours=1), "1h", "1 hour"),
        (timedelta(days=2, hours=1), "49h", "2 days 1 hour"),
        (timedelta(seconds=1.5), "1500000us", "1.5 seconds"),
        (timedelta(microseconds=1), "1us", "0.000001 seconds"),
        (timedelta(0), "0d", "0 seconds"),
    ],
)
def test_a_duration_is_written_short_and_in_words(duration: timedelta, short: str, words: str) -> None:
    assert format_interval(duration) == short
    assert describe_duration(duration) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0, "0ms"), (0.0123, "12ms"), (0.0994, "99ms"), (0.0996, "0.1s"), (4.2, "4.2s"), (59.94, "59.9s")],
        *[(59.96, "1m"), (200, "3m 20s"), (3599.6, "1h"), (7500, "2h 5m"), (7205, "2h"), (400_000, "4d 15h")],
    ],
)
def test_a_measured_duration_is_short(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (1, "1s"), (60, "1m"), (61, "1m 1s"), (86_400, "1d")])
def test_a_span_has_two_units_at_most(seconds: int, text: str) -> None:
    assert short_span(seconds) == text
