"""The rulings of the contract, sentence by sentence: the whole scheduler, its loop included, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    Cron,
    CronParseError,
    Delay,
    Event,
    EventKind,
    Every,
    IntervalParseError,
    InvalidJobError,
    InvalidScheduleError,
    Job,
    JobAlreadyRunningError,
    JobSpec,
    Manual,
    Outcome,
    Result,
    Retry,
    Run,
    RunRow,
    Schedule,
    Scheduler,
    SchedulerError,
    SkipReason,
    SQLiteStore,
    Status,
    StoreError,
    Trigger,
    UnknownZoneError,
)
from scheduler_async.jobs.events import EventStream
from scheduler_async.jobs.run import EndedRun
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores import liveness
from scheduler_async.stores.messages import Claims, ClaimTerms, NodeIdentity, NodeRow, RunFilter
from scheduler_async.stores.sqlite import connection as sqlite_connection
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import Micros
from tests.cast import DAY, HOUR, MINUTE, NOON, PATIENCE, SECOND, NewScheduler, Worker, job_of


async def skips_of(scheduler: Scheduler, id: str = "a") -> list[tuple[SkipReason | str | None, int]]:
    """The rows of occurrences that did not run, oldest first."""
    rows = await scheduler.run_log(id, limit=None, outcome="skipped")
    return [(row.reason, row.missed) for row in reversed(rows)]


async def oldest_first(scheduler: Scheduler, id: str = "a") -> list[RunRow]:
    return list(reversed(await scheduler.run_log(id, limit=None)))


def unread(stream: EventStream) -> list[Event]:
    """What a reader has not read yet."""
    events = list(stream._unread)
    stream._unread.clear()
    return events


def kinds(stream: EventStream) -> list[EventKind]:
    return [event.kind for event in unread(stream)]


# ---------------------------------------------------------------- 1: nothing is lost silently


async def test_the_claim_is_committed_before_the_handler_starts(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """A process that dies in the first line of a handler must leave a trace; another connection sees what is there."""
    scheduler = new_scheduler(path)
    seen: list[tuple[object, ...]] = []

    @scheduler.handler("look")
    async def look() -> None:
        with closing(sqlite3.connect(path)) as other:
            seen.extend(
                other.execute("SELECT s.activity, r.outcome, r.attempt FROM state s JOIN run r ON r.id = s.run")
            )

    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="look", id="a")

    await clock.advance("1m")

    assert seen == [("running", None, 1)]


async def test_a_handler_finds_its_own_run_in_the_log(scheduler: Scheduler, clock: VirtualClock) -> None:
    """On every store the row is there before the handler is."""
    seen: list[tuple[Status, int, Outcome | None]] = []

    @scheduler.handler("look")
    async def look(run: Run) -> None:
        (row,) = await scheduler.run_log("a")
        seen.append(((await job_of(scheduler)).status, row.id - run.id, row.outcome))

    await scheduler.add_job(Every("1m"), handler="look", id="a")

    await clock.advance("1m")

    assert seen == [(Status.RUNNING, 0, None)]


@pytest.mark.parametrize("table", ["run", "state"])
async def test_outcome_counters_and_next_run_are_committed_together(
    table: str,
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
    leases_in_virtual_time: None,
) -> None:
    """When one of the two tables refuses the ending, the other shows nothing of it; later both do."""
    scheduler = new_scheduler(path)
    worker.answer, worker.takes = ValueError("no"), "10s"
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    with closing(sqlite3.connect(path)) as other:
        condition = "NEW.outcome IS NOT NULL" if table == "run" else "NEW.activity = 'idle'"
        other.execute(
            f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} WHEN {condition} BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        await clock.advance("10s")
        during, (row_during,) = await job_of(scheduler), await scheduler.run_log("a")
        other.execute("DROP TRIGGER refuse")
    await clock.advance("10s")
    after, (row_after,) = await job_of(scheduler), await scheduler.run_log("a")

    assert (during.status, during.consecutive_errors, during.state.next_run_at) == (Status.RUNNING, 0, None)
    assert (row_during.outcome, row_during.finished_at) == (None, None)
    assert (after.status, after.consecutive_errors, after.next_run_at) == (Status.IDLE, 1, NOON + 2 * MINUTE)
    assert (row_after.outcome, row_after.finished_at) == (Outcome.ERROR, NOON + 70 * SECOND)


async def test_occurrences_merged_into_a_catch_up_leave_a_row_that_counts_them(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """One run stands for ten, and the log says so."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    clock.set(NOON + 10 * MINUTE)
    await clock.advance()

    (skipped,) = await scheduler.run_log("a", outcome="skipped")
    assert [run.trigger for run in worker.runs] == [Trigger.CATCH_UP]
    assert (skipped.reason, skipped.missed) == (SkipReason.MISFIRE, 9)
    assert (skipped.scheduled_for, skipped.started_at) == (NOON + 2 * MINUTE, None)


