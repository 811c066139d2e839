"""Reading runs: the log of all jobs, one run, and what it wrote."""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse, Response

from scheduler_async.texts import escaped
from scheduler_async.web import forms
from scheduler_async.web.api import answers, parameters
from scheduler_async.web.api.jobs import IN_RUNS_OF_A_JOB
from scheduler_async.web.api.parameters import TEXT
from scheduler_async.web.errors import ForbiddenError
from scheduler_async.web.routing import Parameter, Route
from scheduler_async.web.visit import Visit

IN_RUNS = (Parameter("namespace", TEXT, "The namespace of the jobs."), *IN_RUNS_OF_A_JOB)


async def list_runs(visit: Visit) -> Response:
    """List runs of all jobs, newest first."""
    found = await visit.scheduler.runs_page(
        namespaces=visit.seen(parameters.text(visit, "namespace")),
        **parameters.texts(visit, "outcome", "trigger", "since", "until", "after"),
        limit=parameters.limit(visit),
    )
    return await answers.listed(visit, found, lambda row: forms.run_form(visit, row))


async def show_run(visit: Visit) -> Response:
    """Show a run, with its traceback and its payload."""
    row = await visit.run(parameters.run_number(visit))
    job = await visit.scheduler.get_job(row.job_id, namespace=row.namespace)
    zone = None if job is None else forms.zone_of(job)
    return await asyncio.to_thread(lambda: answers.answer(forms.run_form(visit, row, zone)))


async def output(visit: Visit) -> Response:
    """Show what a run wrote, as text with control characters shown; raw only as a file to save."""
    row = await visit.run(parameters.run_number(visit))
    if not visit.access.payloads:
        raise ForbiddenError("You may not see what runs write.", "Ask for access with payloads=True.")
    written = visit.site.redaction.text(await visit.scheduler.run_output(row.id) or "")
    if parameters.yes_or_no(visit, "raw"):
        data = written.encode("utf-8", "backslashreplace")
        headers = {"content-disposition": f'attachment; filename="run-{row.id}.txt"'}
        return Response(data, headers=headers, media_type="application/octet-stream")
    return PlainTextResponse(escaped(written, keep="\n\t"))


ROUTES = [
    Route(method="GET", path="api/v1/runs", handler=list_runs, parameters=IN_RUNS, answer="Runs"),
    Route(method="GET", path="api/v1/runs/{run}", handler=show_run, answer="Run"),
    Route(
        method="GET",
        path="api/v1/runs/{run}/output",
        handler=output,
        parameters=(Parameter("raw", {"type": "boolean"}, "Send a file with all characters as they are."),),
        answer=None,
    ),
]
