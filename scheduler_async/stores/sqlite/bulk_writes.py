"""Statements that write many rows to SQLite at once, and bind only values that differ from the usual ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress, count, groupby, islice
from operator import is_not, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

# So many rows go into one statement. The event loop can run while SQLite executes it; between two statements, the
# thread waits for its turn. Larger statements gain nothing.
AT_ONCE = (256, 32, 4, 1)


class Form(NamedTuple):
    """The statements for rows with the same gaps."""

    texts: tuple[str, ...]
    """The statements for the numbers of rows in `AT_ONCE`."""
    values_of: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Selects the values to bind from a row."""


NULL = MappingProxyType[str, object]({})
"""The usual value of every column is None."""


class Writing:
    """A statement that writes rows with gaps. It binds only the values that differ from the usual ones.

    Python's driver binds values slowly, None in particular, and most columns of most jobs have their usual value. Rows
    end with the key values by which the statement finds them, if it does. Rows that are written together must have
    different keys.
    """

    def __init__(
        self,
        text: Callable[[Sequence[str], Mapping[str, str], int], str],
        columns: Sequence[str],
        keys: int = 0,
        usual: Mapping[str, object] = NULL,
    ) -> None:
        """Make a statement for *columns*, followed by *keys* key values.

        *text* receives the bound columns, the literals of the others, and the number of rows. *usual* contains the
        usual values that are not None.
        """
        self._text = text
        self._columns = columns
        self._usual = (*(usual.get(name) for name in columns), *([None] * keys))
        self._forms: dict[tuple[bool, ...], Form] = {}

    def one(self, db: sqlite3.Connection, *row: Any) -> int:
        """Write one row. Return how many rows were written: an update may find none."""
        texts, values_of = self._form_of(self._filled(row))
        return db.execute(texts[-1], values_of(row)).rowcount

    def all(self, db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> int:
        """Write *rows*. Adjacent rows with the same gaps share a statement. Return how many rows were written."""
        rest = iter(rows)
        first_two = list(islice(rest, 2))
        if len(first_two) < 2:
            return sum(self.one(db, *row) for row in first_two)
        written = 0
        for filled, alike in groupby(chain(first_two, rest), key=self._filled):
            texts, values_of = self._form_of(filled)
            # Row by row: with thousands of rows at once, the garbage collector takes half of the time.
            bound: list[Any] = []
            rows_bound = 0
            for row in alike:
                bound += values_of(row)
                rows_bound += 1
                if rows_bound == AT_ONCE[0]:
                    written += db.execute(texts[0], bound).rowcount
                    bound, rows_bound = [], 0
            width = filled.count(True)
            for size, text in zip(AT_ONCE, texts, strict=True):
                while rows_bound >= size:
                    written += db.execute(text, bound[: size * width]).rowcount
                    bound, rows_bound = bound[size * width :], rows_bound - size
        return written

    def _form_of(self, filled: tuple[bool, ...]) -> Form:
        """Return the statements for rows with these gaps."""
        if filled not in self._forms:
            full = list(compress(self._columns, filled))
            usual = dict(zip(self._columns, map(_literal, self._usual), strict=False))
            gaps = {name: literal for name, literal in usual.items() if name not in full}
            texts = tuple(self._text(full, gaps, size) for size in AT_ONCE)
            self._forms[filled] = Form(texts, _picking(list(compress(count(), filled))))
        return self._forms[filled]

    def _filled(self, row: Sequence[Any]) -> tuple[bool, ...]:
        # Compare by identity, which is faster. An equal value that is another object is simply bound.
        return tuple(map(is_not, row, self._usual))


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def _picking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)  # itemgetter with one index does not return a tuple


def _values(columns: int, rows: int, *constants: str) -> str:
    row = f"({', '.join(['?'] * columns + [*constants])})"
    return f"VALUES {', '.join([row] * rows)}"


def inserting(table: str, *columns: str, verb: str = "INSERT", usual: Mapping[str, object] = NULL) -> Writing:
    """Return a statement that adds rows to *table*."""

    def text(full: Sequence[str], gaps: Mapping[str, str], rows: int) -> str:
        constants = {name: literal for name, literal in gaps.items() if literal != "NULL"}
        names = ", ".join([*full, *constants])
        return f"{verb} INTO {table} ({names}) {_values(len(full), rows, *constants.values())}"

    return Writing(text, columns, usual=usual)


def updating(
    table: str,
    keys: Sequence[str],
    *columns: str,
    where: str | None = None,
    always: str | None = None,
    usual: Mapping[str, object] = NULL,
) -> Writing:
    """Return a statement that updates the rows of *table* with these *keys*, only *where* a condition holds.

    *always* is another assignment.
    """

    def text(full: Sequence[str], gaps: Mapping[str, str], rows: int) -> str:
        value = iter(f"v.column{number}" if rows > 1 else "?" for number in count(1))
        changes = [f"{name} = {next(value)}" for name in full]
        changes += [f"{name} = {literal}" for name, literal in gaps.items()]
        changes += () if always is None else (always,)
        source = f" FROM ({_values(len(full) + len(keys), rows)}) v" if rows > 1 else ""
        conditions = [f"{table}.{key} = {next(value)}" for key in keys] + ([] if where is None else [where])
        return f"UPDATE {table} SET {', '.join(changes)}{source} WHERE {' AND '.join(conditions)}"

    return Writing(text, columns, len(keys), usual)
