"""Convert jobs to the columns in `columns`, and back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from scheduler_async.errors import StoreError
from scheduler_async.jobs.description import Description, field_of
from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.json_text import from_json_text
from scheduler_async.jobs.spec import SPEC_FIELDS
from scheduler_async.jobs.unreadable import Unreadable, reason_of
from scheduler_async.stores.columns import ACTIVITIES, DESCRIPTION, MOMENT, NAME, OPTIONAL_NAME, STATE
from scheduler_async.stores.unreadable import first_problem, is_moment, is_text, problem_of, shown_text
from scheduler_async.texts import escaped
from scheduler_async.timekeeping.instants import Micros

Row = tuple[Any, ...]
"""The columns of a row: numbers, strings and None."""

# The cached payloads and metadata of a store take about this much memory at most, not counting small ones.
REMEMBERED_BYTES = 64 * 2**20

# ---------------------------------------------------------------- descriptions

_PATHS = tuple(column.path.removeprefix("description.") for column in DESCRIPTION)
_IS_DESCRIBED = tuple(column.path.startswith("description.") for column in DESCRIPTION)
_NEW = JobState()  # for templates, whose state does not matter


def _writer_of_descriptions() -> Callable[[Job], Row]:
    """Generate the function that returns the columns of a job's description. It is twice as fast as a loop."""
    writes = {f"write_{column.name}": column.kind.write for column in DESCRIPTION if column.kind.write}
    values = (
        f"None if job.{path} is None else write_{name}(job.{path})" if kind.write else f"job.{path}"
        for name, kind, path in DESCRIPTION
    )
    scope: dict[str, Any] = {**writes}
    exec(f"def values_of(job): return ({', '.join(values)})", scope)  # noqa: S102 - built from the names in `columns`
    values_of: Callable[[Job], Row] = scope["values_of"]
    return values_of


description_values = _writer_of_descriptions()
"""Return the columns of a job's description."""


def edited_values(job: Job) -> Row:
    """Return the columns of a job's description, with the number that finds its row at the end."""
    uid, *columns = description_values(job)
    return (*columns, uid)


def read_job(row: Row) -> Job:
    """Return the job with this description. Raise `Unreadable` if the description cannot be read."""
    try:
        return _job_of([column.kind.read(value) for column, value in zip(DESCRIPTION, row, strict=True)], ())
    except Exception:  # noqa: S110 - `problems_of` searches for the problem column by column
        pass
    raise problems_of(row)[0]


def _job_of(values: Sequence[Any], unreadable: tuple[Unreadable, ...]) -> Job:
    described: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for path, is_described, value in zip(_PATHS, _IS_DESCRIBED, values, strict=True):
        (described if is_described else others)[path] = value
    return Job(description=Description(**described, unreadable=unreadable), state=_NEW, **others)


def problems_of(row: Row) -> tuple[Unreadable, ...]:
    """Return the problems of a description that `read_job` has rejected, at least one."""
    found = (problem_of(column.name, column.kind.read, value) for column, value in zip(DESCRIPTION, row, strict=True))
    problems = tuple(problem for problem in found if problem is not None)
    return problems or (Unreadable("schedule", "the row is not a valid job"),)


def unreadable_job(row: Row, problems: tuple[Unreadable, ...]) -> Job:
    """Return a job with these *problems* in its description. Placeholders replace the values that cannot be read."""
    unreadable = {problem.column for problem in problems}
    moments = (value for column, value in zip(DESCRIPTION, row, strict=True) if column.kind is MOMENT)
    moment_known = max(filter(is_moment, moments), default=0)
    values: list[Any] = []
    for (name, kind, _), stored in zip(DESCRIPTION, row, strict=True):
        if name not in unreadable:
            values.append(kind.read(stored))
        elif kind in (NAME, OPTIONAL_NAME):
            values.append(escaped(shown_text(stored)))  # displayed as far as possible
        elif name == "uid":
            values.append(stored)  # the store needs the number to remove the job
        else:
            values.append(moment_known if kind is MOMENT else kind.stand_in)
    return _job_of(values, problems)


UNREADABLE_STATE = "its state cannot be read from the store: "
"""The beginning of the `disabled_reason` of a job whose state cannot be read. It is never stored."""


