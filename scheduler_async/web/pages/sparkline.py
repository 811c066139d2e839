"""The last runs of a job as a row of bars: a higher bar took longer, and its shape tells the outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from scheduler_async.jobs.run import RunRow
from scheduler_async.timekeeping.time_format import took
from scheduler_async.web.links import Links
from scheduler_async.web.pages.kinds import Kind, sign_of_run

BARS = 60
STEP = 4  # from one bar to the next
TALL = 18  # the longest run
SHORT = 2  # the shortest run is seen too


class Bar(NamedTuple):
    """A run, as it is drawn: the kind of its outcome and its height."""

    kind: Kind
    height: int


def bars_of(rows: Sequence[RunRow]) -> list[Bar]:
    """Return a bar for each row: in proportion to the longest; those without a duration have a height of their own."""
    longest = max((row.duration_ms or 0.0 for row in rows), default=0.0)
    return [Bar(sign_of_run(row).kind, _height(row, longest)) for row in rows]


def _height(row: RunRow, longest: float) -> int:
    if row.duration_ms is None:
        return 6 if row.finished_at is not None or row.started_at is None else TALL
    return max(SHORT, round(TALL * row.duration_ms / longest)) if longest else SHORT


def paths_of(bars: Sequence[Bar], room: int = BARS) -> dict[Kind, str]:
    """Return the data of one path for each kind among *bars*, which come oldest first.

    The newest stands at the right of the *room*, which is a number of bars.

    >>> paths_of([Bar(Kind.OK, 5), Bar(Kind.OK, 18), Bar(Kind.BAD, 9)])
    {<Kind.OK: 'ok'>: 'M230 0v-5m4 5v-18', <Kind.BAD: 'bad'>: 'M238 0v-9m0 13v-2'}
    """
    paths: dict[Kind, list[str]] = {}
    ends: dict[Kind, tuple[int, int]] = {}
    first = (room - len(bars)) * STEP + STEP // 2
    for number, (kind, height) in enumerate(bars):
        x = first + number * STEP
        part, top = _shape(kind, height)
        if kind in ends:
            last_x, last_y = ends[kind]
            paths[kind].append(f"m{x - last_x} {-last_y}{part}")
        else:
            paths[kind] = [f"M{x} 0{part}"]
        ends[kind] = x, top
    return {kind: "".join(parts) for kind, parts in paths.items()}


def _shape(kind: Kind, height: int) -> tuple[str, int]:
    """Return how a bar is drawn from its foot, and the y at which that ends. Hollow bars begin at their corner."""
    if kind is Kind.BAD:  # with a mark below the baseline
        return f"v-{height}m0 {height + 4}v-2", 2
    if kind is Kind.CUT:  # broken off
        return "v-3m0 -2v-2", -7
    if kind in (Kind.OK, Kind.OFF):
        return f"v-{height}", -height
    return f"h1v-{height}h-2v{height}z", 0


def sparkline(rows: Sequence[RunRow]) -> Markup:
    """Return the last runs as a drawing, with a sentence for screen readers."""
    if not rows:
        return Markup('<span class="dim">no runs yet</span>')
    rows = rows[-BARS:]
    paths = "".join(f'<path class="{kind}" d="{data}"/>' for kind, data in paths_of(bars_of(rows)).items())
    return Markup(f'<svg class="spark" viewBox="0 -19 240 24" role="img" aria-label="{summary(rows)}">{paths}</svg>')  # noqa: S704


def large(rows: Sequence[RunRow], links: Links) -> Markup:
    """Return the last runs as a drawing that stretches to any width. Each bar leads to its run."""
    if not rows:
        return sparkline(rows)
    rows = rows[-BARS:]
    room = max(len(rows), BARS // 2)  # a few bars are not as wide as they are high
    paths = "".join(f'<path class="{kind}" d="{data}"/>' for kind, data in paths_of(bars_of(rows), room).items())
    first = (room - len(rows)) * STEP
    targets = "".join(
        f'<a href="{links.to("runs", row.id)}" tabindex="-1"><rect class="hit" x="{first + number * STEP}" y="-19" '
        f'width="{STEP}" height="24"><title>Run {row.id}: {_told(row)}</title></rect></a>'
        for number, row in enumerate(rows)
    )
    return Markup(  # noqa: S704 - numbers and words of ours
        f'<svg class="spark big" viewBox="0 -19 {room * STEP} 24" preserveAspectRatio="none" role="group" '
        f'aria-label="{summary(rows)}">{paths}{targets}</svg>'
    )


def _told(row: RunRow) -> str:
    word = sign_of_run(row).word
    return word if row.duration_ms is None else f"{word}, {took(row.duration_ms)}"


def summary(rows: Sequence[RunRow]) -> str:
    """Return the outcomes of *rows* as a sentence: "Last 60 runs: 57 success, 3 failed; longest 2.3s"."""
    counts: dict[str, int] = {}
    for row in rows:
        word = sign_of_run(row).word
        counts[word] = counts.get(word, 0) + 1
    longest = max((row.duration_ms for row in rows if row.duration_ms is not None), default=None)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    runs = "run" if len(rows) == 1 else f"{len(rows)} runs"
    return f"Last {runs}: {told}" + ("" if longest is None else f"; longest {took(longest)}")
