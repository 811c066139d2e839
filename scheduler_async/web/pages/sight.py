"""What a visitor sees of jobs, runs and concerns: secrets are masked, and errors and outputs need `payloads`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import Concern
from scheduler_async.jobs.run import RunRow
from scheduler_async.web import forms
from scheduler_async.web.visit import Visit

HIDDEN = "(hidden)"

# Pages show the beginning of long texts, so no more lines of them need to be searched for secrets.
LONGEST = 2_000


def text_for(visit: Visit, text: str | None, longest: int = LONGEST) -> str | None:
    """Return the beginning of an error, a message or an output as the visitor sees it."""
    if text is None or not visit.access.payloads:
        return None if text is None else HIDDEN
    end = text.find("\n", longest)  # a part of a secret would not be found, and a secret ends with its line
    return visit.site.redaction.text(text if end < 0 else text[:end])[:longest]


def row_for(visit: Visit, row: RunRow) -> RunRow:
    """Return a row of the run log as the visitor sees it in a list."""
    if row.error is None and row.message is None and row.progress_message is None:
        return row
    return replace(
        row,
        error=text_for(visit, row.error),
        message=text_for(visit, row.message),
        progress_message=text_for(visit, row.progress_message),
    )


def rows_for(visit: Visit, rows: Iterable[RunRow]) -> list[RunRow]:
    """Return rows of the run log as the visitor sees them in a list."""
    return [row_for(visit, row) for row in rows]


def concern_for(visit: Visit, concern: Concern) -> Concern:
    """Return a concern as the visitor sees it."""
    seen = forms.seen_concern(visit, concern)
    return replace(seen, cause=seen.cause[:LONGEST])


def explanation_for(visit: Visit, job: Job, explanation: Explanation) -> str:
    """Return the sentence of an explanation as the visitor sees it."""
    run = explanation.run
    errors = [job.last_error, None if run is None else run.error]
    # An error that is cut would not be found in the sentence: hide first, cut last.
    return (forms.sentence(visit, explanation.sentence, errors) or "")[:LONGEST]


def change_for(visit: Visit, row: ChangeRow) -> ChangeRow:
    """Return a change as the visitor sees it."""
    form = forms.change_form(visit, row)
    return replace(row, before=form["before"], after=form["after"], reason=form["reason"])
