"""The output of a run, limited to its last 64 KiB. Pure."""

from __future__ import annotations

from collections import deque
from threading import Lock

KEPT = 64 * 1024  # bytes


# One lock for all runs: threads hold it only briefly, and most runs write nothing.
_lock = Lock()


class Output:
    """The last 64 KiB of a run's output. Any thread may write to it."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: deque[bytes] | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append *data*, and drop all but the last 64 KiB."""
        # Copy now, so that a value that is not bytes raises here and not when the run ends.
        data = bytes(memoryview(data).cast("B")[-KEPT:])
        with _lock:
            if self._parts is None:
                self._parts = deque()
            self._parts.append(data)
            self._size += len(data)
            while self._size - len(self._parts[0]) >= KEPT:
                self._size -= len(self._parts.popleft())

    def text(self) -> str | None:
        """Return the output as text, or None if the run wrote nothing. Invalid UTF-8 becomes �."""
        if self._parts is None:
            return None
        with _lock:
            kept = b"".join(self._parts)[-KEPT:]
        # The cut may split a character: drop the rest of it.
        start = next((at for at, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0) if len(kept) == KEPT else 0
        return kept[start:].decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}") or None
