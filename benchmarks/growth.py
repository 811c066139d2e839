"""Does the work depend on how many jobs are stored? CPU time per pass and per run, with 100 to 1,000,000 of them.

A pass is a wake-up that starts one job, and ends it: jobs come due one after another. A run is one of many that come
due at one instant. CPU time is that of the whole process, so waiting costs nothing and a busy machine matters little.
The limit is bare `sqlite3`, which makes the same changes to the same rows of the same file.

    python benchmarks/growth.py [--stored 100,1000] [--passes 50] [--runs 1000] [--quick] [--repetitions 5]

It takes about a quarter of an hour, four minutes of it to make stores.
"""

from __future__ import annotations

import argparse

from racing.contestants import BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, options_of, ratio, sizes

GAP = 0.05  # seconds, as in tick_latency.py


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stored", type=sizes)
    parser.add_argument("--passes", type=int)
    parser.add_argument("--runs", type=int)


def main() -> None:
    options = options_of(__doc__, add_options)
    counts: list[int] = options.stored or ([100, 1_000] if options.quick else [10**power for power in range(2, 7)])
    passes = options.passes or (20 if options.quick else 50)
    runs = options.runs or (200 if options.quick else 1_000)
    arguments = {"passes": passes, "gap": GAP, "runs": runs}
    with Race("growth", options) as race:
        laps = []
        for contestant in race.contestants:
            stores = race.filled_in_order(OURS if contestant is BARE else contestant, counts)
            if contestant is BARE:  # others add what they run; it needs to find that
                stores = {count: race.with_more(store, passes + runs) for count, store in stores.items()}
            laps += [
                Lap(contestant=contestant, size=count, arguments=arguments, store=store)
                for count, store in stores.items()
            ]
        race.run("growth", laps)
        race.table("CPU time", "stored jobs", {"pass_us": "per pass µs|,.0f", "run_us": "per run µs|,.0f"})
        plots = {}
        for figure, word in (("pass_us", "pass"), ("run_us", "run")):
            most, least = race.median(OURS, counts[-1], figure), race.median(OURS, counts[0], figure)
            words = f"a {word} with {counts[-1]:,} stored, of one with {counts[0]:,}"
            race.expect(words, ratio(most, least), at_most=1.5)
            series = {
                contestant.name: [(count, race.median(contestant, count, figure) or 0) for count in counts]
                for contestant in race.contestants
            }
            plots[f"growth_{word}"] = lines(f"CPU time of a {word}", "stored jobs", "microseconds", series)
        race.finish(plots)


if __name__ == "__main__":
    main()
