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
from scheduler_async.stores.decided import Undecided
from scheduler_async.stores.decisions import (
    CANCELLED,
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
from scheduler_async.stores.postgres.backfills import LOCK_BACKFILLS_OF_NODE, LOCK_HELD_BY_BACKFILLS, BackfillWork
from scheduler_async.stores.postgres.base import (
    BEAT_AT,
    END_LIFE,
    FREE,
    FREE_INSTANCES,
    FREE_TYPES,
    HELD,
    INSERT_REQUEST,
    IS_INSTANCE_OF_NODE,
    NOTE_UNUSUAL,
    SELECT_STATE,
    WIDTH,
    counting,
    free_values,
)
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, rows_of, set_to, updating, write_rows
from scheduler_async.stores.postgres.successors import FOLLOWED
from scheduler_async.stores.postgres.texts import kept, maybe_kept, stored_state
from scheduler_async.stores.run_codec import ending_values, progress_of, tally_of_endings, texts_of
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
         runs AS ({updating("run", "id", ENDING_TYPES, first=len(FREE_TYPES) + 2)} RETURNING t.id, t.outcome),
         noted AS ({NOTE_UNUSUAL})
    SELECT nextval('activity')
"""
# The same for jobs that were not changed during their runs, which therefore know the current state.
UNTOUCHED_TYPES: Final = {**STATE_TYPES, **ENDING_TYPES, "uid": "bigint", "run": "bigint"}
PLACE_OF_UIDS: Final = [*UNTOUCHED_TYPES].index("uid") + 1
UNTOUCHED: Final = f"""
    WITH states AS (UPDATE state AS t SET {set_to(STATE_TYPES)}, run = NULL, node = NULL
                      FROM {rows_of(UNTOUCHED_TYPES)}
                     WHERE t.uid = c.uid AND t.run = c.run AND NOT t.touched
                 RETURNING c.run, {", ".join(f"c.{name}" for name in ENDING_TYPES)}),
         runs AS (UPDATE run AS t SET {set_to(ENDING_TYPES)} FROM states AS c WHERE t.id = c.run
               RETURNING t.id, t.outcome),
         noted AS ({NOTE_UNUSUAL})
"""
FINISH_UNTOUCHED: Final = f"{UNTOUCHED} SELECT nextval('activity'), array_agg(run) FROM states"
# All endings or none: the last parameter is their number, and a failing statement changes nothing. It fails, too, if
# other jobs run after these.
FINISH_AT_ONCE: Final = f"""
    {UNTOUCHED},
         counted AS ({counting(len(UNTOUCHED_TYPES) + 2)})
    SELECT 1 / (count(*) = ${len(UNTOUCHED_TYPES) + 1}::bigint AND NOT {FOLLOWED.format(f"${PLACE_OF_UIDS}")})::int,
           nextval('activity')
      FROM states
"""
FINISH_RUNS: Final = f"""
    WITH runs AS ({updating("run", "id", ENDING_TYPES)} RETURNING t.id, t.outcome) {NOTE_UNUSUAL}
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
# The rows of states are locked in the order of their numbers, as everywhere.
LOCK_HELD_INSTANCES: Final = f"""
    {SELECT_STATE}, i.run FROM instance i JOIN state s USING (uid)
     WHERE {IS_INSTANCE_OF_NODE} AND i.backfill IS NULL ORDER BY s.uid, i.run FOR UPDATE OF s
"""
SELECT_ATTEMPTS: Final = """
    SELECT r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM run r
     WHERE r.id = ANY($1::bigint[]) AND r.outcome IS NULL
       AND (EXISTS (SELECT FROM state s WHERE s.uid = r.uid AND s.run = r.id)
            OR EXISTS (SELECT FROM instance i WHERE i.run = r.id AND i.uid = r.uid))
"""


class EndingWork(BackfillWork):
    """The transactions of endings. For their purpose, see `Store`."""

    async def finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None] | None:
        """Record endings in a single statement, outside of a transaction. Return None if there is more to write.

        If one of the jobs was edited, taken over or removed, or if another job runs after it, it fails with a division
        by zero and changes nothing.
        """
        if not ended or any(item.ending.tells_more or item.ending.outcome is CANCELLED for item in ended):
            return None
        if any(item.run.is_instance for item in ended):
            return None
        left, rows = self._endings(ended, rules)
        if any(one.skips or (one.kind is not None and disables(one)) for one in left.values()):
            return None
        numbers = columns_of(self._counted(tally_of_endings(ended)))
        await db.execute(FINISH_AT_ONCE, *columns_of(rows), len(rows), *numbers)
        self.counted += 1
        return [left[item.run.id] for item in ended]

    def _endings(self, ended: Sequence[EndedRun], rules: Rules) -> tuple[dict[int, Transition], list[tuple[Any, ...]]]:
        """Return the new states of unchanged jobs by run, and the rows to write by job number."""
        ordered = sorted(ended, key=lambda item: item.run.uid)
        changes = each(ordered, lambda item: left_by_run(self.decisions, item.run.job, item, rules))
        left: dict[int, Transition] = {}
        rows = []
        for item, one in zip(ordered, changes, strict=True):
            left[item.run.id] = one
            rows.append((*stored_state(one.state), *_ending(item)[:-1], item.run.uid, item.run.id))
        return left, rows

    async def finish(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        if not ended:
            return []
        if any(item.run.is_backfill for item in ended):
            others = iter(await self.finish(db, [item for item in ended if not item.run.is_backfill], rules))
            backfilled = [item for item in ended if item.run.is_backfill]
            of_backfills = iter(await self._finish_for_backfills(db, backfilled, rules))
            return [next(of_backfills if item.run.is_backfill else others) for item in ended]
        if stopped := cancelled_by_stop(ended):
            ended = with_cancel_requests(ended, await self._cancels_of(db, stopped))
        await self._lock_followed(db, ended)
        left, rows = self._endings([item for item in ended if not item.run.is_instance], rules)
        done: set[int] = set()
        if rows:
            _, found = await db.fetchrow(FINISH_UNTOUCHED, *columns_of(rows))
            self.counted += 1
            done = set(found or ())
        if len(done) < len(ended):
            left = {run: one for run, one in left.items() if run in done}
            left |= await self._finish_touched(db, [item for item in ended if item.run.id not in done], rules)
        ours = [item for item in ended if item.run.id in left]
        if told := [item for item in ours if item.ending.tells_more]:
            await self._write_more(db, told)
        endings = [(left[item.run.id], item.finished_at) for item in ours]
        await self._write_skips(db, [(one.job, one.skips, at) for one, at in endings])
        disabled = [(item.run.job, left[item.run.id], item.finished_at) for item in ours if item.run.id in done]
        await self._write_changes(db, disablings(disabled))
        await self._count_ended(db, tally_of_endings([item for item in ours if item.run.id in done]))
        woken = await self._wake_successors(db, ours, rules)
        left = {run: with_successors(one, run, woken) for run, one in left.items()}
        if len(left) < len(ended):
            left |= await self._recorded_before(db, [item for item in ended if item.run.id not in left], rules)
        return [left.get(item.run.id) for item in ended]

    async def _finish_for_backfills(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Transition | None]:
        if stopped := cancelled_by_stop(ended):
            ended = with_cancel_requests(ended, await self._cancels_of(db, stopped))
        found = await self._end_for_backfills(db, ended)
        ours = [item for item in ended if item.run.id in found]
        await self._write_ended_runs(db, ours)
        woken = await self._wake_successors(db, ours, rules)
        left = {item.run.id: with_successors(Transition(item.run.job), item.run.id, woken) for item in ours}
        if len(ours) < len(ended):
            recorded = await self._endings_of(db, [item for item in ended if item.run.id not in found])
            left |= {item.run.id: Transition(item.run.job) for item in recorded}
        return [left.get(item.run.id) for item in ended]

    async def _write_ended_runs(self, db: Connection, ended: Sequence[EndedRun]) -> None:
        """Write how runs of backfills ended. Their jobs do not change."""
        await write_rows(db, FINISH_RUNS, [_ending(item) for item in ended])
        if told := [item for item in ended if item.ending.tells_more]:
            await self._write_more(db, told)
        await self._count_ended(db, tally_of_endings(ended))
        await db.execute("SELECT nextval('activity')")
        self.counted += 1

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
        found = after_all(self.decisions, jobs, ours, rules)
        left = {run: one for run, (_, one) in found.items()}
        await self._write_endings(db, [one.job for one in left.values()], ours)
        await self._write_changes(db, disablings([(*found[item.run.id], item.finished_at) for item in ours]))
        return left

    async def _recorded_before(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> dict[int, Transition]:
        """Return what the endings have left that an earlier call has recorded although its answer was lost."""
        recorded = await self._endings_of(db, ended)
        return {item.run.id: left_by_run(self.decisions, item.run.job, item, rules) for item in recorded}

    async def _endings_of(self, db: Connection, ended: Sequence[EndedRun]) -> list[EndedRun]:
        """Return those of the endings that are recorded."""
        found = {run: ending for run, *ending in await db.fetch(SELECT_ENDINGS, [item.run.id for item in ended])}
        return [item for item in ended if found.get(item.run.id) == [item.finished_at, item.ending.outcome._value_]]

    async def _write_endings(self, db: Connection, jobs: Sequence[Job], ended: Sequence[EndedRun]) -> None:
        """Write *jobs* after runs of them have ended. Several may be of the same job, whose last state counts."""
        states = [free_values(job) for job in {job.uid: job for job in jobs}.values()]
        endings = columns_of([_ending(item) for item in ended])
        await db.execute(FINISH, *columns_of(states, len(FREE_TYPES) + 1), *endings)
        await db.execute(FREE_INSTANCES, [item.run.id for item in ended])
        await self._delete_removed(db, jobs)
        await self._count_ended(db, tally_of_endings(ended))
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
        interrupted_runs = await self._interrupt_regular(db, node, known, problem, now, rules)
        return interrupted_runs + await self._interrupt_backfills(db, node, known, problem, now, rules)

    async def _interrupt_regular(
        self, db: Connection, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        await self._lock_held(db, node)
        held = [*await db.fetch(LOCK_HELD, node), *await db.fetch(LOCK_HELD_INSTANCES, node)]
        rows = [row for row in held if row[WIDTH] not in known]
        if not rows:
            return []
        cancels = await self._cancels_of(db, [row[WIDTH] for row in rows])
        attempts = {row[0]: tuple(row[1:]) for row in await db.fetch(SELECT_ATTEMPTS, [row[WIDTH] for row in rows])}
        found = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        await self._recount(db, found, [row[0] for row in rows])
        unreadable = [job for job in found.values() if has_unreadable_state(job)]
        deleted = await self._delete_removed(db, unreadable) if unreadable else set()
        edits: list[Transition] = []
        befores: list[Job] = []
        endings: list[EndedRun] = []
        for row in rows:
            job = found.get(row[0])
            if job is None or (has_unreadable_state(job) and job.uid not in deleted):
                continue
            run_id = row[WIDTH] if row[WIDTH] in attempts else None
            told = attempts.get(run_id, (None,) * 5)
            try:
                edit, ended = interrupted(self.decisions, job, run_id, told, problem, now, rules, cancels)
            except Undecided:
                continue
            if edit.attempt is not None:
                again = await self._repeat(db, ended, edit.attempt, asked_for=problem == NEVER_BEGAN)
                ended = ended if again is None else repeated_as(ended, again)
            edits.append(edit)
            befores.append(job)
            endings.append(ended)
            found[job.uid] = edit.job  # another run of it may be next
        if not endings:
            return []
        jobs = [edit.job for edit in edits]
        await self._write_endings(db, [job for job in jobs if job.uid not in deleted], endings)
        await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
        await self._write_changes(db, disablings((job, edit, now) for job, edit in zip(befores, edits, strict=True)))
        if cancels:
            await db.execute(FORGET_REQUESTS, [item.run.id for item in endings if item.run.id in cancels])
        await self._tell(db, jobs)
        woken = await self._wake_successors(db, endings, rules)
        return [
            (with_successors(edit, ended.run.id, woken), ended.run) for edit, ended in zip(edits, endings, strict=True)
        ]

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

    async def _interrupt_backfills(
        self, db: Connection, node: int, known: Collection[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Do the same as `_interrupt` for runs of backfills. Their jobs do not change."""
        await db.execute(LOCK_BACKFILLS_OF_NODE, node)
        rows = [row for row in await db.fetch(LOCK_HELD_BY_BACKFILLS, node) if row[WIDTH] not in known]
        if not rows:
            return []
        cancels = await self._cancels_of(db, [row[WIDTH] for row in rows])
        jobs = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        ended = [
            ended_by_death(job, row[WIDTH], row[WIDTH + 1 :], problem, now, cancels)
            for row in rows
            if (job := jobs.get(row[0])) is not None
        ]
        await self._end_for_backfills(db, ended)
        await self._write_ended_runs(db, ended)
        await self._tell_of_request(db)
        woken = await self._wake_successors(db, ended, rules)
        return [
            (with_successors(Transition(item.run.job, ending=item.ending), item.run.id, woken), item.run)
            for item in ended
        ]


def _ending(item: EndedRun) -> tuple[Any, ...]:
    *times, outcome, reason, error, message, exit_code, result, run = ending_values(item)
    texts = (maybe_kept(value) for value in (reason, error, message))
    return *times, outcome, *texts, exit_code, maybe_kept(result), run
