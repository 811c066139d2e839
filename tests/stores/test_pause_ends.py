"""The ends of pauses on every store. `tests/engine/test_pauses.py` tests what a pause means for a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Every, JobSpec, MemoryStore, PostgresStore, Store
from scheduler_async.jobs.events import EventKind
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.messages import Decision
from scheduler_async.timekeeping.instants import HOUR, Micros
from tests.stores.test_conformance import NOON, STORES, store_at


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    opened = store_at(request.param, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


async def pause(store: Store, name: str, until: Micros | None) -> None:
    job = edits.add(JobSpec(Every("5m"), handler="work"), id=name, handler="work", now=NOON)
    paused = edits.pause(job, NOON, until=until).job
    await store.change([Decision("default", name, lambda _: Transition(paused, kind=EventKind.ADDED))], NOON)


async def test_a_pause_that_goes_on_is_only_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change by another process makes a scheduler look: it should not take the lock of a writer each time."""
    await pause(store, "short", NOON + HOUR)
    await pause(store, "long", NOON + 2 * HOUR)
    await pause(store, "endless", None)
    with monkeypatch.context() as patch:
        if not isinstance(store, MemoryStore):  # it has no lock
            patch.setattr(store, "_transact" if isinstance(store, PostgresStore) else "_write", None)

        assert await store.resume_paused(NOON, 5) == ([], NOON + HOUR)

    resumed, next_end = await store.resume_paused(NOON + HOUR, 5)
    assert [change.job.id for change in resumed] == ["short"]
    assert next_end == NOON + 2 * HOUR


async def test_without_pauses_no_end_is_known(store: Store) -> None:
    assert await store.resume_paused(NOON, 5) == ([], None)
