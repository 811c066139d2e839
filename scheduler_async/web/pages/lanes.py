"""A stretch of time as lanes, one for each job or node: runs as bars, planned runs as outlines. Pure.

The unit is the minute. Bars that nearly touch become one, so that a job that runs every second is a band.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from markupsafe import Markup, escape

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.history import NodeSpan
from scheduler_async.jobs.run import RunRow
from scheduler_async.web.pages.kinds import Kind, sign_of_run

MINUTE = timedelta(minutes=1)
BACK = AHEAD = timedelta(hours=24)

TALL = 20
LEAST = 5  # minutes: a short run is seen too
TOUCH = 5  # minutes between bars that become one
MOST_PLANNED = 150  # of each job
MOST_NOTES = 12

# Where the bars of a kind begin and how high they are. Failures stand out above and below.
_PLACES = {Kind.BAD: (0, 20), Kind.LEFT_OUT: (5, 10), Kind.RUNNING: (2, 16)}
_USUAL = (3, 14)


class Window(NamedTuple):
    """The time that is shown."""

    first: datetime
    last: datetime

    @classmethod
    def around(cls, now: datetime) -> Window:
        """Return a day before and a day after *now*."""
        return cls(now - BACK, now + AHEAD)

    @property
    def wide(self) -> int:
        """How many minutes it has."""
        return round((self.last - self.first) / MINUTE)

    def x(self, at: datetime) -> int:
        """Return the minute of *at*, within the window."""
        return min(max(round((at - self.first) / MINUTE), 0), self.wide)


class Bar(NamedTuple):
    """A bar from one minute to another."""

    x: int
    end: int


def joined(bars: Iterable[Bar]) -> list[Bar]:
    """Return *bars* in order, those that nearly touch as one.

    >>> joined([Bar(100, 105), Bar(0, 5), Bar(6, 11)])
    [Bar(x=0, end=11), Bar(x=100, end=105)]
    """
    found: list[Bar] = []
    for bar in sorted(bars):
        if found and bar.x - found[-1].end <= TOUCH:
            found[-1] = Bar(found[-1].x, max(found[-1].end, bar.end))
        else:
            found.append(bar)
    return found


class Lane(NamedTuple):
    """What a lane shows."""

    bars: dict[Kind, list[Bar]]
    planned: list[Bar]
    notes: list[tuple[Bar, str]]
    """What stands beside a bar when it is pointed at."""
    unread: tuple[Bar, ...] = ()
    """The parts whose runs were not read or computed, because there are too many."""


def lane_of(rows: Sequence[RunRow], times: Sequence[datetime], window: Window, now: datetime, *, are_all: bool) -> Lane:
    """Return the lane of a job from its last *rows*, oldest first, and from the *times* at which it runs next.

    *are_all* says whether nothing came before the rows. After `MOST_PLANNED` times, there may be more.
    """
    bars: dict[Kind, list[Bar]] = {}
    notes: list[tuple[Bar, str]] = []
    for row in rows:
        begin, end = row.started_at or row.scheduled_for, row.finished_at or now
        if row.outcome is Outcome.SKIPPED:
            begin = end = row.scheduled_for
        if end < window.first or begin > window.last:
            continue
        sign = sign_of_run(row)
        x = window.x(begin)
        bar = Bar(x, max(window.x(end), x + LEAST))
        bars.setdefault(sign.kind, []).append(bar)
        if sign.kind in (Kind.BAD, Kind.LEFT_OUT, Kind.RUNNING):
            why = f": {str(row.reason).replace('_', ' ')}" if row.outcome is Outcome.SKIPPED and row.reason else ""
            count = f" {row.missed} times" if row.missed > 1 else ""
            notes.append((bar, f"{sign.word}{count}{why}"))
    joined_bars = {kind: joined(found) for kind, found in bars.items()}
    planned = joined(Bar(window.x(at), window.x(at) + LEAST) for at in times)
    unread = []
    if rows and not are_all and (begun := rows[0].started_at or rows[0].scheduled_for) > window.first:
        unread.append(Bar(0, window.x(begun)))
    if len(times) >= MOST_PLANNED:
        unread.append(Bar(min(planned[-1].end, window.wide), window.wide))
    return Lane(joined_bars, planned, notes[-MOST_NOTES:], tuple(unread))


def drawing_of(lane: Lane, window: Window, label: str) -> Markup:
    """Return a lane as a drawing that stretches to any width."""
    parts = [f'<path class="unread" d="M{bar.x} 10H{bar.end}"/>' for bar in lane.unread]
    for kind, bars in lane.bars.items():
        y, high = _PLACES.get(kind, _USUAL)
        data = _boxes(bars, y, high)
        fill = ' fill="url(#hatch)"' if kind is Kind.BAD else ""
        parts.append(f'<path class="{kind}"{fill} d="{data}"/>')
    if lane.planned:
        data = _boxes(lane.planned, 4, 12)
        parts.append(f'<path class="plan" d="{data}"/>')
    parts += [
        f'<rect class="hit" x="{bar.x}" width="{bar.end - bar.x}" height="{TALL}"><title>{escape(note)}</title></rect>'
        for bar, note in lane.notes
    ]
    return _svg("".join(parts), window, label)


def _boxes(bars: Sequence[Bar], y: int, high: int) -> str:
    """Return the data of a path of boxes, each from the corner of the one before.

    >>> _boxes([Bar(10, 15), Bar(30, 90)], 3, 14)
    'M10 3h5v14h-5zm20 0h60v14h-60z'
    """
    parts = []
    at: int | None = None
    for bar in bars:
        move = f"M{bar.x} {y}" if at is None else f"m{bar.x - at} 0"
        parts.append(f"{move}h{bar.end - bar.x}v{high}h{bar.x - bar.end}z")
        at = bar.x
    return "".join(parts)


def summary_of(lane: Lane) -> str:
    """Return what a lane shows in words."""
    words = {Kind.OK: "ran", Kind.BAD: "failed", Kind.LEFT_OUT: "left out", Kind.RUNNING: "running"}
    told = [f"{words.get(kind, str(kind))} {_times(bars)}" for kind, bars in lane.bars.items() if bars]
    if lane.planned:
        told.append(f"planned {_times(lane.planned)}")
    return ", ".join(told) or "nothing in these two days"


def _times(bars: Sequence[Bar]) -> str:
    return "once" if len(bars) == 1 else f"at {len(bars)} times"


# ---------------------------------------------------------------- nodes


def presence(spans: Sequence[NodeSpan], window: Window, now: datetime) -> tuple[dict[str, list[Bar]], list[Bar]]:
    """Return when each node was there, and when none was, up to *now*."""
    by_node: dict[str, list[Bar]] = {}
    for span in spans:
        end = min(span.until or now, now)
        if end >= window.first:
            x = window.x(span.since)
            by_node.setdefault(span.name, []).append(Bar(x, max(window.x(end), x + 1)))
    there = joined(bar for bars in by_node.values() for bar in bars)
    gaps, at = [], 0
    for bar in there:
        if bar.x - at > TOUCH:
            gaps.append(Bar(at, bar.x))
        at = max(at, bar.end)
    if window.x(now) - at > TOUCH:
        gaps.append(Bar(at, window.x(now)))
    return {name: joined(bars) for name, bars in by_node.items()}, gaps


def presence_drawing(bars: Sequence[Bar], window: Window, label: str, *, is_gap: bool = False) -> Markup:
    """Return a lane that shows when a node was there, or when none was."""
    data = _boxes(bars, 6, 8)
    kind, fill = ("bad", ' fill="url(#hatch)"') if is_gap else ("here", "")
    return _svg(f'<path class="{kind}"{fill} d="{data}"/>' if bars else "", window, label)


def _svg(drawn: str, window: Window, label: str) -> Markup:
    return Markup(  # noqa: S704 - numbers, and text that is escaped
        f'<svg class="lane" viewBox="0 0 {window.wide} {TALL}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{drawn}<path class="now" d="M{window.wide // 2} 0v{TALL}"/></svg>'
    )


# ---------------------------------------------------------------- the scale


def ticks(window: Window, zone: tzinfo) -> Markup:
    """Return the scale: a line every three hours, and a thicker one at midnight."""
    marks = {"tick": "", "day": ""}
    at = window.first.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    while at < window.last:
        there = at.astimezone(zone)
        if there.hour == 0 and there.minute < 60:
            marks["day"] += f"M{window.x(at)} 0v{TALL}"
        elif there.hour % 6 == 0:
            marks["tick"] += f"M{window.x(at)} 8v{TALL - 8}"
        at += timedelta(hours=1)
    drawn = "".join(f'<path class="{kind}" d="{data}"/>' for kind, data in marks.items() if data)
    return Markup(  # noqa: S704 - numbers
        f'<svg class="lane scale" viewBox="0 0 {window.wide} {TALL}" preserveAspectRatio="none" aria-hidden="true">'
        f'{drawn}<path class="now" d="M{window.wide // 2} 0v{TALL}"/></svg>'
    )


def labels(window: Window, zone: tzinfo) -> list[str]:
    """Return five labels of the scale, from its first to its last moment."""
    quarter = (window.last - window.first) / 4
    return [f"{(window.first + number * quarter).astimezone(zone):%a %H:%M}" for number in range(5)]
