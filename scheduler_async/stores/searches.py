"""What the pages for operators ask of a store, and the pure functions that every store answers with.

A search is bounded: it looks at a limited number of rows, returns what it has found, and says how far it has come. A
position is a tuple of plain values, which `position_text` makes an opaque text of.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from scheduler_async.errors import InvalidJobError
from scheduler_async.jobs.enums import Outcome, Phase, Status, Trigger
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.timekeeping.instants import HOUR, Micros, to_micros

T = TypeVar("T")

Position: TypeAlias = tuple[int | str, ...]
"""Where a page ends: the values that the rows are ordered by."""

FAILING, LATE = "failing", "late"
"""What `jobs_page` accepts as a status, besides those of `Status`: the last runs failed; due, and not claimed."""

PROGRESS = "progress"
"""The outcome of rows of the tally that count reports of progress. They are for `mark` alone."""

PROGRESS_HOUR: Micros = 0
"""The hour of these rows: no time is known."""

MOST_COUNTED = 10_000
"""Counts go no further."""

WINDOW: Micros = 24 * HOUR
"""`counts` has the occurrences that were skipped in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """A search for jobs. None means any."""

    by_name: bool = False
    """Whether they are ordered by their names. Otherwise by what they do, see `place_of`."""
    status: str | None = None
    text: str | None = None
    """Text that their name, "namespace/id", or their title contains. Those come first whose name or id begins so."""
    handler: str | None = None
    group: str | None = None
    ids: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    ended: bool | None = None
    now: Micros
    after: Position | None = None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSearch:
    """A search for rows of the run log, newest first. None means any."""

    id: str | None = None
    namespaces: frozenset[str] | None = None
    outcome: Outcome | None = None
    trigger: Trigger | None = None
    since: Micros | None = None
    until: Micros | None = None
    after: Position | None = None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSearch:
    """A search for changes of jobs, newest first. None means any."""

    id: str | None = None
    namespaces: frozenset[str] | None = None
    since: Micros | None = None
    until: Micros | None = None
    after: Position | None = None
    limit: int


TALLY_KEYS = ("hour", "namespace", "outcome", "node")
"""What the tally can be counted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySearch:
    """A search in the tally, from the hour of *since* to that of *until*. None is all namespaces."""

    since: Micros
    until: Micros
    namespaces: frozenset[str] | None = None
    by: tuple[str, ...] = TALLY_KEYS
    """Some of `TALLY_KEYS`, in their order. The numbers of all others are added up."""
    after: Position | None = None
    limit: int


@dataclass(frozen=True, kw_only=True)
class Found(Generic[T]):
    """What a search has found."""

    items: Sequence[T]
    next: Position | None = None
    """Where to search on. None if there is nothing more."""
    looked_back_to: Micros | None = None
    """How far it looked, if it stopped before it had found enough."""


class Number(NamedTuple):
    """A count that stopped at a limit, unless it is exact."""

    n: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs there are, by what they do."""

    running: Number
    queued: Number
    late: Number
    failing: Number
    paused: Number
    disabled: Number
    idle: Number
    left_out: Number
    total: Number
    next_run_at: Micros | None


class Tallied(NamedTuple):
    """How many runs ended. What they are not counted by is None, and so is an outcome that cannot be read."""

    hour: Micros | None
    namespace: str | None
    outcome: Outcome | None
    node: str | None
    n: int


# ---------------------------------------------------------------- jobs


def place_of(job: Job) -> tuple[int, int, int]:
    """Return what orders jobs by what they do.

    Those in progress come first, then those that have a next run, by its time, then those that have none.
    """
    state = job.state
    if job.unreadable_state is None and state.activity is not Status.IDLE:
        return 0, 0, job.uid
    if job.unreadable_state is None and state.phase is Phase.ACTIVE and state.next_run_at is not None:
        return 1, state.next_run_at, job.uid
    return 2, 0, job.uid


def begins_with(job: Job, text: str) -> bool:
    """Return whether the name or the id of *job* begins with *text*."""
    return job.id.startswith(text) or f"{job.namespace}/{job.id}".startswith(text)


def position_of(job: Job, wanted: JobSearch) -> Position:
    """Return the place of *job* in the order that is *wanted*."""
    if wanted.text:
        return 0 if begins_with(job, wanted.text) else 1, job.namespace, job.id
    return (job.namespace, job.id) if wanted.by_name else place_of(job)


def is_wanted(job: Job, wanted: JobSearch) -> bool:
    """Return whether *job* meets all conditions."""
    return (
        (wanted.namespaces is None or job.namespace in wanted.namespaces)
        and (wanted.status is None or has_status(job, wanted.status, wanted.now))
        and (wanted.handler is None or job.handler == wanted.handler)
        and (wanted.group is None or job.group == wanted.group)
        and (wanted.ids is None or job.id in wanted.ids)
        and (wanted.ended is None or job.ended is wanted.ended)
        and (not wanted.text or contains(job, wanted.text))
    )


def contains(job: Job, text: str) -> bool:
    """Return whether the name or the title of *job* contains *text*. The case of ASCII letters does not matter."""
    names = (f"{job.namespace}/{job.id}", job.name or "")
    return any(_lower(text) in _lower(name) for name in names)


def _lower(text: str) -> str:
    """Return *text* with ASCII letters in lower case, as SQLite compares them."""
    return text.lower() if text.isascii() else "".join(char.lower() if char.isascii() else char for char in text)


def has_status(job: Job, status: str, now: Micros) -> bool:
    """Return whether *job* has a *status* of `Status`, or is failing or late."""
    if status == FAILING:
        return job.state.consecutive_errors > 0
    if status == LATE:
        return is_late(job, now)
    return job.status.value == status


