"""What a run leaves behind: counters, retries, rows and the next run."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Manual, Outcome, Retry, Schedule, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.rules.claiming import claim_manually
from scheduler_async.rules.edits import resume
from scheduler_async.rules.explaining import decide, upcoming
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, from_micros
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
    occurrences,
    utc,
)

# ---------------------------------------------------------------- policies


def test_failures_back_off_and_then_disable_the_job() -> None:
    story = Story(Every("10s"))

    story.run_until(NOON + DAY, ERROR)

    assert story.started() == [10, 40, 100, 400, 1300]
    assert story.job.status is Status.DISABLED
    assert story.job.consecutive_errors == 5
    assert story.job.disabled_reason == "5 failures in a row, the last: ValueError: no"
    assert [run.scheduled_for for _, run in story.runs] == [at for at, _ in story.runs]


def test_retries_in_the_window_are_renewed_by_the_next_regular_time() -> None:
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


def test_a_pass_does_not_retry_a_run_of_its_own() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(2))

    assert story.pass_at(utc(10), ERROR)
    assert story.pass_at(utc(10), ERROR) is None


def test_a_spent_budget_holds_the_job_for_the_rolling_day() -> None:
    story = Story(Every("1m", immediately=True), retry=Retry.budget())

    story.run_until(NOON + DAY - 1, ERROR)

    assert story.started(MINUTE) == [0, 2, 6, 14, 30]
    reason, until = decide(story.job, NOON + HOUR, OPEN, RULES)
    assert (reason, until) == (SkipReason.RETRIES_EXHAUSTED, NOON + DAY)

    story.run_until(NOON + DAY + 30 * MINUTE, ERROR)

    assert story.started(MINUTE) == [0, 2, 6, 14, 30, 1440, 1442, 1446, 1454, 1470]
    assert story.job.status is Status.IDLE


def test_a_budget_accounts_for_every_regular_time_it_held_back() -> None:
    story = Story(Every("1m", immediately=True), retry=Retry.budget())

    story.run_until(NOON + DAY, ERROR)

    assert [(skip.reason, skip.missed) for skip in story.skips] == [
        ("backoff", 2),
        ("backoff", 4),
        ("backoff", 8),
        ("backoff", 16),
        ("backoff", 1410),
    ]


def test_a_delay_counts_from_the_end_of_the_run() -> None:
    story = Story(Delay("5m"))

    story.run_until(NOON + 20 * MINUTE, takes=MINUTE)

    assert story.started(MINUTE) == [0, 6, 12, 18]
    assert story.skips == []


# ---------------------------------------------------------------- outcomes


@pytest.mark.parametrize("outcome", ["success", "noop", "skipped"])
def test_every_other_outcome_clears_the_failure_count(outcome: str) -> None:
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
def test_a_failure_is_counted_and_recorded(outcome: str) -> None:
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


def test_backoff_that_ends_with_a_regular_time_is_not_a_postponement() -> None:
    story = Story(Every("30s"))

    story.pass_at(NOON + 30 * SECOND, ERROR)

    assert story.job.state.next_run_at == NOON + 60 * SECOND
    assert story.job.state.regular_at is None


def test_without_retries_the_schedule_goes_on_after_failures() -> None:
    story = Story(Every("10s"), retry=Retry.none())

    story.run_until(NOON + 70 * SECOND, ERROR)

    assert story.started() == [10, 20, 30, 40, 50, 60, 70]
    assert story.job.consecutive_errors == 7


@pytest.mark.parametrize("retry", [Retry.in_window(2), Retry.budget(3)], ids=["in window", "budget"])
def test_a_success_gives_back_the_retries(retry: Retry) -> None:
    story = Story(Every("1h"), retry=retry)
    story.pass_at(NOON + HOUR, ERROR)
    assert story.job.retry_count == 1

    story.pass_at(NOON + HOUR + 2 * MINUTE)

    assert (story.job.retry_count, story.job.consecutive_errors, story.job.state.period_start) == (0, 0, None)
    (row,) = upcoming(story.job, NOON + HOUR + 3 * MINUTE, NOON + 2 * HOUR, OPEN, RULES)
    assert row.retries_left == retry.max_retries


def test_a_handler_that_returns_false_disables_its_job() -> None:
    story = Story(Every("10s"))

    story.pass_at(NOON + 10 * SECOND, Ending(outcome=Outcome.SUCCESS, disable=True))

    assert story.job.status is Status.DISABLED
    assert story.job.disabled_reason == "its handler returned False"
    assert story.job.next_run_at is None
    assert story.job.last_success_at is not None


@pytest.mark.parametrize(("by_hand", "errors"), [(False, 0), (True, 2)], ids=["by its schedule", "by hand"])
def test_giving_up_is_not_a_failure(by_hand: bool, errors: int) -> None:
    """A triggered run leaves the failure count alone, however it ends."""
    story = Story(Every("1h"), retry=Retry.none())
    story.run_until(NOON + 2 * HOUR, ERROR)
    assert story.job.consecutive_errors == 2

    if by_hand:
        story.end_at(NOON + 150 * MINUTE, story.trigger_at(NOON + 150 * MINUTE), GIVE_UP)
    else:
        story.pass_at(NOON + 3 * HOUR, GIVE_UP)

    assert story.job.disabled_reason == "its handler returned False"
    assert story.job.consecutive_errors == errors


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


def test_runs_of_a_job_with_jitter_rarely_overlap_its_next_occurrence() -> None:
    """With runs of 20 s every minute and up to 50 s of jitter, few occurrences come within 20 s of each other."""
    story = Story(Every("1m", jitter="50s"))
    moments = occurrences(story.job, NOON + 360 * MINUTE)
    meet = sum(later - earlier <= 20 * SECOND for earlier, later in pairwise(moments))

    story.run_until(NOON + 360 * MINUTE, takes=20 * SECOND)

    assert sum(skip.missed for skip in story.skips) == meet
    assert meet <= 0.02 * 360
    assert len(story.runs) == len(moments) - meet


# ---------------------------------------------------------------- one-shots and ends


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
def test_an_at_follows_its_own_policy_before_it_is_given_up(retry: Retry, minutes: list[float]) -> None:
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


def test_the_retries_of_the_scheduler_are_not_for_a_last_run() -> None:
    end = from_micros(NOON + HOUR)
    story = Story(Every("1h", end=end), rules=Rules(retry=Retry.in_window(2)))

    story.run_until(NOON + DAY, ERROR)

    assert story.started(HOUR) == [1]
    assert story.job.disabled_reason == "its last run failed: ValueError: no"


# ---------------------------------------------------------------- interruptions and cancellations


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


def test_a_cancelled_run_is_not_a_failure_and_is_still_owed() -> None:
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
def test_an_interrupted_occurrence_that_must_not_run_again_does_not(
    schedule: Schedule, retry: Retry | None, failures: int
) -> None:
    """That holds for every schedule and every retry policy."""
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


def test_a_job_that_must_not_be_rerun_after_a_crash_is_still_retried_after_an_error() -> None:
    story = Story(Every("1h"), on_interrupt="skip", retry=Retry.in_window(2))

    story.pass_at(NOON + HOUR, ERROR)

    assert (story.job.state.next_run_at, story.job.state.retry_of) == (NOON + HOUR + 1, NOON + HOUR)


@pytest.mark.parametrize("misfire", ["run_once", "skip", "run_all"])
@pytest.mark.parametrize("delay", ["5m", "7m"])
def test_a_retry_whose_delay_reaches_the_next_regular_time_does_not_postpone_it(delay: str, misfire: str) -> None:
    """The job would wait for a retry that never comes, and its next occurrence would be called a misfire."""
    story = Story(Every("5m"), retry=Retry.in_window(2, delay=delay), misfire=misfire)

    story.run_until(NOON + 15 * MINUTE, ERROR)

    assert story.started(MINUTE) == [5, 10, 15]
    assert {(run.trigger, run.attempt) for _, run in story.runs} == {(Trigger.SCHEDULE, 1)}
    assert story.skips == []


def test_the_last_occurrence_is_retried_however_late() -> None:
    story = Story(Every("5m"), retry=Retry.in_window(1, delay="7m"), max_runs=1)

    story.pass_at(NOON + 5 * MINUTE, ERROR)

    assert (story.job.state.next_run_at, story.job.state.retry_of) == (NOON + 12 * MINUTE, NOON + 5 * MINUTE)


# ---------------------------------------------------------------- the clock went back


def test_an_occurrence_that_ran_is_not_run_again_when_the_clock_goes_back() -> None:
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON + 30 * MINUTE, run)  # the clock went back by more than half an hour

    assert story.job.state.next_run_at == NOON + 2 * HOUR
    assert story.skips == []


def test_a_run_that_ends_before_its_grid_began_goes_on_on_the_same_grid() -> None:
    """The clock went back to before the job was added."""
    story = Story(Every("1h"))
    run = story.start_at(NOON + HOUR)
    assert run is not None

    story.end_at(NOON - DAY + MINUTE, run)

    assert story.job.state.next_run_at == NOON - DAY + HOUR


# ---------------------------------------------------------------- triggered runs


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


def test_a_triggered_run_that_ends_exactly_on_an_occurrence_has_passed_it() -> None:
    job = a_job(Every("1h"))
    taken = claim_manually(job, NOON + 50 * MINUTE)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + HOUR, RULES)

    assert change.skips == (Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + HOUR, missed=1),)
    assert change.state.next_run_at == NOON + 2 * HOUR


def test_a_one_shot_that_comes_due_during_a_triggered_run_is_still_owed() -> None:
    job = a_job(At(from_micros(NOON + HOUR)))
    taken = claim_manually(job, NOON + 50 * MINUTE)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + 61 * MINUTE, RULES)

    assert change.skips == ()
    assert change.state.next_run_at == NOON + HOUR


@pytest.mark.parametrize(
    ("retry", "attempts"),
    [
        pytest.param(None, 5, id="the default, which disables after five"),
        pytest.param(Retry.backoff(disable_after=2), 2, id="a count of its own"),
        pytest.param(Retry.none(), 5, id="no retries"),
        pytest.param(Retry.in_window(2), 3, id="two retries"),
        pytest.param(Retry.budget(4), 4, id="a budget"),
        pytest.param(Retry.budget(9), 5, id="a budget that is too large for a process"),
    ],
)
def test_an_interrupted_manual_run_is_repeated_as_often_as_its_job_allows(retry: Retry | None, attempts: int) -> None:
    """The count ends one that kills its process every time. The counters of its job are left alone."""
    job = a_job(Manual(), retry=retry)
    taken = claim_manually(job, NOON)
    attempt, made = taken.attempt, 0

    while attempt is not None:
        made += 1
        left = after_run(taken.job, attempt, INTERRUPTED, NOON + made * SECOND, RULES)
        assert (left.state.consecutive_errors, left.state.retry_count, left.job.enabled) == (0, 0, True)
        assert left.attempt is None or (left.attempt.scheduled_for, left.attempt.trigger) == (NOON, Trigger.MANUAL)
        attempt = left.attempt

    assert made == attempts


@pytest.mark.parametrize("ending", [ERROR, CANCELLED, SUCCESS], ids=lambda ending: ending.outcome.value)
def test_only_an_interrupted_manual_run_is_repeated(ending: Ending) -> None:
    taken = claim_manually(a_job(Manual()), NOON)
    assert taken.attempt is not None

    assert after_run(taken.job, taken.attempt, ending, NOON + SECOND, RULES).attempt is None


def test_a_triggered_run_of_a_manual_job_leaves_it_waiting() -> None:
    job = a_job(Manual())
    taken = claim_manually(job, NOON)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + MINUTE, RULES)

    assert change.state.phase is Phase.ACTIVE
    assert change.state.next_run_at is None


def test_a_triggered_run_of_a_disabled_job_leaves_it_disabled() -> None:
    job = a_job(Every("1h"), enabled=False)
    taken = claim_manually(job, NOON + HOUR)
    assert taken.attempt is not None

    change = after_run(replace(job, state=taken.state), taken.attempt, SUCCESS, NOON + 3 * HOUR, RULES)

    assert (change.state.phase, change.state.next_run_at) == (Phase.DISABLED, None)
    assert change.skips == ()


def test_rows_distinguish_occurrences_during_a_triggered_run_from_those_a_backoff_postponed_before_it() -> None:
    story = Story(Every("1m"), retry=Retry.backoff(["5m"]))
    story.pass_at(NOON + MINUTE, ERROR)
    assert story.job.state.next_run_at == NOON + 6 * MINUTE

    run = story.trigger_at(NOON + 5 * MINUTE)
    story.end_at(NOON + 7 * MINUTE, run)

    assert story.skips == [
        Skip(reason=SkipReason.BACKOFF, scheduled_for=NOON + 2 * MINUTE, missed=4),
        Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + 6 * MINUTE, missed=2),
    ]
