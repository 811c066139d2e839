"""Jobs as rows, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler_async import At, Cron, Every, Job, JobSpec, Manual, Retry, Schedule
from scheduler_async.jobs.description import Description
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import MOST_COUNTED, JobState
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.edits import add
from scheduler_async.rules.next_run import disabled
from scheduler_async.stores.codec import (
    description_values,
    problems_of,
    read_job,
    read_state,
    state_values,
    unreadable_job,
)
from scheduler_async.stores.columns import DESCRIPTION, STATE, Kind
from scheduler_async.stores.run_codec import RUN, read_run
from scheduler_async.stores.unreadable import problem_of
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
    return description_values(job), tuple(state_values(job.state))


@pytest.mark.parametrize(("schedule", "fields"), JOBS)
def test_a_job_comes_back_from_its_rows(schedule: Schedule, fields: dict[str, Any]) -> None:
    job = a_job(schedule, **fields)
    description, state = rows_of(job)

    assert read_job(description).with_state(read_state(state)) == job


def test_every_field_of_a_description_has_a_column() -> None:
    """What has none would be lost without a word."""
    paths = {column.path for column in DESCRIPTION}

    described = {f"description.{name}" for name in Description.__struct_fields__ if name != "unreadable"}
    others = {*Job.__struct_fields__} - {"description", "state", "unreadable_state", "read_at"}
    assert paths == described | others


def test_a_state_comes_back_from_its_columns_and_those_are_bare() -> None:
    """Drivers take long over enums."""
    state = disabled(JobState(next_run_at=5, last_error="why"), "enough", 9)

    columns = tuple(state_values(state))

    assert read_state(columns) == state
    assert {type(value) for value in columns} == {int, str, type(None)}


def test_a_description_that_makes_no_job_here_is_told() -> None:
    description, _ = rows_of(a_job(Every("5m"), payload="p"))
    broken = (*description[:7], "{", *description[8:])

    with pytest.raises(ValueError, match="payload: Input data was truncated"):
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


def columns_of(state: JobState) -> tuple[Any, ...]:
    return tuple(state_values(state))


STATES = damaged(
    st.sampled_from(
        [
            columns_of(JobState(next_run_at=NOW)),
            columns_of(JobState(next_run_at=NOW, last_run_at=NOW - 5, last_success_at=NOW - 4)),
            columns_of(disabled(JobState(last_error_at=NOW, last_error="ö", consecutive_errors=3), "enough", NOW)),
            columns_of(JobState(activity=Status.RUNNING, phase=Phase.PAUSED, last_exit_code=1, last_message="ok")),
        ]
    )
)
RUNS = damaged(
    st.sampled_from(
        [
            (
                1,
                "a",
                "n",
                NOW,
                NOW,
                NOW + 5,
                1,
                "schedule",
                "success",
                None,
                0,
                None,
                "ok",
                0,
                "node",
                NOW,
                "[1]",
                0.5,
                "half",
                3,
            ),
            (1, "a", "n", NOW, *[None] * 2, 0, "manual", None, None, 0, *[None] * 4, NOW, *[None] * 4),
            (
                1,
                "a",
                "n",
                NOW,
                None,
                NOW,
                0,
                "schedule",
                "skipped",
                "misfire",
                7,
                "ö",
                None,
                None,
                None,
                NOW,
                None,
                None,
                None,
                None,
            ),
        ]
    )
)


def with_column(name: str, value: object) -> tuple[Any, ...]:
    """The description of a job, with another value in a column."""
    row, _ = rows_of(a_job(Every("5m")))
    return tuple(value if column.name == name else kept for column, kept in zip(DESCRIPTION, row, strict=True))


def problems_in(kinds: dict[str, Kind], row: tuple[Any, ...]) -> list[Unreadable]:
    """What is wrong with a row, column by column."""
    found = (problem_of(name, kind.read, value) for (name, kind), value in zip(kinds.items(), row, strict=True))
    return [problem for problem in found if problem is not None]


MANY = settings(max_examples=max(500, settings().max_examples))
DESCRIBED = {column.name: column.kind for column in DESCRIPTION}


@MANY
@example(with_column("timeout", 0.5))
@example(with_column("anchor", float(NOW)))
@example(with_column("payload", '"\udcff"'))
@example(with_column("payload", b"{}"))
@example(with_column("schedule", Every("5m").json_text().encode()))
@example(with_column("revision", "one"))
@given(DESCRIPTIONS)
def test_a_description_is_read_if_and_only_if_nothing_is_wrong_with_any_column(row: tuple[Any, ...]) -> None:
    """The quick look must not let anything pass that the full one would find, nor the other way round."""
    problems = problems_in(DESCRIBED, row)

    found = None
    try:
        read_job(row)
    except Unreadable as problem:
        found = problem

    assert found == (problems[0] if problems else None)


@MANY
@given(DESCRIPTIONS)
def test_what_can_be_read_of_a_description_is_kept_and_the_rest_is_named(row: tuple[Any, ...]) -> None:
    problems = problems_of(row)

    job = unreadable_job(row, problems)

    bad = {problem.column for problem in problems}
    kept = dict(zip(DESCRIBED, description_values(job), strict=True))
    given_ = dict(zip(DESCRIBED, row, strict=True))
    for column in ("payload", "metadata", "timeout", "priority", "user_id", "job_group", "anchor", "created_at"):
        assert column in bad or kept[column] == given_[column]
    assert "schedule" in bad or job.schedule == Schedule.from_json(given_["schedule"])
    assert job.description.unreadable == problems
    assert job.unreadable is not None
    # What stands in for the rest is sound itself, but for a number that nothing could be done without.
    assert not problems_in(DESCRIBED, (0, *description_values(job)[1:])) or bad & {"namespace", "id", "handler", *NAMES}


NAMES = ("user_id", "name", "job_group")  # shown as far as they can be


@MANY
@given(STATES)
def test_a_state_is_read_if_and_only_if_nothing_is_wrong_with_any_column(columns: tuple[Any, ...]) -> None:
    problems = problems_in(STATE, columns)

    found = None
    try:
        read_state(columns)
    except Unreadable as problem:
        found = problem

    assert found == (problems[0] if problems else None)


@MANY
@given(RUNS)
def test_a_run_is_read_if_and_only_if_nothing_is_wrong_with_any_column(columns: tuple[Any, ...]) -> None:
    problem_in = (problem_of(name, read, value) for (name, read), value in zip(RUN.items(), columns, strict=True))
    problems = [problem for problem in problem_in if problem is not None]

    _, problem = read_run(columns)

    assert problem == (problems[0] if problems else None)
