"""Occurrences inside a calendar; those outside are left out, or wait for the next stretch inside. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_async.schedules.calendars import Calendar
from scheduler_async.schedules.search_limits import FURTHEST_DAYS, LONGEST_CLOSED, MOST_STEPS, MOST_STRETCHES, Source
from scheduler_async.schedules.wall_time import DAY_MICROS, Piece, WallTime
from scheduler_async.timekeeping.instants import SECOND, Micros

_FURTHEST: Micros = FURTHEST_DAYS * DAY_MICROS


class KeptInside:
    """The occurrences of *source* inside *calendar*. If it *moves*, others become the start of the next stretch."""

    def __init__(self, source: Source, calendar: Calendar, walls: WallTime, *, moves: bool) -> None:
        self._source, self._calendar, self._walls, self._moves = source, calendar, walls, moves
        self._steps = iter(range(MOST_STEPS))  # of one question, which may need several answers

    def next_after(self, now: Micros) -> Micros | None:
        """Return the first occurrence after *now*."""
        source = self._source
        if self._moves and not source.schedule.counts_from_end and not self._is_open(now):
            waiting = self._waiting_at(now)
            if waiting is not None:
                return waiting
        at = source.after(now)
        for _ in self._steps:
            if at is None or self._is_inside(at):
                return at
            if self._moves:
                opening = self._opening(at, exact=True)
                if opening is not None and opening - at <= _FURTHEST:
                    return opening
            else:
                opening = self._opening(at + 1)
            if opening is None:
                return None
            at = source.not_before(at, opening - _FURTHEST if self._moves else opening)
        return None

    def latest(self, now: Micros) -> Micros | None:
        """Return the last occurrence up to *now*."""
        source, at = self._source, now
        for _ in self._steps:
            found = source.latest(at)
            if found is None:
                return None
            if self._moves and self._waits(found):
                opening = self._opening(found, exact=True)
                if opening is not None and opening - found <= _FURTHEST and opening <= now:
                    return opening
            if self._is_inside(found):
                begin = self._begin_of(at) if self._moves and self._is_open(at) else found
                return found if begin is None or begin <= found else begin
            closing = self._closing(found - 1)
            if closing is None:
                return None
            at = closing
        return None

    def count(self, after: Micros, until: Micros, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*."""
        total = 0
        for _ in range(MOST_STRETCHES):
            found = self.next_after(after)
            if found is None or found > until or total >= cap:
                break
            end = min(self._end_of(found) - 1, until)
            counted = self._source.count(found - 1, end, cap - total)
            is_start = self._source.after(found - 1) != found  # moved here, beside those that are here anyway
            total += counted + is_start
            after = end
        return total

    def moved(self, at: Micros) -> Micros | None:
        """Return where the occurrence *at* of the source goes."""
        if self._is_inside(at):
            return at
        opening = self._opening(at, exact=True) if self._moves else None
        return opening if opening is not None and opening - at <= _FURTHEST else None

    def moved_to(self, at: Micros) -> tuple[Micros, int, bool] | None:
        """Return the first wall-clock time that was moved to *at*, how many were, and that times must be shown."""
        if not self._moves or self._source.schedule.counts_from_end or self._source.after(at - 1) == at:
            return None
        closing = self._closing(at - 1)
        first = self._source.after(max(at - _FURTHEST, at - _FURTHEST if closing is None else closing))
        if first is None or first >= at:
            return None
        return self._walls.wall(first), self._source.count(first - 1, at - 1, 1_000_000), True

    # ------------------------------------------------------------ inside and outside

    def _is_open(self, at: Micros) -> bool:
        day, rest = divmod(self._walls.wall(at), DAY_MICROS)
        return self._calendar.has(day, rest // SECOND)

    def _is_inside(self, at: Micros) -> bool:
        """Return whether an occurrence is inside. It counts by the wall-clock time that it was written with."""
        return any(self._inside(at)) if self._walls.after_gap(at) else self._is_open(at)

    def _waits(self, at: Micros) -> bool:
        """Return whether an occurrence is outside. One that stands for several skipped times may be both."""
        return not all(self._inside(at)) if self._walls.after_gap(at) else not self._is_open(at)

    def _inside(self, at: Micros) -> list[bool]:
        """Return, for each wall-clock time that the occurrence was written with, whether it is inside."""
        written = self._source.schedule.written_walls(at, self._walls.zone)
        return [self._calendar.has(wall // DAY_MICROS, wall % DAY_MICROS // SECOND) for wall in written]

    def _waiting_at(self, now: Micros) -> Micros | None:
        """Return the start of the next stretch, if an occurrence that has passed by *now* waits for it."""
        opening = self._opening(now + 1, exact=True)
        if opening is None:
            return None
        closing = self._closing(now)
        since = opening - _FURTHEST - 1 if closing is None else max(closing, opening - _FURTHEST - 1)
        at = self._source.after(since - 1)
        while at is not None and at <= now and not self._waits(at):  # the last one inside, or right after a gap
            at = self._source.after(at)
        return opening if at is not None and at <= now else None

    def _opening(self, at: Micros, *, exact: bool = False) -> Micros | None:
        """Return the first instant from *at* on that may be inside; if *exact*, that is inside."""
        offset, _, end = self._steady_around(at)
        if offset is not None:
            day, rest = divmod(at + offset, DAY_MICROS)
            for _ in range(MOST_STEPS):
                found_day = self._calendar.first_day(day, day + LONGEST_CLOSED)
                if found_day is None:
                    return None
                rest = rest if found_day == day else 0
                windows = self._calendar.windows(found_day)
                start = next((max(a * SECOND, rest) for a, b in windows if b * SECOND > rest), None)
                day, rest = (found_day + 1, 0) if start is None else (found_day, start)
                found = day * DAY_MICROS + rest - offset
                if found >= end:  # beyond, the clocks change
                    break
                if start is not None:
                    return found
        for pieces in self._stretches(self._walls.day(at), forward=True):
            openings = [max(piece.start, at) for piece in pieces if piece.end > at and not (exact and piece.skipped)]
            if openings:
                return min(openings)
        return None

    def _closing(self, at: Micros) -> Micros | None:
        """Return the last instant up to *at* that may be inside."""
        offset, begin, _ = self._steady_around(at)
        if offset is not None:
            day, rest = divmod(at + offset, DAY_MICROS)
            for _ in range(MOST_STEPS):
                found_day = self._calendar.last_day(day, day - LONGEST_CLOSED)
                if found_day is None:
                    return None
                rest = rest if found_day == day else DAY_MICROS - 1
                windows = reversed(self._calendar.windows(found_day))
                last = next((min(b * SECOND - 1, rest) for a, b in windows if a * SECOND <= rest), None)
                day, rest = (found_day - 1, DAY_MICROS - 1) if last is None else (found_day, last)
                found = day * DAY_MICROS + rest - offset
                if found < begin:
                    break
                if last is not None:
                    return found
        for pieces in self._stretches(self._walls.day(at), forward=False):
            closings = [min(piece.end - 1, at) for piece in pieces if piece.start <= at]
            if closings:
                return max(closings)
        return None

    def _steady_around(self, at: Micros) -> tuple[Micros | None, Micros, Micros]:
        """Return the offset at *at*, and from when to when no clock change is near; no offset if one is."""
        period = self._walls.period(at)
        if period is None:
            return None, 0, 0
        begin, end = period.start * SECOND + 2 * DAY_MICROS, period.end * SECOND - 2 * DAY_MICROS
        return (period.offset * SECOND if begin <= at < end else None), begin, end

    def _begin_of(self, at: Micros) -> Micros | None:
        """Return the start of the stretch of this day that *at* lies in, if an occurrence waited for it."""
        day = self._walls.day(at)
        for piece in self._pieces(day):
            if piece.start <= at < piece.end and not piece.skipped:
                waited = self._source.latest(piece.start)
                closing = self._closing(piece.start - 1)
                since = piece.start - _FURTHEST - 1 if closing is None else max(closing, piece.start - _FURTHEST - 1)
                has_waited = waited is not None and (waited > since or (waited == since and self._waits(waited)))
                return piece.start if has_waited else None
        return None

    def _end_of(self, at: Micros) -> Micros:
        """Return the end of the stretch that *at* lies in, or an earlier time at which the offset changes."""
        walls, calendar = self._walls, self._calendar
        period = walls.period(at)
        if period is None or not self._is_open(at) or walls.after_gap(at):
            return at + 1
        wall = at + period.offset * SECOND
        day, rest = divmod(wall, DAY_MICROS)
        if calendar.has_hours:
            windows = calendar.windows(day)
            end = day * DAY_MICROS + next(b for a, b in windows if a * SECOND <= rest < b * SECOND) * SECOND
        else:
            closed = calendar.first_day(day, day + LONGEST_CLOSED, inside=False)
            end = (day + LONGEST_CLOSED if closed is None else closed) * DAY_MICROS
        return min(end - period.offset * SECOND, period.end * SECOND)

    def _stretches(self, day: int, *, forward: bool) -> Iterator[list[Piece]]:
        """Yield the pieces of days that may be inside, from *day* on or back. Near a clock change, of several days."""
        near = self._walls.changes_near(day)
        if near:  # its times may not be in order
            days = range(day - 2, day + 3)
            yield [piece for number in days for piece in self._pieces(number)]
        step = 1 if forward else -1
        current: int | None = day if not near else day + step
        for _ in range(MOST_STEPS):
            assert current is not None
            limit = current + step * LONGEST_CLOSED
            calendar = self._calendar
            current = calendar.first_day(current, limit) if forward else calendar.last_day(current, limit)
            if current is None:
                return
            pieces = list(self._pieces(current))
            if self._walls.changes_near(current):
                pieces += [*self._pieces(current - 1), *self._pieces(current + 1)]
            if pieces:
                yield pieces
            current += step

    def _pieces(self, day: int) -> Iterator[Piece]:
        for start, end in self._calendar.windows(day):
            yield from self._walls.pieces(day, start, end)
