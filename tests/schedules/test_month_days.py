"""`15W`, `LW` and `L-3` in cron expressions, against brute force over 2000 to 2037."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_async import Cron

pytestmark = pytest.mark.once  # the version of Python does not matter

ITEMS = ["LW", "L", *(f"{day}W" for day in range(1, 32)), *(f"L-{days}" for days in range(1, 31)), "1", "15", "31"]


def matches(item: str, day: date) -> bool:
    last = monthrange(day.year, day.month)[1]
    weekdays = [number for number in range(1, last + 1) if date(day.year, day.month, number).weekday() < 5]
    if item == "LW":
        return day.day == weekdays[-1]
    if item == "L":
        return day.day == last
    if item.startswith("L-"):
        return day.day == last - int(item[2:])
    if item.endswith("W"):
        near = int(item[:-1])
        return near <= last and day.day == min(weekdays, key=lambda number: abs(number - near))
    return day.day == int(item)


def days_between(line: Cron, first: date, last: date) -> list[date]:
    found, at = [], line.next_after(datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(seconds=1))
    while at is not None and at.date() <= last:
        found.append(at.date())
        at = line.next_after(at)
    return found


FEW = {"LW", "L", "15W", "31W", "L-3", "31"}  # enough for the measurement of coverage
ITEMS_BY_COST = [pytest.param(item, marks=[] if item in FEW else pytest.mark.deep) for item in ITEMS]


@pytest.mark.parametrize("item", ITEMS_BY_COST)
def test_each_is_found_in_every_month(item: str) -> None:
    first, last = date(2000, 1, 1), date(2037, 12, 31)
    line = Cron(f"0 9 {item} * *", tz="UTC")
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]

    expected = [day for day in days if matches(item, day)]

    assert days_between(line, first, last) == expected
    assert line.previous(datetime(2038, 1, 1, tzinfo=UTC)).date() == expected[-1]  # type: ignore[union-attr]


@settings(max_examples=60)
@given(
    items=st.lists(st.sampled_from(ITEMS), min_size=1, max_size=4, unique=True),
    months=st.sets(st.integers(1, 12), min_size=1),
    weekday=st.sampled_from(["*", "MON", "FRI#2"]),
    year=st.integers(2000, 2036),
)
def test_they_can_stand_in_lists(items: list[str], months: set[int], weekday: str, year: int) -> None:
    first, last = date(year, 1, 1), date(year + 1, 12, 31)
    of_week: dict[str, Callable[[date], bool]] = {
        "*": lambda day: False,
        "MON": lambda day: day.weekday() == 0,
        "FRI#2": lambda day: day.weekday() == 4 and 8 <= day.day <= 14,
    }
    is_weekday = of_week[weekday]
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    expected = [
        day for day in days if day.month in months and (any(matches(item, day) for item in items) or is_weekday(day))
    ]
    text = f"0 9 {','.join(items)} {','.join(map(str, months))} {weekday}"
    try:
        line = Cron(text, tz="UTC")
    except ValueError:
        assert not expected  # such as the 31st of February
        return

    assert days_between(line, first, last) == expected
    back, at = [], line.previous(datetime(year + 1, 12, 31, 23, tzinfo=UTC))
    while at is not None and at.date() >= first:
        back.append(at.date())
        at = line.previous(at - timedelta(seconds=1))
    assert back[::-1] == expected
