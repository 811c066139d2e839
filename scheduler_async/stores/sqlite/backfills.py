"""Backfills: add, read and cancel them, claim their runs, and count how these end."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.backfills import claimed_for_backfill, endings
from scheduler_async.rules.groups import NO_GROUP, group_key
from scheduler_async.stores.backfill_codec import read_backfill
from scheduler_async.stores.codec import has_unreadable_state, refuse_stand_ins
from scheduler_async.stores.messages import ClaimTerms
from scheduler_async.stores.sqlite.base import FREE_INSTANCES, LAST_RUN, SELECT_STATE, STATE_END, last_number
from scheduler_async.stores.sqlite.claims import INSERT_RUN, ClaimWork, inserted_values
from scheduler_async.stores.unreadable import is_count, shown_text
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros

LAST_BACKFILL: Final = last_number("backfill", "backfill.number")
HAVE_SUCCEEDED: Final = """
    SELECT DISTINCT r.scheduled_for
      FROM run r INDEXED BY run_once
     WHERE r.uid = ? AND r.scheduled_for IN (SELECT value FROM json_each(?))
       AND r.attempt > 0 AND r.trigger <> 'manual' AND r.outcome IN ('success', 'noop')
"""
INSERT_BACKFILL: Final = """
    INSERT INTO backfill (number, uid, max_concurrent, payload, total, done, failed, state, at)
    VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?)
"""
ADD_DUE: Final = "INSERT OR IGNORE INTO backfill_due (backfill, scheduled_for) VALUES (?, ?)"
SELECT_BACKFILL: Final = """
    SELECT b.number, b.total, b.done, b.failed, b.state, j.id, j.namespace
      FROM backfill b JOIN job j USING (uid)
     WHERE b.number = ?
"""
ARE_RUNNING: Final = "SELECT 1 FROM backfill INDEXED BY backfill_running WHERE state = 'running' LIMIT 1"
# A paused job holds its backfills.
SELECT_RUNNING: Final = f"""
    {SELECT_STATE}, b.number, b.max_concurrent, b.payload,
    (SELECT count(*) FROM instance i INDEXED BY instance_of_backfill WHERE i.backfill = b.number) AS running
      FROM backfill b INDEXED BY backfill_running
CROSS JOIN state s ON s.uid = b.uid
     WHERE b.state = 'running' AND s.phase <> 'paused' AND s.handler IN (SELECT value FROM json_each(?))
       AND EXISTS (SELECT 1 FROM backfill_due d WHERE d.backfill = b.number)
  ORDER BY b.number
"""
SELECT_DUE: Final = f"""
    SELECT d.scheduled_for,
           1 + coalesce((SELECT max(r.attempt)
                           FROM run r INDEXED BY run_once
                          WHERE r.uid = ? AND r.scheduled_for = d.scheduled_for AND r.attempt > 0
                            AND r.trigger <> 'manual'), 0)
      FROM backfill_due d
     WHERE d.backfill = ? AND typeof(d.scheduled_for) = 'integer' AND d.scheduled_for BETWEEN {FIRST} AND {LAST}
  ORDER BY d.scheduled_for
     LIMIT ?
"""
TAKE_DUE: Final = "DELETE FROM backfill_due WHERE backfill = ? AND scheduled_for <= ?"
ADD_INSTANCES: Final = "INSERT INTO instance (run, uid, node, backfill) VALUES (?, ?, ?, ?)"
BACKFILLS_OF: Final = """
    SELECT run, backfill FROM instance WHERE run IN (SELECT value FROM json_each(?)) AND backfill IS NOT NULL
"""
COUNT_INTERRUPTED: Final = """
    SELECT count(*)
      FROM run INDEXED BY run_once
     WHERE uid = ? AND scheduled_for = ? AND attempt > 0 AND trigger <> 'manual' AND outcome = 'interrupted'
