"""What the README and the examples show is what happens."""

from __future__ import annotations

import ast
import doctest
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fastapi import FastAPI, Response
from litestar import Litestar
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from scheduler_async import PayloadError, Scheduler
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
# Services go on until they are asked to end: `test_servers` asks them.
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - set((ROOT / "examples").glob("*_service.py")))


def test_the_code_in_the_readme_does_what_it_says() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)

    assert results.attempted > 10
    assert results.failed == 0


def programs_of_the_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in text.split("```python\n")[1:]]


def text_with(words: str) -> str:
    """The one program of the README with these *words*."""
    (program,) = (program for program in programs_of_the_readme() if words in program)
    return program


def program_with(words: str, **given: Any) -> dict[str, Any]:
    """What the one program of the README with these *words* defines, where it finds what is *given*."""
    found: dict[str, Any] = {"__name__": "readme", **given}
    exec(compile(text_with(words), "README.md", "exec", dont_inherit=True), found)
    return found


def test_the_first_program_of_the_readme_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", programs_of_the_readme()[0]],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )

    assert done.stderr == ""
    assert done.stdout.startswith(
        'Job "daily" is not due: it runs at 09:00 on Monday to Friday (Europe/Stockholm), next'
    )


def session_of_the_readme() -> list[tuple[str, list[str]]]:
    """The commands of the terminal session, each with the lines it printed; later parts go on with the same store."""
    parts = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    commands = [part.splitlines() for part in "".join(parts).split("$ ")[1:]]
    return [(first, lines) for first, *lines in commands]


# What depends on when it is read, and on how fast the machine is.
PASSING = {
    r"(in )?(\d+ (day|hour|minute|second)s? ?)+(?=\.)": "THEN",
    r"in \d+[dhms]( \d+[dhms])?|\d+s ago|now(?=,)": "THEN",
    r"((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(\d+ \w{3} |\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)? (CEST|CET|UTC)": "TIME",
    r"\d{4}-\d\d-\d\d": "DATE",
    r"\d+ms|\d+\.\ds": "TOOK",
    r" +": " ",
}


def lasting(lines: list[str]) -> list[str]:
    """What is left of *lines* at any time; in which order things come depends on the time, too."""
    for pattern, word in PASSING.items():
        lines = [re.sub(pattern, word, line).rstrip() for line in lines]
    return sorted(lines)


@pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups")
def test_the_session_of_the_readme_is_real(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "scheduler-async"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m scheduler_async "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TZ": "Europe/Stockholm"}
    session = session_of_the_readme()

    for command, lines in session:
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} 2>&1"],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        assert lasting(done.stdout.splitlines()) == lasting(lines), command
    assert len(session) > 8


def test_the_recipe_for_testing_jobs_needs_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_recipe.py").write_text(text_with("VirtualClock"), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "test_recipe.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


async def test_the_service_of_the_readme_runs_and_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where its store is made
    found = program_with("@app.get")
    response = Response()

    async with found["app"].router.lifespan_context(found["app"]):
        answer = await found["health"](response)
    stopped = await found["health"](response)

    assert (answer["status"], stopped["status"], response.status_code) == ("ok", "stopped", 503)


async def test_the_lifespan_of_the_readme_is_composed() -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def database(_app: object) -> AsyncIterator[None]:
        opened.append(scheduler.status)
        yield
        opened.append(scheduler.status)

    scheduler = Scheduler(":memory:")
    found = program_with(
        "async with database",
        asynccontextmanager=asynccontextmanager,
        AsyncIterator=AsyncIterator,
        FastAPI=FastAPI,
        database=database,
        scheduler=scheduler,
    )
    app = FastAPI(lifespan=found["lifespan"])

    async with app.router.lifespan_context(app):
        opened.append(scheduler.status)

    assert opened == ["stopped", "running", "stopped"]


def test_the_lines_for_other_frameworks_are_lines_of_python() -> None:
    """That they do what they should is for `test_services`."""
    scheduler, app = Scheduler(":memory:"), web.Application()

    program_with("cleanup_ctx", scheduler=scheduler, app=app, Litestar=Litestar)

    assert list(app.cleanup_ctx)[-1] == scheduler.cleanup_ctx


async def test_the_typed_payload_of_the_readme_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where its store is made
    found = program_with("class Report")
    async with found["scheduler"] as scheduler:
        await found["add_report"]()
        (job,) = await scheduler.list_jobs()
        await scheduler.wait_for_run(await scheduler.trigger_job(job.id))
        with pytest.raises(PayloadError, match=r'payload\.copies must be a whole number, not "three"'):
            await scheduler.update_job(job.id, payload={"to": "ops", "copies": "three"})

    assert capsys.readouterr().out == "1 for ops, attempt 1\n"


# A scheduler with a job that succeeds, for what the README sets up before.
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


def logged_after(program: str) -> list[str]:
    """The lines that a program of the README logs, if one job runs after it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + ONE_RUN],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr.splitlines()


def test_with_structlog_the_ids_are_keys() -> None:
    program = text_with("structlog")

    started, ran, stopped = (json.loads(line) for line in logged_after(program))

    datetime.fromisoformat(ran["timestamp"])
    assert ran == {
        "event": "Run 1 of default/daily: success in 2000 ms",
        "level": "info",
        "job": "default/daily",
        "run": 1,
        "attempt": 1,
        "outcome": "success",
        "duration_ms": 2000.0,
        "timestamp": ran["timestamp"],
    }
    assert list(started) == list(stopped) == ["event", "level", "timestamp"]
    assert sum(line.startswith("logging.") for line in program.splitlines()) == 2, "two lines, as it says"
    for key in ran:
        assert f'"{key}": ' in program


def test_with_a_format_string_the_ids_are_shown() -> None:
    started, ran, _ = logged_after(text_with("%(job)s"))

    assert started.endswith("job=- run=-")
    assert ran.endswith("INFO Run 1 of default/daily: success in 2000 ms job=default/daily run=1")


def test_the_metrics_of_the_readme_are_those_there_are() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| metric |")[2].partition("\n\n")[0]
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
]


def comparison() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
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
    """Whoever is compared has a version, and something to look at for every row."""
    parts = [" ".join(part.split()) for part in comparison().split("\n* **")[1:]]
    others = comparison().splitlines()[5].count("|") - 3

    assert len(parts) == others
    for part in parts:
        found = re.findall(r"[:;] ((?:\d+(?:–\d+)?,? )+)", part)
        numbers = [number.partition("–") for numbers in found for number in numbers.replace(",", "").split()]
        rows = [row for first, _, last in numbers for row in range(int(first), int(last or first) + 1)]
        assert re.match(r"[\w ]+ \d+\.\d+\.\d+", part)
        assert sorted(rows) == list(range(1, len(SHOWN_BY) + 1)), part


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_examples_run(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout


def test_the_readme_and_the_checks_have_the_same_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    command = "python3 -m venv .venv && .venv/bin/pip install nox && .venv/bin/nox"

    assert command in readme
    assert command in ci.replace(" --quiet", "")
