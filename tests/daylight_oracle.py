"""When a cron line should run, by brute force: every minute of a stretch of time, held against the wall clock.

An independent second opinion for the tests. It knows the rules and nothing of the library: no `fold`, no search, no
arithmetic with offsets. A gap is where the wall clock leaps between two neighbouring minutes; a repeated time is one
that the wall clock has shown before.

Instants are whole seconds since the epoch. Everything is found by looking at each minute or day in turn, so it is
slow, and meant for stretches of a few days. It reads well-formed lines only: to refuse others is the library's job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

# In seconds.
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

ONE_MINUTE = timedelta(minutes=1)

# A leap of the wall clock beyond this is a correction of the calendar; the matches in it do not happen (rule 6).
LONGEST_GAP = timedelta(hours=3)

# Walked before each stretch, so that a repeated minute at its start is known to be one. No clock has gone back by more
# than seven hours since 1970 (Vostok, in 1994).
LEAD_IN = 8 * HOUR

WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A cron line, taken apart: explicit sets, and the two day fields as text, since they depend on the month."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days_of_month: str
    months: frozenset[int]
    days_of_week: str
    fixed: bool

    def wants(self, wall: datetime) -> bool:
        """Whether the fields match this wall time, which is what a clock on the wall would show, zones aside."""
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.wants_day(wall.date())
        )

    def wants_day(self, day: date) -> bool:
        """Whether the month and the two day fields match this day (rule 8)."""
        if day.month not in self.months:
            return False
        by_month = any(_is_day_of_month(item, day) for item in self.days_of_month.split(","))
        by_week = any(_is_day_of_week(item, day) for item in self.days_of_week.split(","))
        if self.days_of_month in ("*", "?"):
            return by_week
        if self.days_of_week in ("*", "?"):
            return by_month
        return by_month or by_week


def read_line(text: str) -> Line:
    """Take a well-formed cron line apart."""
    fields = WORDS.get(text.strip().lower(), text).upper().split()
    if len(fields) == 5:
        fields.insert(0, "0")
    second, minute, hour, day_of_month, month, day_of_week = fields
    for number, name in enumerate(MONTHS, 1):
        month = month.replace(name, str(number))
    # At the end of a range, Sunday is the day after Saturday.
    day_of_week = day_of_week.replace("-SUN", "-7")
    for number, name in enumerate(WEEKDAYS):
        day_of_week = day_of_week.replace(name, str(number))
    return Line(
        seconds=_numbers(second, 0, 59),
        minutes=_numbers(minute, 0, 59),
        hours=_numbers(hour, 0, 23),
        days_of_month=day_of_month,
        months=_numbers(month, 1, 12),
        days_of_week=day_of_week,
        fixed=not any(field.startswith("*") for field in (second, minute, hour)),
    )


def _numbers(field: str, first: int, last: int) -> frozenset[int]:
    """Every number that a field names."""
    return frozenset(number for item in field.split(",") for number in _numbers_of_item(item, first, last))


def _numbers_of_item(item: str, first: int, last: int) -> Iterator[int]:
    span, _, step = item.partition("/")
    start, _, end = span.partition("-")
    if span == "*":
        start, end = str(first), str(last)
    elif not end:
        # "7/15" goes from 7 to the end of the field; "7" is 7 alone.
        end = str(last) if step else start
    yield from range(int(start), int(end) + 1, int(step or 1))


def _is_day_of_month(item: str, day: date) -> bool:
    if item == "?":
        return True
    if item == "L":
        return (day + timedelta(days=1)).month != day.month
    return day.day in _numbers_of_item(item, 1, 31)


def _is_day_of_week(item: str, day: date) -> bool:
    if item == "?":
        return True
    if item.endswith("L"):
        weekday = int(item.removesuffix("L").removesuffix("#"))
        return day.isoweekday() % 7 == weekday % 7 and (day + timedelta(days=7)).month != day.month
    if "#" in item:
        weekday, which = map(int, item.split("#"))
        return day.isoweekday() % 7 == weekday % 7 and (day.day + 6) // 7 == which
    return any(day.isoweekday() % 7 == weekday % 7 for weekday in _numbers_of_item(item, 0, 7))


class Minute(NamedTuple):
    """A minute that exists: when it begins, and what the clock on the wall shows then."""

    at: int
    day: date
    hour: int
    minute: int
    shown_before: bool


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Minutes of the wall clock that never were, and the first instant after them."""

    ends_at: int
    skipped: tuple[datetime, ...]
    is_correction: bool


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The time after *start* and up to *end*, minute by minute, as one zone's wall clock showed it."""

    start: int
    end: int
    minutes: tuple[Minute, ...]
    gaps: tuple[Gap, ...]

    def instants(self, line: Line) -> list[int]:
        """Every instant of the stretch at which *line* should run, in order."""
        wanted_days = {day for day in {minute.day for minute in self.minutes} if line.wants_day(day)}
        found = {
            minute.at + second
            for minute in self.minutes
            # Rule 1: the fields are held against the wall clock.
            if minute.hour in line.hours and minute.minute in line.minutes and minute.day in wanted_days
            # Rules 4 and 5: a fixed line runs in the first pass of a repeated time only.
            if not (line.fixed and minute.shown_before)
            for second in line.seconds
        }
        found |= {
            gap.ends_at
            for gap in self.gaps
            # Rules 2, 3 and 6: what a fixed line misses in a gap becomes one run after it.
            if line.fixed and not gap.is_correction
            # A minute is skipped with all its seconds, so any one second of the line will do.
            if any(line.wants(wall.replace(second=min(line.seconds))) for wall in gap.skipped)
        }
        return sorted(instant for instant in found if self.start < instant <= self.end)


