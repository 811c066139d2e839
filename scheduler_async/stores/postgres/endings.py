"""Endings: record how runs ended and what comes next, including runs whose node died."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.jobs.history import NodeFate
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.change_codec import disables, disablings
from scheduler_async.stores.codec import has_unreadable_state
from scheduler_async.stores.columns import STATE_TYPES
from scheduler_async.stores.conditions import RECORDED_AT
from scheduler_async.stores.decisions import (
    CANCELLED,
    NEVER_BEGAN,
    after,
    cancelled_by_stop,
    interrupted,
    process_gone,
    repeated_as,
    with_cancel_requests,
)
from scheduler_async.stores.messages import NodeRow, last_alive
from scheduler_async.stores.postgres.base import (
    BEAT_AT,
    END_LIFE,
    FREE,
    FREE_TYPES,
    HELD,
    INSERT_REQUEST,
    SELECT_STATE,
    WIDTH,
    WorkBase,
    free_values,
)
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, rows_of, set_to, updating, write_rows
from scheduler_async.stores.postgres.texts import kept, maybe_kept, stored_state
from scheduler_async.stores.run_codec import ending_values, progress_of, texts_of
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

ENDING_TYPES: Final = {
    **dict.fromkeys(("started_at", "finished_at"), "bigint"),
    **dict.fromkeys(("outcome", "reason", "error", "message"), "text"),
    "exit_code": "bigint",
    "result": "text",
}
FINISH: Final = f"""
    WITH states AS ({FREE}),
         runs AS ({updating("run", "id", ENDING_TYPES, first=len(FREE_TYPES) + 2)})
    SELECT nextval('activity')
"""
# The same for jobs that were not changed during their runs, which therefore know the current state.
UNTOUCHED_TYPES: Final = {**STATE_TYPES, **ENDING_TYPES, "uid": "bigint", "run": "bigint"}
UNTOUCHED: Final = f"""
    WITH states AS (UPDATE state AS t SET {set_to(STATE_TYPES)}, run = NULL, node = NULL
                      FROM {rows_of(UNTOUCHED_TYPES)}
                     WHERE t.uid = c.uid AND t.run = c.run AND NOT t.touched
                 RETURNING c.run, {", ".join(f"c.{name}" for name in ENDING_TYPES)}),
         runs AS (UPDATE run AS t SET {set_to(ENDING_TYPES)} FROM states AS c WHERE t.id = c.run)
"""
FINISH_UNTOUCHED: Final = f"{UNTOUCHED} SELECT nextval('activity'), array_agg(run) FROM states"
# All endings or none: the last parameter is their number, and a failing statement changes nothing.
FINISH_AT_ONCE: Final = f"""
    {UNTOUCHED}
    SELECT 1 / (count(*) = ${len(UNTOUCHED_TYPES) + 1}::bigint)::int, nextval('activity') FROM states
"""
SELECT_ENDINGS: Final = "SELECT id, finished_at, outcome FROM run WHERE id = ANY($1::bigint[])"
INSERT_TEXTS: Final = {
    table: f"""
    {inserting(table, {"run": "bigint", "text": "text"})}
        ON CONFLICT (run) DO UPDATE SET text = excluded.text
"""
    for table in ("output", "traceback")
}
PROGRESS_TYPES: Final = {"progress": "double precision", "progress_message": "text"}
WRITE_PROGRESS: Final = updating("run", "id", PROGRESS_TYPES)
REPEAT: Final = """
    INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, payload, origin)
    SELECT nextval('run_id'), r.uid, r.scheduled_for, $2, r.trigger, $3, r.payload, coalesce(r.origin, r.id)
      FROM run r JOIN job j USING (uid)
     WHERE r.id = $1 AND r.payload IS NOT NULL AND j.removed_at IS NULL AND (r.origin IS NOT NULL OR NOT $4)
 RETURNING id
"""
FORGET_REQUESTS: Final = "DELETE FROM request WHERE run = ANY($1::bigint[])"
FORGET_NODE: Final = f"DELETE FROM node n WHERE n.number = $1 AND n.beat = $2 RETURNING {BEAT_AT}, n.name"
LOCK_HELD: Final = f"{SELECT_STATE}, s.run FROM state s WHERE {HELD} ORDER BY s.uid FOR UPDATE"
SELECT_ATTEMPTS: Final = """
    SELECT r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM run r JOIN state s ON s.uid = r.uid AND s.run = r.id
     WHERE r.id = ANY($1::bigint[]) AND r.outcome IS NULL
