"""Nodes: join, send heartbeats, list the nodes and their claims, leave. `endings` recovers the runs of dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import Priority
from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.messages import NodeIdentity, NodeLost, NodeRow, NodeStatus
from scheduler_async.stores.node_codec import handlers_text, read_handlers, read_node
from scheduler_async.stores.postgres.base import (
    DUE,
    END_LIFE,
    HAS_OWN_RUN,
    HELD,
    IS_INSTANCE_OF_NODE,
    SELECT_STATE,
    WorkBase,
)
from scheduler_async.timekeeping.instants import SECOND, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

JOIN: Final = """
    INSERT INTO node (name, host, pid, process_start, beat, beat_at, since, handlers)
    VALUES ($1, $2, $3, $4, 0, clock_timestamp(), $5, $6)
 RETURNING number
"""
BEAT: Final = "UPDATE node SET beat = beat + 1, beat_at = clock_timestamp(), skew = $2 WHERE number = $1"
NODE_COLUMNS: Final = """
    number, name, host, pid, process_start, beat, since,
    CASE WHEN isfinite(beat_at) THEN extract(epoch FROM clock_timestamp() - beat_at)::float8 END
"""
SELECT_NODES: Final = f"SELECT {NODE_COLUMNS} FROM node"
SELECT_NODES_AT_WORK: Final = f"""
    SELECT {NODE_COLUMNS}, coalesce(skew, 0),
           (SELECT count(*) FROM state WHERE activity <> 'idle' AND state.node = node.number)
           + (SELECT count(*) FROM instance WHERE instance.node = node.number), handlers
      FROM node
  ORDER BY since, number
"""
# The owners of claims that have no row, with one index lookup each. 0 is a claim without a node.
NEXT_OWNER: Final = """
    least((SELECT node FROM state WHERE activity <> 'idle' AND node > {0} ORDER BY node LIMIT 1),
          (SELECT node FROM instance WHERE node > {0} ORDER BY node LIMIT 1))
"""
LOWEST: Final = "'-9223372036854775808'::bigint"
OWNERLESS: Final = f"""
    WITH RECURSIVE owner (number) AS (
        SELECT {NEXT_OWNER.format(LOWEST)}
     UNION ALL
        SELECT {NEXT_OWNER.format("owner.number")}
          FROM owner
         WHERE owner.number IS NOT NULL)
    SELECT number,
           coalesce((SELECT r.node
                       FROM state s JOIN run r ON r.id = s.run
                      WHERE s.activity <> 'idle' AND s.node = owner.number
                      LIMIT 1),
                    (SELECT r.node FROM instance i JOIN run r ON r.id = i.run WHERE i.node = owner.number LIMIT 1))
      FROM owner
     WHERE number IS NOT NULL AND NOT EXISTS (SELECT FROM node WHERE node.number = owner.number)
 UNION ALL
    SELECT 0, NULL
     WHERE EXISTS (SELECT FROM state s WHERE s.activity <> 'idle' AND s.node IS NULL AND {HAS_OWN_RUN})
        OR EXISTS (SELECT FROM instance WHERE node IS NULL)
"""
SELECT_HELD: Final = f"""
    {SELECT_STATE} FROM state s WHERE {HELD}
 UNION ALL
    {SELECT_STATE} FROM instance i JOIN state s USING (uid) WHERE {IS_INSTANCE_OF_NODE}
"""
RUNS_OF_NODE: Final = """
    SELECT run FROM state WHERE activity <> 'idle' AND node = $1 UNION ALL SELECT run FROM instance WHERE node = $1
"""
ARE_REMOVED: Final = "SELECT EXISTS (SELECT FROM job WHERE uid = ANY($1::bigint[]) AND removed_at IS NOT NULL)"
LAST_RANK: Final = len(Priority) - 1
# The handler numbers of waiting jobs, with one index lookup each; the handler with that number; the handler of the
# first of those jobs, which should be the same; and whether a job has a rank that claims do not consider.
HANDLERS_IN_USE: Final = f"""
    WITH RECURSIVE used (number) AS (
        (SELECT s.handler FROM state s WHERE {DUE} ORDER BY s.handler LIMIT 1)
     UNION ALL
        SELECT (SELECT s.handler FROM state s WHERE {DUE} AND s.handler > used.number ORDER BY s.handler LIMIT 1)
          FROM used
         WHERE used.number IS NOT NULL)
    SELECT number,
           (SELECT name FROM handler WHERE handler.number = used.number),
           (SELECT j.handler FROM state s JOIN job j USING (uid) WHERE {DUE} AND s.handler = used.number LIMIT 1),
           EXISTS (SELECT FROM state s WHERE {DUE} AND s.handler = used.number AND s.rank < 0)
           OR EXISTS (SELECT FROM state s WHERE {DUE} AND s.handler = used.number AND s.rank > {LAST_RANK})
      FROM used
     WHERE number IS NOT NULL
