"""Every rule about what runs, what does not, and what comes next: tables, and a small simulated scheduler."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    InvalidJobError,
    Job,
    JobSpec,
    Manual,
    Outcome,
    Retry,
    Schedule,
    SkipReason,
    Status,
    Trigger,
)
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.rules.claiming import claim, claim_manually
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.rules.edits import add, disable, edit, edited_spec, pause, resume
from scheduler_async.rules.explaining import MAX_UPCOMING, decide, explain, upcoming
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.next_run import disabled
from scheduler_async.rules.terms import Room, Rules, Transition
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, to_micros

NOON = to_micros(datetime(2026, 1, 5, 12, tzinfo=UTC))
RULES = Rules()
OPEN = Room()

SUCCESS = Ending(outcome=Outcome.SUCCESS)
ERROR = Ending(outcome=Outcome.ERROR, error="ValueError: no")
INTERRUPTED = Ending(outcome=Outcome.INTERRUPTED)
CANCELLED = Ending(outcome=Outcome.CANCELLED)


def a_job(schedule: Schedule, now: Micros = NOON, **fields: Any) -> Job:
    return add(JobSpec(schedule, handler="h", id="a", **fields), id="a", handler="h", now=now)


def utc(hour: int, minute: int = 0, second: int = 0, day: int = 5) -> Micros:
    return to_micros(datetime(2026, 1, day, hour, minute, second, tzinfo=UTC))


def job_and_skips(change: Transition) -> tuple[Job, tuple[Skip, ...]]:
    return change.job, change.skips


def rescheduled(job: Job, now: Micros) -> Transition:
    return edit(job, edited_spec(job, {"schedule": Every("5m")}), handler="h", now=now)


class Story:
    """A job and what happens to it: a scheduler of one job, without a clock or a store."""

    def __init__(self, schedule: Schedule, *, now: Micros = NOON, rules: Rules = RULES, **fields: Any) -> None:
        self.rules = rules
        self.job = a_job(schedule, now, **fields)
        self.runs: list[tuple[Micros, Attempt]] = []
        self.skips: list[Skip] = []

    def pass_at(self, now: Micros, ending: Ending = SUCCESS, *, takes: Micros = 0) -> Attempt | None:
        """One look at the job; if it is due it runs, takes some time, and ends."""
        reason, _ = decide(self.job, now, OPEN, self.rules)
        if reason not in (None, SkipReason.MISFIRE):
            return None
        run = self.start_at(now)
        if run is not None:
            self.end_at(now + takes, run, ending)
        return run

    def start_at(self, now: Micros) -> Attempt | None:
        taken = claim(self.job, now, self.rules)
        self.job = replace(self.job, state=taken.state)
        self.skips += taken.skips
        if taken.attempt is not None:
            self.runs.append((now, taken.attempt))
        return taken.attempt

    def end_at(self, now: Micros, run: Attempt, ending: Ending = SUCCESS) -> None:
        change = after_run(self.job, run, ending, now, self.rules)
        self.job = replace(self.job, state=change.state)
        self.skips += change.skips

    def run_until(self, end: Micros, ending: Ending = SUCCESS, *, takes: Micros = 0) -> None:
        """What a loop does: wake at the next run, and again."""
        while (at := self.job.state.next_run_at) is not None and at <= end and self.job.state.phase is Phase.ACTIVE:
            assert self.pass_at(at, ending, takes=takes) is not None

    def started(self, unit: Micros = SECOND, since: Micros = NOON) -> list[float]:
        return [(at - since) / unit for at, _ in self.runs]


# ---------------------------------------------------------------- the tables of the seeds


def test_seed_000_backs_off_and_then_gives_up() -> None:
    story = Story(Every("10s"))

    story.run_until(NOON + DAY, ERROR)

    assert story.started() == [10, 40, 100, 400, 1300]
    assert story.job.status is Status.DISABLED
    assert story.job.consecutive_errors == 5
    assert story.job.disabled_reason == "5 failures in a row, the last: ValueError: no"
    assert [run.scheduled_for for _, run in story.runs] == [at for at, _ in story.runs]


def test_seed_000_resume_forgives() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)

    change = resume(story.job, NOON + DAY + SECOND)

    assert change.state.consecutive_errors == 0
    assert change.state.next_run_at == NOON + DAY + 10 * SECOND
    assert change.state.phase is Phase.ACTIVE
    assert change.state.last_error == "ValueError: no"


def test_seed_002_retries_within_the_window_and_renews_there() -> None:
    """An hourly task that always fails, with a pass every minute: 10:00, 10:01, 10:02, then 11:00."""
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))

    for minute in range(150):
        story.pass_at(utc(9, 30) + minute * MINUTE, ERROR)

    assert story.started(MINUTE, utc(10)) == [0, 1, 2, 60, 61, 62]
    assert [run.attempt for _, run in story.runs] == [1, 2, 3, 1, 2, 3]
    assert [run.trigger for _, run in story.runs] == ["schedule", "retry", "retry"] * 2
    assert [run.scheduled_for for _, run in story.runs] == [utc(10)] * 3 + [utc(11)] * 3
    assert story.job.status is Status.IDLE
    assert story.skips == []


def test_seed_002_a_pass_does_not_retry_what_it_ran_itself() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))

    assert story.pass_at(utc(10), ERROR)
    assert story.pass_at(utc(10), ERROR) is None


def test_seed_004_spends_its_budget_and_holds_for_the_rolling_day() -> None:
    story = Story(Every("1m", immediately=True), retry=Retry.budget())

    story.run_until(NOON + DAY - 1, ERROR)

    assert story.started(MINUTE) == [0, 2, 6, 14, 30]
    reason, until = decide(story.job, NOON + HOUR, OPEN, RULES)
    assert (reason, until) == (SkipReason.RETRIES_EXHAUSTED, NOON + DAY)

    story.run_until(NOON + DAY + 30 * MINUTE, ERROR)

    assert story.started(MINUTE) == [0, 2, 6, 14, 30, 1440, 1442, 1446, 1454, 1470]
    assert story.job.status is Status.IDLE


def test_seed_004_accounts_for_every_regular_time_it_held_back() -> None:
    story = Story(Every("1m", immediately=True), retry=Retry.budget())

    story.run_until(NOON + DAY, ERROR)

    assert [(skip.reason, skip.missed) for skip in story.skips] == [
        ("backoff", 2),
        ("backoff", 4),
        ("backoff", 8),
        ("backoff", 16),
        ("backoff", 1410),
    ]


def test_seed_003_runs_one_interval_after_completion() -> None:
    story = Story(Delay("5m"))

    story.run_until(NOON + 20 * MINUTE, takes=MINUTE)

    assert story.started(MINUTE) == [0, 6, 12, 18]
    assert story.skips == []


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
def test_seed_001_misfires(
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


def test_seed_001_an_at_in_the_past_follows_the_policy() -> None:
    past = At(from_micros(NOON - DAY))

    once, never = Story(past), Story(past, misfire="skip")
    ran, skipped = once.pass_at(NOON), never.pass_at(NOON)

    assert ran == Attempt(scheduled_for=NOON - DAY, attempt=1, trigger=Trigger.CATCH_UP, claimed_at=NOON)
    assert skipped is None
    assert never.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON - DAY, missed=1)]
    assert once.job.disabled_reason == never.job.disabled_reason == ENDED


# ---------------------------------------------------------------- missed runs


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


# ---------------------------------------------------------------- one at a time


def test_occurrences_that_pass_while_it_runs_merge_into_one_row() -> None:
    story = Story(Every("10s"))

    story.pass_at(NOON + 10 * SECOND, takes=35 * SECOND)

    assert story.skips == [Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 20 * SECOND, missed=3)]
    assert story.job.state.next_run_at == NOON + 50 * SECOND


def test_a_run_that_ends_exactly_on_an_occurrence_has_passed_it() -> None:
    story = Story(Every("10s"))

    story.pass_at(NOON + 10 * SECOND, takes=10 * SECOND)

    assert [skip.missed for skip in story.skips] == [1]
    assert story.job.state.next_run_at == NOON + 30 * SECOND


def test_a_claimed_job_is_not_claimed_again() -> None:
    story = Story(Every("10s"))
    story.start_at(NOON + 10 * SECOND)

    assert decide(story.job, NOON + HOUR, OPEN, RULES) == (SkipReason.ALREADY_RUNNING, None)
    assert story.job.status is Status.QUEUED
    assert story.job.next_run_at is None


# ---------------------------------------------------------------- outcomes


@pytest.mark.parametrize("outcome", ["success", "noop", "skipped"])
def test_what_is_no_failure_clears_the_count(outcome: str) -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.consecutive_errors == 1

    story.pass_at(NOON + 2 * HOUR, Ending(outcome=Outcome(outcome), message="Completed in 4.2s", exit_code=0))

    assert story.job.consecutive_errors == 0
    assert story.job.last_error == "ValueError: no"
    assert story.job.last_message == "Completed in 4.2s"
    assert story.job.last_exit_code == 0
    assert story.job.last_run_at == from_micros(NOON + 2 * HOUR)
    expected = None if outcome == "skipped" else from_micros(NOON + 2 * HOUR)
    assert story.job.last_success_at == expected


@pytest.mark.parametrize("outcome", ["error", "timeout"])
def test_a_failure_is_kept(outcome: str) -> None:
    story = Story(Every("1h"))

    story.pass_at(NOON + HOUR, Ending(outcome=Outcome(outcome)), takes=SECOND)

    assert story.job.consecutive_errors == 1
    assert story.job.last_error == outcome
    assert story.job.last_error_at == from_micros(NOON + HOUR + SECOND)
    assert story.job.last_success_at is None


def test_backoff_only_postpones() -> None:
    """An hourly job is due later than 30 seconds anyway: its next run is the regular one."""
    story = Story(Every("1h"))

    story.pass_at(NOON + HOUR, ERROR)

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.regular_at is None
    assert decide(story.job, NOON + HOUR, OPEN, RULES) == (SkipReason.NOT_DUE, NOON + 2 * HOUR)


def test_backoff_accounts_for_what_it_postponed() -> None:
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


def test_backoff_that_ends_with_a_regular_time_is_not_a_postponement() -> None:
    story = Story(Every("30s"))

    story.pass_at(NOON + 30 * SECOND, ERROR)

    assert story.job.state.next_run_at == NOON + 60 * SECOND
    assert story.job.state.regular_at is None


def test_a_regular_time_overtakes_a_retry_and_renews_the_budget() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)
    story.pass_at(utc(10, 1), ERROR)
    assert story.job.retry_count == 2

    run = story.pass_at(utc(11, 0, 30), ERROR)

    assert run == Attempt(scheduled_for=utc(11), attempt=1, trigger=Trigger.SCHEDULE, claimed_at=utc(11, 0, 30))
    assert story.job.retry_count == 1
    assert story.skips == []


def test_a_retry_before_the_regular_time_stays_a_retry() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)

    run = story.pass_at(utc(11) - 1)

    assert run is not None
    assert run.trigger is Trigger.RETRY
    assert story.job.state.next_run_at == utc(11)


def test_used_up_retries_are_told_and_end_with_the_next_regular_time() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(0))
    story.pass_at(utc(10), ERROR)

    assert decide(story.job, utc(10, 30), OPEN, RULES) == (SkipReason.RETRIES_EXHAUSTED, utc(11))


def test_no_retries_goes_on_as_if_nothing_had_happened() -> None:
    story = Story(Every("10s"), retry=Retry.none())

    story.run_until(NOON + 70 * SECOND, ERROR)

    assert story.started() == [10, 20, 30, 40, 50, 60, 70]
    assert story.job.consecutive_errors == 7


def test_a_handler_that_returns_false_disables_its_job() -> None:
    story = Story(Every("10s"))

    story.pass_at(NOON + 10 * SECOND, Ending(outcome=Outcome.SUCCESS, disable=True))

    assert story.job.status is Status.DISABLED
    assert story.job.disabled_reason == "its handler returned False"
    assert story.job.next_run_at is None
    assert story.job.last_success_at is not None


# ---------------------------------------------------------------- one-shots


def test_an_at_runs_once_and_has_ended() -> None:
    story = Story(At(from_micros(NOON + HOUR)))

    story.run_until(NOON + DAY)

    assert story.started(HOUR) == [1]
    assert story.job.status is Status.DISABLED
    assert story.job.disabled_reason == ENDED
    assert decide(story.job, NOON + DAY, OPEN, RULES) == (SkipReason.ENDED, None)


def test_an_at_that_fails_is_tried_once_and_keeps_its_error() -> None:
    story = Story(At(from_micros(NOON + HOUR)))

    story.run_until(NOON + DAY, ERROR)

    assert story.started(HOUR) == [1]
    assert story.job.disabled_reason == "its last run failed: ValueError: no"
    assert story.job.last_error == "ValueError: no"
    assert decide(story.job, NOON + DAY, OPEN, RULES)[0] is SkipReason.DISABLED


@pytest.mark.parametrize(
    ("retry", "minutes"),
    [
        pytest.param(Retry.backoff(), [0, 0.5, 1.5, 6.5, 21.5], id="backoff"),
        pytest.param(Retry.in_window(2), [0, 0, 0], id="in window"),
        pytest.param(Retry.budget(3), [0, 2, 6], id="budget"),
        pytest.param(Retry.none(), [0], id="none"),
    ],
)
def test_a_policy_given_for_an_at_is_honoured_first(retry: Retry, minutes: list[float]) -> None:
    story = Story(At(from_micros(NOON)), retry=retry)

    story.run_until(NOON + 10 * DAY, ERROR)

    assert story.started(MINUTE) == pytest.approx(minutes, abs=1e-6)
    assert [run.attempt for _, run in story.runs] == list(range(1, len(minutes) + 1))
    assert {run.scheduled_for for _, run in story.runs} == {NOON}
    assert story.job.status is Status.DISABLED


def test_a_failed_at_can_be_resumed_and_counts_its_attempts_on() -> None:
    story = Story(At(from_micros(NOON)), misfire="skip")
    story.pass_at(NOON, ERROR)

    story.job = replace(story.job, state=resume(story.job, NOON + DAY).state)
    run = story.pass_at(NOON + DAY)

    assert run == Attempt(scheduled_for=NOON, attempt=2, trigger=Trigger.RETRY, claimed_at=NOON + DAY)
    assert story.job.disabled_reason == ENDED


def test_an_end_ends_the_job() -> None:
    story = Story(Every("1h", end=from_micros(NOON + 2 * HOUR)))

    story.run_until(NOON + DAY)

    assert story.started(HOUR) == [1, 2]
    assert story.job.disabled_reason == ENDED


def test_a_last_run_that_fails_is_not_retried_past_the_end_by_default() -> None:
    story = Story(Every("1h", end=from_micros(NOON + HOUR)))

    story.run_until(NOON + DAY, ERROR)

    assert story.started(HOUR) == [1]
    assert story.job.disabled_reason == "its last run failed: ValueError: no"


# ---------------------------------------------------------------- crashes and cancellations


def test_an_interrupted_run_is_run_again_at_once() -> None:
    story = Story(Every("10s"))
    run = story.start_at(NOON + 10 * SECOND)
    assert run is not None

    story.end_at(NOON + 35 * SECOND, run, INTERRUPTED)
    again = story.pass_at(NOON + 35 * SECOND)

    assert again == Attempt(
        scheduled_for=NOON + 10 * SECOND, attempt=2, trigger=Trigger.RETRY, claimed_at=NOON + 35 * SECOND
    )
    assert story.skips == [Skip(reason=SkipReason.INTERRUPTED, scheduled_for=NOON + 20 * SECOND, missed=2)]
    assert story.job.consecutive_errors == 0
    assert story.job.last_error == "interrupted"
    assert story.job.state.next_run_at == NOON + 40 * SECOND


def test_an_interrupted_run_is_left_alone_if_the_job_says_so() -> None:
    story = Story(Every("1h"), on_interrupt="skip", retry=Retry.in_window(2))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON + HOUR + MINUTE, run, INTERRUPTED)

    assert story.job.consecutive_errors == 1
    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.retry_of is None


def test_an_interrupted_at_is_run_again_unless_the_job_says_no() -> None:
    again, never = Story(At(from_micros(NOON))), Story(At(from_micros(NOON)), on_interrupt="skip")
    for story in (again, never):
        run = story.start_at(NOON)
        assert run is not None
        story.end_at(NOON + MINUTE, run, INTERRUPTED)

    assert again.job.state.next_run_at == NOON + MINUTE
    assert again.job.state.attempts == 1
    assert never.job.status is Status.DISABLED


@pytest.mark.parametrize(
    "retry",
    [None, Retry.backoff(), Retry.none(), Retry.in_window(9), Retry.budget(9)],
    ids=lambda retry: str(retry and retry.kind),
)
@pytest.mark.parametrize("schedule", [Every("1h"), At(from_micros(NOON + HOUR)), Delay("1h")], ids=lambda s: s.kind)
def test_a_job_that_kills_its_process_every_time_is_given_up(schedule: Schedule, retry: Retry | None) -> None:
    story = Story(schedule, retry=retry)
    at = NOON + HOUR

    for number in range(5):
        run = story.start_at(at + number * SECOND)
        assert run is not None
        assert run.attempt == number + 1
        story.end_at(at + number * SECOND, run, INTERRUPTED)

    assert story.job.status is Status.DISABLED
    assert story.job.disabled_reason == "5 failures in a row, the last: interrupted"


def test_a_job_that_failed_before_is_not_given_up_for_one_interruption() -> None:
    story = Story(Every("1h"), retry=Retry.none())
    for number in range(1, 9):
        story.pass_at(NOON + number * HOUR, ERROR)
    run = story.start_at(NOON + 9 * HOUR)
    assert run is not None

    story.end_at(NOON + 9 * HOUR, run, INTERRUPTED)

    assert story.job.enabled
    assert story.job.state.next_run_at == NOON + 9 * HOUR


@pytest.mark.parametrize("between", [SUCCESS, ERROR, Ending(outcome=Outcome.SUCCESS, disable=True)], ids=str)
def test_only_interruptions_in_a_row_count(between: Ending) -> None:
    story = Story(Every("1h"), retry=Retry.none())
    for number in range(4):
        run = story.start_at(NOON + HOUR + number * SECOND)
        assert run is not None
        story.end_at(NOON + HOUR + number * SECOND, run, INTERRUPTED)
    assert story.job.state.interruptions == 4

    story.pass_at(NOON + HOUR + MINUTE, between)

    assert story.job.state.interruptions == 0


def test_a_cancelled_run_leaves_the_count_of_interruptions_alone_and_a_resumed_job_begins_anew() -> None:
    story = Story(Every("1h"), retry=Retry.none())
    for ending in (INTERRUPTED, CANCELLED):
        run = story.start_at(NOON + HOUR)
        assert run is not None
        story.end_at(NOON + HOUR, run, ending)
    assert story.job.state.interruptions == 1

    resumed = resume(story.job, NOON + HOUR)

    assert resumed.state.interruptions == 0


def test_a_cancelled_run_is_no_failure_and_is_owed_still() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR, ERROR)
    run = story.start_at(NOON + 2 * HOUR)
    assert run is not None

    story.end_at(NOON + 2 * HOUR + SECOND, run, CANCELLED)

    assert story.job.consecutive_errors == 1
    assert story.job.state.next_run_at == NOON + 2 * HOUR + SECOND
    assert story.job.state.retry_of == NOON + 2 * HOUR
    assert story.job.last_error == "ValueError: no"


def test_a_cancelled_run_that_must_not_run_again_goes_on() -> None:
    story = Story(Every("1h"), on_interrupt="skip")
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON + HOUR + SECOND, run, CANCELLED)

    assert story.job.state.next_run_at == NOON + 2 * HOUR


def test_an_occurrence_that_ran_is_not_run_again_when_the_clock_goes_back() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON + 30 * MINUTE, run)  # the clock went back by more than half an hour

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.skips == []


def test_a_run_that_ends_before_its_grid_began_goes_on_on_the_same_grid() -> None:
    """The clock went back by more than the job is old."""
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON - DAY + MINUTE, run)

    assert story.job.state.next_run_at == NOON - DAY + HOUR


# ---------------------------------------------------------------- triggers


def test_a_triggered_run_leaves_the_schedule_and_the_count_alone() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR, ERROR)
    before = story.job.state

    for ending in (ERROR, SUCCESS, INTERRUPTED, CANCELLED):
        taken = claim_manually(story.job, NOON + 90 * MINUTE)
        assert taken.attempt == Attempt(
            scheduled_for=NOON + 90 * MINUTE, attempt=1, trigger=Trigger.MANUAL, claimed_at=NOON + 90 * MINUTE
        )
        running = replace(story.job, state=taken.state)
        assert running.status is Status.QUEUED
        after = after_run(running, taken.attempt, ending, NOON + 91 * MINUTE, RULES).state
        assert (after.next_run_at, after.consecutive_errors, after.retry_count) == (before.next_run_at, 1, 0)
        assert after.activity is Status.IDLE
        assert after.last_run_at == NOON + 90 * MINUTE


def test_an_occurrence_that_passes_during_a_triggered_run_leaves_a_row() -> None:
    job = a_job(Every("1h"))
    taken = claim_manually(job, NOON + 50 * MINUTE)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + 61 * MINUTE, RULES)

    assert change.skips == (Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR, missed=1),)
    assert change.state.next_run_at == NOON + 2 * HOUR


def test_a_one_shot_that_comes_due_during_a_triggered_run_is_still_owed() -> None:
    job = a_job(At(from_micros(NOON + HOUR)))
    taken = claim_manually(job, NOON + 50 * MINUTE)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + 61 * MINUTE, RULES)

    assert change.skips == ()
    assert change.state.next_run_at == NOON + HOUR


def test_a_triggered_run_of_a_manual_job_leaves_it_waiting() -> None:
    job = a_job(Manual())
    taken = claim_manually(job, NOON)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + MINUTE, RULES)

    assert change.state.phase is Phase.ACTIVE
    assert change.state.next_run_at is None


# ---------------------------------------------------------------- adding


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


def test_jitter_is_in_the_next_run_and_counts_from_the_grid() -> None:
    story = Story(Every("1h", jitter="10%"))
    expected = [story.job.schedule.jittered(NOON + k * HOUR, "default/a") for k in range(1, 25)]

    story.run_until(NOON + DAY + 6 * MINUTE)

    assert [run.scheduled_for for _, run in story.runs] == expected
    assert story.skips == []


# ---------------------------------------------------------------- edits


def changed(job: Job, now: Micros, **changes: Any) -> Job:
    return edit(job, edited_spec(job, changes), handler=str(changes.get("handler", job.handler)), now=now).job


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


def test_an_edit_accounts_for_what_was_owed() -> None:
    job = a_job(Every("1h"))

    _, skips = job_and_skips(rescheduled(job, NOON + 3 * HOUR))

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + HOUR, missed=3),)


def test_an_edit_drops_a_pending_retry_but_not_the_count() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2))
    story.pass_at(NOON + HOUR, ERROR)

    job = changed(story.job, NOON + HOUR + MINUTE, schedule=Every("5m"))

    assert job.state.next_run_at == NOON + HOUR + 6 * MINUTE
    assert job.state.retry_of is None
    assert (job.consecutive_errors, job.retry_count) == (1, 0)


def test_a_finishing_run_does_not_overwrite_an_edit() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    edited, skips = job_and_skips(
        edit(story.job, edited_spec(story.job, {"schedule": Every("5m")}), handler="h", now=NOON + 3 * HOUR)
    )
    assert edited.state.next_run_at == NOON + 3 * HOUR + 5 * MINUTE
    assert skips == (Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 2 * HOUR, missed=2),)
    story.job = edited
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


def test_a_finished_at_is_not_replayed_by_adding_it_again() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    again = edit(story.job, edited_spec(story.job, {}), handler="h", now=NOON + HOUR).job
    tomorrow = edited_spec(story.job, {"schedule": At(from_micros(NOON + DAY))})
    later = edit(story.job, tomorrow, handler="h", now=NOON + HOUR).job

    assert (again.status, again.disabled_reason) == (Status.DISABLED, ENDED)
    assert (later.status, later.state.next_run_at) == (Status.IDLE, NOON + DAY)


def test_an_upsert_enables_what_was_disabled_but_not_what_is_paused() -> None:
    """An extension that cancels a job and schedules it again wants it; an operator's pause outlives a deployment."""
    job = a_job(Every("1h"))
    off = replace(job, state=disabled(job.state, "cancelled", NOON))
    paused = replace(job, state=pause(job, NOON).state)

    on = edit(off, edited_spec(off, {"enabled": True}), handler="h", now=NOON + 30 * MINUTE).job
    still = edit(paused, edited_spec(paused, {}), handler="h", now=NOON + 30 * MINUTE).job

    assert (on.status, on.state.next_run_at) == (Status.IDLE, NOON + HOUR)
    assert still.status is Status.PAUSED


