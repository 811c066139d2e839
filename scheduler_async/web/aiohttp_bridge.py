"""The page in an aiohttp application: requests become ASGI scopes, and what the page sends becomes the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote

from aiohttp import web
from starlette.types import ASGIApp, Message, Scope

REQUEST = "aiohttp.request"
"""Where the scope has the request of aiohttp, for an access rule that needs its session."""

TAIL = "/{tail}"

CHUNK = 16 * 1024  # bytes


def mount(app: web.Application, path: str, page: ASGIApp, close: Callable[[], None]) -> None:
    """Let *page* answer all requests at *path* and below it, and call *close* as soon as the server stops."""

    async def answer(request: web.Request) -> web.StreamResponse:
        resource = request.match_info.route.resource  # with the prefixes of the applications around this one
        root = path if resource is None else resource.canonical.removesuffix(TAIL)
        return await _Bridge(request, root).answer(page)

    async def shut_down(_app: web.Application) -> None:
        close()

    app.router.add_route("*", path, answer)
    app.router.add_route("*", f"{path}/{{tail:.*}}", answer)
    app.on_shutdown.append(shut_down)


class _Bridge:
    """One request on its way to the page, and the answer on its way back."""

    def __init__(self, request: web.Request, root: str) -> None:
        self._request, self._root = request, root
        self._response: web.StreamResponse | None = None
        self._is_read = False

    async def answer(self, page: ASGIApp) -> web.StreamResponse:
        """Return the answer of *page*."""
        with suppress(ConnectionResetError):  # the visitor has left
            await page(self._scope(), self._receive, self._send)
        assert self._response is not None
        return self._response

    def _scope(self) -> Scope:
        request = self._request
        peer = None if request.transport is None else request.transport.get_extra_info("peername")
        raw_path, _, query = request.raw_path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": request.scheme,
            "path": unquote(raw_path),
            "raw_path": raw_path.encode("latin-1", "replace"),
            "query_string": query.encode("latin-1", "replace"),
            "root_path": self._root,
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) and len(peer) >= 2 else None,
            "server": None,
            REQUEST: request,
        }

    async def _receive(self) -> Message:
        if self._is_read:  # the page waits for the end of the connection
            await asyncio.get_running_loop().create_future()
        chunk = await self._request.content.read(CHUNK)
        self._is_read = self._request.content.at_eof()
        return {"type": "http.request", "body": chunk, "more_body": not self._is_read}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._response = web.StreamResponse(status=message["status"])
            for name, value in message.get("headers", ()):
                self._response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
            await self._response.prepare(self._request)
            return
        assert self._response is not None
        body = message.get("body", b"")
        if body and self._request.method != "HEAD":
            await self._response.write(body)
        if not message.get("more_body", False):
            await self._response.write_eof()
