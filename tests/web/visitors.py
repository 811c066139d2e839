"""How tests visit the page: an application that asks a header who is there, and clients with a role."""

from __future__ import annotations

from typing import Any

import httpx

from scheduler_async import Scheduler
from scheduler_async.web import Access
from scheduler_async.web.access import Asking
from scheduler_async.web.application import PageApplication

HOST = "page.test"
BASE = f"http://{HOST}"


def by_header(request: Asking) -> Access | None:
    """Who asks, from the header X-Visitor: "anna operate", "anna look tenants=a,b", "anna manage payloads"."""
    words = request.headers.get("x-visitor", "").split()
    if not words:
        return None
    namespaces = next((word.removeprefix("tenants=").split(",") for word in words if word.startswith("tenants=")), None)
    return Access(words[0], words[1], namespaces, payloads="payloads" in words)


def page_of(scheduler: Scheduler, **options: Any) -> PageApplication:
    return scheduler.page(access=by_header, **options)


def visitor(
    app: Any, who: str | None = "anna manage payloads", *, base: str = BASE, site: bool = True
) -> httpx.AsyncClient:
    """A client of *app*, as the browser of a visitor who is on the page already, unless *site* is False."""
    headers = {} if who is None else {"X-Visitor": who}
    if site:
        headers["Sec-Fetch-Site"] = "same-origin"
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers)
