"""What happened to jobs and nodes: changes with their actors, and the lives of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from scheduler_async.jobs.json_forms import form_of
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import check_name

# ---------------------------------------------------------------- actors


class Actor(NamedTuple):
    """The person or program that makes a change, and the tool that was used."""

    name: str | None = None
    via: str | None = None


NO_ACTOR = Actor()
"""The actor of a program that does not name one."""

THE_SCHEDULER = Actor("scheduler")
"""The actor of changes that no caller asked for, such as disabling a job after failures."""

_acting: ContextVar[Actor] = ContextVar("scheduler_async_actor", default=NO_ACTOR)


@contextmanager
def acting_as(actor: str | None, *, via: str | None = None) -> Iterator[None]:
    """Name the person or program that makes the changes in this block. `Scheduler.changes` tells it.

    >>> import asyncio
    >>> from scheduler_async import Every, Scheduler, acting_as
    >>> async def main() -> None:
    ...     scheduler = Scheduler(":memory:")
    ...     with acting_as("anna", via="admin"):
    ...         await scheduler.add_job(Every("5m"), handler="clean-up", id="clean-up")
    ...     (row,) = await scheduler.changes("clean-up")
    ...     print(row.action, row.actor, row.via)
    ...     await scheduler.stop()
    >>> asyncio.run(main())
    add anna admin

    It applies to the current task, and to the tasks that it starts. *via* is the tool or the page that was used.
    None as the *actor* removes the name again.
    """
    named = Actor(
        None if actor is None else check_name(actor, "actor"), None if via is None else check_name(via, "via")
    )
    token = _acting.set(named)
    try:
        yield
    finally:
        _acting.reset(token)


def current_actor() -> Actor:
    """Return the actor that `acting_as` has named for this task."""
    return _acting.get()


# ---------------------------------------------------------------- changes


class Action(StrEnum):
    """What was done to a job."""

    ADD = "add"
    EDIT = "edit"
    PAUSE = "pause"
    RESUME = "resume"
    DISABLE = "disable"
    REMOVE = "remove"
    TRIGGER = "trigger"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True)
class ChangeRow:
    """A change of a job, as `Scheduler.changes` returns it."""

    number: int
    """Numbers grow with time."""
    at: datetime
    namespace: str
    job_id: str
    action: Action | str
    """What was done. It is text only if the store cannot read it."""
    actor: str | None = None
    """The person or program that did it: the name from `acting_as`, "scheduler" for the scheduler itself, or None."""
    via: str | None = None
    """The tool that was used, such as "cli"."""
    reason: str | None = None
    before: Mapping[str, Json] = field(default_factory=dict)
    """The fields that changed, as they were. Values have their JSON form."""
    after: Mapping[str, Json] = field(default_factory=dict)
    """The fields that changed, as they are since. For a new job, the fields that differ from their defaults; for a
    removed job, *before* holds those."""

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict of JSON values."""
        form = form_of(self, [field.name for field in fields(self)])
        return {**form, "before": dict(self.before), "after": dict(self.after)}


# ---------------------------------------------------------------- nodes


class NodeFate(StrEnum):
    """What became of a node: it still runs, it left in order, or it was lost."""

    RUNNING = "running"
    LEFT = "left"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True)
class NodeSpan:
    """The life of a scheduler that shares the store, as `Scheduler.node_history` returns it."""

    name: str
    host: str
    pid: int
    since: datetime
    until: datetime | None
    """When it left, or when it was last known to live. None while it runs, or if that is not known."""
    how: NodeFate | str
    """"running", "left" or "lost": its process died, or the other nodes did not hear from it in time."""

    def to_json(self) -> dict[str, Any]:
        """Return the life of the node as a dict of JSON values."""
        return form_of(self, [field.name for field in fields(self)])
