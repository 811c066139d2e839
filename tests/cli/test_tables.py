"""Tables that fit: in columns, shorter, or as paragraphs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.cli.tables import NARROW_PROSE, fitting, laid_out
from tests.cast import NOON

pytestmark = pytest.mark.once  # the version of Python does not matter

HEADS = ("slug", "cron", "next_due_at", "warnings")
ROWS = [
    ("nightly", "at 03:00 on Monday to Friday (Europe/Stockholm)", NOON + timedelta(hours=2), ""),
    ("x", "every 5 minutes", NOON + timedelta(minutes=5), ""),
]


def shown(rows: list[tuple[str, str, datetime, str]], width: int) -> list[str]:
    return printed(laid_out(HEADS, rows, width=width, now=NOON, zone=UTC), width)


def printed(what: RenderableType, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(what)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_where_there_is_room_all_is_shown_in_columns() -> None:
    """Except for columns without anything in them."""
    assert shown(ROWS, 100) == [
        "slug     cron                                             next_due_at",
        "nightly  at 03:00 on Monday to Friday (Europe/Stockholm)  in 2h, 14:00 UTC",
        "x        every 5 minutes                                  in 5m, 12:05 UTC",
    ]


def test_prose_is_broken_into_lines_before_all_else() -> None:
    assert shown(ROWS, 48) == [
        "slug     cron                   next_due_at",
        "nightly  at 03:00 on Monday to  in 2h, 14:00 UTC",
        "         Friday",
        "         (Europe/Stockholm)",
        "x        every 5 minutes        in 5m, 12:05 UTC",
    ]


def test_with_less_room_moments_and_heads_are_short() -> None:
    assert shown(ROWS, 40) == [
        "slug     cron                      next",
        "nightly  at 03:00 on Monday to     in 2h",
        "         Friday",
        "         (Europe/Stockholm)",
        "x        every 5 minutes           in 5m",
    ]


def test_without_room_each_row_is_a_paragraph_and_nothing_is_missing() -> None:
    assert shown(ROWS, 26) == [
        "nightly",
        "  cron at 03:00 on Monday",
        "  to Friday",
        "  (Europe/Stockholm),",
        "  next_due_at in 2h, 14:00",
        "  UTC",
        "x",
        "  cron every 5 minutes,",
        "  next_due_at in 5m, 12:05",
        "  UTC",
    ]


def test_one_long_name_is_cut_and_the_table_stays() -> None:
    """It would turn all other rows into paragraphs; `show` and --json have the whole name."""
    rows = [("a-name-" * 20, "every 5 minutes", NOON, ""), ("x", "at 03:00", NOON + timedelta(days=800), "")]

    assert shown(rows, 80) == [
        "slug                        cron             next_due_at",
        "a-name-a-name-a-name-a-na…  every 5 minutes  now, 12:00 UTC",
        "x                           at 03:00         in 2y 69d, 2028-03-15 12:00 UTC",
    ]
    assert shown(rows, 45) == [
        "slug             cron             next",
        "a-name-a-name-…  every 5 minutes  now",
        "x                at 03:00         in 2y 69d",
    ]


def test_a_row_that_comes_later_stands_below_the_others() -> None:
    """A column widens for a longer cell, and stays as wide; the last one gives way."""
    columns = fitting(("slug", "outcome", "message"), [texts("a", "success", "one")], 60)
    assert columns is not None

    seen = [columns.header().plain]
    for row in (texts("a", "success", "one two"), texts("b" * 30, "interrupted", "one two"), texts("c", "error", "x")):
        columns.widen(row, 60)
        seen.append(columns.row(row).plain)

    assert seen == [
        "slug  outcome  message",
        "a     success  one two",
        "bbbbbbbbbbbbbbbbbbb…  interrupted  one two",
        "c                     error        x",
    ]


def texts(*cells: str) -> list[AnyText]:
    return [Text(cell) for cell in cells]


@pytest.mark.parametrize("width", range(20, 120))
def test_no_line_is_wider_than_there_is_room(width: int) -> None:
    rows = [*ROWS, ("日本語の名前はとても広い", "* * * * *", NOON, "disabled if it fails once more")]

    lines = shown(rows, width)

    assert max(map(cell_len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    short = {word for row in ROWS for word in row[1].split() if len(word) <= NARROW_PROSE}
    assert {"nightly", *short} <= {word.strip(",") for word in words}, "only long words are broken"
