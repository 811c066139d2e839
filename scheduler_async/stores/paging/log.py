"""Where the runs and the changes of a page are found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from scheduler_async.stores.conditions import IS_UNUSUAL
from scheduler_async.stores.messages import USUAL_OUTCOMES
from scheduler_async.stores.paging.questions import (
    FEW_JOBS,
    FIRST_BLOCK,
    OF_CHANGES,
    OF_RUNS,
    Dialect,
    Merged,
    Question,
    Search,
    Slice,
    Stream,
    Terms,
    chosen,
    next_block,
)
from scheduler_async.stores.row_range import CHANGES, RUNS, RowRange, TimedRows
from scheduler_async.stores.searches import ChangeSearch, Position, RunSearch
from scheduler_async.stores.unreadable import shown_moment
from scheduler_async.timekeeping.instants import Micros

# Beyond all numbers.
HIGHEST: Final = 2**63 - 1


def find_runs(wanted: RunSearch, dialect: Dialect) -> Search[Slice]:
    """Return the positions of the *wanted* rows of the run log."""
    bounds = yield from _bounds(RUNS, wanted)
    if bounds is None:
        return Slice(keys=[])
    terms = Terms()
    for condition, value in (
        ("r.outcome = ?", None if wanted.outcome is None else wanted.outcome.value),
        ("r.trigger = ?", None if wanted.trigger is None else wanted.trigger.value),
        ("r.claimed_at >= ?", wanted.since),
        ("r.claimed_at <= ?", wanted.until),
    ):
        if value is not None:
            terms.require(condition, value)
    if wanted.outcome is not None and wanted.outcome not in USUAL_OUTCOMES and wanted.id is None:
        _require_namespaces(terms, wanted.namespaces)
        source = _Newest(RUNS, Question(dialect.unusual, (wanted.outcome.value,)), bounds)
        return (yield from chosen(source, terms, wanted.limit, OF_RUNS))
    uids = yield from _jobs_of(wanted, FEW_JOBS if dialect.runs_by_job else dialect.few_with_runs)
    if uids is None:
        _require_namespaces(terms, wanted.namespaces)
        everything = _Newest(RUNS, Question("SELECT r.id FROM run r WHERE r.id < ? ORDER BY r.id DESC LIMIT ?"), bounds)
        return (yield from chosen(everything, terms, wanted.limit, OF_RUNS))
    if not dialect.runs_by_job:
        of_jobs = "SELECT r.id FROM run r WHERE r.uid IN ?ints AND r.id + 0 < ? ORDER BY r.id + 0 DESC LIMIT ?"
        return (yield from chosen(_Newest(RUNS, Question(of_jobs, (uids,)), bounds), terms, wanted.limit, OF_RUNS))
    by_job = _ByJob((yield from _streams_of_runs(uids, bounds[1])), bounds[0])
    return (yield from chosen(by_job, terms, wanted.limit, OF_RUNS))


def find_changes(wanted: ChangeSearch, dialect: Dialect) -> Search[Slice]:
    """Return the positions of the *wanted* changes."""
    bounds = yield from _bounds(CHANGES, wanted)
    if bounds is None:
        return Slice(keys=[])
    terms = Terms()
    for condition, value in (("c.at >= ?", wanted.since), ("c.at <= ?", wanted.until)):
        if value is not None:
            terms.require(condition, value)
    uids = yield from _jobs_of(wanted, FEW_JOBS)
    if uids is not None:
        source = _Newest(CHANGES, Question(dialect.last_changes, (uids,)), bounds)
    else:
        _require_namespaces(terms, wanted.namespaces)
        question = "SELECT c.number FROM change c WHERE c.number < ? ORDER BY c.number DESC LIMIT ?"
        source = _Newest(CHANGES, Question(question), bounds)
    return (yield from chosen(source, terms, wanted.limit, OF_CHANGES))


def _require_namespaces(terms: Terms, namespaces: Iterable[str] | None) -> None:
    if namespaces is not None:
        terms.require("j.namespace IN ?texts", sorted(namespaces))


def row_range(rows: TimedRows, since: Micros | None, until: Micros | None) -> Search[RowRange | None]:
    """Return the numbers of *rows* of about a stretch of time. None if there are no rows."""
    table, number, at = rows.table, rows.number, rows.at
    (ends,) = yield Question(f"SELECT (SELECT min({number}) FROM {table}), (SELECT max({number}) FROM {table})")
    if ends[0] is None:
        return None
    found = RowRange(ends[0], ends[1], since, until, rows.disorder)
    while points := found.points():
        times = yield Question(
            f"""
            SELECT p.value, (SELECT r.{at} FROM {table} r WHERE r.{number} >= p.value ORDER BY r.{number} LIMIT 1)
              FROM ?ints AS p
            """,
            (points,),
        )
        found.learn({row[0]: row[1] for row in times})
    return found


def _bounds(rows: TimedRows, wanted: RunSearch | ChangeSearch) -> Search[tuple[int, int] | None]:
    """Return the first number to look at, and the one after the last. None if there are no rows."""
    first, end = -HIGHEST, HIGHEST
    if wanted.since is not None or wanted.until is not None:
        found = yield from row_range(rows, wanted.since, wanted.until)
        if found is None:
            return None
        first, end = found.first, min(found.last, HIGHEST - 1) + 1
    return first, end if wanted.after is None else min(end, int(wanted.after[0]))


def _jobs_of(wanted: RunSearch | ChangeSearch, most: int) -> Search[list[int] | None]:
    """Return the numbers of the jobs that are named, removed ones as well. None if they are more than *most*, or all.

    If a job has been added again under an id, the earlier one is not meant.
    """
    if wanted.namespaces is None:
        return None
    names = sorted(wanted.namespaces)
    found: list[int] = []
    for index, is_removed in (("job_name", "IS NULL"), ("job_removed_name", "IS NOT NULL")):
        if wanted.id is not None and found:
            break
        named = "" if wanted.id is None else " AND j.id = ?"
        values = () if wanted.id is None else (wanted.id,)
        rows = yield Question(
            f"SELECT j.uid FROM job j /*{index}*/"
            f" WHERE j.namespace IN ?texts AND j.removed_at {is_removed}{named} LIMIT ?",
            (names, *values, most + 1),
        )
        found += [row[0] for row in rows]
    return found if len(found) <= most or wanted.id is not None else None


class _Newest:
    """The rows of a table, newest first."""

    def __init__(self, rows: TimedRows, question: Question, bounds: tuple[int, int]) -> None:
        """*question* takes the number before which it looks and a limit as its last values."""
        self.looked_at = 0
        self._rows, self._question = rows, question
        self._first, self._end = bounds
        self._size = FIRST_BLOCK
        self._is_over = False
        self._at: Micros | None = None

    def more(self) -> Search[list[Position] | None]:
        """Return the following numbers."""
        if self._is_over:
            return None
        rows = yield Question(self._question.text, (*self._question.values, self._end, self._size))
        found: list[Position] = [(row[0], row[0]) for row in rows if row[0] >= self._first]
        self._is_over = len(found) < self._size
        self._size = next_block(self._size)
        self.looked_at += len(found)
        if found:
            self._end = int(found[-1][0])
            self._at = yield from time_of(self._rows, self._end)
        return found

    def place(self) -> tuple[Position, Micros | None]:
        """Return the number that it has come to, and its time."""
        return (self._end,), self._at


class _ByJob:
    """The runs of some jobs, newest first."""

    def __init__(self, streams: Sequence[Stream], first: int) -> None:
        self.looked_at = 0
        self._merged, self._first = Merged(streams), first
        self._size = FIRST_BLOCK
        self._end = HIGHEST
        self._at: Micros | None = None

    def more(self) -> Search[list[Position] | None]:
        """Return the following numbers."""
        taken = yield from self._merged.take(self._size)
        self._size = next_block(self._size)
        self.looked_at += len(taken)
        found: list[Position] = [(key[1], key[1]) for key in taken if int(key[1]) >= self._first]
        if not found:
            return None
        self._end = int(found[-1][0])
        self._at = yield from time_of(RUNS, self._end)
        return found

    def place(self) -> tuple[Position, Micros | None]:
        """Return the number that it has come to, and its time."""
        return (self._end,), self._at


def time_of(rows: TimedRows, number: int) -> Search[Micros | None]:
    """Return the time of a row, if it can be read."""
    found = yield Question(f"SELECT r.{rows.at} FROM {rows.table} r WHERE r.{rows.number} = ?", (number,))
    return shown_moment(found[0][0]) if found else None


def _streams_of_runs(uids: Sequence[int], end: int) -> Search[list[Stream]]:
    """Return a stream of the runs of each job before *end*, in a store that has an index on them."""
    rows = yield Question(
        """
        SELECT n.value, (SELECT max(r.id) FROM run r /*run_of_job*/ WHERE r.uid = n.value AND r.id < ?)
          FROM ?ints AS n
        """,
        (end, uids),
    )
    return [_stream_of_runs(uid, last, end) for uid, last in rows if last is not None]


def _stream_of_runs(uid: int, last: int, end: int) -> Stream:
    def ask(after: Position | None, size: int) -> Question:
        before: Any = end if after is None else after[1]
        return Question(
            "SELECT -r.id, r.id FROM run r /*run_of_job*/ WHERE r.uid = ? AND r.id < ? ORDER BY r.id DESC LIMIT ?",
            (uid, before, size),
        )

    return Stream((-last,), ask)


def recent_runs(names: Sequence[tuple[str, str]], n: int, dialect: Dialect) -> Search[list[list[int]]]:
    """Return the numbers of the last *n* runs of each of these jobs, oldest first.

    All jobs are asked for at once: to ask for each of them takes a hundred ways to a server and back for a page.
    """
    jobs = yield from _jobs_named(names)
    rows = yield Question(dialect.recent, ([uid for uids in jobs.values() for uid in uids], n))
    runs: dict[int, list[int]] = {}
    for uid, number in rows:
        runs.setdefault(uid, []).append(number)
    return [sorted(number for uid in jobs.get(name, ()) for number in runs.get(uid, ()))[-n:] for name in names]


def _jobs_named(names: Sequence[tuple[str, str]]) -> Search[dict[tuple[str, str], list[int]]]:
    """Return the numbers of the jobs with each name: of the one that is there, or else of those that were removed."""
    found: dict[tuple[str, str], list[int]] = {}
    for index, is_removed in (("job_name", "IS NULL"), ("job_removed_name", "IS NOT NULL")):
        missing = [list(name) for name in dict.fromkeys(names) if name not in found]
        if missing:
            rows = yield Question(
                f"""
                SELECT n.namespace, n.id, j.uid
                  FROM ?names AS n
            CROSS JOIN job j /*{index}*/
                 WHERE j.namespace = n.namespace AND j.id = n.id AND j.removed_at {is_removed}
                """,
                (missing,),
            )
            for namespace, name, uid in rows:
                found.setdefault((namespace, name), []).append(uid)
    return found


def unusual_of_runs() -> str:
    """Return the question for runs with an outcome, in a store whose runs have an index on unusual outcomes."""
    return (
        f"SELECT r.id FROM run r /*run_unusual*/ WHERE {IS_UNUSUAL} AND r.outcome = ? AND r.id < ?"
        " ORDER BY r.id DESC LIMIT ?"
    )
