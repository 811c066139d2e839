"""How far ahead of its time a job is claimed, so that its handler starts on time. Pure.

A claim takes time: a millisecond on a disk, more over a network or on a busy machine. A loop that starts to claim a job
when it is due starts it late. So the loop wakes up a little earlier, claims the jobs that are due soon, and starts each
handler at its time. On a clock where claims take no time, it claims nothing ahead.

Claiming a crowd, which is many jobs due at one time, takes longer. The loop starts earlier by as much.

A change to a job that is claimed ahead takes the claim back first: `Engine.undisturbed` calls `Claimer.put_back`, and
`claiming.unclaim` says what the job looks like then. If another process holds the claim, the change waits until the run
has started (`Claimer.begun_elsewhere`, called by `engine/editor.py`).
"""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from scheduler_async.timekeeping.instants import SECOND, Micros

# The loop wakes up at least SHORTEST_LEAD before a job is due, because a claim may take longer than those before it,
# such as the first one that reads from the disk. It wakes up at most LONGEST_LEAD before.
SHORTEST_LEAD: Micros = SECOND // 200
LONGEST_LEAD: Micros = SECOND // 40

# Jobs that are due at different times are claimed at most LONGEST_REACH ahead, and a crowd at most EARLIEST_CLAIM
# ahead. A user who pauses or edits a job that another process is about to start waits at most this long, see
# `Claimer.begun_elsewhere`.
LONGEST_REACH: Micros = SECOND // 20
EARLIEST_CLAIM: Micros = SECOND // 2

# One claim reaches this many leads ahead, so that it covers the jobs until the next claim.
LEADS = 4

# A slow claim takes effect at once, and its weight decays slowly.
FORGETTING = 16
HEADROOM = 1.25

# From this size on, a claim is a crowd and measures the time for each job. FIRST_GUESS holds until then.
CROWD = 64
FIRST_GUESS = 0.000_200  # seconds


class Expected(Struct):
    """The next time at which jobs are due, and how many, as far as they are known."""

    at: Micros | None = None
    count: int = 0

    @property
    def is_crowd(self) -> bool:
        """Whether this many jobs are a crowd."""
        return self.count >= CROWD

    def hear_of(self, at: Micros, count: int) -> bool:
        """Record that *count* jobs are due *at* a time. Return whether the loop may have to wake up earlier."""
        if self.at is None or at < self.at:
            self.at, self.count = at, count
            return True
        if at > self.at:
            return False
        before, self.count = self.count, self.count + count
        return before // CROWD < self.count // CROWD

    def or_sooner(self, other: Self) -> Self:
        """Return the earlier of the two. At the same time, return the one with the higher count."""
        if self.at is None or other.at is None:
            return other if self.at is None else self
        return min(self, other, key=lambda expected: (expected.at, -expected.count))


class ClaimAhead:
    """Learns how long claims take."""

    def __init__(self) -> None:
        self._took = 0.0
        self._took_each = FIRST_GUESS

    def learn(self, took: float, count: int) -> None:
        """Record that a claim of *count* runs took *took* seconds."""
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
        """Return how long before a time at which *count* jobs are due the loop wakes up."""
        usual = self.lead
        if not usual or count < CROWD:
            return usual
        return min(usual + int(count * self._took_each * HEADROOM * SECOND), EARLIEST_CLAIM)

    @property
    def reach(self) -> Micros:
        """How far ahead a claim reaches."""
        return min(self.lead * LEADS, LONGEST_REACH)
