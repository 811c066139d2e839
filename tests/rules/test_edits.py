"""What people do to a job: add, edit, pause, resume, disable."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, InvalidJobError, Manual, Retry, Schedule, SkipReason, Status
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.edits import disable, edited_spec, pause, resume
from scheduler_async.rules.explaining import decide
from scheduler_async.rules.next_run import disabled
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import ERROR, NOON, OPEN, RULES, Story, a_job, an_edit, changed

# ---------------------------------------------------------------- add


@pytest.mark.parametrize(
    ("schedule", "following", "status"),
    [
        pytest.param(Every("5m"), NOON + 5 * MINUTE, "idle", id="every"),
        pytest.param(Delay("5m"), NOON, "idle", id="delay"),
        pytest.param(At(from_micros(NOON - DAY)), NOON - DAY, "idle", id="an at that has passed"),
        pytest.param(Manual(), None, "idle", id="manual"),
        pytest.param(Every("5m", end=from_micros(NOON)), None, "disabled", id="over before it began"),
    ],
)
def test_a_new_job(schedule: Schedule, following: Micros | None, status: str) -> None:
    job = a_job(schedule)

    assert job.state.next_run_at == following
    assert job.status == status
    assert job.anchor == job.created == NOON


def test_a_job_added_disabled_waits_for_resume() -> None:
    job = a_job(Every("5m"), enabled=False)

    assert (job.status, job.next_run_at) == (Status.DISABLED, None)
    assert resume(job, NOON + HOUR + MINUTE).state.next_run_at == NOON + HOUR + 5 * MINUTE


def test_a_job_does_not_wait_for_an_occurrence_from_before_it_was_added() -> None:
    """Even if the jitter of that occurrence ends after the job was added or edited."""
    hourly = Cron("0 * * * *", tz="UTC", jitter="59m")
    job = a_job(hourly, now=NOON + SECOND)
    assert hourly.jittered(NOON, job.key) > NOON + MINUTE
    first = hourly.jittered(NOON + HOUR, job.key)

    resumed = resume(job.with_state(disable(job, "enough", NOON + SECOND).state), NOON + MINUTE)
    edited = changed(a_job(Every("1m")), NOON + SECOND, schedule=hourly)

    assert job.state.next_run_at == resumed.state.next_run_at == edited.state.next_run_at == first


# ---------------------------------------------------------------- edit


def test_a_changed_schedule_counts_from_now() -> None:
    job = changed(a_job(Every("1h")), NOON + 10 * MINUTE, schedule=Every("5m"))

    assert job.state.next_run_at == NOON + 15 * MINUTE
    assert (job.anchor, job.revision) == (NOON + 10 * MINUTE, 2)
    assert job.updated_at == from_micros(NOON + 10 * MINUTE)
    assert job.created_at == from_micros(NOON)


def test_an_edit_that_keeps_the_schedule_keeps_the_cadence() -> None:
    job = changed(a_job(Every("1h")), NOON + 10 * MINUTE, schedule=Every("60m"), priority="high", payload=[1])

    assert job.state.next_run_at == NOON + HOUR
    assert job.anchor == NOON
    assert (job.priority, job.payload, job.revision) == ("high", [1], 2)


def test_an_edited_delay_does_not_run_at_once_if_it_ran_before() -> None:
    story = Story(Delay("5m"))
    fresh = changed(story.job, NOON + SECOND, schedule=Delay("1h"))
    story.pass_at(NOON)
    edited = changed(story.job, NOON + MINUTE, schedule=Delay("1h"))

    assert fresh.state.next_run_at == NOON + SECOND
    assert edited.state.next_run_at == NOON + HOUR + MINUTE


def test_an_edit_leaves_a_row_for_owed_occurrences() -> None:
    job = a_job(Every("1h"))

    skips = an_edit(job, NOON + 3 * HOUR, schedule=Every("5m")).skips

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + HOUR, missed=3),)


def test_an_edit_after_a_run_leaves_a_row_for_owed_occurrences() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)

    skips = an_edit(story.job, NOON + 3 * HOUR, schedule=Every("5m")).skips

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 2 * HOUR, missed=2),)


def test_an_edit_of_a_disabled_job_ends_one_stretch_and_begins_another() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)
    off = changed(story.job, NOON + HOUR + MINUTE, enabled=False)

    change = an_edit(off, NOON + 5 * HOUR, schedule=Every("5m"))

    assert change.skips == (Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + 2 * HOUR, missed=4),)
    assert change.job.status is Status.DISABLED
    assert resume(change.job, NOON + 5 * HOUR + 10 * MINUTE).skips == (
        Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + 5 * HOUR + 5 * MINUTE, missed=2),
    )


def test_an_edit_drops_a_pending_retry_but_not_the_count() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2))
    story.pass_at(NOON + HOUR, ERROR)

    job = changed(story.job, NOON + HOUR + MINUTE, schedule=Every("5m"))

    assert job.state.next_run_at == NOON + HOUR + 6 * MINUTE
    assert job.state.retry_of is None
    assert (job.consecutive_errors, job.retry_count) == (1, 0)


def test_an_edit_that_drops_the_retry_of_a_one_shot_leaves_no_row() -> None:
    story = Story(At(from_micros(NOON)), retry=Retry.in_window(2))
    story.pass_at(NOON, ERROR)

    skips = an_edit(story.job, NOON + HOUR, schedule=Every("5m")).skips

    assert skips == ()


def test_an_edit_that_drops_a_retry_accounts_for_the_regular_times_behind_it() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2, delay="50m"))
    story.pass_at(NOON + HOUR, ERROR)

    skips = an_edit(story.job, NOON + 3 * HOUR, schedule=Every("5m")).skips

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 2 * HOUR, missed=2),)


def test_an_edit_begins_a_new_period_of_a_budget() -> None:
    story = Story(Every("1h"), retry=Retry.budget())
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.state.period_start == NOON + HOUR

    assert changed(story.job, NOON + 2 * HOUR, schedule=Every("5m")).state.period_start is None


def test_an_edit_of_a_failed_job_forgets_its_attempts() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)
    assert story.job.state.attempts == 1

    edited = changed(story.job, NOON + DAY, schedule=Every("20s"))

    assert (edited.status, edited.state.retry_of, edited.state.attempts) == (Status.DISABLED, None, 0)


def test_an_edit_of_a_failed_job_keeps_the_reason() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)

    edited = changed(story.job, NOON + DAY, priority="high")

    assert edited.disabled_reason == "5 failures in a row, the last: ValueError: no"


def test_a_finished_at_is_not_replayed_by_adding_it_again() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    again = changed(story.job, NOON + HOUR)
    later = changed(story.job, NOON + HOUR, schedule=At(from_micros(NOON + DAY)))

    assert (again.status, again.disabled_reason) == (Status.DISABLED, ENDED)
    assert (later.status, later.state.next_run_at) == (Status.IDLE, NOON + DAY)


def test_a_new_schedule_revives_an_ended_job() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    job = changed(story.job, NOON + HOUR, schedule=At(from_micros(NOON + DAY)))
    same = changed(story.job, NOON + HOUR, priority="high")

    assert (job.status, job.state.next_run_at) == (Status.IDLE, NOON + DAY)
    assert (same.status, same.disabled_reason) == (Status.DISABLED, ENDED)


def test_a_new_schedule_clears_the_reason_of_an_ended_job() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    edited = changed(story.job, NOON + HOUR, schedule=At(from_micros(NOON + DAY)))

    assert (edited.status, edited.disabled_reason) == (Status.IDLE, None)


def test_a_job_that_ran_before_and_becomes_an_at_in_the_past_owes_that_run() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)

    edited = changed(story.job, NOON + 2 * HOUR, schedule=At(from_micros(NOON)))

    assert (edited.status, edited.state.next_run_at) == (Status.IDLE, NOON)


def test_an_upsert_enables_a_disabled_job_but_not_a_paused_one() -> None:
    """Code that cancels a job and adds it again wants it to run; an operator's pause outlives a deployment."""
    job = a_job(Every("1h"))
    off = replace(job, state=disabled(job.state, "cancelled", NOON))
    paused = replace(job, state=pause(job, NOON).state)

    on = changed(off, NOON + 30 * MINUTE, enabled=True)
    still = changed(paused, NOON + 30 * MINUTE)

    assert (on.status, on.state.next_run_at) == (Status.IDLE, NOON + HOUR)
    assert still.status is Status.PAUSED


