"""The number of jobs of a namespace: counted in the transaction that adds, on every store, and never by a scan."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from scheduler_async import QuotaError, SQLiteStore, Store
from scheduler_async.rules.quotas import Quota
from scheduler_async.stores.messages import JobFilter
from scheduler_async.stores.postgres import jobs as postgres_jobs
from scheduler_async.stores.sqlite import jobs as sqlite_jobs
from tests.postgres_server import url_of_schema, url_of_server
from tests.stores.test_conformance import NOON, adding, editing, store_at

pytestmark = pytest.mark.once  # the version of Python does not matter

TWO = Quota(namespace="mine", max_jobs=2)


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def names(store: Store) -> list[str]:
    return [job.id for job in await store.list_jobs(JobFilter(namespace="mine"))]


async def test_all_are_added_or_none(kind: str, tmp_path: Path) -> None:
    store = store_at(kind, tmp_path)
    await store.open()
    await store.change([adding("edited")], NOON)

    with pytest.raises(QuotaError):
        await store.change(
            [editing("edited", name="New"), *(adding(name, namespace="mine") for name in "abc")], NOON, quota=TWO
        )
    edited = await store.get("default", "edited")
    found = [await names(store)]
    await store.change([adding(name, namespace="mine") for name in "ab"], NOON, quota=TWO)
    with pytest.raises(QuotaError):
        await store.change([adding("c", namespace="mine")], NOON, quota=TWO)
    found.append(await names(store))
    await store.remove("mine", "a", NOON)
    await store.change([adding("c", namespace="mine")], NOON, quota=TWO)
    found.append(await names(store))
    await store.close()

    assert edited is not None
    assert edited.name is None
    assert found == [[], ["a", "b"], ["b", "c"]]


@pytest.mark.parametrize("kind", ["file", pytest.param("postgres", marks=pytest.mark.once)])
async def test_two_stores_never_exceed_it_together(kind: str, tmp_path: Path) -> None:
    stores = [store_at(kind, tmp_path) for _ in range(4)]
    for store in stores:
        await store.open()

    tries = [
        store.change([adding(f"{n} {k}", namespace="mine")], NOON, quota=TWO)
        for n in range(5)
        for k, store in enumerate(stores)
    ]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    found = await names(stores[0])
    for store in stores:
        await store.close()

    assert len(found) == 2
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [QuotaError] * 18


async def test_the_count_uses_an_index_of_sqlite(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "jobs.db")
    await store.open()
    await store.close()

    with sqlite3.connect(tmp_path / "jobs.db") as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sqlite_jobs.COUNT_JOBS}", ("mine", 2))]

    assert any("SEARCH job USING INDEX job_name (namespace=?)" in step for step in plan), plan


@pytest.mark.once
async def test_the_count_uses_an_index_of_postgresql(tmp_path: Path) -> None:
    store = store_at("postgres", tmp_path)
    await store.open()
    await store.change([adding(f"{n}", namespace="mine") for n in range(500)], NOON)
    await store.close()

    schema = url_of_schema(str(tmp_path)).partition("schema=")[2]
    admin = await asyncpg.connect(url_of_server(), server_settings={"search_path": schema})
    await admin.execute("ANALYZE job")
    query = postgres_jobs.COUNT_JOBS.replace("$1", "'other'").replace("$2", "2")
    plan = "\n".join(line for (line,) in await admin.fetch(f"EXPLAIN {query}"))
    await admin.close()

    assert "job_name" in plan
    assert "Seq Scan" not in plan
