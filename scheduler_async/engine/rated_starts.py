"""Notes in the store that runs of groups with a rate began later than they were counted.

A claim counts a start as of the time of the claim, and its handler begins a little later: the claim has to be written,
and other handlers may begin before it. Without a correction, more handlers than the rate allows could begin in a period
that starts between the two. `rules/rates.py` has the arithmetic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from logging import WARNING

from scheduler_async.engine.setting import Setting
from scheduler_async.logs import say
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.rates import Move
from scheduler_async.running.active_run import ActiveRun

# How soon to try again after the store has failed. The shortest period is a second.
RETRY_AFTER = 0.2  # seconds


class RatedStarts:
    """Which runs of this process began later than they were counted?"""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._rates = setting, setting.limits.group_rates
        self._started: list[ActiveRun] = []
        self._moves: Counter[Move] = Counter()
        self._arrived = asyncio.Event()
        self._has_failed = False

    def expect(self, started: Sequence[ActiveRun]) -> None:
        """Compare when these runs begin with when they were counted. Runs that wait for a slot are left out."""
        if self._rates and started:
            self._started += (active for active in started if not active.claimed.is_queued)
            self._arrived.set()

    async def keep_noting(self) -> None:
        """Correct starts as they happen. While there are none, nothing wakes up."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            started, self._started = self._started, []
            for active in started:
                await active.begun_or_over()
                if active.began_at is not None:
                    self._moves.update(self._moves_of(active, active.began_at))
            if self._moves and not await self._store_moves():
                await self._setting.machine.wait(asyncio.Event(), RETRY_AFTER)
                self._arrived.set()

    def _moves_of(self, active: ActiveRun, began_at: int) -> list[Move]:
        claimed = active.claimed
        group = group_key(claimed.job.namespace, claimed.job.group)
        return self._rates.moves(group, claimed.claimed_at, began_at)

    async def _store_moves(self) -> bool:
        """Store the corrections. Return False if that failed: they are stored later."""
        now = self._setting.clock.micros()
        moves, self._moves = (
            Counter({move: count for move, count in self._moves.items() if move.until > now}),
            Counter(),
        )
        try:
            await self._setting.ask(self._setting.store.move_starts(moves))
        except Exception as error:  # whatever goes wrong here, the runs go on
            self._moves = moves
            if not self._has_failed:
                self._has_failed = True
                say(WARNING, "Cannot store when %d runs began, so that a rate may be exceeded: %s", len(moves), error)
            return False
        self._has_failed = False
        return True
