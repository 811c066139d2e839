"""Names and the functions behind them. A handler is an async function; a plain one runs in a thread."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, get_args, get_type_hints

from scheduler_async.clock import Clock
from scheduler_async.errors import InvalidJobError, SchedulerError, quoted
from scheduler_async.models import Ending, Json, Outcome, Result, Run
from scheduler_async.tasks import carried_through

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from scheduler_async.payloads import Reader

Handler: TypeAlias = Callable[..., Any]
"""What users register: async or plain, with a `Run` or without."""

# The scheduler has limits of its own; threads shall not add a hidden one.
MAX_THREADS = 10_000

_current_run: ContextVar[Run | None] = ContextVar("scheduler_async.current_run", default=None)


def current_run() -> Run:
    """The run this code is part of: anywhere below a handler, in its threads and tasks too."""
    run = _current_run.get()
    if run is None:
        raise SchedulerError("No run is in progress here. current_run() works inside a handler and what it calls.")
    return run


class Handlers:
    """The handlers of one scheduler, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Callable[[Run], Awaitable[object]]] = {}
        self._functions: dict[str, Handler] = {}
        self._arguments: dict[str, _Arguments] = {}
        self._fallback_arguments: _Arguments | None = None
        self._fallback: Callable[[Run], Awaitable[object]] | None = None
        self._threads: CapacityLimiter | None = None

    def register(self, name: str, function: Handler) -> None:
        """Give *function* a name; a name has one function."""
        known = self._functions.get(name)
        if known is not None and known != function:
            raise InvalidJobError(
                f"There is a handler {quoted(name)} already ({name_of_function(known)}). Give this one another name.",
                "handler",
            )
        self._by_name[name] = self._adapted(function)
        self._functions[name] = function
        self._arguments[name] = _Arguments.of(function)

    def register_fallback(self, function: Handler) -> None:
        """Let *function* handle every job whose name has no handler of its own."""
        self._fallback = self._adapted(function)
        self._fallback_arguments = _Arguments.of(function)

    def name_of(self, handler: str | Handler) -> str:
        """The name of *handler*, which is one already or a registered function."""
        if isinstance(handler, str):
            return handler
        for name, function in self._functions.items():
            if function == handler:
                return name
        label = name_of_function(handler)
        raise InvalidJobError(
            f"The function {label} is not registered. Put @scheduler.handler({quoted(label)}) above it, "
            "or pass the name of a handler.",
            "handler",
        )

    def check_payload(self, name: str, payload_json: str) -> None:
        """Raise a `PayloadError` if the handler of this *name* is here and takes another payload."""
        arguments = self._arguments.get(name, self._fallback_arguments)
        if arguments is not None and arguments.reader is not None:
            arguments.payload_of(json.loads(payload_json))

    def find(self, name: str) -> Callable[[Run], Awaitable[object]] | None:
        """What to call for a job with this handler."""
        return self._by_name.get(name, self._fallback)

    def has(self, name: str) -> bool:
        """Whether a function of its own stands behind *name*."""
        return name in self._by_name

    @property
    def names(self) -> list[str] | None:
        """All names there are; None when any will do."""
        return None if self._fallback else list(self._by_name)

    def _adapted(self, function: Handler) -> Callable[[Run], Awaitable[object]]:
        """*function* as an async function of a run."""
        if not callable(function):
            raise InvalidJobError(f"A handler is a function, not {quoted(function)}.", "handler")
        arguments = _Arguments.of(function)
        if _is_async(function):
            return function if arguments.are_the_run else lambda run: arguments.call(function, run)
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 - a program without plain handlers starts sooner

        async def in_thread(run: Run) -> object:
            if self._threads is None:
                self._threads = CapacityLimiter(MAX_THREADS)
            work = partial(arguments.call, function, run)
            with self._clock.working_in_thread():
                # A thread cannot be stopped: it is waited for, so that the job does not run twice at once.
                answer = await carried_through(to_thread.run_sync(_without_exit(work), limiter=self._threads))
            return await answer if inspect.isawaitable(answer) else answer

        return in_thread

    def forget_event_loop(self) -> None:
        """What belongs to an event loop is made anew for the next one."""
        self._threads = None


def _without_exit(work: Callable[[], object]) -> Callable[[], object]:
    """*work*, whose wish to end the program is an error like others: it would not get further than its thread."""

    def call() -> object:
        try:
            return work()
        except SystemExit as error:
            return ending_of_exception(error)

    return call


def name_of_function(function: Handler) -> str:
    """What a function calls itself; a partial is called as what it calls, and an object as its class."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def _is_async(function: Handler) -> bool:
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


RUN, PAYLOAD = "run", "payload"
NONE = inspect.Parameter.empty


class _Arguments(NamedTuple):
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
    def of(cls, function: Handler) -> _Arguments:
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
    from scheduler_async.payloads import UnreadableTypeError, is_structured, reader_for  # noqa: PLC0415 - few need it

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
    except (NameError, AttributeError, TypeError) as error:
        # Imported for type checkers only, as `Run` often is.
        if parameter.name == RUN or re.search(r"\bRun\b", str(parameter.annotation)):
            return Run
        raise InvalidJobError(
            f"The handler {name_of_function(function)} is annotated with {quoted(parameter.annotation)}, which is not "
            f"known where it is registered ({error}). Define it before, or import it for more than type checkers.",
            "handler",
        ) from error


def _names_of_caller() -> dict[str, Any]:
    """The variables where a handler is registered: a type may have been defined there, within a function."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scheduler_async."):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


# What most runs come to.
SUCCESS = Ending(outcome=Outcome.SUCCESS)


def ending_of(answer: object) -> Ending:
    """What a handler's answer says about its run."""
    match answer:
        case None | True:
            return SUCCESS
        case False:
            return Ending(outcome=Outcome.SUCCESS, disable=True)
        case Ending():
            return answer
        case Outcome():
            try:
                return _told(Result(answer))
            except InvalidJobError as error:
                return ending_of_exception(error)
        case Result():
            return _told(answer)
        case _:
            return SUCCESS


def _told(result: Result) -> Ending:
    error = (result.message or result.outcome.value) if result.outcome.is_failure else None
    return Ending(outcome=result.outcome, error=error, message=result.message, exit_code=result.exit_code)


def ending_of_exception(error: BaseException) -> Ending:
    """What an exception says about the run that raised it."""
    name = type(error).__name__
    try:
        words = str(error)
    except Exception as failure:  # some exceptions cannot be put into words
        words = f"its text cannot be had ({type(failure).__name__})"
    return Ending(outcome=Outcome.ERROR, error=f"{name}: {words}" if words else name)
