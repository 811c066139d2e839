"""Jobs that may have several runs at once, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_async import Every, Job, Manual, Outcome, Retry, SkipReason, Status, Store, Trigger
from scheduler_async.jobs.run import ClaimedRun, cancelled_on_request
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.messages import (
    AlreadyRequested,
    Cancellation,
    ClaimTerms,
    JobFilter,
    RunFilter,
)
from scheduler_async.stores.searches import TallySearch
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND
from tests.stores.test_conformance import (
    NOON,
    RULES,
    add,
    claim,
    editing,
    ended,
    identity,
    neighbours,
    node,
    node_row,
    on_terms,
    store,
)

pytestmark = pytest.mark.once  # the version of Python does not matter

__all__ = ["neighbours", "node", "store"]  # fixtures


EVERY_MINUTE = Every("1m")


async def claim_at(store: Store, node: int, minute: float, **terms: Any) -> list[ClaimedRun]:
    return list((await claim(store, node, NOON + int(minute * MINUTE), **terms)).runs)


async def job_of(store: Store, id: str = "a") -> Job:
    job = await store.get("default", id)
    assert job is not None
    return job


async def rows(store: Store, **wanted: Any) -> list[tuple[int, Outcome | None, str | None, int]]:
    """The rows of the run log, oldest first: the minute of the occurrence, the outcome, the reason, what is missed."""
    found = await store.list_runs(RunFilter(**wanted))
    return [
        ((int(row.scheduled_for.timestamp() * SECOND) - NOON) // MINUTE, row.outcome, row.reason, row.missed)
        for row in reversed(found)
    ]


async def test_a_job_is_claimed_again_while_it_runs_up_to_max_instances(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2)

    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]
    assert await claim_at(store, node, 3) == []

    assert first.id != second.id
    assert (await job_of(store)).status is Status.RUNNING
    assert await store.held(node) == {first.id, second.id}
    assert [status.running for status in await store.nodes()] == [2]
    assert [job.id for job in await store.list_jobs(JobFilter(status=Status.RUNNING))] == ["a"]
    assert await store.list_jobs(JobFilter(status=Status.IDLE)) == []


async def test_an_ending_frees_its_own_place_only(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2)
    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]

    (left,) = await store.finish([ended(second, at=NOON + 4 * MINUTE + 1)], RULES)

    assert left is not None
    assert left.state.running == 1
    assert await store.held(node) == {first.id}
    assert await rows(store) == [
        (1, None, None, 0),
        (2, Outcome.SUCCESS, None, 0),
        (3, Outcome.SKIPPED, SkipReason.ALREADY_RUNNING, 2),
    ]
    assert [run.scheduled_for for run in await claim_at(store, node, 5)] == [NOON + 5 * MINUTE]


async def test_several_endings_of_a_job_are_recorded_together(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    await add(store, "b", EVERY_MINUTE)
    runs = [run for minute in (1, 2, 3) for run in await claim_at(store, node, minute)]
    assert [run.job.id for run in runs] == ["a", "b", "a", "a"]

    left = await store.finish([ended(run, at=NOON + 3 * MINUTE + SECOND) for run in runs], RULES)

    assert None not in left
    assert await store.held(node) == set()
    assert (await job_of(store)).state.running == 0
    assert (await job_of(store)).status is Status.IDLE


async def test_a_dead_node_with_many_instances_leaves_each_to_be_run_again(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=10)
    runs = [run for minute in range(1, 11) for run in await claim_at(store, node, minute)]
    other = await store.join(identity("other"), NOON)

    recovered = await store.recover([await node_row(store, node, seen_by=other)], NOON + 10 * MINUTE + SECOND, RULES)

    assert len(recovered) == 10
    assert (await job_of(store)).enabled
    assert [status.running for status in await store.nodes()] == [0]
    again: list[ClaimedRun] = []
    while found := await claim_at(store, other, 10.1):
        again += found
    assert [(run.scheduled_for, run.attempt, run.trigger) for run in again] == [
        (run.scheduled_for, 2, Trigger.RETRY) for run in runs
    ]
    assert await store.finish([ended(run, at=NOON + 11 * MINUTE) for run in runs], RULES) == [None] * 10
    assert None not in await store.finish([ended(run, at=NOON + 11 * MINUTE) for run in again], RULES)


async def test_runs_whose_owner_has_no_row_are_found(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2)
    (run,) = await claim_at(store, node, 1)
    other = await store.join(identity("other"), NOON)
    await store.leave(node, NOON)

    (missing,) = [row for row in await store.beat(other) if row.is_missing]

    assert missing.id == node
    ((edit, lost),) = await store.recover([missing], NOON + MINUTE + SECOND, RULES)
    assert lost.id == run.id
    assert edit.state.running == 0
    assert [row.is_missing for row in await store.beat(other)] == [False]


async def test_a_job_with_all_its_instances_does_not_look_ownerless(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2)
    await claim_at(store, node, 1)
    await claim_at(store, node, 2)

    assert [row.is_missing for row in await store.beat(node)] == [False]
    assert await store.interrupt_unknown(node, await store.held(node), NOON + 2 * MINUTE, RULES) == []


async def test_claims_whose_answer_was_lost_are_interrupted_one_by_one(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    (known,) = await claim_at(store, node, 1)
    (lost,) = await claim_at(store, node, 2)

    ((_, run),) = await store.interrupt_unknown(node, {known.id}, NOON + 2 * MINUTE, RULES)

    assert run.id == lost.id
    assert await store.held(node) == {known.id}


async def test_a_group_limit_counts_runs(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=5, group="g")
    limits = {"group_limits": {"g": 2}}

    runs = [run for minute in (1, 2, 3) for run in await claim_at(store, node, minute, **limits)]

    assert len(runs) == 2
    assert await store.running_by_group() == {"default\ng": 2}
    assert (await job_of(store)).state.activity is Status.IDLE


async def test_triggers_are_refused_only_when_all_instances_run(store: Store, node: int) -> None:
    await add(store, "a", Manual(), max_instances=2)

    runs = [await store.claim_one("default", "a", None, NOON, node=node, queued=False) for _ in range(3)]

    assert [type(run) for run in runs] == [ClaimedRun, ClaimedRun, Job]
    assert isinstance(runs[0], ClaimedRun)
    await store.finish([ended(runs[0], at=NOON)], RULES)
    assert isinstance(await store.claim_one("default", "a", None, NOON, node=node, queued=False), ClaimedRun)


async def test_as_many_runs_may_be_asked_for_as_may_go_on(store: Store, node: int) -> None:
    await add(store, "a", Manual(), max_instances=2)
    await store.claim_one("default", "a", None, NOON, node=node, queued=False)

    asked = [await store.request_start("default", "a", None, NOON) for _ in range(2)]
    assert isinstance(asked[0], int)
    assert asked[1] == AlreadyRequested(asked[0])
    terms = ClaimTerms(node=node, limit=10, slots=None, handlers=["h"], rules=RULES)
    runs, are_more = await store.claim_requested(NOON, terms)

    assert [run.id for run in runs] == [asked[0]]
    assert not are_more
    assert isinstance(await store.request_start("default", "a", None, NOON + 1), Job)


async def test_an_instance_can_be_cancelled_from_elsewhere(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]

    assert await store.request_cancel(second.id, "enough", NOON + 2 * MINUTE) is Cancellation.REQUESTED
    assert await store.cancels(node) == {second.id: "enough"}
    await store.finish([ended(second, cancelled_on_request("enough"), at=NOON + 2 * MINUTE)], RULES)

    assert await store.cancels(node) == {}
    assert await store.held(node) == {first.id}
    assert await store.request_cancel(second.id, None, NOON + 2 * MINUTE) is Cancellation.ENDED


async def test_a_queued_instance_starts_when_there_is_a_slot(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    await claim_at(store, node, 1)
    (run,) = await claim_at(store, node, 2, slots=0)
    assert run.is_queued

    assert await store.start([run], NOON + 3 * MINUTE) == {run.id}

    (row,) = await store.list_runs(RunFilter(run=run.id))
    assert row.started_at is not None
    await store.finish([ended(run, at=NOON + 3 * MINUTE)], RULES)
    assert await store.start([run], NOON + 3 * MINUTE) == set()


async def test_a_released_instance_is_due_as_before(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    (first,) = await claim_at(store, node, 1)
    before = await job_of(store)
    (second,) = await claim_at(store, node, 4)
    assert second.scheduled_for == NOON + 2 * MINUTE

    await store.release([second])

    assert await job_of(store) == before
    assert await store.held(node) == {first.id}
    assert await rows(store) == [(1, None, None, 0)]


async def test_a_removed_job_cancels_all_its_instances(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    runs = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]

    await store.remove("default", "a", NOON + 2 * MINUTE)

    assert await store.held(node) == set()
    assert [outcome for _, outcome, _, _ in await rows(store)] == [Outcome.CANCELLED] * 2
    assert await store.finish([ended(run, at=NOON + 3 * MINUTE) for run in runs], RULES) == [None, None]


async def test_a_run_that_removes_its_job_ends_on_record_and_the_others_are_cancelled(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=3)
    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]

    await store.remove("default", "a", NOON + 2 * MINUTE, first.id)
    assert await store.held(node) == {first.id}
    left = await store.finish([ended(first, at=NOON + 3 * MINUTE), ended(second, at=NOON + 3 * MINUTE)], RULES)

    assert [one is None for one in left] == [False, True]
    assert [outcome for _, outcome, _, _ in await rows(store)] == [Outcome.SUCCESS, Outcome.CANCELLED]
    assert await store.held(node) == set()


async def test_a_run_in_progress_becomes_the_first_of_several(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    (run,) = await claim_at(store, node, 1)

    await store.change([editing("a", now=NOON + 90 * SECOND, max_instances=2)], NOON + 90 * SECOND)
    assert await store.held(node) == {run.id}
    by_hand = await store.claim_one("default", "a", None, NOON + 90 * SECOND, node=node, queued=False)
    assert isinstance(by_hand, ClaimedRun)
    assert isinstance(await store.claim_one("default", "a", None, NOON + 91 * SECOND, node=node, queued=False), Job)
    left = await store.finish([ended(run, at=NOON + 2 * MINUTE - 1), ended(by_hand, at=NOON + 2 * MINUTE - 1)], RULES)

    assert None not in left
    assert await store.held(node) == set()
    assert len(await claim_at(store, node, 2)) == 1


async def test_with_fewer_instances_no_run_starts_before_the_surplus_has_ended(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2, retry=Retry.none())
    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]
    await store.change([editing("a", now=NOON + 2 * MINUTE, max_instances=1)], NOON + 2 * MINUTE)

    await store.finish([ended(first, at=NOON + 2 * MINUTE + SECOND)], RULES)
    assert await claim_at(store, node, 3) == []
    await store.finish([ended(second, at=NOON + 3 * MINUTE + SECOND)], RULES)
    (run,) = await claim_at(store, node, 4)

    assert not run.is_instance
    assert await store.held(node) == {run.id}


async def test_the_oldest_run_is_asked_to_end_when_the_next_occurrence_is_due(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE, max_instances=2, overlap="cancel")
    first, second = [*await claim_at(store, node, 1), *await claim_at(store, node, 2)]

    assert await claim_at(store, node, 3) == []
    assert await store.cancels(node) == {first.id: "overlapped"}
    assert await claim_at(store, node, 3.1) == []
    await store.finish([ended(first, cancelled_on_request("overlapped"), at=NOON + 3 * MINUTE + 7 * SECOND)], RULES)
    (third,) = await claim_at(store, node, 3.2)

    assert third.scheduled_for == NOON + 3 * MINUTE
    assert await store.held(node) == {second.id, third.id}
    assert (await rows(store))[0] == (1, Outcome.CANCELLED, "overlapped", 0)


async def test_a_dead_owner_of_an_overlapped_run_makes_room_too(store: Store, node: int) -> None:
    """The run counts as cancelled, and is not run again."""
    await add(store, "a", EVERY_MINUTE, overlap="cancel")
    await claim_at(store, node, 1)
    await claim_at(store, node, 2)
    other = await store.join(identity("other"), NOON)

    await store.recover([await node_row(store, node, seen_by=other)], NOON + 2 * MINUTE + SECOND, RULES)
    (run,) = await claim_at(store, other, 2.1)

    assert (run.scheduled_for, run.attempt) == (NOON + 2 * MINUTE, 1)
    assert (await rows(store))[0][1:3] == (Outcome.CANCELLED, "overlapped")


# ---------------------------------------------------------------- backfills


async def backfill(store: Store, hours: int = 5, *, most: int = 9, again: bool = False) -> int:
    occurrences = [NOON - hour * HOUR for hour in range(hours, 0, -1)]
    added = await store.add_backfill(await job_of(store), occurrences, None, NOON, max_concurrent=most, again=again)
    assert added is not None
    return added.number


async def claim_backfills(store: Store, node: int, limit: int = 9, **terms: Any) -> list[ClaimedRun]:
    runs, _ = await store.claim_backfills(NOON, on_terms(node, limit=limit, **terms))
    return runs


async def counts(store: Store, number: int) -> tuple[int, int, int, str]:
    found = await store.get_backfill(number)
    assert found is not None
    return found.total, found.done, found.failed, found.state.value


async def test_runs_of_backfills_have_owners_and_leave_the_job_alone(store: Store, node: int) -> None:
    before = await add(store, "a", EVERY_MINUTE)
    number = await backfill(store, most=2)

    runs = await claim_backfills(store, node)

    assert [(run.scheduled_for, run.trigger) for run in runs] == [
        (NOON - 5 * HOUR, Trigger.BACKFILL),
        (NOON - 4 * HOUR, Trigger.BACKFILL),
    ]
    assert await claim_backfills(store, node) == []
    assert await store.held(node) == {run.id for run in runs}
    assert [status.running for status in await store.nodes()] == [2]
    assert await store.start(runs, NOON) == {run.id for run in runs}
    assert await store.finish([ended(run) for run in runs], RULES) == [Transition(run.job) for run in runs]
    assert await job_of(store) == before
    assert await counts(store, number) == (5, 2, 0, "running")


async def test_a_regular_run_goes_beside_those_of_a_backfill(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    await backfill(store)
    ours = await claim_backfills(store, node)

    (regular,) = await claim_at(store, node, 1)
    left = await store.finish([ended(run, at=NOON + MINUTE) for run in (*ours, regular)], RULES)

    assert not regular.is_instance
    assert None not in left
    assert await store.held(node) == set()


async def test_the_backfill_of_a_dead_node_is_run_again(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    number = await backfill(store, 3)
    runs = await claim_backfills(store, node)
    other = await store.join(identity("other"), NOON)

    recovered = await store.recover([await node_row(store, node, seen_by=other)], NOON + SECOND, RULES)
    again = await claim_backfills(store, other)

    assert {run.id for _, run in recovered} == {run.id for run in runs}
    assert [(run.scheduled_for, run.attempt) for run in again] == [(run.scheduled_for, 2) for run in runs]
    assert await store.finish([ended(run) for run in runs], RULES) == [None] * 3
    await store.finish([ended(run) for run in again], RULES)
    assert await counts(store, number) == (3, 3, 0, "done")
    assert (await job_of(store)).consecutive_errors == 0


async def test_an_occurrence_that_kills_its_process_every_time_fails_in_the_end(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    number = await backfill(store, 1)
    deaths = 0

    while await claim_backfills(store, node):
        await store.interrupt_unknown(node, (), NOON, RULES)
        deaths += 1

    assert deaths == 5
    assert await counts(store, number) == (1, 0, 1, "done")


async def test_released_runs_of_a_backfill_are_due_as_before(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    number = await backfill(store, 3)
    runs = await claim_backfills(store, node, 2, slots=1)
    assert [run.is_queued for run in runs] == [False, True]

    await store.release(runs[1:])
    again = await claim_backfills(store, node)

    assert [(run.scheduled_for, run.attempt) for run in again] == [(NOON - 2 * HOUR, 1), (NOON - HOUR, 1)]
    await store.finish([ended(run) for run in (runs[0], *again)], RULES)
    assert await counts(store, number) == (3, 3, 0, "done")


async def test_a_cancelled_backfill_asks_its_runs_to_end(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    number = await backfill(store, most=1)
    (run,) = await claim_backfills(store, node)

    await store.cancel_backfill(number, "enough", NOON)
    assert await store.cancels(node) == {run.id: "enough"}
    await store.finish([ended(run, cancelled_on_request("enough"))], RULES)

    assert await claim_backfills(store, node) == []
    assert await counts(store, number) == (5, 0, 1, "cancelled")
    assert await store.cancels(node) == {}


async def test_a_backfill_waits_for_a_node_with_the_handler(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    await backfill(store, 1)

    assert await claim_backfills(store, node, handlers=["other"]) == []
    assert len(await claim_backfills(store, node, handlers=["h"])) == 1


async def test_removed_and_purged_jobs_take_their_backfills_along(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    number = await backfill(store)
    runs = await claim_backfills(store, node, 2)

    await store.remove("default", "a", NOON)
    assert await counts(store, number) == (5, 0, 0, "cancelled")
    assert await store.finish([ended(run) for run in runs], RULES) == [None, None]
    await store.purge_removed(NOON + HOUR, 10)

    assert await store.get_backfill(number) is None


@pytest.mark.parametrize("how", ["ended", "interrupted", "given back"])
async def test_a_job_that_a_run_of_its_backfill_removed_can_be_purged(store: Store, node: int, how: str) -> None:
    """What is left of it would otherwise stay for ever."""
    await add(store, "a", EVERY_MINUTE)
    await backfill(store, 1)
    (run,) = await claim_backfills(store, node)
    await store.remove("default", "a", NOON, own_run=run.id)
    assert await store.purge_removed(NOON + HOUR, 10) == 0, "while its run goes on"

    if how == "ended":
        await store.finish([ended(run)], RULES)
    elif how == "interrupted":
        await store.interrupt_unknown(node, (), NOON, RULES)
    else:
        await store.release([run])

    assert await store.purge_removed(NOON + HOUR, 10) == 1


async def test_a_disabled_job_is_not_purged_while_its_backfill_goes_on(store: Store, node: int) -> None:
    """The runs would lose their owners, and the backfill would never end."""
    await add(store, "a", EVERY_MINUTE, enabled=False)
    number = await backfill(store, 2)

    async def purge() -> list[Job]:
        return await store.purge_disabled(NOON + DAY, 10, NOON + DAY, ended=False)

    assert await purge() == []
    runs = await claim_backfills(store, node)
    await store.cancel_backfill(number, "enough", NOON)
    assert await purge() == []
    await store.finish([ended(run) for run in runs], RULES)

    assert [job.id for job in await purge()] == ["a"]


async def test_a_job_that_a_run_of_its_backfill_removed_cancels_its_regular_run(store: Store, node: int) -> None:
    await add(store, "a", EVERY_MINUTE)
    await backfill(store, 1)
    (run,) = await claim_backfills(store, node)
    (regular,) = await claim_at(store, node, 1)

    await store.remove("default", "a", NOON + MINUTE, own_run=run.id)

    assert await store.held(node) == {run.id}
    assert await store.finish([ended(regular, at=NOON + 2 * MINUTE)], RULES) == [None]
    assert await rows(store, run=regular.id) == [(1, Outcome.CANCELLED, None, 0)]
    await store.finish([ended(run, at=NOON + 2 * MINUTE)], RULES)
    tally = await store.tally(TallySearch(since=NOON, until=NOON + HOUR, limit=5))
    counted = {one.outcome: one.n for one in tally.items}
    assert counted == {"cancelled": 1, "success": 1}
