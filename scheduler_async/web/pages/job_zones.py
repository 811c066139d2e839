"""The zones in which a list shows the times of its rows: each row may be about another job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo

from scheduler_async.web.pages.moments import JOB, Moments
from scheduler_async.web.visit import Visit

MOST = 1_000
"""In many namespaces, many jobs may have the same ids. The times of those that are not found are in UTC."""

Zones = Mapping[tuple[str, str], tzinfo]
"""Zones by the namespaces and ids of jobs."""


async def zones_of(visit: Visit, moments: Moments, names: Iterable[tuple[str, str]]) -> Zones:
    """Return the zones of jobs with these *names*, if the visitor has chosen the clocks of the jobs."""
    wanted = {name for name in names if visit.access.sees(name[0])}
    if moments.choice.name != JOB or not wanted:
        return {}
    namespaces, ids = zip(*wanted, strict=True)
    found = await visit.scheduler.jobs_page(order="name", ids={*ids}, namespaces={*namespaces}, limit=MOST)
    return {(job.namespace, job.id): moments.zone(job.schedule) for job in found.items}


async def zone_of_filter(visit: Visit, moments: Moments, query: Mapping[str, str]) -> tzinfo:
    """Return the zone of the times in a filter: that of the job that it names, if it does."""
    if "id" not in query:
        return moments.zone()
    name = query.get("namespace", "default"), query["id"]
    return (await zones_of(visit, moments, [name])).get(name, moments.zone())
