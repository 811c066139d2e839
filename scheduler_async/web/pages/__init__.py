"""The pages for people: their routes, the views that collect what they show, and the drawing of charts.

A view asks the scheduler through the visit, and hands values to a template. It changes nothing itself: forms call
`operations`, as the API does.
"""

from __future__ import annotations

from starlette.responses import Response

from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit


async def overview(visit: Visit) -> Response:
    """Show what is going on."""
    return visit.html("overview.html")


ROUTES = [Route(method="GET", path="", handler=overview)]
