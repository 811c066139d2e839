"""How things look on a terminal: tables that fit it, colours if it has any, and lines that come as things happen."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from shutil import get_terminal_size
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table

from scheduler_async.cli import forms, tables, words
from scheduler_async.cli.printing import lines_of, put_json_line
from scheduler_async.cli.sentences import copied, explained
from scheduler_async.cli.tables import Cell, Row
from scheduler_async.cli.text import Text
from scheduler_async.command import HANDLER, Command
from scheduler_async.errors import InvalidJobError
from scheduler_async.jobs.answers import Explanation, Node, Upcoming
from scheduler_async.jobs.enums import ENDED, Outcome, Phase, Priority, Status
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import RunStats
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.terms import Rules
from scheduler_async.scheduler import Scheduler
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.manual import Manual
from scheduler_async.stores.copy_records import Verdict
from scheduler_async.stores.copying import Copy
from scheduler_async.stores.nodes import SKEW
from scheduler_async.stores.run_codec import is_unreadable
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.durations import short_span
from scheduler_async.timekeeping.instants import to_micros

# What is not read on a terminal is read by a program, or in a file: it has room for wide tables.
WIDE = 400

# How much of a long text is shown, in characters: in a line of a table, and where it is all there is to read.
SHORT_TEXT, LONG_TEXT = 200, 1_000

# Below this, nothing can be laid out: a terminal that is narrower breaks the lines as it likes.
NARROWEST = 20

# More runs than a reader wants to see one by one, below the timeline that shows them.
MANY = 20

# More rows than come in between two looks at the log.
AT_ONCE = 1_000

COLOURS: dict[object, str] = {
    Outcome.SUCCESS: "green",
    Outcome.NOOP: "green",
    Outcome.SKIPPED: "yellow",
    Outcome.CANCELLED: "yellow",
    Status.RUNNING: "green",
    Status.QUEUED: "cyan",
    Status.PAUSED: "yellow",
    Status.DISABLED: "red",
    Priority.HIGH: "bold",
    Priority.LOW: "dim",
}
COLOURS.update({outcome: "red" for outcome in Outcome if outcome.is_failure})

HERE = words.ReadersZone()

_clock = SystemClock()


def now() -> datetime:
    """The moment at which the reader reads."""
    return _clock.now()


def width_of(stream: TextIO) -> int:
    """How many columns there are to write to."""
    return max(get_terminal_size().columns, NARROWEST) if stream.isatty() else WIDE


class Screen(Console):
    """A console that does not end the program by itself: runs may be in progress."""

    def on_broken_pipe(self) -> None:
        """Let whoever prints know that nobody reads any more."""
        raise  # noqa: PLE0704 - it is called where that is being handled


def console(*, stderr: bool = False) -> Console:
    """Where things are shown."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Screen(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def say(sentence: str) -> None:
    """One sentence."""
    print_line(Text(sentence))


def say_aside(sentence: str) -> None:
    """One sentence for somebody who sits at a terminal, and for nobody else."""
    if sys.stderr.isatty():
        print_line(Text(sentence, "dim"), stderr=True)


def print_line(line: RenderableType, *, stderr: bool = False) -> None:
    """A line, which a terminal breaks between words, and nobody else breaks."""
    screen = console(stderr=stderr)
    screen.print(line, soft_wrap=not screen.is_terminal)


def coloured(word: object) -> Text:
    """A word in the colour that it has everywhere."""
    return Text(str(getattr(word, "value", word)), style=COLOURS.get(word, ""))


