"""Processes that share a store, and the log that all of them write to."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Self

from scheduler_async import EventKind, Job, JobSpec, Run, RunRow, Scheduler
from scheduler_async.engine import membership
from scheduler_async.stores import liveness
from scheduler_async.stores.postgres import store as postgres
from scheduler_async.timekeeping.clock import SystemClock
from torturing.accounts import MILLISECOND, SECOND, Line, micros_of
from torturing.unrest import Unrest, Write

# How long anything may take that should take a moment, on a machine that is busy with other things.
PATIENCE = 60.0  # seconds


@dataclass(frozen=True)
class Log:
    """A file that processes append lines to. A line is written at once or not at all."""

    path: Path

    def writer(self) -> Write:
        """A function that appends `what job scheduled_for attempt pid monotonic`."""
        file, pid = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), os.getpid()

        def write(what: str, run: Run | None = None, *, about: str = "- 0 0") -> None:
            which = about if run is None else f"{run.job_id} {micros_of(run.scheduled_for)} {run.attempt}"
            os.write(file, f"{what} {which} {pid} {time.monotonic_ns()}\n".encode())

        return write

    def read(self) -> list[Line]:
        """All lines, by time: that is the same clock for all processes."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        found = [Line(what, job, int(due), int(n), int(pid), int(at)) for what, job, due, n, pid, at in lines]
        return sorted(found, key=lambda line: line.at)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a worker works."""

    lease: float | None = None
    """Seconds; None is what the scheduler takes by itself."""
    offset: str | None = None
    """A file with the seconds that the worker's wall clock is ahead."""
    restless: bool = False
    """Whether it stops and starts its scheduler all the time, and calls it meanwhile."""


class ShiftedClock(SystemClock):
    """The machine's time and as much more as a file says, which may change at any moment."""

    def __init__(self, offset: Path) -> None:
        with offset.open("rb") as file:
            self._seconds = mmap(file.fileno(), 8, access=ACCESS_READ)

    def micros(self) -> int:
        """The wall clock, in microseconds since the epoch."""
        (seconds,) = struct.unpack("q", self._seconds[:8])
        return super().micros() + int(seconds) * SECOND


def shift(offset: Path, seconds: int) -> None:
    """Let all clocks that read *offset* jump."""
    with offset.open("r+b" if offset.exists() else "wb") as file:
        file.write(struct.pack("q", seconds))


def shorten(lease: float) -> None:
    """Let everything happen sooner that has to do with the lease, in proportion."""
    for name, seconds in {"LEASE": lease, "BEAT": lease / 4, "MARGIN": lease / 4, "POLL": 0.2}.items():
        setattr(membership, name, seconds)
        if hasattr(liveness, name):
            setattr(liveness, name, seconds)
    postgres.BEAT_TIMEOUT, postgres.RUN_TIMEOUT = lease / 10, lease / 3
    postgres.LONGEST_PAUSE = f"{lease / 3:.1f}s"


async def work(store: Path | str, log: Log, terms: Terms) -> None:
    """Run jobs until told to end."""
    if terms.lease is not None:
        shorten(terms.lease)
    clock = SystemClock() if terms.offset is None else ShiftedClock(Path(terms.offset))
    scheduler = Scheduler(store, min_interval=MILLISECOND, keep_runs=None, clock=clock)
    write = log.writer()

    async def tell_of_faults() -> None:
        async for event in scheduler.events():
            if event.kind is EventKind.STORE_FAILED:
                write("failed" if scheduler.state().problem else "failed-silently", None)
            elif event.kind is EventKind.STORE_RECOVERED:
                write("recovered", None)
            elif event.kind is EventKind.CLOCK_JUMPED:
                write("held" if "jumped" in (scheduler.state().problem or "") else "jumped", None)

    add_handlers(scheduler, write)
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    telling = asyncio.ensure_future(tell_of_faults())
    await scheduler.start()
    write("ready", None)
    if terms.restless:
        await Unrest(scheduler, write).last_until(asked)
    await asked.wait()
    await scheduler.stop(cancel=True)
    telling.cancel()


def add_handlers(scheduler: Scheduler, write: Write) -> None:
    """Let *scheduler* run what the parts ask for, each run with lines in the log."""

    @scheduler.handler("tick")
    async def tick(run: Run) -> None:
        write("begin", run)
        await asyncio.sleep(0.002)
        write("end", run)

    @scheduler.handler("effect")
    async def effect(run: Run) -> None:
        write("begin", run)
        await asyncio.sleep(0.015)
        write("effect", run)
        await asyncio.sleep(0.015)
        write("end", run)

    @scheduler.handler("poison")
    async def poison(run: Run) -> None:
        write("begin", run)
        os.kill(os.getpid(), signal.SIGKILL)

    @scheduler.handler("long")
    async def long(run: Run) -> None:
        """Takes the first or the second time of its payload, when it is tried first and when it is tried again."""
        assert isinstance(run.payload, list)
        write("begin", run)
        try:
            await asyncio.sleep(float(str(run.payload[min(run.attempt, 2) - 1])))
        except asyncio.CancelledError:
            write("cancelled", run)
            raise
        write("end", run)

    @scheduler.handler("incremental")
    async def incremental(run: Run) -> int:
        """Takes the position after its cursor. Every tenth kills its process when that has had its effect."""
        assert isinstance(run.payload, list)
        write("begin", run)
        try:
            await asyncio.sleep(0.01)
            position = int(str(run.cursor or 0)) + 1
            write("consumed", about=f"{run.job_id} {position} {run.id}")
            run.cursor = position
            if position % 10 == 3 and run.attempt == 1:
                write("dying", run)
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(float(str(run.payload[min(run.attempt, 2) - 1])))
        except asyncio.CancelledError:
            write("cancelled", run)
            raise
        write("end", run)
        return position


