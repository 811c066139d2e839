"""How jobs and nodes look on a terminal: tables and sentences. JSON is in `json_output`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from rich.cells import cell_len
from rich.console import Group, RenderableType

from scheduler_async.calls import json_output
from scheduler_async.cli.error_text import explained
from scheduler_async.cli.job_names import names_of
from scheduler_async.cli.long_text import LONG_TEXT, SHORT_TEXT, shortened
from scheduler_async.cli.program_rules import would_run
from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.cli.tables import FIELD, VALUE, Columns
from scheduler_async.cli.terminal import HERE, coloured, console, in_columns, laid_out, moment, now, say
from scheduler_async.command import HANDLER, Command
from scheduler_async.errors import InvalidJobError
from scheduler_async.jobs.answers import Explanation, Node
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import Job
from scheduler_async.rules.explaining import after_pause
from scheduler_async.schedules.at import At
from scheduler_async.schedules.manual import Manual
from scheduler_async.stores.liveness import SKEW
from scheduler_async.timekeeping import time_format
from scheduler_async.timekeeping.durations import short_span
from scheduler_async.timekeeping.instants import to_micros

DONE = "done"
"""The status of a job that is disabled only because its schedule has ended."""


# ---------------------------------------------------------------- jobs


def outlook(job: Job) -> str:
    """Return when a job runs, and when it runs next."""
    if job.ended:
        return "done, its schedule has ended"
    if not job.enabled:
        return "disabled until it is resumed"
    if job.state.phase is Phase.PAUSED:
        end = "" if job.paused_until is None else f"{moment(job.paused_until)}, or "
        return f"it starts again {end}when it is resumed"
    if job.status is not Status.IDLE:
        return f"{job.status.value} now"
    if job.schedule.follows_runs and job.next_run_at is None:
        return f"runs {job.schedule.describe(HERE)}"
    if isinstance(job.schedule, Manual) or job.next_run_at is None:
        return "runs when it is triggered"
    if not isinstance(job.schedule, At):
        return f"{job.schedule.describe(HERE)}; next {moment(job.next_run_at)}"
    if job.next_run_at > now():
        return f"once, {moment(job.next_run_at)}"
    has_passed = f"once; {time_format.absolute(job.next_run_at, now(), HERE)} has passed"
    is_run = would_run(job, to_micros(now()))
    if is_run is None:
        return f"{has_passed}; whether it still runs depends on the misfire_grace of its program"
    if not is_run:
        return f"{has_passed}, so its misfire policy skips it"
    return f"{has_passed}, so it is due now"


def status_of(job: Job) -> AnyText:
    """Return the status of a job in its colour."""
    return Text(DONE, "dim") if job.ended else coloured(job.status)


def jobs_table(jobs: Sequence[Job]) -> RenderableType:
    """Return a table with a line for each job. In a narrow terminal, notes stand below it."""
    heads = ("slug", "cron", "priority", "status", "next_due_at", "retry_status", "last_exit", "note")
    rows = [
        (
            name,
            json_output.cron_of(job, HERE),
            coloured(job.priority),
            status_of(job),
            after_pause(job).next_run_at or "-",
            json_output.retry_status(job) or "-",
            "-" if job.last_exit_code is None else Text(str(job.last_exit_code), "red" if job.last_exit_code else ""),
            why_paused(job),
        )
        for name, job in zip(names_of_jobs(jobs), jobs, strict=True)
    ]
    table = in_columns(heads, rows)
    if table is not None:
        return table
    notes = [Text(f"{name} is {note}.") for name, *_, note in rows if note]
    return Group(laid_out(heads[:-1], [row[:-1] for row in rows]), *notes)


def why_paused(job: Job) -> str:
    """Return until when a job is paused, and why; nothing if it is not, or if neither is known."""
    if job.state.phase is not Phase.PAUSED or (job.paused_until is None and job.paused_reason is None):
        return ""
    until = "" if job.paused_until is None else f" until {time_format.absolute(job.paused_until, now(), HERE)}"
    reason = shortened(" ".join((job.paused_reason or "").split()), SHORT_TEXT).rstrip(".")
    return f"paused{until}: {reason}" if reason else f"paused{until}"


def names_of_jobs(jobs: Sequence[Job]) -> list[str]:
    """Return the names of *jobs* for one table."""
    return names_of([(job.namespace, job.id) for job in jobs])


def show_jobs(jobs: Sequence[Job]) -> None:
    """Print *jobs* as a table."""
    if jobs:
        console().print(jobs_table(jobs))
    else:
        say("No jobs.")


def show_job(job: Job, explanation: Explanation) -> None:
    """Print every field of a job, and why it is not running."""
    form = job.to_json()
    shown: dict[str, object] = {
        **form,
        "schedule": job.schedule.describe(HERE),
        "retry": None if job.retry is None else job.retry.describe(),
        "payload": None if job.payload is None else json.dumps(job.payload, ensure_ascii=False),
        "metadata": json.dumps(job.metadata, ensure_ascii=False) if job.metadata else None,
        "enabled": "yes" if job.enabled else "no",
        "ended": "yes" if job.ended else "no",
        "status": status_of(job),
    }
    if job.handler == HANDLER:
        with suppress(InvalidJobError):  # the payload is not a command, and is shown as it is
            shown = {**_command_shown(job), **shown, "payload": None}
    moments = {name: getattr(job, name) for name in form if name.endswith(("_at", "_until"))}
    moments["next_run_at"] = after_pause(job).next_run_at
    shown |= {name: None if at is None else moment(at) for name, at in moments.items()}
    screen = console()
    screen.print(_fields({name: value for name, value in shown.items() if value is not None}, screen.width))
    screen.print()
    say_why(job, explanation)


def _fields(shown: dict[str, object], width: int) -> RenderableType:
    """Return *shown* as two columns: names, and values that may take several lines."""
    names = max(map(cell_len, shown))
    columns = Columns((FIELD, VALUE), (names, max(width - names - 2, 1)))
    return Text("\n", keep="\n").join(
        columns.row(
            (
                Text(name, "bold"),
                value if isinstance(value, AnyText) else Text(shortened(str(value), LONG_TEXT), keep="\n\t"),
            )
        )
        for name, value in shown.items()
    )


def say_why(job: Job, explanation: Explanation) -> None:
    """Print why a job is not running right now, or what became of it at another time."""
    sentence, run = shortened_sentence(job, explanation.sentence), explanation.run
    if run is not None:
        texts = {name: shortened(getattr(run, name) or "", SHORT_TEXT) for name in ("message", "error")}
        run = replace(run, **texts)  # type: ignore[arg-type]
    say(explained(job, replace(explanation, sentence=sentence, run=run)))


def shortened_sentence(job: Job, sentence: str) -> str:
    """Return *sentence* with less of a long error of *job*, so that the text after the error is seen too."""
    error = (job.last_error or "").rstrip(".")
    if len(error) > SHORT_TEXT:
        sentence = sentence.replace(error, shortened(error, SHORT_TEXT))
    return shortened(sentence, LONG_TEXT)


def _command_shown(job: Job) -> dict[str, object]:
    """Return the fields of a command job: what it runs, where, and with which environment."""
    task = Command.from_payload(job.payload)
    return {
        "id": job.id,
        "command": task.line,
        "cwd": task.cwd,
        "env": " ".join(f"{name}={shlex.quote(value)}" for name, value in task.env.items()) or None,
        "payload of the command": None if task.payload is None else json.dumps(task.payload, ensure_ascii=False),
    }


# ---------------------------------------------------------------- nodes


def show_nodes(nodes: Sequence[Node]) -> None:
    """Print the nodes that share the store, and a warning for each clock that is wrong."""
    if not nodes:
        say("No nodes: no scheduler is running on this store.")
        return
    rows = [
        (
            node.id,
            node.host,
            str(node.pid),
            node.since,
            short_span(round(node.lease.total_seconds())) if node.lease else Text("expired", "red"),
            str(node.running),
            Text(time_format.lasting(node.clock_skew), "yellow" if abs(node.clock_skew) > SKEW else ""),
        )
        for node in nodes
    ]
    console().print(laid_out(("id", "host", "pid", "since", "lease", "running", "clock_skew"), rows))
    for warning in warnings_about(nodes):
        say(warning)


def warnings_about(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a warning for each node that cannot be read, and for each clock that is wrong."""
    for node in nodes:
        if node.unreadable is not None:
            yield f"Warning: the store cannot read the row of {node.id}: {node.unreadable}."
        if abs(node.clock_skew) > SKEW:
            which = "ahead of" if node.clock_skew > timedelta(0) else "behind"
            skew = time_format.lasting(abs(node.clock_skew))
            yield f"Warning: the clock of {node.host} is {skew} {which} that of the store."
