"""Pages of large stores: whatever way they are found, they show what a look at everything would show, and no more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_async import Every, JobSpec, Manual, MemoryStore, Outcome, Scheduler, Status, StoreBusyError, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.messages import ChangeFilter, JobFilter, RunFilter
from scheduler_async.stores.paging import jobs as paging_jobs
from scheduler_async.stores.paging import log as paging_log
from scheduler_async.stores.paging import questions as paging_questions
from scheduler_async.stores.protocol import Store
from scheduler_async.stores.searches import (
    FAILING,
    LATE,
    TALLY_KEYS,
    ChangeSearch,
    Found,
    JobSearch,
    Position,
    RunSearch,
    TallySearch,
    counts_of,
    page_of_changes,
    page_of_jobs,
    page_of_runs,
    position_text,
    read_position,
    tally_of,
)
from scheduler_async.stores.sqlite import pages as sqlite_pages
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import HOUR, MINUTE, NOON
from tests.postgres_server import url_of_schema

NAMESPACES = ["default", "shop", "tenant/a"]
END = to_micros(NOON + 3 * HOUR)


async def fill(store: Store | str) -> None:
    """Jobs of every kind in three namespaces, with runs of three hours."""
    clock = VirtualClock(NOON)
    scheduler = Scheduler(store, clock=clock)
    outcomes = {"fail": RuntimeError("no answer")}

    @scheduler.handler("work")
    async def work() -> None: ...

    @scheduler.handler("fail")
    async def fail() -> None:
        raise outcomes["fail"]

    specs = []
    for place, namespace in enumerate(NAMESPACES):
        for number in range(7):
            name = f"Report {number}" if number % 3 == 0 else None
            handler = "fail" if number == 3 else "work" if number % 2 else "missing"
            group = "mail" if number % 2 else None
            name_of = ["a", "report", "REPORT-b", "fails", "b/c", "x_y", "å%"][number]
            interval = Every(f"{20 + 10 * number + place}m")
            specs.append(JobSpec(interval, handler=handler, id=name_of, namespace=namespace, name=name, group=group))
        specs.append(JobSpec(Manual(), handler="work", id="by-hand", namespace=namespace))
    await scheduler.add_jobs(specs)
    for minute in range(0, 180, 15):
        clock.set(NOON + minute * MINUTE)
        await scheduler.run_pending()
    clock.set(NOON + 3 * HOUR)
    await scheduler.pause_job("a")
    await scheduler.disable_job("report", namespace="shop")
    await scheduler.trigger_job("by-hand", anywhere=True, payload=1)
    await scheduler.remove_job("x_y", namespace="tenant/a")
    await scheduler.stop()


@pytest.fixture(scope="module", params=["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store | str:
    directory = tmp_path_factory.mktemp("pages")
    places: dict[str, Callable[[], Store | str]] = {
        "memory": MemoryStore,
        "file": lambda: str(directory / "jobs.db"),
        "postgres": lambda: url_of_schema(str(directory)),
    }
    store = places[request.param]()
    asyncio.run(fill(store))
    return store


@pytest.fixture(scope="module", params=["few", "many"])
def size(request: pytest.FixtureRequest) -> Iterator[str]:
    """How large the store takes itself to be: the rows of a large one are found in other ways."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            for module in (paging_jobs, paging_log):
                patch.setattr(module, "FEW_JOBS", 0)
            for module in (paging_jobs, paging_log, paging_questions):
                patch.setattr(module, "FIRST_BLOCK", 2)
            patch.setattr(paging_jobs, "MOST_NAMES", 25)
            patch.setattr(paging_questions, "LARGEST_BLOCK", 4)
        yield request.param


def asked(store: Store | str, ask: Callable[[Store], Awaitable[Any]]) -> Any:
    """The answer of the store, in an event loop of its own."""

    async def answer() -> Any:
        scheduler = Scheduler(store, clock=VirtualClock(NOON + 3 * HOUR))
        try:
            await scheduler.nodes()  # which opens the store
            return await ask(scheduler._store)
        finally:
            await scheduler.stop()

    return asyncio.run(answer())


async def walked(ask: Callable[[Position | None], Awaitable[Found[Any]]]) -> list[Any]:
    """All items of all pages."""
    items: list[Any] = []
    after: Position | None = None
    for _ in range(200):
        page = await ask(after)
        items += page.items
        if page.next is None:
            return items
        assert page.next != after, "it goes on"
        after = page.next
    raise AssertionError("it never ends")


def names_of(jobs: list[Job]) -> list[tuple[str, str]]:
    return [(job.namespace, job.id) for job in jobs]


some_namespaces = st.none() | st.frozensets(st.sampled_from([*NAMESPACES, "unknown"]), min_size=1)


