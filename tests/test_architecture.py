"""The shape of the house: imports point one way, only the clock asks the time, decisions stay pure."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import time_machine

import scheduler_async

pytestmark = pytest.mark.once  # the version of Python does not matter

PACKAGE = Path(scheduler_async.__file__).parent

# The rooms, from the ground up. A room may import from those before it; what a room is for, its `__init__` says.
ROOMS = [
    "errors",
    "texts",
    "outbox",
    "logs",
    "shielding",
    "signals",
    "timekeeping",
    "schedules",
    "migrating",
    "jobs",
    "rules",
    "stores",
    "running",
    "engine",
    "command",
    "options",
    "calls",
    "services",
    "scheduler",
    "testing",
    "telemetry",
    "web",
    "cli",
    "__main__",
]
PACKAGES = {"timekeeping", "schedules", "jobs", "rules", "stores", "running", "engine", "calls", "web", "cli"}
MOST_MODULES_AT_THE_TOP = 15
# Rooms in which nothing waits: no event loop, no I/O.
PURE = {"errors", "texts", "schedules", "rules"}
# What a type checker alone needs may point the other way, and so may `Scheduler.page`, which builds what stands on it.
ONLY_FOR_TYPES = {"calls": {"scheduler"}, "services": {"scheduler"}, "scheduler": {"web"}}

FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(file: Path) -> set[str]:
    """The modules of the package that *file* imports, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "scheduler_async":
            found |= {scheduler_async._HOMES.get(alias.name, alias.name) for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("scheduler_async."):
            module = node.module.removeprefix("scheduler_async.")
            inner = {f"{module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if (PACKAGE / f"{name.replace('.', '/')}.py").exists()}
            found |= modules or {module}
        elif isinstance(node, ast.Import):
            plain = (alias.name for alias in node.names)
            found |= {name.partition(".")[2] for name in plain if name.startswith("scheduler_async")}
    return found


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports_point_one_way(file: Path) -> None:
    room = room_of(module_name(file))
    if room == "__init__":
        return
    assert room in ROOMS, f"give {room} its place among the rooms"

    allowed = {*ROOMS[: ROOMS.index(room) + 1], *ONLY_FOR_TYPES.get(room, set())}

    assert {room_of(module) for module in imports_of(file)} <= allowed


@pytest.mark.parametrize("room", sorted(PACKAGES))
def test_within_a_room_no_two_modules_need_each_other(room: str) -> None:
    """Who reads one of them need not have read the other before."""
    graph = {
        module_name(file): {name for name in imports_of(file) if room_of(name) == room and "." in name}
        for file in FILES
        if room_of(module_name(file)) == room and file.name != "__init__.py"
    }

    assert list(TopologicalSorter(graph).static_order())


def test_the_top_of_the_package_is_one_look() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_MODULES_AT_THE_TOP
    assert {file.parent.name for file in PACKAGE.glob("*/__init__.py")} == PACKAGES


@pytest.mark.parametrize("room", sorted(PACKAGES))
def test_each_room_says_what_belongs_there_and_what_does_not(room: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""

    assert len(text.splitlines()) >= 3


def methods_of(module: str, kind: str) -> list[str]:
    tree = ast.parse((PACKAGE / "stores" / f"{module}.py").read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    names = []
    for node in found.body:
        if isinstance(node, ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)  # made from a transaction
    return [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize(
    ("module", "kind"),
    [("memory/store", "MemoryStore"), ("sqlite/store", "SQLiteStore"), ("postgres/store", "PostgresStore")],
)
def test_stores_answer_in_the_order_of_the_protocol(module: str, kind: str) -> None:
    """Side by side, they differ by their dialects alone."""
    assert methods_of(module, kind) == methods_of("protocol", "Store")


@pytest.mark.parametrize(
    "text",
    [
        'replace("+00:00", "Z")',
        "coalesce(disabled_reason",
        'updating("run", "id", PROGRESS_TYPES)',
        "NOT IN ('trigger'",
    ],
    ids=["a moment in JSON", "an ended schedule", "progress", "a decision"],
)
def test_an_idea_has_one_home(text: str) -> None:
    """A migration must not change, so a schema may repeat it."""
    homes = [
        module_name(file) for file in FILES if file.name != "schema.py" if text in file.read_text(encoding="utf-8")
    ]

    assert len(homes) == 1, homes


@pytest.mark.parametrize("file", sorted((PACKAGE / "stores" / "sqlite").glob("*.py")), ids=module_name)
def test_placeholders_are_not_numbered(file: Path) -> None:
    """Python 3.12 deprecates `?1` with a sequence of values, and 3.14 refuses it; 3.11 says nothing."""
    module = importlib.import_module(f"scheduler_async.{module_name(file).removesuffix('.__init__')}")

    numbered = [name for name, value in vars(module).items() if isinstance(value, str) and re.search(r"\?\d", value)]

    assert not numbered


def dotted_calls(file: Path) -> set[str]:
    """Every call written as `name.attribute(...)`."""
    return {
        f"{node.func.value.id}.{node.func.attr}"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }


ASKS_THE_TIME = {
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.sleep"),
    *("asyncio.sleep", "anyio.sleep", "loop.time"),
}


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_clock_asks_the_time(file: Path) -> None:
    # These let the event loop turn; sleep(0) asks for no time.
    allowed = {"testing": {"asyncio.sleep"}, "shielding": {"asyncio.sleep"}}.get(module_name(file), set())
    if module_name(file) != "timekeeping.clock":
        assert dotted_calls(file) & ASKS_THE_TIME <= allowed


@pytest.mark.parametrize("file", sorted((PACKAGE / "cli").rglob("*.py")), ids=module_name)
def test_only_what_is_harmless_is_printed(file: Path) -> None:
    """What a store holds may control a terminal: `printing` and `safe_text` escape it, and nobody else prints."""
    source = file.read_text(encoding="utf-8")

    assert "rich.text" not in source or module_name(file) == "cli.safe_text"
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    prints = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert not prints or module_name(file) == "cli.printing"
    assert not dotted_calls(file) & {"click.echo", "typer.echo", "json.dump"}
    assert "stdout.write" not in source


@pytest.mark.parametrize("file", [file for file in FILES if room_of(module_name(file)) in PURE], ids=module_name)
def test_pure_rooms_contain_nothing_asynchronous(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    assert not [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    assert "import asyncio" not in source


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_every_file_says_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


def test_decisions_do_not_depend_on_the_machines_clock() -> None:
    """The same question has the same answer today and in 1999: nothing in there asks the time."""
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)

    def answers() -> list[datetime | None]:
        schedules = [
            scheduler_async.Every("5m"),
            scheduler_async.Cron("0 9 * * 1-5", tz="Europe/Stockholm"),
            scheduler_async.At("2026-06-15T09:00:00Z"),
        ]
        return [schedule.next_after(now) for schedule in schedules]

    with time_machine.travel(datetime(1999, 12, 31, tzinfo=UTC)):
        then = answers()

    assert then == answers()


def test_importing_the_package_is_light() -> None:
    """No web framework, no database driver, no command line: only what schedules need."""
    heavy = [
        "asyncpg",
        "fastapi",
        "aiohttp",
        "rich",
        "typer",
        "cyclopts",
        "pydantic",
        "opentelemetry",
        "starlette",
        "jinja2",
        "pytest",
    ]
    code = f"import sys, scheduler_async; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], ["asyncio", "sqlite3", "msgspec", "rich", "logging", "scheduler_async.scheduler"]),
        (["list", "--help"], ["asyncio", "sqlite3", "msgspec", "rich", "logging", "scheduler_async.scheduler"]),
        (["next", "0 9 * * *"], ["sqlite3", "aiosqlite", "scheduler_async.scheduler"]),
        (
            ["list"],
            [
                "croniter",
                "anyio",
                "asyncpg",
                "holidays",
                "scheduler_async.stores.postgres",
                "scheduler_async.stores.copying",
            ],
        ),
    ],
    ids=" ".join,
)
def test_a_command_loads_only_what_it_needs(arguments: list[str], unneeded: list[str], tmp_path: Path) -> None:
    """A person waits for each module."""
    program = [sys.executable, "-X", "importtime", "-m", "scheduler_async"]
    if arguments == ["list"]:
        subprocess.run([*program, "add", "one", "true", "--every", "5m"], check=True, cwd=tmp_path, capture_output=True)

    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command = [*program, *arguments]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=unmeasured)

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "scheduler_async.cli.app" in loaded
    assert loaded.isdisjoint(unneeded), loaded.intersection(unneeded)
