"""How changes of jobs look on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scheduler_async.cli.job_names import names_of
from scheduler_async.cli.long_text import shortened
from scheduler_async.cli.terminal import HERE, console, laid_out, now, say
from scheduler_async.errors import SchedulerError
from scheduler_async.jobs.history import Action, ChangeRow
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.retries import Retry
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping import time_format
from scheduler_async.timekeeping.instants import parse_instant

CHANGES = ("slug", "when", "action", "by", "note")
LONGEST_VALUE = 60  # characters

# The fields that the action, the reason or the end of a pause tell of.
TOLD_OTHERWISE = {"status", "disabled_reason", "paused_reason", "paused_until"}


def show_changes(rows: Sequence[ChangeRow]) -> None:
    """Print changes, one per line."""
    if not rows:
        say("No changes.")
        return
    names = names_of([(row.namespace, row.job_id) for row in rows])
    cells = [
        (name, row.at, str(row.action), author_of(row), story_of(row)) for name, row in zip(names, rows, strict=True)
    ]
    console().print(laid_out(CHANGES, cells))


def author_of(row: ChangeRow) -> str:
    """Return the author of a change, and the tool that was used."""
    if row.actor is None:
        return "-" if row.via is None else row.via
    return row.actor if row.via is None else f"{row.actor} ({row.via})"


def story_of(row: ChangeRow) -> str:
    """Return what changed, and why."""
    run = row.after.get("run")
    if row.action in (Action.TRIGGER, Action.CANCEL) and run is not None:
        return f"run {shown('run', run)}" + ("" if row.reason is None else f"; {row.reason}")
    parts = [
        told(name, after) if row.action == Action.ADD else f"{name}: {shown(name, row.before.get(name))} → {told_after}"
        for name, after in row.after.items()
        if (told_after := shown(name, after)) and name not in TOLD_OTHERWISE
    ]
    if row.action in (Action.PAUSE, Action.RESUME, Action.DISABLE):
        parts = [part for part in parts if not part.startswith("enabled:")]
    if isinstance(until := row.after.get("paused_until"), str):
        parts.append(f"until {time_format.absolute(parse_instant(until), now(), HERE)}")
    return "; ".join([*parts, *([] if row.reason is None else [row.reason])])


def told(name: str, value: Json) -> str:
    """Return a field of a new job."""
    return shown(name, value) if name == "schedule" else f"{name}: {shown(name, value)}"


def shown(name: str, value: Json) -> str:
    """Return the value of a field for people, cut if it is long."""
    if name in ("schedule", "retry") and isinstance(value, dict):
        try:
            return Schedule.from_json(value).describe(HERE) if name == "schedule" else Retry.from_json(value).describe()
        except (SchedulerError, TypeError, ValueError):
            pass  # of a newer version, or of another program: shown as it is
    if value is None:
        return "none"
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key != "version"}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(" ".join(text.split()), LONGEST_VALUE)
