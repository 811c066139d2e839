"""Runs are steered from a terminal: cancelled, started in a service, and followed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler_async.cli.run_following import new_part
from tests.cast import line_of
from tests.cli.test_commands import PATIENCE, call, on_terminal, prepared, running, well, without_colours

__all__ = ["prepared"]  # a fixture

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups, and terminals"),
    pytest.mark.deep,
]

SERVICE = """
from scheduler_async import Run, Scheduler

scheduler = Scheduler("scheduler.db")

@scheduler.handler("greet")
async def greet(run: Run) -> None:
    run.progress(1, 2, "half way")
    run.write(f"hello {run.payload['to']}\\n")
    if run.payload["to"] == "nobody":
        raise ValueError("nobody is there")
"""

ADD = """
import asyncio
from scheduler_async import Manual
from service import scheduler

async def main() -> None:
    await scheduler.add_job(Manual(), handler="greet", id="greet", payload={"to": "ops"})
    await scheduler.stop()

asyncio.run(main())
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def service(here: Path) -> Path:
    """A program with a handler, and a job for it."""
    (here / "service.py").write_text(SERVICE)
    subprocess.run([sys.executable, "-c", ADD], cwd=here, check=True)
    return here


def test_a_run_is_cancelled_from_another_terminal(here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600")

    with running(here, "trigger", "slow") as process:
        (here / "begun").read_text()
        (row,) = well(here, "log", "--json").json
        done = well(here, "cancel", str(row["id"]), "--reason", "wrong input")
        _, err = process.communicate(timeout=PATIENCE)

    assert done.err == "slow: cancelled, wrong input\n"
    assert (process.returncode, err) == (1, "slow: cancelled, wrong input\n")
    again = call(here, "cancel", str(row["id"]))
    assert (again.code, again.err) == (
        1,
        f'Error: Run {row["id"]} has already ended. "scheduler-async log" shows how.\n',
    )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["cancel", "99"], 1, "Run 99 not found."),
        (["cancel", "x"], 2, "'x' is not a whole number"),
        (["cancel", "99", "--reason", " "], 2, "The reason must not be empty"),
        (["cancel"], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_cancelled(arguments: list[str], code: int, sentence: str, here: Path) -> None:
    well(here, "add", "a", "true")

    done = call(here, *arguments)

    assert done.code == code
    assert sentence in done.err


def test_a_service_runs_a_job_for_the_terminal(service: Path) -> None:
    """With its output, and an exit code for scripts."""
    with running(service, "run", "service:scheduler", "--json") as process:
        plain = well(service, "trigger", "greet", "--anywhere")
        given = well(service, "trigger", "greet", "--anywhere", "--payload", '{"to": "Ann"}')
        failed = call(service, "trigger", "greet", "--anywhere", "--payload", '{"to": "nobody"}', "--json")
        seen = without_colours(on_terminal(service, "trigger", "greet", "--anywhere"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)

    assert (plain.out, plain.err) == ("hello ops\n", "greet: success\n")
    assert given.out == "hello Ann\n"
    assert (failed.code, failed.json["outcome"], failed.json["output"]) == (1, "error", "hello nobody\n")
    assert failed.json["progress"] == 0.5
    assert "hello ops" in seen


def test_a_request_waits_until_a_service_is_there(service: Path) -> None:
    refused = call(service, "trigger", "greet")
    with running(service, "trigger", "greet", "--anywhere") as process:
        while not well(service, "log", "--json").json:
            assert process.poll() is None
        waiting = well(service, "log").out
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    summary = well(service, "cron", "--app", "service:scheduler").out

    assert refused.code == 2
    assert "or --anywhere to run it in a scheduler that is running" in refused.err
    assert "waiting" in waiting
    assert (process.returncode, err) == (
        130,
        'Error: Run 1 still waits for a scheduler that can run it. "scheduler-async cancel 1" cancels it.\n',
    )
    assert summary == "1 task executed (1 success)\n"


def test_the_payload_of_a_command_is_replaced_for_one_run(here: Path) -> None:
    well(here, "add", "a", 'echo "got $SCHEDULER_ASYNC_PAYLOAD"', "--payload", "1")

    assert well(here, "trigger", "a", "--payload", "[2]").out == "got [2]\n"
    assert well(here, "trigger", "a").out == "got 1\n"
    assert call(here, "trigger", "a", "--payload", "{").code == 2


def test_the_output_of_a_command_is_printed_as_it_comes(here: Path) -> None:
    os.mkfifo(here / "go")
    well(here, "add", "a", "echo first; read _ < go; printf last")

    with running(here, "trigger", "a") as process:
        first = line_of(process)
        (here / "go").write_text("go\n")
        rest, _ = process.communicate(timeout=PATIENCE)

    assert (first, rest) == ("first", "last\n")


def test_run_tells_of_a_long_run_when_it_begins(here: Path) -> None:
    os.mkfifo(here / "go")
    well(here, "add", "long", "read _ < go", "--after", "1h")

    with running(here, "run") as process:
        header, begun = line_of(process), line_of(process)
        (here / "go").write_text("go\n")
        ended = line_of(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)

    assert header.startswith("run ")
    assert begun.split()[-4:] == ["long", "schedule", "running", "-"]
    assert "success" in ended


def test_run_tells_a_reader_at_a_terminal_what_begins(here: Path) -> None:
    well(here, "add", "short", "true", "--after", "1h")

    seen = without_colours(on_terminal(here, "run", until="Completed"))

    assert seen.index("running") < seen.index("success")


LINES = "".join(f"{number}\n" for number in range(5000))


@pytest.mark.parametrize(
    ("seen", "output", "new"),
    [
        pytest.param("", "a\n", "a\n", id="the beginning"),
        pytest.param("a\n", "a\nb\n", "b\n", id="more"),
        pytest.param(LINES, LINES[100:] + "new\n", "new\n", id="the beginning was dropped"),
        pytest.param("a\n", "b\n", "b\n", id="all of it was dropped"),
    ],
)
def test_only_what_is_new_is_printed(seen: str, output: str, new: str) -> None:
    assert new_part(seen, output) == new


def test_the_row_of_a_cancelled_run_is_read_by_programs(here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600")

    with running(here, "trigger", "slow", "--json") as process:
        (here / "begun").read_text()
        (row,) = well(here, "log", "--json").json
        form = well(here, "cancel", str(row["id"]), "--json").json
        out, _ = process.communicate(timeout=PATIENCE)

    assert (form["outcome"], form["reason"]) == ("cancelled", None)
    assert json.loads(out)["outcome"] == "cancelled"


def test_a_trigger_and_a_cancellation_name_their_runs(here: Path) -> None:
    """Whoever looks for the run finds it in the log under this id."""
    well(here, "add", "a", "true")
    well(here, "trigger", "a")
    (run,) = well(here, "log", "--json").json

    (row, *_) = well(here, "changes", "--json").json
    lines = well(here, "changes").out.splitlines()
    log = well(here, "log").out.splitlines()

    assert (row["action"], row["before"], row["after"]) == ("trigger", {}, {"run": run["id"]})
    assert lines[1].endswith(f"run {run['id']}")
    assert log[0].split()[0] == "run"
    assert log[1].split()[0] == str(run["id"])
