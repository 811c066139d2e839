"""Many jobs are due at one instant: how long until the last has run, and until everything is on record?

Jobs that run once, and jobs that run every hour: most peers delete the former, and write the latter anew. The limit is
bare `sqlite3`, which makes the same changes to the same rows in batches. Meanwhile a task that wakes every millisecond
finds out how long the event loop is kept from all other tasks: by the wall clock, other programs included, and as time
that the loop's own thread worked.

    python benchmarks/burst.py [--jobs 1000,10000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about ten minutes.
"""

from __future__ import annotations

from racing.contestants import BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, options_of, ratio, sizes

KINDS = {"once": False, "hourly": True}


def main() -> None:
    options = options_of(__doc__, lambda parser: parser.add_argument("--jobs", type=sizes))
    counts: list[int] = options.jobs or ([300] if options.quick else [1_000, 10_000])
    with Race("burst", options) as race:
        laps = []
        for count in counts:
            for kind, comes_again in KINDS.items():
                arguments: dict[str, object] = {"count": count, "comes_again": comes_again}
                for contestant in race.contestants:
                    store = race.filled(OURS, count) if contestant is BARE else None
                    laps.append(Lap(contestant=contestant, size=size(count, kind), arguments=arguments, store=store))
        race.run("burst", laps)
        columns = {
            "last_handler_s": "last handler s|.3f",
            "durable_s": "durable s|.3f",
            "durable_per_s": "durable jobs/s|,.0f",
            "stall_ms": "loop stalled ms|.1f",
            "worked_ms": "loop worked ms|.1f",
        }
        race.table("Jobs that are due at one instant", "jobs", columns)
        for kind in KINDS:
            judge(race, counts[-1], kind)
        plots = {
            f"burst_{kind}": lines(
                f"Due at one instant, jobs that run {kind}, until durable",
                "jobs",
                "jobs per second",
                {
                    contestant.name: [
                        (count, race.median(contestant, size(count, kind), "durable_per_s") or 0) for count in counts
                    ]
                    for contestant in race.contestants
                },
            )
            for kind in KINDS
        }
        race.finish(plots)


def size(count: int, kind: str) -> str:
    return f"{count:,} {kind}"


def judge(race: Race, most: int, kind: str) -> None:
    which = f"burst of {size(most, kind)}" + ("" if most == 10_000 else " (asked for 10,000)")
    rate = race.median(OURS, size(most, kind), "durable_per_s")
    bare = race.median(BARE, size(most, kind), "durable_per_s")
    peer = race.best_peer(size(most, kind), "durable_per_s", max)
    stall = race.median(OURS, size(most, kind), "stall_ms")
    race.expect(f"{which}, durable, of the rate of bare sqlite3", ratio(rate, bare), at_least=1 / 3)
    race.expect(f"{which}, durable, times the rate of the best peer", ratio(rate, peer), at_least=10)
    race.expect(f"{which}, longest stall of the loop", stall, at_most=25, unit=" ms")


if __name__ == "__main__":
    main()
