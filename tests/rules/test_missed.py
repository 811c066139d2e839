"""The regular occurrences of a job, compared with a list of all of them."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_async import AnyOf, At, Cron, Delay, Every, Hours, Manual, Schedule, SkipReason
from scheduler_async.jobs.run import Skip
from scheduler_async.rules import missed as missed_occurrences
from scheduler_async.rules.missed import (
    first_to_catch_up,
    latest_regular,
    merged,
    merged_and_next,
    next_regular,
    passed_over,
)
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, span
from tests.rules.stories import NOON, a_job, occurrences

SCHEDULES = [
    Every("1m"),
    Every("1m", jitter="10%"),
    Every("1m", jitter="50s"),
    Every("1m", jitter="1h"),
    Every("7m", anchor=from_micros(NOON - DAY), jitter="7m"),
    Every("1m", start=from_micros(NOON + 5 * MINUTE), end=from_micros(NOON + HOUR), jitter="55s"),
    Cron("*/3 * * * *", tz="UTC", jitter="3m"),
    Cron("0,1,30 * * * * *", tz="UTC", jitter="40s"),
    At(from_micros(NOON + HOUR), jitter="30m"),
    AnyOf(Every("5m"), Cron("4-59/7 * * * *", tz="UTC"), jitter="4m"),
    Every("7m", jitter="6m").on(Hours("12:30-13:00,13:30-14:00"), otherwise="after"),
]
# A time after noon, or a time after one of the first occurrences.
MOMENTS = st.one_of(
    st.tuples(st.none(), st.integers(0, 2 * HOUR)),
    st.tuples(st.none(), st.integers(0, 120).map(lambda minutes: minutes * MINUTE)),
    st.tuples(st.integers(0, 10), st.sampled_from([-1, 0, 1])),
)


def moment(drawn: tuple[int | None, Micros], moments: list[Micros]) -> Micros:
    number, offset = drawn
    return offset + (NOON if number is None else moments[number % len(moments)])


@given(schedule=st.sampled_from(SCHEDULES), drawn=st.tuples(MOMENTS, MOMENTS))
def test_each_occurrence_counts_by_its_own_time_with_or_without_jitter(
    schedule: Schedule, drawn: tuple[tuple[int | None, Micros], tuple[int | None, Micros]]
) -> None:
    job = a_job(schedule)
    moments = occurrences(job, NOON + 3 * HOUR)
    after, until = (moment(one, moments) for one in drawn)
    between = [at for at in moments if after < at <= until]
    following = next((at for at in moments if at > until), None)
    row = (Skip(reason=SkipReason.PAUSED, scheduled_for=between[0], missed=len(between)),) if between else ()

    assert next_regular(job, until) == following
    assert merged(job, after, until, SkipReason.PAUSED) == row
    assert merged_and_next(job, after, until, SkipReason.PAUSED) == (row, following)


@given(schedule=st.sampled_from(SCHEDULES), drawn=MOMENTS)
def test_the_latest_occurrence_is_the_last_one_whose_jitter_has_passed(
    schedule: Schedule, drawn: tuple[int | None, Micros]
) -> None:
    job = a_job(schedule)
    moments = occurrences(job, NOON + 3 * HOUR)
    now = moment(drawn, moments)
    number = bisect_right(moments, now)

    if number:  # before the first the schedule may tell of one from before the job was added
        assert latest_regular(job, now) == moments[number - 1]
        assert passed_over(job, moments[0], now, SkipReason.PAUSED) == (
            Skip(reason=SkipReason.PAUSED, scheduled_for=moments[0], missed=number),
        )
    else:
        assert passed_over(job, moments[0], now, SkipReason.PAUSED) == ()


@given(
    schedule=st.sampled_from([one for one in SCHEDULES if not one.runs_once]),
    drawn=st.tuples(MOMENTS, MOMENTS),
    limit=st.integers(1, 60),
    window=st.sampled_from([None, "1s", "1m", "13m", "2h"]),
)
def test_the_newest_occurrences_that_are_young_enough_run(
    schedule: Schedule,
    drawn: tuple[tuple[int | None, Micros], tuple[int | None, Micros]],
    limit: int,
    window: str | None,
) -> None:
    job = a_job(schedule, misfire="run_all", catch_up_limit=limit, catch_up_window=window)
    moments = occurrences(job, NOON + 3 * HOUR)
    early, now = sorted(moment(one, moments) for one in drawn)
    missed = [at for at in moments if early <= at <= now]
    oldest = NOON if job.catch_up_window is None else now - span(job.catch_up_window)
    run = [at for at in missed if at >= oldest][-limit:]
    left_out = len(missed) - len(run)
    row = (Skip(reason=SkipReason.MISFIRE, scheduled_for=missed[0], missed=left_out),) if left_out else ()

    assume(missed)
    assert first_to_catch_up(job, missed[0], now) == (min(run, default=None), row)


def test_a_job_that_may_catch_up_with_all_it_missed_does_not_go_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of some such jobs would hold up the event loop for as long."""
    monkeypatch.setattr(missed_occurrences, "latest_regular", None)
    job = a_job(Every("1m"), misfire="run_all", catch_up_limit=10_000)

    assert first_to_catch_up(job, NOON + MINUTE, NOON + 6 * DAY) == (NOON + MINUTE, ())


@pytest.mark.parametrize(
    "schedule", [Delay("1m"), Delay("1m", jitter="30s"), Manual()], ids=["delay", "jitter", "manual"]
)
def test_a_delay_and_a_manual_schedule_have_no_regular_occurrences(schedule: Schedule) -> None:
    job = a_job(schedule)

    assert merged(job, NOON, NOON + HOUR, SkipReason.PAUSED) == ()
    assert latest_regular(job, NOON + HOUR) is None


def test_an_occurrence_from_before_the_job_was_added_is_not_its_own() -> None:
    """The jitter of that occurrence ends after the job was added, which does not matter."""
    schedule = Cron("0 * * * *", tz="UTC", jitter="59m")
    job = a_job(schedule)
    assert schedule.jittered(NOON, job.key) > NOON + SECOND

    assert next_regular(job, NOON + SECOND) == schedule.jittered(NOON + HOUR, job.key)
    assert merged(job, NOON, NOON + HOUR - 1, SkipReason.PAUSED) == ()
