"""How the time of a run passed: late, waiting, running, as bars one below the other. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from markupsafe import Markup

from scheduler_async.jobs.run import RunRow
from scheduler_async.timekeeping.time_format import lasting
from scheduler_async.web.pages.kinds import sign_of_run

WIDE = 1000
LEAST = 4


class Stretch(NamedTuple):
    """A part of the life of a run."""

    name: str
    told: str
    """What it means."""
    begin: datetime
    end: datetime
    kind: str

    @property
    def lasted(self) -> str:
        """How long it took."""
        return lasting(self.end - self.begin)


def stretches_of(row: RunRow, now: datetime) -> list[Stretch]:
    """Return the stretches of a run in their order; the last one of a run in progress ends *now*."""
    end = row.finished_at or now
    begun = row.started_at or end
    claimed = min(row.claimed_at or begun, begun)
    due = row.scheduled_for
    found = []
    if due < claimed:
        found.append(Stretch("due", "until a scheduler claimed it", due, claimed, "late"))
    waited_from = max(claimed, min(due, begun))
    if waited_from < begun:
        found.append(Stretch("claimed", "until its handler began", waited_from, begun, "wait"))
    if row.started_at is not None:
        word = "and runs" if row.finished_at is None else "until it ended"
        found.append(Stretch("began", word, begun, max(end, begun), sign_of_run(row).kind))
    return found


def drawing_of(stretch: Stretch, first: datetime, last: datetime) -> Markup:
    """Return the bar of a stretch within the life of its run."""
    whole = max(last - first, timedelta(microseconds=1))
    x = min(round(WIDE * ((stretch.begin - first) / whole)), WIDE - LEAST)
    wide = max(round(WIDE * ((stretch.end - stretch.begin) / whole)), LEAST)
    fill = ' fill="url(#hatch)"' if stretch.kind == "bad" else ""
    return Markup(  # noqa: S704 - numbers and names of classes
        f'<svg class="fall" viewBox="0 0 {WIDE} 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="rail" d="M0 5h{WIDE}"/>'
        f'<rect class="{stretch.kind}"{fill} x="{x}" width="{min(wide, WIDE - x)}" height="10"/></svg>'
    )


class Fall(NamedTuple):
    """A line of the waterfall."""

    stretch: Stretch
    drawing: Markup


def waterfall(row: RunRow, now: datetime) -> list[Fall]:
    """Return the life of a run, a line for each stretch."""
    stretches = stretches_of(row, now)
    if not stretches:
        return []
    first, last = stretches[0].begin, stretches[-1].end
    return [Fall(stretch, drawing_of(stretch, first, last)) for stretch in stretches]