def test_an_edit_does_not_enable_what_failed() -> None:
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


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(
        TypeError, match=r"Cannot change colour or id of a job\. Choose from schedule, handler, .* or enabled"
    ):
        edited_spec(a_job(Every("1h")), {"colour": "red", "id": "b"})
    with pytest.raises(TypeError, match="Cannot change colour of a job"):
        edited_spec(a_job(Every("1h")), {"colour": "red"})


# ---------------------------------------------------------------- pause and resume


def test_a_paused_stretch_is_not_missed_time() -> None:
    story = Story(Every("1h"))
    story.job = replace(story.job, state=pause(story.job, NOON + 10 * MINUTE).state)
    assert story.pass_at(NOON + 5 * HOUR) is None

    change = resume(story.job, NOON + 5 * HOUR + MINUTE)

    assert change.state.next_run_at == NOON + 6 * HOUR
    assert change.skips == ()


def test_a_short_pause_changes_nothing() -> None:
    job = a_job(Every("1h"))

    change = resume(replace(job, state=pause(job, NOON + MINUTE).state), NOON + 2 * MINUTE)

    assert change.state == job.state


def test_pausing_what_is_owed_leaves_a_row() -> None:
    change = pause(a_job(Every("1h")), NOON + 2 * HOUR)

    assert change.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR, missed=2),)
    assert change.state.next_run_at == NOON + 3 * HOUR


