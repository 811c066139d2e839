"""Calendars: sets of days and hours that decide which occurrences of a schedule count. Pure.

A calendar knows wall-clock time only. `on_calendar` asks it in the time zone of a schedule. Days are numbers of days
since 1970-01-01, and times within a day are seconds.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, reduce
from typing import Any, ClassVar, NoReturn

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.country_holidays import check_country, holidays_of
from scheduler_async.schedules.windows import ALL_DAY, Windows, complement, intersect, unite
from scheduler_async.texts import describe_error
from scheduler_async.timekeeping.zones import DAY

YEARS = range(1, 10_000)
_EPOCH = date(1970, 1, 1).toordinal()
_NAMES = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Longer lists slow every question down, and belong into a calendar of a database.
MOST_DATES = 10_000
_MOST_CHARACTERS = 256


def day_number(day: date) -> int:
    """Return *day* as a number of days since 1970-01-01."""
    return day.toordinal() - _EPOCH


def date_of(day: int) -> date:
    """Return the date of a number of days since 1970-01-01."""
    return date.fromordinal(day + _EPOCH)


class Calendar(ABC):
    """The base class of calendars: frozen values that contain days, or hours of days, on the clocks of any zone.

    `&` is both, `|` is either, and `~` is everything else. `day in calendar` asks about a `date`, of which any part may
    be inside, or about the wall-clock time of a `datetime`.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _KINDS[cls.kind] = cls

    @abstractmethod
    def windows(self, day: int) -> Windows:
        """Return the times of *day* that are inside."""

    @abstractmethod
    def _days_of(self, year: int) -> int:
        """Return the days of *year* that may be inside, as bits: 1 January is the lowest."""

    @abstractmethod
    def describe(self) -> str:
        """Return what is inside, in plain English: "on Monday to Friday"."""

    def describe_outside(self) -> str:
        """Return what is outside, in plain English: "not on Monday to Friday"."""
        return f"not {self.describe()}"

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """Return the arguments as JSON values."""

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Calendar:
        return cls(**parts)

    @cached_property
    def nested(self) -> tuple[Calendar, ...]:
        """The calendars that it is made of, if any."""
        return tuple(value for value in self.__dict__.values() if isinstance(value, Calendar))

    @cached_property
    def has_hours(self) -> bool:
        """Whether it may contain a part of a day."""
        return any(part.has_hours for part in self.nested)

    @cached_property
    def has_holidays(self) -> bool:
        """Whether it asks the library of public holidays, which knows some years only."""
        return any(part.has_holidays for part in self.nested)

    def has(self, day: int, second: int) -> bool:
        """Return whether *second* of *day* is inside."""
        return any(start <= second < end for start, end in self.windows(day))

    def days_of(self, year: int) -> int:
        """Return the days of *year* that may be inside, as bits. They are exact unless `has_hours`."""
        found: dict[int, int] = self.__dict__.setdefault("_found_days", {})
        if year not in found:
            found[year] = self._days_of(year)
        return found[year]

    def first_day(self, day: int, last: int, *, inside: bool = True) -> int | None:
        """Return the first day from *day* to *last* that may be inside, or that is not."""
        while day <= last:
            year, place, start = _place(day)
            if year is None:
                return None
            days = self.days_of(year) if inside else ~self.days_of(year) & _every_day(year)
            rest = days >> place
            if rest:
                found = day + (rest & -rest).bit_length() - 1
                return found if found <= last else None
            day = start + _length(year)
        return None

    def last_day(self, day: int, first: int, *, inside: bool = True) -> int | None:
        """Return the last day from *day* back to *first* that may be inside, or that is not."""
        while day >= first:
            year, place, start = _place(day)
            if year is None:
                return None
            days = self.days_of(year) if inside else ~self.days_of(year) & _every_day(year)
            rest = days & ((1 << place + 1) - 1)
            if rest:
                found = start + rest.bit_length() - 1
                return found if found >= first else None
            day = start - 1
        return None

    def __contains__(self, moment: date) -> bool:
        if isinstance(moment, datetime):
            seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
            return self.has(day_number(moment), seconds)
        if isinstance(moment, date):
            return bool(self.windows(day_number(moment)))
        raise InvalidScheduleError(f"A calendar contains dates and datetimes, not {quoted(moment)}.")

    def __and__(self, other: Calendar) -> Calendar:
        return Both(self, other) if isinstance(other, Calendar) else NotImplemented

    def __or__(self, other: Calendar) -> Calendar:
        return Either(self, other) if isinstance(other, Calendar) else NotImplemented

    def __invert__(self) -> Calendar:
        return Outside(self)

    def to_json(self) -> dict[str, Any]:
        """Return the calendar as a dict of JSON values, from which `from_json` makes an equal calendar."""
        return {"kind": self.kind, **{name: value for name, value in self._parts().items() if value is not None}}

    @staticmethod
    def from_json(form: str | Mapping[str, Any]) -> Calendar:
        """Return the calendar that `to_json` described."""
        try:
            parts = dict(json.loads(form) if isinstance(form, str) else form)
            return _KINDS[parts.pop("kind")]._from_parts(parts)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidScheduleError):
                raise
            raise InvalidScheduleError(
                f"This is not the JSON form of a calendar ({describe_error(error)[:200]}). "
                'It must look like {"kind": "weekdays", "days": "MON-FRI"}.'
            ) from error


