"""The README, the guides and the benchmarks page show what really happens: their code runs here.

In a document,

* a `python` block is a whole program, and a `text` block after it is what the program prints;
* a `python` block with tests is run by pytest;
* `console` blocks are one terminal session, from the top of the document to its end;
* `pycon` blocks are doctests.

UPDATE_DOCUMENTS=1 writes the real output into the documents instead of comparing it.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import scheduler_async
from scheduler_async import EventKind, Outcome, RunRow, Scheduler, SkipReason
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BENCHMARKS = ROOT / "benchmarks" / "README.md"
GUIDES = sorted((ROOT / "examples").glob("*.md"))
DOCUMENTS = [README, BENCHMARKS, *GUIDES]
UPDATE = "UPDATE_DOCUMENTS" in os.environ


class Block(NamedTuple):
    """A piece of code in a document, and the output shown below it."""

    document: Path
    line: int
    language: str
    text: str
    output: str | None = None

    @property
    def name(self) -> str:
        """Where to find it."""
        return f"{self.document.relative_to(ROOT).as_posix()}:{self.line}"


def blocks_of(document: Path) -> Iterator[Block]:
    """The blocks of a document, in order; a `text` block is the output of the block before it."""
    text = document.read_text(encoding="utf-8")
    block: Block | None = None
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if found[1] == "text":
            assert block is not None, f"{document} shows an output without a program"
            yield block._replace(output=found[2])
            block = None
            continue
        if block is not None:
            yield block
        block = Block(document, text.count("\n", 0, found.start()) + 1, found[1], found[2])
    if block is not None:
        yield block


def blocks(language: str) -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks_of(document) if block.language == language]


PROGRAMS = blocks("python")


def block_with(document: Path, words: str) -> Block:
    """The one program of a document with these *words*."""
    (found,) = (block for block in PROGRAMS if block.document == document and words in block.text)
    return found


def names_in(block: Block, **given: Any) -> dict[str, Any]:
    """What a program defines, where it finds what is *given*."""
    found: dict[str, Any] = {"__name__": "document", **given}
    exec(compile(block.text, block.name, "exec", dont_inherit=True), found)
    return found


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **environment},
    )


# What depends on when it is read, and on how fast the machine is.
PASSING = {
    r"(in )?(\d+ (day|hour|minute|second)s? ?)+(?=[.,])|in less than a second": "THEN",
    r"in \d+[dhms]( \d+[dhms])?|\d+s ago|now(?=,)": "THEN",
    r"((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(\d+ \w{3} |\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)? (CEST|CET|UTC)": "TIME",
    r"\d\d:\d\d:\d\d": "TIME",
    r"\d{4}-\d\d-\d\d": "DATE",
    r"\d+(\.\d)? ?ms|\d+\.\ds": "TOOK",
    r"[ ─]+": " ",
}


def lasting(text: str, *, in_order: bool = True) -> list[str]:
    """What is left of *text* at any time."""
    lines = text.splitlines()
    for pattern, word in PASSING.items():
        lines = [re.sub(pattern, word, line).rstrip() for line in lines]
    return lines if in_order else sorted(lines)


def check_output(document: Path, shown: str, printed: str, *, in_order: bool = True) -> None:
    """Compare what a document shows with what was printed; or, if asked to, show that from now on."""
    if lasting(shown, in_order=in_order) == lasting(printed, in_order=in_order):
        return
    if UPDATE:
        text = document.read_text(encoding="utf-8")
        before, found, after = _parted(text, shown)
        assert found, f"{document.name} does not show {shown}"
        trimmed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        document.write_text(before + trimmed + after, encoding="utf-8")
    else:
        assert printed == shown


def _parted(text: str, shown: str) -> tuple[str, str, str]:
    """*text* before, at and after the lines *shown*, which end with their block or before the next command."""
    found = re.search(re.escape(shown) + r"(?=\$ |```)", text)
    return (text, "", "") if found is None else (text[: found.start()], shown, text[found.end() :])


# ---------------------------------------------------------------- all code runs


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_a_program_runs_and_prints_what_the_document_shows(block: Block, tmp_path: Path) -> None:
    if "apscheduler" in block.text:
        compile(block.text, block.name, "exec")
        if find_spec("apscheduler") is None:
            return
    if "def test_" in block.text:
        (tmp_path / "test_block.py").write_text(block.text, encoding="utf-8")
        done = run("-m", "pytest", "-q", "test_block.py", cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        assert f"{block.text.count('def test_')} passed" in done.stdout, done.stdout
        return

    done = ran(block, tmp_path)

    assert done.stderr == ""
    assert done.returncode == 0
    if block.output is not None:
        check_output(block.document, block.output, done.stdout)


def ran(block: Block, directory: Path) -> subprocess.CompletedProcess[str]:
    """How a program ended. Some count real seconds, which a busy machine may keep from them: they get three chances."""
    for chance in ("first", "second", "third"):
        (directory / chance).mkdir()
        done = run("-c", block.text, cwd=directory / chance)
        if block.output is None or lasting(done.stdout) == lasting(block.output):
            break
    return done


@pytest.mark.parametrize(
    "document", sorted({block.document for block in blocks("pycon")}), ids=lambda document: document.name
)
def test_the_examples_at_the_prompt_answer_as_shown(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(block.text for block in blocks_of(document) if block.language == "pycon")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)

    runner.run(doctest.DocTestParser().get_doctest(text, {}, document.name, str(document), 0))

    assert runner.tries > 0
    assert runner.failures == 0


def session_of(document: Path) -> list[tuple[str, str]]:
    """The commands of the terminal session in a document, each with what it printed."""
    parts = [block.text for block in blocks_of(document) if block.language == "console"]
    commands = [part.partition("\n") for part in re.split(r"^\$ ", "".join(parts), flags=re.MULTILINE)[1:]]
    return [(command, output) for command, _, output in commands]


@pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups")
@pytest.mark.parametrize(
    "document", sorted({block.document for block in blocks("console")}), ids=lambda document: document.name
)
def test_a_terminal_session_is_real(document: Path, tmp_path: Path) -> None:
    """The order of lines depends on the time of day."""
    program = tmp_path / "bin" / "scheduler-async"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m scheduler_async "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TZ": "Europe/Stockholm", "LOGNAME": "anna"}

    for command, output in session_of(document):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} 2>&1"],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        check_output(document, f"$ {command}\n{output}", f"$ {command}\n{done.stdout}", in_order=False)


# ---------------------------------------------------------------- what the documents say


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_readme_and_the_checks_have_the_same_command() -> None:
    readme = README.read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    command = "python3 -m venv .venv && .venv/bin/pip install nox uv && .venv/bin/nox"

    assert command in readme
    assert command in ci.replace(" --quiet", "")


def anchors_of(document: Path) -> set[str]:
    """What links may point at within a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text(encoding="utf-8"))

    for place, anchor in links:
        target = document.parent / place if place else document
        assert target.exists(), place
        assert not anchor or anchor in anchors_of(target), f"{place}#{anchor}"


