"""What a load balancer is told: that the scheduler works, or why it does not."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from scheduler_async import Every, Health, JobSpec, Manual, MemoryStore, Scheduler, SchedulerError, Store, StoreError
from scheduler_async.engine.health import Signs, judge
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.messages import ClaimTerms
from scheduler_async.stores.sqlite.work import Work
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import HOUR, MINUTE, NOON, SECOND, NewScheduler, Worker

WELL = Signs(
    status="running",
    is_alive=True,
    problem=None,
    store_problem=None,
    last_pass_age=20.0,
    overslept=-40.0,
    running_for=3600.0,
    overdue=0.0,
    has_room=True,
    unclaimed_for=600.0,
    misfire_grace=60.0,
)


class MoodyStore:
    """A store that answers when it likes to."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.is_shared = False
        self.hangs_at: set[str] = set()
        self.fails_at: set[str] = set()
        self.calls: list[str] = []
        self.answers = asyncio.Event()
        self.on_change = self.inner.on_change
        self.decisions = self.inner.decisions

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self.inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.hangs_at:
                await self.answers.wait()
            if name in self.fails_at:
                raise StoreError("The disk is on fire.")
            return await method(*args, **options)

        return call


class HurriedClock(VirtualClock):
    """A clock that does not wait for the store."""

    @contextmanager
    def working(self) -> Iterator[None]:
        yield


@pytest.fixture
def moody() -> MoodyStore:
    return MoodyStore()


