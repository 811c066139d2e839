"""What PostgreSQL is asked, and the transactions it is asked in: coroutines that are given a connection.

SQL at the top, transactions below. The schema, the connections and the errors are in `postgres`.

Whoever changes a job locks the row of its state first, and reads its description after that: what a statement that
waited for a lock reads besides the locked row may be older than that. Where several rows are waited for, they are
locked in the order of their numbers; a claim waits for none, and takes what is free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import Outcome, Phase, Priority, SkipReason, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import Ending, RunRow, Skip
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.claiming import claim_manually
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.codec import (
    REMEMBERED_BYTES,
    Row,
    has_unreadable_state,
    problems_of,
    read_job,
    refuse_resuming_unreadable,
    refuse_stand_ins,
    refuse_unreadable_state,
    shown,
    spec_values,
    state_of,
    state_problem,
    state_values,
    unreadable_job,
    unreadable_state,
)
from scheduler_async.stores.decisions import (
    after,
    aftermath,
    attempt_of,
    can_be_claimed,
    claimed,
    disabled_by,
    earliest_of,
    gone_on,
    noticed_at,
    put_back,
    reviewed,
)
from scheduler_async.stores.messages import (
    MOST_UNHANDLED,
    REMOVED,
    Aftermath,
    Change,
    ClaimedRun,
    Claims,
    ClaimTerms,
    Edit,
    EndedRun,
    JobFilter,
    NodeIdentity,
    NodeLost,
    NodeRow,
    NodeStatus,
    RunFilter,
    has_metadata,
)
from scheduler_async.stores.node_codec import read_node
from scheduler_async.stores.run_codec import read_run
from scheduler_async.stores.unreadable import UnreadableRows, shown_moment
from scheduler_async.timekeeping.instants import FIRST, LAST, MINUTE, SECOND, Micros

if TYPE_CHECKING:
    from asyncpg import Connection

STATE_COLUMNS: Final = ", ".join(f"s.{name}" for name in JobState._fields)
STATE_TEXTS: Final = ("disabled_reason", "last_error", "last_message")
STATE_TYPES: Final = {
    name: "text" if name in ("phase", "activity", *STATE_TEXTS) else "bigint" for name in JobState._fields
}

SELECT_STATE: Final = f"SELECT s.uid, s.revision, s.updated_at, {STATE_COLUMNS}"
SPEC: Final = """
    j.uid, j.revision, j.namespace, j.id, j.handler, j.schedule, j.retry, j.payload, j.metadata, j.user_id,
    j.name, j.priority, j.job_group, j.misfire, j.timeout, j.on_interrupt, j.anchor, j.created_at, j.updated_at
"""
WIDTH: Final = 3 + len(JobState._fields)  # of a row of state; in a row of both, the description stands behind it

# The columns that `spec_values` fills, and those beside the state that `_narrow` does.
SPEC_TYPES: Final = {
    "revision": "bigint",
    **dict.fromkeys(("namespace", "id", "handler", "schedule", "retry", "payload", "metadata"), "text"),
    **dict.fromkeys(("user_id", "name", "priority", "job_group", "misfire"), "text"),
    "timeout": "bigint",
    "on_interrupt": "text",
    **dict.fromkeys(("anchor", "created_at", "updated_at"), "bigint"),
}
NARROW_TYPES: Final = {
    **dict.fromkeys(("revision", "updated_at", "handler", "rank"), "bigint"),
    **dict.fromkeys(("id", "group_key"), "text"),
    **STATE_TYPES,
}


def rows_of(types: Mapping[str, str], first: int = 1) -> str:
    """A table `c` of the parameters from number *first* on, one array for each column."""
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types.values(), first))
    return f"unnest({arrays}) AS c ({', '.join(types)})"


def inserting(table: str, types: Mapping[str, str], where: str = "true") -> str:
    """A statement that adds rows to *table*."""
    columns = ", ".join(types)
    return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows_of(types)} WHERE {where}"


def updating(
    table: str, key: str, types: Mapping[str, str], first: int = 1, always: str = "", where: str = "true"
) -> str:
    """A statement that changes the rows of *table* with this *key*, which is the last column."""
    rows = rows_of({**types, key: "bigint"}, first)
    return f"UPDATE {table} AS t SET {set_to(types)}{always} FROM {rows} WHERE t.{key} = c.{key} AND {where}"


def with_handlers(types: Mapping[str, str], statement: str) -> str:
    """A *statement* that writes states, with the table `used` of those of their handlers that are still there.

    They are locked, so that nobody forgets them meanwhile.
    """
    numbers = f"${[*types].index('handler') + 1}::bigint[]"
    used = f"SELECT number FROM handler WHERE number = ANY({numbers}) FOR KEY SHARE"
    return f"WITH used AS MATERIALIZED ({used}) {statement}"


def set_to(names: Iterable[str]) -> str:
    """What columns are set to: those of `c` that have the same names."""
    return ", ".join(f"{name} = c.{name}" for name in names)


LAST_RANK: Final = len(Priority) - 1
RANKS: Final = "unnest(ARRAY[{}]::bigint[])".format(", ".join(str(priority.rank) for priority in Priority))

NAMED: Final = "j.namespace = $1 AND j.id = $2 AND j.removed_at IS NULL"
# A job whose state is missing is found, too: it cannot be read, and is shown.
SELECT_BOTH: Final = f"""
    SELECT j.uid, s.revision, s.updated_at, {STATE_COLUMNS}, {SPEC}
      FROM job j LEFT JOIN state s USING (uid)
"""
FIND_JOB: Final = f"{SELECT_BOTH} WHERE {NAMED}"


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
LOCK_JOBS: Final = locking(
    "(j.namespace, j.id) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND j.removed_at IS NULL"
)
LOCK_STATES: Final = f"{SELECT_STATE}, s.run FROM state s WHERE s.uid = ANY($1::bigint[]) ORDER BY s.uid FOR UPDATE"
SELECT_STATES: Final = f"{SELECT_STATE} FROM state s WHERE s.uid = ANY($1::bigint[])"
SELECT_SPECS: Final = f"SELECT {SPEC} FROM job j WHERE j.uid = ANY($1::bigint[])"
NEW_NUMBERS: Final = "SELECT array_agg(nextval('job_uid')) FROM generate_series(1, $1::int)"
NEW_RUN: Final = "SELECT nextval('run_id')"
FIND_HANDLERS: Final = "SELECT name, number FROM handler WHERE name = ANY($1::text[])"
ADD_HANDLERS: Final = "INSERT INTO handler (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING"
UNUSED: Final = "NOT EXISTS (SELECT FROM job WHERE job.handler = h.name AND job.removed_at IS NULL)"
# In two statements: the second sees whatever was added before the first had its locks.
LOCK_UNUSED_HANDLERS: Final = f"""
    SELECT number FROM handler h WHERE name = ANY($1::text[]) AND {UNUSED} FOR UPDATE SKIP LOCKED
"""
FORGET_HANDLERS: Final = f"DELETE FROM handler h WHERE number = ANY($1::bigint[]) AND {UNUSED}"

INSERT_JOBS: Final = inserting("job", {"uid": "bigint", **SPEC_TYPES})
# A condition that the planner makes no join of: rows are written in the order they are given.
IS_USED: Final = "(c.handler IN (SELECT number FROM used)) IS TRUE"
NEW_TYPES: Final = {"uid": "bigint", **NARROW_TYPES}
INSERT_STATES: Final = with_handlers(NEW_TYPES, inserting("state", NEW_TYPES, where=IS_USED))
UPDATE_JOBS: Final = updating("job", "uid", SPEC_TYPES)
TOUCH_JOBS: Final = updating("job", "uid", {"updated_at": "bigint"})
UPDATE_STATES: Final = with_handlers(
    NARROW_TYPES, updating("state", "uid", NARROW_TYPES, always=", touched = true", where=IS_USED)
)
UPDATE_ONLY_STATES: Final = updating("state", "uid", STATE_TYPES, always=", touched = true")
NOTIFY: Final = "SELECT pg_notify($1, $2)"

REMOVE: Final = """
    WITH runs AS (DELETE FROM run WHERE uid = ANY($1::bigint[]) RETURNING id),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM runs)),
         states AS (DELETE FROM state WHERE uid = ANY($1::bigint[]))
  DELETE FROM job WHERE uid = ANY($1::bigint[])
