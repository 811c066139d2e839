"""Who changed a job, when and how; when which schedulers ran; and what remains of removed and ended jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    ChangeRow,
    Cron,
    Every,
    InvalidJobError,
    InvalidScheduleError,
    JobExistsError,
    JobSpec,
    Manual,
    NodeSpan,
    Retry,
    Run,
    Scheduler,
    acting_as,
)
from scheduler_async.engine.janitor import KEEP_HISTORY
from scheduler_async.stores.messages import FEW_JOBS, NodeIdentity
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import DAY, HOUR, MINUTE, NOON, NewScheduler, Worker
from tests.postgres_server import url_of_schema

pytestmark = pytest.mark.once  # the version of Python does not matter

STORES = ["memory", "file", pytest.param("postgres", marks=pytest.mark.once)]


LASTING = STORES[1:]
"""The stores that outlive their schedulers."""


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    paths = {"memory": ":memory:", "file": str(tmp_path / "jobs.db")}
    return paths.get(request.param) or url_of_schema(str(tmp_path))


@pytest.fixture
async def new(address: str, clock: VirtualClock) -> AsyncIterator[NewScheduler]:
    """Makes schedulers on one store; they are stopped at the end."""
    made: list[Scheduler] = []

    def make(**options: Any) -> Scheduler:
        scheduler = Scheduler(address, clock=clock, **options)
        scheduler.handler("work")(work)
        scheduler.handler("fail")(fail)
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        await scheduler.stop()


@pytest.fixture
def scheduler(new: NewScheduler) -> Scheduler:
    return new()


async def work(run: Run) -> object:
    return run.payload if isinstance(run.payload, bool) else None


async def fail() -> None:
    raise ValueError("no")


def told(rows: list[ChangeRow]) -> list[tuple[object, ...]]:
    return [(row.action, row.before, row.after) for row in rows]


EVERY_5M = {"version": 1, "kind": "every", "interval": "5m"}

# ---------------------------------------------------------------- what is on record


async def test_adding_a_job_records_what_was_given(scheduler: Scheduler) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a")

    (row,) = await scheduler.changes("a")

    assert (row.at, row.namespace, row.job_id, row.action) == (NOON, "default", "a", "add")
    assert (row.actor, row.via, row.reason, row.before) == (None, None, None, {})
    assert row.after == {"schedule": EVERY_5M, "handler": "work"}


GIVEN: dict[str, Any] = {
    "user_id": 'ann "the" ö',
    "name": "A\\B",
    "payload": {"a": [1, "ö", None]},
    "metadata": {"team": 'x"y'},
    "priority": "high",
    "group": "g",
    "misfire": "skip",
    "retry": Retry.in_window(3),
    "timeout": "90m",
    "on_interrupt": "skip",
}


async def test_every_field_of_a_new_job_is_told_as_json(scheduler: Scheduler) -> None:
    job = await scheduler.add_job(Cron("0 9 * * *", tz="UTC"), handler='w"o', id="a", **GIVEN)
    await scheduler.add_job(Manual(), handler="work", id="off", enabled=False)

    (row,) = await scheduler.changes("a")
    (off,) = await scheduler.changes("off")

    expected = {**GIVEN, "retry": Retry.in_window(3).to_json(), "handler": 'w"o', "schedule": job.schedule.to_json()}
    assert row.after == expected
    assert off.after == {"schedule": Manual().to_json(), "handler": "work", "enabled": False}


@pytest.mark.parametrize("timeout", ["2d", "3h", "90m", "90s", timedelta(milliseconds=1500)])
async def test_a_new_timeout_reads_as_a_changed_one(scheduler: Scheduler, timeout: str | timedelta) -> None:
    """The store writes the one, and Python the other."""
    await scheduler.add_job(Manual(), handler="work", id="a", timeout=timeout)
    await scheduler.add_job(Manual(), handler="work", id="b")
    await scheduler.update_job("b", timeout=timeout)

    (added,) = await scheduler.changes("a")
    (edited, _) = await scheduler.changes("b")

    assert added.after["timeout"] == edited.after["timeout"]


async def test_an_edit_tells_only_what_changed(scheduler: Scheduler) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a", payload={"to": "ops"})

    await scheduler.update_job("a", timeout="10m", payload={"to": "dev"}, name=None)
    await scheduler.update_job("a", schedule=Every("1h"))
    await scheduler.update_job("a", timeout="10m")

    assert told(await scheduler.changes("a"))[:-1] == [
        ("edit", {"schedule": EVERY_5M}, {"schedule": Every("1h").to_json()}),
        ("edit", {"payload": {"to": "ops"}, "timeout": None}, {"payload": {"to": "dev"}, "timeout": "10m"}),
    ]


async def test_an_upsert_that_changes_nothing_writes_no_row(scheduler: Scheduler) -> None:
    for _ in range(2):
        await scheduler.add_job(Every("5m"), handler="work", id="a", on_conflict="replace")
        await scheduler.add_job(Every("5m"), handler="work", id="a", on_conflict="keep")

    assert [row.action for row in await scheduler.changes("a")] == ["add"]


async def test_pausing_resuming_disabling_and_removing_are_told_newest_first(scheduler: Scheduler) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a")
    await scheduler.pause_job("a")
    await scheduler.pause_job("a")
    await scheduler.resume_job("a")
    await scheduler.disable_job("a", reason="the supplier is gone")
    await scheduler.update_job("a", enabled=True)
    await scheduler.update_job("a", enabled=False)
    await scheduler.remove_job("a")

    rows = await scheduler.changes("a")

    assert [row.action for row in rows] == ["remove", "disable", "resume", "disable", "resume", "pause", "add"]
    assert [row.number for row in rows] == sorted((row.number for row in rows), reverse=True)
    assert (rows[3].reason, rows[3].after) == (
        "the supplier is gone",
        {"status": "disabled", "enabled": False, "disabled_reason": "the supplier is gone"},
    )
    assert (rows[5].before, rows[5].after) == ({"status": "idle"}, {"status": "paused"})


async def test_a_trigger_is_told_with_who_asked_for_it(scheduler: Scheduler) -> None:
    await scheduler.add_job(Manual(), handler="work", id="a")

    with acting_as("anna"):
        run = await scheduler.trigger_job("a")
        await scheduler.wait_for_run(run)

    row = (await scheduler.changes("a"))[0]
    assert (row.action, row.actor, row.via) == ("trigger", "anna", None)
    assert (row.before, row.after) == ({}, {"run": run})


async def test_a_request_and_a_cancellation_name_their_run(idle: Scheduler) -> None:
    await idle.add_job(Manual(), handler="nowhere", id="a")

    run = await idle.trigger_job("a", anywhere=True)
    await idle.cancel_run(run, reason="enough")

    cancelled, asked, _ = await idle.changes("a")
    assert [(row.action, row.reason, row.after) for row in (cancelled, asked)] == [
        ("cancel", "enough", {"run": run}),
        ("trigger", None, {"run": run}),
    ]


async def test_a_refused_change_is_not_on_record(scheduler: Scheduler) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a")
    fresh, taken = (JobSpec(Every("5m"), handler="work", id=name) for name in ("b", "a"))

    with pytest.raises(JobExistsError):
        await scheduler.add_jobs([fresh, taken])

    assert [row.job_id for row in await scheduler.changes()] == ["a"]


async def test_a_job_that_is_added_and_replaced_at_once_is_told_once(scheduler: Scheduler) -> None:
    """Nobody saw what was between."""
    first = JobSpec(Every("5m"), handler="work", id="a")
    second = JobSpec(Every("5m"), handler="work", id="a", name="second", on_conflict="replace")

    await scheduler.add_jobs([first, second])

    (row,) = await scheduler.changes("a")
    assert (row.action, row.after.get("name")) == ("add", "second")


async def test_a_value_of_any_size_is_told_up_to_a_limit(scheduler: Scheduler) -> None:
    """An edit keeps two copies of it for three months."""
    await scheduler.add_job(Manual(), handler="work", id="a", payload="x" * 70_000)
    await scheduler.update_job("a", payload="y" * 80_000)

    edited, added = await scheduler.changes("a")

    assert added.after["payload"] == "70002 characters of JSON are too many to keep"
    assert (edited.before["payload"], edited.after["payload"]) == (
        added.after["payload"],
        "80002 characters of JSON are too many to keep",
    )


# ---------------------------------------------------------------- who did it


async def test_the_actor_is_named_across_awaits_and_for_the_tasks_of_the_block(scheduler: Scheduler) -> None:
    async def pause() -> None:
        await asyncio.sleep(0)
        await scheduler.pause_job("a")

    with acting_as("anna", via="admin"):
        await scheduler.add_job(Every("5m"), handler="work", id="a")
        with acting_as("bob"):
            await scheduler.update_job("a", name="b")
        task = asyncio.create_task(pause())
    await task
    await scheduler.resume_job("a")

    rows = await scheduler.changes("a")
    assert [(row.action, row.actor, row.via) for row in rows] == [
        ("resume", None, None),
        ("pause", "anna", "admin"),
        ("edit", "bob", None),
        ("add", "anna", "admin"),
    ]


@pytest.mark.parametrize("actor", ["", " anna", "a\nb", "x" * 201, 7])
def test_an_actor_has_a_name(actor: Any) -> None:
    with pytest.raises(InvalidJobError, match="actor must"), acting_as(actor):
        pytest.fail("it was accepted")


async def test_the_scheduler_disables_after_failures_and_says_so(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1h"), handler="fail", id="a", retry=Retry.backoff(disable_after=2))
    with acting_as("anna"):
        await scheduler.start()
    await clock.advance("3h")

    row = (await scheduler.changes("a"))[0]

    assert (row.action, row.actor, row.after["enabled"]) == ("disable", "scheduler", False)
    assert row.reason == (await scheduler.get_job("a")).disabled_reason  # type: ignore[union-attr]
    assert len(await scheduler.changes("a")) == 2


async def test_a_handler_that_answers_false_is_told(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1h"), handler="work", id="a", payload=False)
    await scheduler.start()
    await clock.advance("1h")

    row = (await scheduler.changes("a"))[0]

    assert (row.action, row.actor) == ("disable", "scheduler")


async def test_a_job_edited_during_its_last_run_is_disabled_on_record(
    scheduler: Scheduler, clock: VirtualClock
) -> None:
    """The ending of such a run takes another way through the store."""

    async def renamed(run: Run) -> bool:
        await scheduler.update_job("a", name="new")
        return False

    scheduler.handler("renamed")(renamed)
    await scheduler.add_job(Every("1h"), handler="renamed", id="a")
    await scheduler.start()
    await clock.advance("1h")

    assert [row.action for row in await scheduler.changes("a")] == ["disable", "edit", "add"]


@pytest.mark.parametrize("address", LASTING, indirect=True)
async def test_jobs_without_a_user_are_disabled_by_the_scheduler(new: NewScheduler, address: str) -> None:
    first = new()
    await first.add_job(Every("1h"), handler="work", id="a")
    await first.stop()
    second = new(require_user=True)
    await second.start()

    row = (await second.changes("a"))[0]

    assert (row.action, row.actor) == ("disable", "scheduler")
    assert "user_id" in str(row.reason)


async def test_a_schedule_that_ends_is_not_a_change(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="a")
    await scheduler.start()
    await clock.advance("2h")

    assert [row.action for row in await scheduler.changes("a")] == ["add"]


async def test_a_declared_job_is_added_by_its_declaration(scheduler: Scheduler) -> None:
    scheduler.job(Every("1h"), id="a")(lambda: None)
    await scheduler.start()

    (row,) = await scheduler.changes("a")

    assert (row.action, row.actor, row.via) == ("add", None, "declaration")


# ---------------------------------------------------------------- asking


async def test_changes_can_be_asked_by_job_namespace_time_and_number(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a")
    await scheduler.add_job(Every("5m"), handler="work", id="a", namespace="other")
    clock.set(NOON + HOUR)
    await scheduler.pause_job("a")

    async def asked(*args: Any, **filters: Any) -> list[tuple[str, str]]:
        return [(row.namespace, row.action) for row in await scheduler.changes(*args, **filters)]

    assert await asked() == [("default", "pause"), ("other", "add"), ("default", "add")]
    assert await asked("a") == [("default", "pause"), ("default", "add")]
    assert await asked("a", namespace="other") == await asked(namespace="other") == [("other", "add")]
    assert await asked(since=NOON + MINUTE) == await asked("a", since=NOON + HOUR) == [("default", "pause")]
    assert await asked(since=NOON + 2 * HOUR) == await asked("missing") == await asked(namespace="missing") == []
    assert await asked(limit=1) == [("default", "pause")]
    assert len(await asked(limit=None)) == 3


async def test_a_change_is_found_among_many_by_its_time(scheduler: Scheduler, clock: VirtualClock) -> None:
    for day in range(40):
        clock.set(NOON + day * DAY)
        await scheduler.add_job(Every("5m"), handler="work", id=f"job{day}")

    rows = await scheduler.changes(since=NOON + 37 * DAY)

    assert [row.job_id for row in rows] == ["job39", "job38", "job37"]


async def test_the_changes_of_a_large_namespace_are_found(scheduler: Scheduler) -> None:
    for first in range(0, FEW_JOBS + 2, 501):
        await scheduler.add_jobs([JobSpec(Manual(), handler="work", id=f"{first + n}") for n in range(501)])
    await scheduler.add_job(Manual(), handler="work", id="other", namespace="other")

    rows = await scheduler.changes(namespace="default", since=NOON, limit=2)

    assert [(row.namespace, row.action) for row in rows] == [("default", "add")] * 2
    assert len(await scheduler.changes(namespace="default", limit=None)) == 1002


async def test_bad_questions_are_refused(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidScheduleError, match="no time zone"):
        await scheduler.changes(since=NOON.replace(tzinfo=None))
    with pytest.raises(InvalidScheduleError, match="no time zone"):
        await scheduler.node_history(NOON.replace(tzinfo=None))
    with pytest.raises(InvalidJobError, match="limit"):
        await scheduler.changes(limit=-1)
    with pytest.raises(InvalidJobError, match="ended must be"):
        await scheduler.list_jobs(ended="yes")  # type: ignore[arg-type]


async def test_a_change_has_a_json_form(scheduler: Scheduler) -> None:
    await scheduler.add_job(Every("5m"), handler="work", id="a")

    (row,) = await scheduler.changes("a")

    assert row.to_json() == {
        "number": row.number,
        "at": "2026-01-05T12:00:00Z",
        "namespace": "default",
        "job_id": "a",
        "action": "add",
        **dict.fromkeys(("actor", "via", "reason")),
        "before": {},
        "after": {"schedule": EVERY_5M, "handler": "work"},
    }


# ---------------------------------------------------------------- removed jobs


async def test_a_removed_job_keeps_its_changes_for_a_while(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Also one that never ran."""
    await scheduler.add_job(Every("1000d"), handler="work", id="a")
    await scheduler.remove_job("a")
    await scheduler.start()

    await clock.advance("6d")
    assert [row.action for row in await scheduler.changes("a")] == ["remove", "add"]
    assert len(await scheduler.changes()) == 2
    await clock.advance("2d")

    assert await scheduler.changes("a") == await scheduler.changes() == []


