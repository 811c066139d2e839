"""A race: everybody by turns, several times, medians, a table, what was to be reached, and the files that keep it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from racing.contestants import BEFORE, BENCHMARKS, EVERYBODY, OURS, Contestant, NotMeasuredError
from racing.courses import Figures

Size = int | str

# What takes part at every size is filled however slow the machine is.
PATIENCE = 1_800.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One contestant, one size; with a copy of *store* if there is one, and else with a file of its own."""

    contestant: Contestant
    size: Size
    arguments: dict[str, object]
    store: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Goal:
    words: str
    value: float | None
    limit: float
    at_most: bool
    unit: str = ""

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        return "reached" if (self.value <= self.limit if self.at_most else self.value >= self.limit) else "missed"

    def __str__(self) -> str:
        value = "–" if self.value is None else f"{self.value:,.4g}"
        bound = "at most" if self.at_most else "at least"
        return f"{self.verdict:<12} {self.words}: {value}{self.unit} ({bound} {self.limit:,.4g}{self.unit})"


def options_of(description: str, add: Callable[[argparse.ArgumentParser], object]) -> argparse.Namespace:
    """What every script can be told, and what *add* adds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition: a first look")
    parser.add_argument("--repetitions", type=int, help="5, or 1 with --quick")
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results", help="where JSON and plots go")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds that one measurement may take")
    parser.add_argument("--fill-limit", type=float, default=120.0, help="seconds that filling a peer's store may take")
    parser.add_argument("--before", type=Path, help="the checkout of an older version, to be compared with this one")
    parser.add_argument("--only", help="contestants, by their modules: bare,ours,apscheduler3, …")
    add(parser)
    options = parser.parse_args()
    if options.repetitions is None:
        options.repetitions = 1 if options.quick else 5
    return options


def sizes(text: str) -> list[int]:
    return [int(size.replace("_", "")) for size in text.split(",")]


@dataclass
class Race:
    """Use it as a context: its files are on the disk that *out* is on, and go with it."""

    name: str
    options: argparse.Namespace
    found: defaultdict[tuple[str, Size], list[Figures]] = field(default_factory=lambda: defaultdict(list))
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    everybody: Sequence[Contestant] = EVERYBODY
    facts: dict[str, object] = field(default_factory=dict)
    """What else the figures depend on."""

    def __enter__(self) -> Race:
        out: Path = self.options.out
        out.mkdir(parents=True, exist_ok=True)
        self._work = tempfile.TemporaryDirectory(dir=out, prefix="work-")
        self._load_before = os.getloadavg()[0]
        kept = vars(self.options)
        chosen = kept["only"].split(",") if kept["only"] else [contestant.module for contestant in self.everybody]
        self.contestants = [contestant for contestant in self.everybody if contestant.module in chosen]
        if kept["before"]:
            before = replace(BEFORE, checkout=kept["before"].resolve())
            self.contestants.insert(self.contestants.index(OURS) + 1, before)
        for contestant in self.contestants:
            contestant.python()
        print(f"CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores", end=", ")
        print(f"{datetime.now(UTC):%Y-%m-%d}, medians of {self.options.repetitions}, load {self._load_before:.1f}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.cleanup()

    def filled(self, contestant: Contestant, count: int, due: int = 0) -> Path | None:
        """A store with *count* far jobs; None, and a note, if that takes too long. To be copied, not used."""
        path = Path(self._work.name, f"{contestant.name}-{count}-{due}.store")
        if path.exists():  # the bare limit uses ours
            return path
        self._tell(f"filling {count:,} for {contestant.name}")
        limit: float = self.options.fill_limit if contestant.is_peer else PATIENCE
        try:
            figures = contestant.send("fill", limit=2 * limit, path=str(path), count=count, due=due, fill_limit=limit)
        except NotMeasuredError as failure:
            figures = {"filled": 0, "why": str(failure)}
        if figures["filled"] == count:
            assert not Path(f"{path}-wal").exists(), f"{contestant.name} has left something beside its file"
            return path
        path.unlink(missing_ok=True)
        why = figures.get("why") or f"adding them would take {figures['would_take_s']:,.0f} s, and may take {limit:g} s"
        self.notes.append(f"{contestant.name}, {count:,} jobs and more: {why}.")
        return None

    def with_more(self, store: Path, count: int) -> Path:
        """A copy of a store of ours with *count* more far jobs."""
        path = store.with_suffix(".more")
        shutil.copyfile(store, path)
        OURS.send(
            "fill", limit=self.options.limit, path=str(path), count=count, fill_limit=self.options.limit, name="more"
        )
        return path

    def filled_in_order(self, contestant: Contestant, counts: Sequence[int], due: int = 0) -> dict[int, Path]:
        """A store for each of the growing *counts*, up to the one that takes too long."""
        stores: dict[int, Path] = {}
        for count in counts:
            # A contestant that cannot hold so many cannot hold more, and is not asked again.
            store = self.filled(contestant, count, due) if len(stores) == counts.index(count) else None
            if store is None:
                self.found[contestant.name, count] = []
            else:
                stores[count] = store
        return stores

    def run(self, course: str, laps: Sequence[Lap]) -> None:
        """Let all contestants take turns, each time beginning with another. One that fails is not asked again."""
        out_of_race = set()
        for repetition in range(self.options.repetitions):
            turn = repetition * len(laps) // self.options.repetitions
            for number, lap in enumerate([*laps[turn:], *laps[:turn]], 1):
                key = lap.contestant.name, lap.size
                if key in out_of_race:
                    continue
                self._tell(f"round {repetition + 1}, {number} of {len(laps)}: {key[0]}, {key[1]}")
                try:
                    self.found[key].append(self.measure(course, lap))
                except NotMeasuredError as failure:
                    out_of_race.add(key)
                    self.found[key] = []
                    self.notes.append(f"{key[0]}, {lap.size}: {failure}")
        self._tell("")

    def run_side_by_side(self, course: str, laps: Sequence[Lap]) -> None:
        """Let all contestants run at the same time, if they do next to nothing."""
        for repetition in range(self.options.repetitions):
            self._tell(f"round {repetition + 1}: all of them, side by side")
            with ThreadPoolExecutor(max_workers=len(laps)) as crew:
                asked = [(lap, crew.submit(self.measure, course, lap)) for lap in laps]
            for lap, answer in asked:
                try:
                    self.found[lap.contestant.name, lap.size].append(answer.result())
                except NotMeasuredError as failure:
                    self.notes.append(f"{lap.contestant.name}, {lap.size}: {failure}")
        self._tell("")

    def measure(self, course: str, lap: Lap) -> Figures:
        """One measurement, with files that are gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self._work.name) as directory:
            path = Path(directory, "jobs.db")
            if lap.store is not None:
                with lap.store.open("rb") as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    os.fsync(copy.fileno())  # now, and not during a measurement
            return lap.contestant.send(course, limit=self.options.limit, path=str(path), **lap.arguments)

    def median(self, contestant: Contestant, size: Size, figure: str) -> float | None:
        """Of all repetitions; None if there is no such figure."""
        values = [figures.get(figure) for figures in self.found.get((contestant.name, size), [])]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        return median(numbers) if numbers else None

    def worst(self, contestant: Contestant, size: Size, share: Callable[[Any], float]) -> float | None:
        """The least *share* that a repetition had; None if there was none."""
        return min((share(figures) for figures in self.found.get((contestant.name, size), [])), default=None)

    def leave_out(self, is_missing: Callable[[Any], bool], why: str) -> None:
        """Forget the figures of those of which a repetition *is_missing* something."""
        for (name, size), found in self.found.items():
            if any(map(is_missing, found)):
                found.clear()
                self.notes.append(f"{name}, {size}: {why}")

    def best_peer(self, size: Size, figure: str, best: Callable[[Iterable[float]], float]) -> float | None:
        """The *best* (`min` or `max`) of what the peers reached."""
        reached = [self.median(peer, size, figure) for peer in self.contestants if peer.is_peer]
        known = [value for value in reached if value is not None]
        return best(known) if known else None

    def table(self, title: str, size_title: str, columns: dict[str, str]) -> None:
        """Print a line for each size and contestant. *columns* are figures, each with its heading and format:
        "p50 ms|.2f"."""
        print(f"\n{title}\n")
        heads = [text.partition("|")[0] for text in columns.values()]
        widths = [max(len(head), 9) for head in heads]
        print(f"{size_title:>14}  {'':<24}", *(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
        for size in sorted({size for _, size in self.found}, key=lambda size: (isinstance(size, int), size)):
            for contestant in self.contestants:
                if (contestant.name, size) not in self.found:
                    continue
                cells = []
                for (figure, text), width in zip(columns.items(), widths, strict=True):
                    value = self.median(contestant, size, figure)
                    cells.append(f"{'–' if value is None else format(value, text.partition('|')[2]):>{width}}")
                self._print_row(size, contestant.name, cells)
            if (BEFORE.name, size) in self.found:
                changes = [
                    ratio(self.median(OURS, size, figure), self.median(BEFORE, size, figure)) for figure in columns
                ]
                cells = [
                    f"{'–' if change is None else format(change, '.3f'):>{width}}"
                    for change, width in zip(changes, widths, strict=True)
                ]
                self._print_row(size, "now / before", cells)

    def _print_row(self, size: Size, name: str, cells: Sequence[str]) -> None:
        shown = f"{size:,}" if isinstance(size, int) else size
        print(f"{shown:>14}  {name:<24}", *cells)

    def expect(
        self,
        words: str,
        value: float | None,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        unit: str = "",
    ) -> None:
        limit = at_most if at_most is not None else at_least
        assert limit is not None
        self.goals.append(Goal(words=words, value=value, limit=limit, at_most=at_most is not None, unit=unit))

    def finish(self, plots: dict[str, str]) -> None:
        """Print what was to be reached and why figures are missing; write JSON, and *plots* by their names."""
        if self.goals:
            print()
        for goal in self.goals:
            print(goal)
        if self.notes:
            print("\nA dash means that it was not measured:")
        for note in self.notes:
            print(f"  {note}")
        out: Path = self.options.out
        kept = {
            "question": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load_before": self._load_before,
            "load_after": os.getloadavg()[0],
            **self.facts,
            "options": {name: str(value) for name, value in vars(self.options).items()},
            "figures": [
                {"contestant": name, "size": size, "repetitions": figures}
                for (name, size), figures in self.found.items()
            ],
            "goals": [
                {"goal": goal.words, "value": goal.value, "limit": goal.limit, "verdict": goal.verdict}
                for goal in self.goals
            ],
            "notes": self.notes,
        }
        (out / f"{self.name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        for name, drawing in plots.items():
            (out / f"{name}.svg").write_text(drawing, encoding="utf-8")
        print(f"\nWritten to {out}: {self.name}.json, {', '.join(f'{name}.svg' for name in plots)}")

    def _tell(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def ratio(value: float | None, other: float | None) -> float | None:
    """How many times *other* is *value*; None if one of them is not known."""
    return None if value is None or not other else value / other


def difference(value: float | None, other: float | None) -> float | None:
    """How much *value* is above *other*; None if one of them is not known."""
    return None if value is None or other is None else value - other
