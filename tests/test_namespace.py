"""Tenants: a view of one namespace has every job method, reaches nothing of the others, and keeps to its limits."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    After,
    At,
    Every,
    InvalidJobError,
    JobNotFoundError,
    JobSpec,
    Manual,
    Namespace,
    QuotaError,
    Run,
    RunNotFoundError,
    Scheduler,
    SchedulerError,
)
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, NOON, NewScheduler, Worker
from tests.postgres_server import url_of_schema

pytestmark = pytest.mark.once  # the version of Python does not matter

# The async methods of a scheduler that are not about jobs of one namespace.
NOT_OF_A_NAMESPACE = {
    *("start", "stop", "run_until_signal", "run_pending", "health", "nodes", "node_history"),
    *("jobs_page", "runs_page", "changes_page", "counts", "recent_runs", "tally", "planned", "attention", "mark"),
    *("get_backfill", "cancel_backfill", "coming_runs"),
    *("plan", "apply", "export_jobs", "import_jobs", "incidents", "simulate"),
}


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is, of every kind."""
    if request.param == "postgres":
        return url_of_schema(str(tmp_path))
    return ":memory:" if request.param == "memory" else str(tmp_path / "jobs.db")


def methods_of(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }


JOB_METHODS = {name: found for name, found in methods_of(Scheduler).items() if name not in NOT_OF_A_NAMESPACE}


# ---------------------------------------------------------------- the methods


@pytest.mark.parametrize("name", sorted(JOB_METHODS))
def test_a_namespace_has_every_job_method_with_the_same_arguments(name: str) -> None:
    """A new method or argument of the scheduler is not forgotten here."""
    wanted = [parameter for parameter in JOB_METHODS[name].parameters.values() if parameter.name != "namespace"]
    found = methods_of(Namespace)

    assert name in found, f"Namespace lacks {name}{JOB_METHODS[name]}"
    assert list(found[name].parameters.values()) == wanted
    assert found[name].return_annotation.replace("builtins.", "") == JOB_METHODS[name].return_annotation


async def test_every_method_works_in_its_namespace(new_scheduler: NewScheduler, anywhere: str, worker: Worker) -> None:
    scheduler = new_scheduler(anywhere)
    tenant = scheduler.namespace("acme")

    added = await tenant.add_job(Every("1h"), handler="work", id="a")
    many = await tenant.add_jobs([JobSpec(Manual(), handler="work", id="b"), JobSpec(Manual(), handler="work")])
    assert {job.namespace for job in (added, *many)} == {"acme"}
    assert (await tenant.update_job("a", name="A")).name == "A"
    assert (await tenant.pause_job("a")).status == "paused"
    assert (await tenant.resume_job("a")).status == "idle"
    assert (await tenant.disable_job("a", reason="enough")).disabled_reason == "enough"
    await tenant.resume_job("a")
    run = await tenant.trigger_job("a", payload=[1])
    await tenant.wait_for_run(run)
    assert [found.payload for found in worker.runs] == [[1]]
    assert [row.id for row in await tenant.run_log()] == [row.id for row in await tenant.run_log("a")] == [run]
    assert (row := await tenant.get_run(run)) is not None
    assert row.outcome == "success"
    assert await tenant.run_output(run) is None
    assert (await tenant.run_stats("a")).total == 1
    assert [upcoming.job.id for upcoming in await tenant.preview("2h")] == ["a", "a"]
    assert (await tenant.explain("a")).reason == "no_scheduler"
    assert (await tenant.remove_job("b")).id == "b"
    assert {job.id for job in await tenant.list_jobs()} == {"a", many[1].id}
    assert (await tenant.get_job("a")) is not None
    assert await scheduler.list_jobs(namespace="default") == []


# ---------------------------------------------------------------- the fence


ON_A_FOREIGN_JOB: dict[str, Callable[[Namespace], Awaitable[object]]] = {
    "update_job": lambda view: view.update_job("a", name="x"),
    "remove_job": lambda view: view.remove_job("a"),
    "pause_job": lambda view: view.pause_job("a"),
    "resume_job": lambda view: view.resume_job("a"),
    "disable_job": lambda view: view.disable_job("a"),
    "trigger_job": lambda view: view.trigger_job("a"),
    "run_stats": lambda view: view.run_stats("a"),
    "explain": lambda view: view.explain("a"),
}


@pytest.mark.parametrize("name", ON_A_FOREIGN_JOB)
async def test_a_job_of_another_namespace_is_unknown(idle: Scheduler, name: str) -> None:
    theirs = await idle.add_job(Every("1m"), handler="work", id="a", namespace="other")

    with pytest.raises(JobNotFoundError):
        await ON_A_FOREIGN_JOB[name](idle.namespace("mine"))

    assert await idle.list_jobs() == [theirs]


