"""What `next` tells about a schedule: its coming occurrences, what daylight saving does to them, its traps. Pure.

Wall times are counted as in `zones`: seconds since the epoch on the clock of the zone, `wall = moment + offset`.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.cron_english import describe_line, join_words
from scheduler_async.schedules.cron_line import LONGEST_GAP, MONTHS, WEEKDAYS, CronLine, Field, parse_cron
from scheduler_async.schedules.delay import Delay
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import SECOND, from_micros, to_micros
from scheduler_async.timekeeping.zones import DAY, Zone, as_tzinfo, find_zone

# Between runs that are further apart nobody counts the hours.
CLOSE = 2 * DAY
# The same Sunday of two years is up to 53 weeks apart.
FORESIGHT = 53 * 7 * DAY
# Then the calendar repeats itself; to look through millennia of it takes seconds, and tells nothing new.
HORIZON = timedelta(days=146_097)  # 400 years
# No change of offset repeats or leaves out more than a day of wall time.
_LARGEST_SHIFT = DAY + 3600

_WALL = Zone("the wall", lambda _: 0)  # a zone without changes, to ask a line for wall times alone


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A coming occurrence, for a reader who may live in another zone than the schedule."""

    at: datetime
    there: datetime
    """In the zone of the schedule; in UTC if it has none."""
    here: datetime
    """In the zone of the reader."""
    note: str | None
    """What daylight saving does to it."""


def following(schedule: Schedule, now: datetime, count: int, here: tzinfo) -> list[Occurrence]:
    """The first *count* occurrences later than *now*; none if they depend on what runs, or on who triggers it.

    None but the first is further away than the calendar takes to repeat itself.
    """
    if isinstance(schedule, Delay):
        return []
    notes = _CronNotes(schedule, now) if isinstance(schedule, Cron) else None
    found: list[Occurrence] = []
    asked_at = now
    while len(found) < count and (at := schedule.next_after(asked_at)) is not None:
        if found and at - now > HORIZON:
            break
        there_at = _in_zone(at, _zone_of(schedule))
        here_at = _in_zone(at, here)
        previous = found[-1] if found else None
        note = notes.note(at, previous.at if previous else None) if notes else None
        if note is None and previous:
            note = _parted(previous, at, there_at, here_at)
        found.append(Occurrence(at=at, there=there_at, here=here_at, note=note))
        asked_at = at
    return found


def traps(schedule: Schedule, now: datetime) -> list[str]:
    """What may surprise whoever wrote *schedule*: a sentence each, with what would be better."""
    if not isinstance(schedule, Cron):
        return []
    line = parse_cron(schedule.expression)
    return [
        *_either_day(line),
        *_uneven_steps(line, now),
        *_missing_days(line),
        *_daylight_traps(schedule, line, now),
    ]


def _zone_of(schedule: Schedule) -> tzinfo | None:
    """The zone that *schedule* is written for; None is the zone of the system."""
    if not isinstance(schedule, Cron):
        return UTC
    return None if schedule.tz is None else as_tzinfo(schedule.tz)


def _in_zone(at: datetime, zone: tzinfo | None) -> datetime:
    try:
        return at.astimezone(zone)
    except OverflowError:  # the last hours of the year 9999 are in the year 10000 elsewhere
        return at


def _seconds(moment: datetime) -> int:
    return to_micros(moment) // SECOND


# ---------------------------------------------------------------- changes of the clock


class _Change(NamedTuple):
    """A change of offset: from second *at* on it is *after*, and was *before* until then."""

    at: int
    before: int
    after: int

    @property
    def shift(self) -> int:
        """By how many seconds the clock goes forward; below zero it goes back."""
        return self.after - self.before

    @property
    def old_wall(self) -> int:
        """What the clock would have shown."""
        return self.at + self.before

    @property
    def new_wall(self) -> int:
        """What it shows instead."""
        return self.at + self.after

    @property
    def words(self) -> str:
        """For example "clocks go back from 03:00 to 02:00"."""
        show = _date_and_time if abs(self.shift) >= DAY else _time
        return (
            f"clocks go {'forward' if self.shift > 0 else 'back'} from {show(self.old_wall)} to {show(self.new_wall)}"
        )


def _changes(zone: Zone, after: int, until: int) -> Iterator[_Change]:
    """Every change later than *after* and not later than *until*, in order."""
    period = zone.period_at(after)
    while period is not None and period.end <= until:
        following = zone.period_at(period.end)
        if following is not None and following.offset != period.offset:
            yield _Change(period.end, period.offset, following.offset)
        period = following


