"""Derive the arguments of a handler from its parameters: a run, a typed payload, both or nothing."""

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
"""A function that users register: async or plain, with a `Run`, a payload, both or neither."""

RUN, PAYLOAD = "run", "payload"
NONE = inspect.Parameter.empty


class Arguments(NamedTuple):
    """The arguments of a handler: a run, its payload as a type of the user's, both or nothing."""

    positional: tuple[str, ...] = ()
    """RUN and PAYLOAD, in the order of the parameters."""
    keywords: Mapping[str, str] = {}
    """RUN and PAYLOAD by the names of parameters that must be passed as keywords."""
    reader: Reader | None = None
    """Converts the payload."""
    default: object = NONE
    """The value for a job without a payload."""

    @property
    def are_the_run(self) -> bool:
        """Whether the handler takes exactly the run."""
        return self.positional == (RUN,) and not self.keywords

    def call(self, function: Handler, run: Run) -> Any:
        """Call *function* for *run*."""
        given = {RUN: run, PAYLOAD: None if self.reader is None else self.payload_of(run.payload)}
        keywords = {name: given[kind] for name, kind in self.keywords.items()}
        return function(*[given[kind] for kind in self.positional], **keywords)

    def payload_of(self, value: Json) -> object:
        """Return the payload as the annotated type."""
        assert self.reader is not None
        return self.default if value is None and self.default is not NONE else self.reader(value, "payload")

    @classmethod
    def of(cls, function: Handler) -> Arguments:
        """Return the arguments that *function* takes."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # some builtins have no signature
            return cls()
        taken: dict[str, inspect.Parameter] = {}
        positional: list[str] = []
        keywords: dict[str, str] = {}
        reader = None
        is_in_place = True  # no parameter before it was skipped
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
    """Return whether *parameter* can receive the run: it is named so, or it is positional and has no default."""
    if parameter.name == RUN:
        return True
    return parameter.default is NONE and parameter.kind is not parameter.KEYWORD_ONLY


def _refuse_parameter(function: Handler, parameter: inspect.Parameter) -> NoReturn:
    raise InvalidJobError(
        f"Handler {name_of_function(function)}() has a required parameter {quoted(parameter.name)} that the scheduler "
        "cannot supply. A handler takes a Run, a payload, both, or nothing: async def f(run: Run, report: Report). "
        'Annotate the payload with a dataclass or a model, or name it "payload" and annotate it with any JSON type.',
        "handler",
    )


def _reader_of(function: Handler, parameter: inspect.Parameter) -> Reader | None:
    """Return the reader of the payload if *parameter* is annotated as a payload, else None."""
    if parameter.annotation is NONE or parameter.kind is parameter.VAR_POSITIONAL:
        return None
    annotation = _evaluated(function, parameter)
    if annotation in (Any, object, Run) or Run in get_args(annotation) or _may_be_a_run(annotation):
        return None
    from scheduler_async.jobs.payloads import UnreadableTypeError, is_structured, reader_for  # noqa: PLC0415 - few need it

    if parameter.name != PAYLOAD and not is_structured(annotation):
        if parameter.default is NONE:
            _refuse_parameter(function, parameter)
        return None  # other callers of the function may use it
    try:
        return reader_for(annotation)
    except UnreadableTypeError as error:
        raise InvalidJobError(
            f"Handler {name_of_function(function)}() has a payload type that JSON cannot represent: {error}.",
            "handler",
        ) from error


def _may_be_a_run(annotation: Any) -> bool:
    """Return whether *annotation* is a protocol. A run may implement it; a JSON value never does."""
    return isinstance(annotation, type) and getattr(annotation, "_is_protocol", False)


def _evaluated(function: Handler, parameter: inspect.Parameter) -> Any:
    """Return the annotation of *parameter* as a type."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    if not hasattr(inner, "__globals__") and not inspect.ismethod(inner):
        inner = type(inner).__call__  # an object
    holder = type("_", (), {"__annotations__": {parameter.name: parameter.annotation}})
    names = getattr(inner, "__globals__", {})
    try:
        return get_type_hints(holder, names, _names_of_caller(), include_extras=True)[parameter.name]
    except Exception as error:  # a quoted annotation may be any code, or invalid code
        if parameter.default is not NONE:
            return Any  # the scheduler does not pass it
        # The name may be imported for type checkers only, as `Run` often is.
        if parameter.name == RUN or re.search(r"\bRun\b", str(parameter.annotation)):
            return Run
        is_missing = isinstance(error, NameError | AttributeError | TypeError)
        problem = "not defined where the handler is registered" if is_missing else "not a type"
        advice = "Define or import it outside of TYPE_CHECKING" if is_missing else "Annotate it with a type"
        raise InvalidJobError(
            f"Handler {name_of_function(function)}() has a parameter {quoted(parameter.name)} annotated with "
            f"{quoted(parameter.annotation)}, which is {problem} ({error}). {advice}.",
            "handler",
        ) from error


def _names_of_caller() -> dict[str, Any]:
    """Return the local variables of the code that registers a handler, which may define types inside a function."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scheduler_async."):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def name_of_function(function: Handler) -> str:
    """Return the name of a function. A partial has the name of its function, and an object that of its class."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))
