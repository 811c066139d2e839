"""Convert filters of jobs and runs to SQL conditions. Pure; the dialects differ only in their parameters."""

from __future__ import annotations

from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.stores.messages import JobFilter, RunFilter


class Conditions:
    """The conditions of a WHERE clause, and the values of its parameters."""

    def __init__(self, parameter: str) -> None:
        """Start without conditions. *parameter* is the form of a parameter, with {} for its number if any."""
        self._parameter = parameter
        self._texts: list[str] = []
        self.values: list[object] = []

    def require(self, text: str, *values: object) -> None:
        """Add a condition. Each {} in *text* stands for one of *values*."""
        numbers = []
        for value in values:
            numbers.append(self.next())
            self.values.append(value)
        self._texts.append(text.format(*numbers))

    def next(self) -> str:
        """Return the next parameter."""
        return self._parameter.format(len(self.values) + 1)

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self._texts)}" if self._texts else ""


def conditions_of_jobs(wanted: JobFilter, parameter: str) -> Conditions:
    """Return the conditions of *wanted* for a job `j` and its state `s`. Metadata has no column and is not included."""
    where = Conditions(parameter)
    where.require("j.removed_at IS NULL")
    if wanted.status in (Status.QUEUED, Status.RUNNING):
        where.require("s.activity = {}", wanted.status.value)
    elif wanted.status is not None:
        phase = Phase.ACTIVE if wanted.status is Status.IDLE else Phase(wanted.status)
        where.require("s.activity = 'idle' AND s.phase = {}", phase.value)
    for column, value in (
        ("j.namespace", wanted.namespace),
        ("j.user_id", wanted.user_id),
        ("j.handler", wanted.handler),
        ("j.job_group", wanted.group),
        ("j.priority", None if wanted.priority is None else wanted.priority.value),
    ):
        if value is not None:
            where.require(f"{column} = {{}}", value)
    if wanted.due_before is not None:
        where.require("s.phase = 'active' AND s.next_run_at < {}", wanted.due_before)
    return where


def conditions_of_runs(wanted: RunFilter, parameter: str, *, exists: bool) -> Conditions:
    """Return the conditions of *wanted* for a run `r` of a job `j`.

    If the filter names one job, *exists* tells whether that job exists. If not, it selects the runs of removed jobs
    with that name.
    """
    where = Conditions(parameter)
    if wanted.run is not None:
        where.require("r.id = {}", wanted.run)
    if wanted.id is not None and wanted.namespace is not None:
        which, is_removed = ("=", "IS NULL") if exists else ("IN", "IS NOT NULL")
        named = f"SELECT uid FROM job WHERE namespace = {{}} AND id = {{}} AND removed_at {is_removed}"
        where.require(f"r.uid {which} ({named})", wanted.namespace, wanted.id)
    elif wanted.id is not None:
        where.require("j.id = {}", wanted.id)
    elif wanted.namespace is not None:
        where.require("j.namespace = {}", wanted.namespace)
    if wanted.outcome is not None:
        where.require("r.outcome = {}", wanted.outcome.value)
    if wanted.since is not None:
        where.require("r.claimed_at >= {}", wanted.since)
    return where