class _Times(NamedTuple):
    """The wall times of a line within a stretch: at least one."""

    first: int
    last: int
    are_more: bool
    """Whether there are others between the two."""

    @property
    def is_one(self) -> bool:
        return self.first == self.last

    @property
    def words(self) -> str:
        if self.is_one:
            return _time(self.first)
        return f"{_time(self.first)} {'to' if self.are_more else 'and'} {_time(self.last)}"

    @property
    def dates(self) -> list[str]:
        """One, or two if midnight lies between."""
        return list(dict.fromkeys((_date(self.first), _date(self.last))))

    def do_not_exist(self) -> str:
        return f"{self.words} {'does' if self.is_one else 'do'} not exist"

    def come_twice(self) -> str:
        return f"{self.words} {'comes' if self.is_one else 'come'} twice"


def _times(line: CronLine, first: int, end: int) -> _Times | None:
    """The wall times that *line* wants from *first* up to but not including *end*."""
    earliest, latest = line.next_after(first - 1, _WALL), line.previous(end - 1, _WALL)
    if earliest is None or latest is None or earliest >= end:
        return None
    return _Times(earliest, latest, are_more=line.count(first - 1, end - 1, _WALL, 3) > 2)


def _is_made_up_for(line: CronLine, change: _Change) -> bool:
    """Whether what *change* leaves out is run right after it."""
    return line.fixed and 0 < change.shift <= LONGEST_GAP


def _leaves_a_hole(line: CronLine, zone: Zone, change: _Change, left_out: _Times, at: int) -> bool:
    """Whether one waits longer for the occurrence *at*, the first after *change*, than between two as a rule.

    Every fifteen minutes goes on from 01:45 to 03:00 without a hole; every two hours on the hour leaves out 02:00.
    """
    previous = line.previous(change.at - 1, zone)
    if previous is None:
        return True
    usual = max(left_out.first - _wall(zone, previous), _wall(zone, at) - left_out.last)
    return at - previous > usual


def _wall(zone: Zone, moment: int) -> int:
    period = zone.period_at(moment)
    assert period is not None  # cron lines have no occurrences beyond the calendar
    return moment + period.offset


def _time(wall: int) -> str:
    shown = from_micros(wall * SECOND)
    return f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"


def _date(wall: int) -> str:
    return from_micros(wall * SECOND).date().isoformat()


def _date_and_time(wall: int) -> str:
    return f"{_date(wall)} {_time(wall)}"


# ---------------------------------------------------------------- notes


class _CronNotes:
    """Says what daylight saving does to each occurrence of a cron schedule, one after the other."""

    def __init__(self, schedule: Cron, now: datetime) -> None:
        self.line = parse_cron(schedule.expression)
        self.zone = find_zone(schedule.tz)
        # What was left out before that is no news.
        self.since = _seconds(max(now, schedule.start or now))

    def note(self, at_moment: datetime, previous_moment: datetime | None) -> str | None:
        at = _seconds(at_moment)
        previous = None if previous_moment is None else _seconds(previous_moment)
        wall = _wall(self.zone, at)
        return (
            self._moved(at, wall)
            or self._repeated(at, wall)
            or self._left_out(at, wall, self.since if previous is None else previous)
            or (None if previous is None else self._closer_or_further(at, wall, previous))
        )

    def _moved(self, at: int, wall: int) -> str | None:
        """A fixed time that does not exist, and runs now instead."""
        for change in _changes(self.zone, at - 1, at):
            left_out = _times(self.line, change.old_wall, change.new_wall)
            if left_out and _is_made_up_for(self.line, change):
                they = "it" if left_out.is_one else "they"
                if _times(self.line, wall, wall + 1):
                    result = f"{they} and {_time(wall)} are one run"
                elif left_out.is_one:
                    result = f"it runs at {_time(wall)}"
                else:
                    result = f"they are one run at {_time(wall)}"
                return f"{left_out.do_not_exist()} {_that_day(left_out.dates, wall)}: {change.words}, so {result}"
        return None

    def _repeated(self, at: int, wall: int) -> str | None:
        """A time that the clock shows twice."""
        for change in _changes(self.zone, at - _LARGEST_SHIFT, at + _LARGEST_SHIFT):
            if change.new_wall <= wall < change.old_wall:
                if self.line.fixed:
                    result = "it runs the first time only"
                else:
                    result = f"this is the {'first' if at < change.at else 'second'} time"
                return f"{_time(wall)} comes twice that day, as {change.words}: {result}"
        return None

    def _left_out(self, at: int, wall: int, since: int) -> str | None:
        """Times that do not exist and are not made up for, between *since* and *at*."""
        notes = []
        for change in _changes(self.zone, since, at):
            left_out = _times(self.line, change.old_wall, change.new_wall)
            if left_out and not _is_made_up_for(self.line, change):
                note = f"{left_out.do_not_exist()} {_that_day(left_out.dates, wall)}: {change.words}"
                if _leaves_a_hole(self.line, self.zone, change, left_out, at):
                    note += f", and {'it is' if left_out.is_one else 'they are'} not made up for"
                notes.append(note)
        return "; ".join(notes) or None

    def _closer_or_further(self, at: int, wall: int, previous: int) -> str | None:
        """A distance to the previous occurrence that is not what the two wall times suggest."""
        if at - previous > CLOSE:
            return None
        for change in _changes(self.zone, previous, at):
            day = _that_day([_date(change.old_wall)], wall)
            elapsed = describe_duration(timedelta(seconds=at - previous))
            return f"{change.words} {day}, so it comes {elapsed} after the one before"
        return None


