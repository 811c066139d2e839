"""The coming occurrences of a schedule, with notes about clock changes for its readers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import reduce
from operator import and_

from scheduler_async.schedules.any_of import AnyOf
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.calendars import Calendar
from scheduler_async.schedules.clock_shifts import (
    LARGEST_SHIFT,
    Change,
    Times,
    changes,
    is_made_up_for,
    leaves_a_hole,
    seconds_of,
    show_date,
    show_time,
    times_of,
    wall_of,
)
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.cron_english import join_words
from scheduler_async.schedules.cron_line import parse_cron
from scheduler_async.schedules.on_calendar import OnCalendar
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import from_micros, to_micros
from scheduler_async.timekeeping.zones import DAY, as_tzinfo, find_zone

# Between runs that are further apart, a reader does not count the hours.
CLOSE = 2 * DAY
# Then the calendar repeats itself. Looking through millennia takes seconds and shows nothing new.
HORIZON = timedelta(days=146_097)  # 400 years


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A coming occurrence, as `Scheduler.upcoming` returns it, for a reader in any zone."""

    at: datetime
    there: datetime
    """In the zone of the schedule; in UTC if it has none."""
    here: datetime
    """In the zone of the reader."""
    note: str | None
    """What daylight saving or a calendar does to it, if anything."""


def following(
    schedule: Schedule, now: datetime, count: int, here: tzinfo, anchor: datetime | None = None
) -> list[Occurrence]:
    """Return the first *count* occurrences after *now*, within 400 years of it but for the first.

    There are none for a schedule that depends on its runs or on triggers. *anchor* is the start of the grid of an
    interval; None is *now*.
    """
    if schedule.counts_from_end:
        return []
    counted_from = to_micros(now if anchor is None else anchor)
    parts = list(_cron_parts(schedule, now))
    found: list[Occurrence] = []
    asked_at = now
    while len(found) < count and (after := schedule.next_micros(to_micros(asked_at), counted_from)) is not None:
        at = from_micros(after)
        if found and at - now > HORIZON:
            break
        there_at = _in_zone(at, _zone_of(schedule))
        here_at = _in_zone(at, here)
        previous = found[-1] if found else None
        notes = [schedule.note_about(after, counted_from)]
        notes += [part.note(at, previous.at if previous else None) for part in parts]
        note = next(filter(None, notes), None)
        if note is None and previous:
            note = _parted(previous, at, there_at, here_at)
        found.append(Occurrence(at=at, there=there_at, here=here_at, note=note))
        asked_at = at
    return found


def _zone_of(schedule: Schedule) -> tzinfo | None:
    """Return the zone of *schedule*; None is the zone of the system."""
    name = schedule.zone_name()
    if name is not None:
        return as_tzinfo(name)
    if isinstance(schedule, AnyOf):
        zones = {_zone_of(part) for part in schedule.schedules}
        return zones.pop() if len(zones) == 1 else UTC
    base = schedule.schedule if isinstance(schedule, OnCalendar) else schedule
    return None if isinstance(base, Cron) else UTC


def has_zone(schedule: Schedule) -> bool:
    """Return whether *schedule* is written in a time zone."""
    return _zone_of(schedule) is not UTC or schedule.zone_name() is not None


def _in_zone(at: datetime, zone: tzinfo | None) -> datetime:
    try:
        return at.astimezone(zone)
    except OverflowError:  # the last hours of the year 9999 are in the year 10000 elsewhere
        return at


# ---------------------------------------------------------------- notes


def _cron_parts(schedule: Schedule, now: datetime) -> Iterator[_CronPart]:
    """Yield the parts of *schedule* that are cron schedules, each with the calendars that it is kept on."""
    if isinstance(schedule, AnyOf):
        for part in schedule.schedules:
            yield from _cron_parts(part, now)
    base, calendars = schedule, []
    while isinstance(base, OnCalendar):
        calendars.append(base.calendar)
        base = base.schedule
    if isinstance(base, Cron):
        yield _CronPart(schedule, base, calendars, now)


