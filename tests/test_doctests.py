"""The examples in docstrings are programs: they run, and print what they say."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest

import scheduler_async
from scheduler_async import At, Cron, Delay, Every, Manual, Result, Retry, Scheduler, parse_schedule
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

PACKAGE = Path(scheduler_async.__file__).parent
MODULES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    results = doctest.testmod(import_module(name), raise_on_error=False)

    assert results.failed == 0


@pytest.mark.parametrize(
    "thing",
    [Scheduler, Scheduler.add_job, Scheduler.job, At, Cron, Delay, Every, Manual, Retry, parse_schedule, VirtualClock],
    ids=lambda thing: thing.__qualname__,
)
def test_help_shows_an_example(thing: object) -> None:
    """Most people read one line of an explanation, and then copy the example."""
    examples = doctest.DocTestParser().get_examples(thing.__doc__ or "")

    assert examples


@pytest.mark.parametrize(
    "thing",
    [
        *(Scheduler, Scheduler.add_job, At, Cron, Delay, Every, Result, VirtualClock, instrument),
        *(Retry.backoff, Retry.in_window, Retry.budget, Retry.none),
    ],
    ids=lambda thing: thing.__qualname__,
)
def test_help_names_every_argument_with_its_default(thing: Callable[..., object]) -> None:
    described = {part for line in (inspect.getdoc(thing) or "").splitlines() for part in _split(line)}

    arguments = inspect.signature(thing).parameters.values()

    assert {_written(argument) for argument in arguments if argument.name != "self"} - described <= {"scheduler"}


def _split(line: str) -> list[str]:
    """The arguments that a heading of the description names: most name one, some "start=None, end=None"."""
    return line.split(", ") if line.count("=") > 1 and "(" not in line else [line]


def _written(argument: inspect.Parameter) -> str:
    default = argument.default
    if default is argument.empty:
        return argument.name
    if isinstance(default, Enum):
        default = default.value
    return f"{argument.name}={default!r}".replace("'", '"')
