"""What does it cost to find the next occurrence?

Every schedule is asked `next_after` a few hundred times, each time with the answer before; an `At` has one answer, and
is asked the same question again. These are datetimes, as the peers give; integers (`next_micros`) cost less. Beside
cron lines stand croniter and cronsim, which walk from the same start through as many occurrences, in turns with ours
so that a busy moment of the machine hits all alike.
The figures are nanoseconds per occurrence, the median of all rounds:

* "first time" makes the schedule and asks it, with no line or day remembered. Only the offsets of the zone are known,
  as they are in any service after its first question. A job alone on its days, going on in time, pays about this.
* "amortised" is the same walk again, over days that are remembered: a job that is asked repeatedly, or many jobs that
  share a line. The ratios and the targets are about this column.
* "croniter aware" and "croniter naive" are `get_next(datetime)` from a start with and without a zone; a naive one knows
  nothing of daylight saving. "cronsim" is `next()`, from the aware start.

The peers' objects are made before the clock starts, and they go on from where they stand; ours take any moment. Where
a peer cannot read a line there is a "-". A fast answer may be a wrong one, so the notes below the table count the
instants that differ from ours, apart for the days on which the clocks change: there, the rules differ on purpose.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TypeAlias
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from scheduler_async import At, Cron, Delay, Every, Schedule
from scheduler_async.schedules import cron_line as cron

ZONE = ZoneInfo("Europe/Stockholm")
START = datetime(2026, 1, 1, tzinfo=ZONE)
LINES = (
    "*/5 * * * *",
    "0 * * * *",
    "0 9 * * *",
    "0 9 * * 1-5",
    "0 0 1 * *",
    "30 2 15,L 1-6 *",
    "0 12 * * 5#2",
    "*/10 * * * * *",
)

ROUNDS = 9
# A line remembers 2,048 days, up to two for each step: above 1,000 steps the second walk finds the first days gone.
STEPS = 500
MOST_STEPS = 5_000  # of the rarest line that is four centuries; the calendar ends in the year 9999

FIRST, AGAIN = "first time", "amortised"
AWARE, NAIVE, CRONSIM = "croniter aware", "croniter naive", "cronsim"
COLUMNS = (FIRST, AGAIN, AWARE, NAIVE, CRONSIM)

Answers: TypeAlias = Sequence[datetime | None]
Walk: TypeAlias = Callable[[], Answers]
Walker: TypeAlias = Callable[[], Walk]
"""Prepares a walk, right before it and while the clock stands still."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row to measure: how to make its schedule, and the cron line that the peers are to read."""

    name: str
    make: Callable[[], Schedule]
    line: str | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How the instants of a peer compare with ours, up to where both got."""

    compared: int
    ordinary: int
    """How many only one of us has, on days without a change of the clocks."""
    changing: int
    """The same, on days with one."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured: nanoseconds per occurrence by column, and how each peer's answers differ."""

    name: str
    is_cron: bool
    costs: dict[str, float]
    spread: float
    """How many times its quickest round the slowest one took, amortised."""
    differences: dict[str, Difference]

    def ratio(self, peer: str) -> float | None:
        """Our amortised cost as a multiple of the *peer*'s, or None if the peer was not measured."""
        return self.costs[AGAIN] / self.costs[peer] if peer in self.costs else None


@dataclass(frozen=True, kw_only=True)
class Target:
    """What we want to hold for every row that it is about, and the row that comes closest to breaking it."""

    name: str
    met: bool
    worst: str


