"""How late does a handler start? With 100 to 1,000,000 other jobs in the store.

One-shot jobs come due one after another, and each notes the wall clock first of all: the moment at which the handler
starts minus the moment at which it was due. The limit is `loop.call_at`, which stores nothing, so it is measured once
in each round. Peers have as many jobs as can be added to them within the limit.

    python benchmarks/tick_latency.py [--stored 100,1000] [--probes 100] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about a quarter of an hour, four minutes of it to make stores.
"""

from __future__ import annotations

import argparse

from racing.contestants import BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, difference, options_of, ratio, sizes
from racing.watching import percentile

# Longer than any contestant takes for one job.
GAP = 0.05  # seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stored", type=sizes)
    parser.add_argument("--probes", type=int, default=100)


def main() -> None:
    options = options_of(__doc__, add_options)
    counts: list[int] = options.stored or ([100, 1_000] if options.quick else [100, 1_000, 10_000, 100_000, 1_000_000])
    arguments = {"probes": options.probes, "gap": GAP}
    with Race("tick_latency", options) as race:
        laps = [Lap(contestant=BARE, size="none", arguments=arguments)] if BARE in race.contestants else []
        for contestant in race.contestants:
            stores = {} if contestant is BARE else race.filled_in_order(contestant, counts)
            laps += [
                Lap(contestant=contestant, size=count, arguments=arguments, store=store)
                for count, store in stores.items()
            ]
        race.run("ticks", laps)
        columns = {f"{name}_ms": f"{name} ms|.3f" for name in ("p50", "p90", "p99", "max")}
        race.table("Handler start minus due time", "stored jobs", columns)
        for count in counts:
            for name, most in (("p50_ms", 1.0), ("p99_ms", 5.0)):
                ours, bare = race.median(OURS, count, name), race.median(BARE, "none", name)
                words = f"{name.removesuffix('_ms')} above bare call_at, {count:,} stored"
                race.expect(words, difference(ours, bare), at_most=most, unit=" ms")
        for name in ("p50_ms", "p99_ms"):
            ours = race.median(OURS, counts[-1], name)
            words = f"{name.removesuffix('_ms')} with {counts[-1]:,} stored, of that with {counts[0]:,}"
            race.expect(words, ratio(ours, race.median(OURS, counts[0], name)), at_most=1.5)
        for count in counts:
            for name in ("p50_ms", "p99_ms"):
                best = race.best_peer(count, name, min)
                if best is not None:
                    words = f"{name.removesuffix('_ms')} of that of the best peer, {count:,} stored"
                    race.expect(words, ratio(race.median(OURS, count, name), best), at_most=1)
        race.finish({"tick_latency": growing(race, counts), "tick_latency_spread": spread(race, counts)})


def growing(race: Race, counts: list[int]) -> str:
    """p50, and dashed p99, over the number of stored jobs."""
    series = {}
    for contestant in race.contestants:
        for label, name in (("", "p50_ms"), (", p99", "p99_ms")):
            found = [
                (count, race.median(contestant, "none" if contestant is BARE else count, name) or 0) for count in counts
            ]
            series[f"{contestant.name}{label}"] = found
    return lines("How late a handler starts: p50, and p99 dashed", "stored jobs", "milliseconds", series)


def spread(race: Race, counts: list[int]) -> str:
    """All percentiles, of all repetitions together, with as many jobs as all have that take part."""
    common = [
        count for count in counts if all(race.found.get((c.name, count)) for c in race.contestants if c is not BARE)
    ]
    count = (common or counts)[-1]
    series = {}
    for contestant in race.contestants:
        rounds = race.found.get((contestant.name, "none" if contestant is BARE else count), [])
        lateness = [late for figures in rounds for late in figures["lateness_ms"]]  # type: ignore[attr-defined]
        if lateness:
            series[contestant.name] = [(share, percentile(lateness, share)) for share in range(1, 101)]
    title = f"How late a handler starts, with {count:,} stored jobs"
    return lines(title, "percent of all runs", "at most so many milliseconds", series, log_across=False)


if __name__ == "__main__":
    main()