async def test_nothing_of_another_namespace_can_be_read(
    new_scheduler: NewScheduler, anywhere: str, worker: Worker
) -> None:
    """Nor by the number of a run, which is easy to guess."""
    scheduler = new_scheduler(anywhere)

    @scheduler.handler("talk")
    async def talk(run: Run) -> None:
        run.write("secret")

    await scheduler.add_job(At(NOON + MINUTE), handler="talk", id="a", namespace="other")
    run = await scheduler.trigger_job("a", namespace="other")
    await scheduler.wait_for_run(run)
    mine, theirs = scheduler.namespace("mine"), scheduler.namespace("other")

    assert (await mine.get_run(run), await mine.run_output(run)) == (None, None)
    assert (await mine.run_log(), await mine.run_log("a"), await mine.list_jobs(), await mine.list()) == (
        [],
        [],
        [],
        [],
    )
    assert (await mine.get_job("a"), await mine.get("a"), await mine.preview("1h")) == (None, None, [])
    assert await theirs.run_output(run) == "secret"


async def test_a_run_of_another_namespace_is_as_good_as_unknown(scheduler: Scheduler, worker: Worker) -> None:
    worker.blocks = True
    await scheduler.add_job(Manual(), handler="work", id="a", namespace="other")
    run = await scheduler.trigger_job("a", namespace="other")

    mine = scheduler.namespace("mine")
    for call in (mine.wait_for_run(run), mine.cancel_run(run)):
        with pytest.raises(RunNotFoundError):
            await call

    assert worker.active == 1
    worker.go.set()


async def test_many_jobs_go_into_its_own_namespace_whatever_they_say(idle: Scheduler) -> None:
    theirs = await idle.add_job(Manual(), handler="work", id="a", namespace="other")
    specs = [JobSpec(Manual(), handler="work", id="a", namespace="other", on_conflict="replace", payload=1)]

    jobs = await idle.namespace("mine").add_jobs(specs)

    assert [(job.namespace, job.payload) for job in jobs] == [("mine", 1)]
    assert await idle.get_job("a", namespace="other") == theirs
    assert specs[0].namespace == "other", "a spec is a value, and stays as it is"


@pytest.mark.parametrize("call", ["add_job", "update_job", "list_jobs", "remove_job", "run_log", "preview"])
async def test_no_method_takes_a_namespace(idle: Scheduler, call: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"add_job": (Manual(),), "update_job": ("a",), "remove_job": ("a",)}
    handler = {"handler": "work"} if call == "add_job" else {}

    with pytest.raises(TypeError, match="namespace"):
        await getattr(idle.namespace("mine"), call)(*arguments.get(call, ()), namespace="other", **handler)

    assert await idle.list_jobs() == []


async def test_the_user_of_a_view_is_the_default_of_its_jobs(idle: Scheduler) -> None:
    view = idle.namespace("mine", user_id="ann")

    one = await view.add_job(Manual(), handler="work", id="1")
    other = await view.schedule(Manual(), handler="work", id="2", user_id="bo")
    many = await view.add_jobs(
        [JobSpec(Manual(), handler="work", id="3"), JobSpec(Manual(), handler="work", id="4", user_id="cy")]
    )

    assert [job.user_id for job in (one, other, *many)] == ["ann", "bo", "ann", "cy"]


# ---------------------------------------------------------------- limits


async def test_only_the_listed_handlers_may_be_used(idle: Scheduler, worker: Worker) -> None:
    """By name, as a function, in an edit, in many at once, and in a run by hand."""

    async def other() -> None: ...

    idle.handler("other")(other)
    view = idle.namespace("mine", handlers=["work"])
    job = await view.add_job(Manual(), handler=worker, id="a")
    await idle.add_job(Manual(), handler="other", id="b", namespace="mine")
    before = await idle.list_jobs()
    calls: list[Awaitable[object]] = [
        view.add_job(Manual(), handler="other"),
        view.add_job(Manual(), handler=other),
        view.schedule(Manual(), handler="other", id="a"),
        view.add_jobs([JobSpec(Manual(), handler="work"), JobSpec(Manual(), handler="other")]),
        view.update_job("a", handler="other"),
        view.update_job("a", handler=other),
        view.update_job("b", payload=1),
        view.trigger_job("b"),
    ]

    for call in calls:
        with pytest.raises(QuotaError, match=r'may not use handler "other"\. Its handlers: "work"') as caught:
            await call
        assert (caught.value.namespace, caught.value.limit) == ("mine", "handlers")

    assert await idle.list_jobs() == before
    assert job.handler == "work"
    await view.wait_for_run(await view.trigger_job("a"))


