"""Values as `--json` prints them and the HTTP API answers: the names of the library, and JSON values. Pure.

Jobs and runs look like what their `to_json()` returns.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from scheduler_async.jobs.answers import Explanation, Node, PassSummary, Upcoming
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form, plain
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import RunStats
from scheduler_async.rules.explaining import after_pause
from scheduler_async.schedules.cron import Cron
from scheduler_async.stores.copy_records import Verdict

if TYPE_CHECKING:
    from scheduler_async.stores.copying import Copy


def listed_form(job: Job) -> Form:
    """A job as `list` shows it: its columns come first, under the names they have there."""
    return {
        "slug": job.id,
        "cron": cron_of(job),
        "next_due_at": plain(after_pause(job).next_run_at),
        "retry_status": retry_status(job),
        "last_exit": job.last_exit_code,
        **job.to_json(),
    }


def cron_of(job: Job, zone: tzinfo = UTC) -> str:
    """When it runs, as it was written: the cron expression, or what there is instead, on the clocks of *zone*."""
    schedule = job.schedule
    if isinstance(schedule, Cron):
        return f"{schedule.expression} {schedule.tz}" if schedule.tz else schedule.expression
    return schedule.describe(zone)


def retry_status(job: Job) -> str | None:
    """How much of its policy for failures is used up; None if it has not failed."""
    if job.retry is not None and job.retry.max_retries is not None:
        return f"{min(job.retry_count, job.retry.max_retries)}/{job.retry.max_retries}"
    return f"{job.consecutive_errors} failed" if job.consecutive_errors else None


def row_form(row: RunRow, output: str | None = None, *, with_output: bool = False) -> Form:
    """A row of the run log."""
    form = row.to_json()
    return {**form, "output": output} if with_output else form


def upcoming_form(upcoming: Upcoming) -> Form:
    """A line of a preview."""
    return {
        "slug": upcoming.job.id,
        "namespace": upcoming.job.namespace,
        "at": plain(upcoming.at),
        "next_due_at": plain(upcoming.at),
        "priority": plain(upcoming.job.priority),
        "retries_left": upcoming.retries_left,
        "warnings": list(upcoming.warnings),
    }


def explanation_form(explanation: Explanation, sentence: str) -> Form:
    """Why a job does not run; the *sentence* is for people."""
    return {
        "reason": plain(explanation.reason),
        "until": plain(explanation.until),
        "sentence": sentence,
        "at": plain(explanation.at),
        "run": None if explanation.run is None else row_form(explanation.run),
    }


def stats_form(job: Job, stats: RunStats) -> Form:
    """Return the statistics of a job as JSON."""
    return {"slug": job.id, "namespace": job.namespace, **{name: plain(value) for name, value in asdict(stats).items()}}


def node_form(node: Node) -> Form:
    """A scheduler that shares the store; durations are seconds."""
    form = {name: plain(value) for name, value in asdict(node).items() if name != "is_self"}  # a command is not a node
    return {**form, "lease": node.lease.total_seconds(), "clock_skew": node.clock_skew.total_seconds()}


def copy_form(copy: Copy, sentence: str) -> Form:
    """What a copy came to; the *sentence* is for people."""
    return {
        "jobs": {verdict.value: copy.verdicts[verdict] for verdict in Verdict},
        "runs": {"added": copy.runs_added, "seen": copy.runs_seen, "left_out": len(copy.unreadable_runs)},
        "changes": {"added": copy.changes_added},
        "exceptions": [
            {
                "slug": ruling.job.id,
                "namespace": ruling.job.namespace,
                "verdict": ruling.verdict.value,
                "why": ruling.why,
            }
            for ruling in copy.exceptions
        ],
        "unreadable": [
            {"slug": found.job_id, "namespace": found.namespace, "run": run, "why": found.why}
            for found, run in (
                *((job, None) for job in copy.unreadable_jobs),
                *((run, run.number) for run in copy.unreadable_runs),
            )
        ],
        "sentence": sentence,
    }


def summary_form(summary: PassSummary) -> Form:
    """What a pass did."""
    return {**asdict(summary), "sentence": str(summary)}
