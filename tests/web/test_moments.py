"""Times on the page: which clock the visitor has chosen, and how a time looks on it."""

from __future__ import annotations

import pytest

from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.every import Every
from scheduler_async.web.errors import ParameterError
from scheduler_async.web.pages.moments import CHOICE_COOKIE, ZONE_COOKIE, Choice, Moments, choice_of
from tests.cast import HOUR, NOON

TOKYO = {ZONE_COOKIE: "Asia/Tokyo"}


@pytest.mark.parametrize(
    ("query", "cookies", "choice"),
    [
        pytest.param({}, {}, Choice("job", None), id="the clock of the job, unless told otherwise"),
        pytest.param({"zone": "UTC"}, {}, Choice("utc", None), id="in the address"),
        pytest.param({}, {CHOICE_COOKIE: "utc"}, Choice("utc", None), id="as chosen before"),
        pytest.param({"zone": "job"}, {CHOICE_COOKIE: "utc"}, Choice("job", None), id="the address comes first"),
        pytest.param({"zone": "mine"}, TOKYO, Choice("mine", "Asia/Tokyo"), id="the browser has told its zone"),
        pytest.param({"zone": "mine"}, {}, Choice("mine", None), id="the browser has not"),
        pytest.param({"zone": "Europe/Paris"}, TOKYO, Choice("mine", "Europe/Paris"), id="a named zone"),
        pytest.param({}, {CHOICE_COOKIE: "<b>", ZONE_COOKIE: "../../etc"}, Choice("job", None), id="damaged cookies"),
    ],
)
def test_the_choice_of_a_clock(query: dict[str, str], cookies: dict[str, str], choice: Choice) -> None:
    assert choice_of(query, cookies) == choice


def test_an_unknown_zone_is_refused_with_a_sentence() -> None:
    with pytest.raises(ParameterError, match="zone must be job, mine, utc or the name of a time zone"):
        choice_of({"zone": "Mars/Olympus"}, {})


@pytest.mark.parametrize(
    ("choice", "schedule", "shown"),
    [
        pytest.param(Choice("job", None), Cron("0 9 * * *", tz="Asia/Tokyo"), "21:00 JST", id="the zone of the job"),
        pytest.param(Choice("job", None), Every("5m"), "12:00 UTC", id="an interval has no zone"),
        pytest.param(Choice("job", None), None, "12:00 UTC", id="no job"),
        pytest.param(
            Choice("mine", "Europe/Paris"), Cron("0 9 * * *", tz="Asia/Tokyo"), "13:00 CET", id="the visitor's zone"
        ),
        pytest.param(Choice("utc", "Europe/Paris"), Cron("0 9 * * *", tz="Asia/Tokyo"), "12:00 UTC", id="UTC"),
    ],
)
def test_a_time_shows_its_zone(choice: Choice, schedule: Schedule | None, shown: str) -> None:
    moments = Moments(NOON, choice)

    text = moments.at(NOON, moments.zone(schedule))

    assert text.striptags() == shown
    assert 'datetime="2026-01-05T12:00:00Z"' in text


def test_a_time_is_shown_relative_too() -> None:
    moments = Moments(NOON, Choice("utc", None))

    assert moments.both(NOON + HOUR).striptags() == "in 1h 13:00 UTC"
    assert moments.relative(None).striptags() == "–"
