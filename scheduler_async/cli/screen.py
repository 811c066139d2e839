"""How things look on a terminal: tables that fit it, colours if it has any, and lines that come as things happen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler_async.cli import forms, words
from scheduler_async.clock import SystemClock
from scheduler_async.events import EventKind
from scheduler_async.models import Explanation, Job, Outcome, Phase, Priority, RunRow, Status, Upcoming
from scheduler_async.scheduler import Scheduler
from scheduler_async.schedules import Manual, Schedule
from scheduler_async.stats import RunStats

# What is not read on a terminal is read by a program, or in a file: nothing is cut off.
WIDE = 400

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


def console(*, stderr: bool = False) -> Console:
    """Where things are shown."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else WIDE, highlight=False, markup=False, emoji=False)


def say(sentence: str) -> None:
    """One sentence."""
    print_line(Text(sentence))


def print_line(line: Text, *, stderr: bool = False) -> None:
    """A line, which a terminal breaks between words, and nobody else breaks."""
    screen = console(stderr=stderr)
    screen.print(line, soft_wrap=not screen.is_terminal)


def coloured(word: object) -> Text:
    """A word in the colour that it has everywhere."""
    return Text(str(getattr(word, "value", word)), style=COLOURS.get(word, ""))


# What is prose is broken into lines before anything is cut off.
PROSE = {"cron", "message", "note", "warnings", "counts"}

# Below these, a table has no room for the reader's clock, and then only for what matters most.
NARROW, TINY = 110, 60


