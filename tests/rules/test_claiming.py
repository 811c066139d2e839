"""Which occurrence a claim takes up, and which it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Job, Retry, Schedule, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import ENDED
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.rules.claiming import claim, ran_before, unclaim
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.explaining import decide
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import ERROR, NOON, OPEN, RULES, SUCCESS, Story, a_job, utc

# ---------------------------------------------------------------- misfires


@pytest.mark.parametrize(
    ("misfire", "late", "triggers", "skips"),
    [
        pytest.param("run_once", MINUTE, ["schedule"], [], id="late by the grace is not a misfire"),
        pytest.param("run_once", MINUTE + 1, ["catch_up"], [], id="beyond it, once, as a catch-up"),
        pytest.param("skip", MINUTE, ["schedule"], [], id="skip, within the grace"),
        pytest.param("skip", MINUTE + 1, [], [("misfire", 1)], id="skip, beyond it"),
    ],
)
@pytest.mark.parametrize("schedule", [At(from_micros(NOON + HOUR)), Every("1h")], ids=["at", "every"])
def test_late_runs_follow_the_misfire_policy(
    schedule: Schedule, misfire: str, late: Micros, triggers: list[str], skips: list[tuple[str, int]]
) -> None:
    story = Story(schedule, misfire=misfire)

    story.pass_at(NOON + HOUR + late)

    assert [run.trigger for _, run in story.runs] == triggers
    assert [(skip.reason, skip.missed) for skip in story.skips] == skips
    if isinstance(schedule, Every):
        assert story.job.state.next_run_at == NOON + 2 * HOUR
    else:
        assert story.job.disabled_reason == ENDED


def test_an_at_in_the_past_follows_the_misfire_policy() -> None:
    past = At(from_micros(NOON - DAY))

    once, never = Story(past), Story(past, misfire="skip")
    ran, skipped = once.pass_at(NOON), never.pass_at(NOON)

    assert ran == Attempt(scheduled_for=NOON - DAY, attempt=1, trigger=Trigger.CATCH_UP, claimed_at=NOON)
    assert skipped is None
    assert never.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON - DAY, missed=1)]
    assert once.job.disabled_reason == never.job.disabled_reason == ENDED


def test_a_long_absence_is_made_up_for_once() -> None:
    """Three days offline: one run for the oldest occurrence, one row for the other 71, and on with the grid."""
    story = Story(Every("1h"))

    run = story.pass_at(NOON + 3 * DAY + MINUTE)

    assert run == Attempt(
        scheduled_for=NOON + HOUR, attempt=1, trigger=Trigger.CATCH_UP, claimed_at=NOON + 3 * DAY + MINUTE
    )
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 2 * HOUR, missed=71)]
    assert story.job.state.next_run_at == NOON + 3 * DAY + HOUR


def test_a_short_absence_merges_without_being_a_catch_up() -> None:
    story = Story(Every("10s"))

    run = story.pass_at(NOON + 45 * SECOND)

    assert run is not None
    assert (run.scheduled_for, run.trigger) == (NOON + 10 * SECOND, "schedule")
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 20 * SECOND, missed=3)]
    assert story.job.state.next_run_at == NOON + 50 * SECOND


def caught_up(story: Story, at: int, takes: int) -> int:
    """Run what *story* owes from *at* on, one after another; each takes so many minutes. Return when it is done."""
    while (due := story.job.state.next_run_at) is not None and due <= NOON + at * MINUTE:
        assert story.pass_at(NOON + at * MINUTE, takes=takes * MINUTE)
        at += takes
    return at


def in_minutes(story: Story) -> list[float]:
    return [(run.scheduled_for - NOON) / MINUTE for _, run in story.runs]


@pytest.mark.parametrize("grace", [None, HOUR, 0])
def test_run_all_runs_each_occurrence_that_has_passed_within_the_grace_or_not(grace: Micros | None) -> None:
    """A grace that is longer than the outage must not merge what a shorter one runs."""
    story = Story(Every("10m"), misfire="run_all", rules=Rules(misfire_grace=grace))

    caught_up(story, 35, takes=0)

    assert in_minutes(story) == [10, 20, 30]
    assert story.skips == []


@pytest.mark.parametrize("retry", [None, Retry.in_window(1)])
def test_run_all_runs_what_a_second_outage_has_missed_too(retry: Retry | None) -> None:
    """It came while the job caught up with the first one."""
    story = Story(Every("10m"), misfire="run_all", retry=retry)
    story.pass_at(NOON + 35 * MINUTE, SUCCESS if retry is None else ERROR, takes=MINUTE)

    caught_up(story, 62, takes=1)

    assert sorted(set(in_minutes(story))) == [10, 20, 30, 40, 50, 60]
    assert story.skips == []


def test_a_second_outage_counts_with_the_first_for_the_limits_of_a_catch_up() -> None:
    story = Story(Every("10m"), misfire="run_all", catch_up_limit=2)
    story.pass_at(NOON + 35 * MINUTE, takes=MINUTE)

    caught_up(story, 65, takes=1)

    assert in_minutes(story) == [20, 50, 60]
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.MISFIRE, 1), (SkipReason.MISFIRE, 2)]


def test_run_all_ends_though_each_run_takes_longer_than_the_interval() -> None:
    """What comes due during its runs is merged into the last of them. Otherwise such a job would catch up for ever."""
    story = Story(Every("10m"), misfire="run_all")

    assert caught_up(story, 35, takes=15) == 80

    assert in_minutes(story) == [10, 20, 30]
    assert story.missed == 5


def test_what_came_during_a_run_and_what_was_missed_after_it_have_their_own_rows() -> None:
    """With `overlap="queue"`, both merge into the occurrence that waited for the end of the run."""
    story = Story(Every("10m"), overlap="queue")
    story.pass_at(NOON + 10 * MINUTE, takes=25 * MINUTE)

    story.pass_at(NOON + 65 * MINUTE)

    assert in_minutes(story) == [10, 20]
    assert story.skips == [
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 30 * MINUTE, missed=1),
        Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 40 * MINUTE, missed=3),
    ]


def test_skip_still_runs_the_latest_occurrence_if_that_is_in_time() -> None:
    """Down over the weekend and back on Monday at 09:00:30: Monday's report is not a misfire."""
    story = Story(Cron("0 9 * * *", tz="UTC"), now=utc(10, day=1), misfire="skip")

    run = story.pass_at(utc(9, 0, 30))

    assert run == Attempt(scheduled_for=utc(9), attempt=1, trigger=Trigger.SCHEDULE, claimed_at=utc(9, 0, 30))
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=utc(9, day=2), missed=3)]
    assert story.job.state.next_run_at == utc(9, day=6)


