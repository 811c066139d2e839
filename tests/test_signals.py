"""Programs that end when the system asks them to: real processes, real signals."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from scheduler_async import Outcome, RunRow, Scheduler, SchedulerError
from tests.cast import line_of, started

PATIENCE = 60.0  # seconds: a machine may be busy; what hangs, hangs longer

PROGRAM = """
    import asyncio, logging, signal, sys
    from datetime import timedelta
    from scheduler_async import At, Every, Manual, Scheduler

    logging.basicConfig(level=logging.ERROR)  # that a machine is slow is not what is tested
    scheduler = Scheduler(sys.argv[1])

    @scheduler.job(Every("1s", immediately=True), id="patient")
    async def patient(run):
        print("running", flush=True)
        await run.stopping.wait()
        print("told", flush=True)

    @scheduler.job(Manual(), id="stubborn")
    async def stubborn():
        print("running", flush=True)
        await asyncio.Event().wait()

    async def main():
        {before}
        await scheduler.run_until_signal(timeout={timeout})
        print("stopped", flush=True)

    {around}
"""

# It says "now" when the call has begun and when each handler begins, if that is the moment to say it.
BUSY = """
    import asyncio, itertools, logging, os, sys, time
    from datetime import timedelta
    from scheduler_async import Every, Scheduler

    logging.basicConfig(level=logging.ERROR)
    scheduler = Scheduler(sys.argv[1], min_interval=timedelta(milliseconds=1))
    log = os.open(sys.argv[1] + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    moments = itertools.count()

    def begin(run=None):
        if run is not None:
            os.write(log, b"%d\\n" % run.id)
        if next(moments) == {moment}:
            print("now", flush=True)

    async def short(run):
        begin(run)
        await asyncio.sleep(0.002)

    def plain(run):
        begin(run)
        time.sleep(0.02)

    async def tidy(run):
        begin(run)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)

    async def deaf(run):
        begin(run)
        sleeping = asyncio.ensure_future(asyncio.sleep(0.2))
        while not sleeping.done():
            try:
                await asyncio.wait([sleeping])
            except asyncio.CancelledError:
                pass

    for handler, count, priority in [(short, 60, "low"), (plain, 5, "standard"), (tidy, 1, "high"), (deaf, 1, "high")]:
        for number in range(count):
            every = Every(timedelta(milliseconds=20), immediately=True)
            name = handler.__name__
            scheduler.job(every, id=f"{{name}}-{{number}}", handler=name, priority=priority)(handler)

    async def main():
        asyncio.get_running_loop().call_soon(begin)
        await scheduler.run_until_signal(timeout={timeout})
        print("stopped", flush=True)

    asyncio.run(main())
"""


def program(path: Path, text: str = PROGRAM, **parts: object) -> AbstractContextManager[subprocess.Popen[str]]:
    defaults = {"before": "", "timeout": "30", "around": "asyncio.run(main())"}
    text = textwrap.dedent(text).format(**defaults | parts)
    return started([sys.executable, "-X", "dev", "-W", "error", "-c", text, path])


async def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How a program ended, and what else it said."""
    out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    return process.returncode, out, err


async def rows_of(path: Path) -> list[RunRow]:
    scheduler = Scheduler(path)
    rows = await scheduler.run_log()
    await scheduler.stop()
    return rows


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_the_first_signal_lets_runs_finish(path: Path, number: signal.Signals) -> None:
    with program(path) as process:
        assert await asyncio.to_thread(line_of, process) == "running"

        process.send_signal(number)

        assert await end_of(process) == (0, "told\nstopped\n", "")
    assert [row.outcome for row in await rows_of(path)] == [Outcome.SUCCESS]


STUBBORN = 'await scheduler.trigger_job("stubborn")'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_the_second_signal_cancels_them(path: Path, number: signal.Signals) -> None:
    with program(path, before=STUBBORN, timeout="None") as process:
        for _ in range(2):
            assert await asyncio.to_thread(line_of, process) == "running"

        process.send_signal(number)
        assert await asyncio.to_thread(line_of, process) == "told"
        process.send_signal(number)

        assert await end_of(process) == (0, "stopped\n", "")
    outcomes = {row.job_id: row.outcome for row in await rows_of(path)}
    assert outcomes == {"patient": Outcome.SUCCESS, "stubborn": Outcome.CANCELLED}


