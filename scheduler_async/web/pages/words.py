"""What jobs, runs and changes say of themselves, in the words of the command line. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, tzinfo

from scheduler_async.errors import SchedulerError
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.history import Action, ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import RunRow
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.timekeeping.durations import format_interval
from scheduler_async.timekeeping.instants import parse_instant
from scheduler_async.timekeeping.time_format import absolute

SHORT, LONG = 160, 600  # characters


def cut(text: str, size: int = SHORT) -> str:
    """Return *text* on one line, with at most *size* characters."""
    text = " ".join(text[: 4 * size].split())
    return text if len(text) <= size else f"{text[: size - 1].rstrip()}…"


def schedule_of(job: Job, zone: tzinfo) -> str:
    """Return when a job runs, in words."""
    return job.schedule.describe(zone)


def expression_of(schedule: Schedule) -> str | None:
    """Return the cron expression as it was written, if the schedule is one."""
    return schedule.expression if isinstance(schedule, Cron) else None


def cause_of(row: RunRow) -> str:
    """Return why a run was made: "schedule", "retry 2", "manual"."""
    word = row.trigger.value.replace("_", " ")
    return f"{word}, attempt {row.attempt}" if row.attempt > 1 else word


def reason_of(row: RunRow) -> str:
    """Return why occurrences were skipped: "already running (3 occurrences)"."""
    reason = str(row.reason or "").replace("_", " ")
    return f"{reason} ({row.missed:,} occurrences)" if row.missed > 1 else reason


def story_of(row: RunRow) -> str:
    """Return the message or the error of a run, or why it was left out. The run must be as the visitor may see it."""
    if row.outcome is Outcome.SKIPPED and row.reason is not None:
        return reason_of(row)
    if row.outcome is Outcome.CANCELLED and row.reason is not None:
        return cut(str(row.reason))
    told = row.message or row.error or (row.progress_message if row.outcome is None else None) or ""
    return cut(told)


# ---------------------------------------------------------------- changes


def author_of(row: ChangeRow) -> str:
    """Return the author of a change."""
    return row.actor or ("the program" if row.via is None else row.via)


def edits_of(row: ChangeRow, zone: tzinfo) -> list[tuple[str, str, str]]:
    """Return the fields that a change has set: their names, and their values before and since."""
    if row.action in (Action.TRIGGER, Action.CANCEL):
        return []
    hidden = {"status", "disabled_reason", "paused_reason", *(("enabled",) if row.action != Action.EDIT else ())}
    return [
        (
            name.replace("_", " "),
            "" if row.action == Action.ADD else value_of(name, row.before.get(name), row.at, zone),
            value_of(name, value, row.at, zone),
        )
        for name, value in row.after.items()
        if name not in hidden
    ]


def value_of(name: str, value: Json, now: datetime, zone: tzinfo) -> str:
    """Return the value of a field for people, cut if it is long; times on the clock of *zone*, as told *now*."""
    if isinstance(value, str) and name.endswith(("_at", "_until")):
        try:
            return absolute(parse_instant(value, name), now, zone)
        except SchedulerError:
            pass  # written by another program: shown as it is
    if name == "schedule" and isinstance(value, dict):
        try:
            return Schedule.from_json(value).describe(zone)
        except (SchedulerError, TypeError, ValueError):
            pass  # of a newer version, or of another program: shown as it is
    if value is None:
        return "none"
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key != "version"}
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 80)


# ---------------------------------------------------------------- settings


def settings_of(job: Job, cursor: str | None) -> list[tuple[str, str]]:
    """Return the settings of a job that differ from the usual, and those that every job has; *cursor* as it is seen."""
    found = [("handler", job.handler), ("priority", job.priority.value)]
    retry = "the scheduler's" if job.retry is None else job.retry.describe()
    found.append(("retries", retry))
    found.append(("timeout", _duration(job.timeout) or "the scheduler's"))
    found.append(("if missed", job.misfire.value.replace("_", " ")))
    found.append(("if interrupted", job.on_interrupt.value.replace("_", " ")))
    if job.group:
        found.append(("group", job.group))
    if job.user_id:
        found.append(("user", job.user_id))
    if job.max_instances > 1:
        found.append(("at once", f"{job.max_instances} runs"))
    if job.max_instances > 1 or job.overlap.value != "skip":
        found.append(("overlap", job.overlap.value))
    if job.misfire_grace is not None:
        found.append(("misfire grace", _duration(job.misfire_grace)))
    if job.max_runs is not None:
        found.append(("ends after", f"{job.max_runs:,} runs"))
    if cursor is not None:
        found.append(("cursor", cut(cursor, LONG)))
    return found


def _duration(value: timedelta | None) -> str:
    return "" if value is None else format_interval(value)