"""
HANDLERS_UNDER: Final = "SELECT DISTINCT j.handler FROM state s JOIN job j USING (uid) WHERE s.handler = $1"
MOVE_TO_HANDLER: Final = f"""
    UPDATE state
       SET handler = h.number,
           rank = CASE WHEN state.rank BETWEEN 0 AND {LAST_RANK} THEN state.rank ELSE {Priority.STANDARD.rank} END
      FROM job j JOIN handler h ON h.name = j.handler
     WHERE state.handler = $1 AND j.uid = state.uid
"""
BEGIN_LIFE: Final = """
    INSERT INTO node_span (number, name, host, pid, since, how) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (number) DO UPDATE SET name = excluded.name, host = excluded.host, pid = excluded.pid,
           since = excluded.since, until = NULL, how = excluded.how
"""
# Nodes whose rows are gone without a trace, before the new node gets its own.
LOSE_OTHERS: Final = """
    UPDATE node_span
       SET until = $1, how = $2
     WHERE until IS NULL AND NOT EXISTS (SELECT FROM node WHERE node.number = node_span.number)
"""


class NodeWork(WorkBase):
    """The transactions of nodes. For their purpose, see `Store`."""

    async def join(
        self, db: Connection, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None
    ) -> int:
        await self._put_handlers_right(db)
        values = identity.name, identity.host, identity.pid, identity.process_start, now, handlers_text(handlers)
        number = int(await db.fetchval(JOIN, *values))
        self._node_name = identity.name
        await db.execute(LOSE_OTHERS, now, NodeFate.LOST.value)
        lived = number, identity.name, identity.host, identity.pid, now, NodeFate.RUNNING.value
        await db.execute(BEGIN_LIFE, *lived)
        return number

    async def _put_handlers_right(self, db: Connection) -> None:
        """Correct the handler numbers of jobs after a row of the table of handlers was damaged."""
        for number, name, wanted, has_odd_rank in await db.fetch(HANDLERS_IN_USE):
            if (wanted is None or wanted == name) and not has_odd_rank:
                continue
            if wanted != name:
                problem = Unreadable("name", f"it is {quoted(name)}, but its jobs have the handler {quoted(wanted)}")
                self.unreadable_rows.add("handler", number, problem)
            self._handlers.clear()
            await self._numbers_of(db, {name for (name,) in await db.fetch(HANDLERS_UNDER, number)})
            await db.execute(MOVE_TO_HANDLER, number)

    async def beat(self, db: Connection, node: int, skew: Micros | None) -> list[NodeRow]:
        if await db.execute(BEAT, node, skew) == "UPDATE 0":
            raise NodeLost
        nodes = [self._node(row) for row in await db.fetch(SELECT_NODES)]
        return nodes + [
            NodeRow.missing(*row) for row in await db.fetch(OWNERLESS) if await self._can_recover(db, row[0])
        ]

    async def _can_recover(self, db: Connection, owner: int) -> bool:
        """Return whether `recover` has anything to do for the claims of *owner*, which has no row."""
        jobs = (await self._jobs(db, await db.fetch(SELECT_HELD, owner))).values()
        unreadable = [job.uid for job in jobs if has_unreadable_state(job)]
        return len(unreadable) < len(jobs) or bool(await db.fetchval(ARE_REMOVED, unreadable))

    async def note_handlers(self, db: Connection, node: int, handlers: Sequence[str] | None) -> None:
        await db.execute("UPDATE node SET handlers = $1 WHERE number = $2", handlers_text(handlers), node)

    async def held(self, db: Connection, node: int) -> set[int]:
        return {run for (run,) in await db.fetch(RUNS_OF_NODE, node)}

    async def leave(self, db: Connection, node: int, now: Micros | None = None) -> None:
        if await db.execute("DELETE FROM node WHERE number = $1", node) == "DELETE 1":
            await db.execute(END_LIFE, now, NodeFate.LEFT.value, node)

    async def nodes(self, db: Connection) -> list[NodeStatus]:
        return [
            NodeStatus(
                node=self._node(row[:8]),
                age=int((row[7] or 0) * SECOND),
                skew=row[8],
                running=row[9],
                handlers=read_handlers(row[10]),
            )
            for row in await db.fetch(SELECT_NODES_AT_WORK)
        ]

    def _node(self, row: Sequence[Any]) -> NodeRow:
        node, problem = read_node(row[:-1], row[-1])
        if problem is not None:
            self.unreadable_rows.add("node", node.id, problem)
        return node
