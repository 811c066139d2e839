"""Schedules that run once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from scheduler_async.errors import InvalidScheduleError
from scheduler_async.schedules.base import JSON_VERSION, Duration, Instant, Schedule, fill_in
from scheduler_async.timekeeping.instants import (
    Micros,
    describe_instant,
    iso_text,
    parse_instant,
    to_micros,
)


@dataclass(frozen=True, init=False)
class At(Schedule):
    """Runs once, at a given moment.

    >>> from scheduler_async import At
    >>> At("2026-06-15T09:00:00+02:00").at
    datetime.datetime(2026, 6, 15, 7, 0, tzinfo=datetime.timezone.utc)

    If the moment has passed when the job is added, the `misfire` option of the job decides: by default it runs now.
    After its run the job has ended: it is disabled, and stays listed.

    at
        An aware `datetime`, or ISO 8601 text with a zone, such as "2026-06-15T09:00:00Z".
    jitter=None
        The longest delay to add, as a duration such as "30s". The same job always has the same delay.
    start=None, end=None
        Bounds, as for other schedules. The moment must lie between them.
    """

    kind: ClassVar[str] = "at"
    runs_once = True
    at: datetime
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None
    _at: Micros = field(repr=False, compare=False)

    def __init__(
        self,
        at: Instant,
        *,
        jitter: Duration | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        moment = parse_instant(at)
        fill_in(self, at=moment, _at=to_micros(moment))
        self._set_bounds(jitter, start, end)
        if isinstance(self.jitter, float):
            raise InvalidScheduleError(
                'The jitter of an At must be a duration, such as jitter="30s": there is no interval to take a '
                "percentage of."
            )
        if (self.start and self.at < self.start) or (self.end and self.at > self.end):
            raise InvalidScheduleError(
                f"The moment {self.at.isoformat()} must lie between start and end; otherwise the job never runs. "
                "Leave the bounds out: an At runs only once."
            )

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._at if self._at > now else None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._at if self._at <= now else None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return min(int(after < self._at <= until), cap)

    def first_micros(self, now: Micros) -> Micros | None:
        return self._at  # even if it has passed: then the misfire policy decides

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"once at {describe_instant(self.at, zone)}{self._describe_bounds(zone)}"

    def json_text(self) -> str:
        if self.jitter is not None or self.start is not None or self.end is not None:
            return super().json_text()
        # Thousands may be added at once, each with a moment of its own, so a cache would not help.
        return f'{{"version":{JSON_VERSION},"kind":"at","at":"{iso_text(self.at)}"}}'

    def _parts(self) -> dict[str, Any]:
        return {"at": iso_text(self.at)}
