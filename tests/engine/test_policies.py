"""Policies of a job: what happens to missed occurrences, to occurrences during a run, and after the last run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from scheduler_async import Every, InvalidJobError, Retry, RunRow, Scheduler, SkipReason, Trigger
from scheduler_async.testing import VirtualClock
from tests.cast import DAY, HOUR, MINUTE, NOON, NewScheduler, Worker, job_of


async def outage(scheduler: Scheduler, clock: VirtualClock, length: timedelta, **policy: Any) -> list[RunRow]:
    """The rows of a job that runs every ten minutes, oldest first, after no scheduler was there for some time."""
    await scheduler.add_job(Every("10m"), handler="work", id="a", **policy)
    clock.set(NOON + length)
    await scheduler.start()
    await clock.advance("1s")
    return (await scheduler.run_log("a", limit=None))[::-1]


def minutes(moments: list[datetime]) -> list[float]:
    return [(moment - NOON) / MINUTE for moment in moments]


async def test_each_missed_occurrence_runs_oldest_first(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    rows = await outage(new_scheduler(every_store), clock, HOUR, misfire="run_all")

    assert minutes([row.scheduled_for for row in rows]) == [10, 20, 30, 40, 50, 60]
    assert {row.trigger for row in rows} == {Trigger.CATCH_UP}
    assert worker.most_active == 1


@pytest.mark.parametrize(
    ("limits", "ran", "left_out"),
    [
        pytest.param({"catch_up_limit": 2}, [50, 60], (10, 4), id="the newest ones"),
        pytest.param({"catch_up_window": "25m"}, [40, 50, 60], (10, 3), id="none that is too old"),
        pytest.param({"misfire_grace": "2h"}, [10, 20, 30, 40, 50, 60], None, id="not those within the grace period"),
        pytest.param({"catch_up_limit": 6}, [10, 20, 30, 40, 50, 60], None, id="just as many as may"),
        pytest.param({"catch_up_window": "1s", "misfire_grace": "0s"}, [60], (10, 5), id="one just in time"),
    ],
)
async def test_catching_up_is_bounded(
    new_scheduler: NewScheduler,
    clock: VirtualClock,
    limits: dict[str, Any],
    ran: list[int],
    left_out: tuple[int, int] | None,
) -> None:
    rows = await outage(new_scheduler(":memory:"), clock, HOUR, misfire="run_all", **limits)

    skipped = [(*minutes([row.scheduled_for]), row.missed) for row in rows if row.reason is SkipReason.MISFIRE]
    assert minutes([row.scheduled_for for row in rows if row.attempt]) == ran
    assert skipped == ([left_out] if left_out else [])


async def test_a_job_may_catch_up_while_others_skip_by_their_own_grace(
    new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """A report may be an hour late; a reminder that comes after ten minutes helps nobody."""
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h"), handler="work", id="patient", misfire="skip", misfire_grace="30m")
    await scheduler.add_job(Every("1h"), handler="work", id="usual", misfire="skip")
    clock.set(NOON + HOUR + 20 * MINUTE)
    await scheduler.start()
    await clock.advance("1s")

    assert [row.job_id for row in await scheduler.run_log() if row.attempt] == ["patient"]


async def test_a_failure_does_not_lose_what_is_still_owed(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    worker.answer = ValueError("no")
    scheduler = new_scheduler(every_store)
    await outage(scheduler, clock, timedelta(minutes=30), misfire="run_all", retry=Retry.in_window(1))
    await clock.advance("10s")

    rows = (await scheduler.run_log("a", limit=None))[::-1]
    assert [(*minutes([row.scheduled_for]), row.attempt) for row in rows] == [
        *((10, 1), (10, 2)),
        *((20, 1), (20, 2)),
        *((30, 1), (30, 2)),
    ]


async def test_a_restart_goes_on_catching_up(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker
) -> None:
    first = new_scheduler(shared)
    worker.takes = "1m"
    await outage(first, clock, HOUR, misfire="run_all")
    await clock.advance("90s")
    await first.stop()

    await new_scheduler(shared).start()
    await clock.advance("7m")

    assert minutes([run.scheduled_for for run in worker.runs]) == [10, 20, 30, 40, 50, 60]


async def test_one_occurrence_waits_for_the_end_of_a_run(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """Later ones merge into it, and `explain` names the run that caught up with them."""
    scheduler = new_scheduler(every_store)
    worker.takes = "35m"
    await scheduler.add_job(Every("10m"), handler="work", id="a", overlap="queue", misfire="skip")
    await scheduler.start()
    await clock.advance("46m")

    assert worker.fired() == [10, 45]
    assert minutes([run.scheduled_for for run in worker.runs]) == [10, 20]
    (skipped,) = await scheduler.run_log("a", outcome="skipped")
    assert (skipped.reason, skipped.missed, *minutes([skipped.scheduled_for])) == ("already_running", 2, 30)
    merged = await scheduler.explain("a", at=NOON + 40 * MINUTE)
    assert merged.run is not None
    assert merged.run.id == worker.runs[1].id


async def test_an_occurrence_waits_for_a_run_by_hand(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(":memory:")
    worker.takes = "5m"
    await scheduler.add_job(Every("10m"), handler="work", id="a", overlap="queue")
    await scheduler.start()
    await clock.advance("8m")
    await scheduler.trigger_job("a")
    await clock.advance("6m")

    assert worker.fired() == [8, 13]
    assert not await scheduler.run_log("a", outcome="skipped")


@pytest.mark.parametrize("change", ["pause", "edit", "remove"])
async def test_what_is_owed_has_its_row_when_the_job_is_changed(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker, change: str
) -> None:
    scheduler = new_scheduler(every_store)
    worker.takes = "1m"
    await outage(scheduler, clock, HOUR, misfire="run_all")

    match change:
        case "pause":
            await scheduler.pause_job("a")
        case "edit":
            await scheduler.update_job("a", schedule=Every("1d"))
        case _:
            await scheduler.remove_job("a")
    await clock.advance("2m")

    rows = await scheduler.run_log("a", limit=None)
    assert sum(row.missed for row in rows if not row.attempt) == 5
    assert len([row for row in rows if row.attempt]) == 1


async def test_a_job_ends_after_so_many_occurrences(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """Retries and runs by hand do not count."""
    worker.answer = ValueError("no")
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Every("10m"), handler="work", id="a", max_runs=2, retry=Retry.in_window(1))
    await scheduler.start()
    await scheduler.wait_for_run(await scheduler.trigger_job("a"))
    await clock.advance("2h")

    job = await job_of(scheduler)
    assert (job.ended, job.next_run_at) == (True, None)
    assert [(run.trigger, *minutes([run.scheduled_for])) for run in worker.runs] == [
        (Trigger.MANUAL, 0),
        *((Trigger.SCHEDULE, 10), (Trigger.RETRY, 10)),
        *((Trigger.SCHEDULE, 20), (Trigger.RETRY, 20)),
    ]
    assert str(await scheduler.explain("a")) == ('Job "a" has ended: it has run as often as its max_runs allows (2).')


async def test_a_pause_before_a_retry_gives_no_further_run(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """After the pause, the last occurrence is retried, and no other one runs."""
    worker.answer = ValueError("no")
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Every("10m"), handler="work", id="a", max_runs=1, retry=Retry.in_window(1, delay="5m"))
    await scheduler.start()
    await clock.advance("12m")
    await scheduler.pause_job("a")
    await clock.advance("30m")
    worker.answer = None
    await scheduler.resume_job("a")
    await clock.advance("1h")

    assert (await job_of(scheduler)).ended
    assert [(run.trigger, *minutes([run.scheduled_for])) for run in worker.runs] == [("schedule", 10), ("retry", 10)]
    rows = await scheduler.run_log("a", outcome="skipped")
    assert [(row.reason, *minutes([row.scheduled_for]), row.missed) for row in rows] == [("paused", 20, 3)]


async def test_another_limit_revives_an_ended_job_or_ends_it(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("10m"), handler="work", id="a", max_runs=1)
    await scheduler.start()
    await clock.advance("25m")
    assert (await job_of(scheduler)).ended

    await scheduler.update_job("a", max_runs=3)
    assert [upcoming.at for upcoming in await scheduler.preview("1h")] == [NOON + 30 * MINUTE, NOON + 40 * MINUTE]
    await clock.advance("10m")
    await scheduler.update_job("a", max_runs=2)

    assert (await job_of(scheduler)).ended
    assert worker.fired() == [10, 30]


async def test_the_count_of_runs_begins_with_the_limit_and_with_the_schedule(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    """An edit is not retroactive: neither the runs before a limit was set count, nor those of another schedule."""
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("10m"), handler="work", id="a", max_runs=2)
    await scheduler.start()
    await clock.advance("15m")
    await scheduler.update_job("a", max_runs=None)
    await scheduler.update_job("a", max_runs=2)
    await clock.advance("35m")
    since_the_limit = worker.fired()

    await scheduler.update_job("a", schedule=Every("1h"))
    await clock.advance("4h")

    assert since_the_limit == [10, 20, 30]
    assert worker.fired()[3:] == [50 + 60, 50 + 120]
    assert (await job_of(scheduler)).ended


async def test_during_the_last_run_there_is_no_next_one(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    scheduler = new_scheduler(":memory:")
    worker.takes = "1m"
    await scheduler.add_job(Every("10m"), handler="work", id="a", max_runs=2)
    await scheduler.start()

    await clock.advance("10m")
    first = (await job_of(scheduler)).next_run_at
    await clock.advance("10m")
    last = await job_of(scheduler)

    assert first == NOON + 20 * MINUTE
    assert (last.status, last.next_run_at) == ("running", None)


async def test_a_preview_says_how_many_are_owed(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("10m"), handler="work", id="a", misfire="run_all", catch_up_limit=4)
    clock.set(NOON + HOUR)

    now, *_ = await scheduler.preview("1m")

    assert now.warnings == ("2 missed, skipped", "3 more missed, which run after it")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"max_instances": 0}, "max_instances must be a whole number from 1 to .*, not 0"),
        ({"max_instances": True}, "max_instances must be a whole number from 1 to"),
        ({"overlap": "wait"}, "overlap must be one of skip, queue, cancel"),
        ({"catch_up_limit": 10_001}, "catch_up_limit must be a whole number from 1 to 10000"),
        ({"max_runs": 1.5}, "max_runs must be a whole number from 1 to"),
        ({"misfire": "run_some"}, "misfire must be one of run_once, skip, run_all"),
    ],
    ids=str,
)
async def test_bad_policies_are_refused(new_scheduler: NewScheduler, policy: dict[str, Any], words: str) -> None:
    scheduler = new_scheduler(":memory:")

    with pytest.raises(InvalidJobError, match=words):
        await scheduler.add_job(Every("10m"), handler="work", **policy)

    assert await scheduler.list_jobs() == []


async def test_policies_are_kept_edited_and_shown(new_scheduler: NewScheduler, every_store: str) -> None:
    scheduler = new_scheduler(every_store)
    policy: dict[str, Any] = {
        "max_instances": 3,
        "overlap": "queue",
        "misfire_grace": "0s",
        "catch_up_limit": 7,
        "catch_up_window": timedelta(milliseconds=1500),
        "max_runs": 9,
    }
    await scheduler.add_job(Every("10m"), handler="work", id="a", **policy)
    await scheduler.update_job("a", max_runs=None, misfire_grace="90s")

    job = await job_of(scheduler)
    assert (job.max_instances, job.overlap, job.catch_up_limit, job.max_runs) == (3, "queue", 7, None)
    assert (job.misfire_grace, job.catch_up_window) == (timedelta(seconds=90), timedelta(milliseconds=1500))
    assert job.to_json()["misfire_grace"] == "90s"
    edit, added = await scheduler.changes("a")
    assert edit.before == {"misfire_grace": "0d", "max_runs": 9}
    assert edit.after == {"misfire_grace": "90s", "max_runs": None}
    assert added.after["catch_up_window"] == "1500000us"


async def test_a_backfill_waits_for_the_rate_of_its_group(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """It goes on by itself when the rate allows it, although nothing else wakes the loop."""
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m"})
    await scheduler.add_job(Every("1d"), handler="work", id="a", group="api")
    await scheduler.start()
    await scheduler.backfill_job("a", NOON - 5 * DAY, NOON, max_concurrent=5)

    for minute in range(3):
        await clock.advance("1s")
        assert len(worker.runs) == min(2 * (minute + 1), 5)
        await clock.advance("1m")

    assert {run.trigger for run in worker.runs} == {Trigger.BACKFILL}
