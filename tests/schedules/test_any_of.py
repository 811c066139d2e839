"""Several schedules as one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    AnyOf,
    At,
    Cron,
    Delay,
    Every,
    InvalidScheduleError,
    Manual,
    Schedule,
    Weekdays,
    parse_schedule,
)
from scheduler_async.timekeeping.instants import to_micros

START = datetime(2026, 3, 27, tzinfo=UTC)  # two days before the clocks change in Europe

PARTS = st.one_of(
    st.builds(
        lambda minutes, shift: Every(timedelta(minutes=minutes), anchor=START - timedelta(minutes=shift)),
        st.sampled_from([5, 7, 30, 60, 1440]),
        st.integers(0, 100),
    ),
    st.builds(
        lambda text, tz: Cron(text, tz=tz),
        st.sampled_from(["0 9 * * *", "*/15 * * * *", "30 2 * * *", "0 0 L * *"]),
        st.sampled_from(["UTC", "Europe/Stockholm", "America/New_York"]),
    ),
    st.builds(lambda hours: At(START + timedelta(hours=hours)), st.integers(-5, 100)),
    st.builds(
        lambda otherwise: Cron("0 9 * * *", tz="UTC").on(Weekdays("MON-FRI"), otherwise),
        st.sampled_from(["skip", "before", "after"]),
    ),
)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_its_occurrences_are_those_of_all_each_once(parts: list[Schedule]) -> None:
    end = START + timedelta(days=4)
    merged = set()
    for part in parts:
        at = part.next_after(START)
        while at is not None and at <= end:
            merged.add(at)
            at = part.next_after(at)

    schedule = AnyOf(*parts)
    found, at = [], schedule.next_after(START)
    while at is not None and at <= end:
        found.append(at)
        at = schedule.next_after(at)

    assert found == sorted(merged)
    if len(merged) < 1000:
        assert schedule.count_micros(to_micros(START), to_micros(end), None, 10**6) == len(merged)
    assert schedule.previous(end) == max(merged, default=schedule.previous(START))
    assert Schedule.from_json(schedule.json_text()) == schedule


def test_each_interval_counts_from_when_the_job_was_added() -> None:
    schedule = AnyOf(Every("2h"), Every("3h"))
    anchor = to_micros(START)
    hours: list[float] = []
    at = schedule.first_micros(anchor)
    while at is not None and len(hours) < 5:
        hours.append((at - anchor) / 3.6e9)
        at = schedule.next_micros(at, anchor)

    assert hours == [2, 3, 4, 6, 8]


def test_bounds_and_jitter_hold_for_all() -> None:
    schedule = AnyOf(
        Every("1h", anchor=START),
        At(START),
        jitter="30s",
        start=START + timedelta(hours=2),
        end=START + timedelta(hours=3),
    )

    assert schedule.next_after(START) == START + timedelta(hours=2)
    assert schedule.next_after(START + timedelta(hours=3)) is None
    assert schedule.describe().endswith(
        ", up to 30 seconds later, from 2026-03-27 02:00 UTC, until 2026-03-27 03:00 UTC"
    )


def test_nested_ones_are_one() -> None:
    a, b, c = Every("1h"), Every("2h"), Every("3h")

    assert AnyOf(AnyOf(a, b), c) == AnyOf(a, b, c, a)
    assert parse_schedule("every 1h or every 2h or every 3h") == AnyOf(a, b, c)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (AnyOf, "from 1 to 100 schedules"),
        (lambda: AnyOf(Delay("5m")), "counts from the end"),
        (lambda: AnyOf(Manual()), "triggered anyway"),
        (lambda: AnyOf(Every("5m", jitter="1s")), "Pass the jitter to AnyOf"),
        (lambda: AnyOf("every 5m"), "takes schedules"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_one_of_them_is_refused(make: Callable[[], Schedule], words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        make()
