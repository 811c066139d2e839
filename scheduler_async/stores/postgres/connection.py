"""A connection to PostgreSQL that is opened when it is needed, and opened anew when it has broken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler_async.errors import StoreError

try:
    import asyncpg
except ImportError:  # it is an extra: `PostgresStore` says how to install it
    asyncpg = None

if TYPE_CHECKING:
    from asyncpg import Connection

# How long closing may take: what was asked before is answered first.
CLOSE_TIMEOUT = 3.0  # seconds

T = TypeVar("T")


class Link:
    """A connection that one task at a time uses. It is opened when it is needed, and opened anew when it has broken."""

    def __init__(
        self,
        connect: Callable[[dict[str, str], float], Awaitable[Connection]],
        patience: float,
        settings: dict[str, str],
        *,
        prepare: Callable[[Connection, bool], Awaitable[None]] | None = None,
        total: bool = False,
    ) -> None:
        """*patience* is for one statement, or with *total* for all of it; *prepare* is told whether it is the first."""
        self.patience = patience
        self._connect, self._settings = connect, settings
        self._prepare = prepare
        self._total = patience if total else None
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._was_connected = False

    async def transact(self, begin: str, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work*, all of it or nothing; *begin* begins the transaction."""
        return await self._use(self._in_transaction, work, begin, *args)

    async def ask(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* that changes nothing."""
        return await self._use(self._first, work, *args)

    async def _use(self, how: Callable[..., Awaitable[T]], work: Callable[..., Awaitable[T]], *args: Any) -> T:
        async with self._lock, asyncio.timeout(self._total):
            try:
                return await how(work, *args)
            except BaseException as error:
                await self._tidy_up(error)
                raise

    async def _in_transaction(self, work: Callable[..., Awaitable[T]], begin: str, *args: Any) -> T:
        connection = await self._first(_begin, begin)
        answer = await work(connection, *args)
        await connection.execute("COMMIT")
        return answer

    async def _first(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* that changes nothing; on a new connection if the old one was lost while nobody used it."""
        was_connected = self._connection is not None
        try:
            return await work(await self._ready(), *args)
        except (TimeoutError, StoreError):
            raise
        except LOST:
            if not was_connected:
                raise
            self._drop()
            return await work(await self._ready(), *args)

    async def _ready(self) -> Connection:
        if self._connection is not None and self._connection.is_closed():
            self._connection = None
        if self._connection is None:
            self._connection = await self._connect(self._settings, self.patience)
            self._event_loop = asyncio.get_running_loop()
            if self._prepare is not None:
                await self._prepare(self._connection, not self._was_connected)
            self._was_connected = True
        return self._connection

    async def _tidy_up(self, error: BaseException) -> None:
        """Leave no transaction open, whatever happened."""
        connection = self._connection
        if connection is None or connection.is_closed():
            self._connection = None
        elif isinstance(error, (asyncio.CancelledError, *LOST)) and not isinstance(error, StoreError):
            self._drop()  # who knows what it would answer next
        elif connection.is_in_transaction():
            try:
                await connection.execute("ROLLBACK")
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RuntimeError):  # the event loop it belongs to may have ended
                connection.terminate()

    async def close(self) -> None:
        """Let go of the connection, as politely as that goes: what was asked is answered first."""
        if self._event_loop is not asyncio.get_running_loop():
            self._drop()
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT), self._lock:
                if self._connection is not None:
                    await self._connection.close()
        except LOST:
            pass  # it is closed all the same
        finally:
            self._drop()


async def _begin(db: Connection, begin: str) -> Connection:
    await db.execute(begin)
    return db


LOST: tuple[type[Exception], ...] = (
    ()
    if asyncpg is None
    else (
        asyncpg.PostgresConnectionError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # its word for a connection that it has not yet noticed to be lost
        asyncpg.OperatorInterventionError,
        OSError,
    )
)
