"""The terminal: how wide it is, its colours, the reader's clock, and lines that are broken between words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from shutil import get_terminal_size
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table

from scheduler_async.cli import tables, time_format
from scheduler_async.cli.safe_text import Text
from scheduler_async.cli.tables import Row
from scheduler_async.jobs.enums import Outcome, Priority, Status
from scheduler_async.timekeeping.clock import SystemClock

# What is not read on a terminal is read by a program, or in a file: it has room for wide tables.
WIDE = 400

# Below this, nothing can be laid out: a terminal that is narrower breaks the lines as it likes.
NARROWEST = 20

COLOURS: dict[object, str] = {
    Outcome.SUCCESS: "green",
    Outcome.NOOP: "green",
    Outcome.SKIPPED: "yellow",
    Outcome.CANCELLED: "yellow",
    Status.RUNNING: "green",
    Status.QUEUED: "cyan",
    Status.PAUSED: "yellow",
    Status.DISABLED: "red",
    Priority.HIGH: "bold",
    Priority.LOW: "dim",
}
COLOURS.update({outcome: "red" for outcome in Outcome if outcome.is_failure})

HERE = time_format.ReadersZone()
CLOCK = SystemClock()


def now() -> datetime:
    """The moment at which the reader reads."""
    return CLOCK.now()


def width_of(stream: TextIO) -> int:
    """How many columns there are to write to."""
    return max(get_terminal_size().columns, NARROWEST) if stream.isatty() else WIDE


class Screen(Console):
    """A console that does not end the program by itself: runs may be in progress."""

    def on_broken_pipe(self) -> None:
        """Let whoever prints know that nobody reads any more."""
        raise  # noqa: PLE0704 - it is called where that is being handled


def console(*, stderr: bool = False) -> Console:
    """Where things are shown."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Screen(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def say(sentence: str) -> None:
    """One sentence."""
    print_line(Text(sentence))


def say_aside(sentence: str) -> None:
    """One sentence for somebody who sits at a terminal, and for nobody else."""
    if sys.stderr.isatty():
        print_line(Text(sentence, "dim"), stderr=True)


def print_line(line: RenderableType, *, stderr: bool = False) -> None:
    """A line, which a terminal breaks between words, and nobody else breaks."""
    screen = console(stderr=stderr)
    screen.print(line, soft_wrap=not screen.is_terminal)


def coloured(word: object) -> Text:
    """A word in the colour that it has everywhere."""
    return Text(str(getattr(word, "value", word)), style=COLOURS.get(word, ""))


def laid_out(heads: Sequence[str], rows: Sequence[Row]) -> RenderableType:
    """A table that fits, with moments on the clock of the reader."""
    return tables.laid_out(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def in_columns(heads: Sequence[str], rows: Sequence[Row]) -> Table | None:
    """The same, if it has room as a table."""
    return tables.in_columns(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def moment(at: datetime | None) -> str:
    """A moment, relative and absolute on the clock of the reader."""
    return time_format.moment(at, now(), HERE)
