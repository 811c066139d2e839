"""The triggers of APScheduler as schedules: the same meaning, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scheduler_async import AnyOf, At, Cron, Every, InvalidScheduleError, Schedule, Weekdays
from scheduler_async.migrating import cron_from_fields, schedule_from_apscheduler

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)

FIELDS: list[tuple[dict[str, Any], Schedule]] = [
    ({"hour": "9-17", "day_of_week": "mon-fri"}, Cron("0 9-17 * * MON,TUE,WED,THU,FRI", tz="UTC")),
    ({"hour": 9}, Cron("0 9 * * *", tz="UTC")),
    ({"minute": "*/15"}, Cron("*/15 * * * *", tz="UTC")),
    ({"second": "*/10"}, Cron("*/10 * * * * *", tz="UTC")),
    ({"month": "6"}, Cron("0 0 1 6 *", tz="UTC")),
    ({"month": "jan,jul", "day": "last", "hour": 18}, Cron("0 18 L JAN,JUL *", tz="UTC")),
    ({"day_of_week": "0"}, Cron("0 0 * * MON", tz="UTC")),
    ({"day_of_week": 6, "hour": 3}, Cron("0 3 * * SUN", tz="UTC")),
    ({"day_of_week": "*/2", "hour": 3}, Cron("0 3 * * MON,WED,FRI,SUN", tz="UTC")),
    ({"day_of_week": "2/2", "hour": 3}, Cron("0 3 * * WED,FRI,SUN", tz="UTC")),
    ({"day": "2nd fri"}, Cron("0 0 * * FRI#2", tz="UTC")),
    ({"day": "last mon", "hour": 8}, Cron("0 8 * * MONL", tz="UTC")),
    ({"day": "1,3rd wed"}, Cron("0 0 1 * WED#3", tz="UTC")),
    ({"day": 13, "day_of_week": "fri"}, Cron("0 0 13 * *", tz="UTC").on(Weekdays("FRI"))),
    ({"day": "1-7", "day_of_week": "mon", "hour": 9, "minute": 30}, Cron("30 9 1-7 * *", tz="UTC").on(Weekdays("MON"))),
    (
        {"hour": 9, "start_date": NOON, "end_date": "2027-01-01T00:00:00Z", "jitter": 30},
        Cron("0 9 * * *", tz="UTC", start=NOON, end="2027-01-01T00:00:00Z", jitter="30s"),
    ),
]


@pytest.mark.parametrize(("fields", "schedule"), FIELDS, ids=[str(fields) for fields, _ in FIELDS])
def test_fields_become_a_cron_expression(fields: dict[str, Any], schedule: Schedule) -> None:
    assert cron_from_fields(**fields, timezone="UTC") == schedule


def trigger(name: str, **parts: Any) -> Any:
    return type(name, (SimpleNamespace,), {})(**parts)


def cron_trigger(**given: str) -> Any:
    fields = {
        "year": "*",
        "month": "*",
        "day": "*",
        "week": "*",
        "day_of_week": "*",
        "hour": "0",
        "minute": "0",
        "second": "0",
    }

    class Field(SimpleNamespace):
        def __str__(self) -> str:
            return str(self.text)

    listed = [Field(name=name, text=text) for name, text in {**fields, **given}.items()]
    return trigger(
        "CronTrigger", fields=listed, timezone=ZoneInfo("Europe/Stockholm"), start_date=None, end_date=None, jitter=None
    )


TRIGGERS: list[tuple[Any, Schedule]] = [
    (cron_trigger(hour="9", day_of_week="mon"), Cron("0 9 * * MON", tz="Europe/Stockholm")),
    (
        trigger(
            "CronTrigger",
            hour="9",
            minute=None,
            timezone=SimpleNamespace(zone="Asia/Tokyo"),
            start_time=None,
            end_time=None,
        ),
        Cron("0 9 * * *", tz="Asia/Tokyo"),
    ),
    (
        trigger("IntervalTrigger", interval=timedelta(minutes=5), start_date=NOON, end_date=None, jitter=10),
        Every("5m", anchor=NOON, jitter="10s"),
    ),
    (trigger("DateTrigger", run_date=NOON.astimezone(timezone(timedelta(hours=2)))), At(NOON)),
    (trigger("DateTrigger", run_time=NOON), At(NOON)),
    (
        trigger("OrTrigger", triggers=[cron_trigger(hour="9"), trigger("DateTrigger", run_date=NOON)]),
        AnyOf(Cron("0 9 * * *", tz="Europe/Stockholm"), At(NOON)),
    ),
    (
        trigger("OrTrigger", triggers=[cron_trigger(hour="9"), cron_trigger(hour="17")], jitter=30),
        AnyOf(*(Cron(f"0 {hour} * * *", tz="Europe/Stockholm") for hour in (9, 17)), jitter="30s"),
    ),
]


@pytest.mark.parametrize(
    ("given", "schedule"), TRIGGERS, ids=[type(given).__name__ + str(n) for n, (given, _) in enumerate(TRIGGERS)]
)
def test_a_trigger_becomes_a_schedule(given: Any, schedule: Schedule) -> None:
    assert schedule_from_apscheduler(given) == schedule


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cron_from_fields(year=2026, hour=9), "has no year"),
        (lambda: cron_from_fields(week="*/2", hour=9), "has no week"),
        (cron_from_fields, "at least one field"),
        (lambda: cron_from_fields(day_of_week="8"), "not a day of the week"),
        (lambda: cron_from_fields(day_of_week="fri-mon"), "wrong way round"),
        (lambda: cron_from_fields(day_of_week="first mon"), "Cannot read"),
        (lambda: cron_from_fields(day="6th fri"), "Cannot read"),
        (lambda: cron_from_fields(day="*,2nd fri"), "every day and others"),
        (lambda: cron_from_fields(day="2nd fri", day_of_week="mon", timezone="UTC"), "ever inside the calendar"),
        (lambda: cron_from_fields(hour="25"), "out of range"),
        (lambda: schedule_from_apscheduler(trigger("AndTrigger", triggers=[])), "several triggers agree"),
        (lambda: schedule_from_apscheduler(trigger("CalendarIntervalTrigger")), "counts months and years"),
        (lambda: schedule_from_apscheduler(trigger("MoonTrigger")), "A MoonTrigger has no equivalent"),
    ],
)
def test_what_would_change_its_meaning_is_refused(make: Callable[[], Schedule], words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        make()
