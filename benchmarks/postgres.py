"""Four nodes, one PostgreSQL server, a million stored jobs: how fast, how late, and at what cost?

The server is started from the binaries that the tests use too, with `fsync` on and settings that are printed. In the
same run, by turns, the same number of jobs goes through pgqueuer and procrastinate, which have no other jobs stored:

    burst     many jobs are due at one instant; for us the time runs from that instant, for the others from the moment
              that the first handler is called, and for all until no job is left that has not ended for good. What we
              claim in the half second before that instant is counted, and so is the rate from the first claim on
    backlog   many overdue jobs are there at once, as after downtime: the time runs from our first claim until no job is
              left. Compare with the burst of the others, which wait for no moment: theirs is a backlog, too
    steady    2,000 jobs that run every second, spread over it: handler start minus due time
    added     jobs that are due at once, added one by one by a process that runs none: handler start minus the moment
              before they are added
    idle      nothing is due for a minute: what the server and the nodes work all the same

    python benchmarks/postgres.py [--stored 1000000] [--due 10000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
from fleet.fleets import Fleet, cpu_of_server, sleep_until, started
from racing.contestants import ON_POSTGRES, OURS, PGQUEUER, PROCRASTINATE, Contestant
from racing.courses import Figures
from racing.plots import bars, lines
from racing.races import Race, options_of, ratio
from racing.watching import percentile, spread_of

from scheduler_async import At, Every, JobSpec, PostgresStore, Scheduler
from tests.postgres_server import Server

# As a server is set up that has two gigabytes for this; the rest is what PostgreSQL does by itself.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "autovacuum_naptime": "1min",
}
NODES = 4

# When the first claim of a burst is looked for: nothing is claimed earlier.
AHEAD = 0.6  # seconds
FAR = timedelta(days=3650)

# Each peer with what it was quickest with here: processes, and how many jobs one takes at a time or runs at once.
PEERS = {PGQUEUER: ((1, 1000), (4, 250)), PROCRASTINATE: ((1, 20), (4, 10))}

# A contestant that takes longer than this is measured once.
LONG = 20.0  # seconds

# What our store says when all that was due has ended for good, and theirs.
CLAIMED_SO_FAR = "SELECT last_value - (NOT is_called)::int FROM scheduler_async.run_id"
OURS_IS_DONE = "SELECT NOT EXISTS (SELECT FROM scheduler_async.state WHERE activity <> 'idle')"
IS_DONE = {
    PGQUEUER: "SELECT NOT EXISTS (SELECT FROM pgqueuer)",
    PROCRASTINATE: "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stored", type=int, help="1,000,000, or 20,000 with --quick")
    parser.add_argument("--due", type=int, help="10,000, or 2,000 with --quick")
    parser.add_argument("--steady", type=int, help="seconds of a steady load: 20, or 5 with --quick")
    parser.add_argument("--idle", type=int, help="seconds of idling: 60, or 5 with --quick")
    parser.add_argument("--courses", default="burst,backlog,steady,added,idle")


def main() -> None:
    options = options_of(__doc__, add_options)
    for name, quick, thorough in (
        ("stored", 20_000, 1_000_000),
        ("due", 2_000, 10_000),
        ("steady", 5, 20),
        ("idle", 5, 60),
    ):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else thorough)
    server = Server(SETTINGS)
    try:
        with Race("postgres", options, everybody=ON_POSTGRES) as race:
            race.facts["server"] = {**SETTINGS, "version": ask(server.url, "SHOW server_version")}
            print(f"PostgreSQL {ask(server.url, 'SHOW server_version')}", *map("=".join, SETTINGS.items()), sep=", ")
            measure(race, server.url, options)
    finally:
        server.end()


def measure(race: Race, url: str, options: argparse.Namespace) -> None:
    stored, due = options.stored, options.due
    took = asyncio.run(fill(url, stored))
    print(f"{stored:,} jobs were stored in {took:.0f} s")
    ask(url, "VACUUM (ANALYZE)")  # as the server does by itself within a minute or two
    courses: dict[str, Callable[[], object]] = {
        "burst": lambda: race_a_burst(race, url, due, options.repetitions),
        "backlog": lambda: race_a_backlog(race, url, due, options.repetitions),
        "steady": lambda: keep(race, "steady", steady(url, min(2_000, stored), options.steady)),
        "added": lambda: keep(race, "added", added(url, 50 if options.quick else 300)),
        "idle": lambda: keep(race, "idle", idle(url, options.idle)),
    }
    for name in options.courses.split(","):
        ask(url, "CHECKPOINT")  # now, and not during a measurement
        courses[name]()
    tell(race, stored, due)


def keep(race: Race, size: str, figures: Figures) -> None:
    race.found[OURS.name, size].append(figures)


# ---------------------------------------------------------------- courses


def race_a_burst(race: Race, url: str, due: int, repetitions: int) -> None:
    """Everybody by turns, the peers with one process and with several."""
    peers = [peer for peer in PEERS if peer in race.contestants]
    for peer in peers:
        ask(url, f"CREATE DATABASE {peer.module}")
        with started(peer, "prepare", url_of(url, peer)):
            pass
    for repetition in range(repetitions):
        if OURS in race.contestants:
            race.found[OURS.name, f"burst, {NODES} processes"].append(burst(url, due, repetition))
        for peer in peers:
            for processes, width in PEERS[peer]:
                found = race.found[peer.name, f"burst, {processes} process{'es' if processes > 1 else ''}"]
                if all(cast(float, figures["durable_s"]) < LONG for figures in found):
                    found.append(burst_of(peer, url_of(url, peer), due, processes, width))


def burst(url: str, due: int, repetition: int) -> Figures:
    """Until every outcome is durable, from the moment at which all are due."""
    before = ask(url, CLAIMED_SO_FAR)
    with Fleet(OURS, NODES, url) as fleet, Questions(url) as questions:
        moment = time.time() + 3 + due / 2_000
        asyncio.run(add(url, [(f"burst-{repetition}-{number}", moment) for number in range(due)]))
        time.sleep(0.5)
        fleet.ask()
        assert time.time() < moment - AHEAD, "the machine is too slow to add the jobs in time"
        work = cpu_of_server()
        sleep_until(moment - AHEAD)
        while questions.ask(CLAIMED_SO_FAR) == before and time.time() < moment:
            time.sleep(0.005)
        first_claim = min(time.time(), moment)
        sleep_until(moment)
        early = questions.ask(CLAIMED_SO_FAR) - before
        while questions.ask(CLAIMED_SO_FAR) - before < due or not questions.ask(OURS_IS_DONE):
            time.sleep(0.005)
        took, work = time.time() - moment, cpu_of_server() - work
        told = fleet.ask()
    begun = [at for node in told for _, at in node["begun"]]
    statements = sum(node["statements"] for node in told)
    ended = ask(url, f"SELECT count(*) FROM {RUNS} AND j.id LIKE 'burst-{repetition}-%'")
    assert (len(begun), ended) == (due, due), f"{len(begun)} of {due} ran, and {ended} ended well"
    return {
        "durable_s": took,
        "durable_per_s": due / took,
        "durable_per_s_from_first_claim": due / (took + moment - first_claim),
        "claimed_ahead": early / due,
        "last_handler_s": max(begun) - moment,
        "statements_per_run": statements / due,
        "cpu_nodes_s": sum(node["cpu_s"] for node in told),
        "cpu_server_s": work,
        "share_least": min(len(node["begun"]) for node in told) / due,
    }


def race_a_backlog(race: Race, url: str, due: int, repetitions: int) -> None:
    """Our part by turns. What the peers do in a burst is a backlog: they wait for no moment."""
    for repetition in range(repetitions):
        race.found[OURS.name, f"backlog, {NODES} processes"].append(backlog(url, due, repetition))


def backlog(url: str, due: int, repetition: int) -> Figures:
    """Until every outcome is durable, from the first claim: all jobs are an hour late when they are added."""
    with Fleet(OURS, NODES, url) as fleet, Questions(url) as questions:
        fleet.ask()
        work = cpu_of_server()
        before = questions.ask(CLAIMED_SO_FAR)
        moment = time.time() - 3600
        asyncio.run(add(url, [(f"backlog-{repetition}-{number}", moment) for number in range(due)]))
        while questions.ask(CLAIMED_SO_FAR) - before < due or not questions.ask(OURS_IS_DONE):
            time.sleep(0.005)
        ended, work = time.time(), cpu_of_server() - work
        told = fleet.ask()
    which = f"{RUNS} AND j.id LIKE 'backlog-{repetition}-%'"
    count, first_claim = ask(url, f"SELECT count(*) FROM {which}"), ask(url, f"SELECT min(claimed_at) FROM {which}")
    assert count == due, f"{count} of {due} ended well"
    took = ended - first_claim / 1e6
    return {
        "durable_s": took,
        "durable_per_s": due / took,
        "statements_per_run": sum(node["statements"] for node in told) / due,
        "cpu_nodes_s": sum(node["cpu_s"] for node in told),
        "cpu_server_s": work,
        "share_least": min(len(node["begun"]) for node in told) / due,
    }


RUNS = "scheduler_async.run r JOIN scheduler_async.job j USING (uid) WHERE r.outcome = 'success'"


def burst_of(peer: Contestant, url: str, due: int, processes: int, width: int) -> Figures:
    """The same of another library, from the moment at which the first job begins: it need not wait for a moment."""
    with Fleet(peer, processes, "run", url, width) as fleet, Questions(url) as questions:
        with started(peer, "add", url, due):
            while questions.ask(IS_DONE[peer]):  # they all come at once
                time.sleep(0.005)
            work = cpu_of_server()
            while not questions.ask(IS_DONE[peer]):
                time.sleep(0.005)
            ended, work = time.time(), cpu_of_server() - work
        begun = fleet.first_begun()
    took = ended - begun
    return {"durable_s": took, "durable_per_s": due / took, "cpu_server_s": work}


def steady(url: str, jobs: int, seconds: int) -> Figures:
    """Jobs that run every second, spread over it."""
    with Fleet(OURS, NODES, url) as fleet:
        anchor = time.time() + 3 + jobs / 2_000
        moments = {f"steady-{number}": anchor + number / jobs for number in range(jobs)}
        asyncio.run(add_every_second(url, moments, seconds + 2))
        sleep_until(anchor + 1)  # the first second fills caches
        fleet.ask()
        work, begun_at = cpu_of_server(), time.time()
        sleep_until(anchor + 1 + seconds)
        told = fleet.ask()
        took, work = time.time() - begun_at, cpu_of_server() - work
        sleep_until(anchor + seconds + 4)  # nothing is left for the next contestants
    late = [at - due for node in told for due, at in node["begun"]]
    return {
        **spread_of(late),
        "runs_per_s": len(late) / took,
        "statements_per_run": sum(node["statements"] for node in told) / len(late),
        "cpu_nodes": 100 * sum(node["cpu_s"] for node in told) / took,
        "cpu_server": 100 * work / took,
        "lateness_ms": [round(percentile(late, share) * 1000, 3) for share in range(1, 101)],
    }


def added(url: str, count: int) -> Figures:
    """Jobs that are added elsewhere, and due at once: from before the call that adds one to the call of its handler."""
    with Fleet(OURS, NODES, url) as fleet:
        fleet.ask()
        asyncio.run(add_one_by_one(url, count))
        time.sleep(0.5)
        told = fleet.ask()
    late = [at - due for node in told for due, at in node["begun"]]
    assert len(late) == count, f"{len(late)} of {count} have run"
    return {**spread_of(late), "lateness_ms": [round(percentile(late, share) * 1000, 3) for share in range(1, 101)]}


def idle(url: str, seconds: int) -> Figures:
    """Measure what waiting costs: no process has anything to do."""
    with Fleet(OURS, NODES, url) as fleet:
        time.sleep(3)
        fleet.ask()
        work = cpu_of_server()
        time.sleep(seconds)
        work = cpu_of_server() - work
        told = fleet.ask()
    return {
        "cpu_server": 100 * work / seconds,
        "cpu_node": 100 * max(node["cpu_s"] for node in told) / seconds,
        "statements_per_s": sum(node["statements"] for node in told) / seconds,
    }


# ---------------------------------------------------------------- jobs of ours


async def fill(url: str, count: int) -> float:
    """Store far jobs; return how long it took. One is added as usual, and the server makes the others like it."""
    begun = time.perf_counter()
    far = datetime.now(UTC) + FAR
    await add(url, [("far-0", far.timestamp())])
    db = await asyncpg.connect(url, server_settings={"search_path": "scheduler_async"})
    for table in ("job", "state"):
        names = await db.fetch(COLUMNS, table)
        others = {"uid": "uid + n", "id": "'far-' || n", "next_run_at": "next_run_at + n * 1000000::bigint"}
        values = ", ".join(others.get(name, name) for (name,) in names)
        await db.execute(f"INSERT INTO {table} SELECT {values} FROM {table}, generate_series(1, {count - 1}) AS n")
    await db.execute("SELECT setval('job_uid', max(uid)) FROM job")
    await db.close()
    return time.perf_counter() - begun


COLUMNS = """
    SELECT column_name::text
      FROM information_schema.columns
     WHERE table_schema = 'scheduler_async' AND table_name = $1
  ORDER BY ordinal_position
