"""Claims ahead of time: handlers start on time, and nobody can tell from what else happens.

On a virtual clock a claim takes no time, and nothing is done ahead. Here each is thought to take ten milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import At, Every, Job, JobAlreadyRunningError, JobSpec, Outcome, Run, Scheduler, Status
from scheduler_async.clock import Timer
from scheduler_async.events import Event, EventKind
from scheduler_async.foresight import LONGEST_LEAD, LONGEST_REACH, SHORTEST_LEAD, Foresight
from scheduler_async.instants import SECOND
from scheduler_async.models import Phase
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of

TAKES = 0.010  # seconds
MILLISECOND = timedelta(milliseconds=1)
EARLY = timedelta(milliseconds=5)


@pytest.fixture
def foresighted(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = Foresight.learn
    monkeypatch.setattr(Foresight, "learn", lambda self, _: learn(self, TAKES))


async def shortly_before(clock: VirtualClock, moment: timedelta = MINUTE) -> None:
    """Move to where the next run is claimed, and has not begun."""
    await clock.advance(moment - EARLY)


# ---------------------------------------------------------------- how far ahead


def test_where_claims_take_no_time_nothing_is_done_ahead() -> None:
    foresight = Foresight()
    foresight.learn(0.0)

    assert (foresight.lead, foresight.reach) == (0, 0)


def test_a_slow_claim_counts_at_once_and_is_forgotten_little_by_little() -> None:
    foresight = Foresight()
    foresight.learn(0.005)
    usual = foresight.lead
    foresight.learn(0.015)
    slow = foresight.lead
    leads = []
    for _ in range(100):
        foresight.learn(0.005)
        leads.append(foresight.lead)

    assert usual < slow
    assert slow >= 0.015 * SECOND
    assert leads == sorted(leads, reverse=True)
    assert leads[0] > usual
    assert leads[-1] <= usual * 1.1


def test_a_little_time_is_left_for_a_claim_that_takes_longer_than_those_before_it() -> None:
    foresight = Foresight()
    foresight.learn(0.000_001)

    assert foresight.lead == SHORTEST_LEAD


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1))
def test_it_never_looks_further_than_it_may(durations: list[float]) -> None:
    foresight = Foresight()
    for took in durations:
        foresight.learn(took)

    assert 0 <= foresight.lead <= foresight.reach
    assert foresight.lead <= LONGEST_LEAD
    assert foresight.reach <= LONGEST_REACH


# ---------------------------------------------------------------- what others see of it


@pytest.mark.usefixtures("foresighted")
async def test_what_is_claimed_ahead_starts_on_time(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await shortly_before(clock)
    (row,) = await scheduler.run_log()
    begun = len(worker.runs)
    await clock.advance("90s")

    assert (row.scheduled_for, row.started_at, row.finished_at) == (NOON + MINUTE, NOON + MINUTE, None)
    assert begun == 0
    assert worker.fired() == [1, 2]
    assert [run.scheduled_for for run in worker.runs] == [NOON + MINUTE, NOON + 2 * MINUTE]
    assert (await job_of(scheduler)).next_run_at == NOON + 3 * MINUTE


@pytest.mark.usefixtures("foresighted")
async def test_all_that_is_due_within_moments_is_claimed_at_once_and_starts_in_its_own_time(
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


@pytest.mark.usefixtures("foresighted")
async def test_a_run_is_told_of_when_it_starts(scheduler: Scheduler, clock: VirtualClock) -> None:
    async def hear() -> Event:
        return await anext(event async for event in scheduler.events() if event.kind is EventKind.RUN_STARTED)

    hearing = asyncio.create_task(hear())
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await shortly_before(clock)
    heard_early = hearing.done()
    await clock.advance("1s")

    assert not heard_early
    assert (await hearing).at == NOON + MINUTE


@pytest.mark.usefixtures("foresighted")
async def test_what_waits_for_its_time_is_neither_running_nor_queued(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")

    await shortly_before(clock)

    state = scheduler.state()
    assert (state.running, state.queued) == (0, 0)


@pytest.mark.usefixtures("foresighted")
@pytest.mark.parametrize("how", ["pause", "disable", "edit"])
async def test_whoever_changes_a_job_whose_run_is_claimed_waits_until_it_has_begun(
    how: str, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """When the call returns, nothing starts any more by what the job was before."""
    await scheduler.add_job(Every("1m"), handler="work", id="a", payload="old")
    await shortly_before(clock)
    changes = {
        "pause": partial(scheduler.pause_job, "a"),
        "disable": partial(scheduler.disable_job, "a"),
        "edit": partial(scheduler.update_job, "a", payload="new"),
    }

    changing = asyncio.create_task(changes[how]())
    await clock.advance()
    returned_early = changing.done()
    await clock.advance(EARLY)
    await changing
    begun = [run.payload for run in worker.runs]
    await clock.advance("3m")

    assert not returned_early
    assert begun == ["old"]
    assert [run.payload for run in worker.runs] == (["old", "new", "new", "new"] if how == "edit" else ["old"])


@pytest.mark.usefixtures("foresighted")
async def test_a_change_waits_for_the_run_although_its_time_is_past(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """The event loop may be busy with others when it should start."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)
    clock.set(NOON + MINUTE + EARLY)

    pausing = asyncio.create_task(scheduler.pause_job("a"))
    while (await job_of(scheduler)).state.phase is not Phase.PAUSED:
        await asyncio.sleep(0)
    returned_early = pausing.done()
    await clock.advance(EARLY)
    await pausing

    assert not returned_early
    assert worker.ids == ["a"]


