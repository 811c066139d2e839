"""Runs by the hour, back and ahead, as columns: solid ran, hatched failed, hollow left out, outlined planned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from markupsafe import Markup, escape

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.pages import Planned, TallyRow

HOUR = timedelta(hours=1)
BACK, AHEAD = 23, 24  # hours before and after the present one

STEP, WIDE, TALL = 20, 14, 100
LEAST = 3  # one failure among thousands is seen


class Hour(NamedTuple):
    """What happened in an hour, and what is planned in it."""

    begin: datetime
    ran: int = 0
    failed: int = 0
    left_out: int = 0
    planned: int = 0

    @property
    def total(self) -> int:
        """How high its column is."""
        return self.ran + self.failed + self.left_out + self.planned


def end_of(now: datetime) -> datetime:
    """Return the end of the last hour that is shown."""
    return now.replace(minute=0, second=0, microsecond=0) + (AHEAD + 1) * HOUR


def hours_of(tally: Sequence[TallyRow], planned: Planned, now: datetime) -> list[Hour]:
    """Return the hours around *now* in their order, each with its numbers."""
    present = now.replace(minute=0, second=0, microsecond=0)
    hours = {begin: Hour(begin) for begin in (present + number * HOUR for number in range(-BACK, AHEAD + 1))}
    for row in tally:
        if row.hour in hours:
            hours[row.hour] = _with(hours[row.hour], row)
    for begin, number in planned.hours:
        if begin in hours:
            hours[begin] = hours[begin]._replace(planned=number)
    return list(hours.values())


def _with(hour: Hour, row: TallyRow) -> Hour:
    if row.outcome is Outcome.SKIPPED:
        return hour._replace(left_out=hour.left_out + row.n)
    if row.outcome is not None and row.outcome.is_failure:
        return hour._replace(failed=hour.failed + row.n)
    return hour._replace(ran=hour.ran + row.n)


def chart(hours: Sequence[Hour], now: datetime, zone: tzinfo) -> Markup:
    """Return the columns as a drawing that stretches to any width. Its text is beside it: see `axis_of`."""
    most = max((hour.total for hour in hours), default=0)
    paths: dict[str, list[str]] = {"ok": [], "bad": [], "left": [], "plan": []}
    for number, hour in enumerate(hours):
        foot = TALL
        for kind, count in zip(paths, hour[1:], strict=True):
            assert isinstance(count, int)
            if count:
                high = max(round((TALL - 4) * count / most), LEAST)
                paths[kind].append(f"M{number * STEP + 3} {foot}v-{high}h{WIDE}v{high}z")
                foot -= high
    drawn = "".join(
        f'<path class="{kind}" d="{"".join(parts)}"{_FILLS.get(kind, "")}/>' for kind, parts in paths.items() if parts
    )
    targets = "".join(
        f'<rect class="hit" x="{number * STEP}" width="{STEP}" height="{TALL}">'
        f"<title>{escape(words_of(hour, zone))}</title></rect>"
        for number, hour in enumerate(hours)
    )
    at = round(((now - hours[0].begin) / HOUR) * STEP) if hours else 0
    wide = len(hours) * STEP
    return Markup(  # noqa: S704 - numbers, and text that is escaped above
        f'<svg class="hours" viewBox="0 0 {wide} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(summary(hours))}">{drawn}<path class="now" d="M{at} 0v{TALL}"/>{targets}</svg>'
    )


_FILLS = {"bad": ' fill="url(#hatch)"'}


def words_of(hour: Hour, zone: tzinfo) -> str:
    """Return the numbers of an hour in words: "14:00 CET: 60 ran, 3 failed"."""
    there = hour.begin.astimezone(zone)
    told = [
        f"{count:,} {word}"
        for count, word in zip(hour[1:], ("ran", "failed", "left out", "planned"), strict=True)
        if count
    ]
    return f"{there:%H:%M %Z}: {', '.join(told) or 'nothing'}"


def summary(hours: Sequence[Hour]) -> str:
    """Return all hours in a sentence, for screen readers."""
    ran, failed, left_out, planned = (sum(hour[field] for hour in hours) for field in range(1, 5))  # type: ignore[misc]
    return (
        f"Runs per hour: in the last 24 hours {ran:,} ran, {failed:,} failed and {left_out:,} were left out; "
        f"{planned:,} are planned in the next 24 hours."
    )


def axis_of(hours: Sequence[Hour], now: datetime, zone: tzinfo) -> list[str]:
    """Return five labels below the columns, from the first to the last hour."""
    if not hours:
        return []
    first, last = hours[0].begin, hours[-1].begin + HOUR
    quarter = (last - first) / 4
    labels = [(first + number * quarter).astimezone(zone) for number in range(5)]
    labels[2] = now.astimezone(zone)
    return [f"{label:%a %H:%M}" for label in labels]


def tallest(hours: Sequence[Hour]) -> int:
    """Return the number of the highest column."""
    return max((hour.total for hour in hours), default=0)
