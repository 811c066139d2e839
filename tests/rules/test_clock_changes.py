"""The clock goes back: no job waits until it is where it was."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Job, Manual, Retry, Schedule
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import CANCELLED, ERROR, NOON, RULES, SUCCESS, Story, a_job


def back(story: Story, now: Micros) -> Job:
    return sooner(story.job, now) or story.job


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(Every("1h"), NOON - DAY + HOUR, id="a grid, on its own points"),
        pytest.param(Every("1h", anchor=from_micros(NOON)), NOON, id="a grid that begins later, where it begins"),
        pytest.param(Cron("30 * * * *", tz="UTC"), NOON - DAY + 30 * MINUTE, id="cron"),
        pytest.param(Delay("2h", immediately=False), NOON - DAY + 2 * HOUR, id="a delay"),
        pytest.param(At(from_micros(NOON + HOUR)), NOON + HOUR, id="a moment"),
        pytest.param(Manual(), None, id="nothing"),
    ],
)
def test_no_job_waits_until_the_clock_is_where_it_was(schedule: Schedule, expected: Micros | None) -> None:
    story = Story(schedule)

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == expected
    assert sooner(moved, NOON - DAY) is None, "another process may say the same"


@pytest.mark.parametrize(
    ("job", "now"),
    [
        pytest.param(a_job(Every("1h")), NOON, id="nothing to bring forward"),
        pytest.param(a_job(Every("1h")), NOON + 2 * HOUR, id="due already"),
        pytest.param(a_job(Every("1h"), enabled=False), NOON - DAY, id="disabled"),
    ],
)
def test_a_job_that_is_right_as_it_is_stays_so(job: Job, now: Micros) -> None:
    assert sooner(job, now) is None


def test_a_retry_waits_as_long_as_before() -> None:
    story = Story(Every("1h"), retry=Retry.budget(5, "1d"))
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.state.next_run_at == NOON + HOUR + 2 * MINUTE

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == NOON - DAY + 2 * MINUTE
    assert moved.state.regular_at == NOON - DAY + HOUR
    assert moved.state.period_start == NOON - DAY
    assert sooner(moved, NOON - DAY) is None


@pytest.mark.parametrize("failed", [False, True], ids=["it never failed", "it failed before its last success"])
def test_a_cancelled_run_is_repeated_at_once_by_the_new_clock(failed: bool) -> None:
    """Nothing tells when it was cancelled but the moment for which it waits."""
    story = Story(Every("1h"))
    if failed:
        story.pass_at(NOON + HOUR, ERROR)
        story.pass_at(NOON + 2 * HOUR, SUCCESS)
    story.pass_at(NOON + 3 * HOUR, CANCELLED)
    assert story.job.state.retry_of is not None

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == NOON - DAY
    assert moved.state.regular_at == NOON - DAY + HOUR
    assert sooner(moved, NOON - DAY) is None


def test_a_delay_after_failures_is_as_long_as_before() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    assert story.job.state.next_run_at == NOON + 40 * SECOND

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == NOON - DAY + 30 * SECOND
    assert moved.state.regular_at == NOON - DAY + 10 * SECOND


def test_the_retry_of_the_last_occurrence_waits_as_long_as_before() -> None:
    """Although, by the new clock, there are more occurrences to come."""
    story = Story(Every("1h", end=from_micros(NOON + HOUR)), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.state.next_run_at == NOON + 65 * MINUTE

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == NOON - DAY + 5 * MINUTE


def test_a_step_back_that_does_not_reach_the_failure_changes_nothing() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)

    for now in (NOON + 64 * MINUTE, NOON + HOUR):
        assert sooner(story.job, now) is None


def test_a_run_that_was_cancelled_is_run_again_by_any_clock() -> None:
    """It has not failed, so there is no moment to count from."""
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None
    story.end_at(NOON + HOUR + SECOND, run, CANCELLED)
    assert story.job.state.next_run_at == NOON + HOUR + SECOND

    moved = back(story, NOON + HOUR - SECOND)

    assert moved.state.retry_of == NOON + HOUR
    assert moved.state.next_run_at == NOON + HOUR - SECOND


@pytest.mark.parametrize("fails", [False, True], ids=["which waits", "which is postponed"])
def test_a_job_of_which_all_is_forgotten_keeps_its_time(fails: bool) -> None:
    story = Story(Every("10s", end=from_micros(NOON + 40 * SECOND)))
    if fails:
        story.pass_at(NOON + 10 * SECOND, ERROR)
    state = replace(story.job.state, forgotten_until=NOON + HOUR, last_error_at=None)
    story.job = story.job.with_state(state)

    assert sooner(story.job, NOON) is None


def test_what_is_forgotten_is_not_offered_again() -> None:
    story = Story(Every("1h"))
    story.job = story.job.with_state(replace(story.job.state, forgotten_until=NOON))

    assert back(story, NOON - DAY).state.next_run_at == NOON + HOUR
    due = story.job.with_state(replace(story.job.state, next_run_at=NOON - HOUR))
    taken = claim(due, NOON - HOUR, RULES)
    assert (taken.attempt, taken.state.next_run_at) == (None, NOON + HOUR)
