"""What the other rules share: which policy holds, what comes next, and what a job owes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import At, Delay, Every, Job, Manual, Retry, Schedule, SkipReason, Status
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.job import JobState
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.edits import disable, pause
from scheduler_async.rules.next_run import (
    comes_during_its_run,
    disabled,
    owes_since_its_claim,
    retry_policy,
    uncounted,
    with_next_run,
)
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import ERROR, NOON, Story, a_job

OF_THE_SCHEDULER = Retry.in_window(3)
OWN = Retry.budget(2)


@pytest.mark.parametrize(
    ("schedule", "own", "expected"),
    [
        pytest.param(Every("1h"), None, OF_THE_SCHEDULER, id="that of the scheduler"),
        pytest.param(Every("1h"), OWN, OWN, id="its own"),
        pytest.param(At(from_micros(NOON)), None, Retry.none(), id="none for a one-shot"),
        pytest.param(At(from_micros(NOON)), OWN, OWN, id="its own, for a one-shot too"),
    ],
)
def test_the_policy_for_failures(schedule: Schedule, own: Retry | None, expected: Retry) -> None:
    assert retry_policy(a_job(schedule, retry=own), Rules(retry=OF_THE_SCHEDULER)) == expected


def test_a_job_that_goes_on_forgets_its_retry() -> None:
    waiting = JobState(next_run_at=NOON, retry_of=NOON - HOUR, attempts=2, regular_at=NOON + HOUR, retry_count=2)

    state = with_next_run(a_job(Every("1h")), waiting, NOON + HOUR, NOON)

    assert state == JobState(next_run_at=NOON + HOUR, retry_count=2)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        pytest.param(Every("1h"), ENDED, id="a schedule has ended"),
        pytest.param(Manual(), None, id="a manual job waits"),
    ],
)
def test_a_job_without_a_next_run(schedule: Schedule, reason: str | None) -> None:
    state = with_next_run(a_job(schedule), JobState(), None, NOON)

    assert (state.next_run_at, state.disabled_reason) == (None, reason)
    assert (state.phase is Phase.DISABLED) == (reason is not None)


def test_a_disabled_state_has_a_reason_and_no_next_run() -> None:
    state = disabled(JobState(next_run_at=NOON, regular_at=NOON, last_error="why"), "enough", NOON + 1)

    assert (state.next_run_at, state.regular_at, state.phase) == (None, None, Phase.DISABLED)
    assert (state.disabled_reason, state.disabled_at, state.last_error) == ("enough", NOON + 1, "why")


# ---------------------------------------------------------------- what a job owes


def postponed() -> Job:
    """A job that failed at 12:00:10 and waits for 30 seconds, past two regular times."""
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    return story.job


def retried() -> Job:
    """A one-shot that failed at noon and is tried again."""
    story = Story(At(from_micros(NOON)), retry=Retry.in_window(2))
    story.pass_at(NOON, ERROR)
    return story.job


def triggered() -> Job:
    """A job that runs by hand since 12:30."""
    story = Story(Every("1h"))
    story.trigger_at(NOON + 30 * MINUTE)
    return story.job


HOURLY = a_job(Every("1h"))
MISSED, RUNNING = SkipReason.MISFIRE, SkipReason.ALREADY_RUNNING
PAUSED, DISABLED = SkipReason.PAUSED, SkipReason.DISABLED


@pytest.mark.parametrize(
    ("job", "now", "row"),
    [
        pytest.param(HOURLY, NOON + HOUR - 1, None, id="not due"),
        pytest.param(HOURLY, NOON + HOUR, (MISSED, NOON + HOUR, 1), id="due"),
        pytest.param(HOURLY, NOON + 3 * HOUR, (MISSED, NOON + HOUR, 3), id="due three times"),
        pytest.param(a_job(Manual()), NOON + HOUR, None, id="never due"),
        pytest.param(pause(HOURLY, NOON).job, NOON + 2 * HOUR, (PAUSED, NOON + HOUR, 2), id="paused, due twice since"),
        pytest.param(
            disable(HOURLY, "enough", NOON).job, NOON + HOUR, (DISABLED, NOON + HOUR, 1), id="disabled, due since"
        ),
        pytest.param(pause(HOURLY, NOON + HOUR).job, NOON + 90 * MINUTE, None, id="due when it was paused"),
        pytest.param(
            disable(pause(HOURLY, NOON).job, "enough", NOON + 90 * MINUTE).job,
            NOON + 2 * HOUR,
            (DISABLED, NOON + 2 * HOUR, 1),
            id="paused, then disabled: only the second stretch",
        ),
        pytest.param(postponed(), NOON + 30 * SECOND, (MISSED, NOON + 20 * SECOND, 2), id="postponed past two"),
        pytest.param(retried(), NOON + HOUR, None, id="only a retry"),
        pytest.param(triggered(), NOON + HOUR, (RUNNING, NOON + HOUR, 1), id="due while it runs by hand"),
        pytest.param(
            pause(triggered(), NOON + 31 * MINUTE).job,
            NOON + HOUR,
            (PAUSED, NOON + HOUR, 1),
            id="paused while it runs by hand, due since",
        ),
    ],
)
def test_what_has_no_row_gets_one(job: Job, now: Micros, row: tuple[SkipReason, Micros, int] | None) -> None:
    expected = () if row is None else (Skip(reason=row[0], scheduled_for=row[1], missed=row[2]),)

    assert uncounted(job, now, SkipReason.MISFIRE) == expected


# ---------------------------------------------------------------- while it runs


def running(schedule: Schedule | None = None) -> Story:
    story = Story(schedule or Every("1h"))
    story.start_at(NOON + HOUR)
    return story


def test_a_running_job_owes_the_occurrences_since_its_claim_unless_an_edit_settled_them() -> None:
    idle, claimed, edited = Story(Every("1h")), running(), running()
    edited.reschedule(Every("5m"), NOON + HOUR + MINUTE)

    assert [owes_since_its_claim(story.job) for story in (idle, claimed, edited)] == [False, True, False]


RUN = JobState(activity=Status.RUNNING, last_run_at=NOON, next_run_at=NOON + 1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(RUN, True, id="due after the run began"),
        pytest.param(replace(RUN, next_run_at=NOON), False, id="due before the run"),
        pytest.param(replace(RUN, next_run_at=None), False, id="nothing comes next"),
        pytest.param(replace(RUN, activity=Status.IDLE), False, id="idle"),
        pytest.param(replace(RUN, retry_of=NOON), False, id="a retry"),
        pytest.param(replace(RUN, regular_at=NOON), False, id="postponed"),
    ],
)
def test_an_occurrence_may_come_while_the_job_runs(state: JobState, expected: bool) -> None:
    assert comes_during_its_run(state) is expected


def test_a_delay_has_no_occurrence_while_it_runs() -> None:
    assert not comes_during_its_run(running(Delay("1h", immediately=False)).job.state)
