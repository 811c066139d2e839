"""How runs end: whatever a handler returns or raises is one run's affair, and is on record."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from anyio import to_thread

from scheduler_async import At, Every, JobSpec, Outcome, Result, Retry, Run, Scheduler, SQLiteStore, StoreError
from scheduler_async.jobs.run import Ending
from scheduler_async.running.endings import ending_of
from scheduler_async.stores.messages import UnstorableError
from scheduler_async.testing import VirtualClock
from scheduler_async.texts import CUT, LONGEST
from tests.cast import NOON, PATIENCE, NewScheduler, Worker, job_of
from tests.test_texts import Hostile, Shouting

# ---------------------------------------------------------------- what a handler returns


def raising(name: str, error: BaseException) -> object:
    """An object that raises *error* when *name* is asked for."""

    def fail(*_: object) -> Any:
        raise error

    return type("Thing", (), {name: property(fail) if name == "__class__" else fail})()


class Lying(Result):
    """A result whose fields are not what they must be."""

    def __init__(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


class Late(Lying):
    """A result that does not know yet."""

    @property
    def message(self) -> str:
        raise SystemExit(4)


TOUCHED: dict[str, object] = {
    f"{name} raises {type(error).__name__}": raising(name, error)
    for name in ("__class__", "__bool__", "__eq__", "__str__", "__repr__", "__hash__", "__len__", "__getattribute__")
    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt())
}
BAD: dict[str, object] = {
    "a message that is no text": Lying(message=7),
    "a message of bytes": Lying(message=b"x"),
    "an exit code beyond 64 bits": Lying(exit_code=2**70),
    "an exit code that is a truth value": Lying(exit_code=True),
    "an unknown outcome": Lying(outcome="great"),
    "an outcome that cannot be looked up": Lying(outcome=raising("__hash__", SystemExit(3))),
    "a property that exits": Late(),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_what_a_handler_returns_is_not_touched_more_than_needed(name: str) -> None:
    """Arrays and tables have no truth value, and lists no hash; but what hides its class cannot be judged."""
    ending = ending_of(TOUCHED[name])

    hides = hides_its_class(name)
    assert ending.outcome is (Outcome.ERROR if hides else Outcome.SUCCESS)
    assert (ending.error or "").startswith("The handler returned a bad value: " if hides else "")


def test_an_object_that_pretends_to_be_an_ending_is_none() -> None:
    """A mock pretends to be whatever its specification is."""
    ending = ending_of(Mock(spec=Ending))

    assert type(ending) is Ending
    assert ending.outcome is Outcome.SUCCESS


def hides_its_class(name: str) -> bool:
    return name.startswith(("__class__", "__getattribute__"))


@pytest.mark.parametrize("name", BAD)
def test_a_result_that_is_none_is_an_error(name: str) -> None:
    ending = ending_of(BAD[name])

    assert ending.outcome is Outcome.ERROR
    assert str(ending.error).startswith("The handler returned a bad value: ")


def test_a_text_is_a_text_whatever_its_class_does() -> None:
    ending = ending_of(Result(Outcome.ERROR, message=Shouting("no paper")))

    assert type(ending.message) is str
    assert (ending.outcome, ending.message, ending.error) == (Outcome.ERROR, "no paper", "no paper")


HUGE = "x" * 3_000_000
ODD: dict[str, Callable[[], object]] = {
    **{name: partial(lambda value: value, value) for name, value in {**TOUCHED, **BAD}.items()},
    "a long message": lambda: Result(message=HUGE),
    "a long error": lambda: Result(Outcome.ERROR, message=HUGE),
    "characters that few stores keep": lambda: Result(Outcome.ERROR, message="\0\ud800\uffff\x1b€"),
}


class Talkative(Exception):  # noqa: N818
    """An exception whose text is made when it is asked for."""

    def __init__(self, talk: Callable[[], Any]) -> None:
        self.talk = talk

    def __str__(self) -> str:
        text: str = self.talk()
        return text


def fail(error: BaseException) -> Any:
    raise error


RAISED: dict[str, BaseException] = {
    "an exception without words": Hostile(),
    "an exception whose text raises": Talkative(lambda: fail(ValueError("no"))),
    "an exception whose text exits": Talkative(lambda: fail(SystemExit(3))),
    "an exception whose text interrupts": Talkative(lambda: fail(KeyboardInterrupt())),
    "an exception whose text is none": Talkative(lambda: 7),
    "an exception whose text is long": Talkative(lambda: HUGE),
    "a long exception": ValueError(HUGE),
    "an exception of odd characters": ValueError("\0\ud800\uffff"),
    "a way out": SystemExit(HUGE),
}


def odd_jobs(scheduler: Scheduler) -> list[JobSpec]:
    """Jobs whose runs end in all ways that nobody should think of, on the event loop and in threads."""
    specs = []

    def add(name: str, function: Callable[[], object]) -> None:
        async def on_the_loop(run: Run) -> object:
            run.write("\0\ud800\x1b")
            return function()

        for handler, place in ((on_the_loop, "loop"), (function, "thread")):
            scheduler.handler(f"{name} ({place})")(handler)
            specs.append(JobSpec(At(NOON), handler=f"{name} ({place})", id=f"{name} ({place})"))

    for name, make in ODD.items():
        add(name, make)
    for name, error in RAISED.items():
        add(name, partial(fail, error))
    return specs


async def test_every_run_ends_on_record_and_none_stands_in_the_way_of_another(
    new_scheduler: NewScheduler, shared: str, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(shared)
    specs = odd_jobs(scheduler)
    await scheduler.start()
    await scheduler.add_jobs([*specs, *(JobSpec(At(NOON), handler="work", id=f"{n}") for n in range(5))])

    await clock.advance()

    rows = {row.job_id: row for row in await scheduler.run_log(limit=None)}
    assert len(rows) == len(specs) + 5
    assert {rows[f"{n}"].outcome for n in range(5)} == {Outcome.SUCCESS}
    assert [name for name, row in rows.items() if row.outcome not in (Outcome.SUCCESS, Outcome.ERROR)] == []
    for name in TOUCHED:
        expected = Outcome.ERROR if hides_its_class(name) else Outcome.SUCCESS
        assert {rows[f"{name} ({place})"].outcome for place in ("loop", "thread")} == {expected}, name
    for name in RAISED:
        assert {rows[f"{name} ({place})"].outcome for place in ("loop", "thread")} == {Outcome.ERROR}
    texts = [text for row in rows.values() for text in (row.error, row.message) if text is not None]
    assert max(len(text.encode()) for text in texts) <= LONGEST
    assert sum(text.endswith(CUT) for text in texts) == 12
    assert len(await scheduler.list_jobs()) == len(rows)
    assert scheduler.state().problem is None
    await scheduler.stop(cancel=True)
    assert scheduler.status == "stopped"


async def test_what_is_kept_of_a_long_error_is_cut_wherever_it_is_kept(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """With the run, with the job, in the reason why it is disabled, in events and in the log."""
    worker.answer = ValueError(HUGE)
    await scheduler.add_job(Every("1m"), handler="work", id="a", retry=Retry.backoff(disable_after=1))
    events = scheduler.events()
    await clock.advance("1m")

    job, (row,) = await job_of(scheduler), await scheduler.run_log("a")
    assert str(row.error).endswith(CUT)
    assert job.last_error == row.error
    assert len(str(job.disabled_reason)) < LONGEST + 100
    await scheduler.stop()
    told = [event async for event in events]
    assert max(len(repr(event)) for event in told) < 5 * LONGEST
    formatter = logging.Formatter()
    assert max(len(formatter.format(record)) for record in caplog.records) < 3 * LONGEST


# ---------------------------------------------------------------- endings that a store refuses


class Refusing(SQLiteStore):
    """A store that refuses how "a" ended, because of what it is, and everything about "b"."""

    async def finish(self, ended: Any, rules: Any) -> Any:
        for item in ended:
            if item.run.job.id == "b" or (item.run.job.id == "a" and item.ending.outcome is Outcome.SUCCESS):
                raise UnstorableError("string or blob too big")
        return await super().finish(ended, rules)


async def test_an_ending_that_the_store_refuses_is_the_fault_of_its_run(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = new_scheduler(Refusing(path))
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abcd"])
    await clock.advance()

    rows = {row.job_id: row for row in await scheduler.run_log()}
    assert {name: row.outcome for name, row in rows.items()} == {
        "a": Outcome.ERROR,
        "b": None,
        "c": Outcome.SUCCESS,
        "d": Outcome.SUCCESS,
    }
    assert rows["a"].error == "How it ended cannot be recorded: string or blob too big"
    assert "of default/b cannot be recorded at all" in caplog.text
    assert scheduler.state().problem is None
    await scheduler.stop(cancel=True, timeout=PATIENCE)
    assert scheduler.status == "stopped"


class Full(SQLiteStore):
    """A store that fails the first times that it is told of endings."""

    failures = 3

    async def finish(self, ended: Any, rules: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise StoreError("The disk is full.")
        return await super().finish(ended, rules)


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_store_that_fails_for_a_while_changes_no_ending(
    new_scheduler: NewScheduler, path: Path, clock: VirtualClock
) -> None:
    """It is not the fault of any run: what could not be written is written later, as it was."""
    scheduler = new_scheduler(Full(path))
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "ab"])
    await clock.advance("1m")

    assert {row.outcome for row in await scheduler.run_log()} == {Outcome.SUCCESS}


async def test_stores_tell_what_they_cannot_keep_from_their_own_failures(
    new_scheduler: NewScheduler, shared: str, clock: VirtualClock
) -> None:
    """Here, results have got round the checks of their class."""
    scheduler = new_scheduler(shared)
    codes: dict[str, object] = {"too large": 2**70, "no number": object(), "no number, but like one": "7x"}

    @scheduler.handler("bad")
    async def bad(run: Run) -> Result:
        result = Result()
        object.__setattr__(result, "exit_code", codes[run.job_id])
        return result

    await scheduler.start()
    await scheduler.add_jobs([JobSpec(At(NOON), handler="bad", id=name) for name in codes])
    await scheduler.add_job(At(NOON), handler="work", id="good")
    await clock.advance()

    rows = {row.job_id: row for row in await scheduler.run_log()}
    assert rows.pop("good").outcome is Outcome.SUCCESS
    assert {row.outcome for row in rows.values()} == {Outcome.ERROR}
    assert {str(row.error).partition(":")[0] for row in rows.values()} == {"How it ended cannot be recorded"}


async def test_a_message_that_is_too_long_for_sqlite_is_no_failure_of_the_store(
    new_scheduler: NewScheduler, path: Path, worker: Worker, clock: VirtualClock
) -> None:
    """It may have been built with a lower limit than ours."""
    kept = SQLiteStore(path)
    scheduler = new_scheduler(kept)
    worker.answer = Result(message="x" * 30_000)
    await scheduler.start()
    await kept._call(kept._writer, lambda db: db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 20_000))
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.ERROR
    assert "cannot be recorded" in str(row.error)
    assert scheduler.state().problem is None


# ---------------------------------------------------------------- memory

FIVE_FAIL = """
import asyncio, logging, resource
from scheduler_async import At, JobSpec, Scheduler

