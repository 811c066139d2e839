"""Payloads as the types that handlers ask for: dataclasses, typed dicts and pydantic models, from JSON and to it. Pure.

A dataclass is filled in strictly: every field there, none that it does not have, and no number made of a text. What
JSON has no form for is a text in it: moments and dates as ISO 8601, durations as "5m", paths, decimals, UUIDs, and
enums by their values. pydantic goes by its own rules, and is only used by those who have it.
"""

from __future__ import annotations

import json
import types
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
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
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

from scheduler_async.errors import PayloadError
from scheduler_async.texts import message_of, storable
from scheduler_async.timekeeping.durations import format_interval, parse_stored_interval

# Long enough to recognise what one wrote, short enough for a line of a log.
_LONGEST_SHOWN = 60

Reader: TypeAlias = Callable[[Any, str], Any]
"""Makes a value of what JSON holds; the second argument says where that stands, for the one who put it there."""


class UnreadableTypeError(TypeError):
    """A type that cannot be made of JSON."""


def reader_for(annotation: Any) -> Reader:
    """What makes a value of type *annotation*; raises `UnreadableTypeError` if nothing does."""
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Annotated:
        return reader_for(inner[0])
    if annotation in _being_made:  # it holds others of its kind
        return _being_made[annotation]
    if annotation in (Any, object):
        return lambda value, _where: value
    if annotation in _WORDS:
        return _reader_of_class(annotation)
    if annotation in _BY_TEXT:
        return _reader_of_text(annotation)
    for kind, make in _MAKERS:
        if kind(origin):
            return make(annotation)
    if origin in (Union, types.UnionType):
        return _reader_of_union(annotation, inner)
    if origin is Literal:
        return _reader_of_literal(inner)
    if origin is tuple:
        return _reader_of_tuple(inner)
    if origin in _MAPPINGS:
        return _reader_of_mapping(inner)
    if origin in _ITEMS:
        return _reader_of_items(_ITEMS[origin], inner)
    raise UnreadableTypeError(f"{name_of_type(annotation)} cannot be made of JSON")


_MAPPINGS = (dict, Mapping, MutableMapping)
_ITEMS: Mapping[Any, Callable[[Any], Any]] = {
    **dict.fromkeys((list, Sequence, MutableSequence, Collection, Iterable), list),
    **dict.fromkeys((set, AbstractSet, MutableSet), set),
    frozenset: frozenset,
}


