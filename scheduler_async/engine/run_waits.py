"""Waits for the end of a run of any process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from scheduler_async.engine.engine import Engine
from scheduler_async.engine.session import Session
from scheduler_async.errors import RunNotFoundError, RunTimeoutError, SchedulerError, SchedulerStoppingError, StoreError
from scheduler_async.jobs.enums import Outcome, Trigger
from scheduler_async.jobs.run import EndedRun, RunRow
from scheduler_async.running.active_run import OVER, ActiveRun
from scheduler_async.stores.messages import RunFilter
from scheduler_async.stores.run_codec import row_of

# Between two looks at a run of another process.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds

# So many manual runs of a job may follow an interrupted one until the wait for that one notices its end.
MOST_LATER = 100


async def wait_for(engine: Engine, run_id: int, timeout: float | None, *, repeats: bool = False) -> RunRow:
    """Return the row of a run once it has ended; raise `RunTimeoutError` after *timeout* seconds.

    With *repeats*, wait also for the runs that repeat it if its process dies, and return the row of the last one.
    """
    await engine.ready()
    active = engine.session.runner.find(run_id)
    if active is not None and active is engine.session.runner.current():
        raise SchedulerError(f"Run {run_id} cannot wait for itself to end. Call wait_for_run() outside of its handler.")
    if timeout is None:
        return await _Wait(engine, run_id, None, asyncio.Event(), repeats=repeats).row()
    with engine.setting.expiry(timeout) as expired:
        if timeout <= 0:
            expired.set()
        return await _Wait(engine, run_id, timeout, expired, repeats=repeats).row()


def pause_after(waited: float) -> float:
    """Return in how many seconds to look again: a tenth of the time *waited*, so that long runs cost little."""
    return min(max(waited / 10, SHORTEST_PAUSE), LONGEST_PAUSE)


class _Wait:
    """One caller that waits for one run."""

    def __init__(
        self, engine: Engine, run_id: int, timeout: float | None, expired: asyncio.Event, *, repeats: bool
    ) -> None:
        self._engine, self._run, self._timeout, self._expired = engine, run_id, timeout, expired
        self._repeats = repeats
        self._session: Session = engine.session
        self._ended: asyncio.Event | None = None

    async def row(self) -> RunRow:
        machine, runner = self._engine.setting.machine, self._session.runner
        since = machine.monotonic()
        while True:
            active = runner.find(self._run)
            if active is not None:
                await self._until_over(active)
            row = await self._read(active)
            if row.outcome is Outcome.INTERRUPTED and self._repeats and (again := await self._repeat_of(row)):
                self._run, self._ended = again, None
                continue
            if row.outcome is not None:
                return row
            self._check_patience(has_begun=row.node is not None)
            if runner.stopping.is_set() or not self._session.is_open:
                raise SchedulerStoppingError
            if self._ended is None or self._ended.is_set():
                self._ended = await self._ending()
            pause = pause_after(machine.monotonic() - since)
            waits = [self._expired, runner.stopping, *([self._ended] if self._ended else [])]
            await _first_of(*(event.wait() for event in waits), timeout=pause)

    async def _ending(self) -> asyncio.Event | None:
        """Return an event that is set when another process has ended the run. Without it, polling finds out."""
        with suppress(StoreError):
            return await self._engine.setting.ask(self._engine.setting.store.ending_of(self._run))
        return None

    async def _until_over(self, active: ActiveRun) -> None:
        if self._timeout is None:
            await active.over()
        elif active.stage is not OVER:
            await _first_of(active.over(), self._expired.wait())
            if active.stage is not OVER:
                self._check_patience()

    async def _read(self, active: ActiveRun | None) -> RunRow:
        """Return the row from the store. If that was closed meanwhile, a run of this process knows how it ended."""
        try:
            rows = await self._engine.ask_unless_stopped(self._engine.setting.store.list_runs(RunFilter(run=self._run)))
        except SchedulerStoppingError:
            if active is None or active.ending is None or active.outcome is None:
                raise
            item = EndedRun(active.claimed, active.ending, active.began_at, active.ended_at)
            return row_of(item, self._session.node.name)
        if not rows:
            raise RunNotFoundError(self._run)
        return rows[0]

    async def _repeat_of(self, row: RunRow) -> int | None:
        """Return the run that repeats an interrupted one. It was written in the same transaction."""
        later = RunFilter(namespace=row.namespace, id=row.job_id, trigger=Trigger.MANUAL, limit=MOST_LATER)
        for other in await self._engine.ask_unless_stopped(self._engine.setting.store.list_runs(later)):
            if (other.scheduled_for, other.attempt) == (row.scheduled_for, row.attempt + 1) and other.id > row.id:
                return other.id
        return None

    def _check_patience(self, *, has_begun: bool = True) -> None:
        if self._timeout is not None and self._expired.is_set():
            raise RunTimeoutError(self._run, self._timeout, has_begun)


async def _first_of(*waits: Coroutine[Any, Any, object], timeout: float | None = None) -> None:
    """Wait until one of *waits* is done, or for *timeout* seconds of real time."""
    tasks = [asyncio.create_task(wait, name="scheduler_async wait for a run") for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
