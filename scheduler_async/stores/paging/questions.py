"""The questions of a search, and how rows of several streams are merged. Pure.

In the text of a question, "?" is a value, "?ints" and "?texts" are lists of values, and "?names" is a list of
namespaces with ids. "/*name*/" after a table is the index that SQLite must use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from scheduler_async.stores.searches import Found, Position
from scheduler_async.timekeeping.instants import Micros

T = TypeVar("T")

# If the conditions leave at most so many jobs, all of them are looked at. Otherwise, jobs are looked at in their order.
FEW_JOBS: Final = 2_000
# A search looks at so many rows in their order, and at so many names. Then it stops, and says how far it has come.
MOST_LOOKED_AT: Final = 5_000
MOST_NAMES: Final = 20_000
# An id that begins with a text is looked for in each namespace, unless there are more.
MOST_NAMESPACES: Final = 500
# So many rows are read ahead at first, and at most.
FIRST_BLOCK, LARGEST_BLOCK = 64, 2_048


class Question(NamedTuple):
    """A question to the store: a text with its values."""

    text: str
    values: tuple[object, ...] = ()


Rows: TypeAlias = Sequence[Sequence[Any]]
Search: TypeAlias = Generator[Question, Rows, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between databases."""

    contains: str
    """Whether a text, {}, is like the next value, a pattern in lower case, whose letters may be of either case."""
    ranks: tuple[int, ...] = ()
    """The ranks of jobs, if the index on due jobs has them before the times."""
    unusual: str
    """The runs with an outcome before a run, newest first, up to a limit."""
    few_with_runs: int
    """The runs of at most so many jobs are looked at job by job."""
    runs_by_job: bool
    """Whether an index has the runs of each job by their ids. Otherwise all runs of a job are read."""
    last_changes: str
    """The changes of some jobs before a change, newest first, up to a limit."""
    last_change: str
    """The number of the last change of some jobs."""
    recent: str
    """The last runs of each of some jobs, up to a limit, with the numbers of the jobs."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The positions of the rows that a search has found, each followed by the number of the row."""

    keys: Sequence[Position]
    next: Position | None = None
    looked_back_to: Micros | None = None


class Terms:
    """Conditions of a question, and their values."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.values: tuple[object, ...] = ()

    def require(self, text: str, *values: object) -> None:
        """Add a condition."""
        self._texts.append(text)
        self.values += values

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __str__(self) -> str:
        return " AND ".join(self._texts) or "true"


def cut(keys: Sequence[Position], limit: int) -> Slice:
    """Return a page of *keys*. If there are more of them than its *limit*, it is not the last one."""
    page = keys[:limit]
    return Slice(keys=page, next=page[-1][:-1] if page and len(keys) > limit else None)


def found_rows(found: Slice, rows: Mapping[int, T]) -> Found[T]:
    """Return what a search has *found*, with its *rows* by number."""
    items = [rows[key[-1]] for key in found.keys if key[-1] in rows]  # type: ignore[index]
    return Found(items=items, next=found.next, looked_back_to=found.looked_back_to)


class Source(Protocol):
    """Returns positions in their order, each followed by the number of its row."""

    looked_at: int
    """How many rows it has looked at."""

    def more(self) -> Search[list[Position] | None]:
        """Return the following positions, None at the end. An empty list is not the end."""

    def place(self) -> tuple[Position, Micros | None]:
        """Return how far it has come: the position, and the time if it goes by time."""


class Of(NamedTuple):
    """The rows that a search looks at."""

    tables: str
    number: str


FROM_JOBS: Final = "FROM job j LEFT JOIN state s ON s.uid = j.uid"
OF_JOBS: Final = Of(FROM_JOBS, "j.uid")
OF_RUNS: Final = Of("FROM run r JOIN job j ON j.uid = r.uid", "r.id")
OF_CHANGES: Final = Of("FROM change c JOIN job j ON j.uid = c.uid", "c.number")


def chosen(source: Source, terms: Terms, limit: int, of: Of, most: int = MOST_LOOKED_AT) -> Search[Slice]:
    """Return the first rows of *source* that meet the *terms*, up to *limit*. Look at about *most* of them."""
    found: list[Position] = []
    while True:
        block = yield from source.more()
        if block is None:
            return cut(found, limit)
        if block and terms:
            numbers = [key[-1] for key in block]
            question = f"SELECT {of.number} {of.tables} WHERE {of.number} IN ?ints AND {terms}"
            good = {row[0] for row in (yield Question(question, (numbers, *terms.values)))}
            block = [key for key in block if key[-1] in good]
        found += block
        if len(found) > limit:
            return cut(found, limit)
        if source.looked_at >= most:
            position, at = source.place()
            return Slice(keys=found, next=position, looked_back_to=at)


def next_block(size: int) -> int:
    """Return how many rows to read after a block of this *size*."""
    return min(size * 2, LARGEST_BLOCK)


class Stream(NamedTuple):
    """Rows in their order."""

    first: Position
    """No position of the stream is before this one."""
    ask: Callable[[Position | None, int], Question]
    """Return the question for the rows after a position, or for the first ones, up to a limit. They are positions."""


class Merged:
    """The rows of several streams in their order. A stream is read when its first position comes."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._streams = list(streams)
        self._heap: list[tuple[Position, int, bool]] = [(one.first, n, False) for n, one in enumerate(self._streams)]
        heapify(self._heap)
        self._rows: dict[int, Iterator[Position]] = {}
        self._sizes = dict.fromkeys(range(len(self._streams)), FIRST_BLOCK // 2)
        self._last: Position | None = None

    def take(self, most: int) -> Search[list[Position]]:
        """Return the next positions, up to *most*."""
        taken: list[Position] = []
        while self._heap and len(taken) < most:
            key, number, is_row = heappop(self._heap)
            if is_row and key != self._last:
                taken.append(key)
                self._last = key
            following = next(self._rows[number], None) if is_row else None
            if following is None and (not is_row or self._was_full(number)):
                following = yield from self._read(number, key if is_row else None)
            if following is not None:
                heappush(self._heap, (following, number, True))
        return taken

    def _was_full(self, number: int) -> bool:
        return self._sizes[number] > 0

    def _read(self, number: int, after: Position | None) -> Search[Position | None]:
        size = self._sizes[number] = next_block(self._sizes[number])
        rows = yield self._streams[number].ask(after, size)
        if len(rows) < size:
            self._sizes[number] = 0
        self._rows[number] = iter(sorted(map(tuple, rows))[:size])
        return next(self._rows[number], None)
