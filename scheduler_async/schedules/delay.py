"""Schedules that count from the end of the previous run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from scheduler_async.schedules.base import Duration, Instant, Schedule, check_flag, fill_in
from scheduler_async.timekeeping.durations import (
    describe_duration,
    format_interval,
    parse_interval,
    parse_stored_interval,
)
from scheduler_async.timekeeping.instants import (
    Micros,
    span,
)


@dataclass(frozen=True, init=False)
class Delay(Schedule):
    """Runs one *interval* after the previous run has finished, so that two runs never follow each other closely.

    >>> from scheduler_async import Delay
    >>> Delay("5m").describe()
    '5 minutes after the previous run finished'

    interval
        A duration such as "30s", "5m", "1h30m" or "1d", or a `timedelta`.
    immediately=True
        True runs the job for the first time as soon as it is added. False waits for one interval.
    jitter=None
        The longest delay to add to a run: a duration, or a percentage of the interval up to "10%". The same occurrence
        of a job always has the same delay.
    start=None, end=None
        The first and the last moment at which the job may run: aware `datetime`s, or ISO 8601 text with a zone.
        None is no bound.
    """

    kind: ClassVar[str] = "delay"
    counts_from_end = True
    interval: timedelta
    immediately: bool
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None

    def __init__(
        self,
        interval: Duration,
        immediately: bool = True,
        *,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        fill_in(self, interval=parse_interval(interval), immediately=check_flag(immediately))
        self._set_bounds(jitter, start, end)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._until_end(max(now + span(self.interval), self._start or now))

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0  # each occurrence depends on the run before it, so none can be missed

    def first_micros(self, now: Micros) -> Micros | None:
        return self._until_end(max(now, self._start or now)) if self.immediately else super().first_micros(now)

    def raised_to(self, minimum: timedelta) -> Delay:
        if self.interval >= minimum:
            return self
        return Delay(minimum, self.immediately, jitter=self.jitter, start=self.start, end=self.end)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"{describe_duration(self.interval)} after the previous run finished{self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {"interval": format_interval(self.interval), "immediately": None if self.immediately else False}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Delay:
        return cls(parse_stored_interval(parts.pop("interval")), **parts)

    def _gap_after(self, at: Micros, anchor: Micros | None) -> Micros | None:
        return span(self.interval)
