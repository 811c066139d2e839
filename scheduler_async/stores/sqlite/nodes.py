"""Nodes: join, send heartbeats, list the nodes and their claims, leave. `endings` recovers the runs of dead ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from scheduler_async.errors import quoted
from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.messages import NodeIdentity, NodeLost, NodeRow, NodeStatus
from scheduler_async.stores.node_codec import handlers_text, read_handlers, read_node
from scheduler_async.stores.sqlite.backfills import SELECT_HELD_BY_BACKFILLS
from scheduler_async.stores.sqlite.base import (
    DUE,
    END_LIFE,
    HAS_OWN_RUN,
    SELECT_HELD,
    SELECT_HELD_INSTANCES,
    WorkBase,
    last_number,
)
from scheduler_async.stores.unreadable import is_moment, is_name
from scheduler_async.timekeeping.instants import Micros

LOWEST, HIGHEST = -(2**63), 2**63 - 1  # the integers of SQLite; texts and blobs are higher
LOWEST_TEXT: Final = f"({LOWEST + 1} - 1)"  # the literal itself would be too large for its sign
LAST_NODE: Final = last_number("node", "node.number")
NODE_COLUMNS: Final = "number, name, host, pid, process_start, beat, since"
SELECT_NODES_AT_WORK: Final = f"SELECT {NODE_COLUMNS}, beat_at, handlers FROM node ORDER BY since, number"
# The owner of each run in progress, and the run. An index finds the owners in each half.
RUNNING_BY_NODE: Final = """
    SELECT node, count(*)
      FROM (SELECT node FROM state INDEXED BY state_claimed WHERE activity <> 'idle'
         UNION ALL
            SELECT node FROM instance)
  GROUP BY node
"""
ARE_CLAIMED: Final = """
    SELECT EXISTS (SELECT 1 FROM state INDEXED BY state_claimed WHERE activity <> 'idle')
        OR EXISTS (SELECT 1 FROM instance)
"""
NEXT_OWNER: Final = """
    min(coalesce((SELECT min(node) FROM state INDEXED BY state_claimed WHERE activity <> 'idle' AND node > {0}), {1}),
        coalesce((SELECT min(node) FROM instance INDEXED BY instance_of_node WHERE node > {0}), {1}))
"""
# The owners of claims that have no row, with one index lookup each. 0 is a claim without a node.
OWNERLESS: Final = f"""
    WITH RECURSIVE owner (number) AS (
        SELECT {NEXT_OWNER.format(LOWEST_TEXT, HIGHEST)}
     UNION ALL
        SELECT {NEXT_OWNER.format("owner.number", HIGHEST)}
          FROM owner
         WHERE owner.number < {HIGHEST})
    SELECT number,
           coalesce((SELECT r.node
                       FROM state s INDEXED BY state_claimed JOIN run r ON r.id = s.run
                      WHERE s.activity <> 'idle' AND s.node = owner.number
                      LIMIT 1),
                    (SELECT r.node
                       FROM instance i INDEXED BY instance_of_node JOIN run r ON r.id = i.run
                      WHERE i.node = owner.number
                      LIMIT 1))
      FROM owner
     WHERE number < {HIGHEST} AND number NOT IN (SELECT number FROM node)
 UNION ALL
    SELECT 0, NULL
     WHERE EXISTS (SELECT 1
                     FROM state s INDEXED BY state_claimed
                    WHERE s.activity <> 'idle' AND s.node IS NULL AND {HAS_OWN_RUN})
        OR EXISTS (SELECT 1 FROM instance INDEXED BY instance_of_node WHERE node IS NULL)
"""
HELD: Final = """
    SELECT run FROM state INDEXED BY state_claimed WHERE activity <> 'idle' AND node = ?
 UNION ALL
    SELECT run FROM instance INDEXED BY instance_of_node WHERE node = ?
"""
IS_REMOVED: Final = "SELECT 1 FROM job WHERE uid = ? AND removed_at IS NOT NULL"
# The next handler number of waiting jobs; the handler with that number; and that of the first of those jobs, which
# should be the same. One index lookup for each handler.
NEXT_HANDLER: Final = f"""
    SELECT s.handler, h.name, j.handler
      FROM state s INDEXED BY state_due JOIN job j USING (uid) LEFT JOIN handler h ON h.number = s.handler
     WHERE {DUE} AND s.handler > ? AND s.handler <= ?
  ORDER BY s.handler
     LIMIT 1
"""
HANDLERS_UNDER: Final = "SELECT DISTINCT j.handler FROM state s JOIN job j USING (uid) WHERE s.handler = ?"
MOVE_TO_HANDLER: Final = """
    UPDATE state
       SET handler = ?
     WHERE handler = ? AND uid IN (SELECT uid FROM job WHERE job.handler = ?)
"""
BEGIN_LIFE: Final = """
    INSERT OR REPLACE INTO node_span (number, name, host, pid, since, how) VALUES (?, ?, ?, ?, ?, ?)