def walk(zone: ZoneInfo, start: int, end: int) -> Stretch:
    """Walk every minute after *start* and up to *end*, and note what the wall clock of *zone* shows."""
    minutes = []
    gaps = []
    first = (start - LEAD_IN) // MINUTE * MINUTE
    before = wall_clock(zone, first - MINUTE)
    shown: set[datetime] = set()
    for at in range(first, end + 1, MINUTE):
        wall = wall_clock(zone, at)
        if wall - before != ONE_MINUTE:
            # To look at whole minutes only is enough as long as clocks change, and differ, by whole minutes.
            assert wall.second == 0
            assert wall_clock(zone, at - 1) == before + timedelta(seconds=59)
        if wall - before > ONE_MINUTE:
            gaps.append(_gap(at, before + ONE_MINUTE, wall))
        if at + MINUTE > start:
            minutes.append(Minute(at, wall.date(), wall.hour, wall.minute, wall in shown))
        shown.add(wall)
        before = wall
    return Stretch(start=start, end=end, minutes=tuple(minutes), gaps=tuple(gaps))


def _gap(at: int, first: datetime, after: datetime) -> Gap:
    """The gap from the wall time *first* up to *after*, which is what the clock shows at the instant *at*."""
    skipped = tuple(first + passed * ONE_MINUTE for passed in range((after - first) // ONE_MINUTE))
    return Gap(ends_at=at, skipped=skipped, is_correction=after - first > LONGEST_GAP)


def wall_clock(zone: ZoneInfo, at: int) -> datetime:
    """What a clock on the wall shows at this instant: no zone, and the same in both passes of a repeated time."""
    there = datetime.fromtimestamp(at, zone)
    return datetime.combine(there.date(), there.time())


@dataclass(frozen=True, kw_only=True, order=True)
class Change:
    """A change of a zone's offset from UTC, in seconds: the first instant at which the new one holds."""

    at: int
    before: int
    after: int


def changes(zone: ZoneInfo, start: int, end: int, *, step: int = 3 * HOUR) -> list[Change]:
    """Every change of offset after *start* and up to *end*, found by looking at the clock every *step* seconds."""
    found = []
    before = offset(zone, start)
    # The last look may lie beyond the end, so that nothing before it is overlooked.
    for looked_at in range(start + step, end + step, step):
        after = offset(zone, looked_at)
        if after != before:
            at = looked_at - step
            for stride in (HOUR, MINUTE, 1):
                while offset(zone, at + stride) == before:
                    at += stride
            found.append(Change(at=at + 1, before=before, after=after))
            before = after
    return [change for change in found if change.at <= end]


def offset(zone: ZoneInfo, at: int) -> int:
    """How many seconds the clocks of *zone* are ahead of UTC at this instant."""
    ahead = datetime.fromtimestamp(at, zone).utcoffset()
    assert ahead is not None
    return round(ahead.total_seconds())
