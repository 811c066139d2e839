"""APScheduler 4.0.0a6 with its SQLAlchemy data store on SQLite through aiosqlite, tuned."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apscheduler import AsyncScheduler, Event, JobAdded, JobReleased
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from racing import arrivals
from racing.tuning import tune

TASK = "work"


class Contestant:
    OVERDUE = """
        SELECT (SELECT count(*) FROM schedules WHERE next_fire_time <= :moment * 1e6) + (SELECT count(*) FROM jobs)
    """
    can_add_in_bulk = False

    async def open(self, path: Path) -> None:
        # SQLite lets one write at a time: one connection is no slower than several, and none is locked out.
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{path}", pool_size=1, max_overflow=0)
        event.listen(self._engine.sync_engine, "connect", tune)
        self._unfinished = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._scheduler: Any = AsyncScheduler(SQLAlchemyDataStore(self._engine))
        await self._scheduler.__aenter__()
        self._scheduler.subscribe(self._count, {JobAdded, JobReleased})
        # All jobs are of one task, of which only one would run at a time.
        await self._scheduler.configure_task(TASK, func=arrivals.work, max_running_jobs=None)

    def _count(self, event: Event) -> None:
        self._unfinished += 1 if isinstance(event, JobAdded) else -1
        if self._unfinished:
            self._quiet.clear()
        else:
            self._quiet.set()

    async def add_at(self, id: str, moment: float) -> None:
        trigger = DateTrigger(datetime.fromtimestamp(moment, UTC))
        await self._scheduler.add_schedule(TASK, trigger, args=[id], id=id)

    async def add_all_at(self, jobs: Sequence[tuple[str, float]]) -> None:
        for job, moment in jobs:
            await self.add_at(job, moment)

    async def add_every(self, seconds: int, jobs: Mapping[str, float]) -> None:
        for job, moment in jobs.items():
            trigger = IntervalTrigger(seconds=seconds, start_time=datetime.fromtimestamp(moment, UTC))
            await self._scheduler.add_schedule(TASK, trigger, args=[job], id=job)

    async def start(self) -> None:
        await self._scheduler.start_in_background()

    async def close(self) -> None:
        await self._quiet.wait()  # it records an end after the handler, and forgets that when it is stopped meanwhile
        await self.give_up()

    async def give_up(self) -> None:
        await self._scheduler.__aexit__(None, None, None)
        await self._engine.dispose()
