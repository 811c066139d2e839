"""The searches behind pages for operators, in the dialect of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scheduler_async.jobs.enums import Priority
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.paging.jobs import find_jobs
from scheduler_async.stores.paging.log import find_changes, find_runs, recent_runs
from scheduler_async.stores.paging.numbers import count_jobs, find_mark, read_tally, sample_jobs
from scheduler_async.stores.paging.questions import Dialect, Question, Search, found_rows
from scheduler_async.stores.postgres.history import SELECT_CHANGES, HistoryWork
from scheduler_async.stores.postgres.jobs import SELECT_BOTH, JobWork
from scheduler_async.stores.postgres.run_log import FROM_RUNS, RunLogWork
from scheduler_async.stores.postgres.texts import kept, original
from scheduler_async.stores.searches import ChangeSearch, Found, JobCounts, JobSearch, RunSearch, Tallied, TallySearch
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

# A page that takes longer is cut off, so that the following ones do not wait for it.
LONGEST: Final = 2.0  # seconds

# The indexes made for pages are used even if the statistics of the tables are outdated.
PAGE_PLANS: Final = {
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "default_transaction_read_only": "on",
    "statement_timeout": f"{LONGEST:g}s",
}

T = TypeVar("T")

DIALECT: Final = Dialect(
    contains="lower({} COLLATE \"C\") LIKE ? ESCAPE '\\'",
    ranks=tuple(range(len(Priority))),
    unusual="SELECT u.run FROM unusual u WHERE u.outcome = ? AND u.run < ? ORDER BY u.run DESC LIMIT ?",
    few_with_runs=50,
    runs_by_job=False,
    last_changes="""
        SELECT c.number
          FROM ?ints AS u
    CROSS JOIN LATERAL (SELECT c.number
                          FROM change c
                         WHERE c.uid = u.value AND c.number < ?
                      ORDER BY c.number DESC
                         LIMIT 2048) AS c
      ORDER BY c.number DESC
         LIMIT ?
    """,
    last_change="""
        SELECT count(*), max((SELECT max(c.number) FROM change c WHERE c.uid = u.value)) FROM ?ints AS u
    """,
    # There is no index on the runs of a job by their ids. Only runs of a backfill have another order.
    recent="""
        SELECT u.value, r.id
          FROM ?ints AS u
    CROSS JOIN LATERAL (SELECT r.id FROM run r WHERE r.uid = u.value ORDER BY r.scheduled_for DESC LIMIT ?) AS r
    """,
)


@lru_cache(maxsize=512)
def in_postgres(text: str) -> str:
    """Return the text of a question in the dialect of PostgreSQL."""
    first, *others = text.split("?")
    for number, part in enumerate(others, 1):
        if part.startswith("ints"):
            first += f"(SELECT unnest(${number}::bigint[]) AS value){part[4:]}"
        elif part.startswith("texts"):
            first += f"(SELECT unnest(${number}::text[]) AS value){part[5:]}"
        elif part.startswith("names"):
            pair = f"${number}::text[]"
            first += f"(SELECT ({pair})[i][1] AS namespace, ({pair})[i][2] AS id"
            first += f" FROM generate_subscripts({pair}, 1) AS i){part[5:]}"
        else:
            first += f"${number}{part}"
    return first


async def answered(db: Connection, search: Search[T]) -> T:
    """Ask the questions of a *search*, and return what it finds."""
    try:
        question = next(search)
        while True:
            question = search.send(await _ask(db, question))
    except StopIteration as found:
        result: T = found.value
        return result


async def _ask(db: Connection, question: Question) -> list[Any]:
    rows = await db.fetch(in_postgres(question.text), *map(_stored, question.values))
    return [[original(value) if isinstance(value, str) else value for value in row] for row in rows]


def _stored(value: object) -> object:
    if isinstance(value, list):
        return [_stored(one) for one in value]
    return kept(value) if isinstance(value, str) else value


class PageWork(JobWork, RunLogWork, HistoryWork):
    """The searches behind pages. For their purpose, see `Store`."""

    async def jobs_page(self, db: Connection, wanted: JobSearch) -> Found[Job]:
        found = await answered(db, find_jobs(wanted, DIALECT))
        return found_rows(found, await self._jobs_by_number(db, [key[-1] for key in found.keys]))

    async def _jobs_by_number(self, db: Connection, uids: Sequence[object]) -> dict[int, Job]:
        rows = await db.fetch(f"{SELECT_BOTH} WHERE j.uid = ANY($1::bigint[])", uids)
        return {job.uid: job for job in self._described(rows)}

    async def runs_page(self, db: Connection, wanted: RunSearch) -> Found[RunRow]:
        found = await answered(db, find_runs(wanted, DIALECT))
        return found_rows(found, await self._runs_by_number(db, [key[-1] for key in found.keys]))

    async def _runs_by_number(self, db: Connection, numbers: Sequence[object]) -> dict[int, RunRow]:
        rows = await db.fetch(f"{FROM_RUNS} WHERE r.id = ANY($1::bigint[])", numbers)
        return {row[0]: self._run(row) for row in rows}

    async def changes_page(self, db: Connection, wanted: ChangeSearch) -> Found[ChangeRow]:
        found = await answered(db, find_changes(wanted, DIALECT))
        rows = await db.fetch(f"{SELECT_CHANGES} WHERE c.number = ANY($1::bigint[])", [key[-1] for key in found.keys])
        return found_rows(found, {row[0]: self._change(row) for row in rows})

    async def recent_runs(self, db: Connection, names: Sequence[tuple[str, str]], n: int) -> list[list[RunRow]]:
        found = await answered(db, recent_runs(names, n, DIALECT))
        rows = await self._runs_by_number(db, [number for of_job in found for number in of_job])
        return [[rows[number] for number in of_job if number in rows] for of_job in found]

    async def count_jobs(self, db: Connection, namespaces: frozenset[str] | None, now: Micros) -> JobCounts:
        return await answered(db, count_jobs(namespaces, now, DIALECT))

    async def sample_jobs(
        self, db: Connection, namespaces: frozenset[str] | None, now: Micros, most: int
    ) -> tuple[list[Job], float]:
        uids, weight = await answered(db, sample_jobs(namespaces, now, most, DIALECT))
        jobs = (await self._jobs_by_number(db, uids)).values()
        return [job for job in jobs if namespaces is None or job.namespace in namespaces], weight

    async def tally(self, db: Connection, wanted: TallySearch) -> Found[Tallied]:
        return await answered(db, read_tally(wanted))

    async def mark(self, db: Connection, namespaces: frozenset[str] | None, now: Micros) -> str:
        return await answered(db, find_mark(namespaces, now, DIALECT))
