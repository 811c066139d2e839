"""The searches behind pages for operators, in the dialect of SQLite, on a connection that is cut off in time."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.paging.jobs import find_jobs
from scheduler_async.stores.paging.log import find_changes, find_runs, recent_runs, unusual_of_runs
from scheduler_async.stores.paging.numbers import count_jobs, find_mark, read_tally, sample_jobs
from scheduler_async.stores.paging.questions import Dialect, Question, Search, found_rows
from scheduler_async.stores.searches import ChangeSearch, Found, JobCounts, JobSearch, RunSearch, Tallied, TallySearch
from scheduler_async.stores.sqlite.base import EDITED
from scheduler_async.stores.sqlite.history import SELECT_CHANGES, HistoryWork, chained
from scheduler_async.stores.sqlite.run_log import FROM_RUNS, RunLogWork
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import Micros

# A page that takes longer is cut off, so that the following ones do not wait for it.
LONGEST: Final = 0.25  # seconds
# The time is looked at after so many steps of SQLite, which take less than a millisecond.
STEPS: Final = 10_000

T = TypeVar("T")

LAST_CHANGES: Final = "SELECT last_change FROM job WHERE uid IN ?ints AND last_change IS NOT NULL"
DIALECT: Final = Dialect(
    contains="{} LIKE ? ESCAPE '\\'",  # in ASCII letters of either case
    unusual=unusual_of_runs(),
    few_with_runs=0,
    runs_by_job=True,
    last_changes=f"""
        {chained(LAST_CHANGES)}
        SELECT number FROM chain WHERE number < ? LIMIT ?
    """,
    last_change="SELECT count(*), max(j.last_change) FROM job j WHERE j.uid IN ?ints",
    recent="""
        SELECT r.uid, r.id
          FROM ?ints AS u
    CROSS JOIN run r /*run_of_job*/ ON r.uid = u.value
           AND r.id >= coalesce((SELECT o.id FROM run o /*run_of_job*/ WHERE o.uid = u.value
                               ORDER BY o.id DESC LIMIT 1 OFFSET ? - 1), -9223372036854775808)
    """,
)

_NOTES = re.compile(r"/\*(\w+)\*/|\?(ints|texts|names)")
_LISTS: Final = {
    "ints": "(SELECT value FROM json_each(?))",
    "texts": "(SELECT value FROM json_each(?))",
    "names": "(SELECT json_extract(value, '$[0]') AS namespace, json_extract(value, '$[1]') AS id FROM json_each(?))",
}


@lru_cache(maxsize=512)
def in_sqlite(text: str) -> str:
    """Return the text of a question in the dialect of SQLite."""
    return _NOTES.sub(lambda note: f"INDEXED BY {note[1]}" if note[1] else _LISTS[note[2]], text)


def answered(db: sqlite3.Connection, search: Search[T]) -> T:
    """Ask the questions of a *search*, and return what it finds."""
    try:
        question = next(search)
        while True:
            question = search.send(_ask(db, question))
    except StopIteration as found:
        result: T = found.value
        return result


def _ask(db: sqlite3.Connection, question: Question) -> list[Any]:
    values = [json.dumps(value) if isinstance(value, list) else value for value in question.values]
    return db.execute(in_sqlite(question.text), values).fetchall()


def in_time(db: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    """Do *work* that reads. Interrupt it if it takes too long."""
    clock = SystemClock()
    end = clock.monotonic() + LONGEST
    db.set_progress_handler(lambda: clock.monotonic() > end, STEPS)
    try:
        return work(db, *args)
    finally:
        db.set_progress_handler(None, 0)


class PageWork(RunLogWork, HistoryWork):
    """The searches behind pages. For their purpose, see `Store`."""

    def jobs_page(self, db: sqlite3.Connection, wanted: JobSearch) -> Found[Job]:
        found = answered(db, find_jobs(wanted, DIALECT))
        return found_rows(found, self._jobs_by_number(db, [key[-1] for key in found.keys]))

    def _jobs_by_number(self, db: sqlite3.Connection, uids: Sequence[object]) -> dict[int, Job]:
        query = f"{EDITED} WHERE j.uid IN (SELECT value FROM json_each(?))"
        return self._jobs(db, db.execute(query, (json.dumps(uids),)).fetchall())

    def runs_page(self, db: sqlite3.Connection, wanted: RunSearch) -> Found[RunRow]:
        found = answered(db, find_runs(wanted, DIALECT))
        return found_rows(found, self._runs_by_number(db, [key[-1] for key in found.keys]))

    def _runs_by_number(self, db: sqlite3.Connection, numbers: Sequence[object]) -> dict[int, RunRow]:
        query = f"{FROM_RUNS} WHERE r.id IN (SELECT value FROM json_each(?))"
        return {row[0]: self._run(row) for row in db.execute(query, (json.dumps(numbers),))}

    def changes_page(self, db: sqlite3.Connection, wanted: ChangeSearch) -> Found[ChangeRow]:
        found = answered(db, find_changes(wanted, DIALECT))
        query = f"{SELECT_CHANGES} WHERE c.number IN (SELECT value FROM json_each(?))"
        rows = db.execute(query, (json.dumps([key[-1] for key in found.keys]),))
        return found_rows(found, {row[0]: self._change(row) for row in rows})

    def recent_runs(self, db: sqlite3.Connection, names: Sequence[tuple[str, str]], n: int) -> list[list[RunRow]]:
        found = answered(db, recent_runs(names, n, DIALECT))
        rows = self._runs_by_number(db, [number for of_job in found for number in of_job])
        return [[rows[number] for number in of_job if number in rows] for of_job in found]

    def count_jobs(self, db: sqlite3.Connection, namespaces: frozenset[str] | None, now: Micros) -> JobCounts:
        return answered(db, count_jobs(namespaces, now, DIALECT))

    def sample_jobs(
        self, db: sqlite3.Connection, namespaces: frozenset[str] | None, now: Micros, most: int
    ) -> tuple[list[Job], float]:
        uids, weight = answered(db, sample_jobs(namespaces, now, most, DIALECT))
        jobs = self._jobs_by_number(db, uids).values()
        return [job for job in jobs if namespaces is None or job.namespace in namespaces], weight

    def tally(self, db: sqlite3.Connection, wanted: TallySearch) -> Found[Tallied]:
        return answered(db, read_tally(wanted))

    def mark(self, db: sqlite3.Connection, namespaces: frozenset[str] | None, now: Micros) -> str:
        return answered(db, find_mark(namespaces, now, DIALECT))
