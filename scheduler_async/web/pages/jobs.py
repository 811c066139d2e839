"""The list of jobs: filters, the next run of each, and its last runs."""

from __future__ import annotations

from starlette.responses import Response

from scheduler_async.web.pages import lines
from scheduler_async.web.pages.parameters import checked, whole
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.pages.sparkline import BARS
from scheduler_async.web.visit import Visit

STATUSES = ("running", "queued", "late", "failing", "paused", "disabled", "idle")
ORDERS = {"next": "next run", "name": "name"}
PAGE, MOST = 50, 200


async def jobs(visit: Visit) -> Response:
    """Show a part of the jobs."""
    query = checked(visit, "status", "text", "handler", "group", "namespace", "order", "after", "limit", "ended")
    namespaces = visit.access.namespaces
    if "namespace" in query:
        named = query["namespace"]
        namespaces = [named] if namespaces is None or named in namespaces else []
    moments = moments_of(visit)
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    page = await visit.scheduler.jobs_page(
        order=query.get("order", "next"),
        status=query.get("status"),
        text=query.get("text"),
        handler=query.get("handler"),
        group=query.get("group"),
        namespaces=namespaces,
        ended={"yes": True, "no": False}.get(query.get("ended", "")),
        after=query.get("after"),
        limit=whole(query, "limit", PAGE, most=MOST),
    )
    recent = await visit.scheduler.recent_runs([(job.namespace, job.id) for job in page.items], n=BARS)
    return show(
        visit,
        "jobs.html",
        moments,
        tab="jobs",
        mark=mark,
        page=page,
        lines=[lines.job_line(job, moments, rows) for job, rows in zip(page.items, recent, strict=True)],
        query=query,
        statuses=STATUSES,
        orders=ORDERS,
        is_filtered=bool(query.keys() - {"order", "after", "limit"}),
    )
