"""Statements that write many rows to PostgreSQL at once, an array for each column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncpg import Connection


def rows_of(types: Mapping[str, str], first: int = 1) -> str:
    """Return a table `c` of parameters, starting at number *first*, with one array for each column."""
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types.values(), first))
    return f"unnest({arrays}) AS c ({', '.join(types)})"


def inserting(table: str, types: Mapping[str, str], where: str = "true") -> str:
    """Return a statement that adds rows to *table*."""
    columns = ", ".join(types)
    return f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {rows_of(types)} WHERE {where}"


def updating(
    table: str, key: str, types: Mapping[str, str], first: int = 1, always: str = "", where: str = "true"
) -> str:
    """Return a statement that updates the rows of *table* with this *key*, which is the last column."""
    rows = rows_of({**types, key: "bigint"}, first)
    return f"UPDATE {table} AS t SET {set_to(types)}{always} FROM {rows} WHERE t.{key} = c.{key} AND {where}"


def set_to(names: Iterable[str]) -> str:
    """Return assignments from the columns of `c` with the same names."""
    return ", ".join(f"{name} = c.{name}" for name in names)


def columns_of(rows: Iterable[Sequence[Any]], width: int = 0) -> list[Sequence[Any]]:
    """Return rows as columns, one array each. *width* is the number of columns if there are no rows.

    A column that contains only nulls becomes an empty array, because `unnest` pads shorter arrays with nulls.
    """
    return [() if column.count(None) == len(column) else column for column in zip(*rows, strict=True)] or [()] * width


async def write_rows(db: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Write *rows*, if there are any."""
    if rows:
        await db.execute(statement, *columns_of(rows))
