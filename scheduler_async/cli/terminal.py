"""The terminal: its width, its colours, the reader's clock, and lines that wrap at words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding

from scheduler_async.cli import tables
from scheduler_async.cli.printing import terminal_width
from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.cli.tables import Row
from scheduler_async.jobs.enums import Outcome, Priority, Status
from scheduler_async.timekeeping import time_format
from scheduler_async.timekeeping.clock import SystemClock

# Output that does not go to a terminal goes to a program or a file, which have room for wide tables.
WIDE = 600

INDENT = 4  # blanks before each line of the output of a run

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
    """Return the current time."""
    return CLOCK.now()


def width_of(stream: TextIO) -> int:
    """Return how many columns *stream* has."""
    return terminal_width() if stream.isatty() else WIDE


class Screen(Console):
    """A console that does not end the program by itself: runs may be in progress."""

    def on_broken_pipe(self) -> None:
        """Let the caller handle that the reader has left."""
        raise  # noqa: PLE0704 - rich calls this while it handles that error


def console(*, stderr: bool = False) -> Console:
    """Return a console for stdout, or for stderr."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Screen(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def say(sentence: str) -> None:
    """Print a sentence."""
    print_line(Text(sentence))


def say_aside(sentence: str) -> None:
    """Print a sentence on stderr if that is a terminal, and nothing otherwise."""
    if sys.stderr.isatty():
        print_line(Text(sentence, "dim"), stderr=True)


def print_line(line: RenderableType, *, stderr: bool = False) -> None:
    """Print a line, which wraps at words on a terminal and nowhere else."""
    screen = console(stderr=stderr)
    screen.print(line, soft_wrap=not screen.is_terminal)


def print_indented(line: AnyText) -> None:
    """Print a line of the output of a run. On a terminal, its continuation is indented too."""
    screen = console()
    if screen.is_terminal and screen.width > 2 * INDENT:
        screen.print(Padding(line, (0, 0, 0, INDENT), expand=False))
    else:
        screen.print(Text(" " * INDENT).append(line), soft_wrap=True)


def coloured(word: object) -> AnyText:
    """Return a word in the colour that it has everywhere."""
    return Text(str(getattr(word, "value", word)), style=COLOURS.get(word, ""))


def laid_out(heads: Sequence[str], rows: Sequence[Row]) -> RenderableType:
    """Return a table that fits the terminal, with moments on the clock of the reader."""
    return tables.laid_out(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def in_columns(heads: Sequence[str], rows: Sequence[Row]) -> AnyText | None:
    """Return the same, or None if the terminal is too narrow for a table."""
    return tables.in_columns(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def moment(at: datetime | None) -> str:
    """Return a moment, relative and on the clock of the reader."""
    return time_format.moment(at, now(), HERE)
