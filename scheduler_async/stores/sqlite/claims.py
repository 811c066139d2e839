"""Claims: select due jobs in order, claim them, start or release them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.policies import USUAL as USUAL_POLICY
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.claiming import CLAIMED_FIELDS
from scheduler_async.rules.groups import Rooms
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.rates import NO_RATES, Rates
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.claim_plan import ClaimPlan
from scheduler_async.stores.codec import Row, refuse_stand_ins, refuse_unreadable_state
from scheduler_async.stores.decisions import (
    after_repeat,
    are_due,
    can_be_claimed,
    claimed_by_hand,
    earliest_of,
    put_back_all,
)
from scheduler_async.stores.messages import MOST_UNHANDLED, OVERLAPPED, Claims, ClaimTerms, NodeLost
from scheduler_async.stores.ready_queue import ReadyQueue
from scheduler_async.stores.run_codec import tally_of_unskipped
from scheduler_async.stores.sqlite.base import (
    ADD_INSTANCES,
    DUE,
    EARLIEST,
    HAS_OWN_RUN,
    INSERT_REQUEST,
    LAST_RUN,
    SELECT_STATE,
    USUAL,
    WRITE_STATE,
    free_values,
)
from scheduler_async.stores.sqlite.bulk_writes import inserting, updating
from scheduler_async.stores.sqlite.rates import RateWork
from scheduler_async.stores.sqlite.successors import SuccessorWork
from scheduler_async.timekeeping.instants import LAST, Micros

RUNNING_BY_GROUP: Final = f"""
    SELECT group_key, count(*)
      FROM (SELECT s.group_key
              FROM state s INDEXED BY state_claimed
             WHERE s.activity <> 'idle' AND s.activity IN ('queued', 'running') AND s.group_key IS NOT NULL
               AND {HAS_OWN_RUN}
         UNION ALL
            SELECT s.group_key
              FROM instance i CROSS JOIN state s ON s.uid = i.uid
             WHERE s.group_key IS NOT NULL)
  GROUP BY group_key
"""
# Damaged rows must not break the comparison of places.
PLACE: Final = """
    coalesce(s.group_key, ''), CAST(coalesce(s.rank, 0) AS INTEGER), CAST(coalesce(s.last_run_at, -1) AS INTEGER),
    CAST(coalesce(s.id, '') AS TEXT), s.uid
