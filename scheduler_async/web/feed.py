"""Live updates: a request that is answered as soon as something has changed, or after two seconds."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit


async def feed(visit: Visit) -> Response:
    """Answer with the new mark once something has changed after the mark `after`, or with 204."""
    client = visit.request.client
    name = None if client is None else f"{visit.access.who}@{client.host}"
    found = await visit.site.feed.change_after(visit.query.get("after", ""), visit.access, name)
    return Response(status_code=HTTPStatus.NO_CONTENT) if found is None else JSONResponse({"mark": found})


ROUTES = [Route(method="GET", path="feed", handler=feed)]
