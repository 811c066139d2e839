"""Many jobs are due at one instant: how long until the last has run, and until everything is on record?

The limit is bare `sqlite3`, which makes the same changes to the same rows in batches. Meanwhile a task that wakes every
millisecond finds out how long the event loop is kept from everybody else: by the wall clock, other programs included,
and as time that the loop's own thread worked.

    python benchmarks/burst.py [--jobs 1000,10000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about five minutes.
"""

from __future__ import annotations

from racing.contestants import BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, options_of, ratio, sizes


def main() -> None:
    options = options_of(__doc__, lambda parser: parser.add_argument("--jobs", type=sizes))
    counts: list[int] = options.jobs or ([300] if options.quick else [1_000, 10_000])
    with Race("burst", options) as race:
        laps = []
        for count in counts:
            for contestant in race.contestants:
                store = race.filled(OURS, count) if contestant is BARE else None
                laps.append(Lap(contestant=contestant, size=count, arguments={"count": count}, store=store))
        race.run("burst", laps)
        columns = {
            "last_handler_s": "last handler s|.3f",
            "durable_s": "durable s|.3f",
            "durable_per_s": "durable jobs/s|,.0f",
            "stall_ms": "loop stalled ms|.1f",
            "worked_ms": "loop worked ms|.1f",
        }
        race.table("Jobs that are due at one instant", "jobs", columns)
        most = counts[-1]
        rate, stall = race.median(OURS, most, "durable_per_s"), race.median(OURS, most, "stall_ms")
        which = f"burst of {most:,}" + ("" if most == 10_000 else " (asked for 10,000)")
        race.expect(
            f"{which}, durable, of the rate of bare sqlite3",
            ratio(rate, race.median(BARE, most, "durable_per_s")),
            at_least=1 / 3,
        )
        race.expect(
            f"{which}, durable, times the rate of the best peer",
            ratio(rate, race.best_peer(most, "durable_per_s", max)),
            at_least=10,
        )
        race.expect(f"{which}, longest stall of the loop", stall, at_most=25, unit=" ms")
        series = {
            contestant.name: [(count, race.median(contestant, count, "durable_per_s") or 0) for count in counts]
            for contestant in race.contestants
        }
        race.finish({"burst": lines("Due at one instant, until durable", "jobs", "jobs per second", series)})


if __name__ == "__main__":
    main()
