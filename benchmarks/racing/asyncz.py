"""asyncz with its SQLAlchemy store on SQLite, tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asyncz.schedulers.asyncio import NativeAsyncIOScheduler
from asyncz.stores.sqlalchemy import SQLAlchemyStore
from asyncz.triggers import DateTrigger, IntervalTrigger

from racing import arrivals
from racing.tuning import tuned_engine

# As for APScheduler 3, from which it descends.
OPTIONS: dict[str, Any] = {"mistrigger_grace_time": None, "coalesce": True, "max_instances": 10}


class Contestant:
    OVERDUE = "SELECT count(*) FROM asyncz_store WHERE next_run_time <= :moment"
    can_add_in_bulk = False

    async def open(self, path: Path) -> None:
        store = SQLAlchemyStore(database=tuned_engine(path))
        self._scheduler: Any = NativeAsyncIOScheduler(stores={"default": store}, timezone=UTC)
        await self._scheduler.start(paused=True)

    async def add_at(self, id: str, moment: float) -> None:
        trigger = DateTrigger(run_at=datetime.fromtimestamp(moment, UTC))
        self._scheduler.add_task(arrivals.work, trigger, args=[id], id=id, **OPTIONS)

    async def add_all_at(self, jobs: Sequence[tuple[str, float]]) -> None:
        for job, moment in jobs:
            await self.add_at(job, moment)

    async def add_every(self, seconds: int, jobs: Mapping[str, float]) -> None:
        for job, moment in jobs.items():
            trigger = IntervalTrigger(seconds=seconds, start_at=datetime.fromtimestamp(moment, UTC))
            self._scheduler.add_task(arrivals.work, trigger, args=[job], id=job, **OPTIONS)

    async def start(self) -> None:
        self._scheduler.resume()

    async def close(self) -> None:
        # It commits before it lets a handler begin, and keeps no record of how that went: nothing is left to wait for.
        await self._scheduler.shutdown()

    async def give_up(self) -> None:
        await self.close()
