"""The list of changes: the job, the action, the author, the time and the tool of each."""

from __future__ import annotations

from starlette.responses import Response

from scheduler_async.web.pages import lines, sight
from scheduler_async.web.pages.parameters import checked, local_time, whole
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

PAGE, MOST = 50, 200


async def changes(visit: Visit) -> Response:
    """Show a part of the changes."""
    query = checked(visit, "id", "namespace", "since", "until", "after", "limit")
    moments = moments_of(visit)
    zone = moments.zone()
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    page = await visit.scheduler.changes_page(
        id=query.get("id"),
        namespace=query.get("namespace"),
        namespaces=visit.access.namespaces,
        since=local_time(query, "since", zone),
        until=local_time(query, "until", zone),
        after=query.get("after"),
        limit=whole(query, "limit", PAGE, most=MOST),
    )
    return show(
        visit,
        "changes.html",
        moments,
        tab="changes",
        mark=mark,
        page=page,
        lines=lines.changes_of([sight.change_for(visit, row) for row in page.items], moments),
        query=query,
        zone_name=f"{moments.now.astimezone(zone):%Z}",
        is_filtered=bool(query.keys() - {"after", "limit"}),
    )
