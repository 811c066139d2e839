"""Jobs as rows, and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from scheduler_async import At, Cron, Every, Job, JobSpec, Manual, Retry, Schedule
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import JobState
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.edits import add
from scheduler_async.rules.going_on import disabled
from scheduler_async.stores.codec import (
    DESCRIPTION,
    STATE,
    KeptJob,
    is_sound_state,
    job_of,
    problems_of,
    read_job,
    schedule_of,
    spec_values,
    state_of,
    state_problem,
    state_values,
    unreadable_job,
)
from scheduler_async.stores.run_codec import RUN, read_run
from scheduler_async.stores.short_ways import claim_in_time
from scheduler_async.stores.unreadable import MOST_COUNTED, all_problems
from scheduler_async.timekeeping.instants import FIRST, LAST, to_micros
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


# ---------------------------------------------------------------- quick checks and full ones

# Whatever a damaged column may hold: SQLite gives back numbers, texts, bytes and nothing; what is not UTF-8 is marked.
NUMBERS = st.integers(-(2**63), 2**63 - 1)
EDGES = st.sampled_from(
    [0, 1, -1, FIRST, FIRST - 1, LAST, LAST + 1, MOST_COUNTED, MOST_COUNTED + 1, True, 0.5, NOW + 0.5]
)
TEXTS = st.text(st.characters() | st.sampled_from("\0\x1b\udcff\ud800\u202e"), max_size=5)
WORDS = st.sampled_from(
    [
        *("", "null", "{}", "[]", "{", "1e999", '"\udcff"', '{"\udcff": 1}', '{"a": NaN}', "[" * 5000 + "]" * 5000),
        *(
            "high",
            "idle",
            "running",
            "paused",
            "active",
            "disabled",
            "skip",
            "rerun",
            "run_once",
            "schedule",
            "success",
        ),
        *('{"version": 1, "kind": "manual"}', '{"version": 1, "kind": "every", "every": -5}', '{"version": 1}'),
        *(Every("5m").json_text(), Cron("0 9 * * *", tz="UTC").json_text(), "9" * 5000),
    ]
)
VALUES = (
    st.none()
    | NUMBERS
    | EDGES
    | st.floats()
    | TEXTS
    | WORDS
    | st.binary(max_size=3)
    | WORDS.map(lambda text: text.encode("utf-8", "surrogateescape"))
)
JOB_TO_DAMAGE = st.sampled_from([a_job(*param.values[:1], **param.values[1]) for param in JOBS])  # type: ignore[arg-type]


@st.composite
def damaged(draw: st.DrawFn, rows: st.SearchStrategy[tuple[Any, ...]]) -> tuple[Any, ...]:
    """A row, and other values in some of its columns."""
    row = list(draw(rows))
    for place in draw(st.sets(st.integers(0, len(row) - 1), max_size=3)):
        row[place] = draw(VALUES)
    return tuple(row)


DESCRIPTIONS = damaged(JOB_TO_DAMAGE.map(lambda job: rows_of(job)[0]))
STATES = damaged(
    st.sampled_from(
        [
            state_values(JobState(next_run_at=NOW)),
            state_values(JobState(next_run_at=NOW, last_run_at=NOW - 5, last_success_at=NOW - 4)),
            state_values(disabled(JobState(last_error_at=NOW, last_error="ö", consecutive_errors=3), "enough", NOW)),
            state_values(JobState(activity=Status.RUNNING, phase=Phase.PAUSED, last_exit_code=1, last_message="ok")),
        ]
    )
)
RUNS = damaged(
    st.sampled_from(
        [
            (1, "a", "n", NOW, NOW, NOW + 5, 1, "schedule", "success", None, 0, None, "ok", 0, "node"),
            (1, "a", "n", NOW, None, None, 0, "manual", None, None, 0, None, None, None, None),
            (1, "a", "n", NOW, None, NOW, 0, "schedule", "skipped", "misfire", 7, "ö", None, None, None),
        ]
    )
)


def with_column(name: str, value: object) -> tuple[Any, ...]:
    """The description of a job, with another value in a column."""
    row, _ = rows_of(a_job(Every("5m")))
    return tuple(value if column == name else kept for column, kept in zip(DESCRIPTION, row, strict=True))


@settings(max_examples=1000)
@example(with_column("timeout", 0.5))
@example(with_column("anchor", float(NOW)))
@example(with_column("payload", '"\udcff"'))
@example(with_column("payload", b"{}"))
@example(with_column("schedule", Every("5m").json_text().encode()))
@example(with_column("revision", "one"))
@given(DESCRIPTIONS)
def test_a_description_is_read_if_and_only_if_nothing_is_wrong_with_any_column(row: tuple[Any, ...]) -> None:
    """The quick look must not let anything pass that the full one would find, nor the other way round."""
    problems = all_problems(DESCRIPTION, row)

    found = None
    try:
        read_job(row)
    except Unreadable as problem:
        found = problem

    assert found == (problems[0] if problems else None)


@settings(max_examples=1000)
@given(DESCRIPTIONS)
def test_what_can_be_read_of_a_description_is_kept_and_the_rest_is_named(row: tuple[Any, ...]) -> None:
    problems = problems_of(row)

    job = unreadable_job(row, problems, JobState())

    bad = {problem.column for problem in problems}
    kept = dict(zip(DESCRIPTION, (job.uid, *spec_values(job)), strict=True))
    given_ = dict(zip(DESCRIPTION, row, strict=True))
    for column in ("payload", "metadata", "timeout", "priority", "user_id", "job_group", "anchor", "created_at"):
        assert column in bad or kept[column] == given_[column]
    assert "schedule" in bad or job.schedule == Schedule.from_json(given_["schedule"])
    assert job.spec.unreadable == problems
    assert job.unreadable is not None
    # What stands in for the rest is sound itself, but for a number that nothing could be done without.
    assert not all_problems(DESCRIPTION, (0, *spec_values(job))) or bad & {"namespace", "id", "handler", *NAMES}


NAMES = ("user_id", "name", "job_group")  # shown as far as they can be


@settings(max_examples=1000)
@given(STATES)
def test_a_state_is_sound_if_and_only_if_nothing_is_wrong_with_any_column(columns: tuple[Any, ...]) -> None:
    problems = all_problems(STATE, columns)

    assert is_sound_state(columns) == (problems == ())
    assert state_problem(columns) == (problems[0] if problems else None)


@settings(max_examples=1000)
@given(STATES)
def test_a_state_that_is_claimed_at_a_glance_is_sound(columns: tuple[Any, ...]) -> None:
    """The store finds it by its activity, its phase and when it is due: those are what they must be.

    A number that is not a whole one, which no table takes, is not looked for: to do so would cost every claim.
    """
    row = tuple(JobState._make(columns)._replace(activity=Status.IDLE, phase=Phase.ACTIVE, next_run_at=NOW))
    assume(not any(type(value) in (float, bool) for value in row))

    if claim_in_time(row, NOW, "running") is not None:
        assert is_sound_state(row)


@settings(max_examples=1000)
@given(RUNS)
def test_a_run_is_read_if_and_only_if_nothing_is_wrong_with_any_column(columns: tuple[Any, ...]) -> None:
    problems = all_problems(RUN, columns)

    _, problem = read_run(columns)

    assert problem == (problems[0] if problems else None)
