"""Real processes steer each other's runs, and are killed in between."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from contextlib import AbstractContextManager

import pytest

from scheduler_async import Every, Manual, Outcome, Run, Scheduler
from tests.cast import PATIENCE, line_of, started

pytestmark = [pytest.mark.timeout(60), pytest.mark.once]


def program(code: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started([sys.executable, "-c", textwrap.dedent(code), *arguments], stdin=subprocess.PIPE)


# Runs jobs until it is killed. Its handler waits, and tells when it begins and when it is cancelled.
WORKS = """
    import asyncio, sys
    from scheduler_async import Scheduler

    async def main():
        scheduler = Scheduler(sys.argv[1])

        @scheduler.handler("work")
        async def work(run):
            print("working", run.id, run.payload, flush=True)
            run.write("so far\\n")
            run.progress(1, 2, "half")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("cancelled", flush=True)
                if len(sys.argv) > 2:  # it does not want to end
                    await asyncio.Event().wait()
                raise

        async with scheduler:
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
"""


async def next_line(process: subprocess.Popen[str]) -> str:
    return await asyncio.to_thread(line_of, process)


async def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)


async def test_a_run_of_another_process_is_started_followed_and_cancelled(shared: str) -> None:
    scheduler = Scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="a")
    with program(WORKS, shared) as process:
        ready = await next_line(process)

        run = await scheduler.trigger_job("a", anywhere=True, payload=7)
        begun = await next_line(process)
        async with asyncio.timeout(PATIENCE):
            while (row := await scheduler.get_run(run)) is None or row.progress is None:
                await asyncio.sleep(0.01)
        output = await scheduler.run_output(run)
        await scheduler.cancel_run(run, reason="enough")
        ended = await scheduler.wait_for_run(run, timeout=PATIENCE)
        cancelled = await next_line(process)
    await scheduler.stop()

    assert (ready, begun, cancelled) == ("ready", f"working {run} 7", "cancelled")
    assert (row.progress, row.progress_message, output) == (0.5, "half", "so far\n")
    assert (ended.outcome, ended.reason) == (Outcome.CANCELLED, "enough")


async def test_a_request_outlives_the_only_scheduler(shared: str) -> None:
    """It was killed before it could take it up: the next one does."""
    scheduler = Scheduler(shared)
    await scheduler.add_job(Manual(), handler="later", id="a")
    with program(WORKS, shared) as process:
        await next_line(process)
        run = await scheduler.trigger_job("a", anywhere=True, payload="kept")
        await kill(process)
    await scheduler.stop()
    payloads = []
    following = Scheduler(shared)

    @following.handler("later")
    async def later(run: Run) -> None:
        payloads.append(run.payload)

    async with following:
        row = await following.wait_for_run(run, timeout=PATIENCE)

    assert (row.outcome, payloads) == (Outcome.SUCCESS, ["kept"])


async def test_a_cancelled_run_whose_process_is_killed_is_not_run_again(shared: str) -> None:
    """The caller did not want it, and the kill does not change that."""
    scheduler = Scheduler(shared)
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", on_interrupt="rerun")
    with program(WORKS, shared, "stubborn") as process:
        await next_line(process)
        begun = await next_line(process)
        run = int(begun.split()[1])
        await scheduler.cancel_run(run, reason="enough")
        cancelled = await next_line(process)
        await kill(process)
    await scheduler.stop()
    again = []
    following = Scheduler(shared)

    @following.handler("work")
    async def work(run: Run) -> None:
        again.append(run.id)

    async with following:
        row = await following.wait_for_run(run, timeout=PATIENCE)
        await following.run_job("a", timeout=PATIENCE)  # a whole pass and more has gone by
        job = await following.get_job("a")
        rows = await following.run_log("a")

    assert cancelled == "cancelled"
    assert (row.outcome, row.reason) == (Outcome.CANCELLED, "enough")
    assert [one.outcome for one in rows] == [Outcome.SUCCESS, Outcome.CANCELLED]
    assert len(again) == 1
    assert job is not None
    assert (job.consecutive_errors, job.status) == (0, "idle")


async def test_a_run_that_was_cancelled_unnoticed_is_not_run_again(shared: str) -> None:
    """The process was frozen when the request came, and never got to know of it."""
    scheduler = Scheduler(shared)
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", on_interrupt="rerun")
    with program(WORKS, shared) as process:
        await next_line(process)
        run = int((await next_line(process)).split()[1])
        await scheduler.cancel_run(run)
        await kill(process)
    following = Scheduler(shared)

    @following.handler("work")
    async def work() -> None: ...

    async with following:
        row = await following.wait_for_run(run, timeout=PATIENCE)
        rows = await following.run_log("a")
    await scheduler.stop()

    assert row.outcome is Outcome.CANCELLED
    assert len(rows) == 1


async def test_a_manual_run_whose_process_is_killed_is_run_again(shared: str) -> None:
    """With the same payload and the same key, as ruling 5 asks for; `run_job` waits for the run that repeats it."""
    scheduler = Scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="a", payload="of the job")
    with program(WORKS, shared) as process:
        await next_line(process)
        waiting = asyncio.create_task(scheduler.run_job("a", payload=[7]))
        _, number, _ = (await next_line(process)).split(" ", 2)
        await kill(process)

    runs: list[Run] = []

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        runs.append(run)

    async with scheduler, asyncio.timeout(PATIENCE):
        last = await waiting
        first = await scheduler.wait_for_run(int(number))

    assert first.outcome is Outcome.INTERRUPTED
    assert first.error is not None
    assert first.error.endswith(f"It is run again as run {last.id}.")
    assert (last.outcome, last.attempt, last.trigger) == (Outcome.SUCCESS, 2, "manual")
    (run,) = runs
    assert (run.id, run.payload, run.scheduled_for) == (last.id, [7], first.scheduled_for)
    assert run.idempotency_key.endswith(f"#{first.id}")


async def test_a_manual_run_that_must_not_be_repeated_is_not(shared: str) -> None:
    scheduler = Scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="a", on_interrupt="skip")
    with program(WORKS, shared) as process:
        await next_line(process)
        run = await scheduler.trigger_job("a", anywhere=True)
        await next_line(process)
        await kill(process)

    async with scheduler, asyncio.timeout(PATIENCE):
        row = await scheduler.wait_for_run(run)
        rows = await scheduler.run_log("a")

    assert row.outcome is Outcome.INTERRUPTED
    assert [row.id for row in rows] == [run]
