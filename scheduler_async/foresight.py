"""How far ahead of its time a job is claimed, so that its handler starts on time. Pure.

A claim takes a while: a millisecond on a disk, more over a network or on a busy machine, and whoever begins with it
when a job is due is late by that. So the loop wakes up a little before, claims what is due within the next moments, and
lets each handler start when its time has come. By a clock on which claims take no time, nothing is done ahead.
"""

from __future__ import annotations

from scheduler_async.instants import SECOND, Micros

# However long claims take, the loop wakes up this much before at least, since one may take longer than those before it:
# the first that reads from the disk, for one. And no earlier than this.
SHORTEST_LEAD: Micros = SECOND // 200
LONGEST_LEAD: Micros = SECOND // 40

# Nothing is claimed earlier than this: whoever pauses or edits a job waits so long at most, see `Engine.begun`.
LONGEST_REACH: Micros = SECOND // 20

# So far ahead is claimed, in leads: one claim serves all that is due until the next.
LEADS = 4

# A slow claim counts at once, and is forgotten little by little.
FORGETTING = 16
HEADROOM = 1.25


class Foresight:
    """Learns how long claims take."""

    def __init__(self) -> None:
        self._took = 0.0

    def learn(self, took: float) -> None:
        """A claim took so many seconds."""
        self._took = max(took, self._took + (took - self._took) / FORGETTING)

    @property
    def lead(self) -> Micros:
        """How long before a job is due the loop wakes up."""
        if not self._took:
            return 0
        return min(max(int(self._took * HEADROOM * SECOND), SHORTEST_LEAD), LONGEST_LEAD)

    @property
    def reach(self) -> Micros:
        """How far ahead it then claims."""
        return min(self.lead * LEADS, LONGEST_REACH)
