"""The cast that the tests of the whole scheduler share: its moments, a handler that does as it is told, programs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from scheduler_async import Job, Run, Scheduler
from scheduler_async.testing import VirtualClock

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

PATIENCE = 10.0  # seconds of real time after which what should have happened is taken to hang

NewScheduler: TypeAlias = Callable[..., Scheduler]


class Worker:
    """A handler that notes its runs, takes its time, and ends as it is told."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.runs: list[Run] = []
        self.answer: object = None
        self.takes: str | timedelta | None = None
        self.blocks = False
        self.go = asyncio.Event()
        self.active = self.most_active = self.cancelled = 0

    async def __call__(self, run: Run) -> object:
        self.runs.append(run)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.takes is not None:
                await self.clock.sleep(self.takes)
            if self.blocks:
                await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1
        if isinstance(self.answer, Exception):
            raise self.answer.with_traceback(None)  # the same one each time, without what it has been through
        return self.answer

    @property
    def ids(self) -> list[str]:
        return [run.job_id for run in self.runs]

    def fired(self, unit: timedelta = MINUTE) -> list[float]:
        """When it was called, counted from noon."""
        return [(run.fired_at - NOON) / unit for run in self.runs]


async def job_of(scheduler: Scheduler, id: str = "a") -> Job:
    job = await scheduler.get_job(id)
    assert job is not None
    return job


@contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program of its own, which does not outlive the test. Nobody talks to it, unless *options* say otherwise."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([str(part) for part in command], text=True, **{**pipes, **options})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a program writes; an empty one when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
