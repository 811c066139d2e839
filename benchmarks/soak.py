"""Does anything grow? Hundreds of jobs for half an hour, while the machine treats the scheduler badly.

300 jobs with intervals of 1 to 5 s run in one process on one file. Every ten seconds something goes wrong, by turns:
another program holds the write lock for two seconds, or the process is frozen (`SIGSTOP`) for three. Once a second the
process notes its memory, open files, threads and tasks, and the size of the file's WAL.

What must hold: no occurrence is without a row, and none has run twice; memory, files, tasks and the WAL are in the last
quarter what they are in the second; and apart from faults, handlers are as late in the last quarter as in the second.
If other programs use the machine, bare timers in that process are late too, and as much more lateness is allowed.

    python benchmarks/soak.py [--minutes 30] [--jobs 300] [--quick] [--out DIRECTORY]

It takes as long as it is told to. The plot shows the percentiles of the lateness and what the process holds, over time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from racing.plots import over_time
from racing.watching import percentile

from scheduler_async import Every, JobSpec, Run, Scheduler

BETWEEN = 10.0  # seconds from one fault to the next
LOCKED, FROZEN = 2.0, 3.0  # seconds
# A run that is due in the shadow of a fault is late because of it. Longer than that, nothing excuses it.
SHADOW = 1.5  # seconds after the fault
SLICE = 30.0  # seconds of lateness for each point of the plot
SHARES = {"p50": 50, "p90": 90, "p99": 99}
SETTLING = 5.0  # seconds
BARE = 0.1  # seconds that a bare timer waits
HELD = {
    "memory_mb": "memory, MB",
    "files": "open files",
    "threads": "threads",
    "tasks": "tasks",
    "wal_mb": "WAL, MB",
}
# What may differ between the second and the last quarter: a share, and an amount.
SLACK = {"memory_mb": (1.1, 3.0), "files": (1.0, 1.0), "threads": (1.0, 1.0), "tasks": (1.2, 5.0), "wal_mb": (1.5, 4.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="one minute")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="where JSON and the plot go"
    )
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)  # the process that is watched
    options = parser.parse_args()
    seconds = 60 * (options.minutes or (1 if options.quick else 30))
    if options.store:
        asyncio.run(run_jobs(options.store, options.jobs, seconds))
        return
    print(f"CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {datetime.now(UTC):%Y-%m-%d}")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out, prefix="work-") as directory:
        store = Path(directory, "soak.db")
        faults, told = soak(store, options.jobs, seconds)
        figures = judge(store, options.jobs, seconds, faults, told)
    (options.out / "soak.json").write_text(json.dumps(figures, indent=2))
    (options.out / "soak.svg").write_text(plot(figures, options.jobs))
    print(f"\nWritten to {options.out}: soak.json, soak.svg")
    sys.exit(bool(figures["wrong"]))


# ---------------------------------------------------------------- the process that is watched


async def run_jobs(store: Path, jobs: int, seconds: float) -> None:
    """Run the jobs, and print what was noted as lines of JSON."""
    dice = random.Random(1)
    scheduler = Scheduler(store)
    late: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []

    async def wait_again_and_again() -> None:
        """How late is a timer of the event loop, on this machine at this time?"""
        while True:
            due = time.time() + BARE
            await asyncio.sleep(BARE)
            bare.append((due, time.time() - due))

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        due = run.scheduled_for.timestamp()
        late.append((due, time.time() - due))
        await asyncio.sleep(dice.uniform(0.0, 0.1))

    anchor = datetime.now(UTC) + timedelta(seconds=2)
    last = anchor + timedelta(seconds=seconds)
    specs = [
        JobSpec(
            Every(f"{dice.randint(1, 5)}s", anchor=anchor + timedelta(seconds=dice.uniform(0, 5)), end=last),
            handler="work",
            id=f"job-{number}",
        )
        for number in range(jobs)
    ]
    waiting = asyncio.create_task(wait_again_and_again())
    async with scheduler:
        await scheduler.add_jobs(specs)
        print(json.dumps({"anchor": anchor.timestamp()}), flush=True)
        while datetime.now(UTC) < last + timedelta(seconds=SETTLING):
            await asyncio.sleep(1)
            noted, late = late, []
            timers, bare = bare, []
            print(json.dumps({"at": time.time(), "late": noted, "bare": timers, **holdings(store)}), flush=True)
    waiting.cancel()


def holdings(store: Path) -> dict[str, float]:
    """Return what this process holds."""
    status = Path("/proc/self/status").read_text()
    wal = store.with_name(f"{store.name}-wal")
    return {
        "memory_mb": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names alone
        "threads": int(status.partition("Threads:")[2].split()[0]),
        "tasks": len(asyncio.all_tasks()),
        "wal_mb": wal.stat().st_size / 2**20 if wal.exists() else 0.0,
    }


# ---------------------------------------------------------------- faults


def soak(store: Path, jobs: int, seconds: float) -> tuple[list[tuple[float, float]], list[dict[str, object]]]:
    """Run the process, and do it harm. Return from when to when, and what the process has told."""
    command = [sys.executable, __file__, "--store", str(store), "--jobs", str(jobs), "--minutes", str(seconds / 60)]
    lines = store.with_suffix(".lines")
    faults = []
    with lines.open("w") as file, subprocess.Popen(command, stdout=file) as process:
        begun = time.monotonic()
        number = 0
        while process.poll() is None:
            number += 1
            wait = begun + number * BETWEEN - time.monotonic()
            try:
                process.wait(max(wait, 0.0))
            except subprocess.TimeoutExpired:
                if number * BETWEEN < seconds:  # the end is quiet, so that all is caught up
                    faults.append(lock(store) if number % 2 else freeze(process))
        if process.returncode:
            sys.exit(f"the process has ended with {process.returncode}")
    return faults, [json.loads(line) for line in lines.read_text().splitlines()]


def lock(store: Path) -> tuple[float, float]:
    """Hold the write lock, as another program may."""
    with closing(sqlite3.connect(store, isolation_level=None, timeout=10)) as db:
        db.execute("BEGIN IMMEDIATE")
        since = time.time()
        time.sleep(LOCKED)
        db.execute("ROLLBACK")
    return since, time.time()


def freeze(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Stop the process, as a suspended laptop or a debugger does, and let it go on."""
    since = time.time()
    process.send_signal(signal.SIGSTOP)
    time.sleep(FROZEN)
    process.send_signal(signal.SIGCONT)
    return since, time.time()


