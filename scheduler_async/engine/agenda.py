"""What the loop knows of the jobs that are due next. Every part that learns of a change wakes the loop here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from scheduler_async.jobs.job import Job
from scheduler_async.rules.claim_ahead import Expected
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.messages import Claims
from scheduler_async.timekeeping.instants import Micros


class Agenda:
    """Is there a reason for the loop to look at the store, and when is the next one?"""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Wakes the loop."""
        self.is_stale = True
        """What is known of the store may be out of date."""
        self.pause_ends_at: Micros | None = 0
        """When a paused job resumes by itself, or earlier. None if no job is known to do so."""
        self.is_hungry = False
        """More jobs were due than could be claimed."""
        self.cancels_requested = asyncio.Event()
        """Another process may have asked to cancel a run."""
        self.runs_requested = True
        """A caller may have asked for a run that this process can take up."""
        self.requests_wait = False
        """Such a run waits until another one has ended."""
        self.may_backfill = True
        """A backfill may have an occurrence that this process can run."""
        self.backfills_wait_until: Micros | None = None
        """When the rate of a group allows more runs of backfills, if it holds them up."""
        self.is_unsure = False
        """The store may hold runs for this node of which it does not know."""
        self.has_neighbours = False
        """Other nodes claim jobs of the store, too."""
        self.is_about_to_claim = False
        """The loop is about to claim jobs, and records at the same time how runs have ended."""
        self.next = Expected()
        self.counted: Micros | None = None
        """The next moment, if the store has counted all jobs that are due then."""
        self._learned = Expected()  # since the last claim began

    def look_again(self) -> None:
        """Make the loop look at the store: something has changed there."""
        self.is_stale = True
        self.pause_ends_at = 0
        self.runs_requested = True
        self.may_backfill = True
        self.changed.set()

    def hear_of_requests(self) -> None:
        """Look for requests to start or to cancel runs, and for backfills."""
        self.runs_requested = True
        self.may_backfill = True
        self.changed.set()
        self.cancels_requested.set()

    def end_wait_of_backfills(self, now: Micros) -> None:
        """Look for backfills again if the rate that held them up allows it *now*."""
        if self.backfills_wait_until is not None and self.backfills_wait_until <= now:
            self.may_backfill, self.backfills_wait_until = True, None

    def look_for_backfills(self) -> None:
        """Look for occurrences of backfills that may run now."""
        self.may_backfill = True
        self.changed.set()

    def note_endings(self) -> None:
        """Wake the loop after runs have ended, if other jobs may start now."""
        self.runs_requested = self.runs_requested or self.requests_wait
        if self.is_hungry or self.is_stale or self.runs_requested or self.may_backfill:
            self.changed.set()

    def learn_of(self, jobs: Iterable[Job]) -> None:
        """Note when *jobs* run next: that may be before the loop wakes up."""
        moments = []
        for job in jobs:
            state = job.state
            if state.next_run_at is not None:
                moments.append(state.next_run_at)
            if state.paused_until is not None:
                self.learn_of_pause(state.paused_until)
        self.learn_of_moments(moments)

    def learn_of_changes(self, changes: Iterable[Transition]) -> None:
        """Note when changed jobs run next, and those that run after them."""
        found = list(changes)
        self.learn_of(change.job for edit in found for change in (edit, *edit.successors))

    def learn_of_pause(self, until: Micros | None) -> None:
        """Note that a paused job resumes by itself at a time."""
        if until is not None and (self.pause_ends_at is None or until < self.pause_ends_at):
            self.pause_ends_at = until
            self.changed.set()

    def learn_of_moments(self, moments: Sequence[Micros]) -> None:
        """Note the earliest of *moments*. The later ones do not matter yet."""
        if moments:
            first = min(moments)
            self._learn_of_moment(first, moments.count(first))

    def hear_of_change(self, at: Micros | None, count: int) -> None:
        """Note that another process changed *count* jobs that are due *at* a moment; None stands for any change."""
        if at is None:
            self.look_again()
            self.hear_of_requests()
        else:
            self._learn_of_moment(at, count)

    def begin_claim(self) -> None:
        """Collect what is learned from now on: the answer to the claim may not include it."""
        self._learned = Expected()

    def end_claim(self, claims: Claims, *, counted_all: bool) -> None:
        """Replace what was known by the answer of the store and by what was learned meanwhile."""
        self.is_hungry = claims.is_full
        learned, self._learned = self._learned, Expected()
        self.next = learned.or_sooner(Expected(claims.next_due, claims.next_count))
        self.counted = claims.next_due if counted_all else None

    def _learn_of_moment(self, at: Micros, count: int) -> None:
        self._learned.hear_of(at, count)
        if self.next.hear_of(at, count):
            self.changed.set()
