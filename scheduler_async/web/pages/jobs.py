"""The list of jobs: filters, the next run of each, and its last runs."""

from __future__ import annotations

from anyio.lowlevel import checkpoint
from starlette.responses import Response

from scheduler_async.jobs.job import Job
from scheduler_async.web.pages import lines
from scheduler_async.web.pages.next_runs import next_runs
from scheduler_async.web.pages.parameters import checked, whole
from scheduler_async.web.pages.room import page_that_fits, weight_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.pages.sparkline import BARS
from scheduler_async.web.visit import Visit

STATUSES = ("running", "queued", "late", "failing", "paused", "disabled", "idle")
ORDERS = {"next": "next run", "name": "name"}
# The scheduler goes on after so many lines: each has 60 bars to draw.
AT_ONCE = 10

PAGE, MOST = 40, 200  # 40 jobs with 60 bars each stay below 60 kB


async def jobs(visit: Visit) -> Response:
    """Show a part of the jobs."""
    query = checked(visit, "status", "text", "handler", "group", "namespace", "order", "after", "limit", "ended")
    namespaces = visit.access.namespaces
    if "namespace" in query:
        named = query["namespace"]
        namespaces = [named] if namespaces is None or named in namespaces else []
    moments = moments_of(visit)
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    page = await page_that_fits(
        lambda limit: visit.scheduler.jobs_page(
            order=query.get("order", "next"),
            status=query.get("status"),
            text=query.get("text"),
            handler=query.get("handler"),
            group=query.get("group"),
            namespaces=namespaces,
            ended={"yes": True, "no": False}.get(query.get("ended", "")),
            after=query.get("after"),
            limit=limit,
        ),
        whole(query, "limit", PAGE, most=MOST),
        lambda job: _weight(visit, job),
    )
    recent = await visit.scheduler.recent_runs([(job.namespace, job.id) for job in page.items], n=BARS)
    coming = await next_runs(visit, page.items)
    found = []
    for job, at, rows in zip(page.items, coming, recent, strict=True):
        found.append(lines.job_line(job, moments, at, rows))
        if len(found) % AT_ONCE == 0:
            await checkpoint()
    return show(
        visit,
        "jobs.html",
        moments,
        tab="jobs",
        mark=mark,
        page=page,
        lines=found,
        query=query,
        statuses=STATUSES,
        orders=ORDERS,
        is_filtered=bool(query.keys() - {"order", "after", "limit"}),
    )


def _weight(visit: Visit, job: Job) -> int:
    """Return how many bytes a job takes in the list at most: it has three links, and sixty bars."""
    link, name = visit.links.to("jobs", job.namespace, job.id), lines.name_of(job.namespace, job.id)
    return 1_100 + 3 * weight_of(link) + weight_of(name, job.paused_reason and job.paused_reason[:60])
