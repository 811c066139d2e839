"""Jobs that run after others: links to their predecessors, and what the endings of those do to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.successors import Name, check_cycles, predecessor_of
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.copy_records import Ruling
from scheduler_async.stores.decisions import Woken, woken_by
from scheduler_async.stores.postgres.base import HELD, LOCK_STATES, UPDATE_ONLY_STATES, WIDTH, WorkBase
from scheduler_async.stores.postgres.bulk_writes import columns_of, inserting, write_rows
from scheduler_async.stores.postgres.texts import stored_state

if TYPE_CHECKING:
    from asyncpg import Connection

NAMES: Final = "unnest($1::text[], $2::text[]) AS n (namespace, id)"
SUCCESSORS_OF: Final = f"""
    SELECT x.uid, x.namespace, x.id
      FROM {NAMES} JOIN successor x ON x.namespace = n.namespace AND x.id = n.id
"""
# The jobs of a node, and those that run after them.
SUCCESSORS_OF_HELD: Final = f"""
    SELECT x.uid
      FROM state s JOIN job j ON j.uid = s.uid JOIN successor x ON x.namespace = j.namespace AND x.id = j.id
     WHERE {HELD}
 UNION ALL
    SELECT s.uid FROM state s WHERE {HELD}
"""
ARE_ANY: Final = "EXISTS (SELECT FROM successor)"
# Whether a job runs after one of those whose numbers are $1. Usually no job runs after another.
FOLLOWED: Final = f"""
    CASE WHEN {ARE_ANY}
         THEN EXISTS (SELECT
                        FROM unnest({{0}}::bigint[]) AS c (uid)
                        JOIN job j ON j.uid = c.uid
                        JOIN successor x ON x.namespace = j.namespace AND x.id = j.id)
         ELSE false
    END
"""
# All jobs that the given ones wait for, and those that these wait for, and so on.
CHAINS: Final = f"""
    WITH RECURSIVE chain (uid, namespace, id) AS (
        SELECT j.uid, j.namespace, j.id
          FROM {NAMES} JOIN job j ON j.namespace = n.namespace AND j.id = n.id AND j.removed_at IS NULL
     UNION
        SELECT j.uid, j.namespace, j.id
          FROM chain c
          JOIN successor x ON x.uid = c.uid
          JOIN job j ON j.namespace = x.namespace AND j.id = x.id AND j.removed_at IS NULL)
    SELECT c.namespace, c.id, x.namespace, x.id FROM chain c JOIN successor x ON x.uid = c.uid
"""
# One transaction at a time may link jobs: two of them could close a cycle together.
LINK_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 9))"
LINK_TYPES: Final = {"uid": "bigint", "namespace": "text", "id": "text"}
LINK: Final = f"""
    {inserting("successor", LINK_TYPES)}
        ON CONFLICT (uid) DO UPDATE SET namespace = excluded.namespace, id = excluded.id, run = NULL
"""
UNLINK: Final = "DELETE FROM successor WHERE uid = ANY($1::bigint[])"
NOTE_CAUSES: Final = """
    UPDATE successor x SET run = c.run FROM unnest($1::bigint[], $2::bigint[]) AS c (uid, run) WHERE x.uid = c.uid
"""
# The causes of runs, which are noted with their rows. $1 are their jobs, $2 their ids.
TAKE_CAUSES: Final = """
    UPDATE run r
       SET after_run = x.run
      FROM unnest($1::bigint[], $2::bigint[]) AS c (uid, id) JOIN successor x ON x.uid = c.uid
     WHERE r.id = c.id AND x.run IS NOT NULL
 RETURNING r.id, x.run
