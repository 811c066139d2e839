"""Everything that the page can do to jobs and runs. Pages and the API call it, and nothing else changes anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, TypeAlias

from scheduler_async.errors import quoted
from scheduler_async.jobs.history import Action, acting_as
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import RunRow
from scheduler_async.schedules.after import After
from scheduler_async.schedules.base import Schedule
from scheduler_async.web.errors import ForbiddenError
from scheduler_async.web.visit import Visit

VIA = "page"


def recorded(visit: Visit) -> AbstractContextManager[None]:
    """Record the changes in this block as those of the visitor."""
    return acting_as(visit.access.who, via=VIA)


async def pause(visit: Visit, namespace: str, id: str, *, reason: str | None = None, until: str | None = None) -> Job:
    """Pause a job; *until* is an instant or a duration."""
    visit.require(Action.PAUSE)
    await visit.job(namespace, id)
    with recorded(visit):
        return await visit.scheduler.pause_job(id, namespace=namespace, reason=reason, until=until)


async def resume(visit: Visit, namespace: str, id: str) -> Job:
    """Resume a job."""
    visit.require(Action.RESUME)
    await visit.job(namespace, id)
    with recorded(visit):
        return await visit.scheduler.resume_job(id, namespace=namespace)


async def disable(visit: Visit, namespace: str, id: str, *, reason: str | None = None) -> Job:
    """Disable a job."""
    visit.require(Action.DISABLE)
    await visit.job(namespace, id)
    options = {} if reason is None else {"reason": reason}
    with recorded(visit):
        return await visit.scheduler.disable_job(id, namespace=namespace, **options)


async def run(visit: Visit, namespace: str, id: str, *, payload: Json = None) -> int:
    """Run a job now, in any process that has its handler, and return the id of the run.

    A payload of one's own needs the role that may edit the job: for a command, it is the command.
    """
    visit.require(Action.TRIGGER)
    if payload is not None:
        visit.require(Action.EDIT)
    await visit.job(namespace, id)
    with recorded(visit):
        return await visit.scheduler.trigger_job(id, namespace=namespace, payload=payload, anywhere=True)


async def cancel(visit: Visit, run_id: int, *, reason: str | None = None) -> RunRow:
    """Cancel a run, and return its row, which may not tell yet."""
    visit.require(Action.CANCEL)
    await visit.run(run_id)
    with recorded(visit):
        await visit.scheduler.cancel_run(run_id, reason=reason)
    return await visit.run(run_id)


async def remove(visit: Visit, namespace: str, id: str, *, revision: int | None = None) -> Job:
    """Remove a job, if it still has this *revision*, and return it as it was."""
    visit.require(Action.REMOVE)
    await visit.job(namespace, id)
    with recorded(visit):
        return await visit.scheduler.remove_job(id, namespace=namespace, revision=revision)


async def add(visit: Visit, namespace: str, id: str | None, described: Mapping[str, Any]) -> Job:
    """Add a job. One in a namespace that the visitor cannot see is refused."""
    visit.require(Action.ADD)
    if not visit.access.sees(namespace):
        raise ForbiddenError(
            f"You may not add jobs to the namespace {quoted(namespace)}.", "Choose a namespace of yours.", "namespace"
        )
    _check_followed(visit, described["schedule"])
    with recorded(visit):
        return await visit.scheduler.add_job(id=id, namespace=namespace, **described)


async def edit(visit: Visit, job: Job, changes: Mapping[str, Any], *, revision: int | None = None) -> Job:
    """Change fields of a job that the visitor has found, if it still has this *revision*."""
    visit.require(Action.EDIT)
    if "schedule" in changes and changes["schedule"] != job.schedule:
        _check_followed(visit, changes["schedule"])
    with recorded(visit):
        return await visit.scheduler.update_job(job.id, namespace=job.namespace, revision=revision, **changes)


def _check_followed(visit: Visit, schedule: Schedule) -> None:
    """Refuse a schedule that follows a job that the visitor cannot see: its own runs would tell how those end."""
    if isinstance(schedule, After) and schedule.namespace is not None and not visit.access.sees(schedule.namespace):
        raise ForbiddenError(
            f"You may not follow jobs of the namespace {quoted(schedule.namespace)}.",
            "Choose a job in a namespace of yours.",
            "schedule",
        )


Operation: TypeAlias = Callable[..., Awaitable[Any]]

ON_JOBS: Mapping[str, Operation] = MappingProxyType(
    {"pause": pause, "resume": resume, "disable": disable, "run": run, "remove": remove}
)
"""What can be done to one job or to many, by its name in addresses."""

NEEDS: Mapping[str, Action] = MappingProxyType(
    {
        "pause": Action.PAUSE,
        "resume": Action.RESUME,
        "disable": Action.DISABLE,
        "run": Action.TRIGGER,
        "remove": Action.REMOVE,
        "cancel": Action.CANCEL,
    }
)
"""The action of each of these, which decides about the role."""
