"""Which job goes first when not all can go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import Every, Job, Priority
from scheduler_async.rules.order import order
from scheduler_async.timekeeping.instants import Micros
from tests.rules.stories import NOON, a_job


def job_of(name: str, priority: Priority = Priority.STANDARD, last_run_at: Micros | None = None) -> Job:
    job = a_job(Every("1h"), priority=priority)
    return replace(job, id=name, state=replace(job.state, last_run_at=last_run_at))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(job_of("b", Priority.HIGH, NOON), job_of("a"), id="a high priority before a standard one"),
        pytest.param(
            job_of("b", last_run_at=NOON), job_of("a", Priority.LOW), id="a standard priority before a low one"
        ),
        pytest.param(job_of("b"), job_of("a", last_run_at=NOON), id="a job that never ran"),
        pytest.param(job_of("b"), job_of("a", last_run_at=0), id="a job that never ran, before one that ran in 1970"),
        pytest.param(job_of("b", last_run_at=NOON), job_of("a", last_run_at=NOON + 1), id="the longer wait"),
        pytest.param(job_of("a", last_run_at=NOON), job_of("b", last_run_at=NOON), id="otherwise by id"),
    ],
)
def test_priority_comes_first_then_the_longest_wait_then_the_id(first: Job, second: Job) -> None:
    assert sorted([second, first], key=order) == [first, second]


@given(st.permutations([job_of(name, priority) for priority in Priority for name in "ab"]))
def test_the_order_does_not_depend_on_who_came_first(jobs: list[Job]) -> None:
    found = [(job.priority, job.id) for job in sorted(jobs, key=order)]

    assert found == [(priority, name) for priority in (Priority.HIGH, Priority.STANDARD, Priority.LOW) for name in "ab"]
