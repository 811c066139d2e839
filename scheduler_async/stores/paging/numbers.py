"""How jobs are counted, up to a limit; the tally of ended runs; what changes with the store; and a sample. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_async.jobs.enums import Outcome, Status
from scheduler_async.stores.paging.jobs import (
    ALL_JOBS,
    CONDITION_OF,
    DUE,
    OF_STATUS,
    RESTING,
    few_jobs,
    late_jobs,
)
from scheduler_async.stores.paging.questions import FROM_JOBS, Dialect, Question, Search, Terms
from scheduler_async.stores.searches import (
    FAILING,
    LATE,
    MOST_COUNTED,
    PROGRESS,
    PROGRESS_HOUR,
    WINDOW,
    Found,
    JobCounts,
    JobSearch,
    Number,
    Tallied,
    TallySearch,
    mark_of,
    page_of_tally,
)
from scheduler_async.stores.unreadable import is_moment
from scheduler_async.timekeeping.instants import HOUR, Micros

# To count the jobs of a tenant with many jobs, so many rows are looked at for each number.
MOST_WEIGHED: Final = 1_000
# So many rows of the tally are added up.
MOST_ADDED: Final = 20_000
# Among so many of the newest runs and changes, those of a tenant with many jobs are looked for.
MOST_NEWEST: Final = 500


def count_jobs(namespaces: frozenset[str] | None, now: Micros, dialect: Dialect) -> Search[JobCounts]:
    """Return how many jobs there are in *namespaces*, by what they do."""
    everything = JobSearch(namespaces=namespaces, now=now, limit=1)
    few = yield from few_jobs(everything, dialect)
    left_out = yield from _left_out(namespaces, now)
    if few is not None:
        return (yield from _count_among(few, left_out, now))
    questions = {status: Question(text) for status, text in OF_STATUS.items()}
    questions |= {LATE: late_jobs(now, dialect), Status.IDLE.value: Question(IDLE)}
    numbers: dict[str, Number] = {}
    for status, question in questions.items():
        if namespaces is not None or status in (Status.RUNNING, Status.QUEUED):
            condition = CONDITION_OF.get(status, "true")
            numbers[status] = yield from _weigh(question, condition, namespaces)
        else:
            several = yield from _several(PHASE_OF.get(status))
            number = yield from _count(question)
            numbers[status] = Number(max(number.n - several, 0), number.is_exact)
    total = Question(ALL_JOBS)
    if namespaces is not None:
        total = Question(f"{ALL_JOBS} AND j.namespace IN ?texts", (sorted(namespaces),))
    return JobCounts(
        running=numbers[Status.RUNNING.value],
        queued=numbers[Status.QUEUED.value],
        late=numbers[LATE],
        failing=numbers[FAILING],
        paused=numbers[Status.PAUSED.value],
        disabled=numbers[Status.DISABLED.value],
        idle=numbers[Status.IDLE.value],
        left_out=left_out,
        total=(yield from _count(total)),
        next_run_at=(yield from _next_due(dialect)) if namespaces is None else None,
    )


IDLE: Final = (
    f"SELECT s.uid FROM state s /*state_due*/ WHERE {DUE}"
    f" UNION ALL SELECT s.uid FROM state s /*state_resting*/ WHERE {RESTING} AND s.phase = 'active'"
)
PHASE_OF: Final = {Status.IDLE.value: "active", Status.PAUSED.value: "paused", Status.DISABLED.value: "disabled"}


def _count(jobs: Question) -> Search[Number]:
    """Count *jobs*, a question for numbers of jobs, up to a limit."""
    ((number,),) = yield Question(
        f"SELECT count(*) FROM (SELECT 1 FROM ({jobs.text}) AS found LIMIT ?) AS part", (*jobs.values, MOST_COUNTED + 1)
    )
    return Number(min(number, MOST_COUNTED), number <= MOST_COUNTED)


def _several(phase: str | None) -> Search[int]:
    """Return how many jobs of a *phase* are counted by it although they are running: those with several runs."""
    if phase is None:
        return 0
    ((number,),) = yield Question(
        """
        SELECT count(*)
          FROM (SELECT DISTINCT i.uid FROM instance i WHERE i.backfill IS NULL) AS several
         WHERE EXISTS (SELECT 1
                         FROM state s
                        WHERE s.uid = several.uid AND s.activity = 'idle' AND s.running > 0 AND s.phase = ?)
        """,
        (phase,),
    )
    return int(number)


def _weigh(jobs: Question, condition: str, namespaces: frozenset[str] | None) -> Search[Number]:
    """Count those of *jobs* that fulfil a *condition*, by looking at each of them, up to a limit."""
    terms = Terms()
    terms.require(condition)
    terms.require("j.removed_at IS NULL")
    if namespaces is not None:
        terms.require("j.namespace IN ?texts", sorted(namespaces))
    ((number, weighed),) = yield Question(
        f"""
        SELECT sum(CASE WHEN EXISTS (SELECT 1
                                       FROM state s JOIN job j ON j.uid = s.uid
                                      WHERE s.uid = part.uid AND {terms}) THEN 1 ELSE 0 END), count(*)
          FROM (SELECT uid FROM ({jobs.text}) AS found LIMIT ?) AS part
        """,
        (*terms.values, *jobs.values, MOST_WEIGHED + 1),
    )
    return Number(int(number or 0), weighed <= MOST_WEIGHED)


def _count_among(uids: Sequence[int], left_out: Number, now: Micros) -> Search[JobCounts]:
    """Count the jobs with these numbers."""
    conditions = [CONDITION_OF[status] for status in (*_STATUSES, FAILING)]
    sums = ", ".join(
        f"sum(CASE WHEN {one} THEN 1 ELSE 0 END)" for one in (*conditions, f"{DUE} AND s.next_run_at <= ?")
    )
    ((*counted, late, total, first),) = yield Question(
        f"SELECT {sums}, count(*), min(CASE WHEN {DUE} THEN s.next_run_at END)"
        f" {FROM_JOBS} WHERE j.uid IN ?ints AND j.removed_at IS NULL",
        (now, uids),
    )
    running, queued, paused, disabled, idle, failing = (Number(number or 0) for number in counted)
    return JobCounts(
        running=running,
        queued=queued,
        late=Number(late or 0),
        failing=failing,
        paused=paused,
        disabled=disabled,
        idle=idle,
        left_out=left_out,
        total=Number(total),
        next_run_at=first if is_moment(first) else None,
    )


_STATUSES: Final = (
    *(Status.RUNNING.value, Status.QUEUED.value, Status.PAUSED.value, Status.DISABLED.value, Status.IDLE.value),
)


def _next_due(dialect: Dialect) -> Search[Micros | None]:
    """Return when the next job is due."""
    ranks = [f" AND s.rank = {rank}" for rank in dialect.ranks] or [""]
    firsts: list[Micros] = []
    for rank in ranks:
        rows = yield Question(
            f"""
            SELECT (SELECT min(s.next_run_at) FROM state s /*state_due*/ WHERE s.handler = h.number{rank} AND {DUE})
              FROM handler h
            """
        )
        firsts += [row[0] for row in rows if is_moment(row[0])]
    return min(firsts, default=None)


# ---------------------------------------------------------------- the tally


def _hours(since: Micros, until: Micros) -> list[Micros]:
    return list(range(since - since % HOUR, until + 1, HOUR))


def _tally_terms(since: Micros, until: Micros, namespaces: frozenset[str] | None) -> Terms:
    terms = Terms()
    if namespaces is None:
        terms.require("t.hour >= ? AND t.hour <= ?", since - since % HOUR, until)
    else:  # each hour is looked up, so that rows of other tenants are not read
        terms.require("t.hour IN ?ints AND t.namespace IN ?texts", _hours(since, until), sorted(namespaces))
    return terms


def _left_out(namespaces: frozenset[str] | None, now: Micros) -> Search[Number]:
    """Return how many occurrences were skipped lately."""
    terms = _tally_terms(now - WINDOW, now, namespaces)
    rows = yield Question(
        f"""
        SELECT sum(CASE WHEN outcome = '{Outcome.SKIPPED.value}' THEN n ELSE 0 END), count(*)
          FROM (SELECT t.outcome, t.n FROM tally t WHERE {terms} LIMIT ?) AS part
        """,
        (*terms.values, MOST_ADDED),
    )
    return Number(int(rows[0][0] or 0), rows[0][1] < MOST_ADDED)


def read_tally(wanted: TallySearch) -> Search[Found[Tallied]]:
    """Return a page of the tally. The database adds up, so that as many rows are read as are shown."""
    since = wanted.since
    if wanted.after is not None and wanted.by[0] == "hour":  # earlier hours are not read again
        since = max(since, int(wanted.after[0]))
    terms = _tally_terms(since, wanted.until, wanted.namespaces)
    keys = ", ".join(f"t.{key}" for key in wanted.by)
    if wanted.after is not None:
        terms.require(f"({keys}) > ({', '.join('?' * len(wanted.by))})", *wanted.after)
    rows = yield Question(
        f"""
        SELECT {keys}, sum(t.n)
          FROM tally t
         WHERE {terms} AND t.outcome <> '{PROGRESS}'
      GROUP BY {keys}
        HAVING sum(t.n) > 0
      ORDER BY {keys}
         LIMIT ?
        """,
        (*terms.values, wanted.limit + 1),
    )
    return page_of_tally([(tuple(key), int(n)) for *key, n in rows], wanted)


# ---------------------------------------------------------------- whether to look again


def find_mark(namespaces: frozenset[str] | None, now: Micros, dialect: Dialect) -> Search[str]:
    """Return a text that changes when a run or a job changes."""
    signs: list[object] = []
    terms = _tally_terms(now - HOUR, now, namespaces)
    for hours in (terms, _tally_terms(PROGRESS_HOUR, PROGRESS_HOUR, namespaces)):
        added = yield Question(
            f"SELECT sum(n) FROM (SELECT t.n FROM tally t WHERE {hours} LIMIT ?) AS part", (*hours.values, MOST_ADDED)
        )
        signs.append(int(added[0][0] or 0))
    if namespaces is None:
        for question in ("SELECT max(id) FROM run", "SELECT max(number) FROM change"):
            rows = yield Question(question)
            signs.append(rows[0][0])
        return mark_of(signs)
    few = yield from few_jobs(JobSearch(namespaces=namespaces, now=now, limit=1), dialect)
    if few is not None:
        for question in (
            "SELECT count(*), max(s.run) FROM state s WHERE s.uid IN ?ints",
            "SELECT count(*), max(i.run) FROM instance i /*instance_of_job*/ WHERE i.uid IN ?ints",
            dialect.last_change,
        ):
            rows = yield Question(question, (few,))
            signs.append(list(rows[0]))
        return mark_of([*signs, len(few)])
    for question in (
        "SELECT r.id AS number, r.uid FROM run r ORDER BY r.id DESC LIMIT ?",
        "SELECT c.number, c.uid FROM change c ORDER BY c.number DESC LIMIT ?",
    ):
        rows = yield Question(
            f"SELECT max(n.number) FROM ({question}) AS n JOIN job j ON j.uid = n.uid WHERE j.namespace IN ?texts",
            (MOST_NEWEST, sorted(namespaces)),
        )
        signs.append(rows[0][0])
    return mark_of(signs)


# ---------------------------------------------------------------- a sample


# Places that are this fraction of the distance further on each time have no rhythm of their own.
GOLDEN: Final = (5**0.5 - 1) / 2


def spread(size: int, most: int) -> list[int]:
    """Return up to *most* of the places from 0 up to *size*, spread over all of them, but not at equal distances.

    Jobs are often added in turn: every 24th runs daily, for example. At equal distances, one might find only those.
    """
    if size <= most:
        return list(range(size))
    return sorted({int((number + number * GOLDEN % 1) * size / most) for number in range(most)})


def sample_jobs(
    namespaces: frozenset[str] | None, now: Micros, most: int, dialect: Dialect
) -> Search[tuple[list[int], float]]:
    """Return the numbers of up to *most* jobs, spread evenly over all, and how many jobs each of them stands for."""
    few = yield from few_jobs(JobSearch(namespaces=namespaces, now=now, limit=1), dialect)
    if few is not None:
        some = [few[place] for place in spread(len(few), most)]
        return some, len(few) / len(some) if few else 1.0
    ((first, last),) = yield Question("SELECT (SELECT min(uid) FROM state), (SELECT max(uid) FROM state)")
    if first is None:
        return [], 1.0
    points = [first + place for place in spread(last - first + 1, most)]
    rows = yield Question(
        """
        SELECT p.value, (SELECT s.uid FROM state s WHERE s.uid >= p.value ORDER BY s.uid LIMIT 1) FROM ?ints AS p
        """,
        (points,),
    )
    found = sorted({row[1] for row in rows if row[1] is not None})
    # Of the numbers from one point to the next, as many are in use as the distances to the jobs that were found tell.
    distance = sum(row[1] - row[0] for row in rows if row[1] is not None) / max(len(rows), 1)
    share = 1 / (1 + distance)
    return found, max((last - first + 1) * share / max(len(found), 1), 1.0)
