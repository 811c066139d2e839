"""Endings: record how runs ended and what comes next, including runs whose node died."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.change_codec import disables, disablings
from scheduler_async.stores.codec import STATE_FIELDS, has_unreadable_state, state_values
from scheduler_async.stores.conditions import RECORDED_AT
from scheduler_async.stores.decided import Undecided
from scheduler_async.stores.decisions import (
    NEVER_BEGAN,
    after_all,
    cancelled_by_stop,
    each,
    ended_by_death,
    interrupted,
    left_by_run,
    process_gone,
    repeated_as,
    with_cancel_requests,
    with_successors,
)
from scheduler_async.stores.messages import NodeRow, last_alive
from scheduler_async.stores.run_codec import TEXTS_OF_RUNS, ending_values, progress_of, tally_of_endings, texts_of
from scheduler_async.stores.sqlite.backfills import SELECT_HELD_BY_BACKFILLS, BackfillWork
from scheduler_async.stores.sqlite.base import (
    END_LIFE,
    INSERT_REQUEST,
    LAST_RUN,
    SELECT_HELD,
    SELECT_HELD_INSTANCES,
    USUAL,
)
from scheduler_async.stores.sqlite.bulk_writes import updating
from scheduler_async.timekeeping.instants import Micros

FINISH_UNTOUCHED: Final = updating(
    "state", ["uid", "run"], *STATE_FIELDS, where="touched = 0", always="run = NULL, node = NULL", usual=USUAL
)
FINISH_RUN: Final = updating(
    "run", ["id"], "started_at", "finished_at", "outcome", "reason", "error", "message", "exit_code", "result"
)
# Three kinds of runs, by where the store keeps their owners and what their endings change.
PLAIN, SEVERAL, OF_BACKFILL = range(3)
FORGET_NODE: Final = "DELETE FROM node WHERE number = ? AND beat = ? RETURNING beat_at, name"
REPEAT: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, payload, origin)
    SELECT :run, r.uid, r.scheduled_for, :number, r.trigger, :now, r.payload, coalesce(r.origin, r.id)
      FROM run r CROSS JOIN job j ON j.uid = r.uid
     WHERE r.id = :ended AND r.payload IS NOT NULL AND j.removed_at IS NULL AND (r.origin IS NOT NULL OR NOT :asked_for)
"""
FORGET_REQUEST: Final = "DELETE FROM request WHERE run = ?"


