"""A connection to SQLite and its thread: how work reaches the thread, and how both end.

aiosqlite passes each piece of work to the thread of the connection.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import aiosqlite

from scheduler_async.stores.unreadable import decoded
from scheduler_async.timekeeping.clock import SystemClock

# Another program may lock the file briefly. A longer lock is reported, and the work is tried again.
BUSY_TIMEOUT = 5.0  # seconds

T = TypeVar("T")


async def connect(path: str) -> aiosqlite.Connection:
    """Open a connection, without automatic transactions."""
    connection = aiosqlite.connect(
        path,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        factory=_Connection,
        cached_statements=64,
        check_same_thread=False,  # another thread closes it if its own dies
    )
    # A program that ends without stop() must not wait for this thread forever.
    thread = connection._thread
    thread.daemon = True
    thread.run = partial(_until_loop_is_closed, thread.run)  # type: ignore[method-assign]
    try:
        return await connection
    except sqlite3.Error:
        # It reports to this event loop before it ends, so the loop must still be open.
        await _end_of_thread(connection)
        raise


async def call(connection: aiosqlite.Connection, work: Callable[..., T], *args: Any) -> T:
    """Do *work* on the thread of the connection, in one hop."""
    return await connection.execute_fetchall(work, args)  # type: ignore[return-value]


def _until_loop_is_closed(run: Callable[[], None]) -> None:
    """End the thread silently if its event loop was closed because stop() was not called."""
    try:
        run()
    except RuntimeError as error:
        if str(error) != "Event loop is closed":
            raise


async def abandon(connection: aiosqlite.Connection) -> None:
    """Close a connection whose event loop is closed. Its thread may be dead already."""
    connection.stop()
    await _end_of_thread(connection)
    if connection._connection is not None:
        connection._connection.close()
        connection._connection = None


async def _end_of_thread(connection: aiosqlite.Connection) -> None:
    while connection._thread.is_alive():
        await SystemClock().wait(asyncio.Event(), 0.001)


class _Connection(sqlite3.Connection):
    """A connection that also executes functions.

    aiosqlite passes the argument of execute() to the connection on its thread, and fetches all rows there. In this way,
    a function reaches the thread through the public interface.
    """

    def execute(self, sql: Any, parameters: Any = (), /) -> Any:
        if isinstance(sql, str):
            return super().execute(sql, parameters)
        try:
            return _Answer(sql(self, *parameters))
        except sqlite3.OperationalError as error:
            if self.text_factory is not str or "decode to UTF-8" not in str(error):
                raise
        # Switch to a slower text factory that accepts any bytes. Invalid UTF-8 is detected when the row is read.
        self.text_factory = decoded
        return _Answer(sql(self, *parameters))


class _Answer:
    """A cursor for aiosqlite that carries the result of a function."""

    def __init__(self, value: object) -> None:
        self._value = value

    def fetchall(self) -> object:
        return self._value

    def close(self) -> None:
        pass
