"""A file with many jobs: how long from opening it until the first due job starts, and how much memory does that take?

One job is due and all others are far. The process has loaded its modules when the time begins, and the file is likely
to be in the memory of the system, since it has just been copied. Memory is the most that the process ever had. The
limit is bare `sqlite3`, which opens the same file and finds the job that is due.

    python benchmarks/cold_start.py [--stored 1000,100000,1000000] [--quick] [--repetitions 5] [--out DIRECTORY]

It takes about five minutes, most of them to make stores.
"""

from __future__ import annotations

from racing.contestants import BARE, OURS
from racing.plots import lines
from racing.races import Lap, Race, difference, options_of, sizes


def main() -> None:
    options = options_of(__doc__, lambda parser: parser.add_argument("--stored", type=sizes))
    counts: list[int] = options.stored or ([100, 1_000] if options.quick else [1_000, 100_000, 1_000_000])
    with Race("cold_start", options) as race:
        laps = []
        for contestant in race.contestants:
            stores = race.filled_in_order(OURS if contestant is BARE else contestant, counts, due=1)
            laps += [
                Lap(contestant=contestant, size=count, arguments={}, store=store) for count, store in stores.items()
            ]
        race.run("cold_start", laps)
        columns = {"first_start_s": "first start s|.4f", "peak_mb": "peak memory MB|.1f"}
        race.table("From opening the file to the first due job", "stored jobs", columns)
        few, most = counts[0], counts[-1]
        which = f"{most:,} jobs" + ("" if most == 1_000_000 else " (asked for 1,000,000)")
        race.expect(f"first start with {which}", race.median(OURS, most, "first_start_s"), at_most=0.5, unit=" s")
        more = difference(race.median(OURS, most, "peak_mb"), race.median(OURS, few, "peak_mb"))
        race.expect(f"memory with {which}, above that with {few:,}", more, at_most=30, unit=" MB")
        series = {
            contestant.name: [(count, race.median(contestant, count, "first_start_s") or 0) for count in counts]
            for contestant in race.contestants
        }
        race.finish({"cold_start": lines("Until the first due job starts", "stored jobs", "seconds", series)})


if __name__ == "__main__":
    main()
