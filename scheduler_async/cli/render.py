"""How answers look on a terminal: jobs, runs, nodes and what is to come, as tables and sentences. JSON is elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from scheduler_async.cli import json_output, time_format
from scheduler_async.cli.copy_report import copied
from scheduler_async.cli.error_text import explained
from scheduler_async.cli.job_names import name_of, names_of
from scheduler_async.cli.long_text import shortened
from scheduler_async.cli.printing import lines_of
from scheduler_async.cli.program_rules import would_run
from scheduler_async.cli.safe_text import Text
from scheduler_async.cli.tables import Cell, Row
from scheduler_async.cli.terminal import HERE, coloured, console, in_columns, laid_out, moment, now, print_line, say
from scheduler_async.command import HANDLER, Command
from scheduler_async.errors import InvalidJobError
from scheduler_async.jobs.answers import Explanation, Node, Upcoming
from scheduler_async.jobs.enums import ENDED, Outcome, Phase, Status
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.jobs.statistics import RunStats
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.manual import Manual
from scheduler_async.stores.copy_records import Verdict
from scheduler_async.stores.copying import Copy
from scheduler_async.stores.nodes import SKEW
from scheduler_async.stores.run_codec import is_unreadable
from scheduler_async.timekeeping.durations import short_span
from scheduler_async.timekeeping.instants import to_micros

# How much of a long text is shown, in characters: in a line of a table, and where it is all there is to read.
SHORT_TEXT, LONG_TEXT = 200, 1_000

# More runs than a reader wants to see one by one, below the timeline that shows them.
MANY = 20


# ---------------------------------------------------------------- jobs


def outlook(job: Job) -> str:
    """When a job runs, and what is next."""
    if job.disabled_reason == ENDED:
        return "ended, since nothing is left of its schedule"
    if not job.enabled:
        return "disabled until it is resumed"
    if job.state.phase is Phase.PAUSED:
        return "it starts again when it is resumed"
    if job.status is not Status.IDLE:
        return f"{job.status.value} now"
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
        return f"{has_passed}, so that it is skipped, as its misfire policy says"
    return f"{has_passed}, so that it is due now"


def jobs_table(jobs: Sequence[Job]) -> RenderableType:
    """Jobs, one on a line."""
    heads = ("slug", "cron", "priority", "status", "next_due_at", "retry_status", "last_exit")
    rows = [
        (
            name,
            json_output.cron_of(job, HERE),
            coloured(job.priority),
            coloured(job.status),
            job.next_run_at or "-",
            json_output.retry_status(job) or "-",
            "-" if job.last_exit_code is None else Text(str(job.last_exit_code), "red" if job.last_exit_code else ""),
        )
        for name, job in zip(names_of_jobs(jobs), jobs, strict=True)
    ]
    return laid_out(heads, rows)


def names_of_jobs(jobs: Sequence[Job]) -> list[str]:
    """Return the names of *jobs* for one table."""
    return names_of([(job.namespace, job.id) for job in jobs])


def show_jobs(jobs: Sequence[Job]) -> None:
    """All of them."""
    if jobs:
        console().print(jobs_table(jobs))
    else:
        say("No jobs.")


def show_job(job: Job, explanation: Explanation) -> None:
    """All about one."""
    found = Table(box=None, pad_edge=False, show_header=False)
    found.add_column(style="bold", no_wrap=True)
    found.add_column(overflow="fold")
    form = json_output.job_form(job)
    shown: dict[str, object] = {
        **form,
        "schedule": job.schedule.describe(HERE),
        "retry": None if job.retry is None else job.retry.describe(),
        "payload": None if job.payload is None else json.dumps(job.payload, ensure_ascii=False),
        "metadata": json.dumps(job.metadata, ensure_ascii=False) if job.metadata else None,
        "enabled": "yes" if job.enabled else "no",
        "status": coloured(job.status),
    }
    if job.handler == HANDLER:
        with suppress(InvalidJobError):  # it is no command, and shown as it is
            shown = {**_command_shown(job), **shown, "payload": None}
    shown |= {name: moment(getattr(job, name)) for name in form if name.endswith("_at") and form[name] is not None}
    for name, value in shown.items():
        if value is not None:
            cell = value if isinstance(value, Text) else Text(shortened(str(value), LONG_TEXT), keep="\n\t")
            found.add_row(name, cell)
    console().print(found)
    console().print()
    say_why(job, explanation)


def say_why(job: Job, explanation: Explanation) -> None:
    """Why a job is not running right now."""
    say(explained(job, replace(explanation, sentence=shortened_sentence(job, explanation.sentence))))


def shortened_sentence(job: Job, sentence: str) -> str:
    """What there is to say about a job, with less of an error that takes pages: what comes after it matters too."""
    error = (job.last_error or "").rstrip(".")
    if len(error) > SHORT_TEXT:
        sentence = sentence.replace(error, shortened(error, SHORT_TEXT))
    return shortened(sentence, LONG_TEXT)


def _command_shown(job: Job) -> dict[str, object]:
    """What a command job runs, where, and with what."""
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
    """Who shares the store, and whose clock is wrong."""
    if not nodes:
        say("No nodes: no scheduler runs on this store.")
        return
    rows = [
        (
            node.id,
            node.host,
            str(node.pid),
            node.since,
            short_span(round(node.lease.total_seconds())) if node.lease else Text("run out", "red"),
            str(node.running),
            Text(time_format.lasting(node.clock_skew), "yellow" if abs(node.clock_skew) > SKEW else ""),
        )
        for node in nodes
    ]
    console().print(laid_out(("id", "host", "pid", "since", "lease", "running", "clock_skew"), rows))
    for node in nodes:
        if node.unreadable is not None:
            say(f"Look out: the row of {node.id} cannot be read from the store: {node.unreadable}.")
        if abs(node.clock_skew) > SKEW:
            which = "ahead of" if node.clock_skew > timedelta(0) else "behind"
            skew = time_format.lasting(abs(node.clock_skew))
            say(f"Look out: the clock of {node.host} is {skew} {which} that of the store.")


# ---------------------------------------------------------------- copies


def show_copy(copy: Copy) -> None:
    """What a copy came to: the jobs that were not copied, with the reason, and the sum."""
    lines = [
        f"{'Kept' if verdict is Verdict.KEPT else 'Left out'} {name_of(job.namespace, job.id)}: {why}."
        for verdict, job, why in copy.exceptions
    ]
    lines += [
        f"Left out {name_of(job.namespace, job.job_id)}: it cannot be read: {job.why}." for job in copy.unreadable_jobs
    ]
    lines += [
        f"Left out run {run.number} of {name_of(run.namespace, run.job_id)}: it cannot be read: {run.why}."
        for run in copy.unreadable_runs
    ]
    for line in lines[:MANY]:
        say(line)
    if len(lines) > MANY:
        say(f"And {len(lines) - MANY:,} more; --json names them all.")
    say(copied(copy))


# ---------------------------------------------------------------- runs


def story_of(row: RunRow) -> str:
    """What there is to say about a run beside its outcome."""
    if row.outcome is Outcome.SKIPPED and row.reason is not None:
        more = f" ({row.missed} occurrences)" if row.missed > 1 else ""
        return f"{row.reason.value}{more}"
    return shortened(" ".join((row.message or row.error or "").split()), SHORT_TEXT)


LOG = ("when", "slug", "trigger", "outcome", "took", "message")


def cells_of(name: str, row: RunRow) -> tuple[str | Text, ...]:
    """A run of the job with this *name*, for a line."""
    at = row.started_at or row.scheduled_for
    going_on = Text("unreadable", "red") if is_unreadable(row) else Text("running", "cyan")
    outcome = going_on if row.outcome is None else coloured(row.outcome)
    attempt = f"{row.trigger.value} {row.attempt}" if row.attempt > 1 else row.trigger.value
    return (
        time_format.absolute(at, now(), HERE),
        name,
        attempt,
        outcome,
        time_format.took(row.duration_ms),
        story_of(row),
    )


def show_rows(rows: Sequence[RunRow], outputs: Mapping[int, str | None]) -> None:
    """Runs, one on a line; with what each of them wrote, if that is wanted."""
    if not rows:
        say("No runs.")
        return
    names = names_of([(row.namespace, row.job_id) for row in rows])
    columns = None if outputs else in_columns(LOG, [cells_of(*named) for named in zip(names, rows, strict=True)])
    if columns is not None:
        console().print(columns)
        return
    for name, row in zip(names, rows, strict=True):
        print_row(row, outputs.get(row.id), name=name)


def print_row(row: RunRow, output: str | None = None, *, name: str | None = None) -> None:
    """A run as a line of its own, and what it wrote below it; *name* is what to call its job beside others."""
    cells = cells_of(name or name_of(row.namespace, row.job_id), row)
    line = Text("  ").join(Text(cell) if isinstance(cell, str) else cell for cell in cells if cell)
    print_line(line)
    for written in lines_of(output) if output else []:
        print_line(Text(f"    {written}", keep="\t"))


def tell_of_run(row: RunRow) -> None:
    """How a run ended, in a sentence."""
    assert row.outcome is not None
    console(stderr=True).print(
        Text.assemble(
            f"{name_of(row.namespace, row.job_id)}: ", coloured(row.outcome), f", {story_of(row)}".rstrip(", ")
        )
    )


# ---------------------------------------------------------------- statistics


def show_stats(found: Sequence[tuple[Job, RunStats]]) -> None:
    """How runs went, one job on a line; in sentences where a table has no room."""
    if not found:
        say("No jobs.")
        return
    names = names_of_jobs([job for job, _ in found])
    heads = ("slug", "total", "success_rate", "p50", "p95", "delay_p50", "delay_p95", "last_run_at", "counts")
    rows = [
        (
            name,
            str(stats.total),
            rate_of(stats),
            *map(time_format.took, (stats.p50_ms, stats.p95_ms, stats.delay_p50_ms, stats.delay_p95_ms)),
            stats.last_run_at or "-",
            counts_of(stats),
        )
        for name, (_, stats) in zip(names, found, strict=True)
    ]
    columns = in_columns(heads, rows)
    if columns is not None:
        console().print(columns)
        return
    for name, (_, stats) in zip(names, found, strict=True):
        say(f"{name}: {story_of_stats(stats)}")


def story_of_stats(stats: RunStats) -> str:
    """How the runs of a job went, in words."""
    if not stats.total:
        return f"no runs ({counts_of(stats)})." if stats.counts else "no runs."
    runs = "1 run" if stats.total == 1 else f"{stats.total} runs"
    story = f"{runs} ({counts_of(stats)}), {rate_of(stats)} success"
    if stats.p50_ms is not None:
        story += f"; took {time_format.took(stats.p50_ms)} (p95 {time_format.took(stats.p95_ms)})"
    if stats.delay_p50_ms is not None:
        story += f"; late by {time_format.took(stats.delay_p50_ms)} (p95 {time_format.took(stats.delay_p95_ms)})"
    return f"{story}; last {moment(stats.last_run_at)}." if stats.last_run_at else f"{story}."


def rate_of(stats: RunStats) -> str:
    """How many of the runs went well."""
    return "-" if stats.success_rate is None else f"{stats.success_rate:.0%}"


def counts_of(stats: RunStats) -> str:
    """How many runs there are of each outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in stats.counts.items())


