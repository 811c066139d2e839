"""When a schedule on a calendar should run, by brute force: every minute of some weeks, held against the wall clock.

An independent second opinion for the tests: no search, no arithmetic with offsets, no sets of days. It knows minutes,
and the rules of `Schedule.on`. Instants are whole seconds since the epoch; wall-clock times are naive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tests.daylight_oracle import Line

MINUTE = 60
LONGEST_GAP = timedelta(hours=3)
ONE_MINUTE = timedelta(minutes=1)

Inside = Callable[[datetime], bool]


class Written(NamedTuple):
    """An occurrence, and the wall-clock time that it was written with."""

    at: int
    wall: datetime


class Weeks:
    """Every minute from *start* to *end* in a zone."""

    def __init__(self, zone: str, start: int, end: int) -> None:
        there = ZoneInfo(zone)
        self.minutes = [
            (at, datetime.fromtimestamp(at, there).replace(tzinfo=None, fold=0)) for at in range(start, end, MINUTE)
        ]
        self.first: dict[datetime, int] = {}
        """The first instant of each wall-clock time, made-up ones after a gap included."""
        self.skipped: dict[datetime, int] = {}
        """The wall-clock times in gaps, with the first instant after the gap."""
        previous = None
        for at, wall in self.minutes:
            self.first.setdefault(wall, at)
            if previous is not None and ONE_MINUTE < wall - previous <= LONGEST_GAP + ONE_MINUTE:
                missing = previous + ONE_MINUTE
                while missing < wall:
                    if missing not in self.first:
                        self.skipped[missing] = at
                    missing += ONE_MINUTE
            previous = wall

    def instant(self, wall: datetime) -> int | None:
        return self.first.get(wall, self.skipped.get(wall))

    def cron(self, line: Line) -> list[Written]:
        """The occurrences of a cron line, by the rules of CRON.md."""
        found = [
            Written(at, wall)
            for at, wall in self.minutes
            if line.wants(wall) and (not line.fixed or self.first[wall] == at)
        ]
        if line.fixed:
            found += [Written(at, wall) for wall, at in self.skipped.items() if line.wants(wall)]
        return found

    def every(self, minutes: int, anchor: int) -> list[Written]:
        return [Written(at, wall) for at, wall in self.minutes if at >= anchor and (at - anchor) % (minutes * 60) == 0]

    def kept(self, written: Iterable[Written], inside: Inside) -> list[int]:
        return sorted({one.at for one in written if inside(one.wall)})

    def moved_by_day(self, written: Iterable[Written], inside: Inside, step: int) -> list[int]:
        found = set()
        for at, wall in written:
            day = wall
            while not inside(day) and abs(day - wall) <= timedelta(days=366):
                day += timedelta(days=step)
            moved = at if day == wall else self.instant(day)
            if moved is not None:
                found.add(moved)
        return sorted(found)

    def postponed(self, written: Iterable[Written], inside: Inside) -> list[int]:
        opens: dict[int, int | None] = {}
        following = None
        for at, wall in reversed(self.minutes):
            following = at if inside(wall) else following
            opens[at] = following
        moved = (one.at if inside(one.wall) else opens[one.at] for one in written)
        return sorted({at for at in moved if at is not None})


@cache
def weeks(zone: str, start: int, end: int) -> Weeks:
    return Weeks(zone, start, end)


def instant_of(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def day_of(wall: datetime) -> date:
    return wall.date()
