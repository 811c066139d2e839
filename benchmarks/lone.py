"""Most schedulers start one job at a time: what does such a run cost, and how late is it?

Jobs that run every second, spread over it, so that no two are due at once. CPU time is that of the whole process for
each run; apart from that, the table shows the thread of the event loop and all other threads. There are two limits.
Bare asyncio has a timer for each job and a task for each run, and keeps no record. Bare `sqlite3` writes the rows that
scheduler_async writes, on a thread, with one commit for the claim of a run and one for its end.

A contestant that does not fire all of the runs gets a dash.

    python benchmarks/lone.py [--rates 20,100,500,2000] [--seconds 10] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about forty minutes, for nine contestants.
"""

from __future__ import annotations

import argparse

from racing.contestants import (
    APSCHEDULER_3,
    APSCHEDULER_3_IN_MEMORY,
    BARE,
    BARE_TIMER,
    KEEPING_OR_NOT,
    OURS,
    OURS_IN_MEMORY,
)
from racing.plots import lines
from racing.races import Lap, Race, difference, options_of, ratio, sizes

# What a run may cost, of one of APScheduler 3.11 on a file, by runs per second.
SHARES = {20: 0.5, 100: 0.45, 500: 0.33}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", type=sizes, help="runs per second")
    parser.add_argument("--seconds", type=int)


def main() -> None:
    options = options_of(__doc__, add_options)
    rates: list[int] = options.rates or ([20, 500] if options.quick else [20, 100, 500, 2_000])
    seconds = options.seconds or (3 if options.quick else 10)
    with Race("lone", options, everybody=KEEPING_OR_NOT) as race:
        laps = []
        for rate in rates:
            for contestant in race.contestants:
                store = race.filled(OURS, rate) if contestant is BARE else None
                arguments: dict[str, object] = {"jobs": rate, "seconds": seconds}
                laps.append(Lap(contestant=contestant, size=rate, arguments=arguments, store=store))
        race.run("lone", laps)
        race.leave_out(
            lambda figures: figures["fired"] < figures["expected"] * 0.99, "it did not fire all of the runs."
        )
        columns = {
            "cpu_us": "CPU µs per run|,.0f",
            "loop_us": "event loop|,.0f",
            "others_us": "other threads|,.0f",
            "p50_ms": "p50 ms|.2f",
            "p99_ms": "p99 ms|.2f",
        }
        race.table("Jobs that run every second, one after another", "runs/s", columns)
        for rate in rates:
            judge(race, rate)
        series = {
            contestant.name: [(rate, race.median(contestant, rate, "cpu_us") or 0) for rate in rates]
            for contestant in race.contestants
        }
        race.finish({"lone": lines("CPU time of a run that is alone", "runs per second", "microseconds", series)})


def judge(race: Race, rate: int) -> None:
    which = f"{rate:,} runs per second"
    if rate in SHARES:
        cpu = ratio(race.median(OURS, rate, "cpu_us"), race.median(APSCHEDULER_3, rate, "cpu_us"))
        race.expect(f"{which}, CPU, of APScheduler 3.11", cpu, at_most=SHARES[rate])
        cpu = ratio(race.median(OURS_IN_MEMORY, rate, "cpu_us"), race.median(APSCHEDULER_3_IN_MEMORY, rate, "cpu_us"))
        race.expect(f"{which}, CPU, of APScheduler 3.11, both in memory", cpu, at_most=1)
    for figure, most in (("p50_ms", 0.3), ("p99_ms", 2.0)):
        later = difference(race.median(OURS, rate, figure), race.median(BARE_TIMER, rate, figure))
        race.expect(f"{which}, lateness {figure[:3]} above that of bare asyncio", later, at_most=most, unit=" ms")


if __name__ == "__main__":
    main()