_KINDS: dict[str, type[Calendar]] = {}


def _place(day: int) -> tuple[int | None, int, int]:
    """Return the year of *day*, its place in that year, and the first day of the year; no year beyond 1 to 9999."""
    if not 1 <= day + _EPOCH <= date.max.toordinal():
        return None, 0, 0
    there = date_of(day)
    start = day_number(date(there.year, 1, 1))
    return there.year, day - start, start


def _length(year: int) -> int:
    return 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365


def _every_day(year: int) -> int:
    return (1 << _length(year)) - 1


def _bits(days: Iterable[date]) -> int:
    return reduce(lambda bits, day: bits | 1 << day.timetuple().tm_yday - 1, days, 0)


class _Days(Calendar):
    """A calendar of whole days."""

    kind = "days"

    def windows(self, day: int) -> Windows:
        year, place, _ = _place(day)
        return ALL_DAY if year is not None and self.days_of(year) >> place & 1 else ()


# ---------------------------------------------------------------- days


@dataclass(frozen=True, init=False)
class Weekdays(_Days):
    """Days of the week: names, lists and ranges of them, which may go round the end of the week.

    >>> from scheduler_async import Weekdays
    >>> Weekdays("MON-FRI").describe()
    'on Monday to Friday'
    >>> Weekdays("SAT-MON,wed") == Weekdays("MON,WED,SAT,SUN")
    True

    days
        Names such as "MON", "Tue" or "Wednesday". Numbers are refused: some count from Sunday, others from Monday.
    """

    kind: ClassVar[str] = "weekdays"
    days: str

    def __init__(self, days: str) -> None:
        numbers = _read_weekdays(days)
        self.__dict__.update(days=",".join(_names_of(numbers)), _numbers=numbers)

    def _days_of(self, year: int) -> int:
        numbers: tuple[int, ...] = self.__dict__["_numbers"]
        week = sum(1 << (number - date(year, 1, 1).weekday()) % 7 for number in numbers)
        weeks = sum(week << 7 * number for number in range(53))
        return weeks & _every_day(year)

    def describe(self) -> str:
        words = [text.split("-") for text in self.days.split(",")]
        return "on " + _listed(" to ".join(_WEEKDAYS[_NAMES.index(name)] for name in some) for some in words)

    def _parts(self) -> dict[str, Any]:
        return {"days": self.days}


