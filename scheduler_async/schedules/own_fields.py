"""The JSON form of schedules that users write: their fields, by the annotations of the class. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import ValidationError, convert, to_builtins

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.calendars import Calendar
from scheduler_async.texts import describe_error

_UNIONS = (Union, UnionType)

RESERVED = ("version", "kind")
"""Names in JSON forms that no field may have."""


def check_class(kind: type) -> None:
    """Raise `InvalidScheduleError` unless *kind* is a frozen dataclass whose fields have names that can be stored."""
    name = kind.__name__
    if not is_dataclass(kind) or "__dataclass_fields__" not in kind.__dict__:
        raise InvalidScheduleError(f"{name} must be a dataclass. Write @dataclass(frozen=True) above the class.")
    if not kind.__dataclass_params__.frozen or kind.__hash__ is None:  # type: ignore[attr-defined]
        raise InvalidScheduleError(f"{name} must be frozen. Write @dataclass(frozen=True) above the class.")
    taken = [field.name for field in fields(kind) if field.name in RESERVED]
    if taken:
        raise InvalidScheduleError(f"{name} must not have a field {quoted(taken[0])}: the JSON form uses that name.")


def fields_to_json(schedule: Any, to_json: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields of a schedule as JSON values; *to_json* converts schedules among them."""
    found = {}
    for field in fields(schedule):
        if field.init:
            found[field.name] = _plain(type(schedule).__name__, field.name, getattr(schedule, field.name), to_json)
    return found


def _plain(owner: str, name: str, value: object, to_json: Callable[[Any], Any]) -> Any:
    try:
        return to_builtins(_without_schedules(value, to_json), enc_hook=to_json, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidScheduleError(
            f"{owner}.{name} cannot be stored as JSON ({describe_error(error)[:200]}). A field of a schedule holds "
            "JSON values, datetimes, dates, timedeltas, enums, calendars and other schedules."
        ) from error


def _without_schedules(value: Any, to_json: Callable[[Any], Any]) -> Any:
    """Return *value* with the JSON forms of the schedules and calendars in it, which are dataclasses themselves."""
    if isinstance(value, Calendar) or hasattr(value, "next_micros"):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [_without_schedules(part, to_json) for part in value]
    if isinstance(value, dict):
        return {key: _without_schedules(part, to_json) for key, part in value.items()}
    return value


def fields_from_json(kind: type, parts: dict[str, Any], from_json: Callable[[type, Any], Any]) -> dict[str, Any]:
    """Return the arguments of *kind* from their JSON values; *from_json* reads schedules among them."""
    hints = _hints_of(kind)
    found = {}
    for name, value in parts.items():
        try:
            hint = _by_base(_fitting(hints.get(name, Any), value))
            found[name] = convert(value, hint, dec_hook=from_json, strict=False)
        except ValidationError as error:
            if isinstance(error.__cause__, InvalidScheduleError):  # about a schedule or a calendar among them
                raise error.__cause__ from None
            raise InvalidScheduleError(f"{kind.__name__}.{name} cannot be read: {str(error).rstrip('.')}.") from error
    return found


def read_part(kind: type, value: Any, read_schedule: Callable[[Any], Any]) -> Any:
    """Return a calendar or a schedule from its JSON form, or *value* itself if *kind* is neither."""
    if not _is_special(kind):
        return value
    return Calendar.from_json(value) if issubclass(kind, Calendar) else read_schedule(value)


def _fitting(hint: Any, value: object) -> Any:
    """Return the part of a union that reads *value*. Only an object is a schedule or a calendar."""
    if get_origin(hint) not in _UNIONS:
        return hint
    is_object = isinstance(value, dict)
    parts = [part for part in get_args(hint) if _is_special(part) == is_object]
    return reduce(or_, parts[:1] if is_object else parts) if parts else hint


def _by_base(hint: Any) -> Any:
    """Return *hint* with `Schedule` and `Calendar` for their subclasses, whose fields msgspec would read by itself."""
    if _is_special(hint):
        return next(base for base in reversed(hint.__mro__) if _is_special(base))
    parts = tuple(map(_by_base, get_args(hint)))
    if not parts:
        return hint
    return reduce(or_, parts) if get_origin(hint) in _UNIONS else get_origin(hint)[parts]


def _is_special(kind: object) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Calendar) or hasattr(kind, "next_micros"))


def _hints_of(kind: type) -> dict[str, Any]:
    """Return the annotations of *kind*. One that cannot be resolved, as in a function, counts as any JSON value."""
    try:
        return get_type_hints(kind)
    except Exception:  # noqa: S110 - one name that is missing must not hide the others
        pass
    found = {}
    for field in fields(kind):
        scope = vars(sys.modules.get(kind.__module__, sys))
        try:
            found[field.name] = eval(field.type, dict(scope)) if isinstance(field.type, str) else field.type  # noqa: S307
        except Exception:  # a name of the function that the class was written in
            found[field.name] = Any
    return found
