"""Schedules by cron expression: the expression itself is read in `cron_line`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from scheduler_async.schedules.base import Duration, Instant, Schedule, fill_in
from scheduler_async.schedules.cron_english import describe_line
from scheduler_async.schedules.cron_line import parse_cron
from scheduler_async.timekeeping.instants import (
    SECOND,
    Micros,
)
from scheduler_async.timekeeping.zones import Zone, check_zone, find_zone


@dataclass(frozen=True, init=False)
class Cron(Schedule):
    """Runs at the times of a cron *expression*, on the clocks of the time zone *tz*.

    >>> from datetime import UTC, datetime
    >>> from scheduler_async import Cron
    >>> weekdays = Cron("0 9 * * 1-5", tz="Europe/Stockholm")
    >>> weekdays.describe()
    'at 09:00 on Monday to Friday (Europe/Stockholm)'
    >>> weekdays.next_after(datetime(2026, 1, 3, 12, tzinfo=UTC))  # a Saturday
    datetime.datetime(2026, 1, 5, 8, 0, tzinfo=datetime.timezone.utc)

    An expression has five fields: minute (0-59), hour (0-23), day of month (1-31), month (1-12 or JAN-DEC) and day of
    week (0-7 or SUN-SAT; 0 and 7 are Sunday). A sixth field may come first: second (0-59). A field takes "*", values,
    ranges ("1-5"), lists ("1,15") and steps ("*/15", "8-18/2"). "L" is the last day of the month, "LW" the last
    weekday, "L-3" three days before the last day, "15W" the weekday nearest to the 15th, "5L" the last Friday and "1#2"
    the second Monday. If both day fields are restricted, a day matches either of them. The names "@hourly",
    "@daily", "@midnight", "@weekly", "@monthly", "@yearly" and "@annually" work too.

    Around daylight saving time, "30 2 * * *" runs exactly once every day, and "*/15 * * * *" keeps running every
    fifteen minutes.

    expression
        The cron expression, as text. `CronParseError.field` names a field that is not valid.
    tz=None
        A name such as "Europe/Stockholm", an offset such as "+05:30", a `ZoneInfo`, or a `tzinfo` with a fixed offset.
        None is the `timezone` of the scheduler, or else the time zone of the system.
    jitter=None
        The longest delay to add to a run, to spread the load: a duration such as "30s", or a percentage of the time to
        the next run up to "10%". The same occurrence of a job always has the same delay.
    start=None, end=None
        The first and the last moment at which the job may run: aware `datetime`s, or ISO 8601 text with a zone.
        None is no bound.
    """

    kind: ClassVar[str] = "cron"
    expression: str
    tz: str | None
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None

    def __init__(
        self,
        expression: str,
        tz: str | tzinfo | None = None,
        *,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        line = parse_cron(expression)
        fill_in(self, expression=line.text, tz=None if tz is None else check_zone(tz))
        if self.tz is not None:
            line.refuse_if_never_in(find_zone(self.tz))
        self._set_bounds(jitter, start, end)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        now = self._not_before_start(now)
        found = parse_cron(self.expression).next_after(now // SECOND, find_zone(self.tz))
        return None if found is None else self._until_end(found * SECOND)

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        found = parse_cron(self.expression).previous(min(now, self._end) // SECOND, find_zone(self.tz))
        if found is None or (self._start is not None and found * SECOND < self._start):
            return None
        return found * SECOND

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        after, until = self._not_before_start(after), min(until, self._end)
        return parse_cron(self.expression).count(after // SECOND, until // SECOND, find_zone(self.tz), cap)

    def written_walls(self, at: Micros, zone: Zone) -> tuple[Micros, ...]:
        return tuple(wall * SECOND for wall in parse_cron(self.expression).written_walls(at // SECOND, zone))

    def in_zone(self, zone: str) -> Cron:
        if self.tz is not None:
            return self
        return Cron(self.expression, zone, jitter=self.jitter, start=self.start, end=self.end)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        written_for = self.tz or f"{find_zone(None).name}, the system's zone"
        return f"{describe_line(parse_cron(self.expression))} ({written_for}){self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {"expression": self.expression, "tz": self.tz}