"""
COUNT_ENDED: Final = "UPDATE backfill SET done = done + ?, failed = failed + ? WHERE number = ?"
ARE_OVER: Final = """
    SELECT number FROM backfill WHERE number IN (SELECT value FROM json_each(?)) AND state <> 'running'
"""
END: Final = """
    UPDATE backfill
       SET state = 'done'
     WHERE number = ? AND state = 'running'
       AND NOT EXISTS (SELECT 1 FROM backfill_due d WHERE d.backfill = number)
       AND NOT EXISTS (SELECT 1 FROM instance i WHERE i.backfill = number)
"""
CANCEL: Final = "UPDATE backfill SET state = 'cancelled' WHERE number = ? AND state = 'running'"
CANCEL_RUNS: Final = """
    INSERT OR IGNORE INTO request (run, uid, kind, reason, at)
    SELECT run, uid, 'cancel', ?, ? FROM instance INDEXED BY instance_of_backfill WHERE backfill = ?
"""
SELECT_HELD_BY_BACKFILLS: Final = f"""
    {SELECT_STATE}, i.run, r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM instance i INDEXED BY instance_of_node
CROSS JOIN state s ON s.uid = i.uid
CROSS JOIN run r ON r.id = i.run AND r.uid = i.uid AND r.outcome IS NULL
     WHERE i.node IS nullif(:node, 0) AND i.backfill IS NOT NULL
  ORDER BY i.run