# ---------------------------------------------------------------- what came of it


def judge(
    store: Path, jobs: int, seconds: float, faults: Sequence[tuple[float, float]], told: Sequence[dict[str, object]]
) -> dict[str, object]:
    """Compare the quarters of the run, and count the occurrences without a row."""
    begun = float(str(told[0]["anchor"]))
    notes = [{name: float(str(line[name])) for name in ("at", *HELD)} for line in told[1:]]
    notes = [note for note in notes if begun <= note["at"] <= begun + seconds]
    late = [(due - begun, by) for line in told[1:] for due, by in line["late"]]  # type: ignore[attr-defined]
    bare = [(due - begun, by) for line in told[1:] for due, by in line["bare"]]  # type: ignore[attr-defined]
    quiet, quiet_bare = (
        [(due, by) for due, by in some if not is_in_shadow(due + begun, faults)] for some in (late, bare)
    )
    missing, twice = unaccounted(store)
    wrong = []

    def expect(words: str, *, holds: bool) -> None:
        print(f"{'ok    ' if holds else 'WRONG '}       {words}")
        if not holds:
            wrong.append(words)

    print(f"\n{jobs} jobs for {seconds / 60:g} minutes, {len(faults)} faults, {len(late):,} runs\n")
    expect(f"occurrences without a row: {missing}", holds=missing == 0)
    expect(f"occurrences that ran twice: {twice}", holds=twice == 0)
    quarters: dict[str, list[float]] = {}
    for name, words in HELD.items():
        values = [median(part) for part in quartered([(note["at"] - begun, note[name]) for note in notes], seconds)]
        quarters[name] = values
        share, amount = SLACK[name]
        flat = values[3] <= max(values[1] * share, values[1] + amount)
        expect(f"{words}, by quarters: {', '.join(f'{value:.1f}' for value in values)}", holds=flat)
    for name, share_of in SHARES.items():
        parts, timers = (
            [percentile(part, share_of) * 1000 for part in quartered(some, seconds)] for some in (quiet, quiet_bare)
        )
        quarters[f"late_{name}_ms"], quarters[f"bare_{name}_ms"] = parts, timers
        figures = ", ".join(f"{ours:.2f} ({timer:.2f})" for ours, timer in zip(parts, timers, strict=True))
        busier = max(timers[3] / timers[1], 1.0)  # the machine, by its bare timers
        flat = parts[3] <= max(2 * parts[1], parts[1] + 2) * busier
        expect(f"late apart from faults, {name} in ms (a bare timer), by quarters: {figures}", holds=flat)
    return {
        "minutes": seconds / 60,
        "runs": len(late),
        "faults": len(faults),
        "missing": missing,
        "twice": twice,
        "quarters": quarters,
        "late_ms": {name: points_of(late, share) for name, share in SHARES.items()},
        "bare_ms": {name: points_of(quiet_bare, share) for name, share in SHARES.items()},
        "late_apart_from_faults_ms": {name: points_of(quiet, share) for name, share in SHARES.items()},
        "held": {name: [(round(n["at"] - begun, 1), round(n[name], 2)) for n in notes[::5]] for name in HELD},
        "wrong": wrong,
    }


