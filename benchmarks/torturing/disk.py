"""A disk that is full, a file that no process may write to, and a file that another process keeps locked."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from scheduler_async import At, JobSpec
from torturing.accounts import SECOND, Goals, Grid, Line, instant, left_out, now_micros, overlaps, periods
from torturing.crew import Crew, wait_until

CALM = 2.0  # seconds before a fault, and after it
SMALL = 16 * 1024 * 1024  # bytes of a disk that is soon full

Fault = Callable[[Path], Iterator[None]]


def disk(directory: Path, quick: bool, _random: Random, goals: Goals) -> dict[str, object]:
    """What two processes make of a fault: they go on, say so, try again now and then, and miss nothing but time."""
    titles = ("fault", "for", "due", "run", "merged", "twice", "lost", "at once", "tries", "told", "back after")
    layout = "{:>12} {:>6} {:>6} {:>6} {:>7} {:>6} {:>5} {:>8} {:>6} {:>5} {:>12}"
    print(f"\ndisk: when the store cannot be written to\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    seconds = 8.0 if quick else 30.0
    for name, fault in {"full disk": full, "immutable": immutable, "locked": locked}.items():
        home = directory / name.replace(" ", "-")
        with place_for(fault, home) as problem:
            if problem:
                print(f"{name:>12}   not shown: {problem}")
                continue
            row = endure(directory / f"{home.name}-crew", home / "jobs.db", fault, seconds)
        figures[name] = row
        print(
            layout.format(
                name,
                f"{seconds:g} s",
                row["due"],
                row["run"],
                row["merged"],
                row["twice"],
                row["lost"],
                row["at_once"],
                row["tries"],
                row["told"],
                f"{row['back_after_ms']:.0f} ms",
            )
        )
        goals.expect_none(f"disk, {name}: occurrences run twice", row["twice"])
        goals.expect_none(f"disk, {name}: occurrences neither run nor accounted for", row["lost"])
        goals.expect_none(f"disk, {name}: one-shots not run", row["one_shots_lost"])
        goals.expect_none(f"disk, {name}: runs taken for interrupted", row["interrupted"])
        goals.expect_none(f"disk, {name}: two runs of a job at once", row["at_once"])
        goals.expect(f"disk, {name}: told by an event and by state(): {row['told']} of 2", row["told"] == 2)
        goals.expect(f"disk, {name}: told that it is over: {row['told_over']} of 2", row["told_over"] == 2)
        # Twice as long after each failure, up to 30 s, for each of the two loops and of the two writers.
        goals.expect(f"disk, {name}: tries that failed: {row['tries']}", 2 <= row["tries"] <= 60)
        goals.expect_none(f"disk, {name}: bad exits, and damage to the file", row["errors"])
    return figures


def endure(directory: Path, store: Path, fault: Fault, seconds: float) -> dict[str, float]:
    """One row of the table: intervals all the time, and one-shots of which most are due during the fault."""
    with Crew(directory, store=store) as crew:
        crew.start_and_wait(2)
        begin = now_micros() + SECOND
        count = int((seconds + 2 * CALM) * 5)
        grids = {
            f"every-{number}": Grid(first=begin + number * 10_000, step=200_000, count=count) for number in range(20)
        }
        shots = {f"once-{number}": begin + number * int((seconds + CALM) * SECOND) // 50 for number in range(50)}
        crew.add(
            [grid.spec(name, "tick") for name, grid in grids.items()]
            + [JobSpec(At(instant(at)), handler="tick", id=name) for name, at in shots.items()]
        )
        time.sleep(1 + CALM)
        with contextmanager(fault)(crew.store):
            time.sleep(seconds)
            wait_until(lambda: told_last(crew.log.read(), "failed") == 2, "both processes to notice it")
        over_at = time.monotonic_ns()
        wait_until(lambda: told_last(crew.log.read(), "recovered") == 2, "both processes to notice that it is over")
        crew.wait_for_the_end()
        bad_exits = crew.stop()
        lines, (_, rows) = crew.log.read(), crew.records()
        damage = damage_of(crew.store)
        tries = crew.errors.read_text(errors="replace").count("ERROR ")
    due = {(name, moment) for name, grid in grids.items() for moment in grid.all()} | set(shots.items())
    runs = periods(lines, {})
    begun = Counter((run.job, run.scheduled_for) for run in runs)
    merged = left_out(rows, grids)
    back = min((run.begun for run in runs if run.begun > over_at), default=over_at)
    return {
        "due": len(due),
        "run": len(begun),
        "merged": merged.total(),
        "twice": sum(number > 1 for number in begun.values()),
        "lost": len(due - begun.keys() - merged.keys()),
        "one_shots_lost": len(set(shots.items()) - begun.keys()),
        "interrupted": sum(row.outcome == "interrupted" for row in rows),
        "at_once": overlaps(runs),
        "tries": tries,
        "told": len({line.pid for line in lines if line.what == "failed"}),
        "told_over": told_last(lines, "recovered"),
        "back_after_ms": (back - over_at) / 1e6,
        "errors": bad_exits + damage,
    }


def told_last(lines: list[Line], what: str) -> int:
    """How many processes last said *what* of the store."""
    last = {line.pid: line.what for line in lines if line.what in ("failed", "failed-silently", "recovered")}
    return list(last.values()).count(what)


def damage_of(store: Path) -> int:
    """0 if SQLite finds nothing wrong with a file."""
    db = sqlite3.connect(store)
    try:
        return int(db.execute("PRAGMA integrity_check").fetchone() != ("ok",))
    finally:
        db.close()


# ---------------------------------------------------------------- faults


@contextmanager
def place_for(fault: Fault, home: Path) -> Iterator[str | None]:
    """A directory in which *fault* can be had, or why there is none."""
    home.mkdir()
    if fault is full:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(home)]
        if (problem := failure_of(mount)) is not None:
            yield problem
            return
        try:
            yield None
        finally:
            subprocess.run(["umount", str(home)], check=True)
    elif fault is immutable:
        probe = home / "probe"
        probe.touch()
        problem = failure_of(["chattr", "+i", str(probe)])
        if problem is None:
            subprocess.run(["chattr", "-i", str(probe)], check=True)
        yield problem
    else:
        yield None


def failure_of(command: list[str]) -> str | None:
    """Why *command* does not work here; None if it does."""
    if shutil.which(command[0]) is None:
        return f"there is no {command[0]}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() or None if done.returncode else None


def full(store: Path) -> Iterator[None]:
    """Something else takes all the room that is left on the disk."""
    ballast = store.with_name("ballast")
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    yield
    ballast.unlink()


def immutable(store: Path) -> Iterator[None]:
    """Forbid writing, even for processes that have the files open.

    The index of the log is an exception, because SQLite maps it into memory: the kernel would kill a process that
    writes to it.
    """
    files = [str(store), f"{store}-wal"]
    subprocess.run(["chattr", "+i", *files], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], check=True)


def locked(store: Path) -> Iterator[None]:
    """Begin to write in another connection, and take very long."""
    db = sqlite3.connect(store, isolation_level=None, timeout=10)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()
