"""Reading what is around jobs and runs: nodes, what needs attention, the tally, changes, and the health of it all."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from scheduler_async.calls import json_output
from scheduler_async.errors import StoreError
from scheduler_async.jobs.pages import TallyRow
from scheduler_async.web import forms
from scheduler_async.web.api import answers, parameters
from scheduler_async.web.api.parameters import AFTER, INSTANT, LIMIT, TEXT
from scheduler_async.web.problems import RETRY_AFTER
from scheduler_async.web.routing import Parameter, Route
from scheduler_async.web.visit import Visit


async def nodes(visit: Visit) -> Response:
    """List the schedulers that share the store. They run the jobs of all namespaces, so tenants see none."""
    found = await visit.scheduler.nodes() if visit.access.namespaces is None else []
    return answers.all_of(map(json_output.node_form, found))


async def attention(visit: Visit) -> Response:
    """List what needs attention, each with its cause and its effect."""
    limit = parameters.limit(visit)
    found = await visit.scheduler.attention(namespaces=visit.access.namespaces, limit=limit)
    return answers.all_of(forms.concern_form(visit, concern) for concern in found)


async def tally(visit: Visit) -> Response:
    """List how many runs ended in each hour, by outcome, node and namespace."""
    since = parameters.text(visit, "since") or visit.scheduler.now() - USUAL_TALLY
    found = await visit.scheduler.tally(
        since=since,
        **parameters.texts(visit, "until", "after"),
        namespaces=visit.seen(parameters.text(visit, "namespace")),
        limit=parameters.limit(visit),
    )
    return await answers.listed(visit, found, TallyRow.to_json)


async def changes(visit: Visit) -> Response:
    """List the changes of jobs, newest first."""
    found = await visit.scheduler.changes_page(
        namespaces=visit.seen(parameters.text(visit, "namespace")),
        **parameters.texts(visit, "since", "until", "after"),
        limit=parameters.limit(visit),
    )
    return await answers.listed(visit, found, lambda row: forms.change_form(visit, row))


async def health(visit: Visit) -> Response:
    """Say whether the scheduler works, and count the jobs by what they do."""
    found = await visit.scheduler.health()
    form: dict[str, Any] = found.to_json()
    try:
        form["counts"] = (await visit.scheduler.counts(namespaces=visit.access.namespaces)).to_json()
        is_readable = True
    except StoreError:  # the health says so
        form["counts"], is_readable = None, False
    if visit.site.is_standalone and found.status == "stopped":  # schedulers run elsewhere; this one only reads
        form |= {
            "ok": is_readable,
            "status": "ok" if is_readable else "failing",
            "store_reachable": is_readable,
            "problem": None if is_readable else "The store cannot be read.",
        }
    if visit.access.namespaces is not None:  # figures of all namespaces together
        form |= {"last_pass_age": None, "lateness": None, "problem": None}
    status = HTTPStatus.OK if form["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
    return answers.answer(form, status, {} if form["ok"] else {"retry-after": str(RETRY_AFTER)})


USUAL_TALLY = timedelta(hours=24)

NAMESPACE = Parameter("namespace", TEXT, "The namespace of the jobs.")

ROUTES = [
    Route(method="GET", path="api/v1/nodes", handler=nodes, answer="Nodes"),
    Route(method="GET", path="api/v1/attention", handler=attention, parameters=(LIMIT,), answer="Concerns"),
    Route(
        method="GET",
        path="api/v1/tally",
        handler=tally,
        parameters=(
            Parameter("since", INSTANT, "From the hour of this moment on. Without it, the last 24 hours."),
            Parameter("until", INSTANT, "Up to the hour of this moment. Without it, now."),
            NAMESPACE,
            AFTER,
            LIMIT,
        ),
        answer="Tally",
    ),
    Route(
        method="GET",
        path="api/v1/changes",
        handler=changes,
        parameters=(
            NAMESPACE,
            Parameter("since", INSTANT, "Changes from this moment on."),
            Parameter("until", INSTANT, "Changes up to this moment."),
            AFTER,
            LIMIT,
        ),
        answer="Changes",
    ),
    Route(method="GET", path="api/v1/health", handler=health, answer="Health"),
]
