"""A connection to SQLite and its thread: how work reaches the thread, how answers come back, and how both end.

The thread is aiosqlite's. To wake it takes longer than a small transaction. So pieces of work that tasks hand over at
about the same time go to the thread together, and their answers come back together. Transactions among them share a
commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import aiosqlite

from scheduler_async.shielding import carried_through
from scheduler_async.stores.unreadable import decoded

# Another program may lock the file briefly. A longer lock is reported, and the work is tried again.
BUSY_TIMEOUT = 5.0  # seconds

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], Any]


class Outcome(NamedTuple):
    """What came of a piece of work: its result, or the exception that it raised."""

    result: Any = None
    error: BaseException | None = None


Together = Callable[[sqlite3.Connection, Sequence[Work]], Sequence[Outcome]]
"""Does several pieces of work. If it raises, it has done none of them."""


class ConnectionClosedError(Exception):
    """The connection was closed, and can do nothing more."""


class _Piece(NamedTuple):
    """A piece of work on its way to the thread, and back."""

    work: Work
    together: Together | None
    answer: asyncio.Future[Any]


class Connection:
    """A connection without automatic transactions. All work is done on its thread, in the order of the calls."""

    def __init__(self, path: str) -> None:
        self._event_loop = asyncio.get_running_loop()
        self._waiting: list[_Piece] = []
        self._is_closed = False
        self._link = aiosqlite.connect(
            path,
            timeout=BUSY_TIMEOUT,
            isolation_level=None,
            cached_statements=64,
            check_same_thread=False,  # another thread closes it if the event loop is closed
        )
        # A program that ends without stop() must not wait for this thread forever.
        thread = self._link._thread
        thread.daemon = True
        thread.run = partial(_until_loop_is_closed, thread.run)  # type: ignore[method-assign]

    async def open(self) -> None:
        """Open the file."""
        try:
            await self._link
        except BaseException as error:
            self._is_closed = True
            if isinstance(
                error, sqlite3.Error
            ):  # the thread tells this event loop of its end, so it must still be open
                self._link._thread.join()
            raise

    async def call(self, work: Callable[..., T], *args: Any, together: Together | None = None) -> T:
        """Do *work* on the thread, in one hop.

        With *together*, this function does all pieces of work that are handed over at about the same time. If the
        caller is cancelled, the thread finishes the work all the same before the cancellation goes on.
        """
        answer = self._hand_over(lambda db: work(db, *args), together)
        try:
            result: T = await answer
        except asyncio.CancelledError:
            if not self._is_closed:
                await carried_through(self._hand_over(lambda _: None))  # all earlier work is done then
            raise
        return result

    def _hand_over(self, work: Work, together: Together | None = None) -> asyncio.Future[Any]:
        if self._is_closed:
            raise ConnectionClosedError
        answer = self._event_loop.create_future()
        self._waiting.append(_Piece(work, together, answer))
        if len(self._waiting) == 1:
            self._event_loop.call_soon(self._send)  # tasks that go on until then may add to it
        return answer

    def _send(self) -> None:
        """Put all that waits into aiosqlite's queue as one call.

        Its public methods are coroutines: a task for each journey would cost more than a small transaction, and a
        program that cancels all tasks would lose the answers.
        """
        if self._waiting:
            pieces, self._waiting = self._waiting, []
            journey: asyncio.Future[list[tuple[_Piece, Outcome]]] = self._event_loop.create_future()
            journey.add_done_callback(_answer)
            self._link._tx.put_nowait((journey, partial(_done, self._link._conn, pieces)))

    async def close(self) -> None:
        """Finish all work that was handed over, and close the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._send()
            await carried_through(self._link.close())

    def abandon(self) -> None:
        """Close a connection whose event loop is closed. Its thread may be dead already."""
        self._is_closed = True
        self._link.stop()
        self._link._thread.join()
        if self._link._connection is not None:
            self._link._connection.close()
            self._link._connection = None


def _until_loop_is_closed(run: Callable[[], None]) -> None:
    """End the thread silently if its event loop was closed because stop() was not called."""
    try:
        run()
    except RuntimeError as error:
        if str(error) != "Event loop is closed":
            raise


def _answer(journey: asyncio.Future[list[tuple[_Piece, Outcome]]]) -> None:
    """Give the callers their answers."""
    for piece, (result, error) in journey.result():
        if piece.answer.done():  # its caller was cancelled
            continue
        if error is None:
            piece.answer.set_result(result)
        else:
            piece.answer.set_exception(error)


def _done(db: sqlite3.Connection, pieces: Sequence[_Piece]) -> list[tuple[_Piece, Outcome]]:
    """Do *pieces* of work in their order, those next to each other together that can be."""
    answers: list[tuple[_Piece, Outcome]] = []
    for together, some in groupby(pieces, key=lambda piece: piece.together):
        group = list(some)
        works = [piece.work for piece in group]
        if together is None:
            outcomes: Sequence[Outcome] = [outcome_of(_with_any_text, db, partial(work, db)) for work in works]
        else:
            done = outcome_of(_with_any_text, db, partial(together, db, works))
            outcomes = [done] * len(works) if done.error is not None else done.result
        answers += zip(group, outcomes, strict=True)
    return answers


def outcome_of(work: Callable[..., Any], *args: Any) -> Outcome:
    """Do *work*, and return what came of it."""
    try:
        return Outcome(work(*args))
    except BaseException as error:  # the caller gets it
        return Outcome(error=error)


def _with_any_text(db: sqlite3.Connection, work: Callable[[], T]) -> T:
    try:
        return work()
    except sqlite3.OperationalError as error:
        if db.text_factory is not str or not is_undecodable(error):
            raise
    # Switch to a slower text factory that accepts any bytes. Invalid UTF-8 is detected when the row is read.
    db.text_factory = decoded
    return work()


def is_undecodable(error: BaseException) -> bool:
    """Return whether a query has met text that is not valid UTF-8."""
    return isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)
