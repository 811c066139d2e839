"""How far ahead of its time a job is claimed, so that its handler starts on time. Pure.

A claim takes a while: a millisecond on a disk, more over a network or on a busy machine, and whoever begins with it
when a job is due is late by that. So the loop wakes up a little before, claims what is due within the next moments, and
lets each handler start when its time has come. By a clock on which claims take no time, nothing is done ahead.

To claim a crowd, many jobs that are due at one moment, takes longer: the loop begins with it as long before as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from scheduler_async.timekeeping.instants import SECOND, Micros

# However long claims take, the loop wakes up this much before at least, since one may take longer than those before it:
# the first that reads from the disk, for one. And no earlier than this.
SHORTEST_LEAD: Micros = SECOND // 200
LONGEST_LEAD: Micros = SECOND // 40

# What is due at various moments is claimed no earlier than this, and nothing at all is earlier than that: whoever
# pauses or edits a job that another process is about to start waits so long at most, see `Claimer.begun_elsewhere`.
LONGEST_REACH: Micros = SECOND // 20
EARLIEST_CLAIM: Micros = SECOND // 2

# So far ahead is claimed, in leads: one claim serves all that is due until the next.
LEADS = 4

# A slow claim counts at once, and is forgotten little by little.
FORGETTING = 16
HEADROOM = 1.25

# So many are a crowd, and say how long it takes to claim each. Before that is known, it is thought to be this long.
CROWD = 64
FIRST_GUESS = 0.000_200  # seconds


@dataclass(slots=True)
class Expected:
    """The next moment at which something is due, and how many jobs that is, as far as anybody has told."""

    at: Micros | None = None
    count: int = 0

    @property
    def is_crowd(self) -> bool:
        """Whether they are many."""
        return self.count >= CROWD

    def hear_of(self, at: Micros, count: int) -> bool:
        """So many are due at a moment. Return whether that may be a reason to wake up earlier."""
        if self.at is None or at < self.at:
            self.at, self.count = at, count
            return True
        if at > self.at:
            return False
        before, self.count = self.count, self.count + count
        return before // CROWD < self.count // CROWD

    def or_sooner(self, other: Self) -> Self:
        """Whatever is sooner; of one moment, whoever knows of more."""
        if self.at is None or other.at is None:
            return other if self.at is None else self
        return min(self, other, key=lambda expected: (expected.at, -expected.count))


class Foresight:
    """Learns how long claims take."""

    def __init__(self) -> None:
        self._took = 0.0
        self._took_each = FIRST_GUESS

    def learn(self, took: float, count: int) -> None:
        """A claim of so many runs took so many seconds."""
        self._took = max(took, self._took + (took - self._took) / FORGETTING)
        if count >= CROWD:
            self._took_each += (took / count - self._took_each) / FORGETTING

    @property
    def lead(self) -> Micros:
        """How long before a job is due the loop wakes up."""
        if not self._took:
            return 0
        return min(max(int(self._took * HEADROOM * SECOND), SHORTEST_LEAD), LONGEST_LEAD)

    def lead_of_crowd(self, count: int) -> Micros:
        """How long before a moment at which so many are due the loop wakes up."""
        usual = self.lead
        if not usual or count < CROWD:
            return usual
        return min(usual + int(count * self._took_each * HEADROOM * SECOND), EARLIEST_CLAIM)

    @property
    def reach(self) -> Micros:
        """How far ahead it then claims."""
        return min(self.lead * LEADS, LONGEST_REACH)
