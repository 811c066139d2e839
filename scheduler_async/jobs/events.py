"""Events, sent to readers after the store has committed them. A slow reader never slows the scheduler."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, Self
from weakref import ref

from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.json_forms import Form, form_of
from scheduler_async.jobs.run import Ending, Run, RunRow

# A reader that falls further behind loses the oldest events.
MAX_UNREAD = 1_000


class EventKind(StrEnum):
    """The kind of an event."""

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
    """A change of the scheduler, a job or a run."""

    kind: EventKind
    at: datetime
    job: Job | None = None
    """The job after the event. None if the event does not concern a job."""
    run: RunRow | None = None
    """The row of the run log. None if the event does not concern a run."""
    reason: SkipReason | str | None = None
    """The reason, for skipped runs, disabled jobs and problems."""
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    """What the handler of a failed run raised. Only the process that ran it has it."""

    def to_json(self) -> Form:
        """Return the event as JSON knows it. The `error` of its run stands for the exception."""
        return form_of(self, ("kind", "at", "job", "run", "reason"))


class Observer(Protocol):
    """Receives every event immediately, on the event loop. It must be fast, and must not raise."""

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        """Prepare the context of *run*. The scheduler then calls the handler in it.

        Return a function that the scheduler calls with the ending and the exception when the handler has ended. The
        ending is None if the scheduler discards the result of the run.
        """

    def heard(self, event: Event) -> None:
        """Receive a committed *event*."""


class EventStream(AsyncIterator[Event]):
    """The events since the creation of the stream, for one reader: `async for event in stream`."""

    def __init__(self, events: Events) -> None:
        self._unread: deque[Event] = deque(maxlen=MAX_UNREAD)
        self._arrived = asyncio.Event()
        self._closed = False
        self._events = events
        self.lost = 0
        """How many events were dropped because the reader was too slow."""

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
        """End the stream after the unread events."""
        self._closed = True
        self._arrived.set()

    def put(self, event: Event) -> None:
        """Add an event. Drop the oldest event if too many are unread."""
        if len(self._unread) == MAX_UNREAD:
            self.lost += 1
        self._unread.append(event)
        self._arrived.set()


class Events:
    """All streams and observers. A stream is dropped when nothing references it."""

    def __init__(self) -> None:
        # `has_listeners` is called far more often than `tell`, and a WeakSet is slow to test.
        self._streams: set[ref[EventStream]] = set()
        self.observers: list[Observer] = []

    @property
    def has_listeners(self) -> bool:
        """Whether any stream or observer receives events."""
        return bool(self.observers or self._streams)

    @property
    def has_readers(self) -> bool:
        """Whether any stream exists. Observers learn of a start through `run_begins`."""
        return bool(self._streams)

    def listen(self) -> EventStream:
        """Return a stream of all events from now on."""
        stream = EventStream(self)
        self._streams.add(ref(stream, self._streams.discard))
        return stream

    def forget(self, stream: EventStream) -> None:
        """Send no more events to *stream*."""
        self._streams.discard(ref(stream))

    def close(self) -> None:
        """End all streams after their unread events."""
        for stream in self._readers():
            stream.close()
        self._streams.clear()

    def tell(self, event: Event) -> None:
        """Send *event* to all observers and streams."""
        for observer in self.observers:
            observer.heard(event)
        for stream in self._readers():
            stream.put(event)

    def _readers(self) -> list[EventStream]:
        return [stream for known in list(self._streams) if (stream := known()) is not None]
