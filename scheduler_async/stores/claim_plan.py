"""Decide whether to start, queue or pass over each due job of a claim. Pure; the stores read and write."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from scheduler_async.jobs.enums import Phase, Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import ChangeRecord, disablings
from scheduler_async.stores.decided import CLAIM, Decisions, Undecided
from scheduler_async.stores.decisions import claimed
from scheduler_async.stores.messages import ClaimTerms
from scheduler_async.stores.run_codec import Skipped
from scheduler_async.timekeeping.instants import Micros

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and every run needs these.
RUNNING, QUEUED, IDLE = Status.RUNNING, Status.QUEUED, Status.IDLE


class ClaimPlan:
    """Decides about jobs one by one, in the order in which they start, and collects the rows to write."""

    def __init__(self, now: Micros, terms: ClaimTerms, decisions: Decisions) -> None:
        self.runs: list[ClaimedRun] = []
        self.edits: list[Transition] = []
        """Jobs that skipped occurrences or were disabled, for observers."""
        self.skipped: list[Skipped] = []
        self.changes: list[ChangeRecord] = []
        self.passed_over: list[Job] = []
        """Jobs without a new run, because none of their occurrences was left to run, or because they were disabled."""
        self.instances: list[ClaimedRun] = []
        """Those of `runs` whose jobs may have several."""
        self.overlapped: list[int] = []
        """The numbers of jobs whose oldest runs must be cancelled."""
        self.undecided: list[Job] = []
        """Jobs that are left out, since their schedules may be slow."""
        self._now, self._rules, self._decisions = now, terms.rules, decisions
        self._slots = float("inf") if terms.slots is None else terms.slots

    def activity(self) -> Status:
        """Return the activity of the next run: running while slots are free, then queued."""
        return QUEUED if self._is_full else RUNNING

    @property
    def _is_full(self) -> bool:
        return len(self.runs) >= self._slots

    @property
    def still_due(self) -> list[Job]:
        """Jobs that may have several runs, and of which one more may be due."""
        return [run.job for run in self.instances if run.job.state.activity is IDLE]

    def claim(self, job: Job, run_id: int) -> bool:
        """Claim *job* by the rules, or pass over it. Return whether a run uses *run_id*."""
        try:
            edit = self._claimed(job)
        except Undecided:
            self.undecided.append(job)
            return False
        attempt = edit.attempt
        if attempt is None:
            self.passed_over.append(edit.job)
            self.overlapped += [job.uid] if edit.overlaps else []
        elif edit.job.state.running:
            run = ClaimedRun.of(run_id, edit.job, attempt, job.description.payload_json, job.state, waits=self._is_full)
            self.runs.append(run)
            self.instances.append(run)
        else:
            self.runs.append(ClaimedRun.of(run_id, edit.job, attempt, job.description.payload_json, job.state))
        if edit.skips or edit.kind:
            self.edits.append(edit)
            self.skipped.append((edit.job, edit.skips, self._now if attempt is None else attempt.claimed_at))
            self.changes += disablings([(job.with_state(_as_due(job.state)), edit, self._now)])
        return attempt is not None

    def _claimed(self, job: Job) -> Transition:
        if not job.schedule.may_be_slow:
            return claimed(job, self._now, self._rules, self.activity())
        edit = self._decisions.about(
            job, (CLAIM, job.uid), self._now, partial(claimed, job, self._now, self._rules, RUNNING)
        )
        if edit.attempt is None or edit.state.running:
            return edit
        return replace(edit, job=edit.job.with_state(replace(edit.state, activity=self.activity())))

    def drop(self, repeated: Collection[int]) -> None:
        """Drop the claims of jobs whose occurrences ran before the clock was set back, by the numbers of the jobs."""
        self.runs = [run for run in self.runs if run.uid not in repeated]
        self.instances = [run for run in self.instances if run.uid not in repeated]
        self.edits = [edit for edit in self.edits if edit.job.uid not in repeated]
        self.skipped = [item for item in self.skipped if item[0].uid not in repeated]


def _as_due(state: JobState) -> JobState:
    """Return the state of a job that was due. One that cannot be read is shown as disabled already."""
    return replace(state, phase=Phase.ACTIVE, disabled_reason=None)
