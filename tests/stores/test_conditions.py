"""Filters of jobs and runs as conditions: which rows each field of a filter selects."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import fields, replace

from scheduler_async import Every, Job, JobSpec, Outcome, Priority, Status
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.job import JobState
from scheduler_async.rules.edits import add
from scheduler_async.stores.codec import description_values, state_values
from scheduler_async.stores.columns import DESCRIPTION_TYPES, STATE_TYPES
from scheduler_async.stores.conditions import Conditions, conditions_of_jobs, conditions_of_runs
from scheduler_async.stores.messages import JobFilter, RunFilter
from scheduler_async.timekeeping.instants import MINUTE, to_micros
from tests.cast import NOON

NOW = to_micros(NOON)
NUMBERED = "${}"

PLAIN = JobSpec(Every("1h"), handler="work")
OF_ANN = JobSpec(Every("1h"), handler="mail", user_id="ann", group="g", priority="high", namespace="ext")
DUE = JobState(next_run_at=NOW)
LATER = JobState(next_run_at=NOW + MINUTE)

JOBS: dict[str, tuple[JobSpec, JobState]] = {
    "idle": (PLAIN, DUE),
    "ann's": (OF_ANN, LATER),
    "queued": (PLAIN, replace(DUE, activity=Status.QUEUED)),
    "running": (PLAIN, JobState(activity=Status.RUNNING)),
    "running, paused": (PLAIN, JobState(activity=Status.RUNNING, phase=Phase.PAUSED)),
    "paused": (PLAIN, replace(DUE, phase=Phase.PAUSED)),
    "disabled": (PLAIN, JobState(phase=Phase.DISABLED)),
    "ended": (PLAIN, JobState(phase=Phase.DISABLED, disabled_reason="ended")),
    "removed": (PLAIN, DUE),
}
RUNS = [  # the number of the run, its job, its outcome and when it was claimed
    (1, "idle", "success", NOW),
    (2, "idle", "error", NOW + 1),
    (3, "ann's", None, NOW + 2),
    (4, "removed", "success", NOW + 3),
]


def job_of(name: str, number: int) -> Job:
    spec, state = JOBS[name]
    return replace(add(spec, id=name, handler=str(spec.handler), now=NOW), uid=number, state=state)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """The columns that conditions speak of, with the jobs and runs above."""
    db = sqlite3.connect(":memory:")
    db.execute(f"CREATE TABLE job ({', '.join(DESCRIPTION_TYPES)}, removed_at)")
    db.execute(f"CREATE TABLE state (uid, {', '.join(STATE_TYPES)})")
    db.execute("CREATE TABLE run (id, uid, outcome, claimed_at)")
    numbers = {name: number for number, name in enumerate(JOBS, 1)}
    for name, number in numbers.items():
        row = *description_values(job_of(name, number)), NOW if name == "removed" else None
        db.execute(f"INSERT INTO job VALUES ({', '.join('?' * len(row))})", row)
        row = number, *state_values(JOBS[name][1])
        db.execute(f"INSERT INTO state VALUES ({', '.join('?' * len(row))})", row)
    for number, name, outcome, claimed_at in RUNS:
        db.execute("INSERT INTO run VALUES (?, ?, ?, ?)", (number, numbers[name], outcome, claimed_at))
    yield db
    db.close()


def jobs_found(db: sqlite3.Connection, wanted: JobFilter) -> set[str]:
    where = conditions_of_jobs(wanted, "?")
    return {name for (name,) in db.execute(f"SELECT j.id FROM job j JOIN state s USING (uid) {where}", where.values)}


def runs_found(db: sqlite3.Connection, wanted: RunFilter, *, exists: bool = True) -> set[int]:
    where = conditions_of_runs(wanted, "?", exists=exists)
    return {run for (run,) in db.execute(f"SELECT r.id FROM run r JOIN job j USING (uid) {where}", where.values)}


# ---------------------------------------------------------------- jobs

WANTED_JOBS: dict[str, Any] = {
    "status": Status.IDLE,
    "namespace": "ext",
    "user_id": "ann",
    "handler": "mail",
    "group": "g",
    "priority": Priority.HIGH,
    "due_before": NOW + 1,
    "ended": True,
}
FOUND_JOBS = {
    "status": {"idle", "ann's"},
    "namespace": {"ann's"},
    "user_id": {"ann's"},
    "handler": {"ann's"},
    "group": {"ann's"},
    "priority": {"ann's"},
    "due_before": {"idle", "queued"},
    "ended": {"ended"},
}


def test_every_field_of_a_filter_of_jobs_is_tried_here() -> None:
    """The stores apply `metadata` and `limit` themselves: neither is a column."""
    assert {field.name for field in fields(JobFilter)} == {*WANTED_JOBS, "metadata", "limit"}


def test_an_empty_filter_selects_all_jobs_that_were_not_removed(db: sqlite3.Connection) -> None:
    assert jobs_found(db, JobFilter()) == {*JOBS} - {"removed"}


@pytest.mark.parametrize("field", WANTED_JOBS)
def test_each_field_of_a_filter_selects_its_jobs(db: sqlite3.Connection, field: str) -> None:
    assert jobs_found(db, JobFilter(**{field: WANTED_JOBS[field]})) == FOUND_JOBS[field]


@pytest.mark.parametrize("both", [*combinations(WANTED_JOBS, 2)], ids=" and ".join)
def test_a_job_must_fulfil_all_fields_of_a_filter(db: sqlite3.Connection, both: tuple[str, str]) -> None:
    found = jobs_found(db, JobFilter(**{field: WANTED_JOBS[field] for field in both}))

    assert found == FOUND_JOBS[both[0]] & FOUND_JOBS[both[1]]


def test_jobs_that_have_not_ended_are_all_others(db: sqlite3.Connection) -> None:
    assert jobs_found(db, JobFilter(ended=False)) == {*JOBS} - {"ended", "removed"}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (Status.IDLE, {"idle", "ann's"}),
        (Status.QUEUED, {"queued"}),
        (Status.RUNNING, {"running", "running, paused"}),
        (Status.PAUSED, {"paused"}),
        (Status.DISABLED, {"disabled", "ended"}),
    ],
)
def test_a_status_selects_the_jobs_that_show_it(db: sqlite3.Connection, status: Status, found: set[str]) -> None:
    """A run in progress shows, even if the job was paused meanwhile."""
    assert jobs_found(db, JobFilter(status=status)) == found
    assert {name for name in JOBS if name != "removed" and job_of(name, 1).status is status} == found


def test_a_job_that_is_due_at_the_very_moment_is_not_due_before_it(db: sqlite3.Connection) -> None:
    assert jobs_found(db, JobFilter(due_before=NOW)) == set()


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(RunFilter(), {1, 2, 3, 4}, id="all, also of removed jobs"),
        pytest.param(RunFilter(run=3), {3}, id="one run"),
        pytest.param(RunFilter(namespace="ext"), {3}, id="a namespace"),
        pytest.param(RunFilter(id="idle"), {1, 2}, id="an id in any namespace"),
        pytest.param(RunFilter(namespace="default", id="idle"), {1, 2}, id="a job"),
        pytest.param(RunFilter(namespace="ext", id="idle"), set(), id="a job of another namespace"),
        pytest.param(RunFilter(outcome=Outcome.SUCCESS), {1, 4}, id="an outcome"),
        pytest.param(RunFilter(since=NOW + 2), {3, 4}, id="since a moment, included"),
        pytest.param(RunFilter(id="idle", outcome=Outcome.ERROR, since=NOW), {2}, id="several fields"),
    ],
)
def test_each_field_of_a_filter_selects_its_runs(db: sqlite3.Connection, wanted: RunFilter, found: set[int]) -> None:
    assert runs_found(db, wanted) == found


@pytest.mark.parametrize(("exists", "found"), [(True, set()), (False, {4})], ids=["there is one now", "there is none"])
def test_a_removed_job_of_that_name_counts_if_there_is_none_now(
    db: sqlite3.Connection, exists: bool, found: set[int]
) -> None:
    assert runs_found(db, RunFilter(namespace="default", id="removed"), exists=exists) == found


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(conditions_of_jobs(JobFilter(**WANTED_JOBS), NUMBERED), id="jobs"),
        pytest.param(
            conditions_of_runs(
                RunFilter(run=1, namespace="n", id="a", outcome=Outcome.ERROR, since=NOW), NUMBERED, exists=True
            ),
            id="runs",
        ),
    ],
)
def test_numbered_parameters_count_up_with_their_values(where: Conditions) -> None:
    numbers = [int(number) for number in re.findall(r"\$(\d+)", str(where))]

    assert numbers == [*range(1, len(where.values) + 1)]
    assert where.next() == f"${len(where.values) + 1}"


def test_conditions_hold_plain_values() -> None:
    """Drivers do not know enums."""
    where = conditions_of_jobs(JobFilter(**WANTED_JOBS), "?")

    assert {type(value) for value in where.values} == {str, int}


def test_nothing_required_is_no_condition() -> None:
    where = Conditions("?")

    assert (str(where), where.values, where.next()) == ("", [], "?")