"""


class SuccessorWork(WorkBase):
    """Steps of the transactions that add, edit, claim and end jobs."""

    async def _check_links(self, db: Connection, jobs: Sequence[Job]) -> None:
        """Raise an error if *jobs* with new schedules would wait for each other, or for themselves."""
        links: dict[Name, Name | None] = {(job.namespace, job.id): predecessor_of(job) for job in jobs}
        check_cycles({**await self._chains(db, links.values()), **links}, links)

    async def _chains(self, db: Connection, names: Iterable[Name | None]) -> dict[Name, Name]:
        """Return the links of all jobs to which these *names* lead. Until the end, no other transaction changes any."""
        wanted = [name for name in names if name is not None]
        if not wanted:
            return {}
        await db.execute(LINK_LOCK)
        found = await db.fetch(CHAINS, *columns_of(wanted, 2))
        return {(row[0], row[1]): (row[2], row[3]) for row in found}

    async def _links_beyond(self, db: Connection, rulings: Sequence[Ruling]) -> dict[Name, Name]:
        """Return the links of all jobs to which those lead that a copy writes."""
        return await self._chains(db, [predecessor_of(ruling.job) for ruling in rulings if ruling.verdict.writes])

    async def _link(self, db: Connection, jobs: Sequence[Job]) -> None:
        """Write which jobs the given ones wait for, after their schedules have changed."""
        links = {job.uid: predecessor_of(job) for job in jobs}
        await write_rows(db, LINK, [(uid, *name) for uid, name in links.items() if name is not None])
        await self._unlink(db, [uid for uid, name in links.items() if name is None])

    async def _unlink(self, db: Connection, uids: Sequence[int]) -> None:
        if uids:
            await db.execute(UNLINK, uids)

    async def _lock_followed(self, db: Connection, ended: Sequence[EndedRun]) -> None:
        """Lock the jobs of these runs, and those that run after them, together: in the order of their numbers."""
        found = await self._successors_of(db, ended)
        if found:
            await db.execute(LOCK_STATES, [*{*found, *(item.run.uid for item in ended)}])

    async def _lock_held(self, db: Connection, node: int) -> None:
        """Lock the jobs that *node* has claimed, and those that run after them, together."""
        if await db.fetchval(f"SELECT {ARE_ANY}"):
            await db.execute(LOCK_STATES, [uid for (uid,) in await db.fetch(SUCCESSORS_OF_HELD, node)])

    async def _successors_of(self, db: Connection, ended: Sequence[EndedRun]) -> dict[int, Name]:
        """Return the jobs that run after those of *ended*, by number, with the names of the latter."""
        names = {item.run.name for item in ended}
        rows = await db.fetch(SUCCESSORS_OF, *columns_of(sorted(names), 2))
        return {row[0]: (row[1], row[2]) for row in rows}

    async def _wake_successors(self, db: Connection, ended: Sequence[EndedRun], rules: Rules) -> Sequence[Woken]:
        """Make jobs due that wait for these endings, and let other processes know. Usually there are none."""
        if not ended:
            return ()
        predecessors = await self._successors_of(db, ended)
        if not predecessors:
            return ()
        rows = await db.fetch(LOCK_STATES, list(predecessors))
        jobs = await self._jobs(db, [row[:WIDTH] for row in rows], None)
        waiting: dict[Name, list[Job]] = {}
        for uid, job in jobs.items():
            waiting.setdefault(predecessors[uid], []).append(job)
        woken = woken_by(ended, waiting, rules)
        changed = [one.change.job for one in woken if one.is_changed]
        await write_rows(db, UPDATE_ONLY_STATES, [(*stored_state(job.state), job.uid) for job in changed])
        causes = [(one.change.job.uid, one.run) for one in woken if not one.change.skips]
        await write_rows(db, NOTE_CAUSES, causes)
        await self._write_skips(db, [(one.change.job, one.change.skips, one.at) for one in woken])
        if changed:
            await self._tell(db, changed)
        return woken

    async def _with_causes(self, db: Connection, runs: list[ClaimedRun]) -> list[ClaimedRun]:
        """Return claimed *runs* with the runs that caused them, and note these with their rows."""
        following = [(run.uid, run.id) for run in runs if run.job.description.schedule.follows_runs]
        if not following:
            return runs
        causes: Mapping[int, int] = dict(await db.fetch(TAKE_CAUSES, *columns_of(following)))
        return [replace(run, after=causes[run.id]) if run.id in causes else run for run in runs]
