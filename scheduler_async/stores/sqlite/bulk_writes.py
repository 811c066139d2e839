"""Statements that write many rows to SQLite at once, and bind only values that differ from the usual ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import compress, count
from operator import is_not, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

# So many rows go into one statement. The event loop can run while SQLite executes it; between two statements, the
# thread waits for its turn. Larger statements gain nothing.
AT_ONCE = (256, 32, 4, 1)


class Form(NamedTuple):
    """The statements for rows with the same gaps."""

    text_for: Callable[[int], str]
    """Return the statement for so many rows."""
    width: int
    """How many values of each row are bound."""
    values_of: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Return the values of a row that are bound."""
    gaps_of: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Return the values of a row that are not bound."""
    usual: tuple[Any, ...]
    """What these must be."""

    def write(self, db: sqlite3.Connection, bound: list[Any]) -> int:
        """Write the rows whose values are *bound*, in as few statements as possible."""
        written = 0
        for size in AT_ONCE:
            some = size * self.width
            while len(bound) >= some:
                written += db.execute(self.text_for(size), bound[:some]).rowcount
                bound = bound[some:]
        return written


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
        """Write one row, and return how many were written: it may not be there."""
        form = self._form_of(self._filled(row))
        return db.execute(form.text_for(1), form.values_of(row)).rowcount

    def all(self, db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> int:
        """Write *rows*, those with the same gaps next to each other at once, and return how many were written."""
        written = 0
        form: Form | None = None
        bound: list[Any] = []
        for row in rows:
            # Most rows have the gaps of the row before, and this finds out in half of the time.
            if form is None or form.gaps_of(row) != form.usual or None in (values := form.values_of(row)):
                written += 0 if form is None else form.write(db, bound)
                form, bound = self._form_of(self._filled(row)), []
                values = form.values_of(row)
            bound += values
            # With the values of thousands of rows at once, Python's garbage collector takes half of the time.
            if len(bound) == AT_ONCE[0] * form.width:
                written += db.execute(form.text_for(AT_ONCE[0]), bound).rowcount
                bound = []
        return written + (0 if form is None else form.write(db, bound))

    def _form_of(self, filled: tuple[bool, ...]) -> Form:
        """Return how rows with these gaps are written."""
        if filled not in self._forms:
            full = list(compress(self._columns, filled))
            usual = dict(zip(self._columns, map(_literal, self._usual), strict=False))
            gaps = {name: literal for name, literal in usual.items() if name not in full}
            empty = [place for place, is_filled in enumerate(filled) if not is_filled]
            self._forms[filled] = Form(
                text_for=cache(partial(self._text, full, gaps)),
                width=filled.count(True),
                values_of=_picking(list(compress(count(), filled))),
                gaps_of=_picking(empty),
                usual=tuple(self._usual[place] for place in empty),
            )
        return self._forms[filled]

    def _filled(self, row: Sequence[Any]) -> tuple[bool, ...]:
        # Compare by identity, which is faster. An equal value that is another object is simply bound.
        return tuple(map(is_not, row, self._usual))


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def _picking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    some = slice(places[0], places[0] + 1) if places else slice(0)
    return lambda row: tuple(row[some])  # itemgetter with one index does not return a tuple


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