# ---------------------------------------------------------------- what is to come


def show_preview(upcoming: Sequence[Upcoming], window: timedelta) -> None:
    """A timeline, and what it shows in words."""
    from scheduler_async.cli.timeline import draw_timeline

    if not upcoming:
        say("Nothing is due in that time.")
        return
    screen = console()
    begin = now()
    width = min(screen.width, 120)
    is_ascii = screen.encoding.lower() != "utf-8"
    for line in draw_timeline(upcoming, begin, begin + window, width=width, zone=HERE, ascii=is_ascii):
        screen.print(Text(line), soft_wrap=True)
    screen.print()
    screen.print(runs_table(upcoming) if len(upcoming) <= MANY else summary_table(upcoming))


def runs_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """What will run, one run on a line."""
    rows = [
        (one.at, name, coloured(one.job.priority), _left(one), "; ".join(one.warnings))
        for name, one in zip(names_of_jobs([one.job for one in upcoming]), upcoming, strict=True)
    ]
    return laid_out(("at", "slug", "priority", "retries_left", "warnings"), rows)


def summary_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """What will run, one job on a line."""
    by_job: dict[str, list[Upcoming]] = {}
    for one in upcoming:
        by_job.setdefault(one.job.key, []).append(one)
    rows: list[Row] = []
    names = names_of_jobs([runs[0].job for runs in by_job.values()])
    for name, runs in zip(names, by_job.values(), strict=True):
        first, last = runs[0], runs[-1]
        warnings = dict.fromkeys(warning for one in runs for warning in one.warnings)
        until: Cell = last.at if len(runs) > 1 else "-"
        priority = coloured(first.job.priority)
        rows.append((name, str(len(runs)), first.at, until, priority, _left(first), "; ".join(warnings)))
    return laid_out(("slug", "runs", "first", "last", "priority", "retries_left", "warnings"), rows)


