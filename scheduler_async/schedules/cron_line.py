"""Cron expressions: parse one, and find the instants that match it. Pure.

The grammar is strict. croniter finds the matching *days*; the times within a day are sorted numbers, and a `Zone`
converts wall-clock times to instants. One pass over a change of offset applies the daylight-saving rules of both kinds
of lines:

* *fixed* lines ("30 2 * * *") run once for times that fall into a gap, at the first instant after it, and only
  the first time if the clock shows the same times twice;
* *wildcard* lines, whose second, minute or hour begins with `*`, run at exactly the instants whose wall time matches.
"""

from __future__ import annotations

import calendar
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, NoReturn

from msgspec import Struct

from scheduler_async.errors import CronParseError, quoted
from scheduler_async.schedules.month_days import MonthDays
from scheduler_async.timekeeping.zones import DAY, Zone

# A longer gap is a correction of the calendar, such as the day that Apia skipped in 2011. Its times do not run.
LONGEST_GAP = 3 * 3600

# No line waits longer, unless the clock always skips its times: "* 2 * 3 SUNL" in Stockholm.
LONGEST_WAIT = 50 * 366 * DAY

# The search for a line that never matches in a zone begins here, since this module has no clock.
OUR_TIME = 1_767_225_600  # 2026

# A gap of an hour in a line such as "0-59 0-59 2 * * *" has this many times.
MOST_WRITTEN = 3600

MAX_LENGTH = 256

SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class CronLine:
    """A parsed cron expression, as `parse_cron` returns it. Equal expressions share one."""

    def __init__(self, text: str, fields: tuple[Field, ...], days: Days) -> None:
        second, minute, hour, self.day_of_month, self.month, self.day_of_week = fields
        self.text = text
        self.second, self.minute, self.hour = second, minute, hour
        self.days = days
        self.fixed = not any(field.text.startswith("*") for field in (second, minute, hour))
        self._minutes = array("H", (h * 60 + m for h in hour.values for m in minute.values))
        self._seconds = second.values

    def next_after(self, moment: int, zone: Zone) -> int | None:
        """Return the first occurrence later than *moment*; both are seconds since the epoch."""
        period = zone.period_at(moment)
        if period is None:
            return None
        wall = moment + period.offset + 1
        searched_from, match = wall, None
        while True:
            if self.fixed:
                wall = max(wall, period.repeated_until)
            # It is still the first match from here, unless the clock went back or has passed it.
            if match is None or not searched_from <= wall <= match:
                searched_from, match = wall, self._wall_from(wall)
                if match is None:
                    return None
            if match - period.offset < period.end:
                return match - period.offset
            following = zone.period_at(period.end)
            if following is None or following.start - moment > LONGEST_WAIT:
                return None
            wall = following.start + following.offset
            if match < wall and self._makes_up_for(following.offset - period.offset):
                return following.start
            period = following

    def previous(self, moment: int, zone: Zone) -> int | None:
        """Return the last occurrence at or before *moment*; both are seconds since the epoch."""
        period = zone.period_at(moment)
        if period is None:
            return None
        wall = moment + period.offset
        while True:
            first = period.start + period.offset
            if self.fixed:
                first = max(first, period.repeated_until)
            match = self._wall_until(wall)
            if match is None:
                return None
            if match >= first:
                return match - period.offset
            before = zone.period_at(period.start - 1)
            if before is None or moment - period.start > LONGEST_WAIT:
                return None
            wall = period.start + before.offset - 1
            if self._makes_up_for(period.offset - before.offset) and match > wall and match >= before.repeated_until:
                return period.start
            period = before

    def count(self, after: int, until: int, zone: Zone, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*, at most *cap*."""
        total = 0
        first, period = after + 1, zone.period_at(after)
        while period is not None and first <= until and total < cap:
            first_wall = first + period.offset
            if self.fixed:
                first_wall = max(first_wall, period.repeated_until)
            last_wall = min(period.end - 1, until) + period.offset
            total += self._count_walls(first_wall, last_wall, cap - total)
            following = zone.period_at(period.end)
            if following is not None and period.end <= until and self._makes_up_for(following.offset - period.offset):
                gap_end = period.end + following.offset
                swallowed = self._wall_from(max(period.end + period.offset, period.repeated_until))
                # A match at the very end of the gap is counted with the period that follows.
                if swallowed is not None and swallowed < gap_end and self._wall_from(gap_end) != gap_end:
                    total += 1
            first, period = period.end, following
        return min(total, cap)

    def written_walls(self, at: int, zone: Zone) -> list[int]:
        """Return the wall times that the occurrence *at* stands for: its own, and those in a gap that ends there."""
        period = zone.period_at(at)
        if period is None:
            return [at]
        own = at + period.offset
        found: list[int] = []
        before = zone.period_at(period.start - 1) if at == period.start else None
        if before is not None and self._makes_up_for(period.offset - before.offset):
            wall = self._wall_from(max(period.start + before.offset, before.repeated_until))
            while wall is not None and wall < own and len(found) < MOST_WRITTEN:
                found.append(wall)
                wall = self._wall_from(wall + 1)
            if found and wall != own:
                return found
        return [*found, own]

    def refuse_if_never_in(self, zone: Zone) -> None:
        """Raise `CronParseError` if the clocks of *zone* skip every time that matches this line."""
        within_a_gap = self._minutes[-1] - self._minutes[0] < LONGEST_GAP // 60
        if self.fixed or self.days.unrestricted or not within_a_gap:
            return
        if self.next_after(OUR_TIME, zone) is None:
            raise CronParseError(
                f"Invalid cron expression {quoted(self.text)}: it never matches in {zone.name}, where the clocks "
                "always skip these times. Choose another hour, or fixed times such as "
                '"30 2 * * *", which run right after the skipped time.',
                self.text,
            )

    def _makes_up_for(self, gap: int) -> bool:
        return self.fixed and 0 < gap <= LONGEST_GAP

    def _wall_from(self, wall: int) -> int | None:
        """Return the first matching wall time at or after *wall*."""
        day, second_of_day = divmod(wall, DAY)
        found = self.days.on_or_after(day)
        if found == day:
            time = self._time_from(second_of_day)
            if time is not None:
                return day * DAY + time
            found = self.days.on_or_after(day + 1)
        return None if found is None else found * DAY + self._minutes[0] * 60 + self._seconds[0]

    def _wall_until(self, wall: int) -> int | None:
        """Return the last matching wall time at or before *wall*."""
        day, second_of_day = divmod(wall, DAY)
        found = self.days.on_or_before(day)
        if found == day:
            time = self._time_until(second_of_day)
            if time is not None:
                return day * DAY + time
            found = self.days.on_or_before(day - 1)
        return None if found is None else found * DAY + self._minutes[-1] * 60 + self._seconds[-1]

    def _time_from(self, second_of_day: int) -> int | None:
        minute, second = divmod(second_of_day, 60)
        place = bisect_left(self._minutes, minute)
        if place < len(self._minutes) and self._minutes[place] == minute:
            within = bisect_left(self._seconds, second)
            if within < len(self._seconds):
                return minute * 60 + self._seconds[within]
            place += 1
        return self._minutes[place] * 60 + self._seconds[0] if place < len(self._minutes) else None

    def _time_until(self, second_of_day: int) -> int | None:
        minute, second = divmod(second_of_day, 60)
        place = bisect_right(self._minutes, minute) - 1
        if place >= 0 and self._minutes[place] == minute:
            within = bisect_right(self._seconds, second) - 1
            if within >= 0:
                return minute * 60 + self._seconds[within]
            place -= 1
        return self._minutes[place] * 60 + self._seconds[-1] if place >= 0 else None

    def _count_walls(self, first: int, last: int, cap: int) -> int:
        """Return how many wall times from *first* to *last* match, counting whole days at a time."""
        if first > last:
            return 0
        total = 0
        first_day, first_time = divmod(first, DAY)
        last_day, last_time = divmod(last, DAY)
        day = self.days.on_or_after(first_day)
        while day is not None and day <= last_day and total < cap:
            total += self._count_times(last_time if day == last_day else DAY - 1)
            if day == first_day:
                total -= self._count_times(first_time - 1)
            day = self.days.on_or_after(day + 1)
        return total

    def _count_times(self, until: int) -> int:
        """Return how many times of a day match, from midnight up to and including second *until*."""
        minute, second = divmod(until, 60)
        whole = bisect_left(self._minutes, minute)
        count = whole * len(self._seconds)
        if whole < len(self._minutes) and self._minutes[whole] == minute:
            count += bisect_right(self._seconds, second)
        return count


class Days:
    """The days on which a line runs, as days since the epoch. croniter finds them; this caches them.

    Lines with the same day fields (`* * 1-5`) share one object, whatever their time and zone.
    """

    def __init__(self, rules: tuple[str, ...], in_month: MonthDays | None = None) -> None:
        self.unrestricted = rules == ("* * *",)
        self._rules = rules
        self._in_month = in_month
        self._lock = Lock()  # a croniter object keeps its position
        self._after: dict[int, int | None] = {}
        self._before: dict[int, int | None] = {}

    def on_or_after(self, day: int) -> int | None:
        """Return the first matching day that is not earlier than *day*."""
        if self.unrestricted:
            return day
        found = self._after.get(day, _UNKNOWN)
        if found == _UNKNOWN:
            found = min(self._nearest(day, 1), default=None)
            self._remember(self._after, day, found)
        return found

    def on_or_before(self, day: int) -> int | None:
        """Return the last matching day that is not later than *day*."""
        if self.unrestricted:
            return day
        found = self._before.get(day, _UNKNOWN)
        if found == _UNKNOWN:
            found = max(self._nearest(day, -1), default=None)
            self._remember(self._before, day, found)
        return found

    @cached_property
    def _searches(self) -> list[Any]:
        from croniter import croniter  # noqa: PLC0415 - loading it takes as long as many commands

        return [croniter(f"0 0 {rule}", _EPOCH) for rule in self._rules]

    def _nearest(self, day: int, direction: int) -> list[int]:
        found = self._search(day, direction) if self._rules else []
        other = None if self._in_month is None else self._in_month.nearest(day, direction)
        return found if other is None else [*found, other]

    def _search(self, day: int, direction: int) -> list[int]:
        """Return the nearest match of each rule, from *day* on in *direction*."""
        found = []
        for search in self._searches:
            try:
                # croniter searches strictly beyond its start; one second earlier includes the day itself.
                start = _EPOCH + timedelta(days=day, seconds=-direction)
                with self._lock:
                    search.set_current(start, force=True)
                    match: datetime = search.get_next(datetime) if direction > 0 else search.get_prev(datetime)
            except (OverflowError, ValueError):  # no such day in 50 years (croniter's error is one of these), or at all
                continue
            found.append((match - _EPOCH).days)
        return found

    def _remember(self, answers: dict[int, int | None], day: int, found: int | None) -> None:
        if len(self._after) + len(self._before) > _REMEMBERED_DAYS:
            self._after.clear()
            self._before.clear()
        answers[day] = found
        if found is not None:  # the next question is usually about that day
            self._after[found] = self._before[found] = found


# Some years of days, for each set of day fields in use.
_REMEMBERED_DAYS = 4096
_UNKNOWN = -(10**9)  # a day before all calendars

_EPOCH = datetime(1970, 1, 1)
_shared_days = lru_cache(maxsize=256)(Days)


class FieldKind(Struct, frozen=True, kw_only=True):
    """The values that one of the six fields may have."""

    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """The values that the field takes, for an error message."""
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f'The {self.name} field takes {self.low}-{self.high}{names}, for example "{self.example}"'


MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

SECOND = FieldKind(name="second", low=0, high=59, example="*/10")
MINUTE = FieldKind(name="minute", low=0, high=59, example="*/15")
HOUR = FieldKind(name="hour", low=0, high=23, example="9-17")
DAY_OF_MONTH = FieldKind(name="day-of-month", low=1, high=31, example="1,15,L")
MONTH = FieldKind(name="month", low=1, high=12, example="1-6", names=MONTHS)
DAY_OF_WEEK = FieldKind(name="day-of-week", low=0, high=7, example="MON-FRI", names=WEEKDAYS)
KINDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


class Field(Struct, frozen=True, kw_only=True):
    """One field of a line: its text, and the values that match, in order."""

    kind: FieldKind
    text: str
    values: tuple[int, ...]
    last_day: bool = False
    """Whether the last day of the month matches too (`L`)."""
    nearest_weekdays: tuple[int, ...] = ()
    """Days whose nearest weekday matches (`15W`)."""
    last_weekday: bool = False
    """Whether the last weekday of the month matches (`LW`)."""
    before_last: tuple[int, ...] = ()
    """How many days before the last day of the month match (`L-3`)."""
    nth: tuple[tuple[int, int], ...] = ()
    """Weekdays that match once a month: (5, 2) is the second Friday, (5, -1) the last."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether every value matches, by `*` or `?`; `*/2` is a restriction."""
        return self.text in ("*", "?")


def parse_cron(expression: str) -> CronLine:
    """Return the parsed *expression*, or raise `CronParseError`."""
    if not isinstance(expression, str):  # it may not even be hashable
        _refuse_line(expression, "it is not a string.")
    return _parse(expression)


@lru_cache(maxsize=4096)
def _parse(expression: str) -> CronLine:
    text, parts = _split(expression)
    fields = tuple(_FieldParser(expression, kind, part).parse() for kind, part in zip(KINDS, parts, strict=True))
    day_of_month, month, day_of_week = fields[3:]
    if day_of_week.is_unrestricted and not day_of_month.last_day and not day_of_month.last_weekday:
        longest = max(calendar.monthrange(2024, number)[1] for number in month.values)  # a leap year
        first = min((*day_of_month.values, *day_of_month.nearest_weekdays), default=longest + 1)
        before = min(day_of_month.before_last, default=longest)
        if first > longest and before >= longest:
            what = f"day {first}" if before > 31 or not day_of_month.before_last else f"day L-{before}"
            raise CronParseError(
                f"Invalid cron expression {quoted(expression)}: it never matches, since no year has a {what} in "
                f"{_listed(MONTHS[number - 1] for number in month.values)}. {DAY_OF_MONTH.expected}",
                expression,
                DAY_OF_MONTH.name,
            )
    in_month = None
    if day_of_month.nearest_weekdays or day_of_month.last_weekday or day_of_month.before_last:
        in_month = MonthDays(
            months=month.values,
            nearest_weekdays=day_of_month.nearest_weekdays,
            last_weekday=day_of_month.last_weekday,
            before_last=day_of_month.before_last,
        )
    rules = _day_rules(day_of_month, month, day_of_week)
    return CronLine(text, fields, _shared_days(rules, in_month))


def _split(expression: str) -> tuple[str, list[str]]:
    """Return *expression* in its normal form, and its six fields."""
    if len(expression) > MAX_LENGTH:
        _refuse_line(expression, f"it is longer than {MAX_LENGTH} characters.")
    if not re.fullmatch(r"[\t -~]*", expression):
        _refuse_line(expression, "only printable ASCII characters are allowed.")
    parts = expression.split()
    if not parts:
        _refuse_line(expression, "it is empty.")
    if parts[0].startswith("@"):
        word = " ".join(parts).lower()
        if word not in SHORTHANDS:
            _refuse_line(expression, f"a word must be one of {', '.join(SHORTHANDS)}.")
        return word, ["0", *SHORTHANDS[word].split()]
    if len(parts) not in (5, 6):
        _refuse_line(expression, f"it has {len(parts)} field{'s' if len(parts) != 1 else ''}.")
    text = " ".join(parts).upper()
    return text, text.split() if len(parts) == 6 else ["0", *text.split()]


def _refuse_line(expression: object, problem: str) -> NoReturn:
    raise CronParseError(
        f"Invalid cron expression {quoted(expression)}: {problem} It takes five fields (minute, hour, day-of-month, "
        'month, day-of-week), or six with seconds first; for example "0 9 * * 1-5" is 09:00 on weekdays.',
        expression,
    )


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


_ITEM = re.compile(r"(?P<first>\d+|[A-Z]{3})(?:-(?P<last>\d+|[A-Z]{3}))?(?:/(?P<step>\d+))?", re.ASCII)
_EVERY = re.compile(r"\*(?:/(?P<step>\d+))?", re.ASCII)
_NEAREST = re.compile(r"(?P<day>\d+)W", re.ASCII)
_BEFORE_LAST = re.compile(r"L-(?P<days>\d+)", re.ASCII)
_NTH = re.compile(r"(?P<day>[0-7]|[A-Z]{3})(?:L|#(?P<which>\d+|L))", re.ASCII)
# The syntax of other crons that this one does not support, and what to say about it.
_ELSEWHERE = (
    (
        re.compile(r"L-\d+W"),
        '"L-nW" is not supported: write "LW" for the last weekday, or "L-3" for a day before the last',
    ),
    (re.compile(r"\d+-\d+W"), '"W" must follow a single day, such as "15W"'),
    (re.compile(r"(\d+|L)?W|W.*"), '"W" must follow a day of the month, such as "15W" or "LW"'),
    (re.compile(r"L-\d+"), '"L-3" must stand in the day-of-month field'),
    (re.compile(r"L\d"), 'write "5L" for the last Friday, not "L5"'),
    (
        re.compile(r"(?:H|R)(?![A-Z]{2}).*"),
        '"H" and "R" (a random time) are not supported: choose a time, or use jitter',
    ),
    (re.compile(r".*~.*"), '"~" (a random value) is not supported: choose a value, or use jitter'),
    (re.compile(r"L.*"), '"L" must stand alone in the day-of-month field, or after a weekday in the day-of-week field'),
    (re.compile(r"\?.*"), '"?" must stand alone in a day field'),
)


class _FieldParser:
    """Parses one field. Its errors name the field."""

    def __init__(self, expression: str, kind: FieldKind, text: str) -> None:
        self.expression, self.kind, self.text = expression, kind, text
        self.is_day = kind in (DAY_OF_MONTH, DAY_OF_WEEK)

    def parse(self) -> Field:
        values: set[int] = set()
        nth: set[tuple[int, int]] = set()
        nearest: set[int] = set()
        before_last: set[int] = set()
        last_day = last_weekday = False
        if self.text == "?" and self.is_day:
            values.update(self._range(None, None))
        else:
            items = self.text.split(",")
            for item in items:
                if item == "*" and len(items) > 1:
                    self._refuse('"*" matches every value and must not stand in a list')
                if self.kind is DAY_OF_MONTH and item == "L":
                    last_day = True
                elif self.kind is DAY_OF_MONTH and item == "LW":
                    last_weekday = True
                elif self.kind is DAY_OF_MONTH and (match := _NEAREST.fullmatch(item)):
                    nearest.add(self._value(match["day"]))
                elif self.kind is DAY_OF_MONTH and (match := _BEFORE_LAST.fullmatch(item)):
                    before_last.add(self._before_last(match["days"]))
                elif self.kind is DAY_OF_WEEK and (match := _NTH.fullmatch(item)):
                    nth.add(self._nth(match))
                else:
                    values.update(self._item(item))
        if self.kind is DAY_OF_WEEK:
            values = {value % 7 for value in values}
        return Field(
            kind=self.kind,
            text=self.text,
            values=tuple(sorted(values)),
            last_day=last_day,
            nearest_weekdays=tuple(sorted(nearest)),
            last_weekday=last_weekday,
            before_last=tuple(sorted(before_last)),
            nth=tuple(sorted(nth)),
        )

    def _item(self, item: str) -> range:
        if not item:
            self._refuse("the list has an empty item")
        if every := _EVERY.fullmatch(item):
            return self._range(None, every["step"])
        match = _ITEM.fullmatch(item)
        if match is None:
            problem = next((reason for pattern, reason in _ELSEWHERE if pattern.fullmatch(item)), None)
            self._refuse(problem or f"cannot read {quoted(item)}")
        first = self._value(match["first"])
        if match["last"] is not None and match["last"] != match["first"]:
            last = self._value(match["last"], closing=True)
            if first > last:
                self._refuse(f"the range {quoted(item)} is the wrong way round")
            return self._range((first, last), match["step"])
        if match["step"] is not None:
            last = first if match["last"] is not None else max(self._top, first)
            return self._range((first, last), match["step"])
        return range(first, first + 1)

    @property
    def _top(self) -> int:
        # 7 is another name for Sunday, not a day after Saturday.
        return 6 if self.kind is DAY_OF_WEEK else self.kind.high

    def _range(self, bounds: tuple[int, int] | None, step: str | None) -> range:
        first, last = bounds or (self.kind.low, self._top)
        width = 1 if step is None else self._number(step)
        if width == 0:
            self._refuse("a step must be at least 1, not 0")
        if width > self.kind.high:
            self._refuse(f"a step of {step} is larger than the field allows")
        return range(first, last + 1, width)

    def _value(self, text: str, *, closing: bool = False) -> int:
        if text in self.kind.names:
            if closing and text == "SUN":
                return 7
            return self.kind.names.index(text) + self.kind.low
        if not text.isdigit():
            self._refuse(f"{quoted(text)} is not a valid name")
        value = self._number(text)
        if not self.kind.low <= value <= self.kind.high:
            self._refuse(f"{text} is out of range")
        return value

    def _number(self, text: str) -> int:
        # No valid number has four digits. int() of very many digits is slow, and Python refuses it.
        digits = text.lstrip("0")
        return int(digits or "0") if len(digits) < 4 else 9999

    def _nth(self, match: re.Match[str]) -> tuple[int, int]:
        day = self._value(match["day"]) % 7
        which = match["which"]
        if which is None or which == "L":
            return day, -1
        if not 1 <= self._number(which) <= 5:
            self._refuse(f'"#{which[:9]}" must be #1 to #5, or #L for the last')
        return day, self._number(which)

    def _before_last(self, text: str) -> int:
        days = self._number(text)
        if not 1 <= days <= 30:
            self._refuse(f'"L-{text[:9]}" must be L-1 to L-30; the last day itself is "L"')
        return days

    def _refuse(self, problem: str) -> NoReturn:
        raise CronParseError(
            f"Invalid cron expression {quoted(self.expression)}: in the {self.kind.name} field {quoted(self.text)}, "
            f"{problem}. {self.kind.expected}",
            self.expression,
            self.kind.name,
        )


def _day_rules(day_of_month: Field, month: Field, day_of_week: Field) -> tuple[str, ...]:
    """Return the last three fields as rules for croniter. A day that matches any of them matches the line.

    Each rule has one kind of day: croniter combines some kinds by *and*, and ignores plain weekdays beside "5#2".
    """
    months = "*" if len(month.values) == 12 else _numbers(month.values)
    rules = []
    if not day_of_month.is_unrestricted:
        rules += [f"{_numbers(day_of_month.values)} {months} *"] if day_of_month.values else []
        rules += [f"l {months} *"] if day_of_month.last_day else []  # on its own: croniter takes 31 items for *
    if not day_of_week.is_unrestricted:
        rules += [f"* {months} {_numbers(day_of_week.values)}"] if day_of_week.values else []
        nth = [f"l{day}" if which < 0 else f"{day}#{which}" for day, which in day_of_week.nth]
        rules += [f"* {months} {','.join(nth)}"] if nth else []
    is_other = day_of_month.nearest_weekdays or day_of_month.last_weekday or day_of_month.before_last
    return tuple(rules) or (() if is_other else (f"* {months} *",))


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