def test_the_index_lists_every_guide_and_every_recipe() -> None:
    index = ROOT / "examples" / "README.md"
    linked = set(re.findall(r"\]\(([\w.-]+)\)", index.read_text(encoding="utf-8")))

    assert linked >= {path.name for path in index.parent.iterdir() if path.is_file() and path != index}


def options_in(heading: str) -> dict[str, str]:
    """The defaults that the guide to all options gives below a *heading*, by option."""
    text = (ROOT / "examples" / "options.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "call"),
    [("Scheduler", Scheduler.__init__), ("add_job", Scheduler.add_job), ("namespace", Scheduler.namespace)],
    ids=["Scheduler", "add_job", "namespace"],
)
def test_the_guide_has_every_option_with_its_default(heading: str, call: Any) -> None:
    named = {
        name: "required" if option.default is option.empty else str(option.default).strip("'")
        for name, option in inspect.signature(call).parameters.items()
        if name != "self"
    }

    shown = {name: default.strip('"') for name, default in options_in(heading).items()}
    if heading == "Scheduler":
        assert shown.pop("retry") == "Retry.backoff()"  # which None stands for
        del named["retry"]
    assert shown == named


@pytest.mark.parametrize(
    ("guide", "names"),
    [
        ("concepts.md", list(SkipReason)),
        ("concepts.md", list(Outcome)),
        ("jobs.md", list(EventKind)),
        ("jobs.md", list(RunRow.__annotations__)),
        ("jobs.md", [name for name in scheduler_async.__all__ if name.endswith("Error")]),
    ],
    ids=["skip reasons", "outcomes", "events", "run rows", "errors"],
)
def test_the_guides_name_all_of_them(guide: str, names: list[str]) -> None:
    text = (ROOT / "examples" / guide).read_text(encoding="utf-8")
    text += (ROOT / "examples" / "schedules.md").read_text(encoding="utf-8")  # which has the errors of schedules

    assert [name for name in names if f"`{name}`" not in text] == []


