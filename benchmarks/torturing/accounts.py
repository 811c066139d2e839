"""What a log and a store tell, and what should be so. Moments are microseconds, or the log's nanoseconds."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import NamedTuple

from scheduler_async import Every, JobSpec, Retry, RunRow

SECOND = 1_000_000  # microseconds, as in the store
MILLISECOND = timedelta(milliseconds=1)
# Later than every line of a log: a run that never ended.
NEVER = 2**63
# Being killed is no fault of these jobs: they are not given up for it.
PATIENT = Retry.none(disable_after=1_000_000)


class Line(NamedTuple):
    """What a process did: it got `ready`, or a run had its `begin`, `effect` and `end`, or was `cancelled`."""

    what: str
    job: str
    scheduled_for: int
    attempt: int
    pid: int
    at: int


class Period(NamedTuple):
    """A run, as the log has it."""

    job: str
    scheduled_for: int
    attempt: int
    pid: int
    begun: int
    ended: int


def periods(lines: Iterable[Line], died: Mapping[int, int]) -> list[Period]:
    """All runs. One that did not end ended with its process, when that *died* or with its last sign of life."""
    going: dict[tuple[str, int, int, int], int] = {}
    found: list[Period] = []
    last: dict[int, int] = {}
    for line in lines:
        last[line.pid] = line.at
        key = (line.job, line.scheduled_for, line.attempt, line.pid)
        if line.what == "begin":
            if key in going:
                found.append(Period(*key, going[key], NEVER))  # the same once more: two at once, however it ends
            going[key] = line.at
        elif line.what in ("end", "cancelled"):
            found.append(Period(*key, going.pop(key), line.at))
    for key, begun in going.items():
        pid = key[-1]
        found.append(Period(*key, begun, max(died[pid], last[pid]) if pid in died else NEVER))
    return found


def overlaps(runs: Iterable[Period]) -> int:
    """How often a run of a job began while another one went on."""
    count = 0
    busy_until: dict[str, int] = defaultdict(int)
    for run in sorted(runs, key=lambda run: run.begun):
        count += run.begun < busy_until[run.job]
        busy_until[run.job] = max(busy_until[run.job], run.ended)
    return count


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The occurrences of an interval job, computed here and not by the scheduler."""

    first: int
    step: int
    count: int

    def all(self) -> set[int]:
        """Every occurrence."""
        return set(self.starting_with(self.first, self.count))

    def starting_with(self, first: int, count: int) -> range:
        """What a row stands for that says *count* were left out, from *first* on."""
        return range(first, first + count * self.step, self.step)

    def spec(self, name: str, handler: str, first_takes: float = 0.1) -> JobSpec:
        """A job with these occurrences. The payload says how many seconds attempts take."""
        last = instant(self.first + (self.count - 1) * self.step)
        step = timedelta(microseconds=self.step)
        return JobSpec(
            Every(step, anchor=instant(self.first), end=last),
            id=name,
            handler=handler,
            retry=PATIENT,
            payload=[first_takes, 0.1],
        )


def left_out(rows: Iterable[RunRow], grids: Mapping[str, Grid]) -> Counter[tuple[str, int]]:
    """The occurrences that rows account for as not run."""
    counted: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row.attempt == 0:
            first, grid = micros_of(row.scheduled_for), grids.get(row.job_id)
            for moment in [first] if grid is None else grid.starting_with(first, row.missed):
                counted[row.job_id, moment] += 1
    return counted


def pid_of(row: RunRow) -> int:
    """The process that a run was claimed by."""
    return int((row.node or "::0:").rsplit(":", 2)[1])


def key_of(row: RunRow) -> tuple[str, int]:
    """The occurrence that a row is about."""
    return row.job_id, micros_of(row.scheduled_for)


def micros_of(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def instant(micros: int) -> datetime:
    """The moment, from microseconds since the epoch."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def now_micros() -> int:
    """The wall clock."""
    return time.time_ns() // 1000


def wall_ahead() -> int:
    """What to add to the monotonic clock to get the wall clock, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that *percent* of all are not above."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else sum(values)


@dataclass
class Goals:
    """What must hold, and whether it does."""

    results: list[tuple[str, bool]] = field(default_factory=list)

    def expect(self, words: str, holds: bool) -> None:
        """Note one."""
        self.results.append((words, holds))

    def expect_none(self, words: str, count: float) -> None:
        """Note one that is a count, which should be zero."""
        self.expect(f"{words}: {count}", count == 0)


def tell(title: str, figures: Mapping[str, float]) -> None:
    """Print figures, one on a line."""
    print(f"\n{title}")
    for name, value in figures.items():
        text = f"{value:,.0f}"
        words = name.removesuffix("_ms").replace("_", " ")
        print(f"{words:>40} {text:>9}{' ms' if name.endswith('_ms') else ''}")