async def test_skipped_occurrences_leave_a_row_that_counts_them(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Nothing ran, and still everything is accounted for."""
    await scheduler.add_job(Every("10m"), handler="work", id="a", misfire="skip")

    clock.set(NOON + 35 * MINUTE)
    await clock.advance()

    assert worker.runs == []
    assert await skips_of(scheduler) == [(SkipReason.MISFIRE, 3)]


async def test_every_occurrence_is_accounted_for(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Runs and rows of what did not run add up to the grid, whatever happened on the way."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("10m")
    clock.set(clock.now() + HOUR)
    await clock.advance("10m")
    worker.takes = "150s"
    await clock.advance("9m")
    worker.takes, worker.answer = None, ValueError("no")
    await clock.advance("20m")
    worker.answer = None
    await clock.advance("31m")

    rows = await scheduler.run_log("a", limit=None)
    occurrences = {row.scheduled_for for row in rows if row.attempt == 1}
    assert len(occurrences) + sum(row.missed for row in rows) == (clock.now() - NOON) // MINUTE


# ---------------------------------------------------------------- 2: missed runs


@pytest.mark.parametrize("misfire", ["run_once", "skip"])
async def test_late_by_the_grace_is_not_a_misfire(
    misfire: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A busy minute is no reason to leave a run out, nor to call it a catch-up."""
    await scheduler.add_job(Every("1h"), handler="work", id="a", misfire=misfire)

    clock.set(NOON + HOUR + 60 * SECOND)
    await clock.advance()

    assert [(run.trigger, run.scheduled_for, run.delay_ms) for run in worker.runs] == [
        (Trigger.SCHEDULE, NOON + HOUR, 60_000.0)
    ]
    assert await skips_of(scheduler) == []


async def test_the_grace_can_be_set(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """What is late is for the user to say; None is never late."""
    strict = new_scheduler(store, misfire_grace="1s")
    await strict.start()
    await strict.add_job(Every("1h"), handler="work", id="a", misfire="skip")
    clock.set(NOON + HOUR + 2 * SECOND)
    await clock.advance()
    assert worker.runs == []
    await strict.remove_job("a")
    await strict.stop()

    patient = new_scheduler(store, misfire_grace=None)
    await patient.start()
    await patient.add_job(Every("1h", anchor=NOON), handler="work", id="a", misfire="skip")
    clock.set(NOON + 2 * HOUR + 50 * MINUTE)
    await clock.advance()

    assert [run.trigger for run in worker.runs] == [Trigger.SCHEDULE]


async def test_a_missed_run_runs_once_and_goes_on_from_the_next_future_point(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """After a night asleep a laptop does each thing once, then keeps to its times."""
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    clock.set(NOON + 3 * HOUR + 20 * MINUTE)
    await clock.advance()
    job = await job_of(scheduler)
    await clock.advance("40m")

    assert job.next_run_at == NOON + 4 * HOUR
    assert [run.trigger for run in worker.runs] == [Trigger.CATCH_UP, Trigger.SCHEDULE]
    assert [run.scheduled_for for run in worker.runs] == [NOON + HOUR, NOON + 4 * HOUR]


async def test_a_missed_run_is_skipped_and_goes_on(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """What is worth nothing when late is not run late."""
    await scheduler.add_job(Every("1h"), handler="work", id="a", misfire="skip")

    clock.set(NOON + 3 * HOUR + 20 * MINUTE)
    await clock.advance("40m")

    assert [run.scheduled_for for run in worker.runs] == [NOON + 4 * HOUR]
    assert await skips_of(scheduler) == [(SkipReason.MISFIRE, 3)]


@pytest.mark.parametrize(
    "schedule",
    [Every("1m"), Cron("* * * * *", tz="UTC"), Delay("1m", immediately=False)],
    ids=["every", "cron", "delay"],
)
async def test_there_is_never_a_backlog(
    schedule: Schedule, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A week offline is one run, not ten thousand."""
    await scheduler.add_job(schedule, handler="work", id="a")

    clock.set(NOON + 7 * DAY + 30 * SECOND)
    await clock.advance()

    assert len(worker.runs) == 1


async def test_a_missed_run_is_made_up_for_after_a_restart(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Time that passes between two processes is missed like any other."""
    first = new_scheduler(path)
    await first.add_job(Every("1h"), handler="work", id="a")
    await first.stop()

    await clock.advance("150m")
    second = new_scheduler(path)
    await second.start()
    await clock.advance("30m")

    assert worker.fired() == [150, 180]
    assert await skips_of(second) == [(SkipReason.MISFIRE, 1)]


async def test_a_paused_stretch_is_not_missed_time(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Who pauses a job does not want it to catch up on what it was kept from."""
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await scheduler.pause_job("a")
    await clock.advance("65m")

    job = await scheduler.resume_job("a")
    await clock.advance()
    runs_at_once = len(worker.runs)
    await clock.advance("5m")

    assert (runs_at_once, job.next_run_at) == (0, NOON + 70 * MINUTE)
    assert worker.fired() == [70]
    assert [run.trigger for run in worker.runs] == [Trigger.SCHEDULE]
    assert SkipReason.MISFIRE not in [reason for reason, _ in await skips_of(scheduler)]


async def test_a_past_instant_is_run_late(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """An At in the past is a missed run, and the policy is to run it once."""
    await scheduler.add_job(At(NOON - HOUR), handler="work", id="a")

    await clock.advance()

    assert [(run.trigger, run.scheduled_for) for run in worker.runs] == [(Trigger.CATCH_UP, NOON - HOUR)]
    assert (await job_of(scheduler)).disabled_reason == "ended"


async def test_a_past_instant_is_skipped_if_that_is_the_policy(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It does not run, it leaves a row, and it is over."""
    await scheduler.add_job(At(NOON - HOUR), handler="work", id="a", misfire="skip")

    await clock.advance("1h")

    assert worker.runs == []
    assert await skips_of(scheduler) == [(SkipReason.MISFIRE, 1)]
    assert (await scheduler.explain("a")).reason is SkipReason.ENDED


async def test_an_instant_just_past_is_in_time(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Between asking for the time and adding the job a moment passes."""
    await scheduler.add_job(At(NOON - SECOND), handler="work", id="a", misfire="skip")

    await clock.advance()

    assert [run.trigger for run in worker.runs] == [Trigger.SCHEDULE]


# ---------------------------------------------------------------- 3: one run at a time


async def test_a_job_does_not_overlap_itself(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A run that takes longer than its interval is not joined by the next."""
    worker.takes = "150s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("1h")

    assert worker.most_active == 1
    assert worker.fired()[:3] == [1, 4, 7]


async def test_a_job_runs_once_at_a_time_across_schedulers_that_share_a_store(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Two processes, one file: each occurrence runs in one of them."""
    first, second = new_scheduler(path), new_scheduler(path)
    worker.takes = "90s"
    await first.add_job(Every("1m"), handler="work", id="a")
    await first.start()
    await second.start()

    for _ in range(10):
        await clock.advance("1m")
        await first.run_pending()
        await second.run_pending()

    assert worker.most_active == 1
    assert len({run.scheduled_for for run in worker.runs}) == len(worker.runs) == 5


async def test_a_running_job_cannot_be_triggered_from_anywhere(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A person who is impatient does not start it twice, in this process or another."""
    first, second = new_scheduler(path), new_scheduler(path)
    worker.blocks = True
    await first.add_job(Manual(), handler="work", id="a")

    await first.trigger_job("a")

    for scheduler in (first, second):
        with pytest.raises(JobAlreadyRunningError):
            await scheduler.trigger_job("a")
    assert len(worker.runs) == 1


async def test_a_job_is_taken_from_the_moment_it_is_claimed(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """A run that only waits for its slot is a run: nobody starts another."""
    scheduler = new_scheduler(store, max_concurrent=1, queue_size=1)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_job(Every("1m", immediately=True), handler="work", id="a")
    await clock.advance()
    await scheduler.add_job(Every("1m", immediately=True), handler="work", id="b")
    await clock.advance()

    with pytest.raises(JobAlreadyRunningError):
        await scheduler.trigger_job("b")

    assert (await job_of(scheduler, "b")).status is Status.QUEUED
    assert worker.ids == ["a"]


async def test_occurrences_that_pass_during_a_run_merge_into_one_row(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A long run leaves one line in the log, not a hundred."""
    worker.takes = "330s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("390s")

    (skipped,) = await scheduler.run_log("a", outcome="skipped")
    assert (skipped.reason, skipped.missed) == (SkipReason.ALREADY_RUNNING, 5)
    assert skipped.scheduled_for == NOON + 2 * MINUTE
    assert (await job_of(scheduler)).next_run_at == NOON + 7 * MINUTE


async def test_occurrences_of_a_new_schedule_that_pass_during_the_run_merge_into_one_row(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whichever schedule they belong to: they came while the job ran, and are not caught up with."""
    worker.takes = "10m"
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("1h")

    await scheduler.update_job("a", schedule=Every("1m"))
    await clock.advance("10m")

    (skipped,) = await scheduler.run_log("a", outcome="skipped")
    assert (skipped.reason, skipped.missed) == (SkipReason.ALREADY_RUNNING, 10)
    assert skipped.scheduled_for == NOON + HOUR + MINUTE
    assert (await job_of(scheduler)).next_run_at == NOON + HOUR + 11 * MINUTE
    await clock.advance("1m")
    assert [run.trigger for run in worker.runs] == [Trigger.SCHEDULE, Trigger.SCHEDULE]


async def test_with_jitter_only_occurrences_that_come_during_a_run_are_left_out(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """An occurrence comes when its jitter has passed; of those of an hour, about one in fifty meets a run of 20 s."""
    worker.takes = "20s"
    await scheduler.add_job(Every("1m", jitter="50s"), handler="work", id="a")

    await clock.advance("1h")

    rows = await scheduler.run_log("a", limit=None, outcome="skipped")
    assert len(worker.runs) >= 57
    assert len(worker.runs) + sum(row.missed for row in rows) >= 59


# ---------------------------------------------------------------- 4: failures


async def test_failures_back_off_and_disable_the_job_after_five(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The table of the default policy: 30 s, 1 m, 5 m, 15 m, and then it is given up."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a")

    await clock.advance("1d")

    job = await job_of(scheduler)
    assert worker.fired(SECOND) == [10, 40, 100, 400, 1300]
    assert (job.status, job.consecutive_errors) == (Status.DISABLED, 5)
    assert job.last_error == "ValueError: no"
    assert job.disabled_reason is not None
    assert "5 failures" in job.disabled_reason


async def test_the_last_step_of_the_backoff_is_an_hour(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """With more patience than five failures, the fifth and every later one waits sixty minutes."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a", retry=Retry.backoff(disable_after=None))

    await clock.advance("4h")

    assert worker.fired(SECOND) == [10, 40, 100, 400, 1300, 4900, 8500, 12100]


async def test_a_backoff_only_ever_postpones(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A job that is due later anyway runs at its regular time, not earlier."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    await clock.advance("4h")

    assert worker.fired() == [60, 120, 180, 240]


async def test_occurrences_passed_over_by_a_backoff_leave_a_row(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What a failure costs can be read off the log."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a")

    await clock.advance("40s")

    assert worker.fired(SECOND) == [10, 40]
    assert await skips_of(scheduler) == [(SkipReason.BACKOFF, 2)]


async def test_retries_in_the_window_come_with_the_next_pass_and_are_renewed(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """A pass a minute, as seed 002 has it: 13:00, 13:01, 13:02, then nothing until 14:00."""
    scheduler = new_scheduler(store)
    worker.answer = ValueError("no")
    await scheduler.add_job(Cron("0 * * * *", tz="UTC"), handler="work", id="a", retry=Retry.in_window(max_retries=2))

    for _ in range(150):
        await clock.advance("1m")
        await scheduler.run_pending()

    assert worker.fired() == [60, 61, 62, 120, 121, 122]
    assert [run.attempt for run in worker.runs] == [1, 2, 3, 1, 2, 3]
    assert [run.trigger for run in worker.runs] == ["schedule", "retry", "retry"] * 2
    assert (await job_of(scheduler)).status is Status.IDLE


async def test_the_loop_retries_in_the_window_after_a_second(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A job that fails at once does not keep the loop busy; the window ends with the retries."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window())

    await clock.advance("90m")

    assert [run.attempt for run in worker.runs] == [1, 2, 3]
    assert [run.fired_at - NOON - HOUR for run in worker.runs] == [0 * SECOND, SECOND, 2 * SECOND]
    assert (await job_of(scheduler)).next_run_at == NOON + 2 * HOUR


@pytest.mark.parametrize(
    ("schedule", "retry"),
    [
        (Every("1m"), Retry.in_window(10**9)),
        (Every("1m"), Retry.in_window(10**9, delay=timedelta(microseconds=1))),
        (At(NOON + MINUTE), Retry.backoff([timedelta(microseconds=1)], disable_after=None)),
        (Every("1m"), Retry.budget(5, timedelta(microseconds=1))),
        (Every("1s"), Retry.in_window(10**9)),
    ],
    ids=[
        "at the next pass",
        "after no time",
        "a one-shot with short delays",
        "a period that ends at once",
        "regularly",
    ],
)
async def test_no_policy_lets_a_failing_job_run_more_than_once_a_second(
    schedule: Schedule, retry: Retry, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whoever may add jobs could otherwise keep everybody else's from running."""
    worker.answer = ValueError("no")
    await scheduler.add_job(schedule, handler="work", id="a", retry=retry)

    await clock.advance("70s")

    moments = [run.fired_at for run in worker.runs]
    assert moments[-11:] == [NOON + MINUTE + n * SECOND for n in range(11)]
    assert all(later - earlier >= SECOND for earlier, later in pairwise(moments))


async def test_passes_of_one_s_own_retry_in_the_window_as_often_as_they_are_made(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Whoever makes the passes says how long it takes until the next."""
    scheduler = new_scheduler(store)
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window())
    await clock.advance("1h")

    for _ in range(5):
        await scheduler.run_pending()
        await clock.advance(timedelta(milliseconds=1))

    assert [run.attempt for run in worker.runs] == [1, 2, 3]


async def test_a_budget_doubles_the_wait_and_then_holds_until_the_period_ends(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """2, 4, 8 and 16 minutes, and then no more of it until a day after the first failure."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.budget(max_retries=5, period="1d"))

    await clock.advance("23h")
    held = await scheduler.explain("a")
    await clock.advance("62m")

    assert worker.fired()[:5] == [1, 3, 7, 15, 31]
    assert held.reason is SkipReason.RETRIES_EXHAUSTED
    assert held.until == NOON + MINUTE + DAY
    assert worker.fired()[5:] == [1 + 24 * 60]
    assert (await job_of(scheduler)).retry_count == 1


async def test_a_spent_budget_is_held_across_restarts(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A restart is no way to get more tries out of a service that said no."""
    worker.answer = ValueError("no")
    first = new_scheduler(path)
    await first.start()
    await first.add_job(Every("1m"), handler="work", id="a", retry=Retry.budget(max_retries=2, period="1d"))
    await clock.advance("10m")
    await first.stop()

    second = new_scheduler(path)
    await second.start()
    await clock.advance("23h")
    held = await second.explain("a")
    await clock.advance("1h")

    assert (held.reason, held.until) == (SkipReason.RETRIES_EXHAUSTED, NOON + MINUTE + DAY)
    assert worker.fired()[:3] == [1, 3, 1 + 24 * 60]


async def test_without_retries_a_failure_changes_nothing(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Retry.none(): the next regular time comes as if nothing had happened, and it is never given up."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a", retry=Retry.none())

    await clock.advance("2m")

    assert worker.fired(SECOND) == [10.0 * n for n in range(1, 13)]
    assert (await job_of(scheduler)).consecutive_errors == 12


async def test_a_one_shot_is_tried_once_and_its_error_is_kept(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The default policy of the scheduler is for what comes again."""
    worker.answer = ValueError("no")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    await clock.advance("1d")

    job = await job_of(scheduler)
    assert worker.fired() == [1]
    assert (job.status, job.last_error) == (Status.DISABLED, "ValueError: no")


@pytest.mark.parametrize(
    ("retry", "minutes"),
    [
        pytest.param(Retry.backoff(["1m", "5m"], disable_after=3), [1, 2, 7], id="backoff"),
        pytest.param(Retry.in_window(2, delay="10m"), [1, 11, 21], id="in window"),
        pytest.param(Retry.budget(3, "1d"), [1, 3, 7], id="budget"),
        pytest.param(Retry.none(), [1], id="none"),
    ],
)
async def test_a_one_shot_with_a_policy_of_its_own_is_retried_first(
    retry: Retry, minutes: list[int], scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Who gives a one-shot a policy wants it tried again, as the same occurrence; then it is disabled."""
    worker.answer = ValueError("no")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a", retry=retry)

    await clock.advance("12h")

    assert worker.fired() == minutes
    assert {run.scheduled_for for run in worker.runs} == {NOON + MINUTE}
    assert (await job_of(scheduler)).status is Status.DISABLED


async def test_policies_are_one_value_class_and_can_be_tuned(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """The scheduler's default and the job's own are the same kind of thing; the job's own wins."""
    scheduler = new_scheduler(store, retry=Retry.backoff(["20s"], disable_after=2))
    worker.answer = ValueError("no")
    await scheduler.start()
    await scheduler.add_job(Every("10s"), handler="work", id="a")
    await scheduler.add_job(Every("10s"), handler="work", id="b", retry=Retry.backoff(["40s"], disable_after=3))

    await clock.advance("1h")

    assert {type(retry) for retry in (Retry.backoff(), Retry.in_window(), Retry.budget(), Retry.none())} == {Retry}
    fired = list(zip(worker.ids, worker.fired(SECOND), strict=True))
    assert [at for job_id, at in fired if job_id == "a"] == [10, 30]
    assert [at for job_id, at in fired if job_id == "b"] == [10, 50, 90]


async def test_resuming_clears_the_count(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A person who says "go on" starts from zero: four more failures do not end it."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10s"), handler="work", id="a")
    await clock.advance("1d")

    job = await scheduler.resume_job("a")
    await clock.advance("10s")

    assert (job.status, job.consecutive_errors, job.retry_count) == (Status.IDLE, 0, 0)
    assert (await job_of(scheduler)).consecutive_errors == 1
    assert (await job_of(scheduler)).status is Status.IDLE


@pytest.mark.parametrize("answer", [None, Outcome.NOOP, Outcome.SKIPPED, Result("success", message="done")])
async def test_what_is_no_failure_clears_the_count(
    answer: object, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Success, noop and skipped all say that the job works."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("30m")
    failed = (await job_of(scheduler)).consecutive_errors

    worker.answer = answer
    await clock.advance("10m")

    assert failed == 3
    assert (await job_of(scheduler)).consecutive_errors == 0


# ---------------------------------------------------------------- 5: crash


async def die_running(path: Path, clock: VirtualClock, host: str | None = None) -> NodeRow:
    """What a process leaves that dies in the middle of what is due: claims, and a node that beats no more.

    It lived on this machine, unless *host* is another.
    """
    store = SQLiteStore(path)
    await store.open()
    identity = liveness.new_identity()
    liveness.retire(identity)
    if host is not None:
        identity = NodeIdentity(name=f"{host}:1", host=host, pid=1, process_start="1")
    node = await store.join(identity, clock.micros())
    terms = ClaimTerms(node=node, limit=100, slots=None, handlers=None, rules=Rules())
    claims = await store.claim_due(clock.micros(), terms)
    assert claims.runs
    await store.close()
    return NodeRow(id=node, identity=identity, beat=0, since=clock.micros())


async def add_and_die(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, host: str | None = None, **fields: Any
) -> NodeRow:
    """A process that adds an hourly job, and dies an hour later while it runs."""
    first = new_scheduler(path)
    await first.add_job(Every("1h"), handler="work", id="a", **fields)
    await first.stop()
    await clock.advance("1h")
    return await die_running(path, clock, host)


async def test_an_interrupted_run_is_logged_counted_and_run_again_at_once(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The owner was on this host and is gone: the next start takes over without waiting for anything."""
    await add_and_die(new_scheduler, path, clock)

    second = new_scheduler(path)
    worker.blocks = True
    await second.start()
    await clock.advance()

    interrupted, again = await oldest_first(second)
    job = await job_of(second)
    assert (interrupted.outcome, interrupted.reason) == (Outcome.INTERRUPTED, SkipReason.INTERRUPTED)
    assert (again.outcome, again.attempt, again.trigger) == (None, 2, Trigger.RETRY)
    assert again.scheduled_for == interrupted.scheduled_for == NOON + HOUR
    assert job.consecutive_errors == 1
    assert [run.idempotency_key for run in worker.runs] == ["default/a@2026-01-05T13:00:00Z"]


async def test_an_interrupted_run_is_not_run_again_if_so_asked(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What must not happen twice is left for the next regular time, and still counts as a failure."""
    await add_and_die(new_scheduler, path, clock, on_interrupt="skip")

    second = new_scheduler(path)
    await second.start()
    await clock.advance()
    job = await job_of(second)
    await clock.advance("1h")

    assert (job.consecutive_errors, job.next_run_at) == (1, NOON + 2 * HOUR)
    assert worker.fired() == [120]


@pytest.mark.parametrize("retry", [None, Retry.backoff(), Retry.in_window(), Retry.budget(), Retry.none()])
async def test_an_interrupted_one_shot_is_not_run_again_if_so_asked(
    retry: Retry | None, path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whatever its policy for failures says: nothing is left of it, and its error is kept."""
    first = new_scheduler(path)
    await first.add_job(At(NOON + HOUR), handler="work", id="a", on_interrupt="skip", retry=retry)
    await first.stop()
    await clock.advance("1h")
    await die_running(path, clock)

    second = new_scheduler(path)
    await second.start()
    await clock.advance("2d")

    job = await job_of(second)
    assert worker.runs == []
    assert (job.status, job.consecutive_errors) == (Status.DISABLED, 1)
    assert [row.outcome for row in await second.run_log("a")] == [Outcome.INTERRUPTED]


@pytest.mark.parametrize("retry", [Retry.backoff(), Retry.none()], ids=["backoff", "none"])
async def test_a_job_that_kills_its_process_every_time_is_given_up(
    retry: Retry, path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Otherwise it would take the whole service down for ever."""
    first = new_scheduler(path)
    await first.add_job(Every("1h"), handler="work", id="a", retry=retry)
    await first.stop()
    await clock.advance("1h")

    for crash in range(1, 6):
        await die_running(path, clock)
        rescuer = new_scheduler(path, knows_work=False)
        await rescuer.start()
        job = await job_of(rescuer)
        await rescuer.stop()
        assert job.consecutive_errors == crash

    assert job.status is Status.DISABLED
    assert job.disabled_reason is not None
    assert "5 failures" in job.disabled_reason


async def test_a_running_scheduler_notices_a_dead_neighbour_on_this_host_at_once(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """It need not be restarted, and no lease has to run out."""
    witness = new_scheduler(path, knows_work=False)
    await witness.start()

    await add_and_die(new_scheduler, path, clock)
    await clock.advance("2s")

    assert [row.outcome for row in await oldest_first(witness)] == [Outcome.INTERRUPTED]
    assert (await witness.explain("a")).reason is SkipReason.NO_HANDLER


async def test_a_run_from_another_host_is_recovered_when_its_lease_runs_out(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """Nobody can see from here whether it lives: after thirty seconds without a beat it does not."""
    await add_and_die(new_scheduler, path, clock, host="elsewhere")
    second = new_scheduler(path)
    await second.start()

    await clock.advance("29s")
    before = [row.outcome for row in await oldest_first(second)]
    await clock.advance("12s")

    assert before == [None]
    assert [row.outcome for row in await oldest_first(second)] == [Outcome.INTERRUPTED, Outcome.SUCCESS]


async def test_a_lease_is_renewed_as_long_as_its_owner_lives(
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    leases_in_virtual_time: None,
) -> None:
    """A run of ten leases is not taken for dead, even by those who can judge it only by its beats."""
    monkeypatch.setattr(liveness, "is_gone", lambda identity: False)
    first, second = new_scheduler(path), new_scheduler(path)
    worker.takes = "5m"
    await first.start()
    await second.start()
    await first.add_job(At(NOON), handler="work", id="a")

    await clock.advance("6m")

    assert [row.outcome for row in await first.run_log("a")] == [Outcome.SUCCESS]
    assert (len(worker.runs), worker.cancelled) == (1, 0)


class DeafStore(SQLiteStore):
    """A store that one process cannot reach for a while."""

    is_deaf = False

    async def beat(self, node: int) -> list[NodeRow]:
        self._fail()
        return await super().beat(node)

    async def join(self, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None) -> int:
        self._fail()
        return await super().join(identity, now, handlers)

    async def version(self) -> int:
        self._fail()
        return await super().version()

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        self._fail()
        return await super().claim_due(now, terms)

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        self._fail()
        return await super().finish(ended, rules)

    def _fail(self) -> None:
        if self.is_deaf:
            raise StoreError("The store cannot be reached.")


async def test_a_run_that_outlives_its_lease_is_cancelled_and_writes_nothing(
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    leases_in_virtual_time: None,
) -> None:
    """Who cannot show that it lives lets go before others take over: never do two of them run it."""
    monkeypatch.setattr(liveness, "is_gone", lambda identity: False)
    deaf = DeafStore(path)
    first, second = new_scheduler(deaf), new_scheduler(path, knows_work=False)
    taken_over: list[int] = []

    @second.handler("work")
    async def work() -> None:
        taken_over.append(worker.active)

    worker.blocks = True
    await first.start()
    await first.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    await second.start()

    deaf.is_deaf = True
    await clock.advance("1m")
    deaf.is_deaf = False
    await clock.advance("1m")

    assert worker.cancelled == 1
    assert taken_over == [0]
    assert [row.outcome for row in await oldest_first(second)] == [Outcome.INTERRUPTED, Outcome.SUCCESS]


async def test_a_store_that_stays_away_is_told_of_at_length_once(
    path: Path,
    new_scheduler: NewScheduler,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    leases_in_virtual_time: None,
) -> None:
    """Who joins again tries every second; a traceback each time would drown the log."""
    deaf = DeafStore(path)
    scheduler = new_scheduler(deaf)
    await scheduler.start()
    deaf.is_deaf = True
    await clock.advance("1m")
    deaf.is_deaf = False
    await clock.advance("1m")

    tries = [record for record in caplog.records if "Cannot join the store" in record.getMessage()]
    assert len(tries) > 1
    assert [bool(record.exc_info) for record in tries] == [True] + [False] * (len(tries) - 1)
    assert all("The store cannot be reached." in record.getMessage() for record in tries)


async def test_a_scheduler_that_lost_its_lease_can_be_stopped_while_the_store_is_away(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """It tries to join again for as long as it runs, and no longer."""
    deaf = DeafStore(path)
    scheduler = new_scheduler(deaf)
    await scheduler.start()
    await scheduler.add_job(Every("1s"), handler="work", id="a")
    deaf.is_deaf = True
    await clock.advance("1m")
    clock.set(clock.now())  # whatever the loop sleeps for, it looks now
    await clock.advance()

    try:
        async with asyncio.timeout(PATIENCE):
            await scheduler.stop()
    finally:
        deaf.is_deaf = False
        await clock.advance("1m")

    assert scheduler.status == "stopped"


async def test_a_late_result_is_dropped(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A process that was frozen and declared dead comes back, and what it has to say counts no more."""
    frozen = new_scheduler(path)
    worker.blocks, worker.answer = True, Result(message="from the dead")
    await frozen.add_job(At(NOON), handler="work", id="a", on_interrupt="skip")
    await frozen.start()
    await clock.advance()

    other = SQLiteStore(path)
    await other.open()
    me = await other.join(liveness.new_identity(), clock.micros())
    dead = [node for node in await other.beat(me) if node.id != me]
    await other.recover(dead, clock.micros(), Rules())
    await other.leave(me)
    await other.close()
    before = await job_of(frozen)
    worker.go.set()
    await clock.advance()

    (row,) = await frozen.run_log("a")
    assert (row.outcome, row.message) == (Outcome.INTERRUPTED, None)
    assert (await job_of(frozen)).state == before.state


async def test_a_removed_run_is_cancelled_and_writes_nothing(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What was removed is gone, with all that would have come of it. Its row says so."""
    worker.blocks = True
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    await scheduler.remove_job("a")
    await clock.advance("5m")

    assert (worker.cancelled, len(worker.runs)) == (1, 1)
    assert [(row.outcome, row.message) for row in await scheduler.run_log()] == [(Outcome.CANCELLED, None)]
    assert scheduler.state().running == 0


async def test_a_run_whose_job_is_removed_elsewhere_is_cancelled(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """The one who removes it need not be the one who runs it; it is noticed within two seconds."""
    first, second = new_scheduler(path), new_scheduler(path)
    worker.blocks = True
    await first.start()
    await first.add_job(At(NOON), handler="work", id="a")
    await clock.advance("5s")

    await second.remove_job("a")
    await clock.advance("2s")

    assert worker.cancelled == 1
    assert [row.outcome for row in await first.run_log()] == [Outcome.CANCELLED]


# ---------------------------------------------------------------- 6: limits


async def test_a_timeout_cancels_the_run_and_is_a_failure(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A hanging run ends when it was said to, and counts against the job."""
    worker.takes = "1h"
    await scheduler.add_job(Every("1h"), handler="work", id="a", timeout="30s")

    await clock.advance("61m")

    (row,) = await scheduler.run_log("a")
    assert (row.outcome, row.duration_ms) == (Outcome.TIMEOUT, 30_000)
    assert worker.cancelled == 1
    assert (await job_of(scheduler)).consecutive_errors == 1


async def test_without_a_timeout_a_stuck_run_is_ended_all_the_same(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """stuck_after is the timeout of those that have none, and a job's own goes first."""
    scheduler = new_scheduler(store, stuck_after="10m")
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.add_job(At(NOON), handler="work", id="b", timeout="20m")

    await clock.advance("10m")
    (a,), (b,) = await scheduler.run_log("a"), await scheduler.run_log("b")
    await clock.advance("10m")
    (b_later,) = await scheduler.run_log("b")

    assert (a.outcome, b.outcome, b_later.outcome) == (Outcome.TIMEOUT, None, Outcome.TIMEOUT)
    assert (await job_of(scheduler)).consecutive_errors == 1


async def test_a_run_is_stuck_after_two_hours(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """The default: long enough for everything but what hangs."""
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")

    await clock.advance("119m")
    before = (await scheduler.run_log("a"))[0].outcome
    await clock.advance("1m")

    assert before is None
    assert (await scheduler.run_log("a"))[0].outcome is Outcome.TIMEOUT


async def test_no_more_run_at_once_than_may(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """max_concurrent is a semaphore: ten jobs, two at a time, five minutes."""
    scheduler = new_scheduler(store, max_concurrent=2)
    worker.takes = "1m"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(10)])

    await clock.advance("10m")

    assert worker.most_active == 2
    assert worker.fired() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_the_queue_bounds_what_is_claimed_beyond_the_slots(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Two run, three wait in the queue, and the others are left for whoever has room."""
    scheduler = new_scheduler(store, max_concurrent=2, queue_size=3)
    worker.takes = "1m"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(9)])

    await clock.advance()
    by_status = [len(await scheduler.list_jobs(status=status)) for status in ("running", "queued", "idle")]
    counts = scheduler.state().running, scheduler.state().queued
    await clock.advance("5m")

    assert by_status == [2, 3, 4]
    assert counts == (2, 3)
    assert worker.fired() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert worker.most_active == 2


async def test_without_a_queue_nothing_is_claimed_beyond_the_slots(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """What cannot start here may start in another process."""
    scheduler = new_scheduler(store, max_concurrent=1)
    worker.takes = "1m"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(3)])

    await clock.advance()

    assert len(await scheduler.list_jobs(status="queued")) == 0
    assert [job.id for job in await scheduler.list_jobs(status="idle")] == ["1", "2"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(2, {"x": 2, "y": 2, None: 4}, id="a number for every group"),
        pytest.param({"x": 1}, {"x": 1, "y": 4, None: 4}, id="one group of two"),
        pytest.param({"x": 1, "y": 3}, {"x": 1, "y": 3, None: 4}, id="each group its own"),
    ],
)
async def test_groups_have_limits(
    limits: int | dict[str, int],
    expected: dict[str | None, int],
    new_scheduler: NewScheduler,
    store: str,
    clock: VirtualClock,
) -> None:
    """Four jobs of each group, all due at once; jobs without a group are not limited."""
    scheduler = new_scheduler(store, group_limits=limits, knows_work=False)
    active: dict[str | None, int] = {"x": 0, "y": 0, None: 0}
    most = dict(active)
    done: list[str] = []

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        group = run.job.group
        active[group] += 1
        most[group] = max(most[group], active[group])
        await clock.sleep("1m")
        active[group] -= 1
        done.append(run.job_id)

    await scheduler.start()
    await scheduler.add_jobs(
        [JobSpec(At(NOON), handler="work", id=f"{group}{n}", group=group) for group in active for n in range(4)]
    )

    await clock.advance("10m")

    assert most == expected
    assert len(done) == 12


@pytest.mark.parametrize("group", [None, "y"], ids=["left", "changed"])
async def test_a_group_has_room_when_a_run_has_ended_whose_job_is_not_in_it_any_more(
    group: str | None, new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Who waits for the group would wait for ever: nothing else makes the loop look."""
    scheduler = new_scheduler(store, group_limits=1)
    worker.takes = "30s"
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name, group="x") for name in "ab"])
    await clock.advance("1s")

    await scheduler.update_job("a", group=group)
    await clock.advance("1m")

    assert worker.ids == ["a", "b"]


async def test_a_full_group_does_not_stand_in_the_way_of_others(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """With two slots and a group of one, the second slot goes to somebody else."""
    scheduler = new_scheduler(store, max_concurrent=2, group_limits=1)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_jobs(
        [
            *(JobSpec(At(NOON), handler="work", id=f"a{n}", group="x", priority="high") for n in range(5)),
            JobSpec(At(NOON), handler="work", id="z", priority="low"),
        ]
    )

    await clock.advance()

    assert worker.ids == ["a0", "z"]


@pytest.mark.parametrize(
    ("options", "group", "reason"),
    [
        pytest.param({"max_concurrent": 1}, None, SkipReason.AT_CAPACITY, id="no slot"),
        pytest.param({"group_limits": 1}, "x", SkipReason.GROUP_FULL, id="no slot in the group"),
    ],
)
async def test_over_a_limit_a_job_stays_due_and_goes_as_soon_as_a_slot_frees(
    options: dict[str, Any],
    group: str | None,
    reason: SkipReason,
    new_scheduler: NewScheduler,
    store: str,
    worker: Worker,
    clock: VirtualClock,
) -> None:
    """It keeps its place, nothing is written off, and it does not wait for the clock."""
    scheduler = new_scheduler(store, **options)
    worker.blocks = True
    await scheduler.start()
    await scheduler.add_job(At(NOON), handler="work", id="a", group=group)
    await clock.advance()
    await scheduler.add_job(At(NOON), handler="work", id="b", group=group)
    await clock.advance("10s")

    waiting, why = await job_of(scheduler, "b"), await scheduler.explain("b")
    worker.go.set()
    await clock.advance()

    assert (waiting.status, waiting.next_run_at, why.reason) == (Status.IDLE, NOON, reason)
    assert worker.ids == ["a", "b"]
    assert worker.runs[1].fired_at == NOON + 10 * SECOND


async def test_the_order_is_priority_then_longest_since_its_last_run_then_id(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """When not all can go at once, it is clear who goes first."""
    scheduler = new_scheduler(store, max_concurrent=1)
    specs = [
        JobSpec(Every("1h"), handler="work", id=job_id, priority=priority)
        for job_id, priority in [
            *(("never-b", "standard"), ("never-a", "standard"), ("old", "standard"), ("new", "standard")),
            *(("low", "low"), ("high-new", "high"), ("high-never", "high")),
        ]
    ]
    await scheduler.add_jobs(specs)
    for job_id in ("old", "new", "high-new"):
        await clock.advance("1m")
        await scheduler.trigger_job(job_id)
        await clock.advance()
    worker.runs.clear()
    await scheduler.start()

    await clock.advance("1h")

    assert worker.ids == ["high-never", "high-new", "never-a", "never-b", "old", "new", "low"]


# ---------------------------------------------------------------- 7: edits


async def test_a_changed_schedule_counts_from_now(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Neither the old grid nor the time before the edit has a say in it."""
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("7m")

    job = await scheduler.update_job("a", schedule=Every("5m"))
    await clock.advance("11m")

    assert job.next_run_at == NOON + 12 * MINUTE
    assert worker.fired() == [12, 17]


async def test_a_changed_schedule_is_not_made_up_for(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A schedule that would have had ten runs this morning has none before it was given."""
    editor = new_scheduler(path)
    await editor.add_job(Cron("0 9 * * *", tz="UTC"), handler="work", id="a")
    await editor.add_job(Every("1m"), handler="work", id="a", on_conflict="replace")
    job = await editor.update_job("a", schedule=Cron("0 11 * * *", tz="UTC"))
    await editor.start()

    await clock.advance("22h")

    assert job.next_run_at == NOON + 23 * HOUR
    assert worker.runs == []


@pytest.mark.parametrize("changes", [{"payload": {"n": 2}}, {"priority": "high"}, {"misfire": "skip"}, {}], ids=str)
async def test_an_upsert_that_does_not_change_the_schedule_keeps_its_cadence(
    changes: dict[str, Any], scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Programs add their jobs at every start; a job every hour would never run if that began it anew."""
    await scheduler.add_job(Every("10m"), handler="work", id="a")

    for _ in range(4):
        await clock.advance("7m")
        await scheduler.add_job(Every("10m"), handler="work", id="a", on_conflict="replace", **changes)

    assert worker.fired() == [10, 20]
    assert (await job_of(scheduler)).next_run_at == NOON + 30 * MINUTE


@pytest.mark.parametrize("on_conflict", ["replace", "keep"])
async def test_a_finished_one_shot_is_not_replayed_by_adding_it_again(
    on_conflict: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It happened; saying the same thing again does not make it happen again."""
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await clock.advance("2m")

    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a", on_conflict=on_conflict)
    await clock.advance("1h")

    assert worker.fired() == [1]


async def test_a_finished_one_shot_runs_again_at_another_instant(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A new instant is a new wish."""
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await clock.advance("2m")

    await scheduler.update_job("a", schedule=At(NOON + HOUR))
    await clock.advance("1h")

    assert worker.fired() == [1, 60]


async def test_a_pause_during_a_run_lets_it_finish(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Pausing is about what starts, not about what is under way; and it outlives the run."""
    worker.takes = "30s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("65s")

    during = await scheduler.pause_job("a")
    await clock.advance("10m")

    (row,) = await scheduler.run_log("a", outcome="success")
    assert during.status is Status.RUNNING
    assert row.finished_at == NOON + 90 * SECOND
    assert (await job_of(scheduler)).status is Status.PAUSED
    assert len(worker.runs) == 1


async def test_an_edit_during_a_run_lets_it_finish_and_is_not_overwritten(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The run knows the old schedule; its end must not bring that back."""
    worker.takes = "30s"
    await scheduler.add_job(Every("1m"), handler="work", id="a", payload={"n": 1})
    await clock.advance("70s")

    await scheduler.update_job("a", schedule=Every("10m"), payload={"n": 2})
    await clock.advance("20s")
    job, (row,) = await job_of(scheduler), await scheduler.run_log("a", outcome="success")
    await clock.advance("10m")

    assert row.finished_at == NOON + 90 * SECOND
    assert (job.schedule, job.payload, job.status) == (Every("10m"), {"n": 2}, Status.IDLE)
    assert job.next_run_at == NOON + 70 * SECOND + 10 * MINUTE
    assert [run.payload for run in worker.runs] == [{"n": 1}, {"n": 2}]


async def test_an_edit_of_something_else_during_a_run_is_not_overwritten(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Only the counters and the next run are the run's to write."""
    worker.takes = "30s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("70s")

    await scheduler.update_job("a", name="Renamed", priority="high", retry=Retry.none())
    await clock.advance("20s")

    job = await job_of(scheduler)
    assert (job.name, job.priority, job.retry) == ("Renamed", "high", Retry.none())
    assert job.next_run_at == NOON + 2 * MINUTE
    assert job.last_success_at == NOON + 90 * SECOND


async def test_disabling_during_a_run_is_not_overwritten(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A run that ends well does not enable a job that was taken out of service meanwhile."""
    worker.takes = "30s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("70s")

    await scheduler.update_job("a", enabled=False)
    await clock.advance("10m")

    job = await job_of(scheduler)
    assert (job.status, job.next_run_at) == (Status.DISABLED, None)
    assert (await scheduler.run_log("a", outcome="success"))[0].finished_at == NOON + 90 * SECOND
    assert len(worker.runs) == 1


async def test_a_job_that_is_disabled_edited_and_resumed_during_a_run_goes_by_its_new_schedule(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Nothing has failed: there is nothing to wait for but the new moment, and no row says otherwise."""
    worker.takes = "90s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("65s")

    await scheduler.disable_job("a")
    disabled = await job_of(scheduler)
    await scheduler.update_job("a", schedule=At(NOON + HOUR))
    await scheduler.resume_job("a")
    await clock.advance("10m")
    explanation = await scheduler.explain("a")
    await clock.advance("1h")

    assert (disabled.status, disabled.next_run_at) == (Status.RUNNING, None)
    assert (explanation.reason, explanation.until) == (SkipReason.NOT_DUE, NOON + HOUR)
    assert worker.fired() == [1, 60]
    assert await skips_of(scheduler) == []


async def test_adding_a_removed_job_again_starts_fresh(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Nothing of the old one is held against it: no failures, no log, no grid."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10m"), handler="work", id="a")
    await clock.advance("33m")
    await scheduler.remove_job("a")

    job = await scheduler.add_job(Every("10m"), handler="work", id="a")

    assert (job.consecutive_errors, job.last_error, job.last_run_at) == (0, None, None)
    assert (job.created_at, job.next_run_at) == (NOON + 33 * MINUTE, NOON + 43 * MINUTE)
    assert await scheduler.run_log("a") == []


async def test_a_removed_one_shot_can_be_run_again(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """Fresh means fresh: the occurrence that ran belonged to another job."""
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    await scheduler.remove_job("a")

    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    assert len(worker.runs) == 2


# ---------------------------------------------------------------- 8: no handler here


async def test_a_job_without_a_handler_waits_with_one_warning(
    scheduler: Scheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process may have the handler; a log full of the same line helps nobody."""
    await scheduler.add_job(Every("1m"), handler="elsewhere", id="a")

    for _ in range(10):
        await clock.advance("1m")
        await scheduler.run_pending()

    warnings = [record for record in caplog.records if "elsewhere" in record.getMessage()]
    assert [record.levelno for record in warnings] == [logging.WARNING]
    assert (await scheduler.explain("a")).reason is SkipReason.NO_HANDLER
    assert (await job_of(scheduler)).status is Status.IDLE


async def test_a_job_without_a_handler_never_spins(scheduler: Scheduler, clock: VirtualClock) -> None:
    """An overdue job that nobody can run must not keep the loop awake."""
    await scheduler.add_job(At(NOON), handler="elsewhere", id="a")
    await clock.advance()
    before = scheduler.state().tick_count

    await clock.advance("1d")

    assert scheduler.state().tick_count - before <= 2


async def test_a_job_without_a_handler_never_blocks_others(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Even with one slot, and however many wait in front."""
    scheduler = new_scheduler(store, max_concurrent=1)
    await scheduler.start()
    await scheduler.add_jobs(
        [
            *(JobSpec(At(NOON), handler="elsewhere", id=f"a{n}", priority="high") for n in range(20)),
            JobSpec(Every("1m"), handler="work", id="z", priority="low"),
        ]
    )

    await clock.advance("3m")

    assert worker.fired() == [1, 2, 3]


async def test_a_job_goes_when_its_handler_arrives(scheduler: Scheduler, clock: VirtualClock) -> None:
    """It waited, and is not lost; nobody has to restart anything."""
    runs: list[Run] = []
    await scheduler.add_job(At(NOON), handler="late", id="a")
    await clock.advance("10s")

    @scheduler.handler("late")
    async def late(run: Run) -> None:
        runs.append(run)

    await clock.advance()

    assert [(run.scheduled_for, run.fired_at) for run in runs] == [(NOON, NOON + 10 * SECOND)]


# ---------------------------------------------------------------- 9: require_user


async def test_a_user_is_required_when_a_job_is_added(new_scheduler: NewScheduler, store: str) -> None:
    """Without a user nobody could say on whose behalf it runs."""
    scheduler = new_scheduler(store, require_user=True)

    with pytest.raises(InvalidJobError, match="user_id") as caught:
        await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.add_job(Every("1m"), handler="work", id="b", user_id="ann")

    assert caught.value.field == "user_id"
    assert [job.id for job in await scheduler.list_jobs()] == ["b"]


async def test_a_user_cannot_be_taken_away(new_scheduler: NewScheduler, store: str) -> None:
    """An edit is held to the same rule."""
    scheduler = new_scheduler(store, require_user=True)
    await scheduler.add_job(Every("1m"), handler="work", id="a", user_id="ann")

    with pytest.raises(InvalidJobError, match="user_id"):
        await scheduler.update_job("a", user_id=None)

    assert (await job_of(scheduler)).user_id == "ann"


async def test_stored_jobs_without_a_user_are_disabled_with_a_warning(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs from before the rule do not run, and do not vanish either."""
    careless = new_scheduler(path)
    await careless.add_job(Every("1m"), handler="work", id="a")
    await careless.add_job(Every("1m"), handler="work", id="b", user_id="ann")
    await careless.stop()

    strict = new_scheduler(path, require_user=True)
    await strict.start()
    await clock.advance("1m")

    job = await job_of(strict)
    assert job.status is Status.DISABLED
    assert job.disabled_reason is not None
    assert "user_id" in job.disabled_reason
    assert worker.ids == ["b"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([text for text in warnings if "default/a" in text and "user_id" in text]) == 1


# ---------------------------------------------------------------- 10: the loop survives


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError(), TimeoutError(), ExceptionGroup("two", [ValueError("no")])]
)
async def test_the_loop_survives_a_raising_handler(
    error: BaseException, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whatever a handler raises is an error of that run, and of no other."""

    @scheduler.handler("bad")
    async def bad() -> None:
        raise error

    await scheduler.add_job(Every("1m"), handler="bad", id="a")
    await scheduler.add_job(Every("1m"), handler="work", id="b")

    await clock.advance("3m")

    assert worker.fired() == [1, 2, 3]
    assert {row.outcome for row in await scheduler.run_log("a") if row.attempt} == {Outcome.ERROR}


async def test_the_loop_survives_a_raising_listener(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A reader of events that fails, or walks away, is nobody else's problem."""

    async def fail() -> None:
        async for _ in scheduler.events():
            raise ValueError("no")

    listener = asyncio.create_task(fail())
    left = scheduler.events()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")
    await left.aclose()

    await clock.advance("2m")

    assert worker.fired() == [1, 2, 3]
    with pytest.raises(ValueError, match="no"):
        await listener


@contextmanager
def raising_logger() -> Iterator[None]:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError("the disk of the log is full")

    handler = Raising()
    logger = logging.getLogger("scheduler_async")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def test_the_loop_survives_a_raising_logger(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """A log that cannot be written is no reason not to run, nor to forget how it went."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.none())

    with raising_logger():
        await clock.advance("3m")

    assert worker.fired() == [1, 2, 3]
    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.ERROR] * 3


async def test_the_loop_survives_a_store_that_fails_for_a_while(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A pass that fails is made again; what came due meanwhile runs when the store is back."""
    store = DeafStore(path)
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    store.is_deaf = True
    await clock.advance("90s")
    during = scheduler.status, list(worker.runs)
    store.is_deaf = False
    await clock.advance("60s")

    assert during == ("running", [])
    assert len(worker.runs) == 2
    assert worker.runs[0].scheduled_for == NOON + MINUTE


async def test_a_store_that_fails_is_reported_once_and_so_is_its_recovery(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """However many parts of the scheduler notice, and however often: an event, a state that says what is wrong."""
    store = DeafStore(path)
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(Every("1s"), handler="work", id="a")
    await clock.advance("1s")
    events = scheduler.events()

    store.is_deaf = True
    await clock.advance("5s")
    failing = [event for event in unread(events) if event.kind is EventKind.STORE_FAILED]
    problem = scheduler.state().problem
    store.is_deaf = False
    await clock.advance("60s")

    assert [event.reason for event in failing] == [problem]
    assert problem is not None
    assert kinds(events).count(EventKind.STORE_RECOVERED) == 1
    assert scheduler.state().problem is None
    assert worker.runs[-1].fired_at == clock.now()


async def test_a_store_that_works_again_is_used_within_a_second(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """However long it failed, and however rarely those who need it still try."""
    store = DeafStore(path)
    scheduler = new_scheduler(store)
    await scheduler.add_job(At(NOON), handler="work", id="ends-meanwhile")
    await scheduler.add_job(At(NOON + 5 * SECOND), handler="work", id="due-meanwhile")
    worker.takes = "5s"
    await scheduler.start()
    await clock.advance("1s")

    store.is_deaf = True
    await clock.advance("20s")
    assert worker.ids == ["ends-meanwhile"]
    store.is_deaf = False
    await clock.advance("1s")

    assert worker.ids == ["ends-meanwhile", "due-meanwhile"]
    (ended,) = await scheduler.run_log("ends-meanwhile")
    assert ended.outcome is Outcome.SUCCESS
    assert ended.finished_at == NOON + 5 * SECOND
    assert scheduler.state().problem is None


async def test_a_run_that_ended_while_the_store_failed_for_longer_than_the_lease_is_not_repeated(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, leases_in_virtual_time: None
) -> None:
    """Nobody could take it over meanwhile: what is known of it is still to be told."""
    store = DeafStore(path)
    scheduler = new_scheduler(store)
    await scheduler.add_job(At(NOON), handler="work", id="ends-meanwhile")
    worker.takes = "5s"
    await scheduler.start()
    await clock.advance("1s")

    store.is_deaf = True
    await clock.advance("2m")
    store.is_deaf = False
    await clock.advance("10s")

    assert worker.ids == ["ends-meanwhile"]
    (ended,) = await scheduler.run_log("ends-meanwhile")
    assert (ended.outcome, ended.finished_at) == (Outcome.SUCCESS, NOON + 5 * SECOND)
    assert scheduler.state().problem is None


async def test_a_file_that_another_program_locks_is_waited_for(
    path: Path,
    new_scheduler: NewScheduler,
    worker: Worker,
    clock: VirtualClock,
    leases_in_virtual_time: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backup, a shell that forgot to commit: nothing is lost by it, and people can see what is wrong."""
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT", 0.01)
    scheduler = new_scheduler(path)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    events = scheduler.events()
    await clock.advance("1m")

    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        await clock.advance("30s")
        shell.execute("UPDATE job SET name = name")
        await clock.advance("30s")
        problem = scheduler.state().problem
        shell.execute("ROLLBACK")
    await clock.advance("60s")

    assert problem is not None
    assert "locked by another program" in problem
    assert scheduler.state().problem is None
    told = kinds(events)
    assert told.index(EventKind.STORE_FAILED) < told.index(EventKind.STORE_RECOVERED)
    assert [run.scheduled_for for run in worker.runs] == [NOON + number * MINUTE for number in (1, 2, 3)]


@pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY, 2 * SECOND, -2 * SECOND], ids=str)
async def test_the_loop_survives_a_clock_that_jumps(
    jump: timedelta, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Whichever way it goes, the job runs by the new time."""
    events = scheduler.events()
    await scheduler.add_job(Cron("* * * * *", tz="UTC"), handler="work", id="a")
    await clock.advance("1m")
    worker.runs.clear()
    unread(events)

    clock.set(clock.now() + jump)
    await clock.advance("2m")

    assert kinds(events)[0] is EventKind.CLOCK_JUMPED
    assert scheduler.status == "running"
    assert worker.runs
    assert worker.runs[-1].delay_ms == 0
    assert clock.now() - worker.runs[-1].fired_at < MINUTE


JUMPS = [SECOND, MINUTE, HOUR, DAY, 365 * DAY]


@pytest.mark.parametrize("jump", [*JUMPS, *(-jump for jump in JUMPS)], ids=str)
async def test_no_occurrence_runs_twice_however_the_clock_jumps(
    jump: timedelta, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """And there and back again; nothing is started in a storm, and every job goes on."""
    await scheduler.add_job(Every("1m"), handler="work", id="grid")
    await scheduler.add_job(Cron("*/2 * * * *", tz="UTC"), handler="work", id="cron")
    await scheduler.add_job(Delay("1m"), handler="work", id="delay")
    await clock.advance("5m")

    for by in (jump, -jump, jump):
        worker.runs.clear()
        clock.set(clock.now() + by)
        await clock.advance("5m")
        assert len(worker.ids) <= 3 + 5 + 3 + 5

    ran = [(row.job_id, row.scheduled_for, row.attempt) for row in await scheduler.run_log(limit=None) if row.attempt]
    assert len(ran) == len(set(ran))
    worker.runs.clear()
    await clock.advance("15m")
    assert set(worker.ids) == {"grid", "cron", "delay"}


async def test_a_grid_goes_on_when_the_clock_goes_back_to_before_it_began(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """On the same grid: what was ten past stays ten past."""
    clock.set(NOON + 10 * MINUTE)
    await clock.advance()
    await scheduler.add_job(Every("1h"), handler="work", id="implied")
    await scheduler.add_job(Every("1h", anchor=NOON), handler="work", id="said")

    clock.set(NOON - 30 * DAY)
    await clock.advance("1h")

    assert [(run.job_id, run.scheduled_for) for run in worker.runs] == [("implied", NOON - 30 * DAY + 10 * MINUTE)]


async def test_a_clock_that_goes_back_is_followed_although_there_is_no_room_to_run(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Whoever looks at the job meanwhile sees when it is due by the clock as it is."""
    scheduler = new_scheduler(store, max_concurrent=1)
    await scheduler.start()
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="busy")
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1s")

    clock.set(NOON - DAY)
    await clock.advance()

    assert (await job_of(scheduler)).next_run_at == NOON - DAY + MINUTE


async def test_a_wait_is_as_long_as_before_when_the_clock_goes_back(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A backoff and a delay are spans of time, which no clock can change."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("1m"), handler="work", id="fails", retry=Retry.backoff(["10m"]))
    await scheduler.add_job(Delay("5m", immediately=False), handler="work", id="delay", retry=Retry.none())
    await clock.advance("1m")
    worker.runs.clear()

    clock.set(NOON - DAY)
    await clock.advance("12m")

    assert sorted((run.job_id, run.fired_at) for run in worker.runs) == [
        ("delay", NOON - DAY + 5 * MINUTE),
        ("delay", NOON - DAY + 10 * MINUTE),
        ("fails", NOON - DAY + 10 * MINUTE),
    ]


async def test_a_one_shot_keeps_its_moment_when_the_clock_goes_back(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    clock.set(NOON - DAY)
    await clock.advance("1d")
    assert worker.ids == []
    await clock.advance("1m")

    assert worker.ids == ["a"]


@pytest.mark.parametrize(
    ("schedule", "runs"),
    [
        pytest.param(Every("1m"), 5, id="every"),
        pytest.param(Cron("* * * * *", tz="UTC"), 5, id="cron"),
        pytest.param(Delay("1m", immediately=False), 4, id="delay"),
    ],
)
@pytest.mark.parametrize("jump", [-HOUR, -DAY, -365 * DAY], ids=str)
async def test_a_run_in_progress_does_not_make_its_job_wait_when_the_clock_goes_back(
    jump: timedelta, schedule: Schedule, runs: int, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It was claimed by the time before, and when it ends, that is yet to come."""
    worker.takes = "10s"
    await scheduler.add_job(schedule, handler="work", id="a")
    await clock.advance("1m")
    assert worker.active == 1

    clock.set(clock.now() + jump)
    await clock.advance("5m")

    assert len(worker.runs) == 1 + runs
    assert all((row.duration_ms or 0) >= 0 for row in await oldest_first(scheduler))


class SlowReview(SQLiteStore):
    """A store that lets a run end while it looks at the jobs by a clock that has gone back."""

    worker: Worker

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        reviewed = await super().review(after, limit, now, decide)
        self.worker.go.set()
        while self.worker.active or not await self.list_runs(RunFilter(outcome=Outcome.SUCCESS)):
            await asyncio.sleep(0)
        return reviewed


async def test_a_run_that_ends_while_all_jobs_are_looked_at_again_does_not_make_its_job_wait(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """What is asked for while it is done is done once more."""
    store = SlowReview(path)
    store.worker, worker.blocks = worker, True
    scheduler = new_scheduler(store)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")

    clock.set(NOON - DAY)
    await clock.advance("5m")

    assert len(worker.runs) == 1 + 5


async def test_no_job_waits_if_the_clock_went_back_while_nobody_looked(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """A machine that is switched off may have another time when it is switched on."""
    before = new_scheduler(path)
    await before.start()
    await before.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("5m")
    await before.stop()
    worker.runs.clear()

    clock.set(NOON - DAY)
    await new_scheduler(path).start()
    await clock.advance("5m")

    assert len(worker.runs) == 5


async def test_no_job_waits_although_a_recovery_by_the_new_time_is_what_was_recorded_last(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """A process died, the clock went back, and what it left behind is recorded when the next one starts."""
    first = new_scheduler(path)
    await first.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1m")
    dying, identity = SQLiteStore(path), liveness.new_identity()
    await dying.open()
    node = await dying.join(identity, clock.micros())
    await dying.claim_due(clock.micros(), ClaimTerms(node=node, limit=1, slots=None, handlers=None, rules=Rules()))
    await first.add_job(Every("1m"), handler="work", id="b")
    await first.start()
    await clock.advance("30m")
    await first.stop()
    await dying.close()
    liveness.retire(identity)

    clock.set(NOON + 10 * MINUTE)
    second = new_scheduler(path)
    await second.start()
    await clock.advance("3m")

    b = await job_of(second, "b")
    assert (await oldest_first(second))[0].outcome is Outcome.INTERRUPTED
    assert b.next_run_at is not None
    assert b.next_run_at - clock.now() <= MINUTE


@pytest.mark.parametrize("first", ["run_pending", "trigger_job"])
async def test_no_job_waits_out_a_clock_that_goes_back_between_passes_without_the_loop(
    idle: Scheduler, worker: Worker, clock: VirtualClock, first: str
) -> None:
    """No loop looks at the clock. What is triggered meanwhile has a row of the new time, and hides that of the old."""
    await idle.add_job(Every("1m"), handler="work", id="a")
    await idle.add_job(Manual(), handler="work", id="b")
    for _ in range(3):
        await clock.advance("1m")
        await idle.run_pending()
    assert worker.ids == ["a"] * 3

    clock.set(NOON - DAY)
    await (idle.run_pending() if first == "run_pending" else idle.trigger_job("b"))
    worker.runs.clear()
    for _ in range(3):
        await clock.advance("1m")
        await idle.run_pending()

    assert worker.ids == ["a"] * 3


async def test_no_job_waits_since_rows_of_another_time_are_old(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """What ran while the clock was ahead is kept until then, rather than forgotten with all that is before."""
    scheduler = new_scheduler(store, keep_runs=5)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    clock.set(NOON + DAY)
    await clock.advance("3m")
    clock.set(NOON)
    await clock.advance("30m")
    worker.runs.clear()

    await clock.advance("30m")

    assert len(worker.runs) == 30


async def test_what_the_log_has_forgotten_is_not_run_again(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """Rows are removed with age; that they were there is not."""
    scheduler = new_scheduler(store, keep_runs=5)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("1h")
    assert len(await scheduler.run_log(limit=None)) < 20
    ran = {run.scheduled_for for run in worker.runs}
    worker.runs.clear()

    clock.set(NOON)
    await clock.advance("70m")

    assert len(worker.runs) == 10
    assert not ran & {run.scheduled_for for run in worker.runs}


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY], ids=["forward", "back"])
async def test_a_jump_of_more_than_a_year_holds_everything(
    jump: timedelta, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A broken clock must not make ten thousand jobs run at once; people can see why nothing does."""
    events = scheduler.events()
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await scheduler.add_job(Cron("* * * * *", tz="UTC"), handler="work", id="b")
    await clock.advance()
    unread(events)

    clock.set(NOON + jump)
    await clock.advance("2h")

    assert worker.runs == []
    (told,) = unread(events)
    assert told.kind is EventKind.CLOCK_JUMPED
    assert "nothing starts until the clock returns" in str(told.reason)
    explained = await scheduler.explain("b")
    assert explained.reason is SkipReason.NOT_DUE
    assert "jumped by more than a year" in str(explained)
    assert "jumped" in (scheduler.state().problem or "")
    clock.set(NOON + 2 * HOUR)
    await clock.advance()
    assert sorted(worker.ids) == ["a", "b"]
    assert scheduler.state().problem is None


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY], ids=["forward", "back"])
async def test_a_run_that_ends_after_an_absurd_jump_is_recorded_by_the_time_before(
    jump: timedelta, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Otherwise its job would wait for a time that never was."""
    worker.takes = "10s"
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await clock.advance("65s")

    clock.set(clock.now() + jump)
    await clock.advance("25s")
    clock.set(clock.now() - jump)
    await clock.advance("3m")

    assert [run.scheduled_for for run in worker.runs] == [NOON + number * MINUTE for number in (1, 2, 3, 4)]
    assert (await oldest_first(scheduler))[0].finished_at == NOON + 70 * SECOND
    assert await skips_of(scheduler) == []


async def test_a_job_that_was_added_by_an_absurd_clock_does_not_wait_for_it(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    clock.set(NOON + 400 * DAY)
    await clock.advance("1s")
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    clock.set(NOON)
    await clock.advance("5m")

    assert len(worker.runs) == 5


async def test_jobs_are_not_removed_for_their_age_by_an_absurd_clock(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock
) -> None:
    """Nothing would bring them back."""
    scheduler = new_scheduler(store, purge_disabled_after="1d")
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a", enabled=False)

    clock.set(NOON + 400 * DAY)
    await clock.advance("1h")

    assert [job.id for job in await scheduler.list_jobs()] == ["a"]


async def test_a_clock_that_stands_for_a_day_after_an_absurd_jump_is_believed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A machine that woke in the wrong year must go on by itself, once the network has told it the time."""
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    clock.set(NOON + 400 * DAY)
    await clock.advance("1d")

    assert [run.trigger for run in worker.runs] == [Trigger.CATCH_UP]
    await clock.advance("1h")
    assert len(worker.runs) == 2


async def test_a_run_that_is_asked_for_starts_although_the_clock_is_not_believed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    clock.set(NOON + 400 * DAY)
    await clock.advance()

    await scheduler.trigger_job("a")

    assert worker.ids == ["a"]


@pytest.mark.parametrize(
    ("jump", "told"),
    [
        pytest.param(SECOND, False, id="a second is not a jump"),
        pytest.param(-SECOND, False, id="nor is a second back"),
        pytest.param(1.001 * SECOND, True, id="more is"),
        pytest.param(-1.001 * SECOND, True, id="and so is more the other way"),
    ],
)
async def test_a_jump_of_more_than_a_second_is_an_event(
    jump: timedelta, told: bool, scheduler: Scheduler, clock: VirtualClock
) -> None:
    """Clocks are slewed all the time; who is told of that learns nothing."""
    events = scheduler.events()
    await clock.advance()

    clock.set(NOON + jump)
    await clock.advance()

    assert kinds(events) == [EventKind.CLOCK_JUMPED] * told


@pytest.mark.parametrize("when", ["as it is claimed late", "as it ends"])
async def test_a_schedule_that_no_longer_computes_disables_its_job_alone(
    when: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broken schedule is disabled with the reason, and the others go on."""
    await scheduler.add_job(Cron("* * * * *", tz="UTC"), handler="work", id="a")
    await scheduler.add_job(Every("1m"), handler="work", id="b")

    computes = Cron.next_micros

    def fails(*question: Any) -> Micros | None:
        if when == "as it ends" and "a" not in worker.ids:
            return computes(*question)
        raise ValueError("the zone is gone")

    monkeypatch.setattr(Cron, "next_micros", fails)
    if when == "as it is claimed late":
        clock.set(NOON + MINUTE + SECOND)
    await clock.advance("2m")

    job = await job_of(scheduler)
    assert (job.status, job.next_run_at) == (Status.DISABLED, None)
    assert job.disabled_reason is not None
    assert "the zone is gone" in job.disabled_reason
    assert worker.ids.count("a") == (when == "as it ends")
    assert worker.ids.count("b") >= 2


class SilentClock(VirtualClock):
    """A clock as the machine's is: it does not tell when it jumps."""

    tells_of_jumps = False

    def set(self, now: str | datetime) -> None:
        listeners, self._listeners = self._listeners, []
        super().set(now)
        self._listeners = listeners


async def test_the_wall_clock_decides_and_sleep_is_never_longer_than_max_sleep(store: str) -> None:
    """After a suspend the monotonic clock has not moved: at most a minute later the wall clock is asked again."""
    clock = SilentClock(NOON)
    runs: list[Run] = []
    scheduler = Scheduler(store, clock=clock, max_sleep="60s")

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        runs.append(run)

    async with scheduler:
        await scheduler.add_job(Every("8h"), handler="work", id="a")
        await clock.advance("1s")
        wake = scheduler.state().next_wake_at

        clock.set(NOON + 9 * HOUR)
        await clock.advance("60s")

        assert wake is not None
        assert wake - NOON <= MINUTE
        assert len(runs) == 1
        assert runs[0].fired_at - (NOON + 9 * HOUR) <= MINUTE


async def test_a_clock_that_is_put_right_is_noticed_within_a_second(store: str) -> None:
    """Whatever `max_sleep` is: everything waits for it."""
    clock = SilentClock(NOON)
    runs: list[Run] = []
    scheduler = Scheduler(store, clock=clock, max_sleep=None)

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        runs.append(run)

    async with scheduler:
        await scheduler.add_job(Every("1s"), handler="work", id="a")
        clock.set(NOON + 400 * DAY)
        await clock.advance("10s")
        assert runs == []

        clock.set(NOON + 10 * SECOND)
        await clock.advance("1s")

        assert runs


async def test_max_sleep_can_be_set(store: str) -> None:
    """Who needs to notice a jump sooner says so."""
    clock = SilentClock(NOON)
    scheduler = Scheduler(store, clock=clock, max_sleep="5s")
    async with scheduler:
        await clock.advance("100s")

        assert 20 <= scheduler.state().tick_count <= 22


@pytest.mark.parametrize(
    "schedule",
    [Every("10m"), Cron("*/10 * * * *", tz="UTC"), Every("10m", jitter="1m")],
    ids=["every", "cron", "jittered"],
)
async def test_an_occurrence_that_ran_is_not_run_again_because_the_clock_went_back(
    schedule: Schedule, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """An NTP step back must not send the same report twice."""
    await scheduler.add_job(schedule, handler="work", id="a")
    await clock.advance("35m")

    clock.set(NOON + 5 * MINUTE)
    await clock.advance("1h")

    occurrences = [run.scheduled_for for run in worker.runs]
    assert len(set(occurrences)) == len(occurrences) == 6


async def test_a_one_shot_is_not_run_again_because_the_clock_went_back(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It ended, whatever the time is now."""
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await clock.advance("2m")

    clock.set(NOON)
    await clock.advance("5m")

    assert len(worker.runs) == 1


async def test_an_edit_after_the_clock_went_back_does_not_replay(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """An edit computes the next run anew, and must not come upon an occurrence that ran."""
    await scheduler.add_job(Cron("*/10 * * * *", tz="UTC"), handler="work", id="a")
    await clock.advance("35m")
    clock.set(NOON + 5 * MINUTE)

    await scheduler.update_job("a", schedule=Cron("0,10,20,30,40,50 * * * *", tz="UTC"))
    await clock.advance("40m")

    occurrences = [run.scheduled_for for run in worker.runs]
    assert len(set(occurrences)) == len(occurrences) == 4


# ---------------------------------------------------------------- 11: bad input

NOT_JSON = [
    pytest.param({1, 2}, id="a set"),
    pytest.param(object(), id="an object"),
    pytest.param(float("nan"), id="not a number"),
    pytest.param(float("inf"), id="infinity"),
    pytest.param({1: "one"}, id="a number as a key"),
    pytest.param(b"bytes", id="bytes"),
    pytest.param({"at": NOON}, id="a datetime inside"),
    pytest.param("\ud800", id="half a character"),
]


@pytest.mark.parametrize("payload", NOT_JSON)
async def test_a_payload_that_is_not_json_is_refused(payload: object, scheduler: Scheduler) -> None:
    """When it is given, not when a handler at night finds something else in it."""
    with pytest.raises(InvalidJobError, match="JSON") as caught:
        await scheduler.add_job(Every("1m"), handler="work", id="a", payload=payload)

    assert caught.value.field == "payload"
    assert isinstance(caught.value, SchedulerError)
    assert await scheduler.list_jobs() == []


@pytest.mark.parametrize("zone", ["Europe/Stokholm", "Mars/Olympus", "", "../etc/passwd", 5])
def test_an_unknown_zone_is_refused(zone: Any) -> None:
    """A typo would move every run by hours."""
    with pytest.raises(UnknownZoneError, match="Europe/Stockholm") as caught:
        Cron("0 9 * * *", tz=zone)

    assert isinstance(caught.value, SchedulerError)
    assert caught.value.zone == zone


@pytest.mark.parametrize("id", ["", " a", "a ", "a\n", "a\x00b", "x" * 201, 5, b"a"])
async def test_a_bad_id_is_refused(id: Any, scheduler: Scheduler) -> None:
    """An id that nobody can type again is no id."""
    with pytest.raises(InvalidJobError, match="id must ") as caught:
        await scheduler.add_job(Every("1m"), handler="work", id=id)

    assert caught.value.field == "id"
    assert await scheduler.list_jobs() == []


@pytest.mark.parametrize("priority", ["urgent", "HIGH", "", 1, None])
async def test_an_unknown_priority_is_refused(priority: Any, scheduler: Scheduler) -> None:
    """The message lists those there are."""
    with pytest.raises(InvalidJobError, match="high, standard, low") as caught:
        await scheduler.add_job(Every("1m"), handler="work", id="a", priority=priority)

    assert caught.value.field == "priority"
    assert await scheduler.list_jobs() == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"namespace": ""}, InvalidJobError),
        ({"user_id": " ann"}, InvalidJobError),
        ({"name": ""}, InvalidJobError),
        ({"group": ""}, InvalidJobError),
        ({"metadata": {"a": {1}}}, InvalidJobError),
        ({"metadata": ["a"]}, InvalidJobError),
        ({"misfire": "always"}, InvalidJobError),
        ({"retry": "backoff"}, InvalidJobError),
        ({"timeout": "5"}, IntervalParseError),
        ({"timeout": "0s"}, IntervalParseError),
        ({"on_interrupt": "again"}, InvalidJobError),
        ({"enabled": "yes"}, InvalidJobError),
        ({"on_conflict": "ignore"}, InvalidJobError),
        ({"schedule": "5m"}, InvalidJobError),
        ({"handler": ""}, InvalidJobError),
        pytest.param({"handler": lambda: None}, InvalidJobError, id="a function without a name"),
    ],
    ids=str,
)
async def test_every_other_bad_field_is_refused_and_changes_nothing(
    fields: dict[str, Any], error: type[SchedulerError], scheduler: Scheduler
) -> None:
    """Each by a SchedulerError that is a ValueError too, before anything is written."""
    given: dict[str, Any] = {"schedule": Every("1m"), "handler": "work", "id": "a", **fields}

    with pytest.raises(error) as caught:
        await scheduler.add_job(given.pop("schedule"), **given)

    assert isinstance(caught.value, SchedulerError)
    assert isinstance(caught.value, ValueError)
    assert await scheduler.list_jobs() == []


@pytest.mark.parametrize(
    "changes", [{"payload": {1}}, {"priority": "urgent"}, {"schedule": "5m"}, {"timeout": "-5m"}, {"name": ""}], ids=str
)
async def test_a_bad_edit_is_refused_and_changes_nothing(changes: dict[str, Any], scheduler: Scheduler) -> None:
    """The job stays as it was, even the part of the edit that was right."""
    before = await scheduler.add_job(Every("1m"), handler="work", id="a", payload={"n": 1})

    with pytest.raises(SchedulerError):
        await scheduler.update_job("a", group="x", **changes)

    assert await scheduler.get_job("a") == before


@pytest.mark.parametrize("payload", NOT_JSON)
async def test_a_trigger_with_a_bad_payload_runs_nothing(
    payload: object, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """What is given for one run is held to the same rule."""
    await scheduler.add_job(Manual(), handler="work", id="a")

    with pytest.raises(InvalidJobError):
        await scheduler.trigger_job("a", payload=payload)
    await clock.advance()

    assert worker.runs == []


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Every("5x"), IntervalParseError),
        (lambda: Cron("61 * * * *"), CronParseError),
        (lambda: At("2026-06-15T09:00:00"), InvalidScheduleError),
        (lambda: Every("5m", start=NOON, end=NOON - DAY), InvalidScheduleError),
    ],
    ids=["interval", "cron", "naive", "bounds"],
)
def test_a_bad_schedule_is_refused_when_it_is_made(make: Callable[[], object], error: type[SchedulerError]) -> None:
    """Before there is a job that could have it."""
    with pytest.raises(error) as caught:
        make()

    assert isinstance(caught.value, SchedulerError)


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrent": 0},
        {"max_concurrent": 1.5},
        {"max_concurrent": True},
        {"queue_size": -1},
        {"group_limits": 0},
        {"group_limits": {"x": 0}},
        {"group_limits": {"": 1}},
        {"group_limits": {"*/": 1}},
        {"group_limits": {"*/ x": 1}},
        {"group_limits": {1: 1}},
        {"group_limits": {"*": 1}},
        {"group_limits": ["mail"]},
        {"misfire_grace": "5"},
        {"stuck_after": "soon"},
        {"max_sleep": "0s"},
        {"min_interval": "1.5s"},
        {"retry": "backoff"},
        {"keep_runs": -1},
        {"purge_disabled_after": ""},
    ],
    ids=str,
)
def test_a_scheduler_refuses_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    """At once, and by the same family of errors."""
    with pytest.raises(SchedulerError):
        Scheduler(":memory:", **options)


# ---------------------------------------------------------------- 12: a store that cannot be read


def make_text(path: Path) -> None:
    path.write_text("These are the notes of somebody else.\n" * 100)


def make_foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE invoice (number INTEGER)")
        db.execute("INSERT INTO invoice VALUES (1)")
        db.commit()


def make_ours(path: Path) -> None:
    async def fill() -> None:
        scheduler = Scheduler(path, clock=VirtualClock(NOON))
        await scheduler.add_jobs(
            [JobSpec(Every("1m"), handler="work", id=f"{n}", payload="x" * 999) for n in range(99)]
        )
        await scheduler.stop()

    asyncio.run(fill())


def make_newer(path: Path) -> None:
    make_ours(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def make_corrupt(path: Path) -> None:
    make_ours(path)
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


UNREADABLE = [
    pytest.param(make_text, "not a SQLite database", id="wrong file"),
    pytest.param(make_foreign, "belongs to another program", id="another program's database"),
    pytest.param(make_newer, "upgrade", id="newer schema"),
    pytest.param(make_corrupt, "damaged", id="corrupt"),
]


@pytest.mark.parametrize(("spoil", "words"), UNREADABLE)
def test_a_store_that_cannot_be_read_refuses_to_start(spoil: Callable[[Path], None], words: str, path: Path) -> None:
    """With a clear error, at start and at every other call; and the file stays as it is."""
    spoil(path)
    before = path.read_bytes()

    async def use() -> list[str]:
        scheduler = Scheduler(path, clock=VirtualClock(NOON))
        statuses = []
        for attempt in (
            scheduler.start,
            scheduler.list_jobs,
            scheduler.run_pending,
            lambda: scheduler.add_job(Every("1m"), handler="work"),
        ):
            with pytest.raises(StoreError, match=words) as caught:
                await attempt()
            assert str(path) in str(caught.value)
            statuses.append(scheduler.status)
        await scheduler.stop()
        return statuses

    assert asyncio.run(use()) == ["stopped"] * 4
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/jobs.db", "."], ids=["no such directory", "a directory"])
async def test_a_store_that_cannot_be_opened_says_why(place: str, tmp_path: Path, new_scheduler: NewScheduler) -> None:
    """Not a word of SQLite's is needed to understand it."""
    scheduler = new_scheduler(tmp_path / place)

    with pytest.raises(StoreError, match="director"):
        await scheduler.start()

    assert scheduler.status == "stopped"


def test_a_store_damaged_after_its_first_page_is_not_taken_for_empty(path: Path) -> None:
    """A file that opens and then turns out broken must not look like one without jobs."""
    make_ours(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)

    async def use() -> None:
        scheduler = Scheduler(path, clock=VirtualClock(NOON))
        with pytest.raises(StoreError, match="damaged"):
            await scheduler.start()
        await scheduler.stop()

    asyncio.run(use())
