"""Killed at random moments while another process asks for runs, cancels them, and reads the cursors that they leave."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from scheduler_async import Job, JobAlreadyRunningError, JobSpec, Manual, RunEndedError, RunRow, Scheduler
from torturing.accounts import (
    PATIENT,
    SECOND,
    Goals,
    Grid,
    Line,
    key_of,
    left_out,
    micros_of,
    now_micros,
    overlaps,
    periods,
    pid_of,
    wall_ahead,
)
from torturing.crew import PATIENCE, Crew
from torturing.restless import STORES, an_address

NODES = 3
# How long no process is alive, after all of them were killed.
ALL_DEAD = 0.3  # seconds
# Jobs come due for so much longer than there are kills, so that all have something to do again.
AFTERWARDS = 2  # seconds
# Runs of these are asked for, and never cancelled: a cancellation would hide that one is lost.
SPARED = "spared"
# A process on a file looks for cancellations every second, and some runs should still go on then.
SLOW = 2.0  # seconds
# A run that begins so long after it was recorded as cancelled was run again. Clocks and records are not exact.
AGAIN = 50_000_000  # nanoseconds


@dataclass
class Steering:
    """What the other process has asked for, and what it has seen."""

    requested: dict[int, str] = field(default_factory=dict)
    """The job of each run that was asked for, by the number of the run."""
    cancelled: set[int] = field(default_factory=set)
    """The runs whose cancellation was accepted."""
    ahead: int = 0
    """How often a cursor was ahead of every success on record."""
    behind: int = 0
    """How often a cursor was behind a success on record."""
    looks: int = 0


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What there is to look at when it is over. Moments of death are those of the monotonic clock."""

    lines: list[Line]
    jobs: list[Job]
    rows: list[RunRow]
    grids: dict[str, Grid]
    steering: Steering
    killed: dict[int, int]
    errors: int
    wall_ahead: int


def steer(
    directory: Path, quick: bool, random: Random, goals: Goals, stores: Iterable[str] = STORES
) -> dict[str, object]:
    """Three processes, killed and replaced again and again, one or all of them, and another one that steers.

    It asks for runs, also while no process lives, and cancels runs that wait or go on. Some jobs have their effect,
    assign their cursor, and now and then kill their process before that is on record. Lost is a run that was asked for
    and neither ran nor was cancelled, or an occurrence that no row tells of. A cursor must always be the one that the
    last success left.
    """
    titles = ["store", "kills", "asked for", "interrupted", "cancelled", "successes", "unrecorded", "lost", "again"]
    titles += ["at once", "ignored", "ahead", "not stored", "open", "errors"]
    layout = " ".join(f"{{:>{max(len(title), 6)}}}" for title in titles)
    print(f"\nsteer: {NODES} processes that are killed, steered by another one\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for store in stores:
        with an_address(store) as url:
            row = counted(disturb(directory / f"steer-{store}", url, random, seconds=3 if quick else 60))
        figures[store] = row
        print(layout.format(store, *(row[title.replace(" ", "_")] for title in titles[1:])), flush=True)
        done = f"{row['asked_for']} runs asked for, {row['cancelled']} cancelled, {row['unrecorded']} not recorded"
        goals.expect(
            f"steer, {store}: some of each: {done}",
            all(row[name] for name in ("kills", "asked_for", "cancelled", "unrecorded", "looks")),
        )
        goals.expect_none(f"steer, {store}: requested runs and occurrences lost", row["lost"])
        goals.expect_none(f"steer, {store}: cancelled runs that ran again", row["again"])
        goals.expect_none(f"steer, {store}: cancellations that were accepted and ignored", row["ignored"])
        goals.expect_none(f"steer, {store}: two runs of a job at once", row["at_once"])
        goals.expect_none(f"steer, {store}: cursors ahead of what succeeded", row["ahead"])
        goals.expect_none(f"steer, {store}: successes whose cursor is not stored", row["not_stored"])
        goals.expect_none(f"steer, {store}: outcomes that are not what happened", row["wrong"])
        goals.expect_none(f"steer, {store}: rows left open, jobs left claimed", row["open"])
        goals.expect_none(f"steer, {store}: errors and bad exits", row["errors"])
    return figures


# ---------------------------------------------------------------- what is done


def disturb(directory: Path, url: str | None, random: Random, seconds: int) -> Aftermath:
    """Kill and steer for *seconds*, and let the rest come to its end."""
    ahead, killed, steering = wall_ahead(), dict[int, int](), Steering()
    with Crew(directory, url=url) as crew:
        crew.start_and_wait(NODES)
        begin = now_micros() + SECOND
        grids = {
            f"{kind}-{number}": Grid(first=begin + number * 10_000, step=250_000, count=4 * (seconds + AFTERWARDS))
            for kind in ("cursor", "every")
            for number in range(8)
        }
        crew.add(
            [grid.spec(name, "long") for name, grid in grids.items() if name.startswith("every")]
            + [
                grid.spec(name, "incremental", SLOW if name in ("cursor-0", "cursor-1") else 0.05)
                for name, grid in grids.items()
                if name.startswith("cursor")
            ]
            + [by_hand(f"{kind}-{number}", 0.05) for kind in ("asked", SPARED) for number in range(6)]
            + [by_hand(f"endless-{number}", 2 * PATIENCE) for number in range(4)]
        )
        asyncio.run(_kill_and_steer(crew, url, steering, killed, random, seconds))
        bad_exits = crew.stop()
        jobs, rows = crew.records()
        return Aftermath(
            lines=crew.log.read(),
            jobs=jobs,
            rows=rows,
            grids=grids,
            steering=steering,
            killed=killed,
            errors=bad_exits + crew.errors_logged(),
            wall_ahead=ahead,
        )


def by_hand(name: str, takes: float) -> JobSpec:
    """A job that runs when it is asked for."""
    return JobSpec(Manual(), handler="long", id=name, retry=PATIENT, payload=[takes, takes])


async def _kill_and_steer(
    crew: Crew, url: str | None, steering: Steering, killed: dict[int, int], random: Random, seconds: int
) -> None:
    scheduler = Scheduler(url or crew.store)  # it runs nothing itself
    helm = _Helm(scheduler, steering, random)
    tasks = [asyncio.create_task(work(), name=work.__name__) for work in (helm.ask, helm.cancel, helm.look)]
    until = time.monotonic() + 1 + seconds
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(0.1, 0.6))
        crew.replace_dead()
        everybody = random.random() < 0.15
        ready = {line.pid for line in crew.log.read() if line.what == "ready"}
        # On a busy machine, processes would otherwise die before they have begun anything.
        at_work = [process for process in crew.alive if process.pid in ready or random.random() < 0.1]
        for victim in at_work if everybody else random.sample(at_work, min(len(at_work), 1)):
            killed[victim.pid] = crew.kill(victim)
        if everybody:
            await asyncio.sleep(ALL_DEAD)
        for _ in range(NODES - len(crew.alive)):
            crew.start()
    helm.is_over = True
    await asyncio.gather(*tasks)
    deadline = time.monotonic() + PATIENCE
    while await helm.cancel_endless() + await _going(scheduler) and time.monotonic() < deadline:
        crew.replace_dead()  # some still kill their processes
        await asyncio.sleep(0.1)
    await scheduler.stop()