@given(
    by_name=st.booleans(),
    status=st.none() | st.sampled_from([*(one.value for one in Status), FAILING, LATE]),
    text=st.none()
    | st.sampled_from(["report", "REPORT", "a", "shop/", "shop/re", "e", "_", "%", "å", "Report 3", "no"]),
    handler=st.none() | st.sampled_from(["work", "missing", "unknown"]),
    group=st.none() | st.just("mail"),
    ids=st.none() | st.frozensets(st.sampled_from(["a", "fails", "by-hand", "unknown"])),
    namespaces=some_namespaces,
    ended=st.none() | st.booleans(),
    limit=st.integers(1, 8),
)
@settings(max_examples=min(60, settings().max_examples))
def test_pages_of_jobs_show_what_a_look_at_all_of_them_would(
    filled: Store | str, size: str, limit: int, **conditions: Any
) -> None:
    """And nothing of another namespace."""

    async def ask(store: Store) -> None:
        everything = await store.list_jobs(JobFilter())
        wanted = JobSearch(**conditions, now=END, limit=1000)
        expected = page_of_jobs(everything, wanted).items

        found = await walked(lambda after: store.jobs_page(JobSearch(**conditions, now=END, after=after, limit=limit)))

        assert names_of(found) == names_of([*expected])
        assert wanted.namespaces is None or {job.namespace for job in found} <= wanted.namespaces

    asked(filled, ask)


@given(
    id=st.none() | st.sampled_from(["a", "fails", "x_y", "unknown"]),
    outcome=st.none() | st.sampled_from(list(Outcome)),
    trigger=st.none() | st.sampled_from(list(Trigger)),
    namespaces=some_namespaces,
    since=st.none() | st.integers(-1, 200),
    until=st.none() | st.integers(-1, 200),
    limit=st.integers(1, 20),
)
@settings(max_examples=min(40, settings().max_examples))
def test_pages_of_runs_show_what_a_look_at_all_of_them_would(
    filled: Store | str, size: str, limit: int, since: int | None, until: int | None, **conditions: Any
) -> None:
    if conditions["id"] is not None:
        conditions["namespaces"] = frozenset(sorted(conditions["namespaces"] or {"default"})[:1])
    times: dict[str, Any] = {
        name: None if minute is None else to_micros(NOON + minute * MINUTE)
        for name, minute in (("since", since), ("until", until))
    }

    async def ask(store: Store) -> None:
        everything = await store.list_runs(RunFilter())
        wanted = RunSearch(**conditions, **times, limit=10_000)
        expected = page_of_runs(everything, wanted).items

        found: list[RunRow] = await walked(
            lambda after: store.runs_page(RunSearch(**conditions, **times, after=after, limit=limit))
        )

        assert found == [*expected]
        assert wanted.namespaces is None or {row.namespace for row in found} <= wanted.namespaces

    asked(filled, ask)


@given(namespaces=some_namespaces, limit=st.integers(1, 20))
@settings(max_examples=15)
def test_pages_of_changes_show_what_a_look_at_all_of_them_would(
    filled: Store | str, size: str, limit: int, namespaces: frozenset[str] | None
) -> None:
    async def ask(store: Store) -> None:
        everything = await store.list_changes(ChangeFilter())
        expected = page_of_changes(everything, ChangeSearch(namespaces=namespaces, limit=1000)).items

        found = await walked(
            lambda after: store.changes_page(ChangeSearch(namespaces=namespaces, after=after, limit=limit))
        )

        assert found == [*expected]

    asked(filled, ask)


@given(namespaces=some_namespaces, by=st.sampled_from([TALLY_KEYS, ("hour", "outcome"), ("namespace",), ("node",)]))
@settings(max_examples=10)
def test_the_tally_adds_up_what_it_is_not_asked_for(
    filled: Store | str, namespaces: frozenset[str] | None, by: tuple[str, ...]
) -> None:
    """A large store has a row for each hour, namespace, outcome and node: a chart needs the sums alone."""

    async def ask(store: Store) -> None:
        whole = TallySearch(since=to_micros(NOON), until=END, namespaces=namespaces, limit=1_000)
        expected: Counter[Any] = Counter()
        for row in (await store.tally(whole)).items:
            expected[tuple(getattr(row, name) for name in by)] += row.n

        found = await walked(lambda after: store.tally(replace(whole, by=by, after=after, limit=3)))

        assert {tuple(getattr(row, name) for name in by): row.n for row in found} == expected
        assert len(found) == len(expected)
        assert {getattr(row, name) for row in found for name in TALLY_KEYS if name not in by} <= {None}

    asked(filled, ask)


@given(namespaces=some_namespaces)
@settings(max_examples=10)
def test_numbers_are_those_of_the_namespaces_alone(
    filled: Store | str, size: str, namespaces: frozenset[str] | None
) -> None:
    async def ask(store: Store) -> None:
        jobs = [job for job in await store.list_jobs(JobFilter()) if namespaces is None or job.namespace in namespaces]
        rows = await store.list_runs(RunFilter())
        expected: Counter[Any] = Counter()
        for hour, namespace, outcome, _, n in tally_of(rows):
            if namespaces is None or namespace in namespaces:
                expected[hour, namespace, outcome] += n
        tally: Counter[Any] = Counter()
        whole = TallySearch(since=to_micros(NOON), until=END, namespaces=namespaces, limit=1_000)
        for hour, namespace, outcome, _, n in (await store.tally(whole)).items:
            tally[hour, namespace, outcome] += n
        left_out = sum(n for (_, _, outcome), n in expected.items() if outcome is Outcome.SKIPPED)

        counts = await store.count_jobs(namespaces, END)

        assert tally == expected
        wanted = counts_of(jobs, left_out, END)
        for name in ("running", "queued", "late", "failing", "paused", "disabled", "idle", "total", "left_out"):
            assert getattr(counts, name) == getattr(wanted, name), name
        if size == "few" or namespaces is None:  # to look for it in a large store would take too long
            assert counts.next_run_at == wanted.next_run_at

    asked(filled, ask)


