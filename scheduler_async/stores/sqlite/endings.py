"""Endings: record how runs ended and what comes next, also for runs whose node died."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from scheduler_async.jobs.enums import ENDED, Outcome, Phase, SkipReason
from scheduler_async.jobs.job import JobState
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.codec import PHASE, Row, has_unreadable_state
from scheduler_async.stores.decisions import NEVER_BEGAN, aftermath, aftermaths, interrupted, process_gone
from scheduler_async.stores.messages import Aftermath, ClaimedRun, Edit, EndedRun, NodeRow
from scheduler_async.stores.sqlite.base import ALWAYS, FINISH, SELECT_HELD, WorkBase, free_values
from scheduler_async.stores.sqlite.bulk_writes import updating
from scheduler_async.timekeeping.instants import Micros

FREE: Final = ("run = NULL", "node = NULL")
FINISH_UNTOUCHED: Final = updating(
    "state", ["uid", "run"], *JobState._fields, where="touched = 0", always=", ".join(FREE)
)
# After a plain run, all that runs change is as in a new job, but for some moments.
RAN: Final = ("last_run_at", "last_success_at")
AS_NEW: Final = [
    f"{name} = {ALWAYS.get(name, 'NULL')}" for name in JobState._fields[:PHASE] if name not in (*RAN, "next_run_at")
]
FINISH_GOING_ON: Final = updating(
    "state", ["uid", "run"], *RAN, "next_run_at", where="touched = 0", always=", ".join([*AS_NEW, *FREE])
)
HAS_ENDED: Final = (f"phase = '{Phase.DISABLED}'", f"disabled_reason = '{ENDED}'", "next_run_at = NULL")
FINISH_LAST: Final = updating(
    "state", ["uid", "run"], *RAN, "disabled_at", where="touched = 0", always=", ".join([*AS_NEW, *HAS_ENDED, *FREE])
)
FINISH_RUN: Final = updating(
    "run", ["id"], "started_at", "finished_at", "outcome", "reason", "error", "message", "exit_code"
)


class EndingWork(WorkBase):
    """The transactions about endings. `SQLiteStore` says what each is for."""

    def finish(self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Aftermath | None]:
        left = [aftermath(item, rules) for item in ended]
        going_on: list[Row] = []
        last: list[Row] = []
        others: list[Row] = []
        for one, item in zip(left, ended, strict=True):
            run, finished_at = item.run, item.finished_at
            if not one.is_plain:
                others.append((*one.state, run.uid, run.id))
            elif one.next_run_at is None:
                last.append((item.started_at, finished_at, finished_at, run.uid, run.id))
            else:
                going_on.append((item.started_at, finished_at, one.next_run_at, run.uid, run.id))
        found = FINISH_GOING_ON.all(db, going_on) + FINISH_LAST.all(db, last) + FINISH_UNTOUCHED.all(db, others)
        if found != len(ended):
            # Begin anew: nothing else has been written so far, and a savepoint would cost those that need none.
            db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            return self._finish_touched(db, ended, rules)
        self._write_endings(db, ended, left)
        return [*left]

    def _finish_touched(
        self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Aftermath | None]:
        """As `finish`, where some were edited, taken over or removed while they ran: each is looked at first."""
        now = max((item.finished_at for item in ended), default=0)
        jobs = self._claimed_by(db, (item.run for item in ended), now)
        ours = [item for item in ended if item.run.id in jobs]
        left = aftermaths(jobs, ours, rules)
        FINISH.all(db, (free_values(one.job) for one in left.values()))
        self._bury(db, (one.job for one in left.values()))
        self._write_endings(db, ours, list(left.values()))
        return [left.get(item.run.id) for item in ended]

    def _write_endings(self, db: sqlite3.Connection, ended: Sequence[EndedRun], left: Sequence[Aftermath]) -> None:
        FINISH_RUN.all(db, (_finish_run(item) for item in ended))
        written = [(item.run.id, item.ending.output) for item in ended if item.ending.output is not None]
        if written:
            db.executemany("INSERT OR REPLACE INTO output (run, text) VALUES (?, ?)", written)
        for item, one in zip(ended, left, strict=True):
            if one.next_run_at is not None and one.next_run_at <= self._line_until:  # or nobody need ask for the job
                self._stand_in_line(one.job)
            if one.skips:
                self._write_skips(db, [(one.job, one.skips, item.finished_at)])

    def recover(
        self, db: sqlite3.Connection, dead: Sequence[NodeRow], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        recovered = []
        for node in dead:
            if self._forget_node(db, node):
                recovered += self._interrupt(db, node.id, set(), process_gone(node), now, rules)
        return recovered

    def _forget_node(self, db: sqlite3.Connection, node: NodeRow) -> bool:
        """Whether *node* is dead and ours to bury: otherwise it lives, or another process was faster."""
        if node.is_missing:
            return not db.execute("SELECT 1 FROM node WHERE number = ?", (node.id,)).fetchone()
        return db.execute("DELETE FROM node WHERE number = ? AND beat = ?", (node.id, node.beat)).rowcount > 0

    def interrupt_unknown(
        self, db: sqlite3.Connection, node: int, known: set[int], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        return self._interrupt(db, node, known, NEVER_BEGAN, now, rules)

    def _interrupt(
        self, db: sqlite3.Connection, node: int, known: set[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        """End all runs of *node* but the *known*, as interrupted."""
        rows = [row for row in db.execute(SELECT_HELD, {"node": node}).fetchall() if row[-7] not in known]
        jobs = self._jobs(db, [row[:-7] for row in rows], now)
        left = []
        for row in rows:
            job = jobs.get(row[0])
            if job is None or (has_unreadable_state(job) and not self._bury(db, [job])):
                continue
            edit, ended = interrupted(job, row[-6], row[-5:], problem, now, rules)
            if not has_unreadable_state(job):
                FINISH.one(db, *free_values(edit.job))
                self._bury(db, [edit.job])
                self._stand_in_line(edit.job)
            FINISH_RUN.one(db, *_finish_run(ended))
            self._write_skips(db, [(edit.job, edit.skips, now)])
            left.append((edit, ended.run))
        return left


def _finish_run(item: EndedRun) -> Row:
    ending = item.ending
    reason = SkipReason.INTERRUPTED if ending.outcome is Outcome.INTERRUPTED else None
    return (
        item.started_at,
        item.finished_at,
        ending.outcome._value_,
        reason,
        ending.error,
        ending.message,
        ending.exit_code,
        item.run.id,
    )