class HastyClock(VirtualClock):
    """Its timers go off up to a millisecond early, as those of some event loops do."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return super().call_later(max(delay - 0.001, 0.000_001), callback)


@pytest.mark.usefixtures("foresighted")
async def test_nothing_starts_before_its_time_whatever_the_timers_do() -> None:
    clock = HastyClock(NOON)
    worker = Worker(clock)
    async with Scheduler(":memory:", clock=clock) as scheduler:
        scheduler.handler("work")(worker)
        await scheduler.add_job(Every("1m"), handler="work", id="a")
        await clock.advance("150s")

    assert worker.fired() == [1, 2]


async def test_what_is_due_at_one_moment_starts_in_order() -> None:
    """By the clock of the machine, on which nothing happens at once."""
    began: list[str] = []
    all_began = asyncio.Event()
    async with Scheduler(":memory:") as scheduler:

        @scheduler.handler("work")
        async def work(run: Run) -> None:
            began.append(run.job_id)
            if len(began) == 50:
                all_began.set()

        scheduler._engine.foresight.learn(TAKES)
        moment = datetime.now(UTC) + timedelta(seconds=0.5)
        await scheduler.add_jobs([JobSpec(At(moment), handler="work", id=f"{number:02}") for number in range(50)])
        async with asyncio.timeout(PATIENCE):
            await all_began.wait()

    assert began == [f"{number:02}" for number in range(50)]


@pytest.mark.usefixtures("foresighted")
async def test_whoever_changes_it_elsewhere_waits_as_long(
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


@pytest.mark.usefixtures("foresighted")
async def test_a_job_that_is_removed_before_its_time_does_not_start(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    await scheduler.remove_job("a")
    await clock.advance("3m")

    assert not worker.runs
    assert await scheduler.get_job("a") is None


@pytest.mark.usefixtures("foresighted")
async def test_a_stop_puts_back_what_has_not_begun(
    new_scheduler: NewScheduler, path: object, worker: Worker, clock: VirtualClock
) -> None:
    """As if it had not been claimed: it runs when there is a scheduler again."""
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


@pytest.mark.usefixtures("foresighted")
async def test_a_node_that_was_frozen_meanwhile_does_not_begin_what_others_may_have_taken_over(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    """Its lease has run out when it wakes up: the run is interrupted, and repeated by whoever finds it."""
    scheduler = new_scheduler(shared)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    (claimed,) = await scheduler.run_log()

    scheduler._engine._trusted_until = 0.0
    await clock.advance("1m")

    interrupted = await scheduler.get_run(claimed.id)
    assert interrupted is not None
    assert interrupted.outcome is Outcome.INTERRUPTED
    assert claimed.id not in [run.id for run in worker.runs]
    assert NOON + MINUTE in [run.scheduled_for for run in worker.runs]


@pytest.mark.usefixtures("foresighted")
async def test_a_trigger_shortly_before_its_time_finds_it_running(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """It is about to start, and will not start twice."""
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await shortly_before(clock)

    with pytest.raises(JobAlreadyRunningError):
        await scheduler.trigger_job("a")
    await clock.advance(EARLY)

    assert worker.fired() == [1]


@pytest.mark.usefixtures("foresighted")
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


@pytest.mark.usefixtures("foresighted")
@pytest.mark.parametrize("limits", [{"max_concurrent": 5}, {"group_limits": 5}, {"group_limits": {"g": 5}}])
async def test_where_slots_are_limited_they_are_for_what_is_due(
    limits: dict[str, object], new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Something more urgent may yet come."""
    scheduler = new_scheduler(":memory:", **limits)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await shortly_before(clock)
    before: Job = await job_of(scheduler)
    await clock.advance(EARLY)

    assert before.status is Status.IDLE
    assert worker.fired() == [1]


@pytest.mark.usefixtures("foresighted")
async def test_the_state_tells_when_something_is_due_and_not_when_it_is_claimed(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    await scheduler.add_job(At(NOON + timedelta(seconds=20)), handler="work", id="a")
    await clock.advance("1s")

    assert scheduler.state().next_wake_at == NOON + timedelta(seconds=20)
