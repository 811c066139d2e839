"""The lives of nodes on every store: all of them, and those about a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_async import Store
from scheduler_async.stores.liveness import span_of
from scheduler_async.stores.messages import NodeLife
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros
from tests.stores.test_conformance import (
    NOON,
    RULES,
    STORES,
    add,
    claim_only,
    ended,
    identity,
    node_row,
    store_at,
)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = store_at(request.param, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


async def live(store: Store, name: str, since: Micros, until: Micros | None) -> None:
    node = await store.join(identity(name), since)
    if until is not None:
        await store.leave(node, until)


def names(lives: list[NodeLife]) -> list[str]:
    return [life.identity.name for life in lives]


async def about(store: Store, start: Micros, end: Micros) -> list[str]:
    return names(await store.lives_about(start, end))


async def test_lives_about_a_time_include_it_or_are_its_neighbours(store: Store) -> None:
    """Short lives and long ones are found differently."""
    await live(store, "first", NOON, NOON + HOUR)
    await live(store, "before", NOON, NOON + 2 * HOUR)
    await live(store, "long", NOON, NOON + 30 * DAY)
    await live(store, "short", NOON + 3 * HOUR, NOON + 4 * HOUR)
    await live(store, "also short", NOON + 3 * HOUR, NOON + 4 * HOUR)
    await live(store, "after", NOON + 5 * HOUR, NOON + 6 * HOUR)
    await live(store, "last", NOON + 6 * HOUR, NOON + 7 * HOUR)

    during = await about(store, NOON + 3 * HOUR + MINUTE, NOON + 3 * HOUR + 2 * MINUTE)
    between = await about(store, NOON + 4 * HOUR + MINUTE, NOON + 4 * HOUR + 2 * MINUTE)

    assert during == ["after", "also short", "short", "long", "before"]
    assert between[:1] == ["after"]
    assert "long" in between
    assert not {"first", "before", "last"} & set(between)


async def test_the_neighbours_of_an_outage_may_be_far_away(store: Store) -> None:
    await live(store, "before", NOON, NOON + HOUR)
    await live(store, "after", NOON + 20 * DAY, NOON + 20 * DAY + HOUR)

    assert await about(store, NOON + 10 * DAY, NOON + 10 * DAY + MINUTE) == ["after", "before"]


async def test_a_node_that_runs_is_about_every_time(store: Store) -> None:
    await live(store, "running", NOON, None)

    assert await about(store, NOON - DAY, NOON - DAY + MINUTE) == ["running"]
    assert await about(store, NOON + 9 * DAY, NOON + 9 * DAY + MINUTE) == ["running"]


async def test_a_limit_keeps_those_that_run_and_those_that_ended_last(store: Store) -> None:
    await live(store, "running", NOON, None)
    await live(store, "long", NOON, NOON + 3 * HOUR)
    await live(store, "short", NOON + HOUR, NOON + 2 * HOUR)

    assert names(await store.node_lives()) == ["short", "long", "running"]
    assert names(await store.node_lives(limit=2)) == ["long", "running"]
    assert names(await store.node_lives(NOON + 2 * HOUR + 1)) == ["long", "running"]
    assert names(await store.node_lives(limit=1)) == ["running"]


async def test_a_lost_node_lived_when_it_last_recorded_a_run(store: Store) -> None:
    """Its last heartbeat may be ten seconds older: that is not when the outage began."""
    now = SystemClock().micros()  # heartbeats have the time of the machine
    dead, other = [await store.join(identity(name), now - MINUTE) for name in ("dead", "other")]
    for node, name, at in ((dead, "a", 5 * SECOND), (other, "b", 9 * SECOND)):
        await add(store, name, now=now - MINUTE)
        run = await claim_only(store, node, now)
        await store.finish([ended(run, at=now + at)], RULES)

    (before,) = [life for life in await store.node_lives() if life.identity.name == "dead"]
    await store.recover([await node_row(store, dead, seen_by=other)], now + MINUTE, RULES)
    (after,) = [life for life in await store.node_lives() if life.identity.name == "dead"]

    silent = replace(before, age=58 * SECOND)
    assert span_of(silent, now + MINUTE).until == from_micros(now + 5 * SECOND)
    assert (after.until, after.how) == (now + 5 * SECOND, "lost")


async def test_what_others_recorded_does_not_prolong_the_life_of_a_lost_node(store: Store) -> None:
    now = SystemClock().micros()
    dead, other = [await store.join(identity(name), now - MINUTE) for name in ("dead", "other")]
    await add(store, "a", now=now - MINUTE)
    await claim_only(store, dead, now)
    await store.remove("default", "a", now + 9 * SECOND)  # which records its run as cancelled

    await store.recover([await node_row(store, dead, seen_by=other)], now + MINUTE, RULES)
    (after,) = [life for life in await store.node_lives() if life.identity.name == "dead"]

    assert after.until is not None
    assert after.until < now + 9 * SECOND
