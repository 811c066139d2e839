"""Claims of a few jobs on PostgreSQL, in two statements: what happens between these."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import PostgresStore, StoreError, StoreOutdatedError
from scheduler_async.rules import edits
from scheduler_async.stores.messages import Claims, NodeLost
from scheduler_async.stores.postgres import store as postgres
from scheduler_async.stores.postgres.claims import SOON
from scheduler_async.stores.postgres.lone_claims import CLAIM_SEEN, FEW, LOOK
from scheduler_async.timekeeping.instants import MINUTE
from tests.postgres_server import url_of_schema, url_of_server
from tests.stores.test_conformance import (
    NOON,
    RULES,
    add,
    adding,
    change_state,
    claim,
    claim_only,
    claimed_ids,
    edit,
    finish,
    identity,
)

pytestmark = [pytest.mark.once, pytest.mark.timeout(60)]

Meanwhile = Callable[[], Awaitable[object]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return url_of_schema(str(tmp_path))


@pytest.fixture
async def admin(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url_of_server(), server_settings={"search_path": url.rpartition("=")[2]})
    yield connection
    await connection.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the database can tell."""
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


def after_look(store: PostgresStore, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen after the next look of *store* at what is due."""
    look_for_due = store._work.look_for_due

    async def look(*args: Any) -> Any:
        look = await look_for_due(*args)
        assert look is not None
        monkeypatch.undo()
        await meanwhile()
        return look

    monkeypatch.setattr(store._work, "look_for_due", look)


@pytest.fixture
def statements(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the connection is asked from now on."""
    asked: list[str] = []
    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        plain = getattr(asyncpg.Connection, name)

        async def ask(db: Any, query: str, *args: Any, plain: Any = plain) -> Any:
            asked.append(query)
            return await plain(db, query, *args)

        monkeypatch.setattr(asyncpg.Connection, name, ask)
    return asked


async def test_a_lone_run_takes_three_statements(store: PostgresStore, statements: list[str]) -> None:
    node = await store.join(identity("node"), NOON)
    await add(store, "a")
    await finish(store, await claim_only(store, node))  # from now on, its description is known
    statements.clear()

    run = await claim_only(store, node, NOON + MINUTE)
    await finish(store, run, at=NOON + MINUTE)

    assert len(statements) == 3


async def test_nothing_due_takes_one_statement(store: PostgresStore, statements: list[str]) -> None:
    node = await store.join(identity("node"), NOON)
    await add(store, "a", state={"next_run_at": NOON + MINUTE})
    statements.clear()

    claims = await claim(store, node)

    assert claims == Claims(next_due=NOON + MINUTE, next_count=1)
    assert len(statements) == 1


async def test_what_another_node_has_claimed_meanwhile_is_left_to_it(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, rival = await store.join(identity("node"), NOON), await other.join(identity("rival"), NOON)
    for name in ("a", "b"):
        await add(store, name)

    theirs: list[Claims] = []

    async def claim_one_elsewhere() -> None:
        theirs.append(await claim(other, rival, limit=1))

    after_look(store, claim_one_elsewhere, monkeypatch)
    ours = await claim(store, node)

    assert sorted(claimed_ids(ours) + claimed_ids(theirs[0])) == ["a", "b"]
    assert ours.next_due == NOON + SOON
    assert len(await store.held(node)) == len(await store.held(rival)) == 1


@pytest.mark.parametrize(
    ("change", "left"),
    [
        pytest.param(lambda store: change_state(store, "a", edits.pause), [], id="paused"),
        pytest.param(lambda store: edit(store, "a", payload={"new": True}), [{"new": True}], id="edited"),
        pytest.param(lambda store: store.remove("default", "a", NOON), [], id="removed"),
    ],
)
async def test_what_was_changed_meanwhile_is_decided_anew(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, change: Any, left: list[object]
) -> None:
    node = await store.join(identity("node"), NOON)
    await add(store, "a")
    await add(store, "b")

    after_look(store, lambda: change(other), monkeypatch)
    claims = await claim(store, node)

    assert claimed_ids(claims) == ["b"]
    assert [run.job.payload for run in (await claim(store, node, NOON + MINUTE)).runs] == left


async def test_a_node_that_is_gone_meanwhile_claims_nothing(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await store.join(identity("node"), NOON)
    await add(store, "a")

    after_look(store, lambda: other.leave(node), monkeypatch)
    with pytest.raises(NodeLost):
        await claim(store, node)

    job = await store.get("default", "a")
    assert job is not None
    assert job.state.activity == "idle"


async def test_an_occurrence_that_ran_before_the_clock_went_back_does_not_run_again(
    store: PostgresStore, admin: Any
) -> None:
    node = await store.join(identity("node"), NOON)
    job = await add(store, "a")
    await finish(store, await claim_only(store, node))
    await admin.execute("UPDATE state SET next_run_at = $1 WHERE uid = $2", NOON, job.uid)

    claims = await claim(store, node, NOON + 2)

    assert not claims.runs
    assert await admin.fetchval("SELECT count(*) FROM run") == 1
    assert claims.is_full


async def test_a_newer_version_that_comes_meanwhile_stops_the_claim(
    store: PostgresStore, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await store.join(identity("node"), NOON)
    await add(store, "a")

    after_look(store, lambda: admin.execute("UPDATE version SET number = number + 1"), monkeypatch)
    with pytest.raises(StoreOutdatedError):
        await claim(store, node)

    assert await admin.fetchval("SELECT count(*) FROM run") == 0


async def test_a_lost_connection_does_not_repeat_a_claim(
    store: PostgresStore, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim may have been made, and nothing would know of it: the engine settles that."""
    node = await store.join(identity("node"), NOON)
    await add(store, "a")
    claim_seen = store._work.claim_seen
    times = 0

    async def claim_and_lose(db: Any, *args: Any) -> Any:
        nonlocal times
        times += 1
        await claim_seen(db, *args)
        db.terminate()
        raise asyncpg.ConnectionDoesNotExistError("lost")

    monkeypatch.setattr(store._work, "claim_seen", claim_and_lose)
    with pytest.raises(StoreError):
        await claim(store, node)

    assert times == 1
    (lost,) = await store.interrupt_unknown(node, set(), NOON, RULES)
    assert lost[0].job.id == "a"


async def test_of_many_jobs_each_node_locks_some(store: PostgresStore, statements: list[str]) -> None:
    """Nodes that all look at the same jobs would take them from each other."""
    node = await store.join(identity("node"), NOON)
    await store.change([adding(f"{number}") for number in range(3 * FEW)], NOON)
    statements.clear()

    taken = [len((await claim(store, node, limit=FEW + 1)).runs) for _ in range(4)]

    assert taken == [FEW + 1, FEW + 1, FEW - 2, 0]
    assert CLAIM_SEEN not in statements[:-2]
    assert statements.count(LOOK) <= 3, "after a crowd, the next claim does not look first"


async def test_nodes_that_claim_few_jobs_at_once_claim_each_once(store: PostgresStore, url: str) -> None:
    """Eight nodes look at the same moment, again and again, and others edit."""
    stores = [PostgresStore(url) for _ in range(8)]
    for each in stores:
        await each.open()
    nodes = [await each.join(identity(f"node-{number}"), NOON) for number, each in enumerate(stores)]
    claimed: list[str] = []
    for round_ in range(6):
        names = [f"{round_}-{number}" for number in range(FEW)]
        await store.change([adding(name) for name in names], NOON)
        pausing = asyncio.create_task(change_state(store, names[0], edits.pause))
        found = await asyncio.gather(*(claim(each, node, NOON) for each, node in zip(stores, nodes, strict=True)))
        await pausing
        claimed += [name for claims in found for name in claimed_ids(claims)]
        claimed += claimed_ids(await claim(store, nodes[0], NOON + SOON))
    for each in stores:
        await each.close()

    assert len(claimed) == len(set(claimed))
    left = {f"{round_}-{number}" for round_ in range(6) for number in range(FEW)} - set(claimed)
    assert left <= {f"{round_}-0" for round_ in range(6)}, "only what was paused is left"


@pytest.mark.parametrize("statement", [LOOK, CLAIM_SEEN], ids=["look", "claim"])
async def test_it_looks_at_no_more_than_it_must(store: PostgresStore, admin: Any, statement: str) -> None:
    """Whatever the planner believes of tables that have grown since it counted them."""
    for name, value in postgres.RUN_PLANS.items():
        await admin.execute(f"SET {name} = {value}")
    count = max(int(number) for number in re.findall(r"\$(\d+)", statement))

    await admin.execute(f"PREPARE asking AS {statement}")
    plan = "\n".join(line for (line,) in await admin.fetch(f"EXPLAIN EXECUTE asking ({', '.join(['NULL'] * count)})"))

    assert "Seq Scan on state" not in plan
    assert "Seq Scan on run" not in plan
    assert "Index Scan using state_pkey on state" in plan
