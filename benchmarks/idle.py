"""What does waiting cost? CPU seconds over a minute in which nothing is due, with many far jobs in the store.

All contestants wait side by side, because that disturbs none of them. Each counts the CPU time of its own process from
a second after its start. The limit is an event loop that sleeps.

    python benchmarks/idle.py [--stored 10000,1000000] [--seconds 60] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about eight minutes, two of them to make stores.
"""

from __future__ import annotations

import argparse

from racing.contestants import BARE, OURS
from racing.plots import bars
from racing.races import Lap, Race, options_of, sizes


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stored", type=sizes)
    parser.add_argument("--seconds", type=float)


def main() -> None:
    options = options_of(__doc__, add_options)
    counts: list[int] = options.stored or ([1_000] if options.quick else [10_000, 1_000_000])
    seconds = options.seconds or (10 if options.quick else 60)
    with Race("idle", options) as race:
        laps = []
        for contestant in race.contestants:
            stores = dict.fromkeys(counts) if contestant is BARE else race.filled_in_order(contestant, counts)
            laps += [
                Lap(contestant=contestant, size=count, arguments={"seconds": seconds}, store=store)
                for count, store in stores.items()
            ]
        race.run_side_by_side("idle", laps)
        columns = {"cpu_s": "CPU s|.4f", "percent_of_a_core": "% of a core|.3f"}
        race.table(f"Waiting for {seconds:g} seconds", "far jobs", columns)
        most = counts[-1]
        which = f"idle with {most:,} jobs" + ("" if most == 1_000_000 else " (asked for 1,000,000)")
        race.expect(which, race.median(OURS, most, "percent_of_a_core"), at_most=0.3, unit=" % of a core")
        groups = {
            f"{count:,} far jobs": {c.name: race.median(c, count, "percent_of_a_core") for c in race.contestants}
            for count in counts
        }
        race.finish({"idle": bars("Waiting", "percent of a core", groups)})


if __name__ == "__main__":
    main()
