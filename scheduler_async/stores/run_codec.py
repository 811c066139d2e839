"""Convert rows of the run log to values and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler_async.jobs.enums import Outcome, SkipReason, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import EndedRun, RunRow, Skip
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.codec import Row, read_job, read_state
from scheduler_async.stores.columns import PLACE
from scheduler_async.stores.copy_records import LeftOut, RunRecord
from scheduler_async.stores.unreadable import (
    Reader,
    first_problem,
    is_text,
    moment,
    name,
    number,
    optional,
    problem_of,
    shown_text,
    text,
)
from scheduler_async.timekeeping.instants import Micros, from_micros

RUN: dict[str, Reader] = {
    "id": number,
    **dict.fromkeys(("job_id", "namespace"), lambda _: None),  # columns of the job
    "scheduled_for": moment,
    **dict.fromkeys(("started_at", "finished_at"), optional(moment)),
    "attempt": number,
    "trigger": Trigger,
    "outcome": optional(Outcome),
    "reason": optional(SkipReason),
    "missed": number,
    **dict.fromkeys(("error", "message"), optional(text)),
    "exit_code": optional(number),
    "node": optional(text),
}
"""The columns of a row of the run log, and the values that each may hold."""


UNREADABLE_RUN = "This row cannot be read from the store: "
"""The beginning of the `error` of a row that cannot be read."""


def is_unreadable(row: RunRow) -> bool:
    """Return whether parts of *row* could not be read."""
    return row.error is not None and row.error.startswith(UNREADABLE_RUN)


def read_run(columns: Sequence[Any]) -> tuple[RunRow, Unreadable | None]:
    """Return the row of the run log that *columns* contain, and the problem if it cannot be read.

    A row with a problem contains its readable parts, and its error names the problem.
    """
    try:
        row = _run_row(*columns)
    except Exception:  # noqa: S110 - the code below searches for the problem column by column
        pass
    else:
        if _is_sound_run(columns):
            return row, None
    problem = first_problem(RUN, columns)
    kept = {
        name: value
        for (name, check), value in zip(RUN.items(), columns, strict=True)
        if not problem_of(name, check, value)
    }
    named = {name: shown_text(kept[name]) for name in ("job_id", "namespace")}
    if problem is None:  # only the name of the job cannot be displayed
        return _run_row(*{**kept, **named}.values()), None
    shown = {**dict.fromkeys(RUN), "scheduled_for": 0, "attempt": 0, "trigger": Trigger.SCHEDULE, "missed": 0}
    return _run_row(*{**shown, **kept, **named, "error": f"{UNREADABLE_RUN}{problem}"}.values()), problem


def _is_sound_run(columns: Sequence[Any]) -> bool:
    """Return whether `RUN` finds no problem that `_run_row` would miss, and the name of the job can be displayed."""
    (run_id, job_id, namespace, scheduled_for, started_at, finished_at, attempt, _, _, _, missed, error, message,
     exit_code, node) = columns  # fmt: skip
    for value in (run_id, scheduled_for, attempt, missed):
        if type(value) is not int:
            return False
    for value in (started_at, finished_at, exit_code):
        if value is not None and type(value) is not int:
            return False
    for value in (error, message, node):
        if value is not None and (type(value) is not str or not is_text(value)):
            return False
    return all(type(value) is str and is_text(value) for value in (job_id, namespace))


def _run_row(
    run_id: int,
    job_id: str,
    namespace: str,
    scheduled_for: Micros,
    started_at: Micros | None,
    finished_at: Micros | None,
    attempt: int,
    trigger: str,
    outcome: str | None,
    reason: str | None,
    missed: int,
    error: str | None,
    message: str | None,
    exit_code: int | None,
    node: str | None,
) -> RunRow:
    return RunRow(
        id=run_id,
        job_id=job_id,
        namespace=namespace,
        scheduled_for=from_micros(scheduled_for),
        started_at=None if started_at is None else from_micros(started_at),
        finished_at=None if finished_at is None else from_micros(finished_at),
        duration_ms=None if started_at is None or finished_at is None else max(finished_at - started_at, 0) / 1000,
        delay_ms=None if started_at is None else max(started_at - scheduled_for, 0) / 1000,
        attempt=attempt,
        trigger=Trigger(trigger),
        outcome=None if outcome is None else Outcome(outcome),
        reason=None if reason is None else SkipReason(reason),
        missed=missed,
        error=error,
        message=message,
        exit_code=exit_code,
        node=node,
    )


RUN_RECORD: dict[str, Reader] = {
    "id": number,
    **dict.fromkeys(("namespace", "job_id"), name),
    **{column: RUN[column] for column in ("scheduled_for", "attempt", "trigger")},
    "claimed_at": moment,
    **{column: RUN[column] for column in ("started_at", "finished_at")},
    "outcome": Outcome,
    **{column: RUN[column] for column in ("reason", "missed", "error", "message", "exit_code")},
    "node": optional(name),
    "output": lambda _: None,  # invalid UTF-8 is displayed as far as possible
}
"""The columns of a `RunRecord`, and the values that each may hold."""


def read_run_record(columns: Row) -> RunRecord | LeftOut:
    """Return a run for a copy, or the reason why it cannot be read."""
    problem = first_problem(RUN_RECORD, columns)
    if problem is not None:
        return LeftOut(columns[0], shown_text(columns[1]), shown_text(columns[2]), str(problem))
    output = columns[-1]
    return RunRecord._make((*columns[:-1], None if output is None else shown_text(output)))


def read_job_to_copy(description: Row, columns: Row) -> Job | LeftOut:
    """Return the job with this *description* and these *columns* of its state, or the reason why it cannot be read."""
    try:
        return read_job(description).with_state(read_state(columns))
    except Unreadable as problem:
        uid, namespace, id_ = (description[PLACE[name]] for name in ("uid", "namespace", "id"))
        return LeftOut(uid, shown_text(namespace), shown_text(id_), str(problem))


def ending_values(item: EndedRun) -> Row:
    """Return the columns that an ending writes to the row of its run."""
    ending = item.ending
    reason = SkipReason.INTERRUPTED._value_ if ending.outcome is Outcome.INTERRUPTED else None
    return (
        item.started_at,
        item.finished_at,
        ending.outcome._value_,
        reason,
        ending.error,
        ending.message,
        ending.exit_code,
        item.run.id,
    )


def row_of(item: EndedRun, node: str | None) -> RunRow:
    """Return the row of a run that has ended."""
    run, ending = item.run, item.ending
    return RunRow(
        id=run.id,
        job_id=run.name[1],
        namespace=run.name[0],
        scheduled_for=from_micros(run.scheduled_for),
        started_at=from_micros(item.started_at),
        finished_at=from_micros(item.finished_at),
        duration_ms=max(item.finished_at - item.started_at, 0) / 1000,
        delay_ms=max(item.started_at - run.scheduled_for, 0) / 1000,
        attempt=run.attempt,
        trigger=run.trigger,
        outcome=ending.outcome,
        reason=SkipReason.INTERRUPTED if ending.outcome is Outcome.INTERRUPTED else None,
        error=ending.error,
        message=ending.message,
        exit_code=ending.exit_code,
        node=node,
    )


def row_of_skip(job: Job, skip: Skip, now: Micros) -> RunRow:
    """Return the row of skipped occurrences. Only the store knows its id."""
    return RunRow(
        id=0,
        job_id=job.id,
        namespace=job.namespace,
        scheduled_for=from_micros(skip.scheduled_for),
        started_at=None,
        finished_at=from_micros(now),
        duration_ms=None,
        delay_ms=None,
        attempt=0,
        trigger=Trigger.SCHEDULE,
        outcome=Outcome.SKIPPED,
        reason=skip.reason,
        missed=skip.missed,
    )


Skipped = tuple[Job, Sequence[Skip], Micros]
"""A job, its skipped occurrences, and the time of the decision."""


def skip_values(skipped: Iterable[Skipped]) -> list[Row]:
    """Return the columns of the rows of skipped occurrences."""
    return [
        (job.uid, skip.scheduled_for, at, at, skip.reason._value_, skip.missed)
        for job, skips, at in skipped
        for skip in skips
    ]
