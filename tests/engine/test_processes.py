"""Real processes on a real file: nothing lost, nothing twice, and changes noticed. The long form is a benchmark."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from scheduler_async import At, Delay, Every, JobSpec, Manual, Outcome, Run, Schedule, Scheduler
from scheduler_async.engine import membership
from scheduler_async.rules.claim_ahead import LONGEST_REACH
from scheduler_async.stores import liveness
from scheduler_async.timekeeping.instants import SECOND, from_micros
from tests.cast import line_of, started

pytestmark = pytest.mark.timeout(60)


def program(code: str, *arguments: str | Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A Python program that the test talks to."""
    return started([sys.executable, "-c", textwrap.dedent(code), *arguments], stdin=subprocess.PIPE)


HANGS = """
    import asyncio, sys
    from scheduler_async import At, Scheduler
    from scheduler_async.timekeeping.instants import from_micros

    async def main():
        scheduler = Scheduler(sys.argv[1])

        @scheduler.handler("work")
        async def work():
            print("working", flush=True)
            await asyncio.Event().wait()

        async with scheduler:
            await scheduler.add_job(At(from_micros(0)), handler="work", id="once", on_conflict="keep")
            await asyncio.Event().wait()

    asyncio.run(main())
"""


async def test_a_run_whose_process_was_killed_is_run_again_at_the_next_start(shared: str) -> None:
    """kill -9 is what really happens to processes: the run must be recorded as interrupted, and not be lost."""
    with program(HANGS, shared) as process:
        assert await asyncio.to_thread(line_of, process) == "working"
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
    runs: list[Run] = []
    again = asyncio.Event()
    scheduler = Scheduler(shared)

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        runs.append(run)
        again.set()

    async with scheduler:
        await again.wait()

    rows = await scheduler.run_log("once")
    await scheduler.stop()
    assert [(row.attempt, row.outcome) for row in rows] == [(2, Outcome.SUCCESS), (1, Outcome.INTERRUPTED)]
    assert runs[0].idempotency_key == "default/once@1970-01-01T00:00:00Z"


DIES_BEFORE_ITS_RECORD = """
    import asyncio, os, signal, sys
    from datetime import UTC, datetime, timedelta
    from scheduler_async import At, Run, Scheduler

    async def main():
        scheduler = Scheduler(sys.argv[1])

        @scheduler.handler("work")
        async def work(run: Run):
            if run.job_id == "second":
                waiting = [active.claimed.job.id for active in scheduler._engine.session.ended_runs.unrecorded]
                print(*waiting, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        async with scheduler:
            at = datetime.now(UTC) + timedelta(milliseconds=400)
            await scheduler.add_job(At(at), handler="work", id="first")
            await scheduler.add_job(At(at + timedelta(milliseconds=4)), handler="work", id="second")
            await asyncio.Event().wait()

    asyncio.run(main())
"""


async def test_a_success_that_waited_for_others_when_its_process_was_killed_is_run_again(tmp_path: Path) -> None:
    """Its handler has returned. The row says that it was interrupted, so nothing is lost, and nothing is hidden."""
    for number in range(20):  # on a busy machine, the ending may be on record by then
        store = str(tmp_path / f"{number}.db")
        with program(DIES_BEFORE_ITS_RECORD, store) as process:
            waiting = await asyncio.to_thread(line_of, process)
            await asyncio.to_thread(process.wait)
        if waiting == "first":
            break
    else:
        pytest.fail("no success waited for others")
    keys: list[str] = []
    again = asyncio.Event()
    scheduler = Scheduler(store)

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        keys.append(run.idempotency_key)
        if len(keys) == 2:
            again.set()

    async with scheduler:
        before = [(row.attempt, row.outcome) for row in await scheduler.run_log("first")]
        await again.wait()

    rows = await scheduler.run_log("first")
    await scheduler.stop()
    assert before[-1] == (1, Outcome.INTERRUPTED)
    assert [(row.attempt, row.outcome) for row in rows] == [(2, Outcome.SUCCESS), (1, Outcome.INTERRUPTED)]
    assert len(keys) == 2  # each job once more


