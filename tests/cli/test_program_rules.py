"""Jobs of a program: the command line does not know the rules of its scheduler, and does not pretend to."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import At, Delay, Every, Retry, Run, Scheduler
from scheduler_async.cli.program_rules import LAST_CHANCE, RETRIES_UNKNOWN, SKIP_UNKNOWN
from scheduler_async.stores.copying import DIED_HERE
from tests.cast import started
from tests.cli.test_commands import (
    PATIENCE,
    PROGRAM,
    environment,
    prepared,  # noqa: F401 - a fixture that they need
    run_elsewhere,
    well,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups")

PASSED = At("2020-06-15T09:00Z")
ASSUMED = "This assumes the default {}: the command line does not know that of the program."


async def fail(_run: Run) -> None:
    raise OSError("no route to host")


@pytest.fixture
async def here(tmp_path: Path) -> Path:
    """A directory with the store of a program, which gives up after two failures."""
    async with Scheduler(tmp_path / "scheduler.db", retry=Retry.backoff(disable_after=2)) as scheduler:
        scheduler.handler("fail")(fail)
        await scheduler.add_job(Delay("1s"), handler="fail", id="failed")
        await scheduler.add_job(Delay("1s"), handler="fail", id="own", retry=Retry.backoff(disable_after=2))
        await scheduler.run_pending()
        await scheduler.add_job(PASSED, handler="elsewhere", id="late", misfire="skip")
        await scheduler.add_job(PASSED, handler="elsewhere", id="merged")
        await scheduler.add_job(Every("10m"), handler="command", id="command", payload={"command": "true"})
        await scheduler.stop()
    run_elsewhere(tmp_path / "scheduler.db")
    return tmp_path


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        pytest.param("late", "; whether it still runs depends on the misfire_grace of its program", id="skipped"),
        pytest.param("merged", ", so it is due now", id="run at any rate"),
    ],
)
def test_only_the_program_knows_how_late_is_too_late(slug: str, words: str, here: Path) -> None:
    assert words in well(here, "edit", slug, "--priority", "high").out


@pytest.mark.parametrize(
    ("slug", "assumed"),
    [
        pytest.param("late", "misfire_grace", id="late"),
        pytest.param("failed", "retry", id="failed"),
        pytest.param("own", None, id="a policy of its own"),
        pytest.param("merged", None, id="run at any rate"),
        pytest.param("command", None, id="a command"),
    ],
)
def test_an_explanation_says_what_it_assumes(slug: str, assumed: str | None, here: Path) -> None:
    explained = well(here, "explain", slug)

    sentence = well(here, "explain", slug, "--json").json["sentence"]
    assert ("assumes" in explained.out) is (assumed is not None)
    assert sentence.endswith(ASSUMED.format(assumed)) if assumed else "assumes" not in sentence


def test_a_preview_does_not_guess_how_often_a_program_retries(here: Path) -> None:
    first: dict[str, dict[str, Any]] = {}
    for line in well(here, "preview", "--json").json:
        first.setdefault(line["slug"], line)

    assert first["failed"]["retries_left"] is None
    assert RETRIES_UNKNOWN in first["failed"]["warnings"]
    assert first["own"]["retries_left"] == 1
    assert LAST_CHANCE in first["own"]["warnings"]
    assert RETRIES_UNKNOWN not in first["own"]["warnings"] + first["command"]["warnings"]
    assert not any("is registered here" in warning for line in first.values() for warning in line["warnings"])
    shown = well(here, "preview").out
    assert RETRIES_UNKNOWN not in shown.replace(shown.splitlines()[-1], "")
    assert shown.splitlines()[-1] == 'Retries "-": the program of the job decides how often it is retried.'


def test_a_preview_shows_a_late_run_that_the_program_may_skip(here: Path) -> None:
    """A program with a generous misfire_grace runs it, and a preview that is silent about it would be wrong."""
    found = {line["slug"]: line["warnings"] for line in well(here, "preview", "--json").json}

    assert SKIP_UNKNOWN in found["late"]
    assert not any(SKIP_UNKNOWN in warnings for slug, warnings in found.items() if slug != "late")
    assert "late" in well(here, "preview").out


async def test_a_preview_lists_a_late_run_once(tmp_path: Path) -> None:
    """Within the default misfire_grace too, where a strict program skips it."""
    async with Scheduler(tmp_path / "scheduler.db") as scheduler:
        await scheduler.add_job(At(datetime.now(UTC)), handler="elsewhere", id="late", misfire="skip")
        await scheduler.add_job(PASSED, handler="elsewhere", id="first", priority="high")
        await scheduler.add_job(PASSED, handler="elsewhere", id="last", priority="low")

    found = well(tmp_path, "preview", "--json").json

    assert [line["slug"] for line in found] == ["first", "late", "last"]
    assert SKIP_UNKNOWN in found[1]["warnings"]


DEADLY_PROGRAM = """
import os, signal
from scheduler_async import Delay, Retry, Scheduler

scheduler = Scheduler("scheduler.db", retry=Retry.backoff(disable_after=1))

@scheduler.job(Delay("1h"), id="deadly")
async def deadly() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_copy_leaves_to_the_program_what_follows_the_death_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY_PROGRAM)
    with started([*PROGRAM, "run", "deadly:scheduler"], cwd=tmp_path, env=environment()) as process:
        process.communicate(timeout=PATIENCE)
    before = well(tmp_path, "list", "--json").json

    first = well(tmp_path, "copy", "scheduler.db", "new.db").out
    unchanged = well(tmp_path, "list", "--json").json
    well(tmp_path, "cron", "--app", "deadly:scheduler")  # the program disables the job, and runs nothing
    second = well(tmp_path, "copy", "scheduler.db", "new.db").out

    assert first == f"Left out deadly: {DIED_HERE}.\nNothing was copied; 1 job was left out.\n"
    assert unchanged == before
    assert second == "Copied 1 job and 1 run.\n"
    (copied,) = well(tmp_path, "list", "--store", "new.db", "--json").json
    assert (copied["status"], copied["consecutive_errors"]) == ("disabled", 1)
