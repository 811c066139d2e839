"""The base of all transactions: caches, and rows that are locked and converted to jobs.

A constant or a method is here if two modules need it. Otherwise it is in the module that needs it.

A transaction that changes a job first locks the row of its state, and then reads its description. A statement that
waited for a lock may read outdated values of all rows but the locked one. Transactions lock several rows in the order
of their numbers. A claim waits for no lock, and skips locked rows.
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
from scheduler_async.stores.change_codec import CHANGE_COLUMNS, ChangeRecord
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
from scheduler_async.stores.conditions import IS_UNUSUAL
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import REMOVED, CancelRequest
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, rows_of, updating, write_rows
from scheduler_async.stores.postgres.texts import kept, maybe_kept, original, state_columns, stored_state
from scheduler_async.stores.row_range import RowRange, TimedRows
from scheduler_async.stores.run_codec import Skipped, Tally, skip_values, tally_of_cancelled, tally_of_skips
from scheduler_async.stores.unreadable import UnreadableRows
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

STATE_COLUMNS: Final = ", ".join(f"s.{name}" for name in STATE_TYPES)
SELECT_STATE: Final = f"SELECT s.uid, s.revision, s.updated_at, {STATE_COLUMNS}"
SPEC: Final = ", ".join(f"j.{name}" for name in DESCRIPTION_TYPES)
SELECT_SPECS: Final = f"SELECT {SPEC} FROM job j WHERE j.uid = ANY($1::bigint[])"
WIDTH: Final = 3 + len(STATE_TYPES)  # of a row of state; a combined row has the description after it
NAMED: Final = "j.namespace = $1 AND j.id = $2 AND j.removed_at IS NULL"


def locking(condition: str) -> str:
    """Return the query of jobs that fulfil a *condition*, with locked states.

    A job without a state has only its number. A job that was removed while the query waited is included.
    """
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
ARE_REMOVED: Final = "SELECT uid FROM job WHERE uid = ANY($1::bigint[]) AND removed_at IS NOT NULL"
LOCK_STATES: Final = f"{SELECT_STATE}, s.run FROM state s WHERE s.uid = ANY($1::bigint[]) ORDER BY s.uid FOR UPDATE"
# Whether a claimed job has one run at a time, so that its state has the owner. The others have rows of `instance`.
HAS_OWN_RUN: Final = "(s.running = 0 OR NOT EXISTS (SELECT FROM instance i WHERE i.uid = s.uid AND i.backfill IS NULL))"
HELD: Final = f"s.activity <> 'idle' AND (s.node = $1 OR ($1 = 0 AND s.node IS NULL AND {HAS_OWN_RUN}))"
# The same for jobs that may have several runs at once.
IS_INSTANCE_OF_NODE: Final = "(i.node = $1 OR ($1 = 0 AND i.node IS NULL))"
ADD_INSTANCES: Final = """
    INSERT INTO instance (run, uid, node) SELECT run, uid, $1 FROM unnest($2::bigint[], $3::bigint[]) AS c (run, uid)
"""
ARE_INSTANCES: Final = "SELECT run FROM instance WHERE run = ANY($1::bigint[]) AND backfill IS NULL"
# A run that was given back keeps its number, and another node may have claimed it since.
CLAIMED_AT: Final = "SELECT id, claimed_at FROM run WHERE id = ANY($1::bigint[])"
# A damaged row may name another job, which must not wait for that run, nor cancel it.
COUNT_INSTANCES: Final = """
    SELECT i.uid, count(*)
      FROM instance i JOIN run r ON r.id = i.run AND r.uid = i.uid
     WHERE i.uid = ANY($1::bigint[]) AND i.backfill IS NULL
  GROUP BY i.uid
"""
FREE_INSTANCES: Final = "DELETE FROM instance WHERE run = ANY($1::bigint[])"
# Notes those of the `runs` that have ended without success.
NOTE_UNUSUAL: Final = f"""
    INSERT INTO unusual (outcome, run)
    SELECT r.outcome, r.id FROM runs r WHERE {IS_UNUSUAL}
        ON CONFLICT DO NOTHING
"""
DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"
FIND_HANDLERS: Final = "SELECT name, number FROM handler WHERE name = ANY($1::text[])"
ADD_HANDLERS: Final = "INSERT INTO handler (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING"
UNUSED: Final = "NOT EXISTS (SELECT FROM job WHERE job.handler = h.name AND job.removed_at IS NULL)"
# Two statements: the second one sees every job that was added before the first one got its locks.
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
    WITH runs AS (INSERT INTO run ({", ".join(SKIP_TYPES)}, attempt, trigger, outcome)
                  SELECT {", ".join(SKIP_TYPES)}, 0, 'schedule', 'skipped' FROM {rows_of(SKIP_TYPES)}
               RETURNING id, outcome)
    {NOTE_UNUSUAL}
"""
TALLY_TYPES: Final = {"hour": "bigint", **dict.fromkeys(("namespace", "outcome", "node"), "text"), "n": "bigint"}


