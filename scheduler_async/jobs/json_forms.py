"""Values of the library in the form of JSON: what `to_json()` returns and what `--json` prints. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeAlias

from scheduler_async.timekeeping.durations import format_interval
from scheduler_async.timekeeping.instants import iso_text

Form: TypeAlias = dict[str, Any]
"""A JSON object."""


def plain(value: Any) -> Any:
    """Return *value* as JSON knows it: times as ISO 8601 in UTC, durations as "5m"."""
    if isinstance(value, datetime):
        return iso_text(value)
    if isinstance(value, timedelta):
        return format_interval(value)
    if isinstance(value, Enum):
        return value.value
    return value.to_json() if hasattr(value, "to_json") else value


def form_of(value: object, names: Iterable[str]) -> Form:
    """Return the attributes of *value* with these *names*."""
    return {name: plain(getattr(value, name)) for name in names}