def main() -> None:
    options = parse_options()
    rows = measure(all_cases(), options.rounds, options.steps)
    facts = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}",
        "rounds": options.rounds,
        "steps": options.steps,
    }
    print(report(rows, facts))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(rows, facts), indent=2) + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What does it cost to find the next occurrence?")
    parser.add_argument(
        "--rounds",
        type=partial(whole_number, most=1_000),
        default=ROUNDS,
        help="walks per figure (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=partial(whole_number, most=MOST_STEPS), default=STEPS, help="occurrences per walk (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    return parser.parse_args()


def whole_number(text: str, most: int) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


def all_cases() -> list[Case]:
    return [
        Case(name='Every("5m")', make=lambda: Every("5m")),
        Case(name='Every("5m", anchor)', make=lambda: Every("5m", anchor="2025-06-15T09:00:00Z")),
        Case(name='Delay("5m")', make=lambda: Delay("5m")),
        Case(name='At("2026-06-15 …")', make=lambda: At("2026-06-15T09:00:00Z")),
        *(Case(name=line, make=partial(Cron, line, ZONE), line=line) for line in LINES),
    ]


# Measuring


def measure(cases: Sequence[Case], rounds: int, steps: int) -> list[Row]:
    """Every round walks once through everything, so that a slow minute of the machine is in all figures or in none."""
    walkers = [walkers_for(case, steps) for case in cases]
    answers = [{name: prepare()() for name, prepare in each.items()} for each in walkers]  # this warms up, too
    laps = [[lap(each, steps) for each in walkers] for _ in range(rounds)]
    return [
        make_row(case, found, times) for case, found, times in zip(cases, answers, zip(*laps, strict=True), strict=True)
    ]


def make_row(case: Case, answers: dict[str, Answers], laps: Sequence[dict[str, float]]) -> Row:
    assert answers[FIRST] == answers[AGAIN]
    ours = instants(answers[AGAIN])
    return Row(
        name=case.name,
        is_cron=case.line is not None,
        costs={name: median(times[name] for times in laps) for name in answers},
        spread=max(times[AGAIN] for times in laps) / min(times[AGAIN] for times in laps),
        differences={peer: compare(ours, instants(answers[peer])) for peer in PEERS if peer in answers},
    )


def lap(walkers: dict[str, Walker], steps: int) -> dict[str, float]:
    """Nanoseconds per occurrence of each walk, one after another."""
    return {name: timed(prepare()) / steps for name, prepare in walkers.items()}


def timed(walk: Walk) -> int:
    """How many nanoseconds *walk* takes."""
    gc.collect()
    gc.disable()
    try:
        began = perf_counter_ns()
        walk()
        return perf_counter_ns() - began
    finally:
        gc.enable()


def walkers_for(case: Case, steps: int) -> dict[str, Walker]:
    peers = {} if case.line is None else peer_walkers(case.line, steps)
    return our_walkers(case, moments_to_ask(case.make(), steps)) | peers


def moments_to_ask(schedule: Schedule, steps: int) -> list[datetime]:
    """The start, and each answer but the last. Finding them makes the zone's offsets known."""
    moments = [START.astimezone(UTC)]
    while len(moments) < steps:
        following = moments[0] if isinstance(schedule, At) else schedule.next_after(moments[-1])
        assert following is not None
        moments.append(following)
    return moments


def our_walkers(case: Case, questions: Sequence[datetime]) -> dict[str, Walker]:
    def first() -> Walk:
        forget_lines()
        return lambda: ask(case.make(), questions)

    def again() -> Walk:
        return partial(ask, case.make(), questions)

    return {FIRST: first, AGAIN: again}


def ask(schedule: Schedule, questions: Iterable[datetime]) -> list[datetime | None]:
    return [schedule.next_after(now) for now in questions]


def forget_lines() -> None:
    """Empty what the cron module remembers; zones have a module of their own, and keep theirs."""
    caches = [
        value for value in vars(cron).values() if hasattr(value, "cache_clear") and value.__module__ == cron.__name__
    ]
    assert caches, "the first time would be measured with everything remembered"
    for cache in caches:
        cache.cache_clear()


# Peers


def walk_croniter(line: str, steps: int, start: datetime) -> Walk:
    search = croniter(line, start, second_at_beginning=True)
    return lambda: [search.get_next(datetime) for _ in range(steps)]


def walk_cronsim(line: str, steps: int) -> Walk:
    search = CronSim(line, START)
    return lambda: [next(search) for _ in range(steps)]


PEERS: dict[str, Callable[[str, int], Walk]] = {
    AWARE: partial(walk_croniter, start=START),
    NAIVE: partial(walk_croniter, start=START.replace(tzinfo=None)),
    CRONSIM: walk_cronsim,
}


def peer_walkers(line: str, steps: int) -> dict[str, Walker]:
    return {peer: partial(PEERS[peer], line, steps) for peer in PEERS if can_read(peer, line)}


def can_read(peer: str, line: str) -> bool:
    try:
        PEERS[peer](line, 1)()
    except (CroniterError, CronSimError):
        return False
    return True


# Do the peers agree?


def instants(found: Iterable[datetime | None]) -> set[datetime]:
    """What was *found*, in UTC; a time without a zone is one on the zone's clock."""
    aware = (at if at.tzinfo else at.replace(tzinfo=ZONE) for at in found if at is not None)
    return {at.astimezone(UTC) for at in aware}


def compare(ours: set[datetime], theirs: set[datetime]) -> Difference:
    until = min(max(ours), max(theirs))
    differing = [at for at in ours ^ theirs if at <= until]
    changing = sum(clocks_change_on(at.astimezone(ZONE).date()) for at in differing)
    return Difference(
        compared=sum(at <= until for at in ours),
        ordinary=len(differing) - changing,
        changing=changing,
    )


def clocks_change_on(day: date) -> bool:
    midnights = (datetime.combine(day + timedelta(days=days), time(), ZONE) for days in (0, 1))
    return len({midnight.utcoffset() for midnight in midnights}) > 1


# Reporting


def report(rows: Sequence[Row], facts: dict[str, object]) -> str:
    return "\n".join(
        [
            "What does it cost to find the next occurrence?",
            f"Nanoseconds per call, median of {facts['rounds']} rounds of {facts['steps']} steps.",
            f"{facts['date']}, {facts['python']}, {facts['machine']}. Cron lines in {ZONE.key}.",
            "",
            *table(rows),
            "",
            noise(rows),
            *(agreement(peer, rows) for peer in PEERS),
            "",
            *(
                f"{'met' if target.met else 'missed':<6}  {target.name} (worst: {target.worst})"
                for target in targets(rows)
            ),
        ]
    )


def table(rows: Sequence[Row]) -> list[str]:
    cells = [["schedule", *COLUMNS, "ours/croniter", "ours/cronsim"], *map(row_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])]) for name, *figures in cells]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def row_cells(row: Row) -> list[str]:
    costs = [f"{row.costs[column]:,.0f}" if column in row.costs else "-" for column in COLUMNS]
    ratios = ["-" if ratio is None else f"{ratio:.3f}" for ratio in (row.ratio(AWARE), row.ratio(CRONSIM))]
    return [row.name, *costs, *ratios]


