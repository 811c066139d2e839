"""The command line, as a program in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Delay, Every, Misfire, Priority, Scheduler, Status
from scheduler_async.stores.sqlite.schema import newest
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import DAY
from tests.cast import line_of, started
from tests.postgres_server import url_of_schema
from tests.prepared import Prepared

pytestmark = [
    pytest.mark.once,  # the version of Python does not matter
    pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups, and terminals"),
]

PROGRAM = [sys.executable, "-m", "scheduler_async"]
# A whole program takes its time on a machine that is busy with other things.
PATIENCE = 60.0  # seconds
COMMANDS = (
    *("add", "edit", "remove", "pause", "resume", "trigger", "list", "show", "log", "stats", "preview", "explain"),
    *("nodes", "next", "copy", "cron", "run", "changes", "cancel", "status"),
)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory without a store."""
    return tmp_path


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of the tests, without what would change how things look."""
    found = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**found, "TZ": "Europe/Stockholm", "TERM": "xterm-256color", **(more or {})}


@pytest.fixture(scope="module", autouse=True)
def prepared() -> Iterator[None]:
    """The program, ready to be called: most tests need not wait until it is loaded."""
    global _prepared  # noqa: PLW0603
    _prepared = Prepared(PATIENCE)
    yield
    _prepared.close()


_prepared: Prepared


def call(here: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
    """Run the program, and wait for it."""
    return Done(*_prepared.call(arguments, here, environment(env)))


def well(here: Path, *arguments: str) -> Done:
    """Run the program, which must do what it is asked for."""
    done = call(here, *arguments)
    assert done.code == 0, done.err
    return done


def running(here: Path, *arguments: str, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """The program, while it runs."""
    return started([*PROGRAM, *arguments], cwd=here, env=environment(), **options)


def on_terminal(
    here: Path,
    *arguments: str,
    columns: int = 100,
    env: Mapping[str, str] | None = None,
    steps: Sequence[tuple[str, Callable[[], object]]] = (),
    until: str | None = None,
) -> str:
    """What somebody sees who runs the program in a terminal, and interrupts it when there is what they wait for.

    Before that, they take *steps*: each has what they wait for first, after the step before it.
    """
    theirs, ours = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "30"}
    process = _prepared.begin(arguments, here, environment({**size, **(env or {})}), [ours, ours, ours])
    os.close(ours)
    seen, begun = b"", 0
    waiting = [*steps, *([] if until is None else [(until, lambda: os.kill(process, signal.SIGINT))])]
    try:
        while select.select([theirs], [], [], PATIENCE)[0]:
            try:
                data = os.read(theirs, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            seen += data
            if waiting and re.search(waiting[0][0], seen[begun:].decode(errors="replace"), re.DOTALL):
                _, act = waiting.pop(0)
                act()
                begun = len(seen)
        _prepared.end()
    finally:
        os.close(theirs)
    return seen.decode().replace("\r\n", "\n")


def run_elsewhere(store: Path) -> None:
    """Let a scheduler on another machine be alive on the store, so that jobs wait for their time and not for one."""
    tomorrow = SystemClock().micros() + DAY
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("INSERT INTO node VALUES (99, 'elsewhere', 'far', 1, 's', 1, 1, ?, NULL)", (tomorrow,))


# ---------------------------------------------------------------- the life of a job


def test_a_job_from_beginning_to_end(here: Path) -> None:
    """All that an operator does to it, and what the program says."""
    added = well(here, "add", "backup", "echo hello", "--cron", "0 3 * * *", "--tz", "UTC", "--priority", "high")
    assert added.out.startswith("Added backup: at 03:00 (UTC); next in ")

    (job,) = well(here, "list", "--json").json
    assert (job["slug"], job["cron"], job["priority"], job["retry_status"]) == (
        "backup",
        "0 3 * * * UTC",
        "high",
        "0/2",
    )
    assert job["payload"] == {"command": "echo hello", "cwd": str(here)}
    assert job["last_exit"] is None

    triggered = well(here, "trigger", "backup")
    assert triggered.out == "hello\n"
    assert re.fullmatch(r"backup: success, Completed in \d+(ms|\.\ds)\n", triggered.err)

    (row,) = well(here, "log", "--json", "--output").json
    assert (row["job_id"], row["outcome"], row["exit_code"], row["output"]) == ("backup", "success", 0, "hello\n")
    assert "hello" in well(here, "log", "backup", "--output").out
    assert well(here, "stats", "backup", "--json").json["counts"] == {"success": 1}

    assert well(here, "pause", "backup").out == "Paused backup: it starts again when it is resumed\n"
    assert well(here, "explain", "backup", "--json").json["reason"] == "paused"
    assert well(here, "resume", "backup").out.startswith("Resumed backup: at 03:00 (UTC)")

    edited = well(here, "edit", "backup", "exit 3", "--every", "1h", "--retries", "1", "--timeout", "5m", "--json").json
    assert edited["schedule"] == {"version": 1, "kind": "every", "interval": "1h"}
    assert edited["payload"] == {"command": "exit 3", "cwd": str(here)}
    assert (edited["retry"]["max_retries"], edited["timeout"], edited["priority"]) == (1, "5m", "high")

    failed = call(here, "trigger", "backup", "--json")
    assert failed.code == 1
    assert (failed.json["outcome"], failed.json["exit_code"]) == ("error", 3)

    shown = well(here, "show", "backup").out
    assert re.search(r"last_exit_code +3", shown)
    assert re.search(r"schedule +every hour", shown)

    assert well(here, "remove", "backup").out == "Removed backup\n"
    assert well(here, "list").out == "No jobs.\n"
    assert well(here, "list", "--json").json == []


@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        pytest.param(["--every", "5m"], {"kind": "every", "interval": "5m"}, id="every"),
        pytest.param(["--after", "5m"], {"kind": "delay", "interval": "5m"}, id="after"),
        pytest.param(["--cron", "@daily"], {"kind": "cron"}, id="cron"),
        pytest.param(["--at", "2099-06-15T09:00:00Z"], {"kind": "at", "at": "2099-06-15T09:00:00Z"}, id="at"),
        pytest.param(["--at", "2099-06-15T09:00"], {"kind": "at", "at": "2099-06-15T07:00:00Z"}, id="at, local time"),
        pytest.param(
            ["--at", "2099-01-15T09:00", "--tz", "Asia/Tokyo"],
            {"kind": "at", "at": "2099-01-15T00:00:00Z"},
            id="at, elsewhere",
        ),
        pytest.param([], {"kind": "manual"}, id="none"),
    ],
)
def test_every_kind_of_schedule_can_be_given(options: list[str], schedule: dict[str, object], here: Path) -> None:
    job = well(here, "add", "a", "true", *options, "--json").json

    assert job["schedule"].items() >= schedule.items()


def test_all_else_that_can_be_given(here: Path) -> None:
    options = ["--misfire", "skip", "--payload", '{"to": ["ops"]}', "--env", "A=b=c", "--env", "E=", "--cwd", "/"]
    job = well(
        here,
        "add",
        "a",
        "env",
        *options,
        "--priority",
        "HIGH",
        "--disabled",
        "--group",
        "g",
        "--namespace",
        "tenant",
        "--json",
    ).json

    assert job["payload"] == {"command": "env", "cwd": "/", "env": {"A": "b=c", "E": ""}, "payload": {"to": ["ops"]}}
    assert (job["misfire"], job["status"], job["group"], job["namespace"]) == ("skip", "disabled", "g", "tenant")
    assert job["priority"] == "high"
    assert call(here, "show", "a").code == 1
    assert "A=b=c" in well(here, "trigger", "a", "--namespace", "tenant").out
    assert [row["slug"] for row in well(here, "list", "--status", "disabled", "--json").json] == ["a"]
    assert well(here, "edit", "a", "--enabled", "--namespace", "tenant", "--json").json["status"] == "idle"


def test_a_directory_may_be_on_another_machine_that_shares_the_store(here: Path) -> None:
    store = url_of_schema(str(here))

    job = well(here, "add", "a", "true", "--cwd", "/only/there", "--store", store, "--json").json

    assert job["payload"]["cwd"] == "/only/there"
    edited = well(here, "edit", "a", "--cwd", "/only/here", "--store", store, "--json").json
    assert edited["payload"]["cwd"] == "/only/here"


def test_an_edit_takes_away_what_was_given(here: Path) -> None:
    well(here, "add", "a", "true", "--cron", "0 3 * * *", "--timeout", "5m", "--group", "g", "--payload", "[1]")

    job = well(
        here, "edit", "a", "--timeout", "none", "--group", "none", "--payload", "null", "--manual", "--json"
    ).json

    assert (job["timeout"], job["group"], job["schedule"]["kind"]) == (None, None, "manual")
    assert job["payload"] == {"command": "true", "cwd": str(here)}
    assert well(here, "edit", "a", "--every", "1h", "--timeout", "1m", "--json").json["timeout"] == "1m"


def test_an_edit_of_the_environment_leaves_the_rest_of_it(here: Path) -> None:
    well(here, "add", "a", "true", "--env", "A=1", "--env", "B=2")

    job = well(here, "edit", "a", "--env", "B=3", "--env", "C=4", "--unset-env", "A", "--json").json

    assert job["payload"]["env"] == {"B": "3", "C": "4"}


@pytest.mark.parametrize("offset", ["-05:30", "UTC-05:30"])
def test_a_zone_may_be_an_offset(offset: str, here: Path) -> None:
    added = well(here, "add", "a", "true", "--cron", "0 3 * * *", "--tz", offset, "--json").json
    moment = well(here, "add", "b", "true", "--at", "2099-01-15T09:00", "--tz", offset, "--json").json
    following = well(here, "next", "0 3 * * *", "--tz", offset, "-n", "1", "--json").json

    assert added["schedule"]["tz"] == "UTC-05:30"
    assert moment["schedule"]["at"] == "2099-01-15T14:30:00Z"
    assert following["occurrences"][0]["there"].endswith("T03:00:00-05:30")
    run_elsewhere(here / "scheduler.db")
    assert "(UTC-05:30)" in well(here, "explain", "a").out


def test_another_cron_expression_keeps_its_zone(here: Path) -> None:
    """Change what is given, and nothing else."""
    well(here, "add", "a", "true", "--cron", "0 3 * * *", "--tz", "Asia/Tokyo")

    edited = well(here, "edit", "a", "--cron", "0 4 * * *", "--json").json["schedule"]
    assert (edited["expression"], edited["tz"]) == ("0 4 * * *", "Asia/Tokyo")
    assert "tz" not in well(here, "edit", "a", "--tz", "none", "--json").json["schedule"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["pause", "a"], '"scheduler-async resume a --namespace t" lets it start again.', id="paused"),
        pytest.param(
            ["edit", "a", "--disabled"], '"scheduler-async resume a --namespace t" enables it.', id="disabled"
        ),
        pytest.param(["edit", "a", "--manual"], '"scheduler-async trigger a --namespace t" runs it.', id="manual"),
        pytest.param(["edit", "a", "--after", "1h"], '"scheduler-async cron" makes one.', id="due"),
        pytest.param(["edit", "a", "--at", "2099-06-15T09:00"], "2099-06-15 09:00 CEST, in ", id="not due"),
    ],
)
def test_an_explanation_names_commands_and_the_readers_time(arguments: list[str], words: str, here: Path) -> None:
    well(here, "add", "a", "true", "--every", "1h", "--namespace", "t")
    changed = well(here, *arguments, "--namespace", "t")

    run_elsewhere(here / "scheduler.db")

    explained = well(here, "explain", "a", "--namespace", "t").out

    assert words in explained
    assert words in well(here, "show", "a", "--namespace", "t").out
    assert words in well(here, "explain", "a", "--namespace", "t", "--json").json["sentence"]
    for text in (explained, changed.out):
        assert "UTC" not in text
        assert "()" not in text
    assert changed.err == ""


@pytest.mark.parametrize(
    ("misfire", "words"),
    [("run_once", "2020-06-15 09:00 CEST has passed, so it is due now"), ("skip", "so its misfire policy skips it")],
)
def test_a_moment_in_the_past_is_pointed_out(misfire: str, words: str, here: Path) -> None:
    added = well(here, "add", "a", "true", "--at", "2020-06-15T09:00", "--misfire", misfire).out

    assert words in added
    assert ("1 success" if misfire == "run_once" else "1 skipped") in well(here, "cron").out


def test_a_question_ends_with_a_question_mark_alone(here: Path) -> None:
    refused = call(here, "node")

    assert 'No such command "node"' in refused.err
    assert "?." not in refused.err


def test_a_store_can_be_named_in_three_ways(here: Path) -> None:
    well(here, "add", "a", "true", "--store", "one.db")
    well(here, "--store", "two.db", "add", "b", "true")

    def names(*arguments: str, **env: str) -> list[str]:
        return [job["slug"] for job in json.loads(call(here, *arguments, "--json", env=env).out)]

    assert names("list", "--store", "one.db") == ["a"]
    assert names("--store", "two.db", "list") == ["b"]
    assert names("list", SCHEDULER_ASYNC_STORE="two.db") == ["b"]
    assert names("list", "--store", "one.db", SCHEDULER_ASYNC_STORE="two.db") == ["a"]
    assert names("--store", "one.db", "list", SCHEDULER_ASYNC_STORE="two.db") == ["a"]
    assert names("--store", "two.db", "list", "--store", "one.db", SCHEDULER_ASYNC_STORE="three.db") == ["a"]


@pytest.mark.parametrize("line", ["list", "show hourly --json", "log", "preview", "stats"])
def test_a_command_says_that_it_has_migrated_the_store(line: str, here: Path) -> None:
    """Also one that only reads: processes of an older version have to be restarted."""
    with closing(sqlite3.connect(here / "scheduler.db")) as db:
        db.executescript((Path(__file__).parents[1] / "stores" / "schemas" / "sqlite-5.sql").read_text())

    first, second = well(here, *line.split()), well(here, *line.split())

    assert first.err == f"Store scheduler.db migrated from schema version 5 to {newest()}\n"
    assert second.err == ""


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["add", "x"], 2, "COMMAND", id="no command"),
        pytest.param(["add", "x", " "], 2, "command must be a shell command", id="blank command"),
        pytest.param(["add", "x", "y", "--cron", "61 * * * *"], 2, "61 is out of range", id="cron"),
        pytest.param(["add", "x", "y", "--every", "5"], 2, "Missing time unit", id="interval"),
        pytest.param(["add", "x", "y", "--at", "soon"], 2, 'Cannot read "soon" as the time of --at', id="moment"),
        pytest.param(
            ["add", "x", "y", "--at", "2026-13-01"], 2, "as the time of --at: month must be", id="no such month"
        ),
        pytest.param(
            ["add", "x", "y", "--cron", "@daily", "--every", "1h"],
            2,
            "a job has one schedule",
            id="two schedules",
        ),
        pytest.param(
            ["add", "x", "y", "--every", "1h", "--tz", "UTC"], 2, "the same in every zone", id="needless zone"
        ),
        pytest.param(["add", "x", "y", "--cron", "@daily", "--tz", "Mars"], 2, "Mars", id="unknown zone"),
        pytest.param(["next", "@daily", "--tz", "UTC+2"], 2, 'Did you mean "+02:00"?', id="offset without zeros"),
        pytest.param(["add", "x", "y", "--priority", "top"], 2, "not one of 'high', 'standard', 'low'", id="priority"),
        pytest.param(["add", "x", "y", "--retries", "-1"], 2, "'--retries': -1 is not between", id="retries"),
        pytest.param(["add", "x", "y", "--payload", "{"], 2, "--payload is not valid JSON", id="payload"),
        pytest.param(["add", "x", "y", "--payload", "NaN"], 2, "--payload is not valid JSON", id="no number in JSON"),
        pytest.param(["add", "x", "y", "--payload", '"\\ud800"'], 2, "is not valid JSON", id="half a character"),
        pytest.param(["add", "x", "y", "--env", "A"], 2, "--env must be NAME=VALUE", id="environment"),
        pytest.param(["add", "x", "y", "--env", "=A"], 2, "--env must be NAME=VALUE", id="variable without a name"),
        pytest.param(["add", "x", "y", "--cwd", "no/where"], 2, "the directory does not exist", id="directory"),
        pytest.param(["edit", "there", "--cwd", "no/where"], 2, "the directory does not exist", id="edited directory"),
        pytest.param(["add", "x", "y", "--cwd", "text.db"], 2, "'text.db' is a file", id="a file as directory"),
        pytest.param(
            ["add", " x", "y"], 2, "slug must be a non-empty string without leading or trailing whitespace", id="slug"
        ),
        pytest.param(["add", "x", "y\udcff"], 2, "is not valid UTF-8", id="no text"),
        pytest.param(["add", "x", "y", "--manual", "--every", "1h"], 2, "a job has one schedule", id="manual and not"),
        pytest.param(["edit", "there", "--unset-env", "A"], 2, "has no such variable", id="variable that is not there"),
        pytest.param(["add", "there", "y"], 1, 'Job "there" already exists', id="taken name"),
        pytest.param(["add", "there", "y"], 1, '"scheduler-async edit there"', id="what to do about a taken name"),
        pytest.param(["edit", "there"], 2, "Nothing to change", id="no change"),
        pytest.param(["edit", "there", "--timeout", "soon"], 2, "Invalid interval", id="timeout"),
        pytest.param(["edit", "gone", "--every", "1h"], 1, 'Job "gone" not found', id="edit what is not there"),
        pytest.param(["remove", "gone"], 1, 'Job "gone" not found', id="remove what is not there"),
        pytest.param(["trigger", "gone"], 1, 'Job "gone" not found', id="trigger what is not there"),
        pytest.param(
            ["trigger", "foreign"],
            2,
            'Pass --app with the program that has its handler "elsewhere"',
            id="trigger what others handle",
        ),
        pytest.param(["explain", "gone"], 1, 'Job "gone" not found', id="explain what is not there"),
        pytest.param(["show", "gone"], 1, '"scheduler-async list" shows all jobs', id="what to do about a wrong name"),
        pytest.param(["show", "tenant/a"], 1, 'Job "tenant/a" not found', id="a name with its namespace"),
        pytest.param(["log", "tenant/a"], 1, 'Job "tenant/a" not found', id="log of a name with its namespace"),
        pytest.param(["resume", "over"], 1, '"scheduler-async trigger over" runs it once more', id="what has ended"),
        pytest.param(["log", "gone"], 1, 'Job "gone" not found', id="log of what is not there"),
        pytest.param(["list", "--status", "odd"], 2, "not one of 'idle', 'queued', 'running'", id="status"),
        pytest.param(["list", "--watch"], 2, "--watch needs a terminal", id="watched by a program"),
        pytest.param(
            ["cron", "--app", "json:loads", "--jobs", "2"], 2, "--jobs does not apply to json:loads", id="two limits"
        ),
        pytest.param(["preview", "--window", "soon"], 2, "Invalid interval", id="window"),
        pytest.param(["next", "* * *"], 2, "Cannot read", id="next of nonsense"),
        pytest.param(["run", "nothing:at"], 1, "Cannot load nothing:at: ModuleNotFoundError", id="no such module"),
        pytest.param(["run", "json"], 2, "MODULE:SCHEDULER", id="no such target"),
        pytest.param(["run", "json:loads"], 1, "is not a Scheduler", id="not a scheduler"),
        pytest.param(["run", "json:loads", "--store", "x.db"], 2, "has its own store", id="two stores"),
        pytest.param(["list", "--store", "none.db"], 1, "Store none.db does not exist", id="no store"),
        pytest.param(["list", "--store", "empty.db"], 1, "The file empty.db is empty", id="empty store"),
        pytest.param(["list", "--store", ""], 2, "--store is empty", id="store without a name"),
        pytest.param(["--store", "", "list"], 2, "--store is empty", id="store without a name, first"),
        pytest.param(["add", "x", "y", "--store", ":memory:"], 2, "would forget all jobs", id="store in memory"),
        pytest.param(["next", "every 5m", "--tz", "UTC"], 2, "the same in every zone", id="zone for nothing"),
        pytest.param(["list", "--store", "text.db"], 1, "is not a SQLite database", id="not a store"),
        pytest.param(["list", "--store", "new.db"], 1, "upgrade scheduler_async", id="newer store"),
        pytest.param(["add", "x", "y", "--store", "no/such/dir.db"], 1, "does not exist", id="no directory"),
        pytest.param(["copy", "none.db", "x.db"], 1, "Store none.db does not exist", id="copy what is not there"),
        pytest.param(["copy", "empty.db", "x.db"], 1, "The file empty.db is empty", id="copy what is empty"),
        pytest.param(["copy", "text.db", "x.db"], 1, "is not a SQLite database", id="copy what is no store"),
        pytest.param(["copy", "scheduler.db", "text.db"], 1, "is not a SQLite database", id="copy to what is no store"),
        pytest.param(["copy", "scheduler.db", "./scheduler.db"], 2, "are the same store", id="copy to itself"),
        pytest.param(["copy", "scheduler.db", "no/dir.db"], 1, "does not exist", id="copy to no directory"),
        pytest.param(["copy", "scheduler.db", ":memory:"], 2, "is not a store on disk", id="copy to memory"),
        pytest.param(["copy", ":memory:", "x.db"], 2, "is not a store on disk", id="copy from memory"),
        pytest.param(["copy", "scheduler.db", " "], 2, "is not a store on disk", id="copy to nowhere"),
        pytest.param(["copy", "scheduler.db"], 2, "TARGET", id="copy without a target"),
        pytest.param(["copy", "scheduler.db", "mysql://h/x"], 1, 'kind "mysql" are not supported', id="copy to others"),
        pytest.param(["--store", "x.db", "copy", "scheduler.db", "y.db"], 2, "leave out --store", id="three stores"),
        pytest.param(["nonsense"], 2, "nonsense", id="no such command"),
        pytest.param(["lsit"], 2, 'No such command "lsit". Did you mean "list"?', id="a mistyped command"),
        pytest.param(["list", "--nonsense"], 2, "--nonsense", id="no such option"),
    ],
)
def test_what_goes_wrong_is_a_sentence(arguments: list[str], code: int, words: str, troubled: Path) -> None:
    """On stderr, without a traceback, and nothing is changed."""
    before = contents(troubled)

    done = call(troubled, *arguments)

    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert not re.search(r"Traceback|\w+_\w+\(\)|max_retries|on_conflict", done.err), "that is Python, and no command"
    assert contents(troubled) == before


def contents(here: Path) -> dict[str, object]:
    """The files of a directory, and what its store says of jobs and runs."""
    found: dict[str, object] = {file.name: file.stat().st_size for file in here.glob("*.db")}
    db = sqlite3.connect(here / "scheduler.db")
    for table in ("job", "state", "run"):
        found[table] = db.execute(f"SELECT * FROM {table}").fetchall()
    db.close()
    return found


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store of two jobs, a file that is none, and one of a newer version."""
    here = tmp_path_factory.mktemp("troubled")

    async def fill(name: str) -> None:
        scheduler = Scheduler(here / name)
        await scheduler.add_job(Every("1h"), handler="command", id="there", payload={"command": "true"})
        await scheduler.add_job(Every("1h"), handler="elsewhere", id="foreign")
        ended = Every("1h", end="2020-01-01T00:00:00Z")
        await scheduler.add_job(ended, handler="command", id="over", payload={"command": "true"})
        await scheduler.stop()

    asyncio.run(fill("scheduler.db"))
    asyncio.run(fill("new.db"))
    db = sqlite3.connect(here / "new.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    (here / "text.db").write_text("not a store\n" * 100)
    (here / "empty.db").touch()
    return here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["add", "x", "y", "--tz", "Mars/X"], "Mars/X", id="a zone that is not there, for nothing"),
        pytest.param(["add", "x", "y", "--tz", "UTC"], "--tz needs --cron or --at", id="a zone for nothing"),
        pytest.param(["add", "x", "y", "--at", "2027-03-28T02:30"], "02:30 does not exist on that day", id="a gap"),
        pytest.param(
            ["add", "x", "y", "--at", "2027-03-14T02:30", "--tz", "America/New_York"],
            "02:30 does not exist on that day in America/New_York",
            id="a gap elsewhere",
        ),
        pytest.param(["add", "x", "y", "--payload", "[" * 100_000], "--payload is not valid JSON", id="a deep payload"),
    ],
)
def test_more_that_makes_no_sense(arguments: list[str], words: str, here: Path) -> None:
    done = call(here, *arguments)

    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "Traceback" not in done.err
    assert list(here.iterdir()) == []


