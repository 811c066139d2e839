"""What is known of the jobs that are due next. Everything that learns of a change wakes the loop here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from scheduler_async.jobs.job import Job
from scheduler_async.rules.claim_ahead import Expected
from scheduler_async.stores.messages import Claims
from scheduler_async.timekeeping.instants import Micros


class Agenda:
    """Is there a reason for the loop to look at the store, and when is the next one?"""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Wakes the loop."""
        self.is_stale = True
        """What is known of the store may be wrong."""
        self.is_hungry = False
        """More was due than could be claimed."""
        self.next = Expected()
        self.counted: Micros | None = None
        """The next moment, if all jobs that are due then were counted."""
        self._learned = Expected()  # since the last claim began

    def look_again(self) -> None:
        """Let the loop look at the store: something has changed, and what was known of it may be wrong."""
        self.is_stale = True
        self.changed.set()

    def learn_of(self, jobs: Iterable[Job]) -> None:
        """Take note of jobs that may be due earlier than the moment the loop sleeps for."""
        self.learn_of_moments([at for job in jobs if (at := job.state.next_run_at) is not None])

    def learn_of_moments(self, moments: Sequence[Micros]) -> None:
        """Take note of the earliest of *moments*: those after it do not matter yet."""
        if moments:
            first = min(moments)
            self._learn_of_moment(first, moments.count(first))

    def hear_of_change(self, at: Micros | None, count: int) -> None:
        """Take note that another process changed what is due at a moment; without a moment, it may be anything."""
        if at is None:
            self.look_again()
        else:
            self._learn_of_moment(at, count)

    def begin_claim(self) -> None:
        """Collect what is learned from now on: the answer to the claim may not know of it."""
        self._learned = Expected()

    def end_claim(self, claims: Claims, *, counted_all: bool) -> None:
        """Replace what was known by what the store has answered, and by what was learned meanwhile."""
        self.is_hungry = claims.is_full
        learned, self._learned = self._learned, Expected()
        self.next = learned.or_sooner(Expected(claims.next_due, claims.next_count))
        self.counted = claims.next_due if counted_all else None

    def _learn_of_moment(self, at: Micros, count: int) -> None:
        self._learned.hear_of(at, count)
        if self.next.hear_of(at, count):
            self.changed.set()
