"""Requests between processes, on every store: start a run, cancel one, and report on one."""

# ruff: noqa: A001 - id is the public name of an id

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    Delay,
    Job,
    Manual,
    MemoryStore,
    OnInterrupt,
    Outcome,
    PostgresStore,
    RunRow,
    SQLiteStore,
    Status,
    Store,
    Trigger,
)
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.progress import ProgressReport
from scheduler_async.jobs.run import ClaimedRun, Ending, cancelled_on_request
from scheduler_async.stores.messages import (
    REMOVED,
    AlreadyRequested,
    Cancellation,
    ClaimTerms,
    NodeLost,
    Report,
    RunFilter,
)
from scheduler_async.stores.postgres import history as postgres_history
from scheduler_async.stores.postgres import requests as postgres_requests
from scheduler_async.stores.postgres.base import CANCELS_OF as POSTGRES_CANCELS_OF
from scheduler_async.stores.sqlite import base, history, jobs, requests
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, Micros, from_micros
from tests.postgres_server import url_of_schema
from tests.stores.test_conformance import (
    EVERY_MINUTE,
    NOON,
    RULES,
    add,
    claim,
    claim_only,
    edit,
    ended,
    identity,
    neighbours,
    node,
    node_row,
    store,
)

pytestmark = pytest.mark.once  # the version of Python does not matter

__all__ = ["neighbours", "node", "store"]  # fixtures


def terms(node: int, *, limit: int = 10, slots: int | None = None, handlers: list[str] | None = None) -> ClaimTerms:
    return ClaimTerms(
        node=node, limit=limit, slots=slots, handlers=["h"] if handlers is None else handlers, rules=RULES
    )


async def row_of(store: Store, run: int) -> RunRow:
    (row,) = await store.list_runs(RunFilter(run=run))
    return row


async def asked(store: Store, id: str = "a", payload: str | None = None, now: Micros = NOON) -> int:
    run = await store.request_start("default", id, payload, now)
    assert isinstance(run, int)
    return run


# ---------------------------------------------------------------- starting


async def test_a_requested_run_has_a_row_at_once(store: Store) -> None:
    """The caller can follow it by its id before anybody has taken it up."""
    await add(store, "a", Manual())

    run = await asked(store)
    row = await row_of(store, run)

    assert (row.outcome, row.started_at, row.node, row.trigger) == (None, None, None, Trigger.MANUAL)
    assert row.scheduled_for == from_micros(NOON)


async def test_a_requested_run_is_claimed_under_its_id(store: Store, node: int) -> None:
    job = await add(store, "a", Manual(), payload={"of": "the job"})
    run = await asked(store, payload='{"of":"the request"}')

    (claimed,), more = await store.claim_requested(NOON + MINUTE, terms(node))
    row = await row_of(store, run)

    assert (claimed.id, claimed.uid, claimed.payload_json, more) == (run, job.uid, '{"of":"the request"}', False)
    assert (claimed.trigger, claimed.scheduled_for, claimed.claimed_at) == (Trigger.MANUAL, NOON, NOON + MINUTE)
    assert (row.node, row.started_at) == ("first", from_micros(NOON + MINUTE))
    assert await store.held(node) == {run}
    assert await store.claim_requested(NOON + MINUTE, terms(node)) == ([], False)


async def test_a_requested_run_without_a_payload_gets_that_of_the_job(store: Store, node: int) -> None:
    await add(store, "a", Manual(), payload={"of": "the job"})
    await asked(store)

    (claimed,), _ = await store.claim_requested(NOON, terms(node))

    assert claimed.payload_json == '{"of":"the job"}'