def test_an_edit_does_not_enable_a_job_that_failed() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)

    edited = changed(story.job, NOON + DAY, priority="high", schedule=Every("20s"))

    assert edited.status is Status.DISABLED
    assert edited.next_run_at is None
    enabled = changed(story.job, NOON + DAY, enabled=True)
    assert (enabled.status, enabled.consecutive_errors) == (Status.IDLE, 0)


def test_an_edit_can_disable() -> None:
    job = changed(a_job(Every("1h")), NOON, enabled=False)

    assert (job.status, job.disabled_reason, job.next_run_at) == (Status.DISABLED, "it was disabled by hand", None)


def test_an_edit_can_change_the_handler() -> None:
    assert changed(a_job(Every("1h")), NOON, handler="other").handler == "other"


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(
        TypeError, match=r"Cannot change colour or id of a job\. Choose from schedule, handler, .* enabled or cursor"
    ):
        edited_spec(a_job(Every("1h")), {"colour": "red", "id": "b"})
    with pytest.raises(TypeError, match="Cannot change colour of a job"):
        edited_spec(a_job(Every("1h")), {"colour": "red"})


# ---------------------------------------------------------------- pause


def test_a_paused_stretch_is_not_missed_time() -> None:
    story = Story(Every("1h"))
    story.job = replace(story.job, state=pause(story.job, NOON + 10 * MINUTE).state)
    assert story.pass_at(NOON + 5 * HOUR) is None

    change = resume(story.job, NOON + 5 * HOUR + MINUTE)

    assert change.state.next_run_at == NOON + 6 * HOUR
    assert change.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR, missed=5),)


