"""Where the jobs of a page are found: by what they do, by their names, and by a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from scheduler_async.jobs.enums import Status
from scheduler_async.stores.conditions import HAS_ENDED
from scheduler_async.stores.paging.questions import (
    FEW_JOBS,
    FIRST_BLOCK,
    FROM_JOBS,
    MOST_NAMES,
    MOST_NAMESPACES,
    OF_JOBS,
    Dialect,
    Merged,
    Question,
    Search,
    Slice,
    Stream,
    Terms,
    chosen,
    cut,
    next_block,
)
from scheduler_async.stores.searches import FAILING, LATE, JobSearch, Position
from scheduler_async.stores.unreadable import is_moment
from scheduler_async.timekeeping.instants import Micros

# ---------------------------------------------------------------- what has an index

CLAIMED: Final = "s.activity <> 'idle'"
DUE: Final = "s.phase = 'active' AND s.activity = 'idle' AND s.next_run_at IS NOT NULL"
RESTING: Final = "s.activity = 'idle' AND (s.phase <> 'active' OR s.next_run_at IS NULL)"
FAILED: Final = "s.consecutive_errors > 0"
TITLED: Final = "j.removed_at IS NULL AND j.name IS NOT NULL"

# The jobs of a status. An index has these and few others, which the conditions leave out.
OF_STATUS: Final = {
    Status.RUNNING.value: f"""
        SELECT s.uid FROM state s /*state_claimed*/ WHERE {CLAIMED} AND s.activity = 'running'
         UNION SELECT i.uid FROM instance i WHERE i.backfill IS NULL
    """,
    Status.QUEUED.value: f"SELECT s.uid FROM state s /*state_claimed*/ WHERE {CLAIMED} AND s.activity = 'queued'",
    Status.PAUSED.value: f"SELECT s.uid FROM state s /*state_resting*/ WHERE {RESTING} AND s.phase = 'paused'",
    Status.DISABLED.value: f"SELECT s.uid FROM state s /*state_resting*/ WHERE {RESTING} AND s.phase = 'disabled'",
    FAILING: f"SELECT s.uid FROM state s /*state_failing*/ WHERE {FAILED}",
}
CONDITION_OF: Final = {
    Status.RUNNING.value: "(s.activity = 'running' OR s.activity = 'idle' AND s.running > 0)",
    Status.QUEUED.value: "s.activity = 'queued'",
    Status.PAUSED.value: "s.activity = 'idle' AND s.running = 0 AND s.phase = 'paused'",
    Status.DISABLED.value: "s.activity = 'idle' AND s.running = 0 AND s.phase = 'disabled'",
    Status.IDLE.value: "s.activity = 'idle' AND s.running = 0 AND s.phase = 'active'",
    FAILING: FAILED,
}
# Jobs by their namespaces and ids. Each pair is looked up: a namespace may have many jobs, and statistics of PostgreSQL
# only know how many it has on average. The limit keeps PostgreSQL from joining in another order.
NAMED: Final = f"""
    SELECT j.uid
      FROM (SELECT n.value AS namespace, i.value AS id
              FROM ?texts AS n CROSS JOIN ?texts AS i LIMIT {MOST_NAMES}) AS named
CROSS JOIN job j /*job_name*/
     WHERE j.namespace = named.namespace AND j.id = named.id AND j.removed_at IS NULL