async def test_a_requested_run_ends_like_any_other(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    run = await asked(store)
    (claimed,), _ = await store.claim_requested(NOON, terms(node))

    (left,) = await store.finish([ended(claimed)], RULES)
    row = await row_of(store, run)

    assert left is not None
    assert left.state.activity is Status.IDLE
    assert row.outcome is Outcome.SUCCESS
    assert isinstance(await store.request_start("default", "a", None, NOON + MINUTE), int)


async def test_one_request_of_a_job_waits_at_a_time(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    first = await asked(store)

    second = await store.request_start("default", "a", None, NOON)
    await store.claim_requested(NOON, terms(node))
    third = await store.request_start("default", "a", None, NOON)

    assert second == AlreadyRequested(first)
    assert isinstance(third, Job)
    assert await store.request_start("default", "b", None, NOON) is None
    assert len(await store.list_runs(RunFilter())) == 1


async def test_a_request_waits_while_its_job_runs(store: Store, node: int) -> None:
    """A regular run may come first."""
    await add(store, "a")
    run = await asked(store)
    regular = await claim_only(store, node)

    before = await store.claim_requested(NOON, terms(node))
    await store.finish([ended(regular)], RULES)
    (claimed,), more = await store.claim_requested(NOON + SECOND, terms(node))

    assert before == ([], True)
    assert (claimed.id, more) == (run, False)


async def test_a_request_during_a_claim_ahead_of_time_is_taken(store: Store, node: int) -> None:
    """The job is claimed and does not run yet: to refuse would puzzle the caller."""
    await add(store, "a", state={"next_run_at": NOON + SECOND})
    await claim(store, node, now=NOON, ahead=2 * SECOND)

    assert isinstance(await store.request_start("default", "a", None, NOON), int)


async def test_a_request_waits_for_a_handler(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    run = await asked(store)

    without = await store.claim_requested(NOON, terms(node, handlers=["other"]))
    (claimed,), _ = await store.claim_requested(NOON, terms(node))

    assert without == ([], False)
    assert claimed.id == run


async def test_requests_are_taken_in_their_order_and_no_more_than_wanted(store: Store, node: int) -> None:
    for id in "cba":
        await add(store, id, Manual())
    first, second, third = [await asked(store, id) for id in "bca"]

    some, more = await store.claim_requested(NOON, terms(node, limit=2, slots=1))
    rest, none = await store.claim_requested(NOON, terms(node, limit=2))

    assert ([run.id for run in some], more) == ([first, second], True)
    assert [run.is_queued for run in some] == [False, True]
    assert ([run.id for run in rest], none) == ([third], False)


async def test_a_paused_job_runs_when_it_is_asked_for(store: Store, node: int) -> None:
    """As `trigger_job` does in its own process."""
    await add(store, "a", Manual(), state={"phase": "paused"})
    run = await asked(store)

    (claimed,), _ = await store.claim_requested(NOON, terms(node))

    assert claimed.id == run


async def test_two_nodes_do_not_take_the_same_request(neighbours: tuple[Store, Store]) -> None:
    one, other = neighbours
    here, there = await one.join(identity("here"), NOON), await other.join(identity("there"), NOON)
    await add(one, "a", Manual())
    await asked(other)

    first, _ = await one.claim_requested(NOON, terms(here))
    second, more = await other.claim_requested(NOON, terms(there))

    assert (len(first), second, more) == (1, [], False)


async def test_only_a_node_takes_requests(store: Store) -> None:
    await add(store, "a", Manual())
    await asked(store)

    with pytest.raises(NodeLost):
        await store.claim_requested(NOON, terms(99))


async def test_a_waiting_run_of_a_removed_job_is_cancelled(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    run = await asked(store)

    await store.remove("default", "a", NOON + SECOND)
    row = await row_of(store, run)

    assert (row.outcome, row.error, row.finished_at) == (Outcome.CANCELLED, REMOVED, from_micros(NOON + SECOND))
    assert await store.claim_requested(NOON, terms(node)) == ([], False)


async def test_the_payload_of_a_run_by_hand_is_stored(store: Store, node: int) -> None:
    await add(store, "a", Manual(), payload=1)
    run = await store.claim_one("default", "a", '{"n":2}', NOON, node=node, queued=False)
    assert isinstance(run, ClaimedRun)
    await store.finish([ended(run)], RULES)
    own = await store.claim_one("default", "a", None, NOON + MINUTE, node=node, queued=False)
    assert isinstance(own, ClaimedRun)

    assert await payloads(store) == {run.id: '{"n":2}', own.id: "1"}


async def payloads(store: Store) -> dict[int, str | None]:
    """Of all runs, as they are stored."""
    if isinstance(store, MemoryStore):
        return {run.id: run.payload for run in store._work._tables.runs.values()}
    return {row[0]: row[1] for row in await answer(store, "SELECT id, payload FROM run")}


async def answer(store: Store, question: str) -> list[Any]:
    """The rows of a store in SQL."""
    some: Any = store
    if hasattr(some, "_read"):
        return list(await some._read(lambda db: db.execute(question).fetchall()))
    return list(await some._ask(some._edits, lambda db: db.fetch(question)))


# ---------------------------------------------------------------- repeating


async def taken(store: Store, node: int, now: Micros = NOON) -> ClaimedRun:
    """The only run that waits, now claimed."""
    (run,), _ = await store.claim_requested(now, terms(node))
    return run


async def killed(store: Store, node: int, now: Micros, name: str = "next") -> int:
    """Let a node die, and return the number of another one."""
    other = await store.join(identity(name), now)
    await store.recover([await node_row(store, node, seen_by=other)], now, RULES)
    return other


@pytest.mark.parametrize("most", [1, 2])
async def test_an_interrupted_manual_run_waits_for_another_node(store: Store, node: int, most: int) -> None:
    """With the payload that it had, even if that of the job has changed since."""
    await add(store, "a", Manual(), payload=1, max_instances=most)
    run = await store.claim_one("default", "a", None, NOON, node=node, queued=False)
    assert isinstance(run, ClaimedRun)
    await edit(store, "a", payload=2)

    other = await killed(store, node, NOON + MINUTE)
    again = await taken(store, other, NOON + MINUTE)
    first, second = await row_of(store, run.id), await row_of(store, again.id)

    assert (first.outcome, first.attempt) == (Outcome.INTERRUPTED, 1)
    assert first.error is not None
    assert first.error.endswith(f" It is run again as run {again.id}.")
    assert (second.outcome, second.attempt, second.trigger) == (None, 2, Trigger.MANUAL)
    assert second.scheduled_for == first.scheduled_for
    assert (again.payload_json, again.origin, again.attempt) == ("1", run.id, 2)


async def test_interrupted_manual_runs_of_a_job_with_several_are_all_run_again(store: Store, node: int) -> None:
    """Those that were triggered here, and those that were asked for."""
    await add(store, "a", Manual(), max_instances=3)
    for number in (1, 2):
        run = await store.claim_one("default", "a", str(number), NOON, node=node, queued=False)
        assert isinstance(run, ClaimedRun)
    await asked(store, payload="3")
    await taken(store, node)

    other = await killed(store, node, NOON + MINUTE)
    again, _ = await store.claim_requested(NOON + MINUTE, terms(other))

    assert sorted((run.payload_json, run.attempt) for run in again) == [("1", 2), ("2", 2), ("3", 2)]


async def test_a_manual_run_that_kills_its_process_every_time_comes_to_an_end(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    await asked(store)
    now, ids = NOON, []
    for number in range(5):
        now += MINUTE
        run = await taken(store, node, now)
        ids.append((run.id, run.attempt, run.origin))
        node = await killed(store, node, now, f"number {number}")
    job = await store.get("default", "a")
    assert job is not None

    assert [(attempt, origin == ids[0][0]) for _, attempt, origin in ids] == [(n, True) for n in range(1, 6)]
    assert await store.claim_requested(now, terms(node)) == ([], False)
    assert (job.consecutive_errors, job.enabled) == (0, True)  # a manual run never counts


@pytest.mark.parametrize("prevented", ["skip", "removed", "cancelled"])
async def test_what_is_not_repeated(store: Store, node: int, prevented: str) -> None:
    rule = OnInterrupt.SKIP if prevented == "skip" else OnInterrupt.RERUN
    await add(store, "a", Manual(), on_interrupt=rule)
    await asked(store)
    run = await taken(store, node)
    if prevented == "removed":
        await store.remove("default", "a", NOON, own_run=run.id)
    if prevented == "cancelled":
        await store.request_cancel(run.id, "enough", NOON)

    other = await killed(store, node, NOON + MINUTE)

    assert await store.claim_requested(NOON + MINUTE, terms(other)) == ([], False)
    assert len(await store.list_runs(RunFilter(namespace="default", id="a"))) == 1


async def test_a_repeated_run_may_wait_beside_another(store: Store, node: int) -> None:
    """Each is taken up, one after the other."""
    await add(store, "a", Manual())
    run = await store.claim_one("default", "a", None, NOON, node=node, queued=False)
    assert isinstance(run, ClaimedRun)
    other = await killed(store, node, NOON)
    second = await store.claim_one("default", "a", None, NOON, node=other, queued=False)
    assert isinstance(second, ClaimedRun)
    last = await killed(store, other, NOON, "last")

    first = await store.claim_requested(NOON, terms(last))
    await store.finish([ended(first[0][0])], RULES)
    then = await store.claim_requested(NOON, terms(last))

    assert [(run.origin, more) for (run,), more in (first, then)] == [(run.id, True), (second.id, False)]


async def test_a_claim_whose_answer_was_lost_is_repeated_only_if_its_caller_waits(store: Store, node: int) -> None:
    """The caller of `trigger_job` in this process was told that it failed."""
    await add(store, "a", Manual())
    await add(store, "b", Manual())
    await asked(store, "a")
    await taken(store, node)
    await store.claim_one("default", "b", None, NOON, node=node, queued=False)

    await store.interrupt_unknown(node, set(), NOON, RULES)
    runs, _ = await store.claim_requested(NOON, terms(node))

    assert [run.name[1] for run in runs] == ["a"]


@pytest.mark.parametrize("queued", [True, False])
async def test_a_request_that_is_given_back_waits_again(store: Store, node: int, queued: bool) -> None:
    """Its caller has the id of the run. A stop must not lose it."""
    await add(store, "a", Manual(), payload=1)
    run = await asked(store, payload="2")
    (claimed,), _ = await store.claim_requested(NOON + SECOND, terms(node, slots=0 if queued else None))

    await store.release([claimed])
    row = await row_of(store, run)
    again = await taken(store, node, NOON + MINUTE)

    assert (row.outcome, row.started_at, row.node) == (None, None, None)
    assert (again.id, again.payload_json, again.origin, again.attempt) == (run, "2", run, 1)


async def test_a_request_is_given_back_once(store: Store, node: int) -> None:
    """A release whose answer was lost is repeated. Another node may have taken the run meanwhile."""
    await add(store, "a", Manual())
    await asked(store)
    claimed = await taken(store, node, NOON + SECOND)
    await store.release([claimed])
    other = await store.join(identity("other"), NOON)
    again = await taken(store, other, NOON + MINUTE)

    await store.release([claimed])

    assert await store.held(other) == {again.id}
    assert await store.claim_requested(NOON + MINUTE, terms(node)) == ([], False)


# ---------------------------------------------------------------- cancelling


async def test_a_claimed_run_is_asked_to_end(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)

    answer = await store.request_cancel(run.id, "enough", NOON)
    cancels, of_others = await store.cancels(node), await store.cancels(node + 1)
    await store.finish([ended(run, cancelled_on_request("enough"))], RULES)
    row = await row_of(store, run.id)

    assert answer is Cancellation.REQUESTED
    assert (cancels, of_others) == ({run.id: "enough"}, {})
    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")
    assert await store.cancels(node) == {}


async def test_a_run_that_ended_cannot_be_cancelled(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)
    await store.finish([ended(run)], RULES)

    assert await store.request_cancel(run.id, None, NOON) is Cancellation.ENDED
    assert await store.request_cancel(run.id + 99, None, NOON) is Cancellation.UNKNOWN
    assert await store.cancels(node) == {}


async def test_a_run_that_waits_for_a_node_is_cancelled_at_once(store: Store, node: int) -> None:
    await add(store, "a", Manual())
    run = await asked(store)

    answer = await store.request_cancel(run, "changed my mind", NOON + SECOND)
    row = await row_of(store, run)

    assert answer is Cancellation.DONE
    assert (row.outcome, row.reason, row.started_at) == (Outcome.CANCELLED, "changed my mind", None)
    assert row.finished_at == from_micros(NOON + SECOND)
    assert await store.claim_requested(NOON, terms(node)) == ([], False)
    assert isinstance(await store.request_start("default", "a", None, NOON), int)


async def test_a_request_to_cancel_that_came_too_late_is_forgotten(store: Store, node: int) -> None:
    """Every node would read it again and again."""
    await add(store, "a")
    run = await claim_only(store, node)
    await store.request_cancel(run.id, None, NOON)
    await store.finish([ended(run)], RULES)

    await store.purge_history(NOON, 10)

    if isinstance(store, MemoryStore):
        assert store._work._tables.cancels == {}
    else:
        assert await answer(store, "SELECT run FROM request") == []


async def test_a_second_request_to_cancel_replaces_the_reason(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)

    await store.request_cancel(run.id, "one", NOON)
    await store.request_cancel(run.id, None, NOON)

    assert await store.cancels(node) == {run.id: None}


async def test_a_run_that_was_cancelled_before_its_process_died_is_not_run_again(store: Store, node: int) -> None:
    """Nobody wants it any more, least of all twice."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a", on_interrupt=OnInterrupt.RERUN)
    run = await claim_only(store, dead)
    await store.request_cancel(run.id, "enough", NOON)

    ((left, told),) = await store.recover([await node_row(store, dead, seen_by=node)], NOON + 90 * SECOND, RULES)
    row = await row_of(store, run.id)

    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")
    assert (told.id, left.state.next_run_at, left.state.retry_of) == (run.id, NOON + 2 * MINUTE, None)
    assert left.state.consecutive_errors == 0
    assert left.ending is not None
    assert await store.cancels(dead) == {}


async def test_a_stop_does_not_bring_a_cancelled_run_back(store: Store, node: int) -> None:
    """The scheduler may stop, and cancel the run, before it notices that a caller has cancelled it for good."""
    await add(store, "a", on_interrupt=OnInterrupt.RERUN)
    run = await claim_only(store, node)
    await store.request_cancel(run.id, "enough", NOON)

    (left,) = await store.finish([ended(run, Ending(outcome=Outcome.CANCELLED))], RULES)
    row = await row_of(store, run.id)

    assert left is not None
    assert (left.state.retry_of, left.state.next_run_at) == (None, NOON + MINUTE)
    assert row.reason == "enough"


async def test_a_cancelled_run_that_never_began_is_not_put_back(store: Store, node: int) -> None:
    await add(store, "a")
    await add(store, "b")
    first, second = (await claim(store, node)).runs
    await store.request_cancel(first.id, "enough", NOON + SECOND)

    await store.release([first, second])
    row = await row_of(store, first.id)
    jobs = [await store.get("default", id) for id in "ab"]

    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")
    assert (row.started_at, row.finished_at) == (None, from_micros(NOON + SECOND))
    assert await store.list_runs(RunFilter(run=second.id)) == []
    assert [job.state.next_run_at for job in jobs if job is not None] == [NOON + MINUTE, NOON]
    assert await store.held(node) == set()


async def test_an_outdated_request_to_cancel_is_forgotten(store: Store, node: int) -> None:
    """The run ended by itself before anybody noticed."""
    await add(store, "a")
    run = await claim_only(store, node)
    await store.request_cancel(run.id, None, NOON)
    await store.finish([ended(run)], RULES)
    other = await claim_only(store, node, NOON + MINUTE)

    outdated = await store.cancels(node)
    await store.request_cancel(other.id, None, NOON + MINUTE)

    assert outdated == {}
    assert (await row_of(store, run.id)).outcome is Outcome.SUCCESS
    assert await count_requests(store) == 1


async def count_requests(store: Store) -> int:
    question = "SELECT count(*) FROM request"
    some: Any = store
    if isinstance(store, MemoryStore):
        return len(store._work._tables.starts) + len(store._work._tables.cancels)
    if hasattr(some, "_read"):
        return int((await some._read(lambda db: db.execute(question).fetchone()))[0])
    return int(await some._ask(some._edits, lambda db: db.fetchval(question)))


async def test_the_reason_of_a_cancellation_is_any_text(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)

    await store.request_cancel(run.id, "no\0 more: åäö \uffff", NOON)

    assert await store.cancels(node) == {run.id: "no\0 more: åäö \uffff"}


# ---------------------------------------------------------------- reporting


async def test_progress_and_output_are_read_while_a_run_goes_on(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)

    await store.report([Report(run.id, ProgressReport(0.25, "one of four"), "first line\n")])
    first, text = await row_of(store, run.id), await store.output_of(run.id)
    await store.report([Report(run.id, ProgressReport(None, None), None)])
    second = await row_of(store, run.id)

    assert (first.progress, first.progress_message, text) == (0.25, "one of four", "first line\n")
    assert (second.progress, second.progress_message) == (None, None)
    assert await store.output_of(run.id) == "first line\n"


async def test_a_report_that_comes_late_changes_nothing(store: Store, node: int) -> None:
    """How a run ended has the last word."""
    await add(store, "a")
    run = await claim_only(store, node)
    ending = Ending(outcome=Outcome.SUCCESS, output="all\n", progress=ProgressReport(1.0, "done"))
    await store.finish([ended(run, ending)], RULES)

    await store.report([Report(run.id, ProgressReport(0.5, "half"), "some\n"), Report(99, None, "of nobody")])
    row = await row_of(store, run.id)

    assert (row.progress, row.progress_message, await store.output_of(run.id)) == (1.0, "done", "all\n")
    assert await store.output_of(99) is None


async def test_what_a_killed_run_has_reported_remains(store: Store, node: int) -> None:
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a", Delay("1h"))
    run = await claim_only(store, dead)
    await store.report([Report(run.id, ProgressReport(0.5, "half"), "so far\n")])

    await store.recover([await node_row(store, dead, seen_by=node)], NOON + HOUR, RULES)
    row = await row_of(store, run.id)

    assert (row.outcome, row.progress, row.progress_message) == (Outcome.INTERRUPTED, 0.5, "half")
    assert await store.output_of(run.id) == "so far\n"


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize(
    "statement",
    [
        requests.ARE_REQUESTED,
        requests.WAITING_RUNS,
        requests.SELECT_REQUESTED,
        requests.FIND_RUN,
        history.FORGET_OUTDATED,
        requests.SELECT_CANCELS,
        requests.REPORT_PROGRESS,
        requests.REPORT_OUTPUT,
        base.CANCELS_OF,
        jobs.CANCEL_REQUESTED,
        jobs.FORGET_REQUESTED,
    ],
)
async def test_no_question_about_requests_reads_a_whole_table_of_sqlite(statement: str, tmp_path: Path) -> None:
    """The index of requests holds those that wait, and nothing else."""
    made = SQLiteStore(tmp_path / "jobs.db")
    await made.open()
    await made.close()
    db = sqlite3.connect(tmp_path / "jobs.db")
    names = {"handlers": "[]", "most": 1, "but": "[]"}
    values: Any = names if ":handlers" in statement else [None] * statement.count("?")

    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    db.close()

    scans = [step for step in plan if step.startswith("SCAN") and "json_each" not in step]
    assert all("USING INDEX request_" in step or "USING COVERING INDEX request_" in step for step in scans), plan


@pytest.mark.once
@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (postgres_requests.WAITING_RUNS, [1]),
        (postgres_requests.LOCK_REQUESTED, [["h"], 10, 0]),
        (postgres_requests.SELECT_CANCELS, [1]),
        (postgres_history.FORGET_OUTDATED, []),
        (postgres_requests.LOCK_REPORTED, [[1, 2]]),
        (POSTGRES_CANCELS_OF, [[1, 2]]),
    ],
)
async def test_no_question_about_requests_reads_a_whole_table_of_postgresql(
    statement: str, values: list[Any], tmp_path: Path
) -> None:
    made: Any = PostgresStore(url_of_schema(str(tmp_path)))
    await made.open()

    plan = await made._ask(made._runs, lambda db: db.fetch(f"EXPLAIN {statement}", *values))
    await made.close()

    assert not [row[0] for row in plan if "Seq Scan" in row[0]], plan


async def test_a_job_that_runs_every_minute_goes_on_after_a_cancelled_run(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, on_interrupt=OnInterrupt.RERUN)
    run = await claim_only(store, node)

    (left,) = await store.finish([ended(run, cancelled_on_request(None))], RULES)

    assert left is not None
    assert (left.state.next_run_at, left.state.retry_of, left.state.consecutive_errors) == (NOON + MINUTE, None, 0)


async def test_a_purged_job_leaves_no_request_behind(store: Store, node: int) -> None:
    await add(store, "a", Manual(), state={"phase": Phase.DISABLED, "disabled_at": NOON, "disabled_reason": "enough"})
    await asked(store)

    await store.purge_disabled(NOON + HOUR, 10, NOON + HOUR, ended=False)

    assert await count_requests(store) == 0
    assert await store.claim_requested(NOON, terms(node)) == ([], False)