def counting(first: int = 1) -> str:
    """Return a statement that adds rows to the tally. They are its parameters from number *first* on."""
    columns = ", ".join(TALLY_TYPES)
    return f"""
        INSERT INTO tally AS t ({columns})
        SELECT {columns} FROM {rows_of(TALLY_TYPES, first)}
            ON CONFLICT (hour, namespace, outcome, node) DO UPDATE SET n = t.n + excluded.n
    """


COUNT: Final = counting()
# The runs that callers have asked for and that no node has taken up.
CANCEL_REQUESTED: Final = f"""
    WITH requests AS (DELETE FROM request WHERE kind = 'start' AND uid = ANY($1::bigint[]) RETURNING run),
         runs AS (UPDATE run
                     SET outcome = 'cancelled', finished_at = $2, error = $3
                   WHERE id IN (SELECT run FROM requests) AND outcome IS NULL
               RETURNING id, outcome, uid),
         noted AS ({NOTE_UNUSUAL})
    SELECT j.namespace, count(*) FROM runs JOIN job j USING (uid) GROUP BY j.namespace ORDER BY j.namespace
"""
DELETE_STATES: Final = """
    DELETE FROM state
     WHERE uid = ANY($1::bigint[])
       AND EXISTS (SELECT FROM job WHERE job.uid = state.uid AND job.removed_at IS NOT NULL)
 RETURNING uid
"""
CHANGE_TYPES: Final = {name: "bigint" if name in ("uid", "at") else "text" for name in CHANGE_COLUMNS}
INSERT_CHANGES: Final = inserting("change", CHANGE_TYPES)
# The last heartbeat of a node in microseconds. A damaged time may be infinite.
BEAT_AT: Final = "CASE WHEN isfinite(n.beat_at) THEN (extract(epoch FROM n.beat_at) * 1000000)::bigint END"
END_LIFE: Final = "UPDATE node_span SET until = $1, how = $2 WHERE number = $3 AND until IS NULL"
CANCELS_OF: Final = "SELECT run, reason, at FROM request WHERE run = ANY($1::bigint[]) AND kind || '' = 'cancel'"
NOTIFY: Final = "SELECT pg_notify($1, $2)"
# {0} are `TimedRows`.
FIRST_AND_LAST: Final = "SELECT (SELECT min({0.number}) FROM {0.table}), (SELECT max({0.number}) FROM {0.table})"
TIMES_FROM: Final = """
    SELECT p.number, (SELECT r.{0.at} FROM {0.table} r WHERE r.{0.number} >= p.number ORDER BY r.{0.number} LIMIT 1)
      FROM unnest($1::bigint[]) AS p (number)
"""
REQUEST: Final = "request"
"""The text of a notification about a request, after the sender."""
INSERT_REQUEST: Final = """
    INSERT INTO request (run, uid, kind, reason, at)
    VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (run) DO UPDATE SET kind = excluded.kind, reason = excluded.reason, at = excluded.at
"""

# So many rows go into one statement, because building a statement blocks the event loop.
SLICE = 1000

# The number of cached descriptions, so that the JSON of a busy job is parsed only once.
REMEMBERED_SPECS = 4096


class HandlersForgotten(Exception):  # noqa: N818 - a message to the store, which users never see
    """Another process has deleted a handler that this store has cached. The transaction must start again."""


