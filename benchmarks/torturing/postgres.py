"""Eight processes on one PostgreSQL server, and what can happen to them, to it, and to the way between them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import asyncpg

from scheduler_async import At, JobSpec, PostgresStore, RunRow
from tests.partition import Partition
from tests.postgres_server import Server
from torturing.accounts import (
    NEVER,
    PATIENT,
    SECOND,
    Goals,
    Grid,
    Period,
    instant,
    key_of,
    left_out,
    micros_of,
    now_micros,
    overlaps,
    percentile,
    periods,
    pid_of,
    wall_ahead,
)
from torturing.crew import Crew, Terms

NODES = 8
LEASE = 4.0  # seconds
# What must survive a crash of the server has to be on the disk.
SETTINGS = {"fsync": "on", "full_page_writes": "on"}
# From the end of a lease until others have taken over, on a machine that is busy with other things.
GRACE = 2.0  # seconds

# Jobs come due for so much longer than there are blows, so that all have something to do again.
AFTERWARDS = 5.0  # seconds

# The long runs are in progress when something happens, and tried again quickly if that ends them.
LONG = 2.0  # seconds
# Where something happens for longer than the lease, they take longer than that.
LONGER = 2.5 * LEASE


@dataclass
class Blows:
    """What was done: which process was hit when, and when the server, or the way to it, was back."""

    killed: dict[int, int] = field(default_factory=dict)
    silenced: list[tuple[int, int, int]] = field(default_factory=list)
    """The process, from when, and until when, by the monotonic clock."""
    mended: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where it happens."""

    crew: Crew
    server: Server
    partition: Partition
    cut_off: int
    """The process that reaches the server through the partition."""
    blows: Blows
    random: Random


Torment = Callable[[Scene, float], None]
"""Does its worst for so many seconds."""


def kill(scene: Scene, until: float) -> None:
    """A process is killed, and replaced at once."""
    while time.monotonic() < until:
        time.sleep(scene.random.uniform(0.1, 0.8))
        victim = scene.random.choice([process for process in scene.crew.alive if process.pid != scene.cut_off])
        scene.blows.killed[victim.pid] = scene.crew.kill(victim)
        scene.blows.count += 1
        scene.crew.start()


def freeze(scene: Scene, until: float) -> None:
    """A process stands still for longer than its lease."""
    while time.monotonic() < until:
        victim = scene.random.choice(scene.crew.alive)
        victim.send_signal(signal.SIGSTOP)
        os.waitpid(victim.pid, os.WUNTRACED)
        at = time.monotonic_ns()
        time.sleep(LEASE * 1.75)
        victim.send_signal(signal.SIGCONT)
        scene.blows.silenced.append((victim.pid, at, time.monotonic_ns()))
        scene.blows.count += 1
        time.sleep(1.0)


def terminate(scene: Scene, until: float) -> None:
    """The server ends connections, whatever they are doing."""
    pick = """
        SELECT count(pg_terminate_backend(pid))
          FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'scheduler_async' ORDER BY random() LIMIT $1)
    """

    async def strike() -> None:
        db = await asyncpg.connect(scene.server.url)
        while time.monotonic() < until:
            scene.blows.count += await db.fetchval(pick, scene.random.choice((1, 1, 2, 24)))
            await asyncio.sleep(scene.random.uniform(0.02, 0.4))
        await db.close()

    asyncio.run(strike())
    scene.blows.mended.append(time.monotonic_ns())


def restart(scene: Scene, until: float) -> None:
    """The server is stopped, and started again."""
    _bring_down(scene, until, "stop")


def crash(scene: Scene, until: float) -> None:
    """Every process of the server is killed, and it is started again."""
    _bring_down(scene, until, "kill")


def _bring_down(scene: Scene, until: float, word: str) -> None:
    while not scene.blows.count or time.monotonic() < until - LEASE:
        time.sleep(scene.random.uniform(0.3, 1.2))
        scene.server.tell(word)
        time.sleep(scene.random.uniform(0.0, 0.5 * LEASE))
        scene.server.tell("start")
        scene.blows.mended.append(time.monotonic_ns())
        scene.blows.count += 1
        time.sleep(2.0)


def outage(scene: Scene, until: float) -> None:
    """The server is gone for longer than the lease."""
    scene.server.tell("kill")
    time.sleep(1.75 * LEASE)
    scene.server.tell("start")
    scene.blows.mended.append(time.monotonic_ns())
    scene.blows.count += 1
    time.sleep(max(until - time.monotonic(), 0.0))


