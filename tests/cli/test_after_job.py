"""Jobs that run after others, as an operator types them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import (
    call,
    prepared,  # noqa: F401 - a fixture that they need
    well,
)

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups"), pytest.mark.once]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory without a store."""
    return tmp_path


def test_a_job_is_added_after_another_and_runs_in_the_next_pass(here: Path) -> None:
    well(here, "add", "extract", "true")
    added = well(here, "add", "load", "true", "--after-job", "extract")
    well(here, "add", "alarm", "true", "--after-job", "extract", "--outcome", "failure", "--delay", "5m")

    assert added.out == "Added load: runs after extract succeeds\n"
    listed = {row["slug"]: row["cron"] for row in well(here, "list", "--json").json}
    assert listed["load"] == "after extract succeeds"
    assert listed["alarm"] == "after extract fails, 5 minutes later"
    well(here, "trigger", "extract")
    assert "1 task executed" in well(here, "cron").out
    load, extract = well(here, "log", "--json").json
    assert (load["job_id"], load["after"]) == ("load", extract["id"])


def test_a_job_of_another_namespace_is_written_with_a_slash(here: Path) -> None:
    added = well(here, "add", "load", "true", "--after-job", "etl/extract", "--json").json

    assert (added["schedule"]["namespace"], added["schedule"]["job"]) == ("etl", "extract")


def test_an_edit_can_make_a_job_follow_another_unless_that_closes_a_cycle(here: Path) -> None:
    well(here, "add", "extract", "true")
    well(here, "add", "load", "true")

    well(here, "edit", "load", "--after-job", "extract")
    refused = call(here, "edit", "extract", "--after-job", "load")

    assert refused.code == 2
    assert "in a cycle: load → extract → load" in refused.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--outcome", "failure"], "--outcome needs --after-job"),
        (["--every", "5m", "--delay", "1m"], "--delay needs --after-job"),
        (["--after-job", "extract", "--every", "5m"], "a job has one schedule"),
        (["--after-job", "extract", "--tz", "UTC"], "--after-job is the same in every zone"),
        (["--after-job", "extract", "--outcome", "sometimes"], "success"),
    ],
)
def test_options_that_do_not_fit_are_refused(here: Path, options: list[str], problem: str) -> None:
    refused = call(here, "add", "load", "true", *options)

    assert refused.code == 2
    assert problem in refused.err


def test_next_says_that_it_has_no_times_of_its_own(here: Path) -> None:
    shown = well(here, "next", "after job extract fails + 5m").out

    assert shown.splitlines() == [
        "After extract fails, 5 minutes later.",
        "It has no times of its own: it runs when a run of that job ends.",
    ]
