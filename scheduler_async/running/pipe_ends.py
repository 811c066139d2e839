"""Ends of pipes and of socket pairs that belong to this process alone: a child that it forks does not keep them.

A forked child has a copy of every descriptor. A reader that waits for the last writer to go, to learn that a process
has ended, would wait for that child too. So the child closes its copies first. This covers every fork that Python
knows of: `os.fork`, `multiprocessing`, and C code that calls `PyOS_AfterFork_Child`.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from threading import RLock
from types import TracebackType
from typing import Self


class Ends:
    """The ends that a `with` block opens. Leaving the block closes those that are still open."""

    def __init__(self) -> None:
        self._opened: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(*self._opened)

    def pipe(self) -> tuple[int, int]:
        """Open a pipe: the end to read from, and the end to write to."""
        with _forking:
            return self._keep(*os.pipe())

    def sockets(self, timeout: int) -> tuple[int, int]:
        """Open two connected sockets. Reading from the first fails after *timeout* seconds without data."""
        with _forking:
            one, other = socket.socketpair()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", timeout, 0))
            return self._keep(one.detach(), other.detach())

    def close(self, *ends: int) -> None:
        """Close *ends* where they are open. In a forked child they are closed, and their numbers may be taken."""
        for end in ends:
            if _owners.get(end) is self:
                del _owners[end]
                os.close(end)

    def _keep(self, one: int, other: int) -> tuple[int, int]:
        self._opened += one, other
        _owners[one] = _owners[other] = self
        return one, other


_owners: dict[int, Ends] = {}
# A fork in another thread waits until a new end has its owner. Reentrant: a signal handler may fork as well.
_forking = RLock()


def _close_copies() -> None:
    for end in _owners:
        with suppress(OSError):
            os.close(end)
    _owners.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_close_copies)
