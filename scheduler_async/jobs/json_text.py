"""Payloads and metadata as JSON text: what is refused, and why."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from scheduler_async.jobs.names import refuse

Json: TypeAlias = Any
"""A value that JSON can hold."""


# What is nested deeper could be stored, but not read by a handler whose own stack is deep.
MAX_DEPTH = 100


TOO_DEEP = (
    f"must be JSON nested at most {MAX_DEPTH} levels deep. Flatten it, or store it elsewhere and pass a reference to it"
)


def _plain(value: object) -> object:
    """A dataclass or a pydantic model as JSON holds it."""
    from scheduler_async.jobs.payloads import plain  # noqa: PLC0415 - few need it, and it takes time to load

    found = plain(value)
    if found is value:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    if _has_odd_keys(found):
        raise TypeError("a dict with keys that are no texts")
    return found


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain).encode


def to_json_text(value: Json, what: str) -> str:
    """*value* as JSON, if it comes back from it unchanged."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()  # a lone surrogate is no text
    except RecursionError:
        refuse(what, TOO_DEEP)
    except (TypeError, ValueError) as error:
        refuse(what, f"holds what JSON can hold: texts, finite numbers, True, False, None, lists and dicts ({error})")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(text):
        refuse(what, TOO_DEEP)
    if _has_odd_keys(value):
        refuse(what, "has texts as keys: JSON knows no others")
    return text


def is_too_deep(text: str) -> bool:
    """Whether JSON is nested more than `MAX_DEPTH` levels deep. It is not parsed: that would take a stack as deep."""
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        token = found[0]
        if token in ("[", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token in ("]", "}"):
            depth -= 1
    return False


_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"')


def _has_odd_keys(value: Json) -> bool:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return True
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    for inner in value:  # noqa: SIM110 - every payload passes here, and any() takes twice as long
        if isinstance(inner, (dict, list, tuple)) and _has_odd_keys(inner):
            return True
    return False
