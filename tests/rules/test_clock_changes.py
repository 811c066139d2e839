"""The clock goes back, and jobs do not wait for it to catch up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Job, Manual, Retry, Schedule
from scheduler_async.jobs.run import Attempt, Ending
from scheduler_async.rules import instances
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.rules.pending import PendingRetry
from scheduler_async.rules.plans import Plan, plan_of
from scheduler_async.rules.terms import Transition
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import CANCELLED, ERROR, INTERRUPTED, NOON, RULES, SUCCESS, Story, a_job


def instances_claim(story: Story, now: Micros) -> Attempt:
    taken = instances.claim(story.job, now, RULES)
    assert taken.attempt is not None
    story.change(taken)
    return taken.attempt


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
def test_a_job_does_not_wait_for_the_clock_to_catch_up(schedule: Schedule, expected: Micros | None) -> None:
    story = Story(schedule)

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == expected
    assert sooner(moved, NOON - DAY) is None, "a second process that notices the jump changes nothing"


@pytest.mark.parametrize(
    ("job", "now"),
    [
        pytest.param(a_job(Every("1h")), NOON, id="nothing to bring forward"),
        pytest.param(a_job(Every("1h")), NOON + 2 * HOUR, id="due already"),
        pytest.param(a_job(Every("1h"), enabled=False), NOON - DAY, id="disabled"),
    ],
)
def test_a_clock_change_leaves_a_job_alone_that_need_not_move(job: Job, now: Micros) -> None:
    assert sooner(job, now) is None


@pytest.mark.parametrize(
    ("now", "due"),
    [
        pytest.param(NOON + 70 * MINUTE, NOON + 70 * MINUTE, id="at once"),
        pytest.param(NOON + 50 * MINUTE, NOON + HOUR, id="at its time"),
        pytest.param(NOON - DAY, NOON - DAY + 30 * MINUTE, id="as any other"),
    ],
)
def test_an_occurrence_that_waited_for_a_run_to_end_runs(now: Micros, due: Micros) -> None:
    """The run that it waited for ended at a time that is to come again."""
    story = Story(Every("30m"), overlap="queue")
    story.pass_at(NOON + 30 * MINUTE, takes=50 * MINUTE)
    story.change(Transition(back(story, now)))

    run = story.pass_at(due)

    assert run is not None
    assert run.scheduled_for == min(due, NOON + HOUR)
    assert len(story.runs) == 2
    assert story.job.state.next_run_at == due - due % (30 * MINUTE) + 30 * MINUTE


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
    """The state does not hold the moment of the cancellation, so the repetition moves to the new time."""
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


@pytest.mark.parametrize(
    ("retry", "ending", "waits"),
    [
        pytest.param(Retry.budget(5, "1d"), ERROR, [2 * MINUTE, 4 * MINUTE], id="after failures"),
        pytest.param(None, INTERRUPTED, [0, 0], id="after the death of a process"),
        pytest.param(None, CANCELLED, [0, 0], id="after a stop"),
    ],
)
def test_each_retry_of_a_job_with_several_runs_waits_as_long_as_before(
    retry: Retry | None, ending: Ending, waits: list[Micros]
) -> None:
    story = Story(Every("1h"), max_instances=2, retry=retry)
    runs = [instances_claim(story, NOON + at * HOUR) for at in (1, 2)]
    for run in runs:
        story.change(instances.after_run(story.job, run, ending, NOON + 130 * MINUTE, RULES))

    moved = back(story, NOON - DAY)

    assert [retry.at - (NOON - DAY) for retry in plan_of(moved.state).retries] == waits
    assert sooner(moved, NOON - DAY) is None


def test_a_retry_after_the_next_occurrence_moves_with_the_clock_too() -> None:
    story = Story(Every("1h"), max_instances=2, retry=Retry.in_window(1, delay="70m"))
    run = instances_claim(story, NOON + HOUR)
    story.change(instances.after_run(story.job, run, ERROR, NOON + HOUR, RULES))
    assert story.job.state.next_run_at == NOON + 2 * HOUR

    moved = back(story, NOON - DAY)

    assert plan_of(moved.state) == Plan(
        NOON - DAY + HOUR, None, (PendingRetry(NOON - DAY + 70 * MINUTE, run.scheduled_for, 1),)
    )
    assert sooner(moved, NOON - DAY) is None


def test_a_step_back_starts_no_missed_occurrence_beside_the_one_that_runs() -> None:
    story = Story(Every("1m"), max_instances=3, misfire="run_all", retry=Retry.in_window(1, delay="8m"))
    failed = instances_claim(story, NOON + MINUTE)
    other = instances_claim(story, NOON + 2 * MINUTE)
    for run in (failed, other):
        story.change(instances.after_run(story.job, run, ERROR, NOON + 2 * MINUTE, RULES))
    instances_claim(story, NOON + 6 * MINUTE)

    moved = back(story, NOON + 5 * MINUTE)

    assert plan_of(moved.state).regular == NOON + 4 * MINUTE
    assert plan_of(moved.state).due is None


def test_a_delay_after_failures_is_as_long_as_before() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    assert story.job.state.next_run_at == NOON + 40 * SECOND

    moved = back(story, NOON - DAY)

    assert moved.state.next_run_at == NOON - DAY + 30 * SECOND
    assert moved.state.regular_at == NOON - DAY + 10 * SECOND


def test_the_retry_of_the_last_occurrence_waits_as_long_as_before() -> None:
    """By the new clock there are more occurrences to come; that does not change the wait."""
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


def test_a_cancelled_run_of_a_job_that_never_failed_moves_with_the_clock() -> None:
    """Without a failure there is no moment to count a wait from."""
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None
    story.end_at(NOON + HOUR + SECOND, run, CANCELLED)
    assert story.job.state.next_run_at == NOON + HOUR + SECOND

    moved = back(story, NOON + HOUR - SECOND)

    assert moved.state.retry_of == NOON + HOUR
    assert moved.state.next_run_at == NOON + HOUR - SECOND


@pytest.mark.parametrize("fails", [False, True], ids=["which waits", "which is postponed"])
def test_a_job_whose_occurrences_are_all_forgotten_keeps_its_time(fails: bool) -> None:
    story = Story(Every("10s", end=from_micros(NOON + 40 * SECOND)))
    if fails:
        story.pass_at(NOON + 10 * SECOND, ERROR)
    state = replace(story.job.state, forgotten_until=NOON + HOUR, last_error_at=None)
    story.job = story.job.with_state(state)

    assert sooner(story.job, NOON) is None


def test_a_forgotten_occurrence_does_not_run_again() -> None:
    story = Story(Every("1h"))
    story.job = story.job.with_state(replace(story.job.state, forgotten_until=NOON))

    assert back(story, NOON - DAY).state.next_run_at == NOON + HOUR
    due = story.job.with_state(replace(story.job.state, next_run_at=NOON - HOUR))
    taken = claim(due, NOON - HOUR, RULES)
    assert (taken.attempt, taken.state.next_run_at) == (None, NOON + HOUR)