"""
ALL_JOBS: Final = "SELECT j.uid FROM job j /*job_name*/ WHERE j.removed_at IS NULL"
# The jobs that come first, then those that are due, then the others: see `searches.place_of`.
FIRST, DUE_NEXT, LAST = range(3)
KIND: Final = f"CASE WHEN {CLAIMED} THEN {FIRST} WHEN {DUE} THEN {DUE_NEXT} ELSE {LAST} END"
AT: Final = f"CASE WHEN {DUE} THEN s.next_run_at ELSE 0 END"
# In which of them the jobs of a status are.
KINDS_OF: Final = {
    Status.RUNNING.value: (FIRST, DUE_NEXT, LAST),  # jobs that may have several runs are due meanwhile
    Status.QUEUED.value: (FIRST,),
    Status.PAUSED.value: (LAST,),
    Status.DISABLED.value: (LAST,),
    Status.IDLE.value: (DUE_NEXT, LAST),
    LATE: (DUE_NEXT,),
}
PHASES_OF: Final = {Status.PAUSED.value: ("paused",), Status.DISABLED.value: ("disabled",)}


def terms_of_jobs(wanted: JobSearch) -> Terms:
    """Return the conditions for a job `j` with a state `s`, but for the text."""
    terms = Terms()
    if wanted.namespaces is not None:
        terms.require("j.namespace IN ?texts", sorted(wanted.namespaces))
    if wanted.status == LATE:
        terms.require(f"{DUE} AND s.next_run_at <= ?", wanted.now)
    elif wanted.status is not None:
        terms.require(CONDITION_OF[wanted.status])
    if wanted.handler is not None:
        terms.require("j.handler = ?", wanted.handler)
    if wanted.group is not None:
        terms.require("j.job_group = ?", wanted.group)
    if wanted.ids is not None:
        terms.require("j.id IN ?texts", sorted(wanted.ids))
    if wanted.ended is not None:
        has_ended = f"coalesce(s.phase, '') = 'disabled' AND {HAS_ENDED}"
        terms.require(has_ended if wanted.ended else f"NOT ({has_ended})")
    return terms


# ---------------------------------------------------------------- jobs


def find_jobs(wanted: JobSearch, dialect: Dialect) -> Search[Slice]:
    """Return the positions of the *wanted* jobs. In a text search, the last value is the number of the job."""
    few = None if _is_in_order(wanted) else (yield from few_jobs(wanted, dialect))
    has_states = wanted.status is not None  # a job without a state has no status
    if few is not None and (wanted.text or wanted.by_name or not has_states):
        return (yield from _among(few, wanted, dialect))
    if wanted.text:
        return (yield from _find_text(wanted, wanted.text, dialect))
    terms = terms_of_jobs(wanted)
    if wanted.by_name:
        return (yield from chosen(_ByName(wanted), terms, wanted.limit, OF_JOBS))
    terms.require("j.removed_at IS NULL")  # the run of a removed job may go on
    source = _ByKind(wanted, dialect) if few is None else _FewByKind(few, wanted)
    return (yield from chosen(source, terms, wanted.limit, OF_JOBS))


def _is_in_order(wanted: JobSearch) -> bool:
    """Return whether an index has little but the *wanted* jobs, in their order."""
    others = (wanted.text, wanted.handler, wanted.group, wanted.ids, wanted.namespaces, wanted.ended)
    return wanted.status in PHASES_OF and not wanted.by_name and all(one is None for one in others)


def few_jobs(wanted: JobSearch, dialect: Dialect) -> Search[list[int] | None]:
    """Return the numbers of some jobs, the *wanted* ones among them. None if these are too many to look at all."""
    questions: list[Question] = []
    if wanted.ids is not None and wanted.namespaces is not None:
        pairs = len(wanted.namespaces) * len(wanted.ids)
        named = NAMED if pairs <= MOST_NAMES else f"{ALL_JOBS} AND j.namespace IN ?texts AND j.id IN ?texts"
        questions.append(Question(named, (sorted(wanted.namespaces), sorted(wanted.ids))))
    if wanted.status in OF_STATUS:
        questions.append(Question(OF_STATUS[wanted.status]))
    if wanted.status == LATE:
        questions.append(late_jobs(wanted.now, dialect))
    if wanted.handler is not None:
        of_handler = "FROM handler h CROSS JOIN state s /*state_of_handler*/ WHERE h.name = ? AND s.handler = h.number"
        questions.append(Question(f"SELECT s.uid {of_handler}", (wanted.handler,)))
    if wanted.namespaces is not None:
        of_namespaces = f"{ALL_JOBS} AND j.namespace IN ?texts"
        questions.append(Question(of_namespaces, (sorted(wanted.namespaces),)))
    for text, values in questions or (Question(ALL_JOBS),):
        if not (yield Question(f"SELECT 1 FROM ({text}) AS found LIMIT 1 OFFSET ?", (*values, FEW_JOBS))):
            rows = yield Question(f"SELECT uid FROM ({text}) AS found LIMIT ?", (*values, FEW_JOBS))
            return [row[0] for row in rows]
    return None


def late_jobs(now: Micros, dialect: Dialect) -> Question:
    """Return the question for the jobs that are due and not claimed."""
    of_rank = f" AND s.rank IN ({', '.join(map(str, dialect.ranks))})" if dialect.ranks else ""
    return Question(
        "SELECT s.uid FROM handler h CROSS JOIN state s /*state_due*/"
        f" WHERE s.handler = h.number{of_rank} AND {DUE} AND s.next_run_at <= ?",
        (now,),
    )


def _among(uids: Sequence[int], wanted: JobSearch, dialect: Dialect) -> Search[Slice]:
    """Find the *wanted* jobs among those with these numbers, by looking at all of them."""
    terms = terms_of_jobs(wanted)
    terms.require("j.uid IN ?ints AND j.removed_at IS NULL", uids)
    begins: tuple[object, ...] = ()
    order: tuple[str, ...] = ("namespace", "id") if wanted.by_name else ("kind", "at", "uid")
    kind = KIND
    if wanted.text:
        order = ("kind", "namespace", "id")
        kind, begins = f"CASE WHEN {BEGINS} THEN 0 ELSE 1 END", _begins(wanted.text)
        names = " OR ".join(dialect.contains.format(name) for name in (NAME, "coalesce(j.name, '')"))
        terms.require(f"({names})", *[pattern_of(wanted.text)] * 2)
    after, values = "", (*begins, *terms.values)
    if wanted.after is not None:
        after = f"WHERE ({', '.join(order)}) > ({', '.join('?' * len(order))})"
        values += wanted.after
    rows = yield Question(
        f"""
        SELECT {", ".join(order)}, uid
          FROM (SELECT {kind} AS kind, {AT} AS at, j.uid, j.namespace, j.id {FROM_JOBS} WHERE {terms}) AS found
        {after}
      ORDER BY {", ".join(order)}
         LIMIT ?
        """,
        (*values, wanted.limit + 1),
    )
    return cut([tuple(row) for row in rows], wanted.limit)


class _FewByKind:
    """Some jobs of a status by what they do: their states, which are small, put them in order."""

    def __init__(self, uids: Sequence[int], wanted: JobSearch) -> None:
        self.looked_at = 0
        self._uids, self._after = uids, wanted.after
        self._places: list[Position] | None = None
        self._size = FIRST_BLOCK

    def more(self) -> Search[list[Position] | None]:
        if self._places is None:
            states = f"SELECT {KIND} AS kind, {AT} AS at, s.uid, s.uid FROM state s WHERE s.uid IN ?ints"
            places = sorted(tuple(row) for row in (yield Question(states, (self._uids,))))
            self._places = [place for place in places if self._after is None or place[:-1] > self._after]
        found = self._places[self.looked_at : self.looked_at + self._size]
        self.looked_at += len(found)
        self._size = next_block(self._size)
        return found or None

    def place(self) -> tuple[Position, Micros | None]:
        assert self._places is not None
        return self._places[self.looked_at - 1][:-1], None


# ---------------------------------------------------------------- jobs by name

BY_NAME: Final = "FROM job j /*job_name*/ WHERE j.removed_at IS NULL AND (j.namespace, j.id) > (?, ?)"


class _ByName:
    """Jobs by namespace and id."""

    def __init__(self, wanted: JobSearch) -> None:
        self.looked_at = 0
        self._at: tuple[object, ...] = wanted.after or ("", "")
        self._until = None
        if wanted.namespaces:
            self._at = max(self._at, (min(wanted.namespaces), ""))
            self._until = max(wanted.namespaces)
        self._size = FIRST_BLOCK
        self._is_over = False

    def more(self) -> Search[list[Position] | None]:
        if self._is_over:
            return None
        until, values = ("", ()) if self._until is None else (" AND j.namespace <= ?", (self._until,))
        rows = yield Question(
            f"SELECT j.namespace, j.id, j.uid {BY_NAME}{until} ORDER BY j.namespace, j.id LIMIT ?",
            (*self._at, *values, self._size),
        )
        self._is_over = len(rows) < self._size
        self._size = next_block(self._size)
        self.looked_at += len(rows)
        if rows:
            self._at = tuple(rows[-1][:2])
        return [tuple(row) for row in rows]

    def place(self) -> tuple[Position, Micros | None]:
        return self._at, None  # type: ignore[return-value]


# ---------------------------------------------------------------- jobs by what they do


class _ByKind:
    """Jobs in progress, then those that are due, by their times, then the others."""

    def __init__(self, wanted: JobSearch, dialect: Dialect) -> None:
        self.looked_at = 0
        self._wanted, self._dialect = wanted, dialect
        self._after: tuple[int, int, int] = wanted.after or (FIRST, 0, -(2**63))  # type: ignore[assignment]
        kinds = KINDS_OF.get(wanted.status or "", (FIRST, DUE_NEXT, LAST))
        self._kinds = [kind for kind in kinds if kind >= self._after[0]]
        self._merged: Merged | None = None
        self._size = FIRST_BLOCK

    def more(self) -> Search[list[Position] | None]:
        while self._kinds:
            if self._merged is None:
                streams = yield from self._streams(self._kinds[0])
                self._merged = Merged(streams)
            found = yield from self._merged.take(self._size)
            if found:
                self._size = next_block(self._size)
                self.looked_at += len(found)
                if self._wanted.status == LATE and found[-1][1] > self._wanted.now:  # type: ignore[operator]
                    self._kinds = []
                self._after = found[-1][:3]  # type: ignore[assignment]
                return found
            del self._kinds[0]
            self._merged = None
        return None

    def place(self) -> tuple[Position, Micros | None]:
        kind, at, _ = self._after
        return self._after, at if kind == DUE_NEXT and is_moment(at) else None

    def _streams(self, kind: int) -> Search[list[Stream]]:
        after = self._after if kind == self._after[0] else (kind, -(2**63), -(2**63))
        if kind == DUE_NEXT:
            return (yield from self._due(after))
        if kind == FIRST:
            claimed = f"FROM state s /*state_claimed*/ WHERE {CLAIMED} AND s.uid + 0 > ?"
            return [_stream_of_numbers(claimed, (), after)]
        phases = PHASES_OF.get(self._wanted.status or "", ("active", "disabled", "paused"))
        resting = f"FROM state s /*state_resting*/ WHERE {RESTING} AND s.phase = ? AND s.uid > ?"
        return [_stream_of_numbers(resting, (phase,), after) for phase in phases]

    def _due(self, after: tuple[int, int, int]) -> Search[list[Stream]]:
        """Return the streams of due jobs: one for each handler, and for each rank if the index has it."""
        ranks = [f" AND s.rank = {rank}" for rank in self._dialect.ranks] or [""]
        named = "" if self._wanted.handler is None else "WHERE h.name = ?"
        names = () if self._wanted.handler is None else (self._wanted.handler,)
        streams: list[Stream] = []
        for rank in ranks:
            rows = yield Question(
                f"""
                SELECT h.number, (SELECT min(s.next_run_at)
                                    FROM state s /*state_due*/
                                   WHERE s.handler = h.number{rank} AND {DUE} AND s.next_run_at >= ?)
                  FROM handler h {named}
                """,
                (after[1], *names),
            )
            for handler, first in rows:
                if first is not None:
                    streams.append(_stream_of_due(handler, rank, first, after))
        return streams


def _stream_of_numbers(source: str, values: tuple[object, ...], start: tuple[int, int, int]) -> Stream:
    kind = start[0]

    def ask(after: Position | None, size: int) -> Question:
        number = start[2] if after is None else after[-1]
        order = "s.uid + 0" if "s.uid + 0" in source else "s.uid"
        question = f"SELECT {kind}, 0, s.uid, s.uid {source} ORDER BY {order} LIMIT ?"
        return Question(question, (*values, number, size))

    return Stream((kind, 0, start[2]), ask)


def _stream_of_due(handler: int, rank: str, first: Micros, start: tuple[int, int, int]) -> Stream:
    columns = f"SELECT {DUE_NEXT} AS kind, s.next_run_at AS at, s.uid AS uid, s.uid AS number"
    due = f"{columns} FROM state s /*state_due*/ WHERE s.handler = ?{rank} AND {DUE}"
    # In two parts: very many jobs may be due at one time, and an index skips those that come before.
    both = f"""
        SELECT * FROM ({due} AND s.next_run_at = ? AND s.uid > ? ORDER BY s.uid LIMIT ?) AS same
     UNION ALL
        SELECT * FROM ({due} AND s.next_run_at > ? ORDER BY s.next_run_at, s.uid LIMIT ?) AS later
    """

    def ask(after: Position | None, size: int) -> Question:
        at, number = start[1:] if after is None else (after[1], after[2])
        return Question(both, (handler, at, number, size, handler, at, size))

    return Stream((DUE_NEXT, first, -(2**63)), ask)


# ---------------------------------------------------------------- text

NAME: Final = "(j.namespace || '/' || j.id)"
BEGINS: Final = f"(substr(j.id, 1, ?) = ? OR substr({NAME}, 1, ?) = ?)"
DISTINCT_NAMESPACES: Final = """
    WITH RECURSIVE n (namespace) AS (
        SELECT min(j.namespace) FROM job j /*job_name*/ WHERE j.removed_at IS NULL
     UNION ALL
        SELECT (SELECT min(j.namespace) FROM job j /*job_name*/
                 WHERE j.removed_at IS NULL AND j.namespace > n.namespace)
          FROM n
         WHERE n.namespace IS NOT NULL)
    SELECT namespace FROM n LIMIT ?