def is_structured(annotation: Any) -> bool:
    """Whether it is a dataclass, a typed dict or a model, or holds one: nothing but a payload is annotated so."""
    kind = get_origin(annotation) or annotation
    return (
        _is_model(kind)
        or (isinstance(kind, type) and is_dataclass(kind))
        or is_typeddict(kind)
        or any(map(is_structured, get_args(annotation)))
    )


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def name_of_type(annotation: Any) -> str:
    """What people call it."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def plain(value: Any) -> Any:
    """*value* as JSON holds it, if it is a dataclass or a model or holds one; anything else is left as it is."""
    if hasattr(value, "__pydantic_validator__"):
        return _plain_model(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain_inside(getattr(value, field.name)) for field in fields(value) if field.init}
    return value


def _plain_model(value: Any) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - whoever made the value has it

    adapter = TypeAdapter(type(value))
    text = adapter.dump_json(value, by_alias=True, round_trip=True)
    if adapter.validate_json(text) != value:  # a secret shows only stars
        raise TypeError(f"a {type(value).__name__} that does not come back from JSON as it was")
    return json.loads(text)


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
        return {_plain_key(key): _plain_inside(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_inside(inner) for inner in value]
    if isinstance(value, AbstractSet):
        return sorted((_plain_inside(inner) for inner in value), key=repr)
    return plain(value)


def _plain_key(key: Any) -> Any:
    found = _plain_inside(key)
    return str(found) if type(found) is int else found


# ---------------------------------------------------------------- what is one value


def _misfit(where: str, expected: str, value: Any) -> PayloadError:
    return PayloadError(f"{where} is {expected}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _reader_of_class(annotation: Any) -> Reader:
    words = _WORDS[annotation]

    def read(value: Any, where: str) -> Any:
        if type(value) is annotation or (value is None and annotation is None):
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
            with suppress(ValueError, ArithmeticError):  # Decimal and timedelta have errors of their own
                return convert(value)
        elif annotation is timedelta and type(value) in (int, float):
            with suppress(ArithmeticError):
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


def _reader_of_items(build: Callable[[Any], Any], inner: tuple[Any, ...]) -> Reader:
    reader = reader_for(inner[0]) if inner else reader_for(Any)

    def read(value: Any, where: str) -> Any:
        items = [reader(item, f"{where}[{place}]") for place, item in enumerate(_list_of(value, where))]
        try:
            return build(items)
        except TypeError:
            raise _misfit(where, "a list of values that are no lists or dicts themselves", value) from None

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
    kind, item_kind = inner or (Any, Any)
    read_key, read_item = _key_reader(kind), reader_for(item_kind)

    def read(value: Any, where: str) -> Any:
        items = _dict_of(value, where).items()
        return {read_key(key, f"a key of {where}"): read_item(item, _below(where, key)) for key, item in items}

    return read


def _key_reader(kind: Any) -> Reader:
    """Keys are texts in JSON, also those that are whole numbers for us."""
    if kind is not int:
        return reader_for(kind)

    def read(value: Any, where: str) -> Any:
        try:
            return int(value)
        except ValueError:
            raise _misfit(where, _WORDS[int], value) from None

    return read


def _reader_of_fields(annotation: Any, required: AbstractSet[str], names: Sequence[str]) -> Reader:
    made = get_origin(annotation) or annotation
    hints = _types_of_fields(annotation)
    readers: dict[str, Reader] = {}

    def read(value: Any, where: str) -> Any:
        given = _dict_of(value, where)
        if missing := [name for name in names if name in required and name not in given]:
            raise PayloadError(f"{_below(where, missing[0])} is missing")
        if unknown := [name for name in given if name not in readers]:
            raise PayloadError(f"{name_of_type(made)} has no {_shown(unknown[0])}; it has {', '.join(names)}")
        parts = {name: readers[name](part, _below(where, name)) for name, part in given.items()}
        try:
            return made(**parts)
        except Exception as error:  # its own checks, in __post_init__, may raise anything
            raise PayloadError(f"{where} makes no {name_of_type(made)}: {message_of(error)}") from error

    _being_made[annotation] = read
    try:
        readers.update({name: reader_for(hints[name]) for name in names})
    finally:
        del _being_made[annotation]
    return read


_being_made: dict[Any, Reader] = {}


def _types_of_fields(annotation: Any) -> dict[str, Any]:
    """What the fields of a class are; those of a generic one as its arguments say."""
    made = get_origin(annotation) or annotation
    try:
        hints = get_type_hints(made)
    except NameError as error:
        raise UnreadableTypeError(f"a type in {name_of_type(made)} is not to be found: {error}") from error
    arguments = dict(zip(getattr(made, "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _filled_in(hint, arguments) for name, hint in hints.items()}


def _filled_in(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return arguments.get(hint, Any)
    unknown = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments.get(one, Any) for one in unknown)] if unknown and get_args(hint) else hint


def _below(where: str, name: str) -> str:
    return f"{where}.{name}"


def _reader_of_dataclass(annotation: Any) -> Reader:
    taken = [field for field in fields(get_origin(annotation) or annotation) if field.init]
    required = {field.name for field in taken if field.default is MISSING and field.default_factory is MISSING}
    return _reader_of_fields(annotation, required, [field.name for field in taken])


def _reader_of_typed_dict(annotation: Any) -> Reader:
    made = get_origin(annotation) or annotation
    hints = get_type_hints(made, include_extras=True)
    # A class whose annotations are texts does not know which of its keys say themselves whether they are required.
    said = {name: get_origin(hint) for name, hint in hints.items()}
    required = {name for name in made.__required_keys__ if said[name] is not NotRequired}
    return _reader_of_fields(annotation, required | {name for name in said if said[name] is Required}, list(hints))


def _reader_by_pydantic(annotation: Any) -> Reader:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - whoever made the type has it

    adapter = TypeAdapter(annotation)

    def read(value: Any, where: str) -> Any:
        try:
            return adapter.validate_json(json.dumps(value))  # whose rules are those for what came as JSON
        except ValidationError as error:
            problems = [f"{'.'.join([where, *map(str, one['loc'])])}: {one['msg']}" for one in error.errors()]
            raise PayloadError(storable("; ".join(problems))) from error

    return read


_MAKERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Reader]], ...] = (
    (_is_model, _reader_by_pydantic),
    (lambda kind: isinstance(kind, type) and is_dataclass(kind), _reader_of_dataclass),
    (is_typeddict, _reader_of_typed_dict),
    (lambda kind: isinstance(kind, type) and issubclass(kind, Enum), _reader_of_enum),
    (lambda kind: isinstance(kind, NewType), lambda kind: reader_for(kind.__supertype__)),
    (lambda kind: isinstance(kind, TypeVar), lambda _kind: reader_for(Any)),
    (lambda kind: hasattr(kind, "__value__"), lambda kind: reader_for(kind.__value__)),  # type Name = …
)
