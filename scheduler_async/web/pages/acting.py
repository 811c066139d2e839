"""The pages on which a visitor confirms an action, and the forms that do it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from urllib.parse import parse_qsl

from starlette.responses import Response

from scheduler_async.errors import InvalidJobError
from scheduler_async.jobs.history import Action
from scheduler_async.jobs.job import Job
from scheduler_async.web import operations
from scheduler_async.web.errors import BadRequestError, PageNotFoundError
from scheduler_async.web.pages import lines
from scheduler_async.web.pages.runs import number_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.problems import status_of
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class Act:
    """Something that a visitor can do to a job."""

    title: str
    effect: str
    button: str
    has_reason: bool = False
    has_until: bool = False


ACTS: Mapping[str, Act] = MappingProxyType(
    {
        "run": Act(
            title="Run it now?",
            effect="It runs once more, in any process that has its handler. Its schedule stays as it is.",
            button="Run now",
        ),
        "pause": Act(
            title="Pause it?",
            effect="No new run starts until it is resumed. A run in progress continues. It does not catch up later.",
            button="Pause",
            has_reason=True,
            has_until=True,
        ),
        "resume": Act(
            title="Resume it?",
            effect="It runs by its schedule again, from its next occurrence on.",
            button="Resume",
        ),
        "disable": Act(
            title="Disable it?",
            effect="It does not run, and cannot be triggered, until it is resumed. A run in progress continues.",
            button="Disable",
            has_reason=True,
        ),
    }
)


def form_of(visit: Visit) -> dict[str, str]:
    """Return the fields of a form that are not empty."""
    try:
        pairs = parse_qsl(visit.body.decode(), max_num_fields=20)
    except ValueError:  # not UTF-8, or too many fields
        raise BadRequestError("The form cannot be read.", "Send it again from its page.") from None
    return {name: value.strip() for name, value in pairs if value.strip()}


def asking(verb: str) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that asks whether to do *verb*."""

    async def ask(visit: Visit) -> Response:
        return _form(visit, ACTS[verb], await visit.named_job(), {})

    return ask


def _form(
    visit: Visit, act: Act, job: Job, given: Mapping[str, str | None], error: InvalidJobError | None = None
) -> Response:
    """Show the form of an *act*, with what was *given* and what is wrong with it."""
    return show(
        visit,
        "confirm.html",
        moments_of(visit),
        status=HTTPStatus.OK if error is None else status_of(error),
        tab="jobs",
        act=act,
        given=given,
        error=error,
        name=lines.name_of(job.namespace, job.id),
        back=visit.links.to("jobs", job.namespace, job.id),
    )


def doing(verb: str) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that does *verb*, and then shows the job or the run."""

    async def do(visit: Visit) -> Response:
        namespace, name = visit.names["namespace"], visit.names["id"]
        form, act = form_of(visit), ACTS[verb]
        given = {
            "reason": form.get("reason") if act.has_reason else None,
            "until": form.get("until") if act.has_until else None,
        }
        options = {name: value for name, value in given.items() if value is not None}
        try:
            done = await operations.ON_JOBS[verb](visit, namespace, name, **options)
        except InvalidJobError as error:
            if error.field not in options:
                raise
            return _form(visit, act, await visit.named_job(), given, error)
        if verb == "run":
            return visit.redirect(visit.links.to("runs", done))
        return visit.redirect(visit.links.to("jobs", namespace, name))

    return do


async def ask_to_cancel(visit: Visit) -> Response:
    """Ask whether to cancel a run."""
    row = await visit.run(number_of(visit))
    if row.outcome is not None:
        raise PageNotFoundError("The run has ended, so there is nothing to cancel.", "Its page shows how it ended.")
    return show(
        visit,
        "confirm.html",
        moments_of(visit),
        tab="runs",
        act=Act(
            title=f"Cancel run {row.id}?",
            effect="Its handler is cancelled, in whichever process it runs. The run is not repeated.",
            button="Cancel the run",
            has_reason=True,
        ),
        given={},
        error=None,
        name=lines.name_of(row.namespace, row.job_id),
        back=visit.links.to("runs", row.id),
    )


async def cancel(visit: Visit) -> Response:
    """Cancel a run, and show it."""
    number = number_of(visit)
    await operations.cancel(visit, number, reason=form_of(visit).get("reason"))
    return visit.redirect(visit.links.to("runs", number))


ROUTES = [
    *(
        Route(
            method="GET", path=f"jobs/{{namespace}}/{{id}}/{verb}", handler=asking(verb), action=operations.NEEDS[verb]
        )
        for verb in ACTS
    ),
    *(
        Route(
            method="POST",
            path=f"jobs/{{namespace}}/{{id}}/{verb}",
            handler=doing(verb),
            action=operations.NEEDS[verb],
            takes=(FORM,),
        )
        for verb in ACTS
    ),
    Route(method="GET", path="runs/{run}/cancel", handler=ask_to_cancel, action=Action.CANCEL),
    Route(method="POST", path="runs/{run}/cancel", handler=cancel, action=Action.CANCEL, takes=(FORM,)),
]
