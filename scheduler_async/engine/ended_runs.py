"""Runs that have ended, and wait to be recorded. The `recorder` takes them from here."""

from __future__ import annotations

import asyncio

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.jobs.run import Ending
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import SECOND, Micros

# If the wall clock has gone on by less than this since the last look, it has not jumped.
MOMENT: Micros = SECOND // 1000


class EndedRuns:
    """Which runs have ended, and are not recorded yet? The runner reports to it."""

    def __init__(self, clock: Clock, clock_watch: ClockWatch, agenda: Agenda, announcer: Announcer) -> None:
        self._clock, self._clock_watch = clock, clock_watch
        self._agenda, self._announcer = agenda, announcer
        self.unrecorded: list[ActiveRun] = []
        self.arrived = asyncio.Event()

    def add(self, active: ActiveRun, ending: Ending | None) -> None:
        """Take in a run whose handler has ended; *ending* is None if it never began. The recorder records it."""
        now, watch = self._clock.micros(), self._clock_watch
        is_recent = watch.read_at <= now < watch.read_at + MOMENT
        now = watch.wall.believed(now) if is_recent else watch.believed_now()
        # `run_pending` may get a moment in the future: its runs do not end before that.
        active.ending, active.ended_at = ending, max(now, active.claimed.claimed_at)
        self.unrecorded.append(active)
        self.arrived.set()

    def drop(self, active: ActiveRun) -> None:
        """Let go of a run that has ended and belongs to another node, or whose job was removed."""
        self._announcer.dropped(active)
        self._agenda.look_again()