"""
# Nodes whose rows are gone without a trace, before the new node gets its own.
LOSE_OTHERS: Final = """
    UPDATE node_span
       SET until = ?, how = ?
     WHERE number IN (SELECT p.number
                        FROM node_span p INDEXED BY node_span_until
                       WHERE p.until IS NULL AND NOT EXISTS (SELECT 1 FROM node WHERE node.number = p.number))
"""


class NodeWork(WorkBase):
    """The transactions of nodes. For their purpose, see `Store`."""

    def join(
        self,
        db: sqlite3.Connection,
        identity: NodeIdentity,
        now: Micros,
        beat_at: Micros,
        handlers: Sequence[str] | None = None,
    ) -> int:
        self._put_handlers_right(db)
        number = db.execute(
            f"INSERT INTO node (number, name, host, pid, process_start, beat, since, beat_at, handlers)"
            f" VALUES (1 + {LAST_NODE}, ?, ?, ?, ?, 0, ?, ?, ?)",
            (identity.name, identity.host, identity.pid, identity.process_start, now, beat_at, handlers_text(handlers)),
        ).lastrowid
        assert number is not None
        self._node_name = identity.name
        db.execute(LOSE_OTHERS, (now, NodeFate.LOST.value))
        db.execute(BEGIN_LIFE, (number, identity.name, identity.host, identity.pid, now, NodeFate.RUNNING.value))
        return number

    def _put_handlers_right(self, db: sqlite3.Connection) -> None:
        """Correct the handler numbers of jobs after a row of the table of handlers was damaged."""
        number = LOWEST
        while row := db.execute(NEXT_HANDLER, (number, HIGHEST)).fetchone():
            number, name, wanted = row
            if wanted == name or not isinstance(number, int):
                continue
            problem = Unreadable("name", f"it is {quoted(name)}, but its jobs have the handler {quoted(wanted)}")
            self.unreadable_rows.add("handler", number, problem)
            self._handlers.clear()
            numbers: dict[str, int] = {}
            for handler in [name for (name,) in db.execute(HANDLERS_UNDER, (number,)).fetchall() if is_name(name)]:
                db.execute(MOVE_TO_HANDLER, (self._number_of(db, handler, numbers), number, handler))

    def beat(self, db: sqlite3.Connection, node: int, beat_at: Micros) -> list[NodeRow]:
        beaten = db.execute("UPDATE node SET beat = beat + 1, beat_at = ? WHERE number = ?", (beat_at, node))
        if not beaten.rowcount:
            raise NodeLost
        nodes = [self._node(row) for row in db.execute(f"SELECT {NODE_COLUMNS} FROM node")]
        if not db.execute(ARE_CLAIMED).fetchone()[0]:
            return nodes
        return nodes + [
            NodeRow.missing(*row) for row in db.execute(OWNERLESS).fetchall() if self._can_recover(db, row[0])
        ]

    def _can_recover(self, db: sqlite3.Connection, owner: int) -> bool:
        """Return whether `recover` has anything to do for the claims of *owner*, which has no row."""
        rows = db.execute(SELECT_HELD, {"node": owner}).fetchall()
        rows += db.execute(SELECT_HELD_INSTANCES, {"node": owner}).fetchall()
        rows += db.execute(SELECT_HELD_BY_BACKFILLS, {"node": owner}).fetchall()
        jobs = self._jobs(db, [row[:-7] for row in rows]).values()
        return any(not has_unreadable_state(job) or db.execute(IS_REMOVED, (job.uid,)).fetchone() for job in jobs)

    def note_handlers(self, db: sqlite3.Connection, node: int, handlers: Sequence[str] | None) -> None:
        db.execute("UPDATE node SET handlers = ? WHERE number = ?", (handlers_text(handlers), node))

    def held(self, db: sqlite3.Connection, node: int) -> set[int]:
        return {run for (run,) in db.execute(HELD, (node, node))}

    def leave(self, db: sqlite3.Connection, node: int, now: Micros | None = None) -> None:
        if db.execute("DELETE FROM node WHERE number = ?", (node,)).rowcount:
            db.execute(END_LIFE, (now, NodeFate.LEFT.value, node))

    def nodes(self, db: sqlite3.Connection, now: Micros) -> list[NodeStatus]:
        running = dict(db.execute(RUNNING_BY_NODE).fetchall())
        return [
            NodeStatus(
                node=self._node(row),
                age=now - beat_at if is_moment(beat_at) else 0,
                running=running.get(row[0], 0),
                handlers=read_handlers(handlers),
            )
            for *row, beat_at, handlers in db.execute(SELECT_NODES_AT_WORK)
        ]

    def _node(self, row: Sequence[Any]) -> NodeRow:
        node, problem = read_node(row)
        if problem is not None:
            self.unreadable_rows.add("node", node.id, problem)
        return node
