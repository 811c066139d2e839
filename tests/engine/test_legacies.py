"""What a run leaves: its traceback, its payload, its result and its cursor, on every store."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import (
    At,
    Delay,
    Event,
    EventKind,
    Every,
    InvalidJobError,
    Job,
    JobSpec,
    Manual,
    Outcome,
    Result,
    Retry,
    Run,
    RunRow,
    Scheduler,
    SchedulerError,
    Status,
)
from scheduler_async.testing import VirtualClock
from scheduler_async.texts import CUT, LONGEST
from tests.cast import HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker, job_of, started
from tests.postgres_server import url_of_schema
from tests.test_texts import Hostile

pytestmark = pytest.mark.once  # the version of Python does not matter

KIB = 1024


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return url_of_schema(str(tmp_path))
    return ":memory:" if request.param == "memory" else str(tmp_path / "jobs.db")


async def row_of(scheduler: Scheduler, run_id: int) -> RunRow:
    row = await scheduler.get_run(run_id)
    assert row is not None
    return row


async def ran(scheduler: Scheduler, id: str = "a", **given: Any) -> RunRow:
    """The row of a run by hand, once it has ended."""
    run_id = await scheduler.trigger_job(id, **given)
    await scheduler.wait_for_run(run_id)
    return await row_of(scheduler, run_id)


# ---------------------------------------------------------------- tracebacks


async def test_a_failure_keeps_its_traceback(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    """One line of an error rarely tells where it came from."""
    worker.answer = ValueError("no")
    await scheduler.add_job(At(NOON), handler="work", id="a")

    await clock.advance()

    (listed,) = await scheduler.run_log("a")
    row = await row_of(scheduler, listed.id)
    assert row.traceback is not None
    assert row.traceback.startswith("Traceback (most recent call last):")
    assert row.traceback.endswith("ValueError: no")
    assert "raise self.answer" in row.traceback
    assert row.traceback.splitlines()[1].endswith("in __call__")  # of the worker: no call of the scheduler comes first
    assert (listed.traceback, row.claimed_at) == (None, NOON)


async def test_the_traceback_of_a_function_in_a_thread_begins_with_the_function(scheduler: Scheduler) -> None:
    @scheduler.handler("divide")
    def divide() -> float:
        return 1 / 0

    await scheduler.add_job(Manual(), handler="divide", id="a")

    row = await row_of(scheduler, (await scheduler.run_job("a")).id)

    assert row.traceback is not None
    assert row.traceback.splitlines()[1].endswith("in divide")


@pytest.mark.parametrize(
    "answer", [None, Result(Outcome.ERROR, message="bad"), Outcome.SKIPPED], ids=["a success", "an answer", "a skip"]
)
async def test_a_run_that_did_not_raise_has_no_traceback(scheduler: Scheduler, worker: Worker, answer: object) -> None:
    worker.answer = answer
    await scheduler.add_job(Manual(), handler="work", id="a")

    assert (await ran(scheduler)).traceback is None


async def test_a_payload_that_does_not_fit_needs_no_traceback(scheduler: Scheduler) -> None:
    """The handler was not called, and the sentence says it all."""

    async def send(channel: int) -> None: ...

    await scheduler.add_job(Manual(), handler="send", id="a", payload={"channel": "x"})
    scheduler.handler(send)

    row = await ran(scheduler)
    assert (row.outcome, row.traceback) == (Outcome.ERROR, None)


async def test_a_thread_that_fails_or_exits_leaves_a_traceback(scheduler: Scheduler) -> None:
    def fail(how: str) -> None:
        raise {"fails": ValueError("no"), "exits": SystemExit(3), "is interrupted": KeyboardInterrupt()}[how]

    for how, last in {
        "fails": "ValueError: no",
        "exits": "SystemExit: 3",
        "is interrupted": "KeyboardInterrupt",
    }.items():
        await scheduler.add_job(Manual(), handler=fail, id=how, payload={"how": how})
        row = await ran(scheduler, how)
        assert row.outcome is Outcome.ERROR
        assert str(row.traceback).splitlines()[-1] == last


async def test_a_long_traceback_is_cut_with_a_mark(scheduler: Scheduler, worker: Worker) -> None:
    worker.answer = ValueError("é" * LONGEST)
    await scheduler.add_job(Manual(), handler="work", id="a")

    traceback = (await ran(scheduler)).traceback

    assert traceback is not None
    assert traceback.endswith(CUT)
    assert len(traceback.encode()) <= 64 * KIB


async def test_an_exception_that_fights_back_harms_nothing(scheduler: Scheduler, worker: Worker) -> None:
    worker.answer = Hostile()
    await scheduler.add_job(Manual(), handler="work", id="a")

    row = await ran(scheduler)

    assert row.outcome is Outcome.ERROR
    assert row.traceback is not None


async def test_characters_that_few_stores_keep_come_back(scheduler: Scheduler, worker: Worker) -> None:
    worker.answer = ValueError("\0 \uffff €")
    await scheduler.add_job(Manual(), handler="work", id="a")

    assert str((await ran(scheduler)).traceback).endswith("ValueError: \0 \uffff €")


async def test_a_traceback_goes_with_its_row(
    new_scheduler: NewScheduler, store: str, worker: Worker, clock: VirtualClock
) -> None:
    """What is purged takes no room."""
    scheduler = new_scheduler(store, keep_runs=1, retry=Retry.none())
    worker.answer = ValueError("no")
    await scheduler.start()
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("2h")

    rows = await scheduler.run_log("a", limit=None)
    assert len(rows) < 10
    assert (await row_of(scheduler, rows[0].id)).traceback
    assert await scheduler.get_run(1) is None


async def test_an_event_about_a_failure_carries_the_exception(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """A program can tell errors apart by their class."""
    events = scheduler.events()
    worker.answer = error = ValueError("no")
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    worker.answer = None
    await scheduler.add_job(At(NOON), handler="work", id="b")
    await clock.advance()
    await scheduler.stop()

    ended = [event async for event in events if event.kind is EventKind.RUN_FINISHED]
    assert [event.exception for event in ended] == [error, None]


# ---------------------------------------------------------------- payloads


async def test_a_row_has_the_payload_that_its_run_got(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(At(NOON), handler="work", id="a", payload={"to": ["ops", None]})
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert (await row_of(scheduler, row.id)).payload == {"to": ["ops", None]}
    assert row.payload is None


async def test_a_run_by_hand_keeps_its_own_payload(scheduler: Scheduler) -> None:
    """Also the payload of its job, which may be edited at the same moment."""
    await scheduler.add_job(Manual(), handler="work", id="a", payload={"to": "ops"})

    own, of_job = await ran(scheduler, payload={"to": "\0"}), await ran(scheduler)
    await scheduler.update_job("a", payload={"to": "dev"})
    edited = await ran(scheduler)

    rows = [await row_of(scheduler, row.id) for row in (own, of_job, edited)]
    assert [row.payload for row in rows] == [{"to": "\0"}, {"to": "ops"}, {"to": "dev"}]


async def test_no_row_has_no_details(scheduler: Scheduler) -> None:
    assert await scheduler.get_run(999) is None


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        pytest.param({"a": [1, None]}, {"a": [1, None]}, id="an object"),
        pytest.param([1, "b"], [1, "b"], id="an array"),
        pytest.param((1, 2), [1, 2], id="a tuple"),
        pytest.param("", "", id="an empty string"),
        pytest.param("\0 € \uffff", "\0 € \uffff", id="odd characters"),
        pytest.param(0, 0, id="zero"),
        pytest.param(1.5, 1.5, id="a fraction"),
        pytest.param(True, True, id="true"),
        pytest.param({}, {}, id="an empty object"),
        pytest.param("x" * (64 * KIB - 2), "x" * (64 * KIB - 2), id="64 KiB"),
    ],
)
async def test_a_returned_json_value_is_the_result(
    scheduler: Scheduler, worker: Worker, answer: object, result: object
) -> None:
    worker.answer = answer
    await scheduler.add_job(Manual(), handler="work", id="a")

    row = await ran(scheduler)

    assert (row.outcome, row.result, row.error) == (Outcome.SUCCESS, result, None)
    assert [one.result for one in await scheduler.run_log("a")] == [result]


@pytest.mark.parametrize(
    "answer", [None, Outcome.NOOP, Result(message="fine")], ids=["nothing", "an outcome", "a result"]
)
async def test_answers_mean_what_they_meant(scheduler: Scheduler, worker: Worker, answer: object) -> None:
    worker.answer = answer
    await scheduler.add_job(Manual(), handler="work", id="a")

    row = await ran(scheduler)

    assert (row.result, row.outcome and row.outcome.is_success) == (None, True)


async def test_false_disables_the_job_and_is_no_result(scheduler: Scheduler, worker: Worker) -> None:
    worker.answer = False
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    row = await ran(scheduler)

    assert (row.result, (await job_of(scheduler)).status) == (None, Status.DISABLED)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(object(), id="an object of Python"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(float("nan"), id="not a number"),
        pytest.param({1: 2}, id="a key that is no string"),
        pytest.param("x" * (64 * KIB - 1), id="a string over 64 KiB"),
        pytest.param("€" * 30_000, id="64 KiB of bytes"),
        pytest.param([0] * 10_000_000, id="a list of millions"),
        pytest.param({"a": [["x" * 100] * 100] * 100}, id="many small parts"),
    ],
)
async def test_what_cannot_be_kept_is_left_out_with_one_warning(
    scheduler: Scheduler, worker: Worker, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning for each of a million runs would be a flood."""
    worker.answer = answer
    await scheduler.add_job(Manual(), handler="work", id="a")

    rows = [await ran(scheduler) for _ in range(3)]

    assert {(row.outcome, row.result) for row in rows} == {(Outcome.SUCCESS, None)}
    (warning,) = (record for record in caplog.records if "is not kept" in record.getMessage())
    assert warning.__dict__["job"] == "default/a"