"""

DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"

# The same about a row that is known by its number. Were it written the same way, the index of what is due would seem
# to be a way to it, and in a table that was empty when the planner looked, as good as any.
STILL_DUE: Final = "s.phase || '' = 'active' AND s.activity || '' = 'idle'"


def due_of(handlers: str, columns: str, condition: str, limit: str) -> str:
    """For each of these *handlers* and each priority, the first jobs that wait: one look at the index each."""
    return f"""
        {handlers}
        CROSS JOIN {RANKS} AS r (rank)
        CROSS JOIN LATERAL (SELECT {columns}
                              FROM state s
                             WHERE {DUE} AND s.handler = h.number AND s.rank = r.rank AND {condition}
                          ORDER BY s.next_run_at
                             LIMIT {limit}) AS d
    """


KNOWN: Final = "(SELECT number FROM handler WHERE $2::text[] IS NULL OR name = ANY($2)) AS h"
MISSING: Final = "(SELECT number FROM handler WHERE name <> ALL($2)) AS h"
IN_LINE: Final = "s.uid, s.rank, s.last_run_at, s.id, s.group_key"


def newly_due(left_alone: str) -> str:
    """The condition that a job is due and was not looked at in vain, as those were whose numbers are *left_alone*."""
    return f"s.next_run_at <= $3 AND s.uid <> ALL({left_alone}::bigint[])"


def claim_due(candidates: str) -> str:
    """The claim: whose it is, when the next comes due, who waits for a handler, and the rows that are ours now.

    Each row is locked by itself, in the order of the line: a plain join would leave it to the planner where to begin.

    $1 is the node, $2 the handlers, $3 the time, $4 the limit, $5 how many of each handler and priority are looked at,
    $6 how many are counted of those that come due next, and without limits of groups $7 who was looked at in vain.
    """
    missing = due_of(MISSING, "s.uid", "s.next_run_at <= $3", "1")
    to_come = due_of("handler AS h", "s.next_run_at", f"s.next_run_at > $3 AND s.next_run_at <= {LAST}", "1")
    with_it = due_of("handler AS h", "s.next_run_at", "s.next_run_at = (SELECT at FROM next)", "$6::bigint")
    return f"""
        WITH me AS MATERIALIZED (SELECT name FROM node WHERE number = $1 FOR KEY SHARE),
             line AS MATERIALIZED ({candidates}),
             taken AS MATERIALIZED (
                 SELECT s.*, c.rank AS "1", c.last_run_at AS "2", c.id AS "3"
                   FROM (SELECT * FROM line WHERE fits ORDER BY rank, last_run_at NULLS FIRST, id) AS c
             CROSS JOIN LATERAL ({SELECT_STATE}
                                   FROM state s
                                  WHERE s.uid = c.uid AND {STILL_DUE} AND s.next_run_at <= $3
                                    FOR UPDATE SKIP LOCKED) AS s
                  WHERE EXISTS (SELECT FROM me)
                  LIMIT $4),
             next AS MATERIALIZED (SELECT min(d.next_run_at) AS at FROM {to_come})
      SELECT known.*, CASE WHEN t.uid IS NOT NULL THEN nextval('run_id') END, t.*
        FROM (SELECT (SELECT name FROM me) AS node,
                     (SELECT at FROM next) AS next_due,
                     (SELECT least(count(*), $6) FROM {with_it}) AS next_count,
                     ARRAY(SELECT d.uid FROM {missing} LIMIT {MOST_UNHANDLED}) AS unhandled,
                     (SELECT count(*) FROM line WHERE fits) AS waiting,
                     (SELECT count(*) FROM line) AS seen) AS known
   LEFT JOIN taken AS t ON true
    ORDER BY t."1", t."2" NULLS FIRST, t."3"
    """


CLAIM_DUE: Final = claim_due(
    f"SELECT d.*, true AS fits FROM {due_of(KNOWN, IN_LINE, newly_due('$7'), '$5')}"  # whatever their groups
)
# The name of a group, which stands behind the namespace in its key.
GROUP_NAME: Final = "substr({0}.group_key, strpos({0}.group_key, chr(10)) + 1)"
NOT_FULL: Final = "({0}.group_key IS NULL OR {0}.group_key <> ALL({1}::text[]) AND {name} <> ALL({2}::text[]))"


def not_full(row: str, keys: str, names: str) -> str:
    """The condition that a *row* is not of a group with one of these *keys* or *names*, which are full."""
    return NOT_FULL.format(row, keys, names, name=GROUP_NAME.format(row))


IN_ORDER: Final = "{0}.rank, {0}.last_run_at NULLS FIRST, {0}.id, {0}.uid"
# $7 are the keys of groups that have runs, $8 how many more of them may run (none is any number); $9 are the names of
# groups with a limit, $10 their limits, and $11 that of all other groups; $12 and $13 are groups that are full, and $14
# who was looked at in vain.
FITTING: Final = f"""
    SELECT d.*, d.group_key IS NULL OR row_number() OVER (PARTITION BY d.group_key ORDER BY {IN_ORDER.format("d")})
                <= coalesce(CASE WHEN u.key IS NULL THEN coalesce(l.most, $11) ELSE u.room END,
                            9223372036854775807) AS fits
      FROM {due_of(KNOWN, IN_LINE, f"{newly_due('$14')} AND {not_full('s', '$12', '$13')}", "$5")}
 LEFT JOIN unnest($7::text[], $8::bigint[]) AS u (key, room) ON u.key = d.group_key
 LEFT JOIN unnest($9::text[], $10::bigint[]) AS l (name, most) ON l.name = {GROUP_NAME.format("d")}
"""
CLAIM_DUE_IN_GROUPS: Final = claim_due(FITTING)
# $15 are the names of groups with a limit across all namespaces, $16 how many more of them may run.
CLAIM_DUE_IN_SHARED_GROUPS: Final = claim_due(
    f"""
    SELECT f.uid, f.rank, f.last_run_at, f.id, f.group_key,
           f.fits AND (e.name IS NULL
                       OR count(*) FILTER (WHERE f.fits) OVER (PARTITION BY e.name ORDER BY {IN_ORDER.format("f")})
                          <= e.room) AS fits
      FROM ({FITTING}) AS f
 LEFT JOIN unnest($15::text[], $16::bigint[]) AS e (name, room) ON e.name = {GROUP_NAME.format("f")}
    """
)
COUNT_DUE: Final = (
    f"SELECT least(count(*), $2) FROM {due_of('handler AS h', 's.uid', 's.next_run_at <= $1', '$2::bigint')}"
)
# Of each handler no more than some are looked at: all of a full group may be due, and this is asked often.
EARLIEST_DUE: Final = f"""
    SELECT min(d.next_run_at)
      FROM {due_of(KNOWN, "s.next_run_at, s.group_key", "s.next_run_at <= $1 AND s.uid <> ALL($5::bigint[])", "100")}
     WHERE {not_full("d", "$3", "$4")}
"""
# Which numbers of handlers jobs wait under, one look at the index for each; whose number that is; the handler of the
# first of those jobs, which should be the same; and whether a job has a rank that is not looked at.
HANDLERS_IN_USE: Final = f"""
    WITH RECURSIVE used (number) AS (
        (SELECT s.handler FROM state s WHERE {DUE} ORDER BY s.handler LIMIT 1)
     UNION ALL
        SELECT (SELECT s.handler FROM state s WHERE {DUE} AND s.handler > used.number ORDER BY s.handler LIMIT 1)
          FROM used
         WHERE used.number IS NOT NULL)
    SELECT number,
           (SELECT name FROM handler WHERE handler.number = used.number),
           (SELECT j.handler FROM state s JOIN job j USING (uid) WHERE {DUE} AND s.handler = used.number LIMIT 1),
           EXISTS (SELECT FROM state s WHERE {DUE} AND s.handler = used.number AND s.rank < 0)
           OR EXISTS (SELECT FROM state s WHERE {DUE} AND s.handler = used.number AND s.rank > {LAST_RANK})
      FROM used
     WHERE number IS NOT NULL
