"""The routes for load balancers and supervisors. They need no access, and tell nothing but the state."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from scheduler_async.errors import StoreError
from scheduler_async.web.problems import RETRY_AFTER
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit


async def healthz(visit: Visit) -> Response:
    """Answer 200 unless the scheduler fails. One that has not started, or stops, is alive."""
    state = await _state(visit)
    return _answer(state, is_well=state != "failing")


async def readyz(visit: Visit) -> Response:
    """Answer 200 if the scheduler works, or if the store of other schedulers can be read."""
    state = await _state(visit)
    return _answer(state, is_well=state == "ok")


async def _state(visit: Visit) -> str:
    if not visit.site.is_standalone:
        return (await visit.scheduler.health()).status
    try:
        await visit.scheduler.mark()  # it opens the store
    except StoreError:  # its sentence names the store, which is not for everyone
        return "failing"
    return "ok"


def _answer(state: str, *, is_well: bool) -> Response:
    if is_well:
        return JSONResponse({"status": state})
    return JSONResponse({"status": state}, HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": str(RETRY_AFTER)})


ROUTES = [
    Route(method="GET", path="healthz", handler=healthz, is_open=True),
    Route(method="GET", path="readyz", handler=readyz, is_open=True),
]
