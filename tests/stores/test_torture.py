"""Processes, their server, and the way between them, one at a time taken away; processes that never rest; and kills
while others steer.

The long form is a benchmark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.deep, pytest.mark.timeout(170)]

ROOT = Path(__file__).parents[2]

# How soon all processes work again is a figure of the benchmark. On a busy machine it is missed, and nothing is wrong.
SPEED = "all goes on within"

# Nor does a short time always bring some of everything there, such as a process that dies before it records an ending.
VARIETY = "some of each"


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("postgres-kill", id="processes are killed"),
        pytest.param("postgres-partition", id="a process is cut off"),
        pytest.param("postgres-terminate", id="the server ends connections"),
        pytest.param("postgres-restart", id="the server is restarted"),
        pytest.param("restless-server", id="schedulers stop and start on a server"),
        pytest.param("restless-file", id="schedulers stop and start on a file"),
        pytest.param("steer-server", id="processes are killed and steered on a server"),
        pytest.param("steer-file", id="processes are killed and steered on a file"),
        pytest.param("chain-server", id="processes are killed between runs that follow each other on a server"),
        pytest.param("chain-file", id="processes are killed between runs that follow each other on a file"),
    ],
)
def test_nothing_is_lost_and_nothing_runs_twice_at_once_when(part: str, tmp_path: Path) -> None:
    """What is counted is counted from a log that the handlers write: the store is not its own witness."""
    told = tortured(part, tmp_path / "figures.json")

    counts = {words: holds for words, holds in told["goals"].items() if SPEED not in words and VARIETY not in words}
    assert counts
    assert [words for words, holds in counts.items() if not holds] == []


def tortured(part: str, out: Path) -> Any:
    """What the short form of a part of `benchmarks/torture.py` found."""
    script = str(ROOT / "benchmarks/torture.py")
    command = [sys.executable, script, "--parts", part, "--quick", "--json", str(out)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert out.exists(), done.stdout
    print(done.stdout)  # shown if something was missed
    return json.loads(out.read_text())
