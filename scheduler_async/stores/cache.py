"""A cache of the newest values, with limits on their number and size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Smaller values are only counted, because adding up all sizes would take longer than caching them.
SMALL = 1024  # bytes


class Cache(Generic[K, V]):
    """Values by key, limited in number, and in total bytes of the large values. The oldest values are dropped first.

    Several threads may use it.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[K, V] = OrderedDict()
        self._large: OrderedDict[K, int] = OrderedDict()  # the sizes of large values
        self._bytes = 0
        self._lock = Lock()
        self.get = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Store *value*, which takes about *size* bytes, and drop the oldest values beyond the limits."""
        self._values[key] = value
        if size > SMALL or key in self._large:
            self._note_size(key, size)
        if len(self._values) > self._most:
            oldest, _ = self._values.popitem(last=False)
            self.pop(oldest)

    def pop(self, key: K) -> None:
        """Drop the value of *key*, if there is one."""
        self._values.pop(key, None)
        if key in self._large:
            self._note_size(key, 0)

    def clear(self) -> None:
        """Drop all values."""
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
