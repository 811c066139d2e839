"""Do 500 jobs that run every second keep their pace for a minute, and what does it cost?

All are due at the same instant of each second, or with --spread one after another over the second. What has begun when
the minute is over has fired. CPU seconds are those of the whole process, its threads included, and nothing but the
minute. The limit does what is due in a second by bare `sqlite3`, in two transactions, with a coroutine for each job.

    python benchmarks/sustained.py [--jobs 500] [--seconds 60] [--spread] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes as long as it says: half an hour, for five contestants and five repetitions of a minute.
"""

from __future__ import annotations

import argparse

from racing.contestants import BARE, OURS
from racing.plots import bars
from racing.races import Lap, Race, options_of, ratio


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--spread", action="store_true")


def main() -> None:
    options = options_of(__doc__, add_options)
    jobs = options.jobs or (50 if options.quick else 500)
    seconds = options.seconds or (5 if options.quick else 60)
    arguments = {"jobs": jobs, "seconds": seconds, "spread": options.spread}
    with Race("sustained", options) as race:
        laps = []
        for contestant in race.contestants:
            store = race.filled(OURS, jobs) if contestant is BARE else None
            laps.append(Lap(contestant=contestant, size=jobs, arguments=arguments, store=store))
        race.run("sustained", laps)
        columns = {
            "fired": "fired|,.0f",
            "expected": "expected|,.0f",
            "p50_ms": "p50 ms|.1f",
            "p99_ms": "p99 ms|.1f",
            "cpu_s": "CPU s|.2f",
        }
        race.table(f"Jobs that run every second, for {seconds} seconds", "jobs", columns)
        # The worst repetition counts: one that is missing once is missing.
        share = race.worst(OURS, jobs, lambda figures: figures["fired"] / figures["expected"])
        race.expect("fired, of all occurrences, in the worst repetition", share, at_least=1)
        complete = [
            race.median(peer, jobs, "cpu_s")
            for peer in race.contestants
            if peer.is_peer and race.worst(peer, jobs, lambda figures: figures["fired"] / figures["expected"]) == 1
        ]
        leanest = min((cpu for cpu in complete if cpu is not None), default=None)
        cpu = race.median(OURS, jobs, "cpu_s")
        race.expect("CPU, of the leanest peer that fires them all", ratio(cpu, leanest), at_most=1 / 3)
        groups = {
            "CPU seconds": {contestant.name: race.median(contestant, jobs, "cpu_s") for contestant in race.contestants},
            "lateness p99, ms": {
                contestant.name: race.median(contestant, jobs, "p99_ms") for contestant in race.contestants
            },
        }
        race.finish({"sustained": bars(f"{jobs:,} jobs every second, for {seconds} s", "", groups)})


if __name__ == "__main__":
    main()
