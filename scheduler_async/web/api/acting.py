"""Acting on jobs and runs: pause, resume, disable, run, cancel, and the same on many jobs at once."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from scheduler_async.errors import SchedulerError, quoted
from scheduler_async.jobs.history import Action
from scheduler_async.jobs.job import Job
from scheduler_async.web import forms, operations
from scheduler_async.web.api import answers, parameters
from scheduler_async.web.errors import ParameterError
from scheduler_async.web.problems import problem_of
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

MOST_AT_ONCE = 1_000

# What each action takes besides the job.
OPTIONS: dict[str, tuple[str, ...]] = {
    "pause": ("reason", "until"),
    "resume": (),
    "disable": ("reason",),
    "run": ("payload",),
    "remove": (),
}
FILTER = ("status", "text", "handler", "group", "namespace", "ended")


async def _act(visit: Visit, action: str) -> Response:
    given = parameters.body(visit, OPTIONS[action])
    job = await operations.ON_JOBS[action](visit, visit.names["namespace"], visit.names["id"], **_options(given))
    return answers.job_answer(visit, job)


async def pause(visit: Visit) -> Response:
    """Keep a job from starting until it is resumed, or until a time."""
    return await _act(visit, "pause")


async def resume(visit: Visit) -> Response:
    """Let a paused or disabled job start again."""
    return await _act(visit, "resume")


async def disable(visit: Visit) -> Response:
    """Take a job out of scheduling until it is resumed."""
    return await _act(visit, "disable")


async def run(visit: Visit) -> Response:
    """Run a job now, in a scheduler that has its handler."""
    given = parameters.body(visit, OPTIONS["run"])
    number = await operations.run(visit, visit.names["namespace"], visit.names["id"], **_options(given))
    return await _accepted(visit, number)


async def cancel(visit: Visit) -> Response:
    """Cancel a run of any process."""
    number = parameters.run_number(visit)
    await operations.cancel(visit, number, **_options(parameters.body(visit, ("reason",))))
    return await _accepted(visit, number)


async def _accepted(visit: Visit, number: int) -> Response:
    row = await visit.scheduler.get_run(number)
    form = {"id": number} if row is None else forms.run_form(visit, row)  # nothing is kept with keep_runs=0
    return answers.answer(form, HTTPStatus.ACCEPTED, {"location": visit.links.to("api", "v1", "runs", number)})


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an action that are given. Only a payload may be anything."""
    return {
        name: value if name == "payload" else parameters.text_field(given, name)
        for name, value in given.items()
        if value is not None
    }


# ============================================================ many jobs


async def bulk(visit: Visit) -> Response:
    """Act on many jobs, named by their ids or found by a filter. Each has a result of its own."""
    given = parameters.body(visit, ("action", "ids", "filter", "dry_run", "reason", "until"))
    action = given.get("action")
    if not isinstance(action, str) or action not in operations.ON_JOBS:
        raise ParameterError(
            f"action must be one of {', '.join(operations.ON_JOBS)}, not {quoted(action)}.", field="action"
        )
    visit.require(operations.NEEDS[action])
    dry_run = given.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise ParameterError(f"dry_run must be true or false, not {quoted(dry_run)}.", field="dry_run")
    options = _options({name: given[name] for name in ("reason", "until") if given.get(name) is not None})
    if surplus := options.keys() - set(OPTIONS[action]):
        name = min(surplus)
        raise ParameterError(f"The action {action} takes no {name}.", "Leave it out.", name)
    names = await _named(visit, given)
    return answers.all_of([await _result(visit, action, name, options, dry_run=dry_run) for name in names])