logging.basicConfig(stream=open("/dev/null", "w"))
scheduler = Scheduler(":memory:")

@scheduler.handler
async def fail(run):
    raise ValueError(str(run.payload) * 20_000_000)

async def main():
    async with scheduler:
        await scheduler.add_job(At("2026-01-01T00:00:00Z"), handler="fail", id="small", payload="")
        while (await scheduler.run_log())[0:1] == [] or (await scheduler.run_log())[0].outcome is None:
            await asyncio.sleep(0.01)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        specs = [JobSpec(At("2026-01-01T00:00:00Z"), handler="fail", payload=f"{n}") for n in range(5)]
        await scheduler.add_jobs(specs)
        while len([row for row in await scheduler.run_log() if row.outcome == "error"]) < 6:
            await asyncio.sleep(0.01)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_five_errors_of_20_megabytes_take_little_more_than_themselves() -> None:
    done = subprocess.run([sys.executable, "-c", FIVE_FAIL], capture_output=True, text=True, check=True, timeout=60)

    assert int(done.stdout) < 200, "megabytes"


# ---------------------------------------------------------------- the end of the program

INTERRUPTED = """
import asyncio, logging, sys
from scheduler_async import At, Scheduler

logging.disable()
scheduler, place, how = Scheduler(sys.argv[1]), sys.argv[2], sys.argv[3]

async def interrupt():
    await asyncio.sleep(0)
    raise KeyboardInterrupt

async def gathering():
    await asyncio.gather(interrupt(), asyncio.sleep(3600))

async def grouping():
    async with asyncio.TaskGroup() as group:
        group.create_task(interrupt())
        group.create_task(asyncio.sleep(3600))

WAYS = {
    "shielded": lambda: asyncio.shield(asyncio.create_task(interrupt())),
    "awaited": lambda: asyncio.create_task(interrupt()),
    "gathered": gathering,
    "grouped": grouping,
    "direct": interrupt,
}

@scheduler.handler
async def work():
    await WAYS[how]()

begun = asyncio.Event()

@scheduler.handler
async def other():
    begun.set()
    await asyncio.sleep(3600)

async def start():
    await scheduler.start()
    await scheduler.add_job(At("2026-01-01T00:00:00Z"), handler="other", id="other")
    await begun.wait()
    await scheduler.add_job(At("2026-01-01T00:00:00Z"), handler="work", id="work")
    await asyncio.sleep(3600)

async def whole_life():
    try:
        await start()
    finally:
        await scheduler.stop(cancel=True, timeout=5)

loop = asyncio.new_event_loop()
try:
    if place == "run":
        asyncio.run(whole_life())
    else:
        loop.run_until_complete(start())
except KeyboardInterrupt:
    print("interrupted")
if place == "loop":
    loop.run_until_complete(scheduler.stop(cancel=True, timeout=5))
else:
    loop = asyncio.new_event_loop()
for row in sorted(loop.run_until_complete(scheduler.run_log()), key=lambda row: row.job_id):
    print(row.job_id, row.outcome and row.outcome.value, row.error)
loop.run_until_complete(scheduler.stop())
"""