"""


class BackfillWork(ClaimWork):
    """The transactions of backfills. For their purpose, see `Store`."""

    def add_backfill(
        self,
        db: sqlite3.Connection,
        job: Job,
        occurrences: Sequence[Micros],
        payload_json: str | None,
        now: Micros,
        *,
        max_concurrent: int,
        again: bool,
    ) -> Backfill | None:
        current = self._find_job(db, job.namespace, job.id)
        if current is None or current.uid != job.uid:
            return None
        refuse_stand_ins(current)
        found = () if again else db.execute(HAVE_SUCCEEDED, (job.uid, json.dumps([*occurrences])))
        succeeded = {at for (at,) in found}
        wanted = [at for at in occurrences if at not in succeeded]
        number = self._last_number(db, LAST_BACKFILL) + 1
        state = "running" if wanted else "done"
        db.execute(INSERT_BACKFILL, (number, job.uid, max_concurrent, payload_json, len(wanted), state, now))
        db.executemany(ADD_DUE, [(number, at) for at in wanted])
        return self.get_backfill(db, number)

    def get_backfill(self, db: sqlite3.Connection, number: int) -> Backfill | None:
        row = db.execute(SELECT_BACKFILL, (number,)).fetchone()
        return None if row is None else read_backfill(row)

    def cancel_backfill(self, db: sqlite3.Connection, number: int, reason: str, now: Micros) -> Backfill | None:
        if db.execute(CANCEL, (number,)).rowcount:
            db.execute("DELETE FROM backfill_due WHERE backfill = ?", (number,))
            db.execute(CANCEL_RUNS, (reason, now, number))
        return self.get_backfill(db, number)

    def are_backfills(self, db: sqlite3.Connection) -> bool:
        """Return whether a backfill goes on."""
        return db.execute(ARE_RUNNING).fetchone() is not None

    def claim_backfills(
        self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms
    ) -> tuple[list[ClaimedRun], Micros | None]:
        name = self._require_node(db, terms.node)
        handlers = json.dumps(self._numbers_of(db, terms.handlers))
        rows = db.execute(SELECT_RUNNING, (handlers,)).fetchall()
        started = self._live_starts(db, now) if terms.group_rates else Counter()
        rooms = self._rooms(db, terms, started)
        is_held_up = False
        jobs = self._jobs(db, [row[:STATE_END] for row in rows])
        runs: list[ClaimedRun] = []
        for row in rows:
            job = jobs.get(row[0])
            number, most, payload, running = row[STATE_END:]
            is_sound = job is not None and not has_unreadable_state(job) and not job.description.unreadable
            if job is None or not is_sound or not is_count(most):
                continue
            key = group_key(job.namespace, job.group) or NO_GROUP
            room = int(min(terms.limit - len(runs), most - running, rooms.of(key)))
            if room <= 0:
                is_held_up = is_held_up or rooms.of(key) <= 0
                continue
            payload_json = None if payload is None else shown_text(payload)
            begun = self._begin(db, job, (number, payload_json, room, len(runs)), now, terms)
            rooms.take(key, len(begun))
            is_held_up = is_held_up or rooms.of(key) <= 0
            INSERT_RUN.all(db, (inserted_values(run, name) for run in begun))
            db.executemany(ADD_INSTANCES, [(run.id, run.uid, terms.node, number) for run in begun])
            if payload_json is not None:
                db.executemany("UPDATE run SET payload = ? WHERE id = ?", [(payload_json, run.id) for run in begun])
            runs += begun
        for (key, _), count in self._count_starts(db, runs, terms.group_rates, now).items():
            started[key] += count
        return runs, self._next_start(db, started, terms.group_rates, now) if is_held_up and started else None

    def _begin(
        self,
        db: sqlite3.Connection,
        job: Job,
        backfill: tuple[int, str | None, int, int],
        now: Micros,
        terms: ClaimTerms,
    ) -> list[ClaimedRun]:
        """Take occurrences of a *backfill*: its number, its payload, how many, and how many runs precede them."""
        number, payload_json, room, before = backfill
        due: list[Any] = db.execute(SELECT_DUE, (job.uid, number, room)).fetchall()
        if not due:
            return []
        db.execute(TAKE_DUE, (number, due[-1][0]))
        first = self._last_number(db, LAST_RUN) + 1
        slots = float("inf") if terms.slots is None else terms.slots
        return [
            claimed_for_backfill(job, first + place, at, attempt, payload_json, now, queued=before + place >= slots)
            for place, (at, attempt) in enumerate(due)
        ]

    def _end_for_backfills(self, db: sqlite3.Connection, ended: Sequence[EndedRun]) -> set[int]:
        """Count how runs of backfills ended. Return those of them that this node still owns."""
        if not ended:
            return set()
        found = dict(db.execute(BACKFILLS_OF, (json.dumps([item.run.id for item in ended]),)).fetchall())
        numbers = sorted(set(found.values()))
        over = {number for (number,) in db.execute(ARE_OVER, (json.dumps(numbers),))}
        interruptions = {item.run.id: self._interruptions(db, item) for item in ended}
        told = endings(ended, found, set(numbers) - over, interruptions)
        db.execute(FREE_INSTANCES, (json.dumps([*found]),))
        db.executemany(ADD_DUE, told.again)
        db.executemany(COUNT_ENDED, [(told.done[number], told.failed[number], number) for number in numbers])
        db.executemany(END, [(number,) for number in numbers])
        self._delete_removed(db, {item.run.uid: item.run.job for item in ended if item.run.id in found}.values())
        return set(found)

    def _interruptions(self, db: sqlite3.Connection, item: EndedRun) -> int:
        """Return how often processes have died with this occurrence, if this one has."""
        if item.ending.outcome is not Outcome.INTERRUPTED:
            return 0
        (count,) = db.execute(COUNT_INTERRUPTED, (item.run.uid, item.run.scheduled_for)).fetchone()
        return int(count) + 1

    def _release_for_backfills(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims for backfills whose handlers never started."""
        if not runs:
            return
        found = dict(db.execute(BACKFILLS_OF, (json.dumps([run.id for run in runs]),)).fetchall())
        ours = [run for run in runs if run.id in found]
        db.executemany(ADD_DUE, [(found[run.id], run.scheduled_for) for run in ours])
        db.execute(FREE_INSTANCES, (json.dumps([*found]),))
        db.executemany("DELETE FROM run WHERE id = ?", [(run.id,) for run in ours])
        self._delete_removed(db, {run.uid: run.job for run in ours}.values())
