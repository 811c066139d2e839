"""Nodes as rows. Pure."""

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
"""The columns of a node, and what each may hold."""


def read_node(columns: Sequence[Any], age: float | None = None) -> tuple[NodeRow, Unreadable | None]:
    """The node that its columns make; and what is wrong with them, if anything is.

    Then only its beats tell whether it lives.
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