def test_names_are_shown_as_they_are(here: Path) -> None:
    """Whatever they look like to a library that draws tables."""
    for slug in ("[/red]", "[bold]x", ":smile:"):
        well(here, "add", slug, "echo '[/b] \033[2J'", "--after", "1h")
    assert "3 tasks executed (3 success)" in on_terminal(here, "cron")

    for arguments in (["list"], ["log"], ["stats"], ["preview", "--window", "2h"], ["log", "--output"]):
        shown = well(here, *arguments).out
        assert "[/red]" in shown
        assert "[bold]x" in shown
        assert ":smile:" in shown
        assert "\x1b" not in shown


def test_the_end_of_the_calendar_can_be_shown(here: Path) -> None:
    well(here, "add", "last", "true", "--at", "9999-12-31T23:59Z")

    assert "9999-12-31 23:59" in well(here, "list").out
    assert "9999-12-31 23:59" in well(here, "show", "last").out


@pytest.mark.deep
@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["next", "@daily"], ["list", "--json"]], ids=" ".join)
def test_a_full_disk_is_a_sentence(arguments: list[str], here: Path) -> None:
    well(here, "add", "a", "true")
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=here,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "Error: Cannot write the output: No space left on device.\n"


def test_a_loop_whose_output_cannot_be_written_ends(here: Path) -> None:
    """What runs would run unseen; what is running is finished, and recorded."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    well(here, "add", "tick", "true", "--after", "1s")

    with open("/dev/full", "w") as full, running(here, "run", stdout=full) as process:  # noqa: PTH123
        _, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (1, "Error: Cannot write the output: No space left on device.\n")
    assert {row["outcome"] for row in well(here, "log", "--json").json} == {"success"}


def test_a_loop_whose_reader_leaves_ends(here: Path) -> None:
    well(here, "add", "tick", "true", "--after", "1s")

    with running(here, "run") as process:
        line_of(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()

        assert process.wait(PATIENCE) == READER_LEFT
    assert err == ""
    assert {row["outcome"] for row in well(here, "log", "--json").json} == {"success"}


READER_LEFT = 141  # what a shell says of a program that SIGPIPE has ended


def test_a_log_whose_reader_leaves_ends(here: Path) -> None:
    well(here, "add", "tick", "true", "--after", "1s")

    with running(here, "run"), running(here, "log", "--follow") as process:
        line_of(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()

        assert (process.wait(PATIENCE), err) == (READER_LEFT, "")


@pytest.mark.deep
@pytest.mark.parametrize(
    "line",
    [
        *("list", "list --json", "show a", "log", "stats", "preview", "explain a", "nodes", "next @daily"),
        *("pause a", "cron", "--help", "list --help", "--version"),
    ],
)
def test_a_reader_who_has_left_ends_a_command_quietly(line: str, here: Path) -> None:
    """As in "list | head -1": whoever has seen enough wants no message."""
    well(here, "add", "a", "true")
    reading, writing = os.pipe()
    os.close(reading)
    codes = []
    with os.fdopen(writing, "w") as gone, open(here / "err", "w+") as err:  # noqa: PTH123
        for stderr in (err, gone):
            _prepared.begin(tuple(line.split()), here, environment(), [err.fileno(), gone.fileno(), stderr.fileno()])
            codes.append(_prepared.end())

    assert codes == [READER_LEFT, READER_LEFT]
    assert (here / "err").read_text() == ""


def test_an_error_whose_reader_has_left_is_quiet(here: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(PROGRAM)} list 2>&1 | true; echo ${{PIPESTATUS[0]}}"],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout in (f"{READER_LEFT}\n", "1\n")  # whether it was sooner than its reader was gone
    assert done.stderr == ""


def test_who_has_closed_the_output_gets_none(here: Path) -> None:
    well(here, "add", "a", "true")
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(PROGRAM)} list >&-"],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("command", ["trigger", "cron"])
def test_what_is_interrupted_is_recorded(command: str, number: signal.Signals, here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600", "--after", "1h")

    with running(here, command, *(["slow"] if command == "trigger" else [])) as process:
        (here / "begun").read_text()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert "Traceback" not in err
    assert "cancelled" in out + err  # a trigger tells of its run beside what the run wrote
    (row,) = well(here, "log", "--json").json
    assert row["outcome"] == "cancelled"


# As long as the program loads its parts, none of which expects an interruption.
INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interruption(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
from scheduler_async.cli import main
sys.argv[1:] = ["list"]
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        "typer",
        "click.types",
        "scheduler_async.errors",
        "asyncio",
        "rich.console",
        "scheduler_async.stores.sqlite.store",
    ],
)
def test_an_interruption_is_heeded_from_the_first_moment_on(module: str, here: Path) -> None:
    well(here, "add", "a", "true")
    code = INTERRUPTED_WHILE_LOADING.replace("sys.argv[1]", repr(module))

    with started([sys.executable, "-c", code], cwd=here, env=environment()) as process:
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (130, "", "")


def test_a_reader_who_has_seen_enough_may_leave(here: Path) -> None:
    for number in range(3):
        well(here, "add", f"job-{number}", "true")
    line = f"{' '.join(PROGRAM)} list | head -1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", line], cwd=here, env=environment(), capture_output=True, text=True, check=True)

    assert done.stdout.startswith("slug")
    assert done.stderr == ""


def test_without_its_packages_the_program_says_how_to_get_them(here: Path) -> None:
    (here / "typer.py").write_text("raise ModuleNotFoundError('No module named typer', name='typer')\n")

    done = subprocess.run(
        [*PROGRAM, "list"], env=environment({"PYTHONPATH": str(here)}), capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr == "The command line needs the package typer: pip install 'scheduler-async[cli]'\n"


# ---------------------------------------------------------------- running


def test_a_pass_runs_what_is_due_in_order_and_sums_up(here: Path) -> None:
    note = here / "note"
    for slug, line, priority in [
        ("b-low", f"echo low >> {note}", "low"),
        ("c-fails", f"echo fails >> {note}; exit 1", "standard"),
        ("a-standard", f"echo standard >> {note}", "standard"),
        ("d-high", f"echo high >> {note}", "high"),
    ]:
        well(here, "add", slug, line, "--after", "1h", "--priority", priority)

    assert well(here, "cron").out == "4 tasks executed (3 success, 1 retry queued)\n"
    assert note.read_text().split() == ["high", "standard", "fails", "low"]
    assert well(here, "cron", "--json").json["executed"] == 1  # the retry
    assert well(here, "cron", "--jobs", "4").out in (
        "1 task executed (1 failed)\n",
        "1 task executed (1 retry queued)\n",
    )


def test_run_tells_of_each_run_until_it_is_asked_to_end(here: Path) -> None:
    well(here, "add", "tick", "echo tick", "--after", "1s")

    with running(here, "run") as process:
        lines = [line_of(process) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert lines[0].split() == ["run", "when", "slug", "trigger", "outcome", "took", "message"]
    outcome, message = lines[0].index("outcome"), lines[0].index("message")
    for line in lines[1:]:
        assert line[outcome:].startswith("success ")
        assert line[message:].startswith("Completed in ")
    assert err.startswith("Received a signal")
    assert {row["outcome"] for row in well(here, "log", "--json").json} == {"success"}


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_second_signal_ends_what_runs(number: signal.Signals, here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600", "--after", "1h")

    with running(here, "run") as process:
        (here / "begun").read_text()
        process.send_signal(number)
        assert process.stderr is not None
        asked = process.stderr.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)

    assert asked == "Received a signal; runs have 30 s to finish. The next signal cancels them\n"
    assert (process.returncode, err) == (0, "")
    (row,) = well(here, "log", "slow", "--json").json
    assert row["outcome"] == "cancelled"


PROGRAM_WITH_SCHEDULER = """
from scheduler_async import Every, Run, Scheduler