@pytest.mark.parametrize(
    "schedule", [At(from_micros(NOON + HOUR)), Delay("1h", immediately=False)], ids=["at", "delay"]
)
def test_what_comes_only_once_is_owed_after_a_pause(schedule: Schedule) -> None:
    job = a_job(schedule)

    paused = replace(job, state=pause(job, NOON + 2 * HOUR).state)
    resumed = resume(paused, NOON + 3 * HOUR)

    assert resumed.state.next_run_at is not None
    assert resumed.state.next_run_at <= NOON + 3 * HOUR
    assert decide(replace(job, state=resumed.state), NOON + 3 * HOUR, OPEN, RULES)[0] is None


def test_a_pause_during_a_run_lets_it_finish() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.job = replace(story.job, state=pause(story.job, NOON + HOUR + MINUTE).state)
    assert story.job.status == "queued"
    story.end_at(NOON + HOUR + 2 * MINUTE, run)

    assert story.job.status == "paused"
    assert story.job.state.next_run_at == NOON + 2 * HOUR


def test_a_resume_during_a_run_forgives_and_lets_it_finish() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR, ERROR)
    run = story.start_at(NOON + 2 * HOUR)
    assert run is not None

    story.job = replace(story.job, state=resume(story.job, NOON + 2 * HOUR + MINUTE).state)
    assert story.job.status is Status.QUEUED
    story.end_at(NOON + 2 * HOUR + 2 * MINUTE, run, ERROR)

    assert story.job.consecutive_errors == 1


def test_disabling_during_a_run_stays() -> None:
    story = Story(Every("10s"))
    run = story.start_at(NOON + 10 * SECOND)
    assert run is not None

    story.job = replace(story.job, state=disabled(story.job.state, "cancelled", NOON))
    story.end_at(NOON + 25 * SECOND, run)

    assert (story.job.status, story.job.disabled_reason, story.job.next_run_at) == (Status.DISABLED, "cancelled", None)
    assert [skip.reason for skip in story.skips] == ["already_running"]


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


def test_resume_of_what_has_ended_says_what_to_do_instead() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    with pytest.raises(InvalidJobError, match=r"update_job\(\), or run it once more with trigger_job"):
        resume(story.job, NOON + HOUR)


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


# ---------------------------------------------------------------- whether it would run


def failing(schedule: Schedule, retry: Retry) -> Job:
    story = Story(schedule, retry=retry)
    story.pass_at(story.job.state.next_run_at or NOON, ERROR)
    return story.job