async def test_a_running_scheduler_takes_over_from_a_process_that_is_killed(shared: str) -> None:
    """On one host nobody waits for a lease: the process is gone, and that can be seen."""
    taken_over = asyncio.Event()
    with program(HANGS, shared) as process:
        assert await asyncio.to_thread(line_of, process) == "working"
        scheduler = Scheduler(shared)

        @scheduler.handler("work")
        async def work() -> None:
            taken_over.set()

        async with scheduler:
            assert not taken_over.is_set()
            process.send_signal(signal.SIGKILL)
            await taken_over.wait()


async def test_a_job_added_by_another_process_is_noticed(shared: str) -> None:
    """An operator's terminal and a service share one file."""
    ran = asyncio.Event()
    scheduler = Scheduler(shared)

    @scheduler.handler("work")
    async def work() -> None:
        ran.set()

    adds = """
        import asyncio, sys
        from scheduler_async import At, Scheduler
        from scheduler_async.timekeeping.instants import from_micros

        async def main():
            scheduler = Scheduler(sys.argv[1])
            await scheduler.add_job(At(from_micros(0)), handler="work", id="once")
            await scheduler.stop()

        asyncio.run(main())
    """
    async with scheduler:
        with program(adds, shared) as process:
            await ran.wait()
            assert await asyncio.to_thread(process.wait) == 0


async def test_a_run_of_a_job_that_another_process_removes_is_cancelled(shared: str) -> None:
    """What was removed must not go on working, wherever it runs."""
    cancelled = asyncio.Event()
    scheduler = Scheduler(shared)

    @scheduler.handler("work")
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    removes = """
        import asyncio, sys
        from scheduler_async import Scheduler

        async def main():
            scheduler = Scheduler(sys.argv[1])
            await scheduler.remove_job("stuck")
            await scheduler.stop()

        asyncio.run(main())
    """
    async with scheduler:
        await scheduler.add_job(Manual(), handler="work", id="stuck")
        await scheduler.trigger_job("stuck")
        with program(removes, shared) as process:
            await cancelled.wait()
            assert await asyncio.to_thread(process.wait) == 0
        assert await scheduler.get_job("stuck") is None


# Leases as short as a test can wait for; they are the same for all who share a file.
SHORT_LEASES = {"LEASE": 1.0, "BEAT": 0.2, "MARGIN": 0.3, "POLL": 0.1}

FREEZES = f"""
    import asyncio, sys
    from scheduler_async import Scheduler
    from scheduler_async.engine import membership
    from scheduler_async.stores import liveness

    for module in (membership, liveness):
        for name, value in {SHORT_LEASES}.items():
            setattr(module, name, value)

    async def main():
        scheduler = Scheduler(sys.argv[1])

        @scheduler.handler("work")
        async def work():
            print("working", flush=True)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("let go", flush=True)
                raise

        async with scheduler:
            await asyncio.Event().wait()

    asyncio.run(main())
"""