scheduler = Scheduler("own.db")

@scheduler.job(Every("1s"), id="declared")
async def declared(run: Run) -> None:
    run.write("from the program")
"""


def test_run_takes_the_scheduler_of_a_program(here: Path) -> None:
    """With its handlers, its declared jobs and its store."""
    (here / "mine.py").write_text(PROGRAM_WITH_SCHEDULER)

    with running(here, "run", "mine:scheduler", "--json") as process:
        row = json.loads(line_of(process))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert (row["job_id"], row["outcome"]) == ("declared", "success")
    assert process.returncode == 0
    assert "from the program" in well(here, "log", "declared", "--output", "--store", "own.db").out
    assert well(here, "trigger", "declared", "--app", "mine:scheduler").out == "from the program\n"


PROGRAM_WITHOUT_LINE_ENDS = PROGRAM_WITH_SCHEDULER.replace('run.write("from the program")', 'print("hi", end="")')


def test_a_line_that_a_handler_leaves_unfinished_is_ended(here: Path) -> None:
    """Otherwise the report of a run would begin in the middle of what its handler printed: "hideclared: success"."""
    (here / "mine.py").write_text(PROGRAM_WITHOUT_LINE_ENDS.replace('1s"', '1s", immediately=True'))

    passed = well(here, "cron", "--app", "mine:scheduler")
    triggered = on_terminal(here, "trigger", "declared", "--app", "mine:scheduler", env={"NO_COLOR": "1"})

    assert passed.out == "hi\n1 task executed (1 success)\n"
    assert triggered.splitlines() == ["hi", "declared: success"]


def test_run_ends_a_line_that_a_handler_leaves_unfinished(here: Path) -> None:
    """A program that reads the lines of --json finds each of them whole."""
    (here / "mine.py").write_text(PROGRAM_WITHOUT_LINE_ENDS)

    with running(here, "run", "mine:scheduler", "--json") as process:
        printed = line_of(process)
        row = json.loads(line_of(process))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert (printed.strip(), row["job_id"]) == ("hi", "declared")


def test_a_program_has_the_garbage_collector_that_starting_does_without(here: Path) -> None:
    """A loop runs for months."""
    (here / "mine.py").write_text(
        PROGRAM_WITH_SCHEDULER.replace('"from the program"', "str(__import__('gc').isenabled())")
    )
    well(here, "cron", "--app", "mine:scheduler")  # adds the declared job

    assert well(here, "trigger", "declared", "--app", "mine:scheduler").out == "True\n"


@pytest.mark.parametrize(
    "line",
    [
        "cron --app mine:scheduler --store other.db",
        "--store other.db cron --app mine:scheduler",
        "cron --app mine:scheduler --store default.db",
        "run mine:scheduler --store other.db",
        "trigger declared --app mine:scheduler --store other.db",
    ],
)
def test_a_program_has_its_own_store_whatever_the_environment_names(line: str, here: Path) -> None:
    """--store is refused, not ignored; the variable is there for other commands, and does not count."""
    (here / "mine.py").write_text(PROGRAM_WITH_SCHEDULER)
    env = {"SCHEDULER_ASYNC_STORE": "default.db"}

    refused = call(here, *line.split(), env=env)
    passed = call(here, "cron", "--app", "mine:scheduler", env=env)

    assert (refused.code, refused.out) == (2, "")
    assert "mine:scheduler has its own store" in refused.err
    assert (passed.code, passed.err) == (0, "")


async def test_a_tenant_of_a_program_cannot_run_shell_commands(here: Path) -> None:
    """A program without a `command` handler has none, however it is started: such a job waits for another program."""
    (here / "mine.py").write_text(PROGRAM_WITH_SCHEDULER)
    program = Scheduler(here / "own.db")
    attack = {"command": "touch harm"}
    await program.namespace("tenant").schedule(
        Delay("1h"), handler="command", id="attack", payload=attack, priority="high"
    )
    await program.stop()

    with running(here, "run", "mine:scheduler", "--json") as process:
        row = json.loads(line_of(process))  # of the job that is due later
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    passed = well(here, "cron", "--app", "mine:scheduler", "--json").json
    triggered = call(here, "trigger", "attack", "--namespace", "tenant", "--app", "mine:scheduler")

    assert row["job_id"] == "declared"
    assert passed["failed"] == 0
    assert (triggered.code, triggered.out) == (1, "")
    assert 'no handler "command" is registered' in triggered.err
    assert not (here / "harm").exists()
    assert well(here, "log", "attack", "--namespace", "tenant", "--store", "own.db").out == "No runs.\n"


def test_the_nodes_of_a_store_are_listed(here: Path) -> None:
    """Whoever looks is none of them; who was killed is there until somebody takes over."""
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600", "--after", "1h")
    assert well(here, "nodes").out == "No nodes: no scheduler is running on this store.\n"
    assert well(here, "nodes", "--json").json == []

    with running(here, "run") as process:
        (here / "begun").read_text()
        (node,) = well(here, "nodes", "--json").json
        shown = well(here, "nodes").out
        narrow = without_colours(on_terminal(here, "nodes", columns=40))

    assert (node["pid"], node["running"], node["clock_skew"]) == (process.pid, 1, 0.0)
    assert 0 < node["lease"] <= 30
    assert re.fullmatch(rf"{node['id']} +{node['host']} +{node['pid']} +.* +\d+s +1 +0s *", shown.splitlines()[1])
    assert max(map(len, narrow.splitlines())) <= 40
    for word in (node["id"], "lease", "running 1", "clock_skew 0s"):
        assert word in " ".join(narrow.split())
    assert "expired" in well(here, "nodes").out


@pytest.mark.deep
def test_log_follows_what_another_process_runs(here: Path) -> None:
    well(here, "add", "tick", "echo so it goes", "--after", "1s")

    with (
        running(here, "log", "--follow", "--json") as following,
        running(here, "log", "tick", "--follow", "--output") as reading,
        running(here, "run"),
    ):
        first, second = (json.loads(line_of(following)) for _ in range(2))
        header, *lines = [line_of(reading) for _ in range(5)]
        for process in (following, reading):
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, err) == (130, "")

    assert first["job_id"] == second["job_id"] == "tick"
    assert first["id"] < second["id"]
    assert header.startswith("run ")
    assert lines[0].index("success") == lines[2].index("success") == header.index("outcome")
    assert [bool(re.search(r"tick +\w+ +success", line)) for line in lines] == [True, False, True, False]
    assert lines[1] == lines[3] == "    so it goes"


@pytest.mark.deep
def test_log_follows_what_takes_longer_than_many_others(here: Path) -> None:
    """Its row is older than all that are looked at when it ends."""
    os.mkfifo(here / "go")
    well(here, "add", "long", "read _ < go")
    well(here, "add", "short", "true")
    well(here, "trigger", "short")
    code = "import sys; from scheduler_async.cli import live, main; live.AT_ONCE = 2; main()"

    with running(here, "trigger", "long") as long:
        while not well(here, "log", "long", "--json").json:
            assert long.poll() is None
        follow = [sys.executable, "-c", code, "log", "--follow", "--json"]
        with started(follow, cwd=here, env=environment()) as following:
            told = [json.loads(line_of(following))["job_id"]]  # it has seen what goes on
            for _ in range(3):
                well(here, "trigger", "short")
                told.append(json.loads(line_of(following))["job_id"])
            (here / "go").write_text("go\n")
            told.append(json.loads(line_of(following))["job_id"])

    assert told == ["short", "short", "short", "short", "long"]


@pytest.mark.deep
def test_edits_at_the_same_time_lose_nothing(here: Path) -> None:
    well(here, "add", "a", "true")

    edits = [
        subprocess.Popen([*PROGRAM, "edit", "a", "--env", f"NUMBER_{number}=1"], cwd=here, env=environment())
        for number in range(4)
    ]

    assert [edit.wait(PATIENCE) for edit in edits] == [0, 0, 0, 0]
    assert sorted(well(here, "show", "a", "--json").json["payload"]["env"]) == [f"NUMBER_{n}" for n in range(4)]


def test_a_job_that_is_removed_while_it_is_triggered_is_a_sentence(here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "a", "echo > begun; sleep 60")

    with running(here, "trigger", "a") as triggered:
        (here / "begun").read_text()
        well(here, "remove", "a")
        _, err = triggered.communicate(timeout=PATIENCE)

    assert (triggered.returncode, err) == (1, "a: cancelled, The job was removed.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("add a true --retries x", "Invalid value for '--retries': 'x' is not a whole number"),
        ("add a true --retries -1", "Invalid value for '--retries': -1 is not between 0 and 1,000,000"),
        ("add a true --retrys 1", "No such option"),
        ("ad a true", 'No such command "ad"'),
        ("add a", "Missing argument"),
        ("add a true --priority highest", "Invalid value for '--priority': 'highest' is not one of"),
        ("next @daily -n 1001", "Invalid value for '-n' / '--count': 1001 is not between 1 and 1,000"),
    ],
)
def test_misuse_is_one_sentence(arguments: str, sentence: str, here: Path) -> None:
    done = call(here, *arguments.split())

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {sentence}")
    assert done.err.count("\n") == 1
    assert '--help".\n' in done.err


def test_another_kind_of_store_is_named(here: Path) -> None:
    done = call(here, "--store", "mysql://h/x", "list")

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        'Error: Stores of the kind "mysql" are not supported. A store must be the path of a SQLite file'
    )


def test_a_moment_that_has_passed_is_said_to_have(here: Path) -> None:
    assert "Its time has passed." in well(here, "next", "2020-01-01T00:00:00Z").out


def test_a_list_is_watched_until_the_reader_has_seen_enough(here: Path) -> None:
    well(here, "add", "tick", "true", "--every", "1h")

    seen = on_terminal(here, "list", "--watch", until="tick.*tick")

    assert seen.count("next_due_at") >= 2
    assert "Traceback" not in seen


def test_who_starts_the_loop_at_a_terminal_learns_that_it_runs(here: Path) -> None:
    """It may be hours before there is anything else to see."""
    well(here, "add", "rare", "true", "--after", "1h")

    seen = without_colours(on_terminal(here, "run", until="Completed"))

    assert seen.index("Running the jobs of scheduler.db") < seen.index("when  ") < seen.index("rare  ")
    well(here, "edit", "rare", "--after", "1s")
    with running(here, "run") as process:
        line_of(process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert "Running" not in err


def test_a_loop_that_cannot_start_does_not_say_that_it_runs(here: Path) -> None:
    (here / "scheduler.db").write_text("not a store\n" * 100)

    seen = on_terminal(here, "run")

    assert "is not a SQLite database" in seen
    assert "Running" not in seen


@pytest.mark.deep
async def test_a_pass_beside_a_running_scheduler_runs_nothing_twice(here: Path) -> None:
    """As the system's cron does, while somebody has left `run` running."""
    well(here, "add", "tick", "sleep 0.2", "--every", "1s")

    with running(here, "run") as process:
        for _ in range(3):
            line_of(process)
            well(here, "cron")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)

    rows = well(here, "log", "--limit", "100", "--json").json
    ran = [row["scheduled_for"] for row in rows if row["attempt"]]
    assert len(ran) == len(set(ran))


