"""Killed at random moments between a run and the run that follows it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random

from scheduler_async import After, At, Job, JobSpec, RunRow
from torturing.accounts import PATIENT, SECOND, Goals, Line, instant, now_micros, overlaps, periods
from torturing.crew import PATIENCE, Crew
from torturing.restless import STORES, an_address

# Each job runs after the one before it succeeds; the alarm, after the first one fails.
LINKS = ("extract", "transform", "load")


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What there is to look at when it is over. Moments of death are those of the monotonic clock."""

    lines: list[Line]
    jobs: list[Job]
    rows: list[RunRow]
    chains: int
    killed: dict[int, int]
    errors: int


def chain(
    directory: Path, quick: bool, random: Random, goals: Goals, stores: Iterable[str] = STORES
) -> dict[str, object]:
    """Two processes, one of them killed at a random moment and replaced at once, again and again.

    Hundreds of chains of three jobs come due meanwhile, so that many kills come between a run and the run that follows
    it. Lost is a job whose predecessor has succeeded on record and that has no success of its own; and an alarm, if a
    run that it waits for was interrupted. A job must not run more often than its predecessor has succeeded.
    """
    titles = ["store", "kills", "chains", "runs", "interrupted", "lost", "alarms lost", "too often", "wrong cause"]
    titles += ["at once", "errors"]
    layout = " ".join(f"{{:>{max(len(title), 6)}}}" for title in titles)
    print(f"\nchain: jobs that run after others, in processes that are killed\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for store in stores:
        with an_address(store) as url:
            wanted, chains = (12, 300) if quick else (200, 3_000)
            row = counted(kill_and_replace(directory / f"chain-{store}", url, wanted, chains, random))
        figures[store] = row
        print(layout.format(store, *(row[title.replace(" ", "_")] for title in titles[1:])), flush=True)
        done = f"{row['kills']} kills, {row['interrupted']} runs interrupted"
        goals.expect(f"chain, {store}: some of each: {done}", row["kills"] >= wanted and row["interrupted"] > 0)
        goals.expect_none(f"chain, {store}: runs lost that follow a success", row["lost"])
        goals.expect_none(f"chain, {store}: runs lost that follow a failure", row["alarms_lost"])
        goals.expect_none(f"chain, {store}: runs that follow nothing", row["too_often"])
        goals.expect_none(f"chain, {store}: runs that name another cause", row["wrong_cause"])
        goals.expect_none(f"chain, {store}: two runs of a job at once", row["at_once"])
        goals.expect_none(f"chain, {store}: errors and bad exits", row["errors"])
    return figures


def kill_and_replace(directory: Path, url: str | None, wanted: int, chains: int, random: Random) -> Aftermath:
    """Kill until there were *wanted* kills and all chains were due, and let the rest come to its end."""
    window = int(wanted * 0.5 * SECOND)
    killed: dict[int, int] = {}
    with Crew(directory, url=url) as crew:
        crew.start_and_wait(2)
        begin = now_micros() + 2 * SECOND
        due = [instant(begin + random.randrange(window)) for _ in range(chains)]
        crew.add([spec for number, at in enumerate(due) for spec in specs(number, at)])
        time.sleep(2)
        while len(killed) < wanted or now_micros() < begin + window:
            time.sleep(random.uniform(0.1, 0.9))
            victim = random.choice(crew.alive)
            killed[victim.pid] = crew.kill(victim)
            crew.start()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not is_over(crew.records()):
            time.sleep(0.5)
        bad_exits = crew.stop()
        jobs, rows = crew.records()
        errors = bad_exits + crew.errors_logged()
        return Aftermath(lines=crew.log.read(), jobs=jobs, rows=rows, chains=chains, killed=killed, errors=errors)


def specs(number: int, due: datetime) -> list[JobSpec]:
    """The jobs of a chain, and its alarm."""
    schedules = [At(due), *(After(f"{link}-{number}") for link in LINKS[:-1])]
    jobs = [
        JobSpec(schedule, handler="effect", id=f"{link}-{number}", retry=PATIENT)
        for link, schedule in zip(LINKS, schedules, strict=True)
    ]
    alarm = After(f"{LINKS[0]}-{number}", "failure")
    return [*jobs, JobSpec(alarm, handler="effect", id=f"alarm-{number}", retry=PATIENT)]


def is_over(records: tuple[list[Job], list[RunRow]]) -> bool:
    """Whether nothing runs, or waits for its time."""
    return not any(job.status in ("queued", "running") or job.next_run_at for job in records[0])


def counted(left: Aftermath) -> dict[str, int]:
    """What became of the chains, by the store and by the log."""
    succeeded = Counter(row.job_id for row in left.rows if row.outcome == "success")
    interrupted = Counter(row.job_id for row in left.rows if row.outcome == "interrupted")
    occurrences = Counter(row.job_id for row in left.rows if row.attempt == 1)
    ended = {line.job for line in left.lines if line.what == "end"}
    outcomes = {row.id: (row.job_id, row.outcome) for row in left.rows}
    lost = too_often = alarms_lost = wrong_cause = 0
    for number in range(left.chains):
        names = [f"{link}-{number}" for link in LINKS]
        for before, name in pairwise(names):
            lost += bool(succeeded[before]) and not (succeeded[name] and name in ended)
            too_often += occurrences[name] > succeeded[before]
        lost += not succeeded[names[0]]
        alarms_lost += bool(interrupted[names[0]]) and not succeeded[f"alarm-{number}"]
        too_often += occurrences[f"alarm-{number}"] > interrupted[names[0]]
    for row in left.rows:
        link, _, number_of_chain = row.job_id.partition("-")
        if link != LINKS[0] and row.attempt:
            wanted = (LINKS[0], "interrupted") if link == "alarm" else (LINKS[LINKS.index(link) - 1], "success")
            cause = outcomes.get(row.after or 0)
            wrong_cause += cause != (f"{wanted[0]}-{number_of_chain}", wanted[1])
    return {
        "kills": len(left.killed),
        "chains": left.chains,
        "runs": sum(bool(row.attempt) for row in left.rows),
        "interrupted": interrupted.total(),
        "lost": lost,
        "alarms_lost": alarms_lost,
        "too_often": too_often,
        "wrong_cause": wrong_cause,
        "at_once": overlaps(periods(left.lines, left.killed)),
        "errors": left.errors,
    }