def test_recent_runs_of_each_job(filled: Store | str, size: str) -> None:
    async def ask(store: Store) -> None:
        names = [("default", "fails"), ("shop", "unknown"), ("tenant/a", "x_y")]

        found = await store.recent_runs(names, 3)

        for (namespace, job_id), rows in zip(names, found, strict=True):
            assert rows == (await store.list_runs(RunFilter(namespace=namespace, id=job_id, limit=3)))[::-1]

    asked(filled, ask)


def test_a_search_that_finds_little_says_how_far_it_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (paging_jobs, paging_log):
        monkeypatch.setattr(module, "FEW_JOBS", 0)
    monkeypatch.setattr(paging_log, "FIRST_BLOCK", 4)
    monkeypatch.setattr(paging_questions, "LARGEST_BLOCK", 4)
    monkeypatch.setattr(paging_questions, "MOST_LOOKED_AT", 10)
    monkeypatch.setattr(paging_questions.chosen, "__defaults__", (10,))
    asyncio.run(fill(str(tmp_path / "jobs.db")))

    async def ask(store: Store) -> None:
        page = await store.runs_page(RunSearch(trigger=Trigger.MANUAL, after=(1000,), limit=50))

        assert page.next is not None
        assert page.looked_back_to is not None
        assert len(page.items) < 50

    asked(str(tmp_path / "jobs.db"), ask)


# ---------------------------------------------------------------- marks


async def test_a_mark_does_not_tell_of_other_namespaces(every_store: str) -> None:
    clock = VirtualClock(NOON)
    scheduler = Scheduler(every_store, clock=clock)

    @scheduler.handler("work")
    async def work() -> None: ...

    for namespace in ("mine", "other"):
        await scheduler.add_job(Every("10m"), handler="work", id="a", namespace=namespace)
    mine = await scheduler.mark(namespaces=["mine"])
    others = await scheduler.mark(namespaces=["other"])

    await scheduler.trigger_job("a", namespace="other", anywhere=True)
    await scheduler.pause_job("a", namespace="other")

    assert await scheduler.mark(namespaces=["mine"]) == mine
    assert await scheduler.mark(namespaces=["other"]) != others
    clock.set(NOON + 10 * MINUTE)
    await scheduler.run_pending()
    assert await scheduler.mark(namespaces=["mine"]) != mine
    await scheduler.stop()


# ---------------------------------------------------------------- limits, damage


async def test_a_page_that_takes_too_long_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pages, "LONGEST", -1.0)
    monkeypatch.setattr(sqlite_pages, "STEPS", 1)
    scheduler = Scheduler(tmp_path / "jobs.db")

    with pytest.raises(StoreBusyError, match="Narrow the search, or try again later"):
        await scheduler.jobs_page()

    monkeypatch.undo()
    assert (await scheduler.jobs_page()).items == ()
    await scheduler.stop()


async def test_a_damaged_row_does_not_break_a_page(tmp_path: Path) -> None:
    """It is shown as unreadable."""
    path = tmp_path / "jobs.db"
    scheduler = Scheduler(path, clock=VirtualClock(NOON))
    for name in "abc":
        await scheduler.add_job(Every("10m"), handler="work", id=name)
    await scheduler.trigger_job("a", anywhere=True)
    await scheduler.stop()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE job SET schedule = 'nonsense' WHERE id = 'b'")
        db.execute("UPDATE run SET trigger = 'nonsense'")
        db.execute("UPDATE change SET action = 'nonsense' WHERE number = 1")
        db.execute("INSERT INTO tally VALUES (0, 'default', 'nonsense', '', 1)")
        db.commit()

    jobs = (await scheduler.jobs_page()).items
    assert [job.id for job in jobs if job.unreadable] == ["b"]
    assert len(jobs) == 3
    (run,) = (await scheduler.runs_page()).items
    assert run.error is not None
    assert len((await scheduler.changes_page()).items) == 4
    assert [row.outcome for row in (await scheduler.tally(since="1970-01-01T00:00:00Z")).items] == [None]
    await scheduler.stop()
    scheduler = Scheduler(path, clock=VirtualClock(NOON + HOUR))
    assert any(concern.kind == "unreadable" for concern in await scheduler.attention())
    await scheduler.stop()


def test_positions_survive_as_text() -> None:
    for position in ((1, -5, 2**62), ("a/b", "å"), (7,)):
        text = position_text(position)
        assert text is not None
        assert read_position(text, [tuple(map(type, position))]) == position
