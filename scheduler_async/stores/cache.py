"""What is remembered, so that it need not be asked for again: the newest of it, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Values up to this size are only counted: to add up all sizes would take longer than to remember them.
SMALL = 1024  # bytes


class Cache(Generic[K, V]):
    """Values by key, up to so many, and up to so many bytes in all that are large. The oldest are forgotten first.

    Several threads may use it.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[K, V] = OrderedDict()
        self._large: OrderedDict[K, int] = OrderedDict()  # the sizes of those that are
        self._bytes = 0
        self._lock = Lock()
        self.get = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Remember *value*, which takes about *size* bytes, and forget what is beyond the bounds."""
        self._values[key] = value
        if size > SMALL or key in self._large:
            self._note_size(key, size)
        if len(self._values) > self._most:
            oldest, _ = self._values.popitem(last=False)
            self.pop(oldest)

    def pop(self, key: K) -> None:
        """Forget the value of *key*, if there is one."""
        self._values.pop(key, None)
        if key in self._large:
            self._note_size(key, 0)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._large.clear()
            self._bytes = 0

    def _note_size(self, key: K, size: int) -> None:
        with self._lock:
            self._bytes -= self._large.pop(key, 0)
            if size > SMALL:
                self._large[key] = size
                self._bytes += size
            while self._bytes > self._most_bytes:
                oldest, freed = self._large.popitem(last=False)
                self._values.pop(oldest, None)
                self._bytes -= freed
