"""Schedules as a person types them. Pure."""

from __future__ import annotations

import re
from datetime import tzinfo

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.after import After, RunEnds, split_name
from scheduler_async.schedules.any_of import AnyOf
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.calendar_text import parse_calendar
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.cron_line import MAX_LENGTH
from scheduler_async.schedules.delay import Delay
from scheduler_async.schedules.every import Every
from scheduler_async.schedules.manual import Manual


def parse_schedule(text: str, tz: str | tzinfo | None = None) -> Schedule:
    """Return the schedule that *text* describes; *tz* is the time zone of a cron expression, as `Cron` takes it.

    >>> from scheduler_async import parse_schedule
    >>> for text in ("every 5m", "after 5m", "after job extract", "0 9 * * *", "@daily", "2026-06-15T09:00Z", "manual"):
    ...     print(parse_schedule(text, tz="UTC").describe())
    every 5 minutes
    5 minutes after the previous run finished
    after extract succeeds
    at 09:00 (UTC)
    at 00:00 (UTC)
    once at 2026-06-15 09:00 UTC
    only when triggered

    "after job etl/extract" names a job of the namespace "etl".

    " on " adds a calendar, with "otherwise before" or "otherwise after" behind it; " or " adds another schedule:

    >>> parse_schedule("every 1h on hours:08:00-18:00 or 0 3 * * *", tz="UTC").describe()
    'every hour, only from 08:00 to 18:00 (UTC), or at 03:00 (UTC)'

    Raise `InvalidScheduleError`, `CronParseError` or `IntervalParseError` if the text is none of these.
    """
    if isinstance(text, str) and len(text) <= MAX_LENGTH and (match := _AFTER_JOB.fullmatch(text)):
        namespace, job = split_name(match["job"])
        return After(job, _OUTCOMES[(match["verb"] or "succeeds").lower()], match["delay"], namespace)
    if isinstance(text, str) and len(text) <= _LONGEST and (parts := _OR.split(text))[1:]:
        return AnyOf(*(parse_schedule(part, tz) for part in parts))
    if isinstance(text, str) and len(text) <= _LONGEST and (match := _ON.fullmatch(text)):
        schedule = parse_schedule(match["schedule"], tz)
        return schedule.on(parse_calendar(match["calendar"]), (match["otherwise"] or "skip").lower())
    if not isinstance(text, str):
        raise InvalidScheduleError(f"A schedule must be a string, not {quoted(text)}. {_FORMS}")
    if len(text) > MAX_LENGTH:
        raise InvalidScheduleError(
            f"A schedule must have at most {MAX_LENGTH} characters; {quoted(text)} has more. {_FORMS}"
        )
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


# "after job extract", "after job extract fails", "after job extract ends + 5m"
_AFTER_JOB = re.compile(
    r"\s*after\s+job\s+(?P<job>\S.*?)(?:\s+(?P<verb>succeeds|fails|ends))?(?:\s*\+\s*(?P<delay>\w+))?\s*",
    re.IGNORECASE,
)
_OUTCOMES = {"succeeds": RunEnds.SUCCESS, "fails": RunEnds.FAILURE, "ends": RunEnds.ANY}

_LONGEST = 2048
_OR = re.compile(r"\s+or\s+", re.IGNORECASE)
_ON = re.compile(
    r"(?P<schedule>.+?)\s+on\s+(?P<calendar>.+?)(?:\s+otherwise\s+(?P<otherwise>\w+))?\s*", re.IGNORECASE | re.DOTALL
)
_LOOKS_LIKE_A_DATE = re.compile(r"\d{4}-\d")


_FORMS = (
    'Write "every 5m" (on a grid), "after 5m" (after the previous run), "after job extract" (after a run of another '
    'job; "after job extract fails + 5m"), a cron expression such as "0 9 * * *" or "@daily", a moment such as '
    '"2026-06-15T09:00:00Z", or "manual". A calendar may follow: "on weekdays:MON-FRI".'
)
