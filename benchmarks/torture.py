"""Is anything lost, and does anything run twice? With real processes, on a real file.

Every handler writes a line when it begins and when it ends, with one system call, to a log that all processes append
to. What is counted is counted from that log and compared with what the store says, so the store is not its own witness.

    shared   1, 2, 4 and 8 processes share a file: each occurrence runs once, or a row says why not
    kill     processes are killed at random moments: no one-shot is lost, and what was repeated is on record
    freeze   a process stands still for longer than its lease: its runs are taken over, and it writes nothing after that

    python benchmarks/torture.py [--parts shared,kill,freeze] [--quick] [--seed 1] [--json FILE]

It takes five minutes, or one with --quick, and its exit code is 1 if anything is missed. It freezes and kills
with signals, which Windows does not have.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import quantiles
from types import TracebackType
from typing import NamedTuple, Self

from scheduler_async import At, Every, Job, JobSpec, Retry, Run, RunRow, Scheduler, engine, nodes

SECOND = 1_000_000  # microseconds, as in the store
MILLISECOND = timedelta(milliseconds=1)
# Later than every line of a log: a run that never ended.
NEVER = 2**63
# How long anything may take that should take a moment, on a machine that is busy with other things.
PATIENCE = 60.0  # seconds
# What a process may need to notice, when it wakes up, that its runs are no longer its own.
WAKING_UP = 1.0  # seconds
# Being killed is no fault of these jobs: they are not given up for it.
PATIENT = Retry.none(disable_after=1_000_000)


# ---------------------------------------------------------------- a worker


@dataclass(frozen=True)
class Log:
    """A file that processes append lines to. A line is written at once or not at all."""

    path: Path

    def writer(self) -> Callable[[str, Run | None], None]:
        """A function that appends `what job scheduled_for attempt pid monotonic`."""
        file, pid = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), os.getpid()

        def write(what: str, run: Run | None = None) -> None:
            which = "- 0 0" if run is None else f"{run.job_id} {micros_of(run.scheduled_for)} {run.attempt}"
            os.write(file, f"{what} {which} {pid} {time.monotonic_ns()}\n".encode())

        return write

    def read(self) -> list[Line]:
        """All lines, by time: that is the same clock for all processes."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        found = [Line(what, job, int(due), int(n), int(pid), int(at)) for what, job, due, n, pid, at in lines]
        return sorted(found, key=lambda line: line.at)


class Line(NamedTuple):
    """What a process did: it got `ready`, or a run had its `begin`, `effect` and `end`, or was `cancelled`."""

    what: str
    job: str
    scheduled_for: int
    attempt: int
    pid: int
    at: int


async def work(store: Path, log: Log, lease: float | None) -> None:
    """Run jobs until told to end."""
    if lease is not None:
        nodes.LEASE = lease
        for name, seconds in {"LEASE": lease, "BEAT": lease / 4, "MARGIN": lease / 4, "POLL": 0.2}.items():
            setattr(engine, name, seconds)
    scheduler = Scheduler(store, min_interval=MILLISECOND, keep_runs=None)
    write = log.writer()

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

    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    await scheduler.start()
    write("ready", None)
    await asked.wait()
    await scheduler.stop(cancel=True)


class Crew:
    """The processes that share a file. Those that still live in the end are killed."""

    def __init__(self, directory: Path, lease: float | None = None) -> None:
        directory.mkdir()
        self.store, self.log, self.lease = directory / "jobs.db", Log(directory / "log"), lease
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

    def start(self) -> subprocess.Popen[bytes]:
        """One more process."""
        command = [sys.executable, __file__, "--worker", str(self.store), str(self.log.path)]
        command += [] if self.lease is None else ["--lease", str(self.lease)]
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(command, stderr=errors)
        assert process.pid not in self._pids, "a process number was given out again: who is who in the log?"
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
            scheduler = Scheduler(self.store, min_interval=MILLISECOND)
            await scheduler.add_jobs(specs)
            await scheduler.stop()

        asyncio.run(add())

    def records(self) -> tuple[list[Job], list[RunRow]]:
        """All jobs and all rows."""

        async def read() -> tuple[list[Job], list[RunRow]]:
            scheduler = Scheduler(self.store)
            records = await scheduler.list_jobs(), await scheduler.run_log(limit=None)
            await scheduler.stop()
            return records

        return asyncio.run(read())


