"""A way to the server that can be cut: what is sent meanwhile arrives when it is mended, or never."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Partition:
    """Forwards a port of this machine to the socket of a server, until it is told not to. In a thread of its own."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="partition", daemon=True)
        self._flows = asyncio.Event()
        self._pumps: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.port: int = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def mend(self) -> None:
        """What was sent meanwhile arrives, and all that follows."""
        self._loop.call_soon_threadsafe(self._flows.set)

    async def _serve(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.close()
            return
        for source, target in ((reader, to_server), (from_server, writer)):
            pump = asyncio.ensure_future(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._flows.wait()
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            with suppress(OSError):
                target.close()
