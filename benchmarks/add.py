"""How many jobs can be added in a second? One at a time, each on record before the next, and in bulk.

The limit is bare `sqlite3` with the rows that scheduler_async writes: two for each job, in a commit of their own, or
all by `executemany` in one transaction. "One table" is the same with only one of the two rows, because the second one
is our own choice. "A thread away" is the same rows as bare, one transaction at a time, by aiosqlite: the most that a
program reaches if SQLite must not block the event loop. How much that is depends on how soon one core wakes another:
where that takes long, it is less than half of bare.

    python benchmarks/add.py [--one-at-a-time 1000] [--in-bulk 10000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about two minutes.
"""

from __future__ import annotations

import argparse

from racing.contestants import BARE, OURS
from racing.plots import bars
from racing.races import Lap, Race, options_of, ratio

WAYS = {"one at a time": "one_at_a_time_per_s", "in bulk": "in_bulk_per_s"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--one-at-a-time", type=int)
    parser.add_argument("--in-bulk", type=int)


def main() -> None:
    options = options_of(__doc__, add_options)
    single = options.one_at_a_time or (100 if options.quick else 1_000)
    bulk = options.in_bulk or (1_000 if options.quick else 10_000)
    arguments = {"one_at_a_time": single, "in_bulk": bulk}
    size = f"{single:,} / {bulk:,}"
    with Race("add", options) as race:
        laps = []
        for contestant in race.contestants:
            store = race.filled(OURS, single + bulk) if contestant is BARE else None
            laps.append(Lap(contestant=contestant, size=size, arguments=arguments, store=store))
        race.run("add", laps)
        race.notes += [
            f"{peer.name}, in bulk: it has no call that adds many." for peer in race.contestants if peer.is_peer
        ]
        columns = {figure: f"{way}, jobs/s|,.0f" for way, figure in WAYS.items()}
        columns |= {f"one_table_{figure}": f"{way}, one table|,.0f" for way, figure in WAYS.items()}
        columns["a_thread_away_per_s"] = "a thread away|,.0f"
        race.table("Adding jobs", "jobs", columns)
        for (way, figure), least in zip(WAYS.items(), (1 / 2, 1 / 3), strict=True):
            ours = race.median(OURS, size, figure)
            race.expect(f"{way}, of bare sqlite3", ratio(ours, race.median(BARE, size, figure)), at_least=least)
            one_table = race.median(BARE, size, f"one_table_{figure}")
            race.expect(f"{way}, of bare sqlite3 with one table", ratio(ours, one_table), at_least=least)
        away = race.median(BARE, size, "a_thread_away_per_s")
        single = race.median(OURS, size, WAYS["one at a time"])
        race.expect("one at a time, of the same rows a thread away", ratio(single, away), at_least=1 / 2)
        groups = {
            way: {contestant.name: race.median(contestant, size, figure) for contestant in race.contestants}
            for way, figure in WAYS.items()
        }
        race.finish({"add": bars("Adding jobs", "jobs per second", groups)})


if __name__ == "__main__":
    main()
