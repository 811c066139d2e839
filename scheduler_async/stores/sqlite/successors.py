"""Jobs that run after others: links to their predecessors, and what the endings of those do to them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.successors import Name, check_cycles, predecessor_of
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.codec import state_values
from scheduler_async.stores.copy_records import Ruling
from scheduler_async.stores.decisions import Woken, woken_by
from scheduler_async.stores.sqlite.base import SELECT_STATE, STATE_END, UPDATE_ONLY_STATE, WorkBase
from scheduler_async.stores.unreadable import is_count

ARE_ANY: Final = "SELECT 1 FROM successor LIMIT 1"
# The parameter is a list of names, each as a list of namespace and id.
SUCCESSORS_OF: Final = f"""
    {SELECT_STATE}, x.namespace, x.id
      FROM json_each(?) n
CROSS JOIN successor x INDEXED BY successor_of
        ON x.namespace = json_extract(n.value, '$[0]') AND x.id = json_extract(n.value, '$[1]')
CROSS JOIN state s ON s.uid = x.uid
"""
# All jobs that the given ones wait for, and those that these wait for, and so on.
CHAINS: Final = """
    WITH RECURSIVE chain (uid, namespace, id) AS (
        SELECT j.uid, j.namespace, j.id
          FROM json_each(?) n
    CROSS JOIN job j ON j.namespace = json_extract(n.value, '$[0]') AND j.id = json_extract(n.value, '$[1]')
           AND j.removed_at IS NULL
     UNION
        SELECT j.uid, j.namespace, j.id
          FROM chain c
    CROSS JOIN successor x ON x.uid = c.uid
    CROSS JOIN job j ON j.namespace = x.namespace AND j.id = x.id AND j.removed_at IS NULL)
    SELECT c.namespace, c.id, x.namespace, x.id FROM chain c JOIN successor x ON x.uid = c.uid
"""
LINK: Final = "INSERT OR REPLACE INTO successor (uid, namespace, id) VALUES (?, ?, ?)"
UNLINK: Final = "DELETE FROM successor WHERE uid = ?"
NOTE_CAUSE: Final = "UPDATE successor SET run = ? WHERE uid = ?"
CAUSES: Final = "SELECT uid, run FROM successor WHERE uid IN (SELECT value FROM json_each(?)) AND run IS NOT NULL"
SHOW_CAUSE: Final = "UPDATE run SET after_run = ? WHERE id = ?"


class SuccessorWork(WorkBase):
    """Steps of the transactions that add, edit, claim and end jobs."""

    def _check_links(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Raise an error if *jobs* with new schedules would wait for each other, or for themselves."""
        links: dict[Name, Name | None] = {(job.namespace, job.id): predecessor_of(job) for job in jobs}
        check_cycles({**self._chains(db, links.values()), **links}, links)

    def _chains(self, db: sqlite3.Connection, names: Iterable[Name | None]) -> dict[Name, Name]:
        """Return the links of all jobs to which these *names* lead."""
        wanted = [name for name in names if name is not None]
        found = db.execute(CHAINS, (json.dumps(wanted),)).fetchall() if wanted else ()
        return {row[:2]: row[2:] for row in found}

    def _links_beyond(self, db: sqlite3.Connection, rulings: Sequence[Ruling]) -> dict[Name, Name]:
        """Return the links of all jobs to which those lead that a copy writes."""
        return self._chains(db, [predecessor_of(ruling.job) for ruling in rulings if ruling.verdict.writes])

    def _link(self, db: sqlite3.Connection, jobs: Sequence[Job]) -> None:
        """Write which jobs the given ones wait for, after their schedules have changed."""
        links = {job.uid: predecessor_of(job) for job in jobs}
        db.executemany(LINK, [(uid, *name) for uid, name in links.items() if name is not None])
        db.executemany(UNLINK, [(uid,) for uid, name in links.items() if name is None])

    def _wake_successors(self, db: sqlite3.Connection, ended: Sequence[EndedRun], rules: Rules) -> Sequence[Woken]:
        """Make jobs due that wait for these endings. Usually there are none, which takes a few microseconds."""
        if not db.execute(ARE_ANY).fetchone():
            return ()
        names = json.dumps([*{item.run.name: None for item in ended}])
        rows = db.execute(SUCCESSORS_OF, (names,)).fetchall()
        if not rows:
            return ()
        jobs = self._jobs(db, [row[:STATE_END] for row in rows], None)
        waiting: dict[Name, list[Job]] = {}
        for row in rows:
            if row[0] in jobs:
                waiting.setdefault(row[STATE_END:], []).append(jobs[row[0]])
        woken = woken_by(ended, waiting, rules)
        changed = [one.change.job for one in woken if one.is_changed]
        UPDATE_ONLY_STATE.all(db, ((*state_values(job.state), job.uid) for job in changed))
        db.executemany(NOTE_CAUSE, [(one.run, one.change.job.uid) for one in woken if not one.change.skips])
        self._write_skips(db, [(one.change.job, one.change.skips, one.at) for one in woken])
        for job in changed:
            self._add_if_due(job)
        return woken

    def _with_causes(self, db: sqlite3.Connection, runs: list[ClaimedRun]) -> list[ClaimedRun]:
        """Return claimed *runs* with the runs that caused them, and note these with their rows."""
        following = [run for run in runs if run.job.description.schedule.follows_runs]
        if not following:
            return runs
        found = db.execute(CAUSES, (json.dumps([run.uid for run in following]),)).fetchall()
        causes: Mapping[int, int] = {uid: run for uid, run in found if is_count(run)}
        db.executemany(SHOW_CAUSE, [(causes[run.uid], run.id) for run in following if run.uid in causes])
        return [replace(run, after=causes[run.uid]) if run.uid in causes else run for run in runs]
