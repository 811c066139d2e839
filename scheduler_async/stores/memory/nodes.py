"""Nodes: join, send heartbeats, list the nodes and their claims, leave. `endings` recovers the runs of dead ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler_async.jobs.history import NodeFate
from scheduler_async.stores.memory.base import WorkBase
from scheduler_async.stores.memory.records import StoredLife, StoredNode
from scheduler_async.stores.messages import NodeIdentity, NodeLost, NodeRow, NodeStatus
from scheduler_async.timekeeping.instants import Micros


class NodeWork(WorkBase):
    """The transactions of nodes. For their purpose, see `Store`."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[int, StoredNode] = {}
        self._lives: dict[int, StoredLife] = {}
        self._last_node = 0

    def _require_node(self, number: int) -> str:
        """Return the name of a node. Raise `NodeLost` if it has no row."""
        node = self._nodes.get(number)
        if node is None:
            raise NodeLost
        return node.row.identity.name

    def join(self, identity: NodeIdentity, now: Micros, beat_at: Micros, handlers: Sequence[str] | None = None) -> int:
        for number, life in self._lives.items():
            if life.until is None and number not in self._nodes:  # gone without a trace
                life.until, life.how = now, NodeFate.LOST
        self._last_node += 1
        row = NodeRow(id=self._last_node, identity=identity, beat=0, since=now)
        self._nodes[row.id] = StoredNode(row, _handlers(handlers), beat_at)
        self._lives[row.id] = StoredLife(identity, now)
        self._node_name = identity.name
        return row.id

    def beat(self, node: int, beat_at: Micros) -> list[NodeRow]:
        self._require_node(node)
        own = self._nodes[node]
        own.row = NodeRow(id=node, identity=own.row.identity, beat=own.row.beat + 1, since=own.row.since)
        own.beat_at = beat_at
        missing = {owner.node for owner in self._tables.owners.values()} - self._nodes.keys()
        rows = [stored.row for stored in self._nodes.values()]
        return rows + [NodeRow.missing(number, self._lives[number].identity.name) for number in sorted(missing)]

    def note_handlers(self, node: int, handlers: Sequence[str] | None) -> None:
        if node in self._nodes:
            self._nodes[node].handlers = _handlers(handlers)

    def held(self, node: int) -> set[int]:
        return {run for run, owner in self._tables.owners.items() if owner.node == node}

    def leave(self, node: int, now: Micros | None = None) -> None:
        if self._nodes.pop(node, None) is not None:
            self._end_life(node, now, NodeFate.LEFT)

    def _end_life(self, node: int, until: Micros | None, how: NodeFate) -> None:
        life = self._lives.get(node)
        if life is not None and life.until is None:
            life.until, life.how = until, how

    def nodes(self) -> list[NodeStatus]:
        running = Counter(owner.node for owner in self._tables.owners.values())
        stored = sorted(self._nodes.values(), key=lambda node: (node.row.since, node.row.id))
        # In a store of one process, nodes send no heartbeats, and none is too old.
        return [
            NodeStatus(node=node.row, age=0, running=running[node.row.id], handlers=node.handlers) for node in stored
        ]


def _handlers(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
