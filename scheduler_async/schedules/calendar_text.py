"""Calendars as a person types them: "business-days:SE & ~dates:2026-12-24". Pure."""

from __future__ import annotations

import re
from typing import NoReturn

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.calendars import BusinessDays, Calendar, Dates, Holidays, Hours, Weekdays

MAX_LENGTH = 1024
_TOKEN = re.compile(r"\s*(?:(?P<mark>[&|~()])|(?P<name>[A-Za-z][A-Za-z-]*)(?::(?P<value>[^&|~()\s]*))?)\s*", re.ASCII)
_NAMES = ("weekdays", "hours", "dates", "holidays", "business-days")
_FORMS = (
    "Write weekdays:MON-FRI, hours:08:00-18:00, dates:2026-12-24,2026-12-31, holidays:SE or business-days:SE, "
    'combined by "&", "|", "~" and parentheses. A subdivision follows a slash: holidays:DE/BY.'
)
_DEEPEST = 20


def parse_calendar(text: str) -> Calendar:
    """Return the calendar that *text* describes.

    >>> from scheduler_async.schedules.calendar_text import parse_calendar
    >>> parse_calendar("weekdays:MON-FRI & ~dates:2026-12-24").describe()
    'on Monday to Friday and not on 24 December 2026'
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InvalidScheduleError(f"A calendar must be a string of at most {MAX_LENGTH} characters. {_FORMS}")
    return _Reader(text).read()


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, place = text, [], 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None or match.end() == place:
                self._refuse(f"cannot read {quoted(text[place:])}")
            self._tokens.append(match)
            place = match.end()
        self._tokens.reverse()  # the next one is the last

    def read(self) -> Calendar:
        found = self._either(0)
        if self._tokens:
            self._refuse(f"{quoted(self._tokens[-1][0].strip())} is not expected here")
        return found

    def _either(self, depth: int) -> Calendar:
        found = self._both(depth)
        while self._take("|"):
            found |= self._both(depth)
        return found

    def _both(self, depth: int) -> Calendar:
        found = self._one(depth)
        while self._take("&"):
            found &= self._one(depth)
        return found

    def _one(self, depth: int) -> Calendar:
        if depth > _DEEPEST:
            self._refuse("it is nested too deeply")
        if self._take("~") or self._take("not"):
            return ~self._one(depth + 1)
        if self._take("("):
            found = self._either(depth + 1)
            if not self._take(")"):
                self._refuse('a ")" is missing')
            return found
        if not self._tokens or self._tokens[-1]["name"] is None:
            self._refuse("a calendar is missing")
        token = self._tokens.pop()
        return self._named(token["name"].lower(), token["value"])

    def _take(self, mark: str) -> bool:
        if self._tokens and mark in (self._tokens[-1]["mark"], (self._tokens[-1]["name"] or "").lower()):
            self._tokens.pop()
            return True
        return False

    def _named(self, name: str, value: str | None) -> Calendar:
        if name not in _NAMES:
            self._refuse(f"{quoted(name)} is not a calendar")
        if not value:
            self._refuse(f'{quoted(name)} needs a value after a ":"')
        match name:
            case "weekdays":
                return Weekdays(value)
            case "hours":
                return Hours(value)
            case "dates":
                return Dates(*value.split(","))
        country, slash, subdivision = value.partition("/")
        kind = Holidays if name == "holidays" else BusinessDays
        return kind(country, subdivision if slash else None)

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidScheduleError(f"Cannot read {quoted(self._text)} as a calendar: {problem}. {_FORMS}")
