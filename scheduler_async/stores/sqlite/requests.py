"""Requests between processes: start a run, or cancel one; and what runs report while they go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, cancelled_on_request
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.codec import has_unreadable_state, refuse_stand_ins, refuse_unreadable_state
from scheduler_async.stores.decisions import claimed_by_hand, is_running, never_begun
from scheduler_async.stores.messages import AlreadyRequested, Cancellation, ClaimTerms, Report
from scheduler_async.stores.run_codec import tally_of_cancelled, tally_of_progress
from scheduler_async.stores.sqlite.base import INSERT_REQUEST, LAST_RUN, SELECT_STATE, STATE_END
from scheduler_async.stores.sqlite.endings import FORGET_REQUEST, EndingWork
from scheduler_async.stores.sqlite.history import FORGET_OUTDATED
from scheduler_async.stores.unreadable import shown_text
from scheduler_async.timekeeping.instants import Micros

ARE_REQUESTED: Final = "SELECT 1 FROM request INDEXED BY request_start WHERE kind = 'start' LIMIT 1"
WAITING_RUNS: Final = "SELECT run FROM request INDEXED BY request_start WHERE kind = 'start' AND uid = ? ORDER BY run"
INSERT_WAITING: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, payload, origin)
    VALUES (?, ?, ?, 1, 'manual', ?, ?, ?)
"""
# Whether another run of a job may start, as `has_room` decides.
HAS_ROOM: Final = """
    CASE WHEN s.running = 0 THEN s.activity = 'idle'
         ELSE s.running < (SELECT coalesce(CASE WHEN json_valid(j.policy)
                                                THEN json_extract(j.policy, '$.max_instances') END, 1)
                             FROM job j
                            WHERE j.uid = s.uid) END
"""
# Those whose jobs have room come first, in the order of the requests.
SELECT_REQUESTED: Final = f"""
    {SELECT_STATE}, {HAS_ROOM} AS has_room, q.run, r.payload, r.scheduled_for, r.attempt, r.origin
      FROM request q INDEXED BY request_start
CROSS JOIN state s ON s.uid = q.uid
CROSS JOIN run r ON r.id = q.run AND r.uid = q.uid AND r.outcome IS NULL
     WHERE q.kind = 'start' AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND q.run NOT IN (SELECT value FROM json_each(:but))
  ORDER BY has_room DESC, q.run
     LIMIT :most
"""
TAKE: Final = "UPDATE run SET claimed_at = ?, started_at = ?, node = ?, payload = ? WHERE id = ?"
FIND_RUN: Final = """
    SELECT r.uid, r.outcome, coalesce(s.run = r.id, 0) OR EXISTS (SELECT 1 FROM instance i WHERE i.run = r.id)
      FROM run r LEFT JOIN state s ON s.uid = r.uid
     WHERE r.id = ?
"""
CANCEL_WAITING: Final = "UPDATE run SET outcome = 'cancelled', finished_at = ?, error = ?, reason = ? WHERE id = ?"
SELECT_CANCELS: Final = """
    SELECT q.run, q.reason
      FROM request q INDEXED BY request_cancel
CROSS JOIN state s ON s.uid = q.uid
     WHERE q.kind = 'cancel' AND s.run = q.run AND s.node = ?
 UNION ALL
    SELECT q.run, q.reason
      FROM request q INDEXED BY request_cancel
CROSS JOIN instance i ON i.run = q.run
     WHERE q.kind = 'cancel' AND i.node = ?
"""
REPORT_PROGRESS: Final = "UPDATE run SET progress = ?, progress_message = ? WHERE id = ? AND outcome IS NULL"
NAMESPACES_OF: Final = """
    SELECT DISTINCT j.namespace
      FROM run r JOIN job j USING (uid)
     WHERE r.id IN (SELECT value FROM json_each(?))
"""
REPORT_OUTPUT: Final = """
    INSERT OR REPLACE INTO output (run, text) SELECT id, ? FROM run WHERE id = ? AND outcome IS NULL
"""


