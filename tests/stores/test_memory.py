"""The store in memory: what its tables and indexes do. `test_conformance.py` tests what it promises."""

# ruff: noqa: A001 - id is the public name of an id

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    At,
    Every,
    Job,
    JobSpec,
    Manual,
    MemoryStore,
    Outcome,
    Retry,
    Scheduler,
    SQLiteStore,
    StoreError,
)
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import EndedRun, Ending
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.memory.timetable import SLACK, Timetable
from scheduler_async.stores.messages import ChangeFilter, ClaimTerms, Decision
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, Micros
from tests.stores.test_conformance import NOON, adding, identity

RULES = Rules()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    opened = MemoryStore()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def node(store: MemoryStore) -> int:
    return await store.join(identity("first"), NOON)


async def add(store: MemoryStore, *ids: str, schedule: Any = None, **fields: Any) -> None:
    await store.change([adding(id, schedule or Every("1m", immediately=True), **fields) for id in ids], NOON)


async def claimed(store: MemoryStore, node: int, now: Micros = NOON, **terms: Any) -> list[str]:
    wanted = ClaimTerms(**{"node": node, "limit": 100, "slots": None, "handlers": None, "rules": RULES, **terms})
    return [run.job.id for run in (await store.claim_due(now, wanted)).runs]


# ---------------------------------------------------------------- the store


async def test_it_keeps_its_jobs_when_it_is_closed(store: MemoryStore) -> None:
    """A program that stops its scheduler and starts it again goes on with what it had."""
    await add(store, "a")

    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.get("default", "a")
    await store.open()

    assert await store.get("default", "a") is not None


async def test_a_scheduler_that_is_started_again_goes_on(clock: VirtualClock) -> None:
    scheduler = Scheduler(":memory:", clock=clock)
    calls: list[int] = []
    scheduler.handler("work")(lambda: calls.append(1))
    async with scheduler:
        await scheduler.add_job(Every("1m"), handler="work", id="a")
        await clock.advance("2m")
    async with scheduler:
        await clock.advance("1m")

        assert len(calls) == 3
        assert len(await scheduler.run_log("a")) == 3


async def test_an_operation_does_not_wait(store: MemoryStore, node: int) -> None:
    """So that a caller that is cancelled leaves nothing half done: there is no moment for that."""
    await add(store, "a")
    others: list[int] = []
    asyncio.get_running_loop().call_soon(others.append, 1)

    assert await claimed(store, node) == ["a"]
    assert not others


async def test_an_error_halfway_through_changes_nothing(store: MemoryStore) -> None:
    """Neither what was decided before it, nor the numbers that new jobs got."""
    await add(store, "old", schedule=Manual())

    def pause(job: Job | None) -> Transition:
        assert job is not None
        return edits.pause(job, NOON)

    def fail(_: Job | None) -> Transition:
        raise ZeroDivisionError

    changes = [adding("new"), Decision("default", "old", pause), Decision("default", "worse", fail)]
    with pytest.raises(ZeroDivisionError):
        await store.change(changes, NOON)

    old = await store.get("default", "old")
    assert old is not None
    assert old.state.phase is Phase.ACTIVE
    assert await store.get("default", "new") is None
    assert [change.action for change in await store.list_changes(ChangeFilter())] == ["add"]
    await add(store, "next")
    assert (await store.list_changes(ChangeFilter()))[0].job_id == "next"