"""
HANDLERS_UNDER: Final = "SELECT DISTINCT j.handler FROM state s JOIN job j USING (uid) WHERE s.handler = $1"
MOVE_TO_HANDLER: Final = f"""
    UPDATE state
       SET handler = h.number,
           rank = CASE WHEN state.rank BETWEEN 0 AND {LAST_RANK} THEN state.rank ELSE {Priority.STANDARD.rank} END
      FROM job j JOIN handler h ON h.name = j.handler
     WHERE state.handler = $1 AND j.uid = state.uid
"""
RUNNING_BY_GROUP: Final = """
    SELECT group_key, count(*)
      FROM state
     WHERE activity <> 'idle' AND activity IN ('queued', 'running') AND group_key IS NOT NULL
  GROUP BY group_key
"""
CLAIM_TYPES: Final = {
    **dict.fromkeys(("uid", "run", "scheduled_for", "attempt"), "bigint"),
    "trigger": "text",
    "activity": "text",
    **dict.fromkeys(("next_run_at", "retry_of", "attempts", "regular_at", "retry_count", "last_run_at"), "bigint"),
}
CLAIMED: Final = ("activity", "next_run_at", "retry_of", "attempts", "regular_at", "retry_count", "last_run_at", "run")
# $1 is the number of the node, $2 its name; the rest are the claims, each as of the last run of its job. Who shares the
# store hears of claims and endings by a counter, which nobody has to wait for.
WRITE_CLAIMS: Final = f"""
    WITH c AS MATERIALIZED (SELECT * FROM {rows_of(CLAIM_TYPES, first=3)}),
         states AS (UPDATE state AS t SET {set_to(CLAIMED)}, node = $1, touched = false
                      FROM c
                     WHERE t.uid = c.uid),
         runs AS (INSERT INTO run (id, uid, scheduled_for, attempt, trigger, claimed_at, started_at, node)
                  SELECT run, uid, scheduled_for, attempt, trigger, last_run_at,
                         CASE WHEN activity = 'running' THEN last_run_at END, $2
                    FROM c
                      ON CONFLICT DO NOTHING
               RETURNING id)
    SELECT nextval('activity'), array_agg(id) FROM runs
"""
SKIP_TYPES: Final = {
    **dict.fromkeys(("uid", "scheduled_for", "claimed_at", "finished_at"), "bigint"),
    "reason": "text",
    "missed": "bigint",
}
INSERT_SKIPS: Final = f"""
    INSERT INTO run ({", ".join(SKIP_TYPES)}, attempt, trigger, outcome)
    SELECT {", ".join(SKIP_TYPES)}, 0, 'schedule', 'skipped' FROM {rows_of(SKIP_TYPES)}
"""
FREE_TYPES: Final = {**STATE_TYPES, "run": "bigint", "node": "bigint"}
FREE: Final = updating("state", "uid", FREE_TYPES)
ENDING_TYPES: Final = {
    **dict.fromkeys(("started_at", "finished_at"), "bigint"),
    **dict.fromkeys(("outcome", "reason", "error", "message"), "text"),
    "exit_code": "bigint",
}
FINISH: Final = f"""
    WITH states AS ({FREE}),
         runs AS ({updating("run", "id", ENDING_TYPES, first=len(FREE_TYPES) + 2)})
    SELECT nextval('activity')
"""
# The same, of runs whose jobs nobody has changed while they ran: they know what their jobs are.
UNTOUCHED_TYPES: Final = {**STATE_TYPES, **ENDING_TYPES, "uid": "bigint", "run": "bigint"}
UNTOUCHED: Final = f"""
    WITH states AS (UPDATE state AS t SET {set_to(STATE_TYPES)}, run = NULL, node = NULL
                      FROM {rows_of(UNTOUCHED_TYPES)}
                     WHERE t.uid = c.uid AND t.run = c.run AND NOT t.touched
                 RETURNING c.run, {", ".join(f"c.{name}" for name in ENDING_TYPES)}),
         runs AS (UPDATE run AS t SET {set_to(ENDING_TYPES)} FROM states AS c WHERE t.id = c.run)
"""
FINISH_UNTOUCHED: Final = f"{UNTOUCHED} SELECT nextval('activity'), array_agg(run) FROM states"
# All of them or none: the last parameter is how many there are, and a statement that fails changes nothing.
FINISH_AT_ONCE: Final = f"""
    {UNTOUCHED}
    SELECT 1 / (count(*) = ${len(UNTOUCHED_TYPES) + 1}::bigint)::int, nextval('activity') FROM states
"""
SELECT_ENDINGS: Final = "SELECT id, finished_at, outcome FROM run WHERE id = ANY($1::bigint[])"
INSERT_OUTPUTS: Final = f"""
    {inserting("output", {"run": "bigint", "text": "text"})}
        ON CONFLICT (run) DO UPDATE SET text = excluded.text
"""
START: Final = """
    WITH states AS (UPDATE state SET activity = 'running' WHERE uid = ANY($1::bigint[])),
         runs AS (UPDATE run SET started_at = $3 WHERE id = ANY($2::bigint[]))
    SELECT nextval('activity')
"""
# Their own rows, and those of the occurrences that the claims left out.
DELETE_RUNS: Final = """
    DELETE FROM run r
     USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS c (uid, id, claimed_at)
     WHERE r.uid = c.uid AND (r.id = c.id OR (r.id > c.id AND r.attempt = 0 AND r.claimed_at = c.claimed_at))
"""
HELD: Final = "s.activity <> 'idle' AND (s.node = $1 OR ($1 = 0 AND s.node IS NULL))"
SELECT_HELD: Final = f"{SELECT_STATE} FROM state s WHERE {HELD}"
LOCK_HELD: Final = f"{SELECT_STATE}, s.run FROM state s WHERE {HELD} ORDER BY s.uid FOR UPDATE"
SELECT_ATTEMPTS: Final = """
    SELECT r.id, r.scheduled_for, r.attempt, r.trigger, r.claimed_at, r.started_at
      FROM run r JOIN state s ON s.uid = r.uid AND s.run = r.id
     WHERE r.id = ANY($1::bigint[]) AND r.outcome IS NULL
"""
SELECT_RUNS: Final = """
    SELECT r.id, j.id, j.namespace, r.scheduled_for, r.started_at, r.finished_at, r.attempt, r.trigger, r.outcome,
           r.reason, r.missed, r.error, r.message, r.exit_code, r.node
      FROM run r JOIN job j USING (uid)
"""
OVERGROWN: Final = """
    SELECT c.uid
      FROM unnest($1::bigint[]) AS c (uid)
     WHERE EXISTS (SELECT FROM run WHERE uid = c.uid OFFSET $2)
"""
# What ran before the clock went back is kept until its time has come once more: it must not be run again then.
# And up to where rows are missing that would say what ran, is noted.
PURGE_RUNS: Final = f"""
    WITH old AS (DELETE FROM run r
                  USING (SELECT c.uid, (SELECT id FROM run WHERE uid = c.uid ORDER BY id DESC LIMIT 1 OFFSET $2) AS last
                           FROM unnest($1::bigint[]) AS c (uid)) AS c
                  WHERE r.uid = c.uid AND r.id <= c.last AND r.outcome IS NOT NULL AND r.scheduled_for <= $3
              RETURNING r.id, r.uid, r.scheduled_for, r.attempt, r.trigger),
         outputs AS (DELETE FROM output WHERE run IN (SELECT id FROM old))
    UPDATE state
       SET touched = true, forgotten_until = greatest(forgotten_until, gone.at)
      FROM (SELECT uid, max(scheduled_for) AS at
              FROM old
             WHERE attempt > 0 AND trigger <> 'manual' AND scheduled_for >= {FIRST}
          GROUP BY uid) AS gone
     WHERE state.uid = gone.uid