def test_a_short_pause_changes_nothing() -> None:
    job = a_job(Every("1h"))

    change = resume(replace(job, state=pause(job, NOON + MINUTE).state), NOON + 2 * MINUTE)

    assert change.state == job.state


def test_a_pause_leaves_a_row_for_owed_occurrences() -> None:
    change = pause(a_job(Every("1h")), NOON + 2 * HOUR)

    assert change.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR, missed=2),)
    assert change.state.next_run_at == NOON + 3 * HOUR


def test_a_pause_at_the_moment_a_job_is_due_leaves_a_row() -> None:
    change = pause(a_job(Every("1h")), NOON + HOUR)

    assert change.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR, missed=1),)
    assert change.state.next_run_at == NOON + 2 * HOUR


@pytest.mark.parametrize(
    "schedule", [At(from_micros(NOON + HOUR)), Delay("1h", immediately=False)], ids=["at", "delay"]
)
def test_a_one_shot_or_a_delay_is_owed_after_a_pause(schedule: Schedule) -> None:
    job = a_job(schedule)

    paused = replace(job, state=pause(job, NOON + 2 * HOUR).state)
    resumed = resume(paused, NOON + 3 * HOUR)

    assert resumed.state.next_run_at is not None
    assert resumed.state.next_run_at <= NOON + 3 * HOUR
    assert decide(replace(job, state=resumed.state), NOON + 3 * HOUR, OPEN, RULES)[0] is None


@pytest.mark.parametrize(
    "schedule", [At(from_micros(NOON + HOUR)), Delay("1h", immediately=False)], ids=["at", "delay"]
)
def test_pausing_a_one_shot_or_a_delay_leaves_no_row(schedule: At | Delay) -> None:
    change = pause(a_job(schedule), NOON + 2 * HOUR)

    assert change.skips == ()
    assert change.state.next_run_at == NOON + HOUR


def test_pausing_a_disabled_job_changes_nothing() -> None:
    job = a_job(Every("1h"), enabled=False)

    assert pause(job, NOON).state == job.state


