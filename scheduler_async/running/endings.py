"""How a run ended, by what its handler returned or raised. No other module looks at these objects. Pure.

A JSON value that a handler returned is the result of the run. Other values are left out.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from scheduler_async.errors import InvalidJobError, PayloadError
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.json_text import to_small_json_text
from scheduler_async.jobs.result import Result
from scheduler_async.jobs.run import Ending
from scheduler_async.texts import describe_error, message_of, name_of_class, storable, traceback_of

# Where the calls are that lead to a handler.
_HERE = f"{Path(__file__).parent}{os.sep}"

# How most runs end.
SUCCESS = Ending(outcome=Outcome.SUCCESS)

# Handlers often return these types. To examine a value of another type takes a microsecond.
_PLAIN = frozenset({bool, bytes, dict, float, int, list, set, str, tuple})


def _ignore(_problem: str) -> None:
    """Do nothing about a result that is left out."""


def ending_of(answer: object, left_out: Callable[[str], None] = _ignore) -> Ending:
    """Return how a run ended whose handler returned *answer*.

    A JSON value becomes the result of the run. If it is too large, or not JSON, the run has no result, and *left_out*
    is called with the reason.
    """
    if answer is None:
        return SUCCESS
    if answer is False:
        return Ending(outcome=Outcome.SUCCESS, disable=True)
    try:
        return _ending_of_object(answer, left_out)
    except BaseException as error:  # user classes may do anything when they are examined
        return Ending(outcome=Outcome.ERROR, error=f"The handler returned a bad value: {describe_error(error)}")


def ending_of_exception(error: BaseException) -> Ending:
    """Return how a run ended whose handler raised *error*. This calls code of the user's."""
    return Ending(outcome=Outcome.ERROR, error=describe_error(error), traceback=traceback_for_record(error))


def traceback_for_record(error: BaseException | None) -> str | None:
    """Return where a handler failed; None if it did not, or was not called because its payload is wrong.

    The traceback begins with the call of the handler: the calls before it are the same for every run.
    """
    return None if error is None or issubclass(type(error), PayloadError) else traceback_of(error, below=_HERE)


def can_be_awaited(answer: object) -> TypeGuard[Awaitable[object]]:
    """Return whether *answer* is awaitable; False if it raises when it is examined."""
    try:
        return inspect.isawaitable(answer)
    except BaseException:
        return False


def _ending_of_object(answer: object, left_out: Callable[[str], None]) -> Ending:
    if type(answer) in _PLAIN:
        return _with_result(answer, left_out)
    if type(answer) is Ending:  # a subclass could not be recorded
        return answer
    if isinstance(answer, Outcome):
        return _told(Result(answer))
    if isinstance(answer, Result):
        # A subclass may have fields that `Result` refuses.
        is_plain = type(answer) is Result
        return _told(answer if is_plain else Result(answer.outcome, message=answer.message, exit_code=answer.exit_code))
    problem = _unfinished(answer)
    return _with_result(answer, left_out) if problem is None else Ending(outcome=Outcome.ERROR, error=problem)


def _with_result(answer: object, left_out: Callable[[str], None]) -> Ending:
    """Return the success of a run whose handler returned *answer*, which is its result if it is a JSON value."""
    try:
        return Ending(outcome=Outcome.SUCCESS, result=to_small_json_text(answer, "the result"))
    except InvalidJobError as error:
        left_out(message_of(error))
    except BaseException as error:  # user classes may do anything when they are converted
        left_out(f"converting it raised {describe_error(error)}")
    return SUCCESS


def _told(result: Result) -> Ending:
    message = None if result.message is None else storable(result.message)
    error = (message or result.outcome.value) if result.outcome.is_failure else None
    return Ending(outcome=result.outcome, error=error, message=message, exit_code=result.exit_code)


def _unfinished(answer: object) -> str | None:
    """Return what is wrong with an *answer* that stands for unfinished work; None if it does not."""
    if inspect.isawaitable(answer):
        if isinstance(answer, Coroutine):
            with suppress(BaseException):  # if it has begun, it may raise
                answer.close()  # Python would warn that it was never awaited
        advice = "Await it in the handler: return await ..."
    elif inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        advice = "Iterate over it in the handler."
    else:
        return None
    return f"The handler returned a value of type {name_of_class(type(answer))}, whose work has not been done. {advice}"
