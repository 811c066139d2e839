"""APScheduler 3.11 with its SQLAlchemy job store on SQLite, tuned."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from racing import arrivals
from racing.tuning import tuned_engine

# However late, each job runs, once: what we promise too. Its own default drops what is a second late. One job may
# run while it still runs, or the slow ones would be dropped; our handlers take no time, so that decides nothing.
DEFAULTS = {"misfire_grace_time": None, "coalesce": True, "max_instances": 10}


class Contestant:
    OVERDUE = "SELECT count(*) FROM apscheduler_jobs WHERE next_run_time <= :moment"
    can_add_in_bulk = False

    async def open(self, path: Path) -> None:
        self._scheduler: Any = AsyncIOScheduler(
            jobstores={"default": self._store(path)}, job_defaults=DEFAULTS, timezone=UTC
        )
        self._scheduler.start(paused=True)

    def _store(self, path: Path) -> Any:
        return SQLAlchemyJobStore(engine=tuned_engine(path))

    async def add_at(self, id: str, moment: float) -> None:
        self._scheduler.add_job(arrivals.work, DateTrigger(datetime.fromtimestamp(moment, UTC)), args=[id], id=id)

    async def add_all_at(self, jobs: Sequence[tuple[str, float]]) -> None:
        for job, moment in jobs:
            await self.add_at(job, moment)

    async def add_every(self, seconds: int, jobs: Mapping[str, float]) -> None:
        for job, moment in jobs.items():
            trigger = IntervalTrigger(seconds=seconds, start_date=datetime.fromtimestamp(moment, UTC))
            self._scheduler.add_job(arrivals.work, trigger, args=[job], id=job)

    async def start(self) -> None:
        self._scheduler.resume()

    async def close(self) -> None:
        # It commits before it lets a handler begin, and keeps no record of how that went: nothing is left to wait for.
        self._scheduler.shutdown()
        await asyncio.sleep(0)  # that was a promise
        assert not self._scheduler.running

    async def give_up(self) -> None:
        await self.close()