"""


class EndingWork(WorkBase):
    """The transactions of endings. For their purpose, see `Store`."""

    async def finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None] | None:
        """Record endings in a single statement, outside of a transaction. Return None if there is more to write.

        If one of the jobs was edited, taken over or removed, it fails with a division by zero and changes nothing.
        """
        if not ended or any(item.ending.tells_more or item.ending.outcome is CANCELLED for item in ended):
            return None
        left, rows = _endings(ended, rules)
        if any(one.skips or (one.kind is not None and disables(one)) for one in left.values()):
            return None
        await db.execute(FINISH_AT_ONCE, *columns_of(rows), len(rows))
        self.counted += 1
        return [left[item.run.id] for item in ended]

    async def finish(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        if not ended:
            return []
        if stopped := cancelled_by_stop(ended):
            ended = with_cancel_requests(ended, await self._cancels_of(db, stopped))
        left, rows = _endings(ended, rules)
        _, found = await db.fetchrow(FINISH_UNTOUCHED, *columns_of(rows))
        self.counted += 1
        done = set(found or ())
        if len(done) < len(ended):
            left = {run: one for run, one in left.items() if run in done}
            left |= await self._finish_touched(db, [item for item in ended if item.run.id not in done], rules)
        ours = [item for item in ended if item.run.id in left]
        if told := [item for item in ours if item.ending.tells_more]:
            await self._write_more(db, told)
        endings = ((left[item.run.id], item.finished_at) for item in ours)
        await self._write_skips(db, ((one.job, one.skips, at) for one, at in endings))
        disabled = [(item.run.job, left[item.run.id], item.finished_at) for item in ours if item.run.id in done]
        await self._write_changes(db, disablings(disabled))
        if len(left) < len(ended):
            left |= await self._recorded_before(db, [item for item in ended if item.run.id not in left], rules)
        return [left.get(item.run.id) for item in ended]

    async def _write_more(self, db: Connection, told: Sequence[EndedRun]) -> None:
        """Write what few runs leave, and forget that they were to be cancelled."""
        for table, statement in INSERT_TEXTS.items():
            await write_rows(db, statement, [(run, kept(text)) for run, text in texts_of(told, table)])
        reports = [(share, maybe_kept(message), run) for share, message, run in progress_of(told)]
        await write_rows(db, WRITE_PROGRESS, reports)
        if cancelled := [item.run.id for item in told if item.ending.on_request]:
            await db.execute(FORGET_REQUESTS, cancelled)

    async def _finish_touched(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> dict[int, Transition]:
        """Record endings of jobs that were edited, taken over or removed during their runs. Read each job first."""
        now = max(item.finished_at for item in ended)
        jobs = await self._claimed_by(db, [item.run for item in ended], now)
        ours = [item for item in ended if item.run.id in jobs]
        if not ours:
            return {}
        left = {item.run.id: after(jobs[item.run.id], item, rules) for item in ours}
        await self._write_endings(db, [one.job for one in left.values()], ours)
        disabled = [(jobs[item.run.id], left[item.run.id], item.finished_at) for item in ours]
        await self._write_changes(db, disablings(disabled))
        return left

    async def _recorded_before(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> dict[int, Transition]:
        """Return the endings that an earlier call has recorded although its answer was lost."""
        found = {run: ending for run, *ending in await db.fetch(SELECT_ENDINGS, [item.run.id for item in ended])}
        return {
            item.run.id: after(item.run.job, item, rules)
            for item in ended
            if found.get(item.run.id) == [item.finished_at, item.ending.outcome._value_]
        }

    async def _write_endings(self, db: Connection, jobs: Sequence[Job], ended: Sequence[EndedRun]) -> None:
        states = columns_of([free_values(job) for job in jobs], len(FREE_TYPES) + 1)
        await db.execute(FINISH, *states, *columns_of([_ending(item) for item in ended]))
        await self._delete_removed(db, jobs)
        self.counted += 1

    async def recover(
        self, db: Connection, dead: Sequence[NodeRow], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        recovered: list[tuple[Transition, ClaimedRun]] = []
        for node in sorted(dead, key=lambda node: node.id):
            if await self._forget_node(db, node, now):
                recovered += await self._interrupt(db, node.id, set(), process_gone(node), now, rules)
        return recovered

    async def _forget_node(self, db: Connection, node: NodeRow, now: Micros) -> bool:
        """Delete the row of a dead *node*. Return False if it lives, or if another process was faster."""
        if node.is_missing:
            return await db.fetchval("SELECT 1 FROM node WHERE number = $1", node.id) is None
        beaten = await db.fetchrow(FORGET_NODE, node.id, node.beat)
        if beaten is not None:
            beat_at, name = beaten
            recorded_at = await db.fetchval(f"SELECT {RECORDED_AT.format('$1')}", name)
            until = last_alive(node.since, beat_at, recorded_at, now)
            await db.execute(END_LIFE, until, NodeFate.LOST.value, node.id)
        return beaten is not None

    async def interrupt_unknown(
        self, db: Connection, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        return await self._interrupt(db, node, frozenset(known), NEVER_BEGAN, now, rules)

    async def _interrupt(
        self, db: Connection, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record all runs of *node* as interrupted, except the *known* ones."""
        rows = [row for row in await db.fetch(LOCK_HELD, node) if row[WIDTH] not in known]
        if not rows:
            return []
        cancels = await self._cancels_of(db, [row[WIDTH] for row in rows])
        attempts = {row[0]: tuple(row[1:]) for row in await db.fetch(SELECT_ATTEMPTS, [row[WIDTH] for row in rows])}
        found = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        unreadable = [job for job in found.values() if has_unreadable_state(job)]
        deleted = await self._delete_removed(db, unreadable) if unreadable else set()
        edits: list[Transition] = []
        endings: list[EndedRun] = []
        for row in rows:
            job = found.get(row[0])
            if job is None or (has_unreadable_state(job) and job.uid not in deleted):
                continue
            run_id = row[WIDTH] if row[WIDTH] in attempts else None
            edit, ended = interrupted(job, run_id, attempts.get(run_id, (None,) * 5), problem, now, rules, cancels)
            if edit.attempt is not None:
                again = await self._repeat(db, ended, edit.attempt, asked_for=problem == NEVER_BEGAN)
                ended = ended if again is None else repeated_as(ended, again)
            edits.append(edit)
            endings.append(ended)
        if not endings:
            return []
        jobs = [edit.job for edit in edits]
        await self._write_endings(db, [job for job in jobs if job.uid not in deleted], endings)
        await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
        await self._write_changes(db, disablings((found[edit.job.uid], edit, now) for edit in edits))
        if cancels:
            await db.execute(FORGET_REQUESTS, list(cancels))
        await self._tell(db, jobs)
        return [(edit, ended.run) for edit, ended in zip(edits, endings, strict=True)]

    async def _repeat(self, db: Connection, ended: EndedRun, attempt: Attempt, *, asked_for: bool) -> int | None:
        """Let any node make another *attempt* at an interrupted manual run. Return its id.

        Return None if it is not repeated: its payload is not known, or its job was removed. If it must be *asked_for*,
        one whose caller was told that it failed is not repeated.
        """
        at = attempt.claimed_at
        run: int | None = await db.fetchval(REPEAT, ended.run.id, attempt.attempt, at, asked_for)
        if run is not None:
            await db.execute(INSERT_REQUEST, run, ended.run.uid, "start", None, at)
            await self._tell_of_request(db)
        return run


def _endings(ended: Sequence[EndedRun], rules: Rules) -> tuple[dict[int, Transition], list[tuple[Any, ...]]]:
    """Return the new states of unchanged jobs by run, and the rows to write by job number."""
    left: dict[int, Transition] = {}
    rows = []
    for item in sorted(ended, key=lambda item: item.run.uid):
        one = left[item.run.id] = after(item.run.job, item, rules)
        rows.append((*stored_state(one.state), *_ending(item)[:-1], item.run.uid, item.run.id))
    return left, rows


def _ending(item: EndedRun) -> tuple[Any, ...]:
    *times, outcome, reason, error, message, exit_code, result, run = ending_values(item)
    texts = (maybe_kept(value) for value in (reason, error, message))
    return *times, outcome, *texts, exit_code, maybe_kept(result), run