"""
# The jobs that have become due since a time, for the queue.
SELECT_DUE_SINCE: Final = f"""
    SELECT {PLACE}
      FROM state s INDEXED BY state_due
     WHERE {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at > :since
       AND s.next_run_at <= :now
"""
# The same, for jobs that bypass the queue.
SELECT_FEW_DUE: Final = f"""
    {SELECT_STATE}, {PLACE}
      FROM state s INDEXED BY state_due
     WHERE {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at > :since
       AND s.next_run_at <= :now
     LIMIT :most
"""
# The first jobs of the queue, in their current state.
SELECT_FIRST: Final = f"""
    {SELECT_STATE}, {PLACE}
      FROM state s
     WHERE s.uid IN (SELECT value FROM json_each(:uids))
       AND {DUE}
       AND s.handler IN (SELECT value FROM json_each(:handlers))
       AND s.next_run_at <= :now
"""
NEXT_DUE: Final = f"""
    SELECT min((SELECT s.next_run_at
                  FROM state s INDEXED BY state_due
                 WHERE {DUE} AND s.handler = h.number AND s.next_run_at > :now AND s.next_run_at <= {LAST}
              ORDER BY s.next_run_at
                 LIMIT 1)),
           count(*)
      FROM handler h
"""
COUNT_NEXT: Final = f"""
    SELECT count(*)
      FROM (SELECT 1
              FROM handler h CROSS JOIN state s INDEXED BY state_due ON s.handler = h.number
             WHERE {DUE} AND s.next_run_at = :at
             LIMIT :most)
"""
UNHANDLED: Final = f"""
    {SELECT_STATE}
      FROM handler h
      JOIN state s ON s.uid = (SELECT d.uid
                                 FROM state d INDEXED BY state_due
                                WHERE {DUE.replace("s.", "d.")} AND d.handler = h.number AND d.next_run_at <= :now
                             ORDER BY d.next_run_at
                                LIMIT 1)
     WHERE h.number NOT IN (SELECT value FROM json_each(:handlers))
     LIMIT {MOST_UNHANDLED}
"""
# At most this many handlers without a registration are considered: a tenant may use any number of names.
MOST_ABSENT: Final = 1_000
_HERE: Final = "(SELECT value FROM json_each(:handlers))"
_ABSENT: Final = f"SELECT number FROM handler WHERE number NOT IN {_HERE} ORDER BY number LIMIT {MOST_ABSENT}"
_LOOKED_AT: Final = f"(SELECT number FROM handler WHERE number IN {_HERE} UNION ALL SELECT number FROM ({_ABSENT})) h"
# The same for many handlers. Counting them all would take as long as looking at them.
NEXT_DUE_OF_MANY: Final = NEXT_DUE.replace("handler h", _LOOKED_AT).replace(
    "count(*)", f"(SELECT count(*) FROM (SELECT 1 FROM handler LIMIT {MOST_ABSENT + 1}))"
)
COUNT_NEXT_OF_MANY: Final = COUNT_NEXT.replace("handler h", _LOOKED_AT)
UNHANDLED_OF_MANY: Final = UNHANDLED.replace("handler h", f"({_ABSENT}) h")
COUNT_DUE: Final = f"""
    SELECT count(*)
      FROM (SELECT 1
              FROM handler h CROSS JOIN state s INDEXED BY state_due ON s.handler = h.number
             WHERE {DUE} AND s.next_run_at <= ?
             LIMIT ?)
"""
# At most 100 jobs of each handler are considered: a whole full group may be due, and this query is frequent.
EARLIEST_DUE: Final = f"""
    SELECT min((SELECT w.next_run_at
                  FROM (SELECT s.next_run_at, s.group_key
                          FROM state s INDEXED BY state_due
                         WHERE {DUE} AND s.handler = h.number AND s.next_run_at <= :now
                           AND s.uid NOT IN (SELECT value FROM json_each(:left_alone))
                      ORDER BY s.next_run_at
                         LIMIT 100) w
                 WHERE w.group_key IS NULL
                    OR (w.group_key NOT IN (SELECT value FROM json_each(:full))
                        AND substr(w.group_key, instr(w.group_key, char(10)) + 1)
                            NOT IN (SELECT value FROM json_each(:full_everywhere)))
              ORDER BY w.next_run_at
                 LIMIT 1))
      FROM handler h
     WHERE :handlers IS NULL OR h.name IN (SELECT value FROM json_each(:handlers))
"""
# The state of a claimed job, with the run and the node that hold it.
HOLD_STATE: Final = updating("state", ["uid"], *CLAIMED_FIELDS, "run", "node", always="touched = 0", usual=USUAL)
_claimed_values: Final = attrgetter("activity._value_", *CLAIMED_FIELDS[1:])
INSERT_RUN: Final = inserting(
    "run",
    *("id", "uid", "scheduled_for", "attempt", "trigger", "claimed_at", "started_at", "node"),
    verb="INSERT OR IGNORE",
)
# Ask the owner of the oldest run of a job to cancel it.
CANCEL_OLDEST: Final = """
    INSERT OR IGNORE INTO request (run, uid, kind, reason, at)
    SELECT i.run, i.uid, 'cancel', ?, ?
      FROM instance i INDEXED BY instance_of_job
CROSS JOIN run r ON r.id = i.run AND r.uid = i.uid
     WHERE i.uid = ? AND i.backfill IS NULL
  ORDER BY i.run
     LIMIT 1
"""
LATEST_RUN: Final = """
    SELECT max(scheduled_for)
      FROM run INDEXED BY run_once
     WHERE uid = ? AND scheduled_for <= ? AND attempt > 0 AND trigger <> 'manual'
"""
SELECT_RELEASED: Final = f"""
    {SELECT_STATE}, j.updated_at, s.run
      FROM state s LEFT JOIN job j ON j.uid = s.uid
     WHERE s.uid IN (SELECT value FROM json_each(?))
"""
# The row of a manual run that waits for a node again.
WAIT_AGAIN: Final = """
    UPDATE run
       SET claimed_at = scheduled_for, started_at = NULL, node = NULL, origin = coalesce(origin, id)
     WHERE id = ?
"""
# The row of a run that never started, and the rows of the occurrences that its claim skipped.
DELETE_RUNS: Final = """
    DELETE FROM run
     WHERE id = ? OR (uid = ? AND id > ? AND attempt = 0 AND claimed_at = ?)
 RETURNING attempt, finished_at, missed
"""


class ClaimWork(SuccessorWork, RateWork):
    """The transactions of claims. For their purpose, see `Store`."""

    def __init__(self) -> None:
        super().__init__()
        self._left_alone: set[int] = set()  # known jobs that are due and cannot be claimed
        self._queue_terms: tuple[str, int] | None = None
        self._are_many_handlers = False  # as of the last claim

    def running_by_group(self, db: sqlite3.Connection) -> dict[str, int]:
        return dict(db.execute(RUNNING_BY_GROUP).fetchall())

    def claim_due(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms) -> Claims:
        name = self._require_node(db, terms.node)
        numbers = self._numbers_of(db, terms.handlers)
        handlers = json.dumps(numbers)
        until = now + terms.ahead
        started = self._live_starts(db, now) if terms.group_rates else Counter()
        rows = self._select_due(db, until, terms, handlers, started)
        run_id = self._last_number(db, LAST_RUN)
        here = None if terms.handlers is None else frozenset(terms.handlers)
        unhandled: list[Job] = []
        plan = ClaimPlan(now, terms, self.decisions)
        for row, described in zip(rows, self._described(db, rows), strict=True):
            job = self._job(row, described, now)
            if job is None or not can_be_claimed(job, here):
                self._left_alone.add(row[0])
                unhandled += [job] if job is not None and job.enabled else []
                continue
            if job.description.policy is not USUAL_POLICY:
                job = self._recounted(db, job)
            if plan.claim(job, run_id + 1):
                run_id += 1
        self._left_alone |= {job.uid for job in plan.undecided}
        WRITE_STATE.all(db, map(free_values, plan.passed_over))
        for job in plan.passed_over:
            self._add_if_due(job)
        runs = plan.runs
        if plan.instances:
            self._hold_instances(db, plan, terms.node)
        else:
            HOLD_STATE.all(db, (held_values(run, terms.node) for run in runs))
        repeated: set[int] = set()
        if INSERT_RUN.all(db, (inserted_values(run, name) for run in runs)) != len(runs):
            repeated = self._undo_repeated(db, runs, until)
            plan.drop(repeated)
        if plan.instances:
            db.executemany(ADD_INSTANCES, [(run.id, run.uid, terms.node) for run in plan.instances])
        self._write_skips(db, plan.skipped)
        self._write_changes(db, plan.changes)
        for (key, _), count in self._count_starts(db, plan.runs, terms.group_rates, now).items():
            started[key] += count
        db.executemany(CANCEL_OLDEST, [(OVERLAPPED, now, uid) for uid in plan.overlapped])
        are_many = self._are_many_handlers
        due = {"now": until, "handlers": handlers}
        next_due, known = db.execute(NEXT_DUE_OF_MANY if are_many else NEXT_DUE, due).fetchone()
        self._are_many_handlers = known > MOST_ABSENT
        counted = {"at": next_due, "most": terms.count, "handlers": handlers}
        ((next_count,),) = db.execute(COUNT_NEXT_OF_MANY if are_many else COUNT_NEXT, counted)
        next_due, next_count = earliest_of(plan.passed_over, next_due, next_count)
        allowed = self._next_start(db, started, terms.group_rates, now) if started else None
        if allowed is not None and (next_due is None or allowed < next_due):
            next_due, next_count = allowed, 1
        if known != len(numbers):
            rows_of_others = db.execute(UNHANDLED_OF_MANY if are_many else UNHANDLED, due).fetchall()
            unhandled += self._jobs(db, rows_of_others).values()
        return Claims(
            runs=self._with_causes(db, plan.runs),
            edits=plan.edits,
            unhandled=unhandled,
            is_full=len(rows) >= terms.limit or bool(repeated) or are_due(plan.still_due, until),
            next_due=next_due,
            next_count=next_count,
            overlaps=bool(plan.overlapped),
        )

    def _take_up_decided(self) -> None:
        """Consider jobs again that claims have left out so far, since it is decided what to do."""
        for job in self.decisions.take_claimable():
            self._left_alone.discard(job.uid)
            self._add_if_due(job)

    def _select_due(
        self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms, handlers: str, started: Mapping[str, int]
    ) -> list[Row]:
        """Return the first due jobs, up to the limit and the limits of their groups."""
        self._renew_queue(handlers)
        self._take_up_decided()
        few = self._select_few_due(db, now, terms, handlers)
        if few is not None:
            return few
        if now < self._queue_until:  # too many jobs precede those in the queue
            self._queue = None
            self._renew_queue(handlers)
        rooms = self._rooms(db, terms, started)
        queue = self._queue_of_due(db, now, handlers)
        chosen: dict[int, Row] = {}
        while taken := queue.take(terms.limit - len(chosen), rooms):
            uids = json.dumps([place[-1] for _, place in taken])
            found = db.execute(SELECT_FIRST, {"uids": uids, "handlers": handlers, "now": now}).fetchall()
            rows = {row[0]: row for row in found}
            for group, place in taken:
                uid = place[-1]
                row = rows.get(uid)
                if row is None or uid in chosen:  # no longer due, or queued twice
                    rooms.take(group, -1)
                elif row[-4:] != place or row[-5] != group:  # its place has changed
                    rooms.take(group, -1)
                    queue.add(row[-5], row[-4:])
                else:
                    chosen[uid] = row[:-5]
        return list(chosen.values())

    def _hold_instances(self, db: sqlite3.Connection, plan: ClaimPlan, node: int) -> None:
        """Write the claimed jobs, of which some may have several runs. Such a job may be due again at once."""
        several = {run.id for run in plan.instances}
        HOLD_STATE.all(db, (held_values(run, node) for run in plan.runs if run.id not in several))
        WRITE_STATE.all(db, (free_values(run.job) for run in plan.instances))
        for job in plan.still_due:
            self._add_if_due(job)

    def _rooms(self, db: sqlite3.Connection, terms: ClaimTerms, started: Mapping[str, int]) -> Rooms:
        return terms.rooms(self.running_by_group(db) if terms.limits_running else {}, started)

    def _select_few_due(
        self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms, handlers: str
    ) -> list[Row] | None:
        """Return all due jobs if none waits and all can be claimed, which is the usual case. Otherwise return None.

        Jobs that were queued ahead of their time do not count as waiting, because others may be due before them.
        """
        come_first = now < self._queue_until
        if (self._queue and not come_first) or terms.limits_groups:
            return None
        since = EARLIEST if come_first else self._queue_until
        due = {"handlers": handlers, "since": since, "now": now, "most": terms.limit + 1}
        rows = db.execute(SELECT_FEW_DUE, due).fetchall()
        if len(rows) > terms.limit:
            return None
        self._queue_until = max(self._queue_until, now)
        rows.sort(key=lambda row: row[-4:])
        return [row[:-5] for row in rows if row[0] not in self._left_alone]

    def _renew_queue(self, handlers: str) -> None:
        """Replace the queue if it may be outdated."""
        terms = handlers, self._as_of
        if self._queue is None or self._queue_terms != terms:
            self._queue, self._queue_terms, self._queue_until = ReadyQueue(), terms, EARLIEST
            self._left_alone = set()  # try them again

    def _queue_of_due(self, db: sqlite3.Connection, now: Micros, handlers: str) -> ReadyQueue:
        """Return the queue with all jobs that are due now."""
        assert self._queue is not None
        newly_due = db.execute(SELECT_DUE_SINCE, {"handlers": handlers, "since": self._queue_until, "now": now})
        self._queue.extend((row[0], row[1:]) for row in newly_due)
        self._queue_until = now
        return self._queue

    def _undo_repeated(self, db: sqlite3.Connection, runs: list[ClaimedRun], now: Micros) -> set[int]:
        """Undo claims of occurrences that already ran before the clock was set back. Their jobs continue."""
        repeated = set()
        for run in runs:
            if not db.execute("SELECT 1 FROM run WHERE id = ? AND uid = ?", (run.id, run.uid)).fetchone():
                (latest,) = db.execute(LATEST_RUN, (run.uid, now)).fetchone()
                job = after_repeat(run, latest, now)
                WRITE_STATE.one(db, *free_values(job))
                self._add_if_due(job)
                repeated.add(run.uid)
        return repeated

    def count_due(self, db: sqlite3.Connection, now: Micros, most: int) -> int:
        ((count,),) = db.execute(COUNT_DUE, (now, most))
        return int(count)

    def earliest_due(self, db: sqlite3.Connection, now: Micros, terms: ClaimTerms) -> Micros | None:
        started = self._live_starts(db, now) if terms.group_rates else Counter()
        full, full_everywhere = map(json.dumps, self._rooms(db, terms, started).full)
        handlers = None if terms.handlers is None else json.dumps(terms.handlers)
        left_alone = json.dumps(list(self._left_alone))
        terms_ = {"now": now, "handlers": handlers, "full": full, "full_everywhere": full_everywhere}
        ((at,),) = db.execute(EARLIEST_DUE, {**terms_, "left_alone": left_alone})
        return None if at is None else int(at)

    def claim_one(
        self,
        db: sqlite3.Connection,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
        by: Actor = NO_ACTOR,
        rates: Rates = NO_RATES,
    ) -> ClaimedRun | Job | None:
        name = self._require_node(db, node)
        job = self._find_job(db, namespace, id, now)
        if job is None or not has_room(job := self._recounted(db, job)):
            return job
        refuse_unreadable_state(job)
        refuse_stand_ins(job)
        run = claimed_by_hand(job, self._last_number(db, LAST_RUN) + 1, payload_json, now, queued=queued)
        INSERT_RUN.one(db, *inserted_values(run, name))
        db.execute("UPDATE run SET payload = ? WHERE id = ?", (run.payload_json, run.id))
        self._hold(db, run, node)
        self._write_changes(db, [plain_record(job.uid, now, Action.TRIGGER, by, run=run.id)])
        self._count_starts(db, [run], rates, now)
        return run

    def _hold(self, db: sqlite3.Connection, run: ClaimedRun, node: int) -> None:
        """Write a job that was claimed by hand, and the owner of its run."""
        if run.is_instance:
            WRITE_STATE.one(db, *free_values(run.job))
            db.execute(ADD_INSTANCES, (run.id, run.uid, node))
        else:
            HOLD_STATE.one(db, *held_values(run, node))

    def _require_node(self, db: sqlite3.Connection, node: int) -> str:
        row = db.execute("SELECT name FROM node WHERE number = ?", (node,)).fetchone()
        if row is None:
            raise NodeLost
        return str(row[0])

    def start(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        ours = set()
        for run in runs:
            marked = db.execute("UPDATE state SET activity = 'running' WHERE uid = ? AND run = ?", (run.uid, run.id))
            if marked.rowcount or db.execute("SELECT 1 FROM instance WHERE run = ?", (run.id,)).fetchone():
                db.execute("UPDATE run SET started_at = ? WHERE id = ?", (now, run.id))
                ours.add(run.id)
        return ours

    def release(self, db: sqlite3.Connection, runs: Sequence[ClaimedRun]) -> None:
        # Read the current jobs, which may have been edited since the claim.
        jobs = self._claimed_by(db, runs, None, SELECT_RELEASED)
        ours = [run for run in runs if run.id in jobs]
        undone = put_back_all(self.decisions, jobs, ours)
        freed = [job for job, _, _ in undone]
        self._free(db, freed, (run.id for run in ours))
        self._delete_removed(db, freed)
        gone = [run for run in ours if not run.waits_if_given_back]
        for run in gone:
            rows = db.execute(DELETE_RUNS, (run.id, run.uid, run.id, run.claimed_at)).fetchall()
            skipped = [(run.job.namespace, at, missed) for attempt, at, missed in rows if not attempt]
            self._count_ended(db, tally_of_unskipped(skipped))
        for run in ours:
            if run.waits_if_given_back:
                db.execute(WAIT_AGAIN, (run.id,))
                db.execute(INSERT_REQUEST, (run.id, run.uid, "start", None, run.scheduled_for))
        self._write_skips(db, undone)
        for job in freed:
            self._add_if_due(job)


def inserted_values(run: ClaimedRun, node: str) -> Row:
    """Return the columns of `INSERT_RUN`. *node* is the name of the node."""
    return (
        run.id,
        run.job.uid,
        run.scheduled_for,
        run.attempt,
        run.trigger._value_,
        run.claimed_at,
        run.claimed_at if not run.is_queued else None,
        node,
    )


def held_values(run: ClaimedRun, node: int) -> Row:
    """Return the columns of `HOLD_STATE` for the claimed job of *run*."""
    job = run.job
    return (*_claimed_values(job.state), run.id, node, job.uid)
