"""Tables that fit: in columns while these have room, shorter if they must be, and as paragraphs below that. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from scheduler_async.cli import time_format
from scheduler_async.cli.safe_text import Text

Cell: TypeAlias = str | Text | datetime
Row: TypeAlias = Sequence[Cell]

# What is prose is broken into lines; all else stands in one.
PROSE = {"cron", "message", "note", "warnings", "counts"}
# Prose that is broken into smaller pieces than these is no pleasure to read.
NARROW_PROSE, WIDE_PROSE = 12, 24

# What columns are called where there is no room for their full names.
SHORT = {"next_due_at": "next", "retry_status": "retries", "retries_left": "retries", "last_exit": "exit"}

_BETWEEN = 2  # blanks


def laid_out(heads: Sequence[str], rows: Sequence[Row], *, width: int, now: datetime, zone: tzinfo) -> RenderableType:
    """*rows* under *heads*; where they have no room, a paragraph for each, in which nothing is missing."""
    columns = in_columns(heads, rows, width=width, now=now, zone=zone)
    return paragraphs(heads, rows, now=now, zone=zone) if columns is None else columns


def in_columns(heads: Sequence[str], rows: Sequence[Row], *, width: int, now: datetime, zone: tzinfo) -> Table | None:
    """*rows* under *heads*, with moments that are relative alone if need be; None if there is no room even so."""
    used = [number for number in range(len(heads)) if any(row[number] != "" for row in rows)]
    for is_short in (False, True):
        names = [SHORT.get(heads[number], heads[number]) if is_short else heads[number] for number in used]
        texts = [[_text(row[number], now, zone, is_short=is_short) for number in used] for row in rows]
        wide = [_width(name, [row[place].plain for row in texts]) for place, name in enumerate(names)]
        if sum(wide) + _BETWEEN * (len(wide) - 1) > width:
            continue
        found = Table(box=None, pad_edge=False, header_style="bold")
        for name, least in zip(names, wide, strict=True):
            found.add_column(name, no_wrap=name not in PROSE, overflow="fold", min_width=least)
        for row in texts:
            found.add_row(*row)
        return found
    return None


def paragraphs(heads: Sequence[str], rows: Sequence[Row], *, now: datetime, zone: tzinfo) -> RenderableType:
    """Each row by itself: what stands first in it, and below that all else by name."""
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


def _text(cell: Cell, now: datetime, zone: tzinfo, *, is_short: bool) -> Text:
    if isinstance(cell, datetime):
        cell = time_format.relative(cell, now) if is_short else time_format.moment(cell, now, zone)
    return Text(cell) if isinstance(cell, str) else cell


def _width(head: str, cells: Sequence[str]) -> int:
    """How many cells of the terminal a column takes at least."""
    texts = [head, *cells]
    natural = max(cell_len(text) for text in texts)
    if head not in PROSE:
        return natural
    longest_word = max((cell_len(word) for text in texts for word in text.split()), default=0)
    return min(natural, max(NARROW_PROSE, min(longest_word, WIDE_PROSE)))
