"""The command that shows a whole store on one screen: status."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler_async.cli.commands.reading import until_enough
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.options import JsonOption, StoreOption
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler, store_path, why_missing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from scheduler_async import Scheduler
    from scheduler_async.cli.overview import Observer, Overview

# How long a store may take to say that it is there.
PATIENCE = 3.0  # seconds


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update the screen every second, until Ctrl-C.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the schedulers, what runs now, the last failures, overdue jobs and counts, on one screen."""
    if watch and (as_json or not sys.stdout.isatty()):
        misused("--watch needs a terminal, and does not go with --json.")

    async def show() -> None:
        from scheduler_async.cli import live, status_views, terminal
        from scheduler_async.cli.overview import Observer
        from scheduler_async.stores.addresses import redacted

        async with open_scheduler(store) as scheduler:
            observer = Observer(scheduler, terminal.HERE)
            if watch:
                watched = Watched(scheduler, observer, store_path(store))
                await until_enough(lambda enough: live.watch(watched.draw, enough))
            overview = await observer.read(terminal.now())
            if as_json:
                put_json(status_views.overview_form(overview))
            else:
                terminal.console().print(status_views.screen_of(overview, redacted(store_path(store))))

    run_async(show())


class Watched:
    """A store that is watched. If it is lost, the screen says so, and keeps what was last seen."""

    def __init__(self, scheduler: Scheduler, observer: Observer, path: str) -> None:
        self._scheduler, self._observer, self._path = scheduler, observer, path
        self._is_open = False
        self._last: Overview | None = None

    async def draw(self) -> RenderableType:
        """Return the screen as it is now."""
        from scheduler_async.cli import status_views
        from scheduler_async.errors import StoreError
        from scheduler_async.stores.addresses import redacted

        problem = None
        try:
            await self._look()
        except StoreError as error:
            problem = redacted(str(error))
            self._is_open = False
            with suppress(StoreError):
                await self._scheduler.stop()  # the next look opens the store again
        if self._last is None:
            return status_views.lost(problem or "")
        return status_views.screen_of(self._last, redacted(self._path), problem)

    async def _look(self) -> None:
        from scheduler_async.cli.terminal import now
        from scheduler_async.errors import StoreError

        missing = why_missing(self._path)
        if missing is not None:  # opening it would create it
            raise StoreError(missing)
        # A file that was replaced can still be read, and never changes.
        if self._is_open and not (await self._scheduler.health(timeout=PATIENCE)).store_reachable:
            raise StoreError("It does not answer, or was replaced by another.")
        self._last = await self._observer.read(now())
        self._is_open = True
