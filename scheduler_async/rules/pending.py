"""What a state keeps as JSON about a job that may have several runs, besides its next run. Pure.

A process of an older version leaves out items that it does not know.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from scheduler_async.timekeeping.instants import FIRST, LAST, Micros


class PendingRetry(NamedTuple):
    """A retry that is not claimed yet."""

    at: Micros
    """When it is due."""
    of: Micros
    """The occurrence to retry."""
    attempts: int
    """How many attempts at it were made."""


class Pending(NamedTuple):
    """The parts of a plan that have no columns of their own."""

    not_before: Micros | None = None
    """When the regular occurrence may run, if it is postponed and a retry precedes it."""
    retries: tuple[PendingRetry, ...] = ()
    """The retries besides the first."""
    catching_up: Micros | None = None
    """The missed occurrence that a run in progress makes up for."""

    @property
    def text(self) -> str | None:
        """The JSON, or None if there is nothing to keep."""
        items: list[list[Micros | None]] = [list(retry) for retry in self.retries]
        if self.not_before is not None:
            items.insert(0, [self.not_before, None])
        if self.catching_up is not None:
            items.insert(0, [self.catching_up])
        return json.dumps(items, separators=(",", ":")) if items else None


NOTHING = Pending()


def pending_in(text: str | None) -> Pending:
    """Return what a state keeps in *text*. An item that is damaged is left out."""
    items = [] if text is None else json.loads(text)
    not_before, retries, catching_up = None, [], None
    for item in items if isinstance(items, list) else ():
        match item:
            case [int(of)] if _is_moment(of):
                catching_up = of
            case [int(at), None] if _is_moment(at):
                not_before = at
            case [int(at), int(of), int(attempts)] if _is_moment(at) and _is_moment(of) and attempts >= 0:
                retries.append(PendingRetry(at, of, attempts))
    return Pending(not_before, tuple(retries), catching_up)


def without_retries(text: str | None) -> str | None:
    """Return *text* for a job that owes no retries any more. Its runs in progress go on."""
    return None if text is None else Pending(catching_up=pending_in(text).catching_up).text


def _is_moment(value: int) -> bool:
    return FIRST <= value <= LAST
