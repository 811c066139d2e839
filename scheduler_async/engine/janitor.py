"""Removes old runs and changes, removed jobs, and jobs that have been disabled for long or have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from logging import ERROR
from typing import TypeVar

from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.troubles import Troubles
from scheduler_async.errors import StoreOutdatedError
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.logs import say
from scheduler_async.stores.messages import PURGED
from scheduler_async.timekeeping.instants import DAY, Micros, span

# How often old runs are removed, for how many jobs at a time, and among how many jobs they are looked for.
UPKEEP = 60.0  # seconds
LONGEST_UPKEEP_PAUSE = 86_400.0  # seconds, while no job has enough new runs
# What is to be kept for a time is removed at most 1/24 of that time late, and a minute.
LOOKS_PER_TIME_KEPT = 24
UPKEEP_SLICE = 100
UPKEEP_LOOK = 2_000

# How long changes of jobs, and the lives of nodes, can be asked for.
KEEP_HISTORY: Micros = 90 * DAY

# New rows are counted for so many jobs. Beyond that, all jobs with new rows are looked at.
MOST_GROWN = 100_000

T = TypeVar("T")


class Janitor:
    """What is old enough to be removed, and when?"""

    def __init__(
        self, setting: Setting, announcer: Announcer, clock_watch: ClockWatch, troubles: Troubles, deciding: Deciding
    ) -> None:
        self._setting, self._announcer, self._deciding = setting, announcer, deciding
        self._clock_watch, self._troubles = clock_watch, troubles
        self._keep_runs = setting.limits.keep_runs
        self.grown: dict[int, int] = {}
        """How many new rows each job has since its old ones were last removed."""
        self._untidy = asyncio.Event()

    def count_rows(self, uid: int, count: int) -> None:
        """Note that a job has *count* new rows. When it has enough of them, its oldest rows are removed."""
        if self._keep_runs is not None:
            grown = self.grown[uid] = self.grown.get(uid, 0) + count
            if grown > self._keep_runs // 10 or len(self.grown) > MOST_GROWN:
                self._untidy.set()

    async def keep_house(self, halt: asyncio.Event) -> None:
        """Remove old runs and jobs now and then, a few at a time."""
        limits, clock = self._setting.limits, self._setting.clock
        kept = (limits.keep_removed, limits.keep_ended)
        pauses = [time.total_seconds() / LOOKS_PER_TIME_KEPT for time in kept if time is not None]
        while True:
            await clock.wait(halt, UPKEEP)
            try:
                await self.purge()
            except StoreOutdatedError as error:
                self._troubles.note_outdated(error)
            except Exception:
                say(ERROR, "Cannot remove old runs; trying again in %g s", UPKEEP, exc_info=True)
                self._untidy.set()
            if limits.purge_disabled_after is None:
                await clock.wait(self._untidy, min([LONGEST_UPKEEP_PAUSE, *pauses]))

    async def purge(self, threshold: int | None = None) -> None:
        """Remove old runs of jobs with over *threshold* new ones (a tenth of `keep_runs`), and old disabled jobs."""
        self._untidy.clear()
        limits, now = self._setting.limits, self._clock_watch.believed_now()
        if limits.keep_runs is not None:
            await self._purge_runs(limits.keep_runs, threshold, now)
        if limits.keep_removed is not None:
            await self._purge_removed(now - span(limits.keep_removed))
        if limits.keep_ended is not None:
            await self._purge_disabled(now, limits.keep_ended, ended=True)
        if limits.purge_disabled_after is not None:
            await self._purge_disabled(now, limits.purge_disabled_after, ended=False)
        await self._purge_history(now - KEEP_HISTORY)

    async def _purge_runs(self, keep: int, threshold: int | None, now: Micros) -> None:
        ask, store = self._setting.ask, self._setting.store
        if threshold is None:
            threshold = 0 if len(self.grown) > MOST_GROWN else keep // 10
        grown = [uid for uid, count in self.grown.items() if count > threshold]
        for uids in _slices(grown, UPKEEP_LOOK):
            counted = {uid: self.grown[uid] for uid in uids}
            overgrown = await ask(store.overgrown(uids, keep))
            for some in _slices(overgrown, UPKEEP_SLICE):
                await ask(store.purge_runs(some, keep, now))
            for uid in uids:
                self.grown[uid] -= counted[uid]  # there may be newer ones meanwhile
                if not self.grown[uid]:
                    del self.grown[uid]

    async def _purge_removed(self, before: Micros) -> None:
        while await self._setting.ask(self._setting.store.purge_removed(before, UPKEEP_SLICE)) == UPKEEP_SLICE:
            pass

    async def _purge_disabled(self, now: Micros, kept: timedelta, *, ended: bool) -> None:
        ask, clock, store = self._setting.ask, self._setting.clock, self._setting.store
        before = now - span(kept)
        spared = self._setting.declared

        async def purge() -> list[Job]:
            return await ask(store.purge_disabled(before, UPKEEP_SLICE, now, ended=ended, spared=spared))

        while gone := await self._deciding.asked(purge):
            for job in gone:
                self._announcer.tell(EventKind.REMOVED, clock.micros(), job=job, reason=PURGED[ended])

    async def _purge_history(self, before: Micros) -> None:
        while await self._setting.ask(self._setting.store.purge_history(before, UPKEEP_SLICE)) == UPKEEP_SLICE:
            pass


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))
