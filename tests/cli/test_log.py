"""The command `log`: runs of a stretch of time, failures and where they failed, page by page."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from scheduler_async import Manual, Scheduler
from scheduler_async.testing import VirtualClock
from tests.cli.test_commands import call, here, on_terminal, prepared, well, without_colours

__all__ = ["here", "prepared"]  # fixtures
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups, and terminals"),
    pytest.mark.once,
]

# In winter, when Stockholm is an hour ahead of UTC.
RUNS = ("2026-01-05T12:00:00Z", "2026-01-05T13:00:00Z", "2026-01-05T14:00:00Z")


async def fill(path: Path) -> None:
    """Run a job three times; the second run fails."""
    clock = VirtualClock(RUNS[0])
    scheduler = Scheduler(path, clock=clock)

    @scheduler.handler("fetch")
    async def fetch(number: int) -> dict[str, int]:
        return {"half": 1 // (number - 1)}

    async with scheduler:
        await scheduler.add_job(Manual(), handler="fetch", id="fetch", payload={"number": 2})
        for number in (0, 1, 2):
            await scheduler.wait_for_run(await scheduler.trigger_job("fetch", payload={"number": number}))
            await clock.advance("1h")


@pytest.fixture
def filled(here: Path) -> Path:
    asyncio.run(fill(here / "scheduler.db"))
    return here


@pytest.mark.parametrize(
    ("options", "found"),
    [
        pytest.param([], [3, 2, 1], id="all"),
        pytest.param(["--failed"], [2], id="failures"),
        pytest.param(["--before", "3", "--limit", "1"], [2], id="a page"),
        pytest.param(["--since", "2026-01-05T13:00:00Z"], [3, 2], id="since a time"),
        pytest.param(["--until", "2026-01-05T13:30"], [1], id="until a local time"),
        pytest.param(["--until", "2026-01-05T13:30", "--tz", "UTC"], [2, 1], id="until a time elsewhere"),
        pytest.param(["--since", "1d", "--until", "1h"], [], id="since yesterday"),
        pytest.param(["--until", "1m"], [3, 2, 1], id="until a minute ago"),
        pytest.param(
            ["fetch", "--failed", "--since", "2026-01-05T12:00Z", "--until", "2026-01-05T14:00Z"], [2], id="both"
        ),
    ],
)
def test_the_log_shows_what_is_asked_for(filled: Path, options: list[str], found: list[int]) -> None:
    assert [row["id"] for row in well(filled, "log", *options, "--json").json] == found


def test_a_traceback_is_shown_below_its_run(filled: Path) -> None:
    lines = well(filled, "log", "--traceback").out.splitlines()

    assert [bool(re.search("fetch +manual", line)) for line in lines].count(True) == 3
    assert lines[3].strip() == "Traceback (most recent call last):"
    assert lines[-2].strip() == "ZeroDivisionError: integer division or modulo by zero"
    (row,) = well(filled, "log", "--failed", "--traceback", "--json").json
    assert row["traceback"].endswith("ZeroDivisionError: integer division or modulo by zero")
    assert (row["payload"], row["result"]) == ({"number": 1}, None)
    assert [row["traceback"] for row in well(filled, "log", "--json").json] == [None] * 3
    assert [row["result"] for row in well(filled, "log", "--json").json] == [{"half": 1}, None, {"half": -1}]


async def test_a_long_word_leaves_the_log_a_table(tmp_path: Path) -> None:
    """As in an error that names a file or a key. Without columns, the log has no header."""
    async with Scheduler(tmp_path / "scheduler.db") as scheduler:

        @scheduler.handler("fetch")
        async def fetch() -> None:
            raise KeyError("customer" * 10)

        await scheduler.add_job(Manual(), handler="fetch", id="import-customers")
        await scheduler.run_job("import-customers")

    lines = without_colours(on_terminal(tmp_path, "log", columns=80)).splitlines()

    assert lines[0].split() == ["run", "when", "slug", "trigger", "outcome", "took", "message"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--since", "someday"], "someday"),
        (["--since", "5x"], "Valid units are"),
        (["--since", "2026-13-01"], "month must be in 1..12"),
        (["--since", "1h", "--until", "2h"], "since must not be later than until"),
        (["--since", "1h", "--tz", "Europe/Stokholm"], "Stokholm"),
        (["--before", "x"], "x"),
        (["--follow", "--until", "1h"], "--follow continues with new runs"),
    ],
)
def test_what_the_log_cannot_be_asked_for(filled: Path, options: list[str], sentence: str) -> None:
    done = call(filled, "log", *options)

    assert done.code == 2
    assert sentence in done.err