def partition(scene: Scene, until: float) -> None:
    """One process cannot reach the server, for a moment, or for longer than its lease, and no error tells."""
    while time.monotonic() < until:
        for seconds in (0.25 * LEASE, 1.75 * LEASE):
            scene.partition.cut()
            at = time.monotonic_ns()
            time.sleep(seconds)
            scene.partition.mend()
            if seconds > LEASE:
                scene.blows.silenced.append((scene.cut_off, at, time.monotonic_ns()))
            scene.blows.count += 1
            time.sleep(1.0)


LASTING = (freeze, outage, partition)

TORMENTS: dict[str, Torment] = {
    "kill": kill,
    "freeze": freeze,
    "terminate": terminate,
    "restart": restart,
    "crash": crash,
    "outage": outage,
    "partition": partition,
}


def postgres(
    directory: Path, quick: bool, random: Random, goals: Goals, names: Iterable[str] = TORMENTS
) -> dict[str, object]:
    """The same load each time, and another torment.

    Lost is a one-shot that did not end well, by the log and by the store, or an occurrence that no row tells of. At
    once is a run that begins while another one of its job goes on: a process that is cut off has to end its runs
    before others begin them anew; one that stands still does not run. Repeated are effects that came again, and each
    of them must have a row that says that it was interrupted. Back is, for what happens to a process, the time until
    others have taken its runs; for what happens to the server, the time from its return until all processes run jobs.
    """
    titles = ("blows", "due", "run", "merged", "interrupted", "repeated", "lost", "at once", "back p50", "back max")
    layout = "{:>10} {:>6} {:>7} {:>7} {:>7} {:>12} {:>9} {:>5} {:>8} {:>9} {:>9}"
    nodes = 4 if quick else NODES
    print(f"\npostgres: {nodes} processes, one server, a lease of {LEASE:g} s\n{layout.format('', *titles)}")
    figures: dict[str, object] = {}
    for name in names:
        seconds = 30.0 if not quick else 2 * LEASE if name == "outage" else LEASE
        row = suffer(directory / f"postgres-{name}", TORMENTS[name], seconds, random, nodes)
        figures[name] = row
        print(
            layout.format(
                name,
                row["blows"],
                row["due"],
                row["run"],
                row["merged"],
                row["interrupted"],
                row["repeated"],
                row["lost"],
                row["at_once"],
                f"{row['back_p50_s']:.2f} s",
                f"{row['back_max_s']:.2f} s",
            ),
            flush=True,
        )
        goals.expect_none(f"postgres, {name}: one-shots and occurrences lost", row["lost"])
        goals.expect_none(f"postgres, {name}: two runs of a job at once", row["at_once"])
        goals.expect_none(f"postgres, {name}: effects repeated without an interrupted row", row["repeated_silently"])
        goals.expect_none(f"postgres, {name}: outcomes that are not what happened", row["wrong"])
        goals.expect_none(f"postgres, {name}: rows left open, jobs left claimed", row["open"])
        goals.expect_none(f"postgres, {name}: healthy jobs disabled, bad exits", row["disabled"] + row["bad_exits"])
        goals.expect(
            f"postgres, {name}: every node works again: {row['backs']} times, {row['missing']} missing",
            row["backs"] > 0 and row["missing"] == 0,
        )
        goals.expect(
            f"postgres, {name}: all goes on within the lease and {GRACE:g} s: at most {row['back_max_s']:.2f} s",
            row["back_max_s"] <= LEASE + GRACE,
        )
    return figures


