"""Jobs as rows, and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler_async import At, Cron, Every, Job, JobSpec, Manual, Retry, Schedule
from scheduler_async.instants import to_micros
from scheduler_async.lifecycle import add, disabled
from scheduler_async.models import JobState
from scheduler_async.rows import KeptJob, job_of, read_job, schedule_of, spec_values, state_of, state_values
from tests.cast import NOON

NOW = to_micros(NOON)

JOBS = [
    pytest.param(Every("5m"), {}, id="as little as possible"),
    pytest.param(Cron("0 9 * * *", tz="Europe/Stockholm"), {"retry": Retry.budget(3, "1d")}, id="a policy of its own"),
    pytest.param(At("2026-06-15T09:00:00Z"), {"payload": {"to": ["ops", "ö"]}, "metadata": {"a": 1}}, id="JSON"),
    pytest.param(
        Manual(),
        {"user_id": "u", "name": "N", "group": "g", "priority": "high", "misfire": "skip", "on_interrupt": "skip"},
        id="all there is",
    ),
    pytest.param(Every("5m"), {"timeout": "90s"}, id="a timeout"),
]


def a_job(schedule: Schedule, **fields: Any) -> Job:
    job = add(JobSpec(schedule, handler="work", id="a", namespace="n", **fields), id="a", handler="work", now=NOW)
    job.take_number(7)
    return job


def rows_of(job: Job) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (job.uid, *spec_values(job)), state_values(job.state)


@pytest.mark.parametrize(("schedule", "fields"), JOBS)
def test_a_job_comes_back_from_its_rows(schedule: Schedule, fields: dict[str, Any]) -> None:
    job = a_job(schedule, **fields)
    description, state = rows_of(job)

    assert job_of(description, state_of(state)) == job
    assert read_job(description).spec == job.spec
    assert schedule_of(description) == (schedule, NOW)


def test_a_state_comes_back_from_its_columns_and_those_are_bare() -> None:
    """The garbage collector lets tuples of numbers and texts be, and drivers take long over enums."""
    state = disabled(JobState(next_run_at=5, last_error="why"), "enough", 9)

    columns = state_values(state)

    assert state_of(columns) == state
    assert {type(value) for value in columns} == {int, str, type(None)}
    assert type(columns) is tuple


@pytest.mark.parametrize(("schedule", "fields"), JOBS)
def test_a_kept_job_says_the_same_whether_it_is_rows_or_not(schedule: Schedule, fields: dict[str, Any]) -> None:
    job = a_job(schedule, **fields)
    description, state = rows_of(job)
    as_rows, as_it_is = KeptJob(description, state, None), KeptJob(None, None, job)

    def told(kept: KeptJob) -> tuple[object, ...]:
        return kept.name, kept.key, kept.handler, kept.group, kept.timeout, kept.state

    assert told(as_rows) == told(as_it_is)
    assert as_rows._job is None, "nobody has asked for it"
    assert as_rows.job == as_it_is.job == job
    assert as_rows.job is as_rows.job
    assert (as_rows.description, as_it_is.description) == (description, None)


def test_what_a_kept_job_says_is_what_it_was_given() -> None:
    kept = KeptJob(None, None, a_job(Every("5m"), group="g", timeout="90s"))

    assert (kept.name, kept.key, kept.handler) == (("n", "a"), "n/a", "work")
    assert (kept.group, kept.timeout) == ("g", timedelta(seconds=90))


def test_a_description_that_makes_no_job_here_is_told() -> None:
    description, _ = rows_of(a_job(Every("5m"), payload="p"))
    broken = (*description[:7], "{", *description[8:])

    with pytest.raises(ValueError, match="Expecting property name"):
        read_job(broken)
