"""The family of errors: what they say, and that they travel between processes."""

from __future__ import annotations

import pickle
import re
from datetime import timedelta
from typing import Any

import pytest

import scheduler_async
from scheduler_async import (
    CronParseError,
    IntervalParseError,
    InvalidJobError,
    JobAlreadyRunningError,
    JobChangedError,
    JobDisabledError,
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    QuotaError,
    RunsNotSettledError,
    RunTimeoutError,
    SchedulerError,
    SchedulerShutdownError,
    SchedulerStoppingError,
    StoreError,
    StoreOutdatedError,
    UnknownZoneError,
    errors,
)
from scheduler_async.errors import quoted

EXAMPLES = [
    IntervalParseError("no", "5x"),
    CronParseError("no", "61 * * * *", "minute"),
    UnknownZoneError("Europe/Stokholm", "Europe/Stockholm"),
    UnknownZoneError(7, problem="It cannot be stored."),
    InvalidJobError("no", "payload"),
    JobEndedError("daily"),
    JobChangedError("daily", "default", 3),
    JobDisabledError("daily"),
    JobExistsError("daily"),
    JobNotFoundError("daily", "my-extension"),
    QuotaError("no", "acme", "max_jobs"),
    JobAlreadyRunningError("daily"),
    JobAlreadyRunningError("daily", "my-extension", 7),
    RunTimeoutError(7, 30.0),
    RunTimeoutError(7, 30.0, has_begun=False),
    SchedulerStoppingError(),
    SchedulerShutdownError(30.0, 2),
    RunsNotSettledError(10.0, ("default/daily",)),
    StoreError("no"),
    StoreOutdatedError("jobs.db", 9, 6),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_survives_pickling(error: SchedulerError) -> None:
    """An error that cannot travel between processes turns into one about pickling."""
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_public_error_is_a_scheduler_error() -> None:
    public = [getattr(scheduler_async, name) for name in scheduler_async.__all__ if name.endswith("Error")]

    assert all(issubclass(error, SchedulerError) for error in public)
    assert {error.__name__ for error in public} == {name for name in vars(errors) if name[0].isupper()}


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (IntervalParseError, ValueError),
        (CronParseError, ValueError),
        (JobExistsError, ValueError),
        (JobNotFoundError, LookupError),
        (JobAlreadyRunningError, RuntimeError),
        (SchedulerShutdownError, TimeoutError),
        (StoreError, OSError),
        (StoreOutdatedError, StoreError),
    ],
)
def test_an_error_is_also_the_builtin_that_callers_expect(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)


def test_the_messages_say_what_to_do_next() -> None:
    assert str(JobNotFoundError("daily", "my-extension")) == (
        'Job "daily" in namespace "my-extension" not found. list_jobs() shows the jobs that exist.'
    )
    assert 'on_conflict="replace"' in str(JobExistsError("daily"))
    assert 'Did you mean "Europe/Stockholm"?' in str(UnknownZoneError("Europe/Stokholm", "Europe/Stockholm"))
    assert "Did you mean" not in str(UnknownZoneError("x"))
    assert str(SchedulerShutdownError(0.5, 1)).startswith("1 run is still in progress after 0.5 s.")


@pytest.mark.parametrize(
    "error", [error for error in EXAMPLES if hasattr(error, "remedy")], ids=lambda error: type(error).__name__
)
def test_what_was_wrong_stands_apart_from_what_to_call(error: Any) -> None:
    """The command line has commands to name, and no calls."""
    assert str(error) == f"{error.sentence} {error.remedy}"
    assert not re.search(r"\w\(", error.sentence)


def test_what_is_quoted_stays_short_and_printable() -> None:
    assert quoted("a\n") == '"a\\n"'
    assert quoted("日次レポート \u202e \\") == '"日次レポート \\u202e \\\\"'
    assert quoted("x" * 61).endswith('…" (61 characters)')
    assert quoted("x" * 60) == '"' + "x" * 60 + '"'
    assert quoted(None) == "None"
    assert quoted([1]) == "a value of type list"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (-1.5, "-1.5"), (True, "True"), (timedelta(0), "0:00:00"), (10**5000, "a value of type int")],
    ids=["zero", "a fraction", "a flag", "a duration", "a number of many digits"],
)
def test_a_number_is_shown_as_it_is(value: object, words: str) -> None:
    """Its type would not say what is wrong: "from 1 up, not a value of type int"."""
    assert quoted(value) == words