async def test_each_job_gets_its_warning(
    scheduler: Scheduler, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.answer = object()
    for name in ("a", "b"):
        await scheduler.add_job(Manual(), handler="work", id=name)
        await ran(scheduler, name)

    assert len([record for record in caplog.records if "is not kept" in record.getMessage()]) == 2


# ---------------------------------------------------------------- cursors


def counting(scheduler: Scheduler, seen: list[Any], endings: list[object]) -> None:
    """Register a handler that counts in its cursor, and ends as *endings* say."""

    @scheduler.handler("count")
    async def count(run: Run) -> object:
        seen.append(run.cursor)
        run.cursor = {"done": 1 if run.cursor is None else run.cursor["done"] + 1}
        assert run.cursor == {"done": 1 if seen[-1] is None else seen[-1]["done"] + 1}
        ending = endings.pop(0) if endings else None
        if isinstance(ending, Exception):
            raise ending
        return ending


async def test_a_run_finds_the_cursor_of_the_last_success(scheduler: Scheduler) -> None:
    """A failure leaves the old one, so that its work is done again."""
    seen: list[Any] = []
    counting(scheduler, seen, [None, ValueError("no"), Outcome.NOOP, Outcome.SKIPPED, Result("error"), None])
    await scheduler.add_job(Manual(), handler="count", id="a")
    assert (await job_of(scheduler)).cursor is None

    for _ in range(6):
        await ran(scheduler)

    assert [cursor and cursor["done"] for cursor in seen] == [None, 1, 1, 2, 2, 2]
    assert (await job_of(scheduler)).cursor == {"done": 3}


async def test_a_retry_sees_the_old_cursor(scheduler: Scheduler, clock: VirtualClock) -> None:
    seen: list[Any] = []
    counting(scheduler, seen, [None, ValueError("no")])
    await scheduler.add_job(Every("1h"), handler="count", id="a", retry=Retry.in_window(1, delay="1m"))

    await clock.advance("130m")

    assert seen == [None, {"done": 1}, {"done": 1}]


async def test_a_cancelled_run_leaves_the_old_cursor(scheduler: Scheduler, clock: VirtualClock) -> None:
    @scheduler.handler("slow")
    async def slow(run: Run) -> None:
        run.cursor = 7
        await clock.sleep("1h")

    await scheduler.add_job(At(NOON), handler="slow", id="a", timeout="1m")
    await clock.advance("2m")

    assert (await job_of(scheduler)).cursor is None


async def test_a_thread_has_a_cursor_too(scheduler: Scheduler) -> None:
    def count(run: Run) -> None:
        run.cursor = [run.cursor]

    await scheduler.add_job(Manual(), handler=count, id="a")
    for _ in range(2):
        await ran(scheduler)

    assert (await job_of(scheduler)).cursor == [[None]]


async def test_a_cursor_survives_a_restart_and_an_upsert(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock
) -> None:
    first = new_scheduler(shared)
    counting(first, [], [])
    await first.start()
    await first.add_job(Manual(), handler="count", id="a")
    await ran(first)
    await first.stop()
    second = new_scheduler(shared)

    job = await second.add_job(Manual(), handler="count", id="a", name="x", on_conflict="replace")

    assert (job.cursor, (await job_of(second)).cursor) == ({"done": 1}, {"done": 1})


async def test_none_clears_a_cursor(scheduler: Scheduler) -> None:
    @scheduler.handler("reset")
    async def reset(run: Run) -> None:
        run.cursor = None
        assert run.cursor is None

    await scheduler.add_job(Manual(), handler="reset", id="a")
    assert (await scheduler.update_job("a", cursor={"done": 5})).cursor == {"done": 5}

    await ran(scheduler)
    assert (await job_of(scheduler)).cursor is None

    await scheduler.update_job("a", cursor="x")
    assert (await scheduler.update_job("a", cursor=None)).cursor is None


async def test_a_cursor_is_set_without_touching_the_rest(scheduler: Scheduler, clock: VirtualClock) -> None:
    before = await scheduler.add_job(Every("1h"), handler="work", id="a", payload={"to": "ops"})
    await clock.advance("10m")

    after = await scheduler.update_job("a", cursor=[1])

    assert (after.cursor, after.next_run_at, after.payload) == ([1], before.next_run_at, before.payload)


@pytest.mark.parametrize("value", ["by hand", "as before", None])
async def test_a_run_does_not_undo_a_cursor_that_was_set_meanwhile(
    scheduler: Scheduler, clock: VirtualClock, value: str | None
) -> None:
    """A finishing run never overwrites an edit, even one that sets the value that the run has found."""

    @scheduler.handler("slow")
    async def slow(run: Run) -> None:
        run.cursor = "from the run"
        await clock.sleep("1m")

    await scheduler.add_job(At(NOON + MINUTE), handler="slow", id="a")
    if value is not None:
        await scheduler.update_job("a", cursor="as before")
    await clock.advance("70s")
    await scheduler.update_job("a", cursor=value)
    await clock.advance("1m")

    assert (await job_of(scheduler)).cursor == value


async def test_another_edit_during_a_run_does_not_cost_its_cursor(scheduler: Scheduler, clock: VirtualClock) -> None:
    @scheduler.handler("edits itself")
    async def edits_itself(run: Run) -> None:
        run.cursor = "from the run"
        await scheduler.update_job("a", payload="for the next run")

    await scheduler.add_job(At(NOON), handler="edits itself", id="a")
    await clock.advance("10s")

    assert (await job_of(scheduler)).cursor == "from the run"


async def test_an_edit_of_something_else_does_not_lose_the_cursor(scheduler: Scheduler, clock: VirtualClock) -> None:
    @scheduler.handler("slow")
    async def slow(run: Run) -> None:
        run.cursor = "from the run"
        await clock.sleep("1m")

    await scheduler.add_job(At(NOON), handler="slow", id="a")
    await clock.advance("10s")
    await scheduler.update_job("a", name="x")
    await clock.advance("1m")

    assert (await job_of(scheduler)).cursor == "from the run"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        pytest.param("x" * (64 * KIB), "cursor must be at most 64 KiB of JSON", id="too large"),
        pytest.param({1, 2}, "cursor must contain only JSON values", id="no JSON"),
        pytest.param(float("inf"), "cursor must contain only JSON values", id="no number"),
    ],
)
async def test_a_cursor_that_cannot_be_kept_is_refused_when_it_is_assigned(
    scheduler: Scheduler, value: object, sentence: str
) -> None:
    refused: list[InvalidJobError] = []

    @scheduler.handler("assign")
    async def assign(run: Run) -> None:
        run.cursor = "before"
        with pytest.raises(InvalidJobError, match=sentence) as caught:
            run.cursor = value
        refused.append(caught.value)

    await scheduler.add_job(Manual(), handler="assign", id="a")
    await ran(scheduler)
    with pytest.raises(InvalidJobError, match=sentence):
        await scheduler.update_job("a", cursor=value)

    assert [error.field for error in refused] == ["cursor"]
    assert (await job_of(scheduler)).cursor == "before"


