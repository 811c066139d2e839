"""Convert the triggers of APScheduler to schedules. APScheduler itself is not needed.

A trigger whose meaning would change silently is refused, and the error says why.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Any, NoReturn

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.any_of import AnyOf
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.calendars import Weekdays
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.every import Every

__all__ = ["cron_from_fields", "schedule_from_apscheduler"]

# From the most to the least significant, with the values below the last one that is given.
_FIELDS = {
    "year": "*",
    "month": "1",
    "day": "1",
    "week": "*",
    "day_of_week": "*",
    "hour": "0",
    "minute": "0",
    "second": "0",
}
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")  # APScheduler counts from Monday
_POSITION = re.compile(r"(?P<which>1st|2nd|3rd|4th|5th|last)\s+(?P<day>[a-z]{3})", re.IGNORECASE)
_RANGE = re.compile(r"(?P<first>\d|[a-z]{3}|\*)(?:-(?P<last>\d|[a-z]{3}))?(?:/(?P<step>\d+))?", re.IGNORECASE)


def cron_from_fields(
    *,
    year: str | int | None = None,
    month: str | int | None = None,
    day: str | int | None = None,
    week: str | int | None = None,
    day_of_week: str | int | None = None,
    hour: str | int | None = None,
    minute: str | int | None = None,
    second: str | int | None = None,
    timezone: str | tzinfo | None = None,
    start_date: str | datetime | None = None,
    end_date: str | datetime | None = None,
    jitter: float | None = None,
) -> Schedule:
    """Return the schedule that means the same as `CronTrigger` of APScheduler with these arguments.

    >>> from scheduler_async.migrating import cron_from_fields
    >>> cron_from_fields(hour="9-17", day_of_week="mon-fri", timezone="Europe/Stockholm").describe()
    'on the hour from 09:00 to 17:00 on Monday to Friday (Europe/Stockholm)'
    >>> cron_from_fields(day=13, day_of_week="fri", timezone="UTC").describe()
    'at 00:00 on the 13th of the month (UTC), only on Friday'

    Fields above the least significant one that is given are "*", and fields below it are at their minimum. Weekdays
    count from Monday, which is 0. A day and a weekday must both match: the result is a `Cron` on `Weekdays`.

    Raise `InvalidScheduleError` for a year or a week, which cron expressions do not have. *jitter* is in seconds.
    """
    given = {
        "year": year,
        "month": month,
        "day": day,
        "week": week,
        "day_of_week": day_of_week,
        "hour": hour,
        "minute": minute,
        "second": second,
    }
    fields = _with_defaults({name: str(value).strip() for name, value in given.items() if value is not None})
    for name in ("year", "week"):
        if fields[name] != "*":
            _refuse(f"A cron expression has no {name}. Use start and end, or write a schedule of your own.")
    days, positions = _days(fields["day"])
    weekdays = _weekdays(fields["day_of_week"])
    both = bool(weekdays) and fields["day"] != "*"
    in_week = ",".join(positions) if positions else ",".join(weekdays) if weekdays and not both else "*"
    expression = [fields["minute"], fields["hour"], ",".join(days) or "*", fields["month"].upper(), in_week]
    if fields["second"] != "0":
        expression.insert(0, fields["second"])
    for text in expression:
        if " " in text:
            _refuse(f"Cannot read {quoted(text)} as a field of a cron trigger.")
    schedule = Cron(
        " ".join(expression),
        tz=_zone(timezone),
        jitter=_jitter(jitter),
        start=start_date,
        end=end_date,
    )
    return schedule.on(Weekdays(",".join(weekdays))) if both else schedule


def _with_defaults(given: dict[str, str]) -> dict[str, str]:
    if not given:
        _refuse('Name at least one field, such as hour="9".')
    fields = {}
    last = max(list(_FIELDS).index(name) for name in given)
    for place, (name, lowest) in enumerate(_FIELDS.items()):
        fields[name] = given.get(name, "*" if place < last else lowest)
    return fields


def _days(text: str) -> tuple[list[str], list[str]]:
    """Return the days of the month, and the weekdays that come once a month."""
    days, positions = [], []
    for item in map(str.strip, text.split(",")):
        if match := _POSITION.fullmatch(item):
            which = match["which"].lower()
            positions.append(f"{match['day'].upper()}{'L' if which == 'last' else '#' + which[0]}")
        else:
            days.append("L" if item.lower() == "last" else item)
    if positions and "*" in days:
        _refuse(f'The day {quoted(text)} names every day and others beside it. Write "*" alone.')
    return days, positions


def _weekdays(text: str) -> list[str]:
    """Return the weekdays by their names; none if every day matches."""
    if text == "*":
        return []
    found: set[int] = set()
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            _refuse(f"Cannot read {quoted(text)} as days of the week. Write mon-fri, or 0-4: Monday is 0.")
        first = 0 if match["first"] == "*" else _weekday(match["first"])
        is_open = match["first"] == "*" or match["step"] is not None
        last = _weekday(match["last"]) if match["last"] else 6 if is_open else first
        step = int(match["step"] or 1)
        if first > last or step == 0:
            _refuse(f"The days of the week {quoted(item)} are the wrong way round, or have a step of 0.")
        found.update(range(first, last + 1, step))
    return [_WEEKDAYS[number] for number in sorted(found)]


def _weekday(text: str) -> int:
    if text.isdigit() and int(text) < len(_WEEKDAYS):
        return int(text)
    if text.upper() in _WEEKDAYS:
        return _WEEKDAYS.index(text.upper())
    return _refuse(f"{quoted(text)} is not a day of the week. Write mon to sun, or 0 to 6: Monday is 0.")


def schedule_from_apscheduler(trigger: Any) -> Schedule:
    """Return the schedule that means the same as a *trigger* of APScheduler 3 or 4.

    `CronTrigger`, `IntervalTrigger`, `DateTrigger` and `OrTrigger` have equivalents. Raise `InvalidScheduleError` for
    other triggers, and for what cannot be kept, and say why.
    """
    name = type(trigger).__name__
    match name:
        case "CronTrigger":
            return _from_cron(trigger)
        case "IntervalTrigger":
            return _from_interval(trigger)
        case "DateTrigger":
            return At(_first_of(trigger, "run_date", "run_time"))
        case "OrTrigger":
            parts = map(schedule_from_apscheduler, trigger.triggers)
            return AnyOf(*parts, jitter=_jitter(getattr(trigger, "jitter", None)))
        case "AndTrigger":
            _refuse(
                "An AndTrigger runs when several triggers agree on a time. Use a calendar instead, such as "
                'Cron("0 9 * * *").on(Weekdays("MON-FRI")), or write a schedule of your own.'
            )
        case "CalendarIntervalTrigger":
            _refuse(
                "A CalendarIntervalTrigger counts months and years from its start, which a cron expression does not. "
                'Use Cron("0 9 1 * *") for every month, or write a schedule of your own.'
            )
    return _refuse(
        f"A {name} has no equivalent. Write a schedule of your own: a subclass of Schedule with next_after()."
    )


def _from_cron(trigger: Any) -> Schedule:
    if hasattr(trigger, "fields"):  # version 3
        fields = {field.name: str(field) for field in trigger.fields}
    else:
        fields = {name: value for name in _FIELDS if (value := getattr(trigger, name, None)) is not None}
    return cron_from_fields(
        **fields,
        timezone=trigger.timezone,
        start_date=_first_of(trigger, "start_date", "start_time"),
        end_date=_first_of(trigger, "end_date", "end_time"),
        jitter=getattr(trigger, "jitter", None),
    )


def _from_interval(trigger: Any) -> Schedule:
    interval = _first_of(trigger, "interval", "_interval")
    if not isinstance(interval, timedelta):
        _refuse("This IntervalTrigger has no interval. Write Every(...) with the interval that you need.")
    return Every(
        interval,
        anchor=_first_of(trigger, "start_date", "start_time"),
        jitter=_jitter(getattr(trigger, "jitter", None)),
        end=_first_of(trigger, "end_date", "end_time"),
    )


def _jitter(seconds: float | None) -> timedelta | None:
    return timedelta(seconds=seconds) if seconds else None


def _first_of(trigger: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(trigger, name, None)) is not None), None)


def _zone(timezone: str | tzinfo | None) -> str | tzinfo | None:
    """Return *timezone* by its name if it has one: a zone of pytz changes its offset, and cannot be stored itself."""
    name = getattr(timezone, "key", None) or getattr(timezone, "zone", None)
    return name if isinstance(name, str) else timezone


def _refuse(problem: str) -> NoReturn:
    raise InvalidScheduleError(problem)
