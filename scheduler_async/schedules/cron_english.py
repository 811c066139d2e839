"""A cron line in English: "at 09:00 on Monday to Friday". Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduler_async.schedules.cron_line import CronLine, Field

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}

# A list of clock times is pleasant to read while it is short.
_FEW_TIMES = 6


def describe_line(line: CronLine) -> str:
    """Return when *line* runs, in words."""
    days, months = _days(line), _months(line.month)
    if months and line.day_of_week.is_unrestricted and days:
        return f"{_times(line)} {days.removesuffix('the month')}{months}"
    return " ".join(filter(None, (_times(line), days, months and f"in {months}")))


def _times(line: CronLine) -> str:
    second, minute, hour = line.second, line.minute, line.hour
    if len(second.values) * len(minute.values) * len(hour.values) <= _FEW_TIMES:
        return "at " + join_words(
            f"{h:02}:{m:02}" + (f":{s:02}" if s else "")
            for h in hour.values
            for m in minute.values
            for s in second.values
        )
    within_minute = "" if second.values == (0,) else _every(second, 60, "second")
    within_hour = _every(minute, 60, "minute")
    if within_minute:
        which = "every minute" if len(minute.values) == 60 else _plain(minute, "minute")
        is_pace = which == "every minute" and within_minute.startswith("every")
        within_hour = within_minute if is_pace else f"{within_minute} of {which}"
    elif minute.values == (0,):
        within_hour = "on the hour"
    if len(hour.values) == 24:
        goes_on = within_hour.endswith("of every minute") or (
            " of " not in within_hour and within_hour.startswith("every")
        )
        return within_hour if goes_on else f"{within_hour}, every hour"
    period = _period(hour.values, 24)
    if period and within_hour.startswith("every"):
        return f"{within_hour} of every {_ordinal(period)} hour"
    if period:
        return f"{within_hour}, every {period} hours"
    first, last = minute.values[0], minute.values[-1]
    spans = join_words(f"from {a:02}:{first:02} to {b:02}:{last:02}" for a, b in _runs(hour.values))
    return f"{within_hour} {spans}"


def _every(field: Field, size: int, unit: str) -> str:
    if len(field.values) == size:
        return f"every {unit}"
    period = _period(field.values, size)
    return f"every {period} {unit}s" if period else f"at {_plain(field, unit)}"


def _plain(field: Field, unit: str) -> str:
    return f"{unit}{'s' if len(field.values) > 1 else ''} {join_words(_ranges(field.values, str))}"


def _period(values: Sequence[int], size: int) -> int | None:
    """Return the step with which *values* go round evenly from 0, as */15 does and */7 does not; None otherwise."""
    step = size // len(values)
    return step if len(values) > 1 and tuple(values) == tuple(range(0, size, step)) and size % step == 0 else None


def _days(line: CronLine) -> str:
    choices = []
    if not line.day_of_month.is_unrestricted:
        field = line.day_of_month
        days = _ranges(field.values, _ordinal)
        days += [f"weekday nearest to the {_ordinal(day)}" for day in field.nearest_weekdays]
        days += [f"{_ordinal(number + 1)} to last day" for number in reversed(field.before_last)]
        days += ["last weekday"] if field.last_weekday else []
        days += ["last day"] if field.last_day else []
        choices.append(f"on the {join_words(days)} of the month")
    if not line.day_of_week.is_unrestricted:
        plain = _ranges(_monday_first(line.day_of_week.values), lambda day: _WEEKDAYS[day % 7])
        nth = [f"the {_NTH[which]} {_WEEKDAYS[day]} of the month" for day, which in line.day_of_week.nth]
        choices.append(f"on {join_words(plain + nth)}")
    return " or ".join(choices)


def _monday_first(days: Iterable[int]) -> list[int]:
    return sorted(day or 7 for day in days)


def _months(month: Field) -> str:
    if len(month.values) == len(_MONTHS):
        return ""
    return join_words(_ranges(month.values, lambda number: _MONTHS[number - 1]))


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _ranges(values: Sequence[int], name: Callable[[int], str]) -> list[str]:
    """Return *values* in words; three or more in a row become a range."""
    words: list[str] = []
    for first, last in _runs(values):
        if last - first < 2:
            words += [name(value) for value in range(first, last + 1)]
        else:
            words.append(f"{name(first)} to {name(last)}")
    return words


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the (first, last) of each stretch of consecutive *values*, which are sorted."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def join_words(words: Iterable[str]) -> str:
    """Return *words* as a list in a sentence: "a", "a and b", "a, b and c"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
