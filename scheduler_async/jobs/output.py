"""What a run writes. The last of it is kept with the run. Pure."""

from __future__ import annotations

from collections import deque
from threading import Lock

KEPT = 64 * 1024  # bytes


# One for all: nobody holds it for long, and most runs write nothing.
_lock = Lock()


class Output:
    """The last 64 KiB of what was written, by any thread."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: deque[bytes] | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Add *data*, and forget what is older than the last 64 KiB."""
        # Copied, and refused at once if it is not a run of bytes: when the run ends would be too late.
        data = bytes(memoryview(data).cast("B")[-KEPT:])
        with _lock:
            if self._parts is None:
                self._parts = deque()
            self._parts.append(data)
            self._size += len(data)
            while self._size - len(self._parts[0]) >= KEPT:
                self._size -= len(self._parts.popleft())

    def text(self) -> str | None:
        """What is kept, or None if nothing was written. What is no UTF-8 shows as �."""
        if self._parts is None:
            return None
        with _lock:
            kept = b"".join(self._parts)[-KEPT:]
        # The cut may have gone through a character: what is left of it is left out.
        start = next((at for at, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0) if len(kept) == KEPT else 0
        return kept[start:].decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}") or None
