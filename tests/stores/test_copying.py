"""Copies: what becomes of each job and why, whatever is in the stores; broken off, resumed, and beside the living."""

# ruff: noqa: A001 - id is the public name of an id

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace as changed
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import After, Every, Manual, MemoryStore, Outcome, Retry, Run, Scheduler, SQLiteStore, acting_as
from scheduler_async.jobs.description import Description
from scheduler_async.jobs.enums import Misfire, OnInterrupt, Phase, Priority, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.edits import pause
from scheduler_async.stores import copying, liveness
from scheduler_async.stores.copy_records import ChangeTold, Ruling, RunRecord, Verdict, missing_changes
from scheduler_async.stores.copying import DIED_HERE, NEWER_THERE, RUNS_HERE, RUNS_THERE, Copy, recover_dead_nodes, rule
from scheduler_async.stores.messages import NodeIdentity, RunFilter
from scheduler_async.stores.protocol import Store
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import FIRST, HOUR, LAST, MINUTE, SECOND, from_micros
from tests.stores.test_conformance import (
    HOURLY,
    NOON,
    STORES,
    add,
    all_of,
    change_state,
    claim,
    claim_only,
    copied,
    edit,
    finish,
    identity,
    ids,
    job_of,
    runs,
    store_at,
)
from tests.stores.test_sqlite import opened, sql

# ---------------------------------------------------------------- what becomes of a job


def record(uid: int = 1, revision: int = 1, updated_at: int = NOON, **state: Any) -> Job:
    return Job(
        Description(schedule=Manual()),
        JobState(**{"next_run_at": NOON + HOUR, **state}),
        "a",
        "default",
        "h",
        anchor=NOON,
        created=NOON,
        updated=updated_at,
        uid=uid,
        revision=revision,
    )


RUNNING = {"activity": Status.RUNNING, "next_run_at": None}


@pytest.mark.parametrize(
    ("source", "target", "verdict", "why"),
    [
        pytest.param({}, None, Verdict.ADDED, None, id="it is new"),
        pytest.param({}, {}, Verdict.SAME, None, id="it is the same"),
        pytest.param({}, {"uid": 7, "revision": 9}, Verdict.SAME, None, id="numbers are each store's own"),
        pytest.param({"updated_at": NOON + 1}, {}, Verdict.UPDATED, None, id="edited here"),
        pytest.param({}, {"updated_at": NOON + 1}, Verdict.KEPT, NEWER_THERE, id="edited there"),
        pytest.param({"last_run_at": NOON}, {}, Verdict.UPDATED, None, id="run here"),
        pytest.param({}, {"last_run_at": NOON}, Verdict.KEPT, NEWER_THERE, id="run there"),
        pytest.param(
            {"last_run_at": NOON + 1}, {"last_run_at": NOON}, Verdict.UPDATED, None, id="run in both, later here"
        ),
        pytest.param(
            {"last_run_at": NOON},
            {"last_run_at": NOON, "last_success_at": NOON + 1},
            Verdict.KEPT,
            NEWER_THERE,
            id="ended there",
        ),
        pytest.param(
            {"last_run_at": NOON},
            {"last_run_at": NOON, "last_error_at": NOON + 1},
            Verdict.KEPT,
            NEWER_THERE,
            id="failed there",
        ),
        pytest.param(
            {},
            {"phase": Phase.DISABLED, "disabled_at": NOON + 1},
            Verdict.KEPT,
            NEWER_THERE,
            id="disabled there by what it did",
        ),
        pytest.param(
            {"updated_at": NOON + 1}, {"last_run_at": NOON}, Verdict.KEPT, NEWER_THERE, id="edited here, run there"
        ),
        pytest.param(
            {"last_run_at": NOON}, {"updated_at": NOON + 1}, Verdict.KEPT, NEWER_THERE, id="run here, edited there"
        ),
        pytest.param({"next_run_at": NOON + 2 * HOUR}, {}, Verdict.UPDATED, None, id="left something out here"),
        pytest.param({}, {"next_run_at": NOON + 2 * HOUR}, Verdict.KEPT, NEWER_THERE, id="left something out there"),
        pytest.param({"next_run_at": None}, {}, Verdict.UPDATED, None, id="left the last one out here"),
        pytest.param({"forgotten_until": NOON}, {}, Verdict.UPDATED, None, id="rows have gone here"),
        pytest.param({}, {"forgotten_until": NOON}, Verdict.KEPT, NEWER_THERE, id="rows have gone there"),
        pytest.param(RUNNING, None, Verdict.LEFT_OUT, RUNS_HERE, id="running here, and new"),
        pytest.param(RUNNING, {}, Verdict.LEFT_OUT, RUNS_HERE, id="running here"),
        pytest.param({"updated_at": NOON + 1}, RUNNING, Verdict.KEPT, RUNS_THERE, id="running there"),
        pytest.param({}, {**RUNNING, "activity": Status.QUEUED}, Verdict.KEPT, RUNS_THERE, id="queued there"),
    ],
)
def test_a_job_is_never_replaced_by_an_older_one_nor_while_it_runs(
    source: dict[str, Any], target: dict[str, Any] | None, verdict: Verdict, why: str | None
) -> None:
    there = None if target is None else record(**target)

    ruling = rule(record(**source), there)

    assert (ruling.verdict, ruling.why) == (verdict, why)
    if verdict is Verdict.ADDED:
        assert ruling.job == replace(record(**source), uid=0)
    elif verdict is Verdict.UPDATED:
        assert there is not None
        assert ruling.job == replace(record(**source), uid=there.uid, revision=there.revision + 1)


