"""Occurrences on the days of a calendar; those on other days are moved to the nearest day inside. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_async.schedules.calendars import Calendar
from scheduler_async.schedules.search_limits import (
    FURTHEST_DAYS,
    LONGEST_CLOSED,
    MOST_COMPARED,
    MOST_STEPS,
    MOST_STRETCHES,
    Source,
)
from scheduler_async.schedules.wall_time import DAY_MICROS, WallTime
from scheduler_async.timekeeping.instants import Micros
from scheduler_async.timekeeping.zones import DAY


class MovedByDay:
    """The occurrences of *source* on *calendar*, moved to an earlier day or to a *later* one."""

    def __init__(self, source: Source, calendar: Calendar, walls: WallTime, *, later: bool) -> None:
        self._source, self._calendar, self._walls, self._later = source, calendar, walls, later
        self._steps = iter(range(MOST_STEPS))  # of one question, which may need several answers

    def next_after(self, now: Micros) -> Micros | None:
        """Return the first occurrence after *now*."""
        if self._source.schedule.counts_from_end:
            at = self._source.after(now)
            return None if at is None else self.moved(at)
        today = self._walls.day(now)
        day = self._first_source(today - 1 if self._walls.changes_near(today) else today)
        for _ in self._steps:
            if day is None:
                return None
            found_day = self._day_with_occurrence(day)
            if found_day is None:
                return None
            target = self._target(found_day)
            if target is None:
                day = self._first_with_target(found_day)
                continue
            found = self._first_on(target, now)
            if self._walls.changes_near(target):  # an hour of the next day may come before
                other = self._first_on(target + 1, now) if self._is_inside(target + 1) else None
                found = other if found is None else found if other is None else min(found, other)
            if found is not None:
                return found
            day = self._sources(target)[1] + 1
        return None

    def latest(self, now: Micros) -> Micros | None:
        """Return the last occurrence up to *now*."""
        today = self._walls.day(now)
        day = self._last_source(today + 1 if self._walls.changes_near(today) else today)
        for _ in self._steps:
            if day is None:
                return None
            found_day = self._last_day_with_occurrence(day)
            if found_day is None:
                return None
            target = self._target(found_day)
            if target is None:
                day = self._last_with_target(found_day)
                continue
            found = self._last_on(target, now)
            if self._walls.changes_near(target):
                other = self._last_on(target - 1, now) if self._is_inside(target - 1) else None
                found = other if found is None else found if other is None else max(found, other)
            if found is not None:
                return found
            day = self._sources(target)[0] - 1
        return None

    def count(self, after: Micros, until: Micros, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*."""
        total, left = 0, MOST_COMPARED
        for _ in range(MOST_STRETCHES // 2):
            found = self.next_after(after)
            if found is None or found > until or total >= cap:
                return total
            if self._walls.after_gap(found):  # times of the day before may have been moved here
                total, after = total + 1, found
                continue
            day = self._walls.day(found)
            first, last = self._plain_days(day)
            if first <= day <= last:  # nothing is moved to these days
                end = min(self._walls.ends(last) or found, until)
                total += self._source.count(found - 1, end, cap - total)
            else:
                end = min(self._walls.ends(day) or found, until)
                counted = self._compared(found, end, left)
                if counted is None:
                    left, counted = 0, self._estimated(found, end, cap)
                else:
                    left -= counted
                total += counted
            after = max(end, found)
        return total + self._source.count(after, until, cap)  # about as many, since none is left out

    def moved(self, at: Micros) -> Micros | None:
        """Return where the occurrence *at* of the source goes."""
        for wall in self._written(at):
            day, time = divmod(wall, DAY_MICROS)
            target = self._target(day)
            if target == day:
                return at
            if target is not None:
                return self._walls.instant(target * DAY_MICROS + time)
        return None

    def moved_to(self, at: Micros) -> tuple[Micros, int, bool] | None:
        """Return the first wall-clock time that was moved to *at*, how many were, and that days are enough."""
        if self._source.schedule.counts_from_end:
            return None
        day, time = divmod(self._walls.wall(at), DAY_MICROS)
        if self._source.after(at - 1) == at and any(wall // DAY_MICROS == day for wall in self._written(at)):
            return None
        earlier = time - 3 * 3600 * 1_000_000 if self._walls.after_gap(at) else time  # times that the clock skipped
        found = []
        for source in self._days(day):
            wall = self._first_wall(source, source * DAY_MICROS + earlier) if source != day else None
            if wall is not None and self._walls.instant((day - source) * DAY_MICROS + wall) == at:
                found.append(wall)
        return (found[0], len(found), False) if found else None

    # ------------------------------------------------------------ days

    def _is_inside(self, day: int) -> bool:
        return self._calendar.first_day(day, day) == day

    def _target(self, day: int) -> int | None:
        """Return the day that occurrences of *day* are moved to."""
        if self._later:
            return self._calendar.first_day(day, day + FURTHEST_DAYS)
        return self._calendar.last_day(day, day - FURTHEST_DAYS)

    def _sources(self, target: int) -> tuple[int, int]:
        """Return the first and the last day whose occurrences are moved to *target*, or are there anyway."""
        if self._later:
            before = self._calendar.last_day(target - 1, target - FURTHEST_DAYS)
            return (target - FURTHEST_DAYS if before is None else before + 1), target
        following = self._calendar.first_day(target + 1, target + FURTHEST_DAYS)
        return target, (target + FURTHEST_DAYS if following is None else following - 1)

    def _days(self, target: int) -> range:
        first, last = self._sources(target)
        return range(first, last + 1)

    def _first_source(self, day: int) -> int | None:
        """Return the first day whose occurrences are moved to *day* or later."""
        if self._later:
            before = self._calendar.last_day(day - 1, day - FURTHEST_DAYS)
            return day - FURTHEST_DAYS if before is None else before + 1
        return self._calendar.first_day(day, day + LONGEST_CLOSED)

    def _last_source(self, day: int) -> int | None:
        """Return the last day whose occurrences are moved to *day* or earlier."""
        if self._later:
            return self._calendar.last_day(day, day - LONGEST_CLOSED)
        following = self._calendar.first_day(day + 1, day + FURTHEST_DAYS)
        return day + FURTHEST_DAYS if following is None else following - 1

    def _first_with_target(self, day: int) -> int | None:
        """Return the first later day whose occurrences are moved to some day, if *day* has none."""
        following = self._calendar.first_day(day, day + LONGEST_CLOSED)
        if following is None:
            return None
        return max(following - FURTHEST_DAYS, day + 1) if self._later else following

    def _last_with_target(self, day: int) -> int | None:
        before = self._calendar.last_day(day, day - LONGEST_CLOSED)
        if before is None:
            return None
        return before if self._later else min(before + FURTHEST_DAYS, day - 1)

    def _plain_days(self, day: int) -> tuple[int, int]:
        """Return the days inside around *day* to which nothing is moved; an empty range if *day* is not one of them."""
        calendar = self._calendar
        closed_after = calendar.first_day(day, day + FURTHEST_DAYS, inside=False)
        last = day + FURTHEST_DAYS if closed_after is None else closed_after - 1
        if self._later:
            return (day, last) if self._is_inside(day - 1) else (day + 1, day)
        return day, last - 1 if closed_after is not None else last

    # ------------------------------------------------------------ occurrences of days

    def _written(self, at: Micros) -> tuple[Micros, ...]:
        if self._walls.after_gap(at):
            return self._source.schedule.written_walls(at, self._walls.zone)
        return (self._walls.wall(at),)

    def _day_with_occurrence(self, day: int) -> int | None:
        """Return the first day from *day* on with an occurrence."""
        start = self._walls.starts(day)
        at = None if start is None else self._source.after(start - 1)
        while at is not None:
            days = [wall // DAY_MICROS for wall in self._written(at) if wall // DAY_MICROS >= day]
            if days:
                return min(days)
            at = self._source.after(at)
        return None

    def _last_day_with_occurrence(self, day: int) -> int | None:
        end = self._walls.ends(day)
        at = None if end is None else self._source.latest(end)
        # The times of the day may be made up for right after its end.
        following = None if end is None else self._source.after(end)
        if following is not None and following == (end or 0) + 1:
            days = [wall // DAY_MICROS for wall in self._written(following) if wall // DAY_MICROS <= day]
            if days:
                return max(days)
        while at is not None:
            days = [wall // DAY_MICROS for wall in self._written(at) if wall // DAY_MICROS <= day]
            if days:
                return max(days)
            at = self._source.latest(at - 1)
        return None

    def _first_on(self, target: int, now: Micros) -> Micros | None:
        """Return the first occurrence after *now* on the day *target*."""
        found = []
        lowest = max(self._walls.first_unrepeated(now) - target * DAY_MICROS, 0)
        start = self._walls.starts(target)
        kept = None if start is None else self._source.after(max(now, start - 1))
        while kept is not None:
            days = [wall // DAY_MICROS for wall in self._written(kept)]
            if target in days:
                found.append(kept)
            if max(days) >= target:
                break
            kept = self._source.after(kept)
        times = [wall - source * DAY_MICROS for source, wall in self._first_walls(target, min(DAY_MICROS, lowest))]
        if times:
            moved = self._walls.instant(target * DAY_MICROS + min(times))
            # A time that the clock skips on that day may be made up for at *now* already.
            while moved is not None and moved <= now:
                later = min(
                    (wall - source * DAY_MICROS for source, wall in self._first_walls(target, min(times) + 1)),
                    default=None,
                )
                if later is None:
                    moved = None
                    break
                times = [later]
                moved = self._walls.instant(target * DAY_MICROS + later)
            if moved is not None:
                found.append(moved)
        return min(found, default=None)

    def _first_walls(self, target: int, time: Micros) -> Iterator[tuple[int, Micros]]:
        """Yield, for each day that is moved to *target*, its first wall-clock time from *time* of the day on."""
        if time >= DAY_MICROS:
            return
        for source in self._days(target):
            if source != target:
                wall = self._first_wall(source, source * DAY_MICROS + time)
                if wall is not None:
                    yield source, wall

    def _last_on(self, target: int, now: Micros) -> Micros | None:
        """Return the last occurrence up to *now* on the day *target*."""
        found = []
        end = self._walls.ends(target)
        kept = None if end is None else self._source.latest(min(now, end + 1))
        while kept is not None:
            days = [wall // DAY_MICROS for wall in self._written(kept)]
            if target in days:
                found.append(kept)
            if min(days) <= target:
                break
            kept = self._source.latest(kept - 1)
        highest = min(self._walls.first_unrepeated(now) - 1 - target * DAY_MICROS, DAY_MICROS - 1)
        for source in self._days(target):
            if source != target and highest >= 0:
                wall = self._last_wall(source, source * DAY_MICROS + highest)
                if wall is not None:
                    moved = self._walls.instant((target - source) * DAY_MICROS + wall)
                    if moved is not None and moved <= now:
                        found.append(moved)
        return max(found, default=None)

    def _first_wall(self, day: int, from_wall: Micros) -> Micros | None:
        """Return the first wall-clock time of *day* from *from_wall* on with an occurrence."""
        found: list[Micros] = []
        for piece in self._walls.pieces(day, 0, DAY):
            at = self._source.after(
                max(piece.start, from_wall - piece.offset) - 1 if not piece.skipped else piece.start - 1
            )
            if at is not None and at == piece.start and self._walls.after_gap(at):
                found += [wall for wall in self._written(at) if wall >= from_wall and wall // DAY_MICROS == day]
                at = self._source.after(max(at, from_wall - piece.offset - 1))
            if at is not None and at < piece.end and not piece.skipped:
                found.append(at + piece.offset)
        return min(found, default=None)

    def _last_wall(self, day: int, until_wall: Micros) -> Micros | None:
        """Return the last wall-clock time of *day* up to *until_wall* with an occurrence."""
        found: list[Micros] = []
        for piece in self._walls.pieces(day, 0, DAY):
            at = self._source.latest(
                min(piece.end - 1, until_wall - piece.offset) if not piece.skipped else piece.start
            )
            if self._walls.after_gap(piece.start) and self._source.after(piece.start - 1) == piece.start:
                written = self._written(piece.start)
                found += [wall for wall in written if wall <= until_wall and wall // DAY_MICROS == day]
                if at == piece.start:
                    continue
            if at is not None and at >= piece.start and not piece.skipped:
                found.append(at + piece.offset)
        return max(found, default=None)

    # ------------------------------------------------------------ counting

    def _compared(self, first: Micros, last: Micros, most: int) -> int | None:
        """Return how many different instants one day has from *first* to *last*; None if *most* are not enough."""
        target = self._walls.day(first)
        found: set[Micros] = set()
        looked_at = 0
        for source in self._days(target):
            start, end = self._walls.starts(source), self._walls.ends(source)
            if start is None or end is None:
                continue
            if self._source.count(start - 1, end, most + 1) + looked_at > most:
                return None
            at = self._source.after(start - 1)
            while at is not None and at <= end + 1:
                looked_at += 1
                for wall in self._written(at):
                    if wall // DAY_MICROS == source:
                        moved = at if source == target else self._walls.instant((target - source) * DAY_MICROS + wall)
                        if moved is not None and first <= moved <= last:
                            found.add(moved)
                at = self._source.after(at)
        return len(found)

    def _estimated(self, first: Micros, last: Micros, cap: int) -> int:
        """Return what `_compared` does for many occurrences, as if no clock changed on these days.

        The times of a cron line are the same on each day. Those of an interval are the same on two days, or they never
        meet.
        """
        step = getattr(self._source.schedule, "_step", None)
        target, counts = self._walls.day(first), dict[int, int]()
        for source in self._days(target):
            shift = (source - target) * DAY_MICROS
            start = self._walls.instant(self._walls.wall(first) + shift)
            end = self._walls.instant(self._walls.wall(last) + shift)
            at = None if start is None else self._source.after(start - 1)
            if start is None or end is None or at is None or at > end:
                continue
            phase = 0 if step is None else (self._walls.wall(at) - shift) % step
            counts[phase] = max(counts.get(phase, 0), self._source.count(start - 1, end, cap))
        return sum(counts.values()) or 1
