"""The past: changes of jobs and the lives of nodes. Other modules write both, in the transactions that make them."""

from __future__ import annotations

import json
import sqlite3
from operator import itemgetter
from typing import Final

from scheduler_async.jobs.history import ChangeRow
from scheduler_async.stores.change_codec import read_change
from scheduler_async.stores.codec import Row
from scheduler_async.stores.conditions import RECORDED_AT, conditions_of_changes
from scheduler_async.stores.messages import FEW_JOBS, LONG_LIFE, MOST_LIVES, ChangeFilter, NodeLife
from scheduler_async.stores.node_codec import read_life
from scheduler_async.stores.row_range import CHANGES
from scheduler_async.stores.sqlite.base import EARLIEST, WorkBase
from scheduler_async.stores.sqlite.jobs import NAME_EXISTS, PARAMETER
from scheduler_async.timekeeping.instants import FIRST, Micros

COLUMNS: Final = "c.number, j.namespace, j.id, c.at, c.action, c.actor, c.via, c.reason, c.before, c.after"
SELECT_CHANGES: Final = f"SELECT {COLUMNS} FROM change c CROSS JOIN job j ON j.uid = c.uid"


def chained(jobs: str, link: str = "previous", since: str = "") -> str:
    """Return the table `chain` of the changes of *jobs*, a query of their last ones.

    *link* is the column that leads to the next one, "previous" or "decision". A chain ends before the parameter
    *since*, if it is given. Numbers fall along a chain, and the rows of all chains come by their numbers, so that a
    query with a limit follows the chains no further.
    """
    ends = f"AND c.at >= {since}" if since else ""
    return f"""
        WITH RECURSIVE chain (number) AS (
            {jobs}
         UNION ALL
            SELECT c.{link} FROM chain CROSS JOIN change c USING (number) WHERE c.{link} < c.number {ends}
          ORDER BY 1 DESC)
    """


SELECT_CHANGES_OF: Final = f"""
    SELECT {COLUMNS} FROM chain CROSS JOIN change c USING (number) CROSS JOIN job j ON j.uid = c.uid
"""
LAST_OF: Final = "SELECT last_change FROM job WHERE namespace = ? AND id = ? AND removed_at {}"
LAST_OF_ALL: Final = """
    SELECT last_change
      FROM (SELECT last_change FROM job WHERE namespace = :namespace AND removed_at IS NULL LIMIT :most)
 UNION ALL
    SELECT last_change
      FROM (SELECT last_change FROM job WHERE namespace = :namespace AND removed_at IS NOT NULL LIMIT :most)
"""
SELECT_LIVES: Final = f"""
    SELECT p.number, p.name, p.host, p.pid, p.since, p.until, p.how, n.process_start, n.number IS NOT NULL, n.beat_at,
           CASE WHEN p.until IS NULL THEN {RECORDED_AT.format("p.name")} END
      FROM node_span p LEFT JOIN node n ON n.number = p.number
"""
RUNNING: Final = f"{SELECT_LIVES} WHERE p.until IS NULL ORDER BY p.number DESC LIMIT :limit"
ENDED: Final = f"{SELECT_LIVES} WHERE p.until >= :since ORDER BY p.until DESC LIMIT :limit"
# Short lives that cover a time end soon after it, and there are few long ones.
LIVES_ABOUT: Final = f"""
    {SELECT_LIVES}
     WHERE p.number IN (
           SELECT number FROM node_span WHERE until IS NULL
     UNION SELECT number FROM (SELECT number
                                 FROM node_span INDEXED BY node_span_until
                                WHERE until >= :start AND until < :end + {LONG_LIFE} AND since < :end
                                LIMIT {MOST_LIVES})
     UNION SELECT number FROM (SELECT number
                                 FROM node_span INDEXED BY node_span_long
                                WHERE until - since >= {LONG_LIFE} AND until >= :start AND since < :end
                                LIMIT {MOST_LIVES})
     UNION SELECT number FROM (SELECT number FROM node_span WHERE until < :start ORDER BY until DESC LIMIT 1)
     UNION SELECT number FROM (SELECT number FROM node_span WHERE since >= :end ORDER BY since LIMIT 1))
  ORDER BY p.number DESC
"""
# The oldest changes come first, so each slice looks at no others. The last one keeps its number from being reused.
PURGE_CHANGES: Final = """
    DELETE FROM change
     WHERE number IN (SELECT number FROM change ORDER BY number LIMIT :limit) AND at < :before
       AND number < (SELECT max(number) FROM change)
"""
PURGE_LIVES: Final = """
    DELETE FROM node_span
     WHERE number IN (SELECT number
                        FROM node_span INDEXED BY node_span_until
                       WHERE until < :before
                    ORDER BY until
                       LIMIT :limit)
"""

