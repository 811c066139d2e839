"""Schedules that users write: their answers are checked, and the rest is found by asking `next_after`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import ClassVar, NoReturn, Protocol

from scheduler_async.errors import InvalidScheduleError, SchedulerError, quoted
from scheduler_async.schedules.patience import CALLS, check_patience
from scheduler_async.texts import describe_error
from scheduler_async.timekeeping.instants import FIRST, LAST, SECOND, Micros, from_micros, to_micros

# The longest stretch in which the previous occurrence is searched.
_FURTHEST: Micros = 400 * 366 * 86_400 * SECOND

# Each costs a call of the user's code, which may be slow. A larger count of missed occurrences is no more useful.
MOST_COUNTED = 1_000


class Own(Protocol):
    """A schedule with its own `next_after`."""

    kind: ClassVar[str]

    def next_after(self, now: datetime) -> datetime | None:
        """Return the first occurrence strictly after *now*."""


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Call code of users. Whatever *what* raises, even `SystemExit`, becomes an `InvalidScheduleError`."""
    check_patience(what)
    try:
        yield
    except (SchedulerError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InvalidScheduleError(f"{what} raised {describe_error(error)[:300]}") from error
    finally:
        calls = CALLS.get()
        if calls is not None:
            calls.count += 1


def checked_next(schedule: Own, now: Micros) -> Micros | None:
    """Return the answer of a user's `next_after`, or raise `InvalidScheduleError` if it cannot be one."""
    asked = from_micros(min(max(now, FIRST), LAST))
    with calling(f"next_after() of the schedule {quoted(schedule.kind)}"):
        found: object = schedule.next_after(asked)
    if found is None:
        return None
    if not isinstance(found, datetime):
        _refuse(schedule, f"returned {quoted(found)}", "It must return an aware datetime or None")
    if found.utcoffset() is None:
        _refuse(schedule, f"returned {found.isoformat()}, which has no time zone", "It must return an aware datetime")
    try:
        at = to_micros(found.astimezone(UTC))
    except OverflowError:
        return None  # beyond the calendar
    if at <= now:
        _refuse(schedule, f"returned {found.isoformat()} for {asked.isoformat()}", "It must return a later time")
    return at


def _refuse(schedule: Own, what: str, remedy: str) -> NoReturn:
    raise InvalidScheduleError(f"next_after() of the schedule {quoted(schedule.kind)} {what}. {remedy}.")


def latest_by_asking(following: Callable[[Micros], Micros | None], now: Micros) -> Micros | None:
    """Return the last occurrence up to *now*, with about a hundred questions at most."""
    reach = SECOND
    found = None
    while found is None or found > now:
        if reach > _FURTHEST or now - reach < FIRST:
            return None
        found = following(now - reach)
        reach *= 2
    # An occurrence after `known` and up to `now` exists as long as the question from `known` finds it.
    known, beyond = found, now + 1
    while beyond - known > 1:
        middle = (known + beyond) // 2
        later = following(middle - 1)
        if later is not None and later <= now:
            known = later
        else:
            beyond = middle
    return known


def count_by_asking(following: Callable[[Micros], Micros | None], after: Micros, until: Micros, cap: int) -> int:
    """Return how many occurrences are later than *after* and not later than *until*, at most `MOST_COUNTED`."""
    total = 0
    while total < min(cap, MOST_COUNTED):
        found = following(after)
        if found is None or found > until:
            break
        total, after = total + 1, found
    return total