async def test_a_run_of_a_removed_job_keeps_its_payload_for_a_while(scheduler: Scheduler, clock: VirtualClock) -> None:
    """As long as its changes tell the payload too."""
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", payload={"to": "ops"})
    await scheduler.run_pending()
    (run,) = await scheduler.run_log("a")
    await scheduler.remove_job("a")

    assert getattr(await scheduler.get_run(run.id), "payload", None) == {"to": "ops"}
    await scheduler.start()
    await clock.advance("8d")
    assert await scheduler.get_run(run.id) is None


async def test_a_payload_that_was_too_large_to_keep_is_unknown(scheduler: Scheduler) -> None:
    """The text that stands for it in the changes is not what the run got."""
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", payload="x" * 70_000)
    await scheduler.run_pending()
    (run,) = await scheduler.run_log("a")
    assert getattr(await scheduler.get_run(run.id), "payload", None) == "x" * 70_000

    await scheduler.update_job("a", payload="short")
    await scheduler.update_job("a", payload="shorter")

    row = await scheduler.get_run(run.id)
    assert row is not None
    assert row.payload is None


async def test_a_removal_tells_what_the_job_was(scheduler: Scheduler) -> None:
    """It has no other trace once its earlier changes are gone, and somebody may want it back."""
    await scheduler.add_job(Every("5m"), handler="work", id="a", payload={"to": "ops"}, priority="high")
    await scheduler.update_job("a", timeout="10m", max_instances=2)
    await scheduler.pause_job("a", reason="repairs")

    await scheduler.remove_job("a")

    row = (await scheduler.changes("a"))[0]
    assert (row.action, row.after) == ("remove", {})
    assert row.before == {
        "schedule": EVERY_5M,
        "handler": "work",
        "payload": {"to": "ops"},
        "priority": "high",
        "timeout": "10m",
        "max_instances": 2,
        "status": "paused",
        "paused_reason": "repairs",
    }


