"""One file, many processes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

from scheduler_async import At, JobSpec
from torturing.accounts import (
    SECOND,
    Goals,
    Grid,
    instant,
    left_out,
    now_micros,
    overlaps,
    percentile,
    periods,
    wall_ahead,
)
from torturing.crew import Crew


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
        crew.wait_for_the_end()
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