# ---------------------------------------------------------------- services


async def test_the_service_of_the_guide_runs_and_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where its store is made
    found = names_in(block_with(ROOT / "examples" / "services.md", '@app.get("/health")'))
    app = found["app"]

    async with app.router.lifespan_context(app):
        serving = await found["health"]()
    stopped = await found["health"]()

    assert (serving.status_code, stopped.status_code) == (200, 503)


async def test_the_lifespan_of_the_guide_opens_the_database_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    order: list[str] = []

    @asynccontextmanager
    async def database(_app: object) -> AsyncIterator[None]:
        order.append(found["scheduler"].status)
        yield
        order.append(found["scheduler"].status)

    found = names_in(block_with(ROOT / "examples" / "services.md", "async with database"))
    found["database"] = database
    app = FastAPI(lifespan=found["lifespan"])

    async with app.router.lifespan_context(app):
        order.append(found["scheduler"].status)

    assert order == ["stopped", "running", "stopped"]


# ---------------------------------------------------------------- logs and metrics

OPERATIONS = ROOT / "examples" / "operations.md"

# A scheduler with a job that succeeds, for what the guide sets up before.
ONE_RUN = """
import asyncio

from scheduler_async import At, Scheduler
from scheduler_async.testing import VirtualClock


async def main():
    clock = VirtualClock("2026-01-05T12:00:00Z")
    scheduler = Scheduler(":memory:", clock=clock)

    @scheduler.handler("report")
    async def report():
        await clock.sleep("2s")

    async with scheduler:
        await scheduler.add_job(At(clock.now()), handler="report", id="daily")
        await clock.advance("1m")


asyncio.run(main())
"""


