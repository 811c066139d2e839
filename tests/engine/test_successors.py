"""Jobs that run after others, through the whole scheduler, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_async import (
    After,
    Every,
    InvalidScheduleError,
    JobSpec,
    Manual,
    Outcome,
    Result,
    Retry,
    Run,
    RunRow,
    Scheduler,
    SkipReason,
    Status,
)
from scheduler_async.stores.messages import NodeIdentity
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, SECOND, NewScheduler, Worker, job_of


@pytest.fixture
async def pipeline(new_scheduler: NewScheduler, every_store: str) -> Scheduler:
    """A running scheduler with a job "extract", which runs only when it is triggered."""
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Manual(), handler="work", id="extract")
    return scheduler


async def rows_of(scheduler: Scheduler, id: str) -> list[RunRow]:
    return list(reversed(await scheduler.run_log(id)))


# ---------------------------------------------------------------- running


async def test_a_successor_runs_at_once_and_knows_the_run_that_caused_it(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="work", id="load")

    run = await pipeline.run_job("extract")
    await worker.clock.advance("1s")

    assert worker.ids == ["extract", "load"]
    assert worker.fired() == [0, 0]
    assert worker.runs[1].after == run.id
    (row,) = await rows_of(pipeline, "load")
    assert (row.trigger, row.outcome, row.after, row.scheduled_for) == ("schedule", "success", run.id, NOON)
    assert row.to_json()["after"] == run.id
    assert (await job_of(pipeline, "load")).next_run_at is None


async def test_a_chain_of_jobs_runs_in_order_each_time(pipeline: Scheduler, worker: Worker) -> None:
    worker.takes = "10s"
    await pipeline.add_job(After("extract"), handler="work", id="transform")
    await pipeline.add_job(After("transform"), handler="work", id="load")
    await pipeline.update_job("extract", schedule=Every("5m"))

    await worker.clock.advance("11m")

    assert worker.ids == ["extract", "transform", "load"] * 2
    assert worker.fired(SECOND) == [300, 310, 320, 600, 610, 620]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(None, {"success", "any"}, id="success"),
        pytest.param(Outcome.NOOP, {"success", "any"}, id="nothing to do"),
        pytest.param(Outcome.SKIPPED, {"any"}, id="declined"),
        pytest.param(ValueError("no"), {"failure", "any"}, id="error"),
        pytest.param(Result(Outcome.ERROR), {"failure", "any"}, id="a result that is an error"),
    ],
)
async def test_the_outcome_decides_which_successors_run(
    pipeline: Scheduler, worker: Worker, answer: object, expected: set[str]
) -> None:
    for outcome in ("success", "failure", "any"):
        await pipeline.add_job(After("extract", outcome), handler="work", id=outcome)
    worker.answer = answer
    await pipeline.run_job("extract")
    worker.answer = None
    await worker.clock.advance("1s")

    assert set(worker.ids[1:]) == expected


async def test_a_timeout_is_a_failure_and_a_cancelled_run_counts_only_for_any(
    pipeline: Scheduler, worker: Worker
) -> None:
    for outcome in ("success", "failure", "any"):
        await pipeline.add_job(After("extract", outcome), handler="noted", id=outcome)
    noted = []

    @pipeline.handler("noted")
    async def note(run: Run) -> None:
        noted.append(run.job_id)

    worker.blocks = True
    await pipeline.update_job("extract", timeout="1m")
    await pipeline.trigger_job("extract")
    await worker.clock.advance("2m", wait_for_runs=False)
    timed_out, noted[:] = set(noted), []
    run = await pipeline.trigger_job("extract")
    await pipeline.cancel_run(run)
    await worker.clock.advance("1s")

    assert timed_out == {"failure", "any"}
    assert noted == ["any"]


async def test_every_failed_attempt_is_a_failure_and_the_success_after_it_a_success(
    pipeline: Scheduler, worker: Worker
) -> None:
    """A run that will be retried has failed all the same: an alarm must not wait for the last attempt."""
    await pipeline.add_job(After("extract", "failure"), handler="noted", id="alarm")
    await pipeline.add_job(After("extract"), handler="noted", id="load")
    noted = []

    @pipeline.handler("noted")
    async def note(run: Run) -> None:
        noted.append(run.job_id)

    worker.answer = ValueError("no")
    await pipeline.update_job("extract", schedule=Every("1h"), retry=Retry.in_window(2, delay="5m"))
    await worker.clock.advance("1h")
    after_failure = list(noted)
    worker.answer = None
    await worker.clock.advance("6m")

    assert after_failure == ["alarm"]
    assert noted == ["alarm", "load"]


async def test_the_end_of_a_dead_process_is_a_failure(pipeline: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """The successor becomes due in the transaction that records the run as interrupted."""
    await pipeline.add_job(After("extract", "failure"), handler="work", id="alarm")
    await pipeline.update_job("extract", on_interrupt="skip")
    store, now = pipeline._store, clock.micros()
    dead = await store.join(NodeIdentity(name="dead", host="elsewhere", pid=7, process_start="1"), now)
    claimed = await store.claim_one("default", "extract", None, now, node=dead, queued=False)
    (row,) = [status.node for status in await store.nodes() if status.node.id == dead]

    ((edit, run),) = await store.recover([row], now, pipeline._engine.setting.rules)

    assert [successor.job.id for successor in edit.successors] == ["alarm"]
    assert claimed is not None
    pipeline._engine.session.agenda.look_again()
    await clock.advance("1s")
    assert worker.ids == ["alarm"]
    assert worker.runs[0].after == run.id


# ---------------------------------------------------------------- several endings


async def test_several_endings_while_it_waits_become_one_run_after_the_latest(
    pipeline: Scheduler, worker: Worker
) -> None:
    """The delay counts from the first of them."""
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")

    for _ in range(3):
        run = await pipeline.run_job("extract")
        await worker.clock.advance("1m")
    await worker.clock.advance("10m")

    loads = [run for run in worker.runs if run.job_id == "load"]
    assert [(run.fired_at - NOON, run.after) for run in loads] == [(5 * MINUTE, run.id)]
    assert [row.outcome for row in await rows_of(pipeline, "load")] == ["success"]


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
async def test_endings_while_it_runs_cause_one_more_run(pipeline: Scheduler, worker: Worker, overlap: str) -> None:
    await pipeline.add_job(After("extract"), handler="slow", id="load", overlap=overlap)
    runs = []

    @pipeline.handler("slow")
    async def slow(run: Run) -> None:
        runs.append(run)
        await worker.clock.sleep("10m")

    for _ in range(4):
        last = await pipeline.run_job("extract")
        await worker.clock.advance("1m")
    await worker.clock.advance("1h")

    assert [run.fired_at - NOON for run in runs] == [0 * MINUTE, 10 * MINUTE]
    assert runs[1].after == last.id
    assert [row.outcome for row in await rows_of(pipeline, "load")] == ["success", "success"]


async def test_runs_that_end_at_the_same_instant_are_each_followed(pipeline: Scheduler, worker: Worker) -> None:
    """By a virtual clock, a job and its successor can run several times in one microsecond."""
    await pipeline.add_job(After("extract"), handler="work", id="load")

    for _ in range(5):
        await pipeline.run_job("extract")
        await worker.clock.advance("1s")

    assert worker.ids.count("load") == 5


async def test_a_manual_run_of_the_successor_does_not_use_up_an_ending(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    await pipeline.run_job("extract")

    await pipeline.run_job("load")
    await worker.clock.advance("10m")

    assert [row.trigger for row in await rows_of(pipeline, "load")] == ["manual", "schedule"]


async def test_an_ending_during_a_manual_run_of_the_successor_is_followed(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="slow", id="load")
    runs = []

    @pipeline.handler("slow")
    async def slow(run: Run) -> None:
        runs.append(run)
        await worker.clock.sleep("1m")

    await pipeline.trigger_job("load")
    await pipeline.run_job("extract")
    await worker.clock.advance("5m")

    assert [(run.trigger, run.fired_at - NOON) for run in runs] == [("manual", 0 * MINUTE), ("schedule", MINUTE)]


# ---------------------------------------------------------------- failures of the successor


async def test_a_successor_that_fails_is_retried_by_its_policy(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="fails", id="load", retry=Retry.in_window(1, delay="5m"))
    runs = []

    @pipeline.handler("fails")
    async def fails(run: Run) -> None:
        runs.append(run)
        raise ValueError("no")

    first = await pipeline.run_job("extract")
    await worker.clock.advance("1h")

    assert [(run.attempt, run.trigger, run.after) for run in runs] == [
        (1, "schedule", first.id),
        (2, "retry", first.id),
    ]
    job = await job_of(pipeline, "load")
    assert (job.status, job.next_run_at) == (Status.IDLE, None)


async def test_a_successor_that_keeps_failing_waits_longer_and_is_disabled_in_the_end(
    pipeline: Scheduler, worker: Worker
) -> None:
    """The default policy only postpones: the next ending starts it, but not within the time that it has to wait."""
    await pipeline.add_job(After("extract"), handler="fails", id="load")
    runs = []

    @pipeline.handler("fails")
    async def fails(run: Run) -> None:
        runs.append(run)
        raise ValueError("no")

    for _ in range(2):
        await pipeline.run_job("extract")
        await worker.clock.advance("10s")
    postponed = (await job_of(pipeline, "load")).next_run_at
    for _ in range(10):
        await pipeline.run_job("extract")
        await worker.clock.advance("1h")

    assert postponed == NOON + 30 * SECOND
    assert len(runs) == 5
    assert (await job_of(pipeline, "load")).status is Status.DISABLED


# ---------------------------------------------------------------- paused and disabled


@pytest.mark.parametrize("reason", [SkipReason.PAUSED, SkipReason.DISABLED])
async def test_an_ending_while_the_successor_is_away_is_not_owed_and_has_a_row(
    pipeline: Scheduler, worker: Worker, reason: SkipReason
) -> None:
    await pipeline.add_job(After("extract", delay="1m"), handler="work", id="load")
    await (pipeline.pause_job("load") if reason is SkipReason.PAUSED else pipeline.disable_job("load"))

    await pipeline.run_job("extract")
    await worker.clock.advance("5m")
    await pipeline.resume_job("load")
    await worker.clock.advance("5m")

    assert worker.ids == ["extract"]
    (row,) = await rows_of(pipeline, "load")
    assert (row.outcome, row.reason, row.missed, row.scheduled_for) == ("skipped", reason, 1, NOON + MINUTE)
    await pipeline.run_job("extract")
    await worker.clock.advance("1m")
    assert worker.ids == ["extract", "extract", "load"]


@pytest.mark.parametrize(
    ("paused_for", "expected"),
    [pytest.param("2m", ["success"], id="a short pause"), pytest.param("10m", ["skipped"], id="a long pause")],
)
async def test_an_ending_before_a_pause_is_owed_if_its_time_comes_after_the_pause(
    pipeline: Scheduler, worker: Worker, paused_for: str, expected: list[str]
) -> None:
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    await pipeline.run_job("extract")

    await pipeline.pause_job("load")
    await worker.clock.advance(paused_for)
    await pipeline.resume_job("load")
    await worker.clock.advance("1h")

    assert [row.outcome for row in await rows_of(pipeline, "load")] == expected


async def test_disabling_a_successor_leaves_a_row_for_the_ending_that_it_waited_to_follow(
    pipeline: Scheduler, worker: Worker
) -> None:
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    await pipeline.run_job("extract")

    await pipeline.disable_job("load")
    await pipeline.resume_job("load")
    await worker.clock.advance("1h")

    assert [(row.outcome, row.reason) for row in await rows_of(pipeline, "load")] == [("skipped", "disabled")]


# ---------------------------------------------------------------- links


async def test_the_other_job_may_come_later_and_be_removed(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("later"), handler="work", id="load")
    waiting = str(await pipeline.explain("load"))
    await pipeline.add_job(Manual(), handler="work", id="later")
    await pipeline.run_job("later")
    await worker.clock.advance("1s")
    await pipeline.remove_job("later")
    await worker.clock.advance("1h")

    assert 'there is no job "later" yet' in waiting
    assert worker.ids == ["later", "load"]
    assert (await job_of(pipeline, "load")).status is Status.IDLE
    await pipeline.add_job(Manual(), handler="work", id="later")
    await pipeline.run_job("later")
    await worker.clock.advance("1s")
    assert worker.ids == ["later", "load"] * 2


async def test_an_edit_changes_which_job_is_followed(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(Manual(), handler="work", id="other")
    await pipeline.add_job(After("extract"), handler="work", id="load")

    await pipeline.update_job("load", schedule=After("other"))
    await pipeline.run_job("extract")
    await pipeline.run_job("other")
    await worker.clock.advance("1s")
    await pipeline.update_job("load", schedule=Manual())
    await pipeline.run_job("other")
    await worker.clock.advance("1s")

    assert worker.ids == ["extract", "other", "load", "other"]


async def test_a_removed_successor_is_not_woken_and_one_added_again_starts_fresh(
    pipeline: Scheduler, worker: Worker
) -> None:
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    await pipeline.run_job("extract")
    await pipeline.remove_job("load")
    await pipeline.run_job("extract")
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    await worker.clock.advance("1h")

    assert worker.ids == ["extract", "extract"]


async def test_a_successor_follows_a_job_of_its_namespace_or_of_another(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(Manual(), handler="work", id="extract", namespace="tenant")
    await pipeline.add_job(After("extract"), handler="work", id="own", namespace="tenant")
    await pipeline.add_job(After("extract", namespace="default"), handler="work", id="other", namespace="tenant")

    await pipeline.run_job("extract")
    await worker.clock.advance("1s")
    by_default = worker.ids
    await pipeline.run_job("extract", namespace="tenant")
    await worker.clock.advance("1s")

    assert by_default == ["extract", "other"]
    assert worker.ids == ["extract", "other", "extract", "own"]


# ---------------------------------------------------------------- cycles


async def test_a_job_cannot_follow_itself(pipeline: Scheduler) -> None:
    with pytest.raises(InvalidScheduleError, match=r'"a" cannot run after "a".*: a → a'):
        await pipeline.add_job(After("a"), handler="work", id="a")

    assert await pipeline.get_job("a") is None


async def test_an_edit_that_closes_a_cycle_is_refused_and_changes_nothing(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="work", id="transform")
    await pipeline.add_job(After("transform"), handler="work", id="load")

    with pytest.raises(InvalidScheduleError, match="cycle: transform → load → extract → transform"):
        await pipeline.update_job("extract", schedule=After("load"), name="new")

    extract = await job_of(pipeline, "extract")
    assert (extract.schedule, extract.name) == (Manual(), None)
    await pipeline.run_job("extract")
    await worker.clock.advance("1s")
    assert worker.ids == ["extract", "transform", "load"]


async def test_a_cycle_within_one_call_is_refused_and_adds_nothing(pipeline: Scheduler) -> None:
    specs = [JobSpec(After(other), handler="work", id=name) for name, other in (("a", "b"), ("b", "c"), ("c", "a"))]

    with pytest.raises(InvalidScheduleError, match="cycle"):
        await pipeline.add_jobs([*specs, JobSpec(Manual(), handler="work", id="d")])

    assert [job.id for job in await pipeline.list_jobs()] == ["extract"]
    await pipeline.add_jobs(specs[:2])


async def test_a_cycle_across_namespaces_is_refused_by_full_names(pipeline: Scheduler) -> None:
    await pipeline.add_job(After("b", namespace="two"), handler="work", id="a", namespace="one")

    with pytest.raises(InvalidScheduleError, match="cycle: one/a → two/b → one/a"):
        await pipeline.add_job(After("a", namespace="one"), handler="work", id="b", namespace="two")
    await pipeline.add_job(After("a"), handler="work", id="b", namespace="one")


async def test_one_call_can_turn_a_chain_round(pipeline: Scheduler) -> None:
    """What counts is the result, not the order of the changes."""
    await pipeline.add_jobs([JobSpec(Manual(), handler="work", id="a"), JobSpec(After("a"), handler="work", id="b")])

    await pipeline.add_jobs(
        [
            JobSpec(After("b"), handler="work", id="a", on_conflict="replace"),
            JobSpec(Manual(), handler="work", id="b", on_conflict="replace"),
        ]
    )

    assert (await job_of(pipeline, "a")).schedule == After("b")


async def test_a_long_chain_is_added_and_checked_in_one_call(pipeline: Scheduler) -> None:
    specs = [JobSpec(After(f"job{number - 1}"), handler="work", id=f"job{number}") for number in range(1, 500)]
    await pipeline.add_jobs(specs)

    with pytest.raises(InvalidScheduleError, match="…"):
        await pipeline.add_job(After("job499"), handler="work", id="job0")


# ---------------------------------------------------------------- what is told


async def test_explanations_say_what_a_successor_waits_for(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract", delay="5m"), handler="work", id="load")
    waiting = await pipeline.explain("load")
    await pipeline.run_job("extract")
    delayed = await pipeline.explain("load")
    (upcoming,) = await pipeline.preview()

    assert (waiting.reason, waiting.until) == (SkipReason.NOT_DUE, None)
    assert "it runs after extract succeeds, 5 minutes later, and waits for that" in str(waiting)
    assert (delayed.reason, delayed.until) == (SkipReason.NOT_DUE, NOON + 5 * MINUTE)
    assert (upcoming.job.id, upcoming.at) == ("load", NOON + 5 * MINUTE)


async def test_the_past_of_a_successor_is_explained(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="work", id="load")
    await worker.clock.advance("10m")
    await pipeline.run_job("extract")
    await worker.clock.advance("10m")
    await pipeline.pause_job("load", reason="holidays")
    await pipeline.run_job("extract")
    await worker.clock.advance("10m")

    nothing, ran, paused = [await pipeline.explain("load", at=NOON + minutes * MINUTE) for minutes in (5, 10, 20)]
    assert (nothing.reason, ran.reason, paused.reason) == (SkipReason.NOT_DUE, None, SkipReason.PAUSED)
    assert "it runs after extract succeeds" in str(nothing)
    assert ran.run is not None


async def test_observers_hear_of_an_ending_that_is_skipped(pipeline: Scheduler, worker: Worker) -> None:
    await pipeline.add_job(After("extract"), handler="work", id="load")
    await pipeline.pause_job("load")
    events = pipeline.events()

    await pipeline.run_job("extract")
    kinds = [(await anext(events)).kind for _ in range(3)]

    assert kinds == ["run_started", "run_finished", "run_skipped"]


async def test_a_pending_successor_survives_a_restart(new_scheduler: NewScheduler, shared: str, worker: Worker) -> None:
    scheduler = new_scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="extract")
    await scheduler.add_job(After("extract", delay="1h"), handler="work", id="load")
    run = await scheduler.run_job("extract")
    await scheduler.stop()

    again = new_scheduler(shared)
    await again.start()
    await worker.clock.advance("2h")

    assert worker.ids == ["extract", "load"]
    assert (worker.runs[1].after, worker.runs[1].scheduled_for) == (run.id, NOON + HOUR)


async def test_a_clock_that_goes_back_does_not_hold_up_a_successor(
    new_scheduler: NewScheduler, every_store: str, worker: Worker
) -> None:
    """Neither the delay that runs, nor endings at times that were used before."""
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    await scheduler.add_job(Manual(), handler="work", id="extract")
    await scheduler.add_job(After("extract", delay="5m"), handler="work", id="load")
    await scheduler.run_job("extract")
    await worker.clock.advance("1h")
    await scheduler.run_job("extract")

    worker.clock.set(NOON + 30 * MINUTE)
    await worker.clock.advance("6m")
    await scheduler.run_job("extract")
    await worker.clock.advance("6m")

    assert worker.ids == ["extract", "load", "extract", "load", "extract", "load"]


# ---------------------------------------------------------------- runs of every kind, and policies


async def test_the_endings_of_a_backfill_count(pipeline: Scheduler, worker: Worker) -> None:
    """They are runs of the job like any other. Those that end while the successor waits or runs become one."""
    await pipeline.update_job("extract", schedule=Every("1h"))
    await pipeline.add_job(After("extract"), handler="work", id="load")

    backfill = await pipeline.backfill_job("extract", NOON - 3 * HOUR, NOON)
    await worker.clock.advance("1s")

    assert (await pipeline.get_backfill(backfill.number)).done == 3
    loads = await rows_of(pipeline, "load")
    backfilled = [row.id for row in await rows_of(pipeline, "extract")]
    assert 1 <= len(loads) <= 3
    assert loads[-1].after == backfilled[-1]


@pytest.mark.parametrize(
    "policy", [{"max_instances": 3}, {"overlap": "queue"}, {"overlap": "cancel"}, {"overlap": "skip"}]
)
async def test_a_successor_has_one_run_at_a_time_whatever_its_policy(
    policy: dict[str, Any], pipeline: Scheduler, worker: Worker
) -> None:
    """Endings while it runs cause one more run, after the end of this one."""
    await pipeline.add_job(After("extract"), handler="slow", id="load", **policy)
    began = []

    @pipeline.handler("slow")
    async def load(run: Run) -> None:
        began.append((run.fired_at - NOON) / MINUTE)
        await worker.clock.sleep("10m")

    for _ in range(4):
        await pipeline.run_job("extract")
        await worker.clock.advance("2m")
    await worker.clock.advance("30m")

    assert began == [0, 10]
    assert {row.outcome for row in await rows_of(pipeline, "load")} == {"success"}
