"""What may surprise the author of a cron schedule, each with a better way to write it. Pure."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import datetime

from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.clock_shifts import (
    Change,
    Times,
    changes,
    is_made_up_for,
    leaves_a_hole,
    seconds_of,
    show_time,
    times_of,
)
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.cron_english import describe_line, join_words
from scheduler_async.schedules.cron_line import MONTHS, WEEKDAYS, CronLine, Field, parse_cron
from scheduler_async.timekeeping.zones import DAY, Zone, find_zone

# The same Sunday of two years is up to 53 weeks apart.
FORESIGHT = 53 * 7 * DAY


def traps(schedule: Schedule, now: datetime) -> list[str]:
    """Return a sentence about each trap in *schedule*, with a better way to write it."""
    if not isinstance(schedule, Cron):
        return []
    line = parse_cron(schedule.expression)
    return [
        *_either_day(line),
        *_uneven_steps(line, now),
        *_missing_days(line),
        *_daylight_traps(schedule, line, now),
    ]


# ---------------------------------------------------------------- days


def _either_day(line: CronLine) -> Iterator[str]:
    day_of_month, day_of_week = line.day_of_month, line.day_of_week
    if day_of_month.is_unrestricted or day_of_week.is_unrestricted:
        return
    better = 'to ask for both, leave the day of the week "*" and name it in a calendar, as in "--on weekdays:MON"'
    which, rest = divmod(day_of_month.values[0] - 1 if day_of_month.values else 0, 7)
    # "1-7 * MON" is how some write the first Monday.
    is_a_week = rest == 0 and day_of_month.values == tuple(range(which * 7 + 1, which * 7 + 8))
    if is_a_week and not day_of_month.last_day and not day_of_week.nth and len(day_of_week.values) < len(WEEKDAYS):
        days = ",".join(f"{WEEKDAYS[day]}#{which + 1}" for day in day_of_week.values)
        better = f'to ask for both, write "{days}" as the day of the week and "*" as the day of the month'
    yield (
        f"The day of the month and the day of the week are both restricted, and a match of either is enough: it runs "
        f"{describe_line(line)}; {better}."
    )


_LONGEST = {month: monthrange(2024, month)[1] for month in range(1, 13)}  # a leap year
_MONTH_NAMES = dict(enumerate(MONTHS, 1))


def _missing_days(line: CronLine) -> Iterator[str]:
    field, months = line.day_of_month, line.month.values
    # "L" covers the shorter months; steps are judged elsewhere.
    if not field.is_unrestricted and not field.last_day and "/" not in field.text:
        for day in field.values:
            # "28-31" is the end of every month; "31" is not.
            if day < 29 or day - 1 in field.values:
                continue
            without = [month for month in months if _LONGEST[month] < day]
            if without:
                names = join_words(_MONTH_NAMES[month] for month in without)
                yield f'Day {day} never comes in {names}; "L" is the last day of every month.'
            elif day == 29 and 2 in months:
                yield 'Day 29 comes in FEB in leap years only; "L" is the last day of every month.'
    for day, which in line.day_of_week.nth:
        if which == 5:
            name = WEEKDAYS[day]
            yield f'Not every month has a fifth {name}; "{name}L" is the last one of every month.'


# ---------------------------------------------------------------- steps

_STEP = re.compile(r"(?:\*|\w+)/(?P<step>\d+)", re.ASCII)


def _step_of(field: Field) -> int | None:
    """Return the step of "*/7" or "3/7"; None for "30/7", which begins late on purpose, and for other fields."""
    match = _STEP.fullmatch(field.text)
    step = int(match["step"]) if match else 1
    return step if step > 1 and field.values[0] - field.kind.low < step else None


def _uneven_steps(line: CronLine, now: datetime) -> Iterator[str]:
    """Yield warnings about steps that do not divide their range: "*/7" goes from minute 56 to minute 0."""

    def days_go_on() -> bool:
        return _has_neighbouring_days(line, seconds_of(now) // DAY)

    def hours_go_on() -> bool:
        return _has_neighbours(line.hour, 24, days_go_on)

    def minutes_go_on() -> bool:
        return _has_neighbours(line.minute, 60, hours_go_on)

    every_day = line.days.unrestricted
    every_hour = every_day and len(line.hour.values) == 24
    every_minute = every_hour and len(line.minute.values) == 60
    one_second = len(line.second.values) == 1
    one_minute = one_second and len(line.minute.values) == 1
    one_hour = one_minute and len(line.hour.values) == 1
    yield from _uneven_times(line.second, 60, "minute", minutes_go_on, has_pace=every_minute)
    yield from _uneven_times(line.minute, 60, "hour", hours_go_on, has_pace=every_hour and one_second)
    yield from _uneven_times(line.hour, 24, "day", days_go_on, has_pace=every_day and one_minute)
    yield from _uneven_days(line, has_pace=one_hour)
    yield from _uneven_months(line.month)
    yield from _uneven_weekdays(line.day_of_week)


def _uneven_times(field: Field, size: int, whole: str, goes_on: Callable[[], bool], *, has_pace: bool) -> Iterator[str]:
    """Yield a warning about *field*.

    *goes_on* returns whether two *whole* ones ever follow each other. *has_pace* says that an interval would do too.
    """
    step = _step_of(field)
    if step is None:
        return
    first, last = field.values[0], field.values[-1]
    gap = size - last + first
    if gap == step or not goes_on():
        return
    unit = field.kind.name
    even = min((divisor for divisor in range(2, size) if size % divisor == 0), key=lambda divisor: abs(divisor - step))
    better = f'"*/{even}" divides the {whole} evenly'
    if has_pace:
        better += f', and "every {step}{unit[0]}" keeps its pace'
    yield (
        f"{_starts_again(field, whole)}, so {unit} {last} is followed by {unit} {first} after "
        f"{_counted(gap, unit)}; {better}."
    )


def _uneven_days(line: CronLine, *, has_pace: bool) -> Iterator[str]:
    field, months = line.day_of_month, line.month.values
    step = _step_of(field)
    if step is None:
        return
    for month in months:
        following, length = month % 12 + 1, monthrange(2023, month)[1]
        last = max((day for day in field.values if day <= length), default=None)
        if last is None or following not in months or length - last + field.values[0] == step:
            continue
        better = 'name the days instead, such as "1,15"'
        if has_pace and len(months) == 12 and line.day_of_week.is_unrestricted:
            better = f'"every {step}d" keeps its pace'
        yield (
            f"{_starts_again(field, 'month')}, so {last} {_MONTH_NAMES[month]} is followed by {field.values[0]} "
            f"{_MONTH_NAMES[following]} after {_counted(length - last + field.values[0], 'day')}; {better}."
        )
        return


def _uneven_months(field: Field) -> Iterator[str]:
    step = _step_of(field)
    first, last = field.values[0], field.values[-1]
    gap = 12 - last + first
    if step is not None and gap != step:
        even = min((2, 3, 4, 6), key=lambda divisor: abs(divisor - step))
        yield (
            f"{_starts_again(field, 'year')}, so {_MONTH_NAMES[last]} is followed by {_MONTH_NAMES[first]} after "
            f'{_counted(gap, "month")}; "*/{even}" divides the year evenly.'
        )


def _uneven_weekdays(field: Field) -> Iterator[str]:
    step = _step_of(field) if field.values else None
    if step is None:
        return
    first, last = field.values[0], field.values[-1]
    gap = 7 - last + first
    if gap != step:
        yield (
            f"{_starts_again(field, 'week')}, so {WEEKDAYS[last]} is followed by {WEEKDAYS[first]} after "
            f'{_counted(gap, "day")}; name the days instead, such as "MON,WED,FRI".'
        )


def _starts_again(field: Field, whole: str) -> str:
    return f'"{field.text}" in the {field.kind.name} field starts again every {whole}'


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _has_neighbours(field: Field, size: int, goes_on: Callable[[], bool]) -> bool:
    """Return whether *field* has two values in a row; *goes_on* returns whether the first can follow the last."""
    values = set(field.values)
    return any(value + 1 in values for value in values) or ({0, size - 1} <= values and goes_on())


def _has_neighbouring_days(line: CronLine, today: int) -> bool:
    """Return whether *line* runs on two days in a row within a year from *today*."""
    day = line.days.on_or_after(today)
    while day is not None and day < today + 366:
        following = line.days.on_or_after(day + 1)
        if following == day + 1:
            return True
        day = following
    return False


# ---------------------------------------------------------------- clock changes


def _daylight_traps(schedule: Cron, line: CronLine, now: datetime) -> Iterator[str]:
    """Yield warnings about the coming clock changes that affect *line*, each with all its dates."""
    if not line.fixed and len(line.hour.values) == 24:
        return  # a line that runs all day long means a pace, not a time of day
    zone = find_zone(schedule.tz)
    since = seconds_of(max(now, schedule.start or now))
    until = since + FORESIGHT
    if schedule.end is not None:
        until = min(until, seconds_of(schedule.end))
    found: dict[tuple[str, str], list[str]] = {}
    for change in changes(zone, since, until):
        trap = _in_gap(line, zone, change) if change.shift > 0 else _in_overlap(line, change, since, until)
        if trap is not None:
            times, result = trap
            low, high = sorted((change.old_wall, change.new_wall))
            better = f"a time outside {show_time(low)} to {show_time(high)}, or the zone UTC, avoids that"
            sentence = f"in {schedule.tz or 'the zone of the system'}, when {change.words}, and {result}; {better}."
            what = times.do_not_exist() if change.shift > 0 else times.come_twice()
            found.setdefault((what, sentence), []).extend(times.dates)
    for (what, sentence), dates in found.items():
        yield f"{what} on {join_words(dates)} {sentence}"


def _in_gap(line: CronLine, zone: Zone, change: Change) -> tuple[Times, str] | None:
    """Return the times that *change* leaves out and what happens to them; None if that surprises no reader."""
    times = times_of(line, change.old_wall, change.new_wall)
    if times is None:
        return None
    if is_made_up_for(line, change):
        return times, f"{'runs' if times.is_one else 'are one run'} at {show_time(change.new_wall)} instead"
    at = line.next_after(change.at - 1, zone)
    if at is not None and not leaves_a_hole(line, zone, change, times, at):
        return None
    return times, f"{'is' if times.is_one else 'are'} left out"


def _in_overlap(line: CronLine, change: Change, since: int, until: int) -> tuple[Times, str] | None:
    """Return the times that *change* repeats and what happens to them; None if that surprises no reader."""
    # Leave out those whose first time has passed.
    times = times_of(line, max(change.new_wall, since + change.before + 1), change.old_wall)
    if times is None:
        return None
    if line.fixed:
        return times, f"{'runs' if times.is_one else 'run'} the first time only"
    # A line that also runs in the hour before or after keeps its pace, as its author expects.
    before = times_of(line, times.first + change.shift, times.first)
    after = times_of(line, times.last + 1, times.last - change.shift + 1)
    if before or after or change.at - change.shift > until:
        return None
    return times, f"{'runs' if times.is_one else 'run'} both times"
