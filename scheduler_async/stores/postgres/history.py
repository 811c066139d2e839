"""The past: changes of jobs and the lives of nodes. Other modules write both, in the transactions that make them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.history import ChangeRow
from scheduler_async.stores.change_codec import read_change
from scheduler_async.stores.conditions import RECORDED_AT, conditions_of_changes
from scheduler_async.stores.messages import FEW_JOBS, LONG_LIFE, MOST_LIVES, ChangeFilter, NodeLife
from scheduler_async.stores.node_codec import read_life
from scheduler_async.stores.postgres.base import BEAT_AT, WorkBase
from scheduler_async.stores.postgres.jobs import NAME_EXISTS, PARAMETER
from scheduler_async.stores.postgres.texts import kept, kept_values, original
from scheduler_async.stores.row_range import CHANGES
from scheduler_async.timekeeping.instants import FIRST, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

SELECT_CHANGES: Final = """
    SELECT c.number, j.namespace, j.id, c.at, c.action, c.actor, c.via, c.reason, c.before, c.after
      FROM change c JOIN job j USING (uid)
"""
JOBS_NAMED: Final = "SELECT uid FROM job WHERE namespace = $1 AND id = $2 AND removed_at {}"
JOBS_OF: Final = """
    (SELECT uid FROM job WHERE namespace = $1 AND removed_at IS NULL LIMIT $2)
 UNION ALL
    (SELECT uid FROM job WHERE namespace = $1 AND removed_at IS NOT NULL LIMIT $2)
"""
SELECT_LIVES: Final = f"""
    SELECT p.number, p.name, p.host, p.pid, p.since, p.until, p.how, n.process_start, n.number IS NOT NULL, {BEAT_AT},
           CASE WHEN p.until IS NULL THEN {RECORDED_AT.format("p.name")} END,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      FROM node_span p LEFT JOIN node n USING (number)
"""
RUNNING: Final = f"{SELECT_LIVES} WHERE p.until IS NULL ORDER BY p.number DESC LIMIT $1"
ENDED: Final = f"{SELECT_LIVES} WHERE p.until >= $2 ORDER BY p.until DESC LIMIT $1"
# Short lives that cover a time end soon after it, and there are few long ones.
LIVES_ABOUT: Final = f"""
    {SELECT_LIVES}
     WHERE p.number = ANY(ARRAY(
            SELECT number FROM node_span WHERE until IS NULL
     UNION (SELECT number
              FROM node_span
             WHERE until >= $1 AND until < $2 + {LONG_LIFE} AND since < $2
             LIMIT {MOST_LIVES})
     UNION (SELECT number
              FROM node_span
             WHERE until - since::float8 >= {LONG_LIFE} AND until >= $1 AND since < $2
             LIMIT {MOST_LIVES})
     UNION (SELECT number FROM node_span WHERE until < $1 ORDER BY until DESC LIMIT 1)
     UNION (SELECT number FROM node_span WHERE since >= $2 ORDER BY since LIMIT 1)))
  ORDER BY p.number DESC
"""
# The oldest changes come first, so each slice looks at no others.
PURGE_CHANGES: Final = """
    DELETE FROM change
     WHERE number = ANY(ARRAY(SELECT number FROM change ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED)) AND at < $1
"""
PURGE_LIVES: Final = """
    DELETE FROM node_span
     WHERE number = ANY(ARRAY(SELECT number
                                FROM node_span
                               WHERE until < $1
                            ORDER BY until
                               LIMIT $2
                                 FOR UPDATE SKIP LOCKED))
"""

# The oldest hours come first in the index.
PURGE_TALLY: Final = """
    DELETE FROM tally
     WHERE ctid = ANY(ARRAY(SELECT ctid FROM tally WHERE hour < $1 ORDER BY hour LIMIT $2 FOR UPDATE SKIP LOCKED))
"""
# Requests to cancel runs. Their runs have ended before a node noticed the request, or are gone.
FORGET_OUTDATED: Final = """
    DELETE FROM request
     WHERE kind = 'cancel' AND NOT EXISTS (SELECT FROM state s WHERE s.uid = request.uid AND s.run = request.run)
       AND NOT EXISTS (SELECT FROM instance i WHERE i.run = request.run)
"""


class HistoryWork(WorkBase):
    """The transactions about the past. For their purpose, see `Store`."""

    async def list_changes(self, db: Connection, wanted: ChangeFilter) -> list[ChangeRow]:
        uids = await self._uids(db, wanted)
        where = conditions_of_changes(wanted, PARAMETER)
        if uids is not None:
            where.require("c.uid = ANY({}::bigint[])", uids)
        elif wanted.since is not None and (found := await self._range(db, CHANGES, wanted.since)) is not None:
            where.require("c.number >= {}", found.first)
        rows = await db.fetch(
            f"{SELECT_CHANGES} {where} ORDER BY c.number DESC LIMIT {where.next()}",
            *kept_values(where.values),
            wanted.limit,
        )
        return [self._change(row) for row in rows]

    async def _uids(self, db: Connection, wanted: ChangeFilter) -> list[int] | None:
        """Return the numbers of the jobs that are asked for, or None if there are too many."""
        if wanted.id is not None:
            name = kept(wanted.namespace or ""), kept(wanted.id)
            exists = await db.fetchval(NAME_EXISTS, *name)
            found = await db.fetch(JOBS_NAMED.format("IS NULL" if exists else "IS NOT NULL"), *name)
        elif wanted.namespace is not None:
            found = await db.fetch(JOBS_OF, kept(wanted.namespace), FEW_JOBS + 1)
        else:
            return None
        return [uid for (uid,) in found] if len(found) <= FEW_JOBS or wanted.id is not None else None

    def _change(self, row: Sequence[Any]) -> ChangeRow:
        *columns, before, after = row
        told = [original(value) if isinstance(value, str) else value for value in columns]
        change, problem = read_change([*told, before, after])
        if problem is not None:
            self.unreadable_rows.add("change", change.number, problem)
        return change

    async def node_lives(self, db: Connection, since: Micros | None = None, limit: int | None = None) -> list[NodeLife]:
        rows = await db.fetch(RUNNING, limit)
        left = None if limit is None else limit - len(rows)
        rows += await db.fetch(ENDED, left, FIRST if since is None else since)
        return [self._life(row) for row in sorted(rows, reverse=True, key=itemgetter(0))]

    async def lives_about(self, db: Connection, start: Micros, end: Micros) -> list[NodeLife]:
        return [self._life(row) for row in await db.fetch(LIVES_ABOUT, start, end)]

    def _life(self, row: Sequence[Any]) -> NodeLife:
        life, problem = read_life(row[:-1], row[-1])
        if problem is not None:
            self.unreadable_rows.add("node_span", row[0], problem)
        return life

    async def purge_history(self, db: Connection, before: Micros, limit: int) -> int:
        await db.execute(FORGET_OUTDATED)
        done = [await db.execute(statement, before, limit) for statement in (PURGE_CHANGES, PURGE_LIVES, PURGE_TALLY)]
        return max(int(answer.rpartition(" ")[2]) for answer in done)
