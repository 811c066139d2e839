"""Tables that fit: in columns, shorter, or as paragraphs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from scheduler_async.cli.tables import in_columns, laid_out
from tests.cast import NOON

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
    assert shown(ROWS, 30) == [
        "nightly",
        "  cron at 03:00 on Monday to",
        "  Friday (Europe/Stockholm),",
        "  next_due_at in 2h, 14:00 UTC",
        "x",
        "  cron every 5 minutes,",
        "  next_due_at in 5m, 12:05 UTC",
    ]


@pytest.mark.parametrize("width", range(20, 120))
def test_no_line_is_wider_than_there_is_room(width: int) -> None:
    rows = [*ROWS, ("日本語の名前はとても広い", "* * * * *", NOON, "disabled if it fails once more")]

    lines = shown(rows, width)

    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()).count("nightly") == 1
    columns = in_columns(HEADS, rows, width=width, now=NOON, zone=UTC)
    assert columns is None or not any(len(line.split()) == 1 and len(line.strip()) == 1 for line in lines[1:])
