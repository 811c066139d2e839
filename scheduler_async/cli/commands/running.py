"""Commands that run jobs in this process: trigger, cron, run."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import fail, misused, put_error
from scheduler_async.cli.job_names import find
from scheduler_async.cli.options import (
    AnywhereOption,
    AppOption,
    JobsOption,
    JsonOption,
    NamespaceOption,
    SlugArgument,
    StoreOption,
    TriggerPayloadOption,
    payload_of,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import (
    guard_file,
    is_store_given,
    open_scheduler,
    store_path,
    suggesting_names,
)
from scheduler_async.cli.unfinished_line import end_line, watch_stdout

if TYPE_CHECKING:
    from scheduler_async import RunRow, Scheduler

T = TypeVar("T")


def trigger(
    slug: SlugArgument,
    payload: TriggerPayloadOption = None,
    anywhere: AnywhereOption = False,
    target: AppOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job now, print its output as it comes, and wait for it. Its schedule does not change.

    The job runs in this process, or with --anywhere in any running scheduler that has its handler.
    """
    from scheduler_async.calls import json_output
    from scheduler_async.cli import run_views
    from scheduler_async.cli.ownership import acting_as_user
    from scheduler_async.cli.run_following import follow_run
    from scheduler_async.command import HANDLER
    from scheduler_async.errors import SchedulerStoppingError, quoted

    given = payload_of(payload)

    async def run_it() -> tuple[Any, str | None, bool]:
        async with ready_to_run(target, store, create=False) as scheduler:
            job = await find(scheduler, slug, namespace)
            if target is None and job.handler != HANDLER and not anywhere:
                misused(
                    f'Job "{slug}" does not run a command. Pass --app with the program that has its handler '
                    f"{quoted(job.handler)}, or --anywhere to run it in a scheduler that is running."
                )
            value = given if payload is None or job.handler != HANDLER else {**job.payload, "payload": given}
            number = 0

            async def to_its_end() -> RunRow:
                nonlocal number
                with acting_as_user():
                    number = await scheduler.trigger_job(
                        job.id, namespace=job.namespace, payload=value, anywhere=anywhere
                    )
                return await follow_run(scheduler, number, silent=as_json, with_progress=anywhere)

            try:
                row, was_interrupted = await heeding_signals(scheduler, to_its_end())
            except SchedulerStoppingError:
                if not number:
                    raise
                # A signal came. The run continues elsewhere, or waits for a scheduler.
                found = await scheduler.get_run(number)
                has_begun = found is None or found.node is not None
                doing = "continues" if has_begun else "still waits for a scheduler that can run it"
                put_error(f'Run {number} {doing}. "scheduler-async cancel {number}" cancels it.')
                raise typer.Exit(INTERRUPTED) from None
            return row, await scheduler.run_output(number) if as_json else None, was_interrupted

    row, output, was_interrupted = run_async(run_it())
    end_line()
    if as_json:
        put_json(json_output.row_form(row, output, with_output=True))
    else:
        run_views.say_how_it_ended(row)
    if row.outcome == "cancelled" and was_interrupted:
        raise typer.Exit(INTERRUPTED)
    if row.outcome.is_failure or row.outcome == "cancelled" or (anywhere and not row.outcome.is_success):
        raise typer.Exit(1)


def cron(
    jobs: JobsOption = None,
    target: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all jobs that are due, in order, and print a summary. Call it every minute from the system's cron.

    Without --jobs, one job runs after the other.
    """
    from scheduler_async.calls import json_output
    from scheduler_async.cli import live, terminal

    check_limit(target, jobs)

    async def one_pass() -> Any:
        # Without a limit, a pass runs one job after the other.
        options = {} if target is not None else {"max_concurrent": jobs if jobs and jobs > 1 else None}
        async with ready_to_run(target, store, create=False, **options) as scheduler, live.progress(scheduler):
            return await heeding_signals(scheduler, scheduler.run_pending())

    summary, interrupted = run_async(one_pass())
    end_line()
    if as_json:
        put_json(json_output.summary_form(summary))
    else:
        terminal.say(str(summary))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def run(
    target: Annotated[str | None, typer.Argument(metavar="[MODULE:SCHEDULER]")] = None,
    jobs: JobsOption = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long runs may take to finish after a signal.")
    ] = "30s",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run jobs when they are due, until SIGTERM or SIGINT. A second signal cancels the runs in progress.

    Without --jobs, all jobs that are due run at the same time. The scheduler of a program has its own limit.
    """
    from scheduler_async import SchedulerShutdownError
    from scheduler_async.cli import live
    from scheduler_async.cli.error_text import sentence_of
    from scheduler_async.stores.addresses import redacted
    from scheduler_async.timekeeping.durations import parse_interval

    check_limit(target, jobs)
    patience = parse_interval(timeout).total_seconds()

    async def until_asked_to_end() -> None:
        where = redacted(target or store_path(store))
        options = {} if target is not None else {"max_concurrent": jobs}
        async with (
            ready_to_run(target, store, create=True, **options) as scheduler,
            live.reporting(scheduler, where, as_json=as_json),
        ):
            try:
                await scheduler.run_until_signal(patience)
            except SchedulerShutdownError as error:
                put_error(sentence_of(error))
                os._exit(1)  # a run that ignores its cancellation must not keep the process alive

    run_async(until_asked_to_end())


def check_limit(target: str | None, jobs: int | None) -> None:
    """Refuse --jobs for the scheduler of a program."""
    if target is not None and jobs is not None:
        misused(f"--jobs does not apply to {target}. Set max_concurrent in the program instead.")


@asynccontextmanager
async def ready_to_run(
    target: str | None, store: str | None, *, create: bool, **options: Any
) -> AsyncIterator[Scheduler]:
    """Yield the scheduler of a program, or one that runs commands.

    A program's scheduler keeps its own handlers: `command` would let every tenant who may add a job run a shell.
    """
    if target is not None and is_store_given():
        misused(f"{target} has its own store: leave out --store.")
    if target is None:
        async with open_scheduler(store, create=create, **options) as scheduler:
            yield scheduler
        return
    scheduler = load(target)
    guard_file(scheduler._store)
    async with suggesting_names(scheduler):
        yield scheduler


def load(target: str) -> Scheduler:
    """Import a program's scheduler, "module:name", from the working directory."""
    from importlib import import_module

    from scheduler_async import Scheduler

    name, colon, attribute = target.partition(":")
    if not name or not colon or not attribute:
        misused(f"{target!r} must be MODULE:SCHEDULER, such as myapp.jobs:scheduler.")
    sys.path.insert(0, str(Path.cwd()))
    watch_stdout()
    try:
        found: Any = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a program may raise anything when it is imported
        fail(f"Cannot load {target}: {type(error).__name__}: {error}", 1)
    if not isinstance(found, Scheduler):
        fail(f"{target} is not a Scheduler: its type is {type(found).__name__}.", 1)
    return found


async def heeding_signals(scheduler: Scheduler, work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Return the result of *work*, and whether a signal came. A signal cancels the runs, which are recorded."""
    import asyncio

    from scheduler_async.signals import told_of_signals

    asked = asyncio.Event()
    with told_of_signals(asked.set):
        doing, asking = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
        await asyncio.wait([doing, asking], return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        if not doing.done():
            await scheduler.stop(cancel=True)
        return await doing, asked.is_set()
