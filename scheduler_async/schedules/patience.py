"""Whether there is time to call what may take long: code of users, and the library of public holidays. Pure.

`stores/decided.py` says why there is none within a transaction.
"""

from __future__ import annotations

from contextvars import ContextVar

from scheduler_async.errors import InvalidScheduleError

IN_TRANSACTION: ContextVar[bool] = ContextVar("IN_TRANSACTION", default=False)
"""Whether the caller is within a transaction of a store."""

GIVEN_UP: ContextVar[str | None] = ContextVar("GIVEN_UP", default=None)
"""Why code of users is not called any more, if it is not."""

PATIENCE = 10.0  # seconds
"""A schedule that does not answer within this time counts as failing."""


class Calls:
    """How many calls of users' code have returned while a decision is made? Another thread may look."""

    count = 0


CALLS: ContextVar[Calls | None] = ContextVar("CALLS", default=None)
"""Counts the calls of the decision that this thread makes."""


class TakesLong(Exception):  # noqa: N818 - a message to the store, which users never see
    """A schedule cannot be read at once."""


def check_time() -> None:
    """Raise `TakesLong` within a transaction. Call it before something that may take long."""
    if IN_TRANSACTION.get():
        raise TakesLong


def check_patience(what: str, error: type[InvalidScheduleError] = InvalidScheduleError) -> None:
    """Raise *error* if *what* may take long, and was given up before."""
    problem = GIVEN_UP.get()
    if problem is not None:
        raise error(f"{what} {problem}")