def _that_day(dates: list[str], shown: int) -> str:
    """The *dates* in words, beside an occurrence that is *shown* with its own."""
    return "that day" if dates == [_date(shown)] else f"on {join_words(dates)}"


def _parted(previous: Occurrence, at: datetime, there: datetime, here: datetime) -> str | None:
    """That the clocks here and there are no longer as far apart as at the *previous* occurrence."""
    moved_there = _offset(there, at) - _offset(previous.there, previous.at)
    moved_here = _offset(here, at) - _offset(previous.here, previous.at)
    if moved_there == moved_here:
        return None
    if not moved_there:
        return f"clocks here have gone {_by(moved_here)} since the one before"
    if not moved_here:
        return f"clocks there have gone {_by(moved_there)} since the one before, and not here"
    return f"clocks have gone {_by(moved_there)} there and {_by(moved_here)} here since the one before"


def _offset(shown: datetime, at: datetime) -> timedelta:
    return shown.replace(tzinfo=UTC) - at


def _by(shift: timedelta) -> str:
    return f"{'forward' if shift > timedelta() else 'back'} {describe_duration(abs(shift))}"


# ---------------------------------------------------------------- traps: days


def _either_day(line: CronLine) -> Iterator[str]:
    day_of_month, day_of_week = line.day_of_month, line.day_of_week
    if day_of_month.is_unrestricted or day_of_week.is_unrestricted:
        return
    better = 'to ask for both, leave one of them "*" and let the job check the other'
    which, rest = divmod(day_of_month.values[0] - 1 if day_of_month.values else 0, 7)
    # "1-7 * MON" is how some write the first Monday.
    is_a_week = rest == 0 and day_of_month.values == tuple(range(which * 7 + 1, which * 7 + 8))
    if is_a_week and not day_of_month.last_day and not day_of_week.nth and len(day_of_week.values) < len(WEEKDAYS):
        days = ",".join(f"{WEEKDAYS[day]}#{which + 1}" for day in day_of_week.values)
        better = f'to ask for both, write "{days}" as the day of the week and "*" as the day of the month'
    yield (
        f"The day of the month and the day of the week are both restricted, and either is enough: it runs "
        f"{describe_line(line)}; {better}."
    )


_LONGEST = {month: monthrange(2024, month)[1] for month in range(1, 13)}  # a leap year
_MONTH_NAMES = dict(enumerate(MONTHS, 1))


def _missing_days(line: CronLine) -> Iterator[str]:
    field, months = line.day_of_month, line.month.values
    # The last day makes up for the others; what a step means is another matter.
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


# ---------------------------------------------------------------- traps: steps

_STEP = re.compile(r"(?:\*|\w+)/(?P<step>\d+)", re.ASCII)


def _step_of(field: Field) -> int | None:
    """The step of a field that goes round with it: "*/7" or "3/7", but not "30/7", which begins late on purpose."""
    match = _STEP.fullmatch(field.text)
    step = int(match["step"]) if match else 1
    return step if step > 1 and field.values[0] - field.kind.low < step else None


