"""Frozen for longer than the lease."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from random import Random

from scheduler_async import At, JobSpec
from scheduler_async.stores import liveness
from torturing.accounts import Goals, Grid, instant, micros_of, now_micros, overlaps, periods
from torturing.crew import Crew, Terms, wait_until

# What a process may need to notice, when it wakes up, that its runs are no longer its own.
WAKING_UP = 1.0  # seconds


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
        seconds = liveness.LEASE if lease is None else lease
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
    with Crew(directory, Terms(lease=lease)) as crew:
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
