"""What users import, and what they find when they look at it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import scheduler_async

# Names that the contract promises: they may be joined by others, and never go away.
PROMISED = {
    *("At", "Cron", "Delay", "Every", "Manual", "Retry", "parse_schedule"),
    *("Explanation", "Job", "JobSpec", "Outcome", "PassSummary", "Result", "Run", "Upcoming"),
    *("CronParseError", "IntervalParseError", "JobAlreadyRunningError", "JobExistsError", "JobNotFoundError"),
    *("SchedulerError", "SchedulerShutdownError", "StoreError", "StoreOutdatedError"),
}


def test_the_promised_names_are_there_and_sorted() -> None:
    assert set(scheduler_async.__all__) >= PROMISED
    assert scheduler_async.__all__ == sorted(scheduler_async.__all__)
    assert all(hasattr(scheduler_async, name) for name in scheduler_async.__all__)
    assert set(scheduler_async.__all__) <= set(dir(scheduler_async))


def test_a_type_checker_sees_the_same_names() -> None:
    """They are written down twice: for the interpreter, and for who reads."""
    tree = ast.parse(Path(scheduler_async.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: (node.module or "").removeprefix("scheduler_async.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == scheduler_async._HOMES
    assert sorted(seen) == scheduler_async.__all__


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'scheduler_async' has no attribute 'Schduler'"):
        scheduler_async.Schduler  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from scheduler_async import Schduler")


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    """What only wants to show its usage should not wait for asyncio and SQLite."""
    program = (
        "import sys, scheduler_async; print(*(name for name in sys.modules if name.startswith('scheduler_async')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["scheduler_async"]


@pytest.mark.parametrize("name", scheduler_async.__all__)
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    thing = getattr(scheduler_async, name)

    assert thing.__doc__
    assert not thing.__doc__.startswith(f"{name}("), "written by dataclass, not by a person"
    members = vars(thing).items() if inspect.isclass(thing) else []
    undocumented = [
        member
        for member, value in members
        if not member.startswith("_") and callable(value) and not inspect.getdoc(getattr(thing, member))
    ]
    assert undocumented == []


def test_the_package_is_typed() -> None:
    assert Path(scheduler_async.__file__).with_name("py.typed").exists()