# ---------------------------------------------------------------- whatever is in the stores

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=8)
moments = st.integers(FIRST, LAST)
few_moments = st.integers(NOON, NOON + 3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


states = st.builds(
    JobState,
    phase=st.sampled_from(Phase),
    disabled_reason=maybe(texts),
    disabled_at=maybe(moments),
    activity=st.just(Status.IDLE),
    next_run_at=maybe(moments),
    retry_of=maybe(moments),
    attempts=st.integers(0, 9),
    regular_at=maybe(moments),
    consecutive_errors=st.integers(0, 9),
    interruptions=st.integers(0, 9),
    retry_count=st.integers(0, 9),
    period_start=maybe(moments),
    last_run_at=maybe(moments),
    last_success_at=maybe(moments),
    last_error_at=maybe(moments),
    last_error=maybe(texts),
    last_exit_code=maybe(st.integers(-(2**32), 2**32)),
    last_message=maybe(texts),
    forgotten_until=maybe(moments),
)
descriptions = st.builds(
    Description,
    schedule=st.sampled_from([Manual(), Every("5m")]),
    retry=maybe(st.just(Retry.none())),
    payload_json=texts.map(json.dumps),
    metadata_json=st.dictionaries(texts, texts, max_size=2).map(json.dumps),
    user_id=maybe(names),
    name=maybe(names),
    priority=st.sampled_from(Priority),
    group=maybe(names),
    misfire=st.sampled_from(Misfire),
    timeout=maybe(st.integers(1, 2**56).map(lambda micros: timedelta(microseconds=micros))),
    on_interrupt=st.sampled_from(OnInterrupt),
)
jobs = st.lists(
    st.builds(
        Job,
        uid=st.just(0),
        namespace=st.sampled_from(["default", "tenant"]),
        id=names,
        handler=names,
        description=descriptions,
        anchor=moments,
        created=moments,
        updated=moments,
        revision=st.integers(1, 9),
        state=states,
    ),
    unique_by=lambda job: (job.namespace, job.id),
    max_size=8,
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Job], list[RunRecord]]:
    made = draw(jobs)
    if not made:
        return [], []
    rows = st.builds(
        lambda job, *rest: RunRecord(0, job.namespace, job.id, *rest),
        st.sampled_from(made),
        few_moments,
        st.integers(0, 2),
        st.sampled_from(["schedule", "retry", "manual"]),
        few_moments,
        maybe(moments),
        maybe(moments),
        st.sampled_from(["success", "error", "skipped"]),
        maybe(st.just("misfire")),
        st.integers(0, 2**40),
        maybe(texts),
        maybe(texts),
        maybe(st.integers(-9, 9)),
        maybe(names),
        maybe(texts.map(json.dumps)),
        maybe(texts.map(json.dumps)),
        maybe(st.floats(0, 1)),
        maybe(texts),
        maybe(texts),
        maybe(texts),
    )
    return made, draw(st.lists(rows, max_size=12))


