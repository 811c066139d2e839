"""Routes: which handler answers a method and a path, and what the visitor needs for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from scheduler_async.jobs.history import Action
from scheduler_async.web.errors import MethodNotAllowedError, PageNotFoundError
from scheduler_async.web.links import name_of
from scheduler_async.web.visit import Handler

API = "api"

FOR_PROGRAMS = frozenset({API, "feed", "metrics", "healthz", "readyz"})
"""How addresses begin that programs ask for. People ask for the others, in a browser."""


@dataclass(frozen=True)
class Parameter:
    """A parameter behind the question mark of an address of the API."""

    name: str
    schema: Mapping[str, Any]
    about: str


@dataclass(frozen=True, kw_only=True)
class Route:
    """An address of the page."""

    method: str
    path: str
    """Without the first "/". A segment such as "{id}" stands for any name: `jobs/{namespace}/{id}`."""
    handler: Handler = field(repr=False)
    action: Action | None = None
    """What the visitor needs the role for; None is to read."""
    is_open: bool = False
    """Whether it needs no access at all."""
    takes: tuple[str, ...] = ()
    """The content types of bodies. Without one, a body is ignored."""
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] | None = None
    """The JSON schema of the body, for the description of the API."""
    answer: str | None = None
    """The name of the schema of the answer, likewise."""
    status: int = HTTPStatus.OK

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path."""
        return tuple(self.path.split("/"))

    @property
    def is_described(self) -> bool:
        """Whether it belongs to the API."""
        return self.segments[0] == API


@dataclass(frozen=True)
class Place:
    """Where in the application a request leads."""

    segments: tuple[str, ...]
    """Of the path below the root, decoded, but with the escapes of names."""
    depth: int
    """How many levels below the root the browser believes to be."""
    at_root_without_slash: str | None = None
    """The last segment of the root, if the browser left out the "/" behind it: relative links would not work."""

    @property
    def path(self) -> str:
        """The path below the root."""
        return "/" + "/".join(self.segments)

    @property
    def is_for_programs(self) -> bool:
        """Whether errors are answered for programs, and not for people."""
        return self.segments[0] in FOR_PROGRAMS


def place_of(scope: Scope) -> Place:
    """Return where *scope* leads, however the host application has mounted the page."""
    below = _below_root(scope["path"], scope.get("root_path", ""))
    # Litestar adds a "/" to every path. The raw path is as the browser sent it.
    raw = scope.get("raw_path")
    sent = scope["path"] if raw is None else raw.decode("latin-1").partition("?")[0]
    segments = tuple(below.removeprefix("/").removesuffix("/").split("/"))
    ends_with_slash = sent.endswith("/")
    if segments == ("",) and not ends_with_slash:
        return Place(segments, 0, unquote(sent.rpartition("/")[2]))
    return Place(segments, len(segments) - (segments == ("",)) - (not ends_with_slash))


def _below_root(path: str, root: str) -> str:
    """Return the part of *path* below *root*. A proxy may have removed the first segments of *root* from *path*."""
    root = root.rstrip("/")
    while root:
        if path == root or path.startswith(f"{root}/"):
            return path[len(root) :]
        _, slash, rest = root.removeprefix("/").partition("/")
        root = f"/{rest}" if slash else ""
    return path


class Routes:
    """All routes of a page."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._by_length: dict[int, list[Route]] = {}
        for route in self._routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route, Mapping[str, str]]:
        """Return the route of a request, and the names in its path. Fixed segments come before names."""
        wanted = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for route in self._by_length.get(len(segments), ()):
            names = _names(route.segments, segments)
            if names is not None:
                if route.method == wanted:
                    return route, names
                allowed.append(route.method)
        if allowed:
            raise MethodNotAllowedError(method, tuple(dict.fromkeys(allowed)))
        raise PageNotFoundError("There is no page at this address.", "The overview links to all pages.")


def _names(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            name = name_of(segment)
            if not name:
                return None
            names[wanted[1:-1]] = name
        elif wanted != segment:
            return None
    return names
