"""Statements that write many rows at once, and bind only what is not usual."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.stores.sqlite.bulk_writes import AT_ONCE, inserting, updating

USUAL = {"a": 0, "c": "same"}
INSERT = inserting("t", "id", "a", "b", "c", usual=USUAL)
UPDATE = updating("t", ["id"], "a", "b", always="c = 'changed'", usual=USUAL)
MANY = AT_ONCE[0] * 2 + sum(AT_ONCE[1:-1]) + 3  # whole statements of each size, and some rows one by one


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    db = new_table()
    yield db
    db.close()


def new_table() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT, c TEXT NOT NULL) STRICT")
    return db


def all_of(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT * FROM t ORDER BY id").fetchall()


@pytest.mark.parametrize("count", [0, *AT_ONCE, MANY])
def test_as_many_rows_are_written_as_there_are(count: int, db: sqlite3.Connection) -> None:
    rows = [(number, number * 10, f"{number}", "same") for number in range(count)]

    written = INSERT.all(db, iter(rows))

    assert written == count
    assert all_of(db) == rows


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=MANY))
def test_gaps_are_gaps(values: list[tuple[int | None, str | None]]) -> None:
    """Whatever the rows before and after them hold; and an update restores what is usual."""
    values = [(a, None if b is None else b.replace("\0", "")) for a, b in values]
    db = new_table()
    INSERT.all(db, [(number, *row, "same") for number, row in enumerate(values)])
    inserted = all_of(db)
    turned = [*reversed(values)]

    written = UPDATE.all(db, [(*row, number) for number, row in enumerate(turned)])

    assert inserted == [(number, *row, "same") for number, row in enumerate(values)]
    assert written == len(values)
    assert all_of(db) == [(number, *row, "changed") for number, row in enumerate(turned)]
    db.close()


def test_only_rows_that_are_found_are_counted_and_changed(db: sqlite3.Connection) -> None:
    """A run that was taken over must not write: who counts the rows knows."""
    INSERT.all(db, [(number, number, "x", "same") for number in range(MANY)])
    guarded = updating("t", ["id", "a"], "b", where="c = 'same'")
    db.execute("UPDATE t SET c = 'other' WHERE id = 1")

    written = guarded.all(db, [("y", number, number if number != 2 else 99) for number in range(MANY + 5)])

    assert written == MANY - 2
    assert [row[0] for row in all_of(db) if row[2] == "x"] == [1, 2]


def test_what_is_there_already_can_be_left_alone(db: sqlite3.Connection) -> None:
    gently = inserting("t", "id", "a", "c", verb="INSERT OR IGNORE", usual={"c": "new"})
    INSERT.one(db, 5, 1, "b", "same")

    written = gently.all(db, [(number, 2, "new") for number in range(MANY)])

    assert written == MANY - 1
    assert all_of(db)[5] == (5, 1, "b", "same")
