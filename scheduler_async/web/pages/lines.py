"""Lines of lists: what a table says of a job, a run or a change. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

from markupsafe import Markup

from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import stats_of
from scheduler_async.timekeeping.time_format import took
from scheduler_async.web.pages import words
from scheduler_async.web.pages.job_zones import Zones
from scheduler_async.web.pages.kinds import Sign, sign_of_job, sign_of_run
from scheduler_async.web.pages.moments import Moments
from scheduler_async.web.pages.sparkline import sparkline

LONGEST_NAME = 60  # characters; the link shows all of it


class JobLine(NamedTuple):
    """A job in a list."""

    job: Job
    name: str
    sign: Sign
    schedule: str
    next: Markup
    spark: Markup | str
    note: str


class RunLine(NamedTuple):
    """A run in a list."""

    row: RunRow
    name: str
    sign: Sign
    at: Markup
    took: str
    cause: str
    story: str
    percent: int | None


class ChangeLine(NamedTuple):
    """A change in a list."""

    row: ChangeRow
    name: str
    at: Markup
    author: str
    edits: list[tuple[str, str, str]]
    reason: str


def name_of(namespace: str, id: str, longest: int = LONGEST_NAME) -> str:
    """Return the name of a job, with its namespace unless that is the usual one.

    A long name is cut in its middle: the names of many jobs begin alike, and a namespace may be long, too.
    """
    name = id if namespace == "default" else f"{namespace}/{id}"
    if len(name) <= longest:
        return name
    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def job_line(job: Job, moments: Moments, next_run: datetime | None, rows: Sequence[RunRow] | None = None) -> JobLine:
    """Return the line of a job that runs next at *next_run*, with its last *rows*."""
    zone = moments.zone(job.schedule)
    return JobLine(
        job,
        name_of(job.namespace, job.id),
        sign_of_job(job, moments.now),
        words.cut(words.schedule_of(job, zone), 90),
        moments.both(next_run, zone),
        "" if rows is None else sparkline(rows),
        _note(job, moments, zone),
    )


def _note(job: Job, moments: Moments, zone: tzinfo) -> str:
    """Return why a job is paused, or how often it has failed."""
    if job.status is Status.PAUSED:
        until = "" if job.paused_until is None else f"until {_absolute(job.paused_until, moments, zone)}"
        reason = words.cut(job.paused_reason or "", 60)
        return ": ".join(part for part in (until, reason) if part)
    if job.consecutive_errors:
        return f"{job.consecutive_errors:,} failed in a row"
    return ""


def _absolute(at: datetime, moments: Moments, zone: tzinfo) -> str:
    return str(moments.at(at, zone).striptags())


def runs_of(rows: Sequence[RunRow], moments: Moments, zones: Zones, longest_story: int = words.SHORT) -> list[RunLine]:
    """Return lines of runs, which the visitor may see as they are, with times in the *zones* of their jobs."""
    return [
        RunLine(
            row,
            name_of(row.namespace, row.job_id),
            sign_of_run(row),
            moments.at(row.started_at or row.scheduled_for, _zone(row, zones, moments), seconds=True),
            _took(row, moments.now),
            words.cause_of(row),
            words.cut(words.story_of(row), longest_story),
            None if row.progress is None or row.outcome is not None else round(100 * min(max(row.progress, 0), 1)),
        )
        for row in rows
    ]


def _zone(row: RunRow | ChangeRow, zones: Zones, moments: Moments) -> tzinfo:
    """Return the zone of a row's job. A removed job has none."""
    return zones.get((row.namespace, row.job_id)) or moments.zone()


def _took(row: RunRow, now: datetime) -> str:
    if row.outcome is None and row.started_at is not None:
        return took(max((now - row.started_at).total_seconds(), 0) * 1000)
    return "" if row.duration_ms is None else took(row.duration_ms)


def changes_of(rows: Sequence[ChangeRow], moments: Moments, zones: Zones) -> list[ChangeLine]:
    """Return lines of changes, which the visitor may see as they are, with times in the *zones* of their jobs."""
    return [
        ChangeLine(
            row,
            name_of(row.namespace, row.job_id),
            moments.both(row.at, _zone(row, zones, moments)),
            words.cut(words.author_of(row), 60),
            words.edits_of(row, _zone(row, zones, moments)),
            words.cut(row.reason or ""),
        )
        for row in rows
    ]


class Figures(NamedTuple):
    """What the last runs of a job come to. Durations are in milliseconds."""

    runs: int
    success_rate: float | None
    p50: float | None
    p95: float | None
    late_p50: float | None
    late_p95: float | None


def figures_of(rows: Sequence[RunRow]) -> Figures:
    """Return the figures of the last runs of a job."""
    stats = stats_of(rows)
    return Figures(stats.total, stats.success_rate, stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms)


def took_of(row: RunRow, now: datetime) -> str:
    """Return how long a run took, or has taken *now*."""
    return _took(row, now)


def took_in(seconds: float) -> str:
    """Return a duration in seconds for people."""
    return took(seconds * 1000)
