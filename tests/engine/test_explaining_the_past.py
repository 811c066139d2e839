"""`explain(at=…)`: what became of a job at a time, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_async import (
    AnyOf,
    At,
    Cron,
    Delay,
    Every,
    Explanation,
    InvalidScheduleError,
    JobNotFoundError,
    Manual,
    Outcome,
    Retry,
    Schedule,
    Scheduler,
    SkipReason,
    Weekdays,
    acting_as,
)
from scheduler_async.engine import outlook
from scheduler_async.testing import VirtualClock
from tests.cast import DAY, HOUR, MINUTE, NOON, SECOND, NewScheduler, Worker

NIGHTLY = Cron("30 2 * * *", tz="Europe/Stockholm")

pytestmark = pytest.mark.once  # the version of Python does not matter


@pytest.fixture
async def running(new_scheduler: NewScheduler, every_store: str) -> Scheduler:
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    return scheduler


async def explained(scheduler: Scheduler, minutes: float, id: str = "a") -> Explanation:
    """What became of a job so many minutes after noon."""
    answer = await scheduler.explain(id, at=NOON + minutes * MINUTE)
    assert answer.at == NOON + minutes * MINUTE
    return answer


async def test_it_ran_on_time(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("35m")

    answer = await explained(running, 20)

    assert answer.reason is None
    assert answer.run == (await running.run_log("a"))[1]
    assert str(answer) == 'Job "a" ran at 2026-01-05 12:20 UTC, and ended with success.'


async def test_after_retries_the_run_is_the_last_attempt(
    running: Scheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.answer = ValueError("no")
    await running.add_job(Every("10m"), handler="work", id="a", retry=Retry.in_window(2, delay="1m"))
    await clock.advance("15m")

    answer = await explained(running, 10)

    assert answer.run is not None
    assert (answer.reason, answer.run.attempt, answer.run.outcome) == (None, 3, Outcome.ERROR)
    assert str(answer) == 'Job "a" ran at 2026-01-05 12:12 UTC, as attempt 3, and ended with error.'


async def test_no_occurrence_was_due(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("35m")

    answer = await explained(running, 25)

    assert (answer.reason, answer.run, answer.until) == (SkipReason.NOT_DUE, None, NOON + 30 * MINUTE)
    assert str(answer) == (
        'Job "a" had no occurrence at 2026-01-05 12:25 UTC: it runs every 10 minutes. '
        "Nearest: 2026-01-05 12:20 UTC and 2026-01-05 12:30 UTC."
    )


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(NIGHTLY, id="cron"),
        pytest.param(NIGHTLY.on(Weekdays("SUN")), id="on a calendar"),
        pytest.param(AnyOf(NIGHTLY, Every("1h")), id="one of several"),
    ],
)
async def test_a_change_of_the_clocks_is_named(schedule: Schedule, running: Scheduler) -> None:
    """02:30 in Stockholm does not exist on that day: it comes at 03:30, which is 01:30 UTC."""
    await running.add_job(schedule, handler="work", id="a")

    answer = await running.explain("a", at="2026-03-29T00:30:00Z")

    assert answer.reason is SkipReason.NOT_DUE
    assert "The clocks in Europe/Stockholm went forward by 1 hour within a day of that time." in str(answer)


async def test_it_did_not_exist_yet(running: Scheduler, clock: VirtualClock) -> None:
    await clock.advance("1h")
    await running.add_job(Every("10m"), handler="work", id="a")

    answer = await explained(running, 30)

    assert answer.reason is SkipReason.NOT_CREATED
    assert str(answer) == 'Job "a" did not exist at 2026-01-05 12:30 UTC: it was added at 2026-01-05 13:00 UTC.'


async def test_it_was_paused(running: Scheduler, clock: VirtualClock) -> None:
    """While the pause lasts, and after it."""
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("15m")
    await running.pause_job("a", reason="the supplier moves")
    await clock.advance("20m")

    during = await explained(running, 20)
    await running.resume_job("a")
    after = await explained(running, 20)

    assert during.reason is after.reason is SkipReason.PAUSED
    assert "was paused at 2026-01-05 12:20 UTC" in str(during)
    assert "the supplier moves" in str(during)
    assert "was paused at 2026-01-05 12:20 UTC" in str(after)
    assert (await explained(running, 10)).reason is None, "before the pause"


async def test_who_paused_it_and_why_is_told(running: Scheduler, clock: VirtualClock) -> None:
    """Also of an earlier pause than the last one."""
    await running.add_job(Every("10m"), handler="work", id="a")
    for actor, reason in (("anna", "the supplier moves"), ("bob", "a test")):
        with acting_as(actor):
            await running.pause_job("a", reason=reason)
        await clock.advance("30m")
        await running.resume_job("a")

    assert str(await explained(running, 20)) == (
        'Job "a" was paused at 2026-01-05 12:20 UTC since 2026-01-05 12:00 UTC, by anna: the supplier moves.'
    )
    assert "by bob: a test" in str(await explained(running, 40))


async def test_who_added_it_disabled_is_told(running: Scheduler, clock: VirtualClock) -> None:
    with acting_as("anna"):
        await running.add_job(Every("10m"), handler="work", id="a", enabled=False)
    await clock.advance("15m")
    while_disabled = await explained(running, 10)
    await running.resume_job("a")

    answer = await explained(running, 10)

    assert answer.reason is while_disabled.reason is SkipReason.DISABLED
    assert "since 2026-01-05 12:00 UTC, by anna" in str(while_disabled)
    assert "since 2026-01-05 12:00 UTC, by anna" in str(answer)


async def test_many_triggers_do_not_hide_who_paused_it(
    running: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An explanation looks at a limited number of changes."""
    monkeypatch.setattr(outlook, "MOST_CHANGES", 3)
    await running.add_job(Every("10m"), handler="work", id="a")
    with acting_as("anna"):
        await running.pause_job("a", reason="a move")
    await clock.advance("30m")
    await running.resume_job("a")
    for _ in range(5):
        await running.trigger_job("a")
        await clock.advance("1s")

    assert "by anna: a move" in str(await explained(running, 20))


