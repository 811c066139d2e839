"""What the README and the examples show is what happens."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_code_in_the_readme_does_what_it_says() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)

    assert results.attempted > 10
    assert results.failed == 0


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