"""
LATEST_RUN: Final = """
    SELECT max(scheduled_for)
      FROM run
     WHERE uid = $1 AND scheduled_for <= $2 AND attempt > 0 AND trigger <> 'manual'
"""
REVIEW: Final = f"""
    {SELECT_STATE}
      FROM state s
     WHERE s.uid > $1 AND s.next_run_at > $2 AND s.phase <> 'disabled'
  ORDER BY s.uid
     LIMIT $3
       FOR UPDATE
"""
LOCK_WITHOUT_USER: Final = f"""
    {SELECT_STATE}
      FROM job j JOIN state s USING (uid)
     WHERE j.user_id IS NULL AND s.phase <> 'disabled'
  ORDER BY s.uid
       FOR UPDATE OF s
"""
ARE_REMOVED: Final = "SELECT EXISTS (SELECT FROM job WHERE uid = ANY($1::bigint[]) AND removed_at IS NOT NULL)"
DISABLE: Final = """
    UPDATE state
       SET phase = 'disabled', disabled_reason = $2, disabled_at = $3, next_run_at = NULL, regular_at = NULL,
           touched = true
     WHERE uid = ANY($1::bigint[])
"""
CANCEL_RUN: Final = """
    UPDATE run SET outcome = 'cancelled', finished_at = $2, error = $3 WHERE id = $1 AND uid = $4 AND outcome IS NULL
"""
# Only its runs keep a removed job: what it was for is nobody's business any more.
REMOVE_JOB: Final = "UPDATE job SET removed_at = $2, payload = 'null', metadata = '{}' WHERE uid = $1"
FORGET_UNRUN: Final = """
    DELETE FROM job WHERE uid = ANY($1::bigint[]) AND NOT EXISTS (SELECT FROM run WHERE run.uid = job.uid)
"""
DELETE_STATES: Final = """
    DELETE FROM state
     WHERE uid = ANY($1::bigint[])
       AND EXISTS (SELECT FROM job WHERE job.uid = state.uid AND job.removed_at IS NOT NULL)
 RETURNING uid
"""
# Those of which a run goes on are left for the next time.
LOCK_REMOVED: Final = """
    SELECT uid
      FROM job
     WHERE removed_at < $1 AND NOT EXISTS (SELECT FROM state WHERE state.uid = job.uid)
  ORDER BY removed_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""
LOCK_LONG_DISABLED: Final = f"""
    {SELECT_STATE}
      FROM state s
     WHERE s.phase = 'disabled' AND s.activity = 'idle' AND s.disabled_at < $1 AND s.uid <> ALL($3::bigint[])
  ORDER BY s.disabled_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
"""
JOIN: Final = """
    INSERT INTO node (name, host, pid, process_start, beat, beat_at, since)
    VALUES ($1, $2, $3, $4, 0, clock_timestamp(), $5)
 RETURNING number
"""
BEAT: Final = "UPDATE node SET beat = beat + 1, beat_at = clock_timestamp(), skew = $2 WHERE number = $1"
NODE_COLUMNS: Final = """
    number, name, host, pid, process_start, beat, since,
    CASE WHEN isfinite(beat_at) THEN extract(epoch FROM clock_timestamp() - beat_at)::float8 END
"""
SELECT_NODES: Final = f"SELECT {NODE_COLUMNS} FROM node"
SELECT_NODES_AT_WORK: Final = f"""
    SELECT {NODE_COLUMNS}, coalesce(skew, 0),
           (SELECT count(*) FROM state WHERE activity <> 'idle' AND state.node = node.number)
      FROM node
  ORDER BY since, number
"""
# Who has claims, one look at the index for each, and is not a node; 0 is a claim that names no node.
OWNERLESS: Final = """
    WITH RECURSIVE owner (number) AS (
        (SELECT node FROM state WHERE activity <> 'idle' AND node IS NOT NULL ORDER BY node LIMIT 1)
     UNION ALL
        SELECT (SELECT node FROM state WHERE activity <> 'idle' AND node > owner.number ORDER BY node LIMIT 1)
          FROM owner
         WHERE owner.number IS NOT NULL)
    SELECT number,
           (SELECT r.node
              FROM state s JOIN run r ON r.id = s.run
             WHERE s.activity <> 'idle' AND s.node = owner.number
             LIMIT 1)
      FROM owner
     WHERE number IS NOT NULL AND NOT EXISTS (SELECT FROM node WHERE node.number = owner.number)
 UNION ALL
    SELECT 0, NULL WHERE EXISTS (SELECT FROM state WHERE activity <> 'idle' AND node IS NULL)
"""
FORGET_NODE: Final = "DELETE FROM node WHERE number = $1 AND beat = $2"

# Descriptions that are remembered, so that a busy job is read from its JSON once.
REMEMBERED_SPECS = 4096

# Of each handler and priority so many are looked at to find out who goes first. Of more than that, the first are those
# who have been due for longest.
LEAST_WINDOW = 1000

# What somebody else holds for a moment is looked at again after this long.
SOON: Micros = SECOND // 20

# So many rows go into one statement: to put them together takes time on the event loop.
SLICE = 1000

# Jobs that are due and cannot be claimed are looked at again after this long; of no more than so many it is known.
LOOK_ANEW: Micros = MINUTE
MOST_LEFT_ALONE = 10_000

# One after another where groups have limits: who counts what runs must not be overtaken.
GROUP_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 7))"


class HandlersForgotten(Exception):  # noqa: N818 - it is a message to the store, never to a user
    """Another process has forgotten a handler that was known here: what is under way must begin anew."""


