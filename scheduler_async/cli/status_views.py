"""How `status` looks: one screen with schedulers, runs in progress, failures, overdue jobs and counts. And its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType

from scheduler_async.calls import json_output
from scheduler_async.cli.error_text import explained
from scheduler_async.cli.job_names import name_of
from scheduler_async.cli.job_views import shortened_sentence, warnings_about
from scheduler_async.cli.overview import InProgress, Overview, ended_at
from scheduler_async.cli.run_views import story_of
from scheduler_async.cli.safe_text import AnyText, Text
from scheduler_async.cli.tables import Row
from scheduler_async.cli.terminal import HERE, coloured, console, laid_out, moment
from scheduler_async.errors import quoted
from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form, plain
from scheduler_async.timekeeping import time_format

BAR = 12  # cells

NO_SCHEDULER = (
    "No scheduler is running on this store, so no job starts. "
    'Start the program of its jobs, or "scheduler-async run" for commands.'
)


def screen_of(overview: Overview, where: str, problem: str | None = None) -> RenderableType:
    """Return *overview* of the store *where*; above it, the *problem* that keeps it from being read again."""
    parts: list[RenderableType] = [Text(f"{where}, {_clock(overview)}", "dim")]
    if problem is not None:
        parts.append(lost(problem))
    for section in (_schedulers(overview), _running(overview), _failures(overview), _overdue(overview)):
        found = list(section)
        if found:
            parts += [Text(), *found]
    return Group(*parts, Text(), *_summary(overview))


def lost(problem: str) -> AnyText:
    """Return a line about a store that cannot be read."""
    return Text(f"Cannot read the store; trying again every second. {problem}", "bold red")


def bar(progress: float | None, *, ascii: bool = False) -> str:
    """Return a progress bar with a percentage; nothing for a run that does not report its progress."""
    if progress is None or not math.isfinite(progress):
        return ""
    share = min(max(progress, 0.0), 1.0)
    done = int(share * BAR)
    full, empty = "#-" if ascii else "█░"
    percent = math.floor(share * 100 + 1e-9)  # 0.58 is a little less than 58 %; and 99.9 % is not all of it
    return f"{full * done}{empty * (BAR - done)} {percent:>3}%"


def _clock(overview: Overview) -> str:
    return time_format.absolute(overview.at, overview.at, HERE, with_seconds=True)


def _name(job: Job) -> str:
    return name_of(job.namespace, job.id)


def _title(words: str) -> AnyText:
    return Text(words, "bold")


# ---------------------------------------------------------------- sections


def _schedulers(overview: Overview) -> Iterator[RenderableType]:
    if not overview.alive:
        yield Text(NO_SCHEDULER, "bold red")
    if not overview.nodes:
        return
    if not overview.alive:
        yield Text()
    yield _title("Schedulers")
    rows: list[Row] = [
        (
            Text(node.id, "" if node.lease else "red"),
            node.host,
            str(node.pid),
            node.since,
            str(node.running),
            "" if node.lease else Text("no heartbeat", "red"),
        )
        for node in overview.nodes
    ]
    yield laid_out(("scheduler", "host", "pid", "since", "running", "note"), rows)
    yield from map(Text, warnings_about(overview.nodes))


def _running(overview: Overview) -> Iterator[RenderableType]:
    if not overview.running:
        return
    count = overview.counts["running"] + overview.counts["queued"]
    yield _title("Running" if count == len(overview.running) else f"Running (the first {len(overview.running)})")
    is_ascii = console().encoding.lower() != "utf-8"
    alive = {node.id for node in overview.alive}
    rows: list[Row] = [
        (
            "-" if one.run is None else str(one.run.id),
            name_of(one.job.namespace, one.job.id),
            _elapsed(one, overview),
            *_progress(one, is_ascii),
            _node_of(one, alive),
        )
        for one in overview.running
    ]
    yield laid_out(("run", "slug", "elapsed", "progress", "message", "node"), rows)


def _elapsed(one: InProgress, overview: Overview) -> str | AnyText:
    elapsed = one.elapsed(overview.at)
    return coloured(one.job.status) if elapsed is None else time_format.span(int(elapsed.total_seconds()))


def _progress(one: InProgress, is_ascii: bool) -> tuple[str, str]:
    if one.run is None:
        return "", ""
    return bar(one.run.progress, ascii=is_ascii), " ".join((one.run.progress_message or "").split())


def _node_of(one: InProgress, alive: set[str]) -> str | AnyText:
    if one.run is None or one.run.node is None:
        return "-"
    return one.run.node if one.run.node in alive else Text(one.run.node, "red")


def _failures(overview: Overview) -> Iterator[RenderableType]:
    if not overview.failures:
        return
    yield _title("Last failures")
    rows: list[Row] = [
        (str(row.id), ended_at(row), name_of(row.namespace, row.job_id), coloured(row.outcome), story_of(row))
        for row in overview.failures
    ]
    yield laid_out(("run", "when", "slug", "outcome", "message"), rows)


def _overdue(overview: Overview) -> Iterator[RenderableType]:
    if not overview.overdue:
        return
    yield _title(f"Overdue (the first {len(overview.overdue)})" if overview.has_more_overdue else "Overdue")
    rows: list[Row] = [
        (_name(job), job.next_run_at or "-", _why(job, explanation)) for job, explanation in overview.overdue
    ]
    yield laid_out(("slug", "due", "note"), rows)


def _why(job: Job, explanation: Explanation) -> str:
    """Return why a job has not started, without its name, which stands beside it."""
    sentence = shortened_sentence(job, explanation.sentence)
    for name in (job.id, job.key):
        sentence = sentence.removeprefix(f"Job {quoted(name)} ")
    return sentence


def _summary(overview: Overview) -> Iterator[RenderableType]:
    sections = {
        "nothing is running": overview.running,
        "no run on record has failed": overview.failures,
        "no job is overdue": overview.overdue,
    }
    quiet = "; ".join(words for words, found in sections.items() if not found)
    if quiet:
        yield Text(f"{quiet[:1].upper()}{quiet[1:]}.")
    yield Text(f"{_counts(overview)}{_following(overview)}")


def _counts(overview: Overview) -> str:
    counts = {status: count for status, count in overview.counts.items() if count}
    total = sum(counts.values())
    if not total:
        return "No jobs."
    more = "+" if overview.uncounted else ""
    parts = (f"{count:,}{'+' if status in overview.uncounted else ''} {status}" for status, count in counts.items())
    return f"{total:,}{more} {'job' if total == 1 else 'jobs'}: {', '.join(parts)}."


def _following(overview: Overview) -> str:
    job = overview.following
    if job is None or job.next_run_at is None:
        return ""
    when = "due now" if job.next_run_at <= overview.at else moment(job.next_run_at)
    return f" Next: {_name(job)}, {when}."


# ---------------------------------------------------------------- JSON


def overview_form(overview: Overview) -> Form:
    """Return *overview* as JSON."""
    following = overview.following
    return {
        "at": plain(overview.at),
        "has_scheduler": bool(overview.alive),
        "nodes": [json_output.node_form(node) for node in overview.nodes],
        "running": [_running_form(one, overview) for one in overview.running],
        "failures": [row.to_json() for row in overview.failures],
        "overdue": [_overdue_form(job, explanation) for job, explanation in overview.overdue],
        "has_more_overdue": overview.has_more_overdue,
        "jobs": overview.counts,
        "uncounted": overview.uncounted,
        "next": None if following is None else {**_named(following), "next_due_at": plain(following.next_run_at)},
    }


def _named(job: Job) -> Form:
    return {"slug": job.id, "namespace": job.namespace}


def _running_form(one: InProgress, overview: Overview) -> Form:
    elapsed = one.elapsed(overview.at)
    return {
        **_named(one.job),
        "status": plain(one.job.status),
        "elapsed": None if elapsed is None else elapsed.total_seconds(),
        "progress": None if one.run is None else one.run.progress,
        "progress_message": None if one.run is None else one.run.progress_message,
        "run": None if one.run is None else one.run.to_json(),
    }


def _overdue_form(job: Job, explanation: Explanation) -> Form:
    return {
        **_named(job),
        "next_due_at": plain(job.next_run_at),
        **json_output.explanation_form(explanation, explained(job, explanation)),
    }