async def test_nothing_else_of_a_run_can_be_assigned(scheduler: Scheduler) -> None:
    @scheduler.handler("assign")
    async def assign(run: Run) -> None:
        with pytest.raises(AttributeError):
            run.id = 7  # type: ignore[misc]
        with pytest.raises(AttributeError):
            run.colour = "red"  # type: ignore[attr-defined]

    await scheduler.add_job(Manual(), handler="assign", id="a")

    assert (await ran(scheduler)).error is None


async def test_a_removed_job_that_is_added_again_starts_fresh(scheduler: Scheduler) -> None:
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.update_job("a", cursor=1)
    await scheduler.remove_job("a")

    assert (await scheduler.add_job(Manual(), handler="work", id="a")).cursor is None


async def test_a_cursor_that_is_damaged_disables_only_its_job(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(path)
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(Every("1m"), handler="work", id=name) for name in ("a", "b")])
    await scheduler.update_job("a", cursor=[1])
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE state SET cursor = '[' WHERE cursor IS NOT NULL")
        other.commit()

    await clock.advance("1m")

    damaged = await job_of(scheduler, "a")
    assert (worker.ids, damaged.status) == (["b"], Status.DISABLED)
    assert "cursor" in str(damaged.unreadable)
    json.dumps(damaged.to_json())


