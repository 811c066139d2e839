"""What observers are told, and when: after it has been committed, and without ever slowing the scheduler."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, Self
from weakref import ref

from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Ending, Run, RunRow

# A reader who falls further behind loses the oldest events.
MAX_UNREAD = 1_000


class EventKind(StrEnum):
    """What happened."""

    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"
    PAUSED = "paused"
    RESUMED = "resumed"
    DISABLED = "disabled"
    RUN_STARTED = "run_started"
    RUN_FINISHED = "run_finished"
    RUN_SKIPPED = "run_skipped"
    CLOCK_JUMPED = "clock_jumped"
    STORE_FAILED = "store_failed"
    STORE_RECOVERED = "store_recovered"
    LOOP_BLOCKED = "loop_blocked"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, and what it happened to."""

    kind: EventKind
    at: datetime
    job: Job | None = None
    run: RunRow | None = None
    reason: SkipReason | str | None = None


class Observer(Protocol):
    """Somebody who is told everything at once, on the event loop, and so is quick and never raises."""

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        """Called in the context of *run*, before its handler: what is set there, the handler finds.

        What it returns is told how the handler ended and with which exception; no ending is of no interest any more.
        """

    def heard(self, event: Event) -> None:
        """Something happened, and is committed."""


class EventStream(AsyncIterator[Event]):
    """Events from the moment it was made, for one reader."""

    def __init__(self, events: Events) -> None:
        self._unread: deque[Event] = deque(maxlen=MAX_UNREAD)
        self._arrived = asyncio.Event()
        self._closed = False
        self._events = events
        self.lost = 0
        """How many events this reader was too slow for."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._unread:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._unread.popleft()

    async def aclose(self) -> None:
        """Stop reading."""
        self._events.forget(self)
        self.close()

    def close(self) -> None:
        """End after what is unread."""
        self._closed = True
        self._arrived.set()

    def put(self, event: Event) -> None:
        """Tell the reader, who may be slow."""
        if len(self._unread) == MAX_UNREAD:
            self.lost += 1
        self._unread.append(event)
        self._arrived.set()


class Events:
    """All who listen. A stream that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._streams: set[ref[EventStream]] = set()  # asked far more often than told: a WeakSet would take long
        self.observers: list[Observer] = []

    @property
    def has_listeners(self) -> bool:
        """Whether it is worth telling."""
        return bool(self.observers or self._streams)

    @property
    def has_readers(self) -> bool:
        """Whether it is worth telling what observers have learned by `run_begins`."""
        return bool(self._streams)

    def listen(self) -> EventStream:
        """A stream of what happens from now on."""
        stream = EventStream(self)
        self._streams.add(ref(stream, self._streams.discard))
        return stream

    def forget(self, stream: EventStream) -> None:
        """Tell *stream* nothing more."""
        self._streams.discard(ref(stream))

    def close(self) -> None:
        """End all streams, after what is unread."""
        for stream in self._readers():
            stream.close()
        self._streams.clear()

    def tell(self, event: Event) -> None:
        """Tell everybody."""
        for observer in self.observers:
            observer.heard(event)
        for stream in self._readers():
            stream.put(event)

    def _readers(self) -> list[EventStream]:
        return [stream for known in list(self._streams) if (stream := known()) is not None]
