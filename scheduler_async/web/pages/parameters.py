"""The parameters of an address: empty ones count as not given, and wrong ones are refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo

from scheduler_async.errors import quoted
from scheduler_async.web.errors import ParameterError
from scheduler_async.web.visit import Visit


def checked(visit: Visit, *names: str) -> dict[str, str]:
    """Return the parameters of these *names* that are given. Forms send empty ones for fields that were left empty."""
    return {name: value.strip() for name in names if (value := visit.query.get(name, "")).strip()}


def whole(query: Mapping[str, str], name: str, otherwise: int, *, most: int) -> int:
    """Return a parameter that must be a whole number from 1 to *most*."""
    text = query.get(name)
    if text is None:
        return otherwise
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise ParameterError(f"{name} must be a whole number from 1 to {most}, not {quoted(text)}.", None, name)
    return number


def local_time(query: Mapping[str, str], name: str, zone: tzinfo) -> datetime | None:
    """Return a time that a form has sent: with a zone of its own, or on the clock of *zone*."""
    text = query.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        # A "+" in an address that was not escaped is a blank.
        at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ParameterError(
            f"{name} must be a time such as 2026-11-18T03:00, not {quoted(text)}.", None, name
        ) from None