async def test_a_job_with_another_handler_is_not_resumed(idle: Scheduler) -> None:
    """Otherwise, a tenant could start a job that the operator has taken out of scheduling, now or a moment later."""
    await idle.add_job(Every("1h"), handler="other", id="off", namespace="mine", enabled=False)
    await idle.add_job(Every("1h"), handler="other", id="paused", namespace="mine")
    await idle.pause_job("paused", namespace="mine")
    view = idle.namespace("mine", handlers=["work"])
    before = await idle.list_jobs()

    for call in (view.resume_job("off"), view.resume_job("paused"), view.pause_job("paused", until="1s")):
        with pytest.raises(QuotaError, match='may not use handler "other"'):
            await call

    assert await idle.list_jobs() == before
    with pytest.raises(JobNotFoundError):
        await view.resume_job("unknown")
    assert (await view.pause_job("paused", reason="mine")).paused_reason == "mine", "to pause a job starts nothing"
    assert (await idle.namespace("mine").resume_job("off")).enabled


async def test_a_payload_has_its_largest_size_in_bytes(idle: Scheduler, worker: Worker) -> None:
    view = idle.namespace("mine", max_payload=10)
    fits, too_large = "12345678", "åäöåä"  # ten bytes with the quotes; twelve
    assert len(json.dumps(fits)) == 10
    await view.add_job(Manual(), handler="work", id="a", payload=fits)
    calls: list[Awaitable[object]] = [
        view.add_job(Manual(), handler="work", payload=too_large),
        view.add_jobs([JobSpec(Manual(), handler="work", payload=too_large)]),
        view.update_job("a", payload=too_large),
        view.trigger_job("a", payload=too_large),
    ]

    for call in calls:
        with pytest.raises(QuotaError, match=r"12 bytes of JSON, and namespace .* allows 10") as caught:
            await call
        assert caught.value.limit == "max_payload"

    await view.wait_for_run(await view.trigger_job("a"))
    assert [run.payload for run in worker.runs] == [fits]
    assert len(await idle.list_jobs()) == 1
    await idle.add_job(Manual(), handler="work", id="b", namespace="mine", payload=too_large)
    assert (await view.update_job("b", name="Large already")).payload == too_large


async def test_a_tenant_follows_only_its_own_jobs(idle: Scheduler) -> None:
    """Its runs would tell when the jobs of others run and how they end."""
    view = idle.namespace("mine")
    theirs = After("a", "any", namespace="other")
    own = await view.add_job(After("a", namespace="mine"), handler="work", id="b")
    await idle.add_job(theirs, handler="work", id="c", namespace="mine")
    before = await idle.list_jobs()

    for call in (
        view.add_job(theirs, handler="work"),
        view.schedule(theirs, handler="work", id="b"),
        view.add_jobs([JobSpec(Manual(), handler="work"), JobSpec(theirs, handler="work")]),
        view.update_job("b", schedule=theirs),
        view.update_job("b", schedule=theirs, payload=1),
    ):
        with pytest.raises(QuotaError, match='may not follow jobs of namespace "other", only its own') as caught:
            await call
        assert caught.value.limit == "schedule"

    assert await idle.list_jobs() == before
    assert (await view.update_job(own.id, schedule=After("a"))).schedule == After("a")
    assert (await view.update_job("c", name="C")).schedule == theirs, "what somebody else has set up may stay"


async def test_the_jobs_of_a_namespace_are_counted(new_scheduler: NewScheduler, anywhere: str) -> None:
    """Replacing one does not count, disabled ones do, removed ones do not, and those of others do not."""
    scheduler = new_scheduler(anywhere)
    view = scheduler.namespace("mine", max_jobs=2)
    await scheduler.add_jobs([JobSpec(Manual(), handler="work", id=str(n), namespace="other") for n in range(5)])
    await view.add_job(At(NOON), handler="work", id="a", enabled=False)
    too_many = [JobSpec(Manual(), handler="work", id=name, on_conflict="replace") for name in ("a", "b", "c")]

    with pytest.raises(QuotaError, match="at most 2 jobs; adding 2 would exceed that") as caught:
        await view.add_jobs(too_many)
    assert (caught.value.limit, [job.id for job in await view.list_jobs()]) == ("max_jobs", ["a"])
    assert (await view.list_jobs())[0].schedule == At(NOON), "nothing was changed"
    await view.add_jobs(too_many[:2])
    with pytest.raises(QuotaError):
        await view.add_job(Manual(), handler="work", id="c")
    await view.schedule(Manual(), handler="work", id="b", payload=2)
    kept = await view.add_job(Manual(), handler="work", id="b", on_conflict="keep")
    await view.remove_job("a")
    await view.add_job(Manual(), handler="work", id="c")

    assert (kept.payload, sorted(job.id for job in await view.list_jobs())) == (2, ["b", "c"])