DECISIONS: list[Any] = [
    pytest.param(lambda: a_job(Every("1h")), NOON, OPEN, "not_due", NOON + HOUR, id="not due"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR - 1, OPEN, "not_due", NOON + HOUR, id="a microsecond early"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, OPEN, None, None, id="due"),
    pytest.param(lambda: a_job(Every("1h"), enabled=False), NOON, OPEN, "disabled", None, id="disabled"),
    pytest.param(lambda: a_job(Every("1h", end=from_micros(NOON))), NOON, OPEN, "ended", None, id="ended"),
    pytest.param(
        lambda: replace(a_job(Every("1h")), state=pause(a_job(Every("1h")), NOON).state),
        NOON + HOUR,
        OPEN,
        "paused",
        None,
        id="paused",
    ),
    pytest.param(lambda: a_job(Manual()), NOON, OPEN, "manual_only", None, id="manual"),
    pytest.param(
        lambda: replace(a_job(Every("1h")), state=claim(a_job(Every("1h")), NOON + HOUR, RULES).state),
        NOON + HOUR,
        OPEN,
        "already_running",
        None,
        id="running",
    ),
    pytest.param(
        lambda: failing(Every("10s"), Retry.backoff()),
        NOON + 39 * SECOND,
        OPEN,
        "backoff",
        NOON + 40 * SECOND,
        id="backing off",
    ),
    pytest.param(
        lambda: failing(Every("10s"), Retry.budget(1)),
        NOON + HOUR,
        OPEN,
        "retries_exhausted",
        NOON + DAY + 10 * SECOND,
        id="budget spent",
    ),
    pytest.param(
        lambda: failing(Every("10s"), Retry.budget()),
        NOON + 11 * SECOND,
        OPEN,
        "backoff",
        NOON + 2 * MINUTE + 10 * SECOND,
        id="between retries",
    ),
    pytest.param(lambda: a_job(Every("1h"), misfire="skip"), NOON + 90 * MINUTE, OPEN, "misfire", None, id="misfire"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(stopping=True), "stopping", None, id="stopping"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(has_handler=False), "no_handler", None, id="no handler"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(free_in_group=0), "group_full", None, id="group full"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(free_in_group=1), None, None, id="room in the group"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(free_slots=0), "at_capacity", None, id="at capacity"),
    pytest.param(lambda: a_job(Every("1h")), NOON + HOUR, Room(free_slots=1), None, None, id="a free slot"),
    pytest.param(
        lambda: a_job(Every("1h")),
        NOON + HOUR,
        Room(free_slots=0, has_queue=True, free_in_queue=0),
        "queue_full",
        None,
        id="queue full",
    ),
    pytest.param(
        lambda: a_job(Every("1h")),
        NOON + HOUR,
        Room(free_slots=0, has_queue=True, free_in_queue=1),
        None,
        None,
        id="room in the queue",
    ),
]


@pytest.mark.parametrize(("job", "now", "room", "reason", "until"), DECISIONS)
def test_why_a_job_does_not_run(
    job: Callable[[], Job], now: Micros, room: Room, reason: str | None, until: Micros | None
) -> None:
    assert decide(job(), now, room, RULES) == (reason, until)


@pytest.mark.parametrize(("job", "now", "room", "reason", "until"), DECISIONS)
def test_every_reason_has_a_sentence(
    job: Callable[[], Job], now: Micros, room: Room, reason: str | None, until: Micros | None
) -> None:
    explanation = explain(job(), now, room, RULES)

    assert explanation.reason == reason
    assert explanation.until == (None if until is None else from_micros(until))
    assert str(explanation).startswith('Job "a" ')
    assert str(explanation).endswith(".")


@pytest.mark.parametrize(
    ("job", "now", "sentence"),
    [
        (
            a_job(Every("1h")),
            NOON + MINUTE,
            'Job "a" is not due: it runs every hour, next at 2026-01-05 13:00 UTC, in 59 minutes.',
        ),
        (
            failing(Every("10s"), Retry.backoff()),
            NOON + 11 * SECOND,
            (
                'Job "a" waits after 1 failure in a row (ValueError: no); the next attempt is '
                "at 2026-01-05 12:00:40 UTC, in 29 seconds."
            ),
        ),
        (
            a_job(Every("1h"), enabled=False),
            NOON,
            'Job "a" is disabled: it was added disabled. resume_job() enables it.',
        ),
        (
            a_job(Every("1h"), namespace="ext"),
            NOON + HOUR - 500,
            'Job "ext/a" is not due: it runs every hour, next at 2026-01-05 13:00 UTC, in less than a second.',
        ),
        (
            a_job(Every("1h")),
            NOON + 500_000,
            'Job "a" is not due: it runs every hour, next at 2026-01-05 13:00 UTC, in 59 minutes 59 seconds.',
        ),
    ],
)
def test_the_sentences_read_well(job: Job, now: Micros, sentence: str) -> None:
    assert str(explain(job, now, OPEN, RULES)) == sentence


# ---------------------------------------------------------------- previews


def preview(job: Job, now: Micros, window: Micros, room: Room = OPEN) -> list[tuple[float, tuple[str, ...]]]:
    """Minutes from *now* and warnings."""
    rows = upcoming(job, now, now + window, room, RULES)
    return [((to_micros(row.at) - now) / MINUTE, row.warnings) for row in rows]


def test_a_preview_shows_each_run_within_the_window() -> None:
    assert preview(a_job(Every("20m")), NOON, HOUR) == [(20, ()), (40, ()), (60, ())]
    assert preview(a_job(Every("20m")), NOON, HOUR - 1) == [(20, ()), (40, ())]
    assert preview(a_job(Every("2h")), NOON, HOUR) == []
    assert preview(a_job(At(from_micros(NOON + MINUTE))), NOON, HOUR) == [(1, ())]
    assert preview(a_job(Manual()), NOON, HOUR) == []
    assert preview(a_job(Every("20m"), enabled=False), NOON, HOUR) == []


def test_a_preview_knows_only_the_next_run_of_a_delay() -> None:
    assert preview(a_job(Delay("5m")), NOON, HOUR) == [(0, ())]


def test_a_preview_shows_what_is_due_now_first() -> None:
    late = preview(a_job(Every("20m")), NOON + 70 * MINUTE, HOUR)
    assert late == [(0, ("2 missed, skipped",)), (10, ()), (30, ()), (50, ())]

    skipping = preview(a_job(Every("20m"), misfire="skip"), NOON + 70 * MINUTE, HOUR)
    assert skipping == [(10, ()), (30, ()), (50, ())]


def test_a_preview_of_a_running_job_shows_what_comes_after() -> None:
    story = Story(Every("20m"))
    story.start_at(NOON + 20 * MINUTE)

    assert preview(story.job, NOON + 21 * MINUTE, 20 * MINUTE) == [(19, ())]


def test_a_preview_warns_of_retries_and_of_what_is_missing() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)

    rows = list(upcoming(story.job, utc(10, 1), utc(11), Room(has_handler=False), RULES))

    assert [row.at for row in rows] == [from_micros(utc(10, 1)), from_micros(utc(11))]
    assert rows[0].warnings == ("a retry, before the next regular time", 'no handler "h" is registered here')
    assert rows[0].retries_left == 1
    assert rows[0].job is story.job


def test_a_preview_warns_of_a_postponed_run_and_of_the_last_straw() -> None:
    story = Story(Every("10s"))
    for at in (10, 40, 100, 400):
        story.pass_at(NOON + at * SECOND, ERROR)

    rows = preview(story.job, NOON + 1299 * SECOND, 10 * SECOND)

    assert rows == [(1 / 60, ("postponed after failures", "disabled if it fails once more"))]


def test_a_preview_has_an_end() -> None:
    lines = preview(a_job(Every("1s")), NOON, DAY)
    assert len(lines) == MAX_UPCOMING + 1
    assert [warnings for _, warnings in lines[:-1] if warnings] == []
    assert lines[-1][1] == ("and so on: the preview lists at most 1,000 runs of a job",)


def test_a_preview_touches_nothing() -> None:
    job = a_job(Every("1s"))
    before = job.state

    list(upcoming(job, NOON + DAY, NOON + 2 * DAY, OPEN, RULES))

    assert job.state is before


# ---------------------------------------------------------------- boundaries


def test_what_has_ended_goes_on_with_the_new_schedule_it_is_given() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    job = changed(story.job, NOON + HOUR, schedule=At(from_micros(NOON + DAY)))
    same = changed(story.job, NOON + HOUR, priority="high")

    assert (job.status, job.state.next_run_at) == (Status.IDLE, NOON + DAY)
    assert (same.status, same.disabled_reason) == (Status.DISABLED, ENDED)


def test_a_pending_retry_of_the_last_occurrence_outlives_a_pause() -> None:
    end = from_micros(NOON + HOUR)
    story = Story(Every("1h", end=end), retry=Retry.in_window(2, delay="10m"))
    story.pass_at(NOON + HOUR, ERROR)

    paused = pause(story.job, NOON + HOUR + MINUTE)
    resumed = resume(replace(story.job, state=paused.state), NOON + HOUR + 2 * MINUTE)

    assert (resumed.state.next_run_at, resumed.state.retry_of) == (NOON + HOUR + 10 * MINUTE, NOON + HOUR)


def test_resuming_a_job_that_only_waits_its_turn_takes_nothing_from_it() -> None:
    change = resume(a_job(Every("1h")), NOON + 3 * HOUR)

    assert change.state.next_run_at == NOON + HOUR
    assert change.skips == ()


def test_a_job_resumed_exactly_at_its_regular_time_goes_on_with_the_next() -> None:
    job = a_job(Every("1h"))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + HOUR - 1).state.next_run_at == NOON + HOUR
    assert resume(paused, NOON + HOUR).state.next_run_at == NOON + 2 * HOUR


def test_a_wait_of_more_than_a_second_is_told_in_whole_seconds() -> None:
    job = a_job(Every("1h"))

    assert str(explain(job, NOON + HOUR - 1_500_000, OPEN, RULES)).endswith(", in 1 second.")
    assert str(explain(job, NOON + HOUR - 999_999, OPEN, RULES)).endswith(", in less than a second.")


def test_a_preview_at_the_very_moment_a_delay_ends_tells_what_it_passed_over() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    rows = preview(story.job, NOON + 40 * SECOND, 5 * SECOND)

    assert rows == [(0, ("postponed after failures", "2 missed, skipped"))]


