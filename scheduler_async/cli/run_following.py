"""Follows one run of any process: prints its output as it comes, and shows its progress on a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from scheduler_async.cli.job_names import name_of
from scheduler_async.cli.printing import lines_of, put_output
from scheduler_async.cli.safe_text import Text
from scheduler_async.cli.terminal import CLOCK, console
from scheduler_async.cli.unfinished_line import end_line
from scheduler_async.errors import RunTimeoutError, StoreError
from scheduler_async.jobs.run import RunRow
from scheduler_async.scheduler import Scheduler

# How often to look at the output. It is stored once a second.
LOOK = 0.25  # seconds

# A part of the output that is long enough to be found again after the beginning was dropped.
FAMILIAR = 4096  # characters


class Display(Protocol):
    """Shows what a run is doing."""

    def update(self, status: Text) -> None:
        """Show another text."""


async def follow_run(scheduler: Scheduler, run: int, *, silent: bool, with_progress: bool) -> RunRow:
    """Print the output of a run until it has ended, and return its row. If *silent*, print nothing."""
    output = LiveOutput()
    waiting = asyncio.create_task(scheduler.wait_for_run(run))
    try:
        with progress_shown(with_progress and not silent) as display:
            while not (await asyncio.wait([waiting], timeout=LOOK))[0]:
                with suppress(StoreError):  # the next look, or the wait, tells of it
                    if not silent:
                        output.show(await scheduler.run_output(run))
                    if display is not None and (row := await scheduler.get_run(run)) is not None:
                        display.update(Text(doing_of(row)))
        ended = await waiting
        if not silent:
            output.show(await scheduler.run_output(run))
        return ended
    finally:
        waiting.cancel()
        output.end()


async def ended_soon(scheduler: Scheduler, run: int, timeout: float) -> RunRow | None:
    """Return the row of a run if it ends within *timeout* seconds."""
    try:
        return await scheduler.wait_for_run(run, timeout)
    except RunTimeoutError:
        return None


@contextmanager
def progress_shown(is_wanted: bool) -> Iterator[Display | None]:
    """Yield a line on stderr, if it is wanted and that is a terminal."""
    screen = console(stderr=True)
    if not is_wanted or not screen.is_terminal:
        yield None
        return
    with screen.status("") as status:
        yield status


def doing_of(row: RunRow) -> str:
    """Return what a run is doing, as a line."""
    name = name_of(row.namespace, row.job_id)
    if row.started_at is None:
        return f"{name}: waiting for a scheduler that can run it"
    elapsed = max((CLOCK.now() - row.started_at).total_seconds(), 0)
    share = "" if row.progress is None else f", {row.progress:.0%}"
    message = "" if row.progress_message is None else f", {row.progress_message}"
    return f"{name}: running for {elapsed:.0f} s{share}{message}"


class LiveOutput:
    """Prints each line of a growing output once. Only the last 64 KiB of the output are ever known."""

    def __init__(self) -> None:
        self._seen = ""
        self._rest = ""  # a line that has not ended

    def show(self, output: str | None) -> None:
        """Print the lines of *output* that are new and whole."""
        if not output or output == self._seen:
            return
        lines, newline, self._rest = (self._rest + new_part(self._seen, output)).rpartition("\n")
        self._seen = output
        if newline:
            end_line()
            put_output(lines)

    def end(self) -> None:
        """Print the last line, even if it has not ended."""
        if self._rest:
            end_line()
            put_output(lines_of(self._rest)[0])
            self._rest = ""


def new_part(seen: str, output: str) -> str:
    """Return the part of *output* that comes after what was *seen*, which may have lost its beginning."""
    if output.startswith(seen):
        return output[len(seen) :]
    at = output.find(seen[-FAMILIAR:])
    return output if at < 0 else output[at + len(seen[-FAMILIAR:]) :]