def wait_until(is_so: Callable[[], bool], what: str, pause: float = 0.05) -> None:
    """Look again and again."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE:g} s for {what}.")
        time.sleep(pause)


# ---------------------------------------------------------------- what a log and a store tell


class Period(NamedTuple):
    """A run, as the log has it."""

    job: str
    scheduled_for: int
    attempt: int
    pid: int
    begun: int
    ended: int


def periods(lines: Iterable[Line], died: Mapping[int, int]) -> list[Period]:
    """All runs. One that did not end ended with its process, when that *died* or with its last sign of life."""
    going: dict[tuple[str, int, int, int], int] = {}
    found: list[Period] = []
    last: dict[int, int] = {}
    for line in lines:
        last[line.pid] = line.at
        key = (line.job, line.scheduled_for, line.attempt, line.pid)
        if line.what == "begin":
            if key in going:
                found.append(Period(*key, going[key], NEVER))  # the same once more: two at once, however it ends
            going[key] = line.at
        elif line.what in ("end", "cancelled"):
            found.append(Period(*key, going.pop(key), line.at))
    for key, begun in going.items():
        pid = key[-1]
        found.append(Period(*key, begun, max(died[pid], last[pid]) if pid in died else NEVER))
    return found


def overlaps(runs: Iterable[Period]) -> int:
    """How often a run of a job began while another one went on."""
    count = 0
    busy_until: dict[str, int] = defaultdict(int)
    for run in sorted(runs, key=lambda run: run.begun):
        count += run.begun < busy_until[run.job]
        busy_until[run.job] = max(busy_until[run.job], run.ended)
    return count


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The occurrences of an interval job, computed here and not by the scheduler."""

    first: int
    step: int
    count: int

    def all(self) -> set[int]:
        """Every occurrence."""
        return set(self.starting_with(self.first, self.count))

    def starting_with(self, first: int, count: int) -> range:
        """What a row stands for that says *count* were left out, from *first* on."""
        return range(first, first + count * self.step, self.step)

    def spec(self, name: str, handler: str) -> JobSpec:
        """A job with these occurrences."""
        last = instant(self.first + (self.count - 1) * self.step)
        step = timedelta(microseconds=self.step)
        return JobSpec(
            Every(step, anchor=instant(self.first), end=last),
            id=name,
            handler=handler,
            retry=PATIENT,
            payload=[0.1, 0.1],
        )


def left_out(rows: Iterable[RunRow], grids: Mapping[str, Grid]) -> Counter[tuple[str, int]]:
    """The occurrences that rows account for as not run."""
    counted: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row.attempt == 0:
            first, grid = micros_of(row.scheduled_for), grids.get(row.job_id)
            for moment in [first] if grid is None else grid.starting_with(first, row.missed):
                counted[row.job_id, moment] += 1
    return counted


def pid_of(row: RunRow) -> int:
    """The process that a run was claimed by."""
    return int((row.node or "::0:").rsplit(":", 2)[1])


def key_of(row: RunRow) -> tuple[str, int]:
    """The occurrence that a row is about."""
    return row.job_id, micros_of(row.scheduled_for)


