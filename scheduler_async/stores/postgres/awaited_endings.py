"""Endings of runs that callers wait for in other processes, and the notifications about them.

A notification slows down all commits of the server. So a node sends none about its endings, unless a process has asked
for one: when the first caller of a process waits for a run, it lets all other processes know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakValueDictionary

AWAIT: Final = "await"
ENDED: Final = "ended"
"""The texts of notifications after the sender, followed by the ids of runs."""

# A process remembers at most this many runs that others wait for. Of more runs, those that have waited for longest are
# forgotten, and their waiters notice the ending when they look.
MOST_AWAITED = 1_000
# A notification must have fewer than 8,000 bytes.
MOST_TOLD = 300


class AwaitedEndings:
    """Which runs do other processes wait for, and which ones does this process wait for?"""

    def __init__(self) -> None:
        self._elsewhere: dict[int, None] = {}  # in the order in which they were heard of
        self._here: WeakValueDictionary[int, asyncio.Event] = WeakValueDictionary()

    def event_of(self, run: int) -> tuple[asyncio.Event, bool]:
        """Return the event that is set when another process has ended *run*, and whether it is a new one."""
        event = self._here.get(run)
        if event is not None:
            return event, False
        event = self._here[run] = asyncio.Event()
        return event, True

    def ended(self, runs: Iterable[int]) -> list[str]:
        """Wake those of this process that wait for *runs*, which have ended. Return the texts to send to others.

        Usually no process waits for any of them.
        """
        if not self._elsewhere and not self._here:
            return []
        awaited = []
        for run in runs:
            self._wake(run)
            if run in self._elsewhere:
                del self._elsewhere[run]
                awaited.append(run)
        return [
            " ".join([ENDED, *map(str, awaited[first : first + MOST_TOLD])])
            for first in range(0, len(awaited), MOST_TOLD)
        ]

    def hear(self, words: Sequence[str]) -> bool:
        """Take a notification of another process. Return False if it is about something else, or cannot be read."""
        if not words or words[0] not in (AWAIT, ENDED):
            return False
        try:
            runs = [int(word) for word in words[1:]]
        except ValueError:
            return False
        for run in runs:
            if words[0] == AWAIT:
                self._elsewhere[run] = None
            else:
                self._wake(run)
        while len(self._elsewhere) > MOST_AWAITED:
            del self._elsewhere[next(iter(self._elsewhere))]
        return True

    def _wake(self, run: int) -> None:
        event = self._here.pop(run, None)
        if event is not None:
            event.set()