def test_pausing_keeps_a_pending_retry_until_resume_forgives_it() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2))
    story.pass_at(NOON + HOUR, ERROR)

    paused = pause(story.job, NOON + HOUR + MINUTE)
    assert paused.skips == ()
    resumed = resume(replace(story.job, state=paused.state), NOON + HOUR + 2 * MINUTE)

    assert resumed.state.next_run_at == NOON + 2 * HOUR
    assert resumed.state.retry_of is None


def test_a_pending_retry_of_the_last_occurrence_outlives_a_pause() -> None:
    end = from_micros(NOON + HOUR)
    story = Story(Every("1h", end=end), retry=Retry.in_window(2, delay="10m"))
    story.pass_at(NOON + HOUR, ERROR)

    paused = pause(story.job, NOON + HOUR + MINUTE)
    resumed = resume(replace(story.job, state=paused.state), NOON + HOUR + 2 * MINUTE)

    assert (resumed.state.next_run_at, resumed.state.retry_of) == (NOON + HOUR + 10 * MINUTE, NOON + HOUR)


def test_pausing_a_retry_leaves_a_row_for_the_regular_time_that_passed() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2, delay="59m"))
    story.pass_at(NOON + HOUR, ERROR)

    paused = pause(story.job, NOON + 2 * HOUR + MINUTE)
    resumed = resume(replace(story.job, state=paused.state), NOON + 2 * HOUR + 2 * MINUTE)

    assert paused.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + 2 * HOUR, missed=1),)
    assert paused.state.retry_of == NOON + HOUR
    assert resumed.skips == ()


def test_a_resume_does_not_repeat_the_row_of_a_pause() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    paused = pause(story.job, NOON + 25 * SECOND)
    resumed = resume(replace(story.job, state=paused.state), NOON + 35 * SECOND)

    assert paused.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + 20 * SECOND, missed=1),)
    assert paused.state.regular_at is None
    assert resumed.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + 30 * SECOND, missed=1),)


# ---------------------------------------------------------------- resume


def test_a_resume_forgives_failures() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)

    change = resume(story.job, NOON + DAY + SECOND)

    assert change.state.consecutive_errors == 0
    assert change.state.next_run_at == NOON + DAY + 10 * SECOND
    assert change.state.phase is Phase.ACTIVE
    assert change.state.last_error == "ValueError: no"


def test_resume_ends_a_backoff_and_accounts_for_it() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    story.pass_at(NOON + 40 * SECOND, ERROR)

    change = resume(story.job, NOON + 65 * SECOND)

    assert change.state.next_run_at == NOON + 70 * SECOND
    assert change.state.regular_at is None
    assert change.state.consecutive_errors == 0
    assert change.skips == (Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 50 * SECOND, missed=2),)


def test_resume_of_a_failing_delay_goes_back_to_its_interval() -> None:
    story = Story(Delay("10s"))
    story.pass_at(NOON, ERROR)
    assert story.job.state.next_run_at == NOON + 30 * SECOND

    assert resume(story.job, NOON + SECOND).state.next_run_at == NOON + 10 * SECOND
    assert resume(story.job, NOON + 20 * SECOND).state.next_run_at == NOON + 20 * SECOND


def test_a_resume_of_an_ended_job_says_what_to_do_instead() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    with pytest.raises(InvalidJobError, match=r"update_job\(\), or run it once more with trigger_job"):
        resume(story.job, NOON + HOUR)


def test_resume_forgets_the_reason_and_the_spent_retries() -> None:
    story = Story(Every("1h"), retry=Retry.budget(3, disable_after=2))
    story.run_until(NOON + DAY, ERROR)
    assert story.job.retry_count == 1
    assert story.job.state.period_start is not None

    state = resume(story.job, NOON + DAY).state

    assert (state.disabled_reason, state.retry_count, state.period_start) == (None, 0, None)


def test_a_resume_of_an_active_job_that_is_due_changes_nothing() -> None:
    change = resume(a_job(Every("1h")), NOON + 3 * HOUR)

    assert change.state.next_run_at == NOON + HOUR
    assert change.skips == ()