KILLED = """
import asyncio, os, sys
from scheduler_async import Manual, Run, Scheduler

async def main() -> None:
    async with Scheduler(sys.argv[1]) as scheduler:
        @scheduler.handler("count")
        async def count(run: Run) -> None:
            run.cursor = (run.cursor or 0) + 1
            if run.cursor == 3:
                print("dying", flush=True)
                os.kill(os.getpid(), 9)

        await scheduler.add_job(Manual(), handler="count", id="a")
        for _ in range(3):
            await scheduler.wait_for_run(await scheduler.trigger_job("a"))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
async def test_a_cursor_is_never_ahead_of_what_succeeded(new_scheduler: NewScheduler, shared: str) -> None:
    """A process that dies between the effect and the commit leaves the cursor of the last success."""
    with started([sys.executable, "-c", KILLED, shared], stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "dying\n"
        process.wait(PATIENCE)

    assert (await job_of(new_scheduler(shared))).cursor == 2


# ---------------------------------------------------------------- the next run, during a run


async def test_during_a_run_the_next_regular_occurrence_is_known(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Also when the run has outlived some."""
    worker.takes = "90m"
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    await clock.advance("61m")
    soon = await job_of(scheduler)
    await clock.advance("1h")
    late, (listed,) = await job_of(scheduler), await scheduler.list_jobs()
    await clock.advance("1h")

    assert worker.runs[0].job.next_run_at == NOON + 2 * HOUR
    assert (soon.status, soon.next_run_at) == (Status.RUNNING, NOON + 2 * HOUR)
    assert (late.next_run_at, listed.next_run_at) == (NOON + 3 * HOUR, NOON + 3 * HOUR)