@pytest.mark.parametrize("how", ["shielded", "awaited", "gathered", "grouped", "direct"])
@pytest.mark.parametrize("place", ["loop", "run"])
def test_an_interrupt_from_within_a_handler_is_raised_once(place: str, how: str, tmp_path: Any) -> None:
    """Then the scheduler can be stopped, and the run is on record."""
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "jobs.db"), place, how]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""
    interrupted, other, work = done.stdout.splitlines()
    assert interrupted == "interrupted"
    if place == "loop":
        assert other.startswith("other cancelled")
        assert work == "work error KeyboardInterrupt"
    else:  # asyncio.run() has cancelled every task
        assert other.startswith("other error CancelledError")
        assert work.startswith("work error")


async def test_a_thread_that_raises_an_interrupt_fails_alone(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    """Python raises it for Ctrl-C in the main thread only: here, somebody else means something else."""

    @scheduler.handler("thread")
    def thread() -> None:
        raise KeyboardInterrupt

    await scheduler.add_jobs([JobSpec(At(NOON), handler=name, id=name) for name in ("thread", "work")])
    await clock.advance()

    rows = {row.job_id: row for row in await scheduler.run_log()}
    assert (rows["thread"].outcome, rows["thread"].error) == (Outcome.ERROR, "KeyboardInterrupt")
    assert rows["work"].outcome is Outcome.SUCCESS


async def test_the_exception_of_a_thread_is_let_go_of(
    scheduler: Scheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not keep itself, and megabytes with it, until the next garbage collection."""
    caplog.set_level(logging.CRITICAL, "scheduler_async")  # or pytest would keep it
    gone: list[str] = []

    class Heavy(Exception):  # noqa: N818
        def __del__(self) -> None:
            gone.append("gone")

    @scheduler.handler("thread")
    def thread() -> None:
        raise Heavy

    await scheduler.add_job(At(NOON), handler="thread", id="a")
    await clock.advance()
    await to_thread.run_sync(int)  # in the same thread, which has let go of it by then

    assert gone == ["gone"]
