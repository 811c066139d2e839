"""Notes in the store when runs of groups with a rate have begun: until then, their starts count for longer.

A claim counts a start before its handler begins. `rules/rates.py` has the arithmetic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from logging import WARNING

from scheduler_async.engine.setting import Setting
from scheduler_async.logs import say
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.rates import Settlement
from scheduler_async.running.active_run import ActiveRun

# How soon to try again after the store has failed.
RETRY_AFTER = 0.2  # seconds


class RatedStarts:
    """Which runs of this process have begun since the store counted their starts?"""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._rates = setting, setting.limits.group_rates
        self._started: list[ActiveRun] = []
        self._settled: Counter[Settlement] = Counter()
        self._arrived = asyncio.Event()
        self._has_failed = False

    def expect(self, started: Sequence[ActiveRun]) -> None:
        """Note when these runs begin. Those that wait for a slot count from their claims."""
        if self._rates:
            self._started += (active for active in started if not active.claimed.is_queued)
            self._arrived.set()

    async def keep_noting(self) -> None:
        """Settle starts when their handlers have begun. While there are none, nothing wakes up."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            for active in list(self._started):
                await active.begun_or_over()
            if not await self.settle():
                await self._setting.machine.wait(asyncio.Event(), RETRY_AFTER)
                self._arrived.set()

    async def settle(self) -> bool:
        """Store when handlers have begun. Return False if that failed: it is stored later."""
        begun = [active for active in self._started if active.has_begun or active.has_ended]
        self._started = [active for active in self._started if not (active.has_begun or active.has_ended)]
        for active in begun:
            run = active.claimed
            group = group_key(run.job.namespace, run.job.group)
            self._settled.update(self._rates.settlements(group, run.claimed_at, active.began_at))
        settled, self._settled = self._settled, Counter()
        try:
            if settled:
                await self._setting.ask(self._setting.store.settle_starts(settled))
        except Exception as error:  # whatever goes wrong here, the runs go on
            self._settled.update(settled)
            if not self._has_failed:
                say(WARNING, "Cannot store when %d runs began, so that fewer start: %s", len(settled), error)
            self._has_failed = True
            return False
        self._has_failed = False
        return True