def _read_weekdays(text: str) -> tuple[int, ...]:
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
        _refuse_weekdays(text, "it must be a string")
    found: set[int] = set()
    for item in text.split(","):
        first, dash, last = (part.strip() for part in item.partition("-"))
        start = _weekday(text, first)
        end = _weekday(text, last) if dash else start
        found.update((start + step) % 7 for step in range((end - start) % 7 + 1))
    return tuple(sorted(found))


def _weekday(text: str, name: str) -> int:
    for number, full in enumerate(_WEEKDAYS):
        if name.upper() in (full.upper(), _NAMES[number]):
            return number
    if name.isdigit():
        problem = "write names instead of numbers: Monday is 0 in Python and 1 in cron"
    else:
        problem = f"{quoted(name)} is not a day of the week" if name else "the list has an empty item"
    return _refuse_weekdays(text, problem)


def _refuse_weekdays(text: object, problem: str) -> NoReturn:
    raise InvalidScheduleError(f'Invalid weekdays {quoted(text)}: {problem}. Write "MON-FRI" or "MON,WED,SAT".')


def _names_of(numbers: tuple[int, ...]) -> list[str]:
    """Return *numbers* as names; three or more in a row become a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    names = []
    for run in runs:
        some = [_NAMES[number] for number in run]
        names += some if len(some) < 3 else [f"{some[0]}-{some[-1]}"]
    return names


@dataclass(frozen=True, init=False)
class Dates(_Days):
    """Single days, such as those on which a company is closed.

    >>> from datetime import date
    >>> from scheduler_async import Dates
    >>> date(2026, 12, 24) in Dates("2026-12-24", date(2026, 12, 31))
    True

    dates
        `date`s, or text such as "2026-12-24".
    """

    kind: ClassVar[str] = "dates"
    dates: tuple[date, ...]

    def __init__(self, *dates: str | date) -> None:
        found = sorted({_read_date(day) for day in dates})
        if not found:
            raise InvalidScheduleError('Dates must name at least one day, such as Dates("2026-12-24").')
        if len(found) > MOST_DATES:
            raise InvalidScheduleError(f"Dates must name at most {MOST_DATES:,} days, not {len(found):,}.")
        self.__dict__.update(dates=tuple(found))

    def _days_of(self, year: int) -> int:
        return _bits(day for day in self.dates if day.year == year)

    def describe(self) -> str:
        shown = [f"{day.day} {day:%B} {day.year}" for day in self.dates[:3]]
        more = len(self.dates) - len(shown)
        rest = [f"{more} more day{'s' if more > 1 else ''}"] if more else []
        return f"on {_listed([*shown, *rest])}"

    def _parts(self) -> dict[str, Any]:
        return {"dates": [day.isoformat() for day in self.dates]}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Dates:
        return cls(*parts.pop("dates"), **parts)


_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _read_date(day: object) -> date:
    if isinstance(day, date) and not isinstance(day, datetime):
        return day
    if isinstance(day, str) and _DATE.fullmatch(day.strip()):
        try:
            return date.fromisoformat(day.strip())
        except ValueError as error:
            raise InvalidScheduleError(f"The date {quoted(day)} does not exist: {error}.") from None
    raise InvalidScheduleError(f'Cannot read {quoted(day)} as a date. Write it like "2026-12-24", or pass a date.')


@dataclass(frozen=True)
class Holidays(_Days):
    """The public holidays of a *country*, or of a *subdivision* of it. Needs the extra `holidays`.

    >>> from datetime import date
    >>> from scheduler_async import Holidays
    >>> date(2026, 6, 6) in Holidays("SE")
    True

    country
        The ISO 3166 code of the country, such as "SE".
    subdivision=None
        The code of a state or a province, such as "BY" in "DE". None has the holidays of the whole country only.

    The library `holidays` knows the days, for a range of years. A question about another year raises
    `InvalidScheduleError`.
    """

    kind: ClassVar[str] = "holidays"
    has_holidays = True
    country: str
    subdivision: str | None = None

    def __post_init__(self) -> None:
        self.__dict__.update(
            zip(("country", "subdivision"), check_country(self.country, self.subdivision), strict=True)
        )

    def _days_of(self, year: int) -> int:
        return _bits(holidays_of(self.country, self.subdivision, year))

    def describe(self) -> str:
        return f"on public holidays in {_place_name(self.country, self.subdivision)}"

    def _parts(self) -> dict[str, Any]:
        return {"country": self.country, "subdivision": self.subdivision}


@dataclass(frozen=True)
class BusinessDays(_Days):
    """Monday to Friday without the public holidays of a *country* or a *subdivision*. Needs the extra `holidays`.

    >>> from datetime import date
    >>> from scheduler_async import BusinessDays
    >>> date(2026, 5, 1) in BusinessDays("SE")  # a Friday
    False

    country
        The ISO 3166 code of the country, such as "SE".
    subdivision=None
        The code of a state or a province, such as "BY" in "DE".

    Where other days are the weekend, combine calendars: `Weekdays("SUN-THU") & ~Holidays("IL")`.
    """

    kind: ClassVar[str] = "business_days"
    has_holidays = True
    country: str
    subdivision: str | None = None

    def __post_init__(self) -> None:
        self.__dict__.update(
            zip(("country", "subdivision"), check_country(self.country, self.subdivision), strict=True)
        )

    def _days_of(self, year: int) -> int:
        return _WORKING_WEEK.days_of(year) & ~_bits(holidays_of(self.country, self.subdivision, year))

    def describe(self) -> str:
        return f"on business days in {_place_name(self.country, self.subdivision)}"

    def _parts(self) -> dict[str, Any]:
        return {"country": self.country, "subdivision": self.subdivision}


_WORKING_WEEK = Weekdays("MON-FRI")


def _place_name(country: str, subdivision: str | None) -> str:
    return country if subdivision is None else f"{country}-{subdivision}"


# ---------------------------------------------------------------- hours


@dataclass(frozen=True, init=False)
class Hours(Calendar):
    """Hours of every day. They include their start and not their end.

    >>> from scheduler_async import Hours
    >>> Hours("08:00-12:00, 13:00-17:00").describe()
    'from 08:00 to 12:00 and from 13:00 to 17:00'

    hours
        One or more stretches such as "08:00-18:00". "22:00-06:00" crosses midnight: it contains the first six hours
        and the last two hours of each day.
    """

    kind: ClassVar[str] = "hours"
    has_hours = True
    hours: str

    def __init__(self, hours: str) -> None:
        windows = _read_hours(hours)
        # A stretch that crosses midnight is written as one.
        joined = [*windows[1:-1], (windows[-1][0], windows[0][1])] if _cross_midnight(windows) else list(windows)
        self.__dict__.update(hours=",".join(f"{_clock(a)}-{_clock(b)}" for a, b in joined), _windows=windows)

    def windows(self, day: int) -> Windows:
        windows: Windows = self.__dict__["_windows"]
        return windows

    def _days_of(self, year: int) -> int:
        return _every_day(year)

    def describe(self) -> str:
        return _listed(f"from {' to '.join(stretch.split('-'))}" for stretch in self.hours.split(","))

    def _parts(self) -> dict[str, Any]:
        return {"hours": self.hours}


def _cross_midnight(windows: Windows) -> bool:
    return len(windows) > 1 and windows[0][0] == 0 and windows[-1][1] == DAY


_STRETCH = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?\s*-\s*(\d\d?):(\d\d)(?::(\d\d))?", re.ASCII)


def _read_hours(text: str) -> Windows:
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
        _refuse_hours(text, "it must be a string")
    found: Windows = ()
    for item in text.split(","):
        match = _STRETCH.fullmatch(item.strip())
        if match is None:
            _refuse_hours(text, f"cannot read {quoted(item.strip())}")
        start, end = _second_of_day(text, match.groups()[:3]), _second_of_day(text, match.groups()[3:])
        if start in (end, DAY):
            _refuse_hours(text, 'a stretch must end later than it begins; the whole day is "00:00-24:00"')
        found = unite(found, ((start, end),) if start < end else ((0, end), (start, DAY)) if end else ((start, DAY),))
    return found


def _second_of_day(text: str, parts: tuple[str | None, ...]) -> int:
    hour, minute, second = (int(part or 0) for part in parts)
    if minute > 59 or second > 59 or hour * 3600 + minute * 60 + second > DAY:
        _refuse_hours(text, f"{hour:02}:{minute:02} is not a time of day")
    return hour * 3600 + minute * 60 + second


def _refuse_hours(text: object, problem: str) -> NoReturn:
    raise InvalidScheduleError(
        f'Invalid hours {quoted(text)}: {problem}. Write "08:00-18:00" or "08:00-12:00,13:00-17:00".'
    )


def _clock(second: int) -> str:
    hours, rest = divmod(second, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


# ---------------------------------------------------------------- combinations


@dataclass(frozen=True)
class _Two(Calendar):
    """A combination of two calendars."""

    kind = "two"
    first: Calendar
    second: Calendar

    def _parts(self) -> dict[str, Any]:
        return {"first": self.first.to_json(), "second": self.second.to_json()}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Calendar:
        return cls(Calendar.from_json(parts.pop("first")), Calendar.from_json(parts.pop("second")), **parts)


@dataclass(frozen=True)
class Both(_Two):
    """What is inside both calendars: `a & b`."""

    kind: ClassVar[str] = "both"

    def windows(self, day: int) -> Windows:
        first, second = self._in_order
        found = first.windows(day)
        return intersect(found, second.windows(day)) if found else found

    def _days_of(self, year: int) -> int:
        first, second = self._in_order
        days = first.days_of(year)
        return days & second.days_of(year) if days else days

    @cached_property
    def _in_order(self) -> tuple[Calendar, ...]:
        """The two. The second is asked only where it decides, so public holidays come last."""
        return tuple(sorted(self.nested, key=lambda part: part.has_holidays))

    def describe(self) -> str:
        words = (f"either {part.describe()}" if isinstance(part, Either) else part.describe() for part in self.nested)
        return " and ".join(words)

    def describe_outside(self) -> str:
        return f"not both {self.describe()}"


@dataclass(frozen=True)
class Either(_Two):
    """What is inside one of two calendars, or inside both: `a | b`."""

    kind: ClassVar[str] = "either"

    def windows(self, day: int) -> Windows:
        return unite(self.first.windows(day), self.second.windows(day))

    def _days_of(self, year: int) -> int:
        return self.first.days_of(year) | self.second.days_of(year)

    def describe(self) -> str:
        return f"{self.first.describe()} or {self.second.describe()}"

    def describe_outside(self) -> str:
        return f"neither {self.first.describe()} nor {self.second.describe()}"


@dataclass(frozen=True)
class Outside(Calendar):
    """What is not inside a calendar: `~a`."""

    kind: ClassVar[str] = "outside"
    calendar: Calendar

    def windows(self, day: int) -> Windows:
        return complement(self.calendar.windows(day))

    def _days_of(self, year: int) -> int:
        # Hours outside may be left on every day.
        return _every_day(year) if self.has_hours else ~self.calendar.days_of(year) & _every_day(year)

    def describe(self) -> str:
        return self.calendar.describe_outside()

    def describe_outside(self) -> str:
        return self.calendar.describe()

    def _parts(self) -> dict[str, Any]:
        return {"calendar": self.calendar.to_json()}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Calendar:
        return cls(Calendar.from_json(parts.pop("calendar")), **parts)


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
