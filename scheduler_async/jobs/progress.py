"""How far a run has come, as its handler reports it. Pure."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple, NoReturn, TypeGuard

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.texts import storable

# Long enough for a sentence. It is stored each second.
LONGEST_MESSAGE = 1_000  # characters


class ProgressReport(NamedTuple):
    """What a handler has reported."""

    share: float | None
    """How much is done, from 0 to 1; None if the total is unknown."""
    message: str | None


def read_report(done: object, total: object, message: object) -> ProgressReport:
    """Return the arguments of `Run.progress` as a report; raise `InvalidJobError` if they are not valid."""
    if not _is_number(done):
        _refuse("done", f"must be a number, such as 3 of 10: run.progress(3, 10), not {quoted(done)}")
    if total is not None and (not _is_number(total) or total < 0):
        _refuse("total", f"must be a number from 0 up, or None, not {_shown(total)}")
    if message is not None and not isinstance(message, str):
        _refuse("message", f"must be a string or None, not {quoted(message)}")
    if total is None and done < 0:
        _refuse("done", f"must be a share from 0 to 1, or a number with a total, not {_shown(done)}")
    return ProgressReport(_share(done, total), None if message is None else storable(message[:LONGEST_MESSAGE]))


def _share(done: float, total: float | None) -> float | None:
    if total is None:
        # A whole number counts. Of what is not known: 1 may be the first of many, and not all of it.
        return float(done) if isinstance(done, float) and done <= 1 else None
    # Of nothing, everything is done. A whole number may be too large for a float.
    return 1.0 if total == 0 or done >= total else 0.0 if done <= 0 else float(done / total)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or isfinite(value)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else quoted(value)


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidJobError(f"{field} {problem}.", field)
