"""The value that a handler may return to report how its run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.enums import Outcome, check_choice

ANSWERS = (Outcome.SUCCESS, Outcome.NOOP, Outcome.SKIPPED, Outcome.ERROR)
"""The outcomes that a handler may return."""


MAX_EXIT_CODE = 2**32


@dataclass(frozen=True, kw_only=True)
class Result:
    """The value that a handler may return to say how its run ended. Without one, the outcome is "success".

    >>> from scheduler_async import Outcome, Result
    >>> Result(Outcome.NOOP, message="nothing to sync")
    Result(outcome=<Outcome.NOOP: 'noop'>, message='nothing to sync', exit_code=None)

    outcome="success"
        "success", "noop" (nothing to do), "skipped" or "error". Only "error" counts as a failure.
    message=None
        A text for the run log.
    exit_code=None
        A whole number for the run log.
    """

    outcome: Outcome = Outcome.SUCCESS
    message: str | None = None
    exit_code: int | None = None

    def __init__(
        self, outcome: Outcome | str = Outcome.SUCCESS, *, message: str | None = None, exit_code: int | None = None
    ) -> None:
        chosen = check_choice(Outcome, outcome, "outcome")
        if chosen not in ANSWERS:
            _refuse_result(
                "outcome", f"must be one of {', '.join(ANSWERS)}, not {chosen}: only the scheduler sets the others"
            )
        if message is not None and not isinstance(message, str):
            _refuse_result("message", f"must be a string, not {quoted(message)}")
        if exit_code is not None and (type(exit_code) is not int or abs(exit_code) > MAX_EXIT_CODE):
            _refuse_result("exit_code", f"must be a whole number of at most {MAX_EXIT_CODE}, not {quoted(exit_code)}")
        object.__setattr__(self, "outcome", chosen)
        object.__setattr__(self, "message", message)
        object.__setattr__(self, "exit_code", exit_code)


def _refuse_result(what: str, problem: str) -> NoReturn:
    raise InvalidJobError(f"Result.{what} {problem}.", what)
