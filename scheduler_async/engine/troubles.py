"""Failures of the store: which part noticed them, whether they are news, and when to try again."""

from __future__ import annotations

import asyncio
from logging import ERROR, INFO

from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.setting import Setting
from scheduler_async.errors import StoreOutdatedError
from scheduler_async.jobs.events import EventKind
from scheduler_async.logs import say

# After the first failure of a store, wait this long; then twice as long each time, up to the last.
FIRST_RETRY, LAST_RETRY = 0.5, 30.0  # seconds


def retry_delay(failures: int) -> float:
    """Return how many seconds to wait after a failure that follows *failures* others."""
    return min(FIRST_RETRY * 2.0**failures, LAST_RETRY)


class Troubles:
    """Does the store work, and if not, why not?"""

    def __init__(self, setting: Setting, announcer: Announcer) -> None:
        self._setting, self._announcer = setting, announcer
        self._by_part: dict[str, str] = {}
        self.outdated: str | None = None
        """Why this process may start no more runs: a newer version has upgraded the store."""
        self.works_again = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._by_part)

    def __contains__(self, part: str) -> bool:
        return part in self._by_part

    @property
    def first(self) -> str | None:
        """Return the failure that was noticed first."""
        return next(iter(self._by_part.values()), None)

    def report(self, part: str, error: Exception) -> None:
        """Note that the store fails for *part*; announce it once, until the store works for all parts again."""
        is_news = not self._by_part
        self._by_part[part] = str(error) or type(error).__name__
        if is_news:
            self._announce(EventKind.STORE_FAILED, self._by_part[part])

    def are_over_for(self, part: str) -> bool:
        """Note that the store works for *part*; return whether it failed before."""
        was_in_trouble = self._by_part.pop(part, None) is not None
        if was_in_trouble and not self._by_part:
            say(INFO, "The store works again")
            self._announce(EventKind.STORE_RECOVERED, None)
        return was_in_trouble

    async def check_store(self) -> None:
        """Notice that a newer version has upgraded the store; raise `StoreError` if the store cannot be used at all."""
        try:
            await self._setting.ask(self._setting.store.check())
        except StoreOutdatedError as error:
            self.note_outdated(error)

    def note_outdated(self, error: StoreOutdatedError) -> None:
        """Start no more runs, since a newer version has upgraded the store. Runs in progress end and are recorded."""
        if self.outdated is None:
            self.outdated = str(error)
            say(ERROR, "%s This process starts no more runs; those in progress continue", error)
            self._announce(EventKind.STORE_FAILED, self.outdated)

    def _announce(self, kind: EventKind, reason: str | None) -> None:
        self._announcer.tell(kind, self._setting.clock.micros(), reason=reason)
