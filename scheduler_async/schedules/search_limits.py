"""Where the search for occurrences on a calendar begins, and where it gives up. Pure."""

from __future__ import annotations

from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.instants import Micros, span

# Steps from one stretch of the calendar, or one occurrence, to the next: thirteen years of days. No call takes longer
# than some tens of milliseconds.
MOST_STEPS = 5_000

# Stretches of a calendar that are counted exactly: years of weeks.
MOST_STRETCHES = 1_000

# An occurrence is not moved further than this.
FURTHEST_DAYS = 366

# A calendar without a day inside for so long has none.
LONGEST_CLOSED = 60 * 366

# Occurrences that are looked at one by one to count those that meet.
MOST_COMPARED = 2_000


class Source:
    """The occurrences of a schedule before a calendar is asked, for a job whose schedule starts at *anchor*."""

    def __init__(self, schedule: Schedule, anchor: Micros | None) -> None:
        self.schedule, self.anchor = schedule, anchor
        self._begins = None if anchor is None else schedule.begins_at(anchor) - 1

    def after(self, at: Micros) -> Micros | None:
        """Return the first occurrence after *at*."""
        if self._begins is not None and at < self._begins:
            at = self._begins
        return self.schedule.next_micros(at, self.anchor)

    def not_before(self, known: Micros, at: Micros) -> Micros | None:
        """Return the first occurrence from *at* on. *known* is an earlier one."""
        if self.schedule.counts_from_end:
            interval = span(self.schedule.interval)  # type: ignore[attr-defined]
            return known - (known - at) // interval * interval
        return self.after(at - 1)

    def latest(self, at: Micros) -> Micros | None:
        """Return the last occurrence up to *at*."""
        found = self.schedule.latest_micros(at, self.anchor)
        return None if found is None or (self._begins is not None and found <= self._begins) else found

    def count(self, after: Micros, until: Micros, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*."""
        if self._begins is not None and after < self._begins:
            after = self._begins
        return self.schedule.count_micros(after, until, self.anchor, cap) if after < until else 0
