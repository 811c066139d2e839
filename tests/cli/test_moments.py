"""Times as an operator types them, on clocks that also go forward and back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.cli.moments import parse_moment, read_moment
from scheduler_async.errors import InvalidScheduleError
from scheduler_async.timekeeping.time_format import ReadersZone
from tests.cast import DAY, HOUR, MINUTE

pytestmark = pytest.mark.once  # the version of Python does not matter

STOCKHOLM = ZoneInfo("Europe/Stockholm")
# 10:20 in Stockholm, on a Wednesday.
NOW = datetime(2026, 11, 18, 9, 20, tzinfo=UTC)


def stockholm(text: str) -> datetime:
    """Return a time in Stockholm."""
    return datetime.fromisoformat(text).replace(tzinfo=STOCKHOLM).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("03:00", "2026-11-18T03:00", id="earlier today"),
        pytest.param("3:00", "2026-11-18T03:00", id="one digit"),
        pytest.param("03:00:10", "2026-11-18T03:00:10", id="with seconds"),
        pytest.param("03:00:10.25", "2026-11-18T03:00:10.250000", id="with a fraction"),
        pytest.param("10:20", "2026-11-18T10:20", id="exactly now"),
        pytest.param("10:21", "2026-11-17T10:21", id="not yet today, so yesterday"),
        pytest.param("00:00", "2026-11-18T00:00", id="midnight"),
        pytest.param("yesterday 03:00", "2026-11-17T03:00", id="yesterday"),
        pytest.param("  Yesterday   3:00 ", "2026-11-17T03:00", id="any case, any blanks"),
        pytest.param("today 3:00", "2026-11-18T03:00", id="today"),
        pytest.param("today 23:00", "2026-11-18T23:00", id="later today"),
        pytest.param("tomorrow 9:00", "2026-11-19T09:00", id="tomorrow"),
        pytest.param("yesterday", "2026-11-17T00:00", id="the start of yesterday"),
        pytest.param("2026-11-01T03:00", "2026-11-01T03:00", id="ISO without a zone"),
        pytest.param("2026-11-01 03:00", "2026-11-01T03:00", id="ISO with a blank"),
        pytest.param("2026-06-01", "2026-06-01T00:00", id="the start of a day"),
        pytest.param("2026-11-01T02:00Z", "2026-11-01T03:00", id="ISO in UTC"),
        pytest.param("2026-11-01t02:00z", "2026-11-01T03:00", id="ISO in small letters"),
        pytest.param("2026-11-01 02:00 UTC", "2026-11-01T03:00", id="UTC by name"),
        pytest.param("2026-11-01T07:30+05:30", "2026-11-01T03:00", id="an offset"),
        pytest.param("2026-10-31T23:00-0300", "2026-11-01T03:00", id="a negative offset"),
        pytest.param("2026-11-01T04:00+02", "2026-11-01T03:00", id="an offset of hours"),
        pytest.param("09:00Z", "2026-11-18T10:00", id="a time in UTC"),
        pytest.param("09:30Z", "2026-11-17T10:30", id="a time in UTC that has not come today"),
        pytest.param("2h", "2026-11-18T08:20", id="hours ago"),
        pytest.param("2h ago", "2026-11-18T08:20", id="hours ago, in words"),
        pytest.param("3d", "2026-11-15T10:20", id="days ago"),
        pytest.param("in 2h", "2026-11-18T12:20", id="hours from now"),
        pytest.param("now", "2026-11-18T10:20", id="now"),
    ],
)
def test_a_time_in_the_past(text: str, meant: str) -> None:
    assert read_moment(text, NOW, STOCKHOLM) == (stockholm(meant), None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("2h", "2026-11-18T12:20", id="hours from now"),
        pytest.param("in 2h", "2026-11-18T12:20", id="in words"),
        pytest.param("18:00", "2026-11-18T18:00", id="later today"),
        pytest.param("10:20", "2026-11-19T10:20", id="exactly now, so tomorrow"),
        pytest.param("03:00", "2026-11-19T03:00", id="tomorrow morning"),
        pytest.param("tomorrow 9:00", "2026-11-19T09:00", id="tomorrow"),
        pytest.param("today 10:21", "2026-11-18T10:21", id="today"),
        pytest.param("2026-12-24 15:00", "2026-12-24T15:00", id="ISO"),
    ],
)
def test_a_time_ahead(text: str, meant: str) -> None:
    assert read_moment(text, NOW, STOCKHOLM, ahead=True) == (stockholm(meant), None)


@pytest.mark.parametrize("text", ["today 10:20", "yesterday 23:00", "2026-11-18T09:20Z", "2h ago", "now"])
def test_a_time_ahead_must_not_have_passed(text: str) -> None:
    with pytest.raises(InvalidScheduleError, match=r"in the future; .* has passed\. Write 2h for two hours"):
        parse_moment(text, NOW, STOCKHOLM, ahead=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", 'Cannot read "" as the time.', id="empty"),
        pytest.param("soon", 'Cannot read "soon" as the time.', id="a word"),
        pytest.param("25:00", "hour must be in 0..23", id="no such hour"),
        pytest.param("03:60", "minute must be in 0..59", id="no such minute"),
        pytest.param("24:00", "hour must be in 0..23", id="the end of the day"),
        pytest.param("3pm", 'invalid time unit "pm". Valid units are: s, m, h, d', id="an English clock"),
        pytest.param("2 hours", 'invalid time unit "hours"', id="a unit in words"),
        pytest.param("0m", "zero interval", id="no distance"),
        pytest.param("90", "as the time.", id="without a unit"),
        pytest.param("1.5h", "as the time.", id="decimals"),
        pytest.param("-2h", "as the time.", id="negative"),
        pytest.param("in 2h ago", "as the time.", id="both ways"),
        pytest.param("2026-02-30 03:00", "day", id="no such day"),
        pytest.param("2026-6-1 03:00", "as the time.", id="a short date"),
        pytest.param("15/06/2026", "as the time.", id="another order"),
        pytest.param("yesterday03:00", "as the time.", id="run together"),
        pytest.param("2026-06-1503:00", "as the time.", id="a date run together"),
        pytest.param("03:00 CET", "as the time.", id="an abbreviation of a zone"),
        pytest.param("2026-06-15T03:00+25:00", "as the time.", id="no such offset"),
        pytest.param("9999-12-31 23:59", "within the years 1 to 9999", id="the end of the calendar"),
        pytest.param("0001-01-01 00:00", "within the years 1 to 9999", id="the start of the calendar"),
        pytest.param("3652059d", "within the years 1 to 9999", id="before the calendar"),
        pytest.param("9" * 500 + "h", "as the time.", id="very long"),
        pytest.param("\u0660\u0663:\u0660\u0660", "as the time.", id="other digits"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_can(text: str, words: str) -> None:
    with pytest.raises(InvalidScheduleError) as refused:
        parse_moment(text, NOW, STOCKHOLM)

    assert words in str(refused.value)
    assert "Write 03:00 for the last time it was 03:00" in str(refused.value)
    with pytest.raises(InvalidScheduleError, match="Write 2h for two hours from now"):
        parse_moment(text, NOW, STOCKHOLM, ahead=True)


def test_an_error_names_the_option() -> None:
    with pytest.raises(InvalidScheduleError, match=r'Cannot read "x" as the time of --at\.'):
        parse_moment("x", NOW, STOCKHOLM, what="time of --at")


# ---------------------------------------------------------------- clock changes


def test_a_time_that_does_not_exist_is_the_end_of_the_gap() -> None:
    """As for a cron schedule: a job at 02:30 runs at 03:00 that day."""
    moment = read_moment("2026-03-29 02:30", NOW, STOCKHOLM)

    assert moment.at == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert moment.note == (
        "02:30 on 2026-03-29 in Europe/Stockholm does not exist: clocks go forward from 02:00 to 03:00. "
        "Using 03:00 CEST instead."
    )
    assert read_moment("02:30", moment.at + MINUTE, STOCKHOLM) == moment


def test_of_a_time_that_comes_twice_the_first_is_taken() -> None:
    moment = read_moment("2026-10-25 02:30", NOW, STOCKHOLM)

    assert moment.at == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert moment.note == (
        "02:30 on 2026-10-25 in Europe/Stockholm comes twice: clocks go back from 03:00 to 02:00. "
        "Using the first, 02:30 CEST; write 2026-10-25T02:30:00+01:00 for the second."
    )
    assert parse_moment("2026-10-25T02:30:00+01:00", NOW, STOCKHOLM) == moment.at + HOUR
    for later in (MINUTE, HOUR, 2 * HOUR):
        assert read_moment("02:30", moment.at + later, STOCKHOLM) == moment


def test_ahead_the_second_is_taken_if_the_first_has_passed() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)

    for text in ("02:30", "today 02:30", "2026-10-25 02:30"):
        assert parse_moment(text, first - MINUTE, STOCKHOLM, ahead=True) == first
        second = read_moment(text, first, STOCKHOLM, ahead=True)
        assert second.at == first + HOUR
        assert "Using the second, 02:30 CET; write 2026-10-25T02:30:00+02:00 for the first." in str(second.note)
    assert parse_moment("02:30", first + HOUR, STOCKHOLM, ahead=True) == first + 25 * HOUR


def test_a_day_that_a_zone_left_out() -> None:
    """Samoa went from Thursday to Saturday."""
    apia = ZoneInfo("Pacific/Apia")
    saturday = datetime(2011, 12, 30, 10, tzinfo=UTC)

    moment = read_moment("2011-12-30 12:00", NOW, apia)

    assert moment.at == saturday
    assert "clocks go forward from 2011-12-30 00:00 to 2011-12-31 00:00" in str(moment.note)
    # On Saturday at 01:00, it was last noon on Thursday; but the noon that was left out is the start of Saturday.
    assert parse_moment("12:00", saturday + HOUR, apia) == saturday


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of the system cannot be changed")
@pytest.mark.usefixtures("in_new_york")
def test_the_readers_zone_changes_its_clocks_too() -> None:
    here = ReadersZone()

    assert os.environ["TZ"] == "America/New_York"
    assert parse_moment("03:00", NOW, here) == datetime(2026, 11, 18, 8, tzinfo=UTC)
    gap, twice = (read_moment(text, NOW, here) for text in ("2026-03-08 02:30", "2026-11-01 01:30"))
    assert gap.at == datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert str(gap.note).startswith("02:30 on 2026-03-08 here does not exist: clocks go forward")
    assert twice.at == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)


@given(
    shown=st.datetimes(datetime(1950, 1, 1), datetime(2080, 1, 1)).map(lambda at: at.replace(second=0, microsecond=0)),
    name=st.sampled_from(
        ["Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"]
    ),
)
def test_a_time_is_read_as_the_zone_database_reads_it(shown: datetime, name: str) -> None:
    zone = ZoneInfo(name)
    first, second = (shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    exists = first.astimezone(zone).replace(tzinfo=None, fold=0) == shown

    moment = read_moment(f"{shown:%Y-%m-%d %H:%M}", NOW, zone)

    assert (moment.note is None) == (first == second)
    if exists:
        assert moment.at == first
    else:
        assert second <= moment.at <= first
        before, after = (moment.at - MINUTE).astimezone(zone), moment.at.astimezone(zone)
        assert before.replace(tzinfo=None) < shown < after.replace(tzinfo=None) + MINUTE


@given(
    now=st.datetimes(datetime(1980, 1, 1), datetime(2080, 1, 1), timezones=st.just(UTC)),
    minutes=st.integers(0, 24 * 60 - 1),
    name=st.sampled_from(["Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_a_time_of_day_is_never_far(now: datetime, minutes: int, name: str) -> None:
    """It lies behind or ahead, as asked, and less than a day away but for clock changes."""
    zone, text = ZoneInfo(name), f"{minutes // 60}:{minutes % 60:02}"

    last, following = parse_moment(text, now, zone), parse_moment(text, now, zone, ahead=True)

    assert now - 2 * DAY - HOUR < last <= now < following < now + 2 * DAY + HOUR


def test_an_offset_is_a_zone_of_its_own() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))

    assert parse_moment("14:00", NOW, zone) == datetime(2026, 11, 18, 8, 30, tzinfo=UTC)
