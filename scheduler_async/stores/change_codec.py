"""Convert changes of jobs to rows and back. Pure.

A row holds the fields that changed as JSON objects, before and after. Values are written as in `to_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any, Final

from scheduler_async.jobs.description import Description, field_of
from scheduler_async.jobs.enums import ENDED, Misfire, OnInterrupt, Phase, Priority
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.history import THE_SCHEDULER, Action, Actor, ChangeRow
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.json_forms import plain
from scheduler_async.jobs.json_text import Json, from_json_text
from scheduler_async.jobs.policies import POLICY_FIELDS
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.terms import Transition
from scheduler_async.schedules.manual import Manual
from scheduler_async.stores.copy_records import ChangeCopy, RunKey, after_of_run
from scheduler_async.stores.unreadable import (
    Reader,
    first_problem,
    is_name,
    moment,
    number,
    optional,
    problem_of,
    shown_text,
    text,
)
from scheduler_async.timekeeping.durations import format_interval
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, iso_text

ChangeRecord = tuple[int, Micros, str, str | None, str | None, str | None, str | None, str | None]
"""A row of the table of changes without its number: uid, at, action, actor, via, reason, before and after."""

CHANGE_COLUMNS: Final = ("uid", "at", "action", "actor", "via", "reason", "before", "after")

# A payload may have any size, and every edit of it would keep two copies.
LARGEST_VALUE = 65_536  # characters of JSON

# Python 3.11 finds a name of the module ten times faster than a member of an enum.
DISABLED, PAUSED, RESUMED = EventKind.DISABLED, EventKind.PAUSED, EventKind.RESUMED
DISABLE, EDIT, PAUSE, RESUME = Action.DISABLE, Action.EDIT, Action.PAUSE, Action.RESUME
ACTIVE_PHASE, DISABLED_PHASE, PAUSED_PHASE = Phase.ACTIVE, Phase.DISABLED, Phase.PAUSED

# ---------------------------------------------------------------- writing


def alteration(before: Job, job: Job, kind: EventKind | None, at: Micros, by: Actor) -> ChangeRecord | None:
    """Return the record of a changed job, or None if none of its public fields changed. *kind* is the event of it."""
    was: dict[str, str] = {}
    is_now: dict[str, str] = {}
    is_edited = before.description is not job.description or before.handler != job.handler
    if is_edited:
        _note_descriptions(before, job, was, is_now)
        is_edited = bool(was)
    _note_states(before.state, job.state, kind, was, is_now)
    if not was:
        return None
    action = _action(before.state, job.state, kind, is_edited=is_edited)
    state = job.state
    reason = state.disabled_reason if action is DISABLE else state.paused_reason if action is PAUSE else None
    return (job.uid, at, action._value_, by.name, by.via, reason, _object(was), _object(is_now))


def disables(change: Transition) -> bool:
    """Return whether the scheduler decides to disable a job with this *change*."""
    return change.kind is DISABLED and change.state.disabled_reason != ENDED


def disablings(changed: Iterable[tuple[Job, Transition, Micros]]) -> list[ChangeRecord]:
    """Return the records of the jobs that the scheduler disables: each before, its change, and the time.

    A schedule that ended is not a decision, and has no record.
    """
    return [
        record
        for before, change, at in changed
        if disables(change)
        if (record := alteration(before, change.job, DISABLED, at, THE_SCHEDULER)) is not None
    ]


def resumptions(changed: Iterable[tuple[Job, Transition]]) -> list[ChangeRecord]:
    """Return the records of the jobs whose pause ends by itself: each before, and its change."""
    return [
        record
        for before, change in changed
        if (record := alteration(before, change.job, change.kind, before.state.paused_until or 0, THE_SCHEDULER))
    ]


def removal(job: Job, at: Micros, by: Actor, reason: str | None = None) -> ChangeRecord:
    """Return the record of a removed job, with the fields that a new job with its schedule would not have."""
    schedule = "null" if job.description.lacks("schedule") else job.schedule.json_text()
    was = {"schedule": schedule, "handler": _text(job.handler)}
    _note_descriptions(job, _NEW, was, {})
    _note_states(job.state, _NEW.state, None, was, {})
    return (job.uid, at, Action.REMOVE.value, by.name, by.via, reason, _object(was), None)


def plain_record(
    uid: int, at: Micros, action: Action, by: Actor, reason: str | None = None, *, run: int | None = None
) -> ChangeRecord:
    """Return the record of a change without fields: a trigger or a cancellation of a *run*."""
    return (uid, at, action.value, by.name, by.via, reason, None, None if run is None else after_of_run(run))


def _action(was: JobState, state: JobState, kind: EventKind | None, *, is_edited: bool) -> Action:
    """Return what was done. *kind* tells it, unless a change of the description did more."""
    entered = None if state.phase is was.phase else state.phase
    if entered is DISABLED_PHASE and state.disabled_reason != ENDED:
        return DISABLE
    if is_edited:
        return EDIT
    if kind is PAUSED or entered is PAUSED_PHASE:
        return PAUSE
    return RESUME if kind is RESUMED or entered is ACTIVE_PHASE else EDIT


Written = tuple[Callable[[Job], Any], Callable[[Any], str]]
"""How to get the value of a field, and how to write it as JSON."""


def _text(value: object) -> str:
    return "null" if value is None else json.dumps(value)


def _described(path: str, write: Callable[[Any], str] = _text) -> Written:
    return attrgetter(f"description.{path}"), write


# The fields that describe a job, by their public names.
_FIELDS: dict[str, Written] = {
    "schedule": _described("schedule", methodcaller("json_text")),
    "handler": (attrgetter("handler"), _text),
    "payload": _described("payload_json", str),
    "metadata": _described("metadata_json", str),
    **{name: _described(name) for name in ("user_id", "name", "priority", "group", "misfire")},
    "retry": _described("retry", lambda policy: _text(None if policy is None else policy.to_json())),
    "timeout": _described("timeout", lambda time: _text(None if time is None else format_interval(time))),
    "on_interrupt": _described("on_interrupt"),
    **{name: _described(f"policy.{name}", lambda value: _text(plain(value))) for name in POLICY_FIELDS},
}


def _note_descriptions(old: Job, new: Job, was: dict[str, str], is_now: dict[str, str]) -> None:
    """Note the fields of a description that changed. The value of a field that cannot be read is not known."""
    unknown = {field_of(problem.column) for one in (old, new) for problem in one.description.unreadable}
    for name, (value_of, write) in _FIELDS.items():
        value, other = value_of(old), value_of(new)
        if name in unknown:
            was[name], is_now[name] = (
                "null" if one.description.lacks(name) else write(value_of(one)) for one in (old, new)
            )
            if was[name] == is_now[name]:
                del was[name], is_now[name]
        elif value != other:
            was[name], is_now[name] = write(value), write(other)


def _note_states(
    old: JobState, new: JobState, kind: EventKind | None, was: dict[str, str], is_now: dict[str, str]
) -> None:
    """Note the fields of a state that users change, if they changed. A run in progress does not matter."""
    before, after = old.phase, new.phase
    if before is not after:
        was["status"], is_now["status"] = _STATUS[before], _STATUS[after]
        if before is DISABLED_PHASE or after is DISABLED_PHASE:
            was["enabled"], is_now["enabled"] = _ENABLED[before], _ENABLED[after]
    if old.disabled_reason != new.disabled_reason:
        was["disabled_reason"], is_now["disabled_reason"] = _text(old.disabled_reason), _text(new.disabled_reason)
    if old.paused_reason != new.paused_reason:
        was["paused_reason"], is_now["paused_reason"] = _text(old.paused_reason), _text(new.paused_reason)
    if old.paused_until != new.paused_until:
        was["paused_until"], is_now["paused_until"] = _iso_text(old.paused_until), _iso_text(new.paused_until)
    if old.cursor != new.cursor:
        was["cursor"], is_now["cursor"] = old.cursor or "null", new.cursor or "null"
    if kind is RESUMED and old.consecutive_errors != new.consecutive_errors:  # it starts afresh
        was["consecutive_errors"], is_now["consecutive_errors"] = str(old.consecutive_errors), "0"


_STATUS = {Phase.ACTIVE: '"idle"', Phase.PAUSED: '"paused"', Phase.DISABLED: '"disabled"'}
_ENABLED = {Phase.ACTIVE: "true", Phase.PAUSED: "true", Phase.DISABLED: "false"}


def _iso_text(at: Micros | None) -> str:
    return "null" if at is None else _text(iso_text(from_micros(at)))


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join([f'"{name}":{_kept(value)}' for name, value in texts.items()]) + "}"


TOO_LARGE = "characters of JSON are too many to keep"


def is_placeholder(value: object) -> bool:
    """Return whether *value* is the text that stands for a value of a change that was too large to keep."""
    return isinstance(value, str) and value.endswith(f" {TOO_LARGE}") and value.split(" ", 1)[0].isdecimal()


def _kept(value: str) -> str:
    return value if len(value) <= LARGEST_VALUE else f'"{len(value)} {TOO_LARGE}"'


# ---------------------------------------------------------------- new jobs

_NEW = Job(Description(schedule=Manual()), JobState(), id="", namespace="", handler="", anchor=0, created=0, updated=0)
# The fields that a new job has written only if they differ from their defaults.
_USUAL = {name: value_of(_NEW) for name, (value_of, _) in _FIELDS.items() if name not in ("schedule", "handler")}


def text_of_new_job(job: Job) -> str:
    """Return the JSON of a new job: its schedule, its handler, and the fields that differ from their defaults."""
    values = {name: (value_of(job), write) for name, (value_of, write) in _FIELDS.items()}
    written = {
        name: write(value) for name, (value, write) in values.items() if name not in _USUAL or value != _USUAL[name]
    }
    if job.state.phase is DISABLED_PHASE:
        written["enabled"] = "false"
    return _object(written)


def content_of_new_job(quote: str) -> str:
    """Return the SQL expression for what `text_of_new_job` returns, made from the columns of its row.

    *quote* is the function of the dialect that writes text as JSON. To do this in Python would take twice as long, and
    many jobs are added at once.
    """
    others = {
        "metadata": ("metadata = '{}'", _kept_in_sql("metadata")),
        **{name: (f"{name} IS NULL", f"{quote}({name})") for name in ("user_id", "name")},
        "priority": (f"priority = '{Priority.STANDARD.value}'", f"{quote}(priority)"),
        "group": ("job_group IS NULL", f"{quote}(job_group)"),
        "misfire": (f"misfire = '{Misfire.RUN_ONCE.value}'", f"{quote}(misfire)"),
        "retry": ("retry IS NULL", "retry"),
        "timeout": ("timeout IS NULL", f"{quote}({_INTERVAL})"),
        "on_interrupt": (f"on_interrupt = '{OnInterrupt.RERUN.value}'", f"{quote}(on_interrupt)"),
    }
    all_usual = " AND ".join((*(is_usual for is_usual, _ in others.values()), "policy IS NULL"))
    written = " || ".join(_unless(is_usual, name, value) for name, (is_usual, value) in others.items())
    written += " || CASE WHEN policy IS NULL THEN '' ELSE ',' || substr(policy, 2, length(policy) - 2) END"
    return f"""
           '{{"schedule":' || schedule || ',"handler":' || {quote}(handler)
           || {_unless("payload = 'null'", "payload", _kept_in_sql("payload"))}
           || CASE WHEN {all_usual} THEN '' ELSE {written} END || '}}'
    """


def _unless(is_usual: str, name: str, value: str) -> str:
    return f"""CASE WHEN {is_usual} THEN '' ELSE ',"{name}":' || {value} END"""


def _kept_in_sql(column: str) -> str:
    size = f"length({column})"
    return f"""CASE WHEN {size} > {LARGEST_VALUE} THEN '"' || {size} || ' {TOO_LARGE}"' ELSE {column} END"""


# The timeout, as `format_interval` writes it.
_INTERVAL = " ".join(
    [
        "CASE",
        *(
            f"WHEN timeout % {size} = 0 THEN (timeout / {size}) || '{unit}'"
            for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))
        ),
        "ELSE timeout || 'us' END",
    ]
)


# ---------------------------------------------------------------- reading


def _read_object(value: Any) -> dict[str, Json]:
    found: Json = from_json_text(text(value))
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - as all readers do
    return found


CHANGE: dict[str, Reader] = {
    "number": number,
    **dict.fromkeys(("namespace", "job_id"), lambda _: None),  # columns of the job
    "at": moment,
    "action": Action,
    **dict.fromkeys(("actor", "via", "reason"), optional(text)),
    **dict.fromkeys(("before", "after"), optional(_read_object)),
}
"""The columns of a change, and the values that each may hold."""


def read_change(columns: Sequence[Any]) -> tuple[ChangeRow, Unreadable | None]:
    """Return the change of a row, and the problem of the row if it cannot be read.

    A row with a problem contains its readable parts, and its reason names the problem.
    """
    problem = first_problem(CHANGE, columns)
    if problem is None:
        number_, namespace, job_id, at, action, actor, via, reason, before, after = columns
        return (
            ChangeRow(
                number=number_,
                at=from_micros(at),
                namespace=shown_text(namespace),
                job_id=shown_text(job_id),
                action=Action(action),
                actor=actor,
                via=via,
                reason=reason,
                before={} if before is None else _read_object(before),
                after={} if after is None else _read_object(after),
            ),
            None,
        )
    kept: dict[str, Any] = {
        name: value
        for (name, read), value in zip(CHANGE.items(), columns, strict=True)
        if problem_of(name, read, value) is None
    }
    objects = {name: _read_object(kept[name]) if kept.get(name) else {} for name in ("before", "after")}
    stored = dict(zip(CHANGE, columns, strict=True))
    return (
        ChangeRow(
            number=stored["number"],
            at=from_micros(kept.get("at", 0)),
            namespace=shown_text(stored["namespace"]),
            job_id=shown_text(stored["job_id"]),
            action=Action(kept["action"]) if "action" in kept else shown_text(stored["action"]),
            actor=kept.get("actor"),
            via=kept.get("via"),
            reason=f"{UNREADABLE_CHANGE}{problem}",
            **objects,
        ),
        problem,
    )


def read_change_to_copy(columns: Sequence[Any], run: Sequence[Any]) -> ChangeCopy | int:
    """Return a change for a copy, with the key of its *run*; or its number if it cannot be read."""
    number_, namespace, job_id, at, action, actor, via, reason, before, after = columns
    if first_problem(CHANGE, columns) is not None or not all(map(is_name, (namespace, job_id))):
        return int(number_)
    key = RunKey(*run) if None not in run else None
    if key is None and action in (Action.TRIGGER.value, Action.CANCEL.value):
        after = None  # another store has other numbers of runs
    return ChangeCopy(number_, namespace, job_id, at, action, actor, via, reason, before, after, key)


UNREADABLE_CHANGE = "This row cannot be read from the store: "
"""The beginning of the `reason` of a change that cannot be read."""
