"""How far ahead of its time the next claim reaches. The figures come from `rules.claim_ahead`, which is pure."""

from __future__ import annotations

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.held_runs import Waiting
from scheduler_async.engine.setting import Limits
from scheduler_async.rules.claim_ahead import CROWD, EARLIEST_CLAIM, LONGEST_REACH, ClaimAhead
from scheduler_async.timekeeping.instants import Micros

# Of a crowd, no more are claimed ahead: each takes memory, and time of the garbage collector, until it starts.
MOST_EARLY = 10_240


class Lookahead:
    """How long before a job is due does the loop claim it, and what else does it claim then?"""

    def __init__(self, limits: Limits, agenda: Agenda, waiting: Waiting) -> None:
        # Where slots are few, they are for what is due.
        self._is_limited = limits.max_concurrent is not None or limits.limits_groups
        self._agenda, self._waiting = agenda, waiting
        self._claimed_until: Micros = 0
        self.claim_ahead = ClaimAhead()

    @property
    def lead(self) -> Micros:
        """How long before the next job is due it is time to look."""
        if self._is_limited or not self.claim_ahead.lead:
            return 0
        following = self._agenda.next
        if following.is_crowd and following.at != self._agenda.counted:
            return EARLIEST_CLAIM  # first of all, they are counted
        room = max(MOST_EARLY - len(self._waiting), 0)
        return self.claim_ahead.lead_of_crowd(min(following.count, room))

    @property
    def count(self) -> int:
        """How many of the jobs that are due next the store counts at most: a crowd is counted as a whole."""
        return MOST_EARLY if self._agenda.next.is_crowd else CROWD

    def reach(self, now: Micros) -> Micros:
        """How far ahead to claim: no less far than before, so that a run that is held keeps its place.

        But no further than usual if others come before a crowd, or if enough of the crowd are claimed.
        """
        lead, next_at = self.lead, self._agenda.next.at
        if not lead:
            return 0
        until = now + self.claim_ahead.reach
        if next_at is not None and until < next_at <= now + lead and next_at == self._agenda.counted:
            until = next_at
        others_come_first = next_at is not None and next_at < self._claimed_until
        no_more_of_a_crowd = others_come_first or len(self._waiting) >= MOST_EARLY
        if until < self._claimed_until <= now + (LONGEST_REACH if no_more_of_a_crowd else EARLIEST_CLAIM):
            until = self._claimed_until
        self._claimed_until = until
        return until - now
