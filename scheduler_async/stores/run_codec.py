"""Convert rows of the run log to values and back. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import Outcome, SkipReason, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_text import Json, from_json_text
from scheduler_async.jobs.run import EndedRun, Ending, RunRow, Skip
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.change_codec import is_placeholder
from scheduler_async.stores.codec import Row, read_job, read_state
from scheduler_async.stores.columns import PLACE
from scheduler_async.stores.copy_records import LeftOut, RunRecord
from scheduler_async.stores.messages import RunDetails
from scheduler_async.stores.searches import PROGRESS, PROGRESS_HOUR
from scheduler_async.stores.unreadable import (
    Reader,
    first_problem,
    is_count,
    is_moment,
    is_text,
    moment,
    name,
    number,
    optional,
    problem_of,
    shown_text,
    text,
)
from scheduler_async.timekeeping.instants import HOUR, Micros, from_micros

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
INTERRUPTED = Outcome.INTERRUPTED
SKIPPED = Outcome.SKIPPED.value


def _read_reason(value: Any) -> SkipReason | str:
    """Read a `SkipReason`, or the text that a caller gave for a cancellation."""
    return _REASONS.get(value) or text(value)


def _read_json(value: Any) -> Json:
    found: Json = from_json_text(text(value))
    return found


def _read_share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(f"{quoted(value)} is not a number between 0 and 1")
    return float(value)


_REASONS = {reason.value: reason for reason in SkipReason}

RUN: dict[str, Reader] = {
    "id": number,
    **dict.fromkeys(("job_id", "namespace"), lambda _: None),  # columns of the job
    "scheduled_for": moment,
    **dict.fromkeys(("started_at", "finished_at"), optional(moment)),
    "attempt": number,
    "trigger": Trigger,
    "outcome": optional(Outcome),
    "reason": optional(_read_reason),
    "missed": number,
    **dict.fromkeys(("error", "message"), optional(text)),
    "exit_code": optional(number),
    "node": optional(text),
    "claimed_at": moment,
    "result": optional(_read_json),
    "progress": optional(_read_share),
    "progress_message": optional(text),
    "after": optional(number),
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
        row = run_row(*columns)
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
        return run_row(*{**kept, **named}.values()), None
    shown = {**dict.fromkeys(RUN), "scheduled_for": 0, "attempt": 0, "trigger": Trigger.SCHEDULE, "missed": 0}
    return run_row(*{**shown, **kept, **named, "error": f"{UNREADABLE_RUN}{problem}"}.values()), problem


def _is_sound_run(columns: Sequence[Any]) -> bool:
    """Return whether `RUN` finds no problem that `run_row` would miss, and the name of the job can be displayed."""
    (run_id, job_id, namespace, scheduled_for, started_at, finished_at, attempt, _, _, _, missed, error, message,
     exit_code, node, claimed_at, _, _, progress_message, after) = columns  # fmt: skip
    for value in (run_id, scheduled_for, attempt, missed, claimed_at):
        if type(value) is not int:
            return False
    for value in (started_at, finished_at, exit_code, after):
        if value is not None and type(value) is not int:
            return False
    for value in (error, message, node, progress_message):
        if value is not None and (type(value) is not str or not is_text(value)):
            return False
    return all(type(value) is str and is_text(value) for value in (job_id, namespace))


def run_row(
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
    claimed_at: Micros | None,
    result: str | None,
    progress: float | None,
    progress_message: str | None,
    after: int | None,
) -> RunRow:
    """Return the row of the run log with these columns, those of `RUN`."""
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
        reason=None if reason is None else _read_reason(reason),
        missed=missed,
        error=error,
        message=message,
        exit_code=exit_code,
        node=node,
        claimed_at=None if claimed_at is None else from_micros(claimed_at),
        result=None if result is None else _read_json(result),
        progress=None if progress is None else _read_share(progress),
        progress_message=progress_message,
        after=after,
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
    "payload": optional(_read_json),
    **{column: RUN[column] for column in ("result", "progress", "progress_message")},
    **dict.fromkeys(("output", "traceback"), lambda _: None),  # invalid UTF-8 is displayed as far as possible
}
"""The columns of a `RunRecord`, and the values that each may hold."""


def read_run_record(columns: Row) -> RunRecord | LeftOut:
    """Return a run for a copy, or the reason why it cannot be read."""
    problem = first_problem(RUN_RECORD, columns)
    if problem is not None:
        return LeftOut(columns[0], shown_text(columns[1]), shown_text(columns[2]), str(problem))
    *row, output, traceback = columns
    texts = (None if text is None else shown_text(text) for text in (output, traceback))
    return RunRecord._make((*row, *texts))


def read_job_to_copy(description: Row, columns: Row) -> Job | LeftOut:
    """Return the job with this *description* and these *columns* of its state, or the reason why it cannot be read."""
    try:
        return read_job(description).with_state(read_state(columns))
    except Unreadable as problem:
        uid, namespace, id_ = (description[PLACE[name]] for name in ("uid", "namespace", "id"))
        return LeftOut(uid, shown_text(namespace), shown_text(id_), str(problem))


def reason_of(ending: Ending) -> str | None:
    """Return the reason that the row of a run tells."""
    return SkipReason.INTERRUPTED._value_ if ending.outcome is INTERRUPTED else ending.reason


def ending_values(item: EndedRun) -> Row:
    """Return the columns that an ending writes to the row of its run."""
    ending = item.ending
    return (
        item.started_at,
        item.finished_at,
        ending.outcome._value_,
        SkipReason.INTERRUPTED._value_
        if ending.outcome is INTERRUPTED
        else ending.reason,  # drivers convert enums slowly
        ending.error,
        ending.message,
        ending.exit_code,
        ending.result,
        item.run.id,
    )


def details_of_run(traceback: object, own: object, edits: Iterable[object], current: object) -> RunDetails:
    """Return the traceback of a run, and the payload that it got.

    *own* is the JSON of a payload that only this run got. Otherwise it got the payload of its job, which is the
    *current* one unless it was edited since. *edits* contain the fields that the edits since the claim have changed,
    as they were before, oldest first. A payload that was too large to keep with an edit is None.
    """
    payloads = [own] if own is not None else [*_payloads_before(edits), current]
    return RunDetails(None if traceback is None else shown_text(traceback), _json_or_none(payloads[0]))


def _payloads_before(edits: Iterable[object]) -> Iterator[object]:
    """Return the JSON of the payloads that edits have replaced."""
    for before in edits:
        fields = _json_or_none(before)
        if isinstance(fields, dict) and "payload" in fields:
            yield None if is_placeholder(fields["payload"]) else json.dumps(fields["payload"])


def _json_or_none(value: object) -> Json:
    """Read JSON from a column. Damaged JSON is None."""
    try:
        return None if value is None else _read_json(value)
    except (ValueError, RecursionError):
        return None


TEXTS_OF_RUNS = ("output", "traceback")
"""The tables with long texts of runs, apart from their rows, which are read more often. Each is a field of `Ending`."""


def texts_of(ended: Iterable[EndedRun], table: str) -> list[tuple[int, str]]:
    """Return the texts of runs that belong in *table*, by run."""
    texts = ((item.run.id, getattr(item.ending, table)) for item in ended)
    return [(run, text) for run, text in texts if text is not None]


def progress_of(ended: Iterable[EndedRun]) -> list[tuple[float | None, str | None, int]]:
    """Return the progress reports of runs, as columns before the run."""
    return [(*item.ending.progress, item.run.id) for item in ended if item.ending.progress is not None]


def row_of(item: EndedRun, node: str | None) -> RunRow:
    """Return the row of a run that has ended."""
    run, ending = item.run, item.ending
    progress, progress_message = ending.progress or (None, None)
    began = item.started_at
    return RunRow(
        id=run.id,
        job_id=run.name[1],
        namespace=run.name[0],
        scheduled_for=from_micros(run.scheduled_for),
        started_at=None if began is None else from_micros(began),
        finished_at=from_micros(item.finished_at),
        duration_ms=None if began is None else max(item.finished_at - began, 0) / 1000,
        delay_ms=None if began is None else max(began - run.scheduled_for, 0) / 1000,
        attempt=run.attempt,
        trigger=run.trigger,
        outcome=ending.outcome,
        reason=None if (reason := reason_of(ending)) is None else _read_reason(reason),
        error=ending.error,
        message=ending.message,
        exit_code=ending.exit_code,
        node=node,
        claimed_at=from_micros(run.claimed_at),
        result=None if ending.result is None else _read_json(ending.result),
        progress=progress,
        progress_message=progress_message,
        traceback=ending.traceback,
        payload=_read_json(run.payload_json),
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
        claimed_at=from_micros(now),
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


Tally = Mapping[tuple[Micros, str, str], int]
"""How many runs ended, by hour, namespace and outcome."""


def tally_of_endings(ended: Sequence[EndedRun]) -> Tally:
    """Return how many of these runs ended in each hour."""
    hours = {item.finished_at // HOUR * HOUR for item in ended}
    if len(hours) == 1:  # usually
        (hour,) = hours
        return {(hour, *kind): number for kind, number in Counter(map(_KIND, ended)).items()}
    return Counter([(item.finished_at // HOUR * HOUR, *_KIND(item)) for item in ended])


# By attrgetter, in half the time: every run is counted.
_KIND = attrgetter("run.job.namespace", "ending.outcome._value_")


def tally_of_skips(skipped: Iterable[Skipped]) -> Tally:
    """Return how many occurrences were skipped in each hour."""
    numbers: Counter[tuple[Micros, str, str]] = Counter()
    for job, skips, at in skipped:
        for skip in skips:
            numbers[at // HOUR * HOUR, job.namespace, SKIPPED] += max(skip.missed, 1)
    return numbers


def tally_of_unskipped(rows: Iterable[tuple[str, object, object]]) -> Tally:
    """Return what takes rows of skipped occurrences out of the tally: their namespaces, times and numbers."""
    numbers: Counter[tuple[Micros, str, str]] = Counter()
    for namespace, at, missed in rows:
        if is_moment(at) and is_count(missed):
            numbers[at // HOUR * HOUR, namespace, SKIPPED] -= max(missed, 1)
    return numbers


def tally_of_cancelled(namespace: str, number: int, now: Micros) -> Tally:
    """Return that so many runs were cancelled *now*, without a handler that had to end."""
    return {(now // HOUR * HOUR, namespace, Outcome.CANCELLED.value): number} if number else {}


def tally_of_progress(namespaces: Iterable[str]) -> Tally:
    """Return that runs of these namespaces have reported progress."""
    return dict.fromkeys(((PROGRESS_HOUR, namespace, PROGRESS) for namespace in namespaces), 1)


def tally_of_records(runs: Iterable[RunRecord]) -> Tally:
    """Return how many of the copied runs ended in each hour."""
    numbers: Counter[tuple[Micros, str, str]] = Counter()
    for run in runs:
        if run.finished_at is not None:
            count = max(run.missed, 1) if run.outcome == SKIPPED else 1
            numbers[run.finished_at // HOUR * HOUR, run.namespace, run.outcome] += count
    return numbers