"""


def _begins(text: str) -> tuple[object, ...]:
    return len(text), text, len(text), text


def pattern_of(text: str) -> str:
    """Return the pattern of what contains *text*, with ASCII letters in lower case."""
    lower = "".join(char.lower() if char.isascii() else char for char in text)
    escaped = re.sub(r"([%_\\])", r"\\\1", lower)
    return f"%{escaped}%"


def _find_text(wanted: JobSearch, text: str, dialect: Dialect) -> Search[Slice]:
    """Find jobs whose names begin with *text*, then those whose names or titles contain it."""
    namespaces = yield from _namespaces(wanted)
    terms = terms_of_jobs(wanted)
    found: list[Position] = []
    if wanted.after is None or wanted.after[0] == 0:
        first = _Prefixed(wanted, (yield from _prefixes(text, namespaces)))
        page = yield from chosen(first, terms, wanted.limit, OF_JOBS)
        if page.next is not None:
            return page
        found += page.keys
    limit = wanted.limit - len(found)
    if not limit:  # the others come on a page of their own
        return Slice(keys=found, next=found[-1][:-1])
    source = _Containing(wanted, text, dialect, is_id_done=namespaces is not None)
    rest = yield from chosen(source, terms, limit, OF_JOBS, MOST_NAMES)
    return Slice(keys=[*found, *rest.keys], next=rest.next)


def _namespaces(wanted: JobSearch) -> Search[list[str] | None]:
    """Return the namespaces to look at; None if they are too many to look at each."""
    if wanted.namespaces is not None:
        return sorted(wanted.namespaces) if len(wanted.namespaces) <= MOST_NAMESPACES else None
    rows = yield Question(DISTINCT_NAMESPACES, (MOST_NAMESPACES + 2,))
    found = [row[0] for row in rows if row[0] is not None]
    return found if len(found) <= MOST_NAMESPACES else None


class Range(NamedTuple):
    """Names from one to another: those of a namespace, or whole namespaces."""

    namespace: str | None
    first: str
    last: str


def _prefixes(text: str, namespaces: Sequence[str] | None) -> Search[list[Range]]:
    """Return where names are that begin with *text*: in these *namespaces*, or whole namespaces."""
    ranges = [Range(None, text, text + END)]
    for place, char in enumerate(text):
        if char == "/":
            ranges.append(Range(text[:place], text[place + 1 :], text[place + 1 :] + END))
    if namespaces is not None:
        rows = yield Question(
            """
            SELECT n.value, (SELECT min(j.id)
                               FROM job j /*job_name*/
                              WHERE j.removed_at IS NULL AND j.namespace = n.value AND j.id >= ? AND j.id < ?)
              FROM ?texts AS n
            """,
            (text, text + END, namespaces),
        )
        ranges += [Range(namespace, text, text + END) for namespace, first in rows if first is not None]
    return list(dict.fromkeys(ranges))


# After all text that begins with another.
END: Final = chr(0x10FFFF)


class _Prefixed:
    """Jobs whose names are in some ranges."""

    def __init__(self, wanted: JobSearch, ranges: Iterable[Range]) -> None:
        self.looked_at = 0
        start = ("", "") if wanted.after is None else (str(wanted.after[1]), str(wanted.after[2]))
        self._place: Position = (0, *start)
        self._merged = Merged(_stream_of_names(one, start) for one in ranges)
        self._size = FIRST_BLOCK

    def more(self) -> Search[list[Position] | None]:
        found = yield from self._merged.take(self._size)
        self._size = next_block(self._size)
        self.looked_at += len(found)
        if not found:
            return None
        self._place = found[-1][:-1]
        return found

    def place(self) -> tuple[Position, Micros | None]:
        return self._place, None


def _stream_of_names(range_: Range, start: tuple[str, str]) -> Stream:
    column = "j.namespace" if range_.namespace is None else "j.id"
    within = "" if range_.namespace is None else " AND j.namespace = ?"
    first = (range_.first, "") if range_.namespace is None else (range_.namespace, range_.first)

    def ask(after: Position | None, size: int) -> Question:
        at = start if after is None else after[1:3]
        values = () if range_.namespace is None else (range_.namespace,)
        return Question(
            f"""
            SELECT 0, j.namespace, j.id, j.uid
              FROM job j /*job_name*/
             WHERE j.removed_at IS NULL{within} AND {column} >= ? AND {column} < ? AND (j.namespace, j.id) > (?, ?)
          ORDER BY j.namespace, j.id
             LIMIT ?
            """,
            (*values, range_.first, range_.last, *at, size),
        )

    return Stream((0, *max(first, start)), ask)


class _Containing:
    """Jobs whose names or titles contain a text, and do not begin with it."""

    def __init__(self, wanted: JobSearch, text: str, dialect: Dialect, *, is_id_done: bool) -> None:
        self.looked_at = 0
        self._text, self._contains = text, dialect.contains
        at = ("", "") if wanted.after is None or wanted.after[0] == 0 else wanted.after[1:]
        self._at: tuple[str, str] = (str(at[0]), str(at[1]))
        self._until = END
        if wanted.namespaces:
            self._at = max(self._at, (min(wanted.namespaces), ""))
            self._until = max(wanted.namespaces)
        self._is_over = False
        # A name that begins with the text was found before. If there are too many namespaces, only names were.
        self._found = BEGINS if is_id_done else f"substr({NAME}, 1, ?) = ?"
        self._found_values = _begins(text) if is_id_done else _begins(text)[2:]

    def more(self) -> Search[list[Position] | None]:
        if self._is_over:
            return None
        # One condition for each end: SQLite would take the wrong one of two.
        names = f"{BY_NAME} AND (j.namespace, j.id) <= (?, ?)"
        place = (*self._at, self._until, END)
        block = MOST_NAMES // 5
        rows = yield Question(
            f"SELECT j.namespace, j.id {names} ORDER BY j.namespace, j.id LIMIT 1 OFFSET ?", (*place, block - 1)
        )
        self.looked_at += block
        self._is_over = not rows
        bound = tuple(rows[0]) if rows else (self._until, END)
        found: set[Position] = set()
        titles = names.replace("/*job_name*/", "/*job_titled*/").replace("j.removed_at IS NULL", TITLED)
        for source, value in ((names, NAME), (titles, "j.name")):
            rows = yield Question(
                f"""
                SELECT 1, j.namespace, j.id, j.uid {source}
                   AND {self._contains.format(value)} AND NOT {self._found}
                """,
                (*self._at, *bound, pattern_of(self._text), *self._found_values),
            )
            found.update(tuple(row) for row in rows)
        self._at = bound
        return sorted(found)

    def place(self) -> tuple[Position, Micros | None]:
        return (1, *self._at), None