# ---------------------------------------------------------------- copies


def test_a_store_is_copied_and_copied_again(here: Path) -> None:
    """The second time it says that there is nothing to do; after that, it copies what is new."""
    for slug in ("a", "b", "c"):
        well(here, "add", slug, f"echo {slug}")
    well(here, "trigger", "a")

    assert well(here, "copy", "scheduler.db", "new.db").out == "Copied 3 jobs and 1 run.\n"
    assert well(here, "copy", "scheduler.db", "new.db").out == (
        "Nothing to copy: 3 jobs and 1 run are there already.\n"
    )
    for command in ("list", "log --output"):
        arguments = (*command.split(), "--json", "--store")
        assert well(here, *arguments, "new.db").json == well(here, *arguments, "scheduler.db").json

    well(here, "trigger", "b")
    well(here, "add", "d", "true")
    assert well(here, "copy", "scheduler.db", "new.db").out == (
        "Copied 2 jobs and 1 run; 1 job replaced an older one, 2 jobs were there already.\n"
    )


def test_what_cannot_be_read_is_shown_and_left_out_of_a_copy(here: Path) -> None:
    """Whatever is asked for, all else is there; and nothing that a row holds reaches the terminal as it is."""
    for slug in ("a", "b", "c"):
        well(here, "add", slug, "true")
    for slug in ("a", "c"):
        well(here, "trigger", slug)
    with closing(sqlite3.connect(here / "scheduler.db")) as db:
        db.execute("UPDATE job SET schedule = CAST(x'1bff' AS TEXT) WHERE id = 'b'")
        db.execute("UPDATE run SET outcome = 'odd' || char(27) WHERE id = 1")
        db.commit()

    listed = {job["slug"]: job for job in well(here, "list", "--json").json}
    logged = {row["job_id"]: row for row in well(here, "log", "--json").json}
    shown = [
        well(here, *command.split()).out for command in ("list", "log", "show b", "show a", "explain b", "stats a")
    ]
    told = well(here, "copy", "scheduler.db", "new.db").out
    form = well(here, "copy", "scheduler.db", "other.db", "--json").json

    assert {slug: job["status"] for slug, job in listed.items()} == {"a": "idle", "b": "disabled", "c": "idle"}
    assert listed["b"]["disabled_reason"] == "it cannot be read from the store: schedule: it is not valid UTF-8"
    assert logged["a"]["error"].startswith("This row cannot be read from the store: outcome: ")
    assert (logged["a"]["outcome"], logged["c"]["outcome"]) == (None, "success")
    assert "unreadable" in shown[1]
    assert "it cannot be read from the store: schedule" in shown[4]
    assert not any("\x1b" in text for text in (*shown, told))
    first, second, last = told.splitlines()
    assert first == "Left out b: it cannot be read: schedule: it is not valid UTF-8."
    assert second.startswith("Left out run 1 of a: it cannot be read: outcome: ")
    assert last == "Copied 2 jobs and 1 run; 1 job was left out, 1 run was left out."
    assert form["jobs"]["left_out"] == form["runs"]["left_out"] == 1
    assert [(found["slug"], found["run"]) for found in form["unreadable"]] == [("b", None), ("a", 1)]