@settings(max_examples=60)
@given(histories(), st.integers(1, 5), st.integers(1, 5))
def test_a_copy_of_anything_is_the_same_and_a_copy_of_that_is_nothing(
    history: tuple[list[Job], list[RunRecord]], jobs_at_once: int, runs_at_once: int
) -> None:
    async def work() -> None:
        stores = [MemoryStore() for _ in range(3)]
        first, second, third = stores
        for store in stores:
            await store.open()
        try:
            made, rows = history
            await first.write_jobs(made, lambda job, _: Ruling(Verdict.ADDED, job))
            await first.write_runs(rows)
            held = await all_of(first)
            assert held[0] == sorted(
                (replace(job, revision=0) for job in made), key=lambda job: (job.namespace, job.id)
            )

            await copied(first, second)
            await copied(second, third)
            again = await copied(first, third)

            assert await all_of(first) == await all_of(second) == await all_of(third) == held
            assert again.verdicts[Verdict.SAME] == len(made)
            assert again.runs_added == 0
        finally:
            for store in stores:
                await store.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copying, "JOBS_AT_ONCE", jobs_at_once)
        patched.setattr(copying, "RUNS_AT_ONCE", runs_at_once)
        asyncio.run(work())


# ---------------------------------------------------------------- broken off, and beside the living


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