async def test_a_large_payload_is_known_after_the_job_was_removed(scheduler: Scheduler) -> None:
    """The record of the removal has only a note of its size."""
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", payload="x" * 70_000)
    await scheduler.run_pending()
    (run,) = await scheduler.run_log("a")

    await scheduler.remove_job("a")

    assert getattr(await scheduler.get_run(run.id), "payload", None) == "x" * 70_000


async def test_a_job_that_is_added_again_does_not_inherit_the_past(scheduler: Scheduler) -> None:
    for name in ("first", "second"):
        await scheduler.add_job(Manual(), handler="work", id="a", name=name)
        await scheduler.wait_for_run(await scheduler.trigger_job("a"))
        await scheduler.remove_job("a")
    await scheduler.add_job(Manual(), handler="work", id="a", name="third")

    assert [row.after.get("name") for row in await scheduler.changes("a")] == ["third"]
    assert await scheduler.run_log("a") == []
    await scheduler.remove_job("a")
    actions = [row.action for row in await scheduler.changes("a")]
    assert actions == ["remove", "add", *["remove", "trigger", "add"] * 2]
    assert len(await scheduler.run_log("a")) == 2


async def test_changes_are_forgotten_after_ninety_days(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(Every("1000d"), handler="work", id="a")
    clock.set(NOON + 50 * DAY)
    await scheduler.pause_job("a")
    clock.set(NOON + timedelta(microseconds=KEEP_HISTORY) + HOUR)
    await scheduler.start()
    await clock.advance("2d")

    assert [row.action for row in await scheduler.changes("a")] == ["pause"]


# ---------------------------------------------------------------- ended jobs


async def test_an_ended_job_says_so_and_can_be_left_out(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="once")
    await scheduler.add_job(Every("1h"), handler="work", id="often")
    await scheduler.add_job(Every("1h"), handler="work", id="off", enabled=False)
    await scheduler.start()
    await clock.advance("2h")

    jobs = {job.id: job for job in await scheduler.list_jobs()}

    assert {name: job.ended for name, job in jobs.items()} == {"once": True, "often": False, "off": False}
    assert jobs["once"].status == "disabled"
    assert {job.id for job in await scheduler.list_jobs(ended=False)} == {"often", "off"}
    assert {job.id for job in await scheduler.list_jobs(ended=True)} == {"once"}
    assert {job.id for job in await scheduler.list_jobs(ended=None)} == {*jobs}
    assert [job.id for job in await scheduler.namespace("default").list(ended=True)] == ["once"]


async def test_a_job_that_has_ended_stays_ended_when_it_is_disabled(scheduler: Scheduler) -> None:
    await scheduler.add_job(At(NOON), handler="work", id="done")
    await scheduler.add_job(At(NOON), handler="work", id="gives up", payload=False)
    await scheduler.add_job(At(NOON), handler="fail", id="failed")
    await scheduler.run_pending()
    before = await scheduler.changes("done")

    for job_id in ("done", "gives up"):
        assert (await scheduler.disable_job(job_id)).ended

    assert [job.id for job in await scheduler.list_jobs(ended=False)] == ["failed"]
    assert await scheduler.changes("done") == before
    (failed,) = await scheduler.list_jobs(ended=False)
    assert (failed.status, failed.disabled_reason) == ("disabled", "its last run failed: ValueError: no")


@pytest.mark.parametrize(
    ("options", "after", "left"),
    [
        pytest.param({}, "9d", {"off"}, id="by default after a week"),
        pytest.param({"purge_ended_after": "20d"}, "9d", {"once", "off"}, id="after another time"),
        pytest.param({"purge_ended_after": None}, "9d", {"once", "off"}, id="never"),
        # Hours, not days: disabled jobs are looked for every minute.
        pytest.param(
            {"purge_disabled_after": "1h", "purge_ended_after": None}, "3h", set(), id="with all disabled jobs"
        ),
    ],
)
async def test_ended_jobs_are_removed_in_time(
    new: NewScheduler, clock: VirtualClock, options: dict[str, Any], after: str, left: set[str]
) -> None:
    scheduler = new(**options)
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="once")
    await scheduler.add_job(Every("1h"), handler="work", id="off", enabled=False)
    await scheduler.start()
    await clock.advance(after)

    assert {job.id for job in await scheduler.list_jobs()} == left
    if "once" not in left:
        row = (await scheduler.changes("once"))[0]
        assert (row.action, row.actor) == ("remove", "scheduler")
        assert [run.outcome for run in await scheduler.run_log("once")] == ["success"]


