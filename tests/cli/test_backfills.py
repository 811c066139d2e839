"""Backfills and the policies of a job, from a terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import call, on_terminal, prepared, well

__all__ = ["prepared"]  # a fixture

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups, and terminals"),
    pytest.mark.once,
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


def test_a_backfill_runs_here_and_says_how_it_went(here: Path) -> None:
    well(here, "add", "report", "echo hello", "--cron", "0 * * * *", "--tz", "UTC")

    said = well(here, "backfill", "report", "2026-01-05T00:00Z", "2026-01-05T05:00Z", "--jobs", "2")
    again = json.loads(well(here, "backfill", "report", "2026-01-05T00:00Z", "2026-01-05T06:00Z", "--json").out)

    assert said.out == "Backfill 1 of report: 5 of 5 done, 0 failed.\n"
    assert (again["total"], again["done"], again["state"]) == (1, 1, "done")
    rows = json.loads(well(here, "log", "report", "--json").out)
    assert [row["trigger"] for row in rows] == ["backfill"] * 6


def test_the_name_beside_the_progress_bar_is_not_taken_for_markup(here: Path) -> None:
    """It ended the command after the backfill had been made."""
    well(here, "add", "[/x][red]y", "echo hello", "--cron", "0 * * * *", "--tz", "UTC")

    seen = on_terminal(here, "backfill", "[/x][red]y", "2026-01-05T00:00Z", "2026-01-05T02:00Z", env={"TERM": "xterm"})

    assert "2 of 2 done" in seen
    assert "[/x][red]y" in seen.partition("Backfill 1")[0]


def test_a_failed_backfill_is_a_failure(here: Path) -> None:
    well(here, "add", "report", "exit 3", "--cron", "0 * * * *", "--tz", "UTC")

    done = call(here, "backfill", "report", "2026-01-05T00:00Z", "2026-01-05T02:00Z")

    assert done.code == 1
    assert done.out.splitlines() == [
        "Backfill 1 of report: 0 of 2 done, 2 failed.",
        '"scheduler-async log report --failed" shows why.',
    ]


def test_the_period_of_a_backfill_may_be_relative(here: Path) -> None:
    well(here, "add", "report", "true", "--cron", "0 0 * * *", "--tz", "UTC")

    done = well(here, "backfill", "report", "yesterday", "today", "--tz", "UTC", "--json").json
    refused = call(here, "backfill", "report", "today", "yesterday")

    assert done["total"] >= 1
    assert (refused.code, refused.err) == (2, 'Error: FROM must be before TO, but "today" is not before "yesterday".\n')


def test_a_backfill_can_be_left_to_running_schedulers(here: Path) -> None:
    well(here, "add", "report", "echo hello", "--cron", "0 * * * *", "--tz", "UTC")

    said = well(here, "backfill", "report", "2026-01-05T00:00Z", "2026-01-05T02:00Z", "--anywhere")

    assert said.out == "Backfill 1: 2 to run. The running schedulers run them.\n"
    assert well(here, "cron").out == "1 task executed (1 success)\n"


def test_the_policies_of_a_job_are_options(here: Path) -> None:
    options = [
        "--max-instances",
        "3",
        "--overlap",
        "queue",
        "--catch-up",
        "all",
        "--max-runs",
        "10",
        "--misfire-grace",
        "5m",
    ]
    well(here, "add", "report", "echo", "--every", "1h", *options)
    added = json.loads(well(here, "show", "report", "--json").out)
    cleared = ["--max-instances", "1", "--misfire", "skip", "--max-runs", "none", "--misfire-grace", "none"]
    well(here, "edit", "report", *cleared)
    edited = json.loads(well(here, "show", "report", "--json").out)

    names = ("max_instances", "overlap", "misfire", "max_runs", "misfire_grace")
    assert [added[name] for name in names] == [3, "queue", "run_all", 10, "5m"]
    assert [edited[name] for name in names] == [1, "queue", "skip", None, None]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--misfire", "skip", "--catch-up", "all"), "not both"),
        (("--max-runs", "0"), "whole number"),
        (("--max-runs", "many"), "whole number"),
    ],
)
def test_wrong_options_are_refused(here: Path, options: tuple[str, ...], words: str) -> None:
    done = call(here, "add", "report", "echo", "--every", "1h", *options)

    assert done.code == 2
    assert words in done.err
