"""Reading jobs: the list, one job, its runs, its next runs, and why it does not run."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace
from starlette.responses import Response

from scheduler_async.jobs.enums import Outcome, Status, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form
from scheduler_async.web import forms
from scheduler_async.web.api import answers, parameters
from scheduler_async.web.api.parameters import AFTER, INSTANT, LIMIT, TEXT, ZONE
from scheduler_async.web.routing import Parameter, Route
from scheduler_async.web.visit import Visit

# Characters of a payload, or of metadata.
MOST_IN_LISTS = 64 * 1024

STATUSES = [*(status.value for status in Status), "failing", "late"]

IN_JOBS = (
    Parameter("order", {"enum": ["next", "name"], "default": "next"}, "By the next run, or by the name."),
    Parameter("status", {"enum": STATUSES}, "What the jobs do."),
    Parameter("text", TEXT, "Part of the name or the id."),
    Parameter("handler", TEXT, "The handler of the jobs."),
    Parameter("group", TEXT, "The group of the jobs."),
    Parameter("namespace", TEXT, "The namespace of the jobs."),
    Parameter("ended", {"type": "boolean"}, "Whether the schedule has nothing left."),
    AFTER,
    LIMIT,
)

IN_RUNS_OF_A_JOB = (
    Parameter("outcome", {"enum": [outcome.value for outcome in Outcome]}, "How the runs ended."),
    Parameter("trigger", {"enum": [trigger.value for trigger in Trigger]}, "What started the runs."),
    Parameter("since", INSTANT, "Runs from this moment on."),
    Parameter("until", INSTANT, "Runs up to this moment."),
    AFTER,
    LIMIT,
)


async def list_jobs(visit: Visit) -> Response:
    """List jobs, without payloads and metadata that are large."""
    found = await visit.scheduler.jobs_page(
        **parameters.texts(visit, "order", "status", "text", "handler", "group", "after"),
        namespaces=visit.seen(parameters.text(visit, "namespace")),
        ended=parameters.yes_or_no(visit, "ended"),
        limit=parameters.limit(visit),
    )
    return await answers.listed(visit, found, lambda job: _in_list(visit, job))


def _in_list(visit: Visit, job: Job) -> Form:
    """Return a job as the visitor sees it, with the names of what is too large for a list in "redacted"."""
    texts = {"payload": job.description.payload_json, "metadata": job.description.metadata_json}
    large = [name for name, text in texts.items() if len(text) > MOST_IN_LISTS]
    if not large:
        return forms.job_form(visit, job)
    without = {f"{name}_json": "null" for name in large}
    form = forms.job_form(visit, replace(job, description=replace(job.description, **without)))
    return {**form, "redacted": [*form.get("redacted", ()), *large]}


async def show_job(visit: Visit) -> Response:
    """Show a job."""
    return await asyncio.to_thread(answers.job_answer, visit, await visit.named_job())


async def runs_of_job(visit: Visit) -> Response:
    """List the runs of a job, newest first."""
    job = await visit.named_job()
    found = await visit.scheduler.runs_page(
        id=job.id,
        namespace=job.namespace,
        namespaces=visit.access.namespaces,
        **parameters.texts(visit, "outcome", "trigger", "since", "until", "after"),
        limit=parameters.limit(visit),
    )
    zone = forms.zone_of(job)
    return await answers.listed(visit, found, lambda row: forms.run_form(visit, row, zone), zone=zone)


async def upcoming(visit: Visit) -> Response:
    """List the next runs of a job, with notes on clock changes and calendars."""
    job = await visit.named_job()
    zone = parameters.zone(visit)
    found = await visit.scheduler.upcoming(
        job.id, namespace=job.namespace, n=parameters.number(visit, "n", 10, parameters.MOST_ITEMS), zone=zone
    )
    return answers.all_of(forms.upcoming_forms(job, found, zone), zone=forms.zone_of(job))


async def explain(visit: Visit) -> Response:
    """Say why a job is not running, or what happened to it at another time."""
    job = await visit.named_job()
    found = await visit.scheduler.explain(
        job.id, namespace=job.namespace, at=parameters.text(visit, "at"), zone=parameters.zone(visit)
    )
    return answers.answer(forms.explanation_form(visit, job, found))


ROUTES = [
    Route(method="GET", path="api/v1/jobs", handler=list_jobs, parameters=IN_JOBS, answer="Jobs"),
    Route(method="GET", path="api/v1/jobs/{namespace}/{id}", handler=show_job, answer="Job"),
    Route(
        method="GET",
        path="api/v1/jobs/{namespace}/{id}/runs",
        handler=runs_of_job,
        parameters=IN_RUNS_OF_A_JOB,
        answer="Runs",
    ),
    Route(
        method="GET",
        path="api/v1/jobs/{namespace}/{id}/upcoming",
        handler=upcoming,
        parameters=(
            Parameter("n", {"type": "integer", "minimum": 1, "maximum": 200, "default": 10}, "How many."),
            ZONE,
        ),
        answer="Upcoming",
    ),
    Route(
        method="GET",
        path="api/v1/jobs/{namespace}/{id}/explain",
        handler=explain,
        parameters=(Parameter("at", INSTANT, "The moment to explain. Without it, now."), ZONE),
        answer="Explanation",
    ),
]
