"""Shows a template with what all pages need: the times, the links of the frame, the filters of the address."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import Any

from starlette.responses import Response

from scheduler_async.web.links import query_of
from scheduler_async.web.pages.moments import CHOICE_COOKIE, CHOICES, Choice, Moments, choice_of
from scheduler_async.web.visit import Visit

TABS = (
    ("", "Overview"),
    ("jobs", "Jobs"),
    ("runs", "Runs"),
    ("timeline", "Timeline"),
    ("nodes", "Nodes"),
    ("changes", "Changes"),
)

YEAR = 365 * 86_400  # seconds


def moments_of(visit: Visit) -> Moments:
    """Return how the visitor sees times."""
    return Moments(visit.scheduler.now(), choice_of(visit.query, visit.request.cookies))


def show(
    visit: Visit, template: str, moments: Moments, *, status: int = HTTPStatus.OK, tab: str = "", **values: Any
) -> Response:
    """Answer with a page below the *tab* of that name."""
    response = visit.html(template, status, moments=moments, frame=Frame(visit, moments.choice, tab), **values)
    if visit.query.get("zone", "").lower() in CHOICES:
        _keep(response, visit, moments.choice)
    return response


def _keep(response: Response, visit: Visit, choice: Choice) -> None:
    """Have the browser remember the chosen clock."""
    cookie: SimpleCookie = SimpleCookie({CHOICE_COOKIE: choice.name})
    cookie[CHOICE_COOKIE].update(
        {"path": visit.request.scope.get("root_path") or "/", "max-age": str(YEAR), "samesite": "Lax"}
    )
    response.headers.append("set-cookie", cookie[CHOICE_COOKIE].OutputString())


class Frame:
    """What stands around every page."""

    tabs = TABS

    def __init__(self, visit: Visit, choice: Choice, tab: str) -> None:
        self._visit, self.choice, self.tab = visit, choice, tab
        self.is_wide = visit.access.namespaces is None

    @property
    def zones(self) -> list[tuple[str, str, bool]]:
        """The choices of a clock: their links, names, and whether they are chosen."""
        return [(self.link(zone=name), "UTC" if name == "utc" else name, self.choice.name == name) for name in CHOICES]

    def link(self, **changed: str | None) -> str:
        """Return a link to the same page with other parameters, from its first part on unless `after` is given."""
        query = {name: value for name, value in self._visit.query.items() if name not in ("after", *changed)}
        query |= {name: value for name, value in changed.items() if value is not None}
        return query_of(query) or "?"

    def hidden(self, *names: str) -> Mapping[str, str]:
        """Return the parameters of the address that a form with fields of these *names* has to keep."""
        return {name: value for name, value in self._visit.query.items() if name not in (*names, "after")}