def test_what_is_newer_in_the_target_is_kept_and_told_of(here: Path) -> None:
    well(here, "add", "a", "true")
    well(here, "add", "b", "true", "--namespace", "tenant")
    well(here, "copy", "scheduler.db", "new.db")
    well(here, "pause", "b", "--namespace", "tenant", "--store", "new.db")

    told = well(here, "copy", "scheduler.db", "new.db").out
    form = well(here, "copy", "scheduler.db", "new.db", "--json").json

    assert told == (
        "Kept tenant/b: it was edited or has run in the target since.\n"
        "Nothing was copied; 1 job was there already, 1 job was kept.\n"
    )
    assert form["jobs"] == {"added": 0, "updated": 0, "same": 1, "kept": 1, "left_out": 0}
    assert form["runs"] == {"added": 0, "seen": 0, "left_out": 0}
    assert form["exceptions"] == [
        {
            "slug": "b",
            "namespace": "tenant",
            "verdict": "kept",
            "why": "it was edited or has run in the target since",
        }
    ]
    assert form["sentence"] == told.splitlines()[1]
    assert well(here, "copy", "new.db", "scheduler.db").out == (
        "Copied 1 job and 0 runs; 1 job replaced an older one, 1 job was there already.\n"
    )


def test_a_store_on_which_a_scheduler_runs_is_copied_only_if_one_insists(here: Path) -> None:
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600", "--after", "1h")
    well(here, "add", "other", "true")

    with running(here, "run"):
        (here / "begun").read_text()
        refused = call(here, "copy", "scheduler.db", "new.db")
        assert not (here / "new.db").exists()
        insisted = well(here, "copy", "scheduler.db", "new.db", "--anyway").out

    assert (refused.code, refused.out) == (1, "")
    assert re.match(
        r"Error: A scheduler is running on the source \(.+\), and .*Stop it first, or .* --anyway", refused.err
    )
    assert insisted == ("Left out slow: it is running in the source.\nCopied 1 job and 0 runs; 1 job was left out.\n")
    # Now its process is dead, and what it left is taken up first.
    assert well(here, "copy", "scheduler.db", "new.db").out == ("Copied 1 job and 1 run; 1 job was there already.\n")
    (row,) = well(here, "log", "--store", "new.db", "--json").json
    assert (row["job_id"], row["outcome"]) == ("slow", "interrupted")


