"""Tables that fit the terminal: names are cut, prose is wrapped, and below that each row is a paragraph. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding

from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.timekeeping import time_format

Cell: TypeAlias = str | AnyText | datetime
Row: TypeAlias = Sequence[Cell]

# A name that is too long is cut, and prose is wrapped; all else stands whole in one line.
NAMES = {"slug", "id", "host", "scheduler", "node"}
FIELD, VALUE = "field", "value"
PROSE = {"cron", "message", "note", "warnings", "counts", VALUE}

# The width that a name keeps beside full moments, and beside short ones. It takes at most a third of a line.
WIDE_NAME, NARROW_NAME = 24, 12
# Prose in narrower columns than these is hard to read.
NARROW_PROSE, WIDE_PROSE = 12, 24

# The heads of columns where space is short. None leaves a column out: another one tells enough.
SHORT: dict[str, str | None] = {
    "next_due_at": "next",
    "retry_status": "retries",
    "retries_left": "retries",
    "last_exit": "exit",
    "total": "runs",
    "success_rate": "success",
    "p50": None,
    "delay_p50": None,
    "delay_p95": "delay",
    "last_run_at": "last",
}

# Whether heads and moments are short, the least width of a name, and the longest word of prose that is not broken.
LAYOUTS = ((False, WIDE_NAME, WIDE_PROSE), (True, NARROW_NAME, WIDE_PROSE), (True, NARROW_NAME, NARROW_PROSE))

_BETWEEN = 2  # blanks
_WRAPPING = Console(width=1)  # rich asks for a console to wrap a text, and uses it only for full justification


class Columns:
    """Columns that keep their widths, so that a row that comes later stands below those that came before."""

    def __init__(self, heads: Sequence[str], widths: Sequence[int]) -> None:
        self.heads = heads
        self.widths = list(widths)

    def header(self) -> AnyText:
        """Return the heads of the columns as a line."""
        return _stacked([_joined([Text(head, "bold") for head in self.heads], self.widths)])

    def row(self, cells: Sequence[AnyText]) -> AnyText:
        """Return *cells* as a line, or as several if their prose needs them."""
        columns = [
            _wrapped(cell, width) if head in PROSE else [_cut(cell, width) if head in NAMES else cell]
            for head, cell, width in zip(self.heads, cells, self.widths, strict=True)
        ]
        count = max(map(len, columns))
        lines = zip(*(column + [Text()] * (count - len(column)) for column in columns), strict=True)
        return _stacked([_joined(line, self.widths) for line in lines])

    def widen(self, cells: Sequence[AnyText], width: int) -> None:
        """Make room for *cells* within *width*, at the cost of the last column, which is prose."""
        for place, (head, cell) in enumerate(zip(self.heads[:-1], cells, strict=False)):
            spare = max(width - self._total() + self.widths[-1] - WIDE_PROSE, 0)
            most = min(width // 3, self.widths[place] + spare) if head in NAMES else width
            self.widths[place] = max(self.widths[place], min(cell_len(cell.plain), most))
        self.widths[-1] = max(width - self._total() + self.widths[-1], NARROW_PROSE)

    def _total(self) -> int:
        return sum(self.widths) + _BETWEEN * (len(self.widths) - 1)


def laid_out(heads: Sequence[str], rows: Sequence[Row], *, width: int, now: datetime, zone: tzinfo) -> RenderableType:
    """Return *rows* under *heads*; in a narrow terminal, a paragraph for each, in which nothing is missing."""
    table = in_columns(heads, rows, width=width, now=now, zone=zone)
    return paragraphs(heads, rows, now=now, zone=zone) if table is None else table


def in_columns(heads: Sequence[str], rows: Sequence[Row], *, width: int, now: datetime, zone: tzinfo) -> AnyText | None:
    """Return *rows* under *heads*, if need be with short heads and moments; None if the terminal is too narrow."""
    used = [number for number in range(len(heads)) if any(row[number] != "" for row in rows)]
    for is_short, least_name, longest_word in LAYOUTS:
        names = {number: SHORT.get(heads[number], heads[number]) if is_short else heads[number] for number in used}
        shown = {number: name for number, name in names.items() if name is not None}
        texts = [[_text(row[number], now, zone, is_short=is_short) for number in shown] for row in rows]
        columns = fitting(list(shown.values()), texts, width, least_name, longest_word)
        if columns is not None:
            lines = [columns.header(), *(columns.row(row) for row in texts)]
            return _stacked(lines)
    return None


def fitting(
    heads: Sequence[str],
    rows: Sequence[Sequence[AnyText]],
    width: int,
    least_name: int = NARROW_NAME,
    longest_word: int = WIDE_PROSE,
) -> Columns | None:
    """Return columns for *rows* that take at most *width* cells; None if there is no room for them.

    A name gets at least *least_name* cells, and prose as many as its words need, up to *longest_word*.
    """
    natural = [max(cell_len(head), *(cell_len(row[place].plain) for row in rows)) for place, head in enumerate(heads)]
    widths = [
        min(natural[place], least_name)
        if head in NAMES
        else min(natural[place], _least_prose([head, *(row[place].plain for row in rows)], longest_word))
        if head in PROSE
        else natural[place]
        for place, head in enumerate(heads)
    ]
    room = width - sum(widths) - _BETWEEN * (len(widths) - 1)
    if room < 0:
        return None
    for kind, most in ((PROSE, WIDE_PROSE), (NAMES, max(least_name, width // 3)), (PROSE, width)):
        for place in (place for place, head in enumerate(heads) if head in kind):
            more = min(max(min(natural[place], most) - widths[place], 0), room)
            widths[place] += more
            room -= more
    return Columns(heads, widths)


def paragraphs(heads: Sequence[str], rows: Sequence[Row], *, now: datetime, zone: tzinfo) -> RenderableType:
    """Return each row by itself: its first cell, and below it all others with their heads."""
    parts: list[RenderableType] = []
    for row in rows:
        first, *others = (_text(cell, now, zone, is_short=False) for cell in row)
        named = [
            Text.assemble((f"{head} ", "dim"), text)
            for head, text in zip(heads[1:], others, strict=True)
            if text.plain not in ("", "-")
        ]
        parts += [Text(first.plain, "bold"), Padding(Text(", ").join(named), (0, 0, 0, _BETWEEN))]
    return Group(*parts)


def _text(cell: Cell, now: datetime, zone: tzinfo, *, is_short: bool) -> AnyText:
    if isinstance(cell, datetime):
        cell = time_format.relative(cell, now) if is_short else time_format.moment(cell, now, zone)
    return Text(cell) if isinstance(cell, str) else cell


def _least_prose(texts: Sequence[str], longest_word: int) -> int:
    longest = max((cell_len(word) for text in texts for word in text.split()), default=0)
    return max(NARROW_PROSE, min(longest, longest_word))


def _wrapped(text: AnyText, width: int) -> list[AnyText]:
    is_long = cell_len(text.plain) > width or "\n" in text.plain
    return list(text.wrap(_WRAPPING, width)) if is_long else [text]


def _cut(text: AnyText, width: int) -> AnyText:
    if cell_len(text.plain) <= width:
        return text
    cut = text.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut


def _joined(cells: Sequence[AnyText], widths: Sequence[int]) -> AnyText:
    """Return a line of *cells*, each in its width, without blanks at the end."""
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        line.append(cell)
        line.append(" " * (width - cell_len(cell.plain) + _BETWEEN))
    line.rstrip()
    return line


def _stacked(lines: Sequence[AnyText]) -> AnyText:
    """Return *lines* as one text, which rich does not wrap again."""
    text = Text("\n", keep="\n").join(lines)
    text.no_wrap, text.overflow = True, "ignore"
    return text