async def test_a_limit_that_was_lowered_lets_jobs_be_changed(idle: Scheduler) -> None:
    await idle.add_jobs([JobSpec(Manual(), handler="work", id=name, namespace="mine") for name in "abc"])
    view = idle.namespace("mine", max_jobs=1)

    await view.update_job("a", name="A")
    await view.schedule(Manual(), handler="work", id="b", payload=1)
    with pytest.raises(QuotaError):
        await view.add_job(Manual(), handler="work", id="d")


async def test_two_processes_cannot_exceed_the_limit_together(shared: str) -> None:
    """The jobs are counted in the transaction that adds."""
    schedulers = [Scheduler(shared) for _ in range(4)]
    await schedulers[0].list_jobs()
    views = [scheduler.namespace("mine", max_jobs=10) for scheduler in schedulers]

    tries = [view.add_job(Manual(), handler="work") for _ in range(5) for view in views]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    jobs = await views[0].list_jobs()
    await asyncio.gather(*(scheduler.stop() for scheduler in schedulers))

    assert len(jobs) == 10
    assert sum(isinstance(answer, QuotaError) for answer in answers) == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_jobs": 0},
        {"max_jobs": -1},
        {"max_jobs": True},
        {"max_jobs": "2"},
        {"max_payload": 0},
        {"max_payload": 1.5},
        {"handlers": "work"},
        {"handlers": 5},
        {"handlers": [None]},
        {"handlers": [""]},
        {"user_id": 5},
        {"user_id": ""},
    ],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidJobError) as caught:
        Scheduler(":memory:").namespace("mine", **wrong)

    assert caught.value.field in wrong


@pytest.mark.parametrize("name", ["", " a", 5, None, "\n"])
def test_a_namespace_has_a_proper_name(name: Any) -> None:
    with pytest.raises(SchedulerError):
        Scheduler(":memory:").namespace(name)


async def test_a_tenant_with_an_empty_list_uses_no_handler(idle: Scheduler) -> None:
    with pytest.raises(QuotaError, match="Its handlers: none"):
        await idle.namespace("mine", handlers=[]).add_job(Manual(), handler="work")


# ---------------------------------------------------------------- groups


async def test_a_group_is_limited_in_each_namespace_and_across_all(
    new_scheduler: NewScheduler, anywhere: str, clock: VirtualClock, worker: Worker
) -> None:
    """Both limits may be given: two in each, three in all."""
    scheduler = new_scheduler(anywhere, group_limits={"mail": 2, "*/mail": 3})
    worker.takes = timedelta(seconds=10)
    await scheduler.start()
    for name in ("one", "two"):
        specs = [JobSpec(At(NOON), handler="work", id=f"{name}{n}", group="mail") for n in range(4)]
        await scheduler.namespace(name).add_jobs(specs)

    await clock.advance("5s")

    running = [run.namespace for run in worker.runs]
    assert (len(running), max(running.count("one"), running.count("two"))) == (3, 2)
    await clock.advance("1m")
    assert (len(worker.runs), worker.most_active) == (8, 3)


async def test_the_fence_reads_only_the_row_of_a_run(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback, its payload and the edits of its job do not matter for its namespace."""
    mine = scheduler.namespace("mine")
    await mine.add_job(Manual(), handler="work", id="a")
    run = await mine.trigger_job("a")
    assert run is not None
    await mine.wait_for_run(run)
    monkeypatch.setattr(scheduler._store, "details_of", None)

    assert await mine.run_output(run) is None
    assert await scheduler.namespace("other").run_output(run) is None
    with pytest.raises(RunNotFoundError):
        await scheduler.namespace("other").wait_for_run(run)


async def test_metadata_and_cursors_are_limited_like_payloads(idle: Scheduler) -> None:
    """A tenant could store anything in them."""
    view = idle.namespace("mine", max_payload=10)
    job = await view.add_job(Manual(), handler="work", id="a", metadata={"a": 1})
    large = "x" * 20

    for change in (
        view.add_job(Manual(), handler="work", id="b", metadata={"a": large}),
        view.add_jobs([JobSpec(Manual(), handler="work", id="c", metadata={"a": large})]),
        view.update_job("a", metadata={"a": large}),
        view.update_job("a", cursor=large),
    ):
        with pytest.raises(QuotaError, match=r"has 2\d bytes of JSON, and namespace") as caught:
            await change
        assert caught.value.limit == "max_payload"

    assert await view.list_jobs() == [job]
    edited = await view.update_job("a", cursor=17, name="renamed")
    assert (edited.cursor, edited.metadata) == (17, {"a": 1})


async def test_what_was_stored_beyond_the_limit_may_stay(idle: Scheduler) -> None:
    await idle.add_job(Manual(), handler="work", id="a", namespace="mine", metadata={"a": "x" * 20})
    view = idle.namespace("mine", max_payload=10)

    assert (await view.update_job("a", name="renamed")).name == "renamed"
