"""Claims ahead of time: handlers start on time, and everything else looks as if there were no such claims.

On a virtual clock a claim takes no time, and nothing is claimed ahead. Here each claim counts as ten milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    At,
    Every,
    Job,
    JobAlreadyRunningError,
    JobSpec,
    Manual,
    Outcome,
    Retry,
    Run,
    Scheduler,
    SkipReason,
    Status,
    StoreError,
    Trigger,
)
from scheduler_async.engine import claimer, lookahead
from scheduler_async.engine import held_runs as waiting
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.events import Event, EventKind
from scheduler_async.rules.claim_ahead import (
    CROWD,
    EARLIEST_CLAIM,
    LONGEST_LEAD,
    LONGEST_REACH,
    SHORTEST_LEAD,
    ClaimAhead,
    Expected,
)
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.clock import Timer
from scheduler_async.timekeeping.instants import SECOND
from tests.cast import DAY, HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of

TAKES = 0.010  # seconds
MILLISECOND = timedelta(milliseconds=1)
EARLY = timedelta(milliseconds=5)
REACH = timedelta(milliseconds=60)  # further ahead than anything is claimed that is not one of a crowd


@pytest.fixture
def claiming_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = ClaimAhead.learn
    monkeypatch.setattr(ClaimAhead, "learn", lambda self, _, count: learn(self, TAKES, count))


async def shortly_before(clock: VirtualClock, moment: timedelta = MINUTE) -> None:
    """Move to where the next run is claimed, and has not begun."""
    await clock.advance(moment - EARLY)


async def crowd_of(count: int, scheduler: Scheduler, moment: datetime = NOON + MINUTE) -> list[str]:
    """Add *count* jobs that are due at one moment; return their ids in the order in which they start."""
    ids = [f"{number:04}" for number in range(count)]
    await scheduler.add_jobs([JobSpec(At(moment), handler="work", id=name) for name in ids])
    return ids


# ---------------------------------------------------------------- how far ahead


def test_nothing_is_claimed_ahead_if_claims_take_no_time() -> None:
    claim_ahead = ClaimAhead()
    claim_ahead.learn(0.0, 1)

    assert (claim_ahead.lead, claim_ahead.reach, claim_ahead.lead_of_crowd(10_000)) == (0, 0, 0)


def test_a_slow_claim_counts_at_once_and_is_forgotten_little_by_little() -> None:
    claim_ahead = ClaimAhead()
    claim_ahead.learn(0.005, 1)
    usual = claim_ahead.lead
    claim_ahead.learn(0.015, 1)
    slow = claim_ahead.lead
    leads = []
    for _ in range(100):
        claim_ahead.learn(0.005, 1)
        leads.append(claim_ahead.lead)

    assert usual < slow
    assert slow >= 0.015 * SECOND
    assert leads == sorted(leads, reverse=True)
    assert leads[0] > usual
    assert leads[-1] <= usual * 1.1


def test_a_little_time_is_left_for_a_claim_that_takes_longer_than_those_before_it() -> None:
    claim_ahead = ClaimAhead()
    claim_ahead.learn(0.000_001, 1)

    assert claim_ahead.lead == SHORTEST_LEAD


@given(
    st.lists(st.tuples(st.floats(min_value=0, max_value=1e6), st.integers(0, 1_000)), min_size=1),
    st.lists(st.integers(0, 100_000), min_size=2),
)
def test_a_claim_never_reaches_further_ahead_than_the_limits(
    claims: list[tuple[float, int]], crowds: list[int]
) -> None:
    claim_ahead = ClaimAhead()
    for took, count in claims:
        claim_ahead.learn(took, count)

    assert 0 <= claim_ahead.lead <= claim_ahead.reach
    assert claim_ahead.lead <= LONGEST_LEAD
    assert claim_ahead.reach <= LONGEST_REACH
    leads = [claim_ahead.lead_of_crowd(count) for count in sorted(crowds)]
    assert leads == sorted(leads)
    assert claim_ahead.lead <= leads[0]
    assert leads[-1] <= EARLIEST_CLAIM


def test_the_longer_it_takes_to_claim_a_crowd_the_sooner_it_begins_with_the_next() -> None:
    quick, slow = ClaimAhead(), ClaimAhead()
    for _ in range(100):
        quick.learn(0.010, 250)
        slow.learn(0.020, 250)

    assert 1_000 * 0.000_040 * SECOND < quick.lead_of_crowd(1_000) < slow.lead_of_crowd(1_000)


def test_the_earliest_moment_is_expected_with_the_number_of_its_jobs() -> None:
    expected = Expected()

    assert expected.hear_of(20, 3)
    assert not expected.hear_of(30, 5)
    assert not expected.hear_of(20, 2)
    assert expected == Expected(20, 5)
    assert expected.hear_of(20, CROWD)  # it has become a crowd, for which one wakes up earlier
    assert expected.hear_of(10, 1)
    assert expected == Expected(10, 1)


@pytest.mark.parametrize(
    ("one", "other", "sooner"),
    [
        (Expected(), Expected(), Expected()),
        (Expected(10, 1), Expected(), Expected(10, 1)),
        (Expected(10, 1), Expected(20, 5), Expected(10, 1)),
        (Expected(10, 1), Expected(10, 5), Expected(10, 5)),
    ],
)
def test_of_two_expectations_the_sooner_counts(one: Expected, other: Expected, sooner: Expected) -> None:
    assert one.or_sooner(other) == other.or_sooner(one) == sooner


# ---------------------------------------------------------------- what others see of it


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_run_that_is_claimed_ahead_starts_on_time(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await shortly_before(clock)
    (row,) = await scheduler.run_log()
    begun, queued = len(worker.runs), scheduler.state().queued
    await clock.advance("90s")

    assert (row.scheduled_for, row.started_at, row.finished_at) == (NOON + MINUTE, NOON + MINUTE, None)
    assert (begun, queued) == (0, 0)
    assert worker.fired() == [1, 2]
    assert [run.scheduled_for for run in worker.runs] == [NOON + MINUTE, NOON + 2 * MINUTE]
    assert (await job_of(scheduler)).next_run_at == NOON + 3 * MINUTE


@pytest.mark.usefixtures("claiming_ahead")
async def test_one_claim_takes_all_jobs_due_within_moments_and_each_starts_at_its_own_time(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    for number in range(20):
        await scheduler.add_job(At(NOON + MINUTE + number * MILLISECOND), handler="work", id=f"{number:02}")
    await clock.advance("30s")
    looks = scheduler.state().tick_count

    await clock.advance("1m")

    assert worker.fired(MILLISECOND) == [60_000 + number for number in range(20)]
    assert worker.ids == [f"{number:02}" for number in range(20)]
    assert scheduler.state().tick_count - looks < 20


@pytest.mark.usefixtures("claiming_ahead")
async def test_observers_hear_of_a_run_when_it_starts(scheduler: Scheduler, clock: VirtualClock) -> None:
    async def hear() -> Event:
        return await anext(event async for event in scheduler.events() if event.kind is EventKind.RUN_STARTED)

    hearing = asyncio.create_task(hear())
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await shortly_before(clock)
    heard_early = hearing.done()
    await clock.advance("1s")

    assert not heard_early
    assert (await hearing).at == NOON + MINUTE


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_job_whose_run_waits_for_its_time_is_neither_running_nor_queued(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    await shortly_before(clock)

    state = scheduler.state()
    assert (state.running, state.queued) == (0, 0)


@pytest.mark.usefixtures("claiming_ahead")
@pytest.mark.parametrize("how", ["pause", "disable", "edit"])
async def test_a_change_to_a_job_takes_back_its_claimed_run(
    how: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The change acts as if the run had not been claimed: no run starts with the old payload or schedule."""
    await scheduler.add_job(Every("1m"), handler="work", id="a", payload="old")
    await shortly_before(clock)
    changes = {
        "pause": partial(scheduler.pause_job, "a"),
        "disable": partial(scheduler.disable_job, "a"),
        "edit": partial(scheduler.update_job, "a", payload="new"),
    }

    changed = await changes[how]()
    log = await scheduler.run_log() if how != "edit" else []  # after an edit it may be claimed again by now
    await clock.advance("3m")

    assert not log
    assert changed.last_run_at is None
    assert changed.status is not Status.RUNNING
    assert changed.next_run_at == (None if how == "disable" else NOON + MINUTE)
    assert worker.fired() == ([1, 2, 3] if how == "edit" else [])
    assert {run.payload for run in worker.runs} <= {"new"}


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_claimed_run_is_put_back_when_its_handler_is_removed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Its job waits for another handler, as if the run had not been claimed."""
    ids = await crowd_of(3, scheduler)
    await shortly_before(clock)
    claimed = [active.is_held for active in scheduler._engine.session.runner]

    scheduler.remove_handler("work")
    await clock.advance("1s")
    waiting = await scheduler.list_jobs()
    problem = scheduler.state().problem
    scheduler.handler("work")(worker)
    await clock.advance()

    assert claimed == [True] * 3
    assert [(job.status, job.next_run_at) for job in waiting] == [(Status.IDLE, NOON + MINUTE)] * 3
    assert problem is None
    assert worker.ids == ids


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_change_takes_back_the_run_although_its_time_is_past(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The event loop may be busy with others when it should start."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)
    clock.set(NOON + MINUTE + EARLY)

    await scheduler.pause_job("a")
    await clock.advance("3m")

    (row,) = await scheduler.run_log()
    assert not worker.runs
    assert (row.scheduled_for, row.outcome, row.reason) == (NOON + MINUTE, Outcome.SKIPPED, SkipReason.PAUSED)


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_job_that_is_made_manual_before_its_time_does_not_start(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    changed = await scheduler.update_job("a", schedule=Manual())
    await clock.advance("3m")

    assert changed.next_run_at is None
    assert not worker.runs


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_retry_that_is_claimed_is_forgotten_when_its_job_is_resumed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A resume forgets every retry that waits; this one is not an exception."""
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("10m"), handler="work", id="a", retry=Retry.in_window(3, delay="10s"))
    await clock.advance("10m")
    await shortly_before(clock, timedelta(seconds=10))
    (claimed, _) = await scheduler.run_log()

    resumed = await scheduler.resume_job("a")

    assert claimed.trigger is Trigger.RETRY
    assert resumed.next_run_at == NOON + timedelta(minutes=20)
    assert (resumed.state.retry_count, resumed.state.attempts) == (0, 0)