def _uneven_steps(line: CronLine, now: datetime) -> Iterator[str]:
    """Steps that do not lead back to where they began: "*/7" goes from minute 56 to minute 0."""

    def days_go_on() -> bool:
        return _has_neighbouring_days(line, _seconds(now) // DAY)

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
    """*goes_on* tells whether one *whole* ever follows another; *has_pace*, whether an interval would do as well."""
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
        f"{_begins_anew(field, whole)}, so that {unit} {last} is followed by {unit} {first} after "
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
            f"{_begins_anew(field, 'month')}, so that {last} {_MONTH_NAMES[month]} is followed by {field.values[0]} "
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
            f"{_begins_anew(field, 'year')}, so that {_MONTH_NAMES[last]} is followed by {_MONTH_NAMES[first]} after "
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
            f"{_begins_anew(field, 'week')}, so that {WEEKDAYS[last]} is followed by {WEEKDAYS[first]} after "
            f'{_counted(gap, "day")}; name the days instead, such as "MON,WED,FRI".'
        )


def _begins_anew(field: Field, whole: str) -> str:
    return f'"{field.text}" in the {field.kind.name} field begins anew every {whole}'


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _has_neighbours(field: Field, size: int, goes_on: Callable[[], bool]) -> bool:
    """Whether *field* names two values in a row; *goes_on* tells whether the last is followed by the first."""
    values = set(field.values)
    return any(value + 1 in values for value in values) or ({0, size - 1} <= values and goes_on())


def _has_neighbouring_days(line: CronLine, today: int) -> bool:
    """Whether *line* ever runs on two days in a row, within a year from *today*."""
    day = line.days.on_or_after(today)
    while day is not None and day < today + 366:
        following = line.days.on_or_after(day + 1)
        if following == day + 1:
            return True
        day = following
    return False


# ---------------------------------------------------------------- traps: daylight saving


def _daylight_traps(schedule: Cron, line: CronLine, now: datetime) -> Iterator[str]:
    """What the coming changes of the clock do to a time of the day, each with all its dates."""
    if not line.fixed and len(line.hour.values) == 24:
        return  # a pace that goes on all day means no time of the day
    zone = find_zone(schedule.tz)
    since = _seconds(max(now, schedule.start or now))
    until = since + FORESIGHT
    if schedule.end is not None:
        until = min(until, _seconds(schedule.end))
    found: dict[tuple[str, str], list[str]] = {}
    for change in _changes(zone, since, until):
        trap = _in_gap(line, zone, change) if change.shift > 0 else _in_overlap(line, change, since, until)
        if trap is not None:
            times, result = trap
            low, high = sorted((change.old_wall, change.new_wall))
            better = f"a time outside {_time(low)} to {_time(high)}, or the zone UTC, avoids that"
            sentence = f"in {schedule.tz or 'the zone of the system'}, when {change.words}, and {result}; {better}."
            what = times.do_not_exist() if change.shift > 0 else times.come_twice()
            found.setdefault((what, sentence), []).extend(times.dates)
    for (what, sentence), dates in found.items():
        yield f"{what} on {join_words(dates)} {sentence}"


def _in_gap(line: CronLine, zone: Zone, change: _Change) -> tuple[_Times, str] | None:
    """The times that *change* leaves out, and what becomes of them, if one has to know it."""
    times = _times(line, change.old_wall, change.new_wall)
    if times is None:
        return None
    if _is_made_up_for(line, change):
        return times, f"{'runs' if times.is_one else 'are one run'} at {_time(change.new_wall)} instead"
    at = line.next_after(change.at - 1, zone)
    if at is not None and not _leaves_a_hole(line, zone, change, times, at):
        return None
    return times, f"{'is' if times.is_one else 'are'} left out"


def _in_overlap(line: CronLine, change: _Change, since: int, until: int) -> tuple[_Times, str] | None:
    """The times that *change* repeats, and what becomes of them, if one has to know it."""
    # Not those whose first time has passed.
    times = _times(line, max(change.new_wall, since + change.before + 1), change.old_wall)
    if times is None:
        return None
    if line.fixed:
        return times, f"{'runs' if times.is_one else 'run'} the first time only"
    # A line that runs in the hour before or after as well keeps its pace, and nothing else is expected of it.
    before = _times(line, times.first + change.shift, times.first)
    after = _times(line, times.last + 1, times.last - change.shift + 1)
    if before or after or change.at - change.shift > until:
        return None
    return times, f"{'runs' if times.is_one else 'run'} both times"
