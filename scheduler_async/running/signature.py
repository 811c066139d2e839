"""What a handler asks for, by the parameters of its function: a run, its payload as a type, both or nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, get_args, get_type_hints

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import Run

if TYPE_CHECKING:
    from scheduler_async.jobs.payloads import Reader

Handler: TypeAlias = Callable[..., Any]
"""What users register: async or plain, with a `Run` or a payload, or without."""

RUN, PAYLOAD = "run", "payload"
NONE = inspect.Parameter.empty


class Arguments(NamedTuple):
    """What a handler is called with: a run, its payload as a type of the user's, both or nothing."""

    positional: tuple[str, ...] = ()
    """RUN and PAYLOAD, in the order that the function takes them."""
    keywords: Mapping[str, str] = {}
    """RUN and PAYLOAD by the names of those parameters that cannot be given by their place."""
    reader: Reader | None = None
    """Makes the payload."""
    default: object = NONE
    """What stands in for no payload."""

    @property
    def are_the_run(self) -> bool:
        """Whether it can be called with the run alone."""
        return self.positional == (RUN,) and not self.keywords

    def call(self, function: Handler, run: Run) -> Any:
        """Call *function* for *run*."""
        given = {RUN: run, PAYLOAD: None if self.reader is None else self.payload_of(run.payload)}
        keywords = {name: given[kind] for name, kind in self.keywords.items()}
        return function(*[given[kind] for kind in self.positional], **keywords)

    def payload_of(self, value: Json) -> object:
        """The payload that is made of *value*."""
        assert self.reader is not None
        return self.default if value is None and self.default is not NONE else self.reader(value, "payload")

    @classmethod
    def of(cls, function: Handler) -> Arguments:
        """What *function* asks for."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # some builtins do not tell
            return cls()
        taken: dict[str, inspect.Parameter] = {}
        positional: list[str] = []
        keywords: dict[str, str] = {}
        reader = None
        is_in_place = True  # nothing before it is left out
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            asked = _reader_of(function, parameter)
            kind = PAYLOAD if asked is not None else RUN
            if kind in taken or (kind is RUN and not _is_for_run(parameter)):
                if parameter.default is NONE and parameter.kind is not parameter.VAR_POSITIONAL:
                    _refuse_parameter(function, parameter)
                is_in_place = False
                continue
            taken[kind] = parameter
            reader = asked or reader
            if is_in_place and parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append(kind)
            else:
                keywords[parameter.name] = kind
        default = taken[PAYLOAD].default if PAYLOAD in taken else NONE
        return cls(tuple(positional), keywords, reader, default)


def _is_for_run(parameter: inspect.Parameter) -> bool:
    """What has a default was not meant for a run, unless it says so; what needs a name is not either."""
    if parameter.name == RUN:
        return True
    return parameter.default is NONE and parameter.kind is not parameter.KEYWORD_ONLY


def _refuse_parameter(function: Handler, parameter: inspect.Parameter) -> NoReturn:
    raise InvalidJobError(
        f"The handler {name_of_function(function)} cannot be called: nobody knows its {parameter.name}. "
        "A handler takes a Run, a payload that is annotated with a dataclass or a model (or is called payload, and is "
        "annotated with anything JSON can be made into), both, or nothing: async def f(run: Run, report: Report).",
        "handler",
    )


def _reader_of(function: Handler, parameter: inspect.Parameter) -> Reader | None:
    """What makes the payload for a *parameter* that is annotated as one; None if it is not."""
    if parameter.annotation is NONE or parameter.kind is parameter.VAR_POSITIONAL:
        return None
    annotation = _evaluated(function, parameter)
    if annotation in (Any, object, Run) or Run in get_args(annotation) or _may_be_a_run(annotation):
        return None
    from scheduler_async.jobs.payloads import UnreadableTypeError, is_structured, reader_for  # noqa: PLC0415 - few need it

    if parameter.name != PAYLOAD and not is_structured(annotation):
        if parameter.default is NONE:
            _refuse_parameter(function, parameter)
        return None  # it is meant for others who call the function
    try:
        return reader_for(annotation)
    except UnreadableTypeError as error:
        raise InvalidJobError(
            f"The handler {name_of_function(function)} takes a payload that cannot be made of JSON: {error}.", "handler"
        ) from error


def _may_be_a_run(annotation: Any) -> bool:
    """Whether it is a protocol: a run may be one of those who keep it, and JSON never is."""
    return isinstance(annotation, type) and getattr(annotation, "_is_protocol", False)


def _evaluated(function: Handler, parameter: inspect.Parameter) -> Any:
    """The type that a *parameter* is annotated with."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    if not hasattr(inner, "__globals__") and not inspect.ismethod(inner):
        inner = type(inner).__call__  # an object
    holder = type("_", (), {"__annotations__": {parameter.name: parameter.annotation}})
    names = getattr(inner, "__globals__", {})
    try:
        return get_type_hints(holder, names, _names_of_caller(), include_extras=True)[parameter.name]
    except Exception as error:  # an annotation in quotes may be any code, or none
        if parameter.default is not NONE:
            return Any  # it is not for us
        # Imported for type checkers only, as `Run` often is.
        if parameter.name == RUN or re.search(r"\bRun\b", str(parameter.annotation)):
            return Run
        is_missing = isinstance(error, NameError | AttributeError | TypeError)
        problem = "not known where it is registered" if is_missing else "not a type"
        advice = "Define it before, or import it for more than type checkers" if is_missing else "Write a type instead"
        raise InvalidJobError(
            f"The handler {name_of_function(function)} is annotated with {quoted(parameter.annotation)}, which is "
            f"{problem} ({error}). {advice}.",
            "handler",
        ) from error


def _names_of_caller() -> dict[str, Any]:
    """The variables where a handler is registered: a type may have been defined there, within a function."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scheduler_async."):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def name_of_function(function: Handler) -> str:
    """What a function calls itself; a partial is called as what it calls, and an object as its class."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))