def logged_after(block: Block, cwd: Path) -> list[str]:
    """The lines that are logged if one job runs after a program of the guide."""
    done = run("-c", block.text + ONE_RUN, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_with_structlog_the_ids_are_keys(tmp_path: Path) -> None:
    block = block_with(OPERATIONS, "structlog")

    started, ran, stopped = (json.loads(line) for line in logged_after(block, tmp_path))

    datetime.fromisoformat(ran["timestamp"])
    assert (
        ran.items()
        >= {
            "level": "info",
            "job": "default/daily",
            "run": 1,
            "attempt": 1,
            "outcome": "success",
            "duration_ms": 2000.0,
        }.items()
    )
    assert list(started) == list(stopped) == ["event", "level", "timestamp"]
    for key in ran:
        assert f'"{key}": ' in block.text


def test_with_a_format_string_the_ids_are_shown(tmp_path: Path) -> None:
    started, ran, _ = logged_after(block_with(OPERATIONS, "%(job)s"), tmp_path)

    assert started.endswith("job=- run=-")
    assert ran.endswith("job=default/daily run=1")


def test_the_metrics_of_the_guide_are_those_there_are() -> None:
    table = OPERATIONS.read_text(encoding="utf-8").partition("| metric |")[2].partition("\n\n")[0]
    named = dict(re.findall(r"\| `(scheduler_async\.[\w.]+)` \| `([^`]+)`", table))
    reader = InMemoryMetricReader()
    scheduler = Scheduler(":memory:", clock=VirtualClock())
    instrument(scheduler, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    telemetry = scheduler._engine.events.observers[0]
    made = [value for value in vars(telemetry).values() if hasattr(value, "unit")]
    data = reader.get_metrics_data()
    assert data is not None
    observed = data.resource_metrics[0].scope_metrics[0].metrics

    assert {instrument.name: instrument.unit for instrument in [*made, *observed]} == named


# ---------------------------------------------------------------- the comparison

# What shows that the rows of the comparison are true of us, in their order.
SHOWN_BY = [
    "test_scheduler.py::test_handlers_of_every_kind_are_called",
    "engine/test_rulings.py::test_a_missed_run_is_made_up_for_after_a_restart",
    "schedules/test_cron_line.py::test_an_expression_means_these_instants",
    "schedules/test_daylight_saving.py::test_a_line_runs_at_exactly_these_instants",
    "schedules/test_kinds.py::test_every_fires_on_its_grid",
    "test_scheduler.py::test_a_delay_counts_from_the_end_of_the_run",
    "test_scheduler.py::test_schedules_run_when_they_say",
    "engine/test_rulings.py::test_there_is_never_a_backlog",
    "engine/test_rulings.py::test_a_backoff_only_ever_postpones",
    "engine/test_rulings.py::test_failures_back_off_and_disable_the_job_after_five",
    "engine/test_rulings.py::test_a_timeout_cancels_the_run_and_is_a_failure",
    "engine/test_rulings.py::test_the_order_is_priority_then_longest_since_its_last_run_then_id",
    "engine/test_rulings.py::test_a_job_runs_once_at_a_time_across_schedulers_that_share_a_store",
    "engine/test_rulings.py::test_groups_have_limits",
    "test_scheduler.py::test_a_job_that_cannot_run_is_explained",
    "test_scheduler.py::test_a_preview_shows_what_will_run_in_order",
    "test_scheduler.py::test_the_statistics_of_a_job",
    "engine/test_processes.py::test_a_running_scheduler_takes_over_from_a_process_that_is_killed",
    "engine/test_processes.py::test_processes_that_share_a_file_run_each_occurrence_once",
    "test_testing.py::test_a_month_of_cron_runs_at_the_right_wall_clock_times",
    "cli/test_commands.py::test_a_job_from_beginning_to_end",
    "jobs/test_payloads.py::test_a_handler_gets_the_dataclass_that_it_is_annotated_with",
    "test_telemetry.py::test_a_run_is_a_span_with_all_that_is_known_of_it",
    "schedules/test_on_calendar.py::test_the_last_business_day_of_the_month",
    "engine/test_slow_schedules.py::test_each_occurrence_is_accounted_for",
    "web/test_pages.py::test_a_job_tells_why_it_did_not_run",
]


def comparison() -> str:
    text = BENCHMARKS.read_text(encoding="utf-8")
    return text.partition("## Compared with others")[2].partition("\n## ")[0]


def test_each_row_of_the_comparison_is_shown_by_a_test() -> None:
    head, _, *rows = [line.split("|")[1:-1] for line in comparison().splitlines() if line.startswith("|")]
    tests = {
        f"{file.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
        for file in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert [int(row[0].split()[0]) for row in rows] == list(range(1, len(SHOWN_BY) + 1))
    assert set(SHOWN_BY) <= tests
    assert {len(row) for row in rows} == {len(head)}
    assert all(cell.strip() for row in rows for cell in row)


def test_each_cell_about_others_has_its_evidence() -> None:
    """Every scheduler in the table has a version, and a place to look for every row."""
    parts = [" ".join(part.split()) for part in comparison().split("\n* **")[1:]]
    (head,) = (line for line in comparison().splitlines() if line.startswith("| |"))

    assert len(parts) == head.count("|") - 3
    for part in parts:
        found = re.findall(r"[:;] ((?:\d+(?:–\d+)?,? )+)", part)
        numbers = [number.partition("–") for numbers in found for number in numbers.replace(",", "").split()]
        rows = [row for first, _, last in numbers for row in range(int(first), int(last or first) + 1)]
        assert re.match(r"[\w ]+ \d+\.\d+\.\d+", part)
        assert sorted(rows) == list(range(1, len(SHOWN_BY) + 1)), part


def tables_of(text: str) -> Iterator[dict[str, dict[str, str]]]:
    """The tables in *text*: cells by the label of their row, without its number, and the name of their column."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        yield {re.sub(r"^\d+ ", "", row[0]): dict(zip(head[1:], row[1:], strict=True)) for row in rows}


@pytest.mark.parametrize("heading", ["## How fast", "## Compared with"])
def test_the_short_tables_of_the_readme_agree_with_the_long_ones(heading: str) -> None:
    known: dict[str, dict[str, str]] = {}
    for table in tables_of(BENCHMARKS.read_text(encoding="utf-8")):
        known.update(table)
    section = README.read_text(encoding="utf-8").partition(f"\n{heading}")[2].partition("\n## ")[0]

    (short,) = tables_of(section)

    assert len(short) == 5
    for label, cells in short.items():
        assert cells.items() <= known[label].items()