def is_late(job: Job, now: Micros) -> bool:
    """Return whether *job* is due and not claimed."""
    kind, at, _ = place_of(job)
    return kind == 1 and at <= now


def page_of_jobs(jobs: Iterable[Job], wanted: JobSearch) -> Found[Job]:
    """Return a page of all these *jobs*, of which none is removed."""
    found = sorted((position_of(job, wanted), job) for job in jobs if is_wanted(job, wanted))
    following = [pair for pair in found if wanted.after is None or pair[0] > wanted.after]
    return first_of(following, wanted.limit)


def first_of(following: Sequence[tuple[Position, T]], limit: int) -> Found[T]:
    """Return the first *limit* of the rows, each with its position."""
    page = following[:limit]
    return Found(items=[row for _, row in page], next=page[-1][0] if page and len(following) > limit else None)


def counts_of(jobs: Iterable[Job], left_out: int, now: Micros) -> JobCounts:
    """Return the counts of all these *jobs*, of which none is removed."""
    jobs = list(jobs)
    due = [place_of(job)[1] for job in jobs if place_of(job)[0] == 1]

    def number(status: str) -> Number:
        return Number(sum(has_status(job, status, now) for job in jobs))

    return JobCounts(
        running=number(Status.RUNNING),
        queued=number(Status.QUEUED),
        late=number(LATE),
        failing=number(FAILING),
        paused=number(Status.PAUSED),
        disabled=number(Status.DISABLED),
        idle=number(Status.IDLE),
        left_out=Number(left_out),
        total=Number(len(jobs)),
        next_run_at=min(due, default=None),
    )


# ---------------------------------------------------------------- runs and changes


def is_wanted_run(row: RunRow, wanted: RunSearch) -> bool:
    """Return whether a *row* of the run log meets all conditions."""
    at = None if row.claimed_at is None else to_micros(row.claimed_at)
    return (
        (wanted.id is None or row.job_id == wanted.id)
        and (wanted.namespaces is None or row.namespace in wanted.namespaces)
        and (wanted.outcome is None or row.outcome is wanted.outcome)
        and (wanted.trigger is None or row.trigger is wanted.trigger)
        and (wanted.since is None or (at is not None and at >= wanted.since))
        and (wanted.until is None or (at is not None and at <= wanted.until))
    )


def page_of_runs(rows: Iterable[RunRow], wanted: RunSearch) -> Found[RunRow]:
    """Return a page of all these *rows* of the run log."""
    newest = sorted((row for row in rows if is_wanted_run(row, wanted)), key=lambda row: -row.id)
    following = [((row.id,), row) for row in newest if wanted.after is None or (row.id,) < wanted.after]
    return first_of(following, wanted.limit)


def is_wanted_change(row: ChangeRow, wanted: ChangeSearch) -> bool:
    """Return whether a change meets all conditions."""
    at = to_micros(row.at)
    return (
        (wanted.id is None or row.job_id == wanted.id)
        and (wanted.namespaces is None or row.namespace in wanted.namespaces)
        and (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at <= wanted.until)
    )


def page_of_changes(rows: Iterable[ChangeRow], wanted: ChangeSearch) -> Found[ChangeRow]:
    """Return a page of all these changes."""
    newest = sorted((row for row in rows if is_wanted_change(row, wanted)), key=lambda row: -row.number)
    following = [((row.number,), row) for row in newest if wanted.after is None or (row.number,) < wanted.after]
    return first_of(following, wanted.limit)


def tally_of(rows: Iterable[RunRow]) -> list[Tallied]:
    """Return the tally of all these *rows* of the run log."""
    numbers: dict[tuple[Micros, str, Outcome, str], int] = {}
    for row in rows:
        if row.outcome is not None and row.finished_at is not None:
            at = to_micros(row.finished_at)
            key = at - at % HOUR, row.namespace, row.outcome, row.node or ""
            numbers[key] = numbers.get(key, 0) + (max(row.missed, 1) if row.outcome is Outcome.SKIPPED else 1)
    return [Tallied(*key, n) for key, n in sorted(numbers.items())]


def page_of_tally(sums: Sequence[tuple[Position, int]], wanted: TallySearch) -> Found[Tallied]:
    """Return a page of the tally from these *sums* in their order, each with the values of `wanted.by`."""
    found = []
    for key, n in sums:
        known = dict(zip(wanted.by, key, strict=True))
        outcome = _OUTCOMES.get(known.get("outcome"))
        found.append((key, Tallied(known.get("hour"), known.get("namespace"), outcome, known.get("node"), n)))  # type: ignore[arg-type]
    return first_of(found, wanted.limit)


_OUTCOMES: dict[object, Outcome] = {outcome.value: outcome for outcome in Outcome}


def mark_of(signs: Sequence[object]) -> str:
    """Return a short text that changes with these *signs*, and tells nothing about them."""
    return hashlib.blake2b(repr(signs).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()


# ---------------------------------------------------------------- positions


def position_text(position: Position | None) -> str | None:
    """Return a position as opaque text that a URL can hold."""
    if position is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(position, separators=(",", ":")).encode()).decode().rstrip("=")


def read_position(text: str | None, shapes: Collection[tuple[type, ...]]) -> Position | None:
    """Return the position that *text* means. *shapes* are the types of its values, in one of several forms."""
    if text is None:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        if isinstance(values, list) and tuple(map(type, values)) in shapes and all(map(_is_storable, values)):
            return tuple(values)
    except (ValueError, AttributeError, RecursionError, binascii.Error):
        pass
    raise InvalidJobError('after must be the value of "next" of the page before.', "after")


def _is_storable(value: int | str) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
