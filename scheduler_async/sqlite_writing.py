"""Statements that write rows to SQLite without binding None."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count, groupby
from operator import itemgetter
from typing import Any


class Writing:
    """A statement that writes rows with gaps: it mentions only the columns that hold something.

    Python's driver takes far longer over a None than over a number or a text, and most columns of most jobs are empty.
    Rows have the value that the statement looks them up by, if it does, at their end, and hold two values at least.
    """

    def __init__(self, text: Callable[[Sequence[str], Sequence[str]], str], *columns: str) -> None:
        """*text* is given the columns that hold something, and those that do not."""
        self._text = text
        self._columns = columns
        self._forms: dict[tuple[bool, ...], tuple[str, itemgetter[tuple[Any, ...]]]] = {}

    def one(self, db: sqlite3.Connection, *row: Any) -> None:
        """Write one row."""
        self.all(db, [row])

    def all(self, db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> int:
        """Write *rows*, those with the same gaps next to each other at once, and return how many were written."""
        written = 0
        for filled, alike in groupby(rows, key=_filled):
            text, values_of = self._form_of(tuple(filled))
            # One row at a time: with thousands of them at once, Python's garbage collector takes half of the time.
            written += db.executemany(text, map(values_of, alike)).rowcount
        return written

    def _form_of(self, filled: tuple[bool, ...]) -> tuple[str, itemgetter[tuple[Any, ...]]]:
        """The statement for rows with these gaps, and what picks their values."""
        if filled not in self._forms:
            full = list(compress(self._columns, filled))
            empty = [name for name in self._columns if name not in full]
            self._forms[filled] = self._text(full, empty), itemgetter(*compress(count(), filled))
        return self._forms[filled]


def _filled(row: Sequence[Any]) -> list[bool]:
    return [value is not None for value in row]


def inserting(table: str, *columns: str) -> Writing:
    """A statement that adds rows to *table*."""
    return Writing(
        lambda full, _: f"INSERT INTO {table} ({', '.join(full)}) VALUES ({', '.join('?' for _ in full)})", *columns
    )


def updating(table: str, where: str, *columns: str, always: str | None = None) -> Writing:
    """A statement that changes the rows of *table* that *where* is about, and *always* does something else besides."""
    besides = () if always is None else (always,)
    return Writing(
        lambda full, empty: (
            f"UPDATE {table} SET {', '.join([f'{n} = ?' for n in full] + [f'{n} = NULL' for n in empty] + [*besides])} "
            f"WHERE {where}"
        ),
        *columns,
    )