def test_a_preview_includes_a_run_at_the_end_of_its_window() -> None:
    assert preview(a_job(Every("1h")), NOON, HOUR) == [(60, ())]
    assert preview(a_job(Every("1h")), NOON, HOUR - 1) == []


def test_a_regular_time_that_comes_with_the_pass_overtakes_a_retry() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))
    story.pass_at(utc(10), ERROR)

    run = story.pass_at(utc(11))

    assert run == Attempt(scheduled_for=utc(11), attempt=1, trigger=Trigger.SCHEDULE, claimed_at=utc(11))
    assert story.skips == []


def test_a_triggered_run_that_ends_exactly_on_an_occurrence_has_passed_it() -> None:
    job = a_job(Every("1h"))
    taken = claim_manually(job, NOON + 50 * MINUTE)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + HOUR, RULES)

    assert change.skips == (Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR, missed=1),)
    assert change.state.next_run_at == NOON + 2 * HOUR


def test_a_triggered_run_of_a_disabled_job_leaves_it_disabled() -> None:
    job = a_job(Every("1h"), enabled=False)
    taken = claim_manually(job, NOON + HOUR)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + 3 * HOUR, RULES)

    assert (change.state.phase, change.state.next_run_at) == (Phase.DISABLED, None)
    assert change.skips == ()


def test_pausing_at_the_very_moment_it_is_due_leaves_a_row() -> None:
    change = pause(a_job(Every("1h")), NOON + HOUR)

    assert change.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + HOUR, missed=1),)
    assert change.state.next_run_at == NOON + 2 * HOUR


def test_a_delay_that_ends_a_microsecond_after_a_regular_time_has_passed_it_over() -> None:
    story = Story(Every("10s"), retry=Retry.backoff([timedelta(seconds=10, microseconds=1)]))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    story.pass_at(NOON + 20 * SECOND + 1)

    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 20 * SECOND, missed=1)]


def test_skip_accounts_for_every_occurrence_of_the_finest_grid() -> None:
    story = Story(Every(timedelta(microseconds=1)), misfire="skip", rules=Rules(misfire_grace=0))

    run = story.pass_at(NOON + 3)

    assert run is not None
    assert run.scheduled_for == NOON + 3
    assert story.skips == [Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 1, missed=2)]


@pytest.mark.parametrize("retry", [Retry.in_window(2), Retry.budget(3)], ids=["in window", "budget"])
def test_a_success_gives_back_the_retries(retry: Retry) -> None:
    story = Story(Every("1h"), retry=retry)
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.retry_count == 1

    story.pass_at(NOON + HOUR + 2 * MINUTE)

    assert (story.job.retry_count, story.job.consecutive_errors, story.job.state.period_start) == (0, 0, None)
    (row,) = upcoming(story.job, NOON + HOUR + 3 * MINUTE, NOON + 2 * HOUR, OPEN, RULES)
    assert row.retries_left == retry.max_retries


def test_an_edit_of_an_idle_job_accounts_for_what_it_owes_as_missed() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)

    _, skips = job_and_skips(
        edit(story.job, edited_spec(story.job, {"schedule": Every("5m")}), handler="h", now=NOON + 3 * HOUR)
    )

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 2 * HOUR, missed=2),)


def test_an_edit_of_a_disabled_job_leaves_no_row() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)
    off = changed(story.job, NOON + HOUR + MINUTE, enabled=False)

    edited, skips = job_and_skips(
        edit(off, edited_spec(off, {"schedule": Every("5m")}), handler="h", now=NOON + 5 * HOUR)
    )

    assert skips == ()
    assert edited.status is Status.DISABLED


def test_an_edit_during_a_triggered_run_accounts_for_what_is_owed_as_missed() -> None:
    job = a_job(Every("1h"))
    running = replace(job, state=claim_manually(job, NOON + HOUR + MINUTE).state)

    _, skips = job_and_skips(
        edit(running, edited_spec(running, {"schedule": Every("5m")}), handler="h", now=NOON + 2 * HOUR)
    )

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + HOUR, missed=2),)


@pytest.mark.parametrize(
    "schedule", [At(from_micros(NOON + HOUR)), Delay("1h", immediately=False)], ids=["at", "delay"]
)
def test_pausing_what_comes_only_once_leaves_no_row(schedule: At | Delay) -> None:
    change = pause(a_job(schedule), NOON + 2 * HOUR)

    assert change.skips == ()
    assert change.state.next_run_at == NOON + HOUR


def test_a_regular_time_that_passed_before_a_retry_was_paused_is_accounted_for() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2, delay="2h"))
    story.pass_at(NOON + HOUR, ERROR)

    paused = pause(story.job, NOON + 2 * HOUR + MINUTE)
    resumed = resume(replace(story.job, state=paused.state), NOON + 2 * HOUR + 2 * MINUTE)

    assert paused.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + 2 * HOUR, missed=1),)
    assert paused.state.retry_of == NOON + HOUR
    assert resumed.skips == ()


def test_a_resume_during_a_run_leaves_what_comes_next_to_the_run() -> None:
    story = Story(Every("10s"))
    run = story.start_at(NOON + 10 * SECOND)
    assert run is not None

    story.job = replace(story.job, state=resume(story.job, NOON + 11 * SECOND).state)
    assert story.job.state.next_run_at is None
    story.end_at(NOON + 12 * SECOND, run, ERROR)

    assert story.job.state.next_run_at == NOON + 42 * SECOND


def test_a_resume_does_not_lose_an_occurrence_that_waits_for_its_jitter() -> None:
    job = a_job(Every("1h", jitter="10%"))
    due = job.schedule.jittered(NOON + HOUR, "default/a")
    assert due > NOON + HOUR + 1
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + HOUR + 1).state.next_run_at == due


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


def test_an_edit_of_a_given_up_job_forgets_its_attempts() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)
    assert story.job.state.attempts == 1

    edited = changed(story.job, NOON + DAY, schedule=Every("20s"))

    assert (edited.status, edited.state.retry_of, edited.state.attempts) == (Status.DISABLED, None, 0)


def test_a_full_group_is_named() -> None:
    job = a_job(Every("1h"), group="mail")

    sentence = str(explain(job, NOON + HOUR, Room(free_in_group=0), RULES))

    assert sentence == 'Job "a" is due, but its group "mail" is full; it starts when a slot frees.'


def test_an_edit_that_drops_the_retry_of_a_one_shot_leaves_no_row() -> None:
    story = Story(At(from_micros(NOON)), retry=Retry.in_window(2))
    story.pass_at(NOON, ERROR)

    _, skips = job_and_skips(
        edit(story.job, edited_spec(story.job, {"schedule": Every("5m")}), handler="h", now=NOON + HOUR)
    )

    assert skips == ()


def test_an_edit_that_drops_a_retry_accounts_for_the_regular_times_behind_it() -> None:
    story = Story(Every("1h"), retry=Retry.in_window(2, delay="5h"))
    story.pass_at(NOON + HOUR, ERROR)

    _, skips = job_and_skips(
        edit(story.job, edited_spec(story.job, {"schedule": Every("5m")}), handler="h", now=NOON + 3 * HOUR)
    )

    assert skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + 2 * HOUR, missed=2),)


def test_an_edit_can_change_the_handler() -> None:
    assert changed(a_job(Every("1h")), NOON, handler="other").handler == "other"


def test_a_new_schedule_for_what_has_ended_takes_the_reason_away() -> None:
    story = Story(At(from_micros(NOON)))
    story.pass_at(NOON)

    spec = edited_spec(story.job, {"schedule": At(from_micros(NOON + DAY))})
    edited = edit(story.job, spec, handler="h", now=NOON + HOUR).job

    assert (edited.status, edited.disabled_reason) == (Status.IDLE, None)


def test_an_edit_of_a_given_up_job_keeps_the_reason_it_was_given_up_for() -> None:
    story = Story(Every("10s"))
    story.run_until(NOON + DAY, ERROR)

    edited = changed(story.job, NOON + DAY, priority="high")

    assert edited.disabled_reason == "5 failures in a row, the last: ValueError: no"


def test_what_a_pause_has_accounted_for_is_not_accounted_for_again() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    paused = pause(story.job, NOON + 25 * SECOND)
    resumed = resume(replace(story.job, state=paused.state), NOON + 35 * SECOND)

    assert paused.skips == (Skip(reason=SkipReason.PAUSED, scheduled_for=NOON + 20 * SECOND, missed=1),)
    assert paused.state.regular_at is None
    assert resumed.skips == ()


def test_resume_forgets_the_reason_and_the_spent_retries() -> None:
    story = Story(Every("1h"), retry=Retry.budget(3, disable_after=2))
    story.run_until(NOON + DAY, ERROR)
    assert story.job.retry_count == 1
    assert story.job.state.period_start is not None

    state = resume(story.job, NOON + DAY).state

    assert (state.disabled_reason, state.retry_count, state.period_start) == (None, 0, None)


def test_a_delay_that_is_resumed_before_its_time_keeps_it() -> None:
    job = a_job(Delay("1h", immediately=False))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)

    assert resume(paused, NOON + 2 * MINUTE).state.next_run_at == NOON + HOUR


def test_a_delay_that_is_enabled_runs_at_once() -> None:
    job = a_job(Delay("1h"), enabled=False)

    assert resume(job, NOON + 5 * HOUR).state.next_run_at == NOON + 5 * HOUR


def test_disabling_a_postponed_job_leaves_nothing_to_account_for() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    off = changed(story.job, NOON + 15 * SECOND, enabled=False)

    assert off.state.regular_at is None
    assert resume(off, NOON + HOUR).skips == ()


def test_a_job_that_allows_no_retries_has_not_used_them_up_before_it_fails() -> None:
    job = a_job(Every("1h"), retry=Retry.in_window(0))

    assert decide(job, NOON, OPEN, RULES) == (SkipReason.NOT_DUE, NOON + HOUR)


