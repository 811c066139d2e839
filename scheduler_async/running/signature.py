"""Derive the arguments of a handler from its parameters: the run, a typed payload, or the keys of the payload."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args, get_type_hints

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import Run
from scheduler_async.running.by_name import ByName, Slot

if TYPE_CHECKING:
    from scheduler_async.jobs.payloads import Reader

Handler: TypeAlias = Callable[..., Any]
"""A function that users register: async or plain. Its parameters are described in `Arguments`."""

RUN, PAYLOAD = "run", "payload"
NONE = inspect.Parameter.empty


class Arguments(NamedTuple):
    """The arguments of a handler: the run, its payload as a type of the user's, or the keys of its payload by name."""

    positional: tuple[str, ...] = ()
    """RUN and PAYLOAD, in the order of the parameters."""
    keywords: Mapping[str, str] = {}
    """RUN and PAYLOAD by the names of parameters that must be passed as keywords."""
    reader: Reader | None = None
    """Converts the payload."""
    default: object = NONE
    """The value for a job without a payload."""
    by_name: ByName | None = None
    """The parameters, if they are filled from the keys of the payload."""
    maybe_key: str | None = None
    """The only parameter, which has no annotation: it gets the run, unless its name is a key of the payload."""

    @property
    def are_the_run(self) -> bool:
        """Whether the handler takes exactly the run."""
        return self.positional == (RUN,) and not self.keywords and self.maybe_key is None

    def call(self, function: Handler, run: Run) -> Any:
        """Call *function* for *run*."""
        if self.by_name is not None:
            return self.by_name.call(function, run)
        if self.maybe_key is not None:
            payload = run.payload
            is_key = isinstance(payload, dict) and self.maybe_key in payload
            return function(payload[self.maybe_key] if is_key else run)
        given = {RUN: run, PAYLOAD: None if self.reader is None else self.payload_of(run.payload)}
        keywords = {name: given[kind] for name, kind in self.keywords.items()}
        return function(*[given[kind] for kind in self.positional], **keywords)

    @property
    def checks_payload(self) -> bool:
        """Whether the handler does not take every payload."""
        return self.by_name is not None or self.reader is not None

    def check(self, payload: Json) -> None:
        """Raise a `PayloadError` if the handler does not take this *payload*."""
        if self.by_name is not None:
            self.by_name.filled(payload)
        elif self.reader is not None:
            self.payload_of(payload)

    def payload_of(self, value: Json) -> object:
        """Return the payload as the annotated type."""
        assert self.reader is not None
        return self.default if value is None and self.default is not NONE else self.reader(value, "payload")

    @classmethod
    def of(cls, function: Handler) -> Arguments:
        """Return the arguments that *function* takes.

        A parameter that is annotated with `Run` or named "run" gets the run. If the others are one that is named
        "payload" or annotated with a dataclass or a model, it gets the payload. Otherwise they are filled by name. If
        no parameter gets the run, the first one without an annotation does for payloads that lack its key, provided
        that all others have defaults.
        """
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # some builtins have no signature
            return cls()
        named = [parameter for parameter in parameters if parameter.kind not in _VARIABLE]
        found = [_Parameter.of(function, parameter) for parameter in named]
        takes_rest = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        runs = [one for one in found if one.gets_run]
        others = [one for one in found if not one.gets_run]
        nameless = [one for one in others if one.may_get_run][: 0 if runs else 1]
        payloads = [one for one in others if one.gets_payload]
        if not payloads and not nameless and [one.name for one in others] == [PAYLOAD]:
            payloads = others  # without an annotation
        served = {one.name for one in (*nameless, *payloads[:1])}
        left = [one for one in others if one.name not in served]
        if any(one.is_required for one in left):  # neither the run nor the whole payload is for it
            return cls(by_name=_by_name(function, found, runs, takes_rest, is_strict=True))
        if payloads:
            return cls._of_both(function, found, [*runs, *nameless], payloads[0])
        fillable = [one for one in left if one.reader(function) is not None]
        has_maybe_key = any(one.is_untyped for one in nameless)
        if has_maybe_key and len(found) == 1 and not takes_rest:
            return cls((RUN,), maybe_key=found[0].name)
        if fillable or takes_rest or has_maybe_key:
            is_strict = not runs and not nameless
            return cls(by_name=_by_name(function, found, [*runs, *nameless], takes_rest, is_strict))
        return cls._of_both(function, found, [*runs, *nameless], None)

    @classmethod
    def _of_both(
        cls, function: Handler, found: Sequence[_Parameter], runs: Sequence[_Parameter], payload: _Parameter | None
    ) -> Arguments:
        """Return arguments in which *runs* get the run, and *payload* the whole payload."""
        positional: list[str] = []
        keywords: dict[str, str] = {}
        names = {one.name for one in runs}
        is_in_place = True  # no parameter before it was skipped
        for one in found:
            if one is not payload and one.name not in names:
                is_in_place = False
                continue
            kind = PAYLOAD if one is payload else RUN
            if is_in_place and one.kind is not inspect.Parameter.KEYWORD_ONLY:
                positional.append(kind)
            else:
                keywords[one.name] = kind
        if payload is None:
            return cls(tuple(positional), keywords)
        return cls(tuple(positional), keywords, payload.reader(function), payload.default)


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Parameter(NamedTuple):
    """A parameter of a handler, and what it can get."""

    name: str
    kind: Any
    default: object
    annotation: Any
    """Its type; `Any` if it has none."""
    gets_run: bool
    gets_payload: bool
    """Whether it gets the whole payload, if it is the only one that does."""

    @property
    def is_required(self) -> bool:
        """Whether it must get a value."""
        return self.default is NONE

    @property
    def is_untyped(self) -> bool:
        """Whether it has no type: any JSON value fits, and the run does too."""
        return self.annotation in _UNTYPED

    @property
    def may_get_run(self) -> bool:
        """Whether it gets the run if no other parameter does: it is positional, required, and has no type."""
        is_positional = self.kind is not inspect.Parameter.KEYWORD_ONLY
        may_be_a_run = self.name != PAYLOAD if self.is_untyped else _may_be_a_run(self.annotation)
        return is_positional and self.is_required and may_be_a_run

    @classmethod
    def of(cls, function: Handler, parameter: inspect.Parameter) -> _Parameter:
        """Return what *parameter* can get."""
        is_typed = parameter.annotation is not NONE
        annotation = _evaluated(function, parameter) if is_typed else Any
        gets_run = annotation is Run or Run in get_args(annotation)
        gets_payload = False
        if is_typed and not gets_run and annotation not in _UNTYPED and not _may_be_a_run(annotation):
            from scheduler_async.jobs.payloads import is_structured  # noqa: PLC0415 - few need it

            gets_payload = parameter.name == PAYLOAD or is_structured(annotation)
        gets_run = gets_run or (parameter.name == RUN and not gets_payload)
        return cls(parameter.name, parameter.kind, parameter.default, annotation, gets_run, gets_payload)

    def reader(self, function: Handler) -> Reader | None:
        """Return what converts its value; None if JSON cannot represent its type and it has a default."""
        if self.is_untyped:
            return _unchanged
        from scheduler_async.jobs.payloads import UnreadableTypeError, reader_for  # noqa: PLC0415 - few need it

        try:
            return reader_for(self.annotation)
        except UnreadableTypeError as error:
            if not self.is_required and not self.gets_payload:
                return None  # other callers of the function may use it
            raise InvalidJobError(
                f"Handler {name_of_function(function)}() has a parameter {quoted(self.name)} whose type JSON cannot "
                f"represent: {error}. The scheduler fills parameters from the payload of the job. To get the run, "
                "annotate one with Run.",
                "handler",
            ) from error


_UNTYPED = (Any, object)


def _unchanged(value: Json, _where: str) -> Json:
    """Return *value* for a parameter without a type."""
    return value


def _by_name(
    function: Handler, found: Sequence[_Parameter], runs: Sequence[_Parameter], takes_rest: bool, is_strict: bool
) -> ByName:
    names = {one.name for one in runs}
    slots = (
        Slot(
            one.name,
            gets_run=one.name in names,
            reader=None if one.name in names and (one.gets_run or not one.is_untyped) else one.reader(function),
            default=one.default,
            is_positional=one.kind is inspect.Parameter.POSITIONAL_ONLY,
        )
        for one in found
    )
    return ByName(tuple(slots), takes_rest, is_strict)


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
