"""Adding, editing and removing jobs over HTTP. The revision of a job is its entity tag: If-Match guards an edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from scheduler_async.errors import JobChangedError, JobNotFoundError, quoted
from scheduler_async.jobs.history import Action
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import plain
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.spec import SPEC_FIELDS, JobSpec
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.manual import Manual
from scheduler_async.schedules.parsing import parse_schedule
from scheduler_async.web import operations
from scheduler_async.web.api import answers, parameters
from scheduler_async.web.errors import ParameterError, RevisionError
from scheduler_async.web.links import address_of
from scheduler_async.web.openapi_types import fields_of_jobs
from scheduler_async.web.redaction import MASK
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

MERGE_PATCH = "application/merge-patch+json"

# What a description has, as JSON. The rest of a job is its state.
DESCRIPTION = tuple(name for name in SPEC_FIELDS if name not in ("id", "namespace", "enabled", "on_conflict"))
WITH_ZONE = (*DESCRIPTION, "tz")
OPTIONS = tuple(name for name in DESCRIPTION if name not in ("schedule", "handler"))
HIDDEN = ("payload", "metadata")

_USUAL = JobSpec(Manual(), handler="usual")
USUAL: Mapping[str, Any] = {name: getattr(_USUAL, name) for name in OPTIONS}
"""What a job has where its description says nothing."""


async def add(visit: Visit) -> Response:
    """Add a job."""
    given = parameters.body(visit, (*WITH_ZONE, "id", "namespace", "enabled"))
    namespace = parameters.text_field(given, "namespace") or "default"
    job = await operations.add(visit, namespace, parameters.text_field(given, "id"), _described(given))
    return _created(visit, job)


async def put(visit: Visit) -> Response:
    """Add a job under this name, or give it a new description. What it does not name gets its default."""
    # A client may send back what it has read.
    given = parameters.body(visit, dict.fromkeys((*WITH_ZONE, "enabled", *fields_of_jobs())))
    namespace, job_id = visit.names["namespace"], visit.names["id"]
    for name, wanted in (("namespace", namespace), ("id", job_id)):
        if given.get(name, wanted) != wanted:
            raise ParameterError(f"{name} must be that of the address, {quoted(wanted)}.", "Leave it out.", name)
    if not visit.access.sees(namespace):
        raise JobNotFoundError(job_id, namespace)
    described = _described({name: value for name, value in given.items() if name in (*WITH_ZONE, "enabled")})
    try:
        found = await visit.job(namespace, job_id)
    except JobNotFoundError:
        _check_absent(visit)
        return _created(visit, await operations.add(visit, namespace, job_id, described))
    revision = _check_revision(visit, found)
    described.pop("enabled", None)  # pause, disable and resume change it
    kept = () if visit.access.payloads else HIDDEN  # visitors cannot delete what they cannot see
    usual = {name: value for name, value in USUAL.items() if name not in kept}
    return answers.job_answer(visit, await operations.edit(visit, found, {**usual, **described}, revision=revision))


async def patch(visit: Visit) -> Response:
    """Change the fields that are given, as JSON Merge Patch does: null takes a field away, objects are merged."""
    given = parameters.body(visit, (*WITH_ZONE, "cursor"))
    while True:
        job = await visit.named_job()
        _check_revision(visit, job)
        if not given:
            return answers.job_answer(visit, job)
        changes = _changes_of(job, given)
        with suppress(JobChangedError):  # an edit came in between: merge with that one
            return answers.job_answer(visit, await operations.edit(visit, job, changes, revision=job.revision))


async def remove(visit: Visit) -> Response:
    """Remove a job. Its runs and changes stay readable for a while."""
    job = await visit.named_job()
    await operations.remove(visit, job.namespace, job.id, revision=_check_revision(visit, job))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def merged(value: Json, patch: Json) -> Json:
    """Return *value* with a merge *patch* (RFC 7396) applied.

    >>> merged({"to": "ops", "cc": "dev", "tags": [1]}, {"cc": None, "tags": [2], "bcc": "me"})
    {'to': 'ops', 'tags': [2], 'bcc': 'me'}
    """
    if not isinstance(patch, dict):
        return patch
    target = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), inner)
    return target


# ============================================================ reading descriptions


def _current(job: Job, name: str) -> Json:
    return plain(getattr(job, name))


def _changes_of(job: Job, given: Mapping[str, Json]) -> dict[str, Any]:
    """Return the changes of *job* that a merge patch means."""
    changes = {name: merged(_current(job, name), value) for name, value in given.items() if name != "tz"}
    if "tz" in given:
        changes["tz"] = given["tz"]
    for name in ("schedule", "handler"):
        if name in changes and changes[name] is None:
            raise ParameterError(f"A job cannot be without {name}.", "Pass another one.", name)
    cleared = {name: USUAL[name] for name, value in changes.items() if value is None and name in USUAL}
    cursor = {"cursor": changes.pop("cursor")} if "cursor" in changes else {}
    _check_no_mask(cursor)
    rest = {name: value for name, value in changes.items() if name not in cleared}
    return {**cleared, **(_read(rest) if rest else {}), **cursor}


def _described(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `add_job` in a body."""
    for name in ("schedule", "handler"):
        if given.get(name) is None:
            raise ParameterError(f"{name} is missing.", "A job needs a schedule and a handler.", name)
    return _read(
        {name: value for name, value in given.items() if value is not None and name not in ("id", "namespace")}
    )


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a description as the scheduler takes them."""
    _check_no_mask(given)
    read: dict[str, Any] = {name: value for name, value in given.items() if name != "tz"}
    if "schedule" in read:
        read["schedule"] = _schedule(read["schedule"], given.get("tz"))
    elif "tz" in given:
        raise ParameterError("tz is the time zone of a schedule in words.", "Pass schedule, too.", "tz")
    if "retry" in read:
        if not isinstance(read["retry"], dict):
            raise ParameterError("retry must be an object, as jobs show it.", field="retry")
        read["retry"] = Retry.from_json(read["retry"])
    for name in ("handler", *OPTIONS):
        if name in read and name not in ("payload", "metadata", "retry"):
            wanted = (int,) if isinstance(USUAL.get(name), int) or name == "max_runs" else (str,)
            if not isinstance(read[name], wanted) or isinstance(read[name], bool):
                kind = "a whole number" if wanted == (int,) else "a string"
                raise ParameterError(f"{name} must be {kind}, not {quoted(read[name])}.", field=name)
    return read


def _schedule(given: object, tz: object) -> Schedule:
    """Return a schedule in words, such as "every 5m" or "0 9 * * *", or in the form that jobs show."""
    if tz is not None and not (isinstance(tz, str) and isinstance(given, str)):
        raise ParameterError("tz is the time zone of a schedule in words, such as Europe/Stockholm.", field="tz")
    if isinstance(given, str):
        return parse_schedule(given, None if tz is None else str(tz))
    if isinstance(given, dict):
        return Schedule.from_json({"version": 1, **given})
    raise ParameterError('schedule must be text such as "every 5m", or an object as jobs show it.', field="schedule")


def _check_no_mask(given: Mapping[str, Json]) -> None:
    """Raise `ParameterError` for a masked value: it would take the place of the secret that it stands for."""
    for name, value in given.items():
        if any(MASK in text for text in _texts(value)):
            raise ParameterError(
                f"{name} contains {MASK}, which stands for a secret that is not shown.",
                "Pass the value, or use PATCH without this key, which keeps it.",
                name,
            )


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


# ============================================================ revisions


def _check_revision(visit: Visit, job: Job) -> int | None:
    """Return the revision that an edit must find, if the visitor asks for one that the job has.

    Raise `RevisionError` if the visitor has read another revision, or wants the job not to exist.
    """
    wanted, unwanted = (visit.request.headers.get(name) for name in ("if-match", "if-none-match"))
    if wanted is not None and not _matches(wanted, job):
        raise JobChangedError(job.id, job.namespace, job.revision)
    if unwanted is not None and _matches(unwanted.replace("W/", ""), job):
        raise RevisionError("A job of this name exists.", "Choose another name, or leave out If-None-Match.")
    return None if wanted in (None, "*") else job.revision


def _check_absent(visit: Visit) -> None:
    if visit.request.headers.get("if-match") is not None:
        raise RevisionError("The job does not exist any more.", "Leave out If-Match to add it again.")


def _matches(tags: str, job: Job) -> bool:
    return any(tag.strip() in ("*", answers.tag_of(job)) for tag in tags.split(","))


def _created(visit: Visit, job: Job) -> Response:
    location = address_of(visit.links.to("api", "v1", "jobs", job.namespace, job.id))
    return answers.job_answer(visit, job, HTTPStatus.CREATED, {"location": location})


ONE = "api/v1/jobs/{namespace}/{id}"
TAKES = (answers.JSON,)

ROUTES = [
    Route(
        method="POST",
        path="api/v1/jobs",
        handler=add,
        action=Action.ADD,
        takes=TAKES,
        body={"$ref": "#/components/schemas/NewJob"},
        answer="Job",
        status=HTTPStatus.CREATED,
    ),
    Route(
        method="PUT",
        path=ONE,
        handler=put,
        action=Action.EDIT,
        takes=TAKES,
        body={"$ref": "#/components/schemas/JobDescription"},
        answer="Job",
    ),
    Route(
        method="PATCH",
        path=ONE,
        handler=patch,
        action=Action.EDIT,
        takes=(MERGE_PATCH, answers.JSON),
        body={"$ref": "#/components/schemas/JobPatch"},
        answer="Job",
    ),
    Route(
        method="DELETE",
        path=ONE,
        handler=remove,
        action=Action.REMOVE,
        answer=None,
        status=HTTPStatus.NO_CONTENT,
    ),
]
