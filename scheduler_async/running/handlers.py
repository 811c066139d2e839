"""The handlers of a scheduler, by name. A handler is an async function; a plain function runs in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scheduler_async.errors import HandlerNotFoundError, InvalidJobError, SchedulerError, StoreError, quoted
from scheduler_async.jobs.json_text import from_json_text
from scheduler_async.jobs.names import check_name
from scheduler_async.jobs.run import Run
from scheduler_async.running.endings import can_be_awaited, ending_of_exception
from scheduler_async.running.signature import Arguments, Handler, name_of_function
from scheduler_async.shielding import carried_through
from scheduler_async.texts import name_of_class
from scheduler_async.timekeeping.clock import Clock

if TYPE_CHECKING:
    from anyio import CapacityLimiter

# The scheduler has its own limits. The thread pool must not add a hidden limit.
MAX_THREADS = 10_000

_current_run: ContextVar[Run | None] = ContextVar("scheduler_async.current_run", default=None)


def current_run() -> Run:
    """Return the current run. It works in a handler and in the functions, threads and tasks that the handler starts."""
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
        self._tentative: dict[str, int] = {}  # registered for calls that may still fail, and for how many of them
        self._fallback_arguments: Arguments | None = None
        self._fallback: Callable[[Run], Awaitable[object]] | None = None
        self._threads: CapacityLimiter | None = None

    def register(self, name: str, function: Handler, *, replace: bool = False) -> None:
        """Register *function* under *name*. Replace another function only if *replace* is true."""
        known = self._functions.get(name)
        if known is not None and known != function and not replace:
            raise InvalidJobError(
                f"Handler {quoted(name)} already exists ({name_of_function(known)}). Give this one another name, "
                "or pass replace=True.",
                "handler",
            )
        call, arguments = self._adapted(function), Arguments.of(function)
        self._by_name[name], self._functions[name], self._arguments[name] = call, function, arguments
        self._tentative.pop(name, None)

    def remove(self, name: str) -> None:
        """Remove the handler with this name. Runs in progress keep it."""
        if name not in self._by_name:
            raise HandlerNotFoundError(name)
        del self._by_name[name], self._functions[name], self._arguments[name]
        self._tentative.pop(name, None)

    def register_fallback(self, function: Handler) -> None:
        """Use *function* for every job whose handler name is not registered."""
        self._fallback = self._adapted(function)
        self._fallback_arguments = Arguments.of(function)

    def name_of(self, handler: str | Handler) -> str:
        """Return the name of *handler*, which is a name or a function. Register a function that is not registered."""
        if isinstance(handler, str):
            return handler
        for name, function in self._functions.items():
            if function == handler:
                return name
        own_name = getattr(handler, "__name__", None)
        if not isinstance(own_name, str) or own_name == "<lambda>":
            kind = "lambda" if own_name == "<lambda>" else name_of_class(type(handler))
            raise InvalidJobError(
                f"A {kind} has no name under which a job could find its handler after a restart. Register it with "
                'scheduler.handler("send")(function), and pass handler="send".',
                "handler",
            )
        self.register(check_name(own_name, "handler"), handler)
        return own_name

    def forgotten_on_error(self) -> AbstractContextManager[set[str]]:
        """Return a scope with a set for `register_for`. If the call is refused, forget what it has registered.

        Handlers stay if another call uses them meanwhile. They also stay if the call is cancelled or the store fails,
        since the store may have added the job all the same.
        """
        return _ForgottenOnError(self)

    def forget(self, used: set[str]) -> None:
        """Remove the handlers that only the call with *used* has registered."""
        for name in used & self._tentative.keys():
            self._tentative[name] -= 1
            if not self._tentative[name]:
                self.remove(name)

    def register_for(self, used: set[str], function: Handler) -> None:
        """Register *function* under its name, if it is not registered, for the call that *used* belongs to."""
        known = set(self._by_name)
        name = self.name_of(function)
        if name not in known:
            self._tentative[name] = 0
        if name in self._tentative and name not in used:
            self._tentative[name] += 1
            used.add(name)

    def keep(self, used: set[str]) -> None:
        """Keep the handlers that the call with *used* has registered."""
        for name in used:
            self._tentative.pop(name, None)

    def check_payload(self, name: str, payload_json: str) -> None:
        """Raise a `PayloadError` if the handler *name* is registered here and does not accept the payload."""
        arguments = self._arguments.get(name, self._fallback_arguments)
        if arguments is not None and arguments.checks_payload:
            arguments.check(from_json_text(payload_json))

    def find(self, name: str) -> Callable[[Run], Awaitable[object]] | None:
        """Return the function to call for jobs with this handler name, or None."""
        return self._by_name.get(name, self._fallback)

    def has(self, name: str) -> bool:
        """Return whether a function is registered under *name*. The fallback does not count."""
        return name in self._by_name

    @property
    def names(self) -> list[str] | None:
        """The registered names. None means any name, because a fallback exists."""
        return None if self._fallback else list(self._by_name)

    def _adapted(self, function: Handler) -> Callable[[Run], Awaitable[object]]:
        """Return *function* as an async function that takes a run."""
        if not callable(function):
            raise InvalidJobError(f"A handler must be a function, not {quoted(function)}.", "handler")
        if _is_generator(function):
            raise InvalidJobError(
                f"Handler {name_of_function(function)}() must not contain yield: calling a generator function does "
                "none of its work. Write an async def without yield that iterates over the generator.",
                "handler",
            )
        arguments = Arguments.of(function)
        if _is_async(function):
            return function if arguments.are_the_run else lambda run: arguments.call(function, run)
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 - a program without plain handlers starts faster

        async def in_thread(run: Run) -> object:
            if self._threads is None:
                self._threads = CapacityLimiter(MAX_THREADS)
            work = partial(_answer_of, arguments, function, run)
            with self._clock.working_in_thread():
                # A thread cannot be stopped. Wait for it, so that the job does not run twice at once.
                answer = await carried_through(to_thread.run_sync(work, limiter=self._threads))
            if type(answer) is _Raised:
                try:
                    raise answer.error
                finally:
                    del answer  # avoid a reference cycle with the exception
            return await answer if can_be_awaited(answer) else answer

        return in_thread

    def forget_event_loop(self) -> None:
        """Drop the objects that belong to the event loop. The next event loop gets new ones."""
        self._threads = None


class _ForgottenOnError(AbstractContextManager[set[str]]):
    """The scope of `Handlers.forgotten_on_error`."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._used: set[str] = set()

    def __enter__(self) -> set[str]:
        return self._used

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, StoreError):
            self._handlers.forget(self._used)
        else:
            self._handlers.keep(self._used)


class _Raised(NamedTuple):
    """An exception that a thread returns instead of raising it."""

    error: BaseException


def _answer_of(arguments: Arguments, function: Handler, run: Run) -> object:
    """Return the answer of *function*. If it exits the program, that is an error that ends only its thread."""
    try:
        return arguments.call(function, run)
    except KeyboardInterrupt as error:  # raised again, it would end the event loop
        return ending_of_exception(error)
    except BaseException as error:
        return _Raised(error)


def _bodies(function: Handler) -> tuple[Callable[..., object], ...]:
    """Return the functions that may contain the code of a handler: itself, a partial's function, or `__call__`."""
    inner = function.func if isinstance(function, partial) else function
    return inner, type(inner).__call__


def _is_async(function: Handler) -> bool:
    return any(map(inspect.iscoroutinefunction, _bodies(function)))


def _is_generator(function: Handler) -> bool:
    """Return whether a call only creates a generator. A `types.coroutine` does not count, because it can be awaited."""
    return any(
        inspect.isasyncgenfunction(body)
        or (inspect.isgeneratorfunction(body) and not body.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
        for body in _bodies(function)
    )
