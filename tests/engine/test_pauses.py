"""Pauses: with a reason, until a time, and with a row for the occurrences that did not run."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    InvalidJobError,
    InvalidScheduleError,
    JobDisabledError,
    RunRow,
    Schedule,
    Scheduler,
    SkipReason,
    Status,
)
from scheduler_async.calls.json_output import listed_form
from scheduler_async.rules.explaining import after_pause
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, NewScheduler, Worker, job_of

pytestmark = pytest.mark.once  # the version of Python does not matter


async def skipped(scheduler: Scheduler, id: str = "a") -> list[tuple[object, datetime, int]]:
    """The rows of occurrences that did not run, oldest first."""
    rows: list[RunRow] = await scheduler.run_log(id, outcome="skipped", limit=None)
    return [(row.reason, row.scheduled_for, row.missed) for row in reversed(rows)]


async def test_the_end_of_a_pause_leaves_one_row(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Every("10m"), handler="work", id="a")

    await scheduler.pause_job("a", reason="the supplier moves")
    paused = await job_of(scheduler)
    await clock.advance(timedelta(minutes=65))
    before = await skipped(scheduler)
    await scheduler.resume_job("a")
    await clock.advance("5m")

    assert (paused.status, paused.paused_reason, paused.paused_until) == (
        Status.PAUSED,
        "the supplier moves",
        None,
    )
    assert before == []
    assert await skipped(scheduler) == [(SkipReason.PAUSED, NOON + 10 * MINUTE, 6)]
    assert len(worker.runs) == 1
    assert (await job_of(scheduler)).paused_reason is None


@pytest.mark.parametrize("until", ["1h", timedelta(hours=1), NOON + HOUR, "2026-01-05T13:00:00Z"], ids=repr)
async def test_a_pause_ends_by_itself(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker, until: Any
) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.pause_job("a", until=until)

    await clock.advance(timedelta(minutes=59, seconds=59))
    assert (await job_of(scheduler)).status is Status.PAUSED
    await clock.advance("1s")

    job = await job_of(scheduler)
    assert (job.status, job.paused_until) == (Status.IDLE, None)
    assert await skipped(scheduler) == [(SkipReason.PAUSED, NOON + 20 * MINUTE, 2)]
    assert worker.fired() == [60], "the job resumes in time for this occurrence"


async def test_a_pause_that_ended_while_nothing_ran_ended_at_its_time(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, worker: Worker
) -> None:
    """What came after that was missed, and is caught up with once."""
    first = new_scheduler(path)
    await first.add_job(Every("20m"), handler="work", id="a")
    await first.pause_job("a", until="1h")
    await first.stop()
    await clock.advance("3h")

    second = new_scheduler(path)
    await second.start()
    await clock.advance("1s")

    assert len(worker.runs) == 1
    assert await skipped(second) == [
        (SkipReason.PAUSED, NOON + 20 * MINUTE, 2),
        (SkipReason.MISFIRE, NOON + 80 * MINUTE, 6),
    ]


async def test_a_pass_without_the_loop_ends_a_pause(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(store)
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.pause_job("a", until="30m")

    clock.set(NOON + 40 * MINUTE)
    summary = await scheduler.run_pending()

    assert summary.executed == len(worker.runs) == 1


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_another_process_ends_a_pause(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, worker: Worker
) -> None:
    running, other = new_scheduler(path), new_scheduler(path)
    await running.start()
    await clock.advance("1s")
    await other.add_job(Every("20m"), handler="work", id="a")
    await other.pause_job("a", until="1h")

    await clock.advance("2h")

    assert (await job_of(running)).status is Status.IDLE
    assert len(worker.runs) == 4


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(Every("20m"), id="an interval"),
        pytest.param(Cron("0 13 * * *", tz="UTC"), id="a cron"),
        pytest.param(At(NOON + HOUR), id="a one-shot"),
        pytest.param(Delay("1h", immediately=False), id="a delay"),
    ],
)
async def test_a_pause_until_an_occurrence_ends_before_it(
    new_scheduler: NewScheduler,
    every_store: str,
    clock: VirtualClock,
    worker: Worker,
    schedule: Schedule,
) -> None:
    """Like any window, a pause does not include its end. Everything that foretells the next run knows that."""
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(schedule, handler="work", id="a", max_instances=2)
    paused = await scheduler.pause_job("a", until=NOON + HOUR)

    assert after_pause(paused).next_run_at == NOON + HOUR
    assert [row.at for row in await scheduler.preview("1h")] == [NOON + HOUR]
    foretold = await scheduler.explain("a", at=NOON + HOUR)
    assert foretold.reason is None
    await clock.advance("1h")

    assert [run.fired_at for run in worker.runs] == [NOON + HOUR]
    told = await scheduler.explain("a", at=NOON + HOUR)
    assert (told.reason, told.run is not None) == (None, True)
    (row,) = await scheduler.run_log("a", outcome="success")
    assert row.scheduled_for == NOON + HOUR


async def test_to_pause_again_replaces_the_reason_and_the_end(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.pause_job("a", reason="first", until="1h")
    await clock.advance("30m")

    job = await scheduler.pause_job("a", reason="second")

    assert (job.paused_reason, job.paused_until) == ("second", None)
    await clock.advance("3h")
    assert (await job_of(scheduler)).status is Status.PAUSED
    await scheduler.resume_job("a")
    assert await skipped(scheduler) == [(SkipReason.PAUSED, NOON + 20 * MINUTE, 10)], "one stretch"


async def test_a_pause_of_a_one_shot_leaves_no_row_since_it_still_runs(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="a")
    await scheduler.pause_job("a", until="2h")

    await clock.advance("3h")

    assert len(worker.runs) == 1
    assert await skipped(scheduler) == []


async def test_a_removal_ends_a_pause(new_scheduler: NewScheduler, every_store: str, clock: VirtualClock) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.pause_job("a")
    await clock.advance("1h")

    await scheduler.remove_job("a")

    assert await skipped(scheduler) == [(SkipReason.PAUSED, NOON + 20 * MINUTE, 3)]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"until": datetime(2026, 1, 5, 13)}, InvalidScheduleError, "has no time zone"),
        ({"until": NOON}, InvalidJobError, "until must be in the future"),
        ({"until": "18:00"}, InvalidJobError, 'until must be a duration such as "2h", or a time such as'),
        ({"until": 5}, InvalidJobError, "until must be a duration"),
        ({"reason": ""}, InvalidJobError, "must not be empty"),
        ({"reason": 5}, InvalidJobError, "reason"),
    ],
    ids=["naive", "past", "no duration", "number", "empty", "no text"],
)
async def test_bad_input_changes_nothing(
    new_scheduler: NewScheduler, store: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    scheduler = new_scheduler(store)
    await scheduler.add_job(Every("20m"), handler="work", id="a")

    with pytest.raises(error, match=words):
        await scheduler.pause_job("a", **options)

    assert (await job_of(scheduler)).status is Status.IDLE


async def test_a_pause_ends_even_if_there_is_no_room_to_run(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, worker: Worker
) -> None:
    worker.takes = "1d"
    scheduler = new_scheduler(store, max_concurrent=1)
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="long")
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.pause_job("a", until="1h")

    await clock.advance("1h")

    assert (await job_of(scheduler)).status is Status.IDLE


async def test_a_pass_hears_of_a_pause_that_another_process_made(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, worker: Worker
) -> None:
    passing, other = new_scheduler(path), new_scheduler(path)
    await passing.add_job(Every("20m"), handler="work", id="a")
    await passing.run_pending()
    await other.pause_job("a", until="30m")

    clock.set(NOON + 40 * MINUTE)
    await passing.run_pending()

    assert len(worker.runs) == 1


async def test_the_end_of_a_pause_is_a_time_to_wake(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.pause_job("a", until="30s")
    await clock.advance("1s")

    assert scheduler.state().next_wake_at == NOON + timedelta(seconds=30)


@pytest.mark.parametrize("outcome", ["disabled", "ended"])
async def test_a_disabled_job_cannot_be_paused(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, outcome: str
) -> None:
    """It would do nothing: the caller learns of it, and nothing is recorded."""
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Every("10m") if outcome == "disabled" else At(NOON), handler="work", id="a")
    if outcome == "disabled":
        await scheduler.disable_job("a", reason="enough")
    else:
        await scheduler.run_pending()
    before = await job_of(scheduler)
    recorded = await scheduler.changes("a")

    with pytest.raises(JobDisabledError, match='"a" is disabled, so it cannot be paused') as caught:
        await scheduler.pause_job("a", reason="the supplier moves", until="1h")

    assert (caught.value.job_id, caught.value.namespace) == ("a", "default")
    assert await job_of(scheduler) == before
    assert await scheduler.changes("a") == recorded


# ---------------------------------------------------------------- a schedule that fails


@pytest.fixture
async def failing(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> Scheduler:
    """A scheduler without its loop, whose job has been due for a while, and has a schedule that now raises an error."""
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Cron("*/10 * * * *", tz="UTC"), handler="work", id="a")
    await scheduler.add_job(Cron("*/10 * * * *", tz="UTC"), handler="work", id="paused")
    await scheduler.pause_job("paused")
    await clock.advance("1h")

    def fail(*_: object) -> None:
        raise OverflowError("no such year")

    for name in ("next_micros", "count_micros", "latest_micros"):
        monkeypatch.setattr(Cron, name, fail)
    return scheduler


DUE = NOON + 10 * MINUTE


async def test_a_job_whose_schedule_fails_can_be_paused(failing: Scheduler) -> None:
    """The row says what is known: the occurrence that was due."""
    await failing.pause_job("a", reason="mending it")

    job = await job_of(failing)
    assert (job.status, job.paused_reason) == (Status.PAUSED, "mending it")
    assert await skipped(failing) == [(SkipReason.PAUSED, DUE, 1)]


async def test_a_job_whose_schedule_fails_can_be_disabled(failing: Scheduler) -> None:
    await failing.disable_job("a", reason="it is broken")

    assert (await job_of(failing)).disabled_reason == "it is broken"
    assert await skipped(failing) == [(SkipReason.DISABLED, DUE, 1)]


async def test_a_job_whose_schedule_fails_is_disabled_when_it_is_resumed(failing: Scheduler) -> None:
    """It could not run, and says why. A schedule that works again lets it."""
    await failing.resume_job("paused")
    job = await job_of(failing, "paused")

    assert (job.status, job.disabled_reason) == (Status.DISABLED, "its schedule fails: no such year")
    assert [change.action for change in await failing.changes("paused")] == ["disable", "pause", "add"]

    await failing.resume_job("paused")
    assert (await job_of(failing, "paused")).status is Status.DISABLED


async def test_a_job_whose_schedule_fails_can_be_edited(failing: Scheduler) -> None:
    await failing.update_job("a", payload=1)
    await failing.update_job("paused", enabled=False)
    edited = await failing.update_job("a", schedule=Every("1h"))

    assert (edited.payload, edited.next_run_at) == (1, NOON + 2 * HOUR)
    assert await skipped(failing) == [(SkipReason.MISFIRE, DUE, 1)]


async def test_a_job_whose_schedule_fails_can_be_removed(failing: Scheduler) -> None:
    await failing.remove_job("a")
    await failing.remove_job("paused")

    assert await failing.list_jobs() == []
    assert await skipped(failing) == [(SkipReason.MISFIRE, DUE, 1)]


async def test_a_job_whose_schedule_fails_can_be_read(failing: Scheduler) -> None:
    words = 'Job "a" cannot run: its schedule fails: no such year.'

    then, now = await failing.explain("a", at=DUE), await failing.explain("paused")
    assert (then.reason, then.at, then.sentence) == (SkipReason.DISABLED, DUE, words)
    assert now.reason is SkipReason.PAUSED
    assert len(await failing.list_jobs()) == 2
    assert [row.warnings for row in await failing.preview("1d")] == [("its schedule fails: no such year",)]

    await failing.start()
    assert (await failing.explain("a")).reason is SkipReason.DISABLED


# ---------------------------------------------------------------- what runs next


async def test_a_preview_goes_on_where_a_pause_ends(new_scheduler: NewScheduler, every_store: str) -> None:
    """As the job will: `explain` says until when it is paused."""
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    await scheduler.add_job(Every("20m"), handler="work", id="for good")
    await scheduler.pause_job("a", until="30m")
    await scheduler.pause_job("for good")

    soon, later = await scheduler.preview("29m"), await scheduler.preview("1h")

    assert soon == []
    assert [(row.job.id, row.at) for row in later] == [("a", NOON + 40 * MINUTE), ("a", NOON + HOUR)]
    assert (await scheduler.explain("a")).until == NOON + 30 * MINUTE


@pytest.mark.parametrize(
    ("until", "next_run_at"),
    [
        pytest.param("30m", NOON + 40 * MINUTE, id="until after the next run"),
        pytest.param("20m", NOON + 20 * MINUTE, id="until the next run"),
        pytest.param("10m", NOON + 20 * MINUTE, id="until before it"),
        pytest.param(None, None, id="until it is resumed"),
    ],
)
async def test_the_next_run_of_a_paused_job_is_when_it_really_runs(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, until: str | None, next_run_at: datetime | None
) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.start()
    await scheduler.add_job(Every("20m"), handler="work", id="a")
    job = await scheduler.pause_job("a", until=until)

    foretold = after_pause(job).next_run_at
    listed = listed_form(job)["next_due_at"]
    await clock.advance("45m")

    assert foretold == next_run_at
    assert listed == (None if next_run_at is None else next_run_at.isoformat().replace("+00:00", "Z"))
    assert [run.scheduled_for for run in worker.runs][:1] == ([] if next_run_at is None else [next_run_at])