def test_a_job_resumed_exactly_at_its_regular_time_goes_on_with_the_next() -> None:
    job = a_job(Every("1h"))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + HOUR - 1).state.next_run_at == NOON + HOUR
    assert resume(paused, NOON + HOUR).state.next_run_at == NOON + 2 * HOUR


def test_a_resume_does_not_lose_an_occurrence_that_waits_for_its_jitter() -> None:
    job = a_job(Every("1h", jitter="10%"))
    due = job.schedule.jittered(NOON + HOUR, "default/a")
    assert due > NOON + HOUR + 1
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + HOUR + 1).state.next_run_at == due


def test_a_delay_that_is_resumed_before_its_time_keeps_it() -> None:
    job = a_job(Delay("1h", immediately=False))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + 2 * MINUTE).state.next_run_at == NOON + HOUR


def test_a_delay_that_is_enabled_runs_at_once() -> None:
    job = a_job(Delay("1h"), enabled=False)

    assert resume(job, NOON + 5 * HOUR).state.next_run_at == NOON + 5 * HOUR


def test_a_resumed_at_keeps_the_time_of_its_retry() -> None:
    story = Story(At(from_micros(NOON)), retry=Retry.in_window(2, delay="10m"))
    story.pass_at(NOON, ERROR)
    paused = replace(story.job, state=pause(story.job, NOON + MINUTE).state)

    assert resume(paused, NOON + 2 * MINUTE).state.next_run_at == NOON + 10 * MINUTE


@pytest.mark.parametrize(("now", "expected"), [(61, 65), (70, 65)], ids=["before it", "after it"])
def test_the_retry_of_the_last_occurrence_survives_a_resume(now: int, expected: int) -> None:
    """No later occurrence can replace it."""
    story = Story(Every("1h", end=from_micros(NOON + HOUR)), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)
    story.change(pause(story.job, NOON + HOUR + SECOND))

    story.change(resume(story.job, NOON + now * MINUTE))

    assert story.job.state.next_run_at == NOON + expected * MINUTE
    assert story.job.state.retry_of == NOON + HOUR


def test_a_last_occurrence_that_failed_for_good_is_tried_again_at_once_when_it_is_resumed() -> None:
    story = Story(Every("1h", end=from_micros(NOON + HOUR)), retry=Retry.none(disable_after=1))
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.status is Status.DISABLED

    story.change(resume(story.job, NOON + 2 * HOUR))

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.retry_of == NOON + HOUR


def test_a_retry_gives_way_to_the_next_regular_time_when_its_job_is_resumed() -> None:
    """A resume forgets failures, and therefore their retries."""
    story = Story(Every("1h"), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)

    story.change(resume(story.job, NOON + HOUR + SECOND))

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.retry_of is None


# ---------------------------------------------------------------- disable


def test_a_postponed_job_that_is_disabled_accounts_for_its_regular_times() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    off = changed(story.job, NOON + 15 * SECOND, enabled=False)

    assert off.state.regular_at is None
    assert resume(off, NOON + MINUTE).skips == (
        Skip(reason=SkipReason.DISABLED, scheduled_for=NOON + 20 * SECOND, missed=5),
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(At(from_micros(NOON + HOUR)), NOON + HOUR, id="a one-shot, at its moment"),
        pytest.param(Delay("1h", immediately=False), NOON + 30 * MINUTE, id="a delay, at once"),
        pytest.param(Every("1h"), NOON + HOUR, id="a grid, at its next point"),
        pytest.param(Manual(), None, id="nothing, never"),
    ],
)
def test_a_job_that_was_disabled_before_it_ran_goes_on(schedule: Schedule, expected: Micros | None) -> None:
    story = Story(schedule)
    story.change(disable(story.job, "enough", NOON))
    assert story.job.state.disabled_at == NOON

    story.change(resume(story.job, NOON + 30 * MINUTE))

    assert story.job.state.next_run_at == expected
    assert story.job.state.disabled_at is None


def test_disabling_a_paused_job_leaves_no_row() -> None:
    story = Story(At(from_micros(NOON + HOUR)))
    story.change(pause(story.job, NOON))
    story.change(disable(story.job, "enough", NOON + 2 * HOUR))

    assert story.skips == []
