"""What users import, and what they find when they look at it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import scheduler_async

# Names that the contract promises: they may be joined by others, and never go away.
PROMISED = {
    *("At", "Cron", "Delay", "Every", "Manual", "Retry", "parse_schedule"),
    *("Explanation", "Job", "JobSpec", "Outcome", "PassSummary", "Result", "Run", "Upcoming"),
    *("CronParseError", "IntervalParseError", "JobAlreadyRunningError", "JobExistsError", "JobNotFoundError"),
    *("SchedulerError", "SchedulerShutdownError", "StoreError"),
}


def test_the_promised_names_are_there_and_sorted() -> None:
    assert set(scheduler_async.__all__) >= PROMISED
    assert scheduler_async.__all__ == sorted(scheduler_async.__all__)
    assert all(hasattr(scheduler_async, name) for name in scheduler_async.__all__)


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
