"""Long texts for people who read a terminal; commands about them are below."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scheduler_async import At, Delay, Every, Manual, Result, Retry, Scheduler
from scheduler_async.cli.long_text import shortened, size
from tests.cli.test_commands import (
    on_terminal,
    prepared,  # noqa: F401 - a fixture that they need
    run_elsewhere,
    well,
    without_colours,
)

KIB = 1024


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (KIB, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 * KIB, "64 KiB"),
        (5_000_000, "4.8 MiB"),
        (KIB**3, "1024 MiB"),
    ],
)
def test_a_size_is_told_in_words(count: int, words: str) -> None:
    assert size(count) == words


def test_a_long_text_is_cut_and_says_so() -> None:
    assert shortened("four", 4) == "four"
    assert shortened("x" * 64 * KIB, 4) == "xxxx… (64 KiB, --json shows all)"
    assert shortened("one two", 4) == "one… (7 bytes, --json shows all)"
    assert shortened("\ud800" * KIB, 1) == "\ud800… (1 KiB, --json shows all)"


# ---------------------------------------------------------------- on the command line

WORDS = "what it says "


@pytest.fixture
async def here(tmp_path: Path) -> Path:
    """A directory with a store that holds megabytes."""
    scheduler = Scheduler(tmp_path / "scheduler.db")

    @scheduler.handler("talk")
    async def talk() -> Result:
        return Result("success", message=WORDS * 5_000)

    @scheduler.handler("fail")
    async def fail() -> None:
        raise ValueError(WORDS * 5_000)

    await scheduler.add_job(
        Manual(), handler="talk", id="talks", payload={"data": "x" * 5_000_000}, metadata={"more": "y" * 5_000}
    )
    await scheduler.add_job(Delay("1s"), handler="fail", id="fails", retry=Retry.backoff())
    await scheduler.add_job(At("2020-01-01T00:00Z"), handler="fail", id="failed")
    await scheduler.add_job(Every("1h"), handler="command", id="runs", payload={"command": "true " * 1_000})
    await scheduler.run_pending()
    await scheduler.trigger_job("talks")
    await scheduler.stop()
    run_elsewhere(tmp_path / "scheduler.db")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="terminals")
@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.once
def test_nobody_has_to_read_megabytes(columns: int, here: Path) -> None:
    note = "… ({}, --json shows all)"
    for line, expected in [
        ("log", [note.format("63 KiB")]),
        ("log fails", [note.format("63 KiB")]),
        ("show talks", [note.format("4.8 MiB"), note.format("4.9 KiB"), note.format("63 KiB")]),
        ("show fails", [note.format("63 KiB"), "the next attempt is at"]),
        ("show runs", [note.format("4.9 KiB")]),
        ("explain fails", [note.format("63 KiB"), "the next attempt is at"]),
        ("explain failed", [note.format("63 KiB"), '"scheduler-async resume failed" enables it.']),
    ]:
        seen = without_colours(on_terminal(here, *line.split(), columns=columns))

        assert len(seen) < 15_000
        assert max(map(len, seen.splitlines())) <= columns
        text = "".join(seen.split())  # however it is broken into lines
        assert all("".join(words.split()) in text for words in expected), seen


@pytest.mark.once
def test_a_program_gets_all_of_it(here: Path) -> None:
    assert len(well(here, "show", "talks", "--json").json["payload"]["data"]) == 5_000_000
    assert [len(row["message"] or row["error"]) > 60_000 for row in well(here, "log", "--json").json] == [True] * 3
    assert len(well(here, "explain", "fails", "--json").json["sentence"]) > 60_000
