"""A connection to PostgreSQL that opens on demand, and opens again after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler_async.errors import StoreError
from scheduler_async.schedules.patience import IN_TRANSACTION

try:
    import asyncpg
except ImportError:  # an extra; `PostgresStore` tells how to install it
    asyncpg = None

if TYPE_CHECKING:
    from asyncpg import Connection

# How long closing may take. Statements in progress finish first.
CLOSE_TIMEOUT = 3.0  # seconds

T = TypeVar("T")


class Link:
    """A connection for one task at a time. It opens on demand, and opens again after it broke."""

    def __init__(
        self,
        connect: Callable[[dict[str, str], float], Awaitable[Connection]],
        patience: float,
        settings: dict[str, str],
        *,
        prepare: Callable[[Connection, bool], Awaitable[None]] | None = None,
        total: bool = False,
    ) -> None:
        """Prepare a connection, without opening it.

        *patience* limits one statement, or with *total* all of the work. *prepare* is called with each new connection,
        and with whether it is the first.
        """
        self.patience = patience
        self._connect, self._settings = connect, settings
        self._prepare = prepare
        self._total = patience if total else None
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._was_connected = False

    async def transact(self, begin: str, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* in a transaction that *begin* starts. Roll back if it raises."""
        return await self._use(self._in_transaction, work, begin, *args)

    async def tell(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* of one statement that changes something. It is not repeated if the connection is lost."""
        return await self._use(self._once, work, *args)

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
        inside = IN_TRANSACTION.set(True)
        try:
            answer = await work(connection, *args)
        finally:
            IN_TRANSACTION.reset(inside)
        await connection.execute("COMMIT")
        return answer

    async def _once(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await work(await self._ready(), *args)

    async def _first(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Do *work* that changes nothing. If the connection was lost, do it again on a new one."""
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
        """Roll back an open transaction after any error."""
        connection = self._connection
        if connection is None or connection.is_closed():
            self._connection = None
        elif isinstance(error, (asyncio.CancelledError, *LOST)) and not isinstance(error, StoreError):
            self._drop()  # its next answer could belong to this statement
        elif connection.is_in_transaction():
            try:
                await connection.execute("ROLLBACK")
            except BaseException:
                self._drop()
                raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RuntimeError):  # its event loop may be closed
                connection.terminate()

    async def close(self) -> None:
        """Close the connection. Statements in progress finish first."""
        if self._event_loop is not asyncio.get_running_loop():
            self._drop()
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT), self._lock:
                if self._connection is not None:
                    await self._connection.close()
        except LOST:
            pass  # it is closed anyway
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
        asyncpg.InternalClientError,  # asyncpg raises it for a lost connection that it has not noticed yet
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.CannotConnectNowError,
        asyncpg.DatabaseDroppedError,
        asyncpg.IdleSessionTimeoutError,
        OSError,
    )
)