def test_skip_waits_for_the_jitter_of_the_latest_occurrence() -> None:
    story = Story(Every("1h", anchor=from_micros(NOON), jitter="10%"), misfire="skip")
    latest = story.job.schedule.jittered(NOON + 9 * HOUR, "default/a")
    assert latest > NOON + 9 * HOUR + SECOND

    assert story.pass_at(NOON + 9 * HOUR + SECOND) is None

    assert story.job.state.next_run_at == latest
    assert story.job.status is Status.IDLE
    assert [(skip.reason, skip.missed) for skip in story.skips] == [("misfire", 8)]


def test_skip_of_a_delay_counts_from_now() -> None:
    story = Story(Delay("5m", immediately=False), misfire="skip")

    assert story.pass_at(NOON + HOUR) is None

    assert story.job.state.next_run_at == NOON + HOUR + 5 * MINUTE
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 5 * MINUTE, missed=1)]


def test_a_skipped_misfire_leaves_the_last_run_alone() -> None:
    story = Story(Every("1h"), misfire="skip")

    story.pass_at(NOON + HOUR + 2 * MINUTE)

    assert story.job.last_run_at is None


def test_without_a_grace_nothing_is_too_late() -> None:
    story = Story(Every("1h"), misfire="skip", rules=Rules(misfire_grace=None))

    run = story.pass_at(NOON + 3 * DAY)

    assert run is not None
    assert run.trigger is Trigger.SCHEDULE


@given(
    interval=st.integers(1, 300),
    late=st.integers(0, 4000),
    grace=st.integers(0, 600),
    misfire=st.sampled_from(["run_once", "skip"]),
)
def test_every_occurrence_is_run_or_accounted_for(interval: int, late: int, grace: int, misfire: str) -> None:
    story = Story(Every(timedelta(seconds=interval)), misfire=misfire, rules=Rules(misfire_grace=grace * SECOND))
    now = NOON + (interval + late) * SECOND

    story.pass_at(now)

    occurrences = (now - NOON) // (interval * SECOND)
    accounted = len(story.runs) + sum(skip.missed for skip in story.skips)
    assert accounted == occurrences
    following = story.job.state.next_run_at
    assert following is not None
    assert now < following <= now + interval * SECOND
    assert (following - NOON) % (interval * SECOND) == 0
    assert len(story.runs) == 1 or misfire == "skip"


