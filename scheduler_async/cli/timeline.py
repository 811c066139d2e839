"""The timeline of `preview`: a line of marks for each job, below a scale of wall times. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise, product
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from scheduler_async.cli.job_names import names_of
from scheduler_async.jobs.answers import Upcoming
from scheduler_async.texts import escaped
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, to_micros

NARROWEST = 20
# Names longer than this leave too little to the marks; nor may they take more than a third of a line.
_LONGEST_NAME = 40

_STEPS = (
    *(count * SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 4, 6, 12)),
    *(count * DAY for count in (1, 2, 7)),
    *(7 * DAY * 2**doubled for doubled in range(1, 20)),  # up to ten thousand years
)
_MONDAY = 4 * DAY  # since the epoch: weeks begin there
_LONG_DAY = 25 * HOUR  # midnight needs a date only if there are two of them
_LONG = 300 * DAY  # dates need a year before they come round


class _Drawing(NamedTuple):
    line: str
    tick: str
    mark: str
    more: str
    cut: str


_UNICODE = _Drawing(line="─", tick="┬", mark="•", more="#", cut="…")
_ASCII = _Drawing(line="-", tick="+", mark="*", more="#", cut="..")


def draw_timeline(
    upcoming: Sequence[Upcoming], begin: datetime, end: datetime, *, width: int, zone: tzinfo, ascii: bool = False
) -> list[str]:
    """Return two lines with a scale from *begin* to *end* in *zone*, and a line for each job, by its first run.

    A mark is one run, a digit that many in the same place, `#` ten and more. A run before *begin* is overdue, and
    stands there; a run after *end* is left out. No line is wider than *width*, which is at least 20.
    """
    first, last = to_micros(begin), to_micros(end)
    if first >= last:
        raise ValueError(f"The timeline ends ({end.isoformat()}) before it begins ({begin.isoformat()}).")
    drawing = _ASCII if ascii else _UNICODE
    runs = _runs_by_name([run for run in upcoming if run.at <= end], ascii=ascii)
    longest = max((cell_len(name) for name, _ in runs), default=0)
    margin = min(longest, max(width, NARROWEST) // 3, _LONGEST_NAME)
    indent = " " * (margin + 1 if runs else 0)
    chart = _Chart(first, last, columns=max(width, NARROWEST) - len(indent), zone=zone)

    lines = [indent + line for line in _scale(chart, drawing)]
    for name, moments in runs:
        lines.append(f"{_fitted(name, margin, drawing.cut)} {_marks(chart, moments, drawing)}")
    return [line.rstrip() for line in lines]


def _runs_by_name(upcoming: Sequence[Upcoming], *, ascii: bool) -> list[tuple[str, list[Micros]]]:
    """Return the name and the runs of each job, ordered by their first runs."""
    runs: dict[tuple[str, str], list[Micros]] = {}
    for run in sorted(upcoming, key=lambda run: run.at):
        runs.setdefault((run.job.namespace, run.job.id), []).append(to_micros(run.at))
    named = []
    for shown, moments in zip(names_of(list(runs)), runs.values(), strict=True):
        name = escaped(shown)
        named.append((name.encode("ascii", "replace").decode("ascii") if ascii else name, moments))
    return named


def _fitted(name: str, size: int, cut: str) -> str:
    """Return *name* in exactly *size* cells of the terminal; some characters take two."""
    if cell_len(name) <= size:
        return set_cell_size(name, size)
    return set_cell_size(name, size - len(cut)) + cut


class _Chart(NamedTuple):
    """A range of time laid over columns. Equal durations are equally wide, whatever the clocks do."""

    first: Micros
    last: Micros
    columns: int
    zone: tzinfo

    @property
    def span(self) -> Micros:
        return self.last - self.first

    def column(self, at: Micros) -> int:
        """Return the column of *at*; *last* itself is in the last column."""
        column = (at - self.first) * self.columns // self.span
        return min(max(column, 0), self.columns - 1)

    def offset(self, at: Micros) -> Micros:
        """Return how far the clocks are ahead of UTC at *at*."""
        try:
            shown = from_micros(at).astimezone(self.zone)
        except OverflowError:  # the last hours of the year 9999 are in the year 10000 elsewhere
            return 0
        return to_micros(shown.replace(tzinfo=UTC)) - at


def _marks(chart: _Chart, moments: Sequence[Micros], drawing: _Drawing) -> str:
    counts = Counter(map(chart.column, moments))
    cells = [" "] * chart.columns
    for column, count in counts.items():
        cells[column] = drawing.mark if count == 1 else str(count) if count < 10 else drawing.more
    return "".join(cells)


# ---------------------------------------------------------------- the scale


def _scale(chart: _Chart, drawing: _Drawing) -> tuple[str, str]:
    """Return the line with the labels, and the line with their ticks."""
    labels = _labels(chart)
    text = [" "] * chart.columns
    line = [drawing.line] * chart.columns
    for column, label in labels:
        line[column] = drawing.tick
        if column + len(label) <= chart.columns:
            text[column : column + len(label)] = label
    return "".join(text), "".join(line)


def _labels(chart: _Chart) -> list[tuple[int, str]]:
    """Return labels and their columns: as many round times as fit, two blanks apart if possible."""
    for blanks, step in product((2, 1), _STEPS):
        room = len(_label(chart, chart.first, step)) + blanks
        if step * chart.columns < room * chart.span:
            continue
        labels = [(chart.column(at), _label(chart, at, step)) for at in _ticks(chart, step)]
        # Where clocks change, two ticks may be closer than a step; the end of the line may cut off the last.
        has_room = all(later - earlier >= room for (earlier, _), (later, _) in pairwise(labels))
        if has_room and any(column + len(label) <= chart.columns for column, label in labels):
            return labels
    return [(0, _label(chart, chart.first, chart.span))]  # no round time lies within


def _label(chart: _Chart, at: Micros, step: Micros) -> str:
    """Return the wall time at *at*, as precise as ticks that are *step* apart need it."""
    shown = from_micros(at) + timedelta(microseconds=chart.offset(at))
    if step < MINUTE:
        return f"{shown:%H:%M:%S}"
    is_midnight = shown.hour == shown.minute == 0
    if step < DAY and not (is_midnight and chart.span > _LONG_DAY):
        return f"{shown:%H:%M}"
    return f"{shown:%m-%d}" if step < DAY or chart.span < _LONG else shown.date().isoformat()


def _ticks(chart: _Chart, step: Micros) -> Iterator[Micros]:
    """Yield the moments at which the clocks show a multiple of *step*, in order."""
    at = chart.first
    while at < chart.last:
        offset = chart.offset(at)
        tick = at + _until_round(at + offset, step)
        looked_at = min(tick, chart.last)
        if chart.offset(looked_at) == offset:
            if tick < chart.last:
                yield tick
            at = tick + 1
        else:
            at = _change(chart, at, looked_at)
            shift = chart.offset(at) - offset
            # A day whose midnight was left out begins all the same.
            if step >= DAY and _until_round(at + offset, step) < shift and _until_round(at + offset + shift, step):
                yield at


def _until_round(wall: Micros, step: Micros) -> Micros:
    """Return the time from *wall* to the next multiple of *step*, 0 if it is one. Weeks begin on Mondays."""
    return (_MONDAY - wall) % step


def _change(chart: _Chart, before: Micros, after: Micros) -> Micros:
    """Return the first moment after *before* with another offset; *after* must have another."""
    offset = chart.offset(before)
    while after - before > 1:
        middle = (before + after) // 2
        if chart.offset(middle) == offset:
            before = middle
        else:
            after = middle
    return after