@pytest.mark.usefixtures("claiming_ahead")
async def test_if_the_store_fails_to_take_back_a_run_the_caller_gets_the_error_and_the_job_goes_on(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    async def fail(*_: object) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(scheduler._store, "release", fail)
        with pytest.raises(StoreError, match="The disk is full"):
            await scheduler.trigger_job("a")
    await clock.advance("2m")

    assert worker.fired() == [1, 2]


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_job_whose_run_was_taken_back_goes_on_when_it_is_resumed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="once")
    await shortly_before(clock)
    for name in ("a", "once"):
        await scheduler.pause_job(name)
    await clock.advance("90s")

    for name in ("a", "once"):
        await scheduler.resume_job(name)
    await clock.advance("1m")

    assert [(run.job_id, run.scheduled_for) for run in worker.runs] == [
        ("once", NOON + MINUTE),
        ("a", NOON + 3 * MINUTE),
    ]


class HastyClock(VirtualClock):
    """Its timers go off up to a millisecond early, as those of some event loops do."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return super().call_later(max(delay - 0.001, 0.000_001), callback)


@pytest.mark.usefixtures("claiming_ahead")
async def test_nothing_starts_before_its_time_whatever_the_timers_do() -> None:
    clock = HastyClock(NOON)
    worker = Worker(clock)
    async with Scheduler(":memory:", clock=clock) as scheduler:
        scheduler.handler("work")(worker)
        await scheduler.add_job(Every("1m"), handler="work", id="a")
        await clock.advance("150s")

    assert worker.fired() == [1, 2]


async def let_a_crowd_run(count: int, began: list[str], after: timedelta = timedelta(seconds=1)) -> list[str]:
    """Run *count* jobs by the clock of the machine; return their ids in the order in which *began* should list them."""
    all_began = asyncio.Event()
    async with Scheduler(":memory:") as scheduler:

        @scheduler.handler("work")
        async def work(run: Run) -> None:
            began.append(run.job_id)
            if len(began) == count:
                all_began.set()

        scheduler._engine.session.claimer.lookahead.claim_ahead.learn(TAKES, 1)
        ids = await crowd_of(count, scheduler, datetime.now(UTC) + after)
        async with asyncio.timeout(PATIENCE):
            await all_began.wait()
    return ids


async def test_jobs_due_at_one_moment_start_in_order() -> None:
    began: list[str] = []

    assert began == await let_a_crowd_run(50, began, timedelta(seconds=0.5))


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_change_from_another_process_waits_for_the_claimed_run_to_start(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    here, elsewhere = new_scheduler(shared), new_scheduler(shared, knows_work=False)
    await here.start()
    await here.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    pausing = asyncio.create_task(elsewhere.pause_job("a"))
    while (await job_of(here)).state.phase is not Phase.PAUSED:
        await asyncio.sleep(0)
    returned_early = pausing.done()
    await clock.advance(EARLY)
    async with asyncio.timeout(PATIENCE):
        await pausing
    begun = len(worker.runs)
    await clock.advance("3m")

    assert not returned_early
    assert begun == len(worker.runs) == 1


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_job_that_is_removed_before_its_time_does_not_start(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    await scheduler.remove_job("a")
    await clock.advance("3m")

    assert not worker.runs
    assert await scheduler.get_job("a") is None


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_stop_puts_back_runs_that_have_not_begun(
    new_scheduler: NewScheduler, path: object, worker: Worker, clock: VirtualClock
) -> None:
    """The run starts when a scheduler runs again, as if it had not been claimed."""
    scheduler = new_scheduler(str(path))
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    await scheduler.stop()
    stopped = clock.now()
    after = new_scheduler(str(path))
    found = await job_of(after)
    log = await after.run_log()
    await after.start()
    await clock.advance("1m")

    assert stopped == NOON + MINUTE - EARLY
    assert (found.status, found.next_run_at, found.last_run_at) == (Status.IDLE, NOON + MINUTE, None)
    assert not log
    assert worker.fired() == [1]


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_node_that_was_frozen_does_not_begin_runs_that_others_may_have_taken_over(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    """Its lease has expired when it wakes up. The node that finds the run records an interruption and repeats it."""
    scheduler = new_scheduler(shared)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    (claimed,) = await scheduler.run_log()

    scheduler._engine.session.node.trusted_until = 0.0
    await clock.advance("1m")

    interrupted = await scheduler.get_run(claimed.id)
    assert interrupted is not None
    assert interrupted.outcome is Outcome.INTERRUPTED
    assert claimed.id not in [run.id for run in worker.runs]
    assert NOON + MINUTE in [run.scheduled_for for run in worker.runs]


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_trigger_shortly_before_its_time_runs_it_at_once_and_it_runs_again_in_time(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    await scheduler.trigger_job("a")
    await clock.advance("1m")

    assert [run.trigger for run in worker.runs] == [Trigger.MANUAL, Trigger.SCHEDULE]
    assert worker.fired(MILLISECOND) == [59_995, 60_000]


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_trigger_elsewhere_finds_it_running(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    """The run is about to start, and a job never runs twice at the same time."""
    here, elsewhere = new_scheduler(shared), new_scheduler(shared)
    await here.start()
    await here.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    with pytest.raises(JobAlreadyRunningError):
        await elsewhere.trigger_job("a")
    await clock.advance(EARLY)

    assert worker.fired() == [1]


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_clock_that_goes_back_in_between_does_not_repeat_the_run(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    clock.set(NOON + MINUTE - timedelta(seconds=30))
    await clock.advance("2m")

    scheduled = [run.scheduled_for for run in worker.runs]
    assert len(set(scheduled)) == len(scheduled)
    assert scheduled == [NOON + MINUTE, NOON + 2 * MINUTE]


@pytest.mark.usefixtures("claiming_ahead")
@pytest.mark.parametrize("back", [timedelta(seconds=10), HOUR, 40 * DAY], ids=str)
@pytest.mark.parametrize("pause", [0, 2, 4, 6], ids=lambda pause: f"noticed after {pause} ms")
async def test_a_job_does_not_wait_out_a_clock_jump_that_comes_while_it_is_claimed(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, back: timedelta, pause: int
) -> None:
    """Some of many jobs may be put back after the scheduler has checked all others for the jump."""
    ids = [f"{number:02}" for number in range(30)]
    for job_id in ids:
        await scheduler.add_job(Every("1m"), handler="work", id=job_id)
        await clock.advance(MILLISECOND)
    await shortly_before(clock, MINUTE - 30 * MILLISECOND)
    assert any(job.status is Status.RUNNING for job in await scheduler.list_jobs())
    await clock.advance(pause * MILLISECOND)

    clock.set(clock.now() - back)
    before = len(worker.runs)
    await clock.advance("100s")

    assert {run.job_id for run in worker.runs[before:]} == set(ids)
    for job in await scheduler.list_jobs():
        assert job.next_run_at is not None
        assert job.next_run_at - clock.now() <= MINUTE


@pytest.mark.usefixtures("claiming_ahead")
@pytest.mark.parametrize("how", ["edit", "trigger", "stop"])
async def test_a_job_does_not_wait_out_a_clock_jump_if_its_claim_is_undone_meanwhile(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock, how: str
) -> None:
    """The check for the jump skips a claimed job, which gets its old moment back when the claim is undone."""
    scheduler = new_scheduler(shared)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)
    clock.set(clock.now() - DAY)
    await asyncio.sleep(0)

    match how:
        case "edit":
            await scheduler.update_job("a", payload="new")
        case "trigger":
            await scheduler.trigger_job("a")
        case _:
            await scheduler.stop()
            scheduler = new_scheduler(shared)
            await scheduler.start()
    worker.runs.clear()
    await clock.advance("3m")

    assert worker.ids == ["a"] * 3


@pytest.mark.usefixtures("claiming_ahead")
@pytest.mark.parametrize("limits", [{"max_concurrent": 5}, {"group_limits": 5}, {"group_limits": {"g": 5}}])
async def test_limited_slots_are_kept_for_jobs_that_are_due(
    limits: dict[str, object], new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A more urgent job may still become due."""
    scheduler = new_scheduler(":memory:", **limits)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await shortly_before(clock)
    before: Job = await job_of(scheduler)
    await clock.advance(EARLY)

    assert before.status is Status.IDLE
    assert worker.fired() == [1]


