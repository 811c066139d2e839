"""The address of the link that logs a browser in."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from scheduler_async.web.errors import NoAccessError, PageNotFoundError
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit


async def log_in(visit: Visit) -> Response:
    """Take the key in the link, and give the browser its cookie."""
    login = visit.site.login
    if login is None:
        raise PageNotFoundError("There is no page at this address.", "The overview links to all pages.")
    request = visit.request
    if request.method == "HEAD":  # a preview of the link must not use it up
        return Response()
    if login.has_logged_in(request.cookies):  # a restored tab, or a second click
        return visit.redirect(visit.links.root, HTTPStatus.SEE_OTHER)
    if "prefetch" in request.headers.get("sec-purpose", ""):  # the browser asks again when a person opens the page
        return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)
    session = login.redeem(visit.query.get("key", ""))
    if session is None:
        raise NoAccessError("This link has been used, or it is not valid.", "Start the page again to get a new one.")
    response = visit.redirect(visit.links.root, HTTPStatus.SEE_OTHER)
    response.headers["set-cookie"] = f"{login.cookie}={session}; HttpOnly; Path=/; SameSite=Strict"
    return response


ROUTES = [Route(method="GET", path="login", handler=log_in, is_open=True)]
