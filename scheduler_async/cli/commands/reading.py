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
    STATUSES,
    AnyNamespaceOption,
    AnySlugArgument,
    JsonOption,
    NamespaceOption,
    SlugArgument,
    StoreOption,
    WholeNumber,
    one_of,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    import asyncio

    from scheduler_async import Explanation, Job, Scheduler


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
    from scheduler_async.cli import job_views, json_output, terminal

    if watch and (as_json or not sys.stdout.isatty()):
        misused("--watch needs a terminal, and does not go with --json.")

    async def read(scheduler: Scheduler) -> list[Job]:
        is_done = status == job_views.DONE
        wanted = {"priority": priority, "status": "disabled" if is_done else status, "namespace": namespace}
        now = terminal.now()
        jobs = await scheduler.list_jobs(**wanted, due_before=now if due else None)  # type: ignore[arg-type]
        if is_done:
            jobs = [job for job in jobs if job_views.is_done(job)]
        return [job for job in jobs if job.status == "idle"] if due else jobs

    async def show() -> None:
        async with open_scheduler(store) as scheduler:
            if watch:
                from scheduler_async.cli import live

                await until_enough(lambda enough: live.watch(lambda: read(scheduler), enough))
            elif as_json:
                put_json([json_output.listed_form(job) for job in await read(scheduler)])
            else:
                job_views.show_jobs(await read(scheduler))

    run_async(show())


def show(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show every field of a job, and why it is not running."""
    from scheduler_async.cli import job_views, json_output

    job, explanation = run_async(explained_job(slug, namespace, store))
    if as_json:
        put_json(json_output.job_form(job))
    else:
        job_views.show_job(job, explanation)


def explain(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Explain why a job is not running right now."""
    from scheduler_async.cli import job_views, json_output
    from scheduler_async.cli.error_text import explained

    job, explanation = run_async(explained_job(slug, namespace, store))
    if as_json:
        put_json(json_output.explanation_form(explanation, explained(job, explanation)))
    else:
        job_views.say_why(job, explanation)


async def explained_job(slug: str, namespace: str | None, store: str | None) -> tuple[Job, Explanation]:
    """Return a job, and why it is not running."""
    from scheduler_async.cli.terminal import HERE

    async with open_scheduler(store) as scheduler:
        job = await find(scheduler, slug, namespace)
        return job, await scheduler.explain(job.id, namespace=job.namespace, zone=HERE)


def log(
    slug: AnySlugArgument = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", click_type=WholeNumber(0), help="The largest number of runs.")
    ] = 20,
    output: Annotated[bool, typer.Option("--output", help="Show the output of each run.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing runs as they end.")] = False,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the runs and the skipped occurrences, newest first. With --follow, oldest first."""
    from scheduler_async.cli import json_output, run_views

    async def read() -> None:
        async with open_scheduler(store) as scheduler:
            where, job_id = namespace, slug
            if slug is not None:
                where, job_id = await resolve(scheduler, slug, namespace, with_removed=True)
            rows = await scheduler.run_log(job_id, namespace=where, limit=limit)
            if job_id is not None and not rows:  # a removed job may have left rows
                await find(scheduler, job_id, where)
            outputs = {row.id: await scheduler.run_output(row.id) for row in rows} if output else {}
            if as_json and not follow:
                put_json([json_output.row_form(row, outputs.get(row.id), with_output=output) for row in rows])
            elif follow:
                from scheduler_async.cli import live

                await until_enough(
                    lambda enough: live.follow(
                        scheduler, job_id, where, rows, enough, as_json=as_json, with_output=output
                    )
                )
            else:
                run_views.show_rows(rows, outputs)

    run_async(read())


def stats(
    slug: AnySlugArgument = None,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show statistics of runs: count, success rate, duration and delay."""
    from scheduler_async.cli import json_output, run_views

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
    from scheduler_async.cli import job_views, json_output

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
