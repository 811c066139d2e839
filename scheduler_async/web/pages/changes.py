"""The list of changes: the job, the action, the author, the time and the tool of each."""

from __future__ import annotations

from datetime import tzinfo

from starlette.responses import Response

from scheduler_async.jobs.history import ChangeRow
from scheduler_async.web.pages import lines, sight, words
from scheduler_async.web.pages.job_zones import zone_of_filter, zones_of
from scheduler_async.web.pages.parameters import checked, local_time, whole
from scheduler_async.web.pages.room import page_that_fits, weight_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

PAGE, MOST = 50, 200


async def changes(visit: Visit) -> Response:
    """Show a part of the changes."""
    query = checked(visit, "id", "namespace", "since", "until", "after", "limit")
    moments = moments_of(visit)
    zone = await zone_of_filter(visit, moments, query)
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    page = await page_that_fits(
        lambda limit: visit.scheduler.changes_page(
            id=query.get("id"),
            namespace=query.get("namespace"),
            namespaces=visit.access.namespaces,
            since=local_time(query, "since", zone),
            until=local_time(query, "until", zone),
            after=query.get("after"),
            limit=limit,
        ),
        whole(query, "limit", PAGE, most=MOST),
        lambda row: _weight(visit, row, zone),
    )
    zones = await zones_of(visit, moments, {(row.namespace, row.job_id) for row in page.items})
    return show(
        visit,
        "changes.html",
        moments,
        tab="changes",
        mark=mark,
        page=page,
        lines=lines.changes_of([sight.change_for(visit, row) for row in page.items], moments, zones),
        query=query,
        zone_name=f"{moments.now.astimezone(zone):%Z}",
        is_filtered=bool(query.keys() - {"after", "limit"}),
    )


def _weight(visit: Visit, row: ChangeRow, zone: tzinfo) -> int:
    """Return how many bytes a change takes in the list."""
    link, name = visit.links.to("jobs", row.namespace, row.job_id), lines.name_of(row.namespace, row.job_id)
    edits = [text for edit in words.edits_of(row, zone) for text in edit]
    return 380 + 40 * len(edits) + weight_of(link, name, row.actor, row.reason, *edits)