class Work:
    """The transactions themselves, and what is remembered between them. `PostgresStore` says what each is for."""

    def __init__(self, notify: Callable[[Micros | None, int], tuple[str, str]]) -> None:
        """*notify* says on which channel, and with which words, others are told that some are due at a moment."""
        self._notify = notify
        self._specs: Cache[tuple[int, int, int], Job] = Cache(REMEMBERED_SPECS, REMEMBERED_BYTES)
        self._handlers: Cache[str, int] = Cache(REMEMBERED_SPECS)
        self._left_alone: set[int] = set()  # jobs that are due and cannot be claimed, as far as they were looked at
        self._left_alone_since: Micros = 0
        self.unreadable_rows = UnreadableRows()
        self.counted = 0
        """How often we have counted our own activity."""

    # -------------------------------------------------------- jobs

    async def change(self, db: Connection, changes: Sequence[Change], now: Micros) -> list[Edit | None]:
        names = list(dict.fromkeys((change.namespace, change.id) for change in changes))
        rows = await db.fetch(LOCK_JOBS, *columns_of(names, 2))
        jobs = {(job.namespace, job.id): job for job in (await self._jobs(db, rows, None)).values()}
        numbers = iter(await db.fetchval(NEW_NUMBERS, len(names) - len(jobs)) if len(jobs) < len(names) else [])
        edits: list[Edit | None] = []
        added: dict[int, Job] = {}
        changed: dict[int, tuple[Job, Job]] = {}
        for change in changes:
            name = change.namespace, change.id
            edit = change.decide(jobs.get(name))
            if edit is not None and edit.kind is not None:
                job = edit.job
                if not job.uid:
                    job.take_number(next(numbers))
                if job.uid in added or name not in jobs:
                    added[job.uid] = job
                else:
                    before = changed[job.uid][0] if job.uid in changed else jobs[name]
                    changed[job.uid] = before, job
                jobs[name] = job
            if edit is not None and edit.job.spec.unreadable:
                edit = edit._replace(job=shown(edit.job, 0))
            edits.append(edit)
        await self._insert(db, list(added.values()))
        await self._update(db, list(changed.values()))
        await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits if edit is not None])
        if added or changed:
            await self._tell(db, [*added.values(), *(job for _, job in changed.values())])
        return edits

    async def review(
        self, db: Connection, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]
    ) -> int | None:
        rows = await db.fetch(REVIEW, after, now, limit)
        changed = [
            (before, job)
            for before in (await self._jobs(db, rows, now)).values()
            if not has_unreadable_state(before) and not before.spec.unreadable
            if (job := reviewed(before, decide)) is not None
        ]
        await self._update(db, changed)
        if changed:
            await self._tell(db, [job for _, job in changed])
        return rows[-1][0] if len(rows) == limit else None

    async def _insert(self, db: Connection, jobs: Sequence[Job]) -> None:
        numbers = await self._numbers_of(db, {job.handler for job in jobs})
        for some in _slices(jobs):
            await db.execute(INSERT_JOBS, *columns_of([(job.uid, *spec_values(job)) for job in some]))
            await self._write_states(db, INSERT_STATES, [(job.uid, *_narrow(job, numbers)) for job in some])

    async def _update(self, db: Connection, changed: Sequence[tuple[Job, Job]]) -> None:
        """Write jobs as they are now, given what they were before."""
        numbers = await self._numbers_of(db, {job.handler for _, job in changed if not job.spec.unreadable})
        for some in _slices(changed):
            described = []
            touched = []
            for before, job in some:
                refuse_unreadable_state(before)
                if job.revision == before.revision:  # only its state changes: what cannot be read here stays as it is
                    refuse_resuming_unreadable(before, job)
                    touched.append((job.updated, job.uid))
                else:
                    refuse_stand_ins(job)
                    described.append((*spec_values(job), job.uid))
            await write_rows(db, UPDATE_JOBS, described)
            await write_rows(db, TOUCH_JOBS, touched)
            readable = [job for _, job in some if not job.spec.unreadable]
            others = [job for _, job in some if job.spec.unreadable]  # what stands in for the rest is not stored
            await self._write_states(db, UPDATE_STATES, [(*_narrow(job, numbers), job.uid) for job in readable])
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(job.state), job.uid) for job in others])
        await self._forget_unused(db, {before.handler for before, job in changed if before.handler != job.handler})

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

    async def _tell(self, db: Connection, jobs: Iterable[Job]) -> None:
        await self._tell_of(db, [job.state for job in jobs])

    async def _tell_of(self, db: Connection, states: Iterable[JobState]) -> None:
        """Tell the others, once this is committed, when the first of these jobs may start."""
        due = [
            state.next_run_at
            for state in states
            if state.phase is Phase.ACTIVE and state.activity is Status.IDLE and state.next_run_at is not None
        ]
        first = min(due, default=None)
        await db.execute(NOTIFY, *self._notify(first, 0 if first is None else due.count(first)))

    async def remove(self, db: Connection, namespace: str, id: str, now: Micros, own_run: int | None) -> Job | None:
        job = await self._lock(db, namespace, id)
        if job is None:
            return None
        await db.execute(REMOVE_JOB, job.uid, now)
        run = await db.fetchval("SELECT run FROM state WHERE uid = $1", job.uid)
        if run is not None and run == own_run:
            await db.execute(DISABLE, [job.uid], REMOVED, now)
        else:
            await db.execute(CANCEL_RUN, run, now, REMOVED, job.uid)
            await self._bury(db, [job])
        await self._tell(db, [])
        return job

    async def _lock(self, db: Connection, namespace: str, id: str, now: Micros = 0) -> Job | None:
        jobs = await self._jobs(db, await db.fetch(LOCK_JOB, kept(namespace), kept(id)), now)
        return next(iter(jobs.values()), None)

    async def _bury(self, db: Connection, jobs: Sequence[Job]) -> set[int]:
        """Let those of *jobs* that were removed have no state any more, now that no run needs it.

        Return their numbers.
        """
        gone = {uid for (uid,) in await db.fetch(DELETE_STATES, [job.uid for job in jobs])}
        if gone:
            await db.execute(FORGET_UNRUN, list(gone))
            await self._forget_removed(db, [job for job in jobs if job.uid in gone])
        return gone

    async def purge_removed(self, db: Connection, before: Micros, limit: int) -> int:
        uids = [uid for (uid,) in await db.fetch(LOCK_REMOVED, before, limit)]
        if uids:
            await db.execute(REMOVE, uids)
        return len(uids)

    async def get(self, db: Connection, namespace: str, id: str) -> Job | None:
        row = await db.fetchrow(FIND_JOB, kept(namespace), kept(id))
        return None if row is None else self._described([row])[0]

    async def list_jobs(self, db: Connection, wanted: JobFilter) -> list[Job]:
        where = _Conditions()
        where.require("j.removed_at IS NULL")
        if wanted.status in (Status.QUEUED, Status.RUNNING):
            where.require("s.activity = {}", wanted.status.value)
        elif wanted.status is not None:
            phase = Phase.ACTIVE if wanted.status is Status.IDLE else Phase(wanted.status)
            where.require("s.activity = 'idle' AND s.phase = {}", phase.value)
        for column, value in (
            ("j.namespace", wanted.namespace),
            ("j.user_id", wanted.user_id),
            ("j.handler", wanted.handler),
            ("j.job_group", wanted.group),
            ("j.priority", None if wanted.priority is None else wanted.priority.value),
        ):
            if value is not None:
                where.require(f"{column} = {{}}", kept(value))
        if wanted.due_before is not None:
            where.require("s.phase = 'active' AND s.next_run_at < {}", wanted.due_before)
        rows = await db.fetch(
            f"{SELECT_BOTH} {where} ORDER BY s.next_run_at NULLS LAST, j.namespace, j.id LIMIT {where.next()}",
            *where.values,
            None if wanted.metadata else wanted.limit,
        )
        jobs = self._described(rows)
        if wanted.metadata:
            jobs = [job for job in jobs if has_metadata(job, wanted.metadata)][: wanted.limit]
        return jobs

    async def list_runs(self, db: Connection, wanted: RunFilter) -> list[RunRow]:
        where = _Conditions()
        if wanted.run is not None:
            where.require("r.id = {}", wanted.run)
        if wanted.id is not None and wanted.namespace is not None:
            named = kept(wanted.namespace), kept(wanted.id)
            exists = await db.fetchval(f"SELECT EXISTS (SELECT FROM job j WHERE {NAMED})", *named)
            which, is_removed = ("=", "IS NULL") if exists else ("IN", "IS NOT NULL")
            find = f"SELECT uid FROM job WHERE namespace = {{}} AND id = {{}} AND removed_at {is_removed}"
            where.require(f"r.uid {which} ({find})", *named)
        elif wanted.id is not None:
            where.require("j.id = {}", kept(wanted.id))
        elif wanted.namespace is not None:
            where.require("j.namespace = {}", kept(wanted.namespace))
        if wanted.outcome is not None:
            where.require("r.outcome = {}", wanted.outcome.value)
        if wanted.since is not None:
            where.require("r.claimed_at >= {}", wanted.since)
        rows = await db.fetch(
            f"{SELECT_RUNS} {where} ORDER BY r.id DESC LIMIT {where.next()}", *where.values, wanted.limit
        )
        return [self._run(row) for row in rows]

    async def output_of(self, db: Connection, run: int) -> str | None:
        return original(await db.fetchval("SELECT text FROM output WHERE run = $1", run))

    async def count_due(self, db: Connection, now: Micros, most: int) -> int:
        return int(await db.fetchval(COUNT_DUE, now, most))

    async def running_by_group(self, db: Connection) -> dict[str, int]:
        return dict(await db.fetch(RUNNING_BY_GROUP))

    # -------------------------------------------------------- runs

    async def claim_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Claims:
        until = now + terms.ahead
        if not 0 <= now - self._left_alone_since < LOOK_ANEW or len(self._left_alone) > MOST_LEFT_ALONE:
            self._left_alone, self._left_alone_since = set(), now
        rows = await self._take_due(db, until, terms)
        node, next_due, next_count, unhandled, waiting, seen = rows[0][:6]
        if node is None:
            raise NodeLost
        taken = [row for row in rows if row[7] is not None]
        run_ids = iter(sorted(row[6] for row in taken))
        slots = float("inf") if terms.slots is None else terms.slots
        runs: list[ClaimedRun] = []
        edits: list[Edit] = []
        skipped: list[tuple[Job, Sequence[Skip], Micros]] = []
        passed_over: list[Job] = []
        jobs = await self._jobs(db, [row[7 : 7 + WIDTH] for row in taken], now)
        claimable = [job for job in jobs.values() if can_be_claimed(job, terms.handlers)]
        left_alone = {row[7] for row in taken} - {job.uid for job in claimable}
        self._left_alone |= left_alone
        for job in claimable:
            activity = Status.RUNNING if len(runs) < slots else Status.QUEUED
            edit, attempt = claimed(job, now, terms.rules, activity)
            if attempt is None:
                passed_over.append(edit.job)
            else:
                runs.append(ClaimedRun.of(next(run_ids), edit.job, attempt, job.spec.payload_json, job.state))
            if edit.skips or edit.kind:
                edits.append(edit)
                skipped.append((edit.job, edit.skips, now if attempt is None else attempt.claimed_at))
        repeated: list[Job] = []
        if runs and len(written := await self._write_claims(db, runs, terms.node, node)) != len(runs):
            repeated = await self._go_on_from_repeated(db, [run for run in runs if run.id not in written], until)
            again = {job.uid for job in repeated}
            runs = [run for run in runs if run.id in written]
            edits = [edit for edit in edits if edit.job.uid not in again]
            skipped = [item for item in skipped if item[0].uid not in again]
            passed_over += repeated
        await write_rows(db, FREE, [_free(job) for job in passed_over])
        await self._write_skips(db, skipped)
        is_full = len(taken) >= terms.limit or bool(repeated) or bool(taken and seen >= _window(terms))
        others = [job for uid, job in jobs.items() if uid in left_alone and job.enabled]
        others += (await self._jobs(db, await db.fetch(SELECT_STATES, unhandled))).values() if unhandled else ()
        soon = now + SOON
        if not is_full and waiting > len(taken) and (next_due is None or soon < next_due):
            next_due, next_count = soon, 1  # somebody has them in hand, and may yet let go of them
        next_due, next_count = earliest_of(passed_over, next_due, next_count)
        return Claims(
            runs=runs,
            edits=edits,
            unhandled=others,
            is_full=is_full,
            next_due=next_due,
            next_count=next_count,
        )

    async def _take_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Sequence[Any]:
        """The first in line, up to the limit, none beyond the limit of its group."""
        handlers = None if terms.handlers is None else list(terms.handlers)
        values = terms.node, handlers, now, terms.limit, _window(terms), terms.count
        left_alone = list(self._left_alone)
        if not terms.limits_groups:
            rows: Sequence[Any] = await db.fetch(CLAIM_DUE, *values, left_alone)
            return rows
        await db.execute(GROUP_LOCK)  # before anything is counted: a statement sees what was there when it began
        rooms = terms.rooms(await self.running_by_group(db))
        within = *columns_of(rooms.in_use.items(), 2), *columns_of(rooms.own.items(), 2), rooms.limit, *rooms.full
        if not rooms.shared:
            rows = await db.fetch(CLAIM_DUE_IN_GROUPS, *values, *within, left_alone)
        else:
            shared = columns_of(rooms.shared.items(), 2)
            rows = await db.fetch(CLAIM_DUE_IN_SHARED_GROUPS, *values, *within, left_alone, *shared)
        return rows

    async def earliest_due(self, db: Connection, now: Micros, terms: ClaimTerms) -> Micros | None:
        rooms = terms.rooms(await self.running_by_group(db) if terms.limits_groups else {})
        handlers = None if terms.handlers is None else list(terms.handlers)
        at = await db.fetchval(EARLIEST_DUE, now, handlers, *rooms.full, list(self._left_alone))
        return None if at is None else int(at)

    async def _write_claims(self, db: Connection, runs: Sequence[ClaimedRun], node: int, name: str) -> set[int]:
        """Mark jobs as ours, and write the rows of their runs; return which rows are new."""
        _, written = await db.fetchrow(WRITE_CLAIMS, node, name, *columns_of([_claim(run) for run in runs]))
        self.counted += 1
        return set(written or ())

    async def _go_on_from_repeated(self, db: Connection, runs: Sequence[ClaimedRun], now: Micros) -> list[Job]:
        """Jobs whose occurrences ran before, as a clock that went back offers them, as they go on."""
        return [gone_on(run, await db.fetchval(LATEST_RUN, run.uid, now), now) for run in runs]

    async def claim_one(
        self,
        db: Connection,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        node: int,
        queued: bool,
    ) -> ClaimedRun | Job | None:
        name = await db.fetchval("SELECT name FROM node WHERE number = $1 FOR KEY SHARE", node)
        if name is None:
            raise NodeLost
        job = await self._lock(db, namespace, id, now)
        if job is None or job.state.activity is not Status.IDLE:
            return job
        refuse_unreadable_state(job)
        taken = claim_manually(job, now)
        assert taken.attempt is not None
        state = taken.state._replace(activity=Status.QUEUED if queued else Status.RUNNING)
        run = ClaimedRun.of(
            id=await db.fetchval(NEW_RUN),
            job=job.with_state(state),
            attempt=taken.attempt,
            payload_json=job.spec.payload_json if payload_json is None else payload_json,
            before=job.state,
        )
        await self._write_claims(db, [run], node, name)
        return run

    async def start(self, db: Connection, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        held = {row[WIDTH] for row in await db.fetch(LOCK_STATES, [run.uid for run in runs])}
        ours = {run.id: run.uid for run in runs if run.id in held}
        if ours:
            await db.execute(START, list(ours.values()), list(ours), now)
            self.counted += 1
        return set(ours)

    async def _claimed_by(self, db: Connection, runs: Iterable[ClaimedRun], now: Micros | None) -> dict[int, Job]:
        """The jobs of *runs* that are still claimed and whose states can be read, by the run that has claimed each."""
        rows = await db.fetch(LOCK_STATES, [run.uid for run in runs])
        jobs = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        return {row[WIDTH]: job for row in rows if (job := jobs.get(row[0])) and not has_unreadable_state(job)}

    async def release(self, db: Connection, runs: Sequence[ClaimedRun]) -> None:
        # As they are now: they may have been edited since they were claimed.
        jobs = await self._claimed_by(db, runs, None)
        ours = [run for run in runs if run.id in jobs]
        undone = [put_back(jobs[run.id], run) for run in ours]
        freed = [job for job, _, _ in undone]
        if freed:
            await db.execute(FREE, *columns_of([_free(job) for job in freed]))
            await self._bury(db, freed)
            await db.execute(DELETE_RUNS, *columns_of([(run.uid, run.id, run.claimed_at) for run in ours]))
            await self._write_skips(db, undone)
            await self._tell(db, freed)

    async def finish_at_once(
        self, db: Connection, ended: Sequence[EndedRun], rules: Rules
    ) -> list[Aftermath | None] | None:
        """Record endings by a single statement, outside of a transaction; None if there is more to write than that.

        It fails with a division by zero, and changes nothing, if one of the jobs was touched, taken over or removed.
        """
        if not ended or any(item.ending.output is not None for item in ended):
            return None
        left, rows = _endings(ended, rules)
        if any(one.skips for one in left.values()):
            return None
        await db.execute(FINISH_AT_ONCE, *columns_of(rows), len(rows))
        self.counted += 1
        return [left[item.run.id] for item in ended]

    async def finish(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> list[Aftermath | None]:
        if not ended:
            return []
        left, rows = _endings(ended, rules)
        _, found = await db.fetchrow(FINISH_UNTOUCHED, *columns_of(rows))
        self.counted += 1
        done = set(found or ())
        if len(done) < len(ended):
            left = {run: one for run, one in left.items() if run in done}
            left |= await self._finish_touched(db, [item for item in ended if item.run.id not in done], rules)
        ours = [item for item in ended if item.run.id in left]
        outputs = [(item.run.id, kept(item.ending.output)) for item in ours if item.ending.output is not None]
        await write_rows(db, INSERT_OUTPUTS, outputs)
        endings = ((left[item.run.id], item.finished_at) for item in ours)
        await self._write_skips(db, ((one.job, one.skips, at) for one, at in endings))
        if len(left) < len(ended):
            left |= await self._recorded_before(db, [item for item in ended if item.run.id not in left], rules)
        return [left.get(item.run.id) for item in ended]

    async def _recorded_before(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> dict[int, Aftermath]:
        """What was recorded the last time these endings were told, and only the answer was lost on its way."""
        found = {run: ending for run, *ending in await db.fetch(SELECT_ENDINGS, [item.run.id for item in ended])}
        return {
            item.run.id: aftermath(item, rules)
            for item in ended
            if found.get(item.run.id) == [item.finished_at, item.ending.outcome._value_]
        }

    async def _finish_touched(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> dict[int, Aftermath]:
        """Record endings of jobs that were edited, taken over or removed while they ran: each is looked at first."""
        now = max(item.finished_at for item in ended)
        jobs = await self._claimed_by(db, [item.run for item in ended], now)
        ours = [item for item in ended if item.run.id in jobs]
        if not ours:
            return {}
        left = {
            run.id: Aftermath.of(after(jobs[run.id], run, ending, started_at, finished_at, rules))
            for run, ending, started_at, finished_at in ours
        }
        await self._write_endings(db, [one.job for one in left.values()], ours)
        return left

    async def _write_endings(self, db: Connection, jobs: Sequence[Job], ended: Sequence[EndedRun]) -> None:
        states = columns_of([_free(job) for job in jobs], len(FREE_TYPES) + 1)
        await db.execute(FINISH, *states, *columns_of([_finish_run(item) for item in ended]))
        await self._bury(db, jobs)
        self.counted += 1

    async def _write_skips(self, db: Connection, skipped: Iterable[tuple[Job, Sequence[Skip], Micros]]) -> None:
        """Write the rows of what was left out, of which job, and when."""
        rows = [
            (job.uid, skip.scheduled_for, at, at, skip.reason._value_, skip.missed)
            for job, skips, at in skipped
            for skip in skips
        ]
        await write_rows(db, INSERT_SKIPS, rows)

    # -------------------------------------------------------- nodes

    async def join(self, db: Connection, identity: NodeIdentity, now: Micros) -> int:
        await self._put_handlers_right(db)
        values = identity.name, identity.host, identity.pid, identity.process_start, now
        return int(await db.fetchval(JOIN, *values))

    async def _put_handlers_right(self, db: Connection) -> None:
        """Let no job wait under the number of another handler than its own, should a row of the handlers be damaged."""
        for number, name, wanted, has_odd_rank in await db.fetch(HANDLERS_IN_USE):
            if (wanted is None or wanted == name) and not has_odd_rank:
                continue
            if wanted != name:
                problem = Unreadable("name", f"it is {quoted(name)} where jobs say {quoted(wanted)}")
                self.unreadable_rows.add("handler", number, problem)
            self._handlers.clear()
            await self._numbers_of(db, {name for (name,) in await db.fetch(HANDLERS_UNDER, number)})
            await db.execute(MOVE_TO_HANDLER, number)

    async def beat(self, db: Connection, node: int, skew: Micros | None) -> list[NodeRow]:
        if await db.execute(BEAT, node, skew) == "UPDATE 0":
            raise NodeLost
        nodes = [self._node(row) for row in await db.fetch(SELECT_NODES)]
        return nodes + [
            NodeRow.missing(*row) for row in await db.fetch(OWNERLESS) if await self._can_recover(db, row[0])
        ]

    async def _can_recover(self, db: Connection, owner: int) -> bool:
        """Whether `recover` would find anything to do about the claims of *owner*, which is not a node any more."""
        jobs = (await self._jobs(db, await db.fetch(SELECT_HELD, owner))).values()
        unreadable = [job.uid for job in jobs if has_unreadable_state(job)]
        return len(unreadable) < len(jobs) or bool(await db.fetchval(ARE_REMOVED, unreadable))

    async def nodes(self, db: Connection) -> list[NodeStatus]:
        return [
            NodeStatus(node=self._node(row[:8]), age=int((row[7] or 0) * SECOND), skew=row[8], running=row[9])
            for row in await db.fetch(SELECT_NODES_AT_WORK)
        ]

    async def held(self, db: Connection, node: int) -> set[int]:
        rows = await db.fetch("SELECT run FROM state WHERE activity <> 'idle' AND node = $1", node)
        return {run for (run,) in rows}

    async def leave(self, db: Connection, node: int) -> None:
        await db.execute("DELETE FROM node WHERE number = $1", node)

    async def recover(
        self, db: Connection, dead: Sequence[NodeRow], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        recovered: list[tuple[Edit, ClaimedRun]] = []
        for node in sorted(dead, key=lambda node: node.id):
            if await self._forget_node(db, node):
                problem = f"The process that ran it is gone ({node.identity.name})."
                recovered += await self._interrupt(db, node.id, set(), problem, now, rules)
        return recovered

    async def _forget_node(self, db: Connection, node: NodeRow) -> bool:
        """Whether *node* is dead and ours to bury: otherwise it lives, or another process was faster."""
        if node.is_missing:
            return await db.fetchval("SELECT 1 FROM node WHERE number = $1", node.id) is None
        return bool(await db.execute(FORGET_NODE, node.id, node.beat) == "DELETE 1")

    async def interrupt_unknown(
        self, db: Connection, node: int, known: set[int], now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        problem = "The store failed when it was claimed; it never began."
        return await self._interrupt(db, node, known, problem, now, rules)

    async def _interrupt(
        self, db: Connection, node: int, known: set[int], problem: str, now: Micros, rules: Rules
    ) -> list[tuple[Edit, ClaimedRun]]:
        """End all runs of *node* but the *known*, as interrupted."""
        rows = [row for row in await db.fetch(LOCK_HELD, node) if row[WIDTH] not in known]
        if not rows:
            return []
        attempts = {row[0]: tuple(row[1:]) for row in await db.fetch(SELECT_ATTEMPTS, [row[WIDTH] for row in rows])}
        interrupted = []
        endings = []
        ending = Ending(outcome=Outcome.INTERRUPTED, error=problem)
        found = await self._jobs(db, [row[:WIDTH] for row in rows], now)
        unreadable = [job for job in found.values() if has_unreadable_state(job)]
        buried = await self._bury(db, unreadable) if unreadable else set()
        for row in rows:
            job = found.get(row[0])
            if job is None or (has_unreadable_state(job) and job.uid not in buried):
                continue
            run_id = row[WIDTH] if row[WIDTH] in attempts else 0
            *told, started_at = attempts.get(run_id, (None,) * 5)
            tried = attempt_of(job, *told)
            run = ClaimedRun.of(id=run_id, job=job, attempt=tried, payload_json=job.spec.payload_json, before=job.state)
            at = noticed_at(now, tried.claimed_at)
            is_gone = job.uid in buried
            edit = Edit(job) if is_gone else after(job, run, ending, shown_moment(started_at), at, rules)
            interrupted.append((edit, run))
            endings.append(EndedRun(run=run, ending=ending, started_at=started_at, finished_at=at))
        if not interrupted:
            return []
        jobs = [edit.job for edit, _ in interrupted]
        await self._write_endings(db, [job for job in jobs if job.uid not in buried], endings)
        await self._write_skips(db, [(edit.job, edit.skips, now) for edit, _ in interrupted])
        await self._tell(db, jobs)
        return interrupted

    # -------------------------------------------------------- upkeep

    async def disable_without_user(self, db: Connection, reason: str, now: Micros) -> list[Job]:
        rows = await db.fetch(LOCK_WITHOUT_USER)
        found = [job for job in (await self._jobs(db, rows, None)).values() if not has_unreadable_state(job)]
        edits = [disabled_by(job, reason, now) for job in found]
        if edits:
            await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(edit.job.state), edit.job.uid) for edit in edits])
            await self._write_skips(db, [(edit.job, edit.skips, now) for edit in edits])
            await self._tell(db, [])
        return [edit.job for edit in edits]

    async def overgrown(self, db: Connection, uids: Sequence[int], keep: int) -> list[int]:
        return [row[0] for row in await db.fetch(OVERGROWN, list(uids), keep)]

    async def purge_runs(self, db: Connection, uids: Sequence[int], keep: int, now: Micros) -> None:
        await db.execute(LOCK_STATES, list(uids))
        await db.execute(PURGE_RUNS, list(uids), keep, now)

    async def purge_disabled(self, db: Connection, before: Micros, limit: int) -> list[Job]:
        jobs: list[Job] = []
        unreadable: list[int] = []
        while rows := await db.fetch(LOCK_LONG_DISABLED, before, limit, unreadable):
            found = (await self._jobs(db, rows)).values()
            jobs = [job for job in found if not has_unreadable_state(job)]
            if jobs:
                break
            unreadable += [row[0] for row in rows]  # which hide no others
        if jobs:
            await db.execute(REMOVE, [job.uid for job in jobs])
            await self._forget_removed(db, jobs)
        return jobs

    # -------------------------------------------------------- rows and records

    async def _jobs(self, db: Connection, rows: Sequence[Sequence[Any]], now: Micros | None = 0) -> dict[int, Job]:
        """The jobs of these rows of state, by their numbers; a state that has no job is left out.

        Some of their descriptions are remembered. A job whose description cannot be read is shown as disabled as of
        *now*, or in its own state if that is None.
        """
        remembered = {row[0]: self._specs.get((row[0], row[1], row[2])) for row in rows}
        missing = [uid for uid, template in remembered.items() if template is None]
        found = {row[0]: row for row in await db.fetch(SELECT_SPECS, missing)} if missing else {}
        return self._read(rows, remembered, found, now)

    def _described(self, rows: Sequence[Sequence[Any]]) -> list[Job]:
        """The jobs of rows that have both, state and description."""
        remembered = {row[0]: self._specs.get((row[0], row[1], row[2])) for row in rows}
        return list(self._read(rows, remembered, {row[0]: row[WIDTH:] for row in rows}, 0).values())

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
            template = unreadable_job(described, problems_of(described), JobState())
        else:
            size = len(template.spec.payload_json) + len(template.spec.metadata_json)
            self._specs.put((uid, revision, updated_at), template, size)
        return template

    def _job(self, row: Sequence[Any], template: Job, now: Micros | None) -> Job:
        """One job. If it cannot be read (its zone is gone, its JSON broken) it is shown as `_jobs` says."""
        columns = state_columns(row[3:WIDTH])
        unsound = state_problem(columns)
        if unsound is not None:
            unsound = Unreadable("uid", "no row has this number") if row[1] is None else unsound
            self.unreadable_rows.add("state", row[0], unsound)
            return replace(template, state=unreadable_state(columns, unsound), unreadable_state=unsound)
        job = template.with_state(state_of(columns))
        return shown(job, now) if now is not None and job.spec.unreadable else job

    def _run(self, row: Sequence[Any]) -> RunRow:
        columns = list(row)
        columns[11], columns[12] = original(columns[11]), original(columns[12])
        run, problem = read_run(columns)
        if problem is not None:
            self.unreadable_rows.add("run", run.id, problem)
        return run

    def _node(self, row: Sequence[Any]) -> NodeRow:
        node, problem = read_node(row[:-1], row[-1])
        if problem is not None:
            self.unreadable_rows.add("node", node.id, problem)
        return node


class _Conditions:
    """What rows must fulfil, and the values of its parameters."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.values: list[object] = []

    def require(self, text: str, *values: object) -> None:
        """Add a condition; each {} in *text* stands for one of *values*."""
        numbers = []
        for value in values:
            numbers.append(self.next())
            self.values.append(value)
        self._texts.append(text.format(*numbers))

    def next(self) -> str:
        """The parameter behind all there are."""
        return f"${len(self.values) + 1}"

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self._texts)}" if self._texts else ""


# ---------------------------------------------------------------- values

# A text of PostgreSQL holds any character but one. This stands for it, and is no character itself.
ESCAPE: Final = "\uffff"
_escaped = re.compile(f"{ESCAPE}(.)", re.DOTALL)

_TEXTS: Final = tuple(JobState._fields.index(name) for name in STATE_TEXTS)


def kept(text: str) -> str:
    """*text* as PostgreSQL can keep it."""
    if "\0" in text or ESCAPE in text:
        text = text.replace(ESCAPE, ESCAPE * 2).replace("\0", f"{ESCAPE}0")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def original(text: str | None) -> str | None:
    """The text that was kept."""
    if text is None or ESCAPE not in text:
        return text
    return _escaped.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def _maybe_kept(text: str | None) -> str | None:
    return None if text is None else kept(text)


def columns_of(rows: Iterable[Sequence[Any]], width: int = 0) -> list[Sequence[Any]]:
    """Rows as columns: an array of each goes to PostgreSQL. *width* is how many there are if there are no rows.

    A column that is empty throughout, as many are, goes as an empty array: where one ends, `unnest` goes on with nulls.
    """
    return [() if column.count(None) == len(column) else column for column in zip(*rows, strict=True)] or [()] * width


def _slices(rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (rows[first : first + SLICE] for first in range(0, len(rows), SLICE))


async def write_rows(db: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Write *rows*, if there are any."""
    if rows:
        await db.execute(statement, *columns_of(rows))


def _window(terms: ClaimTerms) -> int:
    return max(LEAST_WINDOW, 2 * terms.limit)


def state_columns(values: Sequence[Any]) -> Row:
    """The columns of a state, as they were before they were kept."""
    columns = list(values)
    for number in _TEXTS:
        columns[number] = original(columns[number])
    return tuple(columns)


def stored_state(state: JobState) -> list[Any]:
    """The columns of a state."""
    columns = list(state_values(state))
    for number in _TEXTS:
        if columns[number] is not None:
            columns[number] = kept(columns[number])
    return columns


def _narrow(job: Job, handlers: Mapping[str, int]) -> tuple[Any, ...]:
    key = group_key(job.namespace, job.group)
    narrow = job.revision, job.updated, handlers[job.handler], job.priority.rank, job.id, key
    return (*narrow, *stored_state(job.state))


def _free(job: Job) -> tuple[Any, ...]:
    """The columns of `FREE`: no run holds the job any more."""
    return (*stored_state(job.state), None, None, job.uid)


def _claim(run: ClaimedRun) -> tuple[Any, ...]:
    """The columns of `CLAIM_TYPES`."""
    state = run.job.state
    return (
        run.uid,
        run.id,
        run.scheduled_for,
        run.number,
        run.trigger._value_,
        state.activity._value_,
        state.next_run_at,
        state.retry_of,
        state.attempts,
        state.regular_at,
        state.retry_count,
        state.last_run_at,
    )


def _endings(ended: Sequence[EndedRun], rules: Rules) -> tuple[dict[int, Aftermath], list[tuple[Any, ...]]]:
    """What becomes of jobs that nobody has touched, by their runs, and the rows that say so, by the jobs' numbers."""
    left: dict[int, Aftermath] = {}
    rows = []
    for item in sorted(ended, key=lambda item: item.run.uid):
        one = left[item.run.id] = aftermath(item, rules)
        rows.append((*stored_state(one.job.state), *_finish_run(item)[:-1], item.run.uid, item.run.id))
    return left, rows


def _finish_run(item: EndedRun) -> tuple[Any, ...]:
    ending = item.ending
    reason = SkipReason.INTERRUPTED._value_ if ending.outcome is Outcome.INTERRUPTED else None
    return (
        item.started_at,
        item.finished_at,
        ending.outcome._value_,
        reason,
        _maybe_kept(ending.error),
        _maybe_kept(ending.message),
        ending.exit_code,
        item.run.id,
    )
