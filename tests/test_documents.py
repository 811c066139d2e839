"""What the README and the examples show is what happens."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_code_in_the_readme_does_what_it_says() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)

    assert results.attempted > 10
    assert results.failed == 0


def programs_of_the_readme() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in text.split("```python\n")[1:]]


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


async def test_the_recipe_for_testing_jobs_works() -> None:
    found: dict[str, Any] = {}
    exec(compile(programs_of_the_readme()[1], "README.md", "exec"), found)

    await found["test_the_cleanup_runs_hourly"]()


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
