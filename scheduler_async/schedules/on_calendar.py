"""Schedules whose occurrences are kept on a calendar, or moved to it. Pure.

`moved_by_day` and `kept_inside` find the occurrences. They go from one stretch of the calendar to the next, and never
from one occurrence to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, ClassVar

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.base import JSON_VERSION, Schedule, fill_in
from scheduler_async.schedules.calendars import Calendar, Dates, date_of, day_number
from scheduler_async.schedules.every import Every
from scheduler_async.schedules.kept_inside import KeptInside
from scheduler_async.schedules.moved_by_day import MovedByDay
from scheduler_async.schedules.search_limits import Source
from scheduler_async.schedules.wall_time import DAY_MICROS, WallTime
from scheduler_async.timekeeping.instants import LAST, SECOND, Micros
from scheduler_async.timekeeping.zones import Zone, check_zone, find_zone

CHOICES = ("skip", "before", "after")
# Whether a schedule ever meets its calendar is tried from here on, since this module has no clock.
_EVERY_SECOND = Every("1s", anchor="2026-01-01T00:00:00Z")
_OUR_TIME: Micros = 1_767_225_600 * SECOND  # 2026


@dataclass(frozen=True, init=False)
class OnCalendar(Schedule):
    """A *schedule* on a *calendar*, as `Schedule.on` returns it."""

    kind: ClassVar[str] = "on"
    schedule: Schedule
    calendar: Calendar
    otherwise: str
    tz: str | None
    """The time zone of the calendar, if the schedule has none."""
    jitter: timedelta | float | None = field(repr=False, compare=False)
    start: datetime | None = field(repr=False, compare=False)
    end: datetime | None = field(repr=False, compare=False)

    def __init__(
        self, schedule: Schedule, calendar: Calendar, otherwise: str = "skip", tz: str | tzinfo | None = None
    ) -> None:
        _check(schedule, calendar, otherwise)
        fill_in(
            self,
            schedule=schedule,
            calendar=calendar,
            otherwise=otherwise,
            tz=None if tz is None else check_zone(tz),
            jitter=schedule.jitter,
            start=schedule.start,
            end=schedule.end,
            _start=schedule._start,
            _end=schedule._end,
            runs_once=schedule.runs_once,
            counts_from_end=schedule.counts_from_end,
            may_be_slow=schedule.may_be_slow,
        )

    @classmethod
    def around(cls, schedule: Schedule, calendar: Calendar, otherwise: str) -> OnCalendar:
        """Return *schedule* on *calendar*. Refuse a pair that never meets."""
        found = cls(schedule, calendar, otherwise)
        # Where an interval or an instant meets a calendar depends on the zone, which the scheduler may set later.
        probe = found if _has_zone(schedule) else cls(_EVERY_SECOND, calendar)
        if not probe._meets():
            raise InvalidScheduleError(
                f"No occurrence of this schedule is ever inside the calendar: it runs {schedule.describe()}, and the "
                f"calendar is {calendar.describe()}. Choose another calendar or other times."
            )
        return found

    def _meets(self) -> bool:
        """Return whether any occurrence is found in our time, or around the dates that the calendar names."""
        tried = [_OUR_TIME, *((day_number(day) - 1) * DAY_MICROS for day in _named_dates(self.calendar))]
        tried += [] if self._start is None else [self._start - 1]
        if any(self.next_micros(at, at) is not None for at in tried):
            return True
        return self._end < LAST and self.latest_micros(self._end, _OUR_TIME) is not None

    # ------------------------------------------------------------ occurrences

    @property
    def _walls(self) -> WallTime:
        # A process may change the zone of the system, so a schedule without a zone asks for it each time.
        known: WallTime | None = self.__dict__.get("_wall_time")
        if known is not None:
            return known
        walls = WallTime(find_zone(self.zone_name()))
        if self.zone_name() is not None:
            fill_in(self, _wall_time=walls)
        return walls

    def zone_name(self) -> str | None:
        if _has_zone(self.schedule):
            return self.schedule.zone_name()
        return self.tz or "UTC"

    def _search(self, anchor: Micros | None) -> KeptInside | MovedByDay:
        source = Source(self.schedule, anchor)
        if self.otherwise == "skip" or self.calendar.has_hours:
            return KeptInside(source, self.calendar, self._walls, moves=self.otherwise == "after")
        return MovedByDay(source, self.calendar, self._walls, later=self.otherwise == "after")

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        search = self._search(now if anchor is None else anchor)
        found = search.next_after(self._not_before_start(now))
        return None if found is None else self._until_end(found)

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        found = self._search(anchor).latest(min(now, self._end))
        return None if found is None or (self._start is not None and found < self._start) else found

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        after, until = self._not_before_start(after), min(until, self._end)
        if self.schedule.counts_from_end or after >= until:
            return 0
        return min(self._search(after if anchor is None else anchor).count(after, until, cap), cap)

    def first_micros(self, now: Micros) -> Micros | None:
        first = self.schedule.first_micros(now)
        if first is None:
            return None
        if self.runs_once:
            moved = self._search(now).moved(first)
            within = moved is not None and (self._start is None or moved >= self._start)
            return self._until_end(moved) if moved is not None and within else None
        if first == now and self._search(now).moved(first) == first:
            return self._until_end(first)
        return self.next_micros(now, now)

    def written_walls(self, at: Micros, zone: Zone) -> tuple[Micros, ...]:
        if self.schedule.next_micros(at - 1) == at:
            written = self.schedule.written_walls(at, zone)
            inside = tuple(
                wall for wall in written if self.calendar.has(wall // DAY_MICROS, wall % DAY_MICROS // SECOND)
            )
            if inside:
                return inside
        return super().written_walls(at, zone)  # it was moved here

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        return self.schedule.anchor_before(now, anchor)

    def begins_at(self, anchor: Micros) -> Micros:
        return self.schedule.begins_at(anchor)

    def _gap_after(self, at: Micros, anchor: Micros | None) -> Micros | None:
        own, base = super()._gap_after(at, anchor), self.schedule._gap_after(at, anchor)
        return own if base is None else base if own is None else min(own, base)

    # ------------------------------------------------------------ the rest

    def raised_to(self, minimum: timedelta) -> OnCalendar:
        raised = self.schedule.raised_to(minimum)
        return self if raised is self.schedule else OnCalendar(raised, self.calendar, self.otherwise, self.tz)

    def in_zone(self, zone: str) -> OnCalendar:
        schedule = self.schedule.in_zone(zone)
        tz = self.tz if self.tz is not None or _has_zone(schedule) else zone
        return OnCalendar(schedule, self.calendar, self.otherwise, tz)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        when = self.schedule.describe(zone)
        where = "" if _has_zone(self.schedule) else f" ({self.tz or 'UTC'})"
        inside, outside = self.calendar.describe(), self.calendar.describe_outside()
        if self.otherwise == "skip":
            only = inside if inside.startswith(("not ", "neither ")) else f"only {inside}"
            return f"{when}, {only}{where}"
        if self.calendar.has_hours:
            return f"{when}, postponed if {outside}{where}"
        return f"{when}, moved to {'a later' if self.otherwise == 'after' else 'an earlier'} day if {outside}{where}"

    def note_about(self, at: Micros, anchor: Micros | None = None) -> str | None:
        sources = self._search(at if anchor is None else anchor).moved_to(at)
        if sources is None:
            return None
        first, count, shows_times = sources
        to = self._walls.wall(at)
        several = f" and {count - 1} later time{'s' if count > 2 else ''}" if count > 1 else ""
        shown = _clock if first // DAY_MICROS == to // DAY_MICROS else partial(_shown, beside=to, with_time=shows_times)
        return f"moved from {shown(first)}{several} to {shown(to)}"

    def to_json(self) -> dict[str, Any]:
        form = {
            "version": JSON_VERSION,
            "kind": self.kind,
            "schedule": self.schedule.to_json(),
            "calendar": self.calendar.to_json(),
            "otherwise": self.otherwise,
            "tz": self.tz,
        }
        return {name: value for name, value in form.items() if value is not None}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> OnCalendar:
        schedule, calendar = Schedule.from_json(parts.pop("schedule")), Calendar.from_json(parts.pop("calendar"))
        return cls(schedule, calendar, **parts)


def _check(schedule: Schedule, calendar: Calendar, otherwise: str) -> None:
    if not isinstance(calendar, Calendar):
        raise InvalidScheduleError(
            f'The calendar must be Weekdays("MON-FRI"), BusinessDays("SE") or another, not {quoted(calendar)}.'
        )
    if otherwise not in CHOICES:
        raise InvalidScheduleError(f'otherwise must be "skip", "before" or "after", not {quoted(otherwise)}.')
    if schedule.follows_runs:
        raise InvalidScheduleError(
            "After has no times of its own, so a calendar has nothing to decide. Put the calendar on the other job."
        )
    if not schedule.runs_by_itself:
        raise InvalidScheduleError("Manual() runs only when it is triggered, so a calendar has nothing to decide.")
    if otherwise == "before" and calendar.has_hours:
        raise InvalidScheduleError(
            'otherwise="before" needs a calendar of whole days, since the end of a stretch of hours is not inside it. '
            'Use otherwise="after", which is the start of the next stretch, or leave out the hours.'
        )
    if otherwise == "before" and schedule.counts_from_end:
        raise InvalidScheduleError(
            'A Delay cannot be moved to an earlier day: it counts from the end of the previous run. Use "after".'
        )


def _has_zone(schedule: Schedule) -> bool:
    """Return whether *schedule* is written in a time zone, which may be that of the system."""
    return schedule.zone_name() is not None or schedule.kind == "cron"


def _named_dates(calendar: Calendar) -> list[date]:
    """Return the first and the last date of each `Dates` in *calendar*."""
    if isinstance(calendar, Dates):
        return [calendar.dates[0], calendar.dates[-1]]
    return [day for part in calendar.nested for day in _named_dates(part)]


def _shown(wall: Micros, beside: Micros, with_time: bool) -> str:
    there = date_of(wall // DAY_MICROS)
    year = f" {there.year}" if there.year != date_of(beside // DAY_MICROS).year else ""
    return f"{there:%A} {there.day} {there:%B}{year}" + (f" {_clock(wall)}" if with_time else "")


def _clock(wall: Micros) -> str:
    minutes, seconds = divmod(wall % DAY_MICROS // SECOND, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")