def noise(rows: Iterable[Row]) -> str:
    spread = median(row.spread for row in rows)
    return (
        f"The slowest amortised round took {spread:.1f} times the quickest (median row); far above 1 is a busy machine."
    )


def agreement(peer: str, rows: Iterable[Row]) -> str:
    found = [row.differences[peer] for row in rows if peer in row.differences]
    compared, ordinary, changing = (
        sum(getattr(difference, name) for difference in found) for name in ("compared", "ordinary", "changing")
    )
    return (
        f"{peer}: of {compared:,} instants, {ordinary or 'none'} differ on ordinary days, "
        f"{changing or 'none'} on days when the clocks change."
    )


def targets(rows: Sequence[Row]) -> list[Target]:
    crons = [row for row in rows if row.is_cron]
    return [
        judge("amortised cron no slower than croniter aware", ratios(crons, AWARE), 1, "times"),
        judge("amortised cron at most 3 times cronsim", ratios(crons, CRONSIM), 3, "times"),
        judge(
            "Every below 2 µs",
            [(row.costs[AGAIN] / 1_000, row.name) for row in rows if row.name.startswith("Every")],
            2,
            "µs",
        ),
    ]


def ratios(rows: Iterable[Row], peer: str) -> list[tuple[float, str]]:
    return [(ratio, row.name) for row in rows if (ratio := row.ratio(peer)) is not None]


def judge(name: str, figures: Iterable[tuple[float, str]], limit: float, unit: str) -> Target:
    worst, where = max(figures)
    return Target(name=name, met=worst <= limit, worst=f"{worst:.3f} {unit}, {where}")


def as_json(rows: Sequence[Row], facts: dict[str, object]) -> dict[str, object]:
    return {
        **facts,
        "unit": "ns per call",
        "rows": [
            {**asdict(row), "ours/croniter": row.ratio(AWARE), "ours/cronsim": row.ratio(CRONSIM)} for row in rows
        ],
        "targets": [asdict(target) for target in targets(rows)],
    }


if __name__ == "__main__":
    main()
