"""People edit, pause, resume or disable a job while it runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import At, Delay, Every, Manual, Retry, SkipReason, Status, Trigger
from scheduler_async.jobs.run import Ending, Skip
from scheduler_async.rules.claiming import claim_manually
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.explaining import decide
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, from_micros
from tests.rules.stories import (
    CANCELLED,
    ERROR,
    GIVE_UP,
    INTERRUPTED,
    NOON,
    OPEN,
    RULES,
    SUCCESS,
    Story,
    a_job,
    an_edit,
    changed,
)

# ---------------------------------------------------------------- one change


def test_a_finishing_run_does_not_overwrite_an_edit() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Every("5m"), NOON + 3 * HOUR)
    assert story.job.state.next_run_at == NOON + 3 * HOUR + 5 * MINUTE
    assert story.skips == [Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 2 * HOUR, missed=2)]
    story.end_at(NOON + 3 * HOUR + MINUTE, run, ERROR)

    assert story.job.state.next_run_at == NOON + 3 * HOUR + 5 * MINUTE
    assert story.job.consecutive_errors == 1
    assert story.job.status is Status.IDLE


def test_an_edit_of_something_else_during_a_run_lets_the_run_decide() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.job = changed(story.job, NOON + HOUR + MINUTE, priority="low")
    story.end_at(NOON + HOUR + 2 * MINUTE, run)

    assert story.job.state.next_run_at == NOON + 2 * HOUR


def test_an_edit_during_a_triggered_run_leaves_a_row_for_owed_occurrences() -> None:
    job = a_job(Every("1h"))
    running = replace(job, state=claim_manually(job, NOON + HOUR + MINUTE).state)

    skips = an_edit(running, NOON + 2 * HOUR, schedule=Every("5m")).skips

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + HOUR, missed=2),)


def test_a_pause_during_a_run_lets_it_finish() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.job = replace(story.job, state=pause(story.job, NOON + HOUR + MINUTE).state)
    assert story.job.status == "queued"
    story.end_at(NOON + HOUR + 2 * MINUTE, run)

    assert story.job.status == "paused"
    assert story.job.state.next_run_at == NOON + 2 * HOUR


def test_a_pause_during_a_postponed_run_does_not_account_for_the_delay_again() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    story.start_at(NOON + 40 * SECOND)
    assert [skip.missed for skip in story.skips] == [2]

    assert pause(story.job, NOON + 41 * SECOND).skips == ()


def test_a_resume_during_a_run_forgives_and_lets_it_finish() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR, ERROR)
    run = story.start_at(NOON + 2 * HOUR)
    assert run is not None

    story.job = replace(story.job, state=resume(story.job, NOON + 2 * HOUR + MINUTE).state)
    assert story.job.status is Status.QUEUED
    story.end_at(NOON + 2 * HOUR + 2 * MINUTE, run, ERROR)

    assert story.job.consecutive_errors == 1


def test_a_resume_during_a_run_lets_the_run_decide_when_the_next_one_is() -> None:
    story = Story(Every("10s"))
    run = story.start_at(NOON + 10 * SECOND)
    assert run is not None

    story.job = replace(story.job, state=resume(story.job, NOON + 11 * SECOND).state)
    assert story.job.state.next_run_at is None
    story.end_at(NOON + 12 * SECOND, run, ERROR)

    assert story.job.state.next_run_at == NOON + 42 * SECOND


def test_a_resume_during_a_triggered_run_starts_the_schedule_afresh() -> None:
    job = a_job(Every("1h"))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)
    running = replace(paused, state=claim_manually(paused, NOON + 5 * HOUR).state)

    assert resume(running, NOON + 5 * HOUR + MINUTE).state.next_run_at == NOON + 6 * HOUR


def test_a_job_disabled_during_a_run_stays_disabled() -> None:
    story = Story(Every("10s"))
    run = story.start_at(NOON + 10 * SECOND)
    assert run is not None

    story.change(disable(story.job, "cancelled", NOON + 25 * SECOND))
    story.end_at(NOON + 45 * SECOND, run)

    assert (story.job.status, story.job.disabled_reason, story.job.next_run_at) == (Status.DISABLED, "cancelled", None)
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ALREADY_RUNNING, 1)]


# ---------------------------------------------------------------- several changes


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, GIVE_UP], ids=["succeeds", "fails", "gives up"])
@pytest.mark.parametrize("paused", [False, True], ids=["left alone", "paused again"])
def test_a_resume_during_a_triggered_run_accounts_for_each_occurrence_once(paused: bool, ending: Ending) -> None:
    """Those during a second pause wait for its end."""
    story = Story(Every("1m"))
    story.change(disable(story.job, "enough", NOON))
    run = story.trigger_at(NOON)
    story.change(resume(story.job, NOON + SECOND))
    if paused:
        story.change(pause(story.job, NOON + 3 * MINUTE))

    story.end_at(NOON + 4 * MINUTE, run, ending)

    assert story.missed == 3 + (not paused or ending.disable)
    if ending.disable:
        assert story.job.status is Status.DISABLED
    else:
        assert story.job.status is (Status.PAUSED if paused else Status.IDLE)
        assert story.job.state.next_run_at == NOON + 5 * MINUTE


def test_a_job_edited_and_disabled_during_a_run_has_each_row_once() -> None:
    """Each step leaves a row for the occurrences that passed since the step before it."""
    story = Story(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(Every("2m"), NOON + 3 * MINUTE)  # two of the old schedule
    story.change(disable(story.job, "enough", NOON + 8 * MINUTE))  # two of the new one
    story.reschedule(Every("1m"), NOON + 20 * MINUTE)  # six while it was disabled
    story.end_at(NOON + 30 * MINUTE, run)

    assert [skip.missed for skip in story.skips] == [2, 2, 6]
    assert story.job.status is Status.DISABLED
    story.change(resume(story.job, NOON + 40 * MINUTE))
    assert story.skips[-1] == Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + 21 * MINUTE, missed=20)
    assert story.job.state.next_run_at == NOON + 41 * MINUTE


def test_a_job_disabled_during_a_run_has_one_row_for_the_run_and_one_for_the_time_since() -> None:
    story = Story(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.change(disable(story.job, "enough", NOON + 3 * MINUTE))
    story.end_at(NOON + 5 * MINUTE, run)
    story.change(resume(story.job, NOON + 6 * MINUTE))

    assert [(skip.reason, skip.missed) for skip in story.skips] == [
        (SkipReason.ALREADY_RUNNING, 2),
        (SkipReason.DISABLED, 3),
    ]


def test_a_job_edited_and_disabled_during_a_run_can_be_resumed_during_it() -> None:
    story = Story(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(Every("2m"), NOON + MINUTE)
    story.change(disable(story.job, "enough", NOON + 2 * MINUTE))
    story.change(resume(story.job, NOON + 4 * MINUTE))
    assert story.job.state.next_run_at == NOON + 5 * MINUTE
    story.end_at(NOON + 4 * MINUTE, run)

    assert story.skips == [Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + 3 * MINUTE, missed=1)]
    assert story.job.state.next_run_at == NOON + 5 * MINUTE


def meddle(story: Story, how: str) -> None:
    if "edited" in how:
        story.reschedule(Every("90s"), NOON + 90 * SECOND)
    if "paused" in how:
        story.change(pause(story.job, NOON + 100 * SECOND))
    if "disabled" in how:
        story.change(disable(story.job, "enough", NOON + 100 * SECOND))


@pytest.mark.parametrize("start", ["by its schedule", "by hand", "by hand, while it is disabled"])
@pytest.mark.parametrize(
    "meddling", ["left alone", "paused", "disabled", "edited", "edited and paused", "edited and disabled"]
)
def test_giving_up_leaves_the_same_rows_as_succeeding_and_being_disabled(meddling: str, start: str) -> None:
    """A handler that gives up ends its run with success and disables its job."""
    ways = []
    for ending in (GIVE_UP, SUCCESS):
        story = Story(Every("1m"))
        if start == "by hand, while it is disabled":
            story.change(disable(story.job, "enough", NOON))
        run = story.start_at(NOON + MINUTE) if start == "by its schedule" else story.trigger_at(NOON + 30 * SECOND)
        assert run is not None
        meddle(story, meddling)
        story.end_at(NOON + 5 * MINUTE, run, ending)
        if ending is SUCCESS:
            story.change(disable(story.job, "its handler returned False", NOON + 5 * MINUTE))
        ways.append(story)

    gave_up, succeeded = ways
    assert gave_up.missed == succeeded.missed
    assert [skip.scheduled_for for skip in gave_up.skips] == [skip.scheduled_for for skip in succeeded.skips]
    assert gave_up.job.state == succeeded.job.state


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, INTERRUPTED, CANCELLED], ids=lambda ending: ending.outcome.value)
def test_occurrences_of_a_new_schedule_that_pass_during_the_run_are_not_caught_up_with(ending: Ending) -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Every("1m"), NOON + HOUR)
    story.end_at(NOON + HOUR + 10 * MINUTE + SECOND, run, ending)

    reason = SkipReason.INTERRUPTED if ending is INTERRUPTED else SkipReason.ALREADY_RUNNING
    assert story.skips == [Skip(reason=reason, scheduled_for=NOON + HOUR + MINUTE, missed=10)]
    assert story.job.state.next_run_at == NOON + HOUR + 11 * MINUTE
    assert story.job.state.retry_of is None


def test_each_schedule_that_a_job_has_during_a_run_leaves_a_row_of_its_own() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Every("2m"), NOON + HOUR)
    story.reschedule(Every("1m"), NOON + HOUR + 5 * MINUTE)
    story.change(pause(story.job, NOON + HOUR + 7 * MINUTE))
    story.change(resume(story.job, NOON + HOUR + 8 * MINUTE))
    story.end_at(NOON + HOUR + 9 * MINUTE, run)

    assert story.skips == [
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR + 2 * MINUTE, missed=2),
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR + 6 * MINUTE, missed=2),
        Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR + 8 * MINUTE, missed=1),
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR + 9 * MINUTE, missed=1),
    ]


@pytest.mark.parametrize("moment", [-10, 5, 20], ids=["before the run", "during the run", "after the run"])
def test_a_job_that_becomes_a_one_shot_during_its_run_owes_that(moment: int) -> None:
    """No later occurrence can replace it, and its misfire policy decides whether it runs late."""
    story = Story(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(At(from_micros(NOON + moment * MINUTE)), NOON + MINUTE)
    story.end_at(NOON + 10 * MINUTE, run)

    assert story.skips == []
    assert story.job.state.next_run_at == NOON + moment * MINUTE


def test_a_job_that_becomes_a_delay_during_its_run_waits_from_the_end_of_that() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Delay("5m"), NOON + HOUR + MINUTE)
    story.end_at(NOON + 2 * HOUR, run)

    assert story.job.state.next_run_at == NOON + 2 * HOUR + 5 * MINUTE
    assert story.skips == []


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, INTERRUPTED, CANCELLED], ids=lambda ending: ending.outcome.value)
def test_a_job_that_becomes_manual_during_its_run_never_runs_by_itself(ending: Ending) -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Manual(), NOON + HOUR + MINUTE)
    story.end_at(NOON + 3 * HOUR, run, ending)

    assert (story.job.state.next_run_at, story.job.status) == (None, Status.IDLE)
    assert story.skips == []


@pytest.mark.parametrize("edited_first", [False, True], ids=["disabled, edited", "edited, disabled"])
@pytest.mark.parametrize("after_the_run", [False, True], ids=["resumed during the run", "resumed after the run"])
def test_a_job_that_is_disabled_edited_and_resumed_is_as_if_it_had_only_been_edited(
    edited_first: bool, after_the_run: bool
) -> None:
    """No run has failed, so no run is postponed."""
    moment = NOON + HOUR
    story = Story(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    if edited_first:
        story.reschedule(At(from_micros(moment)), NOON + 2 * MINUTE)
    story.change(disable(story.job, "enough", NOON + 3 * MINUTE))
    assert story.job.next_run_at is None
    if not edited_first:
        story.reschedule(At(from_micros(moment)), NOON + 4 * MINUTE)
    if after_the_run:
        story.end_at(NOON + 5 * MINUTE, run)
    story.change(resume(story.job, NOON + 6 * MINUTE))
    if not after_the_run:
        story.end_at(NOON + 7 * MINUTE, run)

    assert decide(story.job, NOON + 8 * MINUTE, OPEN, RULES) == (SkipReason.NOT_DUE, moment)
    assert story.job.state.regular_at is None
    assert story.pass_at(moment) is not None
    expected = {SkipReason.ALREADY_RUNNING} if edited_first else {SkipReason.ALREADY_RUNNING, SkipReason.DISABLED}
    assert {skip.reason for skip in story.skips} == expected


def test_a_run_by_hand_does_not_end_the_stretch_in_which_a_job_is_disabled() -> None:
    story = Story(Every("1m"))
    story.change(disable(story.job, "enough", NOON))
    run = story.trigger_at(NOON + SECOND)

    story.reschedule(Every("2m"), NOON + 10 * MINUTE)
    story.end_at(NOON + 20 * MINUTE, run)

    assert story.skips == [Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + MINUTE, missed=10)]
    assert (story.job.status, story.job.state.next_run_at) == (Status.DISABLED, None)


def test_a_retry_after_a_long_pause_does_not_run_what_the_row_of_the_pause_counts() -> None:
    """The schedule has ended meanwhile: only the interrupted occurrence is left."""
    end = NOON + 2 * HOUR
    story = Story(Every("3m", end=from_micros(end)))
    run = story.start_at(NOON + 3 * MINUTE)
    assert run is not None
    story.change(pause(story.job, NOON + 3 * MINUTE))
    story.end_at(NOON + 55 * MINUTE, run, INTERRUPTED)

    story.change(resume(story.job, end + 8 * MINUTE))
    again = story.start_at(end + 8 * MINUTE)

    assert again is not None
    assert (again.trigger, again.scheduled_for) == (Trigger.RETRY, run.scheduled_for)
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.PAUSED, 39)]
