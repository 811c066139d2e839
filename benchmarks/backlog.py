"""Many jobs are overdue when the scheduler starts, as after downtime: how long until all of them are on record?

All of them were due an hour ago, and run once. The time begins when the scheduler is started and ends when it has
stopped, so that nothing is left out: the first claim, the handlers, the last commit. (`burst.py` starts its clock at
the instant at which its jobs are due; what is claimed before that is not in its figures.) The limit is bare `sqlite3`,
which makes the same changes to the same rows in batches.

    python benchmarks/backlog.py [--jobs 1000,10000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about five minutes.
"""

from __future__ import annotations

from racing.contestants import APSCHEDULER_3, BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, options_of, ratio, sizes


def main() -> None:
    options = options_of(__doc__, lambda parser: parser.add_argument("--jobs", type=sizes))
    counts: list[int] = options.jobs or ([300] if options.quick else [1_000, 10_000])
    with Race("backlog", options) as race:
        laps = []
        for count in counts:
            for contestant in race.contestants:
                store = race.filled(OURS, count) if contestant is BARE else None
                laps.append(Lap(contestant=contestant, size=count, arguments={"count": count}, store=store))
        race.run("backlog", laps)
        columns = {
            "last_handler_s": "last handler s|.3f",
            "durable_s": "durable s|.3f",
            "durable_per_s": "durable jobs/s|,.0f",
            "cpu_us": "CPU µs per job|,.1f",
            "stall_ms": "loop stalled ms|.1f",
        }
        race.table("Jobs that are overdue at the start", "jobs", columns)
        most = counts[-1]
        which = f"a backlog of {most:,}" + ("" if most == 10_000 else " (asked for 10,000)")
        rate = race.median(OURS, most, "durable_per_s")
        race.expect(f"{which}, of bare sqlite3", ratio(rate, race.median(BARE, most, "durable_per_s")), at_least=1 / 3)
        peer = race.median(APSCHEDULER_3, most, "durable_per_s")
        race.expect(f"{which}, times APScheduler 3.11", ratio(rate, peer), at_least=8)
        series = {
            contestant.name: [(count, race.median(contestant, count, "durable_per_s") or 0) for count in counts]
            for contestant in race.contestants
        }
        race.finish({"backlog": lines("Overdue at the start, until durable", "jobs", "jobs per second", series)})


if __name__ == "__main__":
    main()
