"""Output that keeps updating: a watched list, a followed log, the runs of a loop, the progress of a pass or a copy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

from rich.console import RenderableType

from scheduler_async.calls import json_output
from scheduler_async.cli.job_names import name_of
from scheduler_async.cli.printing import put_json_line
from scheduler_async.cli.run_views import RunLines, Shows
from scheduler_async.cli.safe_text import Text
from scheduler_async.cli.terminal import CLOCK, console, print_line, say_aside, width_of
from scheduler_async.cli.unfinished_line import end_line
from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import RunRow
from scheduler_async.scheduler import Scheduler
from scheduler_async.stores.copying import Copy
from scheduler_async.timekeeping.clock import Timer

# A run that takes longer than this is told of when it has begun, and again when it has ended.
WORTH_A_LINE = 1.0  # seconds

# More rows than are added between two reads of the log.
AT_ONCE = 1_000


async def watch(draw: Callable[[], Awaitable[RenderableType]], enough: asyncio.Event) -> None:
    """Show what *draw* returns, every second, until *enough* is set."""
    from rich.live import Live

    with Live(await draw(), console=console(), auto_refresh=False) as live:
        while not await CLOCK.wait(enough, 1.0):
            live.console.width = width_of(sys.stdout)  # the terminal may have another size now
            live.update(await draw(), refresh=True)


async def follow(
    scheduler: Scheduler,
    slug: str | None,
    namespace: str | None,
    rows: Sequence[RunRow],
    enough: asyncio.Event,
    shows: Shows,
    *,
    as_json: bool,
) -> None:
    """Print runs of any process as they end, oldest first, until *enough* is set."""
    before = await scheduler.run_log(slug, namespace=namespace, limit=AT_ONCE)
    printed = {row.id for row in before if row.outcome is not None} - {row.id for row in rows}
    running = {row.id for row in before if row.outcome is None}
    lines = RunLines([(name_of(row.namespace, row.job_id), row) for row in rows])
    while True:
        # A long run may be older than all rows that were read.
        older = sorted(running - {row.id for row in rows}, reverse=True)
        found = [row for row in [await scheduler.get_run(run) for run in older] if row is not None]
        running = {row.id for row in (*rows, *found) if row.outcome is None}
        for row in reversed([*rows, *found]):
            if row.outcome is not None and row.id not in printed:
                printed.add(row.id)
                if shows.only_failures and not row.outcome.is_failure:
                    continue
                shown, output = await shows.read(scheduler, row)
                if as_json:
                    put_json_line(json_output.row_form(shown, output, with_output=shows.output))
                else:
                    lines.print(name_of(row.namespace, row.job_id), shown, output, shown.traceback)
        if await CLOCK.wait(enough, 0.5):
            return
        rows = await scheduler.run_log(slug, namespace=namespace, limit=AT_ONCE)
        printed &= {row.id for row in rows}


@asynccontextmanager
async def reporting(scheduler: Scheduler, where: str, *, as_json: bool) -> AsyncIterator[None]:
    """Print a line when the scheduler on *where* has started, when runs begin and end, and if its store fails."""
    events = scheduler.events()
    running = asyncio.current_task()
    assert running is not None
    lines = RunLines()
    begun: dict[int, Timer] = {}

    def show_begun(row: RunRow) -> None:
        end_line()
        lines.print(name_of(row.namespace, row.job_id), row)

    async def report() -> None:
        async for event in events:
            if event.run is not None and event.run.id in begun and event.kind is EventKind.RUN_FINISHED:
                begun.pop(event.run.id).cancel()
            if event.kind is EventKind.RUN_STARTED and event.run is not None and not as_json:
                # A log of many short runs needs one line for each; a reader at a terminal sees what happens.
                delay = 0.0 if sys.stdout.isatty() else WORTH_A_LINE
                begun[event.run.id] = CLOCK.call_later(delay, partial(show_begun, event.run))
            elif event.kind in (EventKind.RUN_FINISHED, EventKind.RUN_SKIPPED) and event.run is not None:
                end_line()
                if as_json:
                    put_json_line(json_output.row_form(event.run))
                else:
                    lines.print(name_of(event.run.namespace, event.run.job_id), event.run)
            elif event.kind is EventKind.STARTED:
                say_aside(f"Running the jobs of {where} when they are due. Press Ctrl-C to stop.")
            elif event.kind is EventKind.STOPPED:
                return
            elif event.kind is EventKind.STORE_FAILED:
                print_line(Text(str(event.reason)), stderr=True)

    def end_if_it_failed(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            running.cancel()  # runs would start unseen: stop, as if a signal had come

    task = asyncio.create_task(report())
    task.add_done_callback(end_if_it_failed)
    try:
        yield
    except BaseException:
        if not task.cancel():
            task.result()  # its error is the reason for the end
        raise
    task.remove_done_callback(end_if_it_failed)
    await task  # it ends when the scheduler has stopped, after the last run


@asynccontextmanager
async def progress(scheduler: Scheduler) -> AsyncIterator[None]:
    """Show which jobs are running, on a terminal only."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    events = scheduler.events()
    running: dict[int, str] = {}
    done = 0

    def line() -> str:
        return f"{done} done, running {', '.join(running.values())}" if running else f"{done} done"

    with screen.status("Looking for jobs that are due") as status:

        async def report() -> None:
            nonlocal done
            async for event in events:
                if event.run is not None and event.kind is EventKind.RUN_STARTED:
                    running[event.run.id] = name_of(event.run.namespace, event.run.job_id)
                elif event.run is not None and event.kind is EventKind.RUN_FINISHED:
                    running.pop(event.run.id, None)
                    done += 1
                status.update(Text(line()))

        task = asyncio.create_task(report())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@contextmanager
def backfilling(backfill: Backfill) -> Iterator[Callable[[Backfill], None]]:
    """Show a progress bar on a terminal; yield a function that updates it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task(name_of(backfill.namespace, backfill.job_id), total=backfill.total)

        def show(now: Backfill) -> None:
            bars.update(bar, completed=now.done + now.failed)

        yield show


@contextmanager
def copying(copy: Copy) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal; yield a function that updates it."""
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
