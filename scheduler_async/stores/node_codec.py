"""Convert rows to nodes. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.messages import NodeIdentity, NodeLife, NodeRow
from scheduler_async.stores.unreadable import (
    Reader,
    first_problem,
    is_moment,
    is_name,
    moment,
    name,
    number,
    optional,
    pid,
    problem_of,
    shown_moment,
    shown_text,
)
from scheduler_async.timekeeping.instants import Micros

NODE: dict[str, Reader] = {
    "number": number,
    **dict.fromkeys(("name", "host"), name),
    "pid": pid,
    "process_start": name,
    "beat": number,
    "since": moment,
}
"""The columns of a node, and the values that each may hold."""


def read_node(columns: Sequence[Any], age: float | None = None) -> tuple[NodeRow, Unreadable | None]:
    """Return the node of a row, and the problem of the row if it cannot be read.

    A node with a problem counts as alive as long as it sends heartbeats.
    """
    id_, called, host, process, process_start, beat, since = columns
    problem = first_problem(NODE, columns)
    identity = NodeIdentity(
        name=shown_text(called),
        host=shown_text(host),
        pid=process if problem is None else 0,
        process_start=shown_text(process_start),
    )
    why = None if problem is None else str(problem)
    return NodeRow(id=id_, identity=identity, beat=beat, since=shown_moment(since) or 0, age=age, problem=why), problem


def handlers_text(handlers: Sequence[str] | None) -> str | None:
    """Return the names of handlers as a node stores them. None means any name."""
    return None if handlers is None else json.dumps(sorted(handlers))


def read_handlers(stored: Any) -> frozenset[str] | None:
    """Return the names of the handlers of a node. None means any name, or that they cannot be read."""
    try:
        names = json.loads(stored)
    except (TypeError, ValueError, RecursionError):
        return None
    return frozenset(filter(is_name, names)) if isinstance(names, list) else None


LIFE: dict[str, Reader] = {
    **{column: NODE[column] for column in ("number", "name", "host", "pid", "since")},
    "until": optional(moment),
    "how": NodeFate,
}
"""The columns of the life of a node, and the values that each may hold."""


def read_life(columns: Sequence[Any], now: Micros | None) -> tuple[NodeLife, Unreadable | None]:
    """Return the life of a node, and the problem of its row if it cannot be read. *now* is by the clock of the store.

    *columns* are those of `LIFE`, and of the row of the node, if there is one: its process_start, whether there is a
    row, the time of the last heartbeat, and that of the last run that it recorded.
    """
    *told, process_start, is_there, beat_at, recorded_at = columns
    problem = first_problem(LIFE, told)
    _, called, host, process, since, until, how = told
    identity = NodeIdentity(
        name=shown_text(called),
        host=shown_text(host),
        pid=process if problem_of("pid", pid, process) is None else 0,
        process_start=shown_text(process_start),
    )
    life = NodeLife(
        identity=identity,
        since=shown_moment(since) or 0,
        until=shown_moment(until),
        how=shown_text(how) if problem_of("how", NodeFate, how) else NodeFate(how),
        is_there=bool(is_there),
        age=now - beat_at if now is not None and is_moment(beat_at) else None,
        recorded_at=shown_moment(recorded_at),
    )
    return life, problem
