"""Life in a program: a scheduler that runs until a signal, or for as long as a web server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager, asynccontextmanager
from logging import INFO, WARNING
from typing import TYPE_CHECKING

from scheduler_async.errors import SchedulerShutdownError
from scheduler_async.logs import say
from scheduler_async.signals import told_of_signals

if TYPE_CHECKING:
    from scheduler_async.scheduler import Scheduler

# How long a cancelled run may take to tidy up when the program ends.
LAST_WORDS = 5.0  # seconds


async def run_until_signal(scheduler: Scheduler, timeout: float | None) -> None:
    """Start *scheduler*, wait for a signal, and stop it. Runs have *timeout* seconds to finish."""
    asked, hurried = asyncio.Event(), asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            hurried.set()
        asked.set()

    with told_of_signals(ask):
        await scheduler.start()
        try:
            await asked.wait()
            words = "Received a signal; runs have %s to finish. The next signal cancels them"
            say(INFO, words, _time_for(timeout), extra={"signal": True})
        finally:
            with shielded():
                await _stop_or_hurry(scheduler, timeout, hurried)


@asynccontextmanager
async def serving(scheduler: Scheduler) -> AsyncIterator[None]:
    """Run *scheduler* while a web server runs. Runs that do not finish in time are cancelled at the end."""
    await scheduler.start()
    try:
        yield
    finally:
        with shielded():
            await _cancel_after(scheduler, scheduler.stop())


async def stop_at_exit(scheduler: Scheduler, *, is_test: bool) -> None:
    """Stop *scheduler* at the end of its `async with`. In a test, cancel the runs that do not finish in time."""
    try:
        await (_cancel_after(scheduler, scheduler.stop()) if is_test else scheduler.stop())
    except SchedulerShutdownError as error:
        if not is_test:
            raise
        # Another error, for which the test failed, must stay visible.
        say(WARNING, "%s They cannot be cancelled; the scheduler closes when they end", error.sentence)
        await scheduler.stop(wait=False)


def shielded() -> AbstractContextManager[object]:
    """Return a scope in which a task can wait although a scope of anyio around it was cancelled."""
    from anyio import CancelScope  # noqa: PLC0415 - commands that only read jobs start sooner without it

    return CancelScope(shield=True)


async def _stop_or_hurry(scheduler: Scheduler, timeout: float | None, hurried: asyncio.Event) -> None:
    stopping = asyncio.ensure_future(scheduler.stop(timeout=timeout))
    hurrying = asyncio.ensure_future(hurried.wait())
    await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if hurried.is_set():
        await scheduler.stop(timeout=LAST_WORDS, cancel=True)
    await _cancel_after(scheduler, stopping)


async def _cancel_after(scheduler: Scheduler, stopping: Awaitable[None]) -> None:
    """Cancel the runs that outlive *stopping*, so that the store records how they ended."""
    try:
        await stopping
    except SchedulerShutdownError:
        await scheduler.stop(timeout=LAST_WORDS, cancel=True)


def _time_for(seconds: float | None) -> str:
    return "as long as they need" if seconds is None else f"{seconds:g} s"
