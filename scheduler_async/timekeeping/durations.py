"""Durations as people write them: "30s", "5m", "1h30m", "1d". Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import NoReturn

from scheduler_async.errors import IntervalParseError, quoted

_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_NAMES = {"d": "day", "h": "hour", "m": "minute", "s": "second"}
_FORMAT = 'Expected format: "{number}{unit}", such as "30s", "5m", "1h", "1d" or "1h30m"'
_NO_DECIMALS = 'Decimal values are not supported. Use a smaller unit: "90s" instead of "1.5m"'
# A timedelta with a fraction of a second is stored in a unit that users cannot write.
_STORED_UNITS = {**_UNITS, "us": timedelta(microseconds=1)}

_PARTS = re.compile(r"(?P<sign>[+-]?)(?P<number>\d*)(?P<fraction>[.,]\d*)?(?P<unit>.*)", re.ASCII | re.DOTALL)
_PART = re.compile(r"(\d+)([smhd])", re.ASCII)
_UNIT = re.compile(r"\d+(\D*)", re.ASCII)
_COMPOUND = re.compile(r"(?:\d+[smhd]){2,}", re.ASCII)
# Longer than any useful duration, and short enough for int() to be fast.
_MAX_LENGTH = 32
_LONGEST = timedelta(days=3_652_059)  # from the first year to the last
_TOO_LONG = "It must be at most 3652059 days, the length of the calendar"


def parse_interval(interval: str | timedelta) -> timedelta:
    """Return *interval*, such as "5m" or a timedelta, as a timedelta. It must be positive."""
    if isinstance(interval, str):
        return _parse(interval)
    if not isinstance(interval, timedelta):
        _refuse(interval, f"Expected a string or a timedelta. {_FORMAT}")
    if interval < timedelta(0):
        _refuse(interval, "Negative intervals are not allowed")
    if not interval:
        _refuse(interval, "Zero interval is not allowed")
    return _within_calendar(interval, interval)


def parse_stored_interval(text: str) -> timedelta:
    """Return the duration that `format_interval` wrote."""
    return _parse(text, stored=True) if isinstance(text, str) else parse_interval(text)


def format_interval(duration: timedelta) -> str:
    """Return *duration* as short text, exactly: "90s", "5m", or "1500000us" if it has a fraction of a second."""
    for unit in ("d", "h", "m", "s", "us"):
        count, rest = divmod(duration, _STORED_UNITS[unit])
        if not rest:
            return f"{count}{unit}"
    raise AssertionError("every timedelta is a whole number of microseconds")


def describe_duration(duration: timedelta) -> str:
    """Return *duration* in words: "5 minutes", "1 hour 30 minutes", "1.5 seconds"."""
    words = []
    rest = duration
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            words.append(_counted(str(count), _NAMES[unit]))
    if rest or not words:
        seconds = f"{rest.seconds + rest.microseconds / 1e6:.6f}".rstrip("0").rstrip(".")
        words.append(_counted(seconds, "second"))
    return " ".join(words)


def short_span(seconds: int) -> str:
    """Return whole seconds in the two largest units, for tables: "45s", "3m 20s", "2h 5m", "3d"."""
    counts = dict(zip("dhms", _split(seconds), strict=True))
    largest = next((unit for unit, count in counts.items() if count), "s")
    units = "dhms"["dhms".index(largest) :][:2]
    return " ".join(f"{counts[unit]}{unit}" for unit in units if counts[unit] or unit == largest)


def short_duration(seconds: float) -> str:
    """Return a measured duration, for tables: "12ms", "4.2s", "3m 20s", "2h 5m"."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 59.95 else short_span(round(seconds))


def _split(seconds: int) -> tuple[int, int, int, int]:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return days, hours, minutes, seconds


def _counted(number: str, noun: str) -> str:
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


@lru_cache(maxsize=1024)  # many jobs share few intervals
def _parse(interval: str, *, stored: bool = False) -> timedelta:
    if len(interval) > _MAX_LENGTH:
        _refuse(interval, f"It is too long. {_FORMAT}")
    text = interval.strip().lower()
    if not text:
        _refuse(interval, f"It is empty. {_FORMAT}")
    if not stored and _COMPOUND.fullmatch(text):
        return _parse_compound(interval, text)
    parts = _PARTS.fullmatch(text)
    assert parts is not None, "the pattern matches any text"
    sign, number, fraction, unit = parts["sign"], parts["number"], parts["fraction"], parts["unit"]
    if not number and not fraction:
        _refuse(interval, f"Missing number. {_FORMAT}")
    if sign == "-":
        _refuse(interval, "Negative intervals are not allowed")
    if sign:
        _refuse(interval, f"Leave out the sign. {_FORMAT}")
    if fraction:
        _refuse(interval, _NO_DECIMALS)
    if not unit:
        _refuse(interval, f"Missing time unit. {_FORMAT}")
    units = _STORED_UNITS if stored else _UNITS
    if unit not in units:
        _refuse_unit(interval, text)
    if int(number) == 0:
        _refuse(interval, "Zero interval is not allowed")
    try:
        return _within_calendar(int(number) * units[unit], interval)
    except OverflowError:
        _refuse(interval, _TOO_LONG)


def _refuse_unit(interval: str, text: str) -> NoReturn:
    """Raise an error about the first unit in *text* that is wrong, or about the spaces if none is."""
    for unit in (part.strip() for part in _UNIT.findall(text)):
        if not unit:
            _refuse(interval, f"Missing time unit. {_FORMAT}")
        if unit in {".", ","}:
            _refuse(interval, _NO_DECIMALS)
        if unit not in _UNITS:
            _refuse(interval, f"Invalid time unit {quoted(unit)}. Valid units are: {', '.join(_UNITS)}")
    joined = "".join(text.split())
    _refuse(interval, f"Leave out the space: {quoted(joined)}. {_FORMAT}")


def _parse_compound(interval: str, text: str) -> timedelta:
    """Return a duration such as "1h30m"."""
    parts = _PART.findall(text)
    order = [list(_UNITS).index(unit) for _, unit in parts]  # from the shortest to the longest
    if len(set(order)) < len(order):
        _refuse(interval, 'Each unit may appear once, such as "1h30m"')
    if order != sorted(order, reverse=True):
        _refuse(interval, 'Longer units come first: "1h30m" instead of "30m1h"')
    if any(int(number) == 0 for number, _ in parts):
        _refuse(interval, "Zero interval is not allowed. Leave out the units that are zero")
    try:
        return _within_calendar(sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta()), interval)
    except OverflowError:
        _refuse(interval, _TOO_LONG)


def _within_calendar(duration: timedelta, interval: object) -> timedelta:
    if duration > _LONGEST:
        _refuse(interval, _TOO_LONG)
    return duration


def _refuse(interval: object, problem: str) -> NoReturn:
    raise IntervalParseError(f"Invalid interval {quoted(interval)}: {problem}", interval)
