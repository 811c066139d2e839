"""Runs that have ended, and wait to be recorded. The `recorder` takes them from here.

Usually an ending is recorded at once. If other runs begin about then, it waits for a moment, so that one commit
records them all: a commit and its way to the store take longer than everything else about a short run. `Patience` says
which endings may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.jobs.run import Ending
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.timekeeping.clock import Clock, Timer
from scheduler_async.timekeeping.instants import SECOND, Micros

# If the wall clock has gone on by less than this since the last look, it has not jumped.
MOMENT: Micros = SECOND // 1000

# An ending waits for others no longer than this. A process that is killed meanwhile leaves a run that is interrupted,
# although its handler has returned.
LINGER = 0.01  # seconds


class EndedRuns:
    """Which runs have ended, and are not recorded yet? The runner reports to it."""

    def __init__(self, clock: Clock, clock_watch: ClockWatch, agenda: Agenda, announcer: Announcer) -> None:
        self._clock, self._clock_watch = clock, clock_watch
        self._agenda, self._announcer = agenda, announcer
        self._may_wait: Callable[[ActiveRun], bool] = lambda _: False
        self._waits_until: Timer | None = None
        self.unrecorded: list[ActiveRun] = []
        self.refused: set[int] = set()
        """Runs that the store cannot record at all. They count as interrupted when this scheduler stops."""
        self.arrived = asyncio.Event()
        """There are endings to record now."""

    def add(self, active: ActiveRun, ending: Ending | None) -> None:
        """Take in a run whose handler has ended; *ending* is None if it never began. The recorder records it."""
        now, watch = self._clock.micros(), self._clock_watch
        is_recent = watch.read_at <= now < watch.read_at + MOMENT
        now = watch.wall.believed(now) if is_recent else watch.believed_now()
        # `run_pending` may get a moment in the future: its runs do not end before that.
        active.ending, active.ended_at = ending, max(now, active.claimed.claimed_at)
        self.unrecorded.append(active)
        if self.arrived.is_set():
            return
        if not self._may_wait(active):
            self.hasten()
            return
        active.on_wait = self.hasten
        if self._waits_until is None:
            self._waits_until = self._clock.call_later(LINGER, self.hasten)

    def wait_if(self, may_wait: Callable[[ActiveRun], bool]) -> None:
        """Let those endings wait for others that *may_wait*."""
        self._may_wait = may_wait

    def hasten(self) -> None:
        """Record what has ended so far without waiting for more."""
        self.end_wait()
        self.arrived.set()

    def end_wait(self) -> None:
        """Note that nothing waits any more, because all endings are about to be recorded."""
        if self._waits_until is not None:
            self._waits_until.cancel()
            self._waits_until = None

    def drop(self, active: ActiveRun) -> None:
        """Let go of a run that has ended and belongs to another node, or whose job was removed."""
        self._announcer.dropped(active)
        self._agenda.look_again()
