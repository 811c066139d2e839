"""The command that copies a store into another: copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import fail, misused
from scheduler_async.cli.options import JsonOption
from scheduler_async.cli.printing import put_json, put_sentence
from scheduler_async.cli.store_access import check_there, is_store_given, is_url, store_at

if TYPE_CHECKING:
    from scheduler_async import Store
    from scheduler_async.stores.messages import NodeRow


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    destination: Annotated[str, typer.Argument(metavar="TARGET")],
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Copy while a scheduler runs on SOURCE. Jobs that are running are left out."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy all jobs to another store, with their runs and changes.

    If a copy is interrupted, run the same command again: it copies only what is missing. A job that is newer in TARGET
    is kept.
    """
    import asyncio
    from contextlib import aclosing

    from scheduler_async.calls import json_output
    from scheduler_async.cli import copy_report, live
    from scheduler_async.signals import told_of_signals
    from scheduler_async.stores.copying import Copy, recover_dead_nodes
    from scheduler_async.timekeeping.clock import SystemClock

    if is_store_given():
        misused("copy takes its stores as arguments: leave out --store.")
    for path in (source, destination):
        if not path.strip() or path == ":memory:":
            misused(f"{path!r} is not a store on disk. SOURCE and TARGET must be paths such as jobs.db, or URLs.")
    check_there(source, "SOURCE must be an existing store.")
    if is_same_store(source, destination):
        misused("SOURCE and TARGET are the same store.")

    def report_silent(node: NodeRow) -> None:
        put_sentence(f"Node {node.identity.name} has not renewed its lease; waiting 15 s to see if it is alive …")

    async def work() -> tuple[Copy, bool]:
        enough = asyncio.Event()
        async with opened_store(source) as theirs:
            nodes = await recover_dead_nodes(theirs, SystemClock(), report_silent)
            if nodes.alive and not anyway:
                fail(
                    f"A scheduler is running on the source ({nodes.alive[0].identity.name}), and the copy would miss "
                    "its next runs. Stop it first, or pass --anyway to copy all jobs that are not running.",
                    1,
                )
            async with opened_store(destination) as ours:
                progress = Copy(theirs, ours, nodes)
                with told_of_signals(enough.set), live.copying(progress) as show:
                    async with aclosing(progress.slices()) as slices:
                        async for _ in slices:
                            show()
                            if enough.is_set():
                                break
                return progress, enough.is_set()

    done, was_interrupted = run_async(work())
    if was_interrupted:
        put_sentence(copy_report.copied_so_far(done))
        raise typer.Exit(INTERRUPTED)
    if as_json:
        put_json(json_output.copy_form(done, copy_report.copied(done)))
    else:
        copy_report.show_copy(done)


def is_same_store(one: str, other: str) -> bool:
    """Return whether two paths or URLs name the same store, as far as names tell."""
    if one == other:
        return True
    if is_url(one) or is_url(other):
        return False
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them does not exist
        return False


@asynccontextmanager
async def opened_store(path: str) -> AsyncIterator[Store]:
    """Yield the open store at *path*, without a scheduler."""
    store = store_at(path)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
