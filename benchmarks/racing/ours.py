"""scheduler_async, with default settings, through its public API, on a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from racing import arrivals
from scheduler_async import At, Every, JobSpec, Run, Scheduler


class Contestant:
    OVERDUE = """
        SELECT count(*)
          FROM state
         WHERE (next_run_at <= :moment * 1e6 OR last_run_at IS NOT NULL)
           AND uid NOT IN (SELECT uid FROM run WHERE outcome = 'success')
    """
    can_add_in_bulk = True

    async def open(self, path: Path) -> None:
        self._scheduler = Scheduler(path)

        @self._scheduler.handler("work")
        async def work(run: Run) -> None:
            await arrivals.work(run.job_id)

    async def add_at(self, id: str, moment: float) -> None:
        await self._scheduler.add_job(At(datetime.fromtimestamp(moment, UTC)), handler="work", id=id)

    async def add_all_at(self, jobs: Sequence[tuple[str, float]]) -> None:
        specs = [JobSpec(At(datetime.fromtimestamp(moment, UTC)), handler="work", id=job) for job, moment in jobs]
        await self._scheduler.add_jobs(specs)

    async def add_every(self, seconds: int, jobs: Mapping[str, float]) -> None:
        await self._scheduler.add_jobs(
            [
                JobSpec(Every(f"{seconds}s", anchor=datetime.fromtimestamp(moment, UTC)), handler="work", id=job)
                for job, moment in jobs.items()
            ]
        )

    async def start(self) -> None:
        await self._scheduler.start()

    async def close(self) -> None:
        await self._scheduler.stop()

    async def give_up(self) -> None:
        await self.close()
