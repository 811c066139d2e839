"""A store that somebody filled with control characters: none of them reaches the terminal, through no command.

The commands are those of the program, so that a new one is covered as soon as it is there.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import cast
from unicodedata import category

import click
import pytest

from scheduler_async import Delay, Every, Manual, Scheduler
from scheduler_async.command import run_command
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import DAY
from tests.cli.test_commands import call, on_terminal, prepared  # noqa: F401 - a fixture that they need

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # between versions of typer and click
    from typer.main import get_command

    from scheduler_async.cli.app import app

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="it needs terminals"), pytest.mark.deep]

# A colour, the title of the window, C1, directions, separators, a line of its own, and what rich takes for markup.
EVIL = (
    "x\x1b[31m\x1b]0;owned\x07\x9b2J\x85\u202e\u2066\u2028\nforged\r\b\x7f[red]y[/red][link=http://z]z[/link]\U000e0041"
)
PAYLOAD = {
    "command": r"printf 'a\033]0;owned\007\302\2332J\nb'; exit 3",
    "env": {EVIL.replace("=", ""): EVIL},
    "payload": {EVIL: [EVIL]},
}
# What has to be well-formed to be read at all; None is left as it is.
READABLE = {
    "payload": json.dumps(PAYLOAD),
    "metadata": json.dumps({EVIL: {EVIL: EVIL}}),
    **dict.fromkeys(("schedule", "retry", "priority", "misfire", "on_interrupt", "phase", "activity")),
    **dict.fromkeys(("trigger", "outcome", "reason")),
}

# What a command is given: one that needs more says so here.
GIVEN = {
    "run_id": "1",
    "slug": EVIL,
    "expression": "0 9 * * *",
    "source": "scheduler.db",
    "destination": "new.db",
    "command": "true",
    "start": "2026-01-05T12:00Z",
    "end": "2026-01-05T12:30Z",
}
MORE = {
    "explain": ["--at", "now"],
    "pause": ["--until", "2h", "--reason", EVIL],
    "log": ["--output"],
    "edit": ["--every", "1h"],
    "preview": ["--window", "1d"],
    "copy": ["--anyway"],
}
# Those that have nothing of a store to show.
SILENT = {"add", "next", "cron", "cancel"}
PROGRAM = cast(click.Group, get_command(app))
CONTEXT = click.Context(PROGRAM)
# All but the server of the page, which shows the store in a browser alone.
NAMES = set(PROGRAM.list_commands(CONTEXT)) - {"web"}
COMMANDS = {name: cast(click.Command, PROGRAM.get_command(CONTEXT, name)) for name in NAMES}


def arguments_of(name: str) -> list[str]:
    """A call of a command about what is hostile."""
    parameters = COMMANDS[name].params
    needed = [str(one.name) for one in parameters if isinstance(one, click.Argument) and one.required]
    where = ["--namespace", EVIL] if "namespace" in [one.name for one in parameters] else []
    return [name, *(GIVEN[word] for word in needed), *where, *MORE.get(name, [])]


async def fill(path: Path) -> None:
    """A store with a run that failed, jobs that are due, running and disabled, and a node that is elsewhere."""
    scheduler = Scheduler(path)
    scheduler.handler("command")(run_command)
    payload = {"command": "echo hello; exit 3"}
    await scheduler.add_job(Delay("1h"), handler="command", id="due", namespace="other", payload=payload)
    await scheduler.run_pending()
    await scheduler.add_job(Every("1h"), handler="elsewhere", id="waits", user_id="ann", name="n", group="g")
    await scheduler.add_job(Manual(), handler="command", id="off", payload=payload, enabled=False)
    await scheduler.stop()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE state SET next_run_at = 1 WHERE next_run_at IS NOT NULL")
        tomorrow = SystemClock().micros() + DAY  # nobody has to wait to see whether it lives
        db.execute("INSERT INTO node VALUES (99, 'n', 'h', 1, 's', 1, 1, ?, NULL)", (tomorrow,))
        db.execute("UPDATE state SET activity = 'running', node = 99 WHERE uid = 2")


def poison(path: Path, *, all_of_it: bool) -> None:
    """Put it into every column that holds text, of every row; unless *all_of_it*, the rows can still be read."""
    with closing(sqlite3.connect(path)) as db, db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%STRICT%'")]
        columns = [(table, *row[1:3]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
        texts = [(table, column) for table, column, kind in columns if kind == "TEXT"]
        assert len(texts) > 30
        for table, column in texts:
            value = EVIL if all_of_it else READABLE.get(column, EVIL)
            new = ":value || CASE uid WHEN 1 THEN '' ELSE uid END" if column == "id" else ":value"
            is_handler = (table, column) in (("job", "handler"), ("handler", "name"))
            which = f"WHERE {column} <> 'command'" if is_handler else ""  # without it, nothing would run
            if value is not None:
                db.execute(f"UPDATE {table} SET {column} = {new} {which}", {"value": value})


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name in ("hostile", "broken"):
        found[name] = tmp_path_factory.mktemp(name) / "scheduler.db"
        asyncio.run(fill(found[name]))
        poison(found[name], all_of_it=name == "broken")
    return found


def is_harmless(text: str) -> bool:
    return all(char == "\n" or category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


@pytest.mark.parametrize("kind", ["hostile", "broken"])
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_nothing_in_a_store_controls_the_terminal(
    name: str, kind: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    """In columns, in paragraphs, in sentences and in JSON; whether or not the rows can be read."""
    arguments = arguments_of(name)
    seen = []
    for columns in (80, 160):
        directory = tmp_path / str(columns)
        directory.mkdir()
        shutil.copy(stores[kind], directory)
        # It does not end by itself, and none of the broken jobs runs.
        until = {"hostile": r"Ctrl-C to stop\.\s+\S", "broken": r"Ctrl-C to stop\."}[kind] if name == "run" else None
        # Without colours, every escape is one too many.
        seen.append(on_terminal(directory, *arguments, columns=columns, env={"TERM": "dumb"}, until=until))
    shutil.copy(stores[kind], tmp_path)
    done = call(tmp_path, *arguments, "--json") if name != "run" else None

    assert all(map(is_harmless, seen))
    assert "owned" in "".join(seen) or name in SILENT or kind == "broken"
    if done is not None:
        assert is_harmless(done.out)
        assert is_harmless(done.err)
        assert done.code or json.loads(done.out) is not None


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"run"}))
def test_no_line_is_forged(name: str, stores: dict[str, Path], tmp_path: Path) -> None:
    """What is not read on a terminal is not broken into lines but by us."""
    shutil.copy(stores["hostile"], tmp_path)

    done = call(tmp_path, *arguments_of(name))

    assert "\nforged" not in f"\n{done.out}\n{done.err}"