def table(*columns: str) -> Table:
    """An empty table."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        found.add_column(column, no_wrap=column not in PROSE, overflow="fold" if column in PROSE else "ellipsis")
    return found


def moment(at: datetime | None) -> str:
    """A moment, relative and absolute on the clock of the reader, as far as there is room."""
    if at is not None and console().width < NARROW:
        return words.relative(at, now())
    return words.moment(at, now(), HERE)


# ---------------------------------------------------------------- jobs


def outlook(job: Job) -> str:
    """When a job runs, and what is next."""
    if not job.enabled:
        return f"disabled, {job.disabled_reason}"
    if job.state.phase is Phase.PAUSED:
        return "it starts again when it is resumed"
    if job.status is not Status.IDLE:
        return f"{job.status.value} now"
    if isinstance(job.schedule, Manual):
        return "runs when it is triggered"
    return f"{job.schedule.describe()}; next {moment(job.next_run_at)}"


def jobs_table(jobs: Sequence[Job]) -> Table:
    """Jobs, one on a line."""
    spaces = {job.namespace for job in jobs}
    is_tiny = console().width < TINY
    heads = ("slug", "cron", "priority", "status", "next_due_at", "retry_status", "last_exit")
    found = table(*(head for head in heads if not is_tiny or head in ("slug", "status", "next_due_at")))
    for job in jobs:
        name, status, due = job.id if spaces <= {"default"} else job.key, coloured(job.status), moment(job.next_run_at)
        if is_tiny:
            found.add_row(name, status, due)
            continue
        code = job.last_exit_code
        last = "-" if code is None else Text(str(code), "red" if code else "")
        retries = forms.retry_status(job) or "-"
        found.add_row(name, forms.cron_of(job), coloured(job.priority), status, due, retries, last)
    return found


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
            live.update(jobs_table(await read()), refresh=True)


def show_job(job: Job, explanation: Explanation) -> None:
    """All about one."""
    found = Table(box=None, pad_edge=False, show_header=False)
    found.add_column(style="bold", no_wrap=True)
    found.add_column(overflow="fold")
    form = forms.job_form(job)
    shown: dict[str, object] = {
        **form,
        "schedule": job.schedule.describe(),
        "retry": None if job.retry is None else job.retry.describe(),
        "payload": None if job.payload is None else json.dumps(job.payload, ensure_ascii=False),
        "metadata": json.dumps(job.metadata, ensure_ascii=False) if job.metadata else None,
        "status": coloured(job.status),
    }
    shown |= {name: moment(getattr(job, name)) for name in form if name.endswith("_at") and form[name] is not None}
    for name, value in shown.items():
        if value is not None:
            found.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    console().print(found)
    say(f"\n{explanation}")


# ---------------------------------------------------------------- runs


def story_of(row: RunRow) -> str:
    """What there is to say about a run beside its outcome."""
    if row.outcome is Outcome.SKIPPED and row.reason is not None:
        more = f" ({row.missed} occurrences)" if row.missed > 1 else ""
        return f"{row.reason.value}{more}"
    return " ".join((row.message or row.error or "").split())


def cells_of(row: RunRow) -> tuple[str | Text, ...]:
    """A run, for a line."""
    at = row.started_at or row.scheduled_for
    outcome = Text("running", "cyan") if row.outcome is None else coloured(row.outcome)
    attempt = f"{row.trigger.value} {row.attempt}" if row.attempt > 1 else row.trigger.value
    return words.absolute(at, now(), HERE), row.job_id, attempt, outcome, words.took(row.duration_ms), story_of(row)


def show_rows(rows: Sequence[RunRow], outputs: Mapping[int, str | None]) -> None:
    """Runs, one on a line; with what each of them wrote, if that is wanted."""
    if not rows:
        say("No runs.")
        return
    if not outputs:
        found = table("when", "slug", "trigger", "outcome", "took", "message")
        for row in rows:
            found.add_row(*cells_of(row))
        console().print(found)
        return
    for row in rows:
        print_row(row, outputs[row.id])


def print_row(row: RunRow, output: str | None = None) -> None:
    """A run as a line of its own, and what it wrote below it."""
    line = Text("  ").join(Text(cell) if isinstance(cell, str) else cell for cell in cells_of(row) if cell)
    print_line(line)
    for written in (output or "").splitlines():
        print_line(Text(f"    {harmless(written)}"))


def harmless(text: str) -> str:
    """*text* without what a terminal would obey."""
    return "".join(char if char.isprintable() or char == "\t" else f"\\x{ord(char):02x}" for char in text)


def tell_of_run(row: RunRow) -> None:
    """How a run ended, in a sentence."""
    assert row.outcome is not None
    console(stderr=True).print(
        Text.assemble(f"{row.job_id}: ", coloured(row.outcome), f", {story_of(row)}".rstrip(", "))
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
    while True:
        for row in reversed(rows):
            if row.outcome is not None and row.id not in told:
                told.add(row.id)
                output = await scheduler.run_output(row.id) if with_output else None
                if as_json:
                    print(
                        json.dumps(forms.row_form(row, output, with_output=with_output), ensure_ascii=False), flush=True
                    )
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

    async def tell() -> None:
        async for event in events:
            if event.kind in (EventKind.RUN_FINISHED, EventKind.RUN_SKIPPED) and event.run is not None:
                if as_json:
                    print(json.dumps(forms.row_form(event.run), ensure_ascii=False), flush=True)
                else:
                    print_row(event.run)
            elif event.kind is EventKind.STOPPED:
                return
            elif event.kind is EventKind.STORE_FAILED:
                print_line(Text(str(event.reason)), stderr=True)

    task = asyncio.create_task(tell())
    try:
        yield
    except BaseException:
        task.cancel()
        raise
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
                    running[event.run.id] = event.run.job_id
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


def show_stats(found: Sequence[tuple[str, RunStats]]) -> None:
    """How runs went, one job on a line."""
    if not found:
        say("No jobs.")
        return
    heads = ("slug", "total", "success_rate", "p50", "p95", "delay_p50", "delay_p95", "last_run_at", "counts")
    shown = table(*heads)
    for slug, stats in found:
        rate = "-" if stats.success_rate is None else f"{stats.success_rate:.0%}"
        times = (stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms)
        counts = ", ".join(f"{count} {outcome}" for outcome, count in stats.counts.items())
        shown.add_row(slug, str(stats.total), rate, *map(words.took, times), moment(stats.last_run_at), counts)
    console().print(shown)


# ---------------------------------------------------------------- what is to come


def show_preview(upcoming: Sequence[Upcoming], window: timedelta) -> None:
    """A timeline, and what it shows in words."""
    from scheduler_async.cli.timeline import draw_timeline

    if not upcoming:
        say("Nothing is due in that time.")
        return
    screen = console()
    begin = now()
    width = max(min(screen.width, 120), 20)
    is_ascii = screen.encoding.lower() != "utf-8"
    for line in draw_timeline(upcoming, begin, begin + window, width=width, zone=HERE, ascii=is_ascii):
        screen.print(Text(line), soft_wrap=True)
    screen.print()
    found = table("at", "slug", "priority", "retries_left", "warnings")
    for one in upcoming:
        left = "-" if one.retries_left is None else str(one.retries_left)
        found.add_row(moment(one.at), one.job.id, coloured(one.job.priority), left, "; ".join(one.warnings))
    screen.print(found)


def following_form(schedule: Schedule, count: int) -> dict[str, Any]:
    """The following occurrences, for a program."""
    from scheduler_async.cli.occurrences import following, traps

    return {
        "schedule": schedule.to_json(),
        "description": schedule.describe(),
        "occurrences": [
            {"at": forms.plain(one.at), "there": one.there.isoformat(), "here": one.here.isoformat(), "note": one.note}
            for one in following(schedule, now(), count, HERE)
        ],
        "warnings": traps(schedule, now()),
    }


def show_following(schedule: Schedule, count: int) -> None:
    """The following occurrences, on both clocks, and what to look out for."""
    from scheduler_async.cli.occurrences import following, traps

    say(f"{schedule.describe()[:1].upper()}{schedule.describe()[1:]}.")
    found = following(schedule, now(), count, HERE)
    same = all(one.there.utcoffset() == one.here.utcoffset() for one in found)
    shown = table(*(("when", "at", "note") if same else ("when", "there", "here", "note")))
    for one in found:
        there, here = (f"{at:%a %Y-%m-%d %H:%M:%S %Z}" for at in (one.there, one.here))
        cells = (there,) if same else (there, here)
        shown.add_row(words.relative(one.at, now()), *cells, one.note or "")
    if found:
        console().print(shown)
    else:
        say("It has no times that could be told in advance.")
    for trap in traps(schedule, now()):
        print_line(Text.assemble(("Look out: ", "yellow"), trap))
