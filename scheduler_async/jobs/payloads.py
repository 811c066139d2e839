"""Convert payloads to the types of handler parameters: dataclasses, typed dicts, pydantic models and their parts. Pure.

Dataclasses are converted strictly: each required field must be present, unknown fields are errors, and a string never
becomes a number. Types that JSON does not know are strings: datetimes and dates in ISO 8601, durations such as "5m",
paths, decimals and UUIDs. Enums are written as their values. Pydantic models follow the rules of pydantic, which is
imported only for them.

`msgspec.convert` has other rules: it ignores unknown fields, does not call `__init__`, skips the validators of a
pydantic dataclass, refuses `datetime | str` and durations such as "5m", and its errors name neither the value nor the
key of a dict. `json_text` writes the JSON that this module reads.
"""

from __future__ import annotations

import json
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import msgspec

from scheduler_async.errors import PayloadError
from scheduler_async.jobs.json_text import Json, is_model
from scheduler_async.texts import message_of, storable
from scheduler_async.timekeeping.durations import parse_stored_interval

# Long enough to recognise a value, short enough for a line of a log.
_LONGEST_SHOWN = 60

Reader: TypeAlias = Callable[[Json, str], Any]
"""Converts a JSON value. The second argument is its path in the payload, for errors: "payload.to"."""


class UnreadableTypeError(TypeError):
    """JSON cannot represent values of this type."""


def reader_for(annotation: Any) -> Reader:
    """Return the function that converts JSON to *annotation*. Raise `UnreadableTypeError` if there is none."""
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Annotated:
        return reader_for(inner[0])
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return lambda value, _where: value
    if isinstance(kind, NewType):
        return reader_for(kind.__supertype__)
    if hasattr(kind, "__value__"):  # type Name = …
        return reader_for(kind.__value__)
    if kind in _SIMPLE:
        return _reader_of_one(*_SIMPLE[kind])
    if kind is Literal:
        return _reader_of_one(partial(_choose, inner), _one_of(inner))
    if kind in (Union, UnionType):
        return _reader_of_union(annotation, inner)
    if kind is tuple:
        return _reader_of_tuple(inner)
    if kind in (dict, Mapping, MutableMapping):
        return _reader_of_mapping(*inner or (Any, Any))
    if kind in _LISTS:
        return _reader_of_items(_LISTS[kind], *inner or (Any,))
    if is_model(kind):
        return _reader_by_pydantic(annotation)
    if _has_fields(kind):
        return _being_made.get(annotation) or _reader_of_fields(annotation, kind)  # a class may contain itself
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _reader_of_one(kind, _one_of(member.value for member in kind))
    raise UnreadableTypeError(f"{name_of_type(annotation)} cannot be read from JSON")


_LISTS: Mapping[Any, Callable[[list[Any]], Any]] = {
    **dict.fromkeys((list, Sequence, MutableSequence, Collection, Iterable), list),
    **dict.fromkeys((set, AbstractSet, MutableSet), set),
    frozenset: frozenset,
}


def is_structured(annotation: Any) -> bool:
    """Return whether *annotation* is or contains a dataclass, a typed dict or a model, which only payloads use."""
    kind = get_origin(annotation) or annotation
    return is_model(kind) or _has_fields(kind) or any(map(is_structured, get_args(annotation)))


def _has_fields(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and is_dataclass(kind))


