"""How runs look on a terminal: lines under one header, as they come or all at once, and statistics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_async.cli.job_names import name_of, names_of
from scheduler_async.cli.long_text import SHORT_TEXT, shortened
from scheduler_async.cli.printing import lines_of
from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.cli.tables import NARROW_PROSE, fitting
from scheduler_async.cli.terminal import (
    HERE,
    coloured,
    console,
    in_columns,
    moment,
    now,
    print_indented,
    print_line,
    say,
    width_of,
)
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import RunStats
from scheduler_async.scheduler import Scheduler
from scheduler_async.stores.run_codec import is_unreadable
from scheduler_async.timekeeping import time_format

LOG = ("run", "when", "slug", "trigger", "outcome", "took", "message")
# A run as most are, so that the first lines leave room for those that follow.
USUAL_RUN = ("1000", "00:00:00 CEST", "a-usual-name", "schedule", "success", "1m 30s", "")


class RunLines:
    """Prints runs below one header, one by one. Columns keep their widths, and widen for a cell that needs it."""

    def __init__(self, runs: Sequence[tuple[str, RunRow]] = (), *, are_all: bool = False) -> None:
        """Make room for *runs*, each with the name of its job, and for usual ones unless these *are_all*."""
        known = [cells_of(*run) for run in runs]
        usual = [] if are_all else [tuple(map(Text, USUAL_RUN))]
        rows, width = [*known, *usual], width_of(sys.stdout)
        self._columns = fitting(LOG, rows, width) or fitting(LOG, rows, width, longest_word=NARROW_PROSE)
        self._has_header = False

    def print(self, name: str, row: RunRow, *texts: str | None) -> None:
        """Print a run of the job with this *name*, and *texts* such as its output below it."""
        cells = cells_of(name, row)
        if self._columns is None:  # too narrow for columns
            print_line(Text("  ").join(cell for cell in cells if cell))
        else:
            self._columns.widen(cells, width_of(sys.stdout))
            if not self._has_header:
                self._has_header = True
                print_line(self._columns.header())
            print_line(self._columns.row(cells))
        for text in texts:
            for line in lines_of(text) if text else []:
                print_indented(Text(line, keep="\t"))


@dataclass(frozen=True)
class Shows:
    """What a log shows besides the rows."""

    output: bool = False
    traceback: bool = False
    only_failures: bool = False

    async def read(self, scheduler: Scheduler, row: RunRow) -> tuple[RunRow, str | None]:
        """Return a row with its traceback, and its output, if they are shown."""
        if self.traceback and row.outcome is not None and row.outcome is not Outcome.SKIPPED:
            row = await scheduler.get_run(row.id) or row  # it may have been purged meanwhile
        return row, await scheduler.run_output(row.id) if self.output else None


def show_rows(runs: Sequence[tuple[RunRow, str | None]]) -> None:
    """Print runs, one per line, each with its output and its traceback if it has them."""
    if not runs:
        say("No runs.")
        return
    names = names_of([(row.namespace, row.job_id) for row, _ in runs])
    lines = RunLines([(name, row) for name, (row, _) in zip(names, runs, strict=True)], are_all=True)
    for name, (row, output) in zip(names, runs, strict=True):
        lines.print(name, row, output, row.traceback)


def cells_of(name: str, row: RunRow) -> tuple[AnyText, ...]:
    """Return the cells of a run of the job with this *name*, in the order of `LOG`."""
    at = row.started_at or row.scheduled_for
    in_progress = Text("running" if row.started_at is not None else "waiting", "cyan")
    in_progress = Text("unreadable", "red") if is_unreadable(row) else in_progress
    return (
        Text(str(row.id) if row.id else "-"),  # an event about skipped occurrences has no row yet
        Text(time_format.absolute(at, now(), HERE, with_seconds=True)),
        Text(name),
        Text(f"{row.trigger.value} {row.attempt}" if row.attempt > 1 else row.trigger.value),
        in_progress if row.outcome is None else coloured(row.outcome),
        Text(time_format.took(row.duration_ms)),
        Text(story_of(row)),
    )


def story_of(row: RunRow) -> str:
    """Return the message or the error of a run, or the reason for which it was skipped."""
    if row.outcome is Outcome.SKIPPED and row.reason is not None:
        more = f" ({row.missed} occurrences)" if row.missed > 1 else ""
        return f"{row.reason}{more}"
    if row.outcome is Outcome.CANCELLED and row.reason is not None:
        return shortened(" ".join(row.reason.split()), SHORT_TEXT)
    told = row.message or row.error or (row.progress_message if row.outcome is None else None) or ""
    return shortened(" ".join(told.split()), SHORT_TEXT)


def say_how_it_ended(row: RunRow) -> None:
    """Print the outcome of a run as a sentence on stderr."""
    assert row.outcome is not None
    name, story = name_of(row.namespace, row.job_id), story_of(row)
    print_line(Text.assemble(f"{name}: ", coloured(row.outcome), f", {story}" if story else ""), stderr=True)


# ---------------------------------------------------------------- statistics


def show_stats(found: Sequence[tuple[Job, RunStats]]) -> None:
    """Print the statistics of each job as a table, or as sentences in a narrow terminal."""
    if not found:
        say("No jobs.")
        return
    names = names_of([(job.namespace, job.id) for job, _ in found])
    heads = ("slug", "total", "success_rate", "p50", "p95", "delay_p50", "delay_p95", "last_run_at", "counts")
    rows = [
        (
            name,
            str(stats.total),
            rate_of(stats),
            *map(time_format.took, (stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms)),
            stats.last_run_at or "-",
            counts_of(stats),
        )
        for name, (_, stats) in zip(names, found, strict=True)
    ]
    table = in_columns(heads, rows)
    if table is not None:
        console().print(table)
        return
    for name, (_, stats) in zip(names, found, strict=True):
        say(f"{name}: {story_of_stats(stats)}")


def story_of_stats(stats: RunStats) -> str:
    """Return statistics as a sentence."""
    if not stats.total:
        return f"no runs ({counts_of(stats)})." if stats.counts else "no runs."
    runs = "1 run" if stats.total == 1 else f"{stats.total} runs"
    story = f"{runs} ({counts_of(stats)}), {rate_of(stats)} success"
    if stats.p50_ms is not None:
        story += f"; took {time_format.took(stats.p50_ms)} (p95 {time_format.took(stats.p95_ms)})"
    if stats.delay_p50_ms is not None:
        story += f"; late by {time_format.took(stats.delay_p50_ms)} (p95 {time_format.took(stats.delay_p95_ms)})"
    return f"{story}; last {moment(stats.last_run_at)}." if stats.last_run_at else f"{story}."


def rate_of(stats: RunStats) -> str:
    """Return the share of successful runs as a percentage."""
    return "-" if stats.success_rate is None else f"{stats.success_rate:.0%}"


def counts_of(stats: RunStats) -> str:
    """Return the number of runs with each outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in stats.counts.items())
