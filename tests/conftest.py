"""Fixtures for tests of the whole scheduler, and the profiles of hypothesis."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from scheduler_async import Scheduler
from scheduler_async.engine import engine
from scheduler_async.testing import VirtualClock
from tests.cast import NOON, PATIENCE, NewScheduler, Worker
from tests.postgres_server import end_server, tidy_up, url_of_schema

collect_ignore = ["on_uvloop"] if sys.platform == "win32" else []  # there is none

settings.register_profile(
    "default",
    max_examples=100,  # 500 would double the time of tests/rules; the tests of codecs ask for that many
    deadline=None,  # shared machines stall; slowness is measured where it matters
    suppress_health_check=[HealthCheck.too_slow],
)
# The same examples in each run: a check must not fail by chance. The deep profile searches at random.
settings.register_profile("steady", settings.get_profile("default"), derandomize=True)
# Where the coverage is measured, which takes as long again. Another interpreter tries all examples.
settings.register_profile("few", settings.get_profile("steady"), max_examples=20)
settings.register_profile("deep", settings.get_profile("default"), max_examples=10_000)  # `nox -s examples`
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


# A shell without job control starts programs in the background deaf to SIGINT, and so are all that they start: the
# tests that interrupt programs would fail there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These take many seconds each, so they start first: at the end, no core waits for the last of them.
LONGEST = (
    *("tests/engine/test_state_machine.py", "tests/stores/test_torture.py", "tests/stores/test_row_fuzz.py"),
    *("tests/engine/test_failing_store.py", "tests/test_documents.py", "tests/test_recipes.py"),
    *("tests/rules/test_random_stories.py", "tests/test_servers.py", "tests/engine/test_processes.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest tests to the front. The others keep their random order."""
    ranks = {file: rank for rank, file in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


def pytest_collection_finish() -> None:
    """Hide the nine thousand tests from the garbage collector, which would visit them again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    tidy_up()
    # Not at exit: xdist kills a worker that takes more than 10 seconds to exit, and its coverage is lost. A server
    # with thousands of schemas can take that long to delete.
    end_server()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, path: Path) -> str:
    return ":memory:" if request.param == "memory" else str(path)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.once)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that several processes can open."""
    return str(tmp_path / "jobs.db") if request.param == "file" else url_of_schema(str(tmp_path))


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
def every_store(request: pytest.FixtureRequest, path: Path) -> str:
    if request.param == "postgres":
        return url_of_schema(str(path))
    return ":memory:" if request.param == "memory" else str(path)


@pytest.fixture
def worker(clock: VirtualClock) -> Worker:
    return Worker(clock)


@pytest.fixture
async def new_scheduler(clock: VirtualClock, worker: Worker) -> AsyncIterator[NewScheduler]:
    """Makes schedulers that know the handler "work", and stops them."""
    made: list[Scheduler] = []

    def make(store: Any, *, knows_work: bool = True, **options: Any) -> Scheduler:
        scheduler = Scheduler(store, clock=clock, **options)
        if knows_work:
            scheduler.handler("work")(worker)
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in reversed(made):
        # Waited for, not awaited: whatever hangs or is cancelled here must not spoil the fixtures of other tests.
        stopping = asyncio.create_task(scheduler.stop(timeout=PATIENCE, cancel=True))
        await asyncio.wait([stopping], timeout=PATIENCE)
        if stopping.done() and not stopping.cancelled():
            stopping.result()


@pytest.fixture
def idle(new_scheduler: NewScheduler, store: str) -> Scheduler:
    """A scheduler without its loop, on every store."""
    return new_scheduler(store)


@pytest.fixture
async def scheduler(idle: Scheduler) -> Scheduler:
    """A running scheduler, on every store."""
    await idle.start()
    return idle


@pytest.fixture
def leases_in_virtual_time(monkeypatch: pytest.MonkeyPatch, clock: VirtualClock) -> None:
    """Leases, polls and the patience with a failing store pass with the clock of the test too."""
    monkeypatch.setattr(engine, "SystemClock", lambda: clock)
