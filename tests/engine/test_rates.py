"""Rates of groups, through the whole scheduler, on every store."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from scheduler_async import Every, InvalidJobError, JobSpec, Manual, Run, Scheduler, SkipReason
from scheduler_async.rules.rates import Rate
from tests.cast import HOUR, MINUTE, NOON, SECOND, NewScheduler, Worker


def due_at_noon(count: int, group: str | None = "api", **options: object) -> list[JobSpec]:
    """Jobs that are due at once, and then once a day."""
    schedule = Every("1d", immediately=True)
    return [JobSpec(schedule, handler="work", id=f"job{number}", group=group, **options) for number in range(count)]  # type: ignore[arg-type]


async def test_jobs_over_the_rate_stay_due_and_start_as_soon_as_they_may(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m"})
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(5))
    await scheduler.add_job(Every("1d", immediately=True), handler="work", id="free")

    await worker.clock.advance("5m")

    assert sorted(run.fired_at - NOON for run in worker.runs if run.job_id != "free") == [
        *[0 * MINUTE] * 2,
        *[1 * MINUTE] * 2,
        2 * MINUTE,
    ]
    assert [run.fired_at for run in worker.runs if run.job_id == "free"] == [NOON]


async def test_a_job_that_waits_is_explained_with_the_time_of_the_next_start(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "1/h"})
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(2))
    await worker.clock.advance("10m")

    explanation = await scheduler.explain("job1")

    assert (explanation.reason, explanation.until) == (SkipReason.RATE_LIMITED, NOON + HOUR)
    assert 'its group "api" has reached its rate' in str(explanation)
    assert worker.ids == ["job0"]
    await worker.clock.advance("50m")
    assert worker.ids == ["job0", "job1"]


async def test_the_loop_sleeps_until_the_next_start_is_allowed(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "3/h"}, max_sleep=None)
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(12))

    await worker.clock.advance("10h")

    assert [worker.fired().count(minute) for minute in (0, 60, 120, 180)] == [3, 3, 3, 3]
    assert scheduler.state().tick_count < 30


async def test_each_namespace_has_a_rate_of_its_own_and_all_share_another(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m", "*/api": "3/m"})
    await scheduler.start()
    await scheduler.add_jobs([*due_at_noon(3, namespace="a"), *due_at_noon(3, namespace="b")])

    await worker.clock.advance("30s")
    first = sorted(run.namespace for run in worker.runs)
    await worker.clock.advance("2m")

    assert len(first) == 3
    assert max(first.count("a"), first.count("b")) == 2
    assert len(worker.runs) == 6


async def test_a_limit_and_a_rate_both_hold(new_scheduler: NewScheduler, every_store: str, worker: Worker) -> None:
    worker.takes = "10s"
    scheduler = new_scheduler(every_store, group_limits={"api": 1}, group_rates={"api": "2/m"})
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(4))

    await worker.clock.advance("5m")

    assert worker.fired(SECOND) == [0, 10, 60, 70]
    assert worker.most_active == 1


async def test_manual_runs_count_and_are_not_held_up(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m"})
    await scheduler.start()
    await scheduler.add_job(Manual(), handler="work", id="manual", group="api")
    for _ in range(3):
        await scheduler.run_job("manual")
    await scheduler.trigger_job("manual", anywhere=True)
    await worker.clock.advance("30s")
    await scheduler.add_jobs(due_at_noon(1))

    await worker.clock.advance("1m")

    assert worker.fired(SECOND) == [0, 0, 0, 0, 60]


async def test_the_window_rolls(new_scheduler: NewScheduler, every_store: str, worker: Worker) -> None:
    """A start ceases to count one period after it, not at the end of a calendar minute."""
    scheduler = new_scheduler(every_store, group_rates={"api": "3/m"})
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(Every("7s"), handler="work", id=str(number), group="api") for number in range(3)])

    await worker.clock.advance("10m")

    starts = sorted(run.fired_at for run in worker.runs)
    assert most_in_a_window(starts, MINUTE) == 3
    assert len(starts) >= 28


def most_in_a_window(starts: list[datetime], period: timedelta) -> int:
    return max(sum(start <= other < start + period for other in starts) for start in starts)


async def test_two_schedulers_share_a_rate(new_scheduler: NewScheduler, shared: str, worker: Worker) -> None:
    one, other = (new_scheduler(shared, group_rates={"api": "3/m"}) for _ in range(2))
    await one.add_jobs(due_at_noon(12))
    await one.start()
    await other.start()

    await worker.clock.advance("10m")

    starts = sorted(run.fired_at for run in worker.runs)
    assert len(starts) == 12
    assert most_in_a_window(starts, MINUTE) == 3


async def test_a_rate_holds_across_a_restart(new_scheduler: NewScheduler, shared: str, worker: Worker) -> None:
    before = new_scheduler(shared, group_rates={"api": "2/h"})
    await before.add_jobs(due_at_noon(4))
    await before.start()
    await worker.clock.advance("10m")
    await before.stop()

    after = new_scheduler(shared, group_rates={"api": "2/h"})
    await after.start()
    await worker.clock.advance("2h")

    assert worker.fired() == [0, 0, 60, 60]


async def test_a_clock_that_goes_back_holds_up_a_group_for_no_more_than_its_period(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m"})
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(2))
    await worker.clock.advance("10s")

    worker.clock.set(NOON - 6 * HOUR)
    await scheduler.add_job(Every("1d", immediately=True), handler="work", id="late", group="api")
    await worker.clock.advance("59s")
    before = len(worker.runs)
    await worker.clock.advance("1s")

    assert (before, len(worker.runs)) == (2, 3)


async def test_a_queue_does_not_start_more_runs_than_a_rate_allows(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    """A run that waited in the queue would begin later than it counts."""
    worker.takes = "50s"
    scheduler = new_scheduler(every_store, group_rates={"api": "3/m"}, max_concurrent=2, queue_size=10)
    await scheduler.start()
    await scheduler.add_jobs(due_at_noon(6))

    await worker.clock.advance("10m")

    starts = sorted(run.fired_at for run in worker.runs)
    assert len(starts) == 6
    assert most_in_a_window(starts, MINUTE) <= 3


async def test_a_single_pass_keeps_to_a_rate(new_scheduler: NewScheduler, every_store: str, worker: Worker) -> None:
    scheduler = new_scheduler(every_store, group_rates={"api": "2/m"})
    await scheduler.add_jobs(due_at_noon(3))

    first, second = await scheduler.run_pending(), await scheduler.run_pending()
    await worker.clock.advance("1m")
    third = await scheduler.run_pending()

    assert (first.executed, second.executed, third.executed) == (2, 0, 1)


async def test_starts_are_stored_only_for_groups_with_a_rate_and_are_pruned(
    new_scheduler: NewScheduler, path: Path, worker: Worker
) -> None:
    scheduler = new_scheduler(str(path), group_rates={"api": "100/s"})
    await scheduler.start()
    await scheduler.add_job(Every("10s"), handler="work", id="rated", group="api")
    await scheduler.add_job(Every("10s"), handler="work", id="other", group="other")
    await worker.clock.advance("10m")

    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT rate_key, settled, starts FROM group_start WHERE starts > 0").fetchall()
    assert rows == [("default\napi", 1, 1)]


async def test_a_start_that_never_begins_does_not_count(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    """Its handler was removed between the claim and its beginning."""
    rate = Rate(1, 60 * 10**6)
    scheduler = new_scheduler(every_store, group_rates={"api": "1/m"})
    await scheduler.start()
    store, now = scheduler._store, worker.clock.micros()
    rates = scheduler._engine.setting.limits.group_rates
    await scheduler.add_job(Manual(), handler="work", id="a", group="api")
    node = scheduler._engine.session.node.required_id()
    await store.claim_one("default", "a", None, now, node=node, queued=False, rates=rates)

    counted = await store.rate_free_at("default\napi", rate, now)
    await store.settle_starts(dict.fromkeys(rates.settlements("default\napi", now, None), 1))

    assert counted == now + 60 * 10**6
    assert await store.rate_free_at("default\napi", rate, now) == now


@pytest.mark.parametrize("bad", [{"api": "100"}, {"": "1/s"}, {"*": "1/s"}, {"api": 5}, "1/s", ["api"], {"api": "0/m"}])
def test_bad_rates_are_refused(bad: object) -> None:
    with pytest.raises(InvalidJobError, match="group_rates"):
        Scheduler(":memory:", group_rates=bad)  # type: ignore[arg-type]


async def test_runs_of_real_handlers_never_exceed_the_rate(shared: str) -> None:
    """In real time, handlers begin a little after their claims. Their own times are what counts."""
    scheduler = Scheduler(shared, group_rates={"api": "20/s"})
    begun: list[datetime] = []

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        begun.append(run.fired_at)

    async with scheduler:
        await scheduler.add_jobs(due_at_noon(50))
        while len(begun) < 50:
            await scheduler._engine.setting.machine.wait(asyncio.Event(), 0.05)

    assert most_in_a_window(sorted(begun), SECOND) <= 20