def micros_of(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def instant(micros: int) -> datetime:
    """The moment, from microseconds since the epoch."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def now_micros() -> int:
    """The wall clock."""
    return time.time_ns() // 1000


def wall_ahead() -> int:
    """What to add to the monotonic clock to get the wall clock, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that *percent* of all are not above."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else sum(values)


@dataclass
class Goals:
    """What must hold, and whether it does."""

    results: list[tuple[str, bool]] = field(default_factory=list)

    def expect(self, words: str, holds: bool) -> None:
        """Note one."""
        self.results.append((words, holds))

    def expect_none(self, words: str, count: float) -> None:
        """Note one that is a count, which should be zero."""
        self.expect(f"{words}: {count}", count == 0)


# ---------------------------------------------------------------- part 1: one file, many processes


def shared(directory: Path, quick: bool, _random: Random, goals: Goals) -> dict[str, object]:
    """What each process count makes of the same load: several hundred occurrences per second."""
    titles = ("processes", "due", "run", "merged", "twice", "lost", "at once", "share", "late p50", "late p99")
    layout = "{:>10} {:>7} {:>7} {:>7} {:>6} {:>6} {:>8} {:>10} {:>12} {:>12}"
    print(f"\nshared: one file, many processes\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for count in (1, 2, 4, 8):
        row = share(directory / f"shared-{count}", count, seconds=2 if quick else 8)
        figures[str(count)] = row
        print(
            layout.format(
                count,
                row["due"],
                row["run"],
                row["merged"],
                row["twice"],
                row["lost"],
                row["at_once"],
                f"{row['share_min']:.0f}-{row['share_max']:.0f} %",
                f"{row['late_p50_ms']:.1f} ms",
                f"{row['late_p99_ms']:.1f} ms",
            )
        )
        name = f"{count} {'process' if count == 1 else 'processes'}"
        goals.expect_none(f"shared, {name}: occurrences run twice", row["twice"])
        goals.expect_none(f"shared, {name}: occurrences neither run nor accounted for", row["lost"])
        goals.expect_none(f"shared, {name}: occurrences run and accounted for as not run", row["both"])
        goals.expect_none(f"shared, {name}: two runs of a job at once", row["at_once"])
        goals.expect_none(f"shared, {name}: errors and bad exits", row["errors"])
    return figures


def share(directory: Path, count: int, seconds: int) -> dict[str, float]:
    """One row of the table: interval jobs on staggered grids, and one-shots in between, for *seconds*."""
    ahead = wall_ahead()
    with Crew(directory) as crew:
        crew.start_and_wait(count)
        begin = now_micros() + 2 * SECOND  # by then, all processes know of the jobs
        grids = {
            f"every-{number}": Grid(first=begin + number * 5_000, step=500_000, count=2 * seconds)
            for number in range(100)
        }
        shots = {f"once-{number}": begin + number * 10_000 for number in range(100 * seconds)}
        crew.add(
            [grid.spec(name, "tick") for name, grid in grids.items()]
            + [JobSpec(At(instant(at)), handler="tick", id=name) for name, at in shots.items()]
        )
        time.sleep(seconds + 2.5)
        wait_until(lambda: all(job.next_run_at is None for job in crew.records()[0]), "the last runs", pause=0.5)
        bad_exits = crew.stop()
        lines, (jobs, rows) = crew.log.read(), crew.records()
    assert len(jobs) == len(grids) + len(shots)
    due = {(name, moment) for name, grid in grids.items() for moment in grid.all()} | set(shots.items())
    runs = periods(lines, {})
    begun = Counter((run.job, run.scheduled_for) for run in runs)
    merged = left_out(rows, grids)
    shares = sorted(100 * number / len(runs) for number in Counter(run.pid for run in runs).values())
    late = [(run.begun + ahead) / 1e6 - run.scheduled_for / 1e3 for run in runs]
    return {
        "due": len(due),
        "run": len(begun),
        "merged": merged.total(),
        "twice": sum(number > 1 for number in begun.values()),
        "lost": len(due - begun.keys() - merged.keys()),
        "both": len(merged.keys() & begun.keys()) + merged.total() - len(merged) + len((begun.keys() | merged) - due),
        "at_once": overlaps(runs),
        "share_min": shares[0] if len(shares) == count else 0.0,
        "share_max": shares[-1],
        "late_p50_ms": percentile(late, 50),
        "late_p99_ms": percentile(late, 99),
        "errors": bad_exits + crew.errors_logged(),
    }


# ---------------------------------------------------------------- part 2: killed at random


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What there is to look at when it is over. Moments of death are those of the monotonic clock."""

    lines: list[Line]
    jobs: list[Job]
    rows: list[RunRow]
    shots: dict[str, int]
    grids: dict[str, Grid]
    killed: dict[int, int]
    by_poison: int
    errors: int
    wall_ahead: int


def kill(directory: Path, quick: bool, random: Random, goals: Goals) -> dict[str, object]:
    """Two processes, one of them killed at a random moment and replaced at once, again and again.

    A handler has its effect in the middle of its work. An effect may come twice, since nobody can know how far a killed
    run came; but then there is a row that says that it was interrupted. One job kills whatever process runs it.
    """
    wanted, shots = (10, 200) if quick else (200, 2_000)
    left = kill_and_replace(directory / "kill", wanted, shots, random)
    figures = {**what_was_lost(left), **what_was_repeated(left), **how_it_was_recovered(left), "errors": left.errors}
    tell("kill: killed at random", figures)
    goals.expect(f"kill: at least {wanted} kills: {figures['kills']}", figures["kills"] >= wanted)
    goals.expect_none("kill: one-shots lost", figures["one_shots_lost"])
    goals.expect_none("kill: interval occurrences without a row", figures["interval_occurrences_without_a_row"])
    goals.expect_none("kill: two runs of a job at once", figures["two_runs_at_once"])
    goals.expect_none("kill: effects repeated without an interrupted row", figures["repeated_without_a_row"])
    goals.expect_none("kill: healthy jobs disabled", figures["healthy_jobs_disabled"])
    goals.expect_none("kill: errors and bad exits", figures["errors"])
    took = f"{figures['recovery_p50_ms']:.0f} ms, at most {figures['recovery_max_ms']:.0f} ms"
    # A peer looks every second, and a new process when it starts. On a busy machine, the former comes first.
    goals.expect(f"kill: half of the recoveries take less than 1 s: {took}", 0 < figures["recovery_p50_ms"] < 1000)
    goals.expect(f"kill: none takes a second: {took}", figures["recovery_max_ms"] < 1000)
    goals.expect(
        f"kill: what kills its process each time is disabled after 5 times: {figures['poison_interrupted']}",
        figures["poison_disabled"] == 1 and figures["poison_interrupted"] == 5,
    )
    return dict(figures)


def kill_and_replace(directory: Path, wanted: int, shots: int, random: Random) -> Aftermath:
    """Kill until there were *wanted* kills and all *shots* one-shots were due, and let the rest come to its end."""
    window = int(wanted * 0.5 * SECOND)
    ahead = wall_ahead()
    killed: dict[int, int] = {}
    by_poison = 0
    with Crew(directory) as crew:
        crew.start_and_wait(2)
        begin = now_micros() + 2 * SECOND
        due = {f"once-{number}": begin + random.randrange(window) for number in range(shots)}
        grids = {
            f"every-{number}": Grid(first=begin + number * 10_000, step=250_000, count=window // 250_000)
            for number in range(20)
        }
        early = instant(begin + window // 10)
        crew.add(
            [JobSpec(At(instant(at)), handler="effect", id=name, retry=PATIENT) for name, at in due.items()]
            + [grid.spec(name, "effect") for name, grid in grids.items()]
            + [JobSpec(Every("1m", anchor=early), handler="poison", id="poison", retry=Retry.backoff())]
        )
        time.sleep(2)
        while len(killed) < wanted or now_micros() < begin + window:
            until = time.monotonic() + random.uniform(0.1, 0.9)
            while time.monotonic() < until:
                by_poison += crew.replace_dead()
                time.sleep(0.005)
            victim = random.choice(crew.alive)
            if victim.poll() is None:
                killed[victim.pid] = crew.kill(victim)
                crew.start()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and any(job.status != "disabled" for job in crew.records()[0]):
            for _ in range(100):  # looking at the store takes a while, and who is gone is to be replaced at once
                by_poison += crew.replace_dead()
                time.sleep(0.005)
        bad_exits = crew.stop()
        jobs, rows = crew.records()
        return Aftermath(
            lines=crew.log.read(),
            jobs=jobs,
            rows=rows,
            shots=due,
            grids=grids,
            killed=killed,
            by_poison=by_poison,
            errors=bad_exits + crew.errors_logged(),
            wall_ahead=ahead,
        )


def what_was_lost(left: Aftermath) -> dict[str, float]:
    """One-shots that did not end well by the log and by the store, and occurrences that no row tells of."""
    ended = {(line.job, line.scheduled_for) for line in left.lines if line.what == "end"}
    succeeded = {key_of(row) for row in left.rows if row.outcome == "success"}
    told = {key_of(row) for row in left.rows if row.attempt} | left_out(left.rows, left.grids).keys()
    ticks = {(name, moment) for name, grid in left.grids.items() for moment in grid.all()}
    return {
        "kills": len(left.killed),
        "one_shots": len(left.shots),
        "one_shots_lost": sum(shot not in ended & succeeded for shot in left.shots.items()),
        "interval_occurrences": len(ticks),
        "interval_occurrences_without_a_row": len(ticks - told),
        "healthy_jobs_disabled": sum(
            job.disabled_reason not in (None, "ended") and job.id != "poison" for job in left.jobs
        ),
    }


def what_was_repeated(left: Aftermath) -> dict[str, float]:
    """Runs of a job at the same time, and effects that came again. Each of those needs a row of its own."""
    runs = periods(left.lines, deaths(left))
    interrupted = Counter(key_of(row) for row in left.rows if row.outcome == "interrupted")
    effects = Counter((line.job, line.scheduled_for) for line in left.lines if line.what == "effect")
    return {
        "runs": len(runs),
        "two_runs_at_once": overlaps(runs),
        "runs_interrupted": interrupted.total(),
        "effects": effects.total(),
        "effects_repeated": effects.total() - len(effects),
        "repeated_without_a_row": sum(max(number - 1 - interrupted[key], 0) for key, number in effects.items()),
    }


def how_it_was_recovered(left: Aftermath) -> dict[str, float]:
    """How long the runs of a killed process lay there, and what became of the job that kills its process."""
    interrupted = [row for row in left.rows if row.outcome == "interrupted"]
    calm, disturbed = recoveries(interrupted, deaths(left), left.wall_ahead)
    (poison,) = (job for job in left.jobs if job.id == "poison")
    return {
        "kills_that_hit_a_run": len({pid_of(row) for row in interrupted} & left.killed.keys()),
        "recoveries": len(calm),
        "recovery_p50_ms": percentile(calm, 50),
        "recovery_max_ms": max(calm, default=0.0),
        "recoveries_with_another_death_meanwhile": len(disturbed),
        "such_recovery_p50_ms": percentile(disturbed, 50),
        "such_recovery_max_ms": max(disturbed, default=0.0),
        "poison_runs": sum(line.job == "poison" for line in left.lines),
        "poison_deaths": left.by_poison,
        "poison_interrupted": sum(row.job_id == "poison" for row in interrupted),
        "poison_disabled": int(poison.status == "disabled"),
    }


def deaths(left: Aftermath) -> dict[int, int]:
    """When processes died: when they were killed, or had poison."""
    return left.killed | {line.pid: line.at for line in left.lines if line.job == "poison"}


def recoveries(interrupted: Iterable[RunRow], died: Mapping[int, int], ahead: int) -> tuple[list[float], list[float]]:
    """Milliseconds from each death to the moment its runs were taken up.

    Apart from the others those in which another process died meanwhile: who should have taken them up was gone too.
    """
    calm: list[float] = []
    disturbed: list[float] = []
    for pid, moment in {(pid_of(row), row.finished_at) for row in interrupted}:
        if pid in died and moment is not None:
            recovered = micros_of(moment) * 1000 - ahead
            alone = not any(died[pid] < other < recovered for other in died.values())
            (calm if alone else disturbed).append((recovered - died[pid]) / 1e6)
    return calm, disturbed


# ---------------------------------------------------------------- part 3: frozen for longer than the lease


def freeze(directory: Path, quick: bool, _random: Random, goals: Goals) -> dict[str, object]:
    """A process that stands still, as a suspended machine does, and wakes up when others have its runs.

    It cannot let go of them before it wakes up: how long that takes then is a figure of its own, and only a run that
    goes on for longer than a moment, or begins while another goes on, is counted against it.
    """
    titles = (
        "lease",
        "in progress",
        "taken over",
        "late results",
        "written",
        "cancelled",
        "went on",
        "let go",
        "at once",
    )
    layout = "{:>6} {:>12} {:>11} {:>13} {:>8} {:>10} {:>8} {:>10} {:>8}"
    print(f"\nfreeze: frozen for longer than the lease\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for number, lease in enumerate((2.0,) if quick else (2.0, 2.0, 2.0, None)):
        seconds = nodes.LEASE if lease is None else lease
        row = stand_still(directory / f"freeze-{number}", lease, seconds)
        figures[f"{number + 1}: {seconds:g} s"] = row
        print(
            layout.format(
                f"{seconds:g} s",
                row["in_progress"],
                row["taken_over"],
                row["late_results"],
                row["late_results_written"],
                row["cancelled"],
                row["went_on"],
                f"{row['let_go_max_ms']:.0f} ms",
                row["at_once"],
            )
        )
        name = f"freeze {number + 1}, lease {seconds:g} s"
        missing = row["in_progress"] - row["taken_over"]
        goals.expect(f"{name}: runs in progress: {row['in_progress']}", row["in_progress"] >= 15)
        goals.expect_none(f"{name}: runs in progress that were not taken over", missing)
        goals.expect_none(f"{name}: late results written", row["late_results_written"])
        goals.expect_none(f"{name}: runs that went on after the wake-up", row["went_on"])
        goals.expect_none(f"{name}: two runs of a job at once", row["at_once"])
        goals.expect(f"{name}: the woken process works again", row["runs_after_waking"] > 0)
        goals.expect_none(f"{name}: errors and bad exits", row["errors"])
    return figures


def stand_still(directory: Path, lease: float | None, seconds: float) -> dict[str, float]:
    """One row of the table. Three kinds of runs are in progress when the process is frozen:

    gone      its second try is over before the process wakes up
    taken     its second try still goes on then: the first has to let go at once
    over      its time is up while the process is frozen: it ends as soon as that wakes up, and the result is too late
    """
    with Crew(directory, lease) as crew:
        (frozen,) = crew.start_and_wait(1)
        times = {"gone": [600.0, 0.2], "taken": [600.0, 7.0], "over": [5.0, 0.2]}
        crew.add(
            [
                JobSpec(At(instant(now_micros())), handler="long", id=f"{kind}-{number}", payload=list(pair))
                for kind, pair in times.items()
                for number in range(5)
            ]
        )
        wait_until(lambda: sum(line.what == "begin" for line in crew.log.read()) == 15, "the runs to begin")
        crew.start_and_wait(1)
        begin, count = now_micros(), int((seconds + 12) * 5)
        crew.add(
            [
                Grid(first=begin + number * 40_000, step=200_000, count=count).spec(f"every-{number}", "long")
                for number in range(5)
            ]
        )
        time.sleep(0.5)
        stopped_at, retries = stop_between_transactions(crew, frozen)
        time.sleep(seconds + 4)
        before = {row.id: row for row in crew.records()[1]}
        woken_at = time.monotonic_ns()
        frozen.send_signal(signal.SIGCONT)
        time.sleep(8)
        bad_exits = crew.stop()
        lines, (_, rows) = crew.log.read(), crew.records()

    runs = periods(lines, {})
    held = [run for run in runs if run.pid == frozen.pid and run.begun < stopped_at < run.ended]
    ended = {(line.job, line.scheduled_for, line.attempt, line.pid): line.what for line in lines}
    by_run = {(row.job_id, micros_of(row.scheduled_for), row.attempt): row for row in rows}
    taken_over = late = changed = 0
    for run in held:
        row = by_run[run[:3]]
        taken_over += row.outcome == "interrupted" and row.id in before
        late += ended[run[:4]] == "end"
        changed += row.outcome != "interrupted" or row != before.get(row.id)
    let_go = [(run.ended - woken_at) / 1e6 for run in held if ended[run[:4]] == "cancelled"]
    # While it is frozen it does not run, and it cannot let go before it wakes up.
    others = [run if run not in held else run._replace(ended=stopped_at) for run in runs]
    return {
        "in_progress": len(held),
        "taken_over": taken_over,
        "late_results": late,
        "late_results_written": changed,
        "cancelled": len(let_go),
        "went_on": sum(run.ended - woken_at > WAKING_UP * 1e9 for run in held),
        "let_go_max_ms": max(let_go, default=0.0),
        "at_once": overlaps(others),
        "runs_after_waking": sum(run.pid == frozen.pid and run.begun > woken_at for run in runs),
        "frozen_in_a_transaction": retries,
        "errors": bad_exits + crew.errors_logged(),
    }


def stop_between_transactions(crew: Crew, process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Freeze a process, and return when, and how often it held the file then: that locks all others out, lease or not.

    Which is what SQLite does with a process that stands still in the middle of a write, and not what is measured here.
    """
    for retries in range(100):
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        at = time.monotonic_ns()
        db = sqlite3.connect(crew.store, timeout=0.5, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        else:
            return at, retries
        finally:
            db.close()
    raise TimeoutError("The process always held the file when it was frozen.")


# ---------------------------------------------------------------- all of it


def tell(title: str, figures: Mapping[str, float]) -> None:
    """Print figures, one on a line."""
    print(f"\n{title}")
    for name, value in figures.items():
        text = f"{value:,.0f}"
        words = name.removesuffix("_ms").replace("_", " ")
        print(f"{words:>40} {text:>9}{' ms' if name.endswith('_ms') else ''}")


PARTS = {"shared": shared, "kill": kill, "freeze": freeze}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--lease", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(process)d %(message)s")
        asyncio.run(work(options.worker[0], Log(options.worker[1]), options.lease))
        return

    chosen = options.parts.split(",")
    if unknown := set(chosen) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores", end=", ")
    print(f"{datetime.now(UTC):%Y-%m-%d}, seed {options.seed}")
    goals = Goals()
    figures: dict[str, object] = {"seed": options.seed}
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen:
            figures[name] = PARTS[name](Path(directory), options.quick, Random(options.seed), goals)
    print()
    for words, holds in goals.results:
        print(f"{'met' if holds else 'MISSED':<7} {words}")
    if options.json:
        figures["goals"] = dict(goals.results)
        options.json.write_text(json.dumps(figures, indent=2))
    sys.exit(0 if all(holds for _, holds in goals.results) else 1)


if __name__ == "__main__":
    main()