def test_a_copy_shows_how_far_it_is_to_who_sits_at_a_terminal(here: Path) -> None:
    well(here, "add", "a", "true")

    seen = without_colours(on_terminal(here, "copy", "scheduler.db", "new.db"))

    assert re.search(r"jobs .*1/1.*runs ", seen, re.DOTALL)
    assert seen.splitlines()[-1] == "Copied 1 job and 0 runs."
    assert well(here, "copy", "scheduler.db", "newer.db").err == ""


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_copy_that_is_interrupted_says_how_to_go_on(number: signal.Signals, here: Path) -> None:
    for slug in ("a", "b"):
        well(here, "add", slug, "true")
    well(here, "trigger", "a")
    well(here, "add", "a", "true", "--store", "new.db")
    well(here, "remove", "a", "--store", "new.db")
    lock = sqlite3.connect(here / "new.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    theirs, ours = pty.openpty()

    with running(here, "copy", "scheduler.db", "new.db", stderr=ours) as process:
        os.close(ours)
        seen = ""
        while "0/2" not in seen:  # it waits for the lock
            seen += os.read(theirs, 65536).decode()
        process.send_signal(number)
        lock.execute("ROLLBACK")
        code = process.wait(PATIENCE)
    lock.close()
    while True:
        try:
            seen += os.read(theirs, 65536).decode()
        except OSError:  # all of it
            break
    os.close(theirs)

    assert code == 130
    told = "Interrupted after 2 of 2 jobs and 0 of 1 run. Run the same command again to copy the rest."
    assert told in " ".join(seen.split())
    assert well(here, "copy", "scheduler.db", "new.db").out == ("Copied 0 jobs and 1 run; 2 jobs were there already.\n")


# ---------------------------------------------------------------- how it looks


def test_a_terminal_has_colours_and_a_pipe_has_none(here: Path) -> None:
    well(here, "add", "fails", "exit 1", "--priority", "high")
    call(here, "trigger", "fails")

    assert "\x1b[" in on_terminal(here, "list")
    assert "\x1b[3" not in on_terminal(here, "list", env={"NO_COLOR": "1"})
    assert "\x1b" not in well(here, "list").out


def without_colours(seen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)


@pytest.mark.deep
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_fit_the_terminal_and_nothing_is_cut_off(columns: int, here: Path) -> None:
    slug = "a-job-with-quite-a-long-name"
    well(here, "add", slug, "exit 3", "--cron", "0 3 1,15 * MON-FRI", "--tz", "Europe/Stockholm")
    call(here, "trigger", slug)

    for arguments, words in [
        (["list"], ["0/2", "idle", "standard", "MON-FRI", "in "]),
        (["show", slug], ["exit 3", "CET"]),
        (["stats"], ["1 ", "error", "0%"]),
        (["log"], ["manual", "error", "Exited", "after"]),
        (["preview", "--window", "30d"], ["in ", "standard"]),
        (["next", "30 2 28 3 *", "--tz", "Asia/Tokyo", "-n", "2"], ["02:30:00 JST", "CET", "in "]),
    ]:
        seen = without_colours(on_terminal(here, *arguments, columns=columns))
        assert max(map(len, seen.splitlines())) <= columns, seen
        for word in words:
            assert word in seen, seen
        # A table cuts names only, and only if it must.
        assert (slug if columns != 80 or arguments[0] == "show" else slug[:10]) in seen or arguments[0] == "next"
        assert seen.count("…") == len(re.findall(r"a-job-[a-z-]*…", seen))
        assert "…" not in seen or columns == 80 or arguments[0] == "preview"


@pytest.mark.deep
def test_one_long_name_leaves_the_table_a_table(here: Path) -> None:
    """In every command that lists jobs or runs, at the width that most terminals have."""
    for slug in ("short", "a-very-long-name-" * 10):
        well(here, "add", slug, "echo out", "--every", "10m", "--retries", "0")
        well(here, "trigger", slug)

    for command in ("list", "log", "log --output", "stats", "preview", "preview --window 1d"):
        lines = without_colours(on_terminal(here, *command.split(), columns=80)).splitlines()
        table = lines[next(number for number, line in enumerate(lines) if "slug" in line) :]
        place = table[0].index("slug")
        names = {line[place:].split()[0] for line in table[1:] if not line.startswith("    ")}
        assert len(names) == 2, lines
        assert any(name.startswith("a-very-long") and name.endswith("…") for name in names)


def test_a_one_shot_that_has_run_is_done(here: Path) -> None:
    """It did all that it was asked for: to call it disabled, in red, would look like a failure."""
    for slug, line in (("good", "true"), ("bad", "false")):
        well(here, "add", slug, line, "--at", "2020-01-01T00:00Z", "--retries", "0")
    well(here, "cron")

    seen = {line.split()[0]: line for line in on_terminal(here, "list", columns=120).splitlines()[1:]}

    assert re.search(r"\x1b\[2mdone\x1b", seen["good"])
    assert re.search(r"\x1b\[31mdisabled\x1b", seen["bad"])
    assert re.search(r"status +done", well(here, "show", "good").out)
    assert [job["slug"] for job in well(here, "list", "--status", "done", "--json").json] == ["good"]
    assert {job["slug"] for job in well(here, "list", "--status", "disabled", "--json").json} == {"good", "bad"}


def test_list_and_stats_cover_the_same_namespaces(here: Path) -> None:
    for namespace in ("default", "tenant"):
        well(here, "add", "a", "true", "--namespace", namespace)

    for options in ([], ["--namespace", "tenant"]):
        jobs, stats = (well(here, command, *options, "--json").json for command in ("list", "stats"))
        names = [[(row["namespace"], row["slug"]) for row in rows] for rows in (jobs, stats)]
        assert sorted(names[0]) == sorted(names[1])
    assert len(jobs) == 1
    assert "tenant/a" in well(here, "stats").out


def test_an_error_wraps_at_words(here: Path) -> None:
    well(here, "add", "a", "true")

    seen = on_terminal(here, "show", "a-name-that-is-not-there", columns=50)

    assert max(map(len, seen.splitlines())) <= 50
    assert "a-name-that-is-not-there" in seen
    assert '"scheduler-async list" shows all jobs.' in " ".join(seen.split())
    assert well(here, "show", "a").err == ""
    assert call(here, "show", "a-name-that-is-not-there").err.count("\n") == 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["show", "bakcup"], '"backup"'),
        (["pause", "backups"], '"backup"'),
        (["trigger", "bckup"], '"backup"'),
        (["log", "backup-"], '"backup"'),
        (["stats", "nightly"], '"tenant/nightly"'),
        (["explain", "tenant/nigthly"], '"tenant/nightly"'),
        (["edit", "nigthly", "--namespace", "tenant", "--every", "1h"], '"tenant/nightly"'),
        (["remove", "zzz"], None),
    ],
    ids=str,
)
def test_a_mistyped_name_gets_suggestions(arguments: list[str], meant: str | None, here: Path) -> None:
    well(here, "add", "backup", "true")
    well(here, "add", "nightly", "true", "--namespace", "tenant")

    refused = call(here, *arguments)

    assert (refused.code, refused.out) == (1, "")
    assert (f"Did you mean {meant}?" in refused.err) is (meant is not None)