@pytest.mark.parametrize("schedule", [Delay("1h"), Manual(), At(NOON)], ids=["delay", "manual", "at"])
async def test_what_depends_on_the_end_of_the_run_is_unknown(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, schedule: Any
) -> None:
    worker.takes = "10m"
    await scheduler.add_job(schedule, handler="work", id="a")
    await clock.advance()
    if isinstance(schedule, Manual):
        await scheduler.trigger_job("a")

    running = await job_of(scheduler)

    assert (running.status, running.next_run_at) == (Status.RUNNING, None)


@pytest.mark.parametrize("change", ["pause_job", "disable_job"])
async def test_a_job_that_will_not_run_has_no_next_run_during_its_last(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, change: str
) -> None:
    worker.takes = "10m"
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("61m")

    await getattr(scheduler, change)("a")

    running = await job_of(scheduler)
    assert (running.status, running.next_run_at) == (Status.RUNNING, None)


async def test_jobs_that_run_are_listed_by_their_next_run(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.takes = "10m"
    await scheduler.add_job(Every("1h"), handler="work", id="hourly")
    await clock.advance("61m")
    await scheduler.add_job(At(NOON + 90 * MINUTE), handler="work", id="sooner")
    await scheduler.add_job(At(NOON + 190 * MINUTE), handler="work", id="later")
    await scheduler.add_job(Manual(), handler="work", id="never")

    assert [job.id for job in await scheduler.list_jobs()] == ["sooner", "hourly", "later", "never"]
    assert [job.id for job in await scheduler.list_jobs(limit=2)] == ["sooner", "hourly"]
    assert [job.id for job in await scheduler.list_jobs(status="running", limit=1)] == ["hourly"]
    assert [job.id for job in await scheduler.list_jobs(status="idle", limit=2)] == ["sooner", "later"]


async def test_a_run_in_progress_does_not_change_the_order_of_other_jobs(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Jobs with the same next run, or none, are in the order of their names."""
    worker.takes = "10m"
    await scheduler.add_job(Every("1h"), handler="work", id="hourly")
    for name in ("z", "m", "b"):
        await clock.advance("1s")
        await scheduler.add_job(Manual(), handler="work", id=name)
        await scheduler.add_job(At("2026-02-01T00:00:00Z"), handler="work", id=f"at {name}")
    before = [job.id for job in await scheduler.list_jobs()]

    await clock.advance("1h")
    await scheduler.trigger_job("m")
    await scheduler.disable_job("hourly")
    during = [job.id for job in await scheduler.list_jobs()]
    firsts = [[job.id for job in await scheduler.list_jobs(limit=most)] for most in range(8)]
    due = [job.id for job in await scheduler.list_jobs(due_before="2026-02-02T00:00:00Z")]

    assert before == ["hourly", "at b", "at m", "at z", "b", "m", "z"]
    assert during == ["at b", "at m", "at z", "b", "hourly", "m", "z"]
    assert firsts == [during[:most] for most in range(8)]
    assert due == ["at b", "at m", "at z"]


# ---------------------------------------------------------------- JSON


async def test_everything_has_a_json_form(scheduler: Scheduler, worker: Worker, clock: VirtualClock) -> None:
    events = scheduler.events()
    worker.answer = {"found": 3}
    await scheduler.add_job(Every("1h"), handler="work", id="a", payload={"to": "ops"}, timeout="5m")
    await scheduler.update_job("a", cursor=[1])
    await clock.advance("1h")
    (row,) = await scheduler.run_log("a")
    job, full = await job_of(scheduler), await row_of(scheduler, row.id)
    await scheduler.stop()
    told: list[Event] = [event async for event in events]

    forms: list[dict[str, Any]] = [job.to_json(), full.to_json(), worker.runs[0].to_json()]
    forms += [event.to_json() for event in told]
    for form in forms:
        assert json.loads(json.dumps(form)) == form
    of_job, of_row, of_run, *of_events = forms
    assert of_job["schedule"] == job.schedule.to_json()
    assert (of_job["timeout"], of_job["cursor"], of_job["next_run_at"]) == ("5m", [1], "2026-01-05T14:00:00Z")
    assert (of_row["result"], of_row["payload"], of_row["outcome"]) == ({"found": 3}, {"to": "ops"}, "success")
    assert (of_row["claimed_at"], of_row["traceback"]) == ("2026-01-05T13:00:00Z", None)
    assert (of_run["job_id"], of_run["cursor"], of_run["trigger"]) == ("a", [1], "schedule")
    assert [form["kind"] for form in of_events] == [str(event.kind) for event in told]
    (finished,) = (form for form in of_events if form["kind"] == "run_finished")
    assert (finished["job"]["id"], finished["run"]["result"]) == ("a", {"found": 3})


def test_a_job_shows_all_its_public_fields_in_json() -> None:
    """A new property of a job belongs there, or on this list."""
    public = {name for name in vars(Job) if isinstance(vars(Job)[name], property)} - {"key", "unreadable", "is_running"}

    assert public <= Job.to_json(_a_job()).keys()


def _a_job() -> Job:
    from scheduler_async.rules import edits

    return edits.add(JobSpec(Every("1h"), handler="h"), id="a", handler="h", now=0)


# ---------------------------------------------------------------- the run log


async def test_the_log_is_asked_for_a_stretch_a_cause_and_a_page(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    await clock.advance("5h")
    by_hand = await ran(scheduler)

    everything = await scheduler.run_log("a")
    middle = await scheduler.run_log("a", since=NOON + 2 * HOUR, until="2026-01-05T16:00:00Z")
    assert [row.scheduled_for for row in middle] == [NOON + hours * HOUR for hours in (4, 3, 2)]
    assert await scheduler.run_log(since=NOON + 2 * HOUR, until=NOON + 4 * HOUR) == middle
    assert await scheduler.run_log(namespace="default", since=NOON + 2 * HOUR, until=NOON + 4 * HOUR) == middle
    assert [row.id for row in await scheduler.run_log("a", trigger="manual")] == [by_hand.id]
    assert await scheduler.run_log("a", before=everything[1].id, limit=2) == everything[2:4]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param({"since": NOON.replace(tzinfo=None)}, "since .* has no time zone", id="since without a zone"),
        pytest.param({"until": "2026-01-05T12:00"}, "until .* has no time zone", id="until without a zone"),
        pytest.param({"since": 5}, "since must be a datetime", id="since is a number"),
        pytest.param({"since": NOON, "until": NOON - MINUTE}, "since must not be later than until", id="exchanged"),
        pytest.param({"trigger": "magic"}, "trigger must be one of schedule, retry", id="an unknown trigger"),
        pytest.param({"before": "7"}, "before must be the id of a row", id="before is text"),
        pytest.param({"before": True}, "before must be the id of a row", id="before is a truth value"),
        pytest.param({"limit": -1}, "limit must be a whole number", id="a negative limit"),
    ],
)
async def test_a_log_cannot_be_asked_for_nonsense(scheduler: Scheduler, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SchedulerError, match=sentence):
        await scheduler.run_log("a", **given)
