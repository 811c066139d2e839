"""The names of jobs in commands: the id, or "namespace/id" outside the default namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler_async import Job, Scheduler

DEFAULT_NAMESPACE = "default"
# Comparing more names takes longer than a reader of an error waits.
MOST_COMPARED = 5_000


def name_of(namespace: str, job_id: str) -> str:
    """Return the name under which commands find a job: its id, or "namespace/id" outside the default namespace."""
    from scheduler_async.jobs.names import key_of

    return job_id if namespace == DEFAULT_NAMESPACE else key_of(namespace, job_id)


def names_of(jobs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of *jobs*, each a namespace and an id, for one table.

    Beside jobs of other namespaces, "default/a/b" tells an id with a slash from the job "b" of a namespace "a".
    """
    from scheduler_async.jobs.names import key_of

    has_namespaces = any(namespace != DEFAULT_NAMESPACE for namespace, _ in jobs)
    return [key_of(*job) if has_namespaces and "/" in job[1] else name_of(*job) for job in jobs]


def parts_of_name(name: str) -> tuple[str, str] | None:
    """Return the namespace and the id in "namespace/id", as `key_of` writes it; None if *name* is something else."""
    from scheduler_async.jobs.names import key_of

    is_escaped = name.startswith("/")
    namespace, _, job_id = name.removeprefix("/").partition("/")
    if is_escaped:
        namespace = namespace.replace("%2F", "/").replace("%25", "%")
    return (namespace, job_id) if namespace and job_id and key_of(namespace, job_id) == name else None


async def similar_names(scheduler: Scheduler, slug: str, namespace: str) -> list[str]:
    """Return the names of jobs that the user may have meant by *slug*, the likeliest first."""
    from difflib import get_close_matches

    jobs = await scheduler.list_jobs(limit=MOST_COMPARED)
    elsewhere = [name_of(job.namespace, job.id) for job in jobs if job.id == slug and job.namespace != namespace]
    names = [name_of(job.namespace, job.id) for job in jobs]
    return list(dict.fromkeys((*elsewhere, *get_close_matches(name_of(namespace, slug), names))))


async def find(scheduler: Scheduler, slug: str, namespace: str | None) -> Job:
    """Return the job with this name, which is an id, or "namespace/id" as `list` shows it."""
    from scheduler_async import JobNotFoundError

    where, job_id = await resolve(scheduler, slug, namespace)
    job = await scheduler.get_job(job_id, namespace=where)
    if job is None:
        raise JobNotFoundError(job_id, where)
    return job


async def resolve(
    scheduler: Scheduler, slug: str, namespace: str | None, *, with_removed: bool = False
) -> tuple[str, str]:
    """Return the namespace and the id that *slug* stands for, in *namespace* if one is given.

    Otherwise, a job of the default namespace with this id comes before the job that `list` shows under this name.
    *with_removed* also finds a removed job that has left runs or changes.
    """

    async def is_there(where: str, job_id: str) -> bool:
        if await scheduler.get_job(job_id, namespace=where) is not None:
            return True
        if not with_removed:
            return False
        return bool(
            await scheduler.run_log(job_id, namespace=where, limit=1)
            or await scheduler.changes(job_id, namespace=where, limit=1)
        )

    if namespace is not None:
        return namespace, slug
    elsewhere = parts_of_name(slug)
    if elsewhere is not None and not await is_there(DEFAULT_NAMESPACE, slug) and await is_there(*elsewhere):
        return elsewhere
    return DEFAULT_NAMESPACE, slug