def shown(job: Job, now: Micros) -> Job:
    """Return *job* as users see it: disabled as of *now*, if its description cannot be read."""
    if not job.description.unreadable or job.state.phase is Phase.DISABLED:
        return job
    reason = reason_of(job.description.unreadable)
    state = replace(
        job.state, next_run_at=None, regular_at=None, phase=Phase.DISABLED, disabled_reason=reason, disabled_at=now
    )
    return job.with_state(state)


def has_unreadable_state(job: Job) -> bool:
    """Return whether the state of *job* cannot be read, so that the scheduler cannot decide about it."""
    return job.unreadable_state is not None


def refuse_unreadable_state(job: Job) -> None:
    """Raise a `StoreError` if the state of *job* cannot be read, so that it is not overwritten."""
    if job.unreadable_state is not None:
        raise _refusal(job, [job.unreadable_state], "Repair its row, or remove the job.")


def refuse_stand_ins(job: Job) -> None:
    """Raise a `StoreError` if *job* is about to be stored with placeholders for unreadable values."""
    problems = job.description.unreadable
    if problems:
        fields = list(dict.fromkeys(field_of(problem.column) for problem in problems))
        if set(fields) <= set(SPEC_FIELDS) - {"id", "namespace"}:
            advice = f"Set {' and '.join(f'a new {name}' for name in fields)}, or remove the job."
        else:
            advice = "Repair its row, or remove the job."
        raise _refusal(job, problems, advice)


def refuse_resuming_unreadable(before: Job, job: Job) -> None:
    """Raise a `StoreError` if *job* is resumed although its schedule cannot be read."""
    is_resumed = job.state.phase is Phase.ACTIVE and before.state.phase is not Phase.ACTIVE
    if is_resumed and job.description.lacks("schedule"):
        refuse_stand_ins(job)


def refuse_lossy(before: Job, job: Job) -> None:
    """Raise a `StoreError` if writing a changed *job* would replace what cannot be read."""
    refuse_unreadable_state(before)
    if job.revision != before.revision:
        refuse_stand_ins(job)
    else:
        refuse_resuming_unreadable(before, job)


def _refusal(job: Job, problems: Sequence[Unreadable], advice: str) -> StoreError:
    listed = "; ".join(map(str, problems)).rstrip(".")
    return StoreError(f"Job {job.key} cannot be read from the store: {listed}. {advice}")


# ---------------------------------------------------------------- states

STATE_FIELDS = JobState.__struct_fields__
_READERS = {name: kind.read for name, kind in STATE.items()}


def state_values(state: JobState) -> list[Any]:
    """Return the columns of a state, with enums as strings, because drivers convert enums slowly."""
    values: list[Any] = to_builtins(state)
    return values


def read_state(columns: Row) -> JobState:
    """Return the state with these columns. Raise `Unreadable` if they cannot be read."""
    try:
        state = convert(columns, JobState)
    except (ValidationError, UnicodeError):
        state = None
    if state is None or state.activity not in ACTIVITIES or not _are_texts(state):
        raise first_problem(_READERS, columns) or Unreadable("uid", "the row is not a valid state")
    return state


def _are_texts(state: JobState) -> bool:
    """Return whether all strings are valid UTF-8. Most states have none."""
    message, reason, error, pause = state.last_message, state.disabled_reason, state.last_error, state.paused_reason
    if message is reason is error is pause is state.cursor is state.retries is None:
        return True
    if not all(text is None or _is_json(text) for text in (state.cursor, state.retries)):
        return False
    return all(found is None or is_text(found) for found in (message, reason, error, pause))


def _is_json(text: str) -> bool:
    try:
        from_json_text(text)
    except (ValueError, RecursionError):
        return False
    return True


def unreadable_state(columns: Row, problem: Unreadable) -> JobState:
    """Return the readable part of a state with this *problem*, as disabled with that reason."""
    readable = zip(_READERS.items(), columns, strict=True)
    kept = {name: value for (name, read), value in readable if problem_of(name, read, value) is None}
    shown = {"activity": Status.IDLE, "phase": Phase.DISABLED, "disabled_reason": f"{UNREADABLE_STATE}{problem}"}
    return JobState(**{**kept, "next_run_at": None, **shown})
