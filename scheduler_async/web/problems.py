"""Errors as answers: their status, and RFC 9457 problem details. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from scheduler_async.errors import (
    BackfillNotFoundError,
    InvalidJobError,
    InvalidScheduleError,
    JobAlreadyRunningError,
    JobChangedError,
    JobDisabledError,
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    QuotaError,
    RunEndedError,
    RunNotFoundError,
    SchedulerError,
    SchedulerStoppingError,
    StoreBusyError,
    StoreError,
)
from scheduler_async.web.errors import MethodNotAllowedError, NoAccessError, WebError

CONTENT_TYPE = "application/problem+json"

RETRY_AFTER = 2  # seconds

# The first class that fits decides.
STATUSES: tuple[tuple[type[SchedulerError], HTTPStatus], ...] = (
    (JobNotFoundError, HTTPStatus.NOT_FOUND),
    (RunNotFoundError, HTTPStatus.NOT_FOUND),
    (BackfillNotFoundError, HTTPStatus.NOT_FOUND),
    (JobExistsError, HTTPStatus.CONFLICT),
    (JobDisabledError, HTTPStatus.CONFLICT),
    (JobChangedError, HTTPStatus.PRECONDITION_FAILED),
    (JobAlreadyRunningError, HTTPStatus.CONFLICT),
    (RunEndedError, HTTPStatus.CONFLICT),
    (QuotaError, HTTPStatus.FORBIDDEN),
    (SchedulerStoppingError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (InvalidJobError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidScheduleError, HTTPStatus.UNPROCESSABLE_ENTITY),
)

# The remedies of the errors name calls of Python. These do the same with the page.
REMEDIES: Mapping[type[SchedulerError], str] = {
    JobNotFoundError: "The list of jobs shows those that exist.",
    JobExistsError: "Choose another id, or use PUT to replace the job.",
    JobAlreadyRunningError: "Try again when it has ended, or cancel it.",
    JobChangedError: "Read it again, then edit it.",
    JobDisabledError: "It does not start until you resume it.",
    JobEndedError: "Give it a new schedule, or run it once more.",
    RunNotFoundError: "The list of runs shows those that are kept.",
    RunEndedError: "The run shows how it ended.",
    BackfillNotFoundError: "Backfills are removed some time after their end.",
}


def status_of(error: SchedulerError) -> HTTPStatus:
    """Return the status with which *error* is answered."""
    if isinstance(error, WebError):
        return HTTPStatus(error.status)
    found = (status for kind, status in STATUSES if isinstance(error, kind))
    return next(found, HTTPStatus.SERVICE_UNAVAILABLE)


def remedy_of(error: SchedulerError) -> str | None:
    """Return what helps against *error*, for people at the page."""
    remedy = REMEDIES.get(type(error), getattr(error, "remedy", None))
    return remedy if isinstance(remedy, str) else None


def detail_of(error: SchedulerError, *, sees_all: bool) -> str:
    """Return the sentence of *error*. Those of stores name their address, which is for visitors of all namespaces."""
    if isinstance(error, StoreBusyError) and not sees_all:
        return "The store did not answer in time. Narrow the search, or try again later."
    if isinstance(error, StoreError) and not sees_all:
        return "The store cannot be used."
    sentence = getattr(error, "sentence", None)
    return sentence if isinstance(sentence, str) else str(error)


def problem_of(error: SchedulerError, *, sees_all: bool) -> dict[str, Any]:
    """Return the problem details of *error*, for a visitor who *sees_all* namespaces or only some."""
    status = status_of(error)
    form = {
        "type": type(error).__name__,
        "title": status.phrase,
        "status": int(status),
        "detail": detail_of(error, sees_all=sees_all),
        "field": getattr(error, "field", None),
        "remedy": remedy_of(error),
    }
    return {name: value for name, value in form.items() if value is not None}


def headers_of(error: SchedulerError) -> dict[str, str]:
    """Return the headers that belong to the answer."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, NoAccessError):
        headers["www-authenticate"] = 'Bearer realm="scheduler_async"'
    if isinstance(error, MethodNotAllowedError):
        headers["allow"] = ", ".join(error.allowed)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = str(RETRY_AFTER)
    return headers
