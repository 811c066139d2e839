"""Jobs with schedules that users write: one that fails is disabled, and one that is not known here is left alone."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from scheduler_async import AnyOf, Cron, Every, Holidays, Hours, InvalidScheduleError, Schedule, SkipReason, Weekdays
from scheduler_async.schedules import base, country_holidays
from scheduler_async.testing import VirtualClock
from tests.cast import DAY, HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker


@dataclass(frozen=True)
class Moody(Schedule):
    """Is fine until a moment, and answers nonsense from then on."""

    kind = "test-moody"
    until: datetime
    mood: str

    def next_after(self, now: datetime) -> Any:
        if now < self.until:
            return now + HOUR
        if self.mood == "raises":
            raise ZeroDivisionError("no such year")
        if self.mood == "exits":
            raise SystemExit(3)
        return {"naive": datetime(2030, 1, 1), "same": now, "earlier": now - HOUR, "text": "soon"}[self.mood]


@dataclass(frozen=True)
class Quarter(Schedule):
    kind = "test-quarter"

    def next_after(self, now: datetime) -> datetime:
        return now + 15 * MINUTE - (now - NOON) % (15 * MINUTE)


@contextmanager
def forgotten(kind: str) -> Iterator[None]:
    """As in a process in which the class of *kind* was never imported."""
    known = base._KINDS.pop(kind)
    base.stored_schedule.cache_clear()
    try:
        yield
    finally:
        base._KINDS[kind] = known


@pytest.mark.parametrize("mood", ["raises", "exits", "naive", "same", "earlier", "text"])
async def test_a_schedule_that_answers_nonsense_is_disabled_with_the_reason(
    mood: str, new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(Moody(NOON + 90 * MINUTE, mood), handler="work", id="moody")
        await scheduler.add_job(Every("1h"), handler="work", id="plain")
        await clock.advance("5h")

        job = await scheduler.get_job("moody")
        assert job is not None
        assert (job.disabled_reason or "").startswith("its schedule fails: next_after()")
        assert worker.ids.count("moody") == 2
        assert worker.ids.count("plain") == 5


async def test_a_schedule_that_fails_at_once_is_refused(new_scheduler: NewScheduler, every_store: str) -> None:
    async with new_scheduler(every_store) as scheduler:
        with pytest.raises(InvalidScheduleError, match="raised ZeroDivisionError"):
            await scheduler.add_job(Moody(NOON - DAY, "raises"), handler="work", id="moody")

        assert await scheduler.list_jobs() == []


async def test_a_schedule_that_this_process_does_not_know_is_left_alone(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_scheduler(shared) as knowing:
        await knowing.add_job(Quarter(), handler="work", id="own", payload={"n": 1})
        await knowing.add_job(Every("10m"), handler="work", id="plain")
    with forgotten("test-quarter"), caplog.at_level(logging.WARNING):
        async with new_scheduler(shared) as other:
            await clock.advance("1h")
            job = await other.get_job("own")
            explanation = await other.explain("own")
            upcoming = [one for one in await other.preview("1h") if one.job.id == "own"]
            told = [record for record in caplog.records if "own" in record.getMessage()]
            await other.update_job("own", payload={"n": 2})
            assert [one.id for one in await other.list_jobs()] == ["own", "plain"]

    assert worker.ids == ["plain"] * 6
    assert job is not None
    assert (job.enabled, job.next_run_at) == (True, NOON + 15 * MINUTE)
    assert explanation.reason is SkipReason.UNKNOWN_SCHEDULE
    assert 'unknown kind "test-quarter"' in str(explanation)
    assert len(upcoming) == 1
    assert len(told) == 1
    assert "left alone: it runs by a schedule that this process does not know" in told[0].getMessage()

    async with new_scheduler(shared) as again:
        await clock.advance("15m")
        kept = await again.get_job("own")

    assert worker.ids.count("own") == 2  # what was missed, as one run, and the next
    assert kept is not None
    assert (kept.schedule, kept.payload) == (Quarter(), {"n": 2})


async def test_a_manual_run_of_an_unknown_schedule_leaves_the_schedule_alone(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(Quarter(), handler="work", id="own")
        with forgotten("test-quarter"):
            worker.takes = "20m"
            await scheduler.pause_job("own")
            await scheduler.resume_job("own")
            run = await scheduler.trigger_job("own")
            await clock.advance("25m")
            row = await scheduler.get_run(run)
            job = await scheduler.get_job("own")

    assert row is not None
    assert row.outcome == "success"
    assert job is not None
    assert job.enabled


async def test_a_zone_of_the_scheduler_is_fixed_when_the_job_is_added(
    new_scheduler: NewScheduler, every_store: str
) -> None:
    async with new_scheduler(every_store, timezone="Asia/Tokyo") as scheduler:
        cron = await scheduler.add_job(Cron("0 9 * * *"), handler="work", id="cron")
        zoned = await scheduler.add_job(Cron("0 9 * * *", tz="UTC"), handler="work", id="zoned")
        hours = await scheduler.add_job(Every("1h").on(Hours("08:00-18:00")), handler="work", id="hours")
        several = await scheduler.add_job(AnyOf(Cron("0 9 * * *"), Every("1d")), handler="work", id="several")
        edited = await scheduler.update_job("zoned", schedule=Cron("0 10 * * *"))

    assert cron.schedule == Cron("0 9 * * *", tz="Asia/Tokyo")
    assert zoned.schedule == Cron("0 9 * * *", tz="UTC")
    assert hours.schedule.describe() == "every hour, only from 08:00 to 18:00 (Asia/Tokyo)"
    assert several.schedule == AnyOf(Cron("0 9 * * *", tz="Asia/Tokyo"), Every("1d"))
    assert edited.schedule == Cron("0 10 * * *", tz="Asia/Tokyo")


async def test_an_edit_of_something_else_leaves_the_schedule_as_another_program_stored_it(
    new_scheduler: NewScheduler, shared: str
) -> None:
    schedules = [Cron("0 9 * * *"), Every("1h").on(Hours("08:00-18:00")), Every("30m")]
    async with new_scheduler(shared) as one:
        stored = [await one.add_job(schedule, handler="work") for schedule in schedules]
    async with new_scheduler(shared, timezone="Asia/Tokyo", min_interval="2h") as other:
        edited = [await other.update_job(job.id, timeout="10m", payload=1) for job in stored]

    assert [job.schedule for job in edited] == schedules
    assert [job.next_run_at for job in edited] == [job.next_run_at for job in stored]


async def test_a_job_on_a_calendar_counts_what_it_missed_inside_it(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock, worker: Worker
) -> None:
    """NOON is a Monday."""
    schedule = Cron("0 9 * * *", tz="UTC").on(Weekdays("MON-FRI"))
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(schedule, handler="work", id="daily")
        await clock.advance(timedelta(days=7))
        assert worker.fired(DAY) == [0.875 + day for day in (0, 1, 2, 3, 6)]
        clock.set(NOON + timedelta(days=14))
        await clock.advance("1m")
        (skipped,) = await scheduler.run_log("daily", outcome="skipped")

    assert skipped.missed == 4


async def test_a_preview_says_where_an_occurrence_was_moved_from(
    new_scheduler: NewScheduler, every_store: str, clock: VirtualClock
) -> None:
    schedule = Cron("0 9 * * SAT", tz="UTC").on(Weekdays("MON-FRI"), otherwise="after")
    async with new_scheduler(every_store) as scheduler:
        await scheduler.add_job(schedule, handler="work", id="weekly")
        upcoming = await scheduler.preview("15d")

    assert [one.warnings for one in upcoming] == [
        ("moved from Saturday 10 January to Monday 12 January",),
        ("moved from Saturday 17 January to Monday 19 January",),
    ]


async def test_a_schedule_of_a_library_that_is_not_installed_is_left_alone(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read within a transaction, and must not be tried again and again."""
    async with new_scheduler(shared) as first:
        await first.add_job(Every("15m").on(Holidays("SE")), handler="work", id="holidays")
    base.stored_schedule.cache_clear()
    country_holidays._library_of.cache_clear()
    monkeypatch.setattr(country_holidays, "_loaded", [])
    monkeypatch.setitem(sys.modules, "holidays", None)

    async with asyncio.timeout(PATIENCE), new_scheduler(shared) as second:
        await clock.advance("2d")
        explanation = await second.explain("holidays")

    assert explanation.reason is SkipReason.UNKNOWN_SCHEDULE
    assert worker.ids == []
