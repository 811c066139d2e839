"""Moments: read strictly, kept exactly."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import InvalidScheduleError, SchedulerError
from scheduler_async.timekeeping.instants import EPOCH, describe_instant, from_micros, parse_instant, span, to_micros

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        pytest.param("2026-01-05T12:00:00Z", NOON, id="Z"),
        pytest.param("2026-01-05T12:00Z", NOON, id="no seconds"),
        pytest.param(" 2026-01-05 12:00:00z ", NOON, id="a blank for the T, lower case, outer blanks"),
        pytest.param("2026-01-05T13:00:00+01:00", NOON, id="an offset"),
        pytest.param("2026-01-05T13:00:00+0100", NOON, id="an offset without a colon"),
        pytest.param("2026-01-05T13:00:00+01", NOON, id="an offset of hours"),
        pytest.param("2026-01-05T12:00:00.5Z", NOON + timedelta(seconds=0.5), id="a fraction"),
        pytest.param(NOON.astimezone(timezone(timedelta(hours=3))), NOON, id="an aware datetime"),
    ],
)
def test_a_moment_is_read_as_utc(given_: str | datetime, expected: datetime) -> None:
    moment = parse_instant(given_)

    assert moment == expected
    assert moment.tzinfo is UTC


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param("2026-01-05T12:00:00", "has no time zone", id="naive text"),
        pytest.param("2026-01-05", "has no time zone", id="a date"),
        pytest.param(datetime(2026, 1, 5), "has no time zone", id="a naive datetime"),
        pytest.param("2026-02-30T00:00:00Z", "does not exist", id="30 February"),
        pytest.param("2026-01-05T25:00:00Z", "does not exist", id="25 o'clock"),
        pytest.param("0001-01-01T00:00:00+01:00", "must lie within the years 1 to 9999", id="before the calendar"),
        pytest.param("noon", "Cannot read", id="a word"),
        pytest.param("2026-W01-1T00:00Z", "Cannot read", id="a week date"),
        pytest.param("", "Cannot read", id="empty"),
        pytest.param("9" * 10_000_000, "Cannot read", id="ten megabytes"),
        pytest.param(1_767_614_400, "must be a datetime or an ISO 8601 string", id="a number"),
        pytest.param(None, "must be a datetime or an ISO 8601 string", id="None"),
    ],
)
def test_a_bad_moment_says_what_would_be_right(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words) as caught:
        parse_instant(wrong, "start")

    assert "start" in str(caught.value)


@given(st.text() | st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d\d(:\d\d)?|Z)?"))
def test_any_text_is_a_moment_or_our_error(text: str) -> None:
    with suppress(SchedulerError):
        assert parse_instant(text).tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_keep_a_moment_exactly(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_microseconds_count_from_the_epoch() -> None:
    assert to_micros(EPOCH + timedelta(seconds=1)) == 1_000_000
    assert to_micros(EPOCH - timedelta(microseconds=1)) == -1
    assert span(timedelta(minutes=1)) == 60_000_000


def test_a_moment_is_described_with_seconds_only_where_there_are_any() -> None:
    assert describe_instant(NOON) == "2026-01-05 12:00 UTC"
    assert describe_instant(NOON + timedelta(seconds=5)) == "2026-01-05 12:00:05 UTC"


def test_a_moment_is_described_on_the_clock_of_the_reader() -> None:
    assert describe_instant(NOON, ZoneInfo("Europe/Stockholm")) == "2026-01-05 13:00 CET"
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert describe_instant(last, ZoneInfo("Asia/Tokyo")) == "9999-12-31 23:59 UTC"
