"""Payloads as the types that handlers ask for: dataclasses, typed dicts and pydantic models, from JSON and to it. Pure.

A dataclass is filled in strictly: every field there, none that it does not have, and no number made of a text. What
JSON has no form for is a text in it: moments and dates as ISO 8601, durations as "5m", paths, decimals, UUIDs, and
enums by their values. pydantic goes by its own rules, and is only used by those who have it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from scheduler_async.durations import format_interval, parse_stored_interval
from scheduler_async.errors import PayloadError

# Long enough to recognise what one wrote, short enough for a line of a log.
_LONGEST_SHOWN = 60

Reader: TypeAlias = Callable[[Any, str], Any]
"""Makes a value of what JSON holds; the second argument says where that stands, for the one who put it there."""


class UnreadableTypeError(TypeError):
    """A type that cannot be made of JSON."""


@lru_cache(maxsize=1024)
def reader_for(annotation: Any) -> Reader:
    """What makes a value of type *annotation*; raises `UnreadableTypeError` if nothing does."""
    if annotation in _being_made:  # it holds others of its kind
        return _being_made[annotation]
    if annotation in (Any, object):
        return lambda value, _where: value
    if annotation in _BY_TEXT:
        return _reader_of_text(annotation)
    for kind, make in _MAKERS:
        if kind(annotation):
            return make(annotation)
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, types.UnionType):
        return _reader_of_union(annotation, inner)
    if origin is Literal:
        return _reader_of_literal(inner)
    if origin is Annotated:
        return reader_for(inner[0])
    if origin is tuple:
        return _reader_of_tuple(inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _reader_of_mapping(inner)
    if isinstance(origin, type) and issubclass(origin, (Sequence, AbstractSet)):
        return _reader_of_items(origin, inner)
    raise UnreadableTypeError(f"{name_of_type(annotation)} cannot be made of JSON")


def is_structured(annotation: Any) -> bool:
    """Whether it is a dataclass, a typed dict or a model, or holds one: nothing but a payload is annotated so."""
    is_model = isinstance(annotation, type) and hasattr(annotation, "__pydantic_validator__")
    return (
        is_model
        or (isinstance(annotation, type) and is_dataclass(annotation))
        or is_typeddict(annotation)
        or any(map(is_structured, get_args(annotation)))
    )


def name_of_type(annotation: Any) -> str:
    """What people call it."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def plain(value: Any) -> Any:
    """*value* as JSON holds it, if it is a dataclass or a model or holds one; anything else is left as it is."""
    if hasattr(value, "__pydantic_validator__"):
        from pydantic import TypeAdapter  # noqa: PLC0415 - whoever made the value has it

        return TypeAdapter(type(value)).dump_python(value, mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain_inside(getattr(value, field.name)) for field in fields(value) if field.init}
    return value