class _CronPart:
    """Finds what clock changes do to the occurrences of a cron schedule, which are asked for in order."""

    def __init__(self, schedule: Schedule, cron: Cron, calendars: list[Calendar], now: datetime) -> None:
        self.schedule = schedule
        self.line = parse_cron(cron.expression)
        self.zone = find_zone(cron.tz)
        self.calendar = reduce(and_, calendars) if calendars else None
        # A time that was left out earlier does not concern the reader any more.
        self.since = seconds_of(max(now, cron.start or now))

    def note(self, at_moment: datetime, previous_moment: datetime | None) -> str | None:
        """Return a note about the occurrence, or None if it is one of another part."""
        if self.schedule.next_micros(to_micros(at_moment) - 1) != to_micros(at_moment):
            return None
        at = seconds_of(at_moment)
        since, self.since = self.since, at
        wall = wall_of(self.zone, at)
        return (
            self._moved(at, wall)
            or self._repeated(at, wall)
            or self._left_out(at, wall, since)
            or (None if previous_moment is None else self._closer_or_further(at, wall, seconds_of(previous_moment)))
        )

    def _times_of(self, change: Change) -> Times | None:
        """Return the times inside the calendar that *change* leaves out."""
        first, end = change.old_wall, change.new_wall
        windows = [(first, end)]
        if self.calendar is not None:
            days = range(first // DAY, (end - 1) // DAY + 1)
            windows = [(day * DAY + a, day * DAY + b) for day in days for a, b in self.calendar.windows(day)]
        found = [times_of(self.line, max(first, start), min(end, stop)) for start, stop in windows]
        inside = [times for times in found if times is not None]
        if not inside:
            return None
        return Times(inside[0].first, inside[-1].last, are_more=len(inside) > 1 or inside[0].are_more)

    def _moved(self, at: int, wall: int) -> str | None:
        """Return a note about a fixed time that does not exist, and runs at *at* instead."""
        for change in changes(self.zone, at - 1, at):
            left_out = self._times_of(change)
            if left_out and is_made_up_for(self.line, change):
                they = "it" if left_out.is_one else "they"
                if times_of(self.line, wall, wall + 1):
                    result = f"{they} and {show_time(wall)} are one run"
                elif left_out.is_one:
                    result = f"it runs at {show_time(wall)}"
                else:
                    result = f"they are one run at {show_time(wall)}"
                return f"{left_out.do_not_exist()} {_that_day(left_out.dates, wall)}: {change.words}, so {result}"
        return None

    def _repeated(self, at: int, wall: int) -> str | None:
        """Return a note about a time that the clock shows twice."""
        for change in changes(self.zone, at - LARGEST_SHIFT, at + LARGEST_SHIFT):
            if change.new_wall <= wall < change.old_wall:
                if self.line.fixed:
                    result = "it runs the first time only"
                else:
                    result = f"this is the {'first' if at < change.at else 'second'} time"
                return f"{show_time(wall)} comes twice that day, as {change.words}: {result}"
        return None

    def _left_out(self, at: int, wall: int, since: int) -> str | None:
        """Return a note about times between *since* and *at* that do not exist and are not made up for."""
        notes = []
        for change in changes(self.zone, since, at):
            left_out = self._times_of(change)
            if left_out and not is_made_up_for(self.line, change):
                note = f"{left_out.do_not_exist()} {_that_day(left_out.dates, wall)}: {change.words}"
                if leaves_a_hole(self.line, self.zone, change, left_out, at):
                    note += f", and {'it is' if left_out.is_one else 'they are'} not made up for"
                notes.append(note)
        return "; ".join(notes) or None

    def _closer_or_further(self, at: int, wall: int, previous: int) -> str | None:
        """Return a note if more or less time has passed since *previous* than the two wall times suggest."""
        if at - previous > CLOSE:
            return None
        for change in changes(self.zone, previous, at):
            day = _that_day([show_date(change.old_wall)], wall)
            elapsed = describe_duration(timedelta(seconds=at - previous))
            return f"{change.words} {day}, so it comes {elapsed} after the one before"
        return None


def _that_day(dates: list[str], shown: int) -> str:
    """Return the *dates* in words, beside an occurrence whose own date is *shown*."""
    return "that day" if dates == [show_date(shown)] else f"on {join_words(dates)}"


def _parted(previous: Occurrence, at: datetime, there: datetime, here: datetime) -> str | None:
    """Return a note if the distance between the clocks here and there has changed since *previous*."""
    moved_there = _offset(there, at) - _offset(previous.there, previous.at)
    moved_here = _offset(here, at) - _offset(previous.here, previous.at)
    if moved_there == moved_here:
        return None
    if not moved_there:
        return f"clocks here have gone {_by(moved_here)} since the one before"
    if not moved_here:
        return f"clocks there have gone {_by(moved_there)} since the one before, and not here"
    return f"clocks have gone {_by(moved_there)} there and {_by(moved_here)} here since the one before"


def _offset(shown: datetime, at: datetime) -> timedelta:
    return shown.replace(tzinfo=UTC) - at


def _by(shift: timedelta) -> str:
    return f"{'forward' if shift > timedelta() else 'back'} {describe_duration(abs(shift))}"