"""


async def add(url: str, jobs: list[tuple[str, float]]) -> None:
    scheduler = Scheduler(PostgresStore(url))
    moments = [(job, datetime.fromtimestamp(moment, UTC)) for job, moment in jobs]
    await scheduler.add_jobs([JobSpec(At(moment), handler="work", id=job) for job, moment in moments])
    await scheduler.stop()


async def add_every_second(url: str, jobs: dict[str, float], seconds: int) -> None:
    scheduler = Scheduler(PostgresStore(url))
    moments = [(job, datetime.fromtimestamp(moment, UTC)) for job, moment in jobs.items()]
    last = timedelta(seconds=seconds)
    await scheduler.add_jobs(
        [JobSpec(Every("1s", anchor=moment, end=moment + last), handler="work", id=job) for job, moment in moments]
    )
    await scheduler.stop()


async def add_one_by_one(url: str, count: int) -> None:
    scheduler = Scheduler(PostgresStore(url))
    await scheduler.get_job("far-0")  # by now it is connected
    for number in range(count):
        await scheduler.add_job(At(datetime.now(UTC)), handler="work", id=f"added-{number}")
        await asyncio.sleep(0.02)
    await scheduler.stop()


# ---------------------------------------------------------------- what came of it


def tell(race: Race, stored: int, due: int) -> None:
    columns = {
        "durable_per_s": "durable runs/s|,.0f",
        "durable_per_s_from_first_claim": "from first claim|,.0f",
        "claimed_ahead": "claimed ahead|.0%",
        "durable_s": "durable s|.3f",
        "statements_per_run": "statements/run|.3f",
        "cpu_nodes_s": "nodes CPU s|.2f",
        "cpu_server_s": "server CPU s|.2f",
    }
    sizes = {size for _, size in race.found}
    if bursts := [size for size in sizes if str(size).startswith("burst")]:
        table(race, f"{due:,} jobs due at one instant, {stored:,} stored with us", bursts, columns)
    if backlogs := [size for size in sizes if str(size).startswith("backlog")]:
        table(race, f"{due:,} overdue jobs, {stored:,} stored with us", backlogs, columns)
    spread = {f"{name}_ms": f"{name} ms|.2f" for name in ("p50", "p90", "p99", "max")}
    costs = {"runs_per_s": "runs/s|,.0f", "statements_per_run": "statements/run|.3f"}
    if "steady" in sizes or "added" in sizes:
        table(race, f"Handler start minus due time, {NODES} nodes", ["steady", "added"], {**spread, **costs})
    if "idle" in sizes:
        percents = {
            "cpu_server": "server CPU %|.2f",
            "cpu_node": "node CPU %|.2f",
            "statements_per_s": "statements/s|.1f",
        }
        table(race, f"Nothing to do, {NODES} nodes", ["idle"], percents)
    ours = f"burst, {NODES} processes"
    rate = race.median(OURS, ours, "durable_per_s")
    race.expect(f"burst of {due:,} with {stored:,} stored, durable runs per second", rate, at_least=10_000)
    for peer, times in ((PGQUEUER, 1), (PROCRASTINATE, 20)):
        best = max((race.median(peer, size, "durable_per_s") or 0 for size in bursts), default=0)
        race.expect(f"the same, times {peer.name} at its best", ratio(rate, best), at_least=times)
        backlog_rate = race.median(OURS, f"backlog, {NODES} processes", "durable_per_s")
        race.expect(f"a backlog, times {peer.name} at its best", ratio(backlog_rate, best), at_least=1)
    race.expect("statements per run of the burst", race.median(OURS, ours, "statements_per_run"), at_most=0.1)
    race.expect("steady load, p99 of lateness", race.median(OURS, "steady", "p99_ms"), at_most=25, unit=" ms")
    race.expect("added on another node, p99 of lateness", race.median(OURS, "added", "p99_ms"), at_most=25, unit=" ms")
    race.expect("idle, CPU of the server, of one core", race.median(OURS, "idle", "cpu_server"), at_most=1, unit=" %")
    plots = {}
    if bursts:
        groups = {
            str(size).removeprefix("burst, "): {
                contestant.name: race.median(contestant, size, "durable_per_s") for contestant in race.contestants
            }
            for size in sorted(bursts, key=str)
        }
        plots["postgres_burst"] = bars(f"{due:,} jobs due at one instant on PostgreSQL", "runs per second", groups)
    series: dict[str, list[tuple[float, float]]] = {}
    for size, comma in (("steady", ""), ("added", ", added elsewhere")):
        for figures in race.found.get((OURS.name, size), []):
            shares: Any = figures["lateness_ms"]
            series[f"{OURS.name}{comma}"] = list(enumerate(shares, 1))
    if series:
        title = "How late a handler starts: 2,000 runs/s; dashed, added elsewhere"
        across, up = "percent of all runs", "at most so many milliseconds"
        plots["postgres_lateness"] = lines(title, across, up, series, log_across=False)
    race.finish(plots)


def table(race: Race, title: str, sizes: list[Any], columns: dict[str, str]) -> None:
    """The table of a race, of these sizes only."""
    everything, race.found = race.found, race.found.copy()
    for key in [key for key in everything if key[1] not in sizes]:
        del race.found[key]
    race.table(title, "", columns)
    race.found = everything


# ---------------------------------------------------------------- asking the server


class Questions:
    """A connection for code outside of an event loop."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection: asyncpg.Connection = self._loop.run_until_complete(asyncpg.connect(url))

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: str) -> Any:
        return self._loop.run_until_complete(self._connection.fetchval(question))

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


def ask(url: str, question: str) -> Any:
    with closing(Questions(url)) as questions:
        return questions.ask(question)


def url_of(url: str, peer: Contestant) -> str:
    return url.replace("/postgres?", f"/{peer.module}?")


if __name__ == "__main__":
    main()
