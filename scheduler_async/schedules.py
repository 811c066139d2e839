"""When a job runs. Frozen values that answer "when next, strictly after this moment?". Pure: no clock, no I/O.

People ask with datetimes (`next_after`, `previous`). The scheduler asks with integer microseconds (`next_micros` and
its neighbours), and tells the anchor that a job got when it was added.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

from scheduler_async.cron import MAX_LENGTH, parse_cron
from scheduler_async.cron_words import describe_line
from scheduler_async.durations import describe_duration, format_interval, parse_interval, parse_stored_interval
from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.instants import (
    LAST,
    SECOND,
    Micros,
    describe_instant,
    from_micros,
    parse_instant,
    span,
    to_micros,
)
from scheduler_async.texts import describe_error
from scheduler_async.zones import check_zone, find_zone

JSON_VERSION = 1

Duration: TypeAlias = str | timedelta
Instant: TypeAlias = str | datetime


class Schedule(ABC):
    """What all schedules have in common: bounds, jitter, a description and a JSON form."""

    kind: ClassVar[str]
    goes_by_moments: ClassVar[bool] = True
    """Whether its next occurrence follows from the moment of the last one, however long that took."""
    jitter: timedelta | float | None = None
    """The longest delay to add: a duration, or a fraction of the interval."""
    start: datetime | None = None
    end: datetime | None = None
    # The same in microseconds, worked out once: the scheduler asks often.
    _start: Micros | None = None
    _end: Micros = LAST

    def next_after(self, now: datetime) -> datetime | None:
        """The first occurrence strictly later than *now*, or None when there are no more."""
        found = self.next_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    def previous(self, now: datetime) -> datetime | None:
        """The latest occurrence at or before *now*, or None if there was none or it depends on what ran."""
        found = self.latest_micros(to_micros(parse_instant(now)))
        return None if found is None else from_micros(found)

    @abstractmethod
    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """`next_after` in microseconds; *anchor* is where the job's grid begins if the schedule does not say."""

    @abstractmethod
    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        """`previous` in microseconds."""

    @abstractmethod
    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        """How many occurrences are later than *after* and not later than *until*, at most *cap*."""

    def first_micros(self, now: Micros) -> Micros | None:
        """When a job that is added *now* runs first."""
        return self.next_micros(now, now)

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        """Where the same grid begins if the clock has gone back to before its *anchor*."""
        return anchor

    def jittered(self, at: Micros, key: str) -> Micros:
        """The occurrence *at* with the delay that jitter adds for the job *key*: the same one every time."""
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
        """This schedule, or one with its interval raised to *minimum* if it is shorter."""
        return self

    @abstractmethod
    def describe(self, zone: str | tzinfo = UTC) -> str:
        """When it runs, in plain English; *zone* is that of the reader, on whose clock single moments are."""

    def to_json(self) -> dict[str, Any]:
        """The schedule as JSON values, with a version; `from_json` makes an equal one of them."""
        form = {
            "version": JSON_VERSION,
            "kind": self.kind,
            **self._parts(),
            "jitter": _jitter_text(self.jitter),
            "start": _iso(self.start),
            "end": _iso(self.end),
        }
        return {name: value for name, value in form.items() if value is not None}

    def json_text(self) -> str:
        """`to_json` as text, as stores keep it."""
        return _remembered_text(self)

    @staticmethod
    def from_json(form: str | Mapping[str, Any]) -> Schedule:
        """The schedule that `to_json` was asked of; *form* may be text too."""
        try:
            parts = dict(json.loads(form) if isinstance(form, str) else form)
            version = parts.pop("version")
            if version != JSON_VERSION:
                raise InvalidScheduleError(
                    f"This schedule has version {quoted(str(version))} of the JSON form, and only version "
                    f"{JSON_VERSION} is known here: a newer scheduler_async wrote it."
                )
            kind = _KINDS[parts.pop("kind")]
            if parts.get("jitter") is not None:
                parts["jitter"] = _stored_jitter(parts["jitter"])
            return kind._from_parts(parts)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidScheduleError):
                raise
            raise InvalidScheduleError(
                f"This is not the JSON form of a schedule ({describe_error(error)[:200]}). "
                'One looks like {"version": 1, "kind": "every", "interval": "5m"}.'
            ) from error

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Schedule:
        return cls(**parts)

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """What is particular to this kind, as JSON values."""

    def _gap_after(self, at: Micros) -> Micros | None:
        """How long it is from the occurrence *at* to the next, if that can be known."""
        following = self.next_micros(at, at)
        return None if following is None else following - at

    def _set_bounds(self, jitter: Duration | float | None, start: Instant | None, end: Instant | None) -> None:
        if jitter is not None:
            _fill(self, jitter=_parse_jitter(jitter))
        if start is not None:
            first = parse_instant(start, "start")
            _fill(self, start=first, _start=to_micros(first))
        if end is not None:
            last = parse_instant(end, "end")
            _fill(self, end=last, _end=to_micros(last))
        if self.start and self.end and self.start > self.end:
            raise InvalidScheduleError(
                f"The schedule ends ({self.end.isoformat()}) before it starts ({self.start.isoformat()}), "
                "so that it would never run. Swap start and end."
            )

    def _not_before_start(self, now: Micros) -> Micros:
        """*now*, or the last moment before the schedule's start: whatever follows is within bounds."""
        return now if self._start is None else max(now, self._start - 1)

    def _until_end(self, at: Micros) -> Micros | None:
        return at if at <= self._end else None

    def _describe_bounds(self, zone: str | tzinfo) -> str:
        words = ""
        if isinstance(self.jitter, timedelta):
            words += f", up to {describe_duration(self.jitter)} later"
        elif self.jitter is not None:
            words += f", up to {_jitter_text(self.jitter)} of the interval later"
        if self.start:
            words += f", from {describe_instant(self.start, zone)}"
        if self.end:
            words += f", until {describe_instant(self.end, zone)}"
        return words


