"""A request on its way: its visitor, its target, and where links lead from there. Handlers of routes take it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from scheduler_async.errors import JobNotFoundError, RunNotFoundError
from scheduler_async.jobs.history import Action
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.web.access import Access
from scheduler_async.web.errors import ForbiddenError
from scheduler_async.web.links import Links, address_of
from scheduler_async.web.redaction import Redaction

if TYPE_CHECKING:
    from jinja2 import Environment

    from scheduler_async.scheduler import Scheduler
    from scheduler_async.web.login_link import LoginLink
    from scheduler_async.web.watching import Feed


@dataclass(frozen=True, kw_only=True)
class Site:
    """What all requests to a page share."""

    scheduler: Scheduler
    redaction: Redaction
    feed: Feed
    templates: Environment
    login: LoginLink | None = None
    """How visitors log in, if the page does it by itself."""
    is_standalone: bool = False
    """Whether the schedulers of the store run elsewhere, and this process only shows it."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A request that may go on."""

    site: Site
    access: Access
    request: Request
    links: Links
    names: Mapping[str, str] = field(default_factory=dict)
    """The parameters in the path, without their escapes."""
    body: bytes = b""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that the page shows."""
        return self.site.scheduler

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters behind the question mark. The last of several values counts."""
        return self.request.query_params

    def may(self, action: Action | None) -> bool:
        """Return whether the visitor may do *action*, for buttons."""
        return self.access.may(action)

    def require(self, action: Action | None) -> None:
        """Raise `ForbiddenError` unless the visitor may do *action*."""
        if not self.access.may(action):
            what = "read" if action is None else f"{action.value} jobs or runs"
            raise ForbiddenError(
                f'Your role "{self.access.role}" does not allow you to {what}.', "Ask for another role."
            )

    # ============================================================ what the visitor can see

    def seen(self, namespace: str | None = None) -> Collection[str] | None:
        """Return the namespaces to look at: *namespace*, if the visitor can see it, or all that they can see."""
        if namespace is None:
            return self.access.namespaces
        return (namespace,) if self.access.sees(namespace) else ()

    async def named_job(self) -> Job:
        """Return the job that the path names."""
        return await self.job(self.names["namespace"], self.names["id"])

    async def job(self, namespace: str, id: str) -> Job:
        """Return a job. One in a namespace that the visitor cannot see is not found."""
        job = await self.scheduler.get_job(id, namespace=namespace) if self.access.sees(namespace) else None
        if job is None:
            raise JobNotFoundError(id, namespace)
        return job

    async def run(self, run_id: int) -> RunRow:
        """Return a run, with its traceback and payload. One in a namespace out of sight is not found."""
        row = await self.scheduler.get_run(run_id)
        if row is None or not self.access.sees(row.namespace):
            raise RunNotFoundError(run_id)
        return row

    # ============================================================ answers

    def html(self, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """Answer with a *template*, which knows `visit`, `access`, `links` and *values*."""
        page = self.site.templates.get_template(template)
        text = page.render(visit=self, access=self.access, links=self.links, **values)
        return Response(text, status, media_type="text/html")

    def redirect(self, to: str, status: int = HTTPStatus.SEE_OTHER) -> Response:
        """Answer that the browser shall go to the link *to*."""
        return Response(status_code=status, headers={"location": address_of(to)})


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]