class EndingWork(BackfillWork):
    """The transactions of endings. For their purpose, see `Store`."""

    def finish(self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        if stopped := cancelled_by_stop(ended):
            ended = with_cancel_requests(ended, self._cancels_of(db, stopped))
        if any(item.run.is_instance for item in ended):
            return self._finish_several(db, ended, rules)
        left = each(ended, lambda item: left_by_run(self.decisions, item.run.job, item, rules))
        found = FINISH_UNTOUCHED.all(
            db,
            ([*state_values(one.job.state), one.job.uid, item.run.id] for one, item in zip(left, ended, strict=True)),
        )
        if found != len(ended):
            self._begin_again(db)  # nothing else has been written so far
            return self._finish_touched(db, ended, rules)
        self._write_endings(db, ended, left)
        woken = self._wake_successors(db, ended, rules)
        if woken:
            left = [with_successors(one, item.run.id, woken) for one, item in zip(left, ended, strict=True)]
        return [*left]

    def _finish_several(
        self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None]:
        """Do the same as `finish` if some of the jobs may have several runs. Their states change with each of them."""
        plain, several, of_backfills = (
            [item for item in ended if _kind_of(item) == kind] for kind in (PLAIN, SEVERAL, OF_BACKFILL)
        )
        left = {
            PLAIN: iter(self.finish(db, plain, rules)),  # first, because it may start the transaction again
            SEVERAL: iter(self._finish_touched(db, several, rules)),
            OF_BACKFILL: iter(self._finish_for_backfills(db, of_backfills, rules)),
        }
        return [next(left[_kind_of(item)]) for item in ended]

    def _finish_for_backfills(
        self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None]:
        if not ended:
            return []
        found = self._end_for_backfills(db, ended)
        ours = [item for item in ended if item.run.id in found]
        self._write_ended_runs(db, ours)
        woken = self._wake_successors(db, ours, rules)
        left = {item.run.id: with_successors(Transition(item.run.job), item.run.id, woken) for item in ours}
        return [left.get(item.run.id) for item in ended]

    def _finish_touched(
        self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None]:
        """Do the same as `finish` if jobs were edited, taken over or removed during their runs. Read each job first."""
        now = max((item.finished_at for item in ended), default=0)
        jobs = self._claimed_by(db, (item.run for item in ended), now)
        ours = [item for item in ended if item.run.id in jobs]
        found = after_all(self.decisions, jobs, ours, rules)
        left = {run: one for run, (_, one) in found.items()}
        self._free(db, (one.job for one in left.values()), left)
        self._delete_removed(db, (one.job for one in left.values()))
        self._write_endings(db, ours, list(left.values()), {run: before for run, (before, _) in found.items()})
        woken = self._wake_successors(db, ours, rules)
        left = {run: with_successors(one, run, woken) for run, one in left.items()}
        return [left.get(item.run.id) for item in ended]

    def _write_endings(
        self,
        db: sqlite3.Connection,
        ended: Sequence[EndedRun],
        left: Sequence[Transition],
        jobs: Mapping[int, Job] | None = None,
    ) -> None:
        """Write how runs ended. *jobs* are their jobs before that, by run, unless they are as of their claims."""
        self._write_ended_runs(db, ended)
        for item, one in zip(ended, left, strict=True):
            self._add_if_due(one.job)
            if one.skips:
                self._write_skips(db, [(one.job, one.skips, item.finished_at)])
            if one.kind is not None and disables(one):
                before = item.run.job if jobs is None else jobs[item.run.id]
                self._write_changes(db, disablings([(before, one, item.finished_at)]))

    def _write_ended_runs(self, db: sqlite3.Connection, ended: Sequence[EndedRun]) -> None:
        FINISH_RUN.all(db, map(ending_values, ended))
        self._count_ended(db, tally_of_endings(ended))
        if told := [item for item in ended if item.ending.tells_more]:
            for table in TEXTS_OF_RUNS:
                db.executemany(f"INSERT OR REPLACE INTO {table} (run, text) VALUES (?, ?)", texts_of(told, table))
            db.executemany("UPDATE run SET progress = ?, progress_message = ? WHERE id = ?", progress_of(told))
            db.executemany(FORGET_REQUEST, [(item.run.id,) for item in told if item.ending.on_request])

    def recover(
        self, db: sqlite3.Connection, dead: Sequence[NodeRow], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        recovered = []
        for node in dead:
            if self._forget_node(db, node, now):
                recovered += self._interrupt(db, node.id, set(), process_gone(node), now, rules)
        return recovered

    def _forget_node(self, db: sqlite3.Connection, node: NodeRow, now: Micros) -> bool:
        """Delete the row of a dead *node*. Return False if it lives, or if another process was faster."""
        if node.is_missing:
            return not db.execute("SELECT 1 FROM node WHERE number = ?", (node.id,)).fetchone()
        beaten = db.execute(FORGET_NODE, (node.id, node.beat)).fetchone()
        if beaten is not None:
            beat_at, name = beaten
            (recorded_at,) = db.execute(f"SELECT {RECORDED_AT.format('?')}", (name,)).fetchone()
            until = last_alive(node.since, beat_at, recorded_at, now)
            db.execute(END_LIFE, (until, NodeFate.LOST.value, node.id))
        return beaten is not None

    def interrupt_unknown(
        self, db: sqlite3.Connection, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        return self._interrupt(db, node, frozenset(known), NEVER_BEGAN, now, rules)

    def _interrupt(
        self, db: sqlite3.Connection, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record all runs of *node* as interrupted, except the *known* ones."""
        held = db.execute(SELECT_HELD, {"node": node}).fetchall()
        held += db.execute(SELECT_HELD_INSTANCES, {"node": node}).fetchall()
        rows = [row for row in held if row[-7] not in known]
        cancels = self._cancels_of(db, [row[-7] for row in rows])
        jobs = self._jobs(db, [row[:-7] for row in rows], now)
        self._recount(db, jobs)
        left = []
        endings = []
        for row in rows:
            job = jobs.get(row[0])
            if job is None or (has_unreadable_state(job) and not self._delete_removed(db, [job])):
                continue
            try:
                edit, ended = interrupted(self.decisions, job, row[-6], row[-5:], problem, now, rules, cancels)
            except Undecided:
                continue
            if not has_unreadable_state(job):
                self._free(db, [edit.job], [row[-7]])
                self._delete_removed(db, [edit.job])
                self._add_if_due(edit.job)
                jobs[job.uid] = edit.job  # another run of it may be next
            if edit.attempt is not None:
                again = self._repeat(db, ended, edit.attempt, asked_for=problem == NEVER_BEGAN)
                ended = ended if again is None else repeated_as(ended, again)
            FINISH_RUN.one(db, *ending_values(ended))
            if ended.ending.on_request:
                db.execute(FORGET_REQUEST, (ended.run.id,))
            self._write_skips(db, [(edit.job, edit.skips, now)])
            self._write_changes(db, disablings([(job, edit, now)]))
            left.append((edit, ended.run))
            endings.append(ended)
        self._count_ended(db, tally_of_endings(endings))
        woken = self._wake_successors(db, endings, rules) if endings else ()
        interrupted_runs = [(with_successors(edit, run.id, woken), run) for edit, run in left]
        return interrupted_runs + self._interrupt_backfills(db, node, known, problem, now, rules)

    def _repeat(self, db: sqlite3.Connection, ended: EndedRun, attempt: Attempt, *, asked_for: bool) -> int | None:
        """Let any node make another *attempt* at an interrupted manual run. Return its id.

        Return None if it is not repeated: its payload is not known, or its job was removed. If it must be *asked_for*,
        one whose caller was told that it failed is not repeated.
        """
        run = self._last_number(db, LAST_RUN) + 1
        again = {"run": run, "number": attempt.attempt, "now": attempt.claimed_at, "ended": ended.run.id}
        if not db.execute(REPEAT, {**again, "asked_for": asked_for}).rowcount:
            return None
        db.execute(INSERT_REQUEST, (run, ended.run.uid, "start", None, attempt.claimed_at))
        return run

    def _interrupt_backfills(
        self, db: sqlite3.Connection, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Do the same as `_interrupt` for runs of backfills. Their jobs do not change."""
        rows = [row for row in db.execute(SELECT_HELD_BY_BACKFILLS, {"node": node}).fetchall() if row[-7] not in known]
        cancels = self._cancels_of(db, [row[-7] for row in rows])
        jobs = self._jobs(db, [row[:-7] for row in rows], now)
        ended = [
            ended_by_death(job, row[-6] or row[-7], row[-5:], problem, now, cancels)
            for row in rows
            if (job := jobs.get(row[0])) is not None
        ]
        self._end_for_backfills(db, ended)
        self._write_ended_runs(db, ended)
        woken = self._wake_successors(db, ended, rules) if ended else ()
        return [
            (with_successors(Transition(item.run.job, ending=item.ending), item.run.id, woken), item.run)
            for item in ended
        ]


def _kind_of(item: EndedRun) -> int:
    if item.run.is_backfill:
        return OF_BACKFILL
    return SEVERAL if item.run.is_instance else PLAIN