async def _going(scheduler: Scheduler) -> int:
    """How many jobs and runs have not come to their end."""
    jobs = await scheduler.list_jobs()
    return sum(not isinstance(job.schedule, Manual) and job.enabled for job in jobs) + len(await _open(scheduler))


async def _open(scheduler: Scheduler, id: str | None = None) -> list[RunRow]:
    return [row for row in await scheduler.run_log(id, limit=100) if row.outcome is None]


class _Helm:
    """Asks for runs, cancels them, and looks at cursors, from a process that runs none."""

    def __init__(self, scheduler: Scheduler, steering: Steering, random: Random) -> None:
        self.is_over = False
        self._scheduler, self._steering, self._random = scheduler, steering, random

    async def ask(self) -> None:
        """Ask for runs of all kinds of jobs."""
        while not self.is_over:
            await asyncio.sleep(self._random.uniform(0.0, 0.04))
            kind, count = self._random.choice([("asked", 6), ("spared", 6), ("cursor", 8), ("endless", 4)])
            name = f"{kind}-{self._random.randrange(count)}"
            with suppress(JobAlreadyRunningError):
                run = await self._scheduler.trigger_job(name, anywhere=True)
                self._steering.requested[run] = name
                if self._random.random() < 0.1 and not name.startswith(SPARED):
                    await self._cancel(run)

    async def cancel(self) -> None:
        """Cancel runs that wait, are about to begin, go on, or have just lost their process."""
        while not self.is_over:
            await asyncio.sleep(self._random.uniform(0.0, 0.1))
            rows = [row for row in await _open(self._scheduler) if not row.job_id.startswith(SPARED)]
            if rows:
                await self._cancel(self._random.choice(rows).id)

    async def cancel_endless(self) -> int:
        """Cancel what does not end by itself, and return how many such runs there were."""
        rows = [row for row in await _open(self._scheduler) if row.job_id.startswith("endless")]
        for row in rows:
            if row.id not in self._steering.cancelled:
                await self._cancel(row.id)
        return len(rows)

    async def _cancel(self, run: int) -> None:
        with suppress(RunEndedError):
            await self._scheduler.cancel_run(run, reason="steered")
            self._steering.cancelled.add(run)

    async def look(self) -> None:
        """Compare cursors with successes. What is read last may be newer, and must not be older."""
        while not self.is_over:
            await asyncio.sleep(0.02)
            name = f"cursor-{self._random.randrange(8)}"
            least = await self._farthest(name)
            cursor = await self._cursor(name)
            most = await self._farthest(name)
            self._steering.behind += cursor < least
            self._steering.ahead += cursor > most
            self._steering.looks += 1

    async def _cursor(self, name: str) -> int:
        job = await self._scheduler.get_job(name)
        assert job is not None
        return int(str(job.cursor or 0))

    async def _farthest(self, name: str) -> int:
        rows = await self._scheduler.run_log(name, outcome="success", limit=20)
        return max((int(str(row.result)) for row in rows), default=0)


