"""Live updates: a request that is answered as soon as something has changed, or after two seconds."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit


async def feed(visit: Visit) -> Response:
    """Answer with the new mark once something has changed after the mark `after`, or with 204.

    A visitor that leaves makes room for others at once.
    """
    client = visit.request.client
    name = None if client is None else f"{visit.access.who}@{client.host}"
    change = asyncio.create_task(visit.site.feed.change_after(visit.query.get("after", ""), visit.access, name))
    leaving = asyncio.create_task(_left(visit.request))
    try:
        await asyncio.wait((change, leaving), return_when=asyncio.FIRST_COMPLETED)
        found = await change if change.done() else None
    finally:
        change.cancel()
        leaving.cancel()
    return Response(status_code=HTTPStatus.NO_CONTENT) if found is None else JSONResponse({"mark": found})


async def _left(request: Request) -> None:
    """Return when the visitor has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


ROUTES = [Route(method="GET", path="feed", handler=feed)]
