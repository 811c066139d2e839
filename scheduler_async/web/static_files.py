"""The style sheet, the script and the pictures of the pages. They tell nothing, so they need no access."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.responses import Response

from scheduler_async.web.errors import PageNotFoundError
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}


@cache
def all_files() -> dict[str, bytes]:
    """Return the content of each file by its name."""
    folder = files("scheduler_async.web").joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if PurePosixPath(file.name).suffix in TYPES}


async def serve(visit: Visit) -> Response:
    """Answer with a file."""
    name = visit.names["file"]
    content = all_files().get(name)
    if content is None:
        raise PageNotFoundError("There is no such file.")
    return Response(content, media_type=TYPES[PurePosixPath(name).suffix])


ROUTES = [Route(method="GET", path="static/{file}", handler=serve, is_open=True)]
