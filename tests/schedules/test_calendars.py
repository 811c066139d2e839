"""Calendars: what they contain, how they combine, and what they refuse."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    BusinessDays,
    Calendar,
    Cron,
    Dates,
    Holidays,
    Hours,
    InvalidScheduleError,
    UnknownScheduleError,
    Weekdays,
)
from scheduler_async.schedules import country_holidays
from scheduler_async.schedules.calendar_text import parse_calendar
from scheduler_async.schedules.calendars import day_number

EXAMPLES = [
    (Weekdays("MON-FRI"), "on Monday to Friday"),
    (Weekdays("sat-mon, Wednesday"), "on Monday, Wednesday, Saturday and Sunday"),
    (Dates("2026-12-31", date(2026, 12, 24)), "on 24 December 2026 and 31 December 2026"),
    (
        Dates(*(date(2026, 1, day) for day in range(1, 6))),
        "on 1 January 2026, 2 January 2026, 3 January 2026 and 2 more days",
    ),
    (
        Dates(*(date(2026, 1, day) for day in range(1, 5))),
        "on 1 January 2026, 2 January 2026, 3 January 2026 and 1 more day",
    ),
    (Hours("08:00-18:00"), "from 08:00 to 18:00"),
    (Hours("13:00-17:00,8:00-12:00"), "from 08:00 to 12:00 and from 13:00 to 17:00"),
    (Hours("22:00-06:00"), "from 22:00 to 06:00"),
    (Holidays("SE"), "on public holidays in SE"),
    (Holidays("de", "BY"), "on public holidays in DE-BY"),
    (BusinessDays("SE"), "on business days in SE"),
    (Weekdays("MON-FRI") & Hours("08:00-18:00"), "on Monday to Friday and from 08:00 to 18:00"),
    (Weekdays("SAT") | Dates("2026-12-24"), "on Saturday or on 24 December 2026"),
    (~Holidays("SE"), "not on public holidays in SE"),
    (~(Weekdays("SAT") | Holidays("SE")), "neither on Saturday nor on public holidays in SE"),
    (~~Weekdays("SAT"), "on Saturday"),
]


@pytest.mark.parametrize(("calendar", "words"), EXAMPLES, ids=[words for _, words in EXAMPLES])
def test_a_calendar_is_a_value_with_a_description_and_a_json_form(calendar: Calendar, words: str) -> None:
    again = Calendar.from_json(json.loads(json.dumps(calendar.to_json())))

    assert calendar.describe() == words
    assert again == calendar
    assert hash(again) == hash(calendar)
    assert pickle.loads(pickle.dumps(calendar)) == calendar


def test_different_calendars_are_not_equal() -> None:
    assert len({calendar for calendar, _ in EXAMPLES}) == len(EXAMPLES)


def test_hours_include_their_start_and_not_their_end() -> None:
    hours = Hours("08:00-18:00")

    inside = [
        time
        for time in ("07:59:59", "08:00:00", "17:59:59", "18:00:00")
        if datetime.fromisoformat(f"2026-01-05T{time}") in hours
    ]

    assert inside == ["08:00:00", "17:59:59"]


def test_public_holidays_are_those_of_the_country() -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(365)]

    assert date(2026, 6, 6) in Holidays("SE")
    assert date(2026, 6, 6) not in Holidays("DE")
    assert date(2026, 1, 6) in Holidays("DE", "BY")
    assert date(2026, 1, 6) not in Holidays("DE")
    assert [day for day in days if day in BusinessDays("SE")] == [
        day for day in days if day.weekday() < 5 and day not in Holidays("SE")
    ]


def test_a_year_that_the_library_does_not_know_is_an_error_that_says_so() -> None:
    with pytest.raises(
        InvalidScheduleError, match="does not know the public holidays of SE in 2150, only from 1953 to"
    ):
        date(2150, 1, 1) in Holidays("SE")  # noqa: B015


CHRISTMAS = Dates("2026-12-24")


@pytest.mark.parametrize(
    "calendar",
    [
        pytest.param(CHRISTMAS & BusinessDays("SE"), id="holidays last"),
        pytest.param(BusinessDays("SE") & CHRISTMAS, id="holidays first"),
        pytest.param((~Holidays("SE") | Holidays("DE")) & (CHRISTMAS & Weekdays("MON-FRI")), id="within others"),
    ],
)
def test_an_unknown_year_matters_only_where_holidays_decide(
    calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its dates the schedule has ended: no search through the holidays of the years to come."""
    schedule = Cron("0 9 * * *", tz="UTC").on(calendar)
    monkeypatch.setattr("scheduler_async.schedules.calendars.holidays_of", pytest.fail)

    assert date(2150, 1, 1) not in calendar
    assert schedule.next_after(datetime(2027, 1, 1, tzinfo=UTC)) is None


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    country_holidays._library_of.cache_clear()

    with pytest.raises(UnknownScheduleError, match=r'pip install "scheduler-async\[holidays\]"'):
        Holidays("SE")


