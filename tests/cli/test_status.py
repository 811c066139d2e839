"""One screen about a store: who runs it, what runs, what failed, what is overdue."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Every, JobSpec, Manual
from scheduler_async.cli import overview as overview_module
from scheduler_async.cli.overview import InProgress, Observer, Overview
from scheduler_async.cli.status_views import bar, overview_form, screen_of
from scheduler_async.cli.terminal import HERE, console
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, SECOND, NewScheduler
from tests.cli.test_commands import (
    call,
    on_terminal,
    prepared,  # noqa: F401 - a fixture that they need
    running,
    well,
    without_colours,
)
from tests.postgres_server import url_of_schema

pytestmark = pytest.mark.once  # the version of Python does not matter


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory without a store."""
    return tmp_path


terminals = pytest.mark.skipif(sys.platform == "win32", reason="terminals")


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        pytest.param(None, "", id="not told"),
        pytest.param(0.0, "░░░░░░░░░░░░   0%", id="nothing"),
        pytest.param(0.58, "██████░░░░░░  58%", id="a part"),
        pytest.param(0.999, "███████████░  99%", id="nearly all"),
        pytest.param(1.0, "████████████ 100%", id="all"),
        pytest.param(7.0, "████████████ 100%", id="more than all"),
        pytest.param(-1.0, "░░░░░░░░░░░░   0%", id="less than nothing"),
        pytest.param(float("nan"), "", id="not a number"),
    ],
)
def test_a_progress_bar(progress: float | None, shown: str) -> None:
    assert bar(progress) == shown


def test_a_terminal_without_unicode_has_a_bar_too() -> None:
    assert bar(0.5, ascii=True) == "######------  50%"


# ---------------------------------------------------------------- what is read


def printed(overview: Overview, capsys: pytest.CaptureFixture[str]) -> str:
    console().print(screen_of(overview, "scheduler.db"))
    return capsys.readouterr().out


async def test_a_quiet_store_is_a_few_lines(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Every("1h"), handler="h", id="hourly")

    found = await Observer(scheduler, HERE).read(clock.now())

    lines = printed(found, capsys).splitlines()
    assert lines[2].startswith("No scheduler is running on this store, so no job starts.")
    assert lines[4] == "Nothing is running; no run on record has failed; no job is overdue."
    assert re.fullmatch(r"1 job: 1 idle\. Next: hourly, .*\.", lines[5])
    assert len(lines) == 6
    assert await scheduler.nodes() == []  # who looks does not join


