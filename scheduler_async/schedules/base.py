"""The base class of schedules: bounds, jitter, a description and a JSON form. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, wraps
from hashlib import blake2b
from logging import WARNING
from typing import Any, ClassVar, Self, TypeAlias

from scheduler_async.errors import InvalidScheduleError, UnknownScheduleError, quoted
from scheduler_async.logs import say
from scheduler_async.schedules.calendars import Calendar
from scheduler_async.schedules.jitter import jitter_text, parse_jitter, stored_jitter
from scheduler_async.schedules.own import calling, checked_next, count_by_asking, latest_by_asking
from scheduler_async.schedules.own_fields import check_class, fields_from_json, fields_to_json, read_part
from scheduler_async.schedules.patience import check_time
from scheduler_async.texts import describe_error
from scheduler_async.timekeeping.durations import (
    describe_duration,
)
from scheduler_async.timekeeping.instants import (
    FIRST,
    LAST,
    SECOND,
    Micros,
    describe_instant,
    from_micros,
    iso_text,
    parse_instant,
    span,
    to_micros,
)
from scheduler_async.timekeeping.zones import Zone

JSON_VERSION = 1


Duration: TypeAlias = str | timedelta


Instant: TypeAlias = str | datetime


_KINDS: dict[str, type[Schedule]] = {}  # by what their JSON forms say
_registrations = 0
_OURS = "scheduler_async."
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)


class Schedule:
    """The base class of `Every`, `Delay`, `Cron`, `At`, `After`, `Manual`, `AnyOf`, and of schedules of your own.

    A schedule is a frozen value that says when a job runs. It knows no job, no store and no clock. Two schedules with
    the same arguments are equal.

    A schedule of your own is a frozen dataclass with a `kind` and a method `next_after`:

    >>> from dataclasses import dataclass
    >>> from datetime import UTC, datetime, timedelta
    >>> from scheduler_async import Schedule
    >>> @dataclass(frozen=True)
    ... class Doubling(Schedule):
    ...     kind = "doubling"
    ...     since: datetime
    ...     def next_after(self, now: datetime) -> datetime | None:
    ...         wait = timedelta(minutes=1)
    ...         while self.since + wait <= now:
    ...             wait *= 2
    ...         return self.since + wait
    >>> schedule = Doubling(datetime(2026, 1, 5, tzinfo=UTC))
    >>> schedule.next_after(datetime(2026, 1, 5, 0, 5, tzinfo=UTC))
    datetime.datetime(2026, 1, 5, 0, 8, tzinfo=datetime.timezone.utc)
    >>> Schedule.from_json(schedule.to_json()) == schedule
    True

    `next_after` must answer without I/O, and with a later time than it was asked about, or None. The scheduler
    calls it in a thread: one that takes long delays its own job only. If it does not answer within 10 seconds, the
    job is disabled with that reason. `describe` is optional. The fields may hold JSON values, `datetime`, `date`,
    `timedelta`, enums, calendars and other schedules; their annotations say how they are read. A process in which
    the class is not defined leaves the job alone.
    """

    kind: ClassVar[str]
    runs_by_itself: bool = True
    """Whether it has times of its own. Otherwise the job waits for a trigger, or for the run of another job."""
    follows_runs: bool = False
    """Whether its occurrences are endings of runs of another job."""
    runs_once: bool = False
    """Whether it has one occurrence."""
    counts_from_end: bool = False
    """Whether its next occurrence depends on when the last run ended."""
    is_known: bool = True
    """Whether this process knows its kind. If not, the scheduler leaves the job alone."""
    may_be_slow: bool = False
    """Whether it asks code of users, which may take any time. `stores/decided.py` says when that is called."""
    jitter: timedelta | float | None = None
    """The longest delay to add: a duration, or a fraction of the interval."""
    start: datetime | None = None
    end: datetime | None = None
    _is_ours: ClassVar[bool] = True
    # The same in microseconds, computed once: the scheduler asks often.
    _start: Micros | None = None
    _end: Micros = LAST

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Each of ours computes its occurrences with integers.
        cls._is_ours = cls.__module__.startswith(_OURS) and cls.next_micros is not Schedule.next_micros
        if not cls._is_ours:
            _check_kind(cls)
            cls.may_be_slow = True
            if "describe" in cls.__dict__:
                cls.describe = _tolerant(cls.__dict__["describe"])  # type: ignore[method-assign]
        _register(cls)

    def next_after(self, now: datetime) -> datetime | None:
        """Return the first occurrence strictly after *now*, or None if no more will come."""
        found = self.next_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    def previous(self, now: datetime) -> datetime | None:
        """Return the latest occurrence at or before *now*, or None if there was none or it depends on past runs."""
        found = self.latest_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    def on(self, calendar: Calendar, otherwise: str = "skip") -> Schedule:
        """Return this schedule with only the occurrences inside *calendar*.

        >>> from datetime import UTC, datetime
        >>> from scheduler_async import BusinessDays, Cron
        >>> last_day = Cron("0 9 L * *", tz="Europe/Stockholm")
        >>> last_day.on(BusinessDays("SE"), otherwise="before").next_after(datetime(2026, 5, 20, tzinfo=UTC))
        datetime.datetime(2026, 5, 29, 7, 0, tzinfo=datetime.timezone.utc)

        calendar
            `Weekdays`, `Dates`, `Hours`, `Holidays`, `BusinessDays`, or a combination of them with `&`, `|` and `~`.
        otherwise="skip"
            What happens to an occurrence outside: "skip" leaves it out; "before" and "after" move it to the nearest day
            inside, at the same wall-clock time. If the calendar has hours, "after" moves it to the time at which the
            calendar opens next, and "before" is refused. Occurrences that move to the same instant become one. If the
            nearest day is more than 366 days away, the occurrence is left out.

        The calendar uses the time zone of the schedule. An interval or an instant has none: its calendar uses the
        `timezone` of the scheduler, or UTC.
        """
        wrap = _KINDS["on"]
        return wrap.around(self, calendar, otherwise)  # type: ignore[attr-defined,no-any-return]

    def in_zone(self, zone: str) -> Schedule:
        """Return this schedule, in *zone* as far as it has no time zone of its own."""
        return self

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """Return `next_after` in microseconds; *anchor* is the origin of the grid if the schedule has none."""
        return checked_next(self, now)

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """Return `previous` in microseconds."""
        return latest_by_asking(self.next_micros, now)

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        """Return how many occurrences are later than *after* and not later than *until*, at most *cap*."""
        return count_by_asking(self.next_micros, after, until, cap)

    def begins_at(self, anchor: Micros) -> Micros:
        """Return the time before which a job whose schedule starts at *anchor* has no occurrences."""
        return FIRST

    def written_walls(self, at: Micros, zone: Zone) -> tuple[Micros, ...]:
        """Return the wall-clock times in *zone* that the occurrence *at* stands for, which a clock change may skip."""
        period = zone.period_at(at // SECOND)
        return (at,) if period is None else (at + period.offset * SECOND,)

    def note_about(self, at: Micros, anchor: Micros | None = None) -> str | None:
        """Return what a reader should know about the occurrence *at*, such as where it was moved from."""
        return None

    def zone_name(self) -> str | None:
        """Return the name of the time zone that it is written in, if it has one."""
        zone = getattr(self, "tz", None)
        return zone if isinstance(zone, str) else None

    def first_micros(self, now: Micros) -> Micros | None:
        """Return the first occurrence of a job that is added *now*."""
        return self.next_micros(now, now)

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        """Return an anchor of the same grid that is not after *now*, for a clock that has gone back."""
        return anchor

    def jittered(self, at: Micros, key: str, anchor: Micros | None = None) -> Micros:
        """Return the occurrence *at* plus the jitter of the job *key*, which is the same every time."""
        if self.jitter is None:
            return at
        gap = self._gap_after(at, anchor)
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

    def describe(self, zone: str | tzinfo = UTC) -> str:
        """Return when it runs, in plain English; single moments are shown in the *zone* of the reader."""
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)  # type: ignore[arg-type]
        return f"by the schedule {self.kind}({values})"

    def to_json(self) -> dict[str, Any]:
        """Return the schedule as a dict of JSON values, from which `from_json` makes an equal schedule."""
        form = {"version": JSON_VERSION, "kind": self.kind, **self._parts()}
        if self._is_ours:
            form |= {"jitter": jitter_text(self.jitter), "start": iso_or_none(self.start), "end": iso_or_none(self.end)}
        return {name: value for name, value in form.items() if value is not None}

    def json_text(self) -> str:
        """Return `to_json` as text, as stores keep it."""
        # A field of a user's class may hold a list, which has no hash.
        return _encode(self.to_json()) if self.may_be_slow else _remembered_text(self)

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
            name = parts.pop("kind")
            kind = _KINDS.get(name)
            if kind is None and isinstance(name, str):
                raise UnknownScheduleError(
                    f"This process does not know schedules of the kind {quoted(name)}. Import the class that defines "
                    "it first.",
                    name,
                )
            if kind is None:
                raise TypeError("the kind is not a string")
            if not kind._is_ours:
                check_time()
                values = fields_from_json(kind, parts, _read_part)
                with calling(f"The constructor of the schedule {quoted(name)}"):
                    return kind(**values)
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

    def _parts(self) -> dict[str, Any]:
        """Return the fields that only this kind has, as JSON values."""
        check_class(type(self))
        _register(type(self))  # of two classes with this kind, the one in use reads it
        return fields_to_json(self, _write_part)

    def _gap_after(self, at: Micros, anchor: Micros | None) -> Micros | None:
        """Return the time from the occurrence *at* to the next, or None if it is unknown."""
        following = self.next_micros(at, at if anchor is None else anchor)
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


def registrations() -> int:
    """Return how often a class of schedules was registered. After one more, what could not be read may be readable."""
    return _registrations


def check_own(schedule: Schedule) -> None:
    """Raise `InvalidScheduleError` unless the user's schedules in *schedule* are read back as equal ones."""
    if not (schedule.may_be_slow and schedule.is_known):
        return
    read = Schedule.from_json(schedule.json_text())
    if type(read) is not type(schedule) or read != schedule:
        raise InvalidScheduleError(
            f"{type(schedule).__name__} cannot be stored: reading its JSON form makes another value. Annotate each "
            f"field with the type of its value. It was {quoted(repr(schedule))}, and became {quoted(repr(read))}."
        )


