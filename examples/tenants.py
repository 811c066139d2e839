"""Tenants: each extension of an application schedules its own jobs within limits, and cannot see those of the others.

python examples/tenants.py

It prints:

    weather: created 2 jobs
    news: created 1 job
    weather is refused (max_jobs)
    news is refused (handlers)
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

from scheduler_async import Every, Namespace, QuotaError, Run, Scheduler

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


async def try_to_add(jobs: Namespace, handler: str) -> None:
    """Add one more job, and say so if a limit of the tenant does not allow it."""
    try:
        await jobs.add_job(Every("1h"), handler=handler, payload={"city": "Umeå"})
    except QuotaError as error:
        print(f"{jobs.name} is refused ({error.limit})")


async def main() -> None:
    # What each tenant may do: two jobs, one handler, and payloads of up to a kilobyte.
    weather = scheduler.namespace("weather", handlers=["fetch"], max_jobs=2, max_payload=1024)
    news = scheduler.namespace("news", handlers=["fetch"], max_jobs=2, max_payload=1024)
    async with scheduler:
        await install(weather, {"refresh": "Lund", "alerts": "Lund"})
        await install(news, {"refresh": "Oslo"})
        await try_to_add(weather, "fetch")
        await try_to_add(news, "delete-everything")
        for view in (weather, news):
            print(f"{view.name} sees: {', '.join(sorted(job.id for job in await view.list_jobs()))}")

        cancelled = await weather.cancel("alerts")
        print(f"weather cancelled alerts: {cancelled.status}")

        for view in (weather, news):
            await view.wait_for_run(await view.trigger_job("refresh"))

        # The application itself sees the jobs of all tenants.
        everything = sorted(f"{job.namespace}/{job.id}" for job in await scheduler.list_jobs())
        print(f"the operator sees: {', '.join(everything)}")


if __name__ == "__main__":
    asyncio.run(main())