@dataclass(frozen=True, init=False)
class Every(Schedule):
    """On a fixed grid: every *interval*, counted from *anchor* (default: when the job is added).

    The first run comes after one interval, at the anchor if that lies ahead, or at once with *immediately*.
    """

    kind: ClassVar[str] = "every"
    interval: timedelta
    anchor: datetime | None
    immediately: bool
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None
    _step: Micros = field(repr=False, compare=False)
    _anchor: Micros | None = field(repr=False, compare=False)

    def __init__(
        self,
        interval: Duration,
        anchor: Instant | None = None,
        immediately: bool = False,
        *,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        step = parse_interval(interval)
        origin = None if anchor is None else parse_instant(anchor, "anchor")
        _fill(
            self,
            interval=step,
            anchor=origin,
            immediately=_flag(immediately),
            _step=span(step),
            _anchor=None if origin is None else to_micros(origin),
        )
        self._set_bounds(jitter, start, end)

    def next_after(self, now: datetime) -> datetime | None:
        """The first occurrence strictly later than *now*, or None when there are no more."""
        if self.start is not None or self.end is not None or getattr(now, "tzinfo", None) is not UTC:
            return super().next_after(now)
        # What `next_micros` says, without the way there and back: that takes longer than the arithmetic.
        try:
            if self.anchor is None:
                return now + self.interval
            return self.anchor if now < self.anchor else now + (self.interval - (now - self.anchor) % self.interval)
        except OverflowError:
            return None

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        origin = self._origin(anchor)
        if origin is None:
            origin = now
        if self._start is not None:
            now = max(now, self._start - 1)
        step = self._step
        found = origin if now < origin else now + step - (now - origin) % step
        return found if found <= self._end else None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        origin = self._origin(anchor)
        if origin is None:
            return None
        now = min(now, self._end)
        latest = now - (now - origin) % self._step
        return latest if latest >= max(origin, self._start or origin) else None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        origin = self._origin(anchor)
        if origin is None:
            origin = after
        after = max(self._not_before_start(after), origin - 1)
        until = min(until, self._end)
        if until <= after:
            return 0
        return min((until - origin) // self._step - (after - origin) // self._step, cap)

    def first_micros(self, now: Micros) -> Micros | None:
        return self._until_end(max(now, self._start or now)) if self.immediately else super().first_micros(now)

    def anchor_before(self, now: Micros, anchor: Micros) -> Micros:
        if self._anchor is not None or anchor <= now:
            return anchor
        return now - (now - anchor) % self._step

    def raised_to(self, minimum: timedelta) -> Every:
        if self.interval >= minimum:
            return self
        return Every(minimum, self.anchor, self.immediately, jitter=self.jitter, start=self.start, end=self.end)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        anchor = f", counted from {describe_instant(self.anchor, zone)}" if self.anchor else ""
        return f"every {_one_dropped(self.interval)}{anchor}{self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {
            "interval": format_interval(self.interval),
            "anchor": _iso(self.anchor),
            "immediately": self.immediately or None,
        }

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Every:
        return cls(parse_stored_interval(parts.pop("interval")), **parts)

    def _origin(self, anchor: Micros | None) -> Micros | None:
        return anchor if self._anchor is None else self._anchor

    def _gap_after(self, at: Micros) -> Micros | None:
        return self._step


@dataclass(frozen=True, init=False)
class Delay(Schedule):
    """One *interval* after the previous run finished; the first run at once, unless *immediately* is False."""

    kind: ClassVar[str] = "delay"
    goes_by_moments: ClassVar[bool] = False
    interval: timedelta
    immediately: bool
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None

    def __init__(
        self,
        interval: Duration,
        immediately: bool = True,
        *,
        jitter: Duration | float | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        _fill(self, interval=parse_interval(interval), immediately=_flag(immediately))
        self._set_bounds(jitter, start, end)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._until_end(max(now + span(self.interval), self._start or now))

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0  # without a run there is no next occurrence, so that none can be missed

    def first_micros(self, now: Micros) -> Micros | None:
        return self._until_end(max(now, self._start or now)) if self.immediately else super().first_micros(now)

    def raised_to(self, minimum: timedelta) -> Delay:
        if self.interval >= minimum:
            return self
        return Delay(minimum, self.immediately, jitter=self.jitter, start=self.start, end=self.end)

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"{describe_duration(self.interval)} after the previous run finished{self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {"interval": format_interval(self.interval), "immediately": None if self.immediately else False}

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> Delay:
        return cls(parse_stored_interval(parts.pop("interval")), **parts)

    def _gap_after(self, at: Micros) -> Micros | None:
        return span(self.interval)


@dataclass(frozen=True, init=False)
class Cron(Schedule):
    """At the times of a cron *expression* (5 fields, or 6 with seconds first), on the clocks of the zone *tz*.

    *tz* is a name such as "Europe/Stockholm", an offset such as "+05:30", a `ZoneInfo`, or a `tzinfo` with a fixed
    offset. The schedule keeps it as a name. Without *tz* it is the zone of the system.

    Around daylight saving, "30 2 * * *" runs exactly once every day, and "*/15 * * * *" goes on every fifteen minutes.
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
        _fill(self, expression=line.text, tz=None if tz is None else check_zone(tz))
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

    def describe(self, zone: str | tzinfo = UTC) -> str:
        written_for = self.tz or f"{find_zone(None).name}, the system's zone"
        return f"{describe_line(parse_cron(self.expression))} ({written_for}){self._describe_bounds(zone)}"

    def _parts(self) -> dict[str, Any]:
        return {"expression": self.expression, "tz": self.tz}


@dataclass(frozen=True, init=False)
class At(Schedule):
    """Once, at a moment: an aware datetime, or ISO 8601 text with a zone."""

    kind: ClassVar[str] = "at"
    at: datetime
    jitter: timedelta | float | None
    start: datetime | None
    end: datetime | None
    _at: Micros = field(repr=False, compare=False)

    def __init__(
        self,
        at: Instant,
        *,
        jitter: Duration | None = None,
        start: Instant | None = None,
        end: Instant | None = None,
    ) -> None:
        moment = parse_instant(at)
        _fill(self, at=moment, _at=to_micros(moment))
        self._set_bounds(jitter, start, end)
        if isinstance(self.jitter, float):
            raise InvalidScheduleError(
                'An At has no interval that jitter could be a percentage of. Give a duration, such as jitter="30s".'
            )
        if (self.start and self.at < self.start) or (self.end and self.at > self.end):
            raise InvalidScheduleError(
                f"The moment {self.at.isoformat()} lies outside start and end, so that it would never come. "
                "Leave the bounds out: an At runs once anyway."
            )

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._at if self._at > now else None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return self._at if self._at <= now else None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return min(int(after < self._at <= until), cap)

    def first_micros(self, now: Micros) -> Micros | None:
        return self._at  # also when it has passed: then the misfire policy decides

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return f"once at {describe_instant(self.at, zone)}{self._describe_bounds(zone)}"

    def json_text(self) -> str:
        if self.jitter is not None or self.start is not None or self.end is not None:
            return super().json_text()
        # Thousands may be added at once, each with a moment of its own: to remember those would help nobody.
        return f'{{"version":{JSON_VERSION},"kind":"at","at":"{_iso(self.at)}"}}'

    def _parts(self) -> dict[str, Any]:
        return {"at": _iso(self.at)}


@dataclass(frozen=True)
class Manual(Schedule):
    """Never by itself, only when it is triggered: by a webhook, a chat message, a person."""

    kind: ClassVar[str] = "manual"
    goes_by_moments: ClassVar[bool] = False
    jitter: None = field(default=None, init=False, repr=False)
    start: None = field(default=None, init=False, repr=False)
    end: None = field(default=None, init=False, repr=False)

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0

    def describe(self, zone: str | tzinfo = UTC) -> str:
        return "only when triggered"

    def _parts(self) -> dict[str, Any]:
        return {}


_KINDS: dict[str, type[Schedule]] = {kind.kind: kind for kind in (Every, Delay, Cron, At, Manual)}


def parse_schedule(text: str, tz: str | tzinfo | None = None) -> Schedule:
    """The schedule that a person means by *text*; *tz* is the zone of a cron expression, as `Cron` takes it.

    "every 5m", "after 5m", "0 9 * * *", "@daily", "2026-06-15T09:00:00Z" or "manual".
    """
    if not isinstance(text, str):
        raise InvalidScheduleError(f"A schedule is a text, not {quoted(text)}. {_FORMS}")
    if len(text) > MAX_LENGTH:
        raise InvalidScheduleError(f"A schedule has at most {MAX_LENGTH} characters; {quoted(text)} has more. {_FORMS}")
    word, _, rest = text.strip().partition(" ")
    match word.lower():
        case "every":
            return Every(rest)
        case "after":
            return Delay(rest)
        case "at":
            return At(rest)
        case "manual" if not rest:
            return Manual()
    if _LOOKS_LIKE_A_DATE.match(word):
        return At(text)
    if word.startswith("@") or len(text.split(maxsplit=7)) in (5, 6):
        return Cron(text, tz)
    raise InvalidScheduleError(f"Cannot read {quoted(text)} as a schedule. {_FORMS}")


_LOOKS_LIKE_A_DATE = re.compile(r"\d{4}-\d")
_FORMS = (
    'Write "every 5m" (on a grid), "after 5m" (after the previous run), a cron expression such as "0 9 * * *" '
    'or "@daily", a moment such as "2026-06-15T09:00:00Z", or "manual".'
)


_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make one for each text


@lru_cache(maxsize=4096)
def _remembered_text(schedule: Schedule) -> str:
    """Its JSON form: many jobs have equal schedules, and every edit writes one."""
    return _encode(schedule.to_json())


def _fill(schedule: Schedule, **values: object) -> None:
    schedule.__dict__.update(values)  # the one way to fill in a frozen value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidScheduleError(f"immediately is True or False, not {quoted(value)}.")
    return value


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _one_dropped(interval: timedelta) -> str:
    """The words that follow "every": "hour" rather than "1 hour"."""
    words = describe_duration(interval)
    return words.removeprefix("1 ") if words.count(" ") == 1 else words


_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?%", re.ASCII)
_LARGEST_FRACTION = 0.1  # more would be another schedule


def _parse_jitter(jitter: object) -> timedelta | float:
    if isinstance(jitter, float) and 0 < jitter <= _LARGEST_FRACTION:
        return jitter
    percentage = _PERCENTAGE.fullmatch(jitter.strip()) if isinstance(jitter, str) and len(jitter) < 32 else None
    if percentage:
        fraction = float(percentage[1]) / 100
        if 0 < fraction <= _LARGEST_FRACTION:
            return fraction
    elif isinstance(jitter, str | timedelta) and not (isinstance(jitter, str) and "%" in jitter):
        return parse_interval(jitter)
    raise InvalidScheduleError(
        f'Invalid jitter {quoted(jitter)}. Give the longest delay to add, as a duration such as "30s", '
        'or as a percentage of the interval up to "10%".'
    )


def _stored_jitter(text: str) -> timedelta | float:
    return _parse_jitter(text) if isinstance(text, str) and text.endswith("%") else parse_stored_interval(text)


def _jitter_text(jitter: timedelta | float | None) -> str | None:
    if jitter is None:
        return None
    return format_interval(jitter) if isinstance(jitter, timedelta) else f"{round(jitter * 100, 3):g}%"