def _register(cls: type[Schedule]) -> None:
    """Let *cls* read the JSON forms of its kind from now on."""
    global _registrations  # noqa: PLW0603 - it counts for the whole process, as the kinds do
    if _KINDS.get(cls.kind) is not cls:
        _KINDS[cls.kind] = cls
        _registrations += 1
        stored_schedule.cache_clear()


def _check_kind(cls: type[Schedule]) -> None:
    name = cls.__dict__.get("kind")
    if not isinstance(name, str) or not _KIND.fullmatch(name):
        raise InvalidScheduleError(
            f'{cls.__name__} must have a kind of its own, such as kind = "sunrise": letters, digits, "-", "_" and ".".'
        )
    if not any("next_after" in base.__dict__ for base in cls.__mro__ if base is not Schedule):
        raise InvalidScheduleError(f"{cls.__name__} must have a method next_after(now).")
    known = _KINDS.get(name)
    if known is not None and known._is_ours:
        raise InvalidScheduleError(f"The kind {quoted(name)} is built in. Choose another for {cls.__name__}.")
    # A module that is loaded again defines its classes again, and so does @dataclass(slots=True).
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        say(
            WARNING,
            "%s.%s replaces %s.%s as the class of the schedule kind %s. Give each class a kind of its own",
            *(cls.__module__, cls.__qualname__, known.__module__, known.__qualname__, quoted(name)),
        )


