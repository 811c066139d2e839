"""A stored schedule of a kind that this process does not know. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any, ClassVar

from scheduler_async.errors import UnknownScheduleError, quoted
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.instants import Micros


@dataclass(frozen=True)
class UnknownSchedule(Schedule):
    """Stands for a schedule that another process wrote. The scheduler leaves its job alone, and never changes it.

    The rules see a schedule that is due at once and has missed nothing: `stores/decisions.py` says what becomes of it.
    """

    kind: ClassVar[str] = "unknown"
    is_known = False
    counts_from_end = True
    text: str
    problem: str

    @classmethod
    def of(cls, text: str, error: UnknownScheduleError) -> UnknownSchedule:
        """Return the schedule that *text* describes, which cannot be read because of *error*."""
        what = str(error) if error.kind is None else f"its schedule is of the unknown kind {quoted(error.kind)}"
        return cls(text, what)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return now + 1

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"by a schedule that this process does not know ({self.problem})"

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = json.loads(self.text)
        return form

    def json_text(self) -> str:
        return self.text


@dataclass(frozen=True)
class UnreadSchedule(UnknownSchedule):
    """Stands for a schedule that a transaction cannot read, since that may take long. See `stores/decided.py`."""

    kind: ClassVar[str] = "unread"
    may_be_slow = True
    reader: Callable[[str], Schedule] = field(compare=False)

    def read(self) -> Schedule:
        """Read the schedule. The next transaction finds it, or why it cannot be read, in a cache."""
        return self.reader(self.text)
