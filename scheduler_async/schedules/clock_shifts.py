"""What clock changes do to the times of a cron line: times that do not exist, and times that come twice. Pure.

Wall times are counted as in `zones`: seconds since the epoch on the clock of the zone, `wall = moment + offset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from scheduler_async.schedules.cron_line import LONGEST_GAP, CronLine
from scheduler_async.timekeeping.instants import SECOND, from_micros, to_micros
from scheduler_async.timekeeping.zones import DAY, Zone

# No change of offset repeats or leaves out more than a day of wall time.
LARGEST_SHIFT = DAY + 3600

_WALL = Zone("the wall", lambda _: 0)  # a zone without changes, to ask a line for wall times alone


def seconds_of(moment: datetime) -> int:
    """Return *moment* as whole seconds since the epoch."""
    return to_micros(moment) // SECOND


class Change(NamedTuple):
    """A clock change: the offset is *before* until second *at*, and *after* from then on."""

    at: int
    before: int
    after: int

    @property
    def shift(self) -> int:
        """How many seconds the clock goes forward; negative if it goes back."""
        return self.after - self.before

    @property
    def old_wall(self) -> int:
        """The wall time at the change, by the old offset."""
        return self.at + self.before

    @property
    def new_wall(self) -> int:
        """The wall time at the change, by the new offset."""
        return self.at + self.after

    @property
    def words(self) -> str:
        """The change in words, such as "clocks go back from 03:00 to 02:00"."""
        show = show_date_and_time if abs(self.shift) >= DAY else show_time
        return (
            f"clocks go {'forward' if self.shift > 0 else 'back'} from {show(self.old_wall)} to {show(self.new_wall)}"
        )


def changes(zone: Zone, after: int, until: int) -> Iterator[Change]:
    """Yield every clock change later than *after* and not later than *until*, in order."""
    period = zone.period_at(after)
    while period is not None and period.end <= until:
        following = zone.period_at(period.end)
        if following is not None and following.offset != period.offset:
            yield Change(period.end, period.offset, following.offset)
        period = following


class Times(NamedTuple):
    """The wall times of a cron line within a range: at least one."""

    first: int
    last: int
    are_more: bool
    """Whether there are others between these two."""

    @property
    def is_one(self) -> bool:
        """Whether there is only one."""
        return self.first == self.last

    @property
    def words(self) -> str:
        """The times in words, such as "02:00 to 02:45"."""
        if self.is_one:
            return show_time(self.first)
        return f"{show_time(self.first)} {'to' if self.are_more else 'and'} {show_time(self.last)}"

    @property
    def dates(self) -> list[str]:
        """Their dates: one, or two if midnight lies between."""
        return list(dict.fromkeys((show_date(self.first), show_date(self.last))))

    def do_not_exist(self) -> str:
        """Return a clause that says so."""
        return f"{self.words} {'does' if self.is_one else 'do'} not exist"

    def come_twice(self) -> str:
        """Return a clause that says so."""
        return f"{self.words} {'comes' if self.is_one else 'come'} twice"


def times_of(line: CronLine, first: int, end: int) -> Times | None:
    """Return the wall times of *line* from *first* up to but not including *end*; None if there are none."""
    earliest, latest = line.next_after(first - 1, _WALL), line.previous(end - 1, _WALL)
    if earliest is None or latest is None or earliest >= end:
        return None
    return Times(earliest, latest, are_more=line.count(first - 1, end - 1, _WALL, 3) > 2)


def is_made_up_for(line: CronLine, change: Change) -> bool:
    """Return whether the times that *change* leaves out run right after it."""
    return line.fixed and 0 < change.shift <= LONGEST_GAP


def leaves_a_hole(line: CronLine, zone: Zone, change: Change, left_out: Times, at: int) -> bool:
    """Return whether the wait for *at*, the first occurrence after *change*, is longer than usual.

    A line for every fifteen minutes goes on from 01:45 to 03:00 without a hole. One for every two hours misses 02:00.
    """
    previous = line.previous(change.at - 1, zone)
    if previous is None:
        return True
    usual = max(left_out.first - wall_of(zone, previous), wall_of(zone, at) - left_out.last)
    return at - previous > usual


def wall_of(zone: Zone, moment: int) -> int:
    """Return the wall time in *zone* at *moment*."""
    period = zone.period_at(moment)
    assert period is not None  # cron lines have no occurrences beyond the calendar
    return moment + period.offset


def show_time(wall: int) -> str:
    """Return a wall time such as "02:30"."""
    shown = from_micros(wall * SECOND)
    return f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"


def show_date(wall: int) -> str:
    """Return the date of a wall time, such as "2027-03-28"."""
    return from_micros(wall * SECOND).date().isoformat()


def show_date_and_time(wall: int) -> str:
    """Return a wall time with its date."""
    return f"{show_date(wall)} {show_time(wall)}"
