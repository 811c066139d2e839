"""Times on the page: on the clock that the visitor has chosen, always with its zone. Pure.

The choice is "job" (each time on the clock of its job; UTC where there is none), "mine" (the clock of the browser,
which tells its zone in a cookie), or "utc".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from scheduler_async.errors import UnknownZoneError
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.timekeeping.instants import iso_text
from scheduler_async.timekeeping.time_format import ReadersZone, absolute, relative
from scheduler_async.timekeeping.zones import as_tzinfo
from scheduler_async.web.errors import ParameterError

JOB, MINE, UTC_CHOICE = "job", "mine", "utc"
CHOICES = (JOB, MINE, UTC_CHOICE)

LONGEST_ZONE = 64  # characters of a name

CHOICE_COOKIE, ZONE_COOKIE = "scheduler_zone", "scheduler_tz"


class Choice(NamedTuple):
    """Which clock the visitor has chosen."""

    name: str
    mine: str | None
    """The zone of the browser, as far as it is known."""

    @property
    def is_unknown(self) -> bool:
        """Whether the browser was chosen, and has not told its zone."""
        return self.name == MINE and self.mine is None


def choice_of(query: Mapping[str, str], cookies: Mapping[str, str]) -> Choice:
    """Return the choice in the address, or else in the cookies. The address may also name a zone: `zone=Asia/Tokyo`."""
    told = _zone(cookies.get(ZONE_COOKIE, ""))
    asked = query.get("zone")
    if asked is None:
        kept = cookies.get(CHOICE_COOKIE, JOB)
        return Choice(kept if kept in CHOICES else JOB, told)
    if asked.lower() in CHOICES:
        return Choice(asked.lower(), told)
    named = _zone(asked)
    if named is None:
        raise ParameterError(
            "zone must be job, mine, utc or the name of a time zone.", "Use a name such as Europe/Stockholm.", "zone"
        )
    return Choice(MINE, named)


def _zone(name: str) -> str | None:
    try:
        # Not `as_tzinfo`: for an unknown name, it looks through all zones for a similar one.
        return ZoneInfo(name).key if 0 < len(name) <= LONGEST_ZONE else None
    except (KeyError, ValueError, OSError):  # unknown; not a name; a directory of zones
        return None


def zone_of(schedule: Schedule) -> tzinfo:
    """Return the zone that a schedule is written in; UTC for one without."""
    name = schedule.zone_name()
    if name is not None:
        try:
            return as_tzinfo(name)
        except UnknownZoneError:  # written on a machine with a newer zone database
            return UTC
    return ReadersZone() if isinstance(schedule, Cron) else UTC


@dataclass(frozen=True)
class Moments:
    """Shows times as of *now*, on the clock of the *choice*."""

    now: datetime
    choice: Choice

    def zone(self, schedule: Schedule | None = None) -> tzinfo:
        """Return the zone for the times of a job with this *schedule*, or for those of no job."""
        if self.choice.name == MINE and self.choice.mine is not None:
            return as_tzinfo(self.choice.mine)
        if self.choice.name == JOB and schedule is not None:
            return zone_of(schedule)
        return UTC

    def at(self, moment: datetime | None, zone: tzinfo = UTC, *, seconds: bool = False) -> Markup:
        """Return a time on the clock of *zone*: "Thu 19 Nov 03:00 CET"."""
        if moment is None:
            return NONE
        text = absolute(moment, self.now, zone, with_seconds=seconds)
        return Markup(f'<time datetime="{iso_text(moment)}">{escape(text)}</time>')  # noqa: S704 - escaped

    def relative(self, moment: datetime | None) -> Markup:
        """Return how far away a time is: "in 2h 5m". The script keeps it up to date."""
        if moment is None:
            return NONE
        return Markup(f'<time class="rel" datetime="{iso_text(moment)}">{relative(moment, self.now)}</time>')  # noqa: S704

    def both(self, moment: datetime | None, zone: tzinfo = UTC) -> Markup:
        """Return how far away a time is, and the time itself in grey."""
        if moment is None:
            return NONE
        text = escape(absolute(moment, self.now, zone))
        return Markup(f'{self.relative(moment)} <span class="dim">{text}</span>')  # noqa: S704 - escaped


NONE = Markup('<span class="dim">–</span>')
