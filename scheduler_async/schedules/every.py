"""Schedules on a fixed grid. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from scheduler_async.schedules.base import Duration, Instant, Schedule, check_flag, fill_in, iso_or_none
from scheduler_async.timekeeping.durations import (
    describe_duration,
    format_interval,
    parse_interval,
    parse_stored_interval,
)
from scheduler_async.timekeeping.instants import (
    Micros,
    describe_instant,
    parse_instant,
    span,
    to_micros,
)


@dataclass(frozen=True, init=False)
class Every(Schedule):
    """Runs on a fixed grid: every *interval*, counted from *anchor*.

    How long a run takes does not move the grid. `Delay` counts from the end of the previous run instead.

    >>> from datetime import UTC, datetime
    >>> from scheduler_async import Every
    >>> Every("15m", anchor="2026-01-05T09:00:00Z").next_after(datetime(2026, 1, 5, 9, 20, tzinfo=UTC))
    datetime.datetime(2026, 1, 5, 9, 30, tzinfo=datetime.timezone.utc)
    >>> Every("1h", jitter="5%").describe()
    'every hour, up to 5% of the interval later'

    interval
        A duration such as "30s", "5m", "1h30m" or "1d", or a `timedelta`.
    anchor=None
        A moment on the grid: an aware `datetime`, or ISO 8601 text with a zone. If it lies in the future, it is the
        first run. None is the moment at which the job is added.
    immediately=False
        True runs the job once at the moment it is added. False waits for the first moment on the grid.
    jitter=None
        The longest delay to add to a run, to spread the load: a duration, or a percentage of the interval up to
        "10%". The same occurrence of a job always has the same delay.
    start=None, end=None
        The first and the last moment at which the job may run. None is no bound.
    """

    kind: ClassVar[str] = "every"
    interval: timedelta
    anchor: datetime | None
    immediately: bool
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None
    _step: Micros = field(repr=False, compare=False)
    _anchor: Micros | None = field(repr=False, compare=False)

    def __init__(
        self,
        interval: Duration,
        anchor: Instant | None = None,
        immediately: bool = False,
        *,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        step = parse_interval(interval)
        origin = None if anchor is None else parse_instant(anchor, "anchor")
        fill_in(
            self,
            interval=step,
            anchor=origin,
            immediately=check_flag(immediately),
            _step=span(step),
            _anchor=None if origin is None else to_micros(origin),
        )
        self._set_bounds(jitter, start, end)

    def next_after(self, now: datetime) -> datetime | None:
        """Return the first occurrence strictly after *now*, or None if no more will come."""
        if self.start is not None or self.end is not None or getattr(now, "tzinfo", None) is not UTC:
            return super().next_after(now)
        # What `next_micros` says, without the way there and back: that takes longer than the arithmetic.
        try:
            if self.anchor is None:
                return now + self.interval
            return self.anchor if now < self.anchor else now + (self.interval - (now - self.anchor) % self.interval)
        except OverflowError:
            return None

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        origin = anchor if self._anchor is None else self._anchor
        if origin is None:
            origin = now
        if self._start is not None:
            now = max(now, self._start - 1)
        step = self._step
        found = origin if now < origin else now + step - (now - origin) % step
        return found if found <= self._end else None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        origin = self._origin(anchor)
        if origin is None:
            return None
        now = min(now, self._end)
        latest = now - (now - origin) % self._step
        return latest if latest >= max(origin, self._start or origin) else None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        origin = self._origin(anchor)
        if origin is None:
            origin = after
        after = max(self._not_before_start(after), origin - 1)
        until = min(until, self._end)
        if until <= after:
            return 0
        return min((until - origin) // self._step - (after - origin) // self._step, cap)

    def first_micros(self, now: Micros) -> Micros | None:
        return self._until_end(max(now, self._start or now)) if self.immediately else super().first_micros(now)

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        if self._anchor is not None or anchor <= now:
            return anchor
        return now - (now - anchor) % self._step

    def begins_at(self, anchor: Micros) -> Micros:
        if self._anchor is not None:
            return self._anchor
        return anchor if self.immediately else anchor + self._step

    def raised_to(self, minimum: timedelta) -> Every:
        if self.interval >= minimum:
            return self
        return Every(minimum, self.anchor, self.immediately, jitter=self.jitter, start=self.start, end=self.end)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        anchor = f", counted from {describe_instant(self.anchor, zone)}" if self.anchor else ""
        return f"every {_one_dropped(self.interval)}{anchor}{self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {
            "interval": format_interval(self.interval),
            "anchor": iso_or_none(self.anchor),
            "immediately": self.immediately or None,
        }

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Every:
        return cls(parse_stored_interval(parts.pop("interval")), **parts)

    def _origin(self, anchor: Micros | None) -> Micros | None:
        return anchor if self._anchor is None else self._anchor

    def _gap_after(self, at: Micros, anchor: Micros | None) -> Micros | None:
        gap = super()._gap_after(at, anchor)  # shorter after the run that is due immediately
        return self._step if gap is None else min(gap, self._step)


def _one_dropped(interval: timedelta) -> str:
    """Return the words that follow "every": "hour" rather than "1 hour"."""
    words = describe_duration(interval)
    return words.removeprefix("1 ") if words.count(" ") == 1 else words