def suffer(directory: Path, torment: Torment, seconds: float, random: Random, nodes: int) -> dict[str, float]:
    """One row of the table."""
    ahead, blows = wall_ahead(), Blows()
    with ExitStack() as stack:
        server = stack.enter_context(a_server())
        way = stack.enter_context(Partition(socket_of(server.url)))
        crew = stack.enter_context(Crew(directory, Terms(lease=LEASE), url=server.url))
        asyncio.run(make_tables(server.url))
        crew.start_and_wait(nodes - 1)
        cut_off = crew.start(f"postgresql://postgres@127.0.0.1:{way.port}/postgres")
        crew.start_and_wait(0)
        begin = now_micros() + SECOND
        window = int((seconds + AFTERWARDS) * SECOND)
        grids = {
            f"every-{number}": Grid(first=begin + number * 10_000, step=250_000, count=window // 250_000)
            for number in range(25)
        }
        shots = {f"once-{number}": begin + random.randrange(window) for number in range(int(30 * seconds))}
        # One by one: the first process that looks takes all that is due.
        takes = LONGER if torment in LASTING else LONG
        longs = {f"long-{number}": begin + number * 100_000 for number in range(int(10 * seconds))}
        crew.add(
            [JobSpec(At(instant(at)), handler="effect", id=name, retry=PATIENT) for name, at in shots.items()]
            + [
                JobSpec(At(instant(at)), handler="long", id=name, retry=PATIENT, payload=[takes, 0.2])
                for name, at in longs.items()
            ]
            + [grid.spec(name, "effect") for name, grid in grids.items()]
        )
        time.sleep(2.2)
        scene = Scene(crew=crew, server=server, partition=way, cut_off=cut_off.pid, blows=blows, random=random)
        torment(scene, time.monotonic() + seconds)
        crew.wait_for_the_end()
        bad_exits = crew.stop()
        lines, (jobs, rows) = crew.log.read(), crew.records()
    due = {(name, moment) for name, grid in grids.items() for moment in grid.all()}
    shots |= longs
    runs = periods(lines, blows.killed)
    backs = how_long_until_back(blows, runs, rows, ahead)
    back_at_last = {run.pid for run in runs if run.begun > max(blows.mended, default=NEVER)}
    effects = Counter((line.job, line.scheduled_for) for line in lines if line.what == "effect")
    interrupted = Counter(key_of(row) for row in rows if row.outcome == "interrupted")
    merged = left_out(rows, grids)
    ended = {(line.job, line.scheduled_for) for line in lines if line.what == "end"}
    well = {(line.job, line.scheduled_for, line.attempt) for line in lines if line.what == "end"}
    succeeded = {key_of(row) for row in rows if row.outcome == "success"}
    told = {key_of(row) for row in rows if row.attempt} | merged.keys()
    # What a process says of a run that others have taken must not be written any more.
    wrong = [row for row in rows if row.outcome == "success" and (*key_of(row), row.attempt) not in well]
    lost = [shot for shot in shots.items() if shot not in ended & succeeded] + sorted(due - told)
    return {
        "blows": blows.count,
        "due": len(due) + len(shots),
        "run": len({run[:2] for run in runs}),
        "merged": merged.total(),
        "interrupted": interrupted.total(),
        "repeated": effects.total() - len(effects),
        "repeated_silently": sum(max(number - 1 - interrupted[key], 0) for key, number in effects.items()),
        "lost": len(lost),
        "wrong": len(wrong),
        "at_once": overlaps(runs_without_standstill(runs, blows) if torment is freeze else runs),
        "open": sum(row.outcome is None for row in rows) + sum(job.status == "running" for job in jobs),
        "disabled": sum(job.disabled_reason not in (None, "ended") for job in jobs),
        "bad_exits": bad_exits,
        "backs": len(backs),
        "missing": nodes - len(back_at_last) if blows.mended else 0,
        "back_p50_s": percentile(backs, 50),
        "back_max_s": max(backs, default=0.0),
    }


def how_long_until_back(blows: Blows, runs: list[Period], rows: list[RunRow], ahead: int) -> list[float]:
    """Seconds from each blow until others had taken the runs of the process, or from each return until all worked."""
    backs = []
    hit = [(pid, at, NEVER) for pid, at in blows.killed.items()] + blows.silenced
    for pid, at, until in hit:
        taken = [
            micros_of(row.finished_at) * 1000 - ahead
            for row in rows
            if row.outcome == "interrupted" and row.finished_at is not None and pid_of(row) == pid
        ]
        backs += [(moment - at) / 1e9 for moment in taken if at < moment < until + int(GRACE * 1e9)]
    last_begun = max((run.begun for run in runs), default=0)
    for number, mended in enumerate(blows.mended):
        following = blows.mended[number + 1] if number + 1 < len(blows.mended) else last_begun
        first: dict[int, int] = {}
        for run in sorted(runs, key=lambda run: run.begun):
            if mended < run.begun <= following:
                first.setdefault(run.pid, run.begun)
        backs += [(at - mended) / 1e9 for at in first.values()]
    return backs


def runs_without_standstill(runs: list[Period], blows: Blows) -> list[Period]:
    """The runs, but that those of a process that stands still end when that begins: it lets go when it wakes up."""
    ends = []
    for run in runs:
        stops = [at for pid, at, _ in blows.silenced if pid == run.pid and run.begun < at < run.ended]
        ends.append(run._replace(ended=min([run.ended, *stops])))
    return ends


# ---------------------------------------------------------------- the server


@contextmanager
def a_server() -> Iterator[Server]:
    server = Server(SETTINGS)
    try:
        yield server
    finally:
        server.end()


def socket_of(url: str) -> str:
    """The socket of a server that listens on no port."""
    return str(Path(parse_qs(urlsplit(url).query)["host"][0], ".s.PGSQL.5432"))


async def make_tables(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()