def is_in_shadow(due: float, faults: Sequence[tuple[float, float]]) -> bool:
    return any(since - SHADOW <= due <= until + SHADOW for since, until in faults)


def unaccounted(store: Path) -> tuple[int, int]:
    """Return how many occurrences have no row, and how many were run more than once.

    A row may stand for several occurrences that were merged. The first rows of a job may have been removed because it
    has many: it counts from the first that is left.
    """
    with closing(sqlite3.connect(store)) as db:
        schedules = dict(db.execute("SELECT uid, schedule FROM job"))
        rows = db.execute("SELECT uid, scheduled_for, attempt, missed, outcome FROM run WHERE attempt <= 1").fetchall()
    missing = -sum(missed if attempt == 0 else 1 + missed for _, _, attempt, missed, _ in rows)
    for uid, schedule in schedules.items():
        form = json.loads(schedule)
        first = min(at for of, at, *_ in rows if of == uid)
        end = round(datetime.fromisoformat(form["end"]).timestamp() * 1_000_000)
        missing += (end - first) // (int(form["interval"][:-1]) * 1_000_000) + 1
    ran = Counter((uid, at) for uid, at, _, _, outcome in rows if outcome == "success")
    return missing, sum(count > 1 for count in ran.values())


def quartered(values: Sequence[tuple[float, float]], seconds: float) -> list[list[float]]:
    quarters: list[list[float]] = [[] for _ in range(4)]
    for at, value in values:
        quarters[min(int(4 * at / seconds), 3)].append(value)
    return quarters


def points_of(late: Sequence[tuple[float, float]], share: float) -> list[tuple[float, float]]:
    """Return this percentile of the lateness in milliseconds, for each slice of time."""
    slices: dict[int, list[float]] = {}
    for due, by in late:
        slices.setdefault(int(due / SLICE), []).append(by)
    return [
        (round((number + 0.5) * SLICE / 60, 2), round(percentile(some, share) * 1000, 3))
        for number, some in sorted(slices.items())
    ]


def plot(figures: dict[str, object], jobs: int) -> str:
    late = {f"late {name}, ms": points for name, points in figures["late_apart_from_faults_ms"].items()}  # type: ignore[attr-defined]
    late |= {"a bare timer, p99, ms": figures["bare_ms"]["p99"]}  # type: ignore[index]
    held = {
        words: [(at / 60, value) for at, value in figures["held"][name]]  # type: ignore[index]
        for name, words in HELD.items()
    }
    return over_time(f"{jobs} jobs of 1 to 5 s, a fault every {BETWEEN:g} s", "minutes", {**late, **held})


if __name__ == "__main__":
    main()
