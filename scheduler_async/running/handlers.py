"""Handlers by name. A handler is an async function, or a plain function that runs in a thread."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scheduler_async.errors import HandlerNotFoundError, InvalidJobError, SchedulerError, quoted
from scheduler_async.jobs.run import Run
from scheduler_async.running.endings import can_be_awaited, ending_of_exception
from scheduler_async.running.signature import Arguments, Handler, name_of_function
from scheduler_async.shielding import carried_through
from scheduler_async.timekeeping.clock import Clock

if TYPE_CHECKING:
    from anyio import CapacityLimiter

# The scheduler has its own limits; threads must not add a hidden one.
MAX_THREADS = 10_000

_current_run: ContextVar[Run | None] = ContextVar("scheduler_async.current_run", default=None)


def current_run() -> Run:
    """Return the run that this code is part of: in a handler and what it calls, in its threads and tasks too."""
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

    def register(self, name: str, function: Handler, *, replace: bool = False) -> None:
        """Register *function* under *name*; raise if another function has that name, unless *replace* is true."""
        known = self._functions.get(name)
        if known is not None and known != function and not replace:
            raise InvalidJobError(
                f"Handler {quoted(name)} already exists ({name_of_function(known)}). Give this one another name, "
                "or pass replace=True.",
                "handler",
            )
        call, arguments = self._adapted(function), Arguments.of(function)
        self._by_name[name], self._functions[name], self._arguments[name] = call, function, arguments

    def remove(self, name: str) -> None:
        """Forget the handler of this name. Runs in progress keep it."""
        if name not in self._by_name:
            raise HandlerNotFoundError(name)
        del self._by_name[name], self._functions[name], self._arguments[name]

    def register_fallback(self, function: Handler) -> None:
        """Let *function* handle every job whose name has no handler of its own."""
        self._fallback = self._adapted(function)
        self._fallback_arguments = Arguments.of(function)

    def name_of(self, handler: str | Handler) -> str:
        """Return the name of *handler*, which is a name or a registered function."""
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
        """Return what to call for a job with this handler; None if there is nothing."""
        return self._by_name.get(name, self._fallback)

    def has(self, name: str) -> bool:
        """Return whether a function is registered under *name* itself."""
        return name in self._by_name

    @property
    def names(self) -> list[str] | None:
        """Return all names; None if there is a handler for any name."""
        return None if self._fallback else list(self._by_name)

    def _adapted(self, function: Handler) -> Callable[[Run], Awaitable[object]]:
        """Return *function* as an async function of a run."""
        if not callable(function):
            raise InvalidJobError(f"A handler is a function, not {quoted(function)}.", "handler")
        if _is_generator(function):
            raise InvalidJobError(
                f"Handler {name_of_function(function)}() must not contain yield: to call a generator function does "
                "none of its work. Write an async def without yield that iterates over the generator.",
                "handler",
            )
        arguments = Arguments.of(function)
        if _is_async(function):
            return function if arguments.are_the_run else lambda run: arguments.call(function, run)
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 - a program without plain handlers starts sooner

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
                    del answer  # break the cycle of the exception and this frame
            return await answer if can_be_awaited(answer) else answer

        return in_thread

    def forget_event_loop(self) -> None:
        """Drop what belongs to the current event loop; it is made again for the next one."""
        self._threads = None


class _Raised(NamedTuple):
    """An exception on its way out of a thread, wrapped so that nothing examines it."""

    error: BaseException


def _answer_of(arguments: Arguments, function: Handler, run: Run) -> object:
    """Return what *function* returns; a request to end the program is an error of this run, and ends nothing else."""
    try:
        return arguments.call(function, run)
    except (SystemExit, KeyboardInterrupt) as error:
        return ending_of_exception(error)
    except BaseException as error:
        return _Raised(error)


def _bodies(function: Handler) -> tuple[Callable[..., object], ...]:
    """Return what a call may execute: the function, the one within a partial, or `__call__` of an object."""
    inner = function.func if isinstance(function, partial) else function
    return inner, type(inner).__call__


def _is_async(function: Handler) -> bool:
    return any(map(inspect.iscoroutinefunction, _bodies(function)))


def _is_generator(function: Handler) -> bool:
    """Return whether a call only makes a generator. Those of `types.coroutine` do not count: they can be awaited."""
    return any(
        inspect.isasyncgenfunction(body)
        or (inspect.isgeneratorfunction(body) and not body.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
        for body in _bodies(function)
    )