class WorkBase:
    """The caches, and the steps that several transactions share."""

    def __init__(self, notify: Callable[[Micros | None, int], tuple[str, str]]) -> None:
        """Start with empty caches. *notify* returns the channel and the text of a notification about due jobs."""
        self._notify = notify
        self._specs: Cache[tuple[int, int, int], Job] = Cache(REMEMBERED_SPECS, REMEMBERED_BYTES)
        self._handlers: Cache[str, int] = Cache(REMEMBERED_SPECS)
        self._node_name = ""  # of the node that uses this store, as in the rows of its runs
        self.unreadable_rows = UnreadableRows()
        self.decisions = Decisions()
        self.counted = 0
        """How often this store has incremented the activity counter."""

    async def _lock(self, db: Connection, namespace: str, id: str, now: Micros = 0) -> Job | None:
        """Lock and return the job with this name. For *now*, see `_jobs`."""
        jobs = await self._jobs(db, await self._lock_states(db, LOCK_JOB, kept(namespace), kept(id)), now)
        return next(iter(jobs.values()), None)

    async def _lock_states(self, db: Connection, question: str, *names: object) -> list[Sequence[Any]]:
        """Lock and return the states of the jobs that a *question* of `locking` finds, unless they are removed now."""
        rows = await db.fetch(question, *names)
        removed = {uid for (uid,) in await db.fetch(ARE_REMOVED, [row[0] for row in rows])} if rows else ()
        return [row for row in rows if row[0] not in removed]

    async def _claimed_by(self, db: Connection, runs: Iterable[ClaimedRun], now: Micros | None) -> dict[int, Job]:
        """Return the jobs of *runs* that are still claimed and have readable states, by run."""
        runs = list(runs)
        rows = await db.fetch(LOCK_STATES, [run.uid for run in runs])
        found = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        jobs = {uid: job for uid, job in found.items() if not has_unreadable_state(job)}
        held = {row[WIDTH]: jobs[row[0]] for row in rows if row[WIDTH] is not None and row[0] in jobs}
        others = [run.id for run in runs if run.id not in held]
        instances = {run for (run,) in await db.fetch(ARE_INSTANCES, others)} if others else set()
        if instances:
            await self._recount(db, jobs)
            held |= {run.id: jobs[run.uid] for run in runs if run.id in instances and run.uid in jobs}
        if given_back := [run for run in runs if run.id in held and run.waits_if_given_back]:
            claimed_at = dict(await db.fetch(CLAIMED_AT, [run.id for run in given_back]))
            gone = {run.id for run in given_back if claimed_at.get(run.id) != run.claimed_at}
            held = {run: job for run, job in held.items() if run not in gone}
        return held

    async def _recount(self, db: Connection, jobs: dict[int, Job], held: Iterable[int] = ()) -> None:
        """Count the runs of those *jobs*, by number, that may have several. The rows of the owners decide.

        The jobs in *held* have such a row, or one of their own.
        """
        several = [uid for uid, job in jobs.items() if job.state.running or job.description.has_instances]
        several += [uid for uid in dict.fromkeys(held) if uid in jobs and uid not in several]
        if not several:
            return
        counts = dict(await db.fetch(COUNT_INSTANCES, several))
        for uid in several:
            job, count = jobs[uid], counts.get(uid, 0)
            if job.state.running != count and not has_unreadable_state(job):
                jobs[uid] = job.with_state(replace(job.state, running=count))

    async def _recounted(self, db: Connection, job: Job) -> Job:
        """Return *job* with the number of its runs, if it may have several."""
        jobs = {job.uid: job}
        await self._recount(db, jobs)
        return jobs[job.uid]

    async def _jobs(self, db: Connection, rows: Sequence[Sequence[Any]], now: Micros | None = 0) -> dict[int, Job]:
        """Return the jobs of these rows of state, by number. A state without a job is omitted.

        Some of their descriptions are cached. A job whose description cannot be read counts as disabled as of *now*, or
        keeps its own state if *now* is None.
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
        """Return the job of a row of state, without its state. Return None if there is no such job."""
        uid, revision, updated_at = row[:3]
        if uid not in found:
            self.unreadable_rows.add("state", uid, Unreadable("uid", "no job has this uid"))
            return None
        described = tuple(found[uid])
        try:
            template = read_job(described)
        except Unreadable as problem:
            self.unreadable_rows.add("job", uid, problem)
            template = unreadable_job(described, problems_of(described))
        else:
            if not template.schedule.is_known:  # its class may be imported at any time
                return template
            size = len(template.description.payload_json) + len(template.description.metadata_json)
            self._specs.put((uid, revision, updated_at), template, size)
        return template

    def _job(self, row: Sequence[Any], template: Job, now: Micros | None) -> Job:
        """Return one job. If it cannot be read, for example because its zone is gone, see `_jobs`."""
        columns = state_columns(row[3:WIDTH])
        try:
            job = template.with_state(read_state(columns))
        except Unreadable as problem:
            unsound = Unreadable("uid", "no state has this uid") if row[1] is None else problem
            self.unreadable_rows.add("state", row[0], unsound)
            return replace(template, state=unreadable_state(columns, unsound), unreadable_state=unsound)
        return shown(job, now) if now is not None and job.description.unreadable else job

    async def _numbers_of(self, db: Connection, names: set[str]) -> Mapping[str, int]:
        """Return the numbers of handlers. A new handler gets a number."""
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
            found |= dict(await db.fetch(FIND_HANDLERS, new))  # not cached, because the transaction may be rolled back
        if len(found) < len(unknown):
            raise HandlersForgotten
        return numbers | found

    async def _write_states(self, db: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write states whose handlers still exist. Another process may have deleted a handler that is cached here."""
        if rows and (await db.execute(statement, *columns_of(rows))).rpartition(" ")[2] != str(len(rows)):
            self._handlers.clear()
            raise HandlersForgotten

    async def _forget_removed(self, db: Connection, jobs: Sequence[Job]) -> None:
        """Delete the handlers of removed *jobs* that no other job uses."""
        await self._forget_unused(db, {job.handler for job in jobs})

    async def _forget_unused(self, db: Connection, names: set[str]) -> None:
        """Delete the handlers with these *names* that no job uses."""
        numbers = [row[0] for row in await db.fetch(LOCK_UNUSED_HANDLERS, list(names))] if names else []
        if numbers:
            await db.execute(FORGET_HANDLERS, numbers)
            for name in names:
                self._handlers.pop(name)

    async def _delete_removed(self, db: Connection, jobs: Sequence[Job]) -> set[int]:
        """Delete the states of removed *jobs*, which no run needs any more.

        Return their numbers.
        """
        gone = {uid for (uid,) in await db.fetch(DELETE_STATES, [job.uid for job in jobs])}
        if gone:
            await db.execute("DELETE FROM instance WHERE uid = ANY($1::bigint[])", list(gone))
            await self._forget_removed(db, [job for job in jobs if job.uid in gone])
        return gone

    async def _cancels_of(self, db: Connection, runs: Sequence[int]) -> dict[int, CancelRequest]:
        """Return those of *runs* that callers have asked to cancel."""
        found = await db.fetch(CANCELS_OF, list(runs)) if runs else ()
        return {run: CancelRequest(original(reason), at) for run, reason, at in found}

    async def _range(
        self, db: Connection, rows: TimedRows, since: Micros | None, until: Micros | None = None
    ) -> RowRange | None:
        """Return the numbers of *rows* of about a stretch of time. None if there are no rows."""
        first, last = await db.fetchrow(FIRST_AND_LAST.format(rows))
        if first is None:
            return None
        found = RowRange(first, last, since, until, rows.disorder)
        while points := found.points():
            found.learn(dict(await db.fetch(TIMES_FROM.format(rows), points)))
        return found

    async def _write_skips(self, db: Connection, skipped: Sequence[Skipped]) -> None:
        """Write the rows of skipped occurrences."""
        rows = skip_values(skipped)
        if rows:
            await write_rows(db, INSERT_SKIPS, rows)
            await self._count_ended(db, tally_of_skips(skipped))

    async def _cancel_requested(self, db: Connection, jobs: Sequence[Job], now: Micros) -> None:
        """Cancel the runs of removed *jobs* that callers have asked for and that no node has taken up."""
        for namespace, cancelled in await db.fetch(CANCEL_REQUESTED, [job.uid for job in jobs], now, REMOVED):
            await self._count_ended(db, tally_of_cancelled(str(original(namespace)), cancelled, now))

    async def _count_ended(self, db: Connection, tally: Tally, node: str | None = None) -> None:
        """Add *tally* to the numbers of runs that ended on a *node*; None is this one."""
        await write_rows(db, COUNT, self._counted(tally, node))

    def _counted(self, tally: Tally, node: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of `COUNT`, in the order in which every transaction locks them."""
        name = kept(self._node_name if node is None else node)
        return sorted((hour, kept(namespace), outcome, name, n) for (hour, namespace, outcome), n in tally.items())

    async def _write_changes(self, db: Connection, records: Sequence[ChangeRecord]) -> None:
        """Write the rows of changes of jobs."""
        for first in range(0, len(records), SLICE):
            rows = [
                (uid, at, action, maybe_kept(actor), maybe_kept(via), maybe_kept(reason), before, after)
                for uid, at, action, actor, via, reason, before, after in records[first : first + SLICE]
            ]
            await write_rows(db, INSERT_CHANGES, rows)

    async def _tell(self, db: Connection, jobs: Iterable[Job]) -> None:
        """Notify other processes after the commit when the first of these jobs may start."""
        due = [
            state.next_run_at
            for state in (job.state for job in jobs)
            if state.phase is Phase.ACTIVE and state.activity is Status.IDLE and state.next_run_at is not None
        ]
        first = min(due, default=None)
        await db.execute(NOTIFY, *self._notify(first, 0 if first is None else due.count(first)))

    async def _tell_of_request(self, db: Connection) -> None:
        """Let all nodes look for requests after the commit."""
        channel, sender = self._notify(None, 0)
        await db.execute(NOTIFY, channel, f"{sender} {REQUEST}")


def free_values(job: Job) -> tuple[Any, ...]:
    """Return the columns of `FREE` for a job without a run."""
    return (*stored_state(job.state), None, None, job.uid)