# ---------------------------------------------------------------- what came of it


def counted(left: Aftermath) -> dict[str, int]:
    """One row of the table."""
    died = left.killed | {line.pid: line.at for line in left.lines if line.what == "dying"}
    # Of this line, the numbers are the position and the run.
    assigned = {line.attempt: line.scheduled_for for line in left.lines if line.what == "consumed"}
    outcomes = Counter[str | None](row.outcome for row in left.rows)
    well = {(line.job, line.scheduled_for, line.attempt) for line in left.lines if line.what == "end"}
    ahead, not_stored = cursors(left, assigned)
    return {
        "kills": len(died),
        "asked_for": len(left.steering.requested),
        "interrupted": outcomes["interrupted"],
        "cancelled": outcomes["cancelled"],
        "successes": outcomes["success"],
        "unrecorded": sum(row.outcome == "interrupted" and row.id in assigned for row in left.rows),
        "looks": left.steering.looks,
        "lost": lost(left, died, well),
        "again": ran_again(left),
        "at_once": overlaps(periods((line for line in left.lines if line.what != "consumed"), died)),
        "ignored": ignored(left),
        "ahead": ahead + left.steering.ahead,
        "not_stored": not_stored + left.steering.behind,
        "wrong": sum(row.outcome == "success" and (*key_of(row), row.attempt) not in well for row in left.rows),
        "open": sum(row.outcome is None for row in left.rows) + sum(job.status == "running" for job in left.jobs),
        "errors": left.errors,
    }


def lost(left: Aftermath, died: dict[int, int], well: set[tuple[str, int, int]]) -> int:
    """Runs that were asked for and came to nothing, and occurrences that no row tells of."""
    by_id = {row.id: row for row in left.rows}

    def is_lost(run: int) -> bool:
        row = by_id.get(run)
        match None if row is None else row.outcome:
            case "success":
                return (*key_of(by_id[run]), 1) not in well
            case "cancelled":
                return run not in left.steering.cancelled
            case "interrupted":
                return pid_of(by_id[run]) not in died
        return True  # no process has taken it up in the end

    told = {key_of(row) for row in left.rows if row.attempt} | left_out(left.rows, left.grids).keys()
    due = {(name, moment) for name, grid in left.grids.items() for moment in grid.all()}
    return sum(map(is_lost, left.steering.requested)) + len(due - told)


def ran_again(left: Aftermath) -> int:
    """Cancelled runs whose occurrence has another attempt, or which began when they were cancelled already."""
    cancelled = {key_of(row): row for row in left.rows if row.outcome == "cancelled"}
    begun = Counter[tuple[str, int]]()
    again = sum(row.attempt > cancelled[key_of(row)].attempt for row in left.rows if key_of(row) in cancelled)
    for line in left.lines:
        row = cancelled.get((line.job, line.scheduled_for))
        if line.what != "begin" or row is None or row.attempt != line.attempt or row.finished_at is None:
            continue
        begun[line.job, line.scheduled_for] += 1
        again += line.at > micros_of(row.finished_at) * 1000 - left.wall_ahead + AGAIN
    return again + sum(count - 1 for count in begun.values())


def ignored(left: Aftermath) -> int:
    """Accepted cancellations that left another outcome, except that the run was quicker, and ended well."""
    return sum(
        row.outcome != "cancelled" and (row.outcome != "success" or row.job_id.startswith("endless"))
        for row in left.rows
        if row.id in left.steering.cancelled
    )


def cursors(left: Aftermath, assigned: dict[int, int]) -> tuple[int, int]:
    """How often a run began with a cursor that no success had left, and with one older than the last success.

    Each run takes the position after its cursor. One run after another succeeded, so theirs are 1, 2, 3 and so on.
    """
    ahead = not_stored = 0
    successes = defaultdict[str, list[RunRow]](list)
    for row in left.rows:
        if row.outcome == "success" and row.job_id.startswith("cursor"):
            successes[row.job_id].append(row)
    stored = {job.id: int(str(job.cursor or 0)) for job in left.jobs if job.id.startswith("cursor")}
    for name, cursor in stored.items():
        last = 0
        for row in sorted(successes[name], key=lambda row: row.claimed_at or row.scheduled_for):
            position = assigned[row.id]
            ahead += position > last + 1
            not_stored += position <= last or row.result != position
            last = position
        ahead += cursor > last
        not_stored += cursor < last
    return ahead, not_stored