class RequestWork(EndingWork):
    """The transactions of requests. For their purpose, see `Store`."""

    def request_start(
        self,
        db: sqlite3.Connection,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        by: Actor = NO_ACTOR,
    ) -> int | Job | AlreadyRequested | None:
        job = self._find_job(db, namespace, id, now)
        if job is None or is_running(job := self._recounted(db, job), now):
            return job
        waiting = [run for (run,) in db.execute(WAITING_RUNS, (job.uid,))]
        if waiting and job.state.running + len(waiting) >= job.max_instances:
            return AlreadyRequested(waiting[0])
        refuse_unreadable_state(job)
        refuse_stand_ins(job)
        run = self._last_number(db, LAST_RUN) + 1
        db.execute(INSERT_WAITING, (run, job.uid, now, now, payload_json, run))
        db.execute(INSERT_REQUEST, (run, job.uid, "start", None, now))
        self._write_changes(db, [plain_record(job.uid, now, Action.TRIGGER, by, run=run)])
        return run

    def are_requested(self, db: sqlite3.Connection) -> bool:
        """Return whether a caller has asked for a run that no node has taken up."""
        return db.execute(ARE_REQUESTED).fetchone() is not None

    def claim_requested(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        name = self._require_node(db, terms.node)
        handlers = json.dumps(self._numbers_of(db, terms.handlers))
        runs: list[ClaimedRun] = []
        passed_over: list[int] = []  # they do not hide other requests
        are_more = False
        while rows := self._select_requested(db, handlers, terms.limit - len(runs) + 1, passed_over):
            jobs = self._jobs(db, [row[:STATE_END] for row in rows], now)
            for row in rows:
                may_start, run_id, payload, *requested = row[STATE_END:]
                job = jobs.get(row[0])
                if not may_start or len(runs) == terms.limit:
                    return runs, True
                if job is None or has_unreadable_state(job) or job.description.unreadable:
                    passed_over.append(run_id)
                    continue
                if not has_room(job := self._recounted(db, job)):  # another run has just taken the last one
                    passed_over.append(run_id)
                    are_more = True
                    continue
                queued = terms.slots is not None and len(runs) >= terms.slots
                payload_json = None if payload is None else shown_text(payload)
                run = claimed_by_hand(job, run_id, payload_json, now, queued=queued, requested=(*requested,))
                db.execute(TAKE, (now, None if queued else now, name, run.payload_json, run_id))
                self._hold(db, run, terms.node)
                db.execute(FORGET_REQUEST, (run_id,))
                runs.append(run)
                jobs[run.uid] = run.job
                self._count_starts(db, [run], terms.group_rates, now)
        return runs, are_more

    def _select_requested(self, db: sqlite3.Connection, handlers: str, most: int, but: Sequence[int]) -> list[Any]:
        """Return the first requests, except *but* some runs."""
        return db.execute(SELECT_REQUESTED, {"handlers": handlers, "most": most, "but": json.dumps(but)}).fetchall()

    def request_cancel(
        self, db: sqlite3.Connection, run: int, reason: str | None, now: Micros, by: Actor = NO_ACTOR
    ) -> Cancellation:
        db.execute(FORGET_OUTDATED)
        found = db.execute(FIND_RUN, (run,)).fetchone()
        if found is None:
            return Cancellation.UNKNOWN
        uid, outcome, is_claimed = found
        if outcome is not None:
            return Cancellation.ENDED
        self._write_changes(db, [plain_record(uid, now, Action.CANCEL, by, reason, run=run)])
        if is_claimed:
            db.execute(INSERT_REQUEST, (run, uid, "cancel", reason, now))
            return Cancellation.REQUESTED
        ending = cancelled_on_request(reason)
        db.execute(CANCEL_WAITING, (now, ending.error, ending.reason, run))
        (namespace,) = db.execute("SELECT namespace FROM job WHERE uid = ?", (uid,)).fetchone()
        self._count_ended(db, tally_of_cancelled(namespace, 1, now))
        db.execute(FORGET_REQUEST, (run,))
        return Cancellation.DONE

    def release(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun]) -> None:
        cancels = self._cancels_of(db, [run.id for run in runs])
        if cancels:  # these are not run again
            gone = [never_begun(run, cancels[run.id]) for run in runs if run.id in cancels]
            self._finish_several(db, gone, Rules())
        left = [run for run in runs if run.id not in cancels]
        self._release_for_backfills(db, [run for run in left if run.is_backfill])
        super().release(db, [run for run in left if not run.is_backfill])

    def cancels(self, db: sqlite3.Connection, node: int) -> dict[int, str | None]:
        return {run: None if why is None else shown_text(why) for run, why in db.execute(SELECT_CANCELS, (node, node))}

    def report(self, db: sqlite3.Connection, reports: Sequence[Report]) -> None:
        progress = [(*report.progress, report.run) for report in reports if report.progress is not None]
        db.executemany(REPORT_PROGRESS, progress)
        if progress:
            found = db.execute(NAMESPACES_OF, (json.dumps([report.run for report in reports]),))
            self._count_ended(db, tally_of_progress([namespace for (namespace,) in found]))
        db.executemany(REPORT_OUTPUT, [(report.output, report.run) for report in reports if report.output is not None])