# The oldest hours come first in the table.
PURGE_TALLY: Final = """
    DELETE FROM tally
     WHERE (hour, namespace, outcome, node) IN (SELECT hour, namespace, outcome, node
                                                  FROM tally
                                                 WHERE hour < :before
                                              ORDER BY hour
                                                 LIMIT :limit)
"""
# Requests to cancel runs. Their runs have ended before a node noticed the request.
FORGET_OUTDATED: Final = """
    DELETE FROM request INDEXED BY request_cancel
     WHERE kind = 'cancel' AND NOT EXISTS (SELECT 1 FROM state s WHERE s.uid = request.uid AND s.run = request.run)
       AND NOT EXISTS (SELECT 1 FROM instance i WHERE i.run = request.run)
"""


class HistoryWork(WorkBase):
    """The transactions about the past. For their purpose, see `Store`."""

    def list_changes(self, db: sqlite3.Connection, wanted: ChangeFilter) -> list[ChangeRow]:
        start = self._last_changes(db, wanted)
        where = conditions_of_changes(wanted, PARAMETER)
        if start is not None:
            link = "decision" if wanted.decisions_only else "previous"
            earliest = EARLIEST if wanted.since is None else wanted.since - CHANGES.disorder
            query = f"{chained('SELECT value FROM json_each(?)', link, '?')} {SELECT_CHANGES_OF} {where} LIMIT ?"
            first: tuple[object, ...] = (json.dumps(start), earliest)
        else:
            if wanted.since is not None and (found := self._range(db, CHANGES, wanted.since)) is not None:
                where.require("c.number >= {}", found.first)
            query = f"{SELECT_CHANGES} {where} ORDER BY c.number DESC LIMIT ?"
            first = ()
        limit = -1 if wanted.limit is None else wanted.limit
        rows = db.execute(query, (*first, *where.values, limit)).fetchall()
        return [self._change(row) for row in sorted(rows, reverse=True, key=itemgetter(0))]

    def _last_changes(self, db: sqlite3.Connection, wanted: ChangeFilter) -> list[int] | None:
        """Return the last changes of the jobs that are asked for, or None if there are too many jobs."""
        if wanted.id is not None:
            name = wanted.namespace, wanted.id
            exists = db.execute(NAME_EXISTS, name).fetchone() is not None
            found = db.execute(LAST_OF.format("IS NULL" if exists else "IS NOT NULL"), name).fetchall()
        elif wanted.namespace is not None:
            found = db.execute(LAST_OF_ALL, {"namespace": wanted.namespace, "most": FEW_JOBS + 1}).fetchall()
        else:
            return None
        return [number for (number,) in found if type(number) is int] if len(found) <= FEW_JOBS or wanted.id else None

    def _change(self, row: Row) -> ChangeRow:
        change, problem = read_change(row)
        if problem is not None:
            self.unreadable_rows.add("change", change.number, problem)
        return change

    def node_lives(
        self, db: sqlite3.Connection, since: Micros | None, limit: int | None, now: Micros
    ) -> list[NodeLife]:
        rows: list[Row] = []
        for query in (RUNNING, ENDED):
            left = -1 if limit is None else limit - len(rows)
            rows += db.execute(query, {"since": FIRST if since is None else since, "limit": left})
        return [self._life(row, now) for row in sorted(rows, reverse=True, key=itemgetter(0))]

    def lives_about(self, db: sqlite3.Connection, start: Micros, end: Micros, now: Micros) -> list[NodeLife]:
        return [self._life(row, now) for row in db.execute(LIVES_ABOUT, {"start": start, "end": end})]

    def _life(self, row: Row, now: Micros) -> NodeLife:
        life, problem = read_life(row, now)
        if problem is not None:
            self.unreadable_rows.add("node_span", row[0], problem)
        return life

    def purge_history(self, db: sqlite3.Connection, before: Micros, limit: int) -> int:
        db.execute(FORGET_OUTDATED)
        old = {"before": before, "limit": limit}
        return max(db.execute(purge, old).rowcount for purge in (PURGE_CHANGES, PURGE_LIVES, PURGE_TALLY))
