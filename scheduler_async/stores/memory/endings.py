"""Endings: record how runs ended and what comes next, including runs whose node died."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.change_codec import disables, disablings
from scheduler_async.stores.decided import Undecided
from scheduler_async.stores.decisions import (
    NEVER_BEGAN,
    after_all,
    cancelled_by_stop,
    ended_by_death,
    interrupted,
    process_gone,
    repeated_as,
    with_cancel_requests,
    with_successors,
)
from scheduler_async.stores.memory.backfills import BackfillWork
from scheduler_async.stores.memory.records import StoredRun
from scheduler_async.stores.messages import MOST_RECORDED, NodeRow, last_alive
from scheduler_async.stores.run_codec import reason_of, tally_of_endings
from scheduler_async.timekeeping.instants import Micros


class EndingWork(BackfillWork):
    """The transactions of endings. For their purpose, see `Store`."""

    def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        if stopped := cancelled_by_stop(ended):
            ended = with_cancel_requests(ended, self._cancels_of(stopped))
        owners, jobs = self._tables.owners, self._tables.jobs
        ours = [item for item in ended if item.run.id in owners]
        scheduled = [item for item in ours if owners[item.run.id].backfill is None]
        current = {item.run.id: self._recounted(jobs[item.run.uid].job) for item in scheduled}
        found = after_all(self.decisions, current, scheduled, rules)
        changed = {one.job.uid: one.job for _, one in found.values()}
        woken = self._woken_by(ours, rules, changed)
        self._end_for_backfills([item for item in ours if item.run.is_backfill])
        self._free(item.run.id for item in scheduled)
        for job in changed.values():
            self._put(job)
        for item in ours:
            self._write_ending(item)
        self._count_ended(tally_of_endings(ours))
        for item in scheduled:
            before, one = found[item.run.id]
            if one.skips:
                self._write_skips([(one.job, one.skips, item.finished_at)])
            if disables(one):
                self._write_changes(disablings([(before, one, item.finished_at)]))
        self._wake(woken)
        left = {run: with_successors(one, run, woken) for run, (_, one) in found.items()}
        of_backfills = (item for item in ours if item.run.id not in left)
        left |= {item.run.id: with_successors(Transition(item.run.job), item.run.id, woken) for item in of_backfills}
        return [left.get(item.run.id) for item in ended]

    def _write_ending(self, item: EndedRun) -> None:
        """Write how a run ended to its row."""
        row, ending = self._tables.runs[item.run.id], item.ending
        row.started_at, row.finished_at, row.outcome = item.started_at, item.finished_at, ending.outcome
        row.reason, row.error, row.message = reason_of(ending), ending.error, ending.message
        row.exit_code, row.result = ending.exit_code, ending.result
        if ending.tells_more:
            row.output = row.output if ending.output is None else ending.output
            row.traceback = row.traceback if ending.traceback is None else ending.traceback
            if ending.progress is not None:
                row.progress, row.progress_message = ending.progress

    def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Transition, ClaimedRun]]:
        recovered = []
        for node in dead:
            if self._forget_node(node, now):
                recovered += self._interrupt(node.id, set(), process_gone(node), now, rules)
        return recovered

    def _forget_node(self, node: NodeRow, now: Micros) -> bool:
        """Delete the row of a dead *node*. Return False if it lives."""
        stored = self._nodes.get(node.id)
        if stored is None or stored.row.beat != node.beat:
            return node.is_missing and stored is None
        recorded_at = self._recorded_at(node.identity.name)
        self._end_life(node.id, last_alive(node.since, stored.beat_at, recorded_at, now), NodeFate.LOST)
        del self._nodes[node.id]
        return True

    def _recorded_at(self, node: str) -> Micros | None:
        """Return when a node last recorded a run. Other nodes record runs as cancelled and as interrupted."""
        rows = (run for run in islice(reversed(self._tables.runs.values()), MOST_RECORDED) if run.node == node)
        return max(map(_recorded_at, rows), default=None)

    def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        return self._interrupt(node, frozenset(known), NEVER_BEGAN, now, rules)

    def _interrupt(
        self, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record all runs of *node* as interrupted, except the *known* ones. The jobs of backfills do not change."""
        tables = self._tables
        held = sorted(self.held(node) - set(known), key=lambda run: (tables.owners[run].backfill is not None, run))
        cancels = self._cancels_of(held)
        left, endings, of_backfills = [], [], []
        for number in held:
            job, row = self._recounted(tables.jobs[tables.owners[number].uid].job), tables.runs[number]
            told = row.scheduled_for, row.attempt, row.trigger, row.claimed_at, row.started_at
            if tables.owners[number].backfill is not None:
                of_backfills.append(ended := ended_by_death(job, number, told, problem, now, cancels))
                left.append((Transition(ended.run.job, ending=ended.ending), ended.run))
                continue
            try:
                edit, ended = interrupted(self.decisions, job, number, told, problem, now, rules, cancels)
            except Undecided:
                continue
            self._free([number])
            self._put(edit.job)
            if edit.attempt is not None:
                again = self._repeat(row, edit.attempt, asked_for=problem == NEVER_BEGAN)
                ended = ended if again is None else repeated_as(ended, again)
            self._write_ending(ended)
            self._write_skips([(edit.job, edit.skips, now)])
            self._write_changes(disablings([(job, edit, now)]))
            left.append((edit, ended.run))
            endings.append(ended)
        woken = self._woken_by([*endings, *of_backfills], rules, {})
        self._wake(woken)
        self._end_for_backfills(of_backfills)
        for ended in of_backfills:
            self._write_ending(ended)
        self._count_ended(tally_of_endings([*endings, *of_backfills]))
        return [(with_successors(edit, run.id, woken), run) for edit, run in left]

    def _repeat(self, ended: StoredRun, attempt: Attempt, *, asked_for: bool) -> int | None:
        """Let any node make another *attempt* at an interrupted manual run. Return its id.

        Return None if it is not repeated: its payload is not known, or its job was removed. If it must be *asked_for*,
        one whose caller was told that it failed is not repeated.
        """
        tables = self._tables
        is_removed = tables.jobs[ended.uid].removed_at is not None
        if ended.payload is None or is_removed or (asked_for and ended.origin is None):
            return None
        again = StoredRun(
            tables.last_run + 1,
            ended.uid,
            ended.scheduled_for,
            attempt.attempt,
            ended.trigger,
            attempt.claimed_at,
            payload=ended.payload,
            origin=ended.id if ended.origin is None else ended.origin,
        )
        self._add_run(again)
        tables.starts[again.id] = again.uid
        return again.id


def _recorded_at(run: StoredRun) -> Micros:
    is_own = run.outcome not in (Outcome.CANCELLED, Outcome.INTERRUPTED)
    return max(run.finished_at, run.claimed_at) if run.finished_at is not None and is_own else run.claimed_at