def test_a_pause_during_a_postponed_run_does_not_account_for_the_delay_again() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)
    story.start_at(NOON + 40 * SECOND)
    assert [skip.missed for skip in story.skips] == [2]

    assert pause(story.job, NOON + 41 * SECOND).skips == ()


def test_a_job_that_must_not_be_rerun_after_a_crash_is_still_retried_after_an_error() -> None:
    story = Story(Every("1h"), on_interrupt="skip", retry=Retry.in_window(2))

    story.pass_at(NOON + HOUR, ERROR)

    assert (story.job.state.next_run_at, story.job.state.retry_of) == (NOON + HOUR + 1, NOON + HOUR)


def test_the_retries_of_the_scheduler_are_not_for_a_last_run() -> None:
    end = from_micros(NOON + HOUR)
    story = Story(Every("1h", end=end), rules=Rules(retry=Retry.in_window(2)))

    story.run_until(NOON + DAY, ERROR)

    assert story.started(HOUR) == [1]
    assert story.job.disabled_reason == "its last run failed: ValueError: no"


def test_an_edit_begins_a_new_period_of_a_budget() -> None:
    story = Story(Every("1h"), retry=Retry.budget())
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.state.period_start == NOON + HOUR

    assert changed(story.job, NOON + 2 * HOUR, schedule=Every("5m")).state.period_start is None


def test_a_job_that_ran_before_and_becomes_an_at_in_the_past_owes_that_run() -> None:
    story = Story(Every("1h"))
    story.pass_at(NOON + HOUR)

    edited = changed(story.job, NOON + 2 * HOUR, schedule=At(from_micros(NOON)))

    assert (edited.status, edited.state.next_run_at) == (Status.IDLE, NOON)


def test_a_resume_during_a_triggered_run_starts_the_schedule_afresh() -> None:
    job = a_job(Every("1h"))
    paused = replace(job, state=pause(job, NOON + MINUTE).state)
    running = replace(paused, state=claim_manually(paused, NOON + 5 * HOUR).state)

    assert resume(running, NOON + 5 * HOUR + MINUTE).state.next_run_at == NOON + 6 * HOUR


def test_a_resumed_at_keeps_the_time_of_its_retry() -> None:
    story = Story(At(from_micros(NOON)), retry=Retry.in_window(2, delay="10m"))
    story.pass_at(NOON, ERROR)
    paused = replace(story.job, state=pause(story.job, NOON + MINUTE).state)

    assert resume(paused, NOON + 2 * MINUTE).state.next_run_at == NOON + 10 * MINUTE


# ---------------------------------------------------------------- everything at once

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "fail", "crash", "cancel", "pause", "resume", "edit", "trigger"]),
        st.integers(0, 400),
        st.integers(0, 90),
    ),
    max_size=25,
)


@given(
    actions=ACTIONS,
    schedule=st.sampled_from([Every("30s"), Cron("* * * * *", tz="UTC"), Delay("20s"), Every("50s", jitter="10%")]),
    retry=st.sampled_from([None, Retry.in_window(2), Retry.budget(3, "5m"), Retry.none()]),
    misfire=st.sampled_from(["run_once", "skip"]),
)
def test_whatever_happens_the_rules_hold(
    actions: Iterable[tuple[str, int, int]], schedule: Schedule, retry: Retry | None, misfire: str
) -> None:
    """Attempts are never repeated, occurrences never run twice, and a job that may run has a next time."""
    story = Story(schedule, retry=retry, misfire=misfire)
    endings = {"pass": SUCCESS, "fail": ERROR, "crash": INTERRUPTED, "cancel": CANCELLED}
    now = NOON
    for action, wait, takes in actions:
        now += wait * SECOND
        ran = False
        if action in endings:
            ran = story.pass_at(now, endings[action], takes=takes * SECOND) is not None
            now += takes * SECOND
        elif action == "pause":
            story.job = replace(story.job, state=pause(story.job, now).state)
        elif action == "resume":
            story.job = replace(story.job, state=resume(story.job, now).state)
        elif action == "edit":
            story.job = changed(story.job, now, schedule=schedule if wait % 2 else Every("45s"))
        else:
            taken = claim_manually(story.job, now)
            assert taken.attempt is not None
            running = replace(story.job, state=taken.state)
            story.job = replace(story.job, state=after_run(running, taken.attempt, ERROR, now, RULES).state)

        state = story.job.state
        assert state.activity is Status.IDLE
        assert (state.next_run_at is None) == (state.phase is Phase.DISABLED)
        assert state.next_run_at is None or state.phase is Phase.PAUSED or state.next_run_at >= story.job.created
        if ran and state.phase is Phase.ACTIVE:
            assert state.next_run_at is not None
            assert state.next_run_at >= now
    attempts = [(run.scheduled_for, run.attempt) for _, run in story.runs]
    assert len(attempts) == len(set(attempts))
    assert all(at >= run.scheduled_for for at, run in story.runs)
    assert all(skip.missed > 0 for skip in story.skips)


# ---------------------------------------------------------------- much at once, during one run


GIVE_UP = Ending(outcome=Outcome.SUCCESS, disable=True)


class Meddled(Story):
    """A story in which people change the job while it runs."""

    def change(self, change: Transition) -> None:
        self.job = self.job.with_state(change.state)
        self.skips += change.skips

    def reschedule(self, schedule: Schedule, now: Micros, **changes: Any) -> None:
        spec = edited_spec(self.job, {"schedule": schedule, **changes})
        self.job, skips = job_and_skips(edit(self.job, spec, handler="h", now=now))
        self.skips += skips

    def trigger_at(self, now: Micros) -> Attempt:
        taken = claim_manually(self.job, now)
        assert taken.attempt is not None
        self.job = self.job.with_state(taken.state)
        return taken.attempt

    @property
    def missed(self) -> int:
        return sum(skip.missed for skip in self.skips)


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, GIVE_UP], ids=["succeeds", "fails", "gives up"])
@pytest.mark.parametrize("paused", [False, True], ids=["left alone", "paused again"])
def test_a_job_that_is_resumed_during_a_triggered_run_owes_what_passed_since(paused: bool, ending: Ending) -> None:
    """Each occurrence once: those before it was resumed came while it ran, too."""
    story = Meddled(Every("1m"))
    story.change(disable(story.job, "enough", NOON))
    run = story.trigger_at(NOON)
    story.change(resume(story.job, NOON + SECOND))
    if paused:
        story.change(pause(story.job, NOON + 3 * MINUTE))

    story.end_at(NOON + 4 * MINUTE, run, ending)

    assert story.missed == 4
    if ending.disable:
        assert story.job.status is Status.DISABLED
    else:
        assert story.job.status is (Status.PAUSED if paused else Status.IDLE)
        assert story.job.state.next_run_at == NOON + 5 * MINUTE


def test_what_was_disabled_and_edited_during_a_run_has_its_rows_once() -> None:
    """Edited, disabled and edited again, all while it runs: each step settles what passed before it, and no more."""
    story = Meddled(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(Every("2m"), NOON + 3 * MINUTE)  # two of the old schedule
    story.change(disable(story.job, "enough", NOON + 8 * MINUTE))  # two of the new one
    story.reschedule(Every("1m"), NOON + 20 * MINUTE)
    story.end_at(NOON + 30 * MINUTE, run)

    assert [skip.missed for skip in story.skips] == [2, 2]
    assert story.job.status is Status.DISABLED
    story.change(resume(story.job, NOON + 40 * MINUTE))
    assert story.job.state.next_run_at == NOON + 41 * MINUTE


def test_what_was_disabled_during_a_run_is_settled_when_that_ends() -> None:
    story = Meddled(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.change(disable(story.job, "enough", NOON + 3 * MINUTE))
    story.end_at(NOON + 5 * MINUTE, run)

    assert [skip.missed for skip in story.skips] == [4]


def test_what_was_edited_and_disabled_during_a_run_can_be_resumed_during_it() -> None:
    story = Meddled(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(Every("2m"), NOON + MINUTE)
    story.change(disable(story.job, "enough", NOON + 2 * MINUTE))
    story.change(resume(story.job, NOON + 4 * MINUTE))
    assert story.job.state.next_run_at == NOON + 5 * MINUTE
    story.end_at(NOON + 4 * MINUTE, run)

    assert story.skips == []
    assert story.job.state.next_run_at == NOON + 5 * MINUTE


def meddle(story: Meddled, how: str) -> None:
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
def test_who_gives_up_owes_what_others_owe_who_are_disabled_then(meddling: str, start: str) -> None:
    """The same occurrences, neither more nor fewer: to give up is to succeed, and to be disabled."""
    ways = []
    for ending in (GIVE_UP, SUCCESS):
        story = Meddled(Every("1m"))
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
    story = Meddled(schedule)
    story.change(disable(story.job, "enough", NOON))
    assert story.job.state.disabled_at == NOON

    story.change(resume(story.job, NOON + 30 * MINUTE))

    assert story.job.state.next_run_at == expected
    assert story.job.state.disabled_at is None


def test_what_a_paused_job_does_not_run_was_not_missed_when_it_is_disabled() -> None:
    story = Meddled(At(from_micros(NOON + HOUR)))
    story.change(pause(story.job, NOON))
    story.change(disable(story.job, "enough", NOON + 2 * HOUR))

    assert story.skips == []


@pytest.mark.parametrize(("now", "expected"), [(61, 65), (70, 65)], ids=["before it", "after it"])
def test_the_retry_of_the_last_occurrence_survives_a_resume(now: int, expected: int) -> None:
    """Nothing comes after it that could stand in for it."""
    story = Meddled(Every("1h", end=from_micros(NOON + HOUR)), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)
    story.change(pause(story.job, NOON + HOUR + SECOND))

    story.change(resume(story.job, NOON + now * MINUTE))

    assert story.job.state.next_run_at == NOON + expected * MINUTE
    assert story.job.state.retry_of == NOON + HOUR


def test_a_last_occurrence_that_failed_for_good_is_tried_again_at_once_when_it_is_resumed() -> None:
    story = Meddled(Every("1h", end=from_micros(NOON + HOUR)), retry=Retry.none(disable_after=1))
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.status is Status.DISABLED

    story.change(resume(story.job, NOON + 2 * HOUR))

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.retry_of == NOON + HOUR


def test_a_retry_gives_way_to_the_next_regular_time_when_its_job_is_resumed() -> None:
    """A clean slate: no failure is held against it, and none is made up for."""
    story = Meddled(Every("1h"), retry=Retry.in_window(1, delay="5m"))
    story.pass_at(NOON + HOUR, ERROR)

    story.change(resume(story.job, NOON + HOUR + SECOND))

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.job.state.retry_of is None


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, INTERRUPTED, CANCELLED], ids=lambda ending: ending.outcome.value)
def test_what_passes_of_a_new_schedule_during_the_run_is_not_caught_up_with(ending: Ending) -> None:
    story = Meddled(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Every("1m"), NOON + HOUR)
    story.end_at(NOON + HOUR + 10 * MINUTE + SECOND, run, ending)

    reason = SkipReason.INTERRUPTED if ending is INTERRUPTED else SkipReason.ALREADY_RUNNING
    assert story.skips == [Skip(reason=reason, scheduled_for=NOON + HOUR + MINUTE, missed=10)]
    assert story.job.state.next_run_at == NOON + HOUR + 11 * MINUTE
    assert story.job.state.retry_of is None


def test_each_schedule_that_a_job_has_during_a_run_leaves_a_row_of_its_own() -> None:
    story = Meddled(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Every("2m"), NOON + HOUR)
    story.reschedule(Every("1m"), NOON + HOUR + 5 * MINUTE)
    story.change(pause(story.job, NOON + HOUR + 7 * MINUTE))
    story.change(resume(story.job, NOON + HOUR + 8 * MINUTE))
    story.end_at(NOON + HOUR + 9 * MINUTE, run)

    assert story.skips == [
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR + 2 * MINUTE, missed=2),
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR + 6 * MINUTE, missed=4),
    ]