async def test_a_claim_that_fails_leaves_its_jobs_due(
    store: MemoryStore, node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(store, "a", "b")
    with monkeypatch.context() as patch:
        patch.setattr("scheduler_async.stores.memory.claims.ClaimPlan.claim", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await claimed(store, node)

    assert await claimed(store, node) == ["a", "b"]


SPECS = {
    "plain": JobSpec(Every("5m"), handler="h"),
    "all": JobSpec(
        At("2026-06-15T09:00:00Z"),
        handler="h",
        payload={"to": ["ops", None]},
        metadata={"team": "blue"},
        user_id="ann",
        name="Ünïcode",
        priority="high",
        group="mail",
        misfire="skip",
        retry=Retry.budget(3, "2h"),
        timeout="90s",
        on_interrupt="skip",
        max_instances=3,
        overlap="queue",
        misfire_grace="0s",
        catch_up_window="2d",
        max_runs=7,
    ),
    "disabled": JobSpec(Manual(), handler="h", enabled=False),
    "large": JobSpec(Manual(), handler="h", payload="x" * 100_000),
}


def _always(change: Transition, _: Job | None) -> Transition:
    return change


@pytest.mark.parametrize("name", SPECS)
async def test_it_tells_of_a_new_job_what_a_database_tells(store: MemoryStore, tmp_path: Any, name: str) -> None:
    """It writes the change in Python, and only when it is read. A database makes it from the columns of the job."""
    file = SQLiteStore(tmp_path / "jobs.db")
    await file.open()
    for one in (store, file):
        added = Transition(edits.add(SPECS[name], id="a", handler="h", now=NOON), kind=EventKind.ADDED)
        await one.change([Decision("default", "a", partial(_always, added))], NOON)

    (ours,), (theirs,) = await store.list_changes(ChangeFilter()), await file.list_changes(ChangeFilter())
    await file.close()

    assert ours.after == theirs.after


# ---------------------------------------------------------------- jobs that are due


async def test_a_job_waits_for_its_handler_without_being_looked_at_again(store: MemoryStore, node: int) -> None:
    """However many such jobs there are, a claim does not read them."""
    await add(store, "a", "b", handler="absent")
    await add(store, "c", handler="here")

    assert await claimed(store, node, handlers=["here"]) == ["c"]
    assert store._work._due._later.first is None
    assert await claimed(store, node, handlers=["here", "absent"]) == ["a", "b"]


async def test_a_job_that_changes_while_it_waits_is_queued_anew(store: MemoryStore, node: int) -> None:
    """Its place in the queue is as of its first claim: it counts no more."""
    limits: dict[str, Any] = {"group_limits": {"g": 1}}
    await add(store, "a", "b", "c", group="g")
    assert await claimed(store, node, **limits) == ["a"]

    await store.remove("default", "b", NOON)

    assert await claimed(store, node, **limits) == []
    assert await claimed(store, node) == ["c"]


async def test_what_was_claimed_ahead_and_did_not_fit_waits_for_its_time(store: MemoryStore, node: int) -> None:
    await add(store, "now")
    await add(store, "soon", schedule=At("2026-01-05T12:00:01Z"))

    assert await claimed(store, node, limit=1, ahead=2 * SECOND) == ["now"]
    assert await claimed(store, node) == []
    assert await claimed(store, node, NOON + SECOND) == ["soon"]


async def test_an_idle_store_looks_at_no_job(store: MemoryStore, node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass costs what is due, and not what is stored."""
    await add(store, *(f"{n}" for n in range(1_000)), schedule=Every("1h"))
    looked_at: list[int] = []
    monkeypatch.setattr(store._work._due, "_job_of", looked_at.append)

    assert await claimed(store, node) == []
    assert not looked_at


# ---------------------------------------------------------------- runs


async def test_rows_of_one_occurrence_are_found_when_others_are_purged(store: MemoryStore, node: int) -> None:
    """Attempts are chained by number, and a purge takes the oldest out of the chain."""
    await add(store, "a", retry=Retry.in_window(9, delay="1s"))
    terms = ClaimTerms(node=node, limit=100, slots=None, handlers=None, rules=RULES)
    for second in range(5):
        (run,) = (await store.claim_due(NOON + second * SECOND, terms)).runs
        ending = Ending(outcome=Outcome.ERROR, error="no")
        await store.finish([EndedRun(run, ending, NOON + second * SECOND, NOON + second * SECOND)], RULES)

    (uid,) = store._work._tables.jobs
    await store.purge_runs([uid], 2, NOON + HOUR)

    record = store._work._tables.jobs[uid]
    assert [run.attempt for run in store._work._attempts_at(record, NOON)] == [5, 4]
    assert record.attempts == {NOON: record.runs[-1]}
    await store.purge_runs([uid], 0, NOON + HOUR)
    assert record.attempts == {}
    assert len(record.runs) == len(store._work._tables.runs) == 0


async def test_nothing_is_left_of_a_job_that_was_purged(store: MemoryStore, node: int) -> None:
    """Memory is all that there is: what is left would grow with every job that ever was."""
    for minute in range(3):
        await store.change([adding("a", group="g", now=NOON + minute * MINUTE)], NOON + minute * MINUTE)
        await claimed(store, node, NOON + minute * MINUTE, limit=100)
        await store.remove("default", "a", NOON + minute * MINUTE)
    await store.purge_removed(NOON + HOUR, 10)

    tables = store._work._tables
    for table in (tables.jobs, tables.named, tables.removed, tables.runs, tables.owners, tables.changes):
        assert not table
    assert store._work._due.next is None


# ---------------------------------------------------------------- numbers by time


MOVES = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 20)), max_size=40)


@given(moves=MOVES, until=st.integers(0, 20), most=st.none() | st.integers(0, 5))
def test_a_timetable_has_what_a_dictionary_has(
    moves: list[tuple[int, int | None]], until: int, most: int | None
) -> None:
    table, model = Timetable(), dict[int, int]()
    for number, at in moves:
        table.put(number, at)
        model.pop(number, None)
        if at is not None:
            model[number] = at

    first = min(model.values(), default=None)
    assert table.first == first
    assert table.count_at(first) == sum(at == first for at in model.values())
    assert sorted(table.until(until)) == sorted(number for number, at in model.items() if at <= until)
    taken = table.take(until, most)
    assert [model[number] for number in taken] == sorted(at for at in model.values() if at <= until)[:most]
    assert sorted(table.numbers()) == sorted(model.keys() - set(taken))


def test_a_timetable_forgets_the_times_that_nothing_needs() -> None:
    """A job that is edited again and again leaves a time behind with each edit."""
    table = Timetable()
    for at in range(10_000):
        table.put(1, at)

    assert len(table._heap) <= 2 + SLACK
    assert table.first == 9_999