async def test_a_copy_that_was_broken_off_is_completed_by_another(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any slice: what is there is whole, and what is not comes with the next."""
    monkeypatch.setattr(copying, "JOBS_AT_ONCE", 2)
    monkeypatch.setattr(copying, "RUNS_AT_ONCE", 2)
    async with opened(source) as ours:
        node = await ours.join(identity("first"), NOON)
        for id in "abcde":
            await add(ours, id)
        for run in (await claim(ours, node)).runs:
            await finish(ours, run)
        seen = []
        for slices in range(1, 9):
            async with opened(target) as theirs:
                copy = Copy(ours, theirs)
                async with aclosing(copy.slices()) as pieces:
                    for _ in range(slices):
                        await anext(pieces, None)
                seen.append((copy.jobs_seen, copy.runs_seen))
        async with opened(target) as theirs:
            assert await all_of(theirs) == await all_of(ours)

    assert seen == [(0, 0), (2, 0), (4, 0), (5, 0), (5, 2), (5, 4), (5, 5), (5, 5)]


async def dead_and_alive(store: Store) -> None:
    """A job that died with its process on this machine, and one that runs in a process that lives elsewhere."""
    for id, node in [("died", gone()), ("lives", identity("far"))]:
        await add(store, id, retry=Retry.in_window(2))
        await claim_only(store, await store.join(node, NOON))


def gone() -> NodeIdentity:
    """A node of this process that has ended."""
    node = liveness.new_identity()
    liveness.retire(node)
    return node


async def test_dead_nodes_are_recovered_and_living_ones_are_returned(source: Path) -> None:
    async with opened(source) as store:
        await dead_and_alive(store)

        found = await recover_dead_nodes(store, VirtualClock(from_micros(NOON + MINUTE)))

        assert [node.identity.name for node in found.alive] == ["far"]
        assert found.interrupted == frozenset()
        assert [status.node.identity.name for status in await store.nodes()] == ["far"]
        assert "interrupted" in {row.outcome for row in await runs(store, id="died")}
        assert {row.outcome for row in await runs(store, id="lives")} == {None}
        assert (await job_of(store, "died")).status is Status.IDLE
        assert (await job_of(store, "lives")).status is Status.RUNNING


@pytest.mark.parametrize("lives", [True, False], ids=["it beats", "it is dead"])
async def test_a_silent_node_is_watched_before_it_is_declared_dead(source: Path, lives: bool) -> None:
    """A clock that was put forward makes every node look silent, and its jobs would run twice."""
    clock = VirtualClock(from_micros(NOON + MINUTE))
    told: list[str] = []
    async with opened(source) as store:
        await add(store, "a", retry=Retry.none())
        far = await store.join(identity("far"), NOON)
        await claim_only(store, far)
        sql(source, "UPDATE node SET beat_at = 0")
        asked = asyncio.ensure_future(recover_dead_nodes(store, clock, lambda node: told.append(node.identity.name)))
        while not told:
            await asyncio.sleep(0)
        await clock.advance("14s")
        if lives:
            await store.beat(far)
        else:
            assert not asked.done()
        await clock.advance("1s")

        found = await asked

        assert [node.id for node in found.alive] == [far] * lives
        outcomes = {row.outcome for row in await runs(store)}
        assert (None in outcomes, Outcome.INTERRUPTED in outcomes) == (lives, not lives)


@pytest.mark.parametrize("others", [False, True], ids=["no node is alive", "another node is alive"])
async def test_a_run_that_its_program_has_to_judge_is_left_alone(source: Path, target: Path, others: bool) -> None:
    """The default policy would rerun a job that its program disables after one failure, or the other way round."""
    async with opened(source) as ours, opened(target) as theirs:
        await add(ours, "own", retry=Retry.none())
        await claim_only(ours, await ours.join(gone(), NOON))
        await add(ours, "program")
        await claim_only(ours, await ours.join(gone(), NOON))
        if others:
            await add(ours, "lives")
            await claim_only(ours, await ours.join(identity("far"), NOON))
        before = await job_of(ours, "program"), await runs(ours, id="program")

        found = await recover_dead_nodes(ours, VirtualClock(from_micros(NOON + MINUTE)))
        copy = Copy(ours, theirs, found)
        async for _ in copy.slices():
            pass

        assert [node.identity.name for node in found.alive] == ["far"] * others
        assert found.interrupted == {("default", "program")}
        assert (await job_of(ours, "program"), await runs(ours, id="program")) == before
        left_out = {ruling.job.id: ruling.why for ruling in copy.exceptions}
        assert left_out == {"program": DIED_HERE, **({"lives": RUNS_HERE} if others else {})}
        assert await ids(theirs) == ["own"]


async def test_a_job_is_copied_once_its_program_has_recovered_it(source: Path, target: Path) -> None:
    """Its own policy decides: here, the program gives up after one failure."""
    async with opened(source) as ours:
        await add(ours, "program", handler="h")
        await claim_only(ours, await ours.join(gone(), NOON))
    clock = VirtualClock(from_micros(NOON + MINUTE))
    async with Scheduler(source, retry=Retry.backoff(disable_after=1), clock=clock):
        pass

    async with opened(source) as ours, opened(target) as theirs:
        copy = Copy(ours, theirs, await recover_dead_nodes(ours, clock))
        async for _ in copy.slices():
            pass

        assert copy.exceptions == []
        assert (await job_of(theirs, "program")).status is Status.DISABLED
        assert Outcome.INTERRUPTED in {row.outcome for row in await runs(theirs)}


async def test_what_is_running_is_left_out_until_it_has_ended(source: Path, target: Path) -> None:
    """It would run twice, or its end be lost."""
    async with opened(source) as ours, opened(target) as theirs:
        node = await ours.join(identity("first"), NOON)
        await add(ours, "a")
        await finish(ours, await claim_only(ours, node))
        run = await claim_only(ours, node, NOON + MINUTE)

        first = await copied(ours, theirs)
        nothing = await all_of(theirs)
        await finish(ours, run, at=NOON + MINUTE + SECOND)
        second = await copied(ours, theirs)

        assert [(ruling.job.id, ruling.why) for ruling in first.exceptions] == [("a", RUNS_HERE)]
        assert nothing == ([], [])
        assert (second.verdicts, second.runs_added) == ({Verdict.ADDED: 1}, 2)
        assert await all_of(theirs) == await all_of(ours)


async def test_what_is_newer_in_the_target_is_kept_and_its_history_completed(source: Path, target: Path) -> None:
    async with opened(source) as ours, opened(target) as theirs:
        node = await ours.join(identity("first"), NOON)
        for id in ("edited", "paused"):
            await add(ours, id, HOURLY)
        await copied(ours, theirs)
        await edit(theirs, "edited", name="Mine", now=NOON + 2 * HOUR)
        for run in (await claim(ours, node, NOON + HOUR)).runs:
            await finish(ours, run, at=NOON + HOUR + SECOND)
        await change_state(ours, "paused", pause, NOON + HOUR)

        copy = await copied(ours, theirs)

        assert [(ruling.job.id, ruling.why) for ruling in copy.exceptions] == [("edited", NEWER_THERE)]
        assert (copy.verdicts, copy.runs_added) == ({Verdict.KEPT: 1, Verdict.UPDATED: 1}, 2)
        assert (await job_of(theirs, "edited")).name == "Mine"
        assert (await job_of(theirs, "paused")).status is Status.PAUSED


async def test_rows_that_the_target_has_removed_with_age_do_not_come_back(source: Path, target: Path) -> None:
    """As the newest by number, they would push out those that are."""
    async with opened(source) as ours, opened(target) as theirs:
        node = await ours.join(identity("first"), NOON)
        await add(ours, "a")
        for minutes in range(3):
            run = await claim_only(ours, node, NOON + minutes * MINUTE)
            await finish(ours, run, at=NOON + minutes * MINUTE + SECOND)
        await copied(ours, theirs)
        there = await theirs.join(identity("second"), NOON)
        await finish(theirs, await claim_only(theirs, there, NOON + 3 * MINUTE), at=NOON + 3 * MINUTE + SECOND)
        await theirs.purge_runs([(await job_of(theirs, "a")).uid], 2, NOON + HOUR)
        before = await runs(theirs)

        copy = await copied(ours, theirs)

        assert (copy.verdicts, copy.runs_added) == ({Verdict.KEPT: 1}, 0)
        assert await runs(theirs) == before


UNREADABLE = [
    pytest.param('UPDATE job SET schedule = \'{"version": 1, "kind": "every"}\'', "schedule", id="schedule"),
    pytest.param("UPDATE job SET name = CAST(x'ff' AS TEXT)", "name", id="not UTF-8"),
    pytest.param("UPDATE state SET activity = 'asleep'", "activity", id="state"),
    pytest.param("DELETE FROM state", "activity", id="no state"),
]


@pytest.mark.parametrize(("change", "column"), UNREADABLE)
async def test_a_job_that_cannot_be_read_is_left_out_and_named(
    source: Path, target: Path, change: str, column: str
) -> None:
    """All others are copied; and once it can be read, the same command copies it too."""
    async with opened(source) as ours:
        for id in ("a", "b", "c"):
            await add(ours, id, Manual())
    uid = "(SELECT uid FROM job WHERE id = 'b')"
    before = {table: sql(source, f"SELECT * FROM {table} WHERE uid = {uid}") for table in ("job", "state")}
    sql(source, f"{change} WHERE uid = {uid}")

    async with opened(source) as ours, opened(target) as theirs:
        copy = await copied(ours, theirs)
        assert await ids(theirs) == ["a", "c"]
    for table, rows in before.items():
        sql(source, f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", *rows[0])
    async with opened(source) as ours, opened(target) as theirs:
        again = await copied(ours, theirs)
        assert await ids(theirs) == ["a", "b", "c"]

    assert copy.verdicts == {Verdict.ADDED: 2, Verdict.LEFT_OUT: 1}
    ((_, namespace, job_id, why),) = copy.unreadable_jobs
    assert (namespace, job_id) == ("default", "b")
    assert why.startswith(f"{column}: ")
    assert again.verdicts == {Verdict.SAME: 2, Verdict.ADDED: 1}


async def test_a_run_that_cannot_be_read_is_left_out_and_named(source: Path, target: Path) -> None:
    async with opened(source) as ours:
        node = await ours.join(identity("first"), NOON)
        for id in ("a", "b", "c"):
            await add(ours, id)
        for run in (await claim(ours, node)).runs:
            await finish(ours, run)
    sql(source, "UPDATE run SET trigger = 'whim', id = -5 WHERE id = 2")

    async with opened(source) as ours, opened(target) as theirs:
        copy = await copied(ours, theirs)
        copied_runs = await theirs.list_runs(RunFilter())

    assert [row.job_id for row in copied_runs] == ["c", "a"]
    ((number, _, job_id, why),) = copy.unreadable_runs
    assert (number, job_id) == (-5, "b")
    assert why.startswith("trigger: ")


async def test_a_job_of_the_target_that_cannot_be_read_is_kept(source: Path, target: Path) -> None:
    async with opened(source) as ours, opened(target) as theirs:
        for id in ("a", "b"):
            await add(ours, id, Manual())
        await copied(ours, theirs)
        sql(target, "UPDATE state SET attempts = -1 WHERE uid = 1")

        copy = await copied(ours, theirs)

    assert [(ruling.job.id, ruling.why) for ruling in copy.exceptions] == [("a", copying.UNREADABLE_THERE)]
    assert sql(target, "SELECT attempts FROM state") == [(-1,), (0,)]


async def test_what_the_source_has_forgotten_is_not_forgotten_in_the_target(source: Path, target: Path) -> None:
    async with opened(source) as ours, opened(target) as theirs:
        await add(ours, "a")
        await copied(ours, theirs)
        await ours.remove("default", "a", NOON)

        copy = await copied(ours, theirs)

        assert copy.verdicts == {}
        assert await theirs.get("default", "a") is not None


# ---------------------------------------------------------------- what runs left, and what was done to jobs


@pytest.fixture(params=[("file", "postgres"), ("postgres", "file"), ("file", "file")], ids="-to-".join)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores, one to copy from and one to copy to."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (store_at(kind, tmp_path / name) for kind, name in zip(request.param, ("one", "other"), strict=True))
    for store in (one, other):
        await store.open()
    yield one, other
    for store in (one, other):
        await store.close()


@pytest.mark.once
async def test_a_copy_has_what_runs_left_and_what_was_done_to_jobs(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results, payloads, tracebacks and progress; who changed what, in order, with the numbers that runs have there."""
    for name in ("JOBS_AT_ONCE", "RUNS_AT_ONCE", "CHANGES_AT_ONCE"):
        monkeypatch.setattr(copying, name, 2)
    source, target = pair
    node = await target.join(identity("there"), NOON)
    await add(target, "other")  # so that numbers differ
    await claim_only(target, node)
    clock = VirtualClock(from_micros(NOON))
    ours = Scheduler(source, clock=clock)

    @ours.handler("work")
    async def work(run: Run) -> object:
        run.progress(1, 2, "half\0way")
        run.write("so far")
        if run.payload == "fail":
            raise ValueError("no")
        return {"got": run.payload}

    await ours.add_job(Manual(), handler="work", id="a", payload="first")
    await ours.add_job(Manual(), handler="nowhere", id="b", name="Bé")
    with acting_as("anna", via="admin"):
        for payload in (None, "fail", {"n": 1}):
            await ours.run_job("a", payload=payload)
            clock.set(clock.now() + timedelta(seconds=1))
        await ours.update_job("a", payload="second", timeout="5m")
        waiting = await ours.trigger_job("b", anywhere=True)
        await ours.cancel_run(waiting, reason="enough \uffff")
        await ours.pause_job("a", reason="the supplier moves")

    first = await copied(source, target)
    again = await copied(source, target)
    theirs = Scheduler(target, clock=clock)

    assert (first.runs_added, first.changes_added) == (4, 9)
    assert (again.runs_added, again.changes_added) == (0, 0)
    number = {}
    for id in "ab":
        rows, there = await ours.run_log(id), await theirs.run_log(id)
        assert [other.id for other in there] != [row.id for row in rows]
        for row, other in zip(rows, there, strict=True):
            number[row.id] = other.id
            mine, copy = await ours.get_run(row.id), await theirs.get_run(other.id)
            assert mine is not None
            assert copy == changed(mine, id=other.id)
            assert await ours.run_output(row.id) == await theirs.run_output(other.id)
    done, there_done = await ours.changes(), await theirs.changes()
    assert [changed(row, number=0) for row in there_done if row.job_id != "other"] == [
        changed(row, number=0, after={"run": number[row.after["run"]]} if "run" in row.after else row.after)
        for row in done
    ]
    assert {(row.actor, row.via) for row in there_done[:7]} == {("anna", "admin")}

    await ours.resume_job("a")
    assert (await copied(source, target)).changes_added == 1
    assert [row.action for row in (await theirs.changes("a"))[:2]] == ["resume", "pause"]
    for scheduler in (ours, theirs):
        await scheduler.stop()


def test_a_history_of_its_own_is_not_mixed_with_that_of_the_source() -> None:
    def told(at: int, action: str) -> ChangeTold:
        return (at, action, None, None, None, None, None)

    wanted = [
        (1, told(1, "add")),
        (2, told(1, "add")),
        (1, told(3, "pause")),
        (1, told(3, "resume")),
        (1, told(4, "edit")),
    ]
    latest = {1: [told(3, "pause"), told(2, "edit")]}

    assert missing_changes(wanted, latest) == [wanted[1], wanted[3], wanted[4]]


@pytest.mark.parametrize("kind", STORES)
async def test_a_copy_closes_no_cycle(kind: str, path: Path, tmp_path: Path, clock: VirtualClock) -> None:
    """In the source, "b" runs after "a". In the target, "a" runs after "c", and "c" after "b"."""
    source, target = SQLiteStore(path.with_name("source.db")), store_at(kind, tmp_path)
    async with Scheduler(source, clock=clock) as scheduler:
        await scheduler.add_job(Manual(), handler="work", id="a")
        await scheduler.add_job(After("a"), handler="work", id="b")
        await scheduler.add_job(After("b"), handler="work", id="d")
    async with Scheduler(target, clock=clock) as scheduler:
        clock.set(clock.now() + timedelta(minutes=1))
        await scheduler.add_job(After("b"), handler="work", id="c")
        await scheduler.add_job(After("c"), handler="work", id="a")
        await source.open()
        copy = Copy(source, target)
        async with aclosing(copy.slices()) as slices:
            async for _ in slices:
                pass
        left = {ruling.job.id: (ruling.verdict, ruling.why) for ruling in copy.exceptions}
        there = [job.id for job in await scheduler.list_jobs()]
    await source.close()

    why = "it would wait for itself in the target, in the cycle c → a → b → c"
    assert left == {"a": (Verdict.KEPT, NEWER_THERE), "b": (Verdict.LEFT_OUT, why)}
    assert sorted(there) == ["a", "c", "d"]
