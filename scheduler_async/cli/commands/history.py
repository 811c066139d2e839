"""Commands about the past: changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.job_names import find, resolve
from scheduler_async.cli.options import (
    AnyNamespaceOption,
    AnySlugArgument,
    JsonOption,
    PastTzOption,
    StoreOption,
    WholeNumber,
    moment_given,
    zone_of,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    from scheduler_async import ChangeRow


def changes(
    slug: AnySlugArgument = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only changes since a time: 2026-06-15T09:00, yesterday, or 2h (ago)."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", click_type=WholeNumber(0), help="The largest number of changes.")
    ] = 20,
    tz: PastTzOption = None,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed jobs, when and how, newest first. The changes of a removed job stay for a week."""
    from scheduler_async.cli import change_views

    earliest = None if since is None else moment_given(since, "--since", zone_of(tz))

    async def read() -> list[ChangeRow]:
        async with open_scheduler(store) as scheduler:
            where, job_id = namespace, slug
            if slug is not None:
                where, job_id = await resolve(scheduler, slug, namespace, with_removed=True)
            rows = await scheduler.changes(job_id, namespace=where, since=earliest, limit=limit)
            if job_id is not None and not rows and not await scheduler.changes(job_id, namespace=where, limit=1):
                await find(scheduler, job_id, where)
            return rows

    rows = run_async(read())
    if as_json:
        put_json([row.to_json() for row in rows])
    else:
        change_views.show_changes(rows)
