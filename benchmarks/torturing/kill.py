"""Killed at random moments."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from scheduler_async import At, Every, Job, JobSpec, Retry, RunRow
from torturing.accounts import (
    PATIENT,
    SECOND,
    Goals,
    Grid,
    Line,
    instant,
    key_of,
    left_out,
    micros_of,
    now_micros,
    overlaps,
    percentile,
    periods,
    pid_of,
    tell,
    wall_ahead,
)
from torturing.crew import PATIENCE, Crew


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

    A handler has its effect in the middle of its work. An effect may come twice, since it is unknown how far a killed
    run came; but then a row says that it was interrupted. One job kills each process that runs it.
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
            for _ in range(100):  # looking at the store takes a while, and a dead process must be replaced at once
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

    Deaths during which another process died too are listed apart: that process should have taken up the runs.
    """
    calm: list[float] = []
    disturbed: list[float] = []
    for pid, moment in {(pid_of(row), row.finished_at) for row in interrupted}:
        if pid in died and moment is not None:
            recovered = micros_of(moment) * 1000 - ahead
            alone = not any(died[pid] < other < recovered for other in died.values())
            (calm if alone else disturbed).append((recovered - died[pid]) / 1e6)
    return calm, disturbed