async def test_the_end_of_the_time_cancels_them(path: Path) -> None:
    with program(path, before=STUBBORN, timeout="0.05") as process:
        for _ in range(2):
            assert await asyncio.to_thread(line_of, process) == "running"

        process.terminate()

        assert await end_of(process) == (0, "told\nstopped\n", "")
    assert Outcome.CANCELLED in {row.outcome for row in await rows_of(path)}


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_signal_while_it_starts_ends_it_too(path: Path, signals: int) -> None:
    """It came before there was anything to finish."""
    before = f"""
        opening = scheduler._store.open

        async def open_and_be_told():
            await opening()
            for _ in range({signals}):
                signal.raise_signal(signal.SIGTERM)

        scheduler._store.open = open_and_be_told
    """
    with program(path, before=textwrap.indent(textwrap.dedent(before), " " * 4).strip()) as process:
        code, out, err = await end_of(process)

    assert (code, err) == (0, "")
    assert out.endswith("stopped\n")
    assert {row.outcome for row in await rows_of(path)} <= {Outcome.SUCCESS, Outcome.CANCELLED}


@pytest.mark.parametrize(
    ("names", "moment"),
    [
        pytest.param("SIGTERM", 0, id="SIGTERM while it starts"),
        pytest.param("SIGINT", 0, id="SIGINT while it starts"),
        pytest.param("SIGTERM", 200, id="SIGTERM amid passes"),
        pytest.param("SIGINT", 200, id="SIGINT amid passes"),
        pytest.param("SIGTERM SIGINT", 200, id="SIGTERM and SIGINT"),
        pytest.param("SIGINT SIGTERM", 200, id="SIGINT and SIGTERM"),
    ],
)
async def test_a_busy_program_leaves_nothing_undone(path: Path, names: str, moment: int) -> None:
    """The short form of what `benchmarks/torture.py` does at random moments."""
    numbers = [signal.Signals[name] for name in names.split()]
    with program(path, BUSY, moment=moment, timeout="0.1" if len(numbers) == 1 else "None") as process:
        assert await asyncio.to_thread(line_of, process) == "now"

        for number in numbers:
            process.send_signal(number)

        assert await end_of(process) == (0, "stopped\n", "")
    begun = {int(line) for line in Path(f"{path}.log").read_text().splitlines()}
    with closing(sqlite3.connect(path)) as db:
        outcomes = dict(db.execute("SELECT id, outcome FROM run WHERE attempt > 0").fetchall())
        assert begun == outcomes.keys()
        assert set(outcomes.values()) <= {"success", "cancelled"}
        assert db.execute("SELECT * FROM state WHERE activity <> 'idle'").fetchall() == []
        assert db.execute("SELECT * FROM node").fetchall() == []
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_signal_is_heard_while_threads_have_much_to_say(path: Path) -> None:
    """They talk to the event loop through the pipe that signals come through, and it was full."""
    around = """
    async def shouted_down():
        loop = asyncio.get_running_loop()
        loop.set_debug(False)  # it would take its time

        def shout():
            for _ in range(10_000):
                loop.call_soon_threadsafe(int)
            signal.raise_signal(signal.SIGTERM)

        loop.call_soon(shout)
        await main()

    asyncio.run(shouted_down())
    """
    with program(path, around=textwrap.dedent(around)) as process:
        code, out, err = await end_of(process)

    assert (code, err) == (0, "")
    assert out.endswith("stopped\n")


async def test_two_signals_that_come_close_together_are_two(path: Path) -> None:
    """The interpreter calls a handler once for both when the main thread is busy meanwhile."""
    around = """
    def raise_twice():
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)

    def raise_twice_in_a_thread():
        asyncio.get_running_loop().run_in_executor(None, raise_twice)

    asyncio.run(main())
    """
    before = f"{STUBBORN}; asyncio.get_running_loop().call_soon(raise_twice_in_a_thread)"
    with program(path, before=before, timeout="None", around=textwrap.dedent(around)) as process:
        code, out, err = await end_of(process)

    assert (code, err) == (0, "")
    assert out.endswith("stopped\n")
    assert Outcome.CANCELLED in {row.outcome for row in await rows_of(path)}


async def test_signals_are_handled_as_before_afterwards(path: Path) -> None:
    around = """
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("mine"))
    async def told():
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)
        await main()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        print(heard)
    asyncio.run(told())
    """
    with program(path, around=textwrap.dedent(around)) as process:
        code, out, err = await end_of(process)

    assert (code, err) == (0, "")
    assert out.endswith("stopped\n['mine']\n")


async def test_who_is_cancelled_while_waiting_for_a_signal_has_stopped(path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    scheduler = Scheduler(path)
    running = asyncio.create_task(scheduler.run_until_signal())
    while scheduler.status != "running":
        await asyncio.sleep(0)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert scheduler.status == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


async def test_outside_the_main_thread_an_error_says_what_to_do() -> None:
    """Python delivers signals to the main thread alone; nothing has been started by then."""
    scheduler = Scheduler(":memory:")

    def run() -> None:
        asyncio.run(scheduler.run_until_signal())

    with pytest.raises(SchedulerError, match=r"must be called in the main thread.* start\(\) and stop\(\)"):
        await asyncio.to_thread(run)

    assert scheduler.status == "stopped"
