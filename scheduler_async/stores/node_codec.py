"""Convert rows to nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.messages import NodeIdentity, NodeRow
from scheduler_async.stores.unreadable import (
    Reader,
    first_problem,
    moment,
    name,
    number,
    pid,
    shown_moment,
    shown_text,
)

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
