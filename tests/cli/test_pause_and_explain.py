"""Pauses with a reason and an end, and explanations of another time than now, as an operator types them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scheduler_async import Every, Scheduler
from scheduler_async.testing import VirtualClock
from tests.cli.test_commands import (
    call,
    completed,
    on_terminal,
    prepared,  # noqa: F401 - a fixture that they need
    well,
    without_colours,
)

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups"), pytest.mark.deep]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory without a store."""
    return tmp_path


@pytest.mark.once
def test_a_pause_has_a_reason_and_an_end(here: Path) -> None:
    well(here, "add", "backup", "true", "--every", "1h", "--namespace", "t")

    paused = well(here, "pause", "t/backup", "--reason", "the disk is\nfull", "--until", "2099-06-15T18:00")

    assert re.fullmatch(
        r"Paused t/backup: it starts again in .*, 2099-06-15 18:00 CEST, or when it is resumed\n", paused.out
    )
    (listed,) = well(here, "list", "--json").json
    assert (listed["paused_reason"], listed["paused_until"]) == ("the disk is\nfull", "2099-06-15T16:00:00Z")
    assert "paused until 2099-06-15 18:00 CEST: the disk is full" in well(here, "list").out
    shown = well(here, "show", "t/backup").out
    assert re.search(r"^paused_reason +the disk is\n +full$", shown, re.MULTILINE)
    assert re.search(r"^paused_until +in .*, 2099-06-15 18:00 CEST$", shown, re.MULTILINE)
    again = well(here, "pause", "t/backup", "--json").json
    assert (again["paused_reason"], again["paused_until"]) == (None, None)
    assert "note" not in well(here, "list").out.splitlines()[0].split()


def test_a_paused_job_is_shown_with_its_next_run_after_the_pause(here: Path) -> None:
    """As `list` shows it."""
    well(here, "add", "backup", "true", "--cron", "0 3 * * *", "--tz", "UTC")

    well(here, "pause", "backup", "--until", "2099-06-15T18:00")
    paused = well(here, "show", "backup").out
    well(here, "pause", "backup")
    without_end = well(here, "show", "backup").out

    assert re.search(r"^next_run_at +in .*, 2099-06-16 05:00 CEST$", paused, re.MULTILINE)
    assert "next_run_at" not in without_end
    assert re.search("^ended +no$", paused, re.MULTILINE)


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_a_reason_is_read_whole_and_leaves_the_table_a_table(columns: int, here: Path) -> None:
    for slug in ("backup", "other"):
        well(here, "add", slug, "true", "--cron", "0 3 * * *", "--tz", "Europe/Stockholm")
    well(here, "pause", "backup", "--reason", "the supplier does not answer, and has not told us why", "--until", "2h")

    seen = without_colours(on_terminal(here, "list", columns=columns))

    assert max(map(len, seen.splitlines())) <= columns
    words = "supplier does not answer, and has not told us why"
    assert all(word in seen for word in words.split())
    assert columns == 160 or words in " ".join(seen.split())
    assert seen.startswith("slug ") is (columns > 40)


@pytest.mark.parametrize("at", ["2h", "18:00", "tomorrow 9:00"])
def test_a_one_shot_takes_a_time_as_a_pause_does(at: str, here: Path) -> None:
    job = well(here, "add", "lunch", "true", "--at", at, "--json").json

    assert job["created_at"] < job["next_run_at"] == job["schedule"]["at"]


@pytest.mark.parametrize("until", ["2h", "18:00", "tomorrow 9:00"])
def test_a_pause_ends_by_itself(until: str, here: Path) -> None:
    well(here, "add", "backup", "true", "--every", "1h")

    job = well(here, "pause", "backup", "--until", until, "--json").json

    assert job["paused_until"] > job["updated_at"]
    explained = well(here, "explain", "backup", "--json").json
    assert (explained["reason"], explained["until"]) == ("paused", job["paused_until"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ["pause", "a", "--until", "yesterday 9:00"], "must lie in the future", id="a pause that has ended"
        ),
        pytest.param(["pause", "a", "--until", "later"], "Write 2h for two hours from now", id="no time"),
        pytest.param(["pause", "a", "--reason", " "], "The reason must not be empty", id="no reason"),
        pytest.param(["pause", "a", "--tz", "UTC"], "--tz is the zone of --until", id="a zone alone"),
        pytest.param(["pause", "a", "--until", "18:00", "--tz", "Mars"], 'Unknown time zone "Mars"', id="no such zone"),
        pytest.param(["explain", "a", "--at", "25:00"], "hour must be in 0..23", id="no such hour"),
        pytest.param(["explain", "a", "--at", ""], 'Cannot read "" as the time of --at', id="nothing"),
        pytest.param(["explain", "a", "--tz", "Mars"], 'Unknown time zone "Mars"', id="a zone to explain in"),
    ],
)
def test_bad_input_changes_nothing(arguments: list[str], words: str, here: Path) -> None:
    before = well(here, "add", "a", "true", "--every", "1h", "--json").json

    done = call(here, *arguments)

    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert well(here, "show", "a", "--json").json == before


@pytest.mark.once
async def test_the_past_is_explained(here: Path) -> None:
    scheduler = Scheduler(here / "scheduler.db", clock=VirtualClock("2026-10-24T12:00:00Z"))
    clock = scheduler._clock
    assert isinstance(clock, VirtualClock)

    @scheduler.handler("work")
    async def work() -> None:
        raise OSError("no route to host" * 100)

    await scheduler.add_job(Every("1h"), handler="work", id="hourly")
    async with scheduler:
        await clock.advance("90m")

    ran = well(here, "explain", "hourly", "--at", "2026-10-24T13:00Z")
    form = well(here, "explain", "hourly", "--at", "2026-10-24T13:00Z", "--json").json
    none = well(here, "explain", "hourly", "--at", "2026-10-24 14:30", "--tz", "Asia/Tokyo")
    twice = well(here, "explain", "hourly", "--at", "2026-10-25 02:30")

    assert ran.out.startswith(
        'Job "hourly" ran at 2026-10-24 15:00 CEST, and ended with error. Run 1: OSError: no route'
    )
    assert "KiB, --json shows all" in ran.out
    assert (form["reason"], form["at"], form["run"]["outcome"]) == (None, "2026-10-24T13:00:00Z", "error")
    assert "no route to host" * 100 in form["sentence"]
    assert "2026-10-24 14:30 JST" in none.out
    assert twice.err.startswith("Note: 02:30 on 2026-10-25 here comes twice: ")


@pytest.mark.once
def test_names_and_options_are_completed(here: Path) -> None:
    well(here, "add", "backup", "true")

    assert completed(here, "explain ") == completed(here, "pause ") == ["backup"]
    assert completed(here, "explain backup --tz Europe/Stoc") == ["Europe/Stockholm"]
    assert completed(here, "pause backup --tz Europe/Stoc") == ["Europe/Stockholm"]
    assert "status" in completed(here, "sta")
