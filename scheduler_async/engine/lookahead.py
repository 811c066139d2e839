"""How long before their time jobs are claimed. The figures come from `rules.claim_ahead`, which is pure."""

from __future__ import annotations

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.held_runs import Waiting
from scheduler_async.engine.setting import Limits
from scheduler_async.rules.claim_ahead import CROWD, EARLIEST_CLAIM, LONGEST_REACH, ClaimAhead
from scheduler_async.timekeeping.instants import Micros

# At most so many runs are claimed ahead: each takes memory, and time of the garbage collector, until it starts.
MOST_EARLY = 10_240


class Lookahead:
    """How long before a job is due does the loop claim it, and what else does it claim then?"""

    def __init__(self, limits: Limits, agenda: Agenda, waiting: Waiting) -> None:
        # A slot that is limited must not be held for a job that is not due yet.
        self._is_limited = limits.max_concurrent is not None or limits.limits_groups or bool(limits.group_rates)
        self._agenda, self._waiting = agenda, waiting
        self._claimed_until: Micros = 0
        self.claim_ahead = ClaimAhead()

    @property
    def is_in_use(self) -> bool:
        """Return whether jobs are claimed ahead at all: claims take time, and no limit forbids it."""
        return not self._is_limited and self.claim_ahead.lead > 0

    @property
    def lead(self) -> Micros:
        """Return how long before the next job is due the loop claims it."""
        if not self.is_in_use:
            return 0
        following = self._agenda.next
        if following.is_crowd and following.at != self._agenda.counted:
            return EARLIEST_CLAIM  # to count them first
        room = max(MOST_EARLY - len(self._waiting), 0)
        return self.claim_ahead.lead_of_crowd(min(following.count, room))

    @property
    def count(self) -> int:
        """Return up to which number the store counts the jobs that are due next: all of them, if they are many."""
        return MOST_EARLY if self._agenda.next.is_crowd else CROWD

    def is_time_to_look(self, now: Micros) -> bool:
        """Return whether to claim the next job *now*: in a moment, the loop would wake up for that alone."""
        next_at = self._agenda.next.at
        if next_at is None:
            return False
        lead = self.lead
        if next_at <= now + lead:
            return True
        if not lead or self._agenda.has_neighbours or next_at > now + LONGEST_REACH:
            return False
        held_until = self._waiting.first_at
        return held_until is None or held_until > next_at - lead  # otherwise, the loop is awake then

    def reach(self, now: Micros) -> Micros:
        """Return how far ahead to claim: no less far than before, so that a held run keeps its place.

        But no further than usual if other jobs come before a crowd, or if enough of the crowd is claimed.
        """
        lead, next_at = self.lead, self._agenda.next.at
        if not lead:
            return 0
        until = now + (self.claim_ahead.reach if self._agenda.has_neighbours else LONGEST_REACH)
        if next_at is not None and until < next_at <= now + lead and next_at == self._agenda.counted:
            until = next_at
        others_come_first = next_at is not None and next_at < self._claimed_until
        no_more_of_a_crowd = others_come_first or len(self._waiting) >= MOST_EARLY
        if until < self._claimed_until <= now + (LONGEST_REACH if no_more_of_a_crowd else EARLIEST_CLAIM):
            until = self._claimed_until
        self._claimed_until = until
        return until - now
