"""The base class of schedules: bounds, jitter, a description and a JSON form. Pure."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.jitter import jitter_text, parse_jitter, stored_jitter
from scheduler_async.texts import describe_error
from scheduler_async.timekeeping.durations import (
    describe_duration,
)
from scheduler_async.timekeeping.instants import (
    LAST,
    Micros,
    describe_instant,
    from_micros,
    iso_text,
    parse_instant,
    span,
    to_micros,
)

JSON_VERSION = 1


Duration: TypeAlias = str | timedelta


Instant: TypeAlias = str | datetime


_KINDS: dict[str, type[Schedule]] = {}  # by what their JSON forms say


class Schedule(ABC):
    """The base class of `Every`, `Delay`, `Cron`, `At`, `After` and `Manual`: frozen values that say when a job runs.

    A schedule knows no job, no store and no clock. Two schedules with the same arguments are equal.
    """

    kind: ClassVar[str]
    runs_by_itself: ClassVar[bool] = True
    """Whether it has times of its own. Otherwise the job waits for a trigger, or for the run of another job."""
    follows_runs: ClassVar[bool] = False
    """Whether its occurrences are endings of runs of another job."""
    runs_once: ClassVar[bool] = False
    """Whether it has one occurrence."""
    counts_from_end: ClassVar[bool] = False
    """Whether its next occurrence depends on when the last run ended."""
    jitter: timedelta | float | None = None
    """The longest random delay to add: a duration, or a fraction of the interval."""
    start: datetime | None = None
    end: datetime | None = None
    # The same in microseconds, computed once: the scheduler asks often.
    _start: Micros | None = None
    _end: Micros = LAST

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _KINDS[cls.kind] = cls

    def next_after(self, now: datetime) -> datetime | None:
        """Return the first occurrence strictly after *now*, or None if no more will come."""
        found = self.next_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    def previous(self, now: datetime) -> datetime | None:
        """Return the latest occurrence at or before *now*, or None if there was none or it depends on past runs."""
        found = self.latest_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    @abstractmethod
    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """Return `next_after` in microseconds; *anchor* is the origin of the grid if the schedule has none."""

    @abstractmethod
    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """Return `previous` in microseconds."""

    @abstractmethod
    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*, at most *cap*."""

    def first_micros(self, now: Micros) -> Micros | None:
        """Return the first occurrence of a job that is added *now*."""
        return self.next_micros(now, now)

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        """Return an anchor of the same grid that is not after *now*, for a clock that has gone back."""
        return anchor

    def jittered(self, at: Micros, key: str) -> Micros:
        """Return the occurrence *at* plus the jitter of the job *key*, which is the same every time."""
        if self.jitter is None:
            return at
        gap = self._gap_after(at)
        if isinstance(self.jitter, timedelta):
            longest = span(self.jitter)
        else:
            longest = 0 if gap is None else int(gap * self.jitter)
        if gap is not None:
            longest = min(longest, gap - 1)  # never as late as the next occurrence
        if self.end is not None:
            longest = min(longest, max(to_micros(self.end) - at, 0))
        digest = blake2b(f"{key}@{at}".encode(), digest_size=8).digest()
        return min(at + int.from_bytes(digest) % (longest + 1), LAST)

    def raised_to(self, minimum: timedelta) -> Self:
        """Return this schedule, with its interval raised to *minimum* if it is shorter."""
        return self

    @abstractmethod
    def describe(self, zone: str | tzinfo = UTC) -> str:
        """Return when it runs, in plain English; single moments are shown in the *zone* of the reader."""

    def to_json(self) -> dict[str, Any]:
        """Return the schedule as a dict of JSON values, from which `from_json` makes an equal schedule."""
        form = {
            "version": JSON_VERSION,
            "kind": self.kind,
            **self._parts(),
            "jitter": jitter_text(self.jitter),
            "start": iso_or_none(self.start),
            "end": iso_or_none(self.end),
        }
        return {name: value for name, value in form.items() if value is not None}

    def json_text(self) -> str:
        """Return `to_json` as text, as stores keep it."""
        return _remembered_text(self)

    @staticmethod
    def from_json(form: str | Mapping[str, Any]) -> Schedule:
        """Return the schedule that `to_json` or `json_text` described."""
        try:
            parts = dict(json.loads(form) if isinstance(form, str) else form)
            version = parts.pop("version")
            if version != JSON_VERSION:
                raise InvalidScheduleError(
                    f"This schedule has version {quoted(str(version))} of the JSON form; this version of "
                    f"scheduler_async supports version {JSON_VERSION}. Upgrade scheduler_async."
                )
            kind = _KINDS[parts.pop("kind")]
            if parts.get("jitter") is not None:
                parts["jitter"] = stored_jitter(parts["jitter"])
            return kind._from_parts(parts)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidScheduleError):
                raise
            raise InvalidScheduleError(
                f"This is not the JSON form of a schedule ({describe_error(error)[:200]}). "
                'It must look like {"version": 1, "kind": "every", "interval": "5m"}.'
            ) from error

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Schedule:
        return cls(**parts)

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """Return the fields that only this kind has, as JSON values."""

    def _gap_after(self, at: Micros) -> Micros | None:
        """Return the time from the occurrence *at* to the next, or None if it is unknown."""
        following = self.next_micros(at, at)
        return None if following is None else following - at

    def _set_bounds(self, jitter: Duration | float | None, start: Instant | None, end: Instant | None) -> None:
        if jitter is not None:
            fill_in(self, jitter=parse_jitter(jitter))
        if start is not None:
            first = parse_instant(start, "start")
            fill_in(self, start=first, _start=to_micros(first))
        if end is not None:
            last = parse_instant(end, "end")
            fill_in(self, end=last, _end=to_micros(last))
        if self.start and self.end and self.start > self.end:
            raise InvalidScheduleError(
                f"end ({self.end.isoformat()}) must not be before start ({self.start.isoformat()}); otherwise the job "
                "never runs. Swap them."
            )

    def _not_before_start(self, now: Micros) -> Micros:
        """Return *now*, or the last moment before `start` if that is later: all that follows is within bounds."""
        return now if self._start is None else max(now, self._start - 1)

    def _until_end(self, at: Micros) -> Micros | None:
        return at if at <= self._end else None

    def _describe_bounds(self, zone: str | tzinfo) -> str:
        words = ""
        if isinstance(self.jitter, timedelta):
            words += f", up to {describe_duration(self.jitter)} later"
        elif self.jitter is not None:
            words += f", up to {jitter_text(self.jitter)} of the interval later"
        if self.start:
            words += f", from {describe_instant(self.start, zone)}"
        if self.end:
            words += f", until {describe_instant(self.end, zone)}"
        return words


_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make a new encoder for each text


@lru_cache(maxsize=4096)
def _remembered_text(schedule: Schedule) -> str:
    """Return the JSON form. It is cached: many jobs have equal schedules, and every edit writes one."""
    return _encode(schedule.to_json())


def fill_in(schedule: Schedule, **values: object) -> None:
    """Set *values* of a frozen schedule in its constructor."""
    schedule.__dict__.update(values)


def check_flag(value: object) -> bool:
    """Return *value* if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidScheduleError(f"immediately must be True or False, not {quoted(value)}.")
    return value


def iso_or_none(moment: datetime | None) -> str | None:
    """Return *moment* as it stands in JSON forms."""
    return None if moment is None else iso_text(moment)