@pytest.mark.parametrize("moment", [-10, 5, 20], ids=["before the run", "during the run", "after the run"])
def test_a_job_that_becomes_a_one_shot_during_its_run_owes_that(moment: int) -> None:
    """Nothing comes after it that could stand in for it, and its misfire policy knows what to do."""
    story = Meddled(Every("1m"))
    run = story.start_at(NOON + MINUTE)
    assert run is not None

    story.reschedule(At(from_micros(NOON + moment * MINUTE)), NOON + MINUTE)
    story.end_at(NOON + 10 * MINUTE, run)

    assert story.skips == []
    assert story.job.state.next_run_at == NOON + moment * MINUTE


def test_a_job_that_becomes_a_delay_during_its_run_waits_from_the_end_of_that() -> None:
    story = Meddled(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.reschedule(Delay("5m"), NOON + HOUR + MINUTE)
    story.end_at(NOON + 2 * HOUR, run)

    assert story.job.state.next_run_at == NOON + 2 * HOUR + 5 * MINUTE
    assert story.skips == []


@pytest.mark.parametrize("ending", [SUCCESS, ERROR, INTERRUPTED, CANCELLED], ids=lambda ending: ending.outcome.value)
def test_a_job_that_becomes_manual_during_its_run_never_runs_by_itself(ending: Ending) -> None:
    story = Meddled(Every("1h"), retry=Retry.in_window(2))
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
    """Nothing failed, so that nothing is put off."""
    moment = NOON + HOUR
    story = Meddled(Every("1m"))
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
    assert {skip.reason for skip in story.skips} == {SkipReason.ALREADY_RUNNING}


def test_a_job_that_is_edited_while_it_is_disabled_and_triggered_owes_nothing() -> None:
    story = Meddled(Every("1m"))
    story.change(disable(story.job, "enough", NOON))
    run = story.trigger_at(NOON + SECOND)

    story.reschedule(Every("2m"), NOON + 10 * MINUTE)
    story.end_at(NOON + 20 * MINUTE, run)

    assert story.skips == []
    assert (story.job.status, story.job.state.next_run_at) == (Status.DISABLED, None)


def test_what_a_backoff_passed_over_before_a_triggered_run_is_told_from_what_came_during_it() -> None:
    story = Meddled(Every("1m"), retry=Retry.backoff(["5m"]))
    story.pass_at(NOON + MINUTE, ERROR)
    assert story.job.state.next_run_at == NOON + 6 * MINUTE

    run = story.trigger_at(NOON + 5 * MINUTE)
    story.end_at(NOON + 7 * MINUTE, run)

    assert story.skips == [
        Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 2 * MINUTE, missed=4),
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 6 * MINUTE, missed=2),
    ]


MEDDLING = st.lists(
    st.tuples(
        st.sampled_from(["pause", "resume", "disable", "edit", "edit", "edit and disable"]),
        st.integers(1, 300),
        st.sampled_from(
            [
                Every("1m"),
                Every("40s", jitter="35s"),
                Every("1m", end=from_micros(NOON + 20 * MINUTE)),
                Cron("* * * * *", tz="UTC"),
                Cron("* * * * *", tz="UTC", jitter="1m"),
                Delay("50s"),
                At(from_micros(NOON + 8 * MINUTE)),
                Manual(),
            ]
        ),
    ),
    max_size=8,
)


@given(
    start=st.sampled_from(["by its schedule", "late", "by hand", "by hand while paused", "by hand while disabled"]),
    meddling=MEDDLING,
    takes=st.integers(1, 300),
    ending=st.sampled_from([SUCCESS, ERROR, INTERRUPTED, CANCELLED, GIVE_UP]),
    retry=st.sampled_from([None, Retry.in_window(1, delay="3m"), Retry.budget(3, "10m"), Retry.none()]),
)
def test_whatever_is_done_to_a_job_while_it_runs_each_occurrence_has_its_row_once(
    start: str, meddling: Iterable[tuple[str, int, Schedule]], takes: int, ending: Ending, retry: Retry | None
) -> None:
    """Each schedule that it has meanwhile answers for the time that it was in force, and for no other."""
    story = Meddled(Every("1m"), retry=retry)
    now = NOON + (3 if start == "late" else 1) * MINUTE
    if start.startswith("by hand"):
        now -= 30 * SECOND
        if start != "by hand":
            story.change((pause if "paused" in start else partial(disable, reason="enough"))(story.job, now=now))
        run: Attempt | None = story.trigger_at(now + 1)
    else:
        run = story.start_at(now)
    assert run is not None
    story.skips.clear()
    began = run.claimed_at
    was_away: list[tuple[Micros, Micros]] = []

    def pass_time(seconds: int) -> None:
        nonlocal now
        if story.job.state.phase is not Phase.ACTIVE:
            was_away.append((now, now + seconds * SECOND))
        now += seconds * SECOND

    def settle(job: Job, rows: Iterable[Skip], until: Micros) -> None:
        """The schedule of *job* was in force since its anchor: until now, or as long as something is owed."""
        if isinstance(job.schedule, At | Delay):
            return  # which is owed still, and leaves a row whenever it is disabled or edited
        in_force = [at for at in occurrences(job, until) if at > max(began, job.anchor)]
        assert all(skip.reason in MEANWHILE for skip in rows)
        told = [at for skip in rows for at in expanded(skip, occurrences(job, now + DAY))]
        assert len(told) == len(set(told)), "a row too many"
        assert all(at in in_force for at in told), "a row of another time"
        left = [at for at in in_force if at not in told and not any(a < at <= b for a, b in was_away)]
        assert not left, "a row too few"

    for action, wait, schedule in meddling:
        pass_time(wait)
        if action == "pause":
            story.change(pause(story.job, now))
        elif action == "disable":
            story.change(disable(story.job, "enough", now))
        elif action == "resume" and story.job.state.disabled_reason != ENDED:
            story.change(resume(story.job, now))
        elif action.startswith("edit") and schedule != story.job.schedule:
            before = story.job
            story.reschedule(schedule, now, **({"enabled": False} if "disable" in action else {}))
            settle(before, story.skips, now)
            story.skips.clear()
    pass_time(takes)
    was_edited = story.job.anchor > NOON
    story.end_at(now, run, ending)

    settle(story.job, story.skips, now)
    state = story.job.state
    assert state.activity is Status.IDLE
    if state.phase is Phase.DISABLED:
        assert (state.next_run_at, state.regular_at) == (None, None)
        return
    assert was_edited <= (state.retry_of is None)
    assert (state.regular_at is not None) <= (state.consecutive_errors > 0 or ending is CANCELLED)
    if not isinstance(story.job.schedule, At | Delay | Manual):
        owed_from = state.next_run_at if state.regular_at is None else state.regular_at
        assert owed_from == occurrences(story.job, now + DAY)[len(occurrences(story.job, now))]


MEANWHILE = (SkipReason.ALREADY_RUNNING, SkipReason.INTERRUPTED)


def expanded(skip: Skip, moments: list[Micros]) -> list[Micros]:
    """The occurrences among *moments* that a row stands for."""
    first = moments.index(skip.scheduled_for)
    return moments[first : first + skip.missed]


# ---------------------------------------------------------------- what must not be run again

SKIPPED = [
    Every("1m"),
    Every("1m", jitter="10s"),
    Every("1m", end=from_micros(NOON + MINUTE)),
    Cron("* * * * *", tz="UTC"),
    Delay("30s", immediately=False),
    At(from_micros(NOON + MINUTE)),
    At(from_micros(NOON + MINUTE), jitter="10s"),
]
SKIPPED_RETRIES = [
    None,
    Retry.backoff(),
    Retry.backoff(["10m"], disable_after=None),
    Retry.in_window(3),
    Retry.in_window(3, delay="5m"),
    Retry.budget(3, "1d"),
    Retry.budget(1, "1d"),
    Retry.none(),
]