async def test_an_ended_job_is_kept_until_its_time_has_come(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="once")
    await scheduler.start()
    await clock.advance("6d")

    assert await scheduler.get_job("once") is not None


# ---------------------------------------------------------------- the lives of nodes


def lived(spans: list[NodeSpan]) -> list[tuple[object, ...]]:
    return [(span.since, span.until, span.how) for span in spans]


@pytest.mark.parametrize("address", LASTING, indirect=True)
async def test_the_history_tells_when_schedulers_ran(new: NewScheduler, clock: VirtualClock, address: str) -> None:
    scheduler = new()
    await scheduler.start()
    await clock.advance("1h")
    await scheduler.stop()
    clock.set(NOON + 3 * HOUR)
    await scheduler.start()

    now, before = await scheduler.node_history()

    assert lived([now, before]) == [(NOON + 3 * HOUR, None, "running"), (NOON, NOON + HOUR, "left")]
    (node,) = await scheduler.nodes()
    assert (now.name, now.host, now.pid) == (node.id, node.host, node.pid)
    assert lived(await scheduler.node_history(NOON + 2 * HOUR)) == lived([now])
    assert now.to_json()["how"] == "running"


@pytest.mark.parametrize("address", ["file"], indirect=True)
async def test_the_history_of_schedulers_has_a_limit(new: NewScheduler, clock: VirtualClock, address: str) -> None:
    """A crontab may start 130,000 of them in 90 days. Those that run come first, then those that ended last."""
    scheduler = new()
    await scheduler.start()
    store: Any = scheduler._store
    insert = "INSERT INTO node_span VALUES (?, 'a', 'b', 7, ?, ?, 'left')"
    rows = [(100 + number, to_micros(NOON) + number, to_micros(NOON) + number + 1) for number in range(1_100)]
    await store._write(lambda db: db.executemany(insert, rows))

    assert len(await scheduler.node_history()) == 1_000
    assert len(await scheduler.node_history(limit=None)) == 1_101
    assert [span.how for span in await scheduler.node_history(limit=2)] == ["left", "running"]
    assert await scheduler.node_history(limit=0) == []
    with pytest.raises(InvalidJobError, match="limit must be"):
        await scheduler.node_history(limit=-1)


