"""Several schedules as one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.base import Duration, Instant, Schedule, fill_in
from scheduler_async.schedules.calendars import Calendar
from scheduler_async.schedules.own import MOST_COUNTED
from scheduler_async.timekeeping.instants import Micros

MOST_SCHEDULES = 100


@dataclass(frozen=True, init=False)
class AnyOf(Schedule):
    """Runs at the occurrences of all its *schedules*. An instant that several of them name is one occurrence.

    >>> from scheduler_async import AnyOf, Cron
    >>> AnyOf(Cron("0 9 * * MON-FRI", tz="UTC"), Cron("0 11 * * SAT", tz="UTC")).describe()
    'at 09:00 on Monday to Friday (UTC), or at 11:00 on Saturday (UTC)'

    schedules
        From 1 to 100 schedules: `Every`, `Cron`, `At` and others, but neither `Delay` nor `After` nor `Manual`.
    jitter=None
        The longest delay to add to a run: a duration, or a percentage of the time to the next run up to "10%". The same
        occurrence of a job always has the same delay. The schedules themselves have no jitter.
    start=None, end=None
        The first and the last moment at which the job may run. None is no bound.
    """

    kind: ClassVar[str] = "any_of"
    schedules: tuple[Schedule, ...]
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None

    def __init__(
        self,
        *schedules: Schedule,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        flat: list[Schedule] = []
        for part in schedules:
            _check_part(part)
            is_plain = type(part) is AnyOf and part.start is None and part.end is None
            flat += part.schedules if is_plain and isinstance(part, AnyOf) else [part]
        # By their text, since a schedule of the user's may have no hash.
        different = tuple({part.json_text(): part for part in flat}.values())
        if not 1 <= len(different) <= MOST_SCHEDULES:
            raise InvalidScheduleError(
                f'AnyOf takes from 1 to {MOST_SCHEDULES} schedules, not {len(different)}. Write AnyOf(Every("1h"), '
                'Cron("0 9 * * *")).'
            )
        fill_in(self, schedules=different, may_be_slow=any(part.may_be_slow for part in different))
        self._set_bounds(jitter, start, end)

    def on(self, calendar: Calendar, otherwise: str = "skip") -> AnyOf:
        """Return the schedules on *calendar*, each in its own time zone. See `Schedule.on`."""
        parts, problems = [], []
        for part in self.schedules:
            try:
                parts.append(part.on(calendar, otherwise))
            except InvalidScheduleError as error:  # one of them may be left out altogether
                problems.append(error)
        if not parts:
            raise problems[0]
        return AnyOf(*parts, jitter=self.jitter, start=self.start, end=self.end)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        now = self._not_before_start(now)
        found = (part.next_micros(now, _anchor_of(part, now, anchor)) for part in self.schedules)
        first = min((at for at in found if at is not None), default=None)
        return None if first is None else self._until_end(first)

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        now = min(now, self._end)
        found = (part.latest_micros(now, _anchor_of(part, now, anchor)) for part in self.schedules)
        last = max((at for at in found if at is not None), default=None)
        return None if last is None or (self._start is not None and last < self._start) else last

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        after, until = self._not_before_start(after), min(until, self._end)
        counts = [part.count_micros(after, until, _anchor_of(part, after, anchor), cap) for part in self.schedules]
        if sum(map(bool, counts)) < 2 or sum(counts) <= 1:
            return min(sum(counts), cap)
        origin = after if anchor is None else anchor
        total, limit = 0, min(cap, MOST_COUNTED)
        while total < limit:
            found = self.next_micros(after, origin)
            if found is None or found > until:
                return total
            total, after = total + 1, found
        # The rest is counted without looking for instants that several schedules share.
        rest = (part.count_micros(after, until, _anchor_of(part, after, anchor), cap) for part in self.schedules)
        return min(total + sum(rest), cap)

    def first_micros(self, now: Micros) -> Micros | None:
        found = []
        for part in self.schedules:
            first = part.first_micros(now)
            found.append(first if first is not None and first >= now else part.next_micros(now, now))
        first = min((at for at in found if at is not None), default=None)
        if first is not None and self._start is not None and first < self._start:
            return self.next_micros(now, now)
        return None if first is None else self._until_end(first)

    def begins_at(self, anchor: Micros) -> Micros:
        return min(part.begins_at(anchor) for part in self.schedules)

    def raised_to(self, minimum: timedelta) -> AnyOf:
        raised = [part.raised_to(minimum) for part in self.schedules]
        return self if all(a is b for a, b in zip(raised, self.schedules, strict=True)) else self._with(raised)

    def in_zone(self, zone: str) -> AnyOf:
        return self._with([part.in_zone(zone) for part in self.schedules])

    def zone_name(self) -> str | None:
        """Return the name of the time zone that its schedules are written in, if those with a zone agree."""
        names = {part.zone_name() for part in self.schedules} - {None}
        return names.pop() if len(names) == 1 else None

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"{', or '.join(part.describe(zone) for part in self.schedules)}{self._describe_bounds(zone)}"

    def note_about(self, at: Micros, anchor: Micros | None = None) -> str | None:
        for part in self.schedules:
            if part.next_micros(at - 1, _anchor_of(part, at - 1, anchor)) == at:
                return part.note_about(at, anchor)
        return None

    def _with(self, parts: list[Schedule]) -> AnyOf:
        return AnyOf(*parts, jitter=self.jitter, start=self.start, end=self.end)

    def _parts(self) -> dict[str, Any]:
        return {"schedules": [part.to_json() for part in self.schedules]}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> AnyOf:
        return cls(*(Schedule.from_json(part) for part in parts.pop("schedules")), **parts)


def _check_part(part: object) -> None:
    if not isinstance(part, Schedule):
        raise InvalidScheduleError(f'AnyOf takes schedules such as Cron("0 9 * * *"), not {quoted(part)}.')
    if part.counts_from_end:
        raise InvalidScheduleError(
            'A Delay cannot be part of AnyOf: it counts from the end of the previous run. Use Every("5m").'
        )
    if part.follows_runs:
        raise InvalidScheduleError(
            "After cannot be part of AnyOf: it has no times of its own. Add a second job for it, with the same handler."
        )
    if not part.runs_by_itself:
        raise InvalidScheduleError("Manual() cannot be part of AnyOf: every job can be triggered anyway. Leave it out.")
    if part.jitter is not None:
        raise InvalidScheduleError("Pass the jitter to AnyOf(..., jitter=...), not to one of its schedules.")


def _anchor_of(part: Schedule, now: Micros, anchor: Micros | None) -> Micros | None:
    return None if anchor is None else part.anchor_before(now, anchor)
