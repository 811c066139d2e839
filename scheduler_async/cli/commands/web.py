"""The command that serves the operator's page: web."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler_async.cli.commands.running import ready_to_run
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import fail, misused
from scheduler_async.cli.options import AppOption, StoreOption
from scheduler_async.cli.printing import put
from scheduler_async.cli.store_access import store_path

DEFAULT_PORT = 8020


def web(
    target: AppOption = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="The port. 0 takes a free one.")
    ] = DEFAULT_PORT,
    uds: Annotated[
        str | None,
        typer.Option("--uds", metavar="PATH", help="Listen on a Unix socket instead, which only you can open."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, and change nothing.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Allow requests to another host name, such as that of a proxy."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Serve the page for operators, to show it in a browser.

    It prints a link that logs your browser in, and works only once. It runs no jobs itself: schedulers elsewhere do.
    """
    import sys

    from scheduler_async.cli.ownership import own_name
    from scheduler_async.stores.addresses import redacted

    if uds is not None and sys.platform == "win32":
        misused("--uds needs Unix sockets. Leave it out.")
    try:
        from scheduler_async.web.access import Access
        from scheduler_async.web.standalone import serve
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("scheduler_async"):
            raise
        fail(f"The page needs the package {missing.name}: pip install 'scheduler-async[web]'", 1)

    granted = Access(own_name(), "look" if read_only else "manage", payloads=True)
    where = redacted(target or store_path(store))

    def announce(address: str, logs_in: bool) -> None:
        if logs_in:
            put(f"The page of {where} is at this link, which works once:\n{address}", keep="\n")
        else:
            put(f"The page of {where} is at the socket {address}. Only you can open it.")
        put("Press Ctrl-C to end it.")
        sys.stdout.flush()

    async def until_a_signal() -> None:
        async with ready_to_run(target, store, create=False) as scheduler:
            await scheduler.mark()  # a store that cannot be read is an error here, and not only on the page
            await serve(scheduler, granted, port=port, uds=uds, allowed_hosts=allow_host or (), announce=announce)

    run_async(until_a_signal())
