"""A job ends after `max_runs` regular occurrences, whatever happens to the last of them."""

from __future__ import annotations

import pytest

from scheduler_async import Delay, Every, Retry, Schedule, SkipReason, Trigger
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.timekeeping.instants import DAY, MINUTE, SECOND
from tests.rules.stories import CANCELLED, ERROR, NOON, SUCCESS, Story, occurrences
from tests.rules.test_random_stories import covered


@pytest.mark.parametrize(
    "retry",
    [
        pytest.param(Retry.in_window(2), id="in window"),
        pytest.param(Retry.in_window(2, delay="3m"), id="in window, after the next regular time"),
        pytest.param(Retry.backoff(["70s"]), id="backoff"),
        pytest.param(Retry.none(), id="none"),
    ],
)
@pytest.mark.parametrize("late", [0, 90, 600], ids=["in time", "a little late", "late"])
def test_a_failing_job_ends_all_the_same(retry: Retry, late: int) -> None:
    """A retry of the last occurrence does not give way to the next regular time, which is none of its own any more."""
    story, now = Story(Every("1m"), max_runs=2, retry=retry), NOON
    while story.job.enabled:
        at = story.job.state.next_run_at
        assert at is not None
        now = max(now, at) + late * SECOND
        story.pass_at(now, ERROR)

    firsts = [run for _, run in story.runs if run.trigger is not Trigger.RETRY]
    assert len(firsts) == story.job.state.occurrences_run == 2
    moments = occurrences(story.job, now + DAY)
    assert sorted(at for at, _ in covered(story, moments)) == [at for at in moments if at <= now]


def test_what_comes_while_the_last_run_is_retried_has_ended() -> None:
    story = Story(Every("1m"), max_runs=1, retry=Retry.in_window(1, delay="150s"))
    story.pass_at(NOON + MINUTE, ERROR)

    retry = story.pass_at(NOON + 210 * SECOND)

    assert retry is not None
    assert retry.trigger is Trigger.RETRY
    assert story.job.ended
    assert [(skip.reason, skip.missed) for skip in story.skips] == [(SkipReason.ENDED, 2)]


@pytest.mark.parametrize("how", ["paused", "disabled", "not at all"])
def test_the_last_retry_is_left_when_the_job_is_resumed(how: str) -> None:
    story = Story(Every("1m"), max_runs=1, retry=Retry.in_window(2, delay="10m"))
    story.pass_at(NOON + MINUTE, ERROR)
    if how != "not at all":
        story.change(pause(story.job, NOON + 90 * SECOND) if how == "paused" else disable(story.job, "", NOON + MINUTE))

    story.change(resume(story.job, NOON + 150 * SECOND))
    run = story.pass_at(NOON + 11 * MINUTE)

    assert run is not None
    assert (run.trigger, run.scheduled_for) == (Trigger.RETRY, NOON + MINUTE)
    assert story.job.ended
    moments = occurrences(story.job, NOON + 11 * MINUTE)
    assert sorted(at for at, _ in covered(story, moments)) == moments


def test_a_cancelled_last_run_is_repeated_and_nothing_else_although_an_occurrence_waited() -> None:
    story = Story(Every("30s"), max_runs=1, overlap="queue")
    story.pass_at(NOON + 5 * MINUTE, CANCELLED, takes=90 * SECOND)

    story.change(resume(story.job, NOON + 8 * MINUTE))
    run = story.pass_at(NOON + 8 * MINUTE)

    assert run is not None
    assert run.trigger is Trigger.RETRY
    assert story.job.state.disabled_reason == ENDED
    assert story.job.state.occurrences_run == 1


@pytest.mark.parametrize("schedule", [Every("1m"), Delay("1m", immediately=False)], ids=["every", "delay"])
def test_a_job_that_was_disabled_during_its_last_run_has_ended_when_it_is_resumed(schedule: Schedule) -> None:
    story = Story(schedule, max_runs=1)
    run = story.start_at(NOON + MINUTE)
    assert run is not None
    story.change(disable(story.job, "enough", NOON + MINUTE))
    story.end_at(NOON + MINUTE, run, SUCCESS)
    assert story.job.state.phase is Phase.DISABLED

    story.change(resume(story.job, NOON + 2 * MINUTE))

    assert story.job.ended
