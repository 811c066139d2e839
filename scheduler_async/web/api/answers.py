"""What the API answers: JSON values, and parts of lists with a link to the next part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form, plain
from scheduler_async.jobs.pages import Page
from scheduler_async.shielding import in_breaths
from scheduler_async.texts import json_text
from scheduler_async.web.forms import job_form
from scheduler_async.web.visit import Visit

T = TypeVar("T")

JSON = "application/json"

# So many items are made, and encoded, at once.
BATCH = 25


def answer(value: object, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    """Return *value* as JSON."""
    return Response(json_text(value), status, dict(headers or {}), JSON)


async def listed(visit: Visit, page: Page[T], form_of: Callable[[T], Form], **more: object) -> Response:
    """Return a part of a list, with a link to the next part.

    The items are made in a thread, since they may be large, and since a schedule tells when a running job runs next.
    """

    def texts_of(some: Sequence[T]) -> list[str]:
        return [json_text(form_of(item)) for item in some]

    items: list[str] = []
    async for some in in_breaths(page.items, BATCH):
        items += await asyncio.to_thread(texts_of, some)
    headers = {}
    if page.next is not None:
        given = {**visit.query, "after": page.next}
        headers["link"] = f'<?{urlencode(given)}>; rel="next"'
    looked_back_to = None if page.looked_back_to is None else plain(page.looked_back_to)
    rest = json_text({"next": page.next, "looked_back_to": looked_back_to, **more})
    return Response(f'{{"items": [{", ".join(items)}], {rest[1:]}', HTTPStatus.OK, headers, JSON)


def all_of(items: Iterable[Any], **more: object) -> Response:
    """Return a list that has no further parts."""
    return answer({"items": list(items), "next": None, "looked_back_to": None, **more})


def tag_of(job: Job) -> str:
    """Return the revision of a job as an entity tag."""
    return f'"{job.revision}"'


def job_answer(
    visit: Visit, job: Job, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a job, with its revision as the entity tag."""
    return answer(job_form(visit, job), status, {"etag": tag_of(job), **(headers or {})})