def _left(one: Upcoming) -> str:
    return "-" if one.retries_left is None else str(one.retries_left)


def following_form(schedule: Schedule, count: int) -> dict[str, Any]:
    """The following occurrences, for a program."""
    from scheduler_async.cli.next_runs import following, traps

    return {
        "schedule": schedule.to_json(),
        "description": schedule.describe(HERE),
        "occurrences": [
            {
                "at": json_output.plain(one.at),
                "there": one.there.isoformat(),
                "here": one.here.isoformat(),
                "note": one.note,
            }
            for one in following(schedule, now(), count, HERE)
        ],
        "warnings": traps(schedule, now()),
    }


def show_following(schedule: Schedule, count: int) -> None:
    """The following occurrences, on both clocks if there are two, and what to look out for."""
    from scheduler_async.cli.next_runs import following, traps

    described = schedule.describe(HERE)
    say(f"{described[:1].upper()}{described[1:]}.")
    found = following(schedule, now(), count, HERE)
    has_zone = isinstance(schedule, Cron) and any(one.there.utcoffset() != one.here.utcoffset() for one in found)
    heads = ("when", "there", "here", "note") if has_zone else ("when", "at", "note")
    rows: list[Row] = []
    for one in found:
        clocks = (one.there, one.here) if has_zone else (one.there if isinstance(schedule, Cron) else one.here,)
        cells = (f"{at:%a %Y-%m-%d %H:%M:%S %Z}" for at in clocks)
        rows.append((time_format.relative(one.at, now()), *cells, one.note or ""))
    if found:
        console().print(laid_out(heads, rows))
    else:
        is_over = isinstance(schedule, At) or schedule.end is not None
        say("Its time has passed." if is_over else "It has no times that could be told in advance.")
    if 0 < len(found) < count and schedule.next_after(found[-1].at) is not None:
        say("Later ones are left out: after 400 years the calendar repeats itself.")
    for trap in traps(schedule, now()):
        print_line(Text.assemble(("Look out: ", "yellow"), trap))
