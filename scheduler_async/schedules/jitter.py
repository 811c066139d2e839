"""Jitter: the longest delay that a schedule adds to an occurrence, as text and as a value. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.timekeeping.durations import (
    format_interval,
    parse_interval,
    parse_stored_interval,
)

_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?%", re.ASCII)


_LARGEST_FRACTION = 0.1  # a larger delay would amount to another schedule


def parse_jitter(jitter: object) -> timedelta | float:
    """Return the longest delay that *jitter* means: a duration, or a fraction of the interval."""
    if isinstance(jitter, float) and 0 < jitter <= _LARGEST_FRACTION:
        return jitter
    percentage = _PERCENTAGE.fullmatch(jitter.strip()) if isinstance(jitter, str) and len(jitter) < 32 else None
    if percentage:
        fraction = float(percentage[1]) / 100
        if 0 < fraction <= _LARGEST_FRACTION:
            return fraction
    elif isinstance(jitter, str | timedelta) and not (isinstance(jitter, str) and "%" in jitter):
        return parse_interval(jitter)
    raise InvalidScheduleError(
        f'Invalid jitter {quoted(jitter)}. Give the longest delay to add, as a duration such as "30s", '
        'or as a percentage of the interval up to "10%".'
    )


def stored_jitter(text: str) -> timedelta | float:
    """Return the jitter that `jitter_text` wrote."""
    return parse_jitter(text) if isinstance(text, str) and text.endswith("%") else parse_stored_interval(text)


def jitter_text(jitter: timedelta | float | None) -> str | None:
    """Return *jitter* as it stands in JSON forms."""
    if jitter is None:
        return None
    return format_interval(jitter) if isinstance(jitter, timedelta) else f"{round(jitter * 100, 3):g}%"