def test_skip_accounts_for_every_occurrence_of_the_finest_grid() -> None:
    story = Story(Every(timedelta(microseconds=1)), misfire="skip", rules=Rules(misfire_grace=0))

    run = story.pass_at(NOON + 3)

    assert run is not None
    assert run.scheduled_for == NOON + 3
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 1, missed=2)]


# ---------------------------------------------------------------- one at a time


def test_a_claimed_job_is_not_claimed_again() -> None:
    story = Story(Every("10s"))
    story.start_at(NOON + 10 * SECOND)

    assert decide(story.job, NOON + HOUR, OPEN, RULES) == (SkipReason.ALREADY_RUNNING, None)
    assert story.job.status is Status.QUEUED
    assert story.job.state.next_run_at is None
    assert story.job.next_run_at == from_micros(NOON + 20 * SECOND)


# ---------------------------------------------------------------- after failures


def test_backoff_accounts_for_the_occurrences_it_postponed() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR, takes=3 * SECOND)
    assert decide(story.job, NOON + 20 * SECOND, OPEN, RULES) == (SkipReason.BACKOFF, NOON + 43 * SECOND)

    run = story.pass_at(NOON + 43 * SECOND)

    assert run is not None
    assert (run.scheduled_for, run.attempt, run.trigger) == (NOON + 43 * SECOND, 1, "schedule")
    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 20 * SECOND, missed=3)]
    assert story.job.state.next_run_at == NOON + 50 * SECOND


def test_backoff_exactly_at_a_regular_time_is_that_occurrence() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    story.pass_at(NOON + 40 * SECOND)

    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 20 * SECOND, missed=2)]


def test_a_delay_that_ends_a_microsecond_after_a_regular_time_has_passed_it_over() -> None:
    story = Story(Every("10s"), retry=Retry.backoff([timedelta(seconds=10, microseconds=1)]))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    story.pass_at(NOON + 20 * SECOND + 1)

    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 20 * SECOND, missed=1)]


def test_a_regular_time_overtakes_a_retry_and_renews_the_budget() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)
    story.pass_at(utc(10, 1), ERROR)
    assert story.job.retry_count == 2

    run = story.pass_at(utc(11, 0, 30), ERROR)

    assert run == Attempt(scheduled_for=utc(11), attempt=1, trigger=Trigger.SCHEDULE, claimed_at=utc(11, 0, 30))
    assert story.job.retry_count == 1
    assert story.skips == []


def test_a_regular_time_that_comes_with_the_pass_overtakes_a_retry() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)

    run = story.pass_at(utc(11))

    assert run == Attempt(scheduled_for=utc(11), attempt=1, trigger=Trigger.SCHEDULE, claimed_at=utc(11))
    assert story.skips == []


def test_a_retry_before_the_regular_time_stays_a_retry() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)

    run = story.pass_at(utc(11) - 1)

    assert run is not None
    assert run.trigger is Trigger.RETRY
    assert story.job.state.next_run_at == utc(11)


def test_attempts_are_counted_only_while_one_is_to_be_repeated() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2))

    def attempts() -> tuple[int | None, int]:
        return story.job.state.retry_of, story.job.state.attempts

    story.pass_at(NOON + HOUR, ERROR)
    assert attempts() == (NOON + HOUR, 1)
    run = story.start_at(NOON + HOUR + MINUTE)
    assert attempts() == (None, 0)
    assert run is not None
    story.end_at(NOON + HOUR + MINUTE, run)
    assert attempts() == (None, 0)


# ---------------------------------------------------------------- jitter


def test_jitter_is_in_the_next_run_and_counts_from_the_grid() -> None:
    story = Story(Every("1h", jitter="10%"))
    expected = [story.job.schedule.jittered(NOON + k * HOUR, "default/a") for k in range(1, 25)]

    story.run_until(NOON + DAY + 6 * MINUTE)

    assert [run.scheduled_for for _, run in story.runs] == expected
    assert story.skips == []