@pytest.mark.deep
@pytest.mark.parametrize("columns", [0, 1, 10])
def test_a_terminal_of_no_size_is_no_reason_to_fail(columns: int, here: Path) -> None:
    well(here, "add", "backup", "true", "--every", "10m")
    well(here, "trigger", "backup")

    for command in ("list", "show backup", "stats", "log", "preview", "explain backup", "--help"):
        seen = without_colours(on_terminal(here, *command.split(), columns=columns))
        assert "Traceback" not in seen
        assert ("scheduler-async" if command == "--help" else "backup") in seen


def test_moments_are_relative_and_on_the_readers_clock(here: Path) -> None:
    well(here, "add", "a", "true", "--at", "2099-06-15T09:00:00Z")

    assert re.search(r"in \d+y( \d+d)?, 2099-06-15 11:00 CEST", well(here, "list").out)


def test_next_shows_both_clocks_and_what_to_look_out_for(here: Path) -> None:
    shown = well(here, "next", "30 2 13 * FRI", "--tz", "America/New_York", "-n", "3").out

    assert "EDT" in shown or "EST" in shown
    assert "CET" in shown or "CEST" in shown
    assert "Warning: " in shown
    told = well(here, "next", "@hourly", "--json", "-n", "4").json
    assert len(told["occurrences"]) == 4
    assert told["warnings"] == []


def test_preview_draws_what_is_to_come(here: Path) -> None:
    well(here, "add", "often", "true", "--every", "10m")

    assert len(well(here, "preview", "--json").json) == 6
    for window in ("1d", "3000000d"):  # the second ends after the last year that there is
        assert "often" in well(here, "preview", "--window", window).out
    assert well(here, "remove", "often").code == 0
    assert well(here, "preview").out == "Nothing is due in that time.\n"


def test_a_long_preview_has_a_line_for_each_job(here: Path) -> None:
    well(here, "add", "often", "true", "--every", "10m")
    well(here, "add", "once", "true", "--at", "2099-01-01T00:00")
    well(here, "add", "hourly", "true", "--cron", "@hourly")

    lines = well(here, "preview", "--window", "1d").out.splitlines()

    assert len(lines) == 8  # the scale, two lines of marks, and a table of two
    assert any(re.match(r"often +144 +in (9m|10m).* +in (23h 59m|1d)", line) for line in lines[-2:])
    assert len(well(here, "preview", "--window", "1d", "--json").json) == 168