async def test_all_that_an_operator_looks_for(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = new_scheduler(every_store, max_concurrent=1, queue_size=1)

    @scheduler.handler("slow")
    async def slow() -> None:
        await clock.sleep("1h")

    @scheduler.handler("fail")
    async def fail() -> None:
        raise OSError("no route to host")

    await scheduler.add_job(Every("1h", immediately=True), handler="fail", id="fails", namespace="t", priority="high")
    await scheduler.add_job(Every("2h", immediately=True), handler="slow", id="slow")
    await scheduler.add_job(Every("2h", immediately=True), handler="slow", id="waits", priority="low")
    await scheduler.add_job(Every("2h", immediately=True), handler="elsewhere", id="lost")
    await scheduler.add_job(Every("1d"), handler="slow", id="paused")
    await scheduler.pause_job("paused")
    await scheduler.add_job(Manual(), handler="slow", id="off", enabled=False)

    await scheduler.start()
    await clock.advance("5m")

    found = await Observer(scheduler, HERE).read(clock.now())

    (node,) = found.nodes

    assert [(one.job.id, one.job.status, one.elapsed(clock.now())) for one in found.running] == [
        ("slow", "running", 5 * MINUTE),
        ("waits", "queued", None),
    ]
    assert {row.job_id for row in found.failures} == {"fails"}
    assert [(job.id, explanation.reason) for job, explanation in found.overdue][-1] == ("lost", "no_handler")
    assert found.counts["paused"] == found.counts["disabled"] == found.counts["running"] == found.counts["queued"] == 1
    seen = printed(found, capsys)
    assert re.search(rf"^{node.id} +{node.host} +{node.pid} .* 2\b", seen, re.MULTILINE)
    assert re.search(r"^\d+ +slow +5m +", seen, re.MULTILINE)
    assert re.search(r"^\d+ +waits +queued +", seen, re.MULTILINE)
    assert re.search(r" t/fails +error +OSError: no route to host$", seen, re.MULTILINE)
    assert re.search(r'^lost .* is due, but no running scheduler has its handler "elsewhere"\.', seen, re.MULTILINE)
    assert "No scheduler" not in seen
    assert "No " not in seen.splitlines()[-2]
    form = json.loads(json.dumps(overview_form(found)))
    assert form["has_scheduler"] is True
    assert [(one["slug"], one["elapsed"]) for one in form["running"]] == [("slow", 300.0), ("waits", None)]
    assert form["running"][0]["run"]["outcome"] is None
    assert form["overdue"][-1]["reason"] == "no_handler"
    assert form["jobs"]["done"] == 0


async def test_progress_is_shown_while_it_goes_on(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = new_scheduler(every_store)

    @scheduler.handler("slow")
    async def slow() -> None:
        await clock.sleep("1h")

    await scheduler.add_job(Every("2h", immediately=True), handler="slow", id="slow")
    await scheduler.start()
    await clock.advance("90s")
    found = await Observer(scheduler, HERE).read(clock.now())
    (one,) = found.running
    assert one.run is not None
    told = InProgress(job=one.job, run=replace(one.run, progress=0.5, progress_message="6 of 12\nfiles"))

    seen = printed(replace(found, running=[told]), capsys)

    assert re.search(r"^\d+ +slow +1m 30s +██████░░░░░░  50%  6 of 12 files +\S+$", seen, re.MULTILINE)


async def test_more_than_fits_is_counted_and_not_listed(
    every_store: str,
    new_scheduler: NewScheduler,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(overview_module, "MOST_COUNTED", 10)
    scheduler = new_scheduler(every_store)
    await scheduler.add_jobs([JobSpec(Every("1h"), handler="h", id=f"job-{number}") for number in range(12)])
    clock.set(NOON + 2 * HOUR)

    found = await Observer(scheduler, HERE).read(clock.now())

    assert (found.counts["idle"], found.uncounted) == (10, ["idle"])
    assert (len(found.overdue), found.has_more_overdue) == (5, True)
    seen = printed(found, capsys)
    assert "Overdue (the first 5)\n" in seen
    assert "10+ jobs: 10+ idle." in seen


async def test_every_question_to_the_store_is_limited(
    store: str, new_scheduler: NewScheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs and runs there are; in the first look and in the next."""
    scheduler = new_scheduler(store)
    await scheduler.add_job(Every("1h"), handler="h", id="a")
    limits: list[int | None] = []

    def noting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **options: Any) -> Any:
            limits.append(options.get("limit"))
            return ask(*arguments, **options)

        return asked

    for name in ("list_jobs", "run_log"):
        monkeypatch.setattr(scheduler, name, noting(getattr(scheduler, name)))
    observer = Observer(scheduler, HERE)

    for _ in range(2):
        await observer.read(clock.now())

    assert limits
    assert all(limit is not None and limit <= 1_001 for limit in limits)


async def test_a_failure_is_seen_again_and_a_new_one_comes_first(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    """Only the first of many looks reads the whole log."""
    scheduler = new_scheduler(every_store)

    @scheduler.handler("fail")
    async def fail() -> None:
        raise OSError("no route to host")

    for number in range(7):
        await scheduler.add_job(Manual(), handler="fail", id=f"job-{number}")
    observer = Observer(scheduler, HERE)
    ids = []
    for number in range(7):
        run = await scheduler.trigger_job(f"job-{number}")
        await scheduler.wait_for_run(run)
        ids.append(run)
        clock.set(clock.now() + SECOND)
        found = await observer.read(clock.now())

        assert [row.id for row in found.failures] == sorted(ids, reverse=True)[:5]
    fresh = await Observer(scheduler, HERE).read(clock.now())
    assert [row.id for row in fresh.failures] == [row.id for row in found.failures]


async def test_a_node_without_a_heartbeat_is_no_scheduler(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = new_scheduler(every_store)
    async with scheduler:
        found = await Observer(scheduler, HERE).read(clock.now())
    dead = [replace(node, lease=timedelta(0)) for node in found.nodes]

    seen = printed(replace(found, nodes=dead), capsys)

    assert "No scheduler is running" in seen
    assert re.search(rf"^{dead[0].id} .* no heartbeat$", seen, re.MULTILINE)
    assert overview_form(replace(found, nodes=dead))["has_scheduler"] is False


# ---------------------------------------------------------------- the command


def set_progress(store: Path, progress: float, message: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE run SET progress = ?, progress_message = ? WHERE outcome IS NULL", (progress, message))


@terminals
@pytest.mark.once
def test_status_beside_a_running_service(here: Path) -> None:
    """It reads, and does not join."""
    os.mkfifo(here / "begun")
    well(here, "add", "slow", "echo >begun; sleep 600", "--after", "1h")
    well(here, "add", "fails", "exit 3", "--after", "1h", "--retries", "0")
    alone = without_colours(on_terminal(here, "status", columns=80))

    with running(here, "run") as process:
        (here / "begun").read_text()
        set_progress(here / "scheduler.db", 0.25, "a quarter")
        form = well(here, "status", "--json").json
        narrow, wide = (without_colours(on_terminal(here, "status", columns=columns)) for columns in (80, 160))
        explained = well(here, "explain", "slow", "--json").json
        nodes = well(here, "nodes", "--json").json

    assert "No scheduler is running" in alone
    assert [node["pid"] for node in nodes] == [node["pid"] for node in form["nodes"]] == [process.pid]
    assert (form["running"][0]["slug"], form["running"][0]["progress"]) == ("slow", 0.25)
    assert explained["reason"] == "already_running"
    for seen, columns in ((narrow, 80), (wide, 160)):
        assert max(map(len, seen.splitlines())) <= columns
        assert re.search(r"^\d+ +slow +\d+s +███░░░░░░░░░  25%  a quarter +", seen, re.MULTILINE)
        assert "No scheduler" not in seen


@terminals
@pytest.mark.once
def test_status_and_explain_on_postgresql(here: Path) -> None:
    store = url_of_schema(str(here))
    well(here, "add", "fails", "exit 3", "--after", "1h", "--retries", "0", "--store", store)
    well(here, "cron", "--store", store)

    form = well(here, "status", "--store", store, "--json").json
    shown = well(here, "status", "--store", store).out
    explained = well(here, "explain", "fails", "--at", "1s", "--store", store).out

    assert [row["job_id"] for row in form["failures"]] == ["fails"]
    assert (form["nodes"], form["has_scheduler"]) == ([], False)
    assert "Exited with 3" in shown
    assert 'Job "fails" ' in explained


@terminals
@pytest.mark.once
def test_a_status_is_watched_until_the_reader_has_seen_enough(here: Path) -> None:
    well(here, "add", "tick", "true", "--every", "1h")

    seen = on_terminal(here, "status", "--watch", until="Next: tick.*Next: tick")

    assert seen.count("Next: tick") >= 2
    assert "Traceback" not in seen
    assert call(here, "status", "--watch").code == 2
    assert call(here, "status", "--watch", "--json").code == 2


@terminals
@pytest.mark.once
def test_a_lost_store_is_shown_in_place(here: Path) -> None:
    """The screen says so, creates nothing, and goes on when the store is back."""
    well(here, "add", "tick", "true", "--every", "1h")
    store, away = here / "scheduler.db", here / "away.db"
    found = []

    def bring_back() -> None:
        found.append(store.exists())
        away.rename(store)

    seen = on_terminal(
        here,
        "status",
        "--watch",
        columns=160,
        steps=[
            (r"Next: tick", lambda: store.rename(away)),
            (r"Cannot read the store; trying again every second\. Store scheduler\.db does not exist\.", bring_back),
        ],
        until=r"scheduler\.db, [\d:]+ CES?T\S*\s+\S*No scheduler.*Next: tick",
    )

    assert found == [False]
    assert "Traceback" not in seen


@terminals
@pytest.mark.once
def test_a_store_that_is_replaced_is_read_anew(here: Path) -> None:
    """The old file could still be read, and would never change."""
    well(here, "add", "old", "true", "--every", "1h")
    well(here, "add", "new", "true", "--every", "1h", "--store", "other.db")

    seen = on_terminal(
        here,
        "status",
        "--watch",
        steps=[(r"Next: old", lambda: (here / "other.db").replace(here / "scheduler.db"))],
        until=r"Next: new",
    )

    assert "Cannot read the store" in seen


def test_a_store_that_does_not_exist_is_not_created(here: Path) -> None:
    done = call(here, "status")

    assert (done.code, done.out) == (1, "")
    assert "Store scheduler.db does not exist." in done.err
    assert not (here / "scheduler.db").exists()