async def test_a_store_in_memory_knows_its_own_node(clock: VirtualClock) -> None:
    async with Scheduler(":memory:", clock=clock) as scheduler:
        assert lived(await scheduler.node_history()) == [(NOON, None, "running")]


GONE = NodeIdentity(name="gone", host="elsewhere", pid=7, process_start="1")


async def test_a_node_that_died_is_lost_since_its_last_heartbeat(scheduler: Scheduler, clock: VirtualClock) -> None:
    await scheduler._engine.ready()
    store = scheduler._store
    number = await store.join(GONE, to_micros(NOON))
    me = await store.join(NodeIdentity(name="me", host="here", pid=8, process_start="1"), to_micros(NOON))
    (dead,) = (node for node in await store.beat(me) if node.id == number)

    await store.recover([dead], to_micros(NOON + HOUR), scheduler._engine.setting.rules)

    span = next(span for span in await scheduler.node_history() if span.name == "gone")
    # Heartbeats tell real time, which is not within this life in virtual time: then it is when the others noticed.
    assert (span.since, span.until, span.how) == (NOON, NOON + HOUR, "lost")


@pytest.mark.parametrize("address", ["file"], indirect=True)
async def test_a_node_whose_row_is_gone_without_a_trace_counts_as_lost(
    scheduler: Scheduler, clock: VirtualClock, address: str
) -> None:
    await scheduler._engine.ready()
    store: Any = scheduler._store
    await store.join(GONE, to_micros(NOON))
    await store._write(lambda db: db.execute("DELETE FROM node"))

    assert lived(await scheduler.node_history()) == [(NOON, None, "lost")]

    clock.set(NOON + HOUR)
    await scheduler.start()

    assert lived(await scheduler.node_history()) == [(NOON + HOUR, None, "running"), (NOON, NOON + HOUR, "lost")]


@pytest.mark.parametrize("address", LASTING, indirect=True)
async def test_old_lives_are_forgotten(new: NewScheduler, clock: VirtualClock, address: str) -> None:
    scheduler = new()
    await scheduler.start()
    await scheduler.stop()
    clock.set(NOON + 100 * DAY)
    await scheduler.start()
    await scheduler.stop()

    assert [span.how for span in await scheduler.node_history()] == ["left"]


async def test_a_declared_job_that_has_ended_is_not_purged(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, worker: Worker
) -> None:
    """The next start would add it again, and run it a second time."""
    for _ in range(3):
        scheduler = new_scheduler(path, knows_work=False)
        scheduler.job(At(NOON + HOUR), id="once")(worker)
        await scheduler.start()
        await clock.advance("10d")
        await scheduler.stop()

    assert len(worker.runs) == 1
