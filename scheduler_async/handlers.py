"""Names and the functions behind them. A handler is an async function; a plain one runs in a thread."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

from scheduler_async.arguments import Arguments, Handler, name_of_function
from scheduler_async.clock import Clock
from scheduler_async.errors import InvalidJobError, SchedulerError, quoted
from scheduler_async.models import Ending, Outcome, Result, Run
from scheduler_async.tasks import carried_through

if TYPE_CHECKING:
    from anyio import CapacityLimiter

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
        self._arguments: dict[str, Arguments] = {}
        self._fallback_arguments: Arguments | None = None
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
        self._arguments[name] = Arguments.of(function)

    def register_fallback(self, function: Handler) -> None:
        """Let *function* handle every job whose name has no handler of its own."""
        self._fallback = self._adapted(function)
        self._fallback_arguments = Arguments.of(function)

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
        arguments = Arguments.of(function)
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


def _is_async(function: Handler) -> bool:
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


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