def _plain_inside(value: Any) -> Any:
    """A value within a dataclass, where more is allowed than JSON knows: its type tells how to read it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return format_interval(value) if value > timedelta() else value.total_seconds()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain_inside(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_inside(inner) for inner in value]
    if isinstance(value, AbstractSet):
        return sorted((_plain_inside(inner) for inner in value), key=repr)
    return plain(value)


# ---------------------------------------------------------------- what is one value


def _misfit(where: str, expected: str, value: Any) -> PayloadError:
    return PayloadError(f"{where} is {expected}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _reader_of_class(annotation: Any) -> Reader:
    words = _WORDS[annotation]

    def read(value: Any, where: str) -> Any:
        if type(value) is annotation:
            return value
        if annotation is float and type(value) is int:
            return float(value)
        raise _misfit(where, words, value)

    return read


_WORDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    None: "null",
}


def _reader_of_none(_annotation: Any) -> Reader:
    return _reader_of_class(type(None))


_BY_TEXT: dict[Any, tuple[Callable[[str], Any], str]] = {
    datetime: (datetime.fromisoformat, 'a moment such as "2026-06-15T09:00:00Z"'),
    date: (date.fromisoformat, 'a date such as "2026-06-15"'),
    time: (time.fromisoformat, 'a time such as "09:00"'),
    timedelta: (parse_stored_interval, 'a duration such as "5m", or a number of seconds'),
    Decimal: (Decimal, 'a decimal such as "9.99"'),
    UUID: (UUID, "a UUID"),
    Path: (Path, "a path"),
}


def _reader_of_text(annotation: Any) -> Reader:
    convert, words = _BY_TEXT[annotation]

    def read(value: Any, where: str) -> Any:
        if isinstance(value, str):
            try:
                return convert(value)
            except (ValueError, ArithmeticError):  # Decimal has an error of its own
                pass
        elif annotation is timedelta and type(value) in (int, float):
            return timedelta(seconds=value)
        raise _misfit(where, words, value)

    return read


def _reader_of_enum(annotation: type[Enum]) -> Reader:
    choices = ", ".join(_shown(member.value) for member in annotation)

    def read(value: Any, where: str) -> Any:
        try:
            return annotation(value)
        except ValueError:
            raise _misfit(where, f"one of {choices}", value) from None

    return read


def _reader_of_literal(choices: tuple[Any, ...]) -> Reader:
    words = f"one of {', '.join(map(_shown, choices))}"

    def read(value: Any, where: str) -> Any:
        for choice in choices:
            if choice == value and type(choice) is type(value):
                return choice
        raise _misfit(where, words, value)

    return read


def _reader_of_union(annotation: Any, kinds: tuple[Any, ...]) -> Reader:
    readers = [reader_for(kind) for kind in kinds]
    wanted = [reader for kind, reader in zip(kinds, readers, strict=True) if kind is not type(None)]

    def read(value: Any, where: str) -> Any:
        if value is None and type(None) in kinds:
            return None
        if len(wanted) == 1:
            return wanted[0](value, where)  # whose complaint is more exact
        for reader in wanted:
            try:
                return reader(value, where)
            except PayloadError:
                continue
        raise _misfit(where, f"of type {annotation}", value)

    return read


# ---------------------------------------------------------------- what holds others


def _list_of(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _misfit(where, "a list", value)
    return value


def _reader_of_items(origin: type, inner: tuple[Any, ...]) -> Reader:
    reader = reader_for(inner[0]) if inner else reader_for(Any)
    build: Callable[[Any], Any] = frozenset if origin is frozenset else set if issubclass(origin, AbstractSet) else list

    def read(value: Any, where: str) -> Any:
        try:
            return build([reader(item, f"{where}[{place}]") for place, item in enumerate(_list_of(value, where))])
        except TypeError:
            raise _misfit(where, "a list of different values that are no lists themselves", value) from None

    return read


def _reader_of_tuple(inner: tuple[Any, ...]) -> Reader:
    if not inner or inner[1:] == (...,):
        items = _reader_of_items(list, inner[:1])
        return lambda value, where: tuple(items(value, where))
    readers = [reader_for(kind) for kind in inner]

    def read(value: Any, where: str) -> Any:
        if len(_list_of(value, where)) != len(readers):
            raise _misfit(where, f"a list of {len(readers)}", value)
        return tuple(
            reader(item, f"{where}[{place}]") for place, (reader, item) in enumerate(zip(readers, value, strict=True))
        )

    return read


def _dict_of(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(where, "a dict", value)
    return value


def _reader_of_mapping(inner: tuple[Any, ...]) -> Reader:
    read_key, read_value = map(reader_for, inner or (Any, Any))

    def read(value: Any, where: str) -> Any:
        items = _dict_of(value, where).items()
        return {read_key(key, f"a key of {where}"): read_value(item, f"{where}.{key}") for key, item in items}

    return read


def _reader_of_fields(annotation: Any, required: AbstractSet[str], names: Sequence[str]) -> Reader:
    hints = get_type_hints(annotation, include_extras=False)
    readers: dict[str, Reader] = {}

    def read(value: Any, where: str) -> Any:
        given = _dict_of(value, where)
        if missing := [name for name in names if name in required and name not in given]:
            raise PayloadError(f"{_below(where, missing[0])} is missing")
        if unknown := [name for name in given if name not in readers]:
            raise PayloadError(f"{name_of_type(annotation)} has no {_shown(unknown[0])}; it has {', '.join(names)}")
        parts = {name: readers[name](part, _below(where, name)) for name, part in given.items()}
        try:
            return annotation(**parts)
        except (ValueError, TypeError) as error:  # its own checks, in __post_init__
            raise PayloadError(f"{where} makes no {name_of_type(annotation)}: {error}") from error

    _being_made[annotation] = read
    try:
        readers.update({name: reader_for(hints[name]) for name in names})
    finally:
        del _being_made[annotation]
    return read


_being_made: dict[Any, Reader] = {}


def _below(where: str, name: str) -> str:
    return f"{where}.{name}"


def _reader_of_dataclass(annotation: Any) -> Reader:
    taken = [field for field in fields(annotation) if field.init]
    required = {field.name for field in taken if field.default is MISSING and field.default_factory is MISSING}
    return _reader_of_fields(annotation, required, [field.name for field in taken])


def _reader_of_typed_dict(annotation: Any) -> Reader:
    hints = get_type_hints(annotation, include_extras=True)
    # A class whose annotations are texts does not know which of its keys are not required.
    left_out = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return _reader_of_fields(annotation, annotation.__required_keys__ - left_out, list(hints))


def _reader_by_pydantic(annotation: Any) -> Reader:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - whoever made the type has it

    adapter = TypeAdapter(annotation)

    def read(value: Any, where: str) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            problems = [f"{'.'.join([where, *map(str, one['loc'])])}: {one['msg']}" for one in error.errors()]
            raise PayloadError("; ".join(problems)) from error

    return read


_MAKERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Reader]], ...] = (
    (lambda kind: kind is None, _reader_of_none),
    (_WORDS.__contains__, _reader_of_class),
    (lambda kind: isinstance(kind, type) and hasattr(kind, "__pydantic_validator__"), _reader_by_pydantic),
    (lambda kind: isinstance(kind, type) and is_dataclass(kind), _reader_of_dataclass),
    (is_typeddict, _reader_of_typed_dict),
    (lambda kind: isinstance(kind, type) and issubclass(kind, Enum), _reader_of_enum),
    (lambda kind: isinstance(kind, NewType), lambda kind: reader_for(kind.__supertype__)),
    (lambda kind: hasattr(kind, "__value__"), lambda kind: reader_for(kind.__value__)),  # type Name = …
)