@pytest.mark.deep
def test_rare_times_are_found_quickly_and_no_further_than_the_calendar_repeats_itself(here: Path) -> None:
    shown = well(here, "next", "0 0 29 2 *", "-n", "1000").out

    assert shown.count("-02-29 00:00:00") == 97
    assert "after 400 years the calendar repeats itself" in shown


def test_next_shows_one_clock_for_what_has_no_zone(here: Path) -> None:
    shown = well(here, "next", "every 5m", "-n", "2").out

    assert "UTC" not in shown
    assert "there" not in shown
    assert "2099-06-15 09:00:00 CEST" in well(here, "next", "2099-06-15T09:00").out
    assert "2099-06-15 02:00:00 CEST" in well(here, "next", "2099-06-15T09:00", "--tz", "Asia/Tokyo").out


def test_a_pass_shows_what_it_is_doing(here: Path) -> None:
    well(here, "add", "slow-one", "sleep 1", "--after", "1h")

    seen = on_terminal(here, "cron")

    assert "running slow-one" in seen
    assert "1 task executed (1 success)" in seen


def completed(here: Path, line: str, **env: str) -> list[str]:
    """What a shell would offer to complete *line*."""
    words = {"COMP_WORDS": f"scheduler-async {line}", "COMP_CWORD": str(len(line.split(" ")))}
    return call(here, env={"_SCHEDULER_ASYNC_COMPLETE": "complete_bash", **words, **env}).out.split()


def test_a_shell_completes_the_names_of_jobs(here: Path) -> None:
    """Of the store that the line names, before or after the command, or the environment."""
    well(here, "add", "backup", "true")
    well(here, "add", "other", "true", "--store", "other.db")
    well(here, "add", "theirs", "true", "--store", "other.db", "--namespace", "tenant")

    assert completed(here, "show ") == ["backup"]
    assert completed(here, "--store other.db show o") == ["other"]
    assert completed(here, "show --store other.db o") == ["other"]
    assert completed(here, "show ", SCHEDULER_ASYNC_STORE="other.db") == ["other", "tenant/theirs"]
    assert completed(here, "log ", SCHEDULER_ASYNC_STORE="other.db") == ["other", "tenant/theirs"]
    assert completed(here, "show --store other.db --namespace tenant ") == ["theirs"]
    assert completed(here / "..", "show ") == []
    assert "show" in completed(here, "s")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        pytest.param("list --status ", [*Status, "done"], id="status"),
        pytest.param("list --priority ", list(Priority), id="priority to look for"),
        pytest.param("add a b --priority ", list(Priority), id="priority"),
        pytest.param("edit a --misfire ", list(Misfire), id="misfire"),
        pytest.param("add a b --tz Europe/Stoc", ["Europe/Stockholm"], id="zone"),
    ],
)
def test_a_shell_completes_values(line: str, values: list[str], here: Path) -> None:
    assert completed(here, line) == values


def test_the_program_knows_its_version(here: Path) -> None:
    assert re.fullmatch(r"scheduler-async \d+\.\d+\.\d+\n", well(here, "--version").out)


def test_a_zone_can_be_changed_and_nothing_else(here: Path) -> None:
    well(here, "add", "nightly", "true", "--cron", "0 3 * * *", "--tz", "UTC")
    well(here, "add", "often", "true", "--every", "1h")

    assert well(here, "edit", "nightly", "--tz", "Asia/Tokyo", "--json").json["schedule"]["tz"] == "Asia/Tokyo"
    assert call(here, "edit", "often", "--tz", "Asia/Tokyo").code == 2


def test_help_names_every_command_and_says_what_all_else_is(here: Path) -> None:
    shown = well(here, "--help").out

    for command in COMMANDS:
        assert re.search(rf"^  {command} ", shown, re.MULTILINE)
        told = well(here, command, "--help").out
        told, examples = re.split(r"^Examples:$", told, flags=re.MULTILINE)
        assert f"scheduler-async {command}" in examples
        _, listed = re.split(r"^(?:Arguments|Options):$", told, maxsplit=1, flags=re.MULTILINE)
        for line in re.findall(r"^  (\S.+)", re.sub(r"\n {3,}", "  ", listed), re.MULTILINE):
            what, words, *_ = [*re.split(r" {2,}", line), ""]
            assert words, f"{command} does not say what {what} is"
            assert not words.startswith("["), f"{command} does not say what {what} is"


# ---------------------------------------------------------------- changes


def test_changes_tell_who_did_what_by_the_command_line(here: Path) -> None:
    """Also of a job that was removed, and never ran."""
    well(here, "add", "a", "true", "--every", "1h")
    well(here, "edit", "a", "--timeout", "5m")
    well(here, "pause", "a")
    well(here, "resume", "a")
    well(here, "trigger", "a")
    well(here, "add", "gone", "true", "--namespace", "tenant")
    well(here, "remove", "tenant/gone")

    rows = well(here, "changes", "--json").json
    table = well(here, "changes", "a", "--limit", "2").out.splitlines()

    assert [(row["namespace"], row["action"]) for row in rows] == [
        ("tenant", "remove"),
        ("tenant", "add"),
        *(("default", action) for action in ("trigger", "resume", "pause", "edit", "add")),
    ]
    assert {row["via"] for row in rows} == {"cli"}
    assert all(row["actor"] for row in rows)
    assert (rows[5]["before"], rows[5]["after"]) == ({"timeout": None}, {"timeout": "5m"})
    assert [row["action"] for row in well(here, "changes", "tenant/gone", "--json").json] == ["remove", "add"]
    assert well(here, "changes", "--since", "1h", "--namespace", "tenant", "--json").json == rows[:2]
    assert [line.split()[0] for line in table] == ["slug", "a", "a"]
    assert "No changes." in well(here, "changes", "a", "--limit", "0").out
    assert call(here, "changes", "nobody").code == 1
    assert call(here, "changes", "--since", "soon").code == 2


# ---------------------------------------------------------------- calendars


def test_a_job_can_be_put_on_a_calendar_and_taken_off_again(here: Path) -> None:
    on = ("--on", "business-days:SE", "--otherwise", "before")

    added = well(here, "add", "pay", "true", "--cron", "0 9 L * *", "--tz", "Europe/Stockholm", *on).out
    moved = well(here, "edit", "pay", "--otherwise", "after").out
    another = well(here, "edit", "pay", "--cron", "0 10 L * *").out
    plain = well(here, "edit", "pay", "--on", "none").out

    assert "moved to an earlier day if not on business days in SE" in added
    assert "moved to a later day if not on business days in SE" in moved
    assert "at 10:00 on the last day of the month (Europe/Stockholm), moved to a later day" in another
    assert "business days" not in plain


def test_several_calendars_must_all_be_met(here: Path) -> None:
    options = ("--on", "weekdays:MON-FRI", "--on", "hours:08:00-18:00", "--tz", "Asia/Tokyo")

    well(here, "add", "sync", "true", "--every", "1h", *options)

    (job,) = json.loads(well(here, "list", "--json").out)
    assert job["schedule"]["calendar"]["kind"] == "both"
    assert job["schedule"]["tz"] == "Asia/Tokyo"
    assert "(UTC)" in well(here, "edit", "sync", "--tz", "UTC").out


def test_next_shows_where_an_occurrence_was_moved_from(here: Path) -> None:
    found = json.loads(
        well(
            here, "next", "0 9 * * SUN", "--tz", "UTC", "--on", "weekdays:MON-FRI", "--otherwise", "before", "--json"
        ).out
    )
    words = json.loads(well(here, "next", "every 5m on hours:08:00-09:00", "--json").out)

    assert all("moved from Sunday" in one["note"] and "to Friday" in one["note"] for one in found["occurrences"])
    assert words["description"] == "every 5 minutes, only from 08:00 to 09:00 (UTC)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "x", "true", "--every", "5m", "--otherwise", "before"], "--otherwise needs --on"),
        (["add", "x", "true", "--every", "5m", "--on", "moon:full"], "is not a calendar"),
        (["add", "x", "true", "--every", "5m", "--on", "mondays"], '"mondays" is not a calendar'),
        (["add", "x", "true", "--on", "weekdays:MON"], "only when it is triggered"),
        (["next", "every 5m on weekdays:MON", "--on", "weekdays:TUE"], "Write the calendar once"),
    ],
)
def test_a_calendar_that_makes_no_sense_is_refused(arguments: list[str], words: str, here: Path) -> None:
    done = call(here, *arguments)

    assert done.code != 0
    assert words in done.err
