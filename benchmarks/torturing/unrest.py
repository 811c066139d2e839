"""A process that gives its scheduler no rest: it stops and starts it again, and calls it all the while."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from scheduler_async import (
    At,
    Delay,
    Every,
    Job,
    JobAlreadyRunningError,
    JobNotFoundError,
    Manual,
    Run,
    Scheduler,
    SchedulerShutdownError,
    SchedulerStoppingError,
    StoreError,
)

logger = logging.getLogger("torture")


class Write(Protocol):
    """Appends a line to the log."""

    def __call__(self, what: str, run: Run | None = None, *, about: str = "- 0 0") -> None:
        """Tell *what* happened to a run, or to something else."""


# How long a call may take that should take a moment, on a machine that is busy with other things.
HANGING = 20.0  # seconds

# Jobs may be claimed this long before they are due: that is when they are edited.
LAST_MOMENT = 0.05  # seconds

# A one-shot that is moved again and again would never come.
MOST_MOVES = 5

# So many tasks call the scheduler at the same time.
CALLERS = 4

# A scheduler that is stopping says so. Jobs run elsewhere, and are removed by others.
EXPECTED = (SchedulerStoppingError, JobAlreadyRunningError, JobNotFoundError)


class Unrest:
    """The scheduler of a process, and what is done to it. What came of it is written to the log."""

    def __init__(self, scheduler: Scheduler, write: Write) -> None:
        self._scheduler, self._write = scheduler, write
        self._random = Random(os.getpid())
        self._is_over = False

    async def last_until(self, asked: asyncio.Event) -> None:
        """Stop and start until *asked* to end; no call may go on after that."""
        callers = [asyncio.create_task(self._keep_calling(), name=f"caller {number}") for number in range(CALLERS)]
        while not asked.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), self._random.uniform(0.0, 0.6))
            await self._try(self._stop())
            if self._random.random() < 0.8:  # otherwise others use it without the loop for a while
                await self._try(self._scheduler.start())
        self._is_over = True
        await asyncio.wait(callers)
        await self._try(self._scheduler.stop(cancel=True))

    async def _try(self, work: Coroutine[Any, Any, object]) -> object:
        """What a call returns, or None. It is written down if it hangs, or raises what it should not."""
        call, name = asyncio.ensure_future(work), getattr(work, "__qualname__", "")
        self._write("called")
        await asyncio.wait([call], timeout=HANGING)
        if not call.done():
            self._write("hung")
            logger.error("%s hangs: %s", name, waiting_for(call))
            return None
        error = call.exception()
        if error is None:
            return call.result()
        is_too_late = isinstance(error, StoreError) and str(error).endswith("is closed.")  # stop() was quicker
        if not isinstance(error, EXPECTED) and not is_too_late:
            self._write("raised")
            logger.error("%s raised %r", name, error)
        return None

    async def _stop(self) -> None:
        scheduler, chance = self._scheduler, self._random.random()
        if chance < 0.4:
            with suppress(SchedulerShutdownError):
                await scheduler.stop(timeout=self._random.choice([0.0, 0.01, 5.0]))
        elif chance < 0.6:
            await scheduler.stop(wait=False)
        elif chance < 0.7:
            stopping = asyncio.ensure_future(scheduler.stop())
            await asyncio.sleep(self._random.uniform(0.0, 0.005))
            stopping.cancel()
            await asyncio.wait([stopping])
        await scheduler.stop(cancel=chance > 0.5)
        self._write("stopped")

    async def _keep_calling(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._random.uniform(0.0, 0.02))
            jobs = await self._try(self._scheduler.list_jobs(limit=40))
            if not isinstance(jobs, list) or not jobs:
                continue
            job: Job = self._random.choice(jobs)
            match self._random.randrange(4):
                case 0:
                    await self._try(self._scheduler.run_pending())
                case 1:
                    await self._trigger(f"manual-{self._random.randrange(5)}" if job.id.startswith("once") else job.id)
                case _:
                    await self._edit_at_the_last_moment(job)

    async def _trigger(self, id: str) -> None:
        run = await self._try(self._scheduler.trigger_job(id))
        if isinstance(run, int):
            self._write("triggered", about=f"{id} {run} 0")

    async def _edit_at_the_last_moment(self, job: Job) -> None:
        if job.next_run_at is None:
            return
        early = job.next_run_at.timestamp() - time.time() - self._random.uniform(0.0, LAST_MOMENT)
        if early > 0.5:
            return  # it is not among the next
        await asyncio.sleep(max(early, 0.0))
        self._write("edited")
        scheduler = self._scheduler
        match job.id.partition("-")[0]:
            case "moved" if isinstance(job.schedule, At) and job.revision < MOST_MOVES:
                later = At(job.schedule.at + timedelta(milliseconds=self._random.randrange(50, 400)))
                await self._try(scheduler.update_job(job.id, schedule=later))
            case "paused":
                await self._try(scheduler.pause_job(job.id))
                await asyncio.sleep(0.1)
                await self._try(scheduler.resume_job(job.id))
            case "changed":
                step = timedelta(milliseconds=self._random.randrange(100, 300))
                schedule = self._random.choice([Every(step), Delay(step), Manual()])
                await self._try(scheduler.update_job(job.id, schedule=schedule))
            case "removed":
                await self._try(scheduler.remove_job(job.id))
            case _:
                await self._try(scheduler.update_job(job.id, metadata={"edited": time.time_ns()}))


def waiting_for(call: asyncio.Task[object]) -> str:
    """Where a call stands, from outside to inside."""
    places: list[str] = []
    coroutine: Any = call.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            places.append(f"{coroutine.__qualname__}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return " ".join(places)