def freeze(process: subprocess.Popen[str], store: str) -> None:
    """Stop a process, and not in the middle of a transaction, which would keep everybody else from the file."""
    if "://" in store:  # a server ends a transaction whose process has stopped
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        return
    with closing(sqlite3.connect(store, timeout=30, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        db.execute("ROLLBACK")


async def test_a_process_that_froze_lets_go_of_what_was_taken_over(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know that it stood still: the store does, and does not listen to it."""
    for module in (membership, liveness):
        for name, value in SHORT_LEASES.items():
            monkeypatch.setattr(module, name, value, raising=False)
    scheduler = Scheduler(shared)
    await scheduler.add_job(At(from_micros(0)), handler="work", id="once")
    again = asyncio.Event()

    with program(FREEZES, shared) as process:
        assert await asyncio.to_thread(line_of, process) == "working"

        @scheduler.handler("work")
        async def work() -> None:
            again.set()

        freeze(process, shared)
        async with scheduler:
            await again.wait()
            process.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(line_of, process) == "let go"
        rows = await scheduler.run_log("once")
        await scheduler.stop()

    assert [(row.outcome, row.attempt) for row in rows] == [(Outcome.SUCCESS, 2), (Outcome.INTERRUPTED, 1)]


WORKS = """
    import asyncio, os, sys, time
    from datetime import timedelta
    from scheduler_async import Scheduler

    async def main():
        scheduler = Scheduler(sys.argv[1], min_interval=timedelta(milliseconds=1))
        log = open(sys.argv[2], "a", buffering=1)

        @scheduler.handler("work")
        async def work(run):
            log.write(f"begin {run.job_id} {run.scheduled_for.timestamp()} {run.attempt} {os.getpid()}\\n")
            await asyncio.sleep(0)  # long enough for others to claim
            log.write(f"end {run.job_id} {run.scheduled_for.timestamp()} {run.attempt} {os.getpid()}\\n")

        async with scheduler:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(main())
"""


async def test_processes_that_share_a_file_run_each_occurrence_once(shared: str, tmp_path: Path) -> None:
    """The claim decides, and it is one statement: four processes and forty one-shots, each run by one of them."""
    log = tmp_path / "log.txt"
    scheduler = Scheduler(shared)
    for number in range(40):
        await scheduler.add_job(At(from_micros(number)), handler="work", id=f"once-{number}")
    await scheduler.stop()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKS), shared, str(log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert await asyncio.to_thread(line_of, process) == "ready"
        while len(await scheduler.run_log(outcome="success", limit=None)) < 40:
            await asyncio.to_thread(os.sched_yield)
        for process in processes:
            process.communicate("\n", timeout=30)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    rows = await scheduler.run_log(limit=None)
    await scheduler.stop()

    begun = Counter(line.split()[1] for line in log.read_text().splitlines() if line.startswith("begin"))
    assert begun == Counter({f"once-{number}": 1 for number in range(40)})
    assert len(rows) == 40
    assert {process.returncode for process in processes} == {0}


JUMPS = """
    import asyncio, os, sys
    from datetime import timedelta
    from pathlib import Path
    from scheduler_async import EventKind, Scheduler
    from scheduler_async.timekeeping.clock import SystemClock

    class ShiftedClock(SystemClock):
        def micros(self):
            return super().micros() + int(Path(sys.argv[3]).read_text()) * 1_000_000

    async def main():
        scheduler = Scheduler(sys.argv[1], min_interval=timedelta(milliseconds=1), clock=ShiftedClock())
        file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def log(*words):
            os.write(file, (" ".join(map(str, words)) + "\\n").encode())

        @scheduler.handler("work")
        async def work(run):
            log("begin", run.job_id, run.scheduled_for.timestamp())
            await asyncio.sleep(0.05)  # some are in progress whenever the clock jumps

        async def tell_of_jumps():
            async for event in scheduler.events():
                if event.kind is EventKind.CLOCK_JUMPED:
                    log("jumped", os.getpid())
                    if scheduler.state().problem:
                        await asyncio.sleep(0.5)  # in which every job is due
                        log("held", os.getpid(), await scheduler.explain("every-0"))

        telling = asyncio.ensure_future(tell_of_jumps())
        async with scheduler:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        await telling

    asyncio.run(main())
"""


class TwoThatJump:
    """Two processes that share a file and a wall clock, and what they write to a log. They end well."""

    JOBS: ClassVar = {
        **{f"every-{number}": Every(timedelta(milliseconds=100 + number)) for number in range(5)},
        "delay": Delay(timedelta(milliseconds=100)),
    }

    def __init__(self, directory: Path) -> None:
        self.path, self._log, self._offset = directory / "jobs.db", directory / "log.txt", directory / "offset"
        self._processes: list[subprocess.Popen[str]] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        self.set_clock(0)
        await self.add(self.JOBS)
        with ExitStack() as stack:
            programs = (program(JUMPS, self.path, self._log, self._offset) for _ in range(2))
            self._processes = [stack.enter_context(started) for started in programs]
            for process in self._processes:
                assert await asyncio.to_thread(line_of, process) == "ready"
            yield
            for process in self._processes:
                process.communicate("\n", timeout=30)
            assert {process.returncode for process in self._processes} == {0}

    async def add(self, schedules: Mapping[str, Schedule]) -> None:
        scheduler = Scheduler(self.path, min_interval=timedelta(milliseconds=1))
        await scheduler.add_jobs([JobSpec(schedule, handler="work", id=job) for job, schedule in schedules.items()])
        await scheduler.stop()

    def set_clock(self, ahead: int) -> None:
        """Let both clocks jump at once."""
        new = self._offset.with_suffix(".new")
        new.write_text(str(ahead))
        new.replace(self._offset)

    def lines(self, what: str) -> list[list[str]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.split() for line in lines if line.startswith(what)]

    def begun(self) -> list[tuple[str, float]]:
        """The occurrences that were begun, in order."""
        return [(job, float(moment)) for _, job, moment in self.lines("begin")]

    async def all_tell(self, what: str, times: int) -> None:
        """Wait until each process has said it that often."""
        wanted = Counter({str(process.pid): times for process in self._processes})
        while not wanted <= Counter(pid for _, pid, *_ in self.lines(what)):
            await asyncio.sleep(0.01)

    async def all_begin(self, times: int = 3) -> None:
        """Wait until each job has begun that often from now on."""
        before = len(self.begun())
        while not Counter(dict.fromkeys(self.JOBS, times)) <= Counter(job for job, _ in self.begun()[before:]):
            await asyncio.sleep(0.01)


async def test_nothing_runs_twice_and_nothing_stands_still_when_the_clock_jumps(tmp_path: Path) -> None:
    """An hour ahead and back again; and back by two seconds, to where it has just been."""
    two = TwoThatJump(tmp_path)
    async with two.working():
        await two.all_begin()
        await two.add({"once": At(datetime.now(UTC) + timedelta(minutes=30))})

        for number, ahead in enumerate((3600, 0, -2), start=1):
            two.set_clock(ahead)
            await two.all_tell("jumped", times=number)
            await two.all_begin()

    begun = Counter(two.begun())
    assert begun.most_common(1)[0][1] == 1
    assert [job for job, _ in begun].count("once") == 1


async def test_an_absurd_jump_holds_every_process_that_shares_the_file(tmp_path: Path) -> None:
    """All that is due then is more likely due to a broken clock; each process says so, and all goes on after that."""
    two = TwoThatJump(tmp_path)
    async with two.working():
        await two.all_begin()

        two.set_clock(400 * 86_400)
        jumped_at = time.time()
        await two.all_tell("held", times=1)
        begun = two.begun()
        two.set_clock(0)
        await two.all_begin()

    claimed_until = jumped_at + LONGEST_REACH / SECOND  # what was claimed before, ahead of its time, begins in time
    assert [moment for _, moment in begun if moment > claimed_until] == []
    assert all("jumped by more than a year" in " ".join(line) for line in two.lines("held"))
    assert Counter(two.begun()).most_common(1)[0][1] == 1


def test_a_program_that_forgets_to_stop_still_ends(shared: str) -> None:
    """A crash outside of `async with` must show its traceback, and not hang for ever."""
    forgets = """
        import asyncio, sys
        from scheduler_async import Scheduler

        scheduler = Scheduler(sys.argv[1])

        async def main():
            await scheduler.start()
            raise RuntimeError("a bug of the user's")

        asyncio.run(main())
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(forgets), shared],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 1
    assert "a bug of the user's" in done.stderr