# ---------------------------------------------------------------- what signs mean


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({}, None, id="all is well"),
        pytest.param({"overdue": 59.0}, None, id="late within the grace"),
        pytest.param(
            {"overdue": 90.0},
            "A job has been due for 1 minute 30 seconds and has not started, although there is room for it.",
            id="late beyond the grace",
        ),
        pytest.param({"overdue": 90.0, "has_room": False}, None, id="late for want of room"),
        pytest.param({"overdue": 90.0, "unclaimed_for": 3.0}, None, id="late, and working it off"),
        pytest.param({"overdue": 86_400.0, "running_for": 2.0}, None, id="late since before it was started"),
        pytest.param({"overdue": 1.0, "misfire_grace": 0.0}, None, id="on its way, without any grace"),
        pytest.param(
            {"overdue": 16.0, "misfire_grace": 0.0},
            "A job has been due for 16 seconds and has not started, although there is room for it.",
            id="late without any grace",
        ),
        pytest.param({"overdue": 59.0, "misfire_grace": None}, None, id="a minute late where nothing is a misfire"),
        pytest.param(
            {"overdue": 61.0, "misfire_grace": None},
            "A job has been due for 1 minute 1 second and has not started, although there is room for it.",
            id="late where nothing is a misfire",
        ),
        pytest.param({"overslept": 14.0}, None, id="a busy machine"),
        pytest.param(
            {"overslept": 120.0},
            "A pass has been overdue for 2 minutes.",
            id="stuck",
        ),
        pytest.param({"overslept": float("-inf")}, None, id="nothing to look for"),
        pytest.param({"store_problem": "The disk is on fire."}, "The disk is on fire.", id="no store"),
        pytest.param({"problem": "The disk is full."}, "The disk is full.", id="a problem it knows of"),
        pytest.param(
            {"is_alive": False},
            "A task of the scheduler was cancelled or has crashed. Call stop(), then start().",
            id="dead",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(changes: dict[str, Any], problem: str | None) -> None:
    health = judge(replace(WELL, **changes))

    assert health.problem == problem
    assert health.status == ("ok" if problem is None else "failing")
    assert health.ok is (problem is None)


@pytest.mark.parametrize("status", ["stopped", "stopping"])
def test_a_scheduler_that_does_not_run_has_no_other_problem(status: str) -> None:
    health = judge(replace(WELL, status=status, is_alive=False, store_problem="The store is not open."))

    assert (health.status, health.ok, health.store_reachable) == ("stopped", False, False)
    assert health.problem == f"The scheduler is {status}."


def test_it_has_a_json_form() -> None:
    health = judge(replace(WELL, last_pass_age=1.23456, overdue=-3600.0))

    assert json.loads(json.dumps(health.to_json())) == {
        "ok": True,
        "status": "ok",
        "last_pass_age": 1.235,
        "lateness": 0.0,
        "store_reachable": True,
        "problem": None,
    }


# ---------------------------------------------------------------- a scheduler and its signs


async def test_a_scheduler_with_nothing_to_do_is_well_at_any_time(scheduler: Scheduler, clock: VirtualClock) -> None:
    await clock.advance("0s")
    first = await scheduler.health()
    await clock.advance("10h")
    second = await scheduler.health()

    assert first == Health(status="ok", last_pass_age=0.0, lateness=0.0, store_reachable=True, problem=None)
    assert second.ok


async def test_a_scheduler_at_work_is_well(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    for _ in range(5):
        await clock.advance("25s")
        health = await scheduler.health()

        assert health.ok
        assert health.lateness == 0.0
        assert health.last_pass_age == ((clock.now() - NOON) / SECOND) % 60


async def test_a_scheduler_is_stopped_before_its_start_and_after_its_end(idle: Scheduler) -> None:
    before = await idle.health()
    await idle.start()
    await idle.stop()
    after = await idle.health()

    assert (before.status, before.problem) == (after.status, after.problem) == ("stopped", "The scheduler is stopped.")
    assert before.last_pass_age is None


async def test_asking_a_stopped_scheduler_does_not_open_its_store(path: Path) -> None:
    """A probe that comes last of all must not make a file, nor hold it open while the process ends."""
    assert not (await Scheduler(path).health()).store_reachable

    assert not path.exists()


async def test_a_scheduler_without_its_loop_reaches_its_store(idle: Scheduler) -> None:
    await idle.add_job(Every("1m"), handler="work")

    health = await idle.health()

    assert (health.status, health.store_reachable) == ("stopped", True)


async def test_a_stopping_scheduler_is_not_well(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.trigger_job("a")

    await scheduler.stop(wait=False)
    health = await scheduler.health()
    worker.go.set()

    assert (health.status, health.problem) == ("stopped", "The scheduler is stopping.")


async def test_jobs_that_wait_for_room_are_late_and_no_sign_of_illness(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, store: str
) -> None:
    worker.blocks = True
    scheduler = new_scheduler(store, max_concurrent=1, stuck_after=None)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    await scheduler.add_job(Every("1m"), handler="work", id="b")

    await clock.advance("11m")
    health = await scheduler.health()

    assert health.ok
    assert health.lateness == 600.0


async def test_jobs_that_wait_for_their_group_or_handler_are_not_late(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, store: str
) -> None:
    worker.blocks = True
    scheduler = new_scheduler(store, group_limits=1, stuck_after=None)
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a", group="g")
    await scheduler.add_job(Every("1m"), handler="work", id="b", group="g")
    await scheduler.add_job(Every("1m"), handler="unknown", id="c")

    await clock.advance("11m")
    health = await scheduler.health()

    assert health.ok
    assert health.lateness == 0.0


async def test_a_loop_that_was_cancelled_is_told_of(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Somebody may cancel all tasks there are: what goes on serving must not look well."""
    for task in asyncio.all_tasks():
        if task.get_name() == "scheduler_async loop":
            task.cancel()
    await clock.advance("0s")

    health = await scheduler.health()

    assert health.status == "failing"
    assert health.problem == "A task of the scheduler was cancelled or has crashed. Call stop(), then start()."


async def test_a_pass_that_hangs_is_told_of(moody: MoodyStore) -> None:
    clock = HurriedClock(NOON)
    scheduler = Scheduler(cast(Store, moody), clock=clock)
    scheduler.handler("work")(Worker(clock))
    async with scheduler:
        await scheduler.add_job(Every("1m"), handler="work", id="a")
        while scheduler.state().next_wake_at is None:  # until the end of its first pass
            await clock.advance("0s")
        moody.hangs_at = {"claim_due"}

        await clock.advance("1m")
        soon = await scheduler.health()
        await clock.advance("20s")
        late = await scheduler.health()
        await clock.advance("2m")
        later = await scheduler.health()
        moody.answers.set()

    assert soon.ok
    assert late.problem == "A pass has been overdue for 20 seconds."
    assert late.store_reachable
    assert (later.status, later.lateness, later.last_pass_age) == ("failing", 140.0, 140.0)


async def test_a_store_that_fails_is_told_of_until_it_works_again(moody: MoodyStore, clock: VirtualClock) -> None:
    scheduler = Scheduler(cast(Store, moody), clock=clock)
    scheduler.handler("work")(Worker(clock))
    async with scheduler:
        await scheduler.add_job(Every("1m"), handler="work", id="a")
        moody.fails_at = {"claim_due"}
        await clock.advance("61s")
        claims_fail = await scheduler.health()
        moody.fails_at = {"claim_due", "earliest_due"}
        all_fails = await scheduler.health()
        moody.fails_at = set()
        await clock.advance("61s")
        works_again = await scheduler.health()

    assert (claims_fail.status, claims_fail.store_reachable, claims_fail.lateness) == ("failing", True, 1.0)
    assert (all_fails.status, all_fails.store_reachable, all_fails.lateness) == ("failing", False, 1.0)
    assert claims_fail.problem == all_fails.problem == "The disk is on fire."
    assert works_again.ok


async def test_a_store_that_does_not_answer_is_asked_once_and_not_waited_for(moody: MoodyStore) -> None:
    """Probes come every few seconds; they must not pile up behind a store that hangs."""
    async with Scheduler(cast(Store, moody), clock=HurriedClock(NOON)) as scheduler:
        moody.hangs_at = {"earliest_due"}
        answers = [await scheduler.health(timeout=0.01) for _ in range(3)]
        asked = moody.calls.count("earliest_due")
        moody.answers.set()
        afterwards = await scheduler.health()

    assert {answer.problem for answer in answers} == {"The store did not answer within 0.01 s."}
    assert {answer.store_reachable for answer in answers} == {False}
    assert asked == 1
    assert afterwards.ok


async def test_probes_that_meet_the_end_are_answered(scheduler: Scheduler, worker: Worker) -> None:
    answers: list[Health] = []
    stopping = asyncio.create_task(scheduler.stop())
    while not stopping.done():
        answers += await asyncio.gather(scheduler.health(), scheduler.health())
    answers.append(await scheduler.health())

    assert {answer.status for answer in answers} <= {"ok", "stopped"}
    assert answers[-1].status == "stopped"


async def test_a_probe_that_is_cancelled_with_all_else_is_answered(moody: MoodyStore) -> None:
    async with Scheduler(cast(Store, moody), clock=HurriedClock(NOON)) as scheduler:
        moody.hangs_at = {"earliest_due"}
        asking = asyncio.create_task(scheduler.health())
        while "earliest_due" not in moody.calls:
            await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name() == "scheduler_async checkup":
                task.cancel()
        moody.answers.set()
        health = await asking

    assert health.problem == "The question to the store was cancelled."


async def test_a_file_that_was_deleted_is_not_reachable(new_scheduler: NewScheduler, path: Path) -> None:
    scheduler = new_scheduler(path)
    await scheduler.start()

    path.unlink()
    health = await scheduler.health()

    assert not health.store_reachable
    assert health.problem is not None
    assert "was deleted or replaced" in health.problem


async def test_a_clock_that_cannot_be_believed_is_told_of(scheduler: Scheduler, clock: VirtualClock) -> None:
    await clock.advance("1m")
    clock.set("2031-01-01T00:00:00Z")
    await clock.advance("1s")

    health = await scheduler.health()

    assert health.status == "failing"
    assert health.problem is not None
    assert health.problem.startswith("No run starts, since the wall clock")


async def test_a_probe_from_another_event_loop_is_refused(scheduler: Scheduler) -> None:
    def ask() -> Health:
        return asyncio.run(scheduler.health())

    with pytest.raises(SchedulerError, match="in use in another event loop"):
        await asyncio.to_thread(ask)


async def test_to_ask_costs_the_same_however_many_jobs_there_are(path: Path) -> None:
    """It is asked every few seconds: counted are the steps that SQLite takes, of which there are no slow ones."""

    async def steps_with(count: int) -> int:
        scheduler = Scheduler(path, clock=VirtualClock(NOON))
        specs = [JobSpec(Every("1m"), handler="work", group=f"g{number % 2}") for number in range(count)]
        await scheduler.add_jobs(specs)
        await scheduler.stop()
        terms = ClaimTerms(node=0, limit=1, slots=None, handlers=["work"], group_limit=1, rules=Rules())
        steps = 0

        def count_step() -> None:
            nonlocal steps
            steps += 1

        with closing(sqlite3.connect(path)) as db:
            db.set_progress_handler(count_step, 1)
            assert Work().earliest_due(db, to_micros(NOON + HOUR), terms) == to_micros(NOON + MINUTE)
        return steps

    few, many = await steps_with(200), await steps_with(2_000)

    assert many == few
