"""Values and texts of any size: as much of them as a page has room for. What they take is counted as it is sent."""

from __future__ import annotations

import json
from typing import NamedTuple

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.run import RunRow
from scheduler_async.web.pages import sight
from scheduler_async.web.redaction import HIDDEN_IN_JOBS, shown
from scheduler_async.web.templating import lines_of
from scheduler_async.web.visit import Visit

# How much of a page they may take, in bytes. Together they leave room for everything else in 60 kB.
OF_JOBS = {"payload": 10_000, "metadata": 5_000, "cursor": 1_000}
OF_RUNS = {
    "error": 6_000,
    "traceback": 12_000,
    "output": 14_000,
    "result": 4_000,
    "payload": 4_000,
    "message": 2_000,
    "progress_message": 1_000,
}
# The last lines of these tell most.
ENDS = {"traceback", "output"}


class Preview(NamedTuple):
    """A part of a text."""

    text: str
    is_cut: bool


def of_job(visit: Visit, job: Job) -> tuple[dict[str, Preview], bool]:
    """Return what the visitor sees of the values of a job, and whether there are some that they do not see.

    Call it in a thread: the values may be large, and all of a value is searched for secrets.
    """
    values = {name: getattr(job, name) for name in HIDDEN_IN_JOBS}
    form = shown(values, HIDDEN_IN_JOBS, visit.site.redaction, payloads=visit.access.payloads)
    seen = {name: form[name] for name in OF_JOBS if form[name] not in (None, {})}
    return {name: preview_of(json_beginning(value, OF_JOBS[name]), OF_JOBS[name]) for name, value in seen.items()}, (
        "redacted" in form
    )


def of_run(visit: Visit, row: RunRow, output: str | None) -> dict[str, Preview]:
    """Return what the visitor sees of the texts and the values of a run. Call it in a thread, as `of_job`."""
    found = {}
    for name, room in OF_RUNS.items():
        value = output if name == "output" else getattr(row, name)
        if value is None or value == "":
            continue
        if not visit.access.payloads:
            found[name] = Preview(sight.HIDDEN, is_cut=False)
        elif name in ("result", "payload"):
            found[name] = preview_of(json_beginning(visit.site.redaction.value(value), room), room)
        else:
            found[name] = preview_of(visit.site.redaction.text(value), room, is_end=name in ENDS)
    return found


def preview_of(text: str, room: int, *, is_end: bool = False) -> Preview:
    """Return the beginning of *text*, or its end, that takes at most *room* bytes on a page."""
    kept = text[-room:] if is_end else text[:room]
    while (size := len(lines_of(kept).encode())) > room:
        number = len(kept) * room // size
        kept = kept[len(kept) - number :] if is_end else kept[:number]
    if len(kept) == len(text):
        return Preview(text, is_cut=False)
    whole_lines = kept.partition("\n")[2] if is_end else kept.rpartition("\n")[0]
    return Preview(whole_lines if len(whole_lines) > room // 4 else kept, is_cut=True)


def json_beginning(value: Json, most: int) -> str:
    """Return the first *most* characters, and perhaps a few more, of *value* as indented JSON."""
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > most:
            break
    return "".join(parts)
