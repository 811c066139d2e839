"""What users import, and what they find when they look at it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_type_hints

import pytest

import scheduler_async
from scheduler_async import Every, JobFilters, JobOptions, Scheduler

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


# ---------------------------------------------------------------- keyword arguments

# The ignored errors are part of the test: mypy complains about a comment that ignores nothing.
TYPOS: list[Callable[[Scheduler], Awaitable[object]]] = [
    lambda scheduler: scheduler.add_job(Every("5m"), handler="work", tiemout="5m"),  # type: ignore[call-arg]
    lambda scheduler: scheduler.update_job("a", tiemout="5m"),  # type: ignore[call-arg]
    lambda scheduler: scheduler.list_jobs(stauts="idle"),  # type: ignore[call-arg]
    lambda scheduler: scheduler.namespace("n").schedule(
        Every("5m"),
        handler="work",
        tiemout="5m",  # type: ignore[call-arg]
    ),
    lambda scheduler: scheduler.namespace("n").list(stauts="idle"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("call", TYPOS, ids=["add_job", "update_job", "list_jobs", "Namespace.schedule", "list"])
async def test_a_misspelt_argument_is_refused_by_type_checkers_and_at_run_time(
    call: Callable[[Scheduler], Awaitable[object]],
) -> None:
    scheduler = Scheduler(":memory:")
    await scheduler.add_job(Every("5m"), handler="work", id="a")

    with pytest.raises(TypeError, match=r"tiemout|stauts"):
        await call(scheduler)

    await scheduler.stop()


def test_a_misspelt_argument_of_a_declared_job_is_refused() -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match="tiemout"):
        Scheduler(":memory:").job(Every("5m"), tiemout="5m")(work)  # type: ignore[call-arg]


def test_an_argument_of_the_wrong_type_is_found_by_type_checkers() -> None:
    async def work() -> None: ...

    with pytest.raises(scheduler_async.InvalidJobError):
        Scheduler(":memory:").job(Every("5m"), enabled="yes")(work)  # type: ignore[arg-type]


def test_the_options_of_a_job_are_the_same_wherever_they_are_given() -> None:
    """They are spelled out in `add_job`, where people look for them, and declared once for all others."""
    add_job, list_jobs = get_type_hints(Scheduler.add_job), get_type_hints(Scheduler.list_jobs)
    of_its_own = {"schedule", "handler", "id", "namespace", "on_conflict", "return"}

    assert get_type_hints(JobOptions) == {name: add_job[name] for name in add_job.keys() - of_its_own}
    assert get_type_hints(JobFilters) == {name: list_jobs[name] for name in list_jobs.keys() - {"namespace", "return"}}