BAD = [
    (lambda: Weekdays("1-5"), "names instead of numbers"),
    (lambda: Weekdays("MON,"), "empty item"),
    (lambda: Weekdays("MOONDAY"), "not a day of the week"),
    (lambda: Weekdays(5), "must be a string"),  # type: ignore[arg-type]
    (Dates, "at least one day"),
    (lambda: Dates("2026-02-30"), "does not exist"),
    (lambda: Dates("24.12.2026"), "Cannot read"),
    (lambda: Dates(datetime(2026, 12, 24, tzinfo=UTC)), "Cannot read"),
    (lambda: Hours("8-18"), "cannot read"),
    (lambda: Hours("08:00-08:00"), "later than it begins"),
    (lambda: Hours("08:00-24:01"), "not a time of day"),
    (lambda: Hours("08:60-09:00"), "not a time of day"),
    (lambda: Holidays("Sweden"), "does not know the country"),
    (lambda: Holidays("SE", "ZZ"), "does not know the subdivision"),
    (lambda: Holidays(46), "must be a code"),  # type: ignore[arg-type]
    (lambda: Calendar.from_json({"kind": "moon"}), "not the JSON form"),
    (lambda: parse_calendar("weekdays:MON &"), "a calendar is missing"),
    (lambda: parse_calendar("(weekdays:MON"), "is missing"),
    (lambda: parse_calendar("weekdays:MON weekdays:TUE"), "not expected"),
    (lambda: parse_calendar("moon:full"), "not a calendar"),
    (lambda: parse_calendar("%"), "cannot read"),
    (lambda: parse_calendar("~" * 100 + "weekdays:MON"), "nested too deeply"),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[words + f" {number}" for number, (_, words) in enumerate(BAD)])
def test_a_bad_calendar_is_refused(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidScheduleError, match=words):
        make()


@pytest.mark.parametrize(
    ("text", "calendar"),
    [
        ("business-days:SE", BusinessDays("SE")),
        ("weekdays:MON-FRI & ~holidays:DE/BY", Weekdays("MON-FRI") & ~Holidays("DE", "BY")),
        ("not dates:2026-12-24,2026-12-31", ~Dates("2026-12-24", "2026-12-31")),
        (
            "(weekdays:MON | weekdays:TUE) & hours:08:00-12:00,13:00-18:00",
            (Weekdays("MON") | Weekdays("TUE")) & Hours("08:00-12:00,13:00-18:00"),
        ),
    ],
)
def test_a_calendar_can_be_typed(text: str, calendar: Calendar) -> None:
    assert parse_calendar(text) == calendar


SECONDS = st.integers(0, 86_399)


@given(
    days=st.sets(st.integers(0, 6), min_size=1),
    start=SECONDS,
    end=SECONDS,
    day=st.integers(-30_000, 30_000),
    second=SECONDS,
)
def test_combinations_contain_what_logic_says(days: set[int], start: int, end: int, day: int, second: int) -> None:
    def clock(number: int) -> str:
        return f"{number // 3600:02}:{number % 3600 // 60:02}:{number % 60:02}"

    if start == end:
        return
    names = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
    a, b = Weekdays(",".join(names[number] for number in days)), Hours(f"{clock(start)}-{clock(end)}")
    is_a = (day + 3) % 7 in days  # 1970 began on a Thursday
    is_b = start <= second < end if start < end else second >= start or second < end

    assert a.has(day, second) == is_a
    assert b.has(day, second) == is_b
    assert (a & b).has(day, second) == (is_a and is_b)
    assert (a | b).has(day, second) == (is_a or is_b)
    assert (~(a & b)).has(day, second) == (not (is_a and is_b))
    assert (~a & ~b).has(day, second) == (not is_a and not is_b)


@given(
    named=st.sets(st.dates(date(2020, 1, 1), date(2030, 12, 31)), min_size=1, max_size=5),
    day=st.dates(date(2019, 1, 1), date(2032, 1, 1)),
)
def test_the_next_and_the_last_day_inside_are_found(named: set[date], day: date) -> None:
    calendar, number = Dates(*named), day_number(day)

    later = [day_number(one) for one in named if one >= day]
    earlier = [day_number(one) for one in named if one <= day]

    assert calendar.first_day(number, number + 20_000) == min(later, default=None)
    assert calendar.last_day(number, number - 20_000) == max(earlier, default=None)
    outside = number
    while date.fromordinal(outside + date(1970, 1, 1).toordinal()) in named:
        outside += 1
    assert calendar.first_day(number, number + 20_000, inside=False) == outside
