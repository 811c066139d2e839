"""What requests of the API say: parameters behind the question mark, and JSON bodies. Errors name the field."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, tzinfo
from typing import Any, Final

import msgspec

from scheduler_async.errors import quoted
from scheduler_async.timekeeping.zones import as_tzinfo
from scheduler_async.web.errors import BadRequestError, ParameterError
from scheduler_async.web.routing import Parameter
from scheduler_async.web.visit import Visit

MOST_ITEMS: Final = 200
USUAL_ITEMS: Final = 50

TEXT = {"type": "string"}
INSTANT = {"type": "string", "format": "date-time"}

AFTER = Parameter("after", TEXT, "The value of `next` of the part before.")
LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": USUAL_ITEMS}, "How many items at most."
)
ZONE = Parameter("zone", TEXT, "The time zone of the reader, such as Europe/Stockholm.")


def check_names(visit: Visit, known: Collection[Parameter]) -> None:
    """Raise `ParameterError` for a parameter that the address does not have."""
    names = [parameter.name for parameter in known]
    for name in visit.query:
        if name not in names:
            raise ParameterError(
                f"There is no parameter {quoted(name)} here.",
                f"There are: {', '.join(names)}." if names else "This address has none.",
                name,
            )


def text(visit: Visit, name: str) -> str | None:
    """Return a parameter, or None if it is not given or empty."""
    return visit.query.get(name) or None


def texts(visit: Visit, *names: str) -> dict[str, str]:
    """Return those of the parameters *names* that are given."""
    found = ((name, text(visit, name)) for name in names)
    return {name: value for name, value in found if value is not None}


def number(visit: Visit, name: str, usual: int, most: int) -> int:
    """Return a parameter that is a whole number from 1 to *most*."""
    given = text(visit, name)
    if given is None:
        return usual
    if not (given.isascii() and given.isdecimal()) or len(given) > 9 or not 1 <= int(given) <= most:
        raise ParameterError(f"{name} must be a whole number from 1 to {most:,}, not {quoted(given)}.", field=name)
    return int(given)


def limit(visit: Visit) -> int:
    """Return the largest number of items."""
    return number(visit, "limit", USUAL_ITEMS, MOST_ITEMS)


def yes_or_no(visit: Visit, name: str) -> bool | None:
    """Return a parameter that is true or false, or None."""
    given = text(visit, name)
    if given is None:
        return None
    if given not in ("true", "false"):
        raise ParameterError(f"{name} must be true or false, not {quoted(given)}.", field=name)
    return given == "true"


def zone(visit: Visit) -> tzinfo:
    """Return the time zone of the reader."""
    given = text(visit, "zone")
    return UTC if given is None else as_tzinfo(given)


def run_number(visit: Visit) -> int:
    """Return the run in the path."""
    given = visit.names["run"]
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or int(digits) >= 2**63:
        raise ParameterError(f"The number of a run must be a whole number, not {quoted(given)}.", field="run")
    return int(given)


def body(visit: Visit, known: Collection[str]) -> dict[str, Any]:
    """Return the JSON object in the body, which may be missing. It has no fields but those that are *known*."""
    if not visit.body.strip():
        return {}
    try:
        value = msgspec.json.decode(visit.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ParameterError('The body must be a JSON object such as {"reason": "…"}.')
    for name in value:
        if name not in known:
            raise ParameterError(f"There is no field {quoted(name)} here.", f"There are: {', '.join(known)}.", name)
    return value


def text_field(given: dict[str, Any], name: str) -> str | None:
    """Return a field that is text, or None."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ParameterError(f"{name} must be a string, not {quoted(value)}.", field=name)
    return value
