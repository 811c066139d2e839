"""Whether a job would run, why not, and when it will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from scheduler_async import After, At, Cron, Delay, Every, Job, Manual, Retry, Schedule, SkipReason
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.edits import pause
from scheduler_async.rules.explaining import MAX_UPCOMING, decide, explain, upcoming
from scheduler_async.rules.terms import Room
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, to_micros
from tests.rules.stories import ERROR, NOON, OPEN, RULES, Story, a_job, utc

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
    pytest.param(
        lambda: a_job(Every("1h")), NOON, Room(has_handler=False), "no_handler", NOON + HOUR, id="no handler, not due"
    ),
    pytest.param(
        lambda: failing(Every("10s"), Retry.backoff()),
        NOON + 39 * SECOND,
        Room(has_handler=False),
        "no_handler",
        NOON + 40 * SECOND,
        id="no handler, backing off",
    ),
    pytest.param(
        lambda: a_job(After("b")), NOON, Room(has_handler=False), "no_handler", None, id="no handler, after another"
    ),
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


def test_waits_are_shown_in_whole_seconds() -> None:
    job = a_job(Every("1h"))

    assert str(explain(job, NOON + HOUR - 1_500_000, OPEN, RULES)).endswith(", in 1 second.")
    assert str(explain(job, NOON + HOUR - 999_999, OPEN, RULES)).endswith(", in less than a second.")


def test_an_explanation_names_a_full_group() -> None:
    job = a_job(Every("1h"), group="mail")

    sentence = str(explain(job, NOON + HOUR, Room(free_in_group=0), RULES))

    assert sentence == 'Job "a" is due, but its group "mail" is full; it starts when a slot frees.'


def test_retries_are_exhausted_until_the_next_regular_time() -> None:
    story = Story(Cron("0 * * * *", tz="UTC"), now=utc(9, 30), retry=Retry.in_window(0))
    story.pass_at(utc(10), ERROR)

    assert decide(story.job, utc(10, 30), OPEN, RULES) == (SkipReason.RETRIES_EXHAUSTED, utc(11))


def test_a_job_that_allows_no_retries_has_not_used_them_up_before_it_fails() -> None:
    job = a_job(Every("1h"), retry=Retry.in_window(0))

    assert decide(job, NOON, OPEN, RULES) == (SkipReason.NOT_DUE, NOON + HOUR)


def test_nothing_is_due_while_the_clock_is_not_trusted() -> None:
    job = a_job(Every("1h", immediately=True))
    room = Room(clock_is_believed=False)

    assert decide(job, NOON, room, RULES) == (SkipReason.NOT_DUE, None)
    assert "more than a year" in str(explain(job, NOON, room, RULES))


def test_an_explanation_shows_moments_in_the_zone_of_the_reader() -> None:
    explanation = explain(a_job(At(from_micros(NOON + HOUR))), NOON, OPEN, RULES, ZoneInfo("Europe/Stockholm"))

    moment = "2026-01-05 14:00 CET"
    assert str(explanation) == f'Job "a" is not due: it runs once at {moment}, next at {moment}, in 1 hour.'


# ---------------------------------------------------------------- previews


def preview(job: Job, now: Micros, window: Micros, room: Room = OPEN) -> list[tuple[float, tuple[str, ...]]]:
    """Return the minutes from *now* to each run, and its warnings."""
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


def test_a_preview_shows_a_due_run_first() -> None:
    late = preview(a_job(Every("20m")), NOON + 70 * MINUTE, HOUR)
    assert late == [(0, ("2 missed, skipped",)), (10, ()), (30, ()), (50, ())]

    skipping = preview(a_job(Every("20m"), misfire="skip"), NOON + 70 * MINUTE, HOUR)
    assert skipping == [(10, ()), (30, ()), (50, ())]


def test_a_preview_of_a_running_job_shows_the_runs_after_it() -> None:
    story = Story(Every("20m"))
    story.start_at(NOON + 20 * MINUTE)

    assert preview(story.job, NOON + 21 * MINUTE, 20 * MINUTE) == [(19, ())]


def test_a_preview_warns_of_retries_and_of_a_missing_handler() -> None:
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


def test_a_preview_is_limited_in_length() -> None:
    lines = preview(a_job(Every("1s")), NOON, DAY)
    assert len(lines) == MAX_UPCOMING
    assert [warnings for _, warnings in lines[:-1] if warnings] == []
    assert lines[-1][1] == ("and so on: the preview lists at most 1,000 runs of a job",)


def test_a_preview_touches_nothing() -> None:
    job = a_job(Every("1s"))
    before = job.state

    list(upcoming(job, NOON + DAY, NOON + 2 * DAY, OPEN, RULES))

    assert job.state is before


def test_a_preview_at_the_end_of_a_backoff_counts_the_occurrences_it_postponed() -> None:
    story = Story(Every("10s"))
    story.pass_at(NOON + 10 * SECOND, ERROR)

    rows = preview(story.job, NOON + 40 * SECOND, 5 * SECOND)

    assert rows == [(0, ("postponed after failures", "2 missed, skipped"))]


def test_a_preview_includes_a_run_at_the_end_of_its_window() -> None:
    assert preview(a_job(Every("1h")), NOON, HOUR) == [(60, ())]
    assert preview(a_job(Every("1h")), NOON, HOUR - 1) == []
