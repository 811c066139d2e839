"""Values in JSON as a visitor sees them: as `--json` prints them, with a zone beside the times, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

from scheduler_async.calls import json_output
from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.history import THE_SCHEDULER, ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form, plain
from scheduler_async.jobs.pages import Concern, ConcernKind
from scheduler_async.jobs.run import RunRow
from scheduler_async.web.redaction import HIDDEN_IN_CHANGES, HIDDEN_IN_JOBS, HIDDEN_IN_RUNS, shown
from scheduler_async.web.visit import Visit

LEFT_OUT = "…"

# What the scheduler says about a failure ends with the error: "5 failures in a row, the last: ValueError: …".
_ERROR = re.compile(r"\b(the last|failed|fails): .*", re.DOTALL)

CITING = {ConcernKind.FAILING, ConcernKind.DISABLED, ConcernKind.UNREADABLE}
"""What needs attention because of an error, which the cause cites behind a colon."""


def zone_of(job: Job) -> str:
    """Return the name of the time zone that a job is written in."""
    return job.schedule.zone_name() or "UTC"


def job_form(visit: Visit, job: Job) -> Form:
    """Return a job as the visitor sees it."""
    form = {**json_output.listed_form(job), "zone": zone_of(job), "revision": job.revision}
    form["disabled_reason"] = sentence(visit, job.disabled_reason, [job.last_error, job.last_message])
    return shown(form, HIDDEN_IN_JOBS, visit.site.redaction, payloads=visit.access.payloads)


def run_form(visit: Visit, row: RunRow, zone: str | None = None) -> Form:
    """Return a run as the visitor sees it. *zone* is that of its job, if it is known."""
    form = row.to_json() if zone is None else {**row.to_json(), "zone": zone}
    return shown(form, HIDDEN_IN_RUNS, visit.site.redaction, payloads=visit.access.payloads)


def change_form(visit: Visit, row: ChangeRow) -> Form:
    """Return a change as the visitor sees it."""
    form = row.to_json()
    redaction, payloads = visit.site.redaction, visit.access.payloads
    for side in ("before", "after"):
        fields = shown(form[side], HIDDEN_IN_CHANGES, redaction, payloads=payloads)
        reason = fields.get("disabled_reason")
        if isinstance(reason, str):
            fields["disabled_reason"] = sentence(visit, reason)
        form[side] = fields
    if row.reason is not None and row.actor == THE_SCHEDULER.name:
        form["reason"] = sentence(visit, row.reason)
    return form


def explanation_form(visit: Visit, job: Job, explanation: Explanation) -> Form:
    """Return why a job does not run, or what became of it, as the visitor sees it."""
    run = explanation.run
    told = sentence(visit, explanation.sentence, [job.last_error, None if run is None else run.error])
    form = json_output.explanation_form(explanation, told or "")
    return {**form, "run": None if run is None else run_form(visit, run, zone_of(job)), "zone": zone_of(job)}


def upcoming_forms(job: Job, occurrences: Iterable[Any], zone: tzinfo = UTC) -> list[Form]:
    """Return the next runs of a job: in UTC, on the clocks of the job, and on those of the reader."""
    return [
        {
            "at": plain(one.at),
            "zone": zone_of(job),
            "there": one.there.isoformat(),
            "here": one.at.astimezone(zone).isoformat(),
            "note": one.note,
        }
        for one in occurrences
    ]


def concern_form(visit: Visit, concern: Concern) -> Form:
    """Return what needs attention, as the visitor sees it."""
    return seen_concern(visit, concern).to_json()


def seen_concern(visit: Visit, concern: Concern) -> Concern:
    """Return what needs attention, with sentences as the visitor sees them."""
    cause = concern.cause
    if concern.kind in CITING and not visit.access.payloads:
        said, colon, _ = cause.partition(": ")
        cause = f"{said}: {LEFT_OUT}" if colon else cause
    return replace(concern, cause=sentence(visit, cause) or "", effect=sentence(visit, concern.effect) or "")


def sentence(visit: Visit, text: str | None, errors: Iterable[str | None] = ()) -> str | None:
    """Return a sentence about a failure. Without `payloads=True`, the visitor does not see the *errors* in it."""
    if text is None:
        return None
    if visit.access.payloads:
        return visit.site.redaction.text(text)
    for error in errors:
        if error:
            text = text.replace(error, LEFT_OUT)
    return _ERROR.sub(rf"\1: {LEFT_OUT}", text)