@pytest.mark.parametrize("failures", [0, 1], ids=["at the first attempt", "after a failure"])
@pytest.mark.parametrize("retry", SKIPPED_RETRIES, ids=lambda retry: "default" if retry is None else retry.describe())
@pytest.mark.parametrize("schedule", SKIPPED, ids=lambda schedule: schedule.describe())
def test_what_was_interrupted_and_must_not_run_again_does_not(
    schedule: Schedule, retry: Retry | None, failures: int
) -> None:
    """Whatever its schedule and its policy for failures."""
    story = Story(schedule, retry=retry, on_interrupt="skip")
    for ending in [ERROR] * failures + [INTERRUPTED]:
        at = story.job.state.next_run_at
        if at is None:
            return  # the first failure was its last
        assert story.pass_at(at, ending, takes=SECOND) is not None

    story.run_until(NOON + HOUR)

    _, interrupted = story.runs[failures]
    assert interrupted.scheduled_for not in {later.scheduled_for for _, later in story.runs[failures + 1 :]}
    is_last = isinstance(schedule, At) or schedule.end is not None
    assert (story.job.status is Status.DISABLED) == is_last


def test_an_interruption_that_spends_the_budget_holds_a_job_that_must_not_run_again() -> None:
    story = Story(Every("1h"), retry=Retry.budget(1, "1d"), on_interrupt="skip")
    story.pass_at(NOON + HOUR, INTERRUPTED)

    assert decide(story.job, NOON + 2 * HOUR, OPEN, RULES) == (SkipReason.RETRIES_EXHAUSTED, NOON + 25 * HOUR)
    assert (story.job.state.retry_of, story.job.state.regular_at) == (None, NOON + 2 * HOUR)


# ---------------------------------------------------------------- jitter

JITTERED = [
    Every("1m", jitter="50s"),
    Every("1m", jitter="10h"),  # as late as it can be: a microsecond before the next
    Every("20s", jitter="10%", start=from_micros(NOON + 70 * SECOND), end=from_micros(NOON + 40 * MINUTE)),
    Every("1m", anchor=from_micros(NOON + 90 * SECOND), jitter="30s"),
    Cron("*/2 * * * *", tz="UTC", jitter="2m"),
    Cron("10,15,50 * * * * *", tz="UTC", jitter="20s"),
    At(from_micros(NOON + 5 * MINUTE), jitter="3m"),
    Every("1m"),
]


def occurrences(job: Job, until: Micros) -> list[Micros]:
    """All regular times of a job up to *until*: one after another, each with its jitter."""
    found, at = [], job.anchor
    while (following := job.schedule.next_micros(at, job.anchor)) is not None and following <= until:
        at = following
        found.append(job.schedule.jittered(at, job.key))
    return [moment for moment in found if moment <= until]


def covered(story: Story, moments: list[Micros]) -> list[tuple[Micros, SkipReason | None]]:
    """Each of *moments* that ran, or that a row stands for, with its reason."""
    ran = [run.scheduled_for for _, run in story.runs if run.attempt == 1 and run.trigger is not Trigger.MANUAL]
    found: list[tuple[Micros, SkipReason | None]] = [(at, None) for at in ran if at in moments]
    for skip in story.skips:
        is_regular = skip.scheduled_for in moments  # or the moment to which a failure had put a run off
        first = bisect_left(moments, skip.scheduled_for)
        found += [(at, skip.reason) for at in moments[first : first + skip.missed - (not is_regular)]]
    return found


@given(
    schedule=st.sampled_from(JITTERED),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["pass", "pass", "fail", "crash", "cancel", "trigger"]),
            st.sampled_from([0, 0, 1]).flatmap(lambda late: st.integers(0, 400 * late)),
            st.integers(0, 150),
        ),
        max_size=25,
    ),
    retry=st.sampled_from([None, Retry.in_window(2), Retry.budget(3, "5m"), Retry.none(), Retry.backoff(["70s"])]),
    misfire=st.sampled_from(["run_once", "skip"]),
)
def test_with_jitter_every_occurrence_is_run_or_accounted_for_once(
    schedule: Schedule, steps: Iterable[tuple[str, int, int]], retry: Retry | None, misfire: str
) -> None:
    """An occurrence belongs to its jittered time: it is left out for a run only if it came during that run."""
    story = Meddled(schedule, retry=retry, misfire=misfire)
    endings = {"pass": SUCCESS, "fail": ERROR, "crash": INTERRUPTED, "cancel": CANCELLED}
    spans: list[tuple[Micros, Micros]] = []
    now = NOON
    for action, late, takes in steps:
        following = story.job.state.next_run_at
        if following is None:
            break
        if action == "trigger":
            now += late * SECOND
            run: Attempt | None = story.trigger_at(now)
        else:
            now = max(now, following) + late * SECOND
            run = story.start_at(now)
        if run is not None:
            spans.append((now, now + takes * SECOND))
            now += takes * SECOND
            story.end_at(now, run, endings.get(action, SUCCESS))

    moments = occurrences(story.job, now + DAY)
    found = covered(story, moments)
    state = story.job.state
    owed_from = state.regular_at if state.retry_of is not None or state.regular_at is not None else state.next_run_at
    if owed_from is None:
        owed_from = moments[-1] + 1 if not state.disabled_reason or state.disabled_reason == ENDED else now + 1
    assert sorted(at for at, _ in found) == [at for at in moments if at < owed_from]
    for at, reason in found:
        if reason is SkipReason.ALREADY_RUNNING:
            assert any(start <= at <= end for start, end in spans)
    for _, attempt in story.runs:
        assert attempt.attempt > 1 or attempt.scheduled_for in moments or retry is None or retry.kind == "backoff"


def test_a_job_with_jitter_rarely_meets_itself() -> None:
    """Runs of 20 s in a grid of a minute with up to 50 s of jitter: two come within 20 s of each other now and then."""
    story = Story(Every("1m", jitter="50s"))
    moments = occurrences(story.job, NOON + 360 * MINUTE)
    meet = sum(later - earlier <= 20 * SECOND for earlier, later in pairwise(moments))

    story.run_until(NOON + 360 * MINUTE, takes=20 * SECOND)

    assert sum(skip.missed for skip in story.skips) == meet
    assert meet <= 0.02 * 360
    assert len(story.runs) == len(moments) - meet


def test_an_occurrence_from_before_the_job_is_not_waited_for() -> None:
    """Its jitter would end after the job was added or edited; the occurrence itself belongs to no job."""
    hourly = Cron("0 * * * *", tz="UTC", jitter="59m")
    job = a_job(hourly, now=NOON + SECOND)
    assert hourly.jittered(NOON, job.key) > NOON + MINUTE
    first = hourly.jittered(NOON + HOUR, job.key)

    resumed = resume(job.with_state(disable(job, "enough", NOON + SECOND).state), NOON + MINUTE)
    edited = changed(a_job(Every("1m")), NOON + SECOND, schedule=hourly)

    assert job.state.next_run_at == resumed.state.next_run_at == edited.state.next_run_at == first


# ---------------------------------------------------------------- the clock goes back


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


def test_what_a_forgotten_delay_stood_before_is_told() -> None:
    story = Story(Every("1h"))
    state = replace(story.job.state, next_run_at=NOON + 3 * HOUR, regular_at=NOON + HOUR)
    story.job = story.job.with_state(replace(state, forgotten_until=NOON + 3 * HOUR))

    assert story.start_at(NOON + 3 * HOUR) is None
    assert story.skips == [Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + HOUR, missed=2)]
    assert story.job.state.next_run_at == NOON + 4 * HOUR


@pytest.mark.parametrize(("by_hand", "errors"), [(False, 0), (True, 2)], ids=["by its schedule", "by hand"])
def test_who_gives_up_has_not_failed(by_hand: bool, errors: int) -> None:
    """A run that somebody asked for leaves the count of failures alone, as always."""
    story = Meddled(Every("1h"), retry=Retry.none())
    story.run_until(NOON + 2 * HOUR, ERROR)
    assert story.job.consecutive_errors == 2

    if by_hand:
        story.end_at(NOON + 150 * MINUTE, story.trigger_at(NOON + 150 * MINUTE), GIVE_UP)
    else:
        story.pass_at(NOON + 3 * HOUR, GIVE_UP)

    assert story.job.disabled_reason == "its handler returned False"
    assert story.job.consecutive_errors == errors


def test_nothing_is_due_by_a_clock_that_is_not_believed() -> None:
    job = a_job(Every("1h", immediately=True))
    room = Room(clock_is_believed=False)

    assert decide(job, NOON, room, RULES) == (SkipReason.NOT_DUE, None)
    assert "more than a year" in str(explain(job, NOON, room, RULES))


def test_an_explanation_tells_moments_on_the_clock_of_the_reader() -> None:
    explanation = explain(a_job(At(from_micros(NOON + HOUR))), NOON, OPEN, RULES, ZoneInfo("Europe/Stockholm"))

    moment = "2026-01-05 14:00 CET"
    assert str(explanation) == f'Job "a" is not due: it runs once at {moment}, next at {moment}, in 1 hour.'


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
def test_what_was_missed_is_counted_from_before_the_job_was_added_if_the_clock_went_back_so_far(misfire: str) -> None:
    """It was disabled then, and resumed: its grid goes on to both sides of where it began."""
    job = a_job(Every("5m"), misfire=misfire, enabled=False)
    back, later = NOON - 150 * MINUTE, NOON + 72 * MINUTE

    resumed = job.with_state(resume(job, back).state)
    taken = claim(resumed, later, RULES)

    assert resumed.state.next_run_at == NOON - 145 * MINUTE
    (skip,) = taken.skips
    assert skip.missed + (taken.attempt is not None) == 44  # from 145 minutes before noon to 70 after it
