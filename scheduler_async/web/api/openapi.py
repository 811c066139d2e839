"""The description of the API, OpenAPI 3.1, from its routes and from the types of its values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from scheduler_async import __version__
from scheduler_async.web.access import NEEDED
from scheduler_async.web.api import answers
from scheduler_async.web.openapi_types import all_schemas
from scheduler_async.web.problems import CONTENT_TYPE
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

ABOUT = (
    "Times are RFC 3339 in UTC; `zone` is the time zone of a job. Lists come in parts: pass `next` as `after`. A "
    "segment of a path that names a job or a namespace escapes `~` as `~0`, `/` as `~1` and `.` as `~d`. Requests that "
    "change something come from the page itself, or carry a bearer token. Fields in `redacted` are left out."
)

REFUSALS = {
    HTTPStatus.BAD_REQUEST: "The request cannot be read.",
    HTTPStatus.UNAUTHORIZED: "The access rule does not know you.",
    HTTPStatus.FORBIDDEN: "Your role does not allow it, or another site sent the request.",
    HTTPStatus.NOT_FOUND: "There is no such job or run, or you cannot see it.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A parameter or a field is not valid.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store does not answer. Try again later.",
}
REFUSALS_OF_CHANGES = {
    HTTPStatus.CONFLICT: "The state of the job or run does not allow it.",
    HTTPStatus.PRECONDITION_FAILED: "The job was edited in the meantime.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body has another type.",
}


def description(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the description of *routes*."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = "/" + route.path.removeprefix("api/v1/")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "scheduler_async", "version": __version__, "description": ABOUT},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": all_schemas(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _servers(visit: Visit) -> list[dict[str, str]]:
    """Return where the API is: many programs do not read relative addresses, and a proxy may change others."""
    scope = visit.request.scope
    raw = scope.get("raw_path")
    here = quote(scope["path"]) if raw is None else raw.decode("latin-1").partition("?")[0]
    return [
        {"url": here.rpartition("/")[0] or "/"},
        {"url": ".", "description": "Beside this document, whatever a proxy has made of its address."},
    ]


def _operation(route: Route) -> dict[str, Any]:
    refusals = REFUSALS if route.method == "GET" else {**REFUSALS, **REFUSALS_OF_CHANGES}
    problem = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[str, Any] = {
        str(int(route.status)): _answer(route),
        **{str(int(status)): {"description": about, "content": problem} for status, about in refusals.items()},
    }
    if route.method == "PUT":
        responses["201"] = _answer(route)
    if route.path.endswith("/health"):  # it says what is wrong, instead of a problem
        responses["503"] = _answer(route)
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": (route.handler.__doc__ or "").partition("\n")[0],
        "description": f'Needs the role "{NEEDED[route.action]}".',
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": responses,
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.path.endswith(("/bulk", "/jobs")) or route.method in ("PUT", "PATCH"),
            "content": {kind: {"schema": route.body} for kind in route.takes},
        }
    return operation


def _operation_id(route: Route) -> str:
    words = [word.strip("{}") for word in route.segments[2:]]
    return "_".join([route.method.lower(), *words]).replace(".", "_")


def _answer(route: Route) -> dict[str, Any]:
    if route.status == HTTPStatus.NO_CONTENT:
        return {"description": "Done."}
    if route.answer is None:
        kinds = ("text/plain", "application/octet-stream") if route.path.endswith("output") else (answers.JSON,)
        return {"description": "Done.", "content": {kind: {} for kind in kinds}}
    schema = {"$ref": f"#/components/schemas/{route.answer}"}
    return {"description": "Done.", "content": {answers.JSON: {"schema": schema}}}


def _in_path(route: Route) -> list[dict[str, Any]]:
    names = [segment.strip("{}") for segment in route.segments if segment.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if name == "run" else {"type": "string", "minLength": 1},
        }
        for name in names
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "in": "query", "schema": dict(one.schema), "description": one.about}
        for one in route.parameters
    ]


def _in_headers(route: Route) -> list[dict[str, Any]]:
    if route.method not in ("PUT", "PATCH", "DELETE"):
        return []
    about = "The ETag of the revision that you have read."
    return [{"name": "If-Match", "in": "header", "schema": {"type": "string"}, "description": about}]


def routes_for(routes: Sequence[Route]) -> list[Route]:
    """Return the route of the description of *routes*, which describes itself, too."""
    described: list[Route] = []

    @cache
    def form() -> dict[str, Any]:
        return description(described)

    async def show(visit: Visit) -> Response:
        """Describe the API."""
        return answers.answer({**form(), "servers": _servers(visit)})

    own = Route(method="GET", path="api/v1/openapi.json", handler=show)
    described += [*routes, own]
    return [own]
