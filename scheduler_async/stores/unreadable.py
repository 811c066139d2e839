"""Rows that cannot be read: the valid values of columns, the problem of a row, and one warning for each row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from logging import WARNING
from typing import Any, TypeAlias, TypeGuard

from scheduler_async.errors import quoted
from scheduler_async.jobs.job import MOST_COUNTED
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.logs import say
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

# Only this many rows are named. A store with more is damaged, and naming all of them would take unlimited memory.
MOST_NAMED = 1_000


# The kernel assigns no higher process id.
LARGEST_PID = 2**31 - 1


class UnreadableRows:
    """The rows that a store failed to read. The threads of its connections may add to them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, object], object] = {}
        self._news: deque[tuple[object, ...]] = deque()
        self._has_more = False
        self._has_told_of_more = False

    def add(self, table: str, number: object, problem: Unreadable) -> None:
        """Record that row *number* of *table* cannot be read. `tell` logs each row once."""
        row = table, number
        if len(self._known) >= MOST_NAMED:
            self._has_more = self._has_more or row not in self._known
            return
        this = object()
        if self._known.setdefault(row, this) is this:
            self._news.append((table, number, problem.column, problem.why))

    def tell(self) -> None:
        """Log a warning for each row that was added since the last call, and one warning if there are too many.

        Only one thread may call it.
        """
        while self._news:
            table, number, column, why = self._news.popleft()
            words = 'Cannot read row %s of table "%s": column "%s": %s. The row stays unchanged'
            say(WARNING, words, number, table, column, why, extra={"table": table, "row": number, "column": column})
        if self._has_more and not self._has_told_of_more:
            self._has_told_of_more = True
            say(WARNING, "More than %d rows of the store cannot be read; further rows are not logged", MOST_NAMED)


# ---------------------------------------------------------------- the values of columns

Reader: TypeAlias = Callable[[Any], Any]
"""Returns the value of a column, or raises a `ValueError` that names the problem."""


def moment(value: Any) -> Micros:
    """Read a time that a datetime can represent."""
    if type(value) is not int or not FIRST <= value <= LAST:
        raise ValueError(f"{quoted(value)} is not a time between the years 1 and 9999")
    return value


def is_moment(value: object) -> TypeGuard[int]:
    """Return whether *value* is a time that a datetime can represent."""
    return type(value) is int and FIRST <= value <= LAST


def count(value: Any) -> int:
    """Read a count."""
    if type(value) is not int or not 0 <= value <= MOST_COUNTED:
        raise ValueError(f"{quoted(value)} is not a number from 0 to {MOST_COUNTED}")
    return value


def is_count(value: object) -> TypeGuard[int]:
    """Return whether *value* is a count."""
    return type(value) is int and 0 <= value <= MOST_COUNTED


def number(value: Any) -> int:
    """Read a whole number."""
    if type(value) is not int:
        raise ValueError(f"{quoted(value)} is not a whole number")
    return value


def duration(value: Any) -> Micros:
    """Read a positive duration in microseconds."""
    if type(value) is not int or value <= 0:
        raise ValueError(f"{quoted(value)} is not a positive number of microseconds")
    return value


def pid(value: Any) -> int:
    """Read a process id."""
    if type(value) is not int or not 0 < value <= LARGEST_PID:
        raise ValueError(f"{quoted(value)} is not a process id")
    return value


def text(value: Any) -> str:
    """Read any string."""
    if type(value) is not str:
        raise ValueError(f"{quoted(value)} is not a string")
    if not is_text(value):
        raise ValueError("it is not valid UTF-8")
    return value


def is_text(value: str) -> bool:
    """Return whether *value* was valid UTF-8. `decoded` marks invalid bytes."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def name(value: Any) -> str:
    """Read a name."""
    if not text(value).isprintable():
        raise ValueError(f"{quoted(value)} contains characters that cannot be printed")
    return str(value)


def is_name(value: Any) -> bool:
    """Return whether *value* can be a name."""
    return problem_of("", name, value) is None


def one_of(members: Mapping[str, object]) -> Reader:
    """Return a reader of the values of an enum; *members* are its members by their values."""

    def read(value: Any) -> object:
        if not isinstance(value, str) or value not in members:
            raise ValueError(f"{quoted(value)} is not one of {', '.join(members)}")
        return members[value]

    return read


def optional(read: Reader) -> Reader:
    """Return a reader of None, or of what *read* reads."""
    return lambda value: None if value is None else read(value)


def first_problem(readers: Mapping[str, Reader], row: Sequence[Any]) -> Unreadable | None:
    """Return the first problem of *row*, whose columns have these *readers*; None if all of it can be read."""
    for (column, read), value in zip(readers.items(), row, strict=True):
        problem = problem_of(column, read, value)
        if problem is not None:
            return problem
    return None


def problem_of(column: str, read: Reader, value: Any) -> Unreadable | None:
    """Return the problem with *value* in *column*, or None."""
    try:
        read(value)
    except RecursionError:
        return Unreadable(column, "it is nested too deeply")
    except Exception as error:  # one row must not stop the others
        return Unreadable(column, shown_text(str(error)) or type(error).__name__)
    return None


# ---------------------------------------------------------------- text


def decoded(data: bytes) -> str:
    """Return *data* as text. Invalid UTF-8 is marked, so that `is_text` finds it."""
    return data.decode("utf-8", "surrogateescape")


def shown_text(value: object) -> str:
    r"""Return *value* as text that can be displayed and stored. Invalid UTF-8 becomes "\xff"."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if is_text(value):
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate that no decoding has made
        return value.encode("utf-8", "backslashreplace").decode()


def shown_moment(value: Any) -> Micros | None:
    """Return *value* if it is a valid time, else None."""
    return value if is_moment(value) else None
