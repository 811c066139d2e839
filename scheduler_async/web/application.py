"""The page as one ASGI application: it takes a request, lets the guards look at it, and answers. It never raises."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from inspect import isawaitable
from logging import ERROR
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from scheduler_async.errors import InvalidJobError, SchedulerError, quoted
from scheduler_async.jobs.json_text import Json
from scheduler_async.logs import say
from scheduler_async.web import feed, health, login, metrics, static_files
from scheduler_async.web.access import Access, Asking, Client, Rule, check_rule
from scheduler_async.web.api import acting, around, jobs, managing, openapi, runs
from scheduler_async.web.api.parameters import check_names
from scheduler_async.web.errors import ContentTypeError, InternalError, NoAccessError
from scheduler_async.web.guards import HEADERS, SAFE_METHODS, check_host, check_same_site, hosts_of, read_body
from scheduler_async.web.links import Links
from scheduler_async.web.pages import ROUTES as PAGES
from scheduler_async.web.problems import CONTENT_TYPE, headers_of, problem_of, status_of
from scheduler_async.web.redaction import Redact, redaction_of
from scheduler_async.web.routing import Place, Route, Routes, place_of
from scheduler_async.web.templating import environment
from scheduler_async.web.visit import Site, Visit
from scheduler_async.web.watching import Feed

if TYPE_CHECKING:
    from aiohttp.web import Application

    from scheduler_async.scheduler import Scheduler
    from scheduler_async.web.login_link import LoginLink

API = [*jobs.ROUTES, *runs.ROUTES, *around.ROUTES, *acting.ROUTES, *managing.ROUTES]

ROUTES = Routes(
    [
        *PAGES,
        *API,
        *openapi.routes_for(API),
        *feed.ROUTES,
        *metrics.ROUTES,
        *health.ROUTES,
        *login.ROUTES,
        *static_files.ROUTES,
    ]
)
"""All routes of the application."""

NOBODY = Access("nobody", "look", namespaces=())
"""The access of a request to a route that needs none."""


class PageApplication:
    """The operator's page and the HTTP API of a scheduler, as `Scheduler.page` returns it.

    It is an ASGI application: `app.mount("/scheduler", page)` mounts it in FastAPI and Starlette, and `add_to` in
    aiohttp.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        access: Rule | None,
        hosts: Collection[str] | None = None,
        redact: Redact | Iterable[str] | None = None,
        login: LoginLink | None = None,
        is_standalone: bool = False,
    ) -> None:
        check_rule(access)
        assert access is not None
        self._rule, self._hosts = access, hosts_of(hosts)
        self._site = Site(
            scheduler=scheduler,
            redaction=redaction_of(redact),
            feed=Feed(scheduler),
            templates=environment(),
            login=login,
            is_standalone=is_standalone,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    def add_to(self, app: Application, path: str) -> None:
        """Mount the page in an aiohttp application, below *path*."""
        from scheduler_async.web.aiohttp_bridge import mount  # noqa: PLC0415 - it needs aiohttp

        if not isinstance(path, str) or not path.startswith("/") or not path.strip("/"):
            raise InvalidJobError(f'path must be a path such as "/scheduler", not {quoted(path)}.', "path")
        mount(app, path.rstrip("/"), self, self.close)

    @property
    def is_watched(self) -> bool:
        """Whether a request waits for changes, so that the page asks the store for them."""
        return self._site.feed.is_watching

    def close(self) -> None:
        """End the requests that wait for changes, at once, because the server stops."""
        self._site.feed.close()

    # ============================================================ from a request to an answer

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, request: Request) -> Response:
        """Return the answer to a request, whatever happens."""
        place = place_of(request.scope)
        visit = Visit(site=self._site, access=NOBODY, request=request, links=Links(place.depth))
        try:
            check_host(request.headers, self._hosts)
            if place.at_root_without_slash is not None:
                response = _add_slash(place.at_root_without_slash, request.scope.get("query_string", b""))
            else:
                visit, route = await self._admit(visit, place)
                response = await route.handler(visit)
        except SchedulerError as error:
            response = _refusal(visit, place, error)
        except Exception as error:  # a bug, or an error of the host application; the visitor must not see it
            say(ERROR, "The page cannot answer %s %s", request.method, place.path, exc_info=error)
            response = _refusal(visit, place, InternalError())
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def _admit(self, visit: Visit, place: Place) -> tuple[Visit, Route]:
        """Return the visit with all that its handler needs, and its route, if it may go on."""
        request = visit.request
        route: Route | None = None
        names: Mapping[str, str] = {}
        missing: SchedulerError | None = None
        try:
            route, names = ROUTES.find(request.method, place.segments)
        except SchedulerError as error:
            missing = error
        access = NOBODY
        if route is None or not route.is_open:
            access = await self._access(request, place)
        check_same_site(request.method, request.headers)
        if route is None:  # only visitors learn which addresses exist
            assert missing is not None
            raise missing
        visit = Visit(site=visit.site, access=access, request=request, links=visit.links, names=names)
        visit.require(route.action)
        if route.is_described:
            check_names(visit, route.parameters)
        if request.method in SAFE_METHODS:
            return visit, route
        body = await read_body(request.stream(), request.headers)
        _check_type(route, request.headers.get("content-type"), body)
        return Visit(site=visit.site, access=access, request=request, links=visit.links, names=names, body=body), route

    async def _access(self, request: Request, place: Place) -> Access:
        client = None if request.client is None else Client(request.client.host, request.client.port)
        asking = Asking(request.headers, place.path, request.method, client, request.cookies, request.scope)
        answer = self._rule(asking)
        access = await answer if isawaitable(answer) else answer
        if access is None:
            raise NoAccessError("You have no access to this page.", "Log in, or send the token of the page.")
        if not isinstance(access, Access):
            raise TypeError(f"The access rule must return Access(…) or None, not {quoted(access)}.")
        return access


def _check_type(route: Route, content_type: str | None, body: bytes) -> None:
    """Raise `ContentTypeError` if a body has another type than its route takes."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if body and kind not in route.takes:
        accepted = " or ".join(route.takes) or "no body"
        raise ContentTypeError(f"The body must be {accepted}, not {quoted(kind) if kind else 'without a type'}.")


def _add_slash(segment: str, query: bytes) -> Response:
    """Send the browser to the same page with a "/" behind it, without knowing what comes before."""
    from urllib.parse import quote  # noqa: PLC0415

    place = f"./{quote(segment)}/" if segment else "./"
    location = place + (f"?{query.decode('latin-1')}" if query else "")
    return Response(status_code=HTTPStatus.TEMPORARY_REDIRECT, headers={"location": location})


def _refusal(visit: Visit, place: Place, error: SchedulerError) -> Response:
    """Return the answer to a request that failed: problem details for programs, a page for people."""
    status, headers = status_of(error), headers_of(error)
    problem = problem_of(error, sees_all=visit.access.namespaces is None)
    if place.is_for_programs:
        return problem_response(problem, headers)
    try:
        response = visit.html("error.html", status, problem=problem)
    except Exception as failure:  # the page for errors must not fail
        say(ERROR, "The page cannot show an error", exc_info=failure)
        return problem_response(problem, headers)
    response.headers.update(headers)
    return response


def problem_response(problem: dict[str, Json], headers: dict[str, str] | None = None) -> Response:
    """Return *problem* as an answer."""
    return JSONResponse(problem, problem["status"], headers=headers, media_type=CONTENT_TYPE)
