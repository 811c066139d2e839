"""Tenants: each extension of an application schedules its own jobs, and cannot see those of the others.

python examples/tenants.py

It prints:

    weather: created 2 jobs
    news: created 1 job
    weather sees: alerts, refresh
    news sees: refresh
    weather cancelled alerts: disabled
    ran weather/refresh for Lund
    ran news/refresh for Oslo
    the operator sees: news/refresh, weather/alerts, weather/refresh
"""

from __future__ import annotations

import asyncio
import logging

from scheduler_async import Every, Namespace, Run, Scheduler

logging.getLogger("scheduler_async").addHandler(logging.NullHandler())  # this program prints its own story
scheduler = Scheduler(":memory:", group_limits={"http": 2})  # two requests at once for each tenant


@scheduler.handler("fetch")
async def fetch(run: Run) -> None:
    print(f"ran {run.namespace}/{run.job_id} for {run.payload['city']}")


async def install(jobs: Namespace, wanted: dict[str, str]) -> None:
    """Create the jobs of an extension. It gets a view of its own namespace, and not the scheduler."""
    for job_id, city in wanted.items():
        # schedule() replaces a job of the same id: an extension may be installed again.
        await jobs.schedule(Every("1h"), handler="fetch", id=job_id, payload={"city": city}, group="http")
    print(f"{jobs.name}: created {len(wanted)} job{'s' if len(wanted) > 1 else ''}")


async def main() -> None:
    weather, news = scheduler.namespace("weather"), scheduler.namespace("news")
    async with scheduler:
        await install(weather, {"refresh": "Lund", "alerts": "Lund"})
        await install(news, {"refresh": "Oslo"})
        for view in (weather, news):
            print(f"{view.name} sees: {', '.join(sorted(job.id for job in await view.list()))}")

        cancelled = await weather.cancel("alerts")
        print(f"weather cancelled alerts: {cancelled.status}")

        # The application itself sees and runs the jobs of all tenants.
        for view in (weather, news):
            await scheduler.wait_for_run(await scheduler.trigger_job("refresh", namespace=view.name))
        everything = sorted(f"{job.namespace}/{job.id}" for job in await scheduler.list_jobs())
        print(f"the operator sees: {', '.join(everything)}")


if __name__ == "__main__":
    asyncio.run(main())
