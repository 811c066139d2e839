"""The loop: clear, look, wait. A pass claims due jobs; their runs begin and end in their own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from logging import ERROR

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.claimer import Claimer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.recorder import Recorder
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.troubles import Troubles, retry_delay
from scheduler_async.errors import StoreOutdatedError
from scheduler_async.logs import say
from scheduler_async.stores.messages import NodeLost
from scheduler_async.timekeeping.instants import SECOND, Micros, span
from scheduler_async.timekeeping.wall_clock import GLANCE


class Loop:
    """When does the scheduler look for due jobs?"""

    def __init__(
        self,
        setting: Setting,
        node: OwnNode,
        agenda: Agenda,
        clock_watch: ClockWatch,
        troubles: Troubles,
        claimer: Claimer,
        recorder: Recorder,
        rejoin: Callable[[], Awaitable[None]],
    ) -> None:
        """*rejoin* makes this process a node again after it has lost its lease."""
        self._setting, self._clock, self._progress = setting, setting.clock, setting.progress
        self._node, self._agenda, self._clock_watch, self._troubles = node, agenda, clock_watch, troubles
        self._claimer, self._lookahead, self._recorder, self._rejoin = claimer, claimer.lookahead, recorder, rejoin
        # On the monotonic clock: when the loop last looked, and when it will look again at the latest.
        self.looked_at: float | None = None
        self.looks_again_by = float("inf")

    async def run(self) -> None:
        """Clear, look, wait: a change during the look sets the event again."""
        changed = self._agenda.changed
        unsubscribe = self._clock.on_jump(changed.set)
        failures = 0
        try:
            while self._progress.status == "running":
                changed.clear()
                try:
                    timeout = await self._pass()
                    failures = 0
                    self._troubles.are_over_for("loop")
                except NodeLost:
                    await self._rejoin()
                    timeout = 0.0
                except StoreOutdatedError as error:
                    self._troubles.note_outdated(error)
                    timeout = None
                except Exception as error:  # the loop survives every failure of a store
                    timeout = retry_delay(failures)
                    self._agenda.is_stale = True
                    self._troubles.report("loop", error)
                    say(ERROR, "A pass failed; trying again in %g s: %s", timeout, error, exc_info=failures == 0)
                    failures += 1
                self.looks_again_by = self._clock.monotonic() + (float("inf") if timeout is None else timeout)
                await self._sleep(timeout)
        finally:
            unsubscribe()

    async def _pass(self) -> float | None:
        """Claim and start due jobs; return how long to sleep."""
        now = self._look_at_clock()
        self._progress.tick_count += 1
        self._progress.last_tick_at = now
        if self._troubles.outdated is None:
            self._node.check_trust()
        await self._follow_the_clock(now)
        if self._may_decide:
            await self._claimer.end_pauses(now)
        if self._agenda.runs_requested and self._may_decide and self._claimer.room() > 0:
            await self._claimer.claim_requested(now, self._claimer.room())
        while self._progress.status == "running" and self._should_look(now):
            self._agenda.is_stale = False
            await self._follow_the_clock(now)
            recording = self._recorder.record_beside_a_claim()
            try:
                await self._claimer.claim(now, self._claimer.room(), self._lookahead.reach(now))
            finally:
                if recording is not None and not recording.done():
                    await asyncio.wait([recording])
            now = self._look_at_clock()
        self._agenda.end_wait_of_backfills(now)
        if self._agenda.may_backfill and self._may_decide and self._claimer.room() > 0:
            await self._claimer.claim_backfills(now, self._claimer.room())
        return self._sleep_from(now)

    async def _follow_the_clock(self, now: Micros) -> None:
        """Move jobs after the clock went back, even if there is no room to run one."""
        if self._clock_watch.went_back and self._may_decide:
            await self._clock_watch.go_back(now)

    async def _sleep(self, timeout: float | None) -> None:
        """Sleep until something changes, or for *timeout* seconds."""
        changed = self._agenda.changed
        timer = None if timeout is None else self._clock.call_later(timeout, changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _look_at_clock(self) -> Micros:
        """Return the time, and note when the loop looked."""
        self.looked_at = self.looks_again_by = self._clock.monotonic()
        return self._clock_watch.read()

    def _should_look(self, now: Micros) -> bool:
        agenda = self._agenda
        due = agenda.is_stale or agenda.is_hungry or self._lookahead.is_time_to_look(now)
        return due and self._claimer.room() > 0 and self._may_decide

    @property
    def _may_decide(self) -> bool:
        """Return whether jobs may be changed: the clock is believed, and the store is not outdated."""
        return self._clock_watch.is_believed and self._troubles.outdated is None

    def _sleep_from(self, now: Micros) -> float | None:
        """Return how long to sleep: until the next job is due, or a little less, at most `max_sleep`."""
        wake, max_sleep = self._agenda.next.at, self._setting.limits.max_sleep
        held_for = self._clock_watch.held_for
        if held_for is not None:
            wake = now + int(held_for * SECOND)
        elif self._should_look(now):
            wake = now
        elif wake is not None and wake <= now:
            # A job is due and there is no room: it starts when a run ends.
            self._agenda.is_hungry, wake = True, None
        pause_ends_at = self._agenda.pause_ends_at if self._may_decide else None
        longest = None if max_sleep is None else now + span(max_sleep)
        glance = None if held_for is None else now + int(GLANCE * SECOND)
        backfills_at = self._agenda.backfills_wait_until if self._may_decide else None
        self._progress.next_wake_at = _earliest(wake, pause_ends_at, backfills_at, longest, glance)
        if wake is not None:
            wake -= self._lookahead.lead
        if self._clock.tells_of_jumps:
            longest = glance = None  # the clock itself wakes the loop after a jump
        capped = _earliest(wake, pause_ends_at, backfills_at, longest, glance)
        return None if capped is None else max(capped - now, 0) / SECOND


def _earliest(*moments: Micros | None) -> Micros | None:
    return min((moment for moment in moments if moment is not None), default=None)
