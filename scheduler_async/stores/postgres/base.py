"""What the transactions of every subject share: what is remembered between them, rows locked and read into jobs.

A constant or a method is here if two subjects need it; otherwise it is with its subject.

Whoever changes a job locks the row of its state first, and reads its description after that: what a statement that
waited for a lock reads besides the locked row may be older than that. Where several rows are waited for, they are
locked in the order of their numbers; a claim waits for none, and takes what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.codec import (
    REMEMBERED_BYTES,
    has_unreadable_state,
    problems_of,
    read_job,
    read_state,
    shown,
    unreadable_job,
    unreadable_state,
)
from scheduler_async.stores.columns import DESCRIPTION_TYPES, STATE_TYPES
from scheduler_async.stores.postgres.bulk_writes import columns_of, rows_of, updating, write_rows
from scheduler_async.stores.postgres.texts import kept, state_columns, stored_state
from scheduler_async.stores.run_codec import Skipped, skip_values
from scheduler_async.stores.unreadable import UnreadableRows
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

STATE_COLUMNS: Final = ", ".join(f"s.{name}" for name in STATE_TYPES)
SELECT_STATE: Final = f"SELECT s.uid, s.revision, s.updated_at, {STATE_COLUMNS}"
SPEC: Final = ", ".join(f"j.{name}" for name in DESCRIPTION_TYPES)
SELECT_SPECS: Final = f"SELECT {SPEC} FROM job j WHERE j.uid = ANY($1::bigint[])"
WIDTH: Final = 3 + len(STATE_TYPES)  # of a row of state; in a row of both, the description stands behind it
NAMED: Final = "j.namespace = $1 AND j.id = $2 AND j.removed_at IS NULL"


def locking(condition: str) -> str:
    """Jobs that fulfil a *condition*, with their states locked; a job whose state is missing has only its number."""
    return f"""
        WITH locked AS MATERIALIZED ({SELECT_STATE}
                                       FROM job j JOIN state s USING (uid)
                                      WHERE {condition}
                                   ORDER BY s.uid
                                        FOR UPDATE OF s)
      SELECT * FROM locked
   UNION ALL
      SELECT j.uid{", NULL" * (WIDTH - 1)}
        FROM job j
       WHERE {condition} AND NOT EXISTS (SELECT FROM state s WHERE s.uid = j.uid)
    """


LOCK_JOB: Final = locking(NAMED)
LOCK_STATES: Final = f"{SELECT_STATE}, s.run FROM state s WHERE s.uid = ANY($1::bigint[]) ORDER BY s.uid FOR UPDATE"
HELD: Final = "s.activity <> 'idle' AND (s.node = $1 OR ($1 = 0 AND s.node IS NULL))"
DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"
FIND_HANDLERS: Final = "SELECT name, number FROM handler WHERE name = ANY($1::text[])"
ADD_HANDLERS: Final = "INSERT INTO handler (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING"
UNUSED: Final = "NOT EXISTS (SELECT FROM job WHERE job.handler = h.name AND job.removed_at IS NULL)"
# In two statements: the second sees whatever was added before the first had its locks.
LOCK_UNUSED_HANDLERS: Final = f"""
    SELECT number FROM handler h WHERE name = ANY($1::text[]) AND {UNUSED} FOR UPDATE SKIP LOCKED
"""
FORGET_HANDLERS: Final = f"DELETE FROM handler h WHERE number = ANY($1::bigint[]) AND {UNUSED}"
UPDATE_ONLY_STATES: Final = updating("state", "uid", STATE_TYPES, always=", touched = true")
FREE_TYPES: Final = {**STATE_TYPES, "run": "bigint", "node": "bigint"}
FREE: Final = updating("state", "uid", FREE_TYPES)
SKIP_TYPES: Final = {
    **dict.fromkeys(("uid", "scheduled_for", "claimed_at", "finished_at"), "bigint"),
    "reason": "text",
    "missed": "bigint",
}
INSERT_SKIPS: Final = f"""
    INSERT INTO run ({", ".join(SKIP_TYPES)}, attempt, trigger, outcome)
    SELECT {", ".join(SKIP_TYPES)}, 0, 'schedule', 'skipped' FROM {rows_of(SKIP_TYPES)}
