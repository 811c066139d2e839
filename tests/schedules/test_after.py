"""Schedules that follow the runs of another job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scheduler_async import (
    After,
    AnyOf,
    Delay,
    IntervalParseError,
    InvalidScheduleError,
    Schedule,
    Weekdays,
    parse_schedule,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (After("extract"), "after extract succeeds"),
        (After("extract", "failure"), "after extract fails"),
        (After("extract", outcome="any"), "after extract ends"),
        (After("extract", delay="5m"), "after extract succeeds, 5 minutes later"),
        (After("extract", "any", timedelta(hours=2)), "after extract ends, 2 hours later"),
        (After("extract", namespace="reports"), "after reports/extract succeeds"),
    ],
)
def test_a_schedule_says_in_plain_english_what_it_waits_for(schedule: After, words: str) -> None:
    assert schedule.describe() == words


@pytest.mark.parametrize(
    "schedule",
    [After("extract"), After("a b/ö", "failure"), After("a", "any", "90s", "tenant"), After("a", delay="1h")],
    ids=str,
)
def test_the_json_form_round_trips(schedule: After) -> None:
    assert Schedule.from_json(schedule.json_text()) == schedule
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_the_json_form_leaves_out_what_is_not_given() -> None:
    assert After("extract").to_json() == {"version": 1, "kind": "after", "job": "extract", "outcome": "success"}


def test_it_has_no_times_of_its_own() -> None:
    schedule = After("extract", delay="5m")

    assert schedule.next_after(NOON) is None
    assert schedule.previous(NOON) is None


@pytest.mark.parametrize("job", ["", " a", "a\n", "x" * 201, None, 7, b"a"])
def test_a_bad_name_is_refused(job: object) -> None:
    with pytest.raises(InvalidScheduleError, match=r'job of After must be a name.*After\("extract"\)'):
        After(job)  # type: ignore[arg-type]
    with (
        pytest.raises(InvalidScheduleError, match="namespace of After") if job is not None else pytest.raises(Exception)
    ):
        After("a", namespace=job if job is not None else " ")  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", ["succeeds", "error", "", None, 1])
def test_a_bad_outcome_is_refused(outcome: object) -> None:
    with pytest.raises(InvalidScheduleError, match='"success", "failure" or "any"'):
        After("extract", outcome)  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", ["0s", "-5m", "soon", 5])
def test_a_bad_delay_is_refused(delay: object) -> None:
    with pytest.raises(IntervalParseError):
        After("extract", delay=delay)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("after job extract", After("extract")),
        ("After Job extract", After("extract")),
        ("after job extract succeeds", After("extract")),
        ("after job etl/extract succeeds", After("extract", namespace="etl")),
        ("after job extract fails", After("extract", "failure")),
        ("after job extract ends", After("extract", "any")),
        ("after job extract + 5m", After("extract", delay="5m")),
        ("after job extract fails + 90s", After("extract", "failure", "90s")),
        ("after job daily report", After("daily report")),
        ("after job 5m", After("5m")),
        ("after job once on demand or never", After("once on demand or never")),
        ("after 5m", Delay("5m")),
    ],
)
def test_what_a_person_types_is_read(text: str, expected: Schedule) -> None:
    assert parse_schedule(text) == expected


def test_it_can_be_neither_on_a_calendar_nor_one_of_several() -> None:
    with pytest.raises(InvalidScheduleError, match=r"After has no times of its own.*on the other job"):
        After("extract").on(Weekdays("MON-FRI"))
    with pytest.raises(InvalidScheduleError, match="After cannot be part of AnyOf"):
        AnyOf(After("extract"), Delay("5m"))


@pytest.mark.parametrize("text", ["after job", "after job ", "after extract", "after"])
def test_what_cannot_be_told_from_a_delay_is_refused(text: str) -> None:
    with pytest.raises(IntervalParseError):
        parse_schedule(text)