def laid_out(heads: Sequence[str], rows: Sequence[Row]) -> RenderableType:
    """A table that fits, with moments on the clock of the reader."""
    return tables.laid_out(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def in_columns(heads: Sequence[str], rows: Sequence[Row]) -> Table | None:
    """The same, if it has room as a table."""
    return tables.in_columns(heads, rows, width=width_of(sys.stdout), now=now(), zone=HERE)


def moment(at: datetime | None) -> str:
    """A moment, relative and absolute on the clock of the reader."""
    return words.moment(at, now(), HERE)


# ---------------------------------------------------------------- jobs


def outlook(job: Job) -> str:
    """When a job runs, and what is next."""
    if job.disabled_reason == ENDED:
        return "ended, since nothing is left of its schedule"
    if not job.enabled:
        return "disabled until it is resumed"
    if job.state.phase is Phase.PAUSED:
        return "it starts again when it is resumed"
    if job.status is not Status.IDLE:
        return f"{job.status.value} now"
    if isinstance(job.schedule, Manual) or job.next_run_at is None:
        return "runs when it is triggered"
    if not isinstance(job.schedule, At):
        return f"{job.schedule.describe(HERE)}; next {moment(job.next_run_at)}"
    if job.next_run_at > now():
        return f"once, {moment(job.next_run_at)}"
    has_passed = f"once; {words.absolute(job.next_run_at, now(), HERE)} has passed"
    if claim(job, to_micros(now()), Rules()).attempt is None:
        return f"{has_passed}, so that it is skipped, as its misfire policy says"
    return f"{has_passed}, so that it is due now"


def jobs_table(jobs: Sequence[Job]) -> RenderableType:
    """Jobs, one on a line."""
    heads = ("slug", "cron", "priority", "status", "next_due_at", "retry_status", "last_exit")
    rows = [
        (
            name,
            forms.cron_of(job, HERE),
            coloured(job.priority),
            coloured(job.status),
            job.next_run_at or "-",
            forms.retry_status(job) or "-",
            "-" if job.last_exit_code is None else Text(str(job.last_exit_code), "red" if job.last_exit_code else ""),
        )
        for name, job in zip(names_of_jobs(jobs), jobs, strict=True)
    ]
    return laid_out(heads, rows)


def names_of_jobs(jobs: Sequence[Job]) -> list[str]:
    """Return the names of *jobs* for one table."""
    return forms.names_of([(job.namespace, job.id) for job in jobs])


def show_jobs(jobs: Sequence[Job]) -> None:
    """All of them."""
    if jobs:
        console().print(jobs_table(jobs))
    else:
        say("No jobs.")


async def watch(read: Callable[[], Awaitable[Sequence[Job]]], enough: asyncio.Event) -> None:
    """Jobs, as they are now, until the reader has seen enough."""
    from rich.live import Live

    with Live(jobs_table(await read()), console=console(), auto_refresh=False) as live:
        while not await _clock.wait(enough, 1.0):
            live.console.width = width_of(sys.stdout)  # which may have changed
            live.update(jobs_table(await read()), refresh=True)


def show_job(job: Job, explanation: Explanation) -> None:
    """All about one."""
    found = Table(box=None, pad_edge=False, show_header=False)
    found.add_column(style="bold", no_wrap=True)
    found.add_column(overflow="fold")
    form = forms.job_form(job)
    shown: dict[str, object] = {
        **form,
        "schedule": job.schedule.describe(HERE),
        "retry": None if job.retry is None else job.retry.describe(),
        "payload": None if job.payload is None else json.dumps(job.payload, ensure_ascii=False),
        "metadata": json.dumps(job.metadata, ensure_ascii=False) if job.metadata else None,
        "enabled": "yes" if job.enabled else "no",
        "status": coloured(job.status),
    }
    if job.handler == HANDLER:
        with suppress(InvalidJobError):  # it is no command, and shown as it is
            shown = {**_command_shown(job), **shown, "payload": None}
    shown |= {name: moment(getattr(job, name)) for name in form if name.endswith("_at") and form[name] is not None}
    for name, value in shown.items():
        if value is not None:
            cell = value if isinstance(value, Text) else Text(words.shortened(str(value), LONG_TEXT), keep="\n\t")
            found.add_row(name, cell)
    console().print(found)
    console().print()
    say_why(job, explanation)


def say_why(job: Job, explanation: Explanation) -> None:
    """Why a job is not running right now."""
    say(explained(job, replace(explanation, sentence=shortened_sentence(job, explanation.sentence))))


def shortened_sentence(job: Job, sentence: str) -> str:
    """What there is to say about a job, with less of an error that takes pages: what comes after it matters too."""
    error = (job.last_error or "").rstrip(".")
    if len(error) > SHORT_TEXT:
        sentence = sentence.replace(error, words.shortened(error, SHORT_TEXT))
    return words.shortened(sentence, LONG_TEXT)


def _command_shown(job: Job) -> dict[str, object]:
    """What a command job runs, where, and with what."""
    task = Command.from_payload(job.payload)
    return {
        "id": job.id,
        "command": task.line,
        "cwd": task.cwd,
        "env": " ".join(f"{name}={shlex.quote(value)}" for name, value in task.env.items()) or None,
        "payload of the command": None if task.payload is None else json.dumps(task.payload, ensure_ascii=False),
    }


# ---------------------------------------------------------------- nodes


def show_nodes(nodes: Sequence[Node]) -> None:
    """Who shares the store, and whose clock is wrong."""
    if not nodes:
        say("No nodes: no scheduler runs on this store.")
        return
    rows = [
        (
            node.id,
            node.host,
            str(node.pid),
            node.since,
            short_span(round(node.lease.total_seconds())) if node.lease else Text("run out", "red"),
            str(node.running),
            Text(words.lasting(node.clock_skew), "yellow" if abs(node.clock_skew) > SKEW else ""),
        )
        for node in nodes
    ]
    console().print(laid_out(("id", "host", "pid", "since", "lease", "running", "clock_skew"), rows))
    for node in nodes:
        if node.unreadable is not None:
            say(f"Look out: the row of {node.id} cannot be read from the store: {node.unreadable}.")
        if abs(node.clock_skew) > SKEW:
            which = "ahead of" if node.clock_skew > timedelta(0) else "behind"
            skew = words.lasting(abs(node.clock_skew))
            say(f"Look out: the clock of {node.host} is {skew} {which} that of the store.")


# ---------------------------------------------------------------- copies


@contextmanager
def copying(copy: Copy) -> Iterator[Callable[[], None]]:
    """A bar for somebody who sits at a terminal; call what this gives whenever there is more to show."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        jobs, runs = bars.add_task("jobs", total=None), bars.add_task("runs", total=None)

        def show() -> None:
            bars.update(jobs, total=copy.jobs, completed=copy.jobs_seen)
            bars.update(runs, total=copy.runs, completed=copy.runs_seen)

        yield show


def show_copy(copy: Copy) -> None:
    """What a copy came to: the jobs that were not copied, with the reason, and the sum."""
    lines = [
        f"{'Kept' if verdict is Verdict.KEPT else 'Left out'} {forms.name_of(job.namespace, job.id)}: {why}."
        for verdict, job, why in copy.exceptions
    ]
    lines += [
        f"Left out {forms.name_of(job.namespace, job.job_id)}: it cannot be read: {job.why}."
        for job in copy.unreadable_jobs
    ]
    lines += [
        f"Left out run {run.number} of {forms.name_of(run.namespace, run.job_id)}: it cannot be read: {run.why}."
        for run in copy.unreadable_runs
    ]
    for line in lines[:MANY]:
        say(line)
    if len(lines) > MANY:
        say(f"And {len(lines) - MANY:,} more; --json names them all.")
    say(copied(copy))


# ---------------------------------------------------------------- runs


def story_of(row: RunRow) -> str:
    """What there is to say about a run beside its outcome."""
    if row.outcome is Outcome.SKIPPED and row.reason is not None:
        more = f" ({row.missed} occurrences)" if row.missed > 1 else ""
        return f"{row.reason.value}{more}"
    return words.shortened(" ".join((row.message or row.error or "").split()), SHORT_TEXT)


LOG = ("when", "slug", "trigger", "outcome", "took", "message")


def cells_of(name: str, row: RunRow) -> tuple[str | Text, ...]:
    """A run of the job with this *name*, for a line."""
    at = row.started_at or row.scheduled_for
    going_on = Text("unreadable", "red") if is_unreadable(row) else Text("running", "cyan")
    outcome = going_on if row.outcome is None else coloured(row.outcome)
    attempt = f"{row.trigger.value} {row.attempt}" if row.attempt > 1 else row.trigger.value
    return words.absolute(at, now(), HERE), name, attempt, outcome, words.took(row.duration_ms), story_of(row)


def show_rows(rows: Sequence[RunRow], outputs: Mapping[int, str | None]) -> None:
    """Runs, one on a line; with what each of them wrote, if that is wanted."""
    if not rows:
        say("No runs.")
        return
    names = forms.names_of([(row.namespace, row.job_id) for row in rows])
    columns = None if outputs else in_columns(LOG, [cells_of(*named) for named in zip(names, rows, strict=True)])
    if columns is not None:
        console().print(columns)
        return
    for name, row in zip(names, rows, strict=True):
        print_row(row, outputs.get(row.id), name=name)


def print_row(row: RunRow, output: str | None = None, *, name: str | None = None) -> None:
    """A run as a line of its own, and what it wrote below it; *name* is what to call its job beside others."""
    cells = cells_of(name or forms.name_of(row.namespace, row.job_id), row)
    line = Text("  ").join(Text(cell) if isinstance(cell, str) else cell for cell in cells if cell)
    print_line(line)
    for written in lines_of(output) if output else []:
        print_line(Text(f"    {written}", keep="\t"))


def tell_of_run(row: RunRow) -> None:
    """How a run ended, in a sentence."""
    assert row.outcome is not None
    console(stderr=True).print(
        Text.assemble(
            f"{forms.name_of(row.namespace, row.job_id)}: ", coloured(row.outcome), f", {story_of(row)}".rstrip(", ")
        )
    )


async def follow(
    scheduler: Scheduler,
    slug: str | None,
    namespace: str | None,
    rows: Sequence[RunRow],
    enough: asyncio.Event,
    *,
    as_json: bool,
    with_output: bool,
) -> None:
    """Rows as they come, oldest first, whichever process writes them, until the reader has seen enough."""
    before = await scheduler.run_log(slug, namespace=namespace, limit=AT_ONCE)
    told = {row.id for row in before if row.outcome is not None} - {row.id for row in rows}
    going_on = {row.id for row in before if row.outcome is None}
    while True:
        # What takes long has more newer rows than are looked at.
        older = sorted(going_on - {row.id for row in rows}, reverse=True)
        found = [row for row in [await scheduler.get_run(run) for run in older] if row is not None]
        going_on = {row.id for row in (*rows, *found) if row.outcome is None}
        for row in reversed([*rows, *found]):
            if row.outcome is not None and row.id not in told:
                told.add(row.id)
                output = await scheduler.run_output(row.id) if with_output else None
                if as_json:
                    put_json_line(forms.row_form(row, output, with_output=with_output))
                else:
                    print_row(row, output)
        if await _clock.wait(enough, 0.5):
            return
        rows = await scheduler.run_log(slug, namespace=namespace, limit=AT_ONCE)
        told &= {row.id for row in rows}


@asynccontextmanager
async def telling(scheduler: Scheduler, *, as_json: bool) -> AsyncIterator[None]:
    """A line for each run that ends, and for whatever keeps the scheduler from working."""
    events = scheduler.events()
    running = asyncio.current_task()
    assert running is not None

    async def tell() -> None:
        async for event in events:
            if event.kind in (EventKind.RUN_FINISHED, EventKind.RUN_SKIPPED) and event.run is not None:
                if as_json:
                    put_json_line(forms.row_form(event.run))
                else:
                    print_row(event.run)
            elif event.kind is EventKind.STOPPED:
                return
            elif event.kind is EventKind.STORE_FAILED:
                print_line(Text(str(event.reason)), stderr=True)

    def end_if_it_failed(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            running.cancel()  # nobody could know what runs: end, as if somebody had asked for it

    task = asyncio.create_task(tell())
    task.add_done_callback(end_if_it_failed)
    try:
        yield
    except BaseException:
        if not task.cancel():
            task.result()  # what it could not do is the reason for the end
        raise
    task.remove_done_callback(end_if_it_failed)
    await task  # which ends when the scheduler has, and has told of all runs by then


@asynccontextmanager
async def progress(scheduler: Scheduler) -> AsyncIterator[None]:
    """A line that tells what is running, on a terminal only."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    events = scheduler.events()
    running: dict[int, str] = {}
    done = 0

    def line() -> str:
        return f"{done} done, running {', '.join(running.values())}" if running else f"{done} done"

    with screen.status("Looking for what is due") as status:

        async def tell() -> None:
            nonlocal done
            async for event in events:
                if event.run is not None and event.kind is EventKind.RUN_STARTED:
                    running[event.run.id] = forms.name_of(event.run.namespace, event.run.job_id)
                elif event.run is not None and event.kind is EventKind.RUN_FINISHED:
                    running.pop(event.run.id, None)
                    done += 1
                status.update(Text(line()))

        task = asyncio.create_task(tell())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def show_stats(found: Sequence[tuple[Job, RunStats]]) -> None:
    """How runs went, one job on a line; in sentences where a table has no room."""
    if not found:
        say("No jobs.")
        return
    names = names_of_jobs([job for job, _ in found])
    heads = ("slug", "total", "success_rate", "p50", "p95", "delay_p50", "delay_p95", "last_run_at", "counts")
    rows = [
        (
            name,
            str(stats.total),
            rate_of(stats),
            *map(words.took, (stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms)),
            stats.last_run_at or "-",
            counts_of(stats),
        )
        for name, (_, stats) in zip(names, found, strict=True)
    ]
    columns = in_columns(heads, rows)
    if columns is not None:
        console().print(columns)
        return
    for name, (_, stats) in zip(names, found, strict=True):
        say(f"{name}: {story_of_stats(stats)}")


def story_of_stats(stats: RunStats) -> str:
    """How the runs of a job went, in words."""
    if not stats.total:
        return f"no runs ({counts_of(stats)})." if stats.counts else "no runs."
    runs = "1 run" if stats.total == 1 else f"{stats.total} runs"
    story = f"{runs} ({counts_of(stats)}), {rate_of(stats)} success"
    if stats.p50_ms is not None:
        story += f"; took {words.took(stats.p50_ms)} (p95 {words.took(stats.p95_ms)})"
    if stats.delay_p50_ms is not None:
        story += f"; late by {words.took(stats.delay_p50_ms)} (p95 {words.took(stats.delay_p95_ms)})"
    return f"{story}; last {moment(stats.last_run_at)}." if stats.last_run_at else f"{story}."


def rate_of(stats: RunStats) -> str:
    """How many of the runs went well."""
    return "-" if stats.success_rate is None else f"{stats.success_rate:.0%}"


def counts_of(stats: RunStats) -> str:
    """How many runs there are of each outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in stats.counts.items())


# ---------------------------------------------------------------- what is to come


def show_preview(upcoming: Sequence[Upcoming], window: timedelta) -> None:
    """A timeline, and what it shows in words."""
    from scheduler_async.cli.timeline import draw_timeline

    if not upcoming:
        say("Nothing is due in that time.")
        return
    screen = console()
    begin = now()
    width = min(screen.width, 120)
    is_ascii = screen.encoding.lower() != "utf-8"
    for line in draw_timeline(upcoming, begin, begin + window, width=width, zone=HERE, ascii=is_ascii):
        screen.print(Text(line), soft_wrap=True)
    screen.print()
    screen.print(runs_table(upcoming) if len(upcoming) <= MANY else summary_table(upcoming))


def runs_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """What will run, one run on a line."""
    rows = [
        (one.at, name, coloured(one.job.priority), _left(one), "; ".join(one.warnings))
        for name, one in zip(names_of_jobs([one.job for one in upcoming]), upcoming, strict=True)
    ]
    return laid_out(("at", "slug", "priority", "retries_left", "warnings"), rows)


def summary_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """What will run, one job on a line."""
    by_job: dict[str, list[Upcoming]] = {}
    for one in upcoming:
        by_job.setdefault(one.job.key, []).append(one)
    rows: list[Row] = []
    names = names_of_jobs([runs[0].job for runs in by_job.values()])
    for name, runs in zip(names, by_job.values(), strict=True):
        first, last = runs[0], runs[-1]
        warnings = dict.fromkeys(warning for one in runs for warning in one.warnings)
        until: Cell = last.at if len(runs) > 1 else "-"
        priority = coloured(first.job.priority)
        rows.append((name, str(len(runs)), first.at, until, priority, _left(first), "; ".join(warnings)))
    return laid_out(("slug", "runs", "first", "last", "priority", "retries_left", "warnings"), rows)


def _left(one: Upcoming) -> str:
    return "-" if one.retries_left is None else str(one.retries_left)


def following_form(schedule: Schedule, count: int) -> dict[str, Any]:
    """The following occurrences, for a program."""
    from scheduler_async.cli.occurrences import following, traps

    return {
        "schedule": schedule.to_json(),
        "description": schedule.describe(HERE),
        "occurrences": [
            {"at": forms.plain(one.at), "there": one.there.isoformat(), "here": one.here.isoformat(), "note": one.note}
            for one in following(schedule, now(), count, HERE)
        ],
        "warnings": traps(schedule, now()),
    }


def show_following(schedule: Schedule, count: int) -> None:
    """The following occurrences, on both clocks if there are two, and what to look out for."""
    from scheduler_async.cli.occurrences import following, traps

    described = schedule.describe(HERE)
    say(f"{described[:1].upper()}{described[1:]}.")
    found = following(schedule, now(), count, HERE)
    has_zone = isinstance(schedule, Cron) and any(one.there.utcoffset() != one.here.utcoffset() for one in found)
    heads = ("when", "there", "here", "note") if has_zone else ("when", "at", "note")
    rows: list[Row] = []
    for one in found:
        clocks = (one.there, one.here) if has_zone else (one.there if isinstance(schedule, Cron) else one.here,)
        cells = (f"{at:%a %Y-%m-%d %H:%M:%S %Z}" for at in clocks)
        rows.append((words.relative(one.at, now()), *cells, one.note or ""))
    if found:
        console().print(laid_out(heads, rows))
    else:
        is_over = isinstance(schedule, At) or schedule.end is not None
        say("Its time has passed." if is_over else "It has no times that could be told in advance.")
    if 0 < len(found) < count and schedule.next_after(found[-1].at) is not None:
        say("Later ones are left out: after 400 years the calendar repeats itself.")
    for trap in traps(schedule, now()):
        print_line(Text.assemble(("Look out: ", "yellow"), trap))
