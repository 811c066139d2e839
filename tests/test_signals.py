"""Programs that end when the system asks them to: real processes, real signals."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import Outcome, RunRow, Scheduler

PATIENCE = 60.0  # seconds: a machine may be busy; what hangs, hangs longer

PROGRAM = """
    import asyncio, signal, sys
    from datetime import timedelta
    from scheduler_async import At, Every, Manual, Scheduler

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


@contextmanager
def program(path: Path, *, before: str = "", timeout: str = "30", around: str = "asyncio.run(main())") -> Iterator[Any]:
    text = textwrap.dedent(PROGRAM).format(before=before, timeout=timeout, around=around)
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", text, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


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
