"""Convert filters of jobs, runs and changes to SQL conditions. Pure; the dialects differ only in their parameters."""

from __future__ import annotations

from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.stores.messages import FEW_JOBS, MOST_RECORDED, ChangeFilter, JobFilter, RunFilter

# Whether the schedule of a disabled job has ended. The index on disabled jobs contains this expression.
HAS_ENDED = "coalesce(disabled_reason, '') = 'ended'"

# Whether a change is neither a trigger nor a cancellation. PostgreSQL has an index with this condition.
IS_DECISION = "c.action NOT IN ('trigger', 'cancel')"


# When a node last recorded a run, {} being its name. Other nodes record runs as cancelled and as interrupted.
RECORDED_AT = f"""
    (SELECT max(CASE WHEN n.finished_at > n.claimed_at AND n.outcome NOT IN ('cancelled', 'interrupted')
                     THEN n.finished_at
                     ELSE n.claimed_at END)
       FROM (SELECT node, claimed_at, finished_at, outcome FROM run ORDER BY id DESC LIMIT {MOST_RECORDED}) n
      WHERE n.node = {{}})
"""


# Whether a run `r` has one of the outcomes that SQLite has an index for: all but `USUAL_OUTCOMES`.
IS_UNUSUAL = "r.outcome NOT IN ('noop', 'success')"


class Conditions:
    """The conditions of a WHERE clause, and the values of its parameters."""

    def __init__(self, parameter: str) -> None:
        """Start without conditions. *parameter* is the form of a parameter, with {} for its number if any."""
        self._parameter = parameter
        self._texts: list[str] = []
        self.values: list[object] = []

    def require(self, text: str, *values: object) -> None:
        """Add a condition. Each {} in *text* stands for one of *values*."""
        self._texts.append(text.format(*[self.take(value) for value in values]))

    def take(self, value: object) -> str:
        """Add a value, and return its parameter."""
        parameter = self.next()
        self.values.append(value)
        return parameter

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
    if wanted.ended is not None:
        ended = f"coalesce(s.phase, '') = 'disabled' AND {HAS_ENDED}"
        where.require(ended if wanted.ended else f"NOT ({ended})")
    return where


def conditions_of_runs(wanted: RunFilter, parameter: str, *, exists: bool, id: str = "r.id") -> Conditions:
    """Return the conditions of *wanted* for a run `r` of a job `j`.

    If the filter names one job, *exists* tells whether that job exists. If not, it selects the runs of removed jobs
    with that name. For *id*, see `require_of_runs`.
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
    require_of_runs(where, wanted, id)
    return where


def conditions_of_changes(wanted: ChangeFilter, parameter: str) -> Conditions:
    """Return the conditions of *wanted* for a change `c` of a job `j`. Jobs that it names are found separately."""
    where = Conditions(parameter)
    if wanted.id is None and wanted.namespace is not None:
        where.require("j.namespace = {}", wanted.namespace)
    if wanted.since is not None:
        where.require("c.at >= {}", wanted.since)
    if wanted.decisions_only:
        where.require(IS_DECISION)
    return where


# Each half has an index of its own.
JOBS_OF_NAMESPACE = """
    SELECT uid FROM job WHERE namespace = {} AND removed_at IS NULL
     UNION ALL
    SELECT uid FROM job WHERE namespace = {} AND removed_at IS NOT NULL
"""
COUNT_FEW_JOBS = f"SELECT count(*) FROM ({JOBS_OF_NAMESPACE} LIMIT {FEW_JOBS + 1}) AS of_namespace"


def require_of_runs(where: Conditions, wanted: RunFilter, id: str = "r.id") -> None:
    """Add the conditions of *wanted* for the columns of a run `r`. *id* is the expression of its id."""
    for condition, value in (
        ("r.outcome = {}", None if wanted.outcome is None else wanted.outcome.value),
        ("r.trigger = {}", None if wanted.trigger is None else wanted.trigger.value),
        ("r.claimed_at >= {}", wanted.since),
        ("r.claimed_at <= {}", wanted.until),
        (f"{id} < {{}}", wanted.before),
    ):
        if value is not None:
            where.require(condition, value)