@pytest.mark.usefixtures("claiming_ahead")
async def test_the_state_of_the_scheduler_shows_when_a_job_is_due_not_when_it_is_claimed(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    await scheduler.add_job(At(NOON + timedelta(seconds=20)), handler="work", id="a")
    await clock.advance("1s")

    assert scheduler.state().next_wake_at == NOON + timedelta(seconds=20)


# ---------------------------------------------------------------- crowds


async def claimed(scheduler: Scheduler) -> int:
    return len(await scheduler.run_log(limit=None))


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_crowd_is_claimed_before_its_moment_and_starts_then_in_order(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    ids = await crowd_of(600, scheduler)
    await clock.advance(MINUTE - 3 * REACH)
    too_early = await claimed(scheduler)
    await clock.advance(2 * REACH)
    early, begun = await claimed(scheduler), len(worker.runs)
    await clock.advance("1s")

    assert too_early == 0
    assert (early, begun) == (600, 0)
    assert worker.ids == ids
    assert set(worker.fired()) == {1}


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_crowd_that_ran_together_is_one_the_next_time(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_jobs([JobSpec(Every("1m"), handler="work", id=f"{number:04}") for number in range(600)])
    await clock.advance("61s")

    await clock.advance(MINUTE - timedelta(seconds=1) - REACH)
    early, begun = await claimed(scheduler), len(worker.runs)
    await clock.advance("1s")

    assert (early, begun) == (1200, 600)
    assert len(worker.runs) == 1200


async def test_jobs_claimed_late_start_after_jobs_claimed_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookahead, "MOST_EARLY", 600)
    monkeypatch.setattr(waiting, "SLICE", 10)
    began: list[str] = []

    assert began == await let_a_crowd_run(1_500, began)


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_crowd_is_claimed_ahead_only_as_far_as_memory_allows(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "MOST_EARLY", 300)
    monkeypatch.setattr(claimer, "CHUNK", 100)
    ids = await crowd_of(600, scheduler)

    await clock.advance(MINUTE - REACH)
    early, looks = await claimed(scheduler), scheduler.state().tick_count
    await clock.advance("1s")

    assert early == 300
    assert scheduler.state().tick_count - looks < 10
    assert worker.ids == ids
    assert set(worker.fired()) == {1}


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_job_due_before_a_crowd_starts_in_time(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The claimed crowd does not delay it."""
    await crowd_of(600, scheduler)
    await clock.advance(MINUTE - REACH)

    await scheduler.add_job(At(clock.now() + 10 * MILLISECOND), handler="work", id="soon")
    await scheduler.add_job(At(clock.now()), handler="work", id="now")
    await clock.advance("1s")

    assert worker.ids[:2] == ["now", "soon"]
    assert worker.fired(MILLISECOND)[:2] == [59_940, 59_950]
    assert len(worker.runs) == 602


@pytest.mark.usefixtures("claiming_ahead")
async def test_a_stop_puts_back_a_crowd(
    new_scheduler: NewScheduler, path: object, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(str(path))
    await scheduler.start()
    ids = await crowd_of(600, scheduler)
    await clock.advance(MINUTE - REACH)
    early = await claimed(scheduler)

    await scheduler.stop()
    left = await claimed(scheduler)
    await scheduler.start()
    await clock.advance("1s")

    assert (early, left) == (600, 0)
    assert worker.ids == ids
    assert set(worker.fired()) == {1}
