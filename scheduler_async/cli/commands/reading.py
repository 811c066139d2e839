"""Commands that read the store: list, show, explain, log, stats, nodes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.job_names import find, resolve
from scheduler_async.cli.options import (
    PRIORITIES,
    RUN_NUMBER,
    STATUSES,
    AnyNamespaceOption,
    AnySlugArgument,
    JsonOption,
    NamespaceOption,
    PastTzOption,
    ReadersTzOption,
    SlugArgument,
    StoreOption,
    WholeNumber,
    moment_given,
    one_of,
    zone_of,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime, tzinfo

    from rich.console import RenderableType

    from scheduler_async import Explanation, Job, RunRow, Scheduler


def list_jobs(
    due: Annotated[bool, typer.Option("--due", help="Only jobs that are due now.")] = False,
    priority: Annotated[
        str | None, typer.Option("--priority", click_type=one_of(PRIORITIES), help="Only jobs with this priority.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", click_type=one_of(STATUSES), help="Only jobs with this status.")
    ] = None,
    namespace: AnyNamespaceOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the table every second.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs, ordered by their next run."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import job_views, terminal

    if watch and (as_json or not sys.stdout.isatty()):
        misused("--watch needs a terminal, and does not go with --json.")

    async def read(scheduler: Scheduler) -> list[Job]:
        is_done = status == job_views.DONE
        wanted = {"priority": priority, "status": "disabled" if is_done else status, "namespace": namespace}
        now = terminal.now()
        jobs = await scheduler.list_jobs(**wanted, due_before=now if due else None)  # type: ignore[arg-type]
        if is_done:
            jobs = [job for job in jobs if job.ended]
        return [job for job in jobs if job.status == "idle"] if due else jobs

    async def show() -> None:
        async with open_scheduler(store) as scheduler:
            if watch:
                from scheduler_async.cli import live

                async def draw() -> RenderableType:
                    return job_views.jobs_table(await read(scheduler))

                await until_enough(lambda enough: live.watch(draw, enough))
            elif as_json:
                put_json([json_output.listed_form(job) for job in await read(scheduler)])
            else:
                job_views.show_jobs(await read(scheduler))

    run_async(show())


def show(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show every field of a job, and why it is not running."""
    from scheduler_async.cli import job_views

    job, explanation = run_async(explained_job(slug, namespace, store))
    if as_json:
        put_json(job.to_json())
    else:
        job_views.show_job(job, explanation)


def explain(
    slug: SlugArgument,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="WHEN",
            help="Another time: 03:00 (the last), 'yesterday 03:00', 2h (ago), 2026-06-15T03:00, or a time in the "
            "future.",
        ),
    ] = None,
    tz: ReadersTzOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job is not running right now, or what happened to it at another time."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import job_views
    from scheduler_async.cli.error_text import explained

    zone = zone_of(tz)
    moment = None if at is None else moment_given(at, "--at", zone)
    job, explanation = run_async(explained_job(slug, namespace, store, moment, zone))
    if as_json:
        put_json(json_output.explanation_form(explanation, explained(job, explanation)))
    else:
        job_views.say_why(job, explanation)


async def explained_job(
    slug: str, namespace: str | None, store: str | None, at: datetime | None = None, zone: tzinfo | None = None
) -> tuple[Job, Explanation]:
    """Return a job, and why it is not running; or what happened to it *at* another time."""
    async with open_scheduler(store) as scheduler:
        job = await find(scheduler, slug, namespace)
        explanation = await scheduler.explain(job.id, at=at, namespace=job.namespace, zone=zone or zone_of(None))
        return job, explanation


def log(
    slug: AnySlugArgument = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", click_type=WholeNumber(0), help="The largest number of runs.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only runs since a time: 2026-06-15T09:00, yesterday, or 2h (ago)."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only runs until a time, in the same forms.")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="RUN", click_type=RUN_NUMBER, help="Only runs before the run with this id."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that failed.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where each run failed.")] = False,
    output: Annotated[bool, typer.Option("--output", help="Show the output of each run.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing runs as they end.")] = False,
    tz: PastTzOption = None,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the runs and the skipped occurrences, newest first. With --follow, oldest first."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import run_views

    if follow and (until is not None or before is not None):
        misused("--follow continues with new runs, so it cannot be combined with --until and --before.")
    if tz is not None:
        from scheduler_async.timekeeping.zones import check_zone

        check_zone(tz)
    zone = zone_of(tz)
    stretch = (
        None if since is None else moment_given(since, "--since", zone),
        None if until is None else moment_given(until, "--until", zone),
    )
    shows = run_views.Shows(output=output, traceback=traceback, only_failures=failed)

    async def read() -> None:
        async with open_scheduler(store) as scheduler:
            where, job_id = namespace, slug
            if slug is not None:
                where, job_id = await resolve(scheduler, slug, namespace, with_removed=True)
            rows = await _rows(scheduler, job_id, where, stretch, before, limit, failed=failed)
            if job_id is not None and not rows:  # a removed job may have left rows
                await find(scheduler, job_id, where)
            if follow:
                from scheduler_async.cli import live

                await until_enough(
                    lambda enough: live.follow(scheduler, job_id, where, rows, enough, shows, as_json=as_json)
                )
            found = [await shows.read(scheduler, row) for row in rows]
            if as_json:
                put_json([json_output.row_form(row, text, with_output=output) for row, text in found])
            else:
                run_views.show_rows(found)

    run_async(read())


async def _rows(
    scheduler: Scheduler,
    job_id: str | None,
    namespace: str | None,
    stretch: tuple[datetime | None, datetime | None],
    before: int | None,
    limit: int,
    *,
    failed: bool,
) -> list[RunRow]:
    """Return rows of the run log, newest first."""
    from scheduler_async import Outcome

    outcomes = [outcome for outcome in Outcome if outcome.is_failure] if failed else [None]
    since, until = stretch
    rows = [
        row
        for outcome in outcomes
        for row in await scheduler.run_log(
            job_id, namespace=namespace, outcome=outcome, since=since, until=until, before=before, limit=limit
        )
    ]
    return sorted(rows, key=lambda row: row.id, reverse=True)[:limit]


def stats(
    slug: AnySlugArgument = None,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show statistics of runs: count, success rate, duration and delay."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import run_views

    async def read() -> list[tuple[Job, Any]]:
        async with open_scheduler(store) as scheduler:
            if slug is None:
                jobs = await scheduler.list_jobs(namespace=namespace)
            else:
                jobs = [await find(scheduler, slug, namespace)]
            return [(job, await scheduler.run_stats(job.id, namespace=job.namespace)) for job in jobs]

    found = run_async(read())
    if as_json:
        all_of_it = [json_output.stats_form(job, of_job) for job, of_job in found]
        put_json(all_of_it if slug is None else all_of_it[0])
    else:
        run_views.show_stats(found)


def nodes(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the schedulers that share the store."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import job_views

    async def read() -> list[Any]:
        async with open_scheduler(store) as scheduler:
            return await scheduler.nodes()

    found = run_async(read())
    if as_json:
        put_json([json_output.node_form(node) for node in found])
    else:
        job_views.show_nodes(found)


async def until_enough(show: Callable[[asyncio.Event], Awaitable[None]]) -> NoReturn:
    """Run *show* until a signal comes."""
    import asyncio

    from scheduler_async.signals import told_of_signals

    enough = asyncio.Event()
    with told_of_signals(enough.set):
        await show(enough)
    raise typer.Exit(INTERRUPTED)
