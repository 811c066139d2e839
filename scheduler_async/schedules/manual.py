"""Schedules that never run by themselves. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any, ClassVar

from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.instants import (
    Micros,
)


@dataclass(frozen=True)
class Manual(Schedule):
    """Never runs by itself, only through `Scheduler.trigger_job`: for a webhook, a chat message or a button.

    >>> from datetime import UTC, datetime
    >>> from scheduler_async import Manual
    >>> print(Manual().next_after(datetime(2026, 1, 5, tzinfo=UTC)))
    None
    """

    kind: ClassVar[str] = "manual"
    runs_by_itself = False
    jitter: None = field(default=None, init=False, repr=False)
    start: None = field(default=None, init=False, repr=False)
    end: None = field(default=None, init=False, repr=False)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return "only when triggered"

    def _parts(self) -> dict[str, Any]:
        return {}
