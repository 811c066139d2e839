"""What the README and the examples show is what happens."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fastapi import FastAPI, Response
from litestar import Litestar

from scheduler_async import PayloadError, Scheduler

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
    """The commands of the terminal session, each with the lines it printed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("```console\n")[2].partition("```")[0]
    commands = [part.splitlines() for part in text.split("$ ")[1:]]
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
        with pytest.raises(PayloadError, match=r'payload\.copies is a whole number, not "three"'):
            await scheduler.update_job(job.id, payload={"to": "ops", "copies": "three"})

    assert capsys.readouterr().out == "1 for ops, attempt 1\n"


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