# ---------------------------------------------------------------- the clock went back


def test_a_forgotten_backoff_leaves_a_row_for_the_occurrences_it_postponed() -> None:
    story = Story(Every("1h"))
    state = replace(story.job.state, next_run_at=NOON + 3 * HOUR, regular_at=NOON + HOUR)
    story.job = story.job.with_state(replace(state, forgotten_until=NOON + 3 * HOUR))

    assert story.start_at(NOON + 3 * HOUR) is None
    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + HOUR, missed=2)]
    assert story.job.state.next_run_at == NOON + 4 * HOUR


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
def test_missed_occurrences_count_even_if_the_clock_went_back_to_before_the_job_was_added(misfire: str) -> None:
    """The grid of an interval extends to both sides of its anchor."""
    job = a_job(Every("5m"), misfire=misfire, enabled=False)
    back, later = NOON - 150 * MINUTE, NOON + 72 * MINUTE

    resumed = job.with_state(resume(job, back).state)
    taken = claim(resumed, later, RULES)

    assert resumed.state.next_run_at == NOON - 145 * MINUTE
    (skip,) = taken.skips
    assert skip.missed + (taken.attempt is not None) == 44  # from 145 minutes before noon to 70 after it


def test_an_occurrence_that_ran_before_the_clock_went_back_gives_way_to_the_one_after_the_latest() -> None:
    job = a_job(Every("1h"))
    taken = claim(job, NOON + HOUR, RULES)

    state = ran_before(taken.job, job.state, NOON + 4 * HOUR, NOON + HOUR)

    assert (state.activity, state.next_run_at, state.last_run_at) == (Status.IDLE, NOON + 5 * HOUR, None)


# ---------------------------------------------------------------- a claim that is undone


def undone(story: Story, before: Job, run: Attempt | None) -> tuple[Transition, Micros]:
    """Undo the claim of *run*; *before* is the job as it was until then."""
    assert run is not None
    claimed = replace(story.job, description=before.description, anchor=before.anchor)
    return unclaim(story.job, claimed, before.state, run)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="a first run"),
        pytest.param([SUCCESS], id="a later run"),
        pytest.param([ERROR], id="a retry"),
        pytest.param([ERROR, ERROR], id="a later retry"),
    ],
)
def test_a_claim_that_is_undone_leaves_no_trace(before: list[Ending]) -> None:
    story = Story(Every("1h"), retry=Retry.in_window(3))
    for ending in before:
        story.pass_at(story.job.state.next_run_at or NOON, ending)
    job = story.job

    run = story.start_at(job.state.next_run_at or NOON)
    freed, _ = undone(story, job, run)

    assert (freed.job, freed.skips) == (job, ())


def test_a_triggered_run_that_is_undone_leaves_no_trace() -> None:
    story = Story(Every("1h"))
    job = story.job

    freed, _ = undone(story, job, story.trigger_at(NOON + 2 * HOUR))

    assert (freed.job, freed.skips) == (job, ())


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        pytest.param(pause, Status.PAUSED, SkipReason.PAUSED, id="paused"),
        pytest.param(partial(disable, reason="enough"), Status.DISABLED, SkipReason.DISABLED, id="disabled"),
    ],
)
def test_a_change_since_the_claim_acts_as_if_there_had_been_no_claim(
    change: Callable[..., Transition], status: Status, reason: SkipReason
) -> None:
    story, now = Story(Every("1h")), NOON + HOUR + SECOND
    job = story.job
    run = story.start_at(NOON + HOUR)
    story.change(change(story.job, now=now))
    story.job = replace(story.job, updated=now)

    freed, at = undone(story, job, run)

    assert freed.state == change(job, now=now).state
    assert (freed.job.status, at) == (status, now)
    assert freed.skips == (Skip(reason=reason, scheduled_for=NOON + HOUR, missed=1),)


def test_a_new_schedule_since_the_claim_holds_and_the_claimed_occurrence_leaves_a_row() -> None:
    story, now = Story(Every("1h")), NOON + HOUR + SECOND
    job = story.job
    run = story.start_at(NOON + HOUR)
    story.reschedule(Every("5m"), now)

    freed, at = undone(story, job, run)

    assert (freed.state.next_run_at, freed.job.status, at) == (now + 5 * MINUTE, Status.IDLE, now)
    assert freed.skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + HOUR, missed=1),)