async def _named(visit: Visit, given: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the jobs to act on."""
    ids, condition = given.get("ids"), given.get("filter")
    if (ids is None) == (condition is None):
        raise ParameterError("Either ids or filter must be given.", 'Pass "ids": ["default/report"].', "ids")
    if condition is not None:
        return [(job.namespace, job.id) for job in await _found(visit, condition)]
    if not isinstance(ids, list) or len(ids) > MOST_AT_ONCE:
        raise ParameterError(f"ids must be a list of at most {MOST_AT_ONCE:,} jobs.", "Send several requests.", "ids")
    return list(dict.fromkeys(_name_of(one) for one in ids))


def _name_of(given: object) -> tuple[str, str]:
    """Return the namespace and the id in "namespace/id", which is written as in the log."""
    text = given if isinstance(given, str) else ""
    if text.startswith("/"):  # a namespace with a "/" in it
        escaped, _, job_id = text[1:].partition("/")
        namespace = unquote(escaped)
    else:
        namespace, _, job_id = text.partition("/")
    if not namespace or not job_id:
        raise ParameterError(f'ids must contain texts such as "default/report", not {quoted(given)}.', field="ids")
    return namespace, job_id


async def _found(visit: Visit, condition: object) -> list[Job]:
    if not isinstance(condition, dict) or not condition:
        raise ParameterError('filter must be an object such as {"status": "failing"}.', field="filter")
    for name, value in condition.items():
        if name not in FILTER:
            raise ParameterError(f"There is no filter {quoted(name)}.", f"There are: {', '.join(FILTER)}.", "filter")
        if not isinstance(value, bool if name == "ended" else str):
            raise ParameterError(f"The filter {name} has a value of the wrong type.", field="filter")
    conditions = dict(condition)
    namespaces = visit.seen(conditions.pop("namespace", None))
    found: list[Job] = []
    after: str | None = None
    while True:
        page = await visit.scheduler.jobs_page(
            **conditions, order="name", namespaces=namespaces, after=after, limit=parameters.MOST_ITEMS
        )
        found += page.items
        if len(found) > MOST_AT_ONCE:
            raise ParameterError(
                f"The filter finds more than {MOST_AT_ONCE:,} jobs.", "Narrow it, or pass ids.", "filter"
            )
        after = page.next
        if after is None:
            return found


async def _result(
    visit: Visit, action: str, name: tuple[str, str], options: dict[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    namespace, job_id = name
    form: dict[str, Any] = {"namespace": namespace, "id": job_id}
    try:
        if dry_run:
            await visit.job(namespace, job_id)
            return {**form, "result": "would"}
        done = await operations.ON_JOBS[action](visit, namespace, job_id, **options)
    except SchedulerError as error:
        return {**form, "result": "refused", "problem": problem_of(error, sees_all=visit.access.namespaces is None)}
    return {**form, "result": "done", "run": done if action == "run" else None}


TAKES = (answers.JSON,)
ONE = "api/v1/jobs/{namespace}/{id}"
REASON = {"type": ["string", "null"], "maxLength": 1_000, "pattern": r"\S"}
UNTIL = {"type": ["string", "null"], "description": 'An instant, or a duration such as "2h".'}

ROUTES = [
    Route(
        method="POST",
        path="api/v1/jobs/bulk",
        handler=bulk,
        action=Action.PAUSE,
        takes=TAKES,
        body={
            "type": "object",
            "properties": {
                "action": {"enum": list(operations.ON_JOBS)},
                "ids": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_AT_ONCE},
                "filter": {
                    "type": "object",
                    "minProperties": 1,
                    "properties": {name: {"type": "boolean" if name == "ended" else "string"} for name in FILTER},
                    "additionalProperties": False,
                },
                "dry_run": {"type": "boolean"},
                "reason": REASON,
                "until": UNTIL,
            },
            "required": ["action"],
            "additionalProperties": False,
        },
        answer="Results",
    ),
    Route(
        method="POST",
        path=f"{ONE}/pause",
        handler=pause,
        action=Action.PAUSE,
        takes=TAKES,
        body={"type": "object", "properties": {"reason": REASON, "until": UNTIL}, "additionalProperties": False},
        answer="Job",
    ),
    Route(
        method="POST",
        path=f"{ONE}/resume",
        handler=resume,
        action=Action.RESUME,
        takes=TAKES,
        body={"type": "object", "properties": {}, "additionalProperties": False},
        answer="Job",
    ),
    Route(
        method="POST",
        path=f"{ONE}/disable",
        handler=disable,
        action=Action.DISABLE,
        takes=TAKES,
        body={"type": "object", "properties": {"reason": REASON}, "additionalProperties": False},
        answer="Job",
    ),
    Route(
        method="POST",
        path=f"{ONE}/run",
        handler=run,
        action=Action.TRIGGER,
        takes=TAKES,
        body={"type": "object", "properties": {"payload": {}}, "additionalProperties": False},
        answer="Run",
        status=HTTPStatus.ACCEPTED,
    ),
    Route(
        method="POST",
        path="api/v1/runs/{run}/cancel",
        handler=cancel,
        action=Action.CANCEL,
        takes=TAKES,
        body={"type": "object", "properties": {"reason": REASON}, "additionalProperties": False},
        answer="Run",
        status=HTTPStatus.ACCEPTED,
    ),
]