def _tolerant(describe: Callable[..., object]) -> Callable[..., str]:
    """Return a user's `describe`, with or without the argument *zone*. An error in it must not hide the job."""

    @wraps(describe)
    def described(self: Schedule, zone: str | tzinfo = UTC) -> str:
        takes_zone = describe.__code__.co_argcount > 1 if hasattr(describe, "__code__") else False
        try:
            return str(describe(self, zone) if takes_zone else describe(self))
        except Exception:  # a description is never worth an error
            return Schedule.describe(self, zone)

    return described


def _write_part(value: object) -> object:
    if isinstance(value, Schedule | Calendar):
        return value.to_json()
    raise TypeError(f"a value of type {type(value).__name__} is not a JSON value")


def _read_part(kind: type, value: Any) -> Any:
    return read_part(kind, value, Schedule.from_json)


_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make a new encoder for each text


@lru_cache(maxsize=4096)
def _remembered_text(schedule: Schedule) -> str:
    """Return the JSON form. It is cached: many jobs have equal schedules, and every edit writes one."""
    return _encode(schedule.to_json())


@lru_cache(maxsize=4096)
def stored_schedule(text: str) -> Schedule:
    """Return the schedule that `json_text` described. It is cached until a class of schedules is registered."""
    return Schedule.from_json(text)


def fill_in(schedule: Schedule, /, **values: object) -> None:
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
