"""Passwords on the command line: no message shows one, nor does the list of processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from scheduler_async import Delay, Scheduler
from tests.cast import line_of
from tests.cli.test_commands import (
    call,
    on_terminal,
    prepared,  # noqa: F401 - the fixture that they need
    running,
)
from tests.postgres_server import url_of_schema

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="it has other processes"), pytest.mark.deep]

NOWHERE = "ann:hunter2@127.0.0.1:1/jobs"


@pytest.mark.parametrize(
    "line",
    [
        f"list --store postgresql://{NOWHERE}",
        f"--store=POSTGRESQL://{NOWHERE} list",
        f"list --store postgresql:/{NOWHERE}",
        f"list --store postgres-x://{NOWHERE}",
        f"list --store {NOWHERE}",
        f"add a true --store postgresql:{NOWHERE}",
        f"add a true --cwd no/where --store postgresql:/{NOWHERE}",
        f"run --store postgresql://{NOWHERE}",
        f"run postgresql://{NOWHERE}",
        f"cron --app postgresql://{NOWHERE}",
        f"list postgresql://{NOWHERE}",
        f"--sotre postgresql://{NOWHERE} list",
        f"copy postgresql://{NOWHERE} other.db",
        f"copy postgresql:/{NOWHERE} other.db",
        "list --store postgresql://ann:hun@ter2hunter2@127.0.0.1:1/jobs",
        "list --store postgresql://127.0.0.1:1/jobs?password=hunter2",
    ],
)
def test_no_message_shows_a_password(line: str, tmp_path: Path) -> None:
    done = call(tmp_path, *line.split())
    seen = on_terminal(tmp_path, *line.split())

    assert done.code
    assert done.err.startswith("Error: ")
    assert "hunter2" not in f"{done.out}{done.err}{seen}"
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_the_environment_is_not_shown_either(tmp_path: Path) -> None:
    done = call(tmp_path, "list", env={"SCHEDULER_ASYNC_STORE": f" postgresql://{NOWHERE}"})

    assert done.code == 1
    assert "hunter2" not in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_the_list_of_processes_shows_no_password(tmp_path: Path) -> None:
    """Others on the machine see the arguments of a program, and not its environment; its commands see neither."""
    url = url_of_schema(str(tmp_path)).replace("postgres@", "postgres:hunter2@")
    scheduler = Scheduler(url)
    command = {"command": "env >environment; exit 0", "cwd": str(tmp_path)}
    await scheduler.add_job(Delay("1h"), handler="command", id="a", payload=command)
    await scheduler.stop()

    with running(tmp_path, "run", "--json", "--store", url) as process:
        line = await asyncio.to_thread(line_of, process)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        process.terminate()

    assert '"outcome": "success"' in line
    assert arguments[-5:-2] == ["run", "--json", "--store"]
    assert arguments[-2].startswith("postgresql://postgres:***@")
    assert "hunter2" not in (tmp_path / "environment").read_text()
