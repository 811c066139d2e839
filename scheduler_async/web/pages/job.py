"""The page of a job: what it does, why it does not run, its last and next runs, its settings and changes."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta

from starlette.responses import Response

from scheduler_async.timekeeping.time_format import took
from scheduler_async.timekeeping.zones import as_tzinfo
from scheduler_async.web.pages import lines, previews, sight, words
from scheduler_async.web.pages.kinds import sign_of_job
from scheduler_async.web.pages.next_runs import next_runs
from scheduler_async.web.pages.parameters import checked, local_time
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.pages.sparkline import BARS, large
from scheduler_async.web.visit import Visit

RUNS, CHANGES, NEXT = 15, 8, 10


async def job(visit: Visit) -> Response:
    """Show a job."""
    scheduler = visit.scheduler
    namespace, name = visit.names["namespace"], visit.names["id"]
    query = checked(visit, "at")
    mark = await scheduler.mark(namespaces=visit.access.namespaces)
    found = await visit.job(namespace, name)
    moments = moments_of(visit)
    zone = moments.zone(found.schedule)
    at = local_time(query, "at", zone)
    now_why = await scheduler.explain(name, namespace=namespace, zone=zone)
    then_why = None if at is None else await scheduler.explain(name, namespace=namespace, at=at, zone=zone)
    (recent,) = await scheduler.recent_runs([(namespace, name)], n=BARS)
    page = await scheduler.runs_page(id=name, namespace=namespace, limit=RUNS)
    changes = await scheduler.changes_page(id=name, namespace=namespace, limit=CHANGES)
    (next_run,) = await next_runs(visit, [found])
    stats = lines.figures_of(recent)
    texts, is_redacted = await asyncio.to_thread(previews.of_job, visit, found)
    return show(
        visit,
        "job.html",
        moments,
        tab="jobs",
        mark=mark,
        job=found,
        next_run_at=next_run,
        name=lines.name_of(namespace, name),
        sign=sign_of_job(found, moments.now),
        zone=zone,
        describes=words.schedule_of(found, zone),
        expression=words.expression_of(found.schedule),
        why=sight.explanation_for(visit, found, now_why),
        answer=None if then_why is None else sight.explanation_for(visit, found, then_why),
        answer_run=None if then_why is None or then_why.run is None else then_why.run.id,
        asked=query.get("at", ""),
        suggested=f"{(moments.now - timedelta(hours=1)).astimezone(zone):%Y-%m-%dT%H:00}",
        zone_name=f"{moments.now.astimezone(zone):%Z}",
        spark=large(recent, visit.links),
        recent=recent,
        stats=stats,
        took=took,
        upcoming=await scheduler.upcoming(name, namespace=namespace, n=NEXT, zone=zone),
        page=page,
        runs=lines.runs_of(sight.rows_for(visit, page.items), moments, {(namespace, name): zone}),
        changes=lines.changes_of(
            [sight.change_for(visit, row) for row in changes.items], moments, {(namespace, name): zone}
        ),
        has_more_changes=changes.next is not None,
        settings=words.settings_of(found, texts["cursor"].text if "cursor" in texts else None),
        texts=texts,
        is_redacted=is_redacted,
        other_zone=as_tzinfo(moments.choice.mine) if moments.choice.mine is not None else UTC,
    )