"""
DELETE_STATES: Final = """
    DELETE FROM state
     WHERE uid = ANY($1::bigint[])
       AND EXISTS (SELECT FROM job WHERE job.uid = state.uid AND job.removed_at IS NOT NULL)
 RETURNING uid
"""
FORGET_UNRUN: Final = """
    DELETE FROM job WHERE uid = ANY($1::bigint[]) AND NOT EXISTS (SELECT FROM run WHERE run.uid = job.uid)
"""
NOTIFY: Final = "SELECT pg_notify($1, $2)"

# Descriptions that are remembered, so that a busy job is read from its JSON once.
REMEMBERED_SPECS = 4096


class HandlersForgotten(Exception):  # noqa: N818 - it is a message to the store, never to a user
    """Another process has forgotten a handler that was known here: what is under way must begin anew."""


class WorkBase:
    """What is remembered between transactions, and the steps that several of them take."""

    def __init__(self, notify: Callable[[Micros | None, int], tuple[str, str]]) -> None:
        """*notify* says on which channel, and with which words, others are told that some are due at a moment."""
        self._notify = notify
        self._specs: Cache[tuple[int, int, int], Job] = Cache(REMEMBERED_SPECS, REMEMBERED_BYTES)
        self._handlers: Cache[str, int] = Cache(REMEMBERED_SPECS)
        self.unreadable_rows = UnreadableRows()
        self.counted = 0
        """How often we have counted our own activity."""

    async def _lock(self, db: Connection, namespace: str, id: str, now: Micros = 0) -> Job | None:
        """Lock the job with this name and return it; `_jobs` says what *now* is for."""
        jobs = await self._jobs(db, await db.fetch(LOCK_JOB, kept(namespace), kept(id)), now)
        return next(iter(jobs.values()), None)

    async def _claimed_by(self, db: Connection, runs: Iterable[ClaimedRun], now: Micros | None) -> dict[int, Job]:
        """The jobs of *runs* that are still claimed and whose states can be read, by the run that has claimed each."""
        rows = await db.fetch(LOCK_STATES, [run.uid for run in runs])
        jobs = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        return {row[WIDTH]: job for row in rows if (job := jobs.get(row[0])) and not has_unreadable_state(job)}

    async def _jobs(self, db: Connection, rows: Sequence[Sequence[Any]], now: Micros | None = 0) -> dict[int, Job]:
        """The jobs of these rows of state, by their numbers; a state that has no job is left out.

        Some of their descriptions are remembered. A job whose description cannot be read is shown as disabled as of
        *now*, or in its own state if that is None.
        """
        remembered = {row[0]: self._specs.get((row[0], row[1], row[2])) for row in rows}
        missing = [uid for uid, template in remembered.items() if template is None]
        found = {row[0]: row for row in await db.fetch(SELECT_SPECS, missing)} if missing else {}
        return self._read(rows, remembered, found, now)

    def _read(
        self,
        rows: Sequence[Sequence[Any]],
        remembered: Mapping[int, Job | None],
        found: Mapping[int, Sequence[Any]],
        now: Micros | None,
    ) -> dict[int, Job]:
        jobs = {}
        for row in rows:
            template = remembered[row[0]] or self._template(row, found)
            if template is not None:
                jobs[row[0]] = self._job(row, template, now)
        return jobs

    def _template(self, row: Sequence[Any], found: Mapping[int, Sequence[Any]]) -> Job | None:
        """The job of a row of state, whatever its state; None if there is none."""
        uid, revision, updated_at = row[:3]
        if uid not in found:
            self.unreadable_rows.add("state", uid, Unreadable("uid", "no job has this number"))
            return None
        described = tuple(found[uid])
        try:
            template = read_job(described)
        except Unreadable as problem:
            self.unreadable_rows.add("job", uid, problem)
            template = unreadable_job(described, problems_of(described))
        else:
            size = len(template.description.payload_json) + len(template.description.metadata_json)
            self._specs.put((uid, revision, updated_at), template, size)
        return template

    def _job(self, row: Sequence[Any], template: Job, now: Micros | None) -> Job:
        """One job. If it cannot be read (its zone is gone, its JSON broken) it is shown as `_jobs` says."""
        columns = state_columns(row[3:WIDTH])
        try:
            job = template.with_state(read_state(columns))
        except Unreadable as problem:
            unsound = Unreadable("uid", "no row has this number") if row[1] is None else problem
            self.unreadable_rows.add("state", row[0], unsound)
            return replace(template, state=unreadable_state(columns, unsound), unreadable_state=unsound)
        return shown(job, now) if now is not None and job.description.unreadable else job

    async def _numbers_of(self, db: Connection, names: set[str]) -> Mapping[str, int]:
        """The numbers of handlers; a handler that is new gets one."""
        numbers = {name: number for name in names if (number := self._handlers.get(name)) is not None}
        unknown = sorted(names - numbers.keys())
        if not unknown:
            return numbers
        found = dict(await db.fetch(FIND_HANDLERS, unknown))
        for name, number in found.items():
            self._handlers.put(name, number)
        new = [name for name in unknown if name not in found]
        if new:
            await db.execute(ADD_HANDLERS, new)
            found |= dict(await db.fetch(FIND_HANDLERS, new))  # not remembered: all this may yet be rolled back
        if len(found) < len(unknown):
            raise HandlersForgotten
        return numbers | found

    async def _write_states(self, db: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write states whose handlers are still there: another process may have forgotten one that is known here."""
        if rows and (await db.execute(statement, *columns_of(rows))).rpartition(" ")[2] != str(len(rows)):
            self._handlers.clear()
            raise HandlersForgotten

    async def _forget_removed(self, db: Connection, jobs: Sequence[Job]) -> None:
        """Forget the handlers of *jobs* that were removed, if no other job uses them."""
        await self._forget_unused(db, {job.handler for job in jobs})

    async def _forget_unused(self, db: Connection, names: set[str]) -> None:
        """Forget those of the handlers with these *names* that no job uses any more."""
        numbers = [row[0] for row in await db.fetch(LOCK_UNUSED_HANDLERS, list(names))] if names else []
        if numbers:
            await db.execute(FORGET_HANDLERS, numbers)
            for name in names:
                self._handlers.pop(name)

    async def _bury(self, db: Connection, jobs: Sequence[Job]) -> set[int]:
        """Let those of *jobs* that were removed have no state any more, now that no run needs it.

        Return their numbers.
        """
        gone = {uid for (uid,) in await db.fetch(DELETE_STATES, [job.uid for job in jobs])}
        if gone:
            await db.execute(FORGET_UNRUN, list(gone))
            await self._forget_removed(db, [job for job in jobs if job.uid in gone])
        return gone

    async def _write_skips(self, db: Connection, skipped: Iterable[Skipped]) -> None:
        """Write the rows of what was left out, of which job, and when."""
        await write_rows(db, INSERT_SKIPS, skip_values(skipped))

    async def _tell(self, db: Connection, jobs: Iterable[Job]) -> None:
        """Tell the others, once this is committed, when the first of these jobs may start."""
        due = [
            state.next_run_at
            for state in (job.state for job in jobs)
            if state.phase is Phase.ACTIVE and state.activity is Status.IDLE and state.next_run_at is not None
        ]
        first = min(due, default=None)
        await db.execute(NOTIFY, *self._notify(first, 0 if first is None else due.count(first)))


def free_values(job: Job) -> tuple[Any, ...]:
    """The columns of `FREE`: no run holds the job any more."""
    return (*stored_state(job.state), None, None, job.uid)
