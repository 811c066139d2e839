"""Jobs that may have several runs at once: claims, endings, edits, and the accounting of their occurrences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import After, At, Cron, Delay, Every, Job, Manual, Retry, Schedule, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import ENDED, Misfire, Phase
from scheduler_async.jobs.run import Attempt, Ending
from scheduler_async.rules import claiming, instances
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.missed import runs_each
from scheduler_async.rules.pending import PendingRetry
from scheduler_async.rules.plans import Plan, has_room, plan_of
from scheduler_async.rules.successors import after_ending
from scheduler_async.stores.decisions import resumed_by_itself
from scheduler_async.timekeeping.instants import DAY, MINUTE, SECOND, Micros, from_micros, to_micros
from tests.rules.stories import (
    CANCELLED,
    ERROR,
    GIVE_UP,
    INTERRUPTED,
    NOON,
    RULES,
    SUCCESS,
    Story,
    an_edit,
    occurrences,
)
from tests.rules.test_random_stories import GRIDS, POLICIES, RETRIES, covered

RETRY_POLICIES = [
    pytest.param(Retry.in_window(1), id="in window"),
    pytest.param(Retry.in_window(2, delay="3m"), id="in window, late"),
    pytest.param(Retry.budget(2, "10m", disable_after=4), id="budget"),
    pytest.param(Retry.backoff(["70s"], disable_after=3), id="backoff"),
    pytest.param(Retry.none(), id="none"),
]
CANCELLED_ON_REQUEST = Ending(outcome=CANCELLED.outcome, on_request=True)


@dataclass(frozen=True)
class Failing(Schedule):
    """A schedule that computes its first occurrence, and no other."""

    kind = "fails-after-the-first"

    def next_after(self, now: datetime) -> datetime | None:
        """Return the first occurrence."""
        if to_micros(now) > NOON:
            raise ValueError("no")
        return from_micros(NOON + MINUTE)


class Several(Story):
    """A story of a job that may have several runs at once."""

    def __init__(self, schedule: Schedule, **fields: Any) -> None:
        super().__init__(schedule, **fields)
        self.open: list[Attempt] = []
        self.overlaps = 0

    def start_at(self, now: Micros) -> Attempt | None:
        taken = instances.claim(self.job, now, self.rules)
        self.change(taken)
        self.overlaps += taken.overlaps
        if taken.attempt is not None:
            self.runs.append((now, taken.attempt))
            self.open.append(taken.attempt)
        return taken.attempt

    def trigger_at(self, now: Micros) -> Attempt:
        taken = instances.claim_manually(self.job, now)
        assert taken.attempt is not None
        self.change(taken)
        self.open.append(taken.attempt)
        return taken.attempt

    def end_at(self, now: Micros, run: Attempt, ending: Ending = SUCCESS) -> None:
        self.open.remove(run)
        self.change(instances.after_run(self.job, run, ending, now, self.rules))

    def started_at(self, *minutes: int) -> list[Attempt]:
        found = [self.start_at(NOON + at * MINUTE) for at in minutes]
        return [run for run in found if run is not None]

    @property
    def next_at(self) -> float | None:
        """When the next run is due, in minutes."""
        at = self.job.state.next_run_at
        return None if at is None else (at - NOON) / MINUTE


def is_due(job: Job, now: Micros) -> bool:
    state = job.state
    is_claimable = state.activity is Status.IDLE and state.phase is Phase.ACTIVE
    return is_claimable and state.next_run_at is not None and state.next_run_at <= now


# ---------------------------------------------------------------- claims and endings


def test_the_next_occurrence_is_planned_at_the_claim() -> None:
    story = Several(Every("1m"), max_instances=2)

    story.started_at(1)

    assert story.job.status is Status.RUNNING
    assert story.job.state.activity is Status.IDLE
    assert story.next_at == 2


def test_occurrences_that_pass_while_all_instances_run_are_merged_into_one_row() -> None:
    story = Several(Every("1m"), max_instances=2)
    first, _ = story.started_at(1, 2)
    assert story.job.state.activity is Status.RUNNING

    story.end_at(NOON + 5 * MINUTE + 1, first)

    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ALREADY_RUNNING, 3)]
    assert story.next_at == 6
    assert story.job.state.running == 1


def test_a_run_that_ends_while_others_may_start_skips_nothing() -> None:
    story = Several(Every("1m"), max_instances=3)
    first, _ = story.started_at(1, 2)

    story.end_at(NOON + 2 * MINUTE + 1, first)

    assert story.skips == []
    assert story.next_at == 3


def test_with_queue_one_occurrence_waits_and_the_later_ones_merge_into_it() -> None:
    story = Several(Every("1m"), max_instances=2, overlap="queue")
    first, _ = story.started_at(1, 2)

    story.end_at(NOON + 5 * MINUTE + 1, first)
    assert is_due(story.job, NOON + 5 * MINUTE + 1)
    run = story.start_at(NOON + 5 * MINUTE + 1)

    assert run is not None
    assert run.scheduled_for == NOON + 3 * MINUTE
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ALREADY_RUNNING, 2)]
    assert story.next_at == 6


def test_with_cancel_the_oldest_run_makes_room_and_the_occurrence_waits_for_its_end() -> None:
    story = Several(Every("1m"), overlap="cancel")
    (first,) = story.started_at(1)
    assert is_due(story.job, NOON + 2 * MINUTE)

    assert story.start_at(NOON + 2 * MINUTE) is None
    assert story.overlaps == 1
    assert not is_due(story.job, NOON + 2 * MINUTE)

    story.end_at(NOON + 2 * MINUTE + SECOND, first, CANCELLED_ON_REQUEST)
    run = story.start_at(NOON + 2 * MINUTE + SECOND)
    assert run is not None
    assert run.scheduled_for == NOON + 2 * MINUTE
    assert story.skips == []


def test_each_instance_that_a_dead_process_held_runs_again() -> None:
    """The death counts as one failure, not as ten, which would disable the job."""
    story = Several(Every("1m"), max_instances=10)
    runs = story.started_at(*range(1, 11))
    died_at = NOON + 10 * MINUTE + 30 * SECOND

    for run in runs:
        story.end_at(died_at, run, INTERRUPTED)

    assert story.job.enabled
    assert story.job.consecutive_errors == 1
    assert len(plan_of(story.job.state).retries) == 10
    again = []
    while is_due(story.job, died_at):
        again.append(story.start_at(died_at))
    assert [(run.scheduled_for, run.attempt, run.trigger) for run in again if run] == [
        (run.scheduled_for, 2, Trigger.RETRY) for run in runs
    ]
    assert story.next_at == 11


def test_a_job_that_kills_its_process_every_time_is_disabled_in_the_end() -> None:
    story = Several(Every("1h"), max_instances=3, retry=Retry.none())
    runs = story.started_at(60)
    now = NOON + 60 * MINUTE
    while story.job.enabled:
        now += SECOND
        story.end_at(now, runs.pop(), INTERRUPTED)
        if is_due(story.job, now):
            run = story.start_at(now)
            assert run is not None
            runs.append(run)

    assert story.job.state.interruptions == 5


def test_each_occurrence_has_its_own_retries_in_the_window() -> None:
    story = Several(Every("10m"), max_instances=3, retry=Retry.in_window(1, delay="15m"))
    first, second = story.started_at(10, 20)

    story.end_at(NOON + 21 * MINUTE, first, ERROR)
    story.end_at(NOON + 22 * MINUTE, second, ERROR)

    assert plan_of(story.job.state) == Plan(
        NOON + 30 * MINUTE,
        None,
        (
            PendingRetry(NOON + 36 * MINUTE, NOON + 10 * MINUTE, 1),
            PendingRetry(NOON + 37 * MINUTE, NOON + 20 * MINUTE, 1),
        ),
    )
    retry = None
    for at in (30, 36):
        retry = story.start_at(NOON + at * MINUTE)
    assert retry is not None
    assert (retry.scheduled_for, retry.attempt) == (NOON + 10 * MINUTE, 2)
    story.end_at(NOON + 36 * MINUTE, retry, ERROR)
    assert [one.of for one in plan_of(story.job.state).retries] == [NOON + 20 * MINUTE]


def test_a_backoff_postpones_the_regular_time_whichever_instance_fails() -> None:
    story = Several(Every("1m"), max_instances=3, retry=Retry.backoff(["5m"]))
    first, second = story.started_at(1, 2)

    story.end_at(NOON + 2 * MINUTE + SECOND, second, ERROR)
    assert story.next_at == 7 + 1 / 60
    story.end_at(NOON + 2 * MINUTE + 2 * SECOND, first)

    assert story.next_at == 7 + 1 / 60
    run = story.start_at(NOON + 7 * MINUTE + SECOND)
    assert run is not None
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.BACKOFF, 5)]


def test_the_last_occurrence_ends_the_job_when_its_last_run_has_ended() -> None:
    story = Several(Every("1m", end=from_micros(NOON + 2 * MINUTE)), max_instances=3)
    first, second = story.started_at(1, 2)
    assert story.job.enabled
    assert not is_due(story.job, NOON + DAY)

    story.end_at(NOON + 3 * MINUTE, second)
    assert story.job.enabled
    story.end_at(NOON + 4 * MINUTE, first)

    assert story.job.ended
    assert story.job.state.activity is Status.IDLE


def test_what_passes_during_the_last_runs_of_a_schedule_has_one_row() -> None:
    """Whichever of them end, and however many."""
    story = Several(Every("1m", end=from_micros(NOON + 6 * MINUTE)), max_instances=3)
    runs = story.started_at(1, 2, 3)

    for number, run in enumerate(runs):
        story.end_at(NOON + (7 + number) * MINUTE, run)

    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ALREADY_RUNNING, 3)]
    assert story.job.ended


@pytest.mark.parametrize("overlap", ["queue", "cancel"])
def test_what_passes_during_a_pause_does_not_wait_for_the_end_of_a_run(overlap: str) -> None:
    story = Several(Every("1m"), max_instances=2, overlap=overlap)
    runs = story.started_at(1, 2)
    story.change(pause(story.job, NOON + 150 * SECOND))

    for number, run in enumerate(runs):
        story.end_at(NOON + (4 + number) * MINUTE, run)
    story.change(resume(story.job, NOON + 330 * SECOND))

    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.PAUSED, 3)]
    assert story.next_at == 6


@pytest.mark.parametrize(
    ("retry", "fails_at"),
    [
        pytest.param(Retry.none(disable_after=2), 3, id="due at that very moment"),
        pytest.param(Retry.backoff(["10m"], disable_after=2), 5, id="put off by the first failure"),
    ],
)
def test_failures_that_disable_a_job_leave_no_due_occurrence_without_a_row(retry: Retry, fails_at: int) -> None:
    story = Several(Every("1m"), max_instances=3, retry=retry)
    first, second = story.started_at(1, 2)
    story.end_at(NOON + 150 * SECOND, first, ERROR)

    story.end_at(NOON + fails_at * MINUTE, second, ERROR)

    assert not story.job.enabled
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.DISABLED, fails_at - 2)]
    check(story, NOON + fails_at * MINUTE)


def test_a_pause_beside_a_manual_run_after_the_last_one_counts_once() -> None:
    story = Several(Every("1m"), max_instances=3, max_runs=1)
    (last,) = story.started_at(1)
    story.change(pause(story.job, NOON + 90 * SECOND))
    by_hand = story.trigger_at(NOON + 90 * SECOND)
    story.end_at(NOON + 100 * SECOND, last)
    story.change(resume(story.job, NOON + 150 * SECOND))

    story.end_at(NOON + 170 * SECOND, by_hand)

    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.PAUSED, 1)]
    assert story.job.ended


def test_a_manual_run_beside_the_last_ones_hides_no_occurrence() -> None:
    """What passes after the last start has one row, wherever a manual run falls, and however often the last fails."""
    story = Several(Every("1m"), max_instances=3, max_runs=2, retry=Retry.in_window(1, delay="3m"))
    first, second = story.started_at(1, 2)
    by_hand = story.trigger_at(NOON + 4 * MINUTE)
    story.end_at(NOON + 5 * MINUTE, first)
    story.end_at(NOON + 6 * MINUTE, second, ERROR)
    story.end_at(NOON + 7 * MINUTE, by_hand)
    (again,) = story.started_at(9)
    story.end_at(NOON + 10 * MINUTE, again)

    assert story.job.ended
    assert {row.reason for row in story.skips} == {SkipReason.ENDED}
    check(story, NOON + 10 * MINUTE)


def test_a_delay_has_one_regular_run_at_a_time_and_counts_from_its_end() -> None:
    story = Several(Delay("1m"), max_instances=2)
    run = story.start_at(NOON)
    assert run is not None
    assert not is_due(story.job, NOON + DAY)

    by_hand = story.trigger_at(NOON + SECOND)
    assert not has_room(story.job)
    story.end_at(NOON + 2 * SECOND, by_hand)
    assert not is_due(story.job, NOON + DAY)
    story.end_at(NOON + MINUTE, run)

    assert story.next_at == 2
    assert story.job.status is Status.IDLE


def test_a_one_shot_ends_with_its_run_although_a_manual_run_goes_on() -> None:
    story = Several(At(from_micros(NOON + MINUTE)), max_instances=2)
    (run,) = story.started_at(1)
    by_hand = story.trigger_at(NOON + MINUTE)

    story.end_at(NOON + 2 * MINUTE, run)
    assert story.job.ended
    statuses = [story.job.status]
    story.end_at(NOON + 3 * MINUTE, by_hand)

    assert [*statuses, story.job.status] == [Status.RUNNING, Status.DISABLED]


@pytest.mark.parametrize("schedule", [At(from_micros(NOON + 5 * MINUTE)), Delay("4m")], ids=["at", "delay"])
def test_a_job_with_one_scheduled_run_at_a_time_runs_although_it_was_resumed_during_manual_runs(
    schedule: Schedule,
) -> None:
    story = Several(schedule, max_instances=3)
    story.change(disable(story.job, "enough", NOON - SECOND))
    first, second = story.trigger_at(NOON), story.trigger_at(NOON)
    story.change(resume(story.job, NOON + SECOND))

    story.end_at(NOON + MINUTE, first)
    assert not is_due(story.job, NOON + DAY)
    story.end_at(NOON + MINUTE, second)

    assert story.job.state.activity is Status.IDLE
    assert story.next_at == (5 if isinstance(schedule, At) else 1)


def test_an_interrupted_manual_run_is_repeated() -> None:
    story = Several(Every("1m"), max_instances=3)
    run = story.trigger_at(NOON)

    left = instances.after_run(story.job, run, INTERRUPTED, NOON + SECOND, RULES)

    assert left.attempt == Attempt(NOON, 2, Trigger.MANUAL, NOON + SECOND)


def test_what_comes_due_when_a_pause_ends_before_the_last_retry_has_one_row() -> None:
    story = Several(Every("1m"), max_instances=2, max_runs=1, retry=Retry.in_window(1, delay="5m"))
    (run,) = story.started_at(1)
    story.end_at(NOON + 70 * SECOND, run, ERROR)

    story.change(pause(story.job, NOON + 90 * SECOND, until=NOON + 2 * MINUTE))
    story.change(resumed_by_itself(story.job, NOON + 2 * MINUTE))

    assert story.skips == []
    assert plan_of(story.job.state).regular == NOON + 2 * MINUTE


def test_a_manual_job_runs_as_often_at_once_as_it_may() -> None:
    story = Several(Manual(), max_instances=3)
    runs = [story.trigger_at(NOON) for _ in range(3)]
    assert not has_room(story.job)

    story.end_at(NOON, runs[0], ERROR)

    assert has_room(story.job)
    assert story.job.consecutive_errors == 0


@pytest.mark.parametrize("schedule", [Every("1m"), Cron("* * * * *", tz="UTC")], ids=str)
def test_manual_runs_count_and_leave_the_schedule_alone(schedule: Schedule) -> None:
    story = Several(schedule, max_instances=2)
    manual = [story.trigger_at(NOON + SECOND) for _ in range(2)]
    assert not is_due(story.job, NOON + MINUTE)

    story.end_at(NOON + 90 * SECOND, manual[0])

    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ALREADY_RUNNING, 1)]
    assert story.next_at == 2


# ---------------------------------------------------------------- edits and undone claims


def test_a_run_in_progress_becomes_the_first_of_several() -> None:
    """The occurrence that waits since its claim starts beside it. A manual run before hides none."""
    story = Several(Every("1m"))
    first = Story.start_at(story, NOON + MINUTE)
    assert first is not None

    story.change(an_edit(story.job, NOON + 90 * SECOND, max_instances=3))
    story.open.append(first)
    assert story.job.state.running == 1
    by_hand = story.trigger_at(NOON + 150 * SECOND)
    assert is_due(story.job, NOON + 150 * SECOND)
    story.start_at(NOON + 150 * SECOND)
    story.end_at(NOON + 160 * SECOND, by_hand)
    story.end_at(NOON + 170 * SECOND, first)

    assert [(run.scheduled_for - NOON) / MINUTE for _, run in story.runs] == [1, 2]
    assert story.skips == []
    assert story.next_at == 3


def test_a_run_whose_schedule_fails_becomes_the_first_of_several_all_the_same() -> None:
    """The edit succeeds, and the ending of the run disables the job."""
    story = Several(Failing())
    first = Story.start_at(story, NOON + MINUTE)
    assert first is not None

    story.change(an_edit(story.job, NOON + 90 * SECOND, max_instances=3))

    assert story.job.state.running == 1
    assert story.job.state.activity is Status.RUNNING


def test_fewer_instances_wait_until_the_surplus_has_ended() -> None:
    story = Several(Every("1m"), max_instances=3)
    runs = story.started_at(1, 2, 3)

    story.change(an_edit(story.job, NOON + 3 * MINUTE, max_instances=1))
    for number, run in enumerate(runs):
        assert not is_due(story.job, NOON + DAY)
        story.end_at(NOON + (4 + number) * MINUTE - 1, run)

    assert story.job.state.running == 0
    assert story.job.state.activity is Status.IDLE
    assert story.missed == 2


def test_more_instances_let_the_waiting_occurrence_start() -> None:
    story = Several(Every("1m"), max_instances=2)
    story.started_at(1, 2)

    story.change(an_edit(story.job, NOON + 3 * MINUTE + SECOND, max_instances=3))

    assert is_due(story.job, NOON + 3 * MINUTE + SECOND)
    assert story.skips == []


@pytest.mark.parametrize("retry", [None, Retry.none(), Retry.budget()], ids=["backoff", "none", "budget"])
def test_an_undone_claim_leaves_the_job_as_it_was(retry: Retry | None) -> None:
    story = Several(Every("1m"), max_instances=3, retry=retry)
    story.started_at(1)
    before = story.job
    taken = instances.claim(before, NOON + 2 * MINUTE, RULES)
    assert taken.attempt is not None

    undone, _ = instances.unclaim(taken.job, taken.job, before.state, taken.attempt)

    assert undone.job == before
    assert undone.skips == ()


def test_an_undone_claim_of_a_retry_owes_the_retry() -> None:
    story = Several(Every("1h"), max_instances=3)
    runs = story.started_at(60, 120)
    for run in runs:
        story.end_at(NOON + 130 * MINUTE, run, INTERRUPTED)
    before = story.job
    taken = instances.claim(before, NOON + 130 * MINUTE, RULES)
    assert taken.attempt is not None

    undone, _ = instances.unclaim(taken.job, taken.job, before.state, taken.attempt)

    assert undone.job == before


@pytest.mark.parametrize("meanwhile", ["edited", "one run ends"])
def test_a_job_that_was_disabled_runs_on_when_it_is_resumed_though_a_run_goes_on(meanwhile: str) -> None:
    """It has other instances left, so the next occurrence does not wait for the end of that run."""
    story = Several(Every("1m"), max_instances=4)
    first, _ = story.started_at(1, 2)
    story.change(disable(story.job, "enough", NOON + 2 * MINUTE))
    if meanwhile == "edited":
        story.change(an_edit(story.job, NOON + 2 * MINUTE, max_instances=3, enabled=False))
    else:
        story.end_at(NOON + 2 * MINUTE + 1, first)

    story.change(resume(story.job, NOON + 150 * SECOND))

    assert story.job.state.activity is Status.IDLE
    assert story.next_at == 3


def test_missed_occurrences_beyond_max_runs_get_their_row() -> None:
    story = Several(Every("1m"), max_instances=4, misfire="run_all", max_runs=2)

    (first,) = story.started_at(6)
    story.end_at(NOON + 6 * MINUTE, first)
    story.started_at(6)

    assert [run.scheduled_for for _, run in story.runs] == [NOON + MINUTE, NOON + 2 * MINUTE]
    (row,) = story.skips
    assert (row.reason, row.scheduled_for, row.missed) == (SkipReason.ENDED, NOON + 3 * MINUTE, 4)


def test_missed_occurrences_get_their_row_if_an_edit_of_max_runs_leaves_them_out() -> None:
    story = Several(Every("1m"), max_instances=3, misfire="run_all", max_runs=9)
    (first,) = story.started_at(6)

    story.change(an_edit(story.job, NOON + 6 * MINUTE, max_runs=1))
    story.end_at(NOON + 7 * MINUTE, first)

    assert story.job.ended
    (row,) = story.skips
    assert (row.reason, row.scheduled_for, row.missed) == (SkipReason.ENDED, NOON + 2 * MINUTE, 6)


@pytest.mark.parametrize("retry", RETRY_POLICIES)
def test_the_retries_of_the_last_run_end_the_job_and_leave_no_occurrence_without_a_row(retry: Retry) -> None:
    """Occurrences that come while the last retry waits never run, but have their row."""
    story = Several(Every("1m"), max_instances=2, max_runs=2, retry=retry)
    first, second = story.started_at(1, 2)

    story.end_at(NOON + 150 * SECOND, first, ERROR)
    story.end_at(NOON + 190 * SECOND, second, ERROR)
    while story.job.enabled:
        at = story.job.state.next_run_at
        assert at is not None
        run = story.start_at(at)
        assert run is not None
        assert run.trigger is Trigger.RETRY
        story.end_at(at + 90 * SECOND, run, ERROR)

    assert story.job.state.occurrences_run == 2
    ended_at = story.job.state.disabled_at
    assert ended_at is not None
    check(story, ended_at)


def test_a_paused_job_that_has_run_enough_counts_the_pause_once() -> None:
    story = Several(Every("1m"), max_instances=2, max_runs=1, retry=Retry.in_window(1, delay="10m"))
    (run,) = story.started_at(1)
    story.change(pause(story.job, NOON + 150 * SECOND))
    story.change(resume(story.job, NOON + 270 * SECOND))

    story.end_at(NOON + 330 * SECOND, run)

    assert story.job.ended
    assert [(skip.reason, skip.missed) for skip in story.skips] == [
        (SkipReason.ALREADY_RUNNING, 1),
        (SkipReason.PAUSED, 2),
        (SkipReason.ALREADY_RUNNING, 1),
    ]


def test_missed_occurrences_run_one_after_another_although_more_runs_may_go_on() -> None:
    """The end of a manual run beside them starts none."""
    story = Several(Every("1m"), max_instances=3, misfire="run_all")
    (first,) = story.started_at(4)
    by_hand = story.trigger_at(NOON + 4 * MINUTE)

    story.end_at(NOON + 4 * MINUTE + 1, by_hand)
    assert not is_due(story.job, NOON + 4 * MINUTE + 1)
    story.end_at(NOON + 4 * MINUTE + 2, first)
    assert is_due(story.job, NOON + 4 * MINUTE + 2)
    for _ in range(3):
        run = story.start_at(NOON + 4 * MINUTE + 2)
        assert run is not None
        story.end_at(NOON + 4 * MINUTE + 2, run)

    assert [(run.scheduled_for - NOON) / MINUTE for _, run in story.runs] == [1, 2, 3, 4]
    assert story.skips == []
    assert story.next_at == 5


def test_the_retry_of_an_earlier_run_starts_no_missed_occurrence_beside_the_one_that_runs() -> None:
    story = Several(Every("1m"), max_instances=3, misfire="run_all", retry=Retry.in_window(1, delay="2m"))
    (first,) = story.started_at(1)
    story.end_at(NOON + 90 * SECOND, first, ERROR)
    story.started_at(2)
    (catching_up, again) = story.started_at(7, 7)
    assert again.trigger is Trigger.RETRY

    story.end_at(NOON + 7 * MINUTE + 1, again)
    assert not is_due(story.job, NOON + 7 * MINUTE + 1)
    story.end_at(NOON + 7 * MINUTE + 2, catching_up)

    assert is_due(story.job, NOON + 7 * MINUTE + 2)


def catching_up(**fields: Any) -> tuple[Several, Attempt]:
    """Return a job that makes up for the last of five missed occurrences, and its run."""
    story = Several(Every("1m"), misfire="run_all", catch_up_limit=1, **{"max_instances": 3, **fields})
    (run,) = story.started_at(5)
    assert run.trigger is Trigger.CATCH_UP
    assert story.next_at == 6
    return story, run


def test_an_occurrence_on_time_starts_beside_the_last_run_that_catches_up() -> None:
    story, _ = catching_up()

    (beside,) = story.started_at(6)

    assert beside.trigger is Trigger.SCHEDULE


@pytest.mark.parametrize("is_paused", [False, True], ids=["", "after a pause"])
def test_a_second_catch_up_waits_for_the_last_run_of_the_first(is_paused: bool) -> None:
    story, run = catching_up()
    (beside,) = story.started_at(6)
    if is_paused:
        story.change(pause(story.job, NOON + 7 * MINUTE - SECOND))
        story.change(resume(story.job, NOON + 7 * MINUTE - SECOND))

    assert story.started_at(9) == []
    assert [skip.missed for skip in story.skips] == [4, 2]
    story.end_at(NOON + 10 * MINUTE, beside)
    assert not is_due(story.job, NOON + 10 * MINUTE)
    story.end_at(NOON + 10 * MINUTE + 1, run)

    assert is_due(story.job, NOON + 10 * MINUTE + 1)
    second = story.start_at(NOON + 10 * MINUTE + 1)
    assert second is not None
    assert (second.scheduled_for, second.trigger) == (NOON + 9 * MINUTE, Trigger.CATCH_UP)
    story.end_at(NOON + 10 * MINUTE + 2, second)
    check(story, NOON + 10 * MINUTE + 2)


def test_a_run_that_catches_up_is_forgotten_when_it_has_no_row() -> None:
    """The row of a run may be lost. The missed occurrence must not wait for ever."""
    story, run = catching_up()
    assert story.started_at(9) == []
    lost = replace(run, scheduled_for=run.claimed_at + 1)
    story.open = [lost]

    story.end_at(NOON + 10 * MINUTE, lost)

    assert is_due(story.job, NOON + 10 * MINUTE)


def during_a_catch_up() -> tuple[Several, Attempt]:
    """Return a job whose missed occurrences run one by one, with a retry that is due, and the first of these runs."""
    story = Several(Every("1m"), max_instances=3, misfire="run_all", retry=Retry.in_window(1, delay="8m"))
    (failed,) = story.started_at(1)
    story.end_at(NOON + MINUTE, failed, ERROR)
    (run,) = story.started_at(5)
    assert run.scheduled_for == NOON + 2 * MINUTE
    return story, run


def test_an_undone_claim_of_a_retry_starts_no_missed_occurrence_beside_the_one_that_runs() -> None:
    story, run = during_a_catch_up()
    before = story.job
    taken = instances.claim(before, NOON + 9 * MINUTE, RULES)
    assert taken.attempt is not None
    assert taken.attempt.trigger is Trigger.RETRY

    undone, _ = instances.unclaim(taken.job, taken.job, before.state, taken.attempt)

    assert undone.state == before.state
    story.change(undone)
    story.end_at(NOON + 9 * MINUTE, run)
    assert is_due(story.job, NOON + 9 * MINUTE)


def test_an_undone_claim_of_a_run_that_catches_up_leaves_its_occurrence_due() -> None:
    story = Several(Every("1m"), max_instances=3, misfire="run_all")
    story.trigger_at(NOON + 2 * MINUTE)
    before = story.job
    taken = instances.claim(before, NOON + 5 * MINUTE, RULES)
    assert taken.attempt is not None

    undone, _ = instances.unclaim(taken.job, taken.job, before.state, taken.attempt)

    assert is_due(undone.job, NOON + 5 * MINUTE)


def test_a_missed_occurrence_waits_for_the_run_of_a_job_that_has_become_one_with_several() -> None:
    story = Several(Every("1m"), misfire="run_all")
    taken = claiming.claim(story.job, NOON + 5 * MINUTE, RULES, Status.RUNNING)
    story.change(taken)
    story.change(an_edit(story.job, NOON + 5 * MINUTE, max_instances=2))
    assert taken.attempt is not None
    story.open = [taken.attempt]
    by_hand = story.trigger_at(NOON + 5 * MINUTE)

    story.end_at(NOON + 5 * MINUTE, by_hand)
    assert not is_due(story.job, NOON + 5 * MINUTE)
    story.end_at(NOON + 5 * MINUTE, taken.attempt)

    assert is_due(story.job, NOON + 5 * MINUTE)


@pytest.mark.parametrize("overlap", ["queue", "cancel"])
def test_an_occurrence_that_waited_for_a_run_within_the_grace_period_is_no_catch_up(overlap: str) -> None:
    story = Several(Every("1m"), max_instances=2, overlap=overlap, misfire="run_all")
    first, _ = story.started_at(1, 2)
    story.started_at(3) if overlap == "cancel" else None
    story.end_at(NOON + 3 * MINUTE + SECOND, first)

    waited = story.start_at(NOON + 3 * MINUTE + SECOND)

    assert waited is not None
    assert (waited.scheduled_for, waited.trigger) == (NOON + 3 * MINUTE, Trigger.SCHEDULE)


# ---------------------------------------------------------------- other schedules during several runs


def test_a_job_that_comes_to_run_after_another_waits_until_all_its_runs_have_ended() -> None:
    story = Several(Every("1m"), max_instances=3, overlap="cancel", misfire="skip")
    first, second = story.started_at(1, 2)
    story.reschedule(After("b"), NOON + 3 * MINUTE)
    woken = after_ending(story.job, ("default", "b"), SUCCESS.outcome, NOON + 4 * MINUTE, RULES)
    assert woken is not None
    story.change(woken)

    story.end_at(NOON + 5 * MINUTE, first)
    assert not is_due(story.job, NOON + 5 * MINUTE)
    assert not has_room(story.job)
    story.end_at(NOON + 6 * MINUTE, second)

    assert is_due(story.job, NOON + 6 * MINUTE)
    assert has_room(story.job)
    taken = claiming.claim(story.job, NOON + 6 * MINUTE, RULES)
    assert taken.attempt is not None
    assert (taken.attempt.scheduled_for, taken.attempt.trigger) == (NOON + 4 * MINUTE, Trigger.SCHEDULE)


@pytest.mark.parametrize(
    ("schedule", "next_at"), [(Delay("2m"), 8), (At(from_micros(NOON + 4 * MINUTE)), None)], ids=["delay", "one-shot"]
)
def test_the_run_of_an_earlier_schedule_does_not_end_that_of_the_new_one(schedule: Schedule, next_at: int) -> None:
    story = Several(Every("1m"), max_instances=3)
    earlier, _ = story.started_at(1, 2)
    story.reschedule(schedule, NOON + 3 * MINUTE)
    (run,) = story.started_at(5)

    story.end_at(NOON + 5 * MINUTE, earlier)
    assert story.job.enabled
    assert story.next_at is None
    story.end_at(NOON + 6 * MINUTE, run)

    assert story.next_at == next_at


# ---------------------------------------------------------------- random stories

OTHERS = [Delay("50s"), At(from_micros(NOON + 8 * MINUTE)), Manual(), After("b")]
ENDINGS = [SUCCESS, SUCCESS, ERROR, INTERRUPTED, CANCELLED, CANCELLED_ON_REQUEST, GIVE_UP]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("start", "start", "start", "end", "end", "trigger", "pause", "resume", "resume", "disable", "edit"),
                *("edit, disabled", "more", "fewer", "undo"),
            ]
        ),
        st.sampled_from([0, 1, 30, 60, 61, 150, 300]),
        st.sampled_from(GRIDS + OTHERS),
        st.sampled_from(ENDINGS),
        st.integers(0, 3),
    ),
    max_size=24,
)


@given(
    schedule=st.sampled_from(GRIDS),
    deeds=DEEDS,
    retry=st.sampled_from(RETRIES),
    policy=POLICIES,
    most=st.integers(2, 4),
    cancels=st.sampled_from([False, False, True]),
)
def test_whatever_is_done_each_occurrence_has_run_or_has_its_row_once(
    schedule: Schedule,
    deeds: Iterable[tuple[str, int, Schedule, Ending, int]],
    retry: Retry | None,
    policy: Any,
    most: int,
    cancels: bool,
) -> None:
    overlap = {"overlap": "cancel"} if cancels else {}
    tell(Several(schedule, retry=retry, **{**policy, **overlap, "max_instances": most}), deeds)


LAST_DEEDS = st.lists(
    st.tuples(
        st.sampled_from([*("start", "end", "trigger") * 2, "pause", "resume", "disable", "undo"]),
        st.sampled_from([1, 61, 150]),
        st.just(Manual()),
        st.sampled_from([SUCCESS, ERROR, INTERRUPTED]),
        st.integers(0, 1),
    ),
    max_size=10,
)


@given(
    deeds=LAST_DEEDS, retry=st.sampled_from(RETRIES), max_runs=st.integers(1, 2), misfire=st.sampled_from(list(Misfire))
)
def test_until_the_last_runs_of_a_job_have_ended_each_occurrence_has_its_row_once(
    deeds: Iterable[tuple[str, int, Schedule, Ending, int]], retry: Retry | None, max_runs: int, misfire: Misfire
) -> None:
    """With `max_runs`: manual runs and retries beside the last ones hide nothing."""
    tell(Several(Every("1m"), retry=retry, max_runs=max_runs, max_instances=2, misfire=misfire), deeds)


def tell(story: Several, deeds: Iterable[tuple[str, int, Schedule, Ending, int]]) -> None:
    now = NOON
    for deed, seconds, other, ending, which in deeds:
        now += seconds * SECOND
        do(story, deed, now, other, ending, which)
        state = story.job.state

        assert state.running == len(story.open)
        assert story.job.max_runs is None or state.occurrences_run <= story.job.max_runs
        check(story, now)
        attempts = [(run.scheduled_for, run.attempt) for _, run in story.runs]
        assert len(attempts) == len(set(attempts))
        if runs_each(story.job):
            assert [run.trigger for run in story.open].count(Trigger.CATCH_UP) <= 1
        if state.activity is not Status.IDLE:
            assert story.open
        is_planned = state.next_run_at is not None or state.activity is not Status.IDLE
        if state.phase is Phase.ACTIVE:
            assert is_planned or isinstance(story.job.schedule, Manual | After)

    finish(story, now)


def finish(story: Several, now: Micros) -> None:
    """End all runs and repeat what failed: the end of a job leaves nothing without a row."""
    if story.job.state.phase is Phase.PAUSED:
        story.change(resume(story.job, now))
        check(story, now)
    while story.open or (story.job.state.retry_of is not None and story.job.state.next_run_at is not None):
        if not story.open:
            now = max(now, story.job.state.next_run_at or now)
            story.start_at(now)
        story.end_at(now, story.open[0])
    check(story, now)


def do(story: Several, deed: str, now: Micros, schedule: Schedule, ending: Ending, which: int) -> None:
    state = story.job.state
    if deed == "start" and is_due(story.job, now):
        before = len(story.open)
        story.start_at(now)
        assert len(story.open) <= max(story.job.max_instances, before)
    elif deed == "undo" and is_due(story.job, now) and has_room(story.job):
        claimed = instances.claim(story.job, now, RULES)
        if claimed.attempt is not None:
            undone, _ = instances.unclaim(claimed.job, claimed.job, state, claimed.attempt)
            story.change(undone)
    elif deed == "trigger" and has_room(story.job):
        story.trigger_at(now)
    elif deed == "end" and story.open:
        story.end_at(now, story.open[which % len(story.open)], ending)
    elif deed == "pause":
        story.change(pause(story.job, now))
    elif deed == "disable":
        story.change(disable(story.job, "enough", now))
    elif deed == "resume" and state.disabled_reason != ENDED:
        story.change(resume(story.job, now))
    elif deed in ("more", "fewer"):
        most = max(story.job.max_instances + (1 if deed == "more" else -1), 2)
        story.change(an_edit(story.job, now, max_instances=most, enabled=story.job.enabled))
    elif deed.startswith("edit") and schedule != story.job.schedule:
        before_edit = story.job
        story.reschedule(schedule, now, **({"enabled": False} if "disabled" in deed else {}))
        check(story, now, before_edit, now + 1)
        story.skips.clear()
        story.runs.clear()


def check(story: Several, now: Micros, job: Job | None = None, owed_from: Micros | None = None) -> None:
    """Each occurrence that needs it has run, or has its row, once."""
    job = story.job if job is None else job
    if isinstance(job.schedule, At | Delay | Manual | After):
        return
    moments = occurrences(job, now + DAY)
    found = sorted(at for at, _ in covered(story, moments))
    if owed_from is None:
        owed_from = first_owed(story, moments, len(found), now)
    assert found == [at for at in moments if at < owed_from], job.state


def first_owed(story: Several, moments: list[Micros], found: int, now: Micros) -> Micros:
    """Return the first occurrence that needs no row yet. As many as *found* have one."""
    state = story.job.state
    if state.phase is not Phase.ACTIVE:
        assert state.counted_until is not None
        return state.counted_until + 1
    regular = plan_of(state).regular
    if regular is not None:
        return regular
    if not story.open and state.next_run_at is None:
        return now + 1
    return min(moments[found] if found < len(moments) else now + 1, now + 1)  # the end of the job gives rows to these
