"""Write payloads and metadata as JSON text, and reject values that JSON cannot represent.

Dataclasses and pydantic models are written in the form that `payloads` reads. pydantic is imported only for its models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from scheduler_async.jobs.names import refuse
from scheduler_async.timekeeping.durations import format_interval

Json: TypeAlias = Any
"""A value that JSON can represent."""


# A handler that runs deep in the stack could not parse a value that is nested deeper.
MAX_DEPTH = 100

# Values of these types are valid JSON. A float may be NaN, so it is checked.
_SCALARS = frozenset({str, int, bool, NoneType})

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json_text(value: Json, what: str) -> str:
    """Return *value* as JSON text that reads back unchanged. *what* names the field of the job in errors."""
    try:
        if not _is_json(value, MAX_DEPTH):
            value = as_json_types(value)
        return _encode(value).decode()
    except RecursionError:
        refuse(
            what,
            f"must be JSON nested at most {MAX_DEPTH} levels deep. Flatten it, or store it elsewhere and pass a "
            "reference to it",
        )
    except (TypeError, ValueError) as error:
        refuse(
            what,
            "must contain only JSON values: strings, finite numbers, True, False, None, lists, and dicts with "
            f"string keys ({error})",
        )


def from_json_text(text: str) -> Json:
    """Return the value that JSON *text* represents. All readers use this, so that what one accepts, no other refuses.

    Raise a `ValueError` if it is not JSON, or contains a number that no float can hold, such as 1E310.
    """
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


MOST_KEPT = 64 * 1024
"""The largest JSON, in bytes, that a run can leave: its result, or a cursor."""


def to_small_json_text(value: Json, what: str) -> str:
    """Return *value* as JSON text of at most 64 KiB. *what* names it in errors."""
    text = to_json_text(value, what) if _may_be_small(value) else None
    if text is None or len(text) > MOST_KEPT or (not text.isascii() and len(text.encode()) > MOST_KEPT):
        refuse(what, "must be at most 64 KiB of JSON. Store it elsewhere, and keep a reference to it")
    return text


def _may_be_small(value: Json) -> bool:
    """Return False if the JSON of *value* is certainly too large. Look at no more of it than that takes."""
    room = MOST_KEPT
    unseen: list[Any] = [value]
    while unseen and room > 0:
        found = unseen.pop()
        room -= len(found) if type(found) is str else 1
        if type(found) is dict:
            room -= 2 * len(found)  # a key and its value have at least a colon and a comma
            unseen += found.values() if room > 0 else ()
        elif type(found) in (list, tuple):
            room -= len(found) - 1
            unseen += found if room > 0 else ()
    return room >= 0


def _is_json(value: Json, levels: int) -> bool:
    """Return whether *value* consists of plain JSON types. msgspec also writes NaN, sets and dates without an error."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        value = value.values()
    elif kind is not list:
        return kind in _SCALARS or (kind is float and isfinite(value))
    if not levels:
        return False
    for inner in value:  # noqa: SIM110 - every payload passes through here, and any() takes twice as long
        if type(inner) not in _SCALARS and not _is_json(inner, levels - 1):
            return False
    return True


def as_json_types(value: object) -> Json:
    """Return *value* as plain JSON types: dataclasses and models as dicts, tuples as lists.

    Raise a `TypeError` or a `ValueError` if JSON cannot represent it, and a `RecursionError` if it is nested too
    deeply.
    """
    return _plain(value, MAX_DEPTH, in_dataclass=False)


def _plain(value: Any, levels: int, in_dataclass: bool) -> Json:
    """Return *value* as JSON types. A dataclass may hold more types, since its annotations tell how to read them."""
    if type(value) in _SCALARS:
        return value
    if in_dataclass:
        if isinstance(value, Enum):
            return _plain(value.value, levels, in_dataclass=False)
        if isinstance(value, timedelta):
            return format_interval(value) if value > timedelta() else value.total_seconds()
        if isinstance(value, (date, time)):  # a datetime is a date
            return value.isoformat()
        if isinstance(value, (Decimal, UUID, Path)):
            return str(value)
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may override any method
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{float.__repr__(value)} is not a finite number")
        return float.__float__(value)
    if isinstance(value, (Mapping, list, tuple, AbstractSet) if in_dataclass else (dict, list, tuple)):
        if not levels:
            raise RecursionError
        if isinstance(value, Mapping):
            items = value.items()
            return {_plain_key(key, in_dataclass): _plain(inner, levels - 1, in_dataclass) for key, inner in items}
        found = [_plain(inner, levels - 1, in_dataclass) for inner in value]
        return sorted(found, key=repr) if isinstance(value, AbstractSet) else found
    if is_model(type(value)):
        return _plain(_content_of_model(value), levels, in_dataclass=False)
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return _plain(content, levels, in_dataclass=True)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _plain_key(key: Any, in_dataclass: bool) -> str:
    found = _plain(key, MAX_DEPTH, in_dataclass=True) if in_dataclass else key
    if in_dataclass and type(found) is int and (type(key) is int or isinstance(key, Enum)):
        return str(found)
    if not isinstance(found, str):
        raise TypeError(f"a key of type {type(key).__name__} is not a string")
    return str.__str__(found)


def _content_of_model(value: Any) -> Json:
    from pydantic import TypeAdapter  # noqa: PLC0415 - a model exists, so pydantic is imported already

    adapter = TypeAdapter(type(value))
    text = adapter.dump_json(value, by_alias=True, round_trip=True)
    if adapter.validate_json(text) != value:  # a secret is written as stars
        raise TypeError(f"a {type(value).__name__} does not read back from JSON as an equal value")
    return json.loads(text)


def is_model(kind: object) -> bool:
    """Return whether *kind* is a pydantic model or a pydantic dataclass."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")