def name_of_type(annotation: Any) -> str:
    """Return the name of a type as errors show it."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


# ---------------------------------------------------------------- one value


def _misfit(where: str, expected: str, value: Json) -> PayloadError:
    return PayloadError(f"{where} must be {expected}, not {_shown(value)}")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _one_of(choices: Iterable[object]) -> str:
    return f"one of {', '.join(map(_shown, choices))}"


def _reader_of_one(convert: Callable[[Any], Any], expected: str) -> Reader:
    def read(value: Json, where: str) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError, ArithmeticError):  # Decimal and timedelta raise the last
            raise _misfit(where, expected, value) from None

    return read


def _only(*kinds: type) -> Callable[[Json], Any]:
    def check(value: Json) -> Json:
        if type(value) in kinds:  # True is an int for isinstance()
            return value
        raise TypeError

    return check


_text, _number = _only(str), _only(int, float)
_read_list = _reader_of_one(_only(list), "a list")
_read_dict = _reader_of_one(_only(dict), "a dict")


def _duration(value: Json) -> timedelta:
    return parse_stored_interval(value) if isinstance(value, str) else timedelta(seconds=_number(value))


def _choose(choices: tuple[object, ...], value: Json) -> object:
    for choice in choices:
        if choice == value and type(choice) is type(value):  # True == 1
            return choice
    raise ValueError


_SIMPLE: Mapping[Any, tuple[Callable[[Json], Any], str]] = {
    str: (_text, "a string"),
    int: (_only(int), "a whole number"),
    float: (lambda value: float(_number(value)), "a number"),
    bool: (_only(bool), "true or false"),
    **dict.fromkeys((None, NoneType), (_only(NoneType), "null")),
    datetime: (datetime.fromisoformat, 'a datetime such as "2026-06-15T09:00:00Z"'),
    date: (date.fromisoformat, 'a date such as "2026-06-15"'),
    time: (time.fromisoformat, 'a time such as "09:00"'),
    timedelta: (_duration, 'a duration such as "5m", or a number of seconds'),
    Decimal: (lambda value: Decimal(_text(value)), 'a decimal such as "9.99"'),
    UUID: (lambda value: UUID(_text(value)), "a UUID"),
    Path: (Path, "a path"),
}


def _reader_of_union(annotation: Any, kinds: tuple[Any, ...]) -> Reader:
    """Return a reader that tries the types in the order of the annotation."""
    readers = [reader_for(kind) for kind in kinds if kind is not NoneType]

    def read(value: Json, where: str) -> Any:
        if value is None and NoneType in kinds:
            return None
        if len(readers) == 1:
            return readers[0](value, where)  # its error is more precise
        for reader in readers:
            try:
                return reader(value, where)
            except PayloadError:
                continue
        raise _misfit(where, f"of type {annotation}", value)

    return read


def _reader_by_pydantic(annotation: Any) -> Reader:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - a model exists, so pydantic is imported already

    adapter = TypeAdapter(annotation)

    def read(value: Json, where: str) -> Any:
        try:
            return adapter.validate_json(msgspec.json.encode(value))  # its rules for JSON and for Python values differ
        except ValidationError as error:
            problems = [f"{'.'.join([where, *map(str, one['loc'])])}: {one['msg']}" for one in error.errors()]
            raise PayloadError(storable("; ".join(problems))) from error

    return read


# ---------------------------------------------------------------- lists, dicts and classes


def _reader_of_items(build: Callable[[list[Any]], Any], kind: Any) -> Reader:
    reader = reader_for(kind)

    def read(value: Json, where: str) -> Any:
        items = [reader(item, f"{where}[{place}]") for place, item in enumerate(_read_list(value, where))]
        try:
            return build(items)
        except TypeError:  # a set of lists
            raise _misfit(where, "a list whose items are not lists or dicts", value) from None

    return read


def _reader_of_tuple(kinds: tuple[Any, ...]) -> Reader:
    if not kinds or kinds[1:] == (...,):
        return _reader_of_items(tuple, *kinds[:1] or (Any,))
    readers = [reader_for(kind) for kind in kinds]

    def read(value: Json, where: str) -> Any:
        if len(_read_list(value, where)) != len(readers):
            raise _misfit(where, f"a list of {len(readers)} items", value)
        return tuple(reader(value[place], f"{where}[{place}]") for place, reader in enumerate(readers))

    return read


def _reader_of_mapping(key_kind: Any, kind: Any) -> Reader:
    # JSON keys are strings, even those of a dict[int, …].
    read_key = _reader_of_one(int, _SIMPLE[int][1]) if key_kind is int else reader_for(key_kind)
    reader = reader_for(kind)

    def read(value: Json, where: str) -> Any:
        items = _read_dict(value, where).items()
        return {read_key(key, f"a key of {where}"): reader(item, f"{where}.{key}") for key, item in items}

    return read


def _reader_of_fields(annotation: Any, made: Any) -> Reader:
    name_of_made = name_of_type(made)
    required, hints = _fields_of(annotation, made)
    readers: dict[str, Reader] = {}

    def read(value: Json, where: str) -> Any:
        given = _read_dict(value, where)
        for name in required:
            if required[name] and name not in given:
                raise PayloadError(f"{where}.{name} is missing")
        for name in given:
            if name not in required:
                known = ", ".join(required) or "none"
                raise PayloadError(
                    f"{where} has an unknown field {_shown(name)}; {name_of_made} has the fields {known}"
                )
        parts = {name: readers[name](part, f"{where}.{name}") for name, part in given.items()}
        try:
            return made(**parts)
        except Exception as error:  # a user's __post_init__ may raise anything
            raise PayloadError(f"{where} is not a valid {name_of_made}: {message_of(error)}") from error

    _being_made[annotation] = read
    try:
        readers.update({name: reader_for(hints[name]) for name in required})
    finally:
        del _being_made[annotation]
    return read


_being_made: dict[Any, Reader] = {}


def _fields_of(annotation: Any, made: Any) -> tuple[dict[str, bool], dict[str, Any]]:
    """Return the fields of a class and whether each is required, and their types."""
    try:
        hints = get_type_hints(made)
    except NameError as error:
        raise UnreadableTypeError(f"a type in {name_of_type(made)} cannot be found: {error}") from error
    if is_dataclass(made):
        taken = [field for field in fields(made) if field.init]
        required = {field.name: field.default is MISSING and field.default_factory is MISSING for field in taken}
    else:
        # If its annotations are strings, a typed dict does not record which keys are marked as required.
        marks, marked = {Required: True, NotRequired: False}, get_type_hints(made, include_extras=True)
        required = {name: marks.get(get_origin(marked[name]), name in made.__required_keys__) for name in hints}
    arguments = dict(zip(getattr(made, "__parameters__", ()), get_args(annotation), strict=False))
    return required, {name: _filled_in(hint, arguments) for name, hint in hints.items()}


def _filled_in(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """Return *hint* with the type variables of a generic class replaced."""
    if isinstance(hint, TypeVar):
        return arguments.get(hint, Any)
    unknown = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments.get(one, Any) for one in unknown)] if unknown and get_args(hint) else hint