async def test_it_had_another_schedule(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("35m")
    await running.update_job("a", schedule=Every("1h"))
    await clock.advance("2h")
    await running.update_job("a", schedule=Cron("30 * * * *", tz="UTC"))
    await clock.advance("1h")

    assert (await explained(running, 20)).reason is None, "by the first"
    first, second = await explained(running, 25), await explained(running, 100)
    assert first.reason is second.reason is SkipReason.NOT_DUE
    assert "its schedule was another one then, every 10 minutes" in str(first)
    assert "its schedule was another one then, every hour" in str(second)
    assert (await explained(running, 95)).reason is None, "by the second"


async def test_it_was_disabled(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m"), handler="work", id="a")
    await running.disable_job("a", reason="enough")
    await clock.advance("35m")

    answer = await explained(running, 20)

    assert answer.reason is SkipReason.DISABLED
    assert "enough" in str(answer)


async def test_the_run_before_had_not_ended(running: Scheduler, clock: VirtualClock, worker: Worker) -> None:
    worker.takes = "25m"
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("25m")

    during = await explained(running, 20)
    await clock.advance("20m")
    after = await explained(running, 30)

    assert during.reason is after.reason is SkipReason.ALREADY_RUNNING
    assert str(after) == 'Job "a" did not run at 2026-01-05 12:30 UTC: the run before had not ended.'


@pytest.mark.parametrize("misfire", ["run_once", "skip"])
async def test_no_scheduler_was_running(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, misfire: str
) -> None:
    """What was missed is merged into one run, or left out."""
    first = new_scheduler(shared)
    await first.start()
    await first.add_job(Every("10m"), handler="work", id="a", misfire=misfire)
    await clock.advance("15m")
    await first.stop()
    await clock.advance(timedelta(minutes=31))
    second = new_scheduler(shared)
    waiting = await explained(second, 30)
    await second.start()
    await clock.advance("1s")

    answer = await explained(second, 30)

    assert waiting.reason is SkipReason.NO_SCHEDULER
    assert "No scheduler was running from 2026-01-05 12:15 UTC." in str(waiting)
    assert "No scheduler was running from 2026-01-05 12:15 UTC until 2026-01-05 12:46 UTC." in str(answer)
    if misfire == "skip":
        assert (answer.reason, answer.run) == (SkipReason.MISFIRE, None)
        assert "it was too late" in str(answer)
    else:
        assert answer.reason is None
        assert answer.run is not None
        assert answer.run.scheduled_for == NOON + 20 * MINUTE
        assert "merged into a later run. It ran at 2026-01-05 12:46 UTC, and ended" in str(answer)


async def test_an_outage_of_days_is_told_from_its_beginning(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock
) -> None:
    first = new_scheduler(shared)
    await first.start()
    await first.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("15m")
    await first.stop()
    clock.set(NOON + 5 * DAY)
    second = new_scheduler(shared)

    answer = await second.explain("a", at=NOON + 3 * DAY)

    assert answer.reason is SkipReason.NO_SCHEDULER
    assert "No scheduler was running from 2026-01-05 12:15 UTC." in str(answer)


async def test_after_the_clock_was_set_back_rows_overlap(running: Scheduler, clock: VirtualClock) -> None:
    """The row that counts an occurrence may begin before another one that ends too early."""
    await running.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("15m")
    await running.disable_job("a")
    await clock.advance("30m")
    await running.resume_job("a")
    clock.set(NOON - HOUR)
    await clock.advance()
    await running.pause_job("a")
    clock.set(NOON + 3 * HOUR)
    await running.resume_job("a")
    rows = [row for row in await running.run_log("a") if row.attempt == 0]
    assert [row.reason for row in rows] == [SkipReason.PAUSED, SkipReason.DISABLED]
    assert rows[0].scheduled_for < rows[1].scheduled_for

    answers = [await explained(running, minutes) for minutes in (30, 50, 120)]

    assert [answer.reason for answer in answers] == [SkipReason.DISABLED, SkipReason.PAUSED, SkipReason.PAUSED]


async def test_the_rows_of_that_time_are_gone(new_scheduler: NewScheduler, shared: str, clock: VirtualClock) -> None:
    scheduler = new_scheduler(shared, keep_runs=3)
    await scheduler.start()
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("3h")
    await scheduler.stop()  # which purges

    answer = await explained(scheduler, 10)

    assert answer.reason is SkipReason.PURGED
    assert str(answer) == ('Job "a" was due at 2026-01-05 12:10 UTC, but the rows of that time are no longer kept.')


async def test_the_future(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m"), handler="work", id="a")
    await running.add_job(At(NOON + HOUR), handler="work", id="once")
    await running.add_job(Manual(), handler="work", id="manual")
    await running.add_job(Delay("10m", immediately=False), handler="work", id="delay")

    expected = await explained(running, 60)
    once = await explained(running, 60, "once")
    await running.pause_job("a", until="30m")

    assert (expected.reason, expected.run) == (None, None)
    assert str(expected) == 'Job "a" is expected to run at 2026-01-05 13:00 UTC.'
    assert once.reason is None
    assert (await explained(running, 20)).reason is SkipReason.PAUSED
    assert (await explained(running, 60)).reason is None
    assert (await explained(running, 65)).reason is SkipReason.NOT_DUE
    assert (await explained(running, 60, "manual")).reason is SkipReason.MANUAL_ONLY
    assert (await explained(running, 10, "delay")).reason is None


@pytest.mark.parametrize(
    ("fields", "foretold"),
    [
        pytest.param(
            {"retry": Retry.backoff(["3m"])},
            ["backoff", "backoff", "expected", "expected"],
            id="it waits after a failure",
        ),
        pytest.param(
            {"retry": Retry.budget(3, "1d")}, ["backoff", "backoff", "expected", "expected"], id="regular times wait"
        ),
        pytest.param({"retry": Retry.budget(1, "4m")}, [*["retries_exhausted"] * 4], id="its budget is spent"),
        pytest.param({"retry": Retry.none(), "max_runs": 3}, ["expected", "expected", "ended", "ended"], id="max_runs"),
    ],
)
async def test_what_is_foretold_after_a_failure_is_what_becomes_of_it(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, fields: dict[str, Any], foretold: list[str]
) -> None:
    """Otherwise the answer about a time changes when that time has passed, although nothing else has happened."""
    worker.answer = ValueError("no")
    async with new_scheduler(":memory:") as scheduler:
        await scheduler.add_job(Every("1m"), handler="work", id="a", **fields)
        await clock.advance("61s")

        before = [await explained(scheduler, minute) for minute in (2, 3, 4, 5)]
        worker.answer = None
        await clock.advance("5m")
        after = [await explained(scheduler, minute) for minute in (2, 3, 4, 5)]

    assert [answer.reason or "expected" for answer in before] == foretold
    assert [answer.reason is None for answer in after] == [answer.reason is None for answer in before]


async def test_a_whole_minute_means_all_of_it_and_a_second_only_that(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("10m", anchor=NOON + timedelta(seconds=20)), handler="work", id="a")
    await clock.advance("25m")

    assert (await explained(running, 10)).reason is None
    assert (await running.explain("a", at=NOON + timedelta(minutes=10, seconds=20))).reason is None
    assert (await running.explain("a", at=NOON + timedelta(minutes=10, seconds=21))).reason is SkipReason.NOT_DUE


async def test_a_row_later_in_the_same_minute_does_not_hide_what_became_of_the_occurrence(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    worker.takes = "50s"
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(Every("20s"), handler="work", id="a")
        await clock.advance("130s")
        await scheduler.pause_job("a")
        await clock.advance("1m")
        await scheduler.resume_job("a")

        answers = [await scheduler.explain("a", at=NOON + second * SECOND) for second in (60, 120, 140)]
        rows = await scheduler.run_log("a", outcome="skipped")

    assert [(row.scheduled_for - NOON).seconds for row in rows] == [140, 100, 40]
    assert [answer.reason for answer in answers] == ["already_running", "already_running", "paused"]


async def test_a_run_by_hand_is_found_too(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("15m")
    run_id = await running.trigger_job("a")
    await running.wait_for_run(run_id)

    answer = await explained(running, 15)

    assert answer.run is not None
    assert answer.run.id == run_id
    assert "by hand" in str(answer)


async def test_jitter_moves_an_occurrence_out_of_its_minute(running: Scheduler, clock: VirtualClock) -> None:
    """People ask by the time in the schedule."""
    await running.add_job(Cron("0 * * * *", tz="UTC", jitter="30m"), handler="work", id="a")
    await clock.advance("2h")
    (row,) = await running.run_log("a", limit=1)
    assert row.scheduled_for > NOON + HOUR + MINUTE

    answer = await explained(running, 60)

    assert answer.run == row


async def test_a_run_by_hand_does_not_hide_what_became_of_the_occurrence(
    running: Scheduler, clock: VirtualClock
) -> None:
    await running.add_job(Every("1h"), handler="work", id="a")
    await running.pause_job("a")
    await clock.advance(timedelta(hours=1, seconds=10))
    await running.run_job("a")

    assert (await explained(running, 60)).reason is SkipReason.PAUSED


async def test_the_time_at_which_it_was_added_is_no_occurrence(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Cron("0 * * * *", tz="UTC"), handler="work", id="a")
    await running.add_job(Every("1h", immediately=True), handler="work", id="at once")
    await clock.advance("30m")

    assert (await explained(running, 0)).reason is SkipReason.NOT_DUE
    assert (await explained(running, 0, "at once")).run is not None


async def test_the_last_word_about_a_pause_counts(running: Scheduler, clock: VirtualClock) -> None:
    """While the pause lasts, and after it."""
    await running.add_job(Every("1h"), handler="work", id="a")
    for actor in ("anna", "bob"):
        with acting_as(actor):
            await running.pause_job("a", reason=f"{actor} says so")
        await clock.advance("70m")

    during = [str(await explained(running, minutes)) for minutes in (60, 120)]
    await running.resume_job("a")
    after = [str(await explained(running, minutes)) for minutes in (60, 120)]

    assert after == during
    assert "since 2026-01-05 12:00 UTC, by anna: anna says so" in during[0]
    assert "since 2026-01-05 13:10 UTC, by bob: bob says so" in during[1]


async def test_what_came_due_when_the_pause_ended_is_blamed_on_it(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Every("1h"), handler="work", id="a")
    with acting_as("anna"):
        await running.pause_job("a", reason="a move")
    await clock.advance("1h")
    await running.resume_job("a")
    await running.pause_job("a", reason="another move", until="2h")
    await clock.advance("3h")

    by_hand, before, by_itself = [await explained(running, minute) for minute in (60, 120, 180)]

    assert "since 2026-01-05 12:00 UTC, by anna: a move" in str(by_hand)
    assert "since 2026-01-05 13:00 UTC: another move" in str(before)
    assert by_itself.run is not None, "the pause ended before it"


async def test_what_came_due_when_the_schedule_was_edited_belongs_to_the_schedule_before(
    running: Scheduler, clock: VirtualClock
) -> None:
    """Also when the edit came within the minute that is asked about."""
    await running.add_job(Every("1h"), handler="work", id="a")
    await running.pause_job("a", reason="a move")
    await clock.advance("1h")
    await running.update_job("a", schedule=Every("90m"))
    await running.add_job(Every("10m", anchor=NOON + 30 * SECOND), handler="work", id="b")
    await clock.advance("10m")
    await clock.advance("20s")
    await running.update_job("b", schedule=Every("15s"))
    await clock.advance("1h")

    at_the_edit = await explained(running, 60)
    in_its_minute = await explained(running, 70, "b")

    assert (at_the_edit.reason, at_the_edit.run) == (SkipReason.PAUSED, None)
    assert in_its_minute.run is not None
    assert in_its_minute.run.scheduled_for == NOON + 70 * MINUTE + 35 * SECOND


async def test_after_a_catch_up_that_was_retried_the_run_is_its_last_attempt(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    first = new_scheduler(shared, retry=Retry.in_window(2, delay="1m"))
    await first.add_job(Every("10m"), handler="work", id="a")
    await first.stop()
    await clock.advance("45m")
    worker.answer = ValueError("no")
    second = new_scheduler(shared, retry=Retry.in_window(2, delay="1m"))
    await second.start()
    await clock.advance("4m")

    answer = await explained(second, 20)

    assert answer.run is not None
    assert (answer.reason, answer.run.attempt, answer.run.scheduled_for) == (None, 3, NOON + 10 * MINUTE)


async def test_the_nearest_times_of_a_delay_are_not_known(running: Scheduler, clock: VirtualClock) -> None:
    await running.add_job(Delay("10m", immediately=False), handler="work", id="a")
    await clock.advance("25m")

    answer = await explained(running, 15)

    assert answer.reason is SkipReason.NOT_DUE
    assert "Nearest" not in str(answer)


async def test_a_job_that_no_scheduler_runs_is_not_expected_to_run(new_scheduler: NewScheduler, store: str) -> None:
    idle = new_scheduler(store)
    await idle.add_job(Every("10m"), handler="work", id="a")

    answer = await explained(idle, 60)

    assert (answer.reason, answer.until) == (SkipReason.NO_SCHEDULER, NOON + HOUR)
    assert "should run at 2026-01-05 13:00 UTC, but would not now: no scheduler is running" in str(answer)


async def test_what_was_due_when_it_was_paused_is_not_blamed_on_the_pause_alone(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock
) -> None:
    """The scheduler was down before, and the job had been disabled for a while before that."""
    scheduler = new_scheduler(shared)
    await scheduler.start()
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.disable_job("a", reason="first")
    await scheduler.resume_job("a")
    await clock.advance("90m")
    await scheduler.stop()
    await clock.advance("2h")
    other = new_scheduler(shared)
    await other.pause_job("a", reason="second")

    answer = await explained(other, 120)

    assert answer.reason is SkipReason.PAUSED
    assert str(answer) == (
        'Job "a" was due at 2026-01-05 14:00 UTC, and had not started when it was paused at 2026-01-05 15:30 UTC: '
        "second. No scheduler was running from 2026-01-05 13:30 UTC."
    )


async def test_an_edit_during_an_outage_is_told(new_scheduler: NewScheduler, shared: str, clock: VirtualClock) -> None:
    scheduler = new_scheduler(shared)
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("90m")
    await scheduler.update_job("a", schedule=Every("2h"))

    assert "its schedule was changed before it could start" in str(await explained(scheduler, 60))


async def test_what_passes_while_the_last_runs_of_a_job_go_on_has_a_row(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """A manual run beside them changes nothing about that."""
    worker.takes = "450s"
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(Every("1m"), handler="work", id="a", max_runs=2, max_instances=3)
        await clock.advance("4m")
        await scheduler.trigger_job("a")
        meanwhile = await explained(scheduler, 3)
        await clock.advance("20m")

        answers = [await explained(scheduler, minute) for minute in (3, 30)]
        rows = await scheduler.run_log("a", outcome="skipped")

    assert [(row.reason, row.scheduled_for, row.missed) for row in rows] == [("ended", NOON + 3 * MINUTE, 9)]
    assert [answer.reason for answer in (meanwhile, *answers)] == ["ended", "ended", "ended"]
    assert str(meanwhile) == str(answers[1]) == 'Job "a" has ended: it has run as often as its max_runs allows (2).'
    assert str(answers[0]) == (
        'Job "a" did not run at 2026-01-05 12:03 UTC: it had run as often as its max_runs allows.'
    )


async def test_bad_input(idle: Scheduler) -> None:
    await idle.add_job(Every("10m"), handler="work", id="a")

    with pytest.raises(InvalidScheduleError, match="has no time zone"):
        await idle.explain("a", at=datetime(2026, 1, 5, 12))
    with pytest.raises(InvalidScheduleError, match="ISO 8601"):
        await idle.explain("a", at="yesterday")
    with pytest.raises(JobNotFoundError):
        await idle.explain("b", at=datetime(2026, 1, 5, 12, tzinfo=UTC))