class Crew:
    """The processes that share a file, or what is at a URL. Those that still live in the end are killed."""

    def __init__(
        self, directory: Path, terms: Terms | None = None, store: Path | None = None, url: str | None = None
    ) -> None:
        directory.mkdir()
        self.store, self.log, self.terms = store or directory / "jobs.db", Log(directory / "log"), terms or Terms()
        self._address = url or self.store
        self.errors = directory / "errors"
        self.alive: list[subprocess.Popen[bytes]] = []
        self._pids: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self.alive:
            process.kill()
            process.wait()

    def start(self, way: str | None = None) -> subprocess.Popen[bytes]:
        """One more process; with another *way* to the store, if there is one."""
        terms = json.dumps(asdict(self.terms))
        command = [sys.executable, "-m", "torturing.crew", way or str(self._address), str(self.log.path), terms]
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(command, stderr=errors, cwd=Path(__file__).parents[1])
        assert process.pid not in self._pids, "a process number was given out again, so the log is ambiguous"
        self._pids.add(process.pid)
        self.alive.append(process)
        return process

    def start_and_wait(self, count: int) -> list[subprocess.Popen[bytes]]:
        """More processes, all of them ready to run what is due."""
        started = [self.start() for _ in range(count)]
        self._wait_until_ready()
        return started

    def _wait_until_ready(self) -> None:
        pids = {process.pid for process in self.alive}
        wait_until(lambda: pids <= {line.pid for line in self.log.read() if line.what == "ready"}, "processes to start")

    def kill(self, process: subprocess.Popen[bytes]) -> int:
        """Kill one, and return the last moment at which it lived for sure."""
        at = time.monotonic_ns()
        process.kill()
        process.wait()
        self.alive.remove(process)
        return at

    def replace_dead(self) -> int:
        """Start a new process for each that is gone, and return how many were."""
        dead = [process for process in self.alive if process.poll() is not None]
        for process in dead:
            if process.returncode != -signal.SIGKILL:
                raise ChildProcessError(
                    f"A process ended with {process.returncode}:\n{self.errors.read_text()[-2000:]}"
                )
            self.alive.remove(process)
            self.start()
        return len(dead)

    def stop(self) -> int:
        """Ask all to end, wait for them, and return how many did not end well."""
        self._wait_until_ready()  # before that, they do not know what they are asked
        for process in self.alive:
            process.terminate()
        codes = [process.wait(PATIENCE) for process in self.alive]
        self.alive.clear()
        return sum(code != 0 for code in codes)

    def errors_logged(self) -> int:
        """How often a scheduler reported an error of its own."""
        text = self.errors.read_text(errors="replace")
        if "ERROR " in text:
            print(text[text.index("ERROR ") :][:2000])
        return text.count("ERROR ")

    def add(self, specs: Sequence[JobSpec]) -> None:
        """Add jobs, as one more process that shares the file."""

        async def add() -> None:
            scheduler = Scheduler(self._address, min_interval=MILLISECOND)
            await scheduler.add_jobs(specs)
            await scheduler.stop()

        asyncio.run(add())

    def wait_for_the_end(self) -> None:
        """Wait until no job has anything left to do."""
        wait_until(lambda: not any(job.enabled for job in self.records()[0]), "the last runs", pause=0.5)

    def records(self) -> tuple[list[Job], list[RunRow]]:
        """All jobs and all rows."""

        async def read() -> tuple[list[Job], list[RunRow]]:
            scheduler = Scheduler(self._address)
            records = await scheduler.list_jobs(), await scheduler.run_log(limit=None)
            await scheduler.stop()
            return records

        return asyncio.run(read())

    def nodes(self) -> int:
        """How many processes the store takes for living, or does not yet know to be dead."""

        async def count() -> int:
            scheduler = Scheduler(self._address)
            nodes = await scheduler.nodes()
            await scheduler.stop()
            return len(nodes)

        return asyncio.run(count())


def wait_until(is_so: Callable[[], bool], what: str, pause: float = 0.05) -> None:
    """Look again and again."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE:g} s for {what}.")
        time.sleep(pause)


def main() -> None:
    store, log, terms = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(process)d %(message)s")
    asyncio.run(work(store if "://" in store else Path(store), Log(Path(log)), Terms(**json.loads(terms))))


if __name__ == "__main__":
    main()
